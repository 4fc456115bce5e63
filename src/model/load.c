#include "model/load.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/size.h"
#include "kernels/encode.h"
#include "model/load_f8.h"
#include "model/pack_cache.h"

enum { STRIPS_PER_TASK = 32, DROP_EVERY = 16 };

typedef struct matrix_req {
  df_tensor_view view;
  df_weights *dst;
  df_weights w; /* data is an offset until the block exists */
  uint32_t *row_of;
  size_t row_bytes;
  size_t offset;
  bool round; /* to the loader's type before it is packed */
} matrix_req;

typedef struct vector_req {
  df_tensor_view view;
  float **dst;
  uint32_t n;
  uint32_t *row_of;
  size_t offset;
} vector_req;

struct df_loader {
  const df_source *src;
  df_pool *pool;
  bool exact;
  bool rounds;
  df_dtype round_to;
  matrix_req *m;
  size_t n_m, cap_m;
  vector_req *v;
  size_t n_v, cap_v;
  size_t bytes;
  df_device *device;
  const char *what;
  const char *cache_dir;
  bool was_cached;
  uint64_t also; /* bytes that others will want on the device */
  const char *also_text;
};

df_status df_loader_create(const df_source *src, df_pool *pool, bool exact, df_loader **out, df_error *err) {
  df_loader *l = df_calloc(1, sizeof *l);
  if (!l) return DF_OOM(err, "the weight loader", sizeof *l);
  l->src = src;
  l->pool = pool;
  l->exact = exact;
  *out = l;
  return DF_OK;
}

void df_loader_round_to(df_loader *l, df_dtype type) {
  l->rounds = !l->exact;
  l->round_to = type;
}

void df_loader_place(df_loader *l, df_device *device, const char *what) {
  l->device = device;
  l->what = what;
}

void df_loader_cache(df_loader *l, const char *dir) { l->cache_dir = dir; }
bool df_loader_was_cached(const df_loader *l) { return l->was_cached; }

void df_loader_also(df_loader *l, uint64_t bytes, const char *text) {
  l->also = bytes;
  l->also_text = text;
}

void df_loader_free(df_loader *l) {
  if (!l) return;
  for (size_t i = 0; i < l->n_m; i++) df_free(l->m[i].row_of);
  for (size_t i = 0; i < l->n_v; i++) df_free(l->v[i].row_of);
  df_free(l->m);
  df_free(l->v);
  df_free(l);
}

static df_status grow(void **array, size_t *cap, size_t n, size_t item, df_error *err) {
  if (n < *cap) return DF_OK;
  const size_t c = *cap ? *cap * 2 : 64;
  void *p = df_realloc(*array, c * item);
  if (!p) return DF_OOM(err, "the weight list", c * item);
  *array = p;
  *cap = c;
  return DF_OK;
}

static df_status copy_rows(const uint32_t *row_of, uint32_t n, uint32_t **out, df_error *err) {
  *out = NULL;
  if (!row_of) return DF_OK;
  uint32_t *p = df_alloc((size_t)n * sizeof *p);
  if (!p) return DF_OOM(err, "a row map", (size_t)n * sizeof *p);
  memcpy(p, row_of, (size_t)n * sizeof *p);
  *out = p;
  return DF_OK;
}

static df_status reserve(df_loader *l, size_t bytes, size_t *offset, df_error *err) {
  size_t end;
  if (!df_add_size(l->bytes, bytes, &end) || end > SIZE_MAX / 2)
    return DF_FAIL(err, DF_ERR_LIMIT, "the packed weights overflow memory");
  *offset = l->bytes;
  l->bytes = df_round_up(end, 64);
  return DF_OK;
}

static df_status find(const df_loader *l, const char *name, df_tensor_view *out, df_error *err) {
  DF_TRY(df_source_get(l->src, name, out, err));
  if (!df_dtype_name(out->dtype))
    return DF_FAIL(err, DF_ERR_UNSUPPORTED, "tensor \"%s\" has the unsupported type %d", name, out->dtype);
  return DF_OK;
}

