/* coll: the second seam: collectives among the ranks of a communicator.
 *
 *     TRY(coll_all_gather(coll, stream, send, recv, count, DTYPE_F32, err));
 *
 * or, with work between that needs neither buffer:
 *     TRY(coll_start(coll, stream, &call, err));
 *     TRY(coll_wait(coll, stream, err));
 *
 * Implementations: coll_shm (POSIX shared memory; sums run in rank order, so results are
 * bit-reproducible), coll_nccl (GPUs; sums run in an order of
 * NCCL's), coll_rehearse (one rank alone). Every call has the communicator's
 * deadline: a peer that does not arrive gives ERR_COLL_TIMEOUT naming the missing ranks, an aborted
 * communicator ERR_COLL_ABORTED, and so does every call after one that failed. All ranks make the
 * same calls with the same counts in the same order; a call has the same number on all of them:
 * `seq` of the root, which counts those of all that split off it. coll_shm compares calls: ranks
 * that differ get ERR_INTERNAL saying how. A root that is given a record (coll_record.h) notes each
 * call there; one that is given an account (exposed.h) books what the stream of work waits for.
 *
 * Calls of a communicator are done in the order of their start. Between start and wait nobody may
 * touch what the call writes, nor write what it reads. Where a stream orders work (CUDA) a call
 * begins when what its stream has so far is done, runs beside what comes on it next, and wait makes
 * what comes after it on the stream wait. On the host a started call is handed over and its peers
 * are not waited for: ranks need not be there at the same time.
 *
 * Buffers are device memory of the rank's device. Counts are elements and may be 0. Sums accumulate
 * in the dtype given (F32, F64, I64; others are ERR_UNSUPPORTED) in rank order 0, 1, ... */
#pragma once
#include "common/dtype.h"
#include "common/err.h"
#include "worker/device.h"

#include <stdatomic.h>
#include <stdint.h>

struct coll;
struct coll_record;
struct exposed;

#define COLL_CALLS(X) \
    X(all_gather)     \
    X(reduce_scatter) \
    X(all_reduce)     \
    X(all_to_all)     \
    X(send_recv)      \
    X(barrier)
enum coll_kind {
    COLL_none, /* no call */
#define X(name) COLL_##name,
    COLL_CALLS(X)
#undef X
        COLL_KINDS
};

/* Where the parts of an all_to_all lie, in elements. Each is `blocks` blocks of `count`; with
 * copies above 1 that many neighbours are sent the same part, so that there are world / copies.
 * Block b of part p is sent from p*send_part + b*send_block; that of rank r arrives at r*recv_part
 * + b*recv_block. */
struct coll_parts {
    int64_t blocks;
    int copies;
    int64_t send_part, send_block;
    int64_t recv_part, recv_block;
};

struct coll_call {
    enum coll_kind kind;
    enum dtype dtype;
    int64_t count; /* as the functions below have it */
    const void *send;
    void *recv;
    int to, from;            /* send_recv */
    struct coll_parts parts; /* all_to_all */
};

struct coll_ops {
    const char *name;
    /* `call` is copied. A call that cannot be is refused here, before it counts. */
    int (*start)(struct coll *coll, struct stream *stream, const struct coll_call *call,
                 struct err *err);
    /* Until nothing that was started is under way; fine when nothing is. */
    int (*wait)(struct coll *coll, struct stream *stream, struct err *err);
    /* A communicator of the ranks that give the same `color` (0 or above), in their order. All
     * ranks call, on a root. It belongs to `coll`: aborting or closing `coll` does so to it, its
     * calls count in both `seq`, errors name its ranks by their number in `coll`. At most
     * COLL_SPLITS_MAX. */
    int (*split)(struct coll *coll, int color, struct coll **ret, struct err *err);
    /* See coll_lend(); NULL: there is nothing to prepare. */
    int (*lend)(struct coll *coll, void *memory, size_t bytes, struct err *err);
    /* From any thread or a signal-safe point: all ranks' current and later calls fail with
     * ERR_COLL_ABORTED. */
    void (*abort)(struct coll *coll);
    void (*close)(struct coll *coll);
};

enum { COLL_SPLITS_MAX = 4 };

