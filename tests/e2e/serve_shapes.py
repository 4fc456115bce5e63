"""Forms of replies and streams, usage, logprobs, several answers, stops, metrics that add up."""
import json
import math
import time

from serve_lib import Server, chat, check, chunks, in_threads, main, same

S = None


def keys(value):
    return sorted(value)


def test_chat_whole():
    r = S.post("/v1/chat/completions", chat("Count from one to ten.", max_tokens=8), headers={"x-request-id": "my-id.1"})
    d = r.json
    same("content type", r.headers["Content-Type"], "application/json")
    same("request id", r.headers["x-request-id"], "my-id.1")
    same("chat: members", keys(d), sorted(["id", "object", "created", "model", "system_fingerprint", "choices", "usage",
                                           "timings"]))
    same("chat: object", d["object"], "chat.completion")
    check("chat: created", abs(d["created"] - time.time()) < 60, d["created"])
    c = d["choices"][0]
    same("chat: choice", keys(c), ["finish_reason", "index", "logprobs", "message"])
    same("chat: message", (c["message"]["role"], c["message"]["refusal"], c["logprobs"]), ("assistant", None, None))
    same("chat: reason", c["finish_reason"], "length")
    u, t = d["usage"], d["timings"]
    same("chat: usage", (u["completion_tokens"], u["total_tokens"]), (8, u["prompt_tokens"] + 8))
    same("chat: timings count", (t["predicted_n"], t["prompt_n"] + t["cache_n"]), (8, u["prompt_tokens"]))
    for k in ["cache_n", "prompt_n", "prompt_ms", "prompt_per_token_ms", "prompt_per_second", "predicted_n", "predicted_ms",
              "predicted_per_token_ms", "predicted_per_second", "draft_n", "draft_n_accepted", "verify_n", "accept_length"]:
        check("chat: timings has " + k, isinstance(t[k], (int, float)), t)
    again = S.post("/v1/chat/completions", chat("Count from one to ten.", max_tokens=8)).json
    check("chat: cached tokens", again["usage"]["prompt_tokens_details"]["cached_tokens"] >= 16, again["usage"])
    same("chat: cache_n is the same number", again["timings"]["cache_n"],
         again["usage"]["prompt_tokens_details"]["cached_tokens"])
    same("chat: cached, same text", again["choices"][0]["message"], c["message"])


def test_chat_stream():
    body = chat("Say: \u4f60\u597d \U0001f600 caf\u00e9", max_tokens=16, stream_options={"include_usage": True}, spec_width=6)
    r, found, _ = S.stream("/v1/chat/completions", body)
    same("stream: content type", r.headers["Content-Type"], "text/event-stream")
    same("stream: no cache, no buffering", (r.headers["Cache-Control"], r.headers["X-Accel-Buffering"]), ("no-cache", "no"))
    check("stream: events have no names", all(n is None for n, _ in found))
    c = chunks(found)
    same("stream: first delta", c[0]["choices"][0]["delta"], {"role": "assistant", "content": None})
    check("stream: later deltas have no role", all("role" not in x["choices"][0]["delta"] for x in c[1:-1]))
    same("stream: last choice", (c[-2]["choices"][0]["delta"], c[-2]["choices"][0]["finish_reason"]), ({}, "length"))
    same("stream: reasons before", {x["choices"][0]["finish_reason"] for x in c[:-2]}, {None})
    same("stream: usage chunk has no choices", c[-1]["choices"], [])
    same("stream: usage before it is null", {json.dumps(x["usage"]) for x in c[:-1]}, {"null"})
    same("stream: usage", c[-1]["usage"]["completion_tokens"], 16)
    for k in ["id", "created", "model", "system_fingerprint", "object"]:
        same("stream: one " + k, len({x[k] for x in c}), 1)
    same("stream: object", c[0]["object"], "chat.completion.chunk")
    whole = S.post("/v1/chat/completions", body | {"stream": False}).json
    same("stream: text", "".join(x["choices"][0]["delta"].get("content") or "" for x in c[:-1]),
         whole["choices"][0]["message"]["content"])
    _, found, _ = S.stream("/v1/chat/completions", chat("Hi", max_tokens=4))
    check("stream: no usage unless asked", all("usage" not in x for x in chunks(found)))


