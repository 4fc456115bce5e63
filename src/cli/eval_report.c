/* What dflash eval writes about a run. */
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "base/cpu.h"
#include "base/mem.h"
#include "cli/cli_stats.h"
#include "cli/eval_cli.h"

extern char **environ;

/* ---- command -------------------------------------------------------------------------------------------- */

static df_status put_word(df_buf *out, const char *s, df_error *err) {
  static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-./,:=+@%";
  if (out->len) DF_TRY(df_buf_puts(out, " ", err));
  if (s[0] && s[strspn(s, plain)] == '\0') return df_buf_puts(out, s, err);
  DF_TRY(df_buf_puts(out, "'", err));
  for (; *s; s++) DF_TRY(*s == '\'' ? df_buf_puts(out, "'\\''", err) : df_buf_put(out, s, 1, err));
  return df_buf_puts(out, "'", err);
}

df_status df_eval_command(const df_cli *cli, df_buf *out, df_error *err) {
  for (char **e = environ; *e; e++)
    if (strncmp(*e, "DF_", 3) == 0) DF_TRY(put_word(out, *e, err));
  for (int i = 0; i < cli->opts.argc; i++) DF_TRY(put_word(out, cli->opts.argv[i], err));
  return DF_OK;
}

/* ---- settings ------------------------------------------------------------------------------------------- */

/* Options that change speed or routing, never the text: a run keeps to one set of them all the same. */
static void put_options(df_json_out *w, const df_opts *o) {
  static const df_opt_id k_text[] = {OPT_ATTENTION_BACKEND,
                                     OPT_PREFILL_ATTENTION_BACKEND,
                                     OPT_DECODE_ATTENTION_BACKEND,
                                     OPT_VERIFY_ATTENTION_BACKEND,
                                     OPT_SPECULATIVE_ATTENTION_MODE,
                                     OPT_SPEC_TYPE,
                                     OPT_DRAFT_VOCAB,
                                     OPT_DRAFT_QUANT,
                                     OPT_PAGE_SIZE,
                                     OPT_CACHE_TYPE_K,
                                     OPT_CACHE_TYPE_V,
                                     OPT_THREADS,
                                     OPT_CPU};
  for (size_t i = 0; i < sizeof k_text / sizeof *k_text; i++)
    df_json_put_cstr(w, df_opt_table[k_text[i]].name, df_opt_text(o, k_text[i], NULL));
  df_json_out_key(w, "graph"), df_json_out_bool(w, df_opt_on(o, OPT_GRAPH, true));
  df_json_out_key(w, "two-batch-overlap"), df_json_out_bool(w, df_opt_on(o, OPT_TWO_BATCH_OVERLAP, false));
  df_json_out_key(w, "exact"), df_json_out_bool(w, df_opt_on(o, OPT_EXACT, false));
}

static void put_settings(df_json_out *w, const df_cli *cli, const df_eval_plan *p) {
  const df_opts *o = &cli->opts;
  int64_t width = df_opt_int(o, OPT_SPEC_WIDTH, df_opt_int(o, OPT_SPEC_DRAFT_N_MAX, -1) + 1);
  if (!p->draft_path) width = 1;
  df_json_out_key(w, "settings"), df_json_out_object(w);
  df_json_put_cstr(w, "task", "gsm8k");
  df_json_put_cstr(w, "format", p->chat ? "chat" : "lm-eval");
  df_json_put_u64(w, "shots", p->shots);
  df_json_put_cstr(w, "fewshot", p->how == DF_FEWSHOT_FIRST ? "first" : "sampled");
  df_json_put_u64(w, "seed", p->seed);
  df_json_put_u64(w, "max_tokens", p->max_tokens);
  df_json_put_cstr(w, "test_sha256", p->test_sha);
  df_json_put_cstr(w, "train_sha256", p->train_sha);
  df_json_put_cstr(w, "model_sha256", p->model_sha);
  df_json_put_cstr(w, "draft_sha256", p->draft_sha);
  df_json_put_u64(w, "width", (uint64_t)width); /* 0 = automatic */
  df_json_put_u64(w, "parallel", p->parallel);
  df_json_out_key(w, "prefix-cache"), df_json_out_bool(w, p->prefix_cache);
  put_options(w, o);
  df_json_out_key(w, "faults"), df_json_out_array(w);
  for (char **e = environ; *e; e++)
    if (strncmp(*e, "DF_TEST_MASK_", 13) == 0) df_json_out_cstr(w, *e);
  df_json_out_close(w);
  df_json_out_close(w);
}

df_status df_eval_header(const df_cli *cli, const df_eval_plan *p, df_buf *out, df_error *err) {
  char brand[64];
  df_buf command;
  df_json_out w;
  df_buf_init(&command, 0);
  DF_TRY(df_eval_command(cli, &command, err));
  df_cpu_brand(brand, sizeof brand);
  df_json_out_begin(&w, out, err);
  df_json_out_object(&w);
  df_json_put_cstr(&w, "command", command.data);
  df_json_put_cstr(&w, "version", df_version());
  df_json_put_cstr(&w, "cpu_info", brand);
  df_json_put_cstr(&w, "model", p->model_path);
  df_json_put_cstr(&w, "draft", p->draft_path);
  put_settings(&w, cli, p);
  df_json_out_close(&w);
  df_buf_release(&command);
  return df_json_out_end(&w);
}

