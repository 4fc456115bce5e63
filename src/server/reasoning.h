/*
 * server/reasoning.h - how many tokens of an answer are reasoning: those with at least one byte between <think> and
 * </think>. The tags are not counted, whether they are one token or several; a token that holds the end of the
 * reasoning and a part of the tag is. Reasoning that is cut off counts as far as it goes.
 *
 * Where reasoning begins is what df_answer_parser (tool_calls.h) goes by, and so is where it ends.
 *
 * Ownership: none. Threads: a counter has one owner.
 */
#ifndef DF_SERVER_REASONING_H
#define DF_SERVER_REASONING_H

#include "server/tool_calls.h"

typedef struct df_reasoning {
  enum { DF_REASONING_START, DF_REASONING_INSIDE, DF_REASONING_OVER } where;
  uint32_t matched; /* bytes of the tag that is looked for */
  uint32_t in_tag;  /* tokens that are nothing but the beginning of what may be the closing tag */
  uint32_t n;       /* tokens of reasoning so far, without in_tag */
} df_reasoning;

void df_reasoning_init(df_reasoning *r, df_think_mode think);
/* The next token of the answer, with the bytes that it adds to the text. */
void df_reasoning_token(df_reasoning *r, const char *text, size_t n);
/* ended: no token follows, so that half a closing tag is reasoning like all before it. */
uint32_t df_reasoning_tokens(const df_reasoning *r, bool ended);

#endif
