/* prune: a list of runs, each a list of targets. A turn takes some things, each all targets of one
 * job, or one file: looks whether they still may go and moves them away; then it says so of all, in
 * one transaction, for a wait for the disk a thing would be most of what a prune takes. They gather
 * in <data_dir>/pruned, which goes to the trash in one piece: a child a thing would take hours for
 * thousands. */
#include "daemon/prune.h"

#include "common/clock.h"
#include "common/io.h"
#include "common/log.h"
#include "common/mem.h"
#include "daemon/api.h"
#include "daemon/bus.h"
#include "daemon/coordinator.h"
#include "daemon/exports.h"
#include "daemon/files.h"
#include "daemon/host.h"
#include "daemon/housekeeping.h"
#include "daemon/job_fsm.h"
#include "daemon/loop.h"
#include "daemon/notice.h"
#include "daemon/settings.h"
#include "daemon/trash.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    PRUNE_TEXT_BYTES = 2048, /* of an event: the steps of a hundred checkpoints */
    PRUNE_GATHERED = 256,    /* that go to the trash in one piece */
    PRUNE_TURN_MS = 3        /* of a turn of the loop, beside the wait for the disk */
};

struct prune_run {
    struct prune_target *targets; /* owned */
    size_t count;
    size_t at;         /* the next one */
    bool frees_shards; /* of jobs: the cache may hold the last links now */
    char who[LIMIT_NAME_BYTES + 1];
    prune_fn *done;
    void *context;
    struct prune_run *next;
};

struct prune {
    struct api *api;
    struct loop_timer *timer;
    struct prune_run *runs;
    char *folder;  /* where it gathers what it moves; made when it is missed */
    int64_t moved; /* so far */
};

/* ---- one thing ----------------------------------------------------------------------------- */

/* What has been gathered goes to the trash, where one child removes all of it. */
static int prune_hand_over(struct prune *prune, struct err *err)
{
    struct host *host = prune->api->host;
    char name[64]; /* no id begins so, and no two are the same */
    (void)snprintf(name, sizeof name, "pruned-%lld-%lld", (long long)host->ops->wall_ms(host),
                   (long long)prune->moved);
    TRY(trash_put_as(prune->api->settings->data_dir, prune->folder, name, err));
    housekeeping_wake(prune->api->housekeeping);
    return 0;
}

/* Moves what is at "<data_dir>/<path>", unless a child makes a model, or a trace, of it; what is
 * not there is fine. */
static int prune_move(struct prune *prune, const char *path, struct err *err)
{
    CLEANUP(mem_free_ptr) char *from = io_join(prune->api->settings->data_dir, path);
    CLEANUP(mem_free_ptr) char *to = mem_printf("%s/%lld", prune->folder, (long long)prune->moved);
    if (from == NULL || to == NULL)
        return mem_fail(err, LIMIT_PATH_BYTES, "a path");
    if (exports_is_reading(prune->api->exports, from))
        return err_set(err, ERR_BAD_STATE, "%s is being exported", path);
    int rc = rename(from, to);
    if (rc != 0 && errno == ENOENT) { /* either may not be there */
        TRY(io_make_dirs(prune->folder, 0700, err));
        rc = rename(from, to);
    }
    if (rc != 0)
        return errno == ENOENT ? 0 : err_set_errno(err, errno, "%s: remove", from);
    return ++prune->moved % PRUNE_GATHERED == 0 ? prune_hand_over(prune, err) : 0;
}

