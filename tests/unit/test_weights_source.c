/* One view over GGUF files, safetensors files and folders; tensor names in both directions. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "base/size.h"
#include "format/tensor_names.h"
#include "format/weights_source.h"
#include "support/sample_files.h"

#define OK(expr) assert_int_equal((expr), DF_OK)
#define T(name, dtype, shape, begin, end) \
  "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":[" #begin "," #end "]}"

static const uint16_t k_halves[64] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};

static void test_name_to_hf__spellings(void **state) {
  (void)state;
  const struct {
    const char *gguf;
    unsigned i;
    const char *hf;
  } cases[] = {
      {"blk.3.attn_q.weight", 0, "model.layers.3.self_attn.q_proj.weight"},
      {"blk.3.attn_q.weight", 1, "layers.3.self_attn.q_proj.weight"},
      {"blk.3.attn_q.weight", 2, NULL},
      {"blk.0.attn_q.bias", 2, "model.midlayer.self_attn.q_proj.bias"},
      {"blk.0.ffn_down.weight", 3, "midlayer.mlp.down_proj.weight"},
      {"blk.12.attn_norm.weight", 0, "model.layers.12.input_layernorm.weight"},
      {"blk.12.ffn_norm.weight", 0, "model.layers.12.post_attention_layernorm.weight"},
      {"blk.1.attn_output.weight", 1, "layers.1.self_attn.o_proj.weight"},
      {"blk.1.attn_k_norm.weight", 1, "layers.1.self_attn.k_norm.weight"},
      {"token_embd.weight", 0, "model.embed_tokens.weight"},
      {"output_norm.weight", 0, "model.norm.weight"},
      {"output.weight", 1, "lm_head.weight"},
      {"fc.weight", 1, "fc.weight"},
      {"fc.weight", 3, "encoder.fc.weight"},
      {"enc.output_norm.weight", 1, "hidden_norm.weight"},
      {"enc.output_norm.weight", 3, "encoder.output_norm_enc.weight"},
      {"output_norm.weight", 3, NULL},
      {"blk.3.attn_q.weight", 4, NULL},
      {"blk.03.attn_q.weight", 0, NULL},
      {"blk.-1.attn_q.weight", 0, NULL},
      {"blk.99999999999.attn_q.weight", 0, NULL},
      {"blk.3.attn_q", 0, NULL},
      {"blk.3.ffn_gate_exps.weight", 0, NULL},
      {"blk.3", 0, NULL},
      {"", 0, NULL},
      {"attn_q.weight", 0, NULL},
  };
  for (size_t i = 0; i < DF_COUNT_OF(cases); i++) {
    char out[DF_NAME_MAX], back[DF_NAME_MAX];
    bool found = df_name_to_hf(cases[i].gguf, cases[i].i, out);
    if (found != (cases[i].hf != NULL)) fail_msg("%s: %d", cases[i].gguf, found);
    if (!found) continue;
    assert_string_equal(out, cases[i].hf);
    assert_true(df_name_from_hf(out, back)); /* every spelling leads back */
    assert_string_equal(back, cases[i].gguf);
  }
}

static void test_name_is_known__layers_and_drafts(void **state) {
  (void)state;
  assert_true(df_name_is_known("blk.4.ffn_up.weight", false, 5));
  assert_false(df_name_is_known("blk.5.ffn_up.weight", false, 5));
  assert_true(df_name_is_known("output.weight", false, 5));
  assert_true(df_name_is_known("fc.weight", true, 5));
  assert_false(df_name_is_known("fc.weight", false, 5));
  assert_false(df_name_is_known("blk.0.attn_conv_base", true, 5));
  assert_true(df_name_is_ignorable("model.layers.0.self_attn.rotary_emb.inv_freq"));
  assert_false(df_name_is_ignorable("fc.weight"));
}

/* ---- sources ------------------------------------------------------------------------------------------- */

static const char *const k_config =
    "{\"architectures\":[\"%s\"],\"hidden_size\":2,\"num_hidden_layers\":1,\"num_attention_heads\":1,\"head_dim\":2,"
    "\"intermediate_size\":4,\"vocab_size\":3,\"num_target_layers\":8,\"dflash_config\":{\"target_layer_ids\":[1,2]}}";

static void write_config(const char *dir, const char *arch) {
  char text[512];
  int n = snprintf(text, sizeof text, k_config, arch);
  (void)test_dir_write(dir, "config.json", text, (size_t)n);
}

