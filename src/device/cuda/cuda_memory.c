/* The card's memory: mirrors, and what goes back and forth. */
#include "device/cuda/cuda_device.h"

#ifdef DF_HAVE_CUDA

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/size.h"
#include "device/cuda/cuda_state.h"

enum { ALIGN = 256 };

static const double k_mib = 1024.0 * 1024.0;

/* ---- room ----------------------------------------------------------------------------------------------- */

static df_status no_room(const cuda_device *d, uint64_t bytes, uint64_t free_now, const char *what, df_error *err) {
  (void)DF_FAIL(err, DF_ERR_MEMORY, "%s need %.1f MiB on %s (%s), where %.1f of %.1f MiB are free", what,
                (double)bytes / k_mib, d->name, d->card.name, (double)free_now / k_mib,
                (double)d->card.memory_bytes / k_mib);
  df_error_hint(err, "a smaller --ctx-size, --parallel or --kv-memory, a model with fewer bits, or --device cpu");
  return DF_ERR_MEMORY;
}

static df_status check_room(cuda_device *d, uint64_t bytes, uint64_t spare, const char *what, df_error *err) {
  size_t free_now = 0, total = 0;
  DF_TRY(cuda_result(d, cudaMemGetInfo(&free_now, &total), "its memory was counted", err));
  return bytes <= free_now && spare <= free_now - bytes ? DF_OK : no_room(d, bytes, free_now, what, err);
}

df_status cuda_fits(df_device *base, uint64_t bytes, const char *what, df_error *err) {
  cuda_device *d = (cuda_device *)base;
  DF_TRY(cuda_enter(d, err));
  return check_room(d, bytes, CUDA_SPARE_BYTES, what, err);
}

df_status cuda_alloc(cuda_device *d, size_t bytes, const char *what, void **out, df_error *err) {
  DF_TRY(check_room(d, bytes, 0, what, err));
  const cudaError_t e = cudaMalloc(out, bytes);
  if (e != cudaErrorMemoryAllocation) return cuda_result(d, e, "memory was asked for", err);
  size_t free_now = 0, total = 0;
  (void)cudaGetLastError();
  (void)cudaMemGetInfo(&free_now, &total);
  return no_room(d, bytes, free_now, what, err);
}

/* ---- copies --------------------------------------------------------------------------------------------- */

/* Fills staging buffers in turn; a buffer is written again when its copy is through. */
typedef struct upload {
  cuda_device *d;
  uint32_t turn;
} upload;

static df_status stage_begin(upload *u, uint8_t **out, df_error *err) {
  const uint32_t i = u->turn & 1;
  *out = u->d->stage[i];
  return cuda_result(u->d, cudaEventSynchronize(u->d->staged[i]), "memory was copied to it", err);
}

static df_status stage_send(upload *u, void *to, size_t bytes, df_error *err) {
  const uint32_t i = u->turn++ & 1;
  DF_TRY(cuda_result(u->d, cudaMemcpyAsync(to, u->d->stage[i], bytes, cudaMemcpyHostToDevice, u->d->stream),
                     "memory was copied to it", err));
  return cuda_result(u->d, cudaEventRecord(u->d->staged[i], u->d->stream), "memory was copied to it", err);
}

static df_status send(upload *u, uint8_t *to, const uint8_t *from, size_t bytes, df_error *err) {
  for (size_t at = 0; at < bytes; at += CUDA_STAGE_BYTES) {
    const size_t n = DF_MIN(bytes - at, (size_t)CUDA_STAGE_BYTES);
    uint8_t *stage;
    DF_TRY(stage_begin(u, &stage, err));
    memcpy(stage, from + at, n);
    DF_TRY(stage_send(u, to + at, n, err));
  }
  return DF_OK;
}

