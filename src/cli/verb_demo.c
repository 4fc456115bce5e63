/* dflash demo: the same three questions without and with the draft, side by side. */
#include <string.h>

#include "base/mem.h"
#include "base/size.h"
#include "cli/answer.h"
#include "cli/cli_stats.h"
#include "cli/interrupt.h"
#include "cli/verbs.h"
#include "format/json.h"

static const struct {
  const char *name, *text;
} questions[] = {
    {"chat", "Why is the sky blue? Explain it in a few sentences."},
    {"code", "Write a Python function that returns the n-th Fibonacci number, and explain how it works."},
    /* The first problem of the GSM8K test set (MIT licence). */
    {"arithmetic",
     "Janet's ducks lay 16 eggs per day. She eats three for breakfast every morning and bakes muffins for her friends "
     "every day with four. She sells the remainder at the farmers' market daily for $2 per fresh duck egg. How much in "
     "dollars does she make every day at the farmers' market?"},
};

enum { N_QUESTIONS = DF_COUNT_OF(questions), DEFAULT_TOKENS = 128 };

/* Both answers to one question; the last entry sums up. */
typedef struct pair {
  df_stats plain, drafted;
  bool same;
} pair;

typedef struct demo {
  df_cli *cli;
  df_loaded l; /* its session drafts */
  df_session *plain;
  df_generate_params g;
  bool json;
  pair result[N_QUESTIONS + 1];
} demo;

/* One answer; *ids_out is a copy of its tokens for df_free. */
static df_status ask(demo *d, df_session *s, const int32_t *ids, size_t n, const char *label, df_answer *a,
                     int32_t **ids_out, df_error *err) {
  const df_term *t = &d->cli->term;
  if (!d->json) {
    printf("%s%s%s\n", df_term_out(t, DF_STYLE_DIM), label, df_term_out(t, DF_STYLE_RESET));
    (void)fflush(stdout);
  }
  DF_TRY(df_answer_run(a, s, ids, n, d->g, err));
  if (!d->json)
    printf("\n%s%.1f tok/s%s\n\n", df_term_out(t, DF_STYLE_GREEN), df_stats_generation_speed(&a->result.stats),
           df_term_out(t, DF_STYLE_RESET));
  if (a->result.finish == DF_FINISH_CANCELLED) return DF_FAIL(err, DF_ERR_CANCELLED, "interrupted");
  *ids_out = df_alloc((a->result.n_ids + 1) * sizeof **ids_out);
  if (!*ids_out) return DF_OOM(err, "an answer", a->result.n_ids * sizeof **ids_out);
  memcpy(*ids_out, a->result.ids, a->result.n_ids * sizeof **ids_out);
  return DF_OK;
}

static df_status prompt_of(const demo *d, const char *text, int32_t **ids, size_t *n, df_error *err) {
  if (!df_model_has_chat_template(d->l.model))
    return df_model_tokenize(d->l.model, text, strlen(text), true, ids, n, err);
  df_buf json;
  df_buf_init(&json, 0);
  df_status st = df_buf_puts(&json, "[", err);
  if (st == DF_OK) st = df_message_put(&json, "user", text, strlen(text), err);
  if (st == DF_OK) st = df_buf_puts(&json, "]", err);
  if (st == DF_OK) st = df_prompt_chat(d->l.model, json.data, NULL, ids, n, err);
  df_buf_release(&json);
  return st;
}

static df_status compare(demo *d, unsigned q, df_error *err) {
  const df_term *t = &d->cli->term;
  df_answer plain, drafted;
  int32_t *ids = NULL, *plain_ids = NULL, *drafted_ids = NULL;
  size_t n = 0;
  pair *p = &d->result[q];
  df_answer_init(&plain, d->json);
  df_answer_init(&drafted, d->json);
  if (!d->json) printf("%s%s%s\n\n", df_term_out(t, DF_STYLE_BOLD), questions[q].text, df_term_out(t, DF_STYLE_RESET));
  df_status st = prompt_of(d, questions[q].text, &ids, &n, err);
  df_session_reset(d->plain); /* both read the whole prompt */
  df_session_reset(d->l.session);
  if (st == DF_OK) st = ask(d, d->plain, ids, n, "without draft:", &plain, &plain_ids, err);
  if (st == DF_OK) st = ask(d, d->l.session, ids, n, "with draft:", &drafted, &drafted_ids, err);
  if (st == DF_OK) {
    p->plain = plain.result.stats;
    p->drafted = drafted.result.stats;
    p->same =
        plain.result.n_ids == drafted.result.n_ids && plain.text.len == drafted.text.len &&
        memcmp(plain_ids, drafted_ids, plain.result.n_ids * sizeof *plain_ids) == 0 &&
        memcmp(plain.text.data ? plain.text.data : "", drafted.text.data ? drafted.text.data : "", plain.text.len) == 0;
  }
  df_ids_free(ids);
  df_free(plain_ids);
  df_free(drafted_ids);
  df_answer_release(&plain);
  df_answer_release(&drafted);
  return st;
}

/* A few tokens of both kinds first, so that neither side pays for cold caches. */
static df_status warm_up(demo *d, df_error *err) {
  int32_t *ids = NULL;
  size_t n = 0;
  df_result r;
  df_generate_params g = d->g;
  g.max_tokens = 8;
  df_status st = prompt_of(d, "Hello!", &ids, &n, err);
  if (st == DF_OK) st = df_session_generate(d->plain, ids, n, &g, &r, err);
  if (st == DF_OK) st = df_session_generate(d->l.session, ids, n, &g, &r, err);
  df_ids_free(ids);
  return st;
}

