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

static inline struct attention_layout attention_layout_of(const struct ops_heads *heads)
{
    return (struct attention_layout){heads->head_stride, heads->row_stride};
}

/* The largest row stride of some heads. */
static inline int64_t attention_stride_max(const struct ops_heads *const heads[], int count)
{
    int64_t largest = 0;
    for (int i = 0; i < count; i++)
        largest = heads[i]->row_stride > largest ? heads[i]->row_stride : largest;
    return largest;
}

int64_t attention_power_of_two(int64_t value); /* the least that is not below it */

/* The place of so many elements in scratch, after `*total` bytes of it. */
static inline size_t attention_scratch_next(size_t *total, int64_t elements, size_t size)
{
    size_t at = *total;
    *total += ((size_t)elements * size + 255) / 256 * 256;
    return at;
}

/* Whether heads of one layout can be read in another without a copy. */
static inline bool attention_alike(int64_t heads, const struct ops_heads *a,
                                   const struct attention_layout *b)
{
    return a->row_stride == b->row_stride && (heads == 1 || a->head_stride == b->head_stride);
}

/* What cuDNN cannot do is ERR_UNSUPPORTED, saying which: head sizes; spans of 2^31 elements, with
 * which 9.19's gradients are silently wrong; layouts that are not in steps of 16 bytes. */
int attention_plan_check_dims(int64_t q_heads, int64_t kv_heads, int64_t head_dim, struct err *err);
int attention_plan_check(const struct ops_heads *heads, int64_t count, int64_t rows,
                         int64_t head_dim, const char *name, struct err *err);

/* Rows of a plan that serves this call: of a rectangle, of one document, or, with slots, of the
 * longest of packed documents. row_stride: the largest of the call's. */
void attention_plan_rows(struct attention_shape *shape, int64_t rows, int64_t kv_rows,
                         int64_t documents, const int64_t *doc_rows, int64_t row_stride);
/* The layout in which a plan reads heads of `rows` rows: as they are given, unless the stride
 * between them comes from a batch of which these rows are a part; then one behind the other, or,
 * packed, beside each other. */
struct attention_layout attention_plan_layout(const struct attention_shape *shape,
                                              const struct ops_heads *heads, int64_t count,
                                              int64_t rows);
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
