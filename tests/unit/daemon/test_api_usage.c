/* api_usage by HTTP: who sees what, over many turns, as JSON and CSV, and what is refused. */
#include "daemon/store_attempts.h"
#include "daemon/store_sql.h"
#include "tests/lib/http_world.h"

static void attempts(struct http_world *h, const struct world_job *job, int64_t first, int64_t last)
{
    for (int64_t number = first; number <= last; number++) {
        const struct store_attempt attempt = {.job_id = job->id,
                                              .number = number,
                                              .started_ms = number * 3600000,
                                              .ended_ms = number * 3600000 + 1800000,
                                              .boot_id = "",
                                              .outcome = "ok",
                                              .outcome_text = "",
                                              .gpus = "GPU-a",
                                              .tokens = 7};
        OK(h->w, store_attempt_put(h->w->store, &attempt, &h->w->err));
    }
}

/* Jobs of two attempts each, an hour on one GPU altogether, that were deleted. */
static void deleted_jobs(struct http_world *h, const char *owner, int count)
{
    char sql[512];
    (void)snprintf(
        sql, sizeof sql,
        "WITH RECURSIVE n (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < %d) "
        "INSERT INTO attempts_gone SELECT printf('ftjob-gone-%%08d', i / 2), i %% 2 + 1, "
        "'%s', 'tiny', 'succeeded', 1000, 1801000, 1, 1, 'ok', 0, 5, -1, 3 FROM n",
        2 * count - 1, owner);
    assert_int_equal(sqlite3_exec(h->w->store->databases[STORE_JOBS], sql, NULL, NULL, NULL),
                     SQLITE_OK);
}

static void assert_hours(struct http_world *h, const char *path, double wanted)
{
    const double hours = json_real_value(answer(h, path));
    if (fabs(hours - wanted) > 0.01)
        fail_msg("%s: %g is not %g", path, hours, wanted);
}

static void test_sums_over_turns(void **state)
{
    struct http_world *h = *state;
    struct world_attempt a;
    struct world_job anns = world_queued_as(h->w, "ann", ",\"hold\":true");
    struct world_job bobs = world_queued_as(h->w, "bob", ",\"hold\":true");
    attempts(h, &anns, 1, 1200); /* more than one turn takes */
    attempts(h, &bobs, 1, 10);
    (void)world_running(h->w, &a, "");
    h->w->fake.now_ms += 7200000;
    ask(h, "GET", "/v1/usage", NULL);
    expect(h, 200, "object", "usage");
    expect(h, 200, "by", "user");
    expect(h, 200, "data.0.key", "ann");
    expect(h, 200, "data.1.key", "bob");
    expect(h, 200, "data.2.key", "admin");
    assert_int_equal(answer_int(h, "data.0.attempts"), 1200);
    assert_int_equal(answer_int(h, "data.0.jobs"), 1);
    assert_int_equal(answer_int(h, "data.0.tokens"), 8400);
    assert_hours(h, "data.0.gpu_hours", 1200);
    assert_hours(h, "data.1.gpu_hours", 10);
    assert_hours(h, "data.2.gpu_hours", 0);
    assert_hours(h, "data.2.cpu_slot_hours", 4);
    assert_int_equal(answer_int(h, "total.jobs"), 3);
    assert_true(json_is_false(answer(h, "has_more")));
    ask(h, "GET", "/v1/usage?by=job&limit=1&after=3600&before=43200", NULL);
    expect(h, 200, "data.0.user", "ann");
    assert_int_equal(answer_int(h, "after"), 3600);
    assert_true(answer_int(h, "before") >= 8200); /* now: what is to come is not known */
    assert_true(answer_int(h, "before") < 43200);
    assert_true(json_is_true(answer(h, "has_more")));
    world_attempt_close(&a);
}

/* Each attempt counts once, wherever a turn ends: between two jobs, or within one. */
static void test_many_jobs_over_turns(void **state)
{
    struct http_world *h = *state;
    deleted_jobs(h, "ann", 1300);
    struct world_job bobs = world_queued_as(h->w, "bob", ",\"hold\":true");
    for (int64_t count = 3; count <= 4; count++) {
        attempts(h, &bobs, 1, count);
        ask(h, "GET", "/v1/usage", NULL);
        assert_int_equal(answer_int(h, "data.0.attempts"), 2600);
        assert_int_equal(answer_int(h, "data.0.jobs"), 1300);
        assert_hours(h, "data.0.gpu_hours", 1300);
        assert_int_equal(answer_int(h, "data.1.attempts"), count);
    }
    ask(h, "GET", "/v1/usage?by=job", NULL);
    assert_int_equal(json_array_size(answer(h, "data")), 1000);
    assert_true(json_is_true(answer(h, "has_more")));
    assert_int_equal(answer_int(h, "total.jobs"), 1301);
}

