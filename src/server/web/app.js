// The chat page: state, requests, and what the controls do.
import { el, byId, iconButton, toast, download } from "./dom.js";
import { ApiError, apiKey, getProps, streamChat, wholeChat } from "./api.js";
import * as store from "./store.js";
import * as drafts from "./drafts.js";
import { AnswerView, Announcer, questionView } from "./messages.js";

const settings = store.loadSettings();
const announcer = new Announcer(byId("announce"));
const input = byId("input");
const scroller = byId("scroller");
let chats = store.loadChats();
let chat = store.newChat();
let views = []; // of the messages of `chat`, in order
let running = null; // AbortController of the answer or comparison that is being made
let props = null; // what the server says of itself
let sticky = true; // the end of the conversation is kept in view

// ---- requests ----

// What an answer was asked with, kept so that it can be asked again the other way. A seed is always sent: without one
// two sampled answers could not be compared.
function newRequest() {
  const request = { speculative: settings.drafting };
  for (const name of ["temperature", "top_p", "max_tokens"]) {
    const n = Number(settings[name]);
    if (settings[name] !== "" && Number.isFinite(n)) request[name] = n;
  }
  const seed = Number(settings.seed);
  request.seed = settings.seed !== "" && Number.isSafeInteger(seed) ? seed : Math.floor(Math.random() * 2 ** 31);
  if (settings.width !== "" && settings.drafting) request.spec_width = Number(settings.width);
  if (settings.thinking !== "default") request.thinking = settings.thinking === "on";
  if (settings.system.trim()) request.system = settings.system.trim();
  return request;
}

function bodyOf(request, messages) {
  const { system, thinking, ...fields } = request;
  const said = messages
    .filter((m) => m.content !== "")
    .map(({ role, content }) => ({ role, content }));
  if (system) said.unshift({ role: "system", content: system });
  const body = { messages: said, ...fields, dflash_tokens: true };
  if (thinking !== undefined) body.chat_template_kwargs = { enable_thinking: thinking };
  return body;
}

function takeChunk(message, chunk) {
  const choice = chunk.choices?.[0];
  message.content += choice?.delta?.content ?? "";
  message.reasoning += choice?.delta?.reasoning_content ?? "";
  const step = choice?.dflash;
  if (step?.tokens?.length) {
    const t = message.trace;
    t.start.push(t.text.length);
    t.drafted.push(step.drafted);
    t.accepted.push(step.accepted);
    for (const token of step.tokens) t.text.push(token.text), t.slot.push(token.slot);
  }
  if (choice?.finish_reason) message.finish = choice.finish_reason;
  if (chunk.timings) message.timings = chunk.timings;
  return step?.tokens?.length ?? 0;
}

// Tokens of the last two seconds.
class Speed {
  constructor() {
    this.seen = [];
    this.first = 0;
    this.total = 0;
  }

  add(n) {
    const now = performance.now();
    this.first ||= now;
    this.total += n;
    this.seen.push([now, n]);
    while (this.seen.length > 2 && now - this.seen[0][0] > 2000) this.seen.shift();
  }

  // The first arrival only starts the clock.
  get now() {
    const span = this.seen.length > 1 ? this.seen.at(-1)[0] - this.seen[0][0] : 0;
    return span > 0 ? (this.seen.slice(1).reduce((sum, [, n]) => sum + n, 0) * 1000) / span : NaN;
  }

  get mean() {
    const span = this.seen.length > 1 ? this.seen.at(-1)[0] - this.first : 0;
    return span > 0 ? (this.total * 1000) / span : NaN;
  }
}

// For an answer that was cut: what the server did not get to say.
function ownTimings(trace, speed) {
  const s = drafts.summary(trace);
  return {
    predicted_n: trace.text.length,
    predicted_per_second: Number.isFinite(speed.mean) ? speed.mean : null,
    accept_length: s.verify ? s.emitted / s.verify : 1,
    draft_n: s.drafted,
    draft_n_accepted: s.accepted,
  };
}

