/* store_guests: another process holds a lock for long, or reads for long: nobody waits for it for
 * long, the log stays below its bound, and when it has gone all is as before. Field case R55. */
#include "tests/lib/store_fixture.h"

#include "common/clock.h"

static sqlite3 *guest_open(struct fixture *f, const char *name, const char *begin)
{
    CLEANUP(mem_free_ptr) char *path = io_join(f->dir, name);
    sqlite3 *guest = NULL;
    assert_int_equal(sqlite3_open(path, &guest), SQLITE_OK);
    assert_int_equal(sqlite3_exec(guest, begin, NULL, NULL, NULL), SQLITE_OK);
    return guest;
}

static void guest_close(sqlite3 *guest)
{
    assert_int_equal(sqlite3_exec(guest, "ROLLBACK", NULL, NULL, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_close(guest), SQLITE_OK);
}

/* Points of `steps` steps from `first` on; what the store says. */
static int put_points(struct fixture *f, int64_t first, int64_t steps)
{
    struct store_point points[200];
    int64_t row = 0;
    assert_true(steps <= 200);
    for (int64_t i = 0; i < steps; i++)
        points[i] = (struct store_point){
            .job_id = "ftjob-1", .attempt = 1, .step = first + i, .value = 1, .wall_s = 1};
    return store_points_insert(f->store, points, (size_t)steps, &row, &f->err);
}

static void test_a_writer_is_waited_for_once(void **state)
{
    struct fixture *f = *state;
    static const char *const names[] = {"jobs.db", "metrics.db"};
    for (int which = 0; which < 2; which++) {
        sqlite3 *guest = guest_open(f, names[which], "BEGIN IMMEDIATE");
        int64_t begun_ms = clock_monotonic_ms();
        for (int i = 0; i < 100; i++) {
            int rc = which == 1 ? put_points(f, 1, 1)
                                : store_token_used(f->store, "token-a", 5, &f->err);
            assert_int_equal(rc, -ERR_UNAVAILABLE);
            assert_non_null(strstr(f->err.text, names[which]));
            assert_non_null(strstr(f->err.text, "another process"));
        }
        int64_t took_ms = clock_monotonic_ms() - begun_ms;
        assert_true(took_ms >= 50);
        assert_true(took_ms < 2000);           /* not a hundred times 50 */
        OK(f, store_check(f->store, &f->err)); /* reads go on */
        guest_close(guest);
        assert_int_equal(put_points(f, 1, 1), 0);
        add_job(f, 1 + which, "null");
        assert_false(f->store->guests[which].writes); /* the next one is waited for again */
    }
}

static int64_t log_bytes(struct fixture *f)
{
    CLEANUP(mem_free_ptr) char *path = io_join(f->dir, "metrics.db-wal");
    int64_t bytes = 0;
    OK(f, io_file_size(path, &bytes, &f->err));
    return bytes;
}

static void test_a_reader_does_not_fill_the_disk(void **state)
{
    struct fixture *f = *state;
    struct store_guest *seen = &f->store->guests[STORE_METRICS];
    int64_t step = 1;
    int rc = 0;
    seen->log_pages_max = 2000;
    assert_int_equal(put_points(f, step++, 1), 0);
    sqlite3 *guest = guest_open(f, "metrics.db", "BEGIN; SELECT count(*) FROM points");
    for (int i = 0; i < 100000 && rc == 0; i++) {
        rc = put_points(f, step, 200);
        step += rc == 0 ? 200 : 0;
    }
    assert_int_equal(rc, -ERR_UNAVAILABLE);
    assert_non_null(strstr(f->err.text, "another process reads"));
    assert_true(log_bytes(f) < 3000 * 4200); /* pages with their frames' headers */
    add_job(f, 1, "null");                   /* states are taken all the time */
    assert_int_equal(put_points(f, step, 200), -ERR_UNAVAILABLE);
    guest_close(guest);
    seen->checkpoint_ns = 0; /* a second later */
    assert_int_equal(put_points(f, step, 200), 0);
    step += 200;
    int64_t stored = 0;
    OK(f, store_query_i64(f->store, STORE_METRICS, "SELECT count(*) FROM points", NULL, &stored,
                          &f->err));
    assert_int_equal(stored, step - 1); /* each that was taken, once */
}

static void rename_file(struct fixture *f, const char *from, const char *to)
{
    CLEANUP(mem_free_ptr) char *old = io_join(f->dir, from);
    CLEANUP(mem_free_ptr) char *new = io_join(f->dir, to);
    assert_int_equal(rename(old, new), 0);
}

/* What would be written to a file that is gone is refused; once it is back, all goes on. */
static void test_a_file_that_is_away(void **state)
{
    struct fixture *f = *state;
    static const char *const names[] = {"jobs.db", "jobs.db-wal", "metrics.db", "metrics.db-wal"};
    assert_int_equal(put_points(f, 1, 1), 0);
    add_job(f, 1, "null");
    for (int which = 0; which < 4; which++) {
        for (int replaced = 0; replaced < 2; replaced++) {
            rename_file(f, names[which], "away");
            if (replaced) {
                CLEANUP(mem_free_ptr) char *path = io_join(f->dir, names[which]);
                OK(f, io_write_file(path, "another", 7, 0600, &f->err));
            }
            int rc = which >= 2 ? put_points(f, 2, 1)
                                : store_token_used(f->store, "token-a", 5, &f->err);
            assert_int_equal(rc, -ERR_UNAVAILABLE);
            assert_non_null(strstr(f->err.text, names[which]));
            assert_non_null(
                strstr(f->err.text, replaced ? "was replaced" : "was moved or deleted"));
            assert_int_equal(store_check(f->store, &f->err), -ERR_UNAVAILABLE);
            rename_file(f, "away", names[which]);
            OK(f, store_check(f->store, &f->err));
        }
        assert_int_equal(put_points(f, 2 + which, 1), 0);
        add_job(f, 2 + which, "null");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_a_writer_is_waited_for_once, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_reader_does_not_fill_the_disk, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_file_that_is_away, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
