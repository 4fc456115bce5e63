/* Writing JSON: straight into a buffer, no tree is built. */
#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "format/json.h"

/* Length of the well-formed UTF-8 sequence at s (RFC 3629: no overlong forms, no surrogates, up to U+10FFFF), or minus
 * the length of the longest piece that could have started one, at least 1. */
static int utf8_step(const unsigned char *s, size_t n) {
  unsigned char c = s[0], lo = 0x80, hi = 0xBF;
  int need;
  if (c < 0x80) return 1;
  if (c >= 0xC2 && c <= 0xDF) {
    need = 1;
  } else if (c >= 0xE0 && c <= 0xEF) {
    need = 2;
    if (c == 0xE0) lo = 0xA0;
    if (c == 0xED) hi = 0x9F;
  } else if (c >= 0xF0 && c <= 0xF4) {
    need = 3;
    if (c == 0xF0) lo = 0x90;
    if (c == 0xF4) hi = 0x8F;
  } else {
    return -1;
  }
  for (int i = 1; i <= need; i++) {
    if ((size_t)i >= n || s[i] < lo || s[i] > hi) return -i;
    lo = 0x80;
    hi = 0xBF;
  }
  return need + 1;
}

/* The escape of a byte that must not stand in a string, or NULL. buf holds the \u form. */
static const char *escape_of(unsigned char c, char buf[8]) {
  switch (c) {
    case '"': return "\\\"";
    case '\\': return "\\\\";
    case '\n': return "\\n";
    case '\r': return "\\r";
    case '\t': return "\\t";
    case '\b': return "\\b";
    case '\f': return "\\f";
    default: break;
  }
  if (c >= 0x20 && c != 0x7F) return NULL;
  (void)snprintf(buf, 8, "\\u%04x", c);
  return buf;
}

df_status df_json_quote(df_buf *b, const char *s, size_t n, df_error *err) {
  const unsigned char *p = (const unsigned char *)s;
  size_t mark = b->len, from = 0, i = 0;
  df_status st = df_buf_put(b, "\"", 1, err);
  while (i < n && st == DF_OK) {
    char hex[8];
    int step = utf8_step(p + i, n - i);
    const char *esc = step < 0 ? "\xEF\xBF\xBD" : step == 1 ? escape_of(p[i], hex) : NULL;
    size_t len = (size_t)(step < 0 ? -step : step);
    if (esc) {
      st = df_buf_put(b, s + from, i - from, err);
      if (st == DF_OK) st = df_buf_puts(b, esc, err);
      from = i + len;
    }
    i += len;
  }
  if (st == DF_OK && n > from) st = df_buf_put(b, s + from, n - from, err);
  if (st == DF_OK) st = df_buf_put(b, "\"", 1, err);
  if (st != DF_OK) b->len = mark;
  return st;
}

void df_json_out_begin(df_json_out *w, df_buf *buf, df_error *err) { *w = (df_json_out){.buf = buf, .err = err}; }

df_status df_json_out_end(df_json_out *w) {
  assert(w->status != DF_OK || w->depth == 0);
  return w->status;
}

static void put(df_json_out *w, const char *s, size_t n) {
  if (w->status == DF_OK) w->status = df_buf_put(w->buf, s, n, w->err);
}

/* Before a value or key: the comma that separates it from the one before. */
static void lead(df_json_out *w) {
  if (w->comma) put(w, ",", 1);
  w->comma = false;
}

static void scalar(df_json_out *w, const char *s, size_t n) {
  lead(w);
  put(w, s, n);
  w->comma = true;
}

static void open_level(df_json_out *w, bool object) {
  lead(w);
  if (w->depth >= sizeof w->is_object * 8) {
    if (w->status == DF_OK) w->status = DF_FAIL(w->err, DF_ERR_LIMIT, "could not write JSON: nested too deeply");
    return;
  }
  uint8_t bit = (uint8_t)(1u << (w->depth % 8));
  uint8_t *byte = &w->is_object[w->depth / 8];
  *byte = (uint8_t)(object ? *byte | bit : *byte & ~bit);
  w->depth++;
  put(w, object ? "{" : "[", 1);
}

void df_json_out_object(df_json_out *w) { open_level(w, true); }
void df_json_out_array(df_json_out *w) { open_level(w, false); }

void df_json_out_close(df_json_out *w) {
  assert(w->status != DF_OK || w->depth > 0);
  if (w->depth == 0) return;
  w->depth--;
  bool object = (w->is_object[w->depth / 8] >> (w->depth % 8)) & 1;
  put(w, object ? "}" : "]", 1);
  w->comma = true;
}

