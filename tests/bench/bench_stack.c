/* bench_stack: what stages, overlap, tiles and recomputation cost: forward and backward of one
 * micro-step on the CPU backend, as ratios to the first line of each group. Each rank is a process
 * of one thread. Two times are shown, of rank 0, each the best of the rounds: its processor time,
 * which other load hardly moves, and the time by the clock, which shows waiting for other ranks,
 * and means something only where every rank has a core to itself. Bytes are those of the arenas, so
 * of the whole model, not of what the line changes alone.
 *
 *     bench_stack [TOKENS [RANKS [ROUNDS]]]
 *
 * A CPU is not what this is made for: attention takes a larger part of the time than on a GPU, what
 * is sent is copied by the same cores, and nothing runs beside them. What carries over is the work
 * that a line adds and the memory that it saves.
 *
 * 2048 tokens, 2 ranks, 2 quiet cores of an AMD EPYC (2026-11-29, +-3%), processor time: heads a
 * stage 4, 2, 1: 1, 1.04, 1.05, with overlap 1.02, 1.00, of the arenas 1, 0.95, 0.94; ring against
 * ulysses 1.12; tiles none, 256, 64: 1, 1.11, 1.14, arenas 1, 0.81, 0.76; recompute none, input,
 * input_and_attention, attention with every input, 2nd, 4th: 1, 1.29, 1.12, 1.13, 1.18, 1.13,
 * arenas 1, 0.70, 0.73, 0.73, 0.72, 0.73. */
#include "common/clock.h"
#include "common/mem.h"
#include "common/must.h"
#include "common/rng.h"
#include "worker/model.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { ROUNDS = 3, TOKENS = 2048, RANKS = 2, VOCAB = 256 };

static const struct model_config config = {.family = MODEL_FAMILY_LLAMA,
                                           .vocab_size = VOCAB,
                                           .hidden_size = 256,
                                           .intermediate_size = 704,
                                           .layers = 4,
                                           .heads = 8,
                                           .kv_heads = 4,
                                           .head_dim = 32,
                                           .context_max = 1 << 20,
                                           .rms_norm_eps = 1e-5,
                                           .rope_theta = 10000,
                                           .initializer_range = 0.02};

enum {
    NONE = JOB_recompute_NONE,
    INPUT = JOB_recompute_INPUT,
    BOTH = JOB_recompute_INPUT_AND_ATTENTION,
    O = JOB_recompute_ATTENTION
};
struct run {
    const char *name;
    bool ring;               /* of all ranks, instead of Ulysses */
    int64_t heads_per_stage; /* 0: all of a rank's */
    int recompute;           /* enum job_recompute */
    int64_t keep_input_every, tile;
    bool overlap, anew;
};
struct result {
    double seconds; /* of the processor */
    double clock;   /* seconds */
    int64_t bytes;  /* of the arenas */
};

static double cpu_seconds(void)
{
    struct timespec now;
    must(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now) == 0);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

struct scene {
    struct device *device;
    struct coll *coll;
    struct model_shape shape;
    struct arena arena;
    struct fsdp fsdp;
    struct model model;
    struct batch batch;
};

static int open_scene(struct scene *s, const struct run *run, int rank, int world, int64_t tokens,
                      struct err *err)
{
    char name[48];
    (void)snprintf(name, sizeof name, "/ithaca-bench-%d", (int)getppid());
    struct coll_shm_config shm = {.name = name, .rank = rank, .world = world, .timeout_ms = 600000};
    struct mesh mesh = mesh_make(world, run->ring ? world : 1, run->ring ? 1 : world);
    struct model_options options = {.tokens_max = mesh_seq_make(&mesh, tokens).shard,
                                    .tile_mlp = run->tile,
                                    .tile_loss = run->tile,
                                    .recompute = (enum job_recompute)run->recompute,
                                    .keep_input_every = run->keep_input_every,
                                    .replay_anew = run->anew,
                                    .context = {.mesh = mesh,
                                                .place = mesh_place(&mesh, rank),
                                                .heads_per_stage = run->heads_per_stage,
                                                .overlap = run->overlap}};
    TRY(device_cpu_open(1, &s->device, err));
    TRY(coll_shm_open(&shm, &s->coll, err));
    if (mesh.ulysses > 1)
        TRY(s->coll->ops->split(s->coll, 0, &options.context.ulysses, err));
    if (mesh.ring > 1)
        TRY(s->coll->ops->split(s->coll, 0, &options.context.ring, err));
    TRY(model_shape_build(&config, &s->shape, err));
    arena_init(&s->arena, s->device, NULL);
    TRY(fsdp_init(&s->fsdp, &s->shape, s->device, s->coll, true, err));
    TRY(fsdp_reserve(&s->fsdp, &s->arena, err));
    TRY(model_init(&s->model, &options, &s->fsdp, &s->arena, err));
    TRY(batch_init(&s->batch, &mesh, options.context.place, tokens, &s->arena, err));
    TRY(arena_commit(&s->arena, err));
    TRY(fsdp_clear(&s->fsdp, NULL, err));
    return model_load_constants(&s->model, NULL, err);
}

