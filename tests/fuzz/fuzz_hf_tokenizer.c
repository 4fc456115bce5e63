/*
 * Both JSON texts from the input, separated by a zero byte. What is accepted must be consistent: every id has a text
 * and a type, every merge a blank inside, special ids lie in the vocabulary.
 */
#include <stdlib.h>
#include <string.h>

#include "format/hf_tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define REQUIRE(x)     \
  do {                 \
    if (!(x)) abort(); \
  } while (0)

static void check(const df_hf_tokenizer *t) {
  size_t bytes = 0;
  REQUIRE(t->n_tokens > 0 && t->pre && t->pre[0]);
  for (uint32_t i = 0; i < t->n_tokens; i++) {
    REQUIRE(t->tokens[i].data && t->types[i] >= 1 && t->types[i] <= 5);
    for (size_t k = 0; k < t->tokens[i].len; k++) bytes += (uint8_t)t->tokens[i].data[k];
  }
  for (uint32_t i = 0; i < t->n_merges; i++) {
    REQUIRE(t->merges[i].data);
    for (size_t k = 0; k < t->merges[i].len; k++) bytes += (uint8_t)t->merges[i].data[k];
  }
  const int32_t ids[] = {t->bos, t->eos, t->pad, t->unk, t->mask};
  for (size_t i = 0; i < sizeof ids / sizeof *ids; i++) REQUIRE(ids[i] >= -1 && ids[i] < (int32_t)t->n_tokens);
  REQUIRE(!t->add_bos || t->bos >= -1);
  if (t->chat_template) bytes += strlen(t->chat_template);
  REQUIRE(bytes < SIZE_MAX);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  const uint8_t *zero = size ? memchr(data, 0, size) : NULL;
  size_t n = zero ? (size_t)(zero - data) : size;
  df_hf_tokenizer t;
  df_error err = {0};
  df_status s = df_hf_tokenizer_parse((const char *)data, n, zero ? (const char *)zero + 1 : NULL,
                                      zero ? size - n - 1 : 0, n % 64, &t, &err);
  if (s == DF_OK) {
    check(&t);
    df_hf_tokenizer_release(&t);
  } else {
    REQUIRE(err.code == s && err.msg[0] != '\0');
  }
  return 0;
}
