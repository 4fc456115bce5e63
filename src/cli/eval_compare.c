/* Runs side by side: a table with every command, a paired test, the first difference of texts. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/size.h"
#include "cli/cli_text.h"
#include "cli/eval_cli.h"
#include "format/path.h"

enum { MOST_RUNS = DF_OPT_POSITIONAL_MAX };

typedef struct pair {
  uint32_t common, same;            /* questions both answered; of them the same text */
  uint32_t only_first, only_second; /* right in one only, flexible-extract */
  uint32_t strict_first, strict_second;
  bool differs;
  uint32_t question; /* the first whose texts differ, by number */
  size_t at;         /* first byte */
  const df_eval_row *a, *b;
} pair;

typedef struct comparison {
  const char *const *name;
  df_run_log log[MOST_RUNS];
  df_eval_tally tally[MOST_RUNS];
  pair against[MOST_RUNS]; /* run i against run `base` */
  uint32_t n, base;
} comparison;

/* ---- reading -------------------------------------------------------------------------------------------- */

static df_status open_one(df_run_log *l, const char *where, df_error *err) {
  struct stat sb;
  char *path = NULL;
  if (stat(where, &sb) == 0 && !S_ISDIR(sb.st_mode)) return df_run_log_read(l, where, err);
  DF_TRY(df_path_join(where, DF_EVAL_ANSWERS, &path, err));
  const df_status st = df_run_log_read(l, path, err);
  df_free(path);
  return st;
}

static void compare_texts(pair *p, const df_eval_row *a, const df_eval_row *b) {
  if (a->n_text == b->n_text && memcmp(a->text, b->text, a->n_text) == 0 && a->ids_hash == b->ids_hash) {
    p->same++;
    return;
  }
  if (p->differs && p->question < a->index) return;
  size_t at = 0;
  while (at < a->n_text && at < b->n_text && a->text[at] == b->text[at]) at++;
  p->differs = true;
  p->question = a->index;
  p->at = at;
  p->a = a;
  p->b = b;
}

static void compare_runs(pair *p, const df_run_log *first, const df_run_log *second) {
  for (uint32_t i = 0; i < first->n; i++) {
    const df_eval_row *a = &first->rows[i], *b = df_run_log_find(second, a->index);
    if (!b) continue;
    p->common++;
    p->only_first += a->flexible_ok && !b->flexible_ok;
    p->only_second += !a->flexible_ok && b->flexible_ok;
    p->strict_first += a->strict_ok && !b->strict_ok;
    p->strict_second += !a->strict_ok && b->strict_ok;
    compare_texts(p, a, b);
  }
}

/* ---- text ----------------------------------------------------------------------------------------------- */

static const char *command_of(const df_run_log *l) {
  const char *s = df_json_str(df_json_member(l->header, "command"), NULL);
  return s ? s : "(no command in the file)";
}

/* From a few characters before the difference, line ends shown as blanks. */
static void excerpt(const df_eval_row *r, size_t at, char *out, size_t cap) {
  size_t from = at > 24 ? at - 24 : 0, n = 0;
  while (from < at && ((unsigned char)r->text[from] & 0xC0) == 0x80) from++;
  for (size_t i = from; i < r->n_text && n + 2 < cap && i < at + 40; i++)
    out[n++] = (char)((unsigned char)r->text[i] < 32 ? ' ' : r->text[i]);
  while (n && ((unsigned char)out[n - 1] & 0xC0) == 0x80) n--; /* no half character at the end */
  if (n && (unsigned char)out[n - 1] >= 0xC0) n--;
  out[n] = '\0';
}

static void print_table(const comparison *c, const df_cli *cli) {
  const char *const head[] = {"run",         "questions",     "flexible %", "strict %",
                              "no number %", "accept length", "tok/s",      "s a question"};
  const char *dim = df_term_out(&cli->term, DF_STYLE_DIM), *off = df_term_out(&cli->term, DF_STYLE_RESET);
  df_table t;
  df_table_init(&t, 8, head, "lrrrrrrr");
  for (uint32_t i = 0; i < c->n; i++) {
    const df_eval_tally *y = &c->tally[i];
    char b[7][40];
    (void)snprintf(b[0], 40, "%u", y->n);
    df_eval_percent(b[1], 40, y->flexible, y->n);
    df_eval_percent(b[2], 40, y->strict, y->n);
    (void)snprintf(b[3], 40, "%.1f", y->n ? 100.0 * y->invalid_strict / y->n : 0);
    (void)snprintf(b[4], 40, "%.3f", df_eval_tally_accept_length(y));
    (void)snprintf(b[5], 40, "%.1f", df_eval_tally_speed(y));
    (void)snprintf(b[6], 40, "%.2f", y->n ? y->seconds / y->n : 0);
    df_table_add(&t, c->name[i], b[0], b[1], b[2], b[3], y->verify_steps ? b[4] : "-", b[5], b[6]);
  }
  df_table_print(&t, stdout, 0, df_term_out(&cli->term, DF_STYLE_BOLD), off);
  df_table_release(&t);
  printf("\n");
  for (uint32_t i = 0; i < c->n; i++) printf("%s: %s%s%s\n", c->name[i], dim, command_of(&c->log[i]), off);
}

