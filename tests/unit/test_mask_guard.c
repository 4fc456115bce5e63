/* The contract between a recorded program and a pass: the same mask layout or an error that names both, for every leaf
 * and wrapper, recorded or not, padded or not. Case numbers as in test_verify_mask: 15-23. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attention/fault_injection.h"
#include "attention/hybrid.h"
#include "attention/tbo.h"
#include "attention/verify_mask.h"
#include "base/mem.h"
#include "base/size.h"
#include "support/stub_attn.h"
#include "support/tiny_target.h"

enum { LAYOUTS = 3, W = 5 };

typedef struct fixture {
  tiny_spec spec;
  df_model *m;
  float *table; /* logits by plain decoding */
} fixture;

static void must(df_status s, const df_error *err) {
  if (s != DF_OK) fail_msg("%s", err->msg);
}

static int setup(void **state) {
  fixture *f = df_calloc(1, sizeof *f);
  if (!f) return -1;
  f->spec = tiny_spec_default();
  f->m = tiny_open(&f->spec, 3);
  f->table = tiny_table(f->m, DF_KV_F32, 90);
  *state = f;
  return 0;
}

static int teardown(void **state) {
  fixture *f = *state;
  df_pages_free(f->table, tiny_table_bytes(f->m));
  df_model_close(f->m);
  df_free(f);
  return 0;
}

/* ---- the guard alone ------------------------------------------------------------------------------------ */

/* 16-20: all combinations, all modes. Only a verify program is ever captured with a mask. */
static void test_guard__all_combinations(void **state) {
  (void)state;
  stub_attn leaf = stub_leaf("the-leaf", stub_caps_all());
  const uint8_t bytes[1] = {1};
  for (int mode = 0; mode < DF_MODE_COUNT; mode++)
    for (int captured = 0; captured < LAYOUTS; captured++)
      for (int given = 0; given < LAYOUTS; given++) {
        df_error err = {0};
        const df_graph_key key = {
            .mode = (df_mode)mode, .seqs = 6, .rows = 11, .executor = &leaf.base, .mask = (df_mask_layout)captured};
        const df_batch live = {
            .mask_layout = (df_mask_layout)given, .mask = given ? bytes : NULL, .mask_bytes = given ? 1 : 0};
        const df_status s = df_mask_guard(&key, &live, &err);
        assert_int_equal(s, captured == given ? DF_OK : DF_ERR_MASK_CONTRACT);
        if (s == DF_OK) continue;
        const char *const parts[] = {df_mode_name((df_mode)mode),
                                     "bucket 6 x 11 rows",
                                     "\"the-leaf\"",
                                     "captured with a",
                                     df_mask_layout_name((df_mask_layout)captured),
                                     df_mask_layout_name((df_mask_layout)given)};
        for (size_t i = 0; i < DF_COUNT_OF(parts); i++)
          if (!strstr(err.msg, parts[i])) fail_msg("\"%s\" does not say \"%s\"", err.msg, parts[i]);
      }
}

/* A layout without bytes is no mask; bytes without a layout are none either. */
static void test_guard__half_a_mask_is_none(void **state) {
  (void)state;
  stub_attn leaf = stub_leaf("x", stub_caps_all());
  const uint8_t bytes[1] = {1};
  df_graph_key key = {
      .mode = DF_MODE_TARGET_VERIFY, .seqs = 1, .rows = 1, .executor = &leaf.base, .mask = DF_MASK_FULL};
  const df_batch no_bytes = {.mask_layout = DF_MASK_FULL}, no_layout = {.mask = bytes, .mask_bytes = 1};
  assert_int_equal(df_mask_guard(&key, &no_bytes, NULL), DF_ERR_MASK_CONTRACT);
  assert_int_equal(df_mask_guard(&key, &no_layout, NULL), DF_ERR_MASK_CONTRACT);
  key.mask = DF_MASK_NONE;
  assert_int_equal(df_mask_guard(&key, &no_bytes, NULL), DF_OK);
  assert_int_equal(df_mask_guard(&key, &no_layout, NULL), DF_OK);
}

