// Runs before the first paint, so that a page switched to dark does not flash white. The switch itself is in app.js.
(() => {
  let theme;
  try {
    theme = JSON.parse(localStorage.getItem("dflash.settings") || "{}").theme;
  } catch {
    theme = "auto"; // storage may be forbidden or hold anything
  }
  if (theme === "dark" || theme === "light") document.documentElement.dataset.theme = theme;
})();
