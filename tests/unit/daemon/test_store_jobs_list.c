/* store_jobs: what is looked for among many jobs is looked for some rows at a time. */
#include "tests/lib/store_fixture.h"

/* What SQLite has done for the store so far. */
static int64_t work(struct fixture *f)
{
    int64_t steps = 0;
    for (sqlite3_stmt *one = sqlite3_next_stmt(f->store->databases[STORE_JOBS], NULL); one != NULL;
         one = sqlite3_next_stmt(f->store->databases[STORE_JOBS], one))
        steps += sqlite3_stmt_status(one, SQLITE_STMTSTATUS_VM_STEP, 0);
    return steps;
}

/* However few jobs are of the list, and wherever they are, one look costs as much as its rows. */
static void test_a_look_has_an_end(void **state)
{
    struct fixture *f = *state;
    enum { JOBS = 95, LOOK = 10 };
    for (int n = 1; n <= JOBS; n++)
        add_job(f, n, n == 3 || n == 40 ? "{\"team\":\"rare\"}" : "{\"team\":\"usual\"}");
    for (int order = 0; order < 2; order++) {
        struct store_page page = {.limit = 5,
                                  .order = order == 0 ? STORE_NEWEST_FIRST : STORE_OLDEST_FIRST};
        struct ids ids = {.count = 0}, all = {.count = 0};
        int64_t row = 0, most = 0, before = work(f);
        bool more = true;
        int looks = 0;
        OK(f, store_jobs_list(f->store, "", "{\"team\":\"rare\"}", &page, collect_job, &all, &more,
                              &f->err));
        const int64_t whole = work(f) - before;
        assert_false(more);
        for (more = true; more; looks++) {
            before = work(f);
            OK(f, store_jobs_look(f->store, "", "{\"team\":\"rare\"}", &page, LOOK, collect_job,
                                  &ids, &more, &row, &f->err));
            most = work(f) - before > most ? work(f) - before : most;
            assert_int_equal(more, row > 0);
            page.after_row = row;
        }
        assert_string_equal(ids.text, order == 0 ? "40 3 " : "3 40 ");
        assert_string_equal(ids.text, all.text);
        assert_int_equal(looks, (JOBS + LOOK - 1) / LOOK);
        assert_true(most * 5 < whole);
        page = (struct store_page){.limit = 0, .order = page.order, .after_row = 40};
        OK(f, store_jobs_look(f->store, "", NULL, &page, LOOK, collect_job, &ids, &more, &row,
                              &f->err));
        assert_true(more && row == 0 && ids.count == 2); /* there are some, and that is all */
    }
}

static void test_models_are_looked_for_in_slices(void **state)
{
    struct fixture *f = *state;
    for (int n = 1; n <= 25; n++)
        add_job(f, n, "{}");
    OK(f, store_run(f->store, STORE_JOBS,
                    "UPDATE jobs SET state = 'succeeded', fine_tuned_model = iif(row = 7, '', id) "
                    "WHERE row IN (2, 7, 10, 11, 25)",
                    NULL, &f->err));
    static const char *const wanted[] = {"2 10 ", "2 10 11 ", "2 10 11 25 "};
    struct ids ids = {.count = 0};
    int64_t row = 0;
    for (int look = 0; look < 3; look++) {
        bool more = false;
        OK(f, store_jobs_tuned(f->store, 10, &row, collect_job, &ids, &more, &f->err));
        assert_string_equal(ids.text, wanted[look]);
        assert_int_equal(more, look < 2);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_a_look_has_an_end, setup, teardown),
        cmocka_unit_test_setup_teardown(test_models_are_looked_for_in_slices, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
