#include "engine/engine.h"

#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/size.h"

df_status df_engine_width(const df_engine *e, int32_t asked, df_request_config *c, df_error *err) {
  c->width = e->width;
  c->auto_width = e->auto_width;
  if (asked == 0) return DF_OK;
  const int32_t most = e->has_drafter ? (int32_t)DF_MIN(e->d->cfg.block_size, (uint32_t)DF_MAX_WIDTH) : DF_MAX_WIDTH;
  if (asked < 1 || asked > most)
    return DF_FAIL(err, DF_ERR_ARGUMENT, "a block of %d rows is outside 1..%d", asked, most);
  c->width = e->has_drafter ? (uint32_t)asked : 1;
  c->auto_width = false;
  return DF_OK;
}

df_status df_engine_admit(df_engine *e, df_request *q, df_kv_seq *seq, uint32_t n_valid, df_error *err) {
  for (uint32_t w = q->auto_width ? 1 : q->width; w <= q->width; w++)
    DF_TRY(df_spec_prepare(&e->step, 1, w, !q->greedy, err));
  df_width_estimate_learn(&q->est, &e->acceptance);
  df_request_admit(q, &e->target.ws, &e->scratch, seq, n_valid);
  return DF_OK;
}

df_status df_engine_request(df_engine *e, df_request *q, const int32_t *ids, size_t n, uint32_t n_valid, df_kv_seq *seq,
                            const df_generate_params *p, df_error *err) {
  df_kv_seq own = {0};
  df_request_config c = {.gen = p};
  DF_TRY(df_engine_width(e, 0, &c, err));
  if (!seq) {
    DF_TRY(df_kv_seq_init(&own, e->pages.size, e->n_ctx, err));
    seq = &own;
  }
  df_status s = df_request_init(q, e->m, ids, n, e->n_ctx, &c, err);
  if (s == DF_OK) {
    s = df_engine_admit(e, q, seq, n_valid, err);
    if (s != DF_OK) df_request_release(q);
  }
  if (s == DF_OK) q->r.stats.cached_tokens = n_valid;
  if (s != DF_OK && seq == &own) df_kv_seq_release(&own, &e->pages);
  return s;
}

/* ---- prefill -------------------------------------------------------------------------------------------- */

/* Gives one prompt up to `most` rows more; false when it gets none. */
static bool give_rows(const df_request *q, uint32_t most, uint32_t *rows, uint32_t *room, uint32_t *out) {
  uint32_t n = DF_MIN(df_request_fill(q) - q->n_valid - *rows, DF_MIN(most, *room));
  if (q->prompt_logprobs) n = DF_MIN(n, *out);
  if (q->prompt_logprobs) *out -= n;
  *rows += n;
  *room -= n;
  return n > 0;
}

void df_engine_share_prefill(const df_engine *e, df_request *const *q, uint32_t n, uint32_t *rows) {
  uint32_t room = df_spec_prefill_rows(&e->step), out = e->target.p.max_out, first = n;
  bool decoding = false, open[DF_ENGINE_MAX_SEQS] = {false};
  for (uint32_t i = n; i-- > 0;) {
    rows[i] = 0;
    decoding |= q[i]->state == DF_REQ_DECODE;
    open[i] = q[i]->state == DF_REQ_PREFILL;
    if (open[i]) first = i;
  }
  if (decoding && e->prefill_rows) room = DF_MIN(room, e->prefill_rows);
  out -= DF_MIN(out - 1, n); /* the last row of every prompt leaves in any case */
  if (first < n) (void)give_rows(q[first], (room + 1) / 2, &rows[first], &room, &out);
  while (room) { /* the rest to the one that is through soonest */
    uint32_t best = n, least = UINT32_MAX;
    for (uint32_t i = 0; i < n; i++) {
      const uint32_t left = open[i] ? df_request_fill(q[i]) - q[i]->n_valid - rows[i] : UINT32_MAX;
      if (left < least) best = i, least = left;
    }
    if (best == n) return;
    (void)give_rows(q[best], UINT32_MAX, &rows[best], &room, &out);
    open[best] = false;
  }
}

static df_status first_token(df_request *q, uint32_t out_row, df_error *err) {
  int32_t id;
  q->base = q->n_prompt;
  q->drafted = NULL;
  DF_TRY(df_request_pick(q, 0, out_row, &id, err));
  if (q->failed != DF_OK) return DF_OK;
  if (q->penalties && id >= 0) DF_TRY(df_seen_push(&q->seen, id, true, err));
  q->state = DF_REQ_DECODE;
  q->t_first = df_now_ns();
  q->r.stats.prefill_ms = (double)(q->t_first - q->t_start) / 1e6;
  q->r.stats.first_token_ms = (double)(q->t_first - q->t_call) / 1e6;
  return df_request_emit(q, &id, id >= 0, out_row, 0, 0, err);
}

