#include "attention/registry.h"

#include <string.h>

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
    {"flashinfer", "flash"}, {"triton", "flash"},       {"fa3", "flash"},         {"fa4", "flash"},
    {"torch_native", "naive"}, {"trtllm_mha", "splitkv"}, {"xqa", "splitkv"}, {"flashmla", "splitkv"},
};

df_status df_attn_find(const char *name, const df_attn_entry **out, bool *is_alias, df_error *err) {
  const char *wanted = name;
  *is_alias = false;
  for (size_t i = 0; i < DF_COUNT_OF(k_aliases); i++) {
    if (strcmp(name, k_aliases[i].alias) == 0) {
      wanted = k_aliases[i].name;
      *is_alias = true;
    }
  }
  for (size_t i = 0; i < DF_COUNT_OF(k_leaves); i++) {
    if (strcmp(wanted, k_leaves[i].name) == 0) {
      *out = &k_leaves[i];
      return DF_OK;
    }
  }
  df_error_set(err, DF_ERR_ARGUMENT, __FILE__, __LINE__, "unknown attention backend \"%s\"", name);
  df_error_hint(err, "known backends: flash, splitkv, naive; aliases: flashinfer, triton, fa3, fa4, torch_native, trtllm_mha, xqa, flashmla");
  return DF_ERR_ARGUMENT;
}