/* Whether rounding a matrix of this type, rows of k values, makes it smaller. */
static bool shrinks(const df_loader *l, int type, uint32_t k) {
  uint32_t v0, b0, v1, b1;
  return l->rounds && df_dtype_block(type, &v0, &b0) && df_dtype_block((int)l->round_to, &v1, &b1) && k % v1 == 0 &&
         (uint64_t)b1 * v0 < (uint64_t)b0 * v1;
}

/* file_rows: rows the file's matrix has to have. */
static df_status request_matrix(df_loader *l, const char *name, uint32_t n, uint32_t k, uint32_t file_rows,
                                const uint32_t *row_of, df_weights *dst, df_error *err) {
  matrix_req r = {.dst = dst};
  DF_TRY(find(l, name, &r.view, err));
  const df_tensor_view *t = &r.view;
  if (t->n_dims != 2 || t->dims[0] != k || t->dims[1] != file_rows)
    return DF_FAIL(err, DF_ERR_FORMAT, "tensor \"%s\" is %llu x %llu, expected %u x %u", name,
                   (unsigned long long)t->dims[1], (unsigned long long)(t->n_dims ? t->dims[0] : 0), file_rows, k);
  uint32_t values, block;
  if (!df_dtype_block(t->dtype, &values, &block) || k % values)
    return DF_FAIL(err, DF_ERR_UNSUPPORTED, "tensor \"%s\": rows of %u values do not fit type %s", name, k,
                   df_dtype_name(t->dtype));
  r.row_bytes = t->dtype == DF_F8 ? k : (size_t)(k / values) * block;
  r.round = shrinks(l, t->dtype, k);
  const df_pack pack = l->exact ? DF_PACK_F32 : df_pack_of(r.round ? l->round_to : (df_dtype)t->dtype);
  r.w = (df_weights){.pack = pack, .n = n, .k = k};
  size_t bytes;
  if (!df_pack_strip_bytes(pack, k, &r.w.strip_bytes) || !df_mul_size(r.w.strip_bytes, df_strips(n), &bytes))
    return DF_FAIL(err, DF_ERR_UNSUPPORTED, "tensor \"%s\" (%u x %u) cannot be packed", name, n, k);
  DF_TRY(reserve(l, bytes, &r.offset, err));
  DF_TRY(grow((void **)&l->m, &l->cap_m, l->n_m, sizeof *l->m, err));
  DF_TRY(copy_rows(row_of, n, &r.row_of, err));
  l->m[l->n_m++] = r;
  return DF_OK;
}

df_status df_loader_matrix(df_loader *l, const char *name, uint32_t n, uint32_t k, const uint32_t *row_of,
                           df_weights *dst, df_error *err) {
  return request_matrix(l, name, n, k, n, row_of, dst, err);
}

df_status df_loader_gather(df_loader *l, const char *name, uint32_t n, uint32_t k, uint32_t file_rows,
                           const uint32_t *row_of, df_weights *dst, df_error *err) {
  return request_matrix(l, name, n, k, file_rows, row_of, dst, err);
}

