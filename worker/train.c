/* train: see train.h. Whatever decides the way (sums over ranks, losses) is the same on all ranks,
 * so that they go it together. */
#include "worker/train.h"

#include "common/clock.h"
#include "common/must.h"
#include "common/time_plan.h"
#include "worker/checkpoint.h"
#include "worker/eval.h"
#include "worker/rank.h"
#include "worker/step.h"
#include "worker/step_gate.h"

#include <math.h>
#include <stdio.h>
#include <unistd.h>

enum { TRAIN_HELD_MS = 5 }; /* a closed step gate is looked at again */

static void train_point(struct wire_metrics *metrics, enum metric_id metric, double value)
{
    must(metrics->count < WIRE_METRICS_MAX);
    metrics->points[metrics->count++] =
        (struct wire_point){.metric = (uint16_t)metric, .value = value};
}

/* Resident memory of this process, bytes; NaN where /proc does not tell. */
static double train_host_bytes(void)
{
    FILE *file = fopen("/proc/self/statm", "re");
    long long pages = 0, resident = 0;
    if (file == NULL)
        return (double)NAN;
    int got = fscanf(file, "%lld %lld", &pages, &resident);
    (void)fclose(file); /* read only */
    return got == 2 ? (double)resident * (double)sysconf(_SC_PAGESIZE) : (double)NAN;
}

/* Model FLOPs of the step over what the devices promise, in both conventions (time_plan.h). */
static void train_mfu(const struct rank *rank, const struct step_result *result, double seconds,
                      struct wire_metrics *metrics)
{
    const struct launch_plan *plan = rank->plan;
    const struct model_config *config = &rank->shape.config;
    double peak = (double)plan->peak_flops * rank->world * seconds;
    double tokens = (double)result->tokens, full = tokens * (double)plan->spec.seq_len;
    if (plan->peak_flops == 0)
        return;
    train_point(metrics, METRIC_MFU_CAUSAL,
                time_plan_flops(config, plan->spec.lora, tokens, (double)result->pairs) / peak);
    train_point(metrics, METRIC_MFU_FULL,
                time_plan_flops(config, plan->spec.lora, tokens, full) / peak);
}

_Static_assert((int)METRIC_PEAK_COMMUNICATION_BYTES - (int)METRIC_PEAK_STATES_BYTES ==
                       (int)MEM_CATEGORY_COMMUNICATION &&
                   (int)MEM_CATEGORY_CONTEXT == (int)MEM_CATEGORY_COMMUNICATION + 1 &&
                   (int)MEM_CATEGORY_COUNT == (int)MEM_CATEGORY_CONTEXT + 1,
               "a metric a category, in their order; the driver's own is not in the arena");

/* What the arena's peak is made of, once: it stays so. */
static void train_peaks(struct rank *rank, struct wire_metrics *metrics)
{
    if (rank->peaks_told)
        return;
    rank->peaks_told = true;
    for (int category = 0; category < (int)MEM_CATEGORY_CONTEXT; category++)
        train_point(metrics, METRIC_PEAK_STATES_BYTES + (enum metric_id)category,
                    (double)rank->arena.peak_category[category]);
}

/* Where this rank's time went. */
static void train_waits(const struct rank *rank, const struct step_result *result,
                        struct wire_metrics *metrics)
{
    const struct exposed_times *times = &result->times;
    int64_t offload_ns = times->ns[EXPOSED_OFFLOAD_OUT] + times->ns[EXPOSED_OFFLOAD_IN];
    if (rank->memory.layout.layers_away > 0 || rank->memory.layout.streamed) {
        train_point(metrics, METRIC_OFFLOAD_BYTES, (double)result->offload_bytes);
        train_point(metrics, METRIC_OFFLOAD_WAIT_S, (double)offload_ns * 1e-9);
    }
    for (int kind = 0; kind < EXPOSED_KINDS; kind++)
        if (times->seen[kind])
            train_point(metrics, METRIC_GATHER_WAIT_S + (enum metric_id)kind,
                        (double)times->ns[kind] * 1e-9);
    train_point(metrics, METRIC_COMPUTE_S, (double)times->compute_ns * 1e-9);
    if (rank->plan->device == LAUNCH_CUDA)
        train_point(metrics, METRIC_PLAN_S, (double)result->plan_ns * 1e-9);
}

static void train_speed(const struct rank *rank, const struct step_result *result, double seconds,
                        struct wire_metrics *metrics)
{
    train_point(metrics, METRIC_TOKENS, (double)result->tokens);
    train_point(metrics, METRIC_TOKENS_PER_S, (double)result->tokens / seconds);
    train_mfu(rank, result, seconds, metrics);
}

