/* graph: see graph.h. Descriptors live as long as the graph: a plan may refer to them. */
#include "worker/cuda/graph.h"

#include "common/mem.h"
#include "common/must.h"
#include "worker/cuda/device_cuda.h"
#include "worker/cuda/facts.h"

#include <string.h>

enum { GRAPH_DESCRIPTORS_MAX = 256, GRAPH_OPS_MAX = 48, GRAPH_CONFIGS_MAX = 16 };

/* Selects the device; deprecated by name, still what works. */
#define GRAPH_ATTR_HANDLE ((cudnnBackendAttributeName_t)800)

struct graph {
    cudnnHandle_t handle;
    cudnnBackendDescriptor_t descriptors[GRAPH_DESCRIPTORS_MAX]; /* (count), in order of making */
    cudnnBackendDescriptor_t ops[GRAPH_OPS_MAX];                 /* (op_count), among these */
    int count, op_count;
    int64_t next_virtual;          /* number of the next virtual tensor */
    bool bound[GRAPH_TENSORS_MAX]; /* numbers that graph_run takes */
    cudnnBackendDescriptor_t plan; /* NULL before graph_plan */
    int64_t workspace_bytes;       /* of the plan */
    struct err failure;            /* the first, while building */
};

static void graph_fail(struct graph *graph, const char *what, cudnnStatus_t status)
{
    char why[512] = "";
    if (graph->failure.code != ERR_NONE)
        return;
    cudnnGetLastErrorString(why, sizeof why);
    if (cuda_faulted(what, &graph->failure) != 0)
        return;
    (void)err_set(&graph->failure, ERR_DEVICE, "cuDNN: %s: %s %s", what,
                  cudnnGetErrorString(status), why);
}

static cudnnBackendDescriptor_t graph_make(struct graph *graph, cudnnBackendDescriptorType_t type)
{
    cudnnBackendDescriptor_t descriptor = NULL;
    if (graph->failure.code != ERR_NONE)
        return NULL;
    must(graph->count < GRAPH_DESCRIPTORS_MAX);
    cudnnStatus_t status = cudnnBackendCreateDescriptor(type, &descriptor);
    if (status != CUDNN_STATUS_SUCCESS)
        graph_fail(graph, "create a descriptor", status);
    else
        graph->descriptors[graph->count++] = descriptor;
    return descriptor;
}

static void graph_set(struct graph *graph, cudnnBackendDescriptor_t descriptor,
                      cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                      int64_t count, const void *value)
{
    if (graph->failure.code != ERR_NONE)
        return;
    cudnnStatus_t status = cudnnBackendSetAttribute(descriptor, name, type, count, value);
    if (status != CUDNN_STATUS_SUCCESS)
        graph_fail(graph, "set an attribute", status);
}

static void graph_set_tensor(struct graph *graph, cudnnBackendDescriptor_t descriptor,
                             cudnnBackendAttributeName_t name, const struct graph_tensor *tensor)
{
    if (tensor != NULL)
        graph_set(graph, descriptor, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &tensor->descriptor);
}

static void graph_finish(struct graph *graph, cudnnBackendDescriptor_t descriptor, const char *what)
{
    if (graph->failure.code != ERR_NONE)
        return;
    cudnnStatus_t status = cudnnBackendFinalize(descriptor);
    if (status != CUDNN_STATUS_SUCCESS)
        graph_fail(graph, what, status);
}

static void graph_push(struct graph *graph, cudnnBackendDescriptor_t op, const char *what)
{
    graph_finish(graph, op, what);
    must(graph->op_count < GRAPH_OPS_MAX);
    if (graph->failure.code == ERR_NONE)
        graph->ops[graph->op_count++] = op;
}

int graph_new(cudnnHandle_t handle, struct graph **ret, struct err *err)
{
    struct graph *graph = mem_new(1, sizeof *graph);
    if (graph == NULL)
        return mem_fail(err, sizeof *graph, "a cuDNN graph");
    graph->handle = handle;
    graph->next_virtual = 100;
    *ret = graph;
    return 0;
}

