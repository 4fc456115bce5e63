/* Drafts that stay on a device with a memory of its own: the ops that take and accept them, and that texts and
 * accepted drafts are those of the processor, where the host carries them from pass to pass. */
// clang-format off
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
// clang-format on

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "base/size.h"
#include "device/cpu/cpu_exec.h"
#include "spec/accept.h"
#include "support/device_group.h"
#include "support/shadow_device.h"

static void must(df_status s, const df_error *err) {
  if (s != DF_OK) fail_msg("%s", err->msg);
}

static int setup(void **state) {
  shadow_provide();
  return device_pair_setup(state, 0.3f); /* drafts are accepted often */
}

/* ---- ops ------------------------------------------------------------------------------------------------ */

/* The first of the largest; nothing beats a NaN in front, and a NaN beats nothing. */
static void test_best_of__table(void **state) {
  (void)state;
  static const float value[][3] = {{1, 2, 2},        {3, 2, 1},   {-INFINITY, -INFINITY, -INFINITY},
                                   {NAN, 5, 6},      {1, NAN, 2}, {-0.0f, 0.0f, 0.0f},
                                   {-2, INFINITY, 1}};
  static const uint32_t id[7][3] = {{0, 4, 8}, {1, 4, 8}, {2, 4, 8}, {3, 4, 8}, {0, 4, 8}, {0, 4, 8}, {0, 5, 8}};
  static const int32_t map[] = {10, 11, 12, 13, 14, 15, 16, 17, 18};
  static const int32_t want[] = {4, 1, 2, 3, 8, 0, 5};
  for (uint32_t i = 0; i < DF_COUNT_OF(want); i++) {
    df_best b = {value[0], id[0], NULL, 3};
    assert_int_equal(df_best_of(&b, i), want[i]);
    b.map = map;
    assert_int_equal(df_best_of(&b, i), 10 + want[i]);
  }
}

typedef df_status (*emit_fn)(df_program *p, const void *args, df_error *err);

static df_status emit_embed(df_program *p, const void *args, df_error *err) { return df_emit_embed(p, args, err); }
static df_status emit_accept(df_program *p, const void *args, df_error *err) { return df_emit_accept(p, args, err); }

static void run_on_cpu(emit_fn emit, const void *args, uint32_t rows, uint32_t seqs) {
  df_error err = {0};
  df_pool *pool;
  df_cpu *cpu;
  df_program *p;
  must(df_pool_create(2, &pool, &err), &err);
  must(df_cpu_create(pool, df_kernels_get(df_cpu_best_tier()), &cpu, &err), &err);
  must(df_program_create(rows, seqs, 2, &p, &err), &err);
  must(emit(p, args, &err), &err);
  df_cpu_run(cpu, p);
  df_cpu_quiesce(cpu);
  df_program_free(p);
  df_cpu_free(cpu);
  df_pool_free(pool);
}

enum { SEQS = 4, K = 16 /* width of the table's rows: one strip of outputs */, VOCAB = 64 };

/* Drafts by hand: draft j of sequence s is token 7 + 5 s + j, found in the second of two segments. */
typedef struct by_hand {
  float value[SEQS * 15 * 2];
  uint32_t id[SEQS * 15 * 2], n_live, n_rows;
  df_drafts drafts;
} by_hand;

static int32_t drafted(uint32_t seq, uint32_t j) { return (int32_t)(7 + 5 * seq + j); }

static void make(by_hand *h, uint32_t width, uint32_t live) {
  *h = (by_hand){.n_live = live, .n_rows = SEQS * width};
  for (uint32_t s = 0; s < SEQS; s++)
    for (uint32_t j = 0; j + 1 < width; j++) {
      const uint32_t at = s * (width - 1) + j;
      h->value[2 * at] = -1;
      h->value[2 * at + 1] = s < live ? 1 : -2;
      h->id[2 * at] = 63;
      h->id[2 * at + 1] = (uint32_t)drafted(s, j);
    }
  h->drafts = (df_drafts){{h->value, h->id, NULL, 2}, &h->n_live, width};
}

/* First rows, and rows of padding, come from the batch, all others from the draft. */
static void test_embed__takes_drafts(void **state) {
  (void)state;
  static float table[VOCAB * K], out[SEQS * 16 * K];
  df_weights w = {.pack = df_pack_of(DF_F32), .n = VOCAB, .k = K};
  for (uint32_t i = 0; i < VOCAB * K; i++) table[i] = (float)(i / K);
  assert_true(df_pack_strip_bytes(w.pack, K, &w.strip_bytes));
  w.data = df_pages_alloc(w.strip_bytes * df_strips(VOCAB));
  assert_non_null(w.data);
  df_pack_strips(&w, DF_F32, table, K * sizeof *table, NULL, 0, df_strips(VOCAB));
  for (uint32_t width = 2; width <= 16; width++)
    for (uint32_t live = 1; live <= SEQS; live++) {
      by_hand h;
      int32_t ids[SEQS * 16];
      make(&h, width, live);
      for (uint32_t r = 0; r < h.n_rows; r++) ids[r] = (int32_t)(r % VOCAB);
      const df_op_embed op = {
          .table = &w, .ids = ids, .n_rows = &h.n_rows, .out = out, .scale = 1.0f, .drafts = h.drafts};
      run_on_cpu(emit_embed, &op, h.n_rows, SEQS);
      for (uint32_t r = 0; r < h.n_rows; r++) {
        const uint32_t s = r / width, j = r % width;
        const int32_t want = j && s < live ? drafted(s, j - 1) : ids[r];
        assert_true(out[r * K] == (float)want && out[r * K + K - 1] == (float)want);
      }
    }
  df_pages_free(w.data, w.strip_bytes * df_strips(VOCAB));
}

