/* arena: see arena.h. A bump allocator a category: offsets are settled while reserving, addresses
 * at the commit. */
#include "worker/arena.h"

#include "common/mem.h"
#include "common/must.h"

#include <string.h>

static const char *const arena_names[ARENA_COUNT] = {
#define X(id, name) [ARENA_##id] = name,
    ARENA_TABLE(X)
#undef X
};

const char *arena_kind_name(enum arena_kind kind)
{
    must(kind >= 0 && kind < ARENA_COUNT);
    return arena_names[kind];
}

void arena_init(struct arena *arena, struct device *device)
{
    *arena = (struct arena){.device = device};
}

void arena_done(struct arena *arena)
{
    for (int kind = 0; kind < ARENA_COUNT; kind++)
        if (arena->block[kind] != NULL)
            arena->device->dev->free(arena->device, arena->block[kind]);
    mem_free(arena->slots);
    *arena = (struct arena){0};
}

int arena_reserve(struct arena *arena, enum arena_kind kind, void *slot, int64_t bytes,
                  struct err *err)
{
    must(!arena->sealed);
    must(kind >= 0 && kind < ARENA_COUNT && bytes >= 0);
    if (arena->slot_count == arena->slot_capacity) {
        int64_t capacity = arena->slot_capacity == 0 ? 64 : 2 * arena->slot_capacity;
        struct arena_slot *slots = mem_grow(arena->slots, (size_t)capacity, sizeof *arena->slots);
        if (slots == NULL)
            return mem_fail(err, (size_t)capacity * sizeof *slots, "arena slots");
        arena->slots = slots;
        arena->slot_capacity = capacity;
    }
    int64_t rounded = (bytes + ARENA_ALIGN_BYTES - 1) / ARENA_ALIGN_BYTES * ARENA_ALIGN_BYTES;
    arena->slots[arena->slot_count++] =
        (struct arena_slot){.slot = slot, .kind = kind, .offset = arena->bytes[kind]};
    if (__builtin_add_overflow(arena->bytes[kind], rounded, &arena->bytes[kind]))
        return err_set(err, ERR_DOES_NOT_FIT, "arena %s: its size overflows", arena_names[kind]);
    return 0;
}

int arena_commit(struct arena *arena, struct err *err)
{
    must(!arena->sealed);
    for (int kind = 0; kind < ARENA_COUNT; kind++) {
        if (arena->bytes[kind] == 0)
            continue;
        arena->block[kind] =
            arena->device->dev->alloc(arena->device, (size_t)arena->bytes[kind], err);
        if (arena->block[kind] == NULL)
            return err_wrap(err, -(int)err->code, "arena %s: ", arena_names[kind]);
    }
    for (int64_t i = 0; i < arena->slot_count; i++) {
        const struct arena_slot *slot = &arena->slots[i];
        char *block = arena->block[slot->kind];
        void *address = block == NULL ? NULL : block + slot->offset;
        memcpy(slot->slot, &address, sizeof address); /* a pointer of any type */
    }
    mem_free(arena->slots);
    arena->slots = NULL;
    arena->slot_count = arena->slot_capacity = 0;
    arena->sealed = true;
    return 0;
}

int64_t arena_bytes(const struct arena *arena)
{
    int64_t sum = 0;
    for (int kind = 0; kind < ARENA_COUNT; kind++)
        sum += arena->bytes[kind];
    return sum;
}
