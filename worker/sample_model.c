/* sample_model: see sample_model.h. The device's operations do everything but attention, whose
 * queries here are fewer than its keys: a plain loop over the cache. */
#include "worker/sample_model.h"

#include "common/cores.h"
#include "common/mem.h"
#include "common/model_shape.h"
#include "common/must.h"
#include "common/safetensors.h"
#include "worker/linear.h"
#include "worker/ops.h"
#include "worker/weights.h"

#include <math.h>
#include <stdlib.h>

enum { SAMPLE_THREADS_MAX = 1024 };

struct sample_model {
    struct device *device;
    struct model_shape shape;
    float **weights; /* (row_count) one block a tensor, in the shape's order */
    int64_t tokens_max;
    int64_t seen;       /* tokens in the cache */
    float *keys;        /* (L, tokens_max, K*d) after RoPE */
    float *values;      /* (L, tokens_max, K*d) */
    float *inv_freq;    /* (d/2) */
    int32_t *positions; /* (tokens_max) 0, 1, ... */
    float *x, *norm;    /* (tokens_max, h) residual stream; a norm's output */
    float *q, *o;       /* (tokens_max, H*d) */
    float *gate, *up;   /* (tokens_max, f) */
    float *scores;      /* (tokens_max) of one query */
    float *logits;      /* (V) */
};

static void sample_close(struct safetensors **st)
{
    safetensors_free(*st);
}

static int sample_model_take(float **ret, int64_t elements, struct err *err)
{
    *ret = mem_aligned(64, (size_t)elements * sizeof(float));
    return *ret != NULL ? 0 : mem_fail(err, (size_t)elements * sizeof(float), "a tensor");
}

static int sample_model_buffers(struct sample_model *model, struct err *err)
{
    const struct model_config *c = &model->shape.config;
    int64_t tokens = model->tokens_max;
    int64_t q = tokens * c->heads * c->head_dim, kv = tokens * c->kv_heads * c->head_dim;
    TRY(sample_model_take(&model->keys, c->layers * kv, err));
    TRY(sample_model_take(&model->values, c->layers * kv, err));
    TRY(sample_model_take(&model->inv_freq, c->head_dim / 2, err));
    TRY(sample_model_take(&model->x, tokens * c->hidden_size, err));
    TRY(sample_model_take(&model->norm, tokens * c->hidden_size, err));
    TRY(sample_model_take(&model->q, q, err));
    TRY(sample_model_take(&model->o, q, err));
    TRY(sample_model_take(&model->gate, tokens * c->intermediate_size, err));
    TRY(sample_model_take(&model->up, tokens * c->intermediate_size, err));
    TRY(sample_model_take(&model->scores, tokens, err));
    TRY(sample_model_take(&model->logits, c->vocab_size, err));
    model->positions = mem_new((size_t)tokens, sizeof *model->positions);
    if (model->positions == NULL)
        return mem_fail(err, (size_t)tokens * sizeof *model->positions, "positions");
    for (int64_t t = 0; t < tokens; t++)
        model->positions[t] = (int32_t)t;
    model_config_inv_freq(c, tokens, model->inv_freq);
    return 0;
}

static int sample_model_load(struct sample_model *model, const char *model_dir, struct err *err)
{
    CLEANUP(sample_close) struct safetensors *st = NULL;
    TRY(safetensors_open_dir(model_dir, &st, err));
    TRY(weights_check(&model->shape, st, model_dir, err));
    TRY(weights_check_tied(&model->shape, st, model_dir, err));
    model->weights = mem_new((size_t)model->shape.row_count, sizeof *model->weights);
    if (model->weights == NULL)
        return mem_fail(err, (size_t)model->shape.row_count * sizeof(float *), "tensors");
    for (int64_t i = 0; i < model->shape.row_count; i++) {
        const struct model_shape_row *row = &model->shape.rows[i];
        TRY(sample_model_take(&model->weights[i], row->elements, err));
        TRY(safetensors_read_f32(st, safetensors_find(st, row->name), 0, row->elements,
                                 model->weights[i], err));
    }
    return 0;
}

/* As many as whoever started us allows; else one a core. */
static int sample_threads(void)
{
    const char *allowed = getenv("OMP_NUM_THREADS");
    long threads = allowed != NULL ? strtol(allowed, NULL, 10) : 0;
    if (threads < 1)
        threads = cores_allowed();
    return threads > SAMPLE_THREADS_MAX ? SAMPLE_THREADS_MAX : (int)threads;
}

