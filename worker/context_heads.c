/* context_heads: see context_heads.h. Head i of group g is head g * (total / groups) + first + i of
 * the model, and lies at g * count + i on the token side. An op takes all of them in one call (a
 * strided batch) when they are all heads of the model, else those of all groups with the same i:
 * straight into the order of sending, straight from that of arrival. */
#include "worker/context_heads.h"

#include "common/lora_shape.h"
#include "common/must.h"
#include "worker/lora.h"

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

/* The calls that an op needs for a stage's heads, C > 1: call i takes `count` heads, from head i of
 * the token side and head first + i of the model on. */
struct heads_run {
    int64_t calls, count;
    int64_t side;  /* from one of its heads to the next: heads of the token side ... */
    int64_t model; /* ... and of the model */
};

static struct heads_run heads_run(const struct context_heads *heads)
{
    int64_t group_heads = heads->total / heads->groups;
    if (heads->count == group_heads)
        return (struct heads_run){.calls = 1, .count = heads->total, .side = 1, .model = 1};
    return (struct heads_run){
        .calls = heads->count, .count = heads->groups, .side = heads->count, .model = group_heads};
}

/* A product into token side, from row `row` of out's `out_rows` on: B starts at `b` for head 0 of
 * group 0, b_head elements a head. */
static int heads_product(const struct layer *layer, const struct context_heads *heads,
                         struct ops_gemm *gemm, int64_t b_head, int64_t row, int64_t out_rows,
                         void *out, struct err *err)
{
    const struct model *model = layer->model;
    int64_t d = model->shape->config.head_dim, head = out_rows * d;
    struct heads_run run = heads_run(heads);
    if (heads_ulysses(layer) == 1) { /* all heads of a row lie together: one wide head */
        run = (struct heads_run){.calls = 1, .count = 1};
        d *= heads->count;
    }
    const void *b = gemm->b, *bias = gemm->bias;
    gemm->n = gemm->ldc = d;
    gemm->batch = run.count;
    gemm->stride_b = run.model * b_head;
    gemm->stride_c = run.side * head;
    gemm->stride_bias = run.model * d;
    for (int64_t i = 0; i < run.calls; i++) {
        gemm->b = model_at(model, b, (heads->first + i) * b_head);
        gemm->bias = model_at(model, bias, (heads->first + i) * model->shape->config.head_dim);
        gemm->c = model_at(model, out, i * head + row * d);
        TRY(model->device->ops->gemm(model->device, layer->stream, gemm, err));
    }
    return 0;
}

int context_heads_project(const struct layer *layer, const struct context_heads *heads,
                          enum job_lora_module module, enum model_tensor bias, const void *x,
                          int64_t row, int64_t rows, void *out, struct err *err)
{
    const struct model *model = layer->model;
    const struct model_config *c = &model->shape->config;
    int64_t out_rows = layer->batch->rows;
    struct ops_gemm gemm = {.m = rows,
                            .k = c->hidden_size,
                            .a = x,
                            .lda = c->hidden_size,
                            .b = model_weight(model, layer->weights, lora_shape_tensor(module)),
                            .ldb = c->hidden_size,
                            .trans_b = true,
                            .alpha = 1.0f,
                            .bias = model_weight(model, layer->weights, bias)};
    TRY(heads_product(layer, heads, &gemm, c->head_dim * c->hidden_size, row, out_rows, out, err));
    if (!lora_adapts(layer, module))
        return 0;
    int64_t r = model->lora->spec->lora_r;
    struct ops_gemm adapter = {.m = rows,
                               .k = r,
                               .a = model_at(model, model->lora->qkv[module], row * r),
                               .lda = r,
                               .b = lora_b(layer, module),
                               .ldb = r,
                               .trans_b = true,
                               .accumulate = true,
                               .alpha = model->lora->scale};
    return heads_product(layer, heads, &adapter, c->head_dim * r, row, out_rows, out, err);
}

/* out += what is kept of `in`, a tile's gradient of o's input, token side. */
static int heads_dropout(const struct layer *layer, const struct context_heads *heads,
                         const void *in, int64_t row, int64_t rows, void *out, struct err *err)
{
    const struct model *model = layer->model;
    int64_t d = model->shape->config.head_dim, all = layer->batch->rows;
    struct heads_run run = heads_run(heads);
    struct ops_dropout dropout = lora_dropout(layer, JOB_lora_module_O, row, rows);
    dropout.accumulate = true;
    dropout.head_dim = d;
    if (heads_ulysses(layer) == 1) {
        run = (struct heads_run){.calls = 1, .count = 1};
        dropout.head_dim *= heads->count;
    }
    dropout.heads = run.count;
    dropout.feature_stride = run.model * d;
    for (int64_t i = 0; i < run.calls; i++) {
        dropout.in = (struct ops_heads){model_at(model, in, i * rows * d), run.side * rows * d,
                                        dropout.head_dim};
        dropout.out = (struct ops_heads){model_at(model, out, i * all * d + row * dropout.head_dim),
                                         run.side * all * d, dropout.head_dim};
        dropout.feature = (heads->first + i) * d;
        TRY(model->device->ops->dropout(model->device, layer->stream, &dropout, err));
    }
    return 0;
}

