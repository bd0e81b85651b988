/* fsdp: see fsdp.h. Collectives work in place: a shard is cast into its own place of the gathered
 * buffer before the all-gather, and the reduce-scatter leaves its sum at the shard's place of the
 * full gradient, from where it goes to the shard kept over micro-steps: by a copy the first time
 * of a step, added later. */
#include "worker/fsdp_private.h"

#include "common/must.h"
#include "worker/exposed.h"
#include "worker/ops.h"

static int fsdp_wait(struct fsdp *fsdp, struct stream *stream, struct err *err)
{
    if (!fsdp->under_way)
        return 0;
    fsdp->under_way = false;
    TRY(exposed_enter(fsdp->device->exposed, EXPOSED_GATHER, stream, err));
    if (fsdp_on_host(fsdp, CHUNK_MASTER))
        TRY(fsdp->device->dev->event_wait(fsdp->device, fsdp->fetched, stream, err));
    if (fsdp->shards > 1)
        TRY(coll_wait(fsdp->coll, stream, err));
    return exposed_leave(fsdp->device->exposed, stream, err);
}

static bool fsdp_is_layer(const struct fsdp *fsdp, int64_t unit)
{
    return fsdp->kind == FSDP_ADAPTERS || (unit > 0 && unit < fsdp->unit_count - 1);
}

/* Where a unit is gathered to: of the layers' buffers the one that was not used last. */
static int fsdp_place(const struct fsdp *fsdp, int64_t unit)
{
    if (fsdp_is_layer(fsdp, unit))
        return FSDP_LAYER_B - fsdp->gathered_last;
    return unit == 0 ? FSDP_EMBED : FSDP_TAIL;
}

/* A shard of a master on the host to its place among the gathered, on chunks.in. */
static int fsdp_fetch(struct fsdp *fsdp, const struct fsdp_unit *unit, char *place,
                      struct stream *stream, struct err *err)
{
    struct chunks *chunks = &fsdp->chunks;
    int64_t act = (int64_t)dtype_bytes(fsdp->device->dev->act_dtype);
    TRY(chunks_begin(chunks, stream, err)); /* whoever used the place is done with it */
    for (int64_t at = 0; at < unit->shard; at += chunks->elements) {
        int64_t left = unit->shard - at;
        struct chunk chunk = {.count = left < chunks->elements ? left : chunks->elements,
                              .host = {[CHUNK_MASTER] = unit->master + at}};
        TRY(chunks_in(chunks, &chunk, chunks->in, err));
        struct ops_cast cast = {.count = chunk.count,
                                .in = chunk.device[CHUNK_MASTER],
                                .out = place + at * act,
                                .to_act = true};
        TRY(fsdp->device->ops->cast(fsdp->device, chunks->in, &cast, err));
        TRY(chunks_out(chunks, &chunk, chunks->in, err));
    }
    return 0;
}

/* What this rank sends of a unit, in [act]: the shard itself, or made at its place. */
static int fsdp_own(struct fsdp *fsdp, const struct fsdp_unit *unit, char *place,
                    struct stream *stream, const void **ret_send, struct err *err)
{
    struct ops_cast cast = {.count = unit->shard, .in = unit->master, .out = place, .to_act = true};
    bool host = fsdp_on_host(fsdp, CHUNK_MASTER);
    *ret_send = fsdp->kind == FSDP_FROZEN ? unit->frozen : unit->master;
    if (!host && (fsdp->kind == FSDP_FROZEN || fsdp_act_is_f32(fsdp)))
        return 0;
    *ret_send = place;
    return host ? fsdp_fetch(fsdp, unit, place, stream, err)
                : fsdp->device->ops->cast(fsdp->device, stream, &cast, err);
}

/* Starts the gather of a unit; its buffer's number in *ret_slot. */
static int fsdp_start(struct fsdp *fsdp, int64_t unit, struct stream *stream, int *ret_slot,
                      struct err *err)
{
    const struct fsdp_unit *u = &fsdp->units[unit];
    int slot = fsdp_place(fsdp, unit);
    enum dtype act = fsdp->device->dev->act_dtype;
    bool host = fsdp_on_host(fsdp, CHUNK_MASTER);
    struct stream *on = host ? fsdp->chunks.in : stream;
    char *place =
        (char *)fsdp->gathered[slot] + (size_t)(fsdp->index * u->shard) * dtype_bytes(act);
    TRY(fsdp_wait(fsdp, stream, err)); /* it may be for this buffer */
    fsdp->gathered_unit[slot] = -1;
    struct coll_call call = {
        .kind = COLL_all_gather, .dtype = act, .count = u->shard, .recv = fsdp->gathered[slot]};
    TRY(exposed_enter(fsdp->device->exposed, EXPOSED_GATHER, stream, err));
    TRY(fsdp_own(fsdp, u, place, stream, &call.send, err));
    if (fsdp->shards > 1)
        TRY(coll_start(fsdp->coll, on, &call, err));
    TRY(exposed_leave(fsdp->device->exposed, stream, err));
    if (host)
        TRY(fsdp->device->dev->event_record(fsdp->device, fsdp->fetched, on, err));
    fsdp->under_way = host || fsdp->shards > 1;
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
    bool apart = fsdp->shards > 1 || fsdp_on_host(fsdp, CHUNK_MASTER); /* runs beside the work */
    if (!apart || fsdp_slot(fsdp, unit) >= 0)
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
    if (fsdp_grad_in_place(fsdp)) {
        *ret_grad = fsdp->units[unit].grad;
        return 0;
    }
    TRY(fsdp_grad_settle(fsdp, stream, err)); /* it may be in this buffer */
    const struct device_ops *dev = fsdp->device->dev;
    float *grad = fsdp_grad_buffer(fsdp, unit);
    size_t bytes = (size_t)fsdp_padded(fsdp, unit) * sizeof(float);
    if (fsdp->shards == 1 && fsdp->units[unit].grad_begun) /* goes on where it stopped */
        TRY(dev->copy(fsdp->device, stream, grad, fsdp->units[unit].grad, bytes, err));
    else
        TRY(dev->zero(fsdp->device, stream, grad, bytes, err));
    *ret_grad = grad;
    return 0;
}

