/* time_work_attention: the stages of attention (worker/context.h): what is projected, sent and
 * computed in each, and around the ring. */
#include "common/time_work_private.h"

enum { F32 = sizeof(float) };

/* Bytes of `heads` heads of rows, once. */
static double attention_bytes(const struct time_builder *b, int64_t heads, int64_t rows,
                              int64_t element)
{
    return (double)heads * (double)rows * (double)b->config->head_dim * (double)element;
}

/* K/V heads that a stage's projection makes for this rank's tokens: each once for all who read it.
 */
static int64_t attention_kv_heads(const struct mem_layout *l)
{
    return l->heads.kv_staged * (l->mesh.ulysses / l->heads.sharers);
}

/* One product for heads that lie together; on the CPU a product a head where they do not. */
static void attention_product(const struct time_builder *b, enum time_op op, double calls,
                              int64_t rows, int64_t heads, int64_t width)
{
    const struct mem_layout *l = b->layout;
    int64_t d = b->config->head_dim;
    bool apart = l->mesh.ulysses > 1 && l->backend == MEM_BACKEND_CPU;
    if (apart)
        time_add_gemm(b, op, calls * (double)heads, rows, d, width);
    else
        time_add_gemm(b, op, calls, rows, d * heads, width);
}

/* By a module's weight, and by the heads' part of its adapter's B. */
static void attention_module(const struct time_builder *b, enum job_lora_module module,
                             double calls, int64_t rows, int64_t heads)
{
    attention_product(b, TIME_GEMM_Y, calls, rows, heads, b->config->hidden_size);
    if (time_lora_has(b, module))
        attention_product(b, TIME_GEMM_Y, calls, rows, heads, b->layout->lora_r);
}

/* A norm of the tiles, and products for q_heads and kv_heads, `calls` times. */
static void attention_project(const struct time_builder *b, double calls, int64_t q_heads,
                              int64_t kv_heads)
{
    const struct mem_layout *l = b->layout;
    const struct model_config *c = b->config;
    int64_t left = l->tokens % l->tile_mlp;
    const int64_t rows[] = {l->tile_mlp, left};
    const double tiles[] = {calls * (double)(l->tokens / l->tile_mlp), left > 0 ? calls : 0};
    for (int i = 0; i < 2; i++) {
        double hidden = (double)(rows[i] * c->hidden_size * l->act_bytes);
        time_add(b, TIME_RMSNORM, tiles[i], 2 * hidden);
        if (q_heads > 0)
            attention_module(b, JOB_lora_module_Q, tiles[i], rows[i], q_heads);
        if (kv_heads == 0)
            continue;
        attention_module(b, JOB_lora_module_K, tiles[i], rows[i], kv_heads);
        attention_module(b, JOB_lora_module_V, tiles[i], rows[i], kv_heads);
    }
    for (int kind = 0; kind < 2; kind++) { /* of q, of k */
        double bytes =
            2 * attention_bytes(b, kind == 0 ? q_heads : kv_heads, l->tokens, l->act_bytes);
        if (c->qk_norm)
            time_add(b, TIME_RMSNORM, calls, bytes);
        time_add(b, TIME_ROPE, calls, bytes);
    }
}

/* An all-to-all of `heads` heads a rank: what comes from the others. */
static void attention_exchange(const struct time_builder *b, double calls, int64_t heads,
                               int64_t element, bool beside)
{
    const struct mem_layout *l = b->layout;
    double degree = (double)l->mesh.ulysses;
    double bytes = attention_bytes(b, heads, l->rows, element) * (degree - 1) / degree;
    if (beside)
        time_add_beside(b, TIME_ALL_TO_ALL, calls, bytes);
    else
        time_add(b, TIME_ALL_TO_ALL, calls, bytes);
}

/* q of every stage, k and v of those with new ones: to where attention reads them. */
static void attention_inputs(const struct time_builder *b)
{
    const struct mem_layout *l = b->layout;
    double stages = (double)l->heads.stages, turns = stages / (double)l->heads.kv_stages;
    time_lora_inputs(b, (double)(l->tokens / l->tile_mlp), l->tile_mlp);
    time_lora_inputs(b, l->tokens % l->tile_mlp > 0, l->tokens % l->tile_mlp);
    if (l->mesh.ulysses == 1) { /* q, k and v of a tile in one go */
        attention_project(b, turns, l->heads.per_stage, l->heads.kv_staged);
        attention_project(b, stages - turns, l->heads.per_stage, 0);
        return;
    }
    attention_project(b, turns, 0, attention_kv_heads(l));
    attention_project(b, stages, l->heads.per_stage * l->mesh.ulysses, 0);
    attention_exchange(b, 2 * turns, l->heads.kv_staged, l->act_bytes, l->overlap);
    attention_exchange(b, stages, l->heads.per_stage, l->act_bytes, l->overlap);
}

/* K and V (and, in backward, their gradients) passed on, `hops` times a stage. */
static void attention_pass(const struct time_builder *b, double hops, int64_t element)
{
    double bytes = attention_bytes(b, b->layout->heads.kv_staged, b->layout->rows, element);
    time_add(b, TIME_SEND_RECV, 2 * hops * (double)b->layout->heads.stages, bytes);
}

