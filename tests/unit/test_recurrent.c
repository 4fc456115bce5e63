/* Recurrent layers: the state behind a row is the same however the row came to be run, rejected rows leave nothing
 * behind, sequences do not meet. Layers 1 and 3 of a tiny model are recurrent. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "attention/hybrid.h"
#include "attention/recurrent.h"
#include "attention/tbo.h"
#include "base/mem.h"
#include "base/size.h"
#include "device/cpu/cpu_exec.h"
#include "support/kernel_data.h"
#include "support/test_models.h"
#include "support/tiny_target.h"

enum { LAYERS = 4, N_LINEAR = 2, LEN = 96, SEED = 11, NEW = 32, PROMPT = 12, AT = 7 };

static const bool k_is_linear[LAYERS] = {false, true, false, true};
static const uint32_t k_index[LAYERS] = {0, 0, 0, 1};

typedef struct fixture {
  tiny_spec spec;
  df_model *m;
  float *table;  /* logits [seq][position] by decoding alone */
  float *states; /* committed state behind each position: [seq][position][one] */
} fixture;

typedef enum stack_kind {
  STACK_NAIVE,
  STACK_FLASH,
  STACK_SPLIT,
  STACK_HYBRID,
  STACK_OUTER_HYBRID,
  STACK_TBO,
  STACKS
} stack_kind;

/* A target and the state that all its backends share. */
typedef struct rig {
  df_recurrent_state st;
  tiny_target x;
  size_t one; /* floats of one slot */
} rig;

static void must(df_status s, const df_error *err) {
  if (s != DF_OK) fail_msg("%s", err->msg);
}

/* ---- stacks --------------------------------------------------------------------------------------------- */

static df_attn *linear_over(const df_model *m, df_recurrent_state *st, df_attn *attention) {
  df_error err = {0};
  df_attn *r, *out;
  const df_attn_shape shape = tiny_shape(m);
  must(df_attn_recurrent_create(&shape, st, k_index, LAYERS, &r, &err), &err);
  must(df_attn_hybrid_linear_create(attention, r, k_is_linear, LAYERS, &out, &err), &err);
  return out;
}

static df_attn *stack(const df_model *m, df_recurrent_state *st, stack_kind kind) {
  df_error err = {0};
  df_attn *a = NULL, *half[2];
  switch (kind) {
    case STACK_NAIVE: return linear_over(m, st, tiny_leaf(m, "naive"));
    case STACK_FLASH: return linear_over(m, st, tiny_leaf(m, "flash"));
    case STACK_SPLIT: return linear_over(m, st, tiny_leaf(m, "splitkv"));
    case STACK_OUTER_HYBRID:
      must(df_attn_hybrid_create(linear_over(m, st, tiny_leaf(m, "flash")), linear_over(m, st, tiny_leaf(m, "splitkv")),
                                 NULL, false, &a, &err),
           &err);
      return a;
    case STACK_TBO:
      for (int i = 0; i < 2; i++) half[i] = stack(m, st, STACK_HYBRID);
      must(df_attn_tbo_create(stack(m, st, STACK_HYBRID), half[0], half[1], &a, &err), &err);
      return a;
    default:
      must(df_attn_hybrid_create(tiny_leaf(m, "flash"), tiny_leaf(m, "splitkv"), NULL, true, &a, &err), &err);
      return linear_over(m, st, a);
  }
}

static void rig_init(rig *r, df_model *m, stack_kind kind, tiny_options o) {
  df_error err = {0};
  *r = (rig){0};
  must(df_recurrent_state_init(&r->st, N_LINEAR, m->cfg.n_kv_heads, m->cfg.head_dim, TINY_SEQS, TINY_SEQS, 16, SEED,
                               &err),
       &err);
  r->one = (size_t)N_LINEAR * m->cfg.n_kv_heads * m->cfg.head_dim * m->cfg.head_dim;
  o.attn = stack(m, &r->st, kind);
  o.kv = DF_KV_F32;
  tiny_target_init(&r->x, m, &o);
  memset(r->st.committed, 0xFF, r->st.committed_bytes); /* whoever reads what nobody wrote shows it */
  memset(r->st.behind, 0xFF, r->st.behind_bytes);
}

static void rig_release(rig *r) {
  tiny_target_release(&r->x);
  df_recurrent_state_release(&r->st);
}

