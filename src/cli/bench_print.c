/* The report of dflash bench as tables, JSON and a plot. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/cpu.h"
#include "base/size.h"
#include "cli/bench_report.h"
#include "cli/cli_stats.h"
#include "format/json.h"

const char *df_bench_mode_name(int32_t width, char *buf, size_t cap) {
  if (width == 0) return "plain";
  if (width < 0) return "auto";
  (void)snprintf(buf, cap, width == 1 ? "%d row" : "%d rows", width);
  return buf;
}

static const char *fmt(char *buf, size_t cap, const char *f, double v) {
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
  (void)snprintf(buf, cap, f, v);
#pragma GCC diagnostic pop
  return buf;
}

static void print_widths(const df_bench_report *r, const df_cli *cli) {
  const char *const head[] = {"rows",     "verify ms",    "best",    "x one row",
                              "draft ms", "cycle cost c", "peer ms", "peer x"};
  df_table t;
  df_table_init(&t, r->peer ? 8 : r->l->draft ? 6 : 4, head, "rrrrrrrr");
  const double one = r->width[0].verify.median, peer_one = r->width[0].peer.median;
  for (uint32_t i = 0; i < r->n_widths; i++) {
    const df_bench_width *w = &r->width[i];
    char b[8][32];
    const bool drafts = r->l->draft && w->rows > 1;
    (void)snprintf(b[0], 32, "%u", w->rows);
    df_table_add(&t, b[0], fmt(b[1], 32, "%.2f", w->verify.median), fmt(b[2], 32, "%.2f", w->verify.min),
                 fmt(b[3], 32, "%.2f", w->verify.median / one), drafts ? fmt(b[4], 32, "%.2f", w->draft.median) : "",
                 drafts ? fmt(b[5], 32, "%.2f", (w->draft.median + w->verify.median) / one) : "",
                 w->n_peer ? fmt(b[6], 32, "%.2f", w->peer.median) : "",
                 w->n_peer ? fmt(b[7], 32, "%.2f", w->peer.median / peer_one) : "");
  }
  df_table_print(&t, stdout, df_term_columns(STDOUT_FILENO), df_term_out(&cli->term, DF_STYLE_BOLD),
                 df_term_out(&cli->term, DF_STYLE_RESET));
  df_table_release(&t);
}

static void print_set(const df_bench_set *s, const df_cli *cli) {
  const char *const head[] = {"mode",         "tok/s",         "best",    "x plain",
                              "worst prompt", "accept length", "drafted", "accepted"};
  df_table t;
  printf("\n%s%s%s: %u prompts, texts %s\n", df_term_out(&cli->term, DF_STYLE_BOLD), s->name,
         df_term_out(&cli->term, DF_STYLE_RESET), s->n, s->identical ? "identical in every mode" : "DIFFER");
  df_table_init(&t, 8, head, "lrrrrrrr");
  for (uint32_t i = 0; i < s->n_modes; i++) {
    const df_bench_mode *m = &s->mode[i];
    char b[8][32];
    df_table_add(&t, df_bench_mode_name(m->width, b[0], 32), fmt(b[1], 32, "%.1f", m->spread.median),
                 fmt(b[2], 32, "%.1f", m->spread.max),
                 fmt(b[3], 32, "%.2f", m->spread.median / s->mode[0].spread.median),
                 fmt(b[4], 32, "%.2f", m->worst_ratio), fmt(b[5], 32, "%.2f", df_stats_accept_length(&m->sum)),
                 fmt(b[6], 32, "%.0f", m->sum.drafted), fmt(b[7], 32, "%.0f", m->sum.accepted));
  }
  df_table_print(&t, stdout, df_term_columns(STDOUT_FILENO), df_term_out(&cli->term, DF_STYLE_DIM),
                 df_term_out(&cli->term, DF_STYLE_RESET));
  df_table_release(&t);
}

void df_bench_print(const df_bench_report *r, const df_cli *cli) {
  char brand[64];
  df_cpu_brand(brand, sizeof brand);
  const df_bench_width *one = &r->width[0];
  char machine[128];
  df_machine_text(&r->l->info, machine, sizeof machine);
  printf("%s, %s; %s; KV depth %u, ", brand, machine, r->l->info.name, r->depth);
  if (r->n_seqs > 1) printf("%u sequences, rows of each, ", r->n_seqs);
  printf("%u repetitions, medians\n", r->reps);
  printf("decode   %8.1f tok/s  (%.2f ms, best %.2f)\n", r->n_seqs * 1e3 / one->verify.median, one->verify.median,
         one->verify.min);
  if (r->n_prefill)
    printf("prefill  %8.1f tok/s  (%u tokens in %.1f ms, best %.1f)\n", r->prefill_n * 1e3 / r->prefill.median,
           r->prefill_n, r->prefill.median, r->prefill.min);
  if (r->plain.step_us > 0)
    printf("host work of a step: plain %.1f us of %.1f (%.1f passes, %.1f waits)", r->plain.host_us, r->plain.step_us,
           r->plain.passes, r->plain.waits);
  if (r->drafted.step_us > 0)
    printf(", drafted %.1f us of %.1f (%.1f passes, %.1f waits)", r->drafted.host_us, r->drafted.step_us,
           r->drafted.passes, r->drafted.waits);
  if (r->plain.step_us > 0) printf("\n");
  printf("\n");
  print_widths(r, cli);
  for (uint32_t i = 0; i < r->n_sets; i++) print_set(r->set[i], cli);
  if (r->others >= 0) printf("\nother processes took %.1f %% of the machine\n", 100 * r->others);
  if (r->noisy)
    printf("%sthis run was noisy: quote ratios, or repeat it on an idle machine%s\n",
           df_term_out(&cli->term, DF_STYLE_YELLOW), df_term_out(&cli->term, DF_STYLE_RESET));
}

static void put_spread(df_json_out *w, const char *key, const df_spread *s) {
  df_json_out_key(w, key), df_json_out_object(w);
  df_json_out_key(w, "median"), df_json_out_f64(w, s->median);
  df_json_out_key(w, "min"), df_json_out_f64(w, s->min);
  df_json_out_key(w, "max"), df_json_out_f64(w, s->max);
  df_json_out_close(w);
}

static void put_steps(df_json_out *w, const char *key, const df_bench_steps *s) {
  if (s->step_us <= 0) return;
  df_json_out_key(w, key), df_json_out_object(w);
  df_json_out_key(w, "step_us"), df_json_out_f64(w, s->step_us);
  df_json_out_key(w, "host_us"), df_json_out_f64(w, s->host_us);
  df_json_out_key(w, "passes"), df_json_out_f64(w, s->passes);
  df_json_out_key(w, "waits"), df_json_out_f64(w, s->waits);
  df_json_out_close(w);
}

static void put_mode(df_json_out *w, const df_bench_set *s, const df_bench_mode *m) {
  char name[32];
  df_json_out_object(w);
  df_json_out_key(w, "mode"), df_json_out_cstr(w, df_bench_mode_name(m->width, name, sizeof name));
  put_spread(w, "tokens_per_second", &m->spread);
  df_json_out_key(w, "ratio_to_plain"), df_json_out_f64(w, m->spread.median / s->mode[0].spread.median);
  df_json_out_key(w, "worst_prompt_ratio"), df_json_out_f64(w, m->worst_ratio);
  df_json_out_key(w, "accept_length"), df_json_out_f64(w, df_stats_accept_length(&m->sum));
  df_json_out_key(w, "draft_n"), df_json_out_u64(w, m->sum.drafted);
  df_json_out_key(w, "draft_n_accepted"), df_json_out_u64(w, m->sum.accepted);
  df_json_out_key(w, "verify_n"), df_json_out_u64(w, m->sum.verify_steps);
  df_json_out_key(w, "accepted_per_pos"), df_json_out_array(w);
  for (uint32_t j = 0; j < DF_MAX_WIDTH - 1; j++)
    df_json_out_f64(w, m->sum.drafted_at[j] ? (double)m->sum.accepted_at[j] / m->sum.drafted_at[j] : 0);
  df_json_out_close(w);
  df_json_out_close(w);
}

df_status df_bench_json(const df_bench_report *r, const df_cli *cli, df_buf *out, df_error *err) {
  char brand[64];
  df_json_out w;
  df_cpu_brand(brand, sizeof brand);
  df_json_out_begin(&w, out, err);
  df_json_out_object(&w);
  df_json_out_key(&w, "version"), df_json_out_cstr(&w, df_version());
  df_json_out_key(&w, "command"), df_json_out_array(&w);
  for (int i = 0; i < cli->opts.argc; i++) df_json_out_cstr(&w, cli->opts.argv[i]);
  df_json_out_close(&w);
  df_json_out_key(&w, "cpu_info"), df_json_out_cstr(&w, brand);
  df_json_out_key(&w, "isa"), df_json_out_cstr(&w, r->l->info.cpu_tier);
  df_json_put_cstr(&w, "device", r->l->info.device);
  df_json_put_cstr(&w, "card", r->l->info.card);
  df_json_out_key(&w, "n_threads"), df_json_out_u64(&w, r->l->info.n_threads);
  df_json_out_key(&w, "model"), df_json_out_cstr(&w, r->l->model_path);
  if (r->l->draft) df_json_out_key(&w, "draft"), df_json_out_cstr(&w, r->l->draft_path);
  df_json_out_key(&w, "n_depth"), df_json_out_u64(&w, r->depth);
  df_json_put_u64(&w, "n_seqs", r->n_seqs);
  df_json_out_key(&w, "repetitions"), df_json_out_u64(&w, r->reps);
  df_json_out_key(&w, "others_share"), df_json_out_f64(&w, r->others);
  df_json_out_key(&w, "noisy"), df_json_out_bool(&w, r->noisy);
  put_steps(&w, "host_plain", &r->plain);
  put_steps(&w, "host_drafted", &r->drafted);
  if (r->n_prefill)
    put_spread(&w, "prefill_ms", &r->prefill), df_json_out_key(&w, "prefill_n"), df_json_out_u64(&w, r->prefill_n);
  df_json_out_key(&w, "widths"), df_json_out_array(&w);
  for (uint32_t i = 0; i < r->n_widths; i++) {
    df_json_out_object(&w);
    df_json_out_key(&w, "rows"), df_json_out_u64(&w, r->width[i].rows);
    put_spread(&w, "verify_ms", &r->width[i].verify);
    if (r->l->draft && r->width[i].rows > 1) put_spread(&w, "draft_ms", &r->width[i].draft);
    if (r->width[i].n_peer) put_spread(&w, "peer_ms", &r->width[i].peer);
    df_json_out_close(&w);
  }
  df_json_out_close(&w);
  df_json_out_key(&w, "sets"), df_json_out_array(&w);
  for (uint32_t i = 0; i < r->n_sets; i++) {
    df_json_out_object(&w);
    df_json_out_key(&w, "set"), df_json_out_cstr(&w, r->set[i]->name);
    df_json_out_key(&w, "prompts"), df_json_out_u64(&w, r->set[i]->n);
    df_json_out_key(&w, "identical"), df_json_out_bool(&w, r->set[i]->identical);
    df_json_out_key(&w, "modes"), df_json_out_array(&w);
    for (uint32_t k = 0; k < r->set[i]->n_modes; k++) put_mode(&w, r->set[i], &r->set[i]->mode[k]);
    df_json_out_close(&w);
    df_json_out_close(&w);
  }
  df_json_out_close(&w);
  df_json_out_close(&w);
  return df_json_out_end(&w);
}

/* ---- plot ----------------------------------------------------------------------------------------------- */

