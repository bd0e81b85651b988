/* context_private: where a stage's tensors lie, for context_fwd.c, context_bwd.c and ring.c. */
#pragma once
#include "worker/context_heads.h"

struct context_stage {
    const struct layer *layer;
    struct mesh_stage at;
    struct context_heads q_heads, kv_heads;
    void *q, *k, *v; /* [act] head side: the layer's own, or the context's */
    void *back;      /* [act] of the stage's set, as is delta */
    float *delta;
    float *lse;    /* (u, S') */
    float scale;   /* of the softmax */
    bool backward; /* of its backward pass */
};
/* Phases of a stage, from a pass's first: MEM_PHASE_FWD_KV, MEM_PHASE_AGAIN_KV, MEM_PHASE_BWD_KV.
 */
enum context_step { CONTEXT_KV, CONTEXT_Q, CONTEXT_ATTENTION, CONTEXT_RETURN };
void context_enter(const struct context_stage *stage, enum context_step step);
struct context_stage context_stage_make(const struct layer *layer, int64_t stage);
/* Where stage tensors lie on their way out. Without overlap q, k and dO share a buffer, v has that
 * of what comes back: one is waited for before the next is made. */
struct context_out context_outgoing(const struct context_stage *stage);
/* q, and k and v when new, of the stage: from x to the head side, where they are once context_wait
 * returns. */
int context_stage_inputs(const struct context_stage *stage, struct err *err);
/* For everything that was sent. */
int context_wait(const struct layer *layer, struct err *err);
