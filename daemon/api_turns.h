/* api_turns: a request that is much work is worked on a slice a turn of the loop, so that others
 * are served meanwhile.
 *
 *     struct api_thing { struct api_turns turns; ... };
 *     http_request_on_end(request, thing_end, thing);      which calls api_turns_done()
 *     thing->turns = (struct api_turns){.request = request, .turn = thing_turn, .context = thing};
 *     return api_turns_start(&thing->turns, api->loop, err);                 the handler's end */
#pragma once
#include "common/err.h"

#include <stdbool.h>

struct http_request;
struct loop;
struct loop_timer;

/* Does a slice. *ret_done: the request is answered; else there is another turn. */
typedef int api_turn_fn(void *context, bool *ret_done, struct err *err);

struct api_turns {
    struct http_request *request;
    api_turn_fn *turn;
    void *context;     /* of turn */
    bool only_answers; /* nothing but the answer comes of it: it ends when the client leaves */
    struct loop *loop;
    struct loop_timer *timer; /* the next turn; NULL: the first was enough; owned */
};

/* Does the first slice, and the others in turns to come. The first one's error is returned, a later
 * one's is the answer. */
int api_turns_start(struct api_turns *turns, struct loop *loop, struct err *err);
void api_turns_done(struct api_turns *turns);
