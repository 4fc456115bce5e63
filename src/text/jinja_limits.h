/*
 * text/jinja_limits.h - the bounds of the template engine, each with its reason.
 *
 * Templates arrive inside model files and contexts from clients, so neither is trusted: every loop, recursion and
 * allocation of the engine is bounded by one of these numbers. Real chat templates stay below a tenth of each.
 */
#ifndef DF_TEXT_JINJA_LIMITS_H
#define DF_TEXT_JINJA_LIMITS_H

/* Longest template source. The largest published ones have about 30 KiB. */
#define JINJA_MAX_SOURCE ((size_t)1 << 20)

/* Longest context (messages and tools as JSON): four bytes per token of a context of four million tokens. */
#define JINJA_MAX_CONTEXT ((size_t)16 << 20)

/* Nesting of expressions and of blocks while parsing: bounds the parser's recursion. */
#define JINJA_MAX_NESTING 200

/* Nesting of the evaluator, counted over expressions, blocks and macro calls together: bounds the machine stack to
 * about a megabyte whatever the mixture. */
#define JINJA_MAX_EVAL_DEPTH 1500

/* Macro calls inside macro calls (recursive macros that walk a JSON schema need about ten). */
#define JINJA_MAX_CALL_DEPTH 64

/* Nesting of values: JSON context, lists built by a template, printing, comparing, hashing. */
#define JINJA_MAX_VALUE_DEPTH 200

/* Evaluation steps: one per expression node, statement and loop turn, plus one per JINJA_STEP_BYTES bytes that a
 * string operation reads or writes, one per JINJA_STEP_CHARS characters that it decodes one by one, and one per
 * JINJA_STEP_ITEMS list elements copied. A million steps take well below a second; a conversation of a thousand
 * messages needs about fifty thousand. */
#define JINJA_MAX_STEPS ((uint64_t)1000000)
#define JINJA_STEP_BYTES 256
#define JINJA_STEP_CHARS 16
#define JINJA_STEP_ITEMS 16

/* Rendered text. As long as the context may be. */
#define JINJA_MAX_OUTPUT ((size_t)16 << 20)

/* Memory of one parsed template and of one render (values are only freed together, at the end). */
#define JINJA_MAX_ARENA ((size_t)64 << 20)

/* Elements of one range(): the bound of the sandbox that chat templates are written against. */
#define JINJA_MAX_RANGE 100000

#endif
