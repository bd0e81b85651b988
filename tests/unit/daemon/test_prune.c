/* prune: what is chosen goes, and nothing beside it; what has changed since the survey stays. */
#include "daemon/prune.h"

#include "tests/lib/http_world.h"

struct scene {
    struct http_world *h;
    struct prune *prune;
    char job[LIMIT_ID_BYTES + 1]; /* that has succeeded */
    bool done;
    size_t gone; /* targets */
};

static int open_scene(void **state)
{
    struct scene *s = mem_new(1, sizeof *s);
    assert_int_equal(http_world_setup((void **)&s->h), 0);
    OK(s->h->w, prune_new(&s->h->api, &s->prune, &s->h->w->err));
    s->h->api.prune = s->prune;
    (void)snprintf(s->job, sizeof s->job, "%s", http_world_succeeded(s->h).id);
    *state = s;
    return 0;
}

static int close_scene(void **state)
{
    struct scene *s = *state;
    void *h = s->h;
    prune_free(s->prune);
    mem_free(s);
    return http_world_teardown(&h);
}

static void path_of(const struct scene *s, const char *name, char ret[256])
{
    if (strncmp(name, "cache/", 6) == 0 || strncmp(name, "files/", 6) == 0)
        (void)snprintf(ret, 256, "%s/%s", s->h->w->dir, name);
    else
        (void)snprintf(ret, 256, "%s/jobs/%s/%s", s->h->w->dir, s->job, name);
}

/* A file, of the job where it is not of the cache. */
static void put(struct scene *s, const char *name)
{
    char path[256], folder[256];
    path_of(s, name, path);
    (void)snprintf(folder, sizeof folder, "%.*s", (int)(strrchr(path, '/') - path), path);
    http_world_put(s->h, folder, strrchr(path, '/') + 1, "x");
}

static void join(struct scene *s, const char *name, const char *other)
{
    char from[256], to[256];
    path_of(s, name, from);
    path_of(s, other, to);
    assert_int_equal(link(from, to), 0);
}

static bool is_there(struct scene *s, const char *name)
{
    char path[256];
    path_of(s, name, path);
    return io_exists(path);
}

static void on_done(void *context, const struct prune_target *targets, size_t count)
{
    struct scene *s = context;
    s->done = true;
    for (size_t i = 0; i < count; i++)
        s->gone += targets[i].is_gone;
}

/* Removes targets of the job, or of what they name; how many are gone. */
static size_t prune_these(struct scene *s, const struct prune_target *wanted, size_t count)
{
    struct prune_target *targets = mem_new(count, sizeof *targets);
    memcpy(targets, wanted, count * sizeof *targets);
    for (size_t i = 0; i < count; i++)
        if (targets[i].is_job)
            (void)snprintf(targets[i].id, sizeof targets[i].id, "%s", s->job);
    s->done = false;
    s->gone = 0;
    s->h->w->fake.now_ms++; /* what is handed over is named by the time */
    OK(s->h->w, prune_start(s->prune, targets, count, "ann", on_done, s, &s->h->w->err));
    for (int i = 0; i < 1000 && !s->done; i++)
        OK(s->h->w, loop_turn(s->h->w->loop, 1, &s->h->w->err));
    assert_true(s->done);
    return s->gone;
}

static int take_message(void *context, const struct store_event *event, struct err *err)
{
    (void)snprintf(context, 256, "%s", event->message);
    return 0;
}

/* What lies beside it, under a name that is like it, stays. */
static void test_what_goes(void **state)
{
    static const struct prune_target targets[] = {
        {.kind = STORAGE_CHECKPOINTS, .is_job = true, .step = 10, .bytes = 1 << 20},
        {.kind = STORAGE_CHECKPOINTS, .is_job = true, .step = -30, .bytes = 1 << 20},
        {.kind = STORAGE_LOGS, .is_job = true, .bytes = 1 << 19}};
    static const struct {
        const char *name;
        bool stays;
    } rows[] = {
        {"checkpoints/step-10/a", false},
        {"checkpoints/step-10.tmp/a", true},
        {"checkpoints/step-100/a", true},
        {"checkpoints/step-30/a", true},
        {"checkpoints/step-30.tmp/a", false},
        {"attempt-1/log", false},
        {"attempt-12/log", false},
        {"profile/a", false},
        {"model/config.json", true},
        {"tokens/train.tok", true},
        {"attempt", true},
        {"profile.json", true},
        {"cache/free.tok", true},
    };
    struct scene *s = *state;
    struct http_world *h = s->h;
    char message[256] = "";
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        put(s, rows[i].name);
    assert_int_equal(prune_these(s, targets, 3), 3);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (is_there(s, rows[i].name) != rows[i].stays)
            fail_msg("%s", rows[i].name);
    OK(h->w, store_events_after(h->w->store, s->job, 0, 100, take_message, message, &h->w->err));
    assert_string_equal(message, "Removed to free 2.5 MiB: checkpoints: step 10, step 30 "
                                 "(unfinished); logs.");
    assert_int_equal(prune_these(s, targets, 3), 3); /* what is not there is gone as well */
}

