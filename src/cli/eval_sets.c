/* dflash eval losslessness, accept, speed: the prompt sets of bench at every width. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/cpu.h"
#include "base/mem.h"
#include "base/size.h"
#include "cli/bench_report.h"
#include "cli/cli_attention.h"
#include "cli/cli_stats.h"
#include "cli/cli_text.h"
#include "cli/eval_cli.h"
#include "cli/interrupt.h"

/* Ids of one answer. */
typedef struct answer {
  int32_t *ids; /* owned */
  uint32_t n;
} answer;

/* How the texts of one set at one width compare with plain decoding. */
typedef struct verdict {
  uint32_t same;
  bool differs;
  uint32_t prompt, token; /* the first difference */
} verdict;

typedef struct sets_run {
  df_cli *cli;
  df_eval_sets_kind kind;
  df_loaded l;
  df_bench_report *r;                            /* sets, modes and their sums; owned */
  answer plain[DF_BENCH_SETS][DF_BENCH_PROMPTS]; /* of mode 0 */
  verdict verdict[DF_BENCH_SETS][DF_BENCH_MODES];
  uint32_t parallel;
  df_progress bar;
  uint64_t done;
  /* while a batch runs */
  uint32_t set, mode;
} sets_run;

/* ---- running -------------------------------------------------------------------------------------------- */

static df_status compare_answer(sets_run *s, const df_batch_answer *a, df_error *err) {
  answer *want = &s->plain[s->set][a->index];
  verdict *v = &s->verdict[s->set][s->mode];
  if (s->mode == 0) {
    want->ids = df_alloc((a->n_ids + 1) * sizeof *want->ids);
    if (!want->ids) return DF_OOM(err, "an answer", a->n_ids * sizeof *want->ids);
    memcpy(want->ids, a->ids, a->n_ids * sizeof *want->ids);
    want->n = a->n_ids;
  }
  uint32_t i = 0;
  while (i < want->n && i < a->n_ids && want->ids[i] == a->ids[i]) i++;
  if (i == want->n && i == a->n_ids) {
    v->same++;
  } else if (!v->differs || a->index < v->prompt) {
    v->differs = true;
    v->prompt = a->index;
    v->token = i;
  }
  return DF_OK;
}

static df_status on_answer(void *user, const df_batch_answer *a, df_error *err) {
  sets_run *s = user;
  df_stats_add(&s->r->set[s->set]->mode[s->mode].sum, a->stats);
  df_progress_update(&s->bar, ++s->done);
  return compare_answer(s, a, err);
}

/* One at a time: new tokens by decode time. Several: all new tokens by wall clock, prompts included. */
static double speed_of(const sets_run *s, const df_stats *sum, uint32_t n, double seconds) {
  if (s->parallel > 1) return seconds > 0 ? sum->new_tokens / seconds : 0;
  return sum->decode_ms > 0 ? (sum->new_tokens - n) * 1e3 / sum->decode_ms : 0;
}

static df_status run_set(sets_run *s, df_engine *e, df_error *err) {
  df_bench_set *set = s->r->set[s->set];
  df_bench_mode *m = &set->mode[s->mode];
  df_batch_prompt p[DF_BENCH_PROMPTS];
  df_batch_params bp = {.gen = df_generate_params_default(),
                        .parallel = s->parallel,
                        .no_prefix_cache = !df_opt_on(&s->cli->opts, OPT_PREFIX_CACHE, true),
                        .on_answer = on_answer,
                        .user = s};
  bp.gen.max_tokens = s->r->n_predict;
  bp.gen.cancel = &df_interrupted;
  for (uint32_t i = 0; i < set->n; i++) p[i] = (df_batch_prompt){set->prompt[i], set->n_prompt[i]};
  const uint64_t t0 = df_now_ns();
  DF_TRY(df_batch_run(e, p, set->n, &bp, err));
  const double v = speed_of(s, &m->sum, set->n, (double)(df_now_ns() - t0) / 1e9);
  m->speed[0] = v;
  m->n = 1;
  m->spread = (df_spread){v, v, v};
  return DF_OK;
}

