/*
 * Schemas as grammars: documents that an independent validator accepts are admitted, others are not, spelled compactly
 * and with blanks, byte by byte and in the tokens of a real vocabulary where one is there.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "engine/json_schema.h"
#include "support/kernel_data.h"
#include "support/sample_files.h"
#include "support/test_models.h"
#include "support/tiny_vocab.h"

static tiny_vocab g_vocab;

static df_tokenizer *bytes_tokenizer(void) {
  tiny_init(&g_vocab, true);
  (void)tiny_token(&g_vocab, "<|im_end|>", DF_TOKEN_CONTROL);
  return tiny_create(&g_vocab);
}

static df_grammar *compile(const df_tokenizer *t, const char *schema, bool object_only) {
  df_grammar *g = NULL;
  df_error err = {0};
  if (df_json_schema_grammar(t, schema, strlen(schema), object_only, &g, &err) != DF_OK)
    fail_msg("%s\n%s", err.msg, schema);
  return g;
}

static bool bit(const uint64_t *bits, int32_t id) { return bits[id / 64] >> (id % 64) & 1; }

/* Whether the text is admitted as a whole. with_masks: every token must also be in the mask. */
static bool admits(df_grammar *g, const df_tokenizer *t, const char *text, size_t n, bool with_masks) {
  df_matcher *m = NULL;
  df_ids ids = {0};
  df_error err = {0};
  bool ok = true;
  assert_int_equal(df_matcher_create(g, &m, NULL), DF_OK);
  assert_int_equal(df_tokenizer_encode(t, text, n, 0, &ids, NULL), DF_OK);
  for (size_t i = 0; i < ids.n && ok; i++) {
    const uint64_t *bits = NULL;
    bool allowed = false;
    if (with_masks && df_matcher_mask(m, &bits, &err) != DF_OK) fail_msg("%s", err.msg);
    if (bits) allowed = bit(bits, ids.v[i]);
    if (df_matcher_accept(m, ids.v[i], &ok, &err) != DF_OK) fail_msg("%s", err.msg);
    if (with_masks) assert_int_equal(ok, allowed);
  }
  ok = ok && df_matcher_may_end(m);
  df_matcher_free(m);
  df_ids_release(&ids);
  return ok;
}

static void print_json(const df_json *v, df_buf *b) {
  df_json_out w;
  b->len = 0;
  df_json_out_begin(&w, b, NULL);
  df_json_out_value(&w, v);
  assert_int_equal(df_json_out_end(&w), DF_OK);
}

/* A space behind every comma and colon outside of strings, as other programs write JSON; or the lines of a pretty
 * printer. */
static void spread(const df_buf *in, const char *gap, bool around, df_buf *out) {
  bool string = false, escaped = false;
  out->len = 0;
  for (size_t i = 0; i < in->len; i++) {
    char c = in->data[i];
    bool ends = !string && (c == '}' || c == ']'), begins = !string && (c == '{' || c == '[');
    if (ends && around) assert_int_equal(df_buf_puts(out, gap, NULL), DF_OK);
    assert_int_equal(df_buf_put(out, &c, 1, NULL), DF_OK);
    if (!string && (c == ',' || c == ':')) assert_int_equal(df_buf_puts(out, c == ',' ? gap : " ", NULL), DF_OK);
    if (begins && around && in->data[i + 1] != '}' && in->data[i + 1] != ']')
      assert_int_equal(df_buf_puts(out, gap, NULL), DF_OK);
    if (c == '"' && !escaped) string = !string;
    escaped = string && c == '\\' && !escaped;
  }
}

