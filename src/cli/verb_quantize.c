/* dflash quantize: a GGUF file with its matrices rounded to another type; everything else is copied. */
#include <fnmatch.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/mem.h"
#include "base/size.h"
#include "cli/interrupt.h"
#include "cli/known.h"
#include "cli/verbs.h"
#include "format/gguf.h"
#include "kernels/encode.h"

enum { MOST_RULES = 16 };

/* "TYPE" for all matrices, or "PATTERN=TYPE"; later rules win. */
typedef struct rule {
  char pattern[64];
  int dtype;
} rule;

typedef struct quantizer {
  df_gguf *in;
  df_gguf_writer *out;
  rule rules[MOST_RULES];
  uint32_t n_rules;
  float *row;     /* owned: one tensor's values */
  uint8_t *bytes; /* owned: the same, encoded */
  df_progress bar;
  uint64_t done, total;
  double error, power; /* squared, over all rounded matrices */
} quantizer;

static df_status parse_rules(quantizer *q, const char *text, df_error *err) {
  for (const char *p = text; *p;) {
    const size_t len = strcspn(p, ",");
    const char *eq = memchr(p, '=', len), *name = eq ? eq + 1 : p;
    rule *r = &q->rules[q->n_rules];
    if (q->n_rules == MOST_RULES) return DF_FAIL(err, DF_ERR_ARGUMENT, "more than %d types", MOST_RULES);
    const size_t width = eq ? (size_t)(eq - p) : 1;
    r->dtype = df_encode_type_named(name, len - (size_t)(name - p));
    if (r->dtype < 0 || width >= sizeof r->pattern) {
      (void)DF_FAIL(err, DF_ERR_ARGUMENT, "\"%.*s\" names no type that can be written", (int)len, p);
      df_error_hint(err, "Q4_0, Q4_1, Q8_0 or F32 for all matrices, or PATTERN=TYPE, separated by commas");
      return DF_ERR_ARGUMENT;
    }
    memcpy(r->pattern, eq ? p : "*", width);
    r->pattern[width] = '\0';
    q->n_rules++;
    p += len + (p[len] == ',');
  }
  return q->n_rules ? DF_OK : DF_FAIL(err, DF_ERR_ARGUMENT, "no type is given");
}

/* The type a tensor will have. Vectors keep theirs: their few values are worth every bit. */
static int type_of(const quantizer *q, const df_gguf_tensor *t) {
  uint32_t values, bytes;
  int type = t->type;
  if (t->n_dims != 2 || !df_dtype_block(t->type, &values, &bytes)) return type;
  for (uint32_t i = 0; i < q->n_rules; i++)
    if (fnmatch(q->rules[i].pattern, t->name, 0) == 0) type = q->rules[i].dtype;
  return df_dtype_block(type, &values, &bytes) && t->dims[0] % values == 0 ? type : t->type;
}

static df_status fill(void *user, const char *name, size_t n_bytes, const void **data, df_error *err) {
  quantizer *q = user;
  const df_gguf_tensor *t = df_gguf_tensor_find(q->in, name);
  const int type = type_of(q, t);
  if (type == t->type) {
    *data = t->data;
    return DF_OK;
  }
  df_free(q->row);
  df_free(q->bytes);
  q->row = df_alloc(t->n_values * sizeof *q->row);
  q->bytes = df_alloc(n_bytes);
  if (!q->row || !q->bytes) return DF_OOM(err, name, t->n_values * sizeof *q->row);
  df_dequant((df_dtype)t->type, t->data, t->n_values, q->row);
  for (uint64_t r = 0; r < t->dims[1]; r++) {
    const size_t row_bytes = n_bytes / t->dims[1];
    df_encode((df_dtype)type, q->row + r * t->dims[0], t->dims[0], q->bytes + r * row_bytes);
    q->done += t->dims[0];
    if (r % 64 == 0) df_progress_update(&q->bar, q->done);
    if (df_interrupted) return DF_FAIL(err, DF_ERR_CANCELLED, "interrupted");
  }
  float block[256];
  uint32_t values, bytes;
  (void)df_dtype_block(type, &values, &bytes);
  for (uint64_t i = 0; i < t->n_values; i += values) {
    df_dequant((df_dtype)type, q->bytes + i / values * bytes, values, block);
    for (uint32_t k = 0; k < values; k++) {
      const double d = (double)q->row[i + k] - block[k];
      q->error += d * d;
      q->power += (double)q->row[i + k] * q->row[i + k];
    }
  }
  *data = q->bytes;
  return DF_OK;
}

