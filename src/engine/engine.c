#include "engine/engine.h"

#include <string.h>

#include "attention/fault_injection.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/size.h"
#include "engine/backends.h"

enum {
  PREFILL_ROWS = 256, /* rows of one prefill pass: enough to amortise reading the weights */
  DEFAULT_CTX = 8192, /* bounds the page table; memory is used only as far as conversations go */
  MAX_CTX = 1 << 20,
  MAX_SEQS = 64,
  CALIBRATION_REPS = 1,   /* timed runs of each width at start */
  CALIBRATION_DEPTH = 768 /* KV length of the second measurement */
};

/* ---- set-up --------------------------------------------------------------------------------------------- */

static df_status choose_sizes(df_engine *e, const df_engine_params *ep, df_error *err) {
  const df_session_params *p = &ep->session;
  const uint32_t trained = e->m->cfg.context_length;
  e->n_ctx = p->n_ctx ? p->n_ctx : DF_MIN(trained ? trained : DEFAULT_CTX, (uint32_t)DEFAULT_CTX);
  e->max_seqs = ep->max_seqs;
  if (e->n_ctx < 2 || e->n_ctx > MAX_CTX)
    return DF_FAIL(err, DF_ERR_ARGUMENT, "context size %u is outside 2..%d", e->n_ctx, MAX_CTX);
  if (e->max_seqs < 1 || e->max_seqs > MAX_SEQS)
    return DF_FAIL(err, DF_ERR_ARGUMENT, "%u parallel requests are outside 1..%d", e->max_seqs, MAX_SEQS);
  e->width = 1;
  if (!e->d) return DF_OK;
  const int32_t most = (int32_t)DF_MIN(e->d->cfg.block_size, (uint32_t)DF_MAX_WIDTH) - 1;
  int32_t drafts = p->spec_draft_max;
  e->auto_width = drafts < 0;
  if (e->auto_width) drafts = most;
  if (drafts > most) {
    df_error_set(err, DF_ERR_ARGUMENT, __FILE__, __LINE__, "%d drafted tokens exceed the %d of this draft's block",
                 drafts, most);
    df_error_hint(err, "drafted tokens do not count the target's own token: a block of 16 rows drafts 15");
    return DF_ERR_ARGUMENT;
  }
  e->width = (uint32_t)drafts + 1;
  return DF_OK;
}

static df_status init_target(df_engine *e, const df_session_params *p, df_error *err) {
  const df_config *c = &e->m->cfg;
  const df_attn_shape shape = {c->n_heads, c->n_kv_heads, c->head_dim, e->n_ctx, df_pool_threads(e->m->pool)};
  df_attn *attn;
  DF_TRY(df_backends_create(p, &shape, &attn, err));
  const df_status st = df_verify_mask_policy(attn, DF_DRAFT_CHAIN, &e->mask, err);
  if (st != DF_OK) {
    df_attn_free(attn);
    return st;
  }
  df_mask_layout captured = e->mask.layout;
  const char *fault = df_fault_mask_policy(attn, &captured);
  if (fault) df_log(DF_LOG_WARN, "%s", fault);
  const df_target_params tp = {.max_seqs = e->max_seqs,
                               .max_rows = DF_MAX(PREFILL_ROWS, e->max_seqs * DF_MAX_WIDTH),
                               .max_out = e->max_seqs * DF_MAX_WIDTH,
                               .max_positions = e->n_ctx,
                               .pages = &e->pages,
                               .kv = p->kv_f32 ? DF_KV_F32 : DF_KV_F16,
                               .graphs = !p->no_graph,
                               .attn = attn,
                               .taps = e->d ? e->d->cfg.taps : NULL,
                               .n_taps = e->d ? e->d->cfg.n_taps : 0,
                               .verify_mask = captured,
                               .seq_buckets = p->graph_seqs,
                               .n_seq_buckets = p->n_graph_seqs};
  DF_TRY(df_target_init(&e->target, e->m, &tp, err));
  e->has_target = true;
  return DF_OK;
}

