/* experiment_step: see experiment_step.h. The points are read into memory first, since nothing is
 * written while rows are read. */
#include "daemon/experiment_step.h"

#include "common/job_spec.h"
#include "common/log.h"
#include "common/mem.h"
#include "daemon/api.h"
#include "daemon/coordinator.h"
#include "daemon/experiment_planner.h"
#include "daemon/experiment_search.h"
#include "daemon/host.h"
#include "daemon/job_fsm.h"
#include "daemon/measurement.h"
#include "daemon/settings.h"
#include "daemon/store_experiments.h"

#include <stdio.h>
#include <string.h>

enum {
    STEP_BATCH = 8,       /* jobs submitted at once: each is a write to the disk */
    STEP_AHEAD = 16,      /* jobs that wait in the queue: not the whole grid fills it */
    STEP_SHORT_PARTS = 16 /* of the planned longest: seq_len_step where none is given */
};

enum step_state {
    STEP_WAITING, /* for its job to be submitted */
    STEP_WORKING, /* its job has not ended */
    STEP_RAN,
    STEP_FAILED,
    STEP_TOO_LONG, /* failed for want of memory or time */
    STEP_LEFT      /* not run: it does not fit, is refused, was cancelled */
};

struct step_point {
    int64_t number, series, seq_len, slots;
    enum step_state state;
    char job_id[LIMIT_ID_BYTES + 1];
    char *body; /* of its job, while it waits; owned */
};

struct step {
    struct api *api;
    const char *id;
    char owner[LIMIT_NAME_BYTES + 1];
    bool cancelled;
    struct experiment_spec spec;
    struct step_point *points; /* (count) owned */
    size_t count, room;
};

static void step_done(struct step *step)
{
    for (size_t i = 0; i < step->count; i++)
        mem_free(step->points[i].body);
    mem_free(step->points);
    experiment_spec_done(&step->spec);
}

/* ---- reading ---- */

static int step_take(void *context, const struct store_experiment *row, struct err *err)
{
    struct step *step = context;
    CLEANUP(json_unref) json_t *spec = NULL;
    (void)snprintf(step->owner, sizeof step->owner, "%s", row->owner);
    step->cancelled = row->cancelled;
    TRY(json_parse(row->spec_json, strlen(row->spec_json), row->id, &spec, err));
    return experiment_spec_parse(spec, &step->spec, err);
}

/* Whether a job failed because it was too long: more memory or time than there is. */
static bool step_is_too_long(const char *reason)
{
    static const enum err_code codes[] = {ERR_NOMEM, ERR_HOST_OOM, ERR_DOES_NOT_FIT,
                                          ERR_TIME_LIMIT};
    for (size_t i = 0; i < sizeof codes / sizeof codes[0]; i++)
        if (strcmp(reason, err_code_name(codes[i])) == 0)
            return true;
    return false;
}

static enum step_state step_state_of(const struct store_point_row *row, const json_t *measured)
{
    const char *reason = json_string_value(json_object_get(measured, "reason"));
    if (strcmp(row->status, STORE_POINT_WAITING) == 0)
        return STEP_WAITING;
    if (strcmp(row->status, STORE_POINT_SUBMITTED) == 0)
        return STEP_WORKING;
    if (strcmp(row->status, job_state_name(JOB_STATE_SUCCEEDED)) == 0)
        return STEP_RAN;
    if (strcmp(row->status, job_state_name(JOB_STATE_FAILED)) == 0)
        return step_is_too_long(reason != NULL ? reason : "") ? STEP_TOO_LONG : STEP_FAILED;
    return STEP_LEFT;
}

static int step_make_room(struct step *step, struct err *err)
{
    if (step->count < step->room)
        return 0;
    size_t room = step->room * 2 + 16;
    struct step_point *points = mem_grow(step->points, room, sizeof *points);
    if (points == NULL)
        return mem_fail(err, room * sizeof *points, "an experiment");
    step->points = points;
    step->room = room;
    return 0;
}

static int step_take_point(void *context, const struct store_point_row *row, struct err *err)
{
    struct step *step = context;
    CLEANUP(json_unref) json_t *facts = NULL;
    CLEANUP(json_unref) json_t *measured = NULL;
    struct step_point point = {.number = row->number};
    TRY(step_make_room(step, err));
    TRY(json_parse(row->facts_json, strlen(row->facts_json), "a point", &facts, err));
    if (row->measured_json[0] != '\0')
        TRY(json_parse(row->measured_json, strlen(row->measured_json), "a point", &measured, err));
    TRY(json_get_i64(facts, "series", ERR_CORRUPT, &point.series, err));
    TRY(json_get_i64(facts, "seq_len", ERR_CORRUPT, &point.seq_len, err));
    TRY(json_get_i64(facts, "slots", ERR_CORRUPT, &point.slots, err));
    point.state = step_state_of(row, measured);
    (void)snprintf(point.job_id, sizeof point.job_id, "%s", row->job_id);
    if (point.state == STEP_WAITING && (point.body = mem_strdup(row->body_json)) == NULL)
        return mem_fail(err, strlen(row->body_json), "a point");
    step->points[step->count++] = point;
    return 0;
}

