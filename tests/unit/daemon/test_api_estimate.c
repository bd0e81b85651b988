/* api_estimate: what a job would take, asked for without making one, and jobs that this machine
 * cannot hold, refused at submit. */
#include "tests/lib/http_world.h"

#define ESTIMATE "/v1/fine_tuning/estimate"

static void test_estimate(void **state)
{
    struct http_world *h = *state;
    ask(h, "POST", ESTIMATE, "{\"model\":\"tiny-llama\",\"ithaca\":{\"seq_len\":64}}");
    expect(h, 200, "object", "fine_tuning.estimate");
    expect(h, 200, "model", "tiny-llama");
    assert_true(json_is_true(answer(h, "memory.fits")));
    assert_true(answer_int(h, "memory.peak_device_bytes") > 0);
    assert_true(json_is_null(answer(h, "message")));
    assert_int_equal(answer_int(h, "ithaca.seq_len"), 64);
    int64_t little = answer_int(h, "memory.peak_device_bytes");
    ask(h, "POST", ESTIMATE, "{\"model\":\"tiny-llama\",\"ithaca\":{\"seq_len\":128}}");
    assert_true(answer_int(h, "memory.peak_device_bytes") > little);
    ask(h, "POST", ESTIMATE, /* a shape that is not here, far too large for this machine */
        "{\"model\":\"llama3-70b\",\"ithaca\":{\"seq_len\":65536}}");
    assert_int_equal(h->status, 200);
    assert_true(json_is_false(answer(h, "memory.fits")));
    assert_true(json_is_string(answer(h, "message")));
    ask(h, "GET", JOBS, NULL);
    assert_int_equal(json_array_size(answer(h, "data")), 0); /* no job was made */
}

static void test_refusals(void **state)
{
    struct http_world *h = *state;
    ask(h, "POST", ESTIMATE, "{\"model\":\"none\"}");
    expect(h, 404, "error.param", "model");
    ask(h, "POST", ESTIMATE, "{}");
    expect(h, 400, "error.param", "model");
    ask(h, "POST", ESTIMATE, "{\"model\":\"tiny-llama\",\"ithaca\":{\"gpus\":0}}");
    expect(h, 400, "error.param", "ithaca.gpus");
    ask(h, "POST", ESTIMATE, "");
    expect(h, 400, "error.code", "invalid_json");
}

/* A model whose weights alone are more than any machine here has. */
static void test_admission(void **state)
{
    struct http_world *h = *state;
    struct model_config config = *model_config_builtin("tiny-llama");
    config.layers = 8;
    config.hidden_size = config.intermediate_size = 65536;
    config.heads = config.kv_heads = 512;
    config.head_dim = 128;
    CLEANUP(json_unref) json_t *json = model_config_json(&config);
    CLEANUP(mem_free_ptr) char *folder = io_join(h->models, "huge");
    CLEANUP(mem_free_ptr) char *path = io_join(folder, "config.json");
    OK(h->w, io_make_dirs(folder, 0700, &h->w->err));
    OK(h->w, json_write_file(path, json, 0600, &h->w->err));
    http_world_file(h, "file-a", "{}");
    ask(h, "POST", "/v1/fine_tuning/jobs",
        "{\"model\":\"huge\",\"training_file\":\"file-a\",\"ithaca\":{\"seq_len\":64}}");
    expect(h, 400, "error.code", "does_not_fit");
    ask(h, "GET", JOBS, NULL);
    assert_int_equal(json_array_size(answer(h, "data")), 0);
    ask(h, "POST", ESTIMATE, "{\"model\":\"huge\",\"ithaca\":{\"seq_len\":64}}");
    assert_int_equal(h->status, 200);
    assert_true(json_is_false(answer(h, "memory.fits")));
}

/* ---- settings that are searched ---- */

/* The plain settings take more: others are searched, for some hundred turns. */
#define SEARCHED "\"ithaca\":{\"seq_len\":131072,\"memory_limit_gib\":2,\"hold\":true}}"
static const char searched_ask[] = "{\"model\":\"tiny-llama\",\"auto\":true," SEARCHED;
static const char searched_job[] =
    "{\"model\":\"tiny-llama\",\"training_file\":\"file-a\"," SEARCHED;

static int64_t jobs_count(struct http_world *h)
{
    ask(h, "GET", JOBS, NULL);
    return (int64_t)json_array_size(answer(h, "data"));
}