/* Moves what is meant of what lies in "<data_dir>/<folder>". */
static int prune_move_of(struct prune *prune, const char *folder,
                         bool (*is_meant)(int folder_fd, const char *name), struct err *err)
{
    CLEANUP(mem_free_ptr) char *whole = io_join(prune->api->settings->data_dir, folder);
    DIR *stream = whole != NULL ? opendir(whole) : NULL;
    int rc = 0;
    if (whole == NULL)
        return mem_fail(err, LIMIT_PATH_BYTES, "a path");
    if (stream == NULL)
        return errno == ENOENT ? 0 : err_set_errno(err, errno, "%s", whole);
    const struct dirent *entry;
    while (rc == 0 && (entry = readdir(stream)) != NULL) {
        if (!is_meant(dirfd(stream), entry->d_name))
            continue;
        CLEANUP(mem_free_ptr) char *path = io_join(folder, entry->d_name);
        rc =
            path != NULL ? prune_move(prune, path, err) : mem_fail(err, LIMIT_PATH_BYTES, "a path");
    }
    (void)closedir(stream); /* read only */
    return rc;
}

static int prune_checkpoint(struct prune *prune, struct prune_target *target, struct err *err)
{
    const bool is_whole = target->step > 0;
    const long long step = is_whole ? target->step : -target->step;
    CLEANUP(mem_free_ptr)
    char *path =
        mem_printf("jobs/%s/checkpoints/step-%lld%s", target->id, step, is_whole ? "" : ".tmp");
    return path != NULL ? prune_move(prune, path, err) : mem_fail(err, LIMIT_PATH_BYTES, "a path");
}

/* All folders "attempt-N" of a job, and the profile, which is made of a plan in one of them. */
static bool prune_is_log(int folder_fd, const char *name)
{
    (void)folder_fd;
    return strncmp(name, "attempt-", 8) == 0 || strcmp(name, "profile") == 0;
}

static int prune_logs(struct prune *prune, struct prune_target *target, struct err *err)
{
    CLEANUP(mem_free_ptr) char *folder = io_join("jobs", target->id);
    return folder != NULL ? prune_move_of(prune, folder, prune_is_log, err)
                          : mem_fail(err, LIMIT_PATH_BYTES, "a path");
}

