/* text/jinja_expr.c - parser of expressions. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "text/jinja_filters.h"
#include "text/jinja_number.h"
#include "text/jinja_parse.h"

/* ---- literals ---- */

static int hex_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  c = (char)(c | 0x20);
  return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* \xHH, \uHHHH, \UHHHHHHHH behind the letter at s[*i]. */
static df_status hex_escape(df_jparser *p, const char *s, size_t n, size_t *i, df_jbuf *b) {
  int count = s[*i] == 'x' ? 2 : s[*i] == 'u' ? 4 : 8;
  uint32_t cp = 0;
  for (int k = 1; k <= count; k++) {
    int h = *i + (size_t)k < n ? hex_value(s[*i + (size_t)k]) : -1;
    if (h < 0 || cp > 0x10FFFF) return df_jparse_fail(p, "bad \\%c escape in a string", s[*i]);
    cp = cp << 4 | (uint32_t)h;
  }
  if (cp > 0x10FFFF || (cp >= 0xD800 && cp < 0xE000)) return df_jparse_fail(p, "bad \\%c escape in a string", s[*i]);
  *i += (size_t)count + 1;
  return df_jbuf_put_cp(b, cp, p->err);
}

static df_status escape(df_jparser *p, const char *s, size_t n, size_t *i, df_jbuf *b) {
  static const char from[] = "\\'\"abfnrtv", to[] = "\\'\"\a\b\f\n\r\t\v";
  char c = s[*i];
  if (c == 'x' || c == 'u' || c == 'U') return hex_escape(p, s, n, i, b);
  if (c == 'N') return df_jparse_fail(p, "\\N escapes are not supported");
  if (c == '\n') {
    (*i)++;
    return DF_OK;
  }
  if (c >= '0' && c <= '7') {
    uint32_t v = 0;
    for (int k = 0; k < 3 && *i < n && s[*i] >= '0' && s[*i] <= '7'; k++) v = v * 8 + (uint32_t)(s[(*i)++] - '0');
    return df_jbuf_put_cp(b, v, p->err);
  }
  const char *f = c ? strchr(from, c) : NULL;
  if (f) {
    (*i)++;
    return df_jbuf_put(b, &to[f - from], 1, p->err);
  }
  return df_jbuf_put(b, "\\", 1, p->err); /* an unknown escape stays as it is */
}

static df_status parse_string(df_jparser *p, df_jnode *node) {
  df_jbuf b;
  df_jbuf_init(&b, p->a);
  while (p->tok->type == TK_STRING) {
    const char *s = p->src + p->tok->off + 1;
    size_t n = p->tok->len - 2, i = 0;
    while (i < n) {
      size_t run = i;
      while (run < n && s[run] != '\\') run++;
      DF_TRY(df_jbuf_put(&b, s + i, run - i, p->err));
      i = run;
      if (i == n) break;
      i++;
      DF_TRY(escape(p, s, n, &i, &b));
    }
    p->tok++;
  }
  const df_jstr *str;
  DF_TRY(df_jbuf_take(&b, &str, p->err));
  /* The string is new and private here, and read-only from now on: the one place where its hash may be stored. */
  ((df_jstr *)(uintptr_t)str)->hash = df_jstr_hash(str);
  node->val = df_jv_str(str);
  return DF_OK;
}

static df_status parse_number(df_jparser *p, df_jnode *node) {
  const df_jtoken *t = p->tok;
  if (!df_jnumber_literal(p->src + t->off, t->len, t->type == TK_FLOAT, &node->val))
    return df_jparse_fail(p, "number \"%.*s\" is out of range", (int)t->len, p->src + t->off);
  p->tok++;
  return DF_OK;
}

/* ---- primary expressions ---- */

static df_status parse_list(df_jparser *p, df_jnode *node) {
  p->tok++;
  node->kind = JN_LIST;
  for (df_jnode **tail = &node->list; p->tok->type != TK_RBRACKET; tail = &(*tail)->next) {
    if (node->list) {
      DF_TRY(df_jparse_expect(p, TK_COMMA));
      if (p->tok->type == TK_RBRACKET) break;
    }
    DF_TRY(df_jparse_expr(p, true, tail));
  }
  return df_jparse_expect(p, TK_RBRACKET);
}

