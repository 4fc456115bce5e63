/* The leaves on made-up keys and values: equal bits whatever the pass looks like, the right values, masks of both
 * layouts, blocks that are not causal, and refusal of what does not fit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "base/size.h"
#include "support/attn_rig.h"
#include "support/kernel_data.h"
#include "support/test_models.h"

static void must(df_status s, const df_error *err) {
  if (s != DF_OK) fail_msg("%s", err->msg);
}

/* ---- dense ---------------------------------------------------------------------------------------------- */

static const uint32_t k_groups[] = {1, 3, 6, 8}, k_dims[] = {32, 64, 128}, k_pages[] = {16, 64, 1};

/* All head shapes for one page size; the KV type and the threads change places, so that each meets each. The long
 * version takes every combination. */
static void dense(uint32_t page) {
  uint32_t n = page;
  for (size_t g = 0; g < DF_COUNT_OF(k_groups); g++)
    for (size_t e = 0; e < DF_COUNT_OF(k_dims); e++)
      for (uint32_t i = 0; i < (df_test_long() ? 4 : 1); i++, n++) {
        const attn_rig_spec s = {.n_kv = k_groups[g] > 3 ? 1 : 2,
                                 .group = k_groups[g],
                                 .head_dim = k_dims[e],
                                 .page_size = page,
                                 .threads = n / 2 % 2 ? 3 : 1,
                                 .kv = n % 2 ? DF_KV_F32 : DF_KV_F16,
                                 .seed = n};
        attn_rig_check_all(&s);
      }
}

static void test_leaves__page_16(void **state) {
  (void)state;
  dense(k_pages[0]);
}

static void test_leaves__page_64(void **state) {
  (void)state;
  dense(k_pages[1]);
}

static void test_leaves__page_1(void **state) {
  (void)state;
  dense(k_pages[2]);
}

/* More than 8 query heads to a KV head: tiles of fewer than 16 rows, which need not divide a pass. */
static void test_leaves__wide_groups(void **state) {
  (void)state;
  static const uint32_t k[] = {9, 10, 12, 16, 24, 48, 128};
  for (size_t i = 0; i < DF_COUNT_OF(k); i++) {
    const attn_rig_spec s = {
        .n_kv = 1, .group = k[i], .head_dim = 32, .page_size = 16, .threads = 1 + (uint32_t)i % 3, .seed = i};
    if (i < 4 || df_test_long()) attn_rig_check_all(&s);
  }
}

/* ---- masks ---------------------------------------------------------------------------------------------- */

typedef struct block_mask {
  const uint8_t *row; /* of the block */
  uint32_t first, pos;
} block_mask;

static bool sees(const void *ctx, uint32_t p) {
  const block_mask *m = ctx;
  return p <= m->pos && (p < m->first || m->row[p - m->first]);
}

/* QLEN bytes of a batch to FULL bytes. */
static size_t widen(const attn_rig_item *items, uint32_t n, const uint8_t *qlen, uint8_t *full) {
  size_t at = 0, from = 0;
  for (uint32_t i = 0; i < n; i++)
    for (uint32_t j = 0; j < items[i].n; j++) {
      memset(full + at, 1, items[i].first);
      memcpy(full + at + items[i].first, qlen + from, items[i].n);
      at += items[i].first + items[i].n;
      from += items[i].n;
    }
  return at;
}

static void check_masked(attn_rig *r, const attn_rig_item *items, uint32_t n, const uint8_t *mask) {
  double *y = df_calloc(r->width, sizeof *y);
  assert_non_null(y);
  uint32_t row = 0;
  for (uint32_t i = 0; i < n; i++)
    for (uint32_t j = 0; j < items[i].n; j++, row++, mask += items[i].n) {
      const block_mask m = {mask, items[i].first, items[i].first + j};
      attn_rig_oracle(r, items[i].seq, m.pos, items[i].first + items[i].n, sees, &m, y);
      for (uint32_t c = 0; c < r->width; c++)
        if (!(fabs(y[c] - (double)r->out[(size_t)row * r->width + c]) < 4e-6))
          fail_msg("sequence %u, row %u, channel %u", i, j, c);
    }
  df_free(y);
}

/* Random trees in the block, some rows blind: both layouts and both leaves that read masks, with and without padding.
 */
