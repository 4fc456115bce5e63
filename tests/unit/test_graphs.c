/* Recorded programs: keys, the table, buckets and padding, static inputs that are refilled completely, tails, memory,
 * and that a replay, a first run and an eager run leave the same bits. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "attention/hybrid.h"
#include "attention/tbo.h"
#include "base/mem.h"
#include "base/size.h"
#include "engine/engine.h"
#include "support/stub_attn.h"
#include "support/tiny_target.h"

typedef struct fixture {
  tiny_spec spec;
  df_model *m;
  df_draft *d;
  float *table;
} fixture;

enum { LEN = 100 };

static void must(df_status s, const df_error *err) {
  if (s != DF_OK) fail_msg("%s", err->msg);
}

static int setup(void **state) {
  fixture *f = df_calloc(1, sizeof *f);
  if (!f) return -1;
  f->spec = tiny_spec_default();
  f->spec.dtype = DF_Q8_0;
  f->m = tiny_open(&f->spec, 3);
  f->d = tiny_open_draft(&f->spec, f->m);
  f->table = tiny_table(f->m, DF_KV_F16, LEN);
  *state = f;
  return 0;
}

static int teardown(void **state) {
  fixture *f = *state;
  df_pages_free(f->table, tiny_table_bytes(f->m));
  df_draft_close(f->d);
  df_model_close(f->m);
  df_free(f);
  return 0;
}

/* ---- keys ----------------------------------------------------------------------------------------------- */

/* Every byte of the key counts; only the padding behind the last member may differ. */
static void test_key__every_byte_counts(void **state) {
  (void)state;
  stub_attn leaf = stub_leaf("x", stub_caps_all());
  df_graph_key a;
  memset(&a, 0, sizeof a);
  a.mode = DF_MODE_TARGET_VERIFY;
  a.seqs = 3, a.rows = 5, a.kv = DF_KV_F32, a.taps = 2, a.tail = DF_TAIL_ARGMAX, a.executor = &leaf.base,
  a.mask = DF_MASK_QLEN;
  const size_t used = offsetof(df_graph_key, mask) + sizeof a.mask;
  assert_true(sizeof a - used < sizeof(void *)); /* a member added behind it would have to be looked at here */
  for (size_t i = 0; i < used; i++) {
    df_graph_key b = a;
    uint8_t bytes[sizeof b];
    memcpy(bytes, &b, sizeof b);
    bytes[i] ^= 1;
    memcpy(&b, bytes, sizeof b);
    if (df_graph_key_equal(&a, &b)) fail_msg("byte %zu of the key does not count", i);
  }
  df_graph_key c = a;
  assert_true(df_graph_key_equal(&a, &c));
}

/* Key number i: all members vary, no two keys are alike. */
static df_graph_key numbered(uint32_t i, const stub_attn leaves[2]) {
  return (df_graph_key){.mode = (df_mode)(i % 4),
                        .seqs = 1 + i / 4 % 2,
                        .rows = 1 + i / 8 % 2,
                        .kv = (df_kv_type)(i / 16 % 2),
                        .taps = i / 32 % 2,
                        .tail = (df_tail)(i / 64 % 2),
                        .executor = &leaves[i / 128 % 2].base,
                        .mask = (df_mask_layout)(i / 256)};
}