/* The part of o's adapter in dO: du * A of the heads, of rows of a tile. */
static int heads_adapter_back(const struct layer *layer, const struct context_heads *heads,
                              int64_t row, int64_t rows, void *out, struct err *err)
{
    const struct model *model = layer->model;
    const struct model_config *c = &model->shape->config;
    const struct lora *lora = model->lora;
    struct ops_gemm gemm = {.m = rows,
                            .k = lora->spec->lora_r,
                            .a = model_at(model, lora->o, row * lora->spec->lora_r),
                            .lda = lora->spec->lora_r,
                            .b = lora_a(layer, JOB_lora_module_O),
                            .ldb = c->heads * c->head_dim,
                            .accumulate = true,
                            .alpha = 1.0f};
    if (!lora_drops(layer))
        return heads_product(layer, heads, &gemm, c->head_dim, row, layer->batch->rows, out, err);
    gemm.accumulate = false;
    TRY(heads_product(layer, heads, &gemm, c->head_dim, 0, rows, lora->x, err));
    return heads_dropout(layer, heads, lora->x, row, rows, out, err);
}

int context_heads_project_back(const struct layer *layer, const struct context_heads *heads,
                               const void *d_mid, int64_t row, int64_t rows, void *out,
                               struct err *err)
{
    const struct model *model = layer->model;
    const struct model_config *c = &model->shape->config;
    struct ops_gemm gemm = {.m = rows,
                            .k = c->hidden_size,
                            .a = d_mid,
                            .lda = c->hidden_size,
                            .b = model_weight(model, layer->weights, MODEL_TENSOR_O),
                            .ldb = c->heads * c->head_dim,
                            .alpha = 1.0f};
    TRY(heads_product(layer, heads, &gemm, c->head_dim, row, layer->batch->rows, out, err));
    return lora_adapts(layer, JOB_lora_module_O)
               ? heads_adapter_back(layer, heads, row, rows, out, err)
               : 0;
}

int context_heads_delta(const struct layer *layer, const struct context_heads *heads,
                        const void *d_o, float *delta, struct err *err)
{
    const struct model *model = layer->model;
    int64_t d = model->shape->config.head_dim, rows = layer->batch->rows;
    bool whole = heads_ulysses(layer) == 1;
    struct heads_run run = heads_run(heads);
    if (whole)
        run = (struct heads_run){.calls = 1, .count = heads->count, .side = 1, .model = 1};
    for (int64_t i = 0; i < run.calls; i++) {
        struct ops_attention_delta args = {
            .heads = run.count,
            .rows = rows,
            .head_dim = d,
            .o = {model_at(model, layer->acts->o, (heads->first + i) * d), run.model * d,
                  heads->total * d},
            .d_o = {model_at(model, d_o, i * rows * d), whole ? d : run.side * rows * d,
                    whole ? heads->count * d : d},
            .delta = delta + i * rows,
            .delta_stride = run.side * rows};
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
                            .scale = model_rope_scale(&c->rope)};
    return model->device->ops->rope(model->device, layer->stream, &rope, err);
}

int context_heads_send(const struct layer *layer, const struct context_heads *heads,
                       const void *send, void *recv, int64_t width, enum dtype dtype,
                       struct err *err)
{
    if (heads_ulysses(layer) == 1)
        return 0;
    struct coll *coll = heads_context(layer)->options.ulysses;
    int64_t block = layer->batch->rows * width;
    struct coll_call call = {.kind = COLL_all_to_all,
                             .dtype = dtype,
                             .count = block,
                             .send = send,
                             .recv = recv,
                             .parts = {.blocks = heads->count,
                                       .copies = coll->world / (int)heads->groups,
                                       .send_part = heads->count * block,
                                       .send_block = block,
                                       .recv_part = block,
                                       .recv_block = coll->world * block}};
    return coll_start(coll, layer->stream, &call, err);
}

int context_heads_return(const struct layer *layer, const struct context_heads *heads,
                         const void *send, void *recv, enum dtype dtype, struct err *err)
{
    must(heads_ulysses(layer) > 1);
    struct coll *coll = heads_context(layer)->options.ulysses;
    int64_t block = layer->batch->rows * layer->model->shape->config.head_dim;
    struct coll_parts parts = {.blocks = heads->count,
                               .copies = 1,
                               .send_part = block,
                               .send_block = coll->world * block,
                               .recv_part = heads->count * block,
                               .recv_block = block};
    return coll_all_to_all(coll, layer->stream, send, recv, block, &parts, dtype, err);
}

int context_heads_unpack(const struct layer *layer, const struct context_heads *heads,
                         const void *in, bool in_f32, void *out, struct err *err)
{
    const struct model *model = layer->model;
    int64_t d = model->shape->config.head_dim, rows = layer->batch->rows, head = rows * d;
    int64_t copies = heads_ulysses(layer) / heads->groups;
    int64_t bytes = (int64_t)dtype_bytes(in_f32 ? DTYPE_F32 : model->device->dev->act_dtype);
    bool whole = heads_ulysses(layer) == 1;
    struct heads_run run = heads_run(heads);
    if (whole)
        run = (struct heads_run){.calls = 1, .count = heads->count, .side = 1, .model = 1};
    for (int64_t i = 0; i < run.calls; i++) {
        struct ops_unpack args = {
            .heads = run.count,
            .rows = rows,
            .head_dim = d,
            .copies = copies,
            .copy_stride = heads->count * head,
            .in = {(char *)(uintptr_t)in + i * head * bytes, whole ? d : copies * run.side * head,
                   whole ? heads->count * d : d},
            .in_f32 = in_f32,
            .out = {model_at(model, out, (heads->first + i) * d), run.model * d, heads->total * d}};
        TRY(model->device->ops->unpack(model->device, layer->stream, &args, err));
    }
    return 0;
}