static float *slot(const rig *r, uint32_t s) { return r->st.committed + s * r->one; }

static void commit(rig *r, const uint32_t *lens, uint32_t n) {
  df_error err = {0};
  df_attn *a = r->x.t.attn;
  must(a->ops->commit(a, &r->x.t.batch, lens, n, &err), &err);
}

static size_t state_at(const rig *r, uint32_t seq, uint32_t pos) { return ((size_t)seq * LEN + pos) * r->one; }

/* Sequence seq, n positions run: its slot holds the table's state. */
static void assert_state(const fixture *f, const rig *r, uint32_t seq, uint32_t n, const char *what) {
  if (memcmp(slot(r, seq + 1), f->states + state_at(r, seq, n - 1), r->one * sizeof(float)) != 0)
    fail_msg("%s: sequence %u has another state after %u positions", what, seq, n);
}

/* ---- fixture: decoding alone ---------------------------------------------------------------------------- */

static int setup(void **state) {
  fixture *f = df_calloc(1, sizeof *f);
  if (!f) return -1;
  f->spec = tiny_spec_default();
  f->spec.n_layers = LAYERS;
  f->spec.gain = 0.3f; /* so that drafts are accepted at times */
  f->m = tiny_open(&f->spec, 3);
  rig r;
  rig_init(&r, f->m, STACK_NAIVE, (tiny_options){.max_seqs = 1});
  f->table = df_pages_alloc(tiny_table_bytes(f->m));
  f->states = df_pages_alloc((size_t)TINY_SEQS * LEN * r.one * sizeof(float));
  if (!f->table || !f->states) return -1;
  for (uint32_t s = 0; s < TINY_SEQS; s++)
    for (uint32_t p = 0; p < LEN; p++) {
      const tiny_item one = {s, p, 1};
      const uint32_t len = 1;
      tiny_run(&r.x, DF_MODE_DECODE, &one, 1);
      commit(&r, &len, 1);
      memcpy(f->table + ((size_t)s * TINY_LEN + p) * f->m->cfg.vocab, tiny_logits(&r.x, 0), tiny_row_bytes(&r.x));
      memcpy(f->states + state_at(&r, s, p), slot(&r, s + 1), r.one * sizeof(float));
    }
  rig_release(&r);
  *state = f;
  return 0;
}

static int teardown(void **state) {
  fixture *f = *state;
  const size_t one = (size_t)N_LINEAR * f->m->cfg.n_kv_heads * f->m->cfg.head_dim * f->m->cfg.head_dim;
  df_pages_free(f->table, tiny_table_bytes(f->m));
  df_pages_free(f->states, (size_t)TINY_SEQS * LEN * one * sizeof(float));
  df_model_close(f->m);
  df_free(f);
  return 0;
}

/* ---- prefill -------------------------------------------------------------------------------------------- */

static void run_checked(const fixture *f, rig *r, df_mode mode, const tiny_item *items, uint32_t n, const char *what) {
  tiny_run(&r->x, mode, items, n);
  tiny_assert_rows(&r->x, f->table, items, n, what);
}

/* All at once, and in pieces of odd sizes, by every stack; the state behind each piece is the one behind that position.
 */
static void test_prefill__any_pieces(void **state) {
  const fixture *f = *state;
  static const uint32_t k_sizes[] = {LEN, 1, 3, 7, 13, 29, 64, 5, 11};
  for (int kind = 0; kind < STACKS; kind++)
    for (size_t i = (size_t)kind % 3; i < DF_COUNT_OF(k_sizes); i += df_test_long() ? 1 : 3) {
      rig r;
      rig_init(&r, f->m, (stack_kind)kind, (tiny_options){0});
      for (uint32_t at = 0; at < LEN;) {
        uint32_t n = DF_MIN(k_sizes[i], LEN - at);
        if (kind == STACK_SPLIT) n = DF_MIN(n, 64u); /* what that leaf takes in one pass */
        const tiny_item part = {2, at, n};
        run_checked(f, &r, DF_MODE_EXTEND, &part, 1, "prefill");
        at += n;
        assert_state(f, &r, 2, at, "prefill");
      }
      rig_release(&r);
    }
}

