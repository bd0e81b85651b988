/* mem_plan: see mem_plan.h. Buffers are declared part by part, sorted, placed by arena; then the
 * bytes of each phase are added up. The digest is over the buffers as an array of numbers. */
#include "common/mem_plan_private.h"

#include "common/mem.h"
#include "common/mem_place.h"
#include "common/must.h"

#include <stdlib.h>
#include <string.h>

void mem_declare(struct mem_builder *builder, enum mem_arena arena, enum mem_name name,
                 int64_t index, uint64_t phases, int64_t bytes)
{
    must(bytes >= 0 && phases != 0 && index >= MEM_AT_WORK && index <= INT32_MAX);
    if (builder->bad != ERR_NONE)
        return;
    if (builder->count == builder->capacity) {
        int64_t capacity = builder->capacity == 0 ? 128 : 2 * builder->capacity;
        void *buffers = mem_grow(builder->buffers, (size_t)capacity, sizeof *builder->buffers);
        if (buffers == NULL) {
            builder->bad = ERR_NOMEM;
            return;
        }
        builder->buffers = buffers;
        builder->capacity = capacity;
    }
    struct mem_buffer buffer = {
        .name = name, .index = (int32_t)index, .arena = arena, .phases = phases, .bytes = bytes};
    if (bytes > INT64_MAX - MEM_ALIGN_BYTES ||
        __builtin_add_overflow(builder->sum, mem_buffer_room(&buffer), &builder->sum)) {
        builder->bad = ERR_DOES_NOT_FIT;
        return;
    }
    builder->buffers[builder->count++] = buffer;
}

void mem_declare_device(struct mem_builder *builder, enum mem_name name, int64_t index,
                        uint64_t phases, int64_t bytes)
{
    mem_declare(builder, MEM_ARENA_DEVICE, name, index, phases, bytes);
}

static uint64_t plan_phases(const struct mem_layout *layout)
{
    uint64_t phases = MEM_ALWAYS;
    if (layout->recompute != JOB_recompute_INPUT)
        phases &= ~MEM_SPAN(AGAIN_KV, AGAIN_RETURN);
    if (layout->keep_input_every == 1)
        phases &= ~MEM_AT(REPLAY);
    return phases;
}

static bool plan_on_device(const struct mem_buffer *buffer)
{
    return buffer->arena == MEM_ARENA_DEVICE || buffer->arena == MEM_ARENA_DRIVER;
}

static void plan_peak(struct mem_plan *plan)
{
    for (int64_t i = 0; i < plan->count; i++)
        for (int p = 0; p < MEM_PHASE_COUNT && plan_on_device(&plan->buffers[i]); p++)
            if ((plan->buffers[i].phases & plan->phases) >> p & 1)
                plan->phase_bytes[p] += mem_buffer_room(&plan->buffers[i]);
    for (int p = 0; p < MEM_PHASE_COUNT; p++)
        if (plan->phase_bytes[p] > plan->phase_bytes[plan->peak_phase])
            plan->peak_phase = (enum mem_phase)p;
    for (int64_t i = 0; i < plan->count; i++) {
        const struct mem_buffer *buffer = &plan->buffers[i];
        if (plan_on_device(buffer) && (buffer->phases >> plan->peak_phase & 1))
            plan->peak_category[mem_name_category(buffer->name)] += mem_buffer_room(buffer);
    }
    plan->peak_device_bytes =
        plan->arena_bytes[MEM_ARENA_DEVICE] + plan->arena_bytes[MEM_ARENA_DRIVER];
    plan->gap_bytes = plan->peak_device_bytes - plan->phase_bytes[plan->peak_phase];
    must(plan->gap_bytes >= 0);
}

static int plan_digest(struct mem_plan *plan, struct err *err)
{
    enum { NUMBERS = 6 };
    size_t count = (size_t)plan->count * NUMBERS + 1;
    CLEANUP(mem_free_ptr) int64_t *numbers = mem_new(count, sizeof *numbers);
    if (numbers == NULL)
        return mem_fail(err, count * sizeof *numbers, "the memory plan");
    int64_t *at = numbers;
    *at++ = (int64_t)plan->layout.backend;
    for (int64_t i = 0; i < plan->count; i++) {
        const struct mem_buffer *buffer = &plan->buffers[i];
        *at++ = (int64_t)buffer->name;
        *at++ = buffer->index;
        *at++ = (int64_t)buffer->arena;
        *at++ = (int64_t)buffer->phases;
        *at++ = buffer->bytes;
        *at++ = buffer->offset;
    }
    io_hash(numbers, count * sizeof *numbers, plan->digest);
    return 0;
}

static int plan_compare(const void *left, const void *right)
{
    const struct mem_buffer *a = left, *b = right;
    if (a->arena != b->arena)
        return a->arena < b->arena ? -1 : 1;
    if (a->name != b->name)
        return a->name < b->name ? -1 : 1;
    return a->index < b->index ? -1 : a->index > b->index;
}

static int plan_place(struct mem_plan *plan, struct err *err)
{
    qsort(plan->buffers, (size_t)plan->count, sizeof *plan->buffers, plan_compare);
    for (int arena = 0; arena < MEM_ARENA_COUNT; arena++) {
        TRY(mem_place(plan->buffers, plan->count, (enum mem_arena)arena, &plan->arena_bytes[arena],
                      err));
        must(mem_place_check(plan->buffers, plan->count, (enum mem_arena)arena,
                             plan->arena_bytes[arena]));
    }
    plan_peak(plan);
    return plan_digest(plan, err);
}

int mem_plan_build(const struct mem_request *request, struct mem_plan *ret_plan, struct err *err)
{
    struct mem_builder builder = {.layout = mem_layout_make(request), .shape = request->shape};
    mem_plan_states(&builder);
    mem_plan_layers(&builder);
    mem_plan_attention(&builder);
    mem_plan_lora(&builder);
    mem_plan_tiles(&builder);
    struct mem_plan plan = {.layout = builder.layout,
                            .buffers = builder.buffers,
                            .count = builder.count,
                            .phases = plan_phases(&builder.layout)};
    int rc = builder.bad == ERR_NOMEM ? mem_fail(err, (size_t)builder.count, "the memory plan")
             : builder.bad != ERR_NONE
                 ? err_set_field(err, builder.bad, "ithaca.seq_len",
                                 "the job needs more memory than can be counted; ask for a "
                                 "shorter ithaca.seq_len or fewer sequences a micro-step")
                 : plan_place(&plan, err);
    if (rc != 0) {
        mem_plan_done(&plan);
        return rc;
    }
    *ret_plan = plan;
    return 0;
}

void mem_plan_done(struct mem_plan *plan)
{
    mem_free(plan->buffers);
    *plan = (struct mem_plan){0};
}

const struct mem_buffer *mem_plan_find(const struct mem_plan *plan, enum mem_arena arena,
                                       enum mem_name name, int32_t index)
{
    const struct mem_buffer key = {.arena = arena, .name = name, .index = index};
    return bsearch(&key, plan->buffers, (size_t)plan->count, sizeof *plan->buffers, plan_compare);
}
