/* The whole engine on models of a few kilobytes: identity with and without a draft, limits, stops, cancelling, cached
 * turns, and refusal of wrong files. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/size.h"
#include "dflash/dflash.h"
#include "support/sample_files.h"
#include "support/tiny_model.h"

enum { MAX_NEW = 96 };

typedef struct fixture {
  char *dir;
  tiny_spec spec;
  df_model *m;
  df_draft *d;
} fixture;

static const char *path_of(const fixture *f, const char *name) { return test_dir_path(f->dir, name); }

static df_model *open_model(const fixture *f, const char *name, uint32_t threads) {
  df_error err = {0};
  df_model *m = NULL;
  df_model_params p = df_model_params_default();
  p.n_threads = threads;
  if (df_model_open(path_of(f, name), &p, &m, &err) != DF_OK) fail_msg("%s", err.msg);
  return m;
}

static df_draft *open_draft(const fixture *f, const char *name, df_model *m) {
  df_error err = {0};
  df_draft *d = NULL;
  if (df_draft_open(path_of(f, name), m, NULL, &d, &err) != DF_OK) fail_msg("%s", err.msg);
  return d;
}

static df_session *session(df_model *m, df_draft *d, const df_session_params *p) {
  df_error err = {0};
  df_session *s = NULL;
  if (df_session_create(m, d, p, &s, &err) != DF_OK) fail_msg("%s", err.msg);
  return s;
}

static int setup(void **state) {
  fixture *f = df_calloc(1, sizeof *f);
  if (!f) return -1;
  f->dir = test_dir_create();
  f->spec = tiny_spec_default();
  const tiny_draft_spec d = tiny_draft_default(&f->spec);
  tiny_model_write(&f->spec, path_of(f, "target.gguf"));
  tiny_draft_write(&d, path_of(f, "draft.gguf"));
  f->m = open_model(f, "target.gguf", 2);
  f->d = open_draft(f, "draft.gguf", f->m);
  *state = f;
  return 0;
}

static int teardown(void **state) {
  fixture *f = *state;
  df_draft_close(f->d);
  df_model_close(f->m);
  test_dir_remove(f->dir);
  df_free(f);
  return 0;
}

/* A result whose ids outlive the session. */
typedef struct answer {
  int32_t ids[MAX_NEW];
  uint32_t n;
  uint64_t hash;
  df_finish finish;
  df_stats stats;
} answer;

static answer ask(df_session *s, const int32_t *ids, size_t n, const df_generate_params *p) {
  df_error err = {0};
  df_result r;
  if (df_session_generate(s, ids, n, p, &r, &err) != DF_OK) fail_msg("%s", err.msg);
  answer a = {.n = r.n_ids, .hash = r.logits_hash, .finish = r.finish, .stats = r.stats};
  assert_true(r.n_ids <= MAX_NEW);
  memcpy(a.ids, r.ids, r.n_ids * sizeof *r.ids);
  return a;
}

static void assert_same(const answer *a, const answer *b, const char *what) {
  if (a->n != b->n || memcmp(a->ids, b->ids, a->n * sizeof *a->ids) != 0) fail_msg("%s: other tokens", what);
  if (a->hash != b->hash) fail_msg("%s: other logits", what);
  if (a->finish != b->finish) fail_msg("%s: finish %d, expected %d", what, (int)a->finish, (int)b->finish);
}

/* n ids that vary with salt, none of them special. */
static void prompt_of(int32_t *ids, uint32_t n, uint32_t salt) {
  for (uint32_t i = 0; i < n; i++) ids[i] = (int32_t)((i * 31 + salt * 17 + i * i * 7) % 251);
}

static df_generate_params greedy(uint32_t max) {
  df_generate_params p = df_generate_params_default();
  p.max_tokens = max;
  p.ignore_eos = true;
  p.hash_logits = true;
  return p;
}

/* ---- identity ------------------------------------------------------------------------------------------- */

static void kind_names(df_generate_params *p, int kind, uint32_t seed) {
  p->sampling.seed = seed;
  if (kind == 0) return;
  p->sampling.temperature = 0.8f;
  if (kind == 2) {
    p->sampling.top_k = 40;
    p->sampling.top_p = 0.9f;
  }
  if (kind == 3) p->sampling.repetition_penalty = 1.3f;
}

