/* text/jinja_ops.c - truth, comparison and arithmetic of values, with the rules of Python. */
#include <math.h>
#include <string.h>

#include "base/size.h"
#include "text/jinja_eval.h"
#include "text/jinja_lex.h"

bool df_jx_truth(df_jv v) {
  switch (v.t) {
    case JT_UNSET:
    case JT_UNDEF:
    case JT_NONE: return false;
    case JT_BOOL: return v.u.b;
    case JT_INT: return v.u.i != 0;
    case JT_FLOAT: return v.u.f != 0;
    case JT_STR: return v.u.s->len != 0;
    case JT_LIST: return v.u.l->kind == JK_ITER || v.u.l->n != 0; /* a one-shot iterator is always true */
    case JT_MAP: return v.u.m->n != 0;
    default: return true;
  }
}

/* ---- comparison ---- */

static df_status equal_at(df_jctx *c, df_jv a, df_jv b, int depth, bool *out);

static df_status equal_lists(df_jctx *c, const df_jlist *a, const df_jlist *b, int depth, bool *out) {
  *out = a == b;
  if (a == b || a->kind != b->kind || a->kind == JK_ITER || a->n != b->n) return DF_OK;
  *out = true;
  for (uint32_t i = 0; *out && i < a->n; i++) DF_TRY(equal_at(c, a->items[i], b->items[i], depth + 1, out));
  return DF_OK;
}

static df_status equal_maps(df_jctx *c, const df_jmap *a, const df_jmap *b, int depth, bool *out) {
  *out = a == b;
  if (a == b || a->n != b->n) return DF_OK;
  *out = true;
  for (uint32_t i = 0; *out && i < a->n; i++) {
    const df_jv *v = df_jmap_get(b, a->e[i].key);
    *out = v != NULL;
    if (v) DF_TRY(equal_at(c, a->e[i].val, *v, depth + 1, out));
  }
  return DF_OK;
}

static df_status equal_at(df_jctx *c, df_jv a, df_jv b, int depth, bool *out) {
  DF_TRY(df_jx_step(c, 1));
  if (depth > JINJA_MAX_VALUE_DEPTH) return DF_FAIL(c->err, DF_ERR_LIMIT, "compares values nested too deeply");
  *out = false;
  if (a.t == JT_STR && b.t == JT_STR) {
    if (a.u.s->len == b.u.s->len) {
      DF_TRY(df_jx_bytes(c, a.u.s->len));
      *out = df_jstr_eq(a.u.s, b.u.s);
    }
    return DF_OK;
  }
  if (a.t == JT_LIST && b.t == JT_LIST) return equal_lists(c, a.u.l, b.u.l, depth, out);
  if (a.t == JT_MAP && b.t == JT_MAP) return equal_maps(c, a.u.m, b.u.m, depth, out);
  if (a.t == JT_LIST || a.t == JT_MAP || b.t == JT_MAP) return DF_OK;
  *out = df_jv_key_eq(a, b);
  return DF_OK;
}

df_status df_jx_equal(df_jctx *c, df_jv a, df_jv b, bool *out) { return equal_at(c, a, b, 0, out); }

static int order_double(double a, double b) {
  if (isnan(a) || isnan(b)) return 2;
  return (a > b) - (a < b);
}

