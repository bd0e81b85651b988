/* export: see export.h. */
#include "worker/export.h"

#include "common/io.h"
#include "common/limits.h"
#include "common/mem.h"
#include "common/must.h"
#include "worker/checkpoint_read.h"
#include "worker/model_writer.h"
#include "worker/rank.h"

#include <string.h>

enum { EXPORT_CHUNK_ELEMENTS = 1 << 20 }; /* 4 MiB of host memory between device and file */

static const char *const export_files[] = {"config.json",
                                           "generation_config.json",
                                           "tokenizer.json",
                                           "tokenizer.model",
                                           "tokenizer_config.json",
                                           "special_tokens_map.json",
                                           "added_tokens.json",
                                           "vocab.json",
                                           "merges.txt",
                                           "chat_template.jinja",
                                           "LICENSE",
                                           "LICENSE.txt",
                                           "NOTICE",
                                           "USE_POLICY.md"};

static int export_copy_file(const char *from_dir, const char *to_dir, const char *name,
                            struct err *err)
{
    CLEANUP(mem_free_ptr) char *from = io_join(from_dir, name);
    CLEANUP(mem_free_ptr) char *to = io_join(to_dir, name);
    CLEANUP(buf_done) struct buf bytes;
    buf_init(&bytes, LIMIT_TOKENIZER_BYTES);
    if (from == NULL || to == NULL)
        return mem_fail(err, strlen(name), "a path");
    if (!io_exists(from))
        return 0;
    TRY(io_read_file(from, LIMIT_TOKENIZER_BYTES, &bytes, err));
    return io_write_file(to, buf_str(&bytes), bytes.length, 0644, err);
}

/* A model folder being built beside its place. */
struct export
{
    const char *model_dir; /* the base */
    const struct model_shape *shape;
    const char *path; /* where it appears */
    char *temp;       /* where it is built; owned */
    float *chunk;     /* (EXPORT_CHUNK_ELEMENTS); owned */
    struct model_writer *writer;
};

static void export_done(struct export *export)
{
    model_writer_free(export->writer);
    mem_free(export->chunk);
    mem_free(export->temp);
}

static int export_begin(struct export *export, struct err *err)
{
    export->temp = mem_printf("%s.tmp", export->path);
    export->chunk = mem_new(EXPORT_CHUNK_ELEMENTS, sizeof *export->chunk);
    if (export->temp == NULL || export->chunk == NULL)
        return mem_fail(err, EXPORT_CHUNK_ELEMENTS * sizeof *export->chunk, "an export");
    TRY(io_remove_tree(export->temp, err)); /* of an earlier attempt */
    TRY(io_make_dirs(export->temp, 0755, err));
    for (size_t i = 0; i < sizeof export_files / sizeof export_files[0]; i++)
        TRY(export_copy_file(export->model_dir, export->temp, export_files[i], err));
    return model_writer_new(export->model_dir, export->shape, LIMIT_SHARD_BYTES, export->temp,
                            &export->writer, err);
}

static int export_commit(struct export *export, struct err *err)
{
    TRY(model_writer_commit(export->writer, err));
    TRY(io_fsync_dir(export->temp, err));
    return io_replace_dir(export->temp, export->path, err);
}

/* After a failure: nothing stays behind. */
static int export_abandon(struct export *export, int rc, struct err *err)
{
    struct err ignored = {0};
    if (export->temp != NULL)
        (void)io_remove_tree(export->temp, &ignored); /* the first error is the one to tell */
    return err_wrap(err, rc, "export: ");
}

/* A tensor of a gathered unit. */
static int export_put_row(const struct export *export, struct rank *rank, const float *master,
                          const struct model_shape_row *row, struct err *err)
{
    for (int64_t at = 0; at < row->elements; at += EXPORT_CHUNK_ELEMENTS) {
        int64_t left = row->elements - at;
        int64_t count = left < EXPORT_CHUNK_ELEMENTS ? left : EXPORT_CHUNK_ELEMENTS;
        TRY(rank->device->dev->copy(rank->device, rank->stream, export->chunk,
                                    master + row->offset + at,
                                    (size_t)count * sizeof *export->chunk, err));
        TRY(rank->device->dev->sync(rank->device, rank->stream, err));
        TRY(model_writer_put(export->writer, row, export->chunk, count, err));
    }
    return 0;
}

