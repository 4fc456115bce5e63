#include "cli/term.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"

static const char *const style_codes[DF_STYLE_COUNT] = {
    [DF_STYLE_RESET] = "\033[0m", [DF_STYLE_BOLD] = "\033[1m",   [DF_STYLE_DIM] = "\033[2m",
    [DF_STYLE_RED] = "\033[31m",  [DF_STYLE_GREEN] = "\033[32m", [DF_STYLE_YELLOW] = "\033[33m",
    [DF_STYLE_BLUE] = "\033[34m", [DF_STYLE_CYAN] = "\033[36m"};

/* For the signal handler: which streams may be in the middle of a colour. */
static volatile bool reset_out, reset_err;

bool df_colour_wanted(const char *option, const char *no_color, const char *clicolor_force, const char *clicolor,
                      bool tty, const char *term_name) {
  if (option && strcmp(option, "on") == 0) return true;
  if (option && strcmp(option, "off") == 0) return false;
  if (no_color && *no_color) return false;
  if (clicolor_force && *clicolor_force && strcmp(clicolor_force, "0") != 0) return true;
  if (clicolor && strcmp(clicolor, "0") == 0) return false;
  return tty && term_name && *term_name && strcmp(term_name, "dumb") != 0;
}

void df_term_init(df_term *t, const char *color_option) {
  const char *term_name = getenv("TERM");
  const char *no_color = getenv("NO_COLOR"), *force = getenv("CLICOLOR_FORCE"), *clicolor = getenv("CLICOLOR");
  t->in_tty = isatty(STDIN_FILENO) == 1;
  t->out_tty = isatty(STDOUT_FILENO) == 1;
  t->err_tty = isatty(STDERR_FILENO) == 1;
  t->dumb = !term_name || !*term_name || strcmp(term_name, "dumb") == 0;
  t->colour_out = df_colour_wanted(color_option, no_color, force, clicolor, t->out_tty, term_name);
  t->colour_err = df_colour_wanted(color_option, no_color, force, clicolor, t->err_tty, term_name);
  reset_out = t->colour_out;
  reset_err = t->colour_err;
}

const char *df_term_out(const df_term *t, df_style s) { return t->colour_out ? style_codes[s] : ""; }
const char *df_term_err(const df_term *t, df_style s) { return t->colour_err ? style_codes[s] : ""; }

unsigned df_term_columns(int fd) {
  const int fds[] = {fd, STDERR_FILENO, STDIN_FILENO}; /* output into a pager: the terminal is still on the others */
  for (size_t i = 0; i < sizeof fds / sizeof fds[0]; i++) {
    struct winsize w;
    if (ioctl(fds[i], TIOCGWINSZ, &w) == 0 && w.ws_col > 0) return w.ws_col;
  }
  const char *env = getenv("COLUMNS");
  long n = env ? strtol(env, NULL, 10) : 0;
  return n >= 10 && n <= 1000 ? (unsigned)n : 80;
}

void df_term_reset_async(void) {
  ssize_t n = 0;
  if (reset_out) n = write(STDOUT_FILENO, "\033[0m", 4);
  if (reset_err) n = write(STDERR_FILENO, "\033[0m", 4);
  (void)n;
}

size_t df_text_columns(const char *s) {
  size_t n = 0;
  for (; *s; s++) n += ((unsigned char)*s & 0xC0) != 0x80;
  return n;
}

/* ---- numbers ---- */

void df_format_bytes(char *out, size_t cap, uint64_t bytes) {
  static const char *const units[] = {"B", "kB", "MB", "GB", "TB", "PB", "EB"};
  double v = (double)bytes;
  unsigned u = 0;
  while (v >= 999.5 && u < 6) {
    v /= 1000;
    u++;
  }
  int digits = u == 0 || v >= 99.95 ? 0 : v >= 9.995 ? 1 : 2;
  (void)snprintf(out, cap, "%.*f %s", digits, v, units[u]);
}

void df_format_count(char *out, size_t cap, uint64_t n) {
  if (n >= 1000000000)
    (void)snprintf(out, cap, "%.2f B", (double)n / 1e9);
  else if (n >= 1000000)
    (void)snprintf(out, cap, "%.1f M", (double)n / 1e6);
  else if (n >= 10000)
    (void)snprintf(out, cap, "%.1f k", (double)n / 1e3);
  else
    (void)snprintf(out, cap, "%llu", (unsigned long long)n);
}

