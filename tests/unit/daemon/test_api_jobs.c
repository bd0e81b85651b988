/* api_jobs: jobs by HTTP: what is refused before it is stored, what a created job answers, lists
 * with pages and metadata. */
#include "daemon/store_sql.h"
#include "tests/lib/http_world.h"

#define JOB "{\"model\":\"tiny-llama\",\"training_file\":\"file-a\""

static void test_create(void **state)
{
    struct http_world *h = *state;
    http_world_file(h, "file-a", "{}");
    http_world_file(h, "file-b", "{}");
    ask(h, "POST", JOBS,
        JOB ",\"validation_file\":\"file-b\",\"suffix\":\"sail\",\"seed\":5,\"metadata\":{\"a\":"
            "\"b\"},\"ithaca\":{\"gpus\":2,\"seq_len\":64}}");
    expect(h, 200, "object", "fine_tuning.job");
    expect(h, 200, "status", "validating_files");
    expect(h, 200, "validation_file", "file-b");
    expect(h, 200, "metadata.a", "b");
    expect(h, 200, "ithaca.owner", "admin");
    assert_int_equal(answer_int(h, "seed"), 5);
    assert_int_equal(answer_int(h, "ithaca.spec.seq_len"), 64);
    CLEANUP(mem_free_ptr) char *created = mem_strdup(h->body);
    ask(h, "GET", http_target(JOBS "/%s", json_string_value(answer(h, "id"))).text, NULL);
    assert_int_equal(h->status, 200);
    assert_string_equal(h->body, created);
    ask(h, "GET", JOBS "/ftjob-none", NULL);
    expect(h, 404, "error.code", "not_found");
}

static void test_refusals(void **state)
{
    struct http_world *h = *state;
    http_world_file(h, "file-a", "{}");
    http_world_file(h, "file-bad", "{}");
    OK(h->w, store_file_set_status(h->w->store, "file-bad", "error", "line 3: no", &h->w->err));
    http_world_put(h, h->models, "x", "");
    CLEANUP(mem_free_ptr) char *broken = io_join(h->models, "broken");
    http_world_put(h, broken, "config.json", "{\"model_type\":\"mamba\"}");
    static const struct {
        const char *body, *field;
        int status;
    } bad[] = {
        {"{\"training_file\":\"file-a\"}", "model", 400},
        {"{\"model\":\"tiny-llama\"}", "training_file", 400},
        {"{\"model\":\"tiny-llama\",\"training_file\":\"file-none\"}", "training_file", 400},
        {"{\"model\":\"tiny-llama\",\"training_file\":\"file-bad\"}", "training_file", 400},
        {JOB ",\"validation_file\":\"file-none\"}", "validation_file", 400},
        {"{\"model\":null,\"training_file\":\"file-a\"}", "model", 400},
        {JOB ",\"color\":1}", "color", 400},
        {JOB ",\"ithaca\":{\"gpu\":1}}", "ithaca.gpu", 400},
        {JOB ",\"ithaca\":{\"gpus\":3}}", "ithaca.gpus", 400}, /* the machine has 2 */
        {"{\"model\":\"none\",\"training_file\":\"file-a\"}", "model", 404},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        ask(h, "POST", JOBS, bad[i].body);
        if (h->status != bad[i].status)
            fail_msg("%s: %d %s", bad[i].body, h->status, h->body);
        expect(h, bad[i].status, "error.param", bad[i].field);
    }
    ask(h, "POST", JOBS, "{\"model\":\"broken\",\"training_file\":\"file-a\"}");
    expect(h, 400, "error.code", "invalid_model");
    expect(h, 400, "error.param", "model"); /* what is wrong of its files the message says */
    ask(h, "POST", JOBS, "{\"model\":\"tiny-llama\",");
    expect(h, 400, "error.code", "invalid_json");
    ask(h, "GET", JOBS, NULL);
    assert_int_equal(json_array_size(answer(h, "data")), 0); /* nothing was stored */
}

