/*
 * Vector kernels: every tier against ref bit for bit, between guard pages, on ordinary and adversarial values; ref
 * itself against double precision and against the properties that kernels.h promises.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/bits.h"
#include "base/size.h"
#include "kernels/checkkern.h"
#include "kernels/expf.h"

static const df_kernels *ref, *tier[DF_TIER_COUNT];
static unsigned n_tiers;

static const uint32_t sizes[] = {1, 2, 7, 8, 9, 15, 16, 17, 23, 24, 25, 31, 32, 33, 47, 48, 49, 63, 64, 65, 97, 576};

/* A read-only guarded input; side alternates with the call. */
static ck_buf input(ck_rng *r, ck_fill f, size_t n) {
  ck_buf b = ck_alloc(n * sizeof(float), 4, ck_next(r) & 1 ? CK_END : CK_START);
  ck_fill_f32(r, f, b.data, n);
  ck_read_only(&b);
  return b;
}

static ck_buf output(ck_rng *r, size_t bytes, size_t align) {
  ck_buf b = ck_alloc(bytes, align, ck_next(r) & 1 ? CK_END : CK_START);
  memset(b.data, 0x5c, bytes);
  return b;
}

/* ---- quantize ---- */

static void check_block_meaning(const float *x, const df_actq *b) {
  double amax = 0;
  int lo = 0, hi = 0, top = 0;
  for (int i = 0; i < 32; i++) amax = fmax(amax, fabs((double)x[i]));
  for (int i = 0; i < 32; i++) {
    *(i < 16 ? &lo : &hi) += b->q[i];
    top = DF_MAX(top, b->q[i] < 0 ? -b->q[i] : b->q[i]);
  }
  assert_int_equal(b->off4, -8 * (lo + hi));
  assert_int_equal(b->off8, -128 * (lo + hi));
  assert_int_equal(b->off6_lo, -32 * lo);
  assert_int_equal(b->off6_hi, -32 * hi);
  assert_int_equal(b->pad[0], 0);
  assert_int_equal(b->pad[1], 0);
  assert_true(b->scale_sum == b->scale * (float)(lo + hi));
  if (amax < (double)DF_QUANT_MIN) {
    assert_int_equal(df_bits_of_float(b->scale), 0);
    assert_int_equal(top, 0);
    return;
  }
  assert_true(b->scale == (float)(amax / 127.0)); /* a float quotient is the rounded double one */
  assert_true(b->scale >= 0x1p-126f);
  assert_int_equal(top, 127);
  for (int i = 0; i < 32; i++) {
    assert_true(fabs((double)x[i] - (double)b->scale * b->q[i]) <= (double)b->scale * 0.50001);
  }
}

static void test_quantize__means_what_it_says(void **state) {
  (void)state;
  ck_rng r = {11};
  for (int f = 0; f < CK_FILLS; f++) {
    for (int rep = 0; rep < 50; rep++) {
      float x[32];
      df_actq b;
      ck_fill_f32(&r, (ck_fill)f, x, 32);
      ref->quantize(x, 32, &b, 1);
      check_block_meaning(x, &b);
    }
  }
}

static void test_quantize__ties_go_to_even(void **state) {
  (void)state;
  float x[32] = {127.0f, 0.5f, 1.5f, 2.5f, -0.5f, -1.5f, -2.5f, 126.5f, -126.5f, 125.5f};
  static const int8_t want[10] = {127, 0, 2, 2, 0, -2, -2, 126, -126, 126};
  for (unsigned t = 0; t <= n_tiers; t++) {
    df_actq b;
    (t ? tier[t - 1] : ref)->quantize(x, 32, &b, 1);
    assert_true(b.scale == 1.0f);
    assert_memory_equal(b.q, want, sizeof want);
  }
}

static void test_quantize__defects_and_small_blocks(void **state) {
  (void)state;
  static const float odd[] = {NAN, INFINITY, -INFINITY};
  for (unsigned t = 0; t <= n_tiers; t++) {
    const df_kernels *k = t ? tier[t - 1] : ref;
    for (unsigned i = 0; i < 96; i++) {
      float x[32];
      df_actq b, zero = {.pad = {0, 0}};
      for (int j = 0; j < 32; j++) x[j] = (float)j;
      x[i % 32] = odd[i / 32];
      k->quantize(x, 32, &b, 1);
      assert_true(isnan(b.scale) && isnan(b.scale_sum));
      b.scale = b.scale_sum = 0.0f;
      assert_memory_equal(&b, &zero, sizeof b);
    }
    float y[32] = {0};
    df_actq b, zero = {.pad = {0, 0}};
    y[17] = nextafterf(DF_QUANT_MIN, 0.0f);
    k->quantize(y, 32, &b, 1);
    assert_memory_equal(&b, &zero, sizeof b);
    y[17] = -DF_QUANT_MIN;
    k->quantize(y, 32, &b, 1);
    assert_int_equal(b.q[17], -127);
  }
}

