/*
 * device/cuda/cuda_port.cuh - what the kernels need from the machine beside plain C++: asynchronous copies, matrix
 * instructions, barriers, clusters, dependent launch. The kernels use nothing else, so that with DF_CUDA_EMULATED the
 * same sources run on the host, thread by thread (tests/cuda/emu).
 *
 * Arithmetic is written with plain operators and fmaf: files are compiled with -fmad=false and nvcc's IEEE defaults
 * (no -use_fast_math), so a / b and sqrtf round to nearest and nothing is contracted or flushed.
 */
#ifndef DF_DEVICE_CUDA_PORT_CUH
#define DF_DEVICE_CUDA_PORT_CUH

#ifdef DF_CUDA_EMULATED
#include <cuda_emu.h>
#else

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <stdint.h>

#define DF_DEV static __device__ __forceinline__
#define DF_ASYNC_ARCH (!defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900)
/* Shared memory of the launch, 128-aligned. */
#define DF_SHARED(name) extern __shared__ __align__(128) uint8_t name[]

/* ---- dependent launch: the grid behind may start; everything of the grids in front is done and visible ---- */

DF_DEV void port_launch_next(void) {
#if DF_ASYNC_ARCH
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

DF_DEV void port_wait_previous(void) {
#if DF_ASYNC_ARCH
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/* ---- copies ---- */

/* 16 bytes to shared memory, past L1; groups complete in order, seen by the issuing thread after port_copy_wait. */
DF_DEV void port_copy16(void *shared, const void *global) {
  const uint32_t at = (uint32_t)__cvta_generic_to_shared(shared);
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(at), "l"(global) : "memory");
}

DF_DEV void port_copy_commit(void) { asm volatile("cp.async.commit_group;" ::: "memory"); }

/* All but the newest N groups of this thread are complete. */
template <int N>
DF_DEV void port_copy_wait(void) {
  asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

/* The line at p on its way into L2. A hint. */
DF_DEV void port_prefetch(const void *p) { asm volatile("prefetch.global.L2 [%0];" ::"l"(p)); }

/* Reads of what the grid in front wrote: past L1. */
DF_DEV float port_load(const float *p) { return __ldcg(p); }
DF_DEV float4 port_load4(const float *p) { return __ldcg((const float4 *)p); }
DF_DEV uint32_t port_load_u32(const void *p) { return __ldcg((const uint32_t *)p); }
DF_DEV uint4 port_load_u4(const void *p) { return __ldcg((const uint4 *)p); }
/* Weights: read once, 8 bytes. */
DF_DEV uint2 port_stream8(const void *p) {
  uint2 v;
  asm volatile("ld.global.nc.L1::no_allocate.v2.u32 {%0, %1}, [%2];" : "=r"(v.x), "=r"(v.y) : "l"(p));
  return v;
}

/* ---- matrix instructions: c += a * b, see the PTX manual for the operands ---- */

DF_DEV void port_mma_bf16(float c[4], const uint4 &a, uint32_t b0, uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b0), "r"(b1));
}

DF_DEV void port_mma_f16(float c[4], const uint4 &a, uint32_t b0, uint32_t b1) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
               : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b0), "r"(b1));
}

/* 16 outputs x 32 k of unsigned bytes by 32 k x 8 columns of signed bytes; exact. */
DF_DEV void port_mma_u8s8_k32(int32_t c[4], const uint32_t a[4], uint32_t b0, uint32_t b1) {
  asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
               : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

DF_DEV void port_mma_u8s8_k16(int32_t c[4], uint32_t a0, uint32_t a1, uint32_t b0) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.s32.u8.s8.s32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
               : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
               : "r"(a0), "r"(a1), "r"(b0));
}

/* Two floats rounded to nearest even, the first in the low half. */
DF_DEV uint32_t port_pack_bf16(float lo, float hi) {
  const __nv_bfloat162 v = __floats2bfloat162_rn(lo, hi);
  return *(const uint32_t *)&v;
}

