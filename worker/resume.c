/* resume: see resume.h. A rank reads only the element ranges of its own shards, out of whatever
 * files hold them. */
#include "worker/resume.h"

#include "common/io.h"
#include "common/mem.h"
#include "common/must.h"
#include "worker/checkpoint.h"
#include "worker/checkpoint_read.h"
#include "worker/rank.h"

#include <stdio.h>
#include <string.h>

enum { RESUME_CHUNK_ELEMENTS = 1 << 20 }; /* 4 MiB of host memory between file and device */

static int resume_check_manifest(const struct rank *rank, const char *dir,
                                 const struct checkpoint_manifest *manifest, struct err *err)
{
    char model[IO_HASH_BYTES], data[IO_HASH_BYTES];
    TRY(checkpoint_model_digest(&rank->shape.config, model, err));
    loader_digest(&rank->train, &rank->plan->spec, data);
    const char *other = NULL;
    if (strcmp(manifest->job_id, rank->plan->job_id) != 0)
        other = "job";
    else if (strcmp(manifest->model_digest, model) != 0)
        other = "model";
    else if (strcmp(manifest->data_digest, data) != 0 ||
             manifest->position != manifest->progress.step * rank->train.batch)
        other = "order of the training data";
    if (other != NULL)
        return err_set(err, ERR_CORRUPT, "%s: is of another %s", dir, other);
    return 0;
}

/* Everything this rank can say against a checkpoint. */
static int resume_check(const struct rank *rank, const char *dir, struct checkpoint_reader *reader,
                        struct err *err)
{
    TRY(checkpoint_reader_open(dir, rank->trained->shape, reader, err));
    TRY(resume_check_manifest(rank, dir, &reader->manifest, err));
    return checkpoint_check_hashes(dir, &reader->manifest, (uint32_t)rank->number,
                                   (uint32_t)rank->world, err);
}

static int resume_load_part(struct rank *rank, const struct checkpoint_reader *reader, int64_t unit,
                            enum checkpoint_part part, float *to, float *chunk, struct err *err)
{
    const struct device_ops *dev = rank->device->dev;
    const struct fsdp *fsdp = rank->trained;
    int64_t shard = fsdp->units[unit].shard, elements = fsdp->shape->unit_elements[unit];
    int64_t first = fsdp->index * shard;
    int64_t last = first + shard < elements ? first + shard : elements; /* beyond: padding, zero */
    for (int64_t at = first; at < last; at += RESUME_CHUNK_ELEMENTS) {
        int64_t count = last - at < RESUME_CHUNK_ELEMENTS ? last - at : RESUME_CHUNK_ELEMENTS;
        TRY(checkpoint_reader_read(reader, unit, part, at, count, chunk, err));
        TRY(dev->copy(rank->device, rank->stream, to + (at - first), chunk,
                      (size_t)count * sizeof *chunk, err));
        TRY(dev->sync(rank->device, rank->stream, err)); /* chunk is read again */
    }
    return 0;
}

static int resume_load(struct rank *rank, const struct checkpoint_reader *reader, struct err *err)
{
    CLEANUP(mem_free_ptr) float *chunk = mem_new(RESUME_CHUNK_ELEMENTS, sizeof *chunk);
    if (chunk == NULL)
        return mem_fail(err, RESUME_CHUNK_ELEMENTS * sizeof *chunk, "a checkpoint's buffer");
    for (int64_t u = 0; u < rank->trained->unit_count; u++) {
        const struct fsdp_unit *unit = &rank->trained->units[u];
        TRY(resume_load_part(rank, reader, u, CHECKPOINT_MASTER, unit->master, chunk, err));
        TRY(resume_load_part(rank, reader, u, CHECKPOINT_M, unit->m, chunk, err));
        TRY(resume_load_part(rank, reader, u, CHECKPOINT_V, unit->v, chunk, err));
    }
    fsdp_weights_changed(rank->trained);
    return 0;
}

