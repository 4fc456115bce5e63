#include "engine/request.h"

#include <math.h>
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

static df_status init_stop(df_request *q, const df_request_config *rc, df_error *err) {
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
                            .stop_ids = rc->stop_ids,
                            .n_stop_ids = rc->n_stop_ids,
                            .max_new_tokens = p->max_tokens,
                            .context_tokens = q->n_ctx - q->n_prompt,
                            .min_tokens = p->min_tokens,
                            .ignore_eos = p->ignore_eos};
  return df_stop_init(&q->stop, &c, err);
}

/* One block for logprobs and alternatives of `rows` tokens. */
static df_status init_logprobs(uint32_t rows, uint32_t n_top, float **lp, df_token_logprob **top, df_error *err) {
  *lp = df_calloc(rows, sizeof **lp);
  if (*lp && n_top) *top = df_calloc((size_t)rows * n_top, sizeof **top);
  if (!*lp || (n_top && !*top)) return DF_OOM(err, "logprobs", (size_t)rows * (n_top + 1) * sizeof **top);
  return DF_OK;
}

static df_status init_extras(df_request *q, const df_request_config *c, df_error *err) {
  q->n_top = c->n_top;
  if (c->logprobs || c->n_top) DF_TRY(init_logprobs(DF_MAX_WIDTH, c->n_top, &q->logprobs, &q->top, err));
  if (c->prompt_logprobs) DF_TRY(init_logprobs(q->n_prompt, c->n_top, &q->prompt_logprobs, &q->prompt_top, err));
  if (!c->constraint) return DF_OK;
  const size_t words = (q->m->cfg.vocab + 63) / 64;
  q->constraint = *c->constraint;
  q->allowed = df_calloc(words, sizeof *q->allowed);
  return q->allowed ? DF_OK : DF_OOM(err, "a token mask", words * sizeof *q->allowed);
}

static df_status init_all(df_request *q, const int32_t *ids, const df_request_config *c, df_error *err) {
  const df_sampling_params *sp = &q->p.sampling;
  q->penalties = sp->repetition_penalty != 1.0f || sp->presence_penalty != 0.0f || sp->frequency_penalty != 0.0f;
  q->greedy = sp->temperature == 0.0f && !q->penalties && sp->n_bias == 0;
  const uint64_t most = DF_MIN((uint64_t)q->n_prompt + q->p.max_tokens, q->n_ctx);
  q->cap = (uint32_t)most + DF_MAX_WIDTH + 1;
  q->ids = df_alloc((size_t)q->cap * sizeof *q->ids);
  if (!q->ids) return DF_OOM(err, "a request's tokens", q->cap * sizeof *q->ids);
  memcpy(q->ids, ids, q->n_prompt * sizeof *ids);
  q->n_ids = q->n_prompt;
  DF_TRY(init_stop(q, c, err));
  df_detok_init(&q->detok, q->m->tok, q->p.show_special);
  DF_TRY(df_buf_reserve(&q->raw, 4096, err));
  DF_TRY(df_buf_reserve(&q->text, 4096, err));
  DF_TRY(init_extras(q, c, err));
  if (!q->penalties) return DF_OK;
  DF_TRY(df_seen_init(&q->seen, DF_MIN(q->cap, q->m->cfg.vocab), err));
  for (uint32_t i = 0; i < q->n_prompt; i++) DF_TRY(df_seen_push(&q->seen, ids[i], false, err));
  return DF_OK;
}

df_status df_request_init(df_request *q, df_model *m, const int32_t *ids, size_t n, uint32_t n_ctx,
                          const df_request_config *c, df_error *err) {
  DF_TRY(check_request(m, ids, n, n_ctx, c->gen, err));
  *q = (df_request){.p = *c->gen,
                    .m = m,
                    .n_prompt = (uint32_t)n,
                    .n_ctx = n_ctx,
                    .width = c->width,
                    .auto_width = c->auto_width,
                    .matched_id = -1,
                    .matched_string = -1,
                    .t_call = df_now_ns()};
  q->t_start = q->t_call;
  const df_status s = init_all(q, ids, c, err);
  if (s != DF_OK) {
    df_request_release(q);
    return s;
  }
  df_width_estimate_init(&q->est);
  q->r.stats.prompt_tokens = (uint32_t)n;
  return DF_OK;
}

