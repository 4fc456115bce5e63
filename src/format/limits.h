/*
 * format/limits.h - the largest numbers a file may claim. Every count is also checked against the bytes that are
 * really there; these bounds exist so that a hostile file cannot make us spend memory or time far beyond any
 * real model, and so that later 32-bit arithmetic is safe.
 */
#ifndef DF_FORMAT_LIMITS_H
#define DF_FORMAT_LIMITS_H

enum {
  /* GGUF. Real files carry 20 to 60 keys; a key is at most 65535 bytes by the format. */
  DF_LIMIT_GGUF_KEYS = 1 << 16,
  DF_LIMIT_GGUF_KEY_BYTES = 65535,
  /* Mixture models reach a few thousand tensors, per-expert exports tens of thousands. */
  DF_LIMIT_TENSORS = 1 << 18,
  /* The format says 64; exports with long prefixes pass that. */
  DF_LIMIT_TENSOR_NAME_BYTES = 255,
  DF_LIMIT_DIMS = 4,
  /* Data is used in place, so it must be aligned for 8-byte loads; a page is the most that mapping guarantees. */
  DF_LIMIT_GGUF_ALIGN_MIN = 8,
  DF_LIMIT_GGUF_ALIGN_MAX = 1 << 16,

  /* JSON. config.json is a few KB; an index of a 600-tensor model 60 KB; per-expert ones some MB. */
  DF_LIMIT_JSON_BYTES = 64 << 20,
  DF_LIMIT_CONFIG_BYTES = 4 << 20,
  /* Deeper than any tool schema; the parser and our walkers recurse once per level. */
  DF_LIMIT_JSON_DEPTH = 128,
  /* The reference implementation refuses safetensors headers above 100 MB. */
  DF_LIMIT_ST_HEADER_BYTES = 100 << 20,
  /* Largest published models have below 200 shards. */
  DF_LIMIT_SHARDS = 4096,
  DF_LIMIT_FILE_NAME_BYTES = 255,

  /* Model geometry: an order of magnitude above anything published, small enough that products of three of
   * them fit 64 bits and products of two with a block size fit size_t. */
  DF_LIMIT_LAYERS = 1024,
  DF_LIMIT_HIDDEN = 1 << 17,
  DF_LIMIT_HEADS = 4096,
  DF_LIMIT_HEAD_DIM = 4096,
  DF_LIMIT_FFN = 1 << 20,
  DF_LIMIT_VOCAB = 1 << 22,
  DF_LIMIT_CONTEXT = 1 << 28,
  DF_LIMIT_BLOCK_SIZE = 256,
  DF_LIMIT_TAPS = 64
};

#endif
