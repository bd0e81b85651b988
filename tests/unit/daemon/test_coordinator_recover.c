/* coordinator_recover: a second coordinator on the store of one that was killed. */
#include "daemon/store_attempts.h"
#include "tests/lib/coordinator_world.h"

/* What the second coordinator finds alive. */
static void keep_alive(struct world *w, const struct world_attempt *a)
{
    w->fake.adoptable = (struct host_identity){.pid = a->keeper->pid, .start_time = 77};
}

static int count_point(void *context, const struct store_point *point, struct err *err)
{
    ++*(int *)context;
    return 0;
}

static int count_message(void *context, const struct store_event *event, struct err *err)
{
    *(int *)context += strcmp(event->message, "hm") == 0;
    return 0;
}

static void test_validating_queued_and_paused_go_on(void **state)
{
    struct world *w = *state;
    struct world_job first = world_submit(w, 2, ",\"priority\":3");
    world_run(w);
    world_prepare(w, WORLD_GOOD_REPORT); /* takes both slots */
    struct world_job waiting = world_submit(w, 1, "");
    struct world_job paused = world_submit(w, 1, "");
    world_run(w);
    world_prepare(w, WORLD_GOOD_REPORT);
    world_prepare(w, WORLD_GOOD_REPORT);
    OK(w, coordinator_pause(w->coordinator, paused.id, &w->err));
    struct world_job checking = world_submit(w, 1, "");
    world_run(w);
    world_expect(w, &first, JOB_STATE_STARTING);
    world_expect(w, &waiting, JOB_STATE_QUEUED);
    world_expect(w, &checking, JOB_STATE_VALIDATING);
    world_reopen(w);
    struct coordinator_view view;
    coordinator_view(w->coordinator, waiting.id, &view);
    assert_int_equal(view.queue_position, 1);
    world_run(w);
    world_expect(w, &first, JOB_STATE_FAILED); /* its keeper is gone; it may not restart */
    assert_string_equal(world_row(w, &first).reason, "coordinator_lost");
    world_expect(w, &waiting, JOB_STATE_STARTING);
    world_prepare(w, WORLD_GOOD_REPORT);
    world_expect(w, &checking, JOB_STATE_STARTING);
    world_expect(w, &paused, JOB_STATE_PAUSED);
    assert_int_equal(world_row(w, &waiting).attempt, 1);
    world_reopen(w); /* what has ended stays so, whatever the next daemon does */
    world_run(w);
    world_expect(w, &first, JOB_STATE_FAILED);
    assert_int_equal(world_row(w, &first).attempt, 1);
}

/* When the first job of the queue's list began; 0: it waits. */
static int take_start(void *context, const struct coordinator_entry *entry, struct err *err)
{
    int64_t *started_ms = context;
    if (*started_ms < 0)
        *started_ms = entry->started_ms;
    return 0;
}

static int64_t first_started_ms(struct world *w)
{
    int64_t started_ms = -1, waiting = 0;
    OK(w, coordinator_queue_list(w->coordinator, 0, 9, take_start, &started_ms, &waiting, &w->err));
    return started_ms;
}

