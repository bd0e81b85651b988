/* trace: see trace.h. */
#include "worker/cuda/trace.h"

#include "common/clock.h"
#include "common/mem.h"
#include "worker/cuda/device_cuda.h"
#include "worker/kernel_name.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#ifdef ITHACA_CUPTI
#include <cupti.h>

enum { TRACE_BUFFER_BYTES = 1 << 22, TRACE_ALIGN = 8, TRACE_NAME_BYTES = 128 };

/* X(result, name, arguments): what is taken from the library */
#define TRACE_CALLS(X)                                                       \
    X(ActivityRegisterTimestampCallback, (CUpti_TimestampCallbackFunc))      \
    X(ActivityRegisterCallbacks,                                             \
      (CUpti_BuffersCallbackRequestFunc, CUpti_BuffersCallbackCompleteFunc)) \
    X(ActivityEnable, (CUpti_ActivityKind))                                  \
    X(ActivityDisable, (CUpti_ActivityKind))                                 \
    X(ActivityFlushAll, (uint32_t))                                          \
    X(ActivityGetNextRecord, (uint8_t *, size_t, CUpti_Activity **))         \
    X(ActivityGetNumDroppedRecords, (CUcontext, uint32_t, size_t *))         \
    X(GetResultString, (CUptiResult, const char **))

static struct {
#define X(name, arguments) CUptiResult(CUPTIAPI *name) arguments;
    TRACE_CALLS(X)
#undef X
} cupti;
static struct trace_sink *trace_told; /* NULL: not traced */

static const CUpti_ActivityKind trace_kinds[] = {
    CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_MEMCPY, CUPTI_ACTIVITY_KIND_MEMSET};
enum { TRACE_KINDS = sizeof trace_kinds / sizeof trace_kinds[0] };

static int trace_check(CUptiResult result, const char *call, struct err *err)
{
    const char *text = "an unknown error";
    if (result == CUPTI_SUCCESS)
        return 0;
    (void)cupti.GetResultString(result, &text); /* it stays as it is */
    /* Another profiler has the GPU, or the driver allows none: the run goes on untraced. */
    return err_set(err, ERR_UNSUPPORTED, "CUPTI: %s (%s)", text, call);
}
#define CUPTI_TRY(call) TRY(trace_check(cupti.call, #call, err))

/* ---- records ----------------------------------------------------------------------------- */

static uint64_t CUPTIAPI trace_clock(void)
{
    return (uint64_t)clock_monotonic_ns();
}

static void CUPTIAPI trace_buffer(uint8_t **ret_buffer, size_t *ret_bytes, size_t *ret_records)
{
    *ret_buffer = mem_aligned(TRACE_ALIGN, TRACE_BUFFER_BYTES);
    *ret_bytes = *ret_buffer != NULL ? TRACE_BUFFER_BYTES : 0; /* CUPTI drops and counts then */
    *ret_records = 0;                                          /* as many as it holds */
}

static const char *trace_copy_name(uint8_t kind)
{
    switch (kind) {
    case CUPTI_ACTIVITY_MEMCPY_KIND_HTOD:
        return "copy from the host";
    case CUPTI_ACTIVITY_MEMCPY_KIND_DTOH:
        return "copy to the host";
    case CUPTI_ACTIVITY_MEMCPY_KIND_DTOD:
        return "copy on the device";
    default:
        return "copy";
    }
}

static void trace_record(const CUpti_Activity *record)
{
    char name[TRACE_NAME_BYTES];
    struct trace_work work = {.kind = TRACE_KERNEL, .name = name};
    if (record->kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) {
        const CUpti_ActivityKernel10 *kernel = (const CUpti_ActivityKernel10 *)record;
        kernel_name(kernel->name != NULL ? kernel->name : "a kernel", name, sizeof name);
        if (strncmp(name, "nccl", 4) == 0)
            work.kind = TRACE_COLLECTIVE;
        work.lane = kernel->streamId;
        work.begin_ns = (int64_t)kernel->start;
        work.end_ns = (int64_t)kernel->end;
    } else if (record->kind == CUPTI_ACTIVITY_KIND_MEMCPY) {
        const CUpti_ActivityMemcpy6 *copy = (const CUpti_ActivityMemcpy6 *)record;
        work.kind = TRACE_COPY;
        work.name = trace_copy_name(copy->copyKind);
        work.lane = copy->streamId;
        work.begin_ns = (int64_t)copy->start;
        work.end_ns = (int64_t)copy->end;
        work.bytes = (int64_t)copy->bytes;
    } else if (record->kind == CUPTI_ACTIVITY_KIND_MEMSET) {
        const CUpti_ActivityMemset4 *set = (const CUpti_ActivityMemset4 *)record;
        work.name = "zero";
        work.lane = set->streamId;
        work.begin_ns = (int64_t)set->start;
        work.end_ns = (int64_t)set->end;
    } else {
        return;
    }
    trace_told->add(trace_told, &work);
}

