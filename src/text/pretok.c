#include "text/pretok.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <string.h>

#include "base/mem.h"
#include "base/size.h"

enum { MAX_STAGES = 4 };

/* White_Space, to be put inside a character class. */
#define WS \
  "\\x{09}-\\x{0D}\\x{20}\\x{85}\\x{A0}\\x{1680}\\x{2000}-\\x{200A}\\x{2028}\\x{2029}\\x{202F}\\x{205F}\\x{3000}"
/* The end of every pattern here: white space, the last one of a run left to the word behind it. */
#define TAIL "[" WS "]+(?![^" WS "])|[" WS "]+"
#define GPT2 "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^" WS "\\p{L}\\p{N}]+|" TAIL
#define SHORT_I "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
/* What Llama 3 and Qwen share; they differ in how many digits stay together. */
#define LLAMA3(digits) \
  SHORT_I "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" digits "| ?[^" WS "\\p{L}\\p{N}]+[\\r\\n]*|[" WS "]*[\\r\\n]+|" TAIL
#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"

static const struct pattern_set {
  const char *name;
  bool nfc;
  const char *stages[MAX_STAGES];
} SETS[] = {
    {"gpt-2", false, {GPT2}},
    {"smollm", false, {"\\p{N}", GPT2}},
    {"qwen2", true, {LLAMA3("\\p{N}")}},
    {"qwen35",
     true,
     {SHORT_I "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^" WS "\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|[" WS
              "]*[\\r\\n]+|" TAIL}},
    {"llama-bpe", false, {LLAMA3("\\p{N}{1,3}")}},
    {"gpt-4o",
     false,
     {"[^\\r\\n\\p{L}\\p{N}]?" UPPER "*" LOWER "+" SHORT_I "?|[^\\r\\n\\p{L}\\p{N}]?" UPPER "+" LOWER "*" SHORT_I
      "?|\\p{N}{1,3}| ?[^" WS "\\p{L}\\p{N}]+[\\r\\n/]*|[" WS "]*[\\r\\n]+|" TAIL}},
};

struct df_pretok {
  pcre2_general_context *general; /* routes PCRE2's memory through base/mem.h */
  pcre2_code *stages[MAX_STAGES];
  size_t n_stages;
  bool nfc;
};

/* State of one run, so that threads share nothing but compiled patterns. */
typedef struct run_state {
  const df_pretok *p;
  pcre2_match_data *match;
  pcre2_match_context *context;
  df_pretok_fn fn;
  void *arg;
  df_error *err;
} run_state;

static void *pcre_alloc(size_t n, void *arg) {
  (void)arg;
  return df_alloc(n);
}

static void pcre_free(void *p, void *arg) {
  (void)arg;
  df_free(p);
}

static const struct pattern_set *find_set(const char *name, df_error *err) {
  for (size_t i = 0; i < DF_COUNT_OF(SETS); i++)
    if (strcmp(SETS[i].name, name) == 0) return &SETS[i];
  (void)DF_FAIL(err, DF_ERR_UNSUPPORTED, "could not set up the tokenizer: unknown pre-tokeniser \"%.64s\"", name);
  char known[128] = "";
  size_t used = 0;
  for (size_t i = 0; i < DF_COUNT_OF(SETS); i++) {
    size_t n = strlen(SETS[i].name);
    if (used + n + 3 > sizeof known) break;
    if (i) {
      memcpy(known + used, ", ", 2);
      used += 2;
    }
    memcpy(known + used, SETS[i].name, n);
    used += n;
    known[used] = '\0';
  }
  df_error_hint(err, "known pre-tokenisers: %s", known);
  return NULL;
}

