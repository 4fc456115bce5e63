/*
 * tests/cuda/cuda_rig.h - memory that exists twice, on the host and on the card, and ops that run on both.
 *
 * A test makes blocks, fills their host side, and runs an op: the CPU executor (tier ref) works on the host side, the
 * CUDA launchers on copies made just before. Then all blocks are compared from end to end, so a stray write shows like
 * a wrong result. Device memory has canaries around every block.
 *
 * Threads: one. A failed check is counted and printed; nothing stops.
 */
#ifndef DF_TESTS_CUDA_RIG_H
#define DF_TESTS_CUDA_RIG_H

#include "base/pool.h"
#include "device/cuda/cuda_kernels.h"

enum { RIG_BLOCKS = 192 };

typedef enum rig_kind {
  RIG_RAW,
  RIG_F32, /* NaN equals NaN, here and in RIG_F16 */
  RIG_F16,
  RIG_SKIP /* may differ: structs with addresses, intermediate results */
} rig_kind;

typedef struct rig_block {
  uint8_t *host, *device;
  size_t bytes;
  rig_kind kind;
  const char *name;
} rig_block;

typedef struct rig {
  rig_block block[RIG_BLOCKS];
  uint32_t n_blocks;
  df_weights host_w[48], device_w[48]; /* pairs */
  uint32_t n_w;
  uint32_t passed, failed, errors; /* cases; wrong calls */
  uint32_t launches;               /* of the last list */
  bool quick;
  uint32_t part, parts, turn; /* of the slow groups, this part alone runs: 1 to parts; programs so far */
  bool whole;                 /* rig_run_device makes one kernel of a list that fits */
  uint64_t rng;
  df_cuda_card card;
  df_cuda_env env;
  struct df_cpu *cpu;
  df_pool *pool;
} rig;

/* False when there is no card: `why` is one line. */
bool rig_open(rig *r, const char **why);
void rig_close(rig *r);

/* A block of bytes, host side zero. Valid until rig_clear. */
void *rig_new(rig *r, size_t bytes, rig_kind kind, const char *name);
float *rig_floats(rig *r, size_t n, const char *name);
/* Random floats: fill 0 uniform, 1 wide, 2 with zeros, 3 with infinities and NaN, 4 tiny, 5 large. */
void rig_fill(rig *r, float *x, size_t n, uint32_t fill);
uint32_t rig_below(rig *r, uint32_t n);
/* Weights of a file type with random contents, in blocks of their own; BF16 and F16 in fragment order on the device. */
const df_weights *rig_weights(rig *r, df_dtype type, uint32_t n, uint32_t k);
void rig_clear(rig *r);

/* The device's twin of a host address; NULL stays NULL. */
void *rig_at(rig *r, const void *host);
/* Copies all blocks to the device. */
void rig_upload(rig *r);
/* Compares device blocks with the host's; one case passed or failed, named by the format. */
void rig_compare(rig *r, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Is the next program of this part? */
bool rig_mine(rig *r);
/* One more passed or failed case. */
void rig_case(rig *r, bool ok, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* Reads back a device twin. */
void rig_fetch(rig *r, const void *host, size_t bytes, void *out);
/* Launch codes and synchronisation; counts and prints what is not 0. */
void rig_ok(rig *r, int code, const char *what);
void rig_sync(rig *r, const char *what);

/* Device copies of op structs. */
df_op_embed rig_embed(rig *r, const df_op_embed *a);
df_op_norm rig_norm(rig *r, const df_op_norm *a);
df_op_quantize rig_quantize(rig *r, const df_op_quantize *a);
df_op_linear rig_linear(rig *r, const df_op_linear *a);
df_op_ffn_up rig_ffn_up(rig *r, const df_op_ffn_up *a);
df_op_rope_kv rig_rope_kv(rig *r, const df_op_rope_kv *a);
df_op_tap rig_tap(rig *r, const df_op_tap *a);
df_op_argmax rig_argmax(rig *r, const df_op_argmax *a);
df_op_accept rig_accept(rig *r, const df_op_accept *a);
/* The batch and mask on the device are copies with device addresses, made anew at every call. */
df_op_attn rig_attn(rig *r, const df_op_attn *a, df_mask_buffer *mask);

/* Runs ops on both sides: recorded host ops on the CPU, their twins through df_cuda_launch. bounds: of the program. */
typedef struct rig_list {
  df_op op[64];
  union {
    df_op_embed embed;
    df_op_norm norm;
    df_op_quantize quantize;
    df_op_linear linear;
    df_op_ffn_up ffn_up;
    df_op_rope_kv rope_kv;
    df_op_tap tap;
    df_op_argmax argmax;
    df_op_accept accept;
    df_op_attn attn;
  } host[64], device[64];
  df_mask_buffer mask[64];
  uint32_t n;
} rig_list;

void rig_add(rig_list *l, df_op_kind kind, const void *args);
/* Uploads, runs the CPU executor on the host side. */
void rig_run_host(rig *r, rig_list *l, uint32_t max_rows, uint32_t max_seqs);
/* Uploads and runs on the device; one_by_one: single launchers instead of df_cuda_launch. */
void rig_run_device(rig *r, rig_list *l, uint32_t max_rows, uint32_t max_seqs, bool one_by_one);
/* Device first, then host, then the comparison. */
void rig_both(rig *r, rig_list *l, uint32_t max_rows, uint32_t max_seqs, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));

/* Memory of the card, by cudart or the emulation. Codes as cudaError_t. */
int dev_open(const char **why);
int dev_alloc(size_t bytes, void **out);
void dev_free(void *p);
int dev_put(void *device, const void *host, size_t bytes);
int dev_get(void *host, const void *device, size_t bytes);
int dev_sync(void);
void *dev_stream(void);

/* Does the device under the tests show what they look for? */
void test_device(rig *r);

/* Groups of cases. */
void test_rows(rig *r);
void test_products(rig *r);
void test_chains(rig *r);
void test_float_products(rig *r);
void test_attention(rig *r);
void test_programs(rig *r);
void test_passes(rig *r);
void test_float_passes(rig *r);

#endif
