/* webhooks_private: what webhooks.c (events become messages, rounds) and webhooks_deliver.c
 * (children) share. */
#pragma once
#include "daemon/bus.h"
#include "daemon/webhook_url.h"
#include "daemon/webhooks.h"

enum { WEBHOOKS_BATCH = 32 }; /* events of a round */

/* A delivery under way. */
struct webhooks_child {
    struct webhooks *webhooks;
    struct host_process *process;
    int64_t row, tries, created_ms;
    char job_id[LIMIT_ID_BYTES + 1];
    char owner[LIMIT_NAME_BYTES + 1];
    char host[WEBHOOK_HOST_BYTES + 1];
    char *input, *output; /* paths; owned */
    struct webhooks_child *next;
};

struct webhooks {
    struct api *api;
    struct bus_listener listener;
    struct loop_timer *timer;
    char *dir;      /* of the children's files */
    int64_t cursor; /* events up to this row are messages, where there are any */
    int64_t stored; /* of the cursor in the store */
    int64_t stored_ms;
    struct webhooks_child *children;
    struct store_webhook batch[2 * WEBHOOKS_BATCH]; /* strings are owned */
    size_t batch_count;
    int64_t events; /* of the batch */
    bool failing;   /* the last round did, and it was logged */
};

int64_t webhooks_now(const struct webhooks *webhooks); /* Unix ms */

/* webhooks_deliver.c */
/* Is there a child free for it, and not at it already? */
bool webhooks_deliver_has_turn(const struct webhooks *webhooks,
                               const struct store_webhook *message);
/* Starts a delivery, or gives up one that may not go where it should. */
int webhooks_deliver(struct webhooks *webhooks, const struct store_webhook *message,
                     struct err *err);
void webhooks_deliver_end(struct webhooks *webhooks); /* kills what runs: it is sent again */
