/* Does verify need a mask, and who reads it: asked through real wrappers over stub leaves whose labels lie. Case
 * numbers are those of the table of known defects: 1-12 stacks, 13 depth and cycles, 14 missing children; 15-23 are in
 * test_mask_guard. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "attention/hybrid.h"
#include "attention/recurrent.h"
#include "attention/tbo.h"
#include "attention/verify_mask.h"
#include "base/size.h"
#include "support/stub_attn.h"

/* Stacks are written as H(prefill,decode), H(prefill,decode,verify), L(attention), T(whole). A leaf is a name and a
 * kind: p+  causal, reads both layouts      p!  causal, reads no mask        p-  not causal, reads QLEN and FULL p= not
 * causal, reads FULL only     p0  not causal, reads no mask    p?  says it reads masks, but of no layout */
enum { MAX_LEAVES = 64 };

typedef struct builder {
  const char *at;
  bool on_decode;
  stub_attn leaf[MAX_LEAVES];
  char name[MAX_LEAVES];
  uint32_t n;
} builder;

static void must(df_status s, const df_error *err) {
  if (s != DF_OK) fail_msg("%s", err->msg);
}

static df_attn *add_leaf(builder *b, char name, char kind) {
  /* Labels of leaves that other rules would have masked, or not: nobody may look. */
  const bool needs = kind == '-' || kind == '=' || kind == '0';
  df_attn_caps c = stub_caps_all();
  c.causal = kind == '+' || kind == '!';
  if (kind == '!' || kind == '0') c.reads_mask = false;
  if (!c.reads_mask || kind == '?') c.mask_layouts = 1u << DF_MASK_NONE;
  if (kind == '=') c.mask_layouts &= ~(1u << DF_MASK_QLEN);
  assert_true(b->n < MAX_LEAVES);
  b->leaf[b->n] = stub_leaf(needs ? "flash" : "never-heard-of", c);
  b->name[b->n] = name;
  return &b->leaf[b->n++].base;
}

static df_attn *build(builder *b);

static df_attn *argument(builder *b) {
  b->at++; /* the bracket or comma in front */
  return build(b);
}

static df_attn *build(builder *b) {
  df_error err = {0};
  df_attn *out = NULL;
  const char what = *b->at++;
  if (what == 'H') {
    df_attn *p = argument(b), *d = argument(b), *v = *b->at == ',' ? argument(b) : NULL;
    must(df_attn_hybrid_create(p, d, v, b->on_decode, &out, &err), &err);
  } else if (what == 'L') {
    static const bool k_linear[] = {false, true};
    df_attn *a = argument(b);
    must(df_attn_hybrid_linear_create(a, add_leaf(b, 'r', '!'), k_linear, 2, &out, &err), &err);
  } else if (what == 'T') { /* three copies of the same stack; the whole batch's is built first */
    const char *from = b->at;
    df_attn *copy[3];
    for (int i = 0; i < 3; i++) {
      b->at = from;
      copy[i] = argument(b);
    }
    must(df_attn_tbo_create(copy[0], copy[1], copy[2], &out, &err), &err);
  } else {
    return add_leaf(b, what, *b->at++);
  }
  b->at++; /* closing bracket */
  return out;
}

typedef struct stack_case {
  const char *stack;
  const char *executor; /* verify on prefill, verify on decode */
  df_mask_layout layout[2];
  uint32_t depth;
} stack_case;

