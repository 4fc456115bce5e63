/* The commands of dflash chat. Their output goes to standard error: standard output holds answers only. */
#include <ctype.h>
#include <string.h>

#include "base/mem.h"
#include "base/size.h"
#include "cli/chat.h"
#include "cli/cli_stats.h"
#include "cli/cli_text.h"

static const struct {
  const char *name, *args, *help;
} commands[] = {
    {"/help", "", "this list (also /?)"},
    {"/exit", "", "leave (also /quit, /bye, Ctrl-D)"},
    {"/clear", "", "forget the conversation, keep the system message (also /reset)"},
    {"/regen", "", "answer the last question again"},
    {"/read", "FILE", "put a file in front of the next message"},
    {"/save", "FILE", "write the conversation as JSON"},
    {"/load", "FILE", "continue a saved conversation"},
    {"/system", "[TEXT]", "set the system message; without text remove it"},
    {"/set", "[NAME VALUE]", "change a setting, as /set temp 0.7; without a name show them (also /show)"},
    {"/stats", "", "statistics of the last answer"},
};

static void help(const df_chat *c) {
  const char *bold = df_term_err(&c->cli->term, DF_STYLE_BOLD), *off = df_term_err(&c->cli->term, DF_STYLE_RESET);
  for (size_t i = 0; i < DF_COUNT_OF(commands); i++) {
    char head[32];
    (void)snprintf(head, sizeof head, "%s %s", commands[i].name, commands[i].args);
    fprintf(stderr, "  %s%-19s%s %s\n", bold, head, off, commands[i].help);
  }
  fputs(
      "  \"\"\" starts and ends a block of several lines; a backslash at the end continues a line.\n"
      "  Ctrl-C stops an answer or clears the line; twice leaves.\n",
      stderr);
}

/* Settings that /set may change. */
static bool is_setting(int id) {
  return id >= 0 &&
         (df_opt_table[id].group == DF_GROUP_SAMPLING || df_opt_table[id].group == DF_GROUP_OUTPUT || id == OPT_STATS);
}

static void show_one(const df_chat *c, int id) {
  const df_opt *o = &df_opt_table[id];
  const df_opts *opts = &c->cli->opts;
  fprintf(stderr, "  %-18s ", o->name);
  if (id == OPT_STOP) {
    if (opts->n_stop == 0) fputs("none", stderr);
    for (uint32_t i = 0; i < opts->n_stop; i++) fprintf(stderr, "%s\"%s\"", i ? ", " : "", opts->stop[i]);
  } else if (o->kind == DF_OPT_FLAG) {
    fputs(df_opt_on(opts, (df_opt_id)id, id == OPT_STATS) ? "on" : "off", stderr);
  } else if (id == OPT_SEED && df_opt_int(opts, OPT_SEED, -1) < 0) {
    fprintf(stderr, "%llu (drawn)", (unsigned long long)c->seed);
  } else {
    fputs(df_opt_text(opts, (df_opt_id)id, o->deflt ? o->deflt : ""), stderr);
  }
  fputc('\n', stderr);
}

static void show(const df_chat *c) {
  for (int id = 0; id < OPT_COUNT; id++) {
    if (is_setting(id)) show_one(c, id);
  }
  fprintf(stderr, "  %-18s %zu messages, context %u of %u\n", "conversation", c->conv.n, c->used,
          df_session_n_ctx(c->l.session));
  if (c->conv.n && strcmp(c->conv.m[0].role, "system") == 0)
    fprintf(stderr, "  %-18s %s\n", "system", c->conv.m[0].text);
  if (c->pending.len) fprintf(stderr, "  %-18s %zu bytes\n", "read, not yet sent", c->pending.len);
}

static df_status set(df_chat *c, const char *args, df_error *err) {
  char name[64];
  size_t n = strcspn(args, " \t=");
  const char *value = args + n + strspn(args + n, " \t=");
  if (n == 0) {
    show(c);
    return DF_OK;
  }
  bool negated;
  if (n > 0 && args[0] == '-')
    (void)snprintf(name, sizeof name, "%.*s", (int)n, args);
  else
    (void)snprintf(name, sizeof name, n == 1 ? "-%.*s" : "--%.*s", (int)n, args);
  int id = df_opt_find(name, strlen(name), &negated);
  if (!is_setting(id) || negated) {
    df_status st = DF_FAIL(err, DF_ERR_ARGUMENT, "no setting \"%.*s\"", (int)n, args);
    df_error_hint(err, "/show lists the settings");
    return st;
  }
  if (!*value && id == OPT_STOP) { /* /set stop: no stop texts */
    c->cli->opts.n_stop = 0;
    return DF_OK;
  }
  char *copy = df_strdup(value);
  if (!copy) return DF_OOM(err, "a setting", strlen(value) + 1);
  if (id == OPT_STOP) c->cli->opts.n_stop = 0; /* one text replaces all */
  df_status st = df_opts_assign(&c->cli->opts, (df_opt_id)id, copy, DF_FROM_ARGV, err);
  if (st != DF_OK) {
    df_free(copy);
    return st;
  }
  df_free(c->kept[id]);
  c->kept[id] = copy;
  if (id == OPT_SEED && df_opt_int(&c->cli->opts, OPT_SEED, -1) >= 0)
    c->seed = (uint64_t)df_opt_int(&c->cli->opts, OPT_SEED, 0);
  show_one(c, id);
  return DF_OK;
}

