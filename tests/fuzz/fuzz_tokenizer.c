/*
 * A vocabulary and a text from the input. Whatever the vocabulary: no crash, ids inside it, no control token unless
 * asked for. When it has all bytes and no NFC, decoding gives the text back byte for byte, and merging never makes more
 * tokens than bytes.
 *
 * Input: one byte of flags, then records "kind length bytes" up to kind 0, the rest is the text.
 */
#include <stdlib.h>
#include <string.h>

#include "text/tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define REQUIRE(x)     \
  do {                 \
    if (!(x)) abort(); \
  } while (0)

enum { MAX = 512, ALL_BYTES = 1, IGNORE_MERGES = 2, PARSE = 4, ADD_BOS = 8, PRE_SHIFT = 4 };

static df_slice g_tokens[MAX + 256], g_merges[MAX];
static int32_t g_types[MAX + 256];
static char g_bytes[256][2], g_joined[1 << 17];

static uint32_t put_bytes(void) {
  for (unsigned b = 0, next = 0x100; b < 256; b++) {
    unsigned cp = (b >= '!' && b <= '~') || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE ? b : next++;
    if (cp < 0x80)
      g_bytes[b][0] = (char)cp;
    else {
      g_bytes[b][0] = (char)(0xC0 | cp >> 6);
      g_bytes[b][1] = (char)(0x80 | (cp & 0x3F));
    }
    g_tokens[b] = (df_slice){g_bytes[b], cp < 0x80 ? 1 : 2};
    g_types[b] = DF_TOKEN_NORMAL;
  }
  return 256;
}

/* Reads the records; returns where the text begins. Merges join two earlier tokens and add the one they make. */
static size_t read_vocab(const uint8_t *data, size_t size, df_vocab_spec *spec) {
  size_t at = 1, used = 0;
  while (at + 2 <= size && data[at] != 0 && spec->n_tokens < MAX + 255 && spec->n_merges < MAX) {
    unsigned kind = data[at] % 8, n = data[at + 1];
    at += 2;
    if (kind == 7 || kind == 0) { /* a merge: two token numbers */
      if (spec->n_tokens == 0 || at + 2 > size) break;
      df_slice l = g_tokens[(data[at] + 256u * (n & 1)) % spec->n_tokens];
      df_slice r = g_tokens[(data[at + 1] + 256u * (n >> 1 & 1)) % spec->n_tokens];
      at += 2;
      if (used + 2 * (l.n + r.n) + 1 > sizeof g_joined) break;
      char *p = g_joined + used;
      memcpy(p, l.p, l.n);
      p[l.n] = ' ';
      memcpy(p + l.n + 1, r.p, r.n);
      g_merges[spec->n_merges++] = (df_slice){p, l.n + r.n + 1};
      p += l.n + r.n + 1;
      memcpy(p, l.p, l.n);
      memcpy(p + l.n, r.p, r.n);
      g_tokens[spec->n_tokens] = (df_slice){p, l.n + r.n};
      g_types[spec->n_tokens++] = DF_TOKEN_NORMAL;
      used += 2 * (l.n + r.n) + 1;
      continue;
    }
    if (at + n > size) break;
    g_tokens[spec->n_tokens] = (df_slice){(const char *)data + at, n};
    g_types[spec->n_tokens++] = (int32_t)kind;
    at += n;
  }
  return at < size && data[at] == 0 ? at + 1 : at;
}

static void check_text(const df_tokenizer *t, unsigned set, bool nfc, const char *text, size_t n) {
  df_ids ids = {0};
  df_buf out = {0};
  REQUIRE(df_tokenizer_encode(t, text, n, set & PARSE ? DF_ENCODE_PARSE_SPECIAL : 0, &ids, NULL) == DF_OK);
  for (size_t i = 0; i < ids.n; i++) {
    REQUIRE(ids.v[i] >= 0 && (uint32_t)ids.v[i] < df_tokenizer_size(t));
    REQUIRE((set & PARSE) || !df_tokenizer_is_special(t, ids.v[i]));
  }
  REQUIRE(nfc || ids.n <= n);
  REQUIRE(df_tokenizer_decode(t, ids.v, ids.n, DF_DECODE_RAW | DF_DECODE_SHOW_SPECIAL, &out, NULL) == DF_OK);
  if ((set & ALL_BYTES) && !nfc) REQUIRE(out.len == n && (n == 0 || memcmp(out.data, text, n) == 0));
  df_ids_release(&ids);
  df_buf_release(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (size < 2) return 0;
  static const char *const names[] = {"gpt-2", "smollm", "qwen2", "llama-bpe", "gpt-4o", "qwen35"};
  unsigned set = data[0], pre = (set >> PRE_SHIFT) % 6;
  df_vocab_spec spec = df_vocab_spec_default();
  spec.tokens = g_tokens;
  spec.types = g_types;
  spec.merges = g_merges;
  spec.ignore_merges = set & IGNORE_MERGES;
  spec.pre = names[pre];
  if (set & ALL_BYTES) spec.n_tokens = put_bytes();
  size_t at = read_vocab(data, size, &spec);
  df_tokenizer *t = NULL;
  df_error err = {0};
  df_status s = df_tokenizer_create(&spec, &t, &err);
  if (s == DF_OK)
    check_text(t, set, pre == 2 || pre == 5, (const char *)data + at, size - at);
  else
    REQUIRE(err.code == s && err.msg[0] != '\0');
  df_tokenizer_free(t);
  return 0;
}
