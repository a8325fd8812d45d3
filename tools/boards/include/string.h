/* All that the runtime needs of libc, for compilers that come without one. */
#include <stddef.h>
void *memcpy(void *to, const void *from, size_t n);
void *memset(void *to, int value, size_t n);
