/* model_memory: a model's buffers, by the names that common/mem_plan knows them by; see model.h. */
#include "worker/layer.h"

static int model_reserve_act(struct model *model, struct arena *arena, enum mem_name name,
                             int64_t index, void *slot, int64_t elements, struct err *err)
{
    int64_t bytes = elements * (int64_t)dtype_bytes(model->device->dev->act_dtype);
    return arena_reserve(arena, name, index, slot, bytes, err);
}

/* O and LSE. */
static int model_reserve_attention(struct model *model, struct arena *arena,
                                   struct model_acts *acts, int64_t l, struct err *err)
{
    const struct model_config *c = &model->shape->config;
    int64_t heads = model->options.tokens_max * c->heads;
    TRY(model_reserve_act(model, arena, MEM_O, l, &acts->o, heads * c->head_dim, err));
    return arena_reserve(arena, MEM_LSE, l, &acts->lse, heads * (int64_t)sizeof(float), err);
}

/* What a layer keeps only where nothing is recomputed. */
static int model_reserve_all(struct model *model, struct arena *arena, struct model_acts *acts,
                             int64_t l, struct err *err)
{
    const struct model_config *c = &model->shape->config;
    const struct mesh_heads *heads = &model->context.heads;
    int64_t tokens = model->options.tokens_max;
    int64_t head = tokens * model->options.context.mesh.ulysses * c->head_dim;
    TRY(model_reserve_act(model, arena, MEM_Q, l, &acts->q, heads->owned * head, err));
    TRY(model_reserve_act(model, arena, MEM_K, l, &acts->k, heads->kv_owned * head, err));
    TRY(model_reserve_act(model, arena, MEM_V, l, &acts->v, heads->kv_owned * head, err));
    return model_reserve_act(model, arena, MEM_X_MID, l, &acts->x_mid, tokens * c->hidden_size,
                             err);
}

/* Inputs of layers that keep none. */
static int64_t model_segment(const struct model *model)
{
    int64_t every = model->options.keep_input_every;
    return model->options.replay_anew && every > 1 ? 1 : every - 1;
}

static int model_reserve_layers(struct model *model, struct arena *arena, struct err *err)
{
    const struct model_config *c = &model->shape->config;
    enum job_recompute recompute = model->options.recompute;
    int64_t residual = model->options.tokens_max * c->hidden_size;
    int64_t mlp = model->options.tile_mlp * c->intermediate_size;
    for (int64_t l = 0; l < c->layers; l++) {
        struct model_acts *acts = &model->acts[l];
        if (l % model->options.keep_input_every == 0)
            TRY(model_reserve_act(model, arena, MEM_X, l, &acts->x, residual, err));
        if (recompute != JOB_recompute_INPUT)
            TRY(model_reserve_attention(model, arena, acts, l, err));
        if (recompute == JOB_recompute_NONE)
            TRY(model_reserve_all(model, arena, acts, l, err));
        if (model->keep_mlp) {
            TRY(model_reserve_act(model, arena, MEM_GATE, l, &acts->gate, mlp, err));
            TRY(model_reserve_act(model, arena, MEM_UP, l, &acts->up, mlp, err));
        }
    }
    for (int64_t i = 0; i < model_segment(model); i++)
        TRY(model_reserve_act(model, arena, MEM_X_SEGMENT, i, &model->segment[i], residual, err));
    if (recompute == JOB_recompute_INPUT)
        TRY(model_reserve_attention(model, arena, &model->shared, MEM_AT_WORK, err));
    if (!model->keep_mlp) {
        TRY(model_reserve_act(model, arena, MEM_GATE, MEM_AT_WORK, &model->shared.gate, mlp, err));
        TRY(model_reserve_act(model, arena, MEM_UP, MEM_AT_WORK, &model->shared.up, mlp, err));
    }
    return model_reserve_act(model, arena, MEM_X_OUT, 0, &model->x_out, residual, err);
}

