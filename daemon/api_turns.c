/* api_turns: see api_turns.h. A turn is a timer that is due at once. */
#include "daemon/api_turns.h"

#include "daemon/http.h"
#include "daemon/loop.h"

static void turns_on_turn(void *context)
{
    struct api_turns *turns = context;
    bool done = false;
    struct err err;
    const enum route_id route = http_request_route(turns->request)->route;
    loop_doing(turns->loop, route_method(route), route_path(route));
    if (turns->turn(turns->context, &done, &err) != 0)
        http_answer_error(turns->request, &err);
    else if (!done)
        loop_timer_set(turns->timer, 0, 0);
}

/* The client left. The request ends with its answer, and what it holds with it. */
static void turns_on_gone(void *context)
{
    struct api_turns *turns = context;
    struct err err;
    if (!turns->only_answers)
        return;
    loop_timer_stop(turns->timer);
    err_set(&err, ERR_UNAVAILABLE, "the client left");
    http_answer_error(turns->request, &err);
}

int api_turns_start(struct api_turns *turns, struct loop *loop, struct err *err)
{
    bool done = false;
    TRY(turns->turn(turns->context, &done, err));
    if (done)
        return 0;
    TRY(loop_timer_new(loop, turns_on_turn, turns, &turns->timer, err));
    loop_timer_set(turns->timer, 0, 0);
    turns->loop = loop;
    http_defer(turns->request, turns_on_gone, turns);
    return 0;
}

void api_turns_done(struct api_turns *turns)
{
    loop_timer_free(turns->timer);
}