/* Several prompts in one ragged pass, each somewhere else. */
static void test_prefill__ragged(void **state) {
  const fixture *f = *state;
  rig r;
  rig_init(&r, f->m, STACK_HYBRID, (tiny_options){0});
  static const tiny_item k_pass[3][TINY_SEQS] = {
      {{0, 0, 17}, {1, 0, 1}, {2, 0, 40}, {3, 0, 5}, {4, 0, 33}},
      {{4, 33, 2}, {1, 1, 16}, {3, 5, 64}, {0, 17, 1}, {2, 40, 11}},
      {{2, 51, 45}, {3, 69, 27}, {1, 17, 3}, {4, 35, 61}, {0, 18, 20}},
  };
  for (int i = 0; i < 3; i++) {
    run_checked(f, &r, DF_MODE_EXTEND, k_pass[i], TINY_SEQS, "ragged prefill");
    for (uint32_t j = 0; j < TINY_SEQS; j++)
      assert_state(f, &r, k_pass[i][j].seq, k_pass[i][j].first + k_pass[i][j].n, "ragged prefill");
  }
  rig_release(&r);
}

/* ---- verify and commit ---------------------------------------------------------------------------------- */

/* Rows behind the accepted ones carry tokens that are not the text's. */
static void run_block(rig *r, const tiny_item *items, const uint32_t *accepted, uint32_t n) {
  df_error err = {0};
  tiny_fill(&r->x, items, n);
  uint32_t row = 0;
  for (uint32_t i = 0; i < n; i++)
    for (uint32_t j = 0; j < items[i].n; j++, row++)
      if (j > accepted[i]) r->x.t.batch.ids[row] = (r->x.t.batch.ids[row] + 1) % 256;
  must(df_target_run(&r->x.t, DF_MODE_TARGET_VERIFY, DF_TAIL_LOGITS, &err), &err);
}

static void assert_accepted_rows(const fixture *f, rig *r, const tiny_item *items, const uint32_t *accepted,
                                 uint32_t n) {
  uint32_t row = 0;
  for (uint32_t i = 0; i < n; row += items[i].n, i++)
    for (uint32_t j = 0; j < items[i].n; j++) {
      const float *want = f->table + ((size_t)items[i].seq * TINY_LEN + items[i].first + j) * f->m->cfg.vocab;
      const bool same = memcmp(tiny_logits(&r->x, row + j), want, tiny_row_bytes(&r->x)) == 0;
      if (same != (j <= accepted[i]))
        fail_msg("verify of %u rows, %u accepted: row %u of sequence %u", items[i].n, accepted[i], j, i);
    }
}

/* Every acceptance of every width: nothing moves before the commit, the commit leaves the state of the accepted rows,
 * and the text goes on as if the others had never been. */
static void test_verify__every_acceptance(void **state) {
  const fixture *f = *state;
  const size_t bytes = (size_t)(TINY_SEQS + 1);
  for (int kind = df_test_long() ? 0 : 1; kind < STACKS; kind += df_test_long() ? 1 : 2) {
    rig r;
    rig_init(&r, f->m, (stack_kind)kind, (tiny_options){0});
    float *before = df_alloc(bytes * r.one * sizeof *before);
    assert_non_null(before);
    for (uint32_t w = 2; w <= 16; w += w < 5 ? 3 : 11)
      for (uint32_t acc = 0; acc < w; acc++) {
        tiny_prefill(&r.x, 0, AT);
        memcpy(before, r.st.committed, bytes * r.one * sizeof *before);
        const tiny_item item = {0, AT, w}, next = {0, AT + acc + 1, 1};
        const uint32_t len = acc + 1, one = 1;
        run_block(&r, &item, &acc, 1);
        assert_accepted_rows(f, &r, &item, &acc, 1);
        assert_memory_equal(before, r.st.committed, bytes * r.one * sizeof *before);
        commit(&r, &len, 1);
        assert_state(f, &r, 0, next.first, "commit");
        run_checked(f, &r, DF_MODE_DECODE, &next, 1, "decode after a commit");
        assert_state(f, &r, 0, next.first, "decode before its commit");
        commit(&r, &one, 1);
        assert_state(f, &r, 0, next.first + 1, "decode");
      }
    df_free(before);
    rig_release(&r);
  }
}

/* Batches of 1 to 5 sequences that each accept another number of rows, step after step up to the end, in both orders of
 * work and with sequences in any place of the batch. */