static df_status copy_keys(quantizer *q, df_error *err) {
  for (size_t i = 0; i < df_gguf_kv_count(q->in); i++) {
    const df_gguf_kv *kv = df_gguf_kv_at(q->in, i);
    if (strcmp(kv->key, "general.file_type") == 0) continue; /* it would not be true any more */
    DF_TRY(df_gguf_put_kv(q->out, kv, err));
  }
  return DF_OK;
}

static df_status put_tensors(quantizer *q, df_error *err) {
  for (size_t i = 0; i < df_gguf_tensor_count(q->in); i++) {
    const df_gguf_tensor *t = df_gguf_tensor_at(q->in, i);
    const int type = type_of(q, t);
    if (type != t->type) q->total += t->n_values;
    if (!t->data && t->n_values)
      return DF_FAIL(err, DF_ERR_UNSUPPORTED, "tensor \"%s\" has a type nobody knows", t->name);
    DF_TRY(df_gguf_put_tensor(q->out, t->name, type, t->n_dims, t->dims, NULL, err));
  }
  return DF_OK;
}

/* The input is mapped while the output is written: they may not be one file, whatever names lead to it. */
static df_status refuse_same(const char *in, const char *out, df_error *err) {
  struct stat a, b;
  if (stat(in, &a) != 0 || stat(out, &b) != 0 || a.st_dev != b.st_dev || a.st_ino != b.st_ino) return DF_OK;
  return DF_FAIL(err, DF_ERR_ARGUMENT, "\"%s\" is the input file itself; name another file for the output", out);
}

static df_status quantize(quantizer *q, df_cli *cli, df_error *err) {
  const df_opts *o = &cli->opts;
  if (o->n_pos != 3)
    return DF_FAIL(err, DF_ERR_ARGUMENT, "usage: dflash quantize IN.gguf OUT.gguf TYPE[,PATTERN=TYPE...]");
  DF_TRY(parse_rules(q, o->pos[2], err));
  DF_TRY(refuse_same(o->pos[0], o->pos[1], err));
  DF_TRY(df_gguf_open(o->pos[0], &q->in, err));
  DF_TRY(df_gguf_writer_create(&q->out, err));
  DF_TRY(copy_keys(q, err));
  DF_TRY(put_tensors(q, err));
  df_progress_begin(&q->bar, &cli->term, "rounding", q->total, 0, false);
  const df_status st = df_gguf_write_file(q->out, fill, q, o->pos[1], err);
  df_progress_end(&q->bar);
  if (st != DF_OK) return st;
  char before[32], after[32];
  df_format_grouped(before, sizeof before, (uint64_t)df_file_bytes(o->pos[0]));
  df_format_grouped(after, sizeof after, (uint64_t)df_file_bytes(o->pos[1]));
  printf("%s: %s bytes, before %s; squared error %.3g of the rounded weights\n", o->pos[1], after, before,
         q->power > 0 ? q->error / q->power : 0);
  return DF_OK;
}

int df_verb_quantize(df_cli *cli) {
  quantizer q = {0};
  df_error err;
  df_interrupt_install();
  const df_status st = quantize(&q, cli, &err);
  df_free(q.row);
  df_free(q.bytes);
  df_gguf_writer_free(q.out);
  df_gguf_free(q.in);
  if (st == DF_OK) return DF_EXIT_OK;
  return st == DF_ERR_CANCELLED && df_interrupted ? DF_EXIT_INTERRUPTED : df_cli_report(cli, &err);
}
