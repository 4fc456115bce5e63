/* Any bytes as a safetensors file. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "format/safetensors.h"
#include "format/tensor_names.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static volatile uint64_t g_sum;

/* A name that is ours must lead back to itself by one of its spellings. */
static void check_name(const char *name) {
  char ours[DF_NAME_MAX], again[DF_NAME_MAX], back[DF_NAME_MAX];
  if (!df_name_from_hf(name, ours)) return;
  for (unsigned i = 0; i < DF_NAME_SPELLINGS; i++) {
    if (!df_name_to_hf(ours, i, again)) continue;
    if (!df_name_from_hf(again, back) || strcmp(back, ours) != 0) abort();
    if (strcmp(again, name) == 0) return;
  }
  abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  void *copy = df_alloc(size);
  df_st *st = NULL;
  df_error err;
  if (!copy) return 0;
  if (size) memcpy(copy, data, size);
  if (df_st_open_bytes(copy, size, "fuzz", &st, &err) == DF_OK) {
    uint64_t total = 0;
    for (size_t i = 0; i < df_st_count(st); i++) {
      const df_st_tensor *t = df_st_at(st, i);
      const uint8_t *p = t->data;
      for (size_t j = 0; j < t->n_bytes; j++) g_sum = g_sum + p[j];
      if (df_st_find(st, t->name) != t) abort();
      check_name(t->name);
      total += t->n_bytes;
    }
    if (total > size) abort(); /* nothing overlaps */
    df_st_free(st);
  } else if (err.msg[0] == '\0' || strchr(err.msg, '\n')) {
    abort();
  }
  df_free(copy);
  return 0;
}
