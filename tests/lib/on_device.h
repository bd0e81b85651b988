/* on_device: calling operations of a CPU device in tests, one device a thread count. Each program
 * of tests/backend includes it once, after cmocka.h. */
#pragma once
#include "common/must.h"
#include "tests/lib/testing.h"
#include "worker/device.h"
#include "worker/ops.h"

/* The device with this many threads, opened at first use and kept. */
static inline struct device *on_device(int threads)
{
    static struct device *devices[8];
    must(threads >= 1 && threads < 8);
    struct err err = {0};
    if (devices[threads] == NULL && device_cpu_open(threads, &devices[threads], &err) != 0)
        fail_msg("device_cpu_open: %s", err.text);
    return devices[threads];
}

/* RUN(threads, gemm, .m = 1, ...): the op on that device; a failure fails the test. */
#define RUN(threads, op, ...)                                                    \
    do {                                                                         \
        struct err run_err_ = {0};                                               \
        struct device *run_device_ = on_device(threads);                         \
        const struct ops_##op run_args_ = {__VA_ARGS__};                         \
        if (run_device_->ops->op(run_device_, NULL, &run_args_, &run_err_) != 0) \
            fail_msg("%s: %s", #op, run_err_.text);                              \
    } while (0)