static df_status order_at(df_jctx *c, df_jv a, df_jv b, int depth, int *out) {
  bool ai, bi;
  int64_t ia, ib;
  double fa, fb;
  DF_TRY(df_jx_step(c, 1));
  if (depth > JINJA_MAX_VALUE_DEPTH) return DF_FAIL(c->err, DF_ERR_LIMIT, "compares values nested too deeply");
  if (a.t == JT_UNDEF) return df_jx_undefined(c, a);
  if (b.t == JT_UNDEF) return df_jx_undefined(c, b);
  if (df_jv_number(a, &ai, &ia, &fa) && df_jv_number(b, &bi, &ib, &fb)) {
    *out = ai && bi ? (ia > ib) - (ia < ib) : order_double(fa, fb);
    return DF_OK;
  }
  if (a.t == JT_STR && b.t == JT_STR) {
    DF_TRY(df_jx_bytes(c, DF_MIN(a.u.s->len, b.u.s->len)));
    int r = df_jstr_cmp(a.u.s, b.u.s);
    *out = (r > 0) - (r < 0);
    return DF_OK;
  }
  if (a.t == JT_LIST && b.t == JT_LIST && a.u.l->kind == b.u.l->kind && a.u.l->kind <= JK_TUPLE) {
    uint32_t n = DF_MIN(a.u.l->n, b.u.l->n);
    for (uint32_t i = 0; i < n; i++) {
      bool same;
      DF_TRY(equal_at(c, a.u.l->items[i], b.u.l->items[i], depth + 1, &same));
      if (!same) return order_at(c, a.u.l->items[i], b.u.l->items[i], depth + 1, out);
    }
    *out = (a.u.l->n > b.u.l->n) - (a.u.l->n < b.u.l->n);
    return DF_OK;
  }
  return JX_FAIL(c, "cannot order a %s and a %s", df_jx_type(a), df_jx_type(b));
}

df_status df_jx_order(df_jctx *c, df_jv a, df_jv b, int *out) { return order_at(c, a, b, 0, out); }

df_status df_jx_contains(df_jctx *c, df_jv seq, df_jv v, bool *out) {
  *out = false;
  if (seq.t == JT_STR) {
    if (v.t != JT_STR) return JX_FAIL(c, "\"in\" a string needs a string on its left, not a %s", df_jx_type(v));
    DF_TRY(df_jx_bytes(c, seq.u.s->len));
    *out = df_jx_find(seq.u.s, 0, v.u.s) != SIZE_MAX;
    return DF_OK;
  }
  if (seq.t == JT_MAP) {
    uint64_t h;
    if (!df_jv_hash(v, &h)) return JX_FAIL(c, "a %s cannot be a key", df_jx_type(v));
    *out = df_jmap_get(seq.u.m, v) != NULL;
    return DF_OK;
  }
  if (seq.t == JT_UNDEF) return DF_OK;
  df_jv *items;
  uint32_t n;
  DF_TRY(df_jx_elements(c, seq, &items, &n));
  for (uint32_t i = 0; i < n && !*out; i++) DF_TRY(df_jx_equal(c, items[i], v, out));
  return DF_OK;
}

df_status df_jx_compare(df_jctx *c, uint8_t op, df_jv a, df_jv b, bool *out) {
  int r;
  switch (op) {
    case TK_EQ: return df_jx_equal(c, a, b, out);
    case TK_NE:
      DF_TRY(df_jx_equal(c, a, b, out));
      *out = !*out;
      return DF_OK;
    case JOP_IN: return df_jx_contains(c, b, a, out);
    case JOP_NOT_IN:
      DF_TRY(df_jx_contains(c, b, a, out));
      *out = !*out;
      return DF_OK;
    default: break;
  }
  DF_TRY(df_jx_order(c, a, b, &r));
  *out = r != 2 && (op == TK_LT ? r < 0 : op == TK_LE ? r <= 0 : op == TK_GT ? r > 0 : r >= 0);
  return DF_OK;
}

/* ---- arithmetic ---- */

static const char *op_text(uint8_t op) { return df_jtok_name(op); }

static df_status overflow(df_jctx *c, uint8_t op) {
  return JX_FAIL(c, "the result of \"%s\" does not fit 64 bits", op_text(op));
}

static df_status int_pow(df_jctx *c, int64_t a, int64_t b, df_jv *out) {
  if (b < 0) {
    if (a == 0) return JX_FAIL(c, "zero to a negative power");
    *out = df_jv_float(pow((double)a, (double)b));
    return DF_OK;
  }
  int64_t r = 1;
  while (b) {
    if ((b & 1) && __builtin_mul_overflow(r, a, &r)) return overflow(c, TK_POW);
    b >>= 1;
    if (b && __builtin_mul_overflow(a, a, &a)) return overflow(c, TK_POW);
  }
  *out = df_jv_int(r);
  return DF_OK;
}