static int fill(struct scene *s, int64_t tokens, struct err *err)
{
    for (int64_t u = 0; u < s->fsdp.unit_count; u++)
        for (int64_t i = 0; i < s->fsdp.units[u].shard; i++)
            s->fsdp.units[u].master[i] =
                0.05f * rng_normal(1, RNG_STREAM_TEST, (uint64_t)(u << 32 | i));
    int32_t *ids = mem_new((size_t)tokens, sizeof *ids);
    uint8_t *trained = mem_new((size_t)tokens, 1);
    must(ids != NULL && trained != NULL);
    for (int64_t t = 0; t < tokens; t++) {
        ids[t] = (int32_t)(t * 7 % VOCAB);
        trained[t] = 1;
    }
    batch_clear(&s->batch);
    batch_append(&s->batch, ids, trained, tokens);
    mem_free(ids);
    mem_free(trained);
    return batch_upload(&s->batch, s->device, NULL, err);
}

static int play(const struct run *run, int rank, int world, int64_t tokens, int rounds,
                struct result *result, struct err *err)
{
    struct scene s;
    TRY(open_scene(&s, run, rank, world, tokens, err));
    TRY(fill(&s, tokens, err));
    struct result best = {.bytes = arena_bytes(&s.arena, MEM_ARENA_DEVICE)};
    for (int round = 0; round <= rounds; round++) { /* the first warms up */
        TRY(coll_barrier(s.coll, err));
        double start = cpu_seconds(), clock = (double)clock_monotonic_ns() * 1e-9;
        TRY(model_forward(&s.model, &s.batch, true, NULL, err));
        TRY(model_head_train(&s.model, &s.batch, 1.0f / (float)tokens, NULL, err));
        TRY(model_backward(&s.model, &s.batch, NULL, err));
        double seconds = cpu_seconds() - start;
        clock = (double)clock_monotonic_ns() * 1e-9 - clock;
        if (round == 1 || (round > 1 && seconds < best.seconds))
            best.seconds = seconds;
        if (round == 1 || (round > 1 && clock < best.clock))
            best.clock = clock;
    }
    if (rank == 0)
        *result = best;
    return 0;
}

static struct result measure(const struct run *run, int world, int64_t tokens, int rounds)
{
    struct result *shared =
        mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    must(shared != MAP_FAILED);
    (void)fflush(NULL);
    for (int rank = 0; rank < world; rank++)
        if (fork() == 0) {
            struct err err = {0};
            int rc = play(run, rank, world, tokens, rounds, shared, &err);
            if (rc != 0)
                (void)fprintf(stderr, "rank %d: %s\n", rank, err.text);
            _exit(rc != 0);
        }
    for (int rank = 0; rank < world; rank++) {
        int status = 0;
        must(wait(&status) > 0 && status == 0);
    }
    struct result result = *shared;
    must(munmap(shared, sizeof *shared) == 0);
    return result;
}

int main(int argc, char **argv)
{
    int64_t tokens = argc > 1 ? strtoll(argv[1], NULL, 10) : TOKENS;
    int world = argc > 2 ? (int)strtol(argv[2], NULL, 10) : RANKS;
    int rounds = argc > 3 ? (int)strtol(argv[3], NULL, 10) : ROUNDS;
    static const struct run groups[][7] = {
        {{.name = "ulysses: u = H/C, all heads at once", .recompute = INPUT},
         {.name = "upipe: u = 2", .recompute = INPUT, .heads_per_stage = 2},
         {.name = "upipe: u = 2, overlap",
          .recompute = INPUT,
          .heads_per_stage = 2,
          .overlap = true},
         {.name = "upipe: u = 1", .recompute = INPUT, .heads_per_stage = 1},
         {.name = "upipe: u = 1, overlap",
          .recompute = INPUT,
          .heads_per_stage = 1,
          .overlap = true}},
        {{.name = "ulysses", .recompute = NONE}, {.name = "ring", .recompute = NONE, .ring = true}},
        {{.name = "tiling off", .recompute = INPUT},
         {.name = "tiles of 256", .recompute = INPUT, .tile = 256},
         {.name = "tiles of 64", .recompute = INPUT, .tile = 64}},
        {{.name = "recompute none", .recompute = NONE},
         {.name = "recompute input", .recompute = INPUT},
         {.name = "recompute input_and_attention", .recompute = BOTH},
         {.name = "recompute attention, every input", .recompute = O, .keep_input_every = 1},
         {.name = "recompute attention, every 2nd", .recompute = O, .keep_input_every = 2},
         {.name = "recompute attention, every 4th", .recompute = O, .keep_input_every = 4},
         {.name = "the same, replayed anew", .recompute = O, .keep_input_every = 4, .anew = true}}};
    printf(
        "%lld tokens, %d ranks, 4 layers of tiny-llama's size, forward and backward, the best of "
        "%d\n%-36s %20s %20s %20s\n",
        (long long)tokens, world, rounds, "", "processor", "clock", "arenas a rank");
    for (size_t g = 0; g < sizeof groups / sizeof groups[0]; g++) {
        struct result first = {0};
        for (int i = 0; i < 7 && groups[g][i].name != NULL; i++) {
            struct result result = measure(&groups[g][i], world, tokens, rounds);
            first = i == 0 ? result : first;
            printf("%-36s %10.3f s %7.2fx %10.3f s %7.2fx %8.1f MiB %6.2fx\n", groups[g][i].name,
                   result.seconds, result.seconds / first.seconds, result.clock,
                   result.clock / first.clock, (double)result.bytes / 0x1p20,
                   (double)result.bytes / (double)first.bytes);
            (void)fflush(stdout);
        }
        printf("\n");
    }
    return 0;
}
