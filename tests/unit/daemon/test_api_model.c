/* api_model: the files of a tuned model and of a checkpoint: which are listed, which are given out,
 * and a list that waits for the child that makes them. */
#include "daemon/checkpoints.h"
#include "tests/lib/http_world.h"

static void ask_model(struct http_world *h, const struct world_job *job, const char *tail)
{
    ask(h, "GET", http_target(JOBS "/%s/model/%s", job->id, tail).text, NULL);
}

static void test_tuned(void **state)
{
    struct http_world *h = *state;
    struct world_job job = http_world_succeeded(h);
    CLEANUP(mem_free_ptr) char *dir = mem_printf("%s/jobs/%s/model", h->w->dir, job.id);
    CLEANUP(mem_free_ptr) char *link = io_join(dir, "link");
    CLEANUP(mem_free_ptr) char *folder = io_join(dir, "folder");
    http_world_put(h, dir, ".hidden", "x");
    assert_int_equal(symlink("/etc/passwd", link), 0);
    OK(h->w, io_make_dirs(folder, 0700, &h->w->err));
    ask_model(h, &job, "files");
    assert_int_equal(json_array_size(answer(h, "data")), 1); /* regular files with proper names */
    expect(h, 200, "data.0.id", "config.json");
    assert_int_equal(answer_int(h, "data.0.bytes"), 10);
    ask_model(h, &job, "content?file=config.json");
    assert_int_equal(h->status, 200);
    assert_string_equal(h->body, "{\"made\":1}");
    static const char *const none[] = {"content?file=link",
                                       "content?file=folder",
                                       "content?file=.hidden",
                                       "content?file=absent",
                                       "content?file=..%2F..%2Fadmin.token",
                                       "content?file=%2Fetc%2Fpasswd",
                                       "content?file=",
                                       "content"};
    for (size_t i = 0; i < sizeof none / sizeof none[0]; i++) {
        ask_model(h, &job, none[i]);
        if (h->status != 404 && h->status != 400)
            fail_msg("%s: %d %s", none[i], h->status, h->body);
    }
}

/* Adapters lie in a folder of the model's; no other folder is looked into. */
static void test_adapters(void **state)
{
    struct http_world *h = *state;
    struct world_job job = http_world_succeeded(h);
    CLEANUP(mem_free_ptr) char *dir = mem_printf("%s/jobs/%s/model", h->w->dir, job.id);
    CLEANUP(mem_free_ptr) char *adapter = io_join(dir, "adapter");
    CLEANUP(mem_free_ptr) char *other = io_join(dir, "other");
    CLEANUP(mem_free_ptr) char *link = io_join(adapter, "link");
    http_world_put(h, adapter, "adapter_config.json", "{\"r\":1}");
    http_world_put(h, other, "adapter_config.json", "{\"r\":2}");
    assert_int_equal(symlink("/etc/passwd", link), 0);
    ask_model(h, &job, "files");
    assert_int_equal(json_array_size(answer(h, "data")), 2);
    expect(h, 200, "data.1.id", "adapter/adapter_config.json");
    assert_int_equal(answer_int(h, "data.1.bytes"), 7);
    ask_model(h, &job, "content?file=adapter%2Fadapter_config.json");
    assert_int_equal(h->status, 200);
    assert_string_equal(h->body, "{\"r\":1}");
    static const char *const none[] = {"content?file=adapter",
                                       "content?file=adapter%2F",
                                       "content?file=adapter%2Flink",
                                       "content?file=adapter%2F..%2Fconfig.json",
                                       "content?file=other%2Fadapter_config.json",
                                       "content?file=adapter%2Fadapter%2Fadapter_config.json"};
    for (size_t i = 0; i < sizeof none / sizeof none[0]; i++) {
        ask_model(h, &job, none[i]);
        if (h->status != 404)
            fail_msg("%s: %d %s", none[i], h->status, h->body);
    }
}

