/* client: what goes over the wire, what becomes of every kind of answer, files that appear whole or
 * not, and streams that are cut and taken up again. */
#include "clients/cli/client.h"

#include "tests/lib/fake_server.h"

#include <sys/stat.h>

static void test_requests(void **state)
{
    struct scene *s = *state;
    CLEANUP(json_unref) json_t *answer = NULL;
    CLEANUP(json_unref) json_t *body = json_pack("{s:s}", "a", "\xc3\xa4");
    scene_put(s, "admin.token", "secret\n");
    (void)setenv("http_proxy", "http://127.0.0.1:1", 1); /* not for this machine */
    scene_client(s);
    for (int i = 0; i < 4; i++)
        scene_reply(s, 200, "{\"n\":7}");
    assert_int_equal(client_json(s->client, NULL, "/v1/x?y=1", NULL, &answer, &s->err), 0);
    assert_int_equal(json_integer_value(json_object_get(answer, "n")), 7);
    json_unref(&answer);
    assert_int_equal(client_json(s->client, "POST", "/v1/x", body, &answer, &s->err), 0);
    json_unref(&answer);
    assert_int_equal(client_json(s->client, "POST", "/v1/x", NULL, &answer, &s->err), 0);
    json_unref(&answer);
    assert_int_equal(client_json(s->client, "DELETE", "/v1/x", NULL, &answer, &s->err), 0);
    (void)unsetenv("http_proxy");
    scene_asked(s, 0, "GET /v1/x?y=1 HTTP/1.1");
    assert_non_null(strstr(s->server.asked[0].bytes, "Authorization: Bearer secret\r\n"));
    assert_non_null(strstr(s->server.asked[0].bytes, "User-Agent: ithaca/" ITHACA_VERSION "\r\n"));
    scene_asked(s, 1, "POST /v1/x HTTP/1.1");
    assert_non_null(strstr(s->server.asked[1].bytes, "Content-Type: application/json\r\n"));
    assert_string_equal(s->server.asked[1].body, "{\"a\":\"\xc3\xa4\"}");
    assert_null(strstr(s->server.asked[1].bytes, "Expect:"));
    scene_asked(s, 2, "POST /v1/x HTTP/1.1");
    assert_string_equal(s->server.asked[2].body, "");
    scene_asked(s, 3, "DELETE /v1/x HTTP/1.1");
}

static void test_refusals(void **state)
{
    struct scene *s = *state;
    static const struct {
        int status;
        const char *body;
        enum err_code code;
        const char *field, *says;
    } answers[] = {
        {400,
         "{\"error\":{\"message\":\"no such field\",\"param\":\"ithaca.x\",\"code\":"
         "\"unknown_parameter\"}}",
         ERR_UNKNOWN_FIELD, "ithaca.x", "no such field"},
        {404, "{\"error\":{\"message\":\"none\",\"param\":null,\"code\":\"not_found\"}}",
         ERR_NOT_FOUND, "", "none"},
        {502, "{\"error\":{\"message\":\"m\",\"code\":\"of another server\"}}", ERR_UNAVAILABLE, "",
         "m"},
        {503, "<html>bad gateway</html>", ERR_UNAVAILABLE, "", "503"},
        {418, "", ERR_BAD_REQUEST, "", "418"},
        {401, "{}", ERR_AUTH, "", "ITHACA_TOKEN"}, /* we have none */
        {200, "not JSON", ERR_BAD_JSON, "", "answer"},
        {200, "", ERR_BAD_JSON, "", "answer"},
    };
    scene_client(s);
    for (size_t i = 0; i < sizeof answers / sizeof answers[0]; i++) {
        json_t *answer = NULL;
        scene_reply(s, answers[i].status, answers[i].body);
        int rc = client_json(s->client, NULL, "/v1/x", NULL, &answer, &s->err);
        if (rc != -(int)answers[i].code || strstr(s->err.text, answers[i].says) == NULL)
            fail_msg("%zu: %d %s", i, rc, s->err.text);
        assert_string_equal(s->err.field, answers[i].field);
        assert_null(answer);
        s->err = (struct err){.code = ERR_NONE};
    }
}

