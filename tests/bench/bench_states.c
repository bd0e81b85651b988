/* bench_states: what it costs that states live on the host: rank 0 of RANKS of a published shape
 * cut to LAYERS layers, the other ranks rehearsed (worker/coll_rehearse.c: local copies for the
 * network).
 *
 *     bench_states cpu|cuda MODEL RANKS LAYERS device|host_optimizer|host [ROUNDS]
 *
 * Milliseconds, medians of rounds, each waited for to its end: a layer gathered; its gradient ended
 * the first time in a step and a later time; the norm; the update. Bytes beside them are those that
 * pass between host and device. */
#include "common/clock.h"
#include "common/median.h"
#include "common/mem.h"
#include "common/model_published.h"
#include "common/must.h"
#include "worker/device_cuda.h"
#include "worker/optim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROUNDS = 5, THREADS = 1 };

enum work { WORK_GATHER, WORK_GRAD_FIRST, WORK_GRAD_LATER, WORK_NORM, WORK_UPDATE, WORK_COUNT };
static const char *const work_names[WORK_COUNT] = {"gather a layer", "its gradient, first",
                                                   "its gradient, later", "norm", "update"};

struct scene {
    struct device *device;
    struct coll *world;
    struct model_shape shape;
    struct mem_plan plan;
    struct arena arena;
    struct fsdp fsdp;
    struct optim optim;
};

/* Of the plan, what fsdp and optim reserve. */
static void keep_states(struct mem_plan *plan)
{
    int64_t kept = 0;
    for (int64_t i = 0; i < plan->count; i++) {
        const struct mem_buffer *b = &plan->buffers[i];
        enum mem_category category = mem_name_category(b->name);
        if (category == MEM_CATEGORY_STATES || category == MEM_CATEGORY_GATHERED ||
            b->name == MEM_SUM_SQUARES || b->name == MEM_GRAD_SCALE)
            plan->buffers[kept++] = *b;
    }
    plan->count = kept;
}

static int open_scene(struct scene *s, const struct model_config *config,
                      const struct job_spec *spec, bool cuda, struct err *err)
{
    TRY(cuda ? device_cuda_open(0, &s->device, err) : device_cpu_open(THREADS, &s->device, err));
    TRY(coll_rehearse_open(s->device, 0, (int)spec->gpus, &s->world, err));
    TRY(model_shape_build(config, &s->shape, err));
    struct mem_request request = {.shape = &s->shape,
                                  .spec = spec,
                                  .world = (int)spec->gpus,
                                  .backend = cuda ? MEM_BACKEND_CUDA : MEM_BACKEND_CPU};
    TRY(mem_plan_build(&request, &s->plan, err));
    keep_states(&s->plan);
    arena_init(&s->arena, s->device, &s->plan);
    TRY(fsdp_init(&s->fsdp, &s->shape, s->device, s->world, true, err));
    TRY(fsdp_reserve(&s->fsdp, &s->arena, err));
    TRY(optim_init(&s->optim, spec, &s->fsdp, &s->arena, err));
    int64_t start = clock_monotonic_ns();
    TRY(arena_commit(&s->arena, err));
    printf("%.2f GiB on the device, %.2f GiB on the host, taken in %.2f s\n",
           (double)arena_bytes(&s->arena, MEM_ARENA_DEVICE) * 0x1p-30,
           (double)arena_bytes(&s->arena, MEM_ARENA_HOST) * 0x1p-30,
           (double)(clock_monotonic_ns() - start) * 1e-9);
    return fsdp_clear(&s->fsdp, NULL, err);
}

static void close_scene(struct scene *s)
{
    fsdp_done(&s->fsdp);
    arena_done(&s->arena);
    mem_plan_done(&s->plan);
    model_shape_done(&s->shape);
    s->world->ops->close(s->world);
    s->device->dev->close(s->device);
}

static int do_work(struct scene *s, enum work work, struct err *err)
{
    enum { LAYER = 1 };
    const void *weights = NULL;
    double norm = 0;
    switch (work) {
    case WORK_GATHER:
        fsdp_weights_changed(&s->fsdp);
        return fsdp_gather(&s->fsdp, LAYER, NULL, &weights, err);
    case WORK_GRAD_FIRST:
    case WORK_GRAD_LATER:
        TRY(fsdp_grad_end(&s->fsdp, LAYER, NULL, err));
        return fsdp_grad_settle(&s->fsdp, NULL, err);
    case WORK_NORM:
        return optim_norm(&s->optim, NULL, &norm, err);
    case WORK_UPDATE:
        return optim_apply(&s->optim, 1e-5, 1, NULL, err);
    case WORK_COUNT:
        break;
    }
    must(false);
    return 0;
}

