/* F8_E4M3 matrices of safetensors files: the three ways of scaling them, gathered and widened; what is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "model/load.h"
#include "support/kernel_data.h"
#include "support/sample_files.h"

enum { N = 200, K = 320 }; /* 2 x 3 blocks, the last ones cut */
#define NAME "blk.0.ffn_up.weight"
#define HF "model.layers.0.mlp.up_proj.weight"

static const char k_config[] =
    "{\"architectures\":[\"LlamaForCausalLM\"],\"hidden_size\":64,\"num_hidden_layers\":1,\"num_attention_heads\":4,"
    "\"num_key_value_heads\":2,\"intermediate_size\":128,\"vocab_size\":1000,\"max_position_embeddings\":512,"
    "\"quantization_config\":{\"quant_method\":\"fp8\",\"weight_block_size\":[128,128]}}";

/* What a file holds beside 200 x 320 codes. */
typedef struct sample {
  const char *end, *dtype, *shape; /* of the scales; end NULL: none */
  uint32_t count;
  float scale[N]; /* first values, the others are made up */
  uint8_t code;   /* code of element (199, 319) */
} sample;

static float scale_of(const sample *s, uint32_t i) {
  return s->scale[i] != 0 ? s->scale[i] : 0.0078125f * (float)(1 + i % 50);
}

static uint8_t code_of(const sample *s, uint32_t r, uint32_t c) {
  if (r == N - 1 && c == K - 1 && s->code) return s->code;
  const uint8_t code = (uint8_t)(r * 7 + c * 13 + r * c);
  return (code & 0x7F) == 0x7F ? 0x3A : code;
}

static char *folder_of(const sample *s) {
  char *dir = test_dir_create();
  char header[600], scales[200] = "";
  df_buf data, file;
  df_buf_init(&data, SIZE_MAX);
  df_buf_init(&file, SIZE_MAX);
  for (uint32_t r = 0; r < N; r++)
    for (uint32_t c = 0; c < K; c++) test_put(&data, &(uint8_t){code_of(s, r, c)}, 1);
  const bool half = s->end && strcmp(s->dtype, "BF16") == 0;
  for (uint32_t i = 0; s->end && i < s->count; i++) {
    const float v = scale_of(s, i);
    test_put(&data, (const uint8_t *)&v + (half ? 2 : 0), half ? 2 : 4);
  }
  if (s->end)
    (void)snprintf(scales, sizeof scales, ",\"" HF "%s\":{\"dtype\":\"%s\",\"shape\":%s,\"data_offsets\":[%u,%u]}",
                   s->end, s->dtype, s->shape, N * K, (unsigned)data.len);
  (void)snprintf(header, sizeof header,
                 "{\"" HF "\":{\"dtype\":\"F8_E4M3\",\"shape\":[%u,%u],\"data_offsets\":[0,%u]}%s}", N, K, N * K,
                 scales);
  test_put_safetensors(&file, header, data.data, data.len);
  (void)test_dir_write(dir, "config.json", k_config, strlen(k_config));
  (void)test_dir_write(dir, "model.safetensors", file.data, file.len);
  df_buf_release(&data);
  df_buf_release(&file);
  return dir;
}

typedef struct loaded {
  df_pool *pool;
  df_weights w;
  void *block;
  size_t bytes;
} loaded;

/* Loads n rows of the file's matrix; the caller releases what DF_OK brought. */
static df_status load(const char *dir, bool exact, bool q8, const uint32_t *row_of, uint32_t n, loaded *out,
                      df_error *err) {
  df_source *src;
  df_loader *l;
  DF_TRY(df_source_open(dir, &src, err));
  assert_int_equal(df_config_check_supported(df_source_config(src), dir, err), DF_OK);
  assert_int_equal(df_pool_create(2, &out->pool, err), DF_OK);
  assert_int_equal(df_loader_create(src, out->pool, exact, &l, err), DF_OK);
  if (q8) df_loader_round_to(l, DF_Q4_0);
  df_status s = df_loader_gather(l, NAME, n, K, N, row_of, &out->w, err);
  if (s == DF_OK) s = df_loader_run(l, NULL, NULL, &out->block, &out->bytes, err);
  df_loader_free(l);
  df_source_close(src);
  if (s != DF_OK) df_pool_free(out->pool);
  return s;
}

static void unload(loaded *l) {
  df_pages_free(l->block, l->bytes);
  df_pool_free(l->pool);
}

static float value_of(const sample *s, uint32_t r, uint32_t c) {
  uint32_t i = 0;
  if (s->count == N) i = r;
  if (s->count == 6) i = r / 128 * 3 + c / 128;
  return df_e4m3_to_f32(code_of(s, r, c)) * scale_of(s, i);
}

