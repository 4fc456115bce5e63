/* Colour rules, progress lines, tables, bars and numbers of the command line program. */
// clang-format off
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
// clang-format on

#include <stdio.h>
#include <string.h>

#include "base/size.h"
#include "cli/term.h"

static void test_colour_wanted__precedence(void **state) {
  (void)state;
  static const struct {
    const char *option, *no_color, *force, *clicolor;
    bool tty;
    const char *term;
    bool want;
  } cases[] = {
      {NULL, NULL, NULL, NULL, true, "xterm", true}, {NULL, NULL, NULL, NULL, false, "xterm", false},
      {NULL, NULL, NULL, NULL, true, "dumb", false}, {NULL, NULL, NULL, NULL, true, NULL, false},
      {NULL, NULL, NULL, NULL, true, "", false},     {"auto", NULL, NULL, NULL, true, "xterm", true},
      {NULL, "1", NULL, NULL, true, "xterm", false}, {NULL, "", NULL, NULL, true, "xterm", true}, /* empty: not set */
      {NULL, NULL, "1", NULL, false, "dumb", true},  {NULL, NULL, "0", NULL, false, "xterm", false},
      {NULL, "1", "1", NULL, true, "xterm", false}, /* NO_COLOR beats CLICOLOR_FORCE */
      {NULL, NULL, NULL, "0", true, "xterm", false}, {NULL, NULL, "1", "0", false, "xterm", true},
      {"on", "1", NULL, "0", false, "dumb", true},   {"off", NULL, "1", NULL, true, "xterm", false},
  };
  for (size_t i = 0; i < DF_COUNT_OF(cases); i++) {
    bool got = df_colour_wanted(cases[i].option, cases[i].no_color, cases[i].force, cases[i].clicolor, cases[i].tty,
                                cases[i].term);
    if (got != cases[i].want) fail_msg("case %zu", i);
  }
}

static void test_styles__empty_without_colour(void **state) {
  (void)state;
  df_term off = {0}, on = {.colour_out = true, .colour_err = true};
  for (int s = 0; s < DF_STYLE_COUNT; s++) {
    assert_string_equal(df_term_out(&off, (df_style)s), "");
    assert_string_equal(df_term_err(&off, (df_style)s), "");
    assert_int_equal(df_term_out(&on, (df_style)s)[0], '\033');
  }
  assert_string_equal(df_term_out(&on, DF_STYLE_RESET), "\033[0m");
}

static void test_progress_format__never_wider_than_the_terminal(void **state) {
  (void)state;
  static const char *const labels[] = {"x", "loading", "a-rather-long-name-of-a-model-to-fetch", "m\u00fcller \u4e2d"};
  static const uint64_t totals[] = {0, 1, 1000, 1117320768};
  char line[1024];
  for (unsigned columns = 1; columns <= 130; columns++) {
    for (size_t l = 0; l < DF_COUNT_OF(labels); l++) {
      for (size_t t = 0; t < DF_COUNT_OF(totals); t++) {
        for (int bytes = 0; bytes < 2; bytes++) {
          for (unsigned k = 0; k <= 4; k++) {
            df_progress_format(line, sizeof line, labels[l], totals[t] * k / 3, totals[t], k * 1e6, bytes, columns);
            if (df_text_columns(line) > columns) fail_msg("%u columns: \"%s\"", columns, line);
          }
        }
      }
    }
  }
}

static void test_progress_format__content(void **state) {
  (void)state;
  char line[256];
  df_progress_format(line, sizeof line, "fetching", 50000000, 100000000, 25e6, true, 79);
  assert_non_null(strstr(line, " 50 %  25.0 MB/s  ETA 0:02"));
  const char *bar = strchr(line, '[') + 1;
  size_t full = strspn(bar, "#");
  assert_true(full >= 15);
  assert_in_range(strspn(bar + full, "."), full, full + 1); /* half of it */
  df_progress_format(line, sizeof line, "fetching", 100000000, 100000000, 25e6, true, 79);
  assert_non_null(strstr(line, "100 %"));
  assert_null(strstr(line, "#.")); /* a full bar has no dots */
  df_progress_format(line, sizeof line, "fetching", 0, 100, 0, true, 79);
  assert_non_null(strstr(line, "ETA --:--")); /* nothing is known yet */
  df_progress_format(line, sizeof line, "fetching", 7000000, 0, 1e6, true, 79);
  assert_non_null(strstr(line, "7.00 MB  1.00 MB/s"));
}