static void check_document(df_grammar *g, const df_tokenizer *t, const df_json *schema, const df_json *v, bool valid,
                           bool masks) {
  df_buf text = {0}, wide = {0}, shown = {0};
  print_json(v, &text);
  const df_json *fixed =
      df_json_member(schema, "enum") ? df_json_member(schema, "enum") : df_json_member(schema, "const");
  for (int form = 0; form < (fixed ? 1 : 3); form++) { /* constants have one spelling */
    const df_buf *b = form == 0 ? &text : &wide;
    if (form) spread(&text, form == 1 ? " " : "\n    ", form == 2, &wide);
    if (admits(g, t, b->data, b->len, masks) == valid) continue;
    print_json(schema, &shown);
    fail_msg("%s should %sbe admitted by %s", b->data, valid ? "" : "not ", shown.data);
  }
  df_buf_release(&text);
  df_buf_release(&wide);
  df_buf_release(&shown);
}

static void check_golden(const df_tokenizer *t, bool masks, size_t stride) {
  df_buf file = {0}, text = {0};
  df_json *golden = NULL;
  size_t n_valid = 0, n_invalid = 0;
  test_read_source_file("tests/golden/json-schema.json", &file);
  assert_int_equal(df_json_parse(file.data, file.len, &golden, NULL), DF_OK);
  for (size_t i = 0; i < df_json_size(golden); i++) {
    const df_json *c = df_json_at(golden, i), *schema = df_json_member(c, "schema");
    const df_json *valid = df_json_member(c, "valid"), *invalid = df_json_member(c, "invalid");
    df_grammar *g = NULL;
    df_error err = {0};
    print_json(schema, &text);
    df_status s = df_json_schema_grammar(t, text.data, text.len, false, &g, &err);
    if (s != DF_OK && (df_json_size(valid) || !strstr(err.msg, "admits no text")))
      fail_msg("%s\n%s", err.msg, text.data);
    if (s != DF_OK) continue;
    for (size_t k = i % stride; k < df_json_size(valid); k += stride, n_valid++)
      check_document(g, t, schema, df_json_at(valid, k), true, masks);
    for (size_t k = i % stride; k < df_json_size(invalid); k += stride, n_invalid++)
      check_document(g, t, schema, df_json_at(invalid, k), false, masks);
    df_grammar_release(g);
  }
  assert_true(n_valid * stride > 700 && n_invalid * stride > 1500);
  df_json_free(golden);
  df_buf_release(&file);
  df_buf_release(&text);
}

static void test_golden__bytes(void **state) {
  (void)state;
  df_tokenizer *t = bytes_tokenizer();
  check_golden(t, true, 1);
  df_tokenizer_free(t);
}

/* Every token of the vocabulary at every place of a text: in the mask exactly when it is accepted. */
static void check_masks(const df_tokenizer *t, const char *schema, const char *text) {
  df_grammar *g = compile(t, schema, false);
  df_matcher *m = NULL;
  df_ids ids = {0};
  size_t words = ((size_t)df_tokenizer_size(t) + 63) / 64;
  uint64_t *copy = df_alloc(words * sizeof *copy);
  const uint64_t *bits = NULL;
  bool ok = false;
  assert_int_equal(df_matcher_create(g, &m, NULL), DF_OK);
  assert_int_equal(df_tokenizer_encode(t, text, strlen(text), 0, &ids, NULL), DF_OK);
  for (size_t i = 0; i <= ids.n; i++) {
    assert_int_equal(df_matcher_mask(m, &bits, NULL), DF_OK);
    memcpy(copy, bits, words * sizeof *copy);
    for (int32_t id = 0; id < (int32_t)df_tokenizer_size(t); id++) {
      assert_int_equal(df_matcher_accept(m, id, &ok, NULL), DF_OK);
      if (ok != bit(copy, id)) fail_msg("token %d at place %zu of %s", id, i, text);
      if (ok) df_matcher_rollback(m, 1);
    }
    if (i == ids.n) break;
    assert_int_equal(df_matcher_accept(m, ids.v[i], &ok, NULL), DF_OK);
    assert_true(ok);
  }
  assert_true(df_matcher_may_end(m));
  df_free(copy);
  df_ids_release(&ids);
  df_matcher_free(m);
  df_grammar_release(g);
}

