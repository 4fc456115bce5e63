#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/size.h"
#include "format/hf_tokenizer.h"

/* Parts of a small file, each of which a test may replace. */
typedef struct parts {
  const char *added, *normalizer, *pre, *post, *model, *config;
} parts;

#define GPT2 "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":true,\"use_regex\":true}"
#define PLAIN "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":false}"
#define SPLIT(regex) \
  "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"" regex "\"},\"behavior\":\"Isolated\",\"invert\":false}"
#define SEQUENCE(a, b) "{\"type\":\"Sequence\",\"pretokenizers\":[" a "," b "]}"
#define DIGITS "{\"type\":\"Digits\",\"individual_digits\":true}"
/* As they stand in the files of Qwen2.5 and Llama 3. */
#define QWEN2                                                                       \
  "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{L}+|\\\\p{N}| " \
  "?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n]*|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+"
#define LLAMA3                                                                           \
  "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{L}+|\\\\p{N}{1,3}| " \
  "?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n]*|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+"

static parts default_parts(void) {
  return (parts){
      .added =
          "[{\"id\":3,\"content\":\"<e>\",\"single_word\":false,\"lstrip\":false,\"rstrip\":false,\"normalized\":false,"
          "\"special\":true},{\"id\":5,\"content\":\"<t>\",\"special\":false}]",
      .normalizer = "null",
      .pre = GPT2,
      .post = "{\"type\":\"ByteLevel\",\"add_prefix_space\":true}",
      .model =
          "{\"type\":\"BPE\",\"dropout\":null,\"unk_token\":null,\"continuing_subword_prefix\":\"\","
          "\"end_of_word_suffix\":null,\"fuse_unk\":false,\"vocab\":{\"a\":0,\"b\":1,\"ab\":2,\"<e>\":3},"
          "\"merges\":[\"a b\"]}",
  };
}

static df_status parse(const parts *p, uint32_t min_tokens, df_hf_tokenizer *out, df_error *err) {
  df_buf b = {0};
  assert_int_equal(df_buf_printf(&b, NULL,
                                 "{\"version\":\"1.0\",\"added_tokens\":%s,\"normalizer\":%s,\"pre_tokenizer\":%s,"
                                 "\"post_processor\":%s,\"decoder\":{\"type\":\"ByteLevel\"},\"model\":%s}",
                                 p->added, p->normalizer, p->pre, p->post, p->model),
                   DF_OK);
  df_status s =
      df_hf_tokenizer_parse(b.data, b.len, p->config, p->config ? strlen(p->config) : 0, min_tokens, out, err);
  df_buf_release(&b);
  return s;
}

static df_hf_tokenizer parse_ok(const parts *p, uint32_t min_tokens) {
  df_hf_tokenizer t = {0};
  df_error err = {0};
  if (parse(p, min_tokens, &t, &err) != DF_OK) fail_msg("%s", err.msg);
  return t;
}

static void expect_str(df_gguf_str s, const char *want) {
  assert_int_equal(s.len, strlen(want));
  assert_memory_equal(s.data, want, s.len);
}

static void check_small(const df_hf_tokenizer *t) {
  static const char *const texts[] = {"a", "b", "ab", "<e>", "[PAD4]", "<t>", "[PAD6]"};
  static const int32_t types[] = {1, 1, 1, 3, 5, 4, 5};
  assert_int_equal(t->n_tokens, 7);
  for (size_t i = 0; i < 7; i++) {
    expect_str(t->tokens[i], texts[i]);
    assert_int_equal(t->types[i], types[i]);
  }
  assert_int_equal(t->n_merges, 1);
  expect_str(t->merges[0], "a b");
}

