/* Files over HTTP: redirects followed by hand (never to plain http of another place), resume with Range, the server's
 * checksum when it states one. */
#include <curl/curl.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/mem.h"
#include "cli/cli_text.h"
#include "cli/interrupt.h"
#include "cli/pull.h"

enum { MAX_HOPS = 8, MAX_TRIES = 4, URL_CAP = 4096, MAX_DOCUMENT = 32 << 20 };

/* What the headers of one response said. */
typedef struct reply {
  long code;
  char etag[160], linked_etag[160];
  int64_t length, linked_size; /* -1: not stated */
  int64_t range_start;         /* of Content-Range, -1: none */
  char location[URL_CAP];      /* absolute, "" when it is no redirect */
} reply;

typedef struct transfer {
  df_pull *p;
  CURL *curl;
  reply r;
  FILE *out;    /* where the body goes, or NULL */
  df_buf *text; /* or here */
  int write_errno;
  uint64_t have; /* bytes in the file so far */
  bool started;  /* the first piece of the body came */
  bool unwanted; /* the body is another part than asked for */
  df_progress bar;
} transfer;

/* ---- callbacks ---- */

static void take_value(char *out, size_t cap, const char *p, size_t n) {
  while (n > 0 && (*p == ' ' || *p == '\t')) p++, n--;
  if (n >= 2 && p[0] == 'W' && p[1] == '/') p += 2, n -= 2;
  while (n > 0 && (p[n - 1] == '\r' || p[n - 1] == '\n' || p[n - 1] == ' ')) n--;
  if (n >= 2 && p[0] == '"' && p[n - 1] == '"') p++, n -= 2;
  (void)snprintf(out, cap, "%.*s", (int)n, p);
}

static size_t on_header(char *p, size_t size, size_t count, void *user) {
  transfer *t = user;
  size_t n = size * count;
  if (n >= 5 && strncasecmp(p, "HTTP/", 5) == 0) {
    t->r = (reply){.length = -1, .linked_size = -1, .range_start = -1};
    return n;
  }
  const char *colon = memchr(p, ':', n);
  if (!colon) return n;
  size_t name = (size_t)(colon - p), rest = n - name - 1;
  char value[160];
  take_value(value, sizeof value, colon + 1, rest);
  if (name == 4 && strncasecmp(p, "etag", 4) == 0)
    (void)snprintf(t->r.etag, sizeof t->r.etag, "%s", value);
  else if (name == 13 && strncasecmp(p, "x-linked-etag", 13) == 0)
    (void)snprintf(t->r.linked_etag, sizeof t->r.linked_etag, "%s", value);
  else if (name == 13 && strncasecmp(p, "x-linked-size", 13) == 0)
    t->r.linked_size = strtoll(value, NULL, 10);
  else if (name == 14 && strncasecmp(p, "content-length", 14) == 0)
    t->r.length = strtoll(value, NULL, 10);
  else if (name == 13 && strncasecmp(p, "content-range", 13) == 0 && strncasecmp(value, "bytes ", 6) == 0)
    t->r.range_start = strtoll(value + 6, NULL, 10);
  return n;
}

static size_t on_body(char *p, size_t size, size_t count, void *user) {
  transfer *t = user;
  size_t n = size * count;
  long code = 0;
  (void)curl_easy_getinfo(t->curl, CURLINFO_RESPONSE_CODE, &code);
  if (code < 200 || code >= 300) return n; /* an error page is not the file */
  if (t->text) return df_buf_put(t->text, p, n, NULL) == DF_OK ? n : 0;
  if (!t->out) return n;
  if (!t->started && code == 206) t->unwanted = t->r.range_start != (int64_t)t->have;
  if (!t->started && code == 200 && t->have > 0) { /* the server does not know ranges: from the start */
    if (fflush(t->out) != 0 || ftruncate(fileno(t->out), 0) != 0) t->unwanted = true;
    t->have = 0;
  }
  t->started = true;
  if (t->unwanted) return 0;
  errno = 0;
  if (fwrite(p, 1, n, t->out) != n || fflush(t->out) != 0) {
    t->write_errno = errno ? errno : EIO;
    return 0;
  }
  t->have += n;
  df_progress_update(&t->bar, t->have);
  return n;
}

