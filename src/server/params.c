#include "server/params.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/size.h"
#include "text/utf8.h"

#define KIND(v) df_json_kind_name(df_json_kind_of(v))

/* ---- fields with a form of their own ---- */

static df_status read_max_tokens(df_gen *g, uint32_t shape, const df_json *v, df_error *err) {
  int64_t n;
  const bool negative = shape & DF_FOR_LLAMA; /* -1: no limit; -2: until the context is full, which is the same here */
  DF_TRY(df_json_to_i64(v, "the number of new tokens", negative ? -2 : 0, 1 << 24, &n, err));
  g->max_tokens = n < 0 ? -1 : n;
  return DF_OK;
}

static df_status read_seed(df_gen *g, uint32_t shape, const df_json *v, df_error *err) {
  int64_t seed;
  (void)shape;
  DF_TRY(df_json_to_i64(v, "\"seed\"", INT64_MIN, INT64_MAX, &seed, err));
  if (seed == -1) return DF_OK; /* random, as other servers have it */
  g->p.sampling.seed = (uint64_t)seed;
  g->seed_given = true;
  return DF_OK;
}

static df_status add_stop(df_gen *g, const df_json *v, df_error *err) {
  size_t n;
  const char *s = df_json_str(v, &n);
  if (!s) return DF_FAIL(err, DF_ERR_FORMAT, "\"stop\" must be a string or an array of strings, not %s", KIND(v));
  if (strlen(s) != n) return DF_FAIL(err, DF_ERR_FORMAT, "a stop string holds a zero byte");
  if (df_utf8_count(s, n) > DF_GEN_STOP_CHARS)
    return DF_FAIL(err, DF_ERR_FORMAT, "a stop string is longer than %d characters", DF_GEN_STOP_CHARS);
  if (n > 0) g->stop[g->n_stop++] = s; /* an empty one stops nothing */
  return DF_OK;
}

static df_status read_stop(df_gen *g, uint32_t shape, const df_json *v, df_error *err) {
  (void)shape;
  g->n_stop = 0;
  if (df_json_kind_of(v) != DF_JSON_ARRAY) return add_stop(g, v, err);
  if (df_json_size(v) > DF_GEN_MAX_STOP)
    return DF_FAIL(err, DF_ERR_FORMAT, "more than %d stop strings", DF_GEN_MAX_STOP);
  for (size_t i = 0; i < df_json_size(v); i++) DF_TRY(add_stop(g, df_json_at(v, i), err));
  return DF_OK;
}

static df_status read_stop_ids(df_gen *g, uint32_t shape, const df_json *v, df_error *err) {
  (void)shape;
  if (df_json_kind_of(v) != DF_JSON_ARRAY)
    return DF_FAIL(err, DF_ERR_FORMAT, "\"stop_token_ids\" must be an array of integers, not %s", KIND(v));
  if (df_json_size(v) > DF_SCHED_MAX_STOP_IDS)
    return DF_FAIL(err, DF_ERR_FORMAT, "more than %d stop ids", DF_SCHED_MAX_STOP_IDS);
  g->n_stop_ids = 0;
  for (size_t i = 0; i < df_json_size(v); i++) {
    int64_t id;
    DF_TRY(df_json_to_i64(df_json_at(v, i), "an id of \"stop_token_ids\"", 0, INT32_MAX, &id, err));
    g->stop_ids[g->n_stop_ids++] = (int32_t)id;
  }
  return DF_OK;
}

static df_status one_bias(df_gen *g, int64_t id, const df_json *v, df_error *err) {
  const df_json_kind kind = df_json_kind_of(v);
  float bias;
  if (kind == DF_JSON_BOOL && !df_json_bool(v)) {
    bias = -INFINITY; /* llama-server: false forbids a token */
  } else if (kind == DF_JSON_INT || kind == DF_JSON_REAL) {
    const double d = df_json_num(v);
    if (!(d >= -1e6 && d <= 1e6)) return DF_FAIL(err, DF_ERR_FORMAT, "a bias of \"logit_bias\" is out of range");
    bias = (float)d;
  } else {
    return DF_FAIL(err, DF_ERR_FORMAT, "a bias of \"logit_bias\" must be a number, not %s", KIND(v));
  }
  for (uint32_t i = 0; i < g->p.sampling.n_bias; i++) {
    if (g->bias[i].id != id) continue;
    g->bias[i].bias = bias; /* the last one counts */
    return DF_OK;
  }
  g->bias[g->p.sampling.n_bias++] = (df_logit_bias){(int32_t)id, bias};
  return DF_OK;
}

