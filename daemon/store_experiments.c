/* store_experiments: plain rows; what they mean is for experiments.c. */
#include "daemon/store_experiments.h"

#include "daemon/store_sql.h"

#include <stdio.h>

#define EXPERIMENT_COLUMNS "id, created_ms, owner, name, spec_json, ended_ms, cancelled"

static struct store_experiment experiment_row(struct store_query *query)
{
    return (struct store_experiment){
        .id = store_column_text(query, 0),
        .created_ms = store_column_i64(query, 1),
        .owner = store_column_text(query, 2),
        .name = store_column_text(query, 3),
        .spec_json = store_column_text(query, 4),
        .ended_ms = store_column_i64(query, 5),
        .cancelled = store_column_i64(query, 6) != 0,
    };
}

/* ---- experiments ---- */

static int experiment_put(struct store *store, const struct store_experiment *experiment,
                          struct err *err)
{
    return store_run(store, STORE_JOBS,
                     "INSERT INTO experiments (id, created_ms, owner, name, spec_json) "
                     "VALUES (?, ?, ?, ?, ?)",
                     STORE_VALUES(store_text(experiment->id), store_i64(experiment->created_ms),
                                  store_text(experiment->owner), store_text(experiment->name),
                                  store_text(experiment->spec_json)),
                     err);
}

int store_experiment_add(struct store *store, const char *id, const struct store_point_row *point,
                         struct err *err)
{
    return store_run(store, STORE_JOBS,
                     "INSERT INTO experiment_points (experiment_id, number, status, note, "
                     "facts_json, body_json) VALUES (?, ?, ?, ?, ?, ?)",
                     STORE_VALUES(store_text(id), store_i64(point->number),
                                  store_text(point->status), store_text(point->note),
                                  store_text(point->facts_json), store_text(point->body_json)),
                     err);
}

int store_experiment_insert(struct store *store, const struct store_experiment *experiment,
                            const struct store_point_row *points, size_t count, struct err *err)
{
    CLEANUP(store_transaction_end) struct store_transaction transaction = {.store = store};
    TRY(store_transaction_begin(&transaction, STORE_JOBS, err));
    TRY(experiment_put(store, experiment, err));
    for (size_t i = 0; i < count; i++)
        TRY(store_experiment_add(store, experiment->id, &points[i], err));
    TRY(store_replay_made(store, experiment->id, err));
    return store_transaction_commit(&transaction, err);
}

int store_experiment_get(struct store *store, const char *id, store_experiment_fn *row,
                         void *context, struct err *err)
{
    bool found = false;
    CLEANUP(store_query_end) struct store_query query = {.store = store};
    TRY(store_query(&query, STORE_JOBS,
                    "SELECT " EXPERIMENT_COLUMNS " FROM experiments WHERE id = ? AND NOT deleted",
                    STORE_VALUES(store_text(id)), err));
    TRY(store_query_step(&query, &found, err));
    if (!found)
        return err_set(err, ERR_NOT_FOUND, "there is no experiment %s", id);
    const struct store_experiment experiment = experiment_row(&query);
    return row(context, &experiment, err);
}

static int experiment_take_owner(void *ret_owner, const struct store_experiment *experiment,
                                 struct err *err)
{
    (void)err;
    (void)snprintf(ret_owner, LIMIT_NAME_BYTES + 1, "%s", experiment->owner);
    return 0;
}

int store_experiment_owner(struct store *store, const char *id,
                           char ret_owner[LIMIT_NAME_BYTES + 1], struct err *err)
{
    return store_experiment_get(store, id, experiment_take_owner, ret_owner, err);
}

int store_experiments_list(struct store *store, const char *owner, const struct store_page *page,
                           store_experiment_fn *row, void *context, bool *ret_has_more,
                           struct err *err)
{
    int64_t start = 0;
    bool found = false;
    TRY(store_page_start(store, page, STORE_PAGE_ROW("experiments"), NULL, &start, err));
    CLEANUP(store_query_end) struct store_query query = {.store = store};
    TRY(store_query(
        &query, STORE_JOBS,
        "SELECT " EXPERIMENT_COLUMNS " FROM experiments WHERE row < ?1 AND NOT deleted AND "
        "(?2 = '' OR owner = ?2) ORDER BY row DESC LIMIT ?3",
        STORE_VALUES(store_i64(start), store_text(owner), store_i64(page->limit + 1)), err));
    for (int64_t given = 0;; given++) {
        TRY(store_query_step(&query, &found, err));
        if (!found || given == page->limit)
            break;
        const struct store_experiment experiment = experiment_row(&query);
        TRY(row(context, &experiment, err));
    }
    *ret_has_more = found;
    return 0;
}

int store_experiment_open(struct store *store, int64_t after_row, int64_t *ret_row,
                          char ret_id[LIMIT_ID_BYTES + 1], struct err *err)
{
    bool found = false;
    CLEANUP(store_query_end) struct store_query query = {.store = store};
    TRY(store_query(&query, STORE_JOBS,
                    "SELECT row, id FROM experiments WHERE ended_ms = 0 AND row > ? ORDER BY row "
                    "LIMIT 1",
                    STORE_VALUES(store_i64(after_row)), err));
    TRY(store_query_step(&query, &found, err));
    *ret_row = found ? store_column_i64(&query, 0) : 0;
    (void)snprintf(ret_id, LIMIT_ID_BYTES + 1, "%s", found ? store_column_text(&query, 1) : "");
    return 0;
}

