"""Every endpoint gives the text of `dflash run`: alone and among sixteen others, streamed and whole, with and without
drafting, greedy and with a seed."""
import json
import random

from serve_lib import Server, chat, check, chunks, in_threads, main, program, same

QUESTIONS = ["Count from one to ten.", "What is the capital of France?", "Write a short poem about the sea: \u6d77 \U0001f30a",
             "Name three animals."]
N = 16
WANT = {}


def wanted(question, *more):
    key = (question,) + more
    if key not in WANT:
        WANT[key] = program("-p", question, "-n", str(N), *more)
    return WANT[key]


def raw(text, *more):
    key = ("raw", text) + more
    if key not in WANT:
        WANT[key] = program("-p", text, "--raw", "-n", str(N), *more)
    return WANT[key]


def chat_stream(s, body):
    _, found, _ = s.stream("/v1/chat/completions", body)
    return "".join(c["choices"][0]["delta"].get("content") or "" for c in chunks(found) if c["choices"])


def ask(s, question, way, **more):
    """The text of one endpoint."""
    limit = {"temperature": 0, **more}
    if way == "chat":
        return s.post("/v1/chat/completions", chat(question, max_tokens=N, **more)).json["choices"][0]["message"]["content"]
    if way == "chat stream":
        return chat_stream(s, chat(question, max_completion_tokens=N, **more))
    if way == "responses":
        r = s.post("/v1/responses", {"input": question, "max_output_tokens": N, **limit}).json
        return r["output"][0]["content"][0]["text"]
    if way == "responses stream":
        _, found, _ = s.stream("/v1/responses", {"input": question, "max_output_tokens": N, **limit})
        data = [json.loads(d) for _, d in found]
        same("responses: events are numbered", [d["sequence_number"] for d in data], list(range(len(data))))
        same("responses: event names", [n for n, _ in found], [d["type"] for d in data])
        text = "".join(d["delta"] for d in data if d["type"] == "response.output_text.delta")
        same("responses: the whole text at the end", data[-1]["response"]["output"][0]["content"][0]["text"], text)
        return text
    prompt = s.post("/apply-template", {"messages": [{"role": "user", "content": question}]}).json["prompt"]
    if way == "completions":
        return s.post("/v1/completions", {"prompt": prompt, "max_tokens": N, **limit}).json["choices"][0]["text"]
    if way == "completions stream":
        _, found, _ = s.stream("/v1/completions", {"prompt": prompt, "max_tokens": N, **limit})
        return "".join(c["choices"][0]["text"] for c in chunks(found) if c["choices"])
    if way == "ids":
        ids = s.post("/tokenize", {"content": prompt, "add_special": True}).json["tokens"]
        return s.post("/v1/completions", {"prompt": ids, "max_tokens": N, **limit}).json["choices"][0]["text"]
    if way == "generate":
        return s.post("/generate", {"text": prompt, "sampling_params": {"max_new_tokens": N, **limit}}).json["text"]
    if way == "generate stream":
        _, found, _ = s.stream("/generate", {"text": prompt, "sampling_params": {"max_new_tokens": N, **limit}})
        texts = [c["text"] for c in chunks(found)]
        check("generate: every chunk has the text so far", all(b.startswith(a) for a, b in zip(texts, texts[1:])))
        return texts[-1]
    if way == "completion":
        return s.post("/completion", {"prompt": prompt, "n_predict": N, **limit}).json["content"]
    _, found, _ = s.stream("/completion", {"prompt": prompt, "n_predict": N, **limit})
    data = [json.loads(d) for _, d in found]
    same("completion: only the last event says stop", [d["stop"] for d in data], [False] * (len(data) - 1) + [True])
    return "".join(d["content"] for d in data)


WAYS = ["chat", "chat stream", "responses", "responses stream", "completions", "completions stream", "ids", "generate",
        "generate stream", "completion", "completion stream"]


def each_alone(s, name):
    for way in WAYS:
        same(f"{name}, {way}", ask(s, QUESTIONS[0], way), wanted(QUESTIONS[0])["text"])
    for q in QUESTIONS[1:]:
        same(f"{name}, {q}", ask(s, q, "chat stream"), wanted(q)["text"])
    for q in QUESTIONS[:2]:
        got = ask(s, q, "chat", temperature=0.9, seed=7, top_p=0.95)
        same(f"{name}, seed 7", got, wanted(q, "--temp", "0.9", "--seed", "7", "--top-p", "0.95")["text"])


def in_company(s, name):
    """Sixteen more at once, in any order, with other lengths and widths."""
    rng = random.Random(1)
    jobs = []
    for i in range(16):
        q, way = QUESTIONS[i % 4], WAYS[i % len(WAYS)]
        more = [{}, {"spec_width": 4}, {"speculative": False}, {"cache_prompt": False}, {"priority": 5}][rng.randrange(5)]
        jobs.append((q, way, more))
    got = in_threads([lambda j=j: ask(s, j[0], j[1], **j[2]) for j in jobs])
    for (q, way, more), text in zip(jobs, got):
        same(f"{name}, in company: {way} {more}", text, wanted(q)["text"])
    got = in_threads([lambda i=i: ask(s, QUESTIONS[i % 2], "chat", temperature=0.9, seed=7, top_p=0.95) for i in range(4)])
    for i, text in enumerate(got):
        want = wanted(QUESTIONS[i % 2], "--temp", "0.9", "--seed", "7", "--top-p", "0.95")["text"]
        same(f"{name}, in company, seed 7", text, want)


def test_with_draft():
    with Server("--parallel", "6") as s:
        each_alone(s, "draft")
        in_company(s, "draft")
        m = s.metrics()
        check("drafts were verified", m["df_spec_drafts_total"] > 0)
        check("prefixes were found", m["df_prefix_cache_hits_total"] > 0)
        check("requests are all over", s.wait_idle())


def test_fixed_width():
    with Server("--spec-width", "8", "--no-prefix-cache", "--parallel", "20") as s:
        in_company(s, "width 8")
        m = s.metrics()
        check("width 8: accepted drafts", m["df_spec_accepted_tokens_total"] > 0)
        same("no prefix cache: nothing is kept", m["df_kv_blocks_cached"], 0)


def test_without_draft():
    with Server(draft=False) as s:
        each_alone(s, "no draft")
        same("no draft: nothing was drafted", s.metrics()["df_spec_draft_tokens_total"], 0)
        same("no draft: /props says so", s.get("/props").json["speculative"]["type"], "none")


main([test_with_draft, test_fixed_width, test_without_draft])
