/* df_config from config.json files. GGUF: test_config_gguf.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "base/size.h"
#include "format/config.h"
#include "support/sample_files.h"

#define OK(expr) assert_int_equal((expr), DF_OK)

static df_config load_golden(const char *name) {
  char path[512];
  df_config c;
  df_error err = {0};
  (void)snprintf(path, sizeof path, "%s/tests/golden/%s", DF_SOURCE_DIR, name);
  if (df_config_load_hf(path, &c, &err) != DF_OK) fail_msg("%s", err.msg);
  return c;
}

static df_status read_text(const char *text, df_config *c, df_error *err) {
  df_json *root = NULL;
  df_status s = df_json_parse(text, strlen(text), &root, err);
  if (s != DF_OK) return s;
  s = df_config_from_hf(root, "c.json", c, err);
  df_json_free(root);
  return s;
}

/* A small config of the architecture with more members. */
static df_status read_small(const char *arch, const char *more, df_config *c, df_error *err) {
  char text[2048];
  int n = snprintf(text, sizeof text,
                   "{\"architectures\":[\"%s\"],\"hidden_size\":64,\"num_hidden_layers\":3,\"num_attention_heads\":4,"
                   "\"num_key_value_heads\":2,\"intermediate_size\":128,\"vocab_size\":1000,"
                   "\"max_position_embeddings\":512%s%s}",
                   arch, *more ? "," : "", more);
  assert_true(n > 0 && (size_t)n < sizeof text);
  return read_text(text, c, err);
}

static df_config small(const char *arch, const char *more) {
  df_config c;
  df_error err = {0};
  if (read_small(arch, more, &c, &err) != DF_OK) fail_msg("%s: %s", more, err.msg);
  return c;
}

static void expect_bad(const char *arch, const char *more, df_status want, const char *why) {
  df_config c = {.hidden = 12345};
  df_error err = {0};
  df_status s = read_small(arch, more, &c, &err);
  if (s != want || !strstr(err.msg, why)) fail_msg("%s: got %s \"%s\"", more, df_status_name(s), err.msg);
  assert_non_null(strstr(err.msg, "c.json"));
  assert_int_equal(c.hidden, 12345); /* outputs only on success */
}

static void expect_unsupported(const char *arch, const char *more, const char *what) {
  df_error err = {0};
  df_config c = small(arch, more);
  assert_int_equal(df_config_check_supported(&c, "c.json", &err), DF_ERR_UNSUPPORTED);
  if (!strstr(err.msg, what)) fail_msg("%s: message \"%s\" lacks \"%s\"", more, err.msg, what);
}

#define DRAFT "DFlashDraftModel"
#define TAPS "\"dflash_config\":{\"target_layer_ids\":[1,2]}"

static void test_config_load_hf__qwen2_5(void **state) {
  (void)state;
  df_config c = load_golden("config-qwen2.5-1.5b.json");
  assert_string_equal(c.arch, "qwen2");
  assert_false(c.is_draft);
  assert_int_equal(c.n_layers, 28);
  assert_int_equal(c.hidden, 1536);
  assert_int_equal(c.n_heads, 12);
  assert_int_equal(c.n_kv_heads, 2);
  assert_int_equal(c.head_dim, 128);
  assert_int_equal(c.ffn, 8960);
  assert_int_equal(c.vocab, 151936);
  assert_int_equal(c.context_length, 32768);
  assert_true(c.rms_eps == 1e-6f);
  assert_true(c.tie_embeddings);
  assert_true(c.attention_bias); /* the family has q, k, v biases without saying so */
  assert_false(c.attention_out_bias);
  assert_false(c.qk_norm);
  assert_int_equal(c.sliding_window, 0); /* use_sliding_window is false */
  assert_true(c.rope.base == 1e6f);
  assert_int_equal(c.rope.dim, 128);
  assert_int_equal(c.rope.scaling, DF_ROPE_NONE);
  assert_false(c.rope.interleaved);
  OK(df_config_check_supported(&c, "x", NULL));
}

static void test_config_load_hf__qwen3(void **state) {
  (void)state;
  df_config c = load_golden("config-qwen3-8b.json");
  assert_string_equal(c.arch, "qwen3");
  assert_int_equal(c.n_layers, 36);
  assert_int_equal(c.head_dim, 128);
  assert_int_equal(c.context_length, 40960);
  assert_true(c.qk_norm);
  assert_false(c.attention_bias);
  assert_false(c.tie_embeddings);
  assert_true(c.rope.base == 1e6f); /* written as an integer there */
  OK(df_config_check_supported(&c, "x", NULL));
}

