/* measure: see measure.h. */
#include "worker/measure.h"

#include "common/clock.h"
#include "common/io.h"
#include "common/json.h"
#include "common/mem.h"
#include "worker/rank.h"
#include "worker/step.h"
#include "worker/train.h"

struct measure {
    json_t *seconds, *processor; /* one a step */
    json_t *layer, *mlp;         /* likewise, of one layer in one micro-step */
    json_t *waits;               /* {metric: the same} */
    int64_t layers;              /* that work */
};

/* A number at the end of waits[metric]. */
static int measure_wait(struct measure *measure, enum metric_id metric, int64_t ns)
{
    json_t *steps = json_object_get(measure->waits, metric_name(metric));
    if (steps == NULL) {
        steps = json_array();
        if (json_object_set_new(measure->waits, metric_name(metric), steps) != 0)
            return -1;
    }
    return json_array_append_new(steps, json_real((double)ns * 1e-9));
}

/* What was waited for, and computing: they add up to the step. */
static int measure_waits(struct measure *measure, const struct exposed_times *times)
{
    int bad = measure_wait(measure, METRIC_COMPUTE_S, times->compute_ns);
    for (int kind = 0; kind < EXPOSED_KINDS; kind++)
        if (times->seen[kind])
            bad |=
                measure_wait(measure, METRIC_GATHER_WAIT_S + (enum metric_id)kind, times->ns[kind]);
    return bad;
}

static int measure_step(struct rank *rank, int64_t step, struct measure *measure, struct err *err)
{
    struct step_result result;
    rank->model.layers_ns = rank->model.mlp_ns = 0;
    profile_run_before(rank, step);
    int64_t start = clock_monotonic_ns(), processor_ns = clock_process_ns();
    TRY(step_run(rank, step, &result, err));
    rank_check_memory(rank);
    double taken = (double)(clock_monotonic_ns() - start) * 1e-9;
    json_t *worked = json_real((double)(clock_process_ns() - processor_ns) * 1e-9);
    double micro_steps = (double)rank->train.micro_steps;
    double layers = (double)measure->layers * micro_steps;
    int bad = json_array_append_new(measure->seconds, json_real(taken));
    bad |= json_array_append_new(measure->processor, worked);
    bad |= json_array_append_new(measure->layer,
                                 json_real((double)rank->model.layers_ns * 1e-9 / layers));
    bad |= json_array_append_new(measure->mlp,
                                 json_real((double)rank->model.mlp_ns * 1e-9 / micro_steps));
    bad |= measure_waits(measure, &result.times);
    profile_run_after(rank, step, step == rank->steps_total);
    train_report(rank, step, &result, taken);
    return bad == 0 ? 0 : mem_fail(err, 0, "a measurement");
}

static json_t *measure_peak(const struct rank *rank)
{
    json_t *peak = json_object();
    int bad = peak == NULL;
    for (int c = 0; c < MEM_CATEGORY_COUNT; c++)
        bad |= json_object_set_new(peak, mem_category_name((enum mem_category)c),
                                   json_integer(rank->arena.peak_category[c]));
    if (bad == 0)
        return peak;
    json_decref(peak);
    return NULL;
}

static int measure_write(struct rank *rank, const struct measure *measure, struct err *err)
{
    const struct device_ops *dev = rank->device->dev;
    CLEANUP(mem_free_ptr) char *path = io_join(rank->plan->job_dir, "measured.json");
    CLEANUP(json_unref)
    json_t *json =
        json_pack("{s:O, s:O, s:O, s:O, s:O, s:I, s:I, s:I, s:I, s:o}", "steps", measure->seconds,
                  "processor", measure->processor, "layer", measure->layer, "mlp", measure->mlp,
                  "waits", measure->waits, "layers", (json_int_t)measure->layers, "device_bytes",
                  (json_int_t)dev->bytes_in_use(rank->device), "host_bytes",
                  (json_int_t)dev->host_bytes_in_use(rank->device), "taken_bytes",
                  (json_int_t)dev->bytes_taken(rank->device), "peak", measure_peak(rank));
    if (path == NULL || json == NULL)
        return mem_fail(err, LIMIT_PATH_BYTES, "a measurement");
    return json_write_file(path, json, 0600, err);
}

static void measure_done(struct measure *measure)
{
    json_decref(measure->seconds);
    json_decref(measure->processor);
    json_decref(measure->layer);
    json_decref(measure->mlp);
    json_decref(measure->waits);
}

/* Whether the job is to pause, which any of the ranks may have heard. */
static int measure_is_paused(struct rank *rank, bool *ret, struct err *err)
{
    int64_t asked = (report_take_commands(rank->report) & REPORT_COMMAND_PAUSE) != 0;
    TRY(rank_sum(rank, &asked, 1, DTYPE_I64, err));
    *ret = asked > 0;
    return 0;
}

static void measure_end(struct rank *rank, bool paused)
{
    rank_phase(rank, rank->steps_total, WIRE_PHASE_DONE);
    if (paused) /* there is nothing to go on with: it starts over */
        report_paused(rank->report, 0, 0);
    else
        report_done(rank->report, &(struct wire_done){.steps = (uint64_t)rank->steps_total});
    report_flush(rank->report, rank->plan->orphan_limit_ms);
}

int measure_run(struct rank *rank, struct err *err)
{
    bool paused = false;
    CLEANUP(measure_done)
    struct measure measure = {.seconds = json_array(),
                              .processor = json_array(),
                              .layer = json_array(),
                              .mlp = json_array(),
                              .waits = json_object(),
                              .layers =
                                  rank->shape.config.layers - rank->model.options.first_layer};
    if (measure.seconds == NULL || measure.processor == NULL || measure.layer == NULL ||
        measure.mlp == NULL || measure.waits == NULL)
        return mem_fail(err, 0, "a measurement");
    for (int64_t step = 1; step <= rank->steps_total && !paused; step++) {
        TRY(measure_step(rank, step, &measure, err));
        if (step < rank->steps_total)
            TRY(measure_is_paused(rank, &paused, err));
    }
    if (rank->number == 0 && !paused)
        TRY(measure_write(rank, &measure, err));
    TRY(coll_barrier(rank->coll, err)); /* all leave together */
    measure_end(rank, paused);
    return 0;
}
