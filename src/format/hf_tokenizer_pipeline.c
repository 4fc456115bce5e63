#include <string.h>

#include "base/size.h"
#include "format/hf_tokenizer_parts.h"

/* Patterns of "Split" steps as the model files have them, and what they are called. A pattern is compared as text: two
 * that mean the same but are written differently are two entries. */
#define TAIL "|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define SHORT_I "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"

static const struct {
  const char *regex, *name;
} PATTERNS[] = {
    {SHORT_I "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*" TAIL, "qwen2"},
    {SHORT_I "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*" TAIL, "qwen35"},
    {SHORT_I "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*" TAIL, "llama-bpe"},
    {"[^\\r\\n\\p{L}\\p{N}]?" UPPER "*" LOWER "+" SHORT_I "?|[^\\r\\n\\p{L}\\p{N}]?" UPPER "+" LOWER "*" SHORT_I
     "?|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*" TAIL,
     "gpt-4o"},
    {"'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+", "gpt-2"},
};

/* What the steps of the pre-tokeniser did so far. */
typedef struct split_steps {
  const char *pattern; /* name of the splitting pattern */
  bool digits;         /* every digit alone, before it */
  bool byte_level;     /* the last step */
} split_steps;

static const char *type_of(const df_json *v) {
  const char *type = df_json_str(df_json_member(v, "type"), NULL);
  return type ? type : "";
}

/* Steps of a stage: the members of a "Sequence", or the stage itself. */
static size_t step_count(const df_json *v, const char *list) {
  if (df_json_kind_of(v) == DF_JSON_NULL) return 0;
  return strcmp(type_of(v), "Sequence") == 0 ? df_json_size(df_json_member(v, list)) : 1;
}

static const df_json *step_at(const df_json *v, const char *list, size_t i) {
  return strcmp(type_of(v), "Sequence") == 0 ? df_json_at(df_json_member(v, list), i) : v;
}

static df_status read_normalizer(const df_json *v, df_hf_tokenizer *t, df_error *err) {
  for (size_t i = 0; i < step_count(v, "normalizers"); i++) {
    const char *type = type_of(step_at(v, "normalizers", i));
    if (strcmp(type, "NFC") != 0)
      return DF_FAIL(err, DF_ERR_UNSUPPORTED, "the normaliser \"%.40s\" is not supported", type);
    t->normalize_nfc = true;
  }
  return DF_OK;
}

static df_status read_split(const df_json *v, split_steps *s, df_error *err) {
  const char *behavior, *regex = df_json_str(df_json_member(df_json_member(v, "pattern"), "Regex"), NULL);
  bool invert;
  DF_TRY(df_json_opt_str(v, "behavior", "Isolated", &behavior, err));
  DF_TRY(df_json_opt_bool(v, "invert", false, &invert, err));
  if (s->pattern || invert || strcmp(behavior, "Isolated") != 0)
    return DF_FAIL(err, DF_ERR_UNSUPPORTED, "this kind of \"Split\" is not supported");
  for (size_t i = 0; regex && i < DF_COUNT_OF(PATTERNS); i++)
    if (strcmp(regex, PATTERNS[i].regex) == 0) s->pattern = PATTERNS[i].name;
  if (!s->pattern)
    return DF_FAIL(err, DF_ERR_UNSUPPORTED, "the splitting pattern \"%.200s\" is not known", regex ? regex : "");
  return DF_OK;
}

static df_status read_digits(const df_json *v, split_steps *s, df_error *err) {
  bool single;
  DF_TRY(df_json_opt_bool(v, "individual_digits", false, &single, err));
  if (!single || s->pattern || s->digits)
    return DF_FAIL(err, DF_ERR_UNSUPPORTED, "this kind of \"Digits\" is not supported");
  s->digits = true;
  return DF_OK;
}

static df_status read_byte_level(const df_json *v, split_steps *s, df_error *err) {
  bool prefix, regex;
  DF_TRY(df_json_opt_bool(v, "add_prefix_space", true, &prefix, err));
  DF_TRY(df_json_opt_bool(v, "use_regex", true, &regex, err));
  if (prefix || (regex && s->pattern))
    return DF_FAIL(err, DF_ERR_UNSUPPORTED, "this kind of \"ByteLevel\" is not supported");
  if (regex) s->pattern = "gpt-2";
  s->byte_level = true;
  return DF_OK;
}

static df_status read_pre_tokenizer(const df_json *v, df_hf_tokenizer *t, df_error *err) {
  split_steps s = {0};
  for (size_t i = 0; i < step_count(v, "pretokenizers"); i++) {
    const df_json *step = step_at(v, "pretokenizers", i);
    const char *type = type_of(step);
    if (s.byte_level) return DF_FAIL(err, DF_ERR_UNSUPPORTED, "a pre-tokeniser behind \"ByteLevel\" is not supported");
    if (strcmp(type, "Split") == 0)
      DF_TRY(read_split(step, &s, err));
    else if (strcmp(type, "Digits") == 0)
      DF_TRY(read_digits(step, &s, err));
    else if (strcmp(type, "ByteLevel") == 0)
      DF_TRY(read_byte_level(step, &s, err));
    else
      return DF_FAIL(err, DF_ERR_UNSUPPORTED, "the pre-tokeniser \"%.40s\" is not supported", type);
  }
  if (!s.byte_level || !s.pattern)
    return DF_FAIL(err, DF_ERR_UNSUPPORTED, "the pre-tokeniser does not split for a byte-level vocabulary");
  t->pre = s.pattern;
  if (s.digits) {
    if (strcmp(s.pattern, "gpt-2") != 0)
      return DF_FAIL(err, DF_ERR_UNSUPPORTED, "\"Digits\" before the pattern \"%s\" is not supported", s.pattern);
    t->pre = "smollm";
  }
  /* These names mean NFC too: a file that goes without would be read wrongly. */
  if (!t->normalize_nfc && strncmp(t->pre, "qwen", 4) == 0)
    return DF_FAIL(err, DF_ERR_UNSUPPORTED, "the pattern \"%s\" without NFC is not supported", t->pre);
  return DF_OK;
}

