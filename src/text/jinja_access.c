/* text/jinja_access.c - attributes, subscripts, slices and the elements of values. */
#include <string.h>

#include "text/jinja_eval.h"
#include "text/jinja_number.h"

static uint8_t undef_kind(df_jv obj) {
  switch (obj.t) {
    case JT_MAP: return JU_ATTR_MAP;
    case JT_LIST: return JU_ATTR_LIST;
    case JT_STR: return JU_ATTR_STR;
    case JT_NONE: return JU_ATTR_NONE;
    default: return JU_ATTR_OTHER;
  }
}

df_status df_jx_undefined(df_jctx *c, df_jv v) {
  static const char *const of[] = {"",
                                   "the map has no \"",
                                   "the list has no element \"",
                                   "the string has no attribute \"",
                                   "none has no attribute \"",
                                   "the value has no attribute \""};
  const char *name = v.u.s ? v.u.s->data : "value";
  if (v.aux == JU_UNSAFE) return JX_FAIL(c, "access to \"%s\" is not allowed", name);
  if (v.aux == JU_NAME) return JX_FAIL(c, "\"%s\" is undefined", name);
  return JX_FAIL(c, "%s%s\"", of[v.aux], name);
}

/* A bound method, if the type of obj has one of that name; *found tells. */
static df_status method_attr(df_jctx *c, df_jv obj, const df_jstr *name, df_jv *out, bool *found) {
  int id = df_jx_method_find(obj, name);
  *found = id != -1;
  if (id == -2) *out = df_jv_undef(name, JU_UNSAFE);
  if (id < 0) return DF_OK;
  df_jmethod *m;
  DF_TRY(df_jarena_get(&c->arena, sizeof *m, &m, c->err));
  *m = (df_jmethod){.self = obj, .id = id};
  *out = (df_jv){.t = JT_METHOD, .u.p = m};
  return DF_OK;
}

static bool map_lookup(df_jv obj, df_jv key, df_jv *out) {
  const df_jv *v = df_jmap_get(obj.u.m, key);
  if (v) *out = *v;
  return v != NULL;
}

df_status df_jx_attr(df_jctx *c, df_jv obj, const df_jstr *name, df_jv *out) {
  bool found;
  if (obj.t == JT_UNDEF) return df_jx_undefined(c, obj);
  if (obj.t == JT_LOOP) return df_jx_loop_attr(c, obj.u.p, name, out);
  if (obj.t == JT_MACRO && df_jstr_is(name, "name")) {
    const df_jmacro *m = obj.u.p;
    *out = m->node->name ? df_jv_str(m->node->name) : df_jv_none();
    return DF_OK;
  }
  if (obj.t == JT_NS) {
    if (!map_lookup(obj, df_jv_str(name), out)) *out = df_jv_undef(name, JU_ATTR_OTHER);
    return DF_OK;
  }
  DF_TRY(method_attr(c, obj, name, out, &found));
  if (found || (obj.t == JT_MAP && map_lookup(obj, df_jv_str(name), out))) return DF_OK;
  *out = df_jv_undef(name, undef_kind(obj));
  return DF_OK;
}

static df_status char_at(df_jctx *c, const df_jstr *s, size_t i, df_jv *out) {
  size_t at = df_jstr_offset(s, i), used;
  if (s->ncp != s->len) DF_TRY(df_jx_bytes(c, at * 4));
  (void)df_jutf8_get(s->data + at, s->len - at, &used);
  return df_jx_str(c, s->data + at, used, out);
}

