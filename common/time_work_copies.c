/* time_work_copies: what leaves the device between forward and backward, and residual tensors that
 * pass in chunks (common/mem_plan_layers.c says what is kept). */
#include "common/time_work_private.h"

enum { F32 = sizeof(float) };

#define COPIES_QKV (1 << JOB_lora_module_Q | 1 << JOB_lora_module_K | 1 << JOB_lora_module_V)

/* Bytes of a layer's O. */
static double copies_o(const struct time_builder *b)
{
    const struct model_config *c = b->config;
    return (double)(b->layout->tokens * c->heads * c->head_dim * b->layout->act_bytes);
}

/* Bytes that a layer keeps for backward, on average: all of it, or without x and its like. */
static double copies_kept(const struct time_builder *b, bool residual)
{
    const struct mem_layout *l = b->layout;
    const struct model_config *c = b->config;
    double act = (double)l->act_bytes, tokens = (double)l->tokens, bytes = 0;
    double hidden = tokens * (double)c->hidden_size * act;
    double inputs = (double)((c->layers + l->keep_input_every - 1) / l->keep_input_every);
    if (residual)
        bytes += hidden * (inputs / (double)c->layers + l->keep_all);
    if (l->recompute != JOB_recompute_INPUT)
        bytes += copies_o(b) + tokens * (double)c->heads * F32;
    if (l->keep_all)
        bytes += (double)((l->heads.owned + 2 * l->heads.kv_owned) * l->rows * c->head_dim) * act;
    if (l->keep_mlp)
        bytes += 2 * tokens * (double)c->intermediate_size * act;
    return bytes;
}

/* Kept tensors of the first layers out once in forward and back once in backward, O again for each
 * replay. Where x is streamed the host is where it is at hand: it leaves for the file only. */
static void copies_offload(struct time_builder b)
{
    const struct mem_layout *l = b.layout;
    double away = (double)l->layers_away, filed = (double)l->layers_filed;
    double share = away / (double)l->config.layers;
    double bytes = copies_kept(&b, !l->streamed);
    double file_bytes = copies_kept(&b, true) * l->mesh.world; /* ranks share the disk */
    b.phase = TIME_PHASE_FORWARD;
    time_add_beside(&b, TIME_TO_HOST, away, bytes);
    time_add_beside(&b, TIME_FILE_WRITE, filed, file_bytes);
    b.phase = TIME_PHASE_BACKWARD;
    time_add_beside(&b, TIME_FILE_READ, filed, file_bytes);
    time_add_beside(&b, TIME_FROM_HOST, away, bytes);
    time_add_beside(&b, TIME_FROM_HOST, share * (double)time_work_replays(l, 0), copies_o(&b));
}

/* x is read by every stage that projects it and by the MLP, which writes the next; in backward its
 * gradient too, by every stage for dO, by dWo, by the MLP and the first norm, which also write it.
 */
static void copies_stream(struct time_builder b)
{
    const struct mem_layout *l = b.layout;
    double layers = (double)l->config.layers, stages = (double)l->heads.stages;
    double replays = (double)time_work_replays(l, 0);
    double reads = stages + (l->mesh.ulysses > 1 ? stages / (double)l->heads.kv_stages : 0);
    if (l->lora_r > 0 && (l->lora_modules & COPIES_QKV) != 0)
        reads++; /* what their adapters make of all tokens */
    double bytes = (double)(l->tokens * l->config.hidden_size * l->act_bytes);
    bool there = l->keep_all || (l->recompute == JOB_recompute_INPUT && l->heads.stages == 1);
    double again = l->recompute == JOB_recompute_INPUT ? reads : 0; /* attention's forward */
    b.phase = TIME_PHASE_FORWARD;
    time_add_beside(&b, TIME_TO_HOST, 1, bytes); /* the embedding's */
    time_add_beside(&b, TIME_FROM_HOST, layers * (reads + 1), bytes);
    time_add_beside(&b, TIME_TO_HOST, layers * (1 + l->keep_all), bytes);
    b.phase = TIME_PHASE_LOSS;
    time_add_beside(&b, TIME_FROM_HOST, 1, bytes);
    time_add_beside(&b, TIME_TO_HOST, 1, bytes);
    b.phase = TIME_PHASE_BACKWARD;
    time_add_beside(&b, TIME_FROM_HOST, replays, bytes);
    time_add_beside(&b, TIME_TO_HOST, replays, bytes);
    time_add_beside(&b, TIME_FROM_HOST, layers * (again + (there ? 0 : reads) + stages + 5), bytes);
    time_add_beside(&b, TIME_TO_HOST, layers * 2, bytes);
    time_add_beside(&b, TIME_FROM_HOST, 1, bytes); /* of the embedding's gradient */
}

void time_work_copies(const struct time_builder *b)
{
    if (b->layout->layers_away > 0)
        copies_offload(*b);
    if (b->layout->streamed)
        copies_stream(*b);
}
