/* clock: the only place that reads time. Monotonic time for durations and deadlines, wall time for
 * people. The daemon reads time through its host seam, which calls these; tests of it supply their
 * own. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

enum { CLOCK_ISO_BYTES = 32, CLOCK_DURATION_BYTES = 32, CLOCK_DATE_BYTES = 16 };

int64_t clock_monotonic_ms(void);
int64_t clock_monotonic_ns(void);
int64_t clock_process_ns(void); /* that this process has had a processor, all threads together */
int64_t clock_wall_ms(void);    /* Unix time in milliseconds */
void clock_iso(int64_t wall_ms, char ret_text[CLOCK_ISO_BYTES]); /* "2026-11-29T12:00:00.123Z" */
/* The day of a time in this machine's zone (TZ): "2026-11-29", and when the next one begins. Days
 * of a change of the clock have 23 or 25 hours. */
void clock_day(int64_t wall_ms, char ret_date[CLOCK_DATE_BYTES], int64_t *ret_next_ms);
/* The time when a day of that zone, "2026-11-29", begins; false: it is no date. */
bool clock_parse_date(const char *text, int64_t *ret_ms);
/* "45s", "12m05s", "3h12m", "2d04h"; less than nothing is "0s". */
void clock_duration(int64_t seconds, char ret_text[CLOCK_DURATION_BYTES]);
void clock_sleep_ms(int64_t ms); /* for polling loops with a deadline; EINTR continues */
