/* prepare: see prepare.h. The model's files are checked first: a shard that is missing or damaged
 * is told before any rank holds a device (field cases R20, R21). */
#include "worker/prepare.h"

#include "common/clock.h"
#include "common/dataset_cache.h"
#include "common/dataset_random.h"
#include "common/mem.h"
#include "common/model_config.h"
#include "common/prepare_request.h"
#include "worker/export.h"
#include "worker/weights.h"

#include <stdio.h>
#include <unistd.h>

enum { PREPARE_PROGRESS_MS = 1000 };

/* Of the file at hand, for its progress. */
struct prepare_progress {
    const struct prepare_request *request;
    size_t file;
    int64_t bytes_total;
    int64_t told_ms;
};

/* waiting: for another job's tokens. */
static void prepare_write_progress(const struct prepare_progress *progress,
                                   const struct dataset_progress *at, bool waiting)
{
    CLEANUP(json_unref)
    json_t *json = json_pack(
        "{s:I, s:I, s:I, s:I, s:I, s:I, s:O?, s:b}", "file", (json_int_t)progress->file + 1,
        "files", (json_int_t)progress->request->file_count, "bytes", (json_int_t)at->bytes,
        "bytes_total", (json_int_t)progress->bytes_total, "rows", (json_int_t)at->rows, "bad",
        (json_int_t)at->bad, "fault", at->fault, "waiting", waiting);
    struct err ignored; /* the next second tells again */
    if (json != NULL)
        (void)json_write_scratch(progress->request->progress_path, json, &ignored);
}

static void prepare_tell(void *context, const struct dataset_progress *at)
{
    struct prepare_progress *progress = context;
    int64_t now_ms = clock_monotonic_ms();
    if (now_ms - progress->told_ms < PREPARE_PROGRESS_MS)
        return;
    progress->told_ms = now_ms;
    prepare_write_progress(progress, at, false);
}

static void prepare_unlock(int *fd)
{
    if (*fd >= 0)
        (void)close(*fd); /* only a lock */
}

/* Takes the tokens out of the cache, now or when who makes them has; else *ret_lock is held. */
static int prepare_find(const char *cache_dir, const struct dataset_request *dataset,
                        struct dataset_cache_keys *ret_keys, int *ret_lock, bool *ret_hit,
                        struct err *err)
{
    TRY(dataset_cache_keys(dataset, ret_keys, err));
    TRY(dataset_cache_take(cache_dir, ret_keys, dataset, ret_hit, err));
    if (*ret_hit)
        return 0;
    TRY(dataset_cache_lock(cache_dir, ret_keys, false, ret_lock, err));
    if (*ret_lock < 0) {
        prepare_write_progress(dataset->progress_context, &(struct dataset_progress){0}, true);
        TRY(dataset_cache_lock(cache_dir, ret_keys, true, ret_lock, err));
    }
    return dataset_cache_take(cache_dir, ret_keys, dataset, ret_hit, err);
}

/* One file, made or found in the cache, which only ever saves work: its faults are printed. */
static int prepare_file(const struct prepare_request *request, size_t index,
                        const struct dataset_request *dataset, struct err *err)
{
    struct dataset_cache_keys keys;
    struct err cache = {.code = ERR_NONE};
    bool hit = false;
    CLEANUP(prepare_unlock) int lock = -1;
    int rc = prepare_find(request->cache_dir, dataset, &keys, &lock, &hit, &cache);
    printf("%s file %zu of %zu\n", hit ? "found" : "preparing", index + 1, request->file_count);
    (void)fflush(stdout);
    if (!hit)
        TRY(dataset_prepare(dataset, err));
    if (!hit && rc == 0)
        rc = dataset_cache_keep(request->cache_dir, &keys, dataset, &cache);
    if (rc != 0)
        printf("not kept for other jobs: %s\n", cache.text);
    return 0;
}

static int prepare_files(const struct prepare_request *request, struct err *err)
{
    struct model_config config;
    struct err ignored; /* a next one sweeps */
    TRY(model_config_load(request->model_dir, &config, err));
    if (request->random_path != NULL)
        return dataset_random_write(request->random_path, 1, request->spec.seq_len,
                                    config.vocab_size, err);
    (void)dataset_cache_sweep(request->cache_dir, &ignored);
    for (size_t i = 0; i < request->file_count; i++) {
        const struct prepare_file *file = &request->files[i];
        struct prepare_progress progress = {.request = request, .file = i};
        (void)io_file_size(file->path, &progress.bytes_total, &ignored); /* preparing tells */
        struct dataset_request dataset = {.path = file->path,
                                          .name = file->name,
                                          .vocab = config.vocab_size,
                                          .model_dir = request->model_dir,
                                          .out_path = file->out_path,
                                          .report_path = file->report_path,
                                          .seq_len = request->spec.seq_len,
                                          .overlength = request->spec.overlength,
                                          .train_on = request->spec.train_on,
                                          .chat_template = request->spec.chat_template,
                                          .progress = prepare_tell,
                                          .progress_context = &progress};
        TRY(prepare_file(request, i, &dataset, err));
    }
    return 0;
}

int prepare_main(const char *request_path, struct err *err)
{
    CLEANUP(prepare_request_done) struct prepare_request request = {0};
    TRY(prepare_request_read(request_path, &request, err));
    int rc = 0;
    if (request.checkpoint_dir != NULL)
        rc = export_checkpoint(request.checkpoint_dir, request.source_dir, request.model_dir, err);
    bool weights = !job_spec_measures(&request.spec); /* which has random ones */
    if (rc == 0 && weights)
        rc = weights_check_folder(request.model_dir, err);
    if (rc == 0)
        rc = prepare_files(&request, err);
    struct err ignored = {0};
    if (rc != 0) /* the exit status still tells, should this fail too */
        (void)prepare_error_write(request.error_path, err, &ignored);
    return rc;
}
