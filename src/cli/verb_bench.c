/* dflash bench: how fast a pair is, pass by pass and end to end. All kinds of samples are taken in turn, so that a
 * machine whose speed drifts bends none of the ratios. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/size.h"
#include "cli/bench_report.h"
#include "cli/cli_attention.h"
#include "cli/cli_stats.h"
#include "cli/interrupt.h"
#include "cli/known.h"
#include "model/model.h"

static const uint32_t k_rows[] = {1, 2, 4, 6, 8, 12, 16};
static const double k_noise_spread = 0.25; /* (median - best) / best of the decode step */
static const double k_noise_others = 0.05; /* of the machine */

/* The peer's own measurement of the same passes: PATH/verify-bench MODEL THREADS DEPTH REPS prints lines
 * "threads,depth,all|last,rows,best,median,worst". Only its numbers are read. */
static df_status peer_round(df_bench_report *r, df_error *err) {
  char cmd[4096];
  if (r->n_seqs > 1)
    return DF_FAIL(err, DF_ERR_ARGUMENT, "the peer is measured with one sequence: not with --parallel");
  if (snprintf(cmd, sizeof cmd, "exec '%s/verify-bench' '%s' %u %u 3 2>/dev/null", r->peer, r->l->model_path,
               r->l->info.n_threads, r->depth) >= (int)sizeof cmd ||
      strchr(r->peer, '\'') || strchr(r->l->model_path, '\''))
    return DF_FAIL(err, DF_ERR_ARGUMENT, "the peer's path cannot be used");
  FILE *f = popen(cmd, "r");
  if (!f) return DF_FAIL(err, DF_ERR_IO, "could not start the peer's verify-bench");
  char line[256], kind[8];
  uint32_t threads, depth, rows, seen = 0;
  double best, median, worst;
  while (fgets(line, sizeof line, f)) {
    if (sscanf(line, "%u,%u,%7[a-z],%u,%lf,%lf,%lf", &threads, &depth, kind, &rows, &best, &median, &worst) != 7)
      continue;
    if (strcmp(kind, "all") != 0) continue;
    for (uint32_t i = 0; i < r->n_widths; i++) {
      df_bench_width *w = &r->width[i];
      if (w->rows != rows || w->n_peer == DF_BENCH_REPS) continue;
      w->peer_ms[w->n_peer++] = best;
      seen++;
    }
  }
  const int rc = pclose(f);
  if (rc != 0 || seen == 0) {
    (void)DF_FAIL(err, DF_ERR_IO, "the peer's verify-bench in \"%s\" gave no figures", r->peer);
    df_error_hint(err, "--peer names the folder that holds verify-bench");
    return DF_ERR_IO;
  }
  return DF_OK;
}

static df_status pass_round(df_bench_report *r, df_bench *b, df_error *err) {
  double ms;
  for (uint32_t i = 0; i < r->n_widths; i++) {
    df_bench_width *w = &r->width[i];
    DF_TRY(df_bench_verify(b, w->rows, &ms, err));
    w->verify_ms[w->n] = ms;
    if (r->l->draft && w->rows > 1) {
      DF_TRY(df_bench_draft(b, w->rows, DF_MIN(3u, w->rows), &ms, err));
      w->draft_ms[w->n] = ms;
    }
    w->n++;
  }
  return DF_OK;
}

/* What the host does for a step, where that is not the work itself. */
static df_status host_work(df_bench_report *r, df_bench *b, df_error *err) {
  enum { STEPS = 100 };
  const uint32_t room = b->e.n_ctx / DF_MAX_WIDTH; /* in steps: a step of a block may take as many positions */
  const uint32_t n = DF_MIN((uint32_t)STEPS, room > 12 ? room - 12 : 1);
  DF_TRY(df_bench_steps_of(b, 1, n, &r->plain, err));
  return r->l->draft ? df_bench_steps_of(b, DF_MIN(8u, b->e.width), n, &r->drafted, err) : DF_OK;
}

