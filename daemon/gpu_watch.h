/* gpu_watch: a thread that looks at the GPUs every second, and at once when one tells an XID. The
 * loop takes the newest report when there is one; it never waits for a GPU.
 *
 * NVML may hang for good. Then no report comes, which whoever takes them sees from
 * their times, and gpu_watch_free() leaves the thread behind after some seconds. */
#pragma once
#include "common/err.h"
#include "daemon/gpu_report.h"

#include <stdbool.h>
#include <stdint.h>

struct gpu_watch;

/* file: a JSON file that plays the GPUs (gpu_file.h), copied; NULL: NVML. Comes back with the first
 * report, or after wait_ms. ERR_UNSUPPORTED, with a sentence why, when there is no GPU to use. */
int gpu_watch_new(const char *file, int64_t wait_ms, struct gpu_watch **ret_watch,
                  struct gpu_report *ret_report, struct err *err);
/* The newest report, if it is newer than the last that was taken. A file that has become unreadable
 * counts as one that hangs. */
bool gpu_watch_take(struct gpu_watch *watch, struct gpu_report *ret_report);
void gpu_watch_free(struct gpu_watch *watch); /* NULL is fine */
