/* text/jinja_filters_seq.c - filters on sequences and maps. */
#include <string.h>

#include "text/jinja_filters.h"
#include "text/jinja_lex.h"

#define FILTER(name) static df_status name(df_jctx *c, df_jv in, const df_jargs *args, const df_jv *arg, df_jv *out)

static bool given(df_jv v) { return v.t != JT_UNSET; }

static bool is_true(df_jv v) { return given(v) && df_jx_truth(v); }

static bool has_attribute(df_jv v) { return given(v) && v.t != JT_NONE; }

static df_status new_list(df_jctx *c, uint32_t cap, df_jkind kind, df_jlist **l, df_jv *out) {
  DF_TRY(df_jx_items(c, cap));
  DF_TRY(df_jlist_new(&c->arena, cap, kind, l, c->err));
  *out = df_jv_list(*l);
  return DF_OK;
}

/* ---- simple ones ---- */

FILTER(f_length) {
  (void)args, (void)arg;
  switch (in.t) {
    case JT_UNDEF: *out = df_jv_int(0); return DF_OK;
    case JT_STR: *out = df_jv_int(in.u.s->ncp); return DF_OK;
    case JT_MAP: *out = df_jv_int(in.u.m->n); return DF_OK;
    case JT_LIST:
      if (in.u.l->kind == JK_ITER) break;
      *out = df_jv_int(in.u.l->n);
      return DF_OK;
    default: break;
  }
  return JX_FAIL(c, "a%s %s has no length", strchr("aeiou", df_jx_type(in)[0]) ? "n" : "", df_jx_type(in));
}

FILTER(f_list) {
  (void)args, (void)arg;
  df_jv *items;
  uint32_t n;
  df_jlist *l;
  DF_TRY(df_jx_elements(c, in, &items, &n));
  DF_TRY(new_list(c, n, JK_LIST, &l, out));
  if (n) memcpy(l->items, items, n * sizeof *items);
  l->n = n;
  return DF_OK;
}

FILTER(f_first) {
  (void)args, (void)arg;
  df_jv *items;
  uint32_t n;
  if (in.t == JT_LIST && in.u.l->kind == JK_ITER && in.u.l->pos < in.u.l->n) { /* takes one element only */
    *out = in.u.l->items[in.u.l->pos++];
    return DF_OK;
  }
  if (in.t == JT_STR && in.u.s->len) return df_jx_item(c, in, df_jv_int(0), out);
  DF_TRY(df_jx_elements(c, in, &items, &n));
  *out = n ? items[0] : df_jv_undef(NULL, JU_NAME);
  return DF_OK;
}

FILTER(f_last) {
  (void)args, (void)arg;
  df_jv *items;
  uint32_t n;
  if (in.t == JT_LIST && in.u.l->kind == JK_ITER) return JX_FAIL(c, "an iterator has no last element");
  if (in.t == JT_STR && in.u.s->len) return df_jx_item(c, in, df_jv_int(-1), out);
  DF_TRY(df_jx_elements(c, in, &items, &n));
  *out = n ? items[n - 1] : df_jv_undef(NULL, JU_NAME);
  return DF_OK;
}

FILTER(f_reverse) {
  (void)args, (void)arg;
  df_jv *items;
  uint32_t n;
  df_jlist *l;
  if (in.t == JT_STR) return df_jx_slice(c, in, df_jv_none(), df_jv_none(), df_jv_int(-1), out);
  DF_TRY(df_jx_elements(c, in, &items, &n));
  DF_TRY(new_list(c, n, JK_ITER, &l, out));
  for (uint32_t i = 0; i < n; i++) l->items[i] = items[n - 1 - i];
  l->n = n;
  return DF_OK;
}

FILTER(f_join) {
  (void)args;
  df_jv *items;
  uint32_t n;
  const df_jstr *sep = NULL;
  df_jbuf b;
  DF_TRY(df_jx_elements(c, in, &items, &n));
  if (given(arg[0])) DF_TRY(df_jx_to_str(c, arg[0], &sep));
  df_jbuf_init(&b, &c->arena);
  for (uint32_t i = 0; i < n; i++) {
    df_jv v = items[i];
    DF_TRY(df_jx_step(c, 1));
    if (has_attribute(arg[1])) DF_TRY(df_jx_path(c, v, arg[1], &v));
    if (i && sep) DF_TRY(df_jx_print(c, df_jv_str(sep), &b));
    DF_TRY(df_jx_print(c, v, &b));
  }
  out->t = JT_STR;
  return df_jbuf_take(&b, &out->u.s, c->err);
}