static void write_weights(const char *dir, const char *header) {
  df_buf b;
  df_buf_init(&b, 0);
  test_put_safetensors(&b, header, k_halves, 32);
  (void)test_dir_write(dir, "model.safetensors", b.data, b.len);
  df_buf_release(&b);
}

static df_source *must_open(const char *path) {
  df_source *s = NULL;
  df_error err = {0};
  if (df_source_open(path, &s, &err) != DF_OK) fail_msg("%s", err.msg);
  return s;
}

/* The folder and the file in it give the same view. "up" is [4, 2] in the file: 4 outputs of 2 inputs. */
static void test_source_open__folder_and_file(void **state) {
  (void)state;
  char *dir = test_dir_create();
  write_config(dir, "DFlashDraftModel");
  write_weights(dir, "{" T("layers.0.mlp.up_proj.weight", "BF16", "[4,2]", 0, 16) "," T(
                         "model.norm.weight", "F16", "[2]", 16, 20) "," T("encoder.fc.weight", "F32", "[1,1]", 20,
                                                                          24) "," T("midlayer.self_attn.q_norm.weight",
                                                                                    "I64", "[1]", 24, 32) "} ");
  for (int i = 0; i < 2; i++) {
    df_tensor_view v;
    df_source *s = must_open(i ? test_dir_path(dir, "model.safetensors") : dir);
    assert_true(df_source_config(s)->is_draft);
    assert_int_equal(df_source_config(s)->taps[1], 2);
    assert_null(df_source_gguf(s));
    assert_int_equal(df_source_count(s), 4);
    OK(df_config_check_supported(df_source_config(s), "x", NULL));
    assert_true(df_source_find(s, "blk.0.ffn_up.weight", &v));
    assert_string_equal(v.name, "layers.0.mlp.up_proj.weight");
    assert_int_equal(v.dtype, 30);
    assert_int_equal(v.n_dims, 2);
    assert_int_equal(v.dims[0], 2);
    assert_int_equal(v.dims[1], 4);
    assert_int_equal(v.dims[2], 1);
    assert_int_equal(v.n_bytes, 16);
    assert_memory_equal(v.data, k_halves, 16);
    df_source_drop(s, &v);
    assert_memory_equal(v.data, k_halves, 16);
    assert_true(df_source_find(s, "output_norm.weight", &v));
    assert_int_equal(v.dtype, 1);
    assert_true(df_source_find(s, "fc.weight", &v));
    assert_int_equal(v.dtype, 0);
    assert_true(df_source_find(s, "blk.0.attn_q_norm.weight", &v));
    assert_int_equal(v.dtype, 27);
    assert_false(df_source_find(s, "blk.0.ffn_down.weight", &v));
    assert_false(df_source_find(s, "layers.0.mlp.up_proj.weight", &v)); /* GGUF names only */
    df_source_close(s);
  }
  test_dir_remove(dir);
}

static void expect_get(const df_source *s, const char *name, df_status want, const char *why) {
  df_error err = {0};
  df_tensor_view v = {.dtype = 1234};
  df_status got = df_source_get(s, name, &v, &err);
  if (got != want || (got != DF_OK && !strstr(err.msg, why)))
    fail_msg("%s: %s \"%s\"", name, df_status_name(got), err.msg);
  if (got != DF_OK) assert_int_equal(v.dtype, 1234);
}

static void test_source_get__says_what_is_wrong(void **state) {
  (void)state;
  char *dir = test_dir_create();
  write_config(dir, "LlamaForCausalLM");
  /* One space more or less at the end of the header moves all data by one byte. */
  const char *header = "{" T("model.norm.weight", "F32", "[2]", 0, 8) "," T(
      "model.embed_tokens.weight", "F8_E4M3", "[4]", 8, 12) "," T("lm_head.weight", "F16", "[1,1,1,1,2]", 12, 16) "}";
  for (int odd = 0; odd < 2; odd++) {
    char text[512];
    (void)snprintf(text, sizeof text, "%s%*s", header, (int)((8 - strlen(header) % 8) % 8) + odd, "");
    write_weights(dir, text);
    df_source *s = must_open(dir);
    expect_get(s, "output_norm.weight", odd ? DF_ERR_UNSUPPORTED : DF_OK,
               "\"model.norm.weight\" is not aligned to 4 bytes");
    expect_get(s, "token_embd.weight", DF_ERR_UNSUPPORTED, "\"model.embed_tokens.weight\" is of type F8_E4M3");
    expect_get(s, "output.weight", DF_ERR_UNSUPPORTED, "\"lm_head.weight\"");
    expect_get(s, "blk.0.attn_q.weight", DF_ERR_FORMAT, "\"model.layers.0.self_attn.q_proj.weight\" is missing");
    df_source_close(s);
  }
  test_dir_remove(dir);
}