int store_experiments_open_count(struct store *store, const char *owner, int64_t *ret_count,
                                 struct err *err)
{
    return store_query_i64(store, STORE_JOBS,
                           "SELECT count(*) FROM experiments WHERE ended_ms = 0 AND owner = ?",
                           STORE_VALUES(store_text(owner)), ret_count, err);
}

int store_experiment_cancel(struct store *store, const char *id, struct err *err)
{
    return store_run(store, STORE_JOBS,
                     "UPDATE experiments SET cancelled = 1 WHERE id = ? AND ended_ms = 0",
                     STORE_VALUES(store_text(id)), err);
}

int store_experiment_end(struct store *store, const char *id, int64_t now_ms, struct err *err)
{
    return store_run(store, STORE_JOBS, "UPDATE experiments SET ended_ms = ? WHERE id = ?",
                     STORE_VALUES(store_i64(now_ms), store_text(id)), err);
}

static int experiment_at_end(void *context, const struct store_experiment *experiment,
                             struct err *err)
{
    (void)context;
    if (experiment->ended_ms > 0)
        return 0;
    return err_set(err, ERR_BAD_STATE, "experiment %s has not ended: cancel it, or await its end",
                   experiment->id);
}

int store_experiment_delete(struct store *store, const char *id, struct err *err)
{
    TRY(store_experiment_get(store, id, experiment_at_end, NULL, err));
    return store_run(store, STORE_JOBS, "UPDATE experiments SET deleted = 1 WHERE id = ?",
                     STORE_VALUES(store_text(id)), err);
}

int store_experiment_deleted(struct store *store, char ret_id[LIMIT_ID_BYTES + 1],
                             char ret_job_id[LIMIT_ID_BYTES + 1], struct err *err)
{
    TRY(store_query_id(store, STORE_JOBS, "SELECT id FROM experiments WHERE deleted LIMIT 1", NULL,
                       ret_id, err));
    return store_query_id(store, STORE_JOBS,
                          "SELECT id FROM jobs WHERE experiment = ? AND experiment <> '' LIMIT 1",
                          STORE_VALUES(store_text(ret_id)), ret_job_id, err);
}

int store_experiment_purge(struct store *store, const char *id, struct err *err)
{
    CLEANUP(store_transaction_end) struct store_transaction transaction = {.store = store};
    TRY(store_transaction_begin(&transaction, STORE_JOBS, err));
    TRY(store_run(store, STORE_JOBS, "DELETE FROM experiment_points WHERE experiment_id = ?",
                  STORE_VALUES(store_text(id)), err));
    TRY(store_run(store, STORE_JOBS, "DELETE FROM experiments WHERE id = ?",
                  STORE_VALUES(store_text(id)), err));
    return store_transaction_commit(&transaction, err);
}

/* ---- points ---- */

int store_experiment_points(struct store *store, const char *id, store_point_row_fn *row,
                            void *context, struct err *err)
{
    CLEANUP(store_query_end) struct store_query query = {.store = store};
    TRY(store_query(&query, STORE_JOBS,
                    "SELECT number, status, note, facts_json, body_json, job_id, measured_json "
                    "FROM experiment_points WHERE experiment_id = ? ORDER BY number",
                    STORE_VALUES(store_text(id)), err));
    for (;;) {
        bool found = false;
        TRY(store_query_step(&query, &found, err));
        if (!found)
            return 0;
        const struct store_point_row point = {
            .number = store_column_i64(&query, 0),
            .status = store_column_text(&query, 1),
            .note = store_column_text(&query, 2),
            .facts_json = store_column_text(&query, 3),
            .body_json = store_column_text(&query, 4),
            .job_id = store_column_text(&query, 5),
            .measured_json = store_column_text(&query, 6),
        };
        TRY(row(context, &point, err));
    }
}

int store_experiment_statuses(struct store *store, const char *id, store_status_fn *status,
                              void *context, struct err *err)
{
    CLEANUP(store_query_end) struct store_query query = {.store = store};
    TRY(store_query(&query, STORE_JOBS,
                    "SELECT status, count(*) FROM experiment_points WHERE experiment_id = ? "
                    "GROUP BY status",
                    STORE_VALUES(store_text(id)), err));
    for (;;) {
        bool found = false;
        TRY(store_query_step(&query, &found, err));
        if (!found)
            return 0;
        status(context, store_column_text(&query, 0), store_column_i64(&query, 1));
    }
}

int store_experiment_settle(struct store *store, const char *id, int64_t number, const char *status,
                            const char *note, const char *measured_json, struct err *err)
{
    return store_run(store, STORE_JOBS,
                     "UPDATE experiment_points SET status = ?, note = ?, measured_json = ? "
                     "WHERE experiment_id = ? AND number = ?",
                     STORE_VALUES(store_text(status), store_text(note), store_text(measured_json),
                                  store_text(id), store_i64(number)),
                     err);
}
