// Markdown as models write it: headings, paragraphs, lists, quotes, tables, rules, fenced code; emphasis, code, links.
// The text is untrusted. It becomes DOM nodes built one by one and never HTML; links go to http and https only;
// pictures are not fetched; nesting is bounded; every scan is linear in the text or bounded by a constant.
import { el, icon, copyText } from "./dom.js";
import { highlight } from "./highlight.js";

const MAX_DEPTH = 8; // of lists and quotes in each other, and of emphasis
const MAX_LINK = 1000; // characters between the brackets of a link

// ---- blocks ----

const FENCE = /^ {0,3}(`{3,}|~{3,})[ \t]*([^`\n]*)$/;
const HEADING = /^ {0,3}(#{1,6})(?:[ \t]|$)/;
const RULE = /^ {0,3}([-*_])(?:[ \t]*\1){2,}[ \t]*$/;
const QUOTE = /^ {0,3}>[ \t]?/;
const ITEM = /^( {0,3})([-*+]|\d{1,9}[.)])(?:[ \t]+|$)/;

const blank = (line) => line.trim() === "";
const indentOf = (line) => line.length - line.trimStart().length;
const startsBlock = (line) => FENCE.test(line) || HEADING.test(line) || RULE.test(line) || QUOTE.test(line);

// A list may interrupt a paragraph when it is surely one: "1." and bullets with text behind, not "1984. Then".
const interrupts = (line) => {
  const m = ITEM.exec(line);
  return m !== null && m[0].length < line.length && (!/\d/.test(m[2]) || /^1[.)]/.test(m[2]));
};

function cellsOf(line) {
  const cells = [];
  let cell = "";
  const text = line.trim().replace(/^\|/, "");
  for (let i = 0; i < text.length; i++) {
    if (text[i] === "\\" && text[i + 1] === "|") cell += text[++i];
    else if (text[i] === "|") cells.push(cell.trim()), (cell = "");
    else cell += text[i];
  }
  if (cell.trim() !== "" || cells.length === 0) cells.push(cell.trim());
  return cells;
}

const startsTable = (lines, i) =>
  lines[i].includes("|") && lines[i + 1]?.includes("|") && cellsOf(lines[i + 1]).every((c) => /^:?-+:?$/.test(c));

function readFence(lines, i, m) {
  const mark = m[1];
  const cut = indentOf(lines[i]);
  const body = [];
  let k = i + 1;
  for (; k < lines.length; k++) {
    const t = lines[k].trim();
    if (indentOf(lines[k]) < 4 && t.length >= mark.length && t === mark[0].repeat(t.length)) {
      return [{ kind: "code", language: m[2].trim().split(/\s/)[0], text: body.join("\n"), open: false }, k + 1];
    }
    body.push(lines[k].slice(Math.min(cut, indentOf(lines[k]))));
  }
  return [{ kind: "code", language: m[2].trim().split(/\s/)[0], text: body.join("\n"), open: true }, k];
}

function readQuote(lines, i, depth) {
  const inner = [];
  let k = i;
  // A line without ">" goes on with the paragraph before it.
  for (; k < lines.length && !blank(lines[k]); k++) {
    if (QUOTE.test(lines[k])) inner.push(lines[k].replace(QUOTE, ""));
    else if (startsBlock(lines[k]) || ITEM.test(lines[k])) break;
    else inner.push(lines[k]);
  }
  return [{ kind: "quote", blocks: parseLines(inner, depth + 1) }, k];
}

function readTable(lines, i) {
  const align = cellsOf(lines[i + 1]).map((c) => (c.endsWith(":") ? (c.startsWith(":") ? "center" : "right") : ""));
  const rows = [];
  let k = i + 2;
  for (; k < lines.length && !blank(lines[k]) && lines[k].includes("|"); k++) rows.push(cellsOf(lines[k]));
  return [{ kind: "table", align, head: cellsOf(lines[i]), rows }, k];
}

