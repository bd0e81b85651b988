/* profile_run: see profile_run.h. Nothing is written between the first and the last step; then rank
 * 0 takes ready.json away, all write their files, and it comes back. */
#include "worker/profile_run.h"

#include "common/io.h"
#include "common/json.h"
#include "common/mem.h"
#include "worker/profile.h"
#include "worker/rank.h"

#include <errno.h>
#include <unistd.h>

void profile_run_plan(struct profile_run *run, int64_t first, int64_t last)
{
    *run = (struct profile_run){.first = first, .last = last};
}

bool profile_run_ask(struct profile_run *run, int64_t next, int64_t count)
{
    if (run->open)
        return false;
    profile_run_plan(run, next, next + count - 1);
    return true;
}

static int run_open(struct rank *rank, struct err *err)
{
    int64_t share = LIMIT_PROFILE_EVENTS_JOB / (int64_t)rank->plan->world;
    const struct profile_options options = {
        .rank = (uint32_t)rank->number,
        .world = rank->plan->world,
        .attempt = rank->plan->attempt,
        .events_max = share < LIMIT_PROFILE_EVENTS ? share : LIMIT_PROFILE_EVENTS};
    TRY(profile_new(rank->device, &rank->exposed, rank->record, &options, &rank->profiling.profile,
                    err));
    rank->device->profile = rank->profiling.profile;
    return 0;
}

void profile_run_before(struct rank *rank, int64_t step)
{
    struct profile_run *run = &rank->profiling;
    struct err err;
    if (run->open || step < run->first || step > run->last)
        return;
    run->open = true;
    if (run_open(rank, &err) != 0)
        report_event(rank->report, 1, "This rank cannot be profiled: %s", err.text);
    /* Ranks take different times to begin; without this the first step would wait for it. Where it
     * fails, so does the step. */
    (void)coll_barrier(rank->coll, &err);
}

/* The folder, without ready.json. */
static int run_clear(struct rank *rank, struct err *err)
{
    CLEANUP(mem_free_ptr) char *folder = io_join(rank->plan->job_dir, "profile");
    CLEANUP(mem_free_ptr) char *ready = profile_ready_path(rank->plan->job_dir);
    if (folder == NULL || ready == NULL)
        return mem_fail(err, LIMIT_PATH_BYTES, "a path");
    TRY(io_make_dirs(folder, 0700, err));
    if (unlink(ready) != 0 && errno != ENOENT)
        return err_set_errno(err, errno, "%s", ready);
    return 0;
}

static int run_write(struct rank *rank, int64_t *ret_dropped, struct err *err)
{
    const struct profile_file *file = NULL;
    CLEANUP(mem_free_ptr)
    char *path = profile_file_path(rank->plan->job_dir, (uint32_t)rank->number);
    if (path == NULL)
        return mem_fail(err, LIMIT_PATH_BYTES, "a path");
    if (rank->profiling.profile == NULL)
        return err_set(err, ERR_INTERNAL, "this rank was not profiled");
    TRY(profile_stop(rank->profiling.profile, &file, err));
    *ret_dropped = file->head.dropped;
    return profile_file_write(path, file, err);
}

static int run_tell_ready(struct rank *rank, struct err *err)
{
    const struct profile_head *head = &rank->profiling.profile->file.head;
    CLEANUP(mem_free_ptr) char *path = profile_ready_path(rank->plan->job_dir);
    CLEANUP(json_unref)
    json_t *ready =
        json_pack("{s:i, s:i, s:I, s:I, s:I}", "attempt", (int)rank->plan->attempt, "world",
                  (int)rank->plan->world, "first_step", (json_int_t)head->first_step, "last_step",
                  (json_int_t)head->last_step, "taken_ms", (json_int_t)head->taken_ms);
    if (path == NULL || ready == NULL)
        return mem_fail(err, LIMIT_PATH_BYTES, "a profile's end");
    return json_write_file(path, ready, 0600, err);
}

/* All ranks' files and their sign; each rank gets what all of them dropped. */
static int run_close(struct rank *rank, int64_t *ret_dropped, struct err *err)
{
    int rc = rank->number == 0 ? run_clear(rank, err) : 0;
    int64_t dropped = 0;
    TRY(rank_agree(rank, rc, err));
    TRY(rank_agree(rank, run_write(rank, &dropped, err), err));
    TRY(rank_sum(rank, &dropped, 1, DTYPE_I64, err));
    *ret_dropped = dropped;
    return rank->number == 0 ? run_tell_ready(rank, err) : 0;
}

static void run_tell(struct rank *rank, int64_t dropped)
{
    const struct profile_head *head = &rank->profiling.profile->file.head;
    report_event(rank->report, 0, "Steps %lld to %lld are profiled.", (long long)head->first_step,
                 (long long)head->last_step);
    if (dropped > 0)
        report_event(rank->report, 1,
                     "The profile's table was full: %lld events of all ranks found no room; the "
                     "steps before them are shown.",
                     (long long)dropped);
    if (head->untraced[0] != '\0')
        report_event(rank->report, 1, "Kernels are not in the profile: %s",
                     rank->profiling.profile->untraced.text);
}

void profile_run_after(struct rank *rank, int64_t step, bool ends)
{
    struct profile_run *run = &rank->profiling;
    struct err err = {.code = ERR_NONE};
    int64_t dropped = 0;
    if (!run->open && ends && step < run->first && rank->number == 0)
        report_event(rank->report, 1,
                     "Steps %lld to %lld were to be profiled; training ends with step %lld.",
                     (long long)run->first, (long long)run->last, (long long)step);
    if (!run->open || (step < run->last && !ends))
        return;
    int rc = run_close(rank, &dropped, &err);
    if (rank->number == 0 && rc == 0)
        run_tell(rank, dropped);
    else if (rank->number == 0)
        report_event(rank->report, 1, "The profile is not there: %s", err.text);
    profile_run_drop(rank);
}

void profile_run_drop(struct rank *rank)
{
    if (rank->device != NULL)
        rank->device->profile = NULL;
    profile_free(rank->profiling.profile);
    rank->profiling = (struct profile_run){.first = 0};
}
