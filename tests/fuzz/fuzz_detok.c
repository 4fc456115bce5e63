/*
 * Bytes become tokens of one to four bytes; the streamed text must equal the one-shot text, consist of whole characters
 * at every step, and never change by where the bytes are cut.
 */
#include <stdlib.h>
#include <string.h>

#include "text/detok.h"
#include "text/utf8.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define REQUIRE(x)     \
  do {                 \
    if (!(x)) abort(); \
  } while (0)

/* Tokens are cut where the low bits of the control bytes say: the first byte of the input gives the number of those. */
static df_tokenizer *make_tokenizer(const uint8_t *cuts, size_t n_cuts, const char *text, size_t n, uint32_t *count) {
  static df_slice tokens[4096];
  static int32_t types[4096];
  static char printable[4096 * 8];
  size_t used = 0, i = 0;
  *count = 0;
  while (i < n && *count < 4096) {
    size_t k = n_cuts ? 1 + cuts[*count % n_cuts] % 4 : 1, begin = used;
    for (size_t end = i + k; i < end && i < n; i++) {
      /* The printable form, from its definition. */
      unsigned b = (uint8_t)text[i], cp = b;
      if (b <= 0x20)
        cp = 0x100 + b;
      else if (b >= 0x7F && b <= 0xA0)
        cp = 0x121 + b - 0x7F;
      else if (b == 0xAD)
        cp = 0x143;
      used += df_utf8_encode(cp, printable + used);
    }
    tokens[*count] = (df_slice){printable + begin, used - begin};
    types[(*count)++] = DF_TOKEN_NORMAL;
  }
  if (*count == 0) return NULL;
  df_vocab_spec spec = df_vocab_spec_default();
  spec.tokens = tokens;
  spec.types = types;
  spec.n_tokens = *count;
  spec.pre = "gpt-2";
  df_tokenizer *t = NULL;
  REQUIRE(df_tokenizer_create(&spec, &t, NULL) == DF_OK);
  return t;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (size < 1 || size > 3000) return 0;
  size_t n_cuts = data[0] % 16;
  if (n_cuts + 1 > size) return 0;
  const char *text = (const char *)data + 1 + n_cuts;
  size_t n = size - 1 - n_cuts;
  uint32_t count;
  df_tokenizer *t = make_tokenizer(data + 1, n_cuts, text, n, &count);
  if (!t) return 0;
  df_buf streamed = {0}, whole = {0};
  df_detok d;
  df_detok_init(&d, t, true);
  for (uint32_t i = 0; i < count; i++) {
    size_t before = streamed.len;
    REQUIRE(df_detok_push(&d, (int32_t)i, &streamed, NULL) == DF_OK);
    REQUIRE(d.n_held <= 3);
    REQUIRE(streamed.len == before || df_utf8_valid(streamed.data + before, streamed.len - before));
  }
  REQUIRE(df_detok_flush(&d, &streamed, NULL) == DF_OK);
  REQUIRE(df_utf8_put_replaced(&whole, text, n, NULL) == DF_OK);
  REQUIRE(streamed.len == whole.len && memcmp(streamed.data, whole.data, whole.len) == 0);
  df_buf_release(&streamed);
  df_buf_release(&whole);
  df_tokenizer_free(t);
  return 0;
}
