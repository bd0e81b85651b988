/* model: forward and backward of a llama, qwen2 or qwen3 model over one batch of tokens, through
 * the device's operations, with weights and gradients from fsdp.
 *
 *     TRY(model_forward(&model, &batch, true, stream, err));
 *     TRY(model_head_train(&model, &batch, 1.0f / N, stream, err));  loss, dx, head gradients
 *     TRY(model_backward(&model, &batch, stream, err));            all other gradients
 * evaluation: model_forward, then model_head_evaluate.
 *
 * T is this rank's tokens: context.h says how ranks share a sequence. What a layer keeps for its
 * backward pass is decided by `recompute`:
 *   none                 x, q, k, v, O, LSE, the residual after attention, and gate and up when the
 *                        MLP runs in one tile
 *   input                x; attention runs again
 *   input_and_attention  x, O, LSE; q, k, v are projected again, attention is not
 *   attention            O, LSE, and x of every k-th layer (keep_input_every)
 * Under `attention` the k-1 other inputs of a segment are replayed from its first and each O, by
 * linear work alone: once a segment, when backward gets there, into k-1 buffers; or anew for each
 * layer (replay_anew) into one buffer, up to k-1 layers of linear work for each, which is little
 * where attention dwarfs it.
 *
 * Norms, projections, MLP and loss run over tiles of tokens, so neither (T, f) beyond a tile nor
 * (T, V) exists. A unit's weights are gathered while the one before it is worked on.
 *
 * With adapters (lora.h) the model has no gradients: what is computed for them alone is left out.
 *
 * Files: model.c (embedding, order of layers), model_memory.c (buffers), layer_fwd.c, layer_bwd.c,
 * head.c; attention: context.h. */
#pragma once
#include "common/err.h"
#include "common/job_spec.h"
#include "common/model_shape.h"
#include "worker/batch.h"
#include "worker/context.h"
#include "worker/fsdp.h"
#include "worker/lora.h"
#include "worker/offload.h"

#include <stdbool.h>
#include <stdint.h>

struct model_options {
    int64_t tokens_max;           /* T: capacity of this rank's share of a batch */
    int64_t seq_len;              /* of the job: what a dynamic rotary embedding goes by */
    int64_t tile_mlp;             /* tokens a tile of norms, projections and MLP; 0: all */
    int64_t tile_loss;            /* tokens a tile of logits and loss; 0: MODEL_TILE_LOSS_TOKENS */
    enum job_recompute recompute; /* AUTO is none */
    int64_t keep_input_every;     /* k, under recompute attention; 0: 1 */
    uint64_t seed;                /* of what is rounded at random */
    struct lora *lora;            /* adapters to train beside a frozen model; NULL: none */
    bool replay_anew;             /* of effect where k is above 1 */
    int64_t layers_away;          /* as common/mem_layout.h has them, with the next two */
    int64_t layers_filed;
    bool streamed;
    int64_t first_layer; /* those before are left out (a rehearsal): their states and kept
                            tensors are there, no work is done; a multiple of k */
    bool time_layers;    /* layers_ns and mlp_ns are kept: the stream is waited for */
    struct context_options context;
};
enum { MODEL_TILE_LOSS_TOKENS = 1024 };

/* What a layer leaves for its backward pass, or shares with all layers. S' = C*T. */
struct model_acts {
    void *x;         /* [act] (T, h) the layer's input */
    void *q;         /* [act] (H/C, S', d) after RoPE, stage after stage; NULL: not kept */
    void *k, *v;     /* [act] (max(1, K/C), S', d) alike */
    void *o;         /* [act] (T, H*d); in backward dq takes its place */
    float *lse;      /* (H/C, S') */
    void *x_mid;     /* [act] (T, h) the residual after attention; NULL: not kept */
    void *gate, *up; /* [act] (T, f), or (tile, f) shared and recomputed in backward */
};

struct model {
    struct device *device; /* borrowed, as are the next three */
    struct fsdp *fsdp;
    struct arena *arena; /* told of each phase */
    struct lora *lora;   /* options.lora */
    const struct model_shape *shape;
    struct model_options options; /* tile sizes settled */
    bool keep_mlp;                /* gate and up are kept per layer */
    struct context context;
    int64_t offset[MODEL_TENSOR_COUNT]; /* elements from the start of the tensor's unit; -1: none */

