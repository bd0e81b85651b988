/* replay: what is sent again does not act again: by its key for a day, by the SDKs' retry count for
 * ten minutes; another body, another caller and another path are other requests. */
#include "daemon/store_sql.h"
#include "tests/lib/http_world.h"

#define JOB "{\"model\":\"tiny-llama\",\"training_file\":\"file-a\"}"
#define OTHER_JOB "{\"model\":\"tiny-llama\",\"training_file\":\"file-a\",\"seed\":9}"

enum { HOUR_MS = 3600 * 1000 };

/* The id of the answer. */
static const char *post(struct http_world *h, const char *target, const char *headers,
                        const char *body)
{
    static char id[LIMIT_ID_BYTES + 1];
    ask_with(h, "POST", target, headers, body, strlen(body));
    const char *text = json_string_value(answer(h, "id"));
    (void)snprintf(id, sizeof id, "%s", text != NULL ? text : "");
    return id;
}

static void expect_replayed(const struct http_world *h, bool replayed)
{
    assert_int_equal(strstr(h->head, "Idempotent-Replayed: true\r\n") != NULL, replayed);
}

static int64_t count_jobs(struct http_world *h)
{
    ask(h, "GET", JOBS "?limit=100", NULL);
    return (int64_t)json_array_size(answer(h, "data"));
}

#define KEY(key) "Idempotency-Key: " key "\r\n"
#define RETRY(count) "x-stainless-retry-count: " count "\r\n"

static void test_keys(void **state)
{
    struct http_world *h = *state;
    char first[LIMIT_ID_BYTES + 1];
    http_world_file(h, "file-a", "{}");
    (void)snprintf(first, sizeof first, "%s", post(h, JOBS, KEY("one"), JOB));
    expect_replayed(h, false);
    assert_string_equal(post(h, JOBS, KEY("one"), JOB), first);
    expect_replayed(h, true);
    expect(h, 200, "object", "fine_tuning.job");
    (void)post(h, JOBS, KEY("one"), OTHER_JOB);
    expect(h, 422, "error.code", "idempotency_key_reused");
    expect(h, 422, "error.param", "Idempotency-Key");
    (void)post(h, JOBS "/ftjob-none/cancel", KEY("one"), ""); /* a key is of its path */
    assert_int_equal(h->status, 404);
    assert_string_not_equal(post(h, JOBS, KEY("two"), JOB), first);
    assert_string_not_equal(post(h, JOBS, "", JOB), first);
    assert_int_equal(count_jobs(h), 3);
    h->w->fake.now_ms += 24LL * HOUR_MS - 1;
    assert_string_equal(post(h, JOBS, KEY("one"), JOB), first);
    h->w->fake.now_ms += 1;
    assert_string_not_equal(post(h, JOBS, KEY("one"), OTHER_JOB), first);
    assert_int_equal(h->status, 200);
    assert_int_equal(count_jobs(h), 4);
}

static void test_refused_ones_are_not_remembered(void **state)
{
    struct http_world *h = *state;
    (void)post(h, JOBS, KEY("one"), JOB);
    assert_int_equal(h->status, 400); /* there is no such file */
    http_world_file(h, "file-a", "{}");
    (void)post(h, JOBS, KEY("one"), OTHER_JOB);
    assert_int_equal(h->status, 200);
    expect_replayed(h, false);
    static const char *const bad[] = {KEY(""), KEY("a\tb"), KEY("\xc3\xa4")};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        (void)post(h, JOBS, bad[i], JOB);
        expect(h, 400, "error.param", "Idempotency-Key");
    }
    char longest[300];
    (void)snprintf(longest, sizeof longest, "Idempotency-Key: %0256d\r\n", 0);
    (void)post(h, JOBS, longest, JOB);
    expect(h, 400, "error.param", "Idempotency-Key");
    assert_int_equal(count_jobs(h), 1);
    (void)snprintf(longest, sizeof longest, "Idempotency-Key:  ~%0252d ~\r\n", 0);
    (void)post(h, JOBS, longest, JOB); /* 255 of them, and space within */
    assert_int_equal(h->status, 200);
}

