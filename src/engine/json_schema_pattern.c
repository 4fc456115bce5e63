/*
 * Regular expressions (ECMA 262, of which JSON schema recommends a part) to GBNF. Anchored ones only: ^...$ around the
 * whole. Every character is written as JSON writes it.
 */
#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "engine/json_schema_gen.h"
#include "text/utf8.h"

enum { MAX_RANGES = 256, MAX_GROUPS = 64, MAX_PATTERN = 4096 };

typedef struct ranges {
  uint32_t n;
  uint32_t r[MAX_RANGES][2];
} ranges;

typedef struct regex {
  schema_gen *g;
  const schema_conj *c;
  const char *p, *end;
  df_buf *b;
  int groups;
} regex;

#define PUT(x, s) DF_TRY(df_buf_puts((x)->b, (s), (x)->g->err))

static df_status refuse(const regex *x, const char *why) {
  return schema_fail(x->g, x->c, DF_ERR_UNSUPPORTED, "pattern: %s", why);
}

static bool at(const regex *x, char c) { return x->p < x->end && *x->p == c; }

/* ---- sets of characters -------------------------------------------------------------------------------- */

static df_status add(const regex *x, ranges *s, uint32_t lo, uint32_t hi) {
  if (s->n == MAX_RANGES) return refuse(x, "too many ranges");
  s->r[s->n][0] = lo;
  s->r[s->n++][1] = hi;
  return DF_OK;
}

static int compare_ranges(const void *a, const void *b) {
  const uint32_t *x = a, *y = b;
  return x[0] < y[0] ? -1 : x[0] > y[0];
}

static void tidy(ranges *s) {
  uint32_t kept = 0;
  qsort(s->r, s->n, sizeof s->r[0], compare_ranges);
  for (uint32_t i = 0; i < s->n; i++) {
    if (kept && s->r[i][0] <= s->r[kept - 1][1] + 1) {
      s->r[kept - 1][1] = DF_MAX(s->r[kept - 1][1], s->r[i][1]);
    } else {
      s->r[kept][0] = s->r[i][0];
      s->r[kept++][1] = s->r[i][1];
    }
  }
  s->n = kept;
}

static df_status add_all_but(const regex *x, ranges *s, ranges *not_these) {
  uint32_t from = 0;
  tidy(not_these);
  for (uint32_t i = 0; i < not_these->n; i++) {
    if (not_these->r[i][0] > from) DF_TRY(add(x, s, from, not_these->r[i][0] - 1));
    from = not_these->r[i][1] + 1;
  }
  return from <= 0x10FFFF ? add(x, s, from, 0x10FFFF) : DF_OK;
}

/* \d \w \s and their opposites. */
static df_status add_letter_class(const regex *x, ranges *s, char letter) {
  static const uint32_t digit[][2] = {{'0', '9'}};
  static const uint32_t word[][2] = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
  static const uint32_t space[][2] = {{9, 13},          {' ', ' '},       {0xA0, 0xA0},     {0x1680, 0x1680},
                                      {0x2000, 0x200A}, {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F},
                                      {0x3000, 0x3000}, {0xFEFF, 0xFEFF}};
  ranges set = {0};
  char lower = (char)(letter | 0x20);
  const uint32_t(*from)[2] = lower == 'd' ? digit : lower == 'w' ? word : space;
  size_t n = lower == 'd' ? DF_COUNT_OF(digit) : lower == 'w' ? DF_COUNT_OF(word) : DF_COUNT_OF(space);
  for (size_t i = 0; i < n; i++) DF_TRY(add(x, lower == letter ? s : &set, from[i][0], from[i][1]));
  return lower == letter ? DF_OK : add_all_but(x, s, &set);
}

static df_status parse_hex(regex *x, int digits, uint32_t *cp) {
  for (*cp = 0; digits > 0; digits--, x->p++) {
    const char *hex = "0123456789abcdef";
    const char *d = x->p < x->end && *x->p ? strchr(hex, *x->p >= 'A' && *x->p <= 'F' ? *x->p | 0x20 : *x->p) : NULL;
    if (!d) return refuse(x, "a hexadecimal digit is missing");
    *cp = *cp << 4 | (uint32_t)(d - hex);
  }
  return *cp >= 0xD800 && *cp <= 0xDFFF ? refuse(x, "surrogates are not supported") : DF_OK;
}