enum { ID_DIGITS = 9, ID_MAX = 999999999 }; /* more tokens than any vocabulary has, and no overflow */

static df_status bias_object(df_gen *g, const df_json *v, df_error *err) {
  df_json_iter it = df_json_begin(v);
  const char *key;
  size_t len;
  const df_json *value;
  while (df_json_next(&it, &key, &len, &value)) {
    if (len == 0 || len > ID_DIGITS || strspn(key, "0123456789") != len)
      return DF_FAIL(err, DF_ERR_FORMAT, "the keys of \"logit_bias\" must be token ids");
    DF_TRY(one_bias(g, strtol(key, NULL, 10), value, err));
  }
  return DF_OK;
}

/* OpenAI: {"id": bias}. llama-server: also [[id, bias], ...] and [{"id": .., "bias": ..}, ...]. */
static df_status read_bias(df_gen *g, uint32_t shape, const df_json *v, df_error *err) {
  const df_json_kind kind = df_json_kind_of(v);
  const size_t n = df_json_size(v);
  (void)shape;
  if (kind != DF_JSON_OBJECT && kind != DF_JSON_ARRAY)
    return DF_FAIL(err, DF_ERR_FORMAT, "\"logit_bias\" must be an object of token ids and numbers, not %s", KIND(v));
  if (n > DF_GEN_MAX_BIAS)
    return DF_FAIL(err, DF_ERR_FORMAT, "more than %d entries in \"logit_bias\"", DF_GEN_MAX_BIAS);
  df_free(g->bias);
  g->p.sampling.n_bias = 0;
  g->bias = n ? df_calloc(n, sizeof *g->bias) : NULL;
  if (n && !g->bias) return DF_OOM(err, "\"logit_bias\"", n * sizeof *g->bias);
  if (kind == DF_JSON_OBJECT) return bias_object(g, v, err);
  for (size_t i = 0; i < n; i++) {
    const df_json *e = df_json_at(v, i);
    const bool object = df_json_kind_of(e) == DF_JSON_OBJECT;
    int64_t id;
    if (!object && df_json_size(e) != 2)
      return DF_FAIL(err, DF_ERR_FORMAT, "an entry of \"logit_bias\" must be [id, bias] or {\"id\": .., \"bias\": ..}");
    DF_TRY(df_json_to_i64(object ? df_json_member(e, "id") : df_json_at(e, 0), "an id of \"logit_bias\"", 0, ID_MAX,
                          &id, err));
    DF_TRY(one_bias(g, id, object ? df_json_member(e, "bias") : df_json_at(e, 1), err));
  }
  return DF_OK;
}

/* Chat: a boolean. Completions: the number of alternatives. */
static df_status read_logprobs(df_gen *g, uint32_t shape, const df_json *v, df_error *err) {
  if (df_json_kind_of(v) == DF_JSON_BOOL) {
    g->logprobs = df_json_bool(v);
    return DF_OK;
  }
  if (shape & DF_FOR_CHAT) return DF_FAIL(err, DF_ERR_FORMAT, "\"logprobs\" must be a boolean, not %s", KIND(v));
  int64_t n;
  DF_TRY(df_json_to_i64(v, "\"logprobs\"", 0, DF_SCHED_MAX_TOP, &n, err));
  g->n_top = (uint32_t)n;
  g->logprobs = true;
  return DF_OK;
}

static df_status read_n_probs(df_gen *g, uint32_t shape, const df_json *v, df_error *err) {
  int64_t n;
  (void)shape;
  DF_TRY(df_json_to_i64(v, "\"n_probs\"", 0, DF_SCHED_MAX_TOP, &n, err));
  g->n_top = (uint32_t)n;
  g->logprobs = n > 0;
  return DF_OK;
}

static df_status read_stream_options(df_gen *g, uint32_t shape, const df_json *v, df_error *err) {
  (void)shape;
  if (df_json_kind_of(v) != DF_JSON_OBJECT)
    return DF_FAIL(err, DF_ERR_FORMAT, "\"stream_options\" must be an object, not %s", KIND(v));
  DF_TRY(df_json_opt_bool(v, "include_usage", false, &g->include_usage, err));
  return df_json_opt_bool(v, "continuous_usage_stats", false, &g->continuous_usage, err);
}

