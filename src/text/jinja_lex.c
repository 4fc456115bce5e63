/* text/jinja_lex.c - template source to tokens. */
#include "text/jinja_lex.h"

#include <stdbool.h>
#include <string.h>

#include "base/mem.h"
#include "base/size.h"
#include "text/jinja_limits.h"
#include "text/jinja_value.h"

typedef struct lexer {
  const char *s;
  size_t n, pos;
  uint32_t line;
  df_jtokens *out;
  df_error *err;
  char open[JINJA_MAX_NESTING]; /* closing brackets awaited inside the current tag */
  size_t n_open;
} lexer;

#define LEX_FAIL(x, ...) lex_fail((x), __VA_ARGS__)

static df_status lex_fail(lexer *x, const char *what, const char *arg, size_t arg_len) {
  return DF_FAIL(x->err, DF_ERR_FORMAT, "could not render the chat template: line %u: %s%.*s", x->line, what,
                 (int)arg_len, arg);
}

const char *df_jtok_name(uint32_t type) {
  static const char *const names[] = {"end of template",
                                      "text",
                                      "{%",
                                      "%}",
                                      "{{",
                                      "}}",
                                      "name",
                                      "string",
                                      "integer",
                                      "float",
                                      "+",
                                      "-",
                                      "*",
                                      "/",
                                      "//",
                                      "%",
                                      "**",
                                      "~",
                                      "[",
                                      "]",
                                      "(",
                                      ")",
                                      "{",
                                      "}",
                                      "==",
                                      "!=",
                                      ">",
                                      ">=",
                                      "<",
                                      "<=",
                                      "=",
                                      ".",
                                      ":",
                                      "|",
                                      ",",
                                      ";"};
  return type < DF_COUNT_OF(names) ? names[type] : "token";
}

void df_jtokens_release(df_jtokens *t) {
  df_free(t->v);
  *t = (df_jtokens){0};
}

size_t df_jlex_normalise(char *s, size_t n) {
  size_t o = 0;
  for (size_t i = 0; i < n; i++) {
    if (s[i] != '\r') {
      s[o++] = s[i];
      continue;
    }
    s[o++] = '\n';
    if (i + 1 < n && s[i + 1] == '\n') i++;
  }
  if (o > 0 && s[o - 1] == '\n') o--;
  return o;
}

static df_status push(lexer *x, df_jtok type, size_t off, size_t len) {
  df_jtokens *t = x->out;
  if (t->n == t->cap) {
    size_t cap = t->cap ? t->cap * 2 : 256;
    df_jtoken *v = df_realloc(t->v, cap * sizeof *v);
    if (!v) return DF_OOM(x->err, "template tokens", cap * sizeof *v);
    t->v = v;
    t->cap = cap;
  }
  t->v[t->n++] = (df_jtoken){.type = (uint32_t)type, .line = x->line, .off = (uint32_t)off, .len = (uint32_t)len};
  return DF_OK;
}

static void advance(lexer *x, size_t to) {
  for (; x->pos < to; x->pos++) x->line += x->s[x->pos] == '\n';
}

/* Length of the white space at i. */
static size_t space_len(const lexer *x, size_t i) {
  size_t start = i;
  while (i < x->n) {
    size_t used;
    uint32_t cp = df_jutf8_get(x->s + i, x->n - i, &used);
    if (used == 0 || !df_jutf8_space(cp)) break;
    i += used;
  }
  return i - start;
}

/* End of [a, b) without trailing white space. */
static size_t rstrip(const lexer *x, size_t a, size_t b) {
  while (b > a) {
    size_t c = b - 1, used;
    while (c > a && ((unsigned char)x->s[c] & 0xC0) == 0x80) c--;
    uint32_t cp = df_jutf8_get(x->s + c, b - c, &used);
    if (!df_jutf8_space(cp)) break;
    b = c;
  }
  return b;
}