/* export is NULL on all ranks but 0: they only take part in the gathers. */
static int export_units(const struct export *export, struct rank *rank, struct err *err)
{
    for (int64_t unit = 0; unit < rank->fsdp.unit_count; unit++) {
        const struct fsdp_unit *u = &rank->fsdp.units[unit];
        const float *master = NULL;
        TRY(fsdp_gather_master(&rank->fsdp, unit, rank->stream, &master, err));
        for (int64_t r = u->row_first; export != NULL && r < u->row_last; r++)
            TRY(export_put_row(export, rank, master, &rank->shape.rows[r], err));
    }
    return 0;
}

int export_model(struct rank *rank, struct err *err)
{
    if (rank->number != 0)
        return export_units(NULL, rank, err);
    CLEANUP(mem_free_ptr) char *path = io_join(rank->plan->job_dir, "model");
    if (path == NULL)
        return mem_fail(err, strlen(rank->plan->job_dir), "a path");
    CLEANUP(export_done)
    struct export export = {
        .model_dir = rank->plan->model_dir, .shape = &rank->shape, .path = path};
    int rc = export_begin(&export, err);
    if (rc == 0)
        rc = export_units(&export, rank, err);
    if (rc == 0)
        rc = export_commit(&export, err);
    return rc == 0 ? 0 : export_abandon(&export, rc, err);
}

static int export_rows(const struct export *export, const struct checkpoint_reader *reader,
                       struct err *err)
{
    for (int64_t r = 0; r < export->shape->row_count; r++) {
        const struct model_shape_row *row = &export->shape->rows[r];
        for (int64_t at = 0; at < row->elements; at += EXPORT_CHUNK_ELEMENTS) {
            int64_t left = row->elements - at;
            int64_t count = left < EXPORT_CHUNK_ELEMENTS ? left : EXPORT_CHUNK_ELEMENTS;
            TRY(checkpoint_reader_read(reader, row->unit, CHECKPOINT_MASTER, row->offset + at,
                                       count, export->chunk, err));
            TRY(model_writer_put(export->writer, row, export->chunk, count, err));
        }
    }
    return 0;
}

static int export_from(const char *dir, const struct model_shape *shape, struct export *export,
                       struct err *err)
{
    CLEANUP(checkpoint_reader_close) struct checkpoint_reader reader = {0};
    char digest[IO_HASH_BYTES];
    TRY(checkpoint_reader_open(dir, shape, &reader, err));
    TRY(checkpoint_model_digest(&shape->config, digest, err));
    if (strcmp(digest, reader.manifest.model_digest) != 0)
        return err_set(err, ERR_MODEL, "%s: is not of the model in %s", dir, export->model_dir);
    TRY(checkpoint_check_hashes(dir, &reader.manifest, 0, 1, err));
    int rc = export_begin(export, err);
    if (rc == 0)
        rc = export_rows(export, &reader, err);
    if (rc == 0)
        rc = export_commit(export, err);
    return rc == 0 ? 0 : export_abandon(export, rc, err);
}

int export_checkpoint(const char *dir, const char *model_dir, const char *out_dir, struct err *err)
{
    struct model_config config;
    CLEANUP(model_shape_done) struct model_shape shape = {0};
    if (io_exists(out_dir))
        return err_set(err, ERR_USAGE, "%s: is there already", out_dir);
    TRY(model_config_load(model_dir, &config, err));
    TRY(model_shape_build(&config, &shape, err));
    CLEANUP(export_done)
    struct export export = {.model_dir = model_dir, .shape = &shape, .path = out_dir};
    return export_from(dir, &shape, &export, err);
}
