#include "engine/request.h"

#include <string.h>

#include "base/clock.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/size.h"

df_generate_params df_generate_params_default(void) {
  return (df_generate_params){.max_tokens = 256, .sampling = df_sampling_params_default()};
}

double df_stats_accept_length(const df_stats *st) {
  return st->verify_steps ? (double)st->emitted_verify / st->verify_steps : 1.0;
}

static df_status check_request(const df_model *m, const int32_t *ids, size_t n, uint32_t n_ctx,
                               const df_generate_params *p, df_error *err) {
  if (n == 0) return DF_FAIL(err, DF_ERR_ARGUMENT, "the prompt is empty");
  if (p->max_tokens == 0) return DF_FAIL(err, DF_ERR_ARGUMENT, "max_tokens must be at least 1");
  if (n >= n_ctx) {
    df_error_set(err, DF_ERR_LIMIT, __FILE__, __LINE__,
                 "the prompt has %zu tokens, the context holds %u and needs room for one more", n, n_ctx);
    df_error_hint(err, "shorten the prompt or raise the context size");
    return DF_ERR_LIMIT;
  }
  for (size_t i = 0; i < n; i++)
    if (ids[i] < 0 || (uint32_t)ids[i] >= m->cfg.vocab)
      return DF_FAIL(err, DF_ERR_ARGUMENT, "token %d at position %zu is outside the vocabulary of %u", ids[i], i,
                     m->cfg.vocab);
  return df_sampling_params_check(&p->sampling, err);
}

static df_status init_stop(df_request *q, df_error *err) {
  const df_generate_params *p = &q->p;
  df_text_piece strings[DF_STOP_MAX_STRINGS];
  if (p->n_stop > DF_STOP_MAX_STRINGS)
    return DF_FAIL(err, DF_ERR_LIMIT, "%u stop strings, at most %d are allowed", p->n_stop, DF_STOP_MAX_STRINGS);
  for (uint32_t i = 0; i < p->n_stop; i++) strings[i] = (df_text_piece){p->stop[i], strlen(p->stop[i])};
  size_t n_eog;
  const int32_t *eog = df_tokenizer_eog_ids(q->m->tok, &n_eog);
  const df_stop_config c = {.strings = strings,
                            .n_strings = p->n_stop,
                            .eos_ids = eog,
                            .n_eos_ids = (uint32_t)n_eog,
                            .max_new_tokens = p->max_tokens,
                            .context_tokens = q->n_ctx - q->n_prompt,
                            .min_tokens = p->min_tokens,
                            .ignore_eos = p->ignore_eos};
  return df_stop_init(&q->stop, &c, err);
}

static df_status init_all(df_request *q, const int32_t *ids, df_error *err) {
  const df_sampling_params *sp = &q->p.sampling;
  q->penalties = sp->repetition_penalty != 1.0f || sp->presence_penalty != 0.0f || sp->frequency_penalty != 0.0f;
  q->greedy = sp->temperature == 0.0f && !q->penalties && sp->n_bias == 0;
  q->cap = DF_MIN(q->n_ctx, q->n_prompt + q->p.max_tokens) + DF_MAX_WIDTH + 1;
  q->ids = df_alloc((size_t)q->cap * sizeof *q->ids);
  if (!q->ids) return DF_OOM(err, "a request's tokens", q->cap * sizeof *q->ids);
  memcpy(q->ids, ids, q->n_prompt * sizeof *ids);
  q->n_ids = q->n_prompt;
  DF_TRY(init_stop(q, err));
  df_detok_init(&q->detok, q->m->tok, q->p.show_special);
  DF_TRY(df_buf_reserve(&q->raw, 4096, err));
  DF_TRY(df_buf_reserve(&q->text, 4096, err));
  if (!q->penalties) return DF_OK;
  DF_TRY(df_seen_init(&q->seen, DF_MIN(q->cap, q->m->cfg.vocab), err));
  for (uint32_t i = 0; i < q->n_prompt; i++) DF_TRY(df_seen_push(&q->seen, ids[i], false, err));
  return DF_OK;
}