/* Pairs of the causal call and of each rectangle after it, of one head on this rank. */
static void attention_pairs(const struct time_builder *b, double *ret_causal, double *ret_rest)
{
    const struct mem_layout *l = b->layout;
    double rows = (double)l->rows, all = time_work_pairs(b->job) / l->mesh.ring;
    double causal = rows * (rows + 1) / 2;
    *ret_causal = l->mesh.ring == 1 || all < causal ? all : causal;
    *ret_rest = l->mesh.ring == 1 ? 0 : (all - *ret_causal) / (l->mesh.ring - 1);
}

static void attention_calls(const struct time_builder *b, enum time_op op)
{
    const struct mem_layout *l = b->layout;
    double causal, rest, stages = (double)l->heads.stages, hops = l->mesh.ring - 1;
    double heads = (double)l->heads.per_stage, rows = (double)l->rows;
    attention_pairs(b, &causal, &rest);
    time_add_attention(b, op, stages, heads * causal, heads * rows);
    time_add_attention(b, op, stages * hops, heads * rest, heads * rows);
}

static void attention_ring_forward(const struct time_builder *b)
{
    const struct mem_layout *l = b->layout;
    double stages = (double)l->heads.stages, hops = l->mesh.ring - 1;
    double o = attention_bytes(b, l->heads.per_stage, l->rows, 1);
    if (l->mesh.ring == 1)
        return;
    attention_pass(b, hops, l->act_bytes);
    time_add(b, TIME_CAST, stages, o * (double)(l->act_bytes + F32));
    time_add(b, TIME_ATTENTION_MERGE, stages * hops, o / 2 * (double)(l->act_bytes + 2 * F32));
    time_add(b, TIME_UNPACK, stages, o * (double)(l->act_bytes + F32));
}

void time_work_attention(const struct time_builder *b)
{
    const struct mem_layout *l = b->layout;
    double stages = (double)l->heads.stages;
    attention_inputs(b);
    attention_calls(b, TIME_ATTENTION);
    attention_ring_forward(b);
    if (l->mesh.ulysses == 1)
        return;
    attention_exchange(b, stages, l->heads.per_stage, l->act_bytes, false);
    time_add(b, TIME_UNPACK, stages,
             2 * attention_bytes(b, l->heads.per_stage, l->rows, l->act_bytes));
}

/* dO through Wo, delta, both to the head side. */
static void attention_output_gradient(const struct time_builder *b)
{
    const struct mem_layout *l = b->layout;
    double stages = (double)l->heads.stages;
    int64_t heads = l->heads.per_stage * l->mesh.ulysses;
    attention_product(b, TIME_GEMM_DX, stages, l->tokens, heads, b->config->hidden_size);
    if (time_lora_has(b, JOB_lora_module_O)) {
        attention_product(b, TIME_GEMM_DX, stages, l->tokens, heads, l->lora_r);
        if (l->lora_dropout)
            time_add(b, TIME_DROPOUT, stages,
                     3 * attention_bytes(b, heads, l->tokens, l->act_bytes));
    }
    time_add(b, TIME_ATTENTION_DELTA, stages,
             2 * attention_bytes(b, heads, l->tokens, l->act_bytes));
    if (l->mesh.ulysses == 1)
        return;
    double degree = (double)l->mesh.ulysses;
    double delta = (double)l->heads.per_stage * (double)l->rows * F32 * (degree - 1) / degree;
    attention_exchange(b, stages, l->heads.per_stage, l->act_bytes, l->overlap);
    time_add(b, TIME_ALL_TO_ALL, stages, delta);
}

/* dq to its tokens every stage, dk and dv once for all stages that read them. */
static void attention_returns(const struct time_builder *b)
{
    const struct mem_layout *l = b->layout;
    double stages = (double)l->heads.stages, turns = stages / (double)l->heads.kv_stages;
    double q = attention_bytes(b, l->heads.per_stage, l->rows, 1);
    double kv = attention_bytes(b, l->heads.kv_staged, l->rows, 1);
    bool whole = l->mesh.ulysses == 1;
    double kv_out = attention_bytes(b, attention_kv_heads(l), l->tokens, l->act_bytes);
    if (!whole) {
        time_add(b, TIME_CAST, stages, q * (double)(F32 + l->act_bytes));
        attention_exchange(b, stages, l->heads.per_stage, l->act_bytes, false);
        attention_exchange(b, 2 * turns, l->heads.kv_staged, F32, false);
    }
    time_add(b, TIME_UNPACK, stages, q * (double)((whole ? F32 : l->act_bytes) + l->act_bytes));
    time_add(b, TIME_UNPACK, 2 * turns, kv * F32 + kv_out);
}

void time_work_attention_bwd(const struct time_builder *b)
{
    const struct mem_layout *l = b->layout;
    double stages = (double)l->heads.stages, turns = stages / (double)l->heads.kv_stages;
    bool again = l->recompute == JOB_recompute_INPUT;
    struct time_builder inputs = *b;
    inputs.phase = TIME_PHASE_RECOMPUTE;
    if (!l->keep_all && !(again && l->heads.stages == 1))
        attention_inputs(&inputs);
    attention_output_gradient(b);
    time_add(b, TIME_ZERO, stages, attention_bytes(b, l->heads.per_stage, l->rows, F32));
    time_add(b, TIME_ZERO, 2 * turns, attention_bytes(b, l->heads.kv_staged, l->rows, F32));
    attention_calls(b, TIME_ATTENTION_BWD);
    if (l->mesh.ring > 1) {
        attention_pass(b, l->mesh.ring - 1, l->act_bytes);
        attention_pass(b, l->mesh.ring, F32);
    }
    attention_returns(b);
}
