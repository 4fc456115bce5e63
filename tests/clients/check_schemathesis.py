"""schemathesis: requests made from /openapi.json, good and bad ones. No answer may be a 5xx that is not announced, none
may contradict the description, what the description forbids must be refused, and the server must go on."""
import os
import subprocess
import sys

from client_lib import Server, check, main, same

EXAMPLES = os.environ.get("SCHEMATHESIS_EXAMPLES", "20")


def run():
    with Server("-c", "256", "--parallel", "4", "--request-timeout", "20") as s:
        program = os.path.join(os.path.dirname(sys.executable), "schemathesis")
        out = subprocess.run([program, "run", f"http://127.0.0.1:{s.port}/openapi.json", "--max-examples", EXAMPLES,
                              "--checks", "not_a_server_error,status_code_conformance,content_type_conformance,"
                              "response_schema_conformance,negative_data_rejection,positive_data_acceptance,"
                              "unsupported_method", "--phases", "fuzzing,coverage", "--seed", "1", "--workers", "1",
                              "--exclude-path", "/v1/embeddings", "--no-color"],
                             capture_output=True, text=True, timeout=1500)
        text = out.stdout + out.stderr
        check("schemathesis: no complaint", out.returncode == 0, text[-6000:])
        check("schemathesis: it made requests", "tested" in text.lower() or "generated" in text.lower(), text[-2000:])
        check("schemathesis: the server is at rest", s.wait_idle(60))
        same("schemathesis: the server still answers", s.get("/health").status, 200)


main([run])
