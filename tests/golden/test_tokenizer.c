/*
 * Ids, decoded text and single pieces of two real vocabularies, against vectors made with the reference tokenizers.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <jansson.h>

#include "base/mem.h"
#include "support/test_models.h"
#include "text/detok.h"

typedef struct fixture {
  json_t *golden;
  df_tokenizer *tok;
} fixture;

static fixture open_fixture(const char *model, const char *golden) {
  fixture f = {0};
  const char *path = df_test_model_or_skip(model);
  size_t n;
  char *text = df_test_read_file(golden, &n);
  f.golden = json_loadb(text, n, JSON_ALLOW_NUL, NULL);
  df_free(text);
  assert_non_null(f.golden);
  f.tok = df_test_tokenizer(path);
  assert_int_equal(df_tokenizer_size(f.tok), json_integer_value(json_object_get(f.golden, "vocab_size")));
  return f;
}

static void close_fixture(fixture *f) {
  json_decref(f->golden);
  df_tokenizer_free(f->tok);
}

static bool ids_equal(const df_ids *ids, const json_t *want) {
  if (ids->n != json_array_size(want)) return false;
  for (size_t i = 0; i < ids->n; i++)
    if (ids->v[i] != json_integer_value(json_array_get(want, i))) return false;
  return true;
}

static void encode(const df_tokenizer *t, const char *text, size_t n, bool special, df_ids *ids) {
  df_error err = {0};
  ids->n = 0;
  if (df_tokenizer_encode(t, text, n, special ? DF_ENCODE_PARSE_SPECIAL : 0, ids, &err) != DF_OK)
    fail_msg("%s", err.msg);
}

static void check_cases(const fixture *f) {
  size_t i, wrong = 0;
  json_t *c;
  df_ids ids = {0};
  df_buf out = {0}, streamed = {0};
  json_array_foreach(json_object_get(f->golden, "cases"), i, c) {
    const json_t *text = json_object_get(c, "text"), *decoded = json_object_get(c, "decoded");
    encode(f->tok, json_string_value(text), json_string_length(text), json_is_true(json_object_get(c, "parse_special")),
           &ids);
    bool ok = ids_equal(&ids, json_object_get(c, "ids"));
    out.len = streamed.len = 0;
    assert_int_equal(df_tokenizer_decode(f->tok, ids.v, ids.n, DF_DECODE_SHOW_SPECIAL, &out, NULL), DF_OK);
    ok = ok && out.len == json_string_length(decoded) &&
         (out.len == 0 || memcmp(out.data, json_string_value(decoded), out.len) == 0);
    df_detok d;
    df_detok_init(&d, f->tok, true);
    for (size_t k = 0; k < ids.n; k++) assert_int_equal(df_detok_push(&d, ids.v[k], &streamed, NULL), DF_OK);
    assert_int_equal(df_detok_flush(&d, &streamed, NULL), DF_OK);
    ok = ok && streamed.len == out.len && (out.len == 0 || memcmp(streamed.data, out.data, out.len) == 0);
    if (ok) continue;
    wrong++;
    print_error("case %zu, group %s: \"%s\"\n  got: ", i, json_string_value(json_object_get(c, "group")),
                json_string_value(text));
    for (size_t k = 0; k < ids.n; k++) print_error("%d ", ids.v[k]);
    print_error("\n");
  }
  assert_true(i > 200);
  assert_int_equal(wrong, 0);
  df_ids_release(&ids);
  df_buf_release(&out);
  df_buf_release(&streamed);
}

static size_t from_hex(const char *hex, char *out, size_t cap) {
  size_t n = strlen(hex) / 2;
  assert_true(n <= cap);
  for (size_t i = 0; i < n; i++) {
    unsigned v = 0;
    for (size_t k = 2 * i; k < 2 * i + 2; k++)
      v = v * 16 + (unsigned)(hex[k] <= '9' ? hex[k] - '0' : hex[k] - 'a' + 10);
    out[i] = (char)v;
  }
  return n;
}

static void check_nul_cases(const fixture *f) {
  size_t i;
  json_t *c;
  df_ids ids = {0};
  json_array_foreach(json_object_get(f->golden, "nul_cases"), i, c) {
    char text[64];
    size_t n = from_hex(json_string_value(json_object_get(c, "text_hex")), text, sizeof text);
    encode(f->tok, text, n, true, &ids);
    assert_true(ids_equal(&ids, json_object_get(c, "ids")));
  }
  assert_int_equal(i, 4);
  df_ids_release(&ids);
}

static void check_pieces(const fixture *f) {
  size_t i, k;
  json_t *c, *hex;
  df_ids ids = {0};
  json_array_foreach(json_object_get(f->golden, "pieces"), i, c) {
    const json_t *text = json_object_get(c, "text");
    encode(f->tok, json_string_value(text), json_string_length(text), true, &ids);
    assert_true(ids_equal(&ids, json_object_get(c, "ids")));
    json_array_foreach(json_object_get(c, "pieces_hex"), k, hex) {
      char want[512];
      const char *piece;
      size_t n, m = from_hex(json_string_value(hex), want, sizeof want);
      assert_true(df_tokenizer_piece(f->tok, ids.v[k], &piece, &n));
      assert_int_equal(n, m);
      assert_memory_equal(piece, want, n);
    }
    assert_int_equal(k, ids.n);
  }
  assert_int_equal(i, 3);
  df_ids_release(&ids);
}

static void check_special_tokens(const fixture *f) {
  size_t i;
  json_t *c;
  json_array_foreach(json_object_get(f->golden, "special_tokens"), i, c) {
    int32_t id = (int32_t)json_integer_value(json_object_get(c, "id"));
    const json_t *text = json_object_get(c, "text");
    bool control = strcmp(json_string_value(json_object_get(c, "kind")), "control") == 0;
    assert_int_equal(df_tokenizer_find(f->tok, json_string_value(text), json_string_length(text)), id);
    assert_int_equal(df_tokenizer_type(f->tok, id), control ? DF_TOKEN_CONTROL : DF_TOKEN_USER);
    assert_int_equal(df_tokenizer_is_special(f->tok, id), control);
  }
  assert_true(i > 0);
}

static void check_all(const char *model, const char *golden) {
  fixture f = open_fixture(model, golden);
  check_special_tokens(&f);
  check_pieces(&f);
  check_nul_cases(&f);
  check_cases(&f);
  close_fixture(&f);
}

static void test_tokenizer__smollm2(void **state) {
  (void)state;
  check_all("smollm2-135m-instruct-dflash", "tests/golden/tokenizer-smollm2.json");
}

static void test_tokenizer__qwen2(void **state) {
  (void)state;
  check_all("qwen2.5-coder-1.5b-instruct-dflash", "tests/golden/tokenizer-qwen2.json");
}

/* The draft carries a copy of its target's vocabulary: equal hashes, no differing token. */
static void test_tokenizer_hash__draft_equals_target(void **state) {
  (void)state;
  const char *target = df_test_model_or_skip("SmolLM2-135M-Instruct");
  const char *draft = df_test_model_or_skip("smollm2-135m-instruct-dflash");
  df_tokenizer *a = df_test_tokenizer(target), *b = df_test_tokenizer(draft);
  assert_true(df_tokenizer_hash(a) == df_tokenizer_hash(b));
  assert_int_equal(df_tokenizer_first_difference(a, b), -1);
  size_t n;
  const int32_t *eog = df_tokenizer_eog_ids(a, &n);
  assert_int_equal(n, 2);
  assert_int_equal(eog[0], 0); /* <|endoftext|> */
  assert_int_equal(eog[1], 2); /* <|im_end|> */
  df_tokenizer_free(a);
  df_tokenizer_free(b);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_tokenizer__smollm2),
      cmocka_unit_test(test_tokenizer__qwen2),
      cmocka_unit_test(test_tokenizer_hash__draft_equals_target),
  };
  return cmocka_run_group_tests_name("tokenizer", tests, NULL, NULL);
}
