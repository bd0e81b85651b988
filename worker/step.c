/* step: see step.h. */
#include "worker/step.h"

#include "common/must.h"
#include "worker/profile.h"
#include "worker/rank.h"

#include <math.h>

static int step_micro(struct rank *rank, int64_t step, int64_t micro, float scale, struct err *err)
{
    rank_phase(rank, step, WIRE_PHASE_DATA);
    arena_enter(&rank->arena, MEM_PHASE_DATA);
    loader_fill(&rank->train, step, micro, &rank->batch);
    rank->batch.step = step;
    TRY(batch_upload(&rank->batch, rank->device, rank->stream, err));
    rank_phase(rank, step, WIRE_PHASE_FORWARD);
    TRY(model_forward(&rank->model, &rank->batch, true, rank->stream, err));
    rank_phase(rank, step, WIRE_PHASE_BACKWARD); /* the head's forward is one with its backward */
    TRY(model_head_train(&rank->model, &rank->batch, scale, rank->stream, err));
    return model_backward(&rank->model, &rank->batch, rank->stream, err);
}

int step_gradients(struct rank *rank, int64_t step, struct step_result *result, struct err *err)
{
    *result = (struct step_result){0};
    rank_phase(rank, step, WIRE_PHASE_DATA);
    int64_t counts[LOADER_COUNTS];
    loader_count(&rank->train, step, counts);
    TRY(rank_sum(rank, counts, LOADER_COUNTS, DTYPE_I64, err));
    result->tokens = counts[LOADER_TOKENS];
    result->trained = counts[LOADER_TRAINED];
    result->pairs = counts[LOADER_PAIRS];
    TRY(fsdp_grad_zero(rank->trained, rank->stream, err));
    if (result->trained == 0)
        return 0; /* every rank knows: none computes */
    TRY(model_totals_zero(&rank->model, rank->stream, err));
    (void)offload_account(&rank->model.offload); /* what an evaluation copied is no step's */
    float scale = (float)(1.0 / (double)result->trained);
    for (int64_t micro = 0; micro < rank->train.micro_steps; micro++)
        TRY(step_micro(rank, step, micro, scale, err));
    rank_phase(rank, step, WIRE_PHASE_OPTIMIZER);
    arena_enter(&rank->arena, MEM_PHASE_UPDATE);
    TRY(fsdp_grad_finish(rank->trained, rank->stream, err));
    TRY(positions_add(rank, &result->positions, err));
    TRY(positions_share(rank, &result->positions, err));
    double loss_sum = 0;
    TRY(model_totals(&rank->model, rank->stream, &loss_sum, &result->correct, err));
    result->loss = loss_sum / (double)result->trained;
    result->offload_bytes = offload_account(&rank->model.offload);
    return optim_norm(&rank->optim, rank->stream, &result->norm, err);
}

int step_update(struct rank *rank, int64_t step, struct step_result *result, struct err *err)
{
    rank_phase(rank, step, WIRE_PHASE_OPTIMIZER);
    result->rate = optim_rate(&rank->plan->spec, step, rank->steps_total);
    if (result->trained == 0)
        return 0;
    if (!isfinite(result->norm) || !isfinite(result->loss)) {
        if (rank->plan->spec.on_nonfinite == JOB_on_nonfinite_STOP)
            return err_set(err, ERR_NONFINITE,
                           "step %lld: loss %g, gradient norm %g; lower "
                           "ithaca.optimizer.learning_rate, or set ithaca.on_nonfinite to skip",
                           (long long)step, result->loss, fabs(result->norm));
        if (rank->number == 0)
            report_event(rank->report, 1, "loss %g, gradient norm %g: the update is skipped",
                         result->loss, fabs(result->norm));
        return 0;
    }
    result->updated = true;
    TRY(optim_apply(&rank->optim, result->rate, result->norm, rank->stream, err));
    arena_enter(&rank->arena, MEM_PHASE_BETWEEN);
    return 0;
}

int step_run(struct rank *rank, int64_t step, struct step_result *result, struct err *err)
{
    struct profile *profile = rank->device->profile;
    int64_t plan_ns = rank->device->dev->plan_ns(rank->device);
    TRY(exposed_start(&rank->exposed, rank->stream, err));
    TRY(profile_step_begin(profile, step, rank->stream, err));
    TRY(step_gradients(rank, step, result, err));
    TRY(step_update(rank, step, result, err));
    TRY(exposed_stop(&rank->exposed, rank->stream, &result->times, err));
    TRY(profile_step_end(profile, &result->times, err));
    result->plan_ns = rank->device->dev->plan_ns(rank->device) - plan_ns;
    for (int kind = 0; kind < EXPOSED_KINDS; kind++)
        rank->exposed_ns[kind] += result->times.ns[kind];
    return 0;
}
