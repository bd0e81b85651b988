/* ops_cpu: the CPU's operation table and the functions in it, cpu_<op> in <op>.c (backwards in the
 * file of their forward, but attention's). fp32 throughout; contracts are those of worker/ops.h. */
#pragma once
#include "worker/ops.h"

extern const struct ops ops_cpu;

#define X(name)                                                                                 \
    int cpu_##name(struct device *device, struct stream *stream, const struct ops_##name *args, \
                   struct err *err);
OPS_TABLE(X)
#undef X
