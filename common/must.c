/* must: the end of a broken process. */
#include "common/must.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

void (*must_last_words)(const char *sentence);

void must_fail(const char *file, int line, const char *expression)
{
    char text[512];
    int len = snprintf(text, sizeof text, "%s:%d: must(%s) failed\n", file, line, expression);
    if (len > 0)
        (void)!write(STDERR_FILENO, text,
                     (size_t)len < sizeof text ? (size_t)len : sizeof text - 1);
    if (must_last_words != NULL)
        must_last_words(text);
    abort();
}