static void test_batches__equal_single_runs(void **state) {
  const fixture *f = *state;
  static const uint32_t k_buckets[] = {2, 4, 5};
  for (int kind = STACK_HYBRID; kind < STACKS; kind++)
    for (int eager = 0; eager < 2; eager++)
      for (uint32_t n = 1 + (uint32_t)(kind + eager) % 2; n <= TINY_SEQS; n += df_test_long() ? 1 : 2) {
        rig r;
        rig_init(&r, f->m, (stack_kind)kind, (tiny_options){.eager = eager != 0, .buckets = k_buckets, .n_buckets = 3});
        uint32_t at[TINY_SEQS];
        for (uint32_t s = 0; s < TINY_SEQS; s++) tiny_prefill(&r.x, s, at[s] = 1 + 5 * s);
        for (uint32_t step = 0; step < 9; step++) {
          const uint32_t w = step % 3 == 2 ? 1 : 2 + (step * 5 + n) % 6;
          tiny_item items[TINY_SEQS];
          uint32_t acc[TINY_SEQS], lens[TINY_SEQS];
          for (uint32_t i = 0; i < n; i++) {
            const uint32_t s = (i + step) % TINY_SEQS;
            items[i] = (tiny_item){s, at[s], w};
            acc[i] = w == 1 ? 0 : (step + 3 * i) % w;
            lens[i] = acc[i] + 1;
            at[s] += lens[i];
          }
          if (w == 1)
            run_checked(f, &r, DF_MODE_DECODE, items, n, "batched decode");
          else
            run_block(&r, items, acc, n);
          assert_accepted_rows(f, &r, items, acc, n);
          commit(&r, lens, n);
          for (uint32_t s = 0; s < TINY_SEQS; s++)
            assert_state(f, &r, s, at[s], "batch"); /* also those that sat this one out */
        }
        rig_release(&r);
      }
}

/* Padding runs at position 0 of no sequence: it touches no slot at all, not even the sink's. */
static void test_padding__touches_no_state(void **state) {
  const fixture *f = *state;
  static const uint32_t k_buckets[] = {5};
  for (int kind = STACK_HYBRID; kind < STACKS; kind++) {
    rig r;
    rig_init(&r, f->m, (stack_kind)kind, (tiny_options){.buckets = k_buckets, .n_buckets = 1});
    for (uint32_t s = 0; s < TINY_SEQS; s++) tiny_prefill(&r.x, s, 10 + s);
    float *before = df_alloc(r.st.committed_bytes);
    assert_non_null(before);
    for (uint32_t n = 1; n < TINY_SEQS; n++) {
      memcpy(before, r.st.committed, r.st.committed_bytes);
      tiny_item items[TINY_SEQS];
      const uint32_t acc[TINY_SEQS] = {0, 1, 2, 0, 1}, lens[TINY_SEQS] = {1, 2, 3, 1, 2};
      for (uint32_t i = 0; i < n; i++) items[i] = (tiny_item){i, 10 + i, 4};
      run_block(&r, items, acc, n);
      assert_memory_equal(before, r.st.committed, r.st.committed_bytes);
      commit(&r, lens, n);
      for (uint32_t i = 0; i < n; i++) assert_state(f, &r, i, 10 + i + lens[i], "padded verify");
      assert_memory_equal(before, slot(&r, 0), r.one * sizeof *before);
      for (uint32_t s = n; s < TINY_SEQS; s++)
        assert_memory_equal(before + (s + 1) * r.one, slot(&r, s + 1), r.one * sizeof *before);
      for (uint32_t s = 0; s < n; s++) tiny_prefill(&r.x, s, 10 + s);
    }
    df_free(before);
    rig_release(&r);
  }
}

