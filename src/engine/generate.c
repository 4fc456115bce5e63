/* The generation loop of one sequence: prefill, steps, stop handling, events. */
#include <string.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/map.h"
#include "base/size.h"
#include "engine/session_internal.h"
#include "engine/stop.h"
#include "text/detok.h"

typedef struct generation {
  df_session *s;
  const df_generate_params *p;
  df_stop stop;
  bool has_stop;
  df_detok detok;
  df_buf raw, text; /* bytes after the stop filter, UTF-8 ready to leave */
  df_result r;
  uint32_t n_prompt;
  bool penalties;  /* the picker needs the token history */
  bool greedy;     /* the best token is the answer: no logits needed */
  bool cancelled;
  /* while a step is being accepted */
  uint32_t base;   /* position that row 0 predicts */
  const int32_t *drafted;
} generation;

df_generate_params df_generate_params_default(void) {
  return (df_generate_params){.max_tokens = 256, .sampling = df_sampling_params_default()};
}

double df_stats_accept_length(const df_stats *st) {
  return st->verify_steps ? (double)st->emitted_verify / st->verify_steps : 1.0;
}

/* ---- picking -------------------------------------------------------------------------------------------- */

/* The target's token after output row `row`. With penalties the drafts before it count as history. */
static df_status pick(void *ctx, uint32_t row, int32_t *id, df_error *err) {
  generation *g = ctx;
  df_session *s = g->s;
  if (g->penalties && row > 0) DF_TRY(df_seen_push(&s->seen, g->drafted[row - 1], true, err));
  if (g->greedy) {
    *id = df_workspace_best(&s->target.ws, row);
    return DF_OK;
  }
  const float *logits = s->target.ws.logits + row * s->target.ws.logits_ld;
  return df_sampler_pick(&g->p->sampling, logits, s->m->cfg.vocab, g->penalties ? &s->seen : NULL, g->base + row,
                         &s->scratch, id, NULL, err);
}

/* ---- emitting ------------------------------------------------------------------------------------------- */

static void hash_rows(generation *g, uint32_t rows) {
  const df_workspace *ws = &g->s->target.ws;
  for (uint32_t r = 0; r < rows; r++)
    g->r.logits_hash = df_hash_bytes(ws->logits + r * ws->logits_ld, g->s->m->cfg.vocab * sizeof(float), g->r.logits_hash);
}

static bool send(generation *g, const int32_t *ids, uint32_t n, uint32_t drafted, uint32_t accepted) {
  const df_event ev = {g->text.data ? g->text.data : "", g->text.len, ids, n, drafted, accepted};
  return !g->p->on_event || g->p->on_event(g->p->user, &ev);
}

/* One run of tokens through the stop filter, the detokeniser and out. */
static df_status emit(generation *g, const int32_t *ids, uint32_t n, uint32_t drafted, uint32_t accepted, df_error *err) {
  df_session *s = g->s;
  df_text_piece pieces[DF_MAX_WIDTH];
  for (uint32_t i = 0; i < n; i++) {
    pieces[i] = (df_text_piece){"", 0};
    if (!g->p->show_special && df_tokenizer_is_special(s->m->tok, ids[i])) continue;
    const char *bytes;
    size_t len;
    if (!df_tokenizer_piece(s->m->tok, ids[i], &bytes, &len)) continue; /* padding rows of the vocabulary have no text */
    pieces[i] = (df_text_piece){bytes, len};
  }
  df_stop_result res;
  g->raw.len = g->text.len = 0;
  DF_TRY(df_stop_feed(&g->stop, ids, pieces, n, &g->raw, &res, err));
  if (g->raw.len) DF_TRY(df_detok_push_bytes(&g->detok, g->raw.data, g->raw.len, &g->text, err));
  if (res.finish != DF_FINISH_NONE) DF_TRY(df_detok_flush(&g->detok, &g->text, err));
  if (g->p->hash_logits) hash_rows(g, res.kept);
  memcpy(s->ids + s->n_ids, ids, res.kept * sizeof *ids);
  s->n_ids += res.kept;
  g->r.stats.new_tokens += res.kept;
  g->r.finish = res.finish;
  if (!send(g, ids, res.kept, drafted, accepted)) g->cancelled = true;
  return DF_OK;
}

/* ---- steps ---------------------------------------------------------------------------------------------- */

