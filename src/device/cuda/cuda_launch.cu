/*
 * cuda_launch.cu - which kernel runs an op, which ops run as one kernel, and the card.
 */
#include <string.h>

#include "device/cuda/cuda_math.cuh"
#include "device/cuda/cuda_ops.cuh"
#include "device/cuda/cuda_start.cuh"
#include "device/cuda/cuda_tune.h"

df_cuda_tuning df_cuda_tune = {.cluster = 0,
                               .early_bytes = 0,
                               .ahead_bytes = 8 << 20,
                               .norm_floats = 12 << 10,
                               .quant_warps = 0,
                               .attn_blocks = 2,
                               .rope_in_attn = 1,
                               .persist = 1,
                               .persist_words = 3,
                               .persist_steps = 200,
                               .persist_cluster = 0,
                               .persist_tiles = 0};

enum { MANY_ROWS = 32, FUSED_ROWS = 8, LOOK_AHEAD = 6 };

/* ---- products ---- */

typedef enum form { FORM_BF16, FORM_F16, FORM_F8, FORM_QUANT, FORM_F32, FORMS } form;

static form form_of(const df_weights *w) {
  if (df_pack_wants_q8(w->pack)) return FORM_QUANT;
  if (w->pack == DF_PACK_F8) return FORM_F8;
  return w->pack == DF_PACK_BF16 ? FORM_BF16 : w->pack == DF_PACK_F16 ? FORM_F16 : FORM_F32;
}

/* The parts of one form. */
static df_op_linear parts_of_form(const df_op_linear *a, form f) {
  df_op_linear out = *a;
  out.n_parts = 0;
  for (uint32_t i = 0; i < a->n_parts; i++)
    if (form_of(a->part[i].w) == f) out.part[out.n_parts++] = a->part[i];
  return out;
}

static int run_linear(const df_cuda_env *env, const df_op_linear *a, const df_cuda_ahead *ahead) {
  for (int f = 0; f < FORMS; f++) {
    const df_op_linear some = parts_of_form(a, (form)f);
    if (some.n_parts == 0) continue;
    int e;
    if (f == FORM_QUANT)
      e = df_cuda_quant_linear(env, &some);
    else if (f == FORM_F32)
      e = df_cuda_f32_linear(env, &some);
    else if (f == FORM_F8)
      e = df_cuda_f8_linear(env, &some);
    else if (env->max_rows > MANY_ROWS)
      e = df_cuda_gemm_linear(env, &some);
    else
      e = df_cuda_mma_linear(env, &some, 0, ahead);
    if (e) return e;
  }
  return 0;
}

/* Gate and up that one kernel takes together with SwiGLU. */
static bool ffn_in_one(const df_op_ffn_up *a) {
  const form f = form_of(a->gate);
  return (f == FORM_BF16 || f == FORM_F16) && f == form_of(a->up) && !a->out.q;
}

static size_t operand_bytes(const df_act *x, uint32_t max_rows) {
  return (df_cuda_gemm_scratch(x->k, max_rows) + 255) & ~(size_t)255;
}

/* Both products to scratch, then SwiGLU. */
static int ffn_in_steps(const df_cuda_env *env, const df_op_ffn_up *a) {
  const size_t at = DF_CUDA_COUNTER_BYTES + operand_bytes(&a->x, env->max_rows), n = a->gate->n;
  if (at + env->max_rows * 2 * n * sizeof(float) > env->scratch_bytes) return 1;
  float *const g = (float *)((uint8_t *)env->scratch + at), *const u = g + n;
  df_op_linear both = {};
  both.x = a->x;
  both.n_rows = a->n_rows;
  both.n_parts = 2;
  both.part[0] = {a->gate, 0, g, 2 * n};
  both.part[1] = {a->up, 0, u, 2 * n};
  const int e = run_linear(env, &both, 0);
  return e ? e : df_cuda_silu(env, g, u, 2 * n, a->out, a->n_rows);
}

static int run_ffn_up(const df_cuda_env *env, const df_op_ffn_up *a, const df_cuda_ahead *ahead) {
  if (!ffn_in_one(a)) return ffn_in_steps(env, a);
  return env->max_rows > MANY_ROWS ? df_cuda_gemm_ffn_up(env, a) : df_cuda_mma_ffn_up(env, a, 0, ahead);
}

