/*
 * support/tiny_model.h - small target and draft files with seeded random weights, written as GGUF, that the whole
 * engine can run in milliseconds.
 *
 * Vocabulary: ids 0..255 are the single bytes, then TINY_END (end of text), TINY_TURN (end of turn, "<|im_end|>"),
 * TINY_START ("<|im_start|>"), TINY_MASK, and normal tokens made by merges ("th", "he", "in", "an", "the"). Rows up to
 * the vocabulary size of the spec are padding without text.
 *
 * A target mostly repeats the token it saw, and its layers throw it off that track now and then; the draft copies what
 * it finds in the context. So drafts are accepted sometimes, never always, and no weights need training.
 *
 * Ownership: the functions write files and keep nothing. Threads: any.
 */
#ifndef DF_TEST_SUPPORT_TINY_MODEL_H
#define DF_TEST_SUPPORT_TINY_MODEL_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/kernels.h"

enum { TINY_END = 256, TINY_TURN = 257, TINY_START = 258, TINY_MASK = 259, TINY_TOKENS = 265 };

typedef struct tiny_spec {
  const char *arch; /* "llama", "qwen2", "qwen3" */
  uint32_t n_layers, hidden, n_heads, n_kv_heads, head_dim, ffn, vocab, context;
  df_dtype dtype; /* of matrices: DF_F32, DF_F16, DF_BF16 or DF_Q8_0 (hidden, heads * head_dim and ffn multiples of 32
                     then) */
  bool untied;    /* has its own output matrix */
  bool bias;      /* q, k, v */
  bool qk_norm;
  float gain; /* size of what layers add to the stream */
  uint64_t seed;
  const char *rope_scaling; /* "linear", "yarn" or NULL */
  float rope_factor;
  uint32_t rope_original;
  const char *chat_template; /* NULL: none */
  /* faults */
  const char *omit; /* leaves this tensor out */
  const char *bend; /* this tensor gets one output (or value) too many */
} tiny_spec;

typedef struct tiny_draft_spec {
  const tiny_spec *target; /* for which it is made */
  uint32_t n_layers, n_heads, n_kv_heads, head_dim, ffn, block_size;
  uint32_t n_taps, taps[4];
  df_dtype dtype;
  float gain; /* noise on top of the copying */
  uint64_t seed;
  /* differences from what the target would need; 0 or NULL: none */
  uint32_t hidden, vocab;
  int64_t mask; /* -1: not stated; 0: TINY_MASK */
  bool other_tokenizer, no_tokenizer, rank_table;
  const char *omit, *bend;
} tiny_draft_spec;

/* 2 layers, hidden 64, 4 heads over 2, head width 32, ffn 96, 300 rows, context 512, F32, tied. */
tiny_spec tiny_spec_default(void);
/* 1 layer of the same widths, block 16, taps of layers 0 and 1. */
tiny_draft_spec tiny_draft_default(const tiny_spec *target);

/* Writes a file; fails the current test when that is not possible. */
void tiny_model_write(const tiny_spec *s, const char *path);
void tiny_draft_write(const tiny_draft_spec *d, const char *path);

#endif
