/* profile_advice: see profile_advice.h. A rule looks at one cause of lost time and, where there is
 * a setting against it, changes a copy of the job's; the plan of that says what it costs. */
#include "worker/profile_advice.h"

#include "common/host_memory.h"
#include "common/job_field.h"
#include "common/mem.h"
#include "common/mem_estimate.h"

#include <string.h>

enum { ADVICE_TEXT_BYTES = 1024, ADVICE_TILE_TIMES = 4 };

/* Share of the steps below which a cause is not worth a word. */
static const double advice_least = 0.02;

struct advice {
    const struct profile_job *job;
    const struct profile_sums *sums;
    struct mem_ask ask;      /* of the job as it is */
    struct mem_estimate now; /* its plan */
    json_t *list;            /* all that was found */
};

/* ---- the rules --------------------------------------------------------------------------- */

static double advice_wait(const struct advice *advice, enum metric_id metric)
{
    return profile_sums_share(advice->sums,
                              profile_sums_ns(advice->sums, PROFILE_WAIT, metric_name(metric)));
}

static double advice_exchange(const struct advice *advice)
{
    return advice_wait(advice, METRIC_EXCHANGE_WAIT_S);
}

static double advice_gather(const struct advice *advice)
{
    return advice_wait(advice, METRIC_GATHER_WAIT_S);
}

static double advice_ring(const struct advice *advice)
{
    return advice_wait(advice, METRIC_RING_WAIT_S);
}

static double advice_offload(const struct advice *advice)
{
    return advice_wait(advice, METRIC_OFFLOAD_OUT_WAIT_S) +
           advice_wait(advice, METRIC_OFFLOAD_IN_WAIT_S);
}

static double advice_states(const struct advice *advice)
{
    return advice_wait(advice, METRIC_STATES_WAIT_S);
}

/* Layers that are computed again in backward for the inputs of others. */
static double advice_replay(const struct advice *advice)
{
    const char *part = mem_phase_name(MEM_PHASE_REPLAY);
    return profile_sums_share(advice->sums, profile_sums_ns(advice->sums, PROFILE_PART, part));
}

/* What of its forward a layer computes again in backward. */
static double advice_again(const struct advice *advice)
{
    int64_t ns = 0;
    for (int p = MEM_PHASE_AGAIN_KV; p <= MEM_PHASE_AGAIN_RETURN; p++)
        ns += profile_sums_ns(advice->sums, PROFILE_PART, mem_phase_name((enum mem_phase)p));
    return profile_sums_share(advice->sums, ns);
}

static double advice_idle(const struct advice *advice)
{
    bool whole = profile_job_is_whole(advice->job);
    return whole ? profile_sums_share(advice->sums, advice->sums->all.idle_ns) : 0;
}

/* Each makes the change, or tells that there is none to make. */
static bool advice_set_overlap(struct job_spec *spec)
{
    if (spec->context_kind != JOB_context_kind_UPIPE || spec->overlap != JOB_overlap_OFF)
        return false;
    spec->overlap = JOB_overlap_ON;
    return true;
}

static bool advice_set_stage(struct job_spec *spec)
{
    if (spec->context_kind != JOB_context_kind_UPIPE || spec->heads_per_stage < 1)
        return false;
    spec->heads_per_stage *= 2;
    return true;
}

static bool advice_set_whole(struct job_spec *spec)
{
    bool was = spec->fsdp;
    spec->fsdp = false;
    return was && spec->gpus > 1;
}

/* The ring's ranks exchange heads instead, where the model's heads allow it. */
static bool advice_set_ulysses(struct job_spec *spec)
{
    if (spec->ring < 2)
        return false;
    if (spec->context_kind == JOB_context_kind_RING)
        spec->context_kind = JOB_context_kind_ULYSSES;
    spec->ulysses *= spec->ring;
    spec->ring = 1;
    spec->heads_per_stage = JOB_AUTO;
    return true;
}

static bool advice_set_offload(struct job_spec *spec)
{
    if (spec->offload != JOB_offload_HOST && spec->offload != JOB_offload_FILE)
        return false;
    spec->offload = JOB_offload_NONE;
    spec->offload_layers = spec->file_layers = 0;
    return true;
}

static bool advice_set_residual(struct job_spec *spec)
{
    if (spec->stream_residual != JOB_toggle_ON)
        return false;
    spec->stream_residual = JOB_toggle_OFF;
    return true;
}

