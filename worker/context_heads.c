/* context_heads: see context_heads.h. Head i of group g is head g * (total / groups) + first + i of
 * the model. A projection's product runs over all groups at once (a strided batch), straight into
 * the order of sending; each of the stage's heads then is one all-to-all whose result is the head
 * in one piece. */
#include "worker/context_heads.h"

#include "common/must.h"

static const struct context *heads_context(const struct layer *layer)
{
    return &layer->model->context;
}

static int64_t heads_ulysses(const struct layer *layer)
{
    return heads_context(layer)->options.mesh.ulysses;
}

struct context_heads context_heads_q(const struct layer *layer, const struct mesh_stage *stage)
{
    const struct mesh_heads *h = &heads_context(layer)->heads;
    return (struct context_heads){.total = h->heads,
                                  .groups = heads_ulysses(layer),
                                  .first = stage->head,
                                  .count = h->per_stage};
}

struct context_heads context_heads_kv(const struct layer *layer, const struct mesh_stage *stage)
{
    const struct mesh_heads *h = &heads_context(layer)->heads;
    return (struct context_heads){.total = h->kv_heads,
                                  .groups = heads_ulysses(layer) / h->sharers,
                                  .first = stage->kv,
                                  .count = h->kv_staged};
}

static struct ops_heads heads_head_side(const struct layer *layer, int64_t heads)
{
    int64_t d = layer->model->shape->config.head_dim;
    if (heads_ulysses(layer) == 1)
        return (struct ops_heads){.head_stride = d, .row_stride = heads * d};
    return (struct ops_heads){.head_stride = layer->batch->seq.rows * d, .row_stride = d};
}

struct ops_heads context_head_side(const struct layer *layer, const void *data, int64_t heads,
                                   int64_t row)
{
    struct ops_heads side = heads_head_side(layer, heads);
    side.data = model_at(layer->model, data, row * side.row_stride);
    return side;
}

struct ops_heads context_head_side_f32(const struct layer *layer, const float *data, int64_t heads,
                                       int64_t row)
{
    struct ops_heads side = heads_head_side(layer, heads);
    side.data = (float *)(uintptr_t)data + row * side.row_stride;
    return side;
}

/* A product into token side: B starts at `b` for head 0 of group 0, b_head elements a head. */
static int heads_product(const struct layer *layer, const struct context_heads *heads,
                         struct ops_gemm *gemm, int64_t b_head, int64_t row, void *out,
                         struct err *err)
{
    const struct model *model = layer->model;
    int64_t d = model->shape->config.head_dim, group_heads = heads->total / heads->groups;
    bool whole = heads_ulysses(layer) == 1; /* all heads of a row lie together */
    const void *b = gemm->b, *bias = gemm->bias;
    gemm->n = whole ? heads->count * d : d;
    gemm->ldc = gemm->n;
    gemm->alpha = 1.0f;
    gemm->batch = heads->groups;
    gemm->stride_b = group_heads * b_head;
    gemm->stride_c = layer->batch->rows * d;
    gemm->stride_bias = group_heads * d;
    for (int64_t i = 0; i < (whole ? 1 : heads->count); i++) {
        gemm->b = model_at(model, b, (heads->first + i) * b_head);
        gemm->bias = model_at(model, bias, (heads->first + i) * d);
        gemm->c = model_at(model, out, i * heads->groups * gemm->stride_c + row * gemm->ldc);
        TRY(model->device->ops->gemm(model->device, layer->stream, gemm, err));
    }
    return 0;
}

int context_heads_project(const struct layer *layer, const struct context_heads *heads,
                          enum model_tensor weight, enum model_tensor bias, const void *x,
                          int64_t row, int64_t rows, void *out, struct err *err)
{
    const struct model *model = layer->model;
    const struct model_config *c = &model->shape->config;
    struct ops_gemm gemm = {.m = rows,
                            .k = c->hidden_size,
                            .a = x,
                            .lda = c->hidden_size,
                            .b = model_weight(model, layer->weights, weight),
                            .ldb = c->hidden_size,
                            .trans_b = true,
                            .bias = model_weight(model, layer->weights, bias)};
    return heads_product(layer, heads, &gemm, c->head_dim * c->hidden_size, row, out, err);
}

int context_heads_project_back(const struct layer *layer, const struct context_heads *heads,
                               const void *d_mid, void *out, struct err *err)
{
    const struct model *model = layer->model;
    const struct model_config *c = &model->shape->config;
    struct ops_gemm gemm = {.m = layer->batch->rows,
                            .k = c->hidden_size,
                            .a = d_mid,
                            .lda = c->hidden_size,
                            .b = model_weight(model, layer->weights, MODEL_TENSOR_O),
                            .ldb = c->heads * c->head_dim};
    return heads_product(layer, heads, &gemm, c->head_dim, 0, out, err);
}

