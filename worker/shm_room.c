/* shm_room: see shm_room.h. One POSIX shared memory object:
 *
 *   OFFSET             SIZE                MEANING
 *     0                struct shm_header   identity, futex word, one cache line for each rank
 *     SHM_SLOTS        world * slot_bytes  the slots
 *
 * Waiting: a short spin when every rank can have a core, then a futex. The last to arrive wakes
 * all. A sleep never lasts longer than SHM_NAP_NS, so a rank killed between arriving and waking
 * delays the others, no more; after a nap a rank also looks whether those that are not there still
 * live. What a timeout reports is read off the arrival counters.
 *
 * Entering: rank 0 creates the object (O_EXCL) and holds an open-file-description lock on it until
 * all are in; an object without a lock has no living creator: rank 0 removes one that has its name,
 * the others ignore it and wait for rank 0's. The memory is taken by posix_fallocate before it is
 * touched, because a full /dev/shm would otherwise be a SIGBUS in the first call. Entering is round
 * 1; then rank 0 unlinks the name, and round 2 lets all go. */
#include "worker/shm_room.h"

#include "common/clock.h"
#include "common/limits.h"
#include "common/mem.h"
#include "common/must.h"
#include "worker/coll.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define SHM_MAGIC 0x314d485341485449u /* "ITHASHM1" */
enum {
    SHM_SLOT_DEFAULT = 4 << 20,                      /* bytes: 8 ranks fit a /dev/shm of 64 MiB */
    SHM_SLOT_UNIT = 2 * SHM_ROOM_LINE * LIMIT_RANKS, /* a line for each rank in each half */
    SHM_SPINS = 1000,               /* about 20-50 us: a peer that runs is about to come */
    SHM_NAP_NS = 100 * 1000 * 1000, /* longest sleep between looks at the counters */
    SHM_POLL_MS = 5,                /* between looks for the object's name */
};

struct shm_rank {
    alignas(SHM_ROOM_LINE) atomic_uint arrived; /* last round this rank arrived at; wraps */
    atomic_int pid;                             /* 0 until it has entered */
    struct shm_note notes[2];                   /* what it does in the round, by half */
};

struct shm_header {
    atomic_uint_least64_t magic;              /* SHM_MAGIC, written last */
    uint32_t world;                           /* ranks */
    int64_t slot_bytes;                       /* of each rank */
    alignas(SHM_ROOM_LINE) atomic_uint pulse; /* futex: changes when a round is full or aborted */
    atomic_uint sleepers;                     /* ranks that may be in futex wait; never too few */
    atomic_int aborted_by;                    /* rank + 1; -rank - 1: by its end; 0: not aborted */
    struct shm_rank ranks[LIMIT_RANKS];
};
_Static_assert(sizeof(struct shm_rank) == SHM_ROOM_LINE, "ranks' counters share no line");
_Static_assert(ATOMIC_INT_LOCK_FREE == 2 && ATOMIC_LLONG_LOCK_FREE == 2, "processes share atomics");

enum { SHM_SLOTS = (sizeof(struct shm_header) + 4095) / 4096 * 4096 };

/* ---- meeting ---- */

void shm_room_start_clock(struct shm_room *room)
{
    room->deadline_ns = clock_monotonic_ns() + room->timeout_ms * 1000000;
}

void shm_room_turn(struct shm_room *room)
{
    room->round++;
}

char *shm_room_half(const struct shm_room *room, int rank)
{
    int64_t halves = 2 * rank + (int)(room->round & 1);
    return (char *)room->header + SHM_SLOTS + halves * room->half_bytes;
}

struct shm_note *shm_room_note(const struct shm_room *room, int rank)
{
    return &room->header->ranks[rank].notes[room->round & 1];
}

