/* usage: what decays and what does not, clocks that go back, lists that grow; and rows of it. */
#include "daemon/usage.h"
#include "tests/lib/store_fixture.h"

static bool is_near(double value, double wanted)
{
    return fabs(value - wanted) < 1e-9;
}

static void test_decay(void **state)
{
    struct err err;
    struct usage usage = {.half_life_ms = 1000};
    size_t ann = 9, bob = 9, again = 9;
    assert_int_equal(usage_find(&usage, "ann", &ann, &err), 0);
    assert_int_equal(usage_find(&usage, "bob", &bob, &err), 0);
    assert_int_equal(usage_find(&usage, "ann", &again, &err), 0);
    assert_true(ann == 0 && bob == 1 && again == 0 && usage.count == 2);
    usage_charge(&usage, ann, 8, 4, 5000);
    assert_true(is_near(usage_now(&usage, ann, 5000), 12));
    assert_true(is_near(usage_now(&usage, ann, 6000), 6));
    assert_true(is_near(usage_now(&usage, ann, 4000), 12)); /* a clock that was set back */
    assert_true(is_near(usage_now(&usage, bob, 9000), 0));
    usage_charge(&usage, ann, 1, 0, 8000);
    assert_true(is_near(usage_now(&usage, ann, 8000), 12.0 / 8 + 1));
    usage_charge(&usage, ann, 1, 0, 2000); /* nor does it decay what is charged then */
    assert_true(is_near(usage_now(&usage, ann, 8000), 12.0 / 8 + 2));
    assert_true(is_near(usage.users[ann].total_s, 10)); /* no penalty, no decay */
    usage.half_life_ms = 0;
    assert_true(is_near(usage_now(&usage, ann, 1000000000), 12.0 / 8 + 2));
    usage_done(&usage);
    assert_int_equal(mem_live(), 0);
}

static void test_many_users(void **state)
{
    struct err err;
    struct usage usage = {.count = 0};
    size_t index = 0;
    mem_fault_after(1);
    assert_int_equal(usage_find(&usage, "first", &index, &err), -ERR_NOMEM);
    mem_fault_after(0);
    assert_int_equal(usage.count, 0);
    for (int i = 0; i < LIMIT_USERS; i++) {
        char name[16];
        (void)snprintf(name, sizeof name, "user-%d", i);
        assert_int_equal(usage_find(&usage, name, &index, &err), 0);
        assert_int_equal(index, i);
    }
    assert_int_equal(usage_find(&usage, "one more", &index, &err), -ERR_TOO_MANY);
    assert_int_equal(usage_find(&usage, "user-77", &index, &err), 0);
    assert_int_equal(index, 77);
    usage_done(&usage);
}

static int join_row(void *context, const struct store_usage *row, struct err *err)
{
    char *text = context;
    size_t length = strlen(text);
    (void)snprintf(text + length, 256 - length, "%s %g %g %lld;", row->owner, row->used_s,
                   row->total_s, (long long)row->at_ms);
    return 0;
}

static void test_rows(void **state)
{
    struct fixture *f = *state;
    char text[256] = "";
    bool drained = true;
    const struct store_usage rows[] = {{.owner = "bob", .used_s = 1.5, .total_s = 2, .at_ms = 3},
                                       {.owner = "ann", .used_s = 0.25, .total_s = 9, .at_ms = 4},
                                       {.owner = "bob", .used_s = 1, .total_s = 4, .at_ms = 5}};
    for (size_t i = 0; i < 3; i++)
        OK(f, store_usage_put(f->store, &rows[i], &f->err));
    OK(f, store_usage_list(f->store, join_row, text, &f->err));
    assert_string_equal(text, "ann 0.25 9 4;bob 1 4 5;");
    OK(f, store_drained_get(f->store, &drained, &f->err));
    assert_false(drained);
    OK(f, store_drained_put(f->store, true, &f->err));
    store_close(f->store);
    OK(f, store_open(f->dir, &f->store, &f->err));
    OK(f, store_drained_get(f->store, &drained, &f->err));
    assert_true(drained);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_decay),
        cmocka_unit_test(test_many_users),
        cmocka_unit_test_setup_teardown(test_rows, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
