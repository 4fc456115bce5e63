/* text/jinja_filters.c - the filter table, and filters on single values: text, numbers, JSON, defaults. */
#include "text/jinja_filters.h"

#include <math.h>
#include <string.h>

#include "text/jinja_number.h"

#define FILTER(name) static df_status name(df_jctx *c, df_jv in, const df_jargs *args, const df_jv *arg, df_jv *out)

df_status df_jfilter_int(df_jctx *c, df_jv v, const char *what, int64_t dflt, int64_t *out) {
  *out = dflt;
  if (v.t == JT_UNSET || v.t == JT_NONE) return DF_OK;
  if (v.t != JT_INT && v.t != JT_BOOL) return JX_FAIL(c, "\"%s\" needs an integer, not a %s", what, df_jx_type(v));
  *out = v.t == JT_INT ? v.u.i : v.u.b;
  return DF_OK;
}

static bool given(df_jv v) { return v.t != JT_UNSET; }

/* ---- text ---- */

FILTER(f_trim) {
  (void)args;
  const df_jstr *s, *chars = NULL;
  DF_TRY(df_jx_to_str(c, in, &s));
  if (given(arg[0]) && arg[0].t != JT_NONE) {
    if (arg[0].t != JT_STR) return JX_FAIL(c, "\"trim\" needs a string, not a %s", df_jx_type(arg[0]));
    chars = arg[0].u.s;
  }
  return df_jx_strip(c, s, chars, JSTRIP_LEFT | JSTRIP_RIGHT, out);
}

static df_status text_case(df_jctx *c, df_jv in, df_jcase how, df_jv *out) {
  const df_jstr *s;
  DF_TRY(df_jx_to_str(c, in, &s));
  return df_jx_case(c, s, how, out);
}

FILTER(f_upper) {
  (void)args, (void)arg;
  return text_case(c, in, JCASE_UPPER, out);
}
FILTER(f_lower) {
  (void)args, (void)arg;
  return text_case(c, in, JCASE_LOWER, out);
}
FILTER(f_title) {
  (void)args, (void)arg;
  return text_case(c, in, JCASE_TITLE_WORDS, out);
}
FILTER(f_capitalize) {
  (void)args, (void)arg;
  return text_case(c, in, JCASE_CAPITAL, out);
}

FILTER(f_string) {
  (void)args, (void)arg;
  out->t = JT_STR;
  return df_jx_to_str(c, in, &out->u.s);
}

FILTER(f_replace) {
  (void)args;
  const df_jstr *s, *from, *to;
  int64_t count;
  DF_TRY(df_jx_to_str(c, in, &s));
  DF_TRY(df_jx_to_str(c, arg[0], &from));
  DF_TRY(df_jx_to_str(c, arg[1], &to));
  DF_TRY(df_jfilter_int(c, arg[2], "replace", -1, &count));
  return df_jx_replace(c, s, from, to, count, out);
}

FILTER(f_escape) {
  (void)args, (void)arg;
  const df_jstr *s;
  df_jbuf b;
  DF_TRY(df_jx_to_str(c, in, &s));
  DF_TRY(df_jx_chars(c, s->len));
  df_jbuf_init(&b, &c->arena);
  for (size_t i = 0; i < s->len; i++) {
    static const char *const to[] = {"&amp;", "&lt;", "&gt;", "&#34;", "&#39;"};
    const char *at = s->data[i] ? strchr("&<>\"'", s->data[i]) : NULL;
    if (at)
      DF_TRY(df_jbuf_puts(&b, to[strlen("&<>\"'") - strlen(at)], c->err));
    else
      DF_TRY(df_jbuf_put(&b, &s->data[i], 1, c->err));
  }
  out->t = JT_STR;
  return df_jbuf_take(&b, &out->u.s, c->err);
}

