/* Files of model repositories: "org/name", "org/name:file", "org/name:quant". Host: HF_ENDPOINT. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/buf.h"
#include "cli/pull.h"
#include "format/json.h"

enum { NAME_CAP = 1200, MAX_FILES = 256 };

typedef struct repo {
  char endpoint[512], id[300]; /* "https://host", "org/name" */
  const char *token;
} repo;

static bool id_char(char c) { return isalnum((unsigned char)c) || c == '-' || c == '_' || c == '.'; }

bool df_is_repo_spec(const char *spec) {
  const char *slash = strchr(spec, '/');
  size_t n = strcspn(spec, ":");
  if (!slash || slash == spec || (size_t)(slash - spec) + 1 >= n || n >= 256) return false;
  for (size_t i = 0; i < n; i++) {
    if (!id_char(spec[i]) && spec + i != slash) return false;
  }
  return spec[0] != '.' && slash[1] != '.';
}

static void repo_open(repo *r, const char *spec) {
  const char *endpoint = getenv("HF_ENDPOINT"), *token = getenv("HF_TOKEN");
  (void)snprintf(r->endpoint, sizeof r->endpoint, "%s", endpoint && *endpoint ? endpoint : "https://huggingface.co");
  size_t n = strlen(r->endpoint);
  if (n && r->endpoint[n - 1] == '/') r->endpoint[n - 1] = '\0';
  (void)snprintf(r->id, sizeof r->id, "%.*s", (int)strcspn(spec, ":"), spec);
  r->token = token && *token ? token : NULL;
}

/* Percent-encodes what may not stand in a path. */
static void put_escaped(char *out, size_t cap, const char *s) {
  size_t o = 0;
  for (; *s && o + 4 < cap; s++) {
    if (id_char(*s) || *s == '/' || *s == '~')
      out[o++] = *s;
    else
      o += (size_t)snprintf(out + o, cap - o, "%%%02X", (unsigned char)*s);
  }
  out[o] = '\0';
}

static df_status fetch_one(df_pull *p, const repo *r, const char *file, const char *sha256, df_error *err) {
  char url[4096], rel[NAME_CAP + 320], escaped[3 * NAME_CAP];
  if (!df_name_is_safe(file))
    return DF_FAIL(err, DF_ERR_FORMAT, "the repository lists the unsafe file name \"%.200s\"", file);
  put_escaped(escaped, sizeof escaped, file);
  if (snprintf(url, sizeof url, "%s/%s/resolve/main/%s", r->endpoint, r->id, escaped) >= (int)sizeof url)
    return DF_FAIL(err, DF_ERR_ARGUMENT, "the file name is too long");
  (void)snprintf(rel, sizeof rel, "%s/%s", r->id, file);
  if (p->cli->term.err_tty || !df_opt_on(&p->cli->opts, OPT_JSON, false)) fprintf(stderr, "%s\n", rel);
  return df_pull_url(p, url, rel, sha256, r->token, err);
}

static bool ends_with(const char *s, const char *tail) {
  size_t n = strlen(s), m = strlen(tail);
  return n >= m && strcasecmp(s + n - m, tail) == 0;
}

static bool contains(const char *s, const char *part) {
  size_t n = strlen(part);
  for (; *s; s++) {
    if (strncasecmp(s, part, n) == 0) return true;
  }
  return false;
}

typedef struct listing {
  df_json *root;
  const char *file[MAX_FILES]; /* borrowed from root */
  size_t n;
} listing;

static df_status list_files(df_pull *p, const repo *r, listing *l, df_error *err) {
  char url[1024];
  df_buf text;
  *l = (listing){0};
  if (p->offline) {
    df_status off = DF_FAIL(err, DF_ERR_NETWORK, "could not list the files of \"%s\": offline mode is on", r->id);
    df_error_hint(err, "name the file, as in %.60s:FILE, or leave out --offline (unset HF_HUB_OFFLINE)", r->id);
    return off;
  }
  (void)snprintf(url, sizeof url, "%s/api/models/%s", r->endpoint, r->id);
  df_buf_init(&text, 0);
  df_status st = df_fetch_text(p, url, r->token, &text, err);
  if (st == DF_OK) st = df_json_parse(text.data, text.len, &l->root, err);
  if (st != DF_OK) df_error_prefix(err, "could not list the files of \"%s\"", r->id);
  df_buf_release(&text);
  if (st != DF_OK) return st;
  const df_json *siblings = df_json_member(l->root, "siblings");
  for (size_t i = 0; i < df_json_size(siblings) && l->n < MAX_FILES; i++) {
    size_t len = 0;
    const char *name = df_json_str(df_json_member(df_json_at(siblings, i), "rfilename"), &len);
    if (name && strlen(name) == len && len < NAME_CAP) l->file[l->n++] = name;
  }
  if (l->n) return DF_OK;
  df_json_free(l->root);
  l->root = NULL;
  return DF_FAIL(err, DF_ERR_FORMAT, "the server lists no files for \"%s\"", r->id);
}

