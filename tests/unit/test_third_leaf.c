/* The leaves flashinfer and xqa over made-up kernels: what they refuse, what they emit, what they plan and when, and
 * what their launches hand on. The kernels themselves are tested on a card (tests/cuda). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "attention/tbo.h"
#include "attention/third_leaf.h"
#include "attention/verify_mask.h"
#include "base/mem.h"
#include "base/size.h"
#include "device/device.h"
#include "device/lower.h"
#include "kv/fill.h"
#include "support/third_fake.h"

enum { SEQS = FAKE_SEQS, ROWS = 256, POSITIONS = 200, HEADS = 6, KV = 2, LAYERS = 3 };

static void must(df_status s, const df_error *err) {
  if (s != DF_OK) fail_msg("%s", err->msg);
}

/* ---- a pass --------------------------------------------------------------------------------------------- */

typedef struct rig {
  df_pages pages;
  df_kv_seq seq[SEQS];
  df_batch batch;
  df_mask_buffer mask;
  df_program *p;
  float q[1], out[1];
} rig;

static df_attn_shape shape(void) { return (df_attn_shape){HEADS, KV, 64, POSITIONS, 1, NULL, 16}; }

static int rig_make(void **state) {
  static rig r;
  df_error err = {0};
  r = (rig){.p = NULL};
  third_fake = (struct third_fake){.code = 0};
  must(df_pages_init(&r.pages, 16, SEQS * 256, &err), &err);
  must(df_batch_init(&r.batch, ROWS, SEQS, 256 / 16, &err), &err);
  for (uint32_t s = 0; s < SEQS; s++) {
    must(df_kv_seq_init(&r.seq[s], 16, POSITIONS, &err), &err);
    must(df_kv_seq_reserve(&r.seq[s], &r.pages, POSITIONS, &err), &err);
  }
  *state = &r;
  return 0;
}

static int rig_drop(void **state) {
  rig *r = *state;
  df_program_free(r->p);
  for (uint32_t s = 0; s < SEQS; s++) df_kv_seq_release(&r->seq[s], &r->pages);
  df_batch_release(&r->batch);
  df_pages_release(&r->pages);
  return 0;
}

/* n sequences of `width` rows, sequence i at 10 * (i + 1) positions; filled up to `seqs`. */
static void fill(rig *r, uint32_t n, uint32_t width, uint32_t seqs) {
  const int32_t ids[ROWS] = {0};
  df_fill_begin(&r->batch);
  for (uint32_t i = 0; i < n; i++) (void)df_fill_add(&r->batch, &r->seq[i], ids, width, 10 * (i + 1), DF_OUT_ALL);
  if (seqs > n) df_fill_pad(&r->batch, seqs, width);
}

static df_attn_layer layer_of(rig *r, uint32_t i) {
  return (df_attn_layer){.q = r->q,
                         .q_ld = (HEADS + 2 * KV) * 64,
                         .out = {.f = r->out, .k = HEADS * 64},
                         .kv = {.token_major = true, .block_slots = 16, .type = DF_KV_F16},
                         .layer = i,
                         .causal = true};
}

/* Emits all layers into r->p, which is made new, or cleared with `again`. */
static df_status emit(rig *r, df_attn *a, const df_batch *b, df_mode mode, uint32_t rows, uint32_t seqs,
                      df_mask_layout mask, bool again, df_error *err) {
  if (again) {
    df_program_clear(r->p, rows, seqs);
  } else {
    df_program_free(r->p);
    must(df_program_create(rows, seqs, 1, &r->p, err), err);
  }
  const df_attn_pass pass = {r->p, b, mode, mask, mask == DF_MASK_NONE ? NULL : &r->mask, 0};
  for (uint32_t i = 0; i < LAYERS; i++) {
    const df_attn_layer l = layer_of(r, i);
    DF_TRY(a->ops->emit(a, &pass, &l, err));
  }
  return DF_OK;
}

static const df_op_extern *op_at(const rig *r, uint32_t i) {
  uint32_t n;
  const df_op *ops = df_program_ops(r->p, &n);
  assert_true(i < n);
  assert_int_equal(ops[i].kind, DF_OP_ATTN_EXTERN);
  return ops[i].args;
}

