/* cmd_completion: what the daemon is asked for each kind of thing; errors are not said; scripts. */
#include "tests/lib/fake_server.h"

#define LIST "{\"data\":[{\"id\":\"one\",\"status\":\"running\"},{\"id\":\"o\\tdd\"},{\"id\":7}]}"

static void test_kinds(void **state)
{
    struct scene *s = *state;
    static const struct {
        const char *words[4], *asked;
    } rows[] = {
        {{"show", "", NULL}, "GET /v1/fine_tuning/jobs?limit=200 HTTP/1.1"},
        {{"sample", "--model", "", NULL}, "GET /v1/models HTTP/1.1"},
        {{"gpus", "drain", "", NULL}, "GET /v1/gpus HTTP/1.1"},
        {{"files", "get", "", NULL}, "GET /v1/files?limit=200 HTTP/1.1"},
        {{"tokens", "revoke", "", NULL}, "GET /v1/tokens?limit=200 HTTP/1.1"},
        {{"experiment", "show", "", NULL}, "GET /v1/experiments?limit=200 HTTP/1.1"},
        {{"resume", "a b", "--checkpoint", ""},
         "GET /v1/fine_tuning/jobs/a%20b/checkpoints?limit=200 HTTP/1.1"},
    };
    for (int i = 0; i < (int)(sizeof rows / sizeof rows[0]); i++) {
        scene_reply(s, 200, LIST);
        scene_run(s, cmd_complete, "--", rows[i].words[0], rows[i].words[1], rows[i].words[2],
                  rows[i].words[3], NULL);
        scene_expect(s, i == 0 ? "one\trunning\n" : "one\t\n"); /* a tab would be taken for ours */
        scene_asked(s, i, rows[i].asked);
    }
}

/* Nobody reads an error while pressing a key. */
static void test_silence(void **state)
{
    struct scene *s = *state;
    scene_reply(s, 500, "{\"error\":{\"message\":\"no\",\"code\":\"internal\"}}");
    scene_run(s, cmd_complete, "--", "show", "", NULL);
    scene_expect(s, "");
    scene_reply(s, 200, "{\"data\":7}");
    scene_run(s, cmd_complete, "--", "show", "", NULL);
    scene_expect(s, "");
    scene_run(s, cmd_complete, "--", "--url", "http://127.0.0.1:1", "show", "", NULL);
    scene_expect(s, "");
    assert_string_equal(s->errors, "");
    assert_int_equal(s->server.asked_count, 2);
    scene_run(s, cmd_complete, "--", "resume", "--checkpoint", "", NULL); /* of which job? */
    scene_expect(s, "");
    assert_int_equal(s->server.asked_count, 2);
}

/* Whatever row of the table is asked for values: none without a list to ask for. */
static void test_every_row(void **state)
{
    struct scene *s = *state;
    const char *command = NULL;
    s->server.always = true;
    scene_reply(s, 200, LIST);
    for (const struct command_row *row = command_rows; row->kind != COMMAND_KIND_END; row++) {
        command = row->kind == COMMAND_KIND_COMMAND ? row->name : command;
        if (command == NULL || row->kind == COMMAND_KIND_NOTE || row->kind == COMMAND_KIND_GROUP)
            continue;
        if (row->kind == COMMAND_KIND_COMMAND)
            scene_run(s, cmd_complete, "--", command, "", NULL);
        else
            scene_run(s, cmd_complete, "--", command, row->name, "", NULL);
        assert_int_equal(s->rc, 0);
    }
}

static void test_scripts(void **state)
{
    struct scene *s = *state;
    scene_run(s, cmd_completion, "bash", NULL);
    assert_non_null(strstr(s->out, "complete -F _ithaca ithaca\n"));
    scene_run(s, cmd_completion, "zsh", NULL);
    assert_memory_equal(s->out, "#compdef ithaca\n", 16);
    scene_run(s, cmd_completion, "fish", NULL);
    assert_non_null(strstr(s->out, "complete -c ithaca "));
    scene_run(s, cmd_completion, "tcsh", NULL);
    scene_expect_usage(s, "unknown verb tcsh; use one of bash, zsh, fish");
    scene_run(s, cmd_completion, NULL);
    scene_expect_usage(s, "what to do is missing: one of bash, zsh, fish");
}

int main(void)
{
    const struct CMUnitTest tests[] = {SCENE_TEST(test_kinds), SCENE_TEST(test_silence),
                                       SCENE_TEST(test_every_row), SCENE_TEST(test_scripts)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
