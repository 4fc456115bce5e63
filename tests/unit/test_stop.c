/* Stop handling: any partition into runs gives the text up to the earliest stop and nothing behind it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/size.h"
#include "engine/rng.h"
#include "engine/stop.h"

static uint64_t g_draws;
static uint32_t rnd_below(uint32_t n) { return (uint32_t)(df_rng_uniform(99, g_draws++, 9) * n); }

enum { MAX_TOK = 40, MAX_TEXT = 256 };

typedef struct sequence {
  int32_t ids[MAX_TOK];
  df_text_piece pieces[MAX_TOK];
  uint32_t n;
} sequence;

static df_text_piece piece(const char *s) { return (df_text_piece){s, strlen(s)}; }

static df_stop_config plain_config(void) {
  return (df_stop_config){.max_new_tokens = DF_STOP_NO_LIMIT, .context_tokens = DF_STOP_NO_LIMIT};
}

/* ---- oracle: looks at the whole text at every byte -------------------------------------------------------- */

typedef struct outcome {
  char text[MAX_TEXT];
  size_t len;
  uint32_t tokens;
  df_finish finish;
  int32_t matched;
} outcome;

static bool has_id(const int32_t *ids, uint32_t n, int32_t id) {
  for (uint32_t i = 0; i < n; i++)
    if (ids[i] == id) return true;
  return false;
}

static int32_t ends_with(const df_stop_config *c, const char *text, size_t len) {
  int32_t best = -1;
  for (uint32_t i = 0; i < c->n_strings; i++) {
    const size_t m = c->strings[i].len;
    if (m > len || memcmp(text + len - m, c->strings[i].data, m) != 0) continue;
    if (best < 0 || m > c->strings[best].len) best = (int32_t)i;
  }
  return best;
}

static outcome oracle(const df_stop_config *c, const sequence *q) {
  outcome o = {.matched = -1};
  if (c->max_new_tokens == 0) o.finish = DF_FINISH_LENGTH;
  for (uint32_t t = 0; t < q->n && o.finish == DF_FINISH_NONE; t++) {
    const bool may = o.tokens >= c->min_tokens;
    const size_t before = o.len;
    o.tokens++;
    for (size_t i = 0; i < q->pieces[t].len; i++) {
      o.text[o.len++] = q->pieces[t].data[i];
      const int32_t m = may ? ends_with(c, o.text, o.len) : -1;
      if (m < 0) continue;
      o.len -= c->strings[m].len;
      o.finish = DF_FINISH_STRING;
      o.matched = m;
      return o;
    }
    if (may && !c->ignore_eos && has_id(c->eos_ids, c->n_eos_ids, q->ids[t]))
      o.finish = DF_FINISH_EOS;
    else if (may && has_id(c->stop_ids, c->n_stop_ids, q->ids[t]))
      o.finish = DF_FINISH_ID;
    if (o.finish != DF_FINISH_NONE) {
      o.len = before;
      o.matched = q->ids[t];
    } else if (o.tokens == c->max_new_tokens) {
      o.finish = DF_FINISH_LENGTH;
    } else if (o.tokens == c->context_tokens) {
      o.finish = DF_FINISH_CONTEXT;
    }
  }
  return o;
}

/* No byte may leave while a stop string could still begin there, and none may stay that cannot be part of one. */
static void check_holdback(const df_stop_config *c, const char *text, size_t len, size_t out_len, bool matched_before) {
  if (matched_before) return;
  size_t held = 0;
  for (uint32_t i = 0; i < c->n_strings; i++)
    for (size_t m = c->strings[i].len - 1; m > 0; m--)
      if (m <= len && memcmp(text + len - m, c->strings[i].data, m) == 0) {
        held = DF_MAX(held, m);
        break;
      }
  assert_int_equal(out_len, len - held);
}