static void compare_quantize(ck_rng *r, ck_fill f, uint32_t blocks, size_t stride, bool defects) {
  size_t bytes = blocks ? ((blocks - 1) * stride + 1) * sizeof(df_actq) : 0;
  ck_buf x = ck_alloc((size_t)blocks * 128, 4, ck_next(r) & 1 ? CK_END : CK_START), want = output(r, bytes, 64);
  ck_fill_f32(r, f, x.data, (size_t)blocks * 32);
  for (uint32_t b = 0; b < blocks && defects; b++) {
    if (ck_below(r, 3) == 0) ((float *)x.data)[b * 32 + ck_below(r, 32)] = ck_next(r) & 1 ? NAN : -INFINITY;
  }
  ck_read_only(&x);
  ref->quantize(x.data, blocks * 32, want.data, stride);
  for (unsigned t = 0; t < n_tiers; t++) {
    ck_buf got = output(r, bytes, 64);
    tier[t]->quantize(x.data, blocks * 32, got.data, stride);
    ck_same_actq(want.data, got.data, bytes / sizeof(df_actq), "quantize %s %u blocks stride %zu tier %u",
                 ck_fill_name(f), blocks, stride, t);
    ck_free(&got);
  }
  ck_free(&want);
  ck_free(&x);
}

static void test_quantize__tiers_agree(void **state) {
  (void)state;
  ck_rng r = {12};
  for (int f = 0; f < CK_FILLS; f++) {
    for (uint32_t blocks = 0; blocks <= 49; blocks += 1 + blocks / 18) {
      compare_quantize(&r, (ck_fill)f, blocks, 1 + blocks % 3, false);
      compare_quantize(&r, (ck_fill)f, blocks, 1 + blocks % 16, true);
    }
  }
}

/* ---- rmsnorm, silu_mul, rope, add ---- */

static void test_rmsnorm__close_to_double(void **state) {
  (void)state;
  ck_rng r = {21};
  for (size_t s = 0; s < DF_COUNT_OF(sizes); s++) {
    uint32_t n = sizes[s];
    float x[576], w[576], y[576];
    double sum = 0;
    ck_fill_f32(&r, CK_UNIFORM, x, n);
    ck_fill_f32(&r, CK_UNIFORM, w, n);
    for (uint32_t i = 0; i < n; i++) sum += (double)x[i] * x[i];
    double f = 1.0 / sqrt(sum / n + 1e-5);
    ref->rmsnorm(x, w, n, 1e-5f, y);
    for (uint32_t i = 0; i < n; i++) {
      double want = x[i] * f * w[i];
      assert_true(fabs(y[i] - want) <= 1e-6 * fabs(want));
    }
  }
}

/* Lane i of the sum is the chain i, i+16, ...: a value that is lost in one order and kept in another. */
static void test_rmsnorm__order_of_the_sum(void **state) {
  (void)state;
  float x[48] = {0}, w[48], y[48];
  for (int i = 0; i < 48; i++) w[i] = 1.0f;
  x[0] = 4096.0f; /* 2^24 in lane 0: adding 1 there is lost, twice 1 = 2 in another lane is not */
  x[16] = 1.0f;
  x[32] = 1.0f;
  float lost = 1.0f / sqrtf(16777216.0f / 48.0f);
  ref->rmsnorm(x, w, 48, 0.0f, y);
  assert_true(y[0] == 4096.0f * lost);
  x[16] = x[32] = 0.0f;
  x[1] = x[17] = 1.0f;
  float kept = 1.0f / sqrtf(16777218.0f / 48.0f);
  ref->rmsnorm(x, w, 48, 0.0f, y);
  assert_true(y[0] == 4096.0f * kept);
  for (unsigned t = 0; t < n_tiers; t++) {
    float z[48];
    tier[t]->rmsnorm(x, w, 48, 0.0f, z);
    ck_same_f32(y, z, 48, "order, tier %u", t);
  }
}

