/*
 * support/grammar_probe.h - grammars over a small vocabulary, walked token by token. Everything fails the current test
 * when it cannot be done.
 *
 * Ownership: callers free what they get. Threads: one.
 */
#ifndef DF_TEST_SUPPORT_GRAMMAR_PROBE_H
#define DF_TEST_SUPPORT_GRAMMAR_PROBE_H

#include "text/grammar.h"

enum { GRAMMAR_PROBE_EOS = 256 };

/* 0..255 bytes, 256 the end, 257 a control token, then texts of several bytes from "a", "b" and "c", and tokens that
 * must never be allowed. */
df_tokenizer *grammar_probe_tokenizer(void);
df_grammar *grammar_probe_compile(const df_tokenizer *t, const char *text);
bool grammar_probe_accept(df_matcher *m, int32_t id);
const uint64_t *grammar_probe_mask(df_matcher *m);
static inline bool grammar_probe_bit(const uint64_t *bits, int32_t id) { return bits[id / 64] >> (id % 64) & 1; }
/* By single bytes. -1: some byte is not allowed; else whether the text may end behind it. The matcher is where it was
 * afterwards. */
int grammar_probe_feed(df_matcher *m, const char *text, size_t n);

#endif
