/*
 * kernels/kernels.h - the compute kernels: packed weights, quantised activations, vector and attention ops.
 *
 * Numerics: for every function here the result of one output element is one fixed sequence of operations,
 * independent of how many rows, strips or positions share the call, and THE SAME IN EVERY TIER: ref (scalar,
 * fmaf), avx2, avxvnni and avx512, neon and dotprod give equal bits. Tests compare with memcmp. Multiply-adds are
 * explicit fma; nothing is contracted by the compiler (kernel files are built with -ffp-contract=off).
 *
 * Lanes: vectors are 16 wide in every tier (avx2 uses two halves, neon four quarters). "tree16(v)" is the fixed
 * reduction v[i] += v[i+8] (i<8); v[i] += v[i+4] (i<4); v[i] += v[i+2] (i<2); v[0] + v[1].
 *
 * Threads: no state but the table pointer; no allocation; no libm calls in ISA files. Memory belongs to the caller.
 */
#ifndef DF_KERNELS_H
#define DF_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/cpu.h"
#include "base/error.h"

enum {
  DF_LANES = 16,     /* outputs per strip */
  DF_QBLOCK = 32,    /* values per activation block */
  DF_TILE_ROWS = 16, /* most activation rows one matmul call takes */
  DF_KV_PAGE = 16,   /* positions per KV page */
  DF_KV_CHUNK = 64,  /* positions per attention chunk (numerics contract) */
  DF_F8_BLOCK = 64   /* values of a block of DF_F8 */
};

/* GGUF tensor type ids that this engine reads (file side), and one of its own: DF_F8 is what a safetensors matrix of
 * F8_E4M3 and its scales are packed from, 64 codes behind their float32 scale. No file holds it. */
typedef enum df_dtype {
  DF_F32 = 0,
  DF_F16 = 1,
  DF_Q4_0 = 2,
  DF_Q4_1 = 3,
  DF_Q5_0 = 6,
  DF_Q5_1 = 7,
  DF_Q8_0 = 8,
  DF_Q4_K = 12,
  DF_Q5_K = 13,
  DF_Q6_K = 14,
  DF_BF16 = 30,
  DF_F8 = 1000
} df_dtype;

/* "Q4_K", ...; NULL when the id is not one of the above. */
const char *df_dtype_name(int dtype);
/* Values per block and bytes per block; false for unknown ids. */
bool df_dtype_block(int dtype, uint32_t *values, uint32_t *bytes);
/* Bit-exact decoding of n values (a multiple of the block) to float32. */
void df_dequant(df_dtype type, const void *src, size_t n, float *dst);
float df_f16_to_f32(uint16_t h);
uint16_t df_f32_to_f16(float f); /* round to nearest even, overflow to infinity, NaN stays NaN */
float df_bf16_to_f32(uint16_t h);
/* E4M3 without infinities (OCP "E4M3", "e4m3fn"): 1 sign, 4 exponent bits of bias 7, 3 mantissa bits; the largest is
 * 448, all ones behind the sign is NaN. Exact. */
float df_e4m3_to_f32(uint8_t code);

/* ---- quantised activations ------------------------------------------------------------------------- */

/* 32 values of one row: value ~ scale * q. 64 bytes, one cache line. The offsets are what the unsigned weight
 * codes must be corrected by; they start the integer accumulators. */
typedef struct df_actq {
  int8_t q[32];
  float scale;     /* max|x| / 127 */
  float scale_sum; /* scale * (float)sum(q) */
  int32_t off4;    /* -8 * sum(q) */
  int32_t off8;    /* -128 * sum(q) */
  int32_t off6_lo; /* -32 * sum(q[0..15]) */
  int32_t off6_hi; /* -32 * sum(q[16..31]) */
  int32_t pad[2];
} df_actq;

/* A tile of m <= 16 rows is stored block-major: block kb of row c is tile[kb * m + c]. */

/* ---- packed weights -------------------------------------------------------------------------------- */

/* Packed form; 16 outputs interleaved, k in order, one strip = 16 outputs x all k, contiguous. */
typedef enum df_pack {
  DF_PACK_F32,  /* [k][16] float */
  DF_PACK_F16,  /* [k][16] half */
  DF_PACK_BF16, /* [k][16] bfloat16 */
  DF_PACK_F8,   /* E4M3: per 64 k: 16x64 bytes codes, f32 scale[16] */
  DF_PACK_Q8,   /* Q8_0, and Q5_0 expanded: code + 128 unsigned; per 32 k: 8x64 bytes, f16 scale[16] */
  DF_PACK_Q4,   /* Q4_0: per 32 k: 4x64 bytes nibbles, f16 scale[16] */
  DF_PACK_Q4M,  /* Q4_1: as Q4 plus f16 min[16] */
  DF_PACK_Q8M,  /* Q5_1, Q5_K expanded: unsigned byte codes, f32 scale[16], f32 min[16] per 32 k */
  DF_PACK_Q4K,  /* Q4_K: per 256 k f16 d[16], f16 dmin[16]; per 32 k nibbles, u8 scale[16], u8 min[16] */
  DF_PACK_Q6K,  /* Q6_K: per 256 k f16 d[16]; per 32 k low nibbles, high pairs, i8 scale[2][16] */
  DF_PACK_COUNT
} df_pack;

