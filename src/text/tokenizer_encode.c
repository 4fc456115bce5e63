#include "base/mem.h"
#include "text/tokenizer_parts.h"
#include "text/utf8.h"

/* Working state of one call: threads share nothing but the tokenizer. */
typedef struct encoder {
  const df_tokenizer *t;
  df_ids *out;
  df_bpe_scratch scratch;
  df_buf normal; /* NFC form of the stretch in work */
  df_buf text;   /* printable form of a piece */
} encoder;

/* For vocabularies that take whole pieces first. Appends the piece and sets *done when it is a token. */
static df_status encode_whole(encoder *e, const char *piece, size_t n, bool *done, df_error *err) {
  e->text.len = 0;
  DF_TRY(df_buf_reserve(&e->text, 2 * n, err));
  for (size_t i = 0; i < n; i++) e->text.len += df_bytelevel_put((uint8_t)piece[i], e->text.data + e->text.len);
  uint32_t id;
  *done = df_map_get(&e->t->by_text, e->text.data, e->text.len, &id) && df_token_is_mergeable(e->t, id);
  return *done ? df_ids_push(e->out, (int32_t)id, err) : DF_OK;
}

static df_status encode_piece(void *arg, const char *piece, size_t n, df_error *err) {
  encoder *e = arg;
  bool done = false;
  if (e->t->ignore_merges) DF_TRY(encode_whole(e, piece, n, &done, err));
  return done ? DF_OK : df_bpe_encode(&e->t->bpe, piece, n, &e->scratch, e->out, err);
}

static df_status encode_valid(encoder *e, const char *text, size_t n, df_error *err) {
  if (n == 0) return DF_OK;
  if (e->t->nfc && !df_nfc_is_plain(text, n)) {
    DF_TRY(df_nfc_normalize(text, n, &e->normal, err));
    text = e->normal.data;
    n = e->normal.len;
  }
  return df_pretok_run(e->t->pretok, text, n, encode_piece, e, err);
}

/* A stretch without added tokens: valid UTF-8 as a whole, each other byte alone. */
static df_status encode_stretch(encoder *e, const char *text, size_t n, df_error *err) {
  while (n > 0) {
    size_t good = df_utf8_valid_prefix(text, n);
    DF_TRY(encode_valid(e, text, good, err));
    if (good == n) break;
    int32_t id = e->t->bpe.byte_id[(uint8_t)text[good]];
    if (id >= 0) DF_TRY(df_ids_push(e->out, id, err));
    text += good + 1;
    n -= good + 1;
  }
  return DF_OK;
}

static df_status encode_all(encoder *e, const char *text, size_t n, unsigned flags, df_error *err) {
  const df_added *added = flags & DF_ENCODE_PARSE_SPECIAL ? &e->t->added_all : &e->t->added_always;
  if ((flags & DF_ENCODE_ADD_BOS) && df_tokenizer_adds_bos(e->t)) DF_TRY(df_ids_push(e->out, e->t->bos, err));
  size_t done = 0, begin, end;
  int32_t id;
  while (df_added_find(added, text, n, done, &begin, &end, &id)) {
    DF_TRY(encode_stretch(e, text + done, begin - done, err));
    DF_TRY(df_ids_push(e->out, id, err));
    done = end;
  }
  return done < n ? encode_stretch(e, text + done, n - done, err) : DF_OK;
}

df_status df_tokenizer_encode(const df_tokenizer *t, const char *text, size_t n, unsigned flags, df_ids *out,
                              df_error *err) {
  encoder e = {.t = t, .out = out};
  size_t before = out->n;
  df_status s = encode_all(&e, text, n, flags, err);
  if (s != DF_OK) out->n = before;
  df_bpe_scratch_release(&e.scratch);
  df_buf_release(&e.normal);
  df_buf_release(&e.text);
  return s;
}