static df_status int_op(df_jctx *c, uint8_t op, int64_t a, int64_t b, df_jv *out) {
  int64_t r = 0;
  bool bad = false;
  if ((op == TK_DIV || op == TK_FLOORDIV || op == TK_MOD) && b == 0) return JX_FAIL(c, "division by zero");
  switch (op) {
    case TK_ADD: bad = __builtin_add_overflow(a, b, &r); break;
    case TK_SUB: bad = __builtin_sub_overflow(a, b, &r); break;
    case TK_MUL: bad = __builtin_mul_overflow(a, b, &r); break;
    case TK_DIV: *out = df_jv_float((double)a / (double)b); return DF_OK;
    case TK_POW: return int_pow(c, a, b, out);
    default:
      if (b == -1) { /* INT64_MIN / -1 traps */
        bad = op == TK_FLOORDIV && __builtin_sub_overflow((int64_t)0, a, &r);
        break;
      }
      r = op == TK_MOD ? a % b : a / b;
      if (a % b != 0 && (a % b < 0) != (b < 0)) r += op == TK_MOD ? b : -1; /* floor, not towards zero */
  }
  if (bad) return overflow(c, op);
  *out = df_jv_int(r);
  return DF_OK;
}

static df_status float_op(df_jctx *c, uint8_t op, double a, double b, df_jv *out) {
  double r;
  if ((op == TK_DIV || op == TK_FLOORDIV || op == TK_MOD) && b == 0) return JX_FAIL(c, "division by zero");
  double m = fmod(a, b);
  if (m != 0 && (m < 0) != (b < 0))
    m += b;
  else if (m == 0)
    m = copysign(0.0, b);
  switch (op) {
    case TK_ADD: r = a + b; break;
    case TK_SUB: r = a - b; break;
    case TK_MUL: r = a * b; break;
    case TK_DIV: r = a / b; break;
    case TK_MOD: r = m; break;
    case TK_FLOORDIV: {
      double q = (a - m) / b;
      r = floor(q);
      if (q - r > 0.5) r += 1.0;
      if (q == 0) r = copysign(0.0, a / b);
      break;
    }
    default:
      if (a == 0 && b < 0) return JX_FAIL(c, "zero to a negative power");
      r = pow(a, b);
      if (isnan(r) && !isnan(a) && !isnan(b)) return JX_FAIL(c, "a negative number to a fractional power");
      if (isinf(r) && isfinite(a) && isfinite(b)) return overflow(c, op);
  }
  *out = df_jv_float(r);
  return DF_OK;
}

static df_status repeat(df_jctx *c, df_jv v, int64_t times, df_jv *out) {
  if (times < 0) times = 0;
  size_t total;
  if (v.t == JT_STR) {
    df_jbuf b;
    df_jbuf_init(&b, &c->arena);
    if (!df_mul_size(v.u.s->len, (size_t)times, &total) || total > JINJA_MAX_OUTPUT)
      return DF_FAIL(c->err, DF_ERR_LIMIT, "repeats a string to more than %zu bytes", JINJA_MAX_OUTPUT);
    DF_TRY(df_jx_bytes(c, total));
    if (total)
      for (int64_t i = 0; i < times; i++) DF_TRY(df_jbuf_put(&b, v.u.s->data, v.u.s->len, c->err));
    out->t = JT_STR;
    return df_jbuf_take(&b, &out->u.s, c->err);
  }
  df_jlist *l;
  if (!df_mul_size(v.u.l->n, (size_t)times, &total) || total > JINJA_MAX_ARENA / sizeof(df_jv))
    return DF_FAIL(c->err, DF_ERR_LIMIT, "repeats a list to too many elements");
  DF_TRY(df_jx_items(c, total));
  DF_TRY(df_jlist_new(&c->arena, total, (df_jkind)v.u.l->kind, &l, c->err));
  if (v.u.l->n)
    for (int64_t i = 0; i < times; i++) memcpy(l->items + (size_t)i * v.u.l->n, v.u.l->items, v.u.l->n * sizeof(df_jv));
  l->n = (uint32_t)total;
  *out = df_jv_list(l);
  return DF_OK;
}

