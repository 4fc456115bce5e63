// Building the page. Text of users and models enters it through text nodes only: nothing here, and nothing that uses
// it, hands a string to the HTML parser.

// el("a", {href: "...", class: "..."}, "text", node): an element. on* become listeners, true/false flags.
export function el(tag, props = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value === true) node.setAttribute(name, "");
    else if (value !== false && value != null) node.setAttribute(name, String(value));
  }
  node.append(...children);
  return node;
}

export const byId = (id) => document.getElementById(id);

// A picture of the sprite at the top of index.html; buttons carry their name as text or label.
export function icon(name) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  const use = document.createElementNS("http://www.w3.org/2000/svg", "use");
  svg.setAttribute("class", "icon");
  svg.setAttribute("aria-hidden", "true");
  use.setAttribute("href", "#i-" + name);
  svg.append(use);
  return svg;
}

export const iconButton = (name, label, onclick) =>
  el("button", { type: "button", class: "quiet", "aria-label": label, title: label, onclick }, icon(name));

// The clipboard interface exists on https and localhost only; a server in the local network has neither.
export async function copyText(text) {
  if (navigator.clipboard && window.isSecureContext) {
    try {
      await navigator.clipboard.writeText(text);
      return true;
    } catch {
      // not permitted: the old way may still be
    }
  }
  const before = document.activeElement;
  const area = el("textarea", { class: "sr", "aria-hidden": "true", tabindex: -1 });
  area.value = text;
  (before?.closest("dialog") || document.body).append(area);
  area.select();
  const done = document.execCommand("copy");
  area.remove();
  before?.focus();
  return done;
}

let toastTimer = 0;

// A short message at the bottom, with at most one thing to do about it.
export function toast(text, action, onaction) {
  const box = byId("toast");
  clearTimeout(toastTimer);
  box.replaceChildren(el("span", {}, text));
  if (action) {
    box.append(el("button", { type: "button", onclick: () => (box.replaceChildren(), onaction()) }, action));
  }
  toastTimer = setTimeout(() => box.replaceChildren(), action ? 8000 : 3000);
}

export function download(name, type, text) {
  const url = URL.createObjectURL(new Blob([text], { type }));
  const link = el("a", { href: url, download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}
