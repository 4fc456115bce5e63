"""Faults at the border of the server: thousands of clients that leave in every state, vanish, half-close, or hold idle
connections; too little KV memory; a killed server whose clients try again; and the books that must balance afterwards.

tools/soak does the same for as long as one likes."""
import http.client
import json
import random
import resource
import signal
import socket
import struct
import threading
import time

from serve_lib import Server, chat, check, chunks, in_threads, main, program, same

CHAT, COMPLETE = "/v1/chat/completions", "/v1/completions"
ABORTS = 2000


def send(s, path, body):
    data = json.dumps(body).encode()
    c = s.socket()
    c.sendall(f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(data)}\r\n\r\n".encode() + data)
    return c


def reset(c):
    """Closes with a reset instead of a goodbye."""
    c.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    c.close()


def half_close(c):
    """Says that nothing more will be sent, and goes some time later."""
    c.shutdown(socket.SHUT_WR)
    time.sleep(0.01)
    c.close()


def rss(s):
    with open(f"/proc/{s.process.pid}/status") as f:
        return next(int(line.split()[1]) for line in f if line.startswith("VmRSS")) / 1024


def total(m, name):
    """Sum of a series over its labels."""
    return sum(v for k, v in m.items() if k.startswith(name + "{"))


def books(s, what):
    """What must hold whenever nothing is at work."""
    if not check(what + ": at rest", s.wait_idle(60), s.metrics()):
        return
    m = s.metrics()
    same(what + ": every accepted request has ended", m["df_requests_submitted_total"], total(m, "df_requests_total"))
    same(what + ": drafted = accepted + rejected", m["df_spec_draft_tokens_total"],
         m["df_spec_accepted_tokens_total"] + m["df_spec_rejected_tokens_total"])
    same(what + ": drafted by position", m["df_spec_draft_tokens_total"], total(m, "df_spec_drafted_tokens_per_pos_total"))
    same(what + ": accepted by position", m["df_spec_accepted_tokens_total"],
         total(m, "df_spec_accepted_tokens_per_pos_total"))
    source = m["df_spec_emitted_tokens_total"] + m['df_spec_width_steps_total{width="1"}'] + m["df_requests_submitted_total"]
    check(what + ": generated tokens come from verify steps, single steps and prefills",
          m["df_generation_tokens_total"] <= source, (m["df_generation_tokens_total"], source))
    check(what + ": not more sent than generated", m["df_sent_tokens_total"] <= m["df_generation_tokens_total"])
    slots = s.get("/slots").json
    check(what + ": no slot is taken", not any(x["is_processing"] for x in slots), slots)
    s.post("/flush_cache", {})
    m = s.metrics()
    same(what + ": every page is free once the cache is flushed", (m["df_kv_blocks_used"], m["df_kv_blocks_cached"]), (0, 0))


def hold(rng, c, stream):
    """Waits for a moment of the request's life: just sent, queued or in the prefill, decoding."""
    moment = rng.randrange(4)
    if moment == 1:
        time.sleep(rng.random() * 0.02)
    elif moment == 2 and stream:
        c.recv(64)  # the head, which comes with the first text
    elif moment == 3:
        time.sleep(rng.random() * 0.1)


def vandal(s, seed, count, kinds):
    rng = random.Random(seed)
    for _ in range(count):
        stream = rng.random() < 0.6
        body = {"prompt": "word " * rng.choice([1, 1, 8, 120]), "max_tokens": rng.choice([1, 30, 300]), "stream": stream,
                "ignore_eos": True, "n": rng.choice([1, 1, 1, 2]), "cache_prompt": rng.random() < 0.7,
                "spec_width": rng.choice([0, 0, 1, 8]), "temperature": rng.choice([0, 1]), "logprobs": rng.choice([None, 2]),
                "stop": rng.choice([None, ["zzz"]])}
        if rng.random() < 0.1:
            body["response_format"] = {"type": "json_object"}
        try:
            c = send(s, COMPLETE, body)
            hold(rng, c, stream)
            rng.choice([reset, socket.socket.close, half_close])(c)
            kinds[stream] += 1
        except OSError:
            kinds[2] += 1