df_status df_loader_vector_rows(df_loader *l, const char *name, uint32_t n, const uint32_t *row_of, bool required,
                                float **dst, df_error *err) {
  *dst = NULL;
  df_tensor_view probe;
  if (!required && !df_source_find(l->src, name, &probe)) return DF_OK;
  vector_req r = {.dst = dst, .n = n};
  DF_TRY(find(l, name, &r.view, err));
  uint64_t count = 1;
  for (uint32_t i = 0; i < r.view.n_dims; i++) count *= r.view.dims[i];
  if (count != n)
    return DF_FAIL(err, DF_ERR_FORMAT, "tensor \"%s\" has %llu values, expected %u", name, (unsigned long long)count,
                   n);
  if (r.view.dtype != DF_F32 && r.view.dtype != DF_F16 && r.view.dtype != DF_BF16)
    return DF_FAIL(err, DF_ERR_UNSUPPORTED, "tensor \"%s\" has type %s, expected a float type", name,
                   df_dtype_name(r.view.dtype));
  DF_TRY(reserve(l, (size_t)n * sizeof(float), &r.offset, err));
  DF_TRY(grow((void **)&l->v, &l->cap_v, l->n_v, sizeof *l->v, err));
  DF_TRY(copy_rows(row_of, n, &r.row_of, err));
  l->v[l->n_v++] = r;
  return DF_OK;
}

df_status df_loader_vector(df_loader *l, const char *name, uint32_t n, bool required, float **dst, df_error *err) {
  return df_loader_vector_rows(l, name, n, NULL, required, dst, err);
}

typedef struct pack_job {
  const matrix_req *r;
  df_dtype type;     /* that strips are packed from, when it is not the file's */
  size_t type_bytes; /* of one row of it */
  float *rows;       /* [worker][16][k], NULL when strips are packed straight from the file */
  uint8_t *rounded;  /* [worker][16][type_bytes], NULL unless rounding */
  uint8_t *blocks;   /* [worker][2 * k], a row of F8 on its way to floats */
} pack_job;

/* Row `row` of the file as floats. */
static void widen_row(const matrix_req *r, uint32_t row, uint8_t *blocks, float *x) {
  const uint8_t *from = (const uint8_t *)r->view.data + row * r->row_bytes;
  if (r->view.dtype == DF_F8) {
    df_f8_row(&r->view, row, blocks);
    from = blocks;
  }
  df_dequant((df_dtype)r->view.dtype, from, r->w.k, x);
}

/* Widening to float32, and rounding from there, go strip by strip through a worker's 16 rows. */
static void pack_changed(const pack_job *j, uint32_t s, float *rows, uint8_t *rounded, uint8_t *blocks) {
  const matrix_req *r = j->r;
  const uint32_t k = r->w.k, o0 = s * DF_LANES, n = DF_MIN(r->w.n - o0, (uint32_t)DF_LANES);
  for (uint32_t i = 0; i < n; i++) {
    const uint32_t row = r->row_of ? r->row_of[o0 + i] : o0 + i;
    float *x = rows + (size_t)i * k;
    if (j->type == DF_F8) {
      df_f8_row(&r->view, row, (uint8_t *)rows + i * j->type_bytes);
      continue;
    }
    widen_row(r, row, blocks, x);
    if (rounded) df_encode_quick(j->type, x, k, rounded + i * j->type_bytes);
  }
  const df_weights strip = {r->w.pack, n, k, r->w.strip_bytes, r->w.data + s * r->w.strip_bytes};
  df_pack_strips(&strip, j->type, rounded ? (const void *)rounded : rows, j->type_bytes, NULL, 0, 1);
}

static void pack_task(void *arg, uint32_t i, uint32_t worker) {
  const pack_job *j = arg;
  const matrix_req *r = j->r;
  const uint32_t s0 = i * STRIPS_PER_TASK, s1 = DF_MIN(s0 + STRIPS_PER_TASK, df_strips(r->w.n));
  if (!j->rows) {
    df_pack_strips(&r->w, (df_dtype)r->view.dtype, r->view.data, r->row_bytes, r->row_of, s0, s1);
    return;
  }
  float *rows = j->rows + (size_t)worker * DF_LANES * r->w.k;
  uint8_t *rounded = j->rounded ? j->rounded + (size_t)worker * DF_LANES * j->type_bytes : NULL;
  uint8_t *blocks = j->blocks + (size_t)worker * 2 * r->w.k;
  for (uint32_t s = s0; s < s1; s++) pack_changed(j, s, rows, rounded, blocks);
}

