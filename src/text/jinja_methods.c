/* text/jinja_methods.c - methods of strings, maps, lists and cyclers, with Python's names and results. */
#include <string.h>
#include <utf8proc.h>

#include "text/jinja_eval.h"
#include "text/jinja_filters.h"
#include "text/jinja_lex.h"

typedef struct method {
  uint8_t type; /* df_jtype of self */
  const char *name;
  df_status (*fn)(df_jctx *c, df_jv self, int how, const df_jargs *args, const df_jv *arg, df_jv *out);
  int how;            /* tells apart methods that share a function */
  const char *params; /* NULL: reads args itself */
  uint8_t min;
} method;

#define METHOD(name) \
  static df_status name(df_jctx *c, df_jv self, int how, const df_jargs *args, const df_jv *arg, df_jv *out)

/* A string argument, or NULL for a missing one and none. */
static df_status opt_str(df_jctx *c, df_jv v, const df_jstr **out) {
  *out = v.t == JT_STR ? v.u.s : NULL;
  if (v.t == JT_STR || v.t == JT_UNSET || v.t == JT_NONE) return DF_OK;
  return JX_FAIL(c, "expected a string argument, not a %s", df_jx_type(v));
}

static df_status need_str(df_jctx *c, df_jv v, const df_jstr **out) {
  *out = v.t == JT_STR ? v.u.s : NULL;
  return *out ? DF_OK : JX_FAIL(c, "expected a string argument, not a %s", df_jx_type(v));
}

/* ---- strings ---- */

METHOD(str_case) {
  (void)args, (void)arg;
  return df_jx_case(c, self.u.s, (df_jcase)how, out);
}

METHOD(str_strip) {
  (void)args;
  const df_jstr *chars;
  DF_TRY(opt_str(c, arg[0], &chars));
  return df_jx_strip(c, self.u.s, chars, how, out);
}

METHOD(str_split) {
  (void)args;
  const df_jstr *sep;
  int64_t max;
  DF_TRY(opt_str(c, arg[0], &sep));
  DF_TRY(df_jfilter_int(c, arg[1], "split", -1, &max));
  return df_jx_split(c, self.u.s, sep, max, how, out);
}

METHOD(str_splitlines) {
  (void)args, (void)how;
  out->t = JT_LIST;
  return df_jx_splitlines(c, self.u.s, df_jx_truth(arg[0]), &out->u.l);
}

METHOD(str_replace) {
  (void)args, (void)how;
  const df_jstr *from, *to;
  int64_t count;
  DF_TRY(need_str(c, arg[0], &from));
  DF_TRY(need_str(c, arg[1], &to));
  DF_TRY(df_jfilter_int(c, arg[2], "replace", -1, &count));
  return df_jx_replace(c, self.u.s, from, to, count, out);
}

static bool has_affix(const char *p, size_t n, const df_jstr *x, bool end) {
  return x->len <= n && memcmp(end ? p + n - x->len : p, x->data, x->len) == 0;
}

/* Bytes [*a, *b) of s selected by two optional code point bounds, as a slice; false when they cross. */
static df_status window(df_jctx *c, const df_jstr *s, const df_jv *lo, const df_jv *hi, size_t *a, size_t *b,
                        bool *ok) {
  int64_t n = s->ncp, i, j;
  DF_TRY(df_jfilter_int(c, *lo, "start", 0, &i));
  DF_TRY(df_jfilter_int(c, *hi, "end", n, &j));
  if (i < 0) i = i < -n ? 0 : i + n;
  if (j < 0) j = j < -n ? 0 : j + n;
  if (j > n) j = n;
  *ok = i <= j;
  *a = *ok ? df_jstr_offset(s, (size_t)i) : 0;
  *b = *ok ? df_jstr_offset(s, (size_t)j) : 0;
  return df_jx_bytes(c, s->ncp == s->len ? 0 : (uint64_t)s->len * 4);
}

METHOD(str_affix) {
  (void)args;
  const df_jstr *x;
  size_t a, b;
  bool ok, yes = false;
  DF_TRY(window(c, self.u.s, &arg[1], &arg[2], &a, &b, &ok));
  df_jv one = arg[0], *items = &one;
  uint32_t n = 1;
  if (one.t == JT_LIST && one.u.l->kind == JK_TUPLE) items = one.u.l->items, n = one.u.l->n;
  for (uint32_t i = 0; i < n && !yes; i++) {
    DF_TRY(need_str(c, items[i], &x));
    DF_TRY(df_jx_bytes(c, x->len + 64u));
    yes = ok && has_affix(self.u.s->data + a, b - a, x, how);
  }
  *out = df_jv_bool(yes);
  return DF_OK;
}

