/* webhooks: what the store keeps of them, in which order they are due, and pauses between tries. */
#include "daemon/webhooks.h"
#include "tests/lib/store_fixture.h"

struct due {
    char ids[16][16];
    int64_t rows[16];
    int count;
};

static int collect_due(void *context, const struct store_webhook *webhook, struct err *err)
{
    struct due *due = context;
    due->rows[due->count] = webhook->row;
    (void)snprintf(due->ids[due->count++], sizeof due->ids[0], "%s", webhook->id);
    return 0;
}

static void expect_due(struct fixture *f, int64_t now_ms, const char *ids, struct due *due)
{
    char got[256] = "";
    *due = (struct due){.count = 0};
    OK(f, store_webhooks_due(f->store, now_ms, 16, collect_due, due, &f->err));
    for (int i = 0; i < due->count; i++)
        (void)snprintf(got + strlen(got), sizeof got - strlen(got), "%s ", due->ids[i]);
    assert_string_equal(got, ids);
}

static void test_order(void **state)
{
    struct fixture *f = *state;
    const struct store_webhook messages[] = {
        {.id = "a1", .job_id = "a", .owner = "ann", .url = "u", .body = "{}"},
        {.id = "b1", .job_id = "b", .owner = "ben", .url = "u", .body = "{}"},
        {.id = "a2", .job_id = "a", .owner = "ann", .url = "u", .body = "{}"},
        {.id = "a2", .job_id = "a", .owner = "op", .url = "v", .body = "{}"},
    };
    struct due due;
    int64_t cursor = 0, count = 0;
    OK(f, store_webhook_cursor(f->store, &cursor, &f->err));
    assert_int_equal(cursor, 0);
    OK(f, store_webhooks_put(f->store, messages, 4, 77, &f->err));
    OK(f, store_webhook_cursor(f->store, &cursor, &f->err));
    assert_int_equal(cursor, 77);
    OK(f, store_webhooks_count(f->store, "ann", &count, &f->err));
    assert_int_equal(count, 2);
    expect_due(f, 0, "a1 b1 a2 ", &due); /* one of each job and address; that a2 is the other's */
    OK(f, store_webhook_retry(f->store, due.rows[0], 1, 5000, &f->err));
    OK(f, store_webhook_done(f->store, due.rows[1], &f->err));
    OK(f, store_webhook_done(f->store, due.rows[2], &f->err));
    expect_due(f, 4999, "", &due); /* a2 waits behind a1, whose time has not come */
    expect_due(f, 5000, "a1 ", &due);
    OK(f, store_webhook_done(f->store, due.rows[0], &f->err));
    expect_due(f, 5000, "a2 ", &due);
    store_close(f->store);
    f->store = NULL;
    OK(f, store_open(f->dir, &f->store, &f->err));
    expect_due(f, 5000, "a2 ", &due);
}

static void test_editions(void **state)
{
    struct fixture *f = *state;
    int64_t edition = 0;
    OK(f, store_webhook_edition(f->store, "ann", false, &edition, &f->err));
    assert_int_equal(edition, 1);
    OK(f, store_webhook_edition(f->store, "ann", true, &edition, &f->err));
    OK(f, store_webhook_edition(f->store, "ann", true, &edition, &f->err));
    assert_int_equal(edition, 3);
    OK(f, store_webhook_edition(f->store, "ben", false, &edition, &f->err));
    assert_int_equal(edition, 1);
}

static void test_pauses(void **state)
{
    static const int64_t seconds[] = {1,   2,   4,   8,    16,   32,   64,
                                      128, 256, 512, 1024, 2048, 3600, 3600};
    int64_t sum_ms = 0, tries = 0;
    for (size_t i = 0; i < sizeof seconds / sizeof seconds[0]; i++)
        assert_int_equal(webhooks_pause_ms((int64_t)i + 1), seconds[i] * 1000);
    assert_int_equal(webhooks_pause_ms(INT64_MAX), WEBHOOKS_RETRY_MAX_MS);
    while (sum_ms < WEBHOOKS_DAY_MS)
        sum_ms += webhooks_pause_ms(++tries);
    assert_in_range(tries, 30, 40); /* of a day */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_order, setup, teardown),
        cmocka_unit_test_setup_teardown(test_editions, setup, teardown),
        cmocka_unit_test(test_pauses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
