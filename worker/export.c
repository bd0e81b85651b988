/* export: see export.h. */
#include "worker/export.h"

#include "common/io.h"
#include "common/limits.h"
#include "common/lora_shape.h"
#include "common/mem.h"
#include "common/must.h"
#include "worker/checkpoint_read.h"
#include "worker/lora_export.h"
#include "worker/model_writer.h"
#include "worker/rank.h"

#include <string.h>

enum { EXPORT_CHUNK_ELEMENTS = 1 << 20 }; /* 4 MiB of host memory between device and file */

/* The first EXPORT_OF_MODEL say what the weights are: not beside adapters alone. */
enum { EXPORT_OF_MODEL = 2 };
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

/* Where trained values come from: ranks that gather them, or a checkpoint. */
struct export_source {
    struct rank *rank;                      /* or NULL */
    const struct checkpoint_reader *reader; /* then this */
    const float *master;                    /* the gathered unit */
};

/* All ranks. */
static int export_gather(struct export_source *source, int64_t unit, struct err *err)
{
    if (source->rank == NULL)
        return 0;
    return fsdp_gather_master(source->rank->trained, unit, source->rank->stream, &source->master,
                              err);
}

/* Elements [first, first + count) of the unit that was gathered last. */
static int export_read(const struct export_source *source, int64_t unit, int64_t first,
                       int64_t count, float *ret, struct err *err)
{
    struct rank *rank = source->rank;
    if (rank == NULL)
        return checkpoint_reader_read(source->reader, unit, CHECKPOINT_MASTER, first, count, ret,
                                      err);
    TRY(rank->device->dev->copy(rank->device, rank->stream, ret, source->master + first,
                                (size_t)count * sizeof *ret, err));
    return rank->device->dev->sync(rank->device, rank->stream, err);
}

/* A model folder being built beside its place. */
struct export
{
    const char *model_dir; /* the base */
    const struct model_shape *shape;
    const struct job_spec *spec; /* its `lora` fields and model */
    const char *path;            /* where it appears */
    char *temp;                  /* where it is built; owned */
    float *chunk;                /* (EXPORT_CHUNK_ELEMENTS); owned */
    struct model_writer *writer; /* NULL: of adapters alone */
    struct lora_export lora;     /* with adapters */
};

static void export_done(struct export *export)
{
    lora_export_done(&export->lora);
    model_writer_free(export->writer);
    mem_free(export->chunk);
    mem_free(export->temp);
}

/* Adapters alone are the folder; else they have a folder in it, where PEFT finds them and those who
 * load the model do not take it for one. */
static int export_begin_lora(struct export *export, struct err *err)
{
    enum job_lora_export what = export->spec->lora_export;
    CLEANUP(mem_free_ptr) char *below = io_join(export->temp, LORA_SHAPE_FOLDER);
    if (below == NULL)
        return mem_fail(err, strlen(export->temp), "a path");
    const char *dir = what == JOB_lora_export_MERGED    ? NULL
                      : what == JOB_lora_export_ADAPTER ? export->temp
                                                        : below;
    return lora_export_open(&export->lora, export->shape, export->spec, export->model_dir, dir,
                            err);
}

static int export_begin(struct export *export, struct err *err)
{
    bool lora = export->spec->lora;
    bool model = !lora || export->spec->lora_export != JOB_lora_export_ADAPTER;
    export->temp = mem_printf("%s.tmp", export->path);
    export->chunk = mem_new(EXPORT_CHUNK_ELEMENTS, sizeof *export->chunk);
    if (export->temp == NULL || export->chunk == NULL)
        return mem_fail(err, EXPORT_CHUNK_ELEMENTS * sizeof *export->chunk, "an export");
    TRY(io_remove_tree(export->temp, err)); /* of an earlier attempt */
    TRY(io_make_dirs(export->temp, 0755, err));
    for (size_t i = 0; i < sizeof export_files / sizeof export_files[0]; i++)
        if (model || i >= EXPORT_OF_MODEL)
            TRY(export_copy_file(export->model_dir, export->temp, export_files[i], err));
    if (lora)
        TRY(export_begin_lora(export, err));
    if (!model)
        return 0;
    return model_writer_new(export->model_dir, export->shape, LIMIT_SHARD_BYTES, export->temp,
                            &export->writer, err);
}

