/* fsdp: see fsdp.h. Collectives work in place: a shard is cast into its own place of the gathered
 * buffer before the all-gather, and the reduce-scatter leaves its sum at the shard's place of the
 * full gradient, from where it is added to the shard kept over micro-steps. */
#include "worker/fsdp.h"

#include "common/clock.h"
#include "common/mem.h"
#include "common/must.h"
#include "worker/ops.h"

static int64_t fsdp_padded(const struct fsdp *fsdp, int64_t unit)
{
    return fsdp->units[unit].shard * fsdp->shards;
}

static bool fsdp_act_is_f32(const struct fsdp *fsdp)
{
    return fsdp->device->dev->act_dtype == DTYPE_F32;
}

/* Shards are the weights: nothing is gathered. */
static bool fsdp_in_place(const struct fsdp *fsdp)
{
    return fsdp->shards == 1 && (fsdp_act_is_f32(fsdp) || fsdp->kind == FSDP_FROZEN);
}

int fsdp_init(struct fsdp *fsdp, const struct model_shape *shape, struct device *device,
              struct coll *coll, bool sharded, struct err *err)
{
    *fsdp = (struct fsdp){.shape = shape,
                          .device = device,
                          .coll = coll,
                          .shards = sharded ? coll->world : 1,
                          .index = sharded ? coll->rank : 0,
                          .unit_count = shape->unit_count,
                          .gathered_unit = {-1, -1, -1, -1}};
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
    if (!fsdp_in_place(fsdp))
        TRY(fsdp_reserve_gathered(fsdp, arena, err));
    return fsdp->shards == 1 || frozen ? 0 : fsdp_reserve_grads(fsdp, arena, err);
}

int fsdp_clear(struct fsdp *fsdp, struct stream *stream, struct err *err)
{
    const struct device_ops *dev = fsdp->device->dev;
    for (int64_t u = 0; u < fsdp->unit_count; u++) {
        struct fsdp_unit *unit = &fsdp->units[u];
        size_t bytes = (size_t)unit->shard * sizeof(float);
        if (fsdp->kind == FSDP_FROZEN) {
            bytes = (size_t)unit->shard * dtype_bytes(dev->act_dtype);
            TRY(dev->zero(fsdp->device, stream, unit->frozen, bytes, err)); /* its padding */
            continue;
        }
        TRY(dev->zero(fsdp->device, stream, unit->master, bytes, err)); /* alike */
        TRY(dev->zero(fsdp->device, stream, unit->m, bytes, err));
        TRY(dev->zero(fsdp->device, stream, unit->v, bytes, err));
        TRY(dev->zero(fsdp->device, stream, unit->grad, bytes, err));
    }
    return 0;
}

static int fsdp_all_gather(struct fsdp *fsdp, struct stream *stream, const void *send, void *recv,
                           int64_t count, enum dtype dtype, struct err *err)
{
    int64_t start = clock_monotonic_ns();
    int rc = coll_all_gather(fsdp->coll, stream, send, recv, count, dtype, err);
    fsdp->coll_ns += clock_monotonic_ns() - start;
    return rc;
}

static int fsdp_wait(struct fsdp *fsdp, struct stream *stream, struct err *err)
{
    int64_t start = clock_monotonic_ns();
    int rc = fsdp->under_way ? fsdp->coll->ops->wait(fsdp->coll, stream, err) : 0;
    fsdp->coll_ns += clock_monotonic_ns() - start;
    fsdp->under_way = false;
    return rc;
}

/* Where a unit is gathered to: of the layers' buffers the one that was not used last. */
static int fsdp_place(const struct fsdp *fsdp, int64_t unit)
{
    bool layer = fsdp->kind == FSDP_ADAPTERS || (unit > 0 && unit < fsdp->unit_count - 1);
    if (layer)
        return FSDP_LAYER_B - fsdp->gathered_last;
    return unit == 0 ? FSDP_EMBED : FSDP_TAIL;
}

