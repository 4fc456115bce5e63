/* Request heads and chunked bodies: what is taken, what is refused and with which status. */
// clang-format off
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
// clang-format on

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/size.h"
#include "server/http_parse.h"
#include "server/routes.h"

static char block[200000];

static int parse(const char *text, size_t n, df_http_head *h, const char **why) {
  assert_true(n < sizeof block);
  memcpy(block, text, n);
  block[n] = '\0';
  return df_http_head_parse(block, n, h, why);
}

static int parse_text(const char *text, df_http_head *h) {
  const char *why = NULL;
  const int status = parse(text, strlen(text), h, &why);
  if (status) assert_true(why && *why);
  return status;
}

static void test_head_end__finds_the_empty_line(void **state) {
  (void)state;
  static const struct {
    const char *text;
    size_t end;
  } rows[] = {{"", 0},
              {"GET / HTTP/1.1\r\n", 0},
              {"GET / HTTP/1.1\r\n\r\n", 18},
              {"GET / HTTP/1.1\n\nbody", 16},
              {"A\r\nB\r\n\r", 0},
              {"A\r\nB\r\n\r\nrest\r\n\r\n", 8},
              {"A\n\r\n", 4},
              {"A\r\r\n\r\n", 6}};
  for (size_t i = 0; i < DF_COUNT_OF(rows); i++)
    assert_int_equal(df_http_head_end(rows[i].text, strlen(rows[i].text)), rows[i].end);
}

static void test_head_parse__a_usual_request(void **state) {
  (void)state;
  df_http_head h;
  assert_int_equal(parse_text("POST /v1/chat%2Fx?a=b%20c&d HTTP/1.1\r\nHost: h:1\r\ncontent-LENGTH: 12\r\n"
                              "X-Two:  a b \t\r\nExpect: 100-continue\r\n\r\n",
                              &h),
                   0);
  assert_int_equal(h.method, DF_HTTP_POST);
  assert_string_equal(h.method_name, "POST");
  assert_string_equal(h.path, "/v1/chat/x");
  assert_string_equal(h.query, "a=b%20c&d");
  assert_int_equal(h.minor, 1);
  assert_int_equal(h.length, 12);
  assert_false(h.chunked);
  assert_true(h.keep_alive);
  assert_true(h.expect_continue);
  assert_string_equal(df_http_header_get(&h, "x-two"), "a b");
  assert_string_equal(df_http_header_get(&h, "HOST"), "h:1");
  assert_null(df_http_header_get(&h, "x"));
  char v[8];
  assert_true(df_http_query_get(h.query, "a", v, sizeof v));
  assert_string_equal(v, "b c");
  assert_true(df_http_query_get(h.query, "d", v, sizeof v));
  assert_string_equal(v, "");
  assert_false(df_http_query_get(h.query, "e", v, sizeof v));
}

static void test_head_parse__connection_and_version(void **state) {
  (void)state;
  static const struct {
    const char *text;
    bool keep;
  } rows[] = {{"GET / HTTP/1.1\r\nHost: h\r\n\r\n", true},
              {"GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n", false},
              {"GET / HTTP/1.1\r\nHost: h\r\nConnection: Upgrade , CLOSE\r\n\r\n", false},
              {"GET / HTTP/1.1\r\nHost: h\r\nConnection: closed\r\n\r\n", true},
              {"GET / HTTP/1.0\r\n\r\n", false},
              {"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", true}};
  for (size_t i = 0; i < DF_COUNT_OF(rows); i++) {
    df_http_head h;
    assert_int_equal(parse_text(rows[i].text, &h), 0);
    assert_int_equal(h.keep_alive, rows[i].keep);
  }
}

