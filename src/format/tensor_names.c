#include "format/tensor_names.h"

#include <stdio.h>
#include <string.h>

#include "base/size.h"

typedef struct pair {
  const char *gguf;
  const char *hf;
} pair;

/* Stems; ".weight" or ".bias" follows and is the same on both sides. */
static const pair k_layer[] = {
    {"attn_norm", "input_layernorm"},    {"attn_q", "self_attn.q_proj"},
    {"attn_k", "self_attn.k_proj"},      {"attn_v", "self_attn.v_proj"},
    {"attn_output", "self_attn.o_proj"}, {"attn_q_norm", "self_attn.q_norm"},
    {"attn_k_norm", "self_attn.k_norm"}, {"ffn_norm", "post_attention_layernorm"},
    {"ffn_gate", "mlp.gate_proj"},       {"ffn_up", "mlp.up_proj"},
    {"ffn_down", "mlp.down_proj"},
};

static const pair k_global[] = {
    {"token_embd", "embed_tokens"},     {"output_norm", "norm"}, {"output", "lm_head"}, {"fc", "fc"},
    {"enc.output_norm", "hidden_norm"},
};

enum { FIRST_DRAFT_GLOBAL = 3 };

static const pair k_alias[] = {
    {"layers.0.", "midlayer."},
    {"fc.", "encoder.fc."},
    {"hidden_norm.", "encoder.output_norm_enc."},
};

/* A name taken apart. */
typedef struct parts {
  long layer;       /* -1 for global tensors */
  const char *stem; /* inside the name */
  size_t stem_len;
  const char *suffix; /* ".weight" or ".bias" */
} parts;

/* Digits without leading zeros, at most six of them, so that one tensor has one name. */
static long parse_index(const char **p) {
  const char *s = *p;
  long v = 0;
  int n = 0;
  while (s[n] >= '0' && s[n] <= '9' && n < 7) v = v * 10 + (s[n++] - '0');
  if (n == 0 || n == 7 || (n > 1 && s[0] == '0') || s[n] != '.') return -1;
  *p = s + n + 1;
  return v;
}

static bool take_apart(const char *name, const char *layer_prefix, parts *out) {
  size_t n = strlen(layer_prefix);
  out->layer = -1;
  if (strncmp(name, layer_prefix, n) == 0) {
    name += n;
    out->layer = parse_index(&name);
    if (out->layer < 0) return false;
  }
  const char *dot = strrchr(name, '.');
  if (!dot || (strcmp(dot, ".weight") != 0 && strcmp(dot, ".bias") != 0)) return false;
  out->stem = name;
  out->stem_len = (size_t)(dot - name);
  out->suffix = dot;
  return true;
}

static bool equals(const char *s, const char *stem, size_t len) {
  return strlen(s) == len && memcmp(s, stem, len) == 0;
}

static const pair *find_pair(const parts *p, bool by_gguf) {
  const pair *list = p->layer >= 0 ? k_layer : k_global;
  size_t n = p->layer >= 0 ? DF_COUNT_OF(k_layer) : DF_COUNT_OF(k_global);
  for (size_t i = 0; i < n; i++)
    if (equals(by_gguf ? list[i].gguf : list[i].hf, p->stem, p->stem_len)) return &list[i];
  return NULL;
}

static bool fits(int n) { return n > 0 && n < DF_NAME_MAX; }

/* "layers.3.self_attn.q_proj.weight" */
static bool canonical_hf(const char *gguf_name, char out[DF_NAME_MAX]) {
  parts p;
  if (!take_apart(gguf_name, "blk.", &p)) return false;
  const pair *found = find_pair(&p, true);
  if (!found) return false;
  if (p.layer >= 0) return fits(snprintf(out, DF_NAME_MAX, "layers.%ld.%s%s", p.layer, found->hf, p.suffix));
  return fits(snprintf(out, DF_NAME_MAX, "%s%s", found->hf, p.suffix));
}

/* Puts the alias in place of what it stands for (or the reverse); false when none applies. */
static bool swap_alias(const char *name, bool to_alias, char out[DF_NAME_MAX]) {
  for (size_t i = 0; i < DF_COUNT_OF(k_alias); i++) {
    const char *from = to_alias ? k_alias[i].gguf : k_alias[i].hf;
    const char *to = to_alias ? k_alias[i].hf : k_alias[i].gguf;
    size_t n = strlen(from);
    if (strncmp(name, from, n) == 0) return fits(snprintf(out, DF_NAME_MAX, "%s%s", to, name + n));
  }
  return false;
}

bool df_name_to_hf(const char *gguf_name, unsigned i, char out[DF_NAME_MAX]) {
  char name[DF_NAME_MAX], alias[DF_NAME_MAX];
  const char *use = name;
  if (i >= DF_NAME_SPELLINGS || !canonical_hf(gguf_name, name)) return false;
  if (i >= 2) {
    if (!swap_alias(name, true, alias)) return false;
    use = alias;
  }
  return fits(snprintf(out, DF_NAME_MAX, "%s%s", i % 2 == 0 ? "model." : "", use));
}

bool df_name_from_hf(const char *hf_name, char out[DF_NAME_MAX]) {
  char plain[DF_NAME_MAX];
  parts p;
  if (strncmp(hf_name, "model.", 6) == 0) hf_name += 6;
  if (swap_alias(hf_name, false, plain)) hf_name = plain;
  if (!take_apart(hf_name, "layers.", &p)) return false;
  const pair *found = find_pair(&p, false);
  if (!found) return false;
  if (p.layer >= 0) return fits(snprintf(out, DF_NAME_MAX, "blk.%ld.%s%s", p.layer, found->gguf, p.suffix));
  return fits(snprintf(out, DF_NAME_MAX, "%s%s", found->gguf, p.suffix));
}

bool df_name_is_known(const char *gguf_name, bool draft, uint32_t n_layers) {
  parts p;
  if (!take_apart(gguf_name, "blk.", &p)) return false;
  const pair *found = find_pair(&p, true);
  if (!found) return false;
  if (p.layer >= 0) return (unsigned long)p.layer < n_layers;
  return draft || found < &k_global[FIRST_DRAFT_GLOBAL];
}

static bool ends_with(const char *s, const char *end) {
  size_t n = strlen(s), m = strlen(end);
  return n >= m && strcmp(s + n - m, end) == 0;
}

bool df_name_is_ignorable(const char *name) {
  return strcmp(name, "t2d") == 0 || ends_with(name, "rotary_emb.inv_freq") || ends_with(name, ".weight_scale") ||
         ends_with(name, ".weight_scale_inv") || ends_with(name, ".input_scale");
}