static bool advice_set_states(struct job_spec *spec)
{
    if (spec->states == JOB_states_DEVICE)
        return false;
    spec->states = JOB_states_DEVICE;
    return true;
}

static bool advice_set_inputs(struct job_spec *spec)
{
    if (spec->keep_input_every < 2)
        return false;
    spec->keep_input_every = 1;
    return true;
}

static bool advice_set_recompute(struct job_spec *spec)
{
    if (spec->recompute == JOB_recompute_NONE)
        return false;
    spec->recompute = JOB_recompute_NONE;
    spec->keep_input_every = 1;
    return true;
}

static bool advice_set_tiles(struct job_spec *spec)
{
    if (spec->tile_mlp < 1)
        return false;
    spec->tile_mlp *= ADVICE_TILE_TIMES;
    return true;
}

struct advice_rule {
    const char *cause; /* as the summary calls it */
    const char *lost;  /* "3.1 % of the step ..." */
    const char *gain;  /* what the change does */
    double (*share)(const struct advice *advice);
    bool (*set)(struct job_spec *spec);
};
static const struct advice_rule advice_rules[] = {
    {.cause = "exchange_wait_s",
     .lost = "goes into waiting for all-to-alls of attention",
     .gain = "lets the next stage's exchange run under this stage's attention",
     .share = advice_exchange,
     .set = advice_set_overlap},
    {.cause = "exchange_wait_s",
     .lost = "goes into waiting for all-to-alls of attention",
     .gain = "makes half as many exchanges, each twice as large",
     .share = advice_exchange,
     .set = advice_set_stage},
    {.cause = "gather_wait_s",
     .lost = "goes into waiting for gathered weights",
     .gain = "keeps all weights on every rank, so that none are gathered",
     .share = advice_gather,
     .set = advice_set_whole},
    {.cause = "ring_wait_s",
     .lost = "goes into waiting for keys and values of the ring",
     .gain = "exchanges heads instead of passing them from rank to rank",
     .share = advice_ring,
     .set = advice_set_ulysses},
    {.cause = "offload_out_wait_s, offload_in_wait_s",
     .lost = "goes into waiting for offloaded tensors",
     .gain = "keeps them on the device",
     .share = advice_offload,
     .set = advice_set_offload},
    {.cause = "offload_out_wait_s, offload_in_wait_s",
     .lost = "goes into waiting for tensors of the host",
     .gain = "keeps the residual stream on the device",
     .share = advice_offload,
     .set = advice_set_residual},
    {.cause = "states_wait_s",
     .lost = "goes into waiting for master weights and moments that pass through the device",
     .gain = "keeps them on the device",
     .share = advice_states,
     .set = advice_set_states},
    {.cause = "parts",
     .lost = "computes layers again for the inputs of others",
     .gain = "keeps the input of each",
     .share = advice_replay,
     .set = advice_set_inputs},
    {.cause = "parts",
     .lost = "computes parts of forward again in backward",
     .gain = "keeps what is computed again",
     .share = advice_again,
     .set = advice_set_recompute},
    {.cause = "idle",
     .lost = "has neither work nor anything that is waited for",
     .gain = "makes fewer, longer kernels",
     .share = advice_idle,
     .set = advice_set_tiles},
};

/* ---- what a change costs ----------------------------------------------------------------- */

/* {"field.path": value} of each field that another value has than in the job as it is. */
static json_t *advice_changes(const struct job_spec *now, const struct job_spec *then)
{
    json_t *set = json_object();
    int bad = set == NULL;
    for (size_t i = 0; i < job_field_count && bad == 0; i++) {
        CLEANUP(json_unref) json_t *before = job_field_json(&job_fields[i], now);
        CLEANUP(json_unref) json_t *after = job_field_json(&job_fields[i], then);
        bad |= before == NULL || after == NULL;
        if (bad == 0 && !json_equal(before, after))
            bad |= json_object_set(set, job_fields[i].path, after);
    }
    if (bad == 0)
        return set;
    json_decref(set);
    return NULL;
}

