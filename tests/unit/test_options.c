/* The option table: consistent, complete, and parsed as documented. */
// clang-format off
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
// clang-format on

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/size.h"
#include "cli/options.h"
#include "cli/verbs.h"
#include "support/test_models.h"

enum { MAX_WORDS = 512 };

typedef struct spelling {
  char text[64];
  int id;
  bool negated;
} spelling;

/* Every spelling of the table. */
static size_t all_spellings(spelling *out) {
  size_t n = 0;
  for (int i = 0; i < OPT_COUNT; i++) {
    const df_opt *o = &df_opt_table[i];
    (void)snprintf(out[n].text, sizeof out[n].text, "--%s", o->name);
    out[n].id = i;
    out[n++].negated = false;
    for (int k = 0; k < 2; k++) {
      const char *list = k ? o->negative : o->aliases, *w;
      size_t len;
      while ((list = df_word_next(list, &w, &len)) != NULL) {
        assert_true(n < MAX_WORDS);
        (void)snprintf(out[n].text, sizeof out[n].text, "%.*s", (int)len, w);
        out[n].id = i;
        out[n++].negated = k == 1;
      }
    }
  }
  return n;
}

static void test_table__complete_and_unique(void **state) {
  (void)state;
  spelling s[MAX_WORDS];
  size_t n = all_spellings(s);
  for (int i = 0; i < OPT_COUNT; i++) {
    const df_opt *o = &df_opt_table[i];
    assert_non_null(o->name);
    assert_non_null(o->aliases);
    assert_non_null(o->negative);
    assert_non_null(o->help);
    assert_true(o->verbs != 0);
    assert_true(o->name[0] != '-');
    assert_true(o->help[strlen(o->help) - 1] != '.');
    assert_int_equal(o->kind == DF_OPT_CHOICE, o->choices != NULL && o->kind != DF_OPT_SIZE);
    if (o->kind != DF_OPT_FLAG) assert_non_null(o->metavar);
    if (o->kind != DF_OPT_FLAG) assert_string_equal(o->negative, "");
    if (o->kind == DF_OPT_SIZE || o->kind == DF_OPT_REAL) assert_true(o->max > o->min);
  }
  for (size_t a = 0; a < n; a++) {
    assert_true(s[a].text[0] == '-' && s[a].text[1] != '\0');
    for (size_t b = a + 1; b < n; b++) {
      if (strcmp(s[a].text, s[b].text) == 0) fail_msg("%s is listed twice", s[a].text);
    }
  }
}

static void test_env_name__unique_and_upper_case(void **state) {
  (void)state;
  char names[OPT_COUNT][64];
  for (int i = 0; i < OPT_COUNT; i++) {
    df_opt_env_name(&df_opt_table[i], names[i], sizeof names[i]);
    assert_memory_equal(names[i], "DF_", 3);
    assert_int_equal(strspn(names[i], "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_"), strlen(names[i]));
    for (int k = 0; k < i; k++) assert_string_not_equal(names[i], names[k]);
  }
  assert_string_equal(names[OPT_CTX_SIZE], "DF_CTX_SIZE");
  assert_string_equal(names[OPT_CPU], "DF_CPU");
  assert_string_equal(names[OPT_LOG], "DF_LOG");
  assert_string_equal(names[OPT_CACHE_DIR], "DF_CACHE_DIR");
}

/* A value that the option accepts. */
static const char *valid_value(const df_opt *o, char *buf, size_t cap) {
  switch (o->kind) {
    case DF_OPT_FLAG: return NULL;
    case DF_OPT_CHOICE: (void)snprintf(buf, cap, "%.*s", (int)strcspn(o->choices, "|"), o->choices); return buf;
    case DF_OPT_SIZE: (void)snprintf(buf, cap, "%.0f", o->min + 1); return buf;
    case DF_OPT_REAL: (void)snprintf(buf, cap, "%g", o->min + (o->max - o->min) / 4); return buf;
    case DF_OPT_STR:
    case DF_OPT_PATH:
    case DF_OPT_LIST: break;
  }
  return "text";
}

static uint32_t first_verb(uint32_t verbs) { return verbs & (~verbs + 1); }

