/* dflash eval mask-table: gsm8k under five configurations, each a run of its own program with its own folder, so that
 * every printed command can be repeated alone and a table that was stopped goes on. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/size.h"
#include "cli/cli_attention.h"
#include "cli/eval_cli.h"
#include "cli/interrupt.h"
#include "cli/known.h"
#include "format/path.h"

enum { MOST_WORDS = 160, N_ROWS = 5, BASE = 1 };

typedef struct table_row {
  char letter;
  const char *folder, *what;
  bool fault, draft;
  const char *words[8]; /* options of the row */
} table_row;

static const table_row k_rows[N_ROWS] = {
    {'a',
     "a-fault",
     "split backends, the fault injected, its guard off",
     true,
     true,
     {"--prefill-attention-backend", "flashinfer", "--decode-attention-backend", "trtllm_mha"}},
    {'b',
     "b-split",
     "split backends",
     false,
     true,
     {"--prefill-attention-backend", "flashinfer", "--decode-attention-backend", "trtllm_mha"}},
    {'c',
     "c-decode-mode",
     "split backends, verification on the decode backend",
     false,
     true,
     {"--prefill-attention-backend", "flashinfer", "--decode-attention-backend", "trtllm_mha",
      "--speculative-attention-mode", "decode"}},
    {'d', "d-single", "one backend for all phases", false, true, {"--attention-backend", "flashinfer"}},
    {'e',
     "e-no-draft",
     "split backends, no drafting",
     false,
     false,
     {"--prefill-attention-backend", "flashinfer", "--decode-attention-backend", "trtllm_mha"}}};

typedef struct table {
  df_cli *cli;
  const char *out, *self, *fault;
  char *folder[N_ROWS]; /* owned; NULL: not run */
} table;

/* ---- the command of a row ------------------------------------------------------------------------------- */

/* Options that the table sets itself, or that are not the single run's business. */
static bool is_ours(df_opt_id id, bool draft) {
  static const df_opt_id k_ours[] = {OPT_ATTENTION_BACKEND,
                                     OPT_PREFILL_ATTENTION_BACKEND,
                                     OPT_DECODE_ATTENTION_BACKEND,
                                     OPT_VERIFY_ATTENTION_BACKEND,
                                     OPT_SPECULATIVE_ATTENTION_MODE,
                                     OPT_EVAL_OUT,
                                     OPT_EVAL_ROWS,
                                     OPT_EVAL_FAULT_BINARY,
                                     OPT_JSON};
  static const df_opt_id k_drafting[] = {OPT_DRAFT_MODEL,      OPT_SPEC_TYPE,   OPT_SPEC_WIDTH,
                                         OPT_SPEC_DRAFT_N_MAX, OPT_DRAFT_VOCAB, OPT_DRAFT_QUANT};
  for (size_t i = 0; i < DF_COUNT_OF(k_ours); i++)
    if (id == k_ours[i]) return true;
  for (size_t i = 0; i < DF_COUNT_OF(k_drafting) && !draft; i++)
    if (id == k_drafting[i]) return true;
  return false;
}

typedef struct words {
  char *w[MOST_WORDS + 1]; /* owned, NULL-terminated */
  uint32_t n;
  bool failed;
} words;

static void add(words *c, const char *a, const char *b) {
  char buf[4200];
  if (snprintf(buf, sizeof buf, "%s%s", a, b) >= (int)sizeof buf || c->n == MOST_WORDS) {
    c->failed = true;
    return;
  }
  c->w[c->n] = df_strdup(buf);
  if (c->w[c->n])
    c->n++;
  else
    c->failed = true;
}

static void add_given(words *c, const df_opts *o, bool draft) {
  for (int id = 0; id < OPT_COUNT; id++) {
    const df_opt *opt = &df_opt_table[id];
    if (o->v[id].source != DF_FROM_ARGV || is_ours((df_opt_id)id, draft)) continue;
    if (opt->kind != DF_OPT_FLAG) {
      add(c, "--", opt->name);
      add(c, o->v[id].text, "");
    } else if (o->v[id].on) {
      add(c, "--", opt->name);
    } else {
      const char *word;
      size_t n;
      char no[80];
      (void)df_word_next(opt->negative, &word, &n);
      (void)snprintf(no, sizeof no, "%.*s", (int)n, word);
      add(c, no, "");
    }
  }
}

static void release_words(words *c) {
  for (uint32_t i = 0; i < c->n; i++) df_free(c->w[i]);
}

static df_status row_command(const table *t, uint32_t i, const char *program, words *c, df_error *err) {
  const table_row *row = &k_rows[i];
  const df_opts *o = &t->cli->opts;
  *c = (words){0};
  add(c, program, "");
  add(c, "eval", "");
  add(c, "gsm8k", "");
  add_given(c, o, row->draft);
  if (row->draft && df_draft_max_from_opts(o) < 0) add(c, "--spec-draft-n-max", ""), add(c, "7", "");
  for (uint32_t k = 0; k < 8 && row->words[k]; k++) add(c, row->words[k], "");
  add(c, "--out", "");
  add(c, t->folder[i], "");
  return c->failed ? DF_FAIL(err, DF_ERR_LIMIT, "the command of row %c is too long", row->letter) : DF_OK;
}

/* ---- running -------------------------------------------------------------------------------------------- */

