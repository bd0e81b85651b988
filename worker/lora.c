/* lora: see lora.h. */
#include "worker/lora.h"

#include "common/lora_shape.h"
#include "common/mem.h"
#include "common/must.h"
#include "common/rng.h"
#include "worker/layer.h"

/* Adapters lie at the same place in every layer's unit: A and B of a module, one after the other.
 */
static void lora_find_modules(struct lora *lora)
{
    const struct model_shape_row *row = lora->shape.rows;
    for (int m = 0; m < JOB_lora_module_COUNT; m++) {
        if (!lora_shape_has(lora->spec, (enum job_lora_module)m))
            continue;
        must(row->kind == lora_shape_tensor((enum job_lora_module)m) && row->layer == 0);
        lora->modules[m] = (struct lora_module){.adapted = true,
                                                .in = row[0].cols,
                                                .out = row[1].rows,
                                                .a = row[0].offset,
                                                .b = row[1].offset};
        row += 2;
    }
}

int lora_init(struct lora *lora, const struct model_shape *base, const struct job_spec *spec,
              struct device *device, struct coll *coll, struct err *err)
{
    *lora = (struct lora){.spec = spec, .scale = lora_shape_scale(spec)};
    TRY(lora_shape_build(base, spec, &lora->shape, err));
    lora_find_modules(lora);
    TRY(fsdp_init(&lora->fsdp, &lora->shape, device, coll, spec->fsdp, err));
    lora->fsdp.kind = FSDP_ADAPTERS;
    return 0;
}

void lora_done(struct lora *lora)
{
    fsdp_done(&lora->fsdp);
    model_shape_done(&lora->shape);
    *lora = (struct lora){0};
}

int lora_reserve(struct lora *lora, int64_t tokens, int64_t tile, struct arena *arena,
                 struct err *err)
{
    int64_t act = (int64_t)dtype_bytes(lora->fsdp.device->dev->act_dtype), width = 0;
    int64_t all = tokens * lora->spec->lora_r * act, part = tile * lora->spec->lora_r * act;
    TRY(fsdp_reserve(&lora->fsdp, arena, err));
    for (int m = 0; m < JOB_lora_module_COUNT; m++) {
        const struct lora_module *module = &lora->modules[m];
        width = module->in > width ? module->in : width;
        if (module->adapted && m <= JOB_lora_module_V)
            TRY(arena_reserve(arena, MEM_LORA_QKV, m, &lora->qkv[m], all, err));
    }
    if (lora->modules[JOB_lora_module_O].adapted)
        TRY(arena_reserve(arena, MEM_LORA_O, 0, &lora->o, all, err));
    if (lora->spec->lora_dropout > 0)
        TRY(arena_reserve(arena, MEM_LORA_X, 0, &lora->x, tile * width * act, err));
    TRY(arena_reserve(arena, MEM_LORA_U, 0, &lora->u, part, err));
    return arena_reserve(arena, MEM_LORA_DU, 0, &lora->du, part, err);
}

static int lora_start_piece(struct lora *lora, const struct fsdp_piece *piece, float *chunk,
                            int64_t chunk_elements, float *master, struct stream *stream,
                            struct err *err)
{
    struct device *device = lora->fsdp.device;
    for (int64_t at = 0; at < piece->count; at += chunk_elements) {
        int64_t left = piece->count - at, count = left < chunk_elements ? left : chunk_elements;
        for (int64_t i = 0; i < count; i++)
            chunk[i] = lora_shape_init(piece->row, piece->row_element + at + i,
                                       (uint64_t)lora->spec->seed);
        TRY(device->dev->copy(device, stream, master + piece->shard_element + at, chunk,
                              (size_t)count * sizeof *chunk, err));
        TRY(device->dev->sync(device, stream, err)); /* chunk is written again */
    }
    return 0;
}

int lora_start(struct lora *lora, struct stream *stream, struct err *err)
{
    enum { CHUNK_ELEMENTS = 1 << 16 };
    CLEANUP(mem_free_ptr) float *chunk = mem_new(CHUNK_ELEMENTS, sizeof *chunk);
    if (chunk == NULL)
        return mem_fail(err, CHUNK_ELEMENTS * sizeof *chunk, "a tensor chunk");
    for (int64_t unit = 0; unit < lora->fsdp.unit_count; unit++) {
        int64_t row = lora->fsdp.units[unit].row_first;
        struct fsdp_piece piece;
        while (fsdp_next_piece(&lora->fsdp, unit, &row, &piece))
            TRY(lora_start_piece(lora, &piece, chunk, CHUNK_ELEMENTS, lora->fsdp.units[unit].master,
                                 stream, err));
    }
    fsdp_weights_changed(&lora->fsdp);
    return 0;
}

