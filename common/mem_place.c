/* mem_place: see mem_place.h. Neighbours in the list that are alike (the same buffer of each layer)
 * are placed as one item, so that a thousand layers cost no more than one. Placing is a colouring
 * of an interval-like graph with weights, which is hard in general; two orders are tried, largest
 * first and most often needed first, and the smaller block is taken. Buffers placed so far are kept
 * sorted by offset, so that one walk finds all gaps. */
#include "common/mem_place.h"

#include "common/mem.h"
#include "common/must.h"

#include <stdlib.h>
#include <string.h>

enum place_order { PLACE_LARGEST_FIRST, PLACE_OFTEN_FIRST, PLACE_ORDER_COUNT };

struct place_item {
    struct mem_buffer *buffer; /* the first of `count` alike */
    int64_t count;
    int64_t room;   /* bytes in the block, of all */
    int64_t offset; /* of the order at hand */
    int32_t phases; /* how many */
    int32_t number; /* place in the list: ties */
};

static int place_compare(int64_t a, int64_t b)
{
    return a < b ? 1 : a > b ? -1 : 0; /* larger first */
}

static int place_by_size(const void *left, const void *right)
{
    const struct place_item *a = left, *b = right;
    int order = place_compare(a->room, b->room);
    return order != 0 ? order : place_compare(b->number, a->number);
}

static int place_by_phases(const void *left, const void *right)
{
    const struct place_item *a = left, *b = right;
    int order = place_compare(a->phases, b->phases);
    return order != 0 ? order : place_by_size(left, right);
}

/* The smallest gap that holds the item, or the end. placed: (count), sorted by offset. */
static int64_t place_find(struct place_item *const *placed, int64_t count,
                          const struct place_item *item)
{
    int64_t end = 0, best = -1, best_gap = INT64_MAX;
    for (int64_t i = 0; i < count; i++) {
        if ((placed[i]->buffer->phases & item->buffer->phases) == 0)
            continue;
        int64_t gap = placed[i]->offset - end;
        if (gap >= item->room && gap < best_gap) {
            best = end;
            best_gap = gap;
        }
        int64_t after = placed[i]->offset + placed[i]->room;
        end = after > end ? after : end;
    }
    return best >= 0 ? best : end;
}

static int64_t place_all(struct place_item *items, struct place_item **placed, int64_t count)
{
    int64_t bytes = 0;
    for (int64_t n = 0; n < count; n++) {
        struct place_item *item = &items[n];
        item->offset = place_find(placed, n, item);
        int64_t at = n;
        for (; at > 0 && placed[at - 1]->offset > item->offset; at--)
            placed[at] = placed[at - 1];
        placed[at] = item;
        int64_t end = item->offset + item->room;
        bytes = end > bytes ? end : bytes;
    }
    return bytes;
}

static bool place_is_next(const struct place_item *item, const struct mem_buffer *buffer)
{
    const struct mem_buffer *first = item->buffer;
    return buffer == first + item->count && buffer->name == first->name &&
           buffer->bytes == first->bytes && buffer->phases == first->phases;
}

static void place_settle(const struct place_item *item)
{
    int64_t room = item->room / item->count;
    for (int64_t i = 0; i < item->count; i++)
        item->buffer[i].offset = item->offset + i * room;
}

static int64_t place_collect(struct mem_buffer *buffers, int64_t count, enum mem_arena arena,
                             struct place_item *items)
{
    int64_t found = 0;
    for (int64_t i = 0; i < count; i++) {
        if (buffers[i].arena != arena)
            continue;
        must(buffers[i].bytes >= 0 && buffers[i].phases != 0);
        int64_t room = mem_buffer_room(&buffers[i]);
        if (found > 0 && place_is_next(&items[found - 1], &buffers[i])) {
            items[found - 1].count++;
            items[found - 1].room += room;
            continue;
        }
        items[found] = (struct place_item){.buffer = &buffers[i],
                                           .count = 1,
                                           .room = room,
                                           .phases = __builtin_popcountll(buffers[i].phases),
                                           .number = (int32_t)found};
        found++;
    }
    return found;
}

int mem_place(struct mem_buffer *buffers, int64_t count, enum mem_arena arena, int64_t *ret_bytes,
              struct err *err)
{
    static int (*const orders[PLACE_ORDER_COUNT])(const void *, const void *) = {
        [PLACE_LARGEST_FIRST] = place_by_size, [PLACE_OFTEN_FIRST] = place_by_phases};
    CLEANUP(mem_free_ptr) struct place_item *items = mem_new((size_t)count, sizeof *items);
    CLEANUP(mem_free_ptr)
    struct place_item **placed = mem_new((size_t)count, sizeof(struct place_item *)); /* NOLINT */
    if (items == NULL || placed == NULL)
        return mem_fail(err, (size_t)count * sizeof *items, "the memory plan");
    int64_t found = place_collect(buffers, count, arena, items), best = INT64_MAX;
    for (int order = 0; order < PLACE_ORDER_COUNT; order++) {
        qsort(items, (size_t)found, sizeof *items, orders[order]);
        int64_t bytes = place_all(items, placed, found);
        for (int64_t i = 0; i < found && bytes < best; i++)
            place_settle(&items[i]);
        best = bytes < best ? bytes : best;
    }
    *ret_bytes = found == 0 ? 0 : best;
    return 0;
}

/* How many buffers from the first on lie one after the other and are needed in the same phases. */
static int64_t place_run(const struct mem_buffer *buffers, int64_t count)
{
    int64_t run = 1;
    while (run < count && buffers[run].arena == buffers[0].arena &&
           buffers[run].phases == buffers[0].phases &&
           buffers[run].offset == buffers[run - 1].offset + mem_buffer_room(&buffers[run - 1]))
        run++;
    return run;
}

static bool place_overlaps(const struct mem_buffer *a, int64_t a_run, const struct mem_buffer *b,
                           int64_t b_run)
{
    return (a->phases & b->phases) != 0 && a->offset < b[b_run - 1].offset + b[b_run - 1].bytes &&
           b->offset < a[a_run - 1].offset + a[a_run - 1].bytes;
}

bool mem_place_check(const struct mem_buffer *buffers, int64_t count, enum mem_arena arena,
                     int64_t bytes)
{
    int64_t run, other;
    for (int64_t i = 0; i < count; i += run) {
        const struct mem_buffer *a = &buffers[i];
        run = place_run(a, count - i);
        if (a->arena != arena)
            continue;
        const struct mem_buffer *last = &a[run - 1];
        if (a->offset < 0 || a->offset % MEM_ALIGN_BYTES != 0 || last->offset + last->bytes > bytes)
            return false;
        for (int64_t j = i + run; j < count; j += other) {
            const struct mem_buffer *b = &buffers[j];
            other = place_run(b, count - j);
            if (b->arena == arena && place_overlaps(a, run, b, other))
                return false;
        }
    }
    return true;
}