static void test_masks__trees(void **state) {
  (void)state;
  const attn_rig_spec s = {
      .n_kv = 2, .group = 2, .head_dim = 32, .page_size = 16, .threads = 3, .kv = DF_KV_F32, .seed = 5};
  attn_rig r;
  attn_rig_init(&r, &s);
  for (uint32_t i = 0; i < RIG_SEQS; i++) attn_rig_write(&r, i, 0, RIG_LEN);
  uint64_t rng = 99;
  uint8_t qlen[RIG_BATCH * 16 * 16], full[RIG_BATCH * 16 * RIG_LEN];
  float *first = df_calloc((size_t)RIG_ROWS * r.width, sizeof *first);
  assert_non_null(first);
  static const uint32_t k_starts[] = {0, 60, 64, 15, 127, 3};
  for (uint32_t w = 1; w <= 16; w += w < 4 ? 1 : 4) {
    attn_rig_item items[RIG_BATCH];
    const uint32_t n = 1 + w % 5;
    for (uint32_t i = 0; i < n; i++) items[i] = (attn_rig_item){i % RIG_SEQS, k_starts[i], w};
    for (uint32_t i = 0; i < n * w * w; i++) qlen[i] = test_random(&rng) % 3 != 0;
    memset(qlen, 0, w); /* sequence 0 starts at position 0: its first row sees nothing at all */
    const size_t full_bytes = widen(items, n, qlen, full);
    for (uint32_t run = 0; run < 8; run++) {
      df_attn *a = attn_rig_leaf(&r, run & 1 ? 2 : 0);
      const bool wide = run & 2;
      attn_rig_run(&r, a, DF_MODE_TARGET_VERIFY, items, n, run & 4 ? RIG_BATCH : 0, wide ? DF_MASK_FULL : DF_MASK_QLEN,
                   wide ? full : qlen, wide ? full_bytes : (size_t)n * w * w);
      if (run == 0) {
        check_masked(&r, items, n, qlen);
        for (uint32_t c = 0; c < r.width; c++) assert_true(r.out[c] == 0);
        memcpy(first, r.out, (size_t)n * w * r.width * sizeof *first);
      }
      assert_memory_equal(r.out, first, (size_t)n * w * r.width * sizeof *first);
      df_attn_free(a);
    }
  }
  df_free(first);
  attn_rig_release(&r);
}

/* An explicit causal mask says what the leaf does anyway. */
static void test_masks__causal_is_a_no_op(void **state) {
  (void)state;
  const attn_rig_spec s = {.n_kv = 1, .group = 3, .head_dim = 64, .page_size = 64, .threads = 1, .seed = 6};
  attn_rig r;
  attn_rig_init(&r, &s);
  for (uint32_t i = 0; i < RIG_SEQS; i++) attn_rig_write(&r, i, 0, RIG_LEN);
  const attn_rig_item items[2] = {{0, 57, 16}, {2, 120, 16}};
  uint8_t qlen[2 * 16 * 16];
  for (uint32_t i = 0; i < sizeof qlen; i++) qlen[i] = i % 16 <= i / 16 % 16;
  for (uint32_t leaf = 0; leaf < RIG_LEAVES; leaf += 2) {
    df_attn *a = attn_rig_leaf(&r, leaf);
    const size_t bytes = (size_t)32 * r.width * sizeof(float);
    float *plain = df_alloc(bytes);
    assert_non_null(plain);
    attn_rig_run(&r, a, DF_MODE_TARGET_VERIFY, items, 2, 0, DF_MASK_NONE, NULL, 0);
    memcpy(plain, r.out, bytes);
    attn_rig_run(&r, a, DF_MODE_TARGET_VERIFY, items, 2, 0, DF_MASK_QLEN, qlen, sizeof qlen);
    assert_memory_equal(plain, r.out, bytes);
    df_free(plain);
    df_attn_free(a);
  }
  attn_rig_release(&r);
}

/* ---- blocks of a draft ---------------------------------------------------------------------------------- */