static const stack_case k_chain[] = {
    {"x+", "xx", {DF_MASK_NONE, DF_MASK_NONE}, 0}, /* 1 */
    {"x!", "xx", {DF_MASK_NONE, DF_MASK_NONE}, 0},
    {"x-", "xx", {DF_MASK_QLEN, DF_MASK_QLEN}, 0}, /* 2 */
    {"x=", "xx", {DF_MASK_FULL, DF_MASK_FULL}, 0},
    {"H(p+,d-)", "pd", {DF_MASK_NONE, DF_MASK_QLEN}, 1}, /* 3, 4 */
    {"H(p-,d+)", "pd", {DF_MASK_QLEN, DF_MASK_NONE}, 1}, /* 5 */
    {"H(p=,d!)", "pd", {DF_MASK_FULL, DF_MASK_NONE}, 1},
    {"H(p-,d-,v+)", "vv", {DF_MASK_NONE, DF_MASK_NONE}, 1}, /* 6 */
    {"H(p+,d+,v=)", "vv", {DF_MASK_FULL, DF_MASK_FULL}, 1},
    {"L(x+)", "xx", {DF_MASK_NONE, DF_MASK_NONE}, 1}, /* 7 */
    {"L(x-)", "xx", {DF_MASK_QLEN, DF_MASK_QLEN}, 1},
    {"L(H(p+,d-))", "pd", {DF_MASK_NONE, DF_MASK_QLEN}, 2}, /* 8 */
    {"L(H(p-,d+))", "pd", {DF_MASK_QLEN, DF_MASK_NONE}, 2},
    {"L(H(p-,d-,v!))", "vv", {DF_MASK_NONE, DF_MASK_NONE}, 2},
    {"H(L(p+),L(d-))", "pd", {DF_MASK_NONE, DF_MASK_QLEN}, 2}, /* 9 */
    {"H(L(p-),L(d+))", "pd", {DF_MASK_QLEN, DF_MASK_NONE}, 2},
    {"H(L(p-),L(d-),L(v+))", "vv", {DF_MASK_NONE, DF_MASK_NONE}, 2},
    {"T(x+)", "xx", {DF_MASK_NONE, DF_MASK_NONE}, 1}, /* 10 */
    {"T(x-)", "xx", {DF_MASK_QLEN, DF_MASK_QLEN}, 1},
    {"T(H(p+,d-))", "pd", {DF_MASK_NONE, DF_MASK_QLEN}, 2}, /* 11 */
    {"T(H(p=,d!))", "pd", {DF_MASK_FULL, DF_MASK_NONE}, 2},
    {"T(L(H(p+,d-)))", "pd", {DF_MASK_NONE, DF_MASK_QLEN}, 3}, /* 12 */
    {"T(L(H(p-,d-,v+)))", "vv", {DF_MASK_NONE, DF_MASK_NONE}, 3},
    {"T(L(x-))", "xx", {DF_MASK_QLEN, DF_MASK_QLEN}, 2},
    {"T(H(L(p+),L(d-)))", "pd", {DF_MASK_NONE, DF_MASK_QLEN}, 3},
    {"H(T(p+),T(d-))", "pd", {DF_MASK_NONE, DF_MASK_QLEN}, 2},
    {"H(H(p-,q+),H(d+,e-))", NULL, {DF_MASK_NONE, DF_MASK_NONE}, 2}, /* p and e: the inner split decides alike */
};

/* The leaf the policy names is the one that a verify pass really reaches: plan it and see who was planned. */
static void assert_runs_verify(builder *b, df_attn *a, const df_attn *leaf) {
  df_error err = {0};
  df_batch batch = {0};
  must(a->ops->plan(a, NULL, &batch, DF_MODE_TARGET_VERIFY, DF_PHASE_EAGER, &err), &err);
  bool planned = false;
  for (uint32_t i = 0; i < b->n; i++) planned |= b->leaf[i].calls[STUB_PLAN] && &b->leaf[i].base == leaf;
  assert_true(planned);
}

static void check_stack(const stack_case *c, bool on_decode, df_draft_shape shape) {
  df_error err = {0};
  builder b = {.at = c->stack, .on_decode = on_decode};
  df_mask_decision d = {0};
  df_attn *a = build(&b);
  must(df_verify_mask_policy(a, shape, &d, &err), &err);
  const char name = c->executor ? c->executor[on_decode] : on_decode ? 'e' : 'p';
  const df_mask_layout layout = c->executor ? c->layout[on_decode] : DF_MASK_QLEN;
  uint32_t i = 0;
  while (i < b.n && &b.leaf[i].base != d.executor) i++;
  if (i == b.n || b.name[i] != name)
    fail_msg("%s (%d): verify runs on '%c'", c->stack, on_decode, i < b.n ? b.name[i] : '?');
  for (uint32_t j = 0; j < i; j++) /* of three copies, the one that runs whole batches */
    if (b.name[j] == name) fail_msg("%s (%d): not the first '%c'", c->stack, on_decode, name);
  if (d.layout != layout)
    fail_msg("%s (%d): %s, expected %s", c->stack, on_decode, df_mask_layout_name(d.layout),
             df_mask_layout_name(layout));
  assert_int_equal(d.depth, c->depth);
  assert_non_null(d.reason);
  assert_runs_verify(&b, a, d.executor);
  df_attn_free(a);
}

static void test_policy__chain_asks_the_executor(void **state) {
  (void)state;
  for (size_t i = 0; i < DF_COUNT_OF(k_chain); i++)
    for (int on_decode = 0; on_decode < 2; on_decode++) check_stack(&k_chain[i], on_decode != 0, DF_DRAFT_CHAIN);
}

