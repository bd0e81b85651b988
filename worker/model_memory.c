/* model_memory: a model's buffers, by the names that common/mem_plan knows them by; see model.h. */
#include "worker/layer.h"

static int model_reserve_act(struct model *model, struct arena *arena, enum mem_name name,
                             int64_t index, void *slot, int64_t elements, struct err *err)
{
    int64_t bytes = elements * (int64_t)dtype_bytes(model->device->dev->act_dtype);
    return arena_reserve(arena, name, index, slot, bytes, err);
}

/* What layer l keeps, or has back while its segment is replayed: `name`, `index` in the plan. */
static int model_keep(struct model *model, struct arena *arena, enum offload_tensor_id id,
                      int64_t l, struct offload_name name, void *slot, int64_t elements,
                      struct err *err)
{
    int64_t bytes = elements * (int64_t)dtype_bytes(model->device->dev->act_dtype);
    return offload_keep(&model->offload, arena, id, l, &name, slot, bytes, err);
}

static int model_work(struct model *model, struct arena *arena, enum offload_tensor_id id,
                      enum mem_name name, int64_t elements, struct err *err)
{
    int64_t bytes = elements * (int64_t)dtype_bytes(model->device->dev->act_dtype);
    return offload_work(&model->offload, arena, id, name, bytes, err);
}

/* Elements of the tensors that layers keep. */
struct model_sizes {
    int64_t x, o, q, kv, mlp;
    int64_t lse_bytes;
};

static struct model_sizes model_sizes(const struct model *model)
{
    const struct model_config *c = &model->shape->config;
    const struct mesh_heads *heads = &model->context.heads;
    int64_t tokens = model->options.tokens_max;
    int64_t head = tokens * model->options.context.mesh.ulysses * c->head_dim;
    return (struct model_sizes){.x = tokens * c->hidden_size,
                                .o = tokens * c->heads * c->head_dim,
                                .q = heads->owned * head,
                                .kv = heads->kv_owned * head,
                                .mlp = model->options.tile_mlp * c->intermediate_size,
                                .lse_bytes = tokens * c->heads * (int64_t)sizeof(float)};
}

static int model_reserve_layer(struct model *model, struct arena *arena, int64_t l, struct err *err)
{
    struct model_acts *acts = &model->acts[l];
    struct model_sizes size = model_sizes(model);
    enum job_recompute recompute = model->options.recompute;
    if (l % model->options.keep_input_every == 0)
        TRY(model_keep(model, arena, OFFLOAD_X, l, (struct offload_name){MEM_X, l}, &acts->x,
                       size.x, err));
    if (recompute != JOB_recompute_INPUT) {
        const struct offload_name lse = {MEM_LSE, l};
        TRY(model_keep(model, arena, OFFLOAD_O, l, (struct offload_name){MEM_O, l}, &acts->o,
                       size.o, err));
        TRY(offload_keep(&model->offload, arena, OFFLOAD_LSE, l, &lse, &acts->lse, size.lse_bytes,
                         err));
    }
    if (recompute == JOB_recompute_NONE) {
        TRY(model_keep(model, arena, OFFLOAD_Q, l, (struct offload_name){MEM_Q, l}, &acts->q,
                       size.q, err));
        TRY(model_keep(model, arena, OFFLOAD_K, l, (struct offload_name){MEM_K, l}, &acts->k,
                       size.kv, err));
        TRY(model_keep(model, arena, OFFLOAD_V, l, (struct offload_name){MEM_V, l}, &acts->v,
                       size.kv, err));
        TRY(model_keep(model, arena, OFFLOAD_X_MID, l, (struct offload_name){MEM_X_MID, l},
                       &acts->x_mid, size.x, err));
    }
    if (!model->keep_mlp)
        return 0;
    TRY(model_keep(model, arena, OFFLOAD_GATE, l, (struct offload_name){MEM_GATE, l}, &acts->gate,
                   size.mlp, err));
    return model_keep(model, arena, OFFLOAD_UP, l, (struct offload_name){MEM_UP, l}, &acts->up,
                      size.mlp, err);
}

/* The set for what a layer does not have at hand, and the last layer's output: x of the set, once
 * that layer is done with it. */
