"""A headless Chromium driven over its DevTools protocol with nothing but the standard library.

Browser() starts it, browser.page(url) opens a page; page.js(expression) evaluates (promises are awaited), page.wait
polls an expression, page.press and page.type send real key events, page.shot writes a PNG. Requests of the page can be
answered by the test: page.intercept(pattern, function).
"""

import base64
import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import time
import urllib.request

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def find_browser():
    return os.environ.get("WEB_BROWSER") or next((p for p in map(shutil.which, NAMES) if p), None)


class WebSocket:
    """The client side of RFC 6455: masked frames out, whole messages in."""

    def __init__(self, host, port, path, timeout=60):
        self.s = socket.create_connection((host, port), timeout)
        key = base64.b64encode(os.urandom(16)).decode()
        self.s.sendall((f"GET {path} HTTP/1.1\r\nHost: {host}:{port}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                        f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n").encode())
        self.buffer = b""
        while b"\r\n\r\n" not in self.buffer:
            self._more()
        head, self.buffer = self.buffer.split(b"\r\n\r\n", 1)
        if b" 101 " not in head.split(b"\r\n")[0]:
            raise RuntimeError("the browser refused the web socket: " + head.decode("latin-1"))

    def _more(self):
        part = self.s.recv(1 << 20)
        if not part:
            raise ConnectionError("the browser has gone")
        self.buffer += part

    def _take(self, n):
        while len(self.buffer) < n:
            self._more()
        out, self.buffer = self.buffer[:n], self.buffer[n:]
        return out

    def send(self, text, opcode=1):
        data = text if isinstance(text, bytes) else text.encode()
        n, mask = len(data), os.urandom(4)
        size = bytes([0x80 | n]) if n < 126 else struct.pack(">BH", 0x80 | 126, n) if n < 65536 else struct.pack(
            ">BQ", 0x80 | 127, n)
        pad = (mask * (n // 4 + 1))[:n]
        body = (int.from_bytes(data, "big") ^ int.from_bytes(pad, "big")).to_bytes(n, "big") if n else b""
        self.s.sendall(bytes([0x80 | opcode]) + size + mask + body)

    def receive(self, timeout):
        """The next text message, or None when none comes in time."""
        self.s.settimeout(timeout)
        whole = b""
        try:
            while True:
                a, b = self._take(2)
                n = b & 127
                if n >= 126:
                    n = int.from_bytes(self._take(2 if n == 126 else 8), "big")
                self.s.settimeout(60)  # a frame that has begun arrives
                data = self._take(n)
                if a & 15 == 9:
                    self.send(data, 10)
                elif a & 15 == 8:
                    raise ConnectionError("the browser closed the connection")
                else:
                    whole += data
                    if a & 0x80:
                        return whole.decode()
        except socket.timeout:
            return None


class PageError(Exception):
    pass


class Page:
    """One tab. Events that arrive while waiting are kept: console errors, uncaught exceptions, intercepted requests."""

    def __init__(self, host, port, path):
        self.ws = WebSocket(host, port, path)
        self.n = 0
        self.problems = []  # what a developer would see in red
        self.routes = []
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(domain + ".enable")

    def call(self, method, **params):
        self.n += 1
        number = self.n
        self.ws.send(json.dumps({"id": number, "method": method, "params": params}))
        end = time.monotonic() + 60
        while time.monotonic() < end:
            m = self._next(end - time.monotonic())
            if m and m.get("id") == number:
                if "error" in m:
                    raise PageError(f"{method}: {m['error'].get('message')}")
                return m["result"]
        raise PageError(f"{method}: no reply")

    def _next(self, timeout):
        text = self.ws.receive(max(timeout, 0.001))
        if text is None:
            return None
        m = json.loads(text)
        p = m.get("params", {})
        if m.get("method") == "Runtime.exceptionThrown":
            d = p["exceptionDetails"]
            self.problems.append(d.get("exception", {}).get("description") or d["text"])
        elif m.get("method") == "Runtime.consoleAPICalled" and p["type"] in ("error", "assert"):
            self.problems.append("console: " + " ".join(str(a.get("value", a.get("description"))) for a in p["args"]))
        elif m.get("method") == "Log.entryAdded" and p["entry"]["level"] == "error":
            self.problems.append(p["entry"]["text"] + " " + p["entry"].get("url", ""))
        elif m.get("method") == "Fetch.requestPaused":
            self._answer(p)
        return m

    def pump(self, seconds):
        """Lets events come in for a while."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self._next(end - time.monotonic())

    def js(self, expression):
        r = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True, userGesture=True)
        if "exceptionDetails" in r:
            d = r["exceptionDetails"]
            raise PageError(d.get("exception", {}).get("description") or d["text"])
        return r["result"].get("value")

    def wait(self, expression, seconds=60, what=None):
        """Until the expression is true; returns its value."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            value = self.js(expression)
            if value:
                return value
            self.pump(0.05)
        raise PageError(f"not within {seconds} s: {what or expression}")

    def open(self, url):
        self.call("Page.navigate", url=url)
        self.wait("document.readyState === 'complete'", 30)

    # ---- input ----

    KEYS = {"Enter": 13, "Escape": 27, "Tab": 9, "k": 75, "ArrowDown": 40, "Space": 32}

    def press(self, key, ctrl=False, shift=False):
        modifiers = (2 if ctrl else 0) | (8 if shift else 0)
        text = {"Enter": "\r", "Space": " "}.get(key, "")
        name = " " if key == "Space" else key
        common = {"key": name, "code": "Key" + key.upper() if len(key) == 1 else key, "modifiers": modifiers,
                  "windowsVirtualKeyCode": self.KEYS[key]}
        self.call("Input.dispatchKeyEvent", type="keyDown" if text else "rawKeyDown", text=text, **common)
        self.call("Input.dispatchKeyEvent", type="keyUp", **common)

    def type(self, text):
        self.call("Input.insertText", text=text)

    def size(self, width, height, mobile=False, scale=1):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale, mobile=mobile)

    def media(self, **features):
        self.call("Emulation.setEmulatedMedia", features=[{"name": k.replace("_", "-"), "value": v}
                                                          for k, v in features.items()])

    def shot(self, path):
        data = self.call("Page.captureScreenshot", format="png")["data"]
        with open(path, "wb") as f:
            f.write(base64.b64decode(data))

    # ---- requests ----

    def intercept(self, pattern, respond):
        """respond(request) -> (status, headers, body) or None to let it go on; pattern as in Fetch.enable."""
        self.routes.append(respond)
        self.call("Fetch.enable", patterns=[{"urlPattern": pattern}])

    def release(self):
        self.routes.clear()
        self.call("Fetch.disable")

    def _answer(self, p):
        reply = next((r for r in (f(p["request"]) for f in self.routes) if r), None)
        self.n += 1
        if reply is None:
            m = {"id": self.n, "method": "Fetch.continueRequest", "params": {"requestId": p["requestId"]}}
        else:
            status, headers, body = reply
            m = {"id": self.n, "method": "Fetch.fulfillRequest", "params": {
                "requestId": p["requestId"], "responseCode": status,
                "responseHeaders": [{"name": k, "value": v} for k, v in headers.items()],
                "body": base64.b64encode(body.encode()).decode()}}
        self.ws.send(json.dumps(m))  # its reply is dropped by whoever waits


class Browser:
    def __init__(self):
        self.folder = tempfile.mkdtemp(prefix="dflash-web-")
        arguments = [find_browser(), "--headless=new", "--disable-gpu", "--no-first-run", "--no-default-browser-check",
                     "--disable-background-networking", "--disable-component-update", "--disable-sync",
                     "--disable-extensions", "--disable-dev-shm-usage", "--mute-audio", "--hide-scrollbars",
                     "--force-color-profile=srgb", "--remote-debugging-port=0", "--user-data-dir=" + self.folder]
        if os.geteuid() == 0:
            arguments.append("--no-sandbox")  # the sandbox refuses root, which containers often are
        self.log = open(os.path.join(self.folder, "log"), "w+b")
        self.process = subprocess.Popen(arguments + ["about:blank"], stdin=subprocess.DEVNULL, stdout=self.log,
                                        stderr=self.log, start_new_session=True)
        self.port = self._port()

    def _port(self):
        path = os.path.join(self.folder, "DevToolsActivePort")
        end = time.monotonic() + 90
        while time.monotonic() < end:
            if self.process.poll() is not None:
                break
            try:
                with open(path, encoding="ascii") as f:
                    lines = f.read().split("\n")
                if len(lines) > 1:
                    return int(lines[0])
            except (OSError, ValueError):
                pass
            time.sleep(0.05)
        self.log.seek(0)
        raise RuntimeError("the browser did not start: " + self.log.read().decode("utf-8", "replace")[-2000:])

    def page(self, url):
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}/json/new?about:blank", method="PUT")
        with urllib.request.urlopen(request, timeout=30) as r:
            path = json.load(r)["webSocketDebuggerUrl"].split(str(self.port), 1)[1]
        page = Page("127.0.0.1", self.port, path)
        page.open(url)
        return page

    def close(self):
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()
        self.log.close()
        shutil.rmtree(self.folder, ignore_errors=True)
