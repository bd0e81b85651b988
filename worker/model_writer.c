/* model_writer: see model_writer.h. All files are open at once: tensors come in the table's order,
 * and a base may have dealt them out in any. */
#include "worker/model_writer.h"

#include "common/io.h"
#include "common/json.h"
#include "common/limits.h"
#include "common/mem.h"
#include "common/must.h"
#include "common/safetensors.h"

#include <string.h>

struct model_file {
    char *name;
    struct safetensors_writer *writer; /* NULL: the base's holds no tensor of the model */
};

struct model_writer {
    const struct model_shape *shape; /* borrowed */
    char *dir;                       /* owned, as are the next two */
    int32_t *file_of;                /* (row_count) of each tensor */
    struct model_file *files;        /* (count) */
    int32_t count;
    int64_t bytes; /* of all tensors */
};

void model_writer_free(struct model_writer *writer)
{
    if (writer == NULL)
        return;
    for (int32_t i = 0; writer->files != NULL && i < writer->count; i++) {
        safetensors_writer_free(writer->files[i].writer);
        mem_free(writer->files[i].name);
    }
    mem_free(writer->files);
    mem_free(writer->file_of);
    mem_free(writer->dir);
    mem_free(writer);
}

static void model_writer_unref(struct model_writer **writer)
{
    model_writer_free(*writer);
}

static void model_writer_close(struct safetensors **st)
{
    safetensors_free(*st);
}

static int model_writer_entry(const struct safetensors *base, const char *base_dir,
                              const struct model_shape_row *row,
                              const struct safetensors_entry **ret, struct err *err)
{
    *ret = safetensors_find(base, row->name);
    return *ret != NULL ? 0
                        : err_set(err, ERR_MODEL, "%s: tensor %s went away", base_dir, row->name);
}

/* Which file each tensor goes to, and how many files there are. */
static int model_writer_deal(struct model_writer *writer, const struct safetensors *base,
                             const char *base_dir, int64_t shard_bytes, struct err *err)
{
    int32_t base_files = safetensors_files(base), file = 0;
    int64_t filled = 0;
    for (int64_t i = 0; i < writer->shape->row_count; i++) {
        const struct safetensors_entry *entry;
        TRY(model_writer_entry(base, base_dir, &writer->shape->rows[i], &entry, err));
        if (filled > 0 && filled + entry->bytes > shard_bytes) {
            filled = 0;
            file++;
        }
        filled += entry->bytes;
        writer->bytes += entry->bytes;
        writer->file_of[i] = base_files > 1 ? entry->file : file;
    }
    writer->count = base_files > 1 ? base_files : file + 1;
    return 0;
}

static int model_writer_names(struct model_writer *writer, const struct safetensors *base,
                              struct err *err)
{
    writer->files = mem_new((size_t)writer->count, sizeof *writer->files);
    bool whole = writer->files != NULL;
    for (int32_t i = 0; whole && i < writer->count; i++) {
        char *name = safetensors_files(base) > 1 ? mem_strdup(safetensors_file_name(base, i))
                     : writer->count > 1
                         ? mem_printf("model-%05d-of-%05d.safetensors", i + 1, writer->count)
                         : mem_strdup("model.safetensors");
        writer->files[i].name = name;
        whole = name != NULL;
    }
    return whole ? 0
                 : mem_fail(err, (size_t)writer->count * sizeof *writer->files, "names of files");
}

/* Declares the tensor in its file, which is begun with the first. */
static int model_writer_declare(struct model_writer *writer, int64_t i, enum dtype dtype,
                                struct err *err)
{
    const struct model_shape_row *row = &writer->shape->rows[i];
    const int64_t extents[2] = {row->rows, row->cols};
    struct model_file *file = &writer->files[writer->file_of[i]];
    if (file->writer == NULL) {
        CLEANUP(mem_free_ptr) char *path = io_join(writer->dir, file->name);
        if (path == NULL)
            return mem_fail(err, strlen(writer->dir), "a path");
        TRY(safetensors_writer_new(path, &file->writer, err));
    }
    return safetensors_writer_declare(file->writer, row->name, dtype, row->dims, extents, err);
}

int model_writer_new(const char *base_dir, const struct model_shape *shape, int64_t shard_bytes,
                     const char *out_dir, struct model_writer **ret, struct err *err)
{
    CLEANUP(model_writer_close) struct safetensors *base = NULL;
    CLEANUP(model_writer_unref) struct model_writer *writer = mem_new(1, sizeof *writer);
    if (writer == NULL)
        return mem_fail(err, sizeof *writer, "a model's files");
    writer->shape = shape;
    writer->dir = mem_strdup(out_dir);
    writer->file_of = mem_new((size_t)shape->row_count, sizeof *writer->file_of);
    if (writer->dir == NULL || writer->file_of == NULL)
        return mem_fail(err, (size_t)shape->row_count * sizeof(int32_t), "a model's files");
    TRY(safetensors_open_dir(base_dir, &base, err));
    TRY(model_writer_deal(writer, base, base_dir, shard_bytes, err));
    TRY(model_writer_names(writer, base, err));
    for (int64_t i = 0; i < shape->row_count; i++) {
        const struct safetensors_entry *entry;
        TRY(model_writer_entry(base, base_dir, &shape->rows[i], &entry, err));
        TRY(model_writer_declare(writer, i, entry->dtype, err));
    }
    *ret = writer;
    writer = NULL;
    return 0;
}

int model_writer_put(struct model_writer *writer, const struct model_shape_row *row,
                     const float *values, int64_t count, struct err *err)
{
    must(row == &writer->shape->rows[row->index]);
    const struct model_file *file = &writer->files[writer->file_of[row->index]];
    return safetensors_writer_put_f32(file->writer, values, count, err);
}

static int model_writer_index(const struct model_writer *writer, struct err *err)
{
    CLEANUP(mem_free_ptr) char *path = io_join(writer->dir, "model.safetensors.index.json");
    json_t *map = json_object();
    bool whole = path != NULL && map != NULL;
    for (int64_t i = 0; whole && i < writer->shape->row_count; i++)
        whole = json_object_set_new(map, writer->shape->rows[i].name,
                                    json_string(writer->files[writer->file_of[i]].name)) == 0;
    CLEANUP(json_unref)
    json_t *index = json_pack("{s:{s:I}, s:o}", "metadata", "total_size", (json_int_t)writer->bytes,
                              "weight_map", map); /* takes map, also when it fails */
    return whole && index != NULL ? json_write_file(path, index, 0644, err)
                                  : mem_fail(err, LIMIT_PATH_BYTES, "an index");
}

int model_writer_commit(struct model_writer *writer, struct err *err)
{
    for (int32_t i = 0; i < writer->count; i++)
        if (writer->files[i].writer != NULL)
            TRY(safetensors_writer_commit(writer->files[i].writer, err));
    return writer->count > 1 ? model_writer_index(writer, err) : 0;
}
