/* measure: see measure.h. */
#include "worker/measure.h"

#include "common/clock.h"
#include "common/io.h"
#include "common/json.h"
#include "common/mem.h"
#include "worker/rank.h"
#include "worker/step.h"

struct measure {
    json_t *seconds, *processor, *layer; /* one a step */
    int64_t layers;                      /* that work */
};

static int measure_step(struct rank *rank, int64_t step, struct measure *measure, struct err *err)
{
    struct step_result result;
    rank->model.layers_ns = 0;
    int64_t start = clock_monotonic_ns(), processor_ns = clock_process_ns();
    TRY(step_run(rank, step, &result, err));
    rank_check_memory(rank);
    json_t *taken = json_real((double)(clock_monotonic_ns() - start) * 1e-9);
    json_t *worked = json_real((double)(clock_process_ns() - processor_ns) * 1e-9);
    double layers = (double)(measure->layers * rank->train.micro_steps);
    int bad = json_array_append_new(measure->seconds, taken);
    bad |= json_array_append_new(measure->processor, worked);
    bad |= json_array_append_new(measure->layer,
                                 json_real((double)rank->model.layers_ns * 1e-9 / layers));
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
    json_t *json = json_pack(
        "{s:O, s:O, s:O, s:I, s:I, s:I, s:I, s:o}", "steps", measure->seconds, "processor",
        measure->processor, "layer", measure->layer, "layers", (json_int_t)measure->layers,
        "device_bytes", (json_int_t)dev->bytes_in_use(rank->device), "host_bytes",
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
}

int measure_run(struct rank *rank, struct err *err)
{
    CLEANUP(measure_done)
    struct measure measure = {.seconds = json_array(),
                              .processor = json_array(),
                              .layer = json_array(),
                              .layers =
                                  rank->shape.config.layers - rank->model.options.first_layer};
    if (measure.seconds == NULL || measure.processor == NULL || measure.layer == NULL)
        return mem_fail(err, 0, "a measurement");
    for (int64_t step = 1; step <= rank->steps_total; step++)
        TRY(measure_step(rank, step, &measure, err));
    if (rank->number == 0)
        TRY(measure_write(rank, &measure, err));
    return coll_barrier(rank->coll, err); /* all leave together */
}