METHOD(str_remove_affix) {
  (void)args;
  const df_jstr *x, *s = self.u.s;
  DF_TRY(need_str(c, arg[0], &x));
  *out = self;
  if (!has_affix(s->data, s->len, x, how)) return DF_OK;
  return df_jx_str(c, how ? s->data : s->data + x->len, s->len - x->len, out);
}

static size_t find_last(const df_jstr *s, size_t a, size_t b, const df_jstr *x) {
  if (x->len > b - a) return SIZE_MAX;
  for (size_t i = b - x->len + 1; i-- > a;)
    if (memcmp(s->data + i, x->data, x->len) == 0) return i;
  return SIZE_MAX;
}

static int64_t cp_index(const df_jstr *s, size_t at) {
  if (s->ncp == s->len) return (int64_t)at;
  int64_t n = 0;
  for (size_t i = 0; i < at; i++) n += ((unsigned char)s->data[i] & 0xC0) != 0x80;
  return n;
}

/* how: 1 = from the right, 2 = failing when absent */
METHOD(str_find) {
  (void)args;
  const df_jstr *x, *s = self.u.s;
  size_t a, b, at = SIZE_MAX;
  bool ok;
  DF_TRY(need_str(c, arg[0], &x));
  DF_TRY(window(c, s, &arg[1], &arg[2], &a, &b, &ok));
  DF_TRY(df_jx_bytes(c, (uint64_t)s->len * 4));
  if (how & 1) DF_TRY(df_jx_chars(c, (uint64_t)s->len * (1 + x->len / 16)));
  if (ok) at = how & 1 ? find_last(s, a, b, x) : df_jx_find(s, a, x);
  if (at != SIZE_MAX && at + x->len > b) at = SIZE_MAX;
  if (at == SIZE_MAX && (how & 2)) return JX_FAIL(c, "substring not found");
  *out = df_jv_int(at == SIZE_MAX ? -1 : cp_index(s, at));
  return DF_OK;
}

METHOD(str_count) {
  (void)args, (void)how;
  const df_jstr *x, *s = self.u.s;
  size_t a, b;
  bool ok;
  int64_t n = 0;
  DF_TRY(need_str(c, arg[0], &x));
  DF_TRY(window(c, s, &arg[1], &arg[2], &a, &b, &ok));
  DF_TRY(df_jx_chars(c, s->len));
  if (ok && x->len == 0) n = cp_index(s, b) - cp_index(s, a) + 1;
  while (ok && x->len) {
    size_t hit = df_jx_find(s, a, x);
    if (hit == SIZE_MAX || hit + x->len > b) break;
    a = hit + x->len;
    n++;
  }
  *out = df_jv_int(n);
  return DF_OK;
}

METHOD(str_join) {
  (void)args, (void)how;
  df_jv *items;
  uint32_t n;
  df_jbuf b;
  DF_TRY(df_jx_elements(c, arg[0], &items, &n));
  df_jbuf_init(&b, &c->arena);
  for (uint32_t i = 0; i < n; i++) {
    if (items[i].t != JT_STR) return JX_FAIL(c, "\"join\" needs strings, not a %s", df_jx_type(items[i]));
    DF_TRY(df_jx_bytes(c, (uint64_t)self.u.s->len + items[i].u.s->len + 64));
    if (i) DF_TRY(df_jbuf_put(&b, self.u.s->data, self.u.s->len, c->err));
    DF_TRY(df_jbuf_put(&b, items[i].u.s->data, items[i].u.s->len, c->err));
  }
  out->t = JT_STR;
  return df_jbuf_take(&b, &out->u.s, c->err);
}

enum { IS_DIGIT, IS_DECIMAL, IS_ALPHA, IS_ALNUM, IS_SPACE, IS_ASCII };