static double verify_ms(const df_step_times *t) { return (double)(t->verify_ns + t->pick_ns) / 1e6; }
static double draft_ms(const df_step_times *t) { return (double)(t->draft_ns + t->inject_ns) / 1e6; }

size_t df_engine_graph_bytes(const df_engine *e) {
  return df_graphs_bytes(&e->target.runner.graphs) + (e->has_drafter ? df_graphs_bytes(&e->drafter.runner.graphs) : 0);
}

/* A limit that the programs of one request's step alone exceed is refused now, not in the middle of an answer. */
static df_status check_graph_memory(df_engine *e, const df_session_params *p, df_error *err) {
  if (!p->graph_memory || p->no_graph) return DF_OK;
  DF_TRY(df_spec_prepare(&e->step, 1, e->width, false, err));
  const size_t need = df_engine_graph_bytes(e);
  if (need <= p->graph_memory) return DF_OK;
  return DF_FAIL(err, DF_ERR_LIMIT,
                 "a graph memory of %llu bytes is too small: the programs of one request's steps need %zu "
                 "(raise --graph-memory, or give --no-graph)",
                 (unsigned long long)p->graph_memory, need);
}

static df_status never_pick(void *ctx, uint32_t row, uint32_t out_row, int32_t *id, df_error *err) {
  (void)ctx, (void)row, (void)out_row, (void)err;
  *id = -1; /* accepts nothing */
  return DF_OK;
}

/* Best time of a step of w rows at a depth, behind one that warms up where asked for. */
static df_status time_step(df_engine *e, df_kv_seq *seq, uint32_t w, uint32_t depth, int warm, double *verify,
                           double *draft, df_error *err) {
  *verify = *draft = 0;
  for (int rep = -warm; rep < CALIBRATION_REPS; rep++) {
    df_step_item it = {.seq = seq, .n = depth, .pick = never_pick};
    df_step_times t;
    DF_TRY(df_spec_step(&e->step, &it, 1, w, false, &t, err));
    if (rep == 0 || (rep > 0 && verify_ms(&t) < *verify)) *verify = verify_ms(&t);
    if (rep == 0 || (rep > 0 && draft_ms(&t) < *draft)) *draft = draft_ms(&t);
  }
  return DF_OK;
}

/* Times a few widths on a made-up sequence, with an empty cache and with a long one, so that the controller's first
 * choice is an informed one. What is in the cache does not matter for time. */
static df_status calibrate_on(df_engine *e, df_kv_seq *seq, df_error *err) {
  static const uint32_t k_widths[] = {1, 4, 8, 16};
  const uint32_t depth = DF_MIN((uint32_t)CALIBRATION_DEPTH, e->n_ctx - DF_MIN(e->n_ctx, (uint32_t)DF_MAX_WIDTH));
  DF_TRY(df_kv_seq_reserve(seq, &e->pages, DF_MIN(depth + DF_MAX_WIDTH, e->n_ctx), err));
  for (size_t i = 0; i < DF_COUNT_OF(k_widths); i++) {
    const uint32_t w = DF_MIN(k_widths[i], e->width);
    if (w > e->n_ctx || (i && w == DF_MIN(k_widths[i - 1], e->width))) break;
    double v0, d0, v1, d1;
    DF_TRY(time_step(e, seq, w, 0, 1, &v0, &d0, err));
    DF_TRY(time_step(e, seq, w, depth, 0, &v1, &d1, err));
    df_width_cost_calibrate(&e->costs.verify, w, v0, depth, v1);
    df_width_cost_calibrate(&e->costs.draft, w, d0, depth, d1);
  }
  return DF_OK;
}

static df_status calibrate(df_engine *e, df_error *err) {
  df_kv_seq seq;
  DF_TRY(df_kv_seq_init(&seq, e->pages.size, e->n_ctx, err));
  const df_status s = calibrate_on(e, &seq, err);
  df_kv_seq_release(&seq, &e->pages);
  return s;
}