/* The table holds its 256 programs, finds each by its own key alone, and refuses one more without losing any. */
static void test_table__full(void **state) {
  (void)state;
  df_error err = {0};
  df_graphs g;
  stub_attn leaves[2] = {stub_leaf("a", stub_caps_all()), stub_leaf("b", stub_caps_all())};
  static df_program *made[DF_MAX_GRAPHS];
  must(df_graphs_init(&g, true, &err), &err);
  for (uint32_t i = 0; i < DF_MAX_GRAPHS; i++) {
    const df_graph_key key = numbered(i, leaves);
    assert_null(df_graphs_find(&g, &key));
    must(df_program_create(1, 1, 1, &made[i], &err), &err);
    df_graphs_add(&g, &key, made[i]);
  }
  for (uint32_t i = 0; i < 3 * DF_MAX_GRAPHS; i++) {
    const df_graph_key key = numbered(i, leaves);
    assert_ptr_equal(df_graphs_find(&g, &key), i < DF_MAX_GRAPHS ? made[i] : NULL);
  }
  df_program *more;
  const df_graph_key next = numbered(DF_MAX_GRAPHS, leaves);
  must(df_program_create(1, 1, 1, &more, &err), &err);
  assert_false(g.full);
  df_graphs_add(&g, &next, more);
  assert_int_equal(g.n, DF_MAX_GRAPHS);
  assert_null(df_graphs_find(&g, &next));
  assert_true(g.full);
  assert_ptr_equal(g.eager, more); /* runs once, and is the table's to free */
  df_graphs_release(&g);
}

/* A pass that finds the table full runs eagerly, with the same bits; passes whose programs are there go on. */
static void test_target__table_full(void **state) {
  const fixture *f = *state;
  df_error err = {0};
  tiny_target x;
  stub_attn leaf = stub_leaf("x", stub_caps_all());
  tiny_target_init(&x, f->m, &(tiny_options){0});
  tiny_prefill(&x, 0, 20);
  for (uint32_t i = x.t.runner.graphs.n; i < DF_MAX_GRAPHS; i++) {
    df_program *p;
    const df_graph_key key = {.seqs = i, .executor = &leaf.base};
    must(df_program_create(1, 1, 1, &p, &err), &err);
    df_graphs_add(&x.t.runner.graphs, &key, p);
  }
  const tiny_item one = {0, 20, 1};
  for (int i = 0; i < 3; i++) {
    must(tiny_try(&x, DF_MODE_DECODE, &one, 1, DF_MASK_NONE, NULL, 0, &err), &err);
    tiny_assert_rows(&x, f->table, &one, 1, "an eager pass beside a full table");
    assert_int_equal(x.t.runner.graphs.n, DF_MAX_GRAPHS);
  }
  tiny_prefill(&x, 0, 30);
  const tiny_item rows = {0, 0, 30};
  tiny_assert_rows(&x, f->table, &rows, 1, "a program that is there");
  tiny_target_release(&x);
}

/* ---- buckets -------------------------------------------------------------------------------------------- */

static void test_buckets__choice(void **state) {
  const fixture *f = *state;
  static const uint32_t k_odd[] = {2, 3, 9, 40};
  static const struct {
    const uint32_t *list;
    uint32_t n_list, max_seqs, want[TINY_SEQS]; /* of 1..5 sequences */
  } k[] = {
      {NULL, 0, 5, {1, 2, 3, 4, 5}}, /* the default list ends with the most there are */
      {NULL, 0, 3, {1, 2, 3, 3, 3}},  {k_odd, 4, 5, {2, 2, 3, 5, 5}}, {k_odd, 1, 5, {2, 2, 5, 5, 5}},
      {k_odd, 0, 5, {5, 5, 5, 5, 5}}, {k_odd, 4, 1, {1, 1, 1, 1, 1}},
  };
  for (size_t i = 0; i < DF_COUNT_OF(k); i++) {
    tiny_target x;
    const tiny_options o = {.max_seqs = k[i].max_seqs, .buckets = k[i].list, .n_buckets = k[i].n_list};
    tiny_target_init(&x, f->m, &o);
    for (uint32_t n = 1; n <= k[i].max_seqs; n++) assert_int_equal(df_target_bucket(&x.t, n), k[i].want[n - 1]);
    tiny_target_release(&x);
  }
}

