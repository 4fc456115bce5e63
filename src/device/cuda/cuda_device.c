/* A card: finding it, opening it, what is said when that does not work. */
#include "device/cuda/cuda_device.h"

#ifdef DF_HAVE_CUDA

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "device/cuda/cuda_archs.h"
#include "device/cuda/cuda_state.h"

/* ---- is there a card? ----------------------------------------------------------------------------------- */

static df_status refuse(df_error *err, const char *hint) {
  df_error_hint(err, "%s", hint);
  return DF_ERR_UNSUPPORTED;
}

/* Versions as the runtime counts them: 1000 * major + 10 * minor. */
static df_status check_driver(cudaError_t e, df_error *err) {
  int driver = 0, needed = 0;
  if (e == cudaErrorNoDevice) {
    (void)DF_FAIL(err, DF_ERR_UNSUPPORTED, "there is no CUDA card: the driver lists none");
    return refuse(err, "see nvidia-smi and CUDA_VISIBLE_DEVICES; without a card, use --device cpu");
  }
  (void)cudaDriverGetVersion(&driver);
  (void)cudaRuntimeGetVersion(&needed);
  if (driver == 0) {
    (void)DF_FAIL(err, DF_ERR_UNSUPPORTED, "there is no CUDA driver (libcuda.so.1) on this machine");
    return refuse(err,
                  "install the card's driver, or give the container access to it; without a card, use --device cpu");
  }
  if (e == cudaErrorInsufficientDriver) {
    (void)DF_FAIL(err, DF_ERR_UNSUPPORTED, "the CUDA driver is for CUDA %d.%d, this build needs %d.%d", driver / 1000,
                  driver % 1000 / 10, needed / 1000, needed % 1000 / 10);
    return refuse(err, "update the driver, build with an older CUDA toolkit, or use --device cpu");
  }
  (void)DF_FAIL(err, DF_ERR_UNSUPPORTED, "the CUDA driver does not answer: %s", cudaGetErrorString(e));
  return refuse(err, "see nvidia-smi, or use --device cpu");
}

static df_status check_archs(uint32_t index, df_error *err) {
  struct cudaDeviceProp prop;
  const cudaError_t e = cudaGetDeviceProperties(&prop, (int)index);
  if (e != cudaSuccess) return check_driver(e, err);
  if (df_cuda_archs_fit(df_cuda_built_archs(), (uint32_t)prop.major, (uint32_t)prop.minor)) return DF_OK;
  (void)DF_FAIL(err, DF_ERR_UNSUPPORTED, "cuda:%u (%.64s) has compute capability %d.%d, this build has kernels for %s",
                index, prop.name, prop.major, prop.minor, df_cuda_built_archs());
  return refuse(err, "build with the card's number in -DDF_CUDA_ARCHS (8.0 and later), or use --device cpu");
}

df_status df_cuda_check(uint32_t index, df_error *err) {
  int n = 0;
  const cudaError_t e = cudaGetDeviceCount(&n);
  if (e != cudaSuccess || n == 0) {
    (void)cudaGetLastError();
    return check_driver(e == cudaSuccess ? cudaErrorNoDevice : e, err);
  }
  if (index >= (uint32_t)n) {
    (void)DF_FAIL(err, DF_ERR_UNSUPPORTED, "there is no card %u: the driver lists %d", index, n);
    return refuse(err, "cards count from 0; see nvidia-smi and CUDA_VISIBLE_DEVICES");
  }
  return check_archs(index, err);
}

/* ---- failures ------------------------------------------------------------------------------------------- */

static df_status lost(const cuda_device *d, df_error *err) {
  (void)DF_FAIL(err, DF_ERR_DEVICE, "%s is lost: %s", d->name, d->why);
  df_error_hint(err, "start the program again; if it happens again, see the kernel's log (dmesg) and nvidia-smi");
  return DF_ERR_DEVICE;
}

df_status cuda_lose(cuda_device *d, int code, const char *doing, df_error *err) {
  if (!d->lost)
    (void)snprintf(d->why, sizeof d->why, "%s (%s) while %s", df_cuda_error_text(code), df_cuda_error_name(code),
                   doing);
  d->lost = true;
  return lost(d, err);
}

df_status cuda_result(cuda_device *d, int code, const char *doing, df_error *err) {
  if (code == 0) return DF_OK;
  if (code == cudaErrorMemoryAllocation) {
    (void)cudaGetLastError();
    (void)DF_FAIL(err, DF_ERR_MEMORY, "%s has no memory left while %s", d->name, doing);
    df_error_hint(err, "lower --ctx-size, --parallel or --kv-memory");
    return DF_ERR_MEMORY;
  }
  return cuda_lose(d, code, doing, err);
}

df_status cuda_enter(cuda_device *d, df_error *err) {
  if (d->lost) return lost(d, err);
  return cuda_result(d, cudaSetDevice((int)d->index), "it was made current", err);
}

