#include "support/grammar_probe.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "support/tiny_vocab.h"

static tiny_vocab g_vocab;

df_tokenizer *grammar_probe_tokenizer(void) {
  static const char *const words[] = {"ab", "abc", "bc", "aa", "ca", "cab", "abab", "bb", "cc", "aaa", "a"};
  tiny_init(&g_vocab, true);
  assert_int_equal(tiny_token(&g_vocab, "<|im_end|>", DF_TOKEN_CONTROL), GRAMMAR_PROBE_EOS);
  (void)tiny_token(&g_vocab, "a<x>", DF_TOKEN_CONTROL);
  for (size_t i = 0; i < sizeof words / sizeof *words; i++)
    (void)tiny_token(&g_vocab, words[i], i + 1 < sizeof words / sizeof *words ? DF_TOKEN_NORMAL : DF_TOKEN_USER);
  (void)tiny_token(&g_vocab, "", DF_TOKEN_NORMAL);
  (void)tiny_token(&g_vocab, "ab", DF_TOKEN_UNUSED);
  return tiny_create(&g_vocab);
}

df_grammar *grammar_probe_compile(const df_tokenizer *t, const char *text) {
  df_grammar *g = NULL;
  df_error err = {0};
  if (df_grammar_from_gbnf(t, text, strlen(text), &g, &err) != DF_OK) fail_msg("%s\n%s", err.msg, text);
  return g;
}

bool grammar_probe_accept(df_matcher *m, int32_t id) {
  bool ok = false;
  df_error err = {0};
  if (df_matcher_accept(m, id, &ok, &err) != DF_OK) fail_msg("%s", err.msg);
  return ok;
}

const uint64_t *grammar_probe_mask(df_matcher *m) {
  const uint64_t *bits = NULL;
  df_error err = {0};
  if (df_matcher_mask(m, &bits, &err) != DF_OK) fail_msg("%s", err.msg);
  return bits;
}

int grammar_probe_feed(df_matcher *m, const char *text, size_t n) {
  uint32_t before = df_matcher_length(m);
  int result = -1;
  size_t i = 0;
  while (i < n && grammar_probe_accept(m, (uint8_t)text[i])) i++;
  if (i == n) result = df_matcher_may_end(m);
  df_matcher_rollback(m, df_matcher_length(m) - before);
  return result;
}
