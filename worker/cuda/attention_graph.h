/* attention_graph: attention's forward and backward as graphs of cuDNN operations, in the form that
 * its fused Hopper engines take. The order of operations and the kinds of the tensors are part of
 * that form: other orders of the same arithmetic find no engine.
 *
 * cuDNN makes delta = rowsum(dO * O) itself and finds no engine for a graph that is given it.
 *
 * Packed documents: `slots` documents of at most q_rows = kv_rows rows each; tensors then carry
 * element offsets of each document, one array a row stride ("unit"), and a length a slot. Empty
 * slots are fine, so slots and longest document are rounded up and a plan serves many packings. */
#pragma once
#include "worker/attention_shape.h"
#include "worker/cuda/graph.h"

/* Numbers of the tensors that a run binds. Forward: Q, K, V in, O, LSE out. */
enum attention_tensor {
    ATTENTION_Q = 1,
    ATTENTION_K,
    ATTENTION_V,
    ATTENTION_O,
    ATTENTION_LSE,
    ATTENTION_DO,
    ATTENTION_DQ,       /* bf16 */
    ATTENTION_DK,       /* bf16 */
    ATTENTION_DV,       /* bf16 */
    ATTENTION_DELTA,    /* fp32, laid out as LSE: written */
    ATTENTION_DQ_SUM,   /* fp32, the size of dQ: cleared and added into, in an order of its own */
    ATTENTION_DK_HEADS, /* bf16, packed GQA: dK by query head, g times dK's size */
    ATTENTION_DV_HEADS,
    ATTENTION_LENGTHS, /* int32 (slots) */
    ATTENTION_SCALE,   /* scalars, on the host */
    ATTENTION_MINUS_INF,
    ATTENTION_ONE,
    ATTENTION_OFFSETS /* int64 (slots + 1) of unit 0; unit i is ATTENTION_OFFSETS + i */
};
int attention_graph_build(struct graph *graph, struct attention_shape *shape, struct err *err);
