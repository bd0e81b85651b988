/* time_work_states: parameters on their way: units gathered where they are used, gradients summed
 * over ranks, the norm and the update (worker/fsdp.h, worker/optim.h). */
#include "common/time_work_private.h"

#include "common/must.h"

enum {
    F32 = sizeof(float),
    STATES = 3,     /* master, m, v */
    SMALL_SUMS = 6, /* of counts, loss, norm, commands: each step */
    SMALL_BYTES = 64
};

struct states_sizes {
    double embed, layer, tail; /* elements of a shard */
    double adapters;           /* of a layer's adapters; 0: the model is trained */
    double peers;              /* other ranks that hold shards */
};

static struct states_sizes states_sizes(const struct time_builder *b)
{
    const struct model_shape *shape = b->job->shape;
    int64_t shards = b->layout->shards;
    must(shape->unit_count == b->config->layers + 2);
    struct states_sizes ret = {
        .embed = (double)mem_layout_shard(shape, 0, shards),
        .layer = (double)mem_layout_shard(shape, 1, shards),
        .tail = (double)mem_layout_shard(shape, shape->unit_count - 1, shards),
        .peers = (double)(shards - 1),
    };
    if (b->layout->lora_r > 0)
        ret.adapters = (double)mem_layout_share(b->layout->lora_elements, shards);
    return ret;
}

/* Gathers of a unit with `shard` elements. Layers are prefetched; what is used at once is not; what
 * is frozen needs no cast. */
static void states_gather(const struct time_builder *b, double calls, double shard, double peers,
                          bool prefetched, bool frozen)
{
    double act = (double)b->layout->act_bytes;
    if (b->layout->master_on_host && !frozen)
        time_add_beside(b, TIME_FROM_HOST, calls, shard * F32);
    if (b->layout->act_bytes != F32 && !frozen)
        time_add(b, TIME_CAST, calls, shard * (act + F32));
    if (prefetched)
        time_add_beside(b, TIME_ALL_GATHER, calls, shard * peers * act);
    else
        time_add(b, TIME_ALL_GATHER, calls, shard * peers * act);
}

/* Gradients of `units` units, each begun as zero, summed over ranks, and put to the shard: the
 * first time of a step by a copy, later added. Beside: under attention of the next layer, which is
 * computed again. */
static void states_reduce(struct time_builder b, double units, double shard, double peers,
                          double first, bool beside)
{
    double calls = units * b.times, later = calls - first;
    bool host = b.layout->grad_on_host;
    if (peers == 0 && !host)
        return;
    b.times = 1;
    time_add(&b, TIME_ZERO, calls, shard * (peers + 1) * F32);
    if (beside)
        time_add_beside(&b, TIME_REDUCE_SCATTER, calls, shard * peers * F32);
    else
        time_add(&b, TIME_REDUCE_SCATTER, calls, shard * peers * F32);
    time_add(&b, TIME_ADD, later, shard * 3 * F32);
    time_add(&b, TIME_COPY, host ? 0 : first, shard * 2 * F32);
    time_add_beside(&b, TIME_TO_HOST, host ? calls : 0, shard * F32);
    time_add_beside(&b, TIME_FROM_HOST, host ? later : 0, shard * F32);
}

/* Which layers are gathered: two stay, the one used last and another (worker/fsdp.c). */
struct states_slots {
    int64_t held[2]; /* layers, -1 none */
    int last;        /* the slot used last: the other is overwritten next */
    double gathers;
};

static int states_find(struct states_slots *slots, int64_t layer)
{
    int other = 1 - slots->last;
    if (slots->held[slots->last] == layer)
        return slots->last;
    if (slots->held[other] == layer)
        return other;
    slots->held[other] = layer;
    slots->gathers++;
    return other;
}

/* Layer `layer` is used; `next` is wanted after it, -1: none. */
static void states_use(struct states_slots *slots, int64_t layer, int64_t next)
{
    slots->last = states_find(slots, layer);
    if (next >= 0)
        (void)states_find(slots, next);
}

static void states_forward(struct states_slots *slots, int64_t layers)
{
    for (int64_t layer = 0; layer < layers; layer++)
        states_use(slots, layer, layer + 1 < layers ? layer + 1 : -1);
}

static void states_backward(const struct mem_layout *l, struct states_slots *slots)
{
    for (int64_t layer = l->config.layers - 1; layer >= 0; layer--) {
        for (int64_t from = time_work_replay_from(l, layer); from < layer; from++)
            states_use(slots, from, from + 1);
        states_use(slots, layer, layer > 0 ? time_work_replay_from(l, layer - 1) : -1);
    }
}

