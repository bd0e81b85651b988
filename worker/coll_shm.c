/* coll_shm: collectives among processes of one machine, over a shm_room. A communicator that splits
 * off has a room of its own, named after the first (".<split>.<its first rank>").
 *
 * Calls run in pieces of at most half a slot, a round of the room a piece: a rank puts its piece
 * into its slot, arrives, waits for the others, and takes what it needs from their slots. What a
 * rank sends to itself never goes through the slot. A call of no elements is one round: every call
 * meets.
 *
 * start puts the first piece and arrives; wait does all else. So a call of one piece costs no rank
 * any waiting when all have started before the first waits; no thread works meanwhile. One call is
 * under way at a time: to start the next, or to arrive at the round after, is to have taken what
 * the first brought.
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
#include "worker/coll_record.h"
#include "worker/shm_room.h"

#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

enum {
    SHM_SPLIT_PART = 2,                  /* a split's slot is half of a half: /dev/shm is small */
    SHM_BLOCK = 8192,                    /* bytes summed at a time */
    SHM_NAME_BYTES = LIMIT_ID_BYTES + 32 /* of a room, with what a split adds */
};

struct coll_shm {
    struct coll base; /* first: a coll is cast to its coll_shm */
    struct shm_room room;
    struct coll_call call;         /* the running call, or the last */
    struct shm_note note;          /* of it */
    uint64_t seq;                  /* its number */
    int64_t bytes, piece;          /* of it: of all its pieces, and the largest piece */
    int64_t at;                    /* bytes taken of it */
    bool under_way;                /* started and not waited for */
    bool failed;                   /* a call has failed: no more calls */
    struct coll_shm_config config; /* its name is `name` */
    char name[SHM_NAME_BYTES];
    struct coll_shm *splits[COLL_SPLITS_MAX]; /* that split off it */
    atomic_int split_count;                   /* abort reads it from another thread */
};

static int shm_wrap(struct coll_shm *shm, int rc, struct err *err)
{
    shm->failed = true;
    return err_wrap(err, rc, "collective %llu, %s of %lld %s: ", (unsigned long long)shm->seq,
                    coll_kind_name((enum coll_kind)shm->note.kind), (long long)shm->note.count,
                    dtype_name((enum dtype)shm->note.dtype));
}

