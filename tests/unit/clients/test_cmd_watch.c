/* cmd_watch: what a stream shows, and what a job's end becomes: a status of its own. */
#include "tests/lib/fake_server.h"

#define STREAM "HTTP/1.1 200 X\r\n\r\n"
#define END "event: end\nid: 9-9\ndata: {}\n\n"
#define BEFORE "{\"id\":\"ftjob-a\",\"ithaca\":{\"steps_total\":10}}"

/* Watches a job whose stream and last state are these. */
static void watch(struct scene *s, const char *stream, const char *after)
{
    CLEANUP(mem_free_ptr) char *bytes = mem_printf(STREAM "%s" END, stream);
    scene_reply(s, 200, BEFORE);
    scene_raw(s, bytes, strlen(bytes));
    scene_reply(s, 200, after);
    scene_run(s, cmd_watch, "ftjob-a", NULL);
}

static void test_ends(void **state)
{
    struct scene *s = *state;
    static const struct {
        const char *after;
        enum err_code code;
        const char *says;
    } ends[] = {
        {"{\"id\":\"ftjob-a\",\"status\":\"cancelled\"}", ERR_CANCELLED, "was cancelled"},
        {"{\"id\":\"ftjob-a\",\"status\":\"failed\",\"error\":{\"code\":\"nonfinite\",\"message\":"
         "\"step 3\"}}",
         ERR_NONFINITE, "ftjob-a failed: step 3"},
        {"{\"id\":\"ftjob-a\",\"status\":\"failed\",\"error\":{\"code\":\"of a newer daemon\"}}",
         ERR_INTERNAL, "no reason given"},
        {"{\"id\":\"ftjob-a\"}", ERR_PROTOCOL, "no status"},
    };
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
        watch(s, "", ends[i].after);
        if (s->rc != -(int)ends[i].code || strstr(s->err.text, ends[i].says) == NULL)
            fail_msg("%zu: %d %s", i, s->rc, s->err.text);
    }
    watch(s, "", "{\"id\":\"ftjob-a\",\"status\":\"succeeded\",\"fine_tuned_model\":\"ft:x\"}");
    assert_int_equal(s->rc, 0);
    assert_non_null(strstr(s->errors, "succeeded: ft:x\n"));
    assert_non_null(strstr(s->errors, "ithaca sample --job ftjob-a"));
    assert_string_equal(s->out, ""); /* results only */
}

/* While its files are checked the job itself is asked. */
static void test_check_of_files(void **state)
{
    struct scene *s = *state;
    static const char stream[] =
        STREAM "event: event\nid: 1-0\ndata: {\"message\":\"queued\"}\n\n" END;
    static const char at[] = "{\"id\":\"ftjob-a\",\"ithaca\":{\"state\":\"validating\",\"data\":{"
                             "\"preparing\":{\"file\":1,\"files\":2,\"bytes\":70,"
                             "\"bytes_total\":80,\"rows\":12345,\"bad\":2,\"fault\":{\"line\":"
                             "678}}}}}";
    scene_reply(s, 200, "{\"id\":\"ftjob-a\",\"ithaca\":{\"state\":\"validating\",\"data\":null}}");
    for (int i = 0; i < 2; i++) /* a line at first and each fifth second */
        scene_reply(s, 200, at);
    scene_reply(s, 200, "{\"id\":\"ftjob-a\",\"ithaca\":{\"state\":\"queued\"}}");
    scene_raw(s, stream, sizeof stream - 1);
    scene_reply(s, 200, "{\"id\":\"ftjob-a\",\"status\":\"cancelled\"}");
    scene_run(s, cmd_watch, "ftjob-a", NULL);
    assert_int_equal(s->rc, -ERR_CANCELLED);
    assert_non_null(strstr(s->errors, "[#####################---]  checking file 1 of 2: 88%, "
                                      "12345 rows, 2 wrong, the first in line 678\nqueued\n"));
    assert_int_equal(s->server.asked_count, 6);
}

