/* Every op of every wrapper reaches the child it should, with the arguments it was given, and brings the answer back.
 * The table has one row per member of df_attn_ops: a member without a row, or one that a wrapper forgets, fails here.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "attention/hybrid.h"
#include "attention/recurrent.h"
#include "attention/tbo.h"
#include "base/size.h"
#include "support/stub_attn.h"

/* Children by letter: hybrid p(refill) d(ecode) v(erify); tbo w(hole) 0 1; hybrid-linear a(ttention) l(inear). */
typedef struct wrapper {
  const char *name;
  const char *children;
  stub_attn stub[3];
  df_attn *a;
} wrapper;

enum { MODES = DF_MODE_COUNT };

/* What an op must reach, per wrapper. plan, emit and executor are asked per mode, in the order of df_mode: extend,
 * decode, target-verify, draft-block, idle; the others once. */
typedef struct row {
  stub_op op;
  const char *name;
  bool by_mode;
  const char *hybrid[MODES], *tbo[MODES], *linear[MODES];
} row;

static const row k_rows[] = {
    {STUB_CAPS, "caps", false, {"pdv"}, {"w"}, {"al"}},
    {STUB_GRAPH_INIT, "graph_init", false, {"pdv"}, {"w01"}, {"al"}},
    {STUB_PLAN,
     "plan",
     true,
     {"p", "d", "v", "p", "d"},
     {"w01", "w01", "w01", "w01", "w01"},
     {"al", "al", "al", "al", "al"}},
    {STUB_EMIT, "emit", true, {"p", "d", "v", "p", "d"}, {"w", "w", "w", "w", "w"}, {"a", "l", "a", "l", "a"}},
    {STUB_EXECUTOR, "executor", true, {"p", "d", "v", "p", "d"}, {"w", "w", "w", "w", "w"}, {"a", "a", "a", "a", "a"}},
    {STUB_MASK, "mask", false, {"v"}, {"w"}, {"a"}},
    {STUB_HALF, "half", false, {""}, {"01"}, {""}},
    {STUB_COMMIT, "commit", false, {"v"}, {"w"}, {"al"}},
    {STUB_FREE, "free", false, {"pdv"}, {"w01"}, {"al"}},
};

/* In the linear column emit goes by layer; layer = mode, and these layers are recurrent. */
static const bool k_is_linear[MODES] = {false, true, false, true, false};

static void must(df_status s, const df_error *err) {
  if (s != DF_OK) fail_msg("%s", err->msg);
}

static void make(wrapper *w, const char *name) {
  df_error err = {0};
  *w = (wrapper){.name = name,
                 .children = strcmp(name, "hybrid") == 0 ? "pdv"
                             : strcmp(name, "tbo") == 0  ? "w01"
                                                         : "al"};
  for (int i = 0; i < 3; i++) w->stub[i] = stub_leaf("child", stub_caps_all());
  if (w->children[0] == 'p')
    must(df_attn_hybrid_create(&w->stub[0].base, &w->stub[1].base, &w->stub[2].base, false, &w->a, &err), &err);
  if (w->children[0] == 'w')
    must(df_attn_tbo_create(&w->stub[0].base, &w->stub[1].base, &w->stub[2].base, &w->a, &err), &err);
  if (w->children[0] == 'a')
    must(df_attn_hybrid_linear_create(&w->stub[0].base, &w->stub[1].base, k_is_linear, MODES, &w->a, &err), &err);
}

/* Calls one op the way the engine does and checks what comes back. want: letters of the children. */
typedef struct args {
  const df_program *program; /* never followed */
  df_batch batch;
  df_attn_pass pass;
  df_attn_layer layer;
  uint32_t lens[2];
} args;

static stub_attn *child_of(wrapper *w, char letter) {
  const char *at = letter ? strchr(w->children, letter) : NULL;
  return at ? &w->stub[at - w->children] : NULL;
}

