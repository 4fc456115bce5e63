/* What lies between this project's rows and the kernels of flashinfer-python, run on the host thread by thread: rows to
 * f16 and back (also as 8-bit blocks), masks to bits, lengths. Live rows only; nothing else is touched. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "base/cpu.h"
#include "base/size.h"
#include "device/cuda/third/third_attn.h"
#include "kv/fill.h"

/* emu_third.cpp */
int emu_third_q(const df_cuda_env *env, const df_op_extern *op, uint16_t *q);
int emu_third_out(const df_cuda_env *env, const df_op_extern *op, const uint16_t *o);
int emu_third_mask(const df_cuda_env *env, const df_op_extern *op, const int32_t *mask_start, uint8_t *bits);
int emu_third_lengths(const df_cuda_env *env, const df_op_extern *op, uint32_t *len, uint32_t *first, uint32_t *mask,
                      uint32_t words);

enum { HEADS = 3, HEAD = 64, WIDTH = HEADS * HEAD, LD = WIDTH + 40, ROWS = 40, SEQS = 5, MAX_LEN = 90 };
enum { UNTOUCHED = 0xA5A5 };

static uint32_t g_state = 1;
static uint32_t below(uint32_t n) { return (g_state = g_state * 1664525u + 1013904223u) / 65536u % n; }

typedef struct rig {
  df_cuda_card card;
  df_cuda_env env;
  df_batch batch;
  df_op_extern op;
} rig;

static int rig_make(void **state) {
  static rig r;
  df_error err = {0};
  r = (rig){.env = {.max_rows = ROWS, .max_seqs = SEQS}};
  r.env.card = &r.card;
  assert_int_equal(df_batch_init(&r.batch, ROWS, SEQS, 8, &err), DF_OK);
  df_fill_begin(&r.batch);
  r.op.attn = (df_op_attn){.batch = &r.batch, .n_heads = HEADS, .n_kv = 1, .head_dim = HEAD, .causal = true};
  *state = &r;
  return 0;
}

static int rig_drop(void **state) {
  df_batch_release(&((rig *)*state)->batch);
  return 0;
}

/* A sequence of `rows` rows, `len` positions in all. */
static void add(rig *r, uint32_t rows, uint32_t len) {
  df_batch *b = &r->batch;
  b->kv_len[b->n_seqs++] = len;
  b->n_live = b->n_seqs;
  b->n_rows += rows;
  b->q_start[b->n_seqs] = b->n_rows;
}

/* ---- rows ----------------------------------------------------------------------------------------------- */

static void test_third_q(void **state) {
  rig *r = *state;
  static float q[ROWS * LD];
  static uint16_t got[ROWS * WIDTH];
  for (size_t i = 0; i < DF_COUNT_OF(q); i++) q[i] = ((float)below(1 << 20) - (1 << 19)) * (i % 7 ? 1e-5f : 0.37f);
  r->op.attn.q = q;
  r->op.attn.q_ld = LD;
  for (uint32_t n = 0; n <= ROWS; n += 13) {
    r->batch.n_rows = n;
    for (size_t i = 0; i < DF_COUNT_OF(got); i++) got[i] = UNTOUCHED;
    assert_int_equal(emu_third_q(&r->env, &r->op, got), 0);
    for (uint32_t row = 0; row < ROWS; row++)
      for (uint32_t i = 0; i < WIDTH; i++)
        assert_int_equal(got[row * WIDTH + i], row < n ? df_f32_to_f16(q[row * LD + i]) : UNTOUCHED);
  }
}

static void check_blocks(const df_actq *got, const float *rows, uint32_t n) {
  const df_kernels *k = df_kernels_get(DF_TIER_REF);
  df_actq want[WIDTH / DF_QBLOCK];
  for (uint32_t row = 0; row < n; row++) {
    const uint32_t first = row & ~15u, m = DF_MIN(n - first, 16u);
    k->quantize(rows + (size_t)row * WIDTH, WIDTH, want, 1);
    for (uint32_t b = 0; b < WIDTH / DF_QBLOCK; b++)
      assert_memory_equal(&got[(size_t)first * (WIDTH / DF_QBLOCK) + b * m + (row - first)], &want[b], sizeof *want);
  }
}

/* Floats, blocks, and both; the rounding of the blocks is that of the kernels for any number of rows. */
static void test_third_out(void **state) {
  rig *r = *state;
  static uint16_t o[ROWS * WIDTH];
  static float f[ROWS * WIDTH], want[ROWS * WIDTH];
  static df_actq q[ROWS * WIDTH / DF_QBLOCK];
  for (size_t i = 0; i < DF_COUNT_OF(o); i++) {
    o[i] = df_f32_to_f16(((float)below(1 << 20) - (1 << 19)) * 1e-5f);
    if (i / 32 % 11 == 3) o[i] = 0;
    if (i / 32 % 11 == 5) o[i] = (uint16_t)(1 + below(9)); /* subnormal */
    want[i] = df_f16_to_f32(o[i]);
  }
  static const uint32_t k_rows[] = {0, 1, 2, 15, 16, 17, 33, 40};
  for (size_t i = 0; i < DF_COUNT_OF(k_rows); i++)
    for (int form = 1; form < 4; form++) {
      const uint32_t n = k_rows[i];
      memset(f, 0xA5, sizeof f);
      memset(q, 0xA5, sizeof q);
      r->batch.n_rows = n;
      r->op.attn.out = (df_act){form & 1 ? f : NULL, form & 2 ? q : NULL, WIDTH};
      assert_int_equal(emu_third_out(&r->env, &r->op, o), 0);
      if (form & 1) assert_memory_equal(f, want, n * WIDTH * sizeof *f);
      if (form & 2) check_blocks(q, want, n);
      const uint8_t *rest_f = (const uint8_t *)(f + (form & 1 ? n * WIDTH : 0));
      const uint8_t *rest_q = (const uint8_t *)(q + (form & 2 ? n * WIDTH / DF_QBLOCK : 0));
      for (const uint8_t *p = rest_f; p < (const uint8_t *)(f + DF_COUNT_OF(f)); p++) assert_int_equal(*p, 0xA5);
      for (const uint8_t *p = rest_q; p < (const uint8_t *)(q + DF_COUNT_OF(q)); p++) assert_int_equal(*p, 0xA5);
    }
}

