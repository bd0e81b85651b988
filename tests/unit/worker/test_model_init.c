/* model_init: the same seed gives the same bytes, another seed others; the folder is whole or
 * absent, and one that exists is kept. */
#include "worker/model_init.h"

#include "tests/lib/folder.h"
#include "tests/lib/model_folder.h"

#include <math.h>
#include <string.h>

static struct err err;

static void weights_hash(const char *model, char ret_hex[IO_HASH_BYTES])
{
    CLEANUP(mem_free_ptr) char *path = io_join(model, "model.safetensors");
    CLEANUP(buf_done) struct buf bytes;
    buf_init(&bytes, 64 << 20);
    assert_int_equal(io_read_file(path, 64 << 20, &bytes, &err), 0);
    io_hash(bytes.data, bytes.length, ret_hex);
}

static void test_seeds(void **state)
{
    char first[IO_HASH_BYTES], again[IO_HASH_BYTES], other[IO_HASH_BYTES];
    assert_int_equal(model_init_weights(&model_folder_config, folder, 5, &err), 0);
    weights_hash(folder, first);
    assert_int_equal(model_init_weights(&model_folder_config, folder, 5, &err), 0);
    weights_hash(folder, again);
    assert_int_equal(model_init_weights(&model_folder_config, folder, 6, &err), 0);
    weights_hash(folder, other);
    assert_string_equal(first, again);
    assert_string_not_equal(first, other);
    struct model_config read;
    assert_int_equal(model_config_load(folder, &read, &err), 0);
    assert_int_equal(read.kv_heads, model_folder_config.kv_heads);
}

/* Twice the standard deviation that the configuration names for the embedding; norms are ones. */
static void test_distribution(void **state)
{
    struct safetensors *st = NULL;
    float values[264 * 16];
    assert_int_equal(model_init_weights(&model_folder_config, folder, 5, &err), 0);
    assert_int_equal(safetensors_open_dir(folder, &st, &err), 0);
    const struct safetensors_entry *embed = safetensors_find(st, "model.embed_tokens.weight");
    assert_int_equal(embed->elements, 264 * 16);
    assert_int_equal(safetensors_read_f32(st, embed, 0, embed->elements, values, &err), 0);
    double sum = 0, squares = 0;
    for (int i = 0; i < 264 * 16; i++) {
        sum += (double)values[i];
        squares += (double)values[i] * (double)values[i];
    }
    assert_true(fabs(sum / (264 * 16)) < 0.04);
    assert_true(fabs(sqrt(squares / (264 * 16)) - 0.6) < 0.03);
    const struct safetensors_entry *norm = safetensors_find(st, "model.norm.weight");
    assert_int_equal(safetensors_read_f32(st, norm, 0, 16, values, &err), 0);
    for (int i = 0; i < 16; i++)
        assert_true(values[i] == 1.0f);
    safetensors_free(st);
}

static void test_builtin(void **state)
{
    static const char *const files[] = {"model.safetensors", "config.json", "tokenizer.json",
                                        "tokenizer_config.json"};
    CLEANUP(mem_free_ptr) char *model = io_join(folder, "tiny-llama");
    CLEANUP(mem_free_ptr) char *temp = io_join(folder, "tiny-llama.tmp");
    CLEANUP(mem_free_ptr) char *old = io_join(temp, "old");
    struct tokenizer *tokenizer = NULL;
    char first[IO_HASH_BYTES], again[IO_HASH_BYTES];
    assert_int_equal(model_init_builtin("no-llama", model, 0, &err), -ERR_NOT_FOUND);
    assert_non_null(strstr(err.text, "no-llama"));
    assert_int_equal(io_make_dirs(temp, 0700, &err), 0);
    assert_int_equal(io_write_file(old, "x", 1, 0600, &err), 0); /* of a run that did not end */
    assert_int_equal(model_init_builtin("tiny-llama", model, 1, &err), 0);
    assert_false(io_exists(temp));
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        CLEANUP(mem_free_ptr) char *path = io_join(model, files[i]);
        assert_true(io_exists(path));
    }
    assert_int_equal(tokenizer_load(model, &tokenizer, &err), 0);
    tokenizer_free(tokenizer);
    weights_hash(model, first);
    assert_int_equal(model_init_builtin("tiny-llama", model, 2, &err), -ERR_IN_USE);
    weights_hash(model, again);
    assert_string_equal(first, again); /* what exists is kept */
}

static void test_full_disk(void **state)
{
    CLEANUP(mem_free_ptr) char *model = io_join(folder, "tiny-llama");
    for (int64_t n = 1; n <= 8; n += 1 + n / 2) { /* of some hundred writes and syncs */
        io_fault_after(n);
        int rc = model_init_builtin("tiny-llama", model, 1, &err);
        io_fault_after(0);
        assert_int_equal(rc, -ERR_NO_SPACE);
        assert_false(io_exists(model));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FOLDER_TEST(test_seeds),
        FOLDER_TEST(test_distribution),
        FOLDER_TEST(test_builtin),
        FOLDER_TEST(test_full_disk),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
