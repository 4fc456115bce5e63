"""Formats, grammars and tool calls through the server: valid, the same with and without drafts, many at once, streamed."""
import json
import re

from serve_lib import Server, chat, check, chunks, in_threads, main, same

CHAT, COMPLETE = "/v1/chat/completions", "/v1/completions"
S = None
PERSON = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 6}, "age": {"type": "integer", "minimum": 0,
                                                                                            "maximum": 150},
                                           "tag": {"enum": ["a", "b"]}},
          "required": ["name", "age", "tag"], "additionalProperties": False}
TOOL = {"type": "function", "function": {"name": "get_weather", "parameters": {
    "type": "object", "properties": {"city": {"type": "string", "maxLength": 8}, "days": {"type": "integer", "minimum": 1,
                                                                                       "maximum": 9}},
    "required": ["city", "days"], "additionalProperties": False}}}
WAYS = [{"speculative": False}, {"spec_width": 8}]


def schema(s):
    return {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": s}}}


def is_person(v):
    return (list(v) == ["name", "age", "tag"] and len(v["name"]) <= 6 and type(v["age"]) is int and 0 <= v["age"] <= 150 and
            v["tag"] in ("a", "b"))


def test_schema():
    texts = []
    for way in WAYS:
        d = S.post(CHAT, chat("Describe a person as JSON.", max_tokens=120, **schema(PERSON), **way)).json
        c = d["choices"][0]
        same(f"schema {way}: it ends by itself", c["finish_reason"], "stop")
        check(f"schema {way}: valid", is_person(json.loads(c["message"]["content"])), c)
        texts.append(c["message"]["content"])
    same("schema: drafting changes nothing", len(set(texts)), 1)
    _, found, _ = S.stream(CHAT, chat("Describe a person as JSON.", max_tokens=120, **schema(PERSON)))
    same("schema: streamed", "".join(x["choices"][0]["delta"].get("content") or "" for x in chunks(found)), texts[0])
    d = S.post(CHAT, chat("Describe a person as JSON.", max_tokens=120, temperature=1, seed=3, n=2, **schema(PERSON))).json
    for c in d["choices"]:
        check("schema, drawn: valid", c["finish_reason"] == "stop" and is_person(json.loads(c["message"]["content"])), c)
    d = S.post("/generate", {"text": "A person:", "sampling_params": {"json_schema": json.dumps(PERSON), "max_new_tokens": 120}})
    check("generate: json_schema", is_person(json.loads(d.json["text"])), d.text)
    d = S.post("/completion", {"prompt": "A person:", "json_schema": PERSON, "n_predict": 120})
    check("completion: json_schema", is_person(json.loads(d.json["content"])), d.text)
    small = {"type": "object", "properties": {"x": {"const": 1}}, "required": ["x"], "additionalProperties": False}
    d = S.post("/v1/responses", {"input": "x", "text": {"format": {"type": "json_schema", "name": "n", "schema": small}}}).json
    same("responses: text.format", json.loads(d["output"][0]["content"][0]["text"]), {"x": 1})


def test_grammar():
    for way in WAYS:
        c = S.post(COMPLETE, {"prompt": "Is it? ", "max_tokens": 30, "grammar": 'root ::= ("yes" | "no") "." [0-9]{3}', "logprobs": 2,
                              **way}).json["choices"][0]
        check(f"grammar {way}", re.fullmatch(r"(yes|no)\.\d{3}", c["text"]) and c["finish_reason"] == "stop", c)
    r = S.post(COMPLETE, {"prompt": "x", "grammar": "root ::= ("})
    same("a broken grammar", (r.status, r.json["error"]["param"]), (400, "grammar"))
    check("a broken grammar: where", "line 1 column" in r.json["error"]["message"], r.text)
    r = S.post(CHAT, chat("x", **schema({"type": "object", "if": {}})))
    check("a schema that is not supported is refused", r.status == 400 and "if" in r.json["error"]["message"], r.text)
    r = S.post(COMPLETE, {"prompt": "x", "grammar": 'root ::= "a"', "json_schema": {}})
    same("constrained twice", r.status, 400)


def test_many_at_once():
    """Different schemas behind one prompt, others without: each fits its own, the others are as alone."""
    alone = S.post(CHAT, chat("Say something.", max_tokens=12)).json["choices"][0]["message"]["content"]

    def one(i):
        if i % 4 == 3:
            return S.post(CHAT, chat("Say something.", max_tokens=12)).json["choices"][0]["message"]["content"] == alone
        s = {"type": "object", "properties": {f"k{i}": {"type": "integer", "minimum": i, "maximum": i + 5}},
             "required": [f"k{i}"], "additionalProperties": False}
        c = S.post(CHAT, chat("Say something.", max_tokens=30, **schema(s), **WAYS[i % 2])).json["choices"][0]
        v = json.loads(c["message"]["content"])
        return list(v) == [f"k{i}"] and i <= v[f"k{i}"] <= i + 5

    got = in_threads([lambda i=i: one(i) for i in range(32)])
    same("thirty-two at once", got, [True] * 32)
    check("nothing is left", S.wait_idle())


def args_ok(call):
    v = json.loads(call["function"]["arguments"])
    return call["type"] == "function" and call["function"]["name"] == "get_weather" and list(v) == ["city", "days"] and \
        1 <= v["days"] <= 9 and len(v["city"]) <= 8


def test_tools():
    named = {"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "get_weather"}}}
    texts = []
    for way in WAYS:
        c = S.post(CHAT, chat("Weather in Rome?", max_tokens=120, **named, **way)).json["choices"][0]
        same(f"tool {way}: why it ended", c["finish_reason"], "tool_calls")
        calls = c["message"]["tool_calls"]
        check(f"tool {way}: one call that fits", len(calls) == 1 and args_ok(calls[0]) and calls[0]["id"].startswith("call_"), c)
        texts.append(calls[0]["function"]["arguments"])
    same("tool: drafting changes nothing", len(set(texts)), 1)
    _, found, _ = S.stream(CHAT, chat("Weather in Rome?", max_tokens=120, **named))
    c = chunks(found)
    deltas = [x["choices"][0]["delta"] for x in c]
    parts = [p for d in deltas for p in d.get("tool_calls", [])]
    same("streamed call: begins with id and name", (parts[0]["index"], parts[0]["type"], parts[0]["function"]["name"]),
         (0, "function", "get_weather"))
    check("streamed call: the id comes once", all("id" not in p for p in parts[1:]))
    same("streamed call: arguments", "".join(p["function"]["arguments"] for p in parts), texts[0])
    same("streamed call: why it ended", c[-1]["choices"][0]["finish_reason"], "tool_calls")
    same("streamed call: no text", "".join(d.get("content") or "" for d in deltas).strip(), "")
    d = S.post(CHAT, chat("Hi", max_tokens=4, tools=[TOOL])).json["choices"][0]
    check("auto: an answer", d["finish_reason"] in ("length", "stop", "tool_calls"), d)
    d = S.post(CHAT, chat("Hi", max_tokens=4, tools=[TOOL], tool_choice="none")).json["choices"][0]
    same("none: no calls", "tool_calls" in d["message"], False)
    r = S.post(CHAT, chat("Hi", tools=[TOOL], tool_choice={"type": "function", "function": {"name": "other"}}))
    same("a function that is not there", r.status, 400)
    history = [{"role": "user", "content": "Weather?"},
               {"role": "assistant", "content": None, "tool_calls": [{"id": "c", "type": "function", "function": {
                   "name": "get_weather", "arguments": "{\"city\": \"Rome\", \"days\": 1}"}}]},
               {"role": "tool", "tool_call_id": "c", "content": "sunny"}]
    r = S.post(CHAT, {"messages": history, "max_tokens": 4, "tools": [TOOL]})
    same("a conversation with calls", r.status, 200)


def reasoning_in(tokens):
    """Tokens with a byte between the tags of a text that begins with <think>."""
    text, at, n = "".join(tokens), 0, 0
    end = text.find("</think>") if "</think>" in text else len(text)
    for t in tokens:
        n += max(at, 7) < min(at + len(t), end)
        at += len(t)
    return n


def test_reasoning_tokens():
    """Counted exactly, whole and streamed, and never more than there are tokens, wherever a block is cut."""
    grammar = 'root ::= "<think>\\n" [a-z ]{12,30} "\\n</think>\\n" ("yes" | "no")'
    for width in [1, 4, 8]:
        for limit in list(range(1, 12)) + [60]:
            body = chat("Is it? Think first.", max_tokens=limit, grammar=grammar, logprobs=True, spec_width=width)
            d = S.post(CHAT, body).json
            u, m = d["usage"], d["choices"][0]
            tokens = [e["token"] for e in m["logprobs"]["content"] if e["token"] not in ("<|im_end|>", "<|endoftext|>")]
            n = u["completion_tokens_details"]["reasoning_tokens"]
            same(f"reasoning, width {width}, {limit} tokens", n, reasoning_in(tokens))
            check(f"reasoning, width {width}, {limit} tokens: not more than there are", n <= u["completion_tokens"], u)
        check(f"reasoning, width {width}: some, and an answer behind it", 0 < n < u["completion_tokens"] and
              m["message"]["reasoning_content"] and m["message"]["content"] in ("yes", "no"), d)
        _, found, _ = S.stream(CHAT, {**body, "stream_options": {"include_usage": True}})
        same(f"reasoning, width {width}: streamed", chunks(found)[-1]["usage"], {**u, **{
            "prompt_tokens_details": chunks(found)[-1]["usage"]["prompt_tokens_details"]}})
    stop = m["message"]["reasoning_content"][5:9]
    d = S.post(CHAT, {**body, "stop": [stop], "spec_width": 8}).json
    u = d["usage"]
    check("reasoning: stopped inside", u["completion_tokens_details"]["reasoning_tokens"] <= u["completion_tokens"] and
          "reasoning_content" in d["choices"][0]["message"] and d["choices"][0]["message"]["content"] == "", d)
    d = S.post(CHAT, chat("Hi", max_tokens=4)).json
    same("no reasoning: none counted", d["usage"]["completion_tokens_details"]["reasoning_tokens"], 0)
    r = S.post("/v1/responses", {"input": "x", "max_output_tokens": 4}).json
    same("responses: none counted", r["usage"]["output_tokens_details"]["reasoning_tokens"], 0)


def run():
    global S
    with Server("--parallel", "6") as S:
        for test in [test_schema, test_grammar, test_many_at_once, test_tools, test_reasoning_tokens]:
            test()


main([run])