void df_format_grouped(char *out, size_t cap, uint64_t n) {
  char plain[24];
  size_t len = (size_t)snprintf(plain, sizeof plain, "%llu", (unsigned long long)n), o = 0;
  for (size_t i = 0; i < len && o + 2 < cap; i++) {
    if (i > 0 && (len - i) % 3 == 0) out[o++] = ',';
    out[o++] = plain[i];
  }
  if (cap) out[o < cap ? o : cap - 1] = '\0';
}

/* ---- bars ---- */

void df_bar_format(char *out, size_t cap, double share, unsigned width) {
  static const char *const eighths[] = {"", "\u258f", "\u258e", "\u258d", "\u258c", "\u258b", "\u258a", "\u2589"};
  if (!(share > 0)) share = 0;
  if (share > 1) share = 1;
  unsigned units = (unsigned)floor(share * width * 8 + 0.5);
  size_t o = 0;
  for (unsigned i = 0; i < units / 8 && o + 4 <= cap; i++, o += 3) memcpy(out + o, "\u2588", 3);
  (void)snprintf(out + o, cap - o, "%s", eighths[units % 8]);
}

static void eta_format(char *out, size_t cap, double seconds) {
  if (!(seconds >= 0) || seconds > 359999) {
    (void)snprintf(out, cap, "--:--");
    return;
  }
  unsigned s = (unsigned)(seconds + 0.5);
  if (s >= 3600)
    (void)snprintf(out, cap, "%u:%02u:%02u", s / 3600, s / 60 % 60, s % 60);
  else
    (void)snprintf(out, cap, "%u:%02u", s / 60, s % 60);
}

static double share_of(uint64_t done, uint64_t total) { return done >= total ? 1.0 : (double)done / (double)total; }

/* "  42 %  12.3 MB/s  ETA 0:12" and shorter forms as the line gets narrow. */
static void progress_tail(char *out, size_t cap, uint64_t done, uint64_t total, double rate, bool bytes,
                          unsigned columns) {
  char eta[16] = "", amount[24] = "", speed[32] = "";
  df_format_bytes(amount, sizeof amount, done);
  if (bytes)
    df_format_bytes(speed, sizeof speed - 2, rate > 0 ? (uint64_t)rate : 0);
  else
    (void)snprintf(speed, sizeof speed, "%.1f ", rate);
  if (total == 0) {
    (void)snprintf(out, cap, bytes ? " %s  %s/s" : " %s", amount, speed);
    return;
  }
  unsigned percent = (unsigned)(share_of(done, total) * 100);
  eta_format(eta, sizeof eta, rate > 0 && done <= total ? (double)(total - done) / rate : -1);
  if (columns < 30)
    (void)snprintf(out, cap, " %3u %%", percent);
  else if (columns < 50 || !bytes)
    (void)snprintf(out, cap, " %3u %%  ETA %s", percent, eta);
  else
    (void)snprintf(out, cap, " %3u %%  %s/s  ETA %s", percent, speed, eta);
}

void df_progress_format(char *out, size_t cap, const char *label, uint64_t done, uint64_t total, double units_per_s,
                        bool bytes, unsigned columns) {
  char tail[96], bar[128];
  progress_tail(tail, sizeof tail, done, total, units_per_s, bytes, columns);
  size_t tail_w = strlen(tail), label_w = df_text_columns(label);
  if (tail_w > columns) tail[columns] = '\0', tail_w = columns;
  if (label_w + tail_w > columns) { /* no room for the name: cut it at a character border */
    size_t keep = columns > tail_w ? columns - tail_w : 0, i = 0, seen = 0;
    while (label[i]) {
      if (((unsigned char)label[i] & 0xC0) != 0x80 && seen++ == keep) break;
      i++;
    }
    (void)snprintf(out, cap, "%.*s%s", (int)i, label, tail);
    return;
  }
  size_t room = columns - label_w - tail_w;
  if (total == 0 || room < 10) {
    (void)snprintf(out, cap, "%s%s", label, tail);
    return;
  }
  unsigned width = room - 3 > 40 ? 40 : (unsigned)room - 3;
  unsigned full = (unsigned)(share_of(done, total) * width);
  for (unsigned i = 0; i < width; i++) bar[i] = i < full ? '#' : '.';
  bar[width] = '\0';
  (void)snprintf(out, cap, "%s [%s]%s", label, bar, tail);
}

/* ---- progress on the terminal ---- */

void df_progress_begin(df_progress *p, const df_term *t, const char *label, uint64_t total, uint64_t start,
                       bool bytes) {
  *p = (df_progress){.term = t, .label = label, .total = total, .start = start, .bytes = bytes, .t0_ns = df_now_ns()};
}

