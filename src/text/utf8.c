#include "text/utf8.h"

#include <assert.h>
#include <string.h>

static const char REPLACEMENT[3] = {'\xEF', '\xBF', '\xBD'};

/* Length of the character that starts with `lead` and the range its second byte must be in (table 3-7); 0 for a byte
 * that starts nothing. All later bytes are 80..BF. */
static size_t lead_length(uint8_t lead, uint8_t *lo, uint8_t *hi) {
  *lo = 0x80;
  *hi = 0xBF;
  if (lead < 0x80) return 1;
  if (lead < 0xC2) return 0;
  if (lead < 0xE0) return 2;
  if (lead < 0xF0) {
    if (lead == 0xE0) *lo = 0xA0;
    if (lead == 0xED) *hi = 0x9F;
    return 3;
  }
  if (lead > 0xF4) return 0;
  if (lead == 0xF0) *lo = 0x90;
  if (lead == 0xF4) *hi = 0x8F;
  return 4;
}

size_t df_utf8_step(const char *p, size_t n, df_utf8_kind *kind, uint32_t *cp) {
  assert(n > 0);
  const uint8_t *s = (const uint8_t *)p;
  uint8_t lo, hi;
  size_t want = lead_length(s[0], &lo, &hi);
  *kind = DF_UTF8_BAD;
  if (want == 0) return 1;
  uint32_t v = want == 1 ? s[0] : s[0] & (0x7Fu >> want);
  for (size_t i = 1; i < want; i++) {
    if (i == n) {
      *kind = DF_UTF8_INCOMPLETE;
      return n;
    }
    if (s[i] < lo || s[i] > hi) return i;
    lo = 0x80;
    hi = 0xBF;
    v = v << 6 | (s[i] & 0x3Fu);
  }
  *kind = DF_UTF8_CHAR;
  if (cp) *cp = v;
  return want;
}

size_t df_utf8_valid_prefix(const char *p, size_t n) {
  size_t i = 0;
  while (i < n) {
    uint64_t v;
    if (n - i >= 8) { /* most text is ASCII: eight bytes at a time */
      memcpy(&v, p + i, 8);
      if (!(v & 0x8080808080808080u)) {
        i += 8;
        continue;
      }
    }
    df_utf8_kind kind;
    size_t k = df_utf8_step(p + i, n - i, &kind, NULL);
    if (kind != DF_UTF8_CHAR) return i;
    i += k;
  }
  return n;
}

size_t df_utf8_count(const char *p, size_t n) {
  size_t count = 0;
  for (size_t i = 0; i < n; i++) count += ((unsigned char)p[i] & 0xC0) != 0x80;
  return count;
}

size_t df_utf8_encode(uint32_t cp, char out[4]) {
  assert(cp < 0x110000 && (cp < 0xD800 || cp > 0xDFFF));
  if (cp < 0x80) {
    out[0] = (char)cp;
    return 1;
  }
  if (cp < 0x800) {
    out[0] = (char)(0xC0 | cp >> 6);
    out[1] = (char)(0x80 | (cp & 0x3F));
    return 2;
  }
  if (cp < 0x10000) {
    out[0] = (char)(0xE0 | cp >> 12);
    out[1] = (char)(0x80 | (cp >> 6 & 0x3F));
    out[2] = (char)(0x80 | (cp & 0x3F));
    return 3;
  }
  out[0] = (char)(0xF0 | cp >> 18);
  out[1] = (char)(0x80 | (cp >> 12 & 0x3F));
  out[2] = (char)(0x80 | (cp >> 6 & 0x3F));
  out[3] = (char)(0x80 | (cp & 0x3F));
  return 4;
}

df_status df_utf8_put_replaced(df_buf *out, const char *p, size_t n, df_error *err) {
  size_t i = 0;
  while (i < n) {
    size_t good = df_utf8_valid_prefix(p + i, n - i);
    DF_TRY(df_buf_put(out, p + i, good, err));
    i += good;
    if (i == n) break;
    df_utf8_kind kind;
    i += df_utf8_step(p + i, n - i, &kind, NULL);
    DF_TRY(df_buf_put(out, REPLACEMENT, sizeof REPLACEMENT, err));
  }
  return DF_OK;
}
