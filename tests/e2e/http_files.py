#!/usr/bin/env python3
"""A small file server on the loopback for the tests of `dflash pull`.

Prints its port, then serves: files below FOLDER with HEAD, Range and ETag; and by the first part of the path
  /plain/F        no ranges, no ETag              /drop/N/F     closes the connection after N bytes, once for each F
  /linked/F       X-Linked-Etag and a redirect    /to-http/F    redirects to plain http on another name
  /loop/F         redirects to itself             /status/N     answers N
  /badsum/F       X-Linked-Etag of another file   /nohead/F     refuses HEAD
  /ORG/NAME/resolve/main/F, /api/models/ORG/NAME  a model repository; ORG "private" needs "Bearer secret"
Every request is appended to FOLDER/requests.log: method, path, range, whether a token came.
"""

import hashlib
import http.server
import json
import os
import re
import sys

FOLDER = sys.argv[1]
dropped = set()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def note(self):
        token = "token" if self.headers.get("Authorization") else "-"
        with open(os.path.join(FOLDER, "requests.log"), "a") as f:
            f.write(f"{self.command} {self.path} {self.headers.get('Range', '-')} {token}\n")

    def answer(self, code, headers=(), body=b""):
        self.send_response(code)
        for k, v in headers:
            self.send_header(k, v)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def file(self, name, ranges=True, etag=True, extra=(), drop=None):
        path = os.path.join(FOLDER, os.path.basename(name))
        if not os.path.isfile(path):
            return self.answer(404)
        data = open(path, "rb").read()
        start, code, headers = 0, 200, list(extra)
        m = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        if ranges and m:
            start = int(m.group(1))
            if start >= len(data):
                return self.answer(416, [("Content-Range", f"bytes */{len(data)}")])
            code = 206
            headers.append(("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}"))
        if etag:
            headers.append(("ETag", f'"{hashlib.sha256(data).hexdigest()}"'))
        self.send_response(code)
        for k, v in headers:
            self.send_header(k, v)
        self.send_header("Content-Length", str(len(data) - start))
        self.end_headers()
        if self.command == "HEAD":
            return None
        if drop is not None and name not in dropped:
            dropped.add(name)
            self.wfile.write(data[start:start + drop])
            self.wfile.flush()
            self.close_connection = True
            return None
        self.wfile.write(data[start:])
        return None

    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
        self.note()
        port = self.server.server_address[1]
        parts = self.path.split("?")[0].strip("/").split("/")
        kind, rest = parts[0], parts[1:]
        if kind == "plain":
            return self.file(rest[0], ranges=False, etag=False)
        if kind == "drop":
            return self.file(rest[1], drop=int(rest[0]))
        if kind == "status":
            return self.answer(int(rest[0]), body=b"an error page")
        if kind == "loop":
            return self.answer(302, [("Location", self.path)])
        if kind == "to-http":
            return self.answer(302, [("Location", f"http://localhost:{port}/{rest[0]}")])
        if kind == "nohead" and self.command == "HEAD":
            return self.answer(405)
        if kind == "nohead":
            return self.file(rest[0])
        if kind in ("linked", "badsum"):
            path = os.path.join(FOLDER, rest[0])
            data = open(path, "rb").read() if kind == "linked" else b"other"
            return self.answer(302, [("Location", f"/{rest[0]}"), ("X-Linked-Size", str(os.path.getsize(path))),
                                     ("X-Linked-Etag", f'"{hashlib.sha256(data).hexdigest()}"')])
        if kind == "api":
            names = open(os.path.join(FOLDER, "siblings-" + rest[2])).read().split()
            return self.answer(200, body=json.dumps({"siblings": [{"rfilename": n} for n in names]}).encode())
        if len(parts) >= 5 and parts[2:4] == ["resolve", "main"]:
            if kind == "private" and self.headers.get("Authorization") != "Bearer secret":
                return self.answer(401)
            return self.file(parts[-1])
        return self.file(parts[-1])


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print(server.server_address[1], flush=True)
server.serve_forever()