static df_status parse_dict(df_jparser *p, df_jnode *node) {
  p->tok++;
  node->kind = JN_DICT;
  for (df_jnode **tail = &node->list; p->tok->type != TK_RBRACE; tail = &(*tail)->next) {
    if (node->list) {
      DF_TRY(df_jparse_expect(p, TK_COMMA));
      if (p->tok->type == TK_RBRACE) break;
    }
    DF_TRY(df_jparse_node(p, JN_ARG, tail));
    DF_TRY(df_jparse_expr(p, true, &(*tail)->a));
    DF_TRY(df_jparse_expect(p, TK_COLON));
    DF_TRY(df_jparse_expr(p, true, &(*tail)->b));
  }
  return df_jparse_expect(p, TK_RBRACE);
}

static void note_use(df_jparser *p, const df_jstr *name) {
  if (df_jstr_is(name, "varargs"))
    p->uses |= JUSE_VARARGS;
  else if (df_jstr_is(name, "kwargs"))
    p->uses |= JUSE_KWARGS;
  else if (df_jstr_is(name, "caller"))
    p->uses |= JUSE_CALLER;
}

static df_status parse_name(df_jparser *p, df_jnode *node) {
  const df_jtoken *t = p->tok;
  if (df_jparse_is_name(p, t, "true") || df_jparse_is_name(p, t, "True")) {
    node->val = df_jv_bool(true);
  } else if (df_jparse_is_name(p, t, "false") || df_jparse_is_name(p, t, "False")) {
    node->val = df_jv_bool(false);
  } else if (df_jparse_is_name(p, t, "none") || df_jparse_is_name(p, t, "None")) {
    node->val = df_jv_none();
  } else {
    node->kind = JN_NAME;
    DF_TRY(df_jparse_intern(p, t, &node->name));
    note_use(p, node->name);
  }
  p->tok++;
  return DF_OK;
}

static df_status parse_primary(df_jparser *p, df_jnode **out) {
  df_jnode *node;
  if (p->tok->type == TK_LPAREN) {
    p->tok++;
    DF_TRY(df_jparse_tuple(p, true, true, out));
    return df_jparse_expect(p, TK_RPAREN);
  }
  DF_TRY(df_jparse_node(p, JN_CONST, &node));
  switch (p->tok->type) {
    case TK_NAME: DF_TRY(parse_name(p, node)); break;
    case TK_STRING: DF_TRY(parse_string(p, node)); break;
    case TK_INT:
    case TK_FLOAT: DF_TRY(parse_number(p, node)); break;
    case TK_LBRACKET: DF_TRY(parse_list(p, node)); break;
    case TK_LBRACE: DF_TRY(parse_dict(p, node)); break;
    default: return df_jparse_unexpected(p);
  }
  *out = node;
  return DF_OK;
}

/* ---- postfix: attributes, subscripts, calls, filters, tests ---- */

static df_status parse_arg(df_jparser *p, df_jnode *arg, int *stage) {
  if (df_jparse_skip(p, TK_POW)) {
    arg->op = JARG_STAR2;
  } else if (df_jparse_skip(p, TK_MUL)) {
    arg->op = JARG_STAR;
  } else if (p->tok->type == TK_NAME && p->tok[1].type == TK_ASSIGN) {
    arg->op = JARG_KEYWORD;
    DF_TRY(df_jparse_intern(p, p->tok, &arg->name));
    p->tok += 2;
  }
  static const int order[] = {[JARG_POS] = 0, [JARG_KEYWORD] = 1, [JARG_STAR] = 2, [JARG_STAR2] = 3};
  int mine = order[arg->op];
  /* Positional, keyword, one *list, one **map; keywords may also stand behind *list. */
  if (mine < *stage && !(arg->op == JARG_KEYWORD && *stage == 2))
    return df_jparse_fail(p, "invalid order of call arguments");
  if (mine == *stage && mine >= 2) return df_jparse_fail(p, "invalid order of call arguments");
  if (mine > *stage) *stage = mine;
  return df_jparse_expr(p, true, &arg->a);
}

