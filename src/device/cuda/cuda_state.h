/*
 * device/cuda/cuda_state.h - the insides of a CUDA device, shared by its C files. Private to device/cuda.
 *
 * Everything goes to one stream. Inputs of passes (df_batch structs and their arrays) lie in inboxes: device memory
 * with pinned memory of the same layout, so that what a program reads of the host goes over in one copy.
 *
 * Threads: one owner; any thread may be it, so every call makes the card current first (cuda_enter).
 */
#ifndef DF_DEVICE_CUDA_STATE_H
#define DF_DEVICE_CUDA_STATE_H

#include <cuda_runtime_api.h>

#include "device/cuda/cuda_device.h"
#include "device/cuda/cuda_kernels.h"
#include "device/lower.h"

enum {
  CUDA_STAGE_BYTES = 8 << 20,  /* of each staging buffer: large enough for full speed, small enough to pin */
  CUDA_INBOX_BYTES = 1 << 20,  /* of an inbox, unless one block needs more */
  CUDA_SPARE_BYTES = 256 << 20 /* of the card's memory that weights leave: recorded programs, scratch, the driver */
};

/* Device memory with a pinned twin, handed out from the front; empty again when all that was handed out came back. */
typedef struct cuda_inbox {
  uint8_t *there, *pinned;
  size_t bytes, used;
  uint32_t live;
  struct cuda_inbox *next;
} cuda_inbox;

/* What one call of map made; mirror.own. */
typedef struct cuda_block {
  void *memory;      /* to free; NULL when it lies in an inbox or on the host */
  size_t host_bytes; /* of the whole block: weights may be several mirrors */
  cuda_inbox *inbox;
  uint8_t *pinned; /* INPUT, BATCH: twin in the inbox. OUTPUT: the mirror itself */
  uint64_t sent;   /* number of the wait behind which the twin may be written again */
} cuda_block;

/* Scratch that programs recorded before still use. */
typedef struct cuda_scratch {
  struct cuda_scratch *next;
  void *memory;
} cuda_scratch;

typedef struct cuda_device {
  df_device base;
  uint32_t index;
  df_cuda_card card;
  char name[24];
  cudaStream_t stream;
  df_mirrors m;
  cuda_inbox *inboxes;
  uint8_t *stage[2]; /* pinned */
  cudaEvent_t staged[2];
  cuda_scratch *scratch;
  size_t scratch_bytes;
  uint64_t waits; /* for the stream so far, counted from 1 */
  uint64_t runs, waited_ns;
  bool lost;
  char why[160]; /* it is */
} cuda_device;

/* Makes the card current; DEVICE when it is lost. */
df_status cuda_enter(cuda_device *d, df_error *err) DF_CHECK;
/* The error of a call of the CUDA runtime or a launcher, 0 = none. In a run it means that the card is lost. */
df_status cuda_result(cuda_device *d, int code, const char *doing, df_error *err) DF_CHECK;
/* A failure while other work may be going on: the device is lost from now on. */
df_status cuda_lose(cuda_device *d, int code, const char *doing, df_error *err) DF_CHECK;
/* Waits for everything; inputs may be written again. */
df_status cuda_sync(cuda_device *d, const char *doing, df_error *err) DF_CHECK;

/* cuda_memory.c: the calls of df_device_ops of the same names. */
df_status cuda_map(df_device *d, void *base, size_t bytes, df_mem_kind kind, const char *what, df_error *err) DF_CHECK;
df_status cuda_map_weights(df_device *d, void *block, size_t bytes, const df_weights *w, size_t n, const char *what,
                           df_error *err) DF_CHECK;
void cuda_unmap(df_device *d, void *base);
df_status cuda_fits(df_device *d, uint64_t bytes, const char *what, df_error *err) DF_CHECK;
df_status cuda_fetch(df_device *d, const void *from, size_t bytes, df_error *err) DF_CHECK;
df_status cuda_put(df_device *d, const void *from, size_t bytes, df_error *err) DF_CHECK;
void cuda_memory_release(cuda_device *d);
/* Device memory, or MEMORY with numbers. */
df_status cuda_alloc(cuda_device *d, size_t bytes, const char *what, void **out, df_error *err) DF_CHECK;
/* Copies to device memory, in order with all other work; `from` may change when it returns. */
df_status cuda_send(cuda_device *d, void *to, const void *from, size_t bytes, df_error *err) DF_CHECK;

/* cuda_exec.c. */
df_status cuda_prepare(df_device *d, df_program *p, bool recorded, df_error *err) DF_CHECK;
df_status cuda_run(df_device *d, df_program *p, df_error *err) DF_CHECK;
void cuda_exec_release(cuda_device *d);

#endif
