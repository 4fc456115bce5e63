/*
 * bench/bench_trace.c - how many drafts would have stood at every position of greedy texts, and how sure they were.
 *
 *   bench_trace MODEL.gguf DRAFT.gguf TOKENS PROMPTS SET...       e.g. 160 6 gsm8k-chat code
 *
 * Reads bench/prompts/SET.jsonl. One line per prompt: the set's name, then one letter per position, the accepted drafts
 * of a block as wide as the draft takes as a hexadecimal digit; then SURE letters per position, the draft's own
 * probability of its first drafts in steps of 1/64 from '0' on. From these the width controller is replayed against
 * every fixed width without a model or a clock (tests/unit/test_width_replay.c): a block cut to w rows keeps the first
 * w - 1 drafts, which is 1 to 4 % kinder than drafting w rows.
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/size.h"
#include "cli/bench_report.h"
#include "engine/engine.h"

enum { CONTEXT = 2048, MOST_TOKENS = 512, SURE = 8 };

typedef struct tracer {
  df_model *m;
  df_draft *d;
  df_engine e;
  uint32_t tokens, width;
} tracer;

static void must(df_status s, const df_error *err) {
  if (s == DF_OK) return;
  fprintf(stderr, "bench_trace: %s\n", err->msg);
  exit(1);
}

static df_status pick_best(void *ctx, uint32_t row, uint32_t out_row, int32_t *id, df_error *err) {
  (void)row, (void)err;
  *id = df_workspace_best(&((tracer *)ctx)->e.target.ws, out_row);
  return DF_OK;
}

/* The prompt, in passes. Returns the token behind it. */
static int32_t prefill(tracer *t, df_kv_seq *seq, const int32_t *ids, uint32_t n) {
  df_error err = {0};
  df_prefill_item it = {0};
  for (uint32_t at = 0; at < n; at += it.n) {
    const uint32_t most = df_spec_prefill_rows(&t->e.step);
    it = (df_prefill_item){.seq = seq, .ids = ids + at, .n = DF_MIN(most, n - at), .first = at};
    it.last = at + it.n == n;
    must(df_spec_prefill(&t->e.step, &it, 1, &err), &err);
  }
  return df_workspace_best(&t->e.target.ws, it.out_row);
}

static void one_prompt(tracer *t, const char *name, const int32_t *ids, uint32_t n) {
  df_error err = {0};
  df_kv_seq seq;
  int32_t text[MOST_TOKENS], drafted[MOST_TOKENS][DF_MAX_WIDTH];
  static float sure[MOST_TOKENS][DF_MAX_WIDTH];
  uint32_t made = 0;
  must(df_kv_seq_init(&seq, t->e.pages.size, t->e.n_ctx, &err), &err);
  must(df_kv_seq_reserve(&seq, &t->e.pages, n + t->tokens + t->width, &err), &err);
  text[made++] = prefill(t, &seq, ids, n);
  while (made < t->tokens && !df_model_is_end_token(t->m, text[made - 1])) {
    const uint32_t at = n + made - 1;
    const df_draft_item d = {&seq, text[made - 1], at, drafted[made - 1], sure[made - 1]};
    must(df_drafter_draft(&t->e.drafter, &d, 1, t->width, &err), &err);
    df_step_item it = {.seq = &seq, .n = at, .anchor = text[made - 1], .pick = pick_best, .pick_ctx = t};
    df_step_times times;
    must(df_spec_step(&t->e.step, &it, 1, &(df_step_plan){.width = 1}, &times, &err), &err);
    text[made++] = it.next;
  }
  printf("%s ", name);
  for (uint32_t i = 0; i + t->width < made; i++) {
    uint32_t a = 0;
    while (a < t->width - 1 && drafted[i][a] == text[i + 1 + a]) a++;
    putchar("0123456789abcdef"[a]);
  }
  putchar(' ');
  for (uint32_t i = 0; i + t->width < made; i++)
    for (uint32_t j = 0; j < SURE; j++) putchar('0' + (int)DF_MIN(sure[i][j] * 64, 63.0f));
  putchar('\n');
  df_kv_seq_release(&seq, &t->e.pages);
}

int main(int argc, char **argv) {
  df_error err = {0};
  static tracer t;
  if (argc < 6) {
    fprintf(stderr, "usage: bench_trace MODEL.gguf DRAFT.gguf TOKENS PROMPTS SET...\n");
    return 2;
  }
  const df_model_params mp = df_model_params_default();
  must(df_model_open(argv[1], &mp, &t.m, &err), &err);
  const df_draft_params dp = df_draft_params_default();
  must(df_draft_open(argv[2], t.m, &dp, &t.d, &err), &err);
  t.tokens = (uint32_t)strtoul(argv[3], NULL, 10);
  t.tokens = DF_MIN(t.tokens, (uint32_t)MOST_TOKENS);
  t.width = DF_MIN(t.d->cfg.block_size, (uint32_t)DF_MAX_WIDTH);
  df_engine_params ep = {.session = df_session_params_default(), .max_seqs = 1};
  ep.session.n_ctx = CONTEXT;
  ep.session.spec_draft_max = (int32_t)t.width - 1; /* no controller */
  must(df_engine_init(&t.e, t.m, t.d, &ep, &err), &err);
  for (int i = 5; i < argc; i++) {
    df_bench_set set = {0};
    must(df_bench_set_load(&set, t.m, "bench/prompts", argv[i], (uint32_t)strtoul(argv[4], NULL, 10), &err), &err);
    for (uint32_t k = 0; k < set.n; k++) one_prompt(&t, argv[i], set.prompt[k], (uint32_t)set.n_prompt[k]);
    df_bench_set_release(&set);
  }
  df_engine_release(&t.e);
  df_draft_close(t.d);
  df_model_close(t.m);
  return 0;
}
