"""schemathesis: requests made from /openapi.json, good and bad ones. No answer may be a 5xx that is not announced, none
may contradict the description, what it forbids must be refused, what it admits answered, and the server must go on.

The requests are the same in every run (a fixed seed); SCHEMATHESIS_EXAMPLES and SCHEMATHESIS_SEED make it others. With the
default of 60 examples for every endpoint it takes half a minute on an idle machine, for a tiny model: it is the requests
that count, not the answers. schemathesis_hooks.py keeps the rules that no schema can say."""
import os
import subprocess
import sys
import tempfile
import time

from client_lib import Server, check, main, same, tiny_models

EXAMPLES = os.environ.get("SCHEMATHESIS_EXAMPLES", "60")
SEED = os.environ.get("SCHEMATHESIS_SEED", "1")
CHECKS = ("not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance,"
          "negative_data_rejection,positive_data_acceptance,unsupported_method")


def run():
    with tempfile.TemporaryDirectory() as folder:
        if not check("schemathesis: a tiny model (make builds write_tiny_model)", tiny_models(folder)):
            return
        with Server("-c", "8192", "-n", "8", "--parallel", "4", "--threads", "1", "--request-timeout", "20") as s:
            program = os.path.join(os.path.dirname(sys.executable), "schemathesis")
            here = os.path.dirname(os.path.abspath(__file__))
            env = {**os.environ, "SCHEMATHESIS_HOOKS": "schemathesis_hooks", "PYTHONPATH": here}
            start = time.time()
            out = subprocess.run([program, "run", f"http://127.0.0.1:{s.port}/openapi.json", "--max-examples", EXAMPLES,
                                  "--checks", CHECKS, "--phases", "coverage,fuzzing", "--seed", SEED, "--workers", "1",
                                  "--exclude-path", "/v1/embeddings", "--no-color"], cwd=folder, env=env,
                                 capture_output=True, text=True, timeout=3000)
            text = out.stdout + out.stderr
            check("schemathesis: no complaint", out.returncode == 0, text[max(0, min(i for i in (text.find("== ERRORS"), text.find("== FAILURES"), len(text)) if i >= 0)):][:12000])
            made = [line.strip() for line in text.splitlines() if "generated," in line]
            check("schemathesis: it made requests", bool(made) and int(made[0].split()[0]) > 1000, text[-2000:])
            print("    ", *made, f"in {time.time() - start:.0f} s (seed {SEED}, {EXAMPLES} examples)")
            check("schemathesis: the server is at rest", s.wait_idle(60))
            same("schemathesis: the server still answers", s.get("/health").status, 200)


main([run])