extern "C" int df_cuda_linear(const df_cuda_env *env, const df_op_linear *a) { return run_linear(env, a, 0); }
extern "C" int df_cuda_ffn_up(const df_cuda_env *env, const df_op_ffn_up *a) { return run_ffn_up(env, a, 0); }

/* ---- lists ---- */

/* The first weights of the next product that streams them, if it comes soon. */
static bool find_ahead(const df_cuda_env *env, const df_op *ops, uint32_t n, df_cuda_ahead *out) {
  for (uint32_t i = 0; i < n && i < LOOK_AHEAD; i++) {
    const df_weights *w = 0, *u = 0;
    if (ops[i].kind == DF_OP_LINEAR) w = ((const df_op_linear *)ops[i].args)->part[0].w;
    if (ops[i].kind == DF_OP_FFN_UP) {
      w = ((const df_op_ffn_up *)ops[i].args)->gate;
      u = ((const df_op_ffn_up *)ops[i].args)->up;
    }
    if (!w) continue;
    if (!df_cuda_needs_repack(w->pack) || df_cuda_tune.ahead_bytes == 0) return false;
    df_cuda_mma_ahead(env, w, u, out);
    return true;
  }
  return false;
}

bool df_cuda_norm_goes_in(const df_cuda_env *env, const df_op_norm *a, const df_act *x, const uint32_t *n_rows,
                          const float *y) {
  const float *const end = a->x + (size_t)env->max_rows * a->out.k;
  return !a->out.q && a->out.f == x->f && a->out.f != a->x && a->out.k == x->k && a->n_rows == n_rows &&
         (y + 1 <= a->x || y >= end);
}

static bool norm_fits_linear(const df_cuda_env *env, const df_op_norm *a, const df_op_linear *b) {
  const form f = form_of(b->part[0].w);
  if (b->add || (f != FORM_BF16 && f != FORM_F16)) return false;
  for (uint32_t i = 0; i < b->n_parts; i++)
    if (form_of(b->part[i].w) != f || !df_cuda_norm_goes_in(env, a, &b->x, b->n_rows, b->part[i].y)) return false;
  return true;
}

/* Ops from ops[0] on that make up one attention: TILE, or SPLIT with its MERGE. 0: neither. */
static uint32_t attn_ops(const df_op *ops, uint32_t n) {
  if (n > 0 && ops[0].kind == DF_OP_ATTN_TILE) return 1;
  if (n < 2 || ops[0].kind != DF_OP_ATTN_SPLIT || ops[1].kind != DF_OP_ATTN_MERGE) return 0;
  const df_op_attn *a = (const df_op_attn *)ops[0].args, *b = (const df_op_attn *)ops[1].args;
  return a->parts == b->parts && a->batch == b->batch && a->tile_rows == b->tile_rows && a->n_tiles == b->n_tiles &&
                 a->out.f == b->out.f && a->out.q == b->out.q
             ? 2
             : 0;
}

static int launch_norm(const df_cuda_env *env, const df_op *ops, uint32_t n, uint32_t *taken) {
  const df_op_norm *a = (const df_op_norm *)ops[0].args;
  df_cuda_ahead ahead = {};
  *taken = 2;
  if (n > 1 && ops[1].kind == DF_OP_LINEAR && df_cuda_mma_takes_norm(env, a->out.k) &&
      norm_fits_linear(env, a, (const df_op_linear *)ops[1].args)) {
    const bool soon = find_ahead(env, ops + 2, n - 2, &ahead);
    return df_cuda_mma_linear(env, (const df_op_linear *)ops[1].args, a, soon ? &ahead : 0);
  }
  if (n > 1 && ops[1].kind == DF_OP_FFN_UP) {
    const df_op_ffn_up *b = (const df_op_ffn_up *)ops[1].args;
    if (ffn_in_one(b) && df_cuda_norm_goes_in(env, a, &b->x, b->n_rows, b->out.f) &&
        df_cuda_mma_takes_norm(env, a->out.k)) {
      const bool soon = find_ahead(env, ops + 2, n - 2, &ahead);
      return df_cuda_mma_ffn_up(env, b, a, soon ? &ahead : 0);
    }
  }
  *taken = 1;
  return df_cuda_norm(env, a);
}

