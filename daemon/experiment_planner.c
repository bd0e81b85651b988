/* experiment_planner: see experiment_planner.h. */
#include "daemon/experiment_planner.h"

#include "common/experiment_plan.h"
#include "common/mem.h"
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

static int planner_model(struct experiment_planner *planner, const char *name, struct err *err)
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

static int planner_plan(struct experiment_planner *planner, struct experiment_job *job,
                        bool longest, struct experiment_plan *ret, struct err *err)
{
    const struct inventory *inventory = coordinator_inventory(planner->api->coordinator);
    struct time_rates rates;
    TRY(api_jobs_check_names(planner->api, planner->viewer, &job->spec, err));
    TRY(planner_model(planner, job->spec.model, err));
    struct mem_ask ask = machine_ask(inventory, &job->spec, &planner->shape);
    machine_rates(inventory, planner->api->settings->data_dir, &ask, &rates);
    return experiment_plan_make(planner->spec, job, &ask, longest, ret, err);
}

static int planner_fill(struct experiment_planner *planner, struct experiment_job *job,
                        bool longest, struct experiment_planned *planned, struct err *err)
{
    static const char *const statuses[] = {[EXPERIMENT_FITS] = STORE_POINT_WAITING,
                                           [EXPERIMENT_NO_ROOM] = STORE_POINT_NO_ROOM,
                                           [EXPERIMENT_REFUSED] = STORE_POINT_REFUSED};
    CLEANUP(experiment_plan_done) struct experiment_plan plan = {.facts = NULL};
    TRY(planner_plan(planner, job, longest, &plan, err));
    planned->status = statuses[plan.fit];
    planned->priority = job->spec.priority;
    (void)snprintf(planned->note, sizeof planned->note, "%s", plan.note);
    CLEANUP(json_unref) json_t *body = job_spec_json(&job->spec);
    TRY(json_print(body, &planned->body, err));
    return json_print(plan.facts, &planned->facts, err);
}

int experiment_planner_point(struct experiment_planner *planner, int64_t number, int64_t seq_len,
                             struct experiment_planned *ret, struct err *err)
{
    CLEANUP(experiment_job_done) struct experiment_job job = {.number = number};
    struct experiment_planned planned = {.status = NULL};
    bool longest = experiment_spec_searches(planner->spec) && seq_len == 0;
    buf_init(&planned.facts, LIMIT_JSON_BODY_BYTES);
    buf_init(&planned.body, LIMIT_JSON_BODY_BYTES);
    TRY(experiment_job_read(planner->spec, number, seq_len, &job, err));
    int rc = planner_fill(planner, &job, longest, &planned, err);
    if (rc != 0) {
        experiment_planned_done(&planned);
        return experiment_job_wrap(&job, rc, err);
    }
    *ret = planned;
    return 0;
}
