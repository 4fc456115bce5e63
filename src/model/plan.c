#include "model/plan.h"

#include <stdio.h>

#include "base/size.h"
#include "format/weights_source.h"

uint32_t df_context_default(const df_config *c) {
  return DF_MIN(c->context_length ? c->context_length : DF_DEFAULT_CTX, (uint32_t)DF_DEFAULT_CTX);
}

uint64_t df_kv_token_bytes(const df_config *c, bool f32) {
  return (uint64_t)2 * c->n_layers * c->n_kv_heads * c->head_dim * (f32 ? 4 : 2);
}

/* Cards keep f16. */
static uint64_t token_bytes(const df_config *c) { return df_kv_token_bytes(c, false); }

/* Bytes of all tensors of the draft; *token: of its part of the pool. */
static uint64_t draft_bytes(const char *path, uint64_t *token) {
  df_source *s;
  df_error why = {0};
  uint64_t bytes = 0;
  *token = 0;
  if (!path || df_source_open(path, &s, &why) != DF_OK) return 0;
  for (size_t i = 0; i < df_source_count(s); i++) {
    df_tensor_view v;
    df_source_at(s, i, &v);
    bytes += v.n_bytes;
  }
  *token = token_bytes(df_source_config(s));
  df_source_close(s);
  return bytes;
}

df_plan df_plan_make(const df_config *c, const df_model_params *p) {
  const double mib = 1024.0 * 1024.0;
  df_plan plan = {.bytes = 0};
  if (p->n_seqs == 0) return plan;
  uint64_t draft_token;
  const uint64_t draft = draft_bytes(p->draft, &draft_token), each = token_bytes(c) + draft_token;
  uint64_t tokens = (uint64_t)p->n_seqs * (p->n_ctx ? p->n_ctx : df_context_default(c));
  if (p->kv_bytes && each) tokens = DF_MIN(tokens, p->kv_bytes / each);
  plan.bytes = tokens * each + draft;
  const int n = snprintf(plan.text, sizeof plan.text, "a KV pool of %llu tokens (%.1f MiB)", (unsigned long long)tokens,
                         (double)(tokens * each) / mib);
  if (draft && n > 0 && (size_t)n < sizeof plan.text)
    (void)snprintf(plan.text + n, sizeof plan.text - (size_t)n, " and the draft (%.1f MiB)", (double)draft / mib);
  return plan;
}
