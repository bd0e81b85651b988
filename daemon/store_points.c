/* store_points: rows of metric points.
 *
 * A point keeps its job as a number. The number of the job last used is remembered: a batch is
 * mostly of one job. It is remembered only after the commit of a transaction that may have made it.
 *
 * A rank whose daemon was killed sends again what it knows no SEEN for; the unique key makes such
 * points fall away.
 *
 * Not finite: SQLite would store NaN as NULL by itself, but then nobody could tell NaN from Inf;
 * `kind` does. */
#include "common/must.h"
#include "daemon/store_sql.h"

#include <math.h>
#include <string.h>

static const char *store_point_kind(double value)
{
    return isnan(value) ? "nan" : value > 0 ? "inf" : "-inf";
}

static double store_point_value(struct store_query *query, int value_column, int kind_column)
{
    const char *kind = store_column_text(query, kind_column);
    if (kind[0] == '\0')
        return sqlite3_column_double(query->cached->statement, value_column);
    return strcmp(kind, "nan") == 0 ? (double)NAN
           : kind[0] == '-'         ? -(double)INFINITY
                                    : (double)INFINITY;
}

/* The number of a job in metrics.db; 0 when it has none. */
static int store_job_number(struct store *store, const char *job_id, int64_t *ret_number,
                            struct err *err)
{
    if (strcmp(store->point_job, job_id) == 0) {
        *ret_number = store->point_job_number;
        return 0;
    }
    return store_query_i64(store, STORE_METRICS, "SELECT number FROM jobs WHERE id = ?",
                           STORE_VALUES(store_text(job_id)), ret_number, err);
}

static int store_job_number_make(struct store *store, const char *job_id, int64_t *ret_number,
                                 struct err *err)
{
    TRY(store_job_number(store, job_id, ret_number, err));
    if (*ret_number != 0)
        return 0;
    TRY(store_run(store, STORE_METRICS, "INSERT INTO jobs (id) VALUES (?)",
                  STORE_VALUES(store_text(job_id)), err));
    *ret_number = sqlite3_last_insert_rowid(store->databases[STORE_METRICS]);
    return 0;
}

static int store_point_insert(struct store *store, const struct store_point *point,
                              int64_t job_number, struct err *err)
{
    bool finite = isfinite(point->value);
    return store_run(
        store, STORE_METRICS,
        "INSERT INTO points (job, attempt, step, rank, metric, value, kind, wall_s) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?) "
        "ON CONFLICT (job, metric, rank, step, attempt) DO NOTHING",
        STORE_VALUES(store_i64(job_number), store_i64(point->attempt), store_i64(point->step),
                     store_i64(point->rank), store_i64((int64_t)point->metric),
                     finite ? store_f64(point->value) : store_null(),
                     finite ? store_null() : store_text(store_point_kind(point->value)),
                     store_f64(isfinite(point->wall_s) ? point->wall_s : 0)),
        err);
}

int store_points_insert(struct store *store, const struct store_point *points, size_t count,
                        int64_t *ret_newest_row, struct err *err)
{
    must(count > 0);
    TRY(store_guests_admit(store, STORE_METRICS, err));
    CLEANUP(store_transaction_end) struct store_transaction transaction = {.store = store};
    TRY(store_transaction_begin(&transaction, STORE_METRICS, err));
    int64_t number = 0;
    for (size_t i = 0; i < count; i++) {
        if (i == 0 || strcmp(points[i].job_id, points[i - 1].job_id) != 0)
            TRY(store_job_number_make(store, points[i].job_id, &number, err));
        TRY(store_point_insert(store, &points[i], number, err));
    }
    int64_t row = sqlite3_last_insert_rowid(store->databases[STORE_METRICS]);
    TRY(store_transaction_commit(&transaction, err));
    const char *job_id = points[count - 1].job_id;
    must(strlen(job_id) < sizeof store->point_job);
    memcpy(store->point_job, job_id, strlen(job_id) + 1);
    store->point_job_number = number;
    *ret_newest_row = row;
    return 0;
}

#define STORE_POINT_COLUMNS \
    "p.row, j.id, p.attempt, p.step, p.rank, p.metric, p.value, p.kind, p.wall_s"
#define STORE_POINT_FROM " FROM points AS p JOIN jobs AS j ON j.number = p.job "
/* A job's points in the order of row, by its own index: points_key would need a sort. */
#define STORE_POINT_OF_JOB \
    " FROM points AS p INDEXED BY points_job JOIN jobs AS j ON j.number = p.job "

/* A series' points, by its own index; the planner might take the job's. */
#define STORE_POINT_OF_SERIES                                                                      \
    " FROM points AS p INDEXED BY points_key JOIN jobs AS j ON j.number = p.job WHERE p.job = ?1 " \
    "AND p.metric = ?2 AND p.rank = ?3 AND iif(?4 > 0, p.attempt = ?4, 1) "

