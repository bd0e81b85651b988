/* positions: loss by position in the document, in eighths of seq_len: whether long context is
 * learnt shows there.
 *
 * A head leaves each row's loss in model.row_loss; positions_add() takes those of the micro-step
 * that was computed last, positions_share() makes means over all ranks. */
#pragma once
#include "common/err.h"

#include <stdint.h>

struct rank;

enum { POSITION_BUCKETS = 8 }; /* bucket b: positions [b/8, (b+1)/8) of seq_len */

struct positions {
    int64_t trained[POSITION_BUCKETS]; /* tokens with loss there */
    double loss[POSITION_BUCKETS];     /* their sum; after positions_share() the mean, 0 of none */
};

/* Waits for the rank's stream. */
int positions_add(struct rank *rank, struct positions *positions, struct err *err);
int positions_share(struct rank *rank, struct positions *positions, struct err *err);
