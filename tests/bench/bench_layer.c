/* bench_layer: forward and backward of one layer of an 8B model (h 4096, 32 heads, 8 K/V heads, d
 * 128, f 14336) on one GPU, as rank 0 of `ranks` that hold S tokens together; the others are
 * rehearsed (worker/coll_rehearse.c): local copies for the network, FSDP's included. Milliseconds
 * are those of LAYERS layers less those of one, divided; the median of rounds.
 *
 *     bench_layer S RANKS KIND RECOMPUTE [ROUNDS [TILE]]
 *         KIND ulysses or a number of heads a stage; RECOMPUTE none, input, input_and_attention,
 *         attention
 *
 * FLOPs: 6 a weight and token and 6 S h a token for causal attention, forward and backward; none
 * for what is recomputed. */
#include "common/clock.h"
#include "common/median.h"
#include "common/mem.h"
#include "common/must.h"
#include "common/rng.h"
#include "worker/device_cuda.h"
#include "worker/model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROUNDS = 5, LAYERS = 3, VOCAB = 1024, TILE = 16384 };

struct run {
    int64_t sequence, tile, heads_per_stage;
    int ranks, rounds;
    enum job_recompute recompute;
};

struct scene {
    struct device *device;
    struct coll *world, *ulysses;
    struct model_shape shape;
    struct arena arena;
    struct fsdp fsdp;
    struct model model;
    struct batch batch;
};

struct figures {
    double forward, backward; /* ms, medians */
    int64_t bytes;            /* in use on the device */
};

static struct model_config config_of(int64_t layers)
{
    return (struct model_config){.family = MODEL_FAMILY_LLAMA,
                                 .vocab_size = VOCAB,
                                 .hidden_size = 4096,
                                 .intermediate_size = 14336,
                                 .layers = layers,
                                 .heads = 32,
                                 .kv_heads = 8,
                                 .head_dim = 128,
                                 .context_max = 1 << 24,
                                 .rms_norm_eps = 1e-5,
                                 .rope_theta = 500000,
                                 .initializer_range = 0.02};
}

static int open_scene(struct scene *s, const struct run *run, int64_t layers, struct err *err)
{
    struct model_config config = config_of(layers);
    struct mesh mesh = mesh_make(run->ranks, 1, run->ranks);
    struct model_options options = {.tokens_max = mesh_seq_make(&mesh, run->sequence).shard,
                                    .tile_mlp = run->tile,
                                    .tile_loss = 4096,
                                    .recompute = run->recompute,
                                    .keep_input_every = 1,
                                    .context = {.mesh = mesh,
                                                .place = mesh_place(&mesh, 0),
                                                .heads_per_stage = run->heads_per_stage}};
    TRY(coll_rehearse_open(s->device, 0, run->ranks, &s->world, err));
    TRY(coll_rehearse_open(s->device, 0, run->ranks, &s->ulysses, err));
    if (run->ranks > 1)
        options.context.ulysses = s->ulysses;
    TRY(model_shape_build(&config, &s->shape, err));
    arena_init(&s->arena, s->device, NULL);
    TRY(fsdp_init(&s->fsdp, &s->shape, s->device, s->world, true, err));
    TRY(fsdp_reserve(&s->fsdp, &s->arena, err));
    TRY(model_init(&s->model, &options, &s->fsdp, &s->arena, err));
    TRY(batch_init(&s->batch, &mesh, options.context.place, run->sequence, &s->arena, err));
    TRY(arena_commit(&s->arena, err));
    TRY(fsdp_clear(&s->fsdp, NULL, err));
    return model_load_constants(&s->model, NULL, err);
}

static void close_scene(struct scene *s)
{
    batch_done(&s->batch);
    model_done(&s->model);
    fsdp_done(&s->fsdp);
    arena_done(&s->arena);
    model_shape_done(&s->shape);
    s->world->ops->close(s->world);
    s->ulysses->ops->close(s->ulysses);
}

/* Weights of a few thousand different values: products take as long as of any others. */
static int fill(struct scene *s, int64_t tokens, struct err *err)
{
    enum { CHUNK = 1 << 16 };
    const struct device_ops *dev = s->device->dev;
    CLEANUP(mem_free_ptr) float *chunk = mem_new(CHUNK, sizeof *chunk);
    CLEANUP(mem_free_ptr) int32_t *ids = mem_new((size_t)tokens, sizeof *ids);
    CLEANUP(mem_free_ptr) uint8_t *trained = mem_new((size_t)tokens, 1);
    must(chunk != NULL && ids != NULL && trained != NULL);
    for (int64_t i = 0; i < CHUNK; i++)
        chunk[i] = 0.02f * rng_normal(1, RNG_STREAM_TEST, (uint64_t)i);
    for (int64_t u = 0; u < s->fsdp.unit_count; u++)
        for (int64_t at = 0; at < s->fsdp.units[u].shard; at += CHUNK) {
            int64_t count = s->fsdp.units[u].shard - at;
            TRY(dev->copy(s->device, NULL, s->fsdp.units[u].master + at, chunk,
                          (size_t)(count < CHUNK ? count : CHUNK) * sizeof *chunk, err));
        }
    for (int64_t t = 0; t < tokens; t++) {
        ids[t] = (int32_t)rng_below(2, RNG_STREAM_TEST, (uint64_t)t, VOCAB);
        trained[t] = 1;
    }
    batch_clear(&s->batch);
    batch_append(&s->batch, ids, trained, tokens);
    TRY(batch_upload(&s->batch, s->device, NULL, err));
    return dev->sync(s->device, NULL, err);
}

