/* A batch as lists of pages without gaps, and masks as bits: held against the page allocator's own idea of where a
 * position lies, and against masks written out by hand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "base/size.h"
#include "device/paged.h"
#include "kv/fill.h"

enum { SEQS = 6, BLOCKS = 64, ROWS = 64, POSITIONS = 64 };

static void must(df_status s, const df_error *err) {
  if (s != DF_OK) fail_msg("%s", err->msg);
}

/* Lists that know when somebody writes behind them. */
typedef struct lists {
  df_paged p;
  int32_t q_start[SEQS + 2], page_start[SEQS + 2], last[SEQS + 1], mask_start[SEQS + 1], pages[SEQS * BLOCKS + 1];
} lists;

enum { UNTOUCHED = -7 };

static void lists_init(lists *l, uint32_t max_seqs, size_t max_pages) {
  int32_t *const all[] = {l->q_start, l->page_start, l->last, l->mask_start, l->pages};
  const size_t n[] = {DF_COUNT_OF(l->q_start), DF_COUNT_OF(l->page_start), DF_COUNT_OF(l->last),
                      DF_COUNT_OF(l->mask_start), DF_COUNT_OF(l->pages)};
  for (size_t i = 0; i < DF_COUNT_OF(all); i++)
    for (size_t j = 0; j < n[i]; j++) all[i][j] = UNTOUCHED;
  l->p = (df_paged){max_seqs, max_pages, l->q_start, l->page_start, l->last, l->mask_start, l->pages};
}

typedef struct pool {
  df_pages pages;
  df_kv_seq seq[SEQS];
  df_batch batch;
} pool;

/* Sequences of the given lengths whose pages lie between each other's. */
static void pool_init(pool *t, uint32_t page, const uint32_t *len, uint32_t n) {
  df_error err = {0};
  *t = (pool){{0}, {{0}}, {0}};
  must(df_pages_init(&t->pages, page, SEQS * (POSITIONS + page), &err), &err);
  for (uint32_t s = 0; s < n; s++) must(df_kv_seq_init(&t->seq[s], page, POSITIONS, &err), &err);
  for (uint32_t p = 1; p <= POSITIONS; p++)
    for (uint32_t s = n; s-- > 0;)
      if (p <= len[s]) must(df_kv_seq_reserve(&t->seq[s], &t->pages, p, &err), &err);
  must(df_batch_init(&t->batch, ROWS, SEQS, page == 1 ? POSITIONS : POSITIONS / 16, &err), &err);
  df_fill_begin(&t->batch);
}

static void pool_release(pool *t) {
  for (uint32_t s = 0; s < SEQS; s++) df_kv_seq_release(&t->seq[s], &t->pages);
  df_batch_release(&t->batch);
  df_pages_release(&t->pages);
}

/* ---- lists ---------------------------------------------------------------------------------------------- */

/* Every position lies where the allocator put it. */
static void positions_are_found(const lists *l, const pool *t, uint32_t s, uint32_t len, uint32_t per) {
  const int32_t n = l->page_start[s + 1] - l->page_start[s];
  assert_int_equal(n, (len + per - 1) / per);
  assert_int_equal((uint32_t)(n - 1) * per + (uint32_t)l->last[s], len);
  for (uint32_t p = 0; p < len; p++)
    assert_int_equal((uint32_t)l->pages[l->page_start[s] + (int32_t)(p / per)] * per + p % per,
                     df_kv_slot(&t->seq[s], p));
}

static void test_paged_build__positions_by_page_size(void **state) {
  (void)state;
  static const uint32_t k_page[] = {1, 16, 64}, len[] = {1, 15, 16, 17, 64}, rows[] = {1, 3, 16, 2, 5};
  const int32_t ids[16] = {0};
  for (size_t i = 0; i < DF_COUNT_OF(k_page); i++) {
    df_error err = {0};
    pool t;
    lists l;
    pool_init(&t, k_page[i], len, 5);
    for (uint32_t s = 0; s < 5; s++) (void)df_fill_add(&t.batch, &t.seq[s], ids, rows[s], len[s] - rows[s], DF_OUT_ALL);
    const uint32_t per = k_page[i] == 1 ? 1 : 16;
    lists_init(&l, SEQS, SEQS * BLOCKS);
    must(df_paged_build(&l.p, &t.batch, per, 5, false, &err), &err);
    uint32_t row = 0;
    for (uint32_t s = 0; s < 5; s++) {
      assert_int_equal(l.q_start[s], row);
      positions_are_found(&l, &t, s, len[s], per);
      row += rows[s];
    }
    assert_int_equal(l.q_start[5], row);
    assert_int_equal(l.page_start[0], 0);
    assert_int_equal(l.pages[l.page_start[5]], UNTOUCHED); /* no gaps, nothing behind */
    assert_int_equal(l.q_start[6], UNTOUCHED);
    assert_int_equal(l.last[5], UNTOUCHED);
    assert_int_equal(l.mask_start[0], UNTOUCHED);
    pool_release(&t);
  }
}