static void test_wait_for_tokens(void **state)
{
    struct scene *s = *state;
    static const char at[] = "{\"id\":\"ftjob-a\",\"ithaca\":{\"state\":\"validating\",\"data\":{"
                             "\"preparing\":{\"file\":1,\"files\":2,\"bytes\":0,"
                             "\"bytes_total\":80,\"rows\":0,\"waiting\":true}}}}";
    for (int i = 0; i < 2; i++)
        scene_reply(s, 200, at);
    scene_reply(s, 200, "{\"id\":\"ftjob-a\",\"ithaca\":{\"state\":\"queued\"}}");
    scene_raw(s, STREAM END, sizeof STREAM END - 1);
    scene_reply(s, 200, "{\"id\":\"ftjob-a\",\"status\":\"cancelled\"}");
    scene_run(s, cmd_watch, "ftjob-a", NULL);
    assert_non_null(strstr(s->errors, "file 1 of 2: waiting for another job's tokens\n"));
}

static void test_what_is_shown(void **state)
{
    struct scene *s = *state;
    watch(s,
          "event: state\nid: 1-0\ndata: {\"steps_total\":4}\n\n"
          "event: event\nid: 2-0\ndata: {\"message\":\"training begins\"}\n\n"
          "event: event\nid: 3-0\ndata: {}\n\n"
          "event: metrics\nid: 3-0\ndata: {\"step\":1,\"metrics\":{\"host_bytes\":7}}\n\n"
          "event: metrics\nid: 3-1\ndata: {\"step\":1,\"metrics\":{\"loss\":2.5,"
          "\"tokens_per_s\":1000,\"step_time_s\":1}}\n\n"
          "event: metrics\nid: 3-3\ndata: {\"step\":4,\"metrics\":{\"loss\":null,"
          "\"valid_loss\":0.5}}\n\n"
          "event: news\nid: 3-4\ndata: {\"of\":\"a newer daemon\"}\n\n",
          "{\"id\":\"ftjob-a\",\"status\":\"succeeded\",\"fine_tuned_model\":\"ft:x\"}");
    assert_int_equal(s->rc, 0);
    assert_non_null(strstr(s->errors, "training begins\n"));
    assert_non_null(
        strstr(s->errors, "[######------------------]  1/4  loss 2.5000  1.0k tok/s  eta 0:03\n"));
    const char *first = strstr(s->errors, "1/4");
    assert_null(strstr(first + 1, "1/4")); /* not for a series of one rank */
    assert_non_null(strstr(s->errors, "4/4  loss 2.5000  valid 0.5000"));
}

static void test_json(void **state)
{
    struct scene *s = *state;
    s->json = true;
    watch(s, "event: metrics\nid: 3-1\ndata: {\"step\":1}\n\n",
          "{\"id\":\"ftjob-a\",\"status\":\"succeeded\"}");
    scene_expect(s, "{\"event\":\"metrics\",\"id\":\"3-1\",\"data\":{\"step\":1}}\n"
                    "{\"event\":\"end\",\"id\":\"9-9\",\"data\":{}}\n");
    assert_null(strstr(s->errors, "succeeded"));
}

static void test_mistakes(void **state)
{
    struct scene *s = *state;
    scene_run(s, cmd_watch, NULL);
    scene_expect_usage(s, "the job's id is missing");
    scene_run(s, cmd_watch, "a", "b", NULL);
    scene_expect_usage(s, "unexpected argument b");
    assert_int_equal(s->server.asked_count, 0);
    scene_reply(s, 404, "{\"error\":{\"message\":\"no job\",\"code\":\"not_found\"}}");
    scene_run(s, cmd_watch, "a/b", NULL);
    assert_int_equal(s->rc, -ERR_NOT_FOUND);
    scene_asked(s, 0, "GET /v1/fine_tuning/jobs/a%2Fb HTTP/1.1");
    assert_int_equal(s->server.asked_count, 1); /* no stream was asked for */
}

int main(void)
{
    const struct CMUnitTest tests[] = {SCENE_TEST(test_ends),
                                       SCENE_TEST(test_check_of_files),
                                       SCENE_TEST(test_wait_for_tokens),
                                       SCENE_TEST(test_what_is_shown),
                                       SCENE_TEST(test_json),
                                       SCENE_TEST(test_mistakes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