/* ---- masks ---------------------------------------------------------------------------------------------- */

/* Sequences 1.. of the mask belong to this batch (a half of a split pass); its last fills the batch up. */
static void test_third_mask(void **state) {
  rig *r = *state;
  static const uint32_t rows[] = {3, 8, 1, 5}, len[] = {17, MAX_LEN, 64, 1};
  df_error err = {0};
  df_mask_buffer m;
  assert_int_equal(df_mask_buffer_init(&m, SEQS + 1, 4096, &err), DF_OK);
  for (uint32_t s = 0; s < 4; s++) add(r, rows[s], len[s]);
  r->batch.n_live = 3;
  for (uint32_t i = 0; i < 4096; i++) m.bytes[i] = (uint8_t)(below(3) != 0);
  for (uint32_t s = 0; s < 4; s++) m.start[s + 1] = 7 + 1000 * s;
  r->op.attn.mask = &m;
  r->op.attn.seq0 = 1;
  for (int layout = DF_MASK_QLEN; layout <= DF_MASK_FULL; layout++)
    for (int causal = 0; causal < 2; causal++) {
      uint8_t bits[512];
      int32_t start[SEQS] = {0};
      memset(bits, 0xA5, sizeof bits);
      r->op.attn.mask_layout = (df_mask_layout)layout;
      r->op.attn.causal = causal != 0;
      for (uint32_t s = 0, at = 2; s < 4; s++) {
        start[s] = (int32_t)at;
        at += (uint32_t)df_mask_bits_bytes(rows[s], df_seq_len(&r->batch, s)) + 1; /* a gap shows stray writes */
      }
      assert_int_equal(emu_third_mask(&r->env, &r->op, start, bits), 0);
      for (uint32_t s = 0; s < 4; s++) {
        const df_mask_bits want = {s < 3 ? m.bytes + m.start[s + 1] : NULL, (df_mask_layout)layout, rows[s],
                                   s < 3 ? len[s] : rows[s], causal != 0};
        const size_t n = df_mask_bits_bytes(want.rows, want.len);
        for (size_t i = 0; i < n; i++) assert_int_equal(bits[start[s] + (int32_t)i], df_mask_bits_byte(&want, i));
        assert_int_equal(bits[start[s] + (int32_t)n], 0xA5);
      }
      assert_int_equal(bits[1], 0xA5);
    }
  df_mask_buffer_release(&m);
}

/* ---- lengths -------------------------------------------------------------------------------------------- */

static void check_lengths(rig *r, const uint32_t *len, const uint32_t *first, uint32_t words) {
  uint32_t got_len[SEQS + 1], got_first[SEQS + 2], mask[ROWS * 2 + 1];
  memset(got_len, 0xA5, sizeof got_len);
  memset(got_first, 0xA5, sizeof got_first);
  memset(mask, 0xA5, sizeof mask);
  assert_int_equal(emu_third_lengths(&r->env, &r->op, got_len, got_first, mask, words), 0);
  assert_memory_equal(got_len, len, SEQS * sizeof *len);
  assert_memory_equal(got_first, first, (SEQS + 1) * sizeof *first);
  assert_int_equal(got_len[SEQS], 0xA5A5A5A5);
  assert_int_equal(got_first[SEQS + 1], 0xA5A5A5A5);
  for (uint32_t s = 0; s < r->batch.n_seqs; s++)
    for (uint32_t row = first[s]; row < first[s + 1]; row++)
      for (uint32_t i = 0; i < 32 * words; i++) {
        const uint32_t rows = first[s + 1] - first[s];
        const bool sees = r->op.attn.causal ? i <= row - first[s] : i < rows;
        assert_int_equal(mask[row * words + i / 32] >> i % 32 & 1, sees);
      }
  assert_int_equal(mask[r->batch.n_rows * words], 0xA5A5A5A5);
}

static void test_third_lengths(void **state) {
  rig *r = *state;
  for (int causal = 0; causal < 2; causal++) {
    r->op.attn.causal = causal != 0;
    df_fill_begin(&r->batch);
    add(r, 3, 20);
    add(r, 1, 1);
    add(r, 33, 70);
    check_lengths(r, (const uint32_t[]){20, 1, 70, 1, 1}, (const uint32_t[]){0, 3, 4, 37, 37, 37}, 2);
    df_fill_begin(&r->batch);
    for (uint32_t s = 0; s < SEQS; s++) add(r, 8, s < 3 ? 100 + s : 1); /* the last two fill the batch up */
    r->batch.n_live = 3;
    check_lengths(r, (const uint32_t[]){100, 101, 102, 8, 8}, (const uint32_t[]){0, 8, 16, 24, 32, 40}, 1);
    df_fill_begin(&r->batch);
    add(r, 32, 32);
    check_lengths(r, (const uint32_t[]){32, 1, 1, 1, 1}, (const uint32_t[]){0, 32, 32, 32, 32, 32}, 1);
  }
}

int main(void) {
#define CASE(f) cmocka_unit_test_setup_teardown(f, rig_make, rig_drop)
  const struct CMUnitTest tests[] = {
      CASE(test_third_q),
      CASE(test_third_out),
      CASE(test_third_mask),
      CASE(test_third_lengths),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