static void test_head_parse__refuses(void **state) {
  (void)state;
  static const struct {
    const char *text;
    int status;
  } rows[] = {{"\r\n\r\n", 400},
              {"GET\r\n\r\n", 400},
              {"GET /\r\n\r\n", 400},
              {"GET  / HTTP/1.1\r\nHost: h\r\n\r\n", 400},
              {"G(T / HTTP/1.1\r\nHost: h\r\n\r\n", 400},
              {"GET x HTTP/1.1\r\nHost: h\r\n\r\n", 400},
              {"GET http://h HTTP/1.1\r\nHost: h\r\n\r\n", 400},
              {"GET /a b HTTP/1.1\r\nHost: h\r\n\r\n", 400},
              {"GET /\x01 HTTP/1.1\r\nHost: h\r\n\r\n", 400},
              {"GET /%4 HTTP/1.1\r\nHost: h\r\n\r\n", 400},
              {"GET /%00 HTTP/1.1\r\nHost: h\r\n\r\n", 400},
              {"GET / HTTP/2.0\r\nHost: h\r\n\r\n", 505},
              {"GET / HTTP/1.2\r\nHost: h\r\n\r\n", 505},
              {"GET / http/1.1\r\nHost: h\r\n\r\n", 400},
              {"GET / HTTP/1.1\r\n\r\n", 400},
              {"GET / HTTP/1.1\r\nHost: h\r\nHost: h\r\n\r\n", 400},
              {"GET / HTTP/1.1\r\nHost: h\r\n: v\r\n\r\n", 400},
              {"GET / HTTP/1.1\r\nHost: h\r\nA\r\n\r\n", 400},
              {"GET / HTTP/1.1\r\nHost: h\r\nA : v\r\n\r\n", 400},
              {"GET / HTTP/1.1\r\nHost: h\r\nA: v\r\n w\r\n\r\n", 400},
              {"GET / HTTP/1.1\r\nHost: h\r\nA: v\rw\r\n\r\n", 400},
              {"GET / HTTP/1.1\r\nHost: h\r\nA: v\x7Fw\r\n\r\n", 400},
              {"GET / HTTP/1.1\r\nHost: h\r\nContent-Length: 1a\r\n\r\n", 400},
              {"GET / HTTP/1.1\r\nHost: h\r\nContent-Length: +1\r\n\r\n", 400},
              {"GET / HTTP/1.1\r\nHost: h\r\nContent-Length:\r\n\r\n", 400},
              {"GET / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n", 400},
              {"GET / HTTP/1.1\r\nHost: h\r\nContent-Length: 9223372036854775808\r\n\r\n", 413},
              {"GET / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", 400},
              {"GET / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: identity\r\n\r\n", 501},
              {"GET / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n", 501},
              {"GET / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", 501},
              {"GET / HTTP/1.1\r\nHost: h\r\nExpect: x\r\n\r\n", 417}};
  for (size_t i = 0; i < DF_COUNT_OF(rows); i++) {
    df_http_head h;
    const int got = parse_text(rows[i].text, &h);
    if (got != rows[i].status) fail_msg("%s: %d, not %d", rows[i].text, got, rows[i].status);
  }
  df_http_head h;
  const char *why = NULL;
  static const char zero[] = "GET / HTTP/1.1\r\nHost: h\r\nA: b\0c\r\n\r\n";
  assert_int_equal(parse(zero, sizeof zero - 1, &h, &why), 400);
}

static void test_head_parse__limits(void **state) {
  (void)state;
  df_http_head h;
  df_buf b;
  for (int over = 0; over < 2; over++) {
    df_buf_init(&b, 0);
    assert_int_equal(df_buf_printf(&b, NULL, "GET /%*s HTTP/1.1\r\nHost: h\r\n\r\n", DF_HTTP_TARGET_MAX - 1 + over, ""),
                     DF_OK);
    for (int i = 0; i < DF_HTTP_TARGET_MAX - 1 + over; i++) b.data[5 + i] = 'a';
    assert_int_equal(parse_text(b.data, &h), over ? 414 : 0);
    df_buf_release(&b);
    df_buf_init(&b, 0);
    assert_int_equal(df_buf_puts(&b, "GET / HTTP/1.1\r\nHost: h\r\n", NULL), DF_OK);
    for (int i = 1; i < DF_HTTP_HEADERS_MAX + over; i++) assert_int_equal(df_buf_puts(&b, "A: b\r\n", NULL), DF_OK);
    assert_int_equal(df_buf_puts(&b, "\r\n", NULL), DF_OK);
    assert_int_equal(parse_text(b.data, &h), over ? 431 : 0);
    df_buf_release(&b);
  }
}

/* Feeds a body in pieces of `step` bytes. */
static int feed(const char *text, size_t n, size_t step, size_t max, df_buf *out, size_t *all) {
  df_http_chunks c = {0};
  int status = 0;
  df_buf_init(out, 0);
  *all = 0;
  for (size_t at = 0; at < n && status == 0;) {
    const size_t m = DF_MIN(step, n - at);
    size_t used = 0;
    status = df_http_chunks_feed(&c, text + at, m, &used, out, max);
    assert_true(used <= m);
    if (status == 0) assert_int_equal(used, m);
    at += used;
    *all = at;
  }
  return status;
}

static void test_chunks__every_cut_gives_the_same(void **state) {
  (void)state;
  static const struct {
    const char *text, *body;
    int status;
  } rows[] = {{"5\r\nhello\r\n0\r\n\r\n", "hello", 1},
              {"5;a=b\r\nhello\r\n6 ; x\r\n world\r\n0;q\r\nT: v\r\nU: w\r\n\r\n", "hello world", 1},
              {"5\nhello\n0\n\n", "hello", 1},
              {"0\r\n\r\n", "", 1},
              {"00000A\r\n0123456789\r\n0\r\n\r\n", "0123456789", 1},
              {"5\r\nhello", "hello", 0},
              {"x\r\n", "", 400},
              {"\r\n", "", 400},
              {"5\r\nhelloX", "hello", 400},
              {"5\r\nhello\rX", "hello", 400},
              {"5x\r\nhello\r\n", "", 400},
              {"-5\r\nhello\r\n", "", 400},
              {"ffffffffffffffff\r\n", "", 413},
              {"fffffff\r\n", "", 413}};
  for (size_t i = 0; i < DF_COUNT_OF(rows); i++) {
    const size_t n = strlen(rows[i].text);
    for (size_t step = 1; step <= n; step++) {
      df_buf out;
      size_t used;
      const int status = feed(rows[i].text, n, step, 1000, &out, &used);
      if (status != rows[i].status) fail_msg("\"%s\" in steps of %zu: %d", rows[i].text, step, status);
      if (status <= 1) {
        assert_int_equal(out.len, strlen(rows[i].body));
        if (out.len) assert_memory_equal(out.data, rows[i].body, out.len);
        assert_int_equal(used, n);
      }
      df_buf_release(&out);
    }
  }
}

