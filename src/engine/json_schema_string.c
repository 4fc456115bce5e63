/* Strings, constants, and the rules that all schemas share. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/size.h"
#include "engine/json_schema_gen.h"
#include "text/utf8.h"

#define ESCAPED "\"\\\\\" ([\"\\\\/bfnrt] | \"u\" uesc)"
#define PLAIN "[^\"\\\\\\x00-\\x1F]"
#define YEAR "[1-9] [0-9]{3}"
#define LEAP "([1-9] [0-9] (\"0\" [48] | [2468] [048] | [13579] [26]) | ([2468] [048] | [13579] [26]) \"00\")"
#define HEX4 "[0-9a-fA-F]{4}"
enum { MAX_NAME = 128, MAX_BRANCHES = 128 }; /* of names that further members must not have */

#define BIT(r) (1u << (r))

static const struct {
  const char *name, *body;
  uint32_t needs;
} SHARED[SHARED_RULES] = {
    [SHARED_WS] = {"ws", "(\" \" | \"\\n\" [ \\t]{0,16})?", 0},
    [SHARED_NEVER] = {"never", "[]", 0},
    [SHARED_UESC] = {"uesc",
                     "[0-9abcefABCEF] [0-9a-fA-F]{3} | [dD] [0-7] [0-9a-fA-F]{2} | [dD] [89abAB] [0-9a-fA-F]{2} "
                     "\"\\\\u\" [dD] [c-fC-F] [0-9a-fA-F]{2}",
                     0},
    [SHARED_CHAR] = {"char", PLAIN " | " ESCAPED, BIT(SHARED_UESC)},
    [SHARED_CHARS] = {"chars", "(" PLAIN " | " ESCAPED ")*", BIT(SHARED_UESC)},
    [SHARED_CONTROL] = {"control", "\"\\\\\" [bfnrt] | \"\\\\u00\" (\"0\" [0-7bBeEfF] | \"1\" [0-9a-fA-F])", 0},
    [SHARED_STRING] = {"string", "\"\\\"\" (" PLAIN " | " ESCAPED ")* \"\\\"\"", BIT(SHARED_UESC)},
    [SHARED_INTEGER] = {"integer", "\"-\"? (\"0\" | [1-9] [0-9]{0,17})", 0},
    [SHARED_NUMBER] = {"number", "\"-\"? (\"0\" | [1-9] [0-9]{0,17}) (\".\" [0-9]{1,16})? ([eE] [-+]? [0-9]{1,2})?", 0},
    [SHARED_BOOLEAN] = {"boolean", "\"true\" | \"false\"", 0},
    [SHARED_NULL] = {"null", "\"null\"", 0},
    [SHARED_VALUE] = {"value", "object | array | string | number | boolean | null",
                      BIT(SHARED_OBJECT) | BIT(SHARED_ARRAY) | BIT(SHARED_STRING) | BIT(SHARED_NUMBER) |
                          BIT(SHARED_BOOLEAN) | BIT(SHARED_NULL)},
    [SHARED_OBJECT] = {"object", "\"{\" ws (member (\",\" ws member)* ws)? \"}\"", BIT(SHARED_WS) | BIT(SHARED_MEMBER)},
    [SHARED_ARRAY] = {"array", "\"[\" ws (value (\",\" ws value)* ws)? \"]\"", BIT(SHARED_WS) | BIT(SHARED_VALUE)},
    [SHARED_MEMBER] = {"member", "string \":\" ws value", BIT(SHARED_STRING) | BIT(SHARED_WS) | BIT(SHARED_VALUE)},
    [SHARED_DATE] = {"format-date",
                     YEAR " \"-\" ((\"0\" [13578] | \"10\" | \"12\") \"-\" (\"0\" [1-9] | [12] [0-9] | \"3\" [01]) | "
                          "(\"0\" [469] | \"11\") \"-\" (\"0\" [1-9] | [12] [0-9] | \"30\") | "
                          "\"02-\" (\"0\" [1-9] | \"1\" [0-9] | \"2\" [0-8])) | " LEAP " \"-02-29\"",
                     0},
    [SHARED_TIME] = {"format-time",
                     "([01] [0-9] | \"2\" [0-3]) \":\" [0-5] [0-9] \":\" [0-5] [0-9] (\".\" [0-9]{1,9})? "
                     "(\"Z\" | [-+] ([01] [0-9] | \"2\" [0-3]) \":\" [0-5] [0-9])",
                     0},
    [SHARED_DATE_TIME] = {"format-date-time", "format-date \"T\" format-time", BIT(SHARED_DATE) | BIT(SHARED_TIME)},
    [SHARED_UUID] = {"format-uuid", HEX4 " " HEX4 " (\"-\" " HEX4 "){4} " HEX4 " " HEX4, 0},
    [SHARED_EMAIL] = {"format-email",
                      "[a-zA-Z0-9_+-]{1,32} (\".\" [a-zA-Z0-9_+-]{1,16}){0,3} \"@\" "
                      "([a-zA-Z0-9] ([a-zA-Z0-9-]{0,30} [a-zA-Z0-9])? \".\"){1,4} [a-zA-Z]{2,16}",
                      0},
    [SHARED_IPV4] = {"format-ipv4",
                     "(([0-9] | [1-9] [0-9] | \"1\" [0-9]{2} | \"2\" [0-4] [0-9] | \"25\" [0-5]) \".\"){3} "
                     "([0-9] | [1-9] [0-9] | \"1\" [0-9]{2} | \"2\" [0-4] [0-9] | \"25\" [0-5])",
                     0},
};