static void expect_strange(const char *arch, const char *header, const char *what) {
  char *dir = test_dir_create();
  df_error err = {0};
  write_config(dir, arch);
  write_weights(dir, header);
  df_source *s = must_open(dir);
  df_status st = df_config_check_supported(df_source_config(s), dir, &err);
  if (what && (st != DF_ERR_UNSUPPORTED || !strstr(err.msg, what))) fail_msg("%s lacks %s", err.msg, what);
  if (!what) assert_int_equal(st, DF_OK);
  df_source_close(s);
  test_dir_remove(dir);
}

static void test_source_open__tensors_that_do_not_belong(void **state) {
  (void)state;
  expect_strange("DFlashDraftModel", "{" T("d2t", "I64", "[1]", 0, 8) "}", "reduced draft vocabulary");
  expect_strange("DFlashDraftModel", "{" T("mask_embedding", "BF16", "[2]", 0, 4) "}", "mask embedding");
  expect_strange("DFlashDraftModel", "{" T("layers.0.self_attn.attention_sink_bias", "BF16", "[1]", 0, 2) "}",
                 "attention sinks");
  expect_strange("DFlashDraftModel", "{" T("markov_w1", "BF16", "[1]", 0, 2) "}",
                 "\"markov_w1\", which is no part of a dflash draft");
  expect_strange("DFlashDraftModel", "{" T("layers.1.mlp.up_proj.weight", "BF16", "[1]", 0, 2) "}", "no part of");
  expect_strange("LlamaForCausalLM", "{" T("fc.weight", "BF16", "[1]", 0, 2) "}", "no part of a llama model");
  expect_strange("LlamaForCausalLM", "{" T("model.layers.0.self_attn.rotary_emb.inv_freq", "F32", "[1]", 0, 4) "}",
                 NULL);
  expect_strange("DFlashDraftModel",
                 "{" T("t2d", "BOOL", "[3]", 0, 3) "," T("model.embed_tokens.weight", "BF16", "[1]", 4, 6) "}", NULL);
}

static void write_gguf(const char *dir, const char *name, uint32_t splits) {
  df_gguf_writer *w = NULL;
  df_buf b;
  OK(df_gguf_writer_create(&w, NULL));
  OK(df_gguf_put_cstr(w, "general.architecture", "llama", NULL));
  const struct {
    const char *key;
    uint32_t v;
  } numbers[] = {{"llama.block_count", 1},
                 {"llama.embedding_length", 32},
                 {"llama.feed_forward_length", 32},
                 {"llama.attention.head_count", 2},
                 {"llama.vocab_size", 3}};
  for (size_t i = 0; i < DF_COUNT_OF(numbers); i++) OK(df_gguf_put_u32(w, numbers[i].key, numbers[i].v, NULL));
  OK(df_gguf_put_f32(w, "llama.attention.layer_norm_rms_epsilon", 1e-5f, NULL));
  if (splits) OK(df_gguf_put_scalar(w, "split.count", DF_GGUF_U16, &splits, NULL));
  OK(df_gguf_put_tensor(w, "token_embd.weight", 8, 2, (const uint64_t[]){32, 1}, k_halves, NULL));
  OK(df_gguf_put_tensor(w, "rope_freqs.weight", 0, 1, (const uint64_t[]){8}, k_halves, NULL));
  df_buf_init(&b, 0);
  OK(df_gguf_write_buf(w, NULL, NULL, &b, NULL));
  (void)test_dir_write(dir, name, b.data, b.len);
  df_buf_release(&b);
  df_gguf_writer_free(w);
}

