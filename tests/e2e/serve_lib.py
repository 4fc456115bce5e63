"""Shared by the serve_*.py scripts: a server of our own, requests to it, events of streams, counted checks.

The environment has DFLASH, TARGET and DRAFT (serve_run.bash sets them). Standard library only.
"""
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback

passed = failed = 0
PROGRAM = os.environ.get("DFLASH", "")
TARGET = os.environ.get("TARGET", "")
DRAFT = os.environ.get("DRAFT", "")
LOCK = threading.Lock()


def check(what, ok, detail=""):
    global passed, failed
    with LOCK:
        if ok:
            passed += 1
        else:
            failed += 1
            print("FAIL", what)
            if detail != "":
                print("     |", str(detail)[:1500].replace("\n", "\n     | "))
    return ok


def same(what, got, wanted):
    return check(what, got == wanted, f"got:    {got!r}\nwanted: {wanted!r}")


def finish():
    print(f"{passed} passed, {failed} failed")
    sys.exit(1 if failed or passed == 0 else 0)


def main(tests):
    for test in tests:
        try:
            test()
        except Exception:  # a crash of one test is a failure, the others still run
            check(test.__name__, False, traceback.format_exc())
    finish()


class Reply:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    @property
    def json(self):
        return json.loads(self.body)

    @property
    def text(self):
        return self.body.decode()


class Server:
    """dflash serve on a free port; the model and its draft unless draft is False."""

    patience = 120  # seconds that a client waits for bytes before it calls that a failure

    def __init__(self, *args, draft=True, env=None, wait=True, port=0):
        command = [PROGRAM, "serve", "-m", TARGET, "--port", str(port)]
        if draft:
            command += ["-md", DRAFT]
        self.lines = []
        self.process = subprocess.Popen(command + list(args), stderr=subprocess.PIPE, stdout=subprocess.DEVNULL,
                                        env={**os.environ, **(env or {})})
        self.port = 0
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.ready = threading.Event()
        self.listening = threading.Event()
        self.reader.start()
        if not self.listening.wait(self.patience):
            raise RuntimeError("the server does not listen: " + "\n".join(self.lines))
        if wait and not self.ready.wait(self.patience):
            raise RuntimeError("the server is not ready: " + "\n".join(self.lines))

    def _read(self):
        for raw in self.process.stderr:
            line = raw.decode(errors="replace").rstrip("\n")
            self.lines.append(line)
            m = re.match(r"listening +http://[^:]+:(\d+)$", line)
            if m:
                self.port = int(m.group(1))
                self.listening.set()
            if line.startswith("ready "):
                self.ready.set()
        self.listening.set()
        self.ready.set()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()

    def stop(self, sig=signal.SIGTERM, timeout=30):
        if self.process.poll() is None:
            self.process.send_signal(sig)
        try:
            code = self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            check("the server stops", False, "\n".join(self.lines))
            return None
        self.reader.join(5)
        check("the server ends well", code == 0, f"exit status {code}\n" + "\n".join(self.lines[-60:]))
        return code

    def socket(self, timeout=None, rcvbuf=None):
        s = socket.socket()
        if rcvbuf:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, rcvbuf)
        s.settimeout(timeout or self.patience)
        s.connect(("127.0.0.1", self.port))
        return s

    def request(self, method, path, body=None, headers=None, timeout=None):
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout or self.patience)
        if body is not None and not isinstance(body, (bytes, str)):
            body = json.dumps(body)
        c.request(method, path, body, {"Content-Type": "application/json", **(headers or {})})
        r = c.getresponse()
        reply = Reply(r.status, r.headers, r.read())
        c.close()
        return reply

    def get(self, path, **kw):
        return self.request("GET", path, **kw)

    def post(self, path, body, **kw):
        return self.request("POST", path, body, **kw)

    def stream(self, path, body, timeout=None):
        """(reply without body, list of (event name or None, data text), list of comments)"""
        r = self.post(path, {**body, "stream": True}, timeout=timeout)
        return (r,) + events(r.text)

    def metrics(self):
        """{"name{labels}": value}"""
        out = {}
        for line in self.get("/metrics").text.splitlines():
            if line and not line.startswith("#"):
                name, value = line.rsplit(" ", 1)
                out[name] = float(value)
        return out

    def wait_idle(self, seconds=60):
        """True once no request runs or waits and no page is held."""
        end = time.time() + seconds
        while time.time() < end:
            m = self.metrics()
            if m["df_requests_running"] == m["df_requests_waiting"] == m["df_kv_blocks_used"] == 0:
                return True
            time.sleep(0.05)
        return False


def events(text):
    found, comments = [], []
    for block in text.split("\n\n"):
        if not block:
            continue
        name = data = None
        for line in block.split("\n"):
            if line.startswith(":"):
                comments.append(line)
            elif line.startswith("event: "):
                name = line[7:]
            elif line.startswith("data: "):
                data = line[6:]
            else:
                raise ValueError("no line of an event stream: " + repr(line))
        if data is not None:
            found.append((name, data))
    return found, comments


def chunks(found):
    """The JSON of a stream that ends with [DONE]."""
    same("the stream ends with [DONE]", found[-1][1], "[DONE]")
    return [json.loads(d) for _, d in found[:-1]]


def chat(text, **more):
    return {"messages": [{"role": "user", "content": text}], "temperature": 0, **more}


def program(*args):
    """What `dflash run --json` answers."""
    out = subprocess.run([PROGRAM, "run", "-m", TARGET, "--json", *args], capture_output=True, timeout=120)
    if out.returncode != 0:
        raise RuntimeError(out.stderr.decode(errors="replace"))
    return json.loads(out.stdout)


def in_threads(jobs):
    """Runs callables at once; their results in order."""
    results = [None] * len(jobs)

    def work(i):
        try:
            results[i] = jobs[i]()
        except Exception as e:  # compared by the caller
            results[i] = e

    threads = [threading.Thread(target=work, args=(i,)) for i in range(len(jobs))]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return results
