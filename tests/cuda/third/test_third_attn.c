/*
 * test_third_attn - the leaves flashinfer and xqa on a card, against the leaf naive on the processor.
 *
 *   test_third_attn [--quick] [--bench]
 *
 * Both kernels round queries, weights of the softmax and results to f16 (2^-11 each), and so do the parts of a context
 * that is shared out. With values in [-1, 1) a result may be off by a few of these: at most 2e-3, and in the mean
 * square by 1e-6 of the results. A single key too many or too few among a thousand shows as 1e-3 there.
 *
 * Ends with "N passed, N failed". Without a card: one line, exit status 77.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/size.h"
#include "cuda/third/third_rig.h"

#define MOST_WRONG 2e-3
#define MOST_NMSE 1e-6

enum { MOST_PRINTED = 40 };

typedef struct run_state {
  tr_rig rig;
  df_attn *leaf[2]; /* flashinfer, xqa; NULL: has no kernel of this shape */
  bool quick;
  uint32_t passed, failed, printed;
  double worst[2], nmse[2];
} run_state;

static const char *const k_leaf[] = {"flashinfer", "xqa"};

/* Lengths at and around the borders of pages (16), of the kernels' steps (64, 128, 256) and of nothing. */
static const uint32_t k_lengths[] = {0,   1,   14,  15,  16,  17,  47,  48,  63,  64,  65,
                                     127, 128, 129, 255, 256, 257, 300, 511, 512, 700, 900};

static void describe(const run_state *t, const tr_pass *p, const char *leaf, const char *how, char *out, size_t cap) {
  const tr_spec *s = &t->rig.s;
  int n = snprintf(out, cap, "%s %s, %u x %u heads of %u, page %u, %s%s", leaf, how, s->n_kv, s->group, s->head_dim,
                   s->page_size, df_mode_name(p->mode), p->causal ? "" : ", not causal");
  if (p->window) n += snprintf(out + n, cap - (size_t)n, ", window %u", p->window);
  if (p->layout) n += snprintf(out + n, cap - (size_t)n, ", %s mask", df_mask_layout_name(p->layout));
  n += snprintf(out + n, cap - (size_t)n, ", %u sequences (rows+before):", p->seqs);
  for (uint32_t i = 0; i < p->n; i++) n += snprintf(out + n, cap - (size_t)n, " %u+%u", p->rows[i], p->first[i]);
}

static void verdict(run_state *t, const tr_pass *p, uint32_t leaf, const char *how, const tr_error *e,
                    const char *why) {
  char what[400];
  const bool good =
      !why && e->worst <= MOST_WRONG && e->nmse <= MOST_NMSE && e->dark_is_zero && e->blocks_match && e->repeatable;
  if (!why) {
    t->worst[leaf] = fmax(t->worst[leaf], e->worst);
    t->nmse[leaf] = fmax(t->nmse[leaf], e->nmse);
  }
  t->passed += good;
  t->failed += !good;
  if (good || t->printed++ >= MOST_PRINTED) return;
  describe(t, p, k_leaf[leaf], how, what, sizeof what);
  if (why)
    printf("FAILED %s: %s\n", what, why);
  else
    printf("FAILED %s: off by %.2e, mean square %.2e%s%s%s\n", what, e->worst, e->nmse,
           e->dark_is_zero ? "" : ", a dark row is not zero", e->blocks_match ? "" : ", 8-bit blocks differ",
           e->repeatable ? "" : ", not repeatable");
}

static bool takes(const run_state *t, uint32_t leaf, const tr_pass *p) {
  if (!t->leaf[leaf]) return false;
  const df_attn_caps c = t->leaf[leaf]->ops->caps(t->leaf[leaf]);
  for (uint32_t i = 0; i < p->n; i++)
    if (p->rows[i] > c.max_rows) return false;
  return (!p->window || c.sliding_window) && (c.mask_layouts & 1u << p->layout);
}

/* ---- passes --------------------------------------------------------------------------------------------- */

