/* Sliding windows: the leaves at window edges on page and chunk boundaries, and a model with five local layers to each
 * global one, in every stack, prefilled in pieces and verified across the edge. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "attention/hybrid.h"
#include "attention/tbo.h"
#include "base/mem.h"
#include "base/size.h"
#include "support/attn_rig.h"
#include "support/test_models.h"
#include "support/tiny_target.h"

static const uint32_t k_windows[] = {1, 15, 16, 17, 64, 65, 100};

static void must(df_status s, const df_error *err) {
  if (s != DF_OK) fail_msg("%s", err->msg);
}

/* ---- leaves --------------------------------------------------------------------------------------------- */

static void windows(uint32_t page) {
  for (size_t i = 0; i < DF_COUNT_OF(k_windows); i++)
    for (uint32_t more = 0; more < (df_test_long() ? 4 : 1); more++) {
      const uint32_t n = (uint32_t)i + page / 16 + more;
      const attn_rig_spec s = {.n_kv = 1 + n % 2,
                               .group = 1 + n % 3,
                               .head_dim = n % 4 == 3 ? 64 : 32,
                               .page_size = page,
                               .threads = n % 2 ? 3 : 1,
                               .kv = n / 2 % 2 ? DF_KV_F32 : DF_KV_F16,
                               .window = k_windows[i],
                               .seed = n};
      attn_rig_check_all(&s);
    }
}

static void test_leaves__windows_page_16(void **state) {
  (void)state;
  windows(16);
}

static void test_leaves__windows_page_64(void **state) {
  (void)state;
  windows(64);
}

static void test_leaves__windows_page_1(void **state) {
  (void)state;
  windows(1);
}

/* ---- a model -------------------------------------------------------------------------------------------- */

enum { LAYERS = 6, LEN = 140 };

typedef struct fixture {
  tiny_spec spec;
  df_model *m;
} fixture;

static int setup(void **state) {
  fixture *f = df_calloc(1, sizeof *f);
  if (!f) return -1;
  f->spec = tiny_spec_default();
  f->spec.n_layers = LAYERS;
  f->spec.dtype = DF_Q8_0;
  f->m = tiny_open(&f->spec, 3);
  *state = f;
  return 0;
}

static int teardown(void **state) {
  fixture *f = *state;
  df_model_close(f->m);
  df_free(f);
  return 0;
}

/* Layers 0..4 slide, layer 5 does not unless all do; window 0: nobody. */
static void set_window(df_model *m, uint32_t window, bool all) {
  m->cfg.sliding_window = window;
  for (uint32_t i = 0; i < LAYERS; i++) m->cfg.sliding[i] = window && (all || i % 6 != 5);
}

static df_attn *split(df_model *m) {
  df_error err = {0};
  df_attn *a;
  must(df_attn_hybrid_create(tiny_leaf(m, "flash"), tiny_leaf(m, "splitkv"), NULL, true, &a, &err), &err);
  return a;
}

static df_attn *overlap(df_model *m) {
  df_error err = {0};
  df_attn *a;
  must(df_attn_tbo_create(split(m), split(m), split(m), &a, &err), &err);
  return a;
}

enum { STACKS = 5 };

static df_attn *stack(df_model *m, int kind) {
  static const char *const names[] = {"naive", "flash", "splitkv"};
  if (kind < 3) return tiny_leaf(m, names[kind]);
  return kind == 3 ? split(m) : overlap(m);
}

/* The last rows of a piece lie behind the edge that its first rows have not reached. */
static void check_prefills(tiny_target *x, const float *table) {
  static const uint32_t k_sizes[] = {64, 5, 33};
  for (size_t i = 0; i < DF_COUNT_OF(k_sizes); i++)
    for (uint32_t at = 0; at < LEN; at += k_sizes[i]) {
      const tiny_item part = {(uint32_t)i, at, DF_MIN(k_sizes[i], LEN - at)};
      tiny_run(x, DF_MODE_EXTEND, &part, 1);
      tiny_assert_rows(x, table, &part, 1, "prefill across the edge");
    }
  for (uint32_t s = 3; s < TINY_SEQS; s++)
    for (uint32_t at = 0; at < LEN; at += 64) {
      const tiny_item part = {s, at, DF_MIN(64u, LEN - at)};
      tiny_run(x, DF_MODE_EXTEND, &part, 1);
    }
}

