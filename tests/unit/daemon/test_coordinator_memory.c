/* coordinator_memory: jobs of a rank each on a machine of two slots, whose host's memory holds one
 * of them and a half. */
#include "tests/lib/coordinator_world.h"

#include "common/model_config.h"
#include "daemon/coordinator_private.h"

static struct world_job queued(struct world *w, const char *options)
{
    struct world_job job = world_submit(w, 1, options);
    world_run(w);
    world_prepare(w, WORLD_GOOD_REPORT);
    return job;
}

/* A model whose memory can be planned. */
static void make_model(struct world *w)
{
    static char dir[128];
    CLEANUP(json_unref) json_t *config = model_config_json(model_config_builtin("tiny-llama"));
    CLEANUP(mem_free_ptr) char *path = mem_printf("%s/tiny/config.json", w->dir);
    (void)snprintf(dir, sizeof dir, "%s/tiny", w->dir);
    OK(w, io_make_dirs(dir, 0700, &w->err));
    OK(w, json_write_file(path, config, 0600, &w->err));
    w->model_dir = dir;
}

/* A job's bytes, as its own coordinator plans them. */
static int64_t planned(struct world *w, const struct world_job *job)
{
    struct coordinator_job *found = coordinator_find(w->coordinator, job->id);
    assert_non_null(found);
    int64_t bytes = coordinator_memory_planned(found);
    assert_true(bytes > coordinator_plan_host_bytes(found));
    assert_true(bytes > 1 << 20);
    return bytes;
}

static const char *reason(struct world *w, const struct world_job *job)
{
    static struct coordinator_view view;
    coordinator_view(w->coordinator, job->id, &view);
    assert_int_equal(view.estimated_start_ms, 0);
    return view.pending_reason;
}

/* What a job is told that takes so many bytes, this part of them too many. */
static const char *waits(int64_t bytes, double lack)
{
    static char text[128];
    const double gib = (double)bytes * 0x1p-30;
    (void)snprintf(text, sizeof text,
                   "waits for the host's memory: it takes %.4g GiB, %.4g more than running jobs "
                   "leave",
                   gib, gib * lack);
    return text;
}

static void give_memory(struct world *w, double jobs, const struct world_job *job)
{
    w->config.host_bytes = (int64_t)(jobs * (double)planned(w, job));
    world_reopen(w);
    world_run(w);
}

/* The second has a slot, and waits; whoever is behind it does not take that slot. */
static void test_waits_for_another_to_end(void **state)
{
    struct world *w = *state;
    struct world_attempt a;
    make_model(w);
    OK(w, coordinator_queue_drain(w->coordinator, true, &w->err));
    struct world_job first = queued(w, ""), second = queued(w, ""), third = queued(w, "");
    give_memory(w, 1.5, &first);
    OK(w, coordinator_queue_drain(w->coordinator, false, &w->err));
    world_pass(w, 1000);
    world_expect(w, &first, JOB_STATE_STARTING);
    world_expect(w, &second, JOB_STATE_QUEUED);
    world_expect(w, &third, JOB_STATE_QUEUED);
    assert_string_equal(reason(w, &second), waits(planned(w, &second), 0.5));
    world_attempt_open(w, &a);
    assert_string_equal(a.plan.job_id, first.id);
    world_ready(&a);
    world_end_done(&a);
    world_attempt_close(&a);
    world_pass(w, 1000);
    world_expect(w, &second, JOB_STATE_STARTING);
    world_expect(w, &third, JOB_STATE_QUEUED);
}

/* As many as there is room for. */
static void test_room(void **state)
{
    struct world *w = *state;
    make_model(w);
    OK(w, coordinator_queue_drain(w->coordinator, true, &w->err));
    struct world_job first = queued(w, ""), second = queued(w, "");
    give_memory(w, 2, &first);
    OK(w, coordinator_queue_drain(w->coordinator, false, &w->err));
    world_pass(w, 1000);
    world_expect(w, &first, JOB_STATE_STARTING);
    world_expect(w, &second, JOB_STATE_STARTING);
}

/* One that is alone starts, though it takes more than there is. */
static void test_alone(void **state)
{
    struct world *w = *state;
    make_model(w);
    w->config.host_bytes = 1;
    world_reopen(w);
    struct world_job first = queued(w, "");
    world_expect(w, &first, JOB_STATE_STARTING);
}

/* Of a large host, too, figures are as people write them. */
static void test_large(void **state)
{
    const struct coordinator_job job = {.host_bytes = 1800LL << 30, .memory_lack = 1200LL << 30};
    char text[128];
    coordinator_memory_tell(&job, text, sizeof text);
    assert_string_equal(text, "waits for the host's memory: it takes 1800 GiB, 1200 more than "
                              "running jobs leave");
}

/* Of what cannot be planned nothing is known: it starts. */
static void test_unknown(void **state)
{
    struct world *w = *state;
    w->config.host_bytes = 1;
    world_reopen(w);
    struct world_job first = queued(w, ""), second = queued(w, "");
    world_expect(w, &first, JOB_STATE_STARTING);
    world_expect(w, &second, JOB_STATE_STARTING);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        WORLD_TEST(test_waits_for_another_to_end),
        WORLD_TEST(test_room),
        WORLD_TEST(test_alone),
        WORLD_TEST(test_unknown),
        cmocka_unit_test(test_large),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