static int store_points_give(struct store_query *query, int64_t limit, store_point_fn *row,
                             void *context, bool *ret_has_more, struct err *err)
{
    bool found = false;
    for (int64_t given = 0;; given++) {
        TRY(store_query_step(query, &found, err));
        if (!found || given == limit)
            break;
        const struct store_point point = {
            .row = store_column_i64(query, 0),
            .job_id = store_column_text(query, 1),
            .attempt = store_column_i64(query, 2),
            .step = store_column_i64(query, 3),
            .rank = store_column_i64(query, 4),
            .metric = (enum metric_id)store_column_i64(query, 5),
            .value = store_point_value(query, 6, 7),
            .wall_s = sqlite3_column_double(query->cached->statement, 8),
        };
        TRY(row(context, &point, err));
    }
    *ret_has_more = found;
    return 0;
}

_Static_assert(METRIC_COUNT <= 63, "store_points_list() makes a set of metrics one integer");

int store_points_list(struct store *store, const struct store_point_query *wanted,
                      store_point_fn *row, void *context, bool *ret_has_more, struct err *err)
{
    must(wanted->limit >= 1 && wanted->limit <= LIMIT_PAGE_ROWS);
    int64_t number = 0, metrics = 0;
    TRY(store_job_number(store, wanted->job_id, &number, err));
    for (int i = 0; i < METRIC_COUNT; i++)
        if (wanted->all_metrics || wanted->metrics[i])
            metrics |= (int64_t)1 << i;
    CLEANUP(store_query_end) struct store_query query = {.store = store};
    TRY(store_query(&query, STORE_METRICS,
                    "SELECT " STORE_POINT_COLUMNS STORE_POINT_OF_JOB
                    "WHERE p.job = ?1 AND p.row > ?2 AND (?3 >> p.metric) & 1 AND p.step >= ?4 "
                    "AND iif(?5 > 0, p.attempt = ?5, NOT EXISTS (SELECT 1 FROM points AS n WHERE "
                    "n.job = p.job AND n.metric = p.metric AND n.rank = p.rank AND "
                    "n.step = p.step AND n.attempt > p.attempt)) ORDER BY p.row LIMIT ?6",
                    STORE_VALUES(store_i64(number), store_i64(wanted->after_row),
                                 store_i64(metrics), store_i64(wanted->from_step),
                                 store_i64(wanted->attempt), store_i64(wanted->limit + 1)),
                    err));
    return store_points_give(&query, wanted->limit, row, context, ret_has_more, err);
}

int store_points_after(struct store *store, const char *job_id, int64_t after_row, int64_t limit,
                       store_point_fn *row, void *context, struct err *err)
{
    int64_t number = 0;
    if (job_id != NULL)
        TRY(store_job_number(store, job_id, &number, err));
    CLEANUP(store_query_end) struct store_query query = {.store = store};
    TRY(store_query(&query, STORE_METRICS,
                    job_id != NULL ? "SELECT " STORE_POINT_COLUMNS STORE_POINT_OF_JOB
                                     "WHERE p.row > ? AND p.job = ? ORDER BY p.row LIMIT ?"
                                   : "SELECT " STORE_POINT_COLUMNS STORE_POINT_FROM
                                     "WHERE p.row > ? ORDER BY p.row LIMIT ?",
                    job_id != NULL
                        ? STORE_VALUES(store_i64(after_row), store_i64(number), store_i64(limit))
                        : STORE_VALUES(store_i64(after_row), store_i64(limit)),
                    err));
    bool unused = false;
    return store_points_give(&query, limit, row, context, &unused, err);
}

int store_points_newest(struct store *store, int64_t *ret_row, struct err *err)
{
    return store_query_i64(store, STORE_METRICS, "SELECT max(row) FROM points", NULL, ret_row, err);
}

/* ---- one series, by points_key ---- */

int store_series_list(struct store *store, const struct store_series_query *wanted,
                      store_point_fn *row, void *context, bool *ret_has_more, struct err *err)
{
    must(wanted->limit >= 1 && wanted->limit <= LIMIT_PAGE_ROWS);
    int64_t number = 0;
    TRY(store_job_number(store, wanted->job_id, &number, err));
    CLEANUP(store_query_end) struct store_query query = {.store = store};
    TRY(store_query(&query, STORE_METRICS,
                    "SELECT " STORE_POINT_COLUMNS STORE_POINT_OF_SERIES
                    "AND (p.step, p.attempt) > (?5, ?6) ORDER BY p.step, p.attempt LIMIT ?7",
                    STORE_VALUES(store_i64(number), store_i64((int64_t)wanted->metric),
                                 store_i64(wanted->rank), store_i64(wanted->attempt),
                                 store_i64(wanted->after_step), store_i64(wanted->after_attempt),
                                 store_i64(wanted->limit + 1)),
                    err));
    return store_points_give(&query, wanted->limit, row, context, ret_has_more, err);
}

struct store_point_first {
    store_point_fn *row;
    void *context;
    bool found;
};

static int store_point_count(void *context, const struct store_point *point, struct err *err)
{
    struct store_point_first *first = context;
    first->found = true;
    return first->row(first->context, point, err);
}

