// One message of the conversation: its nodes, and how an answer grows.
import { el, iconButton, copyText, toast } from "./dom.js";
import { GrowingMarkdown, renderMarkdown } from "./markdown.js";
import { TokenView, shortFigures, summary, withTimings } from "./drafts.js";

async function copyAnd(text) {
  toast((await copyText(text)) ? "Copied" : "The browser does not allow copying here");
}

// A question. on.edit(text) resends it changed.
export function questionView(message, on) {
  const body = el("div", { class: "body" });
  body.textContent = message.content;
  const tools = el(
    "div",
    { class: "tools" },
    iconButton("copy", "Copy this question", () => copyAnd(message.content)),
    iconButton("edit", "Edit and send again", () => startEdit()),
  );
  const li = el("li", { class: "msg user" }, el("h3", { class: "who" }, "You"), body, tools);

  function startEdit() {
    const rows = Math.min(12, message.content.split("\n").length + 1);
    const area = el("textarea", { rows, "aria-label": "Edit the question" });
    const send = () => (area.value.trim() ? on.edit(area.value.trim()) : cancel());
    const cancel = () => {
      li.classList.remove("editing");
      form.replaceWith(body, tools);
      tools.lastChild.focus();
    };
    area.value = message.content;
    area.addEventListener("keydown", (e) => {
      if (e.key === "Enter" && !e.shiftKey && !e.isComposing) e.preventDefault(), send();
      if (e.key === "Escape") e.stopPropagation(), cancel();
    });
    const form = el(
      "div",
      {},
      area,
      el(
        "div",
        { class: "row end" },
        el("button", { type: "button", onclick: cancel }, "Cancel"),
        el("button", { type: "button", class: "primary", onclick: send }, "Send again"),
      ),
    );
    li.classList.add("editing");
    tools.remove();
    body.replaceWith(form);
    area.focus();
    area.setSelectionRange(area.value.length, area.value.length);
  }
  return { li, message, setMode() {} };
}

const FINISH_NOTES = { length: "cut at the token limit", stopped: "stopped", abort: "ended by the server" };

// An answer. on.again() generates it anew; on.key() asks for an API key.
export class AnswerView {
  constructor(message, showDrafts, on) {
    this.message = message;
    this.on = on;
    this.ended = false;
    this.text = el("div", { class: "md" });
    this.thoughts = el("div");
    this.thinking = el("details", { class: "thinking", hidden: true }, el("summary", {}, "Thinking"), this.thoughts);
    this.tokens = el("div", { class: "tokens", hidden: true });
    this.problem = el("div");
    this.tools = el("div", { class: "tools" });
    this.li = el(
      "li",
      { class: "msg assistant" },
      el("h3", { class: "who" }, "Answer"),
      this.thinking,
      this.text,
      this.tokens,
      this.problem,
      this.tools,
    );
    this.restart();
    this.setMode(showDrafts);
  }

  restart() {
    this.markdown = new GrowingMarkdown(this.text);
    this.tokenView = new TokenView(this.tokens);
    this.shownText = 0;
    this.shownThoughts = 0;
  }

  // Draws what came since the last time. Only the visible form of the text is kept up to date.
  grow() {
    const m = this.message;
    const nothing = m.content === "" && m.reasoning === "" && m.trace.text.length === 0;
    this.li.classList.toggle("waiting", nothing && !this.ended);
    if (m.reasoning.length > this.shownThoughts) {
      this.thoughts.append(m.reasoning.slice(this.shownThoughts));
      this.shownThoughts = m.reasoning.length;
    }
    this.thinking.hidden = this.drafts || !m.reasoning;
    if (this.drafts) {
      this.tokenView.append(m.trace);
    } else if (m.content.length > this.shownText) {
      this.markdown.update(m.content);
      this.shownText = m.content.length;
    }
  }

  // The text as Markdown, or the tokens as they were emitted (an answer from elsewhere may have none).
  setMode(showDrafts) {
    this.drafts = showDrafts && (this.message.trace.text.length > 0 || !this.message.content);
    this.text.hidden = this.drafts;
    this.tokens.hidden = !this.drafts;
    this.grow();
  }

  // The answer is complete, or failed.
  end() {
    const m = this.message;
    this.ended = true;
    this.text.replaceChildren(renderMarkdown(m.content, true));
    this.shownText = m.content.length;
    this.grow();
    this.problem.replaceChildren();
    if (m.error) {
      const again = el("button", { type: "button", onclick: () => this.on.again() }, "Try again");
      this.problem.append(el("p", { class: "problem", role: "alert" }, m.error, " ", again));
    }
    const notes = [];
    if (m.trace.text.length || m.timings) {
      const count = m.timings?.predicted_n ?? m.trace.text.length;
      const s = withTimings(summary(m.trace), m.timings);
      notes.push(`${count} tokens`, shortFigures(s, s.speed));
    }
    if (FINISH_NOTES[m.finish]) notes.push(FINISH_NOTES[m.finish]);
    this.tools.hidden = Boolean(m.error) && !m.content; // "Try again" is all there is to do
    this.tools.replaceChildren(
      iconButton("copy", "Copy this answer", () => copyAnd(m.content)),
      iconButton("redo", "Answer again", () => this.on.again()),
      el("span", { class: "note" }, notes.join(" · ")),
    );
  }
}

// Tells screen readers an answer sentence by sentence: each is added once, and nothing is read again.
export class Announcer {
  constructor(box) {
    this.box = box;
    this.start();
  }

  start() {
    this.box.replaceChildren();
    this.told = 0;
    this.last = 0;
  }

  say(text) {
    this.box.append(el("p", {}, text));
    while (this.box.children.length > 6) this.box.firstChild.remove();
  }

  grow(text) {
    if (performance.now() - this.last < 700) return;
    const end = Math.max(...[". ", "! ", "? ", "\n"].map((mark) => text.lastIndexOf(mark) + mark.length - 1));
    if (end <= this.told) return;
    this.last = performance.now();
    this.say(text.slice(this.told, end + 1));
    this.told = end + 1;
  }

  end(text, note) {
    if (text.length > this.told) this.say(text.slice(this.told));
    this.say(note);
  }
}
