/*
 * tests/cuda/emu/cuda_emu.h - the kernels of src/device/cuda on the host: every CUDA thread is a fiber, all fibers of a
 * cluster take turns on one thread. What device/cuda/cuda_port.cuh offers, in plain C++.
 *
 * Made to find faults: a copy to shared memory happens only when its group is waited for, shared memory starts as
 * garbage, fibers run in an order that changes from switch to switch, and a collective that not all threads reach stops
 * the program with its name. Sums of a matrix instruction are rounded once, from double.
 */
#ifndef DF_TESTS_CUDA_EMU_H
#define DF_TESTS_CUDA_EMU_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <functional>

struct uint2 {
  uint32_t x, y;
};
struct uint4 {
  uint32_t x, y, z, w;
};
struct float2 {
  float x, y;
};
struct float4 {
  float x, y, z, w;
};
struct dim3 {
  uint32_t x, y, z;
  dim3(uint32_t a = 1, uint32_t b = 1, uint32_t c = 1) : x(a), y(b), z(c) {}
};
static inline float4 make_float4(float a, float b, float c, float d) { return {a, b, c, d}; }
static inline uint4 make_uint4(uint32_t a, uint32_t b, uint32_t c, uint32_t d) { return {a, b, c, d}; }
static inline uint2 make_uint2(uint32_t a, uint32_t b) { return {a, b}; }

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __grid_constant__
#define __launch_bounds__(...)
#define __CUDACC_EMU__ 1
#define DF_DEV static inline

/* The running fiber. */
struct emu_here {
  dim3 thread, block, block_dim, grid_dim;
  uint32_t rank;   /* in the cluster */
  uint8_t *shared; /* of its block */
};
extern emu_here *emu_cur;
#define threadIdx (emu_cur->thread)
#define blockIdx (emu_cur->block)
#define blockDim (emu_cur->block_dim)
#define gridDim (emu_cur->grid_dim)
#define DF_SHARED(name) uint8_t *const name = emu_cur->shared

/* Runs body as every thread of the grid, `together` blocks at once, a multiple of the cluster. */
void emu_run(dim3 grid, uint32_t block, size_t shared_bytes, uint32_t together, uint32_t cluster,
             const std::function<void()> &body);

/* Exchange among the 32 lanes of the warp: every lane gives `bytes` and sees all that were given, [32][bytes]. */
const void *emu_warp(const char *what, const void *mine, size_t bytes);
void emu_give_turn(void);
void emu_die(const char *text);
void emu_block_sync(void);
void emu_named(uint32_t id, uint32_t n, bool wait);
/* Words of shared memory that threads hand to each other: every access is checked to be ordered by barriers, whatever
 * this run's order was (emu_order.h). A hazard stops the program, or is counted where a test allows it. */
float emu_watched_get(const float *p);
void emu_watched_put(float *p, float v);
extern uint64_t emu_hazards;
extern bool emu_hazards_allowed;
void emu_cluster_arrive(void);
void emu_cluster_wait(void);
void emu_copy(void *shared, const void *global, size_t bytes);
void emu_copy_commit(void);
void emu_copy_wait(uint32_t newest);
uint8_t *emu_shared_of(uint32_t rank);
void emu_mma(float c[4], const uint32_t a[4], uint32_t b0, uint32_t b1, float (*value)(uint16_t));
void emu_mma_u8s8(int32_t c[4], const uint32_t *a, uint32_t n_a, uint32_t b0, uint32_t b1);

extern "C" float emu_f16_value(uint16_t h);
extern "C" uint16_t emu_f16_round(float f);
extern "C" float emu_bf16_value(uint16_t h);

DF_DEV void port_launch_next(void) {}
DF_DEV void port_wait_previous(void) {}
DF_DEV void port_copy16(void *shared, const void *global) { emu_copy(shared, global, 16); }
DF_DEV void port_copy_commit(void) { emu_copy_commit(); }
template <int N>
DF_DEV void port_copy_wait(void) {
  emu_copy_wait(N);
}
DF_DEV void port_prefetch(const void *) {}
template <typename T>
DF_DEV T emu_load(const void *p) {
  T v;
  memcpy(&v, p, sizeof v);
  return v;
}
DF_DEV float port_load(const float *p) { return emu_load<float>(p); }
DF_DEV float4 port_load4(const float *p) { return emu_load<float4>(p); }
DF_DEV uint32_t port_load_u32(const void *p) { return emu_load<uint32_t>(p); }
DF_DEV uint4 port_load_u4(const void *p) { return emu_load<uint4>(p); }
DF_DEV uint2 port_stream8(const void *p) { return emu_load<uint2>(p); }

