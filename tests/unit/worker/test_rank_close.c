/* rank_close: collectives end before the memory that they were lent goes, after training as after a
 * failure. */
#include "tests/lib/rank_scene.h"

static struct {
    const struct coll_ops *ops; /* the collectives' own */
    struct coll_ops watched;
    struct device *device;
    int closed, held; /* how often, and with the memory still there */
} seen;

static void close_watched(struct coll *coll)
{
    seen.closed++;
    seen.held += seen.device->dev->bytes_in_use(seen.device) > 0;
    seen.ops->close(coll);
}

static void test_memory_outlives_collectives(void **state)
{
    for (int fails = 0; fails < 2; fails++) {
        struct rank_scene s;
        struct err reason = {0};
        rank_scene_open(&s, "\"seq_len\":64,\"batch\":{\"sequences\":4}");
        seen.ops = s.rank.coll->ops, seen.device = s.rank.device;
        seen.watched = *seen.ops;
        seen.watched.close = close_watched;
        s.rank.coll->ops = &seen.watched;
        (void)err_set(&reason, ERR_NONFINITE, "a failure");
        if (fails)
            rank_fail(&s.rank, &reason);
        rank_scene_close(&s);
        assert_int_equal(seen.closed, fails + 1);
        assert_int_equal(seen.held, fails + 1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_memory_outlives_collectives)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