/* A matrix whose form on the card is another one, as many strips at a time as staging holds. */
static df_status send_repacked(upload *u, uint8_t *to, const df_weights *w, df_error *err) {
  const uint32_t strips = df_strips(w->n);
  const size_t strip = df_cuda_fragment_strip_bytes(w->k);
  const size_t each = CUDA_STAGE_BYTES / strip;
  if (each == 0)
    return DF_FAIL(err, DF_ERR_UNSUPPORTED, "a matrix with rows of %u values is too wide for %s", w->k, u->d->name);
  for (uint32_t s = 0; s < strips;) {
    const uint32_t n = (uint32_t)DF_MIN((size_t)(strips - s), each);
    uint8_t *stage;
    DF_TRY(stage_begin(u, &stage, err));
    df_cuda_repack(w, s, s + n, stage);
    DF_TRY(stage_send(u, to + s * strip, n * strip, err));
    s += n;
  }
  return DF_OK;
}

/* The range of one mirror that an address begins; the caller knows that it is mapped. */
static df_status range(cuda_device *d, const void *from, size_t bytes, df_mirror **x, size_t *at, df_error *err) {
  *x = df_mirrors_find(&d->m, from);
  *at = *x ? (size_t)((const uint8_t *)from - (*x)->host) : 0;
  if (!*x || bytes > (*x)->bytes - *at)
    return DF_FAIL(err, DF_ERR_INTERNAL, "%zu bytes at %p are not mapped on %s", bytes, from, d->name);
  return DF_OK;
}

df_status cuda_put(df_device *base, const void *from, size_t bytes, df_error *err) {
  cuda_device *d = (cuda_device *)base;
  df_mirror *x;
  size_t at;
  upload u = {d, 0};
  DF_TRY(cuda_enter(d, err));
  DF_TRY(range(d, from, bytes, &x, &at, err));
  return send(&u, x->there + at, from, bytes, err);
}

df_status cuda_send(cuda_device *d, void *to, const void *from, size_t bytes, df_error *err) {
  upload u = {d, 0};
  return send(&u, to, from, bytes, err);
}

df_status cuda_fetch(df_device *base, const void *from, size_t bytes, df_error *err) {
  cuda_device *d = (cuda_device *)base;
  df_mirror *x;
  size_t at;
  DF_TRY(cuda_enter(d, err));
  DF_TRY(range(d, from, bytes, &x, &at, err));
  for (size_t done = 0; done < bytes; done += CUDA_STAGE_BYTES) {
    const size_t n = DF_MIN(bytes - done, (size_t)CUDA_STAGE_BYTES);
    DF_TRY(cuda_result(d, cudaMemcpyAsync(d->stage[0], x->there + at + done, n, cudaMemcpyDeviceToHost, d->stream),
                       "memory was copied from it", err));
    DF_TRY(cuda_sync(d, "memory was copied from it", err));
    memcpy((uint8_t *)from + done, d->stage[0], n);
  }
  return DF_OK;
}

/* ---- inboxes -------------------------------------------------------------------------------------------- */

static df_status new_inbox(cuda_device *d, size_t bytes, cuda_inbox **out, df_error *err) {
  cuda_inbox *b = df_calloc(1, sizeof *b);
  if (!b) return DF_OOM(err, "the inputs of passes", sizeof *b);
  void *there = NULL, *pinned = NULL;
  b->bytes = bytes;
  df_status s = cuda_alloc(d, bytes, "the inputs of passes", &there, err);
  if (s == DF_OK) s = cuda_result(d, cudaMallocHost(&pinned, bytes), "inputs of passes were pinned", err);
  if (s != DF_OK) {
    (void)cudaFree(there);
    df_free(b);
    return s;
  }
  b->there = there;
  b->pinned = pinned;
  memset(b->pinned, 0, bytes);
  b->next = d->inboxes;
  d->inboxes = b;
  *out = b;
  return DF_OK;
}

/* Blocks that are mapped one after the other lie one after the other. */
static df_status place(cuda_device *d, cuda_block *k, df_mirror *x, df_error *err) {
  cuda_inbox *b = d->inboxes;
  if (!b || x->bytes > b->bytes - b->used)
    DF_TRY(new_inbox(d, DF_MAX(df_round_up(x->bytes, ALIGN), (size_t)CUDA_INBOX_BYTES), &b, err));
  x->there = b->there + b->used;
  k->pinned = b->pinned + b->used;
  k->inbox = b;
  b->used += DF_MIN(df_round_up(x->bytes, ALIGN), b->bytes - b->used);
  b->live++;
  return DF_OK;
}

