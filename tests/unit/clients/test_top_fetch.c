/* top_fetch: what the daemon is asked for, and no more often than it must be. */
#include "clients/cli/top.h"
#include "tests/lib/fake_server.h"

#define QUEUE(running) "{\"running\":[" running "],\"waiting\":[]}"
#define RUNS "{\"id\":\"ftjob-a\"}"
#define JOB "{\"id\":\"ftjob-a\",\"ithaca\":{\"steps_done\":7,\"attempt\":2}}"
#define LATEST "{\"data\":[{\"key\":\"loss\",\"points\":[[7,1.5]]}]}"
#define LOSSES "{\"data\":[{\"key\":\"loss\",\"points\":[[6,2.5],[7,1.5]]}]}"
#define EVENTS "{\"data\":[{\"message\":\"m\"}]}"

static void reply_all(struct scene *s, const char *const answers[])
{
    for (size_t i = 0; answers[i] != NULL; i++)
        scene_reply(s, 200, answers[i]);
}

#define REPLY(s, ...) reply_all(s, (const char *const[]){__VA_ARGS__, NULL})

static json_t *fetched(struct scene *s, const json_t *before)
{
    json_t *data = NULL;
    MUST_WORK(top_fetch(s->client, "ftjob-a", before, &data, &s->err), &s->err);
    return data;
}

static void expect_detail(const json_t *data)
{
    const json_t *detail = json_object_get(data, "detail");
    CLEANUP(json_unref) json_t *wanted = NULL;
    struct err err;
    static const char text[] = "{\"job\":" JOB ",\"latest\":{\"loss\":1.5},\"planned_bytes\":9,"
                               "\"events\":[{\"message\":\"m\"}],\"loss\":[[6,2.5],[7,1.5]]}";
    assert_int_equal(json_parse(text, sizeof text - 1, "detail", &wanted, &err), 0);
    assert_true(json_equal(detail, wanted));
}

/* The page of a job that runs shows what was asked for among those that run; its plan is asked for
 * once. */
static void test_a_job_that_runs(void **state)
{
    struct scene *s = *state;
    scene_client(s);
    REPLY(s, QUEUE(RUNS), "{}", JOB, LATEST, "{\"planned\":{\"peak_device_bytes\":9}}", EVENTS,
          LOSSES);
    CLEANUP(json_unref) json_t *first = fetched(s, NULL);
    expect_detail(first);
    const json_t *entry = json_object_get(json_object_get(first, "jobs"), "ftjob-a");
    assert_null(json_object_get(entry, "events"));
    assert_int_equal(s->server.asked_count, 7);
    REPLY(s, QUEUE(RUNS), "{}", JOB, LATEST, EVENTS, LOSSES);
    CLEANUP(json_unref) json_t *second = fetched(s, first);
    expect_detail(second);
    assert_int_equal(s->server.asked_count, 13);
    scene_asked(s, 11, "GET /v1/fine_tuning/jobs/ftjob-a/events?limit=100 HTTP/1.1");
}

static void test_a_job_that_does_not(void **state)
{
    struct scene *s = *state;
    scene_client(s);
    REPLY(s, QUEUE(""), "{}", JOB, LATEST, "{\"planned\":{\"peak_device_bytes\":9}}", EVENTS,
          LOSSES);
    CLEANUP(json_unref) json_t *data = fetched(s, NULL);
    expect_detail(data);
    assert_int_equal(json_object_size(json_object_get(data, "jobs")), 0);
    scene_reply(s, 200, QUEUE(""));
    scene_reply(s, 200, "{}");
    scene_reply(s, 404, "{\"error\":{\"message\":\"no job\",\"code\":\"not_found\"}}");
    CLEANUP(json_unref) json_t *after = fetched(s, data);
    assert_true(json_is_null(json_object_get(after, "detail"))); /* it was deleted meanwhile */
}

int main(void)
{
    const struct CMUnitTest tests[] = {SCENE_TEST(test_a_job_that_runs),
                                       SCENE_TEST(test_a_job_that_does_not)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