static int on_progress(void *user, curl_off_t a, curl_off_t b, curl_off_t c, curl_off_t d) {
  (void)user, (void)a, (void)b, (void)c, (void)d;
  return df_interrupted ? 1 : 0;
}

/* ---- addresses ---- */

typedef struct address {
  char scheme[16], host[256], port[8];
} address;

static bool address_of(const char *url, address *out) {
  CURLU *u = curl_url();
  char *scheme = NULL, *host = NULL, *port = NULL;
  bool ok = u && curl_url_set(u, CURLUPART_URL, url, 0) == CURLUE_OK &&
            curl_url_get(u, CURLUPART_SCHEME, &scheme, 0) == CURLUE_OK &&
            curl_url_get(u, CURLUPART_HOST, &host, 0) == CURLUE_OK &&
            curl_url_get(u, CURLUPART_PORT, &port, CURLU_DEFAULT_PORT) == CURLUE_OK;
  if (ok) {
    (void)snprintf(out->scheme, sizeof out->scheme, "%s", scheme);
    (void)snprintf(out->host, sizeof out->host, "%s", host);
    (void)snprintf(out->port, sizeof out->port, "%s", port);
  }
  curl_free(scheme);
  curl_free(host);
  curl_free(port);
  curl_url_cleanup(u);
  return ok;
}

static bool is_loopback(const address *a) {
  return strcmp(a->host, "localhost") == 0 || strncmp(a->host, "127.", 4) == 0 || strcmp(a->host, "[::1]") == 0;
}

/* https anywhere; plain http only on this machine. */
static df_status check_url(const char *url, address *a, df_error *err) {
  if (strlen(url) >= URL_CAP) return DF_FAIL(err, DF_ERR_ARGUMENT, "the address is too long");
  if (!address_of(url, a)) return DF_FAIL(err, DF_ERR_ARGUMENT, "\"%.200s\" is no address", url);
  if (strcmp(a->scheme, "https") == 0) return DF_OK;
  if (strcmp(a->scheme, "http") != 0)
    return DF_FAIL(err, DF_ERR_ARGUMENT, "\"%.200s\": only https addresses can be fetched", url);
  if (is_loopback(a)) return DF_OK;
  df_status st =
      DF_FAIL(err, DF_ERR_NETWORK, "\"%.200s\": plain http is refused, anyone on the way could change the file", url);
  df_error_hint(err, "use the https address");
  return st;
}

static df_status check_redirect(const char *from, const char *to, df_error *err) {
  address a, b;
  if (!address_of(from, &a) || !address_of(to, &b))
    return DF_FAIL(err, DF_ERR_NETWORK, "\"%.100s\" redirects to \"%.100s\", which is no address", from, to);
  if (strcmp(b.scheme, "https") == 0) return DF_OK;
  bool same = strcmp(a.scheme, b.scheme) == 0 && strcmp(a.host, b.host) == 0 && strcmp(a.port, b.port) == 0;
  if (strcmp(b.scheme, "http") == 0 && same) return DF_OK; /* a loopback server that stays where it is */
  return DF_FAIL(err, DF_ERR_NETWORK, "\"%.100s\" redirects to \"%.100s\": refused, it is not https", from, to);
}

/* ---- one request ---- */

static df_status http_failed(const char *url, long code, df_error *err) {
  df_status st = DF_FAIL(err, DF_ERR_NETWORK, "could not fetch \"%.300s\": the server answers %ld", url, code);
  if (code == 401 || code == 403)
    df_error_hint(err, "it needs an access token: set HF_TOKEN");
  else if (code == 404)
    df_error_hint(err, "there is no such file; check the name");
  else if (code == 429 || code >= 500)
    df_error_hint(err, "try again later");
  return st;
}