static bool is_of(uint32_t cp, int how) {
  utf8proc_category_t k = utf8proc_category((utf8proc_int32_t)cp);
  bool alpha = k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_LO;
  bool super = cp == 0xB2 || cp == 0xB3 || cp == 0xB9 || (cp >= 0x2070 && cp <= 0x2089); /* digits, but not decimal */
  switch (how) {
    case IS_DIGIT: return k == UTF8PROC_CATEGORY_ND || (super && k == UTF8PROC_CATEGORY_NO);
    case IS_DECIMAL: return k == UTF8PROC_CATEGORY_ND;
    case IS_ALPHA: return alpha;
    case IS_ALNUM: return alpha || k == UTF8PROC_CATEGORY_ND || k == UTF8PROC_CATEGORY_NO || k == UTF8PROC_CATEGORY_NL;
    case IS_SPACE: return df_jutf8_space(cp);
    default: return cp < 0x80;
  }
}

METHOD(str_is) {
  (void)args, (void)arg;
  const df_jstr *s = self.u.s;
  bool yes = s->len > 0 || how == IS_ASCII;
  DF_TRY(df_jx_chars(c, s->len));
  for (size_t i = 0, used = 1; i < s->len && yes; i += used)
    yes = is_of(df_jutf8_get(s->data + i, s->len - i, &used), how) && used;
  *out = df_jv_bool(yes);
  return DF_OK;
}

/* islower and isupper: at least one letter with case, and none of the other case. */
METHOD(str_is_case) {
  (void)args, (void)arg;
  const df_jstr *s = self.u.s;
  bool any = false, other = false;
  DF_TRY(df_jx_chars(c, s->len));
  for (size_t i = 0, used; i < s->len; i += used) {
    uint32_t cp = df_jutf8_get(s->data + i, s->len - i, &used);
    if (used == 0) break;
    utf8proc_category_t k = utf8proc_category((utf8proc_int32_t)cp);
    if (k == UTF8PROC_CATEGORY_LT) other = true;
    if (k == UTF8PROC_CATEGORY_LL) any |= how == JCASE_LOWER, other |= how != JCASE_LOWER;
    if (k == UTF8PROC_CATEGORY_LU) any |= how == JCASE_UPPER, other |= how != JCASE_UPPER;
  }
  *out = df_jv_bool(any && !other);
  return DF_OK;
}

METHOD(str_pad) {
  (void)args;
  int64_t width;
  const df_jstr *fill;
  DF_TRY(df_jfilter_int(c, arg[0], "width", 0, &width));
  DF_TRY(opt_str(c, arg[1], &fill));
  if (fill && fill->ncp != 1) return JX_FAIL(c, "the fill must be one character");
  return df_jx_pad(c, self.u.s, width, (char)how, fill ? fill->data : " ", out);
}

METHOD(str_zfill) {
  (void)args, (void)how;
  int64_t width;
  df_jv digits;
  const df_jstr *s = self.u.s;
  DF_TRY(df_jfilter_int(c, arg[0], "width", 0, &width));
  bool sign = s->len && (s->data[0] == '-' || s->data[0] == '+');
  if (!sign) return df_jx_pad(c, s, width, '>', "0", out);
  DF_TRY(df_jx_str(c, s->data + 1, s->len - 1, &digits));
  DF_TRY(df_jx_pad(c, digits.u.s, width > 0 ? width - 1 : 0, '>', "0", &digits));
  df_jv first;
  DF_TRY(df_jx_str(c, s->data, 1, &first));
  return df_jx_binary(c, TK_ADD, first, digits, out);
}

METHOD(str_partition) {
  (void)args;
  const df_jstr *x, *s = self.u.s;
  df_jlist *l;
  DF_TRY(need_str(c, arg[0], &x));
  if (x->len == 0) return JX_FAIL(c, "the separator to split at is empty");
  DF_TRY(df_jx_chars(c, (uint64_t)s->len * (1 + x->len / 16)));
  size_t at = how ? find_last(s, 0, s->len, x) : df_jx_find(s, 0, x);
  size_t cut[4] = {0, at, at + x->len, s->len};
  if (at == SIZE_MAX) cut[1] = cut[2] = how ? 0 : s->len;
  DF_TRY(df_jlist_new(&c->arena, 3, JK_TUPLE, &l, c->err));
  for (int i = 0; i < 3; i++) DF_TRY(df_jx_str(c, s->data + cut[i], cut[i + 1] - cut[i], &l->items[l->n++]));
  *out = df_jv_list(l);
  return DF_OK;
}

METHOD(str_format) {
  (void)how, (void)arg;
  return df_jx_format(c, self.u.s, args, out);
}

