/* mem_plan_states: parameters, gradients and moments, and the units gathered from them. A unit is
 * the embedding, a layer, or the tail (final norm and untied head); two layers are gathered at
 * once, the tail beside the last, and one gradient of each kind is open.
 *
 * With states on the host a shard passes through chunks on the device: of the master when a unit is
 * gathered, of the gradient when it is added to, of all four in the update. */
#include "common/mem_plan_private.h"

#include "common/must.h"

enum {
    F32 = sizeof(float),
    UNIT_EMBED = 0,
    UNIT_LAYER = 1,                /* all layers are alike */
    STATE_CHUNK_ELEMENTS = 4 << 20 /* 16 MiB: 0.3 ms at 55 GB/s, far above a copy's start */
};

static int64_t states_padded(const struct mem_builder *b, int64_t unit)
{
    return mem_layout_shard(b->shape, unit, b->layout.shards) * b->layout.shards;
}

static void states_shards(struct mem_builder *b)
{
    const struct mem_layout *l = &b->layout;
    enum mem_arena master = l->master_on_host ? MEM_ARENA_HOST : MEM_ARENA_DEVICE;
    enum mem_arena grad = l->grad_on_host ? MEM_ARENA_HOST : MEM_ARENA_DEVICE;
    for (int64_t unit = 0; unit < b->shape->unit_count; unit++) {
        int64_t bytes = mem_layout_shard(b->shape, unit, l->shards) * F32;
        mem_declare(b, master, MEM_MASTER, unit, MEM_ALWAYS, bytes);
        mem_declare(b, master, MEM_MOMENT1, unit, MEM_ALWAYS, bytes);
        mem_declare(b, master, MEM_MOMENT2, unit, MEM_ALWAYS, bytes);
        mem_declare(b, grad, MEM_GRAD, unit, MEM_ALWAYS, bytes);
    }
}

/* Two of each kind, so that a copy runs beside the work. */
static void states_chunks(struct mem_builder *b)
{
    const struct mem_layout *l = &b->layout;
    int64_t largest = 0;
    for (int64_t unit = 0; unit < b->shape->unit_count; unit++) {
        int64_t shard = mem_layout_shard(b->shape, unit, l->shards);
        largest = shard > largest ? shard : largest;
    }
    int64_t bytes = (largest < STATE_CHUNK_ELEMENTS ? largest : STATE_CHUNK_ELEMENTS) * F32;
    for (int i = 0; i < 2 && l->master_on_host; i++) {
        mem_declare_device(b, MEM_STATE_CHUNK, i, MEM_ALWAYS, bytes);
        mem_declare_device(b, MEM_STATE_CHUNK, 2 + i, MEM_AT(UPDATE), bytes);
        mem_declare_device(b, MEM_STATE_CHUNK, 4 + i, MEM_AT(UPDATE), bytes);
        if (l->grad_on_host)
            mem_declare_device(b, MEM_STATE_CHUNK, 6 + i, MEM_SPAN(HEAD, UPDATE), bytes);
    }
}

void mem_plan_states(struct mem_builder *b)
{
    const struct mem_layout *l = &b->layout;
    int64_t tail_unit = b->shape->unit_count - 1;
    uint64_t tied = l->config.tie_embeddings ? MEM_AT(HEAD) : 0;
    must(tail_unit > UNIT_LAYER);
    int64_t embed = states_padded(b, UNIT_EMBED), layer = states_padded(b, UNIT_LAYER);
    int64_t tail = states_padded(b, tail_unit), largest = embed > layer ? embed : layer;
    largest = tail > largest ? tail : largest;
    states_shards(b);
    states_chunks(b);
    /* On one shard in fp32 the weights are the master, gradients go straight to it. */
    if (l->shards > 1 || l->act_bytes != F32 || l->master_on_host) {
        mem_declare_device(b, MEM_GATHERED_EMBED, 0, MEM_AT(EMBED) | tied, embed * l->act_bytes);
        mem_declare_device(b, MEM_GATHERED_LAYER, 0, MEM_ALWAYS, layer * l->act_bytes);
        mem_declare_device(b, MEM_GATHERED_LAYER, 1, MEM_ALWAYS, layer * l->act_bytes);
        mem_declare_device(b, MEM_GATHERED_TAIL, 0, MEM_SPAN(FWD_KV, HEAD), tail * l->act_bytes);
    }
    if (l->shards == 1 && !l->grad_on_host)
        return;
    mem_declare_device(b, MEM_GRAD_EMBED, 0, MEM_AT(EMBED_BWD) | tied, embed * F32);
    mem_declare_device(b, MEM_GRAD_LAYER, 0, MEM_SPAN(REPLAY, BWD_QKV), layer * F32);
    mem_declare_device(b, MEM_GRAD_TAIL, 0, MEM_AT(HEAD), tail * F32);
    mem_declare_device(b, MEM_UNIT_F32, 0, MEM_SPAN(UPDATE, BETWEEN), largest * F32);
}