/* Pinned memory has the same address on the card: small results are written straight to the host. */
static df_status pin(cuda_device *d, cuda_block *k, df_mirror *x, df_error *err) {
  void *pinned = NULL;
  DF_TRY(cuda_result(d, cudaMallocHost(&pinned, x->bytes), "results of passes were pinned", err));
  memset(pinned, 0, x->bytes);
  x->there = k->pinned = pinned;
  return DF_OK;
}

/* ---- mapping -------------------------------------------------------------------------------------------- */

static void free_block(cuda_block *k) {
  if (k->inbox && --k->inbox->live == 0) k->inbox->used = 0;
  if (!k->inbox && k->pinned) (void)cudaFreeHost(k->pinned);
  if (k->memory) (void)cudaFree(k->memory);
  df_free(k);
}

static df_status fill(cuda_device *d, cuda_block *k, df_mirror *x, df_error *err) {
  upload u = {d, 0};
  if (x->kind == DF_MEM_INPUT || x->kind == DF_MEM_BATCH) return place(d, k, x, err);
  if (x->kind == DF_MEM_OUTPUT) return pin(d, k, x, err);
  DF_TRY(cuda_alloc(d, x->bytes, x->what, &k->memory, err));
  x->there = k->memory;
  if (x->kind != DF_MEM_CONST)
    return cuda_result(d, cudaMemsetAsync(k->memory, 0, x->bytes, d->stream), "memory was cleared", err);
  DF_TRY(send(&u, x->there, x->host, x->bytes, err));
  return cuda_sync(d, "memory was copied to it", err);
}

df_status cuda_map(df_device *base, void *host, size_t bytes, df_mem_kind kind, const char *what, df_error *err) {
  cuda_device *d = (cuda_device *)base;
  df_mirror *x;
  DF_TRY(cuda_enter(d, err));
  cuda_block *k = df_calloc(1, sizeof *k);
  if (!k) return DF_OOM(err, what, sizeof *k);
  k->host_bytes = bytes;
  df_status s = df_mirrors_add(&d->m, host, bytes, kind, what, &x, err);
  if (s == DF_OK) {
    x->own = k;
    s = fill(d, k, x, err);
    if (s == DF_OK) return DF_OK;
    df_free(df_mirrors_take(&d->m, host));
  }
  free_block(k);
  return s;
}

static int by_address(const void *a, const void *b) {
  const uint8_t *x = ((const df_weights *)a)->data, *y = ((const df_weights *)b)->data;
  return (uintptr_t)x < (uintptr_t)y ? -1 : (uintptr_t)x > (uintptr_t)y;
}

/* A run of the block that is on the card as it is, or one matrix in another form. */
typedef struct piece {
  const uint8_t *host;
  size_t host_bytes, bytes;
  const df_weights *w; /* NULL: as it is */
} piece;

/* The pieces of a block in order; w is sorted. Returns how many; with out NULL only counts. */
static size_t cut(const uint8_t *block, size_t bytes, const df_weights *w, size_t n, piece *out) {
  const uint8_t *at = block;
  size_t count = 0;
  for (size_t i = 0; i <= n; i++) {
    if (i < n && !df_cuda_needs_repack(w[i].pack)) continue;
    const uint8_t *next = i < n ? w[i].data : block + bytes;
    if (next > at) {
      if (out) out[count] = (piece){at, (size_t)(next - at), (size_t)(next - at), NULL};
      count++;
    }
    if (i == n) break;
    const size_t own = w[i].strip_bytes * df_strips(w[i].n);
    if (out) out[count] = (piece){next, own, df_cuda_weights_bytes(&w[i]), &w[i]};
    count++;
    at = next + own;
  }
  return count;
}

