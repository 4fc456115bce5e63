"""examples/deploy: every file is checked by its own program when that is here, and in any case for what it must say.

nginx and Caddy also run in front of a real server: the streamed answer is the API's and comes in pieces.
"""
import http.client
import json
import os
import re
import shutil
import socket
import ssl
import subprocess
import sys
import tempfile
import time

import serve_lib
from serve_lib import Server, chat, check, same

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
DEPLOY = os.path.join(ROOT, "examples", "deploy")
skipped = 0


def text_of(name):
    with open(os.path.join(DEPLOY, name), encoding="utf-8") as f:
        return f.read()


def tool(name, what):
    """The path of a program, or None after a line that says what is skipped."""
    global skipped
    path = shutil.which(name) or shutil.which(name, path="/usr/sbin:/sbin:/usr/local/sbin")
    if not path:
        skipped += 1
        print(f"skip {what}: {name} is not installed")
    return path


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def command(what, argv, **kw):
    p = subprocess.run(argv, capture_output=True, text=True, timeout=120, **kw)
    return check(what, p.returncode == 0, p.stdout + p.stderr)


def code_lines(text, mark="#"):
    return [line.split(mark)[0].strip() for line in text.splitlines() if line.split(mark)[0].strip()]


def stream_through(what, port, server, folder_path=""):
    """Asks for a stream through a front with TLS and compares it with the server's own answer."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    body = chat("Count from one to twenty.", max_tokens=48, stream=True)
    end = time.monotonic() + 20
    while True:
        try:
            c = http.client.HTTPSConnection("127.0.0.1", port, timeout=60, context=context)
            c.request("POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"})
            break
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.1)
    r = c.getresponse()
    same(f"{what}: status", r.status, 200)
    pieces, whole = 0, b""
    while True:
        part = r.read1(65536)
        if not part:
            break
        pieces, whole = pieces + 1, whole + part
    found, _ = serve_lib.events(whole.decode())
    text = "".join(json.loads(d)["choices"][0]["delta"].get("content") or "" for _, d in found[:-1])
    wanted = server.post("/v1/chat/completions", {**body, "stream": False}).json["choices"][0]["message"]["content"]
    same(f"{what}: the streamed text", text, wanted)
    check(f"{what}: it comes in pieces ({pieces})", pieces >= 8, pieces)
    wanted = {"/metrics": 403} | ({f"{folder_path}/metrics": 403, f"{folder_path}/v1/models": 200} if folder_path else {})
    for path, status in wanted.items():
        c = http.client.HTTPSConnection("127.0.0.1", port, timeout=60, context=context)
        c.request("GET", path)
        same(f"{what}: status of {path}", c.getresponse().status, status)


def run_front(argv, what, port, server, folder, folder_path=""):
    p = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env={**os.environ, "HOME": folder})
    try:
        stream_through(what, port, server, folder_path)
    except OSError as e:
        check(what, False, repr(e))
    finally:
        p.terminate()
        try:
            out = p.communicate(timeout=20)[0].decode(errors="replace")
        except subprocess.TimeoutExpired:
            p.kill()
            out = p.communicate()[0].decode(errors="replace")
        if serve_lib.failed:
            print(out[-3000:])


def test_nginx(server, folder):
    text = text_of("nginx.conf")
    lines = code_lines(text)
    same("nginx.conf: brackets", text.count("{"), text.count("}"))
    for need in ("proxy_buffering off;", "proxy_http_version 1.1;", "gzip off;", "proxy_next_upstream off;"):
        check(f"nginx.conf: {need}", need in lines, lines)
    check("nginx.conf: waits for an hour", "proxy_read_timeout 3600s;" in lines)
    loose = [x for x in lines if x[-1] not in ";{}"]
    same("nginx.conf: every directive ends", loose, [])
    folder_text = re.sub(r"(?m)^    #(?! \S)", "    ", text)  # the example under a folder, which is a comment
    check("nginx.conf: the folder is there", "location /llm/ {" in code_lines(folder_text))
    denied = re.findall(r"location ~ (\S+) \{\s*deny all;", folder_text)
    for path in ("metrics", "slots", "flush_cache", "abort_request"):
        for base in ("/", "/llm/"):
            check(f"nginx.conf: {base}{path} is denied", any(re.search(p, base + path) for p in denied), denied)
    for path in ("/llm/", "/llm/v1/models", "/v1/models"):
        check(f"nginx.conf: {path} is not", not any(re.search(p, path) for p in denied), denied)
    nginx = tool("nginx", "nginx in front of the server")
    if not nginx:
        return
    command("a certificate", ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
                              "-days", "2", "-subj", "/CN=llm.example.org", "-keyout", f"{folder}/key.pem", "-out",
                              f"{folder}/cert.pem"])
    port, plain = free_port(), free_port()
    text = folder_text.replace("/etc/ssl/dflash/fullchain.pem", f"{folder}/cert.pem")
    text = text.replace("/etc/ssl/dflash/privkey.pem", f"{folder}/key.pem")
    text = text.replace("127.0.0.1:8080", f"127.0.0.1:{server.port}")
    text = text.replace("listen 443", f"listen 127.0.0.1:{port}").replace("listen 80;", f"listen 127.0.0.1:{plain};")
    text = re.sub(r"\n *listen \[::\][^\n]*", "", text)
    temps = "".join(f"{k}_temp_path {folder}/{k};" for k in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    with open(f"{folder}/nginx.conf", "w", encoding="utf-8") as f:
        f.write(f"daemon off; master_process off; pid {folder}/pid; error_log stderr;\nevents {{}}\n"
                f"http {{ access_log off; {temps}\n{text}\n}}\n")
    arguments = [nginx, "-e", "stderr", "-c", f"{folder}/nginx.conf", "-p", folder]
    if command("nginx -t", arguments[:1] + ["-t"] + arguments[1:]):
        run_front(arguments, "through nginx", port, server, folder, "/llm")


def test_caddy(server, folder):
    text = text_of("Caddyfile")
    same("Caddyfile: brackets", text.count("{"), text.count("}"))
    check("Caddyfile: every event at once", "flush_interval -1" in code_lines(text))
    check("Caddyfile: no compression", not any(x.startswith("encode") for x in code_lines(text)))
    caddy = tool("caddy", "Caddy in front of the server")
    if not caddy:
        return
    port = free_port()
    text = text.replace("llm.example.org {", f"https://127.0.0.1:{port} {{\n\ttls internal", 1)
    text = text.replace("127.0.0.1:8080", f"127.0.0.1:{server.port}")
    with open(f"{folder}/Caddyfile", "w", encoding="utf-8") as f:
        f.write("{\n\tadmin off\n\tauto_https disable_redirects\n\tskip_install_trust\n"
                f"\tstorage file_system {folder}/caddy\n}}\n" + text)
    arguments = ["--config", f"{folder}/Caddyfile", "--adapter", "caddyfile"]
    command("caddy validate, as it stands", [caddy, "validate", "--config", f"{DEPLOY}/Caddyfile", "--adapter", "caddyfile"],
            env={**os.environ, "HOME": folder})
    run_front([caddy, "run"] + arguments, "through Caddy", port, server, folder)


def test_systemd(_server, folder):
    unit = text_of("dflash.service")
    for need in ("Type=notify", "DynamicUser=yes", "NoNewPrivileges=yes", "ProtectSystem=strict", "CapabilityBoundingSet="):
        check(f"dflash.service: {need}", need in code_lines(unit))
    options = re.search(r"^ExecStart=\S+ serve (.*)$", unit, re.M).group(1) + " " + text_of("serve.env")
    known = subprocess.run([serve_lib.PROGRAM, "serve", "--help"], capture_output=True, text=True, timeout=60).stdout
    for option in sorted(set(re.findall(r"(?<=[\s=])--?[a-z][\w-]*", options))):
        check(f"the service's option {option} exists", re.search(r"(^|[\s,])" + option + r"\b", known, re.M) is not None)
    stop = float(re.search(r"^TimeoutStopSec=(\d+)s$", unit, re.M).group(1))
    check("systemd waits longer than the server drains", stop > 30)
    analyze = tool("systemd-analyze", "systemd-analyze verify")
    if not analyze:
        return
    with open(f"{folder}/dflash.service", "w", encoding="utf-8") as f:
        f.write(unit.replace("/usr/local/bin/dflash", serve_lib.PROGRAM))
    p = subprocess.run([analyze, "verify", "--man=no", f"{folder}/dflash.service"], capture_output=True, text=True, timeout=60)
    ours = [x for x in (p.stdout + p.stderr).splitlines() if "dflash" in x]
    same("systemd-analyze verify", ours, [])


def test_container(_server, _folder):
    """No container is built here: its parts are compared with what the project says of itself."""
    text = text_of("Containerfile")
    _, build, run = text.split("\nFROM ")
    with open(os.path.join(ROOT, "tools", "bootstrap"), encoding="utf-8") as f:
        base = f.read().split("need_base='")[1].split("'")[0]
    needed = {line.split()[1] for line in base.strip().splitlines()} - {"python3-pip", "libcmocka-dev"}  # for models and tests
    missing = sorted(p for p in needed if not re.search(r"\s" + re.escape(p) + r"\s", build))
    same("Containerfile: the packages that tools/bootstrap installs", missing, [])
    linked = subprocess.run(["readelf", "-d", serve_lib.PROGRAM], capture_output=True, text=True, timeout=60).stdout
    for library in re.findall(r"NEEDED.*\[(\w[^.]*)[^\]]*\]", linked):
        stem = {"libevent_core-2": "libevent-core", "libcrypto": "libssl"}.get(library, library)
        if library in ("libc", "libm", "libgcc_s", "ld-linux-x86-64") or library.endswith("san"):
            continue
        check(f"Containerfile: {library} is in the image", re.search(r"\s" + re.escape(stem) + r"[\w.-]*\s", run), stem)
    check("Containerfile: not root", re.search(r"^USER [1-9]\d+$", run, re.M))
    probe = json.loads(re.search(r"HEALTHCHECK(?:.*\\\n)? *CMD (\[.*\])", run).group(1))
    return probe


def test_health(server, folder):
    probe = test_container(server, folder)
    here = [x.replace("8080", str(server.port)) for x in probe]
    same("HEALTHCHECK of a server that is well", subprocess.run(here, timeout=30, check=False).returncode, 0)
    gone = [x.replace("8080", str(free_port())) for x in probe]
    check("HEALTHCHECK without a server", subprocess.run(gone, timeout=30, check=False, stderr=subprocess.DEVNULL).returncode)


def test_prometheus(server, folder):
    rules = text_of("dflash-alerts.yml")
    series = {re.sub(r"\{.*", "", name) for name in server.metrics()}
    used = set(re.findall(r"\bdf_\w+", rules))
    same("alerts use series that the server has", sorted(used - series), [])
    check("there are some", len(used) >= 6, used)
    promtool = tool("promtool", "promtool check config")
    if not promtool:
        return
    shutil.copy(f"{DEPLOY}/dflash-alerts.yml", folder)
    with open(f"{folder}/key", "w", encoding="utf-8") as f:
        f.write("k")
    with open(f"{folder}/prometheus.yml", "w", encoding="utf-8") as f:
        f.write(text_of("prometheus.yml").replace("/etc/prometheus/dflash-key", f"{folder}/key"))
    command("promtool check config", [promtool, "check", "config", f"{folder}/prometheus.yml"])


def main():
    folder = tempfile.mkdtemp(prefix="dflash-deploy-")
    try:
        with Server("-t", "2") as server:
            for test in (test_nginx, test_caddy, test_systemd, test_health, test_prometheus):
                try:
                    test(server, folder)
                except Exception:  # the others still run
                    check(test.__name__, False, serve_lib.traceback.format_exc())
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(f"{serve_lib.passed} passed, {serve_lib.failed} failed" + (f", {skipped} skipped" if skipped else ""))
    sys.exit(1 if serve_lib.failed else 0)


main()