df_status df_jx_item(df_jctx *c, df_jv obj, df_jv key, df_jv *out) {
  bool found = false;
  if (obj.t == JT_UNDEF) return df_jx_undefined(c, obj);
  if (obj.t == JT_MAP && map_lookup(obj, key, out)) return DF_OK;
  bool indexable = obj.t == JT_STR || (obj.t == JT_LIST && obj.u.l->kind <= JK_RANGE);
  if (indexable && (key.t == JT_INT || key.t == JT_BOOL)) {
    int64_t n = obj.t == JT_STR ? obj.u.s->ncp : obj.u.l->n, i = key.t == JT_INT ? key.u.i : key.u.b;
    if (i < 0) i += n;
    if (i >= 0 && i < n) {
      if (obj.t == JT_STR) return char_at(c, obj.u.s, (size_t)i, out);
      *out = obj.u.l->items[i];
      return DF_OK;
    }
  }
  if (key.t == JT_STR) {
    if (obj.t == JT_NS || obj.t == JT_LOOP || obj.t == JT_MACRO) return df_jx_attr(c, obj, key.u.s, out);
    DF_TRY(method_attr(c, obj, key.u.s, out, &found));
    if (found) return DF_OK;
  }
  const df_jstr *name;
  DF_TRY(df_jx_to_str(c, key, &name));
  *out = df_jv_undef(name, undef_kind(obj));
  return DF_OK;
}

df_status df_jx_path(df_jctx *c, df_jv obj, df_jv key, df_jv *out) {
  if (key.t != JT_STR) return df_jx_item(c, obj, key, out);
  const df_jstr *path = key.u.s;
  for (size_t i = 0; i <= path->len;) {
    size_t end = i;
    bool digits = true, over;
    for (; end < path->len && path->data[end] != '.'; end++)
      digits = digits && path->data[end] >= '0' && path->data[end] <= '9';
    df_jv part;
    int64_t index;
    if (digits && end > i && df_jnumber_int(path->data + i, end - i, 10, &index, &over))
      part = df_jv_int(index);
    else
      DF_TRY(df_jx_str(c, path->data + i, end - i, &part));
    DF_TRY(df_jx_step(c, 1));
    DF_TRY(df_jx_item(c, obj, part, &obj));
    i = end + 1;
  }
  *out = obj;
  return DF_OK;
}

/* ---- slices ---- */

/* Clamps one bound of a slice as Python does; v none = dflt. */
static df_status bound(df_jctx *c, df_jv v, int64_t n, int64_t lo, int64_t hi, int64_t dflt, int64_t *out) {
  if (v.t == JT_NONE) {
    *out = dflt;
    return DF_OK;
  }
  if (v.t != JT_INT && v.t != JT_BOOL) return JX_FAIL(c, "slice bounds must be integers, not a %s", df_jx_type(v));
  int64_t i = v.t == JT_INT ? v.u.i : v.u.b;
  if (i < 0) i = i < -n ? -1 : i + n;
  *out = i < lo ? lo : i > hi ? hi : i;
  return DF_OK;
}

typedef struct slice {
  int64_t start, step, count;
} slice;

static df_status slice_of(df_jctx *c, int64_t n, df_jv lo, df_jv hi, df_jv step, slice *out) {
  int64_t st = 1, a, b;
  if (step.t == JT_INT || step.t == JT_BOOL)
    st = step.t == JT_INT ? step.u.i : step.u.b;
  else if (step.t != JT_NONE)
    return JX_FAIL(c, "slice steps must be integers, not a %s", df_jx_type(step));
  if (st == 0) return JX_FAIL(c, "slice step is zero");
  if (st > n) st = n + 1; /* the same elements, without overflow below */
  if (st < -n) st = -n - 1;
  int64_t min = st > 0 ? 0 : -1, max = st > 0 ? n : n - 1;
  DF_TRY(bound(c, lo, n, min, max, st > 0 ? 0 : n - 1, &a));
  DF_TRY(bound(c, hi, n, min, max, st > 0 ? n : -1, &b));
  int64_t span = st > 0 ? b - a : a - b, stride = st > 0 ? st : -st;
  *out = (slice){.start = a, .step = st, .count = span > 0 ? (span + stride - 1) / stride : 0};
  return DF_OK;
}

