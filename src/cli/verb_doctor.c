/* dflash doctor: what a configuration would do, and everything that would be refused. */
#include <string.h>
#include <strings.h>

#include "base/mem.h"
#include "cli/cli_attention.h"
#include "cli/cli_model.h"
#include "cli/doctor_report.h"
#include "cli/interrupt.h"
#include "cli/known.h"

static bool on_load(void *user, double fraction) {
  df_progress_update(user, (uint64_t)(fraction * 1000));
  return !df_interrupted;
}

/* Options to parameters. A list of batch sizes that cannot be read is a problem like the engine's own. */
static void take_options(const df_opts *o, df_doctor_params *p, uint32_t *sizes, df_doctor *d) {
  df_error why = {0};
  df_opts copy = *o;
  if (df_session_params_from_opts(&copy, &p->engine.session, sizes, &why) != DF_OK) {
    df_doctor_add(d, "graph-bs", &why);
    copy.v[OPT_GRAPH_BS] = (df_opt_value){0};
    if (df_session_params_from_opts(&copy, &p->engine.session, sizes, &why) != DF_OK) df_doctor_add(d, "", &why);
  }
  const df_session_params *s = &p->engine.session;
  /* run and chat step one request; a list of batch sizes asks what a larger engine would record. */
  p->engine.max_seqs = s->n_graph_seqs ? s->graph_seqs[s->n_graph_seqs - 1] : 1;
  p->model_params = df_model_params_default();
  p->model_params.device = df_opt_text(o, OPT_DEVICE, NULL);
  p->model_params.n_threads = (uint32_t)df_opt_int(o, OPT_THREADS, 0);
  p->model_params.cpu_tier = df_opt_text(o, OPT_CPU, NULL);
  p->model_params.weights_cache = df_opt_text(o, OPT_WEIGHTS_CACHE, NULL);
  p->model_params.exact = df_opt_on(o, OPT_EXACT, false);
  p->draft_params = df_draft_params_default();
  int64_t n = df_opt_int(o, OPT_DRAFT_VOCAB, -1);
  p->draft_params.draft_vocab = n < 0 ? 0 : (uint32_t)n;
  p->draft_params.weight_type = df_opt_text(o, OPT_DRAFT_QUANT, NULL);
}

static df_status examine(df_cli *cli, df_doctor *d, df_error *err) {
  const df_opts *o = &cli->opts;
  df_doctor_params p = {0};
  uint32_t sizes[DF_BATCH_SIZES_MAX];
  char *model = NULL, *draft = NULL;
  df_progress bar;
  df_status st;
  bool with_draft = df_opt_given(o, OPT_DRAFT_MODEL) && strcasecmp(df_opt_text(o, OPT_SPEC_TYPE, ""), "none") != 0;
  DF_TRY(df_need_model(o, err));
  take_options(o, &p, sizes, d);
  df_error why = {0};
  if (df_target_resolve(o, df_opt_text(o, OPT_MODEL, NULL), &model, &why) != DF_OK) df_doctor_add(d, "model", &why);
  why = (df_error){0};
  if (with_draft && df_draft_resolve(o, df_opt_text(o, OPT_DRAFT_MODEL, NULL), &draft, &why) != DF_OK)
    df_doctor_add(d, "spec-draft-model", &why);
  p.model = model;
  p.draft = draft;
  df_progress_begin(&bar, &cli->term, "loading", 1000, 0, false);
  p.model_params.progress = on_load;
  p.model_params.progress_user = &bar;
  st = df_doctor_run(&p, d, err);
  df_progress_end(&bar);
  df_free(model);
  df_free(draft);
  return st;
}

int df_verb_doctor(df_cli *cli) {
  df_error err;
  df_doctor *d = df_calloc(1, sizeof *d);
  df_interrupt_install();
  df_status st = d ? examine(cli, d, &err) : DF_OOM(&err, "the report", sizeof *d);
  if (st == DF_OK && df_opt_on(&cli->opts, OPT_JSON, false))
    st = df_doctor_json(d, cli, &err);
  else if (st == DF_OK)
    df_doctor_text(d, cli);
  int status = st != DF_OK ? df_cli_report(cli, &err) : d->n_problems ? DF_EXIT_FAILURE : DF_EXIT_OK;
  if (st == DF_ERR_CANCELLED && df_interrupted) status = DF_EXIT_INTERRUPTED;
  if (d) df_doctor_release(d);
  df_free(d);
  return status;
}