DF_DEV void port_mma_bf16(float c[4], const uint4 &a, uint32_t b0, uint32_t b1) {
  const uint32_t r[4] = {a.x, a.y, a.z, a.w};
  emu_mma(c, r, b0, b1, emu_bf16_value);
}
DF_DEV void port_mma_f16(float c[4], const uint4 &a, uint32_t b0, uint32_t b1) {
  const uint32_t r[4] = {a.x, a.y, a.z, a.w};
  emu_mma(c, r, b0, b1, emu_f16_value);
}
DF_DEV void port_mma_u8s8_k32(int32_t c[4], const uint32_t a[4], uint32_t b0, uint32_t b1) {
  emu_mma_u8s8(c, a, 4, b0, b1);
}
DF_DEV void port_mma_u8s8_k16(int32_t c[4], uint32_t a0, uint32_t a1, uint32_t b0) {
  const uint32_t a[2] = {a0, a1};
  emu_mma_u8s8(c, a, 2, b0, 0);
}

DF_DEV float port_float(uint32_t bits) { return emu_load<float>(&bits); }
DF_DEV uint32_t port_bits(float f) { return emu_load<uint32_t>(&f); }
static inline uint16_t emu_bf16(float f) {
  const uint32_t u = port_bits(f);
  if (f != f) return 0x7FFF;
  return (uint16_t)((u + 0x7FFF + (u >> 16 & 1)) >> 16);
}
DF_DEV uint32_t port_pack_bf16(float lo, float hi) { return emu_bf16(lo) | (uint32_t)emu_bf16(hi) << 16; }
DF_DEV uint32_t port_pack_f16(float lo, float hi) { return emu_f16_round(lo) | (uint32_t)emu_f16_round(hi) << 16; }
DF_DEV uint2 port_e4m3_bf16(uint32_t codes) {
  uint32_t h[4];
  for (uint32_t i = 0; i < 4; i++) {
    const uint32_t c = codes >> 8 * i & 255;
    h[i] = emu_bf16(port_float((c & 0x80) << 24 | (c & 0x7F) << 20) * 0x1p120f);
  }
  return make_uint2(h[0] | h[1] << 16, h[2] | h[3] << 16);
}
DF_DEV float port_f16_value(uint16_t h) { return emu_f16_value(h); }
DF_DEV uint16_t port_f16_round(float f) { return emu_f16_round(f); }
DF_DEV float port_bf16_value(uint16_t h) { return emu_bf16_value(h); }

DF_DEV void port_block_sync(void) { emu_block_sync(); }
DF_DEV void port_warp_sync(void) { (void)emu_warp("warp sync", "", 1); }
DF_DEV bool port_elect(void) { return emu_warp("elect", "", 1) && threadIdx.x % 32 == 0; }
DF_DEV void port_named_sync(uint32_t id, uint32_t n) { emu_named(id, n, true); }
DF_DEV void port_named_arrive(uint32_t id, uint32_t n) { emu_named(id, n, false); }
DF_DEV void port_handed_put(float *p, float x, float y) {
  if ((uintptr_t)p % 8) emu_die("pair of words at an unaligned address");
  emu_watched_put(p, x);
  emu_watched_put(p + 1, y);
}
DF_DEV float2 port_handed_take(float *p) {
  const float2 v = {emu_watched_get(p), emu_watched_get(p + 1)};
  port_handed_put(p, 0, 0);
  return v;
}
template <typename T>
DF_DEV T emu_shuffle(T v, uint32_t from) {
  T out;
  memcpy(&out, (const uint8_t *)emu_warp("shuffle", &v, sizeof v) + (from & 31) * sizeof v, sizeof v);
  return out;
}
DF_DEV uint32_t emu_lane(void) { return threadIdx.x & 31; }
DF_DEV float port_xor(float v, uint32_t lanes) { return emu_shuffle(v, emu_lane() ^ lanes); }
DF_DEV int32_t port_xor(int32_t v, uint32_t lanes) { return emu_shuffle(v, emu_lane() ^ lanes); }
DF_DEV uint32_t port_xor(uint32_t v, uint32_t lanes) { return emu_shuffle(v, emu_lane() ^ lanes); }
DF_DEV float port_up(float v, uint32_t n) { return emu_shuffle(v, emu_lane() < n ? emu_lane() : emu_lane() - n); }
DF_DEV float port_from(float v, uint32_t lane) { return emu_shuffle(v, lane); }
DF_DEV uint32_t port_from(uint32_t v, uint32_t lane) { return emu_shuffle(v, lane); }
DF_DEV void port_fence(void) {}
DF_DEV uint32_t port_count(uint32_t *p) { return (*p)++; }