/* How matrix r is packed; rows has room for twice 16 rows of floats of every worker: 16 rows, 16 rounded ones of at
 * most 2 bytes a value, blocks of one. */
static pack_job job_of(const df_loader *l, const matrix_req *r, float *rows) {
  pack_job j = {.r = r};
  const bool f8 = r->view.dtype == DF_F8;
  if (!l->exact && !r->round && !f8) return j;
  const size_t all = (size_t)df_pool_threads(l->pool) * DF_LANES * r->w.k;
  uint32_t values, bytes;
  j.type = r->round ? l->round_to : l->exact ? DF_F32 : DF_F8;
  (void)df_dtype_block((int)j.type, &values, &bytes);
  j.type_bytes = (size_t)r->w.k / values * bytes;
  j.rows = rows;
  j.blocks = (uint8_t *)(rows + all) + 2 * all;
  if (r->round) j.rounded = (uint8_t *)(rows + all);
  return j;
}

_Static_assert((int)DF_F8 == (int)DF_TENSOR_F8_E4M3, "the reader's type is the packer's");

static void load_vector(const vector_req *r, uint8_t *block) {
  float *dst = (float *)(void *)(block + r->offset);
  if (!r->row_of) {
    df_dequant((df_dtype)r->view.dtype, r->view.data, r->n, dst);
  } else {
    const size_t size = r->view.n_bytes / r->n;
    for (uint32_t i = 0; i < r->n; i++)
      df_dequant((df_dtype)r->view.dtype, (const uint8_t *)r->view.data + r->row_of[i] * size, 1, dst + i);
  }
  *r->dst = dst;
}

static df_status pack_all(const df_loader *l, df_progress_fn progress, void *user, df_error *err) {
  uint32_t max_k = 0;
  bool f8 = false;
  for (size_t i = 0; i < l->n_m; i++) {
    max_k = DF_MAX(max_k, l->m[i].w.k);
    f8 |= l->m[i].view.dtype == DF_F8;
  }
  float *rows = NULL;
  if (l->exact || l->rounds || f8) { /* rounded rows take less than floats do */
    rows = df_alloc((size_t)df_pool_threads(l->pool) * DF_LANES * max_k * 2 * sizeof *rows);
    if (!rows) return DF_OOM(err, "conversion rows", max_k);
  }
  df_status s = DF_OK;
  size_t done = 0;
  for (size_t i = 0; i < l->n_m && s == DF_OK; i++) {
    const matrix_req *r = &l->m[i];
    if (r->view.dtype == DF_F8) {
      s = df_f8_check(&r->view, err);
      if (s != DF_OK) break;
    }
    pack_job job = job_of(l, r, rows);
    df_pool_for(l->pool, (df_strips(r->w.n) + STRIPS_PER_TASK - 1) / STRIPS_PER_TASK, pack_task, &job);
    df_source_drop(l->src, &r->view);
    if (i % DROP_EVERY == DROP_EVERY - 1) df_source_drop_all(l->src); /* what reading ahead mapped meanwhile */
    done += r->w.strip_bytes * df_strips(r->w.n);
    if (progress && !progress(user, (double)done / (double)l->bytes))
      s = DF_FAIL(err, DF_ERR_CANCELLED, "loading was cancelled");
  }
  df_free(rows);
  return s;
}

/* Nothing to do on the host. */
static df_status map_block(const df_loader *l, uint8_t *block, size_t bytes, df_error *err) {
  if (df_device_is_host(l->device)) return DF_OK;
  df_weights *w = df_alloc((l->n_m ? l->n_m : 1) * sizeof *w);
  if (!w) return DF_OOM(err, "the list of matrices", l->n_m * sizeof *w);
  for (size_t i = 0; i < l->n_m; i++) w[i] = l->m[i].w;
  const df_status s = l->device->ops->map_weights(l->device, block, bytes, w, l->n_m, l->what, err);
  df_free(w);
  return s;
}