static df_status call(wrapper *w, stub_op op, df_mode mode, args *g, const char *want, df_error *err) {
  const df_attn_ops *o = w->a->ops;
  g->program = (const df_program *)(const void *)&g->pass;
  g->pass = (df_attn_pass){.batch = &g->batch, .mode = mode};
  g->layer.layer = (uint32_t)mode;
  stub_attn *c = child_of(w, want[0]);
  switch (op) {
    case STUB_CAPS: (void)o->caps(w->a); return DF_OK;
    case STUB_GRAPH_INIT: return o->graph_init(w->a, 7, 48, err);
    case STUB_PLAN: return o->plan(w->a, g->program, &g->batch, mode, DF_PHASE_REPLAY, err);
    case STUB_EMIT: return o->emit(w->a, &g->pass, &g->layer, err);
    case STUB_EXECUTOR: assert_ptr_equal(o->executor(w->a, mode), &c->base); return DF_OK;
    case STUB_MASK: assert_ptr_equal(o->mask(w->a), &c->mask); return DF_OK;
    case STUB_HALF:
      for (uint32_t i = 0; i < 2; i++) assert_ptr_equal(o->half(w->a, i), want[0] ? &child_of(w, want[i])->base : NULL);
      return DF_OK;
    case STUB_COMMIT: return o->commit(w->a, &g->batch, g->lens, 2, err);
    default: o->free(w->a); return DF_OK;
  }
}

/* executor and half hand out a child without asking it. */
static bool asks_nobody(stub_op op) { return op == STUB_EXECUTOR || op == STUB_HALF; }

static void check_arguments(const stub_attn *c, stub_op op, df_mode mode, const args *g, bool half) {
  if (op == STUB_GRAPH_INIT) {
    assert_int_equal(c->n_seqs, half ? 4 : 7);
    assert_int_equal(c->n_rows, 48);
  }
  if (op == STUB_PLAN) {
    assert_ptr_equal(c->program, g->program);
    assert_ptr_equal(c->batch, &g->batch);
    assert_int_equal(c->mode, mode);
    assert_int_equal(c->phase, DF_PHASE_REPLAY);
  }
  if (op == STUB_EMIT) {
    assert_ptr_equal(c->pass, &g->pass);
    assert_ptr_equal(c->layer, &g->layer);
  }
  if (op == STUB_COMMIT) {
    assert_ptr_equal(c->batch, &g->batch);
    assert_ptr_equal(c->lens, g->lens);
    assert_int_equal(c->n_seqs, 2);
  }
}

static void check_calls(wrapper *w, const row *r, df_mode mode, const char *want, const args *g) {
  for (uint32_t i = 0; w->children[i]; i++) {
    const stub_attn *c = &w->stub[i];
    const bool wanted = !asks_nobody(r->op) && strchr(want, w->children[i]);
    for (uint32_t op = 0; op < STUB_OPS; op++) {
      const bool here = wanted && op == r->op;
      if (here != (c->calls[op] != 0))
        fail_msg("%s.%s (%s): child '%c' %s its %s", w->name, r->name, df_mode_name(mode), w->children[i],
                 here ? "was never asked" : "was asked", k_rows[op].name);
    }
    if (wanted && r->op != STUB_CAPS) assert_int_equal(c->calls[r->op], 1);
    if (wanted) check_arguments(c, r->op, mode, g, w->children[i] == '0' || w->children[i] == '1');
  }
}

static void forward_one(const char *name, const row *r, df_mode mode, const char *want) {
  static args g;
  df_error err = {0};
  wrapper w;
  make(&w, name);
  must(call(&w, r->op, mode, &g, want, &err), &err);
  check_calls(&w, r, mode, want, &g);
  if (r->op == STUB_FREE) return;
  /* Whoever fails, the caller hears it. */
  const bool has_status = r->op == STUB_GRAPH_INIT || r->op == STUB_PLAN || r->op == STUB_EMIT || r->op == STUB_COMMIT;
  for (const char *p = want; has_status && *p; p++) {
    for (int i = 0; i < 3; i++) w.stub[i].result = DF_OK;
    child_of(&w, *p)->result = DF_ERR_LIMIT;
    assert_int_equal(call(&w, r->op, mode, &g, want, &err), DF_ERR_LIMIT);
  }
  df_attn_free(w.a);
}

