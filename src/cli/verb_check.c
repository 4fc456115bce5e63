/* dflash check: losslessness on the user's own pair of model and draft. */
#include "cli/verbs.h"
int df_verb_check(df_cli *cli) { (void)cli; return DF_EXIT_FAILURE; }