static df_status parse_args(df_jparser *p, df_jnode **list) {
  DF_TRY(df_jparse_expect(p, TK_LPAREN));
  int stage = 0;
  bool first = true;
  for (df_jnode **tail = list; p->tok->type != TK_RPAREN; tail = &(*tail)->next, first = false) {
    if (!first) {
      DF_TRY(df_jparse_expect(p, TK_COMMA));
      if (p->tok->type == TK_RPAREN) break;
    }
    DF_TRY(df_jparse_node(p, JN_ARG, tail));
    DF_TRY(parse_arg(p, *tail, &stage));
  }
  return df_jparse_expect(p, TK_RPAREN);
}

/* Inside [ ]: an index or a slice. */
static df_status parse_subscript(df_jparser *p, df_jnode *node) {
  node->kind = JN_ITEM;
  if (p->tok->type != TK_COLON) {
    DF_TRY(df_jparse_expr(p, true, &node->b));
    if (p->tok->type == TK_COMMA) return df_jparse_fail(p, "more than one index");
    if (p->tok->type != TK_COLON) return df_jparse_expect(p, TK_RBRACKET);
  }
  node->kind = JN_SLICE;
  p->tok++;
  if (p->tok->type != TK_COLON && p->tok->type != TK_RBRACKET) DF_TRY(df_jparse_expr(p, true, &node->c));
  if (df_jparse_skip(p, TK_COLON) && p->tok->type != TK_RBRACKET) DF_TRY(df_jparse_expr(p, true, &node->d));
  return df_jparse_expect(p, TK_RBRACKET);
}

static df_status parse_dot(df_jparser *p, df_jnode *node) {
  if (p->tok->type == TK_INT) {
    node->kind = JN_ITEM;
    DF_TRY(df_jparse_node(p, JN_CONST, &node->b));
    return parse_number(p, node->b);
  }
  if (p->tok->type != TK_NAME) return df_jparse_fail(p, "expected a name or number behind \".\"");
  node->kind = JN_ATTR;
  DF_TRY(df_jparse_intern(p, p->tok, &node->name));
  p->tok++;
  return DF_OK;
}

static df_status parse_postfix(df_jparser *p, df_jnode **io) {
  for (;;) {
    df_jtok t = (df_jtok)p->tok->type;
    if (t != TK_DOT && t != TK_LBRACKET && t != TK_LPAREN) return DF_OK;
    df_jnode *node;
    DF_TRY(df_jparse_node(p, JN_CALL, &node));
    node->a = *io;
    if (t == TK_LPAREN) {
      DF_TRY(parse_args(p, &node->list));
    } else {
      p->tok++;
      if (t == TK_DOT)
        DF_TRY(parse_dot(p, node));
      else
        DF_TRY(parse_subscript(p, node));
    }
    *io = node;
  }
}

/* Dotted names exist in the grammar, but no table holds one. */
static df_status parse_dotted(df_jparser *p, const df_jstr **out) {
  const df_jtoken *t = p->tok;
  DF_TRY(df_jparse_expect(p, TK_NAME));
  while (p->tok->type == TK_DOT) {
    p->tok++;
    DF_TRY(df_jparse_expect(p, TK_NAME));
  }
  df_jtoken whole = *t;
  whole.len = p->tok[-1].off + p->tok[-1].len - t->off;
  return df_jparse_intern(p, &whole, out);
}

df_status df_jparse_filters(df_jparser *p, df_jnode *node, bool start, df_jnode **out) {
  while (start || p->tok->type == TK_PIPE) {
    if (!start) p->tok++;
    start = false;
    df_jnode *f;
    DF_TRY(df_jparse_node(p, JN_FILTER, &f));
    DF_TRY(parse_dotted(p, &f->name));
    f->fn = (int16_t)df_jfilter_find(f->name);
    if (f->fn < 0 && !p->soft) return df_jparse_fail(p, "unknown filter \"%s\"", f->name->data);
    f->a = node;
    if (p->tok->type == TK_LPAREN) DF_TRY(parse_args(p, &f->list));
    node = f;
  }
  *out = node;
  return DF_OK;
}

/* Whether the current token begins the bracketless argument of a test, as in "is divisibleby 3". */
static bool test_arg_follows(const df_jparser *p) {
  const df_jtoken *t = p->tok;
  switch (t->type) {
    case TK_STRING:
    case TK_INT:
    case TK_FLOAT:
    case TK_LBRACKET:
    case TK_LBRACE: return true;
    case TK_NAME:
      return !df_jparse_is_name(p, t, "else") && !df_jparse_is_name(p, t, "or") && !df_jparse_is_name(p, t, "and");
    default: return false;
  }
}

