#include "cli/eval_cli.h"
df_status df_eval_sets(df_cli *cli, df_eval_sets_kind kind, bool *same, df_error *err) {
  (void)cli, (void)kind, (void)same;
  return DF_FAIL(err, DF_ERR_UNSUPPORTED, "not there yet");
}