/* Only a bos in front can be honoured: "single" is [bos,] text. */
static df_status read_template(const df_json *v, df_hf_tokenizer *t, df_error *err) {
  const df_json *single = df_json_member(v, "single");
  size_t n = df_json_size(single);
  for (size_t i = 0; i < n; i++) {
    const df_json *special = df_json_member(df_json_at(single, i), "SpecialToken");
    if (!special) continue;
    if (i != 0 || n != 2)
      return DF_FAIL(err, DF_ERR_UNSUPPORTED, "this kind of \"TemplateProcessing\" is not supported");
    const char *text = df_json_str(df_json_member(special, "id"), NULL);
    const df_json *added = df_json_member(t->tokenizer_tree, "added_tokens");
    for (size_t k = 0; text && k < df_json_size(added); k++) {
      const df_json *a = df_json_at(added, k);
      const char *content = df_json_str(df_json_member(a, "content"), NULL);
      uint32_t id;
      if (!content || strcmp(content, text) != 0) continue;
      DF_TRY(df_hf_tokenizer_read_id(df_json_member(a, "id"), "\"id\" of an added token", &id, err));
      t->bos = (int32_t)id;
    }
    if (t->bos < 0) return DF_FAIL(err, DF_ERR_FORMAT, "the token that begins every text is not in \"added_tokens\"");
    t->add_bos = true;
  }
  return DF_OK;
}

df_status df_hf_tokenizer_read_pipeline(const df_json *root, df_hf_tokenizer *t, df_error *err) {
  DF_TRY(read_normalizer(df_json_member(root, "normalizer"), t, err));
  DF_TRY(read_pre_tokenizer(df_json_member(root, "pre_tokenizer"), t, err));
  const df_json *post = df_json_member(root, "post_processor");
  for (size_t i = 0; i < step_count(post, "processors"); i++) {
    const df_json *step = step_at(post, "processors", i);
    const char *type = type_of(step);
    if (strcmp(type, "TemplateProcessing") == 0)
      DF_TRY(read_template(step, t, err));
    else if (strcmp(type, "ByteLevel") != 0) /* that one moves offsets only */
      return DF_FAIL(err, DF_ERR_UNSUPPORTED, "the post-processor \"%.40s\" is not supported", type);
  }
  return DF_OK;
}

/* "eos_token" is a text, or an object with one. A text that is no token is an error where it matters. */
static df_status read_special(const df_hf_tokenizer *t, const char *key, bool matters, int32_t *id, df_error *err) {
  const df_json *v = df_json_member(t->config_tree, key);
  if (df_json_kind_of(v) == DF_JSON_NULL) return DF_OK;
  if (df_json_kind_of(v) == DF_JSON_OBJECT) v = df_json_member(v, "content");
  size_t n;
  const char *text = df_json_str(v, &n);
  if (!text) return DF_FAIL(err, DF_ERR_FORMAT, "\"%s\" of tokenizer_config.json is no text", key);
  for (uint32_t i = 0; i < t->n_tokens; i++) {
    if (t->tokens[i].len != n || memcmp(t->tokens[i].data, text, n) != 0) continue;
    *id = (int32_t)i;
    return DF_OK;
  }
  if (!matters) return DF_OK;
  return DF_FAIL(err, DF_ERR_FORMAT, "\"%s\" of tokenizer_config.json is \"%.40s\", which is no token", key, text);
}

static void read_chat_template(df_hf_tokenizer *t) {
  const df_json *v = df_json_member(t->config_tree, "chat_template");
  t->chat_template = df_json_str(v, NULL);
  for (size_t i = 0; i < df_json_size(v) && !t->chat_template; i++) {
    const char *name = df_json_str(df_json_member(df_json_at(v, i), "name"), NULL);
    if (name && strcmp(name, "default") == 0)
      t->chat_template = df_json_str(df_json_member(df_json_at(v, i), "template"), NULL);
  }
}

df_status df_hf_tokenizer_read_config(df_hf_tokenizer *t, df_error *err) {
  if (!t->config_tree) return DF_OK;
  if (df_json_kind_of(t->config_tree) != DF_JSON_OBJECT)
    return DF_FAIL(err, DF_ERR_FORMAT, "tokenizer_config.json is no JSON object");
  int32_t begins = t->bos; /* what the template puts in front */
  DF_TRY(read_special(t, "bos_token", true, &t->bos, err));
  if (begins >= 0 && t->bos != begins)
    return DF_FAIL(err, DF_ERR_UNSUPPORTED, "texts begin with token %d, but \"bos_token\" is %d", (int)begins,
                   (int)t->bos);
  DF_TRY(read_special(t, "eos_token", true, &t->eos, err));
  DF_TRY(read_special(t, "pad_token", false, &t->pad, err));
  DF_TRY(read_special(t, "unk_token", false, &t->unk, err));
  DF_TRY(read_special(t, "mask_token", false, &t->mask, err));
  DF_TRY(df_json_opt_bool(t->config_tree, "add_bos_token", t->add_bos, &t->add_bos, err));
  read_chat_template(t);
  return DF_OK;
}
