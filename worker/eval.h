/* eval: loss and accuracy over the validation file, forward only, sequences shared by all ranks.
 * Moves neither the order of training data nor any random number. */
#pragma once
#include "common/err.h"

#include <stdint.h>

struct rank;

struct eval_result {
    int64_t trained; /* tokens with loss */
    double loss;     /* mean over them */
    double accuracy; /* share predicted exactly */
};
int eval_run(struct rank *rank, struct eval_result *ret_result, struct err *err);
