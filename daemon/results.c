/* results: a window of RESULTS_STEPS steps at a time: each column's points of these steps are taken
 * from its series into the window, which is then printed. Points come in the order of step, the
 * newest attempt of a step last, so that one stays. */
#include "daemon/results.h"

#include "common/buf.h"
#include "common/mem.h"
#include "daemon/files.h"
#include "daemon/host.h"
#include "daemon/store.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const enum metric_id results_metrics[] = {METRIC_LOSS, METRIC_ACCURACY, METRIC_VALID_LOSS,
                                                 METRIC_VALID_ACCURACY};
enum { RESULTS_METRICS = sizeof results_metrics / sizeof results_metrics[0] };
enum {
    RESULTS_LINE_BYTES = 256,
    RESULTS_BEYOND = 1 /* ends a walk at the window's end: no error's code */
};
static const char results_header[] =
    "step,train_loss,train_mean_token_accuracy,valid_loss,valid_mean_token_accuracy,"
    "full_valid_loss,full_valid_mean_token_accuracy\n";

struct results {
    struct store *store;
    struct host *host;
    const char *data_dir;
    char job_id[LIMIT_ID_BYTES + 1];
    char owner[LIMIT_NAME_BYTES + 1];
    char before_id[LIMIT_ID_BYTES + 1]; /* file of a daemon that was killed at this point, or "" */
    char file_id[LIMIT_ID_BYTES + 1];
    struct files_spool spool;
    int64_t first_step;                            /* of the window */
    int64_t last_step;                             /* of all */
    double values[RESULTS_METRICS][RESULTS_STEPS]; /* of the window */
    bool there[RESULTS_METRICS][RESULTS_STEPS];    /* which steps have one */
    int column;                                    /* being read */
    struct store_series_query wanted;              /* of that column: the next page */
};

static int results_take_job(void *context, const struct store_job *job, struct err *err)
{
    (void)err;
    struct results *results = context;
    (void)snprintf(results->owner, sizeof results->owner, "%s", job->owner);
    (void)snprintf(results->before_id, sizeof results->before_id, "%s", job->result_file);
    return 0;
}

static int results_open(struct results *results, struct err *err)
{
    const struct store_series_query wanted = {.job_id = results->job_id, .metric = METRIC_LOSS};
    TRY(store_job_get(results->store, results->job_id, results_take_job, results, err));
    TRY(store_series_last(results->store, &wanted, &results->last_step, NULL, err));
    TRY(host_new_id(results->host, "file-", results->file_id, sizeof results->file_id, err));
    CLEANUP(mem_free_ptr) char *path = files_path(results->data_dir, results->file_id);
    if (path == NULL)
        return mem_fail(err, LIMIT_PATH_BYTES, "a path");
    TRY(io_file_create(&results->spool.file, path, 0600, err));
    return files_spool_write(&results->spool, results_header, sizeof results_header - 1, err);
}

int results_new(struct store *store, struct host *host, const char *data_dir, const char *job_id,
                struct results **ret_results, struct err *err)
{
    struct results *results = mem_new(1, sizeof *results);
    if (results == NULL)
        return mem_fail(err, sizeof *results, "a job's results");
    results->store = store;
    results->host = host;
    results->data_dir = data_dir;
    results->spool.file.fd = -1;
    (void)snprintf(results->job_id, sizeof results->job_id, "%s", job_id);
    int rc = results_open(results, err);
    if (rc == 0)
        *ret_results = results;
    else
        results_free(results);
    return rc;
}

void results_free(struct results *results)
{
    if (results != NULL)
        io_file_abort(&results->spool.file);
    mem_free(results);
}

/* ---- a window ---- */

static int results_take(void *context, const struct store_point *point, struct err *err)
{
    (void)err;
    struct results *results = context;
    int64_t at = point->step - results->first_step;
    if (at >= RESULTS_STEPS)
        return RESULTS_BEYOND;
    results->wanted.after_step = point->step;
    results->wanted.after_attempt = point->attempt;
    results->values[results->column][at] = point->value;
    results->there[results->column][at] = true;
    return 0;
}

static int results_read(struct results *results, struct err *err)
{
    memset(results->there, 0, sizeof results->there);
    for (int i = 0; i < RESULTS_METRICS; i++) {
        results->column = i;
        results->wanted = (struct store_series_query){.job_id = results->job_id,
                                                      .metric = results_metrics[i],
                                                      .after_step = results->first_step - 1,
                                                      .after_attempt = INT64_MAX,
                                                      .limit = LIMIT_PAGE_ROWS};
        bool more = true;
        while (more) { /* many attempts of a step may fill more than a page */
            const struct store_series_query page = results->wanted;
            int rc = store_series_list(results->store, &page, results_take, results, &more, err);
            if (rc == RESULTS_BEYOND)
                break;
            TRY(rc);
        }
    }
    return 0;
}

static void results_number(struct buf *line, bool there, double value)
{
    buf_char(line, ',');
    if (there && isfinite(value))
        buf_printf(line, "%.9g", value);
    else if (there)
        buf_text(line, isnan(value) ? "nan" : value > 0 ? "inf" : "-inf");
}

/* Validation takes the whole file each time: OpenAI's "full" columns are the same. */
static int results_print(struct results *results, struct err *err)
{
    static const int columns[] = {0, 1, 2, 3, 2, 3};
    CLEANUP(buf_done) struct buf text;
    buf_init(&text, (size_t)RESULTS_STEPS * RESULTS_LINE_BYTES);
    for (int at = 0; at < RESULTS_STEPS; at++) {
        bool any = false;
        for (int i = 0; i < RESULTS_METRICS; i++)
            any = any || results->there[i][at];
        if (!any)
            continue;
        buf_printf(&text, "%lld", (long long)results->first_step + at);
        for (size_t i = 0; i < sizeof columns / sizeof columns[0]; i++)
            results_number(&text, results->there[columns[i]][at], results->values[columns[i]][at]);
        buf_char(&text, '\n');
    }
    TRY(buf_error(&text, err));
    return files_spool_write(&results->spool, buf_str(&text), text.length, err);
}

/* ---- the end ---- */

static int results_finish(struct results *results, struct err *err)
{
    char name[LIMIT_ID_BYTES + 16];
    struct err gone;
    CLEANUP(mem_free_ptr) char *path = files_path(results->data_dir, results->file_id);
    if (path == NULL)
        return mem_fail(err, LIMIT_PATH_BYTES, "a path");
    (void)snprintf(name, sizeof name, "%s-metrics.csv", results->job_id);
    const struct store_file row = {.id = results->file_id,
                                   .created_ms = results->host->ops->wall_ms(results->host),
                                   .filename = name,
                                   .purpose = "fine-tune-results",
                                   .bytes = results->spool.bytes,
                                   .status = "processed",
                                   .status_details = "",
                                   .hash = "",
                                   .owner = results->owner};
    TRY(io_file_commit(&results->spool.file, err));
    int rc = store_job_set_result(results->store, results->job_id, &row, err);
    if (rc != 0)
        (void)unlink(path); /* no row names it */
    else if (results->before_id[0] != '\0')
        (void)files_remove(results->store, results->data_dir, results->before_id, &gone);
    return rc;
}

int results_step(struct results *results, bool *ret_done, struct err *err)
{
    *ret_done = false;
    TRY(results_read(results, err));
    TRY(results_print(results, err));
    results->first_step += RESULTS_STEPS;
    if (results->first_step <= results->last_step)
        return 0;
    TRY(results_finish(results, err));
    *ret_done = true;
    return 0;
}
