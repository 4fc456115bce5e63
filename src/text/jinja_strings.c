/* text/jinja_strings.c - operations on strings by code points: strip, case, replace, split, find, pad. */
#define _GNU_SOURCE /* memmem: linear in the worst case, which a client could otherwise provoke */
#include <string.h>
#include <utf8proc.h>

#include "text/jinja_eval.h"

size_t df_jx_find(const df_jstr *s, size_t from, const df_jstr *needle) {
  enum { SHORT = 16 };
  if (from > s->len || needle->len > s->len - from) return SIZE_MAX;
  if (needle->len == 0) return from;
  const char *p = s->data + from, *last = s->data + s->len - needle->len;
  if (needle->len > SHORT) {
    p = memmem(p, (size_t)(s->data + s->len - p), needle->data, needle->len);
    return p ? (size_t)(p - s->data) : SIZE_MAX;
  }
  for (; p <= last; p++) {
    p = memchr(p, needle->data[0], (size_t)(last - p) + 1);
    if (!p) return SIZE_MAX;
    if (memcmp(p, needle->data, needle->len) == 0) return (size_t)(p - s->data);
  }
  return SIZE_MAX;
}

/* ---- strip ---- */

static bool strips(const df_jstr *chars, const char *p, size_t n) {
  size_t used;
  if (!chars) return df_jutf8_space(df_jutf8_get(p, n, &used));
  return memmem(chars->data, chars->len, p, n) != NULL; /* p is one whole code point */
}

df_status df_jx_strip(df_jctx *c, const df_jstr *s, const df_jstr *chars, int sides, df_jv *out) {
  size_t a = 0, b = s->len, used;
  while ((sides & JSTRIP_LEFT) && a < b) {
    (void)df_jutf8_get(s->data + a, b - a, &used);
    if (used == 0 || !strips(chars, s->data + a, used)) break;
    a += used;
  }
  while ((sides & JSTRIP_RIGHT) && b > a) {
    size_t i = b - 1;
    while (i > a && ((unsigned char)s->data[i] & 0xC0) == 0x80) i--;
    if (!strips(chars, s->data + i, b - i)) break;
    b = i;
  }
  DF_TRY(df_jx_chars(c, (s->len - (b - a)) * (chars ? 1 + (uint64_t)chars->len / 16 : 1)));
  if (a == 0 && b == s->len) {
    *out = df_jv_str(s);
    return DF_OK;
  }
  return df_jx_str(c, s->data + a, b - a, out);
}

/* ---- case ---- */

/* The few letters whose upper case is longer than one letter and that text really contains. */
static const char *long_upper(uint32_t cp) {
  switch (cp) {
    case 0xDF: return "SS";
    case 0x149: return "\xCA\xBCN";
    case 0xFB00: return "FF";
    case 0xFB01: return "FI";
    case 0xFB02: return "FL";
    case 0xFB03: return "FFI";
    case 0xFB04: return "FFL";
    case 0xFB05:
    case 0xFB06: return "ST";
    default: return NULL;
  }
}

static const char *long_title(uint32_t cp) {
  switch (cp) {
    case 0xDF: return "Ss";
    case 0xFB00: return "Ff";
    case 0xFB01: return "Fi";
    case 0xFB02: return "Fl";
    case 0xFB03: return "Ffi";
    case 0xFB04: return "Ffl";
    case 0xFB05:
    case 0xFB06: return "St";
    default: return long_upper(cp);
  }
}

static bool is_cased(uint32_t cp) {
  utf8proc_int32_t u = (utf8proc_int32_t)cp;
  utf8proc_category_t k = utf8proc_category(u);
  return k == UTF8PROC_CATEGORY_LU || k == UTF8PROC_CATEGORY_LL || k == UTF8PROC_CATEGORY_LT;
}

static bool is_lower(uint32_t cp) { return utf8proc_category((utf8proc_int32_t)cp) == UTF8PROC_CATEGORY_LL; }

/* A sigma that ends a word has a form of its own. */
static bool final_sigma(const df_jstr *s, size_t at, uint32_t prev) {
  size_t next = at + 2, used = 1;
  uint32_t cp = next < s->len ? df_jutf8_get(s->data + next, s->len - next, &used) : 0;
  return is_cased(prev) && !(cp && is_cased(cp));
}

static df_status put_lower(df_jctx *c, const df_jstr *s, size_t at, uint32_t cp, uint32_t prev, df_jbuf *b) {
  if (cp == 0x130) return df_jbuf_puts(b, "i\xCC\x87", c->err);
  if (cp == 0x3A3 && final_sigma(s, at, prev)) return df_jbuf_put_cp(b, 0x3C2, c->err);
  return df_jbuf_put_cp(b, (uint32_t)utf8proc_tolower((utf8proc_int32_t)cp), c->err);
}

