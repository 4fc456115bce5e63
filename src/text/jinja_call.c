/* text/jinja_call.c - calls: macros, recursive loops, global functions, loop attributes. */
#include <string.h>

#include "text/jinja_eval.h"
#include "text/jinja_filters.h"

/* ---- macros ---- */

/* The keyword argument of this name, taken out of the list. */
static bool take_kw(df_jargs *a, const df_jstr *name, df_jv *out) {
  for (uint32_t i = 0; i < a->nkw; i++) {
    if (!df_jstr_eq(a->kw[i].name, name)) continue;
    *out = a->kw[i].v;
    memmove(&a->kw[i], &a->kw[i + 1], (a->nkw - i - 1) * sizeof *a->kw);
    a->nkw--;
    return true;
  }
  return false;
}

static const char *macro_name(const df_jmacro *m) { return m->node->name ? m->node->name->data : "caller"; }

static df_status bind_rest(df_jctx *c, const df_jmacro *m, df_jargs *a, uint32_t used, df_jscope *s) {
  uint8_t uses = m->node->op;
  if (uses & JUSE_CALLER) {
    df_jv caller = df_jv_undef(c->names->caller, JU_NAME);
    (void)take_kw(a, c->names->caller, &caller);
    DF_TRY(df_jx_set_var(c, s, c->names->caller, caller));
  }
  if (uses & JUSE_KWARGS) {
    df_jmap *map;
    DF_TRY(df_jmap_new(&c->arena, a->nkw, &map, c->err));
    for (uint32_t i = 0; i < a->nkw; i++)
      DF_TRY(df_jmap_put(&c->arena, map, df_jv_str(a->kw[i].name), a->kw[i].v, c->err));
    DF_TRY(df_jx_set_var(c, s, c->names->kwargs, df_jv_map(map)));
  } else if (a->nkw) {
    return JX_FAIL(c, "macro \"%s\" has no parameter \"%s\"", macro_name(m), a->kw[0].name->data);
  }
  if (uses & JUSE_VARARGS) {
    df_jlist *l;
    DF_TRY(df_jlist_new(&c->arena, a->npos - used, JK_TUPLE, &l, c->err));
    for (uint32_t i = used; i < a->npos; i++) l->items[l->n++] = a->pos[i];
    return df_jx_set_var(c, s, c->names->varargs, df_jv_list(l));
  }
  if (used < a->npos) return JX_FAIL(c, "macro \"%s\" takes %u arguments, got %u", macro_name(m), used, a->npos);
  return DF_OK;
}

static df_status bind_macro(df_jctx *c, const df_jmacro *m, const df_jargs *args, df_jscope *s) {
  df_jargs a = *args;
  uint32_t used = 0;
  if (a.nkw) {
    DF_TRY(df_jarena_get(&c->arena, a.nkw * sizeof *a.kw, &a.kw, c->err));
    memcpy(a.kw, args->kw, a.nkw * sizeof *a.kw);
  }
  for (const df_jnode *p = m->node->params; p; p = p->next) {
    df_jv v = df_jv_undef(p->name, JU_NAME);
    if (used < a.npos)
      v = a.pos[used++];
    else if (!take_kw(&a, p->name, &v) && p->a)
      DF_TRY(df_jx_eval(c, p->a, &v));
    DF_TRY(df_jx_set_var(c, s, p->name, v));
  }
  return bind_rest(c, m, &a, used, s);
}

static df_status enter_call(df_jctx *c) {
  if (++c->calls > JINJA_MAX_CALL_DEPTH)
    return DF_FAIL(c->err, DF_ERR_LIMIT, "macro calls nested deeper than %d", JINJA_MAX_CALL_DEPTH);
  return DF_OK;
}

static df_status call_macro(df_jctx *c, const df_jmacro *m, const df_jargs *args, df_jv *out) {
  df_jbuf b, *was = c->capture;
  df_jscope *scope = c->scope, *inner;
  DF_TRY(enter_call(c));
  DF_TRY(df_jx_scope_new(c, m->scope, &inner));
  c->scope = inner;
  df_jbuf_init(&b, &c->arena);
  c->capture = &b;
  df_status s = bind_macro(c, m, args, inner);
  if (s == DF_OK) s = df_jx_exec(c, m->node->list);
  c->capture = was;
  c->scope = scope;
  c->calls--;
  if (s != DF_OK) return s;
  out->t = JT_STR;
  return df_jbuf_take(&b, &out->u.s, c->err);
}