static void compare_rmsnorm(ck_rng *r, ck_fill f, uint32_t n, float eps) {
  ck_buf x = input(r, f, n), w = input(r, CK_WIDE, n), want = output(r, n * 4, 4);
  ref->rmsnorm(x.data, w.data, n, eps, want.data);
  for (unsigned t = 0; t <= n_tiers; t++) {
    const df_kernels *k = t ? tier[t - 1] : ref;
    ck_buf got = output(r, n * 4, 4), in_place = output(r, n * 4, 4);
    k->rmsnorm(x.data, w.data, n, eps, got.data);
    ck_same_f32(want.data, got.data, n, "rmsnorm %s n %u tier %u", ck_fill_name(f), n, t);
    memcpy(in_place.data, x.data, n * 4);
    k->rmsnorm(in_place.data, w.data, n, eps, in_place.data);
    ck_same_f32(want.data, in_place.data, n, "rmsnorm in place %s n %u tier %u", ck_fill_name(f), n, t);
    ck_free(&got);
    ck_free(&in_place);
  }
  ck_free(&x);
  ck_free(&w);
  ck_free(&want);
}

static void test_rmsnorm__tiers_agree(void **state) {
  (void)state;
  ck_rng r = {22};
  for (int f = 0; f < CK_FILLS; f++) {
    for (size_t s = 0; s < DF_COUNT_OF(sizes); s++) compare_rmsnorm(&r, (ck_fill)f, sizes[s], s & 1 ? 1e-6f : 0.0f);
  }
}

static void test_silu_mul__close_to_double(void **state) {
  (void)state;
  for (int i = -8700; i <= 8700; i++) {
    float g = (float)i * 0.01f, u = 1.5f, y;
    double want = (double)g / (1.0 + exp(-(double)g)) * 1.5;
    ref->silu_mul(&g, &u, 1, &y);
    if (!(fabs((double)y - want) <= 4e-7 * fabs(want))) fail_msg("silu(%g) = %g", (double)g, (double)y);
  }
}

static void compare_silu(ck_rng *r, ck_fill f, uint32_t n) {
  ck_buf g = input(r, f, n), u = input(r, CK_MIXED, n), want = output(r, n * 4, 4);
  ref->silu_mul(g.data, u.data, n, want.data);
  for (unsigned t = 0; t < n_tiers; t++) {
    ck_buf got = output(r, n * 4, 4);
    tier[t]->silu_mul(g.data, u.data, n, got.data);
    ck_same_f32(want.data, got.data, n, "silu_mul %s n %u tier %u", ck_fill_name(f), n, t);
    ck_free(&got);
  }
  ck_free(&g);
  ck_free(&u);
  ck_free(&want);
}

static void test_silu_mul__tiers_agree(void **state) {
  (void)state;
  ck_rng r = {23};
  for (int f = 0; f < CK_FILLS; f++) {
    compare_silu(&r, (ck_fill)f, 0);
    for (size_t s = 0; s < DF_COUNT_OF(sizes); s++) compare_silu(&r, (ck_fill)f, sizes[s]);
  }
  float g[64], u[64], want[64], got[64];
  for (int i = 0; i < 64; i++) u[i] = 1.0f;
  for (int base = -100; base < 100; base += 1) { /* the range where exp matters, finely */
    for (int i = 0; i < 64; i++) g[i] = (float)base + (float)i / 64.0f;
    ref->silu_mul(g, u, 64, want);
    for (unsigned t = 0; t < n_tiers; t++) {
      tier[t]->silu_mul(g, u, 64, got);
      ck_same_f32(want, got, 64, "silu_mul from %d tier %u", base, t);
    }
  }
}

static void compare_rope(ck_rng *r, ck_fill f, uint32_t h) {
  ck_buf x = input(r, f, 2 * (size_t)h), c = input(r, CK_MIXED, h), s = input(r, CK_UNIFORM, h);
  ck_buf want = output(r, 2 * (size_t)h * 4, 4);
  memcpy(want.data, x.data, want.bytes);
  ref->rope(want.data, c.data, s.data, h);
  for (uint32_t i = 0; i < h && f == CK_UNIFORM; i++) { /* meaning, where nothing overflows */
    double a = ((float *)x.data)[i], b = ((float *)x.data)[i + h], cc = ((float *)c.data)[i], ss = ((float *)s.data)[i];
    double tol = 3e-7 * (fabs(a * cc) + fabs(b * ss) + fabs(b * cc) + fabs(a * ss)) + 1e-44;
    assert_true(fabs(((float *)want.data)[i] - (a * cc - b * ss)) <= tol);
    assert_true(fabs(((float *)want.data)[i + h] - (b * cc + a * ss)) <= tol);
  }
  for (unsigned t = 0; t < n_tiers; t++) {
    ck_buf got = output(r, want.bytes, 4);
    memcpy(got.data, x.data, got.bytes);
    tier[t]->rope(got.data, c.data, s.data, h);
    ck_same_f32(want.data, got.data, 2 * (size_t)h, "rope %s h %u tier %u", ck_fill_name(f), h, t);
    ck_free(&got);
  }
  ck_free(&x);
  ck_free(&c);
  ck_free(&s);
  ck_free(&want);
}

