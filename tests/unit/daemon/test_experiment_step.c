/* experiment_step, experiments: a point whose job cannot be stored for now waits, and is submitted
 * once it can; meanwhile that is told once, not with each try. */
#include "daemon/experiment_step.h"

#include "daemon/experiments.h"
#include "daemon/store_experiments.h"
#include "daemon/store_sql.h"
#include "tests/lib/http_world.h"

#include <unistd.h>

#define BODY "{\"model\":\"tiny-llama\",\"ithaca\":{\"measure\":true,\"gpus\":1,\"seq_len\":64}}"

static int take_point(void *context, const struct store_point_row *row, struct err *err)
{
    (void)snprintf(context, 256, "%s:%s:%s", row->status, row->job_id, row->note);
    return 0;
}

static void expect_point(struct http_world *h, const char *begin)
{
    char seen[256] = "";
    OK(h->w, store_experiment_points(h->w->store, "exp-a", take_point, seen, &h->w->err));
    if (strncmp(seen, begin, strlen(begin)) != 0)
        fail_msg("\"%s\" does not begin with \"%s\"", seen, begin);
}

/* Whether there is room for a job, as on a disk that is almost full: small changes still fit. */
static void set_full(struct http_world *h, bool full)
{
    sqlite3 *jobs = h->w->store->databases[STORE_JOBS];
    const char *const sql = full ? "CREATE TABLE filler (bytes BLOB);"
                                   "CREATE TRIGGER fill BEFORE INSERT ON jobs BEGIN"
                                   " INSERT INTO filler VALUES (zeroblob(1000000)); END;"
                                   "PRAGMA max_page_count = 1" /* what there is */
                                 : "PRAGMA max_page_count = 1073741823";
    assert_int_equal(sqlite3_exec(jobs, sql, NULL, NULL, NULL), SQLITE_OK);
}

/* An experiment of one point. */
static void add_experiment(struct http_world *h, const char *id)
{
    const struct store_point_row point = {.status = STORE_POINT_WAITING,
                                          .note = "",
                                          .facts_json = "{\"series\":0,\"seq_len\":64,\"slots\":1}",
                                          .body_json = BODY};
    const struct store_experiment experiment = {.id = id,
                                                .created_ms = 7,
                                                .owner = "ann",
                                                .name = "n",
                                                .spec_json = "{\"kind\":\"grid\",\"base\":" BODY
                                                             ",\"grid\":{\"seq_len\":[64]}}"};
    OK(h->w, store_experiment_insert(h->w->store, &experiment, &point, 1, &h->w->err));
}

static void test_full_disk_is_waited_out(void **state)
{
    struct http_world *h = *state;
    bool again = false;
    add_experiment(h, "exp-a");
    set_full(h, true);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(experiment_step(&h->api, "exp-a", &again, &h->w->err), -ERR_NO_SPACE);
        expect_point(h, STORE_POINT_WAITING "::");
    }
    set_full(h, false);
    OK(h->w, experiment_step(&h->api, "exp-a", &again, &h->w->err));
    expect_point(h, STORE_POINT_SUBMITTED ":ftjob-");
}

/* Another, whose only job was deleted: that is settled, and no error. */
static void add_deleted(struct http_world *h)
{
    add_experiment(h, "exp-b");
    assert_int_equal(sqlite3_exec(h->w->store->databases[STORE_JOBS],
                                  "UPDATE experiment_points SET status = '" STORE_POINT_SUBMITTED
                                  "', job_id = 'ftjob-none' WHERE experiment_id = 'exp-b'",
                                  NULL, NULL, NULL),
                     SQLITE_OK);
}

/* Turns the loop until so many jobs were stored, or for so long. */
static void turn(struct http_world *h, int64_t ms, bool submitted)
{
    char seen[256] = "";
    for (int64_t end_ms = clock_monotonic_ms() + ms; clock_monotonic_ms() < end_ms;) {
        OK(h->w, loop_turn(h->w->loop, 10, &h->w->err));
        OK(h->w, store_experiment_points(h->w->store, "exp-a", take_point, seen, &h->w->err));
        if (submitted && strncmp(seen, STORE_POINT_SUBMITTED, strlen(STORE_POINT_SUBMITTED)) == 0)
            return;
    }
    assert_false(submitted);
}

static void test_failing_is_told_once(void **state)
{
    struct http_world *h = *state;
    struct experiments *experiments = NULL;
    char text[4096] = "";
    FILE *log = tmpfile();
    const int shown = dup(STDERR_FILENO);
    assert_true(log != NULL && shown >= 0);
    add_experiment(h, "exp-a");
    add_deleted(h);
    set_full(h, true);
    assert_int_equal(dup2(fileno(log), STDERR_FILENO), STDERR_FILENO);
    OK(h->w, experiments_new(&h->api, &experiments, &h->w->err));
    turn(h, 1300, false); /* two tries, a second apart */
    set_full(h, false);
    turn(h, 5000, true);
    assert_int_equal(dup2(shown, STDERR_FILENO), STDERR_FILENO);
    experiments_free(experiments);
    rewind(log);
    text[fread(text, 1, sizeof text - 1, log)] = '\0';
    (void)fclose(log);
    (void)close(shown);
    const char *told = strstr(text, "warn experiments: exp-a: ");
    if (told == NULL || strstr(text, "ftjob-none") != NULL ||
        strstr(told + 1, "warn experiments: ") != NULL)
        fail_msg("not told once: %s", text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {HTTP_TEST(test_full_disk_is_waited_out),
                                       HTTP_TEST(test_failing_is_told_once)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
