/* local_measure: see local_measure.h. The job's folder gets a config.json and a shard of random
 * tokens, nothing else: the ranks make their weights themselves. */
#include "clients/cli/local_measure.h"

#include "common/dataset_random.h"
#include "common/io.h"
#include "common/mem.h"
#include "common/model_config.h"

#include <stdio.h>
#include <string.h>

static int measure_config(const struct local_run *run, const struct model_config *config,
                          struct err *err)
{
    CLEANUP(json_unref) json_t *json = model_config_json(config);
    CLEANUP(mem_free_ptr) char *path = io_join(run->plan.model_dir, "config.json");
    if (json == NULL || path == NULL)
        return mem_fail(err, LIMIT_PATH_BYTES, "a model's configuration");
    return json_write_file(path, json, 0600, err);
}

/* One document is enough: epochs follow on each other. Of shorter ones a step's. */
static int measure_tokens(const struct local_run *run, const struct mem_ask *ask, struct err *err)
{
    const struct job_spec *spec = &run->plan.spec;
    CLEANUP(mem_free_ptr) char *folder = io_join(run->plan.job_dir, "tokens");
    CLEANUP(mem_free_ptr) char *path = folder == NULL ? NULL : io_join(folder, "train.tok");
    bool whole = ask->document_tokens == 0 || ask->document_tokens >= spec->seq_len;
    int64_t length = whole ? spec->seq_len : ask->document_tokens;
    int64_t documents = whole ? 1 : spec->seq_len / length * spec->sequences;
    if (path == NULL)
        return mem_fail(err, LIMIT_PATH_BYTES, "a path");
    TRY(io_make_dirs(folder, 0700, err));
    return dataset_random_write(path, documents, length, ask->shape->config.vocab_size, err);
}

static int measure_run(struct local_run *run, const struct mem_ask *ask,
                       const struct mem_estimate *estimate, int64_t steps, struct mem_measured *ret,
                       struct err *err)
{
    run->plan.spec.max_steps = steps;
    run->plan.spec.n_epochs = 0;
    run->plan.spec.warmup_steps = run->plan.spec.decay_steps = 0;
    memcpy(run->plan.memory_digest, estimate->plan.digest, sizeof run->plan.memory_digest);
    TRY(measure_config(run, &ask->shape->config, err));
    TRY(measure_tokens(run, ask, err));
    TRY(local_run_start(run, err));
    CLEANUP(mem_free_ptr) char *path = io_join(run->plan.job_dir, "measured.json");
    return path != NULL ? mem_measured_read(path, ret, err)
                        : mem_fail(err, LIMIT_PATH_BYTES, "a path");
}

int local_measure(const struct mem_ask *ask, const struct mem_estimate *estimate, int64_t steps,
                  struct mem_measured *ret, struct err *err)
{
    CLEANUP(local_run_done) struct local_run run = {.worker = NULL};
    struct mem_measured measured = {.run = false};
    int rc = -ERR_UNSUPPORTED;
    if (!estimate->fits)
        (void)err_set(err, ERR_UNSUPPORTED, "it does not fit");
    else if (ask->backend == MEM_BACKEND_CUDA_OWN)
        (void)err_set(err, ERR_UNSUPPORTED, "backend cuda_own is planned only");
    else
        rc = job_spec_check_served(&estimate->spec, err);
    if (rc == 0)
        rc = mem_layout_check(&estimate->plan.layout, err);
    if (rc == 0)
        rc = local_run_open(&run, LAUNCH_MEASURE, ask->backend, &estimate->spec, err);
    if (rc == 0)
        rc = measure_run(&run, ask, estimate, steps, &measured, err);
    if (rc == -ERR_NOMEM || rc == -ERR_RANK_START || rc == -ERR_CANCELLED)
        return rc;
    if (rc != 0)
        (void)snprintf(measured.why, sizeof measured.why, "%s", err->text);
    *ret = measured;
    return 0;
}