/* ---- loops ---- */

static df_status call_loop(df_jctx *c, df_jloop *l, const df_jargs *args, df_jv *out) {
  df_jbuf b, *was = c->capture;
  df_jv arg[JARGS_MAX];
  if (l->node->op != 1) return JX_FAIL(c, "the loop is not recursive");
  DF_TRY(df_jx_bind(c, "loop", "iterable", args, arg));
  if (arg[0].t == JT_UNSET) return JX_FAIL(c, "\"loop\" needs an argument");
  DF_TRY(enter_call(c));
  df_jbuf_init(&b, &c->arena);
  c->capture = &b;
  df_status s = df_jx_loop_run(c, l->node, l->outer, arg[0], l->level + 1);
  c->capture = was;
  c->calls--;
  if (s != DF_OK) return s;
  out->t = JT_STR;
  return df_jbuf_take(&b, &out->u.s, c->err);
}

static df_status loop_length(df_jctx *c, df_jloop *l, int64_t *out) {
  bool have;
  if (l->node->c) DF_TRY(df_jx_loop_fetch(c, l, UINT32_MAX - 1, &have));
  *out = l->node->c ? l->n_items : l->n_src;
  return DF_OK;
}

static df_status loop_neighbour(df_jctx *c, df_jloop *l, bool next, const df_jstr *name, df_jv *out) {
  bool have = l->index0 > 0;
  if (next) DF_TRY(df_jx_loop_fetch(c, l, l->index0 + 1, &have));
  *out = have ? l->items[next ? l->index0 + 1 : l->index0 - 1] : df_jv_undef(name, JU_ATTR_OTHER);
  return DF_OK;
}

df_status df_jx_loop_attr(df_jctx *c, df_jloop *l, const df_jstr *name, df_jv *out) {
  static const char *const names[] = {"index", "index0", "first",    "last",     "length", "revindex", "revindex0",
                                      "depth", "depth0", "previtem", "nextitem", "cycle",  "changed",  NULL};
  int k = 0;
  int64_t n = 0, i = l->index0;
  bool more;
  while (names[k] && !df_jstr_is(name, names[k])) k++;
  if (k >= 4 && k <= 6) DF_TRY(loop_length(c, l, &n));
  switch (k) {
    case 0: *out = df_jv_int(i + 1); return DF_OK;
    case 1: *out = df_jv_int(i); return DF_OK;
    case 2: *out = df_jv_bool(i == 0); return DF_OK;
    case 3:
      DF_TRY(df_jx_loop_fetch(c, l, l->index0 + 1, &more));
      *out = df_jv_bool(!more);
      return DF_OK;
    case 4: *out = df_jv_int(n); return DF_OK;
    case 5: *out = df_jv_int(n - i); return DF_OK;
    case 6: *out = df_jv_int(n - i - 1); return DF_OK;
    case 7: *out = df_jv_int(l->level + 1); return DF_OK;
    case 8: *out = df_jv_int(l->level); return DF_OK;
    case 9:
    case 10: return loop_neighbour(c, l, k == 10, name, out);
    case 11:
    case 12: {
      df_jmethod *m;
      DF_TRY(df_jarena_get(&c->arena, sizeof *m, &m, c->err));
      *m = (df_jmethod){.self = {.t = JT_LOOP, .u.p = l}, .id = k};
      *out = (df_jv){.t = JT_METHOD, .u.p = m};
      return DF_OK;
    }
    default: *out = df_jv_undef(name, JU_ATTR_OTHER); return DF_OK;
  }
}