df_status schema_put_shared(schema_gen *g, shared_rule r, df_buf *b) {
  g->rules->used |= BIT(r);
  return df_buf_puts(b, SHARED[r].name, g->err);
}

df_status schema_put_shared_rules(df_schema_rules *r, df_error *err) {
  uint32_t before;
  do {
    before = r->used;
    for (uint32_t i = 0; i < SHARED_RULES; i++)
      if (r->used & BIT(i)) r->used |= SHARED[i].needs;
  } while (r->used != before);
  for (uint32_t i = 0; i < SHARED_RULES; i++)
    if (r->used & BIT(i)) DF_TRY(df_buf_printf(r->out, err, "%s ::= %s\n", SHARED[i].name, SHARED[i].body));
  return DF_OK;
}

/* ---- quoting ------------------------------------------------------------------------------------------- */

df_status schema_put_quoted(schema_gen *g, const char *s, size_t n, df_buf *b) {
  DF_TRY(df_buf_puts(b, "\"", g->err));
  for (size_t i = 0; i < n; i++) {
    uint8_t c = (uint8_t)s[i];
    if (c == '"' || c == '\\')
      DF_TRY(df_buf_printf(b, g->err, "\\%c", c));
    else if (c < 0x20 || c == 0x7F)
      DF_TRY(df_buf_printf(b, g->err, "\\x%02X", c));
    else
      DF_TRY(df_buf_put(b, s + i, 1, g->err));
  }
  return df_buf_puts(b, "\"", g->err);
}

/* The letter of a short escape, or 0. */
static char short_escape(uint32_t cp) {
  switch (cp) {
    case '"': return '"';
    case '\\': return '\\';
    case '\b': return 'b';
    case '\f': return 'f';
    case '\n': return 'n';
    case '\r': return 'r';
    case '\t': return 't';
    default: return 0;
  }
}

static bool is_plain(uint32_t cp) { return cp >= 0x20 && cp != '"' && cp != '\\'; }

static df_status put_range(schema_gen *g, uint32_t lo, uint32_t hi, df_buf *b) {
  DF_TRY(df_buf_printf(b, g->err, "\\U%08X", lo));
  return lo == hi ? DF_OK : df_buf_printf(b, g->err, "-\\U%08X", hi);
}

