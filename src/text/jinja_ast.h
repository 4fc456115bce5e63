/*
 * text/jinja_ast.h - the parsed template.
 *
 * Ownership: nodes and their strings live in the arena of the template and are freed with it.
 * Threads:   immutable after parsing; any number of renders may read it at once.
 */
#ifndef DF_TEXT_JINJA_AST_H
#define DF_TEXT_JINJA_AST_H

#include <stdint.h>

#include "text/jinja_value.h"

typedef enum df_jkindof {
  /* expressions */
  JN_CONST,   /* val */
  JN_NAME,    /* name */
  JN_TUPLE,   /* list: elements */
  JN_LIST,    /* list: elements */
  JN_DICT,    /* list: keys, each with its value in b */
  JN_UNARY,   /* op, a */
  JN_BINARY,  /* op (token type), a, b */
  JN_CONCAT,  /* list: operands of ~ */
  JN_AND,     /* a, b */
  JN_OR,      /* a, b */
  JN_NOT,     /* a */
  JN_COMPARE, /* a, list: operands, each JN_OPERAND with op and a */
  JN_OPERAND,
  JN_COND,   /* a ? b : c (c may be NULL) */
  JN_ATTR,   /* a . name */
  JN_ITEM,   /* a [ b ] */
  JN_SLICE,  /* a [ b : c : d ] */
  JN_FILTER, /* a | name (list: arguments); a is NULL in a filter block; fn is the table index or -1 */
  JN_TEST,   /* a is name (list: arguments); op 1 = negated */
  JN_CALL,   /* a (list: arguments) */
  JN_ARG,    /* op: df_jarg; name for keywords; a */
  /* statements */
  JN_DATA,         /* val */
  JN_OUTPUT,       /* a */
  JN_FOR,          /* a: target, b: iterable, c: condition or NULL, list: body, other: else body, op 1 = recursive */
  JN_IF,           /* a: condition, list: body, other: else body */
  JN_SET,          /* a: target, b: value */
  JN_SET_BLOCK,    /* a: target, b: filter chain or NULL, list: body */
  JN_NSREF,        /* assignment target name . val */
  JN_MACRO,        /* name, params: JN_ARG with a = default or NULL, list: body, op: df_jmacro_uses */
  JN_CALL_BLOCK,   /* a: call, params, list: body, op: df_jmacro_uses */
  JN_FILTER_BLOCK, /* a: filter chain, list: body */
  JN_WITH,         /* params: JN_ARG with name target in b and value in a, list: body */
  JN_SCOPE,        /* list: body in a scope of its own */
  JN_BREAK,
  JN_CONTINUE
} df_jkindof;

enum { JARG_POS, JARG_KEYWORD, JARG_STAR, JARG_STAR2 };
enum { JUSE_VARARGS = 1, JUSE_KWARGS = 2, JUSE_CALLER = 4 };
enum { JOP_IN = 200, JOP_NOT_IN }; /* operators of JN_OPERAND beside the token types */

typedef struct df_jnode {
  uint8_t kind; /* df_jkindof */
  uint8_t op;
  int16_t fn; /* JN_FILTER, JN_TEST: index in its table, -1 = unknown */
  uint32_t line;
  struct df_jnode *a, *b, *c, *d;
  struct df_jnode *list, *other, *params; /* first of a chain */
  struct df_jnode *next;                  /* the chain */
  const df_jstr *name;                    /* interned: equal names are one pointer within a template */
  df_jv val;
} df_jnode;

/* Names that the evaluator binds itself, interned like those in the source. */
typedef struct df_jnames {
  const df_jstr *loop, *caller, *varargs, *kwargs;
} df_jnames;

struct df_chat_template {
  df_jarena arena;
  df_jnode *body;
  df_jnames names;
};

#endif
