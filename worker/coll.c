/* coll: each collective as one call, for those who have nothing to do meanwhile; see coll.h. */
#include "worker/coll.h"

int coll_run(struct coll *coll, struct stream *stream, const struct coll_call *call,
             struct err *err)
{
    TRY(coll->ops->start(coll, stream, call, err));
    return coll->ops->wait(coll, stream, err);
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
