/* gemm: one cblas_sgemm a matrix of the batch. A bias is laid into C first and the product added to
 * it, so that C is walked once more only where there is a bias.
 *
 * The thread count follows the device: OpenBLAS's OpenMP flavour takes omp_get_max_threads() of the
 * calling thread, and 1 inside a parallel region.
 *
 * Products of tiny-llama (512 rows; 256 by 256 to 256 by 704): 187 to 198 GF/s with Cooperlake's
 * kernels, 97 to 108 with Haswell's (bench_ops, one core of an EPYC of family 26, OpenBLAS 0.3.21,
 * 2026-11). */
#include "worker/cpu/gemm.h"

#include "common/must.h"
#include "worker/cpu/device_cpu.h"
#include "worker/cpu/ops_cpu.h"

#include <cblas.h>
#include <limits.h>
#include <math.h>
#include <string.h>

static blasint gemm_int(int64_t value)
{
    must(value >= 0 && value <= INT_MAX);
    return (blasint)value;
}

void cpu_sgemm(const struct cpu_sgemm *args)
{
    cblas_sgemm(CblasRowMajor, args->trans_a ? CblasTrans : CblasNoTrans,
                args->trans_b ? CblasTrans : CblasNoTrans, gemm_int(args->m), gemm_int(args->n),
                gemm_int(args->k), args->alpha, args->a, gemm_int(args->lda), args->b,
                gemm_int(args->ldb), args->beta, args->c, gemm_int(args->ldc));
}

static void gemm_lay_bias(const struct ops_gemm *args, const float *bias, float *c)
{
    for (int64_t row = 0; row < args->m; row++) {
        float *line = c + row * args->ldc;
        if (!args->accumulate) {
            memcpy(line, bias, (size_t)args->n * sizeof *line);
            continue;
        }
        for (int64_t column = 0; column < args->n; column++)
            line[column] += bias[column];
    }
}

/* The product over k = 0 terms: C is zero (or what it was). */
static void gemm_empty_sum(const struct ops_gemm *args, float *c)
{
    for (int64_t row = 0; row < args->m && args->bias == NULL && !args->accumulate; row++)
        memset(c + row * args->ldc, 0, (size_t)args->n * sizeof *c);
}

int cpu_gemm(struct device *device, struct stream *stream, const struct ops_gemm *args,
             struct err *err)
{
    (void)stream, (void)err;
    must(args->m >= 0 && args->n >= 0 && args->k >= 0 && args->batch >= 0);
    must(args->ldc >= args->n && args->lda >= (args->trans_a ? args->m : args->k) &&
         args->ldb >= (args->trans_b ? args->k : args->n));
    if (args->m == 0 || args->n == 0)
        return 0;
    omp_set_num_threads(device_cpu_threads(device));
    for (int64_t i = 0; i < args->batch; i++) {
        float *c = (float *)args->c + i * args->stride_c;
        if (args->bias != NULL)
            gemm_lay_bias(args, (const float *)args->bias + i * args->stride_bias, c);
        if (args->k == 0) {
            gemm_empty_sum(args, c);
            continue;
        }
        cpu_sgemm(&(struct cpu_sgemm){
            .m = args->m,
            .n = args->n,
            .k = args->k,
            .alpha = args->alpha,
            .a = (const float *)args->a + i * args->stride_a,
            .lda = args->lda,
            .trans_a = args->trans_a,
            .b = (const float *)args->b + i * args->stride_b,
            .ldb = args->ldb,
            .trans_b = args->trans_b,
            .beta = args->accumulate || args->bias != NULL ? 1.0f : 0.0f,
            .c = c,
            .ldc = args->ldc,
        });
    }
    return 0;
}

enum { CHECK_MAX = 67 }; /* largest extent of the check: past a kernel's widest block */

/* Largest error of op(A) op(B) over random-looking values in [-1, 1]. */
static double gemm_check_one(int64_t m, int64_t n, int64_t k, bool trans_a, bool trans_b)
{
    static _Thread_local float a[CHECK_MAX * CHECK_MAX], b[CHECK_MAX * CHECK_MAX],
        c[CHECK_MAX * CHECK_MAX];
    int64_t lda = trans_a ? m : k, ldb = trans_b ? k : n;
    for (int64_t i = 0; i < m * k; i++)
        a[i] = (float)(i * 7 % 31 - 15) / 15.0f;
    for (int64_t i = 0; i < k * n; i++)
        b[i] = (float)(i * 11 % 29 - 14) / 14.0f;
    for (int64_t i = 0; i < m * n; i++)
        c[i] = NAN;
    cpu_sgemm(&(struct cpu_sgemm){.m = m,
                                  .n = n,
                                  .k = k,
                                  .alpha = 1.0f,
                                  .a = a,
                                  .lda = lda,
                                  .trans_a = trans_a,
                                  .b = b,
                                  .ldb = ldb,
                                  .trans_b = trans_b,
                                  .c = c,
                                  .ldc = n});
    double worst = 0;
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++) {
            double sum = 0;
            for (int64_t l = 0; l < k; l++)
                sum += (double)a[trans_a ? l * lda + i : i * lda + l] *
                       (double)b[trans_b ? j * ldb + l : l * ldb + j];
            double error = fabs((double)c[i * n + j] - sum);
            worst = error <= worst ? worst : error; /* NaN stays */
        }
    return worst;
}

int cpu_gemm_check(struct device *device, struct err *err)
{
    static const int64_t shapes[][3] = {{1, 1, 1}, {17, 33, 5}, {64, 64, 32}, {67, 66, 65}};
    omp_set_num_threads(device_cpu_threads(device));
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        for (int trans = 0; trans < 4; trans++) {
            double worst = gemm_check_one(shapes[i][0], shapes[i][1], shapes[i][2],
                                          (trans & 1) != 0, (trans & 2) != 0);
            if (!(worst < 1e-4))
                return err_set(err, ERR_UNSUPPORTED,
                               "OpenBLAS's %s kernels compute wrong products on this CPU; set "
                               "OPENBLAS_CORETYPE=Haswell in the environment of ithacad",
                               openblas_get_corename());
        }
    return 0;
}