static df_status curl_failed(const char *url, CURLcode rc, df_error *err) {
  if (df_interrupted) {
    df_status st = DF_FAIL(err, DF_ERR_CANCELLED, "interrupted");
    df_error_hint(err, "what was downloaded is kept; run the command again to go on");
    return st;
  }
  df_status st = DF_FAIL(err, DF_ERR_NETWORK, "could not fetch \"%.300s\": %s", url, curl_easy_strerror(rc));
  if (rc == CURLE_COULDNT_RESOLVE_HOST || rc == CURLE_COULDNT_CONNECT)
    df_error_hint(err, "is there a network? HF_ENDPOINT names another server, https_proxy a proxy");
  else
    df_error_hint(err, "what was downloaded is kept; run the command again to go on");
  return st;
}

/* Performs one request without following redirects; t->r holds what the headers said. */
static CURLcode perform(transfer *t, const char *url, const char *token, bool head, int64_t from) {
  CURL *c = t->curl;
  char auth[600], range[40];
  struct curl_slist *headers = NULL;
  curl_easy_reset(c);
  t->r = (reply){.length = -1, .linked_size = -1, .range_start = -1};
  (void)curl_easy_setopt(c, CURLOPT_URL, url);
  (void)curl_easy_setopt(c, CURLOPT_PROTOCOLS_STR, "http,https");
  (void)curl_easy_setopt(c, CURLOPT_NOSIGNAL, 1L);
  (void)curl_easy_setopt(c, CURLOPT_CONNECTTIMEOUT, 20L);
  (void)curl_easy_setopt(c, CURLOPT_LOW_SPEED_LIMIT, 100L);
  (void)curl_easy_setopt(c, CURLOPT_LOW_SPEED_TIME, 60L);
  (void)curl_easy_setopt(c, CURLOPT_USERAGENT, "dflash/" DF_VERSION);
  (void)curl_easy_setopt(c, CURLOPT_NOBODY, head ? 1L : 0L);
  (void)curl_easy_setopt(c, CURLOPT_HEADERFUNCTION, on_header);
  (void)curl_easy_setopt(c, CURLOPT_HEADERDATA, t);
  (void)curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, on_body);
  (void)curl_easy_setopt(c, CURLOPT_WRITEDATA, t);
  (void)curl_easy_setopt(c, CURLOPT_XFERINFOFUNCTION, on_progress);
  (void)curl_easy_setopt(c, CURLOPT_NOPROGRESS, 0L);
  if (token && strlen(token) < 512) {
    (void)snprintf(auth, sizeof auth, "Authorization: Bearer %s", token);
    headers = curl_slist_append(headers, auth);
  }
  if (headers) (void)curl_easy_setopt(c, CURLOPT_HTTPHEADER, headers);
  if (from > 0) {
    (void)snprintf(range, sizeof range, "%lld-", (long long)from);
    (void)curl_easy_setopt(c, CURLOPT_RANGE, range);
  }
  CURLcode rc = curl_easy_perform(c);
  (void)curl_easy_getinfo(c, CURLINFO_RESPONSE_CODE, &t->r.code);
  const char *next = NULL;
  if (curl_easy_getinfo(c, CURLINFO_REDIRECT_URL, &next) == CURLE_OK && next)
    (void)snprintf(t->r.location, sizeof t->r.location, "%s", next);
  curl_slist_free_all(headers);
  return rc;
}

/* Where the file really is, what identifies it, and how long it is. */
typedef struct found_file {
  char url[URL_CAP];
  char id[160];    /* checksum or other entity tag, "" when the server states none */
  int64_t total;   /* -1: unknown */
  bool with_token; /* still on the host that the token is for */
} found_file;

