/* text/jinja_print.c - values to text: str(), repr() and JSON. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <utf8proc.h>

#include "text/jinja_eval.h"
#include "text/jinja_number.h"

static df_status put_int(df_jctx *c, int64_t i, df_jbuf *b) {
  char t[JNUMBER_MAX];
  int n = snprintf(t, sizeof t, "%lld", (long long)i);
  return df_jbuf_put(b, t, (size_t)n, c->err);
}

static df_status put_float(df_jctx *c, double f, df_jbuf *b) {
  char t[JNUMBER_MAX];
  size_t n = df_jnumber_repr(f, t);
  return df_jbuf_put(b, t, n, c->err);
}

/* ---- repr ---- */

static bool printable(uint32_t cp) {
  switch (utf8proc_category((utf8proc_int32_t)cp)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP: return false;
    case UTF8PROC_CATEGORY_ZS: return cp == ' ';
    default: return true;
  }
}

static df_status repr_cp(df_jctx *c, uint32_t cp, char quote, df_jbuf *b) {
  char t[16];
  if (cp == (unsigned char)quote || cp == '\\')
    snprintf(t, sizeof t, "\\%c", (char)cp);
  else if (cp == '\n')
    snprintf(t, sizeof t, "\\n");
  else if (cp == '\r')
    snprintf(t, sizeof t, "\\r");
  else if (cp == '\t')
    snprintf(t, sizeof t, "\\t");
  else if (printable(cp))
    return df_jbuf_put_cp(b, cp, c->err);
  else
    snprintf(t, sizeof t, cp < 0x100 ? "\\x%02x" : cp < 0x10000 ? "\\u%04x" : "\\U%08x", (unsigned)cp);
  return df_jbuf_puts(b, t, c->err);
}

static df_status repr_str(df_jctx *c, const df_jstr *s, df_jbuf *b) {
  char quote = memchr(s->data, '\'', s->len) && !memchr(s->data, '"', s->len) ? '"' : '\'';
  DF_TRY(df_jx_chars(c, s->len));
  DF_TRY(df_jbuf_put(b, &quote, 1, c->err));
  for (size_t i = 0, used; i < s->len; i += used) {
    uint32_t cp = df_jutf8_get(s->data + i, s->len - i, &used);
    if (used == 0) return DF_FAIL(c->err, DF_ERR_INTERNAL, "a string is not valid UTF-8");
    DF_TRY(repr_cp(c, cp, quote, b));
  }
  return df_jbuf_put(b, &quote, 1, c->err);
}

static df_status repr_at(df_jctx *c, df_jv v, int depth, df_jbuf *b);

static df_status repr_range(df_jctx *c, const df_jlist *l, df_jbuf *b) {
  DF_TRY(df_jbuf_puts(b, "range(", c->err));
  for (int k = 0; k < (l->range[2] == 1 ? 2 : 3); k++) {
    if (k) DF_TRY(df_jbuf_puts(b, ", ", c->err));
    DF_TRY(put_int(c, l->range[k], b));
  }
  return df_jbuf_puts(b, ")", c->err);
}

static df_status repr_list(df_jctx *c, const df_jlist *l, int depth, df_jbuf *b) {
  static const char *const open[] = {"[", "(", "", "", "dict_keys([", "dict_values([", "dict_items(["};
  static const char *const shut[] = {"]", ")", "", "", "])", "])", "])"};
  if (l->kind == JK_RANGE) return repr_range(c, l, b);
  if (l->kind == JK_ITER) return df_jbuf_puts(b, "<generator object>", c->err);
  DF_TRY(df_jbuf_puts(b, open[l->kind], c->err));
  for (uint32_t i = 0; i < l->n; i++) {
    if (i) DF_TRY(df_jbuf_puts(b, ", ", c->err));
    DF_TRY(repr_at(c, l->items[i], depth + 1, b));
  }
  if (l->kind == JK_TUPLE && l->n == 1) DF_TRY(df_jbuf_puts(b, ",", c->err));
  return df_jbuf_puts(b, shut[l->kind], c->err);
}