enum { PLOT_W = 420, PLOT_H = 260, LEFT = 56, TOP = 36 };
static const char *const k_colours[] = {"#1b6ca8", "#d1495b", "#3a7d44", "#8e5572", "#c77d0a", "#555555"};

static df_status text(df_buf *b, double x, double y, const char *anchor, const char *s, df_error *err) {
  return df_buf_printf(b, err, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">%s</text>\n", x, y, anchor, s);
}

static df_status frame(df_buf *b, double x0, const char *title, double top, df_error *err) {
  char label[32];
  DF_TRY(df_buf_printf(b, err, "<rect x=\"%.0f\" y=\"%d\" width=\"%d\" height=\"%d\" fill=\"none\" stroke=\"#999\"/>\n",
                       x0, TOP, PLOT_W, PLOT_H));
  DF_TRY(text(b, x0 + PLOT_W / 2.0, TOP - 12, "middle", title, err));
  for (int i = 0; i <= 4; i++) {
    const double y = TOP + PLOT_H - PLOT_H * i / 4.0;
    (void)snprintf(label, sizeof label, "%.4g", top * i / 4);
    DF_TRY(df_buf_printf(b, err, "<line x1=\"%.0f\" y1=\"%.1f\" x2=\"%.0f\" y2=\"%.1f\" stroke=\"#eee\"/>\n", x0, y,
                         x0 + PLOT_W, y));
    DF_TRY(text(b, x0 - 6, y + 4, "end", label, err));
  }
  return DF_OK;
}