static df_status locate(transfer *t, const char *url, const char *token, found_file *out, df_error *err) {
  address first, here;
  DF_TRY(check_url(url, &first, err));
  *out = (found_file){.total = -1};
  (void)snprintf(out->url, sizeof out->url, "%s", url);
  int64_t linked = -1;
  for (int hop = 0; hop < MAX_HOPS; hop++) {
    DF_TRY(check_url(out->url, &here, err));
    out->with_token = token && strcmp(here.host, first.host) == 0 && strcmp(here.port, first.port) == 0;
    CURLcode rc = perform(t, out->url, out->with_token ? token : NULL, true, 0);
    if (rc != CURLE_OK) return curl_failed(out->url, rc, err);
    if (t->r.linked_etag[0]) (void)snprintf(out->id, sizeof out->id, "%s", t->r.linked_etag);
    if (t->r.linked_size >= 0) linked = t->r.linked_size;
    if (t->r.code >= 300 && t->r.code < 400 && t->r.location[0]) {
      DF_TRY(check_redirect(out->url, t->r.location, err));
      (void)snprintf(out->url, sizeof out->url, "%s", t->r.location);
      continue;
    }
    if (t->r.code == 405 || t->r.code == 501) return DF_OK; /* no HEAD here: fetch without knowing the size */
    if (t->r.code < 200 || t->r.code >= 300) return http_failed(out->url, t->r.code, err);
    if (!out->id[0]) (void)snprintf(out->id, sizeof out->id, "%s", t->r.etag);
    out->total = linked >= 0 ? linked : t->r.length;
    return DF_OK;
  }
  return DF_FAIL(err, DF_ERR_NETWORK, "could not fetch \"%.300s\": more than %d redirects", url, MAX_HOPS);
}

/* ---- the file ---- */

typedef struct target_file {
  char incomplete[URL_CAP + 32], id_path[URL_CAP + 32];
  const char *sha256; /* expected, or NULL */
  size_t n_kept;      /* bytes of the path that were there before: what a failure leaves */
} target_file;

/* How much of an earlier download can be used: only when the server still has the same file. */
static uint64_t resumable(const target_file *f, const found_file *where) {
  int64_t have = df_file_bytes(f->incomplete);
  if (have <= 0) return 0;
  df_buf id;
  df_buf_init(&id, 4096);
  bool same =
      where->id[0] && df_text_read(f->id_path, &id, NULL) == DF_OK && id.data && strcmp(id.data, where->id) == 0;
  df_buf_release(&id);
  char amount[32];
  df_format_bytes(amount, sizeof amount, (uint64_t)have);
  if (same && (where->total < 0 || have <= where->total)) {
    fprintf(stderr, "going on after %s of an earlier download\n", amount);
    return (uint64_t)have;
  }
  fprintf(stderr, "an earlier download of %s cannot be used (%s); starting over\n", amount,
          where->id[0] ? "the file on the server is another one" : "the server does not identify its files");
  return 0;
}

/* One attempt at the body. *again: it broke off and may be tried once more. */
static df_status body(transfer *t, const found_file *where, const target_file *f, const char *token, bool *again,
                      df_error *err) {
  *again = false;
  t->write_errno = 0;
  t->started = t->unwanted = false;
  CURLcode rc = perform(t, where->url, where->with_token ? token : NULL, false, (int64_t)t->have);
  if (t->write_errno) return df_write_failed(f->incomplete, t->write_errno, "what was downloaded is kept", err);
  if (t->r.code == 416 && where->total >= 0 && t->have == (uint64_t)where->total) return DF_OK;
  if (t->unwanted)
    return DF_FAIL(err, DF_ERR_NETWORK, "could not resume \"%.300s\": the server sent another part", where->url);
  if (rc != CURLE_OK) {
    *again = !df_interrupted && rc != CURLE_WRITE_ERROR;
    return curl_failed(where->url, rc, err);
  }
  if (t->r.code != 200 && t->r.code != 206) {
    *again = t->r.code == 429 || t->r.code >= 500;
    return http_failed(where->url, t->r.code, err);
  }
  if (where->total >= 0 && t->have != (uint64_t)where->total) {
    *again = t->have < (uint64_t)where->total;
    return DF_FAIL(err, DF_ERR_NETWORK, "could not fetch \"%.300s\": %llu of %lld bytes came", where->url,
                   (unsigned long long)t->have, (long long)where->total);
  }
  return DF_OK;
}

