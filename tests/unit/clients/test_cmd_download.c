/* cmd_download: a folder that appears when it is whole, and not at all otherwise; names that a
 * server must not choose. */
#include "tests/lib/fake_server.h"

#define LIST(a, b) "{\"data\":[{\"id\":\"" a "\",\"bytes\":5},{\"id\":\"" b "\",\"bytes\":3}]}"

static void test_model(void **state)
{
    struct scene *s = *state;
    CLEANUP(mem_free_ptr) char *to = scene_path(s, "model");
    CLEANUP(mem_free_ptr) char *left = scene_path(s, "model.part");
    CLEANUP(mem_free_ptr) char *stale = io_join(left, "stale");
    assert_int_equal(io_make_dirs(left, 0700, &s->err), 0); /* of a download that was killed */
    assert_int_equal(io_write_file(stale, "x", 1, 0600, &s->err), 0);
    scene_reply(s, 200, LIST("config.json", "a b.bin"));
    scene_reply(s, 200, "12345");
    scene_reply(s, 200, "abc");
    scene_run(s, cmd_download, "ftjob-a", "--output", to, NULL);
    assert_int_equal(s->rc, 0);
    assert_non_null(strstr(s->out, "2 files"));
    assert_non_null(strstr(s->out, to));
    scene_asked(s, 0, "GET /v1/fine_tuning/jobs/ftjob-a/model/files? HTTP/1.1");
    scene_asked(s, 1, "GET /v1/fine_tuning/jobs/ftjob-a/model/content?file=config.json HTTP/1.1");
    scene_asked(s, 2, "GET /v1/fine_tuning/jobs/ftjob-a/model/content?file=a%20b.bin HTTP/1.1");
    CLEANUP(mem_free_ptr) char *first = scene_text(s, "model/config.json");
    CLEANUP(mem_free_ptr) char *second = scene_text(s, "model/a b.bin");
    assert_string_equal(first, "12345");
    assert_string_equal(second, "abc");
    assert_false(io_exists(left));
    CLEANUP(mem_free_ptr) char *stale_there = io_join(to, "stale");
    assert_false(io_exists(stale_there));
}

static void test_folder_in_it(void **state)
{
    struct scene *s = *state;
    CLEANUP(mem_free_ptr) char *to = scene_path(s, "model");
    scene_reply(s, 200, LIST("config.json", "adapter/adapter_config.json"));
    scene_reply(s, 200, "12345");
    scene_reply(s, 200, "abc");
    scene_run(s, cmd_download, "ftjob-a", "--output", to, NULL);
    assert_int_equal(s->rc, 0);
    scene_asked(s, 2,
                "GET /v1/fine_tuning/jobs/ftjob-a/model/content?file=adapter%2Fadapter_config.json "
                "HTTP/1.1");
    CLEANUP(mem_free_ptr) char *second = scene_text(s, "model/adapter/adapter_config.json");
    assert_string_equal(second, "abc");
    assert_non_null(strstr(s->out, "AutoModelForCausalLM"));
    assert_non_null(strstr(s->out, "model/adapter\")"));
    CLEANUP(mem_free_ptr) char *alone = scene_path(s, "alone");
    scene_reply(s, 200, LIST("tokenizer.json", "adapter_config.json"));
    scene_reply(s, 200, "12345");
    scene_reply(s, 200, "abc");
    scene_run(s, cmd_download, "ftjob-a", "--output", alone, NULL);
    assert_null(strstr(s->out, "AutoModelForCausalLM"));
    assert_non_null(strstr(s->out, "PeftModel"));
}

static void test_checkpoint(void **state)
{
    struct scene *s = *state;
    CLEANUP(mem_free_ptr) char *to = scene_path(s, "model");
    scene_reply(s, 200, "{\"data\":[{\"id\":\"w\",\"bytes\":1}]}");
    scene_reply(s, 200, "x");
    s->json = true;
    scene_run(s, cmd_download, "--checkpoint=ftckpt_a_3", "ftjob-a", "--output", to, NULL);
    assert_int_equal(s->rc, 0);
    assert_non_null(strstr(s->out, "\"id\": \"w\""));
    scene_asked(s, 0,
                "GET /v1/fine_tuning/jobs/ftjob-a/model/files?checkpoint=ftckpt_a_3& HTTP/1.1");
    scene_asked(s, 1,
                "GET /v1/fine_tuning/jobs/ftjob-a/model/content?checkpoint=ftckpt_a_3&file=w "
                "HTTP/1.1");
}

static void expect_nothing(struct scene *s, enum err_code code)
{
    CLEANUP(mem_free_ptr) char *to = scene_path(s, "model");
    CLEANUP(mem_free_ptr) char *part = scene_path(s, "model.part");
    scene_run(s, cmd_download, "ftjob-a", "--output", to, NULL);
    if (s->rc != -(int)code)
        fail_msg("%d %s", s->rc, s->err.text);
    assert_false(io_exists(to));
    assert_false(io_exists(part));
}

static void test_failures_leave_nothing(void **state)
{
    struct scene *s = *state;
    scene_reply(s, 400, "{\"error\":{\"message\":\"no model\",\"code\":\"invalid_state\"}}");
    expect_nothing(s, ERR_BAD_STATE);
    scene_reply(s, 200, LIST("config.json", "b"));
    scene_reply(s, 200, "12345");
    scene_reply(s, 404, "{\"error\":{\"message\":\"gone\",\"code\":\"not_found\"}}");
    expect_nothing(s, ERR_NOT_FOUND); /* in the middle */
    scene_reply(s, 200, LIST("config.json", "b"));
    scene_reply(s, 200, "1234"); /* one byte short */
    expect_nothing(s, ERR_IO);
    assert_non_null(strstr(s->err.text, "4 bytes came, 5 were announced"));
}

static void test_names_stay_in_the_folder(void **state)
{
    struct scene *s = *state;
    static const char *const lists[] = {
        LIST("../evil", "b"),   LIST("/etc/evil", "b"),       LIST("..", "b"), LIST("", "b"),
        LIST("a/../evil", "b"), LIST("a/b/c", "b"),           LIST("a/", "b"), LIST("a/.b", "b"),
        LIST(".bashrc", "b"),   "{\"data\":[{\"bytes\":1}]}", "{\"data\":[7]}"};
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++) {
        scene_reply(s, 200, lists[i]);
        expect_nothing(s, ERR_PROTOCOL);
    }
    CLEANUP(mem_free_ptr) char *evil = scene_path(s, "evil");
    assert_false(io_exists(evil));
}

static void test_mistakes(void **state)
{
    struct scene *s = *state;
    scene_run(s, cmd_download, "ftjob-a", NULL);
    scene_expect_usage(s, "--output DIR is missing");
    scene_run(s, cmd_download, "--output", "x", NULL);
    scene_expect_usage(s, "the job's id is missing");
    scene_run(s, cmd_download, "ftjob-a", "--output", s->folder, NULL);
    scene_expect_usage(s, "it is there already");
    assert_int_equal(s->server.asked_count, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SCENE_TEST(test_model),
        SCENE_TEST(test_folder_in_it),
        SCENE_TEST(test_checkpoint),
        SCENE_TEST(test_failures_leave_nothing),
        SCENE_TEST(test_names_stay_in_the_folder),
        SCENE_TEST(test_mistakes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
