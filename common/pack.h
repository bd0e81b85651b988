/* pack: examples to sequences of seq_len tokens, best-fit decreasing, deterministic.
 *
 * The result depends only on (lengths, seq_len, packing): not on rank count. Without packing each
 * example is a sequence of its own. No example is split; none is longer than seq_len
 * (dataset_prepare saw to it). Sequences are numbered in the order of their lowest example.
 * pack_order gives the epoch's shuffle. */
#pragma once
#include "common/err.h"

#include <stdbool.h>
#include <stdint.h>

struct pack {
    int64_t sequences;
    int64_t *first;   /* (sequences + 1): sequence s holds members first[s] .. first[s+1]-1 */
    int64_t *members; /* (examples) example indices, in the order they stand in their sequence */
};
int pack_build(const int64_t *lengths, int64_t examples, int64_t seq_len, bool packing,
               struct pack *ret, struct err *err);
void pack_done(struct pack *pack);
/* Sequence at position i of the endless stream of epochs, each a permutation seeded by (seed,
 * epoch). *cache is the epoch's permutation, kept by the caller. */
struct pack_order {
    uint64_t seed;
    int64_t sequences;
    int64_t epoch;   /* of `order`; -1 before the first */
    uint64_t *order; /* (sequences) */
};
int pack_order_init(struct pack_order *order, uint64_t seed, int64_t sequences, struct err *err);
int64_t pack_order_at(struct pack_order *order, int64_t position);
void pack_order_done(struct pack_order *order);