static void test_hf_tokenizer_parse__both_forms_of_merges(void **state) {
  (void)state;
  parts p = default_parts();
  df_hf_tokenizer t = parse_ok(&p, 7);
  check_small(&t);
  assert_string_equal(t.pre, "gpt-2");
  assert_true(t.bos == -1 && t.eos == -1 && !t.add_bos && !t.normalize_nfc && !t.ignore_merges && !t.chat_template);
  df_hf_tokenizer_release(&t);
  p.model = "{\"vocab\":{\"a\":0,\"b\":1,\"ab\":2},\"merges\":[[\"a\",\"b\"]],\"ignore_merges\":true}";
  t = parse_ok(&p, 7);
  check_small(&t);
  assert_true(t.ignore_merges);
  df_hf_tokenizer_release(&t);
  t = parse_ok(&p, 0);
  assert_int_equal(t.n_tokens, 6);
  df_hf_tokenizer_release(&t);
}

static void test_hf_tokenizer_parse__pre_tokenizers(void **state) {
  (void)state;
  static const struct {
    const char *pre, *normalizer, *name;
  } cases[] = {
      {SEQUENCE(DIGITS, GPT2), "null", "smollm"},
      {SEQUENCE(SPLIT(QWEN2), PLAIN), "{\"type\":\"NFC\"}", "qwen2"},
      {SEQUENCE(SPLIT(QWEN2), PLAIN), "{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFC\"}]}", "qwen2"},
      {SEQUENCE(SPLIT(LLAMA3), PLAIN), "null", "llama-bpe"},
  };
  for (size_t i = 0; i < DF_COUNT_OF(cases); i++) {
    parts p = default_parts();
    p.pre = cases[i].pre;
    p.normalizer = cases[i].normalizer;
    df_hf_tokenizer t = parse_ok(&p, 0);
    assert_string_equal(t.pre, cases[i].name);
    assert_int_equal(t.normalize_nfc, strcmp(cases[i].name, "qwen2") == 0);
    df_hf_tokenizer_release(&t);
  }
}

static void test_hf_tokenizer_parse__config_and_bos(void **state) {
  (void)state;
  parts p = default_parts();
  p.config =
      "{\"bos_token\":{\"content\":\"<e>\"},\"eos_token\":\"<t>\",\"pad_token\":\"nowhere\",\"unk_token\":null,"
      "\"add_bos_token\":true,\"chat_template\":\"{{ x }}\"}";
  df_hf_tokenizer t = parse_ok(&p, 0);
  assert_true(t.bos == 3 && t.eos == 5 && t.pad == -1 && t.unk == -1 && t.mask == -1 && t.add_bos);
  assert_string_equal(t.chat_template, "{{ x }}");
  df_hf_tokenizer_release(&t);
  p.config =
      "{\"chat_template\":[{\"name\":\"tool_use\",\"template\":\"1\"},{\"name\":\"default\",\"template\":\"2\"}]}";
  p.post =
      "{\"type\":\"Sequence\",\"processors\":[{\"type\":\"ByteLevel\"},{\"type\":\"TemplateProcessing\",\"single\":["
      "{\"SpecialToken\":{\"id\":\"<e>\",\"type_id\":0}},{\"Sequence\":{\"id\":\"A\",\"type_id\":0}}]}]}";
  t = parse_ok(&p, 0);
  assert_true(t.bos == 3 && t.add_bos);
  assert_string_equal(t.chat_template, "2");
  df_hf_tokenizer_release(&t);
}

static void refused(const parts *p, df_status code, const char *part) {
  df_hf_tokenizer t = {.n_tokens = 77};
  df_error err = {0};
  assert_int_equal(parse(p, 0, &t, &err), code);
  assert_int_equal(t.n_tokens, 77);
  if (!strstr(err.msg, part)) fail_msg("\"%s\" does not say \"%s\"", err.msg, part);
}

