/*
 * cli/term.h - what the program knows about its terminal: colour, width, progress bar, tables, bar charts.
 *
 * Results go to standard output, everything else to standard error, so both streams are asked separately.
 * Threads: main thread only, except df_term_reset_async, which a signal handler may call.
 */
#ifndef DF_CLI_TERM_H
#define DF_CLI_TERM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

typedef struct df_term {
  bool in_tty, out_tty, err_tty;
  bool colour_out, colour_err;
  bool dumb; /* TERM=dumb or unset: no cursor movement */
} df_term;

typedef enum df_style {
  DF_STYLE_RESET,
  DF_STYLE_BOLD,
  DF_STYLE_DIM,
  DF_STYLE_RED,
  DF_STYLE_GREEN,
  DF_STYLE_YELLOW,
  DF_STYLE_BLUE,
  DF_STYLE_CYAN,
  DF_STYLE_COUNT
} df_style;

/* Precedence: option ("on", "off", "auto" or NULL) > NO_COLOR (non-empty) > CLICOLOR_FORCE (non-empty, not "0") >
 * CLICOLOR=0 > tty and TERM not dumb. The strings are values of those variables or NULL. */
bool df_colour_wanted(const char *option, const char *no_color, const char *clicolor_force, const char *clicolor,
                      bool tty, const char *term_name);

/* Asks the three streams and the environment. */
void df_term_init(df_term *t, const char *color_option);

/* Escape sequence for a style on standard output / standard error; "" without colour. */
const char *df_term_out(const df_term *t, df_style s);
const char *df_term_err(const df_term *t, df_style s);

/* Columns of the terminal behind `fd`, else behind standard error or input, else COLUMNS, else 80. */
unsigned df_term_columns(int fd);

/* Writes the reset sequence to the streams that may be coloured; safe in a signal handler. */
void df_term_reset_async(void);

/* Number of characters of UTF-8 text (one column each is assumed). */
size_t df_text_columns(const char *s);

/* ---- progress ---- */

typedef struct df_progress {
  const df_term *term;
  const char *label; /* borrowed */
  uint64_t total;    /* 0 = unknown */
  uint64_t start;    /* units that were there before (not counted for speed) */
  uint64_t t0_ns, last_ns;
  bool bytes; /* show MB and MB/s */
  bool drawn;
} df_progress;

void df_progress_begin(df_progress *p, const df_term *t, const char *label, uint64_t total, uint64_t start, bool bytes);
/* Redraws at most ten times a second, and only on a terminal that can move its cursor. */
void df_progress_update(df_progress *p, uint64_t done);
void df_progress_end(df_progress *p); /* wipes the line */
/* One bar line of at most `columns` characters (no escape sequences); cap >= 4 * columns. For tests too. */
void df_progress_format(char *out, size_t cap, const char *label, uint64_t done, uint64_t total, double units_per_s,
                        bool bytes, unsigned columns);

/* ---- tables ---- */

enum { DF_TABLE_COLS = 8 };

typedef struct df_table {
  unsigned n_cols;
  const char *head[DF_TABLE_COLS]; /* borrowed; all NULL = no header */
  bool right[DF_TABLE_COLS];       /* right-aligned */
  char **cells;                    /* owned, row-major */
  size_t n_rows, cap_rows;
  bool failed; /* out of memory: rows were lost */
} df_table;

void df_table_init(df_table *t, unsigned n_cols, const char *const *head, const char *align); /* align: 'l' or 'r' */
void df_table_add(df_table *t, ...); /* n_cols strings, copied; NULL = "" */
/* Prints with two blanks between columns. columns > 0: the first column is cut ("...") so that lines fit. */
void df_table_print(const df_table *t, FILE *out, unsigned columns, const char *head_on, const char *head_off);
void df_table_release(df_table *t);

/* A bar of `width` characters at most for 0 <= share <= 1, in eighths. Writes UTF-8, zero-terminated. */
void df_bar_format(char *out, size_t cap, double share, unsigned width);

/* "12.3 MB", "98.4 kB": decimal units, three digits. "134.5 M" style for counts without unit. */
void df_format_bytes(char *out, size_t cap, uint64_t bytes);
void df_format_count(char *out, size_t cap, uint64_t n);
/* Digits in groups of three: "1,117,320,768". */
void df_format_grouped(char *out, size_t cap, uint64_t n);

#endif