static df_status read_skip_special(df_gen *g, uint32_t shape, const df_json *v, df_error *err) {
  (void)shape;
  if (df_json_kind_of(v) != DF_JSON_BOOL)
    return DF_FAIL(err, DF_ERR_FORMAT, "\"skip_special_tokens\" must be a boolean, not %s", KIND(v));
  g->p.show_special = !df_json_bool(v);
  return DF_OK;
}

static df_status read_priority(df_gen *g, uint32_t shape, const df_json *v, df_error *err) {
  int64_t n;
  (void)shape;
  DF_TRY(df_json_to_i64(v, "\"priority\"", -1000, 1000, &n, err));
  g->priority = (int32_t)n;
  return DF_OK;
}

/* ---- the table ---- */

#define AT(member) offsetof(df_gen, member)
#define SAMPLING(member) offsetof(df_gen, p.sampling.member)
#define INTEGER_OR_NULL(lo, hi) "{\"type\":[\"integer\",\"null\"],\"minimum\":" #lo ",\"maximum\":" #hi "}"

#define SCHEMA(name) "{\"$ref\":\"#/components/schemas/" name "\"}" /* of openapi.json */

const df_field df_fields[] = {
    /* how much */
    {"max_tokens", DF_FOR_CHAT | DF_FOR_COMPLETION, DF_FIELD_OWN, 0, 0, 0, read_max_tokens,
     INTEGER_OR_NULL(0, 16777216), "most new tokens"},
    {"max_tokens", DF_FOR_LLAMA, DF_FIELD_OWN, 0, 0, 0, read_max_tokens, INTEGER_OR_NULL(-2, 16777216),
     "the same as n_predict, which counts when both are there"},
    {"max_completion_tokens", DF_FOR_CHAT, DF_FIELD_OWN, 0, 0, 0, read_max_tokens, INTEGER_OR_NULL(0, 16777216),
     "most new tokens"},
    {"max_output_tokens", DF_FOR_RESPONSES, DF_FIELD_OWN, 0, 0, 0, read_max_tokens, INTEGER_OR_NULL(0, 16777216),
     "most new tokens"},
    {"max_new_tokens", DF_FOR_SGLANG, DF_FIELD_OWN, 0, 0, 0, read_max_tokens, INTEGER_OR_NULL(0, 16777216),
     "most new tokens"},
    {"n_predict", DF_FOR_LLAMA, DF_FIELD_OWN, 0, 0, 0, read_max_tokens, INTEGER_OR_NULL(-2, 16777216),
     "most new tokens, -1 and -2 = to the end of the context"},
    {"min_tokens", DF_FOR_ALL & ~DF_FOR_SGLANG, DF_FIELD_U32, AT(p.min_tokens), 0, 1 << 24, NULL, NULL,
     "no end token before this many"},
    {"min_new_tokens", DF_FOR_SGLANG, DF_FIELD_U32, AT(p.min_tokens), 0, 1 << 24, NULL, NULL,
     "no end token before this many"},
    {"ignore_eos", DF_FOR_ALL, DF_FIELD_BOOL, AT(p.ignore_eos), 0, 0, NULL, NULL, "go on after end tokens"},
    {"stop", DF_FOR_ALL, DF_FIELD_OWN, 0, 0, 0, read_stop, SCHEMA("stop"), "texts that end the answer; not part of it"},
    {"stop_token_ids", DF_FOR_ALL, DF_FIELD_OWN, 0, 0, 0, read_stop_ids,
     "{\"type\":[\"array\",\"null\"],\"maxItems\":64,\"items\":{\"type\":\"integer\",\"minimum\":0,\"maximum\":"
     "2147483647}}",
     "token ids that end the answer"},
    {"n", DF_FOR_CHAT | DF_FOR_COMPLETION | DF_FOR_SGLANG | DF_FOR_LLAMA, DF_FIELD_U32, AT(n), 1, DF_GEN_MAX_CHOICES,
     NULL, NULL, "answers for every prompt"},
    {"best_of", DF_FOR_COMPLETION, DF_FIELD_U32, AT(best_of), 1, DF_GEN_MAX_CHOICES, NULL, NULL,
     "answers to choose the n likeliest from"},
    /* how tokens are chosen */
    {"temperature", DF_FOR_ALL, DF_FIELD_F32, SAMPLING(temperature), 0, 100, NULL, NULL, "0 = the best token"},
    {"top_p", DF_FOR_ALL, DF_FIELD_F32, SAMPLING(top_p), 0, 1, NULL, NULL, "smallest set with this probability"},
    {"top_k", DF_FOR_ALL, DF_FIELD_I32, SAMPLING(top_k), -1, 1 << 22, NULL, NULL, "0 or -1 = off"},
    {"min_p", DF_FOR_ALL, DF_FIELD_F32, SAMPLING(min_p), 0, 1, NULL, NULL, "least share of the best probability"},
    {"presence_penalty", DF_FOR_ALL, DF_FIELD_F32, SAMPLING(presence_penalty), -2, 2, NULL, NULL,
     "lowers tokens already generated, once"},
    {"frequency_penalty", DF_FOR_ALL, DF_FIELD_F32, SAMPLING(frequency_penalty), -2, 2, NULL, NULL,
     "lowers tokens already generated, for each time"},
    {"repetition_penalty", DF_FOR_ALL & ~DF_FOR_LLAMA, DF_FIELD_F32, SAMPLING(repetition_penalty), 0.01, 100, NULL,
     NULL, "divides the scores of tokens already seen"},
    {"repeat_penalty", DF_FOR_LLAMA, DF_FIELD_F32, SAMPLING(repetition_penalty), 0.01, 100, NULL, NULL,
     "divides the scores of tokens already seen"},
    {"logit_bias", DF_FOR_ALL & ~DF_FOR_RESPONSES, DF_FIELD_OWN, 0, 0, 0, read_bias, SCHEMA("logit_bias"),
     "added to the scores of tokens"},
    {"seed", DF_FOR_ALL & ~DF_FOR_SGLANG, DF_FIELD_OWN, 0, 0, 0, read_seed,
     "{\"type\":[\"integer\",\"null\"],\"minimum\":-9223372036854775808,\"maximum\":9223372036854775807}",
     "same seed, same text"},
    {"sampling_seed", DF_FOR_SGLANG, DF_FIELD_OWN, 0, 0, 0, read_seed,
     "{\"type\":[\"integer\",\"null\"],\"minimum\":-9223372036854775808,\"maximum\":9223372036854775807}",
     "same seed, same text"},
    {"seed", DF_FOR_SGLANG, DF_FIELD_OWN, 0, 0, 0, read_seed,
     "{\"type\":[\"integer\",\"null\"],\"minimum\":-9223372036854775808,\"maximum\":9223372036854775807}",
     "the same as sampling_seed"},
    /* what comes back */
    {"stream", DF_FOR_ALL & ~DF_FOR_SGLANG, DF_FIELD_BOOL, AT(stream), 0, 0, NULL, NULL, "server-sent events"},
    {"stream_options", DF_FOR_CHAT | DF_FOR_COMPLETION, DF_FIELD_OWN, 0, 0, 0, read_stream_options,
     "{\"type\":[\"object\",\"null\"],\"properties\":{\"include_usage\":{\"type\":[\"boolean\",\"null\"]},"
     "\"continuous_usage_stats\":{\"type\":[\"boolean\",\"null\"]}}}",
     "include_usage: one more chunk with the counts"},
    {"logprobs", DF_FOR_CHAT, DF_FIELD_OWN, 0, 0, 0, read_logprobs, "{\"type\":[\"boolean\",\"null\"]}",
     "log-probabilities of the tokens"},
    {"logprobs", DF_FOR_COMPLETION, DF_FIELD_OWN, 0, 0, 0, read_logprobs,
     "{\"type\":[\"integer\",\"boolean\",\"null\"],\"minimum\":0,\"maximum\":20}",
     "log-probabilities of the tokens and of this many alternatives"},
    {"top_logprobs", DF_FOR_CHAT | DF_FOR_RESPONSES, DF_FIELD_U32, AT(n_top), 0, DF_SCHED_MAX_TOP, NULL, NULL,
     "alternatives for every token"},
    {"n_probs", DF_FOR_LLAMA, DF_FIELD_OWN, 0, 0, 0, read_n_probs, INTEGER_OR_NULL(0, 20),
     "log-probabilities of this many alternatives"},
    {"echo", DF_FOR_COMPLETION, DF_FIELD_BOOL, AT(echo), 0, 0, NULL, NULL, "the prompt in front of the answer"},
    {"skip_special_tokens", DF_FOR_ALL, DF_FIELD_OWN, 0, 0, 0, read_skip_special, "{\"type\":[\"boolean\",\"null\"]}",
     "false: control tokens appear in the text"},
    {"return_tokens", DF_FOR_LLAMA, DF_FIELD_BOOL, AT(return_tokens), 0, 0, NULL, NULL, "token ids in the reply"},
    {"dflash_tokens", DF_FOR_CHAT | DF_FOR_COMPLETION, DF_FIELD_BOOL, AT(dflash_tokens), 0, 0, NULL, NULL,
     "pieces of the text with the draft slot of each token"},
    /* how it is computed */
    {"speculative", DF_FOR_ALL, DF_FIELD_BOOL, AT(speculative), 0, 0, NULL, NULL, "false: no drafting"},
    {"spec_width", DF_FOR_ALL, DF_FIELD_U32, AT(spec_width), 0, DF_MAX_WIDTH, NULL, NULL,
     "rows of a verify block, 0 = as the server was started, 1 = no drafting"},
    {"cache_prompt", DF_FOR_ALL, DF_FIELD_BOOL, AT(cache_prompt), 0, 0, NULL, NULL,
     "false: neither use nor leave a cached prefix"},
    {"priority", DF_FOR_ALL, DF_FIELD_OWN, 0, 0, 0, read_priority, INTEGER_OR_NULL(-1000, 1000), "higher runs first"},
    {"add_generation_prompt", DF_FOR_CHAT, DF_FIELD_BOOL, AT(add_generation_prompt), 0, 0, NULL, NULL,
     "end the prompt with the start of an answer"},
};