static void test_users_see_their_own(void **state)
{
    struct http_world *h = *state;
    struct world_job anns = world_queued_as(h->w, "ann", ",\"hold\":true");
    struct world_job bobs = world_queued_as(h->w, "bob", ",\"hold\":true");
    attempts(h, &anns, 1, 3);
    attempts(h, &bobs, 1, 4);
    http_world_user(h, "ann");
    for (int by = 0; by < 3; by++) {
        const char *const targets[] = {"/v1/usage", "/v1/usage?by=job", "/v1/usage?by=day"};
        ask(h, "GET", targets[by], NULL);
        assert_int_equal(answer_int(h, "total.attempts"), 3);
        assert_null(answer(h, "data.1"));
    }
    http_world_token(h);
    ask(h, "GET", "/v1/usage", NULL);
    assert_int_equal(answer_int(h, "total.attempts"), 7);
}

static void test_what_is_refused(void **state)
{
    struct http_world *h = *state;
    static const struct {
        const char *query, *field;
    } rows[] = {
        {"by=week", "by"},
        {"format=xml", "format"},
        {"after=-1", "after"},
        {"after=x", "after"},
        {"before=99999999999999", "before"},
        {"after=5&before=5", "before"},
        {"limit=0", "limit"},
        {"limit=10001", "limit"},
        {"by=user&by=job", "by"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ask(h, "GET", http_target("/v1/usage?%s", rows[i].query).text, NULL);
        expect(h, 400, "error.param", rows[i].field);
    }
    ask(h, "POST", "/v1/usage", "{}");
    expect(h, 405, "error.code", "method_not_allowed");
    ask(h, "GET", "/v1/usage", NULL); /* of nothing */
    assert_int_equal(answer_int(h, "total.jobs"), 0);
    assert_true(json_is_null(answer(h, "after")));
}

/* What deleted jobs used stays, unless the operator says for how long. */
static void test_retain_usage_days(void **state)
{
    struct http_world *h = *state;
    deleted_jobs(h, "ann", 150); /* more than a round takes */
    h->w->fake.wall_jump_ms += 40LL * 86400000;
    static const struct {
        int64_t days, left;
    } rows[] = {{0, 300}, {41, 300}, {39, 50}, {39, 0}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        h->settings.retain_usage_days = rows[i].days;
        housekeeping_wake(h->api.housekeeping);
        ask(h, "GET", "/healthz", NULL); /* some turns: a round, and 5 s to the next */
        ask(h, "GET", "/v1/usage", NULL);
        assert_int_equal(answer_int(h, "total.attempts"), rows[i].left);
    }
}

/* Nobody waits for the sums of 400 turns any more: they are not made to their end. */
static void test_client_leaves(void **state)
{
    struct http_world *h = *state;
    struct http_client client;
    deleted_jobs(h, "ann", 50000);
    ask_open(h, &client, "GET", "/v1/usage", "", NULL, 0);
    while (http_is_idle(h->http)) /* until it is read */
        OK(h->w, loop_turn(h->w->loop, 1, &h->w->err));
    for (int i = 0; i < 3; i++)
        OK(h->w, loop_turn(h->w->loop, 1, &h->w->err));
    assert_false(http_is_idle(h->http));
    client_close(&client);
    for (int i = 0; i < 20 && !http_is_idle(h->http); i++)
        OK(h->w, loop_turn(h->w->loop, 1, &h->w->err));
    assert_true(http_is_idle(h->http));
    ask(h, "GET", "/healthz", NULL);
    expect(h, 200, "status", "ok");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        HTTP_TEST(test_sums_over_turns),     HTTP_TEST(test_many_jobs_over_turns),
        HTTP_TEST(test_users_see_their_own), HTTP_TEST(test_what_is_refused),
        HTTP_TEST(test_client_leaves),       HTTP_TEST(test_retain_usage_days),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
