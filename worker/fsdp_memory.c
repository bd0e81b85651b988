/* fsdp_memory: the units' table, and the buffers that fsdp reserves; see fsdp.h. */
#include "worker/fsdp_private.h"

#include "common/mem.h"
#include "common/mem_layout.h"
#include "common/must.h"

int fsdp_init(struct fsdp *fsdp, const struct model_shape *shape, struct device *device,
              struct coll *coll, bool sharded, struct err *err)
{
    *fsdp = (struct fsdp){.shape = shape,
                          .device = device,
                          .coll = coll,
                          .shards = sharded ? coll->world : 1,
                          .index = sharded ? coll->rank : 0,
                          .unit_count = shape->unit_count,
                          .gathered_unit = {-1, -1, -1, -1},
                          .reducing = -1};
    fsdp->units = mem_new((size_t)shape->unit_count, sizeof *fsdp->units);
    if (fsdp->units == NULL)
        return mem_fail(err, (size_t)shape->unit_count * sizeof *fsdp->units, "fsdp units");
    int64_t row = 0;
    for (int64_t u = 0; u < fsdp->unit_count; u++) {
        int64_t share = (shape->unit_elements[u] + fsdp->shards - 1) / fsdp->shards;
        struct fsdp_unit *unit = &fsdp->units[u];
        unit->shard = (share + MODEL_SHAPE_ALIGN - 1) / MODEL_SHAPE_ALIGN * MODEL_SHAPE_ALIGN;
        unit->row_first = row;
        while (row < shape->row_count && shape->rows[row].unit == u)
            row++;
        unit->row_last = row;
    }
    must(row == shape->row_count); /* the table is in the order of units */
    return 0;
}

void fsdp_done(struct fsdp *fsdp)
{
    if (fsdp->fetched != NULL)
        fsdp->device->dev->event_free(fsdp->device, fsdp->fetched);
    chunks_done(&fsdp->chunks);
    mem_free(fsdp->units);
    *fsdp = (struct fsdp){0};
}

static int fsdp_reserve_states(struct fsdp *fsdp, struct arena *arena, struct err *err)
{
    for (int64_t u = 0; u < fsdp->unit_count; u++) {
        struct fsdp_unit *unit = &fsdp->units[u];
        int64_t bytes = unit->shard * (int64_t)sizeof(float);
        TRY(arena_reserve(arena, MEM_MASTER, u, &unit->master, bytes, err));
        TRY(arena_reserve(arena, MEM_MOMENT1, u, &unit->m, bytes, err));
        TRY(arena_reserve(arena, MEM_MOMENT2, u, &unit->v, bytes, err));
        TRY(arena_reserve(arena, MEM_GRAD, u, &unit->grad, bytes, err));
    }
    return 0;
}

/* What passes through the device because its place is on the host. */
static int fsdp_reserve_chunks(struct fsdp *fsdp, struct arena *arena, struct err *err)
{
    const unsigned optimizer = 1u << CHUNK_MASTER | 1u << CHUNK_M | 1u << CHUNK_V;
    if (arena_where(arena, MEM_MASTER, 0) == MEM_ARENA_HOST)
        fsdp->on_host |= optimizer;
    if (arena_where(arena, MEM_GRAD, 0) == MEM_ARENA_HOST)
        fsdp->on_host |= 1u << CHUNK_GRAD;
    if (fsdp->on_host == 0)
        return 0;
    int64_t largest = 0;
    for (int64_t u = 0; u < fsdp->unit_count; u++)
        largest = fsdp->units[u].shard > largest ? fsdp->units[u].shard : largest;
    TRY(chunks_init(&fsdp->chunks, fsdp->device, mem_layout_state_chunk(largest), fsdp->on_host,
                    arena, err));
    return fsdp->device->dev->event_new(fsdp->device, &fsdp->fetched, err);
}

static int fsdp_reserve_frozen(struct fsdp *fsdp, struct arena *arena, struct err *err)
{
    int64_t act = (int64_t)dtype_bytes(fsdp->device->dev->act_dtype);
    for (int64_t u = 0; u < fsdp->unit_count; u++)
        TRY(arena_reserve(arena, MEM_FROZEN, u, &fsdp->units[u].frozen, fsdp->units[u].shard * act,
                          err));
    return 0;
}

