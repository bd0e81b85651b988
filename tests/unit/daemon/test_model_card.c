/* model_card: what is told of a folder that can be used and of one that cannot: the reason, without
 * this machine's paths. */
#include "daemon/model_card.h"

#include "common/json.h"
#include "daemon/settings.h"
#include "tests/lib/model_folder.h"

#include <string.h>
#include <unistd.h>

static struct model_folder folder;
static json_t *card;

static void put(const char *name, const char *text)
{
    CLEANUP(mem_free_ptr) char *path = io_join(folder.dir, name);
    OK(&folder, io_write_file(path, text, strlen(text), 0644, &folder.err));
}

static int setup(void **state)
{
    model_folder_open(&folder, &model_folder_config, NULL);
    put("tokenizer.json", "{}");
    return 0;
}

static int teardown(void **state)
{
    json_decref(card);
    card = NULL;
    model_folder_close(&folder);
    assert_int_equal(mem_live(), 0);
    return 0;
}

static void ask(void)
{
    char root[] = "/dev/shm", worker[] = "/x/ithaca-worker", data[] = "/y";
    struct settings_pair roots[] = {{.value = root}};
    struct settings settings = {
        .model_roots = {.items = roots, .count = 1}, .worker = worker, .data_dir = data};
    json_decref(card);
    card = model_card(&settings, folder.dir);
    assert_non_null(card);
}

static void refused_for(const char *word)
{
    ask();
    const char *reason = json_string_value(json_object_get(card, "reason"));
    assert_true(json_is_false(json_object_get(card, "ready")));
    assert_true(json_is_null(json_object_get(card, "parameters")));
    if (reason == NULL || strstr(reason, word) == NULL || strstr(reason, "/dev/shm") != NULL)
        fail_msg("\"%s\" lacks %s, or names a root", reason, word);
}

static void drop(const char *name)
{
    CLEANUP(mem_free_ptr) char *path = io_join(folder.dir, name);
    assert_int_equal(unlink(path), 0);
}

static void test_ready(void **state)
{
    struct model_shape shape;
    ask();
    OK(&folder, model_shape_build(&folder.config, &shape, &folder.err));
    assert_true(json_is_true(json_object_get(card, "ready")));
    assert_true(json_is_null(json_object_get(card, "reason")));
    assert_string_equal(json_string_value(json_object_get(card, "family")), "qwen3");
    assert_int_equal(json_integer_value(json_object_get(card, "parameters")), shape.parameters);
    assert_int_equal(json_integer_value(json_object_get(card, "context_length")), 64);
    CLEANUP(json_unref) json_t *degrees = json_pack("[i,i,i]", 1, 2, 4); /* of 4 heads, 2 of K/V */
    assert_true(json_equal(json_object_get(card, "ulysses"), degrees));
    model_shape_done(&shape);
}

static void test_broken(void **state)
{
    drop("tokenizer.json");
    refused_for("no tokenizer.json");
    put("tokenizer.json", "{}");
    drop("model.safetensors");
    refused_for("model.safetensors");
    put("model.safetensors.index.json",
        "{\"weight_map\":{\"a\":\"one.safetensors\",\"b\":\"two.safetensors\"}}");
    put("one.safetensors", "");
    refused_for("two.safetensors");
    put("two.safetensors", "");
    ask();
    assert_true(json_is_true(json_object_get(card, "ready")));
    put("model.safetensors.index.json", "{\"weight_map\":{\"a\":\"../x\"}}");
    refused_for("../x");
    put("model.safetensors.index.json", "{\"weight_map\":{\"a\":7}}");
    refused_for("index.json");
    put("model.safetensors.index.json", "{\"weight_map\":");
    refused_for("index.json");
    put("config.json", "{\"model_type\":\"mamba\"}");
    refused_for("mamba");
    put("config.json", "{");
    refused_for("config.json");
    drop("config.json");
    refused_for("config.json");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_ready, setup, teardown),
        cmocka_unit_test_setup_teardown(test_broken, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
