/* fuzz_safetensors_index: model.safetensors.index.json beside two good model files. What opens has
 * every tensor that the index names, and no other. */
#include "common/mem.h"
#include "common/must.h"
#include "common/safetensors.h"
#include "tests/fuzz/fuzz.h"

static void index_shard(const char *name, const char *first, const char *second)
{
    struct err err;
    struct safetensors_writer *writer = NULL;
    static const float values[4] = {1, 2, 3, 4};
    must(safetensors_writer_new(fuzz_path(name), &writer, &err) == 0);
    must(safetensors_writer_declare(writer, first, DTYPE_F32, 1, (int64_t[]){4}, &err) == 0);
    must(safetensors_writer_declare(writer, second, DTYPE_BF16, 2, (int64_t[]){2, 2}, &err) == 0);
    must(safetensors_writer_put_f32(writer, values, 4, &err) == 0);
    must(safetensors_writer_put_f32(writer, values, 4, &err) == 0);
    must(safetensors_writer_commit(writer, &err) == 0);
    safetensors_writer_free(writer);
}

static void index_try(const uint8_t *data, size_t size)
{
    struct err err = {.code = ERR_NONE};
    struct safetensors *st = NULL;
    fuzz_put("model.safetensors.index.json", data, size);
    int rc = safetensors_open_dir(fuzz_folder(), &st, &err);
    if (rc != 0) {
        fuzz_refused(rc, &err);
        must(st == NULL);
        return;
    }
    fuzz_taken++;
    CLEANUP(json_unref) json_t *index = NULL;
    must(json_parse((const char *)data, size, "index", &index, &err) == 0);
    const json_t *map = json_object_get(index, "weight_map");
    must(json_object_size(map) == (size_t)safetensors_count(st));
    for (int64_t i = 0; i < safetensors_count(st); i++)
        must(json_object_get(map, safetensors_at(st, i)->name) != NULL);
    safetensors_free(st);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static bool prepared;
    if (!prepared) {
        index_shard("a.safetensors", "left", "right");
        index_shard("b.safetensors", "up", "down");
        prepared = true;
    }
    int64_t live = mem_live();
    index_try(data, size);
    must(mem_live() == live);
    return 0;
}