static void test_config_load_hf__llama3_rope(void **state) {
  (void)state;
  df_config c = load_golden("config-llama3.1-8b.json");
  assert_string_equal(c.arch, "llama");
  assert_int_equal(c.head_dim, 128);
  assert_int_equal(c.vocab, 128256);
  assert_int_equal(c.context_length, 131072);
  assert_true(c.rms_eps == 1e-5f);
  assert_int_equal(c.rope.scaling, DF_ROPE_LLAMA3);
  assert_true(c.rope.base == 500000);
  assert_true(c.rope.factor == 8);
  assert_true(c.rope.low_freq_factor == 1);
  assert_true(c.rope.high_freq_factor == 4);
  assert_int_equal(c.rope.original_context, 8192);
  OK(df_config_check_supported(&c, "x", NULL));
}

static void test_config_load_hf__draft(void **state) {
  (void)state;
  const uint32_t taps[] = {1, 8, 14, 20, 27};
  df_config c = load_golden("config-smollm2-dflash.json");
  assert_string_equal(c.arch, "dflash");
  assert_true(c.is_draft);
  assert_int_equal(c.n_layers, 5);
  assert_int_equal(c.hidden, 576);
  assert_int_equal(c.n_heads, 9);
  assert_int_equal(c.n_kv_heads, 3);
  assert_int_equal(c.head_dim, 64);
  assert_int_equal(c.ffn, 1536);
  assert_true(c.qk_norm);
  assert_int_equal(c.block_size, 16);
  assert_int_equal(c.mask_token_id, 16);
  assert_int_equal(c.n_taps, 5);
  assert_memory_equal(c.taps, taps, sizeof taps);
  assert_false(c.taps_by_rule);
  assert_int_equal(c.n_target_layers, 30);
  assert_true(c.has_causal_key);
  assert_false(c.causal[0]);
  assert_true(c.logit_scale == 1 && c.embedding_scale == 1);
  assert_true(c.rope.base == 1e5f);
  OK(df_config_check_supported(&c, "x", NULL));
}

static void test_config_load_hf__draft_with_windows_and_yarn(void **state) {
  (void)state;
  df_config c = load_golden("config-qwen3.6-27b-dflash.json");
  assert_int_equal(c.block_size, 16); /* dflash_config wins over the 8 at the top */
  assert_int_equal(c.mask_token_id, 248070);
  assert_int_equal(c.taps[4], 61);
  assert_int_equal(c.sliding_window, 2048);
  for (int i = 0; i < 5; i++) {
    assert_int_equal(c.sliding[i], i < 4);
    assert_int_equal(c.causal[i], i < 4); /* no key: sliding layers are causal by the rule */
  }
  assert_false(c.has_causal_key);
  assert_int_equal(c.rope.scaling, DF_ROPE_YARN);
  assert_true(c.rope.base == 1e7f);
  assert_true(c.rope.factor == 64);
  assert_int_equal(c.rope.original_context, 4096);
  assert_true(c.rope.beta_fast == 32 && c.rope.beta_slow == 1);
  assert_false(c.rope.has_attention_factor || c.rope.has_mscale || c.rope.has_mscale_all_dim);
}

static void test_config_default_taps__published_examples(void **state) {
  (void)state;
  const struct {
    uint32_t n, k, want[8];
  } cases[] = {{24, 5, {1, 6, 11, 16, 21}},
               {26, 5, {1, 6, 12, 18, 23}},
               {28, 5, {1, 7, 13, 19, 25}},
               {30, 5, {1, 8, 14, 20, 27}},
               {32, 5, {1, 8, 15, 22, 29}},
               {36, 5, {1, 9, 17, 25, 33}},
               {40, 5, {1, 10, 19, 28, 37}},
               {48, 5, {1, 12, 23, 34, 45}},
               {64, 5, {1, 16, 31, 46, 61}},
               {36, 8, {1, 6, 10, 15, 19, 24, 28, 33}},
               {24, 1, {12}},
               {25, 1, {12}},
               {4, 2, {1, 1}}};
  for (size_t i = 0; i < DF_COUNT_OF(cases); i++) {
    uint32_t taps[DF_LIMIT_TAPS];
    OK(df_config_default_taps(cases[i].n, cases[i].k, taps, NULL));
    assert_memory_equal(taps, cases[i].want, cases[i].k * sizeof *taps);
  }
  uint32_t taps[DF_LIMIT_TAPS];
  assert_int_equal(df_config_default_taps(3, 1, taps, NULL), DF_ERR_ARGUMENT);
  assert_int_equal(df_config_default_taps(4, 5, taps, NULL), DF_ERR_ARGUMENT);
  assert_int_equal(df_config_default_taps(24, 0, taps, NULL), DF_ERR_ARGUMENT);
  assert_int_equal(df_config_default_taps(1000, 65, taps, NULL), DF_ERR_ARGUMENT);
}