static const char *no_environment(const char *name) {
  (void)name;
  return NULL;
}

static void test_parse__every_spelling(void **state) {
  (void)state;
  spelling s[MAX_WORDS];
  size_t n = all_spellings(s);
  for (size_t i = 0; i < n; i++) {
    const df_opt *opt = &df_opt_table[s[i].id];
    char value[64], joined[160];
    const char *v = valid_value(opt, value, sizeof value);
    df_opts o;
    df_error err = {0};
    char *argv[] = {"dflash", "verb", s[i].text, (char *)(uintptr_t)v, NULL};
    if (df_opts_parse(&o, first_verb(opt->verbs), v ? 4 : 3, argv, 2, no_environment, &err) != DF_OK)
      fail_msg("%s: %s", s[i].text, err.msg);
    assert_true(df_opt_given(&o, (df_opt_id)s[i].id));
    assert_int_equal(o.v[s[i].id].source, DF_FROM_ARGV);
    if (opt->kind == DF_OPT_FLAG)
      assert_int_equal(o.v[s[i].id].on, !s[i].negated);
    else
      assert_string_equal(o.v[s[i].id].text, v);
    for (int k = 0; k < OPT_COUNT; k++) assert_int_equal(df_opt_given(&o, (df_opt_id)k), k == s[i].id);
    if (!v) continue;
    (void)snprintf(joined, sizeof joined, "%.63s=%.63s", s[i].text, v); /* --name=value is the same */
    char *argv2[] = {"dflash", "verb", joined, NULL};
    assert_int_equal(df_opts_parse(&o, first_verb(opt->verbs), 3, argv2, 2, no_environment, &err), DF_OK);
    assert_string_equal(o.v[s[i].id].text, v);
  }
}

static df_status parse(df_opts *o, uint32_t verb, df_error *err, int n, ...) {
  static char *argv[32];
  va_list ap;
  argv[0] = "dflash";
  argv[1] = "verb";
  va_start(ap, n);
  for (int i = 0; i < n; i++) argv[2 + i] = va_arg(ap, char *);
  va_end(ap);
  return df_opts_parse(o, verb, 2 + n, argv, 2, no_environment, err);
}

/* The spellings that people bring from other engines, by what they must do here. */
static void test_parse__spellings_of_other_engines(void **state) {
  (void)state;
  static const struct {
    const char *flag, *value;
    int id;
  } known[] = {{"-m", "f", OPT_MODEL},
               {"--model", "f", OPT_MODEL},
               {"--model-path", "f", OPT_MODEL},
               {"-md", "f", OPT_DRAFT_MODEL},
               {"--spec-draft-model", "f", OPT_DRAFT_MODEL},
               {"--model-draft", "f", OPT_DRAFT_MODEL},
               {"--speculative-draft-model-path", "f", OPT_DRAFT_MODEL},
               {"-n", "5", OPT_PREDICT},
               {"--predict", "5", OPT_PREDICT},
               {"--n-predict", "5", OPT_PREDICT},
               {"--max-tokens", "5", OPT_PREDICT},
               {"--max-new-tokens", "5", OPT_PREDICT},
               {"-c", "512", OPT_CTX_SIZE},
               {"--ctx-size", "512", OPT_CTX_SIZE},
               {"-t", "2", OPT_THREADS},
               {"-p", "x", OPT_PROMPT},
               {"-f", "x", OPT_FILE},
               {"-sys", "x", OPT_SYSTEM},
               {"--system-prompt", "x", OPT_SYSTEM},
               {"-s", "1", OPT_SEED},
               {"--temp", "0.5", OPT_TEMP},
               {"--temperature", "0.5", OPT_TEMP},
               {"--repetition-penalty", "1.1", OPT_REPEAT_PENALTY},
               {"-r", "x", OPT_STOP},
               {"--reverse-prompt", "x", OPT_STOP},
               {"--spec-type", "draft-dflash", OPT_SPEC_TYPE},
               {"--speculative-algorithm", "DFLASH", OPT_SPEC_TYPE},
               {"--speculative-num-draft-tokens", "16", OPT_SPEC_WIDTH},
               {"--spec-draft-n-max", "15", OPT_SPEC_DRAFT_N_MAX},
               {"-ctk", "f32", OPT_CACHE_TYPE_K},
               {"-ctv", "f16", OPT_CACHE_TYPE_V},
               {"-lv", "2", OPT_LOG}};
  for (size_t i = 0; i < DF_COUNT_OF(known); i++) {
    df_opts o;
    df_error err = {0};
    df_status st = parse(&o, DF_VERB_RUN, &err, 2, known[i].flag, known[i].value);
    if (st != DF_OK) fail_msg("%s: %s", known[i].flag, err.msg);
    assert_true(df_opt_given(&o, (df_opt_id)known[i].id));
  }
  static const char *const off[] = {"--disable-cuda-graph", "--no-graph"};
  for (size_t i = 0; i < DF_COUNT_OF(off); i++) {
    df_opts o;
    assert_int_equal(parse(&o, DF_VERB_RUN, NULL, 1, off[i]), DF_OK);
    assert_false(df_opt_on(&o, OPT_GRAPH, true));
  }
}

