/* mem_timeline: see mem_timeline.h. */
#include "common/mem_timeline.h"

#include <string.h>

#define TIMELINE_GIB(bytes) ((double)(bytes)*0x1p-30)

enum { TIMELINE_BAR = 40, TIMELINE_PEAK_ROWS = 12 };

/* Buffers of one name that are on the device in the peak's phase. */
struct timeline_sum {
    const char *name;
    int64_t count, bytes;
};

static bool timeline_on_device(const struct mem_buffer *buffer)
{
    return buffer->arena == MEM_ARENA_DEVICE || buffer->arena == MEM_ARENA_DRIVER;
}

/* The largest first; returns how many. At most `max`, and one more for the others. */
static int timeline_sums(const struct mem_plan *plan, int max,
                         struct timeline_sum sums[MEM_NAME_COUNT + 1])
{
    struct timeline_sum names[MEM_NAME_COUNT] = {{.name = NULL}}, others = {.name = "others"};
    int count = 0;
    for (int64_t i = 0; i < plan->count; i++) {
        const struct mem_buffer *buffer = &plan->buffers[i];
        if (!timeline_on_device(buffer) || (buffer->phases >> plan->peak_phase & 1) == 0 ||
            buffer->bytes == 0)
            continue;
        names[buffer->name].name = mem_name_text(buffer->name);
        names[buffer->name].count++;
        names[buffer->name].bytes += mem_buffer_room(buffer);
    }
    for (int left = MEM_NAME_COUNT; left > 0; left--) {
        struct timeline_sum *largest = &names[0];
        for (int n = 1; n < MEM_NAME_COUNT; n++)
            if (names[n].bytes > largest->bytes)
                largest = &names[n];
        if (largest->bytes == 0)
            break;
        if (count < max) {
            sums[count++] = *largest;
        } else {
            others.count += largest->count;
            others.bytes += largest->bytes;
        }
        largest->bytes = 0;
    }
    if (others.count > 0)
        sums[count++] = others;
    return count;
}

json_t *mem_timeline_peak_json(const struct mem_plan *plan, int max)
{
    struct timeline_sum sums[MEM_NAME_COUNT + 1];
    int count = timeline_sums(plan, max, sums);
    json_t *buffers = json_array();
    int bad = buffers == NULL;
    for (int i = 0; i < count; i++)
        bad |= json_array_append_new(buffers, json_pack("{s:s, s:I, s:I}", "name", sums[i].name,
                                                        "count", (json_int_t)sums[i].count, "bytes",
                                                        (json_int_t)sums[i].bytes));
    if (bad == 0)
        return json_pack("{s:s, s:I, s:o}", "peak_phase", mem_phase_name(plan->peak_phase),
                         "peak_device_bytes", (json_int_t)plan->peak_device_bytes, "buffers",
                         buffers);
    json_decref(buffers);
    return NULL;
}

/* ---- text -------------------------------------------------------------------------------- */

static void timeline_phases(const struct mem_plan *plan, struct buf *out)
{
    int64_t peak = plan->phase_bytes[plan->peak_phase];
    int number = 0;
    buf_text(out, "device memory of a rank within a step, GiB needed in each phase:\n");
    for (int p = 0; p < MEM_PHASE_COUNT; p++) {
        if ((plan->phases >> p & 1) == 0)
            continue;
        int length =
            peak > 0 ? (int)((double)plan->phase_bytes[p] / (double)peak * TIMELINE_BAR) : 0;
        buf_printf(out, "  %2d %-46s %9.3f ", ++number, mem_phase_name((enum mem_phase)p),
                   TIMELINE_GIB(plan->phase_bytes[p]));
        for (int i = 0; i < length; i++)
            buf_char(out, '#');
        buf_text(out, p == (int)plan->peak_phase ? " peak\n" : "\n");
    }
}

static void timeline_peak(const struct mem_plan *plan, struct buf *out)
{
    struct timeline_sum sums[MEM_NAME_COUNT + 1];
    int count = timeline_sums(plan, TIMELINE_PEAK_ROWS, sums);
    buf_printf(out, "buffers in the peak, \"%s\":\n", mem_phase_name(plan->peak_phase));
    for (int i = 0; i < count; i++)
        buf_printf(out, "  %-22s %9.3f GiB in %lld buffer%s\n", sums[i].name,
                   TIMELINE_GIB(sums[i].bytes), (long long)sums[i].count,
                   sums[i].count == 1 ? "" : "s");
}

/* Buffers that follow each other in the plan and live alike. */
static int64_t timeline_alike(const struct mem_plan *plan, int64_t first)
{
    const struct mem_buffer *a = &plan->buffers[first];
    int64_t count = 1;
    for (; first + count < plan->count; count++) {
        const struct mem_buffer *b = &plan->buffers[first + count];
        if (b->name != a->name || b->arena != a->arena || b->phases != a->phases ||
            b->bytes != a->bytes)
            break;
    }
    return count;
}

static void timeline_lives(const struct mem_plan *plan, struct buf *out)
{
    buf_text(out, "life of each buffer, a mark for each phase above that needs it:\n"
                  "  name                   count  GiB each    at GiB  where   phases\n");
    for (int64_t i = 0, count; i < plan->count; i += count) {
        const struct mem_buffer *buffer = &plan->buffers[i];
        count = timeline_alike(plan, i);
        if (buffer->bytes == 0)
            continue;
        buf_printf(out, "  %-22s %5lld %9.3f %9.3f  %-6s  ", mem_name_text(buffer->name),
                   (long long)count, TIMELINE_GIB(buffer->bytes), TIMELINE_GIB(buffer->offset),
                   mem_arena_name(buffer->arena));
        for (int p = 0; p < MEM_PHASE_COUNT; p++)
            if (plan->phases >> p & 1)
                buf_char(out, buffer->phases >> p & 1 ? '#' : '.');
        buf_text(out, "\n");
    }
}

void mem_timeline_text(const struct mem_plan *plan, struct buf *out)
{
    timeline_phases(plan, out);
    timeline_peak(plan, out);
    timeline_lives(plan, out);
}
