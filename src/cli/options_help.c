/* Help texts made from the option table and the verb table. */
#include <ctype.h>
#include <string.h>
#include <strings.h>

#include "cli/options.h"
#include "cli/verbs.h"

/* Prints text from column `at`, wrapped at `columns`, further lines indented by `indent`; ends the line. */
static void put_wrapped(FILE *out, const char *text, unsigned at, unsigned indent, unsigned columns) {
  unsigned col = at;
  bool first = true;
  const char *w;
  size_t n;
  while ((text = df_word_next(text, &w, &n)) != NULL) {
    if (!first && col + 1 + n > columns) {
      fprintf(out, "\n%*s", (int)indent, "");
      col = indent;
      first = true;
    }
    fprintf(out, "%s%.*s", first ? "" : " ", (int)n, w);
    col += (unsigned)n + !first;
    first = false;
  }
  fputc('\n', out);
}

/* "-m, --model FILE" or "--graph, --no-graph". */
static void option_head(const df_opt *o, char *out, size_t cap) {
  const char *list = o->aliases, *w;
  size_t len, n = 0;
  while ((list = df_word_next(list, &w, &len)) != NULL) {
    if (len > 2 && w[1] == '-') continue; /* long aliases come later */
    n += (size_t)snprintf(out + n, n < cap ? cap - n : 0, "%.*s, ", (int)len, w);
  }
  n += (size_t)snprintf(out + n, n < cap ? cap - n : 0, "--%s", o->name);
  if (o->metavar)
    n += (size_t)snprintf(out + n, n < cap ? cap - n : 0, o->kind == DF_OPT_FLAG ? "[=%s]" : " %s", o->metavar);
  list = o->negative;
  if (df_word_next(list, &w, &len)) (void)snprintf(out + n, n < cap ? cap - n : 0, ", %.*s", (int)len, w);
}

/* Help sentence with choices, default and long aliases. */
static void option_text(const df_opt *o, char *out, size_t cap) {
  size_t n = (size_t)snprintf(out, cap, "%s", o->help);
  if (o->kind == DF_OPT_CHOICE) n += (size_t)snprintf(out + n, n < cap ? cap - n : 0, " (%s)", o->choices);
  if (o->deflt) n += (size_t)snprintf(out + n, n < cap ? cap - n : 0, " [%s]", o->deflt);
  const char *list = o->aliases, *w;
  size_t len;
  bool first = true;
  for (int pass = 0; pass < 2; pass++) {
    const char *skip;
    size_t skip_len;
    list = pass == 0 ? o->aliases : o->negative;
    if (pass == 1 && (list = df_word_next(list, &skip, &skip_len)) == NULL) break; /* the first one is in the head */
    while ((list = df_word_next(list, &w, &len)) != NULL) {
      if (pass == 0 && !(len > 2 && w[1] == '-')) continue;
      n += (size_t)snprintf(out + n, n < cap ? cap - n : 0, "%s%.*s", first ? "; also " : ", ", (int)len, w);
      first = false;
    }
  }
}

static bool mentions(const char *hay, const char *needle) {
  size_t n = strlen(needle);
  for (; *hay; hay++) {
    if (strncasecmp(hay, needle, n) == 0) return true;
  }
  return n == 0;
}

static bool option_matches(const df_opt *o, const char *keyword) {
  if (!keyword) return true;
  char env[64];
  df_opt_env_name(o, env, sizeof env);
  return mentions(o->name, keyword) || mentions(o->aliases, keyword) || mentions(o->negative, keyword) ||
         mentions(o->help, keyword) || mentions(env, keyword) || mentions(df_opt_group_titles[o->group], keyword);
}

static void print_option(FILE *out, const df_opt *o, unsigned columns) {
  char head[160], text[640];
  option_head(o, head, sizeof head);
  option_text(o, text, sizeof text);
  if (columns < 64) {
    fprintf(out, "  %s\n      ", head);
    put_wrapped(out, text, 6, 6, columns);
    return;
  }
  unsigned indent = 34;
  size_t w = strlen(head);
  if (w + 4 <= indent)
    fprintf(out, "  %s%*s", head, (int)(indent - 2 - w), "");
  else
    fprintf(out, "  %s\n%*s", head, (int)indent, "");
  put_wrapped(out, text, indent, indent, columns);
}

static unsigned print_options(FILE *out, uint32_t verb, const char *keyword, unsigned columns, const char *bold,
                              const char *reset) {
  unsigned shown = 0;
  for (int g = 0; g < DF_GROUP_COUNT; g++) {
    bool titled = false;
    for (int i = 0; i < OPT_COUNT; i++) {
      const df_opt *o = &df_opt_table[i];
      if ((int)o->group != g || (verb && !(o->verbs & verb)) || !option_matches(o, keyword)) continue;
      if (!titled) fprintf(out, "\n%s%s%s\n", bold, df_opt_group_titles[g], reset);
      titled = true;
      print_option(out, o, columns);
      shown++;
    }
  }
  return shown;
}

static void print_overview(FILE *out, unsigned columns, const char *bold, const char *reset) {
  put_wrapped(out,
              "dflash runs language models on the processor and on CUDA cards and speeds them up with DFlash block "
              "drafts. The text is the same with and without a draft.",
              0, 0, columns);
  fprintf(out, "\n%sUsage%s\n  dflash VERB [OPTION]...\n\n%sVerbs%s\n", bold, reset, bold, reset);
  for (unsigned i = 0; i < df_verb_count; i++) {
    if (df_verbs[i].hidden) continue;
    fprintf(out, "  %-12s", df_verbs[i].name);
    put_wrapped(out, df_verbs[i].summary, 14, 14, columns);
  }
  fprintf(out,
          "\n%sFirst steps%s\n"
          "  dflash pull smollm2-135m-instruct\n"
          "  dflash run -m smollm2-135m-instruct -md smollm2-135m-instruct-dflash -p \"Why is the sky blue?\"\n"
          "  dflash chat -m smollm2-135m-instruct -md smollm2-135m-instruct-dflash\n\n",
          bold, reset);
  put_wrapped(out,
              "\"dflash help VERB\" shows the options of a verb, \"dflash --help=KEYWORD\" the options that mention "
              "a word. Exit status: 0 fine, 1 failure, 2 wrong usage, 130 interrupted twice.",
              0, 0, columns);
}

void df_help_print(FILE *out, uint32_t verb, const char *keyword, unsigned columns, const char *bold,
                   const char *reset) {
  if (columns > 120) columns = 120;
  if (columns < 30) columns = 30;
  const df_verb *v = verb ? df_verb_of_bit(verb) : NULL;
  if (keyword) {
    if (print_options(out, verb, keyword, columns, bold, reset) == 0)
      fprintf(out, "no option mentions \"%s\"\n", keyword);
    return;
  }
  if (!v) {
    print_overview(out, columns, bold, reset);
    return;
  }
  fprintf(out, "%sUsage%s\n  dflash %s [OPTION]...%s%s\n\n", bold, reset, v->name, *v->args ? " " : "", v->args);
  put_wrapped(out, v->detail, 0, 0, columns);
  (void)print_options(out, verb, NULL, columns, bold, reset);
  fputc('\n', out);
  put_wrapped(out,
              "Every option may also be set by an environment variable: DF_ and its long name in capitals, '-' as "
              "'_' (DF_CTX_SIZE=4096). The command line wins. Numbers may end in k, m, g (thousands) or K, M, G "
              "(powers of 1024).",
              0, 0, columns);
}
