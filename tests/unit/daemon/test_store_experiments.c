/* store_experiments: what goes in comes out, a job and its point are one write, and what was
 * deleted is found by nobody. */
#include "daemon/store_experiments.h"

#include "tests/lib/store_fixture.h"

static struct store_point_row point_of(int64_t number, const char *status)
{
    return (struct store_point_row){.number = number,
                                    .status = status,
                                    .note = "",
                                    .facts_json = "{\"f\":1}",
                                    .body_json = "{\"b\":1}"};
}

static void add(struct fixture *f, const char *id, const char *owner)
{
    const struct store_point_row points[] = {point_of(1, STORE_POINT_NO_ROOM),
                                             point_of(0, STORE_POINT_WAITING)};
    const struct store_experiment experiment = {
        .id = id, .created_ms = 7, .owner = owner, .name = "n", .spec_json = "{}"};
    OK(f, store_experiment_insert(f->store, &experiment, points, 2, &f->err));
}

static int collect(void *context, const struct store_experiment *experiment, struct err *err)
{
    assert_int_equal(experiment->created_ms, 7);
    assert_string_equal(experiment->name, "n");
    assert_string_equal(experiment->spec_json, "{}");
    strncat(context, experiment->id, 16);
    strncat(context, experiment->cancelled ? "c" : "", 2);
    strncat(context, experiment->ended_ms > 0 ? "e " : " ", 4);
    return 0;
}

static int collect_point(void *context, const struct store_point_row *row, struct err *err)
{
    char line[256];
    (void)snprintf(line, sizeof line, "%d %s %s%s %s;", (int)row->number, row->status, row->job_id,
                   row->note, row->measured_json);
    strncat(context, line, 256);
    assert_string_equal(row->facts_json, "{\"f\":1}");
    return 0;
}

static void collect_status(void *context, const char *status, int64_t count)
{
    char line[64];
    (void)snprintf(line, sizeof line, "%s %d;", status, (int)count);
    strncat(context, line, 64);
}

static void expect(struct fixture *f, const char *owner, const char *wanted)
{
    char seen[256] = "";
    bool more = false;
    const struct store_page page = {.limit = 10};
    OK(f, store_experiments_list(f->store, owner, &page, collect, seen, &more, &f->err));
    assert_string_equal(seen, wanted);
}

static void test_lists(void **state)
{
    struct fixture *f = *state;
    add(f, "exp-a", "ann");
    add(f, "exp-b", "bob");
    expect(f, "", "exp-b exp-a ");
    expect(f, "ann", "exp-a ");
    char seen[256] = "", id[LIMIT_ID_BYTES + 1], owner[LIMIT_NAME_BYTES + 1];
    bool more = false;
    const struct store_page page = {.limit = 1}, rest = {.limit = 1, .after = "exp-b"};
    OK(f, store_experiments_list(f->store, "", &page, collect, seen, &more, &f->err));
    assert_true(more);
    OK(f, store_experiments_list(f->store, "", &rest, collect, seen, &more, &f->err));
    assert_string_equal(seen, "exp-b exp-a ");
    assert_false(more);
    OK(f, store_experiment_owner(f->store, "exp-b", owner, &f->err));
    assert_string_equal(owner, "bob");
    assert_int_equal(store_experiment_owner(f->store, "exp-x", owner, &f->err), -ERR_NOT_FOUND);
    int64_t row = 0;
    OK(f, store_experiment_open(f->store, 0, &row, id, &f->err));
    assert_string_equal(id, "exp-a");
    OK(f, store_experiment_end(f->store, "exp-a", 9, &f->err));
    OK(f, store_experiment_open(f->store, 0, &row, id, &f->err));
    assert_string_equal(id, "exp-b");
    OK(f, store_experiment_open(f->store, row, &row, id, &f->err));
    assert_int_equal(row, 0);
    OK(f, store_experiment_cancel(f->store, "exp-a", &f->err)); /* it has ended: stays so */
    add(f, "exp-c", "bob");
    OK(f, store_experiment_cancel(f->store, "exp-b", &f->err));
    expect(f, "", "exp-c exp-bc exp-ae ");
}

