/* profile_job: see profile_job.h. */
#include "worker/profile_job.h"

#include "common/io.h"
#include "common/json.h"
#include "common/mem.h"
#include "worker/profile_summary.h"
#include "worker/profile_trace.h"

#include <stdlib.h>
#include <string.h>

const char *profile_event_name(const struct profile_file *file, const struct profile_event *event)
{
    return file->names[event->name];
}

/* ---- what the ranks left ----------------------------------------------------------------- */

static int job_compare(const void *left, const void *right)
{
    const struct profile_event *a = left, *b = right;
    if (a->begin_ns != b->begin_ns)
        return a->begin_ns < b->begin_ns ? -1 : 1;
    if (a->end_ns != b->end_ns)
        return a->end_ns > b->end_ns ? -1 : 1;
    return (a->kind > b->kind) - (a->kind < b->kind);
}

/* Cut to the step that it is in; false where it is in none. A device's clock is told apart from the
 * host's by some microseconds only, so that what it does last may seem to end after its step. */
static bool job_cut(const struct profile_event *steps, int64_t count, struct profile_event *event)
{
    for (int64_t s = 0; s < count; s++) {
        if (event->end_ns < steps[s].begin_ns || event->begin_ns > steps[s].end_ns)
            continue;
        if (event->begin_ns < steps[s].begin_ns)
            event->begin_ns = steps[s].begin_ns;
        if (event->end_ns > steps[s].end_ns)
            event->end_ns = steps[s].end_ns;
        return true;
    }
    return false;
}

static void job_sort(struct profile_file *file)
{
    struct profile_event *events = file->events, steps[LIMIT_PROFILE_STEPS];
    int64_t kept = 0, step_count = 0;
    for (int64_t i = 0; i < file->head.count && step_count < LIMIT_PROFILE_STEPS; i++)
        if (events[i].kind == PROFILE_STEP)
            steps[step_count++] = events[i];
    for (int64_t i = 0; i < file->head.count; i++)
        if (job_cut(steps, step_count, &events[i]))
            events[kept++] = events[i];
    file->head.count = kept;
    qsort(events, (size_t)kept, sizeof *events, job_compare);
}

static int job_read_rank(struct profile_job *job, const char *job_dir, uint32_t rank,
                         struct err *err)
{
    struct profile_file *file = &job->files[rank];
    CLEANUP(mem_free_ptr) char *path = profile_file_path(job_dir, rank);
    if (path == NULL)
        return mem_fail(err, LIMIT_PATH_BYTES, "a path");
    TRY(profile_file_read(path, file, err));
    if (file->head.rank != rank || file->head.world != job->world ||
        file->head.attempt != job->plan.attempt || file->head.last_step != job->last_step)
        return err_set(err, ERR_CORRUPT, "%s: it is of another profile", path);
    job_sort(file);
    job->dropped += file->head.dropped;
    if (file->head.count > 0 && file->events[0].begin_ns < job->began_ns)
        job->began_ns = file->events[0].begin_ns;
    return 0;
}

/* Steps of a rank before its table was full. */
static int64_t job_whole_steps(const struct profile_file *file)
{
    int64_t steps = 0;
    for (int64_t i = 0; i < file->head.count; i++)
        steps += file->events[i].kind == PROFILE_STEP &&
                 (file->head.dropped == 0 || file->events[i].end_ns <= file->head.full_ns);
    return steps;
}

/* Those behind it are left out; the slice of a step comes before all that lies in it. */
static void job_keep_steps(struct profile_file *file, int64_t steps)
{
    int64_t count = 0;
    for (; count < file->head.count; count++)
        if (file->events[count].kind == PROFILE_STEP && steps-- == 0)
            break;
    file->head.count = count;
}

/* What is not whole would be told as idle time. */
static void job_leave_out(struct profile_job *job)
{
    int64_t whole = job->last_step - job->first_step + 1;
    for (uint32_t rank = 0; rank < job->world; rank++) {
        int64_t steps = job_whole_steps(&job->files[rank]);
        whole = steps < whole ? steps : whole;
    }
    if (job->dropped == 0 || whole < 1)
        return;
    for (uint32_t rank = 0; rank < job->world; rank++)
        job_keep_steps(&job->files[rank], whole);
    job->left_out = job->last_step - job->first_step + 1 - whole;
    job->last_step = job->first_step + whole - 1;
    job->dropped = 0;
}