static double x_of(double x0, uint32_t width) { return x0 + PLOT_W * (width - 0.5) / DF_MAX_WIDTH; }

static df_status speed_line(df_buf *b, const df_bench_set *s, const char *colour, double top, df_error *err) {
  DF_TRY(df_buf_printf(b, err, "<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"2\" points=\"", colour));
  for (uint32_t i = 0; i < s->n_modes; i++) {
    const df_bench_mode *m = &s->mode[i];
    if (m->width < 0) continue;
    DF_TRY(df_buf_printf(b, err, "%.1f,%.1f ", x_of(LEFT, m->width ? (uint32_t)m->width : 1),
                         TOP + PLOT_H - PLOT_H * m->spread.median / top));
  }
  DF_TRY(df_buf_puts(b, "\"/>\n", err));
  for (uint32_t i = 0; i < s->n_modes; i++) {
    if (s->mode[i].width >= 0) continue;
    const double y = TOP + PLOT_H - PLOT_H * s->mode[i].spread.median / top;
    DF_TRY(df_buf_printf(b, err,
                         "<line x1=\"%d\" y1=\"%.1f\" x2=\"%d\" y2=\"%.1f\" stroke=\"%s\" stroke-dasharray=\"5 4\"/>\n",
                         LEFT, y, LEFT + PLOT_W, y, colour));
  }
  return DF_OK;
}

