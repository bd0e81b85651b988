/* step: see step.h. */
#include "worker/step.h"

#include "common/clock.h"
#include "common/must.h"
#include "worker/eval.h"
#include "worker/rank.h"

#include <math.h>
#include <stdio.h>
#include <unistd.h>

static int step_micro(struct rank *rank, int64_t step, int64_t micro, float scale, struct err *err)
{
    rank_phase(rank, step, WIRE_PHASE_DATA);
    loader_fill(&rank->train, step, micro, &rank->batch);
    TRY(batch_upload(&rank->batch, rank->device, rank->stream, err));
    rank_phase(rank, step, WIRE_PHASE_FORWARD);
    TRY(model_forward(&rank->model, &rank->batch, rank->stream, err));
    rank_phase(rank, step, WIRE_PHASE_BACKWARD); /* the head's forward is one with its backward */
    TRY(model_head_train(&rank->model, &rank->batch, scale, rank->stream, err));
    return model_backward(&rank->model, &rank->batch, rank->stream, err);
}

int step_gradients(struct rank *rank, int64_t step, struct step_result *result, struct err *err)
{
    *result = (struct step_result){0};
    rank_phase(rank, step, WIRE_PHASE_DATA);
    int64_t counts[2]; /* tokens, trained */
    loader_count(&rank->train, step, &counts[0], &counts[1]);
    TRY(rank_sum(rank, counts, err));
    result->tokens = counts[0];
    result->trained = counts[1];
    TRY(fsdp_grad_zero(&rank->fsdp, rank->stream, err));
    if (result->trained == 0)
        return 0; /* every rank knows: none computes */
    TRY(model_totals_zero(&rank->model, rank->stream, err));
    float scale = (float)(1.0 / (double)result->trained);
    for (int64_t micro = 0; micro < rank->train.micro_steps; micro++)
        TRY(step_micro(rank, step, micro, scale, err));
    rank_phase(rank, step, WIRE_PHASE_OPTIMIZER);
    TRY(fsdp_grad_finish(&rank->fsdp, rank->stream, err));
    double loss_sum = 0;
    TRY(model_totals(&rank->model, rank->stream, &loss_sum, &result->correct, err));
    result->loss = loss_sum / (double)result->trained;
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
    return optim_apply(&rank->optim, result->rate, result->norm, rank->stream, err);
}

static void step_point(struct wire_metrics *metrics, enum metric_id metric, double value)
{
    must(metrics->count < WIRE_METRICS_MAX);
    metrics->points[metrics->count++] =
        (struct wire_point){.metric = (uint16_t)metric, .value = value};
}

/* Resident memory of this process, bytes; NaN where /proc does not tell. */
static double step_host_bytes(void)
{
    FILE *file = fopen("/proc/self/statm", "re");
    long long pages = 0, resident = 0;
    if (file == NULL)
        return (double)NAN;
    int got = fscanf(file, "%lld %lld", &pages, &resident);
    (void)fclose(file); /* read only */
    return got == 2 ? (double)resident * (double)sysconf(_SC_PAGESIZE) : (double)NAN;
}

static void step_report(struct rank *rank, int64_t step, const struct step_result *result,
                        double seconds)
{
    struct wire_metrics metrics = {.step = (uint64_t)step,
                                   .wall_s = (double)clock_wall_ms() * 1e-3};
    if (rank->number == 0) {
        step_point(&metrics, METRIC_LEARNING_RATE, result->rate);
        step_point(&metrics, METRIC_TOKENS, (double)result->tokens);
        step_point(&metrics, METRIC_TRAINED_TOKENS, (double)result->trained);
        step_point(&metrics, METRIC_STEP_TIME_S, seconds);
        step_point(&metrics, METRIC_TOKENS_PER_S, (double)result->tokens / seconds);
        if (result->trained > 0) {
            step_point(&metrics, METRIC_LOSS, result->loss);
            step_point(&metrics, METRIC_GRAD_NORM, result->norm);
            step_point(&metrics, METRIC_ACCURACY,
                       (double)result->correct / (double)result->trained);
        }
    }
    step_point(&metrics, METRIC_HOST_BYTES, step_host_bytes());
    step_point(&metrics, METRIC_ARENA_BYTES, (double)arena_bytes(&rank->arena));
    step_point(&metrics, METRIC_ARENA_PEAK_BYTES, (double)arena_bytes(&rank->arena));
    report_metrics(rank->report, &metrics);
}

static int step_evaluate(struct rank *rank, int64_t step, struct err *err)
{
    int64_t every = rank->plan->spec.eval_every_steps;
    bool due = step % every == 0 || step == rank->steps_total;
    if (rank->valid.data.examples == 0 || !due)
        return 0;
    rank_phase(rank, step, WIRE_PHASE_EVALUATE);
    struct eval_result result;
    TRY(eval_run(rank, &result, err));
    if (rank->number != 0 || result.trained == 0)
        return 0;
    struct wire_metrics metrics = {.step = (uint64_t)step,
                                   .wall_s = (double)clock_wall_ms() * 1e-3};
    step_point(&metrics, METRIC_VALID_LOSS, result.loss);
    step_point(&metrics, METRIC_VALID_ACCURACY, result.accuracy);
    report_metrics(rank->report, &metrics);
    return 0;
}

/* Between steps: what the daemon asked for. */
static int step_commands(struct rank *rank, struct err *err)
{
    if (report_take_commands(rank->report) != 0)
        report_event(rank->report, 1, "this version writes no checkpoints: training goes on");
    if (report_orphaned(rank->report))
        return err_set(err, ERR_COORDINATOR_LOST, "no daemon came back within %lld s",
                       (long long)(rank->plan->orphan_limit_ms / 1000));
    return 0;
}

int step_loop(struct rank *rank, struct wire_done *ret_done, struct err *err)
{
    struct wire_done done = {0};
    for (int64_t step = 1; step <= rank->steps_total; step++) {
        int64_t start = clock_monotonic_ns();
        struct step_result result;
        TRY(step_commands(rank, err));
        TRY(step_gradients(rank, step, &result, err));
        TRY(step_update(rank, step, &result, err));
        step_report(rank, step, &result, (double)(clock_monotonic_ns() - start) * 1e-9);
        TRY(step_evaluate(rank, step, err));
        done.steps = (uint64_t)step;
        done.trained_tokens += (uint64_t)result.trained;
        if (result.trained > 0)
            done.final_loss = result.loss;
    }
    *ret_done = done;
    return 0;
}
