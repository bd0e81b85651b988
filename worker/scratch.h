/* scratch: the memory that the device's operations need for themselves, as the plan has it:
 * reserved in the arena, then lent to the device, which takes none of its own from then on.
 *
 *     TRY(scratch_reserve(&scratch, &arena, err));
 *     TRY(arena_commit(&arena, err));
 *     scratch_lend(&scratch, device);
 *
 * Sizes are the plan's alone: an operation that needs more says so (device.h). */
#pragma once
#include "common/err.h"
#include "worker/arena.h"
#include "worker/device.h"

#include <stdint.h>

struct scratch {
    void *memory[DEVICE_SCRATCH_COUNT];
    int64_t bytes[DEVICE_SCRATCH_COUNT]; /* 0: the plan has none */
};

int scratch_reserve(struct scratch *scratch, struct arena *arena, struct err *err);
void scratch_lend(const struct scratch *scratch, struct device *device);
