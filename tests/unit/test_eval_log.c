/* Files of runs: going on after a kill, broken lines, other settings, locks, full disks; statistics. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/mem.h"
#include "eval/eval_file.h"
#include "eval/run_log.h"

static char g_dir[] = "/tmp/df_eval_log_XXXXXX";
static char g_path[64];
static const char k_header[] = "{\"command\":\"x\",\"settings\":{\"shots\":5,\"model\":\"m\"}}";

static int setup(void **state) {
  (void)state;
  if (!mkdtemp(g_dir)) return -1;
  return snprintf(g_path, sizeof g_path, "%s/answers.jsonl", g_dir) > 0 ? 0 : -1;
}

static int teardown(void **state) {
  (void)state;
  (void)unlink(g_path);
  return rmdir(g_dir);
}

static df_eval_row make(uint32_t index, bool ok) {
  df_eval_row r = {.index = index,
                   .text = df_strdup(" She has\n#### 18 \"quoted\" \xc3\xa9"),
                   .strict = df_strdup("18"),
                   .flexible = df_strdup("18"),
                   .target = df_strdup(ok ? "18" : "19"),
                   .strict_ok = ok,
                   .flexible_ok = ok,
                   .strict_valid = true,
                   .flexible_valid = index != 3,
                   .ids_hash = 0xfedcba9876543210u + index,
                   .finish = "stop",
                   .seconds = 0.5};
  r.n_text = strlen(r.text);
  r.stats = (df_stats){.prompt_tokens = 900, .cached_tokens = 16, .new_tokens = 50, .steps = 20, .verify_steps = 18};
  r.stats.drafted = 126, r.stats.accepted = 30, r.stats.emitted_verify = 48;
  r.stats.drafted_at[0] = 18, r.stats.accepted_at[0] = 15, r.stats.drafted_at[1] = 18, r.stats.accepted_at[1] = 9;
  r.stats.prefill_ms = 12.5, r.stats.decode_ms = 80.25;
  return r;
}

static void add(df_run_log *l, uint32_t index, bool ok) {
  df_eval_row r = make(index, ok);
  assert_int_equal(df_run_log_add(l, &r, NULL), DF_OK);
  assert_null(r.text); /* taken over */
}

static void begin(uint32_t rows) {
  df_run_log l;
  (void)unlink(g_path);
  assert_int_equal(df_run_log_open(&l, g_path, k_header, NULL), DF_OK);
  for (uint32_t i = 0; i < rows; i++) add(&l, i, i % 2 == 0);
  df_run_log_close(&l);
}

static void append(const char *text) {
  FILE *f = fopen(g_path, "a");
  assert_non_null(f);
  assert_true(fputs(text, f) >= 0);
  assert_int_equal(fclose(f), 0);
}

static void test_run_log__goes_on(void **state) {
  (void)state;
  df_run_log l;
  begin(3);
  assert_int_equal(df_run_log_open(&l, g_path, k_header, NULL), DF_OK);
  assert_int_equal(l.n, 3);
  assert_int_equal(l.cut_line, 0);
  assert_null(df_run_log_find(&l, 3));
  add(&l, 7, true);
  df_run_log_close(&l);
  assert_int_equal(df_run_log_read(&l, g_path, NULL), DF_OK);
  assert_int_equal(l.n, 4);
  const df_eval_row *r = df_run_log_find(&l, 7);
  const df_eval_row want = make(7, true);
  assert_non_null(r);
  assert_string_equal(r->text, want.text);
  assert_string_equal(r->finish, "stop");
  assert_true(r->ids_hash == want.ids_hash);
  assert_true(r->strict_ok && r->flexible_ok && r->seconds == 0.5);
  assert_memory_equal(&r->stats, &want.stats, sizeof want.stats);
  assert_int_equal(df_run_log_tally(&l, 2).n, 2);
  const df_eval_tally t = df_run_log_tally(&l, UINT32_MAX);
  assert_int_equal(t.n, 4);
  assert_int_equal(t.flexible, 3);
  assert_true(fabs(df_eval_tally_accept_length(&t) - 48.0 / 18) < 1e-12);
  assert_true(fabs(df_eval_tally_speed(&t) - 100) < 1e-9);
  assert_int_equal(t.accepted_at[1], 36);
  df_run_log_close(&l);
  df_free(want.text), df_free(want.strict), df_free(want.flexible), df_free(want.target);
}

