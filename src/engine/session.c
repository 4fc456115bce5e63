#include <string.h>

#include "base/mem.h"
#include "base/size.h"
#include "engine/session_internal.h"

df_session_params df_session_params_default(void) { return (df_session_params){.spec_draft_max = -1}; }

df_status df_session_create(df_model *model, df_draft *draft, const df_session_params *params, df_session **out,
                            df_error *err) {
  const df_engine_params p = {.session = params ? *params : df_session_params_default(), .max_seqs = 1};
  df_session *s = df_calloc(1, sizeof *s);
  if (!s) return DF_OOM(err, "a session", sizeof *s);
  df_status st = df_engine_init(&s->e, model, draft, &p, err);
  if (st == DF_OK) {
    st = df_kv_seq_init(&s->seq, s->e.pages.size, s->e.n_ctx, err);
    if (st != DF_OK) df_engine_release(&s->e);
  }
  if (st != DF_OK) {
    df_free(s);
    return st;
  }
  *out = s;
  return DF_OK;
}

void df_session_free(df_session *s) {
  if (!s) return;
  df_kv_seq_release(&s->seq, &s->e.pages);
  df_engine_release(&s->e);
  df_free(s->ids);
  df_free(s);
}

void df_session_reset(df_session *s) {
  df_kv_seq_trim(&s->seq, &s->e.pages, 0);
  s->n_ids = s->n_valid = 0;
}

uint32_t df_session_n_ctx(const df_session *s) { return s->e.n_ctx; }
uint32_t df_session_n_cached(const df_session *s) { return s->n_valid; }

/* Length of the prefix that is still cached; at least the last token is recomputed, since its row is needed. */
static uint32_t cached_prefix(const df_session *s, const int32_t *ids, size_t n) {
  uint32_t same = 0;
  while (same < s->n_valid && same < n && s->ids[same] == ids[same]) same++;
  return same == n ? same - 1 : same;
}

/* Takes tokens and KV back from the finished request. */
static void keep(df_session *s, df_request *q) {
  df_free(s->ids);
  s->ids = q->ids;
  s->n_ids = q->n_ids;
  q->ids = NULL;
  /* A cut in the middle of a run leaves K and V behind the kept tokens: they stay valid for what is kept. */
  s->n_valid = DF_MIN(q->n_valid, q->n_ids);
  s->seq = q->seq;
  q->seq = (df_kv_seq){0};
  df_kv_seq_trim(&s->seq, &s->e.pages, s->n_valid);
}

df_status df_session_generate(df_session *s, const int32_t *ids, size_t n, const df_generate_params *params,
                              df_result *out, df_error *err) {
  const df_generate_params p = params ? *params : df_generate_params_default();
  const uint32_t same = n ? cached_prefix(s, ids, n) : 0;
  df_request q;
  DF_TRY(df_engine_request(&s->e, &q, ids, n, same, &s->seq, &p, err));
  df_kv_seq_trim(&q.seq, &s->e.pages, same);
  df_status st = DF_OK;
  df_request *one = &q;
  while (st == DF_OK && q.state != DF_REQ_DONE) st = df_engine_step(&s->e, &one, 1, err);
  if (st == DF_OK) st = df_request_status(&q, err);
  keep(s, &q);
  if (st == DF_OK) {
    q.r.ids = s->ids + n;
    q.r.n_ids = s->n_ids - (uint32_t)n;
    *out = q.r;
  } else {
    df_session_reset(s); /* K and V may be half written */
  }
  df_request_release(&q);
  return st;
}
