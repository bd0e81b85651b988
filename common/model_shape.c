/* model_shape: one table row for each kind of tensor says where it stands, its extents, its name
 * and when it exists; model_shape_build() walks it once for each place. The order of rows is the
 * order of enum model_tensor, within every layer the same, so that a tensor is found by arithmetic.
 */
#include "common/model_shape.h"

#include "common/mem.h"
#include "common/must.h"
#include "common/rng.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum model_place { PLACE_FRONT, PLACE_LAYER, PLACE_BACK };
enum model_extent { EXTENT_NONE, EXTENT_V, EXTENT_H, EXTENT_Q, EXTENT_KV, EXTENT_D, EXTENT_F };
enum model_need { NEED_ALWAYS, NEED_BIAS, NEED_O_BIAS, NEED_QK_NORM, NEED_UNTIED };
enum model_init { INIT_NORMAL, INIT_EMBED, INIT_RESIDUAL, INIT_ONE, INIT_ZERO };

struct model_shape_kind {
    const char *name; /* in a layer below "model.layers.N." */
    enum model_place place;
    enum model_extent rows;
    enum model_extent cols; /* EXTENT_NONE: a vector */
    enum model_need need;
    enum model_init init;
};

static const struct model_shape_kind model_shape_kinds[MODEL_TENSOR_COUNT] = {
    [MODEL_TENSOR_EMBED] = {.name = "model.embed_tokens.weight",
                            .place = PLACE_FRONT,
                            .rows = EXTENT_V,
                            .cols = EXTENT_H,
                            .init = INIT_EMBED},
    [MODEL_TENSOR_LN1] = {.name = "input_layernorm.weight",
                          .place = PLACE_LAYER,
                          .rows = EXTENT_H,
                          .init = INIT_ONE},
    [MODEL_TENSOR_Q] = {.name = "self_attn.q_proj.weight",
                        .place = PLACE_LAYER,
                        .rows = EXTENT_Q,
                        .cols = EXTENT_H},
    [MODEL_TENSOR_K] = {.name = "self_attn.k_proj.weight",
                        .place = PLACE_LAYER,
                        .rows = EXTENT_KV,
                        .cols = EXTENT_H},
    [MODEL_TENSOR_V] = {.name = "self_attn.v_proj.weight",
                        .place = PLACE_LAYER,
                        .rows = EXTENT_KV,
                        .cols = EXTENT_H},
    [MODEL_TENSOR_Q_BIAS] = {.name = "self_attn.q_proj.bias",
                             .place = PLACE_LAYER,
                             .rows = EXTENT_Q,
                             .need = NEED_BIAS,
                             .init = INIT_ZERO},
    [MODEL_TENSOR_K_BIAS] = {.name = "self_attn.k_proj.bias",
                             .place = PLACE_LAYER,
                             .rows = EXTENT_KV,
                             .need = NEED_BIAS,
                             .init = INIT_ZERO},
    [MODEL_TENSOR_V_BIAS] = {.name = "self_attn.v_proj.bias",
                             .place = PLACE_LAYER,
                             .rows = EXTENT_KV,
                             .need = NEED_BIAS,
                             .init = INIT_ZERO},
    [MODEL_TENSOR_Q_NORM] = {.name = "self_attn.q_norm.weight",
                             .place = PLACE_LAYER,
                             .rows = EXTENT_D,
                             .need = NEED_QK_NORM,
                             .init = INIT_ONE},
    [MODEL_TENSOR_K_NORM] = {.name = "self_attn.k_norm.weight",
                             .place = PLACE_LAYER,
                             .rows = EXTENT_D,
                             .need = NEED_QK_NORM,
                             .init = INIT_ONE},
    [MODEL_TENSOR_O] = {.name = "self_attn.o_proj.weight",
                        .place = PLACE_LAYER,
                        .rows = EXTENT_H,
                        .cols = EXTENT_Q,
                        .init = INIT_RESIDUAL},
    [MODEL_TENSOR_O_BIAS] = {.name = "self_attn.o_proj.bias",
                             .place = PLACE_LAYER,
                             .rows = EXTENT_H,
                             .need = NEED_O_BIAS,
                             .init = INIT_ZERO},
    [MODEL_TENSOR_LN2] = {.name = "post_attention_layernorm.weight",
                          .place = PLACE_LAYER,
                          .rows = EXTENT_H,
                          .init = INIT_ONE},
    [MODEL_TENSOR_GATE] = {.name = "mlp.gate_proj.weight",
                           .place = PLACE_LAYER,
                           .rows = EXTENT_F,
                           .cols = EXTENT_H},
    [MODEL_TENSOR_UP] = {.name = "mlp.up_proj.weight",
                         .place = PLACE_LAYER,
                         .rows = EXTENT_F,
                         .cols = EXTENT_H},
    [MODEL_TENSOR_DOWN] = {.name = "mlp.down_proj.weight",
                           .place = PLACE_LAYER,
                           .rows = EXTENT_H,
                           .cols = EXTENT_F,
                           .init = INIT_RESIDUAL},
    [MODEL_TENSOR_LNF] = {.name = "model.norm.weight",
                          .place = PLACE_BACK,
                          .rows = EXTENT_H,
                          .init = INIT_ONE},
    [MODEL_TENSOR_HEAD] = {.name = "lm_head.weight",
                           .place = PLACE_BACK,
                           .rows = EXTENT_V,
                           .cols = EXTENT_H,
                           .need = NEED_UNTIED},
};

