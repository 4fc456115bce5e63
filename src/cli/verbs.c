#include "cli/verbs.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "dflash/dflash.h"

const df_verb df_verbs[] = {
    {DF_VERB_RUN, "run", "", 0, false, "Continue one prompt or answer one question",
     "Writes the answer to one prompt to standard output as it is generated. The prompt comes from -p, from -f or from "
     "standard input and is put into the model's chat template when there is one (--raw: taken as it is). Ctrl-C stops "
     "after the current token and still prints the statistics; a second Ctrl-C leaves at once.",
     df_verb_run},
    {DF_VERB_CHAT, "chat", "", 0, false, "Talk with a model, line by line",
     "Keeps a conversation; the KV cache of earlier turns is reused. /help lists the commands. Three double quotes "
     "start "
     "and end a block of several lines; a backslash at the end of a line continues it. When standard input is not a "
     "terminal, every line or block is one question and only the answers are printed.",
     df_verb_chat},
    {DF_VERB_SERVE, "serve", "", 0, false, "Serve the model to many people at once over HTTP",
     "Answers OpenAI's chat, completions and responses endpoints, SGLang's and llama-server's own endpoints, "
     "Prometheus "
     "metrics and a web page. Requests are batched as they come, prompts that begin alike share their KV, and the text "
     "of a request does not depend on the others. SIGTERM lets running requests finish; a second one stops at once.",
     df_verb_serve},
    {DF_VERB_DEMO, "demo", "", 0, false, "Show the gain of a draft on three real questions",
     "Answers three questions (chat, code, arithmetic) greedily, without and with the draft, and prints the speed of "
     "both, the accept length and the acceptance by position. Fails when the two texts differ.",
     df_verb_demo},
    {DF_VERB_BENCH, "bench", "", 0, false,
     "Measure speed: passes by rows, prefill, whole texts with and without the draft",
     "Times decode steps, verify passes by rows, draft blocks and prefill, then generates the prompt sets plainly, "
     "with the "
     "automatic width and with the widths of --widths. All kinds of samples take turns, so that ratios hold on a "
     "machine whose "
     "speed drifts. A run on a busy machine says so.",
     df_verb_bench},
    {DF_VERB_PERPLEXITY, "perplexity", "FILE", 1, false, "Score a text: mean negative log-likelihood and perplexity",
     "Cuts the text into windows of the context size that do not overlap and scores every token of a window but its "
     "first from the tokens before it in that window.",
     df_verb_perplexity},
    {DF_VERB_TOKENIZE, "tokenize", "", 0, false, "Turn text into token ids, or ids into text",
     "Prints the ids of a text on one line. With --decode it reads ids, separated by blanks, commas or brackets, and "
     "prints their text. Weights are not loaded.",
     df_verb_tokenize},
    {DF_VERB_INSPECT, "inspect", "FILE", 1, false, "Show what a model file holds, and whether a draft fits a target",
     "Prints metadata, geometry and tensors of a GGUF file or safetensors folder. For a draft, -m TARGET checks width, "
     "vocabulary, tapped layers, mask token and tokenizer; the exit status is 1 when it does not fit.",
     df_verb_inspect},
    {DF_VERB_PULL, "pull", "NAME|URL|ORG/NAME[:FILE]", 1, false, "Download a model into the cache",
     "Fetches a model that is known by name, a file by its URL, or a file of a model repository. Interrupted downloads "
     "are resumed, checksums are verified, and a file appears in the cache only when it is complete. --list shows the "
     "known names and what is cached.",
     df_verb_pull},
    {DF_VERB_CHECK, "check", "", 0, false, "Prove that drafting and every backend give the same text",
     "Runs prompts with the draft under every combination of attention backends, verify routing, recorded programs, "
     "block "
     "widths, batch mixes, cached prefixes and threads, and compares the tokens (with --logits, every bit of the "
     "logits) "
     "with plain decoding. --matrix full adds the reference backend, page sizes, overlap and more widths and mixes; it "
     "takes hours. The exit status is 1 when anything differs.",
     df_verb_check},
    {DF_VERB_DOCTOR, "doctor", "", 0, false, "Show what a configuration would do, without running it",
     "Takes the options of run and shows who computes attention in each phase, the verify-mask decision and its "
     "reason, "
     "which programs are recorded, what the backends can do, the processor, the memory plan and whether the draft "
     "fits. "
     "Everything that would be refused is listed, and the exit status is 1 then.",
     df_verb_doctor},
    {DF_VERB_EVAL, "eval", "gsm8k|mask-table|losslessness|accept|speed|compare [RUN...]", DF_OPT_POSITIONAL_MAX, false,
     "Measure answers: GSM8K as lm-eval asks it, drafting by prompt set, runs side by side",
     "gsm8k asks the questions of GSM8K with the prompts of lm-eval's task of that name and extracts the numbers as it "
     "does; with --out every answer is kept at once and a run that was stopped goes on. mask-table runs it with a "
     "fault "
     "injected, with split backends, with verification on the decode backend, with one backend and without drafting, "
     "and fails unless the last four give the same texts. losslessness, accept and speed generate the prompt sets of "
     "bench at every width of --widths. compare shows the runs of several --out folders with their commands, a paired "
     "significance test and the first question whose texts differ.",
     df_verb_eval},
    {DF_VERB_QUANTIZE, "quantize", "IN OUT TYPE[,PATTERN=TYPE...]", 3, false, "Round the matrices of a GGUF file",
     "Writes a copy of a GGUF file whose matrices have another type: Q4_0, Q4_1, Q8_0 or F32, for all of them or for "
     "those whose names match a pattern (fc.weight=Q8_0); later rules win. Vectors and metadata are copied. Scales are "
     "chosen for the least squared error, which is printed as a share of the weights' power.",
     df_verb_quantize},
    {DF_VERB_VERSION, "version", "", 0, false, "Show the version and how it was built",
     "Prints version, compiler and kernels. --cpu-info describes the processor.", df_verb_version},
    {DF_VERB_HELP, "help", "[VERB]", 1, false, "Show help", "Shows this overview or the options of one verb.",
     df_verb_help},
    {DF_VERB_COMPLETION, "completion", "bash|zsh|fish", 1, false, "Print a shell completion script",
     "Prints a completion script for one of the shells bash, zsh and fish.", df_verb_completion},
    {DF_VERB_MAN, "man", "", 0, true, "Print the manual page", "Prints the manual page as roff.", df_verb_man},
};

