/* text/jinja_format.c - "..." % values, and "...".format(values). */
#include <stdio.h>
#include <string.h>

#include "text/jinja_eval.h"
#include "text/jinja_number.h"

typedef struct spec {
  bool minus, plus, blank, zero, alt;
  int64_t width, precision; /* -1 = none */
  char type;
} spec;

typedef struct source {
  df_jv args;
  uint32_t next;
} source;

static df_status next_value(df_jctx *c, source *from, df_jv *out) {
  bool tuple = from->args.t == JT_LIST && from->args.u.l->kind == JK_TUPLE;
  uint32_t n = tuple ? from->args.u.l->n : 1;
  if (from->next >= n) return JX_FAIL(c, "not enough values for the format");
  *out = tuple ? from->args.u.l->items[from->next] : from->args;
  from->next++;
  return DF_OK;
}

static int64_t digits(const df_jstr *f, size_t *i) {
  int64_t v = 0;
  while (*i < f->len && f->data[*i] >= '0' && f->data[*i] <= '9') {
    if (v < 100000) v = v * 10 + (f->data[*i] - '0');
    (*i)++;
  }
  return v;
}

static void read_spec(const df_jstr *f, size_t *i, spec *s) {
  *s = (spec){.precision = -1};
  for (; *i < f->len; (*i)++) {
    char ch = f->data[*i];
    if (ch == '-')
      s->minus = true;
    else if (ch == '+')
      s->plus = true;
    else if (ch == ' ')
      s->blank = true;
    else if (ch == '0')
      s->zero = true;
    else if (ch == '#')
      s->alt = true;
    else
      break;
  }
  s->width = digits(f, i);
  if (*i < f->len && f->data[*i] == '.') {
    (*i)++;
    s->precision = digits(f, i);
  }
  s->type = *i < f->len ? f->data[(*i)++] : 0;
}

/* The digits of a number with its sign. */
static df_status number_text(df_jctx *c, const spec *s, df_jv v, char *out, size_t cap, size_t *len) {
  bool is_int;
  int64_t i;
  double f;
  if (!df_jv_number(v, &is_int, &i, &f)) return JX_FAIL(c, "\"%%%c\" needs a number, not a %s", s->type, df_jx_type(v));
  if (s->type == 'f' || s->type == 'F' || s->type == 'e') {
    int64_t p = s->precision < 0 ? 6 : s->precision;
    if (p > 300) return DF_FAIL(c->err, DF_ERR_LIMIT, "formats more than 300 digits");
    *len = df_jnumber_fixed(f, s->type == 'e' ? 'e' : 'f', (int)p, out, cap);
    return DF_OK;
  }
  if (!is_int) {
    if (!(f > -9.2e18 && f < 9.2e18) || s->type == 'x' || s->type == 'X' || s->type == 'o')
      return JX_FAIL(c, "\"%%%c\" needs an integer", s->type);
    i = (int64_t)f;
  }
  uint64_t mag = i < 0 ? 0 - (uint64_t)i : (uint64_t)i;
  const char *sign = i < 0 ? "-" : "";
  int n;
  if (s->type == 'x')
    n = snprintf(out, cap, "%s%llx", sign, (unsigned long long)mag);
  else if (s->type == 'X')
    n = snprintf(out, cap, "%s%llX", sign, (unsigned long long)mag);
  else if (s->type == 'o')
    n = snprintf(out, cap, "%s%llo", sign, (unsigned long long)mag);
  else
    n = snprintf(out, cap, "%s%llu", sign, (unsigned long long)mag);
  *len = (size_t)n;
  return DF_OK;
}

static df_status put_number(df_jctx *c, const spec *s, df_jv v, df_jbuf *b) {
  char t[700], lead[2] = {0};
  size_t n = 0, k = 0;
  DF_TRY(number_text(c, s, v, t, sizeof t, &n));
  if (t[0] == '-')
    lead[0] = '-', k = 1;
  else if (s->plus)
    lead[0] = '+';
  else if (s->blank)
    lead[0] = ' ';
  int64_t fill = s->width - (int64_t)(n - k) - (lead[0] != 0);
  if (fill > 0) DF_TRY(df_jx_bytes(c, (uint64_t)fill));
  bool zeros = s->zero && !s->minus;
  for (int64_t i = 0; i < fill && !zeros && !s->minus; i++) DF_TRY(df_jbuf_puts(b, " ", c->err));
  DF_TRY(df_jbuf_puts(b, lead, c->err));
  for (int64_t i = 0; i < fill && zeros; i++) DF_TRY(df_jbuf_puts(b, "0", c->err));
  DF_TRY(df_jbuf_put(b, t + k, n - k, c->err));
  for (int64_t i = 0; i < fill && s->minus; i++) DF_TRY(df_jbuf_puts(b, " ", c->err));
  return DF_OK;
}

static df_status put_text(df_jctx *c, const spec *s, df_jv v, df_jbuf *b) {
  df_jv text = {.t = JT_STR};
  if (s->type == 'r') {
    df_jbuf r;
    df_jbuf_init(&r, &c->arena);
    DF_TRY(df_jx_repr(c, v, &r));
    DF_TRY(df_jbuf_take(&r, &text.u.s, c->err));
  } else {
    DF_TRY(df_jx_to_str(c, v, &text.u.s));
  }
  if (s->precision >= 0) DF_TRY(df_jx_slice(c, text, df_jv_none(), df_jv_int(s->precision), df_jv_none(), &text));
  DF_TRY(df_jx_pad(c, text.u.s, s->width, s->minus ? '<' : '>', " ", &text));
  DF_TRY(df_jx_bytes(c, text.u.s->len));
  return df_jbuf_put(b, text.u.s->data, text.u.s->len, c->err);
}