/* A slot that held another sequence (here: NaN) starts from nothing at position 0, in every mode. */
static void test_position_0__starts_from_zero(void **state) {
  const fixture *f = *state;
  rig r;
  rig_init(&r, f->m, STACK_TBO, (tiny_options){0});
  const uint32_t acc[2] = {3, 3}, lens[2] = {4, 4}, ones[2] = {1, 1};
  for (int round = 0; round < 3; round++) {
    const uint32_t n = round == 0 ? 6 : round == 1 ? 4 : 1;
    const tiny_item items[2] = {{3, 0, n}, {1, 0, n}};
    memset(r.st.committed, 0xFF, r.st.committed_bytes);
    memset(r.st.behind, 0xFF, r.st.behind_bytes);
    if (round == 0) run_checked(f, &r, DF_MODE_EXTEND, items, 2, "prefill from 0");
    if (round == 1) run_block(&r, items, acc, 2);
    if (round == 2) run_checked(f, &r, DF_MODE_DECODE, items, 2, "decode from 0");
    if (round == 1) assert_accepted_rows(f, &r, items, acc, 2);
    if (round) commit(&r, round == 1 ? lens : ones, 2);
    for (int i = 0; i < 2; i++) assert_state(f, &r, items[i].seq, n, "from position 0");
  }
  rig_release(&r);
}

/* ---- a step loop with a draft --------------------------------------------------------------------------- */

/* The text with a draft is the text without, on every stack; the draft is right sometimes and wrong sometimes. */
static void test_steps__text_is_that_of_decoding(void **state) {
  const fixture *f = *state;
  df_error err = {0};
  df_draft *d = tiny_open_draft(&f->spec, f->m);
  static int32_t want[TINY_SEQS * TINY_LEN], got[TINY_SEQS * TINY_LEN];
  rig r;
  rig_init(&r, f->m, STACK_NAIVE, (tiny_options){0});
  assert_int_equal(tiny_generate(&r.x, NULL, PROMPT, NEW, 1, want), 0);
  rig_release(&r);
  static const uint32_t k_widths[] = {2, 5, 16};
  uint32_t accepted = 0, possible = 0;
  for (int kind = STACK_FLASH; kind < STACKS; kind++)
    for (int i = kind == STACK_TBO ? 2 : 0; i >= 0; i--) { /* the deepest stack in all widths */
      df_drafter dr;
      rig_init(&r, f->m, (stack_kind)kind,
               (tiny_options){.taps = d->cfg.taps, .n_taps = d->cfg.n_taps, .eager = i == 1});
      must(df_drafter_init(&dr, d, &r.x.t, 16, i != 1, &err), &err);
      accepted += tiny_generate(&r.x, &dr, PROMPT, NEW, k_widths[i], got);
      possible += TINY_SEQS * (NEW - 1);
      for (uint32_t s = 0; s < TINY_SEQS; s++)
        if (memcmp(want + s * TINY_LEN, got + s * TINY_LEN, NEW * sizeof *want) != 0)
          fail_msg("stack %d, width %u: sequence %u has another text", kind, k_widths[i], s);
      df_drafter_release(&dr);
      rig_release(&r);
    }
  assert_true(accepted > possible / 10 && accepted < possible);
  df_draft_close(d);
}

/* ---- the recurrence ------------------------------------------------------------------------------------- */

enum { HEADS = 6, KV = 2, E = 32, ROWS = 48 };

/* In double, straight from the formula. */
static void oracle(const df_recurrent_state *st, const float *q, const float *k, const float *v, uint32_t n,
                   uint32_t layer, double *y) {
  static double s[KV][E][E];
  memset(s, 0, sizeof s);
  for (uint32_t r = 0; r < n; r++)
    for (uint32_t g = 0; g < KV; g++) {
      const double decay = (double)st->decay[layer * KV + g], beta = (double)st->beta[layer * KV + g];
      double kn[E], len = 1e-6;
      for (uint32_t j = 0; j < E; j++) len += pow((double)k[(r * KV + g) * E + j], 2);
      for (uint32_t j = 0; j < E; j++) kn[j] = (double)k[(r * KV + g) * E + j] / sqrt(len);
      for (uint32_t i = 0; i < E; i++) {
        double seen = 0;
        for (uint32_t j = 0; j < E; j++) seen += decay * s[g][i][j] * kn[j];
        for (uint32_t j = 0; j < E; j++)
          s[g][i][j] = decay * s[g][i][j] + beta * ((double)v[(r * KV + g) * E + i] - seen) * kn[j];
      }
      for (uint32_t h = g * (HEADS / KV); h < (g + 1) * (HEADS / KV); h++)
        for (uint32_t i = 0; i < E; i++) {
          double sum = 0;
          for (uint32_t j = 0; j < E; j++) sum += s[g][i][j] * (double)q[(r * HEADS + h) * E + j];
          y[(r * HEADS + h) * E + i] = sum / sqrt(E);
        }
    }
}