static void test_parse__values_and_ranges(void **state) {
  (void)state;
  df_opts o;
  df_error err;
  assert_int_equal(parse(&o, DF_VERB_RUN, &err, 4, "-c", "32k", "-n", "1K"), DF_OK);
  assert_int_equal(o.v[OPT_CTX_SIZE].integer, 32000);
  assert_int_equal(o.v[OPT_PREDICT].integer, 1024);
  assert_int_equal(parse(&o, DF_VERB_RUN, &err, 2, "--draft-vocab", "full"), DF_OK);
  assert_int_equal(o.v[OPT_DRAFT_VOCAB].integer, -1);
  static const char *const bad[][2] = {{"-n", "0"},
                                       {"-n", "-1"},
                                       {"-n", "x"},
                                       {"-n", "1.5"},
                                       {"-n", ""},
                                       {"-n", "99999999999999999999"},
                                       {"-c", "9223372036854775807K"},
                                       {"-c", "1048577"}, /* DF_CTX_MAX + 1 */
                                       {"-c", "1"},
                                       {"--temp", "-0.1"},
                                       {"--temp", "nan"},
                                       {"--temp", "inf"},
                                       {"--temp", "1x"},
                                       {"--top-p", "1.01"},
                                       {"--cpu", "sse"},
                                       {"-ctk", "q8_0"},
                                       {"--spec-type", "draft-eagle"},
                                       {"--spec-type", ""},
                                       {"--color", "maybe"},
                                       {"-m", ""},
                                       {"--spec-width", "17"},
                                       {"-r", ""}};
  for (size_t i = 0; i < DF_COUNT_OF(bad); i++) {
    if (parse(&o, DF_VERB_RUN, &err, 2, bad[i][0], bad[i][1]) != DF_ERR_ARGUMENT)
      fail_msg("%s %s was taken", bad[i][0], bad[i][1]);
    assert_non_null(strstr(err.msg, bad[i][0])); /* the message names the flag */
  }
  assert_int_equal(parse(&o, DF_VERB_RUN, &err, 1, "-n"), DF_ERR_ARGUMENT);
  assert_non_null(strstr(err.msg, "needs a value"));
  assert_int_equal(parse(&o, DF_VERB_RUN, &err, 3, "--temp", "-p", "hi"), DF_ERR_ARGUMENT);
  assert_string_equal(err.msg, "--temp needs a value (X), but \"-p\" follows");
  assert_int_equal(parse(&o, DF_VERB_RUN, &err, 2, "-n", "--temp=1"), DF_ERR_ARGUMENT);
  assert_string_equal(err.msg, "-n needs a value (N), but \"--temp=1\" follows");
  assert_int_equal(parse(&o, DF_VERB_RUN, &err, 2, "--presence-penalty", "-1"), DF_OK); /* a number, no option */
}

