/* cmd_sample: what is asked of which model, and answers that are none. */
#include "tests/lib/fake_server.h"

#define ANSWER "{\"choices\":[{\"message\":{\"role\":\"assistant\",\"content\":\"a ship\"}}]}"

static void test_base_model(void **state)
{
    struct scene *s = *state;
    scene_reply(s, 200, ANSWER);
    scene_run(s, cmd_sample, "--model", "tiny-llama", "--prompt", "what \"is\" it?", NULL);
    scene_expect(s, "a ship\n");
    scene_asked(s, 0, "POST /v1/chat/completions HTTP/1.1");
    assert_string_equal(s->server.asked[0].body,
                        "{\"model\":\"tiny-llama\",\"messages\":[{\"role\":\"user\",\"content\":"
                        "\"what \\\"is\\\" it?\"}],\"temperature\":0}");
    scene_reply(s, 200, ANSWER);
    scene_run(s, cmd_sample, "--model=m", "--prompt=", "--system", "be brief", "--max-tokens", "5",
              NULL);
    scene_expect(s, "a ship\n");
    assert_string_equal(s->server.asked[1].body,
                        "{\"model\":\"m\",\"messages\":[{\"role\":\"system\",\"content\":\"be "
                        "brief\"},{\"role\":\"user\",\"content\":\"\"}],\"temperature\":0,"
                        "\"max_tokens\":5}");
    s->json = true;
    scene_reply(s, 200, "{\"id\":\"x\"}");
    scene_run(s, cmd_sample, "--model=m", "--prompt=p", NULL);
    scene_expect(s, "{\n  \"id\": \"x\"\n}\n");
}

static void test_job(void **state)
{
    struct scene *s = *state;
    scene_reply(s, 200, "{\"fine_tuned_model\":\"ft:x\",\"status\":\"succeeded\"}");
    scene_reply(s, 200, ANSWER);
    scene_run(s, cmd_sample, "--job", "ftjob-a", "--prompt", "p", NULL);
    scene_expect(s, "a ship\n");
    scene_asked(s, 0, "GET /v1/fine_tuning/jobs/ftjob-a HTTP/1.1");
    assert_non_null(strstr(s->server.asked[1].body, "\"model\":\"ft:x\""));
    scene_reply(s, 200, "{\"fine_tuned_model\":null,\"status\":\"running\"}");
    scene_run(s, cmd_sample, "--job", "ftjob-a", "--prompt", "p", NULL);
    assert_int_equal(s->rc, -ERR_BAD_STATE);
    assert_string_equal(s->err.text, "ftjob-a is running: it has no tuned model");
    assert_int_equal(s->server.asked_count, 3); /* no question was asked */
}

static void test_mistakes(void **state)
{
    struct scene *s = *state;
    scene_run(s, cmd_sample, "--model", "m", NULL);
    scene_expect_usage(s, "--prompt TEXT is missing");
    scene_run(s, cmd_sample, "--prompt", "p", NULL);
    scene_expect_usage(s, "one of --job JOB and --model NAME");
    scene_run(s, cmd_sample, "--prompt", "p", "--job", "a", "--model", "b", NULL);
    scene_expect_usage(s, "one of --job JOB and --model NAME");
    scene_run(s, cmd_sample, "--prompt", "p", "--model", "m", "more", NULL);
    scene_expect_usage(s, "unexpected argument more");
    scene_run(s, cmd_sample, "--prompt", "\xff", "--model", "m", NULL);
    scene_expect_usage(s, "--prompt: not UTF-8");
    scene_run(s, cmd_sample, "--prompt", "p", "--model", "\xff", NULL);
    scene_expect_usage(s, "--model: not UTF-8");
    scene_run(s, cmd_sample, "--prompt", "p", "--model", "m", "--max-tokens", "many", NULL);
    scene_expect_usage(s, "--max-tokens many: write a number");
    assert_int_equal(s->server.asked_count, 0);
    scene_reply(s, 200, "{\"choices\":[]}");
    scene_run(s, cmd_sample, "--prompt", "p", "--model", "m", NULL);
    assert_int_equal(s->rc, -ERR_PROTOCOL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {SCENE_TEST(test_base_model), SCENE_TEST(test_job),
                                       SCENE_TEST(test_mistakes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