/* Plain ones as a class, the others as escapes. */
df_status schema_put_chars(schema_gen *g, const uint32_t (*r)[2], uint32_t n, df_buf *b) {
  static const uint32_t plain[3][2] = {{0x20, '"' - 1}, {'"' + 1, '\\' - 1}, {'\\' + 1, 0x10FFFF}};
  DF_TRY(df_buf_puts(b, "([", g->err));
  for (uint32_t i = 0; i < n; i++)
    for (uint32_t k = 0; k < 3; k++) {
      uint32_t lo = DF_MAX(r[i][0], plain[k][0]), hi = DF_MIN(r[i][1], plain[k][1]);
      if (lo >= 0xD800 && lo <= 0xDFFF) lo = 0xE000;
      if (hi >= 0xD800 && hi <= 0xDFFF) hi = 0xD7FF;
      if (lo <= hi) DF_TRY(put_range(g, lo, hi, b));
    }
  DF_TRY(df_buf_puts(b, "]", g->err));
  for (uint32_t i = 0; i < n; i++) {
    uint32_t from = r[i][0];
    if (from == 0 && r[i][1] >= 0x1F) {
      DF_TRY(df_buf_puts(b, " | ", g->err));
      DF_TRY(schema_put_shared(g, SHARED_CONTROL, b));
      from = 0x20;
    }
    for (uint32_t cp = from; cp <= DF_MIN(r[i][1], (uint32_t)'\\'); cp++) {
      char letter = short_escape(cp);
      if (is_plain(cp)) continue;
      if (letter == '"' || letter == '\\')
        DF_TRY(df_buf_printf(b, g->err, " | \"\\\\\\%c\"", letter));
      else if (letter)
        DF_TRY(df_buf_printf(b, g->err, " | \"\\\\%c\"", letter));
      else
        DF_TRY(df_buf_printf(b, g->err, " | \"\\\\u%04x\"", cp));
    }
  }
  return df_buf_puts(b, ")", g->err);
}

/* ---- strings that are not some names ------------------------------------------------------------------- */

static int compare_names(const void *a, const void *b) {
  const df_slice *x = a, *y = b;
  int c = memcmp(x->p, y->p, DF_MIN(x->n, y->n));
  return c ? c : x->n < y->n ? -1 : x->n > y->n;
}

static df_status put_one_char(schema_gen *g, uint32_t cp, df_buf *b) {
  const uint32_t one[1][2] = {{cp, cp}};
  return schema_put_chars(g, one, 1, b);
}

/* Names [0..n) share their first `depth` bytes: a rule for what may follow those bytes so that no name comes out. Each
 * character is one spelling: an escape of what could stand plain would get around the names. `name` gets the rule's.
 * Recursion is by rules that are written behind: depth is bounded by the longest name. */
static df_status write_not(schema_gen *g, const schema_conj *c, const df_slice *names, uint32_t n, size_t depth,
                           uint32_t level, char name[DF_SCHEMA_NAME_SIZE]) {
  df_buf body = {0};
  uint32_t others[MAX_BRANCHES + 1][2], n_others = 0, next = 0, i = 0;
  df_status s = schema_new_rule(g, name);
  bool ended = n > 0 && names[0].n == depth;
  if (s == DF_OK && level > MAX_NAME)
    s = schema_fail(g, c, DF_ERR_LIMIT, "a name in \"properties\" is above 128 characters");
  while (i < n && names[i].n == depth) i++;
  while (i < n && s == DF_OK) {
    df_utf8_kind kind;
    uint32_t cp = 0, end = i;
    char deeper[DF_SCHEMA_NAME_SIZE];
    size_t len = df_utf8_step(names[i].p + depth, names[i].n - depth, &kind, &cp);
    while (end < n && names[end].n >= depth + len && memcmp(names[end].p + depth, names[i].p + depth, len) == 0) end++;
    if (n_others == MAX_BRANCHES) s = schema_fail(g, c, DF_ERR_LIMIT, "too many names in \"properties\" begin alike");
    if (s == DF_OK) s = write_not(g, c, names + i, end - i, depth + len, level + 1, deeper);
    if (s == DF_OK && body.len) s = df_buf_puts(&body, " | ", g->err);
    if (s == DF_OK) s = put_one_char(g, cp, &body);
    if (s == DF_OK) s = df_buf_printf(&body, g->err, " %s", deeper);
    if (cp > next) others[n_others][0] = next, others[n_others++][1] = cp - 1;
    next = cp + 1;
    i = end;
  }
  others[n_others][0] = next;
  others[n_others++][1] = 0x10FFFF;
  if (s == DF_OK && body.len) s = df_buf_puts(&body, " | ", g->err);
  if (s == DF_OK) s = schema_put_chars(g, (const uint32_t(*)[2])others, n_others, &body);
  if (s == DF_OK) s = df_buf_puts(&body, " ", g->err);
  if (s == DF_OK) s = schema_put_shared(g, SHARED_CHARS, &body);
  if (s == DF_OK && !ended) s = df_buf_puts(&body, " | \"\"", g->err);
  if (s == DF_OK) s = schema_write_rule(g, name, &body);
  df_buf_release(&body);
  return s;
}

