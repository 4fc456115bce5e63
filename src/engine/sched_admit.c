/* Who runs: order of admission, room in the KV pool, cached prefixes, parking. Engine thread only. */
#include <string.h>

#include "base/clock.h"
#include "base/size.h"
#include "engine/sched_internal.h"

enum {
  RESERVE = 2 * DF_MAX_WIDTH, /* positions beyond what is known that a running request must find room for */
  SHARE_MIN = 32              /* a common prefix of fewer tokens is not worth waiting for */
};

static uint32_t pages_of(const df_sched *s, uint32_t positions) {
  const uint32_t size = s->e.pages.size;
  return positions / size + (positions % size != 0);
}

/* ---- order ---------------------------------------------------------------------------------------------- */

static df_sched_client *client_of(df_sched *s, uint64_t client) {
  df_sched_client *oldest = &s->clients[0];
  for (uint32_t i = 0; i < DF_SCHED_CLIENTS; i++) {
    df_sched_client *c = &s->clients[i];
    if (c->turn && c->client == client) return c;
    if (c->turn < oldest->turn) oldest = c;
  }
  *oldest = (df_sched_client){client, 0}; /* forgotten, or never seen: first in turn */
  return oldest;
}

static uint64_t turn_of(const df_sched *s, uint64_t client) {
  for (uint32_t i = 0; i < DF_SCHED_CLIENTS; i++)
    if (s->clients[i].turn && s->clients[i].client == client) return s->clients[i].turn;
  return 0;
}

/* The client had its turn. */
static void take_turn(df_sched *s, uint64_t client) {
  client_of(s, client)->turn = ++s->turn;
  for (uint32_t i = 0; i < s->n_waiting; i++)
    if (s->waiting[i]->client == client) s->waiting[i]->turn = s->turn;
}

/* Priority; then what ran before; then clients in turn; then arrival. */
static bool before(const df_sched_job *a, const df_sched_job *b) {
  if (a->priority != b->priority) return a->priority > b->priority;
  if (a->parked != b->parked) return a->parked;
  if (!a->parked && a->turn != b->turn) return a->turn < b->turn;
  return a->id < b->id;
}

static df_sched_job *next_waiting(const df_sched *s) {
  df_sched_job *best = NULL;
  for (uint32_t i = 0; i < s->n_waiting; i++)
    if (!s->waiting[i]->skip && (!best || before(s->waiting[i], best))) best = s->waiting[i];
  return best;
}

static void remove_from(df_sched_job **list, uint32_t *n, const df_sched_job *j) {
  uint32_t i = 0;
  while (i < *n && list[i] != j) i++;
  if (i == *n) return;
  memmove(list + i, list + i + 1, (*n - i - 1) * sizeof *list);
  (*n)--;
}

/* ---- cached prefixes ------------------------------------------------------------------------------------ */

static bool reads_cache(const df_sched *s, const df_sched_job *j) {
  const bool fresh = j->q.n_ids == j->q.n_prompt;
  return s->use_cache && !j->no_cache && !(fresh && j->q.prompt_logprobs);
}

/* Positions that may come from the cache: the row of a prompt's last token is needed, so it is computed. */
static uint32_t cacheable(const df_sched_job *j) { return j->q.n_ids - 1; }

/* Whether r's prefill will bring in more of j's prompt than the `have` positions that the cache holds. */
static bool brings_more(const df_sched *s, const df_sched_job *r, const df_sched_job *j, uint32_t have) {
  const uint32_t n = DF_MIN(r->prefix, cacheable(j)), want = DF_MAX(have + s->e.pages.size, (uint32_t)SHARE_MIN);
  /* The next page first: it differs almost always. */
  return n >= want && memcmp(r->q.ids + have, j->q.ids + have, (want - have) * sizeof *j->q.ids) == 0 &&
         memcmp(r->q.ids, j->q.ids, have * sizeof *j->q.ids) == 0;
}

/* A running prefill is about to bring in a prefix that this job shares and the cache does not have yet. */
static bool waits_for_prefix(const df_sched *s, const df_sched_job *j) {
  if (!reads_cache(s, j)) return false;
  uint32_t have = UINT32_MAX;
  for (uint32_t i = 0; i < s->n_running; i++) {
    const df_sched_job *r = s->running[i];
    if (r->no_cache || r->q.state != DF_REQ_PREFILL) continue;
    if (have == UINT32_MAX) have = df_radix_lookup(&s->cache, j->q.ids, cacheable(j));
    if (brings_more(s, r, j, have)) return true;
  }
  return false;
}

void df_sched_share_prefix(df_sched *s, df_sched_job *j) {
  if (!s->use_cache || j->no_cache || j->prefix == 0) return;
  const uint32_t n = DF_MIN(j->q.n_valid, j->prefix);
  df_radix_put(&s->cache, j->q.ids, n, &j->q.seq);
  if (n == j->prefix) j->prefix = 0; /* all of it: the rest is put when the job ends */
}

/* ---- room ----------------------------------------------------------------------------------------------- */

/* Pages that a job should find room for, its own included. */
static uint32_t wanted_pages(const df_sched *s, const df_sched_job *j) {
  return pages_of(s, DF_MIN(df_request_fill(&j->q) + RESERVE, j->q.n_ctx));
}

static bool has_room(const df_sched *s, const df_sched_job *j) {
  if (s->n_running == 0) return true; /* alone it fits: its context is no longer than the pool */
  uint32_t need = wanted_pages(s, j), have = s->e.pages.n_free + s->e.pages.n_idle;
  if (reads_cache(s, j)) {
    need -= df_radix_lookup(&s->cache, j->q.ids, cacheable(j)) / s->e.pages.size;
    have -= df_radix_lookup_idle(&s->cache, j->q.ids, cacheable(j)) / s->e.pages.size;
  }
  for (uint32_t i = 0; i < s->n_running; i++) {
    const uint32_t want = wanted_pages(s, s->running[i]), held = s->running[i]->q.seq.n_pages;
    need += want > held ? want - held : 0;
  }
  return have >= need;
}

