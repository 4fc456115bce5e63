/* The report of "dflash doctor" for people. */
#include <string.h>

#include "base/cpu.h"
#include "cli/doctor_report.h"
#include "cli/inspect.h"

const char *df_tail_text(df_tail t) {
  static const char *const k_text[] = {
      [DF_TAIL_NONE] = "none", [DF_TAIL_LOGITS] = "logits", [DF_TAIL_ARGMAX] = "argmax", [DF_TAIL_DRAFTED] = "drafted"};
  return k_text[t];
}

static void title(const df_cli *cli, const char *text) {
  printf("\n%s%s%s\n", df_term_out(&cli->term, DF_STYLE_BOLD), text, df_term_out(&cli->term, DF_STYLE_RESET));
}

static void print_table(df_table *t, const df_cli *cli) {
  df_table_print(t, stdout, 0, df_term_out(&cli->term, DF_STYLE_DIM), df_term_out(&cli->term, DF_STYLE_RESET));
  df_table_release(t);
}

static void print_device(const df_doctor *d) {
  const df_device_info *i = &d->device;
  char c[2][32];
  if (!d->m) return;
  if (!i->card[0]) {
    printf("device      %s\n", i->name);
    return;
  }
  df_format_bytes(c[0], sizeof c[0], i->memory_total);
  df_format_bytes(c[1], sizeof c[1], i->memory_free);
  printf("device      %s: %s, compute capability %u.%u, %s, %s of it free; driver for CUDA %u.%u, built with %u.%u\n",
         i->name, i->card, i->major, i->minor, c[0], c[1], i->driver / 1000, i->driver % 1000 / 10, i->runtime / 1000,
         i->runtime % 1000 / 10);
}

static void print_models(const df_doctor *d) {
  char brand[80], features[96], count[24];
  df_cpu_brand(brand, sizeof brand);
  df_cpu_features_text(features, sizeof features);
  if (d->m) {
    df_model_info i = df_model_get_info(d->m);
    df_format_count(count, sizeof count, i.n_params);
    printf("model       %s: %s, %u layers, %s parameters\n", i.name, i.arch, i.n_layers, count);
    printf("kernels     %s, %u thread%s\n", i.cpu_tier, i.n_threads, i.n_threads == 1 ? "" : "s");
  }
  if (d->d) {
    df_draft_info i = df_draft_get_info(d->d);
    printf("draft       %u layers, block of %u rows, taps after layers", i.n_layers, i.block_size);
    for (uint32_t t = 0; t < i.n_taps; t++) printf("%s %u", t ? "," : "", i.taps[t]);
    putchar('\n');
  }
  print_device(d);
  printf("processor   %s, %u usable\nfeatures    %s\n", brand, df_cpu_count(), features[0] ? features : "none used");
}

static void print_routes(const df_doctor *d, const df_cli *cli) {
  title(cli, "Routing");
  for (int m = 0; m < DF_MODE_COUNT; m++) {
    const df_doctor_route *r = &d->route[m];
    printf("%-14s ", df_mode_name(r->mode));
    for (uint32_t i = 0; i < r->n; i++) printf("%s%s", i ? " > " : "", r->path[i]);
    puts(r->n ? "" : "(no draft)");
  }
  if (d->overlap)
    puts("with overlap, a batch of two or more requests runs as two halves on copies of the same backends");
  printf("verify mask    %s: %s (executor %s)\n", df_mask_layout_name(d->mask_layout), d->mask_reason,
         d->mask_executor);
  for (uint32_t i = 0; i < d->n_aliases; i++)
    printf("alias          --%s %s runs as %s on this device\n", d->alias[i].setting, d->alias[i].given,
           d->alias[i].leaf);
}

