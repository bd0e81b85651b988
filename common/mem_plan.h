/* mem_plan: every byte of device and pinned host memory that a rank of a job takes, settled before
 * anything is allocated: the single source for admission (daemon), `ithaca plan`, and the worker,
 * which takes one block an arena and finds each buffer at its planned place. Daemon and worker hold
 * each other's digest against their own.
 *
 *     struct mem_request request = {.shape = &shape, .spec = &spec, .world = 8,
 *                                   .backend = MEM_BACKEND_CUDA};
 *     TRY(mem_plan_build(&request, &plan, err));
 *     plan.peak_device_bytes, plan.peak_phase ...
 *     mem_plan_done(&plan);
 *
 * A pure function of the request; all ranks have the same plan. Buffers that are not needed at the
 * same time share memory (mem_place.h), so the block may be smaller than the sum, and contents last
 * through the phases they are planned for, not longer.
 *
 * Files: mem_plan.c (build, peak, digest), mem_plan_states.c, mem_plan_layers.c,
 * mem_plan_attention.c, mem_plan_lora.c, mem_plan_tiles.c: what is declared. */
#pragma once
#include "common/err.h"
#include "common/io.h"
#include "common/mem_buffer.h"
#include "common/mem_layout.h"

#include <stdint.h>

struct mem_plan {
    struct mem_layout layout;
    struct mem_buffer *buffers; /* (count) in the order of names, then of index */
    int64_t count;
    int64_t arena_bytes[MEM_ARENA_COUNT]; /* size of each block */
    uint64_t phases;                      /* bit p: the job has phase p */
    int64_t phase_bytes[MEM_PHASE_COUNT]; /* device bytes needed in it, the driver's included */
    enum mem_phase peak_phase;            /* the largest of them */
    int64_t peak_device_bytes;            /* block and driver: what the device must have */
    int64_t peak_category[MEM_CATEGORY_COUNT]; /* of phase_bytes[peak_phase] */
    int64_t gap_bytes;                         /* of the block, unused in the peak phase */
    char digest[IO_HASH_BYTES];                /* over every buffer, and the layout's backend */
};

/* ERR_DOES_NOT_FIT where sizes overflow. */
int mem_plan_build(const struct mem_request *request, struct mem_plan *ret_plan, struct err *err);
void mem_plan_done(struct mem_plan *plan);

/* NULL when the plan has no such buffer. */
const struct mem_buffer *mem_plan_find(const struct mem_plan *plan, enum mem_arena arena,
                                       enum mem_name name, int32_t index);