static df_status parse_test(df_jparser *p, df_jnode **io) {
  df_jnode *node;
  p->tok++;
  DF_TRY(df_jparse_node(p, JN_TEST, &node));
  node->a = *io;
  node->op = df_jparse_skip_name(p, "not");
  DF_TRY(parse_dotted(p, &node->name));
  node->fn = (int16_t)df_jtest_find(node->name);
  if (node->fn < 0 && !p->soft) return df_jparse_fail(p, "unknown test \"%s\"", node->name->data);
  if (p->tok->type == TK_LPAREN) {
    DF_TRY(parse_args(p, &node->list));
  } else if (test_arg_follows(p)) {
    if (df_jparse_is_name(p, p->tok, "is")) return df_jparse_fail(p, "tests cannot be chained with \"is\"");
    DF_TRY(df_jparse_node(p, JN_ARG, &node->list));
    DF_TRY(parse_primary(p, &node->list->a));
    DF_TRY(parse_postfix(p, &node->list->a));
  }
  *io = node;
  return DF_OK;
}

static df_status parse_unary(df_jparser *p, bool filters, df_jnode **out) {
  df_jnode *node;
  if (p->tok->type == TK_SUB || p->tok->type == TK_ADD) {
    DF_TRY(df_jparse_enter(p));
    DF_TRY(df_jparse_node(p, JN_UNARY, &node));
    node->op = (uint8_t)p->tok->type;
    p->tok++;
    DF_TRY(parse_unary(p, false, &node->a));
    p->depth--;
  } else {
    DF_TRY(parse_primary(p, &node));
  }
  DF_TRY(parse_postfix(p, &node));
  while (filters) {
    if (p->tok->type == TK_PIPE) {
      DF_TRY(df_jparse_filters(p, node, false, &node));
    } else if (df_jparse_is_name(p, p->tok, "is")) {
      DF_TRY(parse_test(p, &node));
    } else if (p->tok->type == TK_LPAREN) { /* a call of what a filter returned */
      DF_TRY(parse_postfix(p, &node));
    } else {
      break;
    }
  }
  *out = node;
  return DF_OK;
}

/* ---- operators ---- */

/* Binding strength: 1 + -, 2 ~, 3 * / // %, 4 ** (left-associative too). */
static int strength(uint32_t type) {
  switch (type) {
    case TK_ADD:
    case TK_SUB: return 1;
    case TK_TILDE: return 2;
    case TK_MUL:
    case TK_DIV:
    case TK_FLOORDIV:
    case TK_MOD: return 3;
    case TK_POW: return 4;
    default: return 0;
  }
}

static df_status parse_math(df_jparser *p, int level, df_jnode **out);

static df_status parse_concat(df_jparser *p, df_jnode **out) {
  df_jnode *first, *node;
  DF_TRY(parse_math(p, 3, &first));
  *out = first;
  if (p->tok->type != TK_TILDE) return DF_OK;
  DF_TRY(df_jparse_node(p, JN_CONCAT, &node));
  node->list = first;
  for (df_jnode **tail = &first->next; df_jparse_skip(p, TK_TILDE); tail = &(*tail)->next)
    DF_TRY(parse_math(p, 3, tail));
  *out = node;
  return DF_OK;
}

static df_status parse_math(df_jparser *p, int level, df_jnode **out) {
  df_jnode *left;
  if (level > 4) return parse_unary(p, true, out);
  if (level == 2) return parse_concat(p, out);
  DF_TRY(parse_math(p, level + 1, &left));
  while (strength(p->tok->type) == level) {
    df_jnode *node;
    DF_TRY(df_jparse_node(p, JN_BINARY, &node));
    node->op = (uint8_t)p->tok->type;
    node->a = left;
    p->tok++;
    DF_TRY(parse_math(p, level + 1, &node->b));
    left = node;
  }
  *out = left;
  return DF_OK;
}