void df_request_admit(df_request *q, df_workspace *ws, df_sampler_scratch *scratch, df_kv_seq *seq, uint32_t n_valid) {
  const uint32_t fill = df_request_fill(q);
  q->ws = ws;
  q->scratch = scratch;
  q->n_valid = n_valid;
  /* The last row of a prompt picks the first token; what was generated already has its next anchor. */
  q->state = q->n_ids > q->n_prompt && n_valid == fill ? DF_REQ_DECODE : DF_REQ_PREFILL;
  q->seq = *seq;
  *seq = (df_kv_seq){0};
}

df_kv_seq df_request_park(df_request *q) {
  const df_kv_seq seq = q->seq;
  q->seq = (df_kv_seq){0};
  df_spec_forget(&q->pending);
  q->n_valid = 0;
  return seq;
}

void df_request_fail(df_request *q, df_status s, const df_error *why) {
  q->state = DF_REQ_DONE;
  q->failed = s;
  if (why) q->why = *why;
  q->why.code = s;
}

df_status df_request_status(const df_request *q, df_error *err) {
  if (q->failed != DF_OK && err) *err = q->why;
  return q->failed;
}

void df_request_release(df_request *q) {
  if (q->stop.block || q->stop.pending.data) df_stop_release(&q->stop);
  df_seen_release(&q->seen);
  df_buf_release(&q->raw);
  df_buf_release(&q->text);
  df_spec_forget(&q->pending);
  df_free(q->logprobs);
  df_free(q->prompt_logprobs);
  df_free(q->top);
  df_free(q->prompt_top);
  df_free(q->allowed);
  df_free(q->ids);
  *q = (df_request){0};
}

/* ---- picking -------------------------------------------------------------------------------------------- */

/* One token for the constraint, which must take it: it was picked under its own mask. */
static df_status advance(df_request *q, int32_t id, df_error *err) {
  bool taken = false;
  DF_TRY(q->constraint.accept(q->constraint.ctx, id, &taken, err));
  return taken ? DF_OK : DF_FAIL(err, DF_ERR_INTERNAL, "the grammar refuses token %d, which its mask allows", id);
}

/* Takes the mask over, as wide as the model's rows; there may be more of them than tokens. *none: nothing is allowed.
 */
static df_status load_mask(df_request *q, bool *none, df_error *err) {
  const uint64_t *mask;
  uint64_t any = 0;
  DF_TRY(q->constraint.mask(q->constraint.ctx, &mask, err));
  const size_t words = (DF_MIN(q->m->cfg.vocab, df_tokenizer_size(q->m->tok)) + 63) / 64;
  for (size_t i = 0; i < words; i++) any |= q->allowed[i] = mask[i];
  *none = any == 0;
  return DF_OK;
}

/* Brings mask and token history to the row: the drafts before it stand. Sets q->ended where nothing may follow. */
static df_status follow(df_request *q, uint32_t row, df_error *err) {
  if (q->penalties && row > 0) DF_TRY(df_seen_push(&q->seen, q->drafted[row - 1], true, err));
  if (!q->allowed) return DF_OK;
  if (row == 0) q->followed = q->constraint.length(q->constraint.ctx);
  if (row > 0) {
    DF_TRY(advance(q, q->drafted[row - 1], err));
    q->ended = df_tokenizer_is_eog(q->m->tok, q->drafted[row - 1]);
    if (q->ended) return DF_OK;
  }
  return load_mask(q, &q->ended, err);
}

static bool allowed(const df_request *q, int32_t id) {
  return !q->allowed || (id >= 0 && q->allowed[id / 64] >> (id % 64) & 1);
}

static df_status pick(df_request *q, uint32_t row, uint32_t out_row, int32_t *id, df_error *err) {
  *id = -1;
  DF_TRY(follow(q, row, err));
  if (q->ended) return DF_OK;
  if (q->greedy) {
    const int32_t best = df_workspace_best(q->ws, out_row);
    if (allowed(q, best)) {
      *id = best;
      return DF_OK;
    }
  }
  const float *logits;
  DF_TRY(df_workspace_logits(q->ws, out_row, &logits, err));
  const df_token_mask mask = {.allowed = q->allowed};
  return df_sampler_pick_masked(&q->p.sampling, logits, q->m->cfg.vocab, q->penalties ? &q->seen : NULL,
                                q->allowed ? &mask : NULL, q->base + row, q->scratch, id, NULL, err);
}

df_status df_request_pick(void *ctx, uint32_t row, uint32_t out_row, int32_t *id, df_error *err) {
  (void)err;
  df_request *q = ctx;
  df_error why = {0};
  const df_status s = pick(q, row, out_row, id, &why);
  if (s != DF_OK) {
    df_request_fail(q, s, &why);
    *id = -1;
  }
  return DF_OK;
}