static void test_rope__tiers_agree(void **state) {
  (void)state;
  ck_rng r = {24};
  for (int f = 0; f < CK_FILLS; f++) {
    compare_rope(&r, (ck_fill)f, 0);
    for (size_t s = 0; s < DF_COUNT_OF(sizes); s++) compare_rope(&r, (ck_fill)f, sizes[s]);
  }
}

static void compare_add(ck_rng *r, ck_fill f, uint32_t n) {
  ck_buf x = input(r, f, n), y = input(r, CK_MIXED, n);
  for (unsigned t = 0; t <= n_tiers; t++) {
    ck_buf got = output(r, n * 4, 4);
    memcpy(got.data, y.data, n * 4);
    (t ? tier[t - 1] : ref)->add(got.data, x.data, n);
    for (uint32_t i = 0; i < n; i++) {
      float want = ((float *)y.data)[i] + ((float *)x.data)[i];
      assert_int_equal(df_bits_of_float(((float *)got.data)[i]), df_bits_of_float(want));
    }
    ck_free(&got);
  }
  ck_free(&x);
  ck_free(&y);
}

static void test_add__exact(void **state) {
  (void)state;
  ck_rng r = {25};
  for (int f = 0; f < CK_FILLS; f++) {
    compare_add(&r, (ck_fill)f, 0);
    for (size_t s = 0; s < DF_COUNT_OF(sizes); s++) compare_add(&r, (ck_fill)f, sizes[s]);
  }
}

/* ---- argmax ---- */

static void expect_argmax(const float *x, uint32_t n, uint32_t want, const char *what) {
  for (unsigned t = 0; t <= n_tiers; t++) {
    uint32_t got = (t ? tier[t - 1] : ref)->argmax(x, n);
    if (got != want) fail_msg("argmax %s, n %u, tier %u: want %u, got %u", what, n, t, want, got);
  }
}

static void test_argmax__ties_and_nan(void **state) {
  (void)state;
  static const uint32_t lens[] = {1, 2, 15, 16, 17, 33, 511, 512, 513, 1024, 1025, 1541};
  for (size_t s = 0; s < DF_COUNT_OF(lens); s++) {
    uint32_t n = lens[s];
    ck_buf b = ck_alloc(n * 4, 4, s & 1 ? CK_END : CK_START);
    float *x = b.data;
    for (uint32_t at = 0; at < n; at += 1 + at / 7) {
      for (uint32_t i = 0; i < n; i++) x[i] = -5.0f - (float)(i % 3);
      x[at] = -1.0f;
      x[n - 1] = -1.0f;
      expect_argmax(x, n, at, "tie");
      for (uint32_t i = 0; i < n; i++) x[i] = i == at ? -INFINITY : NAN;
      expect_argmax(x, n, at, "nan");
      for (uint32_t i = 0; i < n; i++) x[i] = i < at ? -0.0f : 0.0f;
      expect_argmax(x, n, 0, "signed zeros");
      for (uint32_t i = 0; i < n; i++) x[i] = i == at ? INFINITY : 3e38f;
      x[0] = at ? NAN : x[0];
      expect_argmax(x, n, at, "infinity");
    }
    for (uint32_t i = 0; i < n; i++) x[i] = NAN;
    expect_argmax(x, n, 0, "all nan");
    for (uint32_t i = 0; i < n; i++) x[i] = -INFINITY;
    expect_argmax(x, n, 0, "all -inf");
    ck_free(&b);
  }
}

static void test_argmax__random(void **state) {
  (void)state;
  ck_rng r = {31};
  for (int rep = 0; rep < 400; rep++) {
    uint32_t n = 1 + ck_below(&r, 1700), want = 0;
    ck_buf x = input(&r, (ck_fill)(rep % CK_FILLS), n);
    const float *v = x.data;
    for (uint32_t i = 1; i < n; i++) {
      if (v[i] > v[want]) want = i;
    }
    expect_argmax(v, n, want, ck_fill_name((ck_fill)(rep % CK_FILLS)));
    ck_free(&x);
  }
}

