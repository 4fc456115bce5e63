/* GET / and /web/NAME: the page, from the table that the build made of src/server/web. */
#include <stdio.h>
#include <string.h>

#include "server/routes.h"

static const df_web_file *find(const char *path) {
  for (size_t i = 0; i < df_web_file_count; i++) {
    if (strcmp(df_web_files[i].path, path) == 0) return &df_web_files[i];
  }
  return NULL;
}

void df_handle_web(df_server *s, df_exchange *x) {
  const char *name = strcmp(x->head.path, "/") == 0           ? "index.html"
                     : strncmp(x->head.path, "/web/", 5) == 0 ? x->head.path + 5
                                                              : x->head.path + 1;
  const df_web_file *f = find(name);
  (void)s;
  if (!f) {
    df_reply_error(x, 404, "not_found_error", NULL, "there is nothing at %.200s", x->head.path);
    return;
  }
  const char *known = df_http_header_get(&x->head, "if-none-match");
  df_exchange_header(x, "ETag", f->etag);
  df_exchange_header(x, "Cache-Control", "no-cache"); /* asks again; 304 while it is the same */
  df_exchange_header(x, "X-Content-Type-Options", "nosniff");
  df_exchange_header(
      x, "Content-Security-Policy",
      "default-src 'self'; img-src 'self' data:; style-src 'self' 'unsafe-inline'; frame-ancestors 'none'");
  if (known && strcmp(known, f->etag) == 0)
    df_exchange_send(x, 304, NULL, NULL, 0);
  else
    df_exchange_send(x, 200, f->type, f->data, f->n);
}