/* ---- jobs that have ended ---- */

struct step_ended {
    enum job_state state;
    char reason[64], text[ERR_TEXT_MAX];
};

static int step_take_job(void *context, const struct store_job *job, struct err *err)
{
    struct step_ended *ended = context;
    (void)err;
    ended->state = job->state;
    (void)snprintf(ended->reason, sizeof ended->reason, "%s", job->reason);
    (void)snprintf(ended->text, sizeof ended->text, "%s", job->reason_text);
    return 0;
}

/* Its end becomes the point's; of a job that was deleted before, nothing is known. */
static int step_settle(struct step *step, struct step_point *point, struct err *err)
{
    struct step_ended ended = {.state = JOB_STATE_CANCELLED, .text = "its job was deleted"};
    CLEANUP(buf_done) struct buf text;
    buf_init(&text, LIMIT_JSON_BODY_BYTES);
    int rc = store_job_get(step->api->store, point->job_id, step_take_job, &ended, err);
    if (rc != 0 && rc != -ERR_NOT_FOUND)
        return rc;
    if (!job_state_is_end(ended.state))
        return 0;
    CLEANUP(json_unref)
    json_t *measured = ended.state == JOB_STATE_SUCCEEDED
                           ? measurement_json(step->api->settings->data_dir, point->job_id)
                           : json_pack("{s:s}", "reason", ended.reason);
    if (json_is_object(measured))
        TRY(json_print(measured, &text, err));
    TRY(store_experiment_settle(step->api->store, step->id, point->number,
                                job_state_name(ended.state), ended.text, buf_str(&text), err));
    point->state = ended.state == JOB_STATE_SUCCEEDED   ? STEP_RAN
                   : ended.state == JOB_STATE_CANCELLED ? STEP_LEFT
                   : step_is_too_long(ended.reason)     ? STEP_TOO_LONG
                                                        : STEP_FAILED;
    return 0;
}

/* ---- what follows ---- */

/* Whether what failed is tried again later. */
static bool step_is_passing(int rc)
{
    return err_is_shortage(rc) || rc == -ERR_TOO_MANY || rc == -ERR_IO || rc == -ERR_NO_SPACE;
}

/* Whether what has not ended is to be cancelled, and why. */
static const char *step_why_stop(const struct step *step)
{
    if (step->cancelled)
        return "the experiment was cancelled";
    for (size_t i = 0; experiment_spec_stops(&step->spec) && i < step->count; i++)
        if (step->points[i].state == STEP_FAILED ||
            (step->points[i].state == STEP_TOO_LONG && !experiment_spec_searches(&step->spec)))
            return "another point failed, and on_failure is stop";
    return NULL;
}

static int step_stop(struct step *step, const char *why, struct err *err)
{
    struct err ended; /* its end is settled in the next round */
    for (size_t i = 0; i < step->count; i++) {
        struct step_point *point = &step->points[i];
        if (point->state == STEP_WORKING)
            (void)coordinator_cancel(step->api->coordinator, point->job_id, &ended);
        if (point->state != STEP_WAITING)
            continue;
        TRY(store_experiment_settle(step->api->store, step->id, point->number,
                                    job_state_name(JOB_STATE_CANCELLED), why, "", err));
        point->state = STEP_LEFT;
    }
    return 0;
}

/* Under find_max_seq_len: the next length of a series none of whose points is unsettled. */
static int64_t step_next_length(const struct step *step, int64_t series,
                                struct experiment_probe *probes)
{
    size_t count = 0;
    for (size_t i = 0; i < step->count; i++) {
        const struct step_point *point = &step->points[i];
        if (point->series != series)
            continue;
        if (point->state == STEP_WAITING || point->state == STEP_WORKING)
            return 0;
        probes[count].seq_len = point->seq_len;
        probes[count++].outcome = point->state == STEP_RAN        ? EXPERIMENT_RUNS
                                  : point->state == STEP_TOO_LONG ? EXPERIMENT_TOO_LONG
                                                                  : EXPERIMENT_BREAKS;
    }
    int64_t close = step->spec.seq_len_step;
    if (close == 0)
        close = probes[0].seq_len / STEP_SHORT_PARTS > 0 ? probes[0].seq_len / STEP_SHORT_PARTS : 1;
    return experiment_search_next(probes, count, step->spec.seq_len_min, close);
}

/* What the experiment names may be gone (a model, a file): the point says so and ends its series.
 */
static int step_add(struct step *step, int64_t series, int64_t seq_len, struct err *err)
{
    CLEANUP(experiment_planner_done)
    struct experiment_planner planner = {.api = step->api, .viewer = "", .spec = &step->spec};
    CLEANUP(experiment_planned_done) struct experiment_planned planned = {.status = NULL};
    int rc = experiment_planner_point(&planner, series, seq_len, &planned, err);
    if (step_is_passing(rc))
        return rc;
    const struct err why = *err;
    char facts[128];
    struct store_point_row row = experiment_planned_row(&planned, (int64_t)step->count);
    if (rc != 0) {
        (void)snprintf(facts, sizeof facts, "{\"series\":%lld,\"seq_len\":%lld,\"slots\":0}",
                       (long long)series, (long long)seq_len);
        row.status = STORE_POINT_REFUSED;
        row.note = why.text;
        row.facts_json = facts;
        row.body_json = "{}";
    }
    TRY(store_experiment_add(step->api->store, step->id, &row, err));
    return step_take_point(step, &row, err);
}

