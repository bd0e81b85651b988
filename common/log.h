/* log: one line per event on stderr: "2026-11-29T12:00:00.123Z info supervisor: text".
 *
 * Only the programs' mains and the daemon's modules log; libraries return errors. The component is
 * the file's noun. Levels below the set one cost a comparison. Lines are cut at
 * LIMIT_LOG_LINE_BYTES, control characters in the text are replaced, and one write(2) puts out one
 * line, so lines of several processes do not mix. */
#pragma once

enum log_level {
    LOG_LEVEL_DEBUG,
    LOG_LEVEL_INFO,
    LOG_LEVEL_WARN,
    LOG_LEVEL_ERROR,
    LOG_LEVEL_COUNT
};

void log_set_level(enum log_level level);
enum log_level log_level_parse(const char *name); /* LOG_LEVEL_COUNT when unknown */
const char *log_level_name(enum log_level level);
void log_write(enum log_level level, const char *component, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#define log_debug(component, ...) log_write(LOG_LEVEL_DEBUG, component, __VA_ARGS__)
#define log_info(component, ...) log_write(LOG_LEVEL_INFO, component, __VA_ARGS__)
#define log_warn(component, ...) log_write(LOG_LEVEL_WARN, component, __VA_ARGS__)
#define log_error(component, ...) log_write(LOG_LEVEL_ERROR, component, __VA_ARGS__)