static df_status prefill_done(df_request *q, const df_prefill_item *it, df_error *err) {
  q->n_valid += it->n;
  if (it->all) DF_TRY(df_request_score_prompt(q, it->first, it->n, it->out_row, err));
  if (q->n_valid < df_request_fill(q)) return DF_OK;
  if (it->last) return first_token(q, it->out_row + (it->all ? it->n - 1 : 0), err);
  q->state = DF_REQ_DECODE; /* goes on where it was parked */
  return DF_OK;
}

/* Runs a call for one request: its failure is that request's. */
static void alone(df_request *q, df_status s, const df_error *why) {
  if (s != DF_OK) df_request_fail(q, s, why);
}

static void prefill_pass(df_engine *e, df_request **q, uint32_t n) {
  df_prefill_item items[DF_ENGINE_MAX_SEQS];
  df_request *who[DF_ENGINE_MAX_SEQS];
  uint32_t rows[DF_ENGINE_MAX_SEQS], m = 0;
  df_error why = {0};
  df_engine_share_prefill(e, q, n, rows);
  for (uint32_t i = 0; i < n; i++) {
    if (!rows[i]) continue;
    const uint32_t first = q[i]->n_valid;
    const df_status s = df_kv_seq_reserve(&q[i]->seq, &e->pages, first + rows[i], &why);
    if (s != DF_OK) {
      df_request_fail(q[i], s, &why);
      continue;
    }
    const bool fresh = q[i]->n_ids == q[i]->n_prompt;
    items[m] = (df_prefill_item){.seq = &q[i]->seq,
                                 .ids = q[i]->ids + first,
                                 .n = rows[i],
                                 .first = first,
                                 .last = fresh && first + rows[i] == q[i]->n_prompt,
                                 .all = fresh && q[i]->prompt_logprobs};
    who[m++] = q[i];
  }
  if (m == 0) return;
  const uint64_t t0 = df_now_ns();
  const df_status s = df_spec_prefill(&e->step, items, m, &why);
  e->totals.model_ns += df_now_ns() - t0;
  for (uint32_t i = 0; i < m; i++) {
    df_error own = why;
    alone(who[i], s == DF_OK ? prefill_done(who[i], &items[i], &own) : s, &own);
  }
}

/* ---- decode and verify ---------------------------------------------------------------------------------- */

/* Rows of the next verify block of a request that does not leave it to the controller; 0 for those that do. */
static uint32_t step_width(const df_engine *e, const df_request *q) {
  if (!e->has_drafter || q->width == 1) return 1;
  if (q->auto_width) return 0;
  if (q->p.max_tokens - q->r.stats.new_tokens == 1) return 1;
  return DF_MIN(q->width, q->n_ctx - (q->n_ids - 1));
}

/* A draft made for another target, or harmed by rounding, shows in nothing but its accept length. Said once. */
static void warn_of_useless_draft(const df_engine_totals *t) {
  enum { BLOCKS = 200, LEAST = BLOCKS / 20 /* accepted: an accept length of 1.05 */ };
  if (t->verify_steps != BLOCKS || t->accepted >= LEAST) return;
  df_log(
      DF_LOG_WARN,
      "of the drafts in %d blocks %llu tokens were right (accept length %.2f): the draft does not fit this target, or "
      "rounding harms it; without it decoding is faster",
      (int)BLOCKS, (unsigned long long)t->accepted, 1 + (double)t->accepted / BLOCKS);
}

static void count_step(df_engine *e, df_request *q, const df_step_item *it, const df_step_times *t, uint32_t kept) {
  df_stats *st = &q->r.stats;
  df_engine_totals *all = &e->totals;
  st->steps++;
  st->draft_ms += (double)t->draft_ns / 1e6;
  st->verify_ms += (double)t->verify_ns / 1e6;
  st->sample_ms += (double)t->pick_ns / 1e6;
  st->inject_ms += (double)(t->inject_ns + t->catch_up_ns) / 1e6;
  st->decode_ms = (double)(df_now_ns() - q->t_first) / 1e6;
  all->width_steps[it->n_drafted + 1]++;
  st->width_steps[it->n_drafted + 1]++;
  if (it->n_drafted + it->n_cut == 0) {
    df_width_estimate_fade(&q->est);
    return;
  }
  st->cut += it->n_cut;
  st->verify_steps++, all->verify_steps++;
  st->drafted += it->n_drafted, all->drafted += it->n_drafted;
  st->accepted += it->accepted, all->accepted += it->accepted;
  st->emitted_verify += kept, all->emitted_verify += kept;
  for (uint32_t j = 0; j < it->n_drafted; j++) {
    st->drafted_at[j]++, all->drafted_at[j]++;
    if (j < it->accepted) st->accepted_at[j]++, all->accepted_at[j]++;
  }
  warn_of_useless_draft(all);
}

