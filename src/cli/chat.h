/*
 * cli/chat.h - state of "dflash chat", shared by the loop (verb_chat.c) and its commands (chat_cmd.c).
 */
#ifndef DF_CLI_CHAT_H
#define DF_CLI_CHAT_H

#include "cli/answer.h"
#include "cli/chat_conv.h"
#include "cli/chat_input.h"

typedef struct df_chat {
  df_cli *cli;
  df_loaded l;
  df_conv conv;
  df_buf pending;        /* text of /read, in front of the next message */
  char *template_text;   /* --chat-template-file, or NULL */
  char *kept[OPT_COUNT]; /* values of /set; the options borrow them */
  df_stats last;         /* of the last answer */
  df_finish last_finish;
  uint32_t used;  /* positions in use after the last answer */
  uint32_t regen; /* how often the last question was answered again */
  uint64_t seed;  /* drawn once, unless given */
  bool interactive, has_last, leave;
} df_chat;

/* Runs the command in `line` (which starts with '/'). Errors are the command's; the chat goes on. *answer: a new
 * answer to the last question is wanted. */
df_status df_chat_command(df_chat *c, const char *line, bool *answer, df_error *err) DF_CHECK;

#endif