DF_DEV uint32_t port_pack_f16(float lo, float hi) {
  const __half2 v = __floats2half2_rn(lo, hi);
  return *(const uint32_t *)&v;
}

/* Four E4M3 codes (none of them NaN) as bfloat16, exactly: codes 0 and 1, then 2 and 3. As the bits of a bfloat16 from
 * bit 4 on, a code without its sign is the value times 2^-120. */
DF_DEV uint2 port_e4m3_bf16(uint32_t codes) {
  const uint32_t up = 0x7B807B80; /* 2^120 twice */
  uint2 out;
#pragma unroll
  for (int i = 0; i < 2; i++) {
    const uint32_t pair = __byte_perm(codes, 0, i ? 0x4342 : 0x4140); /* a code in each half */
    const uint32_t raw = (pair << 4 & 0x07F007F0) | (pair << 8 & 0x80008000);
    const __nv_bfloat162 v = __hmul2(*(const __nv_bfloat162 *)&raw, *(const __nv_bfloat162 *)&up);
    (i ? out.y : out.x) = *(const uint32_t *)&v;
  }
  return out;
}

DF_DEV float port_f16_value(uint16_t h) { return __half2float(__ushort_as_half(h)); }
/* Any NaN may come out as any NaN. */
DF_DEV uint16_t port_f16_round(float f) { return __half_as_ushort(__float2half_rn(f)); }
DF_DEV float port_bf16_value(uint16_t h) { return __uint_as_float((uint32_t)h << 16); }
DF_DEV float port_float(uint32_t bits) { return __uint_as_float(bits); }
DF_DEV uint32_t port_bits(float f) { return __float_as_uint(f); }

/* ---- barriers ---- */

DF_DEV void port_block_sync(void) { __syncthreads(); }
DF_DEV void port_warp_sync(void) { __syncwarp(); }
/* True in one lane of a whole warp that calls. The compiler knows that it is one, which saves a loop around copies. */
DF_DEV bool port_elect(void) {
#if DF_ASYNC_ARCH
  uint32_t on;
  asm volatile("{ .reg .pred p; elect.sync _|p, 0xffffffff; selp.b32 %0, 1, 0, p; }" : "=r"(on));
  return on != 0;
#else
  return threadIdx.x % 32 == 0;
#endif
}
/* Barrier `id` (1..15) among n threads; `arrive` does not wait. */
DF_DEV void port_named_sync(uint32_t id, uint32_t n) { asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(n) : "memory"); }
DF_DEV void port_named_arrive(uint32_t id, uint32_t n) {
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(n) : "memory");
}
/* Two values in 8-aligned shared memory that one warp hands to another, exchanged as one atomic word; taking leaves
 * zeros. A barrier has to order the two: the emulation proves that one does. Tools that look for races on a card leave
 * atomics alone. */
DF_DEV void port_handed_put(float *p, float x, float y) {
  asm volatile(
      "{\n"
      ".reg .b64 now, old;\n"
      "mov.b64 now, {%1, %2};\n"
      "atom.relaxed.cta.shared.exch.b64 old, [%0], now;\n"
      "}" ::"r"((uint32_t)__cvta_generic_to_shared(p)),
      "f"(x), "f"(y)
      : "memory");
}
DF_DEV float2 port_handed_take(float *p) {
  float2 v;
  asm volatile(
      "{\n"
      ".reg .b64 now, old;\n"
      "mov.b64 now, 0;\n"
      "atom.relaxed.cta.shared.exch.b64 old, [%2], now;\n"
      "mov.b64 {%0, %1}, old;\n"
      "}"
      : "=f"(v.x), "=f"(v.y)
      : "r"((uint32_t)__cvta_generic_to_shared(p))
      : "memory");
  return v;
}
DF_DEV float port_xor(float v, uint32_t lanes) { return __shfl_xor_sync(0xffffffffu, v, lanes); }
DF_DEV int32_t port_xor(int32_t v, uint32_t lanes) { return __shfl_xor_sync(0xffffffffu, v, lanes); }
DF_DEV uint32_t port_xor(uint32_t v, uint32_t lanes) { return __shfl_xor_sync(0xffffffffu, v, lanes); }
DF_DEV float port_up(float v, uint32_t lanes) { return __shfl_up_sync(0xffffffffu, v, lanes); }
DF_DEV float port_from(float v, uint32_t lane) { return __shfl_sync(0xffffffffu, v, lane); }
DF_DEV uint32_t port_from(uint32_t v, uint32_t lane) { return __shfl_sync(0xffffffffu, v, lane); }
DF_DEV void port_fence(void) { __threadfence(); }
DF_DEV uint32_t port_count(uint32_t *p) { return atomicAdd(p, 1u); }