static df_status repr_map(df_jctx *c, const df_jmap *m, int depth, df_jbuf *b) {
  DF_TRY(df_jbuf_puts(b, "{", c->err));
  for (uint32_t i = 0; i < m->n; i++) {
    if (i) DF_TRY(df_jbuf_puts(b, ", ", c->err));
    DF_TRY(repr_at(c, m->e[i].key, depth + 1, b));
    DF_TRY(df_jbuf_puts(b, ": ", c->err));
    DF_TRY(repr_at(c, m->e[i].val, depth + 1, b));
  }
  return df_jbuf_puts(b, "}", c->err);
}

static df_status repr_at(df_jctx *c, df_jv v, int depth, df_jbuf *b) {
  DF_TRY(df_jx_step(c, 1));
  if (depth > JINJA_MAX_VALUE_DEPTH) return DF_FAIL(c->err, DF_ERR_LIMIT, "prints a value nested too deeply");
  switch (v.t) {
    case JT_UNSET:
    case JT_UNDEF: return df_jbuf_puts(b, "Undefined", c->err);
    case JT_NONE: return df_jbuf_puts(b, "None", c->err);
    case JT_BOOL: return df_jbuf_puts(b, v.u.b ? "True" : "False", c->err);
    case JT_INT: return put_int(c, v.u.i, b);
    case JT_FLOAT: return put_float(c, v.u.f, b);
    case JT_BIG: return df_jbuf_put(b, v.u.s->data, v.u.s->len, c->err);
    case JT_STR: return repr_str(c, v.u.s, b);
    case JT_LIST: return repr_list(c, v.u.l, depth, b);
    case JT_MAP: return repr_map(c, v.u.m, depth, b);
    case JT_NS:
      DF_TRY(df_jbuf_puts(b, "<Namespace ", c->err));
      DF_TRY(repr_map(c, v.u.m, depth, b));
      return df_jbuf_puts(b, ">", c->err);
    case JT_MACRO: {
      const df_jmacro *m = v.u.p;
      DF_TRY(df_jbuf_puts(b, m->node->name ? "<Macro '" : "<Macro anonymous>", c->err));
      if (!m->node->name) return DF_OK;
      DF_TRY(df_jbuf_put(b, m->node->name->data, m->node->name->len, c->err));
      return df_jbuf_puts(b, "'>", c->err);
    }
    case JT_LOOP: {
      const df_jloop *l = v.u.p;
      char t[64];
      (void)snprintf(t, sizeof t, "<LoopContext %u/%u>", l->index0 + 1, l->n_src);
      return df_jbuf_puts(b, t, c->err);
    }
    default: return df_jbuf_puts(b, v.t == JT_OBJ ? "<object>" : "<function>", c->err);
  }
}

df_status df_jx_repr(df_jctx *c, df_jv v, df_jbuf *b) { return repr_at(c, v, 0, b); }

df_status df_jx_print(df_jctx *c, df_jv v, df_jbuf *b) {
  if (v.t == JT_UNDEF || v.t == JT_UNSET) return DF_OK;
  if (v.t != JT_STR) return repr_at(c, v, 0, b);
  DF_TRY(df_jx_bytes(c, v.u.s->len));
  return df_jbuf_put(b, v.u.s->data, v.u.s->len, c->err);
}

df_status df_jx_to_str(df_jctx *c, df_jv v, const df_jstr **out) {
  if (v.t == JT_STR) {
    *out = v.u.s;
    return DF_OK;
  }
  df_jbuf b;
  df_jbuf_init(&b, &c->arena);
  DF_TRY(df_jx_print(c, v, &b));
  return df_jbuf_take(&b, out, c->err);
}

/* ---- JSON ---- */

