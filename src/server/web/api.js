// Talking to the server. Addresses are relative to the page, so that it also works behind a proxy's folder.

export class ApiError extends Error {
  constructor(message, status = 0) {
    super(message);
    this.status = status; // 0: no answer, or one that broke off
  }
}

// The key lives as long as the tab: it is a secret, the settings are not.
export const apiKey = {
  get: () => sessionStorage.getItem("dflash.key") || "",
  set: (key) => (key ? sessionStorage.setItem("dflash.key", key) : sessionStorage.removeItem("dflash.key")),
};

async function call(path, options = {}) {
  const headers = { ...options.headers };
  if (apiKey.get()) headers.Authorization = "Bearer " + apiKey.get();
  let reply;
  try {
    reply = await fetch(new URL(path, document.baseURI), { ...options, headers });
  } catch (e) {
    if (e.name === "AbortError") throw e;
    throw new ApiError("the server cannot be reached");
  }
  if (reply.ok) return reply;
  let message = `the server answered ${reply.status}`;
  try {
    message = (await reply.json()).error.message;
  } catch {
    // a proxy's page
  }
  throw new ApiError(String(message), reply.status);
}

export const getProps = async () => (await call("props")).json();
export const getHealth = async () => (await call("health")).json();

const postChat = (body, signal) =>
  call("v1/chat/completions", {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(body),
    signal,
  });

export const wholeChat = async (body, signal) => (await postChat({ ...body, stream: false }, signal)).json();

// The chunks of a streamed answer. Throws ApiError for an error event, and when the end marker is missing: an answer
// that broke off must not look like one that ended.
export async function* streamChat(body, signal) {
  const reply = await postChat({ ...body, stream: true, stream_options: { include_usage: true } }, signal);
  const reader = reply.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    let part;
    try {
      part = await reader.read();
    } catch (e) {
      if (e.name === "AbortError") throw e;
      throw new ApiError("the connection broke off");
    }
    if (part.done) throw new ApiError("the connection ended before the answer did");
    const events = (rest + part.value).split("\n\n");
    rest = events.pop();
    for (const event of events) {
      const data = event.startsWith("data:") ? event.slice(5).trim() : ""; // others are comments that keep it alive
      if (data === "[DONE]") return;
      if (!data) continue;
      const chunk = JSON.parse(data);
      if (chunk.error) throw new ApiError(String(chunk.error.message), Number(chunk.error.code) || 0);
      yield chunk;
    }
  }
}