static void test_mask__every_token(void **state) {
  (void)state;
  df_tokenizer *t = df_test_tokenizer(df_test_model_or_skip("SmolLM2-135M-Instruct"));
  check_masks(t, "{}", "[\"a b\", {\"k\": \"v\"}, 1]");
  check_masks(t,
              "{\"properties\":{\"a\":{\"maxLength\":9},\"b\":{\"enum\":[\"x\",\"xy\"]},\"c\":{\"type\":\"string\"}}}",
              "{\"a\": \"one two\", \"b\": \"xy\", \"c\": \"\xC3\xA4\", \"bb\": 0}");
  df_tokenizer_free(t);
}

static void test_golden__real_vocabulary(void **state) {
  (void)state;
  df_tokenizer *t = df_test_tokenizer(df_test_model_or_skip("SmolLM2-135M-Instruct"));
  check_golden(t, false, 1);
  check_golden(t, true, 24);
  df_tokenizer_free(t);
}

/* ---- texts that are no documents, or odd ones ---------------------------------------------------------- */

static void test_grammar__texts(void **state) {
  (void)state;
  static const struct {
    const char *schema, *text;
    bool want;
  } cases[] = {
      {"", "{\"a\":[1,2]}", true},
      {"{}", "\"\\u00e9\\uD83D\\uDE00\"", true},
      {"{}", "\"\\uD83D\"", false},
      {"{}", "\"\\uDE00\\uD83D\"", false},
      {"{}", "\"\\uD83D\\u0041\"", false},
      {"{}", "\"\\x\"", false},
      {"{}", "\"\n\"", false},
      {"{}", "\"\x01\"", false},
      {"{}", "\"\x7f\"", true},
      {"{}", "\"\xC3\"", false},
      {"{}", "\"\xED\xA0\x80\"", false},
      {"{}", "'a'", false},
      {"{}", "tru", false},
      {"{}", "", false},
      {"{}", " 1", false},
      {"{}", "1 ", false},
      {"{}", "01", false},
      {"{}", "+1", false},
      {"{}", "1.", false},
      {"{}", ".5", false},
      {"{}", "1e5", true},
      {"{}", "1e999", false},
      {"{}", "NaN", false},
      {"{}", "[1,]", false},
      {"{}", "[1  ]", false},
      {"{}", "[\n\t\t1\n]", true},
      {"{}", "{\"a\":\n1}", true},
      {"{}", "{\"a\" :1}", false},
      {"{}", "{\"a\":1,}", false},
      {"{}", "{a:1}", false},
      {"{\"type\":\"string\",\"maxLength\":1}", "\"\\uD83D\\uDE00\"", true},
      {"{\"type\":\"string\",\"maxLength\":1}", "\"\\u0041\"", true},
      {"{\"type\":\"string\",\"maxLength\":1}", "\"\\n\\n\"", false},
      {"{\"properties\":{\"a\":{\"type\":\"integer\"}}}", "{\"\\u0061\":\"x\"}", false}, /* "a" in disguise */
      {"{\"properties\":{\"a\":{\"type\":\"integer\"}}}", "{\"b\\u0061\":\"x\"}", true},
      {"{\"properties\":{\"a\":{},\"b\":{}}}", "{\"a\":1,\"b\":2}", true},
      {"{\"properties\":{\"a\":{},\"b\":{}}}", "{\"b\":1,\"a\":2}", false}, /* order */
      {"{\"properties\":{\"a\":{}}}", "{\"a\":1,\"a\":2}", false},
      {"{\"type\":\"integer\"}", "-0", true},
      {"{\"type\":\"integer\"}", "1.0", false},
      {"{\"type\":\"integer\"}", "1234567890123456789", false},
      {"{\"type\":\"integer\",\"minimum\":1234567890123456789}", "1234567890123456789", true},
      {"{\"type\":\"integer\",\"format\":\"int32\"}", "2147483647", true},
      {"{\"type\":\"integer\",\"format\":\"int32\"}", "2147483648", false},
      {"{\"type\":\"integer\",\"format\":\"int32\"}", "-2147483648", true},
      {"{\"type\":\"string\",\"format\":\"email\"}", "\"a.b+c@mail.example.org\"", true},
      {"{\"type\":\"string\",\"format\":\"email\"}", "\"a.b@\"", false},
      {"{\"type\":\"string\",\"format\":\"time\"}", "\"23:59:59Z\"", true},
      {"{\"type\":\"string\",\"nullable\":true}", "null", true},
      {"{\"type\":\"array\",\"items\":[{\"type\":\"integer\"}],\"additionalItems\":false}", "[1]", true},
      {"{\"type\":\"array\",\"items\":[{\"type\":\"integer\"}],\"additionalItems\":false}", "[1,2]", false},
      {"{\"x-note\":1,\"type\":\"null\"}", "null", true},
      {"{\"$defs\":{\"a/b~c\":{\"type\":\"null\"}},\"$ref\":\"#/$defs/a~1b~0c\"}", "null", true},
      {"{\"anyOf\":[{\"type\":\"null\"},{\"type\":\"boolean\"}],\"items\":{\"$ref\":\"#/anyOf/1\"},\"type\":[\"array\","
       "\"null\"]}",
       "null", true},
  };
  df_tokenizer *t = bytes_tokenizer();
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    df_grammar *g = compile(t, cases[i].schema, false);
    if (admits(g, t, cases[i].text, strlen(cases[i].text), true) != cases[i].want)
      fail_msg("case %zu: %s with %s", i, cases[i].text, cases[i].schema);
    df_grammar_release(g);
  }
  df_tokenizer_free(t);
}

