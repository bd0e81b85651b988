/* cmd_usage: windows, the table, and what is refused. */
#include "tests/lib/fake_server.h"

#define ROW(key, gpu, cpu)                                                     \
    "{\"key\":" key ",\"user\":null,\"model\":null,\"jobs\":2,\"attempts\":3," \
    "\"gpu_hours\":" gpu ",\"cpu_slot_hours\":" cpu ",\"lost_gpu_hours\":0.5," \
    "\"lost_cpu_slot_hours\":0.0,\"repeated_steps\":0,\"tokens\":123456}"

static void test_table(void **state)
{
    struct scene *s = *state;
    scene_reply(s, 200,
                "{\"object\":\"usage\",\"by\":\"user\",\"data\":[" ROW(
                    "\"ann\"", "10.126", "0.0") "],\"total\":" ROW("null", "1000.0",
                                                                   "0.0") ",\"has_more\":true}");
    scene_run(s, cmd_usage, NULL);
    scene_expect(s, "USER  JOBS  ATTEMPTS  GPU-HOURS  LOST  TOKENS\n"
                    "ann      2         3      10.13  0.50  123456\n"
                    "all      2         3    1000.00  0.50  123456\n"
                    "there are more: --limit, --after and --before say which\n");
    scene_asked(s, 0, "GET /v1/usage?by=user HTTP/1.1");
    scene_reply(s, 200,
                "{\"object\":\"usage\",\"by\":\"job\",\"data\":[{\"key\":\"ftjob-a\",\"user\":"
                "\"ann\",\"model\":\"tiny\",\"cpu_slot_hours\":1.5}],\"total\":{"
                "\"cpu_slot_hours\":1.5}}");
    scene_run(s, cmd_usage, "--by", "job", "--limit", "7", NULL);
    scene_expect(s, "JOB      USER  MODEL  SLOT-HOURS\n"
                    "ftjob-a  ann   tiny         1.50\n"
                    "all                         1.50\n");
    scene_asked(s, 1, "GET /v1/usage?by=job&limit=7 HTTP/1.1");
    scene_reply(s, 200, "{}"); /* an answer that says nothing */
    scene_run(s, cmd_usage, NULL);
    scene_expect(s, "WHAT\nall\n");
}

static void test_windows(void **state)
{
    struct scene *s = *state;
    assert_int_equal(setenv("TZ", "CET-1", 1), 0);
    scene_reply(s, 200, "{}");
    scene_run(s, cmd_usage, "--after", "2026-11-30", "--before", "1800000000", NULL);
    scene_asked(s, 0, "GET /v1/usage?by=user&after=1795993200&before=1800000000 HTTP/1.1");
    scene_reply(s, 200, "{}");
    scene_run(s, cmd_usage, "--before", "1970-01-02", "--by", "day", NULL);
    scene_asked(s, 1, "GET /v1/usage?by=day&before=82800 HTTP/1.1");
    scene_reply(s, 200, "{}");
    scene_run(s, cmd_usage, "--since", "1000000w", NULL);
    scene_asked(s, 2, "GET /v1/usage?by=user&after=0 HTTP/1.1");
    scene_run(s, cmd_usage, "--since", "7", NULL);
    scene_expect_usage(s, "--since 7: write a number and s, m, h, d or w, such as 30d");
    scene_run(s, cmd_usage, "--after", "yesterday", NULL);
    scene_expect_usage(s, "--after yesterday: write a date, such as 2026-11-30, or Unix time");
    scene_run(s, cmd_usage, "--since", "7d", "--after", "5", NULL);
    scene_expect_usage(s, "--since and --after: give one of them");
    scene_run(s, cmd_usage, "ann", NULL);
    scene_expect_usage(s, "unexpected argument ann");
    assert_int_equal(s->server.asked_count, 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {SCENE_TEST(test_table), SCENE_TEST(test_windows)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
