/* head: final norm, logits and loss over tiles of tokens, forward and backward in one pass, so that
 * no (T, V) exists (Liger kernel, arXiv 2410.10989; Cut Cross-Entropy, arXiv 2411.09009). */
#pragma once
#include "worker/model.h"

struct head {
    struct model *model;
    const struct batch *batch;
    struct stream *stream;
    const void *norm_weight; /* [act] (h) */
    const void *weight;      /* [act] (V, h) */
    bool train;              /* model->dx, and gradients where there are any, else an evaluation */
    float *norm_grad;        /* (h) +=, or NULL: frozen */
    float *weight_grad;      /* (V, h) +=, or NULL */
    float scale;             /* 1/N */
};

/* Adds to model->loss_sum and correct; training also sets model->dx to the loss's gradient. */
int head_run(const struct head *head, struct err *err);