static df_status read_file(df_chat *c, const char *path, df_error *err) {
  df_buf b;
  df_buf_init(&b, DF_TEXT_MAX);
  df_status st = df_text_read(path, &b, err);
  if (st == DF_OK) st = df_text_check(b.data ? b.data : "", b.len, path, err);
  if (st == DF_OK && b.len) st = df_buf_put(&c->pending, b.data, b.len, err);
  if (st == DF_OK && b.len && b.data[b.len - 1] != '\n') st = df_buf_puts(&c->pending, "\n", err);
  if (st == DF_OK) fprintf(stderr, "read %zu bytes; they go in front of your next message\n", b.len);
  df_buf_release(&b);
  return st;
}

static df_status load(df_chat *c, const char *path, df_error *err) {
  DF_TRY(df_conv_load(&c->conv, path, err));
  c->has_last = false;
  c->regen = 0;
  fprintf(stderr, "loaded %zu message%s\n", c->conv.n, c->conv.n == 1 ? "" : "s");
  return DF_OK;
}

static df_status regen(df_chat *c, bool *answer, df_error *err) {
  if (df_conv_last_is(&c->conv, "assistant")) df_conv_pop(&c->conv);
  if (!df_conv_last_is(&c->conv, "user")) return DF_FAIL(err, DF_ERR_ARGUMENT, "there is no question to answer again");
  if (df_opt_real(&c->cli->opts, OPT_TEMP, 0) <= 0)
    fputs("note: at temperature 0 the answer will be the same; /set temp 0.7\n", stderr);
  c->regen++;
  *answer = true;
  return DF_OK;
}

static df_status stats(const df_chat *c, df_error *err) {
  if (!c->has_last) return DF_FAIL(err, DF_ERR_ARGUMENT, "there is no answer yet");
  df_stats_print(stderr, &c->cli->term, &c->last, c->last_finish, c->l.width > 1, NULL);
  fprintf(stderr, "context      %6u of %u positions\n", c->used, df_session_n_ctx(c->l.session));
  return DF_OK;
}

static bool is(const char *word, size_t n, const char *names) {
  const char *w;
  size_t len;
  while ((names = df_word_next(names, &w, &len)) != NULL) {
    if (len == n && memcmp(w, word, n) == 0) return true;
  }
  return false;
}

static df_status clear(df_chat *c) {
  df_conv_clear(&c->conv);
  df_session_reset(c->l.session);
  c->used = 0;
  c->has_last = false;
  c->pending.len = 0;
  fputs("conversation cleared\n", stderr);
  return DF_OK;
}

static df_status needs_file(const char *word, size_t n, df_error *err) {
  return DF_FAIL(err, DF_ERR_ARGUMENT, "%.*s needs a file name", (int)n, word);
}

df_status df_chat_command(df_chat *c, const char *line, bool *answer, df_error *err) {
  size_t n = strcspn(line, " \t");
  const char *args = line + n + strspn(line + n, " \t");
  *answer = false;
  if (is(line, n, "/help /?")) return help(c), DF_OK;
  if (is(line, n, "/exit /quit /bye")) return c->leave = true, DF_OK;
  if (is(line, n, "/clear /reset")) return clear(c);
  if (is(line, n, "/regen")) return regen(c, answer, err);
  if (is(line, n, "/read")) return *args ? read_file(c, args, err) : needs_file(line, n, err);
  if (is(line, n, "/load")) return *args ? load(c, args, err) : needs_file(line, n, err);
  if (is(line, n, "/save")) {
    if (!*args) return needs_file(line, n, err);
    DF_TRY(df_conv_save(&c->conv, args, c->l.info.name ? c->l.info.name : c->l.model_path, err));
    fprintf(stderr, "saved %zu messages\n", c->conv.n);
    return DF_OK;
  }
  if (is(line, n, "/system")) {
    DF_TRY(df_conv_set_system(&c->conv, args, err));
    fputs(*args ? "system message set\n" : "system message removed\n", stderr);
    return DF_OK;
  }
  if (is(line, n, "/set")) return set(c, args, err);
  if (is(line, n, "/show")) return show(c), DF_OK;
  if (is(line, n, "/stats")) return stats(c, err);
  df_status st = DF_FAIL(err, DF_ERR_ARGUMENT, "unknown command \"%.*s\"", n > 40 ? 40 : (int)n, line);
  df_error_hint(err, "/help lists the commands; to send a text that starts with \"/\", put it between \"\"\"");
  return st;
}
