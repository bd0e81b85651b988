/* coll_nccl: collectives among GPUs through NCCL; contract: worker/coll.h.
 *
 * The ranks have met before, over shared memory (`control`): rank 0's id goes through it, and so do
 * barriers and splits. Each communicator has a stream of its own. A call waits for what its
 * caller's stream has so far and runs beside what comes next; wait() makes the caller's stream wait
 * for it. These streams go first: attention of a long sequence keeps all multiprocessors for
 * seconds, and a call that came after it would otherwise start when it ends. All ranks launch in
 * one order, so kernels of several communicators cannot block each other.
 *
 * NCCL's communicators are non-blocking: a peer that does not come never holds this thread. What is
 * launched is watched: coll_nccl_guard.c.
 *
 * Sums run in NCCL's order: the same for the same world and machine, not that of coll_shm. */
#include "common/clock.h"
#include "common/limits.h"
#include "common/mem.h"
#include "common/must.h"
#include "worker/coll_record.h"
#include "worker/cuda/coll_nccl_private.h"

#include <sched.h>
#include <string.h>

enum {
    NCCL_SPIN_MS = 2,  /* a call that NCCL is launching is looked at without rest: some 50 us */
    NCCL_SETTLE_MS = 1 /* and between two looks, later: what waits for other ranks */
};

static const struct coll_ops coll_nccl_ops;

static struct coll_nccl *coll_nccl_of(struct coll *coll)
{
    return (struct coll_nccl *)coll;
}

/* Waits until NCCL has taken in what was asked of the communicator. */
static int coll_nccl_settle(struct coll_nccl *nccl, ncclResult_t result, const char *call,
                            struct err *err)
{
    int64_t begun = clock_monotonic_ms(), deadline = begun + nccl->timeout_ms;
    TRY(coll_nccl_check(result, call, err));
    for (;;) {
        ncclResult_t state = ncclInProgress;
        TRY(coll_nccl_check(ncclCommGetAsyncError(nccl->comm, &state), call, err));
        TRY(coll_nccl_check(state, call, err));
        if (state == ncclSuccess)
            return 0;
        if (atomic_load(&nccl->root->asked)) /* the guard cannot: this holds its lock */
            return err_set(err, ERR_COLL_ABORTED, "the collectives of this job were aborted");
        int64_t now = clock_monotonic_ms();
        if (now > deadline)
            return err_set(err, ERR_COLL_TIMEOUT,
                           "rank %d: %s: the other ranks did not come within %lld s",
                           nccl->base.rank, call, (long long)(nccl->timeout_ms / 1000));
        if (now - begun > NCCL_SPIN_MS)
            clock_sleep_ms(NCCL_SETTLE_MS);
        else
            (void)sched_yield();
    }
}

/* ---- calls ---- */

static int nccl_dtype(enum dtype dtype, ncclDataType_t *ret, struct err *err)
{
    static const struct {
        enum dtype dtype;
        ncclDataType_t nccl;
    } known[] = {{DTYPE_F32, ncclFloat32}, {DTYPE_F64, ncclFloat64}, {DTYPE_BF16, ncclBfloat16},
                 {DTYPE_F16, ncclFloat16}, {DTYPE_I64, ncclInt64},   {DTYPE_I32, ncclInt32},
                 {DTYPE_U8, ncclUint8}};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (known[i].dtype == dtype) {
            *ret = known[i].nccl;
            return 0;
        }
    return err_set(err, ERR_UNSUPPORTED, "collectives of %s", dtype_name(dtype));
}

static ncclResult_t nccl_all_to_all(const struct coll_nccl *nccl, const struct coll_call *call,
                                    ncclDataType_t type)
{
    const struct coll_parts *parts = &call->parts;
    int64_t size = (int64_t)dtype_bytes(call->dtype);
    ncclResult_t result = ncclGroupStart();
    for (int peer = 0; peer < nccl->base.world; peer++)
        for (int64_t b = 0; b < parts->blocks && result == ncclSuccess; b++) {
            const char *send =
                (const char *)call->send +
                size * (peer / parts->copies * parts->send_part + b * parts->send_block);
            char *recv =
                (char *)call->recv + size * (peer * parts->recv_part + b * parts->recv_block);
            result = ncclSend(send, (size_t)call->count, type, peer, nccl->comm, nccl->stream);
            if (result == ncclSuccess)
                result = ncclRecv(recv, (size_t)call->count, type, peer, nccl->comm, nccl->stream);
        }
    ncclResult_t ended = ncclGroupEnd();
    return result == ncclSuccess ? ended : result;
}