static void test_grammar__object_only(void **state) {
  (void)state;
  static const char *const schemas[] = {"", "{}", "{\"type\":[\"object\",\"null\"]}", "true",
                                        "{\"anyOf\":[{\"type\":\"string\"},{\"properties\":{\"a\":{}}}]}"};
  df_tokenizer *t = bytes_tokenizer();
  for (size_t i = 0; i < sizeof schemas / sizeof *schemas; i++) {
    df_grammar *g = compile(t, schemas[i], true);
    assert_true(admits(g, t, "{\"a\": [null]}", 13, true));
    assert_false(admits(g, t, "null", 4, true));
    assert_false(admits(g, t, "\"x\"", 3, true));
    df_grammar_release(g);
  }
  df_grammar *g = NULL;
  df_error err = {0};
  assert_int_equal(df_json_schema_grammar(t, "{\"type\":\"string\"}", 17, true, &g, &err), DF_ERR_FORMAT);
  assert_non_null(strstr(err.msg, "admits no text"));
  df_tokenizer_free(t);
}

/* A model that always picks white space or the longest run of something must come to an end of it. */
static void test_grammar__white_space_ends(void **state) {
  (void)state;
  df_tokenizer *t = bytes_tokenizer();
  df_grammar *g = compile(t, "{\"properties\":{\"a\":{\"type\":\"integer\"}},\"required\":[\"a\"]}", false);
  df_matcher *m = NULL;
  const char favourites[] = " \n\t0123456789";
  uint32_t n = 0;
  assert_int_equal(df_matcher_create(g, &m, NULL), DF_OK);
  for (bool moved = true; moved && n < 500;) {
    moved = false;
    for (int32_t id = 0; id < 256 + (int32_t)strlen(favourites) && !moved; id++) {
      int32_t pick = id < (int32_t)strlen(favourites) ? favourites[id] : id - (int32_t)strlen(favourites);
      if (pick == ',' && df_matcher_length(m) > 20) continue; /* no further members */
      assert_int_equal(df_matcher_accept(m, pick, &moved, NULL), DF_OK);
    }
    n += moved;
  }
  assert_true(n < 200);
  assert_true(df_matcher_must_end(m));
  df_matcher_free(m);
  df_grammar_release(g);
  df_tokenizer_free(t);
}

/* ---- oneOf --------------------------------------------------------------------------------------------- */

#define KIND(k, more) "{\"type\":\"object\",\"properties\":{\"kind\":{\"const\":\"" k "\"}" more

