/* api_experiments_estimate: an experiment's points as making it would plan them, and nothing made.
 * A form asks while somebody types, so it is a few points a turn of the loop while the request
 * waits. */
#include "common/mem.h"
#include "daemon/access.h"
#include "daemon/api.h"
#include "daemon/api_turns.h"
#include "daemon/experiment_planner.h"
#include "daemon/http.h"

enum {
    ESTIMATE_TURN = 8,       /* points a turn: some 4 ms */
    ESTIMATE_SEARCH_TURN = 1 /* where the longest that fits is looked for: 10 ms */
};

struct experiment_estimate {
    struct api_turns turns;
    struct experiment_spec spec;
    struct experiment_planner planner; /* its spec is the one above */
    int64_t number;                    /* of the next point */
    json_t *rows;
};

static void estimate_end(void *context)
{
    struct experiment_estimate *estimate = context;
    api_turns_done(&estimate->turns);
    experiment_planner_done(&estimate->planner);
    experiment_spec_done(&estimate->spec);
    json_decref(estimate->rows);
    mem_free(estimate);
}

static int estimate_point(struct experiment_estimate *estimate, struct err *err)
{
    struct api *api = estimate->planner.api;
    CLEANUP(experiment_planned_done) struct experiment_planned planned = {.status = NULL};
    TRY(experiment_planner_point(&estimate->planner, estimate->number, 0, &planned, err));
    TRY(api_queue_check_priority(api, estimate->turns.request, (double)planned.priority, err));
    const struct store_point_row point = experiment_planned_row(&planned, estimate->number);
    TRY(api_experiments_add_row(api, &point, "", estimate->rows, err));
    estimate->number++;
    return 0;
}

static int estimate_turn(void *context, bool *ret_done, struct err *err)
{
    struct experiment_estimate *estimate = context;
    const bool searches = experiment_spec_searches(&estimate->spec);
    const int most = searches ? ESTIMATE_SEARCH_TURN : ESTIMATE_TURN;
    for (int i = 0; i < most && estimate->number < estimate->spec.points; i++)
        TRY(estimate_point(estimate, err));
    *ret_done = estimate->number == estimate->spec.points;
    if (*ret_done)
        http_answer_json(
            estimate->turns.request, 200,
            json_pack("{s:s, s:O}", "object", "experiment.estimate", "data", estimate->rows));
    return 0;
}

int api_experiments_estimate(struct api *api, struct http_request *request, struct err *err)
{
    CLEANUP(json_unref) json_t *body = NULL;
    TRY(api_read_body(request, &body, err));
    struct experiment_estimate *estimate = mem_new(1, sizeof *estimate);
    if (estimate == NULL)
        return mem_fail(err, sizeof *estimate, "an estimate");
    *estimate = (struct experiment_estimate){
        .turns = {.request = request,
                  .turn = estimate_turn,
                  .only_answers = true,
                  .context = estimate},
        .planner = {.api = api, .viewer = access_viewer(request), .spec = &estimate->spec},
        .rows = json_array()};
    http_request_on_end(request, estimate_end, estimate);
    if (estimate->rows == NULL)
        return mem_fail(err, 0, "an estimate");
    TRY(experiment_spec_parse(body, &estimate->spec, err));
    return api_turns_start(&estimate->turns, api->loop, err);
}