// Lines of one item: those indented below its text (two blanks are enough: models often write only two), and lines
// that go on with its paragraph.
function readItem(lines, i, m) {
  const width = m[0].trimEnd().length + 1;
  const inner = [lines[i].slice(m[0].length)];
  let gap = false;
  let loose = false;
  let k = i + 1;
  for (; k < lines.length; k++) {
    if (blank(lines[k])) {
      gap = true;
      inner.push("");
      continue;
    }
    const indent = indentOf(lines[k]);
    if (indent >= m[1].length + 2) {
      loose ||= gap;
      inner.push(lines[k].slice(Math.min(indent, width)));
    } else if (gap || ITEM.test(lines[k]) || startsBlock(lines[k])) {
      break;
    } else {
      inner.push(lines[k]);
    }
    gap = false;
  }
  while (inner.length > 1 && blank(inner[inner.length - 1])) inner.pop();
  return { inner, next: k, gap, loose };
}

function readList(lines, i, first, depth) {
  const sort = (m) => (/\d/.test(m[2]) ? m[2].at(-1) : m[2]);
  const list = { kind: "list", ordered: /\d/.test(first[2]), start: parseInt(first[2], 10), loose: false, items: [] };
  let k = i;
  let gap = false;
  for (let m = first; m && sort(m) === sort(first) && !RULE.test(lines[k]); m = ITEM.exec(lines[k] ?? "")) {
    const item = readItem(lines, k, m);
    list.loose ||= item.loose || gap;
    list.items.push(parseLines(item.inner, depth + 1));
    k = item.next;
    gap = item.gap;
  }
  return [list, k];
}

function readParagraph(lines, i) {
  const ends = (k) => blank(lines[k]) || startsBlock(lines[k]) || interrupts(lines[k]) || startsTable(lines, k);
  let k = i + 1;
  while (k < lines.length && !ends(k)) k++;
  return [{ kind: "paragraph", text: lines.slice(i, k).map((l) => l.trim()).join("\n") }, k];
}

