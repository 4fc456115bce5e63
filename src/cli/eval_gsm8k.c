/* One run of gsm8k: prompts, engine, answers kept as they come. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/size.h"
#include "cli/answer.h"
#include "cli/cli_attention.h"
#include "cli/cli_text.h"
#include "cli/eval_cli.h"
#include "cli/interrupt.h"
#include "cli/known.h"
#include "cli/pull.h"
#include "format/path.h"

static const char k_test_sha[] = "3730d312f6e3440559ace48831e51066acaca737f6eabec99bccb9e4b3c39d14";
static const char k_train_sha[] = "17f347dc51477c50d4efb83959dbb7c56297aba886e5544ee2aaed3024813465";

typedef struct run {
  df_cli *cli;
  df_eval_plan plan;
  df_gsm8k data;
  df_loaded l;
  df_engine e;
  bool has_engine;
  df_run_log log;
  df_buf header;
  df_batch_prompt *prompt; /* [limit]; ids owned, NULL for questions that are answered already */
  uint32_t *question;      /* [n_todo]: of the prompts handed to the engine */
  df_batch_prompt *todo;   /* [n_todo] */
  uint32_t n_todo;
  df_progress bar;
  uint64_t t_last, t_told;
} run;

/* ---- plan ----------------------------------------------------------------------------------------------- */

/* --data, or data/gsm8k below the source or beside an installed program. */
static df_status find_data(const df_opts *o, char **out, df_error *err) {
  DF_TRY(df_shipped_find(df_opt_text(o, OPT_EVAL_DATA, NULL), "data/gsm8k", out, err));
  if (*out) return DF_OK;
  (void)DF_FAIL(err, DF_ERR_IO, "could not find the questions: no folder data/gsm8k here or beside the program");
  df_error_hint(err, "give --data DIR");
  return DF_ERR_IO;
}

/* The published files, unless the user names a folder: then whatever it holds, which the run's settings record. */
static df_status check_data(const df_opts *o, const char *dir, const char *name, const char *want, char sha[65],
                            df_error *err) {
  char *path;
  DF_TRY(df_path_join(dir, name, &path, err));
  df_status st = df_file_sha256(NULL, path, NULL, sha, err);
  if (st == DF_OK && strcmp(sha, want) != 0 && !df_opt_given(o, OPT_EVAL_DATA)) {
    st = DF_FAIL(err, DF_ERR_MISMATCH, "\"%s\" is not the published file: its checksum is %s", path, sha);
    df_error_hint(err, "give --data DIR to use other questions");
  }
  if (st == DF_OK && strcmp(sha, want) != 0)
    fprintf(stderr, "note: \"%s\" is not the published file; results are not comparable\n", path);
  df_free(path);
  return st;
}

/* A folder has no checksum of its own: the run records "". */
static df_status sha_of(const df_cli *cli, const char *path, char sha[65], df_error *err) {
  sha[0] = '\0';
  if (df_file_bytes(path) < 0) return DF_OK;
  return df_file_sha256(&cli->term, path, "checksum", sha, err);
}