static df_status passes(df_bench_report *r, df_cli *cli, const df_session_params *sp, df_error *err) {
  df_bench b;
  df_progress bar;
  DF_TRY(df_bench_init(&b, r->l->model, r->l->draft, sp, r->n_seqs, r->depth, err));
  df_progress_begin(&bar, &cli->term, "passes", r->reps, 0, false);
  df_status s = pass_round(r, &b, err); /* warms caches and records programs */
  for (uint32_t i = 0; i < r->n_widths; i++) r->width[i].n = 0;
  for (uint32_t i = 0; i < r->reps && s == DF_OK; i++) {
    s = pass_round(r, &b, err);
    if (s == DF_OK && i % 4 == 0 && r->prefill_n)
      s = df_bench_prefill(&b, r->prefill_n, &r->prefill_ms[r->n_prefill++], err);
    if (s == DF_OK && r->peer && i % 4 == 0) s = peer_round(r, err);
    df_progress_update(&bar, i + 1);
    if (df_interrupted) s = DF_FAIL(err, DF_ERR_CANCELLED, "interrupted");
  }
  if (s == DF_OK && !r->l->model->device->is_host) s = host_work(r, &b, err);
  df_progress_end(&bar);
  df_bench_release(&b);
  return s;
}

/* ---- end to end ----------------------------------------------------------------------------------------- */

/* One prompt in one mode; the text of the plain mode is what the others must equal. */
static df_status run_prompt(df_bench_report *r, df_bench_set *s, df_bench_mode *m, df_session *session, uint32_t p,
                            uint32_t rep, int32_t **plain, uint32_t *n_plain, double *tokens, double *ms,
                            df_error *err) {
  df_generate_params g = df_generate_params_default();
  df_result res;
  g.max_tokens = r->n_predict;
  df_session_reset(session);
  DF_TRY(df_session_generate(session, s->prompt[p], s->n_prompt[p], &g, &res, err));
  if (m == &s->mode[0] && !*plain) {
    *plain = df_alloc((res.n_ids + 1) * sizeof **plain);
    if (!*plain) return DF_OOM(err, "a text", res.n_ids);
    memcpy(*plain, res.ids, res.n_ids * sizeof **plain);
    *n_plain = res.n_ids;
  } else if (res.n_ids != *n_plain || memcmp(*plain, res.ids, res.n_ids * sizeof **plain) != 0) {
    s->identical = false;
  }
  df_stats_add(&m->sum, &res.stats);
  *tokens += res.n_ids - 1; /* the first one comes from the prompt's pass */
  *ms += res.stats.decode_ms;
  s->per_prompt[m - s->mode][p][rep] = res.stats.decode_ms > 0 ? (res.n_ids - 1) / res.stats.decode_ms : 0;
  return DF_OK;
}

static df_status run_set(df_bench_report *r, df_bench_set *s, df_session **session, uint32_t reps, df_progress *bar,
                         uint64_t *done, df_error *err) {
  int32_t *plain[DF_BENCH_PROMPTS] = {NULL};
  uint32_t n_plain[DF_BENCH_PROMPTS] = {0};
  df_status st = DF_OK;
  s->identical = true;
  for (uint32_t rep = 0; rep < reps && st == DF_OK; rep++) {
    double tokens[DF_BENCH_MODES] = {0}, ms[DF_BENCH_MODES] = {0};
    for (uint32_t p = 0; p < s->n && st == DF_OK; p++)
      for (uint32_t k = 0; k < s->n_modes && st == DF_OK; k++) {
        st = run_prompt(r, s, &s->mode[k], session[k], p, rep, &plain[p], &n_plain[p], &tokens[k], &ms[k], err);
        df_progress_update(bar, ++*done);
        if (st == DF_OK && df_interrupted) st = DF_FAIL(err, DF_ERR_CANCELLED, "interrupted");
      }
    for (uint32_t k = 0; k < s->n_modes && st == DF_OK; k++)
      s->mode[k].speed[s->mode[k].n++] = ms[k] > 0 ? tokens[k] * 1e3 / ms[k] : 0;
  }
  for (uint32_t p = 0; p < s->n; p++) df_free(plain[p]);
  return st;
}

static void summarise_set(df_bench_set *s, uint32_t reps) {
  for (uint32_t k = 0; k < s->n_modes; k++) {
    df_bench_mode *m = &s->mode[k];
    m->spread = df_bench_spread(m->speed, m->n);
    m->worst_ratio = 1e9;
    for (uint32_t p = 0; p < s->n; p++) {
      const double ratio =
          df_bench_spread(s->per_prompt[k][p], reps).median / df_bench_spread(s->per_prompt[0][p], reps).median;
      m->worst_ratio = DF_MIN(m->worst_ratio, ratio);
    }
  }
}