/* A shard of the cache goes with the last job that holds it. */
static void test_shards(void **state)
{
    static const struct prune_target of_job = {.kind = STORAGE_SHARDS, .is_job = true},
                                     of_nobody = {.kind = STORAGE_SHARDS};
    struct scene *s = *state;
    put(s, "cache/ours.tok");
    put(s, "cache/shared.tok");
    put(s, "tokens/own.tok"); /* of no use, but not known */
    join(s, "cache/ours.tok", "tokens/train.tok");
    join(s, "cache/shared.tok", "tokens/valid.tok");
    join(s, "cache/shared.tok", "cache/another-job");
    assert_int_equal(prune_these(s, &of_nobody, 1), 1);
    assert_true(is_there(s, "cache/ours.tok") && is_there(s, "cache/shared.tok"));
    assert_int_equal(prune_these(s, &of_job, 1), 1);
    assert_false(is_there(s, "tokens/train.tok") || is_there(s, "tokens/valid.tok"));
    assert_true(is_there(s, "tokens/own.tok"));
    assert_false(is_there(s, "cache/ours.tok"));
    assert_true(is_there(s, "cache/shared.tok"));
    put(s, "cache/free.tok");
    assert_int_equal(prune_these(s, &of_nobody, 1), 1);
    assert_false(is_there(s, "cache/free.tok"));
    put(s, "tokens/train.tok"); /* copied, where it could not be linked */
    assert_int_equal(prune_these(s, &of_job, 1), 1);
    assert_false(is_there(s, "tokens/train.tok"));
}

/* A job that goes on by now, a file that a job reads by now. */
static void test_what_has_changed_stays(void **state)
{
    static const struct prune_target targets[] = {
        {.kind = STORAGE_CHECKPOINTS, .is_job = true, .step = 10},
        {.kind = STORAGE_LOGS, .is_job = true}};
    static const struct prune_target files[] = {{.kind = STORAGE_FILES, .id = "file-a"},
                                                {.kind = STORAGE_FILES, .id = "file-b"}};
    struct scene *s = *state;
    struct http_world *h = s->h;
    put(s, "checkpoints/step-10/a");
    put(s, "attempt-1/log");
    const struct store_job_move move = {.id = s->job,
                                        .from = JOB_STATE_SUCCEEDED,
                                        .to = JOB_STATE_QUEUED,
                                        .reason = "",
                                        .reason_text = "",
                                        .event_id = "ftevent-again",
                                        .event_text = "",
                                        .event_level = "info"};
    int64_t row = 0;
    OK(h->w, store_job_move(h->w->store, &move, &row, &h->w->err));
    assert_int_equal(prune_these(s, targets, 2), 0);
    assert_true(is_there(s, "checkpoints/step-10/a") && is_there(s, "attempt-1/log"));
    http_world_file(h, "file-a", "x");
    http_world_file(h, "file-b", "x");
    (void)world_submit(h->w, 1, ""); /* it reads file-a */
    assert_int_equal(prune_these(s, files, 2), 1);
    assert_true(is_there(s, "files/file-a"));
    assert_false(is_there(s, "files/file-b"));
}

#define SCENE_TEST(name) cmocka_unit_test_setup_teardown(name, open_scene, close_scene)

int main(void)
{
    const struct CMUnitTest tests[] = {SCENE_TEST(test_what_goes), SCENE_TEST(test_shards),
                                       SCENE_TEST(test_what_has_changed_stays)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
