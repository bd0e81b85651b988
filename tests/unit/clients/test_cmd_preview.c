/* cmd_preview: what is asked, and how rows are printed. */
#include "tests/lib/fake_server.h"

static void test_rows(void **state)
{
    struct scene *s = *state;
    scene_reply(s, 200,
                "{\"template\":\"qwen3\",\"rows\":[{\"line\":1,\"kept\":true,\"roles\":[\"user\","
                "\"assistant\"],\"tokens\":9,"
                "\"trained_tokens\":2,\"used_tokens\":8,\"sequences\":1,\"runs\":[{\"trained\":"
                "false,\"tokens\":7,\"text\":\"a\\nb\\u0001\"},{\"trained\":true,\"tokens\":2,"
                "\"text\":\"c\"}]},{\"line\":2,\"kept\":false,\"code\":\"invalid_json\","
                "\"message\":\"why\"}]}");
    scene_run(s, cmd_preview, "--model", "m", "--training-file", "file-a", "--rows", "2", "--set",
              "seq_len=8", NULL);
    scene_expect(s, "template qwen3; + is trained\n"
                    "line 1: user, assistant; 9 tokens, 2 trained, cut at 8\n"
                    "         7  a\\nb\\x01\n"
                    "  +      2  c\n"
                    "line 2: not used: invalid_json: why\n");
    scene_asked(s, 0, "POST /v1/fine_tuning/preview HTTP/1.1");
    assert_non_null(strstr(s->server.asked[0].body, "\"rows\":2"));
    assert_non_null(strstr(s->server.asked[0].body, "\"training_file\":\"file-a\""));
    scene_reply(s, 200,
                "{\"template\":\"\",\"more\":true,\"rows\":[{\"line\":1,\"roles\":[],"
                "\"tokens\":1,\"used_tokens\":1,\"runs\":[]}]}");
    scene_run(s, cmd_preview, "--model", "m", "--training-file", "file-a", NULL);
    scene_expect(s, "template none; + is trained\nline 1: 1 tokens, 0 trained\n");
    s->json = true;
    scene_reply(s, 200, "{\"rows\":[]}");
    scene_run(s, cmd_preview, "--model", "m", "--training-file", "file-a", NULL);
    scene_expect(s, "{\n  \"rows\": []\n}\n");
}

static void test_mistakes(void **state)
{
    struct scene *s = *state;
    scene_run(s, cmd_preview, "--model", "m", NULL);
    scene_expect_usage(s, "--training-file FILE is missing");
    scene_run(s, cmd_preview, "--model", "m", "--training-file", "file-a", "--rows", "x", NULL);
    scene_expect_usage(s, "--rows x: write a number");
    scene_reply(s, 200, "{}");
    scene_run(s, cmd_preview, "--model", "m", "--training-file", "file-a", NULL);
    assert_int_equal(s->rc, -ERR_PROTOCOL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {SCENE_TEST(test_rows), SCENE_TEST(test_mistakes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
