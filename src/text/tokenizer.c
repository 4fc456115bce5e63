#include "text/tokenizer.h"

#include <string.h>

#include "base/mem.h"
#include "base/size.h"
#include "text/tokenizer_parts.h"

static const char *const END_TEXTS[] = {"<|im_end|>",      "<|endoftext|>", "<|eot_id|>", "<|eom_id|>",
                                        "<|end_of_text|>", "<end_of_turn>", "<|return|>"};

df_vocab_spec df_vocab_spec_default(void) {
  return (df_vocab_spec){.bos = -1, .eos = -1, .eot = -1, .pad = -1, .mask = -1, .unk = -1};
}

static int type_of(const df_vocab_spec *spec, uint32_t id) { return spec->types ? spec->types[id] : DF_TOKEN_NORMAL; }

static bool is_added(int type) { return type == DF_TOKEN_USER || df_token_type_is_special(type); }

/* Length of a text in messages. */
static int shown(df_slice s) { return (int)DF_MIN(s.n, (size_t)64); }

static df_status check_spec(const df_vocab_spec *spec, df_error *err) {
  if (spec->n_tokens == 0 || spec->n_tokens > INT32_MAX || !spec->tokens || (spec->n_merges && !spec->merges))
    return DF_FAIL(err, DF_ERR_ARGUMENT, "could not set up the tokenizer: %u tokens", spec->n_tokens);
  if (!spec->pre) return DF_FAIL(err, DF_ERR_ARGUMENT, "could not set up the tokenizer: no pre-tokeniser is named");
  const struct {
    const char *name;
    int32_t id;
  } special[] = {{"bos", spec->bos}, {"eos", spec->eos},   {"eot", spec->eot},
                 {"pad", spec->pad}, {"mask", spec->mask}, {"unk", spec->unk}};
  for (size_t i = 0; i < DF_COUNT_OF(special); i++)
    if (special[i].id < -1 || (special[i].id >= 0 && (uint32_t)special[i].id >= spec->n_tokens))
      return DF_FAIL(err, DF_ERR_ARGUMENT, "could not set up the tokenizer: %s id %d is outside the vocabulary of %u",
                     special[i].name, (int)special[i].id, spec->n_tokens);
  for (uint32_t i = 0; i < spec->n_tokens; i++) {
    int type = type_of(spec, i);
    if (type < DF_TOKEN_NORMAL || type > DF_TOKEN_BYTE)
      return DF_FAIL(err, DF_ERR_FORMAT, "could not set up the tokenizer: token %u has the unknown type %d", i, type);
    if (is_added(type) && spec->tokens[i].n > DF_ADDED_TOKEN_MAX)
      return DF_FAIL(err, DF_ERR_LIMIT, "could not set up the tokenizer: added token %u has %zu bytes, the limit is %d",
                     i, spec->tokens[i].n, DF_ADDED_TOKEN_MAX);
  }
  return DF_OK;
}

static df_status strings_alloc(df_strings *s, uint32_t n, size_t bytes, df_error *err) {
  s->data = df_alloc(bytes + 1); /* never a NULL text, even when all are empty */
  s->at = df_calloc((size_t)n + 1, sizeof *s->at);
  return s->data && s->at ? DF_OK : DF_OOM(err, "the vocabulary", bytes);
}

static void strings_release(df_strings *s) {
  df_free(s->data);
  df_free(s->at);
  *s = (df_strings){0};
}

static int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

/* "<0x0A>" */
static bool parse_byte_token(df_slice text, char *out) {
  if (text.n != 6 || memcmp(text.p, "<0x", 3) != 0 || text.p[5] != '>') return false;
  int hi = hex_digit(text.p[3]), lo = hex_digit(text.p[4]);
  if (hi < 0 || lo < 0) return false;
  *out = (char)(hi << 4 | lo);
  return true;
}

