/* api: who may ask what, health and readiness, and what api_json.c makes of texts, times, jobs and
 * events. */
#include "daemon/api.h"

#include "daemon/store_sql.h"
#include "tests/lib/http_world.h"

static void with_token(struct http_world *h, const char *line, const char *target)
{
    struct http_client client;
    char request[512];
    (void)snprintf(request, sizeof request,
                   "GET %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n%s\r\n", target,
                   line);
    client_open(h, &client);
    client_send(h, &client, request, strlen(request));
    ask_end(h, &client);
}

static void test_tokens(void **state)
{
    struct http_world *h = *state;
    char line[256], longer[256];
    (void)snprintf(line, sizeof line, "Authorization: Bearer %s\r\n", h->token);
    (void)snprintf(longer, sizeof longer, "Authorization: Bearer %sx\r\n", h->token);
    static const char *const closed[] = {"/readyz", "/v1/files", "/v1/models", "/v1/stream",
                                         "/v1/fine_tuning/jobs"};
    const char *const wrong[] = {"", "Authorization: Bearer\r\n", "Authorization: Bearer x\r\n",
                                 "Authorization: Basic YTpi\r\n", longer};
    for (size_t i = 0; i < sizeof closed / sizeof closed[0]; i++)
        for (size_t j = 0; j < sizeof wrong / sizeof wrong[0]; j++) {
            with_token(h, wrong[j], closed[i]);
            expect(h, 401, "error.code", "invalid_api_key");
            assert_non_null(strstr(h->head, "WWW-Authenticate: Bearer\r\n"));
        }
    with_token(h, "", "/healthz");
    expect(h, 200, "version", ITHACA_VERSION);
    with_token(h, line, "/v1/models");
    expect(h, 200, "object", "list");
}

/* A token that may read and no more. */
static void test_scopes(void **state)
{
    struct http_world *h = *state;
    ask(h, "GET", "/readyz", NULL);
    expect(h, 200, "status", "ready");
    assert_int_equal(sqlite3_exec(h->w->store->databases[STORE_JOBS],
                                  "UPDATE tokens SET scope = 'read'", NULL, NULL, NULL),
                     SQLITE_OK);
    ask(h, "GET", "/v1/models", NULL);
    assert_int_equal(h->status, 200);
    ask(h, "POST", JOBS, "{}");
    expect(h, 403, "error.code", "forbidden");
    ask(h, "DELETE", "/v1/files/file-a", NULL);
    expect(h, 403, "error.code", "forbidden");
}

static void test_ready(void **state)
{
    struct http_world *h = *state;
    struct settings broken = h->settings;
    char absent[] = "/nonexistent/ithaca-worker";
    h->api.settings = &broken;
    broken.worker = absent;
    ask(h, "GET", "/readyz", NULL);
    expect(h, 503, "error.code", "unavailable");
    assert_non_null(strstr(h->body, absent));
    broken.worker = h->settings.worker;
    OK(h->w, io_remove_tree(h->models, &h->w->err));
    ask(h, "GET", "/readyz", NULL);
    expect(h, 503, "error.code", "unavailable");
    assert_non_null(strstr(h->body, strrchr(h->models, '/') + 1)); /* its name, not its path */
    assert_null(strstr(h->body, h->models));
    h->api.settings = &h->settings;
}

static void test_texts_and_times(void **state)
{
    static const struct {
        const char *text, *json;
    } texts[] = {
        {NULL, NULL}, {"", NULL}, {"a", "a"}, {"a\xff z", "a? z"}, {"\xc3\xa4", "\xc3\xa4"}};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        CLEANUP(json_unref) json_t *json = api_text(texts[i].text);
        if (texts[i].json == NULL)
            assert_true(json_is_null(json));
        else
            assert_string_equal(json_string_value(json), texts[i].json);
    }
    static const int64_t times[][2] = {{1, 0}, {999, 0}, {1000, 1}, {1999, 1}, {1 << 30, 1073741}};
    CLEANUP(json_unref) json_t *never = api_time(0);
    assert_true(json_is_null(never));
    for (size_t i = 0; i < sizeof times / sizeof times[0]; i++) {
        CLEANUP(json_unref) json_t *json = api_time(times[i][0]);
        assert_int_equal(json_integer_value(json), times[i][1]);
    }
}

