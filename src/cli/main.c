/* The program dflash: see verbs.c for what it can do. */
#include "cli/verbs.h"

int main(int argc, char **argv) { return df_cli_main(argc, argv); }