def test_several_answers():
    body = chat("Tell me a word.", max_tokens=6, n=3, temperature=1.0, seed=5, stream_options={"include_usage": True})
    d = S.post("/v1/chat/completions", body).json
    same("n: indexes", [c["index"] for c in d["choices"]], [0, 1, 2])
    same("n: usage counts all answers and one prompt", d["usage"]["completion_tokens"],
         sum(len(S.post("/tokenize", {"content": c["message"]["content"]}).json["tokens"]) for c in d["choices"])
         if all(c["finish_reason"] == "length" for c in d["choices"]) else d["usage"]["completion_tokens"])
    single = S.post("/v1/chat/completions", body | {"n": 1}).json
    same("n: the first is the answer alone", d["choices"][0]["message"], single["choices"][0]["message"])
    same("n: one prompt", d["usage"]["prompt_tokens"], single["usage"]["prompt_tokens"])
    _, found, _ = S.stream("/v1/chat/completions", body)
    texts = ["", "", ""]
    roles, ends = [0] * 3, [0] * 3
    for c in chunks(found):
        for x in c["choices"]:
            texts[x["index"]] += x["delta"].get("content") or ""
            roles[x["index"]] += "role" in x["delta"]
            ends[x["index"]] += x["finish_reason"] is not None
    same("n: streamed texts", texts, [c["message"]["content"] for c in d["choices"]])
    same("n: one role and one end each", (roles, ends), ([1] * 3, [1] * 3))
    body = {"prompt": ["one two", "the sea"], "max_tokens": 4, "n": 2, "temperature": 1, "seed": 3}
    d = S.post("/v1/completions", body).json
    same("prompts: indexes", [c["index"] for c in d["choices"]], [0, 1, 2, 3])
    one = S.post("/v1/completions", body | {"prompt": "the sea"}).json
    same("prompts: each as alone", [c["text"] for c in d["choices"][2:]], [c["text"] for c in one["choices"]])
    best = S.post("/v1/completions", {"prompt": "the sea", "max_tokens": 4, "n": 1, "best_of": 4, "temperature": 1, "seed": 3,
                                      "logprobs": 0}).json
    all4 = S.post("/v1/completions", {"prompt": "the sea", "max_tokens": 4, "n": 4, "temperature": 1, "seed": 3,
                                      "logprobs": 0}).json
    score = {c["text"]: sum(c["logprobs"]["token_logprobs"]) / len(c["logprobs"]["token_logprobs"]) for c in all4["choices"]}
    same("best_of: the likeliest", best["choices"][0]["text"], max(score, key=score.get))
    same("best_of: usage counts all", best["usage"]["completion_tokens"], all4["usage"]["completion_tokens"])