static df_status make_plan(run *r, df_error *err) {
  const df_opts *o = &r->cli->opts;
  df_eval_plan *p = &r->plan;
  DF_TRY(df_need_model(o, err));
  DF_TRY(df_attention_opts_check(o, err));
  p->shots = (uint32_t)df_opt_int(o, OPT_EVAL_SHOTS, 5);
  p->max_tokens = (uint32_t)df_opt_int(o, OPT_PREDICT, DF_GSM8K_MAX_TOKENS);
  p->parallel = (uint32_t)df_opt_int(o, OPT_PARALLEL, 1);
  p->seed = df_opt_given(o, OPT_SEED) ? df_seed_from_opts(o) : 1234; /* lm-eval's default */
  p->how = strcasecmp(df_opt_text(o, OPT_EVAL_FEWSHOT, ""), "first") == 0 ? DF_FEWSHOT_FIRST : DF_FEWSHOT_SAMPLED;
  p->chat = strcasecmp(df_opt_text(o, OPT_EVAL_FORMAT, ""), "chat") == 0;
  p->prefix_cache = df_opt_on(o, OPT_PREFIX_CACHE, true);
  DF_TRY(find_data(o, &p->data_dir, err));
  DF_TRY(check_data(o, p->data_dir, "test.jsonl", k_test_sha, p->test_sha, err));
  if (p->shots) DF_TRY(check_data(o, p->data_dir, "train.jsonl", k_train_sha, p->train_sha, err));
  DF_TRY(df_gsm8k_load(&r->data, p->data_dir, p->shots > 0, err));
  p->limit = (uint32_t)df_opt_int(o, OPT_BENCH_LIMIT, r->data.test.n);
  if (p->limit > r->data.test.n)
    return DF_FAIL(err, DF_ERR_LIMIT, "--limit %u is more than the %u questions of \"%s\"", p->limit, r->data.test.n,
                   p->data_dir);
  const bool drafting = df_opt_given(o, OPT_DRAFT_MODEL) && strcasecmp(df_opt_text(o, OPT_SPEC_TYPE, ""), "none") != 0;
  DF_TRY(df_target_resolve(o, df_opt_text(o, OPT_MODEL, NULL), &p->model_path, err));
  if (drafting) DF_TRY(df_draft_resolve(o, df_opt_text(o, OPT_DRAFT_MODEL, NULL), &p->draft_path, err));
  DF_TRY(sha_of(r->cli, p->model_path, p->model_sha, err));
  return p->draft_path ? sha_of(r->cli, p->draft_path, p->draft_sha, err) : DF_OK;
}

static df_status open_log(run *r, df_error *err) {
  const char *dir = df_opt_text(&r->cli->opts, OPT_EVAL_OUT, NULL);
  char *path;
  DF_TRY(df_eval_header(r->cli, &r->plan, &r->header, err));
  if (!dir) return DF_OK;
  DF_TRY(df_folder_make(dir, err));
  DF_TRY(df_path_join(dir, DF_EVAL_ANSWERS, &path, err));
  const df_status st = df_run_log_open(&r->log, path, r->header.data, err);
  if (st == DF_OK && r->log.cut_line)
    fprintf(stderr, "note: \"%s\" ended in a broken line (%u); it was cut off, its question is asked again\n", path,
            r->log.cut_line);
  if (st == DF_OK && r->log.n) fprintf(stderr, "going on after %u answers in \"%s\"\n", r->log.n, path);
  df_free(path);
  return st;
}

/* ---- prompts -------------------------------------------------------------------------------------------- */

static df_status prompt_ids(run *r, uint32_t q, const uint32_t *examples, df_error *err) {
  df_buf b;
  int32_t *ids = NULL;
  size_t n = 0;
  df_buf_init(&b, 0);
  df_status st = r->plan.chat ? df_gsm8k_messages(&r->data, q, examples, r->plan.shots, &b, err)
                              : df_gsm8k_prompt(&r->data, q, examples, r->plan.shots, &b, err);
  if (st == DF_OK)
    st = r->plan.chat ? df_prompt_chat(r->l.model, b.data, NULL, &ids, &n, err)
                      : df_model_tokenize(r->l.model, b.data, b.len, false, &ids, &n, err);
  df_buf_release(&b);
  if (st == DF_OK) r->prompt[q] = (df_batch_prompt){ids, n};
  return st;
}

/* Every question's examples are drawn, asked or not: what a question is shown does not depend on what came before. */
static df_status make_prompts(run *r, df_error *err) {
  const uint32_t n = r->plan.limit;
  df_gsm8k_picker pick;
  r->prompt = df_calloc(n, sizeof *r->prompt);
  r->todo = df_calloc(n, sizeof *r->todo);
  r->question = df_calloc(n, sizeof *r->question);
  if (!r->prompt || !r->todo || !r->question) return DF_OOM(err, "prompts", n * sizeof *r->prompt);
  DF_TRY(df_gsm8k_picker_init(&pick, &r->data, r->plan.how, r->plan.shots, r->plan.seed, err));
  for (uint32_t q = 0; q < n; q++) {
    uint32_t examples[DF_GSM8K_MAX_SHOTS];
    DF_TRY(df_gsm8k_pick(&pick, &r->data, examples, err));
    if (df_run_log_find(&r->log, q)) continue;
    DF_TRY(prompt_ids(r, q, examples, err));
    r->question[r->n_todo] = q;
    r->todo[r->n_todo++] = r->prompt[q];
  }
  return DF_OK;
}