static void test_parse__repeated_stops_and_positionals(void **state) {
  (void)state;
  df_opts o;
  assert_int_equal(parse(&o, DF_VERB_RUN, NULL, 7, "-r", "a", "--stop=b", "pos", "--", "-m", "-"), DF_OK);
  assert_int_equal(o.n_stop, 2);
  assert_string_equal(o.stop[0], "a");
  assert_string_equal(o.stop[1], "b");
  assert_int_equal(o.n_pos, 3);
  assert_string_equal(o.pos[1], "-m"); /* after "--" nothing is an option */
  assert_string_equal(o.pos[2], "-");
  assert_int_equal(parse(&o, DF_VERB_RUN, NULL, 2, "-p", "-n"), DF_OK); /* a value may look like a flag */
  assert_string_equal(o.v[OPT_PROMPT].text, "-n");
}

static const char *some_environment(const char *name) {
  if (strcmp(name, "DF_CTX_SIZE") == 0) return "1k";
  if (strcmp(name, "DF_TEMP") == 0) return "0.25";
  if (strcmp(name, "DF_STOP") == 0) return "env";
  if (strcmp(name, "DF_GRAPH") == 0) return "off";
  if (strcmp(name, "DF_PREDICT") == 0) return "";    /* empty counts as unset */
  if (strcmp(name, "DF_LIST") == 0) return "broken"; /* not an option of run */
  return NULL;
}

static const char *bad_environment(const char *name) { return strcmp(name, "DF_TOP_P") == 0 ? "7" : NULL; }

static void test_parse__command_line_beats_environment(void **state) {
  (void)state;
  df_opts o;
  df_error err;
  char *argv[] = {"dflash", "run", "-c", "2048", "-r", "arg", NULL};
  assert_int_equal(df_opts_parse(&o, DF_VERB_RUN, 6, argv, 2, some_environment, &err), DF_OK);
  assert_int_equal(o.v[OPT_CTX_SIZE].integer, 2048);
  assert_int_equal(o.v[OPT_CTX_SIZE].source, DF_FROM_ARGV);
  assert_int_equal(o.v[OPT_TEMP].source, DF_FROM_ENV);
  assert_true(o.v[OPT_TEMP].real == 0.25);
  assert_false(df_opt_on(&o, OPT_GRAPH, true));
  assert_false(df_opt_given(&o, OPT_PREDICT));
  assert_int_equal(o.n_stop, 1);
  assert_string_equal(o.stop[0], "arg");
  assert_int_equal(df_opts_parse(&o, DF_VERB_RUN, 2, argv, 2, some_environment, &err), DF_OK);
  assert_int_equal(o.v[OPT_CTX_SIZE].integer, 1000);
  assert_string_equal(o.stop[0], "env");
  assert_int_equal(df_opts_parse(&o, DF_VERB_RUN, 2, argv, 2, bad_environment, &err), DF_ERR_ARGUMENT);
  assert_non_null(strstr(err.msg, "DF_TOP_P"));
}

static void test_parse__unknown_flags(void **state) {
  (void)state;
  static const char *const typo[][2] = {{"--temprature", "--temperature"}, {"--mdoel", "--model"},
                                        {"--ctx-szie", "--ctx-size"},      {"--max-token", "--max-tokens"},
                                        {"--no-stat", "--no-stats"},       {"--spec-draft-max", "--spec-draft-n-max"}};
  df_opts o;
  df_error err;
  for (size_t i = 0; i < DF_COUNT_OF(typo); i++) {
    assert_int_equal(parse(&o, DF_VERB_RUN, &err, 2, typo[i][0], "1"), DF_ERR_ARGUMENT);
    char want[80];
    (void)snprintf(want, sizeof want, "did you mean \"%s\"?", typo[i][1]);
    if (!strstr(err.msg, want)) fail_msg("%s: %s", typo[i][0], err.msg);
    assert_null(strchr(err.msg, '\n'));
  }
  assert_int_equal(parse(&o, DF_VERB_RUN, &err, 1, "--zzzzqqqq=4"), DF_ERR_ARGUMENT);
  assert_null(strstr(err.msg, "did you mean"));
  assert_non_null(strstr(err.msg, "\"--zzzzqqqq\""));                                    /* without the value */
  static const char *const far[] = {"--keep", "--prio", "--tq", "--rwx", "-xy", "--kv"}; /* short, near everything */
  for (size_t i = 0; i < DF_COUNT_OF(far); i++) {
    assert_int_equal(parse(&o, DF_VERB_RUN, &err, 2, far[i], "3"), DF_ERR_ARGUMENT);
    if (strstr(err.msg, "did you mean")) fail_msg("%s", err.msg);
    assert_non_null(strstr(err.hint, "dflash help run"));
  }
  assert_int_equal(parse(&o, DF_VERB_RUN, &err, 2, "--tp", "1"), DF_ERR_ARGUMENT);
  assert_non_null(strstr(err.hint, "one process runs the model"));
  assert_int_equal(parse(&o, DF_VERB_RUN, &err, 2, "--grammar", "x"), DF_ERR_ARGUMENT);
  assert_non_null(strstr(err.hint, "dflash serve"));
  assert_int_equal(parse(&o, DF_VERB_RUN, &err, 1, "--list"), DF_ERR_ARGUMENT); /* of another verb */
  assert_non_null(strstr(err.hint, "pull"));
}

