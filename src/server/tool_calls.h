/*
 * server/tool_calls.h - what a model says, taken apart: reasoning, content and tool calls, from text that arrives in
 * pieces. And the grammar that makes a model call a tool.
 *
 * The format is that of the Qwen and Hermes chat templates:
 *   <think> reasoning </think> content
 *   <tool_call>
 *   {"name": "get_weather", "arguments": {"city": "Berlin"}}
 *   </tool_call>
 * Text may be cut anywhere, even inside tags. What could still become a tag is held back, and so is white space behind
 * content, as it vanishes before a call. The events do not depend on where the text was cut, apart from how many pieces
 * a text comes in; pieces never cut a character that was not cut by the caller.
 *
 * A call: one JSON object with a string "name" and an object "arguments" (absent and null: {}), in any order, other
 * members ignored. Behind it </tool_call> is taken when it is there; the end of the text will do as well. Anything else
 * is no call, and its text, tag included, is content.
 *
 * Untrusted: names, nesting and the text of one call are bounded; beyond that a call is content. Work is linear.
 * Ownership: events borrow everything until the callback returns. Threads: pure functions; a parser has one owner.
 */
#ifndef DF_SERVER_TOOL_CALLS_H
#define DF_SERVER_TOOL_CALLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/error.h"
#include "format/json.h"

enum {
  DF_TOOL_NAME_CHARS = 128,         /* characters of the name of a request's tool */
  DF_TOOL_MAX_NAME = 512,           /* bytes of a name */
  DF_TOOL_MAX_DEPTH = 64,           /* nesting of arguments */
  DF_TOOL_MAX_CALL_BYTES = 1 << 20, /* text of one call */
  DF_TOOL_MAX_CALLS = 128,          /* calls of one answer; a further one is content */
  DF_TOOL_MAX_TOOLS = 1024,         /* tools of one request */
  DF_TOOL_ID_SIZE = 32              /* a call's id with its zero byte */
};

typedef enum df_think_mode {
  DF_THINK_OFF,  /* <think> is content like any other text */
  DF_THINK_AUTO, /* reasoning when the text begins with <think>, white space before it aside */
  DF_THINK_OPEN  /* the prompt ended with <think>: the text begins inside */
} df_think_mode;

/* What DF_THINK_AUTO becomes for a prompt: DF_THINK_OPEN when the prompt ends with <think> and white space. */
df_think_mode df_think_mode_of_prompt(const char *prompt, size_t n);

typedef enum df_answer_kind {
  DF_ANSWER_REASONING,  /* text: a piece, without the white space at either end of the reasoning */
  DF_ANSWER_CONTENT,    /* text: a piece */
  DF_ANSWER_CALL_BEGIN, /* index, id, name */
  DF_ANSWER_CALL_ARGS,  /* index, id, name; text: a piece of the arguments' JSON as the model wrote it */
  DF_ANSWER_CALL_END,   /* index, id, name; text: all of the arguments: one JSON object */
  /* index, id, name: a call that had begun is broken; it is not to be counted. Its whole text, tag included, follows as
   * content. Its index goes to the next call. Never with hold_calls. */
  DF_ANSWER_CALL_BROKEN
} df_answer_kind;

typedef struct df_answer_event {
  df_answer_kind kind;
  const char *text; /* n bytes, not zero-terminated */
  size_t n;
  uint32_t index;   /* of the call: 0, 1, ... */
  const char *id;   /* "call_" and 24 hexadecimal digits */
  const char *name; /* decoded, no zero bytes inside */
} df_answer_event;

/* A failure ends the push and is returned by it. */
typedef df_status (*df_answer_sink)(void *user, const df_answer_event *ev, df_error *err);

typedef struct df_answer_params {
  df_think_mode think;
  bool tools;       /* look for calls; otherwise <tool_call> is content like any other text */
  bool hold_calls;  /* a call's events come only when all of it is there: none ever breaks (answers not streamed) */
  uint64_t id_seed; /* of the ids of calls; another one for every request */
} df_answer_params;

typedef struct df_answer_parser df_answer_parser;

/* DF_ERR_MEMORY. */
df_status df_answer_parser_create(const df_answer_params *p, df_answer_parser **out, df_error *err) DF_CHECK;
void df_answer_parser_free(df_answer_parser *a); /* NULL is fine */

/* The next piece of text (whole UTF-8 or not). DF_ERR_MEMORY or what the sink returned; the parser is then of no more
 * use but to be freed. */
df_status df_answer_parser_push(df_answer_parser *a, const char *text, size_t n, df_answer_sink sink, void *user,
                                df_error *err) DF_CHECK;
/* The text ends: what was held back comes out; a call whose JSON is not complete is content. Once. */
df_status df_answer_parser_finish(df_answer_parser *a, df_answer_sink sink, void *user, df_error *err) DF_CHECK;
/* Complete calls so far. */
uint32_t df_answer_parser_calls(const df_answer_parser *a);

/* Whether every element of a request's tools array is {"type": "function", "function": {"name": ...}} and no two have
 * one name; NULL is an empty array. DF_ERR_FORMAT, DF_ERR_LIMIT, DF_ERR_MEMORY. */
df_status df_tools_check(const df_json *tools, df_error *err) DF_CHECK;

/* Appends a grammar of calls to *out, for tool_choice "required" (only = NULL) or a named function (only = its name).
 * tools: n bytes of JSON, the tools array of a chat request: [{"type": "function", "function": {"name": ...,
 * "parameters": {a JSON schema}}}, ...]. parallel: several calls may come. think: with DF_THINK_AUTO the text may begin
 * with reasoning, with DF_THINK_OPEN it begins inside one; there is no "<" in it.
 * DF_ERR_FORMAT (not of that form, two tools of one name), DF_ERR_ARGUMENT (no tool, none called `only`),
 * DF_ERR_UNSUPPORTED with the tool and the path in its schema, DF_ERR_LIMIT, DF_ERR_MEMORY; *out is then as before. */
df_status df_tool_calls_gbnf(const char *tools, size_t n, const char *only, bool parallel, df_think_mode think,
                             df_buf *out, df_error *err) DF_CHECK;

#endif
