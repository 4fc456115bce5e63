"""openai (Python): sync and async, whole and streamed, every feature of the API that the server has."""
import asyncio
import json

import openai
from pydantic import BaseModel

from client_lib import Server, check, main, run_text, same

Q = "Count from one to ten."
SYSTEM_Q = "Name three animals."
N = 20
C = None


def ask(text, **more):
    return dict(model="x", messages=[{"role": "user", "content": text}], temperature=0, max_tokens=N) | more


def test_models():
    m = C.models.list().data
    same("models: one", len(m), 1)
    same("models: retrieved by its name", C.models.retrieve(m[0].id).id, m[0].id)
    try:
        C.models.retrieve("gpt-4")
        check("models: an unknown one", False)
    except openai.NotFoundError as e:
        check("models: an unknown one is NotFoundError", "gpt-4" in e.message, e)


def test_chat():
    r = C.chat.completions.create(**ask(Q))
    same("chat: the text of dflash run", r.choices[0].message.content, run_text(Q, N))
    check("chat: usage", r.usage.completion_tokens <= N and r.usage.total_tokens ==
          r.usage.prompt_tokens + r.usage.completion_tokens, r.usage)
    chunks = list(C.chat.completions.create(**ask(Q), stream=True, stream_options={"include_usage": True}))
    same("chat stream: the text", "".join(c.choices[0].delta.content or "" for c in chunks if c.choices), run_text(Q, N))
    same("chat stream: usage at the end", chunks[-1].usage.completion_tokens, r.usage.completion_tokens)
    same("chat stream: the reason", [c.choices[0].finish_reason for c in chunks if c.choices][-1], r.choices[0].finish_reason)
    with C.chat.completions.stream(**ask(Q)) as s:
        deltas = [e.delta for e in s if e.type == "content.delta"]
        same("chat stream helper: the text", "".join(deltas), run_text(Q, N))
        same("chat stream helper: the whole", s.get_final_completion().choices[0].message.content, run_text(Q, N))


def test_async():
    async def work():
        async with openai.AsyncOpenAI(base_url=C.base_url, api_key="k1", max_retries=0) as a:
            async def streamed(q):
                parts = []
                async for c in await a.chat.completions.create(**ask(q), stream=True):
                    parts.append(c.choices[0].delta.content or "")
                return "".join(parts)

            async def whole(q):
                return (await a.chat.completions.create(**ask(q))).choices[0].message.content

            return await asyncio.gather(*[f(q) for f in (streamed, whole) for q in (Q, SYSTEM_Q)])

    same("async: four at once", asyncio.run(work()), [run_text(Q, N), run_text(SYSTEM_Q, N)] * 2)


def test_seed():
    hot = dict(temperature=0.9, top_p=0.95, seed=7)
    want = run_text(Q, N, "--temp", "0.9", "--top-p", "0.95", "--seed", "7")
    same("seed: the text of dflash run", C.chat.completions.create(**ask(Q) | hot).choices[0].message.content, want)
    r = C.chat.completions.create(**ask(Q) | hot, n=3)
    same("n: three, the first is that one", (len(r.choices), r.choices[0].message.content), (3, want))
    parts = {0: "", 1: "", 2: ""}
    for c in C.chat.completions.create(**ask(Q) | hot, n=3, stream=True):
        parts[c.choices[0].index] += c.choices[0].delta.content or ""
    same("n, streamed: the same three", list(parts.values()), [c.message.content for c in r.choices])


def test_stop():
    text = run_text(Q, N)
    stop = text[9:13]
    r = C.chat.completions.create(**ask(Q), stop=[stop])
    same("stop: cut before it", (r.choices[0].message.content, r.choices[0].finish_reason), (text[:text.find(stop)], "stop"))
    got = "".join(c.choices[0].delta.content or "" for c in C.chat.completions.create(**ask(Q), stop=[stop], stream=True))
    same("stop, streamed: not a letter of it", got, text[:text.find(stop)])


