/* step: one optimizer step: with train.h, the loop around it, the first file to read in the worker.
 *
 * A step: load its sequences; count trained tokens N over all ranks; for each micro-step forward,
 * loss, backward; global norm; update. Loss and gradients are sums over the whole global batch
 * divided by N, so they do not depend on how sequences fall on ranks and micro-steps. N = 0: no
 * update, the step counts. */
#pragma once
#include "common/err.h"
#include "worker/exposed.h"
#include "worker/positions.h"

#include <stdbool.h>
#include <stdint.h>

struct rank;

struct step_result {
    int64_t tokens;             /* of real documents, all ranks */
    int64_t trained;            /* N: tokens with loss, all ranks */
    int64_t pairs;              /* of query and key in attention, of one head, all ranks */
    int64_t correct;            /* of them, predicted exactly */
    double loss;                /* mean over N; 0 when N is 0 */
    struct positions positions; /* losses of the last micro-step by position, all ranks */
    double norm;                /* of the gradient, before clipping */
    double rate;                /* learning rate */
    int64_t offload_bytes;      /* this rank's, off the device and back */
    int64_t plan_ns;            /* of this rank's host, making plans (device.h); by step_run() */
    struct exposed_times times; /* this rank's; filled by step_run() */
    bool updated;               /* false: N = 0, or not finite and on_nonfinite is skip */
};

/* Both of the following, and where the time went. */
int step_run(struct rank *rank, int64_t step, struct step_result *result, struct err *err);
/* Gradients of a step in the shards, and its loss; the weights are as before. */
int step_gradients(struct rank *rank, int64_t step, struct step_result *result, struct err *err);
/* Clips and applies them. */
int step_update(struct rank *rank, int64_t step, struct step_result *result, struct err *err);