/* "; it costs 1.2 GiB a rank" */
static void advice_bytes(const char *verb, int64_t bytes, const char *whose, struct buf *out)
{
    double size = (double)(bytes < 0 ? -bytes : bytes) * 0x1p-20;
    bool large = size >= 1024;
    buf_printf(out, "%s %.1f %s %s", verb, large ? size / 1024 : size, large ? "GiB" : "MiB",
               whose);
}

static void advice_text(const struct advice_rule *rule, double share, const json_t *set,
                        const struct mem_estimate *then, int64_t device, int64_t host,
                        struct buf *out)
{
    const char *field, *before = ": ";
    json_t *value;
    buf_printf(out, "%.1f %% of the time %s", share * 100, rule->lost);
    json_object_foreach((json_t *)(uintptr_t)set, field, value)
    {
        char text[64];
        json_brief(value, text, sizeof text);
        buf_printf(out, "%s%s %s", before, field, text);
        before = ", ";
    }
    buf_printf(out, " %s", rule->gain);
    if (device == 0)
        buf_text(out, "; it takes no more memory of a rank");
    else
        advice_bytes(device > 0 ? "; it costs" : "; it frees", device, "a rank", out);
    if (host != 0 && then->plan.layout.backend != MEM_BACKEND_CPU)
        advice_bytes(host > 0 ? " and costs" : " and frees", host, "of the host", out);
    buf_text(out, then->fits ? ", and fits" : ", and does not fit");
}

/* A change that the job cannot make is no advice. */
static int advice_try(struct advice *advice, const struct advice_rule *rule, double share,
                      struct err *err)
{
    struct job_spec spec = advice->job->plan.spec;
    struct mem_ask ask = advice->ask;
    CLEANUP(mem_estimate_done) struct mem_estimate then = {.fits = false};
    CLEANUP(buf_done) struct buf text;
    struct err illegal;
    buf_init(&text, ADVICE_TEXT_BYTES);
    if (!rule->set(&spec))
        return 0;
    ask.spec = &spec;
    if (mem_estimate_make(&ask, &then, &illegal) != 0)
        return 0;
    CLEANUP(json_unref) json_t *set = advice_changes(&advice->now.spec, &then.spec);
    if (set == NULL)
        return mem_fail(err, 0, "advice");
    if (json_object_size(set) == 0)
        return 0; /* settled to what it is already */
    int64_t device = then.plan.peak_device_bytes - advice->now.plan.peak_device_bytes;
    int64_t host = then.host_bytes - advice->now.host_bytes;
    advice_text(rule, share, set, &then, device, host, &text);
    json_t *one =
        json_pack("{s:s, s:f, s:s, s:O, s:I, s:I, s:b}", "cause", rule->cause, "share", share,
                  "text", buf_str(&text), "set", set, "device_bytes", (json_int_t)device,
                  "host_bytes", (json_int_t)host, "fits", (int)then.fits);
    return json_array_append_new(advice->list, one) == 0 ? 0 : mem_fail(err, 0, "advice");
}

/* ---- what has no setting ----------------------------------------------------------------- */

static int advice_say(struct advice *advice, const char *cause, double share, const char *text,
                      struct err *err)
{
    json_t *one =
        json_pack("{s:s, s:f, s:s, s:n, s:I, s:I, s:n}", "cause", cause, "share", share, "text",
                  text, "set", "device_bytes", (json_int_t)0, "host_bytes", (json_int_t)0, "fits");
    return json_array_append_new(advice->list, one) == 0 ? 0 : mem_fail(err, 0, "advice");
}

/* Whoever computes longest lets the others wait at the sums. */
static int advice_slowest(struct advice *advice, struct err *err)
{
    const struct profile_sums *sums = advice->sums;
    double share = advice_wait(advice, METRIC_SUMS_WAIT_S);
    char text[ADVICE_TEXT_BYTES];
    uint32_t most = 0, least = 0;
    for (uint32_t rank = 1; rank < advice->job->world; rank++) {
        most = sums->ranks[rank].kernel_ns > sums->ranks[most].kernel_ns ? rank : most;
        least = sums->ranks[rank].kernel_ns < sums->ranks[least].kernel_ns ? rank : least;
    }
    if (share < advice_least || most == least)
        return 0;
    (void)snprintf(
        text, sizeof text,
        "%.1f %% of the time goes into sums over all ranks, which wait for the slowest: "
        "rank %u computes %.2f ms a step, rank %u %.2f; where it is always the same one, "
        "see what else its device does, and how hot it is (ithaca gpus)",
        share * 100, most, (double)sums->ranks[most].kernel_ns * 1e-6 / (double)sums->steps, least,
        (double)sums->ranks[least].kernel_ns * 1e-6 / (double)sums->steps);
    return advice_say(advice, "sums_wait_s", share, text, err);
}