void df_json_out_key(df_json_out *w, const char *key) {
  df_json_out_cstr(w, key);
  put(w, ":", 1);
  w->comma = false;
}

void df_json_out_str(df_json_out *w, const char *s, size_t n) {
  lead(w);
  if (w->status == DF_OK) w->status = df_json_quote(w->buf, s, n, w->err);
  w->comma = true;
}

void df_json_out_cstr(df_json_out *w, const char *s) { df_json_out_str(w, s, strlen(s)); }

void df_json_out_i64(df_json_out *w, int64_t v) {
  char t[32];
  scalar(w, t, (size_t)snprintf(t, sizeof t, "%lld", (long long)v));
}

void df_json_out_u64(df_json_out *w, uint64_t v) {
  char t[32];
  scalar(w, t, (size_t)snprintf(t, sizeof t, "%llu", (unsigned long long)v));
}

void df_json_out_f64(df_json_out *w, double v) {
  char t[64];
  if (!isfinite(v)) {
    df_json_out_null(w);
    return;
  }
  int n = 0;
  for (int digits = 15; digits <= 17; digits++) {
    n = snprintf(t, sizeof t, "%.*g", digits, v);
    if (strtod(t, NULL) == v) break;
  }
  /* The host program may have set a locale whose decimal point is another character. */
  int keep = 0;
  for (int i = 0; i < n; i++) {
    if (strchr("0123456789+-e.", t[i]))
      t[keep++] = t[i];
    else if (keep == 0 || t[keep - 1] != '.')
      t[keep++] = '.';
  }
  /* Without a mark "-0" and "1" would read back as integers. */
  bool marked = false;
  for (int i = 0; i < keep; i++) marked = marked || t[i] == '.' || t[i] == 'e';
  if (!marked) {
    t[keep++] = '.';
    t[keep++] = '0';
  }
  scalar(w, t, (size_t)keep);
}

void df_json_out_bool(df_json_out *w, bool v) { v ? scalar(w, "true", 4) : scalar(w, "false", 5); }
void df_json_out_null(df_json_out *w) { scalar(w, "null", 4); }
void df_json_out_raw(df_json_out *w, const char *json, size_t n) { scalar(w, json, n); }

static void object_value(df_json_out *w, const df_json *v) {
  df_json_iter it = df_json_begin(v);
  const char *key;
  size_t len;
  const df_json *member;
  df_json_out_object(w);
  while (w->status == DF_OK && df_json_next(&it, &key, &len, &member)) {
    df_json_out_str(w, key, len);
    put(w, ":", 1);
    w->comma = false;
    df_json_out_value(w, member);
  }
  df_json_out_close(w);
}

/* Recursion is bounded by the depth limit of parsing. */
void df_json_out_value(df_json_out *w, const df_json *v) {
  size_t n = 0;
  const char *s;
  switch (df_json_kind_of(v)) {
    case DF_JSON_NULL: df_json_out_null(w); break;
    case DF_JSON_BOOL: df_json_out_bool(w, df_json_bool(v)); break;
    case DF_JSON_INT: df_json_out_i64(w, df_json_int(v)); break;
    case DF_JSON_REAL: df_json_out_f64(w, df_json_num(v)); break;
    case DF_JSON_STRING:
      s = df_json_str(v, &n);
      df_json_out_str(w, s, n);
      break;
    case DF_JSON_ARRAY:
      df_json_out_array(w);
      for (size_t i = 0; i < df_json_size(v) && w->status == DF_OK; i++) df_json_out_value(w, df_json_at(v, i));
      df_json_out_close(w);
      break;
    case DF_JSON_OBJECT: object_value(w, v); break;
  }
}

void df_json_put_cstr(df_json_out *w, const char *key, const char *s) {
  df_json_out_key(w, key);
  if (s)
    df_json_out_cstr(w, s);
  else
    df_json_out_null(w);
}

void df_json_put_u64(df_json_out *w, const char *key, uint64_t v) {
  df_json_out_key(w, key);
  df_json_out_u64(w, v);
}

void df_json_put_f64(df_json_out *w, const char *key, double v) {
  df_json_out_key(w, key);
  df_json_out_f64(w, v);
}

void df_json_put_bool(df_json_out *w, const char *key, bool v) {
  df_json_out_key(w, key);
  df_json_out_bool(w, v);
}

void df_json_put_null(df_json_out *w, const char *key) {
  df_json_out_key(w, key);
  df_json_out_null(w);
}