FILTER(f_center) {
  (void)args;
  const df_jstr *s;
  int64_t width;
  DF_TRY(df_jx_to_str(c, in, &s));
  DF_TRY(df_jfilter_int(c, arg[0], "center", 80, &width));
  return df_jx_pad(c, s, width, '^', " ", out);
}

FILTER(f_wordcount) {
  (void)args, (void)arg;
  const df_jstr *s;
  int64_t n = 0;
  bool inside = false;
  DF_TRY(df_jx_to_str(c, in, &s));
  DF_TRY(df_jx_chars(c, s->len));
  for (size_t i = 0; i < s->len; i++) {
    unsigned char ch = (unsigned char)s->data[i];
    bool word = ch >= 0x80 || ch == '_' || (ch >= '0' && ch <= '9') || ((ch | 0x20) >= 'a' && (ch | 0x20) <= 'z');
    n += word && !inside;
    inside = word;
  }
  *out = df_jv_int(n);
  return DF_OK;
}

FILTER(f_format) {
  (void)arg;
  const df_jstr *s;
  df_jv v;
  DF_TRY(df_jx_to_str(c, in, &s));
  if (args->nkw && args->npos) return JX_FAIL(c, "\"format\" takes positional or keyword arguments, not both");
  if (args->nkw) {
    df_jmap *m;
    DF_TRY(df_jmap_new(&c->arena, args->nkw, &m, c->err));
    for (uint32_t i = 0; i < args->nkw; i++)
      DF_TRY(df_jmap_put(&c->arena, m, df_jv_str(args->kw[i].name), args->kw[i].v, c->err));
    v = df_jv_map(m);
  } else {
    df_jlist *l;
    DF_TRY(df_jlist_new(&c->arena, args->npos, JK_TUPLE, &l, c->err));
    for (uint32_t i = 0; i < args->npos; i++) l->items[l->n++] = args->pos[i];
    v = df_jv_list(l);
  }
  return df_jx_percent(c, s, v, out);
}

FILTER(f_indent) {
  (void)args;
  const df_jstr *s, *pad;
  df_jlist *lines;
  df_jbuf b;
  df_jv v;
  int64_t width = 4;
  if (in.t == JT_UNDEF) return df_jx_undefined(c, in);
  if (in.t != JT_STR) return JX_FAIL(c, "\"indent\" needs a string, not a %s", df_jx_type(in));
  s = in.u.s;
  if (arg[0].t == JT_STR) {
    pad = arg[0].u.s;
  } else {
    DF_TRY(df_jfilter_int(c, arg[0], "indent", 4, &width));
    DF_TRY(df_jx_str(c, "", 0, &v));
    DF_TRY(df_jx_pad(c, v.u.s, width, '<', " ", &v));
    pad = v.u.s;
  }
  df_jbuf_init(&b, &c->arena); /* one more line end, so that a final one leaves an empty line */
  DF_TRY(df_jx_bytes(c, s->len));
  DF_TRY(df_jbuf_put(&b, s->data, s->len, c->err));
  DF_TRY(df_jbuf_puts(&b, "\n", c->err));
  DF_TRY(df_jbuf_take(&b, &s, c->err));
  DF_TRY(df_jx_splitlines(c, s, false, &lines));
  bool blank = given(arg[2]) && df_jx_truth(arg[2]), first = given(arg[1]) && df_jx_truth(arg[1]);
  df_jbuf_init(&b, &c->arena);
  for (uint32_t i = 0; i < lines->n; i++) {
    const df_jstr *line = lines->items[i].u.s;
    DF_TRY(df_jx_bytes(c, (uint64_t)pad->len + line->len + 64));
    if (i) DF_TRY(df_jbuf_puts(&b, "\n", c->err));
    if (i ? blank || line->len : first) DF_TRY(df_jbuf_put(&b, pad->data, pad->len, c->err));
    DF_TRY(df_jbuf_put(&b, line->data, line->len, c->err));
  }
  out->t = JT_STR;
  return df_jbuf_take(&b, &out->u.s, c->err);
}