static void test_run_log__cuts_a_broken_last_line(void **state) {
  (void)state;
  static const char *const k[] = {"{\"question\":3,\"targ", "{\"question\":3}\n", "nonsense\n", "\xff\xfe"};
  for (size_t i = 0; i < sizeof k / sizeof *k; i++) {
    df_run_log l;
    begin(2);
    append(k[i]);
    assert_int_equal(df_run_log_open(&l, g_path, k_header, NULL), DF_OK);
    assert_int_equal(l.n, 2);
    assert_int_equal(l.cut_line, 4);
    add(&l, 3, true);
    df_run_log_close(&l);
    assert_int_equal(df_run_log_open(&l, g_path, k_header, NULL), DF_OK); /* nothing of it is left */
    assert_int_equal(l.n, 3);
    assert_int_equal(l.cut_line, 0);
    df_run_log_close(&l);
  }
}

static void expect_refused(df_status want, const char *words, const char *header) {
  df_run_log l;
  df_error err;
  df_buf before, after;
  assert_int_equal(df_eval_read_file(g_path, &before, NULL), DF_OK);
  assert_int_equal(df_run_log_open(&l, g_path, header, &err), want);
  if (!strstr(err.msg, words)) fail_msg("\"%s\" lacks \"%s\"", err.msg, words);
  assert_int_equal(df_eval_read_file(g_path, &after, NULL), DF_OK); /* nothing is lost */
  assert_int_equal(before.len, after.len);
  assert_memory_equal(before.data, after.data, after.len);
  df_buf_release(&before);
  df_buf_release(&after);
}

static void test_run_log__refuses_a_broken_earlier_line(void **state) {
  (void)state;
  begin(2);
  append("{\"question\":2,\n");
  append("{}\n");
  expect_refused(DF_ERR_FORMAT, "line 4", k_header);
  begin(1);
  append("{\"question\":5,\"ids_hash\":\"zz\",\"text\":\"\"}\n{}\n");
  expect_refused(DF_ERR_FORMAT, "line 3", k_header);
  (void)unlink(g_path);
  append("{\"question\":1}\n"); /* not a run at all */
  expect_refused(DF_ERR_FORMAT, "line 1", k_header);
}

static void test_run_log__refuses_a_question_twice(void **state) {
  (void)state;
  df_buf b;
  begin(1);
  assert_int_equal(df_eval_read_file(g_path, &b, NULL), DF_OK);
  append(strchr(b.data, '\n') + 1);
  append("{\"question\":9}\n");
  expect_refused(DF_ERR_FORMAT, "question 0 is there twice", k_header);
  df_buf_release(&b);
}

static void test_run_log__refuses_other_settings(void **state) {
  (void)state;
  begin(1);
  expect_refused(DF_ERR_MISMATCH, "shots was 5, is now 8", "{\"settings\":{\"shots\":8,\"model\":\"m\"}}");
  expect_refused(DF_ERR_MISMATCH, "model was \"m\", is now \"n\"", "{\"settings\":{\"shots\":5,\"model\":\"n\"}}");
  expect_refused(DF_ERR_MISMATCH, "another version", "{\"settings\":{\"shots\":5}}");
  df_run_log l; /* another command with the same settings is the same run */
  assert_int_equal(df_run_log_open(&l, g_path, "{\"command\":\"y\",\"settings\":{\"shots\":5,\"model\":\"m\"}}", NULL),
                   DF_OK);
  df_run_log_close(&l);
}