/* ---- kv_store ---- */

typedef struct store_case {
  df_kv_type type;
  ck_fill fill;
  uint32_t e, pos, n, k_gap, v_gap; /* gaps: floats between one vector and the next */
} store_case;

static void expect_item(const store_case *c, const ck_buf *from, size_t at, const uint8_t *got, const char *what) {
  uint8_t want[4] = {0x5c, 0x5c, 0x5c, 0x5c}; /* what a page held before */
  size_t item = c->type == DF_KV_F32 ? 4 : 2;
  if (from) {
    float x = ((const float *)from->data)[at];
    uint16_t h = df_f32_to_f16(x);
    memcpy(want, c->type == DF_KV_F32 ? (const void *)&x : (const void *)&h, item);
  }
  ck_same_bytes(want, got, item, "%s %s e %u pos %u n %u from %zu", what, ck_fill_name(c->fill), c->e, c->pos, c->n,
                at);
}

static void check_store(ck_rng *r, const df_kernels *k, const store_case *c) {
  const uint32_t e = c->e, k_ld = e + c->k_gap, v_ld = e + c->v_gap;
  size_t item = c->type == DF_KV_F32 ? 4 : 2, bytes = (size_t)16 * e * item;
  ck_buf key = input(r, c->fill, (size_t)(c->n - 1) * k_ld + e), val = input(r, c->fill, (size_t)(c->n - 1) * v_ld + e);
  ck_buf kp = output(r, bytes, 32), vp = output(r, bytes, 32);
  k->kv_store(c->type, key.data, k_ld, val.data, v_ld, c->n, e, kp.data, vp.data, c->pos);
  const uint8_t *kb = kp.data, *vb = vp.data;
  for (uint32_t i = 0; i < e; i++) {
    for (uint32_t p = 0; p < 16; p++) {
      const bool in = p >= c->pos && p < c->pos + c->n;
      const size_t row = in ? p - c->pos : 0;
      expect_item(c, in ? &key : NULL, row * k_ld + i, kb + (i * 16 + p) * item, "K");
      expect_item(c, in ? &val : NULL, row * v_ld + i, vb + (p * e + i) * item, "V");
    }
  }
  ck_free(&key);
  ck_free(&val);
  ck_free(&kp);
  ck_free(&vp);
}

/* Every number of positions at every place of a page, and nothing beside them. */
static void test_kv_store__lanes_and_rows(void **state) {
  (void)state;
  ck_rng r = {41};
  for (unsigned t = 0; t <= n_tiers; t++) {
    for (uint32_t n = 1; n <= 16; n++) {
      for (uint32_t pos = 0; pos + n <= 16; pos++) {
        store_case c = {.e = 16 * (1 + ck_below(&r, 5)), .pos = pos, .n = n, .fill = (ck_fill)ck_below(&r, CK_FILLS)};
        c.k_gap = ck_below(&r, 3) * 7;
        c.v_gap = ck_below(&r, 3) * 16;
        for (int type = 0; type < 2; type++) {
          c.type = (df_kv_type)type;
          check_store(&r, t ? tier[t - 1] : ref, &c);
        }
      }
    }
    for (int f = 0; f < CK_FILLS; f++) {
      const store_case one = {DF_KV_F16, (ck_fill)f, 64, 5, 1, 0, 0}, eight = {DF_KV_F16, (ck_fill)f, 64, 7, 8, 3, 3};
      check_store(&r, t ? tier[t - 1] : ref, &one);
      check_store(&r, t ? tier[t - 1] : ref, &eight);
    }
  }
}

