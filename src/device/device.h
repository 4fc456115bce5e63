/*
 * device/device.h - where programs run: the processor itself, or a card with a memory of its own.
 *
 * Ops carry host addresses. On a device that is not the host they are names: every block that ops touch is mapped
 * first, the device keeps a mirror of it, and a program's addresses are translated before it runs (device/lower.h).
 * So model code is the same for all devices. What the host may do with a block afterwards depends on its kind.
 *
 * Ownership: a device borrows the memory that is mapped; unmap before it is freed (freeing the device unmaps all).
 * Threads:   one owner, the thread that runs passes. Blocks are mapped and unmapped between runs.
 */
#ifndef DF_DEVICE_DEVICE_H
#define DF_DEVICE_DEVICE_H

#include "base/pool.h"
#include "device/program.h"

typedef struct df_device df_device;

typedef enum df_mem_kind {
  DF_MEM_CONST,   /* written by the host before it is mapped, afterwards only together with put */
  DF_MEM_WEIGHTS, /* as CONST, and nobody on the host touches it any more: a device may give the host's pages back */
  DF_MEM_SCRATCH, /* belongs to the ops, zero at first. Elsewhere than on the host the range is an address without
                     contents: the host may read what it fetched, until a program that refers to the block runs */
  DF_MEM_INPUT,   /* the host writes it between runs; a program that refers to it sees what is there when it starts */
  DF_MEM_BATCH,   /* an INPUT that is one df_batch: its pointers are translated too, and what they point to is input */
  DF_MEM_OUTPUT,  /* small: ops write it, and after the run of a program that refers to it the host may read it */
  DF_MEM_KINDS
} df_mem_kind;

/* Facts for people. */
typedef struct df_device_info {
  char name[24];                      /* "cpu", "cuda:0" */
  char card[96];                      /* of a card: its name, else "" */
  uint32_t major, minor;              /* compute capability */
  uint64_t memory_total, memory_free; /* of the card now, bytes */
  uint32_t driver, runtime;           /* versions: 1000 * major + 10 * minor */
  uint64_t mapped[DF_MEM_KINDS];      /* bytes of the mirrors, 0 on the host */
  uint64_t runs, waits, waited_ns;    /* passes so far, and how often and how long callers waited; 0 on the host */
} df_device_info;

typedef struct df_device_ops {
  /* base..base + bytes becomes known. SCRATCH and WEIGHTS come from df_pages_alloc and begin on a page. `what` is for
   * messages, static. MEMORY with numbers when the device has no room for it, INTERNAL when it overlaps another. */
  df_status (*map)(df_device *d, void *base, size_t bytes, df_mem_kind kind, const char *what, df_error *err);
  /* The same for a block of weights. w[n] are the matrices inside (all of them; vectors of floats may lie between):
   * a device may keep them in another order. */
  df_status (*map_weights)(df_device *d, void *block, size_t bytes, const df_weights *w, size_t n, const char *what,
                           df_error *err);
  void (*unmap)(df_device *d, void *base); /* one that is not mapped is fine */
  /* Would a block of this size find room? MEMORY with numbers when not. Asked before anything is read from a file. */
  df_status (*fits)(df_device *d, uint64_t bytes, const char *what, df_error *err);
  /* A program was emitted and will run. recorded: many times, so that work done now pays. Errors: INTERNAL for an
   * address that no mapped block holds, UNSUPPORTED for an op that this device lacks, MEMORY. */
  df_status (*prepare)(df_device *d, df_program *p, bool recorded, df_error *err);
  /* Runs a prepared program. Outputs are there when it returns; other work may still go on. A failure is the run's;
   * a device that is lost fails every later run too. */
  df_status (*run)(df_device *d, df_program *p, df_error *err);
  /* Brings a range of one SCRATCH block to the same host addresses, behind all runs so far. */
  df_status (*fetch)(df_device *d, const void *from, size_t bytes, df_error *err);
  /* Takes over what the host wrote to a range of one CONST block. */
  df_status (*put)(df_device *d, const void *from, size_t bytes, df_error *err);
  /* Returns when all runs are over and nothing touches a program's memory any more. */
  void (*quiesce)(df_device *d);
  void (*info)(const df_device *d, df_device_info *out);
  void (*free)(df_device *d);
} df_device_ops;

/* Which attention leaves a device has: a column of the registry. */
typedef enum df_leaf_set {
  DF_LEAVES_HOST,
  DF_LEAVES_CUDA,
  DF_LEAVES_CUDA_THIRD, /* with the kernels of device/cuda/third */
  DF_LEAVES_COUNT
} df_leaf_set;

/* First member of every device. */
struct df_device {
  const df_device_ops *ops;
  bool is_host;     /* ops use the host's memory itself: blocks need no mapping to be read */
  bool own_floats;  /* products with F16 and BF16 weights have bits of their own here, not the processor's */
  bool token_major; /* K and V of a token lie together whatever the page size (df_kv_view) */
  df_leaf_set leaves;
  uint32_t n_workers;       /* among which ops are split */
  uint32_t argmax_segments; /* into which a row of logits is best cut */
};

/* Opens a device by name: "cpu" (or NULL), "cuda", "cuda:N", "auto" (a card when there is one that works, else cpu), or
 * one that df_device_provide was told of. pool and kernels are borrowed. Errors: ARGUMENT (no such name), UNSUPPORTED
 * (this build or machine does not have it), MEMORY; each with what to do about it. */
df_status df_device_open(const char *name, df_pool *pool, const df_kernels *kernels, df_device **out,
                         df_error *err) DF_CHECK;
/* What df_device_open would say of the name, without opening anything but the driver. *leaves (may be NULL): which
 * leaves it has; set on success. */
df_status df_device_check(const char *name, df_leaf_set *leaves, df_error *err) DF_CHECK;

/* What the cards of this build have. */
df_leaf_set df_device_card_leaves(void);

/* Makes a further device known by name, for tests. Not while other threads open devices. */
typedef df_status (*df_device_create_fn)(df_pool *pool, const df_kernels *kernels, df_device **out, df_error *err);
void df_device_provide(const char *name, df_device_create_fn create);

static inline void df_device_free(df_device *d) {
  if (d) d->ops->free(d);
}

/* The calls on memory, where NULL stands for the host. */
static inline df_status df_device_map(df_device *d, void *base, size_t bytes, df_mem_kind kind, const char *what,
                                      df_error *err) {
  return d ? d->ops->map(d, base, bytes, kind, what, err) : DF_OK;
}
static inline void df_device_unmap(df_device *d, void *base) {
  if (d && base) d->ops->unmap(d, base);
}
static inline bool df_device_is_host(const df_device *d) { return !d || d->is_host; }

/* A batch: the struct, which must not move any more, and its arrays. */
df_status df_device_map_batch(df_device *d, df_batch *b, df_error *err) DF_CHECK;
void df_device_unmap_batch(df_device *d, df_batch *b);

#endif
