/*
 * text/grammar.h - which tokens may come next: GBNF grammars over a tokenizer. JSON schemas become grammars in
 * engine/json_schema.h.
 *
 * A grammar is compiled once into a byte-level pushdown automaton and shared by count; a matcher is one request's place
 * in it. Masks are computed per place by walking the vocabulary as a trie and are kept for places met before. A matcher
 * can be rolled back by tokens, so that drafted rows can be tried.
 *
 * Untrusted: grammar text comes from requests. Depth, size and work are bounded; errors name line and column.
 * Ownership: a grammar borrows its tokenizer. Threads: a grammar may be shared by threads; a matcher has one owner.
 */
#ifndef DF_TEXT_GRAMMAR_H
#define DF_TEXT_GRAMMAR_H

#include "text/tokenizer.h"

typedef struct df_grammar df_grammar;
typedef struct df_matcher df_matcher;

/* GBNF as in llama.cpp's grammars: rules "name ::= ...", rule "root", strings and classes with the escapes \x00 \u0000
 * \U00000000 \n \r \t \\ \" \[ \] \- \^ (characters, never single bytes), negated classes, "." for any character,
 * groups, ? * + {m} {m,} {m,n}, comments. A class never matches what is not valid UTF-8.
 * DF_ERR_FORMAT with line and column, for left recursion, and when no text is admitted; DF_ERR_UNSUPPORTED when the
 * vocabulary spells none of the texts; DF_ERR_LIMIT; DF_ERR_MEMORY. The text is not needed afterwards. */
df_status df_grammar_from_gbnf(const df_tokenizer *t, const char *text, size_t n, df_grammar **out,
                               df_error *err) DF_CHECK;
df_grammar *df_grammar_retain(df_grammar *g); /* returns g; NULL is fine */
void df_grammar_release(df_grammar *g);       /* the last one frees; NULL is fine */

/* At the beginning of the text. Holds a reference on g. DF_ERR_MEMORY. */
df_status df_matcher_create(df_grammar *g, df_matcher **out, df_error *err) DF_CHECK;
void df_matcher_free(df_matcher *m); /* NULL is fine */

/* Bit id % 64 of word id / 64 = the token may come next; end tokens where the text may end. (V + 63) / 64 words, valid
 * until the next call on this matcher. Some bit is set unless the text has ended, or may end and there is no end token.
 * DF_ERR_LIMIT for a grammar that is too ambiguous to be followed from here, DF_ERR_MEMORY. */
df_status df_matcher_mask(df_matcher *m, const uint64_t **mask, df_error *err) DF_CHECK;
/* Moves over a token; false, and no move, when it may not come here: exactly when its bit in the mask is not set, also
 * for ids outside the vocabulary. An end token ends the matching: nothing is allowed behind it. Errors (no move) as
 * above. */
df_status df_matcher_accept(df_matcher *m, int32_t id, bool *accepted, df_error *err) DF_CHECK;
/* Takes the last n accepted tokens back, an end token too; at most all of them. */
void df_matcher_rollback(df_matcher *m, uint32_t n);
/* Tokens accepted so far. */
uint32_t df_matcher_length(const df_matcher *m);
/* Whether the text may end here. True behind an end token. */
bool df_matcher_may_end(const df_matcher *m);
/* Whether it must end here: nothing but an end token is allowed. True behind an end token. */
bool df_matcher_must_end(const df_matcher *m);

#endif
