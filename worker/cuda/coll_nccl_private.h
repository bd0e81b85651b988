/* coll_nccl's inside, for coll_nccl*.c: a communicator, and what watches it. */
#pragma once
#include "worker/cuda/coll_nccl.h"

#include <nccl.h>
#include <pthread.h>
#include <stdbool.h>

enum { NCCL_MARKS = 256 /* calls launched and perhaps not over */ };

/* A launched call. */
struct nccl_mark {
    cudaEvent_t begun, done; /* around it, on the communicator's stream */
    enum coll_kind kind;
    uint64_t seq;     /* its number */
    int64_t since_ms; /* when the guard first saw that its turn had come; 0: not yet */
};

struct coll_nccl {
    struct coll base;
    struct coll_nccl *root; /* itself, or what it was split from */
    struct device_cuda *cuda;
    struct coll *control; /* of the same ranks; the root's is owned, a split's belongs to it */
    int64_t timeout_ms;
    ncclComm_t comm;
    cudaStream_t stream;
    cudaEvent_t ready; /* the caller's stream, up to the call */
    struct nccl_mark marks[NCCL_MARKS];
    uint64_t launched, over; /* calls marked; of them, known to be over. Under the root's lock */

    /* of a root */
    struct coll_nccl *splits[COLL_SPLITS_MAX];
    int split_count;
    pthread_mutex_t lock; /* marks, splits, communicators' ends */
    pthread_t guard;
    bool guarded;        /* the thread runs */
    atomic_bool closing; /* the guard is to end */
    atomic_bool asked;   /* abort() was called */
    atomic_int failed;   /* ERR_X: why all calls fail; 0: they do not */
    struct err reason;   /* written before `failed` */
};

/* Why all calls fail, or 0. */
int coll_nccl_failed(const struct coll_nccl *nccl, struct err *err);
/* Ends every communicator of the root, once, for this reason; the lock is held. */
void coll_nccl_end(struct coll_nccl *root, const struct err *reason);
/* What NCCL answered, as an error; success and "in progress" are 0. */
int coll_nccl_check(ncclResult_t result, const char *call, struct err *err);
/* Takes note of what is over; the lock is held. */
void coll_nccl_note(struct coll_nccl *nccl);

/* Starts and ends the root's guard thread. */
int coll_nccl_guard_start(struct coll_nccl *root, struct err *err);
void coll_nccl_guard_stop(struct coll_nccl *root);
