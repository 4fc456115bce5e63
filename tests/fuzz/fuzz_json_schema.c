/*
 * Any text as a schema. What converts must compile, or be known to admit nothing; texts are spelled by picking among
 * the allowed bytes, shortest way out after a while, and must be JSON.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "engine/json_schema.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define REQUIRE(x)     \
  do {                 \
    if (!(x)) abort(); \
  } while (0)

enum { TOKENS = 257, END = 256, STEPS = 300 };

static df_tokenizer *make_tokenizer(void) {
  static df_slice tokens[TOKENS];
  static int32_t types[TOKENS];
  static char hex[END][7];
  df_vocab_spec spec = df_vocab_spec_default();
  df_tokenizer *t = NULL;
  for (int i = 0; i < END; i++) {
    memcpy(hex[i], "<0x00>", 7);
    hex[i][3] = "0123456789ABCDEF"[i / 16];
    hex[i][4] = "0123456789ABCDEF"[i % 16];
    tokens[i] = (df_slice){hex[i], 6};
    types[i] = DF_TOKEN_BYTE;
  }
  tokens[END] = (df_slice){"<|im_end|>", 10};
  types[END] = DF_TOKEN_CONTROL;
  spec.tokens = tokens;
  spec.types = types;
  spec.n_tokens = TOKENS;
  spec.pre = "gpt-2";
  REQUIRE(df_tokenizer_create(&spec, &t, NULL) == DF_OK);
  return t;
}

/* Late in the walk, what closes comes first. */
static int32_t pick(const uint64_t *mask, uint64_t r, int at) {
  static const char closing[] = "\"}]0:";
  int32_t allowed[TOKENS], n = 0;
  for (int32_t id = 0; id < TOKENS; id++)
    if (mask[id / 64] >> (id % 64) & 1) allowed[n++] = id;
  REQUIRE(n > 0);
  if (at > STEPS / 4) {
    if (mask[END / 64] >> (END % 64) & 1) return END;
    for (const char *c = closing; *c; c++)
      if (mask[*c / 64] >> (*c % 64) & 1) return *c;
  }
  return allowed[r % (uint64_t)n];
}

static void spell(df_grammar *g, uint64_t rng) {
  char text[STEPS];
  df_matcher *m = NULL;
  const uint64_t *mask;
  df_json *v = NULL;
  df_error err = {0};
  bool ok;
  int n = 0;
  REQUIRE(df_matcher_create(g, &m, NULL) == DF_OK);
  for (; n < STEPS; n++) {
    rng = rng * 6364136223846793005u + 1442695040888963407u;
    if (df_matcher_mask(m, &mask, &err) != DF_OK) {
      REQUIRE(err.code == DF_ERR_LIMIT);
      break;
    }
    int32_t id = pick(mask, rng >> 33, n);
    REQUIRE(df_matcher_accept(m, id, &ok, NULL) == DF_OK && ok);
    if (id == END) break;
    text[n] = (char)id;
  }
  if (n < STEPS && err.code == DF_OK) {
    df_status s = df_json_parse(text, (size_t)n, &v, &err);
    /* Members may repeat, and arrays be deeper than is read. */
    REQUIRE(s == DF_OK || s == DF_ERR_LIMIT || strstr(err.msg, "duplicate"));
    if (s == DF_OK) df_json_free(v);
  }
  df_matcher_free(m);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static df_tokenizer *t;
  df_grammar *g = NULL;
  df_buf text = {0};
  df_error err = {0};
  if (size < 1 || size > 4096) return 0;
  if (!t) t = make_tokenizer();
  if (df_json_schema_gbnf((const char *)data + 1, size - 1, data[0] & 1, &text, &err) != DF_OK) {
    REQUIRE(text.len == 0 && err.msg[0] && !strchr(err.msg, '\n'));
    df_buf_release(&text);
    return 0;
  }
  df_status s = df_grammar_from_gbnf(t, text.data, text.len, &g, &err);
  REQUIRE(s == DF_OK || s == DF_ERR_LIMIT || strstr(err.msg, "admits no text"));
  if (s == DF_OK) spell(g, data[0]);
  df_grammar_release(g);
  df_buf_release(&text);
  return 0;
}
