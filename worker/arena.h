/* arena: a rank's memory: one block on the device and one of pinned host memory, taken once, never
 * grown.
 *
 * Every buffer of a training run is declared before the run starts: arena_reserve() notes its name,
 * its size and the pointer to fill; arena_commit() takes the blocks, fills all pointers and seals
 * the arena. From then on reserving is a bug (must()), so that a step cannot allocate: what fits at
 * `ready` fits for ever.
 *
 *     arena_init(&arena, device, &plan);
 *     TRY(arena_reserve(&arena, MEM_DX, 0, &model->dx, tokens * hidden * act_bytes, err));
 *     TRY(arena_commit(&arena, err));       model->dx now points into a block
 *
 * With a plan (common/mem_plan.h) a buffer lies where it was planned, on the device or the host,
 * possibly upon another that is needed at other times: contents last through the phases of the plan
 * only. Plan and worker compute every size for themselves: a buffer that is not planned, or with
 * another size, or planned and not reserved, is ERR_INTERNAL and named. Without a plan (tests,
 * benches) buffers lie on the device one after the other. What is planned for a file is not the
 * arena's.
 *
 * A slot (the pointer to fill) must stay where it is until the commit. Contents on the device are
 * undefined, those on the host zero. */
#pragma once
#include "common/err.h"
#include "common/mem_plan.h"
#include "worker/device.h"

#include <stdbool.h>
#include <stdint.h>

struct arena_slot {
    void *slot;                      /* address of the pointer to fill */
    const struct mem_buffer *buffer; /* of the plan, or NULL */
    enum mem_arena where;            /* DEVICE or HOST */
    int64_t offset;                  /* bytes from the block's start */
};

struct arena_block {
    int64_t bytes;
    void *memory; /* NULL before the commit, and when empty */
};

struct arena {
    struct device *device;
    const struct mem_plan *plan; /* borrowed; NULL: none */
    struct arena_slot *slots;    /* (slot_count) what commit will fill; freed by it */
    int64_t slot_count, slot_capacity;
    struct arena_block blocks[MEM_ARENA_HOST + 1]; /* of the device and of the host */
    int64_t peak_category[MEM_CATEGORY_COUNT]; /* device bytes reserved that the plan's peak phase
                                                  needs: what is measured of a run */
    bool sealed;                               /* committed: no further reserve */
    bool strict;                               /* see arena_strict(); slots are kept */
};

void arena_init(struct arena *arena, struct device *device, const struct mem_plan *plan);
void arena_done(struct arena *arena);
/* index: layer, unit or slot, or MEM_AT_WORK. slot: address of a pointer variable of any type.
 * bytes may be 0 where there is no plan (the pointer is then not to be used). */
int arena_reserve(struct arena *arena, enum mem_name name, int64_t index, void *slot, int64_t bytes,
                  struct err *err);
/* Bytes that the plan has for a buffer; 0: it has none. */
int64_t arena_planned(const struct arena *arena, enum mem_name name, int64_t index);
int arena_commit(struct arena *arena, struct err *err);
/* Of a block, DEVICE or HOST. */
int64_t arena_bytes(const struct arena *arena, enum mem_arena where);
/* Where the plan has a buffer: DEVICE, HOST or FILE. DEVICE without a plan; MEM_ARENA_COUNT where
 * the plan has none such. */
enum mem_arena arena_where(const struct arena *arena, enum mem_name name, int64_t index);

/* The work enters a phase of the plan: contents that are not planned for it are given up. */
void arena_enter(struct arena *arena, enum mem_phase phase);
/* For tests on the CPU: arenas made from now on have all buffers apart, and what a phase gives up
 * is overwritten with NaN, so that whoever counts on it computes NaN. */
void arena_strict(bool on);
