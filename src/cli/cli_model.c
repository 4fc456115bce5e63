#include "cli/cli_model.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "cli/cli_attention.h"
#include "cli/cli_text.h"
#include "cli/interrupt.h"
#include "cli/known.h"
#include "text/chat_template.h"

static bool on_load(void *user, double fraction) {
  df_progress_update(user, (uint64_t)(fraction * 1000));
  return !df_interrupted;
}

df_status df_need_model(const df_opts *o, df_error *err) {
  if (df_opt_given(o, OPT_MODEL)) return DF_OK;
  df_status st = DF_FAIL(err, DF_ERR_ARGUMENT, "no model given");
  df_error_hint(err, "-m FILE, or \"dflash pull smollm2-135m-instruct\" and -m smollm2-135m-instruct");
  return st;
}

static bool drafting_off(const df_opts *o) { return strcasecmp(df_opt_text(o, OPT_SPEC_TYPE, ""), "none") == 0; }

/* Options that only make sense together. */
static df_status check_options(const df_opts *o, df_error *err) {
  DF_TRY(df_need_model(o, err));
  bool draft = df_opt_given(o, OPT_DRAFT_MODEL) && !drafting_off(o);
  if (df_opt_given(o, OPT_SPEC_DRAFT_N_MAX) && df_opt_given(o, OPT_SPEC_WIDTH) &&
      df_opt_int(o, OPT_SPEC_DRAFT_N_MAX, 0) + 1 != df_opt_int(o, OPT_SPEC_WIDTH, 0)) {
    df_status st =
        DF_FAIL(err, DF_ERR_ARGUMENT, "--spec-draft-n-max %lld and --spec-width %lld contradict each other",
                (long long)df_opt_int(o, OPT_SPEC_DRAFT_N_MAX, 0), (long long)df_opt_int(o, OPT_SPEC_WIDTH, 0));
    df_error_hint(err, "the width counts one row more than the drafted tokens; give one of them");
    return st;
  }
  static const df_opt_id need_draft[] = {OPT_SPEC_TYPE, OPT_SPEC_DRAFT_N_MAX, OPT_SPEC_WIDTH, OPT_DRAFT_VOCAB,
                                         OPT_DRAFT_QUANT};
  for (size_t i = 0; i < sizeof need_draft / sizeof need_draft[0] && !draft && !drafting_off(o); i++) {
    if (o->v[need_draft[i]].source != DF_FROM_ARGV) continue;
    df_status st = DF_FAIL(err, DF_ERR_ARGUMENT, "--%s needs a draft", df_opt_table[need_draft[i]].name);
    df_error_hint(err, "give the draft with -md FILE");
    return st;
  }
  if (strcasecmp(df_opt_text(o, OPT_CACHE_TYPE_K, "f16"), df_opt_text(o, OPT_CACHE_TYPE_V, "f16")) != 0 &&
      df_opt_given(o, OPT_CACHE_TYPE_K) && df_opt_given(o, OPT_CACHE_TYPE_V))
    return DF_FAIL(err, DF_ERR_ARGUMENT, "keys and values share one type: give -ctk and -ctv the same");
  return df_attention_opts_check(o, err);
}

