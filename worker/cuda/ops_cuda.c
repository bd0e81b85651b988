/* ops_cuda: the table, and the plug-in's one exported symbol. */
#include "worker/cuda/ops_cuda.h"

#include "common/must.h"
#include "worker/cuda/coll_nccl.h"
#include "worker/cuda/facts.h"
#include "worker/device_cuda.h"

const struct ops ops_cuda = {
#define X(op) .op = cuda_##op,
    OPS_TABLE(X)
#undef X
};

#define X(op) +1
extern const struct device_cuda_plugin ithaca_cuda_plugin;
__attribute__((visibility("default"))) const struct device_cuda_plugin ithaca_cuda_plugin = {
    .abi = DEVICE_CUDA_ABI,
    .op_count = 0 OPS_TABLE(X),
    .must_last_words = &must_last_words,
    .open = device_cuda_open_plugin,
    .coll_open = coll_nccl_open,
    .describe = facts_describe,
};
#undef X