static df_status init_all(df_engine *e, const df_engine_params *p, df_error *err) {
  DF_TRY(choose_sizes(e, p, err));
  const uint64_t tokens = p->kv_tokens ? p->kv_tokens : (uint64_t)e->n_ctx * e->max_seqs;
  const uint32_t page = p->session.page_size ? p->session.page_size : DF_KV_PAGE;
  const uint64_t slots = tokens + (uint64_t)(e->max_seqs - 1) * page; /* every sequence may leave a page open */
  if (slots > INT32_MAX)
    return DF_FAIL(err, DF_ERR_LIMIT, "a KV pool of %llu tokens is too large", (unsigned long long)tokens);
  DF_TRY(df_pages_init(&e->pages, page, (uint32_t)slots, err));
  DF_TRY(init_target(e, &p->session, err));
  if (e->d) {
    DF_TRY(df_drafter_init(&e->drafter, e->d, &e->target, DF_MAX_WIDTH, !p->session.no_graph, err));
    e->has_drafter = true;
  }
  e->step = (df_stepper){&e->target, e->has_drafter ? &e->drafter : NULL, &e->pages};
  DF_TRY(df_sampler_scratch_init(&e->scratch, e->m->cfg.vocab, err));
  DF_TRY(check_graph_memory(e, &p->session, err));
  return e->auto_width ? calibrate(e, err) : DF_OK;
}

df_status df_engine_init(df_engine *e, df_model *m, df_draft *d, const df_engine_params *p, df_error *err) {
  *e = (df_engine){.m = m, .d = d};
  if (d && d->target != m) return DF_FAIL(err, DF_ERR_ARGUMENT, "the draft was opened for another model");
  const df_status s = init_all(e, p, err);
  if (s != DF_OK) df_engine_release(e);
  return s;
}

void df_engine_release(df_engine *e) {
  if (e->has_drafter) df_drafter_release(&e->drafter);
  if (e->has_target) df_target_release(&e->target);
  df_pages_release(&e->pages);
  df_sampler_scratch_release(&e->scratch);
  *e = (df_engine){0};
}

df_status df_engine_request(df_engine *e, df_request *q, const int32_t *ids, size_t n, uint32_t n_valid, df_kv_seq *seq,
                            const df_generate_params *p, df_error *err) {
  df_kv_seq own = {0};
  if (!seq) {
    DF_TRY(df_kv_seq_init(&own, e->pages.size, e->n_ctx, err));
    seq = &own;
  }
  const uint32_t tap_floats = e->has_drafter ? e->target.p.n_taps * e->m->cfg.hidden : 0;
  df_status s = df_request_init(q, e->m, &e->target.ws, &e->scratch, ids, n, n_valid, e->n_ctx, e->width, tap_floats,
                                seq, p, err);
  if (s == DF_OK) {
    for (uint32_t w = e->auto_width ? 1 : q->width; w <= q->width && s == DF_OK; w++)
      s = df_spec_prepare(&e->step, 1, w, !q->greedy, err);
    if (s != DF_OK) {
      *seq = q->seq;
      df_request_release(q);
    }
  }
  if (s != DF_OK && seq == &own) df_kv_seq_release(&own, &e->pages);
  return s;
}

/* ---- prefill -------------------------------------------------------------------------------------------- */

static void fail_request(df_request *q, df_status why) {
  q->state = DF_REQ_DONE;
  q->failed = why;
}

static df_status prefill_done(df_request *q, uint32_t out_row, df_error *err) {
  int32_t id;
  q->base = q->n_prompt;
  DF_TRY(df_request_pick(q, 0, out_row, &id, err));
  if (q->penalties) DF_TRY(df_seen_push(&q->seen, id, true, err));
  q->state = DF_REQ_DECODE;
  q->t_first = df_now_ns();
  q->r.stats.prefill_ms = q->r.stats.first_token_ms = (double)(q->t_first - q->t_start) / 1e6;
  return df_request_emit(q, &id, 1, out_row, 0, 0, err);
}

