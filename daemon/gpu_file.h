/* gpu_file: GPUs that a JSON file plays, for tests of all that has to do with GPUs on machines
 * without one. The file is read at each look, so a test changes it (by rename) while the daemon
 * runs:
 *
 *   {"hang": false,            true: looks do not come back until it is false again
 *    "gpus": [{"uuid": "GPU-1", "name": "NVIDIA H200", "bytes": 150000000000,
 *              "used_bytes": 0, "temperature_c": 40, "power_mw": 90000, "busy_percent": 0,
 *              "links": 18, "ecc_corrected": 0, "ecc_uncorrected": 0,
 *              "processes": [{"pid": 1, "bytes": 1000}],
 *              "xids": [79]}]} all since the file began: one is new when the list has grown
 *
 * Only uuid and bytes are required. A GPU that is not in the list has fallen off the bus. */
#pragma once
#include "common/err.h"
#include "daemon/gpu_report.h"

#include <stdatomic.h>
#include <stdbool.h>

/* Fills the report; with "hang" it comes back when that is over or *stop is set. A file that cannot
 * be read or is not as above is ERR_UNSUPPORTED, naming it. */
int gpu_file_look(const char *path, const atomic_bool *stop, struct gpu_report *ret,
                  struct err *err);