static void words_of_bits(char *out, size_t cap, uint32_t bits, const char *(*name)(unsigned bit)) {
  size_t n = 0;
  out[0] = '\0';
  for (unsigned i = 0; i < 32 && n < cap; i++) {
    if (bits & 1u << i) n += (size_t)snprintf(out + n, cap - n, "%s%s", n ? " " : "", name(i));
  }
}
static const char *mode_bit(unsigned i) { return df_mode_name((df_mode)i); }
static const char *layout_bit(unsigned i) { return df_mask_layout_name((df_mask_layout)i); }
static const char *kv_bit(unsigned i) { return i == DF_KV_F32 ? "f32" : "f16"; }
static const char *page_bit(unsigned i) { return i == 0 ? "1" : i == 4 ? "16" : i == 6 ? "64" : "?"; }

static void print_leaves(const df_doctor *d, const df_cli *cli) {
  static const char *const head[] = {"backend", "masks", "causal", "window", "rows", "pages", "KV", "runs"};
  df_table t;
  df_table_init(&t, 8, head, "llllrlll");
  for (uint32_t i = 0; i < d->n_leaves; i++) {
    const df_doctor_leaf *l = &d->leaf[i];
    char masks[32], rows[16] = "any", pages[32], kv[16], modes[96];
    words_of_bits(masks, sizeof masks, l->caps.mask_layouts & ~(1u << DF_MASK_NONE), layout_bit);
    words_of_bits(pages, sizeof pages, l->caps.page_sizes, page_bit);
    words_of_bits(kv, sizeof kv, l->caps.kv_types, kv_bit);
    words_of_bits(modes, sizeof modes, l->modes, mode_bit);
    if (l->caps.max_rows != UINT32_MAX) (void)snprintf(rows, sizeof rows, "%u", l->caps.max_rows);
    df_table_add(&t, l->label, l->caps.reads_mask ? masks : "reads none", l->caps.causal ? "yes" : "no",
                 l->caps.sliding_window ? "yes" : "no", rows, pages, kv, modes);
  }
  title(cli, "Backends");
  print_table(&t, cli);
  for (uint32_t i = 0; i < d->n_leaves; i++)
    if (d->leaf[i].caps.inexact)
      printf("%s rounds otherwise than this engine's own backends: texts may differ where two tokens are close\n",
             d->leaf[i].label);
}

static void print_graphs(const df_doctor *d, const df_cli *cli) {
  static const char *const head[] = {"program of", "phase", "batch", "rows", "tail", "executor", "mask", "bytes"};
  char c[3][32];
  title(cli, "Programs");
  if (!d->graphs) {
    puts("emitted anew for every step (--no-graph)");
    return;
  }
  printf("batch sizes  ");
  for (uint32_t i = 0; i < d->n_buckets; i++) printf("%s%u", i ? ", " : "", d->buckets[i]);
  printf("\nwidths       1%s", d->width > 1 ? " and " : "");
  if (d->width > 1) printf(d->auto_width ? "2 to %u, chosen step by step" : "%u", d->width);
  puts("\nrecorded at their first use, for a step these:");
  df_table t;
  df_table_init(&t, 8, head, "llrrlllr");
  for (uint32_t i = 0; i < d->n_graphs; i++) {
    const df_doctor_graph *g = &d->graph[i];
    (void)snprintf(c[0], sizeof c[0], "%u", g->key.seqs);
    (void)snprintf(c[1], sizeof c[1], "%u", g->key.rows);
    df_format_grouped(c[2], sizeof c[2], g->bytes);
    df_table_add(&t, g->of_draft ? "draft" : "target",
                 g->of_draft && g->key.mode == DF_MODE_EXTEND ? "inject" : df_mode_name(g->key.mode), c[0], c[1],
                 df_tail_text(g->key.tail), g->executor, df_mask_layout_name(g->key.mask), c[2]);
  }
  print_table(&t, cli);
  df_format_bytes(c[0], sizeof c[0], d->memory.programs);
  df_format_bytes(c[1], sizeof c[1], d->graph_limit);
  printf("together %s in %u programs, limit %s%s\n", c[0], d->n_graphs, d->graph_limit ? c[1] : "none",
         d->graphs_full ? "; passes beyond it run without one" : "");
}

