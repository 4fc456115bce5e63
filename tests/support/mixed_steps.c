#include "support/mixed_steps.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include <string.h>

#include "base/mem.h"
#include "base/size.h"

static void must(df_status s, const df_error *err) {
  if (s != DF_OK) fail_msg("%s", err->msg);
}

/* ---- the draft's K and V -------------------------------------------------------------------------------- */

static void fetch(df_device *d, const df_kv_store *kv) {
  df_error err = {0};
  if (df_device_is_host(d)) return;
  must(d->ops->fetch(d, kv->k, kv->total_bytes, &err), &err);
  must(d->ops->fetch(d, kv->v, kv->total_bytes, &err), &err);
}

static uint64_t mix_in(uint64_t h, const uint8_t *p, size_t n) {
  for (size_t i = 0; i < n; i++) h = (h ^ p[i]) * UINT64_C(0x100000001b3);
  return h;
}

/* K and V of a head at a position, into a hash that does not depend on where they lie. */
static uint64_t hash_head(uint64_t h, const df_kv_view *kv, const df_config *c, uint32_t slot, uint32_t head) {
  const size_t e = kv->type == DF_KV_F16 ? 2 : 4, n = c->head_dim * e;
  if (kv->token_major) {
    const size_t at = ((size_t)slot * c->n_kv_heads + head) * n;
    return mix_in(mix_in(h, kv->k + at, n), kv->v + at, n);
  }
  const size_t block = head * kv->head_stride + slot / DF_KV_PAGE * kv->head_bytes, at = slot % DF_KV_PAGE;
  for (uint32_t i = 0; i < c->head_dim; i++) h = mix_in(h, kv->k + block + (i * DF_KV_PAGE + at) * e, e);
  return mix_in(h, kv->v + block + at * n, n);
}

static uint64_t hash_kv(const df_engine *e, const df_kv_seq *seq, uint32_t n) {
  const df_config *c = &e->d->cfg;
  uint64_t h = UINT64_C(0xcbf29ce484222325);
  fetch(e->m->device, &e->drafter.kv);
  for (uint32_t l = 0; l < c->n_layers; l++) {
    const df_kv_view kv = df_kv_store_layer(&e->drafter.kv, l);
    for (uint32_t pos = 0; pos < n; pos++)
      for (uint32_t head = 0; head < c->n_kv_heads; head++) h = hash_head(h, &kv, c, df_kv_slot(seq, pos), head);
  }
  return h;
}

/* ---- how often features must be injected ---------------------------------------------------------------- */

typedef struct sim {
  const mixed *o;
  uint32_t n[MIXED_MOST]; /* rows that wait */
  bool held[MIXED_MOST];
  uint32_t passes;
} sim;

static void drop(sim *s, uint32_t i) {
  s->n[i] = 0;
  s->held[i] = false;
}

static void end(sim *s, uint32_t i) {
  s->passes += s->n[i] > 0;
  drop(s, i);
}

static bool may_keep(sim *s, uint32_t i) {
  uint32_t held = 0;
  for (uint32_t j = 0; j < s->o->batch; j++) held += s->held[j];
  if (!s->held[i] && held < s->o->keeps) s->held[i] = true;
  return s->held[i];
}

/* A group that took `width` rows each. */
static void count_group(sim *s, const uint32_t *took, uint32_t width) {
  bool any = false, waits = false, now = false, full = false;
  for (uint32_t i = 0; i < s->o->batch; i++) {
    if (took[i] != width) continue;
    any = true;
    waits |= s->n[i] > 0;
    if (width == 1 && may_keep(s, i))
      full |= ++s->n[i] == DF_TILE_ROWS;
    else if (width == 1)
      now = true;
  }
  if (!any) return;
  s->passes += width > 1 ? 1u + waits : (uint32_t)now + full;
  for (uint32_t i = 0; i < s->o->batch; i++)
    if (took[i] == width && (width > 1 || full)) drop(s, i);
}

/* ---- running -------------------------------------------------------------------------------------------- */