static void test_buckets__wrong_lists(void **state) {
  const fixture *f = *state;
  static const uint32_t k[][3] = {{0, 1, 2}, {1, 1, 2}, {1, 3, 2}, {4, 2, 1}};
  for (size_t i = 0; i < DF_COUNT_OF(k); i++) {
    df_error err = {0};
    df_pages pages;
    df_target t;
    must(df_pages_init(&pages, 16, 64, &err), &err);
    const df_target_params p = {.max_seqs = 8,
                                .max_rows = 32,
                                .max_out = 16,
                                .max_positions = 64,
                                .pages = &pages,
                                .attn = tiny_leaf(f->m, "flash"),
                                .seq_buckets = k[i],
                                .n_seq_buckets = 3};
    assert_int_equal(df_target_init(&t, f->m, &p, &err), DF_ERR_ARGUMENT);
    df_pages_release(&pages);
  }
}

/* Programs by mode: how many there are with this row count and sequence bucket. */
static uint32_t count_keys(const tiny_target *x, df_mode mode, uint32_t seqs, uint32_t rows) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < x->t.runner.graphs.n; i++) {
    const df_graph_key *k = &x->t.runner.graphs.items[i].key;
    n += k->mode == mode && k->seqs == seqs && k->rows == rows;
  }
  return n;
}

/* Keys come when they are first needed, once; preparing records what running needs and runs nothing. */
static void test_target__records_lazily(void **state) {
  const fixture *f = *state;
  static const uint32_t k_buckets[] = {1, 4};
  df_error err = {0};
  tiny_target x;
  tiny_target_init(&x, f->m, &(tiny_options){.buckets = k_buckets, .n_buckets = 2});
  const df_graphs *g = &x.t.runner.graphs;
  assert_int_equal(g->n, 0);
  for (uint32_t s = 0; s < 4; s++) tiny_prefill(&x, s, 17 + 2 * s);
  assert_int_equal(g->n, 1);
  assert_int_equal(count_keys(&x, DF_MODE_EXTEND, 1, 64), 1);
  tiny_prefill(&x, 0, 3);
  tiny_prefill(&x, 0, 100);
  assert_int_equal(count_keys(&x, DF_MODE_EXTEND, 1, 16), 1);
  assert_int_equal(count_keys(&x, DF_MODE_EXTEND, 1, TINY_ROWS), 1);
  assert_int_equal(g->n, 3);
  const tiny_item two[2] = {{0, 100, 1}, {1, 19, 1}};
  tiny_run(&x, DF_MODE_EXTEND, two, 2); /* several prompts: made for as many as there may be */
  assert_int_equal(count_keys(&x, DF_MODE_EXTEND, TINY_SEQS, 16), 1);
  must(df_target_prepare(&x.t, 3, 6, DF_TAIL_LOGITS, &err), &err);
  must(df_target_prepare(&x.t, 2, 1, DF_TAIL_LOGITS, &err), &err);
  must(df_target_prepare(&x.t, 4, 1, DF_TAIL_LOGITS, &err), &err); /* the same as for 2 */
  assert_int_equal(g->n, 6);
  assert_int_equal(count_keys(&x, DF_MODE_TARGET_VERIFY, 4, 6), 1);
  assert_int_equal(count_keys(&x, DF_MODE_DECODE, 4, 1), 1);
  const uint64_t allocations = df_mem_alloc_count();
  for (uint32_t n = 2; n <= 4; n++) {
    const tiny_item verify[4] = {{0, 20, 6}, {1, 19, 6}, {2, 21, 6}, {3, 23, 6}};
    const tiny_item decode[4] = {{0, 20, 1}, {1, 19, 1}, {2, 21, 1}, {3, 23, 1}};
    tiny_run(&x, DF_MODE_DECODE, decode, n);
    tiny_assert_rows(&x, f->table, decode, n, "prepared decode");
    tiny_run(&x, DF_MODE_TARGET_VERIFY, verify, n);
    tiny_assert_rows(&x, f->table, verify, n, "prepared verify");
  }
  assert_int_equal(df_mem_alloc_count(), allocations);
  assert_int_equal(g->n, 6);
  const tiny_item alone = {0, 26, 6};
  tiny_run(&x, DF_MODE_TARGET_VERIFY, &alone, 1);
  assert_int_equal(count_keys(&x, DF_MODE_TARGET_VERIFY, 1, 6), 1);
  assert_true(df_graphs_bytes(g) > 0);
  tiny_target_release(&x);
}