/* Names some candidates: "a.gguf, b.gguf". */
static void name_some(const listing *l, const char *part, char *out, size_t cap) {
  size_t n = 0;
  out[0] = '\0';
  for (size_t i = 0; i < l->n && n < cap; i++) {
    if (!ends_with(l->file[i], ".gguf") || (part && !contains(l->file[i], part))) continue;
    n += (size_t)snprintf(out + n, cap - n, "%s%s", n ? ", " : "", l->file[i]);
  }
}

/* The files of a safetensors model that we read. */
static bool is_model_part(const char *f) {
  static const char *const names[] = {"config.json",           "generation_config.json", "tokenizer.json",
                                      "tokenizer_config.json", "chat_template.jinja",    "special_tokens_map.json"};
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
    if (strcmp(f, names[i]) == 0) return true;
  }
  return strchr(f, '/') == NULL && (ends_with(f, ".safetensors") || ends_with(f, ".safetensors.index.json"));
}

static df_status fetch_folder(df_pull *p, const repo *r, const listing *l, df_error *err) {
  uint64_t bytes = 0;
  bool found = true;
  for (size_t i = 0; i < l->n; i++) {
    if (!is_model_part(l->file[i])) continue;
    DF_TRY(fetch_one(p, r, l->file[i], NULL, err));
    bytes += p->bytes;
    found = found && p->found;
  }
  if (snprintf(p->path, sizeof p->path, "%s/%s", p->cache, r->id) >= (int)sizeof p->path)
    return DF_FAIL(err, DF_ERR_IO, "the name of the cache folder is too long");
  p->bytes = bytes;
  p->found = found;
  p->sha256[0] = '\0';
  return DF_OK;
}

static df_status choose(df_pull *p, const repo *r, const listing *l, const char *part, const char *sha256,
                        df_error *err) {
  const char *match = NULL;
  size_t n = 0, weights = 0;
  for (size_t i = 0; i < l->n; i++) {
    if (part && strcmp(l->file[i], part) == 0) return fetch_one(p, r, l->file[i], sha256, err);
    weights += ends_with(l->file[i], ".safetensors");
    if (!ends_with(l->file[i], ".gguf") || (part && !contains(l->file[i], part))) continue;
    match = l->file[i];
    n++;
  }
  if (n == 1) return fetch_one(p, r, match, sha256, err);
  if (n == 0 && !part && weights) return fetch_folder(p, r, l, err);
  char some[256];
  name_some(l, n ? part : NULL, some, sizeof some);
  df_status st;
  if (n == 0)
    st = DF_FAIL(err, DF_ERR_ARGUMENT, "\"%s\" has no file for \"%s\"", r->id, part ? part : "GGUF");
  else
    st = DF_FAIL(err, DF_ERR_ARGUMENT, "\"%s\" has %zu files that fit", r->id, n);
  df_error_hint(err, "name one: %s:FILE, of %s", r->id, some[0] ? some : "its file list");
  return st;
}

df_status df_pull_repo(df_pull *p, const char *spec, const char *sha256, df_error *err) {
  repo r;
  listing l;
  repo_open(&r, spec);
  const char *colon = strchr(spec, ':'), *part = colon ? colon + 1 : NULL;
  if (part && (!*part || !df_name_is_safe(part)))
    return DF_FAIL(err, DF_ERR_ARGUMENT, "\"%.200s\" cannot be a file name", part);
  if (part && (ends_with(part, ".gguf") || ends_with(part, ".safetensors") || ends_with(part, ".json")))
    return fetch_one(p, &r, part, sha256, err);
  DF_TRY(list_files(p, &r, &l, err));
  df_status st = choose(p, &r, &l, part, sha256, err);
  df_json_free(l.root);
  return st;
}
