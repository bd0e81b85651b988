/* calibrate: see calibrate.h. A window is spent in rounds of calls of equal length, and the sixth
 * fastest of 25 counts (of fewer, where a call is longer than such a round): what else runs on the
 * machine slows rounds, nothing makes them faster; where a rank has one thread its processor's time
 * counts. Collectives need the same count on all ranks:
 * rank 0's. */
#include "worker/calibrate.h"

#include "common/clock.h"
#include "common/io.h"
#include "common/mem.h"
#include "common/must.h"
#include "worker/rank.h"

#include <stdlib.h>

enum {
    CALIBRATE_ROUNDS = 25,
    CALIBRATE_ROUNDS_LEAST = 4, /* of calls that are longer than a round */
    CALIBRATE_SHARE = 5,        /* the fastest fifth is left out */
    CALIBRATE_POINTS = 130,     /* about: the limit of time is shared among so many */
    CALIBRATE_MOST_CALLS = 1 << 20,
    CPU_REGION_BYTES = 24 << 20, /* beyond a core's caches */
    CUDA_REGION_BYTES = 768 << 20
};

void *calibrate_at(const struct calibrate *c, int region, int64_t bytes, int64_t turn)
{
    must(region >= 0 && region < CALIBRATE_REGIONS && bytes <= c->region_bytes);
    int64_t places = (c->region_bytes - bytes) / MEM_ALIGN_BYTES + 1;
    int64_t step = (bytes + MEM_ALIGN_BYTES - 1) / MEM_ALIGN_BYTES;
    return c->pool + region * c->region_bytes + turn * step % places * MEM_ALIGN_BYTES;
}

/* Nanoseconds of the clock; of this process's processor where that is the same but for what else
 * runs on the machine: one thread that waits for nobody. */
static int64_t calibrate_now(const struct calibrate *c, bool together)
{
    bool alone = !c->cuda && !together && c->plan->threads == 1;
    return alone ? clock_process_ns() : clock_monotonic_ns();
}

static int calibrate_calls(const struct calibrate *c, bool together, int64_t calls, int64_t *turn,
                           calibrate_fn *run, const void *args, int64_t *ret_ns, struct err *err)
{
    int64_t start = calibrate_now(c, together);
    for (int64_t i = 0; i < calls; i++)
        TRY(run(c, args, (*turn)++, err));
    TRY(c->device->dev->sync(c->device, NULL, err));
    *ret_ns = calibrate_now(c, together) - start;
    return 0;
}

/* How a window is spent. */
struct calibrate_rounds {
    int64_t calls; /* of a round */
    int64_t rounds;
};

/* `calls` calls took `ns`. */
static struct calibrate_rounds calibrate_share(const struct calibrate *c, int64_t calls, int64_t ns)
{
    double round_ns = (double)c->window_ns / CALIBRATE_ROUNDS;
    double call_ns = (double)(ns > 0 ? ns : 1) / (double)calls;
    if (call_ns < round_ns)
        return (struct calibrate_rounds){.calls = (int64_t)(round_ns / call_ns),
                                         .rounds = CALIBRATE_ROUNDS};
    int64_t rounds = (int64_t)((double)c->window_ns / call_ns);
    return (struct calibrate_rounds){
        .calls = 1, .rounds = rounds < CALIBRATE_ROUNDS_LEAST ? CALIBRATE_ROUNDS_LEAST : rounds};
}

/* Rank 0's. */
static int calibrate_agree(const struct calibrate *c, struct calibrate_rounds *rounds,
                           struct err *err)
{
    const struct device_ops *dev = c->device->dev;
    void *place = calibrate_at(c, 3, sizeof *rounds, 0);
    struct calibrate_rounds mine = {0};
    if (c->coll->rank == 0)
        mine = *rounds;
    TRY(dev->copy(c->device, NULL, place, &mine, sizeof mine, err));
    TRY(coll_all_reduce(c->coll, NULL, place, sizeof mine / sizeof(int64_t), DTYPE_I64, err));
    TRY(dev->copy(c->device, NULL, rounds, place, sizeof *rounds, err));
    return dev->sync(c->device, NULL, err);
}

/* The first call also warms up, or connects. */
static int calibrate_plan(const struct calibrate *c, bool together, int64_t *turn,
                          calibrate_fn *run, const void *args, struct calibrate_rounds *ret,
                          struct err *err)
{
    int64_t calls = 1, ns = 0;
    TRY(calibrate_calls(c, together, calls, turn, run, args, &ns, err));
    TRY(calibrate_calls(c, together, calls, turn, run, args, &ns, err));
    while (!together && calls < CALIBRATE_MOST_CALLS &&
           ns * CALIBRATE_ROUNDS_LEAST * CALIBRATE_ROUNDS < c->window_ns) {
        calls *= 4;
        TRY(calibrate_calls(c, together, calls, turn, run, args, &ns, err));
    }
    *ret = calibrate_share(c, calls, ns);
    return together ? calibrate_agree(c, ret, err) : 0;
}