/* What the program says goes to standard error; standard output is the table's. */
static void become(const char *path, char *const *argv, bool fault) {
  if (dup2(STDERR_FILENO, STDOUT_FILENO) < 0) _exit(127);
  if (fault && (setenv("DF_TEST_MASK_POLICY", "wrapper_name", 1) != 0 || setenv("DF_TEST_MASK_GUARD", "off", 1) != 0))
    _exit(127);
  if (!fault) (void)unsetenv("DF_TEST_MASK_POLICY"), (void)unsetenv("DF_TEST_MASK_GUARD");
  (void)execv(path, argv);
  _exit(127);
}

static df_status run_row(const table *t, uint32_t i, df_error *err) {
  const table_row *row = &k_rows[i];
  const char *path = row->fault ? t->fault : "/proc/self/exe";
  const char *dim = df_term_err(&t->cli->term, DF_STYLE_BOLD), *off = df_term_err(&t->cli->term, DF_STYLE_RESET);
  words c;
  int status = 0;
  df_status st = row_command(t, i, row->fault ? t->fault : t->self, &c, err);
  if (st == DF_OK) {
    fprintf(stderr, "%srow %c: %s%s\n", dim, row->letter, row->what, off);
    (void)fflush(NULL);
    const pid_t pid = fork();
    if (pid == 0) become(path, c.w, row->fault);
    pid_t got = pid;
    while (pid > 0 && (got = waitpid(pid, &status, 0)) < 0 && errno == EINTR) {
    }
    if (pid < 0 || got < 0) st = DF_FAIL(err, DF_ERR_IO, "could not run row %c: %s", row->letter, strerror(errno));
  }
  release_words(&c);
  if (st != DF_OK) return st;
  if (df_interrupted || (WIFEXITED(status) && WEXITSTATUS(status) == DF_EXIT_INTERRUPTED))
    return DF_FAIL(err, DF_ERR_CANCELLED, "interrupted");
  if (WIFEXITED(status) && WEXITSTATUS(status) == 127)
    return DF_FAIL(err, DF_ERR_IO, "could not start \"%s\" for row %c", path, row->letter);
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
    return DF_FAIL(err, DF_ERR_IO, "row %c failed, see above; the answers so far are kept in \"%s\"", row->letter,
                   t->folder[i]);
  return DF_OK;
}

/* ---- the table ------------------------------------------------------------------------------------------ */

static df_status choose_rows(table *t, df_error *err) {
  const char *rows = df_opt_text(&t->cli->opts, OPT_EVAL_ROWS, "abcde");
  if (rows[0] == '\0' || rows[strspn(rows, "abcde")])
    return DF_FAIL(err, DF_ERR_ARGUMENT, "--rows \"%.20s\" is more than letters from a to e", rows);
#ifdef DF_FAULT_INJECTION
  t->fault = t->self;
#endif
  t->fault = df_opt_text(&t->cli->opts, OPT_EVAL_FAULT_BINARY, t->fault);
  for (uint32_t i = 0; i < N_ROWS; i++) {
    if (!strchr(rows, k_rows[i].letter)) continue;
    if (k_rows[i].fault && !t->fault) {
      fprintf(stderr,
              "note: row a is left out: this program has no faults in it; \"tools/build fault\" makes one for "
              "--fault-binary build/fault/dflash\n");
      continue;
    }
    DF_TRY(df_path_join(t->out, k_rows[i].folder, &t->folder[i], err));
  }
  return DF_OK;
}

static df_status print_all(table *t, bool *same, df_error *err) {
  const char *runs[N_ROWS];
  bool differs[N_ROWS] = {false}, fault[N_ROWS] = {false};
  uint32_t n = 0, base = 0;
  char *json = NULL;
  for (uint32_t i = 0; i < N_ROWS; i++) {
    if (!t->folder[i]) continue;
    if (i == BASE || (base == 0 && n && fault[0])) base = n; /* b, or the first sound row */
    fault[n] = k_rows[i].fault;
    runs[n++] = t->folder[i];
  }
  if (n == 0) return DF_FAIL(err, DF_ERR_ARGUMENT, "no row is left to run");
  DF_TRY(df_path_join(t->out, "table.json", &json, err));
  const df_status st = df_eval_compare(t->cli, runs, n, base, differs, json, err);
  df_free(json);
  for (uint32_t i = 0; i < n; i++) *same &= fault[i] || !differs[i];
  if (st == DF_OK && !df_opt_on(&t->cli->opts, OPT_JSON, false))
    printf("\n%s\n", *same ? "every run without the fault gave the same texts" : "RUNS WITHOUT THE FAULT DIFFER");
  return st;
}

df_status df_eval_mask_table(df_cli *cli, bool *same, df_error *err) {
  table t = {.cli = cli, .out = df_opt_text(&cli->opts, OPT_EVAL_OUT, NULL), .self = cli->opts.argv[0]};
  DF_TRY(df_need_model(&cli->opts, err));
  if (!df_opt_given(&cli->opts, OPT_DRAFT_MODEL))
    return DF_FAIL(err, DF_ERR_ARGUMENT, "the table needs a draft: give -md FILE");
  if (!t.out) return DF_FAIL(err, DF_ERR_ARGUMENT, "the table needs a folder for its runs: give --out DIR");
  df_status st = choose_rows(&t, err);
  for (uint32_t i = 0; i < N_ROWS && st == DF_OK; i++)
    if (t.folder[i]) st = run_row(&t, i, err);
  if (st == DF_OK) st = print_all(&t, same, err);
  for (uint32_t i = 0; i < N_ROWS; i++) df_free(t.folder[i]);
  return st;
}