static void test_foreign__advice_and_no_overlap(void **state) {
  (void)state;
  static const char *const flags[] = {
      "-ngl",      "--draft-max", "-hf", "--jinja", "-fa", "--mlock", "--speculative-config", "--kv-cache-dtype",
      "--grammar", "-mli"};
  df_opts o;
  df_error err;
  for (size_t i = 0; i < DF_COUNT_OF(flags); i++) {
    assert_non_null(df_opt_foreign(flags[i], strlen(flags[i])));
    assert_int_equal(parse(&o, DF_VERB_RUN, &err, 2, flags[i], "1"), DF_ERR_ARGUMENT);
    assert_true(err.hint[0] != '\0');
  }
  spelling s[MAX_WORDS]; /* nothing we have may be called foreign */
  size_t n = all_spellings(s);
  for (size_t i = 0; i < n; i++) {
    if (df_opt_foreign(s[i].text, strlen(s[i].text))) fail_msg("%s is ours and listed as foreign", s[i].text);
  }
}

static void test_edit_distance__known_values(void **state) {
  (void)state;
  static const struct {
    const char *a, *b;
    unsigned d;
  } pairs[] = {{"", "", 0},         {"abc", "", 3},        {"kitten", "sitting", 3},
               {"abcd", "acbd", 1}, {"model", "mdoel", 1}, {"--temp", "--temp", 0},
               {"a", "b", 1},       {"abc", "abcdef", 3}};
  for (size_t i = 0; i < DF_COUNT_OF(pairs); i++) {
    const char *a = pairs[i].a, *b = pairs[i].b;
    assert_int_equal(df_edit_distance(a, strlen(a), b, strlen(b), 9), pairs[i].d);
    assert_int_equal(df_edit_distance(b, strlen(b), a, strlen(a), 9), pairs[i].d);
  }
  assert_int_equal(df_edit_distance("kitten", 6, "sitting", 7, 2), 3); /* limit + 1 */
}

static void test_parse_size__units(void **state) {
  (void)state;
  static const struct {
    const char *text;
    int64_t v;
  } good[] = {{"0", 0},           {"32k", 32000},     {"32K", 32768}, {"1m", 1000000}, {"1M", 1048576},
              {"2g", 2000000000}, {"1G", 1073741824}, {"-5", -5},     {"007", 7}};
  static const char *const bad[] = {
      "", "k", "1kk", "1 k", "0x10", "1e3", "--1", "9223372036854775808", "9223372036854775807k"};
  for (size_t i = 0; i < DF_COUNT_OF(good); i++) {
    int64_t v;
    assert_true(df_parse_size(good[i].text, &v));
    assert_int_equal(v, good[i].v);
  }
  for (size_t i = 0; i < DF_COUNT_OF(bad); i++) {
    int64_t v = 42;
    assert_false(df_parse_size(bad[i], &v));
    assert_int_equal(v, 42);
  }
}

