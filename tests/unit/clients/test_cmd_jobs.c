/* cmd_jobs: ls, show, events, logs, models: the request, and lines made of whatever the answer
 * holds. */
#include "tests/lib/fake_server.h"

#define JOB                                                                               \
    "{\"id\":\"ftjob-a\",\"created_at\":1764417600,\"model\":\"tiny-llama\",\"ithaca\":{" \
    "\"state\":\"running\",\"steps_done\":3,\"steps_total\":10%s}%s}"
#define ROW "ftjob-a  2025-11-29T12:00:00Z  running     3/10         tiny-llama\n"

static void reply_job(struct scene *s, const char *ithaca, const char *more)
{
    char body[1024];
    (void)snprintf(body, sizeof body, JOB, ithaca, more);
    scene_reply(s, 200, body);
}

static void test_ls(void **state)
{
    struct scene *s = *state;
    char body[1024];
    (void)snprintf(body, sizeof body, "{\"data\":[" JOB ",{}]}", "", "");
    scene_reply(s, 200, body);
    scene_run(s, cmd_ls, NULL);
    scene_expect(s, ROW "-  1970-01-01T00:00:00Z  -           0/0          -\n");
    scene_asked(s, 0, "GET /v1/fine_tuning/jobs HTTP/1.1");
    scene_reply(s, 200, "{\"data\":[]}");
    scene_run(s, cmd_ls, "--limit", "5", NULL);
    scene_expect(s, "");
    scene_asked(s, 1, "GET /v1/fine_tuning/jobs?limit=5 HTTP/1.1");
    scene_run(s, cmd_ls, "--limit", "5x", NULL);
    scene_expect_usage(s, "--limit 5x");
    scene_run(s, cmd_ls, "--limit=-1", NULL);
    scene_expect_usage(s, "--limit -1");
    scene_run(s, cmd_ls, "me", NULL);
    scene_expect_usage(s, "unexpected argument me");
    assert_int_equal(s->server.asked_count, 2);
}

static void test_show(void **state)
{
    struct scene *s = *state;
    reply_job(s, "", "");
    scene_run(s, cmd_show, "ftjob-a", NULL);
    scene_expect(s, ROW);
    reply_job(s,
              ",\"pending_reason\":\"needs 2 slots\",\"resumed_from\":\"ftckpt_a_3\",\"attempt\":2",
              ",\"error\":{\"message\":\"rank 1 died\",\"code\":\"rank_died\"},"
              "\"fine_tuned_model\":\"ft:x\"");
    scene_run(s, cmd_show, "ftjob-a", NULL);
    scene_expect(s, ROW "waits: needs 2 slots\nfailed: rank 1 died (rank_died)\n"
                        "attempt 2 began with ftckpt_a_3\nmodel: ft:x\n");
    reply_job(s, ",\"pending_reason\":null,\"resumed_from\":null",
              ",\"error\":null,\"fine_tuned_model\":null");
    scene_run(s, cmd_show, "a?b", NULL);
    scene_expect(s, ROW);
    scene_asked(s, 2, "GET /v1/fine_tuning/jobs/a%3Fb HTTP/1.1");
    reply_job(
        s,
        ",\"data\":{\"lines\":9,\"kept\":7,\"examples\":8,\"tokens\":900,\"trained_tokens\":500,"
        "\"codes\":{\"blank_line\":2},\"histogram\":[[64,4],[256,3]],\"overlength\":3,"
        "\"overlength_share\":0.42857,\"longest\":250,\"tokens_cut\":60}",
        "");
    scene_run(s, cmd_show, "ftjob-a", NULL);
    scene_expect(s, ROW
                 "data: 7 of 9 lines kept: 8 examples of 900 tokens, 500 with loss\n"
                 "  dropped: 2 blank_line\n  up to 64 tokens: 4\n  up to 256 tokens: 3\n"
                 "  longer than seq_len: 3 (42.9%), the longest 250 tokens; 60 tokens unused\n");
    reply_job(s,
              ",\"data\":{\"preparing\":{\"file\":1,\"files\":2,\"bytes\":70,\"bytes_total\":80,"
              "\"rows\":5}}",
              "");
    scene_run(s, cmd_show, "ftjob-a", NULL);
    scene_expect(s, ROW "checked: 70 of 80 bytes of file 1 of 2, 5 rows\n");
    reply_job(s,
              ",\"data\":{\"preparing\":{\"file\":1,\"files\":1,\"bytes\":70,\"bytes_total\":80,"
              "\"rows\":3000007,\"bad\":2,\"fault\":{\"line\":3000001,\"column\":7,\"code\":"
              "\"invalid_json\",\"message\":\"not valid JSON\"}}}",
              "");
    scene_run(s, cmd_show, "ftjob-a", NULL);
    scene_expect(s,
                 ROW "checked: 70 of 80 bytes of file 1 of 1, 3000007 rows\n  wrong so far: 2; the "
                     "first is line 3000001 column 7: invalid_json: not valid JSON\n");
    reply_job(s,
              ",\"data\":{\"preparing\":{\"file\":1,\"files\":1,\"bytes\":7,\"bytes_total\":8,"
              "\"rows\":3,\"bad\":1,\"fault\":{\"line\":3,\"column\":0,\"code\":\"data_type\","
              "\"message\":\"of the row\"}}}",
              "");
    scene_run(s, cmd_show, "ftjob-a", NULL);
    scene_expect(s,
                 ROW "checked: 7 of 8 bytes of file 1 of 1, 3 rows\n  wrong so far: 1; the first "
                     "is line 3: data_type: of the row\n");
    reply_job(s, ",\"data\":{\"preparing\":{\"file\":1,\"files\":2,\"waiting\":true}}", "");
    scene_run(s, cmd_show, "ftjob-a", NULL);
    scene_expect(s,
                 ROW "file 1 of 2: another job makes the same tokens; this one waits for them\n");
    scene_run(s, cmd_show, NULL);
    scene_expect_usage(s, "the job's id is missing");
    s->json = true;
    scene_reply(s, 200, "{\"id\":\"ftjob-a\"}");
    scene_run(s, cmd_show, "ftjob-a", NULL);
    scene_expect(s, "{\n  \"id\": \"ftjob-a\"\n}\n");
}