static void test_nobody_there(void **state)
{
    struct scene *s = *state;
    json_t *answer = NULL;
    scene_client(s);
    assert_int_equal(client_json(s->client, NULL, "/v1/x", NULL, &answer, &s->err),
                     -ERR_UNAVAILABLE); /* it hangs up */
    client_free(s->client);
    assert_int_equal(client_new("http://127.0.0.1:1", s->folder, NULL, &s->client, &s->err), 0);
    assert_int_equal(client_json(s->client, NULL, "/v1/x", NULL, &answer, &s->err),
                     -ERR_UNAVAILABLE);
    assert_non_null(strstr(s->err.text, "http://127.0.0.1:1"));
    assert_non_null(strstr(s->err.text, "is ithacad running?"));
    client_free(s->client);
    s->client = NULL;
    client_free(NULL);
}

static void test_escape(void **state)
{
    static const char *const words[][2] = {{"ftjob-Ab_9.z~", "ftjob-Ab_9.z~"},
                                           {"a/b?c#d", "a%2Fb%3Fc%23d"},
                                           {"../x", "..%2Fx"},
                                           {"\xc3\xa4 %", "%C3%A4%20%25"},
                                           {"", ""}};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        CLEANUP(mem_free_ptr) char *escaped = client_escape(words[i][0]);
        assert_string_equal(escaped, words[i][1]);
    }
}

#define CUT "HTTP/1.1 200 X\r\nContent-Length: 100\r\n\r\nonly this"

static void test_files(void **state)
{
    struct scene *s = *state;
    CLEANUP(mem_free_ptr) char *path = scene_path(s, "got");
    CLEANUP(mem_free_ptr) char *link = scene_path(s, "link");
    scene_client(s);
    scene_reply(s, 200, "the bytes");
    assert_int_equal(client_file(s->client, "/v1/f", path, &s->err), 0);
    CLEANUP(mem_free_ptr) char *first = scene_text(s, "got");
    assert_string_equal(first, "the bytes");
    scene_reply(s, 404, "{\"error\":{\"message\":\"none\",\"code\":\"not_found\"}}");
    assert_int_equal(client_file(s->client, "/v1/f", path, &s->err), -ERR_NOT_FOUND);
    scene_raw(s, CUT, sizeof CUT - 1);
    assert_int_equal(client_file(s->client, "/v1/f", path, &s->err), -ERR_UNAVAILABLE);
    CLEANUP(mem_free_ptr) char *still = scene_text(s, "got");
    assert_string_equal(still, "the bytes"); /* as it was */
    assert_int_equal(symlink(path, link), 0);
    scene_reply(s, 200, "new");
    assert_int_equal(client_file(s->client, "/v1/f", link, &s->err), 0);
    struct stat info;
    assert_int_equal(lstat(link, &info), 0);
    assert_true(S_ISLNK(info.st_mode)); /* it stays a link */
    CLEANUP(mem_free_ptr) char *behind = scene_text(s, "got");
    assert_string_equal(behind, "new");
    scene_reply(s, 200, "gone");
    assert_int_equal(client_file(s->client, "/v1/f", "/dev/null", &s->err), 0);
    assert_int_equal(stat("/dev/null", &info), 0);
    assert_true(S_ISCHR(info.st_mode));
    scene_reply(s, 200, "no room");
    assert_int_equal(client_file(s->client, "/v1/f", "/dev/full", &s->err), -ERR_NO_SPACE);
    CLEANUP(mem_free_ptr) char *absent = scene_path(s, "absent/got");
    assert_int_not_equal(client_file(s->client, "/v1/f", absent, &s->err), 0);
    assert_int_equal(s->server.asked_count, 6); /* it was not asked for the last */
}

static void test_upload(void **state)
{
    struct scene *s = *state;
    json_t *answer = NULL;
    CLEANUP(mem_free_ptr) char *path = scene_path(s, "train.jsonl");
    CLEANUP(mem_free_ptr) char *absent = scene_path(s, "absent");
    scene_put(s, "train.jsonl", "{\"line\":1}\n");
    scene_client(s);
    scene_reply(s, 200, "{\"id\":\"file-1\"}");
    assert_int_equal(client_upload(s->client, path, "fine-tune", &answer, &s->err), 0);
    assert_string_equal(json_string_value(json_object_get(answer, "id")), "file-1");
    json_unref(&answer);
    scene_asked(s, 0, "POST /v1/files HTTP/1.1");
    const char *bytes = s->server.asked[0].bytes;
    assert_non_null(strstr(bytes, "Content-Type: multipart/form-data; boundary="));
    assert_non_null(strstr(bytes, "name=\"file\"; filename=\"train.jsonl\""));
    assert_non_null(strstr(bytes, "\r\n\r\n{\"line\":1}\n\r\n"));
    assert_non_null(strstr(bytes, "name=\"purpose\"\r\n\r\nfine-tune\r\n"));
    assert_int_equal(client_upload(s->client, absent, "fine-tune", &answer, &s->err),
                     -ERR_NOT_FOUND);
    assert_int_equal(client_upload(s->client, s->folder, "fine-tune", &answer, &s->err),
                     -ERR_INVALID_VALUE);
    assert_int_equal(s->server.asked_count, 1);
}

