/* fuzz_checkpoint_file: rank-R.ckpt, against a model small enough that a whole file of one shard of
 * 64 has 300 bytes. In a file that opens every part of every unit can be read. */
#include "common/limits.h"
#include "common/mem.h"
#include "common/model_shape.h"
#include "common/must.h"
#include "tests/fuzz/fuzz.h"
#include "worker/checkpoint_file.h"

enum { READ_ELEMENTS = 16 };

static const struct model_config file_model = {.family = MODEL_FAMILY_LLAMA,
                                               .vocab_size = 4,
                                               .hidden_size = 4,
                                               .intermediate_size = 4,
                                               .layers = 1,
                                               .heads = 1,
                                               .kv_heads = 1,
                                               .head_dim = 4,
                                               .tie_embeddings = true};

static void file_read(const struct checkpoint_file *file, const struct model_shape *shape,
                      int64_t file_bytes)
{
    must(file->units == shape->unit_count && file->shards >= 1 && file->shards <= LIMIT_RANKS);
    must(file->index >= 0 && file->index < file->shards);
    for (int64_t unit = 0; unit < file->units; unit++) {
        int64_t shard = file->shard[unit];
        must(shard >= 1 && shard * file->shards >= shape->unit_elements[unit]);
        must(file->offset[unit] > 0);
        must(file->offset[unit] + CHECKPOINT_PARTS * shard * 4 <= file_bytes);
        for (int part = 0; part < CHECKPOINT_PARTS; part++) {
            struct err err;
            float values[READ_ELEMENTS];
            int64_t count = shard < READ_ELEMENTS ? shard : READ_ELEMENTS;
            must(checkpoint_file_read(file, unit, (enum checkpoint_part)part, shard - count, count,
                                      values, &err) == 0);
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct model_shape shape;
    struct err err = {.code = ERR_NONE};
    if (shape.rows == NULL)
        must(model_shape_build(&file_model, &shape, &err) == 0);
    int64_t live = mem_live();
    struct checkpoint_file file;
    int rc = checkpoint_file_open(fuzz_file(data, size), &shape, &file, &err);
    if (rc == 0) {
        fuzz_taken++;
        file_read(&file, &shape, (int64_t)size);
        checkpoint_file_close(&file);
    } else {
        fuzz_refused(rc, &err);
        must(rc == -ERR_CORRUPT);
    }
    must(mem_live() == live);
    return 0;
}