static df_status download(transfer *t, const found_file *where, const target_file *f, const char *token,
                          df_error *err) {
  t->have = resumable(f, where);
  if (t->have == 0) (void)unlink(f->incomplete);
  if (where->id[0]) DF_TRY(df_text_write(f->id_path, where->id, strlen(where->id), err));
  t->out = fopen(f->incomplete, "ab");
  if (!t->out) return DF_FAIL(err, DF_ERR_IO, "could not create \"%s\": %s", f->incomplete, strerror(errno));
  df_progress_begin(&t->bar, &t->p->cli->term, "fetching", where->total > 0 ? (uint64_t)where->total : 0, t->have,
                    true);
  df_status st = DF_OK;
  bool again = where->total < 0 || t->have < (uint64_t)where->total;
  for (int i = 0; again && i < MAX_TRIES; i++) {
    if (i > 0) {
      struct timespec nap = {1 << (i - 1), 0};
      df_progress_end(&t->bar);
      fprintf(stderr, "%s; trying again\n", err->msg);
      (void)nanosleep(&nap, NULL);
    }
    st = body(t, where, f, token, &again, err);
  }
  df_progress_end(&t->bar);
  if (st == DF_OK && fsync(fileno(t->out)) != 0)
    st = df_write_failed(f->incomplete, errno, "what was downloaded is kept", err);
  if (fclose(t->out) != 0 && st == DF_OK)
    st = df_write_failed(f->incomplete, errno, "what was downloaded is kept", err);
  t->out = NULL;
  if (st != DF_OK && df_file_bytes(f->incomplete) == 0) (void)unlink(f->incomplete), (void)unlink(f->id_path);
  return st;
}

/* Size and checksum are right: give the file its name. */
static df_status put_in_place(df_pull *p, const found_file *where, const target_file *f, df_error *err) {
  const char *want = f->sha256 ? f->sha256 : df_is_sha256(where->id) ? where->id : NULL;
  DF_TRY(df_file_sha256(&p->cli->term, f->incomplete, "verifying", p->sha256, err));
  if (want && strcasecmp(want, p->sha256) != 0) {
    df_status st =
        DF_FAIL(err, DF_ERR_MISMATCH, "the checksum of \"%s\" is wrong: %s, expected %s", p->path, p->sha256, want);
    df_error_hint(err, "the download was removed; run the command again");
    (void)unlink(f->incomplete);
    (void)unlink(f->id_path);
    return st;
  }
  if (!want) fprintf(stderr, "note: the server states no checksum; SHA-256 is %s\n", p->sha256);
  p->bytes = (uint64_t)df_file_bytes(f->incomplete);
  if (rename(f->incomplete, p->path) != 0)
    return DF_FAIL(err, DF_ERR_IO, "could not rename \"%s\": %s", f->incomplete, strerror(errno));
  (void)unlink(f->id_path);
  return DF_OK;
}

/* Cached already? The size and, where known, the checksum decide. */
static df_status cached(df_pull *p, const found_file *where, const target_file *f, df_error *err) {
  int64_t bytes = df_file_bytes(p->path);
  if (bytes < 0) return DF_OK;
  const char *want = f->sha256 ? f->sha256 : where && df_is_sha256(where->id) ? where->id : NULL;
  bool same = !where || where->total < 0 || where->total == bytes;
  if (same && want) {
    DF_TRY(df_file_sha256(&p->cli->term, p->path, "verifying", p->sha256, err));
    same = strcasecmp(want, p->sha256) == 0;
  }
  if (same) {
    p->found = true;
    p->bytes = (uint64_t)bytes;
  } else {
    fprintf(stderr, "\"%s\" differs from the file on the server; fetching it again\n", p->path);
  }
  return DF_OK;
}

static df_status open_transfer(transfer *t, df_pull *p, df_error *err) {
  *t = (transfer){.p = p};
  if (curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK) t->curl = curl_easy_init();
  return t->curl ? DF_OK : DF_FAIL(err, DF_ERR_INTERNAL, "could not start the network library");
}

/* Length of the part of `folder` that is there already; 0: nothing but the root or the current folder. */
static size_t existing_part(const char *folder) {
  char path[URL_CAP];
  (void)snprintf(path, sizeof path, "%s", folder);
  while (!df_path_exists(path)) {
    char *slash = strrchr(path, '/');
    if (!slash) return 0;
    *slash = '\0';
    if (!*path) return 0;
  }
  return strlen(path);
}