/* first: of POSITION_BUCKETS metrics that follow each other. */
static void train_positions(const struct positions *positions, enum metric_id first,
                            struct wire_metrics *metrics)
{
    for (int i = 0; i < POSITION_BUCKETS; i++)
        if (positions->trained[i] > 0)
            train_point(metrics, first + (enum metric_id)i, positions->loss[i]);
}

static void train_learnt(const struct step_result *result, struct wire_metrics *metrics)
{
    train_point(metrics, METRIC_LEARNING_RATE, result->rate);
    train_point(metrics, METRIC_TRAINED_TOKENS, (double)result->trained);
    if (result->trained == 0)
        return;
    train_point(metrics, METRIC_LOSS, result->loss);
    train_positions(&result->positions, METRIC_LOSS_POS_0, metrics);
    train_point(metrics, METRIC_GRAD_NORM, result->norm);
    train_point(metrics, METRIC_ACCURACY, (double)result->correct / (double)result->trained);
}

void train_report(struct rank *rank, int64_t step, const struct step_result *result, double seconds)
{
    struct wire_metrics metrics = {.step = (uint64_t)step,
                                   .wall_s = (double)clock_wall_ms() * 1e-3};
    if (rank->number == 0 && !rank->plan->spec.rehearse) /* which has no peers to be slowed by */
        train_speed(rank, result, seconds, &metrics);
    if (rank->number == 0 && rank->plan->purpose == LAUNCH_TRAIN)
        train_learnt(result, &metrics);
    if (rank->number == 0)
        train_point(&metrics, METRIC_STEP_TIME_S, seconds);
    train_point(&metrics, METRIC_HOST_BYTES, train_host_bytes());
    double device = (double)arena_bytes(&rank->arena, MEM_ARENA_DEVICE);
    train_point(&metrics, METRIC_ARENA_BYTES, device);
    train_point(&metrics, METRIC_ARENA_PEAK_BYTES, device);
    train_point(&metrics, METRIC_HOST_ARENA_BYTES,
                (double)arena_bytes(&rank->arena, MEM_ARENA_HOST));
    int64_t taken = rank->device->dev->bytes_taken(rank->device);
    if (taken > 0)
        train_point(&metrics, METRIC_DEVICE_BYTES, (double)taken);
    train_peaks(rank, &metrics);
    train_waits(rank, result, &metrics);
    report_metrics(rank->report, &metrics);
}

static void train_report_evaluation(struct rank *rank, const struct eval_result *result)
{
    struct wire_metrics metrics = {.step = (uint64_t)rank->progress.step,
                                   .wall_s = (double)clock_wall_ms() * 1e-3};
    if (rank->number != 0)
        return;
    train_point(&metrics, METRIC_VALID_LOSS, result->loss);
    train_point(&metrics, METRIC_VALID_ACCURACY, result->accuracy);
    train_positions(&result->positions, METRIC_VALID_LOSS_POS_0, &metrics);
    report_metrics(rank->report, &metrics);
}

/* An evaluation and what it says of the best so far. */
static int train_evaluate(struct rank *rank, struct err *err)
{
    struct checkpoint_progress *progress = &rank->progress;
    bool due = progress->step % rank->plan->spec.eval_every_steps == 0 ||
               progress->step == rank->steps_total;
    if (rank->valid.data.examples == 0 || !due)
        return 0;
    rank_phase(rank, progress->step, WIRE_PHASE_EVALUATE);
    struct eval_result result;
    TRY(eval_run(rank, &result, err));
    rank_check_memory(rank);
    if (result.trained == 0)
        return 0;
    train_report_evaluation(rank, &result);
    progress->valid_loss = result.loss;
    progress->stale++;
    if (progress->best_step == 0 || result.loss < progress->best_valid_loss) {
        progress->best_valid_loss = result.loss;
        progress->best_step = progress->step;
        progress->stale = 0;
    }
    return 0;
}

static int train_step(struct rank *rank, struct err *err)
{
    struct checkpoint_progress *progress = &rank->progress;
    int64_t step = progress->step + 1;
    struct step_result result;
    profile_run_before(rank, step);
    int64_t start = clock_monotonic_ns();
    TRY(step_run(rank, step, &result, err));
    rank_check_memory(rank);
    train_report(rank, step, &result, (double)(clock_monotonic_ns() - start) * 1e-9);
    profile_run_after(rank, step, false);
    progress->step = step;
    progress->updates = rank->optim.updates;
    progress->trained_tokens += result.trained;
    progress->valid_loss = (double)NAN;
    if (result.trained > 0)
        progress->loss = result.loss;
    return train_evaluate(rank, err);
}

