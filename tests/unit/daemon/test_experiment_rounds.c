/* experiment_step: rounds of an experiment by the store alone: how the end of a job becomes its
 * point's, what follows from it for the others, how many are submitted, and the search. */
#include "daemon/experiment_step.h"
#include "daemon/store_experiments.h"
#include "daemon/store_sql.h"
#include "tests/lib/http_world.h"

#define BASE "{\"model\":\"tiny-llama\",\"ithaca\":{\"measure\":true,\"gpus\":1,\"seq_len\":64}}"
#define GRID "{\"kind\":\"grid\",\"grid\":{\"seq_len\":[64]},\"base\":" BASE
#define SEARCH(grid) \
    "{\"kind\":\"find_max_seq_len\",\"seq_len_min\":16,\"grid\":" grid ",\"base\":" BASE

/* An experiment of so many points of one slot each. */
static void begin(struct http_world *h, const char *id, const char *spec, const char *rest,
                  int64_t count)
{
    char text[512];
    struct store_point_row points[40];
    assert_true(count <= 40);
    for (int64_t i = 0; i < count; i++)
        points[i] =
            (struct store_point_row){.number = i,
                                     .status = STORE_POINT_WAITING,
                                     .note = "",
                                     .facts_json = "{\"series\":0,\"seq_len\":64,\"slots\":1}",
                                     .body_json = BASE};
    (void)snprintf(text, sizeof text, "%s%s}", spec, rest);
    const struct store_experiment experiment = {
        .id = id, .owner = "ann", .name = "", .spec_json = text};
    OK(h->w, store_experiment_insert(h->w->store, &experiment, points, (size_t)count, &h->w->err));
}

/* One round after the other, until there is nothing more to do at once. */
static void step(struct http_world *h, const char *id)
{
    bool again = true;
    while (again)
        OK(h->w, experiment_step(&h->api, id, &again, &h->w->err));
}

static void run_sql(struct http_world *h, const char *sql, const char *id)
{
    char text[512];
    (void)snprintf(text, sizeof text, sql, id);
    if (sqlite3_exec(h->w->store->databases[STORE_JOBS], text, NULL, NULL, NULL) != SQLITE_OK)
        fail_msg("%s", text);
}

/* The job of point `number` ends, as far as the store knows. */
static void end_job(struct http_world *h, const char *id, int number, const char *state,
                    const char *reason)
{
    char sql[512];
    (void)snprintf(sql, sizeof sql,
                   "UPDATE jobs SET state = '%s', reason = '%s', reason_text = 'it is told' WHERE "
                   "id = (SELECT job_id FROM experiment_points WHERE number = %d AND "
                   "experiment_id = '%%s')",
                   state, reason, number);
    run_sql(h, sql, id);
}

struct seen {
    char statuses[1024], note[256], job_id[64]; /* the last two of the first point */
    int64_t ended_ms, seq_len;                  /* of the experiment; of the last point */
};

static int see_point(void *context, const struct store_point_row *row, struct err *err)
{
    struct seen *seen = context;
    size_t length = strlen(seen->statuses);
    const char *seq_len = strstr(row->facts_json, "\"seq_len\":");
    (void)snprintf(seen->statuses + length, sizeof seen->statuses - length, "%s%s",
                   length > 0 ? " " : "", row->status);
    if (row->number == 0) {
        (void)snprintf(seen->note, sizeof seen->note, "%s", row->note);
        (void)snprintf(seen->job_id, sizeof seen->job_id, "%s", row->job_id);
    }
    seen->seq_len = seq_len != NULL ? atoll(seq_len + strlen("\"seq_len\":")) : 0;
    return 0;
}

static int see_end(void *context, const struct store_experiment *row, struct err *err)
{
    ((struct seen *)context)->ended_ms = row->ended_ms;
    return 0;
}

static struct seen look(struct http_world *h, const char *id)
{
    struct seen seen = {.statuses = ""};
    OK(h->w, store_experiment_points(h->w->store, id, see_point, &seen, &h->w->err));
    OK(h->w, store_experiment_get(h->w->store, id, see_end, &seen, &h->w->err));
    return seen;
}

static void expect_statuses(struct http_world *h, const char *id, const char *wanted)
{
    assert_string_equal(look(h, id).statuses, wanted);
}