static void test_config_from_hf__taps_by_rule(void **state) {
  (void)state;
  df_config c = small(DRAFT, "\"num_target_layers\":28");
  assert_true(c.taps_by_rule);
  assert_int_equal(c.n_taps, 3); /* as many as draft layers */
  assert_int_equal(c.taps[0], 1);
  assert_int_equal(c.taps[1], 13);
  assert_int_equal(c.taps[2], 25);
  assert_int_equal(c.mask_token_id, -1);
  assert_int_equal(c.block_size, 16);
  expect_bad(DRAFT, "\"block_size\":8", DF_ERR_FORMAT, "num_target_layers");
  expect_bad(DRAFT, "\"num_target_layers\":3", DF_ERR_FORMAT, "no default for 3 draft layers on 3 target layers");
  expect_bad(DRAFT, "\"num_target_layers\":8,\"dflash_config\":{\"target_layer_ids\":[8]}", DF_ERR_FORMAT,
             "a tapped layer is 8");
  expect_bad(DRAFT, "\"dflash_config\":{\"target_layer_ids\":[-1]}", DF_ERR_FORMAT, "target_layer_ids");
  expect_bad(DRAFT, "\"dflash_config\":{\"target_layer_ids\":[]}", DF_ERR_FORMAT, "has 0 entries");
}

static void test_config_from_hf__head_dim(void **state) {
  (void)state;
  assert_int_equal(small("LlamaForCausalLM", "").head_dim, 16);
  assert_int_equal(small("LlamaForCausalLM", "\"head_dim\":32").head_dim, 32);
  assert_int_equal(small("LlamaForCausalLM", "\"head_dim\":null").head_dim, 16);
  assert_int_equal(small("Qwen3ForCausalLM", "").head_dim, 128);
  assert_int_equal(small("LlamaForCausalLM", "\"partial_rotary_factor\":0.5").rope.dim, 8);
  expect_bad("LlamaForCausalLM", "\"partial_rotary_factor\":0.2", DF_ERR_FORMAT, "3 rotating channels of a head of 16");
  assert_true(small(DRAFT, TAPS ",\"rope_is_neox_style\":false").rope.interleaved);
}

static void test_config_from_hf__rope_spellings(void **state) {
  (void)state;
  const char *const top =
      "\"rope_theta\":5e5,\"rope_scaling\":{\"type\":\"yarn\",\"factor\":4,\"attention_factor\":1.2,"
      "\"original_max_position_embeddings\":128,\"beta_fast\":24}";
  const char *const merged =
      "\"rope_parameters\":{\"rope_theta\":5e5,\"rope_type\":\"yarn\",\"factor\":4.0,"
      "\"attention_factor\":1.2,\"original_max_position_embeddings\":128,\"beta_fast\":24}";
  df_config a = small("LlamaForCausalLM", top), b = small("LlamaForCausalLM", merged);
  assert_memory_equal(&a.rope, &b.rope, sizeof a.rope);
  assert_int_equal(a.rope.scaling, DF_ROPE_YARN);
  assert_true(a.rope.base == 5e5f && a.rope.factor == 4 && a.rope.beta_fast == 24 && a.rope.beta_slow == 1);
  assert_true(a.rope.has_attention_factor && a.rope.attention_factor == 1.2f);
  assert_int_equal(a.rope.original_context, 128);
  a = small("LlamaForCausalLM", "\"rope_scaling\":{\"rope_type\":\"linear\",\"factor\":2.5}");
  assert_int_equal(a.rope.scaling, DF_ROPE_LINEAR);
  assert_true(a.rope.factor == 2.5f);
  assert_int_equal(a.rope.original_context, 512); /* the context of the model when silent */
  a = small("LlamaForCausalLM", "\"rope_scaling\":{\"rope_type\":\"default\",\"factor\":2.5}");
  assert_int_equal(a.rope.scaling, DF_ROPE_NONE);
  assert_true(a.rope.factor == 1);
  a = small("LlamaForCausalLM",
            "\"rope_scaling\":{\"type\":\"yarn\",\"factor\":8,\"mscale\":0.7,\"mscale_all_dim\":1.0}");
  assert_true(a.rope.has_mscale && a.rope.mscale == 0.7f && a.rope.has_mscale_all_dim && a.rope.mscale_all_dim == 1);
  assert_false(a.rope.has_attention_factor);
  expect_unsupported("LlamaForCausalLM", "\"rope_scaling\":{\"type\":\"dynamic\",\"factor\":2}",
                     "rope scaling \"dynamic\"");
  expect_bad("LlamaForCausalLM", "\"rope_scaling\":{\"type\":\"yarn\",\"factor\":0}", DF_ERR_FORMAT,
             "key \"factor\" is 0");
  expect_bad("LlamaForCausalLM", "\"rope_theta\":1", DF_ERR_FORMAT, "the rope base is 1");
  expect_bad("LlamaForCausalLM",
             "\"rope_scaling\":{\"type\":\"llama3\",\"factor\":2,\"low_freq_factor\":4,\"high_freq_factor\":4}",
             DF_ERR_FORMAT, "frequency factors");
}

