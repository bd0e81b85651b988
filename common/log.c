/* log: format into a fixed buffer, write once. */
#include "common/log.h"

#include "common/clock.h"
#include "common/limits.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static enum log_level log_threshold = LOG_LEVEL_INFO;

static const char *const log_names[LOG_LEVEL_COUNT] = {
    [LOG_LEVEL_DEBUG] = "debug",
    [LOG_LEVEL_INFO] = "info",
    [LOG_LEVEL_WARN] = "warn",
    [LOG_LEVEL_ERROR] = "error",
};

void log_set_level(enum log_level level)
{
    log_threshold = level;
}

enum log_level log_level_parse(const char *name)
{
    for (int level = 0; level < LOG_LEVEL_COUNT; level++)
        if (strcmp(log_names[level], name) == 0)
            return (enum log_level)level;
    return LOG_LEVEL_COUNT;
}

const char *log_level_name(enum log_level level)
{
    return log_names[level];
}

void log_write(enum log_level level, const char *component, const char *format, ...)
{
    if (level < log_threshold)
        return;
    char line[LIMIT_LOG_LINE_BYTES];
    char stamp[CLOCK_ISO_BYTES];
    clock_iso(clock_wall_ms(), stamp);
    int head = snprintf(line, sizeof line, "%s %s %s: ", stamp, log_names[level], component);
    if (head < 0 || (size_t)head >= sizeof line)
        return;
    va_list args;
    va_start(args, format);
    int text = vsnprintf(line + head, sizeof line - (size_t)head, format, args);
    va_end(args);
    if (text < 0)
        return;
    size_t length = strlen(line);
    for (size_t i = (size_t)head; i < length; i++)
        if ((unsigned char)line[i] < 0x20 || line[i] == 0x7f)
            line[i] = ' ';
    if (length == sizeof line - 1)
        length--;
    line[length] = '\n';
    (void)!write(STDERR_FILENO, line, length + 1); /* a log that cannot be written has no reader */
}
