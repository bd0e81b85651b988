/* queue and sched: order, no overtaking, reasons, random queues against the rules.
 */
#include "common/mem.h"
#include "common/rng.h"
#include "daemon/sched.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

static void add(struct queue *queue, int number, int64_t priority, int64_t ranks)
{
    struct err err;
    struct queue_entry entry = {.priority = priority, .created_ms = number, .ranks = ranks};
    (void)snprintf(entry.job_id, sizeof entry.job_id, "job-%d", number);
    assert_int_equal(queue_add(queue, &entry, &err), 0);
}

static void test_order(void **state)
{
    (void)state;
    struct queue queue = {.count = 0};
    add(&queue, 1, 0, 1);
    add(&queue, 2, 5, 1);
    add(&queue, 3, 0, 1);
    add(&queue, 4, 5, 1);
    add(&queue, 5, -1, 1);
    add(&queue, 0, 0, 1); /* older: requeued */
    const char *wanted[] = {"job-2", "job-4", "job-0", "job-1", "job-3", "job-5"};
    for (size_t i = 0; i < 6; i++)
        assert_string_equal(queue.entries[i].job_id, wanted[i]);
    assert_int_equal(queue_find(&queue, "job-3"), 4);
    assert_int_equal(queue_find(&queue, "job-9"), 6);
    queue_remove(&queue, 4);
    assert_int_equal(queue_find(&queue, "job-5"), 4);
    queue_done(&queue);
    assert_int_equal(mem_live(), 0);
}

static void test_nobody_overtakes(void **state)
{
    (void)state;
    char text[128];
    struct queue queue = {.count = 0};
    struct inventory inventory = {.cores = 4, .slots = 4, .taken = 2};
    assert_int_equal(sched_next(&queue, &inventory), 0);
    add(&queue, 1, 0, 3);
    add(&queue, 2, 0, 1);
    assert_int_equal(sched_next(&queue, &inventory), queue.count);
    sched_explain(&queue, &inventory, 0, text, sizeof text);
    assert_string_equal(text, "needs 3 of 4 slots, 2 free");
    sched_explain(&queue, &inventory, 1, text, sizeof text);
    assert_string_equal(text, "waits behind 1 other job");
    add(&queue, 3, 9, 8); /* can never run here: does not stand in the way */
    inventory_give(&inventory, 1, NULL);
    assert_int_equal(sched_next(&queue, &inventory), 1);
    sched_explain(&queue, &inventory, 0, text, sizeof text);
    assert_string_equal(text, "needs 8 slots, this machine has 4");
    queue_done(&queue);
}

static void test_random_queues(void **state)
{
    (void)state;
    const uint64_t seed = 20261129;
    print_message("seed %llu\n", (unsigned long long)seed);
    for (uint64_t round = 0; round < 200; round++) {
        struct queue queue = {.count = 0};
        struct inventory inventory = {.cores = 8, .slots = 8};
        inventory.taken = (int64_t)rng_below(seed, RNG_STREAM_TEST, round * 100, 9);
        uint64_t jobs = rng_below(seed, RNG_STREAM_TEST, round * 100 + 1, 12);
        for (uint64_t j = 0; j < jobs; j++)
            add(&queue, (int)j, (int64_t)rng_below(seed, RNG_STREAM_TEST, round * 100 + 10 + j, 3),
                1 + (int64_t)rng_below(seed, RNG_STREAM_TEST, round * 100 + 40 + j, 10));
        size_t next = sched_next(&queue, &inventory);
        for (size_t i = 0; i < queue.count; i++) {
            bool possible = queue.entries[i].ranks <= inventory.slots;
            if (i < next && possible) /* nobody who could ever run was passed over, unless none */
                assert_true(next == queue.count);
            if (i == next)
                assert_true(queue.entries[i].ranks <= inventory_free_slots(&inventory));
            if (i > 0)
                assert_true(queue.entries[i - 1].priority >= queue.entries[i].priority);
        }
        queue_done(&queue);
    }
}

static void test_full_queue_and_allocation(void **state)
{
    (void)state;
    struct err err;
    struct queue queue = {.count = 0};
    const struct queue_entry entry = {.job_id = "x", .ranks = 1};
    mem_fault_after(1);
    assert_int_equal(queue_add(&queue, &entry, &err), -ERR_NOMEM);
    mem_fault_after(0);
    assert_int_equal(queue.count, 0);
    queue.count = LIMIT_JOBS_UNFINISHED;
    queue.capacity = LIMIT_JOBS_UNFINISHED;
    queue.entries = mem_new(queue.capacity, sizeof *queue.entries);
    assert_int_equal(queue_add(&queue, &entry, &err), -ERR_TOO_MANY);
    queue_done(&queue);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_order),
        cmocka_unit_test(test_nobody_overtakes),
        cmocka_unit_test(test_random_queues),
        cmocka_unit_test(test_full_queue_and_allocation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