static void test_without_a_model(void **state)
{
    struct http_world *h = *state;
    struct world_job job = world_submit(h->w, 1, "");
    ask_model(h, &job, "files");
    expect(h, 400, "error.code", "invalid_state");
    ask_model(h, &job, "content?file=config.json");
    expect(h, 400, "error.code", "invalid_state");
    ask_model(h, &job, "files?checkpoint=ftckpt_none_1");
    expect(h, 404, "error.param", "checkpoint");
    ask_model(h, &(struct world_job){.id = "ftjob-none"}, "files");
    expect(h, 404, "error.code", "not_found");
}

/* Asks for a checkpoint's files and waits until its child runs. */
static struct host_process *open_list(struct http_world *h, struct http_client *client,
                                      const struct http_target *files)
{
    ask_open(h, client, "GET", files->text, "", NULL, 0);
    return ask_child(h, client, "--export");
}

static void test_checkpoint(void **state)
{
    struct http_world *h = *state;
    struct world_attempt a;
    struct http_client client;
    char id[LIMIT_ID_BYTES + 1], tail[160];
    struct world_job job = world_running(h->w, &a, "");
    world_checkpoint(&a, 7);
    checkpoints_id(job.id, 7, id);
    const struct http_target files = http_target(JOBS "/%s/model/files?checkpoint=%s", job.id, id);
    struct host_process *child = open_list(h, &client, &files);
    CLEANUP(mem_free_ptr) char *dir = checkpoint_dir(a.plan.job_dir, 7);
    assert_string_equal(child->argument, dir);
    fake_host_end(child, 65, 0); /* it cannot be made */
    ask_end(h, &client);
    assert_true(h->status >= 400);
    child = open_list(h, &client, &files); /* asked again: tried again */
    CLEANUP(mem_free_ptr)
    char *made = mem_printf("%s/exports/%s-%d", h->w->dir, id, 1007);
    http_world_put(h, made, "model.safetensors", "weights");
    fake_host_end(child, 0, 0);
    ask_end(h, &client);
    expect(h, 200, "data.0.id", "model.safetensors");
    int started = h->w->fake.count;
    ask(h, "GET", files.text, NULL); /* it is there now */
    expect(h, 200, "data.0.id", "model.safetensors");
    (void)snprintf(tail, sizeof tail, "content?checkpoint=%s&file=model.safetensors", id);
    ask_model(h, &job, tail);
    assert_string_equal(h->body, "weights");
    assert_int_equal(h->w->fake.count, started);
    world_attempt_close(&a);
}

static void test_client_leaves(void **state)
{
    struct http_world *h = *state;
    struct world_attempt a;
    struct http_client client;
    char id[LIMIT_ID_BYTES + 1], tail[160];
    struct world_job job = world_running(h->w, &a, "");
    world_checkpoint(&a, 7);
    checkpoints_id(job.id, 7, id);
    const struct http_target files = http_target(JOBS "/%s/model/files?checkpoint=%s", job.id, id);
    struct host_process *child = open_list(h, &client, &files);
    (void)snprintf(tail, sizeof tail, "content?checkpoint=%s&file=config.json", id);
    ask_model(h, &job, tail); /* bytes are only given of what is there */
    assert_true(h->status >= 400);
    client_close(&client);
    for (int i = 0; i < 20; i++)
        OK(h->w, loop_turn(h->w->loop, 1, &h->w->err));
    fake_host_end(child, 0, 0); /* nobody reads the answer; nothing breaks */
    assert_true(exports_is_idle(h->api.exports));
    for (int i = 0; i < 1000 && !http_is_idle(h->http); i++)
        OK(h->w, loop_turn(h->w->loop, 1, &h->w->err));
    assert_true(http_is_idle(h->http));
    world_attempt_close(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        HTTP_TEST(test_tuned),      HTTP_TEST(test_adapters),      HTTP_TEST(test_without_a_model),
        HTTP_TEST(test_checkpoint), HTTP_TEST(test_client_leaves),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
