/* experiment_plan: see experiment_plan.h. */
#include "daemon/experiment_plan.h"

#include "common/job_spec.h"
#include "common/mem.h"
#include "common/mem_estimate.h"
#include "daemon/api.h"
#include "daemon/coordinator.h"
#include "daemon/machine.h"
#include "daemon/settings.h"

#include <stdio.h>
#include <string.h>

void experiment_planner_done(struct experiment_planner *planner)
{
    models_entry_done(&planner->model);
    model_shape_done(&planner->shape);
}

void experiment_planned_done(struct experiment_planned *planned)
{
    buf_done(&planned->facts);
    buf_done(&planned->body);
}

struct store_point_row experiment_planned_row(const struct experiment_planned *planned,
                                              int64_t number)
{
    return (struct store_point_row){.number = number,
                                    .status = planned->status,
                                    .note = planned->note,
                                    .facts_json = buf_str(&planned->facts),
                                    .body_json = buf_str(&planned->body),
                                    .job_id = "",
                                    .measured_json = ""};
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

/* Ranks that are not there are rehearsed. */
static void plan_rehearse(const struct experiment_planner *planner, struct job_spec *job)
{
    if (job->rehearse || job->gpus <= coordinator_slots(planner->api->coordinator))
        return;
    job->rehearse = true;
    job->rehearse_world = job->gpus;
    job->rehearse_layers = planner->spec->rehearse_layers;
}

static int plan_model(struct experiment_planner *planner, const char *name, struct err *err)
{
    struct model_config config;
    if (strcmp(planner->model_name, name) == 0)
        return 0;
    experiment_planner_done(planner);
    planner->model_name[0] = '\0';
    TRY(models_find_shape(planner->api, planner->viewer, name, &planner->model, err));
    TRY(model_config_load(planner->model.dir, &config, err));
    TRY(model_shape_build(&config, &planner->shape, err));
    (void)snprintf(planner->model_name, sizeof planner->model_name, "%s", name);
    return 0;
}

/* ---- its plan ---- */

static struct mem_ask plan_ask(const struct experiment_planner *planner, const struct job_spec *job,
                               struct time_rates *rates)
{
    const struct inventory *inventory = coordinator_inventory(planner->api->coordinator);
    struct mem_ask ask = machine_ask(inventory, job, &planner->shape);
    machine_rates(inventory, planner->api->settings->data_dir, &ask, rates);
    return ask;
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

/* Of the plan only where there is one. */
static int plan_facts(const struct job_spec *job, const struct mem_estimate *estimate,
                      int64_t series, const char *label, struct buf *out, struct err *err)
{
    bool planned = estimate->plan.count > 0;
    const struct job_spec *settled = planned ? &estimate->spec : job;
    char method[64] = "";
    if (planned)
        plan_method(settled, method, sizeof method);
    CLEANUP(json_unref)
    json_t *facts =
        json_pack("{s:I, s:I, s:s, s:s, s:I, s:I, s:b, s:o, s:o, s:o, s:o}", "series",
                  (json_int_t)series, "slots", (json_int_t)job_spec_slots(settled), "label", label,
                  "model", settled->model, "seq_len", (json_int_t)settled->seq_len, "gpus",
                  (json_int_t)settled->gpus, "rehearsed", (int)settled->rehearse, "method",
                  planned ? json_string(method) : json_null(), "planned_device_bytes",
                  planned ? json_integer(estimate->plan.peak_device_bytes) : json_null(),
                  "planned_host_bytes",
                  planned ? json_integer(estimate->plan.arena_bytes[MEM_ARENA_HOST]) : json_null(),
                  "planned_step_s", planned ? json_number(estimate->time.step_s) : json_null());
    return json_print(facts, out, err);
}

/* One sequence a data-parallel rank, whose number the layout gives. */
static int plan_sequences(const struct mem_ask *ask, struct job_spec *job, struct err *err)
{
    struct job_spec settled;
    struct time_plan time;
    job->sequences = 1;
    TRY(mem_estimate_time(ask, &settled, &time, err));
    job->sequences = settled.gpus / (settled.ulysses * settled.ring);
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
static int plan_job(const struct experiment_planner *planner, struct job_spec *job,
                    bool has_sequences, bool longest, struct mem_estimate *ret, struct err *err)
{
    struct time_rates rates;
    plan_rehearse(planner, job);
    struct mem_ask ask = plan_ask(planner, job, &rates);
    if (longest)
        TRY(plan_longest(planner->spec, &ask, job, err));
    if (!has_sequences)
        TRY(plan_sequences(&ask, job, err));
    TRY(mem_estimate_make(&ask, ret, err));
    int64_t slots = job_spec_slots(&ret->spec), max = planner->spec->max_gpus;
    if (max > 0 && slots > max)
        return err_set_field(err, ERR_INVALID_VALUE, "max_gpus",
                             "it takes %lld slots at once, and max_gpus is %lld", (long long)slots,
                             (long long)max);
    return mem_estimate_check_need(ret, err);
}

static int plan_fill(struct experiment_planner *planner, int64_t number, int64_t seq_len,
                     const struct experiment_point *point, struct experiment_planned *planned,
                     struct err *err)
{
    CLEANUP(job_spec_done) struct job_spec job = {.metadata = NULL};
    CLEANUP(mem_estimate_done) struct mem_estimate estimate = {.fits = false};
    struct err why = {.code = ERR_NONE};
    TRY(plan_body(planner->spec, point->body, seq_len, err));
    TRY(job_spec_parse(point->body, &job, err));
    TRY(api_jobs_check_names(planner->api, planner->viewer, &job, err));
    TRY(plan_model(planner, job.model, err));
    const json_t *batch = json_object_get(json_object_get(point->body, "ithaca"), "batch");
    bool has_sequences = json_object_get(batch, "sequences") != NULL;
    int rc = plan_job(planner, &job, has_sequences,
                      experiment_spec_searches(planner->spec) && seq_len == 0, &estimate, &why);
    if (rc == -ERR_NOMEM) {
        *err = why;
        return rc;
    }
    planned->status = rc == 0                   ? STORE_POINT_WAITING
                      : rc == -ERR_DOES_NOT_FIT ? STORE_POINT_NO_ROOM
                                                : STORE_POINT_REFUSED;
    planned->priority = job.priority;
    (void)snprintf(planned->note, sizeof planned->note, "%s", rc != 0 ? why.text : "");
    CLEANUP(json_unref) json_t *body = job_spec_json(&job);
    TRY(json_print(body, &planned->body, err));
    return plan_facts(&job, &estimate, number, point->label, &planned->facts, err);
}

int experiment_plan_point(struct experiment_planner *planner, int64_t number, int64_t seq_len,
                          struct experiment_planned *ret, struct err *err)
{
    CLEANUP(experiment_point_done) struct experiment_point point = {.body = NULL};
    struct experiment_planned planned = {.status = NULL};
    buf_init(&planned.facts, LIMIT_JSON_BODY_BYTES);
    buf_init(&planned.body, LIMIT_JSON_BODY_BYTES);
    TRY(experiment_spec_point(planner->spec, number, &point, err));
    int rc = plan_fill(planner, number, seq_len, &point, &planned, err);
    if (rc != 0) {
        experiment_planned_done(&planned);
        return err_wrap(err, rc, "point %lld%s%s%s: ", (long long)number,
                        point.label[0] != '\0' ? " (" : "", point.label,
                        point.label[0] != '\0' ? ")" : "");
    }
    *ret = planned;
    return 0;
}