/* Where the text [a, b) in front of a tag ends, given the sign in the tag ('-', '+' or 0). */
static size_t text_end(const lexer *x, size_t a, size_t b, char sign, bool is_var) {
  if (sign == '-') return rstrip(x, a, b);
  if (sign == '+' || is_var) return b;
  size_t l = b;
  while (l > a && x->s[l - 1] != '\n') l--;
  bool at_line_start = l > a || a == 0 || x->s[a - 1] == '\n';
  return at_line_start && l < b && space_len(x, l) >= b - l ? l : b;
}

static bool at(const lexer *x, size_t i, const char *lit) {
  size_t n = strlen(lit);
  return i <= x->n && n <= x->n - i && memcmp(x->s + i, lit, n) == 0;
}

/* The end of a block-like tag at i ("%}", "-%}" with the white space after it, "+%}"); 0 when it is not there. A plain
 * end also takes one newline when trim is set. */
static size_t tag_end(const lexer *x, size_t i, const char *close, bool trim, bool plus) {
  if (at(x, i, "-") && at(x, i + 1, close)) return i + 3 + space_len(x, i + 3);
  if (plus && at(x, i, "+") && at(x, i + 1, close)) return i + 3;
  if (!at(x, i, close)) return 0;
  i += 2;
  return trim && at(x, i, "\n") ? i + 1 : i;
}

/* A tag "{% word %}" at i: its sign, and the end of the tag; 0 when something else is there. */
static size_t word_tag(const lexer *x, size_t i, const char *word, char *sign, bool trim, bool plus) {
  if (!at(x, i, "{%")) return 0;
  i += 2;
  *sign = 0;
  if (at(x, i, "-") || at(x, i, "+")) *sign = x->s[i++];
  i += space_len(x, i);
  if (!at(x, i, word)) return 0;
  i += strlen(word);
  i += space_len(x, i);
  return tag_end(x, i, "%}", trim, plus);
}

static df_status lex_comment(lexer *x, size_t start) {
  size_t i = start;
  if (start >= x->n) { /* a bare "{#" at the very end is accepted */
    advance(x, x->n);
    return DF_OK;
  }
  while (i < x->n && !at(x, i, "#}")) i++;
  if (i >= x->n) return LEX_FAIL(x, "missing end of comment", "", 0);
  char before = i > start ? x->s[i - 1] : 0;
  i += 2;
  if (before == '-')
    i += space_len(x, i);
  else if (before != '+' && at(x, i, "\n"))
    i++;
  advance(x, i);
  return DF_OK;
}

static df_status lex_raw(lexer *x, size_t start) {
  advance(x, start);
  if (start >= x->n) return DF_OK; /* as for comments */
  for (size_t i = start; i < x->n; i++) {
    char sign;
    size_t end = x->s[i] == '{' ? word_tag(x, i, "endraw", &sign, true, true) : 0;
    if (!end) continue;
    size_t stop = text_end(x, start, i, sign, false);
    if (stop > start) DF_TRY(push(x, TK_DATA, start, stop - start));
    advance(x, end);
    return DF_OK;
  }
  return LEX_FAIL(x, "missing end of raw block", "", 0);
}

static bool is_digit(char c) { return c >= '0' && c <= '9'; }

/* Digits with single underscores between them. */
static size_t digits(const lexer *x, size_t i) {
  size_t start = i;
  while (i < x->n && (is_digit(x->s[i]) || (x->s[i] == '_' && i > start && i + 1 < x->n && is_digit(x->s[i + 1])))) i++;
  return i - start;
}