static void test_source_open__gguf(void **state) {
  (void)state;
  char *dir = test_dir_create();
  const char *names[] = {"m.gguf", "blob-without-ending"};
  for (int i = 0; i < 2; i++) {
    df_tensor_view v;
    write_gguf(dir, names[i], i); /* a split of one part is a whole file */
    df_source *s = must_open(test_dir_path(dir, names[i]));
    assert_non_null(df_source_gguf(s));
    assert_string_equal(df_source_config(s)->arch, "llama");
    assert_string_equal(df_source_path(s), test_dir_path(dir, names[i]));
    OK(df_config_check_supported(df_source_config(s), "x", NULL)); /* rope_freqs is the loader's to use */
    OK(df_source_get(s, "token_embd.weight", &v, NULL));
    assert_int_equal(v.dtype, 8);
    assert_int_equal(v.dims[0], 32);
    assert_int_equal(v.n_bytes, 34);
    assert_memory_equal(v.data, k_halves, 34);
    df_source_drop(s, &v);
    assert_memory_equal(v.data, k_halves, 34);
    expect_get(s, "output_norm.weight", DF_ERR_FORMAT, "\"output_norm.weight\" is missing");
    df_source_close(s);
  }
  test_dir_remove(dir);
}

static void expect_open(const char *path, df_status want, const char *msg, const char *hint) {
  df_source *s = NULL;
  df_error err = {0};
  df_status st = df_source_open(path, &s, &err);
  if (st != want || !strstr(err.msg, msg) || !strstr(err.hint, hint))
    fail_msg("got %s \"%s\" (%s)", df_status_name(st), err.msg, err.hint);
}

static void test_source_open__explains_failures(void **state) {
  (void)state;
  char *dir = test_dir_create();
  expect_open(test_dir_path(dir, "nothing"), DF_ERR_IO, "No such file", "check the path");
  expect_open(dir, DF_ERR_IO, "config.json\": No such file", "needs config.json");
  expect_open(test_dir_write(dir, "notes.txt", "hello", 5), DF_ERR_FORMAT, "not a GGUF or safetensors file",
              "give a .gguf file");
  expect_open(test_dir_write(dir, "short.gguf", "GG", 2), DF_ERR_FORMAT, "the file ends at byte 2", "incomplete");
  write_weights(dir, "{}");
  expect_open(test_dir_path(dir, "model.safetensors"), DF_ERR_IO, "config.json", "needs its config.json");
  write_config(dir, "GPT2LMHeadModel");
  expect_open(dir, DF_ERR_UNSUPPORTED, "\"GPT2LMHeadModel\" is not supported", "supported: llama");
  write_config(dir, "LlamaForCausalLM");
  assert_int_equal(remove(test_dir_path(dir, "model.safetensors")), 0);
  expect_open(dir, DF_ERR_IO, "model.safetensors\": No such file", "needs model.safetensors");
  write_gguf(dir, "part.gguf", 3);
  expect_open(test_dir_path(dir, "part.gguf"), DF_ERR_UNSUPPORTED, "one of 3 parts", "merge");
  test_dir_remove(dir);
}

static df_status open_job(void *arg, df_error *err) {
  df_source *s = NULL;
  df_status st = df_source_open(arg, &s, err);
  if (st == DF_OK) df_source_close(s);
  return st;
}

static void test_source_open__every_allocation_fails(void **state) {
  (void)state;
  char *dir = test_dir_create(), path[512];
  write_config(dir, "DFlashDraftModel");
  write_weights(dir, "{" T("layers.0.mlp.up_proj.weight", "BF16", "[4,2]", 0, 16) "}");
  write_gguf(dir, "m.gguf", 0);
  assert_true(test_each_allocation_fails(open_job, dir) >= 8);
  (void)snprintf(path, sizeof path, "%s", test_dir_path(dir, "m.gguf"));
  assert_true(test_each_allocation_fails(open_job, path) > 6);
  (void)snprintf(path, sizeof path, "%s", test_dir_path(dir, "model.safetensors"));
  assert_true(test_each_allocation_fails(open_job, path) >= 8);
  test_dir_remove(dir);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_name_to_hf__spellings),
      cmocka_unit_test(test_name_is_known__layers_and_drafts),
      cmocka_unit_test(test_source_open__folder_and_file),
      cmocka_unit_test(test_source_get__says_what_is_wrong),
      cmocka_unit_test(test_source_open__tensors_that_do_not_belong),
      cmocka_unit_test(test_source_open__gguf),
      cmocka_unit_test(test_source_open__explains_failures),
      cmocka_unit_test(test_source_open__every_allocation_fails),
  };
  return cmocka_run_group_tests_name("weights_source", tests, NULL, NULL);
}