static void test_daemon_that_stops(void **state)
{
    struct http_world *h = *state;
    http_world_file(h, "file-a", "{}");
    coordinator_stop(h->w->coordinator);
    ask(h, "POST", JOBS, JOB "}");
    expect(h, 503, "error.code", "unavailable");
    ask(h, "GET", JOBS, NULL); /* asking is fine */
    assert_int_equal(json_array_size(answer(h, "data")), 0);
}

/* Creates jobs with metadata n = 0, 1, ...; every other one has even = yes. */
static void create(struct http_world *h, int count)
{
    http_world_file(h, "file-a", "{}");
    for (int i = 0; i < count; i++) {
        char body[256];
        (void)snprintf(body, sizeof body, JOB ",\"metadata\":{\"n\":\"%d\",\"even\":\"%s\"}}", i,
                       i % 2 == 0 ? "yes" : "no");
        ask(h, "POST", JOBS, body);
        assert_int_equal(h->status, 200);
        h->w->fake.now_ms += 1000;
    }
}

static void test_list(void **state)
{
    struct http_world *h = *state;
    create(h, 5);
    ask(h, "GET", JOBS "?limit=2", NULL);
    expect(h, 200, "data.0.metadata.n", "4"); /* newest first */
    expect(h, 200, "data.1.metadata.n", "3");
    assert_true(json_is_true(answer(h, "has_more")));
    ask(h, "GET", http_target(JOBS "?after=%s", json_string_value(answer(h, "last_id"))).text,
        NULL);
    expect(h, 200, "data.0.metadata.n", "2");
    assert_int_equal(json_array_size(answer(h, "data")), 3);
    assert_true(json_is_false(answer(h, "has_more")));
    ask(h, "GET", JOBS "?metadata[even]=yes", NULL);
    assert_int_equal(json_array_size(answer(h, "data")), 3);
    ask(h, "GET", JOBS "?metadata%5Beven%5D=yes&metadata[n]=2", NULL);
    assert_int_equal(json_array_size(answer(h, "data")), 1);
    ask(h, "GET", JOBS "?metadata[even]=maybe", NULL);
    assert_int_equal(json_array_size(answer(h, "data")), 0);
    ask(h, "GET", JOBS "?metadata=null", NULL);
    assert_int_equal(json_array_size(answer(h, "data")), 0);
    ask(h, "POST", JOBS, JOB "}");
    char plain[LIMIT_ID_BYTES + 1];
    (void)snprintf(plain, sizeof plain, "%s", json_string_value(answer(h, "id")));
    ask(h, "POST", JOBS, JOB ",\"metadata\":{}}");
    ask(h, "GET", JOBS "?metadata=null", NULL);
    assert_int_equal(json_array_size(answer(h, "data")), 2);
    expect(h, 200, "data.1.id", plain);
    ask(h, "GET", JOBS "?metadata=null&metadata[n]=2", NULL);
    expect(h, 400, "error.param", "metadata");
    ask(h, "GET", JOBS "?metadata=n", NULL);
    expect(h, 400, "error.param", "metadata");
    ask(h, "GET", JOBS "?metadata[a]=%ff", NULL);
    expect(h, 400, "error.param", "metadata");
    ask(h, "GET", JOBS "?limit=10001", NULL);
    expect(h, 400, "error.param", "limit");
    ask(h, "GET", JOBS "?after=ftjob-none", NULL);
    expect(h, 400, "error.param", "after");
    CLEANUP(buf_done) struct buf many;
    buf_init(&many, 4096);
    buf_text(&many, JOBS "?");
    for (int i = 0; i <= LIMIT_METADATA_PAIRS; i++)
        buf_printf(&many, "metadata[k%d]=v&", i);
    ask(h, "GET", buf_str(&many), NULL);
    expect(h, 400, "error.param", "metadata");
}

