/* GBNF text to a tree. */
#include <string.h>

#include "base/mem.h"
#include "base/size.h"
#include "text/grammar_ast.h"
#include "text/utf8.h"

typedef struct parser {
  const char *text, *p, *end;
  df_gast *ast;
  df_error *err;
  uint32_t nesting;
} parser;

df_status df_garray_grow(void *array, uint32_t *cap, uint32_t n, uint32_t more, size_t size, uint32_t max,
                         const char *what, df_error *err) {
  if (more > max || n > max - more)
    return DF_FAIL(err, DF_ERR_LIMIT, "could not use the grammar: more than %u %s", max, what);
  if (n + more <= *cap) return DF_OK;
  uint32_t want = DF_MAX(n + more, *cap < 32 ? 32 : *cap * 2);
  void *old, *grown;
  memcpy(&old, array, sizeof old);
  grown = df_realloc(old, want * size);
  if (!grown) return DF_OOM(err, "a grammar", want * size);
  memcpy(array, &grown, sizeof grown);
  *cap = want;
  return DF_OK;
}

#define GROW(a, field, more, max) \
  df_garray_grow(&(a)->field, &(a)->cap_##field, (a)->n_##field, (more), sizeof *(a)->field, (max), #field, p->err)

void df_gast_release(df_gast *a) {
  df_free(a->nodes);
  df_free(a->ranges);
  df_free(a->rules);
  df_free(a->bytes);
  df_map_release(&a->by_name);
  *a = (df_gast){0};
}

/* ---- places and small pieces --------------------------------------------------------------------------- */

static void position(const parser *p, const char *at, uint32_t *line, uint32_t *col) {
  *line = *col = 1;
  for (const char *q = p->text; q < at; q++) {
    if (*q == '\n') {
      *line += 1;
      *col = 1;
    } else if (((uint8_t)*q & 0xC0) != 0x80) {
      *col += 1;
    }
  }
}

static df_status fail_at(const parser *p, const char *at, df_status code, const char *why) {
  uint32_t line, col;
  position(p, at, &line, &col);
  return DF_FAIL(p->err, code, "could not read the grammar: line %u column %u: %s", line, col, why);
}

static df_status fail(const parser *p, const char *why) { return fail_at(p, p->p, DF_ERR_FORMAT, why); }

static bool at(const parser *p, char c) { return p->p < p->end && *p->p == c; }

static bool is_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
}

/* Blanks and comments; line ends only where a rule cannot end. */
static void skip_space(parser *p, bool lines) {
  while (p->p < p->end) {
    if (*p->p == '#') {
      while (p->p < p->end && *p->p != '\n' && *p->p != '\r') p->p++;
    } else if (*p->p == ' ' || *p->p == '\t' || (lines && (*p->p == '\n' || *p->p == '\r'))) {
      p->p++;
    } else {
      return;
    }
  }
}

static df_status new_node(parser *p, df_gnode node, uint32_t *out) {
  DF_TRY(GROW(p->ast, nodes, 1, DF_GRAMMAR_MAX_NODES));
  node.next = DF_GRAMMAR_NONE;
  *out = p->ast->n_nodes;
  p->ast->nodes[p->ast->n_nodes++] = node;
  return DF_OK;
}

static df_status parse_name(parser *p, df_slice *out) {
  const char *begin = p->p;
  while (p->p < p->end && is_name(*p->p)) p->p++;
  *out = (df_slice){begin, (size_t)(p->p - begin)};
  if (out->n == 0) return fail(p, "a rule name is expected here");
  if (out->n > DF_GRAMMAR_MAX_NAME) return fail_at(p, begin, DF_ERR_LIMIT, "the rule name is too long");
  return DF_OK;
}

static df_status rule_index(parser *p, df_slice name, uint32_t *out) {
  df_gast *a = p->ast;
  if (df_map_get(&a->by_name, name.p, name.n, out)) return DF_OK;
  DF_TRY(GROW(a, rules, 1, DF_GRAMMAR_MAX_RULES));
  DF_TRY(df_map_put(&a->by_name, name.p, name.n, a->n_rules, NULL, p->err));
  a->rules[a->n_rules] = (df_grule){.name = name, .body = DF_GRAMMAR_NONE};
  *out = a->n_rules++;
  return DF_OK;
}

static df_status parse_hex(parser *p, int digits, uint32_t *cp) {
  *cp = 0;
  for (int i = 0; i < digits; i++, p->p++) {
    char c = p->p < p->end ? *p->p : ' ';
    int v = c >= '0' && c <= '9'   ? c - '0'
            : c >= 'a' && c <= 'f' ? c - 'a' + 10
            : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                   : -1;
    if (v < 0) return fail(p, "a hexadecimal digit is expected here");
    *cp = *cp << 4 | (uint32_t)v;
  }
  return DF_OK;
}