/* A matrix [n outputs][k inputs]. data is owned by whoever allocated it (the model's arena), 64-aligned. */
typedef struct df_weights {
  df_pack pack;
  uint32_t n;         /* outputs; strips = ceil(n / 16), missing outputs are zero rows */
  uint32_t k;         /* inputs, a multiple of 32 (64 for F8, 256 for Q4K and Q6K); any for F32/F16/BF16 */
  size_t strip_bytes; /* bytes from one strip to the next, multiple of 64 */
  uint8_t *data;
} df_weights;

static inline uint32_t df_strips(uint32_t n) { return (n + DF_LANES - 1) / DF_LANES; }
/* True when the activations of this form are df_actq blocks, false when plain float rows. */
static inline bool df_pack_wants_q8(df_pack p) { return p >= DF_PACK_Q8; }

/* Form used for a file type. */
df_pack df_pack_of(df_dtype type);
/* Bytes of one strip for k inputs; false on overflow or an illegal k. */
bool df_pack_strip_bytes(df_pack pack, uint32_t k, size_t *out);
/* Packs strips [s0, s1) of w from the file rows: row r of the file starts at src + r * row_bytes. `row_of`
 * (may be NULL) maps output index to file row, for gathered sub-matrices. Exact: no value changes. */
void df_pack_strips(const df_weights *w, df_dtype type, const void *src, size_t row_bytes, const uint32_t *row_of,
                    uint32_t s0, uint32_t s1);

/* ---- attention --------------------------------------------------------------------------------------- */

typedef enum df_kv_type { DF_KV_F16, DF_KV_F32 } df_kv_type;

/* One KV head, one chunk of up to 64 positions, n_q query vectors of width e (multiple of 16, <= 256).
 * k_pages[i] -> [e][16] elements (lanes = positions), v_pages[i] -> [16][e] elements; page i holds positions
 * 16i..16i+15 of the chunk. Only pages that hold a visible position of some query are touched (the others may be NULL);
 * within V only visible positions are read. */
typedef struct df_attn_chunk {
  const void *const *k_pages; /* [4] */
  const void *const *v_pages; /* [4] */
  const float *const *q;      /* [n_q] query vectors, already rotated */
  const uint64_t *visible;    /* [n_q] bit p set = position p of the chunk takes part */
  float *const *part;         /* [n_q] result: [0] = max, [1] = sum, [16 .. 16+e) = accumulator; 64-aligned */
  float scale;                /* multiplies q.k */
  uint32_t n_q, e;
  /* [4] pages of the chunk that comes next: asked for while this one is worked on, line by line, since they lie where
   * the hardware does not foresee them. Hints only; both NULL = none. */
  const void *const *k_ahead, *const *v_ahead;
} df_attn_chunk;

/* ---- the table ---------------------------------------------------------------------------------------- */

