/* bench_coll_cuda: what NCCL moves among the GPUs that are there, and what memory it takes.
 *
 *     build/release/tests/bench_coll_cuda [MiB of the gathered buffer ...]      default 16 64 256
 *
 * GB/s is what a rank's GPU sends in a call divided by its time: (world - 1) / world of the buffer;
 * the median of five rounds of 20 calls, as rank 0 sees it. MiB: what the whole device holds more
 * than before, once a communicator has been opened, split, and has made each of its calls once.
 * With the buffers that ranks have (worker/rank_env.h); NCCL_BUFFSIZE, NCCL_PROTO,
 * NCCL_MAX_P2P_NCHANNELS may be set to compare, and NCCL_LOCAL_REGISTER=0: through NCCL's own
 * buffers.
 *
 * Figures: tests/bench/results/. */
#include "common/clock.h"
#include "common/median.h"
#include "worker/coll.h"
#include "worker/device_cuda.h"
#include "worker/rank_env.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ROUNDS = 5, CALLS = 20, KINDS = 3 };

struct bench {
    struct device *device;
    struct coll *all, *group; /* of the same ranks: for gathers and sums, and for exchanges */
    char *a, *b;
};

/* A call of kind 0 all_gather, 1 reduce_scatter, 2 all_to_all. */
static int bench_call(const struct bench *bench, int kind, int64_t bytes, struct err *err)
{
    struct coll *all = bench->all;
    int64_t count = bytes / 4 / all->world;
    struct coll_parts parts = {.blocks = 1, .copies = 1, .send_part = count, .recv_part = count};
    char *a = bench->a, *b = bench->b;
    switch (kind) {
    case 0:
        return coll_all_gather(all, NULL, b + all->rank * count * 4, b, count, DTYPE_F32, err);
    case 1:
        return coll_reduce_scatter(all, NULL, a, b, count, DTYPE_F32, err);
    default:
        return coll_all_to_all(bench->group, NULL, a, b, count, &parts, DTYPE_F32, err);
    }
}

/* Nanoseconds of a call, the median. */
static int bench_time(const struct bench *bench, int kind, int64_t bytes, double *ret,
                      struct err *err)
{
    double ns[ROUNDS];
    for (int round = 0; round < ROUNDS; round++) {
        TRY(bench->device->dev->sync(bench->device, NULL, err));
        TRY(coll_barrier(bench->all, err));
        int64_t start = clock_monotonic_ns();
        for (int call = 0; call < CALLS; call++)
            TRY(bench_call(bench, kind, bytes, err));
        TRY(bench->device->dev->sync(bench->device, NULL, err));
        ns[round] = (double)(clock_monotonic_ns() - start) / CALLS;
    }
    *ret = median_sort(ns, ROUNDS);
    return 0;
}

/* Opens the communicators and says what each took of the device. */
static int bench_open(struct bench *bench, struct coll *control, size_t most, struct err *err)
{
    static const char *const names[] = {"opened", "split", "all_gather", "reduce_scatter",
                                        "all_to_all"};
    const struct device_ops *dev = bench->device->dev;
    int64_t bytes[6] = {dev->bytes_taken(bench->device)};
    TRY(device_cuda_coll_open(bench->device, control, 60000, &bench->all, err));
    bytes[1] = dev->bytes_taken(bench->device);
    TRY(bench->all->ops->split(bench->all, 0, &bench->group, err));
    bytes[2] = dev->bytes_taken(bench->device);
    bench->a = dev->alloc(bench->device, 2 * most, err);
    if (bench->a == NULL)
        return ERR_NOMEM;
    bench->b = bench->a + most;
    TRY(coll_lend(bench->all, bench->a, 2 * most, err));
    int64_t own = dev->bytes_taken(bench->device) - bytes[2];
    for (int kind = 0; kind < KINDS; kind++) {
        TRY(bench_call(bench, kind, 16 << 20, err));
        TRY(dev->sync(bench->device, NULL, err));
        bytes[3 + kind] = dev->bytes_taken(bench->device) - own;
    }
    if (bench->all->rank == 0) {
        for (int i = 0; i < 5; i++)
            printf("%s %+.0f MiB, ", names[i], (double)(bytes[i + 1] - bytes[i]) * 0x1p-20);
        printf("in all %.0f MiB\n", (double)(bytes[5] - bytes[0]) * 0x1p-20);
    }
    return 0;
}

static int bench_run(struct bench *bench, int argc, char **argv, struct err *err)
{
    static const char *const sizes[] = {"16", "64", "256"};
    int count = argc > 1 ? argc - 1 : 3, world = bench->all->world;
    if (bench->all->rank == 0)
        printf("    MiB  all_gather  reduce_scatter  all_to_all   GB/s\n");
    for (int i = 0; i < count; i++) {
        int64_t bytes = strtoll(argc > 1 ? argv[i + 1] : sizes[i], NULL, 10) << 20;
        double ns[KINDS];
        for (int kind = 0; kind < KINDS; kind++)
            TRY(bench_time(bench, kind, bytes, &ns[kind], err));
        double sent = (double)bytes * (world - 1) / world;
        if (bench->all->rank == 0)
            printf("%7lld %11.1f %15.1f %11.1f\n", (long long)(bytes >> 20), sent / ns[0],
                   sent / ns[1], sent / ns[2]);
    }
    return 0;
}

static int bench_rank(int rank, int world, const char *name, int argc, char **argv, struct err *err)
{
    struct bench bench = {0};
    struct coll *control = NULL;
    const struct coll_shm_config config = {
        .name = name, .rank = rank, .world = world, .timeout_ms = 60000};
    int64_t most = 256;
    for (int i = 1; i < argc; i++)
        most = strtoll(argv[i], NULL, 10) > most ? strtoll(argv[i], NULL, 10) : most;
    TRY(device_cuda_open(rank, &bench.device, err));
    TRY(coll_shm_open(&config, &control, err));
    TRY(bench_open(&bench, control, (size_t)most << 20, err));
    TRY(bench_run(&bench, argc, argv, err));
    bench.all->ops->close(bench.all);
    return 0;
}

static int bench_gpus(void) /* in a child: CUDA does not survive a fork */
{
    int status = 0;
    if (fork() == 0) {
        struct device_cuda_facts facts;
        struct err err = {0};
        _exit(device_cuda_describe(&facts, &err) == 0 ? facts.gpu_count : 0);
    }
    return wait(&status) > 0 && WIFEXITED(status) ? WEXITSTATUS(status) : 0;
}

int main(int argc, char **argv)
{
    rank_env_nccl_here();
    int failed = 0, world = bench_gpus();
    char name[64];
    (void)snprintf(name, sizeof name, "/ithaca-bench-%ld", (long)getpid());
    printf("%d GPUs\n", world);
    (void)fflush(stdout);
    for (int rank = 0; rank < world; rank++)
        if (fork() == 0) {
            struct err err = {0};
            int rc = bench_rank(rank, world, name, argc, argv, &err);
            if (rc != 0)
                (void)fprintf(stderr, "rank %d: %s\n", rank, err.text);
            (void)fflush(stdout);
            _exit(rc != 0);
        }
    for (int status; wait(&status) > 0;)
        failed |= status != 0;
    return failed;
}
