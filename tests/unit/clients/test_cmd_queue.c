/* cmd_queue: requests, a line a job, and what is said of the rest. */
#include "tests/lib/fake_server.h"

static void test_lines(void **state)
{
    struct scene *s = *state;
    scene_reply(s, 200,
                "{\"object\":\"queue\",\"drained\":true,\"slots\":4,\"free_slots\":1,\"running\":["
                "{\"id\":\"ftjob-a\",\"owner\":\"ann\",\"state\":\"running\",\"priority\":2,"
                "\"slots\":3,\"estimated_end\":1800000000}],\"waiting\":[{\"id\":null,"
                "\"owner\":null,\"state\":\"queued\",\"priority\":0,\"slots\":4,"
                "\"queue_position\":1,\"estimated_start\":1800000000},{\"id\":\"ftjob-b\","
                "\"owner\":\"ann\",\"state\":\"queued\",\"priority\":-1,\"slots\":1,"
                "\"queue_position\":2,\"pending_reason\":\"waits behind 1 other job\"}],"
                "\"waiting_count\":7,\"users\":[{\"user\":\"ann\",\"slots\":3,\"used_s\":1800,"
                "\"total_s\":7200}]}");
    scene_run(s, cmd_queue, NULL);
    scene_expect(
        s, "1 of 4 slots are free; drained: nothing starts\n"
           "      ftjob-a                         ann         running     slots 3  priority 2"
           "  until 2027-01-15T08:00:00Z\n"
           "   1  -                               -           queued      slots 4  priority 0"
           "  starts 2027-01-15T08:00:00Z\n"
           "   2  ftjob-b                         ann         queued      slots 1  priority -1"
           "  waits behind 1 other job\n"
           "and 5 more that wait\n"
           "ann: 3 slots now, 0.50 slot-hours of late, 2.00 in all\n");
    scene_asked(s, 0, "GET /v1/queue?limit=1000 HTTP/1.1");
    scene_reply(s, 200, "{}"); /* an answer that says nothing */
    scene_run(s, cmd_queue, NULL);
    scene_expect(s, "0 of 0 slots are free\n");
}

static void test_drain(void **state)
{
    struct scene *s = *state;
    scene_reply(s, 200, "{\"object\":\"queue.state\",\"drained\":true}");
    scene_run(s, cmd_queue, "drain", NULL);
    scene_expect(s, "drained: no job starts\n");
    scene_asked(s, 0, "POST /v1/admin/drain HTTP/1.1");
    scene_reply(s, 200, "{\"object\":\"queue.state\",\"drained\":false}");
    scene_run(s, cmd_queue, "undrain", NULL);
    scene_expect(s, "jobs start\n");
    scene_asked(s, 1, "POST /v1/admin/undrain HTTP/1.1");
    scene_run(s, cmd_queue, "empty", NULL);
    scene_expect_usage(s, "unknown verb empty; use one of drain, undrain");
    scene_run(s, cmd_queue, "drain", "more", NULL);
    scene_expect_usage(s, "unexpected argument more");
    assert_int_equal(s->server.asked_count, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {SCENE_TEST(test_lines), SCENE_TEST(test_drain)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