/* Some of a shard's gradient: `more` (count) is added to it; NULL: summed over ranks. */
static int fsdp_grad_work(struct fsdp *fsdp, float *grad, const float *more, int64_t count,
                          struct stream *stream, struct err *err)
{
    struct ops_add add = {.count = count, .a = grad, .b = more, .out = grad, .f32 = true};
    if (more != NULL)
        return fsdp->device->ops->add(fsdp->device, stream, &add, err);
    return coll_all_reduce(fsdp->coll, stream, grad, count, DTYPE_F32, err);
}

/* The same for a whole shard, where it lies. */
static int fsdp_grad_shard(struct fsdp *fsdp, const struct fsdp_unit *unit, const float *more,
                           struct stream *stream, struct err *err)
{
    struct chunks *chunks = &fsdp->chunks;
    if (!fsdp_on_host(fsdp, CHUNK_GRAD))
        return fsdp_grad_work(fsdp, unit->grad, more, unit->shard, stream, err);
    TRY(chunks_begin(chunks, stream, err));
    for (int64_t at = 0; at < unit->shard; at += chunks->elements) {
        int64_t left = unit->shard - at;
        struct chunk chunk = {.count = left < chunks->elements ? left : chunks->elements,
                              .host = {[CHUNK_GRAD] = unit->grad + at},
                              .back = 1u << CHUNK_GRAD};
        TRY(chunks_in(chunks, &chunk, stream, err));
        TRY(fsdp_grad_work(fsdp, chunk.device[CHUNK_GRAD], more == NULL ? NULL : more + at,
                           chunk.count, stream, err));
        TRY(chunks_out(chunks, &chunk, stream, err));
    }
    return chunks_end(chunks, stream, err);
}

/* This rank's piece of a full gradient, which is reduced in place. */
static float *fsdp_grad_piece(struct fsdp *fsdp, int64_t unit)
{
    return fsdp_grad_buffer(fsdp, unit) + fsdp->index * fsdp->units[unit].shard;
}

static int fsdp_grad_keep(struct fsdp *fsdp, int64_t unit, struct stream *stream, struct err *err)
{
    struct fsdp_unit *u = &fsdp->units[unit];
    float *piece = fsdp_grad_piece(fsdp, unit);
    if (fsdp->shards > 1)
        TRY(coll_wait(fsdp->coll, stream, err));
    if (fsdp->shards > 1 && u->grad_begun)
        return fsdp_grad_shard(fsdp, u, piece, stream, err);
    u->grad_begun = true;
    return fsdp->device->dev->copy(fsdp->device, stream, u->grad, piece,
                                   (size_t)u->shard * sizeof(float), err);
}

int fsdp_grad_end(struct fsdp *fsdp, int64_t unit, struct stream *stream, struct err *err)
{
    if (fsdp_grad_in_place(fsdp))
        return 0;
    TRY(fsdp_grad_settle(fsdp, stream, err));
    TRY(fsdp_wait(fsdp, stream, err)); /* later it would wait for what starts here, too */
    struct coll_call call = {.kind = COLL_reduce_scatter,
                             .dtype = DTYPE_F32,
                             .count = fsdp->units[unit].shard,
                             .send = fsdp_grad_buffer(fsdp, unit),
                             .recv = fsdp_grad_piece(fsdp, unit)};
    TRY(exposed_enter(fsdp->device->exposed, EXPOSED_REDUCE, stream, err));
    if (fsdp->shards > 1)
        TRY(coll_start(fsdp->coll, stream, &call, err));
    TRY(exposed_leave(fsdp->device->exposed, stream, err));
    fsdp->reducing = unit;
    return fsdp_is_layer(fsdp, unit) ? 0 : fsdp_grad_settle(fsdp, stream, err);
}

int fsdp_grad_settle(struct fsdp *fsdp, struct stream *stream, struct err *err)
{
    int64_t unit = fsdp->reducing;
    if (unit < 0)
        return 0;
    fsdp->reducing = -1;
    TRY(exposed_enter(fsdp->device->exposed, EXPOSED_REDUCE, stream, err));
    TRY(fsdp_grad_keep(fsdp, unit, stream, err));
    return exposed_leave(fsdp->device->exposed, stream, err);
}

