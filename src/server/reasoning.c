#include "server/reasoning.h"

#include <string.h>

static const char k_open[] = "<think>", k_close[] = "</think>";

void df_reasoning_init(df_reasoning *r, df_think_mode think) {
  *r = (df_reasoning){.where = think == DF_THINK_OPEN   ? DF_REASONING_INSIDE
                               : think == DF_THINK_AUTO ? DF_REASONING_START
                                                        : DF_REASONING_OVER};
}

/* White space, then the opening tag; anything else is no reasoning. */
static void before(df_reasoning *r, char c) {
  if (r->matched == 0 && strchr(" \t\r\n", c) && c) return;
  if (c != k_open[r->matched]) {
    r->where = DF_REASONING_OVER;
  } else if (k_open[++r->matched] == '\0') {
    r->where = DF_REASONING_INSIDE;
    r->matched = 0;
  }
}

/* One byte of reasoning or of the closing tag; sets *counts for a token that holds reasoning, *tag for one that ends
 * within what may be the tag. */
static void inside(df_reasoning *r, char c, bool *counts, bool *tag) {
  if (c == k_close[r->matched]) {
    *tag = true;
    if (k_close[++r->matched] != '\0') return;
    r->where = DF_REASONING_OVER;
    r->in_tag = 0;
    *tag = false;
    return;
  }
  r->n += r->in_tag; /* it was no tag */
  r->in_tag = 0;
  *counts |= c != k_close[0] || *tag; /* what of this token looked like a tag is reasoning too */
  r->matched = *tag = c == k_close[0];
}

void df_reasoning_token(df_reasoning *r, const char *text, size_t n) {
  bool counts = false, tag = false;
  for (size_t i = 0; i < n && r->where != DF_REASONING_OVER; i++) {
    if (r->where == DF_REASONING_START)
      before(r, text[i]);
    else
      inside(r, text[i], &counts, &tag);
  }
  if (counts)
    r->n++;
  else if (tag)
    r->in_tag++;
}

uint32_t df_reasoning_tokens(const df_reasoning *r, bool ended) { return r->n + (ended ? r->in_tag : 0); }
