/* checkpoint: see checkpoint.h. Each stage ends with rank_agree(), so that all ranks go the same
 * way. Sizes and hashes reach rank 0 by a sum over ranks of a table in which each rank fills its
 * own row. */
#include "worker/checkpoint.h"

#include "common/clock.h"
#include "common/io.h"
#include "common/mem.h"
#include "common/must.h"
#include "worker/checkpoint_read.h"
#include "worker/rank.h"

#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>

struct checkpoint {
    struct rank *rank;
    char *folder; /* <job_dir>/checkpoints; owned, as are the next two */
    char *path;   /* step-N in it */
    char *temp;   /* step-N.tmp */
    struct checkpoint_manifest manifest;
};

static void checkpoint_done(struct checkpoint *checkpoint)
{
    mem_free(checkpoint->folder);
    mem_free(checkpoint->path);
    mem_free(checkpoint->temp);
}

static int checkpoint_init(struct checkpoint *checkpoint, struct rank *rank, struct err *err)
{
    const struct launch_plan *plan = rank->plan;
    *checkpoint =
        (struct checkpoint){.rank = rank,
                            .folder = io_join(plan->job_dir, "checkpoints"),
                            .path = checkpoint_dir(plan->job_dir, rank->progress.step),
                            .manifest = {.attempt = plan->attempt,
                                         .world = plan->world,
                                         .created_ms = clock_wall_ms(),
                                         .position = rank->progress.step * rank->train.batch,
                                         .progress = rank->progress,
                                         .file_count = (uint32_t)rank->trained->shards}};
    if (checkpoint->path != NULL)
        checkpoint->temp = mem_printf("%s.tmp", checkpoint->path);
    if (checkpoint->folder == NULL || checkpoint->temp == NULL)
        return mem_fail(err, strlen(plan->job_dir), "a path");
    struct checkpoint_manifest *manifest = &checkpoint->manifest;
    memcpy(manifest->job_id, plan->job_id, sizeof plan->job_id);
    if (plan->spec.lora)
        manifest->adapters = plan->spec;
    manifest->adapters.metadata = NULL; /* the plan's */
    manifest->progress.updates = rank->optim.updates;
    TRY(checkpoint_model_digest(&rank->shape.config, manifest->model_digest, err));
    loader_digest(&rank->train, &plan->spec, manifest->data_digest);
    return 0;
}

static int checkpoint_check_room(const struct checkpoint *checkpoint, struct err *err)
{
    struct statvfs disk;
    double needed = (double)checkpoint_file_bytes(checkpoint->rank->trained) *
                    (double)checkpoint->manifest.file_count;
    if (statvfs(checkpoint->folder, &disk) != 0)
        return err_set_errno(err, errno, "%s", checkpoint->folder);
    double available = (double)disk.f_bavail * (double)disk.f_frsize;
    if (needed <= available)
        return 0;
    return err_set(err, ERR_NO_SPACE,
                   "a checkpoint needs %.1f MiB, the disk of the job's folder has %.1f MiB free",
                   needed / 0x1p20, available / 0x1p20);
}

/* Rank 0: the folder to write into. */
static int checkpoint_begin(const struct checkpoint *checkpoint, struct err *err)
{
    if (checkpoint->rank->number != 0)
        return 0;
    TRY(io_make_dirs(checkpoint->folder, 0700, err));
    TRY(io_remove_tree(checkpoint->temp, err));
    TRY(checkpoint_check_room(checkpoint, err));
    return io_make_dirs(checkpoint->temp, 0700, err);
}

static int checkpoint_write_own(struct checkpoint *checkpoint, struct err *err)
{
    TRY(report_keep(checkpoint->rank->report, err)); /* metrics of the steps that it holds */
    struct rank *rank = checkpoint->rank;
    uint32_t file = (uint32_t)rank->number;
    if (file >= checkpoint->manifest.file_count)
        return 0; /* it holds what rank 0 holds */
    must(checkpoint->temp != NULL);
    CLEANUP(mem_free_ptr) char *path = checkpoint_file_path(checkpoint->temp, file);
    if (path == NULL)
        return mem_fail(err, strlen(checkpoint->temp), "a path");
    return checkpoint_file_write(path, rank->trained, rank->stream, rank->progress.step,
                                 &checkpoint->manifest.files[file], err);
}

struct checkpoint_words {
    int64_t bytes;
    char hash[IO_HASH_BYTES - 1];
};
enum { CHECKPOINT_WORDS = sizeof(struct checkpoint_words) / sizeof(int64_t) };

/* Every rank's entry on every rank. */
static int checkpoint_share_entries(struct checkpoint *checkpoint, struct err *err)
{
    struct rank *rank = checkpoint->rank;
    struct checkpoint_entry *files = checkpoint->manifest.files;
    struct checkpoint_words words[LIMIT_RANKS] = {0}; /* each written by one rank, zero elsewhere */
    uint32_t count = checkpoint->manifest.file_count;
    if ((uint32_t)rank->number < count) {
        words[rank->number].bytes = files[rank->number].bytes;
        memcpy(words[rank->number].hash, files[rank->number].hash, IO_HASH_BYTES - 1);
    }
    TRY(rank_sum(rank, words, CHECKPOINT_WORDS * (int64_t)count, DTYPE_I64, err));
    for (uint32_t i = 0; i < count; i++) {
        files[i].bytes = words[i].bytes;
        memcpy(files[i].hash, words[i].hash, IO_HASH_BYTES - 1);
    }
    return 0;
}

