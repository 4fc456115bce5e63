/* dflash chat: questions and answers until the user leaves. */
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "cli/chat.h"
#include "cli/cli_stats.h"
#include "cli/interrupt.h"

/* Adds the answer to the conversation and reports. */
static df_status keep_answer(df_chat *c, df_answer *a, size_t n_prompt, df_error *err) {
  bool stats = df_opt_on(&c->cli->opts, OPT_STATS, true);
  if (a->text.len == 0 || a->text.data[a->text.len - 1] != '\n') fputc('\n', stdout);
  (void)fflush(stdout);
  c->last = a->result.stats;
  c->last_finish = a->result.finish;
  c->used = (uint32_t)n_prompt + a->result.n_ids;
  c->has_last = true;
  if (stats) df_stats_line(stderr, &c->cli->term, &c->last, c->last_finish, c->used, df_session_n_ctx(c->l.session));
  if (a->result.finish == DF_FINISH_CONTEXT)
    fputs("the context is full: /clear, or start again with a larger -c\n", stderr);
  if (c->interactive) fputc('\n', stderr);
  return df_conv_put(&c->conv, "assistant", a->text.data, a->text.len, err);
}

/* Answers the last message, a user's. On failure that message is taken back, so that the chat can go on. */
static df_status answer(df_chat *c, df_error *err) {
  df_answer a;
  df_buf json;
  int32_t *ids = NULL;
  size_t n = 0;
  df_buf_init(&json, 0);
  df_answer_init(&a, false);
  df_generate_params g = df_generate_from_opts(&c->cli->opts, &c->l);
  g.sampling.seed = c->seed + c->regen;
  df_interrupt_clear();
  df_status st = df_conv_json(&c->conv, &json, err);
  if (st == DF_OK) st = df_prompt_chat(c->l.model, json.data, c->template_text, &ids, &n, err);
  if (st == DF_OK) st = df_answer_run(&a, c->l.session, ids, n, g, err);
  if (st == DF_OK)
    st = keep_answer(c, &a, n, err);
  else
    df_conv_pop(&c->conv);
  int signo = df_interrupted;
  if (signo == SIGTERM || signo == SIGHUP)
    c->leave = true;
  else
    df_interrupt_clear();
  df_ids_free(ids);
  df_buf_release(&json);
  df_answer_release(&a);
  return st;
}

/* Sends a message, with what /read left in front of it. */
static df_status ask(df_chat *c, const df_buf *text, df_error *err) {
  df_status st = df_buf_put(&c->pending, text->data, text->len, err);
  if (st == DF_OK) st = df_conv_put(&c->conv, "user", c->pending.data, c->pending.len, err);
  c->pending.len = 0;
  c->regen = 0;
  return st == DF_OK ? answer(c, err) : st;
}

/* One line or block. */
static df_status handle(df_chat *c, df_input_kind kind, const df_buf *text, df_error *err) {
  if (kind == DF_INPUT_TEXT && text->data[0] == '/') {
    bool again;
    DF_TRY(df_chat_command(c, text->data, &again, err));
    return again ? answer(c, err) : DF_OK;
  }
  bool blank = text->data[strspn(text->data, " \t\n")] == '\0';
  if (blank && c->pending.len == 0) return DF_OK;
  return ask(c, text, err);
}

/* Reads and answers. Returns the exit status. */
static int loop(df_chat *c, df_input *in) {
  df_buf text;
  int status = DF_EXIT_OK, breaks = 0;
  df_buf_init(&text, 0);
  while (!c->leave) {
    df_error err;
    df_input_kind kind = df_input_next(in, &text, &err);
    if (kind == DF_INPUT_END) break;
    if (kind == DF_INPUT_BREAK) {
      if (!c->interactive || ++breaks == 2 || df_interrupted != SIGINT) {
        status = df_interrupted == SIGINT || df_interrupted == 0 ? DF_EXIT_INTERRUPTED : 128 + df_interrupted;
        break;
      }
      df_interrupt_clear();
      fputs("(Ctrl-C again or Ctrl-D leaves)\n", stderr);
      continue;
    }
    breaks = 0;
    df_status st = kind == DF_INPUT_ERROR ? err.code : df_buf_puts(&text, "", &err);
    if (st == DF_OK) st = handle(c, kind, &text, &err);
    if (st == DF_OK) continue;
    int failed = df_cli_report(c->cli, &err);
    if (!c->interactive || st == DF_ERR_IO) { /* a script must notice; a dead terminal cannot go on */
      if (kind == DF_INPUT_TEXT && text.len && text.data[0] == '/' && c->interactive) continue;
      status = failed == DF_EXIT_USAGE ? DF_EXIT_FAILURE : failed;
      break;
    }
  }
  df_buf_release(&text);
  return status;
}

static df_status start(df_chat *c, df_error *err) {
  const df_opts *o = &c->cli->opts;
  DF_TRY(df_template_from_opts(o, &c->template_text, err));
  df_interrupt_install();
  DF_TRY(df_loaded_open(&c->l, c->cli, true, err));
  DF_TRY(df_loaded_session(&c->l, c->cli, true, err));
  if (!df_model_has_chat_template(c->l.model) && !c->template_text) {
    df_status st = DF_FAIL(err, DF_ERR_UNSUPPORTED, "the model has no chat template");
    df_error_hint(err, "give one with --chat-template-file FILE, or use dflash run --raw");
    return st;
  }
  DF_TRY(df_conv_set_system(&c->conv, df_opt_text(o, OPT_SYSTEM, ""), err));
  c->seed = df_seed_from_opts(o);
  return DF_OK;
}

int df_verb_chat(df_cli *cli) {
  df_chat c = {.cli = cli};
  df_input *in = NULL;
  df_error err;
  int status;
  c.interactive = cli->term.in_tty && cli->term.out_tty && !cli->term.dumb;
  df_buf_init(&c.pending, 0);
  df_status st = start(&c, &err);
  if (st == DF_OK) st = df_input_create(cli, c.interactive, &in, &err);
  if (st == DF_OK) {
    if (df_opt_on(&cli->opts, OPT_STATS, true)) df_loaded_describe(&c.l, cli);
    if (c.interactive) fputs("/help lists the commands, Ctrl-C stops an answer, Ctrl-D leaves\n\n", stderr);
    status = loop(&c, in);
  } else {
    status = df_cli_report(cli, &err);
  }
  fputs(df_term_err(&cli->term, DF_STYLE_RESET), stderr);
  df_input_free(in);
  df_loaded_close(&c.l);
  df_conv_release(&c.conv);
  df_buf_release(&c.pending);
  df_free(c.template_text);
  for (int i = 0; i < OPT_COUNT; i++) df_free(c.kept[i]);
  return status;
}