static char *printed(void (*print)(FILE *), size_t *n) {
  FILE *f = tmpfile();
  assert_non_null(f);
  print(f);
  long len = ftell(f);
  assert_true(len > 0);
  char *text = df_calloc(1, (size_t)len + 1);
  rewind(f);
  assert_int_equal(fread(text, 1, (size_t)len, f), (size_t)len);
  (void)fclose(f);
  *n = (size_t)len;
  return text;
}

static void test_manpage__committed_copy_is_current(void **state) {
  (void)state;
  size_t n, m;
  char *made = printed(df_manpage_print, &n), *committed = df_test_read_file("man/dflash.1", &m);
  if (n != m || memcmp(made, committed, n) != 0) fail_msg("man/dflash.1 is stale: dflash man > man/dflash.1");
  df_free(made);
  df_free(committed);
}

static void print_bash(FILE *f) { assert_true(df_completion_print(f, "bash")); }
static void print_zsh(FILE *f) { assert_true(df_completion_print(f, "zsh")); }
static void print_fish(FILE *f) { assert_true(df_completion_print(f, "fish")); }
static void print_run_help(FILE *f) { df_help_print(f, DF_VERB_RUN, NULL, 100, "", ""); }

/* Every option of run appears in help, manual and completions. */
static void test_derived_texts__name_every_option(void **state) {
  (void)state;
  void (*const print[])(FILE *) = {df_manpage_print, print_bash, print_zsh, print_fish, print_run_help};
  for (size_t k = 0; k < DF_COUNT_OF(print); k++) {
    size_t n;
    char *text = printed(print[k], &n);
    for (int i = 0; i < OPT_COUNT; i++) {
      char want[80], *o = want;
      if (print[k] == print_run_help && !(df_opt_table[i].verbs & DF_VERB_RUN)) continue;
      o += snprintf(o, 8, "%s", k == 0 ? "\\-\\-" : k == 3 ? " -l " : "--");
      for (const char *c = df_opt_table[i].name; *c; c++) o += snprintf(o, 4, k == 0 && *c == '-' ? "\\-" : "%c", *c);
      if (!strstr(text, want)) fail_msg("text %zu lacks %s", k, want);
    }
    df_free(text);
  }
  FILE *f = tmpfile();
  assert_false(df_completion_print(f, "tcsh"));
  (void)fclose(f);
}

static void test_help__fits_the_terminal(void **state) {
  (void)state;
  static const unsigned columns[] = {40, 60, 80, 100};
  for (size_t k = 0; k < DF_COUNT_OF(columns); k++) {
    for (unsigned v = 0; v <= df_verb_count; v++) {
      FILE *f = tmpfile();
      df_help_print(f, v < df_verb_count ? df_verbs[v].bit : 0, NULL, columns[k], "", "");
      rewind(f);
      char line[512];
      while (fgets(line, sizeof line, f)) {
        size_t len = strcspn(line, "\n");
        /* Lines that cannot break: commands to copy, names of options. */
        bool fixed =
            strncmp(line, "  dflash", 8) == 0 || strncmp(line, "  -", 3) == 0 || !strchr(line + strspn(line, " "), ' ');
        if (len > columns[k] && !fixed) fail_msg("%u columns: %s", columns[k], line);
      }
      (void)fclose(f);
    }
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_table__complete_and_unique),
      cmocka_unit_test(test_env_name__unique_and_upper_case),
      cmocka_unit_test(test_parse__every_spelling),
      cmocka_unit_test(test_parse__spellings_of_other_engines),
      cmocka_unit_test(test_parse__values_and_ranges),
      cmocka_unit_test(test_parse__repeated_stops_and_positionals),
      cmocka_unit_test(test_parse__command_line_beats_environment),
      cmocka_unit_test(test_parse__unknown_flags),
      cmocka_unit_test(test_foreign__advice_and_no_overlap),
      cmocka_unit_test(test_edit_distance__known_values),
      cmocka_unit_test(test_parse_size__units),
      cmocka_unit_test(test_manpage__committed_copy_is_current),
      cmocka_unit_test(test_derived_texts__name_every_option),
      cmocka_unit_test(test_help__fits_the_terminal),
  };
  return cmocka_run_group_tests_name("options", tests, NULL, NULL);
}
