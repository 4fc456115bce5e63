"""lm-eval: local-completions and local-chat-completions on questions of GSM8K, answered as dflash itself answers them."""
import json
import os
import subprocess
import sys

from client_lib import Server, check, main, program, same

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
WORK = os.environ["WORK"]
LIMIT, TOKENS = 3, 48
TASK = """task: gsm8k_few
dataset_path: json
dataset_kwargs: {data_files: {test: "%s"}}
output_type: generate_until
test_split: test
doc_to_text: "Question: {{question}}\\nAnswer:"
doc_to_target: "{{answer}}"
num_fewshot: 0
generation_kwargs: {until: ["Question:", "</s>", "<|im_end|>"], do_sample: false, temperature: 0.0, max_gen_toks: %d}
metric_list:
  - metric: exact_match
    aggregation: mean
    higher_is_better: true
filter_list:
  - name: strict-match
    filter: [{function: regex, regex_pattern: "#### (\\\\-?[0-9\\\\.\\\\,]+)"}, {function: take_first}]
metadata: {version: 1.0}
"""


def lm_eval(name, kind, path, port, *more):
    """[(prompt as sent, text)] of the first questions."""
    out = os.path.join(WORK, name)
    args = f"model=any,base_url=http://127.0.0.1:{port}{path},num_concurrent=3,max_retries=1,tokenized_requests=False," \
           "tokenizer_backend=None"
    r = subprocess.run([sys.executable, "-m", "lm_eval", "run", "--model", kind, "--model_args", args, "--tasks", "gsm8k_few",
                        "--include_path", WORK, "--limit", str(LIMIT), "--output_path", out, "--log_samples", *more],
                       capture_output=True, text=True, timeout=1200)
    if not check(f"lm-eval {name}: runs", r.returncode == 0, r.stderr[-3000:]):
        return []
    samples = []
    for folder, _, files in os.walk(out):
        for f in files:
            if f.startswith("samples_"):
                samples += [json.loads(line) for line in open(os.path.join(folder, f))]
    samples = sorted({s["doc_id"]: s for s in samples}.values(), key=lambda s: s["doc_id"])
    return [(s["arguments"]["gen_args_0"]["arg_0"], s["resps"][0][0]) for s in samples]


def cut(text):
    for stop in ["Question:", "</s>", "<|im_end|>"]:
        text = text.split(stop)[0]
    return text


def run():
    with open(os.path.join(ROOT, "data", "gsm8k", "test.jsonl")) as f, open(os.path.join(WORK, "few.jsonl"), "w") as g:
        g.writelines(f.readlines()[:LIMIT])
    with open(os.path.join(WORK, "gsm8k_few.yaml"), "w") as f:
        f.write(TASK % (os.path.join(WORK, "few.jsonl"), TOKENS))
    with Server("-c", "2048", "--parallel", "3") as s:
        plain = lm_eval("local-completions", "local-completions", "/v1/completions", s.port)
        same("lm-eval local-completions: all are answered", len(plain), LIMIT)
        for i, (prompt, text) in enumerate(plain):
            same(f"lm-eval local-completions: question {i}, the text of dflash run", text,
                 cut(program("-p", prompt, "--raw", "-n", str(TOKENS))["text"]))
        told = lm_eval("local-chat-completions", "local-chat-completions", "/v1/chat/completions", s.port,
                       "--apply_chat_template")
        same("lm-eval local-chat-completions: all are answered", len(told), LIMIT)
        for i, (prompt, text) in enumerate(told):
            question = prompt if isinstance(prompt, str) else prompt[0]
            if question.startswith("["):
                question = json.loads(question)[-1]["content"]
            same(f"lm-eval local-chat-completions: question {i}, the text of dflash run", text,
                 cut(program("-p", question, "-n", str(TOKENS))["text"]))


main([run])
