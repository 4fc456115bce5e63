"""Shared by the check_*.py scripts: the servers and checks of tests/e2e/serve_lib.py, one line for every check."""
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