/* ---- static inputs -------------------------------------------------------------------------------------- */

/* Values that no program could survive reading. */
static void spoil(df_batch *b) {
  memset(b->ids, 0x7F, b->max_rows * sizeof *b->ids);
  memset(b->pos, 0x7F, b->max_rows * sizeof *b->pos);
  memset(b->slot, 0x7F, b->max_rows * sizeof *b->slot);
  memset(b->out_row, 0x7F, b->max_rows * sizeof *b->out_row);
  memset(b->q_start, 0x7F, (b->max_seqs + 1) * sizeof *b->q_start);
  memset(b->kv_len, 0x7F, b->max_seqs * sizeof *b->kv_len);
  memset(b->state_slot, 0x7F, b->max_seqs * sizeof *b->state_slot);
  memset(b->page_table, 0x7F, (size_t)b->max_seqs * b->max_pages * sizeof *b->page_table);
  b->n_rows = b->n_seqs = b->n_live = b->n_out = 0x7F7F7F7F;
  b->mask_layout = DF_MASK_FULL;
  b->mask = (const uint8_t *)b->ids;
  b->mask_bytes = 0;
}

static df_attn *stack(df_model *m, int kind) {
  df_error err = {0};
  df_attn *a = NULL, *part[3];
  if (kind == 0) return tiny_leaf(m, "flash");
  if (kind == 1) return tiny_leaf(m, "splitkv");
  if (kind == 2) return tiny_leaf(m, "naive");
  for (int i = 0; i < 3; i++)
    must(df_attn_hybrid_create(tiny_leaf(m, "flash"), tiny_leaf(m, "splitkv"), NULL, kind == 4, &part[i], &err), &err);
  must(df_attn_tbo_create(part[0], part[1], part[2], &a, &err), &err);
  return a;
}

/* A large pass, everything spoiled, then smaller passes of the same program: every input is written anew. Whatever
 * halves and tails were left by others does not show. */
static void test_inputs__are_all_refilled(void **state) {
  const fixture *f = *state;
  static const uint32_t k_buckets[] = {5}, k_pages[] = {16, 1, 64};
  for (int kind = 0; kind < 5; kind++)
    for (int eager = 0; eager < 2; eager++) {
      tiny_target x;
      tiny_target_init(&x, f->m,
                       &(tiny_options){.attn = stack(f->m, kind),
                                       .page_size = k_pages[(kind + eager) % 3],
                                       .eager = eager != 0,
                                       .buckets = k_buckets,
                                       .n_buckets = 1});
      for (uint32_t s = 0; s < TINY_SEQS; s++)
        for (uint32_t at = 0; at < 90; at += 45) {
          const tiny_item part = {s, at, 45};
          spoil(&x.t.batch);
          tiny_run(&x, DF_MODE_EXTEND, &part, 1);
          tiny_assert_rows(&x, f->table, &part, 1, "prefill");
        }
      for (uint32_t w = 1; w <= 9; w += 4)
        for (uint32_t n = 5; n > 0; n--) {
          const tiny_item items[5] = {{4, 85 - w, w}, {0, 0, w}, {2, 63, w}, {1, 40, w}, {3, 16, w}};
          for (int h = 0; h < 2; h++) memset(x.t.halves[h].q_start, 0x7F, (TINY_SEQS + 1) * sizeof(uint32_t));
          spoil(&x.t.batch);
          tiny_run(&x, w == 1 ? DF_MODE_DECODE : DF_MODE_TARGET_VERIFY, items + 5 - n, n);
          tiny_assert_rows(&x, f->table, items + 5 - n, n, "a smaller pass of the same program");
        }
      for (uint32_t n = 5; n > 0; n--) {
        const tiny_item items[5] = {{0, 0, 7}, {1, 60, 9}, {2, 1, 1}, {3, 62, 4}, {4, 80, 10}};
        spoil(&x.t.batch);
        tiny_run(&x, DF_MODE_EXTEND, items, n);
        tiny_assert_rows(&x, f->table, items, n, "ragged");
      }
      assert_true(eager ? x.t.runner.graphs.n == 0 : x.t.runner.graphs.n > 0);
      assert_int_equal(x.t.runner.graphs.eager != NULL, eager);
      tiny_target_release(&x);
    }
}

