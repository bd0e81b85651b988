/* loop_turns: each turn is counted by both clocks; a slow one is told with what took most of it,
 * and seldom. */
#include "daemon/loop.h"

#include "common/clock.h"
#include "common/mem.h"
#include "tests/lib/cmocka.h"

enum { MS = 1000000 }; /* in ns */

/* Two parts; a millisecond of a processor. The next turn begins a millisecond after. */
static bool turn(struct loop_turns *turns, int64_t first_ms, int64_t second_ms, int64_t *now_ns,
                 char line[LOOP_TURNS_LINE_BYTES])
{
    loop_turns_begin(turns, *now_ns, 7 * MS);
    loop_turns_doing(turns, *now_ns, "the", "first");
    *now_ns += first_ms * MS;
    loop_turns_doing(turns, *now_ns, "the", "second");
    *now_ns += second_ms * MS;
    bool told = loop_turns_end(turns, *now_ns, 8 * MS, line);
    *now_ns += MS;
    return told;
}

static void test_a_slow_turn_is_told(void **state)
{
    struct loop_turns turns = {.told_ns = 0};
    char line[LOOP_TURNS_LINE_BYTES] = "";
    int64_t now_ns = MS;
    loop_turns_doing(&turns, now_ns, "nothing", "yet");
    assert_false(loop_turns_end(&turns, now_ns, 0, line)); /* before the first turn */
    assert_false(turn(&turns, 50, LOOP_TURNS_SLOW_MS - 51, &now_ns, line));
    assert_true(turn(&turns, 30, LOOP_TURNS_SLOW_MS - 30, &now_ns, line));
    assert_string_equal(line, "nobody was served for 100 ms (1 ms of a processor), 70 of them for "
                              "the second");
    assert_false(turn(&turns, LOOP_TURNS_SLOW_MS, 0, &now_ns, line)); /* a line a while is enough */
    now_ns += (int64_t)LOOP_TURNS_TELL_MS * MS;
    assert_false(turn(&turns, 0, 1, &now_ns, line));
    assert_true(turn(&turns, 200, 3, &now_ns, line));
    assert_string_equal(line, "nobody was served for 203 ms (1 ms of a processor), 200 of them for "
                              "the first; since the last such line 1 other times for more than 100 "
                              "ms");
    assert_int_equal(turns.wall.count, 5);
    assert_int_equal(turns.processor.count, 5);
    assert_int_equal((int)(1000 * turns.wall.sum_s + 0.5), 99 + 100 + 100 + 1 + 203);
    assert_int_equal((int)(1000 * turns.processor.sum_s + 0.5), 5);
}

static void spin(void *context)
{
    int64_t end_ns = clock_process_ns() + 20 * 1000000;
    while (clock_process_ns() < end_ns)
        continue;
    loop_stop(context);
}

static void test_a_loop_counts_its_turns(void **state)
{
    struct loop *loop = NULL;
    struct loop_timer *timer = NULL;
    struct err err;
    assert_int_equal(loop_new(&loop, &err), 0);
    assert_int_equal(loop_timer_new(loop, spin, loop, &timer, &err), 0);
    loop_timer_set(timer, 50, 0);
    assert_int_equal(loop_run(loop, &err), 0);
    loop_timer_free(timer);
    assert_int_equal(loop_turn(loop, 0, &err), 0); /* the turn before ends here */
    const struct loop_turns *turns = loop_get_turns(loop);
    assert_int_equal(turns->wall.count, 1);
    assert_true(turns->processor.sum_s >= 0.02);
    assert_true(turns->wall.sum_s >= 0.99 * turns->processor.sum_s); /* two clocks, two rates */
    loop_free(loop);
    assert_int_equal(mem_live(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_slow_turn_is_told),
        cmocka_unit_test(test_a_loop_counts_its_turns),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