static void test_retries_of_sdks(void **state)
{
    struct http_world *h = *state;
    char first[LIMIT_ID_BYTES + 1], second[LIMIT_ID_BYTES + 1];
    http_world_file(h, "file-a", "{}");
    (void)snprintf(first, sizeof first, "%s", post(h, JOBS, RETRY("0"), JOB));
    assert_string_equal(post(h, JOBS, RETRY("1"), JOB), first);
    expect_replayed(h, true);
    assert_string_equal(post(h, JOBS, RETRY("2"), JOB), first);
    assert_string_not_equal(post(h, JOBS, RETRY("1"), OTHER_JOB), first); /* its first was lost */
    (void)snprintf(second, sizeof second, "%s", post(h, JOBS, RETRY("0"), JOB));
    assert_string_not_equal(second, first); /* the same job, meant twice */
    assert_string_equal(post(h, JOBS, RETRY("1"), JOB), second);
    h->w->fake.now_ms += HOUR_MS / 6 - 1;
    assert_string_equal(post(h, JOBS, RETRY("1"), JOB), second);
    h->w->fake.now_ms += 1;
    assert_string_not_equal(post(h, JOBS, RETRY("1"), JOB), second);
    assert_int_equal(count_jobs(h), 4);
    /* Of this one no SDK said that it may come again. */
    (void)snprintf(second, sizeof second, "%s", post(h, JOBS, "", OTHER_JOB));
    assert_string_not_equal(post(h, JOBS, RETRY("1"), OTHER_JOB), second);
}

static int64_t count_kept(struct http_world *h)
{
    int64_t count = 0;
    OK(h->w, store_query_i64(h->w->store, STORE_JOBS, "SELECT count(*) FROM replays", NULL, &count,
                             &h->w->err));
    return count;
}

/* The newest ten thousand are kept, and none that has ended. */
static void test_old_ones_go(void **state)
{
    struct http_world *h = *state;
    char first[LIMIT_ID_BYTES + 1], second[LIMIT_ID_BYTES + 1];
    http_world_file(h, "file-a", "{}");
    (void)snprintf(first, sizeof first, "%s", post(h, JOBS, KEY("1"), JOB));
    (void)snprintf(second, sizeof second, "%s", post(h, JOBS, KEY("2"), JOB));
    assert_int_equal(sqlite3_exec(h->w->store->databases[STORE_JOBS],
                                  "UPDATE sqlite_sequence SET seq = 10000 WHERE name = 'replays'",
                                  NULL, NULL, NULL),
                     SQLITE_OK);
    (void)post(h, JOBS, KEY("10001"), JOB);
    assert_int_equal(count_kept(h), 3);
    (void)post(h, JOBS, KEY("10002"), JOB);
    assert_int_equal(count_kept(h), 3);
    assert_string_equal(post(h, JOBS, KEY("2"), JOB), second);
    assert_string_not_equal(post(h, JOBS, KEY("1"), JOB), first);
    h->w->fake.now_ms += 24LL * HOUR_MS;
    (void)post(h, JOBS, KEY("1"), JOB);
    assert_int_equal(count_kept(h), 1);
}

static const char *upload(struct http_world *h, const char *headers, const char *boundary,
                          const char *name, const char *bytes)
{
    char body[512], lines[256];
    (void)snprintf(lines, sizeof lines, "Content-Type: multipart/form-data; boundary=%s\r\n%s",
                   boundary, headers);
    (void)snprintf(body, sizeof body,
                   "--%s\r\nContent-Disposition: form-data; name=\"file\"; filename=\"%s\"\r\n\r\n"
                   "%s\r\n--%s\r\nContent-Disposition: form-data; name=\"purpose\"\r\n\r\n"
                   "fine-tune\r\n--%s--\r\n",
                   boundary, name, bytes, boundary, boundary);
    return post(h, "/v1/files", lines, body);
}

static void test_uploads(void **state)
{
    struct http_world *h = *state;
    char first[LIMIT_ID_BYTES + 1];
    (void)snprintf(first, sizeof first, "%s", upload(h, RETRY("0"), "xyz", "a", "{}"));
    assert_string_equal(upload(h, RETRY("1"), "other", "a", "{}"), first); /* SDKs draw anew */
    expect_replayed(h, true);
    expect(h, 200, "object", "file");
    assert_string_not_equal(upload(h, RETRY("1"), "xyz", "a", "{ }"), first);
    assert_string_not_equal(upload(h, RETRY("1"), "xyz", "b", "{}"), first);
    ask(h, "GET", "/v1/files", NULL);
    assert_int_equal(json_array_size(answer(h, "data")), 3);
    (void)snprintf(first, sizeof first, "%s", upload(h, KEY("k"), "xyz", "a", "{}"));
    (void)upload(h, KEY("k"), "xyz", "a", "{\"other\":1}");
    assert_int_equal(h->status, 422);
    assert_string_equal(upload(h, KEY("k"), "abc", "a", "{}"), first);
}

