"""What /openapi.json says about a request is what the server does with it: valid ones are answered, others refused with
400, one line and the field. Where a rule is in words only (docs/server.md), the document admits what the server refuses."""
import schema_check
from serve_bad_input import CHAT, COMPLETE, FIELDS, GENERATE
from serve_lib import Server, check, main, same

LLAMA, RESPONSES, TOKENIZE, ABORT = "/completion", "/v1/responses", "/tokenize", "/abort_request"
M = {"messages": [{"role": "user", "content": "x"}], "max_tokens": 1}
P = {"prompt": "x", "max_tokens": 1}
L = {"prompt": "x", "n_predict": 1}
G = {"text": "x", "sampling_params": {"max_new_tokens": 1}}
R = {"input": "x", "max_output_tokens": 1}
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
NAMED = {"type": "function", "function": {"name": "f"}}
BOOLEAN = {"type": "boolean"}


def fmt(type_, **more):
    return {"response_format": {"type": type_, **more}}


def say(*messages):
    return {**M, "messages": list(messages)}


VALID = [
    (CHAT, M), (COMPLETE, P), (LLAMA, L), (GENERATE, G), (RESPONSES, R),
    (CHAT, {**M, "whatever": {"a": [None, {}]}}),
    # numbers: whole ones may be written with a fraction; the borders
    (CHAT, {**M, "n": 2.0, "top_k": -1, "seed": -2 ** 63, "temperature": 0, "top_p": 1, "min_p": 0}),
    (CHAT, {**M, "seed": 2 ** 63 - 1, "max_completion_tokens": 1, "max_tokens": 16777216}),
    (LLAMA, {**L, "n_predict": -1, "max_tokens": 1, "stop": ["th", "\n", "e"], "ignore_eos": False}),
    (LLAMA, {"prompt": "x", "max_tokens": -2, "n_predict": 1}), (LLAMA, {"prompt": "x", "max_tokens": -1, "n_predict": 0}),
    (CHAT, {**M, "logprobs": True, "top_logprobs": 20}), (CHAT, {**M, "top_logprobs": 0}), (COMPLETE, {**P, "logprobs": 20}),
    (COMPLETE, {**P, "best_of": 2, "n": 2, "stream": True}), (COMPLETE, {**P, "suffix": ""}),
    (CHAT, {**M, "logit_bias": {"5": -100, "0": False}}), (CHAT, {**M, "logit_bias": [[5, 1], {"id": 6, "bias": False}]}),
    (CHAT, {**M, "stop": ["", "é" * 1024]}), (CHAT, {**M, "stop": "x", "stop_token_ids": [0, 2147483647]}),
    # prompts
    (COMPLETE, {**P, "prompt": [1.0, 2]}), (COMPLETE, {**P, "prompt": [[1], "x"]}), (COMPLETE, {**P, "prompt": "a\0b"}),
    (COMPLETE, {**P, "prompt": ["x"] * 128}), (GENERATE, {"input_ids": [[1, 2.0], [3]], "sampling_params": None}),
    (GENERATE, {"text": ["x", "y"], "input_ids": None, "rid": ["r1", "é" * 128]}), (GENERATE, {**G, "rid": None}),
    (GENERATE, {**G, "rid": "r", "return_logprob": True, "top_logprobs_num": 2, "logprob_start_len": 0}),
    # messages
    (CHAT, say({"role": "assistant"}, {"role": "user", "content": []})),
    (CHAT, say({"role": "function", "content": ["a", {"type": "input_text", "text": "b"}]}, {"role": "developer", "content": ""})),
    (CHAT, say({"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}], "tool_calls": [{"function": {}}, {}]})),
    (RESPONSES, {**R, "input": [{"type": "reasoning", "x": 1}, {"type": "message", "role": "user", "content": "x"}]}),
    (RESPONSES, {**R, "input": [{"type": None, "role": "user", "content": "x"}], "instructions": "a\0b", "tools": [],
                 "background": False, "text": {"format": {"type": "json_schema", "schema": BOOLEAN, "name": "n"}}}),
    (RESPONSES, {**R, "include": ["message.output_text.logprobs", "x"], "top_logprobs": 3}),
    # what constrains the output
    (CHAT, {**M, **fmt("text", json_schema=5, schema="x")}), (CHAT, {**M, **fmt("json_object")}),
    (CHAT, {**M, **fmt("json_object", schema=BOOLEAN)}), (CHAT, {**M, **fmt("json_schema", json_schema={"schema": True})}),
    (CHAT, {**M, **fmt("json_schema", json_schema={}, schema=BOOLEAN)}), (LLAMA, {**L, "json_schema": "", "grammar": ""}),
    (COMPLETE, {**P, "guided_json": BOOLEAN, "grammar": "", **fmt("text"), "guided_regex": None}),
    (LLAMA, {**L, "json_schema": '{"type": "boolean"}'}), (LLAMA, {**L, "grammar": 'root ::= "a"'}),
    (GENERATE, {"text": "x", "sampling_params": {"max_new_tokens": 1, "json_schema": "true", "ebnf": None, "regex": None}}),
    # tools
    (CHAT, {**M, "tools": []}), (CHAT, {**M, "tools": [TOOL], "tool_choice": "auto", "parallel_tool_calls": False}),
    (CHAT, {**M, "tools": [TOOL], "tool_choice": NAMED}), (CHAT, {**M, "tools": [TOOL], "tool_choice": "required", **fmt("text")}),
    (CHAT, {**M, "tools": [TOOL], "tool_choice": {"function": {"name": "f"}}}), (CHAT, {**M, "tool_choice": "none"}),
    # the small ones
    (TOKENIZE, {"content": ""}), (TOKENIZE, {"prompt": "x", "add_special_tokens": False, "with_pieces": True}),
    (TOKENIZE, {"content": "x", "prompt": None}), ("/detokenize", {"tokens": []}), ("/detokenize", {"tokens": [5.0]}),
    ("/apply-template", {"messages": M["messages"], "tools": [TOOL], "tool_choice": 5, "add_generation_prompt": False}),
    (ABORT, {"rid": "nobody"}), (ABORT, {"abort_all": True}),
]
INVALID = [
    (CHAT, {**M, "a\0b": 1}), (CHAT, {**M, "a": [{"\0": 1}]}),
    (LLAMA, {**L, "max_tokens": -3}), (LLAMA, {**L, "n_predict": -3}), (CHAT, {**M, "max_tokens": -1}),
    (CHAT, {**M, "logit_bias": {"+5": 1}}), (CHAT, {**M, "logit_bias": {"9999999999": 1}}), (CHAT, {**M, "logit_bias": [[5]]}),
    (CHAT, {**M, "logit_bias": [[5, 1, 1]]}), (CHAT, {**M, "logit_bias": [{"id": 5}]}), (CHAT, {**M, "stop": "é" * 1025}),
    (CHAT, {**M, "stop": "a\0b"}), (CHAT, {**M, "stop": [""] * 33}), (CHAT, {**M, "n": True}),
    (COMPLETE, {**P, "prompt": [1.5]}), (COMPLETE, {**P, "prompt": [[]]}), (COMPLETE, {**P, "prompt": ["x", ""]}),
    (COMPLETE, {**P, "prompt": ["x"] * 129}), (COMPLETE, {**P, "prompt": [300]}), (COMPLETE, {**P, "suffix": 5}),
    (GENERATE, {"text": ["x", [1]]}), (GENERATE, {"input_ids": [[1], "x"]}), (GENERATE, {"input_ids": "x"}), (GENERATE, {}),
    (GENERATE, {**G, "rid": ["a", 5]}), (GENERATE, {**G, "rid": "é" * 129}), (GENERATE, {**G, "rid": "a\0b"}),
    (GENERATE, {**G, "input_ids": [1]}), (GENERATE, {**G, "logprob_start_len": -2}),
    (GENERATE, {"text": "x", "sampling_params": {"json_schema": {}, "ebnf": 'root ::= "a"'}}),
    (CHAT, say({"role": "user\0", "content": "x"})), (CHAT, say({"role": "user", "content": None})),
    (CHAT, say({"role": "assistant", "tool_calls": [5]})), (CHAT, say({"role": "assistant", "tool_calls": [{"function": 5}]})),
    (CHAT, say({"role": "user", "content": [{"type": "text", "refusal": "x"}]})), (CHAT, say({"role": "user", "content": [5]})),
    (RESPONSES, {**R, "input": []}), (RESPONSES, {**R, "input": [{"type": "reasoning"}]}),
    (RESPONSES, {**R, "input": [{"type": 5, "role": "user", "content": "x"}]}), (RESPONSES, {**R, "tools": [TOOL]}),
    (RESPONSES, {**R, "input": [{"type": "function_call"}]}), (RESPONSES, {**R, "background": True}),
    (RESPONSES, {**R, "include": "x"}), (RESPONSES, {**R, "include": [5]}), (RESPONSES, {**R, "text": "x"}), (RESPONSES, {**R, "text": {"format": 5}}), (RESPONSES, {**R, "instructions": 5}),
    (RESPONSES, {**R, "chat_template_kwargs": "x"}), (RESPONSES, {**R, "text": {"format": {"type": "json_schema"}}}),
    (CHAT, {**M, **fmt("json_schema")}), (CHAT, {**M, **fmt("json_schema", json_schema={"schema": 5})}),
    (CHAT, {**M, **fmt("json_object", json_schema={}, schema=[])}), (CHAT, {**M, "response_format": {}}),
    (CHAT, {**M, **fmt("json_object"), "grammar": 'root ::= "a"'}), (CHAT, {**M, "guided_json": {}, "json_schema": "{}"}),
    (CHAT, {**M, "tools": [TOOL], "tool_choice": "required", "grammar": 'root ::= "a"'}), (CHAT, {**M, "json_schema": 5}),
    (CHAT, {**M, "tools": [{"type": "custom", "function": {"name": "f"}}]}), (CHAT, {**M, "tools": [{"type": "function"}]}),
    (CHAT, {**M, "tools": [{"type": "function", "function": {"name": "f" * 129}}]}),
    (CHAT, {**M, "tools": [{"type": "function", "function": {"name": "f", "parameters": 5}}]}),
    (CHAT, {**M, "tools": [], "tool_choice": "required"}), (CHAT, {**M, "tool_choice": NAMED}),
    (CHAT, {**M, "tools": [TOOL], "tool_choice": {"type": "custom", "function": {"name": "f"}}}),
    (CHAT, {**M, "parallel_tool_calls": 1}), (CHAT, {**M, "guided_choice": ["a"]}),
    (TOKENIZE, {}), (TOKENIZE, {"content": "x", "prompt": 5}), ("/detokenize", {"tokens": [[5]]}), (ABORT, {"abort_all": False}),
    ("/apply-template", {"messages": M["messages"], "tools": 5}),
]
IN_WORDS = [
    (CHAT, {**M, "min_tokens": 2}), (COMPLETE, {**P, "best_of": 1, "n": 2}), (COMPLETE, {**P, "best_of": 2, "stream": True}),
    (COMPLETE, {**P, "prompt": ["x"] * 128, "n": 2}), (CHAT, {**M, "grammar": "root ::= ("}), (LLAMA, {**L, "json_schema": "{"}),
    (CHAT, {**M, "json_schema": {"type": "strange"}}), (CHAT, {**M, "tools": [TOOL, TOOL]}),
    (CHAT, {**M, "tools": [TOOL], "tool_choice": {"function": {"name": "g"}}}),
]


def refused(what, r):
    if same(what + ": status", r.status, 400):
        e = r.json["error"]
        check(what + ": one line", e["message"] and "\n" not in e["message"], e)


def run():
    with Server("--threads", "1") as s:
        doc = schema_check.Document(s.get("/openapi.json").json)
        for path, body in VALID:
            what = f"{path} {str(body)[:100]}"
            check(what + ": the document admits it", doc.ok(doc.body(path), body))
            r = s.post(path, body)
            check(what + ": it is answered", r.status == 200, r.text[:300])
        compared = ("best_of", "min_tokens", "answers")  # with another number: a rule in words
        for path, body in INVALID + [(path, body) for path, body, param, word in FIELDS if not {param, word} & set(compared)]:
            what = f"{path} {str(body)[:100]}"
            check(what + ": the document forbids it", not doc.ok(doc.body(path), body))
            refused(what, s.post(path, body))
        for path, body in IN_WORDS:
            what = f"{path} {str(body)[:100]}"
            check(what + ": the document admits it", doc.ok(doc.body(path), body))
            refused(what, s.post(path, body))
        for path in [p for p, ops in doc.d["paths"].items() if "requestBody" in ops.get("post", {})]:
            for body in [None, 5, "x", [], True]:
                check(f"{path} {body}: forbidden", not doc.ok(doc.body(path), body))
                same(f"{path} {body}: refused", s.post(path, "null" if body is None else body).status, 400)
        check("nothing is left", s.wait_idle())


main([run])
