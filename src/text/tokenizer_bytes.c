#include <string.h>

#include "text/tokenizer_parts.h"
#include "text/utf8.h"

/* GPT-2's table: printable Latin-1 characters stand for their own byte; the 68 other bytes, in order, for U+0100 and
 * up. */
static bool stands_for_itself(unsigned b) {
  return (b >= '!' && b <= '~') || (b >= 0xA1 && b <= 0xAC) || (b >= 0xAE && b <= 0xFF);
}

static uint32_t char_of_byte(unsigned b) {
  if (stands_for_itself(b)) return b;
  if (b <= 0x20) return 0x100 + b;
  if (b <= 0xA0) return 0x100 + 33 + (b - 0x7F);
  return 0x143; /* 0xAD, the last one */
}

/* -1 when no byte has this character. */
static int byte_of_char(uint32_t cp) {
  if (cp < 0x100) return stands_for_itself(cp) ? (int)cp : -1;
  if (cp <= 0x120) return (int)(cp - 0x100);
  if (cp <= 0x142) return (int)(cp - 0x100 - 33 + 0x7F);
  return cp == 0x143 ? 0xAD : -1;
}

size_t df_bytelevel_put(uint8_t b, char out[2]) {
  char c[4];
  size_t n = df_utf8_encode(char_of_byte(b), c);
  memcpy(out, c, n);
  return n;
}

size_t df_bytelevel_decode(const char *text, size_t n, char *out) {
  size_t m = 0;
  for (size_t i = 0; i < n;) {
    df_utf8_kind kind;
    uint32_t cp = 0;
    i += df_utf8_step(text + i, n - i, &kind, &cp);
    int b = kind == DF_UTF8_CHAR ? byte_of_char(cp) : -1;
    if (b < 0) {
      memcpy(out, text, n);
      return n;
    }
    out[m++] = (char)b;
  }
  return m;
}
