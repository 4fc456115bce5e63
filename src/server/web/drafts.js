// What drafting did: tokens coloured by their place in the drafted block, and the figures beside the conversation.
import { el } from "./dom.js";

// Places 1 to 4 have a colour of their own, later ones share: a block of 16 would need more than eyes can tell apart.
// Colour, kind of underline and the number in the legend say the same thing.
const GROUPS = [
  [1, 1],
  [2, 2],
  [3, 3],
  [4, 4],
  [5, 6],
  [7, 8],
  [9, 11],
  [12, 64],
];
export const groupOf = (slot) => GROUPS.findIndex(([, last]) => slot <= last) + 1;

const groupName = ([a, b]) => (a === b ? `${a}` : b === 64 ? `${a}+` : `${a}–${b}`);

export function legend(width) {
  const shown = GROUPS.filter(([a]) => a < Math.max(2, width));
  const items = shown.map((g, i) => el("li", {}, el("span", { class: `tok d${i + 1}` }, groupName(g))));
  const own = el("li", {}, el("span", { class: "tok plain" }, "plain"), " the target’s own");
  return el("ul", { class: "legend", "aria-label": "Position in the drafted block" }, ...items, own);
}

// The tokens of an answer as they were emitted; grows by append().
export class TokenView {
  constructor(parent) {
    this.parent = parent;
    this.done = 0;
    this.step = 0;
  }

  append(trace) {
    const out = document.createDocumentFragment();
    for (; this.done < trace.text.length; this.done++) {
      const slot = trace.slot[this.done];
      while (this.step + 1 < trace.start.length && trace.start[this.step + 1] <= this.done) this.step++;
      const first = trace.start[this.step] === this.done;
      if (trace.text[this.done] === "") continue; // part of a character that a later token completes
      const name = slot ? `tok d${groupOf(slot)}` : "tok plain";
      const span = el("span", { class: first ? name + " first" : name, title: this.describe(trace, slot) });
      span.textContent = trace.text[this.done];
      out.append(span);
    }
    this.parent.append(out);
  }

  describe(trace, slot) {
    const drafted = trace.drafted[this.step] ?? 0;
    if (slot) return `drafted at position ${slot} of ${drafted}; ${trace.accepted[this.step]} accepted in this step`;
    if (!drafted) return "decoded without a draft";
    return `the target’s own, after ${trace.accepted[this.step]} of ${drafted} drafts`;
  }
}

// ---- figures ----

// Sums of a trace: by place how often it was drafted and accepted, and the tokens that a verify step gave on average.
export function summary(trace) {
  const s = { drafted: 0, accepted: 0, verify: 0, emitted: 0, draftedAt: [], acceptedAt: [] };
  trace.start.forEach((start, i) => {
    const d = trace.drafted[i];
    const a = trace.accepted[i];
    if (!d) return;
    s.verify++;
    s.emitted += (trace.start[i + 1] ?? trace.text.length) - start;
    s.drafted += d;
    s.accepted += a;
    for (let j = 0; j < d; j++) {
      s.draftedAt[j] = (s.draftedAt[j] ?? 0) + 1;
      s.acceptedAt[j] = (s.acceptedAt[j] ?? 0) + (j < a ? 1 : 0);
    }
  });
  return s;
}

// The server's own figures once the answer is complete; they count what a cut answer does not show.
export function withTimings(s, t) {
  if (!t) return s;
  const speed = t.predicted_per_second;
  return { ...s, length: t.accept_length, speed, drafted: t.draft_n, accepted: t.draft_n_accepted };
}

const number = (x, digits = 1) => (Number.isFinite(x) ? x.toFixed(digits) : "–");
const percent = (a, b) => (b ? `${Math.round((100 * a) / b)} %` : "–");

export const acceptLength = (s) => s.length ?? (s.verify ? s.emitted / s.verify : NaN);

// One line for the strip under the message box.
export function shortFigures(s, speed) {
  const parts = [`${number(speed)} tok/s`];
  if (!s.drafted) parts.push("no drafts");
  else parts.push(`accept length ${number(acceptLength(s), 2)}`, `${percent(s.accepted, s.drafted)} accepted`);
  return parts.join(" · ");
}

export function figures(s, speed) {
  const row = (name, value, id) => el("div", {}, el("dt", {}, name), el("dd", { id }, value));
  return el(
    "dl",
    { class: "figures" },
    row("tokens/s", number(speed), "fig-speed"),
    row("accept length", number(acceptLength(s), 2), "fig-length"),
    row("accepted / drafted", s.drafted ? `${s.accepted} / ${s.drafted}` : "–", "fig-drafts"),
  );
}

export function bars(s) {
  const rows = s.draftedAt.map((d, j) => {
    const share = d ? s.acceptedAt[j] / d : 0;
    const fill = el("span", { class: `fill d${groupOf(j + 1)}` });
    fill.style.width = `${(100 * share).toFixed(1)}%`;
    return el(
      "li",
      { title: `position ${j + 1}: accepted ${s.acceptedAt[j]} of ${d} times` },
      el("span", { class: "pos" }, `${j + 1}`),
      el("span", { class: "bar", "aria-hidden": "true" }, fill),
      el("span", { class: "share" }, percent(s.acceptedAt[j], d)),
    );
  });
  return el("ol", { class: "bars", "aria-label": "Share of drafts accepted, by position" }, ...rows);
}

// ---- comparison ----

// Whether two answers are the same text. One that was stopped is compared as far as it goes.
export function sameText(a, b, cut) {
  const n = cut ? Math.min(a.length, b.length) : Math.max(a.length, b.length);
  let k = 0;
  while (k < n && a[k] === b[k]) k++;
  return { same: k === n, at: k, length: n };
}

export function comparison(drafted, plain, verdict) {
  const ratio = plain > 0 ? drafted / plain : NaN;
  const most = Math.max(drafted, plain, 1e-9);
  const row = (name, speed, kind) => {
    const fill = el("span", { class: `fill ${kind}` });
    fill.style.width = `${(100 * speed) / most}%`;
    const bar = el("span", { class: "bar", "aria-hidden": "true" }, fill);
    const share = el("span", { class: "share" }, `${number(speed)} tok/s`);
    return el("li", {}, el("span", { class: "name" }, name), bar, share);
  };
  const text = verdict.same
    ? `The texts are identical: ${verdict.length} characters.`
    : `The texts differ at character ${verdict.at + 1}.`;
  return el(
    "div",
    { class: "versus" },
    el("ul", { class: "bars wide" }, row("with drafts", drafted, "accent"), row("without", plain, "grey")),
    el("p", { class: verdict.same ? "good" : "bad", id: "verdict" }, verdict.same ? "✓ " : "✗ ", text),
    el("p", {}, `Speed-up ${number(ratio, 2)} ×`),
  );
}
