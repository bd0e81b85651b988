/* api_control: cancel, pause, resume and change a job. A cancelled or paused one is answered when
 * no process of it is left, or after a while with the state that it is in: nobody who cancels waits
 * for processes that end slowly; a pause writes a checkpoint. */
#include "common/mem.h"
#include "daemon/access.h"
#include "daemon/api.h"
#include "daemon/bus.h"
#include "daemon/coordinator.h"
#include "daemon/http.h"
#include "daemon/job_fsm.h"
#include "daemon/loop.h"
#include "daemon/webhooks.h"

#include <stdio.h>
#include <string.h>

enum {
    CONTROL_CANCEL_MS = 2000,
    CONTROL_PAUSE_MS = 30000, /* below the time-outs of proxies */
};

static int control_answer(struct api *api, struct http_request *request,
                          const struct store_job *job, struct err *err)
{
    json_t *json = api_jobs_json(api, job, err);
    if (json == NULL)
        return -(int)err->code;
    http_answer_json(request, 200, json);
    return 0;
}

/* ---- waiting for a state to pass ---- */

struct control_wait {
    struct api *api;
    struct http_request *request;
    char id[LIMIT_ID_BYTES + 1];
    enum job_state passing; /* answered once the job is not in it any more */
    struct bus_listener listener;
    struct loop_timer *timer; /* gives up waiting */
    bool listening;
};

static void control_wait_end(void *context)
{
    struct control_wait *wait = context;
    bus_unlisten(wait->api->bus, &wait->listener);
    loop_timer_free(wait->timer);
    mem_free(wait);
}

static int control_wait_row(void *context, const struct store_job *job, struct err *err)
{
    struct control_wait *wait = context;
    if (job->state == wait->passing && wait->listening)
        return 0;
    bus_unlisten(wait->api->bus, &wait->listener);
    loop_timer_stop(wait->timer);
    return control_answer(wait->api, wait->request, job, err);
}

/* Answers if the state has passed, or (no longer listening) whatever it is. */
static void control_look(struct control_wait *wait)
{
    struct err err;
    if (store_job_get(wait->api->store, wait->id, control_wait_row, wait, &err) != 0)
        http_answer_error(wait->request, &err);
}

static void control_note(void *context, const struct bus_note *note)
{
    struct control_wait *wait = context;
    if (note->event_row > 0 && strcmp(note->job_id, wait->id) == 0)
        control_look(wait);
}

static void control_late(void *context)
{
    struct control_wait *wait = context;
    wait->listening = false;
    control_look(wait);
}

static int control_wait(struct api *api, struct http_request *request, enum job_state passing,
                        int64_t wait_ms, struct err *err)
{
    struct control_wait *wait = mem_new(1, sizeof *wait);
    if (wait == NULL)
        return mem_fail(err, sizeof *wait, "a request that waits");
    *wait = (struct control_wait){.api = api,
                                  .request = request,
                                  .passing = passing,
                                  .listener = {.called = control_note, .context = wait},
                                  .listening = true};
    (void)snprintf(wait->id, sizeof wait->id, "%.*s", LIMIT_ID_BYTES,
                   http_request_route(request)->name);
    http_request_on_end(request, control_wait_end, wait);
    TRY(loop_timer_new(api->loop, control_late, wait, &wait->timer, err));
    loop_timer_set(wait->timer, wait_ms, 0);
    bus_listen(api->bus, &wait->listener);
    http_defer(request, NULL, NULL);
    control_look(wait);
    return 0;
}

/* ---- routes ---- */

int api_control_cancel(struct api *api, struct http_request *request, struct err *err)
{
    TRY(coordinator_cancel(api->coordinator, http_request_route(request)->name, err));
    loop_timer_set(api->tick, 0, COORDINATOR_TICK_MS); /* one without a process ends in it */
    return control_wait(api, request, JOB_STATE_CANCELLING, CONTROL_CANCEL_MS, err);
}

int api_control_pause(struct api *api, struct http_request *request, struct err *err)
{
    TRY(coordinator_pause(api->coordinator, http_request_route(request)->name, err));
    return control_wait(api, request, JOB_STATE_PAUSING, CONTROL_PAUSE_MS, err);
}

/* {"checkpoint": "ftckpt_..."}; no body is fine. */
static int control_read_resume(const json_t *body, const char **ret_checkpoint, struct err *err)
{
    const char *key;
    json_t *value;
    *ret_checkpoint = NULL;
    json_object_foreach((json_t *)(uintptr_t)body, key, value)
    {
        if (strcmp(key, "checkpoint") != 0)
            return err_set_field(err, ERR_UNKNOWN_FIELD, key,
                                 "%s: there is no such field; resume takes checkpoint", key);
        *ret_checkpoint = json_string_value(value);
        if (*ret_checkpoint == NULL && !json_is_null(value))
            return err_set_field(err, ERR_INVALID_VALUE, key,
                                 "checkpoint must be the id of a checkpoint");
    }
    return 0;
}

struct control_context {
    struct api *api;
    struct http_request *request;
};

static int control_answer_row(void *context, const struct store_job *job, struct err *err)
{
    const struct control_context *answer = context;
    return control_answer(answer->api, answer->request, job, err);
}

int api_control_resume(struct api *api, struct http_request *request, struct err *err)
{
    const char *id = http_request_route(request)->name;
    const char *checkpoint = NULL;
    CLEANUP(json_unref) json_t *body = NULL;
    if (http_request_body(request)->length > 0)
        TRY(api_read_body(request, &body, err));
    TRY(control_read_resume(body, &checkpoint, err));
    TRY(coordinator_resume(api->coordinator, id, checkpoint, err));
    struct control_context answer = {.api = api, .request = request};
    return store_job_get(api->store, id, control_answer_row, &answer, err);
}

int api_control_change(struct api *api, struct http_request *request, struct err *err)
{
    const char *id = http_request_route(request)->name;
    CLEANUP(json_unref) json_t *body = NULL;
    TRY(api_read_body(request, &body, err));
    const json_t *priority = json_object_get(json_object_get(body, "ithaca"), "priority");
    if (json_is_number(priority))
        TRY(api_queue_check_priority(api, request, json_number_value(priority), err));
    const char *webhook =
        json_string_value(json_object_get(json_object_get(body, "ithaca"), "webhook"));
    if (webhook != NULL)
        TRY(webhooks_check(api, webhook, err));
    const bool is_admin = access_viewer(request)[0] == '\0';
    TRY(coordinator_change(api->coordinator, id, body, http_request_owner(request), is_admin, err));
    struct control_context answer = {.api = api, .request = request};
    return store_job_get(api->store, id, control_answer_row, &answer, err);
}