/* Every width, eager and replayed, both backends, against plain decoding. Returns the accepted drafts. */
static uint32_t check_identity(df_model *m, df_draft *d, int kind, const char *what) {
  static const char *const backends[] = {"flash", "splitkv", "naive"};
  int32_t ids[40];
  uint32_t accepted = 0;
  const uint32_t n = 5 + (uint32_t)kind * 9;
  prompt_of(ids, n, (uint32_t)kind + 3);
  df_generate_params p = greedy(40);
  kind_names(&p, kind, 11);
  df_session_params sp = df_session_params_default();
  sp.n_ctx = 128;
  df_session *s = session(m, NULL, &sp);
  const answer plain = ask(s, ids, n, &p);
  df_session_free(s);
  for (int32_t drafts = 0; drafts < DF_MAX_WIDTH; drafts++) {
    sp.spec_draft_max = drafts;
    sp.no_graph = drafts % 2;
    sp.verify_attention_backend = backends[drafts % 3];
    sp.attention_backend = backends[drafts / 2 % 2];
    s = session(m, d, &sp);
    const answer a = ask(s, ids, n, &p);
    assert_same(&a, &plain, what);
    if (!sp.no_graph) assert_int_equal(a.stats.step_allocations, 0);
    accepted += a.stats.accepted;
    df_session_free(s);
  }
  return accepted;
}

static void test_generate__draft_changes_nothing(void **state) {
  fixture *f = *state;
  uint32_t accepted = 0;
  for (int kind = 0; kind < 4; kind++) accepted += check_identity(f->m, f->d, kind, "llama");
  assert_true(accepted > 100); /* or the test says nothing */
}

typedef struct variant {
  const char *what;
  tiny_spec spec;
} variant;

static void check_variant(fixture *f, const variant *v, uint32_t threads) {
  const tiny_draft_spec d = tiny_draft_default(&v->spec);
  tiny_model_write(&v->spec, path_of(f, "v.gguf"));
  tiny_draft_write(&d, path_of(f, "vd.gguf"));
  df_model *m = open_model(f, "v.gguf", threads);
  df_draft *draft = open_draft(f, "vd.gguf", m);
  assert_string_equal(df_model_get_info(m).arch, v->spec.arch);
  (void)check_identity(m, draft, 0, v->what);
  (void)check_identity(m, draft, 2, v->what);
  df_draft_close(draft);
  df_model_close(m);
}

static void test_generate__every_family(void **state) {
  fixture *f = *state;
  const tiny_spec base = tiny_spec_default();
  variant v[8];
  for (size_t i = 0; i < DF_COUNT_OF(v); i++) v[i] = (variant){"", base};
  v[0].what = "qwen2 with biases", v[0].spec.arch = "qwen2", v[0].spec.bias = true;
  v[1].what = "qwen3 with head norms", v[1].spec.arch = "qwen3", v[1].spec.qk_norm = true;
  v[2].what = "untied head", v[2].spec.untied = true;
  v[3].what = "odd group of 3", v[3].spec.n_heads = 3, v[3].spec.n_kv_heads = 1;
  v[4].what = "odd group of 7, two kv heads", v[4].spec.n_heads = 14;
  v[5].what = "Q8_0", v[5].spec.dtype = DF_Q8_0;
  v[6].what = "F16, one head each", v[6].spec.dtype = DF_F16, v[6].spec.n_kv_heads = 4;
  v[7].what = "yarn, vocabulary of 271", v[7].spec.rope_scaling = "yarn", v[7].spec.rope_factor = 4,
  v[7].spec.rope_original = 128, v[7].spec.vocab = 271;
  for (size_t i = 0; i < DF_COUNT_OF(v); i++) check_variant(f, &v[i], 1 + i % 3);
}

/* More threads, other page sizes, float32 K and V of their own: each compared with its own plain run; threads and pages
 * with each other too. */