struct coll {
    const struct coll_ops *ops; /* every member set but lend */
    int rank;
    int world;
    atomic_uint_least64_t seq;  /* collectives begun: goes into heartbeats, from another thread */
    struct coll *root;          /* what it was split from, or itself */
    uint64_t members;           /* bit r: rank r of the root is in it */
    enum coll_kind started;     /* the last call that coll_start() was given */
    struct coll_record *record; /* of a root, borrowed; NULL: calls are noted nowhere */
    struct exposed *exposed;    /* of a root, borrowed; NULL: time is not accounted for */
};

/* What calls are from and into from here on lies in this block of the device's memory, on all
 * ranks; it stays until close(). What can be prepared is: NCCL maps it among the GPUs. All ranks
 * call, on a root, after its splits. */
int coll_lend(struct coll *coll, void *memory, size_t bytes, struct err *err);
int coll_start(struct coll *coll, struct stream *stream, const struct coll_call *call,
               struct err *err);
int coll_wait(struct coll *coll, struct stream *stream, struct err *err);
/* Started and waited for. */
int coll_run(struct coll *coll, struct stream *stream, const struct coll_call *call,
             struct err *err);
/* recv[r*count .. ] = send of rank r. send may be recv + rank*count (in place). */
int coll_all_gather(struct coll *coll, struct stream *stream, const void *send, void *recv,
                    int64_t count, enum dtype dtype, struct err *err);
/* recv = sum over ranks of send[rank*count ..], count elements a rank. recv may be send +
 * rank*count. */
int coll_reduce_scatter(struct coll *coll, struct stream *stream, const void *send, void *recv,
                        int64_t count, enum dtype dtype, struct err *err);
/* Sum, in place; F32, F64, I64. */
int coll_all_reduce(struct coll *coll, struct stream *stream, void *data, int64_t count,
                    enum dtype dtype, struct err *err);
/* Not in place. */
int coll_all_to_all(struct coll *coll, struct stream *stream, const void *send, void *recv,
                    int64_t count, const struct coll_parts *parts, enum dtype dtype,
                    struct err *err);
/* Paired: every rank sends to `to` and receives from `from` (-1: none); a ring step. */
int coll_send_recv(struct coll *coll, struct stream *stream, const void *send, int to, void *recv,
                   int from, int64_t count, enum dtype dtype, struct err *err);
int coll_barrier(struct coll *coll, struct err *err);

const char *coll_kind_name(enum coll_kind kind);       /* "all_gather" */
int64_t coll_call_count(const struct coll_call *call); /* elements; of an all_to_all, of a part */

/* For implementations: a root; then split->root and split->members are for split() to set. */
void coll_init(struct coll *coll, const struct coll_ops *ops, int rank, int world);
/* A call that will be made: counts it, notes it, gives its number. */
uint64_t coll_begin(struct coll *coll, const struct coll_call *call);

struct coll_shm_config {
    const char *name; /* shared memory object, "/ithaca-..."; rank 0 creates it */
    int rank, world;
    const int *numbers; /* (world) what errors call the ranks; copied; NULL: 0, 1, ... */
    int64_t timeout_ms; /* of joining and of each call */
    int64_t slot_bytes; /* staging space a rank; larger calls go in pieces; 0: 4 MiB; all alike */
};
/* Joins; returns when all ranks have. The object's name is unlinked as soon as all are in: nothing
 * is left behind. All world * slot_bytes are taken from /dev/shm here: one that is too small is
 * ERR_NO_SPACE with both sizes, never a SIGBUS later. */
int coll_shm_open(const struct coll_shm_config *config, struct coll **ret, struct err *err);
/* One rank of `world` without the others: worker/coll_rehearse.c. */
int coll_rehearse_open(struct device *device, int rank, int world, struct coll **ret,
                       struct err *err);
/* What split gives elsewhere, of which a rank alone cannot know the size: this rank as number
 * `rank` of a group of `world`. It belongs to `coll`, and has all its members. */
int coll_rehearse_group(struct coll *coll, int rank, int world, struct coll **ret, struct err *err);
/* Removes what ranks killed while joining may have left, of `name` and all that split off it. */
void coll_shm_unlink(const char *name, int world);