static void expect_layers(const char *arch, const char *more, uint32_t window, const char *sliding,
                          const char *causal) {
  df_config c = small(arch, more);
  assert_int_equal(c.sliding_window, window);
  for (uint32_t i = 0; i < c.n_layers; i++) {
    if (c.sliding[i] != (sliding[i] == 's') || c.causal[i] != (causal[i] == 'c')) fail_msg("%s: layer %u", more, i);
  }
}

/* The rule for which layers slide and which are causal inside the block. */
static void test_config_from_hf__windows_and_causality(void **state) {
  (void)state;
#define TYPES "\"layer_types\":[\"sliding_attention\",\"full_attention\",\"sliding_attention\"]"
#define FULL "\"layer_types\":[\"full_attention\",\"full_attention\",\"full_attention\"]"
  expect_layers(DRAFT, TAPS, 0, "---", "---");
  expect_layers(DRAFT, TAPS "," TYPES ",\"sliding_window\":32", 32, "s-s", "c-c");
  expect_layers(DRAFT, TAPS "," TYPES ",\"sliding_window\":32,\"is_causal\":false", 32, "s-s", "---");
  expect_layers(DRAFT, TAPS "," TYPES ",\"sliding_window\":32,\"is_causal\":true", 32, "s-s", "ccc");
  expect_layers(DRAFT, "\"is_causal\":false,\"dflash_config\":{\"target_layer_ids\":[1],\"causal\":true}", 0, "---",
                "---");
  expect_layers(DRAFT, "\"dflash_config\":{\"target_layer_ids\":[1],\"causal\":true}", 0, "---", "ccc");
  expect_layers(DRAFT, "\"dflash_config\":{\"target_layer_ids\":[1],\"use_swa\":true,\"swa_window_size\":24}", 24,
                "sss", "---");
  expect_layers(
      DRAFT,
      FULL
      ",\"sliding_window\":99,\"dflash_config\":{\"target_layer_ids\":[1],\"use_swa\":true,\"swa_window_size\":24}",
      24, "sss", "---");
  expect_layers(
      DRAFT,
      TYPES
      ",\"sliding_window\":99,\"dflash_config\":{\"target_layer_ids\":[1],\"use_swa\":true,\"swa_window_size\":24}",
      24, "s-s", "c-c");
  expect_layers(DRAFT, FULL ",\"sliding_window\":99," TAPS, 0, "---", "---");
  expect_layers("Qwen2ForCausalLM", "\"use_sliding_window\":true,\"sliding_window\":64,\"max_window_layers\":1", 64,
                "-ss", "---");
  expect_layers("Qwen2ForCausalLM", "\"use_sliding_window\":false,\"sliding_window\":64,\"max_window_layers\":1", 0,
                "---", "---");
  expect_bad(DRAFT, TAPS "," TYPES, DF_ERR_FORMAT, "sliding layers without a window size");
  expect_bad(DRAFT, TAPS ",\"layer_types\":[\"full_attention\"]", DF_ERR_FORMAT, "has 1 entries for 3 layers");
  expect_unsupported("LlamaForCausalLM", "\"layer_types\":[\"full_attention\",\"linear_attention\",\"full_attention\"]",
                     "linear_attention");
}

