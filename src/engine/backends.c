#include "engine/backends.h"

#include <string.h>

#include "attention/hybrid.h"
#include "attention/registry.h"
#include "attention/tbo.h"

static const char *first_of(const char *a, const char *b, const char *c) { return a ? a : b ? b : c; }

static df_status find(const char *name, df_leaf_set set, const df_attn_entry **out, df_error *err) {
  bool alias;
  DF_TRY(df_attn_find(name, set, out, &alias, err));
  df_attn_alias_report(name, set);
  return DF_OK;
}

static df_status verify_on_decode(const char *mode, bool *out, df_error *err) {
  if (!mode || strcmp(mode, "prefill") == 0)
    *out = false;
  else if (strcmp(mode, "decode") == 0)
    *out = true;
  else
    return DF_FAIL(err, DF_ERR_ARGUMENT, "unknown speculative attention mode \"%s\" (prefill, decode)", mode);
  return DF_OK;
}

/* A leaf for this entry, sharing one that an earlier phase already has. */
static df_status leaf_for(const df_attn_entry *e, const df_attn_shape *shape, const df_attn_entry *const *have,
                          df_attn *const *leaves, uint32_t n, df_attn **out, df_error *err) {
  for (uint32_t i = 0; i < n; i++) {
    if (have[i] != e) continue;
    *out = leaves[i];
    return DF_OK;
  }
  return e->create(shape, out, err);
}

static void free_leaves(df_attn **leaf, uint32_t n) {
  for (uint32_t i = 0; i < n; i++) {
    bool shared = false;
    for (uint32_t j = 0; j < i; j++) shared |= leaf[j] == leaf[i];
    if (!shared) df_attn_free(leaf[i]);
  }
}

static df_status create_stack(const df_session_params *p, const df_attn_shape *shape, df_attn **out, df_error *err) {
  const df_leaf_set set = shape->device ? shape->device->leaves : DF_LEAVES_HOST;
  const char *all = p->attention_backend ? p->attention_backend : df_attn_default(shape->device)->name;
  const char *names[3] = {first_of(p->prefill_attention_backend, all, NULL),
                          first_of(p->decode_attention_backend, all, NULL), p->verify_attention_backend};
  const uint32_t n = names[2] ? 3 : 2;
  bool on_decode = false;
  DF_TRY(verify_on_decode(p->speculative_attention_mode, &on_decode, err));
  const df_attn_entry *entry[3];
  df_attn *leaf[3] = {NULL, NULL, NULL};
  for (uint32_t i = 0; i < n; i++) DF_TRY(find(names[i], set, &entry[i], err));
  for (uint32_t i = 0; i < n; i++) {
    const df_status s = leaf_for(entry[i], shape, entry, leaf, i, &leaf[i], err);
    if (s != DF_OK) {
      free_leaves(leaf, i);
      return s;
    }
  }
  if (leaf[0] == leaf[1] && (!leaf[2] || leaf[2] == leaf[0])) {
    *out = leaf[0];
    return DF_OK;
  }
  return df_attn_hybrid_create(leaf[0], leaf[1], leaf[2], on_decode, out, err);
}

df_status df_backends_create(const df_session_params *p, const df_attn_shape *shape, df_attn **out, df_error *err) {
  df_attn *stack[3] = {NULL, NULL, NULL};
  const uint32_t n = p->two_batch_overlap ? 3 : 1;
  for (uint32_t i = 0; i < n; i++) {
    const df_status s = create_stack(p, shape, &stack[i], err);
    if (s != DF_OK) {
      for (uint32_t j = 0; j < i; j++) df_attn_free(stack[j]);
      return s;
    }
  }
  if (n == 3) return df_attn_tbo_create(stack[0], stack[1], stack[2], out, err);
  *out = stack[0];
  return DF_OK;
}
