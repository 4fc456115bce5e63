/* dflash perplexity: mean negative log-likelihood of a text. */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "cli/cli_model.h"
#include "cli/cli_text.h"
#include "cli/interrupt.h"
#include "cli/verbs.h"
#include "format/json.h"

typedef struct score_run {
  df_progress bar;
  size_t done;   /* tokens of finished windows */
  size_t window; /* tokens of the current one */
  double sum;    /* of -ln p */
  uint64_t scored, windows;
} score_run;

static bool on_progress(void *user, double fraction) {
  score_run *r = user;
  df_progress_update(&r->bar, r->done + (uint64_t)(fraction * (double)r->window));
  return !df_interrupted;
}

static df_status read_input(df_cli *cli, df_buf *b, df_error *err) {
  const df_opts *o = &cli->opts;
  const char *file = o->n_pos ? o->pos[0] : df_opt_text(o, OPT_FILE, cli->term.in_tty ? NULL : "-");
  if (!file) {
    df_status st = DF_FAIL(err, DF_ERR_ARGUMENT, "no text given");
    df_error_hint(err, "usage: dflash perplexity -m MODEL FILE");
    return st;
  }
  DF_TRY(df_text_read(file, b, err));
  DF_TRY(df_buf_puts(b, "", err));
  return df_text_check(b->data, b->len, strcmp(file, "-") == 0 ? "standard input" : file, err);
}

static df_status score_windows(df_loaded *l, const int32_t *ids, size_t n, score_run *r, df_error *err) {
  size_t ctx = df_session_n_ctx(l->session);
  double *lp = df_alloc(ctx * sizeof *lp);
  if (!lp) return DF_OOM(err, "scores", ctx * sizeof *lp);
  df_status st = DF_OK;
  for (size_t at = 0; at < n && st == DF_OK; at += ctx) {
    size_t len = n - at < ctx ? n - at : ctx;
    if (len < 2) break; /* a single last token has nothing before it in its window */
    r->window = len;
    st = df_session_score(l->session, ids + at, len, lp, on_progress, r, err);
    if (st != DF_OK) break;
    for (size_t i = 0; i + 1 < len; i++) r->sum -= lp[i];
    r->scored += len - 1;
    r->windows++;
    r->done += len;
    df_progress_update(&r->bar, r->done);
  }
  df_free(lp);
  return st;
}

static df_status report(df_cli *cli, df_loaded *l, const score_run *r, size_t n, df_error *err) {
  double nll = r->sum / (double)r->scored, ppl = exp(nll);
  uint32_t ctx = df_session_n_ctx(l->session);
  if (!df_opt_on(&cli->opts, OPT_JSON, false)) {
    printf(
        "tokens      %zu, %llu scored in %llu window%s of up to %u (no overlap; the first token of a window is not "
        "scored)\n",
        n, (unsigned long long)r->scored, (unsigned long long)r->windows, r->windows == 1 ? "" : "s", ctx);
    printf("mean NLL    %.6f nats/token\nperplexity  %.4f\n", nll, ppl);
    return DF_OK;
  }
  df_buf b;
  df_json_out w;
  df_buf_init(&b, 0);
  df_json_out_begin(&w, &b, err);
  df_json_out_object(&w);
  df_json_out_key(&w, "model"), df_json_out_cstr(&w, l->model_path);
  df_json_out_key(&w, "tokens"), df_json_out_u64(&w, n);
  df_json_out_key(&w, "scored"), df_json_out_u64(&w, r->scored);
  df_json_out_key(&w, "windows"), df_json_out_u64(&w, r->windows);
  df_json_out_key(&w, "n_ctx"), df_json_out_u64(&w, ctx);
  df_json_out_key(&w, "mean_nll"), df_json_out_f64(&w, nll);
  df_json_out_key(&w, "perplexity"), df_json_out_f64(&w, ppl);
  df_json_out_close(&w);
  df_status st = df_json_out_end(&w);
  if (st == DF_OK) puts(b.data);
  df_buf_release(&b);
  return st;
}

int df_verb_perplexity(df_cli *cli) {
  df_loaded l = {0};
  score_run r = {0};
  df_error err;
  df_buf text;
  int32_t *ids = NULL;
  size_t n = 0;
  df_status st;
  df_buf_init(&text, DF_TEXT_MAX);
  DF_TRY_GOTO(st, df_need_model(&cli->opts, &err), done);
  DF_TRY_GOTO(st, read_input(cli, &text, &err), done);
  df_interrupt_install();
  DF_TRY_GOTO(st, df_loaded_open(&l, cli, false, &err), done);
  DF_TRY_GOTO(st, df_loaded_session(&l, cli, false, &err), done);
  DF_TRY_GOTO(st, df_model_tokenize(l.model, text.data, text.len, false, &ids, &n, &err), done);
  if (n < 2) {
    st = DF_FAIL(&err, DF_ERR_ARGUMENT, "the text has %zu token%s, scoring needs at least 2", n, n == 1 ? "" : "s");
    goto done;
  }
  df_progress_begin(&r.bar, &cli->term, "scoring", n, 0, false);
  st = score_windows(&l, ids, n, &r, &err);
  df_progress_end(&r.bar);
  if (st == DF_OK) st = report(cli, &l, &r, n, &err);
done:;
  int status = st == DF_OK ? DF_EXIT_OK : df_cli_report(cli, &err);
  if (st == DF_ERR_CANCELLED && df_interrupted) status = DF_EXIT_INTERRUPTED;
  df_ids_free(ids);
  df_loaded_close(&l);
  df_buf_release(&text);
  return status;
}
