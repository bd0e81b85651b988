/* mem_plan_layers: what layers keep for their backward pass and hand on to each other.
 *
 * A layer works on its kept tensors in a place of its own where that is at hand: on the device, or
 * on the host for x and its like when they are streamed. Where they are kept farther away (offload)
 * one set at hand serves such layers in turn: x is overwritten in place, by x_mid and by the next
 * layer's input, once it has been copied out; what a layer's backward needs comes back into the set
 * while that of the layer above ends, which is why it is planned from the head on. x streamed
 * passes through the device in chunks, and so does O of the layers that are replayed. */
#include "common/mem_plan_private.h"

enum { F32 = sizeof(float) };

/* The set at work, from a layer's forward to its backward; x from the embedding on. */
#define LAYERS_WORK MEM_SPAN(FWD_KV, BWD_QKV)

static bool layers_streamed(const struct mem_builder *b, enum mem_name name)
{
    return b->layout.streamed && mem_name_category(name) == MEM_CATEGORY_RESIDUAL;
}

/* Where layers work on it. */
static enum mem_arena layers_at_hand(const struct mem_builder *b, enum mem_name name)
{
    return layers_streamed(b, name) ? MEM_ARENA_HOST : MEM_ARENA_DEVICE;
}

/* Some layer keeps it away from there. */
static bool layers_leave(const struct mem_builder *b, enum mem_name name)
{
    return (layers_streamed(b, name) ? b->layout.layers_filed : b->layout.layers_away) > 0;
}

/* A layer's own; `index` is the layer but for segments. */
static void layers_keep(struct mem_builder *b, enum mem_name name, int64_t layer, int64_t index,
                        int64_t bytes)
{
    enum mem_arena arena = mem_layout_keeps(&b->layout, layer);
    if (arena == MEM_ARENA_DEVICE)
        arena = layers_at_hand(b, name);
    if (arena == MEM_ARENA_FILE)
        bytes = mem_file_bytes(bytes);
    mem_declare(b, arena, name, index, MEM_LAYERS, bytes);
}

/* The one of all layers in turn. */
static void layers_work(struct mem_builder *b, enum mem_name name, uint64_t phases, int64_t bytes)
{
    mem_declare(b, layers_at_hand(b, name), name, MEM_AT_WORK, phases, bytes);
}

static void layers_residual(struct mem_builder *b, int64_t residual)
{
    const struct mem_layout *l = &b->layout;
    bool work = l->layers_away > 0 || l->streamed;
    for (int64_t layer = 0; layer < l->config.layers; layer++) {
        if (layer % l->keep_input_every == 0)
            layers_keep(b, MEM_X, layer, layer, residual);
        if (l->keep_all)
            layers_keep(b, MEM_X_MID, layer, layer, residual);
    }
    int64_t inputs = l->keep_input_every - 1; /* of a segment's layers after the first */
    if (l->replay_anew && inputs > 0)
        inputs = work ? 0 : 1;
    for (int64_t i = 0; i < inputs && !l->segment_at_hand; i++)
        layers_keep(b, MEM_X_SEGMENT, 0, i, residual);
    for (int64_t i = 0; i < inputs && l->segment_at_hand; i++)
        mem_declare(b, layers_at_hand(b, MEM_X_SEGMENT), MEM_X_SEGMENT, i, MEM_LAYERS, residual);
    if (work)
        layers_work(b, MEM_X, MEM_AT(EMBED) | LAYERS_WORK, residual);
    else
        mem_declare_device(b, MEM_X_OUT, 0, MEM_AT(FWD_MLP) | MEM_AT(HEAD), residual);
    if (l->keep_all && layers_leave(b, MEM_X_MID))
        layers_work(b, MEM_X_MID, LAYERS_WORK, residual);
    mem_declare(b, layers_at_hand(b, MEM_DX), MEM_DX, 0, MEM_SPAN(HEAD, EMBED_BWD), residual);
}