/* Blocks that begin before, at and behind the position where the window first drops a key, and at every other edge. */
static void check_verifies(tiny_target *x, const float *table, uint32_t window) {
  static const uint32_t k_widths[] = {1, 2, 7, 16};
  for (size_t i = 0; i < DF_COUNT_OF(k_widths); i++)
    for (int back = -1; back <= 8; back += 3) {
      const uint32_t w = k_widths[i], edge = window > 8 ? window - (uint32_t)(back < 0 ? 0 : back) : 3;
      const tiny_item items[4] = {{0, DF_MIN(edge, LEN - w), w}, {1, 63, w}, {2, window % 64 + 40, w}, {4, LEN - w, w}};
      const uint32_t n = 1 + (uint32_t)(back + 1 + (int)i) % 4;
      tiny_run(x, w == 1 ? DF_MODE_DECODE : DF_MODE_TARGET_VERIFY, items, n);
      tiny_assert_rows(x, table, items, n, "verify across the edge");
    }
}

static void test_model__five_to_one(void **state) {
  const fixture *f = *state;
  for (size_t i = 0; i < DF_COUNT_OF(k_windows); i++) {
    set_window(f->m, k_windows[i], false);
    const df_kv_type kv = i % 2 ? DF_KV_F32 : DF_KV_F16;
    float *table = tiny_table(f->m, kv, LEN);
    for (int kind = 0; kind < STACKS; kind++) {
      static const uint32_t k_pages[] = {16, 1, 64};
      tiny_target x;
      const tiny_options o = {
          .attn = stack(f->m, kind), .kv = kv, .page_size = k_pages[(i + (size_t)kind) % 3], .eager = kind == 3};
      tiny_target_init(&x, f->m, &o);
      check_prefills(&x, table);
      check_verifies(&x, table, k_windows[i]);
      tiny_target_release(&x);
    }
    df_pages_free(table, tiny_table_bytes(f->m));
  }
  set_window(f->m, 0, false);
}

static const float *row(const df_model *m, const float *table, uint32_t seq, uint32_t pos) {
  return table + ((size_t)seq * TINY_LEN + pos) * m->cfg.vocab;
}

/* Before the window drops its first key it changes no bit; from then on it does. */
static void test_model__window_begins_at_its_size(void **state) {
  const fixture *f = *state;
  set_window(f->m, 0, false);
  float *full = tiny_table(f->m, DF_KV_F16, LEN);
  for (size_t i = 0; i < DF_COUNT_OF(k_windows); i++) {
    const uint32_t w = k_windows[i];
    set_window(f->m, w, false);
    float *table = tiny_table(f->m, DF_KV_F16, LEN);
    for (uint32_t p = 0; p < LEN; p++) {
      const bool same = memcmp(row(f->m, full, 1, p), row(f->m, table, 1, p), f->m->cfg.vocab * sizeof *full) == 0;
      if (same != (p < w)) fail_msg("window %u: position %u is %s", w, p, same ? "the same" : "another");
    }
    df_pages_free(table, tiny_table_bytes(f->m));
  }
  df_pages_free(full, tiny_table_bytes(f->m));
  set_window(f->m, 0, false);
}

/* One layer looks back window - 1 positions, six layers six times as far, and not one further: with every layer
 * sliding, the first token no longer exists for rows behind that; with one global layer it always does. */
