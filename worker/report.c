/* report: see report.h. The training thread's side: frames into the ring, flags out of it. The
 * thread that owns the socket is report_link.c.
 *
 * The ring is one buf of whole frames, oldest first: [seen and dropped][sent, not seen][unsent].
 * SEEN drops frames from its front, a new connection sets `sent` back to zero. */
#include "worker/report.h"

#include "common/clock.h"
#include "common/io.h"
#include "common/mem.h"
#include "common/must.h"
#include "common/utf8.h"
#include "worker/last_words.h"
#include "worker/report_link.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum { REPORT_FLUSH_MS = 10000, REPORT_FLUSH_POLL_MS = 5 };

static void report_wake(struct report *report)
{
    uint64_t one = 1;
    (void)!write(report->wake_fd, &one, sizeof one); /* full means it is awake already */
}

int report_open(const struct launch_plan *plan, uint32_t rank, struct report **ret, struct err *err)
{
    struct report *report = mem_new(1, sizeof *report);
    if (report == NULL)
        return mem_fail(err, sizeof *report, "the report");
    report->plan = plan;
    report->rank = rank;
    report->wake_fd = -1;
    report->next_seq = 1;
    atomic_store(&report->alone_since_ms, clock_monotonic_ms());
    buf_init(&report->ring, LIMIT_REPORT_BYTES + LIMIT_FRAME_BYTES);
    (void)pthread_mutex_init(&report->lock, NULL); /* cannot fail on Linux */
    if (plan->socket[0] != '\0') {
        report->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        if (report->wake_fd < 0) {
            report_close(report);
            return err_set_errno(err, errno, "eventfd");
        }
        int rc = report_link_start(report, err);
        if (rc != 0) {
            report_close(report);
            return rc;
        }
    }
    *ret = report;
    return 0;
}

void report_close(struct report *report)
{
    if (report == NULL)
        return;
    if (report->threaded) {
        atomic_store(&report->stopping, true);
        report_wake(report);
        (void)pthread_join(report->thread, NULL); /* ours, joined once */
    }
    if (report->wake_fd >= 0)
        (void)close(report->wake_fd); /* an eventfd holds nothing */
    (void)pthread_mutex_destroy(&report->lock);
    buf_done(&report->ring);
    mem_free(report);
}

void report_flush(struct report *report, int64_t limit_ms)
{
    if (!report->threaded)
        return;
    int64_t start = clock_monotonic_ms();
    for (;;) {
        (void)pthread_mutex_lock(&report->lock);
        bool empty = report->ring.length == 0;
        (void)pthread_mutex_unlock(&report->lock);
        int64_t waited = clock_monotonic_ms() - start;
        bool connected = atomic_load(&report->connected);
        if (empty || waited > limit_ms || (connected && waited > REPORT_FLUSH_MS))
            break;
        clock_sleep_ms(REPORT_FLUSH_POLL_MS);
    }
    struct err unkept; /* this is the last that can be done for them */
    (void)report_keep(report, &unkept);
}

int report_keep(struct report *report, struct err *err)
{
    if (!report->threaded)
        return 0;
    CLEANUP(mem_free_ptr) char *folder = launch_plan_attempt_dir(report->plan);
    CLEANUP(mem_free_ptr)
    char *path = folder != NULL ? mem_printf("%s/unsent-%u", folder, report->rank) : NULL;
    CLEANUP(buf_done) struct buf frames;
    if (path == NULL)
        return mem_fail(err, LIMIT_PATH_BYTES, "a path");
    buf_init(&frames, LIMIT_REPORT_BYTES + LIMIT_FRAME_BYTES);
    (void)pthread_mutex_lock(&report->lock);
    buf_append(&frames, buf_str(&report->ring), report->ring.length);
    (void)pthread_mutex_unlock(&report->lock);
    TRY(buf_error(&frames, err));
    return frames.length > 0 ? io_write_file(path, frames.data, frames.length, 0600, err) : 0;
}

void report_watch(struct report *report, struct coll *coll)
{
    (void)pthread_mutex_lock(&report->lock);
    report->coll = coll;
    (void)pthread_mutex_unlock(&report->lock);
}