static void test_running_job_is_taken_over(void **state)
{
    struct world *w = *state;
    struct world_attempt a;
    struct world_job job = world_running(w, &a, "");
    struct world_job next = world_submit(w, 1, "");
    struct wire_frame metrics = {.type = WIRE_METRICS, .metrics = {.step = 1, .count = 1}};
    struct wire_frame event = {.type = WIRE_EVENT, .event = {.text = "hm"}};
    uint32_t number = 0;
    world_run(w);
    world_prepare(w, WORLD_GOOD_REPORT);
    world_send(&a, 0, metrics);
    world_send(&a, 0, event);
    world_run(w);
    const int64_t started_ms = first_started_ms(w);
    assert_true(started_ms > 0);
    keep_alive(w, &a);
    world_hang_up(&a);
    w->fake.now_ms += 7200000; /* the machine has been up for long: no rank is hung for that */
    world_reopen(w);
    world_run(w);
    world_expect(w, &job, JOB_STATE_RUNNING);
    world_expect(w, &next, JOB_STATE_QUEUED); /* the slots are the old keeper's */
    assert_int_equal(first_started_ms(w), started_ms);
    struct host_process *keeper = fake_host_find(&w->fake, "adopted");
    assert_non_null(keeper);
    assert_int_equal(keeper->last_signal, 0);

    a.next_seq[0] = 1; /* nothing after READY was acknowledged: all of it comes again */
    for (uint32_t i = 0; i < 2; i++) {
        buf_clear(&a.in[i]);
        world_connect(&a, i);
    }
    world_run(w);
    for (uint32_t i = 0; i < 2; i++)
        assert_true(world_receive(&a, i, WIRE_PLAN, &number));
    world_send(&a, 0, metrics);
    world_send(&a, 0, event);
    metrics.metrics.step = 2;
    world_send(&a, 0, metrics);
    world_run(w);
    assert_true(world_receive(&a, 0, WIRE_SEEN, &number));
    assert_int_equal(number, 4);
    int points = 0, events = 0;
    OK(w, store_points_after(w->store, job.id, 0, 10, count_point, &points, &w->err));
    OK(w, store_events_after(w->store, job.id, 0, 100, count_message, &events, &w->err));
    assert_int_equal(points, 2);
    assert_int_equal(events, 1);
    a.keeper = keeper;
    CLEANUP(mem_free_ptr)
    char *attempt_dir = mem_printf("%s/attempt-1", a.plan.job_dir);
    (void)snprintf(keeper->argument, sizeof keeper->argument, "%s", attempt_dir);
    world_end_done(&a);
    world_expect(w, &job, JOB_STATE_SUCCEEDED);
    world_expect(w, &next, JOB_STATE_STARTING);
    assert_int_equal(world_row(w, &job).attempt, 1);
    world_attempt_close(&a);
}

