/* store_jobs: rows of jobs. A page is a range of `row`, so lists cost the same at any depth. A
 * change of state updates only where the old state still holds, and adds its event in the same
 * transaction: that is the compare-and-set of job_fsm.h. */
#include "common/must.h"
#include "daemon/job_fsm.h"
#include "daemon/store_experiments.h"
#include "daemon/store_sql.h"

#include <stdio.h>

#define STORE_JOB_COLUMNS                                                                          \
    "id, created_ms, started_ms, finished_ms, state, reason, reason_text, owner, spec_json, "      \
    "model, model_dir, training_file, validation_file, fine_tuned_model, priority, ranks, "        \
    "attempt, steps_done, steps_total, trained_tokens, prepared, restarts, ran_ms, resumed_step, " \
    "result_file, predicted_step_s, row, asked_json, experiment"

static struct store_job store_job_row(struct store_query *query)
{
    struct store_job job = {
        .id = store_column_text(query, 0),
        .created_ms = store_column_i64(query, 1),
        .started_ms = store_column_i64(query, 2),
        .finished_ms = store_column_i64(query, 3),
        .state = job_state_parse(store_column_text(query, 4)),
        .reason = store_column_text(query, 5),
        .reason_text = store_column_text(query, 6),
        .owner = store_column_text(query, 7),
        .spec_json = store_column_text(query, 8),
        .model = store_column_text(query, 9),
        .model_dir = store_column_text(query, 10),
        .training_file = store_column_text(query, 11),
        .validation_file = store_column_text(query, 12),
        .fine_tuned_model = store_column_text(query, 13),
        .priority = store_column_i64(query, 14),
        .ranks = store_column_i64(query, 15),
        .attempt = store_column_i64(query, 16),
        .steps_done = store_column_i64(query, 17),
        .steps_total = store_column_i64(query, 18),
        .trained_tokens = store_column_i64(query, 19),
        .prepared = store_column_i64(query, 20) != 0,
        .restarts = store_column_i64(query, 21),
        .ran_ms = store_column_i64(query, 22),
        .resumed_step = store_column_i64(query, 23),
        .result_file = store_column_text(query, 24),
        .predicted_step_s = store_column_f64(query, 25),
        .row = store_column_i64(query, 26),
        .asked_json = store_column_text(query, 27),
        .experiment = store_column_text(query, 28),
    };
    must(job.state < JOB_STATE_COUNT); /* the table's CHECK has the same list */
    return job;
}

/* Rows to `row` until the query or the limit ends; one row beyond the limit means "has more". */
static int store_jobs_give(struct store_query *query, int64_t limit, store_job_fn *row,
                           void *context, bool *ret_has_more, struct err *err)
{
    bool found = false;
    for (int64_t given = 0;; given++) {
        TRY(store_query_step(query, &found, err));
        if (!found || given == limit)
            break;
        struct store_job job = store_job_row(query);
        TRY(row(context, &job, err));
    }
    *ret_has_more = found;
    return 0;
}

/* Its point knows the job from now on. */
static int store_job_set_point(struct store *store, const struct store_job *job, struct err *err)
{
    if (job->experiment == NULL || job->experiment[0] == '\0')
        return 0;
    return store_run(
        store, STORE_JOBS,
        "UPDATE experiment_points SET job_id = ?, status = '" STORE_POINT_SUBMITTED
        "' WHERE experiment_id = ? AND number = ?",
        STORE_VALUES(store_text(job->id), store_text(job->experiment), store_i64(job->point)), err);
}

/* data_json of an event of a change of state. */
enum { STORE_STATE_BYTES = 64 };
static void store_print_state(enum job_state state, char ret_json[STORE_STATE_BYTES])
{
    (void)snprintf(ret_json, STORE_STATE_BYTES, "{\"state\":\"%s\"}", job_state_name(state));
}