static df_status new_pair(df_jctx *c, df_jv a, df_jv b, df_jv *out) {
  df_jlist *l;
  DF_TRY(df_jx_step(c, 1));
  DF_TRY(df_jlist_new(&c->arena, 2, JK_TUPLE, &l, c->err));
  l->items[0] = a;
  l->items[1] = b;
  l->n = 2;
  *out = df_jv_list(l);
  return DF_OK;
}

FILTER(f_items) {
  (void)args, (void)arg;
  df_jlist *l;
  if (in.t != JT_MAP && in.t != JT_UNDEF) return JX_FAIL(c, "\"items\" needs a map, not a %s", df_jx_type(in));
  uint32_t n = in.t == JT_MAP ? in.u.m->n : 0;
  DF_TRY(new_list(c, n, JK_ITER, &l, out));
  for (uint32_t i = 0; i < n; i++, l->n++) DF_TRY(new_pair(c, in.u.m->e[i].key, in.u.m->e[i].val, &l->items[i]));
  return DF_OK;
}

FILTER(f_batch) {
  (void)args;
  df_jv *items;
  uint32_t n;
  int64_t size;
  df_jlist *l, *row = NULL;
  DF_TRY(df_jfilter_int(c, arg[0], "batch", 0, &size));
  DF_TRY(df_jx_elements(c, in, &items, &n));
  DF_TRY(new_list(c, 0, JK_ITER, &l, out));
  for (uint32_t i = 0; i < n; i++) {
    DF_TRY(df_jx_step(c, 1));
    if (!row || (int64_t)row->n == size) {
      DF_TRY(df_jlist_new(&c->arena, 0, JK_LIST, &row, c->err));
      DF_TRY(df_jlist_push(&c->arena, l, df_jv_list(row), c->err));
    }
    DF_TRY(df_jlist_push(&c->arena, row, items[i], c->err));
  }
  while (row && has_attribute(arg[1]) && (int64_t)row->n < size) {
    DF_TRY(df_jx_step(c, 1));
    DF_TRY(df_jlist_push(&c->arena, row, arg[1], c->err));
  }
  return DF_OK;
}

/* ---- sorting ---- */

/* What an element is compared by: itself or an attribute, in lower case unless sensitive. */
static df_status sort_key(df_jctx *c, df_jv v, df_jv attribute, bool sensitive, df_jv *out) {
  if (has_attribute(attribute)) DF_TRY(df_jx_path(c, v, attribute, &v));
  *out = v;
  if (v.t == JT_STR && !sensitive) return df_jx_case(c, v.u.s, JCASE_LOWER, out);
  return DF_OK;
}

/* Several attributes "a,b" make a list of keys. */
static df_status sort_keys(df_jctx *c, df_jv v, df_jv attribute, bool sensitive, df_jv *out) {
  if (attribute.t != JT_STR || !memchr(attribute.u.s->data, ',', attribute.u.s->len))
    return sort_key(c, v, attribute, sensitive, out);
  df_jlist *l;
  df_jv comma, parts, k;
  DF_TRY(df_jx_str(c, ",", 1, &comma));
  DF_TRY(df_jx_split(c, attribute.u.s, comma.u.s, -1, false, &parts));
  DF_TRY(df_jlist_new(&c->arena, parts.u.l->n, JK_LIST, &l, c->err));
  for (uint32_t i = 0; i < parts.u.l->n; i++) {
    DF_TRY(sort_key(c, v, parts.u.l->items[i], sensitive, &k));
    l->items[l->n++] = k;
  }
  *out = df_jv_list(l);
  return DF_OK;
}

typedef struct keyed {
  df_jv key, v;
} keyed;