/* ---- tails ---------------------------------------------------------------------------------------------- */

/* No tail touches neither logits nor best tokens; the argmax tail leaves both, and its token is the lowest of the
 * largest. */
static void test_tails__leave_what_they_say(void **state) {
  const fixture *f = *state;
  tiny_target x;
  df_error err = {0};
  tiny_target_init(&x, f->m, &(tiny_options){0});
  const tiny_item item = {0, 0, 30};
  const size_t logits = x.t.ws.logits_ld * TINY_ROWS * sizeof(float),
               best = (size_t)TINY_ROWS * x.t.ws.segments * sizeof(float);
  static const df_tail k_tails[] = {DF_TAIL_NONE, DF_TAIL_LOGITS, DF_TAIL_ARGMAX, DF_TAIL_NONE};
  for (size_t i = 0; i < DF_COUNT_OF(k_tails); i++) {
    memset(x.t.ws.logits, 0x7F, logits);
    memset(x.t.ws.best, 0x7F, best);
    float first;
    memcpy(&first, x.t.ws.logits, sizeof first);
    tiny_fill(&x, &item, 1);
    must(df_target_run(&x.t, DF_MODE_EXTEND, k_tails[i], &err), &err);
    if (k_tails[i] == DF_TAIL_NONE)
      assert_memory_equal(x.t.ws.logits, &first, sizeof first);
    else
      tiny_assert_rows(&x, f->table, &item, 1, "tail");
    if (k_tails[i] != DF_TAIL_ARGMAX) assert_memory_equal(x.t.ws.best, &first, sizeof first);
    for (uint32_t r = 0; k_tails[i] == DF_TAIL_ARGMAX && r < item.n; r++) {
      const float *l = tiny_logits(&x, r);
      uint32_t top = 0;
      for (uint32_t c = 1; c < f->m->cfg.vocab; c++)
        if (l[c] > l[top]) top = c;
      assert_int_equal(df_workspace_best(&x.t.ws, r), top);
    }
  }
  assert_int_equal(x.t.runner.graphs.n, 3); /* one for each tail, the last one found again */
  tiny_target_release(&x);
}

/* Only the rows that were asked for leave, in order. */
static void test_tails__output_rows(void **state) {
  const fixture *f = *state;
  tiny_target x;
  df_error err = {0};
  tiny_target_init(&x, f->m, &(tiny_options){0});
  int32_t ids[3][9];
  for (uint32_t s = 0; s < 3; s++)
    for (uint32_t p = 0; p < 9; p++) ids[s][p] = tiny_id(s, p);
  df_batch *b = &x.t.batch;
  df_fill_begin(b);
  assert_int_equal(df_fill_add(b, &x.seq[0], ids[0], 9, 0, DF_OUT_LAST), 0);
  assert_int_equal(df_fill_add(b, &x.seq[1], ids[1], 5, 0, DF_OUT_NONE), 1);
  assert_int_equal(df_fill_add(b, &x.seq[2], ids[2], 4, 0, DF_OUT_ALL_BUT_FIRST), 1);
  must(df_target_run(&x.t, DF_MODE_EXTEND, DF_TAIL_LOGITS, &err), &err);
  assert_int_equal(b->n_out, 4);
  static const tiny_item k_rows[] = {{0, 8, 1}, {2, 1, 3}};
  tiny_assert_rows(&x, f->table, k_rows, 2, "asked for");
  tiny_target_release(&x);
}

/* ---- step loops ----------------------------------------------------------------------------------------- */