/* A text is admitted when exactly one alternative fits; a member that tells them apart must be there. */
static void test_one_of__exactly_one(void **state) {
  (void)state;
  static const char k_told[] =
      "{\"oneOf\":[" KIND("a", ",\"x\":{\"type\":\"integer\"}},\"required\":[\"kind\"]}") "," KIND(
          "b", ",\"x\":{\"type\":\"string\"}},\"required\":[\"kind\"]}") "]}";
  /* as pydantic writes a discriminated union whose tag has a default: the tag is not required */
  static const char k_default[] =
      "{\"$defs\":{\"A\":" KIND("a", "}}") ",\"B\":" KIND("b", ",\"x\":{\"type\":\"integer\"}}}") "},"
      "\"discriminator\":{\"propertyName\":\"kind\"},\"oneOf\":[{\"$ref\":\"#/$defs/A\"},{\"$ref\":\"#/$defs/B\"}]}";
  static const char k_closed[] =
      "{\"type\":\"object\",\"oneOf\":[{\"properties\":{\"a\":{\"type\":\"integer\"}},\"required\":[\"a\"],"
      "\"additionalProperties\":false},{\"properties\":{\"b\":{\"type\":\"integer\"}},\"additionalProperties\":false}]"
      "}";
  static const char k_numbers[] =
      "{\"oneOf\":[{\"type\":\"integer\",\"maximum\":3},{\"type\":\"integer\",\"exclusiveMinimum\":3,\"maximum\":9},"
      "{\"type\":\"string\",\"maxLength\":1},{\"type\":\"string\",\"minLength\":2,\"maxLength\":3},{\"enum\":[true,"
      "null]}]}";
  static const char k_nested[] =
      "{\"oneOf\":[{\"anyOf\":[{\"const\":1},{\"const\":\"p\"}]},{\"oneOf\":[{\"const\":2},{\"type\":\"null\"}]}]}";
  static const struct {
    const char *schema, *text;
    bool want;
  } cases[] = {
      {k_told, "{\"kind\":\"a\",\"x\":1}", true},
      {k_told, "{\"kind\":\"b\",\"x\":\"s\"}", true},
      {k_told, "{\"kind\":\"a\",\"x\":\"s\"}", false},
      {k_told, "{\"x\":1}", false},
      {k_default, "{\"kind\":\"a\"}", true},
      {k_default, "{\"kind\":\"b\",\"x\":1}", true},
      {k_default, "{}", false}, /* would fit both */
      {k_default, "{\"x\":1}", false},
      {k_closed, "{\"a\":1}", true},
      {k_closed, "{\"b\":1}", true},
      {k_closed, "{}", true},
      {k_closed, "{\"a\":1,\"b\":1}", false},
      {k_numbers, "3", true},
      {k_numbers, "4", true},
      {k_numbers, "10", false},
      {k_numbers, "\"ab\"", true},
      {k_numbers, "true", true},
      {k_numbers, "false", false},
      {k_nested, "1", true},
      {k_nested, "2", true},
      {k_nested, "\"p\"", true},
      {k_nested, "null", true},
      {k_nested, "3", false},
  };
  df_tokenizer *t = bytes_tokenizer();
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    df_grammar *g = compile(t, cases[i].schema, false);
    if (admits(g, t, cases[i].text, strlen(cases[i].text), true) != cases[i].want)
      fail_msg("%s: %s", cases[i].schema, cases[i].text);
    df_grammar_release(g);
  }
  df_tokenizer_free(t);
}