/* A tree needs a mask on every leaf, the smallest layout that it reads. */
static void test_policy__tree_always_has_a_mask(void **state) {
  (void)state;
  static const stack_case k_tree[] = {
      {"x+", "xx", {DF_MASK_QLEN, DF_MASK_QLEN}, 0},
      {"x=", "xx", {DF_MASK_FULL, DF_MASK_FULL}, 0},
      {"T(L(H(p+,d-)))", "pd", {DF_MASK_QLEN, DF_MASK_QLEN}, 3},
      {"H(p!,d!,v=)", "vv", {DF_MASK_FULL, DF_MASK_FULL}, 1},
  };
  for (size_t i = 0; i < DF_COUNT_OF(k_tree); i++)
    for (int on_decode = 0; on_decode < 2; on_decode++) check_stack(&k_tree[i], on_decode != 0, DF_DRAFT_TREE);
}

static void test_policy__refuses_who_cannot_read(void **state) {
  (void)state;
  static const struct {
    const char *stack;
    df_draft_shape shape;
    const char *outer;
  } k[] = {
      {"x!", DF_DRAFT_TREE, "never-heard-of"},  {"x0", DF_DRAFT_TREE, "flash"},
      {"x0", DF_DRAFT_CHAIN, "flash"},          {"x?", DF_DRAFT_TREE, "never-heard-of"},
      {"x?", DF_DRAFT_CHAIN, "never-heard-of"}, {"H(p!,d+)", DF_DRAFT_TREE, "hybrid"},
      {"T(L(H(p!,d+)))", DF_DRAFT_TREE, "tbo"}, {"L(x0)", DF_DRAFT_CHAIN, "hybrid-linear"},
      {"H(p+,d+,v!)", DF_DRAFT_TREE, "hybrid"},
  };
  for (size_t i = 0; i < DF_COUNT_OF(k); i++) {
    df_error err = {0};
    builder b = {.at = k[i].stack};
    df_mask_decision d = {.reason = "untouched"};
    df_attn *a = build(&b);
    if (df_verify_mask_policy(a, k[i].shape, &d, &err) != DF_ERR_UNSUPPORTED)
      fail_msg("%s was not refused", k[i].stack);
    df_attn *leaf;
    must(df_attn_resolve(a, DF_MODE_TARGET_VERIFY, &leaf, NULL, &err), &err);
    assert_non_null(strstr(err.msg, k[i].outer)); /* both ends are named */
    assert_non_null(strstr(err.msg, leaf->label));
    assert_non_null(strstr(err.msg, k[i].shape == DF_DRAFT_TREE ? "tree" : "chain"));
    assert_string_equal(d.reason, "untouched");
    df_attn_free(a);
  }
}

/* Real leaves, by what they say of themselves. */
static void test_policy__real_leaves(void **state) {
  (void)state;
  static const struct {
    df_status (*create)(const df_attn_shape *, df_attn **, df_error *);
    df_status tree;
  } k[] = {{df_attn_flash_create, DF_OK}, {df_attn_naive_create, DF_OK}, {df_attn_splitkv_create, DF_ERR_UNSUPPORTED}};
  const df_attn_shape shape = {4, 2, 32, 64, 1, NULL, 16};
  for (size_t i = 0; i < DF_COUNT_OF(k); i++) {
    df_error err = {0};
    df_mask_decision d = {0};
    df_attn *a;
    must(k[i].create(&shape, &a, &err), &err);
    must(df_verify_mask_policy(a, DF_DRAFT_CHAIN, &d, &err), &err);
    assert_int_equal(d.layout, DF_MASK_NONE);
    assert_ptr_equal(d.executor, a);
    assert_int_equal(df_verify_mask_policy(a, DF_DRAFT_TREE, &d, &err), k[i].tree);
    if (k[i].tree == DF_OK) assert_int_equal(d.layout, DF_MASK_QLEN);
    df_attn_free(a);
  }
}

/* 13: eight wrappers are the most; the ninth is refused before anything deeper is asked. */
static void test_resolve__depth(void **state) {
  (void)state;
  for (uint32_t n = 0; n <= 12; n++) {
    df_error err = {0};
    stub_attn w[13];
    df_attn *leaf = NULL;
    uint32_t depth = 99;
    w[0] = stub_leaf("leaf", stub_caps_all());
    for (uint32_t i = 1; i <= n; i++) w[i] = stub_wrapper("deep", &w[i - 1].base);
    const df_status s = df_attn_resolve(&w[n].base, DF_MODE_TARGET_VERIFY, &leaf, &depth, &err);
    if (n <= DF_ATTN_MAX_DEPTH) {
      must(s, &err);
      assert_ptr_equal(leaf, &w[0].base);
      assert_int_equal(depth, n);
      continue;
    }
    assert_int_equal(s, DF_ERR_ARGUMENT);
    assert_non_null(strstr(err.msg, "deeper than 8"));
    assert_null(leaf);
    assert_int_equal(w[0].calls[STUB_EXECUTOR], 0);
  }
}