static int shm_check_notes(struct coll_shm *shm, struct err *err)
{
    for (int rank = 0; rank < shm->room.world; rank++) {
        struct shm_note theirs = *shm_room_note(&shm->room, rank);
        if (memcmp(&theirs, &shm->note, sizeof theirs) == 0)
            continue;
        shm_room_abort(&shm->room); /* nobody may use what it reads */
        return err_set(err, ERR_INTERNAL, "rank %d calls %s of %lld %s", shm->room.numbers[rank],
                       coll_kind_name((enum coll_kind)(theirs.kind % COLL_KINDS)),
                       (long long)theirs.count,
                       dtype_name((enum dtype)(theirs.dtype % DTYPE_COUNT)));
    }
    return 0;
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

/* Bytes [at, at + length) of a part whose blocks lie `stride` bytes apart at `part`, to or from
 * where they lie together at `flat`. */
static void shm_copy_part(char *flat, char *part, int64_t stride, int64_t block_bytes, int64_t at,
                          int64_t length, bool to_flat)
{
    for (int64_t done = 0, run; done < length; done += run) {
        int64_t block = (at + done) / block_bytes, within = (at + done) % block_bytes;
        run = shm_min(block_bytes - within, length - done);
        char *there = part + block * stride + within;
        shm_copy(to_flat ? flat + done : there, to_flat ? there : flat + done, run);
    }
}

static void shm_put_parts(struct coll_shm *shm, int64_t length)
{
    const struct shm_room *room = &shm->room;
    const struct coll_parts *parts = &shm->call.parts;
    int64_t size = (int64_t)dtype_bytes(shm->call.dtype);
    char *half = shm_room_half(room, room->rank);
    for (int part = 0; part < room->world / parts->copies; part++)
        if (part != room->rank / parts->copies || parts->copies > 1)
            shm_copy_part(half + part * shm->piece,
                          (char *)(uintptr_t)shm->call.send + part * parts->send_part * size,
                          parts->send_block * size, shm->call.count * size, shm->at, length, true);
}

static void shm_take_parts(struct coll_shm *shm, int64_t length)
{
    const struct shm_room *room = &shm->room;
    const struct coll_parts *parts = &shm->call.parts;
    int64_t size = (int64_t)dtype_bytes(shm->call.dtype), block = shm->call.count * size;
    int mine = room->rank / parts->copies; /* the part for this rank */
    for (int rank = 0; rank < room->world; rank++) {
        char *to = (char *)shm->call.recv + rank * parts->recv_part * size;
        if (rank != room->rank) {
            shm_copy_part(shm_room_half(room, rank) + mine * shm->piece, to,
                          parts->recv_block * size, block, shm->at, length, false);
            continue;
        }
        if (shm->at > 0)
            continue; /* its own part, all of it at once */
        const char *from = (const char *)shm->call.send + mine * parts->send_part * size;
        for (int64_t b = 0; b < parts->blocks; b++)
            shm_copy(to + b * parts->recv_block * size, from + b * parts->send_block * size, block);
    }
}

/* The next `length` bytes into this rank's half. */
static void shm_put(struct coll_shm *shm, int64_t length)
{
    const struct shm_room *room = &shm->room;
    const struct coll_call *call = &shm->call;
    char *half = shm_room_half(room, room->rank);
    switch (call->kind) {
    case COLL_all_gather:
        if (room->world == 1)
            return;
        break;
    case COLL_all_reduce:
        break;
    case COLL_send_recv:
        if (call->to < 0)
            return;
        break;
    case COLL_reduce_scatter:
        for (int rank = 0; rank < room->world; rank++)
            if (rank != room->rank)
                shm_copy(half + rank * shm->piece,
                         (const char *)call->send + rank * shm->bytes + shm->at, length);
        return;
    case COLL_all_to_all:
        shm_put_parts(shm, length);
        return;
    case COLL_barrier:
    case COLL_none:
    case COLL_KINDS:
        return;
    }
    shm_copy(half, (const char *)call->send + shm->at, length);
}

/* What the others have put there, to its place. */
static void shm_take(struct coll_shm *shm, int64_t length)
{
    const struct shm_room *room = &shm->room;
    const struct coll_call *call = &shm->call;
    const char *send = call->send;
    char *recv = call->recv;
    switch (call->kind) {
    case COLL_all_gather:
        for (int rank = 0; rank < room->world; rank++)
            shm_copy(recv + rank * shm->bytes + shm->at,
                     rank == room->rank ? send + shm->at : shm_room_half(room, rank), length);
        return;
    case COLL_reduce_scatter:
        shm_sum(shm, room->rank * shm->piece, send + room->rank * shm->bytes + shm->at,
                recv + shm->at, length);
        return;
    case COLL_all_reduce:
        shm_sum(shm, 0, recv + shm->at, recv + shm->at, length);
        return;
    case COLL_all_to_all:
        shm_take_parts(shm, length);
        return;
    case COLL_send_recv:
        if (call->from >= 0)
            shm_copy(recv + shm->at, shm_room_half(room, call->from), length);
        return;
    case COLL_barrier:
    case COLL_none:
    case COLL_KINDS:
        return;
    }
}

static int64_t shm_left(const struct coll_shm *shm)
{
    return shm_min(shm->piece, shm->bytes - shm->at);
}

/* The next piece for the others, without waiting for them. */
static void shm_offer(struct coll_shm *shm)
{
    shm_room_turn(&shm->room);
    shm_put(shm, shm_left(shm));
    *shm_room_note(&shm->room, shm->room.rank) = shm->note;
    shm_room_arrive(&shm->room);
}

static int coll_shm_wait(struct coll *coll, struct stream *stream, struct err *err)
{
    (void)stream; /* host memory: the call is the work */
    struct coll_shm *shm = (struct coll_shm *)coll;
    if (!shm->under_way)
        return 0;
    shm->under_way = false;
    shm_room_start_clock(&shm->room);
    for (;;) {
        int rc = shm_room_await(&shm->room, err);
        if (rc == 0)
            rc = shm_check_notes(shm, err);
        if (rc != 0)
            return shm_wrap(shm, rc, err);
        int64_t length = shm_left(shm);
        shm_take(shm, length);
        shm->at += length;
        if (shm->at >= shm->bytes)
            break;
        shm_offer(shm);
    }
    coll_record_done(coll->root->record, shm->seq);
    return 0;
}

/* Sizes of the call, and what it must be. */
static void shm_measure(struct coll_shm *shm)
{
    const struct coll_call *call = &shm->call;
    const struct shm_room *room = &shm->room;
    bool all_to_all = call->kind == COLL_all_to_all;
    must(call->count >= 0 && call->count <= INT64_MAX / 8 / LIMIT_RANKS);
    must(call->kind != COLL_send_recv || (call->to >= -1 && call->to < room->world));
    must(call->kind != COLL_send_recv || (call->from >= -1 && call->from < room->world));
    must(!all_to_all || (call->parts.copies >= 1 && room->world % call->parts.copies == 0 &&
                         call->parts.blocks >= 1));
    shm->note =
        (struct shm_note){.kind = call->kind, .dtype = call->dtype, .count = coll_call_count(call)};
    shm->bytes = shm->note.count * (int64_t)dtype_bytes(call->dtype);
    shm->piece =
        all_to_all || call->kind == COLL_reduce_scatter ? shm_share(room) : room->half_bytes;
    shm->at = 0;
}

static int coll_shm_start(struct coll *coll, struct stream *stream, const struct coll_call *call,
                          struct err *err)
{
    struct coll_shm *shm = (struct coll_shm *)coll;
    bool sum = call->kind == COLL_reduce_scatter || call->kind == COLL_all_reduce;
    TRY(coll_shm_wait(coll, stream, err));
    TRY(sum ? shm_check_sum(call->dtype, err) : 0);
    shm->call = *call;
    shm_measure(shm);
    shm->seq = coll_begin(coll, call);
    coll_record_begun(coll->root->record, shm->seq);
    int rc = shm_room_check(&shm->room, err);
    if (rc == 0 && shm->failed)
        rc = err_set(err, ERR_COLL_ABORTED, "an earlier collective of this communicator failed");
    if (rc != 0)
        return shm_wrap(shm, rc, err);
    shm_offer(shm);
    shm->under_way = true;
    return 0;
}

static void coll_shm_abort(struct coll *coll)
{
    struct coll_shm *shm = (struct coll_shm *)coll;
    shm_room_abort(&shm->room);
    for (int i = 0; i < atomic_load(&shm->split_count); i++)
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
    must(color >= 0 && coll->root == coll && shm->split_count < COLL_SPLITS_MAX);
    int64_t mine = color, colors[LIMIT_RANKS];
    TRY(coll_all_gather(coll, NULL, &mine, colors, 1, DTYPE_I64, err));
    int numbers[LIMIT_RANKS] = {0}, count = 0, rank = 0;
    uint64_t members = 0;
    for (int r = 0; r < coll->world; r++)
        if (colors[r] == mine) {
            rank = r == coll->rank ? count : rank;
            numbers[count++] = shm->room.numbers[r];
            members |= UINT64_C(1) << r;
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
    split->base.root = coll;
    split->base.members = members;
    shm->splits[shm->split_count] = split;
    (void)atomic_fetch_add(&shm->split_count, 1); /* last: abort may look meanwhile */
    return 0;
}

static const struct coll_ops coll_shm_ops = {
    .name = "shm",
    .start = coll_shm_start,
    .wait = coll_shm_wait,
    .split = coll_shm_split,
    .abort = coll_shm_abort,
    .close = coll_shm_close,
};

int coll_shm_open(const struct coll_shm_config *config, struct coll **ret, struct err *err)
{
    struct coll_shm *shm = mem_new(1, sizeof *shm);
    if (shm == NULL)
        return mem_fail(err, sizeof *shm, "a communicator");
    coll_init(&shm->base, &coll_shm_ops, config->rank, config->world);
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