/* Kernels from elsewhere: whoever emitted the op launches them. */
static int launch_extern(const df_cuda_env *env, const df_op_extern *a) { return a->launch(a->self, a, env); }

static int launch_attn(const df_cuda_env *env, const df_op *ops, uint32_t n, uint32_t *taken) {
  const uint32_t rope = ops[0].kind == DF_OP_ROPE_KV, attn = attn_ops(ops + rope, n - rope);
  const df_op_attn *a = attn ? (const df_op_attn *)ops[rope].args : 0;
  const df_op_rope_kv *r = rope ? (const df_op_rope_kv *)ops[0].args : 0;
  *taken = 1;
  if (r && !(a && env->max_rows <= FUSED_ROWS && df_cuda_attn_takes_rope(a, r))) return df_cuda_rope_kv(env, r);
  if (!a) return df_cuda_attn(env, ops[0].kind, (const df_op_attn *)ops[0].args);
  *taken = rope + attn;
  return df_cuda_attn_run(env, ops[rope].kind, a, r, true);
}

extern "C" int df_cuda_launch(const df_cuda_env *env, const df_op *ops, uint32_t n, uint32_t *taken) {
  const void *a = ops[0].args;
  df_cuda_ahead ahead = {};
  const bool whole = env->list && ops[0].kind != DF_OP_ACCEPT;
  *taken = whole ? df_cuda_list_ops(ops, n) : 1;
  if (whole) return df_cuda_list_launch(env);
  switch (ops[0].kind) {
    case DF_OP_EMBED: return df_cuda_embed(env, (const df_op_embed *)a);
    case DF_OP_NORM: return launch_norm(env, ops, n, taken);
    case DF_OP_QUANTIZE: return df_cuda_quantize(env, (const df_op_quantize *)a);
    case DF_OP_LINEAR:
      return run_linear(env, (const df_op_linear *)a, find_ahead(env, ops + 1, n - 1, &ahead) ? &ahead : 0);
    case DF_OP_FFN_UP:
      return run_ffn_up(env, (const df_op_ffn_up *)a, find_ahead(env, ops + 1, n - 1, &ahead) ? &ahead : 0);
    case DF_OP_TAP: return df_cuda_tap(env, (const df_op_tap *)a);
    case DF_OP_ARGMAX: return df_cuda_argmax(env, (const df_op_argmax *)a);
    case DF_OP_ACCEPT: return df_cuda_accept(env, (const df_op_accept *)a);
    case DF_OP_ROPE_KV:
    case DF_OP_ATTN_NAIVE:
    case DF_OP_ATTN_TILE:
    case DF_OP_ATTN_SPLIT:
    case DF_OP_ATTN_MERGE: return launch_attn(env, ops, n, taken);
    case DF_OP_ATTN_EXTERN: return launch_extern(env, (const df_op_extern *)a);
    default: return 801; /* cudaErrorNotSupported */
  }
}

static size_t op_scratch(const df_op *op, uint32_t max_rows) {
  const bool many = max_rows > MANY_ROWS;
  if (op->kind == DF_OP_LINEAR) return many ? operand_bytes(&((const df_op_linear *)op->args)->x, max_rows) : 0;
  if (op->kind == DF_OP_ATTN_TILE || op->kind == DF_OP_ATTN_SPLIT) { /* rows that whole passes keep as floats */
    const df_act *out = &((const df_op_attn *)op->args)->out;
    return out->q && max_rows <= FUSED_ROWS ? (size_t)max_rows * out->k * sizeof(float) : 0;
  }
  if (op->kind != DF_OP_FFN_UP) return 0;
  const df_op_ffn_up *a = (const df_op_ffn_up *)op->args;
  const size_t operands = operand_bytes(&a->x, max_rows);
  return ffn_in_one(a) ? (many ? operands : 0) : operands + (size_t)max_rows * 2 * a->gate->n * sizeof(float);
}

extern "C" size_t df_cuda_scratch_bytes(const df_op *ops, uint32_t n, uint32_t max_rows, uint32_t max_seqs) {
  (void)max_seqs;
  size_t most = 0;
  for (uint32_t i = 0; i < n; i++) {
    const size_t bytes = op_scratch(&ops[i], max_rows);
    if (bytes > most) most = bytes;
  }
  return DF_CUDA_COUNTER_BYTES + most;
}