static void test_config_from_hf__draft_numbers(void **state) {
  (void)state;
  df_config c = small(DRAFT,
                      "\"logit_scale\":0.5,\"block_size\":4,\"dflash_config\":{\"target_layer_ids\":[2,0],"
                      "\"input_embedding_scale\":8,\"mask_token_id\":999}");
  assert_true(c.logit_scale == 0.5f && c.embedding_scale == 8);
  assert_int_equal(c.block_size, 4);
  assert_int_equal(c.mask_token_id, 999);
  assert_int_equal(c.taps[0], 2); /* order is the file's */
  assert_int_equal(c.taps[1], 0);
  c = small(DRAFT, "\"attention_bias\":true," TAPS);
  assert_true(c.attention_bias && c.attention_out_bias);
  expect_bad(DRAFT, "\"dflash_config\":{\"target_layer_ids\":[1],\"mask_token_id\":1000}", DF_ERR_FORMAT,
             "the mask token id is 1000");
  expect_bad(DRAFT, TAPS ",\"block_size\":0", DF_ERR_FORMAT, "key \"block_size\" is 0, expected 1 to 256");
  expect_bad(DRAFT, "\"dflash_config\":[]", DF_ERR_FORMAT, "key \"dflash_config\" is an array");
}

static void test_config_check_supported__refuses_variants(void **state) {
  (void)state;
#define WITH(x) "\"dflash_config\":{\"target_layer_ids\":[1]," x "}"
  expect_unsupported("DFlash2DraftModel", TAPS, "DFlash2DraftModel");
  expect_unsupported("Qwen3DSparkModel", TAPS, "Qwen3DSparkModel");
  expect_unsupported("LiLiCorrDraftModel", TAPS, "LiLiCorrDraftModel");
  expect_unsupported(DRAFT, WITH("\"selector_rank\":256"), "candidate selector (selector_rank)");
  expect_unsupported(DRAFT, WITH("\"conv_kernel_size\":2"), "convolution");
  expect_unsupported(DRAFT, WITH("\"markov_rank\":256"), "markov head");
  expect_unsupported(DRAFT, WITH("\"projector_type\":\"domino\""), "\"domino\" (projector_type)");
  expect_unsupported(DRAFT, WITH("\"attention_sink_bias\":true"), "attention sinks");
  expect_unsupported(DRAFT, WITH("\"lilicorr_rank\":8"), "LiLiCorr");
  expect_unsupported(DRAFT, WITH("\"attention_value_scale\":0.5"), "value scale of 0.5");
  expect_unsupported(DRAFT, TAPS ",\"draft_vocab_size\":500", "draft_vocab_size 500 of 1000");
  expect_unsupported(DRAFT, TAPS ",\"target_hidden_size\":128", "target hidden size of 128");
  expect_unsupported(DRAFT, TAPS ",\"hc_mult\":4", "hyper connections");
  expect_unsupported(DRAFT, TAPS ",\"model_type\":\"deepseek_v4\"", "deepseek_v4");
  expect_unsupported("LlamaForCausalLM", "\"mlp_bias\":true", "mlp_bias");
  expect_unsupported("LlamaForCausalLM", "\"hidden_act\":\"gelu\"", "\"gelu\"");
  expect_unsupported("LlamaForCausalLM", "\"quantization_config\":{}", "quantization_config");
  expect_unsupported("LlamaForCausalLM", "\"quantization_config\":{\"quant_method\":\"awq\"}", "\"awq");
  expect_unsupported("LlamaForCausalLM",
                     "\"quantization_config\":{\"quant_method\":\"compressed-tensors\",\"format\":\"pack-quantized\"}",
                     "pack-quantized");
  expect_unsupported("LlamaForCausalLM", "\"quantization_config\":{\"quant_method\":\"fp8\",\"fmt\":\"e5m2\"}",
                     "\"e5m2\"");
  /* Keys that are there but off. */
  df_config c = small(
      DRAFT, WITH("\"selector_rank\":0,\"attention_sink_bias\":false,\"markov_rank\":null,\"projector_type\":null,"
                  "\"attention_value_scale\":1.0") ",\"draft_vocab_size\":1000");
  OK(df_config_check_supported(&c, "x", NULL));
}

