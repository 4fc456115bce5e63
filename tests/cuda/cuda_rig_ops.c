/* cuda_rig_ops.c - op structs with device addresses, and running lists of ops on both sides. */
#include <stdio.h>
#include <string.h>

#include "cuda/cuda_rig.h"
#include "device/cpu/cpu_exec.h"

#define TWIN(r, field) ((field) = rig_at((r), (field)))

static const df_weights *twin_weights(rig *r, const df_weights *w) { return w ? &r->device_w[w - r->host_w] : NULL; }

static void twin_act(rig *r, df_act *a) {
  TWIN(r, a->f);
  TWIN(r, a->q);
}

static void twin_best(rig *r, df_best *b) {
  TWIN(r, b->value);
  TWIN(r, b->id);
  TWIN(r, b->map);
}

static void twin_drafts(rig *r, df_drafts *d) {
  twin_best(r, &d->best);
  TWIN(r, d->n_live);
}

df_op_embed rig_embed(rig *r, const df_op_embed *a) {
  df_op_embed d = *a;
  d.table = twin_weights(r, a->table);
  twin_drafts(r, &d.drafts);
  TWIN(r, d.ids);
  TWIN(r, d.n_rows);
  TWIN(r, d.out);
  return d;
}

df_op_norm rig_norm(rig *r, const df_op_norm *a) {
  df_op_norm d = *a;
  TWIN(r, d.x);
  TWIN(r, d.w);
  TWIN(r, d.n_rows);
  TWIN(r, d.row_map);
  twin_act(r, &d.out);
  return d;
}

df_op_quantize rig_quantize(rig *r, const df_op_quantize *a) {
  df_op_quantize d = *a;
  TWIN(r, d.x);
  TWIN(r, d.n_rows);
  TWIN(r, d.row_map);
  twin_act(r, &d.out);
  return d;
}

df_op_linear rig_linear(rig *r, const df_op_linear *a) {
  df_op_linear d = *a;
  twin_act(r, &d.x);
  TWIN(r, d.n_rows);
  for (uint32_t i = 0; i < d.n_parts; i++) {
    d.part[i].w = twin_weights(r, a->part[i].w);
    TWIN(r, d.part[i].bias);
    TWIN(r, d.part[i].y);
  }
  return d;
}

df_op_ffn_up rig_ffn_up(rig *r, const df_op_ffn_up *a) {
  df_op_ffn_up d = *a;
  twin_act(r, &d.x);
  twin_act(r, &d.out);
  TWIN(r, d.n_rows);
  d.gate = twin_weights(r, a->gate);
  d.up = twin_weights(r, a->up);
  return d;
}

static void twin_kv(rig *r, df_kv_view *kv) {
  TWIN(r, kv->k);
  TWIN(r, kv->v);
}

df_op_rope_kv rig_rope_kv(rig *r, const df_op_rope_kv *a) {
  df_op_rope_kv d = *a;
  TWIN(r, d.q);
  TWIN(r, d.k);
  TWIN(r, d.v);
  TWIN(r, d.q_norm);
  TWIN(r, d.k_norm);
  TWIN(r, d.cos);
  TWIN(r, d.sin);
  TWIN(r, d.pos);
  TWIN(r, d.slot);
  TWIN(r, d.n_rows);
  twin_kv(r, &d.kv);
  return d;
}

df_op_tap rig_tap(rig *r, const df_op_tap *a) {
  df_op_tap d = *a;
  TWIN(r, d.x);
  TWIN(r, d.dst);
  TWIN(r, d.n_rows);
  TWIN(r, d.row_map);
  TWIN(r, d.to_row);
  return d;
}

df_op_argmax rig_argmax(rig *r, const df_op_argmax *a) {
  df_op_argmax d = *a;
  TWIN(r, d.x);
  TWIN(r, d.n_rows);
  TWIN(r, d.best);
  TWIN(r, d.best_id);
  return d;
}

