// Settings and conversations in localStorage. What is read from there, or from an imported file, is checked field by
// field: another program, another version or a person may have written it.

export const THEMES = ["auto", "light", "dark"];

// Empty text: the field is not sent and the server's own default holds.
const DEFAULTS = {
  theme: "auto",
  system: "",
  temperature: "",
  top_p: "",
  seed: "",
  max_tokens: "",
  drafting: true,
  width: "",
  thinking: "default",
  showDrafts: false,
  panel: true,
};

const MAX_CHATS = 200;

function read(key) {
  try {
    return JSON.parse(localStorage.getItem(key) ?? "null");
  } catch {
    return null;
  }
}

export function loadSettings() {
  const stored = read("dflash.settings") ?? {};
  const settings = {};
  for (const [name, value] of Object.entries(DEFAULTS)) {
    settings[name] = typeof stored[name] === typeof value ? stored[name] : value;
  }
  if (!THEMES.includes(settings.theme)) settings.theme = "auto";
  return settings;
}

export function saveSettings(settings) {
  try {
    localStorage.setItem("dflash.settings", JSON.stringify(settings));
  } catch {
    // storage is full or forbidden: they hold until the page is left
  }
}

// ---- conversations ----

const text = (v) => (typeof v === "string" ? v : "");
const time = (v) => (Number.isFinite(v) ? v : Date.now());
const list = (v) => (Array.isArray(v) ? v : []);
const count = (v) => (Number.isInteger(v) && v >= 0 ? v : 0);

// Tokens of an answer: texts, the slot of each (0: the target's own), and by step the index of its first token, how
// many tokens it drafted and how many were accepted.
export const emptyTrace = () => ({ text: [], slot: [], start: [], drafted: [], accepted: [] });

function cleanTrace(v) {
  const t = emptyTrace();
  if (!v || typeof v !== "object") return t;
  t.text = list(v.text).map(text);
  t.slot = t.text.map((_, i) => count(v.slot?.[i]));
  for (const [i, start] of list(v.start).entries()) {
    if (count(start) >= t.text.length) break;
    t.start.push(count(start));
    t.drafted.push(Math.min(64, count(v.drafted?.[i])));
    t.accepted.push(Math.min(64, count(v.accepted?.[i])));
  }
  return t;
}

function cleanMessage(v) {
  if (v?.role === "user") return { role: "user", content: text(v.content) };
  if (v?.role !== "assistant") return null;
  return {
    role: "assistant",
    content: text(v.content),
    reasoning: text(v.reasoning),
    finish: text(v.finish),
    error: text(v.error),
    request: v.request && typeof v.request === "object" && !Array.isArray(v.request) ? v.request : {},
    timings: v.timings && typeof v.timings === "object" ? v.timings : null,
    trace: cleanTrace(v.trace),
  };
}

function cleanChat(v) {
  if (!v || typeof v !== "object") return null;
  const messages = list(v.messages).map(cleanMessage).filter(Boolean);
  if (messages.length === 0) return null;
  return { id: text(v.id) || newId(), title: text(v.title) || "Untitled", updated: time(v.updated), messages };
}

export const newId = () => Date.now().toString(36) + Math.random().toString(36).slice(2, 10);

export const newChat = () => ({ id: newId(), title: "", updated: Date.now(), messages: [] });

export function cleanChats(v) {
  const seen = new Set();
  const chats = list(v).map(cleanChat).filter((c) => c && !seen.has(c.id) && seen.add(c.id));
  return chats.sort((a, b) => b.updated - a.updated).slice(0, MAX_CHATS);
}

export const loadChats = () => cleanChats(read("dflash.chats"));

// False when not even the texts fit. The tokens of answers are the bulk and can be done without, oldest first.
export function saveChats(chats) {
  const kept = chats.filter((c) => c.messages.length > 0);
  for (let full = kept.length; full >= 0; full = full > 0 ? full >> 1 : -1) {
    const lean = kept.map((c, i) =>
      i < full ? c : { ...c, messages: c.messages.map((m) => (m.trace ? { ...m, trace: undefined } : m)) },
    );
    try {
      localStorage.setItem("dflash.chats", JSON.stringify(lean));
      return true;
    } catch {
      // too much: with fewer tokens
    }
  }
  return false;
}

// ---- files ----

export function asMarkdown(chat) {
  const parts = [`# ${chat.title || "Conversation"}`];
  for (const m of chat.messages) {
    parts.push(m.role === "user" ? "## You" : "## Assistant", m.content);
  }
  return parts.join("\n\n") + "\n";
}

export const asJson = (chats) => JSON.stringify({ format: "dflash-chats", version: 1, chats }, null, 1);

// Conversations of a file made by asJson. Throws with a reason.
export function fromJson(file) {
  let value;
  try {
    value = JSON.parse(file);
  } catch {
    throw new Error("the file is not JSON");
  }
  if (value?.format !== "dflash-chats") throw new Error("the file holds no conversations");
  return cleanChats(value.chats);
}