static bool is_radix_digit(char c, int radix) {
  if (radix == 2) return c == '0' || c == '1';
  if (radix == 8) return c >= '0' && c <= '7';
  return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

static size_t radix_len(const lexer *x, size_t i) {
  if (x->s[i] != '0' || i + 2 >= x->n) return 0;
  char k = (char)(x->s[i + 1] | 0x20);
  int radix = k == 'b' ? 2 : k == 'o' ? 8 : k == 'x' ? 16 : 0;
  if (!radix) return 0;
  size_t j = i + 2;
  for (;;) {
    size_t d = j + (x->s[j] == '_');
    if (d >= x->n || !is_radix_digit(x->s[d], radix)) break;
    j = d + 1;
    if (j >= x->n) break;
  }
  return j > i + 2 ? j - i : 0;
}

static df_status lex_number(lexer *x) {
  size_t i = x->pos, n = digits(x, i), end = i + n;
  bool is_float = false;
  if (i == 0 || x->s[i - 1] != '.') { /* a.0.1 reads element 1 of element 0 */
    if (end + 1 < x->n && x->s[end] == '.' && is_digit(x->s[end + 1])) {
      end += 1 + digits(x, end + 1);
      is_float = true;
    }
    if (end < x->n && (x->s[end] | 0x20) == 'e') {
      size_t e = end + 1;
      if (e < x->n && (x->s[e] == '+' || x->s[e] == '-')) e++;
      size_t d = e < x->n ? digits(x, e) : 0;
      if (d) end = e + d, is_float = true;
    }
  }
  if (!is_float) {
    size_t r = radix_len(x, i);
    end = r ? i + r : i + n;
    if (!r && x->s[i] == '0') { /* 007 is three integers, and then a syntax error */
      end = i + 1;
      while (end < i + n && (x->s[end] == '0' || x->s[end] == '_')) end++;
    }
  }
  DF_TRY(push(x, is_float ? TK_FLOAT : TK_INT, i, end - i));
  advance(x, end);
  return DF_OK;
}

/* Names are ASCII letters, digits and underscores; other scripts are taken as letters. */
static bool is_name_byte(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || is_digit(c) || ((unsigned char)c & 0x80);
}

static df_status lex_string(lexer *x) {
  char q = x->s[x->pos];
  size_t i = x->pos + 1;
  while (i < x->n && x->s[i] != q) i += x->s[i] == '\\' ? 2 : 1;
  if (i >= x->n) return LEX_FAIL(x, "missing end of string", "", 0);
  DF_TRY(push(x, TK_STRING, x->pos, i + 1 - x->pos));
  advance(x, i + 1);
  return DF_OK;
}

static df_status balance(lexer *x, df_jtok t) {
  char c = x->s[x->pos];
  if (t == TK_LPAREN || t == TK_LBRACKET || t == TK_LBRACE) {
    if (x->n_open == sizeof x->open)
      return DF_FAIL(x->err, DF_ERR_LIMIT, "could not render the chat template: line %u: more than %d nested brackets",
                     x->line, JINJA_MAX_NESTING);
    x->open[x->n_open++] = t == TK_LPAREN ? ')' : t == TK_LBRACKET ? ']' : '}';
  } else if (t == TK_RPAREN || t == TK_RBRACKET || t == TK_RBRACE) {
    if (x->n_open == 0 || x->open[--x->n_open] != c) return LEX_FAIL(x, "unexpected ", &c, 1);
  }
  return DF_OK;
}

static df_status lex_operator(lexer *x) {
  static const struct {
    char text[3];
    uint8_t type;
  } ops[] = {{"//", TK_FLOORDIV}, {"**", TK_POW},   {"==", TK_EQ},      {"!=", TK_NE},      {">=", TK_GE},
             {"<=", TK_LE},       {"+", TK_ADD},    {"-", TK_SUB},      {"*", TK_MUL},      {"/", TK_DIV},
             {"%", TK_MOD},       {"~", TK_TILDE},  {"[", TK_LBRACKET}, {"]", TK_RBRACKET}, {"(", TK_LPAREN},
             {")", TK_RPAREN},    {"{", TK_LBRACE}, {"}", TK_RBRACE},   {">", TK_GT},       {"<", TK_LT},
             {"=", TK_ASSIGN},    {".", TK_DOT},    {":", TK_COLON},    {"|", TK_PIPE},     {",", TK_COMMA},
             {";", TK_SEMICOLON}};
  for (size_t i = 0; i < DF_COUNT_OF(ops); i++) {
    if (!at(x, x->pos, ops[i].text)) continue;
    size_t n = strlen(ops[i].text);
    DF_TRY(balance(x, (df_jtok)ops[i].type));
    DF_TRY(push(x, (df_jtok)ops[i].type, x->pos, n));
    x->pos += n;
    return DF_OK;
  }
  size_t used;
  (void)df_jutf8_get(x->s + x->pos, x->n - x->pos, &used);
  return LEX_FAIL(x, "unexpected character ", x->s + x->pos, used);
}

/* From behind "{%" or "{{" to behind the matching end. */
static df_status lex_tag(lexer *x, bool is_var) {
  x->n_open = 0;
  while (x->pos < x->n) {
    size_t end = x->n_open ? 0 : tag_end(x, x->pos, is_var ? "}}" : "%}", !is_var, !is_var);
    if (end) {
      DF_TRY(push(x, is_var ? TK_VAR_END : TK_BLOCK_END, x->pos, 0));
      advance(x, end);
      return DF_OK;
    }
    size_t sp = space_len(x, x->pos);
    char c = x->s[x->pos];
    if (sp) {
      advance(x, x->pos + sp);
    } else if (is_digit(c)) {
      DF_TRY(lex_number(x));
    } else if (is_name_byte(c)) {
      size_t i = x->pos;
      while (i < x->n && is_name_byte(x->s[i]) && !space_len(x, i)) i++;
      DF_TRY(push(x, TK_NAME, x->pos, i - x->pos));
      x->pos = i;
    } else if (c == '\'' || c == '"') {
      DF_TRY(lex_string(x));
    } else {
      DF_TRY(lex_operator(x));
    }
  }
  return DF_OK; /* the parser reports the missing end */
}

static size_t next_tag(const lexer *x, size_t i) {
  for (; i + 1 < x->n; i++)
    if (x->s[i] == '{' && (x->s[i + 1] == '%' || x->s[i + 1] == '{' || x->s[i + 1] == '#')) return i;
  return x->n;
}

static df_status lex_text(lexer *x) {
  size_t a = x->pos, b = next_tag(x, a);
  if (b == x->n) {
    if (b > a) DF_TRY(push(x, TK_DATA, a, b - a));
    advance(x, b);
    return DF_OK;
  }
  char kind = x->s[b + 1], sign = 0;
  size_t raw = kind == '%' ? word_tag(x, b, "raw", &sign, false, false) : 0;
  size_t i = b + 2;
  if (!raw) {
    sign = 0;
    if (at(x, i, "-") || at(x, i, "+")) sign = x->s[i++];
  }
  size_t stop = text_end(x, a, b, sign, kind == '{');
  if (stop > a) DF_TRY(push(x, TK_DATA, a, stop - a));
  advance(x, b);
  if (raw) return lex_raw(x, raw);
  if (kind == '#') {
    return lex_comment(x, i);
  }
  DF_TRY(push(x, kind == '{' ? TK_VAR_BEGIN : TK_BLOCK_BEGIN, b, 0));
  advance(x, i);
  return lex_tag(x, kind == '{');
}

df_status df_jlex(const char *src, size_t n, df_jtokens *out, df_error *err) {
  lexer x = {.s = src, .n = n, .line = 1, .out = out, .err = err};
  *out = (df_jtokens){0};
  df_status s = DF_OK;
  while (s == DF_OK && x.pos < x.n) s = lex_text(&x);
  if (s == DF_OK) s = push(&x, TK_EOF, n, 0);
  if (s != DF_OK) df_jtokens_release(out);
  return s;
}