static void count_step(df_stats *st, const df_step_out *o, uint32_t kept) {
  st->steps++;
  st->draft_ms += (double)o->draft_ns / 1e6;
  st->verify_ms += (double)o->verify_ns / 1e6;
  st->sample_ms += (double)o->pick_ns / 1e6;
  st->inject_ms += (double)o->inject_ns / 1e6;
  if (!o->n_drafted) return;
  st->verify_steps++;
  st->drafted += o->n_drafted;
  st->accepted += o->accepted;
  st->emitted_verify += kept;
  for (uint32_t j = 0; j < o->n_drafted; j++) {
    st->drafted_at[j]++;
    if (j < o->accepted) st->accepted_at[j]++;
  }
}

static df_status one_step(generation *g, df_error *err) {
  df_session *s = g->s;
  const uint32_t n = s->n_ids - 1; /* the anchor's position */
  const uint32_t left = g->p->max_tokens - g->r.stats.new_tokens;
  uint32_t width = DF_MIN(s->width, s->n_ctx - n);
  if (left == 1) width = 1; /* one token is wanted: nothing to draft for */
  df_step_out o;
  g->base = n + 1;
  g->drafted = o.drafted;
  const df_step_in in = {.seq = &s->seq, .n = n, .anchor = s->ids[n], .width = width,
                         .need_logits = !g->greedy || g->p->hash_logits, .pick = pick, .pick_ctx = g};
  const uint64_t allocs = df_mem_alloc_count();
  DF_TRY(df_spec_step(&s->step, &in, &o, err));
  g->r.stats.step_allocations += df_mem_alloc_count() - allocs;
  s->n_valid = n + o.accepted + 1;
  if (g->penalties) DF_TRY(df_seen_push(&s->seen, o.next, true, err));
  int32_t run[DF_MAX_WIDTH];
  memcpy(run, o.drafted, o.accepted * sizeof *run);
  run[o.accepted] = o.next;
  const uint32_t before = g->r.stats.new_tokens;
  DF_TRY(emit(g, run, o.accepted + 1, o.n_drafted, o.accepted, err));
  count_step(&g->r.stats, &o, g->r.stats.new_tokens - before);
  return DF_OK;
}

/* ---- prompt --------------------------------------------------------------------------------------------- */

/* Keeps the longest prefix that is still cached, but recomputes at least the last token: its row is needed. */
static void reuse_prefix(df_session *s, const int32_t *ids, uint32_t n, df_stats *st) {
  uint32_t same = 0;
  while (same < s->n_valid && same < n && s->ids[same] == ids[same]) same++;
  if (same == n) same = n - 1;
  df_kv_seq_trim(&s->seq, &s->pages, same);
  memcpy(s->ids, ids, n * sizeof *ids);
  s->n_valid = same;
  s->n_ids = n;
  st->cached_tokens = same;
  st->prompt_tokens = n;
}

static df_status prefill(generation *g, const int32_t *ids, uint32_t n, df_error *err) {
  df_session *s = g->s;
  reuse_prefix(s, ids, n, &g->r.stats);
  const uint32_t first = s->n_valid;
  df_seen_reset(&s->seen);
  for (uint32_t i = 0; g->penalties && i < n; i++) DF_TRY(df_seen_push(&s->seen, ids[i], false, err));
  DF_TRY(df_spec_prefill(&s->step, &s->seq, ids + first, n - first, first, g->p->cancel, err));
  s->n_valid = n;
  g->base = n;
  int32_t id;
  DF_TRY(pick(g, 0, &id, err));
  if (g->penalties) DF_TRY(df_seen_push(&s->seen, id, true, err));
  return emit(g, &id, 1, 0, 0, err);
}

static df_status check_request(const df_session *s, const int32_t *ids, size_t n, const df_generate_params *p, df_error *err) {
  if (n == 0) return DF_FAIL(err, DF_ERR_ARGUMENT, "the prompt is empty");
  if (p->max_tokens == 0) return DF_FAIL(err, DF_ERR_ARGUMENT, "max_tokens must be at least 1");
  if (n >= s->n_ctx) {
    df_error_set(err, DF_ERR_LIMIT, __FILE__, __LINE__, "the prompt has %zu tokens, the context holds %u and needs room for one more", n, s->n_ctx);
    df_error_hint(err, "shorten the prompt or raise the context size");
    return DF_ERR_LIMIT;
  }
  for (size_t i = 0; i < n; i++)
    if (ids[i] < 0 || (uint32_t)ids[i] >= s->m->cfg.vocab)
      return DF_FAIL(err, DF_ERR_ARGUMENT, "token %d at position %zu is outside the vocabulary of %u", ids[i], i, s->m->cfg.vocab);
  return df_sampling_params_check(&p->sampling, err);
}