df_op_accept rig_accept(rig *r, const df_op_accept *a) {
  df_op_accept d = *a;
  TWIN(r, d.best.value);
  TWIN(r, d.best.id);
  TWIN(r, d.best.map);
  TWIN(r, d.drafts.best.value);
  TWIN(r, d.drafts.best.id);
  TWIN(r, d.drafts.best.map);
  TWIN(r, d.drafts.n_live);
  TWIN(r, d.n_rows);
  TWIN(r, d.token);
  TWIN(r, d.drafted);
  TWIN(r, d.accepted);
  return d;
}

df_op_attn rig_attn(rig *r, const df_op_attn *a, df_mask_buffer *mask) {
  df_op_attn d = *a;
  /* the batch struct lies in a block, and its device twin gets device addresses in place of the host's */
  df_batch b = *a->batch;
  TWIN(r, b.ids);
  TWIN(r, b.pos);
  TWIN(r, b.slot);
  TWIN(r, b.q_start);
  TWIN(r, b.kv_len);
  TWIN(r, b.page_table);
  TWIN(r, b.out_row);
  b.state_slot = NULL;
  b.mask = NULL;
  TWIN(r, d.batch);
  rig_ok(r, dev_put((void *)(uintptr_t)d.batch, &b, sizeof b), "batch");
  if (a->mask) {
    *mask = *a->mask;
    TWIN(r, mask->bytes);
    TWIN(r, mask->start);
    d.mask = mask;
  }
  TWIN(r, d.q);
  TWIN(r, d.parts);
  twin_act(r, &d.out);
  twin_kv(r, &d.kv);
  return d;
}

void rig_add(rig_list *l, df_op_kind kind, const void *args) {
  static const size_t size[DF_OP_COUNT] = {
      [DF_OP_EMBED] = sizeof(df_op_embed),       [DF_OP_NORM] = sizeof(df_op_norm),
      [DF_OP_QUANTIZE] = sizeof(df_op_quantize), [DF_OP_LINEAR] = sizeof(df_op_linear),
      [DF_OP_FFN_UP] = sizeof(df_op_ffn_up),     [DF_OP_ROPE_KV] = sizeof(df_op_rope_kv),
      [DF_OP_TAP] = sizeof(df_op_tap),           [DF_OP_ATTN_NAIVE] = sizeof(df_op_attn),
      [DF_OP_ATTN_TILE] = sizeof(df_op_attn),    [DF_OP_ATTN_SPLIT] = sizeof(df_op_attn),
      [DF_OP_ATTN_MERGE] = sizeof(df_op_attn),   [DF_OP_ARGMAX] = sizeof(df_op_argmax),
      [DF_OP_ACCEPT] = sizeof(df_op_accept)};
  memcpy(&l->host[l->n], args, size[kind]);
  l->op[l->n] = (df_op){kind, 0, &l->host[l->n]};
  l->n++;
}

static df_status emit(df_program *p, df_op_kind kind, const void *args, df_error *err) {
  switch (kind) {
    case DF_OP_EMBED: return df_emit_embed(p, args, err);
    case DF_OP_NORM: return df_emit_norm(p, args, err);
    case DF_OP_QUANTIZE: return df_emit_quantize(p, args, err);
    case DF_OP_LINEAR: return df_emit_linear(p, args, err);
    case DF_OP_FFN_UP: return df_emit_ffn_up(p, args, err);
    case DF_OP_ROPE_KV: return df_emit_rope_kv(p, args, err);
    case DF_OP_TAP: return df_emit_tap(p, args, err);
    case DF_OP_ARGMAX: return df_emit_argmax(p, args, err);
    case DF_OP_ACCEPT: return df_emit_accept(p, args, err);
    default: return df_emit_attn(p, kind, args, err);
  }
}

void rig_run_host(rig *r, rig_list *l, uint32_t max_rows, uint32_t max_seqs) {
  df_program *p = NULL;
  df_error err = {0};
  df_status s = df_program_create(max_rows, max_seqs, 1, &p, &err);
  for (uint32_t i = 0; s == DF_OK && i < l->n; i++) s = emit(p, l->op[i].kind, &l->host[i], &err);
  if (s == DF_OK)
    df_cpu_run(r->cpu, p);
  else
    rig_case(r, false, "recording the host's ops: %s", err.msg);
  df_program_free(p);
}

