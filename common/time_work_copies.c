/* time_work_copies: what leaves the device between forward and backward, and residual tensors that
 * pass in chunks (common/mem_plan_layers.c says what is kept). */
#include "common/time_work_private.h"

enum { F32 = sizeof(float) };

/* Bytes that all layers of a rank keep for backward. */
static double copies_kept(const struct time_builder *b)
{
    const struct mem_layout *l = b->layout;
    const struct model_config *c = b->config;
    double act = (double)l->act_bytes, layers = (double)c->layers, tokens = (double)l->tokens;
    double hidden = tokens * (double)c->hidden_size * act;
    double inputs = (double)((c->layers + l->keep_input_every - 1) / l->keep_input_every);
    double bytes = inputs * hidden;
    if (l->recompute == JOB_recompute_INPUT)
        return bytes;
    bytes += layers * tokens * (double)c->heads * ((double)c->head_dim * act + F32);
    if (l->keep_all) {
        double heads = (double)(l->heads.owned + 2 * l->heads.kv_owned);
        bytes += layers * (hidden + heads * (double)(l->rows * c->head_dim) * act);
    }
    if (l->keep_mlp)
        bytes += layers * 2 * tokens * (double)c->intermediate_size * act;
    return bytes;
}

/* Kept tensors of the first layers out once in forward and back once in backward. */
static void copies_offload(struct time_builder b)
{
    const struct mem_layout *l = b.layout;
    double away = (double)l->layers_away, filed = (double)l->layers_filed;
    double bytes = copies_kept(&b) / (double)l->config.layers;
    b.phase = TIME_PHASE_FORWARD;
    time_add_beside(&b, TIME_TO_HOST, away, bytes);
    if (l->layers_filed > 0) /* the machine's ranks share its disk */
        time_add_beside(&b, TIME_FILE_WRITE, filed, bytes * l->mesh.world);
    b.phase = TIME_PHASE_BACKWARD;
    if (l->layers_filed > 0)
        time_add_beside(&b, TIME_FILE_READ, filed, bytes * l->mesh.world);
    time_add_beside(&b, TIME_FROM_HOST, away, bytes);
}

/* x is read by every stage that projects it and by the MLP, which writes the next; in backward its
 * gradient too, by every stage for dO, by dWo, by the MLP and the first norm, which also write it.
 */
static void copies_stream(struct time_builder b)
{
    const struct mem_layout *l = b.layout;
    double layers = (double)l->config.layers, stages = (double)l->heads.stages;
    double reads = stages + (l->mesh.ulysses > 1 ? stages / (double)l->heads.kv_stages : 0);
    double bytes = (double)(l->tokens * l->config.hidden_size * l->act_bytes);
    b.phase = TIME_PHASE_FORWARD;
    time_add_beside(&b, TIME_FROM_HOST, layers * (reads + 1), bytes);
    time_add_beside(&b, TIME_TO_HOST, layers, bytes);
    b.phase = TIME_PHASE_LOSS;
    time_add_beside(&b, TIME_FROM_HOST, 1, bytes);
    time_add_beside(&b, TIME_TO_HOST, 1, bytes);
    b.phase = TIME_PHASE_BACKWARD;
    time_add_beside(&b, TIME_FROM_HOST, layers * (reads + stages + 5), bytes);
    time_add_beside(&b, TIME_TO_HOST, layers * 2, bytes);
}

void time_work_copies(const struct time_builder *b)
{
    if (b->layout->layers_away > 0)
        copies_offload(*b);
    if (b->layout->streamed)
        copies_stream(*b);
}