static df_status put_directive(df_jctx *c, const spec *s, source *from, df_jbuf *b) {
  df_jv v;
  if (s->type == '%') return df_jbuf_puts(b, "%", c->err);
  if (!s->type || !strchr("srdiufFexXo", s->type)) return JX_FAIL(c, "format directive is not supported");
  DF_TRY(next_value(c, from, &v));
  return s->type == 's' || s->type == 'r' ? put_text(c, s, v, b) : put_number(c, s, v, b);
}

df_status df_jx_percent(df_jctx *c, const df_jstr *f, df_jv args, df_jv *out) {
  df_jbuf b;
  source from = {.args = args};
  df_jbuf_init(&b, &c->arena);
  DF_TRY(df_jx_bytes(c, f->len));
  for (size_t i = 0; i < f->len;) {
    const char *p = memchr(f->data + i, '%', f->len - i);
    size_t stop = p ? (size_t)(p - f->data) : f->len;
    DF_TRY(df_jbuf_put(&b, f->data + i, stop - i, c->err));
    i = stop;
    if (!p) break;
    spec s;
    i++;
    DF_TRY(df_jx_step(c, 1));
    if (i < f->len && f->data[i] == '(') {
      const char *shut = memchr(f->data + i, ')', f->len - i);
      if (!shut || args.t != JT_MAP) return JX_FAIL(c, "the format needs a map");
      df_jv key;
      DF_TRY(df_jx_str(c, f->data + i + 1, (size_t)(shut - f->data) - i - 1, &key));
      const df_jv *v = df_jmap_get(args.u.m, key);
      if (!v) return JX_FAIL(c, "the format needs the key \"%s\"", key.u.s->data);
      i = (size_t)(shut - f->data) + 1;
      from = (source){.args = *v};
      if (v->t == JT_LIST) { /* a tuple here is one value */
        df_jlist *one;
        DF_TRY(df_jlist_new(&c->arena, 1, JK_TUPLE, &one, c->err));
        DF_TRY(df_jlist_push(&c->arena, one, *v, c->err));
        from.args = df_jv_list(one);
      }
    }
    read_spec(f, &i, &s);
    DF_TRY(put_directive(c, &s, &from, &b));
  }
  bool tuple = args.t == JT_LIST && args.u.l->kind == JK_TUPLE;
  bool unused = tuple ? from.next < args.u.l->n : from.next == 0 && args.t != JT_MAP && args.t != JT_LIST;
  if (unused && from.args.t == args.t) return JX_FAIL(c, "more values than the format takes");
  out->t = JT_STR;
  return df_jbuf_take(&b, &out->u.s, c->err);
}

/* One field of str.format: the text between the braces. */
static df_status field_value(df_jctx *c, const char *p, size_t n, const df_jargs *args, uint32_t *next, df_jv *out) {
  int64_t i = (*next);
  bool over;
  if (n == 0) (*next)++;
  if (n == 0 || df_jnumber_int(p, n, 10, &i, &over)) {
    if (i < 0 || i >= args->npos) return JX_FAIL(c, "not enough values for the format");
    *out = args->pos[i];
    return DF_OK;
  }
  for (uint32_t k = 0; k < args->nkw; k++)
    if (args->kw[k].name->len == n && memcmp(args->kw[k].name->data, p, n) == 0) {
      *out = args->kw[k].v;
      return DF_OK;
    }
  return JX_FAIL(c, "the format field \"%.*s\" has no value or is not supported", (int)n, p);
}

df_status df_jx_format(df_jctx *c, const df_jstr *f, const df_jargs *args, df_jv *out) {
  df_jbuf b;
  uint32_t next = 0;
  df_jbuf_init(&b, &c->arena);
  DF_TRY(df_jx_bytes(c, f->len));
  for (size_t i = 0; i < f->len;) {
    size_t run = i + strcspn(f->data + i, "{}");
    if (run > f->len) run = f->len;
    if (run == i && f->data[i] == '\0') run++;
    DF_TRY(df_jbuf_put(&b, f->data + i, run - i, c->err));
    i = run;
    if (i >= f->len || (f->data[i] != '{' && f->data[i] != '}')) continue;
    DF_TRY(df_jx_step(c, 1 + args->nkw / 16));
    if (i + 1 < f->len && f->data[i + 1] == f->data[i]) {
      DF_TRY(df_jbuf_put(&b, f->data + i, 1, c->err));
      i += 2;
      continue;
    }
    const char *shut = memchr(f->data + i, '}', f->len - i);
    if (f->data[i] == '}' || !shut) return JX_FAIL(c, "single brace in a format");
    df_jv v;
    DF_TRY(field_value(c, f->data + i + 1, (size_t)(shut - f->data) - i - 1, args, &next, &v));
    DF_TRY(df_jx_print(c, v, &b));
    i = (size_t)(shut - f->data) + 1;
  }
  out->t = JT_STR;
  return df_jbuf_take(&b, &out->u.s, c->err);
}