static int advice_data(struct advice *advice, struct err *err)
{
    char text[ADVICE_TEXT_BYTES];
    double share =
        profile_sums_share(advice->sums, profile_sums_ns(advice->sums, PROFILE_PHASE, "data"));
    if (share < advice_least)
        return 0;
    (void)snprintf(
        text, sizeof text,
        "%.1f %% of the time goes into loading tokens and counting them: the disk of the "
        "data folder is slow, or other programs take the ranks' cores",
        share * 100);
    return advice_say(advice, "data", share, text, err);
}

/* Where the rest is: what a faster kernel would gain. */
static int advice_kernel(struct advice *advice, struct err *err)
{
    const struct profile_figures *kernels = &advice->sums->kinds[PROFILE_KERNEL];
    char text[ADVICE_TEXT_BYTES];
    if (kernels->count == 0)
        return 0;
    double share = profile_sums_share(advice->sums, kernels->list[0].ns);
    double busy = profile_sums_share(advice->sums, advice->sums->all.kernel_ns);
    (void)snprintf(text, sizeof text,
                   "%.1f %% of the time is %s, the kernel that takes longest; some kernel runs in "
                   "%.1f %% of it, so what waits can be hidden for %.1f %% at most",
                   share * 100, kernels->list[0].name, busy * 100, (1 - busy) * 100);
    return advice_say(advice, "kernels", share, text, err);
}

/* ---- the list ---------------------------------------------------------------------------- */

/* What fits, then what has no setting, then what does not fit. */
static int advice_rank(const json_t *one)
{
    const json_t *fits = json_object_get(one, "fits");
    return json_is_true(fits) ? 0 : json_is_null(fits) ? 1 : 2;
}

static bool advice_before(const json_t *a, const json_t *b)
{
    if (advice_rank(a) != advice_rank(b))
        return advice_rank(a) < advice_rank(b);
    return json_real_value(json_object_get(a, "share")) >
           json_real_value(json_object_get(b, "share"));
}

static int advice_best(json_t *found, json_t **ret, struct err *err)
{
    json_t *best = json_array();
    int bad = best == NULL;
    while (bad == 0 && json_array_size(found) > 0 && json_array_size(best) < PROFILE_ADVICE_MAX) {
        size_t at = 0;
        for (size_t i = 1; i < json_array_size(found); i++)
            if (advice_before(json_array_get(found, i), json_array_get(found, at)))
                at = i;
        bad |= json_array_append(best, json_array_get(found, at));
        bad |= json_array_remove(found, at);
    }
    if (bad == 0) {
        *ret = best;
        return 0;
    }
    json_decref(best);
    return mem_fail(err, 0, "advice");
}

static int advice_collect(struct advice *advice, struct err *err)
{
    for (size_t r = 0; r < sizeof advice_rules / sizeof advice_rules[0]; r++) {
        double share = advice_rules[r].share(advice);
        if (share >= advice_least)
            TRY(advice_try(advice, &advice_rules[r], share, err));
    }
    TRY(advice_slowest(advice, err));
    TRY(advice_data(advice, err));
    return advice_kernel(advice, err);
}

int profile_advice_make(const struct profile_job *job, const struct profile_sums *sums,
                        json_t **ret, struct err *err)
{
    struct advice advice = {.job = job, .sums = sums};
    advice.ask = (struct mem_ask){.shape = &job->shape,
                                  .spec = &job->plan.spec,
                                  .backend = job->memory.layout.backend,
                                  .ranks_max = job->plan.spec.gpus,
                                  .device_bytes = job->device_bytes,
                                  .host_bytes = host_memory_read().total};
    TRY(mem_estimate_make(&advice.ask, &advice.now, err));
    advice.list = json_array();
    int rc = advice.list == NULL ? mem_fail(err, 0, "advice") : advice_collect(&advice, err);
    if (rc == 0)
        rc = advice_best(advice.list, ret, err);
    json_decref(advice.list);
    mem_estimate_done(&advice.now);
    return rc;
}