typedef struct df_kernels {
  df_cpu_tier tier;

  /* out[c * ld + (s - s0) * 16 + lane] for strips s0 <= s < s1, rows c < m, 1 <= m <= 16.
   * x: df_actq tile (block-major, see above) when df_pack_wants_q8(pack), else float rows with stride k: x[c*k + i].
   * Quantised forms, per 32-block in k order:  acc = fma(ws * xs, (float)dot, acc) [then acc = fma(wm, xscale_sum, acc)
   * for Q4M, Q8M and (dmin*min negated) Q4K]; ws is the product of the file's scales in float; for Q6K two halves:
   * acc = fma((d*sc0)*xs, (float)dot_lo, acc); acc = fma((d*sc1)*xs, (float)dot_hi, acc). dot includes the offset.
   * Float forms: acc = fma(w[k], x[k], acc), k ascending, acc starting at +0. F8, per block of 64: dot is such a chain
   * of the codes' values, from +0, then acc = fma(scale, dot, acc). Prefetches the next strip. */
  void (*mm[DF_PACK_COUNT])(const df_weights *w, uint32_t s0, uint32_t s1, const void *x, uint32_t m, float *out,
                            size_t ld);

  /* Row r of w (an embedding row) to k floats; exact file values. */
  void (*unpack_row)(const df_weights *w, uint32_t r, float *out);

  /* One row of k floats (multiple of 32) to blocks out[kb * stride]. q = nearest-even(x * (127/max|x|)), pad = 0.
   * max|x| below 2^-119 (its scale would not be a normal number) gives the zero block, scale +0. A block with an
   * infinity or NaN gets q = 0 and scale = scale_sum = NaN, so that the defect stays visible in every product. */
  void (*quantize)(const float *x, uint32_t k, df_actq *out, size_t stride);

  /* out[i] = (x[i] * r) * w[i], r = 1 / sqrt(mean(x^2) + eps); sum of squares: 16 lane chains of fma over i, then
   * tree16, a short last vector is padded with zeros. n >= 1. out may alias x. 1/sqrt is the correctly rounded sqrt and
   * division. */
  void (*rmsnorm)(const float *x, const float *w, uint32_t n, float eps, float *out);

  /* out[i] = silu(g[i]) * u[i]; silu(g) = g / (1 + exp(-g)) with df_exp. */
  void (*silu_mul)(const float *g, const float *u, uint32_t n, float *out);

  /* Split-half rotation in place: (a, b) = (x[i], x[i+h]) -> (fma(a, c, -(b*s)), fma(b, c, a*s)), i < h. */
  void (*rope)(float *x, const float *cos, const float *sin, uint32_t h);

  /* y[i] += x[i]. */
  void (*add)(float *y, const float *x, uint32_t n);

  /* Index of the largest value, lowest index on ties; NaN never wins; n >= 1; 0 when all are NaN. */
  uint32_t (*argmax)(const float *x, uint32_t n);

  /* Sum of df_exp(x[i] - max): 16 lane chains over i, a short last vector is padded with zeros, then tree16. n >= 1. */
  float (*exp_sum)(const float *x, uint32_t n, float max);

  /* K vectors of n consecutive positions (e floats each, e a multiple of 16; k_ld floats from one to the next) into
   * lanes [pos, pos + n) of a K page, V vectors (v_ld) into rows [pos, pos + n) of a V page; pos + n <= 16. Nothing
   * else of the pages is read or written. F16 rounds as df_f32_to_f16. */
  void (*kv_store)(df_kv_type type, const float *k, size_t k_ld, const float *v, size_t v_ld, uint32_t n, uint32_t e,
                   void *k_page, void *v_page, uint32_t pos);

  /* Scores: s[p] = scale * (fma chain over e ascending from +0). m = max over visible, p[i] = df_exp(s[i]-m) for
   * visible, +0 otherwise; sum: (p0+p1)+(p2+p3) by page vectors, then tree16; acc[j] = fma chain over the visible
   * positions, ascending, from +0: a masked position takes no part at all, whatever its K and V hold. NaN scores do not
   * enter m but make the sum NaN. A query with visible == 0 gets m = -inf, sum = 0, acc = 0. Index by df_kv_type. */
  void (*attn_chunk[2])(const df_attn_chunk *c);

  /* Online-softmax merge of n later parts into n earlier ones, all laid out as df_attn_chunk.part, `stride` floats from
   * one to the next: m = max(ma, mb); fa = exp(ma-m), fb = exp(mb-m) (0 when that max is -inf);
   * sum = fma(sa, fa, sb*fb); acc[j] = fma(acc_a[j], fa, acc_b[j]*fb). Equal-op for any caller: flash merges at once,
   * splitkv later. */
  void (*attn_merge)(float *into, const float *part, size_t stride, uint32_t n, uint32_t e);

  /* Merges parts 1 .. n-1 into part 0 one after the other, `stride` floats from one to the next: the bits of n - 1
   * calls of attn_merge. n >= 1. */
  void (*attn_fold)(float *parts, size_t stride, uint32_t n, uint32_t e);

  /* out[j] = acc[j] / sum (0 when sum is 0). */
  void (*attn_finish)(const float *part, uint32_t e, float *out);

  /* rmsnorm then quantize in one pass over the row, the bits of the two calls; n a multiple of 32. tmp (n floats, may
   * be NULL, may alias x) receives what rmsnorm would have written. */
  void (*rmsnorm_quantize)(const float *x, const float *w, uint32_t n, float eps, float *tmp, df_actq *out,
                           size_t stride);

  /* silu_mul then quantize without the float row in between, the bits of the two calls; n a multiple of 32. */
  void (*silu_mul_quantize)(const float *g, const float *u, uint32_t n, df_actq *out, size_t stride);
} df_kernels;

/* exp by our own polynomial, same bits as every vector version (kernels/expf.h): exact 0 below -87.33654, exp(88) above
 * 88, exp(0) == 1, NaN stays NaN; never a subnormal result. */
float df_exp(float x);

/* Table of a tier; tiers that the processor or this build does not have are refused (NULL). DF_TIER_REF always works.
 */
const df_kernels *df_kernels_get(df_cpu_tier tier);

#endif
