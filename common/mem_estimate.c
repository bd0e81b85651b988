/* mem_estimate: see mem_estimate.h. */
#include "common/mem_estimate.h"

#include "common/lora_shape.h"
#include "common/mem.h"
#include "common/mem_advice.h"
#include "common/must.h"
#include "common/number.h"

enum { ESTIMATE_ADVICE_BYTES = 2048, ESTIMATE_STEP = 1024 };
#define ESTIMATE_GIB ((int64_t)1 << 30)

/* The smaller of two limits, 0 being none. */
static int64_t estimate_limit(int64_t bytes, int64_t gib)
{
    int64_t other = gib * ESTIMATE_GIB;
    if (bytes == 0 || other == 0)
        return bytes + other;
    return bytes < other ? bytes : other;
}

static bool estimate_within(int64_t bytes, int64_t limit)
{
    return limit == 0 || bytes <= limit;
}

/* *sum += count * each; false when that overflows. */
static bool estimate_add(int64_t count, int64_t each, int64_t *sum)
{
    int64_t bytes;
    return !__builtin_mul_overflow(count, each, &bytes) &&
           !__builtin_add_overflow(*sum, bytes, sum);
}

int64_t mem_disk_bytes(const struct model_shape *shape, const struct job_spec *spec,
                       int64_t checkpoints)
{
    int64_t trained = spec->lora ? lora_shape_parameters(shape, spec) : shape->parameters;
    bool model = !spec->lora || spec->lora_export != JOB_lora_export_ADAPTER;
    bool adapters = spec->lora && spec->lora_export != JOB_lora_export_MERGED;
    int64_t sum = 0;
    if (job_spec_measures(spec))
        return 0;
    bool good = estimate_add(trained, MEM_CHECKPOINT_PARAMETER_BYTES * checkpoints, &sum) &&
                estimate_add(shape->parameters, model ? MEM_MODEL_PARAMETER_BYTES : 0, &sum) &&
                estimate_add(trained, adapters ? MEM_MODEL_PARAMETER_BYTES : 0, &sum);
    return good ? sum : INT64_MAX;
}

static int estimate_settle(const struct mem_ask *ask, struct job_spec *spec, struct err *err)
{
    const struct model_config *config = &ask->shape->config;
    const struct job_facts facts = {.ranks_max = ask->ranks_max,
                                    .heads = config->heads,
                                    .kv_heads = config->kv_heads,
                                    .layers = config->layers,
                                    .context_max = config->context_max};
    return ask->planned ? job_spec_settle(spec, &facts, err) : job_spec_resolve(spec, &facts, err);
}

/* The plan of the settled spec, and whether it fits. */
static int estimate_plan(const struct mem_ask *ask, struct mem_estimate *estimate, struct err *err)
{
    const struct mem_request request = {.shape = ask->shape,
                                        .spec = &estimate->spec,
                                        .world = (int)estimate->spec.gpus,
                                        .backend = ask->backend};
    mem_plan_done(&estimate->plan);
    TRY(mem_plan_build(&request, &estimate->plan, err));
    const int64_t *bytes = estimate->plan.arena_bytes;
    int64_t shared = ask->backend == MEM_BACKEND_CPU ? bytes[MEM_ARENA_DEVICE] : 0;
    if (__builtin_mul_overflow(bytes[MEM_ARENA_HOST] + shared, job_spec_slots(&estimate->spec),
                               &estimate->host_bytes))
        estimate->host_bytes = INT64_MAX;
    if (__builtin_mul_overflow(bytes[MEM_ARENA_FILE], job_spec_slots(&estimate->spec),
                               &estimate->file_bytes))
        estimate->file_bytes = INT64_MAX;
    estimate->fits = estimate_within(estimate->plan.peak_device_bytes, estimate->device_limit) &&
                     estimate_within(estimate->host_bytes, estimate->host_limit);
    return 0;
}

/* So many layers keep theirs on the host; of the others, those that leave the device, in the file.
 */
static void estimate_keep_on_host(struct job_spec *spec, int64_t away, int64_t layers)
{
    if (spec->offload == JOB_offload_HOST)
        spec->offload_layers = layers;
    else
        spec->file_layers = away - layers;
}

/* As many layers on the host as its memory holds, where that is left open: under `host` when all
 * are too many and the device has room for the others, under `file` when a share of the host is
 * given. Fewer layers there always take less, so the number is found by halving. */
static int estimate_offload(const struct mem_ask *ask, struct mem_estimate *estimate,
                            struct err *err)
{
    struct job_spec *spec = &estimate->spec;
    bool to_file = spec->offload == JOB_offload_FILE;
    bool is_short = to_file ? spec->host_memory_gib > 0
                            : !estimate_within(estimate->host_bytes, estimate->host_limit);
    bool open = to_file ? spec->file_layers == 0
                        : spec->offload == JOB_offload_HOST && spec->offload_layers == 0;
    if (!open || !is_short)
        return 0;
    int64_t away = estimate->plan.layout.layers_away, good = 0, bad = away;
    while (bad - good > 1) {
        int64_t layers = good + (bad - good) / 2;
        estimate_keep_on_host(spec, away, layers);
        TRY(estimate_plan(ask, estimate, err));
        if (estimate_within(estimate->host_bytes, estimate->host_limit))
            good = layers;
        else
            bad = layers;
    }
    estimate_keep_on_host(spec, away, good);
    TRY(estimate_plan(ask, estimate, err));
    if (to_file || (good > 0 && estimate->fits))
        return 0;
    spec->offload_layers = 0; /* nor is there room on the device */
    return estimate_plan(ask, estimate, err);
}