/* ---- streams ---- */

struct heard {
    int count;
    int stop_at; /* the callback ends the stream then */
    char text[1024];
};

static bool hear(void *context, const char *event, const char *id, const json_t *data)
{
    struct heard *heard = context;
    size_t used = strlen(heard->text);
    CLEANUP(buf_done) struct buf json;
    struct err err;
    buf_init(&json, 4096);
    assert_int_equal(json_print(data, &json, &err), 0);
    (void)snprintf(heard->text + used, sizeof heard->text - used, "%s/%s/%s ", event, id,
                   buf_str(&json));
    return ++heard->count < heard->stop_at;
}

#define STREAM "HTTP/1.1 200 X\r\nContent-Type: text/event-stream\r\n\r\n"

static void test_stream(void **state)
{
    struct scene *s = *state;
    struct heard heard = {.stop_at = 5};
    static const char text[] =
        STREAM ": a comment\n\nretry: 2000\nid: 1-0\n\n"
               "event: state\ndata: {\"a\":1}\n\n"                            /* no id of its own */
               "event: event\r\nid: 2-0\r\ndata: {\"b\":\r\ndata: 2}\r\n\r\n" /* CRLF, two lines */
               "data:{\"c\":3}\n\n"                       /* no space, no name */
               "event\nwhat: ever\nid: 3-1\nevent: x\n\n" /* no data: no event */
               "event: y\ndata: not JSON\n\n"
               "event: z\ndata: {\"d\":4}\n\nid: 4-1\nevent: end\ndata: {\"e\":5}\n\n"
               "event: after\ndata: {}\n\n";
    scene_client(s);
    scene_raw(s, text, sizeof text - 1);
    assert_int_equal(client_stream(s->client, "/v1/s", hear, &heard, &s->err), 0);
    assert_string_equal(heard.text, "state/1-0/{\"a\":1} event/2-0/{\"b\":2} message/2-0/{\"c\":3} "
                                    "z/3-1/{\"d\":4} end/4-1/{\"e\":5} ");
}

/* The connection is lost in the middle of a message: it is sent again, from the last id. */
static void test_stream_is_taken_up_again(void **state)
{
    struct scene *s = *state;
    struct heard heard = {.stop_at = 2};
    static const char first[] = STREAM "id: 5-2\ndata: 1\n\nid: 6-2\nevent: x\nda";
    static const char second[] = STREAM "id: 6-2\ndata: 2\n\n";
    scene_client(s);
    scene_raw(s, first, sizeof first - 1);
    scene_raw(s, second, sizeof second - 1);
    assert_int_equal(client_stream(s->client, "/v1/s", hear, &heard, &s->err), 0);
    assert_string_equal(heard.text, "message/5-2/1 message/6-2/2 ");
    assert_null(strstr(s->server.asked[0].bytes, "Last-Event-ID"));
    assert_non_null(strstr(s->server.asked[1].bytes, "Last-Event-ID: 5-2\r\n"));
}

static void test_stream_is_refused(void **state)
{
    struct scene *s = *state;
    struct heard heard = {.stop_at = 1};
    scene_client(s);
    scene_reply(s, 404, "{\"error\":{\"message\":\"none\",\"code\":\"not_found\"}}");
    assert_int_equal(client_stream(s->client, "/v1/s", hear, &heard, &s->err), -ERR_NOT_FOUND);
    assert_int_equal(heard.count, 0);
    static char large[(2 << 20) + sizeof STREAM]; /* the server may still be sending at the end */
    memset(large, 'x', sizeof large - 1);
    memcpy(large, STREAM "data: ", sizeof STREAM - 1 + 6);
    scene_raw(s, large, sizeof large - 1); /* an event without end */
    assert_int_equal(client_stream(s->client, "/v1/s", hear, &heard, &s->err), -ERR_TOO_LARGE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SCENE_TEST(test_requests),
        SCENE_TEST(test_refusals),
        SCENE_TEST(test_nobody_there),
        cmocka_unit_test(test_escape),
        SCENE_TEST(test_files),
        SCENE_TEST(test_upload),
        SCENE_TEST(test_stream),
        SCENE_TEST(test_stream_is_taken_up_again),
        SCENE_TEST(test_stream_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