static void add_row(df_table *t, const char *name, const pair *p) {
  char c[6][32];
  double a = df_stats_generation_speed(&p->plain), b = df_stats_generation_speed(&p->drafted);
  (void)snprintf(c[0], sizeof c[0], "%u", p->drafted.new_tokens);
  (void)snprintf(c[1], sizeof c[1], "%.1f", a);
  (void)snprintf(c[2], sizeof c[2], "%.1f", b);
  (void)snprintf(c[3], sizeof c[3], "%.2f x", a > 0 ? b / a : 0);
  (void)snprintf(c[4], sizeof c[4], "%.2f", df_stats_accept_length(&p->drafted));
  df_table_add(t, name, c[0], c[1], c[2], c[3], c[4], p->same ? "yes" : "NO");
}

static void print_table(const demo *d) {
  static const char *const head[] = {"question", "tokens",        "plain tok/s", "draft tok/s",
                                     "speed-up", "accept length", "same text"};
  const df_term *term = &d->cli->term;
  const pair *total = &d->result[N_QUESTIONS];
  df_table t;
  df_table_init(&t, 7, head, "lrrrrrl");
  for (unsigned i = 0; i < N_QUESTIONS; i++) add_row(&t, questions[i].name, &d->result[i]);
  add_row(&t, "total", total);
  df_table_print(&t, stdout, 0, df_term_out(term, DF_STYLE_BOLD), df_term_out(term, DF_STYLE_RESET));
  df_table_release(&t);
  if (total->drafted.drafted) {
    printf("\naccepted drafts by position\n");
    df_stats_bars(stdout, &total->drafted, term->out_tty ? df_term_columns(1) : 80, df_term_out(term, DF_STYLE_CYAN),
                  df_term_out(term, DF_STYLE_RESET));
  }
  printf("\n%s%s%s\n", df_term_out(term, total->same ? DF_STYLE_GREEN : DF_STYLE_RED),
         total->same ? "all texts are identical with and without the draft"
                     : "a text differs with and without the draft: please report this",
         df_term_out(term, DF_STYLE_RESET));
}

static df_status print_json(const demo *d, df_error *err) {
  df_buf b;
  df_json_out w;
  df_buf_init(&b, 0);
  df_json_out_begin(&w, &b, err);
  df_json_out_object(&w);
  df_json_out_key(&w, "model"), df_json_out_cstr(&w, d->l.model_path);
  df_json_out_key(&w, "draft"), df_json_out_cstr(&w, d->l.draft_path);
  df_json_out_key(&w, "same_text"), df_json_out_bool(&w, d->result[N_QUESTIONS].same);
  df_json_out_key(&w, "questions"), df_json_out_array(&w);
  for (unsigned i = 0; i <= N_QUESTIONS; i++) {
    df_json_out_object(&w);
    df_json_out_key(&w, "name"), df_json_out_cstr(&w, i < N_QUESTIONS ? questions[i].name : "total");
    df_json_out_key(&w, "same_text"), df_json_out_bool(&w, d->result[i].same);
    df_json_out_key(&w, "plain"), df_json_out_object(&w);
    df_stats_json(&w, &d->result[i].plain);
    df_json_out_close(&w);
    df_json_out_key(&w, "drafted"), df_json_out_object(&w);
    df_stats_json(&w, &d->result[i].drafted);
    df_json_out_close(&w);
    df_json_out_close(&w);
  }
  df_json_out_close(&w);
  df_json_out_close(&w);
  df_status st = df_json_out_end(&w);
  if (st == DF_OK) puts(b.data);
  df_buf_release(&b);
  return st;
}

static df_status start(demo *d, df_error *err) {
  df_cli *cli = d->cli;
  DF_TRY(df_need_model(&cli->opts, err));
  DF_TRY(df_loaded_open(&d->l, cli, true, err));
  if (!d->l.draft) {
    df_status st = DF_FAIL(err, DF_ERR_ARGUMENT, "no draft given: there is nothing to compare");
    df_error_hint(err, "-md FILE, for example smollm2-135m-instruct-dflash");
    return st;
  }
  DF_TRY(df_loaded_session(&d->l, cli, false, err));
  d->plain = d->l.session;
  d->l.session = NULL;
  DF_TRY(df_loaded_session(&d->l, cli, true, err));
  d->g = df_generate_from_opts(&cli->opts, &d->l);
  if (!df_opt_given(&cli->opts, OPT_PREDICT)) d->g.max_tokens = DEFAULT_TOKENS;
  return warm_up(d, err);
}

int df_verb_demo(df_cli *cli) {
  demo d = {.cli = cli, .json = df_opt_on(&cli->opts, OPT_JSON, false)};
  pair *total = &d.result[N_QUESTIONS];
  df_error err;
  total->same = true;
  df_interrupt_install();
  df_status st = start(&d, &err);
  if (st == DF_OK && !d.json) df_loaded_describe(&d.l, cli), fputc('\n', stderr);
  for (unsigned i = 0; i < N_QUESTIONS && st == DF_OK; i++) {
    st = compare(&d, i, &err);
    if (st != DF_OK) break;
    df_stats_add(&total->plain, &d.result[i].plain);
    df_stats_add(&total->drafted, &d.result[i].drafted);
    total->same = total->same && d.result[i].same;
  }
  if (st == DF_OK && d.json)
    st = print_json(&d, &err);
  else if (st == DF_OK)
    print_table(&d);
  int status = st != DF_OK ? df_cli_report(cli, &err) : total->same ? DF_EXIT_OK : DF_EXIT_FAILURE;
  if (st == DF_ERR_CANCELLED) status = DF_EXIT_INTERRUPTED;
  df_session_free(d.plain);
  df_loaded_close(&d.l);
  return status;
}