int context_heads_delta(const struct layer *layer, const struct context_heads *heads,
                        const void *d_o, float *delta, struct err *err)
{
    const struct model *model = layer->model;
    int64_t d = model->shape->config.head_dim, rows = layer->batch->rows;
    bool whole = heads_ulysses(layer) == 1;
    int64_t together = whole ? heads->count : heads->groups; /* heads of a call */
    for (int64_t i = 0; i < (whole ? 1 : heads->count); i++) {
        struct ops_attention_delta args = {
            .heads = together,
            .rows = rows,
            .head_dim = d,
            .o = {model_at(model, layer->acts->o, (heads->first + i) * d),
                  whole ? d : heads->total / heads->groups * d, heads->total * d},
            .d_o = {model_at(model, d_o, i * heads->groups * rows * d), whole ? d : rows * d,
                    whole ? heads->count * d : d},
            .delta = delta + i * together * rows};
        TRY(model->device->ops->attention_delta(model->device, layer->stream, &args, err));
    }
    return 0;
}

int context_heads_turn(const struct layer *layer, const struct context_heads *heads,
                       enum model_tensor norm, void *x, struct err *err)
{
    const struct model *model = layer->model;
    const struct model_config *c = &model->shape->config;
    int64_t d = c->head_dim, rows = layer->batch->rows, count = heads->count * heads->groups;
    bool whole = heads_ulysses(layer) == 1;
    if (c->qk_norm)
        TRY(layer_norm(layer, norm, x, x, rows * count, d, NULL, err));
    struct ops_rope rope = {.heads = count,
                            .tokens = rows,
                            .head_dim = d,
                            .head_stride = whole ? d : rows * d,
                            .token_stride = whole ? count * d : d,
                            .x = x,
                            .positions = layer->batch->positions,
                            .inv_freq = model->inv_freq,
                            .scale = 1.0f};
    return model->device->ops->rope(model->device, layer->stream, &rope, err);
}

int context_heads_send(const struct layer *layer, const struct context_heads *heads,
                       const void *send, void *recv, int64_t width, enum dtype dtype,
                       struct err *err)
{
    if (heads_ulysses(layer) == 1)
        return 0;
    struct coll *coll = heads_context(layer)->options.ulysses;
    int64_t part = layer->batch->rows * width, bytes = (int64_t)dtype_bytes(dtype);
    for (int64_t i = 0; i < heads->count; i++)
        TRY(coll->ops->all_to_all(coll, layer->stream,
                                  (const char *)send + i * heads->groups * part * bytes,
                                  (char *)recv + i * coll->world * part * bytes, part,
                                  coll->world / (int)heads->groups, dtype, err));
    return 0;
}

int context_heads_return(const struct layer *layer, const struct context_heads *heads,
                         const void *send, void *recv, enum dtype dtype, struct err *err)
{
    must(heads_ulysses(layer) > 1);
    struct coll *coll = heads_context(layer)->options.ulysses;
    int64_t part = layer->batch->rows * layer->model->shape->config.head_dim;
    int64_t head_bytes = coll->world * part * (int64_t)dtype_bytes(dtype);
    for (int64_t i = 0; i < heads->count; i++)
        TRY(coll->ops->all_to_all(coll, layer->stream, (const char *)send + i * head_bytes,
                                  (char *)recv + i * head_bytes, part, 1, dtype, err));
    return 0;
}

int context_heads_unpack(const struct layer *layer, const struct context_heads *heads,
                         const void *in, bool in_f32, void *out, struct err *err)
{
    const struct model *model = layer->model;
    int64_t d = model->shape->config.head_dim, rows = layer->batch->rows;
    int64_t copies = heads_ulysses(layer) / heads->groups;
    int64_t head = heads_ulysses(layer) * rows * d; /* elements that returned of a head */
    int64_t bytes = (int64_t)dtype_bytes(in_f32 ? DTYPE_F32 : model->device->dev->act_dtype);
    bool whole = heads_ulysses(layer) == 1;
    for (int64_t i = 0; i < (whole ? 1 : heads->count); i++) {
        struct ops_unpack args = {
            .heads = whole ? heads->count : heads->groups,
            .rows = rows,
            .head_dim = d,
            .copies = copies,
            .copy_stride = rows * d,
            .in = {(char *)(uintptr_t)in + i * head * bytes, whole ? d : copies * rows * d,
                   whole ? heads->count * d : d},
            .in_f32 = in_f32,
            .out = {model_at(model, out, (heads->first + i) * d),
                    whole ? d : heads->total / heads->groups * d, heads->total * d}};
        TRY(model->device->ops->unpack(model->device, layer->stream, &args, err));
    }
    return 0;
}