static void test_run_log__one_writer(void **state) {
  (void)state;
  df_run_log l;
  begin(1);
  assert_int_equal(df_run_log_open(&l, g_path, k_header, NULL), DF_OK);
  const pid_t pid = fork(); /* locks are between processes */
  if (pid == 0) {
    df_run_log other;
    _exit(df_run_log_open(&other, g_path, k_header, NULL) == DF_ERR_BUSY ? 0 : 1);
  }
  int status = -1;
  assert_int_equal(waitpid(pid, &status, 0), pid);
  assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  df_run_log_close(&l);
}

static void test_run_log__full_disk_loses_nothing(void **state) {
  (void)state;
  df_run_log l;
  df_error err;
  struct rlimit old, small;
  begin(2);
  assert_int_equal(df_run_log_open(&l, g_path, k_header, NULL), DF_OK);
  assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
  small = old;
  small.rlim_cur = l.size + 100; /* the third row does not fit */
  (void)signal(SIGXFSZ, SIG_IGN);
  assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
  df_eval_row r = make(2, true);
  assert_int_equal(df_run_log_add(&l, &r, &err), DF_ERR_IO);
  assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
  assert_non_null(strstr(err.msg, "could not write"));
  assert_non_null(r.text); /* still the caller's */
  assert_int_equal(l.n, 2);
  assert_int_equal(df_run_log_add(&l, &r, &err), DF_OK); /* there is room again */
  df_run_log_close(&l);
  assert_int_equal(df_run_log_open(&l, g_path, k_header, NULL), DF_OK);
  assert_int_equal(l.n, 3);
  assert_int_equal(l.cut_line, 0);
  df_run_log_close(&l);
}

static void test_run_log__bad_places(void **state) {
  (void)state;
  df_run_log l;
  df_error err;
  assert_int_equal(df_run_log_open(&l, "/nonexistent/x", k_header, &err), DF_ERR_IO);
  assert_int_equal(df_run_log_open(&l, g_dir, k_header, &err), DF_ERR_IO);
  assert_int_equal(df_run_log_read(&l, "/dev/full", &err), DF_ERR_IO);
  (void)unlink(g_path);
  append("");
  assert_int_equal(df_run_log_read(&l, g_path, &err), DF_ERR_FORMAT);
}

static void test_mcnemar__exact_values(void **state) {
  (void)state;
  assert_true(df_mcnemar_p(0, 0) == 1);
  assert_true(fabs(df_mcnemar_p(0, 5) - 0.0625) < 1e-12);      /* 2 / 2^5 */
  assert_true(fabs(df_mcnemar_p(1, 9) - 22.0 / 1024) < 1e-12); /* 2 * (1 + 10) / 2^10 */
  assert_true(fabs(df_mcnemar_p(9, 1) - df_mcnemar_p(1, 9)) < 1e-15);
  assert_true(df_mcnemar_p(4, 4) == 1);
  assert_true(fabs(df_mcnemar_p(3, 12) - 2 * (1 + 15 + 105 + 455) / 32768.0) < 1e-12);
  assert_true(df_mcnemar_p(0, 1000) < 1e-290);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_run_log__goes_on),
                                     cmocka_unit_test(test_run_log__cuts_a_broken_last_line),
                                     cmocka_unit_test(test_run_log__refuses_a_broken_earlier_line),
                                     cmocka_unit_test(test_run_log__refuses_a_question_twice),
                                     cmocka_unit_test(test_run_log__refuses_other_settings),
                                     cmocka_unit_test(test_run_log__one_writer),
                                     cmocka_unit_test(test_run_log__full_disk_loses_nothing),
                                     cmocka_unit_test(test_run_log__bad_places),
                                     cmocka_unit_test(test_mcnemar__exact_values)};
  return cmocka_run_group_tests_name("eval_log", tests, setup, teardown);
}