static void test_recurrence__oracle(void **state) {
  (void)state;
  df_error err = {0};
  df_recurrent_state st;
  df_pool *pool;
  df_cpu *cpu;
  df_batch b;
  df_attn *a;
  df_program *p;
  static float q[ROWS * HEADS * E], k[ROWS * KV * E], v[ROWS * KV * E], out[ROWS * HEADS * E];
  static double y[ROWS * HEADS * E];
  uint64_t rng = 3;
  for (size_t i = 0; i < DF_COUNT_OF(q); i++) q[i] = test_uniform(&rng);
  for (size_t i = 0; i < DF_COUNT_OF(k); i++) k[i] = test_uniform(&rng), v[i] = test_uniform(&rng);
  must(df_recurrent_state_init(&st, 3, KV, E, 2, 2, 16, 5, &err), &err);
  must(df_pool_create(3, &pool, &err), &err);
  must(df_cpu_create(pool, df_kernels_get(DF_TIER_REF), &cpu, &err), &err);
  must(df_batch_init(&b, ROWS, 2, 4, &err), &err);
  const df_attn_shape shape = {HEADS, KV, E, ROWS, 3, NULL, 16};
  const uint32_t index[2] = {0, 2}, n0 = 17;
  must(df_attn_recurrent_create(&shape, &st, index, 2, &a, &err), &err);
  must(df_program_create(ROWS, 2, 3, &p, &err), &err);
  b.n_rows = ROWS, b.n_seqs = 2; /* two texts: rows 0..16 and 17..47 */
  b.q_start[1] = n0, b.q_start[2] = ROWS;
  b.state_slot[0] = 2, b.state_slot[1] = 1;
  for (uint32_t r = 0; r < ROWS; r++) b.pos[r] = r < n0 ? r : r - n0;
  const df_attn_pass pass = {p, &b, DF_MODE_EXTEND, DF_MASK_NONE, NULL, 0};
  const df_attn_layer layer = {.q = q,
                               .k = k,
                               .v = v,
                               .q_ld = HEADS * E,
                               .kv_ld = KV * E,
                               .out = {.f = out, .k = HEADS * E},
                               .layer = 1,
                               .causal = true};
  must(a->ops->emit(a, &pass, &layer, &err), &err);
  df_cpu_run(cpu, p);
  oracle(&st, q, k, v, n0, 2, y);
  oracle(&st, q + n0 * HEADS * E, k + n0 * KV * E, v + n0 * KV * E, ROWS - n0, 2, y + n0 * HEADS * E);
  for (size_t i = 0; i < DF_COUNT_OF(out); i++)
    if (!(fabs(y[i] - (double)out[i]) < 2e-6))
      fail_msg("row %zu, channel %zu: %g, expected %g", i / (HEADS * E), i % (HEADS * E), (double)out[i], y[i]);
  df_cpu_quiesce(cpu);
  df_program_free(p);
  df_attn_free(a);
  df_batch_release(&b);
  df_cpu_free(cpu);
  df_pool_free(pool);
  df_recurrent_state_release(&st);
}

/* Constants come from the seed alone and stay where the rule contracts. */
static void test_state__constants(void **state) {
  (void)state;
  df_error err = {0};
  df_recurrent_state a, b, c;
  must(df_recurrent_state_init(&a, 5, 3, 32, 1, 1, 1, 9, &err), &err);
  must(df_recurrent_state_init(&b, 5, 3, 32, 7, 2, 16, 9, &err), &err);
  must(df_recurrent_state_init(&c, 5, 3, 32, 1, 1, 1, 10, &err), &err);
  assert_memory_equal(a.decay, b.decay, 15 * sizeof *a.decay);
  assert_memory_equal(a.beta, b.beta, 15 * sizeof *a.beta);
  assert_memory_not_equal(a.decay, c.decay, 15 * sizeof *a.decay);
  for (int i = 0; i < 15; i++)
    assert_true(a.decay[i] >= 0.90f && a.decay[i] < 0.995f && a.beta[i] >= 0.2f && a.beta[i] < 0.9f);
  df_recurrent_state_release(&a);
  df_recurrent_state_release(&b);
  df_recurrent_state_release(&c);
  assert_int_equal(df_recurrent_state_init(&a, 1u << 30, 1u << 30, 256, 1u << 30, 64, 16, 1, &err), DF_ERR_LIMIT);
}

