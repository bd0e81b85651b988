/* models: what is a base model and what is not, which root wins, aliases, tuned models by name and
 * by job, and the built-in model that the worker makes. */
#include "daemon/models.h"

#include "tests/lib/http_world.h"

static int models_listed(struct http_world *h)
{
    ask(h, "GET", "/v1/models", NULL);
    expect(h, 200, "object", "list");
    return (int)json_array_size(answer(h, "data"));
}

static void test_what_a_model_is(void **state)
{
    struct http_world *h = *state;
    http_world_model(h, h->models, ".hidden");
    http_world_model(h, h->models, "with space");
    http_world_put(h, h->models, "a-file", "{}");
    CLEANUP(mem_free_ptr) char *empty = io_join(h->models, "no-config");
    CLEANUP(mem_free_ptr) char *odd = io_join(h->models, "folder-config/config.json");
    OK(h->w, io_make_dirs(empty, 0700, &h->w->err));
    OK(h->w, io_make_dirs(odd, 0700, &h->w->err));
    assert_int_equal(models_listed(h), 1);
    expect(h, 200, "data.0.id", "tiny-llama");
    expect(h, 200, "data.0.owned_by", "local");
    static const char *const others[] = {".hidden",   "a-file",  "no-config", "folder-config",
                                         "tiny-llam", "ft:none", "ftjob-none"};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        struct models_entry entry = {.dir = NULL};
        ask(h, "GET", http_target("/v1/models/%s", others[i]).text, NULL);
        assert_int_equal(h->status, 404);
        assert_int_equal(models_find(&h->api, "", others[i], &entry, &h->w->err), -ERR_NOT_FOUND);
        assert_string_equal(h->w->err.field, "model");
        assert_null(entry.dir);
    }
    struct models_entry entry;
    assert_int_equal(models_find(&h->api, "", "../models/tiny-llama", &entry, &h->w->err),
                     -ERR_NOT_FOUND);          /* names, never paths */
    http_world_model(h, h->models, "new-one"); /* is there at once */
    assert_int_equal(models_listed(h), 2);
    http_world_model(h, h->models, "org/name");
    assert_int_equal(models_listed(h), 3);
    ask(h, "GET", "/v1/models/org%2Fname", NULL);
    expect(h, 200, "id", "org/name");
    OK(h->w, models_find(&h->api, "", "org/name", &entry, &h->w->err));
    models_entry_done(&entry);
    http_world_put(h, h->models, "new-one/config.json", "{}"); /* listed with the reason */
    assert_int_equal(models_listed(h), 3);
    ask(h, "GET", "/v1/models/new-one", NULL);
    expect(h, 200, "ithaca.reason",
           "new-one/config.json: \"model_type\" is missing; it must be a string");
}

static void test_roots_and_aliases(void **state)
{
    struct http_world *h = *state;
    CLEANUP(mem_free_ptr) char *second = io_join(h->w->dir, "more-models");
    CLEANUP(mem_free_ptr) char *first_dir = io_join(h->models, "tiny-llama");
    struct settings_pair roots[] = {{.value = h->models}, {.value = second}};
    char absent[] = "/nonexistent/models";
    struct settings_pair with_absent[] = {
        {.value = absent}, {.value = h->models}, {.value = second}};
    char key[] = "default", value[] = "other", name[] = "tiny-llama";
    struct settings_pair alias[] = {{.key = key, .value = value}, {.key = value, .value = name}};
    struct settings with = h->settings;
    http_world_model(h, second, "tiny-llama");
    http_world_model(h, second, "other");
    with.model_roots = (struct settings_list){.items = roots, .count = 2};
    with.model_aliases = (struct settings_list){.items = alias, .count = 1};
    h->api.settings = &with;
    struct models_entry entry;
    assert_int_equal(models_listed(h), 2); /* a name once */
    OK(h->w, models_find(&h->api, "", "tiny-llama", &entry, &h->w->err));
    assert_string_equal(entry.dir, first_dir);
    models_entry_done(&entry);
    assert_null(entry.dir);
    OK(h->w, models_find(&h->api, "", "default", &entry, &h->w->err));
    assert_string_equal(entry.name, "other");
    models_entry_done(&entry);
    with.model_aliases.count = 2; /* an alias wins over a folder, and is no chain */
    OK(h->w, models_find(&h->api, "", "other", &entry, &h->w->err));
    assert_string_equal(entry.name, "tiny-llama");
    models_entry_done(&entry);
    with.model_roots = (struct settings_list){.items = with_absent, .count = 3};
    assert_int_equal(models_listed(h), 2);
    h->api.settings = &h->settings;
}

