/* coll_nccl_guard: ends collectives that go wrong. Whoever waits for a stream waits for the calls
 * on it; so a thread looks at what was launched, and a call whose turn has come and that is not
 * over by the deadline, an error of NCCL's, or an abort ends all communicators: ncclCommAbort lets
 * the streams go, and the device's next sync fails with the reason. What the thread sees of a call
 * it notes in the record: up to NCCL_GUARD_MS after it was so. */
#include "common/clock.h"
#include "worker/coll_record.h"
#include "worker/cuda/coll_nccl_private.h"

enum { NCCL_GUARD_MS = 20 /* between two looks */ };

int coll_nccl_failed(const struct coll_nccl *nccl, struct err *err)
{
    int code = atomic_load(&nccl->root->failed);
    if (code == 0)
        return 0;
    *err = nccl->root->reason;
    return -code;
}

void coll_nccl_end(struct coll_nccl *root, const struct err *reason)
{
    if (atomic_load(&root->failed) != 0)
        return;
    root->reason = *reason;
    atomic_store(&root->failed, (int)reason->code);
    device_cuda_break(root->cuda, reason);
    root->control->ops->abort(root->control);
    for (int i = 0; i < root->split_count; i++) {
        (void)ncclCommAbort(root->splits[i]->comm); /* it is over either way */
        root->splits[i]->comm = NULL;
    }
    (void)ncclCommAbort(root->comm);
    root->comm = NULL;
}

int coll_nccl_check(ncclResult_t result, const char *call, struct err *err)
{
    if (result == ncclSuccess || result == ncclInProgress)
        return 0;
    /* Of a peer that is gone somebody else tells why: that it is, is a consequence. */
    enum err_code code = result == ncclRemoteError ? ERR_COLL_ABORTED : ERR_DEVICE;
    if (code == ERR_DEVICE)
        TRY(cuda_faulted(call, err));
    return err_set(err, code, "NCCL: %s (%s): %s", ncclGetErrorString(result), call,
                   ncclGetLastError(NULL));
}

/* Whether the stream has passed it. "Not ready" would stay the thread's last error, and be taken
 * for that of its next launch. */
static bool coll_nccl_passed(cudaEvent_t event)
{
    if (cudaEventQuery(event) == cudaSuccess)
        return true;
    (void)cudaGetLastError();
    return false;
}

void coll_nccl_note(struct coll_nccl *nccl)
{
    while (nccl->over < nccl->launched &&
           coll_nccl_passed(nccl->marks[nccl->over % NCCL_MARKS].done))
        coll_record_done(nccl->base.root->record, nccl->marks[nccl->over++ % NCCL_MARKS].seq);
}

/* Is the oldest call that is not over late? */
static bool coll_nccl_is_late(struct coll_nccl *nccl, int64_t now)
{
    coll_nccl_note(nccl);
    if (nccl->over == nccl->launched)
        return false;
    struct nccl_mark *mark = &nccl->marks[nccl->over % NCCL_MARKS];
    if (mark->since_ms == 0 && coll_nccl_passed(mark->begun)) {
        mark->since_ms = now;
        coll_record_begun(nccl->base.root->record, mark->seq);
    }
    return mark->since_ms != 0 && now - mark->since_ms > nccl->timeout_ms;
}

/* What is wrong with one communicator, if anything. */
static int coll_nccl_look(struct coll_nccl *nccl, struct err *err)
{
    ncclResult_t state = ncclSuccess;
    if (coll_nccl_is_late(nccl, clock_monotonic_ms())) {
        const struct nccl_mark *mark = &nccl->marks[nccl->over % NCCL_MARKS];
        return err_set(err, ERR_COLL_TIMEOUT,
                       "rank %d: collective %llu (%s): the other ranks did not come within %lld s",
                       nccl->root->base.rank, (unsigned long long)mark->seq,
                       coll_kind_name(mark->kind), (long long)(nccl->timeout_ms / 1000));
    }
    TRY(coll_nccl_check(ncclCommGetAsyncError(nccl->comm, &state), "watching", err));
    return coll_nccl_check(state, "watching", err);
}

static void coll_nccl_guard_once(struct coll_nccl *root)
{
    struct err err;
    int rc = 0;
    if (atomic_load(&root->failed) != 0)
        return;
    if (atomic_load(&root->asked))
        rc = err_set(&err, ERR_COLL_ABORTED, "the collectives of this job were aborted");
    if (rc == 0)
        rc = coll_nccl_look(root, &err);
    for (int i = 0; rc == 0 && i < root->split_count; i++)
        rc = coll_nccl_look(root->splits[i], &err);
    if (rc != 0)
        coll_nccl_end(root, &err);
}

static void *coll_nccl_guard(void *context)
{
    struct coll_nccl *root = context;
    (void)cudaSetDevice(root->cuda->ordinal);
    while (!atomic_load(&root->closing)) {
        (void)pthread_mutex_lock(&root->lock);
        coll_nccl_guard_once(root);
        (void)pthread_mutex_unlock(&root->lock);
        clock_sleep_ms(NCCL_GUARD_MS);
    }
    return NULL;
}

int coll_nccl_guard_start(struct coll_nccl *root, struct err *err)
{
    if (pthread_create(&root->guard, NULL, coll_nccl_guard, root) != 0)
        return err_set(err, ERR_NOMEM, "no thread to guard the collectives");
    root->guarded = true;
    return 0;
}

void coll_nccl_guard_stop(struct coll_nccl *root)
{
    atomic_store(&root->closing, true);
    if (root->guarded)
        (void)pthread_join(root->guard, NULL);
    root->guarded = false;
}
