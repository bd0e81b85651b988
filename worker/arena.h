/* arena: a rank's device memory: declared by name, taken once, never grown.
 *
 * Every buffer of a training run is declared before the run starts: arena_reserve() notes its
 * category, size and the pointer to fill; arena_commit() takes one block of device memory a
 * category, fills all pointers and seals the arena. From then on reserving is a bug (must()), so
 * that a step cannot allocate: what fits at `ready` fits for ever.
 *
 *     arena_init(&arena, device);
 *     TRY(arena_reserve(&arena, ARENA_RESIDUAL, &model->dx, tokens * hidden * act_bytes, err));
 *     TRY(arena_commit(&arena, err));       model->dx now points into the residual block
 *
 * A slot (the pointer to fill) must stay where it is until the commit. Contents are undefined. All
 * buffers of a category live as long as the arena, so its peak is its size. */
#pragma once
#include "common/err.h"
#include "worker/device.h"

#include <stdbool.h>
#include <stdint.h>

/* X(id, name): the lifetimes of stack.md's memory plan */
#define ARENA_TABLE(X)                                                              \
    X(STATES, "states")       /* master weights, moments, gradient shards */        \
    X(GATHERED, "gathered")   /* units gathered for use, a unit's full gradient */  \
    X(RESIDUAL, "residual")   /* (T, h) tensors: layer inputs and their gradient */ \
    X(ATTENTION, "attention") /* q, k, v, o and their gradients */                  \
    X(TILES, "tiles")         /* MLP and loss tiles */                              \
    X(WORKSPACE, "workspace") /* token ids, scalars */

enum arena_kind {
#define X(id, name) ARENA_##id,
    ARENA_TABLE(X)
#undef X
        ARENA_COUNT
};
const char *arena_kind_name(enum arena_kind kind);

enum { ARENA_ALIGN_BYTES = 256 };

struct arena_slot {
    void *slot;           /* address of the pointer to fill */
    enum arena_kind kind; /* which block */
    int64_t offset;       /* bytes from the block's start */
};

struct arena {
    struct device *device;
    struct arena_slot *slots; /* (slot_count) what commit will fill; freed by it */
    int64_t slot_count, slot_capacity;
    int64_t bytes[ARENA_COUNT]; /* declared size of each block */
    void *block[ARENA_COUNT];   /* device memory, or NULL before commit and when empty */
    bool sealed;                /* committed: no further reserve */
};

void arena_init(struct arena *arena, struct device *device);
void arena_done(struct arena *arena);
/* slot: address of a pointer variable of any type. bytes may be 0 (the pointer is then not to be
 * used). */
int arena_reserve(struct arena *arena, enum arena_kind kind, void *slot, int64_t bytes,
                  struct err *err);
int arena_commit(struct arena *arena, struct err *err);
int64_t arena_bytes(const struct arena *arena); /* of all blocks */