static void test_events(void **state)
{
    struct scene *s = *state;
    scene_reply(s, 200,
                "{\"data\":[{\"created_at\":1764417602,\"level\":\"warn\",\"message\":\"second\","
                "\"data\":{\"user\":\"ann\"}},"
                "{\"created_at\":1764417601,\"level\":\"info\",\"message\":null}]}");
    scene_run(s, cmd_events, "ftjob-a", NULL);
    scene_expect(s,
                 "2025-11-29T12:00:01Z  info   -\n2025-11-29T12:00:02Z  warn   second  by ann\n");
    scene_asked(s, 0, "GET /v1/fine_tuning/jobs/ftjob-a/events?limit=100 HTTP/1.1");
    scene_reply(s, 200, "{\"data\":[]}");
    scene_run(s, cmd_events, "--limit=3", "ftjob-a", NULL);
    scene_expect(s, "");
    scene_asked(s, 1, "GET /v1/fine_tuning/jobs/ftjob-a/events?limit=3 HTTP/1.1");
}

static void test_logs(void **state)
{
    struct scene *s = *state;
    scene_reply(s, 200, "{\"text\":\"one\\ntwo\"}");
    scene_run(s, cmd_logs, "ftjob-a", NULL);
    scene_expect(s, "one\ntwo"); /* as it was printed, no line added */
    scene_asked(s, 0, "GET /v1/fine_tuning/jobs/ftjob-a/logs?rank=0 HTTP/1.1");
    scene_reply(s, 200, "{\"text\":\"\"}");
    scene_run(s, cmd_logs, "ftjob-a", "--rank", "3", "--attempt=2", NULL);
    scene_expect(s, "");
    scene_asked(s, 1, "GET /v1/fine_tuning/jobs/ftjob-a/logs?rank=3&attempt=2 HTTP/1.1");
    scene_reply(s, 200, "{}");
    scene_run(s, cmd_logs, "ftjob-a", NULL);
    scene_expect(s, "");
    scene_run(s, cmd_logs, "ftjob-a", "--rank", "1&attempt=9", NULL);
    scene_expect_usage(s, "--rank 1&attempt=9: write a number");
    scene_run(s, cmd_logs, "ftjob-a", "--attempt=", NULL);
    scene_expect_usage(s, "--attempt : write a number");
    scene_run(s, cmd_logs, "ftjob-a", "--follow", NULL);
    scene_expect_usage(s, "unknown option --follow");
}

static void test_models(void **state)
{
    struct scene *s = *state;
    scene_reply(s, 200, "{\"data\":[{\"id\":\"tiny-llama\"},{\"id\":\"ft:x\"},{}]}");
    scene_run(s, cmd_models, NULL);
    scene_expect(s, "tiny-llama\nft:x\n-\n");
    scene_asked(s, 0, "GET /v1/models HTTP/1.1");
    scene_reply(s, 200,
                "{\"data\":[{\"id\":\"a\",\"ithaca\":{\"ready\":false,\"reason\":\"no index\"}},"
                "{\"id\":\"b\",\"ithaca\":{\"reason\":null,\"family\":\"llama\",\"parameters\":"
                "8030261248,\"context_length\":131072,\"ulysses\":[1,2]}},"
                "{\"id\":\"c\",\"ithaca\":{\"family\":\"qwen3\",\"parameters\":999500,"
                "\"context_length\":64,\"ulysses\":[1]}},"
                "{\"id\":\"d\",\"ithaca\":{\"family\":\"qwen2\",\"parameters\":512,"
                "\"context_length\":64,\"ulysses\":[]}}]}");
    scene_run(s, cmd_models, NULL);
#define NAME(name) name "                                       "
    scene_expect(s, "a: cannot be used: no index\n" NAME(
                        "b") " llama   8.03B parameters, context "
                             "131072, ulysses 1 2\n" NAME(
                                 "c") " qwen3   1.00M parameters, context 64, "
                                      "ulysses 1\n" NAME(
                                          "d") " qwen2    512  parameters, context 64, ulysses\n");
    scene_run(s, cmd_models, "more", NULL);
    scene_expect_usage(s, "unexpected argument more");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SCENE_TEST(test_ls),   SCENE_TEST(test_show),   SCENE_TEST(test_events),
        SCENE_TEST(test_logs), SCENE_TEST(test_models),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
