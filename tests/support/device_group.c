#include "support/device_group.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include <string.h>

#include "base/size.h"

static void must(df_status s, const df_error *err) {
  if (s != DF_OK) fail_msg("%s", err->msg);
}

/* A grammar that lets two of three tokens come, and never ends. */
typedef struct held {
  uint64_t allowed[16];
  uint32_t length;
} held;

static df_status held_mask(void *ctx, const uint64_t **mask, df_error *err) {
  (void)err;
  *mask = ((held *)ctx)->allowed;
  return DF_OK;
}

static df_status held_accept(void *ctx, int32_t id, bool *accepted, df_error *err) {
  (void)err;
  held *h = ctx;
  *accepted = h->allowed[id / 64] >> (id % 64) & 1;
  h->length += *accepted;
  return DF_OK;
}

static void held_rollback(void *ctx, uint32_t n) { ((held *)ctx)->length -= n; }
static uint32_t held_length(void *ctx) { return ((held *)ctx)->length; }

static void admit_held(df_engine *e, df_request *q, held *h, const int32_t *ids, uint32_t n,
                       const df_generate_params *p) {
  df_error err = {0};
  df_kv_seq seq = {0};
  const df_constraint c = {h, held_mask, held_accept, held_rollback, held_length};
  df_request_config config = {.gen = p, .constraint = &c};
  *h = (held){.length = 0};
  assert_true(e->m->cfg.vocab <= 64 * DF_COUNT_OF(h->allowed));
  for (uint32_t id = 0; id < e->m->cfg.vocab; id++)
    if (id % 3 != 1 && !df_tokenizer_is_eog(e->m->tok, (int32_t)id)) h->allowed[id / 64] |= UINT64_C(1) << (id % 64);
  must(df_engine_width(e, 0, &config, &err), &err);
  must(df_kv_seq_init(&seq, e->pages.size, e->n_ctx, &err), &err);
  must(df_request_init(q, e->m, ids, n, e->n_ctx, &config, &err), &err);
  must(df_engine_admit(e, q, &seq, 0, &err), &err);
}

static void begin(df_engine *e, const device_group *g, uint32_t i, held *h, df_request *q) {
  df_error err = {0};
  df_generate_params p = df_generate_params_default();
  int32_t ids[40];
  const uint32_t n = 5 + 7 * i;
  p.max_tokens = g->few ? 7 + i : GROUP_NEW - i;
  p.ignore_eos = true;
  p.sampling.seed = 11 + i;
  if (g->sampled >> i & 1) p.sampling.temperature = 0.7f;
  for (uint32_t j = 0; j < n; j++) ids[j] = (int32_t)((j * 29 + i * 13 + j * j * 5) % 251);
  if (g->held >> i & 1)
    admit_held(e, q, h, ids, n, &p);
  else
    must(df_engine_request(e, q, ids, n, 0, NULL, &p, &err), &err);
}

static void run_all(df_engine *e, const device_group *g, device_text *text) {
  df_error err = {0};
  df_request q[GROUP_MOST], *all[GROUP_MOST];
  held grammar[GROUP_MOST];
  bool busy = true;
  for (uint32_t i = 0; i < g->batch; i++) {
    begin(e, g, i, &grammar[i], &q[i]);
    all[i] = &q[i];
  }
  while (busy) {
    must(df_engine_step(e, all, g->batch, &err), &err);
    busy = false;
    for (uint32_t i = 0; i < g->batch; i++) busy |= q[i].state != DF_REQ_DONE;
  }
  for (uint32_t i = 0; i < g->batch; i++) {
    const df_stats *st = &q[i].r.stats;
    must(df_request_status(&q[i], &err), &err);
    text[i] = (device_text){.n = q[i].n_ids - q[i].n_prompt,
                            .blocks = (uint32_t)st->verify_steps,
                            .drafted = (uint32_t)st->drafted,
                            .accepted = (uint32_t)st->accepted};
    memcpy(text[i].ids, q[i].ids + q[i].n_prompt, text[i].n * sizeof *text[i].ids);
    df_kv_seq_release(&q[i].seq, &e->pages);
    df_request_release(&q[i]);
  }
}

uint32_t device_group_run(const device_files *f, const char *device, const device_group *g, device_text *text) {
  df_error err = {0};
  df_model *m = NULL;
  df_draft *d = NULL;
  df_engine e;
  uint32_t accepted = 0;
  df_model_params mp = df_model_params_default();
  df_draft_params dp = df_draft_params_default();
  df_engine_params p = {.session = df_session_params_default(), .max_seqs = g->padded ? GROUP_MOST : g->batch};
  mp.device = device;
  mp.n_threads = 2;
  if (g->draft_vocab) dp.draft_vocab = g->draft_vocab;
  p.session.n_ctx = 128;
  p.session.no_graph = g->eager;
  static const uint32_t k_sizes[] = {1, GROUP_MOST};
  if (g->padded) p.session.graph_seqs = k_sizes, p.session.n_graph_seqs = DF_COUNT_OF(k_sizes);
  p.session.spec_draft_max = (int32_t)g->width - 1;
  must(df_model_open(f->target, &mp, &m, &err), &err);
  must(df_draft_open(f->draft, m, &dp, &d, &err), &err);
  must(df_engine_init(&e, m, d, &p, &err), &err);
  run_all(&e, g, text);
  df_engine_release(&e);
  df_draft_close(d);
  df_model_close(m);
  for (uint32_t i = 0; i < g->batch; i++) accepted += text[i].accepted;
  return accepted;
}

void device_group_same(const device_group *g, const device_text *got, const device_text *want) {
  for (uint32_t i = 0; i < g->batch; i++)
    if (memcmp(&got[i], &want[i], sizeof *got) != 0)
      fail_msg(
          "width %u, %u of %u (sampled %x, held %x), draft vocabulary %u, eager %d: %u of %u drafts in %u blocks "
          "stood, "
          "%u of %u in %u are right",
          g->width, i, g->batch, g->sampled, g->held, g->draft_vocab, g->eager, got[i].accepted, got[i].drafted,
          got[i].blocks, want[i].accepted, want[i].drafted, want[i].blocks);
}

uint32_t device_group_both(const device_files *f, const char *device, const device_group *g) {
  device_text want[GROUP_MOST], got[GROUP_MOST];
  const uint32_t accepted = device_group_run(f, NULL, g, want);
  (void)device_group_run(f, device, g, got);
  device_group_same(g, got, want);
  return accepted;
}

uint32_t device_group_compare(const device_files *f, const char *device, uint32_t step) {
  uint32_t accepted = 0;
  for (uint32_t width = 2; width <= DF_MAX_WIDTH; width += step)
    for (uint32_t batch = 1; batch <= GROUP_MOST; batch++)
      for (uint32_t i = 0; i < 4; i++) {
        const device_group g = {.width = width, .batch = batch, .draft_vocab = i / 2 ? 120 : 0, .eager = i % 2 == 1};
        accepted += device_group_both(f, device, &g);
      }
  return accepted;
}
