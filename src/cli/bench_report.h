/*
 * cli/bench_report.h - what "dflash bench" measures and how it is shown.
 */
#ifndef DF_CLI_BENCH_REPORT_H
#define DF_CLI_BENCH_REPORT_H

#include "cli/cli_model.h"
#include "engine/bench.h"

enum { DF_BENCH_WIDTHS = 8, DF_BENCH_REPS = 64, DF_BENCH_SETS = 8, DF_BENCH_MODES = 10, DF_BENCH_PROMPTS = 32 };

/* One width: a target pass with all logits, and a draft block with its injection. */
typedef struct df_bench_width {
  uint32_t rows;
  double verify_ms[DF_BENCH_REPS], draft_ms[DF_BENCH_REPS];
  double peer_ms[DF_BENCH_REPS];
  uint32_t n, n_peer;
  df_spread verify, draft, peer;
} df_bench_width;

/* One way of generating over a prompt set: 0 = plain, -1 = automatic width, else a fixed number of rows. */
typedef struct df_bench_mode {
  int32_t width;
  df_stats sum;                /* over all prompts and repetitions */
  double speed[DF_BENCH_REPS]; /* tok/s of each repetition, all prompts together */
  uint32_t n;
  df_spread spread;
  double worst_ratio; /* smallest speed over plain of one prompt (median over repetitions) */
} df_bench_mode;

typedef struct df_bench_set {
  const char *name;
  int32_t *prompt[DF_BENCH_PROMPTS]; /* owned */
  size_t n_prompt[DF_BENCH_PROMPTS];
  uint32_t n;
  df_bench_mode mode[DF_BENCH_MODES];
  uint32_t n_modes;
  bool identical; /* every mode gave the plain text */
  double per_prompt[DF_BENCH_MODES][DF_BENCH_PROMPTS][DF_BENCH_REPS];
} df_bench_set;

typedef struct df_bench_report {
  df_loaded *l;
  uint32_t depth, reps, prefill_n, n_predict;
  uint32_t n_seqs; /* of a pass */
  df_bench_width width[DF_BENCH_WIDTHS];
  uint32_t n_widths;
  double prefill_ms[DF_BENCH_REPS];
  uint32_t n_prefill;
  df_bench_steps plain, drafted; /* of a card; step_us 0: not measured */
  df_spread prefill;
  df_bench_set *set[DF_BENCH_SETS]; /* owned */
  uint32_t n_sets;
  const char *peer; /* folder of the peer's programs, or NULL */
  double others;    /* share of the machine that other processes took */
  bool noisy;
} df_bench_report;

/* --prompts-dir, or bench/prompts where df_shipped_find looks. *out for df_free. DF_ERR_IO when it is nowhere. */
df_status df_bench_prompts_find(const df_opts *o, char **out, df_error *err) DF_CHECK;
/* Reads DIR/NAME.jsonl: at most `most` prompts as ids. FORMAT with the line number for a broken line. */
df_status df_bench_set_load(df_bench_set *s, const df_model *m, const char *dir, const char *name, uint32_t most,
                            df_error *err) DF_CHECK;
void df_bench_set_release(df_bench_set *s);

void df_bench_print(const df_bench_report *r, const df_cli *cli);
df_status df_bench_json(const df_bench_report *r, const df_cli *cli, df_buf *out, df_error *err) DF_CHECK;
/* Tokens per second against width, and acceptance by position. */
df_status df_bench_svg(const df_bench_report *r, df_buf *out, df_error *err) DF_CHECK;

/* Name of a mode: "plain", "auto", "8 rows". */
const char *df_bench_mode_name(int32_t width, char *buf, size_t cap);

#endif
