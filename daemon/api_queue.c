/* api_queue: the queue as a whole, and its drain. Who is no admin sees that others' jobs are there,
 * with what they take and when they end, not which and whose they are. */
#include "common/mem.h"
#include "daemon/access.h"
#include "daemon/api.h"
#include "daemon/coordinator.h"
#include "daemon/http.h"
#include "daemon/inventory.h"
#include "daemon/job_fsm.h"
#include "daemon/settings.h"

enum { QUEUE_SHOWN = 100, QUEUE_SHOWN_MAX = 1000 }; /* 1000 take the loop 20 ms */

struct queue_answer {
    const char *viewer;
    json_t *running; /* lists */
    json_t *waiting;
    json_t *users;
};

static int queue_add_entry(void *context, const struct coordinator_entry *entry, struct err *err)
{
    struct queue_answer *answer = context;
    const struct coordinator_view *view = &entry->view;
    bool waits = entry->started_ms == 0;
    bool shown = access_is_seen(answer->viewer, entry->owner);
    json_t *json = json_pack(
        "{s:s?, s:s?, s:s, s:I, s:I, s:o, s:b, s:o, s:o, s:o, s:o, s:o}", "id",
        shown ? entry->id : NULL, "owner", shown ? entry->owner : NULL, "state",
        job_state_name(entry->state), "priority", (json_int_t)entry->spec->priority, "slots",
        (json_int_t)job_spec_slots(entry->spec), "created_at", api_time(entry->created_ms),
        "preemptible", entry->spec->preemptible, "started_at", api_time(entry->started_ms),
        "estimated_end", api_time(entry->estimated_end_ms), "queue_position",
        view->queue_position > 0 ? json_integer(view->queue_position) : json_null(),
        "pending_reason", shown ? api_text(view->pending_reason) : json_null(), "estimated_start",
        api_time(view->estimated_start_ms));
    if (json_array_append_new(waits ? answer->waiting : answer->running, json) != 0)
        return mem_fail(err, 0, "the queue");
    return 0;
}

static int queue_add_user(void *context, const struct coordinator_user *user, struct err *err)
{
    struct queue_answer *answer = context;
    if (!access_is_seen(answer->viewer, user->name))
        return 0;
    json_t *json =
        json_pack("{s:s, s:I, s:f, s:f}", "user", user->name, "slots", (json_int_t)user->slots,
                  "used_s", user->used_s, "total_s", user->total_s);
    return json_array_append_new(answer->users, json) == 0 ? 0 : mem_fail(err, 0, "the queue");
}

int api_queue_get(struct api *api, struct http_request *request, struct err *err)
{
    const struct inventory *inventory = coordinator_inventory(api->coordinator);
    const char *query = http_request_route(request)->query;
    int64_t after = 0, limit = QUEUE_SHOWN, count = 0;
    CLEANUP(json_unref) json_t *running = json_array();
    CLEANUP(json_unref) json_t *waiting = json_array();
    CLEANUP(json_unref) json_t *users = json_array();
    struct queue_answer answer = {
        .viewer = access_viewer(request), .running = running, .waiting = waiting, .users = users};
    TRY(route_query_int(query, "after", 0, LIMIT_JOBS_UNFINISHED, &after, err));
    TRY(route_query_int(query, "limit", 1, QUEUE_SHOWN_MAX, &limit, err));
    TRY(coordinator_queue_list(api->coordinator, after, limit, queue_add_entry, &answer, &count,
                               err));
    TRY(coordinator_users_list(api->coordinator, queue_add_user, &answer, err));
    http_answer_json(request, 200,
                     json_pack("{s:s, s:b, s:I, s:I, s:O, s:O, s:I, s:O}", "object", "queue",
                               "drained", coordinator_queue_is_drained(api->coordinator), "slots",
                               (json_int_t)inventory->slots, "free_slots",
                               (json_int_t)inventory_free_slots(inventory), "running", running,
                               "waiting", waiting, "waiting_count", (json_int_t)count, "users",
                               users));
    return 0;
}

int api_queue_check_priority(const struct api *api, const struct http_request *request,
                             double priority, struct err *err)
{
    const int64_t most = api->settings->user_priority_max;
    if (access_viewer(request)[0] == '\0' || priority <= (double)most)
        return 0;
    return err_set_field(err, ERR_FORBIDDEN, "ithaca.priority",
                         "ithaca.priority may be %lld at most: above it only an admin can raise a "
                         "job (setting user_priority_max)",
                         (long long)most);
}

static int queue_set_drained(struct api *api, struct http_request *request, bool drained,
                             struct err *err)
{
    TRY(coordinator_queue_drain(api->coordinator, drained, err));
    http_answer_json(request, 200,
                     json_pack("{s:s, s:b}", "object", "queue.state", "drained", drained));
    return 0;
}

int api_queue_drain(struct api *api, struct http_request *request, struct err *err)
{
    return queue_set_drained(api, request, true, err);
}

int api_queue_undrain(struct api *api, struct http_request *request, struct err *err)
{
    return queue_set_drained(api, request, false, err);
}
