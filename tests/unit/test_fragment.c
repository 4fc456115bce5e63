/* Fragment order and the parts of k: every element has one place, parts cover k, and splitting a strip among warps and
 * blocks hands on whole subtrees. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "base/mem.h"
#include "device/cuda/cuda_kernels.h"
#include "device/fragment.h"
#include "support/kernel_data.h"

static void test_place__one_for_each_element(void **state) {
  (void)state;
  bool used[DF_FRAG_BYTES / 2] = {false};
  for (uint32_t m = 0; m < 16; m++)
    for (uint32_t kk = 0; kk < 16; kk++) {
      const uint32_t at = df_frag_at(m, kk);
      assert_true(at % 2 == 0 && at < DF_FRAG_BYTES);
      assert_false(used[at / 2]);
      used[at / 2] = true;
    }
}

/* The A operand of mma.m16n8k16 as the instruction's manual numbers it: register i of lane l holds row l / 4 + 8 (i
 * odd), columns 2 (l % 4) + 8 (i >= 2) and the next; our k of a column c. */
static void test_place__is_the_instructions_operand(void **state) {
  (void)state;
  for (uint32_t lane = 0; lane < 32; lane++)
    for (uint32_t reg = 0; reg < 4; reg++)
      for (uint32_t half = 0; half < 2; half++) {
        const uint32_t row = lane / 4 + 8 * (reg & 1), column = 2 * (lane % 4) + 8 * (reg >> 1) + half;
        const uint32_t k = 4 * (column % 8 / 2) + 2 * (column / 8) + column % 2;
        assert_int_equal(df_frag_at(row, k), 16 * lane + 4 * reg + 2 * half);
      }
}

static void test_parts__cover_all_tiles_evenly(void **state) {
  (void)state;
  for (uint32_t k = 1; k < 20000; k += 1 + k / 50) {
    const uint32_t tiles = df_frag_tiles(k);
    assert_true(tiles * 16 >= k && tiles * 16 < k + 16);
    assert_int_equal(df_frag_part(tiles, 0), 0);
    assert_int_equal(df_frag_part(tiles, DF_FRAG_PARTS), tiles);
    for (uint32_t p = 0; p < DF_FRAG_PARTS; p++) {
      const uint32_t n = df_frag_part(tiles, p + 1) - df_frag_part(tiles, p);
      assert_true(n >= tiles / DF_FRAG_PARTS && n <= tiles / DF_FRAG_PARTS + 1);
    }
  }
}

static void test_repack__keeps_every_value(void **state) {
  (void)state;
  uint64_t rng = 77;
  for (int i = 0; i < 4; i++) {
    const uint32_t n = i & 1 ? 37 : 32, k = i & 2 ? 51 : 64;
    uint16_t *file = df_calloc((size_t)n * k, 2);
    for (size_t j = 0; j < (size_t)n * k; j++) file[j] = (uint16_t)test_random(&rng);
    df_weights w = {.pack = DF_PACK_BF16, .n = n, .k = k};
    assert_true(df_pack_strip_bytes(w.pack, k, &w.strip_bytes));
    w.data = df_calloc(df_strips(n), w.strip_bytes);
    df_pack_strips(&w, DF_BF16, file, (size_t)k * 2, NULL, 0, df_strips(n));
    const size_t strip = df_cuda_fragment_strip_bytes(k);
    assert_int_equal(df_cuda_weights_bytes(&w), df_strips(n) * strip);
    uint8_t *out = df_alloc(df_strips(n) * strip);
    memset(out, 0xEE, df_strips(n) * strip);
    df_cuda_repack(&w, 0, 1, out);
    df_cuda_repack(&w, 1, df_strips(n), out + strip);
    size_t zeros = 0;
    for (uint32_t r = 0; r < df_strips(n) * 16; r++)
      for (uint32_t c = 0; c < df_frag_tiles(k) * 16; c++) {
        uint16_t got;
        memcpy(&got, out + r / 16 * strip + c / 16 * DF_FRAG_BYTES + df_frag_at(r % 16, c % 16), 2);
        assert_int_equal(got, r < n && c < k ? file[(size_t)r * k + c] : 0);
        zeros += r >= n || c >= k;
      }
    assert_true((i == 0) == (zeros == 0));
    df_free(out);
    df_free(w.data);
    df_free(file);
  }
}

static void test_bytes__other_packs_stay(void **state) {
  (void)state;
  df_weights w = {.pack = DF_PACK_Q4, .n = 33, .k = 64};
  assert_true(df_pack_strip_bytes(w.pack, w.k, &w.strip_bytes));
  assert_false(df_cuda_needs_repack(w.pack));
  assert_int_equal(df_cuda_weights_bytes(&w), 3 * w.strip_bytes);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_place__one_for_each_element),   cmocka_unit_test(test_place__is_the_instructions_operand),
      cmocka_unit_test(test_parts__cover_all_tiles_evenly), cmocka_unit_test(test_repack__keeps_every_value),
      cmocka_unit_test(test_bytes__other_packs_stay),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
