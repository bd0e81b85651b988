/* bench_coll: what coll_shm moves, for 1, 2 and 4 ranks, against memcpy.
 *
 *     build/release/tests/bench_coll [MiB of the gathered buffer, default 64] [slot KiB, default
 * 4096]
 *
 * GB/s is bytes of the full buffer (world * count) divided by the time of a call, the best of five
 * rounds of calls, as rank 0 sees it. An all_gather writes that many bytes on each rank; memcpy is
 * one process copying the same buffer. Barrier is microseconds a call. Before them, what it costs
 * to note a call in a record (worker/coll_record.h), the best of five rounds.
 *
 * Measured on 2 cores of an AMD EPYC that other work shared, 64 MiB in slots of 4 MiB, memcpy 16
 * GB/s: 2 ranks gather 10 GB/s and reduce-scatter 5 to 6; 4 ranks 4 to 5 and 3 to 3.5 (twice as
 * many ranks as cores). A piece costs a meeting of about 28 us when ranks sleep, below 1 us when
 * they catch each other spinning; slots of 512 KiB lose 40% to that. 8 MiB gain nothing. */
#include "common/clock.h"
#include "common/io.h"
#include "common/mem.h"
#include "worker/coll.h"
#include "worker/coll_record.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ROUNDS = 5 };

static int64_t bench_bytes, bench_slot;

static double bench_memcpy(char *from, char *to)
{
    double best = 0;
    for (int round = 0; round < ROUNDS; round++) {
        int64_t start = clock_monotonic_ns();
        memcpy(to, from, (size_t)bench_bytes);
        __asm__ volatile("" : : "r"(to) : "memory"); /* the copy is wanted */
        double speed = (double)bench_bytes / (double)(clock_monotonic_ns() - start);
        best = speed > best ? speed : best;
    }
    return best;
}

/* One call of kind 0 all_gather, 1 reduce_scatter, 2 all_to_all, 3 all_reduce of a scalar,
 * 4 barrier. */
static int bench_call(struct coll *coll, int kind, char *a, char *b, struct err *err)
{
    int64_t count = bench_bytes / 4 / coll->world;
    struct coll_parts parts = {.blocks = 1, .copies = 1, .send_part = count, .recv_part = count};
    switch (kind) {
    case 0:
        return coll_all_gather(coll, NULL, b + coll->rank * count * 4, b, count, DTYPE_F32, err);
    case 1:
        return coll_reduce_scatter(coll, NULL, a, b, count, DTYPE_F32, err);
    case 2:
        return coll_all_to_all(coll, NULL, a, b, count, &parts, DTYPE_F32, err);
    case 3:
        return coll_all_reduce(coll, NULL, a, 1, DTYPE_F64, err);
    default:
        return coll_barrier(coll, err);
    }
}

/* Seconds of one call, the best of ROUNDS; negative on failure. */
static double bench_time(struct coll *coll, int kind, char *a, char *b, struct err *err)
{
    int calls = kind < 3 ? 4 : 2000;
    double best = 1e9;
    for (int round = 0; round < ROUNDS; round++) {
        if (coll_barrier(coll, err) != 0)
            return -1;
        int64_t start = clock_monotonic_ns();
        for (int call = 0; call < calls; call++)
            if (bench_call(coll, kind, a, b, err) != 0)
                return -1;
        double seconds = (double)(clock_monotonic_ns() - start) * 1e-9 / calls;
        best = seconds < best ? seconds : best;
    }
    return best;
}

static int bench_rank(int rank, int world, const char *name)
{
    struct err err = {0};
    struct coll *coll = NULL;
    const struct coll_shm_config config = {
        .name = name, .rank = rank, .world = world, .timeout_ms = 60000, .slot_bytes = bench_slot};
    char *a = mem_aligned(64, (size_t)bench_bytes), *b = mem_aligned(64, (size_t)bench_bytes);
    if (a == NULL || b == NULL || coll_shm_open(&config, &coll, &err) != 0) {
        (void)fprintf(stderr, "rank %d: %s\n", rank, err.text);
        return 1;
    }
    double seconds[5];
    for (int kind = 0; kind < 5; kind++) {
        seconds[kind] = bench_time(coll, kind, a, b, &err);
        if (seconds[kind] < 0) {
            (void)fprintf(stderr, "rank %d: %s\n", rank, err.text);
            return 1;
        }
    }
    if (rank == 0)
        printf("%5d %11.2f %15.2f %11.2f %15.1f %8.1f\n", world,
               (double)bench_bytes / seconds[0] / 1e9, (double)bench_bytes / seconds[1] / 1e9,
               (double)bench_bytes / seconds[2] / 1e9, seconds[3] * 1e6, seconds[4] * 1e6);
    (void)fflush(stdout);
    coll->ops->close(coll);
    return 0;
}

/* Nanoseconds to note a call from its asking to its end; negative on failure. */
static double bench_record(void)
{
    enum { CALLS = 100000 };
    const struct coll_call call = {.kind = COLL_all_gather, .dtype = DTYPE_BF16, .count = 512};
    char folder[] = "/tmp/ithaca-bench-coll-XXXXXX";
    struct coll_record *record = NULL;
    struct err err = {0};
    double best = 1e9;
    if (mkdtemp(folder) == NULL || coll_record_open(folder, 0, &record, &err) != 0)
        return -1;
    for (int round = 0; round < ROUNDS; round++) {
        int64_t start = clock_monotonic_ns();
        for (uint64_t seq = 1; seq <= CALLS; seq++) {
            coll_record_ask(record, seq, 3, &call);
            coll_record_begun(record, seq);
            coll_record_done(record, seq);
        }
        double ns = (double)(clock_monotonic_ns() - start) / CALLS;
        best = ns < best ? ns : best;
    }
    coll_record_close(record);
    return io_remove_tree(folder, &err) == 0 ? best : -1;
}

int main(int argc, char **argv)
{
    bench_bytes = (argc > 1 ? strtoll(argv[1], NULL, 10) : 64) << 20;
    bench_slot = (argc > 2 ? strtoll(argv[2], NULL, 10) : 4096) << 10;
    char *a = mem_aligned(64, (size_t)bench_bytes), *b = mem_aligned(64, (size_t)bench_bytes);
    if (a == NULL || b == NULL)
        return 1;
    printf("%lld MiB, slots of %lld KiB, %ld CPUs; memcpy %.2f GB/s\n",
           (long long)(bench_bytes >> 20), (long long)(bench_slot >> 10),
           sysconf(_SC_NPROCESSORS_ONLN), bench_memcpy(a, b));
    printf("a call in the record: %.0f ns\n", bench_record());
    printf("ranks  all_gather  reduce_scatter  all_to_all  all_reduce(1) us  barrier us\n");
    (void)fflush(stdout);
    mem_free(a);
    mem_free(b);
    int failed = 0;
    char name[64];
    (void)snprintf(name, sizeof name, "/ithaca-bench-%ld", (long)getpid());
    for (int world = 1; world <= 4; world *= 2) {
        for (int rank = 0; rank < world; rank++)
            if (fork() == 0)
                _exit(bench_rank(rank, world, name));
        for (int status; wait(&status) > 0;)
            failed |= status != 0;
    }
    return failed;
}
