#include "device/cpu/cpu_device.h"

#include "base/mem.h"

typedef struct cpu_device {
  df_device base;
  df_cpu *cpu;
} cpu_device;

static df_status cpu_map(df_device *d, void *base, size_t bytes, df_mem_kind kind, const char *what, df_error *err) {
  (void)d, (void)base, (void)bytes, (void)kind, (void)what, (void)err;
  return DF_OK;
}

static df_status cpu_map_weights(df_device *d, void *block, size_t bytes, const df_weights *w, size_t n,
                                 const char *what, df_error *err) {
  (void)d, (void)block, (void)bytes, (void)w, (void)n, (void)what, (void)err;
  return DF_OK;
}

static void cpu_unmap(df_device *d, void *base) { (void)d, (void)base; }

static df_status cpu_fits(df_device *d, uint64_t bytes, const char *what, df_error *err) {
  (void)d, (void)bytes, (void)what, (void)err; /* memory is backed as it is used; the system has the last word */
  return DF_OK;
}

static df_status cpu_prepare(df_device *d, df_program *p, bool recorded, df_error *err) {
  (void)d, (void)recorded;
  uint32_t n;
  const df_op *ops = df_program_ops(p, &n);
  for (uint32_t i = 0; i < n; i++)
    if (ops[i].kind == DF_OP_ATTN_EXTERN)
      return DF_FAIL(err, DF_ERR_UNSUPPORTED, "the processor cannot run op %s", df_op_name(ops[i].kind));
  return DF_OK;
}

static df_status cpu_run(df_device *d, df_program *p, df_error *err) {
  (void)err;
  df_cpu_run(((cpu_device *)d)->cpu, p);
  return DF_OK;
}

static df_status cpu_range(df_device *d, const void *from, size_t bytes, df_error *err) {
  (void)d, (void)from, (void)bytes, (void)err;
  return DF_OK;
}

static void cpu_quiesce(df_device *d) { df_cpu_quiesce(((cpu_device *)d)->cpu); }

static void cpu_info(const df_device *d, df_device_info *out) {
  (void)d;
  *out = (df_device_info){.name = "cpu"};
}

static void cpu_free(df_device *d) {
  df_cpu_free(((cpu_device *)d)->cpu);
  df_free(d);
}

static const df_device_ops k_cpu_ops = {.map = cpu_map,
                                        .map_weights = cpu_map_weights,
                                        .unmap = cpu_unmap,
                                        .fits = cpu_fits,
                                        .prepare = cpu_prepare,
                                        .run = cpu_run,
                                        .fetch = cpu_range,
                                        .put = cpu_range,
                                        .quiesce = cpu_quiesce,
                                        .info = cpu_info,
                                        .free = cpu_free};

df_status df_cpu_device_create(df_pool *pool, const df_kernels *kernels, df_device **out, df_error *err) {
  cpu_device *d = df_calloc(1, sizeof *d);
  if (!d) return DF_OOM(err, "a device", sizeof *d);
  d->base = (df_device){.ops = &k_cpu_ops,
                        .is_host = true,
                        .leaves = DF_LEAVES_HOST,
                        .argmax_segments = 4,
                        .n_workers = df_pool_threads(pool)};
  const df_status s = df_cpu_create(pool, kernels, &d->cpu, err);
  if (s != DF_OK) {
    df_free(d);
    return s;
  }
  *out = &d->base;
  return DF_OK;
}
