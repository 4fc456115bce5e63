/* df_config from GGUF metadata. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "format/config.h"
#include "support/sample_files.h"

#define OK(expr) assert_int_equal((expr), DF_OK)

static const uint8_t k_zeros[1 << 16];

static void u32(df_gguf_writer *w, const char *arch, const char *suffix, uint32_t v) {
  char key[96];
  (void)snprintf(key, sizeof key, "%s.%s", arch, suffix);
  OK(df_gguf_put_u32(w, key, v, NULL));
}

static void f32(df_gguf_writer *w, const char *arch, const char *suffix, float v) {
  char key[96];
  (void)snprintf(key, sizeof key, "%s.%s", arch, suffix);
  OK(df_gguf_put_f32(w, key, v, NULL));
}

static void tensor(df_gguf_writer *w, const char *name) {
  OK(df_gguf_put_tensor(w, name, 0, 1, (const uint64_t[]){32}, k_zeros, NULL));
}

/* The metadata that every architecture needs: 3 layers, 64 wide, 4 / 2 heads. */
static df_gguf_writer *base(const char *arch) {
  df_gguf_writer *w = NULL;
  OK(df_gguf_writer_create(&w, NULL));
  OK(df_gguf_put_cstr(w, "general.architecture", arch, NULL));
  u32(w, arch, "block_count", 3);
  u32(w, arch, "embedding_length", 64);
  u32(w, arch, "feed_forward_length", 128);
  u32(w, arch, "attention.head_count", 4);
  u32(w, arch, "attention.head_count_kv", 2);
  u32(w, arch, "context_length", 512);
  f32(w, arch, "attention.layer_norm_rms_epsilon", 1e-5f);
  return w;
}

static df_gguf_writer *base_draft(void) {
  df_gguf_writer *w = base("dflash");
  OK(df_gguf_put_array(w, "dflash.target_layers", DF_GGUF_I32, (const int32_t[]){2, 8, 14}, 3, NULL));
  u32(w, "dflash", "attention.key_length", 32);
  u32(w, "dflash", "attention.value_length", 32);
  return w;
}

static df_status read(df_gguf_writer *w, df_config *c, df_error *err) {
  df_buf b;
  df_gguf *g = NULL;
  df_buf_init(&b, 0);
  OK(df_gguf_write_buf(w, NULL, NULL, &b, NULL));
  df_gguf_writer_free(w);
  OK(df_gguf_open_bytes(b.data, b.len, "m.gguf", &g, NULL));
  df_status s = df_config_from_gguf(g, c, err);
  df_gguf_free(g);
  df_buf_release(&b);
  return s;
}

static df_config must_read(df_gguf_writer *w) {
  df_config c;
  df_error err = {0};
  if (read(w, &c, &err) != DF_OK) fail_msg("%s", err.msg);
  return c;
}

static void expect_bad(df_gguf_writer *w, df_status want, const char *why) {
  df_config c;
  df_error err = {0};
  df_status s = read(w, &c, &err);
  if (s != want || !strstr(err.msg, why)) fail_msg("got %s \"%s\"", df_status_name(s), err.msg);
  assert_non_null(strstr(err.msg, "m.gguf"));
}

static void expect_unsupported(df_gguf_writer *w, const char *what) {
  df_error err = {0};
  df_config c = must_read(w);
  assert_int_equal(df_config_check_supported(&c, "m.gguf", &err), DF_ERR_UNSUPPORTED);
  if (!strstr(err.msg, what)) fail_msg("message \"%s\" lacks \"%s\"", err.msg, what);
}

static void test_config_from_gguf__llama(void **state) {
  (void)state;
  df_gguf_writer *w = base("llama");
  u32(w, "llama", "vocab_size", 1000);
  f32(w, "llama", "rope.freq_base", 100000);
  u32(w, "llama", "rope.dimension_count", 8);
  df_config c = must_read(w);
  assert_string_equal(c.arch, "llama");
  assert_false(c.is_draft);
  assert_int_equal(c.n_layers, 3);
  assert_int_equal(c.hidden, 64);
  assert_int_equal(c.n_heads, 4);
  assert_int_equal(c.n_kv_heads, 2);
  assert_int_equal(c.head_dim, 16);
  assert_int_equal(c.ffn, 128);
  assert_int_equal(c.vocab, 1000);
  assert_int_equal(c.context_length, 512);
  assert_true(c.rms_eps == 1e-5f);
  assert_true(c.tie_embeddings); /* no output.weight */
  assert_false(c.attention_bias || c.attention_out_bias || c.qk_norm);
  assert_true(c.rope.interleaved);
  assert_true(c.rope.base == 1e5f);
  assert_int_equal(c.rope.dim, 8);
  assert_int_equal(c.rope.scaling, DF_ROPE_NONE);
  OK(df_config_check_supported(&c, "x", NULL));
}

