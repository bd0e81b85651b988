/* time_work: see time_work.h. Follows the order of the worker: model.c for the step, layer_fwd.c
 * and layer_bwd.c for what a layer does by token, head.c for the loss; attention is in
 * time_work_attention.c, parameters in time_work_states.c, copies in time_work_copies.c. */
#include "common/must.h"
#include "common/time_work_private.h"

enum { F32 = sizeof(float), I32 = sizeof(int32_t) };

#define X(id, name_, part_, like_) \
    [TIME_##id] = {.name = name_, .part = TIME_PART_##part_, .like = TIME_##like_},
static const struct {
    const char *name;
    enum time_part part;
    enum time_op like;
} time_ops[TIME_OP_COUNT] = {TIME_OP_TABLE(X)};
#undef X

const char *time_op_name(enum time_op op)
{
    must((unsigned)op < TIME_OP_COUNT);
    return time_ops[op].name;
}

enum time_part time_op_part(enum time_op op)
{
    must((unsigned)op < TIME_OP_COUNT);
    return time_ops[op].part;
}

enum time_op time_op_like(enum time_op op)
{
    must((unsigned)op < TIME_OP_COUNT);
    return time_ops[op].like;
}

const char *time_part_name(enum time_part part)
{
#define X(id, name) [TIME_PART_##id] = name,
    static const char *const names[TIME_PART_COUNT] = { TIME_PART_TABLE(X) };
#undef X
    must((unsigned)part < TIME_PART_COUNT);
    return names[part];
}

const char *time_phase_name(enum time_phase phase)
{
#define X(id, name) [TIME_PHASE_##id] = name,
    static const char *const names[TIME_PHASE_COUNT] = { TIME_PHASE_TABLE(X) };
#undef X
    must((unsigned)phase < TIME_PHASE_COUNT);
    return names[phase];
}

static void work_add(const struct time_builder *b, struct time_item item)
{
    item.calls *= b->times;
    item.phase = b->phase;
    if (item.calls <= 0 || item.work <= 0)
        return;
    must(b->work->count < TIME_ITEMS_MAX);
    b->work->items[b->work->count++] = item;
}

void time_add(const struct time_builder *b, enum time_op op, double calls, double bytes)
{
    work_add(
        b, (struct time_item){.op = op, .calls = calls, .work = bytes, .size = bytes, .width = 1});
}

void time_add_beside(const struct time_builder *b, enum time_op op, double calls, double bytes)
{
    work_add(
        b, (struct time_item){
               .op = op, .beside = true, .calls = calls, .work = bytes, .size = bytes, .width = 1});
}

void time_add_gemm(const struct time_builder *b, enum time_op op, double calls, int64_t m,
                   int64_t n, int64_t k)
{
    if (m == 0 || n == 0 || k == 0)
        return;
    double x = (double)m, y = (double)n, z = (double)k;
    work_add(b, (struct time_item){.op = op,
                                   .calls = calls,
                                   .work = 2 * x * y * z,
                                   .size = 3 / (1 / x + 1 / y + 1 / z),
                                   .width = 1});
}

void time_add_attention(const struct time_builder *b, enum time_op op, double calls, double pairs,
                        double rows)
{
    double d = (double)b->config->head_dim, flops = op == TIME_ATTENTION ? 4 * d : 10 * d;
    work_add(b, (struct time_item){.op = op,
                                   .calls = calls,
                                   .work = flops * pairs,
                                   .size = rows > 0 ? pairs / rows : 0,
                                   .width = d});
}

double time_work_pairs(const struct time_job *job)
{
    const struct mem_layout *l = job->layout;
    double tokens = (double)(l->slots * job->seq_len);
    double document = (double)job->seq_len;
    if (job->document_tokens > 0 && job->document_tokens < job->seq_len)
        document = (double)job->document_tokens;
    return tokens * (document + 1) / 2;
}

/* Elements of an activation, each read or written once. */
static double work_act(const struct time_builder *b, int64_t rows, int64_t width)
{
    return (double)rows * (double)width * (double)b->layout->act_bytes;
}

/* A loop over tiles: whole ones, then what is left. */
struct work_tile {
    double calls;
    int64_t rows;
};

static void work_tiles(int64_t tokens, int64_t tile, struct work_tile ret[2])
{
    ret[0] = (struct work_tile){.calls = (double)(tokens / tile), .rows = tile};
    ret[1] = (struct work_tile){.calls = tokens % tile > 0, .rows = tokens % tile};
}

/* layer_fwd_mid and layer_fwd_gate_up of a tile. */
static void work_mid(const struct time_builder *b, double calls, int64_t rows)
{
    const struct model_config *c = b->config;
    time_add_gemm(b, TIME_GEMM_Y, calls, rows, c->hidden_size, c->heads * c->head_dim);
    time_lora_fwd(b, JOB_lora_module_O, calls, rows);
    time_add(b, TIME_RMSNORM, calls, 4 * work_act(b, rows, c->hidden_size));
}

static void work_gate_up(const struct time_builder *b, double calls, int64_t rows)
{
    const struct model_config *c = b->config;
    time_add_gemm(b, TIME_GEMM_Y, 2 * calls, rows, c->intermediate_size, c->hidden_size);
    time_lora_fwd(b, JOB_lora_module_GATE, calls, rows);
    time_lora_fwd(b, JOB_lora_module_UP, calls, rows);
}

static void work_mlp(const struct time_builder *b)
{
    const struct mem_layout *l = b->layout;
    const struct model_config *c = b->config;
    struct work_tile tiles[2];
    work_tiles(l->tokens, l->tile_mlp, tiles);
    for (int i = 0; i < 2; i++) {
        double calls = tiles[i].calls;
        int64_t rows = tiles[i].rows;
        work_mid(b, calls, rows);
        if (l->keep_all)
            time_add(b, TIME_COPY, calls, 2 * work_act(b, rows, c->hidden_size));
        work_gate_up(b, calls, rows);
        time_add(b, TIME_SWIGLU, calls, 3 * work_act(b, rows, c->intermediate_size));
        time_add_gemm(b, TIME_GEMM_Y, calls, rows, c->hidden_size, c->intermediate_size);
        time_lora_fwd(b, JOB_lora_module_DOWN, calls, rows);
    }
}

/* A projection's weight gradient, unless it is frozen, and its input's. */
static void work_gemm_bwd(const struct time_builder *b, double calls, int64_t rows, int64_t n,
                          int64_t k)
{
    if (b->layout->lora_r == 0)
        time_add_gemm(b, TIME_GEMM_DW, calls, n, k, rows);
    time_add_gemm(b, TIME_GEMM_DX, calls, rows, k, n);
}

static void work_mlp_bwd_tile(const struct time_builder *b, double calls, int64_t rows)
{
    const struct mem_layout *l = b->layout;
    const struct model_config *c = b->config;
    struct time_builder again = *b;
    again.phase = TIME_PHASE_RECOMPUTE;
    if (l->keep_all)
        time_add(b, TIME_RMSNORM, calls, 2 * work_act(b, rows, c->hidden_size));
    else
        work_mid(&again, calls, rows);
    if (!l->keep_mlp)
        work_gate_up(&again, calls, rows);
    time_add(b, TIME_SWIGLU, calls, 3 * work_act(b, rows, c->intermediate_size));
    work_gemm_bwd(b, calls, rows, c->hidden_size, c->intermediate_size);
    time_lora_bwd(b, JOB_lora_module_DOWN, calls, rows);
    time_add(b, TIME_SWIGLU_BWD, calls, 5 * work_act(b, rows, c->intermediate_size));
    work_gemm_bwd(b, 2 * calls, rows, c->intermediate_size, c->hidden_size);
    time_lora_bwd(b, JOB_lora_module_GATE, calls, rows);
    time_lora_bwd(b, JOB_lora_module_UP, calls, rows);
    time_add(b, TIME_RMSNORM_BWD, calls, 4 * work_act(b, rows, c->hidden_size));
}

/* Back through RoPE and the norm over heads of q or k. */
static void work_head_input_bwd(const struct time_builder *b, double calls, int64_t rows,
                                enum job_lora_module module)
{
    bool query = module == JOB_lora_module_Q;
    int64_t width = (query ? b->config->heads : b->config->kv_heads) * b->config->head_dim;
    time_add(b, TIME_ROPE, calls, 2 * work_act(b, rows, width));
    if (!b->config->qk_norm)
        return;
    time_add_gemm(b, TIME_GEMM_Y, calls, rows, width, b->config->hidden_size);
    time_lora_fwd(b, module, calls, rows);
    time_add(b, TIME_RMSNORM_BWD, calls, 3 * work_act(b, rows, width));
}

static void work_qkv_bwd_tile(const struct time_builder *b, double calls, int64_t rows)
{
    const struct model_config *c = b->config;
    int64_t q = c->heads * c->head_dim, kv = c->kv_heads * c->head_dim;
    const int64_t widths[] = {q, kv, kv};
    time_add(b, TIME_RMSNORM, calls, 2 * work_act(b, rows, c->hidden_size));
    work_head_input_bwd(b, calls, rows, JOB_lora_module_Q);
    work_head_input_bwd(b, calls, rows, JOB_lora_module_K);
    for (int i = 0; i < 3; i++) {
        time_add(b, TIME_UNPACK, calls, 2 * work_act(b, rows, widths[i]));
        if (c->qkv_bias && b->layout->lora_r == 0)
            time_add(b, TIME_COLSUM, calls, work_act(b, rows, widths[i]));
        time_lora_bwd(b, (enum job_lora_module)(JOB_lora_module_Q + i), calls, rows);
    }
    work_gemm_bwd(b, calls, rows, q + 2 * kv, c->hidden_size);
    time_add(b, TIME_RMSNORM_BWD, calls, 4 * work_act(b, rows, c->hidden_size));
}

static void work_layer_bwd(const struct time_builder *b)
{
    const struct mem_layout *l = b->layout;
    const struct model_config *c = b->config;
    struct work_tile tiles[2];
    work_tiles(l->tokens, l->tile_mlp, tiles);
    for (int i = 0; i < 2; i++)
        work_mlp_bwd_tile(b, tiles[i].calls, tiles[i].rows);
    if (l->lora_r == 0)
        time_add_gemm(b, TIME_GEMM_DW, 1, c->hidden_size, c->heads * c->head_dim, l->tokens);
    for (int i = 0; i < 2; i++)
        time_lora_bwd_weights(b, JOB_lora_module_O, tiles[i].calls, tiles[i].rows);
    time_work_attention_bwd(b);
    for (int i = 0; i < 2; i++)
        work_qkv_bwd_tile(b, tiles[i].calls, tiles[i].rows);
}

static void work_head(const struct time_builder *b)
{
    const struct mem_layout *l = b->layout;
    const struct model_config *c = b->config;
    struct work_tile tiles[2];
    work_tiles(l->tokens, l->tile_loss, tiles);
    for (int i = 0; i < 2; i++) {
        double calls = tiles[i].calls;
        int64_t rows = tiles[i].rows;
        double logits = (double)rows * (double)c->vocab_size;
        time_add(b, TIME_RMSNORM, calls, 2 * work_act(b, rows, c->hidden_size));
        time_add_gemm(b, TIME_GEMM_Y, calls, rows, c->vocab_size, c->hidden_size);
        time_add(b, TIME_CROSS_ENTROPY, calls, logits * (double)(F32 + l->act_bytes));
        work_gemm_bwd(b, calls, rows, c->vocab_size, c->hidden_size);
        time_add(b, TIME_RMSNORM_BWD, calls, 3 * work_act(b, rows, c->hidden_size));
    }
}

int64_t time_work_replay_from(const struct mem_layout *l, int64_t layer)
{
    int64_t within = layer % l->keep_input_every;
    bool away = l->layers_away > 0, last = layer == l->config.layers - 1;
    bool kept = l->replay_anew ? !away && !l->streamed
                               : l->segment_at_hand || (l->streamed ? l->layers_filed == 0 : !away);
    if (last && kept) /* as forward left it */
        return layer;
    return last || within == l->keep_input_every - 1 || l->replay_anew ? layer - within : layer;
}

int64_t time_work_replays(const struct mem_layout *l, int64_t first)
{
    int64_t replays = 0;
    for (int64_t layer = first; layer < l->config.layers; layer++)
        replays += layer - time_work_replay_from(l, layer);
    return replays;
}

static void work_micro(struct time_builder b)
{
    const struct mem_layout *l = b.layout;
    const struct model_config *c = b.config;
    double micro = b.times, layers = (double)c->layers, replays = (double)time_work_replays(l, 0);
    double embedded = 2 * work_act(&b, l->tokens, c->hidden_size);
    b.phase = TIME_PHASE_FORWARD;
    time_add(&b, TIME_COPY, 3, 2 * (double)(l->tokens * I32)); /* ids, targets, positions */
    time_add(&b, TIME_EMBED, 1, embedded);
    b.times = micro * layers;
    time_work_attention(&b);
    work_mlp(&b);
    b.times = micro;
    b.phase = TIME_PHASE_LOSS;
    work_head(&b);
    b.phase = TIME_PHASE_RECOMPUTE;
    b.times = micro * replays;
    work_mlp(&b);
    b.times = l->recompute == JOB_recompute_INPUT ? micro * layers : 0;
    time_work_attention(&b);
    b.phase = TIME_PHASE_BACKWARD;
    b.times = micro * layers;
    work_layer_bwd(&b);
    b.times = micro;
    time_add(&b, TIME_EMBED_BWD, l->lora_r == 0 ? 1 : 0,
             embedded / 2 + 2 * (double)(l->tokens * c->hidden_size) * F32);
}

void time_work_make(const struct time_job *job, struct time_work *ret)
{
    ret->count = 0;
    struct time_builder b = {.work = ret,
                             .job = job,
                             .layout = job->layout,
                             .config = &job->layout->config,
                             .times = (double)job->micro_steps};
    work_micro(b);
    time_work_states(&b);
    time_work_copies(&b);
}