static int model_reserve_backward(struct model *model, struct arena *arena, struct err *err)
{
    const struct model_config *c = &model->shape->config;
    int64_t tokens = model->options.tokens_max, kv = tokens * c->kv_heads * c->head_dim;
    TRY(model_reserve_act(model, arena, MEM_DX, 0, &model->dx, tokens * c->hidden_size, err));
    TRY(model_reserve_act(model, arena, MEM_DK, 0, &model->dk, kv, err));
    return model_reserve_act(model, arena, MEM_DV, 0, &model->dv, kv, err);
}

/* Tiles of norms and projections. */
static int model_reserve_rows(struct model *model, struct arena *arena, int64_t tile,
                              struct err *err)
{
    const struct model_config *c = &model->shape->config;
    int64_t mlp = model->options.tile_mlp, hidden = tile * c->hidden_size;
    TRY(model_reserve_act(model, arena, MEM_TILE_NORM, 0, &model->tile_norm, hidden, err));
    TRY(model_reserve_act(model, arena, MEM_TILE_H, 0, &model->tile_h, hidden, err));
    if (model->options.recompute != JOB_recompute_NONE)
        TRY(model_reserve_act(model, arena, MEM_TILE_MID, 0, &model->tile_mid, mlp * c->hidden_size,
                              err));
    if (c->qk_norm)
        TRY(model_reserve_act(model, arena, MEM_TILE_RAW, 0, &model->tile_raw,
                              mlp * c->heads * c->head_dim, err));
    TRY(model_reserve_act(model, arena, MEM_TILE_QKV, 0, &model->tile_qkv,
                          mlp * (c->heads + 2 * c->kv_heads) * c->head_dim, err));
    return arena_reserve(arena, MEM_TILE_RSTD, 0, &model->tile_rstd, tile * (int64_t)sizeof(float),
                         err);
}

static int model_reserve_tiles(struct model *model, struct arena *arena, struct err *err)
{
    const struct model_config *c = &model->shape->config;
    int64_t mlp = model->options.tile_mlp, loss = model->options.tile_loss;
    int64_t f32 = (int64_t)sizeof(float);
    TRY(model_reserve_rows(model, arena, mlp > loss ? mlp : loss, err));
    TRY(model_reserve_act(model, arena, MEM_TILE_ACT, 0, &model->tile_act,
                          mlp * c->intermediate_size, err));
    TRY(model_reserve_act(model, arena, MEM_TILE_DACT, 0, &model->tile_dact,
                          mlp * c->intermediate_size, err));
    TRY(arena_reserve(arena, MEM_TILE_LOGITS, 0, &model->tile_logits, loss * c->vocab_size * f32,
                      err));
    if (model->device->dev->act_dtype != DTYPE_F32)
        TRY(model_reserve_act(model, arena, MEM_TILE_DLOGITS, 0, &model->tile_dlogits,
                              loss * c->vocab_size, err));
    TRY(arena_reserve(arena, MEM_INV_FREQ, 0, &model->inv_freq, c->head_dim / 2 * f32, err));
    TRY(arena_reserve(arena, MEM_ROW_LOSS, 0, &model->row_loss, model->options.tokens_max * f32,
                      err));
    TRY(arena_reserve(arena, MEM_LOSS_SUM, 0, &model->loss_sum, (int64_t)sizeof(double), err));
    return arena_reserve(arena, MEM_CORRECT, 0, &model->correct, (int64_t)sizeof(int64_t), err);
}

int model_reserve(struct model *model, struct arena *arena, struct err *err)
{
    TRY(model_reserve_layers(model, arena, err));
    if (model->lora != NULL)
        TRY(lora_reserve(model->lora, model->options.tokens_max, model->options.tile_mlp, arena,
                         err));
    TRY(model_reserve_backward(model, arena, err));
    return model_reserve_tiles(model, arena, err);
}

struct model_acts model_layer_acts(const struct model *model, int64_t l)
{
    struct model_acts acts = model->acts[l];
    int64_t within = l % model->options.keep_input_every;
    if (within > 0)
        acts.x = model->segment[model->options.replay_anew ? 0 : within - 1];
    if (model->options.recompute == JOB_recompute_INPUT) {
        acts.o = model->shared.o;
        acts.lse = model->shared.lse;
    }
    if (!model->keep_mlp) {
        acts.gate = model->shared.gate;
        acts.up = model->shared.up;
    }
    return acts;
}