static df_status json_escape(df_jctx *c, uint32_t cp, df_jbuf *b) {
  char t[16];
  switch (cp) {
    case '"': return df_jbuf_puts(b, "\\\"", c->err);
    case '\\': return df_jbuf_puts(b, "\\\\", c->err);
    case '\n': return df_jbuf_puts(b, "\\n", c->err);
    case '\r': return df_jbuf_puts(b, "\\r", c->err);
    case '\t': return df_jbuf_puts(b, "\\t", c->err);
    case '\f': return df_jbuf_puts(b, "\\f", c->err);
    case '\b': return df_jbuf_puts(b, "\\b", c->err);
    default: break;
  }
  if (cp < 0x10000)
    (void)snprintf(t, sizeof t, "\\u%04x", (unsigned)cp);
  else
    (void)snprintf(t, sizeof t, "\\u%04x\\u%04x", 0xD800 + (unsigned)((cp - 0x10000) >> 10),
                   0xDC00 + (unsigned)((cp - 0x10000) & 0x3FF));
  return df_jbuf_puts(b, t, c->err);
}

static bool json_plain(unsigned char ch, bool ascii) {
  return ch >= 0x20 && ch != '"' && ch != '\\' && !(ascii && ch >= 0x7f);
}

static df_status json_str(df_jctx *c, const char *p, size_t n, const df_jdump *how, df_jbuf *b) {
  DF_TRY(df_jx_bytes(c, (uint64_t)n * 4));
  DF_TRY(df_jbuf_puts(b, "\"", c->err));
  for (size_t i = 0; i < n;) {
    size_t run = i, used;
    while (run < n && json_plain((unsigned char)p[run], how->ascii)) run++;
    DF_TRY(df_jbuf_put(b, p + i, run - i, c->err));
    if (run == n) break;
    uint32_t cp = df_jutf8_get(p + run, n - run, &used);
    if (used == 0) return DF_FAIL(c->err, DF_ERR_INTERNAL, "a string is not valid UTF-8");
    DF_TRY(json_escape(c, cp, b));
    i = run + used;
  }
  return df_jbuf_puts(b, "\"", c->err);
}

static df_status json_newline(df_jctx *c, const df_jdump *how, int depth, df_jbuf *b) {
  if (!how->indent) return DF_OK;
  DF_TRY(df_jx_bytes(c, how->indent_len * (size_t)depth));
  DF_TRY(df_jbuf_puts(b, "\n", c->err));
  for (int i = 0; i < depth; i++) DF_TRY(df_jbuf_put(b, how->indent, how->indent_len, c->err));
  return DF_OK;
}

static df_status json_at(df_jctx *c, df_jv v, const df_jdump *how, int depth, df_jbuf *b);

static df_status json_list(df_jctx *c, const df_jlist *l, const df_jdump *how, int depth, df_jbuf *b) {
  if (l->n == 0) return df_jbuf_puts(b, "[]", c->err);
  DF_TRY(df_jbuf_puts(b, "[", c->err));
  for (uint32_t i = 0; i < l->n; i++) {
    if (i) DF_TRY(df_jbuf_put(b, how->item_sep, how->item_len, c->err));
    DF_TRY(json_newline(c, how, depth + 1, b));
    DF_TRY(json_at(c, l->items[i], how, depth + 1, b));
  }
  DF_TRY(json_newline(c, how, depth, b));
  return df_jbuf_puts(b, "]", c->err);
}

static df_status json_number(df_jctx *c, df_jv v, df_jbuf *b) {
  if (v.t == JT_FLOAT && !isfinite(v.u.f))
    return df_jbuf_puts(b, isnan(v.u.f) ? "NaN" : v.u.f < 0 ? "-Infinity" : "Infinity", c->err);
  return repr_at(c, v, 0, b);
}