static void feed_in_runs(const df_stop_config *c, const sequence *q, const outcome *want, uint32_t cuts) {
  df_stop s;
  df_buf out;
  df_buf_init(&out, 0);
  assert_int_equal(df_stop_init(&s, c, NULL), DF_OK);
  uint32_t kept = 0;
  df_stop_result r = {.finish = DF_FINISH_NONE, .matched_id = -1, .matched_string = -1};
  df_finish finish = s.finish;
  char all[MAX_TEXT];
  size_t all_len = 0;
  for (uint32_t t = 0; t < q->n;) {
    uint32_t end = t + 1;
    while (end < q->n && !(cuts >> end & 1)) end++;
    assert_int_equal(df_stop_feed(&s, q->ids + t, q->pieces + t, end - t, &out, &r, NULL), DF_OK);
    kept += r.kept;
    for (uint32_t i = t; i < end; i++) {
      memcpy(all + all_len, q->pieces[i].data, q->pieces[i].len);
      all_len += q->pieces[i].len;
    }
    t = end;
    if (finish == DF_FINISH_NONE && r.finish != DF_FINISH_NONE) {
      finish = r.finish;
      if (finish == DF_FINISH_STRING)
        assert_int_equal(r.matched_string, want->matched);
      else if (finish == DF_FINISH_EOS || finish == DF_FINISH_ID)
        assert_int_equal(r.matched_id, want->matched);
    } else if (finish != DF_FINISH_NONE) {
      assert_int_equal(r.kept, 0);
    } else {
      check_holdback(c, all, all_len, out.len, c->min_tokens > 0);
    }
  }
  if (finish == DF_FINISH_NONE) assert_int_equal(df_stop_flush(&s, &out, NULL), DF_OK);
  assert_int_equal(s.pending.len, 0);
  assert_int_equal(finish, want->finish);
  assert_int_equal(kept, want->tokens);
  assert_int_equal(s.n_tokens, want->tokens);
  if (out.len != want->len || (out.len && memcmp(out.data, want->text, out.len) != 0))
    fail_msg("got \"%.*s\", not \"%.*s\"", (int)out.len, out.len ? out.data : "", (int)want->len, want->text);
  df_buf_release(&out);
  df_stop_release(&s);
}

static const char *const k_pieces[] = {"", "a", "b", "ab", "aab", "ba", "c", "abab", "\xc3", "\xa9"};

static void random_case(sequence *q, df_stop_config *c, df_text_piece *strings, char store[8][8], int32_t *ids) {
  q->n = 1 + rnd_below(10);
  for (uint32_t i = 0; i < q->n; i++) {
    q->ids[i] = (int32_t)rnd_below((uint32_t)DF_COUNT_OF(k_pieces));
    q->pieces[i] = piece(k_pieces[q->ids[i]]);
  }
  *c = plain_config();
  c->strings = strings;
  c->n_strings = rnd_below(4);
  for (uint32_t i = 0; i < c->n_strings; i++) {
    const uint32_t len = 1 + rnd_below(6);
    for (uint32_t j = 0; j < len; j++) store[i][j] = "aaabbc\xc3\xa9"[rnd_below(8)];
    strings[i] = (df_text_piece){store[i], len};
  }
  ids[0] = (int32_t)rnd_below(30);
  ids[1] = (int32_t)rnd_below(30);
  c->eos_ids = ids;
  c->n_eos_ids = rnd_below(2);
  c->stop_ids = ids + 1;
  c->n_stop_ids = rnd_below(2);
  c->ignore_eos = rnd_below(4) == 0;
  if (rnd_below(3) == 0) c->max_new_tokens = rnd_below(8);
  if (rnd_below(3) == 0) c->context_tokens = 1 + rnd_below(8);
  if (rnd_below(4) == 0) c->min_tokens = rnd_below(6);
}

static void test_stop_feed__every_partition_gives_the_same_cut(void **state) {
  (void)state;
  uint32_t finished[6] = {0};
  for (int t = 0; t < 3000; t++) {
    sequence q;
    df_stop_config c;
    df_text_piece strings[8];
    char store[8][8];
    int32_t ids[2];
    random_case(&q, &c, strings, store, ids);
    const outcome want = oracle(&c, &q);
    finished[want.finish]++;
    for (uint32_t cuts = 0; cuts < 1u << q.n; cuts += 2) feed_in_runs(&c, &q, &want, cuts);
  }
  for (int f = 0; f < 6; f++) assert_true(finished[f] > 50); /* every way to end occurred */
}

/* ---- single rules ---------------------------------------------------------------------------------------- */

static void expect_run(df_stop *s, const char *const *texts, const int32_t *ids, uint32_t n, const char *out_text,
                       uint32_t kept, df_finish finish) {
  df_text_piece p[8];
  df_buf out;
  df_stop_result r;
  for (uint32_t i = 0; i < n; i++) p[i] = piece(texts[i]);
  df_buf_init(&out, 0);
  assert_int_equal(df_stop_feed(s, ids, p, n, &out, &r, NULL), DF_OK);
  assert_string_equal(out.data ? out.data : "", out_text);
  assert_int_equal(r.kept, kept);
  assert_int_equal(r.finish, finish);
  df_buf_release(&out);
}