/* Starts the gather of a unit; its buffer's number in *ret_slot. */
static int fsdp_start(struct fsdp *fsdp, int64_t unit, struct stream *stream, int *ret_slot,
                      struct err *err)
{
    const struct fsdp_unit *u = &fsdp->units[unit];
    int slot = fsdp_place(fsdp, unit);
    enum dtype act = fsdp->device->dev->act_dtype;
    char *place =
        (char *)fsdp->gathered[slot] + (size_t)(fsdp->index * u->shard) * dtype_bytes(act);
    TRY(fsdp_wait(fsdp, stream, err)); /* it may be for this buffer */
    fsdp->gathered_unit[slot] = -1;
    struct coll_call call = {.kind = COLL_all_gather,
                             .dtype = act,
                             .count = u->shard,
                             .send = fsdp->kind == FSDP_FROZEN ? u->frozen : u->master,
                             .recv = fsdp->gathered[slot]};
    if (act != DTYPE_F32 && fsdp->kind != FSDP_FROZEN) {
        struct ops_cast cast = {.count = u->shard, .in = u->master, .out = place, .to_act = true};
        TRY(fsdp->device->ops->cast(fsdp->device, stream, &cast, err));
        call.send = place;
    }
    int64_t start = clock_monotonic_ns();
    if (fsdp->shards > 1)
        TRY(fsdp->coll->ops->start(fsdp->coll, stream, &call, err));
    fsdp->coll_ns += clock_monotonic_ns() - start;
    fsdp->under_way = fsdp->shards > 1;
    fsdp->gathered_unit[slot] = unit;
    *ret_slot = slot;
    return 0;
}

/* The buffer that holds a unit, or soon will; -1: none. */
static int fsdp_slot(const struct fsdp *fsdp, int64_t unit)
{
    for (int slot = 0; slot < FSDP_SLOTS; slot++)
        if (fsdp->gathered_unit[slot] == unit)
            return slot;
    return -1;
}

int fsdp_gather(struct fsdp *fsdp, int64_t unit, struct stream *stream, const void **ret_weights,
                struct err *err)
{
    must(unit >= 0 && unit < fsdp->unit_count);
    if (fsdp_in_place(fsdp)) {
        const struct fsdp_unit *u = &fsdp->units[unit];
        *ret_weights = fsdp->kind == FSDP_FROZEN ? u->frozen : u->master;
        return 0;
    }
    int slot = fsdp_slot(fsdp, unit);
    if (slot < 0)
        TRY(fsdp_start(fsdp, unit, stream, &slot, err));
    TRY(fsdp_wait(fsdp, stream, err));
    if (slot <= FSDP_LAYER_B)
        fsdp->gathered_last = slot;
    else
        fsdp->gathered_unit[slot] = -1; /* what comes after may overwrite it */
    *ret_weights = fsdp->gathered[slot];
    return 0;
}

int fsdp_prefetch(struct fsdp *fsdp, int64_t unit, struct stream *stream, struct err *err)
{
    must(unit >= 0 && unit < fsdp->unit_count);
    int slot;
    if (fsdp->shards == 1 || fsdp_slot(fsdp, unit) >= 0)
        return 0;
    return fsdp_start(fsdp, unit, stream, &slot, err);
}

static float *fsdp_grad_buffer(struct fsdp *fsdp, int64_t unit)
{
    if (fsdp->kind == FSDP_ADAPTERS)
        return fsdp->grad_layer;
    if (unit == 0)
        return fsdp->grad_embed;
    return unit == fsdp->unit_count - 1 ? fsdp->grad_tail : fsdp->grad_layer;
}

int fsdp_grad_begin(struct fsdp *fsdp, int64_t unit, struct stream *stream, float **ret_grad,
                    struct err *err)
{
    must(unit >= 0 && unit < fsdp->unit_count && fsdp->kind != FSDP_FROZEN);
    if (fsdp->shards == 1) {
        *ret_grad = fsdp->units[unit].grad;
        return 0;
    }
    float *grad = fsdp_grad_buffer(fsdp, unit);
    TRY(fsdp->device->dev->zero(fsdp->device, stream, grad,
                                (size_t)fsdp_padded(fsdp, unit) * sizeof(float), err));
    *ret_grad = grad;
    return 0;
}

