/* api_profile: a running job's rank 0 is asked, others are refused; a profile is made by a child at
 * the first question and given out as summary and trace, made anew when there is another. */
#include "tests/lib/http_world.h"

#include <fcntl.h>
#include <sys/stat.h>

static void test_asked_for(void **state)
{
    struct http_world *h = *state;
    struct world_attempt a;
    uint32_t steps = 0;
    struct world_job job = world_running(h->w, &a, "");
    const struct http_target profile = http_target(JOBS "/%s/profile", job.id);
    ask(h, "POST", profile.text, "{\"steps\":7}");
    expect(h, 200, "object", "fine_tuning.job.profile_request");
    assert_int_equal(answer_int(h, "steps"), 7);
    world_run(h->w);
    assert_true(world_receive(&a, 0, WIRE_PROFILE, &steps));
    assert_int_equal(steps, 7);
    assert_false(world_receive(&a, 1, WIRE_PROFILE, &steps)); /* rank 0 tells it */
    ask(h, "POST", profile.text, "");
    assert_int_equal(answer_int(h, "steps"), 3);
    world_run(h->w);
    assert_true(world_receive(&a, 0, WIRE_PROFILE, &steps) && steps == 3);
    static const char *const wrong[] = {"{\"steps\":0}", "{\"steps\":101}", "{\"steps\":\"2\"}",
                                        "{\"steps\":2.5}", "{\"steps\":null}"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        ask(h, "POST", profile.text, wrong[i]);
        expect(h, 400, "error.param", "steps");
    }
    ask(h, "POST", profile.text, "{\"step\":1}");
    expect(h, 400, "error.code", "unknown_parameter");
    world_hang_up(&a);
    world_run(h->w);
    ask(h, "POST", profile.text, "");
    expect(h, 503, "error.code", "unavailable");
    world_attempt_close(&a);
}

static void test_not_running(void **state)
{
    struct http_world *h = *state;
    struct world_job job = http_world_succeeded(h);
    const struct http_target profile = http_target(JOBS "/%s/profile", job.id);
    ask(h, "POST", profile.text, "");
    expect(h, 400, "error.code", "invalid_state");
    assert_non_null(strstr(h->body, "cannot be profiled: it is succeeded"));
    struct world_job waiting = world_submit(h->w, 1, "");
    const struct http_target none = http_target(JOBS "/%s/profile", waiting.id);
    ask(h, "POST", none.text, "");
    expect(h, 400, "error.code", "invalid_state");
    ask(h, "GET", none.text, NULL);
    expect(h, 404, "error.code", "not_found");
    assert_non_null(strstr(h->body, "has no profile; ask for one while it runs"));
    const struct http_target no_trace = http_target(JOBS "/%s/trace", waiting.id);
    ask(h, "GET", no_trace.text, NULL);
    expect(h, 404, "error.code", "not_found");
    ask(h, "GET", JOBS "/ftjob-none/profile", NULL);
    expect(h, 404, "error.code", "not_found");
    ask(h, "POST", JOBS "/ftjob-none/profile", "");
    expect(h, 404, "error.code", "not_found");
}

/* The ranks have left a profile, at a time of the test's. */
static void put_ready(struct http_world *h, const struct world_job *job, time_t at)
{
    CLEANUP(mem_free_ptr) char *folder = mem_printf("%s/jobs/%s/profile", h->w->dir, job->id);
    CLEANUP(mem_free_ptr) char *ready = io_join(folder, "ready.json");
    const struct timespec times[2] = {{.tv_sec = at}, {.tv_sec = at}};
    http_world_put(h, folder, "ready.json", "{}");
    assert_int_equal(utimensat(AT_FDCWD, ready, times, 0), 0);
}

static void test_made_by_a_child(void **state)
{
    struct http_world *h = *state;
    struct http_client client;
    struct world_job job = http_world_succeeded(h);
    const struct http_target profile = http_target(JOBS "/%s/profile", job.id);
    put_ready(h, &job, 1000);
    ask_open(h, &client, "GET", profile.text, "", NULL, 0);
    struct host_process *child = ask_child(h, &client, "--profile");
    CLEANUP(mem_free_ptr) char *job_dir = mem_printf("%s/jobs/%s", h->w->dir, job.id);
    assert_string_equal(child->argument, job_dir);
    fake_host_end(child, 65, 0);
    ask_end(h, &client);
    expect(h, 500, "error.code", "io");
    assert_non_null(
        strstr(h->body, "the profile cannot be made: the process ended with status 65"));
    ask_open(h, &client, "GET", profile.text, "", NULL, 0);
    child = ask_child(h, &client, "--profile");
    CLEANUP(mem_free_ptr)
    char *dir = mem_printf("%s/exports/profile-%s-1000-000000000", h->w->dir, job.id);
    http_world_put(h, dir, "summary.json", "{\"object\":\"fine_tuning.job.profile\"}");
    http_world_put(h, dir, "trace.json.gz", "a trace");
    fake_host_end(child, 0, 0);
    ask_end(h, &client);
    expect(h, 200, "object", "fine_tuning.job.profile");
    int children = (int)h->w->fake.count;
    const struct http_target trace = http_target(JOBS "/%s/trace", job.id);
    ask(h, "GET", trace.text, NULL); /* made already */
    assert_int_equal(h->status, 200);
    assert_string_equal(h->body, "a trace");
    assert_int_equal(h->w->fake.count, children);
    put_ready(h, &job, 2000); /* another */
    ask_open(h, &client, "GET", trace.text, "", NULL, 0);
    fake_host_end(ask_child(h, &client, "--profile"), 65, 0);
    ask_end(h, &client);
    assert_int_equal(h->status, 500);
    assert_int_equal(h->w->fake.count, children + 1);
}

static void test_deleted_meanwhile(void **state)
{
    struct http_world *h = *state;
    struct http_client client;
    struct world_job job = http_world_succeeded(h);
    const struct http_target profile = http_target(JOBS "/%s/profile", job.id);
    put_ready(h, &job, 1000);
    ask_open(h, &client, "GET", profile.text, "", NULL, 0);
    struct host_process *child = ask_child(h, &client, "--profile");
    ask(h, "DELETE", http_target(JOBS "/%s", job.id).text, NULL);
    assert_int_equal(h->status, 200);
    fake_host_end(child, 65, 0); /* what it read is gone */
    ask_end(h, &client);
    assert_int_equal(h->status, 404);
}

int main(void)
{
    const struct CMUnitTest tests[] = {HTTP_TEST(test_asked_for), HTTP_TEST(test_not_running),
                                       HTTP_TEST(test_made_by_a_child),
                                       HTTP_TEST(test_deleted_meanwhile)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