static void test_one_of__refused_when_two_may_fit(void **state) {
  (void)state;
  static const char *const schemas[] = {
      "{\"oneOf\":[{\"type\":\"integer\"},{\"type\":\"number\"}]}",
      "{\"oneOf\":[{\"type\":\"string\"},{\"type\":\"string\",\"format\":\"date\"}]}",
      "{\"oneOf\":[{\"type\":\"null\"},{\"type\":\"string\"},{\"type\":[\"null\",\"boolean\"]}]}",
      "{\"oneOf\":[{\"enum\":[1,2]},{\"enum\":[2.0,3]}]}",
      "{\"oneOf\":[{\"enum\":[[1]]},{\"enum\":[[2]]}]}",
      "{\"oneOf\":[{},{\"type\":\"null\"}]}",
      "{\"oneOf\":[{\"type\":\"integer\",\"maximum\":3},{\"type\":\"integer\",\"minimum\":3}]}",
      "{\"oneOf\":[{\"type\":\"object\",\"properties\":{\"a\":{}},\"required\":[\"a\"]},{\"type\":\"object\","
      "\"properties\":{"
      "\"b\":{}},\"required\":[\"b\"]}]}",
      "{\"oneOf\":[{\"anyOf\":[{\"const\":1},{\"type\":\"string\"}]},{\"const\":\"x\"}]}",
      "{\"type\":\"array\",\"items\":{\"oneOf\":[{\"$ref\":\"#\"},{\"type\":\"array\",\"maxItems\":1}]}}",
  };
  for (size_t i = 0; i < sizeof schemas / sizeof *schemas; i++) {
    df_buf out = {0};
    df_error err = {0};
    if (df_json_schema_gbnf(schemas[i], strlen(schemas[i]), false, &out, &err) != DF_ERR_UNSUPPORTED ||
        !strstr(err.msg, "of \"oneOf\" at once: use \"anyOf\""))
      fail_msg("%s: %s", schemas[i], err.msg);
    df_buf_release(&out);
  }
}

/* ---- refusals ------------------------------------------------------------------------------------------ */

