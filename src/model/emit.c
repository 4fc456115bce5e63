/* The target's pass as ops: embedding, layers with taps, output tail. */
#include "base/size.h"
#include "model/model.h"

static df_status emit_taps(const df_decoder_pass *p, uint32_t layer, uint32_t hidden, df_error *err) {
  for (uint32_t t = 0; t < p->n_taps; t++) {
    if (p->taps[t] != layer) continue;
    const df_op_tap op = {.x = p->ws->x,
                          .dst = p->tap_out + (size_t)t * hidden,
                          .ld = (size_t)p->n_taps * hidden,
                          .k = hidden,
                          .n_rows = &p->batch->n_rows,
                          .to_row = p->batch->tap_row};
    DF_TRY(df_emit_tap(p->program, &op, err));
  }
  return DF_OK;
}

df_status df_model_emit_head(df_program *p, const df_weights *head, df_act in, const uint32_t *n_rows, df_workspace *ws,
                             bool argmax, df_error *err) {
  df_op_linear op = {.x = in, .n_rows = n_rows, .n_parts = 1};
  op.part[0] = (df_linear_part){head, NULL, ws->logits, ws->logits_ld};
  DF_TRY(df_emit_linear(p, &op, err));
  if (!argmax) return DF_OK;
  const df_op_argmax am = {.x = ws->logits,
                           .ld = ws->logits_ld,
                           .n = head->n,
                           .segments = ws->segments,
                           .n_rows = n_rows,
                           .best = ws->best,
                           .best_id = ws->best_id};
  return df_emit_argmax(p, &am, err);
}

/* Elsewhere than on the host the tokens are found there too, and what stands of drafts. */
static df_status emit_accept(const df_decoder_pass *p, df_error *err) {
  df_workspace *w = p->ws;
  const df_op_accept op = {.best = df_workspace_best_logits(w),
                           .drafts = p->drafts,
                           .n_rows = &p->batch->n_out,
                           .token = w->token,
                           .drafted = w->drafted,
                           .accepted = w->accepted};
  return df_emit_accept(p->program, &op, err);
}

static df_status emit_tail(const df_model *m, const df_decoder_pass *p, df_error *err) {
  const df_weights *const head[] = {&m->head};
  const df_act in = df_act_for(p->ws->tail, head, 1);
  const df_op_norm norm = {p->ws->x, m->final_norm, &p->batch->n_out, p->batch->out_row, in, m->cfg.rms_eps};
  DF_TRY(df_emit_norm(p->program, &norm, err));
  DF_TRY(df_model_emit_head(p->program, &m->head, in, &p->batch->n_out, p->ws, p->argmax, err));
  return p->argmax && p->ws->token ? emit_accept(p, err) : DF_OK;
}

static df_layer_pass layer_pass(const df_model *m, const df_decoder_pass *p, uint32_t i) {
  const df_config *c = &m->cfg;
  return (df_layer_pass){.program = p->program,
                         .batch = p->batch,
                         .ws = p->ws,
                         .rope = p->rope,
                         .cfg = c,
                         .attn = p->attn,
                         .attn_pass = {p->program, p->batch, p->mode, p->mask, p->mask_buffer, 0},
                         .kv = df_kv_store_layer(p->kv, i),
                         .layer = i,
                         .causal = true,
                         .window = c->sliding[i] ? c->sliding_window : 0};
}

/* Both halves of a split batch, stage by stage in turn. */
static df_status emit_split_layer(const df_model *m, const df_decoder_pass *p, uint32_t i, df_error *err) {
  df_layer_pass lp[2];
  for (uint32_t h = 0; h < 2; h++) {
    lp[h] = layer_pass(m, p, i);
    lp[h].batch = lp[h].attn_pass.batch = &p->halves[h];
    lp[h].ws = &p->half_ws[h];
    lp[h].attn = p->attn->ops->half(p->attn, h);
    lp[h].attn_pass.seq0 = h ? p->halves[0].n_seqs : 0;
  }
  for (uint32_t h = 0; h < 2; h++) DF_TRY(df_layer_emit_attention(&m->layers[i], &lp[h], err));
  for (uint32_t h = 0; h < 2; h++) DF_TRY(df_layer_emit_ffn(&m->layers[i], &lp[h], err));
  return DF_OK;
}

df_status df_model_emit(const df_model *m, const df_decoder_pass *p, df_error *err) {
  const df_config *c = &m->cfg;
  const df_op_embed embed = {.table = &m->embed,
                             .ids = p->batch->ids,
                             .n_rows = &p->batch->n_rows,
                             .out = p->ws->x,
                             .scale = 1.0f,
                             .drafts = p->drafts};
  DF_TRY(df_emit_embed(p->program, &embed, err));
  for (uint32_t h = 0; p->halves && h < 2; h++) p->half_ws[h] = df_workspace_view(p->ws, h ? p->split_rows : 0);
  for (uint32_t i = 0; i < c->n_layers; i++) {
    const df_layer_pass lp = layer_pass(m, p, i);
    DF_TRY(p->halves ? emit_split_layer(m, p, i, err) : df_layer_emit(&m->layers[i], &lp, err));
    DF_TRY(emit_taps(p, i, c->hidden, err));
  }
  return p->logits ? emit_tail(m, p, err) : DF_OK;
}
