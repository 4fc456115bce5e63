/* Shell completion scripts made from the tables. Canonical and short spellings only: aliases would drown the list. */
#include <string.h>

#include "cli/options.h"
#include "cli/verbs.h"

/* Calls put for every spelling worth offering: the canonical one, short ones, the first negative one. */
static void offered(const df_opt *o, void (*put)(FILE *, const df_opt *, const char *, size_t, bool), FILE *out) {
  char canon[64];
  const char *list = o->aliases, *w;
  size_t n;
  (void)snprintf(canon, sizeof canon, "--%s", o->name);
  put(out, o, canon, strlen(canon), false);
  while ((list = df_word_next(list, &w, &n)) != NULL) {
    if (w[1] != '-') put(out, o, w, n, false);
  }
  if (df_word_next(o->negative, &w, &n)) put(out, o, w, n, true);
}

static void put_plain(FILE *out, const df_opt *o, const char *w, size_t n, bool negative) {
  (void)o;
  (void)negative;
  fprintf(out, " %.*s", (int)n, w);
}

static void put_pattern(FILE *out, const df_opt *o, const char *w, size_t n, bool negative) {
  (void)o;
  if (!negative) fprintf(out, "|%.*s", (int)n, w);
}

static void put_verb_names(FILE *out) {
  for (unsigned i = 0; i < df_verb_count; i++) {
    if (!df_verbs[i].hidden) fprintf(out, " %s", df_verbs[i].name);
  }
}

/* "a|b" as "a b". */
static void put_choices(FILE *out, const char *choices) {
  for (; *choices; choices++) fputc(*choices == '|' ? ' ' : *choices, out);
}

static void bash_print(FILE *out) {
  fputs(
      "# bash completion for dflash: source <(dflash completion bash)\n"
      "_dflash() {\n"
      "  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} verb=${COMP_WORDS[1]} words=\n"
      "  COMPREPLY=()\n"
      "  if (( COMP_CWORD == 1 )); then\n"
      "    COMPREPLY=( $(compgen -W \"",
      out);
  put_verb_names(out);
  fputs(" --help --version --cpu-info\" -- \"$cur\") )\n    return\n  fi\n  case $prev in\n", out);
  for (int i = 0; i < OPT_COUNT; i++) {
    const df_opt *o = &df_opt_table[i];
    if (o->kind == DF_OPT_FLAG) continue;
    fputs("    _", out); /* a first alternative that never matches keeps the list simple */
    offered(o, put_pattern, out);
    if (o->kind == DF_OPT_CHOICE) {
      fputs(") COMPREPLY=( $(compgen -W \"", out);
      put_choices(out, o->choices);
      fputs("\" -- \"$cur\") ); return;;\n", out);
    } else {
      fputs(o->kind == DF_OPT_PATH ? ") COMPREPLY=( $(compgen -f -- \"$cur\") ); return;;\n" : ") return;;\n", out);
    }
  }
  fputs("  esac\n  case $verb in\n", out);
  for (unsigned v = 0; v < df_verb_count; v++) {
    if (df_verbs[v].hidden) continue;
    fprintf(out, "    %s) words=\"", df_verbs[v].name);
    for (int i = 0; i < OPT_COUNT; i++) {
      if (df_opt_table[i].verbs & df_verbs[v].bit) offered(&df_opt_table[i], put_plain, out);
    }
    fputs("\";;\n", out);
  }
  fputs(
      "  esac\n"
      "  if [[ $cur == -* ]]; then COMPREPLY=( $(compgen -W \"$words\" -- \"$cur\") )\n"
      "  elif [[ $verb == help ]]; then COMPREPLY=( $(compgen -W \"",
      out);
  put_verb_names(out);
  fputs(
      "\" -- \"$cur\") )\n"
      "  elif [[ $verb == completion ]]; then COMPREPLY=( $(compgen -W \"bash zsh fish\" -- \"$cur\") )\n"
      "  else COMPREPLY=( $(compgen -f -- \"$cur\") ); fi\n"
      "}\n"
      "complete -o filenames -F _dflash dflash\n",
      out);
}

/* Help for zsh and fish: quotes and brackets would end their strings. */
static void put_description(FILE *out, const char *s) {
  for (; *s; s++) {
    if (strchr("'[]:`$\\", *s))
      fputc(' ', out);
    else
      fputc(*s == '"' ? ' ' : *s, out);
  }
}