static int calibrate_by_value(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

int calibrate_point(struct calibrate *c, enum time_op op, double size, double width, double work,
                    bool together, calibrate_fn *run, const void *args, struct err *err)
{
    struct calibrate_rounds plan;
    int64_t turn = 0, ns[CALIBRATE_ROUNDS];
    TRY(coll_barrier(c->coll, err));
    TRY(calibrate_plan(c, together, &turn, run, args, &plan, err));
    for (int64_t round = 0; round < plan.rounds; round++)
        TRY(calibrate_calls(c, together, plan.calls, &turn, run, args, &ns[round], err));
    qsort(ns, (size_t)plan.rounds, sizeof ns[0], calibrate_by_value);
    double seconds = (double)ns[plan.rounds / CALIBRATE_SHARE] * 1e-9 / (double)plan.calls;
    if (seconds > 0)
        time_rates_add(c->rates, op,
                       (struct time_point){.size = size, .width = width, .rate = work / seconds});
    return 0;
}

/* Numbers from 0.5 to 2, both as fp32 and as pairs of bf16: nothing is special about them. */
static int calibrate_fill(struct calibrate *c, struct err *err)
{
    enum { WORDS = 1 << 16 };
    const struct device_ops *dev = c->device->dev;
    CLEANUP(mem_free_ptr) uint32_t *words = mem_new(WORDS, sizeof *words);
    CLEANUP(mem_free_ptr) int32_t *ids = mem_new(CALIBRATE_IDS, sizeof *ids);
    if (words == NULL || ids == NULL)
        return mem_fail(err, CALIBRATE_IDS * sizeof *ids, "a calibration");
    for (uint32_t i = 0; i < WORDS; i++)
        words[i] = (0x3f00 + i * 37 % 0x100) << 16 | (0x3f00 + i * 101 % 0x100);
    for (int32_t i = 0; i < CALIBRATE_IDS; i++)
        ids[i] = i * 7 % CALIBRATE_IDS_BELOW;
    int64_t chunk = WORDS * (int64_t)sizeof *words;
    for (int64_t at = 0; at + chunk <= CALIBRATE_REGIONS * c->region_bytes; at += chunk)
        TRY(dev->copy(c->device, NULL, c->pool + at, words, (size_t)chunk, err));
    TRY(dev->copy(c->device, NULL, c->ids, ids, CALIBRATE_IDS * sizeof *ids, err));
    return dev->sync(c->device, NULL, err);
}

static int calibrate_open(struct calibrate *c, struct err *err)
{
    const struct device_ops *dev = c->device->dev;
    c->pool = dev->alloc(c->device, (size_t)(CALIBRATE_REGIONS * c->region_bytes), err);
    if (c->pool == NULL)
        return -(int)err->code;
    c->ids = dev->alloc(c->device, CALIBRATE_IDS * sizeof *c->ids, err);
    if (c->ids == NULL)
        return -(int)err->code;
    c->host = dev->host_alloc(c->device, (size_t)c->region_bytes, err);
    return c->host == NULL ? -(int)err->code : calibrate_fill(c, err);
}

static void calibrate_close(struct calibrate *c)
{
    const struct device_ops *dev = c->device->dev;
    dev->host_free(c->device, c->host);
    dev->free(c->device, c->ids);
    dev->free(c->device, c->pool);
}

/* Of a card what its maker says, else of the fastest product. */
static double calibrate_peak(const struct time_rates *rates, int64_t card)
{
    double peak = (double)card;
    for (int op = TIME_GEMM_Y; card == 0 && op <= TIME_GEMM_DW; op++)
        for (int32_t i = 0; i < rates->counts[op]; i++)
            peak = rates->points[op][i].rate > peak ? rates->points[op][i].rate : peak;
    return peak;
}

static int calibrate_measure(struct calibrate *c, struct err *err)
{
    TRY(calibrate_open(c, err));
    TRY(calibrate_ops(c, err));
    TRY(calibrate_passes(c, err));
    return calibrate_moves(c, err);
}

static int calibrate_write(const struct calibrate *c, struct err *err)
{
    CLEANUP(mem_free_ptr) char *path = io_join(c->plan->job_dir, "rates.json");
    CLEANUP(json_unref) json_t *json = time_rates_json(c->rates);
    if (path == NULL || json == NULL)
        return mem_fail(err, LIMIT_PATH_BYTES, "the calibration");
    return json_write_file(path, json, 0600, err);
}

static int calibrate_run(struct rank *rank, struct err *err)
{
    const struct launch_plan *plan = rank->plan;
    bool cuda = plan->device == LAUNCH_CUDA;
    struct time_rates rates = {.backend = cuda ? MEM_BACKEND_CUDA : MEM_BACKEND_CPU,
                               .ranks = rank->world,
                               .threads = cuda ? 0 : plan->threads,
                               .beside = cuda};
    struct calibrate c = {.plan = plan,
                          .device = rank->device,
                          .coll = rank->coll,
                          .cuda = cuda,
                          .act = (int64_t)dtype_bytes(rank->device->dev->act_dtype),
                          .region_bytes = cuda ? CUDA_REGION_BYTES : CPU_REGION_BYTES,
                          .window_ns = plan->spec.time_limit_s * 1000000000 / CALIBRATE_POINTS,
                          .rates = &rates};
    int rc = calibrate_measure(&c, err);
    calibrate_close(&c);
    TRY(rc);
    rates.peak_flops = calibrate_peak(&rates, plan->peak_flops);
    return rank->number == 0 ? calibrate_write(&c, err) : 0;
}

int calibrate_rank(const struct launch_plan *plan, int number, struct err *err)
{
    struct rank rank = {.plan = plan, .number = number, .world = (int)plan->world};
    int rc = rank_open_device(&rank, err);
    if (rc == 0)
        rc = calibrate_run(&rank, err);
    if (rc == 0)
        rc = coll_barrier(rank.coll, err); /* nobody leaves before all have measured */
    else
        rank_fail(&rank, err);
    rank_close(&rank);
    return rc;
}
