/* store_attempts: rows of attempts: which keeper ran a start of a job. */
#include "daemon/store_sql.h"

int store_attempt_put(struct store *store, const struct store_attempt *attempt, struct err *err)
{
    CLEANUP(store_query_end) struct store_query query = {.store = store};
    TRY(store_query(&query, STORE_JOBS,
                    "INSERT INTO attempts (job_id, number, started_ms, ended_ms, keeper_pid, "
                    "keeper_start_time, boot_id, outcome, outcome_text, gpus) "
                    "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) "
                    "ON CONFLICT (job_id, number) DO UPDATE SET ended_ms = excluded.ended_ms, "
                    "keeper_pid = excluded.keeper_pid, "
                    "keeper_start_time = excluded.keeper_start_time, "
                    "boot_id = excluded.boot_id, outcome = excluded.outcome, "
                    "outcome_text = excluded.outcome_text",
                    err));
    store_bind_text(&query, attempt->job_id);
    store_bind_i64(&query, attempt->number);
    store_bind_i64(&query, attempt->started_ms);
    store_bind_i64(&query, attempt->ended_ms);
    store_bind_i64(&query, attempt->keeper_pid);
    store_bind_i64(&query, attempt->keeper_start_time);
    store_bind_text(&query, attempt->boot_id);
    store_bind_text(&query, attempt->outcome);
    store_bind_text(&query, attempt->outcome_text);
    store_bind_text(&query, attempt->gpus);
    return store_query_run(&query, err);
}

int store_attempt_get(struct store *store, const char *job_id, int64_t number,
                      store_attempt_fn *row, void *context, struct err *err)
{
    CLEANUP(store_query_end) struct store_query query = {.store = store};
    TRY(store_query(
        &query, STORE_JOBS,
        "SELECT job_id, number, started_ms, ended_ms, keeper_pid, keeper_start_time, "
        "boot_id, outcome, outcome_text, gpus FROM attempts WHERE job_id = ? AND number = ?",
        err));
    store_bind_text(&query, job_id);
    store_bind_i64(&query, number);
    bool found = false;
    TRY(store_query_step(&query, &found, err));
    if (!found)
        return err_set(err, ERR_NOT_FOUND, "job %s has no attempt %lld", job_id, (long long)number);
    const struct store_attempt attempt = {
        .job_id = store_column_text(&query, 0),
        .number = store_column_i64(&query, 1),
        .started_ms = store_column_i64(&query, 2),
        .ended_ms = store_column_i64(&query, 3),
        .keeper_pid = store_column_i64(&query, 4),
        .keeper_start_time = store_column_i64(&query, 5),
        .boot_id = store_column_text(&query, 6),
        .outcome = store_column_text(&query, 7),
        .outcome_text = store_column_text(&query, 8),
        .gpus = store_column_text(&query, 9),
    };
    return row(context, &attempt, err);
}
