/* model_scene: a small model on the CPU backend, alone, with or without adapters: its loss and
 * gradients over one batch, and derivatives by finite differences. A program includes it once.
 *
 * fp32 resolves a directional derivative to about 1e-4: the loss is summed in fp64, weights are
 * large (not an initialisation's), the step is four hundredths of the weights' size at most, and
 * the central differences of three steps are extrapolated (Romberg): of two, one in twenty random
 * models was off by more than the bound. Directions: the gradient itself (its whole length must
 * come back) and two random ones. */
#pragma once
#include "common/mem.h"
#include "common/rng.h"
#include "tests/lib/cmocka.h"
#include "tests/lib/testing.h"
#include "worker/model.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { TOKENS = 40, SCALE_TOKENS = 16 };

#define CHECK(call)                               \
    do {                                          \
        struct err check_err_ = {0};              \
        struct err *err = &check_err_;            \
        if ((call) != 0)                          \
            fail_msg("%s: %s", #call, err->text); \
    } while (0)

struct scene {
    struct device *device;
    struct coll *coll;
    struct model_shape shape;
    struct arena arena;
    struct fsdp fsdp;
    struct lora lora;     /* where it was opened with a spec that has adapters */
    struct fsdp *trained; /* one of the two */
    struct model model;
    struct batch batch;
};

static const struct model_config llama = {.family = MODEL_FAMILY_LLAMA,
                                          .vocab_size = 37,
                                          .hidden_size = 24,
                                          .intermediate_size = 40,
                                          .layers = 2,
                                          .heads = 4,
                                          .kv_heads = 2,
                                          .head_dim = 6,
                                          .context_max = 64,
                                          .rms_norm_eps = 1e-5,
                                          .rope_theta = 10000,
                                          .initializer_range = 0.02,
                                          .tie_embeddings = true};

static inline struct model_config config_of(const char *name)
{
    struct model_config config = llama;
    if (strcmp(name, "untied") == 0)
        config.tie_embeddings = false;
    if (strcmp(name, "biases and yarn") == 0) {
        config.qkv_bias = config.o_bias = true;
        config.rope = (struct model_rope){.kind = MODEL_ROPE_YARN,
                                          .factor = 4,
                                          .original_context = 32,
                                          .beta_fast = 4,
                                          .beta_slow = 1,
                                          .attention_factor = 1.3};
    }
    if (strcmp(name, "qwen2") == 0) {
        config.family = MODEL_FAMILY_QWEN2;
        config.qkv_bias = true;
        config.kv_heads = 4;
    }
    if (strcmp(name, "qwen3") == 0) {
        config.family = MODEL_FAMILY_QWEN3;
        config.qk_norm = true;
        config.head_dim = 10; /* not hidden / heads */
    }
    return config;
}

/* Three documents, one of a single token; half the tokens are trained. */
static inline void fill_batch(struct batch *batch)
{
    static const int64_t lengths[] = {17, 1, 22};
    int32_t *ids = testing_below(TOKENS, llama.vocab_size);
    int32_t *flags = testing_below(TOKENS, 2);
    uint8_t trained[TOKENS];
    for (int t = 0; t < TOKENS; t++)
        trained[t] = (uint8_t)(flags[t] != 0 || t == 5);
    batch_clear(batch);
    int64_t at = 0;
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; at += lengths[i], i++)
        batch_append(batch, ids + at, trained + at, lengths[i]);
    assert_int_equal(at, TOKENS);
}