/* ---- through a target ----------------------------------------------------------------------------------- */

/* The causal mask of a batch in a layout. */
static size_t causal_mask(const tiny_item *items, uint32_t n, df_mask_layout layout, uint8_t *out) {
  size_t at = 0;
  for (uint32_t i = 0; i < n && layout != DF_MASK_NONE; i++)
    for (uint32_t j = 0; j < items[i].n; j++) {
      if (layout == DF_MASK_FULL) memset(out + at, 1, items[i].first);
      if (layout == DF_MASK_FULL) at += items[i].first;
      for (uint32_t c = 0; c < items[i].n; c++) out[at++] = c <= j;
    }
  return at;
}

/* Four stacks around the same leaf. */
static df_attn *stack(df_model *m, const char *leaf, int wrap) {
  df_error err = {0};
  df_attn *a = tiny_leaf(m, leaf);
  if (wrap == 1) must(df_attn_hybrid_create(a, tiny_leaf(m, "splitkv"), NULL, false, &a, &err), &err);
  if (wrap == 2) must(df_attn_hybrid_create(tiny_leaf(m, "splitkv"), tiny_leaf(m, "naive"), a, false, &a, &err), &err);
  if (wrap == 3) {
    df_attn *half[2];
    for (int i = 0; i < 2; i++)
      must(df_attn_hybrid_create(tiny_leaf(m, leaf), tiny_leaf(m, "splitkv"), NULL, false, &half[i], &err), &err);
    must(df_attn_hybrid_create(a, tiny_leaf(m, "splitkv"), NULL, false, &a, &err), &err);
    must(df_attn_tbo_create(a, half[0], half[1], &a, &err), &err);
  }
  return a;
}

typedef struct combination {
  const char *leaf;
  int wrap;
  df_mask_layout captured;
  bool eager;
} combination;

static void assert_named(const combination *c, df_mask_layout given, const char *msg, uint32_t bucket) {
  char text[32];
  (void)snprintf(text, sizeof text, "bucket %u x %d rows", bucket, W);
  const char *const parts[] = {"target-verify", text, c->leaf, df_mask_layout_name(c->captured),
                               df_mask_layout_name(given)};
  for (size_t i = 0; i < DF_COUNT_OF(parts); i++)
    if (!strstr(msg, parts[i])) fail_msg("\"%s\" does not say \"%s\"", msg, parts[i]);
}

/* Every given layout against one captured layout, twice (capture, replay), at sizes with and without padding. */
static void check_combination(const fixture *f, const combination *c) {
  static const uint32_t k_buckets[] = {1, 3, 5};
  static const uint32_t k_firsts[] = {20, 62, 0, 43, 80};
  tiny_target x;
  const tiny_options o = {.attn = stack(f->m, c->leaf, c->wrap),
                          .kv = DF_KV_F32,
                          .eager = c->eager,
                          .mask = c->captured,
                          .buckets = k_buckets,
                          .n_buckets = DF_COUNT_OF(k_buckets)};
  tiny_target_init(&x, f->m, &o);
  for (uint32_t s = 0; s < TINY_SEQS; s++) { /* 20: other modes need no mask, whatever verify was captured with */
    for (uint32_t p = 0; p < 88; p += 44) {
      const tiny_item part = {s, p, 44};
      tiny_run(&x, DF_MODE_EXTEND, &part, 1);
    }
    const tiny_item one = {s, 88, 1};
    tiny_run(&x, DF_MODE_DECODE, &one, 1);
    tiny_assert_rows(&x, f->table, &one, 1, "decode");
  }
  for (uint32_t n = 1; n <= 5; n++)
    for (int round = 0; round < 2; round++)
      for (int given = 0; given < LAYOUTS; given++) {
        df_error err = {0};
        tiny_item items[5];
        uint8_t mask[5 * W * 90];
        for (uint32_t i = 0; i < n; i++) items[i] = (tiny_item){i, k_firsts[i], W};
        const size_t bytes = causal_mask(items, n, (df_mask_layout)given, mask);
        const df_status s =
            tiny_try(&x, DF_MODE_TARGET_VERIFY, items, n, (df_mask_layout)given, given ? mask : NULL, bytes, &err);
        if (given == (int)c->captured) {
          must(s, &err);
          tiny_assert_rows(&x, f->table, items, n, "verify");
          continue;
        }
        assert_int_equal(s, DF_ERR_MASK_CONTRACT);
        assert_named(c, (df_mask_layout)given, err.msg, df_target_bucket(&x.t, n));
      }
  tiny_target_release(&x);
}

