/* coordinator: jobs from submit to each of their ends, on a fake host with fake ranks that connect
 * to the real job socket. */
#include "daemon/coordinator_private.h"
#include "daemon/store_sql.h"
#include "tests/lib/coordinator_world.h"

#include <math.h>
#include <sys/resource.h>

static int copy_details(void *context, const struct store_file *file, struct err *err)
{
    (void)snprintf(context, 256, "%s|%s", file->status, file->status_details);
    return 0;
}

static void add_file(struct world *w)
{
    const struct store_file file = {.id = "file-a",
                                    .filename = "train.jsonl",
                                    .purpose = "fine-tune",
                                    .status = "uploaded",
                                    .status_details = "",
                                    .hash = "",
                                    .owner = "admin"};
    OK(w, store_file_insert(w->store, &file, &w->err));
}

static int join_event(void *context, const struct store_event *event, struct err *err)
{
    char *text = context;
    size_t length = strlen(text);
    (void)snprintf(text + length, 2048 - length, "%s\n", event->message);
    return 0;
}

static int count_point(void *context, const struct store_point *point, struct err *err)
{
    ++*(int *)context;
    return 0;
}

static void test_success(void **state)
{
    struct world *w = *state;
    struct world_attempt a;
    add_file(w);
    struct world_job job = world_running(w, &a, "");
    assert_int_equal(a.plan.attempt, 1);
    assert_int_equal(a.plan.world, 2);
    assert_true(a.plan.threads >= 1);
    struct wire_frame metrics = {.type = WIRE_METRICS,
                                 .metrics = {.step = 3, .wall_s = 17, .count = 2}};
    metrics.metrics.points[0] = (struct wire_point){.metric = METRIC_LOSS, .value = 2.5};
    metrics.metrics.points[1] = (struct wire_point){.metric = METRIC_GRAD_NORM, .value = NAN};
    world_send(&a, 0, metrics);
    world_send(&a, 1, (struct wire_frame){.type = WIRE_EVENT, .event = {.level = 1, .text = "hm"}});
    world_pass(w, 1500);
    uint32_t seen = 0;
    assert_true(world_receive(&a, 0, WIRE_SEEN, &seen));
    assert_int_equal(seen, a.next_seq[0]);
    int points = 0;
    OK(w, store_points_after(w->store, job.id, 0, 10, count_point, &points, &w->err));
    assert_int_equal(points, 2);
    assert_true(w->point_note > 0);
    assert_int_equal(world_row(w, &job).steps_done, 3);
    assert_int_equal(world_row(w, &job).steps_total, 5);

    world_end_done(&a);
    world_expect(w, &job, JOB_STATE_SUCCEEDED);
    struct world_row row = world_row(w, &job);
    assert_int_equal(row.trained_tokens, 1234);
    assert_int_equal(row.steps_done, 5);
    assert_true(row.started_ms > 0 && row.finished_ms >= row.started_ms);
    char wanted[128], events[2048] = "", details[256];
    (void)snprintf(wanted, sizeof wanted, "ft:tiny-llama:local:sail:%s",
                   job.id + strlen(job.id) - 8);
    assert_string_equal(row.result, wanted);
    OK(w, store_file_get(w->store, "file-a", copy_details, details, &w->err));
    assert_string_equal(details, "processed|");
    OK(w, store_events_after(w->store, job.id, 0, 20, join_event, events, &w->err));
    assert_non_null(strstr(events,
                           "10 training examples of 500 tokens, 300 with loss; 3 longer than "
                           "seq_len, 20 tokens of these unused; 2 lines"));
    assert_non_null(strstr(events, "Job is starting: attempt 1, 2 ranks."));
    assert_non_null(strstr(events, "hm\n"));
    assert_non_null(strstr(events, "Job succeeded: the model is ft:"));
    int64_t newest = 0;
    OK(w, store_events_newest(w->store, &newest, &w->err));
    assert_int_equal(w->event_note, newest);
    assert_true(coordinator_is_idle(w->coordinator));
    assert_int_equal(w->fake.session, a.keeper->pid);
    assert_int_equal(coordinator_cancel(w->coordinator, job.id, &w->err), -ERR_BAD_STATE);
    world_attempt_close(&a);
}

static void test_bad_lines_refuse_the_job(void **state)
{
    struct world *w = *state;
    add_file(w);
    struct world_job job = world_submit(w, 2, "");
    world_run(w);
    struct coordinator_view view;
    coordinator_view(w->coordinator, job.id, &view);
    assert_string_equal(view.pending_reason, "its files are being checked");
    world_prepare(
        w, "{\"lines\":90,\"kept\":88,\"dropped\":2,\"bad\":2,\"hopeless\":true,\"tokens\":1,"
           "\"trained_tokens\":1,\"overlength\":0,\"tokens_cut\":0,\"faults\":[{\"line\":"
           "57,\"column\":14,"
           "\"code\":\"invalid_json\",\"message\":\"a quote is missing\"},"
           "{\"line\":80,\"column\":0,\"code\":\"data_type\",\"message\":\"a list\"}]}");
    world_expect(w, &job, JOB_STATE_FAILED);
    struct world_row row = world_row(w, &job);
    assert_string_equal(row.reason, "invalid_data");
    assert_string_equal(row.text, "training_file file-a cannot be used (88 of 90 lines kept): "
                                  "line 57 column 14: invalid_json: a quote is missing; "
                                  "line 80: data_type: a list");
    char details[256];
    OK(w, store_file_get(w->store, "file-a", copy_details, details, &w->err));
    assert_string_equal(details, "error|line 57 column 14: invalid_json: a quote is missing\n"
                                 "line 80: data_type: a list");
    assert_null(fake_host_find(&w->fake, "--keep"));
}