bool lora_adapts(const struct layer *layer, enum job_lora_module module)
{
    const struct lora *lora = layer->model->lora;
    return lora != NULL && lora->modules[module].adapted;
}

bool lora_drops(const struct layer *layer)
{
    const struct lora *lora = layer->model->lora;
    return lora != NULL && lora->spec->lora_dropout > 0 && layer->batch->step > 0;
}

const void *lora_a(const struct layer *layer, enum job_lora_module module)
{
    return model_at(layer->model, layer->adapters, layer->model->lora->modules[module].a);
}

const void *lora_b(const struct layer *layer, enum job_lora_module module)
{
    return model_at(layer->model, layer->adapters, layer->model->lora->modules[module].b);
}

struct ops_dropout lora_dropout(const struct layer *layer, enum job_lora_module module, int64_t row,
                                int64_t rows)
{
    const struct lora *lora = layer->model->lora;
    uint64_t stream =
        RNG_STREAM_DROPOUT + (uint64_t)(layer->index * JOB_lora_module_COUNT + (int64_t)module);
    return (struct ops_dropout){
        .rows = rows,
        .numbers = layer->batch->numbers + row,
        .width = lora->modules[module].in,
        .key = rng_u64((uint64_t)lora->spec->seed, stream, (uint64_t)layer->batch->step),
        .rate = (float)lora->spec->lora_dropout};
}

/* Dropout of whole rows of a module's input. */
static int lora_drop(const struct layer *layer, enum job_lora_module module, int64_t row,
                     int64_t rows, const void *in, void *out, bool accumulate, struct err *err)
{
    struct ops_dropout dropout = lora_dropout(layer, module, row, rows);
    dropout.heads = 1;
    dropout.head_dim = dropout.width;
    dropout.in = (struct ops_heads){(void *)(uintptr_t)in, 0, dropout.width};
    dropout.out = (struct ops_heads){out, 0, dropout.width};
    dropout.accumulate = accumulate;
    return layer->model->device->ops->dropout(layer->model->device, layer->stream, &dropout, err);
}

static int lora_gemm(const struct layer *layer, struct ops_gemm gemm, struct err *err)
{
    gemm.batch = 1;
    return layer->model->device->ops->gemm(layer->model->device, layer->stream, &gemm, err);
}

/* u = drop(x) A^T; drop(x) in *ret_x, if the caller wants it. */
static int lora_reduce(const struct layer *layer, enum job_lora_module module, int64_t row,
                       int64_t rows, const void *x, void *u, const void **ret_x, struct err *err)
{
    const struct lora *lora = layer->model->lora;
    const struct lora_module *m = &lora->modules[module];
    if (lora_drops(layer)) {
        TRY(lora_drop(layer, module, row, rows, x, lora->x, false, err));
        x = lora->x;
    }
    if (ret_x != NULL)
        *ret_x = x;
    return lora_gemm(layer,
                     (struct ops_gemm){.m = rows,
                                       .n = lora->spec->lora_r,
                                       .k = m->in,
                                       .a = x,
                                       .lda = m->in,
                                       .b = lora_a(layer, module),
                                       .ldb = m->in,
                                       .trans_b = true,
                                       .c = u,
                                       .ldc = lora->spec->lora_r,
                                       .alpha = 1.0f},
                     err);
}

int lora_fwd(const struct layer *layer, enum job_lora_module module, int64_t row, int64_t rows,
             const void *x, void *y, struct err *err)
{
    if (!lora_adapts(layer, module))
        return 0;
    const struct lora *lora = layer->model->lora;
    int64_t r = lora->spec->lora_r, out = lora->modules[module].out;
    TRY(lora_reduce(layer, module, row, rows, x, lora->u, NULL, err));
    return lora_gemm(layer,
                     (struct ops_gemm){.m = rows,
                                       .n = out,
                                       .k = r,
                                       .a = lora->u,
                                       .lda = r,
                                       .b = lora_b(layer, module),
                                       .ldb = r,
                                       .trans_b = true,
                                       .c = y,
                                       .ldc = out,
                                       .accumulate = true,
                                       .alpha = lora->scale},
                     err);
}