static void test_an_end_and_what_follows(void **state)
{
    static const struct {
        const char *rest, *state, *reason, *wanted;
    } rows[] = {
        {"", "running", "", "submitted submitted waiting"},
        {"", "succeeded", "", "succeeded submitted submitted"},
        {"", "failed", "rank_died", "failed submitted submitted"},
        {"", "failed", "out_of_memory", "failed submitted submitted"},
        {"", "cancelled", "cancelled", "cancelled submitted submitted"},
        {",\"on_failure\":\"stop\"", "succeeded", "", "succeeded submitted submitted"},
        {",\"on_failure\":\"stop\"", "cancelled", "cancelled", "cancelled submitted submitted"},
        {",\"on_failure\":\"stop\"", "failed", "rank_died", "failed submitted cancelled"},
        {",\"on_failure\":\"stop\"", "failed", "host_oom", "failed submitted cancelled"},
    };
    struct http_world *h = *state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char id[32], rest[64];
        (void)snprintf(id, sizeof id, "exp-%zu", i);
        (void)snprintf(rest, sizeof rest, ",\"max_gpus\":2%s", rows[i].rest);
        begin(h, id, GRID, rest, 3);
        step(h, id);
        expect_statuses(h, id, "submitted submitted waiting");
        end_job(h, id, 0, rows[i].state, rows[i].reason);
        step(h, id);
        expect_statuses(h, id, rows[i].wanted);
        struct seen seen = look(h, id);
        assert_int_equal(seen.ended_ms, 0);
        if (strncmp(rows[i].wanted, "submitted", 9) != 0)
            assert_string_equal(seen.note, "it is told");
        world_run(h->w); /* twice is once; jobs that were cancelled have ended then */
        step(h, id);
        bool stops = strstr(rows[i].wanted, "submitted cancelled") != NULL;
        expect_statuses(h, id, stops ? "failed cancelled cancelled" : rows[i].wanted);
        assert_int_equal(look(h, id).ended_ms != 0, stops);
    }
}

/* A job that was deleted before its end was seen is a point that was not run. */
static void test_a_deleted_job(void **state)
{
    struct http_world *h = *state;
    begin(h, "exp", GRID, ",\"on_failure\":\"stop\"", 2);
    step(h, "exp");
    run_sql(h,
            "UPDATE experiment_points SET job_id = 'ftjob-none' WHERE number = 0 AND "
            "experiment_id = '%s'",
            "exp");
    step(h, "exp");
    expect_statuses(h, "exp", "cancelled submitted");
    assert_string_equal(look(h, "exp").note, "its job was deleted");
}

/* What waits is given up at once, what runs is cancelled, and then the experiment has ended. */
static void test_cancelled(void **state)
{
    struct http_world *h = *state;
    begin(h, "exp", GRID, ",\"max_gpus\":1", 2);
    step(h, "exp");
    struct seen seen = look(h, "exp");
    assert_string_equal(seen.statuses, "submitted waiting");
    run_sql(h, "UPDATE experiments SET cancelled = 1 WHERE id = '%s'", "exp");
    step(h, "exp");
    expect_statuses(h, "exp", "submitted cancelled");
    assert_int_equal(look(h, "exp").ended_ms, 0);
    world_run(h->w);
    step(h, "exp");
    expect_statuses(h, "exp", "cancelled cancelled");
    assert_int_equal(look(h, "exp").ended_ms, h->w->fake.host.ops->wall_ms(&h->w->fake.host));
}

static int64_t count_status(const struct seen *seen, const char *status)
{
    int64_t count = 0;
    for (const char *at = strstr(seen->statuses, status); at != NULL; at = strstr(at + 1, status))
        count++;
    return count;
}

/* A few at once, few ahead of the two slots, fewer where the experiment says so. */
static void test_how_many(void **state)
{
    struct http_world *h = *state;
    bool again = false;
    begin(h, "exp", GRID, "", 30);
    OK(h->w, experiment_step(&h->api, "exp", &again, &h->w->err));
    struct seen seen = look(h, "exp");
    assert_int_equal(count_status(&seen, STORE_POINT_SUBMITTED), 8);
    assert_true(again);
    step(h, "exp");
    seen = look(h, "exp");
    assert_int_equal(count_status(&seen, STORE_POINT_SUBMITTED), 18);
    assert_int_equal(count_status(&seen, STORE_POINT_WAITING), 12);
    begin(h, "exp-5", GRID, ",\"max_gpus\":5", 9);
    step(h, "exp-5");
    seen = look(h, "exp-5");
    assert_int_equal(count_status(&seen, STORE_POINT_SUBMITTED), 5);
    OK(h->w, experiment_step(&h->api, "exp-5", &again, &h->w->err));
    assert_false(again);
    begin(h, "exp-8", GRID, "", 8); /* exactly what one round submits */
    OK(h->w, experiment_step(&h->api, "exp-8", &again, &h->w->err));
    assert_false(again);
}

