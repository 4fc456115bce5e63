/*
 * cli/verbs.h - the verbs of the program: one row each, one file each (verb_<name>.c).
 * A verb returns the exit status: 0 ok, 1 failure, 2 usage, 130 interrupted twice.
 */
#ifndef DF_CLI_VERBS_H
#define DF_CLI_VERBS_H

#include <stdbool.h>

#include "cli/options.h"
#include "cli/term.h"

enum {
  DF_VERB_RUN = 1 << 0,
  DF_VERB_BENCH = 1 << 13,
  DF_VERB_CHAT = 1 << 1,
  DF_VERB_DEMO = 1 << 2,
  DF_VERB_PERPLEXITY = 1 << 3,
  DF_VERB_TOKENIZE = 1 << 4,
  DF_VERB_INSPECT = 1 << 5,
  DF_VERB_PULL = 1 << 6,
  DF_VERB_VERSION = 1 << 7,
  DF_VERB_HELP = 1 << 8,
  DF_VERB_COMPLETION = 1 << 9,
  DF_VERB_MAN = 1 << 10,
  DF_VERB_CHECK = 1 << 11,
  DF_VERB_DOCTOR = 1 << 12,
  DF_VERB_SERVE = 1 << 14,
  DF_VERB_EVAL = 1 << 20,
  DF_VERB_QUANTIZE = 1 << 21
};

enum { DF_EXIT_OK = 0, DF_EXIT_FAILURE = 1, DF_EXIT_USAGE = 2, DF_EXIT_INTERRUPTED = 130 };

typedef struct df_cli {
  df_opts opts;
  df_term term;
} df_cli;

typedef struct df_verb {
  uint32_t bit;
  const char *name;
  const char *args;    /* positional arguments in help, "" = none */
  uint32_t max_pos;    /* how many positional arguments it takes */
  bool hidden;         /* not in the overview */
  const char *summary; /* one line */
  const char *detail;  /* some sentences for help and manual */
  int (*run)(df_cli *cli);
} df_verb;

extern const df_verb df_verbs[];
extern const unsigned df_verb_count;

const df_verb *df_verb_find(const char *name); /* NULL when unknown */
const df_verb *df_verb_of_bit(uint32_t bit);

/* The whole program; argv[0] is ignored. Returns the exit status. */
int df_cli_main(int argc, char *const *argv);

/* Prints "dflash VERB: error: message" and the hint to standard error and returns the exit status for the code. */
int df_cli_report(const df_cli *cli, const df_error *err);

int df_verb_run(df_cli *cli);
int df_verb_chat(df_cli *cli);
int df_verb_demo(df_cli *cli);
int df_verb_bench(df_cli *cli);
int df_verb_perplexity(df_cli *cli);
int df_verb_tokenize(df_cli *cli);
int df_verb_inspect(df_cli *cli);
int df_verb_pull(df_cli *cli);
int df_verb_version(df_cli *cli);
int df_verb_help(df_cli *cli);
int df_verb_completion(df_cli *cli);
int df_verb_man(df_cli *cli);
int df_verb_check(df_cli *cli);
int df_verb_doctor(df_cli *cli);
int df_verb_serve(df_cli *cli);
int df_verb_eval(df_cli *cli);
int df_verb_quantize(df_cli *cli);

#endif