/* A program for more sequences than there are: the rest has no rows and no pages. */
static void test_paged_build__sequences_that_are_not_there(void **state) {
  (void)state;
  df_error err = {0};
  const uint32_t len[] = {20, 7};
  const int32_t ids[4] = {0};
  pool t;
  lists l;
  pool_init(&t, 16, len, 2);
  (void)df_fill_add(&t.batch, &t.seq[0], ids, 4, 16, DF_OUT_ALL);
  (void)df_fill_add(&t.batch, &t.seq[1], ids, 1, 6, DF_OUT_ALL);
  lists_init(&l, SEQS, SEQS * BLOCKS);
  must(df_paged_build(&l.p, &t.batch, 16, 5, true, &err), &err);
  const int32_t q_start[] = {0, 4, 5, 5, 5, 5, UNTOUCHED}, page_start[] = {0, 2, 3, 3, 3, 3, UNTOUCHED},
                last[] = {4, 7, 0, 0, 0, UNTOUCHED}, mask_start[] = {0, 10, 11, 11, 11, UNTOUCHED};
  assert_memory_equal(l.q_start, q_start, sizeof q_start);
  assert_memory_equal(l.page_start, page_start, sizeof page_start);
  assert_memory_equal(l.last, last, sizeof last);
  assert_memory_equal(l.mask_start, mask_start, sizeof mask_start); /* 4 x 20 bits, 1 x 7 */
  pool_release(&t);
}

/* Sequences that fill a uniform batch up see as many positions of the sink as they have rows. */
static void test_paged_build__padding(void **state) {
  (void)state;
  df_error err = {0};
  const uint32_t len[] = {30};
  const int32_t ids[8] = {0};
  pool t;
  lists l;
  pool_init(&t, 16, len, 1);
  (void)df_fill_add(&t.batch, &t.seq[0], ids, 8, 22, DF_OUT_ALL);
  df_fill_pad(&t.batch, 3, 8);
  lists_init(&l, SEQS, SEQS * BLOCKS);
  must(df_paged_build(&l.p, &t.batch, 16, 3, true, &err), &err);
  const int32_t q_start[] = {0, 8, 16, 24}, page_start[] = {0, 2, 3, 4}, last[] = {14, 8, 8},
                mask_start[] = {0, 30, 38};
  assert_memory_equal(l.q_start, q_start, sizeof q_start);
  assert_memory_equal(l.page_start, page_start, sizeof page_start);
  assert_memory_equal(l.last, last, sizeof last);
  assert_memory_equal(l.mask_start, mask_start, sizeof mask_start);
  assert_int_equal(l.pages[2], 0); /* the sink */
  assert_int_equal(l.pages[3], 0);
  assert_int_equal(df_seq_len(&t.batch, 0), 30);
  assert_int_equal(df_seq_len(&t.batch, 1), 8);
  pool_release(&t);
}

