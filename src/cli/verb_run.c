/* dflash run: one prompt, one answer. */
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "base/mem.h"
#include "cli/answer.h"
#include "cli/cli_model.h"
#include "cli/cli_stats.h"
#include "cli/cli_text.h"
#include "cli/interrupt.h"
#include "cli/verbs.h"
#include "format/json.h"

/* The prompt text from -p, -f or standard input, checked. */
static df_status read_prompt(df_cli *cli, df_buf *b, df_error *err) {
  const df_opts *o = &cli->opts;
  const char *text = df_opt_text(o, OPT_PROMPT, NULL), *file = df_opt_text(o, OPT_FILE, NULL);
  if (text && file) {
    if (o->v[OPT_PROMPT].source == o->v[OPT_FILE].source)
      return DF_FAIL(err, DF_ERR_ARGUMENT, "give the prompt with -p or with -f, not both");
    if (o->v[OPT_FILE].source == DF_FROM_ENV)
      file = NULL; /* the command line beats the environment */
    else
      text = NULL;
  }
  if (text) {
    DF_TRY(df_buf_puts(b, text, err));
  } else {
    if (!file && cli->term.in_tty) {
      df_status st = DF_FAIL(err, DF_ERR_ARGUMENT, "no prompt given");
      df_error_hint(err, "-p TEXT, -f FILE, or pipe the text in; \"dflash chat\" is interactive");
      return st;
    }
    DF_TRY(df_text_read(file ? file : "-", b, err));
  }
  const char *what = text ? "the prompt" : !file || strcmp(file, "-") == 0 ? "standard input" : file;
  DF_TRY(df_text_check(b->data ? b->data : "", b->len, what, err));
  if (b->len == 0) return DF_FAIL(err, DF_ERR_ARGUMENT, "the prompt is empty");
  return DF_OK;
}

/* Whether the chat template is used; refuses what cannot be done without one. */
static df_status wants_chat(const df_opts *o, const df_model *m, bool *chat, df_error *err) {
  bool has = df_model_has_chat_template(m) || df_opt_given(o, OPT_CHAT_TEMPLATE_FILE);
  *chat = df_opt_on(o, OPT_CHAT, has);
  df_status st = DF_OK;
  if (*chat && !has) {
    st = DF_FAIL(err, DF_ERR_UNSUPPORTED, "the model has no chat template");
    df_error_hint(err, "use --raw, or give one with --chat-template-file FILE");
  } else if (!*chat && df_opt_given(o, OPT_SYSTEM)) {
    st = DF_FAIL(err, DF_ERR_ARGUMENT, "a system message needs the chat template");
    df_error_hint(err, has ? "leave out --raw, or put the text into the prompt" : "put the text into the prompt");
  }
  return st;
}

static df_status prompt_ids(df_cli *cli, df_loaded *l, const df_buf *prompt, int32_t **ids, size_t *n, df_error *err) {
  const df_opts *o = &cli->opts;
  bool chat;
  DF_TRY(wants_chat(o, l->model, &chat, err));
  if (!chat) return df_model_tokenize(l->model, prompt->data, prompt->len, true, ids, n, err);
  const char *system = df_opt_text(o, OPT_SYSTEM, NULL);
  char *template_text = NULL;
  df_buf json;
  df_buf_init(&json, 0);
  df_status st = df_template_from_opts(o, &template_text, err);
  if (st == DF_OK) st = df_buf_puts(&json, "[", err);
  if (st == DF_OK && system) st = df_message_put(&json, "system", system, strlen(system), err);
  if (st == DF_OK && system) st = df_buf_puts(&json, ",", err);
  if (st == DF_OK) st = df_message_put(&json, "user", prompt->data, prompt->len, err);
  if (st == DF_OK) st = df_buf_puts(&json, "]", err);
  if (st == DF_OK) st = df_prompt_chat(l->model, json.data, template_text, ids, n, err);
  df_free(template_text);
  df_buf_release(&json);
  return st;
}

static void command_json(df_json_out *w, const df_opts *o) {
  df_json_out_key(w, "command");
  df_json_out_array(w);
  for (int i = 0; i < o->argc; i++) df_json_out_cstr(w, o->argv[i]);
  df_json_out_close(w);
}