static ncclResult_t nccl_send_recv(const struct coll_nccl *nccl, const struct coll_call *call,
                                   ncclDataType_t type)
{
    size_t count = (size_t)call->count;
    ncclResult_t result = ncclGroupStart();
    if (result == ncclSuccess && call->to >= 0)
        result = ncclSend(call->send, count, type, call->to, nccl->comm, nccl->stream);
    if (result == ncclSuccess && call->from >= 0)
        result = ncclRecv(call->recv, count, type, call->from, nccl->comm, nccl->stream);
    ncclResult_t ended = ncclGroupEnd();
    return result == ncclSuccess ? ended : result;
}

static ncclResult_t nccl_launch(const struct coll_nccl *nccl, const struct coll_call *call,
                                ncclDataType_t type)
{
    size_t count = (size_t)call->count;
    switch (call->kind) {
    case COLL_all_gather:
        return ncclAllGather(call->send, call->recv, count, type, nccl->comm, nccl->stream);
    case COLL_reduce_scatter:
        return ncclReduceScatter(call->send, call->recv, count, type, ncclSum, nccl->comm,
                                 nccl->stream);
    case COLL_all_reduce:
        return ncclAllReduce(call->recv, call->recv, count, type, ncclSum, nccl->comm,
                             nccl->stream);
    case COLL_all_to_all:
        return nccl_all_to_all(nccl, call, type);
    case COLL_send_recv:
        return nccl_send_recv(nccl, call, type);
    case COLL_none:
    case COLL_barrier:
    case COLL_KINDS:
        break;
    }
    must(false);
    return ncclInternalError;
}

/* Launches between two marks; the lock is held, so that the guard sees whole marks only. */
static int coll_nccl_launch(struct coll_nccl *nccl, const struct coll_call *call, uint64_t seq,
                            ncclDataType_t type, struct err *err)
{
    struct nccl_mark *mark = &nccl->marks[nccl->launched % NCCL_MARKS];
    mark->kind = call->kind;
    mark->seq = seq;
    mark->since_ms = 0;
    CUDA_TRY(cudaStreamWaitEvent(nccl->stream, nccl->ready, 0));
    CUDA_TRY(cudaEventRecord(mark->begun, nccl->stream));
    TRY(coll_nccl_settle(nccl, nccl_launch(nccl, call, type), coll_kind_name(call->kind), err));
    CUDA_TRY(cudaEventRecord(mark->done, nccl->stream));
    nccl->launched++;
    return 0;
}

/* A barrier, which ranks make on the host, or a call of nothing. */
static int coll_nccl_on_host(struct coll_nccl *nccl, const struct coll_call *call, uint64_t seq,
                             struct err *err)
{
    coll_record_begun(nccl->base.root->record, seq);
    if (call->kind == COLL_barrier)
        TRY(coll_barrier(nccl->control, err));
    coll_record_done(nccl->base.root->record, seq);
    return 0;
}

static int coll_nccl_start(struct coll *coll, struct stream *stream, const struct coll_call *call,
                           struct err *err)
{
    struct coll_nccl *nccl = coll_nccl_of(coll);
    ncclDataType_t type = ncclUint8;
    TRY(coll_nccl_failed(nccl, err));
    TRY(nccl_dtype(call->dtype, &type, err));
    uint64_t seq = coll_begin(coll, call);
    if (call->kind == COLL_barrier || call->count == 0)
        return coll_nccl_on_host(nccl, call, seq, err);
    if (nccl->launched >= NCCL_MARKS) /* a GPU that far behind is let come closer */
        CUDA_TRY(cudaEventSynchronize(nccl->marks[nccl->launched % NCCL_MARKS].done));
    CUDA_TRY(cudaEventRecord(nccl->ready, device_cuda_stream(&nccl->cuda->device, stream)->cuda));
    (void)pthread_mutex_lock(&nccl->root->lock);
    int rc = coll_nccl_failed(nccl, err);
    if (rc == 0) {
        coll_nccl_note(nccl); /* so that the mark to be used is free */
        rc = coll_nccl_launch(nccl, call, seq, type, err);
        if (rc != 0)
            coll_nccl_end(nccl->root, err);
    }
    (void)pthread_mutex_unlock(&nccl->root->lock);
    return rc;
}

