/* text/jinja_json.c - strict JSON reader. */
#include "text/jinja_json.h"

#include <string.h>

#include "text/jinja_number.h"

typedef struct reader {
  df_jarena *a;
  const char *s;
  size_t n, i;
  df_error *err;
  int depth;
} reader;

static df_status fail(reader *r, const char *what) {
  return DF_FAIL(r->err, DF_ERR_FORMAT, "could not read the template context: byte %zu: %s", r->i, what);
}

static void skip_space(reader *r) {
  while (r->i < r->n && (r->s[r->i] == ' ' || r->s[r->i] == '\t' || r->s[r->i] == '\n' || r->s[r->i] == '\r')) r->i++;
}

static bool take(reader *r, char c) {
  if (r->i >= r->n || r->s[r->i] != c) return false;
  r->i++;
  return true;
}

static bool take_word(reader *r, const char *w) {
  size_t n = strlen(w);
  if (n > r->n - r->i || memcmp(r->s + r->i, w, n) != 0) return false;
  r->i += n;
  return true;
}

static df_status hex4(reader *r, uint32_t *out) {
  *out = 0;
  for (int k = 0; k < 4; k++, r->i++) {
    char c = r->i < r->n ? r->s[r->i] : 0;
    uint32_t d;
    if (c >= '0' && c <= '9')
      d = (uint32_t)(c - '0');
    else if ((c | 0x20) >= 'a' && (c | 0x20) <= 'f')
      d = (uint32_t)((c | 0x20) - 'a') + 10;
    else
      return fail(r, "bad \\u escape");
    *out = *out << 4 | d;
  }
  return DF_OK;
}

static df_status read_escape(reader *r, df_jbuf *b) {
  static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
  char c = r->i < r->n ? r->s[r->i++] : 0;
  if (c != 'u') {
    const char *f = c ? strchr(from, c) : NULL;
    if (!f) return fail(r, "bad escape");
    return df_jbuf_put(b, &to[f - from], 1, r->err);
  }
  uint32_t cp, low;
  DF_TRY(hex4(r, &cp));
  if (cp >= 0xD800 && cp < 0xDC00) {
    if (!take_word(r, "\\u")) return fail(r, "half of a surrogate pair");
    DF_TRY(hex4(r, &low));
    if (low < 0xDC00 || low > 0xDFFF) return fail(r, "half of a surrogate pair");
    cp = 0x10000 + ((cp - 0xD800) << 10) + (low - 0xDC00);
  } else if (cp >= 0xDC00 && cp < 0xE000) {
    return fail(r, "half of a surrogate pair");
  }
  return df_jbuf_put_cp(b, cp, r->err);
}

static df_status read_string(reader *r, df_jv *out) {
  df_jbuf b;
  df_jbuf_init(&b, r->a);
  if (!take(r, '"')) return fail(r, "expected a string");
  for (;;) {
    size_t from = r->i;
    while (r->i < r->n && (unsigned char)r->s[r->i] >= 0x20 && r->s[r->i] != '"' && r->s[r->i] != '\\') r->i++;
    if (!df_jutf8_valid(r->s + from, r->i - from)) return fail(r, "text is not valid UTF-8");
    DF_TRY(df_jbuf_put(&b, r->s + from, r->i - from, r->err));
    if (take(r, '"')) break;
    if (!take(r, '\\')) return fail(r, r->i < r->n ? "control character in a string" : "missing end of string");
    DF_TRY(read_escape(r, &b));
  }
  out->t = JT_STR;
  return df_jbuf_take(&b, &out->u.s, r->err);
}

static size_t digits(const reader *r, size_t i) {
  size_t from = i;
  while (i < r->n && r->s[i] >= '0' && r->s[i] <= '9') i++;
  return i - from;
}