const size_t df_field_count = DF_COUNT_OF(df_fields);

#define WITH_BODY (DF_FOR_CHAT | DF_FOR_COMPLETION) /* vLLM's and SGLang's names beside OpenAI's */

const df_constraint_field df_constraint_fields[] = {
    {"response_format", WITH_BODY | DF_FOR_LLAMA, "response_format", "no_format"},
    {"grammar", WITH_BODY | DF_FOR_LLAMA, "gbnf", "no_text"},
    {"json_schema", WITH_BODY | DF_FOR_LLAMA | DF_FOR_SGLANG, "json_schema", "no_text"},
    {"guided_json", WITH_BODY, "json_schema", "no_text"},
    {"guided_grammar", WITH_BODY, "gbnf", "no_text"},
    {"ebnf", WITH_BODY | DF_FOR_SGLANG, "gbnf", "no_text"},
    {"guided_regex", WITH_BODY, "not_supported", "not_supported"},
    {"guided_choice", WITH_BODY, "not_supported", "not_supported"},
    {"regex", WITH_BODY | DF_FOR_SGLANG, "not_supported", "not_supported"},
    {"tool_choice", DF_FOR_CHAT, "tool_choice", "no_call"},
};

const size_t df_constraint_field_count = DF_COUNT_OF(df_constraint_fields);