/* One character of a string or class, escaped or not. */
static df_status parse_char(parser *p, uint32_t *cp) {
  const char *begin = p->p;
  if (!at(p, '\\')) {
    df_utf8_kind kind;
    size_t n = df_utf8_step(p->p, (size_t)(p->end - p->p), &kind, cp);
    if (kind != DF_UTF8_CHAR) return fail(p, "the text is not valid UTF-8");
    p->p += n;
    return DF_OK;
  }
  p->p++;
  char c = p->p < p->end ? *p->p++ : '\0';
  switch (c) {
    case 'x': DF_TRY(parse_hex(p, 2, cp)); break;
    case 'u': DF_TRY(parse_hex(p, 4, cp)); break;
    case 'U': DF_TRY(parse_hex(p, 8, cp)); break;
    case 't': *cp = '\t'; break;
    case 'r': *cp = '\r'; break;
    case 'n': *cp = '\n'; break;
    case '\\':
    case '"':
    case '-':
    case '^':
    case '[':
    case ']': *cp = (uint8_t)c; break;
    default: return fail_at(p, begin, DF_ERR_FORMAT, "unknown escape");
  }
  if (*cp > 0x10FFFF || (*cp >= 0xD800 && *cp <= 0xDFFF))
    return fail_at(p, begin, DF_ERR_FORMAT, "the escape stands for no character");
  return DF_OK;
}

/* ---- items --------------------------------------------------------------------------------------------- */

static df_status parse_string(parser *p, uint32_t *out) {
  const char *begin = p->p++;
  uint32_t first = p->ast->n_bytes;
  while (!at(p, '"')) {
    uint32_t cp;
    char utf8[4];
    if (p->p >= p->end || *p->p == '\n' || *p->p == '\r')
      return fail_at(p, begin, DF_ERR_FORMAT, "the string has no end");
    DF_TRY(parse_char(p, &cp));
    DF_TRY(GROW(p->ast, bytes, 4, (uint32_t)DF_GRAMMAR_MAX_TEXT * 4));
    size_t n = df_utf8_encode(cp, utf8);
    memcpy(p->ast->bytes + p->ast->n_bytes, utf8, n);
    p->ast->n_bytes += (uint32_t)n;
  }
  p->p++;
  return new_node(p, (df_gnode){.kind = DF_GNODE_BYTES, .a = first, .b = p->ast->n_bytes - first}, out);
}

static df_status put_range(parser *p, uint32_t lo, uint32_t hi) {
  if (lo > hi) return DF_OK;
  DF_TRY(GROW(p->ast, ranges, 1, DF_GRAMMAR_MAX_RANGES));
  p->ast->ranges[p->ast->n_ranges++] = (df_grange){lo, hi};
  return DF_OK;
}

/* Sorts the ranges from `first` on and joins those that touch. Classes are short, or sorted already. */
static void tidy_ranges(df_gast *a, uint32_t first) {
  uint32_t n = a->n_ranges - first, kept = 0;
  if (n == 0) return;
  df_grange *r = a->ranges + first;
  for (uint32_t gap = n / 2; gap > 0; gap /= 2)
    for (uint32_t i = gap; i < n; i++)
      for (uint32_t k = i; k >= gap && r[k].lo < r[k - gap].lo; k -= gap) {
        df_grange swap = r[k];
        r[k] = r[k - gap];
        r[k - gap] = swap;
      }
  for (uint32_t i = 0; i < n; i++) {
    if (kept && r[i].lo <= r[kept - 1].hi + 1)
      r[kept - 1].hi = DF_MAX(r[kept - 1].hi, r[i].hi);
    else
      r[kept++] = r[i];
  }
  a->n_ranges = first + kept;
}

/* Everything that the tidy ranges from `first` on leave out takes their place. */
static df_status negate(parser *p, uint32_t first) {
  uint32_t n = p->ast->n_ranges - first, from = 0;
  for (uint32_t i = 0; i < n; i++) {
    df_grange r = p->ast->ranges[first + i];
    if (r.lo > from) DF_TRY(put_range(p, from, r.lo - 1));
    from = r.hi + 1;
  }
  DF_TRY(put_range(p, from, 0x10FFFF));
  p->ast->n_ranges -= n;
  memmove(p->ast->ranges + first, p->ast->ranges + first + n, (p->ast->n_ranges - first) * sizeof(df_grange));
  return DF_OK;
}

