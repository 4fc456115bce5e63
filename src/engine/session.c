#include <string.h>

#include "base/mem.h"
#include "base/size.h"
#include "engine/backends.h"
#include "engine/session_internal.h"

enum {
  PREFILL_ROWS = 256,     /* rows of one prefill pass: enough to amortise reading the weights */
  DEFAULT_CTX = 8192,     /* bounds the page table; memory is used only as far as a conversation goes */
  MAX_CTX = 1 << 20,
  DEFAULT_DRAFTS = 7      /* a block of 8 rows: the knee of cost against acceptance on two cores */
};

df_session_params df_session_params_default(void) { return (df_session_params){.spec_draft_max = -1}; }

static df_status choose_sizes(df_session *s, const df_session_params *p, df_error *err) {
  const uint32_t trained = s->m->cfg.context_length;
  s->n_ctx = p->n_ctx ? p->n_ctx : DF_MIN(trained ? trained : DEFAULT_CTX, (uint32_t)DEFAULT_CTX);
  if (s->n_ctx < 2 || s->n_ctx > MAX_CTX) return DF_FAIL(err, DF_ERR_ARGUMENT, "context size %u is outside 2..%d", s->n_ctx, MAX_CTX);
  s->width = 1;
  if (!s->d) return DF_OK;
  const int32_t most = (int32_t)DF_MIN(s->d->cfg.block_size, (uint32_t)DF_MAX_WIDTH) - 1;
  int32_t drafts = p->spec_draft_max;
  if (drafts < 0) drafts = DF_MIN(most, DEFAULT_DRAFTS);
  if (drafts > most) {
    df_error_set(err, DF_ERR_ARGUMENT, __FILE__, __LINE__, "%d drafted tokens exceed the %d of this draft's block", drafts, most);
    df_error_hint(err, "drafted tokens do not count the target's own token: a block of 16 rows drafts 15");
    return DF_ERR_ARGUMENT;
  }
  s->width = (uint32_t)drafts + 1;
  return DF_OK;
}

static df_status init_target(df_session *s, const df_session_params *p, df_error *err) {
  const df_config *c = &s->m->cfg;
  const df_attn_shape shape = {c->n_heads, c->n_kv_heads, c->head_dim, s->n_ctx, df_pool_threads(s->m->pool)};
  df_attn *attn;
  DF_TRY(df_backends_create(p, &shape, &attn, err));
  df_mask_decision mask = {0};
  const df_status st = df_verify_mask_policy(attn, DF_DRAFT_CHAIN, &mask, err);
  if (st != DF_OK) {
    df_attn_free(attn);
    return st;
  }
  const df_target_params tp = {.max_seqs = 1, .max_rows = PREFILL_ROWS, .max_out = DF_MAX_WIDTH, .max_positions = s->n_ctx,
                               .n_pages = s->pages.n_pages, .kv = p->kv_f32 ? DF_KV_F32 : DF_KV_F16, .graphs = !p->no_graph,
                               .attn = attn, .taps = s->d ? s->d->cfg.taps : NULL, .n_taps = s->d ? s->d->cfg.n_taps : 0,
                               .verify_mask = mask.layout};
  DF_TRY(df_target_init(&s->target, s->m, &tp, err));
  s->has_target = true;
  return DF_OK;
}

static df_status init_all(df_session *s, const df_session_params *p, df_error *err) {
  DF_TRY(choose_sizes(s, p, err));
  DF_TRY(df_pages_init(&s->pages, (s->n_ctx + DF_KV_PAGE - 1) / DF_KV_PAGE, err));
  DF_TRY(df_kv_seq_init(&s->seq, s->n_ctx, err));
  DF_TRY(init_target(s, p, err));
  if (s->d) {
    DF_TRY(df_drafter_init(&s->drafter, s->d, &s->target, DF_MAX_WIDTH, !p->no_graph, err));
    s->has_drafter = true;
  }
  s->ids = df_calloc((size_t)s->n_ctx + DF_MAX_WIDTH + 1, sizeof *s->ids);
  if (!s->ids) return DF_OOM(err, "the conversation", s->n_ctx * sizeof *s->ids);
  DF_TRY(df_sampler_scratch_init(&s->scratch, s->m->cfg.vocab, err));
  DF_TRY(df_seen_init(&s->seen, DF_MIN(s->n_ctx + DF_MAX_WIDTH, s->m->cfg.vocab), err));
  s->step = (df_stepper){&s->target, s->has_drafter ? &s->drafter : NULL, &s->pages};
  return DF_OK;
}

df_status df_session_create(df_model *model, df_draft *draft, const df_session_params *params, df_session **out, df_error *err) {
  const df_session_params p = params ? *params : df_session_params_default();
  if (draft && draft->target != model) return DF_FAIL(err, DF_ERR_ARGUMENT, "the draft was opened for another model");
  df_session *s = df_calloc(1, sizeof *s);
  if (!s) return DF_OOM(err, "a session", sizeof *s);
  s->m = model;
  s->d = draft;
  const df_status st = init_all(s, &p, err);
  if (st != DF_OK) {
    df_session_free(s);
    return st;
  }
  *out = s;
  return DF_OK;
}

void df_session_free(df_session *s) {
  if (!s) return;
  if (s->has_drafter) df_drafter_release(&s->drafter);
  if (s->has_target) df_target_release(&s->target);
  df_kv_seq_release(&s->seq, &s->pages);
  df_pages_release(&s->pages);
  df_sampler_scratch_release(&s->scratch);
  df_seen_release(&s->seen);
  df_free(s->ids);
  df_free(s);
}

void df_session_reset(df_session *s) {
  df_kv_seq_trim(&s->seq, &s->pages, 0);
  s->n_ids = s->n_valid = 0;
}

uint32_t df_session_n_ctx(const df_session *s) { return s->n_ctx; }
uint32_t df_session_n_cached(const df_session *s) { return s->n_valid; }