static int time_layers(const struct run *run, struct device *device, int64_t layers,
                       struct figures *ret, struct err *err)
{
    struct scene s = {.device = device};
    double *forward = mem_new((size_t)run->rounds, sizeof *forward);
    double *backward = mem_new((size_t)run->rounds, sizeof *backward);
    must(forward != NULL && backward != NULL);
    TRY(open_scene(&s, run, layers, err));
    TRY(fill(&s, run->sequence, err));
    for (int round = -1; round < run->rounds; round++) { /* the first warms up */
        int64_t start = clock_monotonic_ns();
        fsdp_weights_changed(&s.fsdp);
        TRY(model_forward(&s.model, &s.batch, true, NULL, err));
        TRY(device->dev->sync(device, NULL, err));
        int64_t middle = clock_monotonic_ns();
        TRY(model_head_train(&s.model, &s.batch, 1.0f / (float)run->sequence, NULL, err));
        TRY(device->dev->sync(device, NULL, err));
        int64_t head = clock_monotonic_ns();
        TRY(model_backward(&s.model, &s.batch, NULL, err));
        TRY(device->dev->sync(device, NULL, err));
        if (round < 0)
            continue;
        forward[round] = (double)(middle - start) * 1e-6;
        backward[round] = (double)(clock_monotonic_ns() - head) * 1e-6;
    }
    *ret = (struct figures){.forward = median_sort(forward, (size_t)run->rounds),
                            .backward = median_sort(backward, (size_t)run->rounds),
                            .bytes = device->dev->bytes_in_use(device)};
    close_scene(&s);
    mem_free(forward);
    mem_free(backward);
    return 0;
}

static enum job_recompute recompute_of(const char *name)
{
    if (strcmp(name, "input") == 0)
        return JOB_recompute_INPUT;
    if (strcmp(name, "input_and_attention") == 0)
        return JOB_recompute_INPUT_AND_ATTENTION;
    return strcmp(name, "attention") == 0 ? JOB_recompute_ATTENTION : JOB_recompute_NONE;
}

int main(int argc, char **argv)
{
    struct err err = {0};
    struct device *device = NULL;
    struct figures one, many;
    if (argc < 5) {
        (void)fprintf(stderr, "usage: bench_layer S RANKS KIND RECOMPUTE [ROUNDS [TILE]]\n");
        return 64;
    }
    struct run run = {.sequence = strtoll(argv[1], NULL, 10),
                      .ranks = (int)strtol(argv[2], NULL, 10),
                      .heads_per_stage = strtoll(argv[3], NULL, 10), /* "ulysses": 0 */
                      .recompute = recompute_of(argv[4]),
                      .rounds = argc > 5 ? (int)strtol(argv[5], NULL, 10) : ROUNDS,
                      .tile = argc > 6 ? strtoll(argv[6], NULL, 10) : TILE};
    int64_t tokens = run.sequence / run.ranks;
    run.tile = run.tile < tokens ? run.tile : tokens;
    if (device_cuda_open(0, &device, &err) != 0 || time_layers(&run, device, 1, &one, &err) != 0 ||
        time_layers(&run, device, LAYERS, &many, &err) != 0) {
        (void)fprintf(stderr, "bench_layer: %s\n", err.text);
        return err_code_exit(err.code);
    }
    double forward = (many.forward - one.forward) / (LAYERS - 1);
    double backward = (many.backward - one.backward) / (LAYERS - 1);
    double weights = 4096.0 * 128 * (32 + 8 + 8 + 32) + 3.0 * 4096 * 14336;
    double flops = (double)tokens * (6 * weights + 6.0 * (double)run.sequence * 4096);
    double seconds = (forward + backward) * 1e-3;
    printf(
        "S %lld, rank 0 of %d, %s heads a stage, recompute %s: forward %.1f ms, backward %.1f ms "
        "a layer; %.0f TF/s; 32 layers: %.0f tokens/s a GPU; %.1f GiB with %d layers\n",
        (long long)run.sequence, run.ranks, argv[3], argv[4], forward, backward,
        flops / seconds * 1e-12, (double)tokens / (32 * seconds), (double)many.bytes / 0x1p30,
        LAYERS);
    device->dev->close(device);
    return 0;
}
