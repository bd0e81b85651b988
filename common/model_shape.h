/* model_shape: every parameter tensor of a model as a table, in one fixed order:
 * embedding; per layer: input norm, q, k, v (biases, q_norm, k_norm), o (bias), post-attention
 * norm, gate, up, down; final norm; lm_head when not tied.
 *
 * Tensors are grouped into FSDP units: unit 0 the embedding (and the head when tied), units 1..L
 * the layers, unit L+1 the final norm and the untied head. A unit is one flat fp32 buffer, its
 * tensors one after the other, each starting at a multiple of MODEL_SHAPE_ALIGN elements, but for
 * the weights of k and v: they follow q's and k's at once, so that the three are one matrix. All
 * weights are [out, in] row-major as in safetensors. */
#pragma once
#include "common/err.h"
#include "common/model_config.h"

#include <stdint.h>

enum { MODEL_SHAPE_ALIGN = 64, MODEL_SHAPE_NAME_BYTES = 96 };

enum model_tensor {
    MODEL_TENSOR_EMBED,  /* [V, h] */
    MODEL_TENSOR_LN1,    /* [h] input_layernorm */
    MODEL_TENSOR_Q,      /* [H*d, h] */
    MODEL_TENSOR_K,      /* [K*d, h] */
    MODEL_TENSOR_V,      /* [K*d, h] */
    MODEL_TENSOR_Q_BIAS, /* [H*d], when qkv_bias */
    MODEL_TENSOR_K_BIAS, /* [K*d] */
    MODEL_TENSOR_V_BIAS, /* [K*d] */
    MODEL_TENSOR_Q_NORM, /* [d], when qk_norm */
    MODEL_TENSOR_K_NORM, /* [d] */
    MODEL_TENSOR_O,      /* [h, H*d] */
    MODEL_TENSOR_O_BIAS, /* [h], when o_bias */
    MODEL_TENSOR_LN2,    /* [h] post_attention_layernorm */
    MODEL_TENSOR_GATE,   /* [f, h] */
    MODEL_TENSOR_UP,     /* [f, h] */
    MODEL_TENSOR_DOWN,   /* [h, f] */
    MODEL_TENSOR_LNF,    /* [h] model.norm */
    MODEL_TENSOR_HEAD,   /* [V, h] lm_head, when not tied */
    MODEL_TENSOR_COUNT
};

struct model_shape_row {
    enum model_tensor kind;
    int32_t layer;                     /* -1 outside layers */
    int32_t unit;                      /* FSDP unit */
    char name[MODEL_SHAPE_NAME_BYTES]; /* Hugging Face name:
                                          "model.layers.3.self_attn.q_proj.weight" */
    int64_t rows, cols; /* matrix [rows, cols]; vectors: [rows], cols = 1 and dims = 1 */
    int32_t dims;       /* 1 or 2 */
    int64_t elements;   /* rows * cols */
    int64_t offset;     /* elements from the start of its unit's flat buffer */
    uint64_t index;     /* position in the table: the RNG's tensor number */
};

struct model_shape {
    struct model_config config;
    struct model_shape_row *rows; /* row_count of them */
    int64_t row_count;
    int64_t unit_count;     /* layers + 2; the last has only the final norm when tied */
    int64_t *unit_elements; /* of each unit's flat buffer, alignment padding included */
    int64_t parameters;     /* trainable elements, padding excluded */
};

int model_shape_build(const struct model_config *config, struct model_shape *ret_shape,
                      struct err *err);
void model_shape_done(struct model_shape *shape);
/* NULL when the model has no such tensor; layer -1 outside layers. */
const struct model_shape_row *model_shape_find(const struct model_shape *shape,
                                               enum model_tensor kind, int64_t layer);
const struct model_shape_row *model_shape_by_name(const struct model_shape *shape,
                                                  const char *name);

/* Element `i` of row `row` in a random initialisation with `seed`: normal(0, initializer_range),
 * norms 1, biases 0; the projections that write into the residual stream (o, down) scaled by
 * 1/sqrt(2L); the embedding by 2: in a model of few layers what a token is must outweigh what they
 * add at first (tiny-llama answers 19 of 20 held-out questions with it, 8 without). */
float model_shape_init(const struct model_shape *shape, const struct model_shape_row *row,
                       int64_t i, uint64_t seed);
