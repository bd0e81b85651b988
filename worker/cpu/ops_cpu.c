/* ops_cpu: the table; a row of OPS_TABLE without a cpu_ function does not link. */
#include "worker/cpu/ops_cpu.h"

const struct ops ops_cpu = {
#define X(op) .op = cpu_##op,
    OPS_TABLE(X)
#undef X
};
