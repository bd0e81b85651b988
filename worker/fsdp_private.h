/* fsdp_private: what fsdp's files share. */
#pragma once
#include "worker/fsdp.h"

static inline int64_t fsdp_padded(const struct fsdp *fsdp, int64_t unit)
{
    return fsdp->units[unit].shard * fsdp->shards;
}

static inline bool fsdp_act_is_f32(const struct fsdp *fsdp)
{
    return fsdp->device->dev->act_dtype == DTYPE_F32;
}

static inline bool fsdp_on_host(const struct fsdp *fsdp, enum chunk_kind kind)
{
    return (fsdp->on_host >> kind & 1) != 0;
}

/* Shards are the weights: nothing is gathered. */
static inline bool fsdp_in_place(const struct fsdp *fsdp)
{
    bool usable = fsdp_act_is_f32(fsdp) && !fsdp_on_host(fsdp, CHUNK_MASTER);
    return fsdp->shards == 1 && (usable || fsdp->kind == FSDP_FROZEN);
}

/* The shard is the gradient: it needs no buffer while it is open. */
static inline bool fsdp_grad_in_place(const struct fsdp *fsdp)
{
    return fsdp->shards == 1 && !fsdp_on_host(fsdp, CHUNK_GRAD);
}

static inline float *fsdp_states(const struct fsdp_unit *unit, enum chunk_kind kind)
{
    float *const states[CHUNK_KINDS] = {[CHUNK_MASTER] = unit->master,
                                        [CHUNK_M] = unit->m,
                                        [CHUNK_V] = unit->v,
                                        [CHUNK_GRAD] = unit->grad};
    return states[kind];
}