/* A body that is no job any more is refused, and the others go on. */
static void test_refused(void **state)
{
    struct http_world *h = *state;
    begin(h, "exp", GRID, ",\"on_failure\":\"stop\"", 2);
    run_sql(h,
            "UPDATE experiment_points SET body_json = '{\"model\":\"none\"}' WHERE number = 0 "
            "AND experiment_id = '%s'",
            "exp");
    step(h, "exp");
    expect_statuses(h, "exp", STORE_POINT_REFUSED " submitted");
    assert_memory_equal(look(h, "exp").note, "training_file is missing", 24);
}

/* Halving between what ran and what did not; it ends when they are as close as was asked. */
static void test_search(void **state)
{
    static const struct {
        const char *state, *reason;
        int64_t next; /* length; 0: none, it has ended */
    } rows[] = {
        {"failed", "out_of_memory", 40},
        {"failed", "time_limit", 24},
        {"succeeded", "", 32},
        {"failed", "host_oom", 0},
    };
    struct http_world *h = *state;
    begin(h, "exp", SEARCH("{}"), ",\"seq_len_step\":8,\"on_failure\":\"stop\"",
          1); /* too long is no failure here */
    step(h, "exp");
    for (int i = 0; i < (int)(sizeof rows / sizeof rows[0]); i++) {
        end_job(h, "exp", i, rows[i].state, rows[i].reason);
        step(h, "exp");
        struct seen seen = look(h, "exp");
        assert_int_equal(count_status(&seen, STORE_POINT_SUBMITTED), rows[i].next > 0);
        assert_int_equal(seen.ended_ms != 0, rows[i].next == 0);
        if (rows[i].next > 0)
            assert_int_equal(seen.seq_len, rows[i].next);
    }
    begin(h, "exp-b", SEARCH("{}"), "", 1); /* another fault says nothing of lengths */
    step(h, "exp-b");
    end_job(h, "exp-b", 0, "failed", "rank_died");
    step(h, "exp-b");
    expect_statuses(h, "exp-b", "failed");
    assert_int_not_equal(look(h, "exp-b").ended_ms, 0);
}

/* Two searches beside each other: one breaks and stays so, the other goes on, to a sixteenth. */
static void test_searches_side_by_side(void **state)
{
    struct http_world *h = *state;
    begin(h, "exp", SEARCH("{\"priority\":[1,2]}"), "", 2);
    run_sql(h,
            "UPDATE experiment_points SET facts_json = "
            "'{\"series\":1,\"seq_len\":64,\"slots\":1}' WHERE number = 1 AND "
            "experiment_id = '%s'",
            "exp");
    step(h, "exp");
    end_job(h, "exp", 0, "failed", "rank_died");
    end_job(h, "exp", 1, "failed", "out_of_memory");
    step(h, "exp");
    expect_statuses(h, "exp", "failed failed submitted");
    assert_int_equal(look(h, "exp").seq_len, 40);
    end_job(h, "exp", 2, "succeeded", "");
    step(h, "exp");
    expect_statuses(h, "exp", "failed failed succeeded submitted");
    assert_int_equal(look(h, "exp").seq_len, 52);
}

/* A daemon that stops takes in what has ended, and leaves what follows to the next one. */
static void test_stopping(void **state)
{
    struct http_world *h = *state;
    begin(h, "exp", GRID, ",\"max_gpus\":1", 2);
    step(h, "exp");
    coordinator_stop(h->w->coordinator);
    end_job(h, "exp", 0, "succeeded", "");
    step(h, "exp");
    expect_statuses(h, "exp", "succeeded waiting");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        HTTP_TEST(test_an_end_and_what_follows),
        HTTP_TEST(test_a_deleted_job),
        HTTP_TEST(test_cancelled),
        HTTP_TEST(test_how_many),
        HTTP_TEST(test_refused),
        HTTP_TEST(test_search),
        HTTP_TEST(test_searches_side_by_side),
        HTTP_TEST(test_stopping),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