function readBlock(lines, i, depth) {
  const line = lines[i];
  let m = FENCE.exec(line);
  if (m) return readFence(lines, i, m);
  m = HEADING.exec(line);
  if (m) {
    const text = line.slice(m[0].length).trim().replace(/[ \t]#+$/, "");
    return [{ kind: "heading", level: m[1].length, text }, i + 1];
  }
  if (RULE.test(line)) return [{ kind: "rule" }, i + 1];
  if (depth < MAX_DEPTH) {
    if (QUOTE.test(line)) return readQuote(lines, i, depth);
    m = ITEM.exec(line);
    if (m) return readList(lines, i, m, depth);
  }
  if (startsTable(lines, i)) return readTable(lines, i);
  return readParagraph(lines, i);
}

// Blocks of lines; each carries the number of its first line.
function parseLines(lines, depth) {
  const blocks = [];
  for (let i = 0; i < lines.length; ) {
    if (blank(lines[i])) {
      i++;
      continue;
    }
    const [block, next] = readBlock(lines, i, depth);
    block.line = i;
    blocks.push(block);
    i = next;
  }
  return blocks;
}

// ---- text within a block ----

const PUNCTUATION = /[!-/:-@[-`{-~]/;
const WORD = /[\p{L}\p{N}_]/u;
const URL_HERE = /https?:\/\/[^\s<>"`]+/iy;

function safeUrl(text) {
  try {
    const url = new URL(text);
    return url.protocol === "https:" || url.protocol === "http:" ? url.href : null;
  } catch {
    return null;
  }
}

const linkTo = (href) => el("a", { href, target: "_blank", rel: "noopener noreferrer nofollow" });

// A bare address ends before the punctuation of its sentence and before a bracket that it did not open.
function trimUrl(url) {
  for (;;) {
    const last = url.at(-1);
    const open = url.split("(").length;
    if (".,;:!?*_~'".includes(last) || (last === ")" && url.split(")").length > open)) url = url.slice(0, -1);
    else return url;
  }
}

class Inline {
  constructor(text) {
    this.s = text;
    this.none = new Map(); // delimiter -> from here on there is no closing one; keeps the search linear
  }

  // Index of the run of exactly n backquotes that closes a code span, or -1.
  codeEnd(from, n) {
    const key = "`" + n;
    if (this.none.get(key) <= from) return -1;
    for (let i = this.s.indexOf("`", from); i >= 0; ) {
      let k = i;
      while (this.s[k] === "`") k++;
      if (k - i === n) return i;
      i = this.s.indexOf("`", k);
    }
    this.none.set(key, from);
    return -1;
  }

  // Index of the delimiter that closes an emphasis opened before `from`, or -1.
  closer(delimiter, from, end) {
    const key = delimiter + end;
    if (this.none.get(key) <= from) return -1;
    const c = delimiter[0];
    const n = delimiter.length;
    for (let i = from; i < end; i++) {
      if (this.s[i] === "\\") i++;
      else if (this.s[i] === c) {
        let k = i;
        while (k < end && this.s[k] === c) k++;
        const run = k - i;
        const fits = run === n || run === 3 || (n === 3 && run > 3);
        const tight = i > from && !/\s/.test(this.s[i - 1]);
        if (fits && tight && (c !== "_" || k >= this.s.length || !WORD.test(this.s[k]))) return run > n ? k - n : i;
        i = k - 1;
      }
    }
    this.none.set(key, from);
    return -1;
  }

  emphasis(parent, i, end, depth) {
    const c = this.s[i];
    let n = 1;
    while (n < 3 && this.s[i + n] === c) n++;
    if (c === "~" && n !== 2) return 0;
    if (i + n >= end || /\s/.test(this.s[i + n]) || (c === "_" && i > 0 && WORD.test(this.s[i - 1]))) return 0;
    const close = this.closer(c.repeat(n), i + n, end);
    if (close < 0) return 0;
    const outer = el(c === "~" ? "del" : n === 1 ? "em" : "strong");
    const inner = n === 3 ? outer.appendChild(el("em")) : outer;
    this.run(inner, i + n, close, depth + 1);
    parent.append(outer);
    return close + n;
  }

  // [text](address "title"); a picture's text too, since pictures are not fetched.
  link(parent, i, end, depth) {
    const limit = Math.min(end, i + MAX_LINK);
    let open = 0;
    let k = i;
    for (; k < limit; k++) {
      if (this.s[k] === "\\") k++;
      else if (this.s[k] === "[") open++;
      else if (this.s[k] === "]" && --open === 0) break;
    }
    if (k >= limit || this.s[k + 1] !== "(") return 0;
    let brackets = 1;
    let z = k + 2;
    for (; z < Math.min(end, k + MAX_LINK); z++) {
      if (this.s[z] === "(") brackets++;
      else if (this.s[z] === ")" && --brackets === 0) break;
    }
    if (brackets !== 0) return 0;
    const address = this.s.slice(k + 2, z).trim().split(/\s/)[0].replace(/^<|>$/g, "");
    const href = safeUrl(address);
    if (!href) return 0; // other schemes stay the text they are
    const a = linkTo(href);
    this.run(a, i + 1, k, MAX_DEPTH); // no links in links, and no more nesting
    if (!a.textContent) a.textContent = href;
    parent.append(a);
    return z + 1;
  }

  bareUrl(parent, i) {
    URL_HERE.lastIndex = i;
    const m = URL_HERE.exec(this.s.slice(0, i + MAX_LINK));
    const text = m && trimUrl(m[0]);
    const href = text && safeUrl(text);
    if (!href) return 0;
    const a = linkTo(href);
    a.textContent = text;
    parent.append(a);
    return i + text.length;
  }

  code(parent, i, end) {
    let n = 1;
    while (this.s[i + n] === "`") n++;
    const close = this.codeEnd(i + n, n);
    if (close < 0 || close >= end) return -n; // the whole run is text
    let text = this.s.slice(i + n, close).replace(/\n/g, " ");
    if (text.startsWith(" ") && text.endsWith(" ") && text.trim()) text = text.slice(1, -1);
    parent.append(el("code", {}, text));
    return close + n;
  }

  // The construct at i: index behind it, 0 when there is none, -n when n characters are plain text.
  special(parent, i, end, depth) {
    const c = this.s[i];
    if (c === "`") return this.code(parent, i, end);
    if (c === "\n") return parent.append(el("br")), i + 1;
    if (depth >= MAX_DEPTH) return 0;
    if (c === "[") return this.link(parent, i, end, depth);
    if (c === "!" && this.s[i + 1] === "[") return this.link(parent, i + 1, end, depth);
    if (c === "*" || c === "_" || c === "~") return this.emphasis(parent, i, end, depth);
    if ((c === "h" || c === "H") && (i === 0 || !WORD.test(this.s[i - 1]))) return this.bareUrl(parent, i);
    return 0;
  }

  run(parent, begin, end, depth) {
    let plain = "";
    const flush = () => {
      if (plain) parent.append(plain);
      plain = "";
    };
    for (let i = begin; i < end; ) {
      const c = this.s[i];
      if (c === "\\" && i + 1 < end && PUNCTUATION.test(this.s[i + 1])) {
        plain += this.s[i + 1];
        i += 2;
      } else if ("`[*_~!hH\n".includes(c)) {
        const holder = document.createDocumentFragment();
        const next = this.special(holder, i, end, depth);
        if (next > 0) {
          flush();
          parent.append(holder);
          i = next;
        } else {
          const n = Math.max(1, -next);
          plain += this.s.slice(i, i + n);
          i += n;
        }
      } else {
        plain += c;
        i++;
      }
    }
    flush();
  }
}

const inline = (parent, text) => {
  new Inline(text).run(parent, 0, text.length, 0);
  return parent;
};

// ---- nodes ----

function codeNode(block) {
  const code = el("code", { tabindex: 0, "aria-label": block.language ? `code, ${block.language}` : "code" });
  if (block.open) code.textContent = block.text; // coloured once it is whole
  else highlight(code, block.text, block.language);
  const button = el("button", { type: "button", class: "copy", "aria-label": "Copy code" }, icon("copy"), "Copy");
  button.addEventListener("click", async () => {
    button.lastChild.data = (await copyText(block.text)) ? "Copied" : "Not allowed";
    setTimeout(() => (button.lastChild.data = "Copy"), 1500);
  });
  const bar = el("div", { class: "bar" }, el("span", {}, block.language || "text"), button);
  return el("div", { class: "code" }, bar, el("pre", {}, code));
}

function tableNode(block) {
  const row = (cells, tag) =>
    el("tr", {}, ...block.head.map((_, i) => inline(el(tag, { class: block.align[i] || false }), cells[i] ?? "")));
  const body = el("tbody", {}, ...block.rows.map((r) => row(r, "td")));
  const table = el("table", {}, el("thead", {}, row(block.head, "th")), body);
  return el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "table" }, table);
}

