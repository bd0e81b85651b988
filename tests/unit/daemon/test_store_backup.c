/* store_backup: a database is copied before a migration changes it, and is not changed where it
 * cannot be; network filesystems are known by their numbers. */
#include "daemon/store_sql.h"
#include "tests/lib/store_fixture.h"

#include <sys/stat.h>

/* Turns metrics.db back to version 1 and closes the store; returns the version it had. */
static int64_t turn_back(struct fixture *f)
{
    int64_t version = 0;
    char sql[64];
    OK(f, store_query_i64(f->store, STORE_METRICS, "PRAGMA user_version", NULL, &version, &f->err));
    (void)snprintf(sql, sizeof sql, "DROP INDEX points_key; PRAGMA user_version = 1");
    assert_int_equal(sqlite3_exec(f->store->databases[STORE_METRICS], sql, NULL, NULL, NULL),
                     SQLITE_OK);
    store_close(f->store);
    f->store = NULL;
    return version;
}

static int64_t ask_copy(const char *path, const char *sql)
{
    sqlite3 *copy = NULL;
    sqlite3_stmt *statement = NULL;
    assert_int_equal(sqlite3_open_v2(path, &copy, SQLITE_OPEN_READONLY, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_prepare_v2(copy, sql, -1, &statement, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_step(statement), SQLITE_ROW);
    int64_t value = sqlite3_column_int64(statement, 0);
    assert_int_equal(sqlite3_finalize(statement), SQLITE_OK);
    assert_int_equal(sqlite3_close(copy), SQLITE_OK);
    return value;
}

static void add_point(struct fixture *f, int64_t step)
{
    int64_t row = 0;
    const struct store_point point = {
        .job_id = "ftjob-1", .attempt = 1, .step = step, .metric = METRIC_LOSS, .value = 0.5};
    OK(f, store_points_insert(f->store, &point, 1, &row, &f->err));
}

static void test_copy_before_migration(void **state)
{
    struct fixture *f = *state;
    struct stat info;
    CLEANUP(mem_free_ptr) char *copy = io_join(f->dir, "metrics.db.v1");
    CLEANUP(mem_free_ptr) char *other = io_join(f->dir, "jobs.db.v1");
    CLEANUP(mem_free_ptr) char *left = io_join(f->dir, "metrics.db.v1.new");
    add_point(f, 1);
    assert_false(io_exists(copy)); /* a new database is not copied */
    int64_t version = turn_back(f);
    OK(f, io_write_file(left, "of a daemon that was killed", 27, 0600, &f->err));
    OK(f, store_open(f->dir, &f->store, &f->err));
    int64_t now = 0, points = 0;
    OK(f, store_query_i64(f->store, STORE_METRICS, "PRAGMA user_version", NULL, &now, &f->err));
    assert_int_equal(now, version);
    assert_int_equal(stat(copy, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0600);
    assert_int_equal(ask_copy(copy, "PRAGMA user_version"), 1);
    assert_int_equal(ask_copy(copy, "SELECT count(*) FROM points"), 1);
    assert_int_equal(ask_copy(copy, "SELECT count(*) FROM sqlite_schema WHERE name = 'points_key'"),
                     0);
    assert_false(io_exists(other)); /* jobs.db was of today's version */
    assert_false(io_exists(left));
    add_point(f, 2);
    (void)turn_back(f);
    OK(f, store_open(f->dir, &f->store, &f->err)); /* the copy of an earlier time is replaced */
    assert_int_equal(ask_copy(copy, "SELECT count(*) FROM points"), 2);
    OK(f, store_query_i64(f->store, STORE_METRICS, "SELECT count(*) FROM points", NULL, &points,
                          &f->err));
    assert_int_equal(points, 2);
}

static void test_no_copy_no_migration(void **state)
{
    struct fixture *f = *state;
    CLEANUP(mem_free_ptr) char *database = io_join(f->dir, "metrics.db");
    CLEANUP(mem_free_ptr) char *left = io_join(f->dir, "metrics.db.v1.new");
    CLEANUP(mem_free_ptr) char *below = io_join(left, "x");
    (void)turn_back(f);
    OK(f, io_make_dirs(below, 0700, &f->err)); /* in the copy's way */
    assert_int_equal(store_open(f->dir, &f->store, &f->err), -ERR_IO);
    assert_non_null(strstr(f->err.text, "no copy of"));
    assert_non_null(strstr(f->err.text, "metrics.db.v1.new"));
    assert_int_equal(ask_copy(database, "PRAGMA user_version"), 1);
    OK(f, io_remove_tree(left, &f->err));
    OK(f, store_open(f->dir, &f->store, &f->err));
}

static void run_sql(const char *path, const char *sql)
{
    sqlite3 *database = NULL;
    char *why = NULL;
    assert_int_equal(sqlite3_open(path, &database), SQLITE_OK);
    if (sqlite3_exec(database, sql, NULL, NULL, &why) != SQLITE_OK)
        fail_msg("%s", why);
    assert_int_equal(sqlite3_close(database), SQLITE_OK);
}

/* Nothing of it stays but the copy, and the next daemon can try again; one that is done needs no
 * copy. */
static void test_a_migration_that_fails(void **state)
{
    static const char half[] = "SELECT count(*) FROM pragma_table_info('attempts') "
                               "WHERE name = 'from_step'";
    struct fixture *f = *state;
    CLEANUP(mem_free_ptr) char *database = io_join(f->dir, "jobs.db");
    const int64_t version = ask_copy(database, "PRAGMA user_version");
    const char *const unwanted[] = {"jobs.db.v0", "metrics.db.v0", "metrics.db.v2"};
    store_close(f->store);
    f->store = NULL;
    run_sql(database, "DROP VIEW attempts_held; DROP TABLE attempts_gone;"
                      "ALTER TABLE attempts DROP COLUMN from_step; PRAGMA user_version = 10");
    for (int again = 0; again < 2; again++) {
        assert_true(store_open(f->dir, &f->store, &f->err) < 0);
        assert_non_null(strstr(f->err.text, "duplicate column name: step"));
        assert_int_equal(ask_copy(database, "PRAGMA user_version"), 10);
        assert_int_equal(ask_copy(database, half), 0);
    }
    run_sql(database,
            "ALTER TABLE attempts DROP COLUMN step;"
            "ALTER TABLE attempts DROP COLUMN tokens; DROP INDEX experiment_points_status");
    OK(f, store_open(f->dir, &f->store, &f->err));
    assert_int_equal(ask_copy(database, "PRAGMA user_version"), version);
    assert_int_equal(ask_copy(database, half), 1);
    for (size_t i = 0; i < sizeof unwanted / sizeof unwanted[0]; i++) {
        CLEANUP(mem_free_ptr) char *copy = io_join(f->dir, unwanted[i]);
        assert_false(io_exists(copy));
    }
}

static void test_places(void **state)
{
    struct fixture *f = *state;
    OK(f, store_check_place(f->dir, &f->err));
    assert_int_equal(store_check_place("/nonexistent", &f->err), -ERR_NOT_FOUND);
    assert_string_equal(store_network_name(0x6969), "NFS");
    assert_string_equal(store_network_name(0xff534d42), "CIFS"); /* beyond 31 bits */
    assert_null(store_network_name(0xef53));                     /* ext4 */
    assert_null(store_network_name(0x58465342));                 /* XFS */
    assert_null(store_network_name(0x01021994));                 /* tmpfs */
    assert_null(store_network_name(0x794c7630));                 /* overlayfs */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_copy_before_migration, setup, teardown),
        cmocka_unit_test_setup_teardown(test_no_copy_no_migration, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_migration_that_fails, setup, teardown),
        cmocka_unit_test_setup_teardown(test_places, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