static int export_commit(struct export *export, struct err *err)
{
    TRY(lora_export_commit(&export->lora, err));
    if (export->writer != NULL)
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

/* A tensor of the model: trained itself, or with what was trained added. */
static int export_row(const struct export *export, const struct export_source *source,
                      const struct model_shape_row *row, struct err *err)
{
    for (int64_t at = 0; at < row->elements; at += EXPORT_CHUNK_ELEMENTS) {
        int64_t left = row->elements - at;
        int64_t count = left < EXPORT_CHUNK_ELEMENTS ? left : EXPORT_CHUNK_ELEMENTS;
        TRY(export->spec->lora
                ? lora_export_weights(&export->lora, row, at, count, export->chunk, err)
                : export_read(source, row->unit, row->offset + at, count, export->chunk, err));
        TRY(model_writer_put(export->writer, row, export->chunk, count, err));
    }
    return 0;
}

/* A layer's adapters, to the host and into their files. */
static int export_adapters(struct export *export, const struct export_source *source, int64_t layer,
                           struct err *err)
{
    TRY(export_read(source, layer, 0, export->lora.shape.unit_elements[layer], export->lora.values,
                    err));
    return lora_export_put(&export->lora, layer, err);
}

/* Unit after unit of the model. export is NULL on all ranks but 0: they only take part in the
 * gathers. */
static int export_units(struct export *export, struct export_source *source,
                        const struct model_shape *shape, bool lora, struct err *err)
{
    int64_t row = 0;
    for (int64_t unit = 0; unit < shape->unit_count; unit++) {
        bool layer = unit > 0 && unit < shape->unit_count - 1;
        if (!lora || layer)
            TRY(export_gather(source, lora ? unit - 1 : unit, err));
        if (export == NULL)
            continue;
        if (lora && layer)
            TRY(export_adapters(export, source, unit - 1, err));
        for (; row < shape->row_count && shape->rows[row].unit == unit; row++)
            if (export->writer != NULL)
                TRY(export_row(export, source, &shape->rows[row], err));
    }
    return 0;
}

static int export_run(struct export *export, struct export_source *source, struct err *err)
{
    int rc = export_begin(export, err);
    if (rc == 0)
        rc = export_units(export, source, export->shape, export->spec->lora, err);
    if (rc == 0)
        rc = export_commit(export, err);
    return rc == 0 ? 0 : export_abandon(export, rc, err);
}

int export_model(struct rank *rank, struct err *err)
{
    struct export_source source = {.rank = rank};
    if (rank->number != 0)
        return export_units(NULL, &source, &rank->shape, rank->plan->spec.lora, err);
    CLEANUP(mem_free_ptr) char *path = io_join(rank->plan->job_dir, "model");
    if (path == NULL)
        return mem_fail(err, strlen(rank->plan->job_dir), "a path");
    CLEANUP(export_done)
    struct export export = {.model_dir = rank->plan->model_dir,
                            .shape = &rank->shape,
                            .spec = &rank->plan->spec,
                            .path = path};
    return export_run(&export, &source, err);
}

/* The table of what the checkpoint holds. */
static int export_trained(const struct model_shape *shape, const struct job_spec *spec,
                          struct model_shape *ret, struct err *err)
{
    return spec->lora ? lora_shape_build(shape, spec, ret, err)
                      : model_shape_build(&shape->config, ret, err);
}

static int export_from(const char *dir, const struct checkpoint_manifest *manifest,
                       struct export *export, struct err *err)
{
    CLEANUP(checkpoint_reader_close) struct checkpoint_reader reader = {0};
    CLEANUP(model_shape_done) struct model_shape trained = {0};
    char digest[IO_HASH_BYTES];
    TRY(checkpoint_model_digest(&export->shape->config, digest, err));
    if (strcmp(digest, manifest->model_digest) != 0)
        return err_set(err, ERR_MODEL, "%s: is not of the model in %s", dir, export->model_dir);
    TRY(export_trained(export->shape, export->spec, &trained, err));
    TRY(checkpoint_reader_open(dir, &trained, &reader, err));
    TRY(checkpoint_check_hashes(dir, &reader.manifest, 0, 1, err));
    struct export_source source = {.reader = &reader};
    return export_run(export, &source, err);
}

int export_checkpoint(const char *dir, const char *model_dir, const char *out_dir, struct err *err)
{
    struct model_config config;
    struct checkpoint_manifest manifest;
    CLEANUP(model_shape_done) struct model_shape shape = {0};
    if (io_exists(out_dir))
        return err_set(err, ERR_USAGE, "%s: is there already", out_dir);
    TRY(model_config_load(model_dir, &config, err));
    TRY(model_shape_build(&config, &shape, err));
    TRY(checkpoint_manifest_read(dir, &manifest, err));
    CLEANUP(export_done)
    struct export export = {
        .model_dir = model_dir, .shape = &shape, .spec = &manifest.adapters, .path = out_dir};
    return export_from(dir, &manifest, &export, err);
}