static void put_zsh(FILE *out, const df_opt *o, const char *w, size_t n, bool negative) {
  fprintf(out, "        '%s%.*s[", o->kind == DF_OPT_LIST ? "*" : "", (int)n, w);
  if (negative)
    fputs("the opposite of ", out), fprintf(out, "--%s", o->name);
  else
    put_description(out, o->help);
  fputc(']', out);
  if (o->kind != DF_OPT_FLAG) {
    fprintf(out, ":%s:", o->metavar);
    if (o->kind == DF_OPT_PATH)
      fputs("_files", out);
    else if (o->kind == DF_OPT_CHOICE)
      fputc('(', out), put_choices(out, o->choices), fputc(')', out);
  }
  fputs("' \\\n", out);
}

static void zsh_print(FILE *out) {
  fputs(
      "#compdef dflash\n"
      "# zsh completion for dflash: dflash completion zsh > \"${fpath[1]}/_dflash\"\n"
      "_dflash() {\n"
      "  if (( CURRENT == 2 )); then\n"
      "    local -a verbs=(\n",
      out);
  for (unsigned i = 0; i < df_verb_count; i++) {
    if (df_verbs[i].hidden) continue;
    fprintf(out, "      '%s:", df_verbs[i].name);
    put_description(out, df_verbs[i].summary);
    fputs("'\n", out);
  }
  fputs(
      "    )\n    _describe verb verbs\n    return\n  fi\n  local verb=$words[2]\n  shift words\n  (( CURRENT-- ))\n"
      "  case $verb in\n",
      out);
  for (unsigned v = 0; v < df_verb_count; v++) {
    if (df_verbs[v].hidden) continue;
    fprintf(out, "    %s)\n      _arguments \\\n", df_verbs[v].name);
    for (int i = 0; i < OPT_COUNT; i++) {
      if (df_opt_table[i].verbs & df_verbs[v].bit) offered(&df_opt_table[i], put_zsh, out);
    }
    if (df_verbs[v].bit == DF_VERB_HELP) {
      fputs("        '*:verb:(", out);
      put_verb_names(out);
      fputs(")';;\n", out);
    } else {
      fputs(df_verbs[v].bit == DF_VERB_COMPLETION ? "        '*:shell:(bash zsh fish)';;\n"
                                                  : "        '*:file:_files';;\n",
            out);
    }
  }
  fputs("  esac\n}\n_dflash \"$@\"\n", out);
}

static void put_fish(FILE *out, const df_opt *o, const char *w, size_t n, bool negative) {
  if (w[1] == '-')
    fprintf(out, " -l %.*s", (int)(n - 2), w + 2);
  else
    fprintf(out, n == 2 ? " -s %.*s" : " -o %.*s", (int)(n - 1), w + 1);
  (void)o;
  (void)negative;
}

static void fish_print(FILE *out) {
  fputs("# fish completion for dflash: dflash completion fish > ~/.config/fish/completions/dflash.fish\n", out);
  for (unsigned v = 0; v < df_verb_count; v++) {
    if (df_verbs[v].hidden) continue;
    fprintf(out, "complete -c dflash -n __fish_use_subcommand -f -a %s -d '", df_verbs[v].name);
    put_description(out, df_verbs[v].summary);
    fputs("'\n", out);
  }
  for (int i = 0; i < OPT_COUNT; i++) {
    const df_opt *o = &df_opt_table[i];
    fputs("complete -c dflash -n '__fish_seen_subcommand_from", out);
    for (unsigned v = 0; v < df_verb_count; v++) {
      if (!df_verbs[v].hidden && (o->verbs & df_verbs[v].bit)) fprintf(out, " %s", df_verbs[v].name);
    }
    fputc('\'', out);
    offered(o, put_fish, out);
    if (o->kind == DF_OPT_CHOICE) {
      fputs(" -x -a '", out);
      put_choices(out, o->choices);
      fputc('\'', out);
    } else if (o->kind != DF_OPT_FLAG) {
      fputs(o->kind == DF_OPT_PATH ? " -r -F" : " -x", out);
    }
    fputs(" -d '", out);
    put_description(out, o->help);
    fputs("'\n", out);
  }
  fputs(
      "complete -c dflash -n '__fish_seen_subcommand_from completion' -f -a 'bash zsh fish'\n"
      "complete -c dflash -n '__fish_seen_subcommand_from help' -f -a '",
      out);
  put_verb_names(out);
  fputs("'\n", out);
}

bool df_completion_print(FILE *out, const char *shell) {
  if (strcmp(shell, "bash") == 0)
    bash_print(out);
  else if (strcmp(shell, "zsh") == 0)
    zsh_print(out);
  else if (strcmp(shell, "fish") == 0)
    fish_print(out);
  else
    return false;
  return true;
}
