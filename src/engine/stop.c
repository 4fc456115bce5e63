#include "engine/stop.h"

#include <string.h>

#include "base/mem.h"
#include "base/size.h"

enum { PENDING_SLACK = 1024 };

static df_status check(const df_stop_config *c, df_error *err) {
  if (c->n_strings > DF_STOP_MAX_STRINGS)
    return DF_FAIL(err, DF_ERR_LIMIT, "%u stop strings, at most %d are allowed", c->n_strings, DF_STOP_MAX_STRINGS);
  if (c->n_eos_ids > DF_STOP_MAX_IDS || c->n_stop_ids > DF_STOP_MAX_IDS)
    return DF_FAIL(err, DF_ERR_LIMIT, "too many stop tokens, at most %d are allowed", DF_STOP_MAX_IDS);
  for (uint32_t i = 0; i < c->n_strings; i++) {
    if (c->strings[i].len == 0) return DF_FAIL(err, DF_ERR_ARGUMENT, "stop string %u is empty", i);
    if (c->strings[i].len > DF_STOP_MAX_BYTES)
      return DF_FAIL(err, DF_ERR_LIMIT, "stop string %u has %zu bytes, at most %d are allowed", i, c->strings[i].len,
                     DF_STOP_MAX_BYTES);
  }
  return DF_OK;
}

static void build_fail(const unsigned char *s, uint32_t len, uint32_t *fail) {
  fail[0] = 0;
  for (uint32_t i = 1, k = 0; i < len; i++) {
    while (k && s[i] != s[k]) k = fail[k - 1];
    if (s[i] == s[k]) k++;
    fail[i] = k;
  }
}

df_status df_stop_init(df_stop *s, const df_stop_config *c, df_error *err) {
  *s = (df_stop){0};
  DF_TRY(check(c, err));
  size_t text = 0, longest = 0;
  for (uint32_t i = 0; i < c->n_strings; i++) {
    text += c->strings[i].len;
    longest = DF_MAX(longest, c->strings[i].len);
  }
  const uint32_t n_eos = c->ignore_eos ? 0 : c->n_eos_ids;
  const uint32_t n_ids = n_eos + c->n_stop_ids;
  /* One block: automata, ids, failure links, bytes. */
  const size_t bytes = c->n_strings * sizeof(df_stop_string) + n_ids * sizeof(int32_t) + text * (sizeof(uint32_t) + 1);
  char *b = df_alloc(bytes);
  if (!b) return DF_OOM(err, "stop strings", bytes);
  df_buf_init(&s->pending, 0);
  df_status st = df_buf_reserve(&s->pending, longest + PENDING_SLACK, err);
  if (st != DF_OK) {
    df_free(b);
    return st;
  }
  s->block = b;
  s->strings = (df_stop_string *)(void *)b;
  s->ids = (int32_t *)(void *)(b + c->n_strings * sizeof(df_stop_string));
  uint32_t *fail = (uint32_t *)(void *)(s->ids + n_ids);
  unsigned char *copy = (unsigned char *)(fail + text);
  for (uint32_t i = 0; i < c->n_strings; i++) {
    const uint32_t len = (uint32_t)c->strings[i].len;
    memcpy(copy, c->strings[i].data, len);
    build_fail(copy, len, fail);
    s->strings[i] = (df_stop_string){.s = copy, .fail = fail, .len = len};
    copy += len;
    fail += len;
  }
  if (n_eos) memcpy(s->ids, c->eos_ids, n_eos * sizeof *s->ids);
  if (c->n_stop_ids) memcpy(s->ids + n_eos, c->stop_ids, c->n_stop_ids * sizeof *s->ids);
  s->n_strings = c->n_strings;
  s->n_eos = n_eos;
  s->n_ids = n_ids;
  s->max_new_tokens = c->max_new_tokens;
  s->context_tokens = c->context_tokens;
  s->min_tokens = c->min_tokens;
  if (s->context_tokens == 0) s->finish = DF_FINISH_CONTEXT;
  if (s->max_new_tokens == 0) s->finish = DF_FINISH_LENGTH;
  return DF_OK;
}

void df_stop_release(df_stop *s) {
  df_free(s->block);
  df_buf_release(&s->pending);
  *s = (df_stop){0};
}

