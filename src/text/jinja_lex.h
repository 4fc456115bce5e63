/*
 * text/jinja_lex.h - source text of a template to tokens, with white-space control.
 *
 * Ownership: the token array is the caller's to free with df_jtokens_release; tokens point into the source.
 * Threads:   no shared state.
 * Source:    Jinja template syntax with trim_blocks and lstrip_blocks on and keep_trailing_newline off.
 */
#ifndef DF_TEXT_JINJA_LEX_H
#define DF_TEXT_JINJA_LEX_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

typedef enum df_jtok {
  TK_EOF,
  TK_DATA,
  TK_BLOCK_BEGIN,
  TK_BLOCK_END,
  TK_VAR_BEGIN,
  TK_VAR_END,
  TK_NAME,
  TK_STRING, /* text includes the quotes, escapes undone by the parser */
  TK_INT,
  TK_FLOAT,
  TK_ADD,
  TK_SUB,
  TK_MUL,
  TK_DIV,
  TK_FLOORDIV,
  TK_MOD,
  TK_POW,
  TK_TILDE,
  TK_LBRACKET,
  TK_RBRACKET,
  TK_LPAREN,
  TK_RPAREN,
  TK_LBRACE,
  TK_RBRACE,
  TK_EQ,
  TK_NE,
  TK_GT,
  TK_GE,
  TK_LT,
  TK_LE,
  TK_ASSIGN,
  TK_DOT,
  TK_COLON,
  TK_PIPE,
  TK_COMMA,
  TK_SEMICOLON
} df_jtok;

typedef struct df_jtoken {
  uint32_t type; /* df_jtok */
  uint32_t line; /* from 1 */
  uint32_t off, len;
} df_jtoken;

typedef struct df_jtokens {
  df_jtoken *v; /* ends with TK_EOF */
  size_t n, cap;
} df_jtokens;

/* src: valid UTF-8 with \n line ends only (df_jlex_normalise), at most JINJA_MAX_SOURCE bytes. */
df_status df_jlex(const char *src, size_t n, df_jtokens *out, df_error *err) DF_CHECK;
void df_jtokens_release(df_jtokens *t);

/* Rewrites \r\n and \r to \n in place and drops one final newline; returns the new length. */
size_t df_jlex_normalise(char *s, size_t n);

/* Name of a token type for messages. */
const char *df_jtok_name(uint32_t type);

#endif
