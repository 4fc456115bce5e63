/*
 * cli/options.h - the one table of command line options, and everything that is derived from it: parsing,
 * environment variables, help, manual page, shell completion.
 *
 * Every option has one canonical long name; other engines' spellings of the same thing are aliases. The
 * environment name is DF_ + the canonical name in upper case with '-' as '_'; the command line wins.
 * A single dash may be followed by several letters (-md), so short options are never bundled.
 *
 * Ownership: df_opts borrows argv and the environment; both outlive it.
 * Threads:   none; used by the main thread only.
 */
#ifndef DF_CLI_OPTIONS_H
#define DF_CLI_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/edit.h"
#include "base/error.h"

/* Order of the table = order in help and manual. */
typedef enum df_opt_id {
  OPT_MODEL,
  OPT_DRAFT_MODEL,
  OPT_DRAFT_VOCAB,
  OPT_DRAFT_QUANT,
  OPT_WEIGHTS_CACHE,
  OPT_CTX_SIZE,
  OPT_THREADS,
  OPT_DEVICE,
  OPT_CPU,
  OPT_EXACT,
  OPT_CACHE_TYPE_K,
  OPT_CACHE_TYPE_V,
  OPT_PROMPT,
  OPT_FILE,
  OPT_SYSTEM,
  OPT_CHAT,
  OPT_CHAT_TEMPLATE_FILE,
  OPT_PREDICT,
  OPT_STOP,
  OPT_IGNORE_EOS,
  OPT_SPECIAL,
  OPT_SEED,
  OPT_TEMP,
  OPT_TOP_K,
  OPT_TOP_P,
  OPT_MIN_P,
  OPT_REPEAT_PENALTY,
  OPT_PRESENCE_PENALTY,
  OPT_FREQUENCY_PENALTY,
  OPT_SPEC_TYPE,
  OPT_SPEC_DRAFT_N_MAX,
  OPT_SPEC_WIDTH,
  OPT_ATTENTION_BACKEND,
  OPT_PREFILL_ATTENTION_BACKEND,
  OPT_DECODE_ATTENTION_BACKEND,
  OPT_VERIFY_ATTENTION_BACKEND,
  OPT_SPECULATIVE_ATTENTION_MODE,
  OPT_GRAPH,
  OPT_GRAPH_BS,
  OPT_GRAPH_MEMORY,
  OPT_PAGE_SIZE,
  OPT_TWO_BATCH_OVERLAP,
  OPT_MATRIX,
  OPT_LOGITS,
  OPT_BENCH_REPS,
  OPT_BENCH_DEPTH,
  OPT_BENCH_PREFILL,
  OPT_BENCH_SETS,
  OPT_BENCH_PROMPTS,
  OPT_BENCH_LIMIT,
  OPT_BENCH_ROUNDS,
  OPT_BENCH_WIDTHS,
  OPT_BENCH_SVG,
  OPT_BENCH_PEER,
  OPT_EVAL_SHOTS,
  OPT_EVAL_FEWSHOT,
  OPT_EVAL_FORMAT,
  OPT_EVAL_DATA,
  OPT_EVAL_OUT,
  OPT_EVAL_ROWS,
  OPT_EVAL_FAULT_BINARY,
  OPT_HOST,
  OPT_PORT,
  OPT_API_KEY,
  OPT_API_KEY_FILE,
  OPT_ALIAS,
  OPT_PARALLEL,
  OPT_KV_MEMORY,
  OPT_MAX_QUEUE,
  OPT_REQUEST_TIMEOUT,
  OPT_DRAIN_TIMEOUT,
  OPT_PREFIX_CACHE,
  OPT_CORS,
  OPT_STRICT_MODEL,
  OPT_MAX_BODY,
  OPT_MAX_CONNECTIONS,
  OPT_DECODE,
  OPT_PIECES,
  OPT_FULL,
  OPT_LIST,
  OPT_CACHE_DIR,
  OPT_OFFLINE,
  OPT_SHA256,
  OPT_JSON,
  OPT_STATS,
  OPT_COLOR,
  OPT_VERBOSE,
  OPT_LOG,
  OPT_CPU_INFO,
  OPT_VERSION,
  OPT_HELP,
  OPT_COUNT
} df_opt_id;

typedef enum df_opt_kind {
  DF_OPT_FLAG,   /* on, or off through a negative spelling */
  DF_OPT_STR,    /* any text */
  DF_OPT_PATH,   /* a file or folder name (completion differs) */
  DF_OPT_CHOICE, /* one of `choices` */
  DF_OPT_SIZE,   /* integer; 32k = 32000, 32K = 32768, also m/M, g/G */
  DF_OPT_REAL,   /* finite decimal number */
  DF_OPT_LIST    /* text, may be given several times */
} df_opt_kind;

typedef enum df_opt_group {
  DF_GROUP_MODEL,
  DF_GROUP_PROMPT,
  DF_GROUP_OUTPUT,
  DF_GROUP_SAMPLING,
  DF_GROUP_SPEC,
  DF_GROUP_ATTENTION,
  DF_GROUP_SERVER,
  DF_GROUP_TOOL,
  DF_GROUP_PULL,
  DF_GROUP_GENERAL,
  DF_GROUP_COUNT
} df_opt_group;

