/* store_attempts: rows of attempts: which keeper ran a start of a job, and what it held. */
#include "daemon/store_attempts.h"

#include "daemon/store_sql.h"

int store_attempt_put(struct store *store, const struct store_attempt *attempt, struct err *err)
{
    return store_run(store, STORE_JOBS,
                     "INSERT INTO attempts (job_id, number, started_ms, ended_ms, keeper_pid, "
                     "keeper_start_time, boot_id, outcome, outcome_text, gpus, from_step, step, "
                     "tokens) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) "
                     "ON CONFLICT (job_id, number) DO UPDATE SET ended_ms = excluded.ended_ms, "
                     "keeper_pid = excluded.keeper_pid, "
                     "keeper_start_time = excluded.keeper_start_time, "
                     "boot_id = excluded.boot_id, outcome = excluded.outcome, "
                     "outcome_text = excluded.outcome_text, from_step = excluded.from_step, "
                     "step = excluded.step, tokens = excluded.tokens",
                     STORE_VALUES(store_text(attempt->job_id), store_i64(attempt->number),
                                  store_i64(attempt->started_ms), store_i64(attempt->ended_ms),
                                  store_i64(attempt->keeper_pid),
                                  store_i64(attempt->keeper_start_time),
                                  store_text(attempt->boot_id), store_text(attempt->outcome),
                                  store_text(attempt->outcome_text), store_text(attempt->gpus),
                                  store_i64(attempt->from_step), store_i64(attempt->step),
                                  store_i64(attempt->tokens)),
                     err);
}

int store_attempt_move(struct store *store, const char *job_id, int64_t number, int64_t started_ms,
                       struct err *err)
{
    return store_run(
        store, STORE_JOBS, "UPDATE attempts SET started_ms = ? WHERE job_id = ? AND number = ?",
        STORE_VALUES(store_i64(started_ms), store_text(job_id), store_i64(number)), err);
}

int store_attempt_get(struct store *store, const char *job_id, int64_t number,
                      store_attempt_fn *row, void *context, struct err *err)
{
    CLEANUP(store_query_end) struct store_query query = {.store = store};
    TRY(store_query(&query, STORE_JOBS,
                    "SELECT job_id, number, started_ms, ended_ms, keeper_pid, keeper_start_time, "
                    "boot_id, outcome, outcome_text, gpus, from_step, step, tokens FROM attempts "
                    "WHERE job_id = ? AND number = ?",
                    STORE_VALUES(store_text(job_id), store_i64(number)), err));
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
        .from_step = store_column_i64(&query, 10),
        .step = store_column_i64(&query, 11),
        .tokens = store_column_i64(&query, 12),
    };
    return row(context, &attempt, err);
}

static struct store_held store_held_row(struct store_query *query)
{
    return (struct store_held){
        .job_id = store_column_text(query, 0),
        .number = store_column_i64(query, 1),
        .owner = store_column_text(query, 2),
        .model = store_column_text(query, 3),
        .state = store_column_text(query, 4),
        .started_ms = store_column_i64(query, 5),
        .ended_ms = store_column_i64(query, 6),
        .slots = store_column_i64(query, 7),
        .has_gpus = store_column_i64(query, 8) != 0,
        .outcome = store_column_text(query, 9),
        .from_step = store_column_i64(query, 10),
        .step = store_column_i64(query, 11),
        .kept_step = store_column_i64(query, 12),
        .tokens = store_column_i64(query, 13),
    };
}

#define STORE_HELD                                                                              \
    "SELECT job_id, number, owner, model, state, started_ms, iif(ended_ms = 0, ?1, ended_ms), " \
    "slots, has_gpus, outcome, from_step, step, kept_step, tokens "

/* Two ordered lists that SQLite merges: a page takes as long as its rows. */
int store_attempts_held(struct store *store, const struct store_held_page *page, store_held_fn *row,
                        void *context, int64_t *ret_count, struct err *err)
{
    CLEANUP(store_query_end) struct store_query query = {.store = store};
    TRY(store_query(&query, STORE_JOBS,
                    STORE_HELD
                    "FROM attempts_held WHERE (job_id, number) > (?2, ?3) UNION ALL " STORE_HELD
                    "FROM attempts_gone WHERE (job_id, number) > (?2, ?3) "
                    "ORDER BY 1, 2 LIMIT ?4",
                    STORE_VALUES(store_i64(page->now_ms), store_text(page->job_id),
                                 store_i64(page->number), store_i64(page->limit)),
                    err));
    for (*ret_count = 0;; ++*ret_count) {
        bool found = false;
        TRY(store_query_step(&query, &found, err));
        if (!found)
            return 0;
        const struct store_held held = store_held_row(&query);
        TRY(row(context, &held, err));
    }
}

/* As many as take some milliseconds. */
int store_attempts_forget(struct store *store, int64_t before_ms, struct err *err)
{
    return store_run(store, STORE_JOBS,
                     "DELETE FROM attempts_gone WHERE (job_id, number) IN (SELECT job_id, "
                     "number FROM attempts_gone WHERE ended_ms < ? ORDER BY ended_ms LIMIT "
                     "250)",
                     STORE_VALUES(store_i64(before_ms)), err);
}
