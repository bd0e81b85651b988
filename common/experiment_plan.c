/* experiment_plan: see experiment_plan.h. */
#include "common/experiment_plan.h"

#include "common/job_spec.h"
#include "common/mem.h"
#include "common/must.h"

#include <stdio.h>
#include <string.h>

void experiment_job_done(struct experiment_job *job)
{
    job_spec_done(&job->spec);
}

void experiment_plan_done(struct experiment_plan *plan)
{
    json_unref(&plan->facts);
}

int experiment_job_wrap(const struct experiment_job *job, int rc, struct err *err)
{
    bool named = job->label[0] != '\0';
    return err_wrap(err, rc, "point %lld%s%s%s: ", (long long)job->number, named ? " (" : "",
                    job->label, named ? ")" : "");
}

/* ---- the job of a point ---- */

static int plan_set_new(json_t *object, const char *key, json_t *value, struct err *err)
{
    return json_object_set_new(object, key, value) == 0 ? 0 : mem_fail(err, 0, "a point");
}

/* What every point has, whatever the base says. */
static int plan_body(const struct experiment_spec *spec, json_t *body, int64_t seq_len,
                     struct err *err)
{
    json_t *ithaca = json_object_get(body, "ithaca");
    const json_t *rehearse = json_object_get(ithaca, "rehearse");
    if (json_object_get(ithaca, "max_steps") != NULL)
        return err_set_field(err, ERR_INVALID_VALUE, "ithaca.max_steps",
                             "ithaca.max_steps and steps both say the same thing; give steps, of "
                             "the experiment");
    if (rehearse == NULL || json_is_null(rehearse))
        TRY(plan_set_new(ithaca, "measure", json_true(), err));
    TRY(plan_set_new(ithaca, "max_steps", json_integer(spec->steps), err));
    if (json_object_get(ithaca, "priority") == NULL)
        TRY(plan_set_new(ithaca, "priority", json_integer(EXPERIMENT_PRIORITY), err));
    return seq_len > 0 ? plan_set_new(ithaca, "seq_len", json_integer(seq_len), err) : 0;
}

int experiment_job_read(const struct experiment_spec *spec, int64_t number, int64_t seq_len,
                        struct experiment_job *ret, struct err *err)
{
    CLEANUP(experiment_point_done) struct experiment_point point = {.body = NULL};
    struct experiment_job job = {.number = number};
    TRY(experiment_spec_point(spec, number, &point, err));
    (void)snprintf(job.label, sizeof job.label, "%s", point.label);
    int rc = plan_body(spec, point.body, seq_len, err);
    if (rc == 0)
        rc = job_spec_parse(point.body, &job.spec, err);
    if (rc != 0)
        return experiment_job_wrap(&job, rc, err);
    const json_t *batch = json_object_get(json_object_get(point.body, "ithaca"), "batch");
    job.has_sequences = json_object_get(batch, "sequences") != NULL;
    *ret = job;
    return 0;
}

/* ---- its plan ---- */

/* Ranks that are not there are rehearsed. */
static void plan_rehearse(const struct experiment_spec *spec, int64_t ranks, struct job_spec *job)
{
    if (job->rehearse || job->gpus <= ranks)
        return;
    job->rehearse = true;
    job->rehearse_world = job->gpus;
    job->rehearse_layers = spec->rehearse_layers;
}

/* "upipe/1", "ring", "ulysses 4 x ring 2" */
static void plan_method(const struct job_spec *job, char *ret, size_t bytes)
{
    const char *kind = job_context_kind_name(job->context_kind);
    bool both = job->ring > 1 && job->ulysses > 1;
    char stage[32] = "";
    if (job->context_kind == JOB_context_kind_UPIPE)
        (void)snprintf(stage, sizeof stage, "/%lld", (long long)job->heads_per_stage);
    if (both)
        (void)snprintf(ret, bytes, "%s%s %lld x ring %lld", kind, stage, (long long)job->ulysses,
                       (long long)job->ring);
    else
        (void)snprintf(ret, bytes, "%s%s", kind, stage);
}

/* That its steps take here: of a rehearsal with the layers that work alone. */
static double plan_run_s(const struct mem_estimate *estimate)
{
    const struct mem_layout *layout = &estimate->plan.layout;
    int64_t left_out = mem_layout_first_layer(layout, &estimate->spec);
    double share = 1 - (double)left_out / (double)layout->config.layers;
    return (double)estimate->spec.max_steps * time_plan_layers_s(&estimate->time, share);
}