/* ---- reading ---- */

void df_gen_init(df_gen *g, uint32_t shape, const df_serve_defaults *d) {
  memset(g, 0, sizeof *g);
  g->p = df_generate_params_default();
  g->p.sampling = d->sampling;
  g->seed_given = !d->random_seed;
  g->max_tokens = d->max_tokens;
  if (d->max_tokens < 0) g->max_tokens = shape & DF_FOR_COMPLETION ? 16 : shape & DF_FOR_SGLANG ? 128 : -1;
  g->n = 1;
  g->speculative = g->cache_prompt = g->add_generation_prompt = true;
  g->cumulative = (shape & DF_FOR_SGLANG) != 0;
}

static df_status want_kind(const df_field *f, const char *kind, const df_json *v, df_error *err) {
  return DF_FAIL(err, DF_ERR_FORMAT, "\"%s\" must be %s, not %s", f->name, kind, KIND(v));
}

static df_status read_field(df_gen *g, uint32_t shape, const df_field *f, const df_json *v, df_error *err) {
  char what[80];
  char *at = (char *)g + f->offset;
  const df_json_kind kind = df_json_kind_of(v);
  int64_t i;
  (void)snprintf(what, sizeof what, "\"%s\"", f->name);
  switch (f->kind) {
    case DF_FIELD_OWN: return f->read(g, shape, v, err);
    case DF_FIELD_BOOL:
      if (kind != DF_JSON_BOOL) return want_kind(f, "a boolean", v, err);
      *(bool *)at = df_json_bool(v);
      return DF_OK;
    case DF_FIELD_F32: {
      if (kind != DF_JSON_INT && kind != DF_JSON_REAL) return want_kind(f, "a number", v, err);
      const double d = df_json_num(v);
      if (!(d >= f->min && d <= f->max))
        return DF_FAIL(err, DF_ERR_FORMAT, "\"%s\" must be from %g to %g, not %g", f->name, f->min, f->max, d);
      *(float *)(void *)at = (float)d;
      return DF_OK;
    }
    default: break;
  }
  DF_TRY(df_json_to_i64(v, what, (int64_t)f->min, (int64_t)f->max, &i, err));
  if (f->kind == DF_FIELD_U32)
    *(uint32_t *)(void *)at = (uint32_t)i;
  else if (f->kind == DF_FIELD_I32)
    *(int32_t *)(void *)at = (int32_t)i;
  else
    *(int64_t *)(void *)at = i;
  return DF_OK;
}

