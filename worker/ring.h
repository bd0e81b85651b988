/* ring: attention of one stage over the ring (arXiv 2310.01889): every ring rank keeps its queries
 * while K and V go round, one hop a step; common/mesh.h says who holds what (zigzag).
 *
 * Step 0 is causal over the rank's own rows, documents included. Keys of another rank are earlier
 * or later as a whole for each chunk of queries, so that a later step is one rectangle without a
 * mask: the rows of the one document that reaches back far enough, by its keys there; or nothing. O
 * is merged in fp32 (ops_attention_merge); dq stays and sums in fp32, dk and dv travel with their K
 * and V in fp32 and are home after one more hop. */
#pragma once
#include "worker/context_private.h"

/* One number goes a hop: context_connect()'s part of the ring. */
int ring_connect(const struct context *context, struct stream *stream, struct err *err);
/* o and the stage's lse from its q, k, v. */
int ring_attention(const struct context_stage *stage, struct ops_heads o, struct err *err);
/* context->dq, dk, dv += from `back` (dO) and `delta`. */
int ring_attention_bwd(const struct context_stage *stage, struct err *err);