static void test_config_from_hf__unknown_architecture(void **state) {
  (void)state;
  df_config c;
  df_error err = {0};
  assert_int_equal(read_small("MambaForCausalLM", "", &c, &err), DF_ERR_UNSUPPORTED);
  assert_string_equal(err.msg, "could not read \"c.json\": architecture \"MambaForCausalLM\" is not supported");
  assert_non_null(strstr(err.hint, "llama, qwen2, qwen3, dflash"));
  const char *const rest =
      ",\"hidden_size\":64,\"num_hidden_layers\":1,\"num_attention_heads\":4,\"intermediate_size\":8,\"vocab_size\":9}";
  char text[512];
  (void)snprintf(text, sizeof text, "{\"model_type\":\"qwen2\"%s", rest);
  OK(read_text(text, &c, &err));
  assert_string_equal(c.arch, "qwen2");
  assert_int_equal(c.n_kv_heads, 4); /* as many as heads when silent */
  (void)snprintf(text, sizeof text, "{\"model_type\":\"rwkv\"%s", rest);
  assert_int_equal(read_text(text, &c, &err), DF_ERR_UNSUPPORTED);
  assert_non_null(strstr(err.msg, "\"rwkv\""));
  assert_int_equal(read_text("[1]", &c, &err), DF_ERR_FORMAT);
  assert_int_equal(read_text("{}", &c, &err), DF_ERR_UNSUPPORTED);
}

static void test_config_from_hf__bad_geometry(void **state) {
  (void)state;
  df_config c;
  df_error err = {0};
  const struct {
    const char *text, *why;
  } cases[] = {
      {"{\"model_type\":\"llama\"}", "key \"num_hidden_layers\" is missing"},
      {"{\"model_type\":\"llama\",\"num_hidden_layers\":0}", "key \"num_hidden_layers\" is 0, expected 1 to 1024"},
      {"{\"model_type\":\"llama\",\"num_hidden_layers\":1e300}", "key \"num_hidden_layers\" is 1e+300"},
      {"{\"model_type\":\"llama\",\"num_hidden_layers\":\"2\"}", "is a string, expected an integer"},
      {"{\"model_type\":\"llama\",\"num_hidden_layers\":1,\"hidden_size\":64,\"num_attention_heads\":4,\"num_key_value_"
       "heads\":3,"
       "\"intermediate_size\":8,\"vocab_size\":9}",
       "4 heads are not a multiple of 3 kv heads"},
      {"{\"model_type\":\"llama\",\"num_hidden_layers\":1,\"hidden_size\":65,\"num_attention_heads\":4,\"intermediate_"
       "size\":8,"
       "\"vocab_size\":9}",
       "4 heads do not divide a hidden size of 65"},
      {"{\"architectures\":{}}", "key \"architectures\" is an object, expected an array"},
  };
  for (size_t i = 0; i < DF_COUNT_OF(cases); i++) {
    assert_int_equal(read_text(cases[i].text, &c, &err), DF_ERR_FORMAT);
    if (!strstr(err.msg, cases[i].why)) fail_msg("\"%s\" lacks \"%s\"", err.msg, cases[i].why);
  }
}

static df_status load_job(void *arg, df_error *err) {
  df_config c;
  return df_config_load_hf(arg, &c, err);
}

static void test_config_load_hf__every_allocation_fails(void **state) {
  (void)state;
  char path[512];
  (void)snprintf(path, sizeof path, "%s/tests/golden/config-qwen3.6-27b-dflash.json", DF_SOURCE_DIR);
  assert_true(test_each_allocation_fails(load_job, path) >= 4);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_config_load_hf__qwen2_5),
      cmocka_unit_test(test_config_load_hf__qwen3),
      cmocka_unit_test(test_config_load_hf__llama3_rope),
      cmocka_unit_test(test_config_load_hf__draft),
      cmocka_unit_test(test_config_load_hf__draft_with_windows_and_yarn),
      cmocka_unit_test(test_config_default_taps__published_examples),
      cmocka_unit_test(test_config_from_hf__taps_by_rule),
      cmocka_unit_test(test_config_from_hf__head_dim),
      cmocka_unit_test(test_config_from_hf__rope_spellings),
      cmocka_unit_test(test_config_from_hf__windows_and_causality),
      cmocka_unit_test(test_config_from_hf__draft_numbers),
      cmocka_unit_test(test_config_check_supported__refuses_variants),
      cmocka_unit_test(test_config_from_hf__unknown_architecture),
      cmocka_unit_test(test_config_from_hf__bad_geometry),
      cmocka_unit_test(test_config_load_hf__every_allocation_fails),
  };
  return cmocka_run_group_tests_name("config", tests, NULL, NULL);
}
