#include "server/tool_calls_json.h"

#include <string.h>

#include "format/json.h"

enum { WANT_VALUE, WANT_VALUE_OR_END, WANT_KEY, WANT_KEY_OR_END, WANT_COLON, WANT_COMMA_OR_END };
enum { MEMBER_OTHER, MEMBER_NAME, MEMBER_ARGUMENTS };

void df_call_json_init(df_call_json *j) {
  df_call_json_release(j);
  *j = (df_call_json){.expect = WANT_VALUE};
}

void df_call_json_release(df_call_json *j) {
  df_buf_release(&j->key);
  df_buf_release(&j->args);
}

static bool in_object(const df_call_json *j) {
  return j->depth > 0 && (j->is_object[(j->depth - 1) / 8] >> ((j->depth - 1) % 8) & 1);
}

static void open_level(df_call_json *j, bool object) {
  if (j->depth >= DF_TOOL_MAX_DEPTH) {
    j->state = DF_CALL_BROKEN;
    return;
  }
  uint8_t bit = (uint8_t)(1u << (j->depth % 8));
  if (object)
    j->is_object[j->depth / 8] |= bit;
  else
    j->is_object[j->depth / 8] &= (uint8_t)~bit;
  j->depth++;
  j->expect = object ? WANT_KEY_OR_END : WANT_VALUE_OR_END;
}

/* The raw text of a string to what it means; only short ones matter. false: not text that can be a name. */
static df_status decode(const df_buf *raw, char out[DF_TOOL_MAX_NAME + 1], bool *ok, df_error *err) {
  df_buf quoted = {0};
  df_json *v = NULL;
  size_t n = 0;
  *ok = false;
  df_status s = df_buf_printf(&quoted, err, "\"%.*s\"", (int)raw->len, raw->data ? raw->data : "");
  if (s == DF_OK) s = df_json_parse(quoted.data, quoted.len, &v, err);
  if (s == DF_OK) {
    const char *text = df_json_str(v, &n);
    *ok = text && n <= DF_TOOL_MAX_NAME && memchr(text, '\0', n) == NULL;
    if (*ok) memcpy(out, text, n + 1);
    df_json_free(v);
  }
  df_buf_release(&quoted);
  return s == DF_ERR_MEMORY ? s : DF_OK;
}

static df_status end_key(df_call_json *j, df_error *err) {
  char text[DF_TOOL_MAX_NAME + 1];
  bool ok;
  DF_TRY(decode(&j->key, text, &ok, err));
  j->member = MEMBER_OTHER;
  if (!ok) return DF_OK;
  if (strcmp(text, "name") == 0) j->member = MEMBER_NAME;
  if (strcmp(text, "arguments") == 0) j->member = MEMBER_ARGUMENTS;
  if ((j->member == MEMBER_NAME && j->has_name) || (j->member == MEMBER_ARGUMENTS && j->has_args))
    j->state = DF_CALL_BROKEN;
  return DF_OK;
}

/* A value has ended, at whatever level. */
static df_status end_value(df_call_json *j, df_error *err) {
  j->expect = WANT_COMMA_OR_END;
  if (j->depth == 0) {
    j->state = j->has_name ? DF_CALL_DONE : DF_CALL_BROKEN;
    if (!j->has_args) return df_buf_puts(&j->args, "{}", err);
  } else if (j->depth == 1 && j->member == MEMBER_ARGUMENTS) {
    j->has_args = true;
    j->member = MEMBER_OTHER;
  }
  return DF_OK;
}

static df_status end_string(df_call_json *j, df_error *err) {
  bool ok;
  j->in_string = false;
  if (j->is_key) {
    j->expect = WANT_COLON;
    return j->depth == 1 ? end_key(j, err) : DF_OK;
  }
  if (j->depth == 1 && j->member == MEMBER_NAME) {
    DF_TRY(decode(&j->key, j->name, &ok, err));
    j->has_name = ok && j->name[0] != '\0';
    if (!j->has_name) j->state = DF_CALL_BROKEN;
  }
  return end_value(j, err);
}

static df_status string_byte(df_call_json *j, char c, df_error *err) {
  if (c == '"' && !j->escaped && !j->hex_left) return end_string(j, err);
  if ((uint8_t)c < 0x20) {
    j->state = DF_CALL_BROKEN;
  } else if (j->hex_left) {
    if (!strchr("0123456789abcdefABCDEF", c)) j->state = DF_CALL_BROKEN;
    j->hex_left--;
  } else if (j->escaped) {
    if (!strchr("\"\\/bfnrtu", c)) j->state = DF_CALL_BROKEN;
    j->escaped = false;
    if (c == 'u') j->hex_left = 4;
  } else {
    j->escaped = c == '\\';
  }
  if (j->depth == 1 && (j->is_key || j->member == MEMBER_NAME)) {
    /* Every character of a name takes at most 12 bytes in JSON. */
    if (j->key.len > DF_TOOL_MAX_NAME * 12)
      j->state = DF_CALL_BROKEN;
    else
      return df_buf_put(&j->key, &c, 1, err);
  }
  return DF_OK;
}