df_status df_pretok_create(const char *name, df_pretok **out, df_error *err) {
  const struct pattern_set *set = find_set(name, err);
  if (!set) return DF_ERR_UNSUPPORTED;
  df_pretok *p = df_calloc(1, sizeof *p);
  if (!p) return DF_OOM(err, "a pre-tokeniser", sizeof *p);
  df_status s = DF_OK;
  p->nfc = set->nfc;
  p->general = pcre2_general_context_create(pcre_alloc, pcre_free, NULL);
  pcre2_compile_context *cc = p->general ? pcre2_compile_context_create(p->general) : NULL;
  if (!cc) {
    s = DF_OOM(err, "a pre-tokeniser", 0);
    goto out;
  }
  for (size_t i = 0; i < MAX_STAGES && set->stages[i]; i++) {
    int code;
    PCRE2_SIZE at;
    pcre2_code *re =
        pcre2_compile((PCRE2_SPTR)set->stages[i], PCRE2_ZERO_TERMINATED, PCRE2_UTF | PCRE2_UCP, &code, &at, cc);
    if (!re) {
      /* The texts are constants: apart from memory, this can only be a PCRE2 built without Unicode. */
      s = code == PCRE2_ERROR_NOMEMORY || code == PCRE2_ERROR_HEAP_FAILED
              ? DF_OOM(err, "a pre-tokeniser pattern", 0)
              : DF_FAIL(err, DF_ERR_UNSUPPORTED, "could not compile the pre-tokeniser \"%s\": pcre2 error %d at %zu",
                        name, code, (size_t)at);
      goto out;
    }
    p->stages[p->n_stages++] = re;
    /* Not fatal: a system that forbids executable memory runs the interpreter instead. */
    (void)pcre2_jit_compile(re, PCRE2_JIT_COMPLETE);
  }
  *out = p;
  p = NULL;
out:
  pcre2_compile_context_free(cc);
  df_pretok_free(p);
  return s;
}

void df_pretok_free(df_pretok *p) {
  if (!p) return;
  for (size_t i = 0; i < p->n_stages; i++) pcre2_code_free(p->stages[i]);
  pcre2_general_context_free(p->general);
  df_free(p);
}

bool df_pretok_wants_nfc(const df_pretok *p) { return p->nfc; }

/* Next match of a stage at or after `from`. Every pattern above is linear in the length of what it matches, so a limit
 * of a few steps a byte is never reached by good patterns, however long the text. */
static int match_next(const run_state *r, const pcre2_code *re, const char *text, size_t n, size_t from) {
  int rc = pcre2_match(re, (PCRE2_SPTR)text, n, from, PCRE2_NO_UTF_CHECK, r->match, r->context);
  if (rc == PCRE2_ERROR_JIT_STACKLIMIT)
    rc = pcre2_match(re, (PCRE2_SPTR)text, n, from, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, r->match, r->context);
  return rc;
}

static df_status run_stage(const run_state *r, size_t stage, const char *text, size_t n) {
  if (n == 0) return DF_OK;
  if (stage == r->p->n_stages) return r->fn(r->arg, text, n, r->err);
  size_t done = 0; /* everything before is handed on */
  while (done < n) {
    int rc = match_next(r, r->p->stages[stage], text, n, done);
    if (rc == PCRE2_ERROR_NOMATCH) break;
    if (rc == PCRE2_ERROR_NOMEMORY) return DF_OOM(r->err, "pre-tokenising", n);
    if (rc < 0)
      return DF_FAIL(r->err, DF_ERR_LIMIT, "could not pre-tokenise %zu bytes of text: pcre2 error %d at byte %zu", n,
                     rc, done);
    const PCRE2_SIZE *span = pcre2_get_ovector_pointer(r->match);
    size_t begin = span[0], end = span[1]; /* copied: the next stage uses the same match data */
    if (end <= begin) return DF_FAIL(r->err, DF_ERR_INTERNAL, "a pre-tokeniser pattern matched nothing");
    DF_TRY(run_stage(r, stage + 1, text + done, begin - done));
    DF_TRY(run_stage(r, stage + 1, text + begin, end - begin));
    done = end;
  }
  return run_stage(r, stage + 1, text + done, n - done);
}

df_status df_pretok_run(const df_pretok *p, const char *text, size_t n, df_pretok_fn fn, void *arg, df_error *err) {
  run_state r = {.p = p, .fn = fn, .arg = arg, .err = err};
  df_status s = DF_OK;
  r.match = pcre2_match_data_create(1, p->general);
  r.context = pcre2_match_context_create(p->general);
  if (!r.match || !r.context) {
    s = DF_OOM(err, "pre-tokenising", 0);
    goto out;
  }
  size_t limit = n > UINT32_MAX / 64 ? UINT32_MAX : 100000 + n * 32;
  (void)pcre2_set_match_limit(r.context, limit > UINT32_MAX ? UINT32_MAX : (uint32_t)limit);
  s = run_stage(&r, 0, text, n);
out:
  pcre2_match_context_free(r.context);
  pcre2_match_data_free(r.match);
  return s;
}