/* ---- clusters: blocks of one cluster see each other's shared memory ---- */

DF_DEV uint32_t port_cluster_rank(void) {
#if DF_ASYNC_ARCH
  uint32_t r;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(r));
  return r;
#else
  return 0;
#endif
}

DF_DEV void port_cluster_arrive(void) {
#if DF_ASYNC_ARCH
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
#endif
}

DF_DEV void port_cluster_wait(void) {
#if DF_ASYNC_ARCH
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
#endif
}

/* A message counter in shared memory: a phase ends when one thread has said how many bytes it brings (expect) and all
 * of them have arrived. Phases take turns: parity 0, 1, 0, ... */
typedef uint64_t port_mailbox;

DF_DEV void port_mailbox_init(port_mailbox *m) {
#if DF_ASYNC_ARCH
  asm volatile("mbarrier.init.shared.b64 [%0], 1;" ::"r"((uint32_t)__cvta_generic_to_shared(m)) : "memory");
#endif
}

/* Initialised mailboxes seen by the whole cluster, behind its next barrier. */
DF_DEV void port_mailbox_publish(void) {
#if DF_ASYNC_ARCH
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
#endif
}

DF_DEV void port_mailbox_expect(port_mailbox *m, uint32_t bytes) {
#if DF_ASYNC_ARCH
  asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"((uint32_t)__cvta_generic_to_shared(m)),
               "r"(bytes)
               : "memory");
#endif
}

/* Returns when the phase of this parity has ended; what it brought is visible. */
DF_DEV void port_mailbox_wait(port_mailbox *m, uint32_t parity) {
#if DF_ASYNC_ARCH
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "DF_AGAIN_%=:\n"
      "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra DF_AGAIN_%=;\n"
      "}" ::"r"((uint32_t)__cvta_generic_to_shared(m)),
      "r"(parity)
      : "memory");
#endif
}

/* Sends v to where block `rank` has what this block has at p, and counts 4 bytes in its mailbox m. */
DF_DEV void port_mailbox_send(float *p, port_mailbox *m, uint32_t rank, float v) {
#if DF_ASYNC_ARCH
  uint32_t at = (uint32_t)__cvta_generic_to_shared(p), box = (uint32_t)__cvta_generic_to_shared(m);
  asm volatile("mapa.shared::cluster.u32 %0, %0, %1;" : "+r"(at) : "r"(rank));
  asm volatile("mapa.shared::cluster.u32 %0, %0, %1;" : "+r"(box) : "r"(rank));
  asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];" ::"r"(at), "r"(port_bits(v)),
               "r"(box)
               : "memory");
#endif
}

/* The same in two steps, for several words: where they go, then each word, `at` bytes behind p. */
typedef struct port_remote {
  uint32_t p, box;
} port_remote;

DF_DEV port_remote port_remote_of(void *p, port_mailbox *m, uint32_t rank) {
  port_remote r = {(uint32_t)__cvta_generic_to_shared(p), (uint32_t)__cvta_generic_to_shared(m)};
#if DF_ASYNC_ARCH
  asm("mapa.shared::cluster.u32 %0, %0, %1;" : "+r"(r.p) : "r"(rank));
  asm("mapa.shared::cluster.u32 %0, %0, %1;" : "+r"(r.box) : "r"(rank));
#endif
  return r;
}