/* The comparison operator at the current token, or 0; moves behind it. */
static uint8_t take_compare(df_jparser *p) {
  uint32_t t = p->tok->type;
  if (t >= TK_EQ && t <= TK_LE) {
    p->tok++;
    return (uint8_t)t;
  }
  if (df_jparse_skip_name(p, "in")) return JOP_IN;
  if (df_jparse_is_name(p, p->tok, "not") && df_jparse_is_name(p, p->tok + 1, "in")) {
    p->tok += 2;
    return JOP_NOT_IN;
  }
  return 0;
}

static df_status parse_compare(df_jparser *p, df_jnode **out) {
  df_jnode *node = NULL, *left;
  DF_TRY(parse_math(p, 1, &left));
  df_jnode **tail = NULL;
  for (uint8_t op; (op = take_compare(p)) != 0; tail = &(*tail)->next) {
    if (!node) {
      DF_TRY(df_jparse_node(p, JN_COMPARE, &node));
      node->a = left;
      tail = &node->list;
    }
    DF_TRY(df_jparse_node(p, JN_OPERAND, tail));
    (*tail)->op = op;
    DF_TRY(parse_math(p, 1, &(*tail)->a));
  }
  *out = node ? node : left;
  return DF_OK;
}

static df_status parse_not(df_jparser *p, df_jnode **out) {
  if (!df_jparse_is_name(p, p->tok, "not")) return parse_compare(p, out);
  df_jnode *node;
  DF_TRY(df_jparse_enter(p));
  DF_TRY(df_jparse_node(p, JN_NOT, &node));
  p->tok++;
  DF_TRY(parse_not(p, &node->a));
  p->depth--;
  *out = node;
  return DF_OK;
}

static df_status parse_and(df_jparser *p, df_jnode **out) {
  DF_TRY(parse_not(p, out));
  while (df_jparse_is_name(p, p->tok, "and")) {
    df_jnode *node;
    DF_TRY(df_jparse_node(p, JN_AND, &node));
    p->tok++;
    node->a = *out;
    DF_TRY(parse_not(p, &node->b));
    *out = node;
  }
  return DF_OK;
}

static df_status parse_or(df_jparser *p, df_jnode **out) {
  DF_TRY(parse_and(p, out));
  while (df_jparse_is_name(p, p->tok, "or")) {
    df_jnode *node;
    DF_TRY(df_jparse_node(p, JN_OR, &node));
    p->tok++;
    node->a = *out;
    DF_TRY(parse_and(p, &node->b));
    *out = node;
  }
  return DF_OK;
}

df_status df_jparse_expr(df_jparser *p, bool cond, df_jnode **out) {
  DF_TRY(df_jparse_enter(p));
  /* Whether this becomes an inline if shows only behind its first part, whose filters may then be unknown. */
  df_jnode *first;
  DF_TRY(parse_or(p, &first));
  while (cond && df_jparse_is_name(p, p->tok, "if")) {
    df_jnode *node;
    bool soft = p->soft;
    DF_TRY(df_jparse_node(p, JN_COND, &node));
    p->tok++;
    p->soft = true;
    DF_TRY(parse_or(p, &node->a));
    node->b = first;
    if (df_jparse_skip_name(p, "else")) DF_TRY(df_jparse_expr(p, true, &node->c));
    p->soft = soft;
    first = node;
  }
  p->depth--;
  *out = first;
  return DF_OK;
}

static bool tuple_ends(const df_jparser *p) {
  uint32_t t = p->tok->type;
  return t == TK_RPAREN || t == TK_VAR_END || t == TK_BLOCK_END;
}

df_status df_jparse_tuple(df_jparser *p, bool cond, bool brackets, df_jnode **out) {
  df_jnode *node = NULL;
  if (tuple_ends(p)) {
    if (!brackets) return df_jparse_unexpected(p);
    return df_jparse_node(p, JN_TUPLE, out);
  }
  df_jnode *first;
  DF_TRY(df_jparse_expr(p, cond, &first));
  if (p->tok->type == TK_COMMA) {
    DF_TRY(df_jparse_node(p, JN_TUPLE, &node));
    node->list = first;
    for (df_jnode **tail = &first->next; df_jparse_skip(p, TK_COMMA) && !tuple_ends(p); tail = &(*tail)->next)
      DF_TRY(df_jparse_expr(p, cond, tail));
  }
  *out = node ? node : first;
  return DF_OK;
}