static int model_reserve_work(struct model *model, struct arena *arena, struct err *err)
{
    struct model_sizes size = model_sizes(model);
    const struct model_options *o = &model->options;
    bool away = o->layers_away > 0, keep_all = o->recompute == JOB_recompute_NONE;
    if (away || o->recompute == JOB_recompute_INPUT) {
        TRY(model_work(model, arena, OFFLOAD_O, MEM_O, size.o, err));
        TRY(offload_work(&model->offload, arena, OFFLOAD_LSE, MEM_LSE, size.lse_bytes, err));
    }
    if (away && keep_all) {
        TRY(model_work(model, arena, OFFLOAD_Q, MEM_Q, size.q, err));
        TRY(model_work(model, arena, OFFLOAD_K, MEM_K, size.kv, err));
        TRY(model_work(model, arena, OFFLOAD_V, MEM_V, size.kv, err));
    }
    if (keep_all && (o->streamed ? o->layers_filed > 0 : away))
        TRY(model_work(model, arena, OFFLOAD_X_MID, MEM_X_MID, size.x, err));
    if (away || !model->keep_mlp) {
        TRY(model_work(model, arena, OFFLOAD_GATE, MEM_GATE, size.mlp, err));
        TRY(model_work(model, arena, OFFLOAD_UP, MEM_UP, size.mlp, err));
    }
    if (away || o->streamed)
        return model_work(model, arena, OFFLOAD_X, MEM_X, size.x, err);
    return model_reserve_act(model, arena, MEM_X_OUT, 0, &model->x_out, size.x, err);
}

static int64_t model_segment_kept(const struct model *model)
{
    const struct model_options *o = &model->options;
    if (!o->replay_anew || o->keep_input_every == 1)
        return o->keep_input_every - 1;
    return o->layers_away > 0 || o->streamed ? 0 : 1;
}

static int model_reserve_layers(struct model *model, struct arena *arena, struct err *err)
{
    int64_t layers = model->shape->config.layers, segment = model_segment_kept(model);
    for (int64_t l = 0; l < layers; l++)
        TRY(model_reserve_layer(model, arena, l, err));
    for (int64_t i = 0; i < segment; i++)
        TRY(model_keep(model, arena, OFFLOAD_X, layers + i, (struct offload_name){MEM_X_SEGMENT, i},
                       &model->segment[i], model_sizes(model).x, err));
    return model_reserve_work(model, arena, err);
}

static int model_reserve_chunks(struct model *model, struct arena *arena, struct err *err)
{
    const struct model_config *c = &model->shape->config;
    const struct model_options *o = &model->options;
    int64_t act = (int64_t)dtype_bytes(model->device->dev->act_dtype);
    int64_t tile = o->tile_mlp > o->tile_loss ? o->tile_mlp : o->tile_loss;
    int64_t hidden = tile * c->hidden_size * act,
            heads = o->tile_mlp * c->heads * c->head_dim * act;
    bool replayed = o->layers_away > 0 && o->keep_input_every > 1;
    int64_t piece = hidden > heads ? hidden : heads;
    return offload_chunks(&model->offload, arena, replayed ? heads : 0, o->streamed ? hidden : 0,
                          o->layers_filed > 0 ? piece : 0, err);
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
    TRY(model_reserve_chunks(model, arena, err));
    TRY(model_reserve_backward(model, arena, err));
    return model_reserve_tiles(model, arena, err);
}

int64_t model_input_index(const struct model *model, int64_t l)
{
    int64_t within = l % model->options.keep_input_every;
    return within == 0 ? l : model->shape->config.layers + within - 1;
}

struct model_acts model_layer_acts(const struct model *model, int64_t l)
{
    struct model_acts acts = model->acts[l];
    int64_t within = l % model->options.keep_input_every;
    if (within > 0)
        acts.x = model->segment[model->options.replay_anew ? 0 : within - 1];
#define PICK(member, id) \
    acts.member = acts.member != NULL ? acts.member : model->offload.tensors[OFFLOAD_##id].work
    PICK(x, X);
    PICK(q, Q);
    PICK(k, K);
    PICK(v, V);
    PICK(o, O);
    PICK(lse, LSE);
    PICK(x_mid, X_MID);
    PICK(gate, GATE);
    PICK(up, UP);
#undef PICK
    return acts;
}

void *model_layer_output(const struct model *model, int64_t l)
{
    if (l + 1 < model->shape->config.layers)
        return model_layer_acts(model, l + 1).x;
    void *work = model->offload.tensors[OFFLOAD_X].work;
    return work != NULL ? work : model->x_out;
}