static df_attn *flashinfer(uint32_t max_seqs, uint32_t max_rows) {
  df_error err = {0};
  const df_attn_shape s = shape();
  df_attn *a;
  must(df_attn_flashinfer_create_over(&third_fake_fa2, &s, &a, &err), &err);
  must(a->ops->graph_init(a, max_seqs, max_rows, &err), &err);
  return a;
}

static df_attn *xqa(void) {
  df_error err = {0};
  const df_attn_shape s = shape();
  df_attn *a;
  must(df_attn_xqa_create_over(&third_fake_xqa, &s, &a, &err), &err);
  must(a->ops->graph_init(a, SEQS, ROWS, &err), &err);
  return a;
}

/* ---- refusals, capabilities ----------------------------------------------------------------------------- */

static void refused(df_status got, const df_error *err, df_status want, const char *message) {
  assert_int_equal(got, want);
  assert_string_equal(err->msg, message);
}

static void test_create__refused(void **state) {
  (void)state;
  df_error err = {0};
  df_attn *a;
  df_attn_shape s = shape();
  refused(df_attn_flashinfer_create_over(NULL, &s, &a, &err), &err, DF_ERR_UNSUPPORTED,
          "attention backend \"flashinfer\" is not in this build");
  assert_non_null(strstr(err.hint, "DF_FLASHINFER"));
  refused(df_attn_xqa_create_over(NULL, &s, &a, &err), &err, DF_ERR_UNSUPPORTED,
          "attention backend \"xqa\" is not in this build");
  s.page_size = 1;
  refused(df_attn_xqa_create_over(&third_fake_xqa, &s, &a, &err), &err, DF_ERR_UNSUPPORTED,
          "attention backend \"xqa\" reads KV pages of 16 or 64 tokens, not of 1 (--page-size)");
  s = shape();
  s.n_heads = 18;
  refused(df_attn_xqa_create_over(&third_fake_xqa, &s, &a, &err), &err, DF_ERR_UNSUPPORTED,
          "attention backend \"xqa\" has kernels for up to 8 query heads per KV head, not for 9 (use \"cuda\")");
  s = shape();
  s.head_dim = 96;
  refused(df_attn_flashinfer_create_over(&third_fake_fa2, &s, &a, &err), &err, DF_ERR_UNSUPPORTED,
          "attention backend \"flashinfer\" has kernels for heads of 64 and 128, not of 96");
  refused(df_attn_xqa_create_over(&third_fake_xqa, &s, &a, &err), &err, DF_ERR_UNSUPPORTED,
          "attention backend \"xqa\" has kernels for heads of 64 and 128, not of 96");
  s = shape();
  s.n_heads = 7;
  refused(df_attn_flashinfer_create_over(&third_fake_fa2, &s, &a, &err), &err, DF_ERR_UNSUPPORTED,
          "7 query heads do not divide among 2 KV heads");
  assert_int_equal(third_fake.created, 0);
}

static void test_create__every_shape_with_a_kernel(void **state) {
  (void)state;
  df_error err = {0};
  for (uint32_t group = 1; group <= 16; group++)
    for (uint32_t page = 1; page <= 64; page *= 4)
      for (uint32_t head = 64; head <= 128; head += 64) {
        if (page == 4) continue;
        const df_attn_shape s = {KV * group, KV, head, POSITIONS, 1, NULL, page};
        df_attn *a = NULL;
        must(df_attn_flashinfer_create_over(&third_fake_fa2, &s, &a, &err), &err);
        df_attn_free(a);
        const bool has = group <= 8 && page != 1;
        assert_int_equal(df_attn_xqa_create_over(&third_fake_xqa, &s, &a, &err), has ? DF_OK : DF_ERR_UNSUPPORTED);
        if (has) df_attn_free(a);
      }
}