static void test_nothing_to_train_on(void **state)
{
    struct world *w = *state;
    struct world_job job = world_submit(w, 1, "");
    world_run(w);
    world_prepare(w, "{\"lines\":3,\"kept\":0,\"dropped\":3,\"bad\":0,\"tokens\":0,"
                     "\"trained_tokens\":0,\"overlength\":0,\"tokens_cut\":0,\"faults\":[]}");
    struct world_row row = world_row(w, &job);
    assert_string_equal(row.reason, "invalid_data");
    assert_non_null(strstr(row.text, "it holds no example to train on"));
}

static void test_prepare_child_fails(void **state)
{
    struct world *w = *state;
    struct world_job told = world_submit(w, 1, "");
    world_run(w);
    struct host_process *child = fake_host_find(&w->fake, "--prepare");
    struct prepare_request request;
    OK(w, prepare_request_read(child->argument, &request, &w->err));
    assert_int_equal(request.file_count, 1);
    assert_string_equal(request.model_dir, "/models/tiny");
    struct err why, unused;
    (void)err_set(&why, ERR_MODEL, "config.json: no hidden_size");
    OK(w, prepare_error_write(request.error_path, &why, &unused));
    prepare_request_done(&request);
    fake_host_end(child, 65, 0);
    world_run(w);
    assert_string_equal(world_row(w, &told).reason, "invalid_model");
    assert_string_equal(world_row(w, &told).text, "config.json: no hidden_size");

    struct world_job killed = world_submit(w, 1, "");
    world_run(w);
    fake_host_end(fake_host_find(&w->fake, "--prepare"), 0, SIGSEGV);
    world_run(w);
    assert_string_equal(world_row(w, &killed).reason, "internal");
    assert_non_null(strstr(world_row(w, &killed).text, "signal 11"));

    struct world_job silent = world_submit(w, 1, "");
    world_run(w);
    fake_host_end(fake_host_find(&w->fake, "--prepare"), 0, 0); /* no report */
    world_run(w);
    world_expect(w, &silent, JOB_STATE_FAILED);
}

static void test_worker_cannot_be_started(void **state)
{
    struct world *w = *state;
    struct world_job job = world_submit(w, 2, "");
    world_run(w);
    w->fake.spawn_fails = true;
    world_prepare(w, WORLD_GOOD_REPORT);
    world_expect_failed(w, &job, "rank_start_failed", "");
    w->fake.spawn_fails = false;
    struct world_attempt a; /* the slots were given back */
    (void)world_running(w, &a, "");
    world_attempt_close(&a);
}

static void test_queue_and_priority(void **state)
{
    struct world *w = *state;
    struct world_attempt a;
    struct world_job first = world_running(w, &a, "");
    struct world_job low = world_submit(w, 1, "");
    world_run(w);
    world_prepare(w, WORLD_GOOD_REPORT);
    struct world_job high = world_queued(w, ",\"priority\":5");
    struct coordinator_view view;
    coordinator_view(w->coordinator, high.id, &view);
    assert_int_equal(view.queue_position, 1);
    assert_string_equal(view.pending_reason, "needs 2 of 2 slots, 0 free");
    coordinator_view(w->coordinator, low.id, &view);
    assert_int_equal(view.queue_position, 2);
    assert_string_equal(view.pending_reason, "waits behind 1 other job");
    OK(w, coordinator_cancel(w->coordinator, high.id, &w->err));
    world_run(w);
    world_expect(w, &high, JOB_STATE_CANCELLED);
    coordinator_view(w->coordinator, low.id, &view);
    assert_int_equal(view.queue_position, 1);
    world_end_done(&a);
    world_attempt_close(&a);
    world_expect(w, &first, JOB_STATE_SUCCEEDED);
    world_expect(w, &low, JOB_STATE_STARTING);
    assert_int_equal(coordinator_slots(w->coordinator), 2);
}

static void test_two_prepare_children_at_once(void **state)
{
    struct world *w = *state;
    struct world_job jobs[3];
    for (int i = 0; i < 3; i++)
        jobs[i] = world_submit(w, 1, "");
    world_run(w);
    assert_int_equal(w->fake.count, 2);
    struct coordinator_view view;
    coordinator_view(w->coordinator, jobs[2].id, &view);
    assert_string_equal(view.pending_reason, "waits for the check of other jobs' files");
    world_prepare(w, WORLD_GOOD_REPORT);
    world_expect(w, &jobs[2], JOB_STATE_VALIDATING);
    coordinator_view(w->coordinator, jobs[2].id, &view);
    assert_string_equal(view.pending_reason, "its files are being checked");
}