static const char *const *column(const row *r, const char *name) {
  return strcmp(name, "hybrid") == 0 ? r->hybrid : strcmp(name, "tbo") == 0 ? r->tbo : r->linear;
}

static void forward_all(const char *name) {
  for (size_t i = 0; i < DF_COUNT_OF(k_rows); i++)
    for (int mode = 0; mode < (k_rows[i].by_mode ? MODES : 1); mode++)
      forward_one(name, &k_rows[i], (df_mode)mode, column(&k_rows[i], name)[mode]);
}

static void test_ops__every_member_has_a_row(void **state) {
  (void)state;
  assert_int_equal(sizeof(df_attn_ops) / sizeof(void (*)(void)), DF_COUNT_OF(k_rows));
  assert_int_equal(DF_COUNT_OF(k_rows), STUB_OPS);
  for (size_t i = 0; i < DF_COUNT_OF(k_rows); i++) assert_int_equal(k_rows[i].op, i);
}

/* No member is left NULL by any backend: there is nothing a forgotten one could fall back to. */
static void assert_complete(const df_attn *a) {
  for (size_t i = 0; i < sizeof *a->ops / sizeof(void (*)(void)); i++) {
    void (*fn)(void);
    memcpy(&fn, (const uint8_t *)a->ops + i * sizeof fn, sizeof fn);
    if (!fn) fail_msg("backend \"%s\" has no %s", a->label, i < DF_COUNT_OF(k_rows) ? k_rows[i].name : "op");
  }
}

static void test_ops__no_backend_leaves_one_out(void **state) {
  (void)state;
  df_error err = {0};
  const df_attn_shape shape = {4, 2, 32, 64, 1, NULL, 16};
  df_recurrent_state st = {0};
  const uint32_t index[1] = {0};
  df_attn *leaf[4] = {NULL};
  must(df_recurrent_state_init(&st, 1, 2, 32, 1, 1, 1, 1, &err), &err);
  must(df_attn_flash_create(&shape, &leaf[0], &err), &err);
  must(df_attn_splitkv_create(&shape, &leaf[1], &err), &err);
  must(df_attn_naive_create(&shape, &leaf[2], &err), &err);
  must(df_attn_recurrent_create(&shape, &st, index, 1, &leaf[3], &err), &err);
  for (int i = 0; i < 4; i++) {
    assert_complete(leaf[i]);
    assert_ptr_equal(leaf[i]->ops->executor(leaf[i], DF_MODE_TARGET_VERIFY), leaf[i]);
    assert_null(leaf[i]->ops->half(leaf[i], 0));
    assert_false(leaf[i]->ops->mask(leaf[i])->is_read);
    df_attn_free(leaf[i]);
  }
  df_recurrent_state_release(&st);
  const char *const names[] = {"hybrid", "tbo", "linear"};
  for (int i = 0; i < 3; i++) {
    wrapper w;
    make(&w, names[i]);
    assert_complete(w.a);
    df_attn_free(w.a);
  }
}

static void test_hybrid__forwards_every_op(void **state) {
  (void)state;
  forward_all("hybrid");
}

static void test_tbo__forwards_every_op(void **state) {
  (void)state;
  forward_all("tbo");
}

static void test_hybrid_linear__forwards_every_op(void **state) {
  (void)state;
  forward_all("linear");
}

/* Without a slot of its own, verify and all that belongs to it go where verify_on_decode says. */
static void test_hybrid__verify_without_a_slot(void **state) {
  (void)state;
  for (int on_decode = 0; on_decode < 2; on_decode++) {
    df_error err = {0};
    df_batch batch = {0};
    const uint32_t lens[1] = {1};
    stub_attn p = stub_leaf("p", stub_caps_all()), d = stub_leaf("d", stub_caps_all());
    stub_attn *want = on_decode ? &d : &p, *other = on_decode ? &p : &d;
    df_attn *h;
    must(df_attn_hybrid_create(&p.base, &d.base, NULL, on_decode != 0, &h, &err), &err);
    assert_ptr_equal(h->ops->executor(h, DF_MODE_TARGET_VERIFY), &want->base);
    assert_ptr_equal(h->ops->mask(h), &want->mask);
    must(h->ops->plan(h, NULL, &batch, DF_MODE_TARGET_VERIFY, DF_PHASE_EAGER, &err), &err);
    must(h->ops->commit(h, &batch, lens, 1, &err), &err);
    assert_int_equal(want->calls[STUB_PLAN] + want->calls[STUB_COMMIT] + want->calls[STUB_MASK], 3);
    assert_int_equal(other->calls[STUB_PLAN] + other->calls[STUB_COMMIT] + other->calls[STUB_MASK], 0);
    df_attn_free(h);
    assert_int_equal(p.calls[STUB_FREE], 1);
    assert_int_equal(d.calls[STUB_FREE], 1);
  }
}

