#!/usr/bin/env python3
"""Writes a small Hugging Face model with made-up weights: matrices as F8_E4M3 with scales, or as the same values in F32.

    make_fp8_model.py FOLDER {tensor,rows,blocks,f32} [HIDDEN [LAYERS]]

tensor, rows, blocks: how the matrices are scaled. f32 holds the values that blocks stands for, so that both models say
the same. Needs nothing but Python. HIDDEN is a multiple of 64, heads are 64 wide; the tokenizer knows bytes."""
import array
import json
import random
import struct
import sys

VOCAB = 264


def e4m3(code):
    sign, e, m = -1.0 if code & 0x80 else 1.0, code >> 3 & 15, code & 7
    return sign * (m * 2.0**-9 if e == 0 else (8 + m) * 2.0 ** (e - 10))


VALUES = [e4m3(c) for c in range(256)]
# Codes of sizes from 2^-4 to 14, either sign: what quantisation makes of weights.
CODES = [c for c in range(256) if 2.0**-4 <= abs(VALUES[c]) < 14 and c & 0x7F != 0x7F]


def half(f):  # a float that bfloat16 holds
    return struct.unpack("<f", struct.pack("<I", struct.unpack("<I", struct.pack("<f", f))[0] & 0xFFFF0000))[0]


class Writer:
    def __init__(self):
        self.header, self.data = {}, bytearray()

    def put(self, name, dtype, shape, raw):
        self.header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(self.data), len(self.data) + len(raw)]}
        self.data += raw

    def write(self, path):
        head = json.dumps(self.header).encode()
        head += b" " * (-len(head) % 8)
        with open(path, "wb") as f:
            f.write(struct.pack("<Q", len(head)) + head + self.data)


def matrix(w, rng, kind, name, n, k, size):
    codes = bytes(rng.choices(CODES, k=n * k))
    nb, kb = (n + 127) // 128, (k + 127) // 128
    # The deviation of CODES' values is about 5.
    base = size / (5 * k**0.5)
    count = {"tensor": 1, "rows": n}.get(kind, nb * kb)
    scales = [half(base * rng.uniform(0.7, 1.4)) for _ in range(count)]
    if kind == "f32":
        values = array.array("f")
        for r in range(n):
            for c in range(k):
                values.append(VALUES[codes[r * k + c]] * scales[r // 128 * kb + c // 128])
        w.put(name + ".weight", "F32", [n, k], values.tobytes())
        return
    w.put(name + ".weight", "F8_E4M3", [n, k], codes)
    raw = struct.pack("<%df" % count, *scales)
    if kind == "rows":
        raw = b"".join(struct.pack("<f", s)[2:] for s in scales)
    shape = {"tensor": [1], "rows": [n, 1]}.get(kind, [nb, kb])
    w.put(name + (".weight_scale_inv" if kind == "blocks" else ".weight_scale"), "BF16" if kind == "rows" else "F32", shape, raw)


def floats(w, name, shape, values):
    w.put(name, "F32", shape, struct.pack("<%df" % len(values), *values))


def byte_names():
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    names, n = {}, 0
    for b in range(256):
        names[b] = chr(b) if b in plain else chr(256 + n)
        n += b not in plain
    return names


def main():
    if len(sys.argv) < 3 or sys.argv[2] not in ("tensor", "rows", "blocks", "f32"):
        sys.exit(__doc__)
    folder, kind = sys.argv[1], sys.argv[2]
    hidden, layers = (int(a) for a in (sys.argv[3:] + ["128", "2"][len(sys.argv) - 3 :])[:2])
    heads, kv, ffn = hidden // 64, 1, 2 * hidden
    rng, w = random.Random(7), Writer()
    floats(w, "model.embed_tokens.weight", [VOCAB, hidden], [rng.gauss(0, 1) for _ in range(VOCAB * hidden)])
    for i in range(layers):
        p = "model.layers.%d." % i
        for name, n, k, size in (
            ("self_attn.q_proj", heads * 64, hidden, 1.5), ("self_attn.k_proj", kv * 64, hidden, 1.5),
            ("self_attn.v_proj", kv * 64, hidden, 1), ("self_attn.o_proj", hidden, heads * 64, 3),
            ("mlp.gate_proj", ffn, hidden, 1.5), ("mlp.up_proj", ffn, hidden, 1.5), ("mlp.down_proj", hidden, ffn, 4),
        ):  # fmt: skip
            matrix(w, rng, kind, p + name, n, k, size)
        for name in ("input_layernorm", "post_attention_layernorm"):
            floats(w, p + name + ".weight", [hidden], [rng.uniform(0.8, 1.2) for _ in range(hidden)])
    floats(w, "model.norm.weight", [hidden], [1.0] * hidden)
    w.write(folder + "/model.safetensors")
    config = {
        "architectures": ["LlamaForCausalLM"], "hidden_size": hidden, "num_hidden_layers": layers, "head_dim": 64,
        "num_attention_heads": heads, "num_key_value_heads": kv, "intermediate_size": ffn, "vocab_size": VOCAB,
        "max_position_embeddings": 2048, "rms_norm_eps": 1e-5, "tie_word_embeddings": True,
    }  # fmt: skip
    if kind != "f32":
        config["quantization_config"] = {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic"}
    if kind == "blocks":
        config["quantization_config"]["weight_block_size"] = [128, 128]
    vocab = {name: b for b, name in byte_names().items()}
    gpt2 = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    tokenizer = {
        "added_tokens": [{"id": 256, "content": "<end>", "special": True}], "normalizer": None, "pre_tokenizer": gpt2,
        "decoder": {"type": "ByteLevel"}, "model": {"type": "BPE", "vocab": vocab, "merges": []},
    }  # fmt: skip
    for name, value in (("config", config), ("tokenizer", tokenizer), ("tokenizer_config", {"eos_token": "<end>"})):
        with open("%s/%s.json" % (folder, name), "w") as f:
            json.dump(value, f)


main()