df_status schema_put_other_string(schema_gen *g, const schema_conj *c, const df_slice *names, uint32_t n, df_buf *b) {
  char rule[DF_SCHEMA_NAME_SIZE];
  df_slice *sorted;
  if (n == 0) return schema_put_shared(g, SHARED_STRING, b);
  sorted = df_alloc(n * sizeof *sorted);
  if (!sorted) return DF_OOM(g->err, "a schema", n * sizeof *sorted);
  memcpy(sorted, names, n * sizeof *sorted);
  qsort(sorted, n, sizeof *sorted, compare_names);
  df_status s = write_not(g, c, sorted, n, 0, 0, rule);
  if (s == DF_OK) s = df_buf_printf(b, g->err, "\"\\\"\" %s \"\\\"\"", rule);
  df_free(sorted);
  return s;
}

/* ---- strings ------------------------------------------------------------------------------------------- */

static df_status format_rule(schema_gen *g, const schema_conj *c, const char *format, shared_rule *out) {
  static const struct {
    const char *format;
    shared_rule rule;
  } known[] = {{"date", SHARED_DATE}, {"time", SHARED_TIME},   {"date-time", SHARED_DATE_TIME},
               {"uuid", SHARED_UUID}, {"email", SHARED_EMAIL}, {"ipv4", SHARED_IPV4}};
  for (size_t i = 0; i < DF_COUNT_OF(known); i++)
    if (strcmp(known[i].format, format) == 0) {
      *out = known[i].rule;
      return DF_OK;
    }
  return schema_fail(g, c, DF_ERR_UNSUPPORTED, "format \"%.64s\" is not supported", format);
}

static df_status one_string(schema_gen *g, const schema_conj *c, const char *key, const df_json **out) {
  *out = NULL;
  for (uint32_t i = 0; i < c->n; i++) {
    const df_json *v = df_json_member(c->part[i].v, key);
    if (!v) continue;
    if (df_json_kind_of(v) != DF_JSON_STRING) return schema_fail(g, c, DF_ERR_FORMAT, "\"%s\" must be a string", key);
    if (*out && strcmp(df_json_str(v, NULL), df_json_str(*out, NULL)) != 0)
      return schema_fail(g, c, DF_ERR_UNSUPPORTED, "several \"%s\" at once are not supported", key);
    *out = v;
  }
  return DF_OK;
}

df_status schema_put_string(schema_gen *g, const schema_conj *c, df_buf *b) {
  uint32_t min, max;
  const df_json *pattern, *format;
  shared_rule rule = SHARED_STRING;
  DF_TRY(schema_counts(g, c, "minLength", "maxLength", &min, &max));
  DF_TRY(one_string(g, c, "pattern", &pattern));
  DF_TRY(one_string(g, c, "format", &format));
  bool counted = min > 0 || max != SCHEMA_NONE;
  if ((pattern != NULL) + (format != NULL) + counted > 1)
    return schema_fail(g, c, DF_ERR_UNSUPPORTED, "\"pattern\", \"format\" and a length are not supported at once");
  if (format) DF_TRY(format_rule(g, c, df_json_str(format, NULL), &rule));
  if (!pattern && !format && !counted) return schema_put_shared(g, SHARED_STRING, b);
  if (max < min) return schema_put_shared(g, SHARED_NEVER, b);
  DF_TRY(df_buf_puts(b, "\"\\\"\" ", g->err));
  if (pattern) {
    size_t n;
    const char *p = df_json_str(pattern, &n);
    DF_TRY(schema_put_pattern(g, c, p, n, b));
  } else if (format) {
    DF_TRY(schema_put_shared(g, rule, b));
  } else {
    DF_TRY(schema_put_shared(g, SHARED_CHAR, b));
    if (max == SCHEMA_NONE)
      DF_TRY(df_buf_printf(b, g->err, "{%u,}", min));
    else
      DF_TRY(df_buf_printf(b, g->err, "{%u,%u}", min, max));
  }
  return df_buf_puts(b, " \"\\\"\"", g->err);
}