static void test_config_from_gguf__facts_from_tensors(void **state) {
  (void)state;
  const df_gguf_str tokens[] = {{"a", 1}, {"b", 1}, {"c", 1}};
  df_gguf_writer *w = base("qwen2");
  OK(df_gguf_put_str_array(w, "tokenizer.ggml.tokens", tokens, 3, NULL));
  tensor(w, "output.weight");
  tensor(w, "blk.0.attn_q.bias");
  df_config c = must_read(w);
  assert_int_equal(c.vocab, 3);
  assert_false(c.tie_embeddings);
  assert_true(c.attention_bias);
  assert_false(c.attention_out_bias);
  assert_false(c.rope.interleaved);
  assert_true(c.rope.base == 10000);
  w = base("qwen3");
  u32(w, "qwen3", "vocab_size", 9);
  u32(w, "qwen3", "attention.key_length", 32);
  tensor(w, "blk.0.attn_q_norm.weight");
  c = must_read(w);
  assert_true(c.qk_norm);
  assert_int_equal(c.head_dim, 32);
}

static void test_config_from_gguf__per_layer_numbers(void **state) {
  (void)state;
  df_gguf_writer *w = NULL;
  for (int equal = 0; equal < 2; equal++) {
    const uint32_t heads[] = {4, 4, equal ? 4 : 2};
    OK(df_gguf_writer_create(&w, NULL));
    OK(df_gguf_put_cstr(w, "general.architecture", "llama", NULL));
    u32(w, "llama", "block_count", 3);
    u32(w, "llama", "embedding_length", 64);
    u32(w, "llama", "feed_forward_length", 128);
    u32(w, "llama", "vocab_size", 10);
    OK(df_gguf_put_array(w, "llama.attention.head_count", DF_GGUF_U32, heads, 3, NULL));
    f32(w, "llama", "attention.layer_norm_rms_epsilon", 1e-5f);
    if (equal) {
      df_config c = must_read(w);
      assert_int_equal(c.n_heads, 4);
      assert_int_equal(c.n_kv_heads, 4);
      OK(df_config_check_supported(&c, "x", NULL));
    } else {
      expect_unsupported(w, "a different \"llama.attention.head_count\" per layer");
    }
  }
}

static void test_config_from_gguf__rope_scaling(void **state) {
  (void)state;
  df_gguf_writer *w = base("qwen3");
  u32(w, "qwen3", "vocab_size", 9);
  OK(df_gguf_put_cstr(w, "qwen3.rope.scaling.type", "yarn", NULL));
  f32(w, "qwen3", "rope.scaling.factor", 4);
  u32(w, "qwen3", "rope.scaling.original_context_length", 128);
  f32(w, "qwen3", "rope.scaling.yarn_beta_fast", 24);
  f32(w, "qwen3", "rope.scaling.attn_factor", 2);
  df_config c = must_read(w);
  assert_int_equal(c.rope.scaling, DF_ROPE_YARN);
  assert_true(c.rope.factor == 4 && c.rope.beta_fast == 24 && c.rope.beta_slow == 1);
  assert_int_equal(c.rope.original_context, 128);
  assert_true(c.rope.has_attention_factor);
  assert_true(fabs((double)c.rope.attention_factor - 2 * (0.1 * log(4) + 1)) < 1e-6);
  w = base("llama");
  u32(w, "llama", "vocab_size", 9);
  f32(w, "llama", "rope.scale_linear", 2);
  c = must_read(w);
  assert_int_equal(c.rope.scaling, DF_ROPE_LINEAR);
  assert_true(c.rope.factor == 2);
  w = base("llama");
  u32(w, "llama", "vocab_size", 9);
  OK(df_gguf_put_cstr(w, "llama.rope.scaling.type", "none", NULL));
  f32(w, "llama", "rope.scaling.factor", 2);
  c = must_read(w);
  assert_int_equal(c.rope.scaling, DF_ROPE_NONE);
  assert_true(c.rope.factor == 1);
  w = base("llama");
  u32(w, "llama", "vocab_size", 9);
  OK(df_gguf_put_cstr(w, "llama.rope.scaling.type", "longrope", NULL));
  expect_unsupported(w, "rope scaling \"longrope\"");
  w = base("llama");
  u32(w, "llama", "vocab_size", 9);
  OK(df_gguf_put_cstr(w, "llama.rope.scaling.type", "linear", NULL));
  f32(w, "llama", "rope.scaling.factor", -2);
  expect_bad(w, DF_ERR_FORMAT, "the rope factor is -2");
}