/* Advances all automata by one byte; index of the longest string complete at this byte, or -1. */
static int32_t step(df_stop *s, unsigned char c) {
  int32_t hit = -1;
  for (uint32_t i = 0; i < s->n_strings; i++) {
    df_stop_string *a = &s->strings[i];
    uint32_t k = a->state == a->len ? a->fail[a->len - 1] : a->state;
    while (k && a->s[k] != c) k = a->fail[k - 1];
    if (a->s[k] == c) k++;
    a->state = k;
    if (k == a->len && (hit < 0 || a->len > s->strings[hit].len)) hit = (int32_t)i;
  }
  return hit;
}

/* Bytes at the end of pending that a stop string may still begin with. A complete string (passed over because of
 * min_tokens) counts with its border: it is out of the game itself. */
static size_t held(const df_stop *s) {
  size_t h = 0;
  for (uint32_t i = 0; i < s->n_strings; i++) {
    const df_stop_string *a = &s->strings[i];
    const size_t k = a->state == a->len ? a->fail[a->len - 1] : a->state;
    h = DF_MAX(h, k);
  }
  return h;
}

static void append(df_buf *b, const void *p, size_t n) {
  if (n == 0) return;
  memcpy(b->data + b->len, p, n);
  b->len += n;
  b->data[b->len] = '\0';
}

/* Moves the first n pending bytes to out; both have room. */
static void emit(df_stop *s, size_t n, df_buf *out) {
  append(out, s->pending.data, n);
  s->pending.len -= n;
  if (s->pending.len) memmove(s->pending.data, s->pending.data + n, s->pending.len);
}

/* Takes one token into pending and decides whether it is the last. */
static void take(df_stop *s, int32_t id, const df_text_piece *piece, df_stop_result *res) {
  const size_t before = s->pending.len;
  const bool may_stop = s->n_tokens >= s->min_tokens;
  s->n_tokens++;
  res->kept++;
  for (size_t i = 0; i < piece->len; i++) {
    append(&s->pending, piece->data + i, 1);
    const int32_t hit = step(s, (unsigned char)piece->data[i]);
    if (hit < 0 || !may_stop) continue;
    s->pending.len -= s->strings[hit].len;
    s->finish = DF_FINISH_STRING;
    res->matched_string = hit;
    return;
  }
  for (uint32_t i = 0; may_stop && i < s->n_ids; i++) {
    if (s->ids[i] != id) continue;
    s->pending.len = before;
    s->finish = i < s->n_eos ? DF_FINISH_EOS : DF_FINISH_ID;
    res->matched_id = id;
    return;
  }
  if (s->n_tokens >= s->max_new_tokens)
    s->finish = DF_FINISH_LENGTH;
  else if (s->n_tokens >= s->context_tokens)
    s->finish = DF_FINISH_CONTEXT;
}

df_status df_stop_feed(df_stop *s, const int32_t *ids, const df_text_piece *pieces, uint32_t n, df_buf *out,
                       df_stop_result *res, df_error *err) {
  df_stop_result r = {.finish = s->finish, .matched_id = -1, .matched_string = -1};
  if (s->finish == DF_FINISH_NONE) {
    size_t bytes = 0;
    for (uint32_t i = 0; i < n; i++)
      if (!df_add_size(bytes, pieces[i].len, &bytes)) return DF_FAIL(err, DF_ERR_LIMIT, "the text is too long");
    /* All room first: after this nothing can fail half way. */
    DF_TRY(df_buf_reserve(&s->pending, bytes, err));
    DF_TRY(df_buf_reserve(out, s->pending.len + bytes, err));
    for (uint32_t i = 0; i < n && s->finish == DF_FINISH_NONE; i++) take(s, ids[i], &pieces[i], &r);
    emit(s, s->finish == DF_FINISH_NONE ? s->pending.len - held(s) : s->pending.len, out);
    r.finish = s->finish;
  }
  *res = r;
  return DF_OK;
}

df_status df_stop_flush(df_stop *s, df_buf *out, df_error *err) {
  DF_TRY(df_buf_reserve(out, s->pending.len, err));
  emit(s, s->pending.len, out);
  return DF_OK;
}

const char *df_finish_name(df_finish f) {
  switch (f) {
    case DF_FINISH_NONE: return "";
    case DF_FINISH_EOS:
    case DF_FINISH_ID:
    case DF_FINISH_STRING: return "stop";
    case DF_FINISH_LENGTH:
    case DF_FINISH_CONTEXT: return "length";
    case DF_FINISH_CANCELLED: return "cancelled";
  }
  return "";
}
