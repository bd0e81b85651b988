/* calibrate_moves: collectives among all ranks, by what a rank receives; copies between device and
 * host; the disk that the job's folder is on, from rank 0 alone, past the page cache where the
 * filesystem lets us. */
#include "worker/calibrate.h"

#include "common/clock.h"
#include "common/io.h"
#include "common/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

enum { F32 = sizeof(float), DISK_CHUNK = 4 << 20, DISK_CHUNKS = 16, DISK_ALIGN = 4096 };

struct move {
    enum time_op op;
    int64_t part; /* bytes from each other rank, or of the copy */
};

/* The collective of `move`, on regions that hold world parts. */
static struct coll_call move_call(const struct calibrate *c, const struct move *move, int64_t turn)
{
    int world = c->coll->world, rank = c->coll->rank;
    int64_t count = move->part / F32, all = move->part * world;
    struct coll_call call = {.dtype = DTYPE_F32,
                             .count = count,
                             .send = calibrate_at(c, 0, all, turn),
                             .recv = calibrate_at(c, 2, all, turn),
                             .to = (rank + 1) % world,
                             .from = (rank + world - 1) % world,
                             .parts = {.blocks = 1,
                                       .copies = 1,
                                       .send_part = count,
                                       .send_block = count,
                                       .recv_part = count,
                                       .recv_block = count}};
    switch (move->op) {
    case TIME_ALL_GATHER:
        call.kind = COLL_all_gather;
        break;
    case TIME_REDUCE_SCATTER:
        call.kind = COLL_reduce_scatter;
        break;
    case TIME_ALL_REDUCE:
        call.kind = COLL_all_reduce;
        call.send = call.recv;
        break;
    case TIME_ALL_TO_ALL:
        call.kind = COLL_all_to_all;
        break;
    default:
        call.kind = COLL_send_recv;
    }
    return call;
}

static int move_together(const struct calibrate *c, const void *args, int64_t turn, struct err *err)
{
    const struct coll_call call = move_call(c, args, turn);
    return coll_run(c->coll, NULL, &call, err);
}

/* What time_work counts of a call: bytes from others; of a sum twice its share. */
static double move_received(const struct calibrate *c, const struct move *move)
{
    double part = (double)move->part, world = c->coll->world;
    if (move->op == TIME_SEND_RECV)
        return part;
    return move->op == TIME_ALL_REDUCE ? 2 * part * (world - 1) / world : part * (world - 1);
}

static int move_collectives(struct calibrate *c, struct err *err)
{
    static const int64_t cpu_parts[] = {64, 64 << 10, 1 << 20, 4 << 20, 0};
    static const int64_t cuda_parts[] = {64, 1 << 20, 8 << 20, 64 << 20, 0};
    if (c->coll->world == 1)
        return 0;
    for (int op = TIME_ALL_GATHER; op <= TIME_SEND_RECV; op++)
        for (const int64_t *part = c->cuda ? cuda_parts : cpu_parts; *part > 0; part++) {
            const struct move move = {.op = (enum time_op)op, .part = *part};
            double bytes = move_received(c, &move);
            if (*part * c->coll->world <= c->region_bytes)
                TRY(calibrate_point(c, move.op, bytes, 1, bytes, true, move_together, &move, err));
        }
    return 0;
}

static int move_copy(const struct calibrate *c, const void *args, int64_t turn, struct err *err)
{
    const struct move *move = args;
    void *device = calibrate_at(c, 0, move->part, turn);
    bool out = move->op == TIME_TO_HOST;
    return c->device->dev->copy(c->device, NULL, out ? c->host : device, out ? device : c->host,
                                (size_t)move->part, err);
}

/* Writes and reads chunks of an unlinked file; seconds of each. */
static int move_disk_file(const struct calibrate *c, int fd, double ret_seconds[2], struct err *err)
{
    CLEANUP(mem_free_ptr) char *chunk = mem_aligned(DISK_ALIGN, DISK_CHUNK);
    if (chunk == NULL)
        return mem_fail(err, DISK_CHUNK, "a calibration");
    for (int64_t i = 0; i < DISK_CHUNK; i++)
        chunk[i] = (char)(i * 31 + c->coll->rank); /* not all zeros */
    int64_t start = clock_monotonic_ns();
    for (int i = 0; i < DISK_CHUNKS; i++)
        TRY(io_write_full(fd, chunk, DISK_CHUNK, err));
    if (fdatasync(fd) != 0)
        return err_set_errno(err, errno, "write a calibration");
    int64_t middle = clock_monotonic_ns();
    for (int i = 0; i < DISK_CHUNKS; i++)
        TRY(io_pread_full(fd, chunk, DISK_CHUNK, (int64_t)i * DISK_CHUNK, err));
    ret_seconds[0] = (double)(middle - start) * 1e-9;
    ret_seconds[1] = (double)(clock_monotonic_ns() - middle) * 1e-9;
    return 0;
}

static int move_disk(struct calibrate *c, struct err *err)
{
    static const enum time_op ops[] = {TIME_FILE_WRITE, TIME_FILE_READ};
    double seconds[2] = {0}, bytes = (double)DISK_CHUNK * DISK_CHUNKS;
    CLEANUP(mem_free_ptr) char *path = io_join(c->plan->job_dir, "disk");
    if (path == NULL)
        return mem_fail(err, LIMIT_PATH_BYTES, "a path");
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_DIRECT, 0600);
    if (fd < 0) /* memory filesystems have none */
        fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0)
        return err_set_errno(err, errno, "%s", path);
    (void)unlink(path);
    int rc = move_disk_file(c, fd, seconds, err);
    (void)close(fd); /* nothing of it is wanted */
    for (int i = 0; i < 2 && rc == 0; i++)
        time_rates_add(
            c->rates, ops[i],
            (struct time_point){.size = DISK_CHUNK, .width = 1, .rate = bytes / seconds[i]});
    return rc;
}

int calibrate_moves(struct calibrate *c, struct err *err)
{
    TRY(move_collectives(c, err));
    for (int op = TIME_TO_HOST; op <= TIME_FROM_HOST; op++) {
        const struct move move = {.op = (enum time_op)op, .part = c->region_bytes / 2};
        double bytes = (double)move.part;
        TRY(calibrate_point(c, move.op, bytes, 1, bytes, false, move_copy, &move, err));
    }
    return c->coll->rank == 0 ? move_disk(c, err) : 0;
}
