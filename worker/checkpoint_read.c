/* checkpoint_read: see checkpoint_read.h. */
#include "worker/checkpoint_read.h"

#include "common/json.h"
#include "common/mem.h"
#include "common/must.h"

#include <string.h>

int checkpoint_model_digest(const struct model_config *config, char ret_hex[IO_HASH_BYTES],
                            struct err *err)
{
    CLEANUP(json_unref) json_t *json = model_config_json(config);
    CLEANUP(buf_done) struct buf text;
    buf_init(&text, LIMIT_MODEL_CONFIG_BYTES);
    TRY(json_print(json, &text, err));
    io_hash(buf_str(&text), text.length, ret_hex);
    return 0;
}

int checkpoint_check_hashes(const char *dir, const struct checkpoint_manifest *manifest,
                            uint32_t first, uint32_t stride, struct err *err)
{
    for (uint32_t i = first; i < manifest->file_count; i += stride) {
        CLEANUP(mem_free_ptr) char *path = checkpoint_file_path(dir, i);
        char hash[IO_HASH_BYTES];
        if (path == NULL)
            return mem_fail(err, strlen(dir), "a path");
        TRY(checkpoint_file_hash(path, hash, err));
        if (strcmp(hash, manifest->files[i].hash) != 0)
            return err_set(err, ERR_CORRUPT, "%s: its checksum does not match the manifest's",
                           path);
    }
    return 0;
}

/* File i of one checkpoint: as many shards as files, all cut alike. */
static int checkpoint_reader_match(const struct checkpoint_reader *reader, uint32_t i,
                                   struct err *err)
{
    const struct checkpoint_file *file = &reader->files[i], *head = &reader->files[0];
    size_t bytes = (size_t)head->units * sizeof *head->shard;
    if (file->index == (int64_t)i && file->shards == (int64_t)reader->manifest.file_count &&
        file->step == reader->manifest.progress.step &&
        memcmp(file->shard, head->shard, bytes) == 0)
        return 0;
    return err_set(err, ERR_CORRUPT, "rank-%u.ckpt is of another checkpoint", i);
}

static int checkpoint_reader_fill(struct checkpoint_reader *reader, const char *dir,
                                  const struct model_shape *shape, struct err *err)
{
    for (uint32_t i = 0; i < reader->manifest.file_count; i++) {
        CLEANUP(mem_free_ptr) char *path = checkpoint_file_path(dir, i);
        if (path == NULL)
            return mem_fail(err, strlen(dir), "a path");
        TRY(checkpoint_file_open(path, shape, &reader->files[i], err));
        TRY(checkpoint_reader_match(reader, i, err));
    }
    return 0;
}

int checkpoint_reader_open(const char *dir, const struct model_shape *shape,
                           struct checkpoint_reader *ret, struct err *err)
{
    struct checkpoint_reader reader = {0};
    TRY(checkpoint_manifest_read(dir, &reader.manifest, err));
    size_t count = reader.manifest.file_count;
    reader.files = mem_new(count, sizeof *reader.files);
    if (reader.files == NULL)
        return mem_fail(err, count * sizeof *reader.files, "a checkpoint's files");
    for (size_t i = 0; i < count; i++)
        reader.files[i].fd = -1;
    int rc = checkpoint_reader_fill(&reader, dir, shape, err);
    if (rc != 0) {
        checkpoint_reader_close(&reader);
        return rc;
    }
    *ret = reader;
    return 0;
}

void checkpoint_reader_close(struct checkpoint_reader *reader)
{
    for (uint32_t i = 0; reader->files != NULL && i < reader->manifest.file_count; i++)
        checkpoint_file_close(&reader->files[i]);
    mem_free(reader->files);
    *reader = (struct checkpoint_reader){0};
}

int checkpoint_reader_read(const struct checkpoint_reader *reader, int64_t unit,
                           enum checkpoint_part part, int64_t first, int64_t count, float *ret,
                           struct err *err)
{
    int64_t shard = reader->files[0].shard[unit];
    must(first >= 0 && count >= 0 && first + count <= shard * reader->files[0].shards);
    while (count > 0) {
        int64_t within = first % shard;
        int64_t run = shard - within < count ? shard - within : count;
        TRY(checkpoint_file_read(&reader->files[first / shard], unit, part, within, run, ret, err));
        first += run;
        ret += run;
        count -= run;
    }
    return 0;
}
