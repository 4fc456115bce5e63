/* Numbers within bounds, digit by digit. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/size.h"
#include "engine/json_schema_gen.h"

#define FRACTION "(\".\" [0-9]{1,16})?"
#define LARGEST UINT64_C(999999999999999999)

static df_status put(schema_gen *g, df_buf *b, const char *s) { return df_buf_puts(b, s, g->err); }

static df_status put_digits(schema_gen *g, df_buf *b, char lo, char hi, size_t any) {
  DF_TRY(df_buf_printf(b, g->err, lo == hi ? "\"%c\"" : "[%c-%c]", lo, hi));
  if (any == 0) return DF_OK;
  return df_buf_printf(b, g->err, " [0-9]{%zu}", any);
}

static bool all(const char *s, char c) {
  while (*s == c) s++;
  return *s == '\0';
}

/* Numbers of as many digits as both bounds have: shared digits, then by the first that differs. Recursion: one level a
 * digit. */
static df_status put_same_length(schema_gen *g, const char *lo, const char *hi, df_buf *b) {
  size_t rest = strlen(lo) - 1;
  const char *zeros = &"0000000000000000000"[19 - rest], *nines = &"9999999999999999999"[19 - rest];
  if (rest == 0 || (all(lo + 1, '0') && all(hi + 1, '9'))) return put_digits(g, b, *lo, *hi, rest);
  if (*lo == *hi) {
    DF_TRY(df_buf_printf(b, g->err, "\"%c\" (", *lo));
    DF_TRY(put_same_length(g, lo + 1, hi + 1, b));
    return put(g, b, ")");
  }
  char from = *lo, to = *hi;
  if (!all(lo + 1, '0')) {
    DF_TRY(df_buf_printf(b, g->err, "\"%c\" (", from++));
    DF_TRY(put_same_length(g, lo + 1, nines, b));
    DF_TRY(put(g, b, from <= to ? ") | " : ")"));
  }
  if (!all(hi + 1, '9')) {
    DF_TRY(df_buf_printf(b, g->err, "\"%c\" (", to--));
    DF_TRY(put_same_length(g, zeros, hi + 1, b));
    DF_TRY(put(g, b, from <= to ? ") | " : ")"));
  }
  return from <= to ? put_digits(g, b, from, to, rest) : DF_OK;
}

/* "(" a..b ")" */
static df_status put_range(schema_gen *g, uint64_t a, uint64_t b, df_buf *out) {
  bool some = false;
  DF_TRY(put(g, out, "("));
  for (uint64_t first = 0, last = 9;; first = last + 1, last = last * 10 + 9) {
    char lo[24], hi[24];
    if (a <= last && b >= first) {
      (void)snprintf(lo, sizeof lo, "%llu", (unsigned long long)DF_MAX(a, first));
      (void)snprintf(hi, sizeof hi, "%llu", (unsigned long long)DF_MIN(b, last));
      if (some) DF_TRY(put(g, out, " | "));
      DF_TRY(put_same_length(g, lo, hi, out));
      some = true;
    }
    if (b <= last) break;
  }
  return put(g, out, ")");
}

static uint64_t magnitude(int64_t v) { return v < 0 ? 0 - (uint64_t)v : (uint64_t)v; }

static df_status put_integer(schema_gen *g, const schema_bounds *r, df_buf *b) {
  bool positive = !r->has_max || r->max >= 0, negative = !r->has_min || r->min < 0;
  if (positive) {
    uint64_t lo = r->has_min && r->min > 0 ? magnitude(r->min) : 0, hi = r->has_max ? magnitude(r->max) : LARGEST;
    DF_TRY(put_range(g, lo, DF_MAX(hi, lo), b));
  }
  if (positive && negative) DF_TRY(put(g, b, " | "));
  if (negative) {
    uint64_t lo = r->has_max && r->max < 0 ? magnitude(r->max) : 1, hi = r->has_min ? magnitude(r->min) : LARGEST;
    DF_TRY(put(g, b, "\"-\" "));
    DF_TRY(put_range(g, lo, DF_MAX(hi, lo), b));
  }
  return DF_OK;
}

/* Numbers at least zero from lo to hi; open ends leave out the bound. *some: there was one before, and now is. */
static df_status put_decimals(schema_gen *g, const char *sign, uint64_t lo, bool open_lo, uint64_t hi, bool open_hi,
                              bool *some, df_buf *b) {
  const char *const bar = " | ";
  hi = DF_MAX(hi, lo); /* a bound beyond the digits that there are otherwise */
  if (lo == hi && (open_lo || open_hi)) return DF_OK;
  if (!open_hi) { /* hi itself */
    DF_TRY(put(g, b, *some ? bar : ""));
    DF_TRY(df_buf_printf(b, g->err, "\"%s%llu\" (\".\" \"0\"{1,16})?", sign, (unsigned long long)hi));
    *some = true;
  }
  if (lo < hi && open_lo) { /* lo and a fraction that is not zero */
    DF_TRY(put(g, b, *some ? bar : ""));
    DF_TRY(df_buf_printf(b, g->err, "\"%s%llu.\" \"0\"{0,15} [1-9] [0-9]{0,15}", sign, (unsigned long long)lo));
    *some = true;
    lo++;
  }
  if (lo >= hi) return DF_OK;
  DF_TRY(put(g, b, *some ? bar : ""));
  if (*sign) DF_TRY(df_buf_printf(b, g->err, "\"%s\" ", sign));
  DF_TRY(put_range(g, lo, hi - 1, b));
  *some = true;
  return put(g, b, " " FRACTION);
}

