/* coll_rehearse: a rank of a node that is not there. Each call is the copies on this rank's device
 * of as many bytes as it would receive, at once, on the caller's stream: buffers, their sizes and
 * the work around them are the true ones, the network's time is not in it. Values are this rank's
 * own, so what is computed is finite, and means nothing. */
#include "worker/coll.h"

#include "common/mem.h"
#include "common/must.h"
#include "worker/coll_record.h"

#include <stdbool.h>

struct coll_rehearse {
    struct coll base;
    struct device *device;
    struct coll *groups[COLL_SPLITS_MAX]; /* (group_count) closed with this one */
    int group_count;
};

static int rehearse_copy(const struct coll_rehearse *self, struct stream *stream, void *to,
                         const void *from, int64_t bytes, struct err *err)
{
    if (to == from || bytes == 0)
        return 0;
    return self->device->dev->copy(self->device, stream, to, from, (size_t)bytes, err);
}

static int rehearse_all_gather(const struct coll_rehearse *self, struct stream *stream,
                               const struct coll_call *call, int64_t size, struct err *err)
{
    int64_t bytes = call->count * size;
    for (int r = 0; r < self->base.world; r++)
        TRY(rehearse_copy(self, stream, (char *)call->recv + r * bytes, call->send, bytes, err));
    return 0;
}

static int rehearse_all_to_all(const struct coll_rehearse *self, struct stream *stream,
                               const struct coll_call *call, int64_t size, struct err *err)
{
    const struct coll_parts *parts = &call->parts;
    int64_t mine = self->base.rank / parts->copies;
    for (int r = 0; r < self->base.world; r++)
        for (int64_t b = 0; b < parts->blocks; b++) {
            int64_t from = mine * parts->send_part + b * parts->send_block;
            int64_t to = r * parts->recv_part + b * parts->recv_block;
            TRY(rehearse_copy(self, stream, (char *)call->recv + to * size,
                              (const char *)call->send + from * size, call->count * size, err));
        }
    return 0;
}

static int rehearse_call(struct coll *coll, struct stream *stream, const struct coll_call *call,
                         struct err *err)
{
    struct coll_rehearse *self = (struct coll_rehearse *)coll;
    int64_t size = (int64_t)dtype_bytes(call->dtype), bytes = call->count * size;
    switch (call->kind) {
    case COLL_all_gather:
        return rehearse_all_gather(self, stream, call, size, err);
    case COLL_reduce_scatter:
        return rehearse_copy(self, stream, call->recv,
                             (const char *)call->send + coll->rank * bytes, bytes, err);
    case COLL_all_to_all:
        return rehearse_all_to_all(self, stream, call, size, err);
    case COLL_send_recv:
        return call->from < 0 ? 0 : rehearse_copy(self, stream, call->recv, call->send, bytes, err);
    case COLL_all_reduce: /* of this rank's alone */
    case COLL_barrier:
        return 0;
    case COLL_none:
    case COLL_KINDS:
        break;
    }
    must(false);
    return 0;
}

static int coll_rehearse_start(struct coll *coll, struct stream *stream,
                               const struct coll_call *call, struct err *err)
{
    uint64_t seq = coll_begin(coll, call);
    TRY(rehearse_call(coll, stream, call, err));
    coll_record_done(coll->root->record, seq); /* nobody is waited for */
    return 0;
}

static int coll_rehearse_wait(struct coll *coll, struct stream *stream, struct err *err)
{
    (void)coll;
    (void)stream;
    (void)err;
    return 0;
}

static int coll_rehearse_split(struct coll *coll, int color, struct coll **ret, struct err *err)
{
    (void)coll;
    (void)color;
    (void)ret;
    return err_set(err, ERR_UNSUPPORTED,
                   "a rehearsed rank has no peers to split from: see coll_rehearse_group");
}

static void coll_rehearse_abort(struct coll *coll)
{
    (void)coll;
}

static void coll_rehearse_close(struct coll *coll)
{
    struct coll_rehearse *self = (struct coll_rehearse *)coll;
    while (self->group_count > 0)
        coll_rehearse_close(self->groups[--self->group_count]);
    mem_free(self);
}

static const struct coll_ops coll_rehearse_ops = {
    .name = "rehearse",
    .start = coll_rehearse_start,
    .wait = coll_rehearse_wait,
    .split = coll_rehearse_split,
    .abort = coll_rehearse_abort,
    .close = coll_rehearse_close,
};

int coll_rehearse_open(struct device *device, int rank, int world, struct coll **ret,
                       struct err *err)
{
    must(rank >= 0 && rank < world);
    struct coll_rehearse *self = mem_new(1, sizeof *self);
    if (self == NULL)
        return mem_fail(err, sizeof *self, "a communicator");
    coll_init(&self->base, &coll_rehearse_ops, rank, world);
    self->device = device;
    *ret = &self->base;
    return 0;
}

int coll_rehearse_group(struct coll *coll, int rank, int world, struct coll **ret, struct err *err)
{
    struct coll_rehearse *self = (struct coll_rehearse *)coll;
    must(coll->ops == &coll_rehearse_ops && self->group_count < COLL_SPLITS_MAX);
    TRY(coll_rehearse_open(self->device, rank, world, ret, err));
    (*ret)->root = coll;
    (*ret)->members = coll->members;
    self->groups[self->group_count++] = *ret;
    return 0;
}