static void assert_every_mode_fails(df_attn *a, df_status want, const char *text) {
  for (int mode = 0; mode < DF_MODE_COUNT; mode++) {
    df_error err = {0};
    df_attn *leaf = NULL;
    assert_int_equal(df_attn_resolve(a, (df_mode)mode, &leaf, NULL, &err), want);
    assert_null(leaf);
    assert_non_null(strstr(err.msg, text));
  }
  df_error err = {0};
  df_mask_decision d = {0};
  assert_int_equal(df_verify_mask_policy(a, DF_DRAFT_CHAIN, &d, &err), want);
  assert_null(d.executor);
}

/* 13: circles of any length end in an error; a wrapper that holds itself has nobody. */
static void test_resolve__cycles(void **state) {
  (void)state;
  for (uint32_t n = 2; n <= 8; n++) {
    stub_attn w[8];
    for (uint32_t i = 0; i < n; i++) w[i] = stub_wrapper("round", &w[(i + 1) % n].base);
    assert_every_mode_fails(&w[0].base, DF_ERR_ARGUMENT, "leads back");
  }
  stub_attn x = stub_leaf("x", stub_caps_all()), in = stub_wrapper("in", NULL);
  df_error err = {0};
  df_attn *h[3];
  const bool linear[1] = {false};
  must(df_attn_hybrid_create(&x.base, &x.base, NULL, false, &h[0], &err), &err);
  must(df_attn_tbo_create(&x.base, &x.base, &x.base, &h[1], &err), &err);
  must(df_attn_hybrid_linear_create(&x.base, &x.base, linear, 1, &h[2], &err), &err);
  for (int i = 0; i < 3; i++) {
    for (int j = 0; j < (i ? 1 : 2); j++) stub_redirect(h[i], &x.base, h[i]); /* both slots of the hybrid */
    assert_every_mode_fails(h[i], DF_ERR_INTERNAL, "nobody");
    for (int j = 0; j < (i ? 1 : 2); j++) stub_redirect(h[i], h[i], &in.base); /* and back through a stub */
    in.child = h[i];
    assert_every_mode_fails(h[i], DF_ERR_ARGUMENT, "leads back");
    for (int j = 0; j < (i ? 1 : 2); j++) stub_redirect(h[i], &in.base, &x.base);
    df_attn_free(h[i]);
  }
}

/* 14: never taken for a leaf. */
static void test_resolve__missing_child(void **state) {
  (void)state;
  stub_attn empty = stub_wrapper("empty", NULL), around = stub_wrapper("around", &empty.base);
  assert_every_mode_fails(&empty.base, DF_ERR_INTERNAL, "\"empty\" has nobody");
  assert_every_mode_fails(&around.base, DF_ERR_INTERNAL, "\"empty\" has nobody");
  df_error err = {0};
  df_attn *h;
  must(df_attn_hybrid_create(NULL, NULL, NULL, false, &h, &err), &err);
  assert_every_mode_fails(h, DF_ERR_INTERNAL, "\"hybrid\" has nobody");
  df_attn_free(h);
  must(df_attn_tbo_create(NULL, NULL, NULL, &h, &err), &err);
  assert_every_mode_fails(h, DF_ERR_INTERNAL, "\"tbo\" has nobody");
  df_attn_free(h);
  const bool linear[1] = {false};
  must(df_attn_hybrid_linear_create(NULL, NULL, linear, 1, &h, &err), &err);
  assert_every_mode_fails(h, DF_ERR_INTERNAL, "\"hybrid-linear\" has nobody");
  df_attn_free(h);
}

/* A refused wrapper takes its children with it. */
static void test_hybrid_linear__too_many_layers(void **state) {
  (void)state;
  static const bool linear[513] = {false};
  df_error err = {0};
  df_attn *h = NULL;
  stub_attn a = stub_leaf("a", stub_caps_all()), l = stub_leaf("l", stub_caps_all());
  assert_int_equal(df_attn_hybrid_linear_create(&a.base, &l.base, linear, 513, &h, &err), DF_ERR_LIMIT);
  assert_null(h);
  assert_int_equal(a.calls[STUB_FREE] + l.calls[STUB_FREE], 2);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_policy__chain_asks_the_executor),
      cmocka_unit_test(test_policy__tree_always_has_a_mask),
      cmocka_unit_test(test_policy__refuses_who_cannot_read),
      cmocka_unit_test(test_policy__real_leaves),
      cmocka_unit_test(test_resolve__depth),
      cmocka_unit_test(test_resolve__cycles),
      cmocka_unit_test(test_resolve__missing_child),
      cmocka_unit_test(test_hybrid_linear__too_many_layers),
  };
  return cmocka_run_group_tests_name("verify_mask", tests, NULL, NULL);
}