static void test_generate__threads_and_pages_change_nothing(void **state) {
  fixture *f = *state;
  int32_t ids[70];
  prompt_of(ids, 70, 1);
  const df_generate_params p = greedy(60);
  df_session_params sp = df_session_params_default();
  sp.n_ctx = 256;
  df_session *s = session(f->m, NULL, &sp);
  const answer plain = ask(s, ids, 70, &p);
  df_session_free(s);
  for (uint32_t threads = 1; threads <= 5; threads += 2) {
    df_model *m = open_model(f, "target.gguf", threads);
    df_draft *d = open_draft(f, "draft.gguf", m);
    static const uint32_t pages[] = {1, 16, 64};
    for (size_t i = 0; i < DF_COUNT_OF(pages); i++) {
      sp.page_size = pages[i];
      s = session(m, d, &sp);
      const answer a = ask(s, ids, 70, &p);
      assert_same(&a, &plain, "threads and pages");
      df_session_free(s);
    }
    df_draft_close(d);
    df_model_close(m);
  }
}

static void test_generate__reused_prefix_equals_cold_start(void **state) {
  fixture *f = *state;
  int32_t ids[200];
  const df_generate_params p = greedy(20);
  df_session_params sp = df_session_params_default();
  sp.n_ctx = 256;
  df_session *warm = session(f->m, f->d, &sp), *cold = session(f->m, f->d, &sp);
  prompt_of(ids, 40, 5);
  uint32_t n = 40;
  for (int turn = 0; turn < 4; turn++) {
    const answer a = ask(warm, ids, n, &p);
    df_session_reset(cold);
    assert_int_equal(df_session_n_cached(cold), 0);
    const answer b = ask(cold, ids, n, &p);
    assert_same(&a, &b, "warm turn");
    assert_int_equal(b.stats.cached_tokens, 0);
    if (turn > 0) assert_true(a.stats.cached_tokens >= n - 12 && a.stats.cached_tokens < n);
    memcpy(ids + n, a.ids, a.n * sizeof *ids);
    n += a.n;
    prompt_of(ids + n, 10, 9 + (uint32_t)turn);
    n += 10;
  }
  /* The same prompt again: only its last token is computed. Then one that leaves the cached path early. */
  const answer again = ask(warm, ids, n, &p);
  const answer twice = ask(warm, ids, n, &p);
  assert_same(&again, &twice, "same prompt");
  assert_int_equal(twice.stats.cached_tokens, n - 1);
  ids[17] = 1;
  const answer other = ask(warm, ids, 30, &p);
  assert_int_equal(other.stats.cached_tokens, 17);
  df_session_reset(cold);
  const answer fresh = ask(cold, ids, 30, &p);
  assert_same(&other, &fresh, "branch");
  df_session_free(warm);
  df_session_free(cold);
}

/* ---- limits and ends ------------------------------------------------------------------------------------ */

static void test_generate__ends_at_max_tokens(void **state) {
  fixture *f = *state;
  int32_t ids[8];
  prompt_of(ids, 8, 2);
  df_session_params sp = df_session_params_default();
  sp.n_ctx = 128;
  sp.spec_draft_max = 15;
  df_session *s = session(f->m, f->d, &sp);
  df_generate_params p = greedy(MAX_NEW);
  const answer all = ask(s, ids, 8, &p);
  assert_int_equal(all.n, MAX_NEW);
  for (uint32_t max = 1; max <= 40; max++) {
    p.max_tokens = max;
    const answer a = ask(s, ids, 8, &p);
    assert_int_equal(a.n, max);
    assert_int_equal(a.finish, DF_FINISH_LENGTH);
    assert_memory_equal(a.ids, all.ids, max * sizeof *a.ids);
  }
  df_session_free(s);
}

/* Contexts smaller than a block, and every distance of the prompt to the end. */
static void test_generate__ends_at_the_context(void **state) {
  fixture *f = *state;
  int32_t ids[64];
  prompt_of(ids, 64, 4);
  const df_generate_params p = greedy(MAX_NEW);
  for (uint32_t n_ctx = 2; n_ctx <= 50; n_ctx += n_ctx < 20 ? 1 : 7) {
    df_session_params sp = df_session_params_default();
    sp.n_ctx = n_ctx;
    sp.spec_draft_max = 15;
    df_session *spec = session(f->m, f->d, &sp), *plain = session(f->m, NULL, &sp);
    assert_int_equal(df_session_n_ctx(spec), n_ctx);
    for (uint32_t n = 1; n < n_ctx; n += n + 5 < n_ctx ? 3 : 1) {
      const answer a = ask(spec, ids, n, &p), b = ask(plain, ids, n, &p);
      assert_same(&a, &b, "end of context");
      assert_int_equal(a.finish, DF_FINISH_CONTEXT);
      assert_int_equal(a.n + n, n_ctx);
      assert_true(df_session_n_cached(spec) <= n_ctx);
    }
    df_session_free(plain);
    df_session_free(spec);
  }
}

