#include "text/detok.h"

#include <string.h>

#include "text/utf8.h"

/* Takes one more byte after the held ones. At most one character can end here, and at most one broken part before
 * it, which leaves this byte to start anew. */
static df_status put_byte(df_detok *d, char c, df_buf *out, df_error *err) {
  d->held[d->n_held++] = c;
  while (d->n_held > 0) {
    df_utf8_kind kind;
    size_t k = df_utf8_step(d->held, d->n_held, &kind, NULL);
    if (kind == DF_UTF8_INCOMPLETE) break;
    if (kind == DF_UTF8_CHAR)
      DF_TRY(df_buf_put(out, d->held, k, err));
    else
      DF_TRY(df_utf8_put_replaced(out, d->held, k, err));
    d->n_held = (uint8_t)(d->n_held - k);
    memmove(d->held, d->held + k, d->n_held);
  }
  return DF_OK;
}

static df_status put_bytes(df_detok *d, const char *p, size_t n, df_buf *out, df_error *err) {
  size_t i = 0;
  while (i < n) {
    if (d->n_held == 0) {
      size_t good = df_utf8_valid_prefix(p + i, n - i);
      DF_TRY(df_buf_put(out, p + i, good, err));
      i += good;
      if (i == n) break;
    }
    DF_TRY(put_byte(d, p[i++], out, err));
  }
  return DF_OK;
}

/* Takes back what a failed call appended. */
static void undo(df_buf *out, size_t len) {
  out->len = len;
  if (out->data) out->data[len] = '\0';
}

df_status df_detok_push_bytes(df_detok *d, const char *p, size_t n, df_buf *out, df_error *err) {
  const size_t before = out->len;
  const df_detok saved = *d;
  const df_status s = put_bytes(d, p, n, out, err);
  if (s != DF_OK) {
    *d = saved;
    undo(out, before);
  }
  return s;
}

df_status df_detok_push(df_detok *d, int32_t id, df_buf *out, df_error *err) {
  const char *p;
  size_t n;
  if (!df_tokenizer_piece(d->tok, id, &p, &n))
    return DF_FAIL(err, DF_ERR_ARGUMENT, "could not decode token %d: the vocabulary has %u", (int)id,
                   df_tokenizer_size(d->tok));
  if (!d->show_special && df_tokenizer_is_special(d->tok, id)) return DF_OK;
  return df_detok_push_bytes(d, p, n, out, err);
}

df_status df_detok_flush(df_detok *d, df_buf *out, df_error *err) {
  if (d->n_held == 0) return DF_OK;
  DF_TRY(df_utf8_put_replaced(out, d->held, d->n_held, err));
  d->n_held = 0;
  return DF_OK;
}

df_status df_tokenizer_decode(const df_tokenizer *t, const int32_t *ids, size_t n, unsigned flags, df_buf *out,
                              df_error *err) {
  df_detok d;
  size_t before = out->len;
  df_status s = DF_OK;
  df_detok_init(&d, t, flags & DF_DECODE_SHOW_SPECIAL);
  for (size_t i = 0; s == DF_OK && i < n; i++) {
    const char *p;
    size_t k;
    if (!(flags & DF_DECODE_RAW))
      s = df_detok_push(&d, ids[i], out, err);
    else if (!df_tokenizer_piece(t, ids[i], &p, &k))
      s = DF_FAIL(err, DF_ERR_ARGUMENT, "could not decode token %d: the vocabulary has %u", (int)ids[i],
                  df_tokenizer_size(t));
    else if (d.show_special || !df_tokenizer_is_special(t, ids[i]))
      s = df_buf_put(out, p, k, err);
  }
  if (s == DF_OK) s = df_detok_flush(&d, out, err);
  if (s != DF_OK) undo(out, before);
  return s;
}
