/*
 * device/cuda/cuda_kernels.h - the CUDA kernels behind C launchers. No CUDA header is needed to include this file.
 *
 * Addresses: launchers take the op structs of device/program.h with device addresses in every pointer that a kernel
 * follows (x, y, bias, pos, K/V, n_rows, batch, mask, ...). Two exceptions, read on the host while launching: the
 * df_weights that ops point to are host structs whose `data` is a device address, and the op structs themselves. The
 * mirrored df_batch and df_mask_buffer hold device addresses in their own pointer fields. Live counts (n_rows, n_seqs,
 * q_start, kv_len) are read on the device at run time; grids come from env->max_rows and max_seqs.
 *
 * Weights on the device: packs BF16 and F16 in fragment order (df_cuda_repack), every other pack byte for byte as
 * kernels/layout.h has it. 64-aligned, all activations too.
 *
 * Numerics: quantised and F32 packs, norm, quantise, rotation, SwiGLU, attention, argmax and embedding give the bits of
 * the ref tier. BF16 and F16 products have an order of their own (fragment.h) that depends on the matrix's k alone:
 * activations are rounded to the weights' type, sums are f32, and a row's bits do not depend on the other rows.
 *
 * Order: everything goes to env->stream. With env->overlap launches carry the attribute for programmatic dependent
 * launch: a kernel may start before the one in front of it in the stream has ended, touches nothing but weights, the
 * batch mirror and rope tables until then, and waits for the whole of it before anything else. Batch mirror, weights
 * and tables must therefore be written by copies (or other work without that attribute) in front of the first launch of
 * a program, never by a kernel of the program.
 *
 * Threads: a launcher may be called from one thread at a time per stream. Nothing is allocated here.
 */
#ifndef DF_DEVICE_CUDA_KERNELS_H
#define DF_DEVICE_CUDA_KERNELS_H

#include "device/program.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The card that is current, as the launchers want to know it. */
typedef struct df_cuda_card {
  char name[64];
  uint32_t major, minor; /* compute capability */
  uint32_t n_sm;
  uint32_t
      clusters[3]; /* clusters of 1, 2 and 4 blocks that the card holds at once, one block a multiprocessor; 0: none */
  size_t shared_bytes; /* most shared memory of one block */
  size_t l2_bytes;
  size_t memory_bytes, memory_free;
} df_cuda_card;

/* A program as one kernel: what its list in device memory takes, and where it is. */
typedef struct df_cuda_list {
  void *memory; /* on the card, 256-aligned, `bytes` of it as df_cuda_list_fill wrote them; the kernel counts in it */
  size_t bytes, shared;
  size_t packed_at;
  uint32_t n_stages, n_entries, slots, slot_tiles, cluster, cap, queries, attn_at, kept_at;
  uint32_t quant_slot, quant_tries; /* bytes, 0: the weights are BF16 or F16; how often such slots were made smaller */
  bool f16;
} df_cuda_list;

/* What launchers need beside the op. scratch: 256-aligned device memory of at least df_cuda_scratch_bytes, its first
 * DF_CUDA_COUNTER_BYTES zeroed once before the first launch (kernels leave them zero); private to the stream. */
typedef struct df_cuda_env {
  const df_cuda_card *card;
  void *stream; /* cudaStream_t; may be capturing */
  uint32_t max_rows, max_seqs;
  void *scratch;
  size_t scratch_bytes;
  bool overlap;             /* programmatic dependent launch (compute capability 9.0 and later, else ignored) */
  const df_cuda_list *list; /* of all the ops that are launched but ACCEPT; NULL: they are launched one by one */
} df_cuda_env;

enum { DF_CUDA_COUNTER_BYTES = 256 << 10 };

/* Launchers and queries return 0 or a cudaError_t; the text is static. */
const char *df_cuda_error_name(int code);
const char *df_cuda_error_text(int code);

/* Fills card for the current device and raises the kernels' shared-memory limits there. Call once per device, in the
 * thread that made it current. cudaErrorNoKernelImageForDevice (209) when nothing built fits the card. */