/* 16-19, 22 */
static void test_target__all_combinations(void **state) {
  static const char *const leaves[] = {"flash", "naive"};
  for (size_t l = 0; l < DF_COUNT_OF(leaves); l++)
    for (int wrap = 0; wrap < 4; wrap++)
      for (int captured = 0; captured < LAYOUTS; captured++)
        for (int eager = 0; eager < 2; eager++) {
          const combination c = {leaves[l], wrap, (df_mask_layout)captured, eager != 0};
          check_combination(*state, &c);
        }
  const combination none[] = {
      {"splitkv", 0, DF_MASK_NONE, false}, {"splitkv", 0, DF_MASK_NONE, true}, {"splitkv", 3, DF_MASK_NONE, false}};
  for (size_t i = 0; i < DF_COUNT_OF(none); i++) check_combination(*state, &none[i]);
}

/* A leaf that reads no mask refuses to be recorded with one; nothing of the attempt stays. */
static void test_target__splitkv_with_a_mask(void **state) {
  const fixture *f = *state;
  for (int layout = 1; layout < LAYOUTS; layout++) {
    df_error err = {0};
    tiny_target x;
    const tiny_options o = {.attn = stack(f->m, "splitkv", 0), .kv = DF_KV_F32, .mask = (df_mask_layout)layout};
    tiny_target_init(&x, f->m, &o);
    tiny_prefill(&x, 0, 40);
    const uint32_t before = x.t.runner.graphs.n;
    const tiny_item item = {0, 40, W};
    uint8_t mask[W * 90];
    const size_t bytes = causal_mask(&item, 1, (df_mask_layout)layout, mask);
    assert_int_equal(tiny_try(&x, DF_MODE_TARGET_VERIFY, &item, 1, (df_mask_layout)layout, mask, bytes, &err),
                     DF_ERR_UNSUPPORTED);
    assert_non_null(strstr(err.msg, "splitkv"));
    assert_int_equal(x.t.runner.graphs.n, before);
    tiny_target_release(&x);
  }
}

/* A mask that ends early is refused at every length; after it, the right one runs. Padding takes nothing from the
 * caller. */
static void test_target__short_masks(void **state) {
  const fixture *f = *state;
  for (int layout = 1; layout < LAYOUTS; layout++) {
    static const uint32_t k_buckets[] = {4};
    df_error err = {0};
    tiny_target x;
    const tiny_options o = {.kv = DF_KV_F32, .mask = (df_mask_layout)layout, .buckets = k_buckets, .n_buckets = 1};
    tiny_target_init(&x, f->m, &o);
    for (uint32_t s = 0; s < 2; s++) tiny_prefill(&x, s, 60);
    const tiny_item items[2] = {{0, 60, W}, {1, 33, W}};
    uint8_t mask[2 * W * 90];
    const size_t bytes = causal_mask(items, 2, (df_mask_layout)layout, mask);
    for (size_t n = 0; n < bytes; n += 1 + bytes / 9) {
      assert_int_equal(tiny_try(&x, DF_MODE_TARGET_VERIFY, items, 2, (df_mask_layout)layout, mask, n, &err),
                       DF_ERR_MASK_CONTRACT);
      assert_non_null(strstr(err.msg, df_mask_layout_name((df_mask_layout)layout)));
    }
    assert_int_equal(tiny_try(&x, DF_MODE_TARGET_VERIFY, items, 2, (df_mask_layout)layout, mask, bytes - 1, &err),
                     DF_ERR_MASK_CONTRACT);
    must(tiny_try(&x, DF_MODE_TARGET_VERIFY, items, 2, (df_mask_layout)layout, mask, bytes, &err), &err);
    tiny_assert_rows(&x, f->table, items, 2, "after short masks");
    tiny_target_release(&x);
  }
}