static df_status put_upper(df_jctx *c, uint32_t cp, bool title, df_jbuf *b) {
  const char *more = title ? long_title(cp) : long_upper(cp);
  if (more) return df_jbuf_puts(b, more, c->err);
  utf8proc_int32_t u = (utf8proc_int32_t)cp;
  return df_jbuf_put_cp(b, (uint32_t)(title ? utf8proc_totitle(u) : utf8proc_toupper(u)), c->err);
}

/* Whether a word of the title filter begins behind this character. */
static bool title_border(uint32_t cp) {
  return df_jutf8_space(cp) || cp == '-' || cp == '(' || cp == '{' || cp == '[' || cp == '<';
}

df_status df_jx_case(df_jctx *c, const df_jstr *s, df_jcase how, df_jv *out) {
  df_jbuf b;
  df_jbuf_init(&b, &c->arena);
  DF_TRY(df_jx_chars(c, s->len));
  uint32_t prev = 0;
  for (size_t i = 0, used; i < s->len; i += used) {
    uint32_t cp = df_jutf8_get(s->data + i, s->len - i, &used);
    if (used == 0) return DF_FAIL(c->err, DF_ERR_INTERNAL, "a string is not valid UTF-8");
    bool start = how == JCASE_TITLE ? !is_cased(prev) : how == JCASE_CAPITAL ? i == 0 : i == 0 || title_border(prev);
    bool upper = how == JCASE_UPPER || (how == JCASE_SWAP ? is_lower(cp) : how != JCASE_LOWER && start);
    bool title = how == JCASE_TITLE || how == JCASE_CAPITAL;
    DF_TRY(upper ? put_upper(c, cp, title, &b) : put_lower(c, s, i, cp, prev, &b));
    prev = cp;
  }
  out->t = JT_STR;
  return df_jbuf_take(&b, &out->u.s, c->err);
}

/* ---- replace and split ---- */

df_status df_jx_replace(df_jctx *c, const df_jstr *s, const df_jstr *from, const df_jstr *to, int64_t count,
                        df_jv *out) {
  df_jbuf b;
  size_t at = 0;
  df_jbuf_init(&b, &c->arena);
  DF_TRY(df_jx_bytes(c, (uint64_t)s->len * 4));
  for (; count != 0; count -= count > 0) {
    size_t hit = df_jx_find(s, at, from), used = from->len;
    if (hit == SIZE_MAX || (from->len == 0 && at > s->len)) break;
    DF_TRY(df_jx_bytes(c, (uint64_t)to->len + 64));
    DF_TRY(df_jbuf_put(&b, s->data + at, hit - at, c->err));
    DF_TRY(df_jbuf_put(&b, to->data, to->len, c->err));
    at = hit + used;
    if (from->len) continue;
    if (at == s->len) break; /* the empty string is found between all characters and at both ends */
    (void)df_jutf8_get(s->data + at, s->len - at, &used);
    DF_TRY(df_jbuf_put(&b, s->data + at, used, c->err));
    at += used;
  }
  DF_TRY(df_jbuf_put(&b, s->data + at, s->len - at, c->err));
  out->t = JT_STR;
  return df_jbuf_take(&b, &out->u.s, c->err);
}

static df_status push_part(df_jctx *c, df_jlist *l, const df_jstr *s, size_t a, size_t b) {
  df_jv v;
  DF_TRY(df_jx_items(c, 8));
  DF_TRY(df_jx_str(c, s->data + a, b - a, &v));
  return df_jlist_push(&c->arena, l, v, c->err);
}

static size_t next_space(const df_jstr *s, size_t i, bool want, size_t *len) {
  size_t used = 1;
  for (; i < s->len; i += used) {
    uint32_t cp = df_jutf8_get(s->data + i, s->len - i, &used);
    if (df_jutf8_space(cp) == want) break;
  }
  *len = used;
  return i;
}

static df_status split_space(df_jctx *c, const df_jstr *s, int64_t max, df_jlist *l) {
  size_t i = 0, len;
  for (;;) {
    i = next_space(s, i, false, &len);
    if (i >= s->len) return DF_OK;
    if (max == 0) {
      df_jv rest;
      DF_TRY(df_jx_str(c, s->data + i, s->len - i, &rest));
      return df_jlist_push(&c->arena, l, rest, c->err);
    }
    if (max > 0) max--;
    size_t end = next_space(s, i, true, &len);
    DF_TRY(push_part(c, l, s, i, end));
    i = end;
  }
}

/* Start of the last code point before b. */
static size_t back_one(const df_jstr *s, size_t b) {
  b--;
  while (b > 0 && ((unsigned char)s->data[b] & 0xC0) == 0x80) b--;
  return b;
}

static size_t back_while(const df_jstr *s, size_t b, bool space) {
  size_t used;
  while (b > 0) {
    size_t i = back_one(s, b);
    if (df_jutf8_space(df_jutf8_get(s->data + i, b - i, &used)) != space) break;
    b = i;
  }
  return b;
}