/* ---- maps, lists, cyclers ---- */

METHOD(map_view) {
  (void)args, (void)arg;
  const df_jmap *m = self.u.m;
  df_jlist *l;
  DF_TRY(df_jx_items(c, (uint64_t)m->n * (how == JK_ITEMS ? 4 : 1)));
  DF_TRY(df_jlist_new(&c->arena, m->n, (df_jkind)how, &l, c->err));
  for (uint32_t i = 0; i < m->n; i++) {
    df_jv v = how == JK_KEYS ? m->e[i].key : m->e[i].val;
    if (how == JK_ITEMS) {
      df_jlist *pair;
      DF_TRY(df_jlist_new(&c->arena, 2, JK_TUPLE, &pair, c->err));
      pair->items[0] = m->e[i].key;
      pair->items[1] = m->e[i].val;
      pair->n = 2;
      v = df_jv_list(pair);
    }
    l->items[l->n++] = v;
  }
  *out = df_jv_list(l);
  return DF_OK;
}

METHOD(map_get) {
  (void)args, (void)how;
  uint64_t h;
  if (!df_jv_hash(arg[0], &h)) return JX_FAIL(c, "a %s cannot be a key", df_jx_type(arg[0]));
  const df_jv *v = df_jmap_get(self.u.m, arg[0]);
  *out = v ? *v : arg[1].t == JT_UNSET ? df_jv_none() : arg[1];
  return DF_OK;
}

METHOD(same) { /* a copy of an immutable value */
  (void)c, (void)how, (void)args, (void)arg;
  *out = self;
  return DF_OK;
}

METHOD(list_count) {
  (void)args;
  int64_t n = 0;
  for (uint32_t i = 0; i < self.u.l->n; i++) {
    bool eq;
    DF_TRY(df_jx_equal(c, self.u.l->items[i], arg[0], &eq));
    if (eq && how) {
      *out = df_jv_int(i);
      return DF_OK;
    }
    n += eq;
  }
  if (how) return JX_FAIL(c, "the value is not in the list");
  *out = df_jv_int(n);
  return DF_OK;
}

enum { CYCLER_NEXT, CYCLER_RESET };

METHOD(cycler) {
  (void)c, (void)args, (void)arg;
  df_jobj *o = self.u.p;
  *out = df_jv_none();
  if (how == CYCLER_RESET)
    o->pos = 0;
  else
    *out = o->items->items[o->pos], o->pos = (o->pos + 1) % o->items->n;
  return DF_OK;
}

