#include "attention/registry.h"

#include <stdatomic.h>
#include <string.h>

#include "base/edit.h"
#include "base/log.h"
#include "base/size.h"

static const df_attn_entry k_leaves[] = {
    {"flash", df_attn_flash_create},
    {"splitkv", df_attn_splitkv_create},
    {"naive", df_attn_naive_create},
};

/* On a CPU-only build: prefill-shaped kernels of other engines map to flash, decode-shaped ones to splitkv. */
static const struct {
  const char *alias, *name;
} k_aliases[] = {
    {"flashinfer", "flash"},   {"triton", "flash"},       {"fa3", "flash"},   {"fa4", "flash"},
    {"torch_native", "naive"}, {"trtllm_mha", "splitkv"}, {"xqa", "splitkv"}, {"flashmla", "splitkv"},
};

/* Index in k_aliases, -1 when it is none. */
static int alias_of(const char *name) {
  for (size_t i = 0; i < DF_COUNT_OF(k_aliases); i++)
    if (strcmp(name, k_aliases[i].alias) == 0) return (int)i;
  return -1;
}

/* The known name that a mistyped one is nearest to, or NULL. */
static const char *nearest(const char *name) {
  const char *best = NULL;
  unsigned limit = strlen(name) <= 5 ? 2 : 3;
  for (size_t i = 0; i < DF_COUNT_OF(k_leaves) + DF_COUNT_OF(k_aliases); i++) {
    const char *known = i < DF_COUNT_OF(k_leaves) ? k_leaves[i].name : k_aliases[i - DF_COUNT_OF(k_leaves)].alias;
    unsigned d = df_edit_distance(name, strlen(name), known, strlen(known), limit);
    if (strlen(name) >= 3 && strncmp(name, known, strlen(name)) == 0) d = 1; /* "trtllm" for "trtllm_mha" */
    if (d > limit || (best && d == limit)) continue;
    limit = d;
    best = known;
  }
  return best;
}

df_status df_attn_find(const char *name, const df_attn_entry **out, bool *is_alias, df_error *err) {
  const int alias = alias_of(name);
  const char *wanted = alias < 0 ? name : k_aliases[alias].name;
  *is_alias = alias >= 0;
  for (size_t i = 0; i < DF_COUNT_OF(k_leaves); i++) {
    if (strcmp(wanted, k_leaves[i].name) == 0) { /* a name the user gave. checksrc: allow backend-name */
      *out = &k_leaves[i];
      return DF_OK;
    }
  }
  const char *near = nearest(name);
  if (near)
    (void)DF_FAIL(err, DF_ERR_ARGUMENT, "unknown attention backend \"%.60s\", did you mean \"%s\"?", name, near);
  else
    (void)DF_FAIL(err, DF_ERR_ARGUMENT, "unknown attention backend \"%.60s\" (use flash, splitkv or naive)", name);
  df_error_hint(err,
                "known backends: flash, splitkv, naive; aliases: flashinfer, triton, fa3, fa4, torch_native, "
                "trtllm_mha, xqa, flashmla");
  return DF_ERR_ARGUMENT;
}

void df_attn_alias_report(const char *name) {
  static atomic_uint reported; /* bit per alias: engines come and go, the user reads it once */
  const int alias = alias_of(name);
  if (alias < 0 || atomic_fetch_or(&reported, 1u << alias) & 1u << alias) return;
  df_log(DF_LOG_INFO, "attention backend \"%s\" runs as \"%s\" on this device", name, k_aliases[alias].name);
}
