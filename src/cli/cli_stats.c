#include "cli/cli_stats.h"

#include <unistd.h>

const char *df_finish_text(df_finish f) {
  switch (f) {
    case DF_FINISH_NONE: return "not finished";
    case DF_FINISH_EOS: return "end of text";
    case DF_FINISH_ID: return "stop token";
    case DF_FINISH_STRING: return "stop text";
    case DF_FINISH_LENGTH: return "token limit";
    case DF_FINISH_CONTEXT: return "context full";
    case DF_FINISH_CANCELLED: return "interrupted";
  }
  return "unknown";
}

void df_stats_bars(FILE *out, const df_stats *st, unsigned columns, const char *bar_on, const char *bar_off) {
  if (st->drafted == 0) return;
  unsigned width = columns > 60 ? 40 : columns > 34 ? columns - 20 : 14;
  unsigned last = 0, drafted = 0; /* slots up to the last accepted one; slots that were drafted at all */
  for (unsigned j = 0; j < DF_MAX_WIDTH; j++) {
    if (st->accepted_at[j]) last = j + 1;
    if (st->drafted_at[j]) drafted = j + 1;
  }
  for (unsigned j = 0; j < last; j++) {
    if (st->drafted_at[j] == 0) continue;
    char bar[160];
    double share = (double)st->accepted_at[j] / st->drafted_at[j];
    df_bar_format(bar, sizeof bar, share, width);
    fprintf(out, "  slot %2u %5.1f %% %s%s%s\n", j + 1, share * 100, bar_on, bar, bar_off);
  }
  if (drafted > last + 1)
    fprintf(out, "  slots %u to %u: none\n", last + 1, drafted);
  else if (drafted > last)
    fprintf(out, "  slot %2u   0.0 %%\n", drafted);
}

/* How often each width was taken. */
static void print_widths(FILE *out, const df_stats *st, const char *bold, const char *off) {
  const char *sep = "";
  fprintf(out, "%swidths%s      ", bold, off);
  for (unsigned w = 1; w <= DF_MAX_WIDTH; w++) {
    if (!st->width_steps[w]) continue;
    fprintf(out, "%s%u row%s %u times", sep, w, w == 1 ? "" : "s", st->width_steps[w]);
    sep = ", ";
  }
  fputc('\n', out);
}

void df_stats_print(FILE *out, const df_term *t, const df_stats *st, df_finish finish, bool could_draft,
                    const char *note) {
  const char *bold = df_term_err(t, DF_STYLE_BOLD), *off = df_term_err(t, DF_STYLE_RESET);
  double pp = df_stats_prompt_speed(st), tg = df_stats_generation_speed(st);
  fprintf(out, "%sprompt%s      %6u tokens", bold, off, st->prompt_tokens);
  if (pp > 0) fprintf(out, "  %8.1f tok/s", pp);
  if (st->cached_tokens) fprintf(out, "  %u cached", st->cached_tokens);
  fprintf(out, "\n%sgeneration%s  %6u tokens", bold, off, st->new_tokens);
  if (tg > 0) fprintf(out, "  %8.1f tok/s", tg);
  fprintf(out, "  %s\n", df_finish_text(finish));
  if (st->verify_steps) {
    fprintf(out, "%sdrafting%s    accept length %.2f, %u of %u drafts accepted (%.1f %%), %u verify steps", bold, off,
            df_stats_accept_length(st), st->accepted, st->drafted,
            st->drafted ? 100.0 * st->accepted / st->drafted : 0.0, st->verify_steps);
    if (st->cut) fprintf(out, "; %u drafts not verified: too unsure", st->cut);
    fputc('\n', out);
    df_stats_bars(out, st, df_term_columns(STDERR_FILENO), df_term_err(t, DF_STYLE_CYAN), off);
    print_widths(out, st, bold, off);
  } else if (could_draft && st->steps) {
    fprintf(out, "%sdrafting%s    nothing drafted: plain decoding promised to be faster\n", bold, off);
  }
  fprintf(out, "%stime%s        first token %.0f ms, prompt %.0f ms, generation %.0f ms%s%s\n", bold, off,
          st->first_token_ms, st->prefill_ms, st->decode_ms, note ? ", " : "", note ? note : "");
}

