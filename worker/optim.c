/* optim: see optim.h. Works on the pieces of a shard: padding takes no part. */
#include "worker/optim.h"

#include "common/must.h"
#include "worker/ops.h"

#include <math.h>

static const double optim_pi = 3.14159265358979323846;

/* Share of the peak rate in step s of the S - W steps after the warmup. */
static double optim_share(const struct job_spec *spec, int64_t step, int64_t steps_total)
{
    int64_t steps = steps_total - spec->warmup_steps; /* S - W */
    double left = (double)(steps_total - step + 1);   /* this step included */
    int64_t decay = spec->decay_steps > 0 ? spec->decay_steps : (steps_total + 9) / 10;
    decay = decay < steps ? decay : steps;
    switch (spec->schedule) {
    case JOB_schedule_CONSTANT:
        return 1;
    case JOB_schedule_COSINE:
        return 0.5 * (1.0 + cos(optim_pi * (1 - left / (double)steps)));
    case JOB_schedule_LINEAR:
        return left / (double)steps;
    case JOB_schedule_WSD:
        return step <= steps_total - decay ? 1 : left / (double)(decay + 1);
    case JOB_schedule_COUNT:
        break;
    }
    must(false);
    return 0;
}

double optim_rate(const struct job_spec *spec, int64_t step, int64_t steps_total)
{
    must(step >= 1 && step <= steps_total);
    int64_t warmup = spec->warmup_steps;
    if (step <= warmup)
        return spec->learning_rate * (double)step / (double)warmup;
    return spec->learning_rate * optim_share(spec, step, steps_total);
}

int optim_init(struct optim *optim, const struct job_spec *spec, struct fsdp *fsdp,
               struct arena *arena, struct err *err)
{
    *optim = (struct optim){.fsdp = fsdp,
                            .beta1 = spec->beta1,
                            .beta2 = spec->beta2,
                            .eps = spec->eps,
                            .weight_decay = spec->weight_decay,
                            .clip = spec->clip};
    TRY(arena_reserve(arena, MEM_SUM_SQUARES, 0, &optim->sum_squares, (int64_t)sizeof(double),
                      err));
    return arena_reserve(arena, MEM_GRAD_SCALE, 0, &optim->grad_scale, (int64_t)sizeof(float), err);
}

static int optim_square(void *context, const struct fsdp_piece *piece, const struct chunk *chunk,
                        struct stream *stream, struct err *err)
{
    const struct optim *optim = context;
    (void)piece;
    struct ops_sumsq sumsq = {
        .count = chunk->count, .x = chunk->device[CHUNK_GRAD], .out = optim->sum_squares};
    return optim->fsdp->device->ops->sumsq(optim->fsdp->device, stream, &sumsq, err);
}

int optim_norm(struct optim *optim, struct stream *stream, double *ret_norm, struct err *err)
{
    struct fsdp *fsdp = optim->fsdp;
    struct device *device = fsdp->device;
    TRY(device->dev->zero(device, stream, optim->sum_squares, sizeof(double), err));
    TRY(fsdp_each(fsdp, 1u << CHUNK_GRAD, 0, optim_square, optim, stream, err));
    if (fsdp->shards > 1)
        TRY(coll_all_reduce(fsdp->coll, stream, optim->sum_squares, 1, DTYPE_F64, err));
    double sum = 0;
    TRY(device->dev->copy(device, stream, &sum, optim->sum_squares, sizeof sum, err));
    TRY(device->dev->sync(device, stream, err));
    *ret_norm = sqrt(sum);
    return 0;
}

struct optim_update {
    const struct optim *optim;
    double rate;
};

static int optim_update(void *context, const struct fsdp_piece *piece, const struct chunk *chunk,
                        struct stream *stream, struct err *err)
{
    const struct optim_update *update = context;
    const struct optim *optim = update->optim;
    bool decays = piece->row->dims == 2;
    struct ops_adamw adamw = {.count = chunk->count,
                              .master = chunk->device[CHUNK_MASTER],
                              .m = chunk->device[CHUNK_M],
                              .v = chunk->device[CHUNK_V],
                              .grad = chunk->device[CHUNK_GRAD],
                              .grad_scale = optim->grad_scale,
                              .lr = (float)update->rate,
                              .beta1 = (float)optim->beta1,
                              .beta2 = (float)optim->beta2,
                              .eps = (float)optim->eps,
                              .weight_decay = decays ? (float)optim->weight_decay : 0.0f,
                              .step = optim->updates};
    return optim->fsdp->device->ops->adamw(optim->fsdp->device, stream, &adamw, err);
}

int optim_apply(struct optim *optim, double rate, double norm, struct stream *stream,
                struct err *err)
{
    must(isfinite(norm));
    const unsigned changed = 1u << CHUNK_MASTER | 1u << CHUNK_M | 1u << CHUNK_V;
    struct device *device = optim->fsdp->device;
    bool clipped = optim->clip > 0 && norm > optim->clip;
    float scale = clipped ? (float)(optim->clip / norm) : 1.0f;
    struct optim_update update = {.optim = optim, .rate = rate};
    TRY(device->dev->copy(device, stream, optim->grad_scale, &scale, sizeof scale, err));
    optim->updates++;
    TRY(fsdp_each(optim->fsdp, changed | 1u << CHUNK_GRAD, changed, optim_update, &update, stream,
                  err));
    TRY(device->dev->sync(device, stream, err)); /* scale is on this stack */
    fsdp_weights_changed(optim->fsdp);
    return 0;
}