/* UTF-8 has no surrogates. */
static df_status drop_surrogates(parser *p, uint32_t first) {
  for (uint32_t i = first, n = p->ast->n_ranges; i < n; i++) {
    df_grange r = p->ast->ranges[i];
    if (r.hi < 0xD800 || r.lo > 0xDFFF) continue;
    if (r.hi > 0xDFFF) DF_TRY(put_range(p, 0xE000, r.hi));
    p->ast->ranges[i].hi = 0xD7FF; /* empty (lo > hi) when it began inside */
    if (r.lo > 0xD7FF) p->ast->ranges[i] = p->ast->ranges[--p->ast->n_ranges];
    break; /* tidy ranges: only one can cover them */
  }
  tidy_ranges(p->ast, first);
  return DF_OK;
}

static df_status class_node(parser *p, uint32_t first, bool negated, uint32_t *out) {
  tidy_ranges(p->ast, first);
  if (negated) DF_TRY(negate(p, first));
  DF_TRY(drop_surrogates(p, first));
  return new_node(p, (df_gnode){.kind = DF_GNODE_CLASS, .a = first, .b = p->ast->n_ranges - first}, out);
}

static df_status parse_class(parser *p, uint32_t *out) {
  const char *begin = p->p++;
  uint32_t first = p->ast->n_ranges;
  bool negated = at(p, '^');
  if (negated) p->p++;
  while (!at(p, ']')) {
    uint32_t lo, hi;
    const char *where = p->p;
    if (p->p >= p->end || *p->p == '\n' || *p->p == '\r')
      return fail_at(p, begin, DF_ERR_FORMAT, "the character class has no end");
    DF_TRY(parse_char(p, &lo));
    hi = lo;
    if (at(p, '-') && p->p + 1 < p->end && p->p[1] != ']') {
      p->p++;
      DF_TRY(parse_char(p, &hi));
    }
    if (hi < lo) return fail_at(p, where, DF_ERR_FORMAT, "the range ends before it begins");
    DF_TRY(put_range(p, lo, hi));
  }
  p->p++;
  return class_node(p, first, negated, out);
}

static df_status parse_alternatives(parser *p, bool in_group, uint32_t *out);

static df_status parse_group(parser *p, uint32_t *out) {
  const char *begin = p->p++;
  if (++p->nesting > DF_GRAMMAR_MAX_NESTING) return fail_at(p, begin, DF_ERR_LIMIT, "groups are nested too deeply");
  skip_space(p, true);
  DF_TRY(parse_alternatives(p, true, out));
  if (!at(p, ')')) return fail_at(p, begin, DF_ERR_FORMAT, "the group has no end");
  p->p++;
  p->nesting--;
  return DF_OK;
}

static df_status parse_reference(parser *p, uint32_t *out) {
  df_slice name;
  uint32_t rule;
  DF_TRY(parse_name(p, &name));
  DF_TRY(rule_index(p, name, &rule));
  return new_node(p, (df_gnode){.kind = DF_GNODE_RULE, .a = rule}, out);
}

static df_status parse_any(parser *p, uint32_t *out) {
  p->p++;
  return class_node(p, p->ast->n_ranges, true, out);
}

static df_status parse_count(parser *p, uint32_t *out) {
  const char *begin = p->p;
  for (*out = 0; p->p < p->end && *p->p >= '0' && *p->p <= '9'; p->p++) {
    *out = *out * 10 + (uint32_t)(*p->p - '0');
    if (*out > DF_GRAMMAR_MAX_REPEAT) return fail_at(p, begin, DF_ERR_LIMIT, "the count is above 65536");
  }
  return p->p == begin ? fail(p, "a number is expected here") : DF_OK;
}

static df_status parse_braces(parser *p, uint32_t *min, uint32_t *max) {
  const char *begin = p->p++;
  skip_space(p, false);
  DF_TRY(parse_count(p, min));
  *max = *min;
  skip_space(p, false);
  if (at(p, ',')) {
    p->p++;
    skip_space(p, false);
    *max = DF_GRAMMAR_NONE;
    if (!at(p, '}')) DF_TRY(parse_count(p, max));
    skip_space(p, false);
  }
  if (!at(p, '}')) return fail(p, "\"}\" is expected here");
  p->p++;
  if (*max < *min) return fail_at(p, begin, DF_ERR_FORMAT, "the most is less than the least");
  return DF_OK;
}

/* ? * + {m} {m,} {m,n} behind an item. */
static df_status parse_repeats(parser *p, bool in_group, uint32_t *node) {
  for (uint32_t stacked = 0;; stacked++) {
    uint32_t min = 0, max = DF_GRAMMAR_NONE;
    skip_space(p, in_group);
    if (at(p, '{')) {
      if (stacked >= DF_GRAMMAR_MAX_STACKED) return fail_at(p, p->p, DF_ERR_LIMIT, "too many repetitions of one item");
      DF_TRY(parse_braces(p, &min, &max));
    } else if (at(p, '?') || at(p, '*') || at(p, '+')) {
      if (stacked >= DF_GRAMMAR_MAX_STACKED) return fail_at(p, p->p, DF_ERR_LIMIT, "too many repetitions of one item");
      if (*p->p == '?') max = 1;
      if (*p->p == '+') min = 1;
      p->p++;
    } else {
      return DF_OK;
    }
    DF_TRY(new_node(p, (df_gnode){.kind = DF_GNODE_REPEAT, .a = *node, .b = min, .c = max}, node));
  }
}