/* Passes that one program serves: uniform ones of `width` rows, or ragged ones of up to `rows` rows in all. */
typedef struct family {
  df_mode mode;
  uint32_t n, seqs, width, rows;
  bool causal;
  uint32_t window;
  df_mask_layout layout;
} family;

static tr_pass pass_of(run_state *t, const family *f, uint32_t variant) {
  tr_pass p = {f->mode, f->n, f->seqs, {0}, {0}, f->causal, f->window, f->layout, UINT32_MAX};
  uint32_t left = f->rows;
  for (uint32_t i = 0; i < f->n; i++) {
    const uint32_t most = f->mode == DF_MODE_EXTEND ? DF_MIN(left - (f->n - 1 - i), f->n == 1 ? left : 64u) : f->width;
    p.rows[i] = f->mode != DF_MODE_EXTEND ? f->width : variant == 0 ? most : 1 + tr_below(&t->rig, most);
    left -= p.rows[i];
    p.first[i] = k_lengths[tr_below(&t->rig, DF_COUNT_OF(k_lengths))];
    while (p.first[i] + p.rows[i] > (p.rows[i] > 64 ? TR_POSITIONS / 2 : TR_POSITIONS)) p.first[i] /= 2;
  }
  if (f->layout != DF_MASK_NONE && variant > 0) p.dark = tr_below(&t->rig, f->width);
  return p;
}

static void run_one(run_state *t, const tr_pass *p, uint32_t leaf, tr_program *program, const char *how) {
  df_error err = {0};
  tr_error e;
  const df_status s = tr_run(&t->rig, t->leaf[leaf], p, program, &e, &err);
  verdict(t, p, leaf, how, &e, s == DF_OK ? NULL : err.msg);
}

/* Several passes, each as a program of its own and replayed from the one that the first was recorded with. */
static void run_family(run_state *t, const family *f) {
  tr_program recorded[2] = {{0}, {0}};
  const uint32_t variants = t->quick ? 2 : 4, rows = f->mode == DF_MODE_EXTEND ? f->rows : f->seqs * f->width;
  for (uint32_t v = 0; v < variants; v++) {
    const tr_pass p = pass_of(t, f, v);
    tr_fill(&t->rig, &p);
    for (uint32_t l = 0; l < 2; l++) {
      df_error err = {0};
      tr_program once;
      if (!takes(t, l, &p)) continue;
      df_status s = tr_emit(&t->rig, t->leaf[l], &p, t->rig.batch.n_rows, f->seqs, false, &once, &err);
      if (s == DF_OK) {
        run_one(t, &p, l, &once, "once");
        tr_program_free(&once);
        if (!recorded[l].p) s = tr_emit(&t->rig, t->leaf[l], &p, rows, f->seqs, true, &recorded[l], &err);
      }
      if (s != DF_OK)
        verdict(t, &p, l, "emit", NULL, err.msg);
      else
        run_one(t, &p, l, &recorded[l], v ? "replayed" : "recorded");
    }
  }
  for (uint32_t l = 0; l < 2; l++) tr_program_free(&recorded[l]);
}

static void run_plain(run_state *t) {
  static const uint32_t k_batch[][2] = {{1, 1}, {3, 4}, {8, 8}};
  static const uint32_t k_width[] = {2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};
  for (size_t b = 0; b < DF_COUNT_OF(k_batch); b++) {
    const uint32_t n = k_batch[b][0], seqs = k_batch[b][1];
    run_family(t, &(family){DF_MODE_DECODE, n, seqs, 1, 0, true, 0, DF_MASK_NONE});
    for (size_t w = 0; w < DF_COUNT_OF(k_width); w += t->quick || b ? 3 : 1)
      run_family(t, &(family){DF_MODE_TARGET_VERIFY, n, seqs, k_width[w], 0, true, 0, DF_MASK_NONE});
    run_family(t, &(family){DF_MODE_DRAFT_BLOCK, n, seqs, 16, 0, false, 0, DF_MASK_NONE});
    run_family(t, &(family){DF_MODE_DRAFT_BLOCK, n, seqs, 5, 0, false, 0, DF_MASK_NONE});
  }
  /* Prefill: one long prompt, several at once in a program for more of them, up to the rows that xqa takes. */
  run_family(t, &(family){DF_MODE_EXTEND, 1, 1, 0, 256, true, 0, DF_MASK_NONE});
  run_family(t, &(family){DF_MODE_EXTEND, 1, 1, 0, 64, true, 0, DF_MASK_NONE});
  run_family(t, &(family){DF_MODE_EXTEND, 1, 8, 0, 16, true, 0, DF_MASK_NONE});
  run_family(t, &(family){DF_MODE_EXTEND, 3, 8, 0, 64, true, 0, DF_MASK_NONE});
  run_family(t, &(family){DF_MODE_EXTEND, 6, 8, 0, 256, true, 0, DF_MASK_NONE});
}