static int64_t model_shape_extent(const struct model_config *config, enum model_extent extent)
{
    switch (extent) {
    case EXTENT_NONE:
        return 1;
    case EXTENT_V:
        return config->vocab_size;
    case EXTENT_H:
        return config->hidden_size;
    case EXTENT_Q:
        return config->heads * config->head_dim;
    case EXTENT_KV:
        return config->kv_heads * config->head_dim;
    case EXTENT_D:
        return config->head_dim;
    case EXTENT_F:
        break;
    }
    must(extent == EXTENT_F);
    return config->intermediate_size;
}

static bool model_shape_needs(const struct model_config *config, enum model_need need)
{
    return need == NEED_ALWAYS || (need == NEED_BIAS && config->qkv_bias) ||
           (need == NEED_O_BIAS && config->o_bias) || (need == NEED_QK_NORM && config->qk_norm) ||
           (need == NEED_UNTIED && !config->tie_embeddings);
}

/* Appends the rows of one place, or only counts them when the shape has no rows yet. */
static int64_t model_shape_place(struct model_shape *shape, enum model_place place, int32_t layer,
                                 int64_t unit)
{
    int64_t count = 0;
    for (int kind = 0; kind < MODEL_TENSOR_COUNT; kind++) {
        const struct model_shape_kind *from = &model_shape_kinds[kind];
        if (from->place != place || !model_shape_needs(&shape->config, from->need))
            continue;
        count++;
        if (shape->rows == NULL)
            continue;
        struct model_shape_row *row = &shape->rows[shape->row_count];
        *row = (struct model_shape_row){
            .kind = (enum model_tensor)kind,
            .layer = layer,
            .unit = (int32_t)unit,
            .rows = model_shape_extent(&shape->config, from->rows),
            .cols = model_shape_extent(&shape->config, from->cols),
            .dims = from->cols == EXTENT_NONE ? 1 : 2,
            .offset = shape->unit_elements[unit],
            .index = (uint64_t)shape->row_count,
        };
        int length = layer < 0 ? snprintf(row->name, sizeof row->name, "%s", from->name)
                               : snprintf(row->name, sizeof row->name, "model.layers.%d.%s", layer,
                                          from->name);
        must(length > 0 && length < MODEL_SHAPE_NAME_BYTES);
        row->elements = row->rows * row->cols;
        const int64_t align = MODEL_SHAPE_ALIGN, end = row->offset + row->elements;
        bool joined = kind == MODEL_TENSOR_Q || kind == MODEL_TENSOR_K; /* to the next */
        shape->unit_elements[unit] = joined ? end : (end + align - 1) / align * align;
        shape->parameters += row->elements;
        shape->row_count++;
    }
    return count;
}

int model_shape_build(const struct model_config *config, struct model_shape *ret_shape,
                      struct err *err)
{
    must(config->layers > 0);
    struct model_shape shape = {.config = *config, .unit_count = config->layers + 2};
    int64_t count = model_shape_place(&shape, PLACE_FRONT, -1, 0) +
                    model_shape_place(&shape, PLACE_LAYER, 0, 1) * config->layers +
                    model_shape_place(&shape, PLACE_BACK, -1, 0);
    shape.rows = mem_new((size_t)count, sizeof *shape.rows);
    shape.unit_elements = mem_new((size_t)shape.unit_count, sizeof *shape.unit_elements);
    if (shape.rows == NULL || shape.unit_elements == NULL) {
        model_shape_done(&shape);
        return mem_fail(err, (size_t)count * sizeof *shape.rows, "the table of tensors");
    }
    model_shape_place(&shape, PLACE_FRONT, -1, 0);
    for (int64_t layer = 0; layer < config->layers; layer++)
        model_shape_place(&shape, PLACE_LAYER, (int32_t)layer, layer + 1);
    model_shape_place(&shape, PLACE_BACK, -1, config->layers + 1);
    must(shape.row_count == count);
    *ret_shape = shape;
    return 0;
}

void model_shape_done(struct model_shape *shape)
{
    mem_free(shape->rows);
    mem_free(shape->unit_elements);
    *shape = (struct model_shape){0};
}

const struct model_shape_row *model_shape_find(const struct model_shape *shape,
                                               enum model_tensor kind, int64_t layer)
{
    must(kind >= 0 && kind < MODEL_TENSOR_COUNT);
    enum model_place place = model_shape_kinds[kind].place;
    must((place == PLACE_LAYER) == (layer >= 0) && layer < shape->config.layers);
    int64_t back = shape->config.tie_embeddings ? 1 : 2; /* rows after the layers */
    int64_t in_layer = (shape->row_count - 1 - back) / shape->config.layers;
    int64_t first = place == PLACE_FRONT   ? 0
                    : place == PLACE_LAYER ? 1 + layer * in_layer
                                           : shape->row_count - back;
    for (int64_t i = first; i < shape->row_count && shape->rows[i].layer == layer; i++)
        if (shape->rows[i].kind == kind)
            return &shape->rows[i];
    return NULL;
}

const struct model_shape_row *model_shape_by_name(const struct model_shape *shape, const char *name)
{
    for (int64_t i = 0; i < shape->row_count; i++)
        if (strcmp(shape->rows[i].name, name) == 0)
            return &shape->rows[i];
    return NULL;
}

float model_shape_init(const struct model_shape *shape, const struct model_shape_row *row,
                       int64_t i, uint64_t seed)
{
    must(i >= 0 && i < row->elements);
    enum model_init init = model_shape_kinds[row->kind].init;
    if (init == INIT_ONE || init == INIT_ZERO)
        return init == INIT_ONE ? 1.0f : 0.0f;
    double std = shape->config.initializer_range;
    if (init == INIT_EMBED)
        std *= 2;
    if (init == INIT_RESIDUAL)
        std /= sqrt(2.0 * (double)shape->config.layers);
    return (float)std * rng_normal(seed, RNG_STREAM_INIT + row->index, (uint64_t)i);
}
