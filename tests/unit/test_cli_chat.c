/* Chat: how typed lines become messages, conversations saved and loaded, file name rules of the cache. */
// clang-format off
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
// clang-format on

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/size.h"
#include "cli/chat_conv.h"
#include "cli/chat_input.h"
#include "cli/pull.h"

/* Feeds lines; returns the number of messages, joined with '|' into out; blocks are marked with '#'. */
static size_t feed(const char *const *lines, size_t n, char *out, size_t cap) {
  df_block_state st = {0};
  df_buf text;
  bool done = false, block = false;
  size_t count = 0, o = 0;
  df_buf_init(&text, 0);
  out[0] = '\0';
  for (size_t i = 0; i < n; i++) {
    assert_int_equal(df_block_feed(&st, lines[i], strlen(lines[i]), &text, &done, &block, NULL), DF_OK);
    if (!done) continue;
    o += (size_t)snprintf(out + o, cap - o, "%s%s%s", count ? "|" : "", block ? "#" : "", text.data ? text.data : "");
    count++;
  }
  df_buf_release(&text);
  return count;
}

static void test_block_feed__lines_and_blocks(void **state) {
  (void)state;
  static const struct {
    const char *lines[5];
    const char *want;
  } cases[] = {
      {{"one", "two"}, "one|two"},
      {{"\"\"\"", "a", "b", "\"\"\"", "c"}, "#a\nb|c"},
      {{"\"\"\"a", "", "b\"\"\""}, "#a\n\nb"},
      {{"\"\"\"one line\"\"\"", "x"}, "#one line|x"},
      {{"\"\"\"\"\"\"", "x"}, "#|x"},
      {{"first \\", "second\\", "third"}, "#first \nsecond\nthird"},
      {{"\"\"\"keep \\", "this\"\"\""}, "#keep \\\nthis"}, /* a backslash inside a block is text */
      {{"\"\"\"", "/exit", "\"\"\""}, "#/exit"},
      {{"say \"\"\"x\"\"\""}, "say \"\"\"x\"\"\""}, /* only at the start of a line */
      {{"", "x"}, "|x"},
  };
  for (size_t i = 0; i < DF_COUNT_OF(cases); i++) {
    char out[256];
    size_t n = 0;
    while (n < 5 && cases[i].lines[n]) n++;
    (void)feed(cases[i].lines, n, out, sizeof out);
    assert_string_equal(out, cases[i].want);
  }
}

static void test_conv__system_message(void **state) {
  (void)state;
  df_conv c = {0};
  df_buf b;
  df_buf_init(&b, 0);
  assert_int_equal(df_conv_put(&c, "user", "hi", 2, NULL), DF_OK);
  assert_int_equal(df_conv_set_system(&c, "be brief", NULL), DF_OK); /* goes to the front */
  assert_int_equal(df_conv_set_system(&c, "be kind", NULL), DF_OK);  /* replaces */
  assert_int_equal(df_conv_json(&c, &b, NULL), DF_OK);
  assert_string_equal(b.data, "[{\"role\":\"system\",\"content\":\"be kind\"},{\"role\":\"user\",\"content\":\"hi\"}]");
  df_conv_clear(&c);
  assert_int_equal(c.n, 1); /* the system message stays */
  assert_int_equal(df_conv_set_system(&c, "", NULL), DF_OK);
  assert_int_equal(c.n, 0);
  df_buf_release(&b);
  df_conv_release(&c);
}

static void test_conv__round_trip(void **state) {
  (void)state;
  static const char tricky[] = "quotes \" \\ lines\n tabs\t zero\0byte \u00e4\u4e2d";
  char path[] = "/tmp/dflash-conv-XXXXXX";
  int fd = mkstemp(path);
  assert_true(fd >= 0);
  (void)close(fd);
  df_conv a = {0}, b = {0};
  assert_int_equal(df_conv_put(&a, "user", tricky, sizeof tricky - 1, NULL), DF_OK);
  for (int i = 0; i < 100; i++) assert_int_equal(df_conv_put(&a, i % 2 ? "user" : "assistant", "x", 1, NULL), DF_OK);
  assert_int_equal(df_conv_save(&a, path, "m", NULL), DF_OK);
  assert_int_equal(df_conv_load(&b, path, NULL), DF_OK);
  assert_int_equal(b.n, a.n);
  for (size_t i = 0; i < a.n; i++) {
    assert_string_equal(b.m[i].role, a.m[i].role);
    assert_int_equal(b.m[i].len, a.m[i].len);
    assert_memory_equal(b.m[i].text, a.m[i].text, a.m[i].len);
  }
  df_conv_release(&a);
  df_conv_release(&b);
  (void)unlink(path);
}

