/* time_work: what a rank does in one optimizer step, as a list: how often it calls which operation
 * on how much, from a job's layout (mem_layout.h). The list says the same as the code of the
 * worker: tests/dist/test_time_work.c counts what the CPU backend really computes and compares.
 *
 *     struct time_work work;
 *     time_work_make(&(struct time_job){.layout = &layout, .shape = &shape, .micro_steps = 4},
 *                    &work);
 *
 * Work is FLOPs (a product of m x k by k x n: 2mnk; attention of one query and key: 4d forward, 10d
 * backward) or bytes moved (read once and written once; of a collective those that a rank
 * receives). Sequences are full; documents in them are of one length, `document_tokens`. */
#pragma once
#include "common/mem_layout.h"

#include <stdbool.h>
#include <stdint.h>

/* X(id, name, part, like): like: the operation whose rates stand in where it has none. Parts:
 * what reports add up. */
#define TIME_OP_TABLE(X)                                                 \
    X(GEMM_Y, "gemm_y", PRODUCTS, GEMM_Y)   /* y = x W^T */              \
    X(GEMM_DX, "gemm_dx", PRODUCTS, GEMM_Y) /* dx = dy W */              \
    X(GEMM_DW, "gemm_dw", PRODUCTS, GEMM_Y) /* dW += dy^T x, in fp32 */  \
    X(ATTENTION, "attention", ATTENTION, ATTENTION)                      \
    X(ATTENTION_BWD, "attention_bwd", ATTENTION, ATTENTION)              \
    X(COPY, "copy", PASSES, COPY) /* on the device */                    \
    X(ZERO, "zero", PASSES, COPY)                                        \
    X(EMBED, "embed", PASSES, COPY)                                      \
    X(EMBED_BWD, "embed_bwd", PASSES, COPY)                              \
    X(RMSNORM, "rmsnorm", PASSES, COPY)                                  \
    X(RMSNORM_BWD, "rmsnorm_bwd", PASSES, COPY)                          \
    X(ROPE, "rope", PASSES, COPY)                                        \
    X(ATTENTION_DELTA, "attention_delta", PASSES, COPY)                  \
    X(ATTENTION_MERGE, "attention_merge", PASSES, COPY)                  \
    X(UNPACK, "unpack", PASSES, COPY)                                    \
    X(SWIGLU, "swiglu", PASSES, COPY)                                    \
    X(SWIGLU_BWD, "swiglu_bwd", PASSES, COPY)                            \
    X(CROSS_ENTROPY, "cross_entropy", PASSES, COPY)                      \
    X(ADAMW, "adamw", PASSES, COPY)                                      \
    X(SUMSQ, "sumsq", PASSES, COPY)                                      \
    X(COLSUM, "colsum", PASSES, COPY)                                    \
    X(ADD, "add", PASSES, COPY)                                          \
    X(DROPOUT, "dropout", PASSES, COPY)                                  \
    X(CAST, "cast", PASSES, COPY)                                        \
    X(ALL_GATHER, "all_gather", SHARDING, ALL_GATHER)                    \
    X(REDUCE_SCATTER, "reduce_scatter", SHARDING, ALL_GATHER)            \
    X(ALL_REDUCE, "all_reduce", SHARDING, ALL_GATHER)                    \
    X(ALL_TO_ALL, "all_to_all", EXCHANGE, ALL_GATHER)                    \
    X(SEND_RECV, "send_recv", EXCHANGE, ALL_GATHER)                      \
    X(TO_HOST, "to_host", COPIES, TO_HOST) /* off the device */          \
    X(FROM_HOST, "from_host", COPIES, TO_HOST)                           \
    X(FILE_WRITE, "file_write", COPIES, FILE_WRITE) /* one rank alone */ \
    X(FILE_READ, "file_read", COPIES, FILE_WRITE)

/* X(id, name) */
#define TIME_PART_TABLE(X)                                  \
    X(ATTENTION, "attention")                               \
    X(PRODUCTS, "products")                                 \
    X(PASSES, "passes")     /* bound by the memory */       \
    X(EXCHANGE, "exchange") /* among ranks of a sequence */ \
    X(SHARDING, "sharding") /* weights and gradients */     \
    X(COPIES, "copies")     /* to and from host and files */

/* X(id, name): parts of a step, in order. */
#define TIME_PHASE_TABLE(X)                                             \
    X(FORWARD, "forward")                                               \
    X(LOSS, "loss")           /* head, forward and backward */          \
    X(RECOMPUTE, "recompute") /* what of forward backward does again */ \
    X(BACKWARD, "backward")                                             \
    X(UPDATE, "update")

#define X(id, ...) TIME_##id,
enum time_op { TIME_OP_TABLE(X) TIME_OP_COUNT };
#undef X
#define X(id, ...) TIME_PART_##id,
enum time_part { TIME_PART_TABLE(X) TIME_PART_COUNT };
#undef X
#define X(id, ...) TIME_PHASE_##id,
enum time_phase { TIME_PHASE_TABLE(X) TIME_PHASE_COUNT };
#undef X

const char *time_op_name(enum time_op op);
enum time_part time_op_part(enum time_op op);
enum time_op time_op_like(enum time_op op);
const char *time_part_name(enum time_part part);
const char *time_phase_name(enum time_phase phase);

struct time_item {
    enum time_phase phase;
    enum time_op op;
    bool beside;  /* may run beside the rest of its phase */
    double calls; /* of a step */
    double work;  /* of a call: FLOPs or bytes */
    double size;  /* of a call, what its rate depends on: of products 3/(1/m+1/n+1/k), of attention
                     the mean keys of a query, else bytes */
    double width; /* of attention the head size, else 1 */
};

enum { TIME_ITEMS_MAX = 1024 };
struct time_work {
    struct time_item items[TIME_ITEMS_MAX];
    int count;
};

struct time_job {
    const struct mem_layout *layout;
    const struct model_shape *shape; /* of the layout's model */
    int64_t micro_steps;
    int64_t seq_len;
    int64_t document_tokens; /* tokens of each document in a sequence; 0: one fills it */
};

void time_work_make(const struct time_job *job, struct time_work *ret);
/* Pairs of query and key, of one head, in a micro-step over all ranks of a context group: each
 * query sees the keys of its document up to itself. */
double time_work_pairs(const struct time_job *job);
/* The first layer that is replayed in backward for this one's input; itself: its input is there. */
int64_t time_work_replay_from(const struct mem_layout *layout, int64_t layer);
/* Layers that are replayed in a micro-step, once for each time, for layer `first` and those after
 * it: a whole number of segments. */
int64_t time_work_replays(const struct mem_layout *layout, int64_t first);
