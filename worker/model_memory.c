/* model_memory: a model's buffers, declared in the arena by what they hold; see model.h. */
#include "worker/layer.h"

static int model_reserve_act(struct model *model, struct arena *arena, enum arena_kind kind,
                             void *slot, int64_t elements, struct err *err)
{
    int64_t bytes = elements * (int64_t)dtype_bytes(model->device->dev->act_dtype);
    return arena_reserve(arena, kind, slot, bytes, err);
}

/* O and LSE. */
static int model_reserve_attention(struct model *model, struct arena *arena,
                                   struct model_acts *acts, struct err *err)
{
    const struct model_config *c = &model->shape->config;
    int64_t heads = model->options.tokens_max * c->heads;
    TRY(model_reserve_act(model, arena, ARENA_ATTENTION, &acts->o, heads * c->head_dim, err));
    return arena_reserve(arena, ARENA_ATTENTION, &acts->lse, heads * (int64_t)sizeof(float), err);
}

/* What a layer keeps only where nothing is recomputed. */
static int model_reserve_all(struct model *model, struct arena *arena, struct model_acts *acts,
                             struct err *err)
{
    const struct model_config *c = &model->shape->config;
    const struct mesh_heads *heads = &model->context.heads;
    int64_t tokens = model->options.tokens_max;
    int64_t head = tokens * model->options.context.mesh.ulysses * c->head_dim;
    TRY(model_reserve_act(model, arena, ARENA_ATTENTION, &acts->q, heads->owned * head, err));
    TRY(model_reserve_act(model, arena, ARENA_ATTENTION, &acts->k, heads->kv_owned * head, err));
    TRY(model_reserve_act(model, arena, ARENA_ATTENTION, &acts->v, heads->kv_owned * head, err));
    return model_reserve_act(model, arena, ARENA_RESIDUAL, &acts->x_mid, tokens * c->hidden_size,
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
            TRY(model_reserve_act(model, arena, ARENA_RESIDUAL, &acts->x, residual, err));
        if (recompute != JOB_recompute_INPUT)
            TRY(model_reserve_attention(model, arena, acts, err));
        if (recompute == JOB_recompute_NONE)
            TRY(model_reserve_all(model, arena, acts, err));
        if (model->keep_mlp) {
            TRY(model_reserve_act(model, arena, ARENA_TILES, &acts->gate, mlp, err));
            TRY(model_reserve_act(model, arena, ARENA_TILES, &acts->up, mlp, err));
        }
    }
    for (int64_t i = 0; i < model_segment(model); i++)
        TRY(model_reserve_act(model, arena, ARENA_RESIDUAL, &model->segment[i], residual, err));
    if (recompute == JOB_recompute_INPUT)
        TRY(model_reserve_attention(model, arena, &model->shared, err));
    if (!model->keep_mlp) {
        TRY(model_reserve_act(model, arena, ARENA_TILES, &model->shared.gate, mlp, err));
        TRY(model_reserve_act(model, arena, ARENA_TILES, &model->shared.up, mlp, err));
    }
    return model_reserve_act(model, arena, ARENA_RESIDUAL, &model->x_out, residual, err);
}

static int model_reserve_backward(struct model *model, struct arena *arena, struct err *err)
{
    const struct model_config *c = &model->shape->config;
    int64_t tokens = model->options.tokens_max, kv = tokens * c->kv_heads * c->head_dim;
    TRY(model_reserve_act(model, arena, ARENA_RESIDUAL, &model->dx, tokens * c->hidden_size, err));
    TRY(model_reserve_act(model, arena, ARENA_ATTENTION, &model->dk, kv, err));
    return model_reserve_act(model, arena, ARENA_ATTENTION, &model->dv, kv, err);
}

/* Tiles of norms and projections. */
static int model_reserve_rows(struct model *model, struct arena *arena, int64_t tile,
                              struct err *err)
{
    const struct model_config *c = &model->shape->config;
    int64_t mlp = model->options.tile_mlp, hidden = tile * c->hidden_size;
    TRY(model_reserve_act(model, arena, ARENA_TILES, &model->tile_norm, hidden, err));
    TRY(model_reserve_act(model, arena, ARENA_TILES, &model->tile_h, hidden, err));
    if (model->options.recompute != JOB_recompute_NONE)
        TRY(model_reserve_act(model, arena, ARENA_TILES, &model->tile_mid, mlp * c->hidden_size,
                              err));
    if (c->qk_norm)
        TRY(model_reserve_act(model, arena, ARENA_TILES, &model->tile_raw,
                              mlp * c->heads * c->head_dim, err));
    TRY(model_reserve_act(model, arena, ARENA_TILES, &model->tile_qkv,
                          mlp * (c->heads + 2 * c->kv_heads) * c->head_dim, err));
    return arena_reserve(arena, ARENA_TILES, &model->tile_rstd, tile * (int64_t)sizeof(float), err);
}

static int model_reserve_tiles(struct model *model, struct arena *arena, struct err *err)
{
    const struct model_config *c = &model->shape->config;
    int64_t mlp = model->options.tile_mlp, loss = model->options.tile_loss;
    int64_t f32 = (int64_t)sizeof(float);
    TRY(model_reserve_rows(model, arena, mlp > loss ? mlp : loss, err));
    TRY(model_reserve_act(model, arena, ARENA_TILES, &model->tile_act, mlp * c->intermediate_size,
                          err));
    TRY(model_reserve_act(model, arena, ARENA_TILES, &model->tile_dact, mlp * c->intermediate_size,
                          err));
    TRY(arena_reserve(arena, ARENA_TILES, &model->tile_logits, loss * c->vocab_size * f32, err));
    if (model->device->dev->act_dtype != DTYPE_F32)
        TRY(model_reserve_act(model, arena, ARENA_TILES, &model->tile_dlogits, loss * c->vocab_size,
                              err));
    TRY(arena_reserve(arena, ARENA_WORKSPACE, &model->inv_freq, c->head_dim / 2 * f32, err));
    TRY(arena_reserve(arena, ARENA_WORKSPACE, &model->row_loss, model->options.tokens_max * f32,
                      err));
    TRY(arena_reserve(arena, ARENA_WORKSPACE, &model->loss_sum, (int64_t)sizeof(double), err));
    return arena_reserve(arena, ARENA_WORKSPACE, &model->correct, (int64_t)sizeof(int64_t), err);
}

int model_reserve(struct model *model, struct arena *arena, struct err *err)
{
    TRY(model_reserve_layers(model, arena, err));
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