int df_cuda_kernels_init(df_cuda_card *card);
#ifdef DF_FAULT_INJECTION
/* A kernel that fails: whatever is waited for behind it reports an error, and the card is lost to this process. */
int df_cuda_trap(void *stream);
#endif
/* Architectures this build holds, "sm_90a compute_90"; static. */
const char *df_cuda_built_archs(void);

/* ---- weights ---- */

/* Bytes of w on the device: those of the strips, or of the fragments for BF16 and F16. */
size_t df_cuda_weights_bytes(const df_weights *w);
/* True when the device form of the pack is not the host form. */
bool df_cuda_needs_repack(df_pack pack);
/* Writes the fragments of strips [s0, s1) of a BF16 or F16 matrix (w->data: host strips) to dst, host memory for those
 * strips alone. Exact. Several threads may convert different strips. */
void df_cuda_repack(const df_weights *w, uint32_t s0, uint32_t s1, void *dst);
/* Bytes of one strip of fragments. */
size_t df_cuda_fragment_strip_bytes(uint32_t k);

/* ---- programs ---- */

/* Scratch that launching these ops needs, the counters included. */
size_t df_cuda_scratch_bytes(const df_op *ops, uint32_t n, uint32_t max_rows, uint32_t max_seqs);

/* Bytes of the list by which these ops, all of a program but ACCEPT at its end, run as one kernel, and the rest of *out
 * but memory; 0 when they cannot. One launch at a time may use a list. Copies of it must be over before the first
 * launch. */
size_t df_cuda_list_plan(const df_cuda_env *env, const df_op *ops, uint32_t n, df_cuda_list *out);
/* Writes the list, l->bytes, to host memory. */
void df_cuda_list_fill(const df_cuda_env *env, const df_op *ops, uint32_t n, const df_cuda_list *l, void *host);

/* Launches ops[0], or ops[0] and some that follow it as one kernel; *taken says how many. The list goes on to n, so
 * that weights of later ops can be asked for early. ops hold device addresses as above. Memory afterwards is as if the
 * ops had run one by one, except that a rotation fused into attention leaves q and k as they were and writes K/V only.
 */
int df_cuda_launch(const df_cuda_env *env, const df_op *ops, uint32_t n, uint32_t *taken);

/* One op each. RECURRENT has none. */
int df_cuda_embed(const df_cuda_env *env, const df_op_embed *a);
int df_cuda_norm(const df_cuda_env *env, const df_op_norm *a);
int df_cuda_quantize(const df_cuda_env *env, const df_op_quantize *a);
int df_cuda_linear(const df_cuda_env *env, const df_op_linear *a);
int df_cuda_ffn_up(const df_cuda_env *env, const df_op_ffn_up *a);
int df_cuda_rope_kv(const df_cuda_env *env, const df_op_rope_kv *a);
int df_cuda_tap(const df_cuda_env *env, const df_op_tap *a);
int df_cuda_argmax(const df_cuda_env *env, const df_op_argmax *a);
/* token, drafted and accepted may be pinned memory of the host. */
int df_cuda_accept(const df_cuda_env *env, const df_op_accept *a);

/* Attention over token-major K/V (kv.token_major must be set). page_size: 1 when the page table lists slots, 16 when it
 * lists 16-slot blocks, as kv.token_major and the table of the batch have it; see page_slots. NAIVE and TILE: whole op.
 * SPLIT writes a->parts, MERGE joins them. When a TILE op carries parts (max_chunks per tile, layout of SPLIT) long
 * contexts of few sequences are spread over the card; parts may be NULL. */
int df_cuda_attn(const df_cuda_env *env, df_op_kind kind, const df_op_attn *a);
/* Bytes of a->parts for this op (all fields but parts set), and for how many sequences it pays at all: with more live
 * tiles than this the card is busy without it. */
size_t df_cuda_attn_parts_bytes(const df_op_attn *a, uint32_t max_seqs);

#ifdef __cplusplus
}
#endif

#endif