/* The sentence without the job's folder, which is nobody's business. */
static const char *resume_reason(const struct rank *rank, const struct err *err)
{
    size_t length = strlen(rank->plan->job_dir);
    bool inside = strncmp(err->text, rank->plan->job_dir, length) == 0 && err->text[length] == '/';
    return inside ? err->text + length + 1 : err->text;
}

/* One checkpoint, all ranks: *ret_used false when any rank finds fault with it. */
static int resume_try(struct rank *rank, const char *dir, bool *ret_used,
                      struct checkpoint_manifest *ret_manifest, struct err *err)
{
    CLEANUP(checkpoint_reader_close) struct checkpoint_reader reader = {0};
    int rc = resume_check(rank, dir, &reader, err);
    if (rc != 0)
        report_event(rank->report, 1, "checkpoint of step %lld cannot be used: %s",
                     (long long)checkpoint_step_of(dir), resume_reason(rank, err));
    rc = rank_agree(rank, rc, err);
    if (rc != 0 && (!checkpoint_is_harmless(rc) || rc == -ERR_NOMEM))
        return rc; /* it says nothing of the checkpoint */
    *ret_used = rc == 0;
    if (rc != 0)
        return 0;
    TRY(rank_agree(rank, resume_load(rank, &reader, err), err));
    *ret_manifest = reader.manifest;
    return 0;
}

static void resume_take(struct rank *rank, const struct checkpoint_manifest *manifest)
{
    rank->progress = manifest->progress;
    rank->saved_step = manifest->progress.step;
    rank->optim.updates = manifest->progress.updates;
    if (rank->number == 0)
        report_event(rank->report, 0, "training goes on from step %lld (%u ranks saved it)",
                     (long long)manifest->progress.step, manifest->world);
}

/* Rank 0: what could not be used, and all later, is neither listed nor tried again. */
static void resume_give_up(const struct rank *rank, int64_t step)
{
    struct err err;
    int rc = checkpoint_discard_after(rank->plan->job_dir, step, &err);
    if (rc == 0)
        rc = checkpoint_clean(rank->plan->job_dir, &err);
    if (rc != 0)
        report_event(rank->report, 1, "an abandoned checkpoint could not be removed: %s",
                     resume_reason(rank, &err));
}

int resume_start(struct rank *rank, bool *ret_resumed, struct err *err)
{
    struct checkpoint_manifest manifest;
    CLEANUP(mem_free_ptr) int64_t *steps = NULL;
    const char *from = rank->plan->resume_from;
    size_t count = 0;
    *ret_resumed = false;
    if (from == NULL)
        return 0;
    TRY(rank_agree(rank, checkpoint_list(rank->plan->job_dir, &steps, &count, err), err));
    int64_t newest = checkpoint_step_of(from);
    TRY(resume_try(rank, from, ret_resumed, &manifest, err));
    for (size_t i = 0; i < count && !*ret_resumed; i++) {
        if (steps[i] >= newest)
            continue;
        CLEANUP(mem_free_ptr) char *dir = checkpoint_dir(rank->plan->job_dir, steps[i]);
        if (dir == NULL)
            return mem_fail(err, strlen(rank->plan->job_dir), "a path");
        TRY(resume_try(rank, dir, ret_resumed, &manifest, err));
    }
    if (*ret_resumed)
        resume_take(rank, &manifest);
    else if (rank->number == 0)
        report_event(rank->report, 1, "no checkpoint can be used: training starts over");
    if (rank->number == 0)
        resume_give_up(rank, *ret_resumed ? manifest.progress.step : -1);
    return 0;
}

int resume_return_to(struct rank *rank, int64_t step, bool *ret_found, struct err *err)
{
    struct checkpoint_manifest manifest;
    CLEANUP(mem_free_ptr) char *dir = checkpoint_dir(rank->plan->job_dir, step);
    if (dir == NULL)
        return mem_fail(err, strlen(rank->plan->job_dir), "a path");
    return resume_try(rank, dir, ret_found, &manifest, err);
}