static void test_tuned(void **state)
{
    struct http_world *h = *state;
    struct world_job job = http_world_succeeded(h);
    struct world_row row = world_row(h->w, &job);
    CLEANUP(mem_free_ptr) char *dir = mem_printf("%s/jobs/%s/model", h->w->dir, job.id);
    const char *const names[] = {row.result, job.id};
    for (int i = 0; i < 2; i++) {
        struct models_entry entry;
        OK(h->w, models_find(&h->api, "", names[i], &entry, &h->w->err));
        assert_string_equal(entry.name, row.result);
        assert_string_equal(entry.dir, dir);
        models_entry_done(&entry);
    }
    assert_int_equal(models_listed(h), 2);
    expect(h, 200, "data.1.id", row.result);
    expect(h, 200, "data.1.owned_by", "admin");
    ask(h, "GET", http_target("/v1/models/%s", row.result).text, NULL);
    expect(h, 200, "id", row.result);
    struct world_job other = world_submit(h->w, 1, "");
    struct models_entry entry;
    assert_int_equal(models_find(&h->api, "", other.id, &entry, &h->w->err), -ERR_BAD_STATE);
    assert_non_null(strstr(h->w->err.text, other.id));
}

/* ---- the built-in model: the world's loop ends the worker ---- */

struct maker {
    struct http_world *h;
    const char *writes; /* config.json of the new folder; NULL: none */
    int status;
};

static void maker_ends(void *context)
{
    struct maker *maker = context;
    struct http_world *h = maker->h;
    struct host_process *worker = fake_host_find(&h->w->fake, "--init-model");
    assert_non_null(worker);
    assert_string_equal(worker->argument, "tiny-llama");
    CLEANUP(mem_free_ptr) char *folder = io_join(h->models, ".tiny-llama.new");
    if (maker->writes != NULL)
        http_world_put(h, folder, "config.json", maker->writes);
    fake_host_end(worker, maker->status, 0);
}

static int make(struct http_world *h, const char *writes, int status)
{
    struct maker maker = {.h = h, .writes = writes, .status = status};
    struct loop_timer *timer = NULL;
    OK(h->w, loop_timer_new(h->w->loop, maker_ends, &maker, &timer, &h->w->err));
    loop_timer_set(timer, 1, 0);
    int rc = models_make_builtin(&h->api, &h->w->err);
    loop_timer_free(timer);
    return rc;
}

static void test_builtin(void **state)
{
    struct http_world *h = *state;
    CLEANUP(mem_free_ptr) char *leftover = io_join(h->models, ".tiny-llama.new");
    OK(h->w, models_make_builtin(&h->api, &h->w->err)); /* it is there: nothing is started */
    assert_int_equal(h->w->fake.count, 0);
    OK(h->w, io_remove_tree(h->models, &h->w->err));
    assert_int_equal(make(h, NULL, 70), -ERR_IO);
    assert_non_null(strstr(h->w->err.text, "status 70"));
    assert_non_null(strstr(h->w->err.text, "init-model.log")); /* where to look */
    assert_int_equal(models_listed(h), 0);
    http_world_put(h, leftover, "weights", "of a start that was cut short");
    OK(h->w, io_make_dirs(h->models, 0700, &h->w->err));
    assert_int_equal(make(h, "{}", 0), 0);
    assert_int_equal(models_listed(h), 1);
    assert_false(io_exists(leftover));
    CLEANUP(mem_free_ptr) char *old = io_join(h->models, "tiny-llama/weights");
    assert_false(io_exists(old));
    OK(h->w, io_remove_tree(h->models, &h->w->err));
    h->w->fake.spawn_fails = true;
    assert_int_equal(models_make_builtin(&h->api, &h->w->err), -ERR_IO);
}

/* A published model that is not here: its shape is written once, and again where it is damaged. */
static void test_shapes_are_written_once(void **state)
{
    struct http_world *h = *state;
    ino_t inodes[3];
    struct model_config config;
    CLEANUP(mem_free_ptr) char *path = mem_printf("%s/shapes/llama3-8b/config.json", h->w->dir);
    for (int i = 0; i < 3; i++) {
        struct models_entry entry;
        struct stat info;
        if (i == 2)
            OK(h->w, io_write_file(path, "{\"hidden_size\":1}", 17, 0600, &h->w->err));
        OK(h->w, models_find_shape(&h->api, "", "llama3-8b", &entry, &h->w->err));
        OK(h->w, model_config_load(entry.dir, &config, &h->w->err));
        assert_string_equal(entry.name, "llama3-8b");
        models_entry_done(&entry);
        assert_int_equal(stat(path, &info), 0);
        inodes[i] = info.st_ino; /* a file that is written is a new one */
    }
    assert_true(inodes[0] == inodes[1] && inodes[1] != inodes[2]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        HTTP_TEST(test_shapes_are_written_once),
        HTTP_TEST(test_what_a_model_is),
        HTTP_TEST(test_roots_and_aliases),
        HTTP_TEST(test_tuned),
        HTTP_TEST(test_builtin),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
