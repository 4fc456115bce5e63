/* dflash pull: models into the cache. */
#include <ctype.h>
#include <dirent.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "cli/interrupt.h"
#include "cli/pull.h"
#include "format/json.h"

/* Text after the last '/' of the path of a URL, percent signs decoded. False when there is none. */
static bool url_file_name(const char *url, char *out, size_t cap) {
  size_t end = strcspn(url, "?#"), start = end;
  while (start > 0 && url[start - 1] != '/') start--;
  size_t o = 0;
  for (size_t i = start; i < end && o + 1 < cap; i++) {
    if (url[i] == '%' && i + 2 < end && isxdigit((unsigned char)url[i + 1]) && isxdigit((unsigned char)url[i + 2])) {
      char hex[3] = {url[i + 1], url[i + 2], '\0'};
      out[o++] = (char)strtol(hex, NULL, 16);
      i += 2;
    } else {
      out[o++] = url[i];
    }
  }
  out[o] = '\0';
  return df_name_is_safe(out) && strchr(out, '/') == NULL && strlen(out) == o;
}

/* ENDPOINT/org/name/resolve|blob/REV/file is the same as org/name:file (for the main revision). */
static bool repo_of_url(const char *url, char *out, size_t cap) {
  const char *endpoint = getenv("HF_ENDPOINT");
  if (!endpoint || !*endpoint) endpoint = "https://huggingface.co";
  size_t n = strlen(endpoint);
  while (n > 0 && endpoint[n - 1] == '/') n--;
  if (strncmp(url, endpoint, n) != 0 || url[n] != '/') return false;
  const char *org = url + n + 1, *name = strchr(org, '/');
  const char *kind = name ? strchr(name + 1, '/') : NULL;
  if (!kind) return false;
  const char *file = NULL;
  if (strncmp(kind, "/resolve/main/", 14) == 0)
    file = kind + 14;
  else if (strncmp(kind, "/blob/main/", 11) == 0)
    file = kind + 11;
  if (!file || !*file) return false;
  return snprintf(out, cap, "%.*s:%.*s", (int)(kind - org), org, (int)strcspn(file, "?#"), file) < (int)cap;
}

static df_status pull(df_pull *p, const char *what, df_error *err) {
  const char *sha256 = df_opt_text(&p->cli->opts, OPT_SHA256, NULL);
  char text[1024];
  if (sha256 && !df_is_sha256(sha256)) return DF_FAIL(err, DF_ERR_ARGUMENT, "--sha256 needs 64 hexadecimal digits");
  const df_known_model *k = df_known_find(what);
  if (k) return df_pull_known(p, k, err);
  if (strncmp(what, "https://", 8) == 0 || strncmp(what, "http://", 7) == 0) {
    if (repo_of_url(what, text, sizeof text)) return df_pull_repo(p, text, sha256, err);
    if (!url_file_name(what, text, sizeof text))
      return DF_FAIL(err, DF_ERR_ARGUMENT, "the address \"%.200s\" does not end in a usable file name", what);
    return df_pull_url(p, what, text, sha256, NULL, err);
  }
  if (df_is_repo_spec(what)) return df_pull_repo(p, what, sha256, err);
  df_status st = DF_FAIL(err, DF_ERR_ARGUMENT, "unknown model \"%.100s\"", what);
  df_error_hint(err, "known: %s, %s; or an https address, or ORG/NAME[:FILE]", df_known_models[0].name,
                df_known_models[1].name);
  return st;
}

/* Adds the model files below `dir` (cache-relative name `rel`) that no known model owns. */
static void list_others(df_table *t, const char *dir, const char *rel, int depth) {
  DIR *d = opendir(dir);
  if (!d) return;
  const struct dirent *e;
  while ((e = readdir(d)) != NULL) {
    char path[4096], name[1024], size[32];
    struct stat sb;
    bool known = false;
    if (e->d_name[0] == '.' || snprintf(path, sizeof path, "%s/%s", dir, e->d_name) >= (int)sizeof path ||
        snprintf(name, sizeof name, "%s%s%s", rel, *rel ? "/" : "", e->d_name) >= (int)sizeof name ||
        stat(path, &sb) != 0)
      continue;
    if (S_ISDIR(sb.st_mode) && depth > 0) list_others(t, path, name, depth - 1);
    for (unsigned i = 0; i < df_known_model_count; i++) known = known || strcmp(df_known_models[i].file, name) == 0;
    size_t n = strlen(name);
    bool model =
        (n > 5 && strcmp(name + n - 5, ".gguf") == 0) || (n > 12 && strcmp(name + n - 12, ".safetensors") == 0);
    bool part = n > 11 && strcmp(name + n - 11, ".incomplete") == 0;
    if (known || !S_ISREG(sb.st_mode) || (!model && !part)) continue;
    df_format_bytes(size, sizeof size, (uint64_t)sb.st_size);
    df_table_add(t, name, size, part ? "incomplete" : "yes", "");
  }
  (void)closedir(d);
}

