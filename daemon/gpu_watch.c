/* gpu_watch: the thread fills a report of its own and copies it under the lock. Whoever of the two
 * ends last releases what they share: a thread that hangs in the driver may never end. */
#include "daemon/gpu_watch.h"

#include "common/clock.h"
#include "common/mem.h"
#include "daemon/gpu_file.h"
#include "daemon/gpu_nvml.h"

#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

enum {
    GPU_WATCH_LOOK_MS = 1000, /* between looks */
    GPU_WATCH_FILE_MS = 50,   /* between looks at a file: tests wait for them */
    GPU_WATCH_END_MS = 3000,  /* for the last look */
};

struct gpu_watch {
    char *file; /* NULL: NVML */
    pthread_t thread;
    atomic_bool stop;
    pthread_mutex_t lock;
    pthread_cond_t changed; /* a report, or the thread's end */
    /* under the lock: */
    struct gpu_report report; /* the newest */
    struct err failure;       /* why the thread ended before its first report */
    bool fresh;               /* not taken yet */
    bool ended;               /* the thread: it touches nothing any more */
    bool left;                /* by the loop: the thread releases everything */
};

static void watch_release(struct gpu_watch *watch)
{
    (void)pthread_cond_destroy(&watch->changed);
    (void)pthread_mutex_destroy(&watch->lock);
    mem_free(watch->file);
    mem_free(watch);
}

static void watch_publish(struct gpu_watch *watch, const struct gpu_report *report)
{
    (void)pthread_mutex_lock(&watch->lock);
    watch->report = *report;
    watch->fresh = true;
    (void)pthread_cond_broadcast(&watch->changed);
    (void)pthread_mutex_unlock(&watch->lock);
}

/* NVML waits for an XID between looks. */
static int watch_nvml(struct gpu_watch *watch, struct gpu_report *report, struct err *err)
{
    struct gpu_nvml *nvml = NULL;
    TRY(gpu_nvml_open(&nvml, err));
    for (int64_t wait_ms = 0; !atomic_load(&watch->stop); wait_ms = GPU_WATCH_LOOK_MS) {
        gpu_nvml_look(nvml, wait_ms, report);
        watch_publish(watch, report);
    }
    gpu_nvml_close(nvml);
    return 0;
}

static int watch_file(struct gpu_watch *watch, struct gpu_report *report, struct err *err)
{
    struct err unread;
    TRY(gpu_file_look(watch->file, &watch->stop, report, err));
    watch_publish(watch, report);
    while (!atomic_load(&watch->stop)) {
        clock_sleep_ms(GPU_WATCH_FILE_MS);
        if (gpu_file_look(watch->file, &watch->stop, report, &unread) == 0)
            watch_publish(watch, report);
    }
    return 0;
}

static void *watch_run(void *context)
{
    struct gpu_watch *watch = context;
    struct err err = {.code = ERR_NONE};
    struct gpu_report *report = mem_new(1, sizeof *report);
    if (report == NULL)
        (void)mem_fail(&err, sizeof *report, "a report of the GPUs");
    else
        (void)(watch->file != NULL ? watch_file : watch_nvml)(watch, report, &err);
    mem_free(report);
    (void)pthread_mutex_lock(&watch->lock);
    watch->failure = err;
    watch->ended = true;
    bool left = watch->left;
    (void)pthread_cond_broadcast(&watch->changed);
    (void)pthread_mutex_unlock(&watch->lock);
    if (left)
        watch_release(watch);
    return NULL;
}

/* Until a report has come or the thread has ended; at most wait_ms. Under the lock. */
static void watch_wait(struct gpu_watch *watch, bool for_report, int64_t wait_ms)
{
    int64_t until_ns = clock_monotonic_ns() + wait_ms * 1000000;
    const struct timespec until = {.tv_sec = until_ns / 1000000000,
                                   .tv_nsec = until_ns % 1000000000};
    int errnum = 0;
    while (errnum == 0 && !watch->ended && !(for_report && watch->fresh))
        errnum = pthread_cond_timedwait(&watch->changed, &watch->lock, &until);
}

static int watch_start(struct gpu_watch *watch, const char *file, struct err *err)
{
    pthread_condattr_t monotonic;
    if (file != NULL && (watch->file = mem_strdup(file)) == NULL)
        return mem_fail(err, LIMIT_PATH_BYTES, "a path");
    int errnum = pthread_condattr_init(&monotonic);
    if (errnum == 0)
        errnum = pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    if (errnum == 0)
        errnum = pthread_mutex_init(&watch->lock, NULL);
    if (errnum == 0)
        errnum = pthread_cond_init(&watch->changed, &monotonic);
    if (errnum == 0)
        errnum = pthread_create(&watch->thread, NULL, watch_run, watch);
    return errnum == 0 ? 0 : err_set_errno(err, errnum, "a thread that looks at the GPUs");
}

int gpu_watch_new(const char *file, int64_t wait_ms, struct gpu_watch **ret_watch,
                  struct gpu_report *ret_report, struct err *err)
{
    struct gpu_watch *watch = mem_new(1, sizeof *watch);
    if (watch == NULL)
        return mem_fail(err, sizeof *watch, "the watch over the GPUs");
    int rc = watch_start(watch, file, err);
    if (rc != 0) {
        mem_free(watch->file);
        mem_free(watch);
        return rc;
    }
    (void)pthread_mutex_lock(&watch->lock);
    watch_wait(watch, true, wait_ms);
    bool seen = watch->fresh;
    if (!seen)
        rc = watch->ended
                 ? (*err = watch->failure, -(int)err->code)
                 : err_set(err, ERR_UNSUPPORTED, "NVIDIA's driver has not answered within %lld s",
                           (long long)wait_ms / 1000);
    (void)pthread_mutex_unlock(&watch->lock);
    if (!seen) {
        gpu_watch_free(watch);
        return rc;
    }
    (void)gpu_watch_take(watch, ret_report);
    *ret_watch = watch;
    return 0;
}

bool gpu_watch_take(struct gpu_watch *watch, struct gpu_report *ret_report)
{
    (void)pthread_mutex_lock(&watch->lock);
    bool fresh = watch->fresh;
    if (fresh)
        *ret_report = watch->report;
    watch->fresh = false;
    (void)pthread_mutex_unlock(&watch->lock);
    return fresh;
}

void gpu_watch_free(struct gpu_watch *watch)
{
    if (watch == NULL)
        return;
    atomic_store(&watch->stop, true);
    (void)pthread_mutex_lock(&watch->lock);
    watch_wait(watch, false, GPU_WATCH_END_MS);
    bool ended = watch->ended;
    watch->left = !ended;
    (void)pthread_mutex_unlock(&watch->lock);
    if (!ended) {
        (void)pthread_detach(watch->thread);
        return;
    }
    (void)pthread_join(watch->thread, NULL); /* is about to return */
    watch_release(watch);
}