df_status df_request_init(df_request *q, df_model *m, df_workspace *ws, df_sampler_scratch *scratch, const int32_t *ids,
                          size_t n, uint32_t n_valid, uint32_t n_ctx, uint32_t width, uint32_t tap_floats,
                          df_kv_seq *seq, const df_generate_params *p, df_error *err) {
  DF_TRY(check_request(m, ids, n, n_ctx, p, err));
  *q = (df_request){.p = *p,
                    .m = m,
                    .ws = ws,
                    .scratch = scratch,
                    .n_prompt = (uint32_t)n,
                    .n_valid = n_valid,
                    .n_ctx = n_ctx,
                    .width = width,
                    .t_start = df_now_ns()};
  const df_status s = init_all(q, ids, err);
  if (s != DF_OK) {
    df_request_release(q);
    return s;
  }
  df_width_estimate_init(&q->est);
  if (tap_floats) {
    q->pending.rows = df_alloc((size_t)DF_TILE_ROWS * tap_floats * sizeof(float));
    if (!q->pending.rows) {
      df_request_release(q);
      return DF_OOM(err, "features of plain steps", (size_t)DF_TILE_ROWS * tap_floats * sizeof(float));
    }
  }
  q->r.stats.prompt_tokens = (uint32_t)n;
  q->r.stats.cached_tokens = n_valid;
  q->seq = *seq;
  *seq = (df_kv_seq){0};
  return DF_OK;
}

void df_request_release(df_request *q) {
  if (q->stop.block || q->stop.pending.data) df_stop_release(&q->stop);
  df_seen_release(&q->seen);
  df_buf_release(&q->raw);
  df_buf_release(&q->text);
  df_free(q->pending.rows);
  df_free(q->ids);
  *q = (df_request){0};
}

df_status df_request_pick(void *ctx, uint32_t row, uint32_t out_row, int32_t *id, df_error *err) {
  df_request *q = ctx;
  if (q->penalties && row > 0) DF_TRY(df_seen_push(&q->seen, q->drafted[row - 1], true, err));
  if (q->greedy) {
    *id = df_workspace_best(q->ws, out_row);
    return DF_OK;
  }
  const float *logits = q->ws->logits + out_row * q->ws->logits_ld;
  return df_sampler_pick(&q->p.sampling, logits, q->m->cfg.vocab, q->penalties ? &q->seen : NULL, q->base + row,
                         q->scratch, id, NULL, err);
}

static void hash_rows(df_request *q, uint32_t out_row, uint32_t rows) {
  for (uint32_t r = out_row; r < out_row + rows; r++)
    q->r.logits_hash =
        df_hash_bytes(q->ws->logits + r * q->ws->logits_ld, q->m->cfg.vocab * sizeof(float), q->r.logits_hash);
}

static void send(df_request *q, const int32_t *ids, uint32_t n, uint32_t drafted, uint32_t accepted) {
  const df_event ev = {q->text.data ? q->text.data : "", q->text.len, ids, n, drafted, accepted};
  if (q->p.on_event && !q->p.on_event(q->p.user, &ev)) q->cancelled = true;
}

df_status df_request_emit(df_request *q, const int32_t *ids, uint32_t n, uint32_t out_row, uint32_t drafted,
                          uint32_t accepted, df_error *err) {
  df_text_piece pieces[DF_MAX_WIDTH];
  for (uint32_t i = 0; i < n; i++) {
    pieces[i] = (df_text_piece){"", 0};
    if (!q->p.show_special && df_tokenizer_is_special(q->m->tok, ids[i])) continue;
    const char *bytes;
    size_t len;
    if (!df_tokenizer_piece(q->m->tok, ids[i], &bytes, &len))
      continue; /* padding rows of the vocabulary have no text */
    pieces[i] = (df_text_piece){bytes, len};
  }
  df_stop_result res;
  q->raw.len = q->text.len = 0;
  DF_TRY(df_stop_feed(&q->stop, ids, pieces, n, &q->raw, &res, err));
  if (q->raw.len) DF_TRY(df_detok_push_bytes(&q->detok, q->raw.data, q->raw.len, &q->text, err));
  if (res.finish != DF_FINISH_NONE) DF_TRY(df_detok_flush(&q->detok, &q->text, err));
  if (q->p.hash_logits) hash_rows(q, out_row, res.kept);
  memcpy(q->ids + q->n_ids, ids, res.kept * sizeof *ids);
  q->n_ids += res.kept;
  q->r.stats.new_tokens += res.kept;
  q->r.finish = res.finish;
  if (res.finish != DF_FINISH_NONE) q->state = DF_REQ_DONE;
  send(q, ids, res.kept, drafted, accepted);
  return DF_OK;
}

bool df_request_wants_cancel(const df_request *q) { return q->cancelled || (q->p.cancel && *q->p.cancel); }

df_status df_request_cancel(df_request *q, df_error *err) {
  q->state = DF_REQ_DONE;
  q->r.finish = DF_FINISH_CANCELLED;
  q->raw.len = q->text.len = 0;
  DF_TRY(df_stop_flush(&q->stop, &q->raw, err));
  if (q->raw.len) DF_TRY(df_detok_push_bytes(&q->detok, q->raw.data, q->raw.len, &q->text, err));
  DF_TRY(df_detok_flush(&q->detok, &q->text, err));
  if (q->text.len) send(q, NULL, 0, 0, 0);
  return DF_OK;
}
