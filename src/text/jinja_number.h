/*
 * text/jinja_number.h - numbers to text and back, as Python writes them, whatever the locale of the process.
 *
 * Ownership: caller's buffers only. Threads: no shared state.
 */
#ifndef DF_TEXT_JINJA_NUMBER_H
#define DF_TEXT_JINJA_NUMBER_H

#include "text/jinja_value.h"

#define JNUMBER_MAX 40 /* bytes, with the zero, of any formatted int or float */

/* Shortest decimal that reads back as the same double: "2.0", "1e-07", "1e+22", "inf", "nan". Returns the length. */
size_t df_jnumber_repr(double f, char out[JNUMBER_MAX]);
/* printf-style fixed or exponent notation ('f' or 'e') with precision 0 … 300 and a point; out has `cap` bytes. */
size_t df_jnumber_fixed(double f, char style, int precision, char *out, size_t cap);
/* [sign] digits [. digits] [e exponent]; false when anything else is there. No white space, no underscores. */
bool df_jnumber_float(const char *p, size_t n, double *out);
/* Decimal with optional sign; false when not one or beyond 64 bits (*overflow tells). */
bool df_jnumber_int(const char *p, size_t n, int base, int64_t *out, bool *overflow);
/* A literal of the template language: underscores, 0x, 0o, 0b. */
bool df_jnumber_literal(const char *p, size_t n, bool is_float, df_jv *out);
/* Python's round(f, digits): exact decimal value, halves to even. */
double df_jnumber_round(double f, int digits);

#endif