def test_logprobs():
    body = chat("What is two and two?", max_tokens=8, logprobs=True, top_logprobs=3)
    d = S.post("/v1/chat/completions", body).json["choices"][0]
    lp = d["logprobs"]["content"]
    same("logprobs: one for each token", len(lp), 8)
    same("logprobs: the text", b"".join(bytes(e["bytes"]) for e in lp).decode(), d["message"]["content"])
    for e in lp:
        tops = [t["logprob"] for t in e["top_logprobs"]]
        check("logprobs: greedy takes the best", len(tops) == 3 and tops == sorted(tops, reverse=True) and
              e["logprob"] == tops[0] <= 0 and e["token"] == e["top_logprobs"][0]["token"] and
              sum(map(math.exp, tops)) <= 1.0001, e)
    for extra in [{"speculative": False}, {"spec_width": 8}]:
        other = S.post("/v1/chat/completions", body | extra).json["choices"][0]
        same(f"logprobs: the same with {extra}", other["logprobs"], d["logprobs"])
    _, found, _ = S.stream("/v1/chat/completions", body | {"spec_width": 8})
    got = []
    for c in chunks(found):
        for x in c["choices"]:
            if x["logprobs"]:
                got += x["logprobs"]["content"]
    same("logprobs: streamed", got, lp)
    # the older form, with the prompt
    ids = S.post("/tokenize", {"content": "The sky is blue"}).json["tokens"]
    d = S.post("/v1/completions", {"prompt": ids, "max_tokens": 2, "temperature": 0, "echo": True, "logprobs": 2}).json
    c = d["choices"][0]
    lp = c["logprobs"]
    same("echo: lengths", {len(lp[k]) for k in ["tokens", "token_logprobs", "top_logprobs", "text_offset"]}, {len(ids) + 2})
    same("echo: the first has none", (lp["token_logprobs"][0], lp["top_logprobs"][0]), (None, None))
    same("echo: text", "".join(lp["tokens"]), c["text"])
    same("echo: offsets", [c["text"][o:o + len(t)] for o, t in zip(lp["text_offset"], lp["tokens"])], lp["tokens"])
    # the prompt's logprobs are those of generating it: ask for each token with the one before
    forced = S.post("/v1/completions", {"prompt": ids[:2], "max_tokens": 1, "temperature": 0, "logprobs": 20}).json
    top = forced["choices"][0]["logprobs"]["top_logprobs"][0]
    token = lp["tokens"][2]
    if token in top:
        check("echo: a prompt token's logprob", abs(top[token] - lp["token_logprobs"][2]) < 1e-4,
              (top[token], lp["token_logprobs"][2]))
    g = S.post("/generate", {"input_ids": ids, "sampling_params": {"max_new_tokens": 2, "temperature": 0},
                             "return_logprob": True, "logprob_start_len": 0, "top_logprobs_num": 2}).json["meta_info"]
    same("generate: the same logprobs", [x[0] for x in g["input_token_logprobs"] + g["output_token_logprobs"]],
         lp["token_logprobs"])
    same("generate: ids", [x[1] for x in g["input_token_logprobs"]], ids)
    n0 = S.post("/v1/completions", {"prompt": ids, "max_tokens": 0, "echo": True, "logprobs": 0}).json["choices"][0]
    same("max_tokens 0: the prompt only", (n0["text"], len(n0["logprobs"]["tokens"])), ("The sky is blue", len(ids)))


def test_stops_and_lengths():
    full = S.post("/v1/completions", {"prompt": "one two three four", "max_tokens": 24, "temperature": 0}).json
    text = full["choices"][0]["text"]
    stop = text[7:12]
    for extra in [{}, {"speculative": False}, {"spec_width": 16}]:
        d = S.post("/v1/completions", {"prompt": "one two three four", "max_tokens": 24, "temperature": 0, "stop": [stop, "zzz"],
                                       "logprobs": 0, **extra}).json
        c = d["choices"][0]
        same(f"stop {extra}: cut before it", (c["text"], c["finish_reason"]), (text[:text.index(stop)], "stop"))
        same(f"stop {extra}: usage and logprobs agree", d["usage"]["completion_tokens"], len(c["logprobs"]["tokens"]))
        _, found, _ = S.stream("/v1/completions", {"prompt": "one two three four", "max_tokens": 24, "temperature": 0,
                                                   "stop": stop, **extra})
        same(f"stop {extra}: not one character of it is streamed", "".join(x["choices"][0]["text"] for x in chunks(found)),
             text[:text.index(stop)])
    for n in [1, 2, 3, 15, 16, 17]:
        d = S.post("/generate", {"text": "Once upon a time", "sampling_params": {"max_new_tokens": n, "temperature": 0,
                                                                               "ignore_eos": True}}).json
        same(f"{n} tokens", (len(d["output_ids"]), d["meta_info"]["completion_tokens"], d["meta_info"]["finish_reason"]),
             (n, n, {"type": "length", "length": n}))
    ids = S.post("/generate", {"text": "Once upon a time", "sampling_params": {"max_new_tokens": 12, "temperature": 0}}).json[
        "output_ids"]
    d = S.post("/generate", {"text": "Once upon a time", "sampling_params": {
        "max_new_tokens": 12, "temperature": 0, "stop_token_ids": [ids[5]], "spec_width": 16}}).json
    same("stop id: cut", (d["output_ids"][:5], d["meta_info"]["finish_reason"]["matched"]), (ids[:5], ids[5]))
    d = S.post("/generate", {"text": "one two three four", "sampling_params": {"max_new_tokens": 24, "temperature": 0,
                                                                             "stop": [stop]}}).json
    same("generate: matched", d["meta_info"]["finish_reason"], {"type": "stop", "matched": stop})
    d = S.post("/completion", {"prompt": "one two three four", "n_predict": 24, "temperature": 0, "stop": [stop]}).json
    same("completion: stopping word", (d["stop_type"], d["stopping_word"]), ("word", stop))
    bias = S.post("/v1/completions", {"prompt": "one two three four", "max_tokens": 4, "temperature": 0,
                                      "logit_bias": {"1": -100, str(ids[0]): 100}}).json["choices"][0]["text"]
    same("logit_bias", bias, S.post("/detokenize", {"tokens": [ids[0]] * 4}).json["content"])


