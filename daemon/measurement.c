/* measurement: see measurement.h. */
#include "daemon/measurement.h"

#include "common/io.h"
#include "common/mem.h"
#include "common/mem_measured.h"
#include "common/number.h"
#include "daemon/machine.h"

#include <stdio.h>

enum { MEASUREMENT_BYTES = 1 << 16 };

static const char *const measurement_files[] = {"measured.json", "measurement.json"};

bool measurement_is_there(const char *job_dir)
{
    CLEANUP(mem_free_ptr) char *path = io_join(job_dir, measurement_files[0]);
    return path != NULL && io_exists(path);
}

int measurement_clear(const char *job_dir, struct err *err)
{
    for (size_t i = 0; i < sizeof measurement_files / sizeof measurement_files[0]; i++) {
        CLEANUP(mem_free_ptr) char *path = io_join(job_dir, measurement_files[i]);
        if (path == NULL)
            return mem_fail(err, LIMIT_PATH_BYTES, "a path");
        TRY(io_remove_tree(path, err));
    }
    return 0;
}

static void measurement_tell(const struct mem_estimate *estimate,
                             const struct mem_measured *measured, const json_t *report,
                             char *ret_text, size_t bytes)
{
    double step_s = json_real_value(json_object_get(report, "predicted_step_s"));
    if (estimate->spec.rehearse)
        (void)snprintf(ret_text, bytes,
                       "Rehearsal is over, rank 0 of %lld with %lld of %lld layers: %.2f GiB of "
                       "the device held, a layer takes %s s; predicted of a whole step: %s s, "
                       "of it %s s waiting for the network (modelled).",
                       (long long)estimate->spec.gpus, (long long)measured->layers,
                       (long long)estimate->plan.layout.config.layers,
                       (double)measured->device_bytes * 0x1p-30,
                       number_plain(measured->layer_s, 4).text, number_plain(step_s, 4).text,
                       number_plain(estimate->time.network_wait_s, 4).text);
    else
        (void)snprintf(
            ret_text, bytes,
            "Measurement is over: a step takes %s s, %s tokens/s a rank; %.2f GiB "
            "of each device held.",
            number_plain(step_s, 4).text,
            number_plain(json_real_value(json_object_get(report, "tokens_per_s_gpu")), 5).text,
            (double)measured->device_bytes * 0x1p-30);
}

static int measurement_write(const struct measurement *measurement,
                             const struct mem_estimate *estimate,
                             const struct mem_measured *measured, char *ret_text, size_t bytes,
                             struct err *err)
{
    CLEANUP(json_unref) json_t *report = mem_measured_report_json(estimate, measured);
    CLEANUP(mem_free_ptr) char *path = io_join(measurement->job_dir, measurement_files[1]);
    if (report == NULL || path == NULL)
        return mem_fail(err, LIMIT_PATH_BYTES, "a measurement's report");
    measurement_tell(estimate, measured, report, ret_text, bytes);
    return json_write_file(path, report, 0600, err);
}

int measurement_report(const struct measurement *measurement, char *ret_text, size_t bytes,
                       struct err *err)
{
    CLEANUP(mem_free_ptr) char *path = io_join(measurement->job_dir, measurement_files[0]);
    CLEANUP(model_shape_done) struct model_shape shape = {.rows = NULL};
    CLEANUP(mem_estimate_done) struct mem_estimate estimate = {.fits = false};
    struct mem_measured measured;
    struct model_config config;
    struct time_rates rates;
    if (path == NULL)
        return mem_fail(err, LIMIT_PATH_BYTES, "a path");
    TRY(mem_measured_read(path, &measured, err));
    TRY(model_config_load(measurement->model_dir, &config, err));
    TRY(model_shape_build(&config, &shape, err));
    struct mem_ask ask = machine_ask(measurement->inventory, measurement->spec, &shape);
    machine_rates(measurement->inventory, measurement->data_dir, &ask, &rates);
    TRY(mem_estimate_make(&ask, &estimate, err));
    return measurement_write(measurement, &estimate, &measured, ret_text, bytes, err);
}

json_t *measurement_json(const char *data_dir, const char *job_id)
{
    CLEANUP(mem_free_ptr)
    char *path = mem_printf("%s/jobs/%s/%s", data_dir, job_id, measurement_files[1]);
    struct err absent; /* not one, or not over */
    json_t *report = NULL;
    if (path == NULL || json_parse_own_file(path, MEASUREMENT_BYTES, &report, &absent) != 0)
        return json_null();
    return report;
}