static df_status json_key(df_jctx *c, df_jv k, const df_jdump *how, df_jbuf *b) {
  if (k.t == JT_STR) return json_str(c, k.u.s->data, k.u.s->len, how, b);
  if (k.t != JT_NONE && k.t != JT_BOOL && k.t != JT_INT && k.t != JT_FLOAT && k.t != JT_BIG)
    return JX_FAIL(c, "a %s cannot be a key in JSON", df_jx_type(k));
  DF_TRY(df_jbuf_puts(b, "\"", c->err));
  DF_TRY(json_at(c, k, how, 0, b));
  return df_jbuf_puts(b, "\"", c->err);
}

/* Bottom-up merge sort: the number of keys is in the hands of a client. */
static df_status sorted_entries(df_jctx *c, const df_jmap *m, const df_jentry ***out) {
  const df_jentry **a, **t;
  uint32_t n = m->n;
  DF_TRY(df_jarena_get(&c->arena, n * sizeof *a, &a, c->err));
  DF_TRY(df_jarena_get(&c->arena, n * sizeof *t, &t, c->err));
  for (uint32_t i = 0; i < n; i++) a[i] = &m->e[i];
  for (uint32_t w = 1; w < n; w *= 2) {
    for (uint32_t lo = 0; lo < n; lo += 2 * w) {
      uint32_t mid = lo + w < n ? lo + w : n, hi = lo + 2 * w < n ? lo + 2 * w : n, i = lo, j = mid;
      for (uint32_t k = lo; k < hi; k++) {
        int r = 1;
        if (i < mid && j < hi) DF_TRY(df_jx_order(c, a[j]->key, a[i]->key, &r));
        t[k] = i < mid && (j >= hi || r >= 0) ? a[i++] : a[j++];
      }
    }
    const df_jentry **swap = a;
    a = t;
    t = swap;
  }
  *out = a;
  return DF_OK;
}

static df_status json_map(df_jctx *c, const df_jmap *m, const df_jdump *how, int depth, df_jbuf *b) {
  if (m->n == 0) return df_jbuf_puts(b, "{}", c->err);
  const df_jentry **sorted = NULL;
  if (how->sort_keys) DF_TRY(sorted_entries(c, m, &sorted));
  DF_TRY(df_jbuf_puts(b, "{", c->err));
  for (uint32_t i = 0; i < m->n; i++) {
    const df_jentry *e = sorted ? sorted[i] : &m->e[i];
    if (i) DF_TRY(df_jbuf_put(b, how->item_sep, how->item_len, c->err));
    DF_TRY(json_newline(c, how, depth + 1, b));
    DF_TRY(json_key(c, e->key, how, b));
    DF_TRY(df_jbuf_put(b, how->key_sep, how->key_len, c->err));
    DF_TRY(json_at(c, e->val, how, depth + 1, b));
  }
  DF_TRY(json_newline(c, how, depth, b));
  return df_jbuf_puts(b, "}", c->err);
}

static df_status json_at(df_jctx *c, df_jv v, const df_jdump *how, int depth, df_jbuf *b) {
  DF_TRY(df_jx_step(c, 1));
  if (depth > JINJA_MAX_VALUE_DEPTH) return DF_FAIL(c->err, DF_ERR_LIMIT, "writes JSON nested too deeply");
  switch (v.t) {
    case JT_NONE: return df_jbuf_puts(b, "null", c->err);
    case JT_BOOL: return df_jbuf_puts(b, v.u.b ? "true" : "false", c->err);
    case JT_INT:
    case JT_FLOAT:
    case JT_BIG: return json_number(c, v, b);
    case JT_STR: return json_str(c, v.u.s->data, v.u.s->len, how, b);
    case JT_MAP: return json_map(c, v.u.m, how, depth, b);
    case JT_LIST:
      if (v.u.l->kind <= JK_TUPLE) return json_list(c, v.u.l, how, depth, b);
      break;
    default: break;
  }
  return JX_FAIL(c, "a%s %s cannot be written as JSON", v.t == JT_UNDEF ? "n" : "", df_jx_type(v));
}

df_status df_jx_json(df_jctx *c, df_jv v, const df_jdump *how, df_jbuf *b) { return json_at(c, v, how, 0, b); }
