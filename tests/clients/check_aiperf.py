"""aiperf: load of several clients on chat and completions, streamed. Its figures must be ours: requests, tokens, no error.

It wants a tokenizer even when the server counts the tokens; one of single bytes lies in a model cache of its own, so that
nothing is downloaded."""
import json
import os
import subprocess
import sys
import tempfile

from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from client_lib import Server, check, main, same, tiny_models

REQUESTS, CLIENTS, TOKENS = 24, 4, 40
REVISION = "0" * 40


def bytes_tokenizer(home):
    """local/bytes in the layout of a model cache."""
    repo = os.path.join(home, "hub", "models--local--bytes")
    snapshot = os.path.join(repo, "snapshots", REVISION)
    os.makedirs(snapshot)
    os.makedirs(os.path.join(repo, "refs"))
    with open(os.path.join(repo, "refs", "main"), "w") as f:
        f.write(REVISION)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    t = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate(alphabet)}, merges=[]))
    t.pre_tokenizer, t.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    t.save(os.path.join(snapshot, "tokenizer.json"))
    with open(os.path.join(snapshot, "tokenizer_config.json"), "w") as f:
        json.dump({"tokenizer_class": "PreTrainedTokenizerFast"}, f)


def profile(folder, s, kind):
    out = os.path.join(folder, kind)
    prompts = os.path.join(folder, "prompts.jsonl")
    with open(prompts, "w") as f:
        for i in range(REQUESTS // 2):  # each twice: the second time from the prefix cache
            f.write(json.dumps({"text": f"Question {i}: what do you know about the sea?"}) + "\n")
    env = {**os.environ, "HF_HOME": os.path.join(folder, "hf"), "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
    r = subprocess.run([os.path.join(os.path.dirname(sys.executable), "aiperf"), "profile", "-m", "any", "--tokenizer", "local/bytes",
                        "--url", f"http://127.0.0.1:{s.port}", "--endpoint-type", kind, "--streaming", "--input-file", prompts,
                        "--custom-dataset-type", "single_turn", "--use-server-token-count", "--extra-inputs",
                        f"max_tokens:{TOKENS}", "--extra-inputs", "ignore_eos:true", "--request-count", str(REQUESTS),
                        "--concurrency", str(CLIENTS), "--ui-type", "simple", "--output-artifact-dir", out],
                       env=env, cwd=folder, capture_output=True, text=True, timeout=600)
    if not check(f"aiperf {kind}: runs", r.returncode == 0, (r.stdout + r.stderr)[-3000:]):
        return
    with open(os.path.join(out, "profile_export_aiperf.json")) as f:
        d = json.load(f)
    same(f"aiperf {kind}: requests", d["request_count"]["avg"], REQUESTS)
    same(f"aiperf {kind}: errors", d["error_summary"], [])
    same(f"aiperf {kind}: tokens of each answer", (d["output_sequence_length"]["min"], d["output_sequence_length"]["max"]),
         (TOKENS, TOKENS))
    check(f"aiperf {kind}: a first token before the last", 0 < d["time_to_first_token"]["avg"] <= d["request_latency"]["avg"],
          (d["time_to_first_token"], d["request_latency"]))


def run():
    with tempfile.TemporaryDirectory() as folder:
        if not check("aiperf: a tiny model (make builds write_tiny_model)", tiny_models(folder)):
            return
        bytes_tokenizer(os.path.join(folder, "hf"))
        with Server("-c", "2048", "--parallel", "4", "--threads", "1") as s:
            for kind in ["chat", "completions"]:
                before = s.metrics()
                profile(folder, s, kind)
                check(f"aiperf {kind}: at rest", s.wait_idle(60))
                after = s.metrics()
                same(f"aiperf {kind}: the server counts the same", (
                    after["df_generation_tokens_total"] - before["df_generation_tokens_total"],
                    after['df_requests_total{reason="length"}'] - before['df_requests_total{reason="length"}']),
                    (REQUESTS * TOKENS, REQUESTS))


main([run])
