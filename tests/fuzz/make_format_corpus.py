#!/usr/bin/env python3
"""Writes the seed files of fuzz_gguf, fuzz_safetensors and fuzz_config below tests/fuzz/corpus.

Standard library only, deterministic: running it again must leave git clean. kinds.gguf is also read by
tests/unit/test_gguf.c as a file of an independent writer.
"""
import json
import pathlib
import struct

ROOT = pathlib.Path(__file__).resolve().parent / "corpus"
U8, I8, U16, I16, U32, I32, F32, BOOL, STR, ARR, U64, I64, F64 = range(13)
FORMATS = {U8: "B", I8: "b", U16: "H", I16: "h", U32: "I", I32: "i", F32: "f", BOOL: "B", U64: "Q", I64: "q", F64: "d"}


def text(s):
    raw = s if isinstance(s, bytes) else s.encode()
    return struct.pack("<Q", len(raw)) + raw


def value(kind, v):
    return text(v) if kind == STR else struct.pack("<" + FORMATS[kind], v)


def entry(key, kind, v):
    return text(key) + struct.pack("<I", kind) + value(kind, v)


def array(key, kind, values):
    return text(key) + struct.pack("<IIQ", ARR, kind, len(values)) + b"".join(value(kind, v) for v in values)


def tensor(name, dims, kind, offset):
    return text(name) + struct.pack("<I", len(dims)) + b"".join(struct.pack("<Q", d) for d in dims) + struct.pack(
        "<IQ", kind, offset)


def gguf(entries, tensors=(), data=b"", version=3, align=32):
    out = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(entries)) + b"".join(entries) + b"".join(tensors)
    if tensors:
        out += b"\0" * (-len(out) % align) + data
    return out


def arch_entries(arch, **more):
    keys = {"block_count": 1, "embedding_length": 8, "feed_forward_length": 16, "attention.head_count": 2,
            "attention.head_count_kv": 1, "context_length": 64, "vocab_size": 32}
    keys.update(more)
    out = [entry("general.architecture", STR, arch)]
    out += [entry(f"{arch}.{k}", U32, v) for k, v in keys.items()]
    return out + [entry(f"{arch}.attention.layer_norm_rms_epsilon", F32, 1e-5)]


def gguf_files():
    kinds = [entry("k.u8", U8, 200), entry("k.i8", I8, -100), entry("k.u16", U16, 60000), entry("k.i16", I16, -30000),
             entry("k.u32", U32, 4000000000), entry("k.i32", I32, -2000000000), entry("k.f32", F32, 0.25),
             entry("k.bool", BOOL, 1), entry("k.str", STR, "h\u00e9j!"), entry("k.u64", U64, 1 << 60),
             entry("k.i64", I64, -(1 << 60)), entry("k.f64", F64, -0.125), array("k.strs", STR, ["a", ""]),
             array("k.ints", I32, [1, -2, 3]), array("k.none", F32, [])]
    matrix = struct.pack("<6f", *[(i + 1) / 2 for i in range(6)])
    yield "kinds.gguf", gguf(kinds, [tensor("m", [3, 2], 0, 0)], matrix)
    yield "empty.gguf", gguf([])
    yield "version2.gguf", gguf([entry("a", U32, 1)], version=2)
    yield "version1.gguf", gguf([], version=1)
    yield "align64.gguf", gguf([entry("general.alignment", U32, 64)], [tensor("t", [8], 0, 64)], b"\1" * 96, align=64)
    yield "quant.gguf", gguf([], [tensor("q8", [32, 2], 8, 0), tensor("q4k", [256], 12, 96)], b"\2" * 240)
    yield "unknown_type.gguf", gguf([], [tensor("new", [4], 99, 0)], b"\0" * 32)
    yield "truncated.gguf", gguf(kinds, [tensor("m", [3, 2], 0, 0)], matrix)[:-5]
    yield "nested.gguf", gguf([text("n") + struct.pack("<IIQ", ARR, ARR, 1) + struct.pack("<IQ", U8, 0)])
    yield "llama.gguf", gguf(arch_entries("llama") + [entry("llama.rope.freq_base", F32, 1e4)],
                             [tensor("token_embd.weight", [8, 32], 1, 0)], b"\0" * 512)
    yarn = [entry("qwen3.rope.scaling.type", STR, "yarn"), entry("qwen3.rope.scaling.factor", F32, 4.0),
            entry("qwen3.rope.scaling.original_context_length", U32, 16), entry("qwen3.attention.key_length", U32, 4)]
    yield "qwen3_yarn.gguf", gguf(arch_entries("qwen3") + yarn)
    draft = [array("dflash.target_layers", I32, [2, 3]), entry("dflash.block_size", U32, 4),
             entry("tokenizer.ggml.mask_token_id", U32, 5), entry("dflash.attention.sliding_window", U32, 16),
             array("dflash.attention.sliding_window_pattern", BOOL, [1])]
    yield "dflash.gguf", gguf(arch_entries("dflash") + draft, [tensor("fc.weight", [16, 8], 1, 0)], b"\0" * 256)