/* Bottom-up merge sort, stable in both directions. */
static df_status merge_sort(df_jctx *c, keyed *a, keyed *t, uint32_t n, bool reverse, keyed **out) {
  for (uint32_t w = 1; w < n; w *= 2) {
    for (uint32_t lo = 0; lo < n; lo += 2 * w) {
      uint32_t mid = lo + w < n ? lo + w : n, hi = lo + 2 * w < n ? lo + 2 * w : n, i = lo, j = mid;
      for (uint32_t k = lo; k < hi; k++) {
        int r = 0;
        if (i < mid && j < hi) DF_TRY(df_jx_order(c, reverse ? a[i].key : a[j].key, reverse ? a[j].key : a[i].key, &r));
        bool left = i < mid && (j >= hi || r != -1);
        t[k] = left ? a[i++] : a[j++];
      }
    }
    keyed *swap = a;
    a = t;
    t = swap;
  }
  *out = a;
  return DF_OK;
}

static df_status sorted(df_jctx *c, const df_jv *items, const df_jv *keys, uint32_t n, bool reverse, df_jv *out) {
  keyed *a, *t;
  df_jlist *l;
  DF_TRY(df_jarena_get(&c->arena, n * sizeof *a, &a, c->err));
  DF_TRY(df_jarena_get(&c->arena, n * sizeof *t, &t, c->err));
  for (uint32_t i = 0; i < n; i++) a[i] = (keyed){.key = keys[i], .v = items[i]};
  DF_TRY(merge_sort(c, a, t, n, reverse, &a));
  DF_TRY(new_list(c, n, JK_LIST, &l, out));
  for (uint32_t i = 0; i < n; i++) l->items[i] = a[i].v;
  l->n = n;
  return DF_OK;
}

FILTER(f_sort) {
  (void)args;
  df_jv *items, *keys;
  uint32_t n;
  DF_TRY(df_jx_elements(c, in, &items, &n));
  DF_TRY(df_jarena_get(&c->arena, n * sizeof *keys, &keys, c->err));
  for (uint32_t i = 0; i < n; i++) DF_TRY(sort_keys(c, items[i], arg[2], is_true(arg[1]), &keys[i]));
  return sorted(c, items, keys, n, is_true(arg[0]), out);
}

FILTER(f_dictsort) {
  (void)args;
  df_jv pairs, *keys;
  bool by_value = arg[1].t == JT_STR && df_jstr_is(arg[1].u.s, "value");
  if (in.t != JT_MAP) return JX_FAIL(c, "\"dictsort\" needs a map, not a %s", df_jx_type(in));
  if (given(arg[1]) && !by_value && !(arg[1].t == JT_STR && df_jstr_is(arg[1].u.s, "key")))
    return JX_FAIL(c, "\"dictsort\" sorts by \"key\" or \"value\"");
  DF_TRY(f_items(c, in, args, arg, &pairs));
  const df_jlist *l = pairs.u.l;
  DF_TRY(df_jarena_get(&c->arena, l->n * sizeof *keys, &keys, c->err));
  for (uint32_t i = 0; i < l->n; i++)
    DF_TRY(sort_key(c, l->items[i].u.l->items[by_value], (df_jv){.t = JT_UNSET}, is_true(arg[0]), &keys[i]));
  return sorted(c, l->items, keys, l->n, is_true(arg[2]), out);
}

FILTER(f_unique) {
  (void)args;
  df_jv *items, key;
  uint32_t n;
  df_jmap *seen;
  df_jlist *l;
  DF_TRY(df_jx_elements(c, in, &items, &n));
  DF_TRY(df_jmap_new(&c->arena, 0, &seen, c->err));
  DF_TRY(new_list(c, n, JK_ITER, &l, out));
  for (uint32_t i = 0; i < n; i++) {
    DF_TRY(df_jx_step(c, 1));
    DF_TRY(sort_key(c, items[i], arg[1], is_true(arg[0]), &key));
    if (df_jmap_get(seen, key)) continue;
    DF_TRY(df_jmap_put(&c->arena, seen, key, df_jv_none(), c->err));
    l->items[l->n++] = items[i];
  }
  return DF_OK;
}

