"""Clients that leave, do not read, send slowly or in a flood: the others do not notice, and nothing is left behind."""
import json
import random
import socket
import struct
import threading
import time

from serve_lib import Server, chat, check, chunks, events, in_threads, main, same

CHAT, COMPLETE = "/v1/chat/completions", "/v1/completions"
LONG = {"prompt": "Once upon a time", "max_tokens": 4000, "ignore_eos": True, "temperature": 0}


def send(s, path, body, head=""):
    data = json.dumps(body).encode()
    c = s.socket()
    c.sendall(f"POST {path} HTTP/1.1\r\nHost: x\r\n{head}Content-Length: {len(data)}\r\n\r\n".encode() + data)
    return c


def reset(c):
    """Closes with a reset instead of a goodbye."""
    c.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    c.close()


def running(s):
    m = s.metrics()
    return m["df_requests_running"], m["df_requests_waiting"]


def wait_for(what, condition, seconds=60):
    end = time.time() + seconds
    while time.time() < end:
        if condition():
            return check(what, True)
        time.sleep(0.02)
    return check(what, False, "still not after %d s" % seconds)


def test_leaving(s):
    """In every state: streaming, not streaming, in the prefill, queued; politely and with a reset."""
    for how in [socket.socket.close, reset]:
        for body in [LONG, {**LONG, "stream": True}]:
            clients = [send(s, COMPLETE, body) for _ in range(3)]  # two run, one waits
            wait_for("two run, one waits", lambda: running(s) == (2, 1))
            how(clients[2])
            wait_for("the queued one has left", lambda: running(s) == (2, 0))
            how(clients[0])
            wait_for("a running one has left", lambda: running(s) == (1, 0))
            how(clients[1])
            check("all is free", s.wait_idle())
    prompt = {**LONG, "prompt": "word " * 1500, "cache_prompt": False}
    for _ in range(3):
        c = send(s, COMPLETE, prompt)
        wait_for("in the prefill", lambda: running(s)[0] == 1)
        reset(c)
        check("the prefill is given up", s.wait_idle())
    c = s.socket()
    c.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{")
    reset(c)  # within the body
    m = s.metrics()
    check("clients that left are counted", m["df_clients_gone_total"] >= 15, m["df_clients_gone_total"])


def test_queue(s):
    """Of ten queued requests whose clients leave but one, only one is computed."""
    first = [send(s, COMPLETE, LONG) for _ in range(2)]
    wait_for("both places are taken", lambda: running(s)[0] == 2)
    before = s.metrics()
    queued = [send(s, COMPLETE, {"prompt": f"number {i} is", "max_tokens": 3, "ignore_eos": True}) for i in range(6)]
    wait_for("six wait", lambda: running(s)[1] == 6)
    r = s.post(COMPLETE, {"prompt": "x", "max_tokens": 1})
    same("a full queue: 429", (r.status, r.headers["Retry-After"], r.json["error"]["type"]), (429, "1", "rate_limit_error"))
    r = s.post(COMPLETE, {"prompt": "x", "max_tokens": 1, "n": 3})
    same("a full queue, several answers: 429", r.status, 429)
    for c in queued[:5]:
        c.close()
    wait_for("one waits", lambda: running(s)[1] == 1)
    for c in first:
        c.close()
    reply = queued[5].recv(65536)
    check("the one that stayed is answered", b"HTTP/1.1 200" in reply, reply[:200])
    queued[5].close()
    check("all is free", s.wait_idle())
    after = s.metrics()
    same("prompts computed", after["df_prompt_tokens_total"] - before["df_prompt_tokens_total"] <= 8, True)


def test_slow_readers(s):
    """A stream whose reader does nothing is cut; others go on."""
    body = {**LONG, "stream": True, "logprobs": 20, "max_tokens": 7000}
    data = json.dumps(body).encode()
    c = s.socket(rcvbuf=4096)
    c.sendall(f"POST {COMPLETE} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(data)}\r\n\r\n".encode() + data)
    before = s.metrics()["df_slow_readers_total"]
    other = s.post(COMPLETE, {"prompt": "one two", "max_tokens": 8, "temperature": 0})
    same("another client is served meanwhile", other.status, 200)
    wait_for("the stream is cut", lambda: s.metrics()["df_slow_readers_total"] > before, 60)
    check("all is free", s.wait_idle())
    c.close()


def test_keep_alive(s):
    """A stream that waits in the queue says so by comments."""
    busy = [send(s, COMPLETE, LONG) for _ in range(2)]
    wait_for("both places are taken", lambda: running(s)[0] == 2)
    c = send(s, CHAT, chat("Hi", max_tokens=2, stream=True), "Connection: close\r\n")
    got = b""
    while b"keep-alive\n\n" not in got and len(got) < 10000:
        got += c.recv(65536)
    check("headers and a comment while it waits", b"text/event-stream" in got and b": keep-alive\n\n" in got, got)
    for b in busy:
        b.close()
    while True:
        b = c.recv(65536)
        if not b:
            break
        got += b
    check("then the answer", b"data: [DONE]" in got, got[-300:])
    check("all is free", s.wait_idle())


def test_slow_senders(s):
    """A head that comes byte by byte is given up; one that stops is, too."""
    def trickle():
        c = s.socket(timeout=30)
        got = b""
        start = time.time()
        try:
            for b in b"GET /health HTTP/1.1\r\nHost: x\r\nX-Slow: " + b"y" * 200:
                c.sendall(bytes([b]))
                time.sleep(0.1)
        except OSError:
            pass
        try:
            got = c.recv(65536)
        except OSError:
            pass
        c.close()
        return time.time() - start, got

    seconds, got = trickle()
    check("a slow head is given up", 9 < seconds < 20, seconds)
    check("a slow head: 408 in JSON", got.startswith(b"HTTP/1.1 408") and b'"error"' in got, got[:200])


def test_abort_request(s):
    c = send(s, "/generate", {"text": "Once", "sampling_params": {"max_new_tokens": 4000, "ignore_eos": True}, "rid": "abc"})
    wait_for("it runs", lambda: running(s)[0] == 1)
    same("another id ends nothing", s.post("/abort_request", {"rid": "other"}).status, 200)
    same("still running", running(s)[0], 1)
    s.post("/abort_request", {"rid": "abc"})
    got = b""
    while b'"finish_reason"' not in got:
        got += c.recv(65536)
    check("its client is told", b'"type":"abort"' in got, got[-600:])
    c.close()
    check("all is free", s.wait_idle())


def test_abort_one_prompt(s):
    """A name for each prompt: the one that is named ends, the other goes on to its limit."""
    names = ["first", "zweite-\u00e9" * 10]
    c = send(s, "/generate", {"text": ["Once", "One"], "rid": names, "sampling_params": {"max_new_tokens": 400, "ignore_eos": True}})
    wait_for("both run", lambda: running(s)[0] == 2)
    s.post("/abort_request", {"rid": names[1]})
    got = b""
    while not got.endswith(b"]"):
        got += c.recv(65536)
    answers = json.loads(got.split(b"\r\n\r\n")[1])
    same("its own name", [a["meta_info"]["id"] for a in answers], names)
    same("one was ended, one was not", [a["meta_info"]["finish_reason"]["type"] for a in answers], ["length", "abort"])
    same("the other is whole", len(answers[0]["output_ids"]), 400)
    c.close()
    check("all is free", s.wait_idle())


def test_random_aborts(s):
    """Many clients that leave at random moments, among others that stay and get the right text."""
    want = s.post(COMPLETE, {"prompt": "one two three", "max_tokens": 12, "temperature": 0}).json["choices"][0]["text"]
    stop = time.time() + 6
    counts = [0, 0]

    def vandal(seed):
        rng = random.Random(seed)
        while time.time() < stop:
            body = {"prompt": "word " * rng.choice([1, 5, 300]), "max_tokens": rng.choice([1, 20, 500]), "ignore_eos": True,
                    "stream": rng.random() < 0.5, "n": rng.choice([1, 1, 3])}
            try:
                c = send(s, COMPLETE, body)
                time.sleep(rng.random() ** 2 * 0.3)
                rng.choice([reset, socket.socket.close])(c)
                counts[0] += 1
            except OSError:
                pass

    def guest(seed):
        while time.time() < stop:
            r = s.post(COMPLETE, {"prompt": "one two three", "max_tokens": 12, "temperature": 0,
                                  "spec_width": seed % 2 * 8})
            if r.status == 429:
                continue
            if r.status != 200 or r.json["choices"][0]["text"] != want:
                check("a guest's text", False, r.text)
                return
            counts[1] += 1

    in_threads([lambda i=i: vandal(i) for i in range(6)] + [lambda i=i: guest(i) for i in range(2)])
    check("many left, some stayed", counts[0] > 5 and counts[1] > 0, counts)
    check("nothing is left", s.wait_idle(), s.metrics())


def test_idle_connections(s):
    held = [s.socket() for _ in range(300)]
    same("with idle connections", s.post(COMPLETE, {"prompt": "one two", "max_tokens": 2}).status, 200)
    check("they are counted", s.metrics()["df_http_connections"] >= 300)
    for c in held:
        c.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
    same("all are answered", all(b"200 OK" in c.recv(4096) for c in held), True)
    for c in held:
        c.close()


def run():
    with Server("--parallel", "2", "--max-queue", "6") as s:
        for test in [test_leaving, test_queue, test_slow_readers, test_keep_alive, test_abort_request, test_abort_one_prompt,
                     test_random_aborts,
                     test_idle_connections, test_slow_senders]:
            test(s)


main([run])