const unsigned df_verb_count = sizeof df_verbs / sizeof df_verbs[0];

const df_verb *df_verb_find(const char *name) {
  for (unsigned i = 0; i < df_verb_count; i++) {
    if (strcmp(df_verbs[i].name, name) == 0) return &df_verbs[i];
  }
  return NULL;
}

const df_verb *df_verb_of_bit(uint32_t bit) {
  for (unsigned i = 0; i < df_verb_count; i++) {
    if (df_verbs[i].bit == bit) return &df_verbs[i];
  }
  return NULL;
}

int df_cli_report(const df_cli *cli, const df_error *err) {
  const df_term *t = &cli->term;
  const df_verb *v = df_verb_of_bit(cli->opts.verb);
  fprintf(stderr, "dflash%s%s: %serror:%s %s\n", v ? " " : "", v ? v->name : "", df_term_err(t, DF_STYLE_RED),
          df_term_err(t, DF_STYLE_RESET), err->msg);
  if (err->hint[0])
    fprintf(stderr, "%shint:%s %s\n", df_term_err(t, DF_STYLE_DIM), df_term_err(t, DF_STYLE_RESET), err->hint);
  return err->code == DF_ERR_ARGUMENT ? DF_EXIT_USAGE : DF_EXIT_FAILURE;
}

static void log_line(void *user, int level, const char *line) {
  static const char *const names[] = {"error", "warning", "info", "debug"};
  const df_term *t = user;
  if (level == 2) { /* what a user should know without asking: few, and worded for people */
    fprintf(stderr, "%snote:%s %s\n", df_term_err(t, DF_STYLE_BOLD), df_term_err(t, DF_STYLE_RESET), line);
    return;
  }
  fprintf(stderr, "%s[%s]%s %s\n",
          df_term_err(t, level == 0   ? DF_STYLE_RED
                         : level == 1 ? DF_STYLE_YELLOW
                                      : DF_STYLE_DIM),
          names[level & 3], df_term_err(t, DF_STYLE_RESET), line);
}

static int log_level(const df_opts *o) {
  static const char *const names[] = {"error", "warn", "info", "debug"};
  if (df_opt_on(o, OPT_VERBOSE, false)) return 3;
  const char *text = df_opt_text(o, OPT_LOG, "info");
  if (text[0] >= '0' && text[0] <= '3') return text[0] - '0';
  for (int i = 0; i < 4; i++) {
    if ((text[0] | 0x20) == names[i][0]) return i;
  }
  return 2;
}

