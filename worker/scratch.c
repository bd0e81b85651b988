/* scratch: see scratch.h. */
#include "worker/scratch.h"

static const enum mem_name scratch_names[DEVICE_SCRATCH_COUNT] = {
    [DEVICE_SCRATCH_GEMM] = MEM_GEMM_SCRATCH,
    [DEVICE_SCRATCH_ATTENTION] = MEM_ATTENTION_SCRATCH,
    [DEVICE_SCRATCH_ATTENTION_BWD] = MEM_ATTENTION_BWD_SCRATCH,
    [DEVICE_SCRATCH_ATTENTION_PARTS] = MEM_ATTENTION_PARTS,
    [DEVICE_SCRATCH_OP] = MEM_OP_SCRATCH,
};

int scratch_reserve(struct scratch *scratch, struct arena *arena, struct err *err)
{
    *scratch = (struct scratch){0};
    for (int kind = 0; kind < DEVICE_SCRATCH_COUNT; kind++) {
        scratch->bytes[kind] = arena_planned(arena, scratch_names[kind], 0);
        if (scratch->bytes[kind] > 0)
            TRY(arena_reserve(arena, scratch_names[kind], 0, &scratch->memory[kind],
                              scratch->bytes[kind], err));
    }
    return 0;
}

void scratch_lend(const struct scratch *scratch, struct device *device)
{
    for (int kind = 0; kind < DEVICE_SCRATCH_COUNT; kind++)
        if (scratch->bytes[kind] > 0)
            device->dev->lend_scratch(device, (enum device_scratch)kind, scratch->memory[kind],
                                      (size_t)scratch->bytes[kind]);
}