int store_point_latest(struct store *store, const char *job_id, enum metric_id metric,
                       store_point_fn *row, void *context, struct err *err)
{
    int64_t number = 0;
    TRY(store_job_number(store, job_id, &number, err));
    CLEANUP(store_query_end) struct store_query query = {.store = store};
    TRY(store_query(&query, STORE_METRICS,
                    "SELECT " STORE_POINT_COLUMNS STORE_POINT_OF_JOB
                    "WHERE p.job = ? AND p.metric = ? ORDER BY p.row DESC LIMIT 1",
                    STORE_VALUES(store_i64(number), store_i64((int64_t)metric)), err));
    struct store_point_first first = {.row = row, .context = context};
    bool unused = false;
    TRY(store_points_give(&query, 1, store_point_count, &first, &unused, err));
    if (!first.found)
        return err_set(err, ERR_NOT_FOUND, "job %s has no such metric yet", job_id);
    return 0;
}

struct store_series_end {
    int64_t step;
    double value;
    bool found;
};

static int store_series_take(void *context, const struct store_point *point, struct err *err)
{
    (void)err;
    *(struct store_series_end *)context =
        (struct store_series_end){.step = point->step, .value = point->value, .found = true};
    return 0;
}

int store_series_last(struct store *store, const struct store_series_query *wanted,
                      int64_t *ret_step, double *ret_value, struct err *err)
{
    int64_t number = 0;
    TRY(store_job_number(store, wanted->job_id, &number, err));
    CLEANUP(store_query_end) struct store_query query = {.store = store};
    TRY(store_query(
        &query, STORE_METRICS,
        "SELECT " STORE_POINT_COLUMNS STORE_POINT_OF_SERIES
        "AND p.step <= ?5 ORDER BY p.step DESC, p.attempt DESC LIMIT 1",
        STORE_VALUES(store_i64(number), store_i64((int64_t)wanted->metric), store_i64(wanted->rank),
                     store_i64(wanted->attempt),
                     store_i64(wanted->up_to_step > 0 ? wanted->up_to_step : INT64_MAX)),
        err));
    struct store_series_end end = {.found = false};
    bool unused = false;
    TRY(store_points_give(&query, 1, store_series_take, &end, &unused, err));
    if (!end.found)
        return err_set(err, ERR_NOT_FOUND, "job %s has no %s yet", wanted->job_id,
                       metric_name(wanted->metric));
    if (ret_step != NULL)
        *ret_step = end.step;
    if (ret_value != NULL)
        *ret_value = end.value;
    return 0;
}

int store_points_sum(struct store *store, const char *job_id, int64_t attempt,
                     struct store_points_sum *ret, struct err *err)
{
    int64_t number = 0;
    bool found = false;
    TRY(store_job_number(store, job_id, &number, err));
    CLEANUP(store_query_end) struct store_query query = {.store = store};
    TRY(store_query(&query, STORE_METRICS,
                    "SELECT coalesce(min(step), 0), coalesce(max(step), 0), total(value), "
                    "coalesce(max(wall_s), 0) FROM points "
                    "WHERE job = ? AND metric = ? AND rank = 0 AND attempt = ?",
                    STORE_VALUES(store_i64(number), store_i64(METRIC_TOKENS), store_i64(attempt)),
                    err));
    TRY(store_query_step(&query, &found, err));
    must(found);
    *ret = (struct store_points_sum){
        .first_step = store_column_i64(&query, 0),
        .last_step = store_column_i64(&query, 1),
        .tokens = (int64_t)store_column_f64(&query, 2),
        .last_ms = (int64_t)(store_column_f64(&query, 3) * 1000),
    };
    return 0;
}

/* ---- a deleted job's ---- */

#define STORE_FORGOTTEN "deleted:" /* before the id of a job whose points are to be deleted */
enum { STORE_PURGE_ROWS = 2000 };  /* some 10 ms */

int store_points_forget(struct store *store, const char *job_id, struct err *err)
{
    if (strcmp(store->point_job, job_id) == 0)
        store->point_job[0] = '\0';
    return store_run(store, STORE_METRICS,
                     "UPDATE jobs SET id = '" STORE_FORGOTTEN "' || id WHERE id = ?",
                     STORE_VALUES(store_text(job_id)), err);
}

int store_points_purge(struct store *store, bool *ret_more, struct err *err)
{
    int64_t number = 0;
    TRY(store_query_i64(store, STORE_METRICS,
                        "SELECT number FROM jobs WHERE id GLOB '" STORE_FORGOTTEN "*' LIMIT 1",
                        NULL, &number, err));
    *ret_more = number > 0;
    if (number == 0)
        return 0;
    TRY(store_run(store, STORE_METRICS,
                  "DELETE FROM points WHERE row IN (SELECT row FROM points WHERE job = ? LIMIT ?)",
                  STORE_VALUES(store_i64(number), store_i64(STORE_PURGE_ROWS)), err));
    if (sqlite3_changes(store->databases[STORE_METRICS]) > 0)
        return 0;
    return store_run(store, STORE_METRICS, "DELETE FROM jobs WHERE number = ?", /* its last went */
                     STORE_VALUES(store_i64(number)), err);
}
