/* The small verbs: version, help, completion, man. */
#include <string.h>
#include <unistd.h>

#include "base/cpu.h"
#include "base/size.h"
#include "cli/verbs.h"
#include "device/cuda/cuda_device.h"
#include "dflash/dflash.h"
#include "format/json.h"

static const char *compiler(void) {
#if defined(__clang__)
  return "clang " __clang_version__;
#elif defined(__GNUC__)
  return "gcc " __VERSION__;
#else
  return "an unknown compiler";
#endif
}

static void version_text(void) {
  printf("dflash %s\nbuilt with %s\nkernels:", df_version(), compiler());
  for (int t = DF_TIER_REF; t < DF_TIER_COUNT; t++) {
    if (df_cpu_tier_built((df_cpu_tier)t)) printf(" %s", df_cpu_tier_name((df_cpu_tier)t));
  }
  printf("; in use here: %s\ncuda: %s\n", df_cpu_tier_name(df_cpu_best_tier()),
         df_cuda_built_for() ? df_cuda_built_for() : "not built");
}

static void cpu_text(void) {
  char brand[80], have[160];
  df_cpu_brand(brand, sizeof brand);
  df_cpu_features_text(have, sizeof have);
  printf("processor  %s\nusable     %u processor%s\n", brand, df_cpu_count(), df_cpu_count() == 1 ? "" : "s");
  printf("features   %s\n", have[0] ? have : "(none that matter here)");
  for (int t = DF_TIER_REF; t < DF_TIER_COUNT; t++) {
    df_cpu_tier best = df_cpu_best_tier();
    printf("%-11s%-7s %s\n", t == DF_TIER_REF ? "kernels" : "", df_cpu_tier_name((df_cpu_tier)t),
           (int)best == t                     ? "in use unless --cpu says otherwise"
           : df_cpu_tier_fits((df_cpu_tier)t) ? "fits"
                                              : "needs another processor");
  }
}

static int version_json(df_cli *cli) {
  df_buf b;
  df_error err;
  df_json_out w;
  char brand[80];
  df_cpu_brand(brand, sizeof brand);
  df_buf_init(&b, 0);
  df_json_out_begin(&w, &b, &err);
  df_json_out_object(&w);
  df_json_out_key(&w, "version"), df_json_out_cstr(&w, df_version());
  df_json_out_key(&w, "compiler"), df_json_out_cstr(&w, compiler());
  df_json_out_key(&w, "cpu"), df_json_out_cstr(&w, brand);
  df_json_out_key(&w, "processors"), df_json_out_u64(&w, df_cpu_count());
  df_json_out_key(&w, "tier"), df_json_out_cstr(&w, df_cpu_tier_name(df_cpu_best_tier()));
  df_json_put_cstr(&w, "cuda", df_cuda_built_for());
  df_json_out_key(&w, "features"), df_json_out_array(&w);
  const uint32_t have = df_cpu_features();
  for (uint32_t i = 0; df_cpu_feature_name(i); i++) {
    if (have >> i & 1) df_json_out_cstr(&w, df_cpu_feature_name(i));
  }
  df_json_out_close(&w);
  df_json_out_close(&w);
  df_status st = df_json_out_end(&w);
  if (st == DF_OK) puts(b.data);
  df_buf_release(&b);
  return st == DF_OK ? DF_EXIT_OK : df_cli_report(cli, &err);
}

int df_verb_version(df_cli *cli) {
  if (df_opt_on(&cli->opts, OPT_JSON, false)) return version_json(cli);
  if (df_opt_on(&cli->opts, OPT_CPU_INFO, false))
    cpu_text();
  else
    version_text();
  return DF_EXIT_OK;
}

int df_verb_help(df_cli *cli) {
  const df_verb *v = NULL;
  if (cli->opts.n_pos) {
    v = df_verb_find(cli->opts.pos[0]);
    if (!v) {
      df_error err;
      (void)DF_FAIL(&err, DF_ERR_ARGUMENT, "unknown verb \"%.60s\"", cli->opts.pos[0]);
      df_error_hint(&err, "\"dflash help\" lists the verbs");
      return df_cli_report(cli, &err);
    }
  }
  df_help_print(stdout, v ? v->bit : 0, NULL, df_term_columns(STDOUT_FILENO), df_term_out(&cli->term, DF_STYLE_BOLD),
                df_term_out(&cli->term, DF_STYLE_RESET));
  return DF_EXIT_OK;
}

int df_verb_completion(df_cli *cli) {
  df_error err;
  if (cli->opts.n_pos == 1 && df_completion_print(stdout, cli->opts.pos[0])) return DF_EXIT_OK;
  if (cli->opts.n_pos)
    (void)DF_FAIL(&err, DF_ERR_ARGUMENT, "no completion for the shell \"%.60s\"", cli->opts.pos[0]);
  else
    (void)DF_FAIL(&err, DF_ERR_ARGUMENT, "no shell given");
  df_error_hint(&err, "one of bash, zsh, fish; for example: source <(dflash completion bash)");
  return df_cli_report(cli, &err);
}

int df_verb_man(df_cli *cli) {
  (void)cli;
  df_manpage_print(stdout);
  return DF_EXIT_OK;
}