DF_DEV void port_remote_send(const port_remote &r, uint32_t at, float v) {
#if DF_ASYNC_ARCH
  asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];" ::"r"(r.p + at),
               "r"(port_bits(v)), "r"(r.box)
               : "memory");
#endif
}

DF_DEV void port_remote_send8(const port_remote &r, uint32_t at, uint2 v) {
#if DF_ASYNC_ARCH
  asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.b32 [%0], {%1, %2}, [%3];" ::"r"(r.p + at),
               "r"(v.x), "r"(v.y), "r"(r.box)
               : "memory");
#endif
}

/* The same for what port_mailbox_fetch brings: nothing of another block is looked for. */
DF_DEV void port_mailbox_wait_own(port_mailbox *m, uint32_t parity) {
#if DF_ASYNC_ARCH
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "DF_AGAIN_%=:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra DF_AGAIN_%=;\n"
      "}" ::"r"((uint32_t)__cvta_generic_to_shared(m)),
      "r"(parity)
      : "memory");
#endif
}

/* What tells L2 that a copy's source will not be read again soon. */
DF_DEV uint64_t port_read_once(void) {
  uint64_t v = 0;
#if DF_ASYNC_ARCH
  asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(v));
#endif
  return v;
}

/* The same for what all blocks read. */
DF_DEV uint64_t port_read_again(void) {
  uint64_t v = 0;
#if DF_ASYNC_ARCH
  asm volatile("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(v));
#endif
  return v;
}

/* Between writes to memory and copies of port_mailbox_fetch that read them. */
DF_DEV void port_fence_async(void) {
#if DF_ASYNC_ARCH
  asm volatile("fence.proxy.async;" ::: "memory");
#endif
}

/* `bytes` (a multiple of 16) from 16-aligned memory to shared memory, counted in mailbox m when they have arrived. */
DF_DEV void port_mailbox_fetch(void *shared, const void *global, uint32_t bytes, port_mailbox *m, uint64_t keep) {
#if DF_ASYNC_ARCH
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], %4;" ::
          "r"((uint32_t)__cvta_generic_to_shared(shared)),
      "l"(global), "r"(bytes), "r"((uint32_t)__cvta_generic_to_shared(m)), "l"(keep)
      : "memory");
#endif
}

/* ---- blocks of a grid that all run at once ---- */

/* One more arrival at *p; what this thread wrote or knows of is visible to who sees it there. */
DF_DEV void port_grid_arrive(uint32_t *p) {
  asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(p) : "memory");
}

/* Returns when *p has come to n, which it does by arrivals alone (modulo 2^32). */
DF_DEV void port_grid_wait(const uint32_t *p, uint32_t n) {
  uint32_t v;
  do asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
  while ((int32_t)(v - n) < 0);
}

/* ---- words: a value with a stamp beside it, written and seen as one, so that a reader waits for nothing else ---- */

DF_DEV void port_word_put(uint2 *p, float v, uint32_t stamp) {
  asm volatile("st.relaxed.gpu.global.v2.u32 [%0], {%1, %2};" ::"l"(p), "r"(port_bits(v)), "r"(stamp) : "memory");
}

DF_DEV uint2 port_word(const uint2 *p) {
  uint2 v;
  asm volatile("ld.relaxed.gpu.global.v2.u32 {%0, %1}, [%2];" : "=r"(v.x), "=r"(v.y) : "l"(p) : "memory");
  return v;
}

/* Two neighbours. */
DF_DEV uint4 port_words(const uint2 *p) {
  uint4 v;
  asm volatile("ld.relaxed.gpu.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(p)
               : "memory");
  return v;
}

DF_DEV void port_words_put(uint2 *p, float v, float w, uint32_t stamp) {
  asm volatile("st.relaxed.gpu.global.v4.u32 [%0], {%1, %3, %2, %3};" ::"l"(p), "r"(port_bits(v)), "r"(port_bits(w)),
               "r"(stamp)
               : "memory");
}

/* Between looks at words that are not there yet. */
DF_DEV void port_look_again(void) {}

#endif
#endif