static df_status send_pieces(cuda_device *d, const piece *p, size_t n, cuda_block *k, const char *what, df_error *err) {
  upload u = {d, 0};
  uint8_t *to = k->memory;
  for (size_t i = 0; i < n; i++) {
    df_mirror *x;
    DF_TRY(df_mirrors_add(&d->m, p[i].host, p[i].host_bytes, DF_MEM_WEIGHTS, what, &x, err));
    x->own = k;
    x->there = to;
    DF_TRY(p[i].w ? send_repacked(&u, to, p[i].w, err) : send(&u, to, p[i].host, p[i].bytes, err));
    to += df_round_up(p[i].bytes, ALIGN);
  }
  return cuda_sync(d, "weights were copied to it", err);
}

/* All mirrors of a block out of the table. */
static void take_pieces(cuda_device *d, const uint8_t *block, size_t bytes, const cuda_block *k) {
  for (size_t at = 0; at < bytes;) {
    df_mirror *x = df_mirrors_find(&d->m, block + at);
    if (!x || x->own != k) return;
    at = (size_t)(x->host - block) + x->bytes;
    df_free(df_mirrors_take(&d->m, x->host));
  }
}

static df_status map_pieces(cuda_device *d, void *block, size_t bytes, const piece *p, size_t n, const char *what,
                            df_error *err) {
  size_t all = 0;
  for (size_t i = 0; i < n; i++) all += df_round_up(p[i].bytes, ALIGN);
  cuda_block *k = df_calloc(1, sizeof *k);
  if (!k) return DF_OOM(err, what, sizeof *k);
  k->host_bytes = bytes;
  df_status s = cuda_alloc(d, all, what, &k->memory, err);
  if (s == DF_OK) s = send_pieces(d, p, n, k, what, err);
  if (s != DF_OK) {
    take_pieces(d, block, bytes, k);
    free_block(k);
    return s;
  }
  df_pages_discard(block, bytes); /* the host's copy: nobody reads it any more */
  return DF_OK;
}

df_status cuda_map_weights(df_device *base, void *block, size_t bytes, const df_weights *w, size_t n, const char *what,
                           df_error *err) {
  cuda_device *d = (cuda_device *)base;
  DF_TRY(cuda_enter(d, err));
  df_weights *sorted = df_alloc((n ? n : 1) * sizeof *sorted);
  if (!sorted) return DF_OOM(err, "the list of matrices", n * sizeof *sorted);
  memcpy(sorted, w, n * sizeof *w);
  qsort(sorted, n, sizeof *sorted, by_address);
  const size_t count = cut(block, bytes, sorted, n, NULL);
  piece *p = df_alloc(count * sizeof *p);
  df_status s = DF_OK;
  if (p) {
    (void)cut(block, bytes, sorted, n, p);
    s = map_pieces(d, block, bytes, p, count, what, err);
  } else {
    s = DF_OOM(err, "the list of matrices", count * sizeof *p);
  }
  df_free(p);
  df_free(sorted);
  return s;
}

void cuda_unmap(df_device *base, void *host) {
  cuda_device *d = (cuda_device *)base;
  df_mirror *x = df_mirrors_find(&d->m, host);
  if (!x || (void *)x->host != host) return;
  cuda_block *k = x->own;
  (void)cudaSetDevice((int)d->index);
  if (!d->lost) (void)cudaStreamSynchronize(d->stream); /* nothing that runs may use it any more */
  take_pieces(d, host, k->host_bytes, k);
  free_block(k);
}

void cuda_memory_release(cuda_device *d) {
  while (d->m.n) cuda_unmap(&d->base, (void *)d->m.items[0]->host);
  df_mirrors_release(&d->m);
  while (d->inboxes) {
    cuda_inbox *b = d->inboxes;
    d->inboxes = b->next;
    (void)cudaFree(b->there);
    (void)cudaFreeHost(b->pinned);
    df_free(b);
  }
}

#else
typedef int df_cuda_memory_is_left_out;
#endif
