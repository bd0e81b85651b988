/* doctor: what this machine offers to training, on one page: processor, memory, GPUs with driver
 * and libraries, shared memory, limits, disk. For a user whose job will not start, and for a
 * report.
 *
 *     doctor_run("/var/lib/ithaca", false, &err)
 *
 *     ok    processor      8 cores
 *     note  huge pages     off: pinned memory starts slowly; echo madvise > ...
 *     bad   /dev/shm       16 MiB free of 64 MiB: ranks meet there ...
 *
 * ok: as it should be; note: works, less well than it could; bad: jobs will fail. Each that is not
 * ok says what to do. Takes a few seconds: the disk's rate is measured with a file in data_dir
 * (O_DIRECT through io_uring, as offload does), which is removed. */
#pragma once
#include "common/err.h"

#include <stdbool.h>

/* To stdout; json: {"object": "doctor", "data": [{"level", "what", "finding"}]}. ERR_UNSUPPORTED
 * where something is bad, after all has been said. */
int doctor_run(const char *data_dir, bool json, struct err *err);
