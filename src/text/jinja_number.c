/* text/jinja_number.c - numbers to text and back. */
#include "text/jinja_number.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The decimal point of the process's locale, found without the shared state of localeconv. */
static void locale_point(char out[8]) {
  char t[16];
  int n = snprintf(t, sizeof t, "%.1f", 0.5);
  size_t len = n > 2 && n < 10 ? (size_t)n - 2 : 1;
  memcpy(out, t + 1, len);
  out[len] = '\0';
}

/* Replaces the locale's decimal point by a dot; returns the new length. */
static size_t fix_point(char *s, size_t n) {
  size_t i = 0, j;
  while (i < n && (s[i] == '-' || (s[i] >= '0' && s[i] <= '9'))) i++;
  for (j = i; j < n && !(s[j] >= '0' && s[j] <= '9') && s[j] != 'e'; j++) {
  }
  if (j == i) return n;
  s[i] = '.';
  memmove(s + i + 1, s + j, n - j + 1);
  return n - (j - i) + 1;
}

static size_t special(double f, char *out) {
  const char *s = isnan(f) ? "nan" : f < 0 ? "-inf" : "inf";
  memcpy(out, s, strlen(s) + 1);
  return strlen(s);
}

size_t df_jnumber_fixed(double f, char style, int precision, char *out, size_t cap) {
  if (!isfinite(f)) return special(f, out);
  int n = style == 'f' ? snprintf(out, cap, "%.*f", precision, f) : snprintf(out, cap, "%.*e", precision, f);
  if (n < 0 || (size_t)n >= cap) {
    out[0] = '\0';
    return 0;
  }
  return fix_point(out, (size_t)n);
}

size_t df_jnumber_repr(double f, char out[JNUMBER_MAX]) {
  if (!isfinite(f)) return special(f, out);
  char t[JNUMBER_MAX];
  size_t n = 0;
  for (int p = 0; p <= 16; p++) {
    n = df_jnumber_fixed(f, 'e', p, t, sizeof t);
    double back;
    if (df_jnumber_float(t, n, &back) && back == f) break;
  }
  /* t is [-]d[.ddd]e[+-]xx */
  char *e = memchr(t, 'e', n), digits[24];
  int64_t exponent = 0;
  bool over;
  if (e) (void)df_jnumber_int(e + 1, n - (size_t)(e + 1 - t), 10, &exponent, &over);
  int exp = (int)exponent, nd = 0;
  for (char *c = t; e && c < e; c++)
    if (*c >= '0' && *c <= '9') digits[nd++] = *c;
  while (nd > 1 && digits[nd - 1] == '0') nd--;
  size_t o = 0;
  if (t[0] == '-') out[o++] = '-';
  if (exp < -4 || exp >= 16) {
    out[o++] = digits[0];
    if (nd > 1) out[o++] = '.';
    for (int i = 1; i < nd; i++) out[o++] = digits[i];
    return o + (size_t)snprintf(out + o, JNUMBER_MAX - o, "e%c%02d", exp < 0 ? '-' : '+', abs(exp));
  }
  if (exp < 0) {
    out[o++] = '0';
    out[o++] = '.';
    for (int i = -1; i > exp; i--) out[o++] = '0';
    for (int i = 0; i < nd; i++) out[o++] = digits[i];
  } else {
    for (int i = 0; i <= exp || i < nd; i++) {
      if (i == exp + 1) out[o++] = '.';
      out[o++] = i < nd ? digits[i] : '0';
    }
    if (nd <= exp + 1) {
      out[o++] = '.';
      out[o++] = '0';
    }
  }
  out[o] = '\0';
  return o;
}

static size_t digit_run(const char *p, size_t n) {
  size_t i = 0;
  while (i < n && p[i] >= '0' && p[i] <= '9') i++;
  return i;
}

static bool float_syntax(const char *p, size_t n) {
  size_t i = n && (p[0] == '-' || p[0] == '+');
  size_t whole = digit_run(p + i, n - i), frac = 0;
  i += whole;
  if (i < n && p[i] == '.') {
    frac = digit_run(p + i + 1, n - i - 1);
    i += 1 + frac;
  }
  if (whole + frac == 0) return false;
  if (i < n && (p[i] | 0x20) == 'e') {
    i++;
    if (i < n && (p[i] == '-' || p[i] == '+')) i++;
    size_t e = digit_run(p + i, n - i);
    if (e == 0) return false;
    i += e;
  }
  return i == n;
}

bool df_jnumber_float(const char *p, size_t n, double *out) {
  enum { SMALL = 1024 };
  char t[SMALL + 8], point[8];
  if (!float_syntax(p, n) || n > SMALL) return false;
  locale_point(point);
  size_t o = 0;
  for (size_t i = 0; i < n; i++) {
    if (p[i] != '.') {
      t[o++] = p[i];
      continue;
    }
    size_t k = strlen(point);
    memcpy(t + o, point, k);
    o += k;
  }
  t[o] = '\0';
  *out = strtod(t, NULL);
  return true;
}

static int digit_of(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  c = (char)(c | 0x20);
  return c >= 'a' && c <= 'z' ? c - 'a' + 10 : 99;
}

bool df_jnumber_int(const char *p, size_t n, int base, int64_t *out, bool *overflow) {
  size_t i = n && (p[0] == '-' || p[0] == '+');
  bool neg = i && p[0] == '-';
  int64_t v = 0;
  *overflow = false;
  if (i == n) return false;
  for (; i < n; i++) {
    int d = digit_of(p[i]);
    if (d >= base) return false;
    /* Counts downwards, where the range is larger by one. */
    if (__builtin_mul_overflow(v, base, &v) || __builtin_sub_overflow(v, d, &v)) *overflow = true;
  }
  if (!neg && v == INT64_MIN) *overflow = true;
  if (*overflow) return false;
  *out = neg ? v : -v;
  return true;
}

bool df_jnumber_literal(const char *p, size_t n, bool is_float, df_jv *out) {
  char t[512];
  size_t o = 0;
  for (size_t i = 0; i < n; i++) {
    if (p[i] == '_') continue;
    if (o == sizeof t) return false;
    t[o++] = p[i];
  }
  double f;
  int64_t v;
  bool over;
  if (is_float) {
    if (!df_jnumber_float(t, o, &f)) return false;
    *out = df_jv_float(f);
    return true;
  }
  char k = o > 2 && t[0] == '0' ? (char)(t[1] | 0x20) : 0;
  int base = k == 'x' ? 16 : k == 'o' ? 8 : k == 'b' ? 2 : 10;
  if (!df_jnumber_int(base == 10 ? t : t + 2, base == 10 ? o : o - 2, base, &v, &over)) return false;
  *out = df_jv_int(v);
  return true;
}

double df_jnumber_round(double f, int digits) {
  char t[700];
  if (!isfinite(f) || digits > 300) return f;
  if (digits < -308) return 0.0 * f;
  if (digits >= 0) {
    double back = f;
    size_t n = df_jnumber_fixed(f, 'f', digits, t, sizeof t);
    return n && df_jnumber_float(t, n, &back) ? back : f;
  }
  /* Left of the point: as many significant digits as stay. */
  int exp = f == 0 ? 0 : (int)floor(log10(fabs(f)));
  int keep = exp + digits;
  if (keep < 0) {
    double unit = pow(10, -digits);
    return fabs(f) > unit / 2 ? copysign(unit, f) : 0.0 * f;
  }
  double back = f;
  size_t n = df_jnumber_fixed(f, 'e', keep, t, sizeof t);
  return n && df_jnumber_float(t, n, &back) ? back : f;
}