static int checkpoint_finish(const struct checkpoint *checkpoint, struct err *err)
{
    if (checkpoint->rank->number != 0)
        return 0;
    TRY(checkpoint_manifest_write(checkpoint->temp, &checkpoint->manifest, err));
    return io_replace_dir(checkpoint->temp, checkpoint->path, err);
}

/* By way of a .tmp name: half removed it must not look like a checkpoint. */
static int checkpoint_remove(const char *job_dir, int64_t step, struct err *err)
{
    CLEANUP(mem_free_ptr) char *path = checkpoint_dir(job_dir, step);
    CLEANUP(mem_free_ptr) char *temp = path == NULL ? NULL : mem_printf("%s.tmp", path);
    if (temp == NULL)
        return mem_fail(err, strlen(job_dir), "a path");
    TRY(io_remove_tree(temp, err));
    if (rename(path, temp) != 0)
        return err_set_errno(err, errno, "%s: rename", path);
    return io_remove_tree(temp, err);
}

/* Step of the valid one with the lowest validation loss, -1 when none was evaluated. Steps that are
 * not valid, and those after `now` (of a run that went on from before them), become -1. */
static int64_t checkpoint_pick(const char *job_dir, int64_t now, int64_t *steps, size_t count)
{
    int64_t best = -1;
    double best_loss = INFINITY;
    for (size_t i = 0; i < count; i++) {
        struct err ignored;
        struct checkpoint_manifest manifest;
        CLEANUP(mem_free_ptr) char *dir = checkpoint_dir(job_dir, steps[i]);
        if (dir == NULL)
            continue;
        if (steps[i] > now || checkpoint_manifest_read(dir, &manifest, &ignored) != 0)
            steps[i] = -steps[i] - 1; /* negative: to be removed */
        else if (manifest.progress.valid_loss <= best_loss) {
            best_loss = manifest.progress.valid_loss;
            best = steps[i];
        }
    }
    return best;
}

/* The newest `keep` stay, and the best by validation loss. */
static int checkpoint_retain(const struct rank *rank, struct err *err)
{
    const char *job_dir = rank->plan->job_dir;
    CLEANUP(mem_free_ptr) int64_t *steps = NULL;
    size_t count = 0;
    TRY(checkpoint_list(job_dir, &steps, &count, err));
    int64_t best = checkpoint_pick(job_dir, rank->progress.step, steps, count);
    int64_t kept = 0;
    for (size_t i = 0; i < count; i++) {
        bool valid = steps[i] >= 0;
        if (valid && (kept++ < rank->plan->spec.save_keep || steps[i] == best))
            continue;
        TRY(checkpoint_remove(job_dir, valid ? steps[i] : -steps[i] - 1, err));
    }
    return 0;
}

static int checkpoint_stages(struct checkpoint *checkpoint, struct err *err)
{
    struct rank *rank = checkpoint->rank;
    TRY(rank_agree(rank, checkpoint_begin(checkpoint, err), err));
    TRY(rank_agree(rank, checkpoint_write_own(checkpoint, err), err));
    TRY(checkpoint_share_entries(checkpoint, err));
    return rank_agree(rank, checkpoint_finish(checkpoint, err), err);
}

bool checkpoint_is_harmless(int rc)
{
    return rc != -ERR_COLL_ABORTED && rc != -ERR_COLL_TIMEOUT && rc != -ERR_INTERNAL;
}

int checkpoint_save(struct rank *rank, struct err *err)
{
    CLEANUP(checkpoint_done) struct checkpoint checkpoint;
    struct err ignored;
    rank_phase(rank, rank->progress.step, WIRE_PHASE_CHECKPOINT);
    int rc = rank_agree(rank, checkpoint_init(&checkpoint, rank, err), err);
    if (rc == 0)
        rc = checkpoint_stages(&checkpoint, err);
    if (rc != 0) {
        if (rank->number == 0 && checkpoint.temp != NULL)
            (void)io_remove_tree(checkpoint.temp, &ignored); /* the next attempt tries again */
        return err_wrap(err, rc, "checkpoint of step %lld: ", (long long)rank->progress.step);
    }
    rank->saved_step = rank->progress.step;
    if (rank->number != 0)
        return 0;
    report_checkpointed(rank->report, rank->saved_step,
                        checkpoint_manifest_bytes(&checkpoint.manifest));
    if (checkpoint_retain(rank, &ignored) != 0)
        report_event(rank->report, 1, "an old checkpoint could not be removed: %s", ignored.text);
    return 0;
}

int checkpoint_clean(const char *job_dir, struct err *err)
{
    CLEANUP(mem_free_ptr) char *folder = io_join(job_dir, "checkpoints");
    if (folder == NULL)
        return mem_fail(err, strlen(job_dir), "a path");
    DIR *list = opendir(folder);
    if (list == NULL)
        return errno == ENOENT ? 0 : err_set_errno(err, errno, "%s", folder);
    int rc = 0;
    const struct dirent *entry;
    while (rc == 0 && (entry = readdir(list)) != NULL) {
        const char *dot = strrchr(entry->d_name, '.');
        if (dot == NULL || strcmp(dot, ".tmp") != 0)
            continue;
        CLEANUP(mem_free_ptr) char *path = io_join(folder, entry->d_name);
        rc = path != NULL ? io_remove_tree(path, err) : mem_fail(err, strlen(folder), "a path");
    }
    (void)closedir(list); /* read only */
    return rc;
}
