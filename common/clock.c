/* clock: clock_gettime in the units the rest of the code uses. */
#include "common/clock.h"

#include "common/must.h"

#include <errno.h>
#include <stdio.h>
#include <time.h>

static int64_t clock_read_ns(clockid_t id)
{
    struct timespec now;
    must(clock_gettime(id, &now) == 0);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

int64_t clock_monotonic_ns(void)
{
    return clock_read_ns(CLOCK_MONOTONIC);
}

int64_t clock_monotonic_ms(void)
{
    return clock_monotonic_ns() / 1000000;
}

int64_t clock_process_ns(void)
{
    return clock_read_ns(CLOCK_PROCESS_CPUTIME_ID);
}

int64_t clock_wall_ms(void)
{
    return clock_read_ns(CLOCK_REALTIME) / 1000000;
}

void clock_iso(int64_t wall_ms, char ret_text[CLOCK_ISO_BYTES])
{
    time_t seconds = (time_t)(wall_ms / 1000);
    struct tm parts;
    must(gmtime_r(&seconds, &parts) != NULL);
    size_t length = strftime(ret_text, CLOCK_ISO_BYTES, "%Y-%m-%dT%H:%M:%S", &parts);
    (void)snprintf(ret_text + length, CLOCK_ISO_BYTES - length, ".%03dZ", (int)(wall_ms % 1000));
}

void clock_day(int64_t wall_ms, char ret_date[CLOCK_DATE_BYTES], int64_t *ret_next_ms)
{
    const int64_t hour_ms = 3600000;
    time_t seconds = (time_t)(wall_ms / 1000);
    struct tm parts;
    must(localtime_r(&seconds, &parts) != NULL);
    (void)strftime(ret_date, CLOCK_DATE_BYTES, "%Y-%m-%d", &parts);
    parts.tm_hour = parts.tm_min = parts.tm_sec = 0;
    parts.tm_mday++;
    parts.tm_isdst = -1;
    int64_t next_ms = (int64_t)mktime(&parts) * 1000;
    while (next_ms <= wall_ms) /* a midnight that the clock leaves out is an hour earlier */
        next_ms += hour_ms;
    *ret_next_ms = next_ms;
}

bool clock_parse_date(const char *text, int64_t *ret_ms)
{
    struct tm parts = {.tm_sec = 0};
    const char *end = strptime(text, "%Y-%m-%d", &parts);
    struct tm noon = parts;
    if (end == NULL || *end != '\0')
        return false;
    noon.tm_hour = 12;
    noon.tm_isdst = parts.tm_isdst = -1;
    (void)mktime(&noon); /* makes March of February 30 */
    if (noon.tm_mday != parts.tm_mday)
        return false;
    *ret_ms = (int64_t)mktime(&parts) * 1000;
    return true;
}

void clock_duration(int64_t seconds, char ret_text[CLOCK_DURATION_BYTES])
{
    const long long s = seconds > 0 ? seconds : 0;
    if (s < 60)
        (void)snprintf(ret_text, CLOCK_DURATION_BYTES, "%llds", s);
    else if (s < 3600)
        (void)snprintf(ret_text, CLOCK_DURATION_BYTES, "%lldm%02llds", s / 60, s % 60);
    else if (s < 86400)
        (void)snprintf(ret_text, CLOCK_DURATION_BYTES, "%lldh%02lldm", s / 3600, s / 60 % 60);
    else
        (void)snprintf(ret_text, CLOCK_DURATION_BYTES, "%lldd%02lldh", s / 86400, s / 3600 % 24);
}

void clock_sleep_ms(int64_t ms)
{
    struct timespec rest = {.tv_sec = (time_t)(ms / 1000), .tv_nsec = (long)(ms % 1000) * 1000000};
    while (nanosleep(&rest, &rest) != 0 && errno == EINTR)
        continue;
}