static df_status read_number(reader *r, df_jv *out) {
  size_t from = r->i, i = from + (r->s[from] == '-'), n = digits(r, i);
  bool is_float = false, over;
  if (n == 0 || (n > 1 && r->s[i] == '0')) return fail(r, "bad number");
  i += n;
  if (i < r->n && r->s[i] == '.') {
    n = digits(r, i + 1);
    if (n == 0) return fail(r, "bad number");
    i += 1 + n;
    is_float = true;
  }
  if (i < r->n && (r->s[i] | 0x20) == 'e') {
    i++;
    if (i < r->n && (r->s[i] == '+' || r->s[i] == '-')) i++;
    n = digits(r, i);
    if (n == 0) return fail(r, "bad number");
    i += n;
    is_float = true;
  }
  const char *p = r->s + from;
  r->i = i;
  if (is_float) {
    out->t = JT_FLOAT;
    return df_jnumber_float(p, i - from, &out->u.f) ? DF_OK : fail(r, "number is too long");
  }
  out->t = JT_INT;
  if (df_jnumber_int(p, i - from, 10, &out->u.i, &over)) return DF_OK;
  out->t = JT_BIG;
  return df_jstr_new(r->a, p, i - from, &out->u.s, r->err);
}

static df_status read_value(reader *r, df_jv *out);

static df_status read_list(reader *r, df_jv *out) {
  df_jlist *l;
  DF_TRY(df_jlist_new(r->a, 0, JK_LIST, &l, r->err));
  *out = df_jv_list(l);
  r->i++;
  skip_space(r);
  if (take(r, ']')) return DF_OK;
  for (;;) {
    df_jv v;
    DF_TRY(read_value(r, &v));
    DF_TRY(df_jlist_push(r->a, l, v, r->err));
    if (take(r, ']')) return DF_OK;
    if (!take(r, ',')) return fail(r, "expected \",\" or \"]\"");
  }
}

static df_status read_map(reader *r, df_jv *out) {
  df_jmap *m;
  DF_TRY(df_jmap_new(r->a, 0, &m, r->err));
  *out = df_jv_map(m);
  r->i++;
  skip_space(r);
  if (take(r, '}')) return DF_OK;
  for (;;) {
    df_jv k, v;
    skip_space(r);
    DF_TRY(read_string(r, &k));
    skip_space(r);
    if (!take(r, ':')) return fail(r, "expected \":\"");
    DF_TRY(read_value(r, &v));
    DF_TRY(df_jmap_put(r->a, m, k, v, r->err));
    if (take(r, '}')) return DF_OK;
    if (!take(r, ',')) return fail(r, "expected \",\" or \"}\"");
  }
}

/* One value with the white space around it. */
static df_status read_value(reader *r, df_jv *out) {
  *out = (df_jv){.t = JT_NONE};
  if (++r->depth > JINJA_MAX_VALUE_DEPTH)
    return DF_FAIL(r->err, DF_ERR_LIMIT, "could not read the template context: nested deeper than %d levels",
                   JINJA_MAX_VALUE_DEPTH);
  skip_space(r);
  char c = r->i < r->n ? r->s[r->i] : 0;
  if (c == '{')
    DF_TRY(read_map(r, out));
  else if (c == '[')
    DF_TRY(read_list(r, out));
  else if (c == '"')
    DF_TRY(read_string(r, out));
  else if (c == '-' || (c >= '0' && c <= '9'))
    DF_TRY(read_number(r, out));
  else if (take_word(r, "true"))
    *out = df_jv_bool(true);
  else if (take_word(r, "false"))
    *out = df_jv_bool(false);
  else if (!take_word(r, "null"))
    return fail(r, "expected a value");
  skip_space(r);
  r->depth--;
  return DF_OK;
}

df_status df_jjson_parse(df_jarena *a, const char *text, size_t n, df_jv *out, df_error *err) {
  reader r = {.a = a, .s = text, .n = n, .err = err};
  df_jv v;
  DF_TRY(read_value(&r, &v));
  if (r.i != n) return fail(&r, "text behind the value");
  *out = v;
  return DF_OK;
}
