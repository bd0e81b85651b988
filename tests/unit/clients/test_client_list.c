/* client_list: pages become one list, whatever a page holds; what the commands print of it. */
#include "tests/lib/fake_server.h"

#define TOKEN(id) "{\"id\":\"" id "\",\"prefix\":\"p\",\"user\":\"ann\",\"created_at\":86400}"

static void reply_pages(struct scene *s)
{
    scene_reply(s, 200,
                "{\"object\":\"list\",\"data\":[" TOKEN("a/1") "," TOKEN(
                    "b") "],\"first_id\":"
                         "\"a/1\",\"last_id\":\"b/2\",\"has_more\":true}");
    scene_reply(s, 200, "{\"data\":[" TOKEN("c") "],\"last_id\":\"c\",\"has_more\":true}");
    scene_reply(s, 200, "{\"data\":[],\"last_id\":null,\"has_more\":false}");
}

static void test_pages(void **state)
{
    struct scene *s = *state;
    CLEANUP(json_unref) json_t *list = NULL;
    scene_client(s);
    reply_pages(s);
    assert_int_equal(client_list(s->client, "/v1/tokens", &list, &s->err), 0);
    const json_t *data = json_object_get(list, "data");
    assert_int_equal(json_array_size(data), 3);
    assert_string_equal(json_string_value(json_object_get(json_array_get(data, 2), "id")), "c");
    assert_string_equal(json_string_value(json_object_get(list, "first_id")), "a/1");
    assert_true(json_is_false(json_object_get(list, "has_more")));
    scene_asked(s, 0, "GET /v1/tokens?limit=10000 HTTP/1.1");
    scene_asked(s, 1, "GET /v1/tokens?limit=10000&after=b%2F2 HTTP/1.1");
    scene_asked(s, 2, "GET /v1/tokens?limit=10000&after=c HTTP/1.1");
}

/* Every list that a command prints whole. */
static void test_commands(void **state)
{
    struct scene *s = *state;
    static const struct {
        cli_run_fn *command;
        const char *verb;
    } rows[] = {{cmd_tokens, "list"}, {cmd_files, "ls"}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        reply_pages(s);
        scene_run(s, rows[i].command, rows[i].verb, NULL);
        assert_int_equal(s->rc, 0);
        const char *third = strstr(s->out, "\nc ");
        assert_memory_equal(s->out, "a/1 ", 4);
        assert_non_null(strstr(s->out, "\nb "));
        assert_non_null(third);
    }
}

static void test_answers_that_are_no_lists(void **state)
{
    struct scene *s = *state;
    json_t *list = NULL;
    scene_client(s);
    scene_reply(s, 200, "{\"data\":[],\"last_id\":\"b\",\"has_more\":true}");
    scene_reply(s, 200, "{\"data\":7}");
    assert_int_equal(client_list(s->client, "/v1/tokens", &list, &s->err), -ERR_PROTOCOL);
    scene_reply(s, 200, "{\"data\":[],\"has_more\":true}"); /* and no way to ask for more */
    assert_int_equal(client_list(s->client, "/v1/tokens", &list, &s->err), 0);
    json_unref(&list);
    scene_reply(s, 200, "{\"data\":[],\"last_id\":\"b\",\"has_more\":true}");
    scene_reply(s, 503, "{}");
    assert_int_equal(client_list(s->client, "/v1/tokens", &list, &s->err), -ERR_UNAVAILABLE);
    assert_null(list);
}

int main(void)
{
    const struct CMUnitTest tests[] = {SCENE_TEST(test_pages), SCENE_TEST(test_commands),
                                       SCENE_TEST(test_answers_that_are_no_lists)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