static void test_caps(void **state) {
  (void)state;
  df_error err = {0};
  df_attn *f = flashinfer(SEQS, ROWS), *x = xqa();
  const df_attn_caps fc = f->ops->caps(f), xc = x->ops->caps(x);
  assert_true(fc.reads_mask && fc.causal && !fc.sliding_window && fc.graph_safe && fc.inexact && !fc.recurrent);
  assert_int_equal(fc.mask_layouts, 1 << DF_MASK_NONE | 1 << DF_MASK_QLEN | 1 << DF_MASK_FULL);
  assert_int_equal(fc.max_rows, UINT32_MAX);
  assert_int_equal(fc.page_sizes, 1 | 16 | 64);
  assert_int_equal(fc.kv_types, 1 << DF_KV_F16);
  assert_true(!xc.reads_mask && xc.causal && !xc.sliding_window && xc.graph_safe && xc.inexact && !xc.recurrent);
  assert_int_equal(xc.mask_layouts, 1 << DF_MASK_NONE);
  assert_int_equal(xc.max_rows, 64);
  assert_int_equal(xc.page_sizes, 16 | 64);
  assert_int_equal(xc.kv_types, 1 << DF_KV_F16);
  /* A chain needs no mask on either; a tree is refused where masks are not read. */
  df_mask_decision d;
  must(df_verify_mask_policy(f, DF_DRAFT_CHAIN, &d, &err), &err);
  assert_int_equal(d.layout, DF_MASK_NONE);
  must(df_verify_mask_policy(x, DF_DRAFT_CHAIN, &d, &err), &err);
  assert_int_equal(d.layout, DF_MASK_NONE);
  must(df_verify_mask_policy(f, DF_DRAFT_TREE, &d, &err), &err);
  assert_int_equal(d.layout, DF_MASK_QLEN);
  assert_int_equal(df_verify_mask_policy(x, DF_DRAFT_TREE, &d, &err), DF_ERR_UNSUPPORTED);
  df_attn_free(f);
  df_attn_free(x);
  assert_int_equal(third_fake.freed, 2);
}

static void test_graph_init__workspace(void **state) {
  (void)state;
  df_error err = {0};
  df_attn_shape s = shape();
  df_attn *a;
  must(df_attn_flashinfer_create_over(&third_fake_fa2, &s, &a, &err), &err);
  third_fake.code = 2; /* out of memory */
  refused(a->ops->graph_init(a, SEQS, ROWS, &err), &err, DF_ERR_MEMORY,
          "attention backend \"flashinfer\" could not make its workspace: made-up trouble");
  df_attn_free(a);
  third_fake.code = 0;
  s.page_size = 1;
  must(df_attn_flashinfer_create_over(&third_fake_fa2, &s, &a, &err), &err);
  must(a->ops->graph_init(a, SEQS, ROWS, &err), &err);
  assert_int_equal(third_fake.shape.block_slots, 1);
  assert_int_equal(third_fake.shape.max_blocks, POSITIONS);
  df_attn_free(a);
  a = flashinfer(SEQS, ROWS);
  assert_int_equal(third_fake.shape.block_slots, 16);
  assert_int_equal(third_fake.shape.max_blocks, 256 / 16); /* positions in whole pages of 64 */
  assert_int_equal(third_fake.shape.max_rows, ROWS);
  const uint32_t made = third_fake.created;
  must(a->ops->graph_init(a, SEQS, ROWS, &err), &err);
  assert_int_equal(third_fake.created, made);
  assert_int_equal(a->ops->graph_init(a, SEQS + 1, ROWS, &err), DF_ERR_LIMIT); /* programs point into it */
  df_attn_free(a);
}

/* ---- flashinfer ----------------------------------------------------------------------------------------- */

static void test_flashinfer_emit__ops_and_plans(void **state) {
  rig *r = *state;
  df_error err = {0};
  df_attn *a = flashinfer(SEQS, ROWS);
  fill(r, 2, 8, 3);
  must(emit(r, a, &r->batch, DF_MODE_TARGET_VERIFY, 24, 3, DF_MASK_NONE, false, &err), &err);
  /* One plan for all layers, made for the program's bounds before anything is recorded. */
  assert_int_equal(third_fake.planned, 1);
  assert_true(third_fake.recorded);
  assert_int_equal(third_fake.rows, 24);
  assert_int_equal(third_fake.seqs, 3);
  assert_int_equal(third_fake.fa2.q_start[3], 24);
  assert_int_equal(third_fake.masks, 0);
  const df_cuda_env env = {.max_rows = 24};
  for (uint32_t i = 0; i < LAYERS; i++) {
    const df_op_extern *op = op_at(r, i);
    assert_int_equal(op->first, i == 0);
    assert_ptr_equal(op->page_table, r->batch.page_table);
    assert_ptr_equal(op->attn.batch, &r->batch);
    assert_ptr_equal(op->attn.q, r->q);
    assert_int_equal(op->attn.n_heads, HEADS);
    assert_true(op->attn.scale == 0.125f && op->attn.causal && op->attn.mask_layout == DF_MASK_NONE);
    assert_int_equal(op->launch(op->self, op, &env), 0);
    assert_ptr_equal(third_fake.op, op);
    assert_ptr_equal(third_fake.env, &env);
    assert_int_equal(third_fake.plan.v[0], 24);
    assert_int_equal(third_fake.plan.seqs, 3);
  }
  third_fake.code = 700; /* errors of a launch come through */
  assert_int_equal(op_at(r, 0)->launch(op_at(r, 0)->self, op_at(r, 0), &env), 700);
  third_fake.code = 0;
  df_attn_free(a);
}