int fsdp_grad_finish(struct fsdp *fsdp, struct stream *stream, struct err *err)
{
    TRY(fsdp_grad_settle(fsdp, stream, err));
    if (fsdp->shards > 1 || fsdp->coll->world == 1)
        return 0;
    TRY(exposed_enter(fsdp->device->exposed, EXPOSED_REDUCE, stream, err));
    for (int64_t u = 0; u < fsdp->unit_count; u++)
        TRY(fsdp_grad_shard(fsdp, &fsdp->units[u], NULL, stream, err));
    return exposed_leave(fsdp->device->exposed, stream, err);
}

int fsdp_grad_zero(struct fsdp *fsdp, struct stream *stream, struct err *err)
{
    for (int64_t u = 0; u < fsdp->unit_count; u++) {
        fsdp->units[u].grad_begun = false;
        if (fsdp_grad_in_place(fsdp))
            TRY(fsdp->device->dev->zero(fsdp->device, stream, fsdp->units[u].grad,
                                        (size_t)fsdp->units[u].shard * sizeof(float), err));
    }
    return 0;
}

void fsdp_weights_changed(struct fsdp *fsdp)
{
    must(!fsdp->under_way);
    for (int slot = 0; slot < FSDP_SLOTS; slot++)
        fsdp->gathered_unit[slot] = -1;
}

static int fsdp_gather_f32(struct fsdp *fsdp, int64_t unit, enum chunk_kind kind,
                           struct stream *stream, const float **ret_full, struct err *err)
{
    must(unit >= 0 && unit < fsdp->unit_count && fsdp->kind != FSDP_FROZEN);
    const struct fsdp_unit *u = &fsdp->units[unit];
    const float *send = fsdp_states(u, kind);
    if (fsdp->shards == 1) {
        *ret_full = send;
        return 0;
    }
    float *place = fsdp->unit_f32 + fsdp->index * u->shard;
    if (fsdp_on_host(fsdp, kind)) {
        TRY(fsdp->device->dev->copy(fsdp->device, stream, place, send,
                                    (size_t)u->shard * sizeof(float), err));
        send = place;
    }
    TRY(coll_all_gather(fsdp->coll, stream, send, fsdp->unit_f32, u->shard, DTYPE_F32, err));
    *ret_full = fsdp->unit_f32;
    return 0;
}

int fsdp_gather_master(struct fsdp *fsdp, int64_t unit, struct stream *stream,
                       const float **ret_master, struct err *err)
{
    return fsdp_gather_f32(fsdp, unit, CHUNK_MASTER, stream, ret_master, err);
}

int fsdp_gather_grad(struct fsdp *fsdp, int64_t unit, struct stream *stream, const float **ret_grad,
                     struct err *err)
{
    return fsdp_gather_f32(fsdp, unit, CHUNK_GRAD, stream, ret_grad, err);
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

static int fsdp_each_piece(struct fsdp *fsdp, const struct fsdp_unit *unit,
                           const struct fsdp_piece *piece, unsigned kinds, unsigned back,
                           fsdp_work *work, void *context, struct stream *stream, struct err *err)
{
    unsigned passing = kinds & fsdp->on_host;
    int64_t most = passing != 0 ? fsdp->chunks.elements : piece->count;
    for (int64_t at = 0; at < piece->count; at += most) {
        int64_t left = piece->count - at;
        struct chunk chunk = {.count = left < most ? left : most, .back = back & passing};
        for (int kind = 0; kind < CHUNK_KINDS; kind++) {
            float *states = fsdp_states(unit, (enum chunk_kind)kind) + piece->shard_element + at;
            if (passing >> kind & 1)
                chunk.host[kind] = states;
            else if (kinds >> kind & 1)
                chunk.device[kind] = states;
        }
        if (passing != 0)
            TRY(chunks_in(&fsdp->chunks, &chunk, stream, err));
        TRY(work(context, piece, &chunk, stream, err));
        if (passing != 0)
            TRY(chunks_out(&fsdp->chunks, &chunk, stream, err));
    }
    return 0;
}

int fsdp_each(struct fsdp *fsdp, unsigned kinds, unsigned back, fsdp_work *work, void *context,
              struct stream *stream, struct err *err)
{
    bool passing = (kinds & fsdp->on_host) != 0;
    must((back & ~kinds) == 0 && fsdp->kind != FSDP_FROZEN);
    if (passing)
        TRY(chunks_begin(&fsdp->chunks, stream, err));
    for (int64_t unit = 0; unit < fsdp->unit_count; unit++) {
        int64_t row = fsdp->units[unit].row_first;
        struct fsdp_piece piece;
        while (fsdp_next_piece(fsdp, unit, &row, &piece))
            TRY(fsdp_each_piece(fsdp, &fsdp->units[unit], &piece, kinds, back, work, context,
                                stream, err));
    }
    return passing ? chunks_end(&fsdp->chunks, stream, err) : 0;
}