static void test_model__reach_of_the_first_token(void **state) {
  const fixture *f = *state;
  static const uint32_t k_w[] = {1, 2, 9, 16, 17, 21};
  for (size_t i = 0; i < DF_COUNT_OF(k_w); i++)
    for (int all = 0; all < 2; all++) {
      tiny_target x;
      float *want = df_alloc((size_t)LEN * f->m->cfg.vocab * sizeof *want);
      assert_non_null(want);
      set_window(f->m, k_w[i], all != 0);
      const tiny_options o = {.kv = DF_KV_F32};
      tiny_target_init(&x, f->m, &o);
      const tiny_item item = {0, 0, LEN};
      tiny_run(&x, DF_MODE_EXTEND, &item, 1);
      for (uint32_t p = 0; p < LEN; p++)
        memcpy(want + (size_t)p * f->m->cfg.vocab, tiny_logits(&x, p), tiny_row_bytes(&x));
      df_error err = {0};
      tiny_fill(&x, &item, 1);
      x.t.batch.ids[0] = (x.t.batch.ids[0] + 100) % 256;
      must(df_target_run(&x.t, DF_MODE_EXTEND, DF_TAIL_LOGITS, &err), &err);
      uint32_t last = 0;
      for (uint32_t p = 0; p < LEN; p++)
        if (memcmp(want + (size_t)p * f->m->cfg.vocab, tiny_logits(&x, p), tiny_row_bytes(&x)) != 0) last = p;
      if (all)
        assert_int_equal(last, LAYERS * (k_w[i] - 1));
      else
        assert_int_equal(last, LEN - 1);
      tiny_target_release(&x);
      df_free(want);
    }
  set_window(f->m, 0, false);
}

/* The text of a step loop whose windows slide all the while, with a draft and without. */
static void test_model__text_with_a_draft(void **state) {
  const fixture *f = *state;
  df_draft *d = tiny_open_draft(&f->spec, f->m);
  static int32_t want[TINY_SEQS * TINY_LEN], got[TINY_SEQS * TINY_LEN];
  enum { PROMPT = 11, NEW = 60 };
  static const uint32_t k_w[] = {1, 16, 17, 64}, k_widths[] = {2, 4, 9, 16};
  uint32_t accepted = 0;
  for (size_t i = 0; i < DF_COUNT_OF(k_w); i++) {
    set_window(f->m, k_w[i], false);
    tiny_target x;
    const tiny_options plain = {.attn = stack(f->m, 0)};
    tiny_target_init(&x, f->m, &plain);
    (void)tiny_generate(&x, NULL, PROMPT, NEW, 1, want);
    tiny_target_release(&x);
    for (int kind = 1; kind < STACKS; kind++) {
      df_error err = {0};
      df_drafter r;
      const tiny_options o = {
          .attn = stack(f->m, kind), .page_size = kind == 2 ? 64 : 16, .taps = d->cfg.taps, .n_taps = d->cfg.n_taps};
      tiny_target_init(&x, f->m, &o);
      must(df_drafter_init(&r, d, &x.t, 16, true, &err), &err);
      accepted += tiny_generate(&x, &r, PROMPT, NEW, k_widths[(i + (size_t)kind) % 4], got);
      for (uint32_t s = 0; s < TINY_SEQS; s++)
        if (memcmp(want + s * TINY_LEN, got + s * TINY_LEN, NEW * sizeof *want) != 0)
          fail_msg("window %u, stack %d: sequence %u has another text", k_w[i], kind, s);
      df_drafter_release(&r);
      tiny_target_release(&x);
    }
  }
  assert_true(accepted > 100);
  df_draft_close(d);
  set_window(f->m, 0, false);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_leaves__windows_page_16),          cmocka_unit_test(test_leaves__windows_page_64),
      cmocka_unit_test(test_leaves__windows_page_1),           cmocka_unit_test(test_model__five_to_one),
      cmocka_unit_test(test_model__window_begins_at_its_size), cmocka_unit_test(test_model__reach_of_the_first_token),
      cmocka_unit_test(test_model__text_with_a_draft),
  };
  return cmocka_run_group_tests_name("attn_swa", tests, setup, teardown);
}