df_status df_gen_read(df_gen *g, uint32_t shape, const df_json *body, df_error *err) {
  for (size_t i = 0; i < df_field_count; i++) {
    const df_field *f = &df_fields[i];
    if (!(f->shapes & shape)) continue;
    const df_json *v = df_json_member(body, f->name);
    if (!v || df_json_kind_of(v) == DF_JSON_NULL) continue;
    g->param = f->name;
    const df_status st = read_field(g, shape, f, v, err);
    if (st != DF_OK) {
      if (err && !strstr(err->msg, f->name)) df_error_prefix(err, "\"%s\"", f->name);
      return st;
    }
  }
  g->param = NULL;
  return DF_OK;
}

df_status df_gen_check(df_gen *g, uint32_t shape, df_error *err) {
  if (g->n_top > 0 && !g->logprobs && (shape & DF_FOR_CHAT)) {
    g->param = "top_logprobs";
    return DF_FAIL(err, DF_ERR_FORMAT, "\"top_logprobs\" needs \"logprobs\": true");
  }
  if (g->n_top > 0 && (shape & DF_FOR_RESPONSES)) g->logprobs = true; /* there asking for alternatives is enough */
  if (g->best_of && g->best_of < g->n) {
    g->param = "best_of";
    return DF_FAIL(err, DF_ERR_FORMAT, "\"best_of\" is less than \"n\"");
  }
  if (g->stream && g->best_of > g->n) {
    g->param = "best_of";
    return DF_FAIL(err, DF_ERR_FORMAT, "\"best_of\" cannot be streamed: the best answer is known at the end only");
  }
  if (g->best_of < g->n) g->best_of = g->n;
  if (g->max_tokens >= 0 && g->p.min_tokens > g->max_tokens && g->max_tokens > 0) {
    g->param = "min_tokens";
    return DF_FAIL(err, DF_ERR_FORMAT, "\"min_tokens\" %u is more than the limit of %lld new tokens", g->p.min_tokens,
                   (long long)g->max_tokens);
  }
  g->p.stop = g->stop;
  g->p.n_stop = g->n_stop;
  g->p.sampling.bias = g->bias;
  return DF_OK;
}

void df_gen_release(df_gen *g) {
  df_free(g->bias);
  g->bias = NULL;
  g->p.sampling.bias = NULL;
  g->p.sampling.n_bias = 0;
}

df_status df_field_schema(const df_field *f, df_buf *out, df_error *err) {
  switch (f->kind) {
    case DF_FIELD_OWN: return df_buf_puts(out, f->schema, err);
    case DF_FIELD_BOOL: return df_buf_puts(out, "{\"type\":[\"boolean\",\"null\"]}", err);
    default: break;
  }
  return df_buf_printf(out, err, "{\"type\":[\"%s\",\"null\"],\"minimum\":%.17g,\"maximum\":%.17g}",
                       f->kind == DF_FIELD_F32 ? "number" : "integer", f->min, f->max);
}