/* A long page is made in turns: who asks meanwhile is answered first; and the page is whole. */
static void test_long_list(void **state)
{
    enum { MANY = 100 };
    struct http_world *h = *state;
    struct http_client list, other;
    create(h, MANY);
    ask_open(h, &list, "GET", JOBS "?limit=1000", "", NULL, 0);
    ask_open(h, &other, "GET", "/healthz", "", NULL, 0);
    client_await(h, &other, "200 OK");
    assert_int_equal(list.in.length, 0);
    client_close(&other);
    ask_end(h, &list);
    assert_int_equal(h->status, 200);
    assert_int_equal(json_array_size(answer(h, "data")), MANY);
    assert_true(json_is_false(answer(h, "has_more")));
    for (int i = 0; i < MANY; i++) {
        char path[64], number[16];
        (void)snprintf(path, sizeof path, "data.%d.metadata.n", i);
        (void)snprintf(number, sizeof number, "%d", MANY - 1 - i);
        expect(h, 200, path, number);
    }
    expect(h, 200, "first_id", json_string_value(answer(h, "data.0.id")));
    expect(h, 200, "last_id", json_string_value(answer(h, "data.99.id")));
    ask(h, "GET", JOBS "?limit=64", NULL); /* as many as two turns have */
    assert_int_equal(json_array_size(answer(h, "data")), 64);
    assert_true(json_is_true(answer(h, "has_more")));
    ask_open(h, &list, "GET", JOBS "?limit=1000", "", NULL, 0); /* leaves before it is whole */
    client_turn(h, &list);
    client_close(&list);
    ask(h, "GET", JOBS "?metadata[n]=0", NULL); /* its job is beyond the first turn */
    assert_int_equal(json_array_size(answer(h, "data")), 1);
}

/* Thousands of jobs of which few are of the list: it is looked for in turns, and says exactly
 * whether there are more. */
static void test_few_of_many(void **state)
{
    struct http_world *h = *state;
    (void)world_submit(h->w, 1, "");
    OK(h->w, store_run(h->w->store, STORE_JOBS,
                       "WITH RECURSIVE n(i) AS (SELECT 2 UNION ALL SELECT i + 1 FROM n LIMIT 3500) "
                       "INSERT INTO jobs (id, created_ms, state, owner, spec_json, model, "
                       "model_dir, training_file, validation_file, priority, ranks, steps_total, "
                       "predicted_step_s, asked_json, experiment) "
                       "SELECT 'ftjob-' || i, created_ms, 'cancelled', owner, "
                       "iif(i IN (700, 2900, 3100), json_set(spec_json, '$.metadata', "
                       "json('{\"team\":\"rare\"}')), spec_json), model, model_dir, "
                       "training_file, validation_file, priority, ranks, steps_total, "
                       "predicted_step_s, asked_json, experiment FROM n, jobs",
                       NULL, &h->w->err));
    static const struct {
        const char *query, *first, *last;
        bool more;
    } pages[] = {
        {"limit=1", "ftjob-3100", "ftjob-3100", true},
        {"limit=2", "ftjob-3100", "ftjob-2900", true},
        {"limit=3", "ftjob-3100", "ftjob-700", false},
        {"limit=9", "ftjob-3100", "ftjob-700", false},
        {"limit=1&after=ftjob-2900", "ftjob-700", "ftjob-700", false},
    };
    for (size_t i = 0; i < sizeof pages / sizeof pages[0]; i++) {
        ask(h, "GET", http_target(JOBS "?metadata[team]=rare&%s", pages[i].query).text, NULL);
        expect(h, 200, "first_id", pages[i].first);
        expect(h, 200, "last_id", pages[i].last);
        assert_int_equal(json_is_true(answer(h, "has_more")), pages[i].more);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        HTTP_TEST(test_create),    HTTP_TEST(test_refusals),          HTTP_TEST(test_list),
        HTTP_TEST(test_long_list), HTTP_TEST(test_daemon_that_stops), HTTP_TEST(test_few_of_many),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