static df_status run_mode(sets_run *s, const df_session_params *sp, df_error *err) {
  const int32_t width = s->r->set[0]->mode[s->mode].width;
  df_engine_params ep = {.session = *sp, .max_seqs = s->parallel};
  df_engine e;
  size_t most = 0;
  for (uint32_t i = 0; i < s->r->n_sets; i++)
    for (uint32_t k = 0; k < s->r->set[i]->n; k++) most = DF_MAX(most, s->r->set[i]->n_prompt[k]);
  if (!ep.session.n_ctx) ep.session.n_ctx = (uint32_t)((most + s->r->n_predict + DF_MAX_WIDTH + 63) / 64 * 64);
  ep.session.spec_draft_max = width > 0 ? width - 1 : -1;
  ep.kv_tokens = (s->parallel + 1) * ep.session.n_ctx;
  DF_TRY(df_engine_init(&e, s->l.model, width ? s->l.draft : NULL, &ep, err));
  df_status st = DF_OK;
  for (s->set = 0; s->set < s->r->n_sets && st == DF_OK; s->set++) st = run_set(s, &e, err);
  df_engine_release(&e);
  return st;
}

static df_status run_all(sets_run *s, df_error *err) {
  df_session_params sp;
  uint32_t sizes[DF_BATCH_SIZES_MAX];
  uint64_t total = 0;
  const uint32_t modes = s->r->set[0]->n_modes;
  DF_TRY(df_session_params_from_opts(&s->cli->opts, &sp, sizes, err));
  for (uint32_t i = 0; i < s->r->n_sets; i++) total += (uint64_t)s->r->set[i]->n * modes;
  df_progress_begin(&s->bar, &s->cli->term, "answers", total, 0, false);
  df_status st = DF_OK;
  for (s->mode = 0; s->mode < modes && st == DF_OK; s->mode++) st = run_mode(s, &sp, err);
  df_progress_end(&s->bar);
  for (uint32_t i = 0; i < s->r->n_sets; i++) {
    s->r->set[i]->identical = true;
    for (uint32_t k = 0; k < modes; k++) s->r->set[i]->identical &= !s->verdict[i][k].differs;
  }
  return st;
}

/* ---- showing -------------------------------------------------------------------------------------------- */

static const char *cell(const sets_run *s, uint32_t set, uint32_t mode, char *buf, size_t cap) {
  const df_bench_set *b = s->r->set[set];
  const df_bench_mode *m = &b->mode[mode];
  const verdict *v = &s->verdict[set][mode];
  if (s->kind == DF_SETS_SPEED)
    (void)snprintf(buf, cap, "%.1f (%.2fx)", m->spread.median, m->spread.median / b->mode[0].spread.median);
  else if (s->kind == DF_SETS_ACCEPT)
    (void)snprintf(buf, cap, m->sum.verify_steps ? "%.3f" : "-", df_stats_accept_length(&m->sum));
  else if (v->differs)
    (void)snprintf(buf, cap, "%u of %u: prompt %u token %u", v->same, b->n, v->prompt, v->token);
  else
    (void)snprintf(buf, cap, "%u of %u", v->same, b->n);
  return buf;
}

/* Sets down, widths across; the first width is plain decoding. */
static void print_table(const sets_run *s) {
  static const char *const k_title[] = {"texts equal to plain decoding", "accept length by rows of a verify block",
                                        "tokens a second (and against plain decoding)"};
  const char *head[DF_TABLE_COLS] = {"set", "prompts"};
  char names[DF_TABLE_COLS][32], b[DF_TABLE_COLS][64];
  const uint32_t modes = DF_MIN(s->r->set[0]->n_modes, (uint32_t)DF_TABLE_COLS - 2);
  df_table t;
  for (uint32_t k = 0; k < modes; k++)
    head[k + 2] = df_bench_mode_name(s->r->set[0]->mode[k].width, names[k], sizeof names[k]);
  printf("%s; %u tokens at most, %u at a time\n", k_title[s->kind], s->r->n_predict, s->parallel);
  df_table_init(&t, modes + 2, head, "lrrrrrrr");
  for (uint32_t i = 0; i < s->r->n_sets; i++) {
    for (uint32_t k = 0; k < DF_TABLE_COLS - 2; k++) b[k][0] = '\0';
    char n[16];
    (void)snprintf(n, sizeof n, "%u", s->r->set[i]->n);
    for (uint32_t k = 0; k < modes; k++) (void)cell(s, i, k, b[k], sizeof b[k]);
    df_table_add(&t, s->r->set[i]->name, n, b[0], b[1], b[2], b[3], b[4], b[5]);
  }
  df_table_print(&t, stdout, 0, df_term_out(&s->cli->term, DF_STYLE_BOLD), df_term_out(&s->cli->term, DF_STYLE_RESET));
  df_table_release(&t);
}

