/* store_open after a daemon that was killed: what was committed is there; files that are damaged
 * are refused, and said to be. */
#include "tests/lib/store_fixture.h"

#include <sys/wait.h>
#include <unistd.h>

/* A daemon that adds a job and a point and is gone: its logs stay. */
static void die_with_job(struct fixture *f, int n)
{
    store_close(f->store);
    f->store = NULL;
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        int64_t row = 0;
        char id[64];
        (void)snprintf(id, sizeof id, "ftjob-%d", n);
        const struct store_point point = {
            .job_id = id, .attempt = 1, .step = 1, .metric = METRIC_LOSS, .value = 0.5};
        if (store_open(f->dir, &f->store, &f->err) != 0)
            _exit(1);
        add_job(f, n, "{}");
        if (store_points_insert(f->store, &point, 1, &row, &f->err) != 0)
            _exit(2);
        _exit(0);
    }
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

static char *path_of(struct fixture *f, const char *name)
{
    char *path = io_join(f->dir, name);
    assert_non_null(path);
    return path;
}

static int count_jobs(struct fixture *f)
{
    struct ids ids = {.count = 0};
    OK(f, store_jobs_in_state(f->store, JOB_STATE_VALIDATING, collect_job, &ids, &f->err));
    return ids.count;
}

static void test_killed(void **state)
{
    struct fixture *f = *state;
    CLEANUP(mem_free_ptr) char *log = path_of(f, "jobs.db-wal");
    add_job(f, 1, "{}");
    die_with_job(f, 2);
    assert_true(io_exists(log));
    OK(f, store_open(f->dir, &f->store, &f->err));
    assert_int_equal(count_jobs(f), 2);
    int64_t row = 0;
    OK(f, store_points_newest(f->store, &row, &f->err));
    assert_true(row > 0);
    die_with_job(f, 3); /* and again */
    OK(f, store_open(f->dir, &f->store, &f->err));
    assert_int_equal(count_jobs(f), 3);
}

/* The end of the log was not written: what came before is there. */
static void test_torn_log(void **state)
{
    struct fixture *f = *state;
    CLEANUP(mem_free_ptr) char *log = path_of(f, "jobs.db-wal");
    add_job(f, 1, "{}");
    die_with_job(f, 2);
    int64_t bytes = 0;
    OK(f, io_file_size(log, &bytes, &f->err));
    assert_true(bytes > 100);
    assert_int_equal(truncate(log, bytes - 50), 0);
    OK(f, store_open(f->dir, &f->store, &f->err));
    int jobs = count_jobs(f);
    assert_true(jobs == 1 || jobs == 2);
    add_job(f, 3, "{}"); /* it goes on */
    assert_int_equal(count_jobs(f), jobs + 1);
}

static void test_damaged(void **state)
{
    static const char *const names[] = {"jobs.db", "metrics.db"};
    struct fixture *f = *state;
    add_job(f, 1, "{}");
    for (size_t i = 0; i < 2; i++) {
        CLEANUP(mem_free_ptr) char *path = path_of(f, names[i]);
        CLEANUP(buf_done) struct buf good;
        buf_init(&good, 16 << 20);
        die_with_job(f, 2 + (int)i);
        OK(f, io_read_file(path, 16 << 20, &good, &f->err));
        CLEANUP(mem_free_ptr) char *bad = mem_new(1, good.length);
        memcpy(bad, good.data, good.length);
        memset(bad + 4096, 0x5a, good.length - 4096); /* all pages but the first */
        CLEANUP(mem_free_ptr) char *log = mem_printf("%s-wal", path);
        CLEANUP(mem_free_ptr) char *kept = mem_printf("%s-kept", path);
        assert_int_equal(rename(log, kept), 0); /* it would bring pages anew */
        OK(f, io_write_file(log, "", 0, 0600, &f->err));
        OK(f, io_write_file(path, bad, good.length, 0600, &f->err));
        assert_int_equal(store_open(f->dir, &f->store, &f->err), -ERR_CORRUPT);
        assert_non_null(strstr(f->err.text, names[i]));
        assert_null(f->store);
        OK(f, io_write_file(path, good.data, good.length, 0600, &f->err)); /* the backup */
        assert_int_equal(rename(kept, log), 0);
        OK(f, store_open(f->dir, &f->store, &f->err));
        assert_int_equal(count_jobs(f), 2 + (int)i);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_killed, setup, teardown),
        cmocka_unit_test_setup_teardown(test_torn_log, setup, teardown),
        cmocka_unit_test_setup_teardown(test_damaged, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