def st(header, data=b"", length=None):
    raw = header if isinstance(header, bytes) else json.dumps(header, separators=(",", ":")).encode()
    return struct.pack("<Q", len(raw) if length is None else length) + raw + data


def info(dtype, shape, begin, end):
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def safetensors_files():
    yield "one", st({"w": info("BF16", [2, 3], 0, 12)}, b"\1" * 12)
    yield "two", st({"a": info("F32", [2], 0, 8), "b": info("F16", [4], 8, 16), "__metadata__": {"format": "pt"}},
                    b"\2" * 16)
    yield "scalar", st({"s": info("F32", [], 0, 4)}, b"\0" * 4)
    yield "zero_dim", st({"z": info("F32", [0, 4], 0, 0)})
    yield "fp4", st({"f": info("F4", [4], 0, 2), "e": info("F8_E4M3", [3], 2, 5)}, b"\0" * 5)
    yield "overlap", st({"a": info("U8", [4], 0, 4), "b": info("U8", [4], 2, 6)}, b"\0" * 6)
    yield "past_end", st({"a": info("U8", [4], 0, 4)}, b"\0" * 3)
    yield "size_mismatch", st({"a": info("F32", [4], 0, 4)}, b"\0" * 4)
    yield "long_header", st({"a": info("U8", [1], 0, 1)}, b"\0", length=1 << 62)
    yield "not_object", st(b"[1]")
    yield "duplicate", st(b'{"a":{"dtype":"U8","shape":[],"data_offsets":[0,1]},"a":{"dtype":"U8","shape":[],"data_offsets":[0,1]}}', b"\0")
    yield "padded", st(json.dumps({"layers.0.mlp.up_proj.weight": info("BF16", [1, 1], 0, 2)}).encode() + b"   ", b"\0\0")


def config(**more):
    out = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 8, "num_hidden_layers": 2,
           "num_attention_heads": 2, "num_key_value_heads": 1, "intermediate_size": 16, "vocab_size": 32,
           "rms_norm_eps": 1e-5, "max_position_embeddings": 64}
    out.update(more)
    return json.dumps(out).encode()


def config_files():
    draft = dict(architectures=["DFlashDraftModel"], model_type="qwen3", head_dim=4)
    yield "llama.json", config()
    yield "llama3_rope.json", config(rope_scaling={"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
                                                   "high_freq_factor": 4.0, "original_max_position_embeddings": 16})
    yield "qwen2.json", config(architectures=["Qwen2ForCausalLM"], use_sliding_window=True, sliding_window=8,
                               max_window_layers=1)
    yield "qwen3_yarn.json", config(architectures=["Qwen3ForCausalLM"], head_dim=4,
                                    rope_parameters={"rope_theta": 1e6, "rope_type": "yarn", "factor": 4.0, "mscale": 1,
                                                     "mscale_all_dim": 1, "attention_factor": 1.1})
    yield "draft.json", config(**draft, block_size=8, num_target_layers=24,
                               dflash_config={"mask_token_id": 3, "target_layer_ids": [1, 5]})
    yield "draft_rule.json", config(**draft, num_target_layers=24, is_causal=False)
    yield "draft_swa.json", config(**draft, num_target_layers=24, layer_types=["sliding_attention", "full_attention"],
                                   sliding_window=16, dflash_config={"use_swa": True, "swa_window_size": 8, "causal": True})
    yield "draft_dspark.json", config(**draft, num_target_layers=24, dflash_config={"projector_type": "dspark",
                                                                                 "markov_rank": 256})
    yield "draft2.json", config(**{**draft, "architectures": ["DFlash2DraftModel"]},
                                dflash_config={"selector_rank": 256, "target_layer_ids": [0]})
    yield "big_integer.json", config(extra=10 ** 30)
    yield "unknown.json", config(architectures=["MambaForCausalLM"])
    yield "deep.json", b"[" * 200 + b"]" * 200


def main():
    for folder, files in (("gguf", gguf_files()), ("safetensors", safetensors_files()), ("config", config_files())):
        (ROOT / folder).mkdir(parents=True, exist_ok=True)
        for name, raw in files:
            assert len(raw) < 4096, name
            (ROOT / folder / name).write_bytes(raw)


if __name__ == "__main__":
    main()
