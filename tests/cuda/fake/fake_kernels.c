/* The launchers: an op is done by the processor's function for it, when its turn in the stream comes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <cuda_runtime_api.h>
#include <string.h>

#include "base/mem.h"
#include "cuda/fake/fake_state.h"
#include "device/cpu/cpu_ops.h"
#include "device/cuda/cuda_kernels.h"

enum { LONGER = 64, FLIP = 0x5A };

/* ---- the card ------------------------------------------------------------------------------------------- */

const char *df_cuda_error_name(int code) { return code == cudaErrorIllegalAddress ? "illegal" : "other"; }
const char *df_cuda_error_text(int code) { return cudaGetErrorString((cudaError_t)code); }
const char *df_cuda_built_archs(void) { return g_fake.card.archs; }

int df_cuda_kernels_init(df_cuda_card *card) {
  *card = (df_cuda_card){.name = "made up",
                         .major = (uint32_t)g_fake.card.major,
                         .minor = (uint32_t)g_fake.card.minor,
                         .n_sm = 4,
                         .memory_bytes = g_fake.card.memory};
  return 0;
}

/* ---- weights -------------------------------------------------------------------------------------------- */

bool df_cuda_needs_repack(df_pack pack) { return pack == DF_PACK_F16 || pack == DF_PACK_BF16; }

static size_t host_strip(uint32_t k) {
  size_t bytes = 0;
  assert_true(df_pack_strip_bytes(DF_PACK_F16, k, &bytes));
  return bytes;
}

size_t df_cuda_fragment_strip_bytes(uint32_t k) { return host_strip(k) + LONGER; }

size_t df_cuda_weights_bytes(const df_weights *w) {
  return (df_cuda_needs_repack(w->pack) ? df_cuda_fragment_strip_bytes(w->k) : w->strip_bytes) * df_strips(w->n);
}

void df_cuda_repack(const df_weights *w, uint32_t s0, uint32_t s1, void *dst) {
  const size_t own = host_strip(w->k);
  uint8_t *to = dst;
  for (uint32_t s = s0; s < s1; s++, to += own + LONGER) {
    for (size_t i = 0; i < own; i++) to[i] = w->data[s * own + i] ^ FLIP;
    memset(to + own, FLIP, LONGER);
  }
}

/* The processor's form of a matrix on the card; to be freed when it is not w itself. */
static const df_weights *as_host(const df_weights *w, df_weights *copy) {
  if (!df_cuda_needs_repack(w->pack)) return w;
  const size_t own = host_strip(w->k);
  *copy = *w;
  copy->data = df_alloc(own * df_strips(w->n) + 64);
  assert_non_null(copy->data);
  for (uint32_t s = 0; s < df_strips(w->n); s++)
    for (size_t i = 0; i < own; i++) copy->data[s * own + i] = w->data[s * (own + LONGER) + i] ^ FLIP;
  return copy;
}

/* ---- ops ------------------------------------------------------------------------------------------------ */

static const df_op_run k_run[DF_OP_COUNT] = {
    [DF_OP_EMBED] = df_run_embed,
    [DF_OP_NORM] = df_run_norm,
    [DF_OP_QUANTIZE] = df_run_quantize,
    [DF_OP_LINEAR] = df_run_linear,
    [DF_OP_FFN_UP] = df_run_ffn_up,
    [DF_OP_ROPE_KV] = df_run_rope_kv,
    [DF_OP_TAP] = df_run_tap,
    [DF_OP_ATTN_TILE] = df_run_attn_tile,
    [DF_OP_ATTN_SPLIT] = df_run_attn_split,
    [DF_OP_ATTN_MERGE] = df_run_attn_merge,
    [DF_OP_ARGMAX] = df_run_argmax,
    [DF_OP_ACCEPT] = df_run_accept,
};

static void run_chunks(const df_op *op, const void *args) {
  enum { FLOATS = 1 << 17 };
  static float memory[3 * FLOATS];
  df_scratch scratch = {memory, memory + FLOATS, (uint8_t *)(memory + 2 * FLOATS)};
  const df_cpu_ctx ctx = {df_kernels_get(df_cpu_best_tier()), &scratch};
  for (uint32_t c = 0; c < op->n_chunks; c++) k_run[op->kind](&ctx, args, c, 0);
}