/* One leaf in several slots is set up once and freed once. */
static void test_hybrid__shared_children_are_one(void **state) {
  (void)state;
  for (int shape = 0; shape < 4; shape++) {
    df_error err = {0};
    stub_attn x = stub_leaf("x", stub_caps_all()), y = stub_leaf("y", stub_caps_all());
    df_attn *slots[4][3] = {{&x.base, &x.base, &x.base},
                            {&x.base, &x.base, &y.base},
                            {&x.base, &y.base, &y.base},
                            {&x.base, &y.base, &x.base}};
    df_attn *h;
    must(df_attn_hybrid_create(slots[shape][0], slots[shape][1], slots[shape][2], false, &h, &err), &err);
    must(h->ops->graph_init(h, 3, 16, &err), &err);
    df_attn_free(h);
    assert_int_equal(x.calls[STUB_GRAPH_INIT], 1);
    assert_int_equal(x.calls[STUB_FREE], 1);
    assert_int_equal(y.calls[STUB_GRAPH_INIT], shape ? 1 : 0);
    assert_int_equal(y.calls[STUB_FREE], shape ? 1 : 0);
  }
}

/* A limit of any phase limits the whole; masks are the verify child's alone, rows the prefill child's. */
static void test_caps__of_wrappers(void **state) {
  (void)state;
  for (int who = 0; who < 3; who++) {
    wrapper w;
    make(&w, "hybrid");
    df_attn_caps *c = &w.stub[who].caps;
    c->kv_types = 1u << DF_KV_F32;
    c->page_sizes = 16;
    c->graph_safe = c->sliding_window = c->causal = c->reads_mask = false;
    c->mask_layouts = 1u << DF_MASK_NONE;
    c->max_rows = 64;
    c->recurrent = true;
    const df_attn_caps all = w.a->ops->caps(w.a);
    assert_int_equal(all.kv_types, 1u << DF_KV_F32);
    assert_int_equal(all.page_sizes, 16);
    assert_false(all.graph_safe || all.sliding_window || all.causal);
    assert_true(all.recurrent);
    assert_int_equal(all.reads_mask, who != 2);
    assert_int_equal(all.mask_layouts, who == 2 ? 1u << DF_MASK_NONE : stub_caps_all().mask_layouts);
    assert_int_equal(all.max_rows, who == 0 ? 64 : 1000);
    df_attn_free(w.a);
  }
  wrapper w;
  make(&w, "linear");
  w.stub[1].caps = (df_attn_caps){.recurrent = true, .causal = true, .max_rows = 1};
  const df_attn_caps c = w.a->ops->caps(w.a);
  assert_true(c.recurrent && c.reads_mask && c.causal && !c.graph_safe);
  assert_int_equal(c.page_sizes, stub_caps_all().page_sizes);
  df_attn_free(w.a);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_ops__every_member_has_a_row),      cmocka_unit_test(test_ops__no_backend_leaves_one_out),
      cmocka_unit_test(test_hybrid__forwards_every_op),        cmocka_unit_test(test_tbo__forwards_every_op),
      cmocka_unit_test(test_hybrid_linear__forwards_every_op), cmocka_unit_test(test_hybrid__verify_without_a_slot),
      cmocka_unit_test(test_hybrid__shared_children_are_one),  cmocka_unit_test(test_caps__of_wrappers),
  };
  return cmocka_run_group_tests_name("attn_ops", tests, NULL, NULL);
}