static void test_flashinfer_plan__recorded(void **state) {
  rig *r = *state;
  df_error err = {0};
  df_attn *a = flashinfer(SEQS, ROWS);
  fill(r, 2, 8, 3);
  must(emit(r, a, &r->batch, DF_MODE_TARGET_VERIFY, 24, 3, DF_MASK_NONE, false, &err), &err);
  const df_attn_phase phases[] = {DF_PHASE_CAPTURE, DF_PHASE_REPLAY};
  for (int i = 0; i < 2; i++) {
    must(a->ops->plan(a, r->p, &r->batch, DF_MODE_TARGET_VERIFY, phases[i], &err), &err);
    assert_true(third_fake.recorded);
    assert_int_equal(third_fake.rows, 24);
    /* The live batch: 18 and 28 positions, then a sequence of the sink. */
    const int32_t page_start[] = {0, 2, 4, 5}, last[] = {2, 12, 8};
    assert_memory_equal(third_fake.fa2.page_start, page_start, sizeof page_start);
    assert_memory_equal(third_fake.fa2.last, last, sizeof last);
    assert_int_equal(third_fake.fa2.pages[2], r->seq[1].pages[0]);
  }
  /* What the kernels were recorded with must not change under them. */
  third_fake.drift = 1;
  assert_int_equal(a->ops->plan(a, r->p, &r->batch, DF_MODE_TARGET_VERIFY, DF_PHASE_REPLAY, &err), DF_ERR_INTERNAL);
  third_fake.drift = 0;
  third_fake.code = DF_THIRD_FAILED;
  refused(a->ops->plan(a, r->p, &r->batch, DF_MODE_TARGET_VERIFY, DF_PHASE_REPLAY, &err), &err, DF_ERR_INTERNAL,
          "attention backend \"flashinfer\" could not stage a plan: made-up trouble");
  third_fake.code = 0;
  df_attn_free(a);
}

/* A program for one pass gets a plan for that pass, of as many sequences as there are. */
static void test_flashinfer_plan__eager(void **state) {
  rig *r = *state;
  df_error err = {0};
  df_attn *a = flashinfer(SEQS, ROWS);
  for (uint32_t n = 1; n <= 3; n++) {
    fill(r, n, 5, n);
    must(emit(r, a, &r->batch, DF_MODE_EXTEND, 16, SEQS, DF_MASK_NONE, n > 1, &err), &err);
    must(a->ops->plan(a, r->p, &r->batch, DF_MODE_EXTEND, DF_PHASE_EAGER, &err), &err);
    assert_false(third_fake.recorded);
    assert_int_equal(third_fake.rows, 5 * n);
    assert_int_equal(third_fake.seqs, n);
    assert_int_equal(third_fake.fa2.q_start[n], 5 * n);
    const df_op_extern *op = op_at(r, 0);
    assert_true(op->first); /* the program was begun anew */
    assert_int_equal(op->record, 0);
    assert_int_equal(op->launch(op->self, op, NULL), 0);
    assert_int_equal(third_fake.plan.v[0], 5 * n);
  }
  df_attn_free(a);
}

