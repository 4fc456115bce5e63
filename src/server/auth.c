/* API keys. */
#include <string.h>
#include <strings.h>

#include "server/routes.h"

/* 0 when equal. Every byte of the presented key is looked at, whatever the key holds. */
static unsigned differs(const char *key, const char *presented, size_t n) {
  const size_t len = strlen(key);
  volatile unsigned diff = (unsigned)(len ^ n) | (unsigned)((len ^ n) >> 16) | (len == 0);
  for (size_t i = 0; i < n; i++) {
    const char k = len ? key[i % len] : 0;
    diff |= (unsigned char)(k ^ presented[i]);
  }
  return diff;
}

bool df_key_matches(const char *const *keys, uint32_t n, const char *presented) {
  unsigned found = 0;
  const size_t len = presented ? strlen(presented) : 0;
  for (uint32_t i = 0; i < n; i++) found |= differs(keys[i], presented ? presented : "", len) == 0;
  return found != 0;
}

const char *df_key_presented(const df_http_head *head) {
  const char *value = df_http_header_get(head, "authorization");
  if (value && strncasecmp(value, "Bearer ", 7) == 0) return value + 7 + strspn(value + 7, " ");
  return df_http_header_get(head, "x-api-key");
}