/* Bytes to the device and back. */
static double passing(const struct scene *s, enum work work)
{
    double all = 0, layer = (double)s->fsdp.units[1].shard * sizeof(float);
    bool master = (s->fsdp.on_host >> CHUNK_MASTER & 1) != 0;
    bool grad = (s->fsdp.on_host >> CHUNK_GRAD & 1) != 0;
    for (int64_t u = 0; u < s->fsdp.unit_count; u++)
        all += (double)s->fsdp.units[u].shard * sizeof(float);
    const double bytes[WORK_COUNT] = {master * layer, grad * layer, 2 * grad * layer, grad * all,
                                      (6 * master + grad) * all};
    return bytes[work];
}

static int measure(struct scene *s, int rounds, struct err *err)
{
    CLEANUP(mem_free_ptr)
    double *ms = mem_new((size_t)(WORK_COUNT * rounds), sizeof *ms); /* (WORK_COUNT, rounds) */
    must(ms != NULL);
    for (int round = -1; round < rounds; round++) { /* the first warms up */
        float *grad = NULL;
        TRY(fsdp_grad_zero(&s->fsdp, NULL, err));
        TRY(fsdp_grad_begin(&s->fsdp, 1, NULL, &grad, err));
        for (int work = 0; work < WORK_COUNT; work++) {
            TRY(s->device->dev->sync(s->device, NULL, err));
            int64_t start = clock_monotonic_ns();
            TRY(do_work(s, (enum work)work, err));
            TRY(s->device->dev->sync(s->device, NULL, err));
            if (round >= 0)
                ms[work * rounds + round] = (double)(clock_monotonic_ns() - start) * 1e-6;
        }
    }
    for (int work = 0; work < WORK_COUNT; work++) {
        double *all = ms + (ptrdiff_t)work * rounds, bytes = passing(s, (enum work)work);
        double median = median_sort(all, (size_t)rounds);
        printf("%-20s %9.3f ms (%.3f to %.3f)", work_names[work], median, all[0], all[rounds - 1]);
        if (bytes > 0)
            printf(", %.1f GB/s of %.1f MB", bytes / median * 1e-6, bytes * 1e-6);
        printf("\n");
    }
    return 0;
}

int main(int argc, char **argv)
{
    static const char *const names[] = {"device", "host_optimizer", "host"};
    struct err err = {0};
    struct scene s = {.device = NULL};
    const struct model_config *found = argc > 5 ? model_published_find(argv[2]) : NULL;
    int states = 0;
    while (argc > 5 && states < 3 && strcmp(names[states], argv[5]) != 0)
        states++;
    if (found == NULL || states == 3) {
        (void)fprintf(stderr, "usage: bench_states cpu|cuda MODEL RANKS LAYERS "
                              "device|host_optimizer|host [ROUNDS]\n");
        return 64;
    }
    struct model_config config = *found;
    config.layers = strtoll(argv[4], NULL, 10);
    struct job_spec spec = {.gpus = strtoll(argv[3], NULL, 10),
                            .seq_len = 1024,
                            .sequences = 1,
                            .fsdp = true,
                            .ulysses = 1,
                            .ring = 1,
                            .recompute = JOB_recompute_INPUT,
                            .tile_mlp = 64,
                            .tile_loss = 64,
                            .beta1 = 0.9,
                            .beta2 = 0.95,
                            .eps = 1e-8,
                            .states = (enum job_states)(JOB_states_DEVICE + states)};
    printf("%s on %s, rank 0 of %s, %s layers, states %s: ", argv[2], argv[1], argv[3], argv[4],
           argv[5]);
    if (open_scene(&s, &config, &spec, strcmp(argv[1], "cuda") == 0, &err) != 0 ||
        measure(&s, argc > 6 ? (int)strtol(argv[6], NULL, 10) : ROUNDS, &err) != 0) {
        (void)fprintf(stderr, "bench_states: %s\n", err.text);
        return err_code_exit(err.code);
    }
    close_scene(&s);
    return 0;
}