static df_status copy_tokens(df_tokenizer *t, const df_vocab_spec *spec, df_error *err) {
  size_t total = 0;
  for (uint32_t i = 0; i < spec->n_tokens; i++)
    if (!df_add_size(total, spec->tokens[i].n, &total) || total > UINT32_MAX)
      return DF_FAIL(err, DF_ERR_LIMIT, "could not set up the tokenizer: the texts of its tokens exceed 4 GiB");
  DF_TRY(strings_alloc(&t->texts, spec->n_tokens, total, err));
  DF_TRY(strings_alloc(&t->bytes, spec->n_tokens, total, err));
  t->types = df_alloc(spec->n_tokens);
  if (!t->types) return DF_OOM(err, "the vocabulary", spec->n_tokens);
  for (uint32_t i = 0; i < spec->n_tokens; i++) {
    df_slice s = spec->tokens[i];
    int type = type_of(spec, i);
    char *text = t->texts.data + t->texts.at[i], *bytes = t->bytes.data + t->bytes.at[i];
    size_t n = s.n;
    if (n) memcpy(text, s.p, n);
    if (type == DF_TOKEN_BYTE) {
      if (!parse_byte_token(s, bytes))
        return DF_FAIL(err, DF_ERR_FORMAT,
                       "could not set up the tokenizer: byte token %u is \"%.*s\", not like \"<0x0A>\"", i, shown(s),
                       s.p);
      n = 1;
    } else if (is_added(type)) {
      if (n) memcpy(bytes, s.p, n);
    } else {
      n = df_bytelevel_decode(text, n, bytes);
    }
    t->types[i] = (uint8_t)type;
    t->texts.at[i + 1] = t->texts.at[i] + (uint32_t)s.n;
    t->bytes.at[i + 1] = t->bytes.at[i] + (uint32_t)n;
    t->hash = df_hash_bytes(text, s.n, t->hash);
  }
  t->n_tokens = spec->n_tokens;
  return DF_OK;
}

/* Text to id: normal tokens first, so that an added token of the same text cannot stand in the way of merging. */
static df_status fill_map(df_tokenizer *t, df_error *err) {
  DF_TRY(df_map_init(&t->by_text, t->n_tokens, err));
  for (int added = 0; added < 2; added++) {
    for (uint32_t i = 0; i < t->n_tokens; i++) {
      df_slice s = df_strings_get(&t->texts, i);
      uint32_t other;
      if (is_added(t->types[i]) != (added == 1) || df_map_get(&t->by_text, s.p, s.n, &other)) continue;
      DF_TRY(df_map_put(&t->by_text, s.p, s.n, i, NULL, err));
    }
  }
  return DF_OK;
}

static df_status bad_merge(df_error *err, uint32_t i, df_slice m, const char *why) {
  return DF_FAIL(err, DF_ERR_FORMAT, "could not set up the tokenizer: merge %u \"%.*s\" %s", i, shown(m), m.p, why);
}

/* Adds merge i. The texts hold no spaces, but a side may begin with one in vocabularies that are not encoded. */
static df_status add_merge(df_tokenizer *t, uint32_t i, df_slice m, df_buf *joined, df_error *err) {
  const char *space = m.n > 2 ? memchr(m.p + 1, ' ', m.n - 2) : NULL;
  if (!space) return bad_merge(err, i, m, "is not two texts with a space between");
  size_t left_n = (size_t)(space - m.p), right_n = m.n - left_n - 1;
  joined->len = 0;
  DF_TRY(df_buf_put(joined, m.p, left_n, err));
  DF_TRY(df_buf_put(joined, space + 1, right_n, err));
  uint32_t left, right, made;
  if (!df_map_get(&t->by_text, m.p, left_n, &left) || !df_map_get(&t->by_text, space + 1, right_n, &right))
    return bad_merge(err, i, m, "names a token that is not in the vocabulary");
  if (!df_map_get(&t->by_text, joined->data, joined->len, &made))
    return bad_merge(err, i, m, "makes a token that is not in the vocabulary");
  if (!df_token_is_mergeable(t, left) || !df_token_is_mergeable(t, right) || !df_token_is_mergeable(t, made))
    return DF_OK;
  df_bpe_add(&t->bpe, (int32_t)left, (int32_t)right, i, (int32_t)made);
  return DF_OK;
}

