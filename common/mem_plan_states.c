/* mem_plan_states: parameters, gradients and moments, and the units gathered from them. A unit is
 * the embedding, a layer, or the tail (final norm and untied head); two layers are gathered at
 * once, the tail beside the last, and one gradient of each kind is open. With adapters, what is
 * trained has a unit for each layer, and of the model there are shards in the activations' type,
 * always on the device.
 *
 * With states on the host a shard passes through chunks on the device: of the master when a unit is
 * gathered, of the gradient when it is added to, of all four in the update. */
#include "common/mem_plan_private.h"

#include "common/must.h"

enum {
    F32 = sizeof(float),
    UNIT_EMBED = 0,
    UNIT_LAYER = 1 /* all layers are alike */
};

static int64_t states_padded(const struct mem_builder *b, int64_t unit)
{
    return mem_layout_shard(b->shape, unit, b->layout.shards) * b->layout.shards;
}

/* Of what is trained: units, and a rank's share of one. */
static int64_t states_count(const struct mem_builder *b)
{
    return b->layout.lora_r > 0 ? b->layout.config.layers : b->shape->unit_count;
}

static int64_t states_shard(const struct mem_builder *b, int64_t unit)
{
    const struct mem_layout *l = &b->layout;
    return l->lora_r > 0 ? mem_layout_share(l->lora_elements, l->shards)
                         : mem_layout_shard(b->shape, unit, l->shards);
}

static int64_t states_largest(const struct mem_builder *b)
{
    int64_t largest = 0;
    for (int64_t unit = 0; unit < states_count(b); unit++)
        largest = states_shard(b, unit) > largest ? states_shard(b, unit) : largest;
    return largest;
}

static void states_shards(struct mem_builder *b)
{
    const struct mem_layout *l = &b->layout;
    enum mem_arena master = l->master_on_host ? MEM_ARENA_HOST : MEM_ARENA_DEVICE;
    enum mem_arena grad = l->grad_on_host ? MEM_ARENA_HOST : MEM_ARENA_DEVICE;
    for (int64_t unit = 0; unit < states_count(b); unit++) {
        int64_t bytes = states_shard(b, unit) * F32;
        mem_declare(b, master, MEM_MASTER, unit, MEM_ALWAYS, bytes);
        mem_declare(b, master, MEM_MOMENT1, unit, MEM_ALWAYS, bytes);
        mem_declare(b, master, MEM_MOMENT2, unit, MEM_ALWAYS, bytes);
        mem_declare(b, grad, MEM_GRAD, unit, MEM_ALWAYS, bytes);
    }
    for (int64_t unit = 0; unit < b->shape->unit_count && l->lora_r > 0; unit++)
        mem_declare_device(b, MEM_FROZEN, unit, MEM_ALWAYS,
                           mem_layout_shard(b->shape, unit, l->shards) * l->act_bytes);
}

/* Two of each kind, so that a copy runs beside the work. */
static void states_chunks(struct mem_builder *b)
{
    const struct mem_layout *l = &b->layout;
    int64_t bytes = mem_layout_state_chunk(states_largest(b)) * F32;
    for (int i = 0; i < 2 && l->master_on_host; i++) {
        mem_declare_device(b, MEM_STATE_CHUNK, i, MEM_ALWAYS, bytes);
        mem_declare_device(b, MEM_STATE_CHUNK, 2 + i, MEM_AT(UPDATE), bytes);
        mem_declare_device(b, MEM_STATE_CHUNK, 4 + i, MEM_AT(UPDATE), bytes);
        if (l->grad_on_host)
            mem_declare_device(b, MEM_STATE_CHUNK, 6 + i, MEM_SPAN(HEAD, UPDATE), bytes);
    }
}

/* On one shard in fp32 the weights are the master. What is frozen is the weights anyhow. */
static void states_gathered(struct mem_builder *b)
{
    const struct mem_layout *l = &b->layout;
    uint64_t tied = l->config.tie_embeddings ? MEM_AT(HEAD) : 0;
    int64_t layer = states_padded(b, UNIT_LAYER), embed = states_padded(b, UNIT_EMBED);
    int64_t tail = states_padded(b, b->shape->unit_count - 1);
    bool cast = l->act_bytes != F32 || l->master_on_host;
    if (l->shards > 1 || (cast && l->lora_r == 0)) {
        mem_declare_device(b, MEM_GATHERED_EMBED, 0, MEM_AT(EMBED) | tied, embed * l->act_bytes);
        mem_declare_device(b, MEM_GATHERED_LAYER, 0, MEM_ALWAYS, layer * l->act_bytes);
        mem_declare_device(b, MEM_GATHERED_LAYER, 1, MEM_ALWAYS, layer * l->act_bytes);
        mem_declare_device(b, MEM_GATHERED_TAIL, 0, MEM_SPAN(FWD_KV, HEAD), tail * l->act_bytes);
    }
    int64_t adapters = mem_layout_share(l->lora_elements, l->shards) * l->shards * l->act_bytes;
    for (int i = 0; i < 2 && l->lora_r > 0 && (l->shards > 1 || cast); i++)
        mem_declare_device(b, MEM_GATHERED_LORA, i, MEM_ALWAYS, adapters);
}

void mem_plan_states(struct mem_builder *b)
{
    const struct mem_layout *l = &b->layout;
    int64_t tail_unit = b->shape->unit_count - 1;
    uint64_t tied = l->config.tie_embeddings ? MEM_AT(HEAD) : 0;
    must(tail_unit > UNIT_LAYER);
    states_shards(b);
    states_chunks(b);
    states_gathered(b);
    /* On one shard gradients go straight to it. */
    if (l->shards == 1 && !l->grad_on_host)
        return;
    mem_declare_device(b, MEM_GRAD_LAYER, 0, MEM_SPAN(REPLAY, BWD_QKV),
                       states_shard(b, UNIT_LAYER) * l->shards * F32);
    if (l->shards > 1)
        mem_declare_device(b, MEM_UNIT_F32, 0, MEM_SPAN(UPDATE, BETWEEN),
                           states_largest(b) * l->shards * F32);
    if (l->lora_r > 0)
        return;
    mem_declare_device(b, MEM_GRAD_EMBED, 0, MEM_AT(EMBED_BWD) | tied,
                       states_padded(b, UNIT_EMBED) * F32);
    mem_declare_device(b, MEM_GRAD_TAIL, 0, MEM_AT(HEAD), states_padded(b, tail_unit) * F32);
}