static void test_generate__refuses_bad_requests(void **state) {
  fixture *f = *state;
  int32_t ids[40];
  df_result r;
  df_error err;
  prompt_of(ids, 40, 1);
  df_session_params sp = df_session_params_default();
  sp.n_ctx = 32;
  df_session *s = session(f->m, f->d, &sp);
  df_generate_params p = greedy(4);
  const answer before = ask(s, ids, 10, &p);
  assert_int_equal(df_session_generate(s, ids, 0, &p, &r, &err), DF_ERR_ARGUMENT);
  assert_int_equal(df_session_generate(s, ids, 32, &p, &r, &err), DF_ERR_LIMIT);
  assert_non_null(strstr(err.msg, "32"));
  p.max_tokens = 0;
  assert_int_equal(df_session_generate(s, ids, 5, &p, &r, &err), DF_ERR_ARGUMENT);
  p = greedy(4);
  ids[3] = 300;
  assert_int_equal(df_session_generate(s, ids, 5, &p, &r, &err), DF_ERR_ARGUMENT);
  ids[3] = -1;
  assert_int_equal(df_session_generate(s, ids, 5, &p, &r, &err), DF_ERR_ARGUMENT);
  p.sampling.temperature = -1;
  prompt_of(ids, 40, 1);
  assert_int_equal(df_session_generate(s, ids, 5, &p, &r, &err), DF_ERR_ARGUMENT);
  p = greedy(4);
  const char *const empty[] = {""};
  p.stop = empty;
  p.n_stop = 1;
  assert_int_equal(df_session_generate(s, ids, 5, &p, &r, &err), DF_ERR_ARGUMENT);
  p = greedy(4);
  const answer after = ask(s, ids, 10, &p); /* refusals leave the session usable */
  assert_same(&after, &before, "after refusals");
  df_session_free(s);
}

static void test_session__refuses_bad_parameters(void **state) {
  fixture *f = *state;
  df_error err;
  df_session *s = NULL;
  df_session_params sp = df_session_params_default();
  sp.n_ctx = 1;
  assert_int_equal(df_session_create(f->m, NULL, &sp, &s, &err), DF_ERR_ARGUMENT);
  sp = df_session_params_default();
  sp.spec_draft_max = 16;
  assert_int_equal(df_session_create(f->m, f->d, &sp, &s, &err), DF_ERR_ARGUMENT);
  sp = df_session_params_default();
  sp.page_size = 5;
  assert_int_equal(df_session_create(f->m, NULL, &sp, &s, &err), DF_ERR_ARGUMENT);
  sp = df_session_params_default();
  sp.attention_backend = "none such";
  assert_int_equal(df_session_create(f->m, NULL, &sp, &s, &err), DF_ERR_ARGUMENT);
  assert_non_null(strstr(err.msg, "none such"));
  df_model *other = open_model(f, "target.gguf", 1);
  sp = df_session_params_default();
  assert_int_equal(df_session_create(other, f->d, &sp, &s, &err), DF_ERR_ARGUMENT);
  df_model_close(other);
  assert_null(s);
}

/* ---- stops ---------------------------------------------------------------------------------------------- */

typedef struct text {
  char s[4096];
  size_t n;
  uint32_t ids, events, stop_at; /* events before the callback says stop; 0 = never */
  volatile sig_atomic_t *flag;   /* set at stop_at instead of returning false */
} text;

static bool collect(void *user, const df_event *ev) {
  text *t = user;
  assert_true(t->n + ev->text_len < sizeof t->s);
  memcpy(t->s + t->n, ev->text, ev->text_len);
  t->n += ev->text_len;
  t->ids += ev->n_ids;
  t->events++;
  if (!t->stop_at || t->events < t->stop_at) return true;
  if (!t->flag) return false;
  *t->flag = 1;
  return true;
}