static void test_gbnf__refused(void **state) {
  (void)state;
  static const struct {
    const char *schema;
    df_status status;
    const char *message;
  } cases[] = {
      {"{", DF_ERR_FORMAT, "could not use the schema: could not parse JSON"},
      {"[]", DF_ERR_FORMAT, "#: a schema must be an object, true or false"},
      {"{\"not\":{}}", DF_ERR_UNSUPPORTED, "#: \"not\" is not supported"},
      {"{\"properties\":{\"a\":{\"items\":{\"if\":{}}}}}", DF_ERR_UNSUPPORTED,
       "#/properties/a/items: \"if\" is not supported"},
      {"{\"anyOf\":[{},{\"contains\":{}}]}", DF_ERR_UNSUPPORTED, "#/anyOf/1: \"contains\""},
      {"{\"patternProperties\":{}}", DF_ERR_UNSUPPORTED, "\"patternProperties\""},
      {"{\"type\":\"array\",\"uniqueItems\":true}", DF_ERR_UNSUPPORTED, "\"uniqueItems\""},
      {"{\"type\":\"int\"}", DF_ERR_FORMAT, "\"type\" must be"},
      {"{\"type\":[]}", DF_ERR_FORMAT, "empty list"},
      {"{\"type\":\"string\",\"format\":\"uri\"}", DF_ERR_UNSUPPORTED, "format \"uri\" is not supported"},
      {"{\"type\":\"string\",\"pattern\":\"abc\"}", DF_ERR_UNSUPPORTED, "must begin with \"^\""},
      {"{\"type\":\"string\",\"pattern\":\"^a|b$\"}", DF_ERR_UNSUPPORTED, "alternatives"},
      {"{\"type\":\"string\",\"pattern\":\"^(?=a)b$\"}", DF_ERR_UNSUPPORTED, "assertions"},
      {"{\"type\":\"string\",\"pattern\":\"^(a)\\\\1$\"}", DF_ERR_UNSUPPORTED, "escape"},
      {"{\"type\":\"string\",\"pattern\":\"^\\\\bx$\"}", DF_ERR_UNSUPPORTED, "escape"},
      {"{\"type\":\"string\",\"pattern\":\"^(a$\"}", DF_ERR_UNSUPPORTED, "a group has no end"},
      {"{\"type\":\"string\",\"pattern\":\"^a)$\"}", DF_ERR_UNSUPPORTED, "a group ends"},
      {"{\"type\":\"string\",\"pattern\":\"^*$\"}", DF_ERR_UNSUPPORTED, "not a regular expression"},
      {"{\"type\":\"string\",\"pattern\":\"^[b-a]$\"}", DF_ERR_UNSUPPORTED, "range"},
      {"{\"type\":\"string\",\"pattern\":\"^a\\\\$\"}", DF_ERR_UNSUPPORTED, "must begin"},
      {"{\"type\":\"string\",\"pattern\":\"^a$\",\"minLength\":2}", DF_ERR_UNSUPPORTED, "at once"},
      {"{\"type\":\"string\",\"minLength\":-1}", DF_ERR_FORMAT, "\"minLength\""},
      {"{\"type\":\"string\",\"minLength\":1.5}", DF_ERR_FORMAT, "\"minLength\""},
      {"{\"type\":\"string\",\"maxLength\":100000}", DF_ERR_LIMIT, "\"maxLength\" is above 65536"},
      {"{\"type\":\"number\",\"minimum\":0.5}", DF_ERR_UNSUPPORTED, "must be whole"},
      {"{\"type\":\"number\",\"minimum\":\"1\"}", DF_ERR_FORMAT, "must be a number"},
      {"{\"type\":\"number\",\"multipleOf\":2}", DF_ERR_UNSUPPORTED, "multipleOf"},
      {"{\"enum\":[]}", DF_ERR_FORMAT, "\"enum\" must be"},
      {"{\"enum\":[\"a\"],\"minLength\":2}", DF_ERR_UNSUPPORTED, "beside other limits"},
      {"{\"$ref\":\"#\"}", DF_ERR_FORMAT, "leads back to itself"},
      {"{\"$defs\":{\"a\":{\"$ref\":\"#/$defs/b\"},\"b\":{\"$ref\":\"#/$defs/a\"}},\"$ref\":\"#/$defs/a\"}",
       DF_ERR_FORMAT, "leads back to itself"},
      {"{\"anyOf\":[{\"$ref\":\"#\"},{\"type\":\"null\"}]}", DF_ERR_FORMAT, "leads back to itself"},
      {"{\"$ref\":\"#/nope\"}", DF_ERR_FORMAT, "leads nowhere"},
      {"{\"$ref\":\"http://x/y\"}", DF_ERR_UNSUPPORTED, "only references within"},
      {"{\"$ref\":7}", DF_ERR_FORMAT, "must be a string"},
      {"{\"allOf\":[]}", DF_ERR_FORMAT, "\"allOf\""},
      {"{\"anyOf\":{}}", DF_ERR_FORMAT, "\"anyOf\""},
      {"{\"properties\":{\"a\":1}}", DF_ERR_FORMAT, "#/properties/a: a schema must be"},
      {"{\"properties\":[]}", DF_ERR_FORMAT, "\"properties\""},
      {"{\"required\":[1]}", DF_ERR_FORMAT, "\"required\""},
      {"{\"properties\":{\"a\":{}},\"maxProperties\":1}", DF_ERR_UNSUPPORTED, "\"maxProperties\""},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    df_buf b = {0};
    df_error err = {0};
    assert_int_equal(df_buf_puts(&b, "kept", NULL), DF_OK);
    df_status s = df_json_schema_gbnf(cases[i].schema, strlen(cases[i].schema), false, &b, &err);
    if (s != cases[i].status || !strstr(err.msg, cases[i].message) || strncmp(err.msg, "could not use the schema", 24))
      fail_msg("case %zu: %d \"%s\" for %s", i, s, err.msg, cases[i].schema);
    assert_string_equal(b.data, "kept");
    df_buf_release(&b);
  }
}