static void test_numbers__rounding_and_units(void **state) {
  (void)state;
  static const struct {
    uint64_t v;
    const char *bytes, *grouped;
  } cases[] = {{0, "0 B", "0"},
               {999, "999 B", "999"},
               {1000, "1.00 kB", "1,000"},
               {98362432, "98.4 MB", "98,362,432"},
               {999999, "1.00 MB", "999,999"},
               {1117320768, "1.12 GB", "1,117,320,768"},
               {UINT64_MAX, "18.4 EB", "18,446,744,073,709,551,615"}};
  char text[64];
  for (size_t i = 0; i < DF_COUNT_OF(cases); i++) {
    df_format_bytes(text, sizeof text, cases[i].v);
    assert_string_equal(text, cases[i].bytes);
    df_format_grouped(text, sizeof text, cases[i].v);
    assert_string_equal(text, cases[i].grouped);
  }
  df_format_count(text, sizeof text, 134515008);
  assert_string_equal(text, "134.5 M");
}

static void test_bar_format__eighths(void **state) {
  (void)state;
  char bar[64];
  df_bar_format(bar, sizeof bar, 0, 4);
  assert_string_equal(bar, "");
  df_bar_format(bar, sizeof bar, 1, 3);
  assert_string_equal(bar, "\u2588\u2588\u2588");
  df_bar_format(bar, sizeof bar, 0.5, 1);
  assert_string_equal(bar, "\u258c");
  df_bar_format(bar, sizeof bar, 0.0 / 0.0, 4); /* no drafts: no bar */
  assert_string_equal(bar, "");
  df_bar_format(bar, sizeof bar, 7, 2);
  assert_string_equal(bar, "\u2588\u2588");
  for (size_t cap = 1; cap < 12; cap++) { /* never writes past cap */
    memset(bar, 'x', sizeof bar);
    df_bar_format(bar, cap, 0.97, 10);
    assert_true(strlen(bar) < cap);
    assert_int_equal(bar[cap], 'x');
  }
}

static void print_table(const df_table *t, unsigned columns, char *out, size_t cap) {
  FILE *f = tmpfile();
  assert_non_null(f);
  df_table_print(t, f, columns, "<", ">");
  rewind(f);
  size_t n = fread(out, 1, cap - 1, f);
  out[n] = '\0';
  (void)fclose(f);
}

static void test_table__alignment_and_cutting(void **state) {
  (void)state;
  static const char *const head[] = {"name", "n"};
  df_table t;
  char out[512];
  df_table_init(&t, 2, head, "lr");
  df_table_add(&t, "a", "7");
  df_table_add(&t, "\u00e4\u00f6\u00fc.blk.attention.weight", "1,024");
  print_table(&t, 0, out, sizeof out);
  assert_string_equal(out,
                      "<name                          n>\n"
                      "a                             7\n"
                      "\u00e4\u00f6\u00fc.blk.attention.weight  1,024\n");
  print_table(&t, 22, out, sizeof out);
  assert_non_null(strstr(out, "\n\u00e4\u00f6\u00fc.blk.atte...  1,024\n"));
  for (char *line = out; *line;) {
    size_t n = strcspn(line, "\n");
    line[n] = '\0';
    if (line[0] != '<') assert_true(df_text_columns(line) <= 22);
    line += n + 1;
  }
  df_table_release(&t);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_colour_wanted__precedence),
      cmocka_unit_test(test_styles__empty_without_colour),
      cmocka_unit_test(test_progress_format__never_wider_than_the_terminal),
      cmocka_unit_test(test_progress_format__content),
      cmocka_unit_test(test_numbers__rounding_and_units),
      cmocka_unit_test(test_bar_format__eighths),
      cmocka_unit_test(test_table__alignment_and_cutting),
  };
  return cmocka_run_group_tests_name("cli_term", tests, NULL, NULL);
}