typedef struct run {
  const mixed *o;
  df_engine e;
  df_request q[MIXED_MOST];
  sim s;
  uint32_t step, turn;
} run;

static void begin(run *r, uint32_t i, const int32_t *ids, uint32_t n, uint32_t n_valid, df_kv_seq *seq) {
  df_error err = {0};
  df_generate_params g = df_generate_params_default();
  g.max_tokens = r->o->n_new - i;
  g.ignore_eos = true;
  g.sampling.seed = 3 + i;
  if (r->o->sampled && i % 2 == 0) g.sampling.temperature = 0.6f;
  must(df_engine_request(&r->e, &r->q[i], ids, n, n_valid, seq, &g, &err), &err);
}

static void begin_all(run *r) {
  for (uint32_t i = 0; i < r->o->batch; i++) {
    int32_t ids[40];
    const uint32_t n = 6 + 13 * i;
    for (uint32_t j = 0; j < n; j++) ids[j] = (int32_t)('a' + (j + i) % 5);
    begin(r, i, ids, n, 0, NULL);
  }
}

/* As a conversation goes on: three tokens more, on the pages that are there. */
static void go_on(run *r) {
  for (uint32_t i = 0; i < r->o->batch; i++) {
    df_request *q = &r->q[i];
    int32_t ids[MIXED_IDS];
    const uint32_t n = q->n_ids, n_valid = DF_MIN(q->n_valid, n);
    memcpy(ids, q->ids, n * sizeof *ids);
    for (uint32_t j = 0; j < 3; j++) ids[n + j] = (int32_t)('A' + j);
    df_kv_seq seq = df_request_park(q);
    df_request_release(q);
    begin(r, i, ids, n + 3, n_valid, &seq);
  }
  r->turn++;
}

static void park(run *r) {
  df_error err = {0};
  df_kv_seq seq;
  df_request *q = &r->q[0];
  must(df_engine_park(&r->e, q, &seq, &err), &err);
  end(&r->s, 0);
  df_kv_seq_release(&seq, &r->e.pages);
  must(df_kv_seq_init(&seq, r->e.pages.size, r->e.n_ctx, &err), &err);
  must(df_engine_admit(&r->e, q, &seq, 0, &err), &err);
}

static void note(run *r, uint32_t i, uint32_t took, uint32_t stood, mixed_text *t) {
  df_request *q = &r->q[i];
  assert_true(t->n_steps < DF_COUNT_OF(t->stood));
  t->stood[t->n_steps] = stood;
  if (took > 1) t->kv[t->n_steps] = hash_kv(&r->e, &q->seq, q->n_valid);
  t->n_steps++;
  t->accepted += stood;
  t->drafted += took - 1;
  if (q->state != DF_REQ_DONE) return;
  end(&r->s, i);
  t->end[r->turn] = hash_kv(&r->e, &q->seq, DF_MIN(q->n_valid, q->n_ids));
}

/* One step of all; false when nobody has anything to do. */
static bool one_step(run *r, mixed_text *text) {
  df_error err = {0};
  df_request *all[MIXED_MOST];
  uint32_t took[MIXED_MOST] = {0}, blocks[MIXED_MOST], stood[MIXED_MOST];
  bool busy = false, prompts = false;
  r->step++;
  if (r->o->park && r->step == r->o->park && r->q[0].state == DF_REQ_DECODE) park(r);
  for (uint32_t i = 0; i < r->o->batch; i++) {
    df_request *q = all[i] = &r->q[i];
    const uint32_t every = r->o->every[i];
    q->width = every && r->step % every == 0 ? r->o->width[i] : 1;
    took[i] = q->state == DF_REQ_DECODE;
    blocks[i] = (uint32_t)q->r.stats.verify_steps;
    stood[i] = (uint32_t)q->r.stats.accepted;
    prompts |= q->state == DF_REQ_PREFILL;
    busy |= q->state != DF_REQ_DONE;
  }
  if (!busy) return false;
  must(df_engine_step(&r->e, all, r->o->batch, &err), &err);
  r->s.passes += prompts;
  for (uint32_t i = 0; i < r->o->batch; i++) {
    must(df_request_status(&r->q[i], &err), &err);
    if (took[i] && r->q[i].r.stats.verify_steps > blocks[i]) took[i] = r->q[i].width;
  }
  for (uint32_t w = 1; w <= DF_MAX_WIDTH; w++) count_group(&r->s, took, w);
  for (uint32_t i = 0; i < r->o->batch; i++)
    if (took[i]) note(r, i, took[i], (uint32_t)r->q[i].r.stats.accepted - stood[i], &text[i]);
  return true;
}