DF_DEV uint32_t port_cluster_rank(void) { return emu_cur->rank; }
DF_DEV void port_cluster_arrive(void) { emu_cluster_arrive(); }
DF_DEV void port_cluster_wait(void) { emu_cluster_wait(); }

struct port_mailbox {
  int32_t bytes;
  uint16_t open, phase; /* the expectation is still to come; phases ended */
};
DF_DEV void emu_mailbox_settle(port_mailbox *m) {
  if (m->open || m->bytes != 0) return;
  m->open = 1;
  m->phase++;
}
DF_DEV void port_mailbox_init(port_mailbox *m) { *m = {0, 1, 0}; }
DF_DEV void port_mailbox_publish(void) {}
DF_DEV void port_mailbox_expect(port_mailbox *m, uint32_t bytes) {
  m->bytes += (int32_t)bytes;
  m->open = 0;
  emu_mailbox_settle(m);
}
DF_DEV void port_mailbox_wait(port_mailbox *m, uint32_t parity) {
  while ((m->phase & 1u) == parity) emu_give_turn();
}
struct port_remote {
  uint8_t *p;
  port_mailbox *box;
};
DF_DEV port_remote port_remote_of(void *p, port_mailbox *m, uint32_t rank) {
  uint8_t *const base = emu_shared_of(rank);
  return {base + ((uint8_t *)p - emu_cur->shared), (port_mailbox *)(base + ((uint8_t *)m - emu_cur->shared))};
}
template <typename T>
DF_DEV void emu_remote_send(const port_remote &r, uint32_t at, T v) {
  memcpy(r.p + at, &v, sizeof v);
  r.box->bytes -= (int32_t)sizeof v;
  emu_mailbox_settle(r.box);
}
DF_DEV void port_remote_send(const port_remote &r, uint32_t at, float v) { emu_remote_send(r, at, v); }
DF_DEV void port_remote_send8(const port_remote &r, uint32_t at, uint2 v) { emu_remote_send(r, at, v); }
DF_DEV void port_mailbox_send(float *p, port_mailbox *m, uint32_t rank, float v) {
  port_remote_send(port_remote_of(p, m, rank), 0, v);
}
DF_DEV void port_mailbox_wait_own(port_mailbox *m, uint32_t parity) { port_mailbox_wait(m, parity); }
DF_DEV uint64_t port_read_once(void) { return 0; }
DF_DEV uint64_t port_read_again(void) { return 0; }
DF_DEV void port_fence_async(void) {}
DF_DEV void port_mailbox_fetch(void *shared, const void *global, uint32_t bytes, port_mailbox *m, uint64_t) {
  if (((uintptr_t)shared | (uintptr_t)global | bytes) % 16) emu_die("bulk copy of unaligned memory");
  memcpy(shared, global, bytes);
  m->bytes -= (int32_t)bytes;
  emu_mailbox_settle(m);
}
DF_DEV void port_word_put(uint2 *p, float v, uint32_t stamp) { *p = make_uint2(port_bits(v), stamp); }
DF_DEV uint2 port_word(const uint2 *p) { return emu_load<uint2>(p); }
DF_DEV uint4 port_words(const uint2 *p) {
  if ((uintptr_t)p % 16) emu_die("pair of words at an unaligned address");
  return emu_load<uint4>(p);
}
DF_DEV void port_words_put(uint2 *p, float v, float w, uint32_t stamp) {
  if ((uintptr_t)p % 16) emu_die("pair of words at an unaligned address");
  port_word_put(p, v, stamp);
  port_word_put(p + 1, w, stamp);
}
DF_DEV void port_look_again(void) { emu_give_turn(); }
DF_DEV void port_grid_arrive(uint32_t *p) { ++*p; }
DF_DEV void port_grid_wait(const uint32_t *p, uint32_t n) {
  while ((int32_t)(*(const volatile uint32_t *)p - n) < 0) emu_give_turn();
}

#endif
