/* on_cuda: one operation on the CPU and on the GPU, from the same numbers. A program of
 * tests/backend includes it once, after cmocka.h.
 *
 * A `pair` is one array in both memories. Activations are rounded to bf16 first, so that both
 * devices start from the same values; outputs start as NaN on both sides. Without a GPU the program
 * ends with 77 (skipped), saying why. */
#pragma once
#include "common/mem.h"
#include "common/must.h"
#include "tests/lib/testing.h"
#include "worker/device_cuda.h"
#include "worker/ops.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { ON_CUDA_PAIRS_MAX = 256, ON_CUDA_SKIPPED = 77 };

struct pair {
    float *cpu;    /* (count), or int32 */
    void *gpu;     /* (count) of bf16 or 4 bytes */
    int64_t count; /* elements */
    bool bf16;     /* on the GPU */
};

static struct device *on_cuda_gpu, *on_cuda_cpu;
static void *on_cuda_memory[ON_CUDA_PAIRS_MAX];
static int on_cuda_count;

#define CHECK(call)                                     \
    do {                                                \
        struct err check_err_ = {0};                    \
        struct err *err = &check_err_;                  \
        if ((call) != 0)                                \
            fail_msg("%s: %s", #call, check_err_.text); \
    } while (0)

/* Opens both devices; false (after printing why) where there is no GPU to test on. */
static inline bool on_cuda_open(void)
{
    struct err err = {0};
    if (device_cuda_open(0, &on_cuda_gpu, &err) != 0) {
        printf("skipped: %s\n", err.text);
        must(err.code == ERR_UNSUPPORTED); /* anything else is a fault, not a reason to skip */
        return false;
    }
    must(device_cpu_open(4, &on_cuda_cpu, &err) == 0);
    return true;
}

static inline void *on_cuda_alloc(int64_t bytes)
{
    struct err err = {0};
    must(on_cuda_count < ON_CUDA_PAIRS_MAX);
    void *memory = on_cuda_gpu->dev->alloc(on_cuda_gpu, (size_t)bytes, &err);
    if (memory == NULL)
        fail_msg("%s", err.text);
    on_cuda_memory[on_cuda_count++] = memory;
    return memory;
}

static inline int on_cuda_free(void **state)
{
    while (on_cuda_count > 0)
        on_cuda_gpu->dev->free(on_cuda_gpu, on_cuda_memory[--on_cuda_count]);
    return testing_free(state);
}

static inline void on_cuda_copy(void *to, const void *from, int64_t bytes)
{
    CHECK(on_cuda_gpu->dev->copy(on_cuda_gpu, NULL, to, from, (size_t)bytes, err));
    CHECK(on_cuda_gpu->dev->sync(on_cuda_gpu, NULL, err));
}

/* cpu's values to both sides, as bf16 (rounding cpu too) or as they are. */
static inline struct pair pair_of(void *cpu, int64_t count, bool bf16)
{
    struct pair pair = {.cpu = cpu, .count = count, .bf16 = bf16};
    pair.gpu = on_cuda_alloc(count * (bf16 ? 2 : 4));
    if (!bf16) {
        on_cuda_copy(pair.gpu, cpu, count * 4);
        return pair;
    }
    uint16_t *bits = (uint16_t *)testing_below(count / 2 + 1, 2);
    for (int64_t i = 0; i < count; i++) {
        bits[i] = dtype_f32_to_bf16(pair.cpu[i]);
        pair.cpu[i] = dtype_bf16_to_f32(bits[i]);
    }
    on_cuda_copy(pair.gpu, bits, count * 2);
    return pair;
}

static inline struct pair pair_normal(int64_t count, bool bf16)
{
    return pair_of(testing_normal(count), count, bf16);
}
static inline struct pair pair_poison(int64_t count, bool bf16)
{
    return pair_of(testing_poison(count), count, bf16);
}
static inline struct pair pair_below(int64_t count, int64_t bound)
{
    return pair_of(testing_below(count, bound), count, false);
}

/* The GPU's side, widened. */
static inline float *pair_download(const struct pair *pair)
{
    float *wide = testing_poison(pair->count);
    if (!pair->bf16) {
        on_cuda_copy(wide, pair->gpu, pair->count * 4);
        return wide;
    }
    uint16_t *bits = (uint16_t *)testing_below(pair->count / 2 + 1, 2);
    on_cuda_copy(bits, pair->gpu, pair->count * 2);
    for (int64_t i = 0; i < pair->count; i++)
        wide[i] = dtype_bf16_to_f32(bits[i]);
    return wide;
}

/* Fails unless the GPU's side is the CPU's within `bound` (relative, of the whole array); NaN must
 * be where it is on the CPU: elements that neither wrote. */
static inline void pair_close(const char *what, const struct pair *pair, double bound)
{
    float *got = pair_download(pair);
    double *want = testing_zeros(pair->count);
    for (int64_t i = 0; i < pair->count; i++) {
        if (isnan(got[i]) != isnan(pair->cpu[i]))
            fail_msg("%s: element %lld is %g, on the CPU %g; ITHACA_TEST_SEED=%llu", what,
                     (long long)i, (double)got[i], (double)pair->cpu[i],
                     (unsigned long long)testing_seed());
        want[i] = isnan(got[i]) ? 0 : (double)pair->cpu[i];
        got[i] = isnan(got[i]) ? 0 : got[i];
    }
    testing_close(what, got, want, NULL, pair->count, bound);
}

/* BOTH(gemm, &cpu_args, &gpu_args) */
#define BOTH(op, cpu_args, gpu_args)                                   \
    do {                                                               \
        CHECK(on_cuda_cpu->ops->op(on_cuda_cpu, NULL, cpu_args, err)); \
        CHECK(on_cuda_gpu->ops->op(on_cuda_gpu, NULL, gpu_args, err)); \
        CHECK(on_cuda_gpu->dev->sync(on_cuda_gpu, NULL, err));         \
    } while (0)
