#include <string.h>
#include <utf8proc.h>

#include "base/mem.h"
#include "base/size.h"
#include "text/tokenizer_parts.h"
#include "text/utf8.h"

/* Canonical decompositions never have more characters than this, recursion included (Unicode 15: 4). */
enum { MAX_DECOMPOSED = 16, SHORT_RUN = 16 };

bool df_nfc_is_plain(const char *text, size_t n) {
  /* Everything below U+0300 is in NFC and does not change with what follows, unless that is a mark from U+0300 on;
   * lead bytes up to CB encode exactly these. */
  for (size_t i = 0; i < n; i++)
    if ((uint8_t)text[i] > 0xCB) return false;
  return true;
}

static int combining_class(int32_t cp) { return utf8proc_get_property(cp)->combining_class; }

/* Stable sort of one run of marks by combining class. Insertion for the usual two or three; a counting sort over the
 * 256 classes for runs that only an attacker writes, where insertion would take quadratic time. */
static df_status sort_marks(int32_t *run, size_t n, df_error *err) {
  if (n <= SHORT_RUN) {
    for (size_t i = 1; i < n; i++) {
      int32_t cp = run[i];
      int cc = combining_class(cp);
      size_t j = i;
      for (; j > 0 && combining_class(run[j - 1]) > cc; j--) run[j] = run[j - 1];
      run[j] = cp;
    }
    return DF_OK;
  }
  int32_t *copy = df_alloc(n * sizeof *copy);
  if (!copy) return DF_OOM(err, "normalising text", n * sizeof *copy);
  memcpy(copy, run, n * sizeof *copy);
  size_t start[257] = {0};
  for (size_t i = 0; i < n; i++) start[(combining_class(copy[i]) & 0xFF) + 1]++;
  for (int c = 1; c <= 256; c++) start[c] += start[c - 1];
  for (size_t i = 0; i < n; i++) run[start[combining_class(copy[i]) & 0xFF]++] = copy[i];
  df_free(copy);
  return DF_OK;
}

static df_status order_marks(int32_t *cps, size_t n, df_error *err) {
  for (size_t i = 0; i < n;) {
    if (combining_class(cps[i]) == 0) {
      i++;
      continue;
    }
    size_t begin = i;
    while (i < n && combining_class(cps[i]) != 0) i++;
    if (i - begin > 1) DF_TRY(sort_marks(cps + begin, i - begin, err));
  }
  return DF_OK;
}

/* Growable array of characters. */
typedef struct cp_list {
  int32_t *v;
  size_t n, cap;
} cp_list;

static df_status cp_reserve(cp_list *l, size_t extra, df_error *err) {
  if (l->cap - l->n >= extra) return DF_OK;
  size_t cap, bytes;
  if (!df_mul_size(l->cap, 2, &cap) || !df_add_size(cap, extra, &cap) || !df_mul_size(cap, sizeof *l->v, &bytes))
    return DF_OOM(err, "normalising text", SIZE_MAX);
  int32_t *v = df_realloc(l->v, bytes);
  if (!v) return DF_OOM(err, "normalising text", bytes);
  l->v = v;
  l->cap = cap;
  return DF_OK;
}

/* Full canonical decomposition of every character, in text order. */
static df_status decompose(const char *text, size_t n, cp_list *l, df_error *err) {
  for (size_t i = 0; i < n;) {
    df_utf8_kind kind;
    uint32_t cp = 0;
    i += df_utf8_step(text + i, n - i, &kind, &cp);
    if (kind != DF_UTF8_CHAR) return DF_FAIL(err, DF_ERR_INTERNAL, "could not normalise text: it is no valid UTF-8");
    DF_TRY(cp_reserve(l, MAX_DECOMPOSED, err));
    int boundary = 0;
    utf8proc_ssize_t k = cp < 0x80 ? 1
                                   : utf8proc_decompose_char((int32_t)cp, l->v + l->n, MAX_DECOMPOSED,
                                                             UTF8PROC_DECOMPOSE | UTF8PROC_STABLE, &boundary);
    if (cp < 0x80) l->v[l->n] = (int32_t)cp;
    if (k < 0 || k > MAX_DECOMPOSED)
      return DF_FAIL(err, DF_ERR_INTERNAL, "could not decompose the character U+%04X", (unsigned)cp);
    l->n += (size_t)k;
  }
  return DF_OK;
}

df_status df_nfc_normalize(const char *text, size_t n, df_buf *out, df_error *err) {
  cp_list l = {0};
  df_status s = cp_reserve(&l, n < 64 ? 64 : n / 2, err);
  if (s == DF_OK) s = decompose(text, n, &l, err);
  if (s == DF_OK) s = order_marks(l.v, l.n, err);
  if (s != DF_OK) goto out;
  out->len = 0;
  utf8proc_ssize_t m = utf8proc_normalize_utf32(l.v, (utf8proc_ssize_t)l.n, UTF8PROC_COMPOSE | UTF8PROC_STABLE);
  if (m < 0) {
    s = DF_FAIL(err, DF_ERR_INTERNAL, "could not normalise text: %s", utf8proc_errmsg(m));
    goto out;
  }
  for (utf8proc_ssize_t i = 0; i < m; i++) {
    char c[4];
    size_t k = df_utf8_encode((uint32_t)l.v[i], c);
    DF_TRY_GOTO(s, df_buf_put(out, c, k, err), out);
  }
out:
  df_free(l.v);
  return s;
}
