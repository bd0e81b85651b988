/* mem_plan_layers: what layers keep for their backward pass and hand on to each other.
 *
 * On the device: each layer's kept tensors, the inputs of a segment, the last layer's output. Where
 * kept tensors leave the device (offload) each layer has its copy on the host or in a file, and one
 * set on the device serves the layer at work: x is overwritten in place, by x_mid and by the next
 * layer's input, once it has been copied out. Where x is streamed, all of its kind lie on the host
 * and pass in chunks. */
#include "common/mem_plan_private.h"

enum { F32 = sizeof(float), CHUNKS_STREAMED = 6, CHUNKS_FILE = 4 };

/* Phases in which the set at work holds what its layer keeps. */
#define LAYERS_FORWARD MEM_SPAN(FWD_KV, FWD_MLP)

static enum mem_arena layers_keep_at(const struct mem_builder *b, bool residual)
{
    if (b->layout.to_file)
        return MEM_ARENA_FILE;
    return b->layout.offloaded || (residual && b->layout.streamed) ? MEM_ARENA_HOST
                                                                   : MEM_ARENA_DEVICE;
}

/* A layer's own. */
static void layers_keep(struct mem_builder *b, enum mem_name name, int64_t layer, int64_t bytes)
{
    bool residual = mem_name_category(name) == MEM_CATEGORY_RESIDUAL;
    mem_declare(b, layers_keep_at(b, residual), name, layer, MEM_LAYERS, bytes);
}

/* The one of all layers in turn. */
static void layers_work(struct mem_builder *b, enum mem_name name, uint64_t phases, int64_t bytes)
{
    bool residual = mem_name_category(name) == MEM_CATEGORY_RESIDUAL;
    enum mem_arena arena = residual && b->layout.streamed ? MEM_ARENA_HOST : MEM_ARENA_DEVICE;
    mem_declare(b, arena, name, MEM_AT_WORK, phases, bytes);
}

static void layers_residual(struct mem_builder *b, int64_t residual)
{
    const struct mem_layout *l = &b->layout;
    bool work = l->offloaded || l->streamed;
    for (int64_t layer = 0; layer < l->config.layers; layer++) {
        if (layer % l->keep_input_every == 0)
            layers_keep(b, MEM_X, layer, residual);
        if (l->keep_all)
            layers_keep(b, MEM_X_MID, layer, residual);
    }
    int64_t inputs = l->keep_input_every - 1; /* of a segment's layers after the first */
    if (l->replay_anew && inputs > 0)
        inputs = work ? 0 : 1;
    for (int64_t i = 0; i < inputs; i++)
        layers_keep(b, MEM_X_SEGMENT, i, residual);
    if (work)
        layers_work(b, MEM_X, MEM_SPAN(EMBED, BWD_QKV), residual);
    else
        mem_declare_device(b, MEM_X_OUT, 0, MEM_AT(FWD_MLP) | MEM_AT(HEAD), residual);
    if (work && l->keep_all)
        layers_work(b, MEM_X_MID, MEM_AT(FWD_MLP) | MEM_AT(BWD_MLP), residual);
    mem_declare(b, l->streamed ? MEM_ARENA_HOST : MEM_ARENA_DEVICE, MEM_DX, 0,
                MEM_SPAN(HEAD, EMBED_BWD), residual);
}

static void layers_attention(struct mem_builder *b)
{
    const struct mem_layout *l = &b->layout;
    int64_t head = l->rows * l->config.head_dim * l->act_bytes;
    int64_t o = l->tokens * l->config.heads * l->config.head_dim * l->act_bytes;
    int64_t lse = l->tokens * l->config.heads * F32;
    bool again = l->recompute == JOB_recompute_INPUT;
    for (int64_t layer = 0; layer < l->config.layers && !again; layer++) {
        layers_keep(b, MEM_O, layer, o);
        layers_keep(b, MEM_LSE, layer, lse);
        if (!l->keep_all)
            continue;
        layers_keep(b, MEM_Q, layer, l->heads.owned * head);
        layers_keep(b, MEM_K, layer, l->heads.kv_owned * head);
        layers_keep(b, MEM_V, layer, l->heads.kv_owned * head);
    }
    if (again || l->offloaded) {
        uint64_t backward = again ? MEM_SPAN(AGAIN_KV, BWD_QKV) : MEM_SPAN(BWD_MLP, BWD_QKV);
        layers_work(b, MEM_O, LAYERS_FORWARD | backward, o);
        layers_work(b, MEM_LSE, LAYERS_FORWARD | backward, lse);
    }
    if (l->keep_all && l->offloaded) {
        uint64_t phases = LAYERS_FORWARD | MEM_SPAN(BWD_KV, BWD_DKV);
        layers_work(b, MEM_Q, phases, l->heads.owned * head);
        layers_work(b, MEM_K, phases, l->heads.kv_owned * head);
        layers_work(b, MEM_V, phases, l->heads.kv_owned * head);
    }
    /* Complete with the last stage that reads a K/V head: with one such group, after all stages. */
    bool groups = l->heads.stages > l->heads.kv_stages;
    uint64_t phases = groups ? MEM_SPAN(BWD_KV, BWD_QKV) : MEM_SPAN(BWD_DKV, BWD_QKV);
    int64_t kv = l->tokens * l->config.kv_heads * l->config.head_dim * l->act_bytes;
    mem_declare_device(b, MEM_DK, 0, phases, kv);
    mem_declare_device(b, MEM_DV, 0, phases, kv);
}

static void layers_mlp(struct mem_builder *b)
{
    const struct mem_layout *l = &b->layout;
    int64_t bytes = l->tile_mlp * l->config.intermediate_size * l->act_bytes;
    for (int64_t layer = 0; layer < l->config.layers && l->keep_mlp; layer++) {
        layers_keep(b, MEM_GATE, layer, bytes);
        layers_keep(b, MEM_UP, layer, bytes);
    }
    if (l->keep_mlp && !l->offloaded)
        return;
    uint64_t phases = MEM_AT(FWD_MLP) | MEM_AT(REPLAY) | MEM_AT(BWD_MLP);
    layers_work(b, MEM_GATE, phases, bytes);
    layers_work(b, MEM_UP, phases, bytes);
}

/* What passes in tiles of tokens: O of the layers replayed; x and its gradient, read and written.
 */
static void layers_chunks(struct mem_builder *b)
{
    const struct mem_layout *l = &b->layout;
    int64_t hidden = l->tile_mlp * l->config.hidden_size * l->act_bytes;
    int64_t o = l->tile_mlp * l->config.heads * l->config.head_dim * l->act_bytes;
    for (int i = 0; i < 2 && l->offloaded && l->keep_input_every > 1; i++)
        mem_declare_device(b, MEM_CHUNK, i, MEM_AT(REPLAY), o);
    for (int i = 0; i < CHUNKS_STREAMED && l->streamed; i++)
        mem_declare_device(b, MEM_CHUNK, 2 + i, MEM_LAYERS, hidden);
    for (int i = 0; i < CHUNKS_FILE && l->to_file; i++)
        mem_declare(b, MEM_ARENA_HOST, MEM_CHUNK, 2 + CHUNKS_STREAMED + i, MEM_LAYERS,
                    hidden > o ? hidden : o);
}

void mem_plan_layers(struct mem_builder *b)
{
    const struct mem_layout *l = &b->layout;
    layers_residual(b, l->tokens * l->config.hidden_size * l->act_bytes);
    layers_attention(b);
    layers_mlp(b);
    layers_chunks(b);
}