static void shm_relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static void shm_wake_all(struct shm_header *header)
{
    atomic_fetch_add(&header->pulse, 1);
    if (atomic_load(&header->sleepers) > 0)
        (void)syscall(SYS_futex, &header->pulse, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

static bool shm_is_here(const struct shm_room *room, int rank)
{
    return (int32_t)(atomic_load(&room->header->ranks[rank].arrived) - room->round) >= 0;
}

static bool shm_all_here(const struct shm_room *room)
{
    for (int rank = 0; rank < room->world; rank++)
        if (!shm_is_here(room, rank))
            return false;
    return true;
}

void shm_room_arrive(struct shm_room *room)
{
    atomic_store(&room->header->ranks[room->rank].arrived, room->round);
    if (shm_all_here(room))
        shm_wake_all(room->header);
}

/* A rank that will never arrive: it has ended (and its parent knows). -1: there is none. */
static int shm_find_gone(const struct shm_room *room)
{
    for (int rank = 0; rank < room->world; rank++) {
        int pid = atomic_load(&room->header->ranks[rank].pid);
        bool gone = pid != 0 && kill(pid, 0) != 0 && errno == ESRCH;
        if (gone && !shm_is_here(room, rank)) /* looked at last: it may have come and gone */
            return rank;
    }
    return -1;
}

/* The first reason is the one that is told. */
static void shm_abort(struct shm_room *room, int aborted_by)
{
    int nobody = 0;
    (void)atomic_compare_exchange_strong(&room->header->aborted_by, &nobody, aborted_by);
    shm_wake_all(room->header);
}

/* Until all are at the current round: ERR_NONE, ERR_COLL_ABORTED or ERR_COLL_TIMEOUT. */
static enum err_code shm_wait(struct shm_room *room, int64_t deadline_ns)
{
    struct shm_header *header = room->header;
    for (int spin = 0; spin < room->spins; spin++) {
        if (shm_all_here(room))
            return ERR_NONE;
        shm_relax();
    }
    for (;;) {
        uint32_t pulse = atomic_load(&header->pulse);
        if (shm_all_here(room))
            return ERR_NONE;
        if (atomic_load(&header->aborted_by) != 0)
            return ERR_COLL_ABORTED;
        int64_t left_ns = deadline_ns - clock_monotonic_ns();
        if (left_ns <= 0)
            return ERR_COLL_TIMEOUT;
        struct timespec nap = {.tv_nsec = left_ns < SHM_NAP_NS ? (long)left_ns : SHM_NAP_NS};
        atomic_fetch_add(&header->sleepers, 1);
        long woken = syscall(SYS_futex, &header->pulse, FUTEX_WAIT, pulse, &nap, NULL, 0);
        bool over = woken != 0 && errno == ETIMEDOUT;
        atomic_fetch_sub(&header->sleepers, 1);
        int gone = over ? shm_find_gone(room) : -1;
        if (gone >= 0)
            shm_abort(room, -gone - 1);
    }
}

static int shm_fail_timeout(const struct shm_room *room, struct err *err)
{
    int rc =
        err_set(err, ERR_COLL_TIMEOUT, "not arrived within %lld ms:", (long long)room->timeout_ms);
    const char *comma = "";
    for (int rank = 0; rank < room->world; rank++) {
        if (shm_is_here(room, rank))
            continue;
        char before[ERR_TEXT_MAX];
        (void)snprintf(before, sizeof before, "%s", err->text);
        int pid = atomic_load(&room->header->ranks[rank].pid);
        if (pid != 0)
            rc = err_set(err, ERR_COLL_TIMEOUT, "%s%s rank %d (pid %d)", before, comma,
                         room->numbers[rank], pid);
        else
            rc = err_set(err, ERR_COLL_TIMEOUT, "%s%s rank %d", before, comma, room->numbers[rank]);
        comma = ",";
    }
    return rc;
}

int shm_room_check(const struct shm_room *room, struct err *err)
{
    int aborted_by = atomic_load(&room->header->aborted_by);
    if (aborted_by > 0)
        return err_set(err, ERR_COLL_ABORTED, "aborted by rank %d", room->numbers[aborted_by - 1]);
    if (aborted_by < 0)
        return err_set(err, ERR_COLL_ABORTED, "rank %d has ended", room->numbers[-aborted_by - 1]);
    return 0;
}

int shm_room_await(struct shm_room *room, struct err *err)
{
    enum err_code code = shm_wait(room, room->deadline_ns);
    if (code == ERR_NONE)
        return 0;
    return code == ERR_COLL_ABORTED ? shm_room_check(room, err) : shm_fail_timeout(room, err);
}

int shm_room_meet(struct shm_room *room, struct err *err)
{
    shm_room_arrive(room);
    return shm_room_await(room, err);
}

void shm_room_abort(struct shm_room *room)
{
    shm_abort(room, room->rank + 1);
}

/* ---- entering ---- */

static void shm_close_fd(int *fd)
{
    if (*fd >= 0)
        (void)close(*fd); /* memory: nothing to lose */
    *fd = -1;
}

static int shm_map(struct shm_room *room, int fd, struct err *err)
{
    void *memory =
        mmap(NULL, room->map_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
    if (memory == MAP_FAILED)
        return err_set_errno(err, errno, "map %zu bytes of shared memory", room->map_bytes);
    room->header = memory;
    return 0;
}

void shm_room_leave(struct shm_room *room)
{
    if (room->header != NULL)
        (void)munmap(room->header, room->map_bytes); /* our own mapping */
    room->header = NULL;
}

/* Has the object a living creator? */
static bool shm_is_locked(int fd)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    return fcntl(fd, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

/* Removes an object whose creator is gone; one that is in use stays. */
static int shm_remove_stale(const char *name, struct err *err)
{
    CLEANUP(shm_close_fd) int fd = shm_open(name, O_RDWR | O_CLOEXEC, 0);
    if (fd >= 0 && shm_is_locked(fd))
        return err_set(err, ERR_IN_USE, "shared memory %s is in use by another job", name);
    if (fd >= 0 && shm_unlink(name) == 0)
        return 0;
    return errno == ENOENT ? 0 : err_set_errno(err, errno, "remove shared memory %s", name);
}

static int shm_create(const char *name, int *ret_fd, struct err *err)
{
    for (int attempt = 0; attempt < 3; attempt++) {
        int fd = shm_open(name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        if (fd >= 0) {
            *ret_fd = fd;
            return 0;
        }
        if (errno != EEXIST)
            return err_set_errno(err, errno, "create shared memory %s", name);
        TRY(shm_remove_stale(name, err));
    }
    return err_set(err, ERR_IN_USE, "shared memory %s is created again and again by others", name);
}

/* Locks the object and gives it all its memory. */
static int shm_allocate(const struct shm_room *room, int fd, const char *name, struct err *err)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    if (fcntl(fd, F_OFD_SETLK, &lock) != 0)
        return err_set_errno(err, errno, "lock shared memory %s", name);
    int failed;
    do
        failed = posix_fallocate(fd, 0, (off_t)room->map_bytes);
    while (failed == EINTR);
    if (failed == 0)
        return 0;
    struct statvfs space;
    if (failed != ENOSPC || fstatvfs(fd, &space) != 0)
        return err_set_errno(err, failed, "allocate shared memory %s", name);
    return err_set(err, ERR_NO_SPACE,
                   "/dev/shm is too small: the ranks need %zu bytes of shared memory, %llu of %llu "
                   "are free; enlarge it (containers: --shm-size) or run fewer ranks",
                   room->map_bytes, (unsigned long long)(space.f_bavail * space.f_frsize),
                   (unsigned long long)(space.f_blocks * space.f_frsize));
}

static int shm_enter_first(struct shm_room *room, const char *name, struct err *err)
{
    CLEANUP(shm_close_fd) int fd = -1; /* keeps the lock until the name is gone */
    TRY(shm_create(name, &fd, err));
    int rc = shm_allocate(room, fd, name, err);
    if (rc == 0)
        rc = shm_map(room, fd, err);
    if (rc == 0) {
        struct shm_header *header = room->header;
        header->world = (uint32_t)room->world;
        header->slot_bytes = 2 * room->half_bytes;
        atomic_store(&header->ranks[0].pid, (int)getpid());
        atomic_store(&header->magic, SHM_MAGIC);
        rc = shm_room_meet(room, err);
    }
    (void)shm_unlink(name); /* whatever came of it */
    return rc;
}

/* Validity of an object: (1) it is ours; (2) it has all its bytes; (3) magic, world and slot size
 * are what this rank expects. Not yet complete: 0 with *ret_in false. */
static int shm_examine(struct shm_room *room, int fd, const char *name, bool *ret_in,
                       struct err *err)
{
    struct stat info;
    if (fstat(fd, &info) != 0)
        return err_set_errno(err, errno, "examine shared memory %s", name);
    if (info.st_uid != geteuid())
        return err_set(err, ERR_FORBIDDEN, "shared memory %s belongs to another user", name);
    if (!shm_is_locked(fd) || info.st_size == 0)
        return 0; /* left over, or not allocated yet */
    if ((size_t)info.st_size != room->map_bytes)
        return err_set(err, ERR_INTERNAL, "shared memory %s has %lld bytes, expected %zu", name,
                       (long long)info.st_size, room->map_bytes);
    TRY(shm_map(room, fd, err));
    struct shm_header *header = room->header;
    uint64_t magic = atomic_load(&header->magic);
    if (magic == 0)
        return 0;
    if (magic != SHM_MAGIC || header->world != (uint32_t)room->world ||
        header->slot_bytes != 2 * room->half_bytes)
        return err_set(err, ERR_INTERNAL, "shared memory %s is not made for %d ranks", name,
                       room->world);
    *ret_in = true;
    return 0;
}

/* Takes this rank's place and waits for all; *ret_in turns false when the creator dies first. */
static int shm_wait_in(struct shm_room *room, int fd, const char *name, bool *ret_in,
                       struct err *err)
{
    int nobody = 0;
    if (!atomic_compare_exchange_strong(&room->header->ranks[room->rank].pid, &nobody,
                                        (int)getpid()))
        return err_set(err, ERR_INTERNAL, "rank %d is in %s already, as pid %d", room->rank, name,
                       nobody);
    shm_room_arrive(room);
    for (;;) {
        int64_t nap_ns = clock_monotonic_ns() + SHM_NAP_NS;
        bool last = nap_ns >= room->deadline_ns;
        enum err_code code = shm_wait(room, last ? room->deadline_ns : nap_ns);
        if (code == ERR_NONE)
            return 0;
        if (code == ERR_COLL_ABORTED)
            return shm_room_check(room, err);
        if (last)
            return shm_fail_timeout(room, err);
        if (!shm_is_locked(fd) && !shm_all_here(room)) {
            *ret_in = false;
            return 0;
        }
    }
}

static int shm_enter_other(struct shm_room *room, const char *name, struct err *err)
{
    while (clock_monotonic_ns() < room->deadline_ns) {
        bool in = false;
        CLEANUP(shm_close_fd) int fd = shm_open(name, O_RDWR | O_CLOEXEC, 0);
        if (fd < 0 && errno != ENOENT)
            return err_set_errno(err, errno, "open shared memory %s", name);
        if (fd >= 0)
            TRY(shm_examine(room, fd, name, &in, err));
        if (in)
            TRY(shm_wait_in(room, fd, name, &in, err));
        if (in)
            return 0;
        shm_room_leave(room);
        clock_sleep_ms(SHM_POLL_MS);
    }
    return err_set(err, ERR_COLL_TIMEOUT, "not arrived within %lld ms: rank %d",
                   (long long)room->timeout_ms, room->numbers[0]);
}

int shm_room_enter(struct shm_room *room, const struct coll_shm_config *config, struct err *err)
{
    must(config->world >= 1 && config->world <= LIMIT_RANKS);
    must(config->rank >= 0 && config->rank < config->world && config->slot_bytes >= 0);
    int64_t slot_bytes = config->slot_bytes > 0 ? config->slot_bytes : SHM_SLOT_DEFAULT;
    slot_bytes = (slot_bytes + SHM_SLOT_UNIT - 1) / SHM_SLOT_UNIT * SHM_SLOT_UNIT;
    *room = (struct shm_room){
        .map_bytes = (size_t)(SHM_SLOTS + config->world * slot_bytes),
        .half_bytes = slot_bytes / 2,
        .rank = config->rank,
        .world = config->world,
        .timeout_ms = config->timeout_ms,
        .round = 1,
        .spins = config->world <= sysconf(_SC_NPROCESSORS_ONLN) ? SHM_SPINS : 0,
    };
    for (int rank = 0; rank < config->world; rank++)
        room->numbers[rank] = config->numbers != NULL ? config->numbers[rank] : rank;
    shm_room_start_clock(room);
    int rc = config->rank == 0 ? shm_enter_first(room, config->name, err)
                               : shm_enter_other(room, config->name, err);
    if (rc == 0) {
        shm_room_turn(room);
        rc = shm_room_meet(room, err); /* the name is gone */
    }
    if (rc == 0)
        return 0;
    shm_room_leave(room);
    struct err ignored; /* rank 0 may have died before it could */
    (void)shm_remove_stale(config->name, &ignored);
    return err_wrap(err, rc, "joining the other ranks: ");
}