/* A stop string taken from the plain output ends both loops at the same byte, and it never appears. */
static void test_generate__stop_string(void **state) {
  fixture *f = *state;
  int32_t ids[6];
  prompt_of(ids, 6, 7);
  df_session_params sp = df_session_params_default();
  sp.n_ctx = 128;
  sp.spec_draft_max = 15;
  df_session *spec = session(f->m, f->d, &sp), *plain = session(f->m, NULL, &sp);
  df_generate_params p = greedy(MAX_NEW);
  df_logit_bias letters[26]; /* so that the text is readable, and sampled so that it varies */
  for (int32_t i = 0; i < 26; i++) letters[i] = (df_logit_bias){'a' + i, 100};
  p.sampling.bias = letters;
  p.sampling.n_bias = 26;
  p.sampling.temperature = 20;
  text whole = {0};
  p.on_event = collect;
  p.user = &whole;
  (void)ask(plain, ids, 6, &p);
  char cut[3] = {0};
  size_t at = 0;
  for (size_t i = 4; i + 1 < whole.n && !at; i++) /* two ASCII bytes that appear at i for the first time */
    if (whole.s[i] > ' ' && whole.s[i + 1] > ' ' && whole.s[i] != whole.s[i + 1]) {
      memcpy(cut, whole.s + i, 2);
      at = (size_t)(strstr(whole.s, cut) - whole.s);
    }
  if (!at) fail_msg("no text to stop at in \"%s\"", whole.s);
  const char *const stop[] = {"no such text", cut};
  p.stop = stop;
  p.n_stop = 2;
  text a = {0}, b = {0};
  p.user = &a;
  const answer x = ask(spec, ids, 6, &p);
  p.user = &b;
  const answer y = ask(plain, ids, 6, &p);
  assert_same(&x, &y, "stop string");
  assert_int_equal(x.finish, DF_FINISH_STRING);
  assert_int_equal(a.n, at);
  assert_memory_equal(a.s, whole.s, at);
  assert_int_equal(b.n, at);
  assert_int_equal(a.ids, x.n);
  df_session_free(plain);
  df_session_free(spec);
}

/* Logit bias makes the end token win; ignore_eos and min_tokens hold it off. */
static void test_generate__end_token(void **state) {
  fixture *f = *state;
  int32_t ids[6];
  prompt_of(ids, 6, 7);
  df_session_params sp = df_session_params_default();
  sp.n_ctx = 64;
  sp.spec_draft_max = 15;
  df_session *spec = session(f->m, f->d, &sp), *plain = session(f->m, NULL, &sp);
  const df_logit_bias bias = {TINY_TURN, 1000};
  df_generate_params p = greedy(20);
  p.ignore_eos = false;
  p.sampling.bias = &bias;
  p.sampling.n_bias = 1;
  answer a = ask(spec, ids, 6, &p), b = ask(plain, ids, 6, &p);
  assert_same(&a, &b, "end token");
  assert_int_equal(a.finish, DF_FINISH_EOS);
  assert_int_equal(a.n, 1);
  assert_int_equal(a.ids[0], TINY_TURN);
  assert_true(df_model_is_end_token(f->m, TINY_TURN) && df_model_is_end_token(f->m, TINY_END) &&
              !df_model_is_end_token(f->m, TINY_MASK));
  p.min_tokens = 7;
  a = ask(spec, ids, 6, &p);
  assert_int_equal(a.n, 8);
  assert_int_equal(a.finish, DF_FINISH_EOS);
  p.min_tokens = 0;
  p.ignore_eos = true;
  a = ask(spec, ids, 6, &p), b = ask(plain, ids, 6, &p);
  assert_same(&a, &b, "end token ignored");
  assert_int_equal(a.finish, DF_FINISH_LENGTH);
  assert_int_equal(a.n, 20);
  df_session_free(plain);
  df_session_free(spec);
}

