/* cmd_control: cancel, pause, resume and checkpoints: request, body, output. */
#include "tests/lib/fake_server.h"

#define JOB "{\"id\":\"ftjob-a\",\"ithaca\":{\"state\":\"%s\"}}"

static void reply_state(struct scene *s, const char *name)
{
    char body[256];
    (void)snprintf(body, sizeof body, JOB, name);
    scene_reply(s, 200, body);
}

static void test_posts(void **state)
{
    struct scene *s = *state;
    reply_state(s, "cancelled");
    scene_run(s, cmd_cancel, "ftjob-a", NULL);
    scene_expect(s, "ftjob-a is cancelled\n");
    scene_asked(s, 0, "POST /v1/fine_tuning/jobs/ftjob-a/cancel HTTP/1.1");
    assert_string_equal(s->server.asked[0].body, "");
    reply_state(s, "pausing"); /* it may take longer than the daemon waits */
    scene_run(s, cmd_pause, "ftjob-a", NULL);
    scene_expect(s, "ftjob-a is pausing\n");
    scene_asked(s, 1, "POST /v1/fine_tuning/jobs/ftjob-a/pause HTTP/1.1");
    reply_state(s, "queued");
    scene_run(s, cmd_resume, "ftjob-a", NULL);
    scene_expect(s, "ftjob-a is queued\n");
    assert_string_equal(s->server.asked[2].body, "");
    reply_state(s, "queued");
    scene_run(s, cmd_resume, "--checkpoint", "ftckpt_a_3", "ftjob-a", NULL);
    scene_asked(s, 3, "POST /v1/fine_tuning/jobs/ftjob-a/resume HTTP/1.1");
    assert_string_equal(s->server.asked[3].body, "{\"checkpoint\":\"ftckpt_a_3\"}");
    scene_reply(s, 200, "{}"); /* an answer that says nothing */
    scene_run(s, cmd_cancel, "ftjob-a", NULL);
    scene_expect(s, "ftjob-a is -\n");
    s->json = true;
    scene_reply(s, 200, "{\"status\":\"paused\"}");
    scene_run(s, cmd_pause, "ftjob-a", NULL);
    scene_expect(s, "{\n  \"status\": \"paused\"\n}\n");
}

static void test_cancel_waits_for_the_end(void **state)
{
    struct scene *s = *state;
    reply_state(s, "cancelling"); /* its ranks end slowly */
    reply_state(s, "cancelling");
    reply_state(s, "cancelled");
    scene_run(s, cmd_cancel, "ftjob-a", NULL);
    scene_expect(s, "ftjob-a is cancelled\n");
    scene_asked(s, 0, "POST /v1/fine_tuning/jobs/ftjob-a/cancel HTTP/1.1");
    scene_asked(s, 2, "GET /v1/fine_tuning/jobs/ftjob-a HTTP/1.1");
}

static void test_changes(void **state)
{
    struct scene *s = *state;
    reply_state(s, "queued");
    scene_run(s, cmd_hold, "ftjob-a", NULL);
    scene_expect(s, "ftjob-a is queued\n");
    scene_asked(s, 0, "PATCH /v1/fine_tuning/jobs/ftjob-a HTTP/1.1");
    assert_string_equal(s->server.asked[0].body, "{\"ithaca\":{\"hold\":true}}");
    reply_state(s, "queued");
    scene_run(s, cmd_release, "ftjob-a", NULL);
    assert_string_equal(s->server.asked[1].body, "{\"ithaca\":{\"hold\":false}}");
    reply_state(s, "running");
    scene_run(s, cmd_update, "ftjob-a", "--set", "priority=5", "--set", "tags=[\"x\"]", NULL);
    scene_expect(s, "ftjob-a is running\n");
    scene_asked(s, 2, "PATCH /v1/fine_tuning/jobs/ftjob-a HTTP/1.1");
    assert_string_equal(s->server.asked[2].body, "{\"ithaca\":{\"priority\":5,\"tags\":[\"x\"]}}");
}

static void test_mistakes(void **state)
{
    struct scene *s = *state;
    cli_run_fn *const commands[] = {cmd_cancel, cmd_pause,  cmd_resume, cmd_checkpoints,
                                    cmd_hold,   cmd_update, cmd_release};
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++) {
        scene_run(s, commands[i], NULL);
        scene_expect_usage(s, "the job's id is missing");
        scene_run(s, commands[i], "a", "b", NULL);
        scene_expect_usage(s, "unexpected argument b");
        scene_run(s, commands[i], "a", "--force", NULL);
        scene_expect_usage(s, "unknown option --force");
    }
    scene_run(s, cmd_resume, "a", "--checkpoint=\xff", NULL);
    scene_expect_usage(s, "not UTF-8");
    assert_int_equal(s->server.asked_count, 0);
    scene_reply(s, 400, "{\"error\":{\"message\":\"it has ended\",\"code\":\"invalid_state\"}}");
    scene_run(s, cmd_cancel, "ftjob-a", NULL);
    assert_int_equal(s->rc, -ERR_BAD_STATE);
    assert_string_equal(s->err.text, "it has ended");
}

static void test_checkpoints(void **state)
{
    struct scene *s = *state;
    scene_reply(s, 200,
                "{\"data\":[{\"id\":\"ftckpt_a_20\",\"created_at\":1764417600,\"step_number\":20,"
                "\"metrics\":{\"train_loss\":0.25,\"valid_loss\":1.5}},"
                "{\"id\":\"ftckpt_a_10\",\"created_at\":1764417599,\"step_number\":10,"
                "\"metrics\":{\"train_loss\":0.5,\"valid_loss\":null}}]}");
    scene_run(s, cmd_checkpoints, "ftjob-a", NULL);
    scene_expect(s, "ftckpt_a_20  2025-11-29T12:00:00Z  step 20        loss 0.2500  valid 1.5000\n"
                    "ftckpt_a_10  2025-11-29T11:59:59Z  step 10        loss 0.5000\n");
    scene_asked(s, 0, "GET /v1/fine_tuning/jobs/ftjob-a/checkpoints?limit=10000 HTTP/1.1");
    scene_reply(s, 200, "{\"data\":[]}");
    scene_run(s, cmd_checkpoints, "ftjob-a", NULL);
    scene_expect(s, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SCENE_TEST(test_posts), SCENE_TEST(test_cancel_waits_for_the_end), SCENE_TEST(test_changes),
        SCENE_TEST(test_mistakes), SCENE_TEST(test_checkpoints)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