/* 23: split backends, verify on either, recorded or eager: the same tokens and the same number of accepted drafts. */
static void test_steps__recorded_and_eager(void **state) {
  const fixture *f = *state;
  enum { PROMPT = 20, NEW = 50 };
  static int32_t plain[TINY_SEQS * TINY_LEN], got[TINY_SEQS * TINY_LEN];
  tiny_target x;
  tiny_target_init(&x, f->m, &(tiny_options){.attn = tiny_leaf(f->m, "naive"), .eager = true});
  (void)tiny_generate(&x, NULL, PROMPT, NEW, 1, plain);
  tiny_target_release(&x);
  uint32_t all = 0;
  for (uint32_t w = 2; w <= 16; w += w < 5 ? 3 : 11) {
    uint32_t accepted[8];
    for (int run = 0; run < 8; run++) {
      df_error err = {0};
      df_drafter r;
      static const int k_stacks[] = {0, 1, 3, 4};
      const bool eager = run % 2;
      tiny_target_init(&x, f->m,
                       &(tiny_options){.attn = stack(f->m, k_stacks[run / 2]),
                                       .eager = eager,
                                       .taps = f->d->cfg.taps,
                                       .n_taps = f->d->cfg.n_taps});
      must(df_drafter_init(&r, f->d, &x.t, 16, !eager, &err), &err);
      accepted[run] = tiny_generate(&x, &r, PROMPT, NEW, w, got);
      for (uint32_t s = 0; s < TINY_SEQS; s++)
        assert_memory_equal(plain + s * TINY_LEN, got + s * TINY_LEN, NEW * sizeof *got);
      assert_int_equal(accepted[run], accepted[0]);
      df_drafter_release(&r);
      tiny_target_release(&x);
    }
    all += accepted[0];
  }
  assert_true(all > 50 && all < 3 * TINY_SEQS * (NEW - 1));
}

/* ---- memory --------------------------------------------------------------------------------------------- */

static df_status engine_with(const fixture *f, df_draft *d, uint64_t limit, bool no_graph, size_t *bytes,
                             df_error *err) {
  df_engine e;
  df_engine_params p = {.session = df_session_params_default(), .max_seqs = 2};
  p.session.n_ctx = 256;
  p.session.spec_draft_max = d ? 7 : -1;
  p.session.graph_memory = limit;
  p.session.no_graph = no_graph;
  const df_status s = df_engine_init(&e, f->m, d, &p, err);
  if (s != DF_OK) return s;
  *bytes = df_engine_graph_bytes(&e);
  df_engine_release(&e);
  return DF_OK;
}

/* A limit is met to the byte: what one request's step needs is enough, one byte less is refused with both numbers. */
static void test_engine__graph_memory(void **state) {
  const fixture *f = *state;
  for (int with_draft = 0; with_draft < 2; with_draft++) {
    df_draft *d = with_draft ? f->d : NULL;
    df_error err = {0};
    size_t need = 0, bytes = 1;
    char text[32];
    must(engine_with(f, d, UINT64_MAX, false, &need, &err), &err);
    assert_true(need > 1000);
    must(engine_with(f, d, need, false, &bytes, &err), &err);
    assert_int_equal(bytes, need);
    assert_int_equal(engine_with(f, d, need - 1, false, &bytes, &err), DF_ERR_LIMIT);
    (void)snprintf(text, sizeof text, "%zu", need);
    assert_non_null(strstr(err.msg, text));
    (void)snprintf(text, sizeof text, "%zu bytes", need - 1);
    assert_non_null(strstr(err.msg, text));
    must(engine_with(f, d, 1, true, &bytes, &err), &err); /* nothing is recorded */
    assert_int_equal(bytes, 0);
  }
}

enum { TWO_NEW = 24 };

