#!/usr/bin/env python3
"""A card that is lost while it works: one clear line, no hang, a server that says so. Needs a card and the program of the
build with fault injection (tools/build fault), whose DF_TEST_DEVICE_LOST=N lets a kernel fail in front of the N-th pass.

    DFLASH=build/fault/dflash TARGET=model.gguf DRAFT=draft.gguf tests/tools/lost_device.py [cuda:N]
"""
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "e2e"))
sys.dont_write_bytecode = True
import serve_lib  # noqa: E402
from serve_lib import check, same  # noqa: E402

DEVICE = sys.argv[1] if len(sys.argv) > 1 else "cuda"
BODY = {"prompt": "Once upon a time", "max_tokens": 200, "ignore_eos": True}


def run_at(n, more):
    """A text that loses its card at pass n."""
    command = [serve_lib.PROGRAM, "run", "-m", serve_lib.TARGET, "--device", DEVICE, "-p", "Tell me a story.", "-n", "200",
               "--ignore-eos"] + more
    done = subprocess.run(command, env={**os.environ, "DF_TEST_DEVICE_LOST": str(n)}, capture_output=True, text=True,
                          timeout=60)
    what = f"run, pass {n}, {' '.join(more)}"
    check(what + ": fails", done.returncode == 1, f"exit status {done.returncode}\n{done.stderr}")
    lines = [line for line in done.stderr.split("\n") if " is lost: " in line]
    check(what + ": one line", len(lines) == 1, done.stderr)
    print("   ", *lines)


def test_run():
    for n in (1, 2, 9):
        run_at(n, [])
        run_at(n, ["-md", serve_lib.DRAFT])
        run_at(n, ["-md", serve_lib.DRAFT, "--no-graph"])


def test_serve():
    """The requests of the pass end with an error, later ones are refused, /health tells, and the server ends on SIGTERM."""
    with serve_lib.Server("-c", "1024", "--parallel", "4", "--device", DEVICE, env={"DF_TEST_DEVICE_LOST": "150"}) as s:
        same("serve: healthy at first", s.get("/health").status, 200)
        replies = serve_lib.in_threads([lambda: s.post("/v1/completions", BODY) for _ in range(4)])
        for r in replies:
            check("serve: a request of the pass fails", r.status in (500, 503), (r.status, r.text))
            check("serve: it says why", " is lost: " in r.text, r.text)
        print("   ", replies[0].text.strip())
        same("serve: /health", s.get("/health").status, 503)
        late = s.post("/v1/completions", BODY)
        same("serve: a later request", late.status, 503)
        s.process.send_signal(15)
        code = s.process.wait(30)
        check("serve: it ends", code in (0, 1), code)
        print("    the server ended with status", code)


serve_lib.main([test_run, test_serve])
