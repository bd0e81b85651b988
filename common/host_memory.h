/* host_memory: how much of this machine's memory may be used: what there is, and what the control
 * groups that this process is in leave of it (containers, systemd units, Slurm jobs), versions 1
 * and 2. Beyond a group's limit memory is not refused but its user is killed, so whoever takes much
 * asks here first.
 *
 *     struct host_memory host = host_memory_read();
 *     TRY(host_memory_check(bytes, err));     ERR_NOMEM, with what is asked for and what there is
 */
#pragma once
#include "common/err.h"

#include <stdint.h>

struct host_memory {
    int64_t total;     /* bytes: of the machine, or the lowest limit of a group if that is less */
    int64_t available; /* bytes of these that can be had now; file caches count as available */
};

/* What cannot be read sets no limit. Allocates nothing. */
struct host_memory host_memory_read(void);
/* 0 when so many bytes are available. */
int host_memory_check(int64_t bytes, struct err *err);