/* The context every prompt and answer fits in, or the one that was asked for. */
static df_status context_size(const run *r, uint32_t *n_ctx, df_error *err) {
  size_t most = 0;
  uint32_t who = 0;
  for (uint32_t i = 0; i < r->n_todo; i++)
    if (r->todo[i].n > most) most = r->todo[i].n, who = r->question[i];
  const size_t need = most + r->plan.max_tokens + DF_MAX_WIDTH;
  if (*n_ctx && *n_ctx < need)
    return DF_FAIL(err, DF_ERR_LIMIT, "question %u needs %zu positions with its answer, --ctx-size gives %u", who, need,
                   *n_ctx);
  if (need > 1u << 20) return DF_FAIL(err, DF_ERR_LIMIT, "question %u needs %zu positions", who, need);
  if (!*n_ctx) *n_ctx = (uint32_t)((need + 63) / 64 * 64);
  return DF_OK;
}

static df_status open_engine(run *r, df_error *err) {
  df_engine_params ep = {0};
  uint32_t sizes[DF_BATCH_SIZES_MAX];
  DF_TRY(df_session_params_from_opts(&r->cli->opts, &ep.session, sizes, err));
  DF_TRY(context_size(r, &ep.session.n_ctx, err));
  if (!r->l.draft) ep.session.spec_draft_max = -1;
  ep.max_seqs = r->plan.parallel;
  ep.kv_tokens = (r->plan.parallel + 1) * ep.session.n_ctx; /* one more for what all prompts share */
  DF_TRY(df_engine_init(&r->e, r->l.model, r->l.draft, &ep, err));
  r->has_engine = true;
  return DF_OK;
}

/* ---- answers -------------------------------------------------------------------------------------------- */

static char *piece(const char *s, size_t n) { return df_strndup(s, n); }

/* The right number, as the data writes it behind its mark. */
static char *target_of(const df_gsm8k_item *it) {
  const char *at = it->answer, *next;
  while ((next = strstr(at, "#### ")) != NULL) at = next + 5;
  return df_strdup(at);
}

static df_status make_row(run *r, const df_batch_answer *a, df_eval_row *row, df_error *err) {
  const uint32_t q = r->question[a->index];
  const df_gsm8k_item *it = &r->data.test.items[q];
  const uint64_t now = df_now_ns();
  df_gsm8k_score s;
  DF_TRY(df_gsm8k_score_answer(a->text, a->n_text, it->answer, it->n_answer, &s, err));
  *row = (df_eval_row){.index = q,
                       .text = piece(a->text, a->n_text),
                       .n_text = a->n_text,
                       .strict = piece(s.strict, s.n_strict),
                       .flexible = piece(s.flexible, s.n_flexible),
                       .target = target_of(it),
                       .strict_ok = s.strict_ok,
                       .flexible_ok = s.flexible_ok,
                       .strict_valid = s.strict_valid,
                       .flexible_valid = s.flexible_valid,
                       .ids_hash = df_hash_bytes(a->ids, a->n_ids * sizeof *a->ids, 0),
                       .seconds = (double)(now - r->t_last) / 1e9,
                       .stats = *a->stats};
  (void)snprintf(row->finish, sizeof row->finish, "%s", df_finish_name(a->finish));
  if (!row->text || !row->strict || !row->flexible || !row->target) return DF_OOM(err, "an answer", a->n_text);
  r->t_last = now;
  return DF_OK;
}