static int step_search(struct step *step, struct err *err)
{
    CLEANUP(mem_free_ptr)
    struct experiment_probe *probes = mem_new(step->count, sizeof *probes); /* of one series */
    if (probes == NULL)
        return mem_fail(err, step->count * sizeof *probes, "an experiment");
    for (int64_t series = 0; series < step->spec.points; series++) {
        int64_t seq_len = step_next_length(step, series, probes);
        if (seq_len > 0)
            TRY(step_add(step, series, seq_len, err));
    }
    return 0;
}

/* ---- the next jobs ---- */

static int step_submit_job(struct step *step, const struct step_point *point, struct err *err)
{
    struct api *api = step->api;
    CLEANUP(json_unref) json_t *body = NULL;
    CLEANUP(job_spec_done) struct job_spec job = {.metadata = NULL};
    CLEANUP(models_entry_done) struct models_entry model = {.dir = NULL};
    char job_id[LIMIT_ID_BYTES + 1];
    double step_s = 0;
    TRY(json_parse(point->body, strlen(point->body), "a point", &body, err));
    TRY(job_spec_parse(body, &job, err));
    job.asked = json_incref(body);
    /* what it names was its owner's when it was made; it must still be there */
    TRY(api_jobs_resolve(api, NULL, &job, &model, &step_s, err));
    return coordinator_submit_point(
        api->coordinator, &job, step_s, model.dir, step->owner,
        &(struct coordinator_point){.experiment = step->id, .number = point->number}, job_id, err);
}

/* A job that cannot be made is refused; a daemon that is full is asked later. */
static int step_submit_point(struct step *step, struct step_point *point, struct err *err)
{
    struct err why = {.code = ERR_NONE};
    int rc = step_submit_job(step, point, &why);
    if (rc == 0) {
        point->state = STEP_WORKING;
        return 0;
    }
    if (step_is_passing(rc)) {
        *err = why;
        return rc;
    }
    point->state = STEP_LEFT;
    return store_experiment_settle(step->api->store, step->id, point->number, STORE_POINT_REFUSED,
                                   why.text, "", err);
}

/* What jobs of the experiment have or wait for. */
struct step_taken {
    int64_t jobs, slots;
};

static void step_take_up(struct step_taken *taken, const struct step_point *point)
{
    taken->jobs++;
    taken->slots += point->slots;
}

/* Whether one more is too much. */
static bool step_is_full(const struct step *step, const struct step_taken *taken,
                         const struct step_point *point)
{
    int64_t max = step->spec.max_gpus;
    return (max > 0 && taken->slots + point->slots > max) ||
           taken->jobs >= coordinator_slots(step->api->coordinator) + STEP_AHEAD;
}

static int step_submit(struct step *step, bool *ret_again, struct err *err)
{
    struct step_taken taken = {.jobs = 0};
    int64_t submitted = 0;
    for (size_t i = 0; i < step->count; i++)
        if (step->points[i].state == STEP_WORKING)
            step_take_up(&taken, &step->points[i]);
    for (size_t i = 0; i < step->count; i++) {
        struct step_point *point = &step->points[i];
        if (point->state != STEP_WAITING)
            continue;
        if (step_is_full(step, &taken, point))
            return 0;
        *ret_again = submitted == STEP_BATCH;
        if (*ret_again)
            return 0;
        TRY(step_submit_point(step, point, err));
        submitted++;
        if (point->state == STEP_WORKING)
            step_take_up(&taken, point);
    }
    return 0;
}

int experiment_step(struct api *api, const char *id, bool *ret_again, struct err *err)
{
    CLEANUP(step_done) struct step step = {.api = api, .id = id};
    *ret_again = false;
    TRY(store_experiment_get(api->store, id, step_take, &step, err));
    TRY(store_experiment_points(api->store, id, step_take_point, &step, err));
    for (size_t i = 0; i < step.count; i++)
        if (step.points[i].state == STEP_WORKING)
            TRY(step_settle(&step, &step.points[i], err));
    if (coordinator_is_stopping(api->coordinator)) /* the next daemon goes on */
        return 0;
    const char *why = step_why_stop(&step);
    if (why != NULL)
        TRY(step_stop(&step, why, err));
    else if (experiment_spec_searches(&step.spec))
        TRY(step_search(&step, err));
    TRY(step_submit(&step, ret_again, err));
    for (size_t i = 0; i < step.count; i++)
        if (step.points[i].state == STEP_WAITING || step.points[i].state == STEP_WORKING)
            return 0;
    log_info("experiments", "%s has ended", id);
    return store_experiment_end(api->store, id, api->host->ops->wall_ms(api->host), err);
}
