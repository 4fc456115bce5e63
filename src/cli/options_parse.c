/* Parsing of the command line and the environment, after the table in options.c. */
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/size.h"
#include "cli/options.h"
#include "cli/verbs.h"

const char *df_opt_getenv(const char *name) { return getenv(name); }

const char *df_word_next(const char *list, const char **word, size_t *len) {
  while (*list == ' ') list++;
  if (!*list) return NULL;
  *word = list;
  *len = strcspn(list, " ");
  return list + *len;
}

static bool word_in(const char *list, const char *s, size_t n) {
  const char *w;
  size_t len;
  while ((list = df_word_next(list, &w, &len)) != NULL) {
    if (len == n && memcmp(w, s, n) == 0) return true;
  }
  return false;
}

int df_opt_find(const char *s, size_t n, bool *negated) {
  *negated = false;
  for (int i = 0; i < OPT_COUNT; i++) {
    const df_opt *o = &df_opt_table[i];
    if (n > 2 && s[0] == '-' && s[1] == '-' && strlen(o->name) == n - 2 && memcmp(o->name, s + 2, n - 2) == 0) return i;
    if (word_in(o->aliases, s, n)) return i;
    if (word_in(o->negative, s, n)) {
      *negated = true;
      return i;
    }
  }
  return -1;
}

/* Best spelling of one space-separated list; updates the record so far. */
static void nearest_in(const char *list, const char *s, size_t n, unsigned *best, char *out, size_t cap) {
  const char *w;
  size_t len;
  while ((list = df_word_next(list, &w, &len)) != NULL) {
    unsigned d = df_edit_distance(s, n, w, len, *best);
    /* Two-letter options are near everything; they help nobody as a guess. A longer name that the flag starts is near.
     */
    if (len > 4 && n > 4 && len > n && memcmp(w, s, n) == 0) d = 1;
    if (len > 3 && d < *best && len < cap) {
      *best = d;
      memcpy(out, w, len);
      out[len] = '\0';
    }
  }
}

const char *df_opt_suggest(const char *s, size_t n, uint32_t verbs) {
  static char found[64];
  const size_t letters = n - DF_MIN(strspn(s, "-"), n);
  /* One more than the largest distance that still counts. Short names are near everything. */
  unsigned best = letters < 3 ? 1 : letters < 6 ? 2 : letters < 10 ? 3 : 4;
  found[0] = '\0';
  for (int i = 0; i < OPT_COUNT; i++) {
    const df_opt *o = &df_opt_table[i];
    if (!(o->verbs & verbs)) continue;
    char canon[64];
    (void)snprintf(canon, sizeof canon, "--%s", o->name);
    nearest_in(canon, s, n, &best, found, sizeof found);
    nearest_in(o->aliases, s, n, &best, found, sizeof found);
    nearest_in(o->negative, s, n, &best, found, sizeof found);
  }
  return found[0] ? found : NULL;
}