/* spec: NULL, or one with adapters. */
static inline void open_scene_lora(struct scene *scene, const struct model_config *config,
                                   const struct model_options *options, const struct job_spec *spec)
{
    memset(scene, 0, sizeof *scene);
    char name[64];
    (void)snprintf(name, sizeof name, "/ithaca-test-grad-%d", (int)getpid());
    struct coll_shm_config shm = {.name = name, .rank = 0, .world = 1, .timeout_ms = 1000};
    CHECK(device_cpu_open(1, &scene->device, err));
    CHECK(coll_shm_open(&shm, &scene->coll, err));
    CHECK(model_shape_build(config, &scene->shape, err));
    arena_init(&scene->arena, scene->device, NULL);
    CHECK(fsdp_init(&scene->fsdp, &scene->shape, scene->device, scene->coll, true, err));
    struct model_options alone = *options;
    scene->trained = &scene->fsdp;
    if (spec != NULL) {
        scene->fsdp.kind = FSDP_FROZEN;
        CHECK(lora_init(&scene->lora, &scene->shape, spec, scene->device, scene->coll, err));
        scene->trained = &scene->lora.fsdp;
        alone.lora = &scene->lora;
    }
    CHECK(fsdp_reserve(&scene->fsdp, &scene->arena, err));
    alone.context.mesh = mesh_make(1, 1, 1);
    CHECK(model_init(&scene->model, &alone, &scene->fsdp, &scene->arena, err));
    CHECK(batch_init(&scene->batch, &alone.context.mesh, alone.context.place, TOKENS, &scene->arena,
                     err));
    if (spec != NULL && spec->lora_dropout > 0)
        CHECK(batch_want_numbers(&scene->batch, &scene->arena, err));
    CHECK(arena_commit(&scene->arena, err));
    CHECK(fsdp_clear(&scene->fsdp, NULL, err));
    if (spec != NULL)
        CHECK(fsdp_clear(&scene->lora.fsdp, NULL, err));
    CHECK(model_load_constants(&scene->model, NULL, err));
}

static inline void open_scene(struct scene *scene, const struct model_config *config,
                              const struct model_options *options)
{
    open_scene_lora(scene, config, options, NULL);
}

static inline void close_scene(struct scene *scene)
{
    batch_done(&scene->batch);
    model_done(&scene->model);
    lora_done(&scene->lora);
    fsdp_done(&scene->fsdp);
    arena_done(&scene->arena);
    model_shape_done(&scene->shape);
    scene->coll->ops->close(scene->coll);
    scene->device->dev->close(scene->device);
}

/* Of a row of the table of what is trained. */
static inline float *weights_of(struct scene *scene, const struct model_shape_row *row)
{
    return scene->trained->units[row->unit].master + row->offset;
}

static inline float *grad_of(struct scene *scene, const struct model_shape_row *row)
{
    return scene->trained->units[row->unit].grad + row->offset;
}

static inline void random_fill(struct fsdp *fsdp, uint64_t stream, float gain)
{
    for (int64_t i = 0; i < fsdp->shape->row_count; i++) {
        const struct model_shape_row *row = &fsdp->shape->rows[i];
        const struct fsdp_unit *unit = &fsdp->units[row->unit];
        float *w = fsdp->kind == FSDP_FROZEN ? unit->frozen : unit->master; /* fp32 both */
        for (int64_t j = 0; j < row->elements; j++) {
            float normal =
                rng_normal(testing_seed(), RNG_STREAM_TEST + stream + row->index, (uint64_t)j);
            float size = row->dims == 2 ? gain / sqrtf((float)row->cols) : 0.3f * gain;
            bool is_norm = row->dims == 1 && strstr(row->name, "norm") != NULL;
            w[row->offset + j] = (is_norm ? 1.0f : 0.0f) + size * normal;
        }
    }
}

static inline void random_weights(struct scene *scene, float gain)
{
    random_fill(&scene->fsdp, 1000, gain);
    if (scene->trained != &scene->fsdp)
        random_fill(&scene->lora.fsdp, 2000, gain);
}

static inline double loss_of(struct scene *scene)
{
    double sum = 0;
    int64_t correct = 0;
    CHECK(batch_upload(&scene->batch, scene->device, NULL, err));
    CHECK(model_totals_zero(&scene->model, NULL, err));
    CHECK(model_forward(&scene->model, &scene->batch, true, NULL, err));
    CHECK(model_head_evaluate(&scene->model, &scene->batch, NULL, err));
    CHECK(model_totals(&scene->model, NULL, &sum, &correct, err));
    return sum / SCALE_TOKENS;
}