def test_logprobs():
    r = C.chat.completions.create(**ask(Q), logprobs=True, top_logprobs=3)
    lp = r.choices[0].logprobs.content
    same("logprobs: as many as tokens", len(lp), r.usage.completion_tokens)
    words = [e.token for e in lp]
    if r.choices[0].finish_reason == "stop":
        same("logprobs: the end token is the last, and no text", words.pop(), "<|im_end|>")
    same("logprobs: their tokens are the text", "".join(words), r.choices[0].message.content)
    check("logprobs: bytes", all(bytes(e.bytes).decode() == e.token for e in lp), lp)
    check("logprobs: greedy", all(e.logprob == e.top_logprobs[0].logprob and len(e.top_logprobs) == 3 for e in lp), lp)
    got = []
    for c in C.chat.completions.create(**ask(Q), logprobs=True, top_logprobs=3, stream=True):
        if c.choices[0].logprobs:
            got += c.choices[0].logprobs.content
    same("logprobs, streamed: the same", got, lp)


def test_completions():
    r = C.completions.create(model="x", prompt="one two three", max_tokens=8, temperature=0, logprobs=2)
    want = run_text("one two three", 8, "--raw")
    same("completions: the text", r.choices[0].text, want)
    same("completions: logprobs", "".join(r.choices[0].logprobs.tokens), want)
    s = C.completions.create(model="x", prompt="one two three", max_tokens=8, temperature=0, stream=True)
    same("completions stream: the text", "".join(c.choices[0].text for c in s), want)
    r = C.completions.create(model="x", prompt=["one two three", "the sea"], max_tokens=4, temperature=0, echo=True)
    check("completions: two prompts, echoed", [c.text.startswith(p) for c, p in zip(r.choices, ["one two three", "the sea"])]
          == [True, True], r)


def test_responses():
    r = C.responses.create(model="x", input=Q, temperature=0, max_output_tokens=N)
    same("responses: the text", r.output_text, run_text(Q, N))
    text, last = "", None
    for e in C.responses.create(model="x", input=Q, temperature=0, max_output_tokens=N, stream=True):
        text += e.delta if e.type == "response.output_text.delta" else ""
        last = e
    same("responses stream: the text", text, run_text(Q, N))
    same("responses stream: the end", (last.type.split(".")[0], last.response.output_text), ("response", text))


class Animal(BaseModel):
    name: str
    legs: int
    tame: bool


def test_structured():
    more = dict(max_tokens=80)
    r = C.chat.completions.parse(**ask("Describe a dog.") | more, response_format=Animal)
    check("structured: parsed", isinstance(r.choices[0].message.parsed, Animal), r.choices[0].message)
    plain = C.chat.completions.parse(**ask("Describe a dog.") | more, response_format=Animal,
                                     extra_body={"speculative": False})
    same("structured: the same without drafting", plain.choices[0].message.content, r.choices[0].message.content)
    r = C.chat.completions.create(**ask("A JSON object, please.") | more, response_format={"type": "json_object"},
                                  stop=["\n\n\n\n"])
    text = r.choices[0].message.content
    check("json_object: an object as far as it goes", text.lstrip().startswith("{"), text)
    if r.choices[0].finish_reason == "stop":
        check("json_object: complete", isinstance(json.loads(text), dict), text)
    with C.chat.completions.stream(**ask("Describe a dog.") | more, response_format=Animal) as s:
        same("structured stream: parsed", s.get_final_completion().choices[0].message.parsed, plain.choices[0].message.parsed)
    r = C.responses.parse(model="x", input="Describe a dog.", temperature=0, max_output_tokens=80, text_format=Animal)
    check("responses: parsed", isinstance(r.output_parsed, Animal), r)
    r = C.chat.completions.create(**ask("Yes or no?"), extra_body={"grammar": 'root ::= "yes" | "no"'})
    check("grammar: one of two words", r.choices[0].message.content in ("yes", "no"), r)


TOOLS = [{"type": "function", "function": {
    "name": "get_weather", "description": "The weather of a city",
    "parameters": {"type": "object", "properties": {"city": {"type": "string", "maxLength": 30},
                                                    "unit": {"enum": ["C", "F"]}},
                   "required": ["city", "unit"], "additionalProperties": False}}}]