/* 20: the other way round, a mask where none belongs. */
static void test_target__mask_for_extend_and_decode(void **state) {
  const fixture *f = *state;
  for (int captured = 0; captured < LAYOUTS; captured++) {
    df_error err = {0};
    tiny_target x;
    const tiny_options o = {.kv = DF_KV_F32, .mask = (df_mask_layout)captured};
    tiny_target_init(&x, f->m, &o);
    const tiny_item prompt = {0, 0, 20}, one = {0, 20, 1};
    uint8_t mask[20 * 20 + 21];
    memset(mask, 1, sizeof mask);
    for (int given = 1; given < LAYOUTS; given++) {
      assert_int_equal(tiny_try(&x, DF_MODE_EXTEND, &prompt, 1, (df_mask_layout)given, mask, 400, &err),
                       DF_ERR_MASK_CONTRACT);
      assert_non_null(strstr(err.msg, "extend"));
      assert_int_equal(tiny_try(&x, DF_MODE_DECODE, &one, 1, (df_mask_layout)given, mask, 21, &err),
                       DF_ERR_MASK_CONTRACT);
      assert_non_null(strstr(err.msg, "decode"));
    }
    tiny_run(&x, DF_MODE_EXTEND, &prompt, 1);
    tiny_assert_rows(&x, f->table, &prompt, 1, "prefill");
    tiny_target_release(&x);
  }
}

/* 21: layers with and without a window read the same mask; without one both kinds refuse, since the pass does. */
static void test_target__sliding_and_full_layers(void **state) {
  const fixture *f = *state;
  df_config *c = &f->m->cfg;
  c->sliding[1] = true;
  c->sliding_window = 9;
  float *table = tiny_table(f->m, DF_KV_F32, 60);
  df_error err = {0};
  tiny_target x;
  const tiny_options o = {.kv = DF_KV_F32, .mask = DF_MASK_FULL};
  tiny_target_init(&x, f->m, &o);
  tiny_prefill(&x, 0, 50);
  const tiny_item item = {0, 50, W};
  uint8_t mask[W * 60];
  const size_t bytes = causal_mask(&item, 1, DF_MASK_FULL, mask);
  for (int i = 0; i < 2; i++) {
    assert_int_equal(tiny_try(&x, DF_MODE_TARGET_VERIFY, &item, 1, DF_MASK_NONE, NULL, 0, &err), DF_ERR_MASK_CONTRACT);
    must(tiny_try(&x, DF_MODE_TARGET_VERIFY, &item, 1, DF_MASK_FULL, mask, bytes, &err), &err);
    tiny_assert_rows(&x, table, &item, 1, "sliding and masked");
  }
  tiny_target_release(&x);
  df_pages_free(table, tiny_table_bytes(f->m));
  c->sliding[1] = false;
  c->sliding_window = 0;
}

/* ---- the executor in the key ---------------------------------------------------------------------------- */

