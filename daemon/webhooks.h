/* webhooks: tells other programs of jobs. Messages go to the job's `webhook` and to the setting
 * webhook_url, which hears of all jobs:
 *
 *     fine_tuning.job.<state>      the job is in another state: running, succeeded, failed ...
 *     fine_tuning.job.nonfinite    its loss or gradient norm is not finite (once an attempt)
 *     fine_tuning.job.stalled      no step has ended for long (setting stall_alert_s)
 *
 * signed after Standard Webhooks (webhook_sign.h). Each comes from an event of the job, whose id is
 * its webhook-id. Events become messages in the store before anything is sent, and a message stays
 * there until its receiver has answered 2xx: it arrives at least once, also when the daemon is
 * killed meanwhile. What belongs to one job goes in order to one address, one after the other. What
 * fails is tried again after a second, two, four ... up to an hour; after a day, or when the
 * receiver answers 410 (gone), it is given up, and the job has an event that says so. A user may
 * have WEBHOOKS_USER_MAX messages waiting; what is beyond is dropped, and logged.
 *
 * A delivery is a child (webhook_send.h), WEBHOOKS_RUNNING at once. Where it may go: webhook_url.h.
 */
#pragma once
#include "daemon/api.h"
#include "daemon/webhook_sign.h"

enum {
    WEBHOOKS_RUNNING = 4,
    WEBHOOKS_RUNNING_USER = 2, /* of them for one user: a receiver that hangs holds up its own */
    WEBHOOKS_USER_MAX = 1000,
    WEBHOOKS_OPERATOR_MAX = 10000, /* of webhook_url */
    WEBHOOKS_RETRY_MS = 1000,      /* after the first failure */
    WEBHOOKS_RETRY_MAX_MS = 3600000,
    WEBHOOKS_DAY_MS = 86400000
};

struct webhooks;
/* Before any job is touched: what it misses of the bus it finds in the store. ERR_SETTING. */
int webhooks_new(struct api *api, struct webhooks **ret_webhooks, struct err *err);
void webhooks_free(struct webhooks *webhooks); /* NULL is fine */

/* Pause before the next try, after so many failed (1, 2, ...). Pure. */
int64_t webhooks_pause_ms(int64_t failures);
/* The key of a user's secret that is in force. */
int webhooks_key(struct api *api, const char *owner, uint8_t ret_key[WEBHOOK_KEY_BYTES],
                 struct err *err);
/* Is it a body whose ithaca.webhook may be used, if it has one? ERR_INVALID_VALUE. */
int webhooks_check(const struct api *api, const char *url, struct err *err);

api_handler api_webhooks_get, api_webhooks_rotate; /* api_webhooks.c */
