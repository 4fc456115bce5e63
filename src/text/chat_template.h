/*
 * text/chat_template.h - chat templates: a subset of Jinja that renders messages to a prompt.
 *
 * Templates come from model files and contexts from clients; both are untrusted. Parsing and rendering are bounded by
 * the numbers in text/jinja_limits.h, and a template can reach nothing but the values of its context.
 *
 * Language:  the expressions, statements, filters and tests of Jinja 3.1 without inheritance, imports and autoescape;
 *            break and continue; {% generation %} is transparent. Lines are trimmed behind and before block tags
 *            (trim_blocks, lstrip_blocks), the final newline of the source is dropped. Values are immutable except
 *            namespaces. tojson writes JSON as Python's json.dumps does with ensure_ascii off.
 * Functions: range, namespace, dict, cycler, joiner, raise_exception(message), strftime_now(format).
 * Threads:   a parsed template never changes; any number of threads may render it at once.
 */
#ifndef DF_TEXT_CHAT_TEMPLATE_H
#define DF_TEXT_CHAT_TEMPLATE_H

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/error.h"

typedef struct df_chat_template df_chat_template;

typedef struct df_render_options {
  int64_t now_unix;   /* seconds since 1970, shown by strftime_now as UTC; templates never see the clock itself */
  uint64_t max_steps; /* evaluation steps; 0 = JINJA_MAX_STEPS */
  size_t max_output;  /* bytes; 0 = JINJA_MAX_OUTPUT */
  size_t max_memory;  /* bytes of values; 0 = JINJA_MAX_ARENA */
} df_render_options;

/* Parses len bytes of source, which are not needed afterwards. *out belongs to the caller (df_chat_template_free).
 * DF_ERR_FORMAT: syntax error, unknown tag, filter or test, invalid UTF-8; the message names the line.
 * DF_ERR_LIMIT: source or nesting too large. DF_ERR_MEMORY. */
df_status df_chat_template_parse(const char *source, size_t len, df_chat_template **out, df_error *err) DF_CHECK;

/* NULL is fine. */
void df_chat_template_free(df_chat_template *t);

/* Renders with the variables of context_json, n bytes holding one JSON object ({"messages": [...], "tools": null,
 * "add_generation_prompt": true, "bos_token": "...", ...}), and appends the text to *out. opt may be NULL: defaults,
 * and the year 1970. On failure *out is as before.
 * DF_ERR_TEMPLATE: the template raised an error (raise_exception) or used a value in an impossible way.
 * DF_ERR_FORMAT: the context is not a JSON object. DF_ERR_LIMIT, DF_ERR_MEMORY. */
df_status df_chat_template_render(const df_chat_template *t, const char *context_json, size_t n,
                                  const df_render_options *opt, df_buf *out, df_error *err) DF_CHECK;

#endif