static int list(df_pull *p) {
  static const char *const head[] = {"name", "size", "cached", "what"};
  df_table t;
  df_table_init(&t, 4, head, "lrll");
  for (unsigned i = 0; i < df_known_model_count; i++) {
    const df_known_model *k = &df_known_models[i];
    char size[32], path[4096], what[256];
    df_format_bytes(size, sizeof size, k->bytes);
    (void)snprintf(path, sizeof path, "%s/%s", p->cache, k->file);
    int64_t have = df_file_bytes(path);
    (void)snprintf(what, sizeof what, "%s (%s); draft %s", k->summary, k->licence, k->draft);
    df_table_add(&t, k->name, size, have == (int64_t)k->bytes ? "yes" : have >= 0 ? "damaged" : "no", what);
  }
  list_others(&t, p->cache, "", 3);
  df_table_print(&t, stdout, 0, df_term_out(&p->cli->term, DF_STYLE_BOLD), df_term_out(&p->cli->term, DF_STYLE_RESET));
  df_table_release(&t);
  printf("\ncache folder: %s\n", p->cache);
  return DF_EXIT_OK;
}

static df_status report(const df_pull *p, df_error *err) {
  char size[32];
  df_format_bytes(size, sizeof size, p->bytes);
  if (!df_opt_on(&p->cli->opts, OPT_JSON, false)) {
    fprintf(stderr, "%s, %s\n", p->found ? "already in the cache" : "done", size);
    printf("%s\n", p->path);
    return DF_OK;
  }
  df_buf b;
  df_json_out w;
  df_buf_init(&b, 0);
  df_json_out_begin(&w, &b, err);
  df_json_out_object(&w);
  df_json_out_key(&w, "path"), df_json_out_cstr(&w, p->path);
  df_json_out_key(&w, "bytes"), df_json_out_u64(&w, p->bytes);
  df_json_out_key(&w, "sha256");
  if (p->sha256[0])
    df_json_out_cstr(&w, p->sha256);
  else
    df_json_out_null(&w);
  df_json_out_key(&w, "cached"), df_json_out_bool(&w, p->found);
  df_json_out_close(&w);
  df_status st = df_json_out_end(&w);
  if (st == DF_OK) puts(b.data);
  df_buf_release(&b);
  return st;
}

int df_verb_pull(df_cli *cli) {
  const df_opts *o = &cli->opts;
  df_pull p = {.cli = cli};
  df_error err;
  const char *hub_offline = getenv("HF_HUB_OFFLINE");
  p.offline = df_opt_on(o, OPT_OFFLINE, hub_offline && *hub_offline && strcmp(hub_offline, "0") != 0);
  df_status st = df_cache_dir(o, &p.cache, &err);
  if (st == DF_OK && df_opt_on(o, OPT_LIST, false)) {
    int status = list(&p);
    df_free(p.cache);
    return status;
  }
  if (st == DF_OK && o->n_pos == 0) {
    st = DF_FAIL(&err, DF_ERR_ARGUMENT, "no model named");
    df_error_hint(&err, "dflash pull %s; \"dflash pull --list\" shows what there is", df_known_models[0].name);
  }
  if (st == DF_OK) {
    df_interrupt_install();
    (void)signal(SIGXFSZ, SIG_IGN); /* a file size limit is an error of the write, not a crash */
    st = pull(&p, o->pos[0], &err);
  }
  if (st == DF_OK) st = report(&p, &err);
  df_free(p.cache);
  if (st == DF_OK) return DF_EXIT_OK;
  int status = df_cli_report(cli, &err);
  return st == DF_ERR_CANCELLED ? DF_EXIT_INTERRUPTED : status;
}
