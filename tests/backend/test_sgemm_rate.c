/* sgemm_rate: products of 512 to 1024 run at a quarter of the FMA peak or more, and above the peak
 * of plain x86-64 where the CPU has more: a kernel for any CPU cannot.
 *
 * Both run on one thread and are timed by that thread's CPU time, which load from others does not
 * stretch. The peak is measured in the same minute by a loop of independent multiply-adds in
 * registers, with the widest instructions the CPU has (AVX-512, else AVX2, else plain), whatever
 * kernel OpenBLAS chose. Peak and product take turns, medians of five each; a turn that is
 * disturbed all the same is repeated, up to eight times, against the same bound. The core type is
 * that of cpu_blas_env_core() where the environment names none: the program sets it and executes
 * itself again, as the keeper does for a rank. */
#include "tests/lib/cmocka.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "common/median.h"
#include "tests/lib/on_device.h"
#include "worker/cpu/blas_env.h"

enum { RUNS = 5, TURNS = 8, FMA_ROUNDS = 200000, CHAINS = 12 };

typedef float vector16 __attribute__((vector_size(64)));
typedef float vector8 __attribute__((vector_size(32)));
typedef float vector4 __attribute__((vector_size(16)));

/* CHAINS independent sums, each a register of its own: more than latency times units. */
#define EACH_CHAIN(X) \
    X(0)              \
    X(1)              \
    X(2)              \
    X(3)              \
    X(4)              \
    X(5)              \
    X(6)              \
    X(7)              \
    X(8)              \
    X(9)              \
    X(10)             \
    X(11)
#define CHAIN_START(i) vector sum##i = term * (float)i;
#define CHAIN_STEP(i) sum##i = sum##i * factor + term;
#define CHAIN_END(i) sum0 += sum##i;
/* Keeps *sink from being known, and returns the multiply-adds done. */
#define FMA_LOOP_BODY(type)                            \
    typedef type vector;                               \
    vector factor = {0}, term = {0};                   \
    factor += 0.999f + sink[0];                        \
    term += 0.001f + sink[0];                          \
    EACH_CHAIN(CHAIN_START)                            \
    for (int round = 0; round < FMA_ROUNDS; round++) { \
        EACH_CHAIN(CHAIN_STEP)                         \
    }                                                  \
    EACH_CHAIN(CHAIN_END)                              \
    sink[1] += sum0[0] + sum0[1] + sum0[2] + sum0[3];  \
    return (double)FMA_ROUNDS * CHAINS * (double)(sizeof(vector) / sizeof(float));

#if defined(__x86_64__)
__attribute__((target("avx512f"), noinline)) static double fma_avx512(volatile float *sink)
{
    FMA_LOOP_BODY(vector16)
}

__attribute__((target("avx2,fma"), noinline)) static double fma_avx2(volatile float *sink)
{
    FMA_LOOP_BODY(vector8)
}
#endif

static double fma_plain(volatile float *sink)
{
    FMA_LOOP_BODY(vector4)
}

static int64_t cpu_ns(void)
{
    struct timespec now;
    must(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now) == 0);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

typedef double fma_loop(volatile float *sink);

static fma_loop *fma_widest(const char **ret_isa)
{
    *ret_isa = "plain";
#if defined(__x86_64__)
    struct cpu_blas_features features = cpu_blas_env_features();
    if (features.avx512) {
        *ret_isa = "AVX-512";
        return fma_avx512;
    }
    if (features.avx2_fma) {
        *ret_isa = "AVX2";
        return fma_avx2;
    }
#endif
    return fma_plain;
}

static double fma_rate(fma_loop *loop)
{
    double rates[RUNS];
    volatile float sink[2] = {0, 0};
    for (int run = 0; run < RUNS; run++) {
        int64_t from = cpu_ns();
        double done = loop(sink);
        rates[run] = 2 * done / (double)(cpu_ns() - from);
    }
    return median_sort(rates, RUNS);
}

static double gemm_rate(int64_t n, const float *a, const float *b, float *c)
{
    double rates[RUNS];
    for (int run = 0; run < RUNS; run++) {
        int64_t from = cpu_ns();
        RUN(1, gemm, .m = n, .n = n, .k = n, .a = a, .lda = n, .b = b, .ldb = n, .trans_b = true,
            .c = c, .ldc = n, .alpha = 1, .batch = 1);
        rates[run] = 2 * (double)(n * n * n) / (double)(cpu_ns() - from);
    }
    return median_sort(rates, RUNS);
}

static void test_shares_of_the_peak(void **state)
{
    static const int64_t sizes[] = {512, 768, 1024};
    const float *a = testing_normal(1024 * 1024), *b = testing_normal(1024 * 1024);
    float *c = testing_poison(1024 * 1024);
    const char *isa = "";
    fma_loop *widest = fma_widest(&isa);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        bool good = false;
        for (int turn = 0; turn < TURNS && !good; turn++) {
            double peak = fma_rate(widest), plain = fma_rate(fma_plain);
            double rate = gemm_rate(sizes[i], a, b, c);
            good = rate >= 0.25 * peak && (widest == fma_plain || rate > plain);
            print_message("sgemm of %d: %.1f GF/s, FMA peak %.1f GF/s (%s, one thread): %.2f; "
                          "plain %.1f\n",
                          (int)sizes[i], rate, peak, isa, rate / peak, plain);
        }
        if (!good)
            fail_msg("sgemm of %d is slow; OPENBLAS_CORETYPE=%s", (int)sizes[i],
                     getenv("OPENBLAS_CORETYPE"));
    }
}

int main(int argc, char **argv)
{
#if !defined(__OPTIMIZE__)
    (void)printf("skipped: without optimisation the peak's loop is not the peak\n");
    return 77;
#endif
    const char *core = cpu_blas_env_core();
    if (core != NULL && argc == 1) {
        (void)setenv("OPENBLAS_CORETYPE", core, 1);
        (void)execl("/proc/self/exe", argv[0], "again", (char *)NULL);
        return 1; /* no /proc */
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_shares_of_the_peak, testing_free),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
