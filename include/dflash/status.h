/*
 * dflash/status.h - status codes and the error record used by every call of the library.
 *
 * Ownership: df_error is a plain struct owned by the caller; the library only fills it.
 * Threads:   no shared state; any thread.
 * Source:    codes are ours; the message style is one line "what failed: why" plus a separate hint.
 */
#ifndef DFLASH_STATUS_H
#define DFLASH_STATUS_H

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define DF_API __attribute__((visibility("default")))
#define DF_CHECK __attribute__((warn_unused_result))
#define DF_PRINTF(f, a) __attribute__((format(printf, f, a)))
#else
#define DF_API
#define DF_CHECK
#define DF_PRINTF(f, a)
#endif

/* 0 is success, every failure is negative. Values are stable across versions. */
typedef enum df_status {
  DF_OK = 0,
  DF_ERR_ARGUMENT = -1,       /* a caller passed something outside the documented range */
  DF_ERR_MEMORY = -2,         /* allocation failed */
  DF_ERR_IO = -3,             /* the operating system refused a file operation */
  DF_ERR_FORMAT = -4,         /* a file or text does not follow its format */
  DF_ERR_UNSUPPORTED = -5,    /* well formed, but this build or device cannot do it */
  DF_ERR_MISMATCH = -6,       /* two things do not belong together (draft and target, checksum) */
  DF_ERR_LIMIT = -7,          /* a documented limit was exceeded (context, template steps, sizes) */
  DF_ERR_NETWORK = -8,        /* a download failed */
  DF_ERR_CANCELLED = -9,      /* the caller asked to stop */
  DF_ERR_MASK_CONTRACT = -10, /* a verify mask was missing, superfluous or of another layout */
  DF_ERR_TEMPLATE = -11,      /* a chat template raised an error itself */
  DF_ERR_INTERNAL = -12,      /* our own mistake; please report */
  DF_ERR_BUSY = -13,          /* a queue is full, or closing: try again later */
  DF_ERR_DEVICE = -14         /* a card failed while it was used: what was there is lost, open the model anew */
} df_status;

/* One failure. msg is one line without final newline; hint (may be empty) says what to do about it. */
typedef struct df_error {
  df_status code;
  char msg[512];
  char hint[256];
  const char *file; /* source position that reported it, static storage */
  int line;
} df_error;

/* Short lower-case name of a status ("io", "format", ...). Never NULL. */
DF_API const char *df_status_name(df_status s);

#ifdef __cplusplus
}
#endif
#endif