/* Behind a backslash. is_class: \d and the like; the set has it already. */
static df_status parse_escape(regex *x, ranges *s, uint32_t *cp, bool *is_class) {
  char c = x->p < x->end ? *x->p++ : '\0';
  *is_class = c && strchr("dDwWsS", c);
  if (*is_class) return add_letter_class(x, s, c);
  switch (c) {
    case 'n': *cp = '\n'; return DF_OK;
    case 'r': *cp = '\r'; return DF_OK;
    case 't': *cp = '\t'; return DF_OK;
    case 'f': *cp = '\f'; return DF_OK;
    case 'v': *cp = '\v'; return DF_OK;
    case 'x': return parse_hex(x, 2, cp);
    case 'u': return parse_hex(x, 4, cp);
    default: break;
  }
  if (!c || !strchr("^$\\.*+?()[]{}|/-\"'#&~:;<>=!@%,` ", c)) return refuse(x, "this escape is not supported");
  *cp = (uint8_t)c;
  return DF_OK;
}

static df_status parse_plain(regex *x, uint32_t *cp) {
  df_utf8_kind kind;
  size_t n = df_utf8_step(x->p, (size_t)(x->end - x->p), &kind, cp);
  if (kind != DF_UTF8_CHAR) return refuse(x, "it is not valid UTF-8");
  x->p += n;
  return DF_OK;
}

static df_status parse_class_char(regex *x, ranges *s, uint32_t *cp, bool *is_class) {
  *is_class = false;
  if (!at(x, '\\')) return parse_plain(x, cp);
  x->p++;
  if (at(x, 'b')) {
    x->p++;
    *cp = '\b';
    return DF_OK;
  }
  return parse_escape(x, s, cp, is_class);
}

static df_status put_set(regex *x, ranges *s) {
  tidy(s);
  return schema_put_chars(x->g, (const uint32_t(*)[2])s->r, s->n, x->b);
}

static df_status parse_class(regex *x) {
  ranges inside = {0}, set = {0};
  x->p++;
  bool negated = at(x, '^');
  if (negated) x->p++;
  while (!at(x, ']')) {
    uint32_t lo = 0, hi;
    bool is_class, second;
    if (x->p >= x->end) return refuse(x, "a character class has no end");
    DF_TRY(parse_class_char(x, &inside, &lo, &is_class));
    if (is_class) continue;
    hi = lo;
    if (at(x, '-') && x->p + 1 < x->end && x->p[1] != ']') {
      x->p++;
      DF_TRY(parse_class_char(x, &inside, &hi, &second));
      if (second || hi < lo) return refuse(x, "a range in a character class makes no sense");
    }
    DF_TRY(add(x, &inside, lo, hi));
  }
  x->p++;
  if (!negated) return put_set(x, &inside);
  DF_TRY(add_all_but(x, &set, &inside));
  return put_set(x, &set);
}

/* ---- structure ----------------------------------------------------------------------------------------- */

static df_status parse_alternatives(regex *x);

static df_status parse_group(regex *x) {
  x->p++;
  if (at(x, '?')) {
    if (x->end - x->p < 2 || x->p[1] != ':') return refuse(x, "assertions and named groups are not supported");
    x->p += 2;
  }
  if (++x->groups > MAX_GROUPS) return refuse(x, "groups are nested too deeply");
  PUT(x, "(");
  DF_TRY(parse_alternatives(x));
  if (!at(x, ')')) return refuse(x, "a group has no end");
  x->p++;
  x->groups--;
  PUT(x, ")");
  return DF_OK;
}