static df_status generations(df_bench_report *r, df_cli *cli, const df_session_params *sp, uint32_t reps,
                             df_error *err) {
  df_session *session[DF_BENCH_MODES] = {NULL};
  df_bench_set *first = r->set[0];
  df_progress bar;
  df_status s = DF_OK;
  uint64_t done = 0, total = 0;
  for (uint32_t k = 0; k < first->n_modes && s == DF_OK; k++) {
    df_session_params p = *sp;
    p.spec_draft_max = first->mode[k].width - 1; /* automatic is -1, which the library takes for "auto" */
    if (first->mode[k].width < 0) p.spec_draft_max = -1;
    s = df_session_create(r->l->model, first->mode[k].width ? r->l->draft : NULL, &p, &session[k], err);
  }
  for (uint32_t i = 0; i < r->n_sets; i++) total += (uint64_t)r->set[i]->n * r->set[i]->n_modes * reps;
  df_progress_begin(&bar, &cli->term, "texts", total, 0, false);
  for (uint32_t i = 0; i < r->n_sets && s == DF_OK; i++) s = run_set(r, r->set[i], session, reps, &bar, &done, err);
  df_progress_end(&bar);
  for (uint32_t i = 0; i < r->n_sets && s == DF_OK; i++) summarise_set(r->set[i], reps);
  for (uint32_t k = 0; k < DF_BENCH_MODES; k++) df_session_free(session[k]);
  return s;
}

/* ---- the verb ------------------------------------------------------------------------------------------- */

/* Modes of every set: plain, automatic, and the rows of --widths. */
static df_status add_modes(df_bench_set *s, const df_bench_report *r, const char *widths, df_error *err) {
  s->mode[s->n_modes++].width = 0;
  if (!r->l->draft) return DF_OK;
  s->mode[s->n_modes++].width = -1;
  for (const char *p = widths; p && *p;) {
    char *end;
    const long w = strtol(p, &end, 10);
    if (end == p || w < 1 || w > DF_MAX_WIDTH || (*end && *end != ',') || s->n_modes == DF_BENCH_MODES)
      return DF_FAIL(err, DF_ERR_ARGUMENT, "\"%.40s\" is no list of up to %d widths from 1 to %d", widths,
                     DF_BENCH_MODES - 2, DF_MAX_WIDTH);
    s->mode[s->n_modes++].width = (int32_t)w;
    p = *end ? end + 1 : end;
  }
  return DF_OK;
}

static df_status load_sets(df_bench_report *r, const df_opts *o, const char *dir, char *names, df_error *err) {
  if (df_opt_int(o, OPT_BENCH_LIMIT, 6) > DF_BENCH_PROMPTS)
    return DF_FAIL(err, DF_ERR_ARGUMENT, "--limit is more than the %d prompts of a set", DF_BENCH_PROMPTS);
  char *save = NULL;
  for (char *name = strtok_r(names, ",", &save); name; name = strtok_r(NULL, ",", &save)) {
    if (r->n_sets == DF_BENCH_SETS) return DF_FAIL(err, DF_ERR_ARGUMENT, "more than %d prompt sets", DF_BENCH_SETS);
    df_bench_set *s = df_calloc(1, sizeof *s);
    if (!s) return DF_OOM(err, "a prompt set", sizeof *s);
    r->set[r->n_sets++] = s;
    DF_TRY(df_bench_set_load(s, r->l->model, dir, name, (uint32_t)df_opt_int(o, OPT_BENCH_LIMIT, 6), err));
    DF_TRY(add_modes(s, r, df_opt_text(o, OPT_BENCH_WIDTHS, ""), err));
  }
  return DF_OK;
}

static void summarise(df_bench_report *r, const df_bench_load *load) {
  for (uint32_t i = 0; i < r->n_widths; i++) {
    df_bench_width *w = &r->width[i];
    w->verify = df_bench_spread(w->verify_ms, w->n);
    w->draft = df_bench_spread(w->draft_ms, w->n);
    w->peer = df_bench_spread(w->peer_ms, w->n_peer);
  }
  r->prefill = df_bench_spread(r->prefill_ms, r->n_prefill);
  r->others = df_bench_load_others(load);
  const df_spread *one = &r->width[0].verify;
  r->noisy = (!r->peer && r->others > k_noise_others) || (one->median - one->min) / one->min > k_noise_spread;
}