/* ---- results -------------------------------------------------------------------------------------------- */

static df_status put_routing(df_json_out *w, const df_engine *e, df_error *err) {
  static const struct {
    df_mode mode;
    const char *name;
  } k[] = {{DF_MODE_EXTEND, "prefill"}, {DF_MODE_DECODE, "decode"}, {DF_MODE_TARGET_VERIFY, "verify"}};
  df_attn *outer = e->target.p.attn;
  df_json_out_key(w, "backends"), df_json_out_object(w);
  df_json_put_cstr(w, "outermost", outer->label);
  for (size_t i = 0; i < sizeof k / sizeof *k; i++) {
    df_attn *leaf;
    DF_TRY(df_attn_resolve(outer, k[i].mode, &leaf, NULL, err));
    df_json_put_cstr(w, k[i].name, leaf->label);
  }
  df_json_put_cstr(w, "verify_mask_captured", e->target.p.verify_mask == DF_MASK_NONE ? "none" : "full");
  df_json_put_cstr(w, "verify_mask_reason", e->mask.reason);
  df_json_out_close(w);
  return DF_OK;
}

df_status df_eval_summary(const df_loaded *l, const df_engine *e, const df_eval_tally *t, const char *header,
                          df_buf *out, df_error *err) {
  df_json_out w;
  df_json *root;
  DF_TRY(df_json_parse(header, strlen(header), &root, err));
  df_json_out_begin(&w, out, err);
  df_json_out_object(&w);
  df_json_iter it = df_json_begin(root);
  const char *key;
  size_t len;
  const df_json *v;
  while (df_json_next(&it, &key, &len, &v)) df_json_out_key(&w, key), df_json_out_value(&w, v);
  df_json_put_cstr(&w, "model_name", l->info.name);
  df_json_put_cstr(&w, "isa", l->info.cpu_tier);
  df_json_put_u64(&w, "n_threads", l->info.n_threads);
  df_json_put_u64(&w, "n_ctx", e->n_ctx);
  df_json_put_u64(&w, "block_width", e->width);
  df_json_out_key(&w, "automatic_width"), df_json_out_bool(&w, e->auto_width);
  const df_status st = put_routing(&w, e, err);
  df_json_free(root);
  if (st != DF_OK) return st;
  df_json_out_key(&w, "results"), df_json_out_object(&w);
  df_eval_tally_json(&w, t);
  df_json_out_close(&w);
  df_json_out_close(&w);
  return df_json_out_end(&w);
}

void df_eval_percent(char *out, size_t cap, uint32_t hits, uint32_t n) {
  (void)snprintf(out, cap, "%.1f ± %.1f", n ? 100.0 * hits / n : 0, 100 * df_share_stderr(hits, n));
}

/* The bars of a single generation take its counts. */
static df_stats stats_of(const df_eval_tally *t) {
  df_stats st = {0};
  for (uint32_t i = 0; i < DF_MAX_WIDTH; i++) {
    st.drafted_at[i] = (uint32_t)t->drafted_at[i];
    st.accepted_at[i] = (uint32_t)t->accepted_at[i];
  }
  st.drafted = (uint32_t)t->drafted;
  st.verify_steps = (uint32_t)t->verify_steps;
  return st;
}

void df_eval_print(const df_cli *cli, const df_eval_plan *p, const df_eval_tally *t) {
  char a[32], b[32];
  df_eval_percent(a, sizeof a, t->flexible, t->n);
  df_eval_percent(b, sizeof b, t->strict, t->n);
  printf("gsm8k, %u examples%s, %s prompts: %u questions\n", p->shots,
         p->shots == 0                ? ""
         : p->how == DF_FEWSHOT_FIRST ? " (the first ones)"
                                      : " (drawn anew)",
         p->chat ? "chat" : "lm-eval", t->n);
  printf("  exact match, flexible-extract  %s %%  (%u right, no number in %.1f %%)\n", a, t->flexible,
         t->n ? 100.0 * t->invalid_flexible / t->n : 0);
  printf("  exact match, strict-match      %s %%  (%u right, no number in %.1f %%)\n", b, t->strict,
         t->n ? 100.0 * t->invalid_strict / t->n : 0);
  printf("  answers cut at the limit       %u\n", t->ended_by_length);
  printf("  speed                          %.1f tok/s, %.2f s a question (%u at a time)\n", df_eval_tally_speed(t),
         t->n ? t->seconds / t->n : 0, p->parallel);
  printf("  prompt tokens                  %llu, of them %llu from the cache\n", (unsigned long long)t->prompt_tokens,
         (unsigned long long)t->cached_tokens);
  if (!t->verify_steps) return;
  printf("  accept length                  %.3f\n", df_eval_tally_accept_length(t));
  const df_stats st = stats_of(t);
  df_stats_bars(stdout, &st, df_term_columns(STDOUT_FILENO), df_term_out(&cli->term, DF_STYLE_CYAN),
                df_term_out(&cli->term, DF_STYLE_RESET));
}