/* Flags of other engines: what to do instead. */
static const struct {
  const char *flags, *advice;
} foreign[] = {
    {"-ngl --gpu-layers --n-gpu-layers -ngld -dev --main-gpu -mg --split-mode -sm --tensor-split -ts",
     "a model runs on one device as a whole: --device cpu, or --device cuda"},
    {"-hf --hf-repo -hff --hf-file -hfd --spec-draft-hf -mu --model-url", "fetch first: dflash pull ORG/NAME[:FILE]"},
    {"--draft --draft-n --draft-max", "use --spec-draft-n-max N"},
    {"--draft-min --draft-n-min --spec-draft-n-min --draft-p-min --spec-draft-p-min -cd --ctx-size-draft",
     "the draft is always run as one block; use --spec-draft-n-max N to bound it"},
    {"--speculative-config", "use -md FILE and --spec-draft-n-max N"},
    {"--speculative-num-steps --speculative-eagle-topk", "a DFlash draft is one block; use --spec-width N"},
    {"-b --batch-size -ub --ubatch-size --chunked-prefill-size --max-num-batched-tokens",
     "batch sizes are chosen by the engine; leave the flag out"},
    {"-tb --threads-batch -td --threads-draft", "one team of threads does everything; use -t N"},
    {"-fa --flash-attn", "use --attention-backend flash"},
    {"--kv-cache-dtype", "use -ctk f16 or -ctk f32"},
    {"--jinja --no-jinja", "templates are always rendered as Jinja; leave the flag out"},
    {"--chat-template", "put the template into a file and use --chat-template-file FILE"},
    {"--mlock --mmap --no-mmap --load-mode --numa", "weights are packed into memory at start; leave the flag out"},
    {"--grammar --grammar-file -j --json-schema",
     "the output is constrained by requests to dflash serve alone (response_format, json_schema, grammar)"},
    {"--lora --lora-scaled --control-vector --mmproj", "not supported"},
    {"--mirostat --mirostat-lr --mirostat-ent --typical --top-nsigma --xtc-probability --xtc-threshold "
     "--dry-multiplier --dynatemp-range --samplers --repeat-last-n --logit-bias",
     "not supported; samplers are --temp, --top-k, --top-p, --min-p and the penalties"},
    {"-e --escape --no-escape", "write the characters themselves, for example $'a\\nb' in bash, or use -f FILE"},
    {"-st --single-turn", "use dflash run, or pipe the question into dflash chat"},
    {"-i --interactive -if --interactive-first -mli --multiline-input", "use dflash chat; \"\"\" starts a block"},
    {"--instruct -ins", "use --chat"},
    {"--metrics --slots --props --enable-metrics --no-webui --webui", "always on; leave the flag out"},
    {"--ssl-key-file --ssl-cert-file --ssl-keyfile --ssl-certfile", "put a proxy that speaks TLS in front"},
    {"--no-display-prompt --simple-io --no-warmup --warmup --no-perf --perf",
     "this is how it behaves; leave the flag out"},
    {"-tp --tp --tensor-parallel-size -dp --dp --data-parallel-size --mem-fraction-static --gpu-memory-utilization "
     "--dtype",
     "one process runs the model; leave the flag out"},
    {"--n-probs --logprobs", "use dflash perplexity for scores"},
    {"--completion-bash", "use dflash completion bash"},
    {"--list-devices", "use dflash --cpu-info"},
};

const char *df_opt_foreign(const char *s, size_t n) {
  for (size_t i = 0; i < DF_COUNT_OF(foreign); i++) {
    if (word_in(foreign[i].flags, s, n)) return foreign[i].advice;
  }
  return NULL;
}

void df_opt_env_name(const df_opt *opt, char *out, size_t cap) {
  size_t o = (size_t)snprintf(out, cap, "DF_");
  for (const char *c = opt->name; *c && o + 1 < cap; c++) out[o++] = *c == '-' ? '_' : (char)toupper((unsigned char)*c);
  out[o < cap ? o : cap - 1] = '\0';
}

bool df_parse_size(const char *text, int64_t *out) {
  const char *p = text;
  if (*p == '-' || *p == '+') p++;
  if (!isdigit((unsigned char)*p)) return false;
  char *end;
  errno = 0;
  long long v = strtoll(text, &end, 10);
  if (errno != 0) return false;
  int64_t unit = 1;
  switch (*end) {
    case 'k': unit = 1000; break;
    case 'K': unit = 1 << 10; break;
    case 'm': unit = 1000000; break;
    case 'M': unit = 1 << 20; break;
    case 'g': unit = 1000000000; break;
    case 'G': unit = 1 << 30; break;
    case '\0': break;
    default: return false;
  }
  if (*end && end[1]) return false;
  int64_t r;
  if (__builtin_mul_overflow((int64_t)v, unit, &r)) return false;
  *out = r;
  return true;
}

/* Where the value came from, for messages: the spelling used or the variable. */
static df_status bad_value(const df_opt *opt, const char *from, const char *text, df_error *err) {
  char want[160];
  if (opt->kind == DF_OPT_CHOICE)
    (void)snprintf(want, sizeof want, "one of %s", opt->choices);
  else if (opt->kind == DF_OPT_FLAG)
    (void)snprintf(want, sizeof want, "1 or 0");
  else if (opt->kind == DF_OPT_SIZE)
    (void)snprintf(want, sizeof want, "a whole number from %.0f to %.0f%s%s", opt->min, opt->max,
                   opt->choices ? " or " : "", opt->choices ? opt->choices : "");
  else
    (void)snprintf(want, sizeof want, "a number from %g to %g", opt->min, opt->max);
  return DF_FAIL(err, DF_ERR_ARGUMENT, "%s needs %s, not \"%.80s\"", from, want, text);
}

