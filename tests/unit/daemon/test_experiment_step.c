/* experiment_step: a point whose job cannot be stored for now waits, and is submitted once it can.
 */
#include "daemon/experiment_step.h"

#include "daemon/store_experiments.h"
#include "daemon/store_sql.h"
#include "tests/lib/http_world.h"

#define BODY "{\"model\":\"tiny-llama\",\"ithaca\":{\"measure\":true,\"gpus\":1,\"seq_len\":64}}"

static int take_point(void *context, const struct store_point_row *row, struct err *err)
{
    (void)err;
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

static void test_full_disk_is_waited_out(void **state)
{
    struct http_world *h = *state;
    bool again = false;
    const struct store_point_row point = {.status = STORE_POINT_WAITING,
                                          .note = "",
                                          .facts_json = "{\"series\":0,\"seq_len\":64,\"slots\":1}",
                                          .body_json = BODY};
    const struct store_experiment experiment = {.id = "exp-a",
                                                .created_ms = 7,
                                                .owner = "ann",
                                                .name = "n",
                                                .spec_json = "{\"kind\":\"grid\",\"base\":" BODY
                                                             ",\"grid\":{\"seq_len\":[64]}}"};
    OK(h->w, store_experiment_insert(h->w->store, &experiment, &point, 1, &h->w->err));
    set_full(h, true);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(experiment_step(&h->api, "exp-a", &again, &h->w->err), -ERR_NO_SPACE);
        expect_point(h, STORE_POINT_WAITING "::");
    }
    set_full(h, false);
    OK(h->w, experiment_step(&h->api, "exp-a", &again, &h->w->err));
    expect_point(h, STORE_POINT_SUBMITTED ":ftjob-");
}

int main(void)
{
    const struct CMUnitTest tests[] = {HTTP_TEST(test_full_disk_is_waited_out)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