void df_stats_line(FILE *out, const df_term *t, const df_stats *st, df_finish finish, uint32_t used, uint32_t n_ctx) {
  fprintf(out, "%s[%u+%u tokens", df_term_err(t, DF_STYLE_DIM), st->prompt_tokens, st->new_tokens);
  if (st->cached_tokens) fprintf(out, ", %u cached", st->cached_tokens);
  double pp = df_stats_prompt_speed(st), tg = df_stats_generation_speed(st);
  if (pp > 0) fprintf(out, ", prompt %.0f tok/s", pp);
  if (tg > 0) fprintf(out, ", generation %.1f tok/s", tg);
  if (st->verify_steps) fprintf(out, ", accept length %.2f", df_stats_accept_length(st));
  fprintf(out, ", context %u/%u", used, n_ctx);
  if (finish != DF_FINISH_EOS) fprintf(out, ", %s", df_finish_text(finish));
  fprintf(out, "]%s\n", df_term_err(t, DF_STYLE_RESET));
}

void df_stats_add(df_stats *a, const df_stats *b) {
  a->prompt_tokens += b->prompt_tokens;
  a->cached_tokens += b->cached_tokens;
  a->new_tokens += b->new_tokens;
  a->steps += b->steps;
  a->verify_steps += b->verify_steps;
  a->drafted += b->drafted;
  a->accepted += b->accepted;
  a->cut += b->cut;
  for (unsigned j = 0; j < DF_MAX_WIDTH; j++) {
    a->drafted_at[j] += b->drafted_at[j];
    a->accepted_at[j] += b->accepted_at[j];
  }
  for (unsigned w = 0; w <= DF_MAX_WIDTH; w++) a->width_steps[w] += b->width_steps[w];
  a->emitted_verify += b->emitted_verify;
  a->prefill_ms += b->prefill_ms;
  a->decode_ms += b->decode_ms;
  a->draft_ms += b->draft_ms;
  a->verify_ms += b->verify_ms;
  a->inject_ms += b->inject_ms;
  a->sample_ms += b->sample_ms;
  a->first_token_ms += b->first_token_ms;
  a->step_allocations += b->step_allocations;
}

static void timings_json(df_json_out *w, const df_stats *st) {
  df_json_out_key(w, "timings");
  df_json_out_object(w);
  df_stats_timings(w, st);
  df_json_put_u64(w, "steps", st->steps);
  df_json_out_key(w, "width_steps"); /* [i] = steps of i + 1 rows */
  df_json_out_array(w);
  for (unsigned i = 1; i <= DF_MAX_WIDTH; i++) df_json_out_u64(w, st->width_steps[i]);
  df_json_out_close(w);
  df_json_put_u64(w, "draft_n_cut", st->cut);
  df_json_put_f64(w, "draft_ms", st->draft_ms);
  df_json_put_f64(w, "verify_ms", st->verify_ms);
  df_json_put_f64(w, "inject_ms", st->inject_ms);
  df_json_put_f64(w, "sample_ms", st->sample_ms);
  df_json_out_close(w);
}

void df_stats_json(df_json_out *w, const df_stats *st) {
  df_json_out_key(w, "usage");
  df_json_out_object(w);
  df_json_put_u64(w, "prompt_tokens", st->prompt_tokens);
  df_json_put_u64(w, "completion_tokens", st->new_tokens);
  df_json_put_u64(w, "total_tokens", (uint64_t)st->prompt_tokens + st->new_tokens);
  df_json_out_key(w, "prompt_tokens_details");
  df_json_out_object(w);
  df_json_put_u64(w, "cached_tokens", st->cached_tokens);
  df_json_out_close(w);
  df_json_out_close(w);
  timings_json(w, st);
}