static bool choice_ok(const char *choices, const char *text) {
  size_t n = strlen(text);
  for (const char *p = choices; *p; p += *p == '|') {
    size_t len = strcspn(p, "|");
    if (len == n && n > 0 && strncasecmp(p, text, n) == 0) return true;
    p += len;
  }
  return false;
}

/* "on"/"off" words of flags in the environment. */
static bool flag_word(const char *text, bool *on) {
  static const char *const yes[] = {"1", "on", "true", "yes"}, *const no[] = {"0", "off", "false", "no"};
  for (size_t i = 0; i < DF_COUNT_OF(yes); i++) {
    if (strcasecmp(text, yes[i]) == 0) return *on = true, true;
    if (strcasecmp(text, no[i]) == 0) return *on = false, true;
  }
  return false;
}

static df_status assign(df_opts *o, df_opt_id id, const char *text, df_opt_source source, const char *from,
                        df_error *err) {
  const df_opt *opt = &df_opt_table[id];
  df_opt_value v = {.source = source, .text = text};
  switch (opt->kind) {
    case DF_OPT_FLAG:
      if (!flag_word(text, &v.on)) return bad_value(opt, from, text, err);
      break;
    case DF_OPT_STR: break;
    case DF_OPT_PATH:
      if (!*text) return DF_FAIL(err, DF_ERR_ARGUMENT, "%s needs a name, not an empty one", from);
      break;
    case DF_OPT_CHOICE:
      if (!choice_ok(opt->choices, text)) return bad_value(opt, from, text, err);
      break;
    case DF_OPT_SIZE:
      if (opt->choices && strcasecmp(text, opt->choices) == 0)
        v.integer = -1;
      else if (!df_parse_size(text, &v.integer) || (double)v.integer < opt->min || (double)v.integer > opt->max)
        return bad_value(opt, from, text, err);
      break;
    case DF_OPT_REAL: {
      char *end;
      v.real = strtod(text, &end);
      if (end == text || *end || !isfinite(v.real) || v.real < opt->min || v.real > opt->max)
        return bad_value(opt, from, text, err);
      break;
    }
    case DF_OPT_LIST: {
      const char **list = id == OPT_API_KEY ? o->keys : o->stop;
      uint32_t *n = id == OPT_API_KEY ? &o->n_keys : &o->n_stop;
      if (!*text) return DF_FAIL(err, DF_ERR_ARGUMENT, "%s needs a text, not an empty one", from);
      if (source == DF_FROM_ARGV && o->v[id].source == DF_FROM_ENV) *n = 0; /* the command line wins */
      if (*n == DF_OPT_LIST_MAX)
        return DF_FAIL(err, DF_ERR_ARGUMENT, "%s may be given at most %d times", from, DF_OPT_LIST_MAX);
      list[(*n)++] = text;
      break;
    }
  }
  o->v[id] = v;
  return DF_OK;
}

df_status df_opts_assign(df_opts *o, df_opt_id id, const char *text, df_opt_source source, df_error *err) {
  return assign(o, id, text, source, df_opt_table[id].name, err);
}

static df_status read_environment(df_opts *o, df_opt_getenv_fn get, df_error *err) {
  for (int i = 0; i < OPT_COUNT; i++) {
    const df_opt *opt = &df_opt_table[i];
    if (!(opt->verbs & o->verb) || i == OPT_HELP || i == OPT_VERSION || i == OPT_CPU_INFO) continue;
    char name[64];
    df_opt_env_name(opt, name, sizeof name);
    const char *text = get(name);
    if (text && *text) DF_TRY(assign(o, (df_opt_id)i, text, DF_FROM_ENV, name, err));
  }
  return DF_OK;
}

/* Names the verbs that take the option: "run, chat". */
static void verbs_that_take(uint32_t verbs, char *out, size_t cap) {
  size_t n = 0;
  out[0] = '\0';
  for (unsigned i = 0; i < df_verb_count && n < cap; i++) {
    if (df_verbs[i].hidden || !(df_verbs[i].bit & verbs)) continue;
    n += (size_t)snprintf(out + n, cap - n, "%s%s", n ? ", " : "", df_verbs[i].name);
  }
}

