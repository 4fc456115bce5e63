/* Counting tokens of reasoning: any cut of any text into tokens against what the whole text says. */
// clang-format off
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
// clang-format on

#include <string.h>

#include "base/size.h"
#include "server/reasoning.h"

/* Where the reasoning of a whole text lies: [*from, *to), empty when there is none. */
static void span(df_think_mode think, const char *text, size_t *from, size_t *to) {
  const size_t space = strspn(text, " \t\r\n");
  *from = *to = 0;
  if (think == DF_THINK_OFF) return;
  if (think == DF_THINK_AUTO) {
    if (strncmp(text + space, "<think>", 7) != 0) return;
    *from = space + 7;
  }
  const char *end = strstr(text + *from, "</think>");
  *to = end ? (size_t)(end - text) : strlen(text);
}

static uint32_t g_seed = 1;
static uint32_t rnd(uint32_t n) {
  g_seed = g_seed * 1664525u + 1013904223u;
  return (g_seed >> 8) % n;
}

static void check(df_think_mode think, const char *text, uint32_t most) {
  const size_t n = strlen(text);
  df_reasoning r;
  size_t from, to;
  uint32_t want = 0, tokens = 0;
  span(think, text, &from, &to);
  df_reasoning_init(&r, think);
  for (size_t i = 0; i < n;) {
    const size_t drawn = 1 + rnd(most), len = DF_MIN(drawn, n - i);
    if (rnd(9) == 0) df_reasoning_token(&r, "", 0), tokens++; /* control tokens add no text */
    df_reasoning_token(&r, text + i, len);
    tokens++;
    want += DF_MAX(i, from) < DF_MIN(i + len, to);
    i += len;
    assert_true(df_reasoning_tokens(&r, true) <= tokens);
  }
  assert_true(df_reasoning_tokens(&r, false) <= df_reasoning_tokens(&r, true));
  if (df_reasoning_tokens(&r, true) != want)
    fail_msg("mode %d, \"%s\" in pieces of up to %u: %u tokens, not %u", (int)think, text, most,
             df_reasoning_tokens(&r, true), want);
}

static void test_reasoning__any_cut(void **state) {
  (void)state;
  static const char *const texts[] = {
      "<think>hm, let me see</think>42",
      " \n<think>\nhm\n</think>\n\n42",
      "<think></think>x",
      "<think>",
      "<think>no end",
      "<think>half an end</thi",
      "<think>a</b></th></thin</think>x</think>y",
      "<think><</</think></think>",
      "<<</think>",
      "no reasoning <think>here</think>",
      "<thinker>x</think>",
      "<thi",
      "",
      "   ",
      "</think>",
      "it begins inside</think>and ends",
      "x<think>y</think>z",
  };
  for (size_t i = 0; i < DF_COUNT_OF(texts); i++)
    for (df_think_mode think = DF_THINK_OFF; think <= DF_THINK_OPEN; think++)
      for (uint32_t round = 0; round < 400; round++) check(think, texts[i], 1 + round % 12);
}

/* Tags that are one token each, as where models were trained to think: they are not counted. */
static void test_reasoning__whole_tags(void **state) {
  (void)state;
  static const char *const tokens[] = {"<think>", "\n", "a", "b", "\n", "</think>", "\n\n", "4", "2", ""};
  static const uint32_t after[] = {0, 1, 2, 3, 4, 4, 4, 4, 4, 4};
  df_reasoning r;
  df_reasoning_init(&r, DF_THINK_AUTO);
  for (size_t i = 0; i < DF_COUNT_OF(tokens); i++) {
    df_reasoning_token(&r, tokens[i], strlen(tokens[i]));
    assert_int_equal(df_reasoning_tokens(&r, false), after[i]);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_reasoning__any_cut),
      cmocka_unit_test(test_reasoning__whole_tags),
  };
  return cmocka_run_group_tests_name("server_reasoning", tests, NULL, NULL);
}