/* Every half and the three floats around every midpoint between halves: rounding to nearest even. */
static void test_kv_store__rounds_to_nearest_even(void **state) {
  (void)state;
  for (unsigned t = 0; t < n_tiers; t++) {
    for (uint32_t h = 0; h < 0x7bff; h += 4) {
      float x[16], v[16];
      uint16_t kp[256], vp[256];
      for (uint32_t i = 0; i < 4; i++) {
        float a = df_f16_to_f32((uint16_t)(h + i)), mid = a + (df_f16_to_f32((uint16_t)(h + i + 1)) - a) * 0.5f;
        x[4 * i] = a;
        x[4 * i + 1] = mid;
        x[4 * i + 2] = -nextafterf(mid, 1e9f);
        x[4 * i + 3] = nextafterf(mid, -1e9f);
      }
      for (int i = 0; i < 16; i++) v[i] = -x[i];
      tier[t]->kv_store(DF_KV_F16, x, 16, v, 16, 1, 16, kp, vp, 5);
      for (int i = 0; i < 16; i++) {
        assert_int_equal(kp[i * 16 + 5], df_f32_to_f16(x[i]));
        assert_int_equal(vp[5 * 16 + i], df_f32_to_f16(v[i]));
      }
    }
  }
}

/* ---- fused ---- */

static void compare_fused(ck_rng *r, ck_fill f, uint32_t blocks, size_t stride) {
  uint32_t n = blocks * 32;
  size_t n_out = (blocks - 1) * stride + 1;
  ck_buf x = input(r, f, n), w = input(r, CK_UNIFORM, n), y = output(r, n * 4, 4);
  ck_buf want_n = output(r, n_out * 64, 64), want_s = output(r, n_out * 64, 64);
  ref->rmsnorm(x.data, w.data, n, 1e-6f, y.data);
  ref->quantize(y.data, n, want_n.data, stride);
  ck_buf z = output(r, n * 4, 4);
  ref->silu_mul(x.data, w.data, n, z.data);
  ref->quantize(z.data, n, want_s.data, stride);
  for (unsigned t = 0; t <= n_tiers; t++) {
    const df_kernels *k = t ? tier[t - 1] : ref;
    ck_buf tmp = output(r, n * 4, 4), got = output(r, n_out * 64, 64), bare = output(r, n_out * 64, 64);
    k->rmsnorm_quantize(x.data, w.data, n, 1e-6f, tmp.data, got.data, stride);
    ck_same_f32(y.data, tmp.data, n, "rmsnorm_quantize row %s tier %u", ck_fill_name(f), t);
    ck_same_actq(want_n.data, got.data, n_out, "rmsnorm_quantize %s tier %u", ck_fill_name(f), t);
    k->rmsnorm_quantize(x.data, w.data, n, 1e-6f, NULL, bare.data, stride);
    ck_same_actq(want_n.data, bare.data, n_out, "rmsnorm_quantize, no row, %s tier %u", ck_fill_name(f), t);
    k->silu_mul_quantize(x.data, w.data, n, got.data, stride);
    ck_same_actq(want_s.data, got.data, n_out, "silu_mul_quantize %s tier %u", ck_fill_name(f), t);
    ck_free(&tmp);
    ck_free(&got);
    ck_free(&bare);
  }
  ck_buf *all[] = {&x, &w, &y, &z, &want_n, &want_s};
  for (size_t i = 0; i < DF_COUNT_OF(all); i++) ck_free(all[i]);
}

static void test_fused__equal_two_steps(void **state) {
  (void)state;
  ck_rng r = {51};
  for (int f = 0; f < CK_FILLS; f++) {
    for (uint32_t b = 1; b <= 49; b += 1 + b / 3) compare_fused(&r, (ck_fill)f, b, 1 + b % 3);
  }
}

int main(void) {
  ref = df_kernels_get(DF_TIER_REF);
  n_tiers = ck_tiers(tier);
  const struct CMUnitTest tests[] = {

      cmocka_unit_test(test_quantize__means_what_it_says),
      cmocka_unit_test(test_quantize__ties_go_to_even),
      cmocka_unit_test(test_quantize__defects_and_small_blocks),
      cmocka_unit_test(test_quantize__tiers_agree),
      cmocka_unit_test(test_rmsnorm__close_to_double),
      cmocka_unit_test(test_rmsnorm__order_of_the_sum),
      cmocka_unit_test(test_rmsnorm__tiers_agree),
      cmocka_unit_test(test_silu_mul__close_to_double),
      cmocka_unit_test(test_silu_mul__tiers_agree),
      cmocka_unit_test(test_rope__tiers_agree),
      cmocka_unit_test(test_add__exact),
      cmocka_unit_test(test_argmax__ties_and_nan),
      cmocka_unit_test(test_argmax__random),
      cmocka_unit_test(test_kv_store__lanes_and_rows),
      cmocka_unit_test(test_kv_store__rounds_to_nearest_even),
      cmocka_unit_test(test_fused__equal_two_steps),
  };
  return cmocka_run_group_tests_name("vec", tests, NULL, NULL);
}