static df_status unknown_flag(const df_opts *o, const char *s, size_t n, df_error *err) {
  int shown = n > 60 ? 60 : (int)n;
  const char *advice = df_opt_foreign(s, n);
  df_status st = DF_FAIL(err, DF_ERR_ARGUMENT, "unknown option \"%.*s\"", shown, s);
  if (advice) {
    df_error_hint(err, "%.*s of other engines: %s", shown, s, advice);
    return st;
  }
  const char *near = df_opt_suggest(s, n, o->verb);
  if (near) return DF_FAIL(err, DF_ERR_ARGUMENT, "unknown option \"%.*s\", did you mean \"%s\"?", shown, s, near);
  const df_verb *verb = df_verb_of_bit(o->verb);
  df_error_hint(err, "\"dflash help%s%s\" lists the options", verb ? " " : "", verb ? verb->name : "");
  return st;
}

/* Numbers and choices: what looks like an option is one. Texts and names may begin with a dash. */
static bool takes_no_flag(const df_opt *opt) {
  return opt->kind == DF_OPT_SIZE || opt->kind == DF_OPT_REAL || opt->kind == DF_OPT_CHOICE;
}

/* One option at argv[*i]; advances *i over a separate value. */
static df_status parse_option(df_opts *o, int *i, df_error *err) {
  const char *arg = o->argv[*i];
  const char *eq = strchr(arg, '=');
  size_t n = eq ? (size_t)(eq - arg) : strlen(arg);
  bool negated;
  int id = df_opt_find(arg, n, &negated);
  if (id < 0) return unknown_flag(o, arg, n, err);
  const df_opt *opt = &df_opt_table[id];
  if (!(opt->verbs & o->verb)) {
    char verbs[128];
    const df_verb *verb = df_verb_of_bit(o->verb);
    verbs_that_take(opt->verbs, verbs, sizeof verbs);
    df_status st = DF_FAIL(err, DF_ERR_ARGUMENT, "\"%.*s\" is not an option of \"dflash %s\"", (int)n, arg,
                           verb ? verb->name : "");
    df_error_hint(err, "it belongs to: %s", verbs);
    return st;
  }
  if (id == OPT_HELP) {
    o->v[id] = (df_opt_value){.source = DF_FROM_ARGV, .on = true, .text = eq ? eq + 1 : NULL};
    return DF_OK;
  }
  if (opt->kind == DF_OPT_FLAG) {
    bool on = true;
    if (eq && !flag_word(eq + 1, &on)) return bad_value(opt, arg, eq + 1, err);
    o->v[id] = (df_opt_value){.source = DF_FROM_ARGV, .on = on != negated};
    return DF_OK;
  }
  const char *value = eq ? eq + 1 : NULL;
  if (!value) {
    if (*i + 1 >= o->argc) return DF_FAIL(err, DF_ERR_ARGUMENT, "%s needs a value (%s)", arg, opt->metavar);
    value = o->argv[++*i];
    if (takes_no_flag(opt) && df_opt_find(value, strcspn(value, "="), &negated) >= 0)
      return DF_FAIL(err, DF_ERR_ARGUMENT, "%s needs a value (%s), but \"%.60s\" follows", arg, opt->metavar, value);
  }
  char from[80];
  (void)snprintf(from, sizeof from, "%.*s", (int)n, arg);
  return assign(o, (df_opt_id)id, value, DF_FROM_ARGV, from, err);
}

df_status df_opts_parse(df_opts *o, uint32_t verb, int argc, char *const *argv, int first, df_opt_getenv_fn get,
                        df_error *err) {
  *o = (df_opts){.verb = verb, .argc = argc, .argv = argv};
  DF_TRY(read_environment(o, get, err));
  bool options = true;
  for (int i = first; i < argc; i++) {
    const char *arg = argv[i];
    if (options && strcmp(arg, "--") == 0) {
      options = false;
    } else if (options && arg[0] == '-' && arg[1] != '\0') {
      DF_TRY(parse_option(o, &i, err));
    } else if (o->n_pos == DF_OPT_POSITIONAL_MAX) {
      return DF_FAIL(err, DF_ERR_ARGUMENT, "too many arguments: \"%.80s\"", arg);
    } else {
      o->pos[o->n_pos++] = arg;
    }
  }
  return DF_OK;
}
