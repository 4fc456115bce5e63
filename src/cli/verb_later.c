/* Verbs whose files are still to come. */
#include "cli/verbs.h"

static int later(df_cli *cli) {
  df_error err;
  (void)DF_FAIL(&err, DF_ERR_UNSUPPORTED, "this verb is not finished");
  return df_cli_report(cli, &err);
}

int df_verb_demo(df_cli *cli) { return later(cli); }
