/* eval: loss and accuracy over the validation file, forward only, sequences shared by all ranks;
 * and the loss by position in the document, which shows whether long context is learnt.
 * Moves neither the order of training data nor any random number. */
#pragma once
#include "common/err.h"

#include <stdint.h>

struct rank;

enum { EVAL_BUCKETS = 8 }; /* of seq_len: bucket b is positions [b/8, (b+1)/8) of it */

struct eval_result {
    int64_t trained;                      /* tokens with loss */
    double loss;                          /* mean over them */
    double accuracy;                      /* share predicted exactly */
    int64_t bucket_trained[EVAL_BUCKETS]; /* those at positions of the bucket */
    double bucket_loss[EVAL_BUCKETS];     /* mean over them; 0 where there are none */
};
int eval_run(struct rank *rank, struct eval_result *ret_result, struct err *err);