int store_job_insert(struct store *store, const struct store_job *job, const char *event_id,
                     int64_t *ret_event_row, struct err *err)
{
    CLEANUP(store_transaction_end) struct store_transaction transaction = {.store = store};
    TRY(store_transaction_begin(&transaction, STORE_JOBS, err));
    TRY(store_run(store, STORE_JOBS,
                  "INSERT INTO jobs (id, created_ms, state, owner, spec_json, model, model_dir, "
                  "training_file, validation_file, priority, ranks, steps_total, "
                  "predicted_step_s, asked_json, experiment) "
                  "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                  STORE_VALUES(store_text(job->id), store_i64(job->created_ms),
                               store_text(job_state_name(JOB_STATE_VALIDATING)),
                               store_text(job->owner), store_text(job->spec_json),
                               store_text(job->model), store_text(job->model_dir),
                               store_text(job->training_file), store_text(job->validation_file),
                               store_i64(job->priority), store_i64(job->ranks),
                               store_i64(job->steps_total), store_f64(job->predicted_step_s),
                               store_text(job->asked_json), store_text(job->experiment)),
                  err));
    TRY(store_job_set_point(store, job, err));
    char data[STORE_STATE_BYTES];
    store_print_state(JOB_STATE_VALIDATING, data);
    const struct store_event event = {
        .id = event_id,
        .job_id = job->id,
        .created_ms = job->created_ms,
        .level = "info",
        .type = "message",
        .message = "Job created; its files are being checked.",
        .data_json = data,
    };
    TRY(store_event_insert(store, &event, ret_event_row, err));
    TRY(store_replay_made(store, job->id, err));
    return store_transaction_commit(&transaction, err);
}

/* The job of a query with one text parameter; ERR_NOT_FOUND names `what`. */
static int store_job_one(struct store *store, const char *sql, const char *text, const char *what,
                         store_job_fn *row, void *context, struct err *err)
{
    CLEANUP(store_query_end) struct store_query query = {.store = store};
    TRY(store_query(&query, STORE_JOBS, sql, STORE_VALUES(store_text(text)), err));
    bool found = false;
    TRY(store_query_step(&query, &found, err));
    if (!found)
        return err_set(err, ERR_NOT_FOUND, "there is no %s %s", what, text);
    struct store_job job = store_job_row(&query);
    return row(context, &job, err);
}

int store_job_get(struct store *store, const char *id, store_job_fn *row, void *context,
                  struct err *err)
{
    return store_job_one(store, "SELECT " STORE_JOB_COLUMNS " FROM jobs WHERE id = ?", id,
                         "fine-tuning job", row, context, err);
}

int store_job_by_result(struct store *store, const char *fine_tuned_model, store_job_fn *row,
                        void *context, struct err *err)
{
    return store_job_one(store,
                         "SELECT " STORE_JOB_COLUMNS
                         " FROM jobs WHERE fine_tuned_model = ? AND fine_tuned_model <> ''",
                         fine_tuned_model, "model", row, context, err);
}

static int store_take_owner(void *ret_owner, const struct store_job *job, struct err *err)
{
    (void)err;
    (void)snprintf(ret_owner, LIMIT_NAME_BYTES + 1, "%s", job->owner);
    return 0;
}

int store_job_owner(struct store *store, const char *id, char ret_owner[LIMIT_NAME_BYTES + 1],
                    struct err *err)
{
    return store_job_get(store, id, store_take_owner, ret_owner, err);
}

/* metadata: no pair of the filter may be without its equal in the job's metadata; the filter null
 * wants jobs that have none. */
#define STORE_JOB_FILTER                                                              \
    "(?2 = '' OR owner = ?2) AND "                                                    \
    "iif(?3 = 'null', coalesce(json_extract(spec_json, '$.metadata'), '{}') = '{}', " \
    "NOT EXISTS (SELECT 1 FROM json_each(?3) AS f WHERE NOT EXISTS (SELECT 1 FROM "   \
    "json_each(jobs.spec_json, '$.metadata') AS m WHERE m.key = f.key AND m.value = f.value)))"