    struct offload offload; /* what is kept away, and the set for what layers have not at hand */
    int64_t layers_ns;      /* time_layers: of all layers' work, forward and backward; += */
    int64_t mlp_ns;         /* likewise: the forward of the first's MLP half, a replay's work; += */
    struct model_acts *acts; /* (L) what each layer keeps at hand */
    void **segment;          /* (k - 1) x of a segment's layers after the first; anew: one */
    void *x_out;             /* [act] (T, h) the last layer's output, unless the set's x is */
    void *dx;                /* [act] (T, h) gradient of the residual stream, in place */
    void *dk, *dv;           /* [act] (T, K*d) */
    void *tile_norm;         /* [act] (tile, h) a norm's output */
    void *tile_mid;          /* [act] (tile, h) x_mid where it is not kept */
    void *tile_raw;          /* [act] (tile, H*d) q or k before qk-norm */
    void *tile_qkv;          /* [act] (tile, (H+2K)*d) dq, dk and dv side by side */
    void *tile_h;            /* [act] (tile, h) scratch: O*Wo, a norm's output gradient */
    float *tile_rstd;        /* (tile) */
    void *tile_act;          /* [act] (tile, f) SwiGLU's output */
    void *tile_dact;         /* [act] (tile, f) its gradient */
    float *tile_logits;      /* (tile_loss, V) */
    void *tile_dlogits;      /* [act] (tile_loss, V); is tile_logits where [act] is fp32 */
    float *inv_freq;         /* (d/2) */
    float *row_loss;         /* (T) loss of each token: positions.h */
    double *loss_sum;        /* (1) sum of token losses, += over micro-steps */
    int64_t *correct;        /* (1) tokens predicted exactly, += */
};

int model_init(struct model *model, const struct model_options *options, struct fsdp *fsdp,
               struct arena *arena, struct err *err);
void model_done(struct model *model);
int model_load_constants(struct model *model, struct stream *stream, struct err *err);

/* keep: a backward pass follows. */
int model_forward(struct model *model, const struct batch *batch, bool keep, struct stream *stream,
                  struct err *err);
/* Adds to loss_sum and correct; scale is 1/N. */
int model_head_train(struct model *model, const struct batch *batch, float scale,
                     struct stream *stream, struct err *err);
int model_head_evaluate(struct model *model, const struct batch *batch, struct stream *stream,
                        struct err *err);
int model_backward(struct model *model, const struct batch *batch, struct stream *stream,
                   struct err *err);

/* loss_sum and correct: to zero; to the host, summed over ranks. */
int model_totals_zero(struct model *model, struct stream *stream, struct err *err);
int model_totals(struct model *model, struct stream *stream, double *ret_loss_sum,
                 int64_t *ret_correct, struct err *err);

/* model_init's part in model_memory.c. */
int model_reserve(struct model *model, struct arena *arena, struct err *err);
/* A layer's buffers: its own, and those of the set for what it has not at hand. */
struct model_acts model_layer_acts(const struct model *model, int64_t l);
/* Where its output goes: the next one's input, or what the head reads. */
void *model_layer_output(const struct model *model, int64_t l);
/* Of a layer's input, for offload. */
int64_t model_input_index(const struct model *model, int64_t l);

/* Starts to bring back what layer l's backward needs (below the first: nothing), as far as it is
 * kept away: these rows, whose places in the set are free. */
int model_bring(struct model *model, int64_t l, enum offload_group group,
                const struct offload_span *span, struct stream *stream, struct err *err);
/* The tile that starts at `row`. */
struct offload_span model_span(const struct batch *batch, int64_t row, int64_t tile);

/* The address `elements` further on in an [act] buffer; NULL stays NULL. */
void *model_at(const struct model *model, const void *base, int64_t elements);
/* A weight of a gathered unit; NULL when the model has no such tensor. */
const void *model_weight(const struct model *model, const void *unit, enum model_tensor kind);
/* Its gradient; NULL alike, and where unit_grad is (frozen). */
float *model_grad(const struct model *model, float *unit_grad, enum model_tensor kind);