static df_status loop_method(df_jctx *c, df_jloop *l, int id, const df_jargs *args, df_jv *out) {
  if (args->nkw) return JX_FAIL(c, "loop methods take no keyword arguments");
  if (id == 11) {
    if (args->npos == 0) return JX_FAIL(c, "\"cycle\" needs arguments");
    *out = args->pos[l->index0 % args->npos];
    return DF_OK;
  }
  df_jlist *now;
  bool same = false;
  DF_TRY(df_jlist_new(&c->arena, args->npos, JK_TUPLE, &now, c->err));
  for (uint32_t i = 0; i < args->npos; i++) now->items[now->n++] = args->pos[i];
  if (l->has_changed) DF_TRY(df_jx_equal(c, l->changed, df_jv_list(now), &same));
  l->changed = df_jv_list(now);
  l->has_changed = true;
  *out = df_jv_bool(!same);
  return DF_OK;
}

/* ---- cycler and joiner ---- */

static df_status object_call(df_jctx *c, df_jobj *o, const df_jargs *args, df_jv *out) {
  if (o->is_cycler || args->npos || args->nkw) return JX_FAIL(c, "cannot call this object so");
  if (o->pos++ == 0)
    DF_TRY(df_jx_str(c, "", 0, out));
  else
    *out = o->sep;
  return DF_OK;
}

/* ---- global functions ---- */

static df_status fn_range(df_jctx *c, const df_jargs *args, df_jv *out) {
  int64_t r[3] = {0, 0, 1};
  if (args->nkw || args->npos < 1 || args->npos > 3) return JX_FAIL(c, "\"range\" takes one to three arguments");
  for (uint32_t i = 0; i < args->npos; i++) {
    df_jv v = args->pos[i];
    if (v.t == JT_UNDEF) return df_jx_undefined(c, v);
    if (v.t != JT_INT && v.t != JT_BOOL) return JX_FAIL(c, "\"range\" takes integers, not a %s", df_jx_type(v));
    r[args->npos == 1 ? 1 : i] = v.t == JT_INT ? v.u.i : v.u.b;
  }
  if (r[2] == 0) return JX_FAIL(c, "the step of \"range\" is zero");
  uint64_t span = r[2] > 0 ? (r[1] > r[0] ? (uint64_t)r[1] - (uint64_t)r[0] : 0)
                           : (r[0] > r[1] ? (uint64_t)r[0] - (uint64_t)r[1] : 0);
  uint64_t step = r[2] > 0 ? (uint64_t)r[2] : 0 - (uint64_t)r[2], n = span / step + (span % step != 0);
  if (n > JINJA_MAX_RANGE) return DF_FAIL(c->err, DF_ERR_LIMIT, "\"range\" of more than %d elements", JINJA_MAX_RANGE);
  df_jlist *l;
  DF_TRY(df_jx_items(c, n));
  DF_TRY(df_jlist_new(&c->arena, (size_t)n, JK_RANGE, &l, c->err));
  for (uint64_t i = 0; i < n; i++) l->items[i] = df_jv_int((int64_t)((uint64_t)r[0] + i * (uint64_t)r[2]));
  l->n = (uint32_t)n;
  memcpy(l->range, r, sizeof r);
  *out = df_jv_list(l);
  return DF_OK;
}

/* dict(pairs or map, **kw) */
static df_status build_map(df_jctx *c, const df_jargs *args, df_jmap **out) {
  df_jmap *m;
  if (args->npos > 1) return JX_FAIL(c, "expected at most one positional argument");
  DF_TRY(df_jmap_new(&c->arena, 0, &m, c->err));
  if (args->npos && args->pos[0].t == JT_MAP) {
    const df_jmap *from = args->pos[0].u.m;
    DF_TRY(df_jx_items(c, from->n));
    for (uint32_t i = 0; i < from->n; i++) DF_TRY(df_jmap_put(&c->arena, m, from->e[i].key, from->e[i].val, c->err));
  } else if (args->npos) {
    df_jv *items, *pair;
    uint32_t n, two;
    DF_TRY(df_jx_elements(c, args->pos[0], &items, &n));
    DF_TRY(df_jx_step(c, n));
    for (uint32_t i = 0; i < n; i++) {
      DF_TRY(df_jx_elements(c, items[i], &pair, &two));
      if (two != 2) return JX_FAIL(c, "expected pairs");
      DF_TRY(df_jmap_put(&c->arena, m, pair[0], pair[1], c->err));
    }
  }
  for (uint32_t i = 0; i < args->nkw; i++)
    DF_TRY(df_jmap_put(&c->arena, m, df_jv_str(args->kw[i].name), args->kw[i].v, c->err));
  *out = m;
  return DF_OK;
}

