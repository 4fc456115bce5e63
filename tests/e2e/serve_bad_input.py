"""Requests that are wrong in every way get an error in JSON that says how; the server goes on."""
import json
import socket
import time

from serve_lib import Server, chat, check, main, same

S = None


def error_of(what, r, status, param=None, words=""):
    """Checks the form of an error."""
    if not same(what + ": status", r.status, status):
        print("     |", r.body[:300])
        return
    check(what + ": JSON", r.headers["Content-Type"] == "application/json", r.headers["Content-Type"])
    try:
        e = r.json["error"]
    except Exception as why:
        check(what + ": an error object", False, (why, r.body[:300]))
        return
    same(what + ": members", sorted(e), ["code", "message", "param", "type"])
    same(what + ": code", e["code"], status)
    check(what + ": a request id", bool(r.headers["x-request-id"]))
    if param is not None:
        same(what + ": param", e["param"], param)
    check(what + ": words", words.lower() in e["message"].lower(), e["message"])


CHAT, COMPLETE, GENERATE = "/v1/chat/completions", "/v1/completions", "/generate"
M = {"messages": [{"role": "user", "content": "x"}], "max_tokens": 1}
P = {"prompt": "x", "max_tokens": 1}

FIELDS = [  # path, body, param, words
    (CHAT, {**M, "temperature": "hot"}, "temperature", "number"),
    (CHAT, {**M, "temperature": -1}, "temperature", "from 0"),
    (CHAT, {**M, "temperature": 1e999 if False else 1e30}, "temperature", ""),
    (CHAT, {**M, "top_p": 2}, "top_p", ""),
    (CHAT, {**M, "top_k": 1.5}, "top_k", ""),
    (CHAT, {**M, "max_tokens": -5}, "max_tokens", ""),
    (CHAT, {**M, "max_tokens": 10 ** 30}, "max_tokens", ""),
    (CHAT, {**M, "max_tokens": "8"}, "max_tokens", ""),
    (CHAT, {**M, "n": 0}, "n", ""),
    (CHAT, {**M, "n": 100000}, "n", ""),
    (CHAT, {**M, "stream": "yes"}, "stream", "boolean"),
    (CHAT, {**M, "stop": 5}, "stop", ""),
    (CHAT, {**M, "stop": ["a", 5]}, "stop", ""),
    (CHAT, {**M, "stop": ["a"] * 100}, "stop", ""),
    (CHAT, {**M, "stop": "x" * 10000}, "stop", "1024"),
    (CHAT, {**M, "seed": "x"}, "seed", ""),
    (CHAT, {**M, "seed": 1.5}, "seed", ""),
    (CHAT, {**M, "logprobs": 3}, "logprobs", "boolean"),
    (CHAT, {**M, "top_logprobs": 3}, "top_logprobs", "logprobs"),
    (CHAT, {**M, "logprobs": True, "top_logprobs": 21}, "top_logprobs", ""),
    (CHAT, {**M, "logit_bias": {"a": 1}}, "logit_bias", "ids"),
    (CHAT, {**M, "logit_bias": {"1": "x"}}, "logit_bias", ""),
    (CHAT, {**M, "logit_bias": [5]}, "logit_bias", ""),
    (CHAT, {**M, "presence_penalty": 3}, "presence_penalty", ""),
    (CHAT, {**M, "stream_options": 1}, "stream_options", ""),
    (CHAT, {**M, "spec_width": 17}, "spec_width", ""),
    (CHAT, {**M, "speculative": 1}, "speculative", ""),
    (CHAT, {**M, "min_tokens": 5}, "min_tokens", ""),
    (CHAT, {**M, "model": 5}, "model", ""),
    (CHAT, {**M, "tools": 5}, "tools", ""),
    (CHAT, {**M, "tool_choice": "maybe"}, "tool_choice", ""),
    (CHAT, {**M, "tool_choice": "required"}, "tool_choice", "tools"),
    (CHAT, {**M, "response_format": "json"}, "response_format", "object"),
    (CHAT, {**M, "response_format": {"type": "xml"}}, "response_format", "xml"),
    (CHAT, {**M, "response_format": {"type": "json_schema"}}, "response_format", "schema"),
    (CHAT, {**M, "guided_regex": "a+"}, "guided_regex", "not supported"),
    (CHAT, {**M, "chat_template_kwargs": []}, "chat_template_kwargs", "object"),
    (CHAT, {"max_tokens": 1}, "messages", "missing"),
    (CHAT, {**M, "messages": []}, "messages", "empty"),
    (CHAT, {**M, "messages": "x"}, "messages", "array"),
    (CHAT, {**M, "messages": ["x"]}, "messages", "messages[0]"),
    (CHAT, {**M, "messages": [{"content": "x"}]}, "messages", "role"),
    (CHAT, {**M, "messages": [{"role": "robot", "content": "x"}]}, "messages", "robot"),
    (CHAT, {**M, "messages": [{"role": "user"}]}, "messages", "content"),
    (CHAT, {**M, "messages": [{"role": "user", "content": 5}]}, "messages", ""),
    (CHAT, {**M, "messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]}, "messages",
     "image_url"),
    (COMPLETE, {"max_tokens": 1}, "prompt", "missing"),
    (COMPLETE, {**P, "prompt": 5}, "prompt", ""),
    (COMPLETE, {**P, "prompt": []}, "prompt", "empty"),
    (COMPLETE, {**P, "prompt": [1, "x"]}, "prompt", ""),
    (COMPLETE, {**P, "prompt": [-1]}, "prompt", "vocabulary"),
    (COMPLETE, {**P, "prompt": [10 ** 9]}, "prompt", "vocabulary"),
    (COMPLETE, {**P, "prompt": [10 ** 25]}, "prompt", ""),
    (COMPLETE, {**P, "prompt": ["x"] * 1000}, "prompt", ""),
    (COMPLETE, {**P, "prompt": ["x"] * 100, "n": 100}, "prompt", "answers"),
    (COMPLETE, {**P, "best_of": 1, "n": 2}, "best_of", "less"),
    (COMPLETE, {**P, "best_of": 2, "stream": True}, "best_of", "stream"),
    (COMPLETE, {**P, "logprobs": 50}, "logprobs", ""),
    (COMPLETE, {**P, "suffix": "x"}, "suffix", ""),
    ("/v1/responses", {"input": 5}, "input", ""),
    ("/v1/responses", {"input": "x", "previous_response_id": "r"}, "previous_response_id", "stored"),
    (GENERATE, {}, "text", "exactly one"),
    (GENERATE, {"text": "x", "input_ids": [1]}, None, "exactly one"),
    (GENERATE, {"text": "x", "sampling_params": []}, "sampling_params", ""),
    (GENERATE, {"text": "x", "sampling_params": {"top_p": "x"}}, "top_p", ""),
    (GENERATE, {"text": "x", "rid": 5}, "rid", ""),
    ("/completion", {"n_predict": 1}, "prompt", "missing"),
    ("/tokenize", {"content": 5}, "content", ""),
    ("/tokenize", {"content": "x", "add_special": 5}, "add_special", ""),
    ("/detokenize", {"tokens": "x"}, "tokens", ""),
    ("/detokenize", {"tokens": [10 ** 9]}, "tokens", "vocabulary"),
    ("/abort_request", {}, "rid", ""),
]


def test_fields():
    for path, body, param, words in FIELDS:
        error_of(f"{path} {str(body)[:80]}", S.post(path, body), 400, param, words)


def test_bodies():
    error_of("no body", S.post(CHAT, None), 400, words="no body")
    error_of("not JSON", S.post(CHAT, '{"a": 1,\n "b": }'), 400, words="line 2")
    check("not JSON: column", "column" in S.post(CHAT, '{"a": 1,\n "b": }').json["error"]["message"])
    error_of("cut off", S.post(CHAT, '{"messages": ['), 400)
    error_of("no object", S.post(CHAT, "[1]"), 400, words="object")
    error_of("two values", S.post(CHAT, "{} {}"), 400)
    error_of("a key twice", S.post(CHAT, '{"n":1,"n":2}'), 400)
    error_of("NaN", S.post(CHAT, '{"temperature": NaN}'), 400)
    error_of("deep", S.post(CHAT, "[" * 100000), 400)
    error_of("deep in order", S.post(CHAT, '{"a":' + "[" * 1000 + "]" * 1000 + "}"), 400)
    error_of("invalid UTF-8", S.post(CHAT, b'{"messages":[{"role":"user","content":"\xff\xfe"}]}'), 400)
    error_of("a lone surrogate", S.post(CHAT, '{"messages":[{"role":"user","content":"\\ud800"}]}'), 400)
    r = S.post(CHAT, b'{"messages":[{"role":"user","content":"a\\u0000b"}],"max_tokens":1}')
    same("a zero byte in the text", r.status, 200)
    same("unknown fields are ignored", S.post(CHAT, {**M, "frobnicate": [1, {"x": None}]}).status, 200)
    same("null is absent", S.post(CHAT, {**M, "temperature": None, "stop": None, "seed": None, "n": None}).status, 200)
    same("any model's name will do", S.post(CHAT, {**M, "model": "gpt-4"}).status, 200)


def test_context():
    n_ctx = S.get("/props").json["default_generation_settings"]["n_ctx"]
    ids = [28] * n_ctx
    r = S.post(GENERATE, {"input_ids": ids, "sampling_params": {"max_new_tokens": 4}})
    error_of("a prompt as long as the context", r, 400, words=str(n_ctx))
    same("its type", r.json["error"]["type"], "exceed_context_size_error")
    error_of("one more", S.post(GENERATE, {"input_ids": ids + [28]}), 400, words=str(n_ctx + 1))
    d = S.post(GENERATE, {"input_ids": ids[1:], "sampling_params": {"max_new_tokens": 9, "ignore_eos": True}}).json
    same("one less: one token", (len(d["output_ids"]), d["meta_info"]["finish_reason"]["type"]), (1, "length"))
    r = S.post(COMPLETE, {**P, "prompt": "word " * 150000})
    error_of("far beyond the context", r, 400, words=str(n_ctx))
    same("far beyond: its type", r.json["error"]["type"], "exceed_context_size_error")
    long = {**M, "messages": [{"role": "user", "content": "word " * (n_ctx + 1)}]}
    error_of("a conversation that is too long", S.post(CHAT, long), 400, "messages", str(n_ctx))
    error_of("a text that is too long", S.post(COMPLETE, {**P, "prompt": "word " * (n_ctx + 1)}), 400, "prompt", str(n_ctx))
    error_of("an input that is too long", S.post("/v1/responses", {"input": "word " * (n_ctx + 1)}), 400, "input", str(n_ctx))
    error_of("ids that are too long", S.post(GENERATE, {"input_ids": ids}), 400, "input_ids", str(n_ctx))
    error_of("a text for /generate that is too long", S.post(GENERATE, {"text": "word " * (n_ctx + 1)}), 400, "text", str(n_ctx))
    error_of("an empty prompt", S.post(COMPLETE, {**P, "prompt": ""}), 400, "prompt", "empty")


def test_routes():
    error_of("unknown path", S.get("/v2/x"), 404)
    error_of("unknown model", S.get("/v1/models/gpt-4"), 404, "model")
    for method, path in [("GET", CHAT), ("DELETE", CHAT), ("PUT", "/health"), ("PATCH", "/metrics"), ("POST", "/v1/models"),
                         ("FOO", CHAT), ("BREW", "/health")]:
        r = S.request(method, path)
        error_of(f"{method} {path}", r, 405)
        check(f"{method} {path}: Allow", "OPTIONS" in (r.headers["Allow"] or ""))
    error_of("embeddings", S.post("/v1/embeddings", {"input": "x"}), 501, words="not implemented")
    same("OPTIONS", S.request("OPTIONS", CHAT).status, 204)
    same("no CORS unless asked", S.request("OPTIONS", CHAT).headers["Access-Control-Allow-Origin"], None)


def raw(data, wait=8, shut=False):
    """What comes back for bytes on a connection of its own, until it is closed."""
    s = S.socket(timeout=wait)
    got = b""
    try:
        s.sendall(data)
        if shut:
            s.shutdown(socket.SHUT_WR)
        while True:
            b = s.recv(65536)
            if not b:
                break
            got += b
    except socket.timeout:
        got += b"<timeout>"
    except OSError:
        pass
    s.close()
    return got


def raw_error(what, data, status):
    got = raw(data)
    head, _, body = got.partition(b"\r\n\r\n")
    if not check(f"{what}: status {status}", head.startswith(b"HTTP/1.1 %d " % status), got[:300]):
        return
    check(f"{what}: JSON, not a page", b"application/json" in head and "error" in json.loads(body), got[:300])
    check(f"{what}: the connection is closed", b"<timeout>" not in got, got[-100:])


def test_protocol():
    host = b"Host: x\r\n"
    for what, data, status in [
            ("garbage", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\r\n\r\n", 400),
            ("no version", b"GET /health\r\n\r\n", 400),
            ("HTTP/2", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505),
            ("HTTP/0.9", b"GET / HTTP/0.9\r\n\r\n", 505),
            ("no host", b"GET /health HTTP/1.1\r\n\r\n", 400),
            ("two hosts", b"GET /health HTTP/1.1\r\n" + host * 2 + b"\r\n", 400),
            ("no colon", b"GET /health HTTP/1.1\r\n" + host + b"broken\r\n\r\n", 400),
            ("space before the colon", b"GET /health HTTP/1.1\r\n" + host + b"A : b\r\n\r\n", 400),
            ("folded", b"GET /health HTTP/1.1\r\n" + host + b"A: b\r\n c\r\n\r\n", 400),
            ("zero byte", b"GET /health HTTP/1.1\r\n" + host + b"A: b\0c\r\n\r\n", 400),
            ("bad length", b"POST /tokenize HTTP/1.1\r\n" + host + b"Content-Length: x\r\n\r\n", 400),
            ("negative length", b"POST /tokenize HTTP/1.1\r\n" + host + b"Content-Length: -1\r\n\r\n", 400),
            ("huge length", b"POST /tokenize HTTP/1.1\r\n" + host + b"Content-Length: 99999999999999999999\r\n\r\n", 413),
            ("large length", b"POST /tokenize HTTP/1.1\r\n" + host + b"Content-Length: 999999999999\r\n\r\n", 413),
            ("length and chunks", b"POST /tokenize HTTP/1.1\r\n" + host +
             b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
            ("two lengths", b"POST /tokenize HTTP/1.1\r\n" + host + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\n", 400),
            ("unknown coding", b"POST /tokenize HTTP/1.1\r\n" + host + b"Transfer-Encoding: gzip, chunked\r\n\r\n", 501),
            ("bad chunk", b"POST /tokenize HTTP/1.1\r\n" + host + b"Transfer-Encoding: chunked\r\n\r\nxyz\r\n", 400),
            ("huge chunk", b"POST /tokenize HTTP/1.1\r\n" + host + b"Transfer-Encoding: chunked\r\n\r\nfffffffffffff\r\n", 413),
            ("expectation", b"POST /tokenize HTTP/1.1\r\n" + host + b"Expect: magic\r\n\r\n", 417),
            ("long head", b"GET /health HTTP/1.1\r\n" + host + b"A: " + b"x" * 40000 + b"\r\n\r\n", 431),
            ("many headers", b"GET /health HTTP/1.1\r\n" + host + b"A: b\r\n" * 200 + b"\r\n", 431),
            ("long path", b"GET /" + b"x" * 10000 + b" HTTP/1.1\r\n" + host + b"\r\n", 414),
            ("bad percent", b"GET /%zz HTTP/1.1\r\n" + host + b"\r\n", 400),
            ("hidden zero", b"GET /%00 HTTP/1.1\r\n" + host + b"\r\n", 400)]:
        raw_error(what, data, status)
    got = raw(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\nGET /version HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    same("two requests in one packet", got.count(b"HTTP/1.1 200"), 2)
    got = raw(b"POST /tokenize HTTP/1.1\r\nHost: x\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
              b"5;ext=1\r\n{\"con\r\nF\r\ntent\":\"one two\"\r\n1\r\n}\r\n0\r\nTrailer: x\r\n\r\n")
    check("chunks with extensions and trailers", b'"count":2' in got, got)
    got = raw(b"GET /health HTTP/1.0\r\n\r\n")
    check("HTTP/1.0", got.startswith(b"HTTP/1.1 200") and b"Connection: close" in got, got)
    got = raw(b"\r\n\r\nGET http://x/health HTTP/1.1\nHost: x\nConnection: close\n\n")
    check("blank lines first, bare line ends, absolute address", got.startswith(b"HTTP/1.1 200"), got)
    got = raw(b"POST /tokenize HTTP/1.1\r\nHost: x\r\nConnection: close\r\nExpect: 100-continue\r\nContent-Length: 17\r\n\r\n",
              wait=2)
    check("100 Continue", got.startswith(b"HTTP/1.1 100 Continue\r\n\r\n"), got)


def run():
    global S
    with Server("-c", "512", "--max-body", "1M") as S:
        for test in [test_fields, test_bodies, test_context, test_routes, test_protocol]:
            test()
        r = S.post(COMPLETE, b'{"prompt":"' + b"x" * (2 << 20) + b'"}')
        error_of("a large body", r, 413, words="too large")
        check("nothing is left", S.wait_idle())
        same("it still answers", S.post(COMPLETE, P).status, 200)


def test_keys():
    global S
    with open("/dev/null"):
        pass
    import tempfile
    with tempfile.NamedTemporaryFile("w", suffix=".keys") as f:
        f.write("# keys\n\n  from-file  \n")
        f.flush()
        with Server("--api-key", "secret-1", "--api-key", "secret-2", "--api-key-file", f.name, "--cors", "https://a.example",
                    "--alias", "my-model", "--strict-model", draft=False) as S:
            for path in [CHAT, COMPLETE, GENERATE, "/tokenize", "/completion"]:
                error_of(f"no key {path}", S.post(path, M), 401, words="key")
                error_of(f"wrong key {path}", S.post(path, M, headers={"Authorization": "Bearer secret-12"}), 401)
                error_of(f"a part of a key {path}", S.post(path, M, headers={"Authorization": "Bearer secret-"}), 401)
                error_of(f"empty key {path}", S.post(path, M, headers={"Authorization": "Bearer "}), 401)
            for path in ["/metrics", "/props", "/slots", "/v1/models", "/get_server_info", "/openapi.json", "/version"]:
                error_of(f"no key {path}", S.get(path), 401)
            same("health needs none", S.get("/health").status, 200)
            for key in ["secret-1", "secret-2", "from-file"]:
                same(f"key {key}", S.post(CHAT, M, headers={"Authorization": "Bearer " + key}).status, 200)
            auth = {"x-api-key": "secret-1"}
            same("x-api-key", S.post(CHAT, M, headers=auth).status, 200)
            error_of("another model", S.post(CHAT, {**M, "model": "gpt-4"}, headers=auth), 404, "model")
            same("our model", S.post(CHAT, {**M, "model": "my-model"}, headers=auth).json["model"], "my-model")
            r = S.request("OPTIONS", CHAT)
            same("CORS", (r.status, r.headers["Access-Control-Allow-Origin"]), (204, "https://a.example"))
            same("CORS on errors too", S.post(CHAT, M).headers["Access-Control-Allow-Origin"], "https://a.example")


if __name__ == "__main__":
    main([run, test_keys])