void report_phase(struct report *report, uint64_t step, enum wire_phase phase)
{
    atomic_store_explicit(&report->step, step, memory_order_relaxed);
    atomic_store_explicit(&report->phase, (uint32_t)phase, memory_order_relaxed);
    last_words_context(step, phase);
}

/* Appends a frame to the ring; one that may be dropped is when the ring is full. */
static void report_put(struct report *report, struct wire_frame *frame, bool may_drop)
{
    if (!report->threaded)
        return;
    (void)pthread_mutex_lock(&report->lock);
    struct err err = {0};
    size_t before = report->ring.length;
    frame->seq = report->next_seq;
    bool full = may_drop && before + LIMIT_FRAME_BYTES > LIMIT_REPORT_BYTES;
    if (full || wire_encode(frame, &report->ring, &err) != 0)
        report->dropped++;
    else
        report->next_seq++;
    (void)pthread_mutex_unlock(&report->lock);
    report_wake(report);
}

void report_ready(struct report *report, int64_t steps_total)
{
    struct wire_frame frame = {.type = WIRE_READY, .ready = {.steps_total = (uint64_t)steps_total}};
    report_put(report, &frame, false);
}

static void report_print_metrics(const struct wire_metrics *metrics)
{
    printf("metrics step=%llu", (unsigned long long)metrics->step);
    for (uint32_t i = 0; i < metrics->count; i++)
        printf(" %s=%.12g", metric_name((enum metric_id)metrics->points[i].metric),
               metrics->points[i].value);
    printf("\n");
    (void)fflush(stdout);
}

void report_metrics(struct report *report, const struct wire_metrics *metrics)
{
    if (!report->threaded) {
        report_print_metrics(metrics);
        return;
    }
    struct wire_frame frame = {.type = WIRE_METRICS, .metrics = *metrics};
    report_put(report, &frame, true);
}

void report_event(struct report *report, int level, const char *format, ...)
{
    struct wire_frame frame = {
        .type = WIRE_EVENT,
        .event = {.level = (uint8_t)level,
                  .step = atomic_load_explicit(&report->step, memory_order_relaxed)}};
    va_list args;
    va_start(args, format);
    (void)vsnprintf(frame.event.text, sizeof frame.event.text, format, args); /* cut is fine */
    va_end(args);
    utf8_scrub(frame.event.text);
    printf("step %llu: %s\n", (unsigned long long)frame.event.step, frame.event.text);
    (void)fflush(stdout); /* the rank's log */
    report_put(report, &frame, true);
}

void report_checkpointed(struct report *report, int64_t step, int64_t bytes)
{
    struct wire_frame frame = {.type = WIRE_CHECKPOINTED,
                               .checkpointed = {.step = (uint64_t)step, .bytes = (uint64_t)bytes}};
    report_put(report, &frame, false);
}

void report_paused(struct report *report, int64_t step, int64_t trained_tokens)
{
    struct wire_frame frame = {
        .type = WIRE_PAUSED,
        .paused = {.step = (uint64_t)step, .trained_tokens = (uint64_t)trained_tokens}};
    report_put(report, &frame, false);
}

void report_done(struct report *report, const struct wire_done *done)
{
    struct wire_frame frame = {.type = WIRE_DONE, .done = *done};
    report_put(report, &frame, false);
}

void report_failed(struct report *report, const struct err *reason)
{
    struct wire_frame frame = {
        .type = WIRE_FAILED,
        .failed = {.code = (uint32_t)reason->code,
                   .step = atomic_load_explicit(&report->step, memory_order_relaxed),
                   .phase = atomic_load_explicit(&report->phase, memory_order_relaxed)}};
    (void)snprintf(frame.failed.text, sizeof frame.failed.text, "%s", reason->text);
    utf8_scrub(frame.failed.text);
    report_put(report, &frame, false);
}

unsigned report_take_commands(struct report *report)
{
    return atomic_exchange(&report->commands, 0);
}

int64_t report_take_profile(struct report *report)
{
    return atomic_exchange(&report->profile_steps, 0);
}

bool report_orphaned(const struct report *report)
{
    if (!report->threaded || atomic_load(&report->connected))
        return false;
    int64_t alone = clock_monotonic_ms() - atomic_load(&report->alone_since_ms);
    return alone > report->plan->orphan_limit_ms;
}
