/* loader: which sequence goes to which step, micro-step and rank.
 *
 * A token shard is packed into sequences (common/pack.h); training takes them in the shuffled
 * order of pack_order, `batch` of them a step, evaluation takes them as they come. "Rank" is a data
 * index here (common/mesh.h): all ranks of a context group load the same. Sequence i of a
 * global batch goes to rank i % world, micro-step (i / world) / slots: a rank works on `slots`
 * sequences at once. Places beyond the batch, or beyond the run's last sequence, stay empty. So
 * what is trained in a step does not depend on the number of ranks.
 *
 * Tokens of a step have numbers, seq_len to a sequence of the batch, that do not depend on that
 * either (batch.h).
 *
 *     loader_count(&loader, step, counts);    of this rank, all micro-steps
 *     for (int64_t micro = 0; micro < loader.micro_steps; micro++)
 *         loader_fill(&loader, step, micro, &batch); */
#pragma once
#include "common/dataset.h"
#include "common/err.h"
#include "common/io.h"
#include "common/job_spec.h"
#include "common/pack.h"
#include "worker/batch.h"

#include <stdbool.h>
#include <stdint.h>

struct loader_options {
    const char *path; /* token shard */
    int64_t seq_len;
    bool packing;
    bool shuffle; /* training; evaluation keeps the order */
    uint64_t seed;
    int64_t batch; /* sequences of one step; 0: all there are */
    int64_t slots; /* sequences a rank takes in one micro-step: mem_layout_slots() */
    int rank, world;
    bool uncounted; /* loader_count() says 0: another rank of the context group counts */
};

struct loader {
    struct dataset data;
    struct pack pack;
    struct pack_order order; /* when shuffling */
    bool shuffle, uncounted;
    int rank, world;
    int64_t seq_len;
    int64_t batch;         /* sequences of one step */
    int64_t slots;         /* sequences a rank takes in one micro-step */
    int64_t micro_steps;   /* of one step */
    int64_t sequences_end; /* of the whole run; batches end there */
    int64_t *targets;      /* (examples) trained targets of each example */
};

int loader_init(struct loader *loader, const struct loader_options *options, struct err *err);
void loader_done(struct loader *loader);

/* Ends the run after `epochs` passes, rounded to whole sequences; returns its steps. Without this
 * the run is endless. */
int64_t loader_set_epochs(struct loader *loader, double epochs);

/* Of the tokens and of what orders them: with the same digest, sequence i of a run is the same. */
void loader_digest(const struct loader *loader, const struct job_spec *spec,
                   char ret_hex[IO_HASH_BYTES]);

/* What a rank has of a step. A pair is of a query and a key that attention has: each token sees
 * those of its document up to itself. */
enum loader_counted { LOADER_TOKENS, LOADER_TRAINED, LOADER_PAIRS, LOADER_COUNTS };
void loader_count(struct loader *loader, int64_t step, int64_t ret_counts[LOADER_COUNTS]);
void loader_fill(struct loader *loader, int64_t step, int64_t micro, struct batch *batch);