static df_status extreme(df_jctx *c, df_jv in, const df_jv *arg, int want, df_jv *out) {
  df_jv *items, key, best = {0};
  uint32_t n;
  DF_TRY(df_jx_elements(c, in, &items, &n));
  *out = df_jv_undef(NULL, JU_NAME);
  for (uint32_t i = 0; i < n; i++) {
    int r = want;
    DF_TRY(sort_key(c, items[i], arg[1], is_true(arg[0]), &key));
    if (i) DF_TRY(df_jx_order(c, key, best, &r));
    if (r != want) continue;
    best = key;
    *out = items[i];
  }
  return DF_OK;
}

FILTER(f_min) {
  (void)args;
  return extreme(c, in, arg, -1, out);
}
FILTER(f_max) {
  (void)args;
  return extreme(c, in, arg, 1, out);
}

FILTER(f_sum) {
  (void)args;
  df_jv *items;
  uint32_t n;
  DF_TRY(df_jx_elements(c, in, &items, &n));
  df_jv total = given(arg[1]) ? arg[1] : df_jv_int(0);
  for (uint32_t i = 0; i < n; i++) {
    df_jv v = items[i];
    DF_TRY(df_jx_step(c, 1));
    if (has_attribute(arg[0])) DF_TRY(df_jx_path(c, v, arg[0], &v));
    DF_TRY(df_jx_binary(c, TK_ADD, total, v, &total));
  }
  *out = total;
  return DF_OK;
}

FILTER(f_groupby) {
  (void)args;
  df_jv *items, *keys, all, k, prev = {0};
  uint32_t n;
  df_jlist *l, *group = NULL;
  bool sensitive = is_true(arg[2]);
  DF_TRY(df_jx_elements(c, in, &items, &n));
  DF_TRY(df_jarena_get(&c->arena, n * sizeof *keys, &keys, c->err));
  for (uint32_t i = 0; i < n; i++) DF_TRY(sort_key(c, items[i], arg[0], sensitive, &keys[i]));
  DF_TRY(sorted(c, items, keys, n, false, &all));
  DF_TRY(new_list(c, 0, JK_LIST, &l, out));
  for (uint32_t i = 0; i < n; i++) {
    df_jv v = all.u.l->items[i], pair, name;
    bool same = false;
    DF_TRY(sort_key(c, v, arg[0], sensitive, &k));
    if (group) DF_TRY(df_jx_equal(c, prev, k, &same));
    if (!same) {
      DF_TRY(df_jlist_new(&c->arena, 0, JK_LIST, &group, c->err));
      DF_TRY(sort_key(c, v, arg[0], true, &name));
      DF_TRY(new_pair(c, name, df_jv_list(group), &pair));
      DF_TRY(df_jlist_push(&c->arena, l, pair, c->err));
    }
    DF_TRY(df_jlist_push(&c->arena, group, v, c->err));
    prev = k;
  }
  return DF_OK;
}

/* ---- map, select, reject ---- */

static df_jv kw_value(const df_jargs *a, const char *name) {
  for (uint32_t i = 0; i < a->nkw; i++)
    if (df_jstr_is(a->kw[i].name, name)) return a->kw[i].v;
  return (df_jv){.t = JT_UNSET};
}

static df_status map_attribute(df_jctx *c, df_jv v, df_jv attribute, df_jv dflt, df_jv *out) {
  DF_TRY(df_jx_path(c, v, attribute, out));
  if (out->t == JT_UNDEF && given(dflt)) *out = dflt;
  return DF_OK;
}

