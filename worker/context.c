/* context: buffers; see context.h. */
#include "worker/context.h"

#include "common/must.h"
#include "worker/ring.h"

/* Each slot takes elements of `bytes`. */
static int context_reserve(struct arena *arena, enum mem_name name, int index, void *slot,
                           int64_t elements, int64_t bytes, struct err *err)
{
    return arena_reserve(arena, name, index, slot, elements * bytes, err);
}

static int context_reserve_ring(struct context *context, struct arena *arena, int64_t kv,
                                int64_t act, struct err *err)
{
    int ring = context->options.mesh.ring;
    for (int i = 0; i < 2 && i < ring - 1; i++) {
        TRY(context_reserve(arena, MEM_RING_K, i, &context->ring_k[i], kv, act, err));
        TRY(context_reserve(arena, MEM_RING_V, i, &context->ring_v[i], kv, act, err));
    }
    if (ring == 1)
        return 0;
    TRY(context_reserve(arena, MEM_RING_DK, 0, &context->ring_dk, kv, (int64_t)sizeof(float), err));
    return context_reserve(arena, MEM_RING_DV, 0, &context->ring_dv, kv, (int64_t)sizeof(float),
                           err);
}

static int context_reserve_set(struct context *context, struct arena *arena, int index,
                               int64_t rows, bool keep_inputs, struct err *err)
{
    struct context_set *set = &context->sets[index];
    int64_t act = (int64_t)dtype_bytes(context->device->dev->act_dtype);
    int64_t q_rows = context->heads.per_stage * rows, d = context->config->head_dim;
    int64_t kv = context->heads.kv_staged * rows * d;
    if (!keep_inputs) {
        TRY(context_reserve(arena, MEM_STAGE_Q, index, &set->q, q_rows * d, act, err));
        TRY(context_reserve(arena, MEM_STAGE_K, index, &set->k, kv, act, err));
        TRY(context_reserve(arena, MEM_STAGE_V, index, &set->v, kv, act, err));
    }
    TRY(context_reserve(arena, MEM_STAGE_BACK, index, &set->back, q_rows * d, act, err));
    return context_reserve(arena, MEM_STAGE_DELTA, index, &set->delta, q_rows,
                           (int64_t)sizeof(float), err);
}

/* What goes out of a rank is as large as what comes in, or smaller where ranks share heads. */
static int context_reserve_out(struct context *context, struct arena *arena, int64_t rows,
                               struct err *err)
{
    int64_t act = (int64_t)dtype_bytes(context->device->dev->act_dtype);
    int64_t q_rows = context->heads.per_stage * rows, d = context->config->head_dim;
    int64_t kv = context->heads.kv_staged * rows * d;
    TRY(context_reserve(arena, MEM_STAGE_SEND, 0, &context->send, q_rows * d, act, err));
    TRY(context_reserve(arena, MEM_STAGE_DELTA_SEND, 0, &context->out.delta, q_rows,
                        (int64_t)sizeof(float), err));
    if (!context->overlap)
        return 0;
    TRY(context_reserve(arena, MEM_STAGE_OUT_Q, 0, &context->out.q, q_rows * d, act, err));
    TRY(context_reserve(arena, MEM_STAGE_OUT_K, 0, &context->out.k, kv, act, err));
    TRY(context_reserve(arena, MEM_STAGE_OUT_V, 0, &context->out.v, kv, act, err));
    return context_reserve(arena, MEM_STAGE_OUT_DO, 0, &context->out.d_o, q_rows * d, act, err);
}

int context_init(struct context *context, const struct context_options *options,
                 const struct model_config *config, int64_t tokens_max, bool keep_inputs,
                 struct device *device, struct arena *arena, struct err *err)
{
    const struct mesh *mesh = &options->mesh;
    must((mesh->ulysses > 1) == (options->ulysses != NULL));
    must((mesh->ring > 1) == (options->ring != NULL));
    *context = (struct context){.device = device, .config = config, .options = *options};
    if (context->options.heads_per_stage == 0)
        context->options.heads_per_stage = config->heads / mesh->ulysses;
    context->heads = mesh_heads_make(config->heads, config->kv_heads, mesh->ulysses,
                                     context->options.heads_per_stage);
    context->overlap = options->overlap && mesh->ulysses > 1 && context->heads.stages > 1;
    int64_t rows = tokens_max * mesh->ulysses, act = (int64_t)dtype_bytes(device->dev->act_dtype);
    int64_t q = context->heads.per_stage * rows * config->head_dim;
    int64_t kv = context->heads.kv_staged * rows * config->head_dim, f32 = (int64_t)sizeof(float);
    for (int i = 0; i < (context->overlap ? 2 : 1); i++)
        TRY(context_reserve_set(context, arena, i, rows, keep_inputs, err));
    TRY(context_reserve(arena, MEM_STAGE_DQ, 0, &context->dq, q, f32, err));
    TRY(context_reserve(arena, MEM_STAGE_DK, 0, &context->dk, kv, f32, err));
    TRY(context_reserve(arena, MEM_STAGE_DV, 0, &context->dv, kv, f32, err));
    if (mesh->ulysses > 1)
        TRY(context_reserve_out(context, arena, rows, err));
    return context_reserve_ring(context, arena, kv, act, err);
}

int context_connect(const struct context *context, struct stream *stream, struct err *err)
{
    struct coll *ulysses = context->options.ulysses;
    struct coll_parts each = {.blocks = 1, .copies = 1, .send_part = 1, .recv_part = 1};
    if (ulysses != NULL)
        TRY(coll_all_to_all(ulysses, stream, context->dk, context->dq, 1, &each, DTYPE_F32, err));
    return context->options.ring != NULL ? ring_connect(context, stream, err) : 0;
}