static void limit_metrics_file(struct world *w, const char *sql)
{
    assert_int_equal(sqlite3_exec(w->store->databases[STORE_METRICS], sql, NULL, NULL, NULL),
                     SQLITE_OK);
}

static void test_disk_full_keeps_frames_unseen(void **state)
{
    struct world *w = *state;
    struct world_attempt a;
    struct world_job job = world_running(w, &a, "");
    uint32_t seen = 0;
    (void)world_receive(&a, 0, WIRE_SEEN, &seen);
    limit_metrics_file(w, "PRAGMA max_page_count = 1"); /* as many as it has now */
    struct wire_frame metrics = {.type = WIRE_METRICS, .metrics = {.count = METRIC_COUNT}};
    for (uint16_t i = 0; i < METRIC_COUNT; i++)
        metrics.metrics.points[i].metric = i;
    for (uint64_t step = 1; step <= 90; step++) {
        metrics.metrics.step = step;
        world_send(&a, 0, metrics);
    }
    world_run(w);
    assert_false(world_receive(&a, 0, WIRE_SEEN, &seen));
    limit_metrics_file(w, "PRAGMA max_page_count = 1000000");
    world_run(w);
    assert_true(world_receive(&a, 0, WIRE_SEEN, &seen));
    assert_int_equal(seen, a.next_seq[0]);
    struct store_point_query query = {.job_id = job.id, .all_metrics = true, .limit = 10000};
    int points = 0;
    bool more = false;
    OK(w, store_points_list(w->store, &query, count_point, &points, &more, &w->err));
    assert_int_equal(points, 90 * METRIC_COUNT);
    world_attempt_close(&a);
}

/* A rehearsal of eight is one process that measures; done without a measurement it has failed, and
 * no model makes up for that. */
static void test_rehearsal(void **state)
{
    struct world *w = *state;
    struct world_attempt a;
    struct world_job job = world_running(w, &a, ",\"rehearse\":{\"world\":8}");
    assert_int_equal(a.plan.world, 1);
    assert_int_equal(launch_plan_ranks(&a.plan), 8);
    assert_int_equal(a.plan.purpose, LAUNCH_MEASURE);
    assert_int_equal(a.plan.spec.max_steps, 3);
    world_end_done(&a);
    world_expect(w, &job, JOB_STATE_FAILED);
    assert_non_null(strstr(world_row(w, &job).text, "measured.json"));
    assert_string_equal(world_row(w, &job).result, "");
    world_attempt_close(&a);
}

/* Steps that take long are some a tick, so that others are served meanwhile; each job has its. */
static void test_a_tick_has_an_end(void **state)
{
    struct world *w = *state;
    for (int i = 0; i < 30; i++)
        (void)world_submit(w, 1, "");
    world_run(w);
    const int64_t before = w->coordinator->round;
    int ticks = 1;
    w->fake.look_ms = 1;
    while (coordinator_tick(w->coordinator) && ticks < 100)
        ticks++;
    assert_in_range(ticks, 30 / COORDINATOR_SLICE_MS, 30);
    assert_int_equal(w->coordinator->round, before + 1);
    for (struct coordinator_job *job = w->coordinator->jobs; job != NULL; job = job->next)
        assert_int_equal(job->round, before + 1);
}

/* A step that fails is tried again after a second, not in each tick. */
static void test_a_step_that_fails_is_tried_again(void **state)
{
    struct world *w = *state;
    struct rlimit all;
    (void)world_submit(w, 1, "");
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &all), 0);
    const struct rlimit none = {.rlim_cur = 0, .rlim_max = all.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0); /* none that is not open already */
    (void)coordinator_tick(w->coordinator);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &all), 0);
    w->fake.now_ms += COORDINATOR_RETRY_MS - 1;
    (void)coordinator_tick(w->coordinator);
    assert_null(fake_host_find(&w->fake, "--prepare"));
    w->fake.now_ms += 1;
    (void)coordinator_tick(w->coordinator);
    assert_non_null(fake_host_find(&w->fake, "--prepare"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        WORLD_TEST(test_success),
        WORLD_TEST(test_bad_lines_refuse_the_job),
        WORLD_TEST(test_nothing_to_train_on),
        WORLD_TEST(test_prepare_child_fails),
        WORLD_TEST(test_worker_cannot_be_started),
        WORLD_TEST(test_rehearsal),
        WORLD_TEST(test_queue_and_priority),
        WORLD_TEST(test_two_prepare_children_at_once),
        WORLD_TEST(test_a_tick_has_an_end),
        WORLD_TEST(test_a_step_that_fails_is_tried_again),
        WORLD_TEST(test_disk_full_keeps_frames_unseen),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