// Answers the conversation as it stands.
async function answer() {
  const before = chat.messages.slice();
  const message = {
    role: "assistant",
    content: "",
    reasoning: "",
    finish: "",
    error: "",
    request: newRequest(),
    timings: null,
    trace: store.emptyTrace(),
  };
  const owner = chat;
  owner.messages.push(message);
  const view = addView(message);
  const speed = new Speed();
  let frame = 0;
  const draw = () => {
    frame = 0;
    view.grow();
    showFigures(message, speed.now);
    announcer.grow(message.content);
    keepEnd();
  };
  const control = begin();
  announcer.start();
  draw();
  try {
    for await (const chunk of streamChat(bodyOf(message.request, before), control.signal)) {
      const n = takeChunk(message, chunk);
      if (n) speed.add(n);
      frame ||= requestAnimationFrame(draw);
    }
  } catch (e) {
    if (e.name === "AbortError") message.finish = "stopped";
    else failed(message, e);
  }
  cancelAnimationFrame(frame);
  message.timings ??= message.trace.text.length ? ownTimings(message.trace, speed) : null;
  done();
  owner.updated = Date.now();
  view.end();
  if (owner === chat) {
    showFigures(lastAnswer());
    keepEnd();
    announcer.end(message.content, message.error || `Answer complete, ${message.trace.text.length} tokens.`);
  }
  persist();
}

function failed(message, e) {
  message.finish = "error";
  message.error = e instanceof ApiError ? sentence(e.message) : "The page could not read the answer.";
  if (!(e instanceof ApiError)) console.error(e);
  if (e.status === 401) askKey(() => byId("messages").lastChild?.querySelector(".problem button")?.click());
}

const sentence = (s) => s.charAt(0).toUpperCase() + s.slice(1) + (s.endsWith(".") ? "" : ".");

function begin() {
  running = new AbortController();
  byId("stop").hidden = false;
  byId("send").hidden = true;
  byId("compare").disabled = true;
  byId("main").setAttribute("aria-busy", "true");
  return running;
}

function done() {
  const hadFocus = document.activeElement === byId("stop");
  running = null;
  byId("send").hidden = false;
  byId("stop").hidden = true;
  byId("main").removeAttribute("aria-busy");
  if (hadFocus) input.focus();
  noteInput();
}

const stop = () => running?.abort();

function send(text) {
  if (running || !text) return;
  if (chat.messages.length === 0) {
    chat.title = text.split("\n")[0].slice(0, 80);
    chats.unshift(chat);
  }
  chat.messages.push({ role: "user", content: text });
  addView(chat.messages.at(-1));
  sticky = true;
  showChats();
  void answer();
}

// Drops message `index` and all behind it.
function cutAt(index) {
  chat.messages.length = index;
  for (const view of views.splice(index)) view.li.remove();
}

function again(view) {
  if (running) return;
  cutAt(views.indexOf(view));
  input.focus(); // what had the focus is gone
  void answer();
}

function resend(view, text) {
  if (running) return;
  cutAt(views.indexOf(view));
  input.focus();
  send(text);
}

// ---- comparison ----

async function compare() {
  const message = chat.messages.at(-1);
  if (running || message?.role !== "assistant") return;
  const box = byId("compared");
  const drafted = message.request.speculative !== false;
  const request = { ...message.request, speculative: !drafted };
  const cut = message.finish === "stopped";
  if (cut) request.max_tokens = message.trace.text.length;
  const control = begin();
  box.replaceChildren(el("p", { class: "muted" }, `Asking again ${drafted ? "without" : "with"} drafts …`));
  try {
    const reply = await wholeChat(bodyOf(request, chat.messages.slice(0, -1)), control.signal);
    const other = reply.choices[0].message;
    const mine = message.reasoning + message.content;
    const verdict = drafts.sameText(mine, (other.reasoning_content ?? "") + (other.content ?? ""), cut);
    const speeds = [message.timings?.predicted_per_second ?? 0, reply.timings?.predicted_per_second ?? 0];
    box.replaceChildren(drafts.comparison(...(drafted ? speeds : speeds.reverse()), verdict));
  } catch (e) {
    const why = e.name === "AbortError" ? "Stopped." : sentence(e.message);
    box.replaceChildren(el("p", { class: "bad" }, why));
    if (e.status === 401) askKey(compare);
  }
  done();
}

