/* arena: see arena.h. Offsets are settled while reserving, by the plan or by counting up; addresses
 * at the commit. */
#include "worker/arena.h"

#include "common/mem.h"
#include "common/must.h"
#include "worker/profile.h"

#include <string.h>

_Static_assert(MEM_ARENA_DEVICE == 0 && MEM_ARENA_HOST == 1 && MEM_ARENA_FILE == 2,
               "the blocks come first");

static bool arena_strict_on;

void arena_strict(bool on)
{
    arena_strict_on = on;
}

void arena_init(struct arena *arena, struct device *device, const struct mem_plan *plan)
{
    *arena =
        (struct arena){.device = device, .plan = plan, .strict = arena_strict_on && plan != NULL};
    for (int where = 0; plan != NULL && !arena->strict && where <= MEM_ARENA_HOST; where++)
        arena->blocks[where].bytes = plan->arena_bytes[where];
}

void arena_done(struct arena *arena)
{
    if (arena->blocks[MEM_ARENA_DEVICE].memory != NULL)
        arena->device->dev->free(arena->device, arena->blocks[MEM_ARENA_DEVICE].memory);
    if (arena->blocks[MEM_ARENA_HOST].memory != NULL)
        arena->device->dev->host_free(arena->device, arena->blocks[MEM_ARENA_HOST].memory);
    mem_free(arena->slots);
    *arena = (struct arena){0};
}

static int arena_grow(struct arena *arena, struct err *err)
{
    if (arena->slot_count < arena->slot_capacity)
        return 0;
    int64_t capacity = arena->slot_capacity == 0 ? 64 : 2 * arena->slot_capacity;
    struct arena_slot *slots = mem_grow(arena->slots, (size_t)capacity, sizeof *arena->slots);
    if (slots == NULL)
        return mem_fail(err, (size_t)capacity * sizeof *slots, "arena slots");
    arena->slots = slots;
    arena->slot_capacity = capacity;
    return 0;
}

static const struct mem_buffer *arena_find(const struct arena *arena, enum mem_name name,
                                           int64_t index, enum mem_arena last)
{
    const struct mem_buffer *buffer = NULL;
    for (int where = 0; buffer == NULL && where <= (int)last; where++)
        buffer = mem_plan_find(arena->plan, (enum mem_arena)where, name, (int32_t)index);
    return buffer;
}

enum mem_arena arena_where(const struct arena *arena, enum mem_name name, int64_t index)
{
    if (arena->plan == NULL)
        return MEM_ARENA_DEVICE;
    const struct mem_buffer *buffer = arena_find(arena, name, index, MEM_ARENA_FILE);
    return buffer == NULL ? MEM_ARENA_COUNT : buffer->arena;
}

int64_t arena_planned(const struct arena *arena, enum mem_name name, int64_t index)
{
    const struct mem_buffer *buffer =
        arena->plan == NULL ? NULL : arena_find(arena, name, index, MEM_ARENA_HOST);
    return buffer == NULL ? 0 : buffer->bytes;
}

/* The buffer as it is planned: once, and with the size that the worker works with. */
static int arena_take_planned(const struct arena *arena, enum mem_name name, int64_t index,
                              int64_t bytes, const struct mem_buffer **ret, struct err *err)
{
    const struct mem_buffer *buffer = arena_find(arena, name, index, MEM_ARENA_HOST);
    if (buffer == NULL || buffer->bytes != bytes)
        return err_set(err, ERR_INTERNAL, "%s %lld: planned with %lld bytes, needed with %lld",
                       mem_name_text(name), (long long)index,
                       buffer == NULL ? 0LL : (long long)buffer->bytes, (long long)bytes);
    for (int64_t i = 0; i < arena->slot_count; i++)
        must(arena->slots[i].buffer != buffer);
    *ret = buffer;
    return 0;
}