def test_tools():
    body = ask("What is the weather in Paris?", max_tokens=100, parallel_tool_calls=False)
    r = C.chat.completions.create(**body, tools=TOOLS, tool_choice="required")
    m = r.choices[0].message
    if not check("tools: a call", bool(m.tool_calls), r):
        return
    args = json.loads(m.tool_calls[0].function.arguments)
    same("tools: its name, its arguments, the reason",
         (m.tool_calls[0].function.name, sorted(args), r.choices[0].finish_reason), ("get_weather", ["city", "unit"], "tool_calls"))
    name, text, ids, reason = "", "", set(), None
    for c in C.chat.completions.create(**body, tools=TOOLS, tool_choice={"type": "function", "function":
                                                                        {"name": "get_weather"}}, stream=True):
        for call in c.choices[0].delta.tool_calls or []:
            if call.index == 0:
                name += call.function.name or ""
                text += call.function.arguments or ""
                ids |= {call.id} if call.id else set()
        reason = c.choices[0].finish_reason or reason
    same("tools stream: the same call", (name, json.loads(text), len(ids), reason), ("get_weather", args, 1, "tool_calls"))
    messages = body["messages"] + [
        {"role": "assistant", "content": None, "tool_calls": [m.tool_calls[0].model_dump()]},
        {"role": "tool", "tool_call_id": m.tool_calls[0].id, "content": "sunny"}]
    try:
        r = C.chat.completions.create(**body | {"messages": messages, "max_tokens": 5}, tools=TOOLS)
        check("tools: the result goes back", r.choices[0].message is not None, r)
    except openai.BadRequestError as e:
        check("tools: a template without tools says so", "template" in e.message, e)
    r = C.chat.completions.create(**ask(Q), tools=TOOLS, tool_choice="none")
    check("tools: none", not r.choices[0].message.tool_calls, r)


def test_errors():
    for what, kind, call in [
            ("a bad value", openai.BadRequestError, lambda: C.chat.completions.create(**ask(Q) | {"temperature": -1})),
            ("too long", openai.BadRequestError, lambda: C.completions.create(model="x", prompt="word " * 3000)),
            ("embeddings", openai.InternalServerError, lambda: C.embeddings.create(model="x", input="a")),
            ("no messages", openai.BadRequestError, lambda: C.chat.completions.create(model="x", messages=[]))]:
        try:
            call()
            check("errors: " + what, False, "no error")
        except openai.APIStatusError as e:
            check("errors: " + what, type(e) is kind and bool(e.request_id) and bool(e.body["message"]), repr(e))


def test_leaving():
    s = C.chat.completions.create(**ask(Q) | {"max_tokens": 900}, extra_body={"ignore_eos": True}, stream=True)
    next(iter(s))
    s.close()
    check("leaving a stream frees its place", SERVER.wait_idle())
    try:
        C.with_options(timeout=1.0).chat.completions.create(**ask(Q) | {"max_tokens": 2000}, extra_body={"ignore_eos": True})
        check("a client's own time limit", False, "no error")
    except openai.APITimeoutError:
        check("a client's own time limit frees its place", SERVER.wait_idle())


def run():
    global C, SERVER
    with Server("-c", "2048", "--parallel", "4", "--api-key", "k1") as SERVER:
        SERVER_GET = SERVER.get
        SERVER.get = lambda path, **kw: SERVER_GET(path, headers={"Authorization": "Bearer k1"}, **kw)
        C = openai.OpenAI(base_url=f"http://127.0.0.1:{SERVER.port}/v1", api_key="k1", max_retries=0)
        for t in [test_models, test_chat, test_async, test_seed, test_stop, test_logprobs, test_completions, test_responses,
                  test_structured, test_tools, test_errors, test_leaving]:
            try:
                t()
            except Exception as e:  # the others still run
                import traceback
                check(t.__name__, False, traceback.format_exc())
        try:
            openai.OpenAI(base_url=C.base_url, api_key="wrong", max_retries=0).models.list()
            check("a wrong key", False)
        except openai.AuthenticationError:
            check("a wrong key is AuthenticationError", True)


main([run])
