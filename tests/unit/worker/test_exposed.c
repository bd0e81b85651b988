/* exposed: on a device whose clock the test turns: each moment goes to one kind, all add up to the
 * step, a span inside another counts as the outer one, more spans than there are marks. */
#include "common/mem.h"
#include "tests/lib/cmocka.h"
#include "worker/exposed.h"

struct event {
    int64_t ns;
};

static int64_t now_ns;  /* of the device's stream */
static int64_t settled; /* spans that were asked for */

static int fake_event_new(struct device *device, struct event **ret, struct err *err)
{
    struct event *event = mem_new(1, sizeof *event);
    if (event == NULL)
        return mem_fail(err, sizeof *event, "an event");
    *ret = event;
    return 0;
}

static void fake_event_free(struct device *device, struct event *event)
{
    mem_free(event);
}

static int fake_event_record(struct device *device, struct event *event, struct stream *stream,
                             struct err *err)
{
    (void)device, (void)stream, (void)err;
    event->ns = now_ns;
    return 0;
}

static int fake_event_elapsed(struct device *device, struct event *from, struct event *to,
                              int64_t *ret_ns, struct err *err)
{
    (void)device, (void)err;
    settled++;
    *ret_ns = to->ns - from->ns;
    return 0;
}

static const struct device_ops fake_ops = {.event_new = fake_event_new,
                                           .event_free = fake_event_free,
                                           .event_record = fake_event_record,
                                           .event_elapsed = fake_event_elapsed};
static struct device fake = {.dev = &fake_ops};
static struct exposed account;

static void span(enum exposed_kind kind, int64_t ns)
{
    struct err err = {0};
    assert_int_equal(exposed_enter(&account, kind, NULL, &err), 0);
    now_ns += ns;
    assert_int_equal(exposed_leave(&account, NULL, &err), 0);
}

static struct exposed_times stop(void)
{
    struct err err = {0};
    struct exposed_times times;
    assert_int_equal(exposed_stop(&account, NULL, &times, &err), 0);
    return times;
}

static int open_account(void **state)
{
    struct err err = {0};
    return exposed_init(&account, &fake, &err);
}

static int close_account(void **state)
{
    exposed_done(&account);
    exposed_done(&account); /* twice is fine */
    return mem_live() == 0 ? 0 : -1;
}

static void test_times_add_up(void **state)
{
    struct err err = {0};
    span(EXPOSED_SUMS, 5000); /* before the step: of no step */
    assert_int_equal(exposed_start(&account, NULL, &err), 0);
    now_ns += 100;
    span(EXPOSED_GATHER, 7);
    span(EXPOSED_RING, 0);
    now_ns += 30;
    assert_int_equal(exposed_enter(&account, EXPOSED_REDUCE, NULL, &err), 0);
    now_ns += 11;
    span(EXPOSED_SUMS, 1000); /* of the reduction */
    assert_int_equal(exposed_leave(&account, NULL, &err), 0);
    span(EXPOSED_GATHER, 2);
    struct exposed_times times = stop();
    assert_int_equal(times.ns[EXPOSED_GATHER], 9);
    assert_int_equal(times.ns[EXPOSED_REDUCE], 1011);
    assert_int_equal(times.compute_ns, 130);
    assert_true(times.seen[EXPOSED_RING] && times.ns[EXPOSED_RING] == 0);
    assert_false(times.seen[EXPOSED_SUMS]);
    assert_false(times.seen[EXPOSED_EXCHANGE]);
    /* The next step knows nothing of it. */
    assert_int_equal(exposed_start(&account, NULL, &err), 0);
    span(EXPOSED_STATES, 3);
    times = stop();
    assert_int_equal(times.ns[EXPOSED_STATES], 3);
    assert_int_equal(times.ns[EXPOSED_GATHER] + times.compute_ns, 0);
    assert_false(times.seen[EXPOSED_GATHER]);
}

/* Marks are added up one by one when they run out, and none is lost. */
static void test_more_spans_than_marks(void **state)
{
    struct err err = {0};
    assert_int_equal(exposed_start(&account, NULL, &err), 0);
    settled = 0;
    for (int i = 0; i < EXPOSED_MARKS; i++)
        span(i % 2 == 0 ? EXPOSED_OFFLOAD_IN : EXPOSED_OFFLOAD_OUT, 3 + i % 2);
    assert_int_equal(settled, 0); /* nobody waited for the device */
    for (int i = 0; i < 10; i++)
        span(EXPOSED_EXCHANGE, 1);
    assert_int_equal(settled, 10);
    struct exposed_times times = stop();
    assert_int_equal(times.ns[EXPOSED_OFFLOAD_IN], 3 * EXPOSED_MARKS / 2);
    assert_int_equal(times.ns[EXPOSED_OFFLOAD_OUT], 4 * EXPOSED_MARKS / 2);
    assert_int_equal(times.ns[EXPOSED_EXCHANGE], 10);
    assert_int_equal(times.compute_ns, 0);
}

static void test_no_account(void **state)
{
    struct err err = {0};
    struct exposed_times times = {.compute_ns = 77};
    assert_int_equal(exposed_start(NULL, NULL, &err), 0);
    assert_int_equal(exposed_enter(NULL, EXPOSED_RING, NULL, &err), 0);
    assert_int_equal(exposed_leave(NULL, NULL, &err), 0);
    assert_int_equal(exposed_stop(NULL, NULL, &times, &err), 0);
    assert_int_equal(times.compute_ns, 77);
}

/* Some of the two thousand events cannot be made: what was is freed. */
static void test_no_memory(void **state)
{
    struct exposed half;
    struct err err;
    static const int64_t nth[] = {1, 2, 3, 4, EXPOSED_MARKS, 2 * EXPOSED_MARKS + 2};
    int64_t live = mem_live();
    for (size_t i = 0; i < sizeof nth / sizeof nth[0]; i++) {
        mem_fault_after(nth[i]);
        assert_int_equal(exposed_init(&half, &fake, &err), -ERR_NOMEM);
        mem_fault_after(0);
        exposed_done(&half);
        assert_int_equal(mem_live(), live);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_times_add_up, open_account, close_account),
        cmocka_unit_test_setup_teardown(test_more_spans_than_marks, open_account, close_account),
        cmocka_unit_test(test_no_account),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