static const method methods[] = {
    {JT_STR, "upper", str_case, JCASE_UPPER, "", 0},
    {JT_STR, "lower", str_case, JCASE_LOWER, "", 0},
    {JT_STR, "title", str_case, JCASE_TITLE, "", 0},
    {JT_STR, "capitalize", str_case, JCASE_CAPITAL, "", 0},
    {JT_STR, "swapcase", str_case, JCASE_SWAP, "", 0},
    {JT_STR, "strip", str_strip, JSTRIP_LEFT | JSTRIP_RIGHT, "chars", 0},
    {JT_STR, "lstrip", str_strip, JSTRIP_LEFT, "chars", 0},
    {JT_STR, "rstrip", str_strip, JSTRIP_RIGHT, "chars", 0},
    {JT_STR, "split", str_split, 0, "sep,maxsplit", 0},
    {JT_STR, "rsplit", str_split, 1, "sep,maxsplit", 0},
    {JT_STR, "splitlines", str_splitlines, 0, "keepends", 0},
    {JT_STR, "replace", str_replace, 0, "old,new,count", 2},
    {JT_STR, "startswith", str_affix, 0, "prefix,start,end", 1},
    {JT_STR, "endswith", str_affix, 1, "suffix,start,end", 1},
    {JT_STR, "removeprefix", str_remove_affix, 0, "prefix", 1},
    {JT_STR, "removesuffix", str_remove_affix, 1, "suffix", 1},
    {JT_STR, "find", str_find, 0, "sub,start,end", 1},
    {JT_STR, "rfind", str_find, 1, "sub,start,end", 1},
    {JT_STR, "index", str_find, 2, "sub,start,end", 1},
    {JT_STR, "rindex", str_find, 3, "sub,start,end", 1},
    {JT_STR, "count", str_count, 0, "sub,start,end", 1},
    {JT_STR, "join", str_join, 0, "iterable", 1},
    {JT_STR, "isdigit", str_is, IS_DIGIT, "", 0},
    {JT_STR, "isdecimal", str_is, IS_DECIMAL, "", 0},
    {JT_STR, "isnumeric", str_is, IS_DIGIT, "", 0},
    {JT_STR, "isalpha", str_is, IS_ALPHA, "", 0},
    {JT_STR, "isalnum", str_is, IS_ALNUM, "", 0},
    {JT_STR, "isspace", str_is, IS_SPACE, "", 0},
    {JT_STR, "isascii", str_is, IS_ASCII, "", 0},
    {JT_STR, "islower", str_is_case, JCASE_LOWER, "", 0},
    {JT_STR, "isupper", str_is_case, JCASE_UPPER, "", 0},
    {JT_STR, "ljust", str_pad, '<', "width,fillchar", 1},
    {JT_STR, "rjust", str_pad, '>', "width,fillchar", 1},
    {JT_STR, "center", str_pad, '^', "width,fillchar", 1},
    {JT_STR, "zfill", str_zfill, 0, "width", 1},
    {JT_STR, "partition", str_partition, 0, "sep", 1},
    {JT_STR, "rpartition", str_partition, 1, "sep", 1},
    {JT_STR, "format", str_format, 0, NULL, 0},
    {JT_MAP, "keys", map_view, JK_KEYS, "", 0},
    {JT_MAP, "values", map_view, JK_VALUES, "", 0},
    {JT_MAP, "items", map_view, JK_ITEMS, "", 0},
    {JT_MAP, "get", map_get, 0, "key,default", 1},
    {JT_MAP, "copy", same, 0, "", 0},
    {JT_LIST, "count", list_count, 0, "value", 1},
    {JT_LIST, "index", list_count, 1, "value", 1},
    {JT_LIST, "copy", same, 0, "", 0},
    {JT_OBJ, "next", cycler, CYCLER_NEXT, "", 0},
    {JT_OBJ, "reset", cycler, CYCLER_RESET, "", 0},
};

/* Methods that change their object: known, and refused. */
static bool mutates(df_jv obj, const df_jstr *name) {
  static const char *const of_map[] = {"clear", "pop", "popitem", "setdefault", "update", NULL};
  static const char *const of_list[] = {"append", "clear",   "extend", "insert", "pop",
                                        "remove", "reverse", "sort",   NULL};
  const char *const *n = obj.t == JT_MAP ? of_map : of_list;
  if (obj.t == JT_LIST && obj.u.l->kind != JK_LIST) return false;
  for (; *n; n++)
    if (df_jstr_is(name, *n)) return true;
  return false;
}

int df_jx_method_find(df_jv obj, const df_jstr *name) {
  if (obj.t != JT_STR && obj.t != JT_MAP && obj.t != JT_LIST && obj.t != JT_OBJ) return -1;
  if (obj.t == JT_LIST && obj.u.l->kind > JK_RANGE) return -1;
  if (obj.t == JT_OBJ && !((const df_jobj *)obj.u.p)->is_cycler) return -1;
  for (size_t i = 0; i < sizeof methods / sizeof *methods; i++) {
    if (methods[i].type != obj.t || !df_jstr_is(name, methods[i].name)) continue;
    if (methods[i].fn == same && obj.t == JT_LIST && obj.u.l->kind != JK_LIST) return -1;
    return (int)i;
  }
  return (obj.t == JT_MAP || obj.t == JT_LIST) && mutates(obj, name) ? -2 : -1;
}

df_status df_jx_method_call(df_jctx *c, const df_jmethod *m, const df_jargs *args, df_jv *out) {
  const method *d = &methods[m->id];
  df_jv arg[JARGS_MAX];
  /* Python knows most of these parameters by position only. */
  bool keywords = d->fn == str_split || d->fn == str_splitlines || d->fn == str_format;
  if (args->nkw && !keywords) return JX_FAIL(c, "\"%s\" takes no keyword arguments", d->name);
  if (d->params) {
    DF_TRY(df_jx_bind(c, d->name, d->params, args, arg));
    for (int i = 0; i < d->min; i++)
      if (arg[i].t == JT_UNSET) return JX_FAIL(c, "\"%s\" needs %d arguments", d->name, d->min);
  }
  return d->fn(c, m->self, d->how, args, arg, out);
}