static df_status prefill_pass(df_engine *e, df_request **q, uint32_t n, df_error *err) {
  df_prefill_item items[MAX_SEQS];
  df_request *who[MAX_SEQS];
  uint32_t m = 0, room = df_spec_prefill_rows(&e->step);
  for (uint32_t i = 0; i < n && room; i++) {
    if (q[i]->state != DF_REQ_PREFILL) continue;
    const uint32_t first = q[i]->n_valid, take = DF_MIN(q[i]->n_prompt - first, room);
    const df_status s = df_kv_seq_reserve(&q[i]->seq, &e->pages, first + take, err);
    if (s != DF_OK) {
      fail_request(q[i], s);
      continue;
    }
    items[m] = (df_prefill_item){&q[i]->seq, q[i]->ids + first, take, first, first + take == q[i]->n_prompt, 0};
    who[m++] = q[i];
    room -= take;
  }
  if (m == 0) return DF_OK;
  DF_TRY(df_spec_prefill(&e->step, items, m, err));
  for (uint32_t i = 0; i < m; i++) {
    who[i]->n_valid += items[i].n;
    if (items[i].last) DF_TRY(prefill_done(who[i], items[i].out_row, err));
  }
  return DF_OK;
}

/* ---- decode and verify ---------------------------------------------------------------------------------- */

/* Rows of the next verify block: what the request asks for, the context still holds, and is worth drafting. */
static uint32_t step_width(const df_engine *e, const df_request *q) {
  const uint32_t n = q->n_ids - 1; /* the anchor's position */
  if (!e->has_drafter || q->p.max_tokens - q->r.stats.new_tokens == 1) return 1;
  if (e->auto_width) return 0; /* chosen for all of them together */
  return DF_MIN(q->width, q->n_ctx - n);
}

static void count_step(df_request *q, const df_step_item *it, const df_step_times *t, uint32_t kept) {
  df_stats *st = &q->r.stats;
  st->steps++;
  st->draft_ms += (double)t->draft_ns / 1e6;
  st->verify_ms += (double)t->verify_ns / 1e6;
  st->sample_ms += (double)t->pick_ns / 1e6;
  st->inject_ms += (double)t->inject_ns / 1e6;
  st->decode_ms = (double)(df_now_ns() - q->t_first) / 1e6;
  if (!it->n_drafted) return;
  df_width_estimate_update(&q->est, it->n_drafted, it->accepted);
  st->verify_steps++;
  st->drafted += it->n_drafted;
  st->accepted += it->accepted;
  st->emitted_verify += kept;
  for (uint32_t j = 0; j < it->n_drafted; j++) {
    st->drafted_at[j]++;
    if (j < it->accepted) st->accepted_at[j]++;
  }
}

static df_status step_done(df_engine *e, df_request *q, const df_step_item *it, const df_step_times *t, df_error *err) {
  q->n_valid = it->n + it->accepted + 1;
  if (q->penalties) DF_TRY(df_seen_push(&q->seen, it->next, true, err));
  int32_t run[DF_MAX_WIDTH];
  memcpy(run, it->drafted, it->accepted * sizeof *run);
  run[it->accepted] = it->next;
  const uint32_t before = q->r.stats.new_tokens;
  DF_TRY(df_request_emit(q, run, it->accepted + 1, it->out_row, it->n_drafted, it->accepted, err));
  count_step(q, it, t, q->r.stats.new_tokens - before);
  return q->state == DF_REQ_DONE ? df_spec_flush(&e->step, &q->seq, &q->pending, err) : DF_OK;
}

/* A plain step right behind drafting pays for weights that the draft pushed out of the caches: only the third in a row
 * tells what plain decoding costs. */
static void note_costs(df_engine *e, uint32_t n, uint32_t width, uint32_t depth, const df_step_times *t) {
  e->plain_run = width == 1 ? e->plain_run + 1 : 0;
  if (width == 1 && e->plain_run < 3) return;
  df_width_cost_add(&e->costs.verify, n * width, depth, verify_ms(t));
  if (width > 1) df_width_cost_add(&e->costs.draft, n * width, depth, draft_ms(t));
}