static void run_masks_and_windows(run_state *t) {
  static const uint32_t k_window[] = {1, 2, 17, 64, 100, 300};
  for (int layout = DF_MASK_QLEN; layout <= DF_MASK_FULL; layout++)
    for (int causal = 0; causal < 2; causal++) {
      run_family(t, &(family){DF_MODE_TARGET_VERIFY, 1, 1, 8, 0, causal, 0, (df_mask_layout)layout});
      run_family(t, &(family){DF_MODE_TARGET_VERIFY, 3, 4, 16, 0, causal, 0, (df_mask_layout)layout});
      run_family(t, &(family){DF_MODE_TARGET_VERIFY, 8, 8, 3, 0, causal, 0, (df_mask_layout)layout});
    }
  for (size_t i = 0; i < DF_COUNT_OF(k_window); i++) {
    const uint32_t w = k_window[i];
    run_family(t, &(family){DF_MODE_DECODE, 3, 4, 1, 0, true, w, DF_MASK_NONE});
    run_family(t, &(family){DF_MODE_TARGET_VERIFY, 2, 2, 8, 0, true, w, DF_MASK_NONE});
    run_family(t, &(family){DF_MODE_EXTEND, 2, 4, 0, 128, true, w, DF_MASK_NONE});
    if (w >= 16) run_family(t, &(family){DF_MODE_TARGET_VERIFY, 2, 2, 8, 0, true, w, DF_MASK_FULL});
  }
}

/* ---- speed ---------------------------------------------------------------------------------------------- */

/* Microseconds of one layer's attention, conversions included, replayed. */
static void bench(run_state *t) {
  static const struct { uint32_t n, width; } k_pass[] = {{1, 1}, {1, 8}, {1, 16}, {8, 1}, {8, 8}};
  df_error err = {0};
  const tr_spec *s = &t->rig.s;
  for (size_t i = 0; i < DF_COUNT_OF(k_pass); i++) {
    const family f = {k_pass[i].width == 1 ? DF_MODE_DECODE : DF_MODE_TARGET_VERIFY,
                      k_pass[i].n,
                      k_pass[i].n,
                      k_pass[i].width,
                      0,
                      true,
                      0,
                      DF_MASK_NONE};
    tr_pass p = pass_of(t, &f, 0);
    for (uint32_t q = 0; q < p.n; q++) p.first[q] = TR_POSITIONS - p.rows[q];
    tr_fill(&t->rig, &p);
    printf("%u x %u heads of %u, %u x %2u rows behind %u positions:", s->n_kv, s->group, s->head_dim, f.n, f.width,
           TR_POSITIONS - f.width);
    for (uint32_t l = 0; l < 2; l++) {
      tr_program r;
      tr_error e;
      if (!t->leaf[l] || tr_emit(&t->rig, t->leaf[l], &p, f.n * f.width, f.n, true, &r, &err) != DF_OK) continue;
      if (tr_run(&t->rig, t->leaf[l], &p, &r, &e, &err) == DF_OK) {
        (void)tr_time(&t->rig, &r, 20);
        printf("  %s %.1f us", k_leaf[l], (double)tr_time(&t->rig, &r, 200) * 5);
      }
      tr_program_free(&r);
    }
    printf("\n");
  }
}