static df_status parse_atom(regex *x) {
  ranges set = {0}, lines = {0};
  uint32_t cp = 0;
  bool is_class = false;
  switch (*x->p) {
    case '(': return parse_group(x);
    case '[': return parse_class(x);
    case '.':
      x->p++;
      DF_TRY(add(x, &lines, '\n', '\n'));
      DF_TRY(add(x, &lines, '\r', '\r'));
      DF_TRY(add(x, &lines, 0x2028, 0x2029));
      DF_TRY(add_all_but(x, &set, &lines));
      return put_set(x, &set);
    case '^':
    case '$': return refuse(x, "\"^\" and \"$\" are supported at both ends only");
    case '*':
    case '+':
    case '?':
    case '{':
    case '}':
    case ']': return refuse(x, "it is not a regular expression");
    case '\\':
      x->p++;
      DF_TRY(parse_escape(x, &set, &cp, &is_class));
      break;
    default: DF_TRY(parse_plain(x, &cp)); break;
  }
  if (!is_class) DF_TRY(add(x, &set, cp, cp));
  return put_set(x, &set);
}

static df_status parse_number(regex *x, uint32_t *out) {
  const char *begin = x->p;
  for (*out = 0; x->p < x->end && *x->p >= '0' && *x->p <= '9'; x->p++) {
    *out = *out * 10 + (uint32_t)(*x->p - '0');
    if (*out > SCHEMA_MAX_COUNT) return refuse(x, "a count is above 65536");
  }
  return x->p == begin ? refuse(x, "a count is missing") : DF_OK;
}

static df_status parse_quantifier(regex *x) {
  uint32_t min, max;
  if (at(x, '*') || at(x, '+') || at(x, '?')) {
    DF_TRY(df_buf_put(x->b, x->p++, 1, x->g->err));
  } else if (at(x, '{')) {
    x->p++;
    DF_TRY(parse_number(x, &min));
    max = min;
    if (at(x, ',')) {
      x->p++;
      max = SCHEMA_NONE;
      if (!at(x, '}')) DF_TRY(parse_number(x, &max));
    }
    if (!at(x, '}') || max < min) return refuse(x, "a count makes no sense");
    x->p++;
    DF_TRY(max == SCHEMA_NONE ? df_buf_printf(x->b, x->g->err, "{%u,}", min)
                              : df_buf_printf(x->b, x->g->err, "{%u,%u}", min, max));
  } else {
    return DF_OK;
  }
  if (at(x, '?')) x->p++; /* lazy: the same texts */
  if (at(x, '*') || at(x, '+') || at(x, '?') || at(x, '{')) return refuse(x, "a repetition of a repetition");
  return DF_OK;
}

static df_status parse_alternatives(regex *x) {
  while (x->p < x->end && *x->p != ')') {
    if (at(x, '|')) {
      x->p++;
      PUT(x, " | \"\"");
      continue;
    }
    PUT(x, " ");
    DF_TRY(parse_atom(x));
    DF_TRY(parse_quantifier(x));
  }
  return DF_OK;
}

/* Whether a bar stands outside of every group: then the anchors do not belong to the whole. */
static bool has_outer_bar(const char *p, const char *end) {
  int depth = 0;
  bool in_class = false;
  for (; p < end; p++) {
    if (*p == '\\')
      p++;
    else if (in_class)
      in_class = *p != ']';
    else if (*p == '[')
      in_class = true;
    else if (*p == '(' || *p == ')')
      depth += *p == '(' ? 1 : -1;
    else if (*p == '|' && depth == 0)
      return true;
  }
  return false;
}

df_status schema_put_pattern(schema_gen *g, const schema_conj *c, const char *p, size_t n, df_buf *b) {
  regex x = {.g = g, .c = c, .p = p + 1, .end = p + n - 1, .b = b};
  size_t slashes = 0;
  while (n > 1 && slashes + 1 < n && p[n - 2 - slashes] == '\\') slashes++;
  if (n > MAX_PATTERN) return schema_fail(g, c, DF_ERR_LIMIT, "pattern: more than %d bytes", (int)MAX_PATTERN);
  if (n < 2 || p[0] != '^' || p[n - 1] != '$' || slashes % 2)
    return refuse(&x, "it must begin with \"^\" and end with \"$\"");
  if (has_outer_bar(x.p, x.end)) return refuse(&x, "put alternatives between \"^(\" and \")$\"");
  PUT(&x, "(\"\"");
  DF_TRY(parse_alternatives(&x));
  if (x.p < x.end) return refuse(&x, "a group ends that has not begun");
  PUT(&x, ")");
  return DF_OK;
}