FILTER(f_map) {
  (void)arg;
  df_jv *items, attribute = kw_value(args, "attribute"), dflt = kw_value(args, "default");
  uint32_t n;
  df_jlist *l;
  df_jargs rest = {0};
  int filter = -1;
  if (args->npos == 0) {
    if (!given(attribute)) return JX_FAIL(c, "\"map\" needs the name of a filter or an attribute");
    if (args->nkw > (given(dflt) ? 2u : 1u)) return JX_FAIL(c, "\"map\" has no such parameter");
  } else {
    if (args->pos[0].t != JT_STR) return JX_FAIL(c, "\"map\" needs the name of a filter");
    filter = df_jfilter_find(args->pos[0].u.s);
    if (filter < 0) return JX_FAIL(c, "unknown filter \"%s\"", args->pos[0].u.s->data);
    rest = (df_jargs){.pos = args->pos + 1, .npos = args->npos - 1, .kw = args->kw, .nkw = args->nkw};
  }
  DF_TRY(df_jx_elements(c, in, &items, &n));
  DF_TRY(new_list(c, n, JK_ITER, &l, out));
  if (++c->depth > JINJA_MAX_EVAL_DEPTH) return DF_FAIL(c->err, DF_ERR_LIMIT, "evaluation nested too deeply");
  for (uint32_t i = 0; i < n; i++, l->n++) {
    DF_TRY(df_jx_step(c, 1));
    if (filter < 0)
      DF_TRY(map_attribute(c, items[i], attribute, dflt, &l->items[i]));
    else
      DF_TRY(df_jfilter_call(c, filter, items[i], &rest, &l->items[i]));
  }
  c->depth--;
  return DF_OK;
}

static df_status select_by(df_jctx *c, df_jv in, const df_jargs *args, bool by_attr, bool keep, df_jv *out) {
  df_jv *items;
  uint32_t n, off = by_attr;
  df_jlist *l;
  df_jargs rest = {.kw = args->kw, .nkw = args->nkw};
  int test = -1;
  if (args->npos < off) return JX_FAIL(c, "expected the name of an attribute");
  if (args->npos > off) {
    df_jv name = args->pos[off];
    if (name.t != JT_STR) return JX_FAIL(c, "expected the name of a test");
    test = df_jtest_find(name.u.s);
    if (test < 0) return JX_FAIL(c, "unknown test \"%s\"", name.u.s->data);
    rest.pos = args->pos + off + 1;
    rest.npos = args->npos - off - 1;
  }
  DF_TRY(df_jx_elements(c, in, &items, &n));
  DF_TRY(new_list(c, n, JK_ITER, &l, out));
  for (uint32_t i = 0; i < n; i++) {
    df_jv v = items[i];
    bool yes;
    DF_TRY(df_jx_step(c, 1));
    if (by_attr) DF_TRY(df_jx_path(c, v, args->pos[0], &v));
    if (test < 0)
      yes = df_jx_truth(v);
    else
      DF_TRY(df_jtest_call(c, test, v, &rest, &yes));
    if (yes == keep) l->items[l->n++] = items[i];
  }
  return DF_OK;
}

FILTER(f_select) {
  (void)arg;
  return select_by(c, in, args, false, true, out);
}
FILTER(f_reject) {
  (void)arg;
  return select_by(c, in, args, false, false, out);
}
FILTER(f_selectattr) {
  (void)arg;
  return select_by(c, in, args, true, true, out);
}
FILTER(f_rejectattr) {
  (void)arg;
  return select_by(c, in, args, true, false, out);
}

const df_jfilter df_jfilters_seq[] = {
    {"length", f_length, "", 0},
    {"count", f_length, "", 0},
    {"list", f_list, "", 0},
    {"first", f_first, "", 0},
    {"last", f_last, "", 0},
    {"reverse", f_reverse, "", 0},
    {"join", f_join, "d,attribute", 0},
    {"items", f_items, "", 0},
    {"batch", f_batch, "linecount,fill_with", 1},
    {"sort", f_sort, "reverse,case_sensitive,attribute", 0},
    {"dictsort", f_dictsort, "case_sensitive,by,reverse", 0},
    {"unique", f_unique, "case_sensitive,attribute", 0},
    {"min", f_min, "case_sensitive,attribute", 0},
    {"max", f_max, "case_sensitive,attribute", 0},
    {"sum", f_sum, "attribute,start", 0},
    {"groupby", f_groupby, "attribute,default,case_sensitive", 1},
    {"map", f_map, NULL, 0},
    {"select", f_select, NULL, 0},
    {"reject", f_reject, NULL, 0},
    {"selectattr", f_selectattr, NULL, 0},
    {"rejectattr", f_rejectattr, NULL, 0},
};
const size_t df_jfilters_seq_n = sizeof df_jfilters_seq / sizeof *df_jfilters_seq;
