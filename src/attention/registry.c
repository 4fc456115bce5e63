#include "attention/registry.h"

#include <stdatomic.h>
#include <string.h>

#include "base/edit.h"
#include "base/log.h"
#include "base/size.h"
#include "kv/pages.h"

static const df_attn_entry k_host[] = {
    {"flash", df_attn_flash_create, DF_PAGE_SIZES},
    {"splitkv", df_attn_splitkv_create, DF_PAGE_SIZES},
    {"naive", df_attn_naive_create, DF_PAGE_SIZES},
};

static const df_attn_entry k_cuda[] = {
    {"cuda", df_attn_cuda_create, DF_PAGE_SIZES},
    {"flashinfer", df_attn_flashinfer_create, DF_PAGE_SIZES},
    {"xqa", df_attn_xqa_create, DF_PAGE_SIZES & ~1u},
};

static const struct {
  const df_attn_entry *leaf;
  uint32_t n;
} k_sets[DF_LEAVES_COUNT] = {[DF_LEAVES_HOST] = {k_host, DF_COUNT_OF(k_host)},
                             [DF_LEAVES_CUDA] = {k_cuda, 1},
                             [DF_LEAVES_CUDA_THIRD] = {k_cuda, DF_COUNT_OF(k_cuda)}};

/* What a name that is no leaf of a set stands for there, NULL: nothing. On the processor prefill-shaped kernels of
 * other engines map to flash, decode-shaped ones to splitkv. On a card one leaf has both roles; with kernels of
 * flashinfer-python built in, their names mean themselves. */
static const struct {
  const char *alias;
  const char *name[DF_LEAVES_COUNT];
} k_aliases[] = {
    {"flashinfer", {"flash", "cuda", NULL}},     {"triton", {"flash", "cuda", "cuda"}},
    {"fa3", {"flash", "cuda", "cuda"}},          {"fa4", {"flash", "cuda", "cuda"}},
    {"torch_native", {"naive", "cuda", "cuda"}}, {"trtllm_mha", {"splitkv", "cuda", "xqa"}},
    {"xqa", {"splitkv", "cuda", NULL}},          {"flashmla", {"splitkv", "cuda", "cuda"}},
    {"flash", {NULL, "cuda", "cuda"}},           {"splitkv", {NULL, "cuda", "cuda"}},
    {"naive", {NULL, "cuda", "cuda"}},
};

/* Index in k_aliases of a name that is an alias in this set, -1 when it is none. */
static int alias_of(const char *name, df_leaf_set set) {
  for (size_t i = 0; i < DF_COUNT_OF(k_aliases); i++)
    if (k_aliases[i].name[set] && strcmp(name, k_aliases[i].alias) == 0) return (int)i;
  return -1;
}

static const df_attn_entry *leaf_of(const char *name, df_leaf_set set) {
  for (uint32_t i = 0; i < k_sets[set].n; i++)
    if (strcmp(name, k_sets[set].leaf[i].name) == 0) return &k_sets[set].leaf[i]; /* checksrc: allow backend-name */
  return NULL;
}

/* Of the names of a set, then its aliases: name i, NULL behind the last. */
static const char *name_at(df_leaf_set set, size_t i) {
  if (i < k_sets[set].n) return k_sets[set].leaf[i].name;
  i -= k_sets[set].n;
  return i < DF_COUNT_OF(k_aliases) ? k_aliases[i].alias : NULL;
}

/* The known name that a mistyped one is nearest to, or NULL. */
static const char *nearest(const char *name, df_leaf_set set) {
  const char *best = NULL, *known;
  const size_t letters = strlen(name);
  unsigned limit = letters < 4 ? 1 : letters < 6 ? 2 : 3; /* short names are near everything */
  for (size_t i = 0; (known = name_at(set, i)) != NULL; i++) {
    unsigned d = df_edit_distance(name, strlen(name), known, strlen(known), limit);
    if (strlen(name) >= 3 && strncmp(name, known, strlen(name)) == 0) d = 1; /* "trtllm" for "trtllm_mha" */
    if (d > limit || (best && d == limit)) continue;
    limit = d;
    best = known;
  }
  return best;
}

/* A name that only another device knows. */
static df_status elsewhere(const char *name, df_error *err) {
  (void)DF_FAIL(err, DF_ERR_UNSUPPORTED, "attention backend \"%.60s\" runs on a card only", name);
  df_error_hint(err, "give --device cuda, or one of flash, splitkv, naive");
  return DF_ERR_UNSUPPORTED;
}

df_status df_attn_find(const char *name, df_leaf_set set, const df_attn_entry **out, bool *is_alias, df_error *err) {
  const int alias = alias_of(name, set);
  const df_attn_entry *leaf = leaf_of(alias < 0 ? name : k_aliases[alias].name[set], set);
  *is_alias = alias >= 0;
  if (leaf) {
    *out = leaf;
    return DF_OK;
  }
  if (set == DF_LEAVES_HOST && leaf_of(name, DF_LEAVES_CUDA_THIRD)) return elsewhere(name, err);
  const char *near = nearest(name, set);
  static const char *const k_own[DF_LEAVES_COUNT] = {"flash, splitkv or naive", "cuda", "cuda, flashinfer or xqa"};
  const char *own = k_own[set];
  if (near)
    (void)DF_FAIL(err, DF_ERR_ARGUMENT, "unknown attention backend \"%.60s\", did you mean \"%s\"?", name, near);
  else
    (void)DF_FAIL(err, DF_ERR_ARGUMENT, "unknown attention backend \"%.60s\" (use %s)", name, own);
  df_error_hint(err,
                "known backends: flash, splitkv, naive; aliases: flashinfer, triton, fa3, fa4, torch_native, "
                "trtllm_mha, xqa, flashmla; with --device cuda: cuda%s",
                df_device_card_leaves() == DF_LEAVES_CUDA_THIRD ? ", flashinfer, xqa" : "");
  return DF_ERR_ARGUMENT;
}

const df_attn_entry *df_attn_leaves(df_leaf_set set, uint32_t *n) {
  *n = k_sets[set].n;
  return k_sets[set].leaf;
}

const df_attn_entry *df_attn_default(const df_device *d) { return &k_sets[d ? d->leaves : DF_LEAVES_HOST].leaf[0]; }

void df_attn_alias_report(const char *name, df_leaf_set set) {
  static atomic_uint reported[DF_LEAVES_COUNT]; /* bit per alias: engines come and go, the user reads it once */
  const int alias = alias_of(name, set);
  if (alias < 0 || atomic_fetch_or(&reported[set], 1u << alias) & 1u << alias) return;
  df_log(DF_LOG_INFO, "attention backend \"%s\" runs as \"%s\" on this device", name, k_aliases[alias].name[set]);
}