static int coll_nccl_wait(struct coll *coll, struct stream *stream, struct err *err)
{
    struct coll_nccl *nccl = coll_nccl_of(coll);
    TRY(coll_nccl_failed(nccl, err));
    if (nccl->launched == 0)
        return 0;
    cudaEvent_t last = nccl->marks[(nccl->launched - 1) % NCCL_MARKS].done;
    CUDA_TRY(cudaStreamWaitEvent(device_cuda_stream(&nccl->cuda->device, stream)->cuda, last, 0));
    return 0;
}

/* ---- life ---- */

static int coll_nccl_open_marks(struct coll_nccl *nccl, struct err *err)
{
    int last = 0, first = 0;
    CUDA_TRY(cudaDeviceGetStreamPriorityRange(&last, &first));
    CUDA_TRY(cudaStreamCreateWithPriority(&nccl->stream, cudaStreamNonBlocking, first));
    CUDA_TRY(cudaEventCreateWithFlags(&nccl->ready, cudaEventDisableTiming));
    for (int i = 0; i < NCCL_MARKS; i++) {
        CUDA_TRY(cudaEventCreateWithFlags(&nccl->marks[i].begun, cudaEventDisableTiming));
        CUDA_TRY(cudaEventCreateWithFlags(&nccl->marks[i].done, cudaEventDisableTiming));
    }
    return 0;
}

/* Without its communicator and control, which the caller ends. */
static void coll_nccl_free(struct coll_nccl *nccl)
{
    for (int i = 0; i < NCCL_MARKS; i++) {
        if (nccl->marks[i].begun != NULL)
            (void)cudaEventDestroy(nccl->marks[i].begun);
        if (nccl->marks[i].done != NULL)
            (void)cudaEventDestroy(nccl->marks[i].done);
    }
    if (nccl->ready != NULL)
        (void)cudaEventDestroy(nccl->ready);
    if (nccl->stream != NULL)
        (void)cudaStreamDestroy(nccl->stream);
    mem_free(nccl);
}

static int coll_nccl_new(struct device_cuda *cuda, struct coll *control, int64_t timeout_ms,
                         struct coll_nccl **ret, struct err *err)
{
    struct coll_nccl *nccl = mem_new(1, sizeof *nccl);
    if (nccl == NULL)
        return mem_fail(err, sizeof *nccl, "a communicator");
    coll_init(&nccl->base, &coll_nccl_ops, control->rank, control->world);
    nccl->root = nccl;
    nccl->cuda = cuda;
    nccl->control = control;
    nccl->timeout_ms = timeout_ms;
    int rc = coll_nccl_open_marks(nccl, err);
    if (rc != 0)
        coll_nccl_free(nccl);
    else
        *ret = nccl;
    return rc;
}

static int coll_nccl_split(struct coll *coll, int color, struct coll **ret, struct err *err)
{
    struct coll_nccl *root = coll_nccl_of(coll), *split = NULL;
    struct coll *control = NULL;
    must(root->root == root && root->split_count < COLL_SPLITS_MAX);
    TRY(coll_nccl_failed(root, err));
    TRY(root->control->ops->split(root->control, color, &control, err));
    TRY(coll_nccl_new(root->cuda, control, root->timeout_ms, &split, err));
    split->root = root;
    split->base.root = coll;
    split->base.members = control->members;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    (void)pthread_mutex_lock(&root->lock);
    ncclResult_t result = ncclCommSplit(root->comm, color, coll->rank, &split->comm, &config);
    int rc = coll_nccl_settle(root, result, "splitting", err);
    if (rc == 0)
        rc = coll_nccl_settle(split, ncclSuccess, "splitting", err);
    if (rc == 0) {
        root->splits[root->split_count++] = split;
        *ret = &split->base;
    } else {
        coll_nccl_end(root, err);
        if (split->comm != NULL)
            (void)ncclCommAbort(split->comm);
        coll_nccl_free(split);
    }
    (void)pthread_mutex_unlock(&root->lock);
    return rc;
}