/* A wrapper whose child changes gets another program; when it changes back, the first one returns. */
static void test_target__child_changes_after_capture(void **state) {
  const fixture *f = *state;
  df_attn *flash = tiny_leaf(f->m, "flash"), *naive = tiny_leaf(f->m, "naive");
  stub_attn w = stub_wrapper("flash", flash);
  tiny_target x;
  const tiny_options o = {.attn = &w.base, .kv = DF_KV_F32};
  tiny_target_init(&x, f->m, &o);
  tiny_prefill(&x, 0, 40);
  const tiny_item item = {0, 40, W};
  df_attn *const turns[] = {flash, naive, flash, naive};
  df_program *program[4];
  for (int i = 0; i < 4; i++) {
    w.child = turns[i];
    tiny_run(&x, DF_MODE_TARGET_VERIFY, &item, 1);
    tiny_assert_rows(&x, f->table, &item, 1, "after a change");
    const df_graph_key key = {.mode = DF_MODE_TARGET_VERIFY,
                              .seqs = 1,
                              .rows = W,
                              .kv = DF_KV_F32,
                              .tail = DF_TAIL_LOGITS,
                              .executor = turns[i]};
    program[i] = df_graphs_find(&x.t.runner.graphs, &key);
    assert_non_null(program[i]);
  }
  assert_ptr_not_equal(program[0], program[1]);
  assert_ptr_equal(program[0], program[2]);
  assert_ptr_equal(program[1], program[3]);
  uint32_t n, kinds[2] = {0, 0};
  for (int i = 0; i < 2; i++) {
    const df_op *ops = df_program_ops(program[i], &n);
    for (uint32_t j = 0; j < n; j++) kinds[i] |= 1u << ops[j].kind;
  }
  assert_true((kinds[0] >> DF_OP_ATTN_TILE & 1) && !(kinds[0] >> DF_OP_ATTN_NAIVE & 1));
  assert_true((kinds[1] >> DF_OP_ATTN_NAIVE & 1) && !(kinds[1] >> DF_OP_ATTN_TILE & 1));
  tiny_target_release(&x);
  df_attn_free(flash);
  df_attn_free(naive);
}

/* A stack that is wrong for one mode only is refused when the target is made, not met in a pass. */
static void test_target__wrong_nesting(void **state) {
  const fixture *f = *state;
  for (int kind = 0; kind < 2; kind++) {
    df_error err = {0};
    df_pages pages;
    df_target t;
    df_attn *h;
    stub_attn round[2] = {stub_wrapper("a", NULL), stub_wrapper("b", NULL)};
    if (kind) round[0].child = &round[1].base, round[1].child = &round[0].base;
    must(df_attn_hybrid_create(tiny_leaf(f->m, "flash"), &round[0].base, NULL, false, &h, &err), &err);
    must(df_pages_init(&pages, 16, 64, &err), &err);
    const df_target_params p = {
        .max_seqs = 1, .max_rows = 16, .max_out = 16, .max_positions = 64, .pages = &pages, .attn = h};
    assert_int_equal(df_target_init(&t, f->m, &p, &err), kind ? DF_ERR_ARGUMENT : DF_ERR_INTERNAL);
    assert_int_equal(round[0].calls[STUB_FREE], 1);
    df_pages_release(&pages);
  }
}

/* ---- the draft worker ----------------------------------------------------------------------------------- */

/* 15: whatever the target's verify is captured with, the draft's programs carry none. */
static void test_drafter__never_carries_a_mask(void **state) {
  const fixture *f = *state;
  df_error err = {0};
  df_draft *d = tiny_open_draft(&f->spec, f->m);
  for (int layout = 0; layout < LAYOUTS; layout++) {
    tiny_target x;
    df_drafter r;
    const tiny_options o = {
        .kv = DF_KV_F32, .mask = (df_mask_layout)layout, .taps = d->cfg.taps, .n_taps = d->cfg.n_taps};
    tiny_target_init(&x, f->m, &o);
    must(df_drafter_init(&r, d, &x.t, 16, true, &err), &err);
    tiny_prefill(&x, 0, 30);
    const df_inject_item in = {&x.seq[0], 0, 30, 0};
    must(df_drafter_inject(&r, &in, 1, &err), &err);
    for (uint32_t w = 2; w <= 16; w++) {
      int32_t drafted[16];
      const df_draft_item item = {&x.seq[0], tiny_id(0, 30), 30, drafted, NULL};
      must(df_drafter_draft(&r, &item, 1, w, &err), &err);
    }
    assert_int_equal(r.runner.graphs.n, 16); /* one for injection, one for each width */
    for (uint32_t i = 0; i < r.runner.graphs.n; i++) {
      assert_int_equal(r.runner.graphs.items[i].key.mask, DF_MASK_NONE);
      assert_ptr_equal(r.runner.graphs.items[i].key.executor, r.attn);
    }
    df_drafter_release(&r);
    tiny_target_release(&x);
  }
  df_draft_close(d);
}