static df_status join(df_jctx *c, df_jv a, df_jv b, df_jv *out) {
  if (a.t == JT_STR) {
    df_jbuf t;
    df_jbuf_init(&t, &c->arena);
    DF_TRY(df_jx_bytes(c, (uint64_t)a.u.s->len + b.u.s->len));
    DF_TRY(df_jbuf_put(&t, a.u.s->data, a.u.s->len, c->err));
    DF_TRY(df_jbuf_put(&t, b.u.s->data, b.u.s->len, c->err));
    out->t = JT_STR;
    return df_jbuf_take(&t, &out->u.s, c->err);
  }
  df_jlist *l;
  size_t n = (size_t)a.u.l->n + b.u.l->n;
  DF_TRY(df_jx_items(c, n));
  DF_TRY(df_jlist_new(&c->arena, n, (df_jkind)a.u.l->kind, &l, c->err));
  if (a.u.l->n) memcpy(l->items, a.u.l->items, a.u.l->n * sizeof(df_jv));
  if (b.u.l->n) memcpy(l->items + a.u.l->n, b.u.l->items, b.u.l->n * sizeof(df_jv));
  l->n = (uint32_t)n;
  *out = df_jv_list(l);
  return DF_OK;
}

static bool is_list(df_jv v) { return v.t == JT_LIST && v.u.l->kind <= JK_TUPLE; }

df_status df_jx_binary(df_jctx *c, uint8_t op, df_jv a, df_jv b, df_jv *out) {
  bool ai, bi;
  int64_t ia, ib;
  double fa, fb;
  if (op == TK_MOD && a.t == JT_STR) return df_jx_percent(c, a.u.s, b, out);
  if (a.t == JT_UNDEF) return df_jx_undefined(c, a);
  if (b.t == JT_UNDEF) return df_jx_undefined(c, b);
  bool na = df_jv_number(a, &ai, &ia, &fa), nb = df_jv_number(b, &bi, &ib, &fb);
  if (na && nb) return ai && bi ? int_op(c, op, ia, ib, out) : float_op(c, op, fa, fb, out);
  if (op == TK_ADD) {
    if (a.t == JT_STR && b.t == JT_STR) return join(c, a, b, out);
    if (is_list(a) && is_list(b) && a.u.l->kind == b.u.l->kind) return join(c, a, b, out);
  }
  if (op == TK_MUL) {
    if ((a.t == JT_STR || is_list(a)) && nb && bi) return repeat(c, a, ib, out);
    if ((b.t == JT_STR || is_list(b)) && na && ai) return repeat(c, b, ia, out);
  }
  return JX_FAIL(c, "cannot apply \"%s\" to a %s and a %s", op_text(op), df_jx_type(a), df_jx_type(b));
}

df_status df_jx_unary(df_jctx *c, uint8_t op, df_jv a, df_jv *out) {
  bool is_int;
  int64_t i;
  double f;
  if (a.t == JT_UNDEF) return df_jx_undefined(c, a);
  if (!df_jv_number(a, &is_int, &i, &f)) return JX_FAIL(c, "cannot apply \"%s\" to a %s", op_text(op), df_jx_type(a));
  if (!is_int) {
    *out = df_jv_float(op == TK_SUB ? -f : f);
    return DF_OK;
  }
  if (op == TK_SUB && __builtin_sub_overflow((int64_t)0, i, &i)) return overflow(c, op);
  *out = df_jv_int(i);
  return DF_OK;
}
