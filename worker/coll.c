/* coll: what calls of all implementations have in common: their number, the record, the account of
 * time; and each collective as one call, for those who have nothing to do meanwhile. See coll.h. */
#include "worker/coll.h"

#include "worker/coll_record.h"
#include "worker/exposed.h"

static const char *const coll_names[COLL_KINDS] = {[COLL_none] = "none",
#define X(name) [COLL_##name] = #name,
                                                   COLL_CALLS(X)
#undef X
};

static const enum exposed_kind coll_exposed[COLL_KINDS] = {[COLL_none] = EXPOSED_SUMS,
                                                           [COLL_all_gather] = EXPOSED_GATHER,
                                                           [COLL_reduce_scatter] = EXPOSED_REDUCE,
                                                           [COLL_all_reduce] = EXPOSED_SUMS,
                                                           [COLL_all_to_all] = EXPOSED_EXCHANGE,
                                                           [COLL_send_recv] = EXPOSED_RING,
                                                           [COLL_barrier] = EXPOSED_SUMS};

const char *coll_kind_name(enum coll_kind kind)
{
    return coll_names[kind];
}

int64_t coll_call_count(const struct coll_call *call)
{
    return call->count * (call->kind == COLL_all_to_all ? call->parts.blocks : 1);
}

void coll_init(struct coll *coll, const struct coll_ops *ops, int rank, int world)
{
    *coll = (struct coll){.ops = ops,
                          .rank = rank,
                          .world = world,
                          .root = coll,
                          .members = UINT64_MAX >> (64 - world)};
}

uint64_t coll_begin(struct coll *coll, const struct coll_call *call)
{
    uint64_t seq = atomic_fetch_add(&coll->root->seq, 1) + 1;
    if (coll->root != coll)
        (void)atomic_fetch_add(&coll->seq, 1);
    coll_record_ask(coll->root->record, seq, coll->members, call);
    return seq;
}

int coll_lend(struct coll *coll, void *memory, size_t bytes, struct err *err)
{
    return coll->ops->lend != NULL ? coll->ops->lend(coll, memory, bytes, err) : 0;
}

int coll_start(struct coll *coll, struct stream *stream, const struct coll_call *call,
               struct err *err)
{
    struct exposed *exposed = coll->root->exposed;
    coll->started = call->kind;
    TRY(exposed_enter(exposed, coll_exposed[call->kind], stream, err));
    TRY(coll->ops->start(coll, stream, call, err));
    return exposed_leave(exposed, stream, err);
}

int coll_wait(struct coll *coll, struct stream *stream, struct err *err)
{
    struct exposed *exposed = coll->root->exposed;
    TRY(exposed_enter(exposed, coll_exposed[coll->started], stream, err));
    TRY(coll->ops->wait(coll, stream, err));
    return exposed_leave(exposed, stream, err);
}

int coll_run(struct coll *coll, struct stream *stream, const struct coll_call *call,
             struct err *err)
{
    TRY(coll_start(coll, stream, call, err));
    return coll_wait(coll, stream, err);
}

int coll_all_gather(struct coll *coll, struct stream *stream, const void *send, void *recv,
                    int64_t count, enum dtype dtype, struct err *err)
{
    struct coll_call call = {
        .kind = COLL_all_gather, .dtype = dtype, .count = count, .send = send, .recv = recv};
    return coll_run(coll, stream, &call, err);
}

int coll_reduce_scatter(struct coll *coll, struct stream *stream, const void *send, void *recv,
                        int64_t count, enum dtype dtype, struct err *err)
{
    struct coll_call call = {
        .kind = COLL_reduce_scatter, .dtype = dtype, .count = count, .send = send, .recv = recv};
    return coll_run(coll, stream, &call, err);
}

int coll_all_reduce(struct coll *coll, struct stream *stream, void *data, int64_t count,
                    enum dtype dtype, struct err *err)
{
    struct coll_call call = {
        .kind = COLL_all_reduce, .dtype = dtype, .count = count, .send = data, .recv = data};
    return coll_run(coll, stream, &call, err);
}

int coll_all_to_all(struct coll *coll, struct stream *stream, const void *send, void *recv,
                    int64_t count, const struct coll_parts *parts, enum dtype dtype,
                    struct err *err)
{
    struct coll_call call = {.kind = COLL_all_to_all,
                             .dtype = dtype,
                             .count = count,
                             .send = send,
                             .recv = recv,
                             .parts = *parts};
    return coll_run(coll, stream, &call, err);
}

int coll_send_recv(struct coll *coll, struct stream *stream, const void *send, int to, void *recv,
                   int from, int64_t count, enum dtype dtype, struct err *err)
{
    struct coll_call call = {.kind = COLL_send_recv,
                             .dtype = dtype,
                             .count = count,
                             .send = send,
                             .recv = recv,
                             .to = to,
                             .from = from};
    return coll_run(coll, stream, &call, err);
}

int coll_barrier(struct coll *coll, struct err *err)
{
    struct coll_call call = {.kind = COLL_barrier, .dtype = DTYPE_U8};
    return coll_run(coll, NULL, &call, err);
}