int fsdp_grad_end(struct fsdp *fsdp, int64_t unit, struct stream *stream, struct err *err)
{
    if (fsdp->shards == 1)
        return 0;
    const struct fsdp_unit *u = &fsdp->units[unit];
    float *full = fsdp_grad_buffer(fsdp, unit);
    float *piece = full + fsdp->index * u->shard;
    int64_t start = clock_monotonic_ns();
    TRY(coll_reduce_scatter(fsdp->coll, stream, full, piece, u->shard, DTYPE_F32, err));
    fsdp->coll_ns += clock_monotonic_ns() - start;
    struct ops_add add = {.count = u->shard, .a = u->grad, .b = piece, .out = u->grad, .f32 = true};
    return fsdp->device->ops->add(fsdp->device, stream, &add, err);
}

int fsdp_grad_finish(struct fsdp *fsdp, struct stream *stream, struct err *err)
{
    if (fsdp->shards > 1 || fsdp->coll->world == 1)
        return 0;
    int64_t start = clock_monotonic_ns();
    for (int64_t u = 0; u < fsdp->unit_count; u++)
        TRY(coll_all_reduce(fsdp->coll, stream, fsdp->units[u].grad, fsdp->units[u].shard,
                            DTYPE_F32, err));
    fsdp->coll_ns += clock_monotonic_ns() - start;
    return 0;
}

int fsdp_grad_zero(struct fsdp *fsdp, struct stream *stream, struct err *err)
{
    for (int64_t u = 0; u < fsdp->unit_count; u++)
        TRY(fsdp->device->dev->zero(fsdp->device, stream, fsdp->units[u].grad,
                                    (size_t)fsdp->units[u].shard * sizeof(float), err));
    return 0;
}

void fsdp_weights_changed(struct fsdp *fsdp)
{
    must(!fsdp->under_way);
    for (int slot = 0; slot < FSDP_SLOTS; slot++)
        fsdp->gathered_unit[slot] = -1;
}

static int fsdp_gather_f32(struct fsdp *fsdp, int64_t unit, struct stream *stream,
                           const float *shard, const float **ret_full, struct err *err)
{
    if (fsdp->shards == 1) {
        *ret_full = shard;
        return 0;
    }
    TRY(fsdp_all_gather(fsdp, stream, shard, fsdp->unit_f32, fsdp->units[unit].shard, DTYPE_F32,
                        err));
    *ret_full = fsdp->unit_f32;
    return 0;
}

int fsdp_gather_master(struct fsdp *fsdp, int64_t unit, struct stream *stream,
                       const float **ret_master, struct err *err)
{
    must(unit >= 0 && unit < fsdp->unit_count && fsdp->kind != FSDP_FROZEN);
    return fsdp_gather_f32(fsdp, unit, stream, fsdp->units[unit].master, ret_master, err);
}

int fsdp_gather_grad(struct fsdp *fsdp, int64_t unit, struct stream *stream, const float **ret_grad,
                     struct err *err)
{
    must(unit >= 0 && unit < fsdp->unit_count && fsdp->kind != FSDP_FROZEN);
    return fsdp_gather_f32(fsdp, unit, stream, fsdp->units[unit].grad, ret_grad, err);
}

bool fsdp_next_piece(const struct fsdp *fsdp, int64_t unit, int64_t *row,
                     struct fsdp_piece *ret_piece)
{
    const struct fsdp_unit *u = &fsdp->units[unit];
    int64_t first = fsdp->index * u->shard;
    int64_t last = first + u->shard;
    for (; *row < u->row_last; (*row)++) {
        const struct model_shape_row *r = &fsdp->shape->rows[*row];
        int64_t from = r->offset > first ? r->offset : first;
        int64_t to = r->offset + r->elements < last ? r->offset + r->elements : last;
        if (from >= to)
            continue;
        *ret_piece = (struct fsdp_piece){.row = r,
                                         .row_element = from - r->offset,
                                         .shard_element = from - first,
                                         .count = to - from};
        (*row)++;
        return true;
    }
    return false;
}