def test_limits():
    """No new token, fewer than a block, a block, one more: exact everywhere, whole and streamed, and the reason is the length."""
    more = {"temperature": 0, "ignore_eos": True, "stream_options": {"include_usage": True}}
    for width in [8, 16]:
        for n in [0, 1, 2, 3, width - 1, width, width + 1]:
            what = f"limit {n}, width {width}: "
            more["spec_width"] = width
            for path, body in [("/v1/chat/completions", chat("Count to ten.", max_tokens=n, **more)),
                               ("/v1/completions", {"prompt": "Once upon a time", "max_tokens": n, **more})]:
                d = S.post(path, body).json
                same(what + path, (d["usage"]["completion_tokens"], d["choices"][0]["finish_reason"]), (n, "length"))
                c = chunks(S.stream(path, body)[1])
                same(what + path + " streamed", (c[-1]["usage"]["completion_tokens"], c[-2]["choices"][0]["finish_reason"]),
                     (n, "length"))
                text = "".join((x["choices"][0].get("delta") or x["choices"][0]).get("content" if "chat" in path else "text") or ""
                               for x in c[:-1])
                same(what + path + ": the same text", text, d["choices"][0]["message"]["content"] if "chat" in path
                     else d["choices"][0]["text"])
            params = {"max_new_tokens": n, "temperature": 0, "ignore_eos": True, "spec_width": width}
            meta = S.post("/generate", {"text": "Once upon a time", "sampling_params": params}).json["meta_info"]
            same(what + "/generate", (meta["completion_tokens"], meta["finish_reason"]), (n, {"type": "length", "length": n}))
            d = S.post("/completion", {"prompt": "Once upon a time", "n_predict": n, "return_tokens": True, **more}).json
            same(what + "/completion", (d["tokens_predicted"], len(d["tokens"]), d["stop_type"]), (n, n, "limit"))
            d = S.post("/v1/responses", {"input": "Count to ten.", "max_output_tokens": n, **more}).json
            same(what + "/v1/responses", (d["usage"]["output_tokens"], d["status"]), (n, "incomplete"))
    same("limits: the server goes on", S.get("/health").status, 200)
    check("limits: nothing is left", S.wait_idle())