/* found false: no item begins here. */
static df_status parse_item(parser *p, bool in_group, uint32_t *out, bool *found) {
  char c = p->p < p->end ? *p->p : '\0';
  *found = true;
  if (c == '"') {
    DF_TRY(parse_string(p, out));
  } else if (c == '[') {
    DF_TRY(parse_class(p, out));
  } else if (c == '(') {
    DF_TRY(parse_group(p, out));
  } else if (c == '.') {
    DF_TRY(parse_any(p, out));
  } else if (is_name(c)) {
    DF_TRY(parse_reference(p, out));
  } else {
    *found = false;
    return DF_OK;
  }
  return parse_repeats(p, in_group, out);
}

static void append(df_gast *a, uint32_t parent, uint32_t *last, uint32_t child) {
  if (*last == DF_GRAMMAR_NONE)
    a->nodes[parent].a = child;
  else
    a->nodes[*last].next = child;
  *last = child;
}

static df_status parse_sequence(parser *p, bool in_group, uint32_t *out) {
  uint32_t last = DF_GRAMMAR_NONE, item;
  DF_TRY(new_node(p, (df_gnode){.kind = DF_GNODE_SEQ, .a = DF_GRAMMAR_NONE}, out));
  for (bool found = true; found;) {
    DF_TRY(parse_item(p, in_group, &item, &found));
    if (found) append(p->ast, *out, &last, item);
  }
  return DF_OK;
}

static df_status parse_alternatives(parser *p, bool in_group, uint32_t *out) {
  uint32_t last = DF_GRAMMAR_NONE, sequence;
  DF_TRY(new_node(p, (df_gnode){.kind = DF_GNODE_ALT, .a = DF_GRAMMAR_NONE}, out));
  for (;;) {
    DF_TRY(parse_sequence(p, in_group, &sequence));
    append(p->ast, *out, &last, sequence);
    if (!at(p, '|')) return DF_OK;
    p->p++;
    skip_space(p, true);
  }
}

/* ---- rules --------------------------------------------------------------------------------------------- */

static df_status parse_rule(parser *p) {
  df_slice name;
  uint32_t rule, body;
  DF_TRY(parse_name(p, &name));
  skip_space(p, false);
  if (p->end - p->p < 3 || memcmp(p->p, "::=", 3) != 0) return fail(p, "\"::=\" is expected here");
  p->p += 3;
  skip_space(p, true);
  DF_TRY(rule_index(p, name, &rule));
  if (p->ast->rules[rule].body != DF_GRAMMAR_NONE)
    return fail_at(p, name.p, DF_ERR_FORMAT, "the rule is defined twice");
  DF_TRY(parse_alternatives(p, false, &body));
  p->ast->rules[rule].body = body;
  if (p->p < p->end && *p->p != '\n' && *p->p != '\r') return fail(p, "this cannot stand in a rule");
  return DF_OK;
}

static df_status check_rules(parser *p) {
  df_gast *a = p->ast;
  for (uint32_t i = 0; i < a->n_rules; i++) {
    df_slice name = a->rules[i].name;
    uint32_t line, col;
    if (a->rules[i].body != DF_GRAMMAR_NONE) continue;
    position(p, name.p, &line, &col);
    return DF_FAIL(p->err, DF_ERR_FORMAT, "could not read the grammar: line %u column %u: rule \"%.*s\" is not defined",
                   line, col, (int)DF_MIN(name.n, (size_t)64), name.p);
  }
  if (!df_map_get(&a->by_name, "root", 4, &a->root))
    return DF_FAIL(p->err, DF_ERR_FORMAT, "could not read the grammar: there is no rule \"root\"");
  return DF_OK;
}

df_status df_gast_parse(const char *text, size_t n, df_gast *out, df_error *err) {
  parser p = {.text = text, .p = text, .end = text + n, .ast = out, .err = err};
  *out = (df_gast){0};
  if (n > DF_GRAMMAR_MAX_TEXT)
    return DF_FAIL(err, DF_ERR_LIMIT, "could not read the grammar: %zu bytes, at most %zu are allowed", n,
                   DF_GRAMMAR_MAX_TEXT);
  DF_TRY(df_map_init(&out->by_name, 64, err));
  for (skip_space(&p, true); p.p < p.end; skip_space(&p, true)) DF_TRY(parse_rule(&p));
  return check_rules(&p);
}