static int job_read_ready(struct profile_job *job, const char *job_dir, int64_t *ret_attempt,
                          struct err *err)
{
    int64_t world = 0;
    CLEANUP(mem_free_ptr) char *path = profile_ready_path(job_dir);
    CLEANUP(json_unref) json_t *ready = NULL;
    if (path == NULL)
        return mem_fail(err, LIMIT_PATH_BYTES, "a path");
    TRY(json_parse_own_file(path, LIMIT_FRAME_BYTES, &ready, err));
    TRY(json_get_i64(ready, "attempt", ERR_CORRUPT, ret_attempt, err));
    TRY(json_get_i64(ready, "world", ERR_CORRUPT, &world, err));
    TRY(json_get_i64(ready, "first_step", ERR_CORRUPT, &job->first_step, err));
    TRY(json_get_i64(ready, "last_step", ERR_CORRUPT, &job->last_step, err));
    TRY(json_get_i64(ready, "taken_ms", ERR_CORRUPT, &job->taken_ms, err));
    if (world < 1 || world > LIMIT_RANKS)
        return err_set(err, ERR_CORRUPT, "%s: %lld ranks", path, (long long)world);
    job->world = (uint32_t)world;
    return 0;
}

static int job_read_plan(struct profile_job *job, const char *job_dir, int64_t attempt,
                         struct err *err)
{
    struct model_config config;
    CLEANUP(mem_free_ptr)
    char *path = mem_printf("%s/attempt-%lld", job_dir, (long long)attempt);
    if (path == NULL)
        return mem_fail(err, LIMIT_PATH_BYTES, "a path");
    TRY(launch_plan_read(path, &job->plan, err));
    if (job->plan.world != job->world)
        return err_set(err, ERR_CORRUPT, "%s: of %u ranks, the profile of %u", path,
                       job->plan.world, job->world);
    TRY(model_config_load(job->plan.model_dir, &config, err));
    TRY(model_shape_build(&config, &job->shape, err));
    return launch_plan_memory(&job->plan, &job->shape, &job->memory, err);
}

static int job_open(struct profile_job *job, const char *job_dir, struct err *err)
{
    int64_t attempt = 0;
    TRY(job_read_ready(job, job_dir, &attempt, err));
    TRY(job_read_plan(job, job_dir, attempt, err));
    job->files = mem_new(job->world, sizeof *job->files);
    if (job->files == NULL)
        return mem_fail(err, job->world * sizeof *job->files, "a profile");
    for (uint32_t rank = 0; rank < job->world; rank++)
        TRY(job_read_rank(job, job_dir, rank, err));
    job_leave_out(job);
    if (job->began_ns == INT64_MAX)
        return err_set(err, ERR_CORRUPT, "the profile of %s has no whole step", job_dir);
    return 0;
}

int profile_job_open(struct profile_job *ret, const char *job_dir, int64_t device_bytes,
                     struct err *err)
{
    struct profile_job job = {.device_bytes = device_bytes, .began_ns = INT64_MAX};
    int rc = job_open(&job, job_dir, err);
    if (rc == 0)
        *ret = job;
    else
        profile_job_done(&job);
    return rc;
}

void profile_job_done(struct profile_job *job)
{
    for (uint32_t rank = 0; job->files != NULL && rank < job->world; rank++)
        profile_file_done(&job->files[rank]);
    mem_free(job->files);
    mem_plan_done(&job->memory);
    model_shape_done(&job->shape);
    launch_plan_done(&job->plan);
    *job = (struct profile_job){.files = NULL};
}

bool profile_job_is_whole(const struct profile_job *job)
{
    return job->dropped == 0 && job->files[0].head.untraced[0] == '\0';
}

/* ---- the program ------------------------------------------------------------------------- */

static int job_write(const struct profile_job *job, const char *dir, struct err *err)
{
    CLEANUP(mem_free_ptr) char *summary_path = io_join(dir, "summary.json");
    CLEANUP(mem_free_ptr) char *trace_path = io_join(dir, "trace.json.gz");
    CLEANUP(json_unref) json_t *summary = NULL;
    if (summary_path == NULL || trace_path == NULL)
        return mem_fail(err, LIMIT_PATH_BYTES, "a path");
    TRY(profile_trace_write(job, trace_path, err));
    TRY(profile_summary_make(job, &summary, err));
    return json_write_file(summary_path, summary, 0600, err);
}

int profile_job_make(const char *job_dir, int64_t device_bytes, const char *out_dir,
                     struct err *err)
{
    CLEANUP(profile_job_done) struct profile_job job = {.files = NULL};
    CLEANUP(mem_free_ptr) char *temp = mem_printf("%s.tmp", out_dir);
    struct err unremoved; /* the daemon's next start empties the folder it lies in */
    if (temp == NULL)
        return mem_fail(err, LIMIT_PATH_BYTES, "a path");
    TRY(profile_job_open(&job, job_dir, device_bytes, err));
    TRY(io_remove_tree(temp, err));
    TRY(io_make_dirs(temp, 0700, err));
    int rc = job_write(&job, temp, err);
    if (rc == 0)
        rc = io_replace_dir(temp, out_dir, err);
    if (rc != 0)
        (void)io_remove_tree(temp, &unremoved);
    return rc;
}