/* Acceptance is that of the host's own rule, whatever stands. */
static void test_accept__op(void **state) {
  (void)state;
  enum { SEGMENTS = 2 };
  uint32_t met = 0;
  for (uint32_t width = 2; width <= 16; width++)
    for (uint32_t live = 1; live <= SEQS; live++)
      for (uint32_t miss = 0; miss < width; miss++) { /* draft `miss` differs; width - 1: none does */
        by_hand h;
        float value[SEQS * 16 * SEGMENTS];
        uint32_t id[SEQS * 16 * SEGMENTS], accepted[SEQS];
        int32_t token[SEQS * 16], drafts[SEQS * 15];
        make(&h, width, live);
        h.n_rows = live * width; /* sequences of padding have no output rows */
        memset(accepted, 0xFF, sizeof accepted);
        for (uint32_t r = 0; r < h.n_rows; r++) {
          const uint32_t s = r / width, j = r % width;
          value[2 * r] = j % 2 ? 1 : -1, value[2 * r + 1] = 0;
          id[2 * r] = j % 2 ? (uint32_t)drafted(s, j) + (j == miss) : 1;
          id[2 * r + 1] = j % 2 ? 60 : (uint32_t)drafted(s, j) + (j == miss);
        }
        const df_op_accept op = {{value, id, NULL, SEGMENTS}, h.drafts, &h.n_rows, token, drafts, accepted};
        run_on_cpu(emit_accept, &op, SEQS * width, SEQS);
        for (uint32_t s = 0; s < SEQS; s++) {
          if (s >= live) {
            assert_int_equal(accepted[s], UINT32_MAX);
            continue;
          }
          const df_accept_result want = df_accept_compare(token + s * width, drafts + s * (width - 1), width - 1);
          assert_int_equal(accepted[s], want.accepted);
          assert_int_equal(accepted[s], miss);
          assert_int_equal(want.next, drafted(s, miss) + 1);
          met |= 1u << accepted[s];
        }
      }
  assert_int_equal(met, 0xFFFF);
}

/* ---- steps ---------------------------------------------------------------------------------------------- */

static void compare(const device_files *f, bool a_card, uint32_t step) {
  shadow_like(a_card);
  const uint32_t accepted = device_group_compare(f, "shadow", step);
  if (accepted < 200) fail_msg("%u drafts stood: the test says little", accepted);
}

static void test_step__texts_of_the_processor(void **state) {
  const device_files *f = *state;
  compare(&f[0], false, 7);
  compare(&f[0], true, 2);
  compare(&f[1], true, 7);
}

/* Requests that sample read rows of logits, and share the step with those that do not. */
static void test_step__mixed_groups(void **state) {
  const device_files *f = *state;
  uint32_t accepted = 0;
  shadow_like(true);
  for (uint32_t width = 2; width <= 16; width += 2)
    for (uint32_t sampled = 1; sampled < 8; sampled++) {
      const device_group g = {.width = width,
                              .batch = 3,
                              .sampled = sampled,
                              .eager = sampled % 2 == 0,
                              .draft_vocab = width % 4 ? 120 : 0};
      accepted += device_group_both(&f[0], "shadow", &g);
    }
  assert_true(accepted > 100);
}

/* Grammars walk their rows on the host beside requests that take the card's count; programs with room for four. */
static void test_step__held_and_padded_groups(void **state) {
  const device_files *f = *state;
  uint32_t accepted = 0;
  shadow_like(true);
  for (uint32_t width = 2; width <= 16; width += 7)
    for (uint32_t held = 0; held < 8; held++) {
      const device_group g = {.width = width,
                              .batch = 3,
                              .held = held,
                              .sampled = held == 5 ? 2 : 0,
                              .padded = held != 3,
                              .eager = held % 4 == 2,
                              .draft_vocab = held % 2 ? 120 : 0};
      accepted += device_group_both(&f[0], "shadow", &g);
    }
  assert_true(accepted > 50);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_best_of__table),
      cmocka_unit_test(test_embed__takes_drafts),
      cmocka_unit_test(test_accept__op),
      cmocka_unit_test(test_step__mixed_groups),
      cmocka_unit_test(test_step__held_and_padded_groups),
      cmocka_unit_test(test_step__texts_of_the_processor),
  };
  return cmocka_run_group_tests_name("drafts", tests, setup, device_pair_teardown);
}
