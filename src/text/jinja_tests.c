/* text/jinja_tests.c - the tests behind "is". */
#include <string.h>

#include "text/jinja_filters.h"
#include "text/jinja_lex.h"

typedef enum kind {
  T_DEFINED,
  T_UNDEFINED,
  T_NONE,
  T_BOOLEAN,
  T_TRUE,
  T_FALSE,
  T_INTEGER,
  T_FLOAT,
  T_NUMBER,
  T_STRING,
  T_MAPPING,
  T_ITERABLE,
  T_SEQUENCE,
  T_CALLABLE,
  T_ODD,
  T_EVEN,
  T_LOWER,
  T_UPPER,
  T_FILTER,
  T_TEST,
  T_ESCAPED,
  T_WITH_ARG, /* from here on one argument */
  T_DIVISIBLE = T_WITH_ARG,
  T_SAME,
  T_IN,
  T_EQ,
  T_NE,
  T_GT,
  T_GE,
  T_LT,
  T_LE
} kind;

static const struct {
  const char *name;
  uint8_t kind;
} tests[] = {
    {"defined", T_DEFINED},
    {"undefined", T_UNDEFINED},
    {"none", T_NONE},
    {"boolean", T_BOOLEAN},
    {"true", T_TRUE},
    {"false", T_FALSE},
    {"integer", T_INTEGER},
    {"float", T_FLOAT},
    {"number", T_NUMBER},
    {"string", T_STRING},
    {"mapping", T_MAPPING},
    {"iterable", T_ITERABLE},
    {"sequence", T_SEQUENCE},
    {"callable", T_CALLABLE},
    {"odd", T_ODD},
    {"even", T_EVEN},
    {"lower", T_LOWER},
    {"upper", T_UPPER},
    {"filter", T_FILTER},
    {"test", T_TEST},
    {"escaped", T_ESCAPED},
    {"divisibleby", T_DIVISIBLE},
    {"sameas", T_SAME},
    {"in", T_IN},
    {"eq", T_EQ},
    {"==", T_EQ},
    {"equalto", T_EQ},
    {"ne", T_NE},
    {"!=", T_NE},
    {"gt", T_GT},
    {"greaterthan", T_GT},
    {">", T_GT},
    {"ge", T_GE},
    {">=", T_GE},
    {"lt", T_LT},
    {"lessthan", T_LT},
    {"<", T_LT},
    {"le", T_LE},
    {"<=", T_LE},
};

int df_jtest_find(const df_jstr *name) {
  for (size_t i = 0; i < sizeof tests / sizeof *tests; i++)
    if (df_jstr_is(name, tests[i].name)) return (int)i;
  return -1;
}

static bool is_sequence(df_jv v) {
  if (v.t == JT_LIST) return v.u.l->kind <= JK_RANGE;
  return v.t == JT_STR || v.t == JT_MAP || v.t == JT_UNDEF;
}

static bool is_callable(df_jv v) {
  if (v.t == JT_OBJ) return !((const df_jobj *)v.u.p)->is_cycler;
  return v.t == JT_MACRO || v.t == JT_FUNC || v.t == JT_METHOD || v.t == JT_LOOP || v.t == JT_UNDEF;
}

/* in % by == want */
static df_status remainder_is(df_jctx *c, df_jv in, df_jv by, int64_t want, bool *out) {
  df_jv r;
  DF_TRY(df_jx_binary(c, TK_MOD, in, by, &r));
  return df_jx_equal(c, r, df_jv_int(want), out);
}

static df_status is_case(df_jctx *c, df_jv in, const char *method, bool *out) {
  df_jv v = {.t = JT_STR}, name;
  DF_TRY(df_jx_to_str(c, in, &v.u.s));
  DF_TRY(df_jx_str(c, method, strlen(method), &name));
  df_jmethod m = {.self = v, .id = df_jx_method_find(v, name.u.s)};
  df_jargs none = {0};
  DF_TRY(df_jx_method_call(c, &m, &none, &v));
  *out = v.u.b;
  return DF_OK;
}