static void test_hf_tokenizer_parse__refuses_models(void **state) {
  (void)state;
  static const struct {
    const char *model;
    df_status code;
    const char *part;
  } cases[] = {
      {"3", DF_ERR_FORMAT, "model"},
      {"{}", DF_ERR_FORMAT, "vocab"},
      {"{\"vocab\":[]}", DF_ERR_FORMAT, "vocab"},
      {"{\"type\":\"Unigram\",\"vocab\":{}}", DF_ERR_UNSUPPORTED, "\"Unigram\", not BPE"},
      {"{\"vocab\":{\"a\":0,\"b\":0}}", DF_ERR_FORMAT, "both have the id 0"},
      {"{\"vocab\":{\"a\":5}}", DF_ERR_FORMAT, "both have the id 5"},
      {"{\"vocab\":{\"a\":-1}}", DF_ERR_FORMAT, "vocab"},
      {"{\"vocab\":{\"a\":\"0\"}}", DF_ERR_FORMAT, "vocab"},
      {"{\"vocab\":{\"a\":4194304}}", DF_ERR_LIMIT, "4194304"},
      {"{\"vocab\":{\"a\":18446744073709551616}}", DF_ERR_FORMAT, "vocab"},
      {"{\"vocab\":{\"a\":0},\"merges\":[3]}", DF_ERR_FORMAT, "merge 0"},
      {"{\"vocab\":{\"a\":0},\"merges\":[\"a b\",[\"a\"]]}", DF_ERR_FORMAT, "merge 1"},
      {"{\"vocab\":{\"a\":0},\"merges\":[[\"a b\",\"c\"]]}", DF_ERR_UNSUPPORTED, "blank"},
      {"{\"vocab\":{\"a\":0},\"byte_fallback\":true}", DF_ERR_UNSUPPORTED, "byte_fallback"},
      {"{\"vocab\":{\"a\":0},\"dropout\":0.1}", DF_ERR_UNSUPPORTED, "dropout"},
      {"{\"vocab\":{\"a\":0},\"end_of_word_suffix\":\"</w>\"}", DF_ERR_UNSUPPORTED, "end_of_word_suffix"},
  };
  for (size_t i = 0; i < DF_COUNT_OF(cases); i++) {
    parts p = default_parts();
    p.model = cases[i].model;
    refused(&p, cases[i].code, cases[i].part);
  }
}

static void test_hf_tokenizer_parse__refuses_the_rest(void **state) {
  (void)state;
  parts p = default_parts();
  p.normalizer = "{\"type\":\"NFKC\"}";
  refused(&p, DF_ERR_UNSUPPORTED, "NFKC");
  p = default_parts();
  static const char *const pres[] = {"null",
                                     "{\"type\":\"Metaspace\"}",
                                     PLAIN,
                                     DIGITS,
                                     "{\"type\":\"ByteLevel\"}",
                                     SEQUENCE(SPLIT("x+"), PLAIN),
                                     SEQUENCE(GPT2, DIGITS),
                                     SEQUENCE(SPLIT(QWEN2), PLAIN) /* without NFC */};
  for (size_t i = 0; i < DF_COUNT_OF(pres); i++) {
    p.pre = pres[i];
    refused(&p, DF_ERR_UNSUPPORTED, "");
  }
  p = default_parts();
  p.added = "[{\"id\":9,\"content\":\"<m>\",\"lstrip\":true}]";
  refused(&p, DF_ERR_UNSUPPORTED, "lstrip");
  p.added = "[{\"id\":9}]";
  refused(&p, DF_ERR_FORMAT, "added token 9");
  p.added = "[{\"content\":\"x\"}]";
  refused(&p, DF_ERR_FORMAT, "id");
  p = default_parts();
  p.post = "{\"type\":\"BertProcessing\"}";
  refused(&p, DF_ERR_UNSUPPORTED, "BertProcessing");
  p = default_parts();
  p.config = "{\"eos_token\":\"<no>\"}";
  refused(&p, DF_ERR_FORMAT, "\"<no>\", which is no token");
  p.config = "[]";
  refused(&p, DF_ERR_FORMAT, "tokenizer_config.json");
  p.config = "{";
  refused(&p, DF_ERR_FORMAT, "JSON");
}