/* Several recorded programs, each with a plan of its own; a program that has no op here is nobody's business. */
static void test_flashinfer_plan__by_program(void **state) {
  rig *r = *state;
  df_error err = {0};
  df_attn *a = flashinfer(SEQS, ROWS);
  df_program *p[20], *other;
  must(df_program_create(1, 1, 1, &other, &err), &err);
  for (uint32_t i = 0; i < DF_COUNT_OF(p); i++) { /* more than the first list of records holds */
    fill(r, 1, i + 1, 1);
    must(emit(r, a, &r->batch, DF_MODE_TARGET_VERIFY, i + 1, 1, DF_MASK_NONE, false, &err), &err);
    p[i] = r->p;
    r->p = NULL;
  }
  for (uint32_t i = 0; i < DF_COUNT_OF(p); i++) {
    fill(r, 1, i + 1, 1);
    must(a->ops->plan(a, p[i], &r->batch, DF_MODE_TARGET_VERIFY, DF_PHASE_REPLAY, &err), &err);
    assert_int_equal(third_fake.rows, i + 1);
    uint32_t n;
    const df_op_extern *op = df_program_ops(p[i], &n)[LAYERS - 1].args;
    assert_int_equal(op->launch(op->self, op, NULL), 0);
    assert_int_equal(third_fake.plan.v[0], i + 1);
  }
  const uint32_t planned = third_fake.planned;
  must(a->ops->plan(a, other, &r->batch, DF_MODE_DECODE, DF_PHASE_REPLAY, &err), &err);
  assert_int_equal(third_fake.planned, planned);
  for (uint32_t i = 0; i < DF_COUNT_OF(p); i++) df_program_free(p[i]);
  df_program_free(other);
  df_attn_free(a);
}

static void test_flashinfer_plan__masks(void **state) {
  rig *r = *state;
  df_error err = {0};
  df_attn *a = flashinfer(SEQS, ROWS);
  must(df_mask_buffer_init(&r->mask, SEQS, 4096, &err), &err);
  fill(r, 2, 8, 2);
  must(emit(r, a, &r->batch, DF_MODE_TARGET_VERIFY, 16, 2, DF_MASK_FULL, false, &err), &err);
  assert_int_equal(third_fake.masks, 1);
  assert_int_equal(op_at(r, 0)->attn.mask_layout, DF_MASK_FULL);
  assert_ptr_equal(op_at(r, 0)->attn.mask, &r->mask);
  must(a->ops->plan(a, r->p, &r->batch, DF_MODE_TARGET_VERIFY, DF_PHASE_CAPTURE, &err), &err);
  assert_int_equal(third_fake.fa2.mask_start[1], 8 * 18 / 8);
  df_mask_buffer_release(&r->mask);
  df_attn_free(a);
}

/* Halves of a split batch: each leaf plans the half that its ops read, the primary nothing. */
static void test_flashinfer_plan__halves(void **state) {
  rig *r = *state;
  df_error err = {0};
  df_attn *whole = flashinfer(SEQS, ROWS), *h[2] = {flashinfer(2, ROWS), flashinfer(2, ROWS)}, *tbo;
  must(df_attn_tbo_create(whole, h[0], h[1], &tbo, &err), &err);
  uint32_t start[2][SEQS + 1];
  df_batch half[2] = {{.q_start = start[0]}, {.q_start = start[1]}};
  fill(r, 3, 8, 4);
  df_batch_view(&half[0], &r->batch, 0, 2, 8);
  df_batch_view(&half[1], &r->batch, 2, 4, 8);
  must(df_program_create(32, 4, 1, &r->p, &err), &err);
  for (uint32_t i = 0; i < 2; i++) {
    const df_attn_pass pass = {r->p, &half[i], DF_MODE_TARGET_VERIFY, DF_MASK_NONE, NULL, 2 * i};
    const df_attn_layer l = layer_of(r, 0);
    df_attn *child = tbo->ops->half(tbo, i);
    must(child->ops->emit(child, &pass, &l, &err), &err);
    assert_true(op_at(r, i)->first);
    assert_ptr_equal(op_at(r, i)->page_table, r->batch.page_table + 2 * i * r->batch.max_pages);
  }
  const uint32_t planned = third_fake.planned;
  must(tbo->ops->plan(tbo, r->p, &r->batch, DF_MODE_TARGET_VERIFY, DF_PHASE_CAPTURE, &err), &err);
  assert_int_equal(third_fake.planned, planned + 2);
  assert_int_equal(third_fake.seqs, 2);
  assert_int_equal(third_fake.fa2.pages[0], r->seq[2].pages[0]); /* the second half was planned last */
  assert_int_equal(third_fake.fa2.last[1], 8);                   /* and its second sequence fills the batch up */
  df_attn_free(tbo);
}

