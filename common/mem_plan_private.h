/* mem_plan_private: how the files of mem_plan declare buffers. */
#pragma once
#include "common/mem_plan.h"

#define MEM_AT(phase) (UINT64_C(1) << MEM_PHASE_##phase)
/* From one phase to another, both included. */
#define MEM_SPAN(from, to) ((MEM_AT(to) << 1) - MEM_AT(from))
#define MEM_ALWAYS ((UINT64_C(1) << MEM_PHASE_COUNT) - 1)
/* Through all layers, forward and backward. */
#define MEM_LAYERS MEM_SPAN(EMBED, EMBED_BWD)

struct mem_builder {
    struct mem_layout layout; /* of the plan being made */
    const struct model_shape *shape;
    struct mem_buffer *buffers; /* (count, of capacity) */
    int64_t count, capacity;
    int64_t sum;       /* bytes declared, rounded up; bounds every block and phase */
    enum err_code bad; /* ERR_NONE, ERR_NOMEM or ERR_DOES_NOT_FIT: sticks, later calls do nothing */
};

void mem_declare(struct mem_builder *builder, enum mem_arena arena, enum mem_name name,
                 int64_t index, uint64_t phases, int64_t bytes);
/* On the device. */
void mem_declare_device(struct mem_builder *builder, enum mem_name name, int64_t index,
                        uint64_t phases, int64_t bytes);

void mem_plan_states(struct mem_builder *builder);    /* parameters, gradients, moments */
void mem_plan_layers(struct mem_builder *builder);    /* what layers keep and hand on */
void mem_plan_attention(struct mem_builder *builder); /* the buffers of a stage */
void mem_plan_lora(struct mem_builder *builder);      /* what adapters take beside their states */
void mem_plan_tiles(struct mem_builder *builder);     /* tiles, tokens, scalars, libraries */