/* The first row that a page looks at, the last, and whether there are rows behind that one. */
static int store_jobs_window(struct store *store, const struct store_page *page, int64_t look,
                             int64_t *ret_first, int64_t *ret_last, bool *ret_beyond,
                             struct err *err)
{
    int64_t start = 0, newest = 0;
    TRY(store_page_start(store, page, STORE_PAGE_ROW("jobs"), NULL, &start, err));
    TRY(store_query_i64(store, STORE_JOBS, "SELECT max(row) FROM jobs", NULL, &newest, err));
    if (page->order == STORE_NEWEST_FIRST) {
        *ret_first = start > newest ? newest : start - 1;
        *ret_beyond = *ret_first > look;
        *ret_last = *ret_beyond ? *ret_first - look + 1 : 1;
    } else {
        *ret_first = start + 1;
        *ret_beyond = newest - start > look;
        *ret_last = *ret_beyond ? start + look : newest;
    }
    return 0;
}

int store_jobs_look(struct store *store, const char *owner, const char *metadata_json,
                    const struct store_page *page, int64_t look, store_job_fn *row, void *context,
                    bool *ret_has_more, int64_t *ret_row, struct err *err)
{
    int64_t first = 0, last = 0;
    bool beyond = false, filtered = metadata_json != NULL && metadata_json[0] != '\0';
    TRY(store_jobs_window(store, page, look, &first, &last, &beyond, err));
    CLEANUP(store_query_end) struct store_query query = {.store = store};
    TRY(store_query(&query, STORE_JOBS,
                    page->order == STORE_NEWEST_FIRST
                        ? "SELECT " STORE_JOB_COLUMNS
                          " FROM jobs WHERE row BETWEEN ?5 AND ?1 AND " STORE_JOB_FILTER
                          " ORDER BY row DESC LIMIT ?4"
                        : "SELECT " STORE_JOB_COLUMNS
                          " FROM jobs WHERE row BETWEEN ?1 AND ?5 AND " STORE_JOB_FILTER
                          " ORDER BY row LIMIT ?4",
                    STORE_VALUES(store_i64(first), store_text(owner),
                                 store_text(filtered ? metadata_json : "{}"),
                                 store_i64(page->limit + 1), store_i64(last)),
                    err));
    TRY(store_jobs_give(&query, page->limit, row, context, ret_has_more, err));
    *ret_row = !*ret_has_more && beyond ? last : 0;
    *ret_has_more = *ret_has_more || beyond;
    return 0;
}

int store_jobs_list(struct store *store, const char *owner, const char *metadata_json,
                    const struct store_page *page, store_job_fn *row, void *context,
                    bool *ret_has_more, struct err *err)
{
    int64_t unused = 0;
    return store_jobs_look(store, owner, metadata_json, page, INT64_MAX, row, context, ret_has_more,
                           &unused, err);
}

int store_jobs_in_state(struct store *store, enum job_state state, store_job_fn *row, void *context,
                        struct err *err)
{
    CLEANUP(store_query_end) struct store_query query = {.store = store};
    TRY(store_query(&query, STORE_JOBS,
                    "SELECT " STORE_JOB_COLUMNS " FROM jobs WHERE state = ? ORDER BY row",
                    STORE_VALUES(store_text(job_state_name(state))), err));
    bool unused = false;
    return store_jobs_give(&query, INT64_MAX, row, context, &unused, err);
}

int store_jobs_tuned(struct store *store, int64_t look, int64_t *row_after, store_job_fn *row,
                     void *context, bool *ret_has_more, struct err *err)
{
    const struct store_page page = {.after_row = *row_after, .order = STORE_OLDEST_FIRST};
    int64_t first = 0, last = 0;
    bool beyond = false, unused = false;
    TRY(store_jobs_window(store, &page, look, &first, &last, &beyond, err));
    CLEANUP(store_query_end) struct store_query query = {.store = store};
    TRY(store_query(&query, STORE_JOBS,
                    "SELECT " STORE_JOB_COLUMNS " FROM jobs WHERE row BETWEEN ? AND ? AND "
                    "state = 'succeeded' AND fine_tuned_model <> '' ORDER BY row",
                    STORE_VALUES(store_i64(first), store_i64(last)), err));
    TRY(store_jobs_give(&query, INT64_MAX, row, context, &unused, err));
    *row_after = last;
    *ret_has_more = beyond;
    return 0;
}