static void test_stop_feed__string_across_runs_is_held_back(void **state) {
  (void)state;
  const df_text_piece stop = piece("\nQuestion:");
  df_stop_config c = plain_config();
  c.strings = &stop;
  c.n_strings = 1;
  df_stop s;
  assert_int_equal(df_stop_init(&s, &c, NULL), DF_OK);
  const int32_t ids[] = {1, 2, 3};
  expect_run(&s, (const char *[]){"42", "\nQ"}, ids, 2, "42", 2, DF_FINISH_NONE);
  expect_run(&s, (const char *[]){"uick"}, ids, 1, "\nQuick", 1, DF_FINISH_NONE);
  expect_run(&s, (const char *[]){".\nQuest"}, ids, 1, ".", 1, DF_FINISH_NONE);
  expect_run(&s, (const char *[]){"ion", ": How", " many"}, ids, 3, "", 2, DF_FINISH_STRING);
  expect_run(&s, (const char *[]){"more"}, ids, 1, "", 0, DF_FINISH_STRING);
  df_stop_release(&s);
}

static void test_stop_feed__a_stop_before_the_cap_in_one_run_wins(void **state) {
  (void)state;
  df_stop_config c = plain_config();
  const int32_t eos = 2;
  c.eos_ids = &eos;
  c.n_eos_ids = 1;
  c.max_new_tokens = 3;
  df_stop s;
  const int32_t ids[] = {5, 2, 6, 7}, late[] = {5, 6, 7, 2}, at_cap[] = {5, 6, 2, 7};
  const char *const texts[] = {"a", "</s>", "b", "c"};
  assert_int_equal(df_stop_init(&s, &c, NULL), DF_OK);
  expect_run(&s, texts, ids, 4, "a", 2, DF_FINISH_EOS);
  df_stop_release(&s);
  assert_int_equal(df_stop_init(&s, &c, NULL), DF_OK);
  expect_run(&s, (const char *[]){"a", "b", "c", ""}, late, 4, "abc", 3, DF_FINISH_LENGTH);
  df_stop_release(&s);
  assert_int_equal(df_stop_init(&s, &c, NULL), DF_OK);
  expect_run(&s, (const char *[]){"a", "b", "", "c"}, at_cap, 4, "ab", 3, DF_FINISH_EOS);
  df_stop_release(&s);
}

static void test_stop_feed__a_string_wins_over_an_id_in_the_same_token(void **state) {
  (void)state;
  const df_text_piece stop = piece("<|im_end|>");
  const int32_t eos = 2, ids[] = {5, 2};
  df_stop_config c = plain_config();
  c.strings = &stop;
  c.n_strings = 1;
  c.eos_ids = &eos;
  c.n_eos_ids = 1;
  df_stop s;
  assert_int_equal(df_stop_init(&s, &c, NULL), DF_OK);
  expect_run(&s, (const char *[]){"hi", "<|im_end|>"}, ids, 2, "hi", 2, DF_FINISH_STRING);
  df_stop_release(&s);
}

static void test_stop_feed__min_tokens_lets_early_stops_pass(void **state) {
  (void)state;
  const df_text_piece stop = piece("x");
  const int32_t eos = 2, ids[] = {2, 3, 3, 3}, then[] = {2};
  df_stop_config c = plain_config();
  c.strings = &stop;
  c.n_strings = 1;
  c.eos_ids = &eos;
  c.n_eos_ids = 1;
  c.min_tokens = 3;
  df_stop s;
  assert_int_equal(df_stop_init(&s, &c, NULL), DF_OK);
  expect_run(&s, (const char *[]){"a", "x", "b"}, ids, 3, "axb", 3, DF_FINISH_NONE);
  expect_run(&s, (const char *[]){"e"}, then, 1, "", 1, DF_FINISH_EOS);
  df_stop_release(&s);
}