/* Alternatives multiply, references fan out, names are long: work is bounded. */
static void test_gbnf__bounded(void **state) {
  (void)state;
  df_buf s = {0}, out = {0};
  df_error err = {0};
  assert_int_equal(df_buf_puts(&s, "{\"allOf\":[", NULL), DF_OK);
  for (int i = 0; i < 16; i++)
    assert_int_equal(df_buf_printf(&s, NULL, "%s{\"anyOf\":[{\"minimum\":%d},{\"maximum\":%d}]}", i ? "," : "", i, i),
                     DF_OK);
  assert_int_equal(df_buf_puts(&s, "]}", NULL), DF_OK);
  assert_int_equal(df_json_schema_gbnf(s.data, s.len, false, &out, &err), DF_ERR_LIMIT);
  s.len = 0;
  assert_int_equal(df_buf_puts(&s, "{\"$defs\":{", NULL), DF_OK); /* conjunctions of subsets of definitions */
  for (int i = 0; i < 20; i++)
    assert_int_equal(
        df_buf_printf(&s, NULL,
                      "%s\"d%d\":{\"properties\":{\"x\":{\"$ref\":\"#/$defs/d%d\"},\"y\":{\"allOf\":[{\"$ref\":\"#/"
                      "$defs/d%d\"},{\"$ref\":\"#/$defs/d%d\"}]}}}",
                      i ? "," : "", i, (i * 7 + 1) % 20, (i * 3 + 2) % 20, (i * 11 + 5) % 20),
        DF_OK);
  assert_int_equal(df_buf_puts(&s, "},\"$ref\":\"#/$defs/d0\"}", NULL), DF_OK);
  df_status status = df_json_schema_gbnf(s.data, s.len, false, &out, &err);
  assert_true(status == DF_OK || status == DF_ERR_LIMIT);
  s.len = 0;
  for (int i = 0; i < 60; i++)
    assert_int_equal(df_buf_puts(&s, "{\"properties\":{\"a_long_name_of_a_member\":", NULL), DF_OK);
  assert_int_equal(df_buf_puts(&s, "{\"not\":{}}", NULL), DF_OK);
  for (int i = 0; i < 60; i++) assert_int_equal(df_buf_puts(&s, "}}", NULL), DF_OK);
  assert_int_equal(df_json_schema_gbnf(s.data, s.len, false, &out, &err), DF_ERR_UNSUPPORTED);
  assert_non_null(
      strstr(err.msg, "a_long_name_of_a_member/properties/a_long_name_of_a_member: \"not\" is not supported"));
  df_buf_release(&s);
  df_buf_release(&out);
}

static df_status work(void *arg, df_error *err) {
  static const char schema[] =
      "{\"$defs\":{\"n\":{\"type\":\"array\",\"prefixItems\":[{\"type\":\"integer\",\"minimum\":3}],\"items\":{\"$"
      "ref\":\"#/$defs/n\"}}},"
      "\"properties\":{\"u\":{\"oneOf\":[{\"properties\":{\"k\":{\"const\":1}}},{\"properties\":{\"k\":{\"const\":2}}}]"
      "},"
      "\"a\":{\"$ref\":\"#/$defs/"
      "n\"},\"b\":{\"enum\":[1,\"x\"]},\"c\":{\"pattern\":\"^(a|b)$\"}},\"required\":[\"b\"]}";
  df_grammar *g = NULL;
  df_status s = df_json_schema_grammar(arg, schema, sizeof schema - 1, true, &g, err);
  df_grammar_release(g);
  return s;
}

static void test_grammar__out_of_memory(void **state) {
  (void)state;
  df_tokenizer *t = bytes_tokenizer();
  assert_true(test_each_allocation_fails(work, t) > 50);
  df_tokenizer_free(t);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_golden__bytes),          cmocka_unit_test(test_golden__real_vocabulary),
      cmocka_unit_test(test_mask__every_token),      cmocka_unit_test(test_grammar__texts),
      cmocka_unit_test(test_grammar__object_only),   cmocka_unit_test(test_grammar__white_space_ends),
      cmocka_unit_test(test_one_of__exactly_one),    cmocka_unit_test(test_one_of__refused_when_two_may_fit),
      cmocka_unit_test(test_gbnf__refused),          cmocka_unit_test(test_gbnf__bounded),
      cmocka_unit_test(test_grammar__out_of_memory),
  };
  return cmocka_run_group_tests_name("json_schema", tests, NULL, NULL);
}