/* Of the other jobs it reads the index of ids alone. */
int store_jobs_by_tail(struct store *store, const char *tail, store_job_fn *row, void *context,
                       struct err *err)
{
    CLEANUP(store_query_end) struct store_query query = {.store = store};
    TRY(store_query(&query, STORE_JOBS,
                    "SELECT " STORE_JOB_COLUMNS
                    " FROM jobs WHERE row IN (SELECT row FROM jobs WHERE "
                    "substr(id, -length(?1)) = ?1) ORDER BY row",
                    STORE_VALUES(store_text(tail)), err));
    bool unused = false;
    return store_jobs_give(&query, INT64_MAX, row, context, &unused, err);
}

int store_jobs_count(struct store *store, int64_t counts[], struct err *err)
{
    CLEANUP(store_query_end) struct store_query query = {.store = store};
    TRY(store_query(&query, STORE_JOBS, "SELECT state, count(*) FROM jobs GROUP BY state", NULL,
                    err));
    for (;;) {
        bool found = false;
        TRY(store_query_step(&query, &found, err));
        if (!found)
            return 0;
        enum job_state state = job_state_parse(store_column_text(&query, 0));
        must(state < JOB_STATE_COUNT);
        counts[state] = store_column_i64(&query, 1);
    }
}

int store_job_set_result(struct store *store, const char *id, const struct store_file *file,
                         struct err *err)
{
    CLEANUP(store_transaction_end) struct store_transaction transaction = {.store = store};
    TRY(store_transaction_begin(&transaction, STORE_JOBS, err));
    TRY(store_file_put(store, file, err));
    TRY(store_run(store, STORE_JOBS, "UPDATE jobs SET result_file = ? WHERE id = ?",
                  STORE_VALUES(store_text(file->id), store_text(id)), err));
    return store_transaction_commit(&transaction, err);
}

static int store_job_at_end(void *context, const struct store_job *job, struct err *err)
{
    (void)context;
    if (job_state_is_end(job->state))
        return 0;
    return err_set(err, ERR_BAD_STATE, "job %s is %s: cancel it, or await its end", job->id,
                   job_state_name(job->state));
}

int store_job_check_end(struct store *store, const char *id, struct err *err)
{
    return store_job_get(store, id, store_job_at_end, NULL, err);
}

int store_job_delete(struct store *store, const char *id, struct err *err)
{
    TRY(store_job_check_end(store, id, err));
    TRY(store_points_forget(store, id, err));
    CLEANUP(store_transaction_end) struct store_transaction transaction = {.store = store};
    TRY(store_transaction_begin(&transaction, STORE_JOBS, err));
    TRY(store_run(store, STORE_JOBS, "DELETE FROM job_events WHERE job_id = ?",
                  STORE_VALUES(store_text(id)), err));
    TRY(store_run(store, STORE_JOBS,
                  "INSERT INTO attempts_gone SELECT * FROM attempts_held WHERE job_id = ?",
                  STORE_VALUES(store_text(id)), err));
    TRY(store_run(store, STORE_JOBS, "DELETE FROM attempts WHERE job_id = ?",
                  STORE_VALUES(store_text(id)), err));
    TRY(store_run(store, STORE_JOBS, "DELETE FROM jobs WHERE id = ?", STORE_VALUES(store_text(id)),
                  err));
    return store_transaction_commit(&transaction, err);
}

static int store_job_set(struct store *store, const struct store_job_move *move, struct err *err)
{
    return store_run(
        store, STORE_JOBS,
        "UPDATE jobs SET state = ?3, reason = ?4, reason_text = ?5, "
        "fine_tuned_model = coalesce(?6, fine_tuned_model), "
        "trained_tokens = iif(?7 > 0, ?7, trained_tokens), "
        "attempt = iif(?8 > 0, ?8, attempt), "
        "resumed_step = iif(?8 > 0, ?12, resumed_step), "
        "started_ms = iif(?9 AND started_ms = 0, ?11, started_ms), "
        "finished_ms = iif(?10, ?11, iif(?15, 0, finished_ms)), "
        "prepared = prepared OR ?13, "
        "restarts = iif(?15, 0, restarts + ?14), ran_ms = iif(?15, 0, ran_ms) "
        "WHERE id = ?1 AND state = ?2",
        STORE_VALUES(
            store_text(move->id), store_text(job_state_name(move->from)),
            store_text(job_state_name(move->to)), store_text(move->reason),
            store_text(move->reason_text),
            move->fine_tuned_model != NULL ? store_text(move->fine_tuned_model) : store_null(),
            store_i64(move->trained_tokens), store_i64(move->attempt), store_i64(move->ran),
            store_i64(move->ended), store_i64(move->now_ms), store_i64(move->resumed_step),
            store_i64(move->prepared), store_i64(move->restarted), store_i64(move->renewed)),
        err);
}