/* Shards of the cache that no job holds: those with one link. */
static bool prune_is_unheld(int folder_fd, const char *name)
{
    struct stat info;
    return fstatat(folder_fd, name, &info, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(info.st_mode) &&
           info.st_nlink == 1;
}

static int prune_cache(struct prune *prune, struct err *err)
{
    return prune_move_of(prune, "cache", prune_is_unheld, err);
}

/* A job's link goes at once, so that the cache knows: it takes no time while there is another. */
static int prune_shard(struct prune *prune, const char *job_id, const char *name, struct err *err)
{
    struct stat info;
    CLEANUP(mem_free_ptr) char *path = mem_printf("jobs/%s/tokens/%s", job_id, name);
    CLEANUP(mem_free_ptr)
    char *whole = path != NULL ? io_join(prune->api->settings->data_dir, path) : NULL;
    if (whole == NULL)
        return mem_fail(err, LIMIT_PATH_BYTES, "a path");
    if (lstat(whole, &info) != 0 || info.st_nlink < 2)
        return prune_move(prune, path, err);
    return unlink(whole) == 0 ? 0 : err_set_errno(err, errno, "%s: remove", whole);
}

static int prune_shards(struct prune *prune, struct prune_target *target, struct err *err)
{
    if (!target->is_job)
        return prune_cache(prune, err);
    prune->runs->frees_shards = true;
    TRY(prune_shard(prune, target->id, "train.tok", err));
    return prune_shard(prune, target->id, "valid.tok", err);
}

static int prune_file(struct prune *prune, struct prune_target *target, struct err *err)
{
    struct api *api = prune->api;
    if (coordinator_uses_file(api->coordinator, target->id))
        return err_set(err, ERR_BAD_STATE, "%s is used by a job that has not ended", target->id);
    return files_remove(api->store, api->settings->data_dir, target->id, err);
}

static int prune_one(struct prune *prune, struct prune_target *target, struct err *err)
{
    switch (target->kind) {
    case STORAGE_CHECKPOINTS:
        return prune_checkpoint(prune, target, err);
    case STORAGE_LOGS:
        return prune_logs(prune, target, err);
    case STORAGE_SHARDS:
        return prune_shards(prune, target, err);
    case STORAGE_FILES:
        return prune_file(prune, target, err);
    default:
        return err_set(err, ERR_INTERNAL, "%s are not removed", storage_kind_name(target->kind));
    }
}

/* ---- telling ------------------------------------------------------------------------------- */

/* "checkpoints of steps 10, 20, logs": what is gone, of some targets. */
static void prune_words(const struct prune_target *targets, size_t count, struct buf *out)
{
    enum storage_kind before = STORAGE_KIND_COUNT;
    for (size_t i = 0; i < count; i++) {
        const struct prune_target *target = &targets[i];
        if (!target->is_gone)
            continue;
        if (target->kind != before)
            buf_printf(out, "%s%s", before != STORAGE_KIND_COUNT ? "; " : "",
                       storage_kind_name(target->kind));
        if (target->step != 0)
            buf_printf(out, "%s step %lld%s", target->kind == before ? "," : ":",
                       (long long)(target->step > 0 ? target->step : -target->step),
                       target->step > 0 ? "" : " (unfinished)");
        before = target->kind;
    }
}

/* Targets of one thing, which follow each other: the first of them is given. */
static size_t prune_thing_count(const struct prune_target *first, size_t left)
{
    size_t count = 1;
    while (first->is_job && count < left && first[count].is_job &&
           strcmp(first[count].id, first->id) == 0)
        count++;
    return count;
}

/* What is gone of one thing, as an event of the job, and in the log. */
static int prune_tell(struct prune *prune, const struct prune_run *run,
                      const struct prune_target *targets, size_t count, struct err *err)
{
    struct api *api = prune->api;
    CLEANUP(buf_done) struct buf words;
    int64_t bytes = 0;
    for (size_t i = 0; i < count; i++)
        bytes += targets[i].is_gone ? targets[i].bytes : 0;
    buf_init(&words, PRUNE_TEXT_BYTES);
    prune_words(targets, count, &words);
    if (words.length == 0)
        return 0;
    log_info("prune", "%s: removed by %s: %s; %.1f MiB",
             targets[0].id[0] != '\0' ? targets[0].id : "the cache", run->who, buf_str(&words),
             (double)bytes / 0x1p20);
    if (!targets[0].is_job)
        return 0;
    CLEANUP(mem_free_ptr)
    char *text =
        mem_printf("Removed to free %.1f MiB: %s.", (double)bytes / 0x1p20, buf_str(&words));
    const struct notice notice = {
        .job_id = targets[0].id,
        .level = "info",
        .text = text,
        .data = json_pack("{s:s, s:I}", "user", run->who, "removed_bytes", (json_int_t)bytes)};
    if (text == NULL)
        return mem_fail(err, PRUNE_TEXT_BYTES, "an event");
    return notice_put(api->store, api->host, api->bus, &notice, err);
}

struct prune_turn {
    struct prune *prune;
    const struct prune_run *run;
    size_t from; /* the first target of this turn */
};

/* Of all that this turn has taken. */
static int prune_tell_turn(void *context, struct err *err)
{
    struct prune_turn *turn = context;
    const struct prune_run *run = turn->run;
    for (size_t i = turn->from, count; i < run->at; i += count) {
        count = prune_thing_count(&run->targets[i], run->at - i);
        if (prune_tell(turn->prune, run, &run->targets[i], count, err) != 0)
            log_warn("prune", "%s has no event that tells it: %s", run->targets[i].id, err->text);
    }
    return 0;
}

/* ---- turns --------------------------------------------------------------------------------- */

static int prune_check_ended(void *context, const struct store_job *job, struct err *err)
{
    (void)context;
    if (job_state_is_end(job->state))
        return 0;
    return err_set(err, ERR_BAD_STATE, "%s is %s by now", job->id, job_state_name(job->state));
}

/* All that follows of one job, or one other target. */
static void prune_thing(struct prune *prune, struct prune_run *run)
{
    struct prune_target *first = &run->targets[run->at];
    size_t count = prune_thing_count(first, run->count - run->at);
    struct err err;
    int rc = 0;
    if (first->is_job)
        rc = store_job_get(prune->api->store, first->id, prune_check_ended, NULL, &err);
    for (size_t i = 0; i < count; i++) {
        int one = rc != 0 ? rc : prune_one(prune, &first[i], &err);
        first[i].is_gone = one == 0;
        if (one != 0)
            log_warn("prune", "%s of %s stay: %s", storage_kind_name(first[i].kind), first->id,
                     err.text);
    }
    run->at += count;
}

static void prune_things(struct prune *prune, struct prune_run *run)
{
    const int64_t until_ns = clock_monotonic_ns() + PRUNE_TURN_MS * 1000000LL;
    struct prune_turn turn = {.prune = prune, .run = run, .from = run->at};
    struct err err;
    while (run->at < run->count && clock_monotonic_ns() < until_ns)
        prune_thing(prune, run);
    if (store_together(prune->api->store, prune_tell_turn, &turn, &err) != 0)
        log_warn("prune", "no event tells what was removed of %zu things: %s", run->at - turn.from,
                 err.text);
}

static void prune_end_run(struct prune *prune)
{
    struct prune_run *run = prune->runs;
    prune->runs = run->next;
    if (run->done != NULL)
        run->done(run->context, run->targets, run->count);
    mem_free(run->targets);
    mem_free(run);
}

static void prune_on_turn(void *context)
{
    struct prune *prune = context;
    struct prune_run *run = prune->runs;
    struct err err;
    loop_doing(prune->api->loop, "prune:", "things into the trash");
    prune_things(prune, run);
    if (run->at == run->count) {
        if (run->frees_shards && prune_cache(prune, &err) != 0)
            log_warn("prune", "%s", err.text);
        if (prune_hand_over(prune, &err) != 0)
            log_warn("prune", "%s", err.text); /* by the next run, or the next daemon */
        prune_end_run(prune);
    }
    if (prune->runs != NULL)
        loop_timer_set(prune->timer, 0, 0);
}

int prune_start(struct prune *prune, struct prune_target *targets, size_t count, const char *who,
                prune_fn *done, void *context, struct err *err)
{
    struct prune_run *run = mem_new(1, sizeof *run);
    if (run == NULL) {
        mem_free(targets);
        return mem_fail(err, sizeof *run, "what is to be removed");
    }
    *run = (struct prune_run){.targets = targets, .count = count, .done = done, .context = context};
    (void)snprintf(run->who, sizeof run->who, "%s", who);
    struct prune_run **at = &prune->runs;
    while (*at != NULL)
        at = &(*at)->next;
    *at = run;
    loop_timer_set(prune->timer, 0, 0);
    return 0;
}

int prune_new(struct api *api, struct prune **ret_prune, struct err *err)
{
    struct prune *prune = mem_new(1, sizeof *prune);
    if (prune == NULL)
        return mem_fail(err, sizeof *prune, "prune");
    prune->api = api;
    prune->folder = io_join(api->settings->data_dir, "pruned");
    int rc = prune->folder != NULL
                 ? loop_timer_new(api->loop, prune_on_turn, prune, &prune->timer, err)
                 : mem_fail(err, LIMIT_PATH_BYTES, "a path");
    if (rc == 0)
        rc = prune_hand_over(prune, err); /* of a daemon that ended meanwhile */
    if (rc != 0) {
        prune_free(prune);
        return rc;
    }
    *ret_prune = prune;
    return 0;
}

void prune_free(struct prune *prune)
{
    if (prune == NULL)
        return;
    while (prune->runs != NULL)
        prune_end_run(prune);
    loop_timer_free(prune->timer);
    mem_free(prune->folder);
    mem_free(prune);
}
