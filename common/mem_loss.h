/* mem_loss: a row of logits is worked on in pieces on a GPU (worker/cuda/cross_entropy.cu), and
 * what is found in each is kept until the row's loss is made of it: the plan counts that scratch,
 * the operation uses it. */
#pragma once
#include <stdint.h>

enum {
    MEM_LOSS_PIECE = 8192, /* logits at most, where no gradient is asked for */
    MEM_LOSS_STATE_BYTES = 16
};

static inline int64_t mem_loss_pieces(int64_t vocab)
{
    return (vocab + MEM_LOSS_PIECE - 1) / MEM_LOSS_PIECE;
}

static inline int64_t mem_loss_bytes(int64_t rows, int64_t vocab)
{
    return rows * mem_loss_pieces(vocab) * MEM_LOSS_STATE_BYTES;
}
