/* optim: AdamW (arXiv 1711.05101) over the shards, clipping by the global norm, and the learning
 * rate's schedule.
 *
 * Schedule of step s = 1 .. S with peak rate r and W warmup steps:
 *     s <= W             r * s / W                                  (the first step has a rate > 0)
 *     constant           r
 *     cosine             r * (1 + cos(pi * (s - 1 - W) / (S - W))) / 2   (zero after the last step)
 *     linear             r * (S - s + 1) / (S - W)                       (alike)
 *     warmup_stable_decay  r until S - D, then r * (S - s + 1) / (D + 1)   (alike)
 * D is decay_steps (null: a tenth of S, rounded up), cut to the S - W steps there are. W >= S never
 * leaves the warmup. So a rate above zero stays above zero in every step, S = 1 included.
 *
 * Clipping: all gradients are multiplied by clip / norm when norm > clip; clip 0 switches it off.
 * Weight decay acts on matrices only (embedding and head included), not on norms and biases. */
#pragma once
#include "common/err.h"
#include "common/job_spec.h"
#include "worker/arena.h"
#include "worker/fsdp.h"

#include <stdint.h>

struct optim {
    struct fsdp *fsdp; /* borrowed */
    double beta1, beta2;
    double eps;
    double weight_decay;
    double clip;
    int64_t updates;     /* applied so far: Adam's bias correction counts these */
    double *sum_squares; /* device (1) */
    float *grad_scale;   /* device (1) */
};

double optim_rate(const struct job_spec *spec, int64_t step, int64_t steps_total);

int optim_init(struct optim *optim, const struct job_spec *spec, struct fsdp *fsdp,
               struct arena *arena, struct err *err);
/* Global norm of the gradients, the same on every rank: squares of fp32 shards summed in fp64. */
int optim_norm(struct optim *optim, struct stream *stream, double *ret_norm, struct err *err);
/* One update; norm as optim_norm gave it, finite. */
int optim_apply(struct optim *optim, double rate, double norm, struct stream *stream,
                struct err *err);
