/* coordinator_change: new values for a job that is there, and the jobs that a job depends on.
 *
 * A job that depends on others waits until all of them have succeeded, and fails when one has not.
 * Each keeps whether it waits (`depends`), which is found out when it is queued or changed, and
 * when a job that it names has ended: not at each pass, which would search for names. */
#include "common/json.h"
#include "common/log.h"
#include "common/mem.h"
#include "daemon/coordinator_private.h"

#include <string.h>

/* ---- dependencies -------------------------------------------------------------------------- */

int coordinator_depends_check(struct coordinator *coordinator, const struct job_spec *spec,
                              const char *owner, struct err *err)
{
    for (int64_t i = 0; i < spec->depends_on.count; i++) {
        const char *id = spec->depends_on.items[i];
        char other[LIMIT_NAME_BYTES + 1];
        int rc = store_job_owner(coordinator->store, id, other, err);
        if (rc != 0 && rc != -ERR_NOT_FOUND)
            return rc;
        if (rc != 0 || strcmp(owner, other) != 0)
            return err_set_field(err, ERR_INVALID_VALUE, "ithaca.depends_on",
                                 "ithaca.depends_on: %s has no fine-tuning job \"%s\"", owner, id);
    }
    return 0;
}

void coordinator_depends_reset(struct coordinator_job *job)
{
    job->depends = false;
    job->depends_known = job->spec.depends_on.count == 0;
}

static bool depends_on(const struct coordinator_job *job, const char *id)
{
    int64_t i = 0;
    while (i < job->spec.depends_on.count && strcmp(job->spec.depends_on.items[i], id) != 0)
        i++;
    return i < job->spec.depends_on.count;
}

int coordinator_check_forgotten(struct coordinator *coordinator, const char *job_id,
                                struct err *err)
{
    for (const struct coordinator_job *job = coordinator->jobs; job != NULL; job = job->next) {
        if (strcmp(job->id, job_id) == 0 && !job_state_is_end(job->state))
            return err_set(err, ERR_BAD_STATE, "job %s is not at its end: cancel it, or await it",
                           job_id);
        if (depends_on(job, job_id))
            return err_set(err, ERR_BAD_STATE, "job %s depends on it: cancel that, or await it",
                           job->id);
    }
    return 0;
}

void coordinator_depends_ended(struct coordinator *coordinator, const char *job_id)
{
    for (struct coordinator_job *job = coordinator->jobs; job != NULL; job = job->next)
        if (depends_on(job, job_id))
            job->depends_known = false;
}

struct depends_look {
    bool succeeded;
    struct err *why; /* of the job that depends: how the other has ended */
};

static int depends_row(void *context, const struct store_job *row, struct err *err)
{
    struct depends_look *look = context;
    (void)err;
    look->succeeded = row->state == JOB_STATE_SUCCEEDED;
    (void)err_set(look->why, ERR_DEPENDENCY, "it depends on %s, which is %s%s%s", row->id,
                  job_state_name(row->state), row->reason_text[0] != '\0' ? ": " : "",
                  row->reason_text);
    return 0;
}

int coordinator_depends_step(struct coordinator_job *job, struct err *err)
{
    struct coordinator *coordinator = job->coordinator;
    bool waits = false;
    for (int64_t i = 0; i < job->spec.depends_on.count; i++) {
        const char *id = job->spec.depends_on.items[i];
        struct err why;
        struct depends_look look = {.why = &why};
        if (coordinator_find(coordinator, id) != NULL) {
            waits = true;
            continue;
        }
        int rc = store_job_get(coordinator->store, id, depends_row, &look, err);
        if (rc != 0 && rc != -ERR_NOT_FOUND)
            return rc;
        if (rc != 0)
            (void)err_set(&why, ERR_DEPENDENCY, "it depends on %s, which is not there any more",
                          id);
        if (!look.succeeded)
            return coordinator_job_move_to(job, JOB_STATE_FAILED, &why, NULL, err);
    }
    job->depends = waits;
    job->depends_known = true;
    coordinator->queue_changes++;
    return 0;
}

/* Whether `goal` is met on the way from the jobs that a spec depends on to those that they depend
 * on, and so on. todo has room for all jobs. */
static bool depends_reach(struct coordinator *coordinator, const struct job_spec *spec,
                          const struct coordinator_job *goal, struct coordinator_job **todo)
{
    size_t count = 0;
    for (struct coordinator_job *job = coordinator->jobs; job != NULL; job = job->next)
        job->visited = false;
    for (;;) {
        for (int64_t i = 0; i < spec->depends_on.count; i++) {
            struct coordinator_job *next = coordinator_find(coordinator, spec->depends_on.items[i]);
            if (next == goal)
                return true;
            if (next == NULL || next->visited)
                continue;
            next->visited = true;
            todo[count++] = next;
        }
        if (count == 0)
            return false;
        spec = &todo[--count]->spec;
    }
}

