/* api_search: see api_search.h. */
#include "daemon/api_search.h"

#include "common/mem.h"
#include "common/plan_search.h"
#include "daemon/api.h"
#include "daemon/api_turns.h"
#include "daemon/http.h"

enum { SEARCHES_A_TURN = 4 }; /* that do a step, about: some 2 ms each */

struct api_search {
    struct api *api;
    struct api_turns turns;
    struct model_shape shape; /* this and the next two are what ask points to */
    struct job_spec spec;
    struct time_rates rates;
    struct mem_ask ask;
    struct plan_search *search;
    int64_t turn; /* of the loop, from a number on that spreads those that began together */
    bool waits, over, fits;
    struct job_spec found; /* where it fits */
};

static void api_search_end(void *context)
{
    struct api_search *self = context;
    self->api->searches--;
    api_turns_done(&self->turns);
    plan_search_free(self->search);
    model_shape_done(&self->shape);
    mem_free(self);
}

/* The first turn is the handler's own, and only begins. Of many at once only some do a step in a
 * turn of the loop. */
static int api_search_turn(void *context, bool *ret_done, struct err *err)
{
    struct api_search *self = context;
    struct mem_estimate estimate;
    struct err ignored;
    bool found = false;
    if (self->search == NULL)
        return plan_search_new(&self->ask, &self->search, err);
    if (++self->turn % (1 + self->api->searches / SEARCHES_A_TURN) != 0)
        return 0;
    int rc = plan_search_step(self->search, &found, &estimate, &ignored);
    if (rc == 0 && !found)
        return 0;
    if (rc == 0) {
        self->found = estimate.spec;
        mem_estimate_done(&estimate);
    }
    self->fits = rc == 0;
    self->over = *ret_done = true;
    return api_handle(self->api, self->turns.request, err);
}

const struct api_search *api_search_of(const struct http_request *request)
{
    const struct api_search *self = http_request_ended_context(request);
    return self != NULL && self->over ? self : NULL;
}

bool api_search_waits(const struct http_request *request)
{
    const struct api_search *self = http_request_ended_context(request);
    return self != NULL && self->waits && !self->over;
}

const struct job_spec *api_search_found(const struct api_search *search)
{
    return search->fits ? &search->found : NULL;
}

int api_search_start(struct api *api, struct http_request *request, const struct mem_ask *ask,
                     struct err *err)
{
    const enum route_id route = http_request_route(request)->route;
    struct api_search *self = mem_new(1, sizeof *self);
    if (self == NULL)
        return mem_fail(err, sizeof *self, "a search of settings");
    *self = (struct api_search){.api = api,
                                .turn = api->searches++,
                                .turns = {.request = request,
                                          .turn = api_search_turn,
                                          .only_answers = route != ROUTE_JOBS_CREATE,
                                          .context = self},
                                .spec = *ask->spec,
                                .rates = *ask->rates,
                                .ask = *ask};
    self->spec.metadata = self->spec.asked = NULL; /* the handler's */
    self->ask.shape = &self->shape;
    self->ask.spec = &self->spec;
    self->ask.rates = &self->rates;
    http_request_on_end(request, api_search_end, self);
    TRY(model_shape_build(&ask->shape->config, &self->shape, err));
    TRY(api_turns_start(&self->turns, api->loop, err));
    self->waits = true;
    return err_set(err, ERR_UNAVAILABLE, "settings are searched");
}