static void test_config_from_gguf__draft(void **state) {
  (void)state;
  df_config c = must_read(base_draft());
  assert_true(c.is_draft);
  assert_int_equal(c.head_dim, 32);
  assert_int_equal(c.n_taps, 3);
  assert_int_equal(c.taps[0], 1); /* the file counts inputs of the next layer */
  assert_int_equal(c.taps[1], 7);
  assert_int_equal(c.taps[2], 13);
  assert_int_equal(c.block_size, 16);
  assert_int_equal(c.mask_token_id, -1);
  assert_int_equal(c.vocab, 0);
  assert_false(c.tie_embeddings);
  assert_false(c.has_causal_key || c.causal[0]);
  assert_true(c.logit_scale == 1 && c.embedding_scale == 1);
  df_gguf_writer *w = base_draft();
  u32(w, "dflash", "block_size", 8);
  u32(w, "dflash", "vocab_size", 1000);
  OK(df_gguf_put_u32(w, "tokenizer.ggml.mask_token_id", 999, NULL));
  OK(df_gguf_put_bool(w, "dflash.attention.causal", true, NULL));
  u32(w, "dflash", "attention.sliding_window", 24);
  OK(df_gguf_put_array(w, "dflash.attention.sliding_window_pattern", DF_GGUF_BOOL, (const uint8_t[]){1, 0, 1}, 3,
                       NULL));
  f32(w, "dflash", "logit_scale", 0);
  f32(w, "dflash", "embedding_scale", 8);
  c = must_read(w);
  assert_int_equal(c.block_size, 8);
  assert_int_equal(c.mask_token_id, 999);
  assert_true(c.has_causal_key && c.causal[0] && c.causal[1] && c.causal[2]);
  assert_int_equal(c.sliding_window, 24);
  assert_true(c.sliding[0] && !c.sliding[1] && c.sliding[2]);
  assert_true(c.logit_scale == 1); /* 0 is off */
  assert_true(c.embedding_scale == 8);
}

/* Two keys give the early fork away, whose layer numbers are not shifted. */
static void test_config_from_gguf__early_fork(void **state) {
  (void)state;
  df_gguf_writer *w = base_draft();
  u32(w, "dflash", "mask_token_id", 55);
  df_config c = must_read(w);
  assert_int_equal(c.taps[0], 2);
  assert_int_equal(c.taps[2], 14);
  assert_int_equal(c.mask_token_id, 55);
  w = base_draft();
  u32(w, "dflash", "target_hidden_size", 64);
  OK(df_gguf_put_u32(w, "tokenizer.ggml.mask_token_id", 7, NULL));
  c = must_read(w);
  assert_int_equal(c.taps[0], 2);
  assert_int_equal(c.mask_token_id, 7);
}

