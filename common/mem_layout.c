/* mem_layout: see mem_layout.h. */
#include "common/mem_layout.h"

#include "common/lora_shape.h"
#include "common/must.h"

#define LAYOUT_CUDNN_SPAN ((int64_t)1 << 31) /* from here its gradients are silently wrong */

int64_t mem_layout_slots(int64_t sequences, int64_t grad_accum, int data_ranks)
{
    int64_t per_rank = (sequences + data_ranks - 1) / data_ranks;
    if (grad_accum <= 0 || grad_accum > per_rank)
        return 1;
    return (per_rank + grad_accum - 1) / grad_accum;
}

int64_t mem_layout_share(int64_t elements, int64_t shards)
{
    must(shards > 0);
    int64_t share = (elements + shards - 1) / shards;
    return (share + MODEL_SHAPE_ALIGN - 1) / MODEL_SHAPE_ALIGN * MODEL_SHAPE_ALIGN;
}

enum mem_arena mem_layout_keeps(const struct mem_layout *layout, int64_t layer)
{
    return layer < layout->layers_filed  ? MEM_ARENA_FILE
           : layer < layout->layers_away ? MEM_ARENA_HOST
                                         : MEM_ARENA_DEVICE;
}

int64_t mem_layout_shard(const struct model_shape *shape, int64_t unit, int64_t shards)
{
    must(unit >= 0 && unit < shape->unit_count);
    return mem_layout_share(shape->unit_elements[unit], shards);
}

int64_t mem_layout_state_chunk(int64_t largest_shard)
{
    int64_t eighth = (largest_shard / 8 + MEM_CHUNK_ALIGN - 1) / MEM_CHUNK_ALIGN * MEM_CHUNK_ALIGN;
    int64_t chunk = eighth < MEM_CHUNK_ELEMENTS_MAX ? eighth : MEM_CHUNK_ELEMENTS_MAX;
    return chunk < largest_shard ? chunk : largest_shard;
}

static int64_t layout_tile(int64_t wanted, int64_t otherwise, int64_t tokens)
{
    int64_t tile = wanted > 0 ? wanted : otherwise;
    return tile < tokens ? tile : tokens;
}

static void layout_recompute(struct mem_layout *layout, const struct job_spec *spec)
{
    layout->recompute =
        spec->recompute == JOB_recompute_AUTO ? JOB_recompute_NONE : spec->recompute;
    bool segments = layout->recompute == JOB_recompute_ATTENTION && spec->keep_input_every > 0;
    layout->keep_input_every = segments ? spec->keep_input_every : 1;
    layout->keep_all = layout->recompute == JOB_recompute_NONE;
    layout->keep_mlp = layout->keep_all && layout->tile_mlp == layout->tokens;
}

/* 0 or less: all. */
static int64_t layout_layers(int64_t wanted, int64_t all)
{
    return wanted > 0 && wanted < all ? wanted : all;
}

static int64_t layout_segment_limit = MEM_SEGMENT_BYTES;

void mem_layout_segment_limit(int64_t bytes)
{
    layout_segment_limit = bytes;
}

/* The first layers are the last to come back: they go farthest. */
static void layout_offload(struct mem_layout *layout, const struct job_spec *spec)
{
    bool to_file = spec->offload == JOB_offload_FILE;
    if (to_file || spec->offload == JOB_offload_HOST)
        layout->layers_away = layout_layers(spec->offload_layers, layout->config.layers);
    if (to_file)
        layout->layers_filed = layout_layers(spec->file_layers, layout->layers_away);
    layout->streamed = spec->stream_residual == JOB_toggle_ON;
    layout->grad_on_host = spec->states == JOB_states_HOST;
    layout->master_on_host = layout->grad_on_host || spec->states == JOB_states_HOST_OPTIMIZER;
    int64_t unit = layout->tokens * layout->config.hidden_size * layout->act_bytes;
    layout->segment_at_hand = layout->keep_input_every == 1 ||
                              unit <= layout_segment_limit / (layout->keep_input_every - 1);
    layout->replay_anew = spec->seq_len >= MEM_REPLAY_ANEW_TOKENS;
}

static void layout_lora(struct mem_layout *layout, const struct mem_request *request)
{
    const struct job_spec *spec = request->spec;
    if (!spec->lora)
        return;
    layout->lora_r = spec->lora_r;
    layout->lora_modules = spec->lora_modules;
    layout->lora_elements = lora_shape_unit_elements(request->shape, spec);
    layout->lora_dropout = spec->lora_dropout > 0;
}

struct mem_layout mem_layout_make(const struct mem_request *request)
{
    const struct job_spec *spec = request->spec;
    const struct model_config *config = &request->shape->config;
    int ring = spec->ring > 0 ? (int)spec->ring : 1;
    int ulysses = spec->ulysses > 0 ? (int)spec->ulysses : 1;
    struct mem_layout layout = {.config = *config,
                                .backend = request->backend,
                                .act_bytes = request->backend == MEM_BACKEND_CPU ? 4 : 2,
                                .mesh = mesh_make(request->world, ring, ulysses),
                                .shards = spec->fsdp ? request->world : 1};
    bool staged = spec->context_kind == JOB_context_kind_UPIPE && spec->heads_per_stage > 0;
    layout.heads = mesh_heads_make(config->heads, config->kv_heads, ulysses,
                                   staged ? spec->heads_per_stage : config->heads / ulysses);
    layout.overlap = spec->overlap == JOB_overlap_ON && ulysses > 1 && layout.heads.stages > 1;
    layout.slots = mem_layout_slots(spec->sequences, spec->grad_accum, layout.mesh.data);
    struct mesh_seq seq = mesh_seq_make(&layout.mesh, layout.slots * spec->seq_len);
    layout.sequence = seq.padded;
    layout.tokens = seq.shard;
    layout.rows = seq.shard * ulysses;
    must(layout.tokens > 0);
    layout.tile_mlp = layout_tile(spec->tile_mlp, layout.tokens, layout.tokens);
    layout.tile_loss = layout_tile(spec->tile_loss, MEM_TILE_LOSS_TOKENS, layout.tokens);
    layout_recompute(&layout, spec);
    layout_offload(&layout, spec);
    layout_lora(&layout, request);
    return layout;
}

/* cuDNN's backward takes whole stage tensors. */
int mem_layout_check(const struct mem_layout *layout, struct err *err)
{
    if (layout->backend != MEM_BACKEND_CUDA)
        return 0;
    int64_t span = layout->heads.per_stage * layout->rows * layout->config.head_dim;
    if (span < LAYOUT_CUDNN_SPAN)
        return 0;
    return err_set_field(err, ERR_UNSUPPORTED, "ithaca.context_parallel.heads_per_stage",
                         "%lld heads a stage over %lld tokens span %lld elements, and cuDNN's "
                         "gradients are right below 2^31 only; ask for fewer heads_per_stage "
                         "(kind upipe), a higher degree of ring, or a shorter seq_len",
                         (long long)layout->heads.per_stage, (long long)layout->rows,
                         (long long)span);
}

int64_t mem_layout_first_layer(const struct mem_layout *layout, const struct job_spec *spec)
{
    int64_t left_out = layout->config.layers - spec->rehearse_layers;
    if (!spec->rehearse || spec->rehearse_layers == 0 || left_out < 0)
        return 0;
    return left_out - left_out % layout->keep_input_every;
}