/* Every row sees the whole block: against the oracle, and alike on all leaves. */
static void test_leaves__draft_block(void **state) {
  (void)state;
  for (uint32_t window = 0; window <= 40; window += 20) {
    const attn_rig_spec s = {.n_kv = 2,
                             .group = 3,
                             .head_dim = 32,
                             .page_size = window == 20 ? 1 : 16,
                             .threads = 3,
                             .kv = DF_KV_F16,
                             .window = window,
                             .block = true,
                             .seed = 7};
    attn_rig r;
    attn_rig_init(&r, &s);
    attn_rig_poison(&r);
    for (uint32_t i = 0; i < RIG_SEQS; i++) attn_rig_write(&r, i, 0, 129); /* the longest sequence of the batch */
    const attn_rig_item items[3] = {{0, 49, 16}, {1, 0, 16}, {2, 113, 16}};
    float *first = df_calloc((size_t)48 * r.width, sizeof *first);
    double *y = df_calloc(r.width, sizeof *y);
    assert_true(first && y);
    for (uint32_t leaf = 0; leaf < RIG_LEAVES; leaf++) {
      df_attn *a = attn_rig_leaf(&r, leaf);
      attn_rig_run(&r, a, DF_MODE_DRAFT_BLOCK, items, 3, leaf ? 4 : 0, DF_MASK_NONE, NULL, 0);
      if (leaf == 0) memcpy(first, r.out, (size_t)48 * r.width * sizeof *first);
      assert_memory_equal(first, r.out, (size_t)48 * r.width * sizeof *first);
      df_attn_free(a);
    }
    for (uint32_t row = 0; row < 48; row++) {
      const attn_rig_item *it = &items[row / 16];
      attn_rig_oracle(&r, it->seq, it->first + row % 16, it->first + 16, NULL, NULL, y);
      for (uint32_t c = 0; c < r.width; c++)
        if (!(fabs(y[c] - (double)first[(size_t)row * r.width + c]) < 4e-6))
          fail_msg("row %u, channel %u, window %u", row, c, window);
    }
    df_free(first);
    df_free(y);
    attn_rig_release(&r);
  }
}

/* ---- refusals ------------------------------------------------------------------------------------------- */

static void test_splitkv__refuses(void **state) {
  (void)state;
  const attn_rig_spec s = {.n_kv = 1, .group = 4, .head_dim = 32, .page_size = 16, .threads = 1};
  attn_rig r;
  attn_rig_init(&r, &s);
  df_attn *a = attn_rig_leaf(&r, 1);
  static const struct {
    uint32_t rows, seqs;
    df_mask_layout mask;
    df_status want;
  } k[] = {{64, 1, DF_MASK_NONE, DF_OK},
           {128, 8, DF_MASK_NONE, DF_OK},
           {100, 1, DF_MASK_NONE, DF_ERR_LIMIT},
           {160, 1, DF_MASK_NONE, DF_ERR_LIMIT},
           {16, 1, DF_MASK_QLEN, DF_ERR_UNSUPPORTED},
           {16, 1, DF_MASK_FULL, DF_ERR_UNSUPPORTED}};
  for (size_t i = 0; i < DF_COUNT_OF(k); i++) {
    df_error err = {0};
    df_program *p;
    must(df_program_create(k[i].rows, k[i].seqs, 1, &p, &err), &err);
    const df_attn_pass pass = {p, &r.batch, DF_MODE_TARGET_VERIFY, k[i].mask, &r.mask, 0};
    const df_attn_layer layer = {.q = r.q,
                                 .q_ld = r.width,
                                 .out = {.f = r.out, .k = r.width},
                                 .kv = df_kv_store_layer(&r.store, 0),
                                 .causal = true};
    assert_int_equal(a->ops->emit(a, &pass, &layer, &err), k[i].want);
    if (k[i].want != DF_OK) assert_non_null(strstr(err.msg, "splitkv"));
    df_program_free(p);
  }
  df_attn_free(a);
  attn_rig_release(&r);
}

static void test_leaves__refuse_shapes(void **state) {
  (void)state;
  static const df_attn_shape k[] = {{4, 0, 64, 64, 1, NULL, 16},
                                    {5, 2, 64, 64, 1, NULL, 16},
                                    {4, 2, 48, 64, 1, NULL, 16},
                                    {4, 2, 288, 64, 1, NULL, 16},
                                    {129, 1, 64, 64, 1, NULL, 16}};
  df_status (*const create[])(const df_attn_shape *, df_attn **, df_error *) = {
      df_attn_flash_create, df_attn_splitkv_create, df_attn_naive_create, df_attn_cuda_create};
  for (size_t i = 0; i < DF_COUNT_OF(k); i++)
    for (size_t c = 0; c < DF_COUNT_OF(create); c++) {
      df_error err = {0};
      df_attn *a = NULL;
      assert_int_equal(create[c](&k[i], &a, &err), DF_ERR_UNSUPPORTED);
      assert_null(a);
    }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_leaves__page_16),       cmocka_unit_test(test_leaves__page_64),
      cmocka_unit_test(test_leaves__page_1),        cmocka_unit_test(test_leaves__wide_groups),
      cmocka_unit_test(test_masks__trees),          cmocka_unit_test(test_masks__causal_is_a_no_op),
      cmocka_unit_test(test_leaves__draft_block),   cmocka_unit_test(test_splitkv__refuses),
      cmocka_unit_test(test_leaves__refuse_shapes),
  };
  return cmocka_run_group_tests_name("attn_dense", tests, NULL, NULL);
}
