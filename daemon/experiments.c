/* experiments: a timer. A round steps each experiment that has not ended (experiment_step.h), and
 * takes one job of one that was deleted. */
#include "daemon/experiments.h"

#include "common/log.h"
#include "common/mem.h"
#include "daemon/api.h"
#include "daemon/bus.h"
#include "daemon/experiment_step.h"
#include "daemon/housekeeping.h"
#include "daemon/loop.h"
#include "daemon/store_experiments.h"

enum {
    EXPERIMENTS_WAKE_MS = 20,   /* several notes make one round */
    EXPERIMENTS_RETRY_MS = 1000 /* after a round that failed */
};

struct experiments {
    struct api *api;
    struct bus_listener listener;
    struct loop_timer *timer;
    bool due;     /* the timer is set */
    bool failing; /* the last round did: that is told once */
};

static void experiments_set(struct experiments *self, int64_t delay_ms)
{
    if (!self->due)
        loop_timer_set(self->timer, delay_ms, 0);
    self->due = true;
}

void experiments_wake(struct experiments *experiments)
{
    experiments_set(experiments, EXPERIMENTS_WAKE_MS);
}

static int experiments_take_job(void *ret_is_point, const struct store_job *job, struct err *err)
{
    (void)err;
    *(bool *)ret_is_point = job->experiment[0] != '\0';
    return 0;
}

/* A job's state has changed, for all one knows. */
static void experiments_on_note(void *context, const struct bus_note *note)
{
    struct experiments *self = context;
    bool is_point = false;
    struct err deleted; /* its point is settled all the same, with the next one */
    if (note->event_row == 0 || self->due)
        return;
    (void)store_job_get(self->api->store, note->job_id, experiments_take_job, &is_point, &deleted);
    if (is_point)
        experiments_wake(self);
}

/* One that cannot be stepped does not keep the others from it; the last one's error is told. */
static int experiments_step_all(struct experiments *self, bool *ret_again, struct err *err)
{
    char id[LIMIT_ID_BYTES + 1];
    int64_t row = 0;
    int failed = 0;
    for (;;) {
        struct err why; /* one that goes well may write something there, too */
        bool again = false;
        TRY(store_experiment_open(self->api->store, row, &row, id, err));
        if (row == 0)
            return failed;
        int rc = experiment_step(self->api, id, &again, &why);
        if (rc != 0) {
            failed = err_wrap(&why, rc, "%s: ", id);
            *err = why;
        }
        *ret_again |= again;
    }
}

static int experiments_delete_one(struct experiments *self, bool *ret_again, struct err *err)
{
    char id[LIMIT_ID_BYTES + 1], job_id[LIMIT_ID_BYTES + 1];
    TRY(store_experiment_deleted(self->api->store, id, job_id, err));
    *ret_again |= id[0] != '\0';
    if (job_id[0] != '\0')
        return api_delete_job(self->api, job_id, err);
    if (id[0] == '\0')
        return 0;
    housekeeping_wake(self->api->housekeeping);
    return store_experiment_purge(self->api->store, id, err);
}

static void experiments_round(void *context)
{
    struct experiments *self = context;
    struct err err, untold;
    bool again = false;
    self->due = false;
    loop_doing(self->api->loop, "experiments:", "their next points");
    int stepped = experiments_step_all(self, &again, &err);
    int deleted = experiments_delete_one(self, &again, stepped != 0 ? &untold : &err);
    const bool failed = stepped != 0 || deleted != 0;
    if (failed && !self->failing)
        log_warn("experiments", "%s", err.text);
    self->failing = failed;
    if (failed || again)
        experiments_set(self, failed ? EXPERIMENTS_RETRY_MS : 0);
}

int experiments_new(struct api *api, struct experiments **ret, struct err *err)
{
    struct experiments *self = mem_new(1, sizeof *self);
    if (self == NULL)
        return mem_fail(err, sizeof *self, "experiments");
    self->api = api;
    self->listener = (struct bus_listener){.called = experiments_on_note, .context = self};
    int rc = loop_timer_new(api->loop, experiments_round, self, &self->timer, err);
    if (rc != 0) {
        mem_free(self);
        return rc;
    }
    bus_listen(api->bus, &self->listener);
    experiments_wake(self); /* what the daemon before this one has left */
    *ret = self;
    return 0;
}

void experiments_free(struct experiments *experiments)
{
    if (experiments == NULL)
        return;
    bus_unlisten(experiments->api->bus, &experiments->listener);
    loop_timer_free(experiments->timer);
    mem_free(experiments);
}