static bool train_is_over(const struct rank *rank)
{
    const struct checkpoint_progress *progress = &rank->progress;
    int64_t patience = rank->plan->spec.eval_early_stop_patience; /* 0: null */
    if (progress->step >= rank->steps_total)
        return true;
    if (patience == 0 || progress->stale < patience)
        return false;
    if (rank->number == 0)
        report_event(rank->report, 0,
                     "validation loss has not improved for %lld evaluations: training stops; the "
                     "lowest was %.6g at step %lld",
                     (long long)progress->stale, progress->best_valid_loss,
                     (long long)progress->best_step);
    return true;
}

/* A checkpoint that may fail. */
static int train_save(struct rank *rank, struct err *err)
{
    int rc = checkpoint_save(rank, err);
    if (rc == 0 || !checkpoint_is_harmless(rc))
        return rc;
    if (rank->number == 0)
        report_event(rank->report, 1, "%s; training goes on", err->text);
    return 0;
}

static int train_save_when_due(struct rank *rank, struct err *err)
{
    const struct job_spec *spec = &rank->plan->spec;
    const struct checkpoint_progress *progress = &rank->progress;
    bool best = spec->eval_export_best && progress->best_step == progress->step;
    if (progress->step % spec->save_every_steps != 0 && !best)
        return 0;
    return train_save(rank, err);
}

enum train_next {
    TRAIN_NEXT_STEP,
    TRAIN_NEXT_WAIT, /* the step gate is closed */
    TRAIN_NEXT_END   /* paused or orphaned, and saved */
};

/* Steps that the daemon wants profiled: it tells rank 0 alone. */
static int64_t train_profile_asked(struct rank *rank)
{
    int64_t steps = report_take_profile(rank->report);
    return rank->number == 0 ? steps : 0;
}

static void train_profile(struct rank *rank, int64_t steps)
{
    if (steps == 0 || profile_run_ask(&rank->profiling, rank->progress.step + 1, steps))
        return;
    if (rank->number == 0)
        report_event(rank->report, 1,
                     "Steps %lld to %lld are being profiled already; ask again after them.",
                     (long long)rank->profiling.first, (long long)rank->profiling.last);
}

/* What the daemon asked any rank for, or its long silence; then what comes next. */
static int train_commands(struct rank *rank, enum train_next *ret_next, enum train_end *ret_end,
                          struct err *err)
{
    unsigned commands = report_take_commands(rank->report);
    int64_t asked[5] = {(commands & REPORT_COMMAND_PAUSE) != 0,
                        (commands & REPORT_COMMAND_CHECKPOINT) != 0, report_orphaned(rank->report),
                        step_gate_last() <= rank->progress.step, train_profile_asked(rank)};
    TRY(rank_sum(rank, asked, 5, DTYPE_I64, err));
    train_profile(rank, asked[4]);
    bool pause = asked[0] > 0, orphaned = asked[2] > 0;
    bool saved = rank->saved_step == rank->progress.step;
    *ret_next = asked[3] > 0 ? TRAIN_NEXT_WAIT : TRAIN_NEXT_STEP;
    if (asked[1] > 0 && !saved && !pause && !orphaned)
        return train_save(rank, err);
    if (!pause && !orphaned)
        return 0;
    if (!saved)
        TRY(checkpoint_save(rank, err));
    *ret_next = TRAIN_NEXT_END;
    *ret_end = pause ? TRAIN_PAUSED : TRAIN_ORPHANED;
    return 0;
}

static int train_loop(struct rank *rank, enum train_end *ret_end, struct err *err)
{
    enum train_next next;
    *ret_end = TRAIN_FINISHED;
    while (!train_is_over(rank)) {
        TRY(train_commands(rank, &next, ret_end, err));
        if (next == TRAIN_NEXT_END)
            return 0;
        if (next == TRAIN_NEXT_WAIT) {
            clock_sleep_ms(TRAIN_HELD_MS);
            continue;
        }
        TRY(train_step(rank, err));
        if (rank->progress.step < rank->steps_total)
            TRY(train_save_when_due(rank, err));
    }
    return 0;
}

int train_run(struct rank *rank, enum train_end *ret_end, struct err *err)
{
    TRY(train_loop(rank, ret_end, err));
    profile_run_after(rank, rank->progress.step, true);
    return 0;
}