static df_status put_decimal(schema_gen *g, const schema_bounds *r, df_buf *b) {
  bool some = false;
  if (!r->has_max || r->max >= 0) {
    bool bound = r->has_min && r->min >= 0;
    DF_TRY(put_decimals(g, "", bound ? magnitude(r->min) : 0, bound && r->open_min,
                        r->has_max ? magnitude(r->max) : LARGEST, r->has_max && r->open_max, &some, b));
  }
  if (!r->has_min || r->min < 0) { /* by magnitude, so the ends change places; not "-0" */
    bool bound = r->has_max && r->max < 0;
    DF_TRY(put_decimals(g, "-", bound ? magnitude(r->max) : 0, bound ? r->open_max : true,
                        r->has_min ? magnitude(r->min) : LARGEST, r->has_min && r->open_min, &some, b));
  }
  return some ? DF_OK : schema_put_shared(g, SHARED_NEVER, b);
}

/* One bound of one part joins the others. */
static df_status join_bound(schema_gen *g, const schema_conj *c, const df_json *v, const char *key, bool integer,
                            schema_bounds *r) {
  const df_json *bound = df_json_member(v, key);
  bool open = key[0] == 'e', lower = strstr(key, "inimum") != NULL;
  double d = df_json_num(bound);
  int64_t value = df_json_int(bound);
  if (!bound) return DF_OK;
  if (df_json_kind_of(bound) == DF_JSON_REAL) {
    double whole = lower ? ceil(d) : floor(d);
    if (!(d > -9e15 && d < 9e15)) return schema_fail(g, c, DF_ERR_UNSUPPORTED, "\"%s\" is too large", key);
    if (whole != d && !integer) return schema_fail(g, c, DF_ERR_UNSUPPORTED, "\"%s\" of a number must be whole", key);
    if (whole != d) open = false;
    value = (int64_t)whole;
  } else if (df_json_kind_of(bound) != DF_JSON_INT) {
    return schema_fail(g, c, DF_ERR_FORMAT, "\"%s\" must be a number", key);
  }
  if (value > INT64_MAX - 1 || value < -INT64_MAX + 1)
    return schema_fail(g, c, DF_ERR_UNSUPPORTED, "\"%s\" is too large", key);
  if (open && integer) value += lower ? 1 : -1;
  open = open && !integer;
  if (lower && (!r->has_min || value > r->min || (value == r->min && open)))
    r->has_min = true, r->min = value, r->open_min = open;
  if (!lower && (!r->has_max || value < r->max || (value == r->max && open)))
    r->has_max = true, r->max = value, r->open_max = open;
  return DF_OK;
}

static df_status join_format(schema_gen *g, const schema_conj *c, const df_json *v, bool integer, schema_bounds *r) {
  const char *format = df_json_str(df_json_member(v, "format"), NULL);
  if (!df_json_member(v, "format")) return DF_OK;
  if (!format) return schema_fail(g, c, DF_ERR_FORMAT, "\"format\" must be a string");
  if (strcmp(format, "int32") == 0) {
    if (!r->has_min || r->min < INT32_MIN) r->has_min = true, r->min = INT32_MIN, r->open_min = false;
    if (!r->has_max || r->max > INT32_MAX) r->has_max = true, r->max = INT32_MAX, r->open_max = false;
    return DF_OK;
  }
  if (strcmp(format, "int64") == 0 || (!integer && (!strcmp(format, "float") || !strcmp(format, "double"))))
    return DF_OK; /* all 18 digits fit */
  return schema_fail(g, c, DF_ERR_UNSUPPORTED, "format \"%.64s\" is not supported for numbers", format);
}

df_status schema_put_number(schema_gen *g, const schema_conj *c, bool integer, df_buf *b) {
  static const char *const keys[] = {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"};
  schema_bounds r = {0};
  for (uint32_t i = 0; i < c->n; i++) {
    for (size_t k = 0; k < DF_COUNT_OF(keys); k++) DF_TRY(join_bound(g, c, c->part[i].v, keys[k], integer, &r));
    DF_TRY(join_format(g, c, c->part[i].v, integer, &r));
  }
  if (!r.has_min && !r.has_max) return schema_put_shared(g, integer ? SHARED_INTEGER : SHARED_NUMBER, b);
  if (r.has_min && r.has_max && r.min > r.max) return schema_put_shared(g, SHARED_NEVER, b);
  return integer ? put_integer(g, &r, b) : put_decimal(g, &r, b);
}