static struct time_plan estimate_time(const struct mem_ask *ask, const struct job_spec *spec,
                                      const struct mem_layout *layout)
{
    struct time_plan time = {0};
    const struct time_job job = {.layout = layout,
                                 .shape = ask->shape,
                                 .micro_steps = spec->grad_accum,
                                 .seq_len = spec->seq_len,
                                 .document_tokens = ask->document_tokens};
    if (ask->rates != NULL)
        time_plan_make(&job, spec->sequences, ask->rates, &time);
    return time;
}

int mem_estimate_time(const struct mem_ask *ask, struct job_spec *ret_settled,
                      struct time_plan *ret_time, struct err *err)
{
    must(ask->rates != NULL);
    struct job_spec spec = *ask->spec;
    TRY(estimate_settle(ask, &spec, err));
    const struct mem_request request = {
        .shape = ask->shape, .spec = &spec, .world = (int)spec.gpus, .backend = ask->backend};
    struct mem_layout layout = mem_layout_make(&request);
    if (!ask->unchecked)
        TRY(mem_layout_check(&layout, err));
    *ret_time = estimate_time(ask, &spec, &layout);
    *ret_settled = spec;
    return 0;
}

int mem_estimate_make(const struct mem_ask *ask, struct mem_estimate *ret, struct err *err)
{
    struct mem_estimate estimate = {.spec = *ask->spec};
    struct err ignored = {0};
    TRY(estimate_settle(ask, &estimate.spec, err));
    estimate.device_limit = estimate_limit(ask->device_bytes, estimate.spec.memory_limit_gib);
    estimate.host_limit = estimate_limit(ask->host_bytes, estimate.spec.host_memory_gib);
    int rc = estimate_plan(ask, &estimate, err);
    if (rc == 0)
        rc = estimate_offload(ask, &estimate, err);
    if (rc == 0 && !ask->unchecked)
        rc = mem_layout_check(&estimate.plan.layout, err);
    if (rc != 0) {
        mem_plan_done(&estimate.plan);
        return rc;
    }
    estimate.disk_bytes = mem_disk_bytes(ask->shape, &estimate.spec, estimate.spec.save_keep + 1);
    if (!estimate_add(1, estimate.file_bytes, &estimate.disk_bytes))
        estimate.disk_bytes = INT64_MAX;
    estimate.served = job_spec_check_served(&estimate.spec, &ignored) == 0;
    estimate.rates = ask->rates;
    estimate.time = estimate_time(ask, &estimate.spec, &estimate.plan.layout);
    *ret = estimate;
    return 0;
}

void mem_estimate_done(struct mem_estimate *estimate)
{
    mem_plan_done(&estimate->plan);
}

int mem_estimate_check_need(const struct mem_estimate *estimate, struct err *err)
{
    if (estimate->fits)
        return 0;
    bool device = !estimate_within(estimate->plan.peak_device_bytes, estimate->device_limit);
    int64_t need = device ? estimate->plan.peak_device_bytes : estimate->host_bytes;
    int64_t have = device ? estimate->device_limit : estimate->host_limit;
    return err_set_field(err, ERR_DOES_NOT_FIT, "ithaca.seq_len",
                         "the job needs %s GiB of %s, there are %s (most in %s)",
                         number_plain((double)need * 0x1p-30, 4).text,
                         device ? "device memory a rank" : "host memory, all ranks together",
                         number_plain((double)have * 0x1p-30, 4).text,
                         mem_phase_name(estimate->plan.peak_phase));
}

int mem_estimate_check(const struct mem_ask *ask, const struct mem_estimate *estimate,
                       struct err *err)
{
    struct err need;
    CLEANUP(buf_done) struct buf advice;
    buf_init(&advice, ESTIMATE_ADVICE_BYTES);
    if (mem_estimate_check_need(estimate, &need) == 0)
        return 0;
    TRY(mem_advice_write(ask, &advice, err));
    const char *rest = advice.length > 0 ? buf_str(&advice) : "nothing that can be changed helps";
    return err_set_field(err, need.code, need.field, "%s: %s", need.text, rest);
}

/* Whether a length fits. A length that cannot be planned (spans, sizes) does not. */
static int estimate_fits(const struct mem_ask *ask, int64_t seq_len, bool *ret_fits,
                         struct err *err)
{
    struct job_spec spec = *ask->spec;
    struct mem_ask longer = *ask;
    struct mem_estimate estimate;
    spec.seq_len = seq_len;
    longer.spec = &spec;
    int rc = mem_estimate_make(&longer, &estimate, err);
    *ret_fits = rc == 0 && estimate.fits;
    if (rc == 0)
        mem_estimate_done(&estimate);
    return rc == -ERR_UNSUPPORTED || rc == -ERR_DOES_NOT_FIT ? 0 : rc;
}

int mem_estimate_longest(const struct mem_ask *ask, int64_t *ret_seq_len, struct err *err)
{
    int64_t fits = 0, beyond = LIMIT_SEQ_LEN + 1;
    while (beyond - fits > 1) {
        bool good;
        int64_t middle = fits + (beyond - fits) / 2;
        if (middle < 2) /* the shortest sequence there is */
            break;
        TRY(estimate_fits(ask, middle, &good, err));
        if (good)
            fits = middle;
        else
            beyond = middle;
    }
    *ret_seq_len = fits >= ESTIMATE_STEP ? fits / ESTIMATE_STEP * ESTIMATE_STEP : fits;
    return 0;
}
