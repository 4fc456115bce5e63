#include "eval/prompt_batch.h"

#include <string.h>

#include "base/mem.h"
#include "base/size.h"

enum { MOST = 64 };

typedef struct slot {
  df_request q;
  df_buf text;
  uint32_t index;
  bool used;
  df_status lost; /* of a text that could not be kept */
} slot;

typedef struct runner {
  df_engine *e;
  const df_batch_prompt *p;
  uint32_t n, next;
  const df_batch_params *bp;
  slot *slots;    /* [parallel] */
  df_kv_seq root; /* of what all prompts begin with */
  uint32_t n_root;
  bool has_root;
} runner;

size_t df_batch_common(const df_batch_prompt *p, uint32_t n) {
  size_t m = n && p[0].n ? p[0].n - 1 : 0;
  for (uint32_t i = 1; i < n; i++) {
    m = DF_MIN(m, p[i].n ? p[i].n - 1 : 0);
    size_t k = 0;
    while (k < m && p[i].ids[k] == p[0].ids[k]) k++;
    m = k;
  }
  return m;
}

static bool on_event(void *user, const df_event *ev) {
  slot *s = user;
  if (ev->text_len) s->lost = df_buf_put(&s->text, ev->text, ev->text_len, NULL);
  return s->lost == DF_OK;
}

/* ---- what all prompts share ----------------------------------------------------------------------------- */

/* Whole pages only: the page in which prompts part is everybody's own. */
static df_status make_root(runner *r, df_error *err) {
  const uint32_t page = r->e->pages.size;
  const size_t common = df_batch_common(r->p, r->n) / page * page;
  if (r->bp->no_prefix_cache || r->n < 2 || common == 0) return DF_OK;
  df_generate_params g = df_generate_params_default();
  g.max_tokens = 1;
  g.ignore_eos = true;
  df_request q, *one = &q;
  DF_TRY(df_engine_request(r->e, &q, r->p[0].ids, common, 0, NULL, &g, err));
  df_status st = DF_OK;
  while (st == DF_OK && q.state != DF_REQ_DONE) st = df_engine_step(r->e, &one, 1, err);
  if (st == DF_OK && q.failed != DF_OK) st = DF_FAIL(err, q.failed, "could not compute what all prompts begin with");
  if (st == DF_OK) {
    df_kv_seq_trim(&q.seq, &r->e->pages, (uint32_t)common);
    r->root = q.seq;
    r->n_root = (uint32_t)common;
    r->has_root = true;
  } else {
    df_kv_seq_release(&q.seq, &r->e->pages);
  }
  df_request_release(&q);
  return st;
}

/* ---- slots ---------------------------------------------------------------------------------------------- */

static df_status start(runner *r, slot *s, df_error *err) {
  const df_batch_prompt *p = &r->p[r->next];
  df_generate_params g = r->bp->gen;
  df_kv_seq seq;
  g.on_event = on_event;
  g.user = s;
  s->text.len = 0;
  s->lost = DF_OK;
  s->index = r->next;
  DF_TRY(df_kv_seq_init(&seq, r->e->pages.size, r->e->n_ctx, err));
  df_status st = r->has_root ? df_kv_seq_fork(&seq, &r->root, &r->e->pages, r->n_root, err) : DF_OK;
  if (st == DF_OK) st = df_engine_request(r->e, &s->q, p->ids, p->n, r->has_root ? r->n_root : 0, &seq, &g, err);
  if (st != DF_OK) {
    df_error_prefix(err, "prompt %u", r->next);
    df_kv_seq_release(&seq, &r->e->pages);
    return st;
  }
  s->used = true;
  r->next++;
  return DF_OK;
}

static void drop(runner *r, slot *s) {
  df_kv_seq_release(&s->q.seq, &r->e->pages);
  df_request_release(&s->q);
  s->used = false;
}

static df_status finish(runner *r, slot *s, df_error *err) {
  const df_request *q = &s->q;
  df_status st = DF_OK;
  if (s->lost != DF_OK)
    st = DF_FAIL(err, s->lost, "could not keep the answer to prompt %u (%s)", s->index, df_status_name(s->lost));
  else if (q->failed != DF_OK)
    st = DF_FAIL(err, q->failed, "prompt %u could not go on (%s)", s->index, df_status_name(q->failed));
  else if (q->r.finish == DF_FINISH_CANCELLED)
    st = DF_FAIL(err, DF_ERR_CANCELLED, "interrupted");
  if (st == DF_OK) {
    const df_batch_answer a = {s->index,
                               s->text.data ? s->text.data : "",
                               s->text.len,
                               q->ids + q->n_prompt,
                               q->n_ids - q->n_prompt,
                               q->r.finish,
                               &q->r.stats};
    st = r->bp->on_answer(r->bp->user, &a, err);
  }
  drop(r, s);
  return st;
}

static df_status step(runner *r, df_error *err) {
  df_request *active[MOST];
  uint32_t m = 0, before = 0, after = 0;
  for (uint32_t i = 0; i < r->bp->parallel; i++)
    if (r->slots[i].used) active[m++] = &r->slots[i].q;
  for (uint32_t i = 0; i < m; i++) before += active[i]->r.stats.new_tokens;
  DF_TRY(df_engine_step(r->e, active, m, err));
  for (uint32_t i = 0; i < m; i++) after += active[i]->r.stats.new_tokens;
  if (r->bp->on_tokens) r->bp->on_tokens(r->bp->user, after - before);
  for (uint32_t i = 0; i < r->bp->parallel; i++)
    if (r->slots[i].used && r->slots[i].q.state == DF_REQ_DONE) DF_TRY(finish(r, &r->slots[i], err));
  return DF_OK;
}

static df_status run_all(runner *r, df_error *err) {
  DF_TRY(make_root(r, err));
  for (;;) {
    bool busy = false;
    for (uint32_t i = 0; i < r->bp->parallel; i++) {
      if (!r->slots[i].used && r->next < r->n) DF_TRY(start(r, &r->slots[i], err));
      busy |= r->slots[i].used;
    }
    if (!busy) return DF_OK;
    DF_TRY(step(r, err));
  }
}

df_status df_batch_run(df_engine *e, const df_batch_prompt *p, uint32_t n, const df_batch_params *bp, df_error *err) {
  if (bp->parallel < 1 || bp->parallel > DF_MIN(e->max_seqs, (uint32_t)MOST))
    return DF_FAIL(err, DF_ERR_ARGUMENT, "%u parallel requests are outside 1..%u", bp->parallel, e->max_seqs);
  runner r = {.e = e, .p = p, .n = n, .bp = bp, .slots = df_calloc(bp->parallel, sizeof *r.slots)};
  if (!r.slots) return DF_OOM(err, "requests", bp->parallel * sizeof *r.slots);
  const df_status st = run_all(&r, err);
  for (uint32_t i = 0; i < bp->parallel; i++) {
    if (r.slots[i].used) drop(&r, &r.slots[i]);
    df_buf_release(&r.slots[i].text);
  }
  if (r.has_root) df_kv_seq_release(&r.root, &e->pages);
  df_free(r.slots);
  return st;
}
