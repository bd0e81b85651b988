/* graph: operation graphs of cuDNN's backend API, and the execution plans made from them.
 *
 * A graph is built op by op and turned into a plan once a shape; running a plan binds pointers to
 * the tensors by number. Errors stick: after the first failure building does nothing, and
 * graph_plan() reports it.
 *
 *     struct graph *graph = graph_new(cuda->dnn, err);
 *     struct graph_tensor q = graph_real(graph, TENSOR_Q, CUDNN_DATA_BFLOAT16, dims, strides,
 * NULL); struct graph_tensor s = graph_virtual(graph, CUDNN_DATA_FLOAT, score_dims, score_strides);
 *     graph_matmul(graph, &(struct graph_matmul){.a = &q, .b = &k, .c = &s});
 *     TRY(graph_plan(graph, err));               ... graph_run(graph, ...); graph_free(graph)
 *
 * Dimensions and strides are (batch, head, row, column), in elements. */
#pragma once
#include "common/err.h"

#include <cudnn_graph.h>
#include <stdbool.h>
#include <stdint.h>

enum { GRAPH_TENSORS_MAX = 32 }; /* numbers of real tensors: 1 to this, exclusive */

struct graph;

struct graph_tensor {
    cudnnBackendDescriptor_t descriptor;
    int64_t dims[4], strides[4];
};

struct graph_matmul {
    const struct graph_tensor *a, *b, *c;
    const struct graph_tensor *m, *n, *k; /* lengths of packed documents (batch), or NULL */
    bool pad;                             /* what lies beyond a length counts as 0 */
};

int graph_new(cudnnHandle_t handle, struct graph **ret, struct err *err);
void graph_free(struct graph *graph); /* NULL is fine */

/* In memory, bound by graph_run; `ragged`: per-document element offsets, or NULL. */
struct graph_tensor graph_real(struct graph *graph, int number, cudnnDataType_t type,
                               const int64_t dims[4], const int64_t strides[4],
                               const struct graph_tensor *ragged);
/* One value, given by graph_run as a host pointer. */
struct graph_tensor graph_scalar(struct graph *graph, int number);
struct graph_tensor graph_virtual(struct graph *graph, cudnnDataType_t type, const int64_t dims[4],
                                  const int64_t strides[4]);
struct graph_tensor graph_like(struct graph *graph, const struct graph_tensor *x,
                               cudnnDataType_t type);

void graph_matmul(struct graph *graph, const struct graph_matmul *args);
/* y = mode(x[, b]); `axis` of GEN_INDEX; `select`: BINARY_SELECT's condition. */
void graph_pointwise(struct graph *graph, cudnnPointwiseMode_t mode, cudnnDataType_t compute,
                     int64_t axis, const struct graph_tensor *x, const struct graph_tensor *b,
                     const struct graph_tensor *select, const struct graph_tensor *y);
/* The same in fp32 into a new virtual tensor like x. */
struct graph_tensor graph_map(struct graph *graph, cudnnPointwiseMode_t mode,
                              const struct graph_tensor *x, const struct graph_tensor *b);
void graph_reduce(struct graph *graph, cudnnReduceTensorOp_t mode, const struct graph_tensor *x,
                  const struct graph_tensor *y);
void graph_reshape(struct graph *graph, const struct graph_tensor *x, const struct graph_tensor *y);

/* The first plan of cuDNN's heuristics that compiles: half a second to a second. */
int graph_plan(struct graph *graph, struct err *err);
int64_t graph_workspace_bytes(const struct graph *graph);
/* pointers[number] of every real tensor and scalar; on the handle's stream. */
int graph_run(const struct graph *graph, void *const pointers[GRAPH_TENSORS_MAX], void *workspace,
              struct err *err);