/* Acceptance by position at the widest block, for "accept". */
static void print_positions(const sets_run *s) {
  for (uint32_t i = 0; i < s->r->n_sets; i++) {
    const df_bench_set *b = s->r->set[i];
    const df_bench_mode *widest = &b->mode[0];
    for (uint32_t k = 0; k < b->n_modes; k++)
      if (b->mode[k].width > widest->width) widest = &b->mode[k];
    if (!widest->sum.drafted) continue;
    printf("\n%s, %d rows\n", b->name, widest->width);
    df_stats_bars(stdout, &widest->sum, df_term_columns(STDOUT_FILENO), df_term_out(&s->cli->term, DF_STYLE_CYAN),
                  df_term_out(&s->cli->term, DF_STYLE_RESET));
  }
}

static void put_mode(const sets_run *s, df_json_out *w, uint32_t set, uint32_t mode) {
  const df_bench_mode *m = &s->r->set[set]->mode[mode];
  const verdict *v = &s->verdict[set][mode];
  char name[32];
  df_json_out_object(w);
  df_json_out_key(w, "mode"), df_json_out_cstr(w, df_bench_mode_name(m->width, name, sizeof name));
  df_json_out_key(w, "tokens_per_second"), df_json_out_f64(w, m->spread.median);
  df_json_out_key(w, "accept_length"), df_json_out_f64(w, df_stats_accept_length(&m->sum));
  df_json_out_key(w, "predicted_n"), df_json_out_u64(w, m->sum.new_tokens);
  df_json_out_key(w, "verify_n"), df_json_out_u64(w, m->sum.verify_steps);
  df_json_out_key(w, "accepted_per_pos"), df_json_out_array(w);
  for (uint32_t j = 0; j < DF_MAX_WIDTH && m->sum.drafted_at[j]; j++)
    df_json_out_f64(w, (double)m->sum.accepted_at[j] / m->sum.drafted_at[j]);
  df_json_out_close(w);
  df_json_out_key(w, "texts_equal_to_plain"), df_json_out_u64(w, v->same);
  df_json_out_key(w, "first_difference");
  if (v->differs) {
    df_json_out_object(w);
    df_json_out_key(w, "prompt"), df_json_out_u64(w, v->prompt);
    df_json_out_key(w, "token"), df_json_out_u64(w, v->token);
    df_json_out_close(w);
  } else {
    df_json_out_null(w);
  }
  df_json_out_close(w);
}

static df_status put_json(const sets_run *s, df_buf *out, df_error *err) {
  static const char *const k_kind[] = {"losslessness", "accept", "speed"};
  char brand[64];
  df_buf command;
  df_json_out w;
  df_buf_init(&command, 0);
  DF_TRY(df_eval_command(s->cli, &command, err));
  df_cpu_brand(brand, sizeof brand);
  df_json_out_begin(&w, out, err);
  df_json_out_object(&w);
  df_json_out_key(&w, "kind"), df_json_out_cstr(&w, k_kind[s->kind]);
  df_json_out_key(&w, "command"), df_json_out_cstr(&w, command.data);
  df_json_out_key(&w, "version"), df_json_out_cstr(&w, df_version());
  df_json_out_key(&w, "cpu_info"), df_json_out_cstr(&w, brand);
  df_json_out_key(&w, "isa"), df_json_out_cstr(&w, s->l.info.cpu_tier);
  df_json_out_key(&w, "n_threads"), df_json_out_u64(&w, s->l.info.n_threads);
  df_json_out_key(&w, "model"), df_json_out_cstr(&w, s->l.model_path);
  if (s->l.draft) df_json_out_key(&w, "draft"), df_json_out_cstr(&w, s->l.draft_path);
  df_json_out_key(&w, "max_tokens"), df_json_out_u64(&w, s->r->n_predict);
  df_json_out_key(&w, "parallel"), df_json_out_u64(&w, s->parallel);
  df_json_out_key(&w, "sets"), df_json_out_array(&w);
  for (uint32_t i = 0; i < s->r->n_sets; i++) {
    df_json_out_object(&w);
    df_json_out_key(&w, "set"), df_json_out_cstr(&w, s->r->set[i]->name);
    df_json_out_key(&w, "prompts"), df_json_out_u64(&w, s->r->set[i]->n);
    df_json_out_key(&w, "modes"), df_json_out_array(&w);
    for (uint32_t k = 0; k < s->r->set[i]->n_modes; k++) put_mode(s, &w, i, k);
    df_json_out_close(&w);
    df_json_out_close(&w);
  }
  df_json_out_close(&w);
  df_json_out_close(&w);
  df_buf_release(&command);
  return df_json_out_end(&w);
}