static df_status fill_bpe(df_tokenizer *t, const df_vocab_spec *spec, df_error *err) {
  DF_TRY(df_bpe_init(&t->bpe, spec->n_merges, err));
  for (unsigned b = 0; b < 256; b++) {
    char c[2];
    uint32_t id;
    size_t n = df_bytelevel_put((uint8_t)b, c);
    if (df_map_get(&t->by_text, c, n, &id) && df_token_is_mergeable(t, id)) t->bpe.byte_id[b] = (int32_t)id;
  }
  df_buf joined;
  df_buf_init(&joined, 0);
  df_status s = DF_OK;
  for (uint32_t i = 0; s == DF_OK && i < spec->n_merges; i++) {
    s = add_merge(t, i, spec->merges[i], &joined, err);
    t->hash = df_hash_bytes(spec->merges[i].p, spec->merges[i].n, t->hash);
  }
  df_buf_release(&joined);
  return s;
}

/* Collects the added tokens: only user-defined ones, or all kinds. */
static df_status fill_added(const df_tokenizer *t, bool all, df_added *out, df_error *err) {
  uint32_t n = 0, k = 0;
  for (uint32_t i = 0; i < t->n_tokens; i++) n += is_added(t->types[i]);
  if (n == 0) return DF_OK;
  df_slice *texts = df_calloc(n, sizeof *texts);
  int32_t *ids = df_calloc(n, sizeof *ids);
  df_status s = texts && ids ? DF_OK : DF_OOM(err, "added tokens", n * sizeof *texts);
  for (uint32_t i = 0; s == DF_OK && i < t->n_tokens; i++) {
    if (!is_added(t->types[i]) || (!all && t->types[i] != DF_TOKEN_USER)) continue;
    texts[k] = df_strings_get(&t->texts, i);
    ids[k] = (int32_t)i;
    k += texts[k].n > 0;
  }
  if (s == DF_OK) s = df_added_init(out, texts, ids, k, err);
  df_free(texts);
  df_free(ids);
  return s;
}

static bool ends_generation(const df_tokenizer *t, int32_t id) {
  if (id == t->eos || id == t->eot) return true;
  if (t->types[id] != DF_TOKEN_CONTROL) return false;
  df_slice s = df_strings_get(&t->texts, (uint32_t)id);
  for (size_t k = 0; k < DF_COUNT_OF(END_TEXTS); k++)
    if (s.n == strlen(END_TEXTS[k]) && memcmp(s.p, END_TEXTS[k], s.n) == 0) return true;
  return false;
}

static df_status fill_eog(df_tokenizer *t, df_error *err) {
  df_ids ids = {0};
  df_status s = DF_OK;
  for (uint32_t i = 0; s == DF_OK && i < t->n_tokens; i++)
    if (ends_generation(t, (int32_t)i)) s = df_ids_push(&ids, (int32_t)i, err);
  t->eog = ids.v;
  t->n_eog = ids.n;
  return s;
}

