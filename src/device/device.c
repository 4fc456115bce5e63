/* Devices by name, and the blocks of a batch. */
#include "device/device.h"

#include <string.h>

#include "base/size.h"
#include "device/cpu/cpu_device.h"
#include "device/cuda/cuda_device.h"
#include "device/cuda/third/third_attn.h"

enum { MAX_PROVIDED = 4 };

static struct {
  const char *name;
  df_device_create_fn create;
} g_provided[MAX_PROVIDED];

void df_device_provide(const char *name, df_device_create_fn create) {
  for (uint32_t i = 0; i < MAX_PROVIDED; i++) {
    if (g_provided[i].name && strcmp(g_provided[i].name, name) != 0) continue;
    g_provided[i].name = name;
    g_provided[i].create = create;
    return;
  }
}

static df_device_create_fn provided(const char *name) {
  for (uint32_t i = 0; i < MAX_PROVIDED; i++)
    if (g_provided[i].name && strcmp(g_provided[i].name, name) == 0) return g_provided[i].create;
  return NULL;
}

typedef enum device_kind { DEVICE_CPU, DEVICE_CUDA, DEVICE_AUTO, DEVICE_PROVIDED } device_kind;

static df_status unknown(const char *name, df_error *err) {
  (void)DF_FAIL(err, DF_ERR_ARGUMENT, "unknown device \"%.40s\"", name);
  df_error_hint(err, "cpu, cuda, cuda:N (N counts cards from 0) or auto");
  return DF_ERR_ARGUMENT;
}

/* "cuda:12" to its parts. */
static df_status parse(const char *name, device_kind *kind, uint32_t *index, df_error *err) {
  *index = 0;
  *kind = DEVICE_CPU;
  if (!name || strcmp(name, "cpu") == 0) return DF_OK;
  *kind = DEVICE_AUTO;
  if (strcmp(name, "auto") == 0) return DF_OK;
  *kind = DEVICE_PROVIDED;
  if (provided(name)) return DF_OK;
  *kind = DEVICE_CUDA;
  if (strncmp(name, "cuda", 4) != 0) return unknown(name, err);
  if (name[4] == '\0') return DF_OK;
  const char *digit = name + 5;
  if (name[4] != ':' || !*digit || strlen(digit) > 3) return unknown(name, err);
  for (; *digit; digit++) {
    if (*digit < '0' || *digit > '9') return unknown(name, err);
    *index = *index * 10 + (uint32_t)(*digit - '0');
  }
  return DF_OK;
}

df_leaf_set df_device_card_leaves(void) { return df_fa2_get() ? DF_LEAVES_CUDA_THIRD : DF_LEAVES_CUDA; }

df_status df_device_check(const char *name, df_leaf_set *leaves, df_error *err) {
  device_kind kind;
  uint32_t index;
  DF_TRY(parse(name, &kind, &index, err));
  if (kind == DEVICE_CUDA) DF_TRY(df_cuda_check(index, err));
  const bool card = kind == DEVICE_CUDA || (kind == DEVICE_AUTO && df_cuda_check(0, NULL) == DF_OK);
  if (leaves) *leaves = card ? df_device_card_leaves() : DF_LEAVES_HOST;
  return DF_OK;
}

df_status df_device_open(const char *name, df_pool *pool, const df_kernels *kernels, df_device **out, df_error *err) {
  device_kind kind;
  uint32_t index;
  DF_TRY(parse(name, &kind, &index, err));
  switch (kind) {
    case DEVICE_PROVIDED: return provided(name)(pool, kernels, out, err);
    case DEVICE_CUDA: return df_cuda_device_create(index, out, err);
    case DEVICE_AUTO:
      if (df_cuda_check(0, NULL) == DF_OK) return df_cuda_device_create(0, out, err);
      break;
    case DEVICE_CPU: break;
  }
  return df_cpu_device_create(pool, kernels, out, err);
}

df_status df_device_map_batch(df_device *d, df_batch *b, df_error *err) {
  DF_TRY(df_device_map(d, b, sizeof *b, DF_MEM_BATCH, "the inputs of a pass", err));
  return df_device_map(d, b->block, b->block_bytes, DF_MEM_INPUT, "the inputs of a pass", err);
}

void df_device_unmap_batch(df_device *d, df_batch *b) {
  df_device_unmap(d, b->block);
  df_device_unmap(d, b);
}