static void run_all(run *r, mixed_text *text) {
  const uint64_t before = r->e.drafter.injections;
  begin_all(r);
  while (one_step(r, text)) {
  }
  if (r->o->goes_on) go_on(r);
  while (one_step(r, text)) {
  }
  const uint32_t passes = (uint32_t)(r->e.drafter.injections - before);
  if (passes != r->s.passes) fail_msg("%u passes injected instead of %u", passes, r->s.passes);
  assert_true(r->e.target.kept == 0);
  for (uint32_t i = 0; i < r->o->batch; i++) {
    text[i].n = r->q[i].n_ids;
    memcpy(text[i].ids, r->q[i].ids, text[i].n * sizeof *text[i].ids);
    df_kv_seq_release(&r->q[i].seq, &r->e.pages);
    df_request_release(&r->q[i]);
  }
}

uint32_t mixed_run(const device_files *f, const mixed *o, mixed_text *text) {
  df_error err = {0};
  df_model *m = NULL;
  df_draft *d = NULL;
  run *r = df_calloc(1, sizeof *r);
  df_model_params mp = df_model_params_default();
  df_engine_params p = {.session = df_session_params_default(), .max_seqs = MIXED_MOST};
  assert_non_null(r);
  memset(text, 0, o->batch * sizeof *text);
  r->o = r->s.o = o;
  mp.device = o->device;
  mp.n_threads = 2;
  p.session.n_ctx = 256;
  p.session.no_graph = o->eager;
  p.session.kv_f32 = o->f32;
  p.session.page_size = o->page_size;
  p.session.spec_draft_max = DF_MAX_WIDTH - 1;
  must(df_model_open(f->target, &mp, &m, &err), &err);
  must(df_draft_open(f->draft, m, NULL, &d, &err), &err);
  must(df_engine_init(&r->e, m, d, &p, &err), &err);
  assert_int_equal(r->e.target.p.keeps, MIXED_MOST);
  r->e.target.p.keeps = o->keeps;
  run_all(r, text);
  const uint32_t passes = r->s.passes;
  df_engine_release(&r->e);
  df_draft_close(d);
  df_model_close(m);
  df_free(r);
  return passes;
}

void mixed_same(const mixed *o, const mixed_text *got, const mixed_text *want) {
  for (uint32_t i = 0; i < o->batch; i++) {
    const mixed_text *a = &got[i], *b = &want[i];
    if (a->n != b->n || memcmp(a->ids, b->ids, a->n * sizeof *a->ids) != 0)
      fail_msg("request %u of %u, page size %u, eager %d: other tokens", i, o->batch, o->page_size, o->eager);
    if (a->n_steps != b->n_steps || memcmp(a->stood, b->stood, sizeof a->stood) != 0 || a->drafted != b->drafted)
      fail_msg("request %u of %u, page size %u, eager %d: %u of %u drafts stood, %u of %u are right", i, o->batch,
               o->page_size, o->eager, a->accepted, a->drafted, b->accepted, b->drafted);
    if (memcmp(a->kv, b->kv, sizeof a->kv) != 0 || memcmp(a->end, b->end, sizeof a->end) != 0)
      fail_msg("request %u of %u, page size %u, eager %d: other K and V of the draft", i, o->batch, o->page_size,
               o->eager);
  }
}
