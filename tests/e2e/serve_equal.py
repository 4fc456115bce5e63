"""Every request's text is the one of `dflash run` for the same prompt and seed, whatever is around it: alone and among
sixteen others, with and without a prefix hit, with and without drafting, greedy and with a seed; all combinations.

That a request was what it claims to be is checked too: the reply tells of cached tokens and of verified drafts, and the
server of how many ran at once. The last lines are a table of combinations and how many texts were equal."""
import itertools
import random
import threading
import time

from serve_lib import Server, chat, check, chunks, in_threads, main, program, same

N, CROWD = 48, 17
QUESTIONS = ["Tell a story about a ship and its captain.", "Explain what a prime number is, with examples.",
             "Write a letter to a friend about the sea: \u6d77."]
CACHE = {"cold": {"cache_prompt": False}, "hit": {}}
DRAFT = {"plain": {"speculative": False}, "width 8": {"spec_width": 8}, "width 3": {"spec_width": 3}, "automatic": {}}
SAMPLING = {"greedy": ({}, []),
            "seed 7": ({"temperature": 0.9, "top_p": 0.95, "seed": 7}, ["--temp", "0.9", "--top-p", "0.95", "--seed", "7"]),
            "seed 11": ({"temperature": 1.2, "top_k": 40, "seed": 11}, ["--temp", "1.2", "--top-k", "40", "--seed", "11"])}
JOBS = list(itertools.product(QUESTIONS, CACHE, DRAFT, SAMPLING))
COUNTS = {}  # (company, cache, draft, sampling) -> [answers, equal ones]


def reply_of(s, body, streamed):
    """(text, usage, timings)"""
    if not streamed:
        d = s.post("/v1/chat/completions", body, timeout=600).json
        return d["choices"][0]["message"]["content"], d["usage"], d["timings"]
    _, found, _ = s.stream("/v1/chat/completions", {**body, "stream_options": {"include_usage": True}}, timeout=600)
    got = chunks(found)
    text = "".join(c["choices"][0]["delta"].get("content") or "" for c in got if c["choices"])
    return text, got[-1]["usage"], got[-1]["timings"]


def ask(s, company, job, streamed, wanted):
    question, cache, draft, sampling = job
    what = f"{company}, {cache}, {draft}, {sampling}, {'streamed' if streamed else 'whole'}: {question}"
    body = chat(question, max_tokens=N, **{**CACHE[cache], **DRAFT[draft], **SAMPLING[sampling][0]})
    text, usage, timings = reply_of(s, body, streamed)
    equal = same(what, text, wanted[question, sampling])
    cached, verified = usage["prompt_tokens_details"]["cached_tokens"], timings["verify_n"]
    check(what + ", cached tokens", (cached > 0) == (cache == "hit"), usage)
    if draft != "automatic":
        check(what + ", verified drafts", (verified > 0) == (draft != "plain"), timings)
    count = COUNTS.setdefault((company, cache, draft, sampling), [0, 0])
    count[0] += 1
    count[1] += equal


def warm(s):
    """The prompts go into the prefix cache, as far as whole pages go."""
    for q in QUESTIONS:
        s.post("/v1/chat/completions", chat(q, max_tokens=1))


def together(s, jobs, rng, wanted):
    """All at once; how many ran at the same time at most."""
    over, most = threading.Event(), [0]

    def watch():
        while not over.is_set():
            most[0] = max(most[0], s.metrics()["df_requests_running"])
            time.sleep(0.02)

    watcher = threading.Thread(target=watch)
    watcher.start()
    for e in in_threads([lambda j=j, w=rng.random() < 0.5: ask(s, "among 16", j, w, wanted) for j in jobs]):
        check("a client", e is None, e)
    over.set()
    watcher.join()
    return most[0]


def table():
    print(f"     {'company':<10} {'prefix':<7} {'drafting':<10} {'sampling':<9} answers  equal")
    for key in sorted(COUNTS):
        n, equal = COUNTS[key]
        print(f"     {key[0]:<10} {key[1]:<7} {key[2]:<10} {key[3]:<9} {n:>7} {equal:>6}")
    total = [sum(v[i] for v in COUNTS.values()) for i in (0, 1)]
    print(f"     {len(COUNTS)} combinations, {total[0]} answers, {total[1]} equal")


def test_equal():
    wanted = {(q, k): program("-p", q, "-n", str(N), *SAMPLING[k][1])["text"] for q in QUESTIONS for k in SAMPLING}
    same("the texts are different ones", len(set(wanted.values())), len(wanted))
    rng = random.Random(5)
    with Server("--parallel", str(CROWD), "-c", "1024", "--max-queue", "64") as s:
        warm(s)
        for i, job in enumerate(JOBS):
            ask(s, "alone", job, i % 2 == 0, wanted)
        crowd = JOBS + rng.sample(JOBS, -len(JOBS) % CROWD)
        rng.shuffle(crowd)
        most = [together(s, crowd[i:i + CROWD], rng, wanted) for i in range(0, len(crowd), CROWD)]
        same("seventeen ran at once, every time", most, [CROWD] * len(most))
        check("nothing is left at work", s.wait_idle(60), s.metrics())
    same("all combinations were there", len(COUNTS), 2 * len(CACHE) * len(DRAFT) * len(SAMPLING))
    table()


main([test_equal])
