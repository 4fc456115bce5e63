/*
 * text/grammar_ast.h - a grammar as it is written: rules and the tree of each. For the files grammar*.c only.
 *
 * Indices instead of pointers throughout, so that the arrays can grow. Ownership: df_gast_release. Threads: none.
 */
#ifndef DF_TEXT_GRAMMAR_AST_H
#define DF_TEXT_GRAMMAR_AST_H

#include "base/map.h"
#include "text/tokenizer.h"

/* Bounds. Schemas of a few hundred members stay below a hundredth of each. */
#define DF_GRAMMAR_MAX_TEXT ((size_t)2 << 20)
enum {
  DF_GRAMMAR_MAX_NAME = 256,
  DF_GRAMMAR_MAX_NESTING = 128,  /* groups within groups: the parser and the compiler recurse, */
  DF_GRAMMAR_MAX_STACKED = 4,    /* and the latter for repetitions of one item as well */
  DF_GRAMMAR_MAX_REPEAT = 65536, /* {m,n} */
  DF_GRAMMAR_MAX_NODES = 1 << 19,
  DF_GRAMMAR_MAX_RULES = 1 << 16,
  DF_GRAMMAR_MAX_RANGES = 1 << 18,
  DF_GRAMMAR_MAX_STATES = 1 << 18,
  DF_GRAMMAR_MAX_EDGES = 1 << 19
};
#define DF_GRAMMAR_NONE UINT32_MAX

typedef enum df_gkind {
  DF_GNODE_SEQ,   /* children a, next of a, ...; NONE = empty */
  DF_GNODE_ALT,   /* the same, alternatives */
  DF_GNODE_BYTES, /* bytes[a .. a + b) */
  DF_GNODE_CLASS, /* ranges[a .. a + b): one of these characters; sorted, apart from each other, no surrogates */
  DF_GNODE_RULE,  /* rule a */
  DF_GNODE_REPEAT /* child a, b to c times; c NONE = without end */
} df_gkind;

typedef struct df_gnode {
  df_gkind kind;
  uint32_t a, b, c;
  uint32_t next; /* sibling */
} df_gnode;

typedef struct df_grange {
  uint32_t lo, hi; /* characters, both included */
} df_grange;

typedef struct df_grule {
  df_slice name; /* in the grammar's text, where it is first mentioned */
  uint32_t body; /* node, NONE while only referred to */
} df_grule;

typedef struct df_gast {
  df_gnode *nodes;
  df_grange *ranges;
  df_grule *rules;
  uint8_t *bytes;
  uint32_t n_nodes, n_ranges, n_rules, n_bytes;
  uint32_t cap_nodes, cap_ranges, cap_rules, cap_bytes;
  uint32_t root;
  df_map by_name; /* keys borrow the text */
} df_gast;

/* Room for one more element (and at least `more`) in an array of n. DF_ERR_LIMIT beyond max, DF_ERR_MEMORY. */
df_status df_garray_grow(void *array, uint32_t *cap, uint32_t n, uint32_t more, size_t size, uint32_t max,
                         const char *what, df_error *err) DF_CHECK;

/* text must outlive *out. DF_ERR_FORMAT with line and column, DF_ERR_LIMIT, DF_ERR_MEMORY. *out is zero or filled by
 * this; release it in any case. */
df_status df_gast_parse(const char *text, size_t n, df_gast *out, df_error *err) DF_CHECK;
void df_gast_release(df_gast *a);

#endif