def test_responses():
    """The Responses API: the text, the tokens and their logprobs are chat's; events in order, each numbered."""
    q = "Count from one to ten."
    want = S.post("/v1/chat/completions", chat(q, max_tokens=20, logprobs=True, top_logprobs=2)).json["choices"][0]
    lp = want["logprobs"]["content"]
    body = {"input": q, "max_output_tokens": 20, "temperature": 0}
    for ask in [{"top_logprobs": 2}, {"top_logprobs": 2, "include": ["message.output_text.logprobs"], "spec_width": 16}]:
        part = S.post("/v1/responses", {**body, **ask}).json["output"][0]["content"][0]
        same(f"responses {ask}: text and logprobs", (part["text"], part["logprobs"]), (want["message"]["content"], lp))
        _, found, _ = S.stream("/v1/responses", {**body, **ask})
        e = [(name, json.loads(d)) for name, d in found]
        same("responses: names are types", [n for n, _ in e], [d["type"] for _, d in e])
        same("responses: numbered", [d["sequence_number"] for _, d in e], list(range(len(e))))
        deltas = [d for n, d in e if n == "response.output_text.delta"]
        same("responses: deltas", "".join(d["delta"] for d in deltas), part["text"])
        told = [t for d in deltas for t in d["logprobs"]]
        same("responses: logprobs of the deltas", told, lp[:len(told)])
        check("responses: none is missing but those without text", len(lp) - len(told) <= 1, (len(lp), len(told)))
        order = [n for n, _ in e if n != "response.output_text.delta"]
        same("responses: order", order[:4] + order[4:-1], [
            "response.created", "response.in_progress", "response.output_item.added", "response.content_part.added",
            "response.output_text.done", "response.content_part.done", "response.output_item.done"])
        same("responses: the beginning is empty", next(d for n, d in e if n == "response.content_part.added")["part"]["text"], "")
        same("responses: the end has it all", e[-1][1]["response"]["output"][0]["content"][0], part)
    part = S.post("/v1/responses", {**body, "include": ["message.output_text.logprobs"]}).json["output"][0]["content"][0]
    same("responses: included without alternatives", [t["logprob"] for t in part["logprobs"]], [t["logprob"] for t in lp])
    part = S.post("/v1/responses", {**body, "include": ["reasoning.encrypted_content"]}).json["output"][0]["content"][0]
    same("responses: no logprobs unless asked for", part["logprobs"], [])
    same("responses: include of another kind", S.post("/v1/responses", {**body, "include": [5]}).status, 400)


def test_native():
    d = S.post("/generate", {"text": ["one two", "red green"], "sampling_params": {"max_new_tokens": 3}, "rid": "r1"}).json
    same("generate: a list gives a list", [x["meta_info"]["id"] for x in d], ["r1_0", "r1_1"])
    meta = d[0]["meta_info"]
    for k in ["finish_reason", "prompt_tokens", "completion_tokens", "cached_tokens", "e2e_latency", "spec_verify_ct",
              "spec_accept_length", "spec_accept_rate", "spec_accept_histogram"]:
        check("generate: meta_info has " + k, k in meta)
    same("model info", S.get("/get_model_info").json["is_generation"], True)
    info = S.get("/server_info").json
    same("server info", (info["speculative_algorithm"], info["speculative_num_draft_tokens"]), ("DFLASH", 16))
    check("server info: accept length", info["internal_states"][0]["avg_spec_accept_length"] >= 1)
    same("props", S.get("/props").json["speculative"]["type"], "draft-dflash")
    same("slots", len(S.get("/slots").json), 8)
    m = S.get("/v1/models").json
    same("models", (m["object"], m["data"][0]["object"]), ("list", "model"))
    same("one model", S.get("/v1/models/" + m["data"][0]["id"]).json["id"], m["data"][0]["id"])
    same("health", (S.get("/health").json, S.get("/v1/health").status, S.get("/health_generate").status),
         ({"status": "ok"}, 200, 200))
    check("version", S.get("/version").json["version"][0].isdigit())
    t = S.post("/tokenize", {"content": "caf\u00e9 \U0001f600", "with_pieces": True}).json["tokens"]
    same("pieces", b"".join(p["piece"].encode() if isinstance(p["piece"], str) else bytes(p["piece"]) for p in t).decode(),
         "caf\u00e9 \U0001f600")
    d = S.post("/detokenize", {"tokens": [p["id"] for p in t]}).json
    same("detokenize", (d["content"], d["text"], d["prompt"]), ("caf\u00e9 \U0001f600",) * 3)
    same("tokenize, vLLM's form", S.post("/tokenize", {"prompt": "one two"}).json["count"], 2)
    same("HEAD", (S.request("HEAD", "/health").status, S.request("HEAD", "/health").body), (200, b""))
    same("flush", S.post("/flush_cache", None).status, 200)
    same("flushed", S.metrics()["df_kv_blocks_cached"], 0)
    same("the page", (S.get("/").status in (200, 404)), True)