static void twin_op(rig *r, rig_list *l, uint32_t i) {
  switch (l->op[i].kind) {
    case DF_OP_EMBED: l->device[i].embed = rig_embed(r, &l->host[i].embed); break;
    case DF_OP_NORM: l->device[i].norm = rig_norm(r, &l->host[i].norm); break;
    case DF_OP_QUANTIZE: l->device[i].quantize = rig_quantize(r, &l->host[i].quantize); break;
    case DF_OP_LINEAR: l->device[i].linear = rig_linear(r, &l->host[i].linear); break;
    case DF_OP_FFN_UP: l->device[i].ffn_up = rig_ffn_up(r, &l->host[i].ffn_up); break;
    case DF_OP_ROPE_KV: l->device[i].rope_kv = rig_rope_kv(r, &l->host[i].rope_kv); break;
    case DF_OP_TAP: l->device[i].tap = rig_tap(r, &l->host[i].tap); break;
    case DF_OP_ARGMAX: l->device[i].argmax = rig_argmax(r, &l->host[i].argmax); break;
    case DF_OP_ACCEPT: l->device[i].accept = rig_accept(r, &l->host[i].accept); break;
    default: l->device[i].attn = rig_attn(r, &l->host[i].attn, &l->mask[i]); break;
  }
}

static int run_one(const df_cuda_env *env, const df_op *op) {
  switch (op->kind) {
    case DF_OP_EMBED: return df_cuda_embed(env, op->args);
    case DF_OP_NORM: return df_cuda_norm(env, op->args);
    case DF_OP_QUANTIZE: return df_cuda_quantize(env, op->args);
    case DF_OP_LINEAR: return df_cuda_linear(env, op->args);
    case DF_OP_FFN_UP: return df_cuda_ffn_up(env, op->args);
    case DF_OP_ROPE_KV: return df_cuda_rope_kv(env, op->args);
    case DF_OP_TAP: return df_cuda_tap(env, op->args);
    case DF_OP_ARGMAX: return df_cuda_argmax(env, op->args);
    case DF_OP_ACCEPT: return df_cuda_accept(env, op->args);
    default: return df_cuda_attn(env, op->kind, op->args);
  }
}

/* The list of a program that runs as one kernel, in a block of its own that goes with rig_clear; NULL: it does not. */
static const df_cuda_list *make_list(rig *r, const df_op *ops, uint32_t n, df_cuda_list *l) {
  if (!r->whole || !df_cuda_list_plan(&r->env, ops, n, l)) return NULL;
  uint8_t *host = rig_new(r, l->bytes, RIG_SKIP, "list");
  df_cuda_list_fill(&r->env, ops, n, l, host);
  l->memory = rig_at(r, host);
  rig_ok(r, dev_put(l->memory, host, l->bytes), "list");
  return l;
}

void rig_run_device(rig *r, rig_list *l, uint32_t max_rows, uint32_t max_seqs, bool one_by_one) {
  df_cuda_list list;
  df_op ops[64];
  rig_upload(r);
  for (uint32_t i = 0; i < l->n; i++) {
    twin_op(r, l, i);
    ops[i] = (df_op){l->op[i].kind, 0, &l->device[i]};
  }
  r->env.max_rows = max_rows;
  r->env.max_seqs = max_seqs;
  if (df_cuda_scratch_bytes(ops, l->n, max_rows, max_seqs) > r->env.scratch_bytes) {
    rig_case(r, false, "the test's scratch is too small");
    return;
  }
  r->launches = 0;
  r->env.list = one_by_one ? NULL : make_list(r, ops, l->n, &list);
  for (uint32_t i = 0, taken = 1; i < l->n; i += taken, r->launches++) {
    taken = 1;
    const int e = one_by_one ? run_one(&r->env, &ops[i]) : df_cuda_launch(&r->env, &ops[i], l->n - i, &taken);
    rig_ok(r, e, df_op_name(ops[i].kind));
  }
  r->env.list = NULL;
  rig_sync(r, "kernels");
}