static inline double gradient_of(struct scene *scene)
{
    double sum = 0;
    int64_t correct = 0;
    CHECK(batch_upload(&scene->batch, scene->device, NULL, err));
    CHECK(model_totals_zero(&scene->model, NULL, err));
    CHECK(fsdp_grad_zero(scene->trained, NULL, err));
    CHECK(model_forward(&scene->model, &scene->batch, true, NULL, err));
    CHECK(model_head_train(&scene->model, &scene->batch, 1.0f / SCALE_TOKENS, NULL, err));
    CHECK(model_backward(&scene->model, &scene->batch, NULL, err));
    CHECK(model_totals(&scene->model, NULL, &sum, &correct, err));
    return sum / SCALE_TOKENS;
}

static inline double loss_at(struct scene *scene, const struct model_shape_row *row,
                             const float *kept, const double *direction, double step)
{
    float *w = weights_of(scene, row);
    for (int64_t j = 0; j < row->elements; j++)
        w[j] = (float)((double)kept[j] + step * direction[j]);
    double loss = loss_of(scene);
    memcpy(w, kept, (size_t)row->elements * sizeof *w);
    return loss;
}

/* Derivative along a unit direction: central differences at h, h/2 and h/4, extrapolated. */
static inline double derivative(struct scene *scene, const struct model_shape_row *row,
                                const float *kept, const double *direction, double h)
{
    double slope[3];
    for (int i = 0; i < 3; i++, h /= 2)
        slope[i] =
            (loss_at(scene, row, kept, direction, h) - loss_at(scene, row, kept, direction, -h)) /
            (2 * h);
    double wide = (4 * slope[1] - slope[0]) / 3, narrow = (4 * slope[2] - slope[1]) / 3;
    return (16 * narrow - wide) / 15;
}

static inline void normalize(double *direction, int64_t count)
{
    double sum = 0;
    for (int64_t j = 0; j < count; j++)
        sum += direction[j] * direction[j];
    for (int64_t j = 0; j < count && sum > 0; j++)
        direction[j] /= sqrt(sum);
}

static inline void check_tensor(struct scene *scene, const struct model_shape_row *row,
                                const float *grad)
{
    float *kept = testing_copy(weights_of(scene, row), row->elements);
    double *direction = testing_zeros(row->elements);
    double size = 0, weight_size = 0;
    for (int64_t j = 0; j < row->elements; j++) {
        size += (double)grad[j] * (double)grad[j];
        weight_size += (double)kept[j] * (double)kept[j];
    }
    size = sqrt(size);
    assert_true(size > 0);
    double h = fmin(0.04 * sqrt(weight_size), 0.05 / size); /* the loss moves by 0.05 at most */
    for (int trial = 0; trial < 3; trial++) {
        float *random = testing_normal(row->elements);
        for (int64_t j = 0; j < row->elements; j++)
            direction[j] = trial == 0 ? (double)grad[j] : (double)random[j];
        normalize(direction, row->elements);
        double want = 0;
        for (int64_t j = 0; j < row->elements; j++)
            want += direction[j] * (double)grad[j];
        double got = derivative(scene, row, kept, direction, h);
        if (!(fabs(got - want) <= 2e-3 * size))
            fail_msg("%s, direction %d: derivative %.7g, gradient says %.7g (length %.7g); "
                     "ITHACA_TEST_SEED=%" PRIu64,
                     row->name, trial, got, want, size, testing_seed());
    }
}

/* The documents of another batch. */
static inline void copy_batch(struct batch *to, const struct batch *from)
{
    batch_clear(to);
    for (int64_t d = 0; d < from->documents; d++) {
        int64_t row = from->doc_rows[d], count = from->doc_rows[d + 1] - row;
        uint8_t trained[TOKENS] = {0};
        for (int64_t t = 1; t < count; t++)
            trained[t] = from->host_targets[row + t - 1] >= 0;
        batch_append(to, from->host_ids + row, trained, count);
    }
    assert_int_equal(to->trained, from->trained);
}