/* The job object in OpenAI's shape. */
static void test_job(void **state)
{
    struct http_world *h = *state;
    static const char spec[] =
        "{\"model\":\"m\",\"training_file\":\"file-a\",\"seed\":7,\"metadata\":{\"k\":\"v\"},"
        "\"method\":{\"type\":\"supervised\",\"supervised\":{\"hyperparameters\":{\"n_epochs\":2}}}"
        ","
        "\"ithaca\":{\"batch\":{\"sequences\":12},\"optimizer\":{\"learning_rate\":1e-4}}}";
    struct store_job job = {.id = "ftjob-abc",
                            .created_ms = 5000,
                            .finished_ms = 9000,
                            .state = JOB_STATE_FAILED,
                            .reason = "rank_died",
                            .reason_text = "rank 1 \xff",
                            .owner = "admin",
                            .spec_json = spec,
                            .model = "m",
                            .training_file = "file-a",
                            .validation_file = "",
                            .fine_tuned_model = "",
                            .result_file = "",
                            .steps_total = 10,
                            .steps_done = 4,
                            .trained_tokens = 99};
    h->json = api_jobs_json(&h->api, &job, &h->w->err);
    h->status = 200;
    h->body = mem_strdup("job");
    assert_non_null(h->json);
    expect(h, 200, "object", "fine_tuning.job");
    expect(h, 200, "status", "failed");
    expect(h, 200, "error.code", "rank_died");
    expect(h, 200, "error.message", "rank 1 ?");
    expect(h, 200, "ithaca.state", "failed");
    assert_int_equal(answer_int(h, "created_at"), 5);
    assert_int_equal(answer_int(h, "hyperparameters.batch_size"), 12);
    assert_int_equal(answer_int(h, "hyperparameters.n_epochs"), 2);
    assert_int_equal(answer_int(h, "ithaca.steps_done"), 4);
    expect(h, 200, "metadata.k", "v");
    assert_true(json_is_null(answer(h, "fine_tuned_model")));
    assert_true(json_is_null(answer(h, "validation_file")));
    assert_true(json_is_null(answer(h, "trained_tokens"))); /* until it has succeeded */
    assert_true(json_is_null(answer(h, "estimated_finish")));
    json_decref(h->json);
    job.state = JOB_STATE_SUCCEEDED;
    job.reason = job.reason_text = "";
    job.resumed_step = 3;
    h->json = api_jobs_json(&h->api, &job, &h->w->err);
    assert_true(json_is_null(answer(h, "error")));
    assert_int_equal(answer_int(h, "trained_tokens"), 99);
    expect(h, 200, "ithaca.resumed_from", "ftckpt_abc_3");
    json_decref(h->json);
    job.spec_json = "{"; /* a row that is damaged */
    h->json = api_jobs_json(&h->api, &job, &h->w->err);
    assert_null(h->json);
    assert_non_null(strstr(h->w->err.text, "ftjob-abc"));
}

/* What lies between steps counts; a step that runs does not put the end off. */
static void test_eta(void **state)
{
    struct http_world *h = *state;
    const double now_s = (double)clock_wall_ms() / 1000;
    struct store_point points[3];
    struct store_job job = {.id = "ftjob-eta", .state = JOB_STATE_RUNNING, .attempt = 2};
    int64_t row = 0;
    job.spec_json = "{}";
    job.steps_total = 1010;
    job.steps_done = 10;
    job.owner = job.reason = job.reason_text = job.model = job.training_file = "";
    job.validation_file = job.fine_tuned_model = job.result_file = "";
    for (int64_t i = 0; i < 3; i++) /* steps 9 and 10 of this attempt, of 1 s, 7 s apart */
        points[i] = (struct store_point){.job_id = job.id,
                                         .attempt = i == 0 ? 1 : 2,
                                         .step = 8 + i,
                                         .metric = METRIC_STEP_TIME_S,
                                         .value = 1,
                                         .wall_s = now_s - 3 - 7 * (double)(2 - i)};
    const double wanted_s[] = {1000, 990, 6997}; /* of the attempt before; one step; two */
    for (size_t count = 1; count <= 3; count++) {
        int rc = store_points_insert(h->w->store, points, count, &row, &h->w->err);
        assert_int_equal(rc, 0);
        h->json = api_jobs_json(&h->api, &job, &h->w->err);
        assert_non_null(h->json);
        double left_s = (double)answer_int(h, "ithaca.eta") - now_s;
        if (fabs(left_s - wanted_s[count - 1]) > 2)
            fail_msg("%zu points: %.1f s left, not %.0f", count, left_s, wanted_s[count - 1]);
        json_unref(&h->json);
    }
    job.steps_done = 1010;
    h->json = api_jobs_json(&h->api, &job, &h->w->err);
    assert_true((double)answer_int(h, "ithaca.eta") >= now_s - 1); /* not in the past */
    json_unref(&h->json);
}

static void test_event(void **state)
{
    struct http_world *h = *state;
    struct store_event event = {.id = "ftevent-1",
                                .job_id = "ftjob-1",
                                .created_ms = 7000,
                                .level = "warn",
                                .type = "message",
                                .message = "",
                                .data_json = ""};
    CLEANUP(json_unref) json_t *json = api_jobs_event_json(&h->api, &event, &h->w->err);
    assert_int_equal(json_object_size(json_object_get(json, "data")), 0);
    assert_true(json_is_null(json_object_get(json, "message")));
    assert_int_equal(json_integer_value(json_object_get(json, "created_at")), 7);
    event.data_json = "{\"state\":\"queued\"";
    assert_null(api_jobs_event_json(&h->api, &event, &h->w->err));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        HTTP_TEST(test_tokens), HTTP_TEST(test_scopes),
        HTTP_TEST(test_ready),  cmocka_unit_test(test_texts_and_times),
        HTTP_TEST(test_job),    HTTP_TEST(test_event),
        HTTP_TEST(test_eta),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