def test_dflash_tokens():
    body = chat("Count from one to ten.", max_tokens=24, dflash_tokens=True, spec_width=8)
    _, found, _ = S.stream("/v1/chat/completions", body)
    text = pieces = ""
    drafted = accepted = tokens = 0
    for c in chunks(found):
        x = c["choices"][0]
        text += x["delta"].get("content") or ""
        if "dflash" in x:
            d = x["dflash"]
            slots = [t["slot"] for t in d["tokens"]]
            check("slots: accepted drafts in order, then the target's own",
                  slots == list(range(1, d["accepted"] + 1))[:len(slots)] + [0] * max(0, len(slots) - d["accepted"]), d)
            pieces += "".join(t["text"] for t in d["tokens"])
            drafted += d["drafted"]
            accepted += d["accepted"]
            tokens += len(slots)
        last = c
    same("pieces are the text", pieces, text)
    t = last["timings"]
    same("all tokens have a piece", tokens, t["predicted_n"])
    same("drafted and accepted as in the timings", (drafted, accepted), (t["draft_n"], t["draft_n_accepted"]))


def test_metrics():
    a = S.metrics()
    got = in_threads([lambda i=i: S.post("/v1/completions", {"prompt": f"{i} is", "max_tokens": 5 + i, "ignore_eos": True,
                                                            "spec_width": 8 if i % 2 else 0}).json for i in range(6)])
    check("requests are over", S.wait_idle())
    b = S.metrics()

    def grew(name):
        return b[name] - a[name]

    sent = sum(d["usage"]["completion_tokens"] for d in got)
    same("tokens counted are tokens sent", (grew("df_generation_tokens_total"), grew("df_sent_tokens_total")), (sent, sent))
    same("prompt tokens", grew("df_prompt_tokens_total"), sum(d["usage"]["prompt_tokens"] for d in got))
    same("accepted + rejected = drafted", grew("df_spec_accepted_tokens_total") + grew("df_spec_rejected_tokens_total"),
         grew("df_spec_draft_tokens_total"))
    same("drafted: replies and metrics", grew("df_spec_draft_tokens_total"), sum(d["timings"]["draft_n"] for d in got))
    for kind in ["drafted", "accepted"]:
        total = sum(v - a[k] for k, v in b.items() if k.startswith(f"df_spec_{kind}_tokens_per_pos_total"))
        same(f"{kind} by position", total, grew("df_spec_draft_tokens_total" if kind == "drafted" else
                                                "df_spec_accepted_tokens_total"))
    label = '{model_name="%s"}' % S.get("/v1/models").json["data"][0]["id"]
    for own, others in [("df_generation_tokens_total", ["vllm:generation_tokens_total", "sglang:generation_tokens_total"]),
                        ("df_spec_draft_tokens_total", ["vllm:spec_decode_num_draft_tokens_total"]),
                        ("df_requests_running", ["vllm:num_requests_running", "sglang:num_running_reqs"]),
                        ("df_kv_usage_ratio", ["vllm:kv_cache_usage_perc"])]:
        for o in others:
            same(f"{o} = {own}", b[o + label], b[own])
    same("histogram: requests", grew("df_e2e_request_latency_seconds_count"), 6)
    same("histogram: first tokens", grew("df_time_to_first_token_seconds_count"), 6)
    same("histogram: between tokens", grew("df_inter_token_latency_seconds_count") <= sent, True)
    same("reasons", grew('df_requests_total{reason="length"}'), 6)
    down = [k for k in a if "_total" in k and b[k] < a[k]]
    same("counters only rise", down, [])
    same("content type", S.get("/metrics").headers["Content-Type"], "text/plain; version=0.0.4; charset=utf-8")


def test_openapi():
    d = S.get("/openapi.json").json
    same("openapi", d["openapi"], "3.1.0")
    for path, ops in d["paths"].items():
        for method in ops:
            r = S.request(method.upper(), path.replace("{model}", "x"), None if method == "get" else "{}")
            check(f"openapi: {method} {path} exists", r.status not in (404, 405) or "{" in path, r.status)
            check(f"openapi: {method} {path} answers as it says", str(r.status) in ops[method]["responses"], r.status)


def run():
    global S
    with Server() as S:
        for test in [test_chat_whole, test_chat_stream, test_several_answers, test_logprobs, test_stops_and_lengths, test_limits, test_responses,
                     test_native, test_dflash_tokens, test_metrics, test_openapi]:
            try:
                test()
            except Exception as e:
                import traceback
                check(test.__name__, False, traceback.format_exc() + repr(e))


main([run])