static void test_points_and_jobs(void **state)
{
    struct fixture *f = *state;
    int64_t event_row = 0;
    char seen[1024] = "";
    add(f, "exp-a", "ann");
    struct store_job job = {.id = "ftjob-1",
                            .owner = "ann",
                            .spec_json = "{}",
                            .model = "m",
                            .model_dir = "/m",
                            .training_file = "",
                            .validation_file = "",
                            .experiment = "exp-a",
                            .point = 0};
    OK(f, store_job_insert(f->store, &job, "ftevent-1", &event_row, &f->err));
    /* A job that cannot be written leaves its point as it was. */
    job.point = 1;
    assert_int_not_equal(store_job_insert(f->store, &job, "ftevent-2", &event_row, &f->err), 0);
    const struct store_point_row more = point_of(2, STORE_POINT_WAITING);
    OK(f, store_experiment_add(f->store, "exp-a", &more, &f->err));
    assert_int_not_equal(store_experiment_add(f->store, "exp-a", &more, &f->err), 0);
    OK(f, store_experiment_settle(f->store, "exp-a", 2, "failed", "why", "{}", &f->err));
    OK(f, store_experiment_points(f->store, "exp-a", collect_point, seen, &f->err));
    assert_string_equal(seen, "0 submitted ftjob-1 ;1 does_not_fit  ;2 failed why {};");
}

static void test_statuses(void **state)
{
    struct fixture *f = *state;
    char seen[256] = "";
    add(f, "exp-a", "ann");
    add(f, "exp-b", "ann"); /* whose points are its own */
    const struct store_point_row more = point_of(2, STORE_POINT_WAITING);
    OK(f, store_experiment_add(f->store, "exp-a", &more, &f->err));
    OK(f, store_experiment_statuses(f->store, "exp-a", collect_status, seen, &f->err));
    assert_string_equal(seen, "does_not_fit 1;waiting 2;");
}

static void test_delete(void **state)
{
    struct fixture *f = *state;
    char id[LIMIT_ID_BYTES + 1], job_id[LIMIT_ID_BYTES + 1], seen[64] = "";
    int64_t open = -1;
    test_points_and_jobs(state);
    add(f, "exp-b", "bob");
    OK(f, store_experiment_end(f->store, "exp-b", 9, &f->err));
    OK(f, store_experiment_deleted(f->store, id, job_id, &f->err));
    assert_true(id[0] == '\0' && job_id[0] == '\0');
    assert_int_equal(store_experiment_delete(f->store, "exp-a", &f->err), -ERR_BAD_STATE);
    OK(f, store_experiments_open_count(f->store, "ann", &open, &f->err));
    assert_int_equal(open, 1);
    OK(f, store_experiment_end(f->store, "exp-a", 9, &f->err));
    OK(f, store_experiments_open_count(f->store, "ann", &open, &f->err));
    assert_int_equal(open, 0);
    OK(f, store_experiment_delete(f->store, "exp-a", &f->err));
    expect(f, "", "exp-be ");
    assert_int_equal(store_experiment_get(f->store, "exp-a", collect, seen, &f->err),
                     -ERR_NOT_FOUND);
    OK(f, store_experiment_deleted(f->store, id, job_id, &f->err));
    assert_string_equal(id, "exp-a");
    assert_string_equal(job_id, "ftjob-1");
    OK(f, store_experiment_purge(f->store, "exp-a", &f->err));
    OK(f, store_experiment_points(f->store, "exp-a", collect_point, seen, &f->err));
    assert_string_equal(seen, "");
    OK(f, store_experiment_deleted(f->store, id, job_id, &f->err));
    assert_string_equal(id, "");
    expect(f, "", "exp-be "); /* another one stays, with its points */
    OK(f, store_experiment_points(f->store, "exp-b", collect_point, seen, &f->err));
    assert_string_equal(seen, "0 waiting  ;1 does_not_fit  ;");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_lists, setup, teardown),
        cmocka_unit_test_setup_teardown(test_points_and_jobs, setup, teardown),
        cmocka_unit_test_setup_teardown(test_statuses, setup, teardown),
        cmocka_unit_test_setup_teardown(test_delete, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
