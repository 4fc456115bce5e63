#include "support/third_fake.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

struct third_fake third_fake;

static size_t fake_bytes(const df_third_shape *s) { return s->max_rows; }

static int fa2_create(const df_third_shape *s, df_fa2 **out) {
  third_fake.shape = *s;
  third_fake.created++;
  *out = &third_fake.fa2;
  return third_fake.code;
}

static void fa2_free(df_fa2 *w) { third_fake.freed += w != NULL; }

static int fa2_want_mask(df_fa2 *w) {
  (void)w;
  third_fake.masks++;
  return third_fake.code;
}

static int fa2_stage(df_fa2 *w, df_paged *p) {
  third_fake.staged++;
  *p = (df_paged){third_fake.shape.max_seqs, FAKE_PAGES, w->q_start, w->page_start, w->last, w->mask_start, w->pages};
  return third_fake.code;
}

static int fa2_plan(df_fa2 *w, const df_paged *p, uint32_t seqs, uint32_t rows, bool recorded, df_fa2_plan *out,
                    void *stream) {
  assert_ptr_equal(p->q_start, w->q_start);
  assert_null(stream);
  third_fake.planned++;
  third_fake.seqs = seqs;
  third_fake.rows = rows;
  third_fake.recorded = recorded;
  *out = (df_fa2_plan){{rows, recorded, recorded ? third_fake.drift : (int64_t)third_fake.planned}, seqs};
  return third_fake.code;
}

static int fa2_launch(df_fa2 *w, const df_fa2_plan *plan, const df_op_extern *op, const df_cuda_env *env) {
  assert_ptr_equal(w, &third_fake.fa2);
  third_fake.launched++;
  third_fake.plan = *plan;
  third_fake.op = op;
  third_fake.env = env;
  return third_fake.code;
}

static const char *fa2_text(const df_fa2 *w, int code) {
  (void)w, (void)code;
  return "made-up trouble";
}

const df_fa2_api third_fake_fa2 = {fake_bytes, fa2_create, fa2_free,   fa2_want_mask,
                                   fa2_stage,  fa2_plan,   fa2_launch, fa2_text};

static int xqa_create(const df_third_shape *s, df_xqa **out) {
  third_fake.shape = *s;
  third_fake.created++;
  *out = (df_xqa *)(void *)&third_fake.fa2;
  return third_fake.code;
}
static void xqa_free(df_xqa *w) { third_fake.freed += w != NULL; }
static int xqa_launch(df_xqa *w, uint32_t rows, const df_op_extern *op, const df_cuda_env *env) {
  assert_ptr_equal(w, &third_fake.fa2);
  third_fake.launched++;
  third_fake.xqa_rows = rows;
  third_fake.op = op;
  third_fake.env = env;
  return third_fake.code;
}
static const char *xqa_text(const df_xqa *w, int code) {
  (void)w, (void)code;
  return "made-up trouble";
}

const df_xqa_api third_fake_xqa = {fake_bytes, xqa_create, xqa_free, xqa_launch, xqa_text};
