/* coll: the second seam: collectives among the ranks of a communicator.
 *
 * Implementations: coll_shm (POSIX shared memory; sums run in rank order, so results are
 * bit-reproducible), coll_nccl (later), rehearse (later). Every call has the communicator's
 * deadline: a peer that does not arrive gives ERR_COLL_TIMEOUT naming the missing ranks, an aborted
 * communicator ERR_COLL_ABORTED, and so does every call after one that failed. All ranks make the
 * same calls with the same counts in the same order; each counts them in `seq`. coll_shm compares
 * them: ranks that differ get ERR_INTERNAL saying how.
 *
 * Buffers are device memory of the rank's device. Counts are elements and may be 0. Sums accumulate
 * in the dtype given (F32, F64, I64; others are ERR_UNSUPPORTED) in rank order 0, 1, ... */
#pragma once
#include "common/dtype.h"
#include "common/err.h"
#include "worker/device.h"

#include <stdint.h>

struct coll;

struct coll_ops {
    const char *name;
    /* recv[r*count .. ] = send of rank r. send may be recv + rank*count (in place). */
    int (*all_gather)(struct coll *coll, struct stream *stream, const void *send, void *recv,
                      int64_t count, enum dtype dtype, struct err *err);
    /* recv = sum over ranks of send[rank*count ..], count elements a rank. recv may be send +
     * rank*count. */
    int (*reduce_scatter)(struct coll *coll, struct stream *stream, const void *send, void *recv,
                          int64_t count, enum dtype dtype, struct err *err);
    int (*all_reduce)(struct coll *coll, struct stream *stream, void *data, int64_t count,
                      enum dtype dtype, struct err *err); /* sum, in place; F32, F64, I64 */
    /* recv[r*count ..] = what rank r had at send[(me / copies)*count ..]: with copies above 1 that
     * many neighbours are sent the same part, of world / copies. Not in place. */
    int (*all_to_all)(struct coll *coll, struct stream *stream, const void *send, void *recv,
                      int64_t count, int copies, enum dtype dtype, struct err *err);
    /* Paired: every rank sends to `to` and receives from `from` (-1: none); a ring step. */
    int (*send_recv)(struct coll *coll, struct stream *stream, const void *send, int to, void *recv,
                     int from, int64_t count, enum dtype dtype, struct err *err);
    int (*barrier)(struct coll *coll, struct err *err);
    /* A communicator of the ranks that give the same `color` (0 or above), in their order. All
     * ranks call. It belongs to `coll`: aborting or closing `coll` does so to it, its calls count
     * in both `seq`, errors name its ranks by their number in `coll`. At most COLL_SPLITS_MAX. */
    int (*split)(struct coll *coll, int color, struct coll **ret, struct err *err);
    /* From any thread or a signal-safe point: all ranks' current and later calls fail with
     * ERR_COLL_ABORTED. */
    void (*abort)(struct coll *coll);
    void (*close)(struct coll *coll);
};

enum { COLL_SPLITS_MAX = 4 };

struct coll {
    const struct coll_ops *ops; /* every member set */
    int rank;
    int world;
    uint64_t seq; /* collectives begun: goes into heartbeats */
};

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
/* Removes what ranks killed while joining may have left, of `name` and all that split off it. */
void coll_shm_unlink(const char *name, int world);