/* An answer that is kept whole, and one with a secret that is not. */
static void test_other_answers(void **state)
{
    struct http_world *h = *state;
    static const char estimate[] = "{\"model\":\"tiny-llama\"}", token[] = "{\"user\":\"ann\"}";
    ask_with(h, "POST", "/v1/fine_tuning/estimate", KEY("e"), estimate, strlen(estimate));
    assert_int_equal(h->status, 200);
    CLEANUP(mem_free_ptr) char *first = mem_strdup(h->body);
    ask_with(h, "POST", "/v1/fine_tuning/estimate", KEY("e"), estimate, strlen(estimate));
    expect_replayed(h, true);
    assert_string_equal(h->body, first);
    char made[LIMIT_ID_BYTES + 1];
    (void)snprintf(made, sizeof made, "%s", post(h, "/v1/tokens", KEY("t"), token));
    assert_string_not_equal(post(h, "/v1/tokens", KEY("t"), token), made);
    assert_int_equal(h->status, 200);
}

/* One user's keys are not another's. */
static void test_callers(void **state)
{
    struct http_world *h = *state;
    char first[LIMIT_ID_BYTES + 1];
    http_world_file(h, "file-a", "{}");
    (void)snprintf(first, sizeof first, "%s", post(h, JOBS, KEY("k") RETRY("0"), JOB));
    http_world_user(h, "admin");
    assert_string_not_equal(post(h, JOBS, KEY("k"), JOB), first);
    assert_int_equal(h->status, 200);
    assert_string_not_equal(post(h, JOBS, RETRY("1"), JOB), first);
    http_world_token(h);
    assert_string_equal(post(h, JOBS, KEY("k"), JOB), first);
}

/* Events of what a request changed name it; see test_api_control too. */
static void test_events_name_who_asked(void **state)
{
    struct http_world *h = *state;
    char id[64];
    http_world_file(h, "file-a", "{}");
    (void)snprintf(id, sizeof id, "%s", post(h, JOBS, "", JOB));
    const char *request_id = strstr(h->head, "X-Request-Id: ") + strlen("X-Request-Id: ");
    CLEANUP(mem_free_ptr) char *asked = mem_strndup(request_id, strcspn(request_id, "\r"));
    ask(h, "GET", http_target(JOBS "/%s/events", id).text, NULL);
    expect(h, 200, "data.0.data.state", "validating");
    expect(h, 200, "data.0.data.user", "admin");
    expect(h, 200, "data.0.data.request_id", asked);
}

/* A job whose request cannot be remembered is not made either. */
static void test_both_or_neither(void **state)
{
    struct http_world *h = *state;
    sqlite3 *jobs = h->w->store->databases[STORE_JOBS];
    char first[LIMIT_ID_BYTES + 1];
    http_world_file(h, "file-a", "{}");
    assert_int_equal(sqlite3_exec(jobs,
                                  "CREATE TRIGGER no BEFORE INSERT ON replays BEGIN "
                                  "SELECT raise(ABORT, 'no'); END",
                                  NULL, NULL, NULL),
                     SQLITE_OK);
    (void)post(h, JOBS, KEY("one"), JOB);
    assert_int_equal(h->status, 500);
    assert_int_equal(count_jobs(h), 0);
    assert_int_equal(sqlite3_exec(jobs, "DROP TRIGGER no", NULL, NULL, NULL), SQLITE_OK);
    (void)snprintf(first, sizeof first, "%s", post(h, JOBS, KEY("one"), JOB));
    assert_string_equal(post(h, JOBS, KEY("one"), JOB), first);
    assert_int_equal(count_jobs(h), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        HTTP_TEST(test_keys),
        HTTP_TEST(test_refused_ones_are_not_remembered),
        HTTP_TEST(test_uploads),
        HTTP_TEST(test_retries_of_sdks),
        HTTP_TEST(test_old_ones_go),
        HTTP_TEST(test_callers),
        HTTP_TEST(test_other_answers),
        HTTP_TEST(test_events_name_who_asked),
        HTTP_TEST(test_both_or_neither),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
