/* coll_record: see coll_record.h. A slot's number is cleared before and written after the rest of
 * it, so that a rank that dies in between leaves a slot that nobody reads. */
#include "worker/coll_record.h"

#include "common/clock.h"
#include "common/mem.h"
#include "worker/coll.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct coll_record {
    struct coll_record_file *file; /* the mapping */
    uint64_t step;                 /* of the calls to come */
    int phase;
};

_Static_assert(LIMIT_RANKS <= 64, "a bit for each rank");
_Static_assert(sizeof(struct coll_record_head) == 64 && sizeof(struct coll_record_call) == 64,
               "one cache line each, as the header draws them");

static int record_map(struct coll_record *record, int fd, const char *path, struct err *err)
{
    size_t bytes = sizeof *record->file;
    int failed;
    do
        failed = posix_fallocate(fd, 0, (off_t)bytes); /* a full disk would be a SIGBUS later */
    while (failed == EINTR);
    if (failed != 0)
        return err_set_errno(err, failed, "%s", path);
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
    if (memory == MAP_FAILED)
        return err_set_errno(err, errno, "%s: map", path);
    record->file = memory;
    return 0;
}

char *coll_record_path(const char *attempt_dir, int rank)
{
    return mem_printf("%s/collectives-%d", attempt_dir, rank);
}

int coll_record_open(const char *attempt_dir, int rank, struct coll_record **ret, struct err *err)
{
    CLEANUP(mem_free_ptr) char *path = coll_record_path(attempt_dir, rank);
    struct coll_record *record = mem_new(1, sizeof *record);
    if (path == NULL || record == NULL) {
        mem_free(record);
        return mem_fail(err, sizeof *record, "a record of collectives");
    }
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    int rc = fd < 0 ? err_set_errno(err, errno, "%s", path) : record_map(record, fd, path, err);
    if (fd >= 0)
        (void)close(fd); /* the mapping stays */
    if (rc != 0) {
        mem_free(record);
        return rc;
    }
    record->file->head.rank = (uint64_t)rank;
    record->file->head.magic = COLL_RECORD_MAGIC;
    *ret = record;
    return 0;
}

void coll_record_close(struct coll_record *record)
{
    if (record == NULL)
        return;
    (void)munmap(record->file, sizeof *record->file); /* our own mapping */
    mem_free(record);
}

void coll_record_phase(struct coll_record *record, uint64_t step, int phase)
{
    if (record == NULL)
        return;
    record->step = step;
    record->phase = phase;
    atomic_store_explicit(&record->file->head.place, step << 8 | (uint64_t)phase,
                          memory_order_relaxed);
}

static struct coll_record_call *record_slot(struct coll_record *record, uint64_t seq)
{
    return &record->file->calls[seq % COLL_RECORD_CALLS];
}

void coll_record_ask(struct coll_record *record, uint64_t seq, uint64_t members,
                     const struct coll_call *call)
{
    if (record == NULL)
        return;
    struct coll_record_call *slot = record_slot(record, seq);
    atomic_store_explicit(&slot->seq, 0, memory_order_release);
    slot->members = members;
    slot->count = coll_call_count(call);
    slot->step = record->step;
    slot->kind = (uint8_t)call->kind;
    slot->dtype = (uint8_t)call->dtype;
    slot->phase = (uint8_t)record->phase;
    atomic_store_explicit(&slot->begun_ns, 0, memory_order_relaxed);
    atomic_store_explicit(&slot->done_ns, 0, memory_order_relaxed);
    atomic_store_explicit(&slot->asked_ns, clock_monotonic_ns(), memory_order_relaxed);
    atomic_store_explicit(&slot->seq, seq, memory_order_release);
    atomic_store_explicit(&record->file->head.seq, seq, memory_order_release);
}

void coll_record_begun(struct coll_record *record, uint64_t seq)
{
    if (record == NULL)
        return;
    atomic_store_explicit(&record_slot(record, seq)->begun_ns, clock_monotonic_ns(),
                          memory_order_relaxed);
}

void coll_record_done(struct coll_record *record, uint64_t seq)
{
    if (record == NULL)
        return;
    struct coll_record_call *slot = record_slot(record, seq);
    int64_t now = clock_monotonic_ns();
    if (atomic_load_explicit(&slot->begun_ns, memory_order_relaxed) == 0)
        atomic_store_explicit(&slot->begun_ns, now, memory_order_relaxed);
    atomic_store_explicit(&slot->done_ns, now, memory_order_relaxed);
}

uint64_t coll_record_last(const struct coll_record *record)
{
    return record == NULL ? 0 : atomic_load(&record->file->head.seq);
}

bool coll_record_read(const struct coll_record *record, uint64_t seq, struct coll_record_call *ret)
{
    const struct coll_record_call *slot = &record->file->calls[seq % COLL_RECORD_CALLS];
    if (atomic_load_explicit(&slot->seq, memory_order_acquire) != seq)
        return false;
    *ret = (struct coll_record_call){.members = slot->members,
                                     .count = slot->count,
                                     .step = slot->step,
                                     .kind = slot->kind,
                                     .dtype = slot->dtype,
                                     .phase = slot->phase};
    atomic_init(&ret->seq, seq);
    atomic_init(&ret->asked_ns, atomic_load(&slot->asked_ns));
    atomic_init(&ret->begun_ns, atomic_load(&slot->begun_ns));
    atomic_init(&ret->done_ns, atomic_load(&slot->done_ns));
    return true;
}