/* What a step showed of drafting. chance: what the drafts promised, NULL when the block could not be cut. */
static void learn_step(df_engine *e, df_request *q, const df_step_item *it, const float *chance) {
  if (it->n_drafted + it->n_cut == 0) return;
  df_width_estimate_update(&q->est, it->n_drafted, it->accepted, chance, it->n_cut);
  df_width_estimate_update(&e->acceptance, it->n_drafted, it->accepted, chance, it->n_cut);
  if (chance) df_cut_learn(&e->trust, it->sure, it->n_drafted, it->accepted);
}

static df_status step_done(df_engine *e, df_request *q, const df_step_item *it, const df_step_times *t, df_error *err) {
  if (q->failed != DF_OK) return DF_OK; /* while its rows were picked */
  int32_t run[DF_MAX_WIDTH];
  uint32_t n = it->accepted;
  q->n_valid = it->n + it->accepted + 1;
  memcpy(run, it->drafted, n * sizeof *run);
  if (it->next >= 0) {
    if (q->penalties) DF_TRY(df_seen_push(&q->seen, it->next, true, err));
    run[n++] = it->next;
  }
  const uint32_t before = q->r.stats.new_tokens;
  DF_TRY(df_request_emit(q, run, n, it->out_row, it->n_drafted, it->accepted, err));
  count_step(e, q, it, t, q->r.stats.new_tokens - before);
  return q->state == DF_REQ_DONE ? df_spec_flush(&e->step, &q->seq, &q->pending, err) : DF_OK;
}

/* Reserves a request's block and describes it; false when it had to end. */
static bool begin_item(df_engine *e, df_request *q, uint32_t width, df_step_item *it) {
  const uint32_t at = q->n_ids - 1;
  df_error why = {0};
  const df_status s = df_kv_seq_reserve(&q->seq, &e->pages, at + width, &why);
  alone(q, s, &why);
  if (s != DF_OK) return false;
  *it = (df_step_item){.seq = &q->seq,
                       .pending = &q->pending,
                       .n = at,
                       .anchor = q->ids[at],
                       .pick = df_request_takes_best(q) ? NULL : df_request_pick,
                       .pick_ctx = q};
  q->base = at + 1;
  q->drafted = it->drafted;
  return true;
}

/* Requests that take a step together. */
typedef struct step_members {
  df_engine *e;
  df_step_item items[DF_ENGINE_MAX_SEQS];
  df_request *who[DF_ENGINE_MAX_SEQS];
  float chance[DF_ENGINE_MAX_SEQS][DF_WIDTH_MAX]; /* of every draft, once the block was cut */
  uint32_t n, depth;                              /* mean KV length */
} step_members;

static uint32_t cut_blocks(void *ctx, const df_step_item *items, uint32_t n, uint32_t width) {
  step_members *s = ctx;
  for (uint32_t i = 0; i < n; i++) {
    const double text = df_width_estimate_trust(&s->who[i]->est);
    for (uint32_t j = 0; j + 1 < width; j++)
      s->chance[i][j] = (float)df_cut_chance(&s->e->trust, items[i].sure[j], text);
  }
  return df_cut_rows(&s->e->costs, s->chance, n, width, s->depth, s->e->costs.per_ms);
}

/* What a step of the group cost, in plain steps. */
static double learn_costs(const step_members *s, uint32_t width, uint32_t rows, const df_step_times *t) {
  df_width_costs *c = &s->e->costs;
  double verify = df_step_verify_ms(t), draft = df_step_draft_ms(t);
  if (s->e->m->device->is_host) {
    if (t->catch_up_ns) df_width_note_catch_up(c, (double)t->catch_up_ns / 1e6);
  } else {
    if (t->catch_up_ns) verify -= DF_MIN(c->catch_up, verify / 2); /* they were waited for together */
    df_width_share(c, s->n, width, rows, s->depth, &verify, &draft);
  }
  df_width_note(c, s->n, width, rows, s->depth, verify, draft);
  return df_width_plain_steps(c, s->n, width, rows, s->depth) +
         (t->catch_up_ns ? df_width_catch_up_steps(c, s->n, s->depth) : 0);
}