int arena_reserve(struct arena *arena, enum mem_name name, int64_t index, void *slot, int64_t bytes,
                  struct err *err)
{
    must(!arena->sealed && bytes >= 0);
    TRY(arena_grow(arena, err));
    struct arena_slot next = {.slot = slot, .where = MEM_ARENA_DEVICE};
    if (arena->plan != NULL) {
        TRY(arena_take_planned(arena, name, index, bytes, &next.buffer, err));
        next.where = next.buffer->arena;
        if (next.where == MEM_ARENA_DEVICE && next.buffer->phases >> arena->plan->peak_phase & 1)
            arena->peak_category[mem_name_category(name)] +=
                mem_buffer_room(&(struct mem_buffer){.bytes = bytes});
    }
    struct arena_block *block = &arena->blocks[next.where];
    next.offset = block->bytes;
    if (arena->plan != NULL && !arena->strict) {
        next.offset = next.buffer->offset;
    } else {
        int64_t room = mem_buffer_room(&(struct mem_buffer){.bytes = bytes});
        if (__builtin_add_overflow(block->bytes, room, &block->bytes))
            return err_set(err, ERR_DOES_NOT_FIT, "the arena's size overflows");
    }
    arena->slots[arena->slot_count++] = next;
    return 0;
}

/* All that is planned for the blocks has been reserved. */
static int arena_check(const struct arena *arena, struct err *err)
{
    int64_t planned = 0;
    for (int64_t i = 0; i < arena->plan->count; i++)
        planned += arena->plan->buffers[i].arena <= MEM_ARENA_HOST;
    if (planned == arena->slot_count)
        return 0;
    return err_set(err, ERR_INTERNAL, "%lld buffers are planned, %lld needed", (long long)planned,
                   (long long)arena->slot_count);
}

static int arena_take(struct arena *arena, struct err *err)
{
    const struct device_ops *dev = arena->device->dev;
    struct arena_block *device = &arena->blocks[MEM_ARENA_DEVICE];
    struct arena_block *host = &arena->blocks[MEM_ARENA_HOST];
    if (device->bytes > 0)
        device->memory = dev->alloc(arena->device, (size_t)device->bytes, err);
    if (device->bytes > 0 && device->memory == NULL)
        return err_wrap(err, -(int)err->code, "the rank's memory: ");
    if (host->bytes > 0)
        host->memory = dev->host_alloc(arena->device, (size_t)host->bytes, err);
    if (host->bytes > 0 && host->memory == NULL)
        return err_wrap(err, -(int)err->code, "the rank's host memory: ");
    return 0;
}

static char *arena_address(const struct arena *arena, const struct arena_slot *slot)
{
    char *block = arena->blocks[slot->where].memory;
    return block == NULL ? NULL : block + slot->offset;
}

int arena_commit(struct arena *arena, struct err *err)
{
    must(!arena->sealed);
    if (arena->plan != NULL)
        TRY(arena_check(arena, err));
    TRY(arena_take(arena, err));
    for (int64_t i = 0; i < arena->slot_count; i++) {
        void *address = arena_address(arena, &arena->slots[i]);
        memcpy(arena->slots[i].slot, &address, sizeof address); /* a pointer of any type */
    }
    arena->sealed = true;
    if (arena->strict)
        return 0;
    mem_free(arena->slots);
    arena->slots = NULL;
    arena->slot_count = arena->slot_capacity = 0;
    return 0;
}

void arena_enter(struct arena *arena, enum mem_phase phase)
{
    profile_enter(arena->device->profile, PROFILE_PART, mem_phase_name(phase), -1);
    for (int64_t i = 0; i < arena->slot_count && arena->strict; i++) {
        const struct mem_buffer *buffer = arena->slots[i].buffer;
        if ((buffer->phases >> phase & 1) == 0)
            memset(arena_address(arena, &arena->slots[i]), 0xff, (size_t)buffer->bytes);
    }
}

int64_t arena_bytes(const struct arena *arena, enum mem_arena where)
{
    must(where <= MEM_ARENA_HOST);
    return arena->blocks[where].bytes;
}