/* Those of a plan only where there is one. */
static int plan_facts(const struct experiment_job *job, const struct mem_estimate *estimate,
                      json_t **ret, struct err *err)
{
    bool planned = estimate->plan.count > 0;
    const struct job_spec *spec = planned ? &estimate->spec : &job->spec;
    const struct time_plan *time = &estimate->time;
    char method[64] = "";
    *ret = json_pack("{s:I, s:I, s:s, s:s, s:I, s:I, s:b}", "series", (json_int_t)job->number,
                     "slots", (json_int_t)job_spec_slots(spec), "label", job->label, "model",
                     spec->model, "seq_len", (json_int_t)spec->seq_len, "gpus",
                     (json_int_t)spec->gpus, "rehearsed", (int)spec->rehearse);
    if (*ret == NULL)
        return mem_fail(err, 0, "a point");
    if (!planned)
        return 0;
    plan_method(spec, method, sizeof method);
    CLEANUP(json_unref)
    json_t *plan = json_pack(
        "{s:s, s:I, s:I, s:o, s:o, s:o}", "method", method, "planned_device_bytes",
        (json_int_t)estimate->plan.peak_device_bytes, "planned_host_bytes",
        (json_int_t)estimate->plan.arena_bytes[MEM_ARENA_HOST], "planned_tokens_per_s_gpu",
        json_number(time->tokens_per_s / (double)spec->gpus), "planned_step_s",
        json_number(time->step_s), "planned_run_s", json_number(plan_run_s(estimate)));
    return plan != NULL && json_object_update(*ret, plan) == 0 ? 0 : mem_fail(err, 0, "a point");
}

/* One sequence a data-parallel rank, whose number the layout gives, legal or not. */
static int plan_sequences(const struct mem_ask *ask, struct job_spec *job, struct err *err)
{
    struct mem_ask unchecked = *ask;
    struct job_spec settled;
    struct time_plan time;
    unchecked.unchecked = true;
    job->sequences = 1;
    TRY(mem_estimate_time(&unchecked, &settled, &time, err));
    job->sequences = settled.gpus / (settled.ulysses * settled.ring);
    return 0;
}

/* The plan. Of a layout that the device cannot do there is one, too: where it would not fit either,
 * that is why, with its figure. */
static int plan_estimate(const struct mem_ask *ask, struct mem_estimate *ret, struct err *err)
{
    struct mem_ask unchecked = *ask;
    struct err ignored;
    int rc = mem_estimate_make(ask, ret, err);
    if (rc == 0 || rc == -ERR_NOMEM)
        return rc;
    unchecked.unchecked = true;
    if (mem_estimate_make(&unchecked, ret, &ignored) != 0 || ret->fits)
        return rc;
    return 0;
}

/* The longest that the plan says fits, of those that may be tried; where none does, the shortest of
 * these: its plan says why. */
static int plan_longest(const struct experiment_spec *spec, const struct mem_ask *ask,
                        struct job_spec *job, struct err *err)
{
    int64_t longest = 0;
    job->seq_len = spec->seq_len_min;
    TRY(mem_estimate_longest(ask, &longest, err));
    if (spec->seq_len_max > 0 && longest > spec->seq_len_max)
        longest = spec->seq_len_max;
    if (longest > spec->seq_len_min)
        job->seq_len = longest;
    return 0;
}

/* Settles what is open of the job, and plans it. */
static int plan_job(const struct experiment_spec *spec, struct experiment_job *job,
                    const struct mem_ask *ask, bool longest, struct mem_estimate *ret,
                    struct err *err)
{
    plan_rehearse(spec, ask->ranks_max, &job->spec);
    if (longest)
        TRY(plan_longest(spec, ask, &job->spec, err));
    if (!job->has_sequences)
        TRY(plan_sequences(ask, &job->spec, err));
    TRY(plan_estimate(ask, ret, err));
    int64_t slots = job_spec_slots(&ret->spec), max = spec->max_gpus;
    if (max > 0 && slots > max)
        return err_set_field(err, ERR_INVALID_VALUE, "max_gpus",
                             "it takes %lld slots at once, and max_gpus is %lld", (long long)slots,
                             (long long)max);
    return mem_estimate_check_need(ret, err);
}

int experiment_plan_make(const struct experiment_spec *spec, struct experiment_job *job,
                         const struct mem_ask *ask, bool longest, struct experiment_plan *ret,
                         struct err *err)
{
    CLEANUP(mem_estimate_done) struct mem_estimate estimate = {.fits = false};
    struct experiment_plan plan = {.fit = EXPERIMENT_FITS};
    struct err why = {.code = ERR_NONE};
    must(ask->spec == &job->spec && ask->rates != NULL);
    int rc = plan_job(spec, job, ask, longest, &estimate, &why);
    if (rc == -ERR_NOMEM) {
        *err = why;
        return rc;
    }
    if (rc != 0) {
        plan.fit = rc == -ERR_DOES_NOT_FIT ? EXPERIMENT_NO_ROOM : EXPERIMENT_REFUSED;
        (void)snprintf(plan.note, sizeof plan.note, "%s", why.text);
    }
    rc = plan_facts(job, &estimate, &plan.facts, err);
    if (rc != 0) {
        experiment_plan_done(&plan);
        return rc;
    }
    *ret = plan;
    return 0;
}