static df_status init_generation(generation *g, uint32_t n, df_error *err) {
  df_session *s = g->s;
  const df_generate_params *p = g->p;
  size_t n_eog;
  const int32_t *eog = df_tokenizer_eog_ids(s->m->tok, &n_eog);
  df_text_piece strings[DF_STOP_MAX_STRINGS];
  if (p->n_stop > DF_STOP_MAX_STRINGS) return DF_FAIL(err, DF_ERR_LIMIT, "%u stop strings, at most %d are allowed", p->n_stop, DF_STOP_MAX_STRINGS);
  for (uint32_t i = 0; i < p->n_stop; i++) strings[i] = (df_text_piece){p->stop[i], strlen(p->stop[i])};
  const df_stop_config c = {.strings = strings, .n_strings = p->n_stop, .eos_ids = eog, .n_eos_ids = (uint32_t)n_eog,
                            .max_new_tokens = p->max_tokens, .context_tokens = s->n_ctx - n, .min_tokens = p->min_tokens,
                            .ignore_eos = p->ignore_eos};
  DF_TRY(df_stop_init(&g->stop, &c, err));
  g->has_stop = true;
  df_detok_init(&g->detok, s->m->tok, p->show_special);
  DF_TRY(df_buf_reserve(&g->raw, 4096, err));
  DF_TRY(df_buf_reserve(&g->text, 4096, err));
  const df_sampling_params *sp = &p->sampling;
  g->penalties = sp->repetition_penalty != 1.0f || sp->presence_penalty != 0.0f || sp->frequency_penalty != 0.0f;
  g->greedy = sp->temperature == 0.0f && !g->penalties && sp->n_bias == 0;
  return df_spec_prepare(&s->step, s->width, !g->greedy || p->hash_logits, err);
}

/* What is still held back leaves when the end came from outside. */
static df_status finish_cancelled(generation *g, df_error *err) {
  g->r.finish = DF_FINISH_CANCELLED;
  g->raw.len = g->text.len = 0;
  DF_TRY(df_stop_flush(&g->stop, &g->raw, err));
  if (g->raw.len) DF_TRY(df_detok_push_bytes(&g->detok, g->raw.data, g->raw.len, &g->text, err));
  DF_TRY(df_detok_flush(&g->detok, &g->text, err));
  if (g->text.len) (void)send(g, NULL, 0, 0, 0);
  return DF_OK;
}

static df_status run(generation *g, const int32_t *ids, uint32_t n, df_error *err) {
  DF_TRY(init_generation(g, n, err));
  const uint64_t t0 = df_now_ns();
  const df_status s = prefill(g, ids, n, err);
  if (s == DF_ERR_CANCELLED) return finish_cancelled(g, err);
  DF_TRY(s);
  const uint64_t t1 = df_now_ns();
  g->r.stats.prefill_ms = g->r.stats.first_token_ms = (double)(t1 - t0) / 1e6;
  while (g->r.finish == DF_FINISH_NONE) {
    if (g->cancelled || (g->p->cancel && *g->p->cancel)) {
      DF_TRY(finish_cancelled(g, err));
      break;
    }
    DF_TRY(one_step(g, err));
  }
  g->r.stats.decode_ms = (double)(df_now_ns() - t1) / 1e6;
  return DF_OK;
}

df_status df_session_generate(df_session *s, const int32_t *ids, size_t n, const df_generate_params *params, df_result *out,
                              df_error *err) {
  const df_generate_params p = params ? *params : df_generate_params_default();
  DF_TRY(check_request(s, ids, n, &p, err));
  generation g = {.s = s, .p = &p, .n_prompt = (uint32_t)n};
  const df_status st = run(&g, ids, (uint32_t)n, err);
  if (g.has_stop) df_stop_release(&g.stop);
  df_buf_release(&g.raw);
  df_buf_release(&g.text);
  if (st != DF_OK) {
    df_session_reset(s); /* K and V may be half written */
    return st;
  }
  df_kv_seq_trim(&s->seq, &s->pages, s->n_valid);
  if (s->n_valid > s->n_ids) s->n_valid = s->n_ids; /* the cut took tokens whose K and V exist */
  g.r.ids = s->ids + n;
  g.r.n_ids = s->n_ids - (uint32_t)n;
  *out = g.r;
  return DF_OK;
}