static void free_copies(const df_weights *copy, uint32_t n) {
  for (uint32_t i = 0; i < n; i++) df_free(copy[i].data);
}

static void run_op(const fake_work *w) {
  const df_op *op = &w->op;
  df_weights copy[DF_LINEAR_PARTS] = {{0}};
  if (op->kind == DF_OP_EMBED) {
    df_op_embed a = *(const df_op_embed *)op->args;
    a.table = as_host(a.table, &copy[0]);
    run_chunks(op, &a);
  } else if (op->kind == DF_OP_FFN_UP) {
    df_op_ffn_up a = *(const df_op_ffn_up *)op->args;
    a.gate = as_host(a.gate, &copy[0]);
    a.up = as_host(a.up, &copy[1]);
    run_chunks(op, &a);
  } else if (op->kind == DF_OP_LINEAR) {
    df_op_linear a = *(const df_op_linear *)op->args;
    for (uint32_t i = 0; i < a.n_parts; i++) a.part[i].w = as_host(a.part[i].w, &copy[i]);
    run_chunks(op, &a);
  } else {
    assert_non_null(k_run[op->kind]);
    run_chunks(op, op->args);
  }
  free_copies(copy, DF_LINEAR_PARTS);
}

size_t df_cuda_scratch_bytes(const df_op *ops, uint32_t n, uint32_t max_rows, uint32_t max_seqs) {
  (void)ops, (void)n, (void)max_seqs;
  return DF_CUDA_COUNTER_BYTES + (size_t)max_rows * 1024; /* so that it grows with the passes */
}

/* Programs of one row run as one kernel here, but for what tells the host. Its list tells how many ops there are, and
 * where it was asked for. */
typedef struct fake_list {
  uint32_t n, max_rows;
  const void *scratch;
} fake_list;

static uint32_t list_ops(const df_op *ops, uint32_t n) { return n && ops[n - 1].kind == DF_OP_ACCEPT ? n - 1 : n; }

size_t df_cuda_list_plan(const df_cuda_env *env, const df_op *ops, uint32_t n, df_cuda_list *out) {
  (void)ops, (void)n;
  *out = (df_cuda_list){.bytes = env->max_rows == 1 ? sizeof(fake_list) : 0};
  return out->bytes;
}

void df_cuda_list_fill(const df_cuda_env *env, const df_op *ops, uint32_t n, const df_cuda_list *l, void *host) {
  assert_int_equal(l->bytes, sizeof(fake_list));
  *(fake_list *)host = (fake_list){list_ops(ops, n), env->max_rows, env->scratch};
}

/* The list is what was filled in for this launch. */
static void check_list(const fake_work *w) {
  const fake_list *l = w->from;
  assert_int_equal(l->n, w->value);
  assert_int_equal(l->max_rows, 1);
}

/* A rotation and what is behind it go together, as with kernels that fuse. */
int df_cuda_launch(const df_cuda_env *env, const df_op *ops, uint32_t n, uint32_t *taken) {
  assert_true(env->card && env->stream && env->scratch && n > 0);
  assert_true(env->scratch_bytes >= df_cuda_scratch_bytes(ops, n, env->max_rows, env->max_seqs));
  g_fake.counts.op_launches++;
  if (g_fake.fail_launch && --g_fake.fail_launch == 0) {
    g_fake.failed = g_fake.fail_code;
    return g_fake.fail_code;
  }
  *taken = ops[0].kind == DF_OP_ROPE_KV && n > 1 ? 2 : 1;
  if (env->list && ops[0].kind != DF_OP_ACCEPT) {
    g_fake.counts.whole++;
    *taken = list_ops(ops, n);
    fake_enqueue(&(fake_work){.run = check_list, .from = env->list->memory, .value = (int)*taken});
  }
  for (uint32_t i = 0; i < *taken; i++) fake_enqueue(&(fake_work){.run = run_op, .op = ops[i]});
  return 0;
}