int sample_model_new(const char *model_dir, const struct model_config *config, int64_t tokens_max,
                     struct sample_model **ret, struct err *err)
{
    must(tokens_max > 0);
    struct sample_model *model = mem_new(1, sizeof *model);
    if (model == NULL)
        return mem_fail(err, sizeof *model, "a model");
    model->tokens_max = tokens_max;
    int rc = device_cpu_open(sample_threads(), &model->device, err);
    if (rc == 0)
        rc = model_shape_build(config, &model->shape, err);
    if (rc == 0)
        rc = sample_model_buffers(model, err);
    if (rc == 0)
        rc = sample_model_load(model, model_dir, err);
    if (rc != 0) {
        sample_model_free(model);
        return rc;
    }
    *ret = model;
    return 0;
}

void sample_model_free(struct sample_model *model)
{
    if (model == NULL)
        return;
    for (int64_t i = 0; model->weights != NULL && i < model->shape.row_count; i++)
        mem_free(model->weights[i]);
    float *blocks[] = {model->keys, model->values, model->inv_freq, model->x,
                       model->norm, model->q,      model->o,        model->gate,
                       model->up,   model->scores, model->logits};
    for (size_t i = 0; i < sizeof blocks / sizeof blocks[0]; i++)
        mem_free(blocks[i]);
    mem_free(model->positions);
    mem_free(model->weights);
    model_shape_done(&model->shape);
    if (model->device != NULL)
        model->device->dev->close(model->device);
    mem_free(model);
}

static const float *sample_weight(const struct sample_model *model, enum model_tensor kind,
                                  int64_t layer)
{
    const struct model_shape_row *row = model_shape_find(&model->shape, kind, layer);
    return row == NULL ? NULL : model->weights[row->index];
}

static int sample_linear(struct sample_model *model, enum model_tensor kind, enum model_tensor bias,
                         int64_t layer, int64_t rows, const float *x, float *y, struct err *err)
{
    const struct model_shape_row *row = model_shape_find(&model->shape, kind, layer);
    struct linear linear = {.device = model->device,
                            .rows = rows,
                            .n = row->rows,
                            .k = row->cols,
                            .weight = model->weights[row->index],
                            .bias = bias == MODEL_TENSOR_COUNT ? NULL
                                                               : sample_weight(model, bias, layer)};
    return linear_forward(&linear, x, y, false, err);
}

static int sample_norm(struct sample_model *model, const float *weight, int64_t rows, int64_t width,
                       const float *x, float *y, struct err *err)
{
    struct ops_rmsnorm norm = {.rows = rows,
                               .width = width,
                               .eps = (float)model->shape.config.rms_norm_eps,
                               .x = x,
                               .weight = weight,
                               .y = y};
    return model->device->ops->rmsnorm(model->device, NULL, &norm, err);
}

/* Norm over heads where the model has it, then RoPE, in place. */
static int sample_head_input(struct sample_model *model, enum model_tensor norm, int64_t layer,
                             int64_t heads, int64_t rows, float *x, struct err *err)
{
    int64_t d = model->shape.config.head_dim;
    const float *weight = sample_weight(model, norm, layer);
    if (weight != NULL)
        TRY(sample_norm(model, weight, rows * heads, d, x, x, err));
    struct ops_rope rope = {.heads = heads,
                            .tokens = rows,
                            .head_dim = d,
                            .head_stride = d,
                            .token_stride = heads * d,
                            .x = x,
                            .positions = model->positions + model->seen,
                            .inv_freq = model->inv_freq,
                            .scale = model_rope_scale(&model->shape.config.rope)};
    return model->device->ops->rope(model->device, NULL, &rope, err);
}

/* One query of one head over keys 0 .. keys-1. */
static void sample_attend(const float *q, const float *k, const float *v, int64_t keys,
                          int64_t stride, int64_t d, float *scores, float *o)
{
    float scale = (float)(1.0 / sqrt((double)d)), highest = -INFINITY, sum = 0;
    for (int64_t t = 0; t < keys; t++) {
        float dot = 0;
        for (int64_t i = 0; i < d; i++)
            dot += q[i] * k[t * stride + i];
        scores[t] = dot * scale;
        highest = scores[t] > highest ? scores[t] : highest;
    }
    for (int64_t i = 0; i < d; i++)
        o[i] = 0;
    for (int64_t t = 0; t < keys; t++) {
        float p = expf(scores[t] - highest);
        sum += p;
        for (int64_t i = 0; i < d; i++)
            o[i] += p * v[t * stride + i];
    }
    for (int64_t i = 0; i < d; i++)
        o[i] /= sum;
}