/* ---- kept between starts -------------------------------------------------------------------------------- */

/* Everything that the packed matrices depend on besides the file's bytes. */
static uint64_t hash_requests(const df_loader *l) {
  enum { LAYOUT = 1 }; /* of kernels/layout.h: to be raised when it changes */
  uint64_t h = df_hash_bytes(&l->bytes, sizeof l->bytes, LAYOUT);
  for (size_t i = 0; i < l->n_m; i++) {
    const matrix_req *r = &l->m[i];
    const uint64_t v[] = {
        (uint64_t)r->view.dtype,    r->w.pack, r->w.n,      r->w.k, r->w.strip_bytes, r->offset, r->round,
        r->round ? l->round_to : 0, l->exact,  r->row_bytes};
    h = df_hash_bytes(v, sizeof v, h);
    h = df_hash_bytes(r->view.name, strlen(r->view.name), h);
    if (r->row_of) h = df_hash_bytes(r->row_of, r->w.n * sizeof *r->row_of, h);
  }
  return h;
}

static bool cache_place(const df_loader *l, df_pack_cache *c) {
  const df_gguf *g = df_source_gguf(l->src);
  if (!l->cache_dir || !g) return false;
  const char *path = df_source_path(l->src);
  const uint64_t requests = hash_requests(l), stamp = df_gguf_stamp(g);
  return df_pack_cache_at(c, l->cache_dir, path, df_hash_bytes(path, strlen(path), requests),
                          df_hash_bytes(&stamp, sizeof stamp, requests));
}

static void bind_all(df_loader *l, uint8_t *block) {
  for (size_t i = 0; i < l->n_m; i++) {
    l->m[i].w.data = block + l->m[i].offset;
    *l->m[i].dst = l->m[i].w;
  }
}

/* From the file that was kept, or packed and then kept. */
static df_status fill_block(df_loader *l, uint8_t *block, df_progress_fn progress, void *user, df_error *err) {
  df_pack_cache c;
  const bool keep = cache_place(l, &c);
  bind_all(l, block);
  l->was_cached = keep && df_pack_cache_read(&c, l->pool, block, l->bytes);
  if (l->was_cached) return DF_OK;
  DF_TRY(pack_all(l, progress, user, err));
  if (keep && !df_pack_cache_write(&c, l->pool, block, l->bytes))
    df_log(DF_LOG_WARN, "could not keep packed weights in \"%s\"", c.path);
  return DF_OK;
}

/* Room for the weights and all that will come beside them. */
static df_status check_room(const df_loader *l, size_t bytes, df_error *err) {
  char what[240];
  if (!l->device) return DF_OK;
  if (!l->also) return l->device->ops->fits(l->device, bytes, l->what, err);
  (void)snprintf(what, sizeof what, "%s (%.1f MiB), %s", l->what, (double)bytes / (1024.0 * 1024.0), l->also_text);
  return l->device->ops->fits(l->device, bytes + l->also, what, err);
}

df_status df_loader_run(df_loader *l, df_progress_fn progress, void *user, void **block, size_t *block_bytes,
                        df_error *err) {
  const size_t bytes = l->bytes ? l->bytes : 64;
  DF_TRY(check_room(l, bytes, err));
  uint8_t *b = df_pages_alloc_huge(bytes);
  if (!b) return DF_OOM(err, "packed weights", l->bytes);
  df_status s = fill_block(l, b, progress, user, err);
  if (s == DF_OK) {
    for (size_t i = 0; i < l->n_v; i++) load_vector(&l->v[i], b);
    df_source_drop_all(l->src);
    s = map_block(l, b, bytes, err);
  }
  if (s != DF_OK) {
    df_pages_free(b, bytes);
    return s;
  }
  *block = b;
  *block_bytes = bytes;
  return DF_OK;
}