/* Gradients of A and B from a tile's x and dy; du is left in `du`. */
static int lora_bwd_weights(const struct layer *layer, enum job_lora_module module, int64_t row,
                            int64_t rows, const void *x, const void *dy, void *du, struct err *err)
{
    const struct lora *lora = layer->model->lora;
    const struct lora_module *m = &lora->modules[module];
    int64_t r = lora->spec->lora_r;
    TRY(lora_reduce(layer, module, row, rows, x, lora->u, &x, err));
    struct ops_gemm db = {.m = m->out,
                          .n = r,
                          .k = rows,
                          .a = dy,
                          .lda = m->out,
                          .trans_a = true,
                          .b = lora->u,
                          .ldb = r,
                          .c = layer->adapter_grad + m->b,
                          .ldc = r,
                          .c_f32 = true,
                          .accumulate = true,
                          .alpha = lora->scale};
    struct ops_gemm by_b = {.m = rows,
                            .n = r,
                            .k = m->out,
                            .a = dy,
                            .lda = m->out,
                            .b = lora_b(layer, module),
                            .ldb = r,
                            .c = du,
                            .ldc = r,
                            .alpha = lora->scale};
    struct ops_gemm da = {.m = r,
                          .n = m->in,
                          .k = rows,
                          .a = du,
                          .lda = r,
                          .trans_a = true,
                          .b = x,
                          .ldb = m->in,
                          .c = layer->adapter_grad + m->a,
                          .ldc = m->in,
                          .c_f32 = true,
                          .accumulate = true,
                          .alpha = 1.0f};
    TRY(lora_gemm(layer, db, err));
    TRY(lora_gemm(layer, by_b, err));
    return lora_gemm(layer, da, err);
}

int lora_bwd(const struct layer *layer, enum job_lora_module module, int64_t row, int64_t rows,
             const void *x, const void *dy, void *dx, struct err *err)
{
    if (!lora_adapts(layer, module))
        return 0;
    const struct lora *lora = layer->model->lora;
    bool drops = lora_drops(layer);
    int64_t r = lora->spec->lora_r, in = lora->modules[module].in;
    TRY(lora_bwd_weights(layer, module, row, rows, x, dy, lora->du, err));
    TRY(lora_gemm(layer,
                  (struct ops_gemm){.m = rows,
                                    .n = in,
                                    .k = r,
                                    .a = lora->du,
                                    .lda = r,
                                    .b = lora_a(layer, module),
                                    .ldb = in,
                                    .c = drops ? lora->x : dx,
                                    .ldc = in,
                                    .accumulate = !drops,
                                    .alpha = 1.0f},
                  err));
    return drops ? lora_drop(layer, module, row, rows, lora->x, dx, true, err) : 0;
}

/* For the rows of a tile, from their norm. */
static int lora_inputs_tile(const struct layer *layer, const struct offload_span *span,
                            const void *norm, struct err *err)
{
    const struct model *model = layer->model;
    const struct lora *lora = model->lora;
    for (int m = JOB_lora_module_Q; m <= JOB_lora_module_V; m++)
        if (lora_adapts(layer, (enum job_lora_module)m))
            TRY(lora_reduce(layer, (enum job_lora_module)m, span->row, span->rows, norm,
                            model_at(model, lora->qkv[m], span->row * lora->spec->lora_r), NULL,
                            err));
    return 0;
}

int lora_inputs(const struct layer *layer, struct err *err)
{
    struct model *model = layer->model;
    if (!lora_adapts(layer, JOB_lora_module_Q) && !lora_adapts(layer, JOB_lora_module_K) &&
        !lora_adapts(layer, JOB_lora_module_V))
        return 0;
    for (int64_t row = 0; row < layer->batch->rows; row += model->options.tile_mlp) {
        struct offload_span span = layer_span(layer, row);
        struct offload_tile x;
        TRY(offload_arrive(&model->offload, &span, layer->stream, err));
        TRY(offload_tile_read(&model->offload, OFFLOAD_RING_X, layer->acts->x, &span, layer->stream,
                              &x, err));
        TRY(layer_norm(layer, MODEL_TENSOR_LN1, x.data, model->tile_norm, span.rows,
                       model->shape->config.hidden_size, NULL, err));
        TRY(offload_tile_done(&model->offload, &x, layer->stream, err));
        TRY(lora_inputs_tile(layer, &span, model->tile_norm, err));
    }
    return 0;
}

int lora_bwd_out(const struct layer *layer, int64_t row, int64_t rows, const void *o,
                 const void *d_mid, struct err *err)
{
    const struct model *model = layer->model;
    if (!lora_adapts(layer, JOB_lora_module_O))
        return 0;
    return lora_bwd_weights(layer, JOB_lora_module_O, row, rows, o, d_mid,
                            model_at(model, model->lora->o, row * model->lora->spec->lora_r), err);
}