/* Gathers of layers in all micro-steps of a step: the first finds none, all others the same. */
static void states_layers(const struct time_builder *b, double *ret_forward, double *ret_backward)
{
    struct states_slots slots = {.held = {-1, -1}};
    double forward[2] = {0}, backward[2] = {0}, others = b->times - 1;
    for (int micro = 0; micro < 2 && micro <= others; micro++) {
        slots.gathers = 0;
        states_forward(&slots, b->config->layers);
        forward[micro] = slots.gathers;
        states_backward(b->layout, &slots);
        backward[micro] = slots.gathers - forward[micro];
    }
    *ret_forward = forward[0] + others * forward[1];
    *ret_backward = backward[0] + others * backward[1];
}

/* Of the model, frozen or not, and of adapters. What is used where it lies is not gathered. */
static void states_gathers(struct time_builder b, const struct states_sizes *s)
{
    const struct mem_layout *l = b.layout;
    double tied = b.config->tie_embeddings ? 1 : 0, forward, backward;
    bool frozen = l->lora_r > 0, sharded = l->shards > 1;
    bool cast = l->act_bytes != F32 || l->master_on_host;
    double layer = sharded || (cast && !frozen) ? s->layer : 0;
    double adapters = sharded || cast ? s->adapters : 0;
    states_layers(&b, &forward, &backward);
    if (layer > 0) {
        b.phase = TIME_PHASE_FORWARD;
        states_gather(&b, 1, s->embed, s->peers, false, frozen);
        b.phase = TIME_PHASE_LOSS;
        states_gather(&b, 1, s->tail, s->peers, true, frozen);
        states_gather(&b, tied, s->embed, s->peers, false, frozen);
    }
    b.times = 1;
    b.phase = TIME_PHASE_FORWARD;
    states_gather(&b, forward, layer, s->peers, true, frozen);
    states_gather(&b, forward, adapters, s->peers, true, false);
    b.phase = TIME_PHASE_BACKWARD;
    states_gather(&b, backward, layer, s->peers, true, frozen);
    states_gather(&b, backward, adapters, s->peers, true, false);
}

static void states_gradients(struct time_builder b, const struct states_sizes *s)
{
    bool tied = b.config->tie_embeddings, lora = b.layout->lora_r > 0;
    double layers = (double)b.config->layers;
    b.phase = TIME_PHASE_BACKWARD;
    bool again = b.layout->recompute == JOB_recompute_INPUT;
    states_reduce(b, layers, lora ? s->adapters : s->layer, s->peers, layers, again);
    if (lora)
        return;
    states_reduce(b, 1, s->embed, s->peers, tied ? 0 : 1, false);
    b.phase = TIME_PHASE_LOSS;
    states_reduce(b, 1, s->tail, s->peers, 1, false);
    states_reduce(b, tied ? 1 : 0, s->embed, s->peers, tied ? 1 : 0, false);
}

static void states_update(struct time_builder b, const struct states_sizes *s)
{
    const struct mem_layout *l = b.layout;
    bool lora = l->lora_r > 0;
    double layers = (double)b.config->layers;
    double units = lora ? layers : (double)b.job->shape->unit_count;
    double all = lora ? layers * s->adapters : s->embed + s->tail + layers * s->layer;
    double unit = all / units * F32;
    double pieces = /* of one shard; of more a little less */
        lora ? 2 * layers * __builtin_popcountll((unsigned long long)l->lora_modules)
             : (double)b.job->shape->row_count;
    b.times = 1;
    b.phase = TIME_PHASE_UPDATE;
    if (s->peers == 0 && !l->grad_on_host) /* gradients add up in place */
        time_add(&b, TIME_ZERO, units, unit);
    if (l->shards == 1 && l->mesh.world > 1)
        time_add(&b, TIME_ALL_REDUCE, units, 2 * unit * (l->mesh.world - 1) / l->mesh.world);
    if (l->mesh.world > 1)
        time_add(&b, TIME_ALL_REDUCE, SMALL_SUMS, SMALL_BYTES);
    time_add(&b, TIME_SUMSQ, pieces, all * F32 / pieces);
    time_add(&b, TIME_ADAMW, pieces, all * 7 * F32 / pieces);
    if (l->master_on_host) {
        time_add_beside(&b, TIME_FROM_HOST, units, STATES * unit);
        time_add_beside(&b, TIME_TO_HOST, units, STATES * unit);
    }
    if (l->grad_on_host)
        time_add_beside(&b, TIME_FROM_HOST, 2 * units, unit); /* for the norm, for the update */
}

void time_work_states(const struct time_builder *b)
{
    struct states_sizes sizes = states_sizes(b);
    states_gathers(*b, &sizes);
    states_gradients(*b, &sizes);
    states_update(*b, &sizes);
}