static df_status show(const sets_run *s, df_error *err) {
  const char *svg = df_opt_text(&s->cli->opts, OPT_BENCH_SVG, NULL);
  df_buf b;
  df_buf_init(&b, 0);
  df_status st = DF_OK;
  if (df_opt_on(&s->cli->opts, OPT_JSON, false)) {
    st = put_json(s, &b, err);
    if (st == DF_OK) puts(b.data);
  } else {
    print_table(s);
    if (s->kind == DF_SETS_ACCEPT) print_positions(s);
  }
  b.len = 0;
  if (st == DF_OK && svg) st = df_bench_svg(s->r, &b, err);
  if (st == DF_OK && svg) st = df_text_write(svg, b.data, b.len, err);
  df_buf_release(&b);
  return st;
}

/* ---- set-up --------------------------------------------------------------------------------------------- */

static df_status add_modes(const sets_run *s, df_bench_set *set, df_error *err) {
  const char *widths = df_opt_text(&s->cli->opts, OPT_BENCH_WIDTHS, "2,4,8,16");
  set->mode[set->n_modes++].width = 0;
  if (!s->l.draft) return DF_OK;
  for (const char *p = widths; *p;) {
    char *end;
    const long w = strtol(p, &end, 10);
    if (end == p || w < 2 || w > (long)s->l.draft_info.block_size || (*end && *end != ',') || set->n_modes > 4)
      return DF_FAIL(err, DF_ERR_ARGUMENT, "\"%.40s\" is no list of up to 4 widths from 2 to %u", widths,
                     s->l.draft_info.block_size);
    set->mode[set->n_modes++].width = (int32_t)w;
    p = *end ? end + 1 : end;
  }
  set->mode[set->n_modes++].width = -1;
  return DF_OK;
}

static df_status load_sets(sets_run *s, const char *dir, char *names, df_error *err) {
  const df_opts *o = &s->cli->opts;
  const int64_t limit = df_opt_int(o, OPT_BENCH_LIMIT, 6);
  char *save = NULL;
  if (limit > DF_BENCH_PROMPTS)
    return DF_FAIL(err, DF_ERR_ARGUMENT, "--limit is more than the %d prompts of a set", DF_BENCH_PROMPTS);
  for (char *name = strtok_r(names, ",", &save); name; name = strtok_r(NULL, ",", &save)) {
    if (s->r->n_sets == DF_BENCH_SETS) return DF_FAIL(err, DF_ERR_ARGUMENT, "more than %d prompt sets", DF_BENCH_SETS);
    df_bench_set *set = df_calloc(1, sizeof *set);
    if (!set) return DF_OOM(err, "a prompt set", sizeof *set);
    s->r->set[s->r->n_sets++] = set;
    DF_TRY(df_bench_set_load(set, s->l.model, dir, name, (uint32_t)limit, err));
    DF_TRY(add_modes(s, set, err));
  }
  return s->r->n_sets ? DF_OK : DF_FAIL(err, DF_ERR_ARGUMENT, "no prompt set is named");
}

static void release(sets_run *s) {
  for (uint32_t i = 0; i < DF_BENCH_SETS; i++)
    for (uint32_t k = 0; k < DF_BENCH_PROMPTS; k++) df_free(s->plain[i][k].ids);
  for (uint32_t i = 0; s->r && i < s->r->n_sets; i++) {
    df_bench_set_release(s->r->set[i]);
    df_free(s->r->set[i]);
  }
  df_free(s->r);
  df_loaded_close(&s->l);
}

df_status df_eval_sets(df_cli *cli, df_eval_sets_kind kind, bool *same, df_error *err) {
  char *names = df_strdup(df_opt_text(&cli->opts, OPT_BENCH_SETS, "gsm8k-chat,gsm8k-5shot,chat,code"));
  sets_run *s = df_calloc(1, sizeof *s);
  char *dir = NULL;
  df_status st = DF_OK;
  if (s) *s = (sets_run){.cli = cli, .kind = kind, .r = df_calloc(1, sizeof *s->r)};
  if (!names || !s || !s->r) {
    st = DF_OOM(err, "a run", sizeof *s);
  } else {
    s->parallel = (uint32_t)df_opt_int(&cli->opts, OPT_PARALLEL, 1);
    s->r->l = &s->l;
    s->r->n_predict = (uint32_t)df_opt_int(&cli->opts, OPT_PREDICT, 128);
    st = df_bench_prompts_find(&cli->opts, &dir, err);
    if (st == DF_OK) st = df_loaded_open_for(&s->l, cli, true, s->parallel + 1, 0, err);
    if (st == DF_OK) st = load_sets(s, dir, names, err);
    if (st == DF_OK) st = run_all(s, err);
    if (st == DF_OK) st = show(s, err);
    for (uint32_t i = 0; st == DF_OK && i < s->r->n_sets; i++) *same &= s->r->set[i]->identical;
  }
  if (s) release(s);
  df_free(s);
  df_free(dir);
  df_free(names);
  return st;
}
