// Evaluated in the chat page by web_page.py: what a person with a ruler would measure.
window.probe = {
  // "rgb(a)" or "color(srgb ...)" to [r, g, b, a] with 0..255 and 0..1
  colour(text) {
    const v = text.match(/-?[\d.]+(e-?\d+)?/g).map(Number);
    if (text.startsWith("color(")) return [v[0] * 255, v[1] * 255, v[2] * 255, v[3] ?? 1];
    return [v[0], v[1], v[2], v[3] ?? 1];
  },
  luminance([r, g, b]) {
    const f = (c) => ((c /= 255) <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
    return 0.2126 * f(r) + 0.7152 * f(g) + 0.0722 * f(b);
  },
  over: (top, under) => [0, 1, 2].map((i) => top[i] * top[3] + under[i] * (1 - top[3])).concat(1),
  background(node) {
    if (!node) return [255, 255, 255, 1];
    const own = this.colour(getComputedStyle(node).backgroundColor);
    if (own[3] === 1) return own;
    return this.over(own, node.matches("dialog") ? own : this.background(node.parentElement));
  },
  ratio(a, b) {
    const [x, y] = [this.luminance(a), this.luminance(b)].sort((p, q) => q - p);
    return (x + 0.05) / (y + 0.05);
  },
  seen: (node) =>
    node.checkVisibility({ opacityProperty: true, visibilityProperty: true }) && !node.closest(".sr, .who, .skip"),
  // Texts whose contrast is below 4.5 : 1, with the number. Disabled controls are exempt, as in WCAG 1.4.3.
  weakTexts() {
    const out = [];
    const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    let n = 0;
    while (walk.nextNode()) {
      const node = walk.currentNode.parentElement;
      if (!walk.currentNode.data.trim() || !this.seen(node) || node.closest("svg, :disabled, option, noscript")) continue;
      const back = this.background(node);
      const ratio = this.ratio(this.over(this.colour(getComputedStyle(node).color), back), back);
      n++;
      if (ratio < 4.5) out.push(`${walk.currentNode.data.trim().slice(0, 30)}: ${ratio.toFixed(2)}`);
    }
    for (const field of document.querySelectorAll("[placeholder]")) {
      if (!this.seen(field)) continue;
      const ratio = this.ratio(this.colour(getComputedStyle(field, "::placeholder").color), this.background(field));
      n++;
      if (ratio < 4.5) out.push(`placeholder ${field.id}: ${ratio.toFixed(2)}`);
    }
    return { n, out };
  },
  // Outlines of controls and the focus ring against what is behind them: 3 : 1 (WCAG 1.4.11).
  weakEdges() {
    const out = [];
    for (const node of document.querySelectorAll("#input, #composer, dialog[open] input, dialog[open] select, .knob")) {
      if (!this.seen(node)) continue;
      const edge = node.id === "input" ? node.parentElement : node;
      const style = getComputedStyle(edge);
      const mark = this.colour(node.matches(".knob") ? style.backgroundColor : style.borderTopColor);
      const ratio = this.ratio(mark, this.background(edge.parentElement));
      if (ratio < 3) out.push(`${node.id || node.className}: ${ratio.toFixed(2)}`);
    }
    return out;
  },
  // Elements that stick out of the window and are not inside something that scrolls on its own.
  tooWide() {
    const out = [];
    for (const node of document.querySelectorAll("body *")) {
      if (!this.seen(node) || node.closest("pre, .scroll, svg, #announce")) continue;
      const box = node.getBoundingClientRect();
      const outside = box.right > innerWidth + 0.5 || box.left < -0.5;
      if (box.width && outside) out.push(`${node.tagName}.${node.className} ${box.right}`);
    }
    if (document.documentElement.scrollWidth > innerWidth) out.push("the page scrolls sideways");
    return out;
  },
  // Where the focus is, and whether one can see that.
  focus() {
    const node = document.activeElement;
    const ring = node.id === "input" ? node.parentElement : node;
    const style = getComputedStyle(ring);
    if (node === document.body) return { name: "BODY", ring: true };
    return { id: node.id, name: node.id || node.getAttribute("aria-label") || node.textContent.trim() || node.tagName,
      ring: style.outlineStyle !== "none" && parseFloat(style.outlineWidth) > 0 };
  },
  // Random Markdown, the same for the same seed.
  markdown(seed) {
    const parts = ["\n", "\n", "\n\n", "# ", "- ", "  - ", "1. ", "2) ", "> ", "```", "```py\n", "**", "*", "_", "~~", "`",
      "``", "| a ", "|", "\n|---|:-:|\n", "---", "[x](", ")", "https://a.b/c", "word ", "two words ", "\\", "<b>", "    ",
      "é", "\r\n", "!["];
    let text = "";
    for (let i = 0; i < 40; i++) {
      seed = (Math.imul(seed, 1664525) + 1013904223) >>> 0;
      text += parts[(seed >>> 8) % parts.length];
    }
    return text;
  },
  // Writes `count` random texts in random pieces and compares with drawing them at once, after every piece.
  async growing(count) {
    const { GrowingMarkdown, renderMarkdown } = await import("/web/markdown.js");
    const html = (node) => ((this.box ??= document.createElement("div")).replaceChildren(node), this.box.innerHTML);
    for (let n = 1; n <= count; n++) {
      const text = this.markdown(n);
      const div = document.createElement("div");
      const view = new GrowingMarkdown(div);
      let seed = n;
      for (let at = 0; at < text.length; ) {
        seed = (Math.imul(seed, 22695477) + 1) >>> 0;
        at = Math.min(text.length, at + 1 + ((seed >>> 16) % 9));
        view.update(text.slice(0, at));
        const whole = html(renderMarkdown(text.slice(0, at)));
        if (div.innerHTML !== whole) return { n, text: text.slice(0, at), got: div.innerHTML, whole };
      }
    }
    return null;
  },
};
