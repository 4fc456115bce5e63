#include "support/tiny_vocab.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static df_slice keep(tiny_vocab *v, const char *a, const char *b, const char *c) {
  size_t na = strlen(a), nb = strlen(b), nc = strlen(c);
  assert_true(v->used + na + nb + nc <= sizeof v->arena);
  char *p = v->arena + v->used;
  memcpy(p, a, na);
  memcpy(p + na, b, nb);
  memcpy(p + na + nb, c, nc);
  v->used += na + nb + nc;
  return (df_slice){p, na + nb + nc};
}

void tiny_init(tiny_vocab *v, bool with_bytes) {
  memset(v, 0, sizeof *v);
  v->spec = df_vocab_spec_default();
  v->spec.tokens = v->tokens;
  v->spec.types = v->types;
  v->spec.merges = v->merges;
  v->spec.pre = "gpt-2";
  for (int b = 0, next = 0x100; with_bytes && b < 256; b++) {
    /* GPT-2's rule as its authors wrote it: printable ones as they are, the others in order from U+0100. */
    bool printable = (b >= '!' && b <= '~') || (b >= 0xA1 && b <= 0xAC) || (b >= 0xAE && b <= 0xFF);
    int cp = printable ? b : next++;
    char text[3] = {(char)cp, 0, 0};
    if (cp >= 0x80) {
      text[0] = (char)(0xC0 | cp >> 6);
      text[1] = (char)(0x80 | (cp & 0x3F));
    }
    (void)tiny_token(v, text, DF_TOKEN_NORMAL);
  }
}

int32_t tiny_token(tiny_vocab *v, const char *text, int32_t type) {
  assert_true(v->spec.n_tokens < TINY_MAX);
  v->tokens[v->spec.n_tokens] = keep(v, text, "", "");
  v->types[v->spec.n_tokens] = type;
  return (int32_t)v->spec.n_tokens++;
}

int32_t tiny_merge(tiny_vocab *v, const char *left, const char *right) {
  assert_true(v->spec.n_merges < TINY_MAX);
  v->merges[v->spec.n_merges++] = keep(v, left, " ", right);
  df_slice made = keep(v, left, right, "");
  for (uint32_t i = 0; i < v->spec.n_tokens; i++)
    if (v->tokens[i].n == made.n && memcmp(v->tokens[i].p, made.p, made.n) == 0) return (int32_t)i;
  assert_true(v->spec.n_tokens < TINY_MAX);
  v->tokens[v->spec.n_tokens] = made;
  v->types[v->spec.n_tokens] = DF_TOKEN_NORMAL;
  return (int32_t)v->spec.n_tokens++;
}

df_tokenizer *tiny_create(const tiny_vocab *v) {
  df_tokenizer *t = NULL;
  df_error err = {0};
  if (df_tokenizer_create(&v->spec, &t, &err) != DF_OK) fail_msg("%s", err.msg);
  return t;
}