static df_status write_file(const char *path, const df_buf *b, df_error *err) {
  FILE *f = fopen(path, "we");
  if (!f) return DF_FAIL(err, DF_ERR_IO, "could not write \"%s\"", path);
  const bool ok = fwrite(b->data, 1, b->len, f) == b->len;
  if (fclose(f) != 0 || !ok) return DF_FAIL(err, DF_ERR_IO, "could not write \"%s\"", path);
  return DF_OK;
}

static df_status show(const df_bench_report *r, df_cli *cli, df_error *err) {
  const char *svg = df_opt_text(&cli->opts, OPT_BENCH_SVG, NULL);
  df_buf b;
  df_buf_init(&b, 0);
  df_status s = DF_OK;
  if (!df_opt_on(&cli->opts, OPT_JSON, false)) {
    df_bench_print(r, cli);
  } else {
    s = df_bench_json(r, cli, &b, err);
    if (s == DF_OK) puts(b.data);
  }
  b.len = 0;
  if (s == DF_OK && svg && r->n_sets) s = df_bench_svg(r, &b, err);
  if (s == DF_OK && svg && r->n_sets) s = write_file(svg, &b, err);
  df_buf_release(&b);
  return s;
}

static df_status run_all(df_bench_report *r, df_cli *cli, char *names, df_error *err) {
  const df_opts *o = &cli->opts;
  df_session_params sp;
  uint32_t sizes[DF_BATCH_SIZES_MAX];
  df_bench_load load;
  DF_TRY(df_session_params_from_opts(o, &sp, sizes, err));
  const uint32_t most = r->l->draft ? r->l->draft_info.block_size : DF_MAX_WIDTH;
  for (size_t i = 0; i < DF_COUNT_OF(k_rows); i++)
    if (k_rows[i] <= most) r->width[r->n_widths++].rows = k_rows[i];
  char *dir = NULL;
  if (*names) DF_TRY(df_bench_prompts_find(o, &dir, err));
  const df_status st = load_sets(r, o, dir, names, err);
  df_free(dir);
  if (st != DF_OK) return st;
  df_bench_load_begin(&load);
  DF_TRY(passes(r, cli, &sp, err));
  if (r->n_sets) DF_TRY(generations(r, cli, &sp, (uint32_t)df_opt_int(o, OPT_BENCH_ROUNDS, 3), err));
  summarise(r, &load);
  return show(r, cli, err);
}

int df_verb_bench(df_cli *cli) {
  const df_opts *o = &cli->opts;
  df_loaded l = {0};
  df_error err;
  df_status st;
  char *names = NULL;
  df_bench_report *r = df_calloc(1, sizeof *r);
  if (!r) {
    (void)DF_OOM(&err, "the report", sizeof *r);
    return df_cli_report(cli, &err);
  }
  r->l = &l;
  r->reps = (uint32_t)df_opt_int(o, OPT_BENCH_REPS, 20);
  r->depth = (uint32_t)df_opt_int(o, OPT_BENCH_DEPTH, 256);
  r->n_seqs = (uint32_t)df_opt_int(o, OPT_PARALLEL, 1);
  r->prefill_n = (uint32_t)df_opt_int(o, OPT_BENCH_PREFILL, 512);
  r->n_predict = (uint32_t)df_opt_int(o, OPT_PREDICT, 128);
  r->peer = df_opt_text(o, OPT_BENCH_PEER, NULL);
  DF_TRY_GOTO(st, df_need_model(o, &err), done);
  df_interrupt_install();
  DF_TRY_GOTO(st, df_loaded_open(&l, cli, true, &err), done);
  names = df_strdup(df_opt_text(o, OPT_BENCH_SETS, l.draft ? "gsm8k-5shot,gsm8k-chat,chat,code" : ""));
  st = names ? run_all(r, cli, names, &err) : DF_OOM(&err, "names", 0);
done:;
  const int status = st == DF_OK                                ? DF_EXIT_OK
                     : st == DF_ERR_CANCELLED && df_interrupted ? DF_EXIT_INTERRUPTED
                                                                : df_cli_report(cli, &err);
  for (uint32_t i = 0; i < r->n_sets; i++) {
    df_bench_set_release(r->set[i]);
    df_free(r->set[i]);
  }
  df_free(names);
  df_free(r);
  df_loaded_close(&l);
  return status;
}