df_status cuda_sync(cuda_device *d, const char *doing, df_error *err) {
  const uint64_t t0 = df_now_ns();
  const cudaError_t e = cudaStreamSynchronize(d->stream);
  d->waited_ns += df_now_ns() - t0;
  DF_TRY(cuda_result(d, e, doing, err));
  d->waits++;
  return DF_OK;
}

/* ---- the device ----------------------------------------------------------------------------------------- */

static void cuda_quiesce(df_device *base) {
  cuda_device *d = (cuda_device *)base;
  if (cuda_enter(d, NULL) != DF_OK || cuda_sync(d, "it was waited for", NULL) != DF_OK)
    return; /* the next run says so */
}

static void cuda_info(const df_device *base, df_device_info *out) {
  const cuda_device *d = (const cuda_device *)base;
  df_device_info t = {.major = d->card.major, .minor = d->card.minor, .memory_total = d->card.memory_bytes};
  size_t free_now = 0, total = 0;
  int driver = 0, runtime = 0;
  (void)snprintf(t.name, sizeof t.name, "%s", d->name);
  (void)snprintf(t.card, sizeof t.card, "%s", d->card.name);
  (void)cudaDriverGetVersion(&driver);
  (void)cudaRuntimeGetVersion(&runtime);
  t.runs = d->runs;
  t.waits = d->waits;
  t.waited_ns = d->waited_ns;
  t.driver = (uint32_t)driver;
  t.runtime = (uint32_t)runtime;
  if (cudaSetDevice((int)d->index) == cudaSuccess && cudaMemGetInfo(&free_now, &total) == cudaSuccess)
    t.memory_free = free_now;
  for (uint32_t i = 0; i < d->m.n; i++) t.mapped[d->m.items[i]->kind] += d->m.items[i]->bytes;
  *out = t;
}

static void cuda_free(df_device *base) {
  cuda_device *d = (cuda_device *)base;
  (void)cudaSetDevice((int)d->index);
  if (d->stream) (void)cudaStreamSynchronize(d->stream);
  cuda_memory_release(d);
  cuda_exec_release(d);
  for (int i = 0; i < 2; i++) {
    if (d->staged[i]) (void)cudaEventDestroy(d->staged[i]);
    if (d->stage[i]) (void)cudaFreeHost(d->stage[i]);
  }
  if (d->stream) (void)cudaStreamDestroy(d->stream);
  df_free(d);
}

static const df_device_ops k_cuda_ops = {.map = cuda_map,
                                         .map_weights = cuda_map_weights,
                                         .unmap = cuda_unmap,
                                         .fits = cuda_fits,
                                         .prepare = cuda_prepare,
                                         .run = cuda_run,
                                         .fetch = cuda_fetch,
                                         .put = cuda_put,
                                         .quiesce = cuda_quiesce,
                                         .info = cuda_info,
                                         .free = cuda_free};

static df_status start(cuda_device *d, df_error *err) {
  DF_TRY(cuda_enter(d, err));
  DF_TRY(cuda_result(d, df_cuda_kernels_init(&d->card), "its kernels were loaded", err));
  DF_TRY(cuda_result(d, cudaStreamCreateWithFlags(&d->stream, cudaStreamNonBlocking), "a stream was made", err));
  for (int i = 0; i < 2; i++) {
    void *p = NULL;
    DF_TRY(cuda_result(d, cudaMallocHost(&p, CUDA_STAGE_BYTES), "staging memory was pinned", err));
    d->stage[i] = p;
    DF_TRY(cuda_result(d, cudaEventCreateWithFlags(&d->staged[i], cudaEventDisableTiming), "an event was made", err));
  }
  return DF_OK;
}

df_status df_cuda_device_create(uint32_t index, df_device **out, df_error *err) {
  DF_TRY(df_cuda_check(index, err));
  cuda_device *d = df_calloc(1, sizeof *d);
  if (!d) return DF_OOM(err, "a device", sizeof *d);
  d->base = (df_device){.ops = &k_cuda_ops,
                        .own_floats = true,
                        .token_major = true,
                        .leaves = df_device_card_leaves(),
                        .n_workers = 1,
                        .argmax_segments = 64};
  d->index = index;
  d->waits = 1;
  (void)snprintf(d->name, sizeof d->name, "cuda:%u", index);
  const df_status s = start(d, err);
  if (s != DF_OK) {
    cuda_free(&d->base);
    return s;
  }
  *out = &d->base;
  return DF_OK;
}

const char *df_cuda_built_for(void) { return df_cuda_built_archs(); }

void *df_cuda_device_stream(const df_device *d) {
  return d && d->ops == &k_cuda_ops ? ((const cuda_device *)d)->stream : NULL;
}

#else
typedef int df_cuda_device_is_left_out;
#endif
