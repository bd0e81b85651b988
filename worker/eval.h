/* eval: loss and accuracy over the validation file, forward only, sequences shared by all ranks;
 * and the loss by position in the document, which shows whether long context is learnt.
 * Moves neither the order of training data nor any random number. */
#pragma once
#include "common/err.h"
#include "worker/positions.h"

#include <stdint.h>

struct rank;

struct eval_result {
    int64_t trained; /* tokens with loss */
    double loss;     /* mean over them */
    double accuracy; /* share predicted exactly */
    struct positions positions;
};
int eval_run(struct rank *rank, struct eval_result *ret_result, struct err *err);