static void test_emit__made_for_another_table(void **state) {
  rig *r = *state;
  df_error err = {0};
  df_attn *leaves[] = {flashinfer(SEQS, ROWS), xqa()};
  for (int i = 0; i < 2; i++) {
    df_batch other = r->batch;
    other.max_pages = 5;
    assert_int_equal(emit(r, leaves[i], &other, DF_MODE_DECODE, 1, 1, DF_MASK_NONE, false, &err), DF_ERR_INTERNAL);
    assert_int_equal(emit(r, leaves[i], &r->batch, DF_MODE_EXTEND, ROWS + 1, 1, DF_MASK_NONE, false, &err),
                     DF_ERR_LIMIT);
    df_attn_free(leaves[i]);
  }
}

/* ---- xqa ------------------------------------------------------------------------------------------------ */

static void test_xqa_emit__rows(void **state) {
  rig *r = *state;
  static const struct {
    df_mode mode;
    uint32_t rows, seqs, want;
  } k_rows[] = {{DF_MODE_DECODE, 1, 1, 1},          {DF_MODE_DECODE, 4, 4, 1},   {DF_MODE_TARGET_VERIFY, 32, 4, 8},
                {DF_MODE_TARGET_VERIFY, 16, 1, 16}, {DF_MODE_EXTEND, 16, 4, 16}, {DF_MODE_EXTEND, 256, 4, 64},
                {DF_MODE_DRAFT_BLOCK, 64, 4, 16},   {DF_MODE_EXTEND, 1, 1, 1}};
  df_error err = {0};
  df_attn *a = xqa();
  const df_cuda_env env = {.max_rows = 1};
  for (size_t i = 0; i < DF_COUNT_OF(k_rows); i++) {
    must(emit(r, a, &r->batch, k_rows[i].mode, k_rows[i].rows, k_rows[i].seqs, DF_MASK_NONE, i % 2 == 1, &err), &err);
    for (uint32_t l = 0; l < LAYERS; l++) {
      const df_op_extern *op = op_at(r, l);
      assert_int_equal(op->first, l == 0);
      assert_ptr_equal(op->page_table, r->batch.page_table);
      assert_int_equal(op->launch(op->self, op, &env), 0);
      assert_int_equal(third_fake.xqa_rows, k_rows[i].want);
      assert_ptr_equal(third_fake.op, op);
    }
    must(a->ops->plan(a, r->p, &r->batch, k_rows[i].mode, DF_PHASE_REPLAY, &err), &err);
  }
  assert_int_equal(third_fake.planned, 0);
  df_attn_free(a);
}

static void test_xqa_emit__refused(void **state) {
  rig *r = *state;
  df_error err = {0};
  df_attn *a = xqa();
  refused(emit(r, a, &r->batch, DF_MODE_TARGET_VERIFY, 8, 1, DF_MASK_FULL, false, &err), &err, DF_ERR_UNSUPPORTED,
          "attention backend \"xqa\" cannot read a full mask");
  refused(emit(r, a, &r->batch, DF_MODE_TARGET_VERIFY, 65, 1, DF_MASK_NONE, false, &err), &err, DF_ERR_LIMIT,
          "attention backend \"xqa\" runs at most 64 rows of a sequence in one pass");
  const df_attn_pass pass = {r->p, &r->batch, DF_MODE_DECODE, DF_MASK_NONE, NULL, 0};
  df_attn_layer l = layer_of(r, 4);
  l.window = 128;
  refused(a->ops->emit(a, &pass, &l, &err), &err, DF_ERR_UNSUPPORTED,
          "attention backend \"xqa\" has no sliding window (layer 4 has one of 128)");
  df_attn_free(a);
}

/* ---- the op --------------------------------------------------------------------------------------------- */