static df_status unary_test(df_jctx *c, kind k, df_jv in, bool *out) {
  switch (k) {
    case T_DEFINED: *out = in.t != JT_UNDEF; return DF_OK;
    case T_UNDEFINED: *out = in.t == JT_UNDEF; return DF_OK;
    case T_NONE: *out = in.t == JT_NONE; return DF_OK;
    case T_BOOLEAN: *out = in.t == JT_BOOL; return DF_OK;
    case T_TRUE: *out = in.t == JT_BOOL && in.u.b; return DF_OK;
    case T_FALSE: *out = in.t == JT_BOOL && !in.u.b; return DF_OK;
    case T_INTEGER: *out = in.t == JT_INT || in.t == JT_BIG; return DF_OK;
    case T_FLOAT: *out = in.t == JT_FLOAT; return DF_OK;
    case T_NUMBER: *out = in.t == JT_INT || in.t == JT_BIG || in.t == JT_FLOAT || in.t == JT_BOOL; return DF_OK;
    case T_STRING: *out = in.t == JT_STR; return DF_OK;
    case T_MAPPING: *out = in.t == JT_MAP; return DF_OK;
    case T_ITERABLE: *out = is_sequence(in) || in.t == JT_LIST || in.t == JT_LOOP; return DF_OK;
    case T_SEQUENCE: *out = is_sequence(in); return DF_OK;
    case T_CALLABLE: *out = is_callable(in); return DF_OK;
    case T_ODD: return remainder_is(c, in, df_jv_int(2), 1, out);
    case T_EVEN: return remainder_is(c, in, df_jv_int(2), 0, out);
    case T_LOWER: return is_case(c, in, "islower", out);
    case T_UPPER: return is_case(c, in, "isupper", out);
    case T_FILTER: *out = in.t == JT_STR && df_jfilter_find(in.u.s) >= 0; return DF_OK;
    case T_TEST: *out = in.t == JT_STR && df_jtest_find(in.u.s) >= 0; return DF_OK;
    default: *out = false; return DF_OK;
  }
}

static bool same_as(df_jv a, df_jv b) {
  if (a.t != b.t) return false;
  if (a.t == JT_LIST) return a.u.l == b.u.l;
  return a.t == JT_MAP ? a.u.m == b.u.m : df_jv_key_eq(a, b);
}

static df_status binary_test(df_jctx *c, kind k, df_jv in, df_jv arg, bool *out) {
  switch (k) {
    case T_DIVISIBLE: return remainder_is(c, in, arg, 0, out);
    case T_SAME: *out = same_as(in, arg); return DF_OK;
    case T_IN: return df_jx_contains(c, arg, in, out);
    case T_EQ: return df_jx_compare(c, TK_EQ, in, arg, out);
    case T_NE: return df_jx_compare(c, TK_NE, in, arg, out);
    case T_GT: return df_jx_compare(c, TK_GT, in, arg, out);
    case T_GE: return df_jx_compare(c, TK_GE, in, arg, out);
    case T_LT: return df_jx_compare(c, TK_LT, in, arg, out);
    default: return df_jx_compare(c, TK_LE, in, arg, out);
  }
}

df_status df_jtest_call(df_jctx *c, int index, df_jv in, const df_jargs *args, bool *out) {
  kind k = (kind)tests[index].kind;
  df_jv arg[JARGS_MAX];
  if (k < T_WITH_ARG) {
    if (args->npos || args->nkw) return JX_FAIL(c, "test \"%s\" takes no argument", tests[index].name);
    return unary_test(c, k, in, out);
  }
  const char *params = k == T_DIVISIBLE ? "num" : k == T_SAME ? "other" : k == T_IN ? "seq" : "b";
  DF_TRY(df_jx_bind(c, tests[index].name, params, args, arg));
  if (arg[0].t == JT_UNSET) return JX_FAIL(c, "test \"%s\" needs an argument", tests[index].name);
  return binary_test(c, k, in, arg[0], out);
}