static int store_job_name_state(void *context, const struct store_job *job, struct err *err)
{
    const struct store_job_move *move = context;
    return err_set(err, ERR_BAD_STATE, "job %s is %s, not %s", job->id, job_state_name(job->state),
                   job_state_name(move->from));
}

int store_job_move(struct store *store, const struct store_job_move *move, int64_t *ret_event_row,
                   struct err *err)
{
    CLEANUP(store_transaction_end) struct store_transaction transaction = {.store = store};
    TRY(store_transaction_begin(&transaction, STORE_JOBS, err));
    TRY(store_job_set(store, move, err));
    if (sqlite3_changes(store->databases[STORE_JOBS]) != 1)
        return store_job_get(store, move->id, store_job_name_state, (void *)(uintptr_t)move, err);
    char data[STORE_STATE_BYTES];
    store_print_state(move->to, data);
    const struct store_event event = {
        .id = move->event_id,
        .job_id = move->id,
        .created_ms = move->now_ms,
        .level = move->event_level,
        .type = "message",
        .message = move->event_text,
        .data_json = data,
    };
    TRY(store_event_insert(store, &event, ret_event_row, err));
    return store_transaction_commit(&transaction, err);
}

int store_job_change(struct store *store, const struct store_job_change *change,
                     int64_t *ret_event_row, struct err *err)
{
    CLEANUP(store_transaction_end) struct store_transaction transaction = {.store = store};
    TRY(store_transaction_begin(&transaction, STORE_JOBS, err));
    TRY(store_run(store, STORE_JOBS, "UPDATE jobs SET spec_json = ?, priority = ? WHERE id = ?",
                  STORE_VALUES(store_text(change->spec_json), store_i64(change->priority),
                               store_text(change->id)),
                  err));
    const struct store_event event = {
        .id = change->event_id,
        .job_id = change->id,
        .created_ms = change->now_ms,
        .level = "info",
        .type = "message",
        .message = change->event_text,
        .data_json = "",
    };
    TRY(store_event_insert(store, &event, ret_event_row, err));
    return store_transaction_commit(&transaction, err);
}

static int store_attempt_progress(struct store *store, const char *id,
                                  const struct store_progress *progress, struct err *err)
{
    return store_run(store, STORE_JOBS,
                     "UPDATE attempts SET from_step = ?3, step = ?4, tokens = ?5 "
                     "WHERE job_id = ?1 AND number = ?2",
                     STORE_VALUES(store_text(id), store_i64(progress->attempt),
                                  store_i64(progress->from_step), store_i64(progress->step),
                                  store_i64(progress->tokens)),
                     err);
}

int store_job_progress(struct store *store, const char *id, const struct store_progress *progress,
                       struct err *err)
{
    CLEANUP(store_transaction_end) struct store_transaction transaction = {.store = store};
    TRY(store_transaction_begin(&transaction, STORE_JOBS, err));
    TRY(store_run(store, STORE_JOBS,
                  "UPDATE jobs SET steps_done = ?2, steps_total = iif(?3 > 0, ?3, steps_total), "
                  "trained_tokens = iif(?4 > 0, ?4, trained_tokens), ran_ms = ?5 WHERE id = ?1",
                  STORE_VALUES(store_text(id), store_i64(progress->steps_done),
                               store_i64(progress->steps_total),
                               store_i64(progress->trained_tokens), store_i64(progress->ran_ms)),
                  err));
    if (progress->attempt > 0)
        TRY(store_attempt_progress(store, id, progress, err));
    return store_transaction_commit(&transaction, err);
}
