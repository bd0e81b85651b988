/* attention_plan: what attention's forward and backward share: cuDNN's plans, compiled at the first
 * use of a shape and kept, and the offsets of packed documents on the device. */
#pragma once
#include "worker/cuda/attention_graph.h"
#include "worker/cuda/device_cuda.h"
#include "worker/ops.h"

struct attention_plan {
    struct attention_shape shape;
    struct graph *graph;
    int64_t used; /* the newest call for it */
};

struct attention_cache;
int attention_cache_new(struct attention_cache **ret, struct err *err);
void attention_cache_free(struct attention_cache *cache);             /* NULL is fine */
int64_t attention_cache_made_ns(const struct attention_cache *cache); /* time that plans took */

/* The place of so many elements in scratch, after `*total` bytes of it. */
static inline size_t attention_scratch_next(size_t *total, int64_t elements, size_t size)
{
    size_t at = *total;
    *total += ((size_t)elements * size + 255) / 256 * 256;
    return at;
}

/* What cuDNN cannot do is ERR_UNSUPPORTED, saying which: head sizes; spans of 2^31 elements, with
 * which 9.19's gradients are silently wrong; layouts that are not in steps of 16 bytes. */
int attention_plan_check_dims(int64_t q_heads, int64_t kv_heads, int64_t head_dim, struct err *err);
int attention_plan_check(const struct ops_heads *heads, int64_t count, int64_t rows,
                         int64_t head_dim, const char *name, struct err *err);

/* *ret is valid until the next call. */
int attention_plan_find(struct device_cuda *cuda, struct stream *stream,
                        const struct attention_shape *shape, const struct attention_plan **ret,
                        struct err *err);
/* Puts offsets and lengths of packed documents among the pointers, copied to the device unless it
 * has them already. `shape` is the plan's. */
int attention_plan_bind(struct device_cuda *cuda, struct stream *stream,
                        const struct attention_shape *shape, int64_t documents,
                        const int64_t *doc_rows, void *pointers[GRAPH_TENSORS_MAX],
                        struct err *err);
int attention_plan_run(struct device_cuda *cuda, struct stream *stream, const struct graph *graph,
                       float scale, void *pointers[GRAPH_TENSORS_MAX], void *workspace,
                       struct err *err);
