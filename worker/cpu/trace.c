/* trace: operations and copies of the CPU device, timed. A function for each row of OPS_TABLE reads
 * the clock around the device's own; the tables are exchanged while the device is traced, so that
 * otherwise nothing stands before an operation. */
#include "common/clock.h"
#include "worker/cpu/device_cpu.h"
#include "worker/ops.h"

static void trace_tell(const struct device_cpu_traced *traced, enum trace_kind kind,
                       const char *name, int64_t begin_ns, size_t bytes)
{
    const struct trace_work work = {.kind = kind,
                                    .name = name,
                                    .begin_ns = begin_ns,
                                    .end_ns = clock_monotonic_ns(),
                                    .bytes = (int64_t)bytes};
    traced->sink->add(traced->sink, &work);
}

#define X(op)                                                                            \
    static int trace_##op(struct device *device, struct stream *stream,                  \
                          const struct ops_##op *args, struct err *err)                  \
    {                                                                                    \
        const struct device_cpu_traced *traced = &((struct device_cpu *)device)->traced; \
        int64_t begin_ns = clock_monotonic_ns();                                         \
        TRY(traced->ops->op(device, stream, args, err));                                 \
        trace_tell(traced, TRACE_KERNEL, #op, begin_ns, 0);                              \
        return 0;                                                                        \
    }
OPS_TABLE(X)
#undef X

static int trace_copy(struct device *device, struct stream *stream, void *to, const void *from,
                      size_t bytes, struct err *err)
{
    const struct device_cpu_traced *traced = &((struct device_cpu *)device)->traced;
    int64_t begin_ns = clock_monotonic_ns();
    TRY(traced->dev->copy(device, stream, to, from, bytes, err));
    trace_tell(traced, TRACE_COPY, "copy", begin_ns, bytes);
    return 0;
}

static int trace_zero(struct device *device, struct stream *stream, void *memory, size_t bytes,
                      struct err *err)
{
    const struct device_cpu_traced *traced = &((struct device_cpu *)device)->traced;
    int64_t begin_ns = clock_monotonic_ns();
    TRY(traced->dev->zero(device, stream, memory, bytes, err));
    trace_tell(traced, TRACE_KERNEL, "zero", begin_ns, 0);
    return 0;
}

static const struct ops trace_ops = {
#define X(op) .op = trace_##op,
    OPS_TABLE(X)
#undef X
};

int device_cpu_trace(struct device *device, struct trace_sink *sink, struct err *err)
{
    struct device_cpu_traced *traced = &((struct device_cpu *)device)->traced;
    (void)err;
    if (traced->sink == NULL && sink != NULL) {
        traced->dev = device->dev;
        traced->ops = device->ops;
        traced->told_dev = *device->dev;
        traced->told_dev.copy = trace_copy;
        traced->told_dev.zero = trace_zero;
        device->dev = &traced->told_dev;
        device->ops = &trace_ops;
    } else if (traced->sink != NULL && sink == NULL) {
        device->dev = traced->dev;
        device->ops = traced->ops;
    }
    traced->sink = sink;
    return 0;
}