static void layers_attention(struct mem_builder *b)
{
    const struct mem_layout *l = &b->layout;
    int64_t head = l->rows * l->config.head_dim * l->act_bytes;
    int64_t o = l->tokens * l->config.heads * l->config.head_dim * l->act_bytes;
    int64_t lse = l->tokens * l->config.heads * F32;
    bool again = l->recompute == JOB_recompute_INPUT;
    for (int64_t layer = 0; layer < l->config.layers && !again; layer++) {
        layers_keep(b, MEM_O, layer, layer, o);
        layers_keep(b, MEM_LSE, layer, layer, lse);
        if (!l->keep_all)
            continue;
        layers_keep(b, MEM_Q, layer, layer, l->heads.owned * head);
        layers_keep(b, MEM_K, layer, layer, l->heads.kv_owned * head);
        layers_keep(b, MEM_V, layer, layer, l->heads.kv_owned * head);
    }
    if (again || l->layers_away > 0) {
        uint64_t phases =
            again ? MEM_SPAN(FWD_KV, FWD_MLP) | MEM_SPAN(AGAIN_KV, BWD_QKV) : LAYERS_WORK;
        layers_work(b, MEM_O, phases, o);
        layers_work(b, MEM_LSE, phases, lse);
    }
    if (l->keep_all && l->layers_away > 0) {
        layers_work(b, MEM_Q, LAYERS_WORK, l->heads.owned * head);
        layers_work(b, MEM_K, LAYERS_WORK, l->heads.kv_owned * head);
        layers_work(b, MEM_V, LAYERS_WORK, l->heads.kv_owned * head);
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
        layers_keep(b, MEM_GATE, layer, layer, bytes);
        layers_keep(b, MEM_UP, layer, layer, bytes);
    }
    if (l->keep_mlp && l->layers_away == 0)
        return;
    uint64_t tile = MEM_AT(FWD_MLP) | MEM_AT(REPLAY) | MEM_AT(BWD_MLP);
    layers_work(b, MEM_GATE, l->keep_mlp ? LAYERS_WORK : tile, bytes);
    layers_work(b, MEM_UP, l->keep_mlp ? LAYERS_WORK : tile, bytes);
}

/* What passes in tiles of tokens: O of the layers replayed; x and its gradient; on the host, pieces
 * on their way to a file or from it, each with room to start at a page and to end at one. */
static void layers_chunks(struct mem_builder *b)
{
    const struct mem_layout *l = &b->layout;
    int64_t tile = l->tile_mlp > l->tile_loss ? l->tile_mlp : l->tile_loss;
    int64_t hidden = tile * l->config.hidden_size * l->act_bytes;
    int64_t o = l->tile_mlp * l->config.heads * l->config.head_dim * l->act_bytes;
    int64_t piece = mem_file_bytes(hidden > o ? hidden : o) + 2 * MEM_FILE_ALIGN_BYTES;
    for (int i = 0; i < MEM_CHUNKS_O && l->layers_away > 0 && l->keep_input_every > 1; i++)
        mem_declare_device(b, MEM_CHUNK, MEM_CHUNK_O + i, MEM_AT(REPLAY), o);
    for (int i = 0; i < MEM_CHUNKS_X && l->streamed; i++)
        mem_declare_device(b, MEM_CHUNK, MEM_CHUNK_X + i, MEM_LAYERS, hidden);
    for (int i = 0; i < MEM_CHUNKS_FILE && l->layers_filed > 0; i++)
        mem_declare(b, MEM_ARENA_HOST, MEM_CHUNK, MEM_CHUNK_FILE + i, MEM_LAYERS, piece);
}

void mem_plan_layers(struct mem_builder *b)
{
    const struct mem_layout *l = &b->layout;
    layers_residual(b, l->tokens * l->config.hidden_size * l->act_bytes);
    layers_attention(b);
    layers_mlp(b);
    layers_chunks(b);
}
