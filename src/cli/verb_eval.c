/* dflash eval: measuring answers. */
#include <stdio.h>
#include <string.h>

#include "cli/eval_cli.h"
#include "cli/interrupt.h"

static df_status run_part(df_cli *cli, bool *same, df_error *err) {
  const df_opts *o = &cli->opts;
  const char *what = o->n_pos ? o->pos[0] : "";
  if (strcmp(what, "compare") == 0) return df_eval_compare(cli, o->pos + 1, o->n_pos - 1, 0, NULL, NULL, err);
  if (o->n_pos > 1) return DF_FAIL(err, DF_ERR_ARGUMENT, "unexpected argument \"%.80s\"", o->pos[1]);
  if (strcmp(what, "gsm8k") == 0) return df_eval_gsm8k(cli, err);
  if (strcmp(what, "mask-table") == 0) return df_eval_mask_table(cli, same, err);
  if (strcmp(what, "losslessness") == 0) return df_eval_sets(cli, DF_SETS_LOSSLESSNESS, same, err);
  if (strcmp(what, "accept") == 0) return df_eval_sets(cli, DF_SETS_ACCEPT, same, err);
  if (strcmp(what, "speed") == 0) return df_eval_sets(cli, DF_SETS_SPEED, same, err);
  (void)DF_FAIL(err, DF_ERR_ARGUMENT, what[0] ? "nothing to evaluate is called \"%.40s\"" : "say what to evaluate%.40s",
                what);
  df_error_hint(err, "dflash eval gsm8k, mask-table, losslessness, accept, speed or compare");
  return DF_ERR_ARGUMENT;
}

int df_verb_eval(df_cli *cli) {
  df_error err;
  bool same = true;
  df_interrupt_install();
  const df_status st = run_part(cli, &same, &err);
  if (st == DF_OK) return same ? DF_EXIT_OK : DF_EXIT_FAILURE;
  if (st == DF_ERR_CANCELLED && df_interrupted) {
    fprintf(stderr, "interrupted: what was answered is kept where --out was given\n");
    return DF_EXIT_INTERRUPTED;
  }
  return df_cli_report(cli, &err);
}
