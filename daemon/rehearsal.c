/* rehearsal: see rehearsal.h. */
#include "daemon/rehearsal.h"

#include "common/io.h"
#include "common/mem.h"
#include "common/mem_measured.h"
#include "daemon/machine.h"

#include <stdio.h>

enum { REHEARSAL_BYTES = 1 << 16 };

static const char *const rehearsal_files[] = {"measured.json", "rehearsal.json"};

bool rehearsal_is_measured(const char *job_dir)
{
    CLEANUP(mem_free_ptr) char *path = io_join(job_dir, rehearsal_files[0]);
    return path != NULL && io_exists(path);
}

int rehearsal_clear(const char *job_dir, struct err *err)
{
    for (size_t i = 0; i < sizeof rehearsal_files / sizeof rehearsal_files[0]; i++) {
        CLEANUP(mem_free_ptr) char *path = io_join(job_dir, rehearsal_files[i]);
        if (path == NULL)
            return mem_fail(err, LIMIT_PATH_BYTES, "a path");
        TRY(io_remove_tree(path, err));
    }
    return 0;
}

static int rehearsal_write(const struct rehearsal *rehearsal, const struct mem_estimate *estimate,
                           const struct mem_measured *measured, char *ret_text, size_t bytes,
                           struct err *err)
{
    CLEANUP(json_unref) json_t *report = mem_measured_rehearsal_json(estimate, measured);
    CLEANUP(mem_free_ptr) char *path = io_join(rehearsal->job_dir, rehearsal_files[1]);
    if (report == NULL || path == NULL)
        return mem_fail(err, LIMIT_PATH_BYTES, "a rehearsal's report");
    (void)snprintf(ret_text, bytes,
                   "Rehearsal is over, rank 0 of %lld with %lld of %lld layers: %.2f GiB of the "
                   "device held, a layer takes %.4g s; predicted of a whole step: %.4g s, of it "
                   "%.4g s waiting for the network (modelled).",
                   (long long)estimate->spec.gpus, (long long)measured->layers,
                   (long long)estimate->plan.layout.config.layers,
                   (double)measured->device_bytes * 0x1p-30, measured->layer_s,
                   json_real_value(json_object_get(report, "predicted_step_s")),
                   estimate->time.network_wait_s);
    return json_write_file(path, report, 0600, err);
}

int rehearsal_report(const struct rehearsal *rehearsal, char *ret_text, size_t bytes,
                     struct err *err)
{
    CLEANUP(mem_free_ptr) char *path = io_join(rehearsal->job_dir, rehearsal_files[0]);
    CLEANUP(model_shape_done) struct model_shape shape = {.rows = NULL};
    CLEANUP(mem_estimate_done) struct mem_estimate estimate = {.fits = false};
    struct mem_measured measured;
    struct model_config config;
    struct time_rates rates;
    if (path == NULL)
        return mem_fail(err, LIMIT_PATH_BYTES, "a path");
    TRY(mem_measured_read(path, &measured, err));
    TRY(model_config_load(rehearsal->model_dir, &config, err));
    TRY(model_shape_build(&config, &shape, err));
    struct mem_ask ask = machine_ask(rehearsal->inventory, rehearsal->spec, &shape);
    machine_rates(rehearsal->inventory, rehearsal->data_dir, &ask, &rates);
    TRY(mem_estimate_make(&ask, &estimate, err));
    return rehearsal_write(rehearsal, &estimate, &measured, ret_text, bytes, err);
}

json_t *rehearsal_json(const char *data_dir, const char *job_id)
{
    CLEANUP(mem_free_ptr)
    char *path = mem_printf("%s/jobs/%s/%s", data_dir, job_id, rehearsal_files[1]);
    struct err absent; /* not one, or not over */
    json_t *report = NULL;
    if (path == NULL || json_parse_own_file(path, REHEARSAL_BYTES, &report, &absent) != 0)
        return json_null();
    return report;
}