static void test_config_from_gguf__bad_drafts(void **state) {
  (void)state;
  expect_bad(base("dflash"), DF_ERR_FORMAT, "\"dflash.target_layers\" needs 1 to 64 layer numbers");
  df_gguf_writer *w = base("dflash");
  OK(df_gguf_put_array(w, "dflash.target_layers", DF_GGUF_I32, (const int32_t[]){3, 0}, 2, NULL));
  expect_bad(w, DF_ERR_FORMAT, "names the layer 0");
  w = base("dflash");
  OK(df_gguf_put_array(w, "dflash.target_layers", DF_GGUF_I64, (const int64_t[]){1ll << 40}, 1, NULL));
  expect_bad(w, DF_ERR_FORMAT, "names the layer 1099511627776");
  w = base("dflash");
  OK(df_gguf_put_array(w, "dflash.target_layers", DF_GGUF_I64, (const int64_t[]){INT64_MIN}, 1, NULL));
  expect_bad(w, DF_ERR_FORMAT, "names the layer -9223372036854775808");
  w = base_draft();
  u32(w, "dflash", "attention.sliding_window", 24);
  expect_bad(w, DF_ERR_FORMAT, "needs one bool for each of 3 layers");
  w = base_draft();
  u32(w, "dflash", "block_size", 0);
  expect_bad(w, DF_ERR_FORMAT, "the block size is 0");
  w = base_draft();
  u32(w, "dflash", "vocab_size", 10);
  OK(df_gguf_put_u32(w, "tokenizer.ggml.mask_token_id", 10, NULL));
  expect_bad(w, DF_ERR_FORMAT, "the mask token id is 10, expected 0 to 9");
}

static void test_config_from_gguf__refuses_variants(void **state) {
  (void)state;
  const struct {
    const char *tensor, *what;
  } tensors[] = {{"selector_hidden.weight", "DFlash2 candidate selector"},
                 {"markov_w1.weight", "DSpark markov head"},
                 {"d2t", "reduced draft vocabulary"},
                 {"blk.0.attn_sinks.weight", "attention sinks"},
                 {"blk.0.attn_conv_base", "convolution"},
                 {"fc.scale", "fc.scale"}};
  for (size_t i = 0; i < sizeof tensors / sizeof tensors[0]; i++) {
    df_gguf_writer *w = base_draft();
    tensor(w, tensors[i].tensor);
    expect_unsupported(w, tensors[i].what);
  }
  df_gguf_writer *w = base_draft();
  u32(w, "dflash", "hyper_connection_count", 4);
  expect_unsupported(w, "hyper connections");
  w = base_draft();
  f32(w, "dflash", "attention.value_scale", 0.5f);
  expect_unsupported(w, "value scale of 0.5");
  w = base("llama");
  u32(w, "llama", "vocab_size", 9);
  tensor(w, "blk.0.ffn_gate_inp.weight");
  expect_unsupported(w, "mixture of experts");
}

static void test_config_from_gguf__refuses_files(void **state) {
  (void)state;
  df_config c;
  df_error err = {0};
  assert_int_equal(read(base("mamba"), &c, &err), DF_ERR_UNSUPPORTED);
  assert_string_equal(err.msg, "could not use \"m.gguf\": architecture \"mamba\" is not supported");
  assert_string_equal(err.hint, "supported: llama, qwen2, qwen3, dflash");
  expect_bad(base("llama"), DF_ERR_FORMAT, "the vocabulary size is 0");
  df_gguf_writer *w = base("llama");
  u32(w, "llama", "vocab_size", 9);
  u32(w, "llama", "attention.key_length", 16);
  u32(w, "llama", "attention.value_length", 8);
  expect_bad(w, DF_ERR_UNSUPPORTED, "value heads of width 8 differ");
  w = base("llama");
  u32(w, "llama", "vocab_size", 9);
  u32(w, "llama", "rope.dimension_count", 7);
  expect_bad(w, DF_ERR_FORMAT, "7 rotating channels of a head of 16");
  OK(df_gguf_writer_create(&w, NULL));
  expect_bad(w, DF_ERR_FORMAT, "key \"general.architecture\" is missing");
  OK(df_gguf_writer_create(&w, NULL));
  OK(df_gguf_put_cstr(w, "general.architecture", "llama", NULL));
  expect_bad(w, DF_ERR_FORMAT, "key \"llama.block_count\" is missing");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_config_from_gguf__llama),
      cmocka_unit_test(test_config_from_gguf__facts_from_tensors),
      cmocka_unit_test(test_config_from_gguf__per_layer_numbers),
      cmocka_unit_test(test_config_from_gguf__rope_scaling),
      cmocka_unit_test(test_config_from_gguf__draft),
      cmocka_unit_test(test_config_from_gguf__early_fork),
      cmocka_unit_test(test_config_from_gguf__bad_drafts),
      cmocka_unit_test(test_config_from_gguf__refuses_variants),
      cmocka_unit_test(test_config_from_gguf__refuses_files),
  };
  return cmocka_run_group_tests_name("config_gguf", tests, NULL, NULL);
}