df_status df_tokenizer_create(const df_vocab_spec *spec, df_tokenizer **out, df_error *err) {
  DF_TRY(check_spec(spec, err));
  df_tokenizer *t = df_calloc(1, sizeof *t);
  if (!t) return DF_OOM(err, "a tokenizer", sizeof *t);
  t->add_bos = spec->add_bos;
  t->ignore_merges = spec->ignore_merges;
  t->bos = spec->bos;
  t->eos = spec->eos;
  t->eot = spec->eot;
  t->pad = spec->pad;
  t->mask = spec->mask;
  t->unk = spec->unk;
  df_status s;
  DF_TRY_GOTO(s, df_pretok_create(spec->pre, &t->pretok, err), out);
  t->nfc = spec->normalize_nfc || df_pretok_wants_nfc(t->pretok);
  DF_TRY_GOTO(s, copy_tokens(t, spec, err), out);
  DF_TRY_GOTO(s, fill_map(t, err), out);
  DF_TRY_GOTO(s, fill_bpe(t, spec, err), out);
  DF_TRY_GOTO(s, fill_added(t, false, &t->added_always, err), out);
  DF_TRY_GOTO(s, fill_added(t, true, &t->added_all, err), out);
  DF_TRY_GOTO(s, fill_eog(t, err), out);
  *out = t;
  t = NULL;
out:
  df_tokenizer_free(t);
  return s;
}

void df_tokenizer_free(df_tokenizer *t) {
  if (!t) return;
  strings_release(&t->texts);
  strings_release(&t->bytes);
  df_free(t->types);
  df_map_release(&t->by_text);
  df_bpe_release(&t->bpe);
  df_pretok_free(t->pretok);
  df_added_release(&t->added_always);
  df_added_release(&t->added_all);
  df_free(t->eog);
  df_token_trie_free(t->trie);
  df_free(t);
}

static bool known(const df_tokenizer *t, int32_t id) { return id >= 0 && (uint32_t)id < t->n_tokens; }

bool df_tokenizer_piece(const df_tokenizer *t, int32_t id, const char **bytes, size_t *n) {
  df_slice s = known(t, id) ? df_strings_get(&t->bytes, (uint32_t)id) : (df_slice){"", 0};
  *bytes = s.p;
  *n = s.n;
  return known(t, id);
}

uint32_t df_tokenizer_size(const df_tokenizer *t) { return t->n_tokens; }

df_slice df_tokenizer_text(const df_tokenizer *t, int32_t id) {
  return known(t, id) ? df_strings_get(&t->texts, (uint32_t)id) : (df_slice){NULL, 0};
}

int32_t df_tokenizer_find(const df_tokenizer *t, const char *text, size_t n) {
  uint32_t id;
  return df_map_get(&t->by_text, text, n, &id) ? (int32_t)id : -1;
}

df_token_type df_tokenizer_type(const df_tokenizer *t, int32_t id) {
  return known(t, id) ? (df_token_type)t->types[id] : DF_TOKEN_UNUSED;
}

bool df_tokenizer_is_special(const df_tokenizer *t, int32_t id) {
  return known(t, id) && df_token_type_is_special(t->types[id]);
}

int32_t df_tokenizer_bos(const df_tokenizer *t) { return t->bos; }
int32_t df_tokenizer_eos(const df_tokenizer *t) { return t->eos; }
int32_t df_tokenizer_pad(const df_tokenizer *t) { return t->pad; }
int32_t df_tokenizer_mask(const df_tokenizer *t) { return t->mask; }
bool df_tokenizer_adds_bos(const df_tokenizer *t) { return t->add_bos && t->bos >= 0; }

const int32_t *df_tokenizer_eog_ids(const df_tokenizer *t, size_t *n) {
  *n = t->n_eog;
  return t->eog;
}

bool df_tokenizer_is_eog(const df_tokenizer *t, int32_t id) {
  for (size_t i = 0; i < t->n_eog; i++)
    if (t->eog[i] == id) return true;
  return false;
}

uint64_t df_tokenizer_hash(const df_tokenizer *t) { return t->hash; }

int32_t df_tokenizer_first_difference(const df_tokenizer *a, const df_tokenizer *b) {
  uint32_t both = DF_MIN(a->n_tokens, b->n_tokens);
  for (uint32_t i = 0; i < both; i++) {
    df_slice x = df_strings_get(&a->texts, i), y = df_strings_get(&b->texts, i);
    if (x.n != y.n || memcmp(x.p, y.p, x.n) != 0) return (int32_t)i;
  }
  return a->n_tokens == b->n_tokens ? -1 : (int32_t)both;
}