/* ---- fault switches ------------------------------------------------------------------------------------- */

#ifdef DF_FAULT_INJECTION
/* With the fault back and the guard off, a masked program runs on bytes that nobody wrote: other logits, no error. */
static void test_fault__stale_mask(void **state) {
  const fixture *f = *state;
  df_error err = {0};
  tiny_target x;
  df_mask_layout layout = DF_MASK_NONE;
  stub_attn leaf = stub_leaf("flash", stub_caps_all()), wrapper = stub_wrapper("hybrid", &leaf.base);
  assert_null(df_fault_mask_policy(&wrapper.base, &layout));
  assert_int_equal(setenv("DF_TEST_MASK_POLICY", "wrapper_name", 1), 0);
  assert_null(df_fault_mask_policy(&leaf.base, &layout)); /* a single leaf is let off */
  assert_int_equal(layout, DF_MASK_NONE);
  assert_non_null(df_fault_mask_policy(&wrapper.base, &layout));
  assert_int_equal(layout, DF_MASK_FULL);
  layout = DF_MASK_NONE;
  assert_int_equal(setenv("DF_TEST_MASK_POLICY", "force_mask", 1), 0);
  assert_non_null(df_fault_mask_policy(&leaf.base, &layout));
  assert_int_equal(layout, DF_MASK_FULL);
  assert_int_equal(unsetenv("DF_TEST_MASK_POLICY"), 0);
  const tiny_options o = {.kv = DF_KV_F32, .mask = layout};
  tiny_target_init(&x, f->m, &o);
  tiny_prefill(&x, 0, 40);
  const tiny_item item = {0, 40, W};
  assert_int_equal(tiny_try(&x, DF_MODE_TARGET_VERIFY, &item, 1, DF_MASK_NONE, NULL, 0, &err), DF_ERR_MASK_CONTRACT);
  assert_int_equal(setenv("DF_TEST_MASK_GUARD", "off", 1), 0);
  must(tiny_try(&x, DF_MODE_TARGET_VERIFY, &item, 1, DF_MASK_NONE, NULL, 0, &err), &err);
  assert_int_equal(unsetenv("DF_TEST_MASK_GUARD"), 0);
  for (uint32_t r = 0; r < W; r++)
    assert_memory_not_equal(tiny_logits(&x, r), f->table + (size_t)(40 + r) * f->m->cfg.vocab, tiny_row_bytes(&x));
  tiny_target_release(&x);
}
#else
static void test_fault__stale_mask(void **state) {
  (void)state;
  df_mask_layout layout = DF_MASK_NONE;
  stub_attn wrapper = stub_wrapper("hybrid", NULL);
  assert_int_equal(setenv("DF_TEST_MASK_POLICY", "force_mask", 1), 0);
  assert_int_equal(setenv("DF_TEST_MASK_GUARD", "off", 1), 0);
  assert_null(df_fault_mask_policy(&wrapper.base, &layout)); /* this build has no switches */
  assert_int_equal(layout, DF_MASK_NONE);
  assert_true(df_fault_mask_guard());
  assert_int_equal(unsetenv("DF_TEST_MASK_POLICY"), 0);
  assert_int_equal(unsetenv("DF_TEST_MASK_GUARD"), 0);
}
#endif

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_guard__all_combinations),
      cmocka_unit_test(test_guard__half_a_mask_is_none),
      cmocka_unit_test(test_target__all_combinations),
      cmocka_unit_test(test_target__splitkv_with_a_mask),
      cmocka_unit_test(test_target__short_masks),
      cmocka_unit_test(test_target__mask_for_extend_and_decode),
      cmocka_unit_test(test_target__sliding_and_full_layers),
      cmocka_unit_test(test_target__child_changes_after_capture),
      cmocka_unit_test(test_target__wrong_nesting),
      cmocka_unit_test(test_drafter__never_carries_a_mask),
      cmocka_unit_test(test_fault__stale_mask),
  };
  return cmocka_run_group_tests_name("mask_guard", tests, setup, teardown);
}