/* Where no bar can be drawn a long run says once a minute how far it is. */
static void tell(run *r) {
  const uint64_t now = df_now_ns();
  df_progress_update(&r->bar, r->log.n);
  if (r->cli->term.err_tty || now - r->t_told < 60000000000u) return;
  r->t_told = now;
  const df_eval_tally t = df_run_log_tally(&r->log, r->plan.limit);
  fprintf(stderr, "%u of %u questions, %.1f %% right so far, %.1f tok/s\n", t.n, r->plan.limit,
          t.n ? 100.0 * t.flexible / t.n : 0, df_eval_tally_speed(&t));
}

static df_status on_answer(void *user, const df_batch_answer *a, df_error *err) {
  run *r = user;
  df_eval_row row = {0};
  df_status st = make_row(r, a, &row, err);
  if (st == DF_OK) st = df_run_log_add(&r->log, &row, err);
  df_eval_row_release(&row);
  if (st == DF_OK) tell(r);
  return st;
}

static df_status ask(run *r, df_error *err) {
  df_batch_params bp = {.gen = df_generate_params_default(),
                        .parallel = r->plan.parallel,
                        .no_prefix_cache = !r->plan.prefix_cache,
                        .on_answer = on_answer,
                        .user = r};
  bp.gen.max_tokens = r->plan.max_tokens;
  bp.gen.stop = df_gsm8k_stop;
  bp.gen.n_stop = DF_COUNT_OF(df_gsm8k_stop);
  bp.gen.cancel = &df_interrupted;
  df_progress_begin(&r->bar, &r->cli->term, "questions", r->plan.limit, r->log.n, false);
  r->t_last = r->t_told = df_now_ns();
  const df_status st = r->n_todo ? df_batch_run(&r->e, r->todo, r->n_todo, &bp, err) : DF_OK;
  df_progress_end(&r->bar);
  return st;
}

static df_status show(run *r, df_error *err) {
  const char *dir = df_opt_text(&r->cli->opts, OPT_EVAL_OUT, NULL);
  const df_eval_tally t = df_run_log_tally(&r->log, r->plan.limit);
  df_buf b;
  char *path = NULL;
  df_buf_init(&b, 0);
  df_status st = df_eval_summary(&r->l, &r->e, &t, r->header.data, &b, err);
  if (st == DF_OK && df_opt_on(&r->cli->opts, OPT_JSON, false))
    puts(b.data);
  else if (st == DF_OK)
    df_eval_print(r->cli, &r->plan, &t);
  if (st == DF_OK && dir) {
    st = df_path_join(dir, DF_EVAL_SUMMARY, &path, err);
    if (st == DF_OK) st = df_buf_puts(&b, "\n", err);
    if (st == DF_OK) st = df_text_write(path, b.data, b.len, err);
    df_free(path);
  }
  df_buf_release(&b);
  return st;
}

static void release(run *r) {
  for (uint32_t i = 0; r->prompt && i < r->plan.limit; i++) df_ids_free((int32_t *)(uintptr_t)r->prompt[i].ids);
  df_free(r->prompt);
  df_free(r->todo);
  df_free(r->question);
  df_run_log_close(&r->log);
  if (r->has_engine) df_engine_release(&r->e);
  df_loaded_close(&r->l);
  df_gsm8k_release(&r->data);
  df_buf_release(&r->header);
  df_free(r->plan.data_dir);
  df_free(r->plan.model_path);
  df_free(r->plan.draft_path);
}

df_status df_eval_gsm8k(df_cli *cli, df_error *err) {
  run *r = df_calloc(1, sizeof *r);
  if (!r) return DF_OOM(err, "a run", sizeof *r);
  r->cli = cli;
  r->log.fd = -1;
  df_buf_init(&r->header, 0);
  df_status st = make_plan(r, err);
  if (st == DF_OK) st = open_log(r, err);
  if (st == DF_OK) st = df_loaded_open_for(&r->l, cli, true, r->plan.parallel + 1, 0, err);
  if (st == DF_OK) st = make_prompts(r, err);
  if (st == DF_OK) st = open_engine(r, err);
  if (st == DF_OK) st = ask(r, err);
  if (st == DF_OK) st = show(r, err);
  release(r);
  df_free(r);
  return st;
}
