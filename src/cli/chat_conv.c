#include "cli/chat_conv.h"

#include <string.h>

#include "base/mem.h"
#include "base/size.h"
#include "cli/cli_text.h"
#include "format/json.h"

static void message_release(df_message *m) {
  df_free(m->role);
  df_free(m->text);
  *m = (df_message){0};
}

void df_conv_release(df_conv *c) {
  for (size_t i = 0; i < c->n; i++) message_release(&c->m[i]);
  df_free(c->m);
  *c = (df_conv){0};
}

static df_status grow(df_conv *c, df_error *err) {
  if (c->n < c->cap) return DF_OK;
  size_t cap = c->cap ? c->cap * 2 : 16, bytes;
  if (!df_mul_size(cap, sizeof *c->m, &bytes)) return DF_OOM(err, "the conversation", cap);
  df_message *m = df_realloc(c->m, bytes);
  if (!m) return DF_OOM(err, "the conversation", bytes);
  c->m = m;
  c->cap = cap;
  return DF_OK;
}

static df_status message_make(df_message *m, const char *role, const char *text, size_t len, df_error *err) {
  *m = (df_message){.role = df_strdup(role), .text = df_strndup(text ? text : "", len), .len = len};
  if (m->role && m->text) return DF_OK;
  message_release(m);
  return DF_OOM(err, "a message", len);
}

df_status df_conv_put(df_conv *c, const char *role, const char *text, size_t len, df_error *err) {
  df_message m;
  DF_TRY(grow(c, err));
  DF_TRY(message_make(&m, role, text, len, err));
  c->m[c->n++] = m;
  return DF_OK;
}

void df_conv_pop(df_conv *c) {
  if (c->n) message_release(&c->m[--c->n]);
}

static bool has_system(const df_conv *c) { return c->n > 0 && strcmp(c->m[0].role, "system") == 0; }

void df_conv_clear(df_conv *c) {
  size_t keep = has_system(c) ? 1 : 0;
  while (c->n > keep) df_conv_pop(c);
}

df_status df_conv_set_system(df_conv *c, const char *text, df_error *err) {
  df_message m = {0};
  if (*text) DF_TRY(message_make(&m, "system", text, strlen(text), err));
  if (has_system(c)) {
    message_release(&c->m[0]);
    if (*text) {
      c->m[0] = m;
    } else {
      c->n--;
      memmove(c->m, c->m + 1, c->n * sizeof *c->m);
    }
    return DF_OK;
  }
  if (!*text) return DF_OK;
  df_status st = grow(c, err);
  if (st != DF_OK) {
    message_release(&m);
    return st;
  }
  memmove(c->m + 1, c->m, c->n * sizeof *c->m);
  c->m[0] = m;
  c->n++;
  return DF_OK;
}

bool df_conv_last_is(const df_conv *c, const char *role) { return c->n > 0 && strcmp(c->m[c->n - 1].role, role) == 0; }

static void messages_out(df_json_out *w, const df_conv *c) {
  df_json_out_array(w);
  for (size_t i = 0; i < c->n; i++) {
    df_json_out_object(w);
    df_json_out_key(w, "role"), df_json_out_cstr(w, c->m[i].role);
    df_json_out_key(w, "content"), df_json_out_str(w, c->m[i].text, c->m[i].len);
    df_json_out_close(w);
  }
  df_json_out_close(w);
}

df_status df_conv_json(const df_conv *c, df_buf *out, df_error *err) {
  df_json_out w;
  df_json_out_begin(&w, out, err);
  messages_out(&w, c);
  return df_json_out_end(&w);
}

df_status df_conv_save(const df_conv *c, const char *path, const char *model, df_error *err) {
  df_buf b;
  df_json_out w;
  df_buf_init(&b, 0);
  df_json_out_begin(&w, &b, err);
  df_json_out_object(&w);
  df_json_out_key(&w, "format"), df_json_out_cstr(&w, "dflash-chat");
  df_json_out_key(&w, "version"), df_json_out_i64(&w, 1);
  df_json_out_key(&w, "model"), df_json_out_cstr(&w, model);
  df_json_out_key(&w, "messages");
  messages_out(&w, c);
  df_json_out_close(&w);
  df_status st = df_json_out_end(&w);
  if (st == DF_OK) st = df_buf_puts(&b, "\n", err);
  if (st == DF_OK) st = df_text_write(path, b.data, b.len, err);
  df_buf_release(&b);
  return st;
}

static df_status read_messages(const df_json *list, df_conv *c, df_error *err) {
  if (df_json_kind_of(list) != DF_JSON_ARRAY) return DF_FAIL(err, DF_ERR_FORMAT, "it holds no list of messages");
  for (size_t i = 0; i < df_json_size(list); i++) {
    const df_json *m = df_json_at(list, i);
    const char *role = df_json_str(df_json_member(m, "role"), NULL);
    size_t len = 0;
    const char *text = df_json_str(df_json_member(m, "content"), &len);
    bool known = role && (strcmp(role, "system") == 0 || strcmp(role, "user") == 0 || strcmp(role, "assistant") == 0 ||
                          strcmp(role, "tool") == 0);
    if (!known || !text)
      return DF_FAIL(err, DF_ERR_FORMAT, "message %zu needs a role (system, user, assistant, tool) and a text", i);
    DF_TRY(df_conv_put(c, role, text, len, err));
  }
  return DF_OK;
}

df_status df_conv_load(df_conv *c, const char *path, df_error *err) {
  df_json *root = NULL;
  df_conv fresh = {0};
  DF_TRY(df_json_load(path, DF_TEXT_MAX, &root, err));
  const df_json *list = df_json_kind_of(root) == DF_JSON_OBJECT ? df_json_member(root, "messages") : root;
  df_status st = read_messages(list, &fresh, err);
  df_json_free(root);
  if (st != DF_OK) {
    df_error_prefix(err, "could not load \"%s\"", path);
    df_conv_release(&fresh);
    return st;
  }
  df_conv_release(c);
  *c = fresh;
  return DF_OK;
}