static void test_paged_build__refused(void **state) {
  (void)state;
  df_error err = {0};
  const uint32_t len[] = {40, 40};
  const int32_t ids[1] = {0};
  pool t;
  lists l;
  pool_init(&t, 16, len, 2);
  for (uint32_t s = 0; s < 2; s++) (void)df_fill_add(&t.batch, &t.seq[s], ids, 1, 39, DF_OUT_ALL);
  lists_init(&l, SEQS, 5); /* six pages are needed */
  assert_int_equal(df_paged_build(&l.p, &t.batch, 16, 2, false, &err), DF_ERR_LIMIT);
  assert_int_equal(l.pages[5], UNTOUCHED);
  lists_init(&l, SEQS, 6);
  must(df_paged_build(&l.p, &t.batch, 16, 2, false, &err), &err);
  t.batch.kv_len[1] = 65; /* beyond the table's four entries */
  lists_init(&l, SEQS, SEQS * BLOCKS);
  assert_int_equal(df_paged_build(&l.p, &t.batch, 16, 2, false, &err), DF_ERR_LIMIT);
  assert_string_equal(err.msg, "65 positions of sequence 1 pass its 4 pages of 16");
  t.batch.kv_len[1] = 40;
  assert_int_equal(df_paged_build(&l.p, &t.batch, 16, 1, false, &err), DF_ERR_INTERNAL);
  l.p.max_seqs = 1;
  assert_int_equal(df_paged_build(&l.p, &t.batch, 16, 2, false, &err), DF_ERR_INTERNAL);
  pool_release(&t);
}

/* ---- masks ---------------------------------------------------------------------------------------------- */

static void bytes_are(const df_mask_bits *m, const uint8_t *want, size_t n) {
  assert_int_equal(df_mask_bits_bytes(m->rows, m->len), n);
  for (size_t i = 0; i < n; i++) assert_int_equal(df_mask_bits_byte(m, i), want[i]);
}

/* Bits from the lowest up, rows without padding between them. */
static void test_mask_bits__by_hand(void **state) {
  (void)state;
  const uint8_t full[2 * 5] = {1, 0, 1, 1, 0, 0, 1, 1, 0, 1}, qlen[2 * 2] = {1, 0, 0, 1};
  const uint8_t any_true[3] = {0, 2, 255};
  df_mask_bits m = {full, DF_MASK_FULL, 2, 5, false};
  bytes_are(&m, (const uint8_t[]){0xCD, 0x02}, 2);
  m.causal = true; /* row 0 sees positions 0..3, row 1 all */
  bytes_are(&m, (const uint8_t[]){0xCD, 0x02}, 2);
  m = (df_mask_bits){qlen, DF_MASK_QLEN, 2, 5, false};
  bytes_are(&m, (const uint8_t[]){0xEF, 0x02}, 2); /* 11110 11101 */
  m = (df_mask_bits){NULL, DF_MASK_FULL, 3, 4, true};
  bytes_are(&m, (const uint8_t[]){0x73, 0x0F}, 2); /* 1100 1110 1111 */
  m.causal = false;
  bytes_are(&m, (const uint8_t[]){0xFF, 0x0F}, 2); /* nothing behind the last row */
  m = (df_mask_bits){any_true, DF_MASK_FULL, 1, 3, false};
  bytes_are(&m, (const uint8_t[]){0x06}, 1);
}

/* Every bit of every size is what its byte and causality say. */
static void test_mask_bits__all_sizes(void **state) {
  (void)state;
  uint8_t bytes[9 * 20];
  uint32_t x = 12345;
  for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (uint8_t)((x = x * 1103515245u + 12345u) >> 16 & 1);
  for (uint32_t rows = 1; rows <= 9; rows++)
    for (uint32_t len = rows; len <= 20; len++)
      for (int layout = DF_MASK_QLEN; layout <= DF_MASK_FULL; layout++)
        for (int causal = 0; causal < 2; causal++) {
          const df_mask_bits m = {bytes, (df_mask_layout)layout, rows, len, causal != 0};
          for (uint32_t r = 0; r < rows; r++)
            for (uint32_t c = 0; c < len; c++) {
              const int32_t own = (int32_t)c - (int32_t)(len - rows); /* row that position c belongs to */
              bool want = layout == DF_MASK_FULL ? bytes[r * len + c] : own < 0 || bytes[r * rows + (uint32_t)own];
              if (causal && own > (int32_t)r) want = false;
              const uint32_t bit = r * len + c;
              assert_int_equal(df_mask_bits_byte(&m, bit / 8) >> bit % 8 & 1, want);
            }
        }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_paged_build__positions_by_page_size),
      cmocka_unit_test(test_paged_build__sequences_that_are_not_there),
      cmocka_unit_test(test_paged_build__padding),
      cmocka_unit_test(test_paged_build__refused),
      cmocka_unit_test(test_mask_bits__by_hand),
      cmocka_unit_test(test_mask_bits__all_sizes),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