static bool is_number(const char *s) {
  if (*s == '-') s++;
  if (*s < '0' || *s > '9') return false;
  if (*s == '0')
    s++;
  else
    while (*s >= '0' && *s <= '9') s++;
  if (*s == '.') {
    if (s[1] < '0' || s[1] > '9') return false;
    for (s++; *s >= '0' && *s <= '9';) s++;
  }
  if (*s == 'e' || *s == 'E') {
    s++;
    if (*s == '+' || *s == '-') s++;
    if (*s < '0' || *s > '9') return false;
    while (*s >= '0' && *s <= '9') s++;
  }
  return *s == '\0';
}

static bool is_word_byte(char c) {
  return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '+' || c == '.' || c == 'E';
}

static df_status end_word(df_call_json *j, df_error *err) {
  j->word[j->n_word] = '\0';
  j->n_word = 0;
  bool null = strcmp(j->word, "null") == 0;
  if (!null && strcmp(j->word, "true") != 0 && strcmp(j->word, "false") != 0 && !is_number(j->word))
    j->state = DF_CALL_BROKEN;
  if (j->depth == 1 && (j->member == MEMBER_NAME || (j->member == MEMBER_ARGUMENTS && !null)))
    j->state = DF_CALL_BROKEN;
  if (j->depth == 1 && j->member == MEMBER_ARGUMENTS && j->state == DF_CALL_OPEN) {
    j->args.len = 0;
    DF_TRY(df_buf_puts(&j->args, "{}", err));
  }
  return end_value(j, err);
}

static df_status begin_value(df_call_json *j, char c) {
  bool name = j->depth == 1 && j->member == MEMBER_NAME, args = j->depth == 1 && j->member == MEMBER_ARGUMENTS;
  if ((j->depth == 0 && c != '{') || (name && c != '"') || (args && c != '{' && c != 'n')) {
    j->state = DF_CALL_BROKEN;
  } else if (c == '"') {
    j->in_string = true;
    j->is_key = false;
    j->key.len = 0;
  } else if (c == '{' || c == '[') {
    open_level(j, c == '{');
  } else if (is_word_byte(c)) {
    j->word[0] = c;
    j->n_word = 1;
  } else {
    j->state = DF_CALL_BROKEN;
  }
  return DF_OK;
}

static df_status plain_byte(df_call_json *j, char c, df_error *err) {
  bool may_end = j->expect == WANT_VALUE_OR_END || j->expect == WANT_KEY_OR_END || j->expect == WANT_COMMA_OR_END;
  if (c == ' ' || c == '\t' || c == '\n' || c == '\r') return DF_OK;
  if (may_end && j->depth > 0 && c == (in_object(j) ? '}' : ']')) {
    j->depth--;
    return end_value(j, err);
  }
  switch (j->expect) {
    case WANT_VALUE:
    case WANT_VALUE_OR_END: return begin_value(j, c);
    case WANT_KEY:
    case WANT_KEY_OR_END:
      if (c != '"') break;
      j->in_string = j->is_key = true;
      j->key.len = 0;
      return DF_OK;
    case WANT_COLON:
      if (c != ':') break;
      j->expect = WANT_VALUE;
      return DF_OK;
    default:
      if (c != ',' || j->depth == 0) break;
      j->expect = in_object(j) ? WANT_KEY : WANT_VALUE;
      return DF_OK;
  }
  j->state = DF_CALL_BROKEN;
  return DF_OK;
}

df_status df_call_json_byte(df_call_json *j, char c, df_error *err) {
  bool inside = j->depth > 1 && j->member == MEMBER_ARGUMENTS;
  if (j->in_string) {
    DF_TRY(string_byte(j, c, err));
  } else if (j->n_word && is_word_byte(c)) {
    if (j->n_word + 1 < sizeof j->word)
      j->word[j->n_word++] = c;
    else
      j->state = DF_CALL_BROKEN;
  } else {
    if (j->n_word) DF_TRY(end_word(j, err));
    if (j->state == DF_CALL_OPEN) DF_TRY(plain_byte(j, c, err));
  }
  /* The arguments' braces are part of them: the first raises the depth to 2, the last lowers it to 1. */
  inside = inside || (j->depth > 1 && j->member == MEMBER_ARGUMENTS);
  if (inside && j->state != DF_CALL_BROKEN) return df_buf_put(&j->args, &c, 1, err);
  return DF_OK;
}
