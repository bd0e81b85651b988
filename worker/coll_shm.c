/* coll_shm: collectives among processes of one machine, over a shm_room. A communicator that splits
 * off has a room of its own, named after the first (".<split>.<its first rank>").
 *
 * Calls run in pieces of at most half a slot, a round of the room a piece: a rank copies its piece
 * into its slot, meets the others, and reads what it needs from their slots. What a rank sends to
 * itself never goes through the slot. A call of no elements is one round: every call meets.
 *
 * Sums are made by the reader, block by block in the L1 cache, in rank order 0, 1, 2, ...: the same
 * bits whoever reads and however fast anyone is. reduce_scatter sums the rank's own part only;
 * all_reduce has every rank sum everything (its users are scalars).
 *
 * Each rank notes what it calls beside its data; ranks that differ get ERR_INTERNAL, not garbage.
 */
#include "worker/coll.h"

#include "common/limits.h"
#include "common/mem.h"
#include "common/must.h"
#include "worker/shm_room.h"

#include <stdalign.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

enum {
    SHM_SPLIT_PART = 2,                  /* a split's slot is half of a half: /dev/shm is small */
    SHM_BLOCK = 8192,                    /* bytes summed at a time */
    SHM_NAME_BYTES = LIMIT_ID_BYTES + 32 /* of a room, with what a split adds */
};

#define SHM_CALLS(X)  \
    X(all_gather)     \
    X(reduce_scatter) \
    X(all_reduce)     \
    X(all_to_all)     \
    X(send_recv)      \
    X(barrier)
enum shm_call {
    SHM_CALL_none, /* a fresh note */
#define X(name) SHM_CALL_##name,
    SHM_CALLS(X)
#undef X
        SHM_CALL_COUNT
};
static const char *const shm_call_names[SHM_CALL_COUNT] = {[SHM_CALL_none] = "none",
#define X(name) [SHM_CALL_##name] = #name,
                                                           SHM_CALLS(X)
#undef X
};

struct coll_shm {
    struct coll base; /* first: a coll is cast to its coll_shm */
    struct shm_room room;
    struct shm_note note;          /* the running call */
    bool failed;                   /* a call has failed: no more calls */
    struct coll_shm_config config; /* its name is `name` */
    char name[SHM_NAME_BYTES];
    struct coll_shm *parent;                  /* that it split off, or NULL */
    struct coll_shm *splits[COLL_SPLITS_MAX]; /* that split off it */
    int split_count;
};

static int shm_wrap(struct coll_shm *shm, int rc, struct err *err)
{
    shm->failed = true;
    return err_wrap(err, rc, "collective %llu, %s of %lld %s: ", (unsigned long long)shm->base.seq,
                    shm_call_names[shm->note.kind], (long long)shm->note.count,
                    dtype_name((enum dtype)shm->note.dtype));
}

/* Starts a call: counts it and sets its deadline. */
static int shm_begin(struct coll_shm *shm, enum shm_call kind, enum dtype dtype, int64_t count,
                     struct err *err)
{
    must(count >= 0 && count <= INT64_MAX / 8 / LIMIT_RANKS);
    shm->base.seq++;
    if (shm->parent != NULL)
        shm->parent->base.seq++;
    shm->note = (struct shm_note){.kind = kind, .dtype = dtype, .count = count};
    shm_room_start_clock(&shm->room);
    int rc = shm_room_check(&shm->room, err);
    if (rc == 0 && shm->failed)
        rc = err_set(err, ERR_COLL_ABORTED, "an earlier collective of this communicator failed");
    return rc == 0 ? 0 : shm_wrap(shm, rc, err);
}

static int shm_check_notes(struct coll_shm *shm, struct err *err)
{
    for (int rank = 0; rank < shm->room.world; rank++) {
        struct shm_note theirs = *shm_room_note(&shm->room, rank);
        if (memcmp(&theirs, &shm->note, sizeof theirs) == 0)
            continue;
        shm_room_abort(&shm->room); /* nobody may use what it reads */
        return err_set(err, ERR_INTERNAL, "rank %d calls %s of %lld %s", shm->room.numbers[rank],
                       shm_call_names[theirs.kind % SHM_CALL_COUNT], (long long)theirs.count,
                       dtype_name((enum dtype)(theirs.dtype % DTYPE_COUNT)));
    }
    return 0;
}

