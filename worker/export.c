/* export: see export.h. */
#include "worker/export.h"

#include "common/io.h"
#include "common/limits.h"
#include "common/mem.h"
#include "common/must.h"
#include "common/safetensors.h"
#include "worker/rank.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

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
                                           "chat_template.jinja"};

static void export_close(struct safetensors **st)
{
    safetensors_free(*st);
}

static void export_writer_free(struct safetensors_writer **writer)
{
    safetensors_writer_free(*writer);
}

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

/* Declares every tensor with the element type it has in the base. */
static int export_declare(const struct rank *rank, struct safetensors_writer *writer,
                          struct err *err)
{
    CLEANUP(export_close) struct safetensors *base = NULL;
    TRY(safetensors_open_dir(rank->plan->model_dir, &base, err));
    for (int64_t i = 0; i < rank->shape.row_count; i++) {
        const struct model_shape_row *row = &rank->shape.rows[i];
        const struct safetensors_entry *entry = safetensors_find(base, row->name);
        if (entry == NULL)
            return err_set(err, ERR_MODEL, "%s: tensor %s went away", rank->plan->model_dir,
                           row->name);
        int64_t shape[2] = {row->rows, row->cols};
        TRY(safetensors_writer_declare(writer, row->name, entry->dtype, row->dims, shape, err));
    }
    return 0;
}

static int export_unit(struct rank *rank, int64_t unit, const float *master, float *chunk,
                       struct safetensors_writer *writer, struct err *err)
{
    const struct fsdp_unit *u = &rank->fsdp.units[unit];
    for (int64_t r = u->row_first; r < u->row_last; r++) {
        const struct model_shape_row *row = &rank->shape.rows[r];
        for (int64_t at = 0; at < row->elements; at += EXPORT_CHUNK_ELEMENTS) {
            int64_t left = row->elements - at;
            int64_t count = left < EXPORT_CHUNK_ELEMENTS ? left : EXPORT_CHUNK_ELEMENTS;
            TRY(rank->device->dev->copy(rank->device, rank->stream, chunk,
                                        master + row->offset + at, (size_t)count * sizeof *chunk,
                                        err));
            TRY(rank->device->dev->sync(rank->device, rank->stream, err));
            TRY(safetensors_writer_put_f32(writer, chunk, count, err));
        }
    }
    return 0;
}

/* writer is NULL on all ranks but 0: they only take part in the gathers. */
static int export_weights(struct rank *rank, struct safetensors_writer *writer, struct err *err)
{
    CLEANUP(mem_free_ptr)
    float *chunk = mem_new(writer == NULL ? 0 : EXPORT_CHUNK_ELEMENTS, sizeof *chunk);
    if (writer != NULL && chunk == NULL)
        return mem_fail(err, EXPORT_CHUNK_ELEMENTS * sizeof *chunk, "a tensor chunk");
    for (int64_t unit = 0; unit < rank->fsdp.unit_count; unit++) {
        const float *master = NULL;
        TRY(fsdp_gather_master(&rank->fsdp, unit, rank->stream, &master, err));
        if (writer != NULL)
            TRY(export_unit(rank, unit, master, chunk, writer, err));
    }
    return 0;
}

static int export_folder(struct rank *rank, const char *temp, struct err *err)
{
    CLEANUP(mem_free_ptr) char *path = io_join(temp, "model.safetensors");
    CLEANUP(export_writer_free) struct safetensors_writer *writer = NULL;
    if (path == NULL)
        return mem_fail(err, strlen(temp), "a path");
    TRY(io_remove_tree(temp, err)); /* of an earlier attempt */
    TRY(io_make_dirs(temp, 0755, err));
    for (size_t i = 0; i < sizeof export_files / sizeof export_files[0]; i++)
        TRY(export_copy_file(rank->plan->model_dir, temp, export_files[i], err));
    TRY(safetensors_writer_new(path, &writer, err));
    TRY(export_declare(rank, writer, err));
    TRY(export_weights(rank, writer, err));
    TRY(safetensors_writer_commit(writer, err));
    return io_fsync_dir(temp, err);
}

int export_model(struct rank *rank, struct err *err)
{
    if (rank->number != 0)
        return export_weights(rank, NULL, err);
    CLEANUP(mem_free_ptr) char *temp = io_join(rank->plan->job_dir, "model.tmp");
    CLEANUP(mem_free_ptr) char *path = io_join(rank->plan->job_dir, "model");
    if (temp == NULL || path == NULL)
        return mem_fail(err, strlen(rank->plan->job_dir), "a path");
    int rc = export_folder(rank, temp, err);
    if (rc != 0) {
        struct err ignored = {0};
        (void)io_remove_tree(temp, &ignored); /* the first error is the one to tell */
        return err_wrap(err, rc, "export: ");
    }
    TRY(io_remove_tree(path, err));
    if (rename(temp, path) != 0)
        return err_set_errno(err, errno, "export: rename %s to %s", temp, path);
    return io_fsync_dir(rank->plan->job_dir, err);
}