static df_status slice_str(df_jctx *c, const df_jstr *s, slice sl, df_jv *out) {
  df_jbuf b;
  DF_TRY(df_jx_bytes(c, s->ncp == s->len ? 0 : (uint64_t)s->len * 4));
  if (sl.step == 1) {
    size_t from = df_jstr_offset(s, (size_t)sl.start), to = df_jstr_offset(s, (size_t)(sl.start + sl.count));
    return df_jx_str(c, s->data + from, to - from, out);
  }
  df_jbuf_init(&b, &c->arena);
  DF_TRY(df_jx_chars(c, s->len));
  size_t at = sl.count ? df_jstr_offset(s, (size_t)sl.start) : 0, used;
  for (int64_t k = 0; k < sl.count; k++) {
    (void)df_jutf8_get(s->data + at, s->len - at, &used);
    DF_TRY(df_jbuf_put(&b, s->data + at, used, c->err));
    /* Walks by code points, so that the whole slice is linear. */
    for (int64_t m = 0; k + 1 < sl.count && m < (sl.step > 0 ? sl.step : -sl.step); m++) {
      if (sl.step > 0) do
          at++;
        while (at < s->len && ((unsigned char)s->data[at] & 0xC0) == 0x80);
      else
        do at--;
        while (at > 0 && ((unsigned char)s->data[at] & 0xC0) == 0x80);
    }
  }
  out->t = JT_STR;
  return df_jbuf_take(&b, &out->u.s, c->err);
}

df_status df_jx_slice(df_jctx *c, df_jv obj, df_jv lo, df_jv hi, df_jv step, df_jv *out) {
  slice sl;
  if (obj.t == JT_UNDEF) return df_jx_undefined(c, obj);
  if (obj.t != JT_STR && !(obj.t == JT_LIST && obj.u.l->kind <= JK_RANGE))
    return JX_FAIL(c, "cannot slice a %s", df_jx_type(obj));
  DF_TRY(slice_of(c, obj.t == JT_STR ? obj.u.s->ncp : obj.u.l->n, lo, hi, step, &sl));
  if (obj.t == JT_STR) return slice_str(c, obj.u.s, sl, out);
  df_jlist *l;
  DF_TRY(df_jx_items(c, (uint64_t)sl.count));
  DF_TRY(df_jlist_new(&c->arena, (size_t)sl.count, (df_jkind)obj.u.l->kind, &l, c->err));
  for (int64_t k = 0; k < sl.count; k++) l->items[k] = obj.u.l->items[sl.start + k * sl.step];
  l->n = (uint32_t)sl.count;
  if (l->kind == JK_RANGE) {
    const int64_t *r = obj.u.l->range;
    l->range[0] = r[0] + sl.start * r[2];
    l->range[2] = r[2] * sl.step;
    l->range[1] = l->range[0] + sl.count * l->range[2];
  }
  *out = df_jv_list(l);
  return DF_OK;
}

/* ---- elements ---- */

static df_status chars_of(df_jctx *c, const df_jstr *s, df_jv **items, uint32_t *n) {
  df_jv *v;
  DF_TRY(df_jx_chars(c, (uint64_t)s->ncp * 2));
  DF_TRY(df_jarena_get(&c->arena, s->ncp * sizeof *v, &v, c->err));
  size_t at = 0, used;
  for (uint32_t i = 0; i < s->ncp; i++, at += used) {
    (void)df_jutf8_get(s->data + at, s->len - at, &used);
    DF_TRY(df_jx_str(c, s->data + at, used, &v[i]));
  }
  *items = v;
  *n = s->ncp;
  return DF_OK;
}

df_status df_jx_elements(df_jctx *c, df_jv v, df_jv **items, uint32_t *n) {
  *items = NULL;
  *n = 0;
  switch (v.t) {
    case JT_UNDEF: return DF_OK;
    case JT_STR: return chars_of(c, v.u.s, items, n);
    case JT_LIST: {
      df_jlist *l = v.u.l;
      uint32_t from = l->kind == JK_ITER ? l->pos : 0;
      *items = l->items ? l->items + from : NULL;
      *n = l->n - from;
      if (l->kind == JK_ITER) l->pos = l->n; /* a one-shot iterator is empty afterwards */
      return DF_OK;
    }
    case JT_MAP: {
      df_jv *k;
      DF_TRY(df_jx_items(c, v.u.m->n));
      DF_TRY(df_jarena_get(&c->arena, v.u.m->n * sizeof *k, &k, c->err));
      for (uint32_t i = 0; i < v.u.m->n; i++) k[i] = v.u.m->e[i].key;
      *items = k;
      *n = v.u.m->n;
      return DF_OK;
    }
    default: return JX_FAIL(c, "a %s cannot be looped over", df_jx_type(v));
  }
}