/* ---- numbers ---- */

/* Text without surrounding white space and without underscores between digits; false when it is too long. */
static bool plain_number(df_jctx *c, const df_jstr *s, char *t, size_t cap, size_t *n) {
  df_jv v;
  *n = 0;
  if (s->len > 4 * cap || df_jx_strip(c, s, NULL, JSTRIP_LEFT | JSTRIP_RIGHT, &v) != DF_OK) return false;
  const df_jstr *x = v.u.s;
  for (size_t i = 0; i < x->len; i++) {
    if (x->data[i] == '_' && i > 0 && i + 1 < x->len && x->data[i - 1] != '_') continue;
    if (*n == cap) return false;
    t[(*n)++] = x->data[i];
  }
  return true;
}

static bool parse_float(df_jctx *c, const df_jstr *s, double *f) {
  char t[512];
  size_t n;
  if (!plain_number(c, s, t, sizeof t, &n)) return false;
  if (df_jnumber_float(t, n, f)) return true;
  size_t i = n && (t[0] == '-' || t[0] == '+');
  double sign = n && t[0] == '-' ? -1 : 1;
  for (size_t k = i; k < n; k++) t[k] = (char)(t[k] | 0x20);
  bool inf = (n - i == 3 && memcmp(t + i, "inf", 3) == 0) || (n - i == 8 && memcmp(t + i, "infinity", 8) == 0);
  bool nan = n - i == 3 && memcmp(t + i, "nan", 3) == 0;
  *f = inf ? sign * INFINITY : NAN;
  return inf || nan;
}

static bool parse_int(df_jctx *c, const df_jstr *s, int64_t base, int64_t *v, bool *over) {
  char t[512];
  size_t n, at = 0;
  *over = false;
  if (!plain_number(c, s, t, sizeof t, &n)) return false;
  bool neg = n && t[0] == '-';
  if (n && (t[0] == '-' || t[0] == '+')) at = 1;
  char k = n > at + 2 && t[at] == '0' ? (char)(t[at + 1] | 0x20) : 0;
  int64_t prefix = k == 'x' ? 16 : k == 'o' ? 8 : k == 'b' ? 2 : 0;
  if (prefix && (base == 0 || base == prefix)) base = prefix, at += 2;
  if (base == 0) base = 10;
  if (base < 2 || base > 36 || at == n || t[at] == '-' || t[at] == '+') return false;
  if (neg) t[--at] = '-';
  return df_jnumber_int(t + at, n - at, (int)base, v, over);
}

static df_status int_of_float(df_jctx *c, double f, df_jv *out) {
  if (isnan(f)) return JX_FAIL(c, "not a number cannot be an integer");
  if (!(f >= -9223372036854775808.0 && f < 9223372036854775808.0))
    return JX_FAIL(c, "the integer does not fit 64 bits");
  *out = df_jv_int((int64_t)f);
  return DF_OK;
}

FILTER(f_int) {
  (void)args;
  bool is_int, over = false;
  int64_t i, base;
  double f;
  *out = given(arg[0]) ? arg[0] : df_jv_int(0);
  DF_TRY(df_jfilter_int(c, arg[1], "int", 10, &base));
  if (in.t == JT_UNDEF) return df_jx_undefined(c, in);
  if (in.t == JT_BIG) return JX_FAIL(c, "the integer does not fit 64 bits");
  if (df_jv_number(in, &is_int, &i, &f)) {
    if (!is_int && isnan(f)) return DF_OK;
    if (!is_int) return int_of_float(c, f, out);
    *out = df_jv_int(i);
  } else if (in.t == JT_STR) {
    if (parse_int(c, in.u.s, base, &i, &over))
      *out = df_jv_int(i);
    else if (over)
      return JX_FAIL(c, "the integer does not fit 64 bits");
    else if (parse_float(c, in.u.s, &f) && isfinite(f))
      return int_of_float(c, f, out);
  }
  return DF_OK;
}

