"""sglang-router in front of two servers, with the cache-aware policy: the way to outgrow one machine."""
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
import uuid

from client_lib import Server, check, in_threads, main, run_text, same

Q = ["Count from one to ten.", "Name three animals.", "What is the capital of France?"]
N = 16


def free_port():
    with socket.socket() as c:
        c.bind(("127.0.0.1", 0))
        return c.getsockname()[1]


def post(port, body, timeout=60):
    r = urllib.request.Request(f"http://127.0.0.1:{port}/v1/chat/completions", json.dumps(body).encode(),
                               {"Content-Type": "application/json"})
    with urllib.request.urlopen(r, timeout=timeout) as f:
        return f.read().decode()


def ask(port, q, stream=False):
    """The text, trying again until there is one."""
    body = {"model": "m", "messages": [{"role": "user", "content": q}], "temperature": 0, "max_tokens": N, "stream": stream}
    end, tries = time.time() + 400, 0
    while time.time() < end:
        try:
            got = post(port, body)
            if not stream:
                return json.loads(got)["choices"][0]["message"]["content"], tries
            if got.endswith("data: [DONE]\n\n"):
                chunks = [json.loads(x[6:]) for x in got.split("\n\n")[:-2]]
                return "".join(c["choices"][0]["delta"].get("content") or "" for c in chunks if c["choices"]), tries
        except (OSError, ValueError, KeyError, http.client.HTTPException):
            pass
        tries += 1
        time.sleep(0.3)
    return None, tries


def served(s):
    return s.metrics()['df_requests_submitted_total']


def run():
    ports = [free_port(), free_port()]
    options = ["-c", "1024", "--parallel", "4", "--alias", "m"]
    servers = [Server(*options, port=p) for p in ports]
    port = free_port()
    log = open(os.path.join(os.environ["WORK"], "router.log"), "w+")
    router = subprocess.Popen([sys.executable, "-m", "sglang_router.launch_router", "--host", "127.0.0.1", "--port", str(port),
                               "--policy", "cache_aware", "--worker-urls", *[f"http://127.0.0.1:{p}" for p in ports],
                               "--prometheus-port", str(free_port()), "--health-check-interval-secs", "1",
                               "--health-failure-threshold", "1", "--health-success-threshold", "1",
                               "--retry-max-retries", "3", "--cb-failure-threshold", "2", "--cb-timeout-duration-secs", "2"],
                              stdout=log, stderr=subprocess.STDOUT)
    try:
        same("router: the text", ask(port, Q[0])[0], run_text(Q[0], N))
        for stream in [False, True]:
            got = in_threads([lambda q=q: ask(port, q, stream) for q in Q * 4])
            same(f"router: twelve at once, {'streamed' if stream else 'whole'}: the texts", [g[0] for g in got],
                 [run_text(q, N) for q in Q * 4])
        counts = [served(s) for s in servers]
        check("router: both servers worked", min(counts) >= 3 and sum(counts) >= 25, counts)
        hits = [s.metrics()["df_prefix_cache_hits_total"] for s in servers]
        check("router: prompts that begin alike met their prefix", sum(hits) > 0, hits)
        results = {}

        def client(i):
            results[i] = [ask(port, Q[(i + k) % 3], k % 2 == 0) for k in range(3)]

        threads = [threading.Thread(target=client, args=(i,)) for i in range(3)]
        for t in threads:
            t.start()
        time.sleep(0.5)
        servers[0].process.send_signal(signal.SIGKILL)
        servers[0].process.wait()
        time.sleep(1)
        servers[0] = Server(*options, port=ports[0])
        for t in threads:
            t.join()
        same("router: a server killed and started again, clients that try again get their texts",
             [[r[0] for r in results[i]] for i in range(3)], [[run_text(Q[(i + k) % 3], N) for k in range(3)] for i in range(3)])
        end = time.time() + 120
        while served(servers[0]) == 0 and time.time() < end:  # texts that begin like none before go where less is cached
            in_threads([lambda: ask(port, str(uuid.uuid4())) for _ in range(3)])
        check("router: the new server gets requests again", served(servers[0]) > 0)
        check("router: nothing is left at work", all(s.wait_idle(60) for s in servers))
    finally:
        router.terminate()
        try:
            router.wait(15)
        except subprocess.TimeoutExpired:
            router.kill()
            router.wait()
        log.seek(0)
        text = log.read()
        check("router: it logs no panic", "panicked" not in text, text[-3000:])
        for s in servers:
            s.stop()


main([run])