/* After a failure: the folders that prepare() made, as far as nothing is kept in them. */
static void remove_made(const df_pull *p, const target_file *f) {
  char folder[URL_CAP];
  (void)snprintf(folder, sizeof folder, "%s", p->path);
  for (char *slash; (slash = strrchr(folder, '/')) != NULL && (size_t)(slash - folder) > f->n_kept;) {
    *slash = '\0';
    if (rmdir(folder) != 0) break;
  }
}

/* Makes the folders and the names of the file in the cache. */
static df_status prepare(df_pull *p, const char *rel, target_file *f, df_error *err) {
  if (!df_name_is_safe(rel)) return DF_FAIL(err, DF_ERR_ARGUMENT, "\"%.200s\" cannot be a file name in the cache", rel);
  if (snprintf(p->path, sizeof p->path, "%s/%s", p->cache, rel) >= (int)sizeof p->path - 40)
    return DF_FAIL(err, DF_ERR_IO, "the name \"%.200s\" is too long", rel);
  (void)snprintf(f->incomplete, sizeof f->incomplete, "%s.incomplete", p->path);
  (void)snprintf(f->id_path, sizeof f->id_path, "%s.incomplete.id", p->path);
  char folder[URL_CAP];
  (void)snprintf(folder, sizeof folder, "%s", p->path);
  *strrchr(folder, '/') = '\0';
  p->sha256[0] = '\0';
  p->found = false;
  f->n_kept = existing_part(folder);
  return df_folder_make(folder, err);
}

static df_status offline(df_pull *p, const char *rel, const target_file *f, df_error *err) {
  DF_TRY(cached(p, NULL, f, err));
  if (p->found) return DF_OK;
  df_status off = DF_FAIL(err, DF_ERR_NETWORK, "\"%.200s\" is not in the cache, and offline mode is on", rel);
  df_error_hint(err, "leave out --offline or unset HF_HUB_OFFLINE");
  return off;
}

static df_status fetch(df_pull *p, const char *url, const target_file *f, const char *token, df_error *err) {
  transfer t;
  found_file where;
  int lock = -1;
  char lock_path[URL_CAP + 32];
  DF_TRY(open_transfer(&t, p, err));
  df_status st = locate(&t, url, token, &where, err);
  if (st == DF_OK) st = cached(p, &where, f, err);
  if (st == DF_OK && !p->found) {
    (void)snprintf(lock_path, sizeof lock_path, "%s.lock", p->path);
    st = df_lock_take(lock_path, &lock, err);
    if (st == DF_OK && where.total > 0) {
      int64_t have = df_file_bytes(f->incomplete);
      uint64_t left = have > 0 && have < where.total ? (uint64_t)(where.total - have) : (uint64_t)where.total;
      st = df_space_check(p->cache, left, err);
    }
    if (st == DF_OK) st = download(&t, &where, f, token, err);
    if (st == DF_OK) st = put_in_place(p, &where, f, err);
    if (lock >= 0) (void)unlink(lock_path), (void)close(lock);
  }
  curl_easy_cleanup(t.curl);
  return st;
}

df_status df_pull_url(df_pull *p, const char *url, const char *rel, const char *sha256, const char *token,
                      df_error *err) {
  target_file f = {.sha256 = sha256, .n_kept = SIZE_MAX};
  df_status st = prepare(p, rel, &f, err);
  if (st == DF_OK) st = p->offline ? offline(p, rel, &f, err) : fetch(p, url, &f, token, err);
  if (st != DF_OK) remove_made(p, &f);
  return st;
}

df_status df_fetch_text(df_pull *p, const char *url, const char *token, df_buf *out, df_error *err) {
  transfer t;
  found_file where;
  DF_TRY(open_transfer(&t, p, err));
  df_status st = locate(&t, url, token, &where, err);
  out->max = MAX_DOCUMENT;
  t.text = out;
  if (st == DF_OK) {
    CURLcode rc = perform(&t, where.url, where.with_token ? token : NULL, false, 0);
    if (rc != CURLE_OK)
      st = curl_failed(where.url, rc, err);
    else if (t.r.code != 200)
      st = http_failed(where.url, t.r.code, err);
    else
      st = df_buf_puts(out, "", err);
  }
  curl_easy_cleanup(t.curl);
  return st;
}