function itemNode(blocks, loose) {
  const li = el("li");
  blocks.forEach((b, i) => {
    if (i === 0 && b.kind === "paragraph" && !loose) taskText(li, b.text);
    else li.append(blockNode(b));
  });
  return li;
}

function taskText(li, text) {
  const m = /^\[([ xX])\] /.exec(text);
  if (m) li.append(m[1] === " " ? "☐ " : "☑ ");
  inline(li, m ? text.slice(4) : text);
}

function blockNode(block) {
  switch (block.kind) {
    case "heading":
      // The page's own headings are h1 and h2.
      return inline(el("h" + Math.min(6, block.level + 2), { class: "h" + block.level }), block.text);
    case "rule":
      return el("hr");
    case "code":
      return codeNode(block);
    case "quote":
      return el("blockquote", {}, ...block.blocks.map(blockNode));
    case "table":
      return tableNode(block);
    case "list":
      return el(
        block.ordered ? "ol" : "ul",
        { start: block.ordered && block.start !== 1 ? block.start : false },
        ...block.items.map((item) => itemNode(item, block.loose)),
      );
    default:
      return inline(el("p"), block.text);
  }
}

const parse = (lines) => parseLines(lines.map((l) => (l.endsWith("\r") ? l.slice(0, -1) : l)), 0);

// final: nothing follows, so that code without its end is coloured too.
export function renderMarkdown(text, final = false) {
  const out = document.createDocumentFragment();
  const blocks = parse(text.split("\n"));
  if (final && blocks.at(-1)?.kind === "code") blocks.at(-1).open = false;
  out.append(...blocks.map(blockNode));
  return out;
}

// A text that grows. All blocks but the last two are final: the line that is being written can change the block it
// is in and, by turning out not to begin a new one, the block before. So an update costs as much as the end is long.
export class GrowingMarkdown {
  constructor(parent) {
    this.parent = parent;
    this.base = 0; // characters of the text that are final
    this.tail = []; // nodes that are not
  }

  update(text) {
    const lines = text.slice(this.base).split("\n");
    const blocks = parse(lines);
    const nodes = blocks.map(blockNode);
    for (const node of this.tail) node.remove();
    this.parent.append(...nodes);
    const keep = Math.max(0, blocks.length - 2);
    if (keep > 0) this.base += lines.slice(0, blocks[keep].line).reduce((n, l) => n + l.length + 1, 0);
    this.tail = nodes.slice(keep);
  }
}