/* mp: what will share a card's memory; the rest comes from the options. */
static df_status open_both(df_loaded *l, df_cli *cli, bool with_draft, df_model_params mp, df_error *err) {
  const df_opts *o = &cli->opts;
  df_progress bar;
  DF_TRY(df_target_resolve(o, df_opt_text(o, OPT_MODEL, NULL), &l->model_path, err));
  if (with_draft) DF_TRY(df_draft_resolve(o, df_opt_text(o, OPT_DRAFT_MODEL, NULL), &l->draft_path, err));
  df_progress_begin(&bar, &cli->term, "loading", 1000, 0, false);
  mp.device = df_opt_text(o, OPT_DEVICE, NULL);
  mp.n_threads = (uint32_t)df_opt_int(o, OPT_THREADS, 0);
  mp.cpu_tier = df_opt_text(o, OPT_CPU, NULL);
  mp.weights_cache = df_opt_text(o, OPT_WEIGHTS_CACHE, NULL);
  mp.exact = df_opt_on(o, OPT_EXACT, false);
  mp.progress = on_load;
  mp.progress_user = &bar;
  mp.n_ctx = (uint32_t)df_opt_int(o, OPT_CTX_SIZE, 0);
  mp.draft = l->draft_path;
  df_status st = df_model_open(l->model_path, &mp, &l->model, err);
  df_progress_end(&bar);
  if (st != DF_OK) return st;
  l->info = df_model_get_info(l->model);
  if (!with_draft) return DF_OK;
  df_draft_params dp = df_draft_params_default();
  if (df_opt_given(o, OPT_DRAFT_VOCAB)) {
    int64_t n = df_opt_int(o, OPT_DRAFT_VOCAB, -1);
    dp.draft_vocab = n < 0 ? 0 : (uint32_t)n;
  }
  dp.weight_type = df_opt_text(o, OPT_DRAFT_QUANT, NULL);
  DF_TRY(df_draft_open(l->draft_path, l->model, &dp, &l->draft, err));
  l->draft_info = df_draft_get_info(l->draft);
  return DF_OK;
}

df_status df_loaded_open(df_loaded *l, df_cli *cli, bool with_draft, df_error *err) {
  return df_loaded_open_for(l, cli, with_draft, 1, 0, err);
}

df_status df_loaded_open_for(df_loaded *l, df_cli *cli, bool with_draft, uint32_t n_seqs, uint64_t kv_bytes,
                             df_error *err) {
  const df_opts *o = &cli->opts;
  *l = (df_loaded){.width = 1};
  DF_TRY(check_options(o, err));
  with_draft = with_draft && df_opt_given(o, OPT_DRAFT_MODEL) && !drafting_off(o);
  df_model_params mp = df_model_params_default();
  mp.n_seqs = n_seqs;
  mp.kv_bytes = kv_bytes;
  df_status st = open_both(l, cli, with_draft, mp, err);
  if (st != DF_OK) {
    df_loaded_close(l);
    return st;
  }
  if (l->draft) {
    int32_t n = df_draft_max_from_opts(o);
    l->width_given = n >= 0;
    l->width = n >= 0 ? (uint32_t)n + 1 : l->draft_info.block_size;
  }
  return DF_OK;
}

df_status df_loaded_session(df_loaded *l, df_cli *cli, bool draft, df_error *err) {
  const df_opts *o = &cli->opts;
  df_session_params sp;
  uint32_t sizes[DF_BATCH_SIZES_MAX];
  DF_TRY(df_session_params_from_opts(o, &sp, sizes, err));
  if (!draft || !l->draft) sp.spec_draft_max = -1;
  return df_session_create(l->model, draft ? l->draft : NULL, &sp, &l->session, err);
}

void df_loaded_close(df_loaded *l) {
  df_session_free(l->session);
  df_draft_close(l->draft);
  df_model_close(l->model);
  df_free(l->model_path);
  df_free(l->draft_path);
  *l = (df_loaded){0};
}

void df_machine_text(const df_model_info *info, char *out, size_t cap) {
  if (info->card[0])
    (void)snprintf(out, cap, "%s (%s)", info->device, info->card);
  else
    (void)snprintf(out, cap, "%s kernels, %u thread%s", info->cpu_tier, info->n_threads,
                   info->n_threads == 1 ? "" : "s");
}