static void search_open(struct http_world *h, struct http_client *client, const char *target,
                        const char *headers, const char *body)
{
    ask_open(h, client, "POST", target, headers, body, strlen(body));
    for (int i = 0; i < 5; i++) /* it is read, and begun */
        client_turn(h, client);
    assert_int_equal(client->in.length, 0);
    assert_false(http_is_idle(h->http));
}

/* As many turns as an answer takes, but no search. */
static void few_turns(struct http_world *h)
{
    for (int i = 0; i < 10 && !http_is_idle(h->http); i++)
        OK(h->w, loop_turn(h->w->loop, 1, &h->w->err));
}

static void test_others_are_answered_meanwhile(void **state)
{
    struct http_world *h = *state;
    struct http_client client;
    search_open(h, &client, ESTIMATE, "", searched_ask);
    ask(h, "GET", "/healthz", NULL);
    expect(h, 200, "status", "ok");
    client_turn(h, &client);
    assert_int_equal(client.in.length, 0); /* who came later was first */
    ask_end(h, &client);
    expect(h, 200, "object", "fine_tuning.estimate");
    assert_true(json_is_true(answer(h, "memory.fits")));
    const char *recompute = json_string_value(answer(h, "ithaca.recompute"));
    assert_string_not_equal(recompute, "none");
    assert_int_equal(jobs_count(h), 0);
}

/* With one key, both while the first one's settings are searched. */
static void test_searched_job_is_made_once(void **state)
{
    struct http_world *h = *state;
    struct http_client clients[2];
    char id[64];
    http_world_file(h, "file-a", "{}");
    for (int i = 0; i < 2; i++)
        search_open(h, &clients[i], JOBS, "Idempotency-Key: one\r\n", searched_job);
    ask_end(h, &clients[0]);
    assert_int_equal(h->status, 200);
    assert_string_not_equal(json_string_value(answer(h, "ithaca.spec.recompute")), "none");
    (void)snprintf(id, sizeof id, "%s", json_string_value(answer(h, "id")));
    ask_end(h, &clients[1]);
    expect(h, 200, "id", id);
    assert_int_equal(jobs_count(h), 1);
    ask(h, "GET", http_target(JOBS "/%s/request", id).text,
        NULL); /* what was asked for, not what was found */
    expect(h, 200, "ithaca.recompute", "auto");
}

/* A job is made all the same; an estimate is not worked on to its end. */
static void test_client_leaves(void **state)
{
    struct http_world *h = *state;
    struct http_client client;
    http_world_file(h, "file-a", "{}");
    search_open(h, &client, ESTIMATE, "", searched_ask);
    client_close(&client);
    few_turns(h);
    assert_true(http_is_idle(h->http));
    search_open(h, &client, JOBS, "", searched_job);
    client_close(&client);
    few_turns(h);
    assert_false(http_is_idle(h->http));
    while (!http_is_idle(h->http))
        OK(h->w, loop_turn(h->w->loop, 1, &h->w->err));
    assert_int_equal(jobs_count(h), 1);
}

/* A daemon that stops does not wait for a search, and nothing comes of it. */
static void test_stop(void **state)
{
    struct http_world *h = *state;
    struct http_client client;
    http_world_file(h, "file-a", "{}");
    search_open(h, &client, JOBS, "", searched_job);
    assert_int_equal(h->api.searches, 1);
    http_stop(h->http);
    few_turns(h);
    assert_true(http_is_idle(h->http));
    assert_int_equal(h->api.searches, 0);
    ask_end(h, &client);
    assert_int_equal(h->status, 503);
}

/* What is searched in vain is refused as without a search. */
static void test_nothing_is_found(void **state)
{
    struct http_world *h = *state;
    http_world_file(h, "file-a", "{}");
    ask(h, "POST", JOBS,
        "{\"model\":\"tiny-llama\",\"training_file\":\"file-a\",\"ithaca\":{\"seq_len\":8388608,"
        "\"memory_limit_gib\":1}}");
    expect(h, 400, "error.code", "does_not_fit");
    assert_int_equal(jobs_count(h), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {HTTP_TEST(test_estimate),
                                       HTTP_TEST(test_refusals),
                                       HTTP_TEST(test_admission),
                                       HTTP_TEST(test_others_are_answered_meanwhile),
                                       HTTP_TEST(test_searched_job_is_made_once),
                                       HTTP_TEST(test_client_leaves),
                                       HTTP_TEST(test_stop),
                                       HTTP_TEST(test_nothing_is_found)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