/* What was typed in place of a verb: a flag that the overview knows, or a mistake. */
static int no_verb(df_cli *cli, const char *arg, df_error *err) {
  bool negated;
  size_t n = strcspn(arg, "=");
  int id = arg[0] == '-' ? df_opt_find(arg, n, &negated) : -1;
  if (id == OPT_HELP) {
    df_help_print(stdout, 0, arg[n] ? arg + n + 1 : NULL, df_term_columns(STDOUT_FILENO),
                  df_term_out(&cli->term, DF_STYLE_BOLD), df_term_out(&cli->term, DF_STYLE_RESET));
    return DF_EXIT_OK;
  }
  if (id == OPT_VERSION || id == OPT_CPU_INFO) {
    cli->opts.verb = DF_VERB_VERSION;
    cli->opts.v[id] = (df_opt_value){.source = DF_FROM_ARGV, .on = true};
    return df_verb_version(cli);
  }
  unsigned best = 3;
  const char *near = NULL;
  for (unsigned i = 0; i < df_verb_count; i++) {
    unsigned d = df_edit_distance(arg, strlen(arg), df_verbs[i].name, strlen(df_verbs[i].name), best);
    if (!df_verbs[i].hidden && d < best) best = d, near = df_verbs[i].name;
  }
  if (arg[0] == '-') {
    (void)DF_FAIL(err, DF_ERR_ARGUMENT, "a verb comes first, before \"%.60s\"", arg);
    df_error_hint(err, "for example: dflash run -m MODEL -p TEXT; \"dflash help\" lists the verbs");
  } else if (near) {
    (void)DF_FAIL(err, DF_ERR_ARGUMENT, "unknown verb \"%.60s\", did you mean \"%s\"?", arg, near);
  } else {
    (void)DF_FAIL(err, DF_ERR_ARGUMENT, "unknown verb \"%.60s\"", arg);
    df_error_hint(err, "\"dflash help\" lists the verbs");
  }
  return df_cli_report(cli, err);
}

/* Options that every verb answers by itself. Returns -1 when the verb shall run. */
static int common_options(df_cli *cli, const df_verb *verb, df_error *err) {
  const df_opts *o = &cli->opts;
  if (df_opt_given(o, OPT_HELP)) {
    df_help_print(stdout, verb->bit, o->v[OPT_HELP].text, df_term_columns(STDOUT_FILENO),
                  df_term_out(&cli->term, DF_STYLE_BOLD), df_term_out(&cli->term, DF_STYLE_RESET));
    return DF_EXIT_OK;
  }
  if (df_opt_given(o, OPT_VERSION)) return df_verb_version(cli);
  if (o->n_pos > verb->max_pos) {
    (void)DF_FAIL(err, DF_ERR_ARGUMENT, "unexpected argument \"%.80s\"", o->pos[verb->max_pos]);
    if (verb->bit == DF_VERB_RUN || verb->bit == DF_VERB_TOKENIZE)
      df_error_hint(err, "a prompt is given with -p TEXT");
    else if (verb->max_pos == 0)
      df_error_hint(err, "\"dflash %s\" takes options only", verb->name);
    else
      df_error_hint(err, "usage: dflash %s %s", verb->name, verb->args);
    return df_cli_report(cli, err);
  }
  return -1;
}

/* A full disk or closed pipe must not look like success. */
static int flush_stdout(df_cli *cli, int status) {
  bool failed = ferror(stdout) != 0;
  errno = 0;
  if (fflush(stdout) != 0) failed = true;
  if (!failed || status != DF_EXIT_OK) return status;
  df_error err;
  (void)DF_FAIL(&err, DF_ERR_IO, "could not write to standard output%s%s", errno ? ": " : "",
                errno ? strerror(errno) : "");
  return df_cli_report(cli, &err);
}

int df_cli_main(int argc, char *const *argv) {
  df_cli cli = {0};
  df_error err = {0};
  df_term_init(&cli.term, NULL);
  const df_verb *verb = argc > 1 ? df_verb_find(argv[1]) : NULL;
  if (!verb) {
    if (argc > 1) return flush_stdout(&cli, no_verb(&cli, argv[1], &err));
    df_help_print(stderr, 0, NULL, df_term_columns(STDERR_FILENO), df_term_err(&cli.term, DF_STYLE_BOLD),
                  df_term_err(&cli.term, DF_STYLE_RESET));
    return DF_EXIT_USAGE;
  }
  df_status st = df_opts_parse(&cli.opts, verb->bit, argc, argv, 2, df_opt_getenv, &err);
  df_term_init(&cli.term, df_opt_text(&cli.opts, OPT_COLOR, NULL));
  if (st != DF_OK) return df_cli_report(&cli, &err);
  int status = common_options(&cli, verb, &err);
  if (status < 0) {
    df_set_log(log_line, &cli.term, log_level(&cli.opts));
    status = verb->run(&cli);
  }
  return flush_stdout(&cli, status);
}