/* In each communicator; NCCL forgets it when the communicator ends. */
static int coll_nccl_lend(struct coll *coll, void *memory, size_t bytes, struct err *err)
{
    struct coll_nccl *root = coll_nccl_of(coll);
    int rc = 0;
    must(root->root == root);
    (void)pthread_mutex_lock(&root->lock);
    for (int i = 0; i <= root->split_count && rc == 0 && bytes > 0; i++) {
        struct coll_nccl *nccl = i < root->split_count ? root->splits[i] : root;
        void *handle = NULL;
        rc = coll_nccl_failed(nccl, err);
        if (rc == 0)
            rc = coll_nccl_settle(nccl, ncclCommRegister(nccl->comm, memory, bytes, &handle),
                                  "registering", err);
    }
    (void)pthread_mutex_unlock(&root->lock);
    return rc;
}

static void coll_nccl_abort(struct coll *coll)
{
    struct coll_nccl *root = coll_nccl_of(coll)->root;
    atomic_store(&root->asked, true); /* the guard does it: NCCL's call is not signal-safe */
    root->control->ops->abort(root->control);
}

/* A split ends with its root. */
static void coll_nccl_close(struct coll *coll)
{
    struct coll_nccl *root = coll_nccl_of(coll);
    if (root == NULL || root->root != root)
        return;
    bool whole = atomic_load(&root->failed) == 0 && !atomic_load(&root->asked);
    for (int i = 0; i < root->split_count && whole; i++)
        (void)cudaStreamSynchronize(root->splits[i]->stream); /* what was launched ends first, */
    if (whole)
        (void)cudaStreamSynchronize(root->stream); /* or the guard ends it */
    coll_nccl_guard_stop(root);
    for (int i = 0; i <= root->split_count; i++) {
        struct coll_nccl *nccl = i < root->split_count ? root->splits[i] : root;
        if (nccl->comm != NULL)
            (void)ncclCommAbort(nccl->comm); /* frees at once; destroying would wait for peers */
    }
    for (int i = 0; i < root->split_count; i++)
        coll_nccl_free(root->splits[i]);
    root->control->ops->close(root->control);
    (void)pthread_mutex_destroy(&root->lock);
    coll_nccl_free(root);
}

static const struct coll_ops coll_nccl_ops = {
    .name = "nccl",
    .start = coll_nccl_start,
    .wait = coll_nccl_wait,
    .split = coll_nccl_split,
    .lend = coll_nccl_lend,
    .abort = coll_nccl_abort,
    .close = coll_nccl_close,
};

/* Rank 0's id, to all. */
static int coll_nccl_agree(struct coll_nccl *nccl, ncclUniqueId *ret_id, struct err *err)
{
    ncclUniqueId own, all[LIMIT_RANKS];
    memset(&own, 0, sizeof own);
    int rc = nccl->base.rank == 0 ? coll_nccl_check(ncclGetUniqueId(&own), "an id", err) : 0;
    if (rc != 0)
        return rc; /* the others wait in vain until this rank's abort */
    TRY(coll_all_gather(nccl->control, NULL, &own, all, sizeof own, DTYPE_U8, err));
    *ret_id = all[0];
    return 0;
}

static int coll_nccl_join(struct coll_nccl *nccl, struct err *err)
{
    ncclUniqueId id;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    TRY(coll_nccl_agree(nccl, &id, err));
    ncclResult_t result =
        ncclCommInitRankConfig(&nccl->comm, nccl->base.world, id, nccl->base.rank, &config);
    TRY(coll_nccl_settle(nccl, result, "joining", err));
    return coll_nccl_guard_start(nccl, err);
}

int coll_nccl_open(struct device *device, struct coll *control, int64_t timeout_ms,
                   struct coll **ret, struct err *err)
{
    struct coll_nccl *nccl = NULL;
    TRY(coll_nccl_new(device_cuda_of(device), control, timeout_ms, &nccl, err));
    must(pthread_mutex_init(&nccl->lock, NULL) == 0);
    int rc = coll_nccl_join(nccl, err);
    if (rc == 0) {
        nccl->cuda->has_peers = 1;
        *ret = &nccl->base;
        return 0;
    }
    if (nccl->comm != NULL)
        (void)ncclCommAbort(nccl->comm);
    (void)pthread_mutex_destroy(&nccl->lock);
    coll_nccl_free(nccl);
    return rc;
}
