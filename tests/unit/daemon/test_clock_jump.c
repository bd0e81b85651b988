/* The wall clock is set a day forward, then back: what counts in durations (limits, use, the queue)
 * goes on as if nothing had happened; what is a date (a token's end) goes by the clock, and comes
 * back with it. */
#include "daemon/store_attempts.h"
#include "tests/lib/http_world.h"

#define DAY_MS (86400 * 1000LL)

/* Seconds of use that fair share sees. */
static double used_s(struct http_world *h)
{
    ask(h, "GET", "/v1/queue", NULL);
    assert_int_equal(h->status, 200);
    return json_number_value(answer(h, "users.0.used_s"));
}

static void jump(struct http_world *h, int64_t ms)
{
    h->w->fake.wall_jump_ms += ms;
    for (int i = 0; i < 3; i++)
        world_run(h->w);
}

static void test_running_job_and_use(void **state)
{
    struct http_world *h = *state;
    struct world_attempt a;
    jump(h, 20000 * DAY_MS); /* to these years */
    struct world_job job = world_running(h->w, &a, ",\"time_limit_s\":3600");
    h->w->fake.now_ms += 5000;
    world_run(h->w);
    const double before_s = used_s(h);
    assert_true(before_s > 0);
    static const int64_t jumps[] = {DAY_MS, -2 * DAY_MS, DAY_MS};
    for (size_t i = 0; i < sizeof jumps / sizeof jumps[0]; i++) {
        jump(h, jumps[i]);
        world_expect(h->w, &job, JOB_STATE_RUNNING); /* neither hung nor beyond its limit */
        double after_s = used_s(h);
        if (after_s < before_s || after_s > before_s + 60)
            fail_msg("use was %g s and is %g s", before_s, after_s);
        ask(h, "GET", "/v1/queue", NULL);
        int64_t now_s = h->w->fake.host.ops->wall_ms(&h->w->fake.host) / 1000;
        int64_t end_s = answer_int(h, "running.0.estimated_end");
        assert_true(end_s >= now_s);              /* of the clock as it is now */
        assert_true(end_s <= now_s + 3600 + 120); /* its limit, and the queue's margin */
    }
    world_attempt_close(&a);
}

static int take_use(void *ret_used_s, const struct coordinator_user *user, struct err *err)
{
    *(double *)ret_used_s = user->used_s;
    return 0;
}

/* Use that was written while the clock was a year ahead fades again from the next start on. */
static void test_use_of_the_future(void **state)
{
    struct world *w = *state;
    const int64_t now_ms = w->fake.host.ops->wall_ms(&w->fake.host);
    const struct store_usage row = {
        .owner = "ann", .used_s = 1000, .total_s = 1000, .at_ms = now_ms + 365 * DAY_MS};
    double used = 0;
    OK(w, store_usage_put(w->store, &row, &w->err));
    world_reopen(w);
    w->fake.now_ms += w->config.fair_share_half_life_ms;
    OK(w, coordinator_users_list(w->coordinator, take_use, &used, &w->err));
    assert_true(used > 490 && used < 510);
}

/* Hours that `GET /v1/usage` tells of all. */
static void expect_hours(struct http_world *h, double wanted)
{
    ask(h, "GET", "/v1/usage", NULL);
    assert_int_equal(h->status, 200);
    const double hours = json_number_value(answer(h, "total.cpu_slot_hours"));
    if (fabs(hours - wanted) > 0.01)
        fail_msg("%g hours, not %g", hours, wanted);
}

/* Hours are those that were held, whatever the clock was set to meanwhile: a machine without a
 * battery starts in 1970, and is told the time when it has a network. */
static void test_hours(void **state)
{
    struct http_world *h = *state;
    struct world_attempt a;
    (void)world_running(h->w, &a, ""); /* two ranks */
    h->w->fake.now_ms += 1800000;
    world_run(h->w);
    expect_hours(h, 1);
    static const int64_t jumps[] = {20000 * DAY_MS, -DAY_MS,         1000,          1000,
                                    1000,           -19990 * DAY_MS, 20000 * DAY_MS};
    for (size_t i = 0; i < sizeof jumps / sizeof jumps[0]; i++) {
        jump(h, jumps[i]);
        expect_hours(h, 1);
    }
    h->w->fake.now_ms += 1800000;
    h->w->fake.wall_jump_ms += DAY_MS; /* just before its end */
    world_end_done(&a);
    world_attempt_close(&a);
    expect_hours(h, 2);
    jump(h, -2 * DAY_MS); /* what has ended stays */
    expect_hours(h, 2);
}

static int take_start(void *ret_started_ms, const struct store_attempt *attempt, struct err *err)
{
    *(int64_t *)ret_started_ms = attempt->started_ms;
    return 0;
}

/* The same where a daemon has taken the ranks over: their start goes with the clock. */
static void test_hours_of_adopted(void **state)
{
    struct world *w = *state;
    struct world_attempt a;
    int64_t before_ms = 0, after_ms = 0;
    struct world_job job = world_running(w, &a, "");
    w->fake.adoptable = (struct host_identity){.pid = a.keeper->pid, .start_time = 77};
    OK(w, store_attempt_get(w->store, job.id, 1, take_start, &before_ms, &w->err));
    world_reopen(w);
    world_run(w);
    assert_non_null(fake_host_find(&w->fake, "adopted"));
    w->fake.wall_jump_ms += DAY_MS;
    world_run(w);
    OK(w, store_attempt_get(w->store, job.id, 1, take_start, &after_ms, &w->err));
    assert_int_equal(after_ms, before_ms + DAY_MS);
    world_attempt_close(&a);
}

static void test_tokens(void **state)
{
    struct http_world *h = *state;
    jump(h, 20000 * DAY_MS);
    ask(h, "POST", "/v1/tokens", "{\"user\":\"ann\",\"scope\":\"admin\",\"expires_in_s\":3600}");
    assert_int_equal(h->status, 200);
    (void)snprintf(h->token, sizeof h->token, "%s", json_string_value(answer(h, "token")));
    static const struct {
        int64_t jump_ms;
        int status;
    } rows[] = {{0, 200}, {DAY_MS, 401}, {-DAY_MS, 200}, {-DAY_MS, 200}, {DAY_MS, 200}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        jump(h, rows[i].jump_ms);
        ask(h, "GET", "/v1/files", NULL);
        assert_int_equal(h->status, rows[i].status);
    }
    http_world_token(h); /* the admin's has no end */
    jump(h, DAY_MS);
    ask(h, "GET", "/v1/files", NULL);
    assert_int_equal(h->status, 200);
}

int main(void)
{
    const struct CMUnitTest tests[] = {HTTP_TEST(test_running_job_and_use), HTTP_TEST(test_hours),
                                       WORLD_TEST(test_hours_of_adopted),
                                       WORLD_TEST(test_use_of_the_future), HTTP_TEST(test_tokens)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