/* ---- shapes --------------------------------------------------------------------------------------------- */

static void run_shape(run_state *t, const tr_spec *s, const df_cuda_card *card, bool all, bool timed) {
  const uint32_t passed = t->passed, failed = t->failed;
  tr_init(&t->rig, s, card);
  df_status (*const create[])(const df_attn_shape *, df_attn **, df_error *) = {df_attn_flashinfer_create,
                                                                                df_attn_xqa_create};
  for (uint32_t l = 0; l < 2; l++) {
    df_error err = {0};
    t->leaf[l] = NULL;
    df_status st = create[l](&t->rig.shape, &t->leaf[l], &err);
    if (st == DF_OK) st = t->leaf[l]->ops->graph_init(t->leaf[l], TR_SEQS, TR_ROWS, &err);
    const bool wanted = l == 0 || s->page_size != 1;
    if (st == DF_OK || (!wanted && st == DF_ERR_UNSUPPORTED)) continue;
    printf("FAILED %s for %u x %u heads of %u: %s\n", k_leaf[l], s->n_kv, s->group, s->head_dim, err.msg);
    t->failed++;
    df_attn_free(t->leaf[l]);
    t->leaf[l] = NULL;
  }
  if (timed) {
    bench(t);
  } else {
    run_plain(t);
    if (all) run_masks_and_windows(t);
    printf("%u x %u heads of %3u, page %2u: %4u passed, %u failed\n", s->n_kv, s->group, s->head_dim, s->page_size,
           t->passed - passed, t->failed - failed);
  }
  for (uint32_t l = 0; l < 2; l++) df_attn_free(t->leaf[l]);
  tr_release(&t->rig);
}

int main(int argc, char **argv) {
  /* Groups of SmolLM2 (3) and Qwen2.5 (6, 7) first, then all others. */
  static const tr_spec k_specs[] = {{3, 3, 64, 16},  {2, 6, 128, 16}, {2, 7, 64, 16},  {8, 4, 128, 16}, {2, 8, 128, 16},
                                    {2, 5, 128, 16}, {4, 2, 64, 16},  {2, 1, 64, 16},  {3, 3, 64, 64},  {2, 6, 128, 64},
                                    {3, 3, 64, 1},   {2, 6, 128, 1},  {1, 1, 128, 16}, {1, 8, 64, 16},  {2, 3, 128, 16},
                                    {2, 6, 64, 16},  {2, 7, 128, 16}, {2, 2, 128, 16}, {2, 4, 64, 16},  {2, 5, 64, 16}};
  static run_state t;
  const char *why = "";
  bool timed = false;
  df_cuda_card card;
  setvbuf(stdout, NULL, _IOLBF, 0);
  for (int i = 1; i < argc; i++) {
    t.quick |= strcmp(argv[i], "--quick") == 0;
    timed |= strcmp(argv[i], "--bench") == 0;
  }
  if (!df_fa2_get()) {
    printf("built without flashinfer-python: skipped\n");
    return 77;
  }
  if (!tr_card(&card, &why)) {
    printf("no CUDA device: skipped (%s)\n", why);
    return 77;
  }
  printf("%s, flashinfer-python %s\n", card.name, df_third_version());
  for (size_t i = 0; i < (timed ? 2 : DF_COUNT_OF(k_specs)); i++)
    run_shape(&t, &k_specs[i], &card, k_specs[i].group == 3 || k_specs[i].group == 6, timed);
  if (timed) return 0;
  for (uint32_t l = 0; l < 2; l++)
    printf("%s: off by at most %.2e (%.0e allowed), mean square %.2e (%.0e)\n", k_leaf[l], t.worst[l], MOST_WRONG,
           t.nmse[l], MOST_NMSE);
  printf("%u passed, %u failed\n", t.passed, t.failed);
  return t.failed ? 1 : 0;
}