static const sample k_good[] = {
    {"_scale", "F32", "[1]", 1, {0.125f}, 0},     {"_scale", "F32", "[]", 1, {0.0123f}, 0},
    {"_scale", "BF16", "[200,1]", N, {0.5f}, 0},  {"_scale", "F32", "[200]", N, {0}, 0},
    {"_scale_inv", "F32", "[2,3]", 6, {0.3f}, 0}, {"_scale_inv", "BF16", "[2,3]", 6, {0.25f, 0.5f}, 0},
};

static void test_load__scales(void **state) {
  (void)state;
  static const uint32_t order[5] = {199, 0, 127, 128, 77};
  for (size_t i = 0; i < sizeof k_good / sizeof *k_good; i++) {
    char *dir = folder_of(&k_good[i]);
    for (int how = 0; how < 3; how++) { /* as it is, gathered, widened */
      loaded l;
      df_error err = {0};
      float got[K];
      const uint32_t n = how == 1 ? 5 : N;
      uint32_t all[N];
      for (uint32_t r = 0; r < N; r++) all[r] = r;
      if (load(dir, how == 2, false, how == 1 ? order : all, n, &l, &err) != DF_OK) fail_msg("%s", err.msg);
      assert_int_equal(l.w.pack, how == 2 ? DF_PACK_F32 : DF_PACK_F8);
      for (uint32_t r = 0; r < n; r++) {
        df_kernels_get(DF_TIER_REF)->unpack_row(&l.w, r, got);
        for (uint32_t c = 0; c < K; c++) {
          const float want = value_of(&k_good[i], how == 1 ? order[r] : r, c);
          if (memcmp(&want, &got[c], 4) != 0)
            fail_msg("%zu: (%u, %u) is %g, not %g", i, r, c, (double)got[c], (double)want);
        }
      }
      unload(&l);
    }
    test_dir_remove(dir);
  }
}

/* Rounded on the way in: near the values, and smaller. */
static void test_load__rounded(void **state) {
  (void)state;
  char *dir = folder_of(&k_good[4]);
  loaded l;
  df_error err = {0};
  float got[K];
  uint32_t all[N];
  for (uint32_t r = 0; r < N; r++) all[r] = r;
  if (load(dir, false, true, all, N, &l, &err) != DF_OK) fail_msg("%s", err.msg);
  assert_int_equal(l.w.pack, DF_PACK_Q4);
  for (uint32_t r = 0; r < N; r += 13) {
    df_kernels_get(DF_TIER_REF)->unpack_row(&l.w, r, got);
    for (uint32_t b = 0; b < K; b += 32) {
      float most = 0;
      for (uint32_t c = b; c < b + 32; c++) most = fmaxf(most, fabsf(value_of(&k_good[4], r, c)));
      for (uint32_t c = b; c < b + 32; c++) assert_true(fabsf(got[c] - value_of(&k_good[4], r, c)) <= 0.126f * most);
    }
  }
  unload(&l);
  test_dir_remove(dir);
}

static void test_load__refuses(void **state) {
  (void)state;
  static const struct {
    sample s;
    df_status status;
    const char *why;
  } bad[] = {
      {{NULL, NULL, NULL, 0, {0}, 0}, DF_ERR_FORMAT, "its scales are missing"},
      {{"_scale", "F32", "[199]", 199, {0}, 0}, DF_ERR_FORMAT, "the 199 values of tensor \"" HF "_scale\""},
      {{"_scale_inv", "F32", "[3,2]", 6, {0}, 0}, DF_ERR_FORMAT, "one for each block of 128 x 128"},
      {{"_scale_inv", "F32", "[1,2,3]", 6, {0}, 0}, DF_ERR_FORMAT, "of a matrix of 200 x 320"},
      {{"_scale", "I32", "[1]", 1, {0}, 0}, DF_ERR_UNSUPPORTED, "is of type I32, expected floats"},
      {{"_scale", "F32", "[1]", 1, {NAN}, 0}, DF_ERR_FORMAT, "scale 0 of tensor \"" HF "_scale\" is"},
      {{"_scale", "F32", "[200,1]", N, {1, INFINITY}, 0}, DF_ERR_FORMAT, "scale 1 of tensor"},
      {{"_scale_inv", "F32", "[2,3]", 6, {1, 1, -0.5f}, 0}, DF_ERR_FORMAT, "scale 2 of tensor"},
      {{"_scale", "F32", "[1]", 1, {1}, 0xFF}, DF_ERR_FORMAT, "\"" HF "\" has values that are no numbers"},
  };
  uint32_t all[N];
  for (uint32_t r = 0; r < N; r++) all[r] = r;
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    char *dir = folder_of(&bad[i].s);
    loaded l;
    df_error err = {0};
    const df_status s = load(dir, i % 2, false, all, N, &l, &err);
    if (s != bad[i].status || !strstr(err.msg, bad[i].why)) fail_msg("%zu: %s \"%s\"", i, df_status_name(s), err.msg);
    test_dir_remove(dir);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_load__scales),
      cmocka_unit_test(test_load__rounded),
      cmocka_unit_test(test_load__refuses),
  };
  return cmocka_run_group_tests_name("load f8", tests, NULL, NULL);
}
