/* cmd_files: each verb's request and output, what is missing, and what counts as a file or an id.
 */
#include "tests/lib/fake_server.h"

#define ONE "{\"id\":\"file-1\",\"bytes\":12,\"status\":\"processed\",\"filename\":\"a b.jsonl\"}"
#define ROW "file-1          12 bytes  processed  a b.jsonl\n"

static void test_verbs(void **state)
{
    struct scene *s = *state;
    CLEANUP(mem_free_ptr) char *path = scene_path(s, "train.jsonl");
    CLEANUP(mem_free_ptr) char *to = scene_path(s, "got");
    scene_put(s, "train.jsonl", "{}\n");
    scene_reply(s, 200, ONE);
    scene_run(s, cmd_files, "upload", path, NULL);
    scene_expect(s, "file-1\n");
    assert_non_null(strstr(s->server.asked[0].body, "fine-tune"));
    scene_reply(s, 200, "{\"data\":[" ONE "," ONE "]}");
    scene_run(s, cmd_files, "ls", NULL);
    scene_expect(s, ROW ROW);
    scene_reply(s, 200, ONE);
    scene_run(s, cmd_files, "show", "file-1", NULL);
    scene_expect(s, ROW);
    scene_asked(s, 2, "GET /v1/files/file-1 HTTP/1.1");
    scene_reply(s, 200, "the bytes");
    scene_run(s, cmd_files, "get", "a/b", NULL);
    scene_expect(s, "the bytes");
    scene_asked(s, 3, "GET /v1/files/a%2Fb/content HTTP/1.1"); /* one segment, whatever it holds */
    scene_reply(s, 200, "the bytes");
    scene_run(s, cmd_files, "get", "file-1", "--output", to, NULL);
    scene_expect(s, "");
    CLEANUP(mem_free_ptr) char *got = scene_text(s, "got");
    assert_string_equal(got, "the bytes");
    scene_reply(s, 200, "{\"id\":\"file-1\",\"deleted\":true}");
    scene_run(s, cmd_files, "rm", "file-1", NULL);
    scene_expect(s, "deleted file-1\n");
    scene_asked(s, 5, "DELETE /v1/files/file-1 HTTP/1.1");
}

static void test_json(void **state)
{
    struct scene *s = *state;
    s->json = true;
    scene_reply(s, 200, "{\"data\":[],\"has_more\":false}");
    scene_run(s, cmd_files, "ls", NULL);
    scene_expect(s, "{\n  \"data\": [],\n  \"has_more\": false\n}\n");
    scene_reply(s, 200, "{\"deleted\":true}");
    scene_run(s, cmd_files, "rm", "file-1", NULL);
    scene_expect(s, "{\n  \"deleted\": true\n}\n");
}

static void test_mistakes(void **state)
{
    struct scene *s = *state;
    scene_run(s, cmd_files, NULL);
    scene_expect_usage(s, "what to do");
    scene_run(s, cmd_files, "copy", "a", NULL);
    scene_expect_usage(s, "unknown verb copy");
    static const char *const verbs[] = {"show", "get", "rm"};
    for (size_t i = 0; i < 3; i++) {
        scene_run(s, cmd_files, verbs[i], NULL);
        scene_expect_usage(s, "the file's id is missing");
        scene_run(s, cmd_files, verbs[i], "a", "b", NULL);
        scene_expect_usage(s, "unexpected argument b");
    }
    scene_run(s, cmd_files, "upload", NULL);
    scene_expect_usage(s, "the file to upload is missing");
    scene_run(s, cmd_files, "ls", "--all", NULL);
    scene_expect_usage(s, "unknown option --all");
    scene_run(s, cmd_files, "get", "a", "--output", NULL);
    scene_expect_usage(s, "--output needs a value");
    assert_int_equal(s->server.asked_count, 0); /* nothing was done */
    scene_reply(s, 404, "{\"error\":{\"message\":\"no file\",\"code\":\"not_found\"}}");
    scene_run(s, cmd_files, "show", "file-9", NULL);
    assert_int_equal(s->rc, -ERR_NOT_FOUND);
    assert_string_equal(s->err.text, "no file");
}

/* What a job's file may be: a path that is there, or an id. */
static void test_resolve(void **state)
{
    struct scene *s = *state;
    struct cli cli = {.url = s->url, .data_dir = s->folder};
    CLEANUP(mem_free_ptr) char *path = scene_path(s, "train.jsonl");
    CLEANUP(mem_free_ptr) char *id = NULL;
    assert_int_equal(cmd_files_resolve(&cli, "file-7", &id, &s->err), 0);
    assert_string_equal(id, "file-7");
    mem_free(id);
    id = NULL;
    assert_int_equal(cmd_files_resolve(&cli, path, &id, &s->err), -ERR_NOT_FOUND);
    assert_non_null(strstr(s->err.text, path));
    assert_int_equal(s->server.asked_count, 0);
    scene_put(s, "train.jsonl", "{}\n");
    scene_reply(s, 200, ONE);
    assert_int_equal(cmd_files_resolve(&cli, path, &id, &s->err), 0);
    assert_string_equal(id, "file-1");
    mem_free(id);
    id = NULL;
    scene_reply(s, 200, "{\"no\":\"id\"}");
    assert_int_equal(cmd_files_resolve(&cli, path, &id, &s->err), -ERR_PROTOCOL);
    client_free(cli.client);
}

int main(void)
{
    const struct CMUnitTest tests[] = {SCENE_TEST(test_verbs), SCENE_TEST(test_json),
                                       SCENE_TEST(test_mistakes), SCENE_TEST(test_resolve)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