/* How an attempt ended while no daemon was there: exit.json, the model, checkpoints tell. */
static void test_attempt_that_ended_meanwhile(void **state)
{
    struct world *w = *state;
    static const struct {
        bool report, model, checkpoint;
        int signal;
        const char *options;
        enum job_state wanted;
        const char *reason;
    } cases[] = {
        {.report = true, .model = true, .wanted = JOB_STATE_SUCCEEDED, .reason = ""},
        {.report = true, .checkpoint = true, .wanted = JOB_STATE_STARTING, .reason = ""},
        {.report = true, .signal = SIGKILL, .wanted = JOB_STATE_FAILED, .reason = "rank_died"},
        {.report = true,
         .signal = SIGKILL,
         .options = ",\"max_restarts\":1",
         .wanted = JOB_STATE_STARTING,
         .reason = ""},
        {.wanted = JOB_STATE_FAILED, .reason = "coordinator_lost"},
        {.options = ",\"max_restarts\":1", .wanted = JOB_STATE_STARTING, .reason = ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct world_attempt a;
        struct world_job job =
            world_running(w, &a, cases[i].options != NULL ? cases[i].options : "");
        struct exit_report report = world_clean_exit(&a);
        if (cases[i].signal != 0) {
            report.first_failed = 1;
            report.ranks[1].exit_status = -1;
            report.ranks[1].signal = cases[i].signal;
        }
        if (cases[i].report)
            world_exit_report(&a, &report);
        CLEANUP(mem_free_ptr) char *model = io_join(a.plan.job_dir, "model");
        if (cases[i].model)
            OK(w, io_make_dirs(model, 0700, &w->err));
        if (cases[i].checkpoint)
            world_checkpoint(&a, 3);
        world_attempt_close(&a);
        w->fake.session = 0;
        world_reopen(w);
        world_run(w);
        world_expect(w, &job, cases[i].wanted);
        assert_string_equal(world_row(w, &job).reason, cases[i].reason);
        assert_int_equal(world_row(w, &job).resumed_step, cases[i].checkpoint ? 3 : 0);
        assert_int_equal(w->fake.session, 0); /* its number may be another's by now */
        if (cases[i].wanted != JOB_STATE_STARTING)
            continue;
        OK(w, coordinator_cancel(w->coordinator, job.id, &w->err));
        fake_host_end(fake_host_find(&w->fake, "--keep"), 0, 0);
        world_run(w);
    }
}

static void test_cause_told_to_the_last_daemon(void **state)
{
    struct world *w = *state;
    struct world_attempt a;
    struct world_job job = world_running(w, &a, ",\"max_restarts\":3");
    struct wire_frame failed = {.type = WIRE_FAILED, .failed = {.code = ERR_NONFINITE, .step = 3}};
    (void)snprintf(failed.failed.text, sizeof failed.failed.text, "the loss is nan");
    world_send(&a, 0, failed);
    world_run(w); /* acknowledged: it will not come again */
    struct exit_report report = world_clean_exit(&a);
    report.first_failed = 0;
    report.ranks[0].exit_status = 70;
    world_exit_report(&a, &report);
    world_attempt_close(&a);
    world_reopen(w);
    world_run(w);
    world_expect_failed(w, &job, "nonfinite", "rank 0 in step 3, start: the loss is nan");
}

/* What a rank wrote down when no daemon came: frames of its ring. */
static void test_unsent_frames_are_taken(void **state)
{
    struct world *w = *state;
    struct world_attempt a;
    struct world_job job = world_running(w, &a, "");
    struct wire_frame metrics = {.type = WIRE_METRICS, .metrics = {.step = 1, .count = 1}};
    struct wire_frame done = {.type = WIRE_DONE, .done = {.steps = 5, .trained_tokens = 77}};
    world_send(&a, 0, metrics); /* came over the socket, as frame 2 */
    world_run(w);
    CLEANUP(buf_done) struct buf frames;
    buf_init(&frames, LIMIT_FRAME_BYTES);
    for (uint32_t seq = 2; seq <= 6; seq++) {
        metrics.seq = seq;
        metrics.metrics.step = seq - 1;
        OK(w, wire_encode(&metrics, &frames, &w->err));
    }
    done.seq = 7;
    OK(w, wire_encode(&done, &frames, &w->err));
    CLEANUP(mem_free_ptr) char *path = io_join(a.keeper->argument, "unsent-0");
    CLEANUP(mem_free_ptr) char *other = io_join(a.keeper->argument, "unsent-1");
    CLEANUP(mem_free_ptr) char *model = io_join(a.plan.job_dir, "model");
    OK(w, io_write_file(path, frames.data, frames.length, 0600, &w->err));
    OK(w, io_write_file(other, "not frames at all", 17, 0600, &w->err)); /* said and passed over */
    OK(w, io_make_dirs(model, 0700, &w->err));
    const struct exit_report report = world_clean_exit(&a);
    world_exit_report(&a, &report);
    world_attempt_close(&a);
    world_reopen(w);
    world_run(w);
    world_expect(w, &job, JOB_STATE_SUCCEEDED);
    assert_int_equal(world_row(w, &job).trained_tokens, 77);
    assert_int_equal(world_row(w, &job).steps_done, 5);
    int points = 0;
    OK(w, store_points_after(w->store, job.id, 0, 10, count_point, &points, &w->err));
    assert_int_equal(points, 5);
}

/* The daemon is killed while the ranks are to end: the next one asks them again. */
static void end_under_the_next_daemon(struct world *w, const struct world_job *job,
                                      struct world_attempt *a)
{
    uint32_t number = 0;
    enum job_state ending = world_row(w, job).state;
    keep_alive(w, a);
    world_hang_up(a);
    world_reopen(w);
    for (uint32_t i = 0; i < 2; i++) {
        buf_clear(&a->in[i]);
        world_connect(a, i);
    }
    world_run(w);
    world_expect(w, job, ending);
    assert_true(world_receive(a, 0, WIRE_PAUSE, &number));
    a->keeper = fake_host_find(&w->fake, "adopted");
    (void)snprintf(a->keeper->argument, sizeof a->keeper->argument, "%s/jobs/%s/attempt-1", w->dir,
                   job->id);
    world_end_paused(a, 2);
    world_attempt_close(a);
}

static void test_pause_goes_on(void **state)
{
    struct world *w = *state;
    struct world_attempt a;
    struct world_job job = world_running(w, &a, "");
    OK(w, coordinator_pause(w->coordinator, job.id, &w->err));
    end_under_the_next_daemon(w, &job, &a);
    world_expect(w, &job, JOB_STATE_PAUSED);
}

static void test_preemption_goes_on(void **state)
{
    struct world *w = *state;
    struct world_attempt a;
    w->config.policy.preempt_after_ms = 0;
    world_reopen(w);
    struct world_job job = world_running(w, &a, ",\"preemptible\":true");
    struct world_job head = world_queued(w, ",\"priority\":1");
    world_expect(w, &job, JOB_STATE_PREEMPTING);
    end_under_the_next_daemon(w, &job, &a);
    world_expect(w, &job, JOB_STATE_QUEUED);
    world_expect(w, &head, JOB_STATE_STARTING);
}

/* One that was taken over can be preempted like any other. */
static void test_preempted_after_a_take_over(void **state)
{
    struct world *w = *state;
    struct world_attempt a;
    w->config.policy.preempt_after_ms = 5000;
    world_reopen(w);
    struct world_job job = world_running(w, &a, ",\"preemptible\":true");
    (void)world_queued(w, ",\"priority\":1");
    keep_alive(w, &a);
    world_hang_up(&a);
    world_reopen(w);
    for (uint32_t i = 0; i < 2; i++)
        world_connect(&a, i);
    world_pass(w, 4999);
    world_expect(w, &job, JOB_STATE_RUNNING);
    world_pass(w, 1);
    world_pass(w, 1000);
    world_expect(w, &job, JOB_STATE_PREEMPTING);
    world_attempt_close(&a);
}

static void test_unreadable_plan_stops_the_keeper(void **state)
{
    struct world *w = *state;
    struct world_attempt a;
    struct world_job job = world_running(w, &a, "");
    CLEANUP(mem_free_ptr) char *plan = io_join(a.keeper->argument, "plan.json");
    OK(w, io_write_file(plan, "{}", 2, 0600, &w->err));
    keep_alive(w, &a);
    world_attempt_close(&a);
    world_reopen(w);
    struct host_process *keeper = fake_host_find(&w->fake, "adopted");
    assert_int_equal(keeper->last_signal, SIGTERM);
    world_pass(w, w->config.stop_grace_ms);
    assert_int_equal(keeper->last_signal, SIGKILL);
    fake_host_end(keeper, -1, 0);
    world_run(w);
    world_expect_failed(w, &job, "coordinator_lost", "cannot be taken over");
}

static void test_recycled_pid_is_left_alone(void **state)
{
    struct world *w = *state;
    struct world_attempt a;
    struct world_job job = world_running(w, &a, "");
    w->fake.adoptable = (struct host_identity){.pid = a.keeper->pid, .start_time = 78};
    world_attempt_close(&a);
    world_reopen(w);
    world_run(w);
    assert_null(fake_host_find(&w->fake, "adopted"));
    assert_int_equal(w->fake.session, 0);
    world_expect(w, &job, JOB_STATE_FAILED);
}

/* The daemon died after the job was STARTING and before it wrote down who the keeper is. */
static void forget_keeper(struct world *w, const struct world_job *job)
{
    const struct store_attempt attempt = {.job_id = job->id,
                                          .number = 1,
                                          .started_ms = 1,
                                          .boot_id = "",
                                          .outcome = "",
                                          .outcome_text = ""};
    OK(w, store_attempt_put(w->store, &attempt, &w->err));
}

static void test_never_started_is_queued_again(void **state)
{
    struct world *w = *state;
    struct world_job job = world_queued(w, "");
    forget_keeper(w, &job);
    world_reopen(w);
    world_pass(w, 9000); /* a keeper that was just started may yet say who it is */
    world_expect(w, &job, JOB_STATE_STARTING);
    assert_int_equal(world_row(w, &job).attempt, 1);
    world_pass(w, 1000);
    world_expect(w, &job, JOB_STATE_STARTING);
    assert_int_equal(world_row(w, &job).attempt, 2);
    assert_int_equal(world_row(w, &job).restarts, 0);
}

static void test_no_plan_no_keeper(void **state)
{
    struct world *w = *state;
    struct world_job job = world_queued(w, "");
    forget_keeper(w, &job);
    CLEANUP(mem_free_ptr) char *dir = mem_printf("%s/jobs/%s/attempt-1", w->dir, job.id);
    OK(w, io_remove_tree(dir, &w->err));
    world_reopen(w);
    world_expect(w, &job, JOB_STATE_QUEUED);
}

/* keeper.json is there, at once or a little later. */
static void test_keeper_file_tells_who_it_is(void **state)
{
    struct world *w = *state;
    struct world_job job = world_queued(w, "");
    forget_keeper(w, &job);
    struct host_process *keeper = fake_host_find(&w->fake, "--keep");
    w->fake.adoptable = (struct host_identity){.pid = keeper->pid, .start_time = 77};
    world_reopen(w);
    world_pass(w, 3000);
    assert_null(fake_host_find(&w->fake, "adopted"));
    char text[128];
    (void)snprintf(text, sizeof text, "{\"pid\":%d,\"start_time\":77,\"boot_id\":\"b\"}",
                   keeper->pid);
    CLEANUP(mem_free_ptr) char *path = io_join(keeper->argument, "keeper.json");
    OK(w, io_write_file(path, text, strlen(text), 0600, &w->err));
    world_run(w);
    assert_non_null(fake_host_find(&w->fake, "adopted"));
    world_expect(w, &job, JOB_STATE_STARTING);
    world_reopen(w);
    assert_non_null(fake_host_find(&w->fake, "adopted"));
}

static void test_cancelling_is_finished(void **state)
{
    struct world *w = *state;
    struct world_attempt a;
    struct world_job job = world_running(w, &a, "");
    OK(w, coordinator_cancel(w->coordinator, job.id, &w->err));
    w->fake.adoptable = (struct host_identity){.pid = a.keeper->pid, .start_time = 77};
    world_attempt_close(&a);
    world_reopen(w);
    world_run(w);
    world_expect(w, &job, JOB_STATE_CANCELLING);
    world_pass(w, w->config.stop_grace_ms); /* asked again, and then insisted on */
    assert_int_equal(fake_host_find(&w->fake, "adopted")->last_signal, SIGKILL);
    fake_host_end(fake_host_find(&w->fake, "adopted"), -1, 0);
    world_run(w);
    world_expect(w, &job, JOB_STATE_CANCELLED);
}

static void test_allocation_failures(void **state)
{
    struct world *w = *state;
    struct world_attempt a;
    struct world_job running = world_running(w, &a, "");
    struct world_job job = world_submit(w, 1, "");
    keep_alive(w, &a);
    world_attempt_close(&a);
    world_close(w);
    int failures = 0;
    for (int n = 1; w->coordinator == NULL; n++) {
        OK(w, loop_new(&w->loop, &w->err));
        OK(w, store_open(w->dir, &w->store, &w->err));
        mem_fault_after(n);
        int rc = coordinator_new(&w->config, &w->fake.host, w->store, &w->bus, w->loop,
                                 &w->coordinator, &w->err);
        assert_int_equal(mem_fault_after(0), rc != 0);
        if (rc != 0) {
            failures++;
            store_close(w->store);
            loop_free(w->loop);
        }
    }
    assert_true(failures >= 20);
    assert_int_equal(fake_host_find(&w->fake, "adopted")->last_signal, 0);
    world_run(w);
    world_expect(w, &running, JOB_STATE_RUNNING);
    world_expect(w, &job, JOB_STATE_VALIDATING);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        WORLD_TEST(test_validating_queued_and_paused_go_on),
        WORLD_TEST(test_running_job_is_taken_over),
        WORLD_TEST(test_attempt_that_ended_meanwhile),
        WORLD_TEST(test_cause_told_to_the_last_daemon),
        WORLD_TEST(test_unsent_frames_are_taken),
        WORLD_TEST(test_pause_goes_on),
        WORLD_TEST(test_preemption_goes_on),
        WORLD_TEST(test_preempted_after_a_take_over),
        WORLD_TEST(test_unreadable_plan_stops_the_keeper),
        WORLD_TEST(test_recycled_pid_is_left_alone),
        WORLD_TEST(test_never_started_is_queued_again),
        WORLD_TEST(test_no_plan_no_keeper),
        WORLD_TEST(test_keeper_file_tells_who_it_is),
        WORLD_TEST(test_cancelling_is_finished),
        WORLD_TEST(test_allocation_failures),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