static void check_cancelled(df_session *s, const int32_t *ids, uint32_t n, bool by_flag, const answer *whole) {
  volatile sig_atomic_t flag = 0;
  text t = {.stop_at = 3, .flag = by_flag ? &flag : NULL};
  df_generate_params p = greedy(MAX_NEW);
  p.on_event = collect;
  p.user = &t;
  p.cancel = &flag;
  const answer a = ask(s, ids, n, &p);
  assert_int_equal(a.finish, DF_FINISH_CANCELLED);
  assert_string_equal(df_finish_name(a.finish), "cancelled");
  assert_true(a.n >= 3 && a.n < MAX_NEW);
  assert_int_equal(t.ids, a.n);
  assert_memory_equal(a.ids, whole->ids, a.n * sizeof *a.ids);
  const df_generate_params again = greedy(MAX_NEW);
  const answer b = ask(s, ids, n, &again); /* what was cached by then is sound */
  assert_same(&b, whole, "after cancelling");
}

static void test_generate__cancel(void **state) {
  fixture *f = *state;
  int32_t ids[20];
  prompt_of(ids, 20, 6);
  df_session_params sp = df_session_params_default();
  sp.n_ctx = 128;
  df_session *s = session(f->m, f->d, &sp);
  df_generate_params p = greedy(MAX_NEW);
  const answer whole = ask(s, ids, 20, &p);
  check_cancelled(s, ids, 20, false, &whole);
  check_cancelled(s, ids, 20, true, &whole);
  volatile sig_atomic_t set = 1; /* before the first pass */
  p.cancel = &set;
  const answer none = ask(s, ids, 20, &p);
  assert_int_equal(none.finish, DF_FINISH_CANCELLED);
  df_session_free(s);
}

/* ---- scoring -------------------------------------------------------------------------------------------- */

static bool count_progress(void *user, double fraction) {
  double *last = user;
  assert_true(fraction > *last && fraction <= 1);
  *last = fraction;
  return true;
}

static bool refuse(void *user, double fraction) {
  (void)user, (void)fraction;
  return false;
}

static void test_score__does_not_depend_on_the_context_size(void **state) {
  fixture *f = *state;
  int32_t ids[50];
  double a[49], b[49], last = 0;
  df_error err = {0};
  prompt_of(ids, 50, 3);
  df_session_params sp = df_session_params_default();
  sp.n_ctx = 50;
  df_session *s = session(f->m, f->d, &sp);
  sp.n_ctx = 300;
  df_session *t = session(f->m, NULL, &sp);
  assert_int_equal(df_session_score(s, ids, 50, a, count_progress, &last, &err), DF_OK);
  assert_true(last == 1);
  assert_int_equal(df_session_score(t, ids, 50, b, NULL, NULL, &err), DF_OK);
  for (int i = 0; i < 49; i++) assert_true(a[i] == b[i] && a[i] < 0);
  assert_int_equal(df_session_score(s, ids, 1, a, NULL, NULL, &err), DF_ERR_ARGUMENT);
  assert_int_equal(df_session_score(t, ids, 50, b, refuse, NULL, &err), DF_ERR_CANCELLED);
  ids[49] = 300;
  assert_int_equal(df_session_score(s, ids, 50, a, NULL, NULL, &err), DF_ERR_ARGUMENT);
  df_session_free(t);
  sp.n_ctx = 49;
  t = session(f->m, NULL, &sp);
  ids[49] = 1;
  assert_int_equal(df_session_score(t, ids, 50, b, NULL, NULL, &err), DF_ERR_LIMIT);
  df_session_free(t);
  df_session_free(s);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_generate__draft_changes_nothing),
      cmocka_unit_test(test_generate__every_family),
      cmocka_unit_test(test_generate__threads_and_pages_change_nothing),
      cmocka_unit_test(test_generate__reused_prefix_equals_cold_start),
      cmocka_unit_test(test_generate__ends_at_max_tokens),
      cmocka_unit_test(test_generate__ends_at_the_context),
      cmocka_unit_test(test_generate__refuses_bad_requests),
      cmocka_unit_test(test_session__refuses_bad_parameters),
      cmocka_unit_test(test_generate__stop_string),
      cmocka_unit_test(test_generate__end_token),
      cmocka_unit_test(test_generate__cancel),
      cmocka_unit_test(test_score__does_not_depend_on_the_context_size),
  };
  return cmocka_run_group_tests_name("engine", tests, setup, teardown);
}
