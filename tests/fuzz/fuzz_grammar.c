/*
 * Any text as a grammar. The first byte chooses the walk. What compiles is walked by picking among the allowed tokens:
 * no walk may come to a dead end, masks and acceptance must agree, and taking tokens back must bring masks back.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "text/grammar.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define REQUIRE(x)     \
  do {                 \
    if (!(x)) abort(); \
  } while (0)

enum { BYTES = 256, WORDS = 24, TOKENS = BYTES + WORDS + 2, END = TOKENS - 1, STEPS = 40 };

/* 256 bytes, some longer tokens, one control token, one end. */
static df_tokenizer *make_tokenizer(void) {
  static const char *const words[WORDS] = {"ab",  "abc", "aa", "aaaa", "bc",   "cd",   "\\u",  "\"}",
                                           "\",", "{\"", "00", "01",   "tr",   "true", "null", "[[",
                                           "]]",  "::=", "x1", "()",   "root", "---",  "a-z",  "zz"};
  static df_slice tokens[TOKENS];
  static int32_t types[TOKENS];
  static char hex[BYTES][7];
  df_vocab_spec spec = df_vocab_spec_default();
  df_tokenizer *t = NULL;
  for (int i = 0; i < BYTES; i++) {
    memcpy(hex[i], "<0x00>", 7);
    hex[i][3] = "0123456789ABCDEF"[i / 16];
    hex[i][4] = "0123456789ABCDEF"[i % 16];
    tokens[i] = (df_slice){hex[i], 6};
    types[i] = DF_TOKEN_BYTE;
  }
  for (int i = 0; i < WORDS; i++) tokens[BYTES + i] = (df_slice){words[i], strlen(words[i])};
  for (int i = BYTES; i < TOKENS; i++) types[i] = DF_TOKEN_NORMAL;
  tokens[END - 1] = (df_slice){"<control>", 9};
  tokens[END] = (df_slice){"<|im_end|>", 10};
  types[END - 1] = types[END] = DF_TOKEN_CONTROL;
  spec.tokens = tokens;
  spec.types = types;
  spec.n_tokens = TOKENS;
  spec.pre = "gpt-2";
  REQUIRE(df_tokenizer_create(&spec, &t, NULL) == DF_OK);
  return t;
}

static bool bit(const uint64_t *bits, int32_t id) { return bits[id / 64] >> (id % 64) & 1; }

/* One step of the walk: checks the place, moves on. false: the walk is over. */
static bool step(df_matcher *m, uint64_t *rng) {
  const uint64_t *mask;
  uint64_t bits[(TOKENS + 63) / 64];
  int32_t allowed[TOKENS];
  uint32_t n = 0, length = df_matcher_length(m);
  bool ok;
  df_error err;
  if (df_matcher_mask(m, &mask, &err) != DF_OK) {
    REQUIRE(err.code == DF_ERR_LIMIT && err.msg[0]);
    return false;
  }
  memcpy(bits, mask, sizeof bits);
  for (int32_t id = 0; id < TOKENS; id++)
    if (bit(bits, id)) allowed[n++] = id;
  REQUIRE(n > 0 && !bit(bits, END - 1));
  REQUIRE(bit(bits, END) == df_matcher_may_end(m));
  REQUIRE((n == 1 && bit(bits, END)) == df_matcher_must_end(m));
  for (int k = 0; k < 6; k++) { /* any token: accepted exactly when its bit is set; taken back, all is as before */
    *rng = *rng * 6364136223846793005u + 1442695040888963407u;
    int32_t id = k < 3 ? (int32_t)((*rng >> 33) % TOKENS) : allowed[(*rng >> 33) % n];
    if (df_matcher_accept(m, id, &ok, &err) == DF_OK)
      REQUIRE(ok == bit(bits, id));
    else /* too ambiguous to follow: nothing moved */
      REQUIRE(err.code == DF_ERR_LIMIT && bit(bits, id) && !(ok = false));
    if (ok && id != END) REQUIRE(df_matcher_mask(m, &mask, &err) == DF_OK || err.code == DF_ERR_LIMIT);
    if (ok) df_matcher_rollback(m, 1);
    REQUIRE(df_matcher_length(m) == length);
    REQUIRE(df_matcher_mask(m, &mask, NULL) == DF_OK && memcmp(mask, bits, sizeof bits) == 0);
  }
  int32_t id = allowed[(*rng >> 40) % n];
  if (df_matcher_accept(m, id, &ok, &err) != DF_OK) {
    REQUIRE(err.code == DF_ERR_LIMIT);
    return false;
  }
  REQUIRE(ok);
  return id != END;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static df_tokenizer *t;
  df_grammar *g = NULL;
  df_matcher *m = NULL;
  df_error err = {0};
  if (size < 1 || size > 4096) return 0;
  if (!t) t = make_tokenizer();
  if (df_grammar_from_gbnf(t, (const char *)data + 1, size - 1, &g, &err) != DF_OK) {
    REQUIRE(!g && err.msg[0] && !strchr(err.msg, '\n'));
    return 0;
  }
  REQUIRE(df_matcher_create(g, &m, NULL) == DF_OK);
  uint64_t rng = data[0];
  int steps = 0;
  while (steps < STEPS && step(m, &rng)) steps++;
  df_matcher_free(m);
  df_grammar_release(g);
  return 0;
}
