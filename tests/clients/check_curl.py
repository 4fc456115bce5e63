"""curl: bytes of streams as they are on the wire."""
import json
import os
import subprocess

from client_lib import Server, check, main, run_text, same

Q, N = "Write a short poem about the sea: \u6d77 \U0001f30a", 20
S = None


def curl(path, body, *args):
    data = os.path.join(os.environ["WORK"], "body.json")
    with open(data, "w") as f:
        json.dump(body, f)
    out = subprocess.run(["curl", "-sS", "-N", "--max-time", "120", "-H", "Content-Type: application/json", "--data",
                          "@" + data, *args, f"http://127.0.0.1:{S.port}{path}"], capture_output=True)
    return out.returncode, out.stdout, out.stderr.decode()


def run():
    global S
    with Server("-c", "2048") as S:
        body = {"messages": [{"role": "user", "content": Q}], "temperature": 0, "max_tokens": N}
        code, out, err = curl("/v1/chat/completions", body)
        same("curl: whole", (code, json.loads(out)["choices"][0]["message"]["content"]), (0, run_text(Q, N)))
        code, out, err = curl("/v1/chat/completions", body | {"stream": True}, "-i")
        head, _, sse = out.partition(b"\r\n\r\n")
        check("curl stream: head", head.startswith(b"HTTP/1.1 200 OK") and b"Content-Type: text/event-stream" in head, head)
        check("curl stream: lines end with LF LF, the last event is [DONE]", sse.endswith(b"}\n\ndata: [DONE]\n\n") and
              b"\r" not in sse, sse[-100:])
        blocks = sse.split(b"\n\n")[:-1]
        check("curl stream: every event is one data line of valid UTF-8 and JSON",
              all(b.startswith(b"data: ") and b"\n" not in b and (b == b"data: [DONE]" or json.loads(b[6:].decode()))
                  for b in blocks), blocks)
        text = "".join(json.loads(b[6:])["choices"][0]["delta"].get("content") or "" for b in blocks[:-1])
        same("curl stream: the text, byte for byte", text.encode(), run_text(Q, N).encode())
        code, out, err = curl("/v1/chat/completions", body | {"stream": True}, "--http1.0")
        check("curl, HTTP/1.0: the same events until the connection closes", code == 0 and out.endswith(b"data: [DONE]\n\n"),
              (code, out[-100:], err))
        code, out, err = curl("/v1/chat/completions", body, "-H", "Transfer-Encoding: chunked")
        same("curl: a body in chunks", json.loads(out)["choices"][0]["message"]["content"], run_text(Q, N))
        code, out, err = curl("/v1/completions", {"prompt": "x" * 2000000, "max_tokens": 1}, "-H", "Expect: 100-continue", "-i")
        check("curl: Expect: 100-continue with a large body", out.startswith(b"HTTP/1.1 100") and b"\r\n\r\nHTTP/1.1 400" in out,
              out[:200])
        code, out, err = curl("/nothing", {}, "-i")
        check("curl: 404 in JSON", out.startswith(b"HTTP/1.1 404") and json.loads(out.split(b"\r\n\r\n")[1])["error"]["code"] ==
              404, out)
        code, out, err = curl("/v1/chat/completions", body | {"max_tokens": 1500, "ignore_eos": True, "stream": True},
                              "--max-time", "1.5")
        same("curl: it gives up by itself", code, 28)
        check("curl: its place is free", S.wait_idle())


main([run])