static void print_pairs(const comparison *c) {
  char a[128], b[128];
  for (uint32_t i = 0; i < c->n; i++) {
    const pair *p = &c->against[i];
    if (i == c->base) continue;
    printf("\n%s against %s: %u questions in both, %u texts the same\n", c->name[i], c->name[c->base], p->common,
           p->same);
    printf("  right in one only, flexible  %u and %u, McNemar p = %.4g\n", p->only_second, p->only_first,
           df_mcnemar_p(p->only_first, p->only_second));
    printf("  right in one only, strict    %u and %u, McNemar p = %.4g\n", p->strict_second, p->strict_first,
           df_mcnemar_p(p->strict_first, p->strict_second));
    if (!p->differs) continue;
    excerpt(p->a, p->at, a, sizeof a);
    excerpt(p->b, p->at, b, sizeof b);
    printf("  first difference: question %u, byte %zu\n    %s: ...%s\n    %s: ...%s\n", p->question, p->at,
           c->name[c->base], a, c->name[i], b);
  }
}

/* ---- JSON ----------------------------------------------------------------------------------------------- */

static void put_u64(df_json_out *w, const char *key, uint64_t v) {
  df_json_out_key(w, key);
  df_json_out_u64(w, v);
}

static void put_pair(df_json_out *w, const comparison *c, uint32_t i) {
  const pair *p = &c->against[i];
  df_json_out_key(w, "against"), df_json_out_object(w);
  df_json_out_key(w, "run"), df_json_out_cstr(w, c->name[c->base]);
  put_u64(w, "common", p->common);
  put_u64(w, "same_text", p->same);
  put_u64(w, "flexible_only_here", p->only_second);
  put_u64(w, "flexible_only_there", p->only_first);
  df_json_out_key(w, "flexible_mcnemar_p"), df_json_out_f64(w, df_mcnemar_p(p->only_first, p->only_second));
  put_u64(w, "strict_only_here", p->strict_second);
  put_u64(w, "strict_only_there", p->strict_first);
  df_json_out_key(w, "strict_mcnemar_p"), df_json_out_f64(w, df_mcnemar_p(p->strict_first, p->strict_second));
  df_json_out_key(w, "first_difference");
  if (p->differs) {
    df_json_out_object(w);
    put_u64(w, "question", p->question);
    put_u64(w, "byte", p->at);
    df_json_out_close(w);
  } else {
    df_json_out_null(w);
  }
  df_json_out_close(w);
}

static df_status put_json(const comparison *c, df_buf *b, df_error *err) {
  df_json_out w;
  df_json_out_begin(&w, b, err);
  df_json_out_object(&w);
  df_json_out_key(&w, "runs"), df_json_out_array(&w);
  for (uint32_t i = 0; i < c->n; i++) {
    df_json_out_object(&w);
    df_json_out_key(&w, "run"), df_json_out_cstr(&w, c->name[i]);
    df_json_out_key(&w, "command"), df_json_out_cstr(&w, command_of(&c->log[i]));
    df_json_out_key(&w, "settings"), df_json_out_value(&w, df_json_member(c->log[i].header, "settings"));
    df_json_out_key(&w, "results"), df_json_out_object(&w);
    df_eval_tally_json(&w, &c->tally[i]);
    df_json_out_close(&w);
    if (i != c->base) put_pair(&w, c, i);
    df_json_out_close(&w);
  }
  df_json_out_close(&w);
  df_json_out_close(&w);
  return df_json_out_end(&w);
}

static df_status open_all(comparison *c, uint32_t n, df_error *err) {
  for (; c->n < n; c->n++) {
    df_run_log *l = &c->log[c->n];
    DF_TRY(open_one(l, c->name[c->n], err));
    c->tally[c->n] = df_run_log_tally(l, UINT32_MAX);
    if (l->cut_line)
      fprintf(stderr, "note: \"%s\" ends in a broken line (%u), which is left out\n", c->name[c->n], l->cut_line);
  }
  for (uint32_t i = 0; i < n; i++)
    if (i != c->base) compare_runs(&c->against[i], &c->log[c->base], &c->log[i]);
  return DF_OK;
}

df_status df_eval_compare(df_cli *cli, const char *const *runs, uint32_t n, uint32_t base, bool *differs,
                          const char *json_path, df_error *err) {
  if (n < 1 || n > MOST_RUNS) {
    (void)DF_FAIL(err, DF_ERR_ARGUMENT, "%u runs to compare", n);
    df_error_hint(err, "dflash eval compare DIR DIR..., at most %d", MOST_RUNS);
    return DF_ERR_ARGUMENT;
  }
  comparison *c = df_calloc(1, sizeof *c);
  if (!c) return DF_OOM(err, "a comparison", sizeof *c);
  c->name = runs;
  c->base = base;
  df_buf b;
  df_buf_init(&b, 0);
  df_status st = open_all(c, n, err);
  if (st == DF_OK) st = put_json(c, &b, err);
  if (st == DF_OK && df_opt_on(&cli->opts, OPT_JSON, false)) {
    puts(b.data);
  } else if (st == DF_OK) {
    print_table(c, cli);
    print_pairs(c);
  }
  if (st == DF_OK) st = df_buf_puts(&b, "\n", err);
  if (st == DF_OK && json_path) st = df_text_write(json_path, b.data, b.len, err);
  for (uint32_t i = 0; i < c->n && differs; i++)
    differs[i] = c->against[i].differs || (i != base && c->against[i].common != c->log[base].n);
  for (uint32_t i = 0; i < c->n; i++) df_run_log_close(&c->log[i]);
  df_buf_release(&b);
  df_free(c);
  return st;
}