static df_status print_json(const df_cli *cli, const df_loaded *l, const df_answer *a, const df_generate_params *g,
                            df_error *err) {
  df_buf b;
  df_json_out w;
  df_buf_init(&b, 0);
  df_json_out_begin(&w, &b, err);
  df_json_out_object(&w);
  df_json_out_key(&w, "text");
  df_json_out_str(&w, a->text.data ? a->text.data : "", a->text.len);
  df_json_out_key(&w, "ids");
  df_json_out_array(&w);
  for (uint32_t i = 0; i < a->result.n_ids; i++) df_json_out_i64(&w, a->result.ids[i]);
  df_json_out_close(&w);
  df_json_out_key(&w, "finish"), df_json_out_cstr(&w, df_finish_name(a->result.finish));
  df_stats_json(&w, &a->result.stats);
  df_json_out_key(&w, "model"), df_json_out_cstr(&w, l->model_path);
  df_json_out_key(&w, "draft");
  if (l->draft_path)
    df_json_out_cstr(&w, l->draft_path);
  else
    df_json_out_null(&w);
  df_json_out_key(&w, "spec_width"), df_json_out_u64(&w, l->width);
  df_json_out_key(&w, "spec_draft_n_max"), df_json_out_u64(&w, l->width - 1);
  df_json_out_key(&w, "seed");
  if (g->sampling.temperature > 0)
    df_json_out_u64(&w, g->sampling.seed);
  else
    df_json_out_null(&w);
  df_json_out_key(&w, "threads"), df_json_out_u64(&w, l->info.n_threads);
  df_json_out_key(&w, "isa"), df_json_out_cstr(&w, l->info.cpu_tier);
  df_json_put_cstr(&w, "device", l->info.device);
  df_json_out_key(&w, "load_ms"), df_json_out_f64(&w, l->info.load_ms);
  command_json(&w, &cli->opts);
  df_json_out_close(&w);
  df_status st = df_json_out_end(&w);
  if (st == DF_OK) puts(b.data);
  df_buf_release(&b);
  return st;
}

/* Ends the text with a line end, then the statistics. */
static void finish_text(const df_cli *cli, const df_loaded *l, const df_answer *a, const df_generate_params *g) {
  if (a->text.len == 0 || a->text.data[a->text.len - 1] != '\n') fputc('\n', stdout);
  (void)fflush(stdout);
  if (!df_opt_on(&cli->opts, OPT_STATS, true)) return;
  char note[48] = "";
  if (g->sampling.temperature > 0) (void)snprintf(note, sizeof note, "seed %llu", (unsigned long long)g->sampling.seed);
  fputc('\n', stderr);
  df_stats_print(stderr, &cli->term, &a->result.stats, a->result.finish, l->width > 1, note[0] ? note : NULL);
}

int df_verb_run(df_cli *cli) {
  const df_opts *o = &cli->opts;
  bool json = df_opt_on(o, OPT_JSON, false), stats = df_opt_on(o, OPT_STATS, true);
  df_loaded l = {0};
  df_error err;
  df_buf prompt;
  df_answer a;
  df_generate_params g;
  int32_t *ids = NULL;
  size_t n = 0;
  df_status st;
  df_buf_init(&prompt, DF_TEXT_MAX);
  df_answer_init(&a, json);
  DF_TRY_GOTO(st, df_need_model(o, &err), done);
  DF_TRY_GOTO(st, read_prompt(cli, &prompt, &err), done);
  df_interrupt_install();
  DF_TRY_GOTO(st, df_loaded_open(&l, cli, true, &err), done);
  DF_TRY_GOTO(st, df_loaded_session(&l, cli, true, &err), done);
  DF_TRY_GOTO(st, prompt_ids(cli, &l, &prompt, &ids, &n, &err), done);
  if (stats && !json) df_loaded_describe(&l, cli), fputc('\n', stderr);
  g = df_generate_from_opts(o, &l);
  DF_TRY_GOTO(st, df_answer_run(&a, l.session, ids, n, g, &err), done);
  if (json)
    st = print_json(cli, &l, &a, &g, &err);
  else
    finish_text(cli, &l, &a, &g);
done:;
  int status = st == DF_OK ? DF_EXIT_OK : df_cli_report(cli, &err);
  df_ids_free(ids);
  df_loaded_close(&l);
  df_buf_release(&prompt);
  df_answer_release(&a);
  return status;
}