static int depends_check_circle(struct coordinator_job *job, const struct job_spec *spec,
                                struct err *err)
{
    struct coordinator *coordinator = job->coordinator;
    CLEANUP(mem_free_ptr)
    struct coordinator_job **todo = mem_new((size_t)coordinator->job_count, sizeof(void *));
    if (todo == NULL)
        return mem_fail(err, (size_t)coordinator->job_count * sizeof(void *), "a list of jobs");
    if (!depends_reach(coordinator, spec, job, todo))
        return 0;
    return err_set_field(err, ERR_INVALID_VALUE, "ithaca.depends_on",
                         "ithaca.depends_on: these jobs wait for %s themselves, none would start",
                         job->id);
}

/* ---- change -------------------------------------------------------------------------------- */

int coordinator_spec_print(const struct job_spec *spec, struct buf *out, struct err *err)
{
    CLEANUP(json_unref) json_t *json = job_spec_json(spec);
    if (json == NULL)
        return mem_fail(err, 0, "a job's specification");
    return json_print(json, out, err);
}

/* "Job is changed by ann: {"priority":5}." */
static int change_tell(const json_t *body, const char *user, struct buf *out, struct err *err)
{
    buf_printf(out, "Job is changed by %s: ", user);
    TRY(json_print(json_object_get(body, "ithaca"), out, err));
    buf_text(out, ".");
    return buf_error(out, err);
}

static int change_store(struct coordinator_job *job, const struct job_spec *spec,
                        const char *event_text, struct err *err)
{
    struct coordinator *coordinator = job->coordinator;
    char event_id[LIMIT_ID_BYTES + 1];
    int64_t event_row = 0;
    CLEANUP(buf_done) struct buf text;
    buf_init(&text, LIMIT_JSON_BODY_BYTES);
    TRY(coordinator_spec_print(spec, &text, err));
    TRY(host_new_id(coordinator->host, "ftevent-", event_id, sizeof event_id, err));
    const struct store_job_change change = {
        .id = job->id,
        .spec_json = buf_str(&text),
        .priority = spec->priority,
        .event_id = event_id,
        .event_text = event_text,
        .now_ms = coordinator_wall(coordinator),
    };
    TRY(store_job_change(coordinator->store, &change, &event_row, err));
    bus_publish(coordinator->bus, &(struct bus_note){.job_id = job->id, .event_row = event_row});
    return 0;
}

static int change_check_limit(const struct coordinator_job *job, const struct job_spec *spec,
                              struct err *err)
{
    const int64_t before_s = job->spec.time_limit_s;
    bool raised = before_s > 0 && (spec->time_limit_s == 0 || spec->time_limit_s > before_s);
    if (!job->has_slots || !raised)
        return 0;
    return err_set_field(err, ERR_FORBIDDEN, "ithaca.time_limit_s",
                         "ithaca.time_limit_s of a job that has its slots can only be lowered: it "
                         "may have passed others by it; an admin can raise it");
}

static int change_job(struct coordinator_job *job, const struct job_spec *spec, const json_t *body,
                      const char *user, struct err *err)
{
    struct coordinator *coordinator = job->coordinator;
    CLEANUP(buf_done) struct buf told;
    buf_init(&told, LIMIT_JSON_BODY_BYTES);
    TRY(coordinator_depends_check(coordinator, spec, coordinator->usage.users[job->user].name,
                                  err));
    TRY(depends_check_circle(job, spec, err));
    TRY(change_tell(body, user, &told, err));
    return change_store(job, spec, buf_str(&told), err);
}

static int change_ended(void *context, const struct store_job *row, struct err *err)
{
    (void)context;
    return err_set(err, ERR_BAD_STATE, "job %s cannot be changed: it is %s", row->id,
                   job_state_name(row->state));
}

int coordinator_change(struct coordinator *coordinator, const char *job_id, const json_t *body,
                       const char *user, bool is_admin, struct err *err)
{
    struct coordinator_job *job = coordinator_find(coordinator, job_id);
    struct job_spec spec;
    if (job == NULL || job->state == JOB_STATE_CANCELLING)
        return store_job_get(coordinator->store, job_id, change_ended, NULL, err);
    TRY(job_spec_change(&job->spec, body, &spec, err));
    int rc = is_admin ? 0 : change_check_limit(job, &spec, err);
    if (rc == 0)
        rc = change_job(job, &spec, body, user, err);
    if (rc != 0) {
        job_spec_done(&spec);
        return rc;
    }
    log_info("coordinator", "%s is changed by %s", job->id, user);
    job_spec_done(&job->spec);
    job->spec = spec;
    coordinator_depends_reset(job);
    coordinator->queue_changes++;
    return 0;
}