// ---- the conversation on the page ----

function addView(message) {
  const view =
    message.role === "user"
      ? questionView(message, { edit: (text) => resend(view, text) })
      : new AnswerView(message, settings.showDrafts, { again: () => again(view) });
  views.push(view);
  byId("messages").append(view.li);
  byId("empty").hidden = true;
  return view;
}

function showChat() {
  byId("messages").replaceChildren();
  byId("compared").replaceChildren(el("p", { class: "muted" }, byId("compared").dataset.hint));
  views = [];
  for (const message of chat.messages) {
    const view = addView(message);
    view.end?.();
  }
  byId("empty").hidden = chat.messages.length > 0;
  byId("chat-title").textContent = chat.title || "New conversation";
  document.title = chat.title ? `${chat.title} – dflash` : "dflash";
  showFigures(lastAnswer());
  sticky = true;
  keepEnd();
  noteInput();
}

function keepEnd() {
  if (sticky) scroller.scrollTop = scroller.scrollHeight;
}

// Figures of one answer, with the speed of the moment while it comes.
function showFigures(message, now) {
  const trace = message?.trace ?? store.emptyTrace();
  const s = drafts.withTimings(drafts.summary(trace), message?.timings);
  const speed = now ?? s.speed;
  byId("strip").textContent = message ? drafts.shortFigures(s, speed) : "no answer yet";
  if (byId("panel").hidden) return; // drawn when it is opened
  byId("figures").replaceChildren(drafts.figures(s, speed));
  const none = el("p", { class: "muted" }, message ? "This answer was decoded without drafts." : "No drafts yet.");
  byId("bars").replaceChildren(s.draftedAt.length ? drafts.bars(s) : none);
}

const lastAnswer = () => chat.messages.findLast((m) => m.role === "assistant" && m.trace.text.length > 0);

// ---- list of conversations ----

function showChats() {
  byId("chats").replaceChildren(...chats.map(chatItem));
}

function chatItem(c) {
  const here = c === chat;
  const open = el("button", { type: "button", class: "open", "aria-current": here && "true" }, el("span", {}, c.title));
  open.addEventListener("click", () => openChat(c));
  const item = el(
    "li",
    { class: here ? "here" : "" },
    open,
    iconButton("edit", `Rename “${c.title}”`, () => rename(c, item)),
    iconButton("trash", `Delete “${c.title}”`, () => remove(c)),
  );
  return item;
}

function rename(c, item) {
  const field = el("input", { "aria-label": "Title of the conversation", maxlength: 80 });
  let over = false;
  const finish = (keep) => {
    if (over) return;
    over = true;
    if (keep && field.value.trim()) c.title = field.value.trim();
    persist();
    showChats();
    byId("chats").children[chats.indexOf(c)]?.querySelector("button")?.focus();
  };
  field.value = c.title;
  field.addEventListener("blur", () => finish(true));
  field.addEventListener("keydown", (e) => {
    if (e.key === "Enter") finish(true);
    if (e.key === "Escape") e.stopPropagation(), finish(false);
  });
  item.replaceChildren(field);
  field.select();
}

function remove(c) {
  const index = chats.indexOf(c);
  if (c === chat) stop(), startChat();
  chats.splice(index, 1);
  persist();
  showChats();
  toast("Conversation deleted", "Undo", () => {
    chats.splice(index, 0, c);
    persist();
    showChats();
  });
}

function openChat(c) {
  if (c !== chat) {
    stop();
    chat = c;
    showChat();
    showChats();
  }
  narrowSide(false);
  input.focus();
}

function startChat() {
  stop();
  chat = store.newChat();
  showChat();
  showChats();
  narrowSide(false);
  input.focus();
}

function persist() {
  chats.sort((a, b) => b.updated - a.updated);
  if (!store.saveChats(chats)) toast("The browser’s storage is full: this conversation is not kept");
  showChats();
}