/* All its addresses are translated, whoever launches it stays who it is; an address that is not mapped is named. */
static void test_extern__lowered(void **state) {
  rig *r = *state;
  df_error err = {0};
  df_mirrors m = {0};
  df_mirror *x[4];
  uint8_t there[4];
  df_program *low;
  df_lower_uses uses;
  df_attn *a = xqa();
  must(emit(r, a, &r->batch, DF_MODE_DECODE, 2, 2, DF_MASK_NONE, false, &err), &err);
  must(df_mirrors_add(&m, r->q, sizeof r->q, DF_MEM_SCRATCH, "q", &x[0], &err), &err);
  must(df_mirrors_add(&m, r->out, sizeof r->out, DF_MEM_SCRATCH, "out", &x[1], &err), &err);
  must(df_mirrors_add(&m, &r->batch, sizeof r->batch, DF_MEM_BATCH, "batch", &x[2], &err), &err);
  for (int i = 0; i < 3; i++) x[i]->there = &there[i];
  assert_int_equal(df_lower_program(r->p, &m, &low, &uses, &err), DF_ERR_INTERNAL);
  assert_non_null(strstr(err.msg, "attn-extern"));
  const size_t table = (size_t)((uint8_t *)r->batch.page_table - (uint8_t *)r->batch.block);
  must(df_mirrors_add(&m, r->batch.block, r->batch.block_bytes, DF_MEM_INPUT, "arrays", &x[3], &err), &err);
  uint8_t *arrays = (uint8_t *)&third_fake.fa2;
  x[3]->there = arrays;
  must(df_lower_program(r->p, &m, &low, &uses, &err), &err);
  uint32_t n;
  const df_op_extern *op = df_program_ops(low, &n)[0].args;
  assert_int_equal(n, LAYERS);
  assert_ptr_equal(op->attn.q, &there[0]);
  assert_ptr_equal(op->attn.out.f, &there[1]);
  assert_ptr_equal(op->attn.batch, &there[2]);
  assert_ptr_equal(op->page_table, arrays + table);
  assert_null(op->attn.out.q);
  assert_ptr_equal(op->self, a);
  assert_int_equal(op->launch(op->self, op, NULL), 0);
  assert_ptr_equal(third_fake.op, op);
  df_lower_uses_release(&uses);
  df_program_free(low);
  const void *const hosts[] = {r->q, r->out, &r->batch, r->batch.block};
  for (int i = 0; i < 4; i++) df_free(df_mirrors_take(&m, hosts[i]));
  df_mirrors_release(&m);
  df_attn_free(a);
}

/* The processor cannot run it, and says so before anything runs. */
static void test_extern__refused_on_the_processor(void **state) {
  rig *r = *state;
  df_error err = {0};
  df_pool *pool;
  df_device *d;
  df_attn *a = xqa();
  must(emit(r, a, &r->batch, DF_MODE_DECODE, 1, 1, DF_MASK_NONE, false, &err), &err);
  must(df_pool_create(1, &pool, &err), &err);
  must(df_device_open("cpu", pool, df_kernels_get(DF_TIER_REF), &d, &err), &err);
  refused(d->ops->prepare(d, r->p, true, &err), &err, DF_ERR_UNSUPPORTED, "the processor cannot run op attn-extern");
  df_program_clear(r->p, 1, 1);
  must(d->ops->prepare(d, r->p, true, &err), &err);
  df_device_free(d);
  df_pool_free(pool);
  df_attn_free(a);
}

int main(void) {
#define CASE(f) cmocka_unit_test_setup_teardown(f, rig_make, rig_drop)
  const struct CMUnitTest tests[] = {
      CASE(test_create__refused),
      CASE(test_create__every_shape_with_a_kernel),
      CASE(test_caps),
      CASE(test_graph_init__workspace),
      CASE(test_flashinfer_emit__ops_and_plans),
      CASE(test_flashinfer_plan__recorded),
      CASE(test_flashinfer_plan__eager),
      CASE(test_flashinfer_plan__by_program),
      CASE(test_flashinfer_plan__masks),
      CASE(test_flashinfer_plan__halves),
      CASE(test_emit__made_for_another_table),
      CASE(test_xqa_emit__rows),
      CASE(test_xqa_emit__refused),
      CASE(test_extern__lowered),
      CASE(test_extern__refused_on_the_processor),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