typedef struct df_opt {
  const char *name;     /* canonical, without dashes */
  const char *aliases;  /* further spellings with their dashes, separated by one space; "" = none */
  const char *negative; /* spellings that switch a flag off, or "" */
  df_opt_kind kind;
  df_opt_group group;
  const char *metavar; /* name of the value in help; NULL for flags */
  const char *choices; /* CHOICE: allowed values separated by '|'; SIZE: one word that is allowed too, or NULL */
  double min, max;     /* SIZE, REAL: inclusive */
  const char *deflt;   /* default as shown in help, or NULL */
  uint32_t verbs;      /* bits of the verbs that take it (verbs.h) */
  const char *help;    /* one sentence without final stop */
} df_opt;

extern const df_opt df_opt_table[OPT_COUNT];
extern const char *const df_opt_group_titles[DF_GROUP_COUNT];

typedef enum df_opt_source { DF_FROM_DEFAULT, DF_FROM_ENV, DF_FROM_ARGV } df_opt_source;

typedef struct df_opt_value {
  df_opt_source source;
  bool on;          /* FLAG */
  const char *text; /* as given, all kinds but FLAG; borrowed */
  int64_t integer;  /* SIZE; -1 stands for the extra word */
  double real;      /* REAL */
} df_opt_value;

enum { DF_OPT_LIST_MAX = 32, DF_OPT_POSITIONAL_MAX = 8 };

typedef struct df_opts {
  uint32_t verb; /* one bit */
  df_opt_value v[OPT_COUNT];
  const char *stop[DF_OPT_LIST_MAX]; /* values of the LIST options: --stop, --api-key */
  uint32_t n_stop;
  const char *keys[DF_OPT_LIST_MAX];
  uint32_t n_keys;
  const char *pos[DF_OPT_POSITIONAL_MAX];
  uint32_t n_pos;
  int argc; /* the whole command line, for --json */
  char *const *argv;
} df_opts;

/* Reads the environment (get("DF_...") returns NULL when unset; pass df_opt_getenv) and then argv[first..argc).
 * "--" ends the options. DF_ERR_ARGUMENT with a one-line message (and hint) for everything a user can get wrong. */
typedef const char *(*df_opt_getenv_fn)(const char *name);
df_status df_opts_parse(df_opts *o, uint32_t verb, int argc, char *const *argv, int first, df_opt_getenv_fn get,
                        df_error *err) DF_CHECK;
const char *df_opt_getenv(const char *name);

/* Checks and stores one value as if it had been given on the command line (chat's /set). */
df_status df_opts_assign(df_opts *o, df_opt_id id, const char *text, df_opt_source from, df_error *err) DF_CHECK;

/* Finds an option by a spelling with its dashes. -1 when there is none. *negated: the spelling switches it off. */
int df_opt_find(const char *spelling, size_t len, bool *negated);
/* Nearest known spelling of the options that `verbs` takes, NULL when nothing is near. */
const char *df_opt_suggest(const char *spelling, size_t len, uint32_t verbs);
/* Advice for a flag of another engine that we do not have, or NULL. `spelling` without "=value". */
const char *df_opt_foreign(const char *spelling, size_t len);

/* Writes "DF_CTX_SIZE" for "ctx-size"; cap > strlen(name) + 3. */
void df_opt_env_name(const df_opt *opt, char *out, size_t cap);
/* Reads "4096", "32k" (decimal) or "32K" (binary). False when it is not such a number. */
bool df_parse_size(const char *text, int64_t *out);

static inline bool df_opt_given(const df_opts *o, df_opt_id id) { return o->v[id].source != DF_FROM_DEFAULT; }
/* Value or the stated default. */
static inline const char *df_opt_text(const df_opts *o, df_opt_id id, const char *deflt) {
  return df_opt_given(o, id) ? o->v[id].text : deflt;
}
static inline int64_t df_opt_int(const df_opts *o, df_opt_id id, int64_t deflt) {
  return df_opt_given(o, id) ? o->v[id].integer : deflt;
}
static inline double df_opt_real(const df_opts *o, df_opt_id id, double deflt) {
  return df_opt_given(o, id) ? o->v[id].real : deflt;
}
static inline bool df_opt_on(const df_opts *o, df_opt_id id, bool deflt) {
  return df_opt_given(o, id) ? o->v[id].on : deflt;
}

/* ---- derived texts (options_help.c, manpage.c, completion.c) ---- */

/* Help of one verb (bit) or, with verb 0, the overview. keyword: only options that mention it. columns: width. */
void df_help_print(FILE *out, uint32_t verb, const char *keyword, unsigned columns, const char *bold,
                   const char *reset);
/* The manual page as roff (man macros). */
void df_manpage_print(FILE *out);
/* Completion script for "bash", "zsh" or "fish"; false for another shell. */
bool df_completion_print(FILE *out, const char *shell);

/* Walks a space-separated list: sets *word and *len, returns the position after it, NULL at the end. */
const char *df_word_next(const char *list, const char **word, size_t *len);

#endif