/* All requests of one width in one step. */
static void step_group(df_engine *e, df_request **q, uint32_t n, uint32_t width) {
  step_members g = {.e = e};
  /* A sampling request reads logits, a greedy one the argmax: with both in the group the argmax tail serves both, since
   * it leaves the logits too. A block is cut only if that is left to the controller for all of them. */
  bool any_greedy = false, all_auto = true;
  for (uint32_t i = 0; i < n; i++) {
    if (!begin_item(e, q[i], width, &g.items[g.n])) continue;
    q[i]->drafted = g.items[g.n].drafted;
    any_greedy |= q[i]->greedy;
    all_auto &= q[i]->auto_width;
    g.depth += g.items[g.n].n;
    g.who[g.n++] = q[i];
  }
  if (g.n == 0) return;
  g.depth /= g.n;
  const bool cuts = width > 1 && all_auto && e->costs.cuts;
  const df_step_plan plan = {
      .width = width, .need_logits = !any_greedy, .cut = cuts ? cut_blocks : NULL, .cut_ctx = &g};
  df_step_times t = {0};
  df_error why = {0};
  const uint64_t allocs = df_mem_alloc_count();
  const df_status s = df_spec_step(&e->step, g.items, g.n, &plan, &t, &why);
  const uint64_t made = df_mem_alloc_count() - allocs;
  e->totals.model_ns += t.catch_up_ns + t.draft_ns + t.verify_ns + t.inject_ns;
  const bool learn = s == DF_OK && e->auto_width;
  const uint32_t rows = g.items[0].n_drafted + 1;
  const double plain_steps = learn ? learn_costs(&g, width, rows, &t) : 0;
  for (uint32_t i = 0; i < g.n; i++) {
    df_error own = why;
    g.who[i]->r.stats.step_allocations += made;
    if (learn) df_width_account(&g.who[i]->est, plain_steps, g.items[i].accepted + 1);
    if (s == DF_OK) learn_step(e, g.who[i], &g.items[i], cuts ? g.chance[i] : NULL);
    alone(g.who[i], s == DF_OK ? step_done(e, g.who[i], &g.items[i], &t, &own) : s, &own);
  }
}

/* The controller's width for all requests that leave it the choice. Those at the end of their context take less. */
static uint32_t common_width(df_engine *e, df_request **q, const uint32_t *width, uint32_t n) {
  df_width_estimate *est[DF_ENGINE_MAX_SEQS];
  uint32_t m = 0, max = 1, depth = 0;
  for (uint32_t i = 0; i < n; i++) {
    if (width[i]) continue;
    est[m++] = &q[i]->est;
    depth += q[i]->n_ids;
    const uint32_t left = q[i]->p.max_tokens - q[i]->r.stats.new_tokens;
    const uint32_t fits = DF_MIN(q[i]->width, q[i]->n_ctx - (q[i]->n_ids - 1));
    max = DF_MAX(max, DF_MIN(fits, left));
  }
  return m ? df_width_choose(&e->costs, est, m, max, depth / m) : 1;
}

static void decode_pass(df_engine *e, df_request **q, uint32_t n) {
  uint32_t width[DF_ENGINE_MAX_SEQS];
  for (uint32_t i = 0; i < n; i++) width[i] = step_width(e, q[i]);
  const uint32_t common = common_width(e, q, width, n);
  for (uint32_t i = 0; i < n; i++)
    if (!width[i]) width[i] = DF_MIN(common, DF_MIN(q[i]->width, q[i]->n_ctx - (q[i]->n_ids - 1)));
  for (uint32_t w = 1; w <= DF_MAX_WIDTH; w++) {
    df_request *group[DF_ENGINE_MAX_SEQS];
    uint32_t m = 0;
    for (uint32_t i = 0; i < n; i++)
      if (width[i] == w) group[m++] = q[i];
    if (m) step_group(e, group, m, w);
  }
}

df_status df_engine_park(df_engine *e, df_request *q, df_kv_seq *seq, df_error *err) {
  const df_status s = df_spec_flush(&e->step, &q->seq, &q->pending, err);
  *seq = df_request_park(q);
  return s;
}

/* What is held back leaves, and its K and V stay sound for whoever keeps them. */
static df_status cancel(df_engine *e, df_request *q, df_error *err) {
  DF_TRY(df_request_cancel(q, err));
  return df_spec_flush(&e->step, &q->seq, &q->pending, err);
}

df_status df_engine_step(df_engine *e, df_request **q, uint32_t n, df_error *err) {
  if (n > e->max_seqs) return DF_FAIL(err, DF_ERR_ARGUMENT, "%u requests in a step of at most %u", n, e->max_seqs);
  for (uint32_t i = 0; i < n; i++) {
    if (q[i]->state == DF_REQ_DONE || !df_request_wants_cancel(q[i])) continue;
    df_error why = {0};
    alone(q[i], cancel(e, q[i], &why), &why);
  }
  /* Requests that finish their prompt in this step decode from the next one on. */
  df_request *decoding[DF_ENGINE_MAX_SEQS];
  uint32_t m = 0;
  for (uint32_t i = 0; i < n; i++)
    if (q[i]->state == DF_REQ_DECODE) decoding[m++] = q[i];
  prefill_pass(e, q, n);
  decode_pass(e, decoding, m);
  e->totals.steps++;
  return DF_OK;
}