static df_status accept_line(df_buf *b, const df_bench_set *s, double x0, const char *colour, df_error *err) {
  const df_bench_mode *widest = &s->mode[s->n_modes - 1];
  for (uint32_t i = 0; i < s->n_modes; i++)
    if (s->mode[i].width > widest->width) widest = &s->mode[i];
  DF_TRY(df_buf_printf(b, err, "<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"2\" points=\"", colour));
  for (uint32_t j = 0; j < DF_MAX_WIDTH - 1 && widest->sum.drafted_at[j]; j++) {
    const double share = (double)widest->sum.accepted_at[j] / widest->sum.drafted_at[j];
    DF_TRY(df_buf_printf(b, err, "%.1f,%.1f ", x_of(x0, j + 1), TOP + PLOT_H - PLOT_H * share));
  }
  return df_buf_puts(b, "\"/>\n", err);
}

df_status df_bench_svg(const df_bench_report *r, df_buf *b, df_error *err) {
  double top = 1;
  for (uint32_t i = 0; i < r->n_sets; i++)
    for (uint32_t k = 0; k < r->set[i]->n_modes; k++) top = DF_MAX(top, r->set[i]->mode[k].spread.median);
  top *= 1.1;
  const double x1 = LEFT + PLOT_W + 80;
  DF_TRY(df_buf_printf(b, err,
                       "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%d\" "
                       "font-family=\"sans-serif\" font-size=\"12\">\n"
                       "<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n",
                       x1 + PLOT_W + 20, TOP + PLOT_H + 60));
  DF_TRY(frame(b, LEFT, "tokens/s against rows of a verify block (dashed: automatic width)", top, err));
  DF_TRY(frame(b, x1, "share of steps that accepted position j", 1, err));
  for (uint32_t w = 1; w <= DF_MAX_WIDTH; w += w == 1 ? 1 : 2) {
    char label[16];
    (void)snprintf(label, sizeof label, "%u", w);
    DF_TRY(text(b, x_of(LEFT, w), TOP + PLOT_H + 16, "middle", label, err));
    DF_TRY(text(b, x_of(x1, w), TOP + PLOT_H + 16, "middle", label, err));
  }
  for (uint32_t i = 0; i < r->n_sets; i++) {
    const char *c = k_colours[i % DF_COUNT_OF(k_colours)];
    DF_TRY(speed_line(b, r->set[i], c, top, err));
    DF_TRY(accept_line(b, r->set[i], x1, c, err));
    DF_TRY(df_buf_printf(b, err, "<rect x=\"%u\" y=\"%d\" width=\"10\" height=\"10\" fill=\"%s\"/>\n", LEFT + 130 * i,
                         TOP + PLOT_H + 34, c));
    DF_TRY(text(b, LEFT + 130 * i + 16, TOP + PLOT_H + 43, "start", r->set[i]->name, err));
  }
  return df_buf_puts(b, "</svg>\n", err);
}