FILTER(f_float) {
  (void)args;
  bool is_int;
  int64_t i;
  double f;
  *out = given(arg[0]) ? arg[0] : df_jv_float(0);
  if (in.t == JT_UNDEF) return df_jx_undefined(c, in);
  if (df_jv_number(in, &is_int, &i, &f))
    *out = df_jv_float(is_int ? (double)i : f);
  else if ((in.t == JT_STR || in.t == JT_BIG) && parse_float(c, in.u.s, &f))
    *out = df_jv_float(f);
  return DF_OK;
}

FILTER(f_abs) {
  (void)args, (void)arg;
  bool is_int;
  int64_t i;
  double f;
  if (in.t == JT_UNDEF) return df_jx_undefined(c, in);
  if (!df_jv_number(in, &is_int, &i, &f)) return JX_FAIL(c, "\"abs\" needs a number, not a %s", df_jx_type(in));
  if (is_int && i == INT64_MIN) return JX_FAIL(c, "the integer does not fit 64 bits");
  *out = is_int ? df_jv_int(i < 0 ? -i : i) : df_jv_float(fabs(f));
  return DF_OK;
}

FILTER(f_round) {
  (void)args;
  bool is_int;
  int64_t i, digits;
  double f;
  const df_jv method = arg[1];
  if (in.t == JT_UNDEF) return df_jx_undefined(c, in);
  if (!df_jv_number(in, &is_int, &i, &f)) return JX_FAIL(c, "\"round\" needs a number, not a %s", df_jx_type(in));
  DF_TRY(df_jfilter_int(c, arg[0], "round", 0, &digits));
  if (digits > 400) digits = 400;
  if (digits < -400) digits = -400;
  bool common = !given(method) || (method.t == JT_STR && df_jstr_is(method.u.s, "common"));
  bool up = !common && method.t == JT_STR && df_jstr_is(method.u.s, "ceil");
  if (!common && !up && !(method.t == JT_STR && df_jstr_is(method.u.s, "floor")))
    return JX_FAIL(c, "\"round\" knows the methods common, ceil and floor");
  if (common && is_int) {
    *out = digits >= 0 ? df_jv_int(i) : df_jv_int((int64_t)df_jnumber_round((double)i, (int)digits));
    return DF_OK;
  }
  if (common) {
    *out = df_jv_float(df_jnumber_round(f, (int)digits));
    return DF_OK;
  }
  double scale = pow(10, (double)digits);
  *out = df_jv_float((up ? ceil(f * scale) : floor(f * scale)) / scale);
  return DF_OK;
}

/* ---- others ---- */

FILTER(f_default) {
  (void)args;
  bool boolean = given(arg[1]) && df_jx_truth(arg[1]);
  *out = in;
  if (in.t != JT_UNDEF && !(boolean && !df_jx_truth(in))) return DF_OK;
  *out = arg[0];
  return given(arg[0]) ? DF_OK : df_jx_str(c, "", 0, out);
}

static df_status separators(df_jctx *c, df_jv v, df_jdump *d) {
  df_jv *items;
  uint32_t n;
  if (!given(v) || v.t == JT_NONE) return DF_OK;
  DF_TRY(df_jx_elements(c, v, &items, &n));
  if (n != 2 || items[0].t != JT_STR || items[1].t != JT_STR) return JX_FAIL(c, "\"separators\" must be two strings");
  d->item_sep = items[0].u.s->data;
  d->item_len = items[0].u.s->len;
  d->key_sep = items[1].u.s->data;
  d->key_len = items[1].u.s->len;
  return DF_OK;
}

