/* dflash inspect: what is in a model file, and whether a draft fits a target. */
#include <string.h>
#include <sys/stat.h>

#include "base/mem.h"
#include "cli/cli_model.h"
#include "cli/inspect.h"
#include "cli/known.h"
#include "format/path.h"
#include "model/vocab.h"

static bool has_gguf_magic(const char *path) {
  char magic[4] = "";
  FILE *f = fopen(path, "rb");
  if (!f) return false;
  bool yes = fread(magic, 1, 4, f) == 4 && memcmp(magic, "GGUF", 4) == 0;
  (void)fclose(f);
  return yes;
}

/* 0 when the file carries no tokenizer; one that is broken is not stated either. */
static uint64_t tokenizer_hash(const df_subject *s) {
  df_tokenizer *t = NULL;
  df_status st = DF_ERR_FORMAT;
  if (s->gguf) {
    if (df_gguf_has(s->gguf, "tokenizer.ggml.tokens")) st = df_vocab_from_gguf(s->gguf, &t, NULL);
  } else {
    char *json = NULL;
    if (df_path_join(s->path, "tokenizer.json", &json, NULL) == DF_OK && df_path_exists(json))
      st = df_vocab_open(s->path, &t, NULL);
    df_free(json);
  }
  uint64_t h = st == DF_OK ? df_tokenizer_hash(t) : 0;
  df_tokenizer_free(t);
  return h;
}

df_status df_subject_open(df_subject *s, const char *path, df_error *err) {
  *s = (df_subject){0};
  df_error why = {0};
  s->path = df_strdup(path);
  if (!s->path) return DF_OOM(err, "a file name", strlen(path) + 1);
  df_status st = DF_OK;
  if (has_gguf_magic(path)) st = df_gguf_open(path, &s->gguf, err);
  if (st == DF_OK) {
    df_status open = df_source_open(path, &s->source, &why);
    if (open != DF_OK && !s->gguf) {
      st = open;
      if (err) *err = why;
    } else if (open != DF_OK) {
      (void)snprintf(s->why, sizeof s->why, "%s", why.msg);
    }
  }
  if (st == DF_OK)
    s->tok_hash = tokenizer_hash(s);
  else
    df_subject_close(s);
  return st;
}

void df_subject_close(df_subject *s) {
  df_source_close(s->source);
  df_gguf_free(s->gguf);
  df_free(s->path);
  *s = (df_subject){0};
}

size_t df_subject_tensors(const df_subject *s) {
  return s->gguf ? df_gguf_tensor_count(s->gguf) : s->source ? df_source_count(s->source) : 0;
}

df_tensor_row df_subject_tensor(const df_subject *s, size_t i) {
  df_tensor_row r = {.n_values = 1};
  int type;
  if (s->gguf) {
    const df_gguf_tensor *t = df_gguf_tensor_at(s->gguf, i);
    r.name = t->name;
    r.n_dims = t->n_dims;
    memcpy(r.dims, t->dims, sizeof r.dims);
    r.n_bytes = t->n_bytes;
    type = t->type;
  } else {
    df_tensor_view v;
    df_source_at(s->source, i, &v);
    r.name = v.name;
    r.n_dims = v.n_dims;
    memcpy(r.dims, v.dims, sizeof r.dims);
    r.n_bytes = v.n_bytes;
    type = v.dtype;
  }
  r.type = type == DF_TENSOR_F8_E4M3 ? "F8_E4M3" : df_gguf_dtype_name(type);
  if (!r.type) r.type = "unknown";
  for (uint32_t d = 0; d < r.n_dims && d < 4; d++) r.n_values *= r.dims[d];
  return r;
}

const char *df_gguf_kind_text(const df_gguf_kv *kv, char *buf, size_t cap) {
  static const char *const names[] = {"u8",   "i8",     "u16",   "i16", "u32", "i32", "f32",
                                      "bool", "string", "array", "u64", "i64", "f64"};
  const char *elem = (unsigned)kv->elem < sizeof names / sizeof names[0] ? names[kv->elem] : "unknown";
  if (kv->type != DF_GGUF_ARRAY) return elem;
  (void)snprintf(buf, cap, "%s[%llu]", elem, (unsigned long long)kv->count);
  return buf;
}

/* Compares with -m; *status becomes 1 when it does not fit. */
static df_status compare(df_cli *cli, const df_subject *s, df_fit_report *report, int *status, df_error *err) {
  df_subject target;
  char *path = NULL;
  if (!s->source) return DF_FAIL(err, DF_ERR_UNSUPPORTED, "%s", s->why);
  DF_TRY(df_target_resolve(&cli->opts, df_opt_text(&cli->opts, OPT_MODEL, NULL), &path, err));
  df_status st = df_subject_open(&target, path, err);
  df_free(path);
  if (st != DF_OK) return st;
  if (!target.source) {
    st = DF_FAIL(err, DF_ERR_UNSUPPORTED, "%s", target.why);
  } else {
    df_status fit = df_draft_check_fit(df_source_config(target.source), df_source_config(s->source), target.tok_hash,
                                       s->tok_hash, report, NULL);
    *status = fit == DF_OK ? DF_EXIT_OK : DF_EXIT_FAILURE;
  }
  df_subject_close(&target);
  return st;
}

int df_verb_inspect(df_cli *cli) {
  const df_opts *o = &cli->opts;
  df_subject s = {0};
  df_fit_report report;
  df_error err;
  char *path = NULL;
  int status = DF_EXIT_OK;
  df_status st;
  bool fit = o->n_pos == 1 && df_opt_given(o, OPT_MODEL), full = df_opt_on(o, OPT_FULL, false);
  const char *name = o->n_pos ? o->pos[0] : df_opt_text(o, OPT_MODEL, NULL);
  if (!name) {
    (void)DF_FAIL(&err, DF_ERR_ARGUMENT, "no file given");
    df_error_hint(&err, "usage: dflash inspect FILE [-m TARGET]");
    return df_cli_report(cli, &err);
  }
  /* Targets and drafts may both be named; a draft's name is tried when the first does not exist. */
  if (df_target_resolve(o, name, &path, NULL) != DF_OK) DF_TRY_GOTO(st, df_draft_resolve(o, name, &path, &err), done);
  DF_TRY_GOTO(st, df_subject_open(&s, path, &err), done);
  if (fit) DF_TRY_GOTO(st, compare(cli, &s, &report, &status, &err), done);
  if (df_opt_on(o, OPT_JSON, false))
    st = df_inspect_json(&s, fit ? &report : NULL, full, &err);
  else
    df_inspect_text(&s, fit ? &report : NULL, cli, full);
done:
  if (st != DF_OK) status = df_cli_report(cli, &err);
  df_subject_close(&s);
  df_free(path);
  return status;
}