static void test_stop_feed__does_not_allocate_in_the_steady_state(void **state) {
  (void)state;
  const df_text_piece stop = piece("stop here");
  df_stop_config c = plain_config();
  c.strings = &stop;
  c.n_strings = 1;
  df_stop s;
  df_buf out;
  df_buf_init(&out, 0);
  assert_int_equal(df_stop_init(&s, &c, NULL), DF_OK);
  assert_int_equal(df_buf_reserve(&out, 4096, NULL), DF_OK);
  const uint64_t before = df_mem_alloc_count();
  const int32_t ids[4] = {1, 2, 3, 4};
  const df_text_piece p[4] = {piece("some "), piece("words "), piece("stop "), piece("then ")};
  df_stop_result r;
  for (int i = 0; i < 100; i++) assert_int_equal(df_stop_feed(&s, ids, p, 4, &out, &r, NULL), DF_OK);
  assert_int_equal(df_mem_alloc_count(), before);
  df_buf_release(&out);
  df_stop_release(&s);
}

static void test_stop_feed__a_failed_call_consumed_nothing(void **state) {
  (void)state;
  df_stop_config c = plain_config();
  df_stop s;
  df_buf out;
  df_buf_init(&out, 4);
  assert_int_equal(df_stop_init(&s, &c, NULL), DF_OK);
  const int32_t id = 1;
  const df_text_piece p = piece("too long");
  df_stop_result r;
  df_error err;
  assert_int_equal(df_stop_feed(&s, &id, &p, 1, &out, &r, &err), DF_ERR_LIMIT);
  assert_int_equal(s.n_tokens, 0);
  out.max = 0;
  assert_int_equal(df_stop_feed(&s, &id, &p, 1, &out, &r, &err), DF_OK);
  assert_string_equal(out.data, "too long");
  df_buf_release(&out);
  df_stop_release(&s);
}

static void test_stop_init__refuses_bad_strings_and_survives_no_memory(void **state) {
  (void)state;
  static char big[DF_STOP_MAX_BYTES + 1];
  df_text_piece strings[DF_STOP_MAX_STRINGS + 1];
  for (size_t i = 0; i < DF_COUNT_OF(strings); i++) strings[i] = piece("x");
  df_stop_config c = plain_config();
  c.strings = strings;
  df_stop s;
  df_error err;
  c.n_strings = DF_STOP_MAX_STRINGS + 1;
  assert_int_equal(df_stop_init(&s, &c, &err), DF_ERR_LIMIT);
  c.n_strings = 2;
  strings[1] = (df_text_piece){big, sizeof big};
  assert_int_equal(df_stop_init(&s, &c, &err), DF_ERR_LIMIT);
  strings[1].len = 0;
  assert_int_equal(df_stop_init(&s, &c, &err), DF_ERR_ARGUMENT);
  assert_string_equal(err.msg, "stop string 1 is empty");
  strings[1] = piece("y");
  for (uint64_t n = 1; n <= 2; n++) {
    df_mem_fail_after(n, false);
    assert_int_equal(df_stop_init(&s, &c, &err), DF_ERR_MEMORY);
    df_mem_fail_after(0, false);
  }
  assert_int_equal(df_stop_init(&s, &c, &err), DF_OK);
  df_stop_release(&s);
}

static void test_finish_reason__words(void **state) {
  (void)state;
  assert_string_equal(df_finish_name(DF_FINISH_NONE), "");
  assert_string_equal(df_finish_name(DF_FINISH_EOS), "stop");
  assert_string_equal(df_finish_name(DF_FINISH_ID), "stop");
  assert_string_equal(df_finish_name(DF_FINISH_STRING), "stop");
  assert_string_equal(df_finish_name(DF_FINISH_LENGTH), "length");
  assert_string_equal(df_finish_name(DF_FINISH_CONTEXT), "length");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_stop_feed__every_partition_gives_the_same_cut),
      cmocka_unit_test(test_stop_feed__string_across_runs_is_held_back),
      cmocka_unit_test(test_stop_feed__a_stop_before_the_cap_in_one_run_wins),
      cmocka_unit_test(test_stop_feed__a_string_wins_over_an_id_in_the_same_token),
      cmocka_unit_test(test_stop_feed__min_tokens_lets_early_stops_pass),
      cmocka_unit_test(test_stop_feed__does_not_allocate_in_the_steady_state),
      cmocka_unit_test(test_stop_feed__a_failed_call_consumed_nothing),
      cmocka_unit_test(test_stop_init__refuses_bad_strings_and_survives_no_memory),
      cmocka_unit_test(test_finish_reason__words),
  };
  return cmocka_run_group_tests_name("stop", tests, NULL, NULL);
}
