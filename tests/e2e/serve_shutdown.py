"""Starting, loading, signals, time limits."""
import json
import os
import signal
import socket
import subprocess
import tempfile
import time

from serve_lib import DRAFT, PROGRAM, TARGET, Server, chat, check, chunks, events, main, same

COMPLETE = "/v1/completions"
LONG = {"prompt": "Once upon a time", "max_tokens": 4000, "ignore_eos": True}


def send(s, path, body):
    data = json.dumps(body).encode()
    c = s.socket()
    c.sendall(f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(data)}\r\n\r\n".encode() + data)
    return c


def read_all(c):
    got = b""
    try:
        while True:
            b = c.recv(65536)
            if not b:
                break
            got += b
    except OSError as e:
        got += b"<" + str(e).encode() + b">"
    c.close()
    return got


def test_start():
    s = Server(wait=False)
    seen = set()
    while not s.ready.is_set():
        r = s.get("/health")
        seen.add(r.status)
        if r.status == 503:
            check("loading: JSON", r.json["error"]["type"] == "unavailable_error" and "loading" in r.json["error"]["message"])
            r = s.post(COMPLETE, {"prompt": "x"})
            check("loading: others are refused", r.status in (200, 503), r.text)
        time.sleep(0.02)
    check("503 while loading", 503 in seen, seen)
    same("200 afterwards", s.get("/health").status, 200)
    text = "\n".join(s.lines)
    for words in ["listening http://127.0.0.1:%d" % s.port, "kernels", "drafting  on: draft-dflash, block size 16",
                  "ready     http://127.0.0.1:%d" % s.port]:
        check("it prints " + words, words in text, text)
    # another on the same port
    out = subprocess.run([PROGRAM, "serve", "-m", TARGET, "--port", str(s.port)], capture_output=True, text=True, timeout=60)
    check("the port is taken", out.returncode == 1 and "could not listen" in out.stderr, out.stderr)
    s.stop()


def test_drain():
    """SIGTERM in the middle of a stream: it ends as it should; new requests are refused."""
    s = Server("--drain-timeout", "30")
    c = send(s, COMPLETE, {**LONG, "max_tokens": 60, "stream": True})
    c.recv(200)
    keep = s.socket()
    keep.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
    keep.recv(4096)
    s.process.send_signal(signal.SIGTERM)
    time.sleep(0.2)
    r = s.post(COMPLETE, {"prompt": "x"})
    same("draining: 503", (r.status, r.headers["Connection"]), (503, "close"))
    same("draining: health", s.get("/health").status, 503)
    same("draining: idle connections are closed", keep.recv(10), b"")
    got = read_all(c)
    check("the stream goes on to its end", b"data: [DONE]" in got and b'"finish_reason":"length"' in got, got[-400:])
    s.stop()


def test_drain_timeout():
    s = Server("--drain-timeout", "1")
    c, d = send(s, COMPLETE, LONG), send(s, COMPLETE, {**LONG, "stream": True})
    time.sleep(0.5)
    start = time.time()
    s.stop()
    check("long requests end with the time limit", time.time() - start < 15, time.time() - start)
    got = read_all(c)
    check("a whole reply: 503", got.startswith(b"HTTP/1.1 503") and b"shutting down" in got, got[:300])
    got = read_all(d)
    check("a stream: an error event, no end marker", b'"error"' in got and b"[DONE]" not in got, got[-300:])


def test_second_signal():
    s = Server("--drain-timeout", "100")
    c = send(s, COMPLETE, {**LONG, "stream": True})
    c.recv(200)
    s.process.send_signal(signal.SIGTERM)
    time.sleep(0.3)
    check("the first signal waits", s.process.poll() is None)
    start = time.time()
    s.stop(signal.SIGINT)
    check("the second one does not", time.time() - start < 10)
    c.close()


def test_signal_while_loading():
    s = Server(wait=False)
    same("stopped while loading", s.stop(), 0)


def test_request_timeout():
    with Server("--request-timeout", "1", draft=False) as s:
        r = s.post(COMPLETE, LONG)
        same("timeout: 504", (r.status, r.json["error"]["type"]), (504, "timeout_error"))
        r, found, _ = s.stream(COMPLETE, LONG)
        last = json.loads(found[-1][1])
        same("timeout of a stream: an error event", last["error"]["type"], "timeout_error")
        check("all is free", s.wait_idle())


def test_notify():
    with tempfile.TemporaryDirectory() as d:
        path = os.path.join(d, "notify")
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        sock.bind(path)
        sock.settimeout(60)
        s = Server(draft=False, env={"NOTIFY_SOCKET": path})
        check("READY=1", b"READY=1" in sock.recv(1000))
        s.process.send_signal(signal.SIGTERM)
        check("STOPPING=1", b"STOPPING=1" in sock.recv(1000))
        s.stop()


def test_mistakes():
    def fails(what, status, words, *args):
        out = subprocess.run([PROGRAM, "serve", "-m", TARGET, "--port", "0", *args], capture_output=True, text=True,
                             timeout=60)
        check(what, out.returncode == status and words in out.stderr, (out.returncode, out.stderr))

    fails("an unknown host", 1, "could not listen", "--host", "no.such.host.invalid")
    fails("a missing draft", 1, "nothing.gguf", "-md", "nothing.gguf")
    fails("a small KV cache", 2, "--kv-memory", "--kv-memory", "1M")
    fails("a key file that is not there", 1, "no-such-file", "--api-key-file", "no-such-file")
    fails("an empty key file", 1, "no key", "--api-key-file", "/dev/null")
    fails("a port out of range", 2, "--port", "--port", "70000")
    fails("an origin with a line break", 2, "--cors", "--cors", "a\r\nb: c")
    out = subprocess.run([PROGRAM, "serve"], capture_output=True, text=True, timeout=60)
    check("no model", out.returncode == 2 and "no model" in out.stderr, out.stderr)


main([test_start, test_drain, test_drain_timeout, test_second_signal, test_signal_while_loading, test_request_timeout,
      test_notify, test_mistakes])