/* Parts from the right, in reverse order. */
static df_status rsplit_space(df_jctx *c, const df_jstr *s, int64_t max, df_jlist *l) {
  size_t b = s->len;
  for (;;) {
    b = back_while(s, b, true);
    if (b == 0) return DF_OK;
    if (max-- == 0) return push_part(c, l, s, 0, b);
    size_t a = back_while(s, b, false);
    DF_TRY(push_part(c, l, s, a, b));
    b = a;
  }
}

static df_status rsplit_sep(df_jctx *c, const df_jstr *s, const df_jstr *sep, int64_t max, df_jlist *l) {
  size_t b = s->len;
  while (max-- != 0 && b >= sep->len) {
    size_t i = b - sep->len + 1;
    while (i-- > 0)
      if (memcmp(s->data + i, sep->data, sep->len) == 0) break;
    if (i == SIZE_MAX) break;
    DF_TRY(push_part(c, l, s, i + sep->len, b));
    b = i;
  }
  return push_part(c, l, s, 0, b);
}

static void reverse(df_jlist *l) {
  for (uint32_t i = 0; i < l->n / 2; i++) {
    df_jv t = l->items[i];
    l->items[i] = l->items[l->n - 1 - i];
    l->items[l->n - 1 - i] = t;
  }
}

df_status df_jx_split(df_jctx *c, const df_jstr *s, const df_jstr *sep, int64_t max, bool from_right, df_jv *out) {
  df_jlist *l;
  size_t at = 0;
  DF_TRY(df_jlist_new(&c->arena, 0, JK_LIST, &l, c->err));
  *out = df_jv_list(l);
  if (sep && sep->len == 0) return JX_FAIL(c, "the separator to split at is empty");
  if (!sep)
    DF_TRY(df_jx_chars(c, s->len));
  else
    DF_TRY(df_jx_bytes(c, (uint64_t)s->len * 4));
  if (from_right && max >= 0) {
    /* memcmp at every place: separators are short, long ones pay for their length */
    if (sep) DF_TRY(df_jx_chars(c, (uint64_t)s->len * (1 + sep->len / 16)));
    DF_TRY(sep ? rsplit_sep(c, s, sep, max, l) : rsplit_space(c, s, max, l));
    reverse(l);
    return DF_OK;
  }
  if (!sep) return split_space(c, s, max, l);
  for (; max != 0; max -= max > 0) {
    size_t hit = df_jx_find(s, at, sep);
    if (hit == SIZE_MAX) break;
    DF_TRY(push_part(c, l, s, at, hit));
    at = hit + sep->len;
  }
  return push_part(c, l, s, at, s->len);
}

/* Length of the line end at i, 0 when there is none. */
static size_t line_end(const df_jstr *s, size_t i) {
  size_t used;
  uint32_t cp = df_jutf8_get(s->data + i, s->len - i, &used);
  if (cp == '\r' && i + 1 < s->len && s->data[i + 1] == '\n') return 2;
  bool end = (cp >= 10 && cp <= 13) || (cp >= 0x1C && cp <= 0x1E) || cp == 0x85 || cp == 0x2028 || cp == 0x2029;
  return end ? used : 0;
}

df_status df_jx_splitlines(df_jctx *c, const df_jstr *s, bool keep_ends, df_jlist **out) {
  df_jlist *l;
  DF_TRY(df_jlist_new(&c->arena, 0, JK_LIST, &l, c->err));
  DF_TRY(df_jx_chars(c, s->len));
  size_t start = 0;
  for (size_t i = 0; i < s->len;) {
    size_t n = line_end(s, i);
    if (n) DF_TRY(push_part(c, l, s, start, keep_ends ? i + n : i));
    i += n ? n : 1;
    while (!n && i < s->len && ((unsigned char)s->data[i] & 0xC0) == 0x80) i++;
    if (n) start = i;
  }
  if (start < s->len) DF_TRY(push_part(c, l, s, start, s->len));
  *out = l;
  return DF_OK;
}

/* ---- padding ---- */

df_status df_jx_pad(df_jctx *c, const df_jstr *s, int64_t width, char align, const char *fill, df_jv *out) {
  df_jbuf b;
  if (width <= (int64_t)s->ncp) {
    *out = df_jv_str(s);
    return DF_OK;
  }
  if (width > (int64_t)JINJA_MAX_OUTPUT)
    return DF_FAIL(c->err, DF_ERR_LIMIT, "pads a string to %lld characters", (long long)width);
  int64_t total = width - s->ncp, left = align == '<' ? 0 : total;
  if (align == '^') left = total / 2 + (total & width & 1); /* as str.center places the odd one */
  DF_TRY(df_jx_chars(c, (uint64_t)total));
  df_jbuf_init(&b, &c->arena);
  for (int64_t i = 0; i < left; i++) DF_TRY(df_jbuf_puts(&b, fill, c->err));
  DF_TRY(df_jbuf_put(&b, s->data, s->len, c->err));
  for (int64_t i = left; i < total; i++) DF_TRY(df_jbuf_puts(&b, fill, c->err));
  out->t = JT_STR;
  return df_jbuf_take(&b, &out->u.s, c->err);
}