/* All requests of one width in one step. */
static df_status step_group(df_engine *e, df_request **q, uint32_t n, uint32_t width, df_error *err) {
  df_step_item items[MAX_SEQS];
  df_request *who[MAX_SEQS];
  uint32_t m = 0, depth = 0;
  bool need_logits = false;
  for (uint32_t i = 0; i < n; i++) {
    const uint32_t at = q[i]->n_ids - 1;
    const df_status s = df_kv_seq_reserve(&q[i]->seq, &e->pages, at + width, err);
    if (s != DF_OK) {
      fail_request(q[i], s);
      continue;
    }
    items[m] = (df_step_item){.seq = &q[i]->seq,
                              .pending = q[i]->pending.rows ? &q[i]->pending : NULL,
                              .n = at,
                              .anchor = q[i]->ids[at],
                              .pick = df_request_pick,
                              .pick_ctx = q[i]};
    q[i]->base = at + 1;
    q[i]->drafted = items[m].drafted;
    need_logits |= !q[i]->greedy;
    depth += at;
    who[m++] = q[i];
  }
  if (m == 0) return DF_OK;
  /* A sampling request reads logits, a greedy one the argmax: with both in the group the argmax tail serves both, since
   * it leaves the logits too. */
  bool any_greedy = false;
  for (uint32_t i = 0; i < m; i++) any_greedy |= who[i]->greedy;
  df_step_times t;
  const uint64_t allocs = df_mem_alloc_count();
  DF_TRY(df_spec_step(&e->step, items, m, width, need_logits && !any_greedy, &t, err));
  const uint64_t made = df_mem_alloc_count() - allocs;
  if (e->auto_width) note_costs(e, m, width, depth / m, &t);
  for (uint32_t i = 0; i < m; i++) {
    who[i]->r.stats.step_allocations += made;
    DF_TRY(step_done(e, who[i], &items[i], &t, err));
  }
  return DF_OK;
}

/* The controller's width for all requests that leave it the choice. */
static uint32_t common_width(df_engine *e, df_request **q, const uint32_t *width, uint32_t n) {
  df_width_estimate *est[MAX_SEQS];
  uint32_t m = 0, max = e->width, depth = 0;
  for (uint32_t i = 0; i < n; i++) {
    if (width[i]) continue;
    est[m++] = &q[i]->est;
    depth += q[i]->n_ids;
    max = DF_MIN(max, q[i]->n_ctx - (q[i]->n_ids - 1));
  }
  return m ? df_width_choose(&e->costs, est, m, max, depth / m) : 1;
}

static df_status decode_pass(df_engine *e, df_request **q, uint32_t n, df_error *err) {
  uint32_t width[MAX_SEQS];
  for (uint32_t i = 0; i < n; i++) width[i] = step_width(e, q[i]);
  const uint32_t common = common_width(e, q, width, n);
  for (uint32_t i = 0; i < n; i++) width[i] = width[i] ? width[i] : common;
  for (uint32_t w = 1; w <= DF_MAX_WIDTH; w++) {
    df_request *group[MAX_SEQS];
    uint32_t m = 0;
    for (uint32_t i = 0; i < n; i++)
      if (width[i] == w) group[m++] = q[i];
    if (m) DF_TRY(step_group(e, group, m, w, err));
  }
  return DF_OK;
}

df_status df_engine_step(df_engine *e, df_request **q, uint32_t n, df_error *err) {
  if (n > e->max_seqs) return DF_FAIL(err, DF_ERR_ARGUMENT, "%u requests in a step of at most %u", n, e->max_seqs);
  for (uint32_t i = 0; i < n; i++) {
    if (q[i]->state == DF_REQ_DONE || !df_request_wants_cancel(q[i])) continue;
    DF_TRY(df_request_cancel(q[i], err));
    DF_TRY(df_spec_flush(&e->step, &q[i]->seq, &q[i]->pending, err));
  }
  /* Requests that finish their prompt in this step decode from the next one on. */
  df_request *decoding[MAX_SEQS];
  uint32_t m = 0;
  for (uint32_t i = 0; i < n; i++)
    if (q[i]->state == DF_REQ_DECODE) decoding[m++] = q[i];
  DF_TRY(prefill_pass(e, q, n, err));
  return decode_pass(e, decoding, m, err);
}