static void test_hf_tokenizer_parse__every_allocation_may_fail(void **state) {
  (void)state;
  parts p = default_parts();
  df_hf_tokenizer warm = parse_ok(&p, 0); /* the JSON library is told about our allocator */
  df_hf_tokenizer_release(&warm);
  size_t failures = 0;
  df_status s = DF_ERR_MEMORY;
  for (uint64_t k = 1; s != DF_OK; k++) {
    df_hf_tokenizer t = {0};
    df_mem_fail_after(k, true);
    const char *text = "{\"added_tokens\":[],\"pre_tokenizer\":" GPT2
                       ",\"model\":{\"vocab\":{\"a\":0,\"b\":1,\"ab\":2},\"merges\":[[\"a\",\"b\"]]}}";
    s = df_hf_tokenizer_parse(text, strlen(text), "{}", 2, 9, &t, NULL);
    df_mem_fail_after(0, false);
    if (s == DF_OK)
      df_hf_tokenizer_release(&t);
    else
      assert_int_equal(s, DF_ERR_MEMORY);
    failures += s != DF_OK;
  }
  assert_true(failures >= 6); /* two trees and four blocks of our own */
}

static void write_file(const char *folder, const char *name, const char *text) {
  char path[256];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  FILE *f = fopen(path, "wb");
  assert_non_null(f);
  assert_int_equal(fputs(text, f) >= 0, 1);
  fclose(f);
}

static void test_hf_tokenizer_load__folder(void **state) {
  (void)state;
  char folder[] = "/tmp/df-hf-tokenizer-XXXXXX", path[256];
  assert_non_null(mkdtemp(folder));
  df_hf_tokenizer t = {0};
  df_error err = {0};
  assert_int_equal(df_hf_tokenizer_load(folder, 0, &t, &err), DF_ERR_IO);
  assert_non_null(strstr(err.msg, "tokenizer.json"));
  write_file(folder, "tokenizer.json", "{\"pre_tokenizer\":" GPT2 ",\"model\":{\"vocab\":{\"a\":0}}}");
  assert_int_equal(df_hf_tokenizer_load(folder, 0, &t, &err), DF_OK);
  assert_true(t.n_tokens == 1 && t.n_merges == 0 && t.eos == -1);
  df_hf_tokenizer_release(&t);
  write_file(folder, "tokenizer_config.json", "{\"eos_token\":\"a\"}");
  assert_int_equal(df_hf_tokenizer_load(folder, 0, &t, &err), DF_OK);
  assert_int_equal(t.eos, 0);
  df_hf_tokenizer_release(&t);
  write_file(folder, "tokenizer.json", "{\"model\":{}}");
  assert_int_equal(df_hf_tokenizer_load(folder, 0, &t, &err), DF_ERR_UNSUPPORTED);
  assert_non_null(strstr(err.msg, folder));
  static const char *const names[] = {"tokenizer.json", "tokenizer_config.json"};
  for (size_t i = 0; i < 2; i++) {
    snprintf(path, sizeof path, "%s/%s", folder, names[i]);
    unlink(path);
  }
  rmdir(folder);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_hf_tokenizer_parse__both_forms_of_merges),
      cmocka_unit_test(test_hf_tokenizer_parse__pre_tokenizers),
      cmocka_unit_test(test_hf_tokenizer_parse__config_and_bos),
      cmocka_unit_test(test_hf_tokenizer_parse__refuses_models),
      cmocka_unit_test(test_hf_tokenizer_parse__refuses_the_rest),
      cmocka_unit_test(test_hf_tokenizer_parse__every_allocation_may_fail),
      cmocka_unit_test(test_hf_tokenizer_load__folder),
  };
  return cmocka_run_group_tests_name("hf_tokenizer", tests, NULL, NULL);
}