def test_aborts():
    """Clients that leave in every state; those that stay among them get their text; memory stays as it is."""
    with Server("--parallel", "3", "--max-queue", "24", "-c", "1024") as s:
        want = s.post(COMPLETE, {"prompt": "one two three", "max_tokens": 12, "temperature": 0}).json["choices"][0]["text"]
        kinds = [0, 0, 0]
        in_threads([lambda i=i: vandal(s, i, ABORTS // 40, kinds) for i in range(4)])  # buffers find their size
        check("aborts: at rest", s.wait_idle(60), s.metrics())
        before = rss(s)
        stop = threading.Event()
        served = [0]

        def guest():
            while not stop.is_set():
                r = s.post(COMPLETE, {"prompt": "one two three", "max_tokens": 12, "temperature": 0, "priority": 10})
                if r.status == 429:
                    time.sleep(0.05)
                    continue
                if r.status != 200 or r.json["choices"][0]["text"] != want:
                    check("aborts: a guest's text", False, r.text)
                    return
                served[0] += 1

        g = threading.Thread(target=guest)
        g.start()
        in_threads([lambda i=i: vandal(s, 100 + i, ABORTS // 4, kinds) for i in range(4)])
        stop.set()
        g.join()
        check("aborts: streams and whole answers were left", min(kinds[:2]) > ABORTS // 4 and kinds[2] < ABORTS // 10, kinds)
        check("aborts: guests were served", served[0] > 0, served)
        books(s, "aborts")
        m = s.metrics()
        check("aborts: they are counted", m["df_clients_gone_total"] > ABORTS // 10, m["df_clients_gone_total"])
        time.sleep(0.2)
        check("aborts: their connections are closed", s.metrics()["df_http_connections"] <= 2, s.metrics())
        after = rss(s)
        check("aborts: memory does not grow", after - before < 12, f"{before:.1f} -> {after:.1f} MiB")
        same("aborts: the text afterwards", s.post(COMPLETE, {"prompt": "one two three", "max_tokens": 12,
                                                              "temperature": 0}).json["choices"][0]["text"], want)


def test_vanished(s):
    """A client whose machine is gone: no goodbye at all. The kernel can play that where we may ask it to."""
    before = s.metrics()["df_clients_gone_total"]
    body = {"prompt": "Once", "max_tokens": 900, "ignore_eos": True, "stream": True}
    c = send(s, COMPLETE, body)
    c.recv(64)
    try:
        c.setsockopt(socket.IPPROTO_TCP, 19, 1)  # TCP_REPAIR: closing sends nothing
    except OSError:
        c.close()
        return
    c.close()
    check("vanished: its stream ends", s.wait_idle(30), s.metrics())
    same("vanished: counted", s.metrics()["df_clients_gone_total"], before + 1)


def test_half_open(s):
    """Requests that stop in the middle hold nothing but their connection, and others go on."""
    crowd = []
    for i in range(120):
        c = s.socket()
        c.sendall([b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{\"pro", b"GET /he",
                   b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{\"a"][i % 3])
        crowd.append(c)
    same("half-open: others are served", s.post(COMPLETE, {"prompt": "x", "max_tokens": 1}).status, 200)
    heads = crowd[1::3]
    end = time.time() + 25
    got = []
    for c in heads:
        c.settimeout(max(0.1, end - time.time()))
        try:
            got.append(c.recv(4096))
        except OSError as e:
            got.append(repr(e).encode())
    check("half-open: heads that never end get 408 in JSON",
          all(g.startswith(b"HTTP/1.1 408") and b'{"error":' in g for g in got), set(got))
    for c in crowd:
        reset(c)
    end = time.time() + 10
    while s.metrics()["df_http_connections"] > 2 and time.time() < end:
        time.sleep(0.05)
    check("half-open: all are gone", s.metrics()["df_http_connections"] <= 2)


def test_idle_connections(s):
    """A thousand clients that hold a connection and say nothing, then ask all at once."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    n = min(1000, hard - 200 if hard != resource.RLIM_INFINITY else 1000)
    if soft < n + 200:
        resource.setrlimit(resource.RLIMIT_NOFILE, (n + 200, hard))
    before = rss(s)
    held = [s.socket() for _ in range(n)]
    same("idle: a request among them", s.post(COMPLETE, {"prompt": "one two", "max_tokens": 2}).status, 200)
    check("idle: all are held", s.metrics()["df_http_connections"] >= n, s.metrics()["df_http_connections"])
    check("idle: they cost little", rss(s) - before < 40, f"{before:.1f} -> {rss(s):.1f} MiB")
    for c in held:
        c.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
    same("idle: all are answered", sum(b"200 OK" in c.recv(4096) for c in held), n)
    for c in held:
        c.close()


def test_counts(s):
    """What the replies say adds up to what the metrics say."""
    check("counts: at rest", s.wait_idle(30))
    a = s.metrics()
    usages, timings = [], []

    def whole(i):
        d = s.post(CHAT, chat(f"Say {i}", max_tokens=5 + i, n=1 + i % 2, spec_width=[0, 1, 8][i % 3])).json
        usages.append(d["usage"])
        timings.append(d["timings"])

    def streamed(i):
        _, found, _ = s.stream(COMPLETE, {"prompt": f"{i} and", "max_tokens": 9, "spec_width": 8, "temperature": i % 2,
                                          "stream_options": {"include_usage": True}})
        last = chunks(found)[-1]
        usages.append(last["usage"])
        timings.append(last["timings"])

    in_threads([lambda i=i: whole(i) for i in range(5)] + [lambda i=i: streamed(i) for i in range(5)])
    check("counts: at rest again", s.wait_idle(30))
    b = s.metrics()
    delta = {k: b[k] - a.get(k, 0) for k in b}
    same("counts: ten replies", len(usages), 10)
    answers = sum(1 + i % 2 for i in range(5)) + 5
    tokens = sum(u["completion_tokens"] for u in usages)
    same("counts: generated", delta["df_generation_tokens_total"], tokens)
    same("counts: sent", delta["df_sent_tokens_total"], tokens)
    same("counts: submitted and ended", (delta["df_requests_submitted_total"],
                                         delta['df_requests_total{reason="stop"}'] +
                                         delta['df_requests_total{reason="length"}']), (answers, answers))
    same("counts: drafted", delta["df_spec_draft_tokens_total"], sum(t["draft_n"] for t in timings))
    same("counts: accepted", delta["df_spec_accepted_tokens_total"], sum(t["draft_n_accepted"] for t in timings))
    check("counts: something was drafted", delta["df_spec_draft_tokens_total"] > 0)
    same("counts: first tokens", delta["df_time_to_first_token_seconds_count"], answers)
    same("counts: gaps", delta["df_inter_token_latency_seconds_count"] <= tokens, True)
    same("counts: the histogram of lengths", delta["df_request_generation_tokens_sum"], tokens)
    for name in ["vllm:generation_tokens_total", "sglang:generation_tokens_total"]:
        same("counts: " + name, total(b, name), b["df_generation_tokens_total"])


def test_company():
    """Sixteen and one at once, however they are computed: each gets the text it gets alone."""
    ways = [{}, {"speculative": False}, {"spec_width": 8}, {"cache_prompt": False}]
    wanted = {q: program("-p", q, "-n", "14")["text"] for q in ["Count from one to ten.", "Name three animals."]}
    with Server("--parallel", "17", "-c", "1024") as s:
        for again in ["cold", "with prefix hits"]:
            jobs = [(list(wanted)[i % 2], ways[i // 2 % 4]) for i in range(17)]
            got = in_threads([lambda j=j: s.post(CHAT, chat(j[0], max_tokens=14, **j[1])).json for j in jobs])
            for (q, way), d in zip(jobs, got):
                same(f"company, {again}, {way}", d["choices"][0]["message"]["content"], wanted[q])
        books(s, "company")


def test_small_pool():
    """More is running than the KV pages hold: requests are put back and computed again, and every text is right."""
    n = 70
    questions = [f"Write a long story about a {x}." for x in ["cat", "dog", "king", "ship", "tree", "star"]]
    wanted = {q: program("-p", q, "-n", str(n))["text"] for q in questions[:2]}
    with Server("-c", "256", "--kv-memory", "10M", "--parallel", "6") as s:
        m = s.metrics()
        tokens = m["df_kv_blocks_total"] * m["df_kv_block_size"]
        check("pool: it is small", 256 <= tokens < 600, tokens)
        got = in_threads([lambda q=q: s.post(CHAT, chat(q, max_tokens=n)) for q in questions])
        same("pool: all are answered", [r.status for r in got], [200] * 6)
        for q, r in zip(questions, got):
            if q in wanted:
                same("pool: " + q, r.json["choices"][0]["message"]["content"], wanted[q])
        check("pool: some were put back or waited", s.metrics()["df_preemptions_total"] > 0 or
              s.metrics()["df_queue_time_seconds_sum"] > 0.05, s.metrics())
        books(s, "pool")


def free_port():
    with socket.socket() as c:
        c.bind(("127.0.0.1", 0))
        return c.getsockname()[1]


def patient(port, question, limit, counts):
    """A client that tries again until it has the whole answer."""
    end = time.time() + limit
    while time.time() < end:
        try:
            c = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
            c.request("POST", CHAT, json.dumps(chat(question, max_tokens=60, stream=True)))
            r = c.getresponse()
            data = r.read().decode() if r.status == 200 else ""
            c.close()
            if data.endswith("data: [DONE]\n\n"):
                found = [json.loads(x[6:]) for x in data.split("\n\n")[:-2] if x.startswith("data: ")]
                counts["whole"] += 1
                return "".join(x["choices"][0]["delta"].get("content") or "" for x in found if x["choices"])
        except (OSError, http.client.HTTPException, ValueError):
            pass
        counts["retries"] += 1
        time.sleep(0.1)
    return None


def test_kill():
    """kill -9 in the middle of streams and a new server on the same port: clients that try again get their text."""
    questions = ["Count from one to ten.", "What is the capital of France?", "Name three animals."]
    wanted = [program("-p", q, "-n", "60")["text"] for q in questions]
    port = free_port()
    counts = {"retries": 0, "whole": 0}
    first = Server("-c", "1024", port=port)
    results = [None] * len(questions)

    def client(i):
        results[i] = patient(port, questions[i], 90, counts)

    probe = send(first, COMPLETE, {"prompt": "Once", "max_tokens": 900, "ignore_eos": True, "stream": True})
    probe.recv(64)
    threads = [threading.Thread(target=client, args=(i,)) for i in range(len(questions))]
    for t in threads:
        t.start()
    end = time.time() + 20
    while first.metrics()["df_requests_running"] < 2 and not counts["whole"] and time.time() < end:
        time.sleep(0.01)
    first.process.send_signal(signal.SIGKILL)
    first.process.wait()
    cut = b"x"
    try:
        while cut:
            cut = probe.recv(65536)
    except OSError:
        cut = b""
    same("kill: the stream is cut", cut, b"")
    with Server("-c", "1024", port=port) as second:
        for t in threads:
            t.join()
        check("kill: clients had to try again", counts["retries"] > 0, counts)
        for q, got, want in zip(questions, results, wanted):
            same("kill: " + q, got, want)
        books(second, "kill")


def test_one_server():
    with Server("--parallel", "4", "-c", "1024") as s:
        for test in [test_counts, test_vanished, test_idle_connections, test_half_open]:
            test(s)
        books(s, "one server")


if __name__ == "__main__":
    main([test_company, test_one_server, test_small_pool, test_kill, test_aborts])