async function importFile(file) {
  try {
    const added = store.fromJson(await file.text());
    const known = new Set(chats.map((c) => c.id));
    const fresh = added.filter((c) => !known.has(c.id));
    chats.push(...fresh);
    persist();
    toast(`${fresh.length} of ${added.length} conversations added`);
  } catch (e) {
    toast(sentence(e.message));
  }
}

// ---- settings, key, theme, panel ----

function applyTheme() {
  if (settings.theme === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = settings.theme;
  const name = { auto: "automatic", light: "light", dark: "dark" }[settings.theme];
  byId("theme").title = `Colours: ${name}`;
  byId("theme").setAttribute("aria-label", `Colours: ${name}`);
}

function nextTheme() {
  settings.theme = store.THEMES[(store.THEMES.indexOf(settings.theme) + 1) % store.THEMES.length];
  store.saveSettings(settings);
  applyTheme();
  byId("set-theme").value = settings.theme;
}

function bindSettings() {
  for (const field of document.querySelectorAll("[data-set]")) {
    const name = field.dataset.set;
    if (field.type === "checkbox") field.checked = settings[name];
    else field.value = settings[name];
    field.addEventListener("input", () => {
      if (field.type === "checkbox") settings[name] = field.checked;
      else if (field.validity.valid) settings[name] = field.value;
      store.saveSettings(settings);
      if (name === "theme") applyTheme();
    });
  }
}

function setDrafts(on) {
  settings.showDrafts = on;
  store.saveSettings(settings);
  byId("show-drafts").setAttribute("aria-checked", String(on));
  for (const view of views) view.setMode(on);
  keepEnd();
}

function setPanel(open, keep = true) {
  byId("panel").hidden = !open;
  byId("panel-open").setAttribute("aria-expanded", String(open));
  if (keep) {
    settings.panel = open;
    store.saveSettings(settings);
  }
  if (open) showFigures(lastAnswer());
  if (open && keep && window.innerWidth <= 1150) byId("panel-close").focus(); // it covers what was there
}

// On a narrow window the list of conversations lies over the page, which takes no input meanwhile.
function narrowSide(open) {
  byId("side").classList.toggle("shown", open);
  byId("stage").inert = byId("panel").inert = open;
  byId("side-open").setAttribute("aria-expanded", String(open));
  if (open) byId("new-chat").focus();
}

let afterKey = null;

function askKey(then) {
  afterKey = then;
  byId("key-note").textContent = apiKey.get()
    ? "The server does not accept this key. Another one is kept until the tab is closed."
    : "This server answers with a key only. It is kept until the tab is closed.";
  byId("key-input").value = "";
  byId("key").returnValue = "";
  if (!byId("key").open) byId("key").showModal();
}

function keyClosed() {
  if (byId("key").returnValue !== "ok") return;
  apiKey.set(byId("key-input").value.trim());
  const then = afterKey;
  afterKey = null;
  if (!props) void connect();
  then?.();
}

// ---- the server ----

function setState(text, bad = false) {
  byId("state").textContent = text;
  byId("state").classList.toggle("bad", bad);
}

async function connect() {
  try {
    props = await getProps();
  } catch (e) {
    if (e.status === 401) {
      setState("an API key is needed", true);
      askKey(null);
      return;
    }
    setState(e.status === 503 ? e.message : sentence(e.message), e.status !== 503);
    setTimeout(connect, e.status === 503 ? 700 : 3000);
    return;
  }
  const width = props.speculative?.width ?? 1;
  const defaults = props.default_generation_settings?.params ?? {};
  byId("model").textContent = props.model_alias || "dflash";
  setState(width > 1 ? `drafts up to ${width - 1} tokens a step` : "no draft model: plain decoding");
  byId("set-temperature").placeholder = String(+Number(defaults.temperature ?? 0).toFixed(3));
  byId("set-top-p").placeholder = String(+Number(defaults.top_p ?? 1).toFixed(3));
  byId("set-max-tokens").placeholder = defaults.n_predict > 0 ? String(defaults.n_predict) : "to the end of the context";
  byId("set-width").placeholder = width > 1 ? `the server’s: up to ${width}` : "no draft model";
  byId("set-width").max = String(Math.max(2, width));
  byId("legend").replaceChildren(drafts.legend(width));
  noteInput();
}

// ---- controls ----

function noteInput() {
  input.style.height = "auto";
  input.style.height = `${input.scrollHeight}px`;
  byId("send").disabled = input.value.trim() === "";
  const last = chat.messages.at(-1);
  byId("compare").disabled = Boolean(running) || last?.role !== "assistant" || last.trace.text.length === 0;
}

function sendInput() {
  const text = input.value.trim();
  if (running || !text) return;
  input.value = "";
  noteInput();
  send(text);
}

function onKey(e) {
  if (e.key === "k" && (e.ctrlKey || e.metaKey) && !e.altKey && !e.shiftKey) {
    e.preventDefault();
    input.focus();
  } else if (e.key === "Escape" && !document.querySelector("dialog[open]")) {
    const here = (id) => byId(id).contains(document.activeElement);
    if (running) stop();
    else if (byId("side").classList.contains("shown")) narrowSide(false), byId("side-open").focus();
    else if (here("panel")) setPanel(false), byId("panel-open").focus();
  }
}

function bindControls() {
  const on = (id, what, type = "click") => byId(id).addEventListener(type, what);
  on("composer", (e) => (e.preventDefault(), sendInput()), "submit");
  on("input", noteInput, "input");
  on("input", (e) => {
    if (e.key === "Enter" && !e.shiftKey && !e.isComposing) e.preventDefault(), sendInput();
  }, "keydown");
  on("stop", stop);
  on("new-chat", startChat);
  on("side-open", () => narrowSide(true));
  on("side-close", () => (narrowSide(false), byId("side-open").focus()));
  on("panel-open", () => setPanel(byId("panel").hidden));
  on("panel-close", () => (setPanel(false), byId("panel-open").focus()));
  on("strip", () => setPanel(true));
  on("show-drafts", () => setDrafts(!settings.showDrafts));
  on("theme", nextTheme);
  on("settings-open", () => byId("settings").showModal());
  on("key-open", () => askKey(null));
  on("key", keyClosed, "close");
  on("key-cancel", () => byId("key").close("cancel")); // no submit button: Enter would take the first of them
  on("compare", () => void compare());
  on("export-md", () => download("conversation.md", "text/markdown", store.asMarkdown(chat)));
  on("export-json", () => download("conversations.json", "application/json", store.asJson(chats)));
  on("import", () => byId("import-file").click());
  on("import-file", (e) => {
    if (e.target.files[0]) void importFile(e.target.files[0]);
    e.target.value = ""; // the same file may be chosen again
  }, "change");
  scroller.addEventListener("scroll", () => {
    sticky = scroller.scrollHeight - scroller.scrollTop - scroller.clientHeight < 80;
  });
  for (const button of document.querySelectorAll(".tries button")) {
    button.addEventListener("click", () => send(button.textContent));
  }
  document.addEventListener("keydown", onKey);
  document.addEventListener("pointerdown", (e) => {
    if (!e.target.closest("#side")) narrowSide(false);
  });
  window.addEventListener("pagehide", () => store.saveChats(chats)); // an answer that is still coming
  window.addEventListener("storage", (e) => {
    if (e.key !== "dflash.chats" || running) return; // another tab wrote; what is open here stays open
    chats = store.loadChats().map((c) => (c.id === chat.id ? Object.assign(chat, { title: c.title }) : c));
    showChats();
  });
}

byId("compared").dataset.hint = byId("compared").textContent.replace(/\s+/g, " ").trim();
bindSettings();
bindControls();
applyTheme();
byId("legend").replaceChildren(drafts.legend(8));
setPanel(settings.panel && window.innerWidth > 1150, false);
setDrafts(settings.showDrafts);
if (chats.length > 0) chat = chats[0];
showChat();
showChats();
input.focus();
void connect();
