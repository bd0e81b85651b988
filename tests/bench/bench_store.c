/* bench_store: metric points a second into metrics.db, in transactions as a tick makes them, and
 * changes of state a second into jobs.db (each an fsync).
 *
 *     build/release/tests/bench_store [FOLDER]      default: a new folder under /tmp */
#include "common/clock.h"
#include "common/io.h"
#include "common/mem.h"
#include "daemon/store.h"

#include <stdio.h>
#include <stdlib.h>

enum { BENCH_POINTS = 400000, BENCH_MOVES = 200 };

static int bench_points(struct store *store, size_t batch, struct err *err)
{
    CLEANUP(mem_free_ptr) struct store_point *points = mem_new(batch, sizeof *points);
    int64_t row = 0;
    int64_t start_ms = clock_monotonic_ms();
    for (size_t done = 0; done < BENCH_POINTS; done += batch) {
        for (size_t i = 0; i < batch; i++)
            points[i] = (struct store_point){.job_id = "ftjob-bench",
                                             .attempt = (int64_t)batch, /* points are stored once */
                                             .step = (int64_t)((done + i) / 13),
                                             .metric = (enum metric_id)((done + i) % 13),
                                             .value = 0.5 * (double)i,
                                             .wall_s = 1.7e9};
        TRY(store_points_insert(store, points, batch, &row, err));
    }
    double seconds = (double)(clock_monotonic_ms() - start_ms) / 1000;
    printf("%8.0f points/s, %5zu a transaction\n", BENCH_POINTS / seconds, batch);
    return 0;
}

static int bench_moves(struct store *store, struct err *err)
{
    const struct store_job job = {.id = "ftjob-bench",
                                  .owner = "bench",
                                  .spec_json = "{}",
                                  .model = "",
                                  .model_dir = "",
                                  .training_file = "",
                                  .validation_file = ""};
    int64_t row = 0;
    TRY(store_job_insert(store, &job, "ftevent-bench", &row, err));
    int64_t start_ms = clock_monotonic_ms();
    for (int i = 0; i < BENCH_MOVES; i++) {
        char event_id[32];
        (void)snprintf(event_id, sizeof event_id, "ftevent-%d", i);
        const struct store_job_move move = {.id = job.id,
                                            .from = i == 0  ? JOB_STATE_VALIDATING
                                                    : i % 2 ? JOB_STATE_QUEUED
                                                            : JOB_STATE_STARTING,
                                            .to = i % 2 ? JOB_STATE_STARTING : JOB_STATE_QUEUED,
                                            .reason = "",
                                            .reason_text = "",
                                            .event_id = event_id,
                                            .event_text = "moved",
                                            .event_level = "info"};
        TRY(store_job_move(store, &move, &row, err));
    }
    double seconds = (double)(clock_monotonic_ms() - start_ms) / 1000;
    printf("%8.0f changes of state/s\n", BENCH_MOVES / seconds);
    return 0;
}

static int bench_all(const char *folder, struct err *err)
{
    struct store *store = NULL;
    TRY(store_open(folder, &store, err));
    int rc = 0;
    static const size_t batches[] = {13, 130, 1300, 8000};
    for (size_t i = 0; i < sizeof batches / sizeof batches[0] && rc == 0; i++)
        rc = bench_points(store, batches[i], err);
    if (rc == 0)
        rc = bench_moves(store, err);
    store_close(store);
    return rc;
}

int main(int argc, char **argv)
{
    char made[] = "/tmp/bench_store.XXXXXX";
    struct err err;
    const char *folder = argc > 1 ? argv[1] : mkdtemp(made);
    printf("%s %s\n", argv[0], folder != NULL ? folder : "(no folder)");
    int rc = folder == NULL ? 1 : bench_all(folder, &err);
    if (rc != 0)
        fprintf(stderr, "bench_store: %s\n", err.text);
    if (argc == 1)
        (void)io_remove_tree(made, &err); /* only leaves rubbish in /tmp */
    return rc != 0;
}