static void test_chunks__what_follows_is_left(void **state) {
  (void)state;
  df_http_chunks c = {0};
  df_buf out;
  size_t used;
  df_buf_init(&out, 0);
  assert_int_equal(df_http_chunks_feed(&c, "1\r\na\r\n0\r\n\r\nGET", 14, &used, &out, 10), 1);
  assert_int_equal(used, 11);
  df_buf_release(&out);
}

static void test_chunks__limits(void **state) {
  (void)state;
  df_buf out;
  size_t used;
  static const char text[] = "4\r\nabcd\r\n4\r\nefgh\r\n0\r\n\r\n";
  assert_int_equal(feed(text, sizeof text - 1, 3, 8, &out, &used), 1);
  df_buf_release(&out);
  assert_int_equal(feed(text, sizeof text - 1, 3, 7, &out, &used), 413);
  df_buf_release(&out);
  /* Tiny chunks with long extensions cannot go on for ever. */
  df_http_chunks c = {0};
  char line[4000];
  (void)snprintf(line, sizeof line, "1;%0*d\r\na\r\n", 3900, 0);
  int status = 0;
  df_buf_init(&out, 0);
  uint32_t rounds = 0;
  for (; status == 0 && rounds < 100000; rounds++)
    status = df_http_chunks_feed(&c, line, strlen(line), &used, &out, 1 << 20);
  assert_int_equal(status, 413);
  df_buf_release(&out);
}

static void test_key_matches__only_the_whole_key(void **state) {
  (void)state;
  static const char *const keys[] = {"alpha", "be"};
  assert_true(df_key_matches(keys, 2, "alpha"));
  assert_true(df_key_matches(keys, 2, "be"));
  static const char *const wrong[] = {"", "a", "alph", "alphaa", "alphaalpha", "b", "bebe", "ALPHA", "alpha "};
  for (size_t i = 0; i < DF_COUNT_OF(wrong); i++) assert_false(df_key_matches(keys, 2, wrong[i]));
  assert_false(df_key_matches(keys, 2, NULL));
  static const char *const empty[] = {""};
  assert_false(df_key_matches(empty, 1, ""));
  assert_false(df_key_matches(keys, 0, "alpha"));
}

static void test_routes__paths_and_methods(void **state) {
  (void)state;
  unsigned allowed;
  assert_string_equal(df_route_find("/v1/chat/completions", DF_HTTP_POST, &allowed)->path, "/v1/chat/completions");
  assert_int_equal(allowed, DF_HTTP_POST);
  assert_null(df_route_find("/v1/chat/completions", DF_HTTP_GET, &allowed));
  assert_int_equal(allowed, DF_HTTP_POST);
  assert_non_null(df_route_find("/health", DF_HTTP_HEAD, &allowed));
  assert_null(df_route_find("/health/", DF_HTTP_GET, &allowed));
  assert_int_equal(allowed, 0);
  assert_string_equal(df_route_find("/v1/models/a/b", DF_HTTP_GET, &allowed)->path, "/v1/models/*");
  assert_null(df_route_find("/v1/models/", DF_HTTP_GET, &allowed));
  for (size_t i = 0; i < df_route_count; i++) { /* every row can be reached, and only health and the page are open */
    const df_route *r = &df_routes[i];
    char path[100];
    (void)snprintf(path, sizeof path, "%s%s", r->path, r->path[strlen(r->path) - 1] == '*' ? "x" : "");
    const df_route *found = df_route_find(path, r->methods & DF_HTTP_GET ? DF_HTTP_GET : DF_HTTP_POST, &allowed);
    assert_ptr_equal(found, r);
    const bool page =
        strncmp(r->path, "/web/", 5) == 0 || strcmp(r->path, "/") == 0 || strcmp(r->path, "/favicon.ico") == 0;
    if (r->open) assert_true(page || strstr(r->path, "health") || strcmp(r->path, "/ping") == 0);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_head_end__finds_the_empty_line),
                                     cmocka_unit_test(test_head_parse__a_usual_request),
                                     cmocka_unit_test(test_head_parse__connection_and_version),
                                     cmocka_unit_test(test_head_parse__refuses),
                                     cmocka_unit_test(test_head_parse__limits),
                                     cmocka_unit_test(test_chunks__every_cut_gives_the_same),
                                     cmocka_unit_test(test_chunks__what_follows_is_left),
                                     cmocka_unit_test(test_chunks__limits),
                                     cmocka_unit_test(test_key_matches__only_the_whole_key),
                                     cmocka_unit_test(test_routes__paths_and_methods)};
  return cmocka_run_group_tests_name("server_http", tests, NULL, NULL);
}
