/* model_roots: which folders are models and by which names: plain, of an organisation, in the cache
 * of Hugging Face's tools. */
#include "daemon/model_roots.h"

#include "common/io.h"
#include "common/mem.h"
#include "daemon/settings.h"
#include "tests/lib/folder.h"

#include <stdio.h>
#include <string.h>

static void put(const char *path, const char *text)
{
    struct err err = {0};
    CLEANUP(mem_free_ptr) char *whole = io_join(folder, path);
    char *slash = strrchr(whole, '/');
    *slash = '\0';
    assert_int_equal(io_make_dirs(whole, 0755, &err), 0);
    *slash = '/';
    assert_int_equal(io_write_file(whole, text, strlen(text), 0644, &err), 0);
}

struct seen {
    char lines[2000]; /* "name dir;" of each model, the folder left out */
    int count;
    int stop; /* returned at each */
};

static int note(void *context, const char *name, const char *dir, int64_t created_ms,
                struct err *err)
{
    struct seen *seen = context;
    assert_true(created_ms > 0 && strncmp(dir, folder, strlen(folder)) == 0);
    size_t used = strlen(seen->lines);
    (void)snprintf(seen->lines + used, sizeof seen->lines - used, "%s %s;", name,
                   dir + strlen(folder) + 1);
    seen->count++;
    return seen->stop;
}

static int walk(struct seen *seen)
{
    struct err err = {0};
    char absent[] = "/nonexistent/models";
    struct settings_pair roots[] = {{.value = absent}, {.value = folder}};
    struct settings settings = {.model_roots = {.items = roots, .count = 2}};
    return model_roots_walk(&settings, note, seen, &err);
}

static void found(const struct seen *seen, const char *line)
{
    if (strstr(seen->lines, line) == NULL)
        fail_msg("no %s in %s", line, seen->lines);
}

static void test_names(void **state)
{
    put("plain/config.json", "{}");
    put("org/model-1.5/config.json", "{}");
    put("org/weights-only/model.safetensors", "");
    put("org/index-only/model.safetensors.index.json", "");
    put("plain/nested/config.json", "{}"); /* within a model: a checkpoint, say */
    put("org/.hidden/config.json", "{}");
    put("org/deep/er/config.json", "{}");
    put("with space/config.json", "{}");
    put("org/with space/config.json", "{}");
    put("empty/readme", "");
    put("config.json", "{}");
    struct seen seen = {.count = 0};
    assert_int_equal(walk(&seen), 0);
    assert_int_equal(seen.count, 4);
    found(&seen, "plain plain;");
    found(&seen, "org/model-1.5 org/model-1.5;");
    found(&seen, "org/weights-only org/weights-only;");
    found(&seen, "org/index-only org/index-only;");
    seen = (struct seen){.stop = 7};
    assert_int_equal(walk(&seen), 7);
    assert_int_equal(seen.count, 1);
}

static void test_cache(void **state)
{
    put("models--Qwen--Qwen3-4B/refs/main", "0123abcd");
    put("models--Qwen--Qwen3-4B/snapshots/0123abcd/config.json", "{}");
    put("models--Qwen--Qwen3-4B/snapshots/ffff/config.json", "{}"); /* an older revision */
    put("models--gpt2/refs/main", "77\n");
    put("models--gpt2/snapshots/77/config.json", "{}");
    put("models--a--b--c/refs/main", "1");
    put("models--a--b--c/snapshots/1/config.json", "{}");
    put("models--no--refs/snapshots/1/config.json", "{}");
    put("models--no--snapshot/refs/main", "1");
    put("models--out--side/refs/main", "../../models--gpt2/snapshots/77");
    put("models--em--pty/refs/main", "");
    put("models--long--ref/refs/main",
        "0123456789012345678901234567890123456789012345678901234567890123456789"
        "0123456789012345678901234567890123456789012345678901234567890123456789");
    struct seen seen = {.count = 0};
    assert_int_equal(walk(&seen), 0);
    assert_int_equal(seen.count, 3);
    found(&seen, "Qwen/Qwen3-4B models--Qwen--Qwen3-4B/snapshots/0123abcd;");
    found(&seen, "gpt2 models--gpt2/snapshots/77;");
    found(&seen, "a/b--c models--a--b--c/snapshots/1;");
}

static void test_memory(void **state)
{
    put("org/name/config.json", "{}");
    put("models--a--b/refs/main", "1");
    put("models--a--b/snapshots/1/config.json", "{}");
    int64_t blocks = mem_live();
    for (int fault = 1, rc = -1; rc != 0; fault++) {
        struct seen seen = {.count = 0};
        mem_fault_after(fault);
        rc = walk(&seen);
        mem_fault_after(0);
        assert_true(rc == 0 || rc == -ERR_NOMEM);
        assert_int_equal(mem_live(), blocks);
        if (rc == 0 && seen.count == 2)
            return;
        rc = -1; /* a cache folder that could not be read for want of memory is passed over */
        assert_true(fault < 100);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FOLDER_TEST(test_names),
        FOLDER_TEST(test_cache),
        FOLDER_TEST(test_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