/* ---- refusals ------------------------------------------------------------------------------------------- */

static df_status try_emit(df_attn *a, df_batch *b, df_mode mode, uint32_t rows, uint32_t seqs, df_mask_layout mask,
                          uint32_t window, bool causal, uint32_t at_layer) {
  df_error err = {0};
  df_program *p;
  static float x[64];
  must(df_program_create(rows, seqs, 1, &p, &err), &err);
  const df_attn_pass pass = {p, b, mode, mask, NULL, 0};
  const df_attn_layer layer = {
      .q = x, .k = x, .v = x, .out = {.f = x, .k = 64}, .layer = at_layer, .causal = causal, .window = window};
  const df_status s = a->ops->emit(a, &pass, &layer, &err);
  df_program_free(p);
  return s;
}

static void test_recurrent__refuses(void **state) {
  (void)state;
  df_error err = {0};
  df_recurrent_state st;
  df_attn *a;
  df_batch b = {0};
  uint32_t state_slot[4] = {1, 0, 0, 0};
  const df_attn_shape shape = {2, 1, 32, 64, 1, NULL, 16};
  const uint32_t index[3] = {0, 1, 2};
  must(df_recurrent_state_init(&st, 2, 1, 32, 1, 4, 8, 1, &err), &err);
  must(df_attn_recurrent_create(&shape, &st, index, 3, &a, &err), &err);
  const df_mode v = DF_MODE_TARGET_VERIFY;
  assert_int_equal(try_emit(a, &b, v, 32, 4, DF_MASK_NONE, 0, true, 1), DF_OK);
  assert_int_equal(try_emit(a, &b, DF_MODE_EXTEND, 64, 1, DF_MASK_NONE, 0, true, 1), DF_OK);
  assert_int_equal(try_emit(a, &b, v, 8, 1, DF_MASK_QLEN, 0, true, 0), DF_ERR_UNSUPPORTED);
  assert_int_equal(try_emit(a, &b, v, 8, 1, DF_MASK_NONE, 5, true, 0), DF_ERR_UNSUPPORTED);
  assert_int_equal(try_emit(a, &b, v, 8, 1, DF_MASK_NONE, 0, false, 0), DF_ERR_UNSUPPORTED);
  assert_int_equal(try_emit(a, &b, v, 36, 4, DF_MASK_NONE, 0, true, 0), DF_ERR_LIMIT); /* 9 rows each */
  assert_int_equal(try_emit(a, &b, v, 5, 5, DF_MASK_NONE, 0, true, 0), DF_ERR_LIMIT);
  assert_int_equal(try_emit(a, &b, v, 8, 1, DF_MASK_NONE, 0, true, 2), DF_ERR_ARGUMENT); /* a third recurrent layer */
  assert_int_equal(try_emit(a, &b, v, 8, 1, DF_MASK_NONE, 0, true, 3), DF_ERR_ARGUMENT);
  b.state_slot = state_slot;
  for (uint32_t len = 0; len <= 9; len++)
    assert_int_equal(a->ops->commit(a, &b, &len, 1, &err), len >= 1 && len <= 8 ? DF_OK : DF_ERR_ARGUMENT);
  const df_attn_caps c = a->ops->caps(a);
  assert_true(c.recurrent && c.causal && !c.reads_mask && !c.sliding_window);
  df_attn_free(a);
  df_recurrent_state_release(&st);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_prefill__any_pieces),
      cmocka_unit_test(test_prefill__ragged),
      cmocka_unit_test(test_verify__every_acceptance),
      cmocka_unit_test(test_batches__equal_single_runs),
      cmocka_unit_test(test_padding__touches_no_state),
      cmocka_unit_test(test_position_0__starts_from_zero),
      cmocka_unit_test(test_steps__text_is_that_of_decoding),
      cmocka_unit_test(test_recurrence__oracle),
      cmocka_unit_test(test_state__constants),
      cmocka_unit_test(test_recurrent__refuses),
  };
  return cmocka_run_group_tests_name("recurrent", tests, setup, teardown);
}