/* Two requests of one engine at once. Returns what its programs take in the end. */
static size_t two_at_once(const fixture *f, uint64_t limit, int32_t out[2][TWO_NEW]) {
  df_error err = {0};
  df_engine e;
  df_engine_params p = {.session = df_session_params_default(), .max_seqs = 2};
  df_request q[2], *both[2] = {&q[0], &q[1]};
  df_generate_params g = df_generate_params_default();
  const int32_t prompt[2][3] = {{5, 6, 7}, {9, 8, 7}};
  g.max_tokens = TWO_NEW;
  g.ignore_eos = true;
  p.session.n_ctx = 256;
  p.session.spec_draft_max = 7;
  p.session.graph_memory = limit;
  must(df_engine_init(&e, f->m, f->d, &p, &err), &err);
  for (int i = 0; i < 2; i++) must(df_engine_request(&e, &q[i], prompt[i], 3, 0, NULL, &g, &err), &err);
  while (q[0].state != DF_REQ_DONE || q[1].state != DF_REQ_DONE) must(df_engine_step(&e, both, 2, &err), &err);
  const size_t bytes = df_engine_graph_bytes(&e);
  for (int i = 0; i < 2; i++) {
    assert_int_equal(q[i].n_ids - q[i].n_prompt, TWO_NEW);
    memcpy(out[i], q[i].ids + q[i].n_prompt, TWO_NEW * sizeof(int32_t));
    df_kv_seq_release(&q[i].seq, &e.pages);
    df_request_release(&q[i]);
  }
  df_engine_release(&e);
  return bytes;
}

/* What is recorded later counts as well: passes beyond the limit run eagerly, and the text is the same. */
static void test_engine__graph_memory_while_running(void **state) {
  const fixture *f = *state;
  df_error err = {0};
  size_t need = 0;
  int32_t want[2][TWO_NEW], got[2][TWO_NEW];
  must(engine_with(f, f->d, UINT64_MAX, false, &need, &err), &err);
  const size_t all = two_at_once(f, 0, want);
  assert_true(all > need); /* programs for two requests came on top */
  assert_true(two_at_once(f, need, got) == need);
  assert_memory_equal(got, want, sizeof want);
  const size_t some = two_at_once(f, (need + all) / 2, got);
  assert_true(some >= need && some <= (need + all) / 2);
  assert_memory_equal(got, want, sizeof want);
}

/* Emitting a program by hand: as many ops as it holds, then an error and nothing lost. */
static void test_program__ends(void **state) {
  (void)state;
  df_error err = {0};
  df_program *p;
  must(df_program_create(8, 2, 1, &p, &err), &err);
  const df_op_tap op = {0};
  uint32_t n = 0, have;
  while (df_emit_tap(p, &op, &err) == DF_OK) n++;
  assert_int_equal(n, 4096);
  (void)df_program_ops(p, &have);
  assert_int_equal(have, n);
  assert_true(df_program_bytes(p) >= n * (sizeof(df_op) + sizeof op));
  df_program_clear(p, 4, 1);
  assert_int_equal(df_program_max_rows(p), 4);
  assert_int_equal(df_program_max_seqs(p), 1);
  (void)df_program_ops(p, &have);
  assert_int_equal(have, 0);
  must(df_emit_tap(p, &op, &err), &err);
  df_program_free(p);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_key__every_byte_counts),
      cmocka_unit_test(test_table__full),
      cmocka_unit_test(test_target__table_full),
      cmocka_unit_test(test_buckets__choice),
      cmocka_unit_test(test_buckets__wrong_lists),
      cmocka_unit_test(test_target__records_lazily),
      cmocka_unit_test(test_inputs__are_all_refilled),
      cmocka_unit_test(test_tails__leave_what_they_say),
      cmocka_unit_test(test_tails__output_rows),
      cmocka_unit_test(test_steps__recorded_and_eager),
      cmocka_unit_test(test_engine__graph_memory),
      cmocka_unit_test(test_engine__graph_memory_while_running),
      cmocka_unit_test(test_program__ends),
  };
  return cmocka_run_group_tests_name("graphs", tests, setup, teardown);
}
