/*
 * model/plan.h - what will share a card's memory with the weights: the KV pool and the draft, counted before anything
 * of a model is read. Threads: pure but for reading the draft's list of tensors.
 */
#ifndef DF_MODEL_PLAN_H
#define DF_MODEL_PLAN_H

#include "base/error.h"
#include "dflash/model.h"
#include "format/config.h"

enum { DF_DEFAULT_CTX = 8192 }; /* bounds the page table; memory of the host is used only as far as texts go */

/* Keys and values of one token, in f32 or f16. */
uint64_t df_kv_token_bytes(const df_config *c, bool f32);

/* Positions of one sequence when nobody says how many. */
uint32_t df_context_default(const df_config *c);

typedef struct df_plan {
  uint64_t bytes; /* 0: nothing but the weights */
  char text[160]; /* "a KV pool of 8192 tokens (512.0 MiB) and the draft (30.1 MiB)" */
} df_plan;

/* For p->n_seqs, n_ctx, kv_bytes and draft. A draft that cannot be read is left out: whoever opens it says why. */
df_plan df_plan_make(const df_config *c, const df_model_params *p);

#endif