static void memory_row(df_table *t, const char *what, uint64_t target, uint64_t draft, const char *note) {
  char c[2][32] = {"", ""};
  df_format_bytes(c[0], sizeof c[0], target);
  if (draft) df_format_bytes(c[1], sizeof c[1], draft);
  df_table_add(t, what, c[0], c[1], note);
}

/* What has been placed on a card: it is taken whole, not as conversations grow. */
static void print_card_memory(const df_doctor *d) {
  const uint64_t *m = d->device.mapped;
  char c[3][32];
  if (!d->device.card[0]) return;
  df_format_bytes(c[0], sizeof c[0], m[DF_MEM_WEIGHTS]);
  df_format_bytes(c[1], sizeof c[1], m[DF_MEM_SCRATCH]);
  df_format_bytes(c[2], sizeof c[2], m[DF_MEM_CONST] + m[DF_MEM_INPUT] + m[DF_MEM_BATCH]);
  printf("on %s: weights %s, KV pool, activations and parts %s, tables and inputs %s\n", d->device.name, c[0], c[1],
         c[2]);
}

static void print_memory(const df_doctor *d, const df_cli *cli) {
  static const char *const head[] = {"", "target", "draft", ""};
  const df_doctor_memory *m = &d->memory;
  char pool[96], total[32];
  df_table t;
  (void)snprintf(pool, sizeof pool, "%u pages of %u tokens, %s; used as conversations grow", d->pages, d->page_size,
                 d->kv_f32 ? "f32" : "f16");
  df_table_init(&t, 4, head, "lrrl");
  memory_row(&t, "weights", m->weights, m->draft_weights, "");
  memory_row(&t, "KV of a token", m->kv_token, m->draft_kv_token, "");
  memory_row(&t, "KV pool", m->kv_pool, m->draft_kv_pool, pool);
  memory_row(&t, "activations", m->workspace, m->draft_workspace, "logits and tapped rows included");
  if (m->mask) memory_row(&t, "verify masks", m->mask, 0, "");
  if (m->programs) memory_row(&t, "programs", m->programs, 0, "");
  title(cli, "Memory");
  printf("context %u, requests at a time %u\n", d->n_ctx, d->max_seqs);
  print_table(&t, cli);
  df_format_bytes(total, sizeof total,
                  m->weights + m->draft_weights + m->kv_pool + m->draft_kv_pool + m->workspace + m->draft_workspace +
                      m->mask + m->programs);
  printf("together at most %s\n", total);
  print_card_memory(d);
}

void df_doctor_text(const df_doctor *d, const df_cli *cli) {
  const df_term *term = &cli->term;
  print_models(d);
  if (d->has_plan) {
    print_routes(d, cli);
    print_leaves(d, cli);
    print_graphs(d, cli);
    print_memory(d, cli);
  }
  if (d->has_fit) {
    title(cli, "Draft");
    df_fit_text(&d->fit, cli);
  }
  title(cli, "Verdict");
  for (uint32_t i = 0; i < d->n_problems; i++) {
    const df_doctor_problem *p = &d->problem[i];
    printf("%srefused%s  %s%s%s%s\n", df_term_out(term, DF_STYLE_RED), df_term_out(term, DF_STYLE_RESET),
           p->setting[0] ? "--" : "", p->setting, p->setting[0] ? ": " : "", p->error.msg);
    if (p->error.hint[0]) printf("         hint: %s\n", p->error.hint);
  }
  if (d->n_problems && d->has_plan) puts("what is shown above leaves the refused settings at their defaults");
  if (!d->n_problems)
    printf("%sthis configuration is accepted%s\n", df_term_out(term, DF_STYLE_GREEN),
           df_term_out(term, DF_STYLE_RESET));
}
