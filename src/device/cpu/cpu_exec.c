#include "device/cpu/cpu_exec.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base/size.h"
#include "device/cpu/cpu_ops.h"

enum {
  TILE_FLOATS = 2 * DF_TILE_ROWS * DF_FFN_MAX_BLOCKS * DF_QBLOCK,
  PART_FLOATS = 2 * DF_ATTN_MAX_QUERIES * (DF_ATTN_PART + DF_ATTN_MAX_HEAD),
  BLOCK_FLOATS = 2 * DF_KV_CHUNK * DF_ATTN_MAX_HEAD,
  WORKER_FLOATS = TILE_FLOATS + PART_FLOATS + BLOCK_FLOATS
};

typedef struct profile_row {
  _Alignas(64) uint64_t ns[DF_OP_COUNT];
} profile_row;

struct df_cpu {
  df_pool *pool;
  df_cpu_ctx ctx;
  float *memory;
  size_t memory_bytes;
  const df_op *ops; /* of the program being run */
  bool profiling;
  profile_row *profile; /* [workers] */
};

static const df_op_run k_run[DF_OP_COUNT] = {
    [DF_OP_EMBED] = df_run_embed,
    [DF_OP_NORM] = df_run_norm,
    [DF_OP_QUANTIZE] = df_run_quantize,
    [DF_OP_LINEAR] = df_run_linear,
    [DF_OP_FFN_UP] = df_run_ffn_up,
    [DF_OP_ROPE_KV] = df_run_rope_kv,
    [DF_OP_TAP] = df_run_tap,
    [DF_OP_ATTN_NAIVE] = df_run_attn_naive,
    [DF_OP_ATTN_TILE] = df_run_attn_tile,
    [DF_OP_ATTN_SPLIT] = df_run_attn_split,
    [DF_OP_ATTN_MERGE] = df_run_attn_merge,
    [DF_OP_RECURRENT] = df_run_recurrent,
    [DF_OP_ARGMAX] = df_run_argmax,
    [DF_OP_ACCEPT] = df_run_accept,
};

df_status df_cpu_create(df_pool *pool, const df_kernels *kernels, df_cpu **out, df_error *err) {
  const uint32_t n = df_pool_threads(pool);
  df_cpu *c = df_calloc(1, sizeof *c);
  if (!c) return DF_OOM(err, "the CPU executor", sizeof *c);
  c->pool = pool;
  c->ctx.k = kernels;
  c->ctx.scratch = df_calloc(n, sizeof *c->ctx.scratch);
  c->memory_bytes = (size_t)n * WORKER_FLOATS * sizeof(float);
  c->memory = df_pages_alloc(c->memory_bytes);
  c->profile = df_pages_alloc(n * sizeof *c->profile);
  if (!c->ctx.scratch || !c->memory || !c->profile) {
    const size_t bytes = c->memory_bytes;
    df_cpu_free(c);
    return DF_OOM(err, "worker scratch", bytes);
  }
  for (uint32_t i = 0; i < n; i++) {
    df_scratch *s = &c->ctx.scratch[i];
    s->tile = c->memory + (size_t)i * WORKER_FLOATS;
    s->parts = s->tile + TILE_FLOATS;
    s->blocks = (uint8_t *)(s->parts + PART_FLOATS);
  }
  *out = c;
  return DF_OK;
}

void df_cpu_free(df_cpu *c) {
  if (!c) return;
  df_pages_free(c->memory, c->memory_bytes);
  df_pages_free(c->profile, df_pool_threads(c->pool) * sizeof *c->profile);
  df_free(c->ctx.scratch);
  df_free(c);
}

df_pool *df_cpu_pool(const df_cpu *c) { return c->pool; }
const df_kernels *df_cpu_kernels(const df_cpu *c) { return c->ctx.k; }

/* What a chunk needs to find its op. Lives in the program's walk: a late worker may still read it, so it
 * holds only what never changes for the program. */
static void run_chunk(void *arg, uint32_t step, uint32_t chunk, uint32_t worker) {
  df_cpu *c = arg;
  const df_op *op = &c->ops[step];
  k_run[op->kind](&c->ctx, op->args, chunk, worker);
}

static void run_chunk_profiled(void *arg, uint32_t step, uint32_t chunk, uint32_t worker) {
  df_cpu *c = arg;
  const df_op *op = &c->ops[step];
  const uint64_t t0 = df_now_ns();
  k_run[op->kind](&c->ctx, op->args, chunk, worker);
  c->profile[worker].ns[op->kind] += df_now_ns() - t0;
}

void df_cpu_run(df_cpu *c, df_program *p) {
  uint32_t n;
  c->ops = df_program_ops(p, &n); /* read only by workers that hold a chunk of this walk */
  df_pool_walk(c->pool, df_program_steps(p), n, df_program_chunks(p), c->profiling ? run_chunk_profiled : run_chunk, c);
}

void df_cpu_profile(df_cpu *c, bool on) { c->profiling = on; }

void df_cpu_profile_get(const df_cpu *c, uint64_t ns[DF_OP_COUNT], bool reset) {
  for (uint32_t k = 0; k < DF_OP_COUNT; k++) {
    ns[k] = 0;
    for (uint32_t i = 0; i < df_pool_threads(c->pool); i++) {
      ns[k] += c->profile[i].ns[k];
      if (reset) c->profile[i].ns[k] = 0;
    }
  }
}

void df_cpu_quiesce(df_cpu *c) { df_pool_quiesce(c->pool); }