void df_loaded_describe(const df_loaded *l, const df_cli *cli) {
  char params[24], vocab[24], machine[128];
  const char *dim = df_term_err(&cli->term, DF_STYLE_DIM), *off = df_term_err(&cli->term, DF_STYLE_RESET);
  df_format_count(params, sizeof params, l->info.n_params);
  df_machine_text(&l->info, machine, sizeof machine);
  fprintf(stderr, "%smodel     %s: %s, %u layers, %s parameters; %s, context %u%s\n", dim,
          l->info.name && *l->info.name ? l->info.name : l->model_path, l->info.arch, l->info.n_layers, params, machine,
          df_session_n_ctx(l->session), off);
  if (!l->draft) {
    fprintf(stderr, "%sdrafting  off%s\n", dim, off);
    return;
  }
  df_format_grouped(vocab, sizeof vocab, l->draft_info.draft_vocab);
  fprintf(stderr,
          "%sdrafting  draft-dflash, %s %u drafted token%s a step (width %u with the last token), from %s tokens%s\n",
          dim, l->width_given ? "at most" : "up to", l->width - 1, l->width == 2 ? "" : "s", l->width, vocab, off);
}

uint64_t df_seed_from_opts(const df_opts *o) {
  int64_t seed = df_opt_int(o, OPT_SEED, -1);
  if (seed >= 0) return (uint64_t)seed;
  uint32_t v = (uint32_t)df_now_ns() ^ (uint32_t)getpid() << 16;
  FILE *f = fopen("/dev/urandom", "rb");
  if (f) {
    uint32_t r;
    if (fread(&r, sizeof r, 1, f) == 1) v = r;
    (void)fclose(f);
  }
  return v;
}

df_generate_params df_generate_from_opts(const df_opts *o, const df_loaded *l) {
  df_generate_params g = df_generate_params_default();
  df_sampling_params *s = &g.sampling;
  g.max_tokens = (uint32_t)df_opt_int(o, OPT_PREDICT, df_session_n_ctx(l->session));
  g.ignore_eos = df_opt_on(o, OPT_IGNORE_EOS, false);
  g.show_special = df_opt_on(o, OPT_SPECIAL, false);
  g.stop = o->stop;
  g.n_stop = o->n_stop;
  s->temperature = (float)df_opt_real(o, OPT_TEMP, s->temperature);
  s->top_k = (int32_t)df_opt_int(o, OPT_TOP_K, s->top_k);
  s->top_p = (float)df_opt_real(o, OPT_TOP_P, s->top_p);
  s->min_p = (float)df_opt_real(o, OPT_MIN_P, s->min_p);
  s->repetition_penalty = (float)df_opt_real(o, OPT_REPEAT_PENALTY, s->repetition_penalty);
  s->presence_penalty = (float)df_opt_real(o, OPT_PRESENCE_PENALTY, s->presence_penalty);
  s->frequency_penalty = (float)df_opt_real(o, OPT_FREQUENCY_PENALTY, s->frequency_penalty);
  if (s->temperature > 0) s->seed = df_seed_from_opts(o);
  g.cancel = &df_interrupted;
  return g;
}

/* A fault of the template is told with the name of its file; later only the text is at hand. */
static df_status check_template(const char *text, size_t n, const char *path, df_error *err) {
  df_chat_template *t = NULL;
  const df_status st = df_chat_template_parse(text, n, &t, err);
  df_chat_template_free(t);
  if (st != DF_OK) df_error_prefix(err, "\"%s\"", path);
  return st;
}

df_status df_template_from_opts(const df_opts *o, char **out, df_error *err) {
  const char *path = df_opt_text(o, OPT_CHAT_TEMPLATE_FILE, NULL);
  *out = NULL;
  if (!path) return DF_OK;
  df_buf b;
  df_buf_init(&b, DF_TEXT_MAX);
  df_status st = df_text_read(path, &b, err);
  if (st == DF_OK) st = df_text_check(b.data ? b.data : "", b.len, path, err);
  if (st == DF_OK) st = df_buf_puts(&b, "", err); /* never NULL, even for an empty file */
  if (st == DF_OK) st = check_template(b.data, b.len, path, err);
  if (st == DF_OK) *out = df_buf_take(&b);
  df_buf_release(&b);
  return st;
}