void df_progress_update(df_progress *p, uint64_t done) {
  if (!p->term->err_tty || p->term->dumb) return;
  uint64_t now = df_now_ns();
  if (p->drawn && now - p->last_ns < 100000000u) return;
  unsigned columns = df_term_columns(STDERR_FILENO);
  if (columns > 200) columns = 200;
  char line[1024];
  double seconds = (double)(now - p->t0_ns) / 1e9;
  double rate = done > p->start && seconds > 0.05 ? (double)(done - p->start) / seconds : 0;
  df_progress_format(line, sizeof line, p->label, done, p->total, rate, p->bytes, columns > 1 ? columns - 1 : 1);
  fprintf(stderr, "\r%s\033[K", line);
  fflush(stderr);
  p->last_ns = now;
  p->drawn = true;
}

void df_progress_end(df_progress *p) {
  if (!p->drawn) return;
  fputs("\r\033[K", stderr);
  fflush(stderr);
  p->drawn = false;
}

/* ---- tables ---- */

void df_table_init(df_table *t, unsigned n_cols, const char *const *head, const char *align) {
  *t = (df_table){.n_cols = n_cols};
  for (unsigned c = 0; c < n_cols; c++) {
    t->head[c] = head ? head[c] : NULL;
    t->right[c] = align[c] == 'r';
  }
}

void df_table_add(df_table *t, ...) {
  if (t->n_rows == t->cap_rows) {
    size_t cap = t->cap_rows ? t->cap_rows * 2 : 32;
    char **cells = df_realloc(t->cells, cap * t->n_cols * sizeof *cells);
    if (!cells) {
      t->failed = true;
      return;
    }
    t->cells = cells;
    t->cap_rows = cap;
  }
  va_list ap;
  va_start(ap, t);
  for (unsigned c = 0; c < t->n_cols; c++) {
    const char *s = va_arg(ap, const char *);
    t->cells[t->n_rows * t->n_cols + c] = df_strdup(s ? s : "");
    if (!t->cells[t->n_rows * t->n_cols + c]) t->failed = true;
  }
  va_end(ap);
  t->n_rows++;
}

static const char *cell(const df_table *t, size_t row, unsigned col) {
  const char *s = t->cells[row * t->n_cols + col];
  return s ? s : "";
}

/* Prints s padded (or cut with "...") to `width` characters. */
static void put_cell(FILE *out, const char *s, size_t width, bool right, bool last) {
  size_t w = df_text_columns(s), i = 0;
  if (w > width && width > 3) {
    for (size_t seen = 0; s[i]; i++) {
      if (((unsigned char)s[i] & 0xC0) != 0x80 && seen++ == width - 3) break;
    }
    fprintf(out, "%.*s...", (int)i, s);
    return;
  }
  size_t pad = w < width ? width - w : 0;
  if (right)
    fprintf(out, "%*s%s", (int)pad, "", s);
  else if (last)
    fputs(s, out);
  else
    fprintf(out, "%s%*s", s, (int)pad, "");
}

void df_table_print(const df_table *t, FILE *out, unsigned columns, const char *head_on, const char *head_off) {
  size_t width[DF_TABLE_COLS] = {0}, total = 0;
  for (unsigned c = 0; c < t->n_cols; c++) {
    if (t->head[c]) width[c] = df_text_columns(t->head[c]);
    for (size_t r = 0; r < t->n_rows; r++) {
      size_t w = df_text_columns(cell(t, r, c));
      if (w > width[c]) width[c] = w;
    }
    total += width[c] + (c ? 2 : 0);
  }
  if (columns && total > columns && width[0] > 12) { /* the first column holds the long names */
    size_t over = total - columns;
    width[0] = width[0] > over + 12 ? width[0] - over : 12;
  }
  for (size_t r = t->head[0] ? 0 : 1; r <= t->n_rows; r++) {
    if (r == 0) fputs(head_on, out);
    for (unsigned c = 0; c < t->n_cols; c++) {
      if (c) fputs("  ", out);
      put_cell(out, r == 0 ? t->head[c] : cell(t, r - 1, c), width[c], t->right[c], c + 1 == t->n_cols);
    }
    if (r == 0) fputs(head_off, out);
    fputc('\n', out);
  }
}

void df_table_release(df_table *t) {
  for (size_t i = 0; i < t->n_rows * t->n_cols; i++) df_free(t->cells[i]);
  df_free(t->cells);
  *t = (df_table){0};
}