static df_status fn_dict(df_jctx *c, const df_jargs *args, df_jv *out) {
  out->t = JT_MAP;
  return build_map(c, args, &out->u.m);
}

static df_status fn_namespace(df_jctx *c, const df_jargs *args, df_jv *out) {
  out->t = JT_NS;
  return build_map(c, args, &out->u.m);
}

static df_status fn_raise(df_jctx *c, const df_jargs *args, df_jv *out) {
  df_jv arg[JARGS_MAX];
  const df_jstr *s;
  (void)out;
  DF_TRY(df_jx_bind(c, "raise_exception", "message", args, arg));
  if (arg[0].t == JT_UNSET) return JX_FAIL(c, "\"raise_exception\" needs a message");
  DF_TRY(df_jx_to_str(c, arg[0], &s));
  return JX_FAIL(c, "%s", s->data);
}

static df_status fn_strftime(df_jctx *c, const df_jargs *args, df_jv *out) {
  df_jv arg[JARGS_MAX];
  DF_TRY(df_jx_bind(c, "strftime_now", "format", args, arg));
  if (arg[0].t != JT_STR) return JX_FAIL(c, "\"strftime_now\" needs a format string");
  return df_jx_strftime(c, arg[0].u.s, out);
}

static df_status new_object(df_jctx *c, df_jobj from, df_jv *out) {
  df_jobj *o;
  DF_TRY(df_jarena_get(&c->arena, sizeof *o, &o, c->err));
  *o = from;
  *out = (df_jv){.t = JT_OBJ, .u.p = o};
  return DF_OK;
}

static df_status fn_cycler(df_jctx *c, const df_jargs *args, df_jv *out) {
  df_jlist *l;
  if (args->npos == 0 || args->nkw) return JX_FAIL(c, "\"cycler\" needs at least one value");
  DF_TRY(df_jlist_new(&c->arena, args->npos, JK_LIST, &l, c->err));
  for (uint32_t i = 0; i < args->npos; i++) l->items[l->n++] = args->pos[i];
  return new_object(c, (df_jobj){.is_cycler = true, .items = l}, out);
}

static df_status fn_joiner(df_jctx *c, const df_jargs *args, df_jv *out) {
  df_jv arg[JARGS_MAX];
  DF_TRY(df_jx_bind(c, "joiner", "sep", args, arg));
  if (arg[0].t == JT_UNSET) DF_TRY(df_jx_str(c, ", ", 2, &arg[0]));
  return new_object(c, (df_jobj){.sep = arg[0]}, out);
}

static const struct {
  const char *name;
  df_status (*fn)(df_jctx *c, const df_jargs *args, df_jv *out);
} functions[] = {{"range", fn_range},           {"namespace", fn_namespace}, {"raise_exception", fn_raise},
                 {"strftime_now", fn_strftime}, {"dict", fn_dict},           {"cycler", fn_cycler},
                 {"joiner", fn_joiner}};

int df_jx_function_find(const df_jstr *name) {
  for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
    if (df_jstr_is(name, functions[i].name)) return (int)i;
  return -1;
}

df_status df_jx_function(df_jctx *c, int index, const df_jargs *args, df_jv *out) {
  return functions[index].fn(c, args, out);
}

df_status df_jx_call(df_jctx *c, df_jv f, const df_jargs *args, df_jv *out) {
  switch (f.t) {
    case JT_UNDEF: return df_jx_undefined(c, f);
    case JT_MACRO: return call_macro(c, f.u.p, args, out);
    case JT_LOOP: return call_loop(c, f.u.p, args, out);
    case JT_FUNC: return df_jx_function(c, (int)f.u.i, args, out);
    case JT_OBJ: return object_call(c, f.u.p, args, out);
    case JT_METHOD: {
      const df_jmethod *m = f.u.p;
      if (m->self.t == JT_LOOP) return loop_method(c, m->self.u.p, m->id, args, out);
      return df_jx_method_call(c, m, args, out);
    }
    default: return JX_FAIL(c, "a %s cannot be called", df_jx_type(f));
  }
}