FILTER(f_tojson) {
  (void)args;
  df_jdump d = {.item_sep = ", ", .item_len = 2, .key_sep = ": ", .key_len = 2};
  df_jbuf b;
  df_jv pad;
  int64_t n;
  d.ascii = given(arg[0]) && df_jx_truth(arg[0]);
  d.sort_keys = given(arg[3]) && df_jx_truth(arg[3]);
  if (arg[1].t == JT_STR) {
    d.indent = arg[1].u.s->data;
    d.indent_len = arg[1].u.s->len;
  } else if (given(arg[1]) && arg[1].t != JT_NONE) {
    DF_TRY(df_jfilter_int(c, arg[1], "tojson", 0, &n));
    DF_TRY(df_jx_str(c, "", 0, &pad));
    DF_TRY(df_jx_pad(c, pad.u.s, n, '<', " ", &pad));
    d.indent = pad.u.s->data;
    d.indent_len = pad.u.s->len;
  }
  if (d.indent) d.item_sep = ",", d.item_len = 1;
  DF_TRY(separators(c, arg[2], &d));
  df_jbuf_init(&b, &c->arena);
  DF_TRY(df_jx_json(c, in, &d, &b));
  out->t = JT_STR;
  return df_jbuf_take(&b, &out->u.s, c->err);
}

FILTER(f_attr) {
  (void)args;
  if (arg[0].t != JT_STR) return JX_FAIL(c, "\"attr\" needs a name");
  /* Attributes only: the keys of a map are not among them. */
  if (in.t == JT_MAP && df_jx_method_find(in, arg[0].u.s) < 0) {
    *out = df_jv_undef(arg[0].u.s, JU_ATTR_MAP);
    return DF_OK;
  }
  return df_jx_attr(c, in, arg[0].u.s, out);
}

const df_jfilter df_jfilters_text[] = {
    {"trim", f_trim, "chars", 0},
    {"upper", f_upper, "", 0},
    {"lower", f_lower, "", 0},
    {"title", f_title, "", 0},
    {"capitalize", f_capitalize, "", 0},
    {"string", f_string, "", 0},
    {"safe", f_string, "", 0},
    {"replace", f_replace, "old,new,count", 2},
    {"e", f_escape, "", 0},
    {"escape", f_escape, "", 0},
    {"forceescape", f_escape, "", 0},
    {"center", f_center, "width", 0},
    {"wordcount", f_wordcount, "", 0},
    {"format", f_format, NULL, 0},
    {"indent", f_indent, "width,first,blank", 0},
    {"int", f_int, "default,base", 0},
    {"float", f_float, "default", 0},
    {"abs", f_abs, "", 0},
    {"round", f_round, "precision,method", 0},
    {"default", f_default, "default_value,boolean", 0},
    {"d", f_default, "default_value,boolean", 0},
    {"tojson", f_tojson, "ensure_ascii,indent,separators,sort_keys", 0},
    {"attr", f_attr, "name", 1},
};
const size_t df_jfilters_text_n = sizeof df_jfilters_text / sizeof *df_jfilters_text;

/* ---- the table ---- */

static const df_jfilter *filter_at(int i) {
  return (size_t)i < df_jfilters_text_n ? &df_jfilters_text[i] : &df_jfilters_seq[(size_t)i - df_jfilters_text_n];
}

int df_jfilter_find(const df_jstr *name) {
  for (size_t i = 0; i < df_jfilters_text_n + df_jfilters_seq_n; i++)
    if (df_jstr_is(name, filter_at((int)i)->name)) return (int)i;
  return -1;
}

df_status df_jfilter_call(df_jctx *c, int index, df_jv in, const df_jargs *args, df_jv *out) {
  const df_jfilter *f = filter_at(index);
  df_jv arg[JARGS_MAX];
  DF_TRY(df_jx_step(c, 1));
  if (f->params) {
    DF_TRY(df_jx_bind(c, f->name, f->params, args, arg));
    for (int i = 0; i < f->min; i++)
      if (!given(arg[i])) return JX_FAIL(c, "filter \"%s\" needs %d arguments", f->name, f->min);
  }
  return f->fn(c, in, args, arg, out);
}