/* The pages that the next step needs beyond those that are held. */
static uint32_t step_need(const df_sched *s) {
  df_request *q[DF_ENGINE_MAX_SEQS];
  uint32_t rows[DF_ENGINE_MAX_SEQS], need = 0;
  for (uint32_t i = 0; i < s->n_running; i++) q[i] = &s->running[i]->q;
  df_engine_share_prefill(&s->e, q, s->n_running, rows);
  for (uint32_t i = 0; i < s->n_running; i++) {
    const uint32_t upto =
        q[i]->state == DF_REQ_DECODE ? DF_MIN(q[i]->n_ids - 1 + q[i]->width, q[i]->n_ctx) : q[i]->n_valid + rows[i];
    const uint32_t want = pages_of(s, upto);
    need += want > q[i]->seq.n_pages ? want - q[i]->seq.n_pages : 0;
  }
  return need;
}

/* Takes a running job's pages, keeping in the cache those that are sound. */
static void take_pages(df_sched *s, df_sched_job *j) {
  df_kv_seq seq;
  const uint32_t n = DF_MIN(j->q.n_valid, j->q.n_ids);
  const bool keep = s->use_cache && !j->no_cache && j->q.failed == DF_OK;
  if (keep && df_engine_park(&s->e, &j->q, &seq, NULL) == DF_OK)
    df_radix_put(&s->cache, j->q.ids, n, &seq);
  else if (!keep)
    seq = df_request_park(&j->q);
  df_kv_seq_release(&seq, &s->e.pages);
  remove_from(s->running, &s->n_running, j);
}

static void park(df_sched *s, df_sched_job *j) {
  take_pages(s, j);
  j->parked = true;
  j->preemptions++;
  j->prefix = 0;
  j->q.state = DF_REQ_PREFILL;
  s->st.preempted++;
  s->waiting[s->n_waiting++] = j;
}

void df_sched_make_room(df_sched *s) {
  for (;;) {
    const uint32_t need = step_need(s);
    if (need <= s->e.pages.n_free) return;
    if (s->use_cache) (void)df_radix_evict(&s->cache, need - s->e.pages.n_free);
    if (need <= s->e.pages.n_free || s->n_running < 2) return;
    df_sched_job *victim = s->running[0];
    for (uint32_t i = 1; i < s->n_running; i++) {
      df_sched_job *j = s->running[i];
      if (j->priority < victim->priority || (j->priority == victim->priority && j->id > victim->id)) victim = j;
    }
    park(s, victim);
  }
}

/* ---- in and out ----------------------------------------------------------------------------------------- */

static void count_admission(df_sched *s, df_sched_job *j, uint32_t asked, uint32_t hit) {
  if (j->t_admit) return; /* was here before */
  j->t_admit = j->q.t_start = df_now_ns();
  j->cached = hit;
  s->st.prompt_tokens += j->q.n_prompt;
  s->st.cached_tokens += hit;
  s->st.prefix_queries += asked;
  s->st.prefix_hits += hit;
  take_turn(s, j->client);
}

/* Behind those of the same priority: prompts come in in this order. */
static void insert_running(df_sched *s, df_sched_job *j) {
  uint32_t at = s->n_running++;
  for (; at > 0 && s->running[at - 1]->priority < j->priority; at--) s->running[at] = s->running[at - 1];
  s->running[at] = j;
}

static df_status start(df_sched *s, df_sched_job *j, df_error *err) {
  df_kv_seq seq;
  DF_TRY(df_kv_seq_init(&seq, s->e.pages.size, s->e.n_ctx, err));
  const uint32_t asked = reads_cache(s, j) ? cacheable(j) : 0;
  const uint32_t hit = asked ? df_radix_take(&s->cache, j->q.ids, asked, &seq) : 0;
  const df_status st = df_engine_admit(&s->e, &j->q, &seq, hit, err);
  if (st != DF_OK) {
    df_kv_seq_release(&seq, &s->e.pages);
    return st;
  }
  count_admission(s, j, asked, hit);
  j->parked = false;
  j->prefix = df_request_fill(&j->q);
  remove_from(s->waiting, &s->n_waiting, j);
  insert_running(s, j);
  return DF_OK;
}

void df_sched_admit(df_sched *s) {
  uint32_t skipped = 0;
  if (s->n_running == s->e.max_seqs) return;
  for (uint32_t i = 0; i < s->n_waiting; i++) {
    s->waiting[i]->skip = false;
    s->waiting[i]->turn = turn_of(s, s->waiting[i]->client);
  }
  while (s->n_running < s->e.max_seqs && skipped < 2 * s->e.max_seqs) {
    df_sched_job *j = next_waiting(s);
    if (!j) return;
    if (waits_for_prefix(s, j)) {
      j->skip = true;
      skipped++;
      continue;
    }
    if (!has_room(s, j)) return; /* nobody overtakes it: it would never have room */
    df_error why = {0};
    const df_status st = start(s, j, &why);
    if (st == DF_OK) continue;
    df_request_fail(&j->q, st, &why);
    df_sched_end(s, j);
  }
}

void df_sched_end(df_sched *s, df_sched_job *j) {
  if (j->q.seq.pages)
    take_pages(s, j);
  else
    remove_from(s->waiting, &s->n_waiting, j);
  df_sched_send_done(s, j);
  j->link = s->ended;
  s->ended = j;
}
