"""Shared by the check_*.py scripts: the servers and checks of tests/e2e/serve_lib.py, one line for every check."""
import os
import subprocess

import serve_lib
from serve_lib import Server, in_threads, main, program  # noqa: F401: for the scripts


def check(what, ok, detail=""):
    if serve_lib.check(what, ok, detail):
        print("ok  ", what, flush=True)
    return ok


def same(what, got, wanted):
    return check(what, got == wanted, f"got:    {got!r}\nwanted: {wanted!r}")


_texts = {}


def run_text(question, n, *more):
    """What `dflash run` says to the question."""
    key = (question, n) + more
    if key not in _texts:
        _texts[key] = program("-p", question, "-n", str(n), *more)["text"]
    return _texts[key]


def tiny_models(folder):
    """True once a tiny target and its draft are in the folder, and the servers of this script serve them."""
    writer = os.path.join(os.path.dirname(serve_lib.PROGRAM), "tests", "write_tiny_model")
    serve_lib.TARGET, serve_lib.DRAFT = os.path.join(folder, "t.gguf"), os.path.join(folder, "d.gguf")
    return subprocess.run([writer, serve_lib.TARGET, serve_lib.DRAFT]).returncode == 0