/* ---- logprobs ------------------------------------------------------------------------------------------- */

static df_status score_row(df_request *q, uint32_t out_row, int32_t id, float *lp, df_token_logprob *top,
                           df_error *err) {
  enum { MOST = 64 };
  const float *logits;
  DF_TRY(df_workspace_logits(q->ws, out_row, &logits, err));
  DF_TRY(df_sampler_logprob(logits, q->m->cfg.vocab, id, lp, err));
  if (!q->n_top) return DF_OK;
  int32_t ids[MOST];
  float lps[MOST];
  uint32_t n = 0;
  DF_TRY(df_sampler_top_logprobs(logits, q->m->cfg.vocab, DF_MIN(q->n_top, (uint32_t)MOST), q->scratch, ids, lps, &n,
                                 err));
  for (uint32_t j = 0; j < q->n_top; j++)
    top[j] = j < n ? (df_token_logprob){ids[j], lps[j]} : (df_token_logprob){-1, -INFINITY};
  return DF_OK;
}

static df_token_logprob *top_of(const df_request *q, df_token_logprob *all, uint32_t i) {
  return all ? all + (size_t)i * q->n_top : NULL;
}

df_status df_request_score_prompt(df_request *q, uint32_t first, uint32_t n, uint32_t out_row, df_error *err) {
  for (uint32_t i = 0; i < n; i++) {
    const uint32_t pos = first + i + 1;
    if (pos >= q->n_prompt) break;
    DF_TRY(score_row(q, out_row + i, q->ids[pos], &q->prompt_logprobs[pos], top_of(q, q->prompt_top, pos), err));
  }
  return DF_OK;
}

static df_status hash_rows(df_request *q, uint32_t out_row, uint32_t rows, df_error *err) {
  const float *logits;
  for (uint32_t r = out_row; r < out_row + rows; r++) {
    DF_TRY(df_workspace_logits(q->ws, r, &logits, err));
    q->r.logits_hash = df_hash_bytes(logits, q->m->cfg.vocab * sizeof *logits, q->r.logits_hash);
  }
  return DF_OK;
}

static void send(df_request *q, const int32_t *ids, uint32_t n, uint32_t drafted, uint32_t accepted) {
  const df_event ev = {q->text.data ? q->text.data : "", q->text.len, ids, n, drafted, accepted};
  if (q->p.on_event && !q->p.on_event(q->p.user, &ev)) q->cancelled = true;
}

/* Brings the constraint behind the kept tokens, no further. Where the grammar has ended the text ends, even when end
 * tokens are to be ignored: nothing could follow. */
static df_status settle(df_request *q, const int32_t *ids, uint32_t n, df_stop_result *res, df_error *err) {
  for (uint32_t i = q->constraint.length(q->constraint.ctx) - q->followed; i < n; i++) DF_TRY(advance(q, ids[i], err));
  const uint32_t given = q->constraint.length(q->constraint.ctx) - q->followed;
  if (given > res->kept) q->constraint.rollback(q->constraint.ctx, given - res->kept);
  const int32_t last = res->kept ? ids[res->kept - 1] : -1;
  const bool eog = last >= 0 && df_tokenizer_is_eog(q->m->tok, last);
  if (res->finish != DF_FINISH_NONE || !(eog || q->ended)) return DF_OK;
  res->finish = DF_FINISH_EOS;
  res->matched_id = eog ? last : -1;
  return df_stop_flush(&q->stop, &q->raw, err);
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
  if (q->allowed) DF_TRY(settle(q, ids, n, &res, err));
  for (uint32_t i = 0; i < res.kept && q->logprobs; i++)
    DF_TRY(score_row(q, out_row + i, ids[i], &q->logprobs[i], top_of(q, q->top, i), err));
  if (q->raw.len) DF_TRY(df_detok_push_bytes(&q->detok, q->raw.data, q->raw.len, &q->text, err));
  if (res.finish != DF_FINISH_NONE) DF_TRY(df_detok_flush(&q->detok, &q->text, err));
  if (q->p.hash_logits) DF_TRY(hash_rows(q, out_row, res.kept, err));
  if (res.kept) memcpy(q->ids + q->n_ids, ids, res.kept * sizeof *ids);
  q->n_ids += res.kept;
  q->r.stats.new_tokens += res.kept;
  q->r.finish = res.finish;
  q->matched_id = res.matched_id;
  q->matched_string = res.matched_string;
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