void graph_free(struct graph *graph)
{
    if (graph == NULL)
        return;
    if (graph->plan != NULL)
        (void)cudnnBackendDestroyDescriptor(graph->plan);
    while (graph->count > 0)
        (void)cudnnBackendDestroyDescriptor(graph->descriptors[--graph->count]);
    mem_free(graph);
}

/* ---- tensors ---- */

enum graph_kind { GRAPH_REAL, GRAPH_VIRTUAL, GRAPH_SCALAR };

static struct graph_tensor graph_tensor_make(struct graph *graph, enum graph_kind kind,
                                             int64_t number, cudnnDataType_t type,
                                             const int64_t dims[4], const int64_t strides[4],
                                             const struct graph_tensor *ragged)
{
    const int64_t alignment = 16;
    const bool yes = true;
    struct graph_tensor tensor = {0};
    memcpy(tensor.dims, dims, sizeof tensor.dims);
    memcpy(tensor.strides, strides, sizeof tensor.strides);
    cudnnBackendDescriptor_t d = graph_make(graph, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    tensor.descriptor = d;
    graph_set(graph, d, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
    graph_set(graph, d, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, dims);
    graph_set(graph, d, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, strides);
    graph_set(graph, d, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &number);
    graph_set(graph, d, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &alignment);
    if (kind == GRAPH_VIRTUAL)
        graph_set(graph, d, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &yes);
    if (kind == GRAPH_SCALAR)
        graph_set(graph, d, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, &yes);
    graph_set_tensor(graph, d, CUDNN_ATTR_TENSOR_RAGGED_OFFSET_DESC, ragged);
    graph_finish(graph, d, "a tensor");
    return tensor;
}

struct graph_tensor graph_real(struct graph *graph, int number, cudnnDataType_t type,
                               const int64_t dims[4], const int64_t strides[4],
                               const struct graph_tensor *ragged)
{
    must(number > 0 && number < GRAPH_TENSORS_MAX);
    graph->bound[number] = true;
    return graph_tensor_make(graph, GRAPH_REAL, number, type, dims, strides, ragged);
}

struct graph_tensor graph_scalar(struct graph *graph, int number)
{
    static const int64_t one[4] = {1, 1, 1, 1};
    must(number > 0 && number < GRAPH_TENSORS_MAX);
    graph->bound[number] = true;
    return graph_tensor_make(graph, GRAPH_SCALAR, number, CUDNN_DATA_FLOAT, one, one, NULL);
}

struct graph_tensor graph_virtual(struct graph *graph, cudnnDataType_t type, const int64_t dims[4],
                                  const int64_t strides[4])
{
    return graph_tensor_make(graph, GRAPH_VIRTUAL, graph->next_virtual++, type, dims, strides,
                             NULL);
}

struct graph_tensor graph_like(struct graph *graph, const struct graph_tensor *x,
                               cudnnDataType_t type)
{
    return graph_virtual(graph, type, x->dims, x->strides);
}

/* ---- operations ---- */

void graph_matmul(struct graph *graph, const struct graph_matmul *args)
{
    const cudnnDataType_t compute = CUDNN_DATA_FLOAT;
    const double padding = 0;
    cudnnBackendDescriptor_t how = graph_make(graph, CUDNN_BACKEND_MATMUL_DESCRIPTOR);
    graph_set(graph, how, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &compute);
    if (args->pad)
        graph_set(graph, how, CUDNN_ATTR_MATMUL_PADDING_VALUE, CUDNN_TYPE_DOUBLE, 1, &padding);
    graph_finish(graph, how, "a product");
    cudnnBackendDescriptor_t op = graph_make(graph, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
    graph_set_tensor(graph, op, CUDNN_ATTR_OPERATION_MATMUL_ADESC, args->a);
    graph_set_tensor(graph, op, CUDNN_ATTR_OPERATION_MATMUL_BDESC, args->b);
    graph_set_tensor(graph, op, CUDNN_ATTR_OPERATION_MATMUL_CDESC, args->c);
    graph_set(graph, op, CUDNN_ATTR_OPERATION_MATMUL_DESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &how);
    graph_set_tensor(graph, op, CUDNN_ATTR_OPERATION_MATMUL_GEMM_M_OVERRIDE_DESC, args->m);
    graph_set_tensor(graph, op, CUDNN_ATTR_OPERATION_MATMUL_GEMM_N_OVERRIDE_DESC, args->n);
    graph_set_tensor(graph, op, CUDNN_ATTR_OPERATION_MATMUL_GEMM_K_OVERRIDE_DESC, args->k);
    graph_push(graph, op, "a product");
}

void graph_pointwise(struct graph *graph, cudnnPointwiseMode_t mode, cudnnDataType_t compute,
                     int64_t axis, const struct graph_tensor *x, const struct graph_tensor *b,
                     const struct graph_tensor *select, const struct graph_tensor *y)
{
    const float one = 1.0f;
    cudnnBackendDescriptor_t how = graph_make(graph, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    graph_set(graph, how, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
    graph_set(graph, how, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &compute);
    if (mode == CUDNN_POINTWISE_GEN_INDEX)
        graph_set(graph, how, CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, 1, &axis);
    graph_finish(graph, how, "a pointwise operation");
    cudnnBackendDescriptor_t op = graph_make(graph, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    graph_set(graph, op, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR,
              CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &how);
    graph_set_tensor(graph, op, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x);
    graph_set_tensor(graph, op, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
    graph_set_tensor(graph, op, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, b);
    graph_set_tensor(graph, op, CUDNN_ATTR_OPERATION_POINTWISE_TDESC, select);
    graph_set(graph, op, CUDNN_ATTR_OPERATION_POINTWISE_ALPHA1, CUDNN_TYPE_FLOAT, 1, &one);
    graph_set(graph, op, CUDNN_ATTR_OPERATION_POINTWISE_ALPHA2, CUDNN_TYPE_FLOAT, 1, &one);
    graph_push(graph, op, "a pointwise operation");
}

struct graph_tensor graph_map(struct graph *graph, cudnnPointwiseMode_t mode,
                              const struct graph_tensor *x, const struct graph_tensor *b)
{
    struct graph_tensor y = graph_like(graph, x, CUDNN_DATA_FLOAT);
    graph_pointwise(graph, mode, CUDNN_DATA_FLOAT, -1, x, b, NULL, &y);
    return y;
}

void graph_reduce(struct graph *graph, cudnnReduceTensorOp_t mode, const struct graph_tensor *x,
                  const struct graph_tensor *y)
{
    const cudnnDataType_t compute = CUDNN_DATA_FLOAT;
    cudnnBackendDescriptor_t how = graph_make(graph, CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
    graph_set(graph, how, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &compute);
    graph_set(graph, how, CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1,
              &mode);
    graph_finish(graph, how, "a reduction");
    cudnnBackendDescriptor_t op = graph_make(graph, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
    graph_set_tensor(graph, op, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x);
    graph_set_tensor(graph, op, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y);
    graph_set(graph, op, CUDNN_ATTR_OPERATION_REDUCTION_DESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
              &how);
    graph_push(graph, op, "a reduction");
}

void graph_reshape(struct graph *graph, const struct graph_tensor *x, const struct graph_tensor *y)
{
    cudnnBackendDescriptor_t op = graph_make(graph, CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
    graph_set_tensor(graph, op, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x);
    graph_set_tensor(graph, op, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, y);
    graph_push(graph, op, "a reshape");
}

/* ---- plans ---- */

static bool graph_try_config(struct graph *graph, cudnnBackendDescriptor_t config)
{
    cudnnBackendDescriptor_t plan = NULL;
    int64_t count = 0;
    if (cudnnBackendCreateDescriptor(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, &plan) !=
        CUDNN_STATUS_SUCCESS)
        return false;
    if (cudnnBackendSetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG,
                                 CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
                                 &config) == CUDNN_STATUS_SUCCESS &&
        cudnnBackendFinalize(plan) == CUDNN_STATUS_SUCCESS &&
        cudnnBackendGetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64,
                                 1, &count, &graph->workspace_bytes) == CUDNN_STATUS_SUCCESS) {
        graph->plan = plan;
        return true;
    }
    (void)cudnnBackendDestroyDescriptor(plan);
    return false;
}

static void graph_try_mode(struct graph *graph, cudnnBackendDescriptor_t operations,
                           cudnnBackendHeurMode_t mode)
{
    cudnnBackendDescriptor_t configs[GRAPH_CONFIGS_MAX];
    int64_t found = 0;
    cudnnBackendDescriptor_t heuristic = graph_make(graph, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    graph_set(graph, heuristic, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH,
              CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &operations);
    graph_set(graph, heuristic, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
    if (graph->failure.code != ERR_NONE || cudnnBackendFinalize(heuristic) != CUDNN_STATUS_SUCCESS)
        return;
    for (int i = 0; i < GRAPH_CONFIGS_MAX; i++)
        configs[i] = graph_make(graph, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    if (graph->failure.code != ERR_NONE ||
        cudnnBackendGetAttribute(heuristic, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                 CUDNN_TYPE_BACKEND_DESCRIPTOR, GRAPH_CONFIGS_MAX, &found,
                                 configs) != CUDNN_STATUS_SUCCESS)
        return;
    for (int64_t i = 0; i < found && i < GRAPH_CONFIGS_MAX; i++)
        if (graph_try_config(graph, configs[i]))
            return;
}

int graph_plan(struct graph *graph, struct err *err)
{
    must(graph->plan == NULL);
    cudnnBackendDescriptor_t operations =
        graph_make(graph, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    graph_set(graph, operations, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
              graph->op_count, graph->ops);
    graph_set(graph, operations, GRAPH_ATTR_HANDLE, CUDNN_TYPE_HANDLE, 1, &graph->handle);
    graph_finish(graph, operations, "the graph");
    graph_try_mode(graph, operations, CUDNN_HEUR_MODE_A);
    if (graph->plan == NULL)
        graph_try_mode(graph, operations, CUDNN_HEUR_MODE_FALLBACK);
    if (graph->plan == NULL)
        graph_fail(graph,
                   facts_nvrtc() ? "no engine takes this graph"
                                 : "NVRTC, which compiles its kernels, is not on the library path: "
                                   "install it or name its folder in LD_LIBRARY_PATH",
                   CUDNN_STATUS_NOT_SUPPORTED);
    if (graph->failure.code == ERR_NONE)
        return 0;
    *err = graph->failure;
    return -(int)err->code;
}

int64_t graph_workspace_bytes(const struct graph *graph)
{
    return graph->workspace_bytes;
}

int graph_run(const struct graph *graph, void *const pointers[GRAPH_TENSORS_MAX], void *workspace,
              struct err *err)
{
    void *bound[GRAPH_TENSORS_MAX];
    int64_t numbers[GRAPH_TENSORS_MAX], count = 0;
    for (int i = 0; i < GRAPH_TENSORS_MAX; i++) {
        if (!graph->bound[i])
            continue;
        must(pointers[i] != NULL);
        bound[count] = pointers[i];
        numbers[count++] = i;
    }
    cudnnBackendDescriptor_t pack = NULL;
    cudnnStatus_t status =
        cudnnBackendCreateDescriptor(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &pack);
    if (status == CUDNN_STATUS_SUCCESS)
        status = cudnnBackendSetAttribute(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS,
                                          CUDNN_TYPE_VOID_PTR, count, bound);
    if (status == CUDNN_STATUS_SUCCESS)
        status = cudnnBackendSetAttribute(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS,
                                          CUDNN_TYPE_INT64, count, numbers);
    if (status == CUDNN_STATUS_SUCCESS)
        status = cudnnBackendSetAttribute(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE,
                                          CUDNN_TYPE_VOID_PTR, 1, &workspace);
    if (status == CUDNN_STATUS_SUCCESS)
        status = cudnnBackendFinalize(pack);
    if (status == CUDNN_STATUS_SUCCESS)
        status = cudnnBackendExecute(graph->handle, graph->plan, pack);
    if (pack != NULL)
        (void)cudnnBackendDestroyDescriptor(pack);
    if (status == CUDNN_STATUS_SUCCESS)
        return 0;
    TRY(cuda_faulted("attention", err));
    return err_set(err, ERR_DEVICE, "cuDNN: run attention: %s", cudnnGetErrorString(status));
}