static void test_conv_load__bad_files_leave_the_conversation(void **state) {
  (void)state;
  static const char *const bad[] = {"",
                                    "{",
                                    "{}",
                                    "[1]",
                                    "[{\"role\":\"user\"}]",
                                    "[{\"content\":\"x\"}]",
                                    "[{\"role\":\"root\",\"content\":\"x\"}]",
                                    "{\"messages\":{}}",
                                    "[{\"role\":\"user\",\"content\":5}]"};
  char path[] = "/tmp/dflash-conv-XXXXXX";
  int fd = mkstemp(path);
  assert_true(fd >= 0);
  (void)close(fd);
  df_conv c = {0};
  assert_int_equal(df_conv_put(&c, "user", "keep", 4, NULL), DF_OK);
  for (size_t i = 0; i < DF_COUNT_OF(bad); i++) {
    df_error err;
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    (void)fputs(bad[i], f);
    (void)fclose(f);
    if (df_conv_load(&c, path, &err) == DF_OK) fail_msg("loaded %s", bad[i]);
    assert_non_null(strstr(err.msg, path));
    assert_int_equal(c.n, 1);
    assert_string_equal(c.m[0].text, "keep");
  }
  (void)unlink(path);
  df_error err;
  assert_int_equal(df_conv_load(&c, path, &err), DF_ERR_IO);
  df_conv_release(&c);
}

static void test_conv__survives_lost_allocations(void **state) {
  (void)state;
  for (uint64_t n = 1; n < 12; n++) {
    df_conv c = {0};
    df_mem_fail_after(n, false);
    (void)!df_conv_put(&c, "user", "a", 1, NULL);
    (void)!df_conv_set_system(&c, "s", NULL);
    (void)!df_conv_put(&c, "user", "b", 1, NULL);
    df_mem_fail_after(0, false);
    for (size_t i = 0; i < c.n; i++) assert_non_null(c.m[i].text);
    df_conv_release(&c);
  }
}

static void test_name_is_safe__stays_below_the_cache(void **state) {
  (void)state;
  static const char *const good[] = {"a", "model.gguf", "org/name/file.gguf", "..a", "a..", "\u00e4.gguf", ".hidden"};
  static const char *const bad[] = {"",    "/",    "/etc/passwd", "..",   "../x", "a/../b", "a/..",
                                    "./a", "a//b", "a/",          "a\\b", "a\nb", "\x7f"};
  for (size_t i = 0; i < DF_COUNT_OF(good); i++) {
    if (!df_name_is_safe(good[i])) fail_msg("%s was refused", good[i]);
  }
  for (size_t i = 0; i < DF_COUNT_OF(bad); i++) {
    if (df_name_is_safe(bad[i])) fail_msg("%s was taken", bad[i]);
  }
  char longest[600];
  memset(longest, 'a', sizeof longest);
  longest[255] = '\0';
  assert_true(df_name_is_safe(longest));
  longest[255] = 'a';
  longest[256] = '\0';
  assert_false(df_name_is_safe(longest));
}

static void test_is_repo_spec__forms(void **state) {
  (void)state;
  static const char *const good[] = {"org/name", "Org-1/na_me.x", "o/n:file.gguf", "o/n:sub/file.gguf"};
  static const char *const bad[] = {"name", "/name", "org/", "a/b/c", "../name", "org/..", "o r/n", "", "org/:x"};
  for (size_t i = 0; i < DF_COUNT_OF(good); i++) {
    if (!df_is_repo_spec(good[i])) fail_msg("%s was refused", good[i]);
  }
  for (size_t i = 0; i < DF_COUNT_OF(bad); i++) {
    if (df_is_repo_spec(bad[i])) fail_msg("%s was taken", bad[i]);
  }
}

static void test_file_sha256__known_digest(void **state) {
  (void)state;
  char path[] = "/tmp/dflash-sha-XXXXXX", hex[65];
  df_term t = {0};
  int fd = mkstemp(path);
  assert_true(fd >= 0);
  assert_int_equal(write(fd, "abc", 3), 3); /* FIPS 180-2, example B.1 */
  (void)close(fd);
  assert_int_equal(df_file_sha256(&t, path, NULL, hex, NULL), DF_OK);
  assert_string_equal(hex, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  char *parts[] = {path, path};
  char out[sizeof path + 8];
  (void)snprintf(out, sizeof out, "%s.out", path);
  assert_int_equal(df_files_join(&t, parts, 2, 6, out, hex, NULL), DF_OK);
  assert_string_equal(hex, "bbb59da3af939f7af5f360f2ceb80a496e3bae1cd87dde426db0ae40677e1c2c"); /* of "abcabc" */
  assert_int_equal(df_file_bytes(out), 6);
  (void)unlink(out);
  (void)unlink(path);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_block_feed__lines_and_blocks),
      cmocka_unit_test(test_conv__system_message),
      cmocka_unit_test(test_conv__round_trip),
      cmocka_unit_test(test_conv_load__bad_files_leave_the_conversation),
      cmocka_unit_test(test_conv__survives_lost_allocations),
      cmocka_unit_test(test_name_is_safe__stays_below_the_cache),
      cmocka_unit_test(test_is_repo_spec__forms),
      cmocka_unit_test(test_file_sha256__known_digest),
  };
  return cmocka_run_group_tests_name("cli_chat", tests, NULL, NULL);
}