static int fsdp_reserve_gathered(struct fsdp *fsdp, struct arena *arena, struct err *err)
{
    int64_t act = (int64_t)dtype_bytes(fsdp->device->dev->act_dtype);
    int64_t embed = fsdp_padded(fsdp, 0) * act,
            tail = fsdp_padded(fsdp, fsdp->unit_count - 1) * act;
    bool adapters = fsdp->kind == FSDP_ADAPTERS;
    enum mem_name name = adapters ? MEM_GATHERED_LORA : MEM_GATHERED_LAYER;
    int64_t layer = fsdp_padded(fsdp, adapters ? 0 : 1) * act; /* all are alike */
    void **gathered = fsdp->gathered;
    TRY(arena_reserve(arena, name, 0, &gathered[FSDP_LAYER_A], layer, err));
    TRY(arena_reserve(arena, name, 1, &gathered[FSDP_LAYER_B], layer, err));
    if (adapters)
        return 0;
    TRY(arena_reserve(arena, MEM_GATHERED_EMBED, 0, &gathered[FSDP_EMBED], embed, err));
    return arena_reserve(arena, MEM_GATHERED_TAIL, 0, &gathered[FSDP_TAIL], tail, err);
}

static int fsdp_reserve_grads(struct fsdp *fsdp, struct arena *arena, struct err *err)
{
    int64_t embed = fsdp_padded(fsdp, 0), tail = fsdp_padded(fsdp, fsdp->unit_count - 1);
    int64_t f32 = (int64_t)sizeof(float), largest = embed > tail ? embed : tail;
    bool adapters = fsdp->kind == FSDP_ADAPTERS;
    int64_t layer = fsdp_padded(fsdp, adapters ? 0 : 1);
    largest = layer > largest ? layer : largest;
    if (fsdp->shards > 1)
        TRY(arena_reserve(arena, MEM_UNIT_F32, 0, &fsdp->unit_f32, largest * f32, err));
    TRY(arena_reserve(arena, MEM_GRAD_LAYER, 0, &fsdp->grad_layer, layer * f32, err));
    if (adapters)
        return 0;
    TRY(arena_reserve(arena, MEM_GRAD_EMBED, 0, &fsdp->grad_embed, embed * f32, err));
    return arena_reserve(arena, MEM_GRAD_TAIL, 0, &fsdp->grad_tail, tail * f32, err);
}

int fsdp_reserve(struct fsdp *fsdp, struct arena *arena, struct err *err)
{
    bool frozen = fsdp->kind == FSDP_FROZEN;
    TRY(frozen ? fsdp_reserve_frozen(fsdp, arena, err) : fsdp_reserve_states(fsdp, arena, err));
    if (!frozen)
        TRY(fsdp_reserve_chunks(fsdp, arena, err));
    if (!fsdp_in_place(fsdp))
        TRY(fsdp_reserve_gathered(fsdp, arena, err));
    return frozen || fsdp_grad_in_place(fsdp) ? 0 : fsdp_reserve_grads(fsdp, arena, err);
}

/* The padding of weights, too. The arena's host memory is zero as it comes. */
int fsdp_clear(struct fsdp *fsdp, struct stream *stream, struct err *err)
{
    const struct device_ops *dev = fsdp->device->dev;
    for (int64_t u = 0; u < fsdp->unit_count; u++) {
        struct fsdp_unit *unit = &fsdp->units[u];
        size_t bytes = (size_t)unit->shard * sizeof(float);
        if (fsdp->kind == FSDP_FROZEN) {
            bytes = (size_t)unit->shard * dtype_bytes(dev->act_dtype);
            TRY(dev->zero(fsdp->device, stream, unit->frozen, bytes, err));
            continue;
        }
        for (int kind = 0; kind < CHUNK_KINDS; kind++)
            if (!fsdp_on_host(fsdp, (enum chunk_kind)kind))
                TRY(dev->zero(fsdp->device, stream, fsdp_states(unit, (enum chunk_kind)kind), bytes,
                              err));
    }
    return 0;
}