static void CUPTIAPI trace_completed(CUcontext context, uint32_t stream, uint8_t *buffer,
                                     size_t bytes, size_t used)
{
    CUpti_Activity *record = NULL;
    size_t dropped = 0;
    (void)bytes;
    while (trace_told != NULL &&
           cupti.ActivityGetNextRecord(buffer, used, &record) == CUPTI_SUCCESS)
        trace_record(record);
    if (trace_told != NULL &&
        cupti.ActivityGetNumDroppedRecords(context, stream, &dropped) == CUPTI_SUCCESS &&
        dropped > 0)
        trace_told->lost(trace_told, (int64_t)dropped);
    mem_free(buffer);
}

/* ---- the library ------------------------------------------------------------------------- */

/* Of the toolkit that this was built with: records have another shape in others. */
static void *trace_library(void)
{
    char name[32];
    (void)snprintf(name, sizeof name, "libcupti.so.%d", CUDART_VERSION / 1000);
    void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    return library != NULL ? library : dlopen(ITHACA_CUPTI, RTLD_NOW | RTLD_LOCAL);
}

static int trace_load(struct err *err)
{
    if (cupti.ActivityEnable != NULL)
        return 0;
    void *library = trace_library();
    if (library == NULL)
        return err_set(err, ERR_UNSUPPORTED, "libcupti.so.%d cannot be loaded",
                       CUDART_VERSION / 1000);
    bool whole = true;
#define X(name, arguments)                            \
    {                                                 \
        void *symbol = dlsym(library, "cupti" #name); \
        whole &= symbol != NULL;                      \
        memcpy(&cupti.name, &symbol, sizeof symbol);  \
    }
    TRACE_CALLS(X)
#undef X
    if (whole)
        return 0; /* it stays loaded */
    memset(&cupti, 0, sizeof cupti);
    (void)dlclose(library); /* nothing of it was called */
    return err_set(err, ERR_UNSUPPORTED, "libcupti.so.%d lacks a function", CUDART_VERSION / 1000);
}

static int trace_start(struct trace_sink *sink, struct err *err)
{
    TRY(trace_load(err));
    CUPTI_TRY(ActivityRegisterTimestampCallback(trace_clock));
    CUPTI_TRY(ActivityRegisterCallbacks(trace_buffer, trace_completed));
    trace_told = sink;
    for (int kind = 0; kind < TRACE_KINDS; kind++)
        CUPTI_TRY(ActivityEnable(trace_kinds[kind]));
    return 0;
}

/* Whatever fails, nobody is told any more. */
static int trace_stop(struct err *err)
{
    int rc = cuda_check(cudaDeviceSynchronize(), "cudaDeviceSynchronize", err);
    for (int kind = 0; kind < TRACE_KINDS && rc == 0; kind++)
        rc = trace_check(cupti.ActivityDisable(trace_kinds[kind]), "cuptiActivityDisable", err);
    if (rc == 0)
        rc = trace_check(cupti.ActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED),
                         "cuptiActivityFlushAll", err);
    trace_told = NULL;
    return rc;
}

int device_cuda_trace(struct device *device, struct trace_sink *sink, struct err *err)
{
    struct err ignored;
    (void)device; /* the only one */
    if (sink == NULL)
        return trace_told != NULL ? trace_stop(err) : 0;
    int rc = trace_start(sink, err);
    if (rc != 0 && trace_told != NULL)
        (void)trace_stop(&ignored); /* some kinds may be on */
    if (rc != 0)
        trace_told = NULL;
    return rc;
}

#else

int device_cuda_trace(struct device *device, struct trace_sink *sink, struct err *err)
{
    (void)device;
    return sink == NULL ? 0 : err_set(err, ERR_UNSUPPORTED, "this build was made without CUPTI");
}

#endif