/* What this rank wrote before it, all may read after it. */
static int shm_meet(struct coll_shm *shm, struct err *err)
{
    *shm_room_note(&shm->room, shm->room.rank) = shm->note;
    int rc = shm_room_meet(&shm->room, err);
    if (rc == 0)
        rc = shm_check_notes(shm, err);
    return rc == 0 ? 0 : shm_wrap(shm, rc, err);
}

static void shm_copy(void *to, const void *from, int64_t bytes)
{
    if (bytes > 0 && to != from)
        memcpy(to, from, (size_t)bytes);
}

static int64_t shm_min(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Bytes of a piece when a half holds one for each rank. */
static int64_t shm_share(const struct shm_room *room)
{
    return room->half_bytes / room->world / SHM_ROOM_LINE * SHM_ROOM_LINE;
}

#define SHM_ADD(type)                                                            \
    static void shm_add_##type(void *sum, const void *in, size_t count)          \
    {                                                                            \
        type *to = sum;                                                          \
        const type *from = in;                                                   \
        _Pragma("omp simd") for (size_t i = 0; i < count; i++) to[i] += from[i]; \
    }
SHM_ADD(float)
SHM_ADD(double)
SHM_ADD(uint64_t) /* I64: wraps without undefined behaviour */

static void shm_add(enum dtype dtype, void *sum, const void *in, size_t bytes)
{
    if (dtype == DTYPE_F32)
        shm_add_float(sum, in, bytes / sizeof(float));
    else if (dtype == DTYPE_F64)
        shm_add_double(sum, in, bytes / sizeof(double));
    else
        shm_add_uint64_t(sum, in, bytes / sizeof(uint64_t));
}

static int shm_check_sum(enum dtype dtype, struct err *err)
{
    if (dtype == DTYPE_F32 || dtype == DTYPE_F64 || dtype == DTYPE_I64)
        return 0;
    return err_set(err, ERR_UNSUPPORTED, "coll_shm does not sum %s", dtype_name(dtype));
}

/* out = sum over ranks, in their order, of the bytes at `offset` of each half; this rank's part is
 * `own`, which may be `out`. */
static void shm_sum(const struct coll_shm *shm, int64_t offset, const char *own, char *out,
                    int64_t bytes)
{
    alignas(SHM_ROOM_LINE) char block[SHM_BLOCK];
    for (int64_t at = 0; at < bytes; at += SHM_BLOCK) {
        size_t length = (size_t)shm_min(SHM_BLOCK, bytes - at);
        for (int rank = 0; rank < shm->room.world; rank++) {
            const char *part =
                rank == shm->room.rank ? own : shm_room_half(&shm->room, rank) + offset;
            if (rank == 0)
                memcpy(block, part + at, length);
            else
                shm_add((enum dtype)shm->note.dtype, block, part + at, length);
        }
        memcpy(out + at, block, length);
    }
}

static int coll_shm_all_gather(struct coll *coll, struct stream *stream, const void *send,
                               void *recv, int64_t count, enum dtype dtype, struct err *err)
{
    (void)stream; /* host memory: the call is the work */
    struct coll_shm *shm = (struct coll_shm *)coll;
    struct shm_room *room = &shm->room;
    TRY(shm_begin(shm, SHM_CALL_all_gather, dtype, count, err));
    int64_t bytes = count * (int64_t)dtype_bytes(dtype), at = 0;
    do {
        int64_t length = shm_min(room->half_bytes, bytes - at);
        shm_room_turn(room);
        if (room->world > 1)
            shm_copy(shm_room_half(room, room->rank), (const char *)send + at, length);
        TRY(shm_meet(shm, err));
        for (int rank = 0; rank < room->world; rank++) {
            const char *from =
                rank == room->rank ? (const char *)send + at : shm_room_half(room, rank);
            shm_copy((char *)recv + rank * bytes + at, from, length);
        }
        at += length;
    } while (at < bytes);
    return 0;
}

static int coll_shm_reduce_scatter(struct coll *coll, struct stream *stream, const void *send,
                                   void *recv, int64_t count, enum dtype dtype, struct err *err)
{
    (void)stream;
    struct coll_shm *shm = (struct coll_shm *)coll;
    struct shm_room *room = &shm->room;
    TRY(shm_check_sum(dtype, err));
    TRY(shm_begin(shm, SHM_CALL_reduce_scatter, dtype, count, err));
    int64_t bytes = count * (int64_t)dtype_bytes(dtype), share = shm_share(room), at = 0;
    do {
        int64_t length = shm_min(share, bytes - at);
        shm_room_turn(room);
        for (int rank = 0; rank < room->world; rank++)
            if (rank != room->rank)
                shm_copy(shm_room_half(room, room->rank) + rank * share,
                         (const char *)send + rank * bytes + at, length);
        TRY(shm_meet(shm, err));
        shm_sum(shm, room->rank * share, (const char *)send + room->rank * bytes + at,
                (char *)recv + at, length);
        at += length;
    } while (at < bytes);
    return 0;
}

static int coll_shm_all_reduce(struct coll *coll, struct stream *stream, void *data, int64_t count,
                               enum dtype dtype, struct err *err)
{
    (void)stream;
    struct coll_shm *shm = (struct coll_shm *)coll;
    struct shm_room *room = &shm->room;
    TRY(shm_check_sum(dtype, err));
    TRY(shm_begin(shm, SHM_CALL_all_reduce, dtype, count, err));
    int64_t bytes = count * (int64_t)dtype_bytes(dtype), at = 0;
    do {
        int64_t length = shm_min(room->half_bytes, bytes - at);
        shm_room_turn(room);
        shm_copy(shm_room_half(room, room->rank), (const char *)data + at, length);
        TRY(shm_meet(shm, err));
        shm_sum(shm, 0, (const char *)data + at, (char *)data + at, length);
        at += length;
    } while (at < bytes);
    return 0;
}

static int coll_shm_all_to_all(struct coll *coll, struct stream *stream, const void *send,
                               void *recv, int64_t count, int copies, enum dtype dtype,
                               struct err *err)
{
    (void)stream;
    struct coll_shm *shm = (struct coll_shm *)coll;
    struct shm_room *room = &shm->room;
    must(copies >= 1 && room->world % copies == 0);
    TRY(shm_begin(shm, SHM_CALL_all_to_all, dtype, count, err));
    int64_t bytes = count * (int64_t)dtype_bytes(dtype), share = shm_share(room), at = 0;
    int mine = room->rank / copies; /* the part for this rank */
    do {
        int64_t length = shm_min(share, bytes - at);
        shm_room_turn(room);
        for (int part = 0; part < room->world / copies; part++)
            if (part != mine || copies > 1)
                shm_copy(shm_room_half(room, room->rank) + part * share,
                         (const char *)send + part * bytes + at, length);
        TRY(shm_meet(shm, err));
        for (int rank = 0; rank < room->world; rank++) {
            const char *from = rank == room->rank ? (const char *)send + mine * bytes + at
                                                  : shm_room_half(room, rank) + mine * share;
            shm_copy((char *)recv + rank * bytes + at, from, length);
        }
        at += length;
    } while (at < bytes);
    return 0;
}

static int coll_shm_send_recv(struct coll *coll, struct stream *stream, const void *send, int to,
                              void *recv, int from, int64_t count, enum dtype dtype,
                              struct err *err)
{
    (void)stream;
    struct coll_shm *shm = (struct coll_shm *)coll;
    struct shm_room *room = &shm->room;
    must(to >= -1 && to < room->world && from >= -1 && from < room->world);
    TRY(shm_begin(shm, SHM_CALL_send_recv, dtype, count, err));
    int64_t bytes = count * (int64_t)dtype_bytes(dtype), at = 0;
    do {
        int64_t length = shm_min(room->half_bytes, bytes - at);
        shm_room_turn(room);
        if (to >= 0)
            shm_copy(shm_room_half(room, room->rank), (const char *)send + at, length);
        TRY(shm_meet(shm, err));
        if (from >= 0)
            shm_copy((char *)recv + at, shm_room_half(room, from), length);
        at += length;
    } while (at < bytes);
    return 0;
}

static int coll_shm_barrier(struct coll *coll, struct err *err)
{
    struct coll_shm *shm = (struct coll_shm *)coll;
    TRY(shm_begin(shm, SHM_CALL_barrier, DTYPE_U8, 0, err));
    shm_room_turn(&shm->room);
    return shm_meet(shm, err);
}

static void coll_shm_abort(struct coll *coll)
{
    struct coll_shm *shm = (struct coll_shm *)coll;
    shm_room_abort(&shm->room);
    for (int i = 0; i < shm->split_count; i++)
        coll_shm_abort(&shm->splits[i]->base);
}

static void coll_shm_close(struct coll *coll)
{
    struct coll_shm *shm = (struct coll_shm *)coll;
    if (shm == NULL)
        return;
    for (int i = 0; i < shm->split_count; i++)
        coll_shm_close(&shm->splits[i]->base);
    shm_room_leave(&shm->room);
    mem_free(shm);
}

static void shm_split_name(const char *name, int split, int first, char *ret, size_t size)
{
    (void)snprintf(ret, size, "%.*s.%d.%d", LIMIT_ID_BYTES, name, split, first);
}

void coll_shm_unlink(const char *name, int world)
{
    (void)shm_unlink(name); /* gone already, unless joining failed */
    char split_name[SHM_NAME_BYTES];
    for (int split = 0; split < COLL_SPLITS_MAX; split++)
        for (int first = 0; first < world; first++) {
            shm_split_name(name, split, first, split_name, sizeof split_name);
            (void)shm_unlink(split_name); /* the same */
        }
}

static int coll_shm_split(struct coll *coll, int color, struct coll **ret, struct err *err)
{
    struct coll_shm *shm = (struct coll_shm *)coll;
    must(color >= 0 && shm->split_count < COLL_SPLITS_MAX);
    int64_t mine = color, colors[LIMIT_RANKS];
    TRY(coll_shm_all_gather(coll, NULL, &mine, colors, 1, DTYPE_I64, err));
    int numbers[LIMIT_RANKS], count = 0, rank = 0;
    for (int r = 0; r < coll->world; r++)
        if (colors[r] == mine) {
            rank = r == coll->rank ? count : rank;
            numbers[count++] = shm->room.numbers[r];
        }
    struct coll_shm_config config = shm->config;
    char name[SHM_NAME_BYTES];
    shm_split_name(shm->name, shm->split_count, numbers[0], name, sizeof name);
    config.name = name;
    config.numbers = numbers;
    config.rank = rank;
    config.world = count;
    config.slot_bytes = shm->room.half_bytes / SHM_SPLIT_PART;
    TRY(coll_shm_open(&config, ret, err));
    struct coll_shm *split = (struct coll_shm *)*ret;
    split->parent = shm;
    shm->splits[shm->split_count] = split;
    shm->split_count++; /* last: abort may come from another thread */
    return 0;
}

static const struct coll_ops coll_shm_ops = {
    .name = "shm",
    .all_gather = coll_shm_all_gather,
    .reduce_scatter = coll_shm_reduce_scatter,
    .all_reduce = coll_shm_all_reduce,
    .all_to_all = coll_shm_all_to_all,
    .send_recv = coll_shm_send_recv,
    .barrier = coll_shm_barrier,
    .split = coll_shm_split,
    .abort = coll_shm_abort,
    .close = coll_shm_close,
};

int coll_shm_open(const struct coll_shm_config *config, struct coll **ret, struct err *err)
{
    struct coll_shm *shm = mem_new(1, sizeof *shm);
    if (shm == NULL)
        return mem_fail(err, sizeof *shm, "a communicator");
    shm->base = (struct coll){.ops = &coll_shm_ops, .rank = config->rank, .world = config->world};
    shm->config = *config;
    (void)snprintf(shm->name, sizeof shm->name, "%s", config->name);
    shm->config.name = shm->name;
    shm->config.numbers = NULL;
    int rc = shm_room_enter(&shm->room, config, err);
    if (rc != 0)
        coll_shm_close(&shm->base);
    else
        *ret = &shm->base;
    return rc;
}
