/* context_private: where a stage's tensors lie, for context_fwd.c, context_bwd.c and ring.c. */
#pragma once
#include "worker/context_heads.h"

struct context_stage {
    const struct layer *layer;
    struct mesh_stage at;
    struct context_heads q_heads, kv_heads;
    void *q, *k, *v; /* [act] head side: the layer's own, or the context's */
    float *lse;      /* (u, S') */
    float scale;     /* of the softmax */
};
struct context_stage context_stage_make(const struct layer *layer, int64_t stage);
/* q, and k and v when new, of the stage: from x to the head side. */
int context_stage_inputs(const struct context_stage *stage, struct err *err);