static int sample_attention(struct sample_model *model, int64_t layer, int64_t rows,
                            struct err *err)
{
    const struct model_config *c = &model->shape.config;
    int64_t d = c->head_dim, q_row = c->heads * d, kv_row = c->kv_heads * d;
    float *keys = model->keys + layer * model->tokens_max * kv_row;
    float *values = model->values + layer * model->tokens_max * kv_row;
    float *k = keys + model->seen * kv_row, *v = values + model->seen * kv_row;
    TRY(sample_linear(model, MODEL_TENSOR_Q, MODEL_TENSOR_Q_BIAS, layer, rows, model->norm,
                      model->q, err));
    TRY(sample_linear(model, MODEL_TENSOR_K, MODEL_TENSOR_K_BIAS, layer, rows, model->norm, k,
                      err));
    TRY(sample_linear(model, MODEL_TENSOR_V, MODEL_TENSOR_V_BIAS, layer, rows, model->norm, v,
                      err));
    TRY(sample_head_input(model, MODEL_TENSOR_Q_NORM, layer, c->heads, rows, model->q, err));
    TRY(sample_head_input(model, MODEL_TENSOR_K_NORM, layer, c->kv_heads, rows, k, err));
    for (int64_t t = 0; t < rows; t++)
        for (int64_t head = 0; head < c->heads; head++) {
            int64_t kv_at = head / (c->heads / c->kv_heads) * d, q_at = t * q_row + head * d;
            sample_attend(model->q + q_at, keys + kv_at, values + kv_at, model->seen + t + 1,
                          kv_row, d, model->scores, model->o + q_at);
        }
    return sample_linear(model, MODEL_TENSOR_O, MODEL_TENSOR_O_BIAS, layer, rows, model->o,
                         model->norm, err);
}

static int sample_add(struct sample_model *model, int64_t rows, struct err *err)
{
    struct ops_add add = {.count = rows * model->shape.config.hidden_size,
                          .a = model->x,
                          .b = model->norm,
                          .out = model->x};
    return model->device->ops->add(model->device, NULL, &add, err);
}

static int sample_layer(struct sample_model *model, int64_t layer, int64_t rows, struct err *err)
{
    const struct model_config *c = &model->shape.config;
    TRY(sample_norm(model, sample_weight(model, MODEL_TENSOR_LN1, layer), rows, c->hidden_size,
                    model->x, model->norm, err));
    TRY(sample_attention(model, layer, rows, err));
    TRY(sample_add(model, rows, err));
    TRY(sample_norm(model, sample_weight(model, MODEL_TENSOR_LN2, layer), rows, c->hidden_size,
                    model->x, model->norm, err));
    TRY(sample_linear(model, MODEL_TENSOR_GATE, MODEL_TENSOR_COUNT, layer, rows, model->norm,
                      model->gate, err));
    TRY(sample_linear(model, MODEL_TENSOR_UP, MODEL_TENSOR_COUNT, layer, rows, model->norm,
                      model->up, err));
    struct ops_swiglu swiglu = {.count = rows * c->intermediate_size,
                                .gate = model->gate,
                                .up = model->up,
                                .out = model->up};
    TRY(model->device->ops->swiglu(model->device, NULL, &swiglu, err));
    TRY(sample_linear(model, MODEL_TENSOR_DOWN, MODEL_TENSOR_COUNT, layer, rows, model->up,
                      model->norm, err));
    return sample_add(model, rows, err);
}

int sample_model_next(struct sample_model *model, const int32_t *ids, int64_t count,
                      int32_t *ret_next, struct err *err)
{
    const struct model_config *c = &model->shape.config;
    must(count >= 1 && model->seen + count <= model->tokens_max);
    struct ops_embed embed = {.tokens = count,
                              .vocab = c->vocab_size,
                              .width = c->hidden_size,
                              .ids = ids,
                              .table = sample_weight(model, MODEL_TENSOR_EMBED, -1),
                              .out = model->x};
    TRY(model->device->ops->embed(model->device, NULL, &embed, err));
    for (int64_t layer = 0; layer < c->layers; layer++)
        TRY(sample_layer(model, layer, count, err));
    model->seen += count;
    TRY(sample_norm(model, sample_weight(model, MODEL_TENSOR_LNF, -1), 1, c->hidden_size,
                    model->x + (count - 1) * c->hidden_size, model->norm, err));
    TRY(sample_linear(model, c->tie_embeddings ? MODEL_TENSOR_EMBED : MODEL_TENSOR_HEAD,
                      MODEL_TENSOR_COUNT, -1, 1, model->norm, model->logits, err));
    int32_t best = 0;
    for (int64_t i = 1; i < c->vocab_size; i++)
        if (model->logits[i] > model->logits[best])
            best = (int32_t)i;
    *ret_next = best;
    return 0;
}

const float *sample_model_logits(const struct sample_model *model)
{
    return model->logits;
}
