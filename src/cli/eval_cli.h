/*
 * cli/eval_cli.h - parts of "dflash eval": one run of gsm8k (eval_gsm8k.c), what is written about a run
 * (eval_report.c), runs side by side (eval_compare.c), the table about the verify mask (eval_table.c), prompt sets
 * (eval_sets.c).
 *
 * A run folder holds answers.jsonl (eval/run_log.h) and, once the run is complete, summary.json.
 * Threads: main thread.
 */
#ifndef DF_CLI_EVAL_CLI_H
#define DF_CLI_EVAL_CLI_H

#include "cli/cli_model.h"
#include "eval/gsm8k.h"
#include "eval/prompt_batch.h"
#include "eval/run_log.h"

#define DF_EVAL_ANSWERS "answers.jsonl"
#define DF_EVAL_SUMMARY "summary.json"

/* What a run is about, as far as options tell. */
typedef struct df_eval_plan {
  uint32_t shots, max_tokens, limit, parallel;
  uint64_t seed;
  df_fewshot how;
  bool chat, prefix_cache;
  char *data_dir; /* owned, like the two paths */
  char *model_path, *draft_path;
  char test_sha[65], train_sha[65], model_sha[65], draft_sha[65]; /* "" = not used, or a folder */
} df_eval_plan;

/* ---- eval_report.c ---- */

/* The command line so that a shell understands it, with the DF_ variables that are set in front. */
df_status df_eval_command(const df_cli *cli, df_buf *out, df_error *err) DF_CHECK;
/* First line of answers.jsonl: settings, command, version, machine. */
df_status df_eval_header(const df_cli *cli, const df_eval_plan *p, df_buf *out, df_error *err) DF_CHECK;
/* summary.json: the header's members, who ran which phase, results. */
df_status df_eval_summary(const df_loaded *l, const df_engine *e, const df_eval_tally *t, const char *header,
                          df_buf *out, df_error *err) DF_CHECK;
void df_eval_print(const df_cli *cli, const df_eval_plan *p, const df_eval_tally *t);
/* "62.5 ± 3.4" */
void df_eval_percent(char *out, size_t cap, uint32_t hits, uint32_t n);

/* ---- the parts ---- */

df_status df_eval_gsm8k(df_cli *cli, df_error *err) DF_CHECK;
/* Prints runs (folders or files), each against run `base`. differs [n] (may be NULL): not the same questions with the
 * same texts as base. json_path (may be NULL): where the comparison is written too. */
df_status df_eval_compare(df_cli *cli, const char *const *runs, uint32_t n, uint32_t base, bool *differs,
                          const char *json_path, df_error *err) DF_CHECK;
/* *same: rows b to e have the same texts. */
df_status df_eval_mask_table(df_cli *cli, bool *same, df_error *err) DF_CHECK;

typedef enum df_eval_sets_kind { DF_SETS_LOSSLESSNESS, DF_SETS_ACCEPT, DF_SETS_SPEED } df_eval_sets_kind;
/* *same: every width gave the plain texts. */
df_status df_eval_sets(df_cli *cli, df_eval_sets_kind kind, bool *same, df_error *err) DF_CHECK;

#endif
