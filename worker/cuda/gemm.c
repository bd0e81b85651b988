/* gemm: cuBLASLt. Row-major C = op(A) op(B) is column-major C^T = op(B)^T op(A)^T: B goes in first,
 * m and n change places.
 *
 * The algorithm is the first that the library's heuristics give for the shape, the strides and the
 * alignment of the pointers, asked once and kept. Sums split over k are added in fp32, never in
 * bf16 and never by atomics, so a shape gives the same bits each time. A bias is cuBLASLt's
 * epilogue where C is bf16; an fp32 C gets its bias laid first (no model has one there).
 *
 * 8B shapes at 128K tokens: 673 to 693 TF/s, weight gradients in fp32 681, logits of 1024 rows 643;
 * a product of 8192 cubed at the power cap 667 (bench_cuda_ops 131072, one H200, driver 580.159.04,
 * 2026-11-29). */
#include "worker/cuda/gemm.h"

#include "common/clock.h"
#include "common/mem.h"
#include "common/must.h"
#include "worker/cuda/bias.h"
#include "worker/cuda/ops_cuda.h"

#include <cublasLt.h>
#include <string.h>

/* Shapes kept. A model has about a dozen; batches of other lengths have others, so that a cache
 * that is full forgets all: asking again is quick. */
enum { GEMM_SLOTS = 256, GEMM_FULL = 192 };
static const size_t gemm_workspace_bytes = (size_t)32 << 20; /* NVIDIA's advice for Hopper */

struct gemm_key {
    int64_t m, n, k, lda, ldb, ldc, batch, stride_a, stride_b, stride_c, stride_bias;
    uint32_t align_a, align_b, align_c; /* bytes, a power of two up to 256 */
    uint32_t flags;                     /* GEMM_* */
};
enum { GEMM_TRANS_A = 1, GEMM_TRANS_B = 2, GEMM_C_F32 = 4, GEMM_BIAS = 8, GEMM_ADD = 16 };

struct gemm_entry {
    bool used;
    struct gemm_key key;
    cublasLtMatmulDesc_t matmul;
    cublasLtMatrixLayout_t a, b, c; /* as cuBLASLt counts: a is our B */
    cublasLtMatmulAlgo_t algo;
};

struct gemm_cache {
    int count;
    int64_t made_ns;                       /* that plans took */
    struct gemm_entry entries[GEMM_SLOTS]; /* open addressing */
};

static int gemm_check(cublasStatus_t status, const char *call, struct err *err)
{
    if (status == CUBLAS_STATUS_SUCCESS)
        return 0;
    TRY(cuda_faulted(call, err));
    return err_set(err, ERR_DEVICE, "cuBLASLt: %s (%s)", cublasLtGetStatusString(status), call);
}
#define BLAS_TRY(call) TRY(gemm_check(call, #call, err))

int gemm_cache_new(struct gemm_cache **ret, struct err *err)
{
    struct gemm_cache *cache = mem_new(1, sizeof *cache);
    if (cache == NULL)
        return mem_fail(err, sizeof *cache, "cuBLASLt's plans");
    *ret = cache;
    return 0;
}

static void gemm_entry_done(struct gemm_entry *entry)
{
    if (entry->matmul != NULL)
        (void)cublasLtMatmulDescDestroy(entry->matmul);
    if (entry->a != NULL)
        (void)cublasLtMatrixLayoutDestroy(entry->a);
    if (entry->b != NULL)
        (void)cublasLtMatrixLayoutDestroy(entry->b);
    if (entry->c != NULL)
        (void)cublasLtMatrixLayoutDestroy(entry->c);
    *entry = (struct gemm_entry){0};
}

static void gemm_cache_clear(struct gemm_cache *cache)
{
    for (int i = 0; i < GEMM_SLOTS; i++)
        gemm_entry_done(&cache->entries[i]);
    cache->count = 0;
}

void gemm_cache_free(struct gemm_cache *cache)
{
    if (cache == NULL)
        return;
    gemm_cache_clear(cache);
    mem_free(cache);
}

int64_t gemm_cache_made_ns(const struct gemm_cache *cache)
{
    return cache->made_ns;
}

static uint32_t gemm_align(const void *pointer, int64_t ld, int64_t stride, size_t size)
{
    uint64_t bits =
        (uint64_t)(uintptr_t)pointer | (uint64_t)ld * size | (uint64_t)stride * size | 256;
    return (uint32_t)(bits & -bits);
}

static struct gemm_key gemm_key_of(const struct ops_gemm *args)
{
    struct gemm_key key;
    memset(&key, 0, sizeof key); /* compared by bytes */
    size_t c_size = args->c_f32 ? 4 : 2;
    bool many = args->batch > 1;
    key.m = args->m, key.n = args->n, key.k = args->k;
    key.lda = args->lda, key.ldb = args->ldb, key.ldc = args->ldc, key.batch = args->batch;
    key.stride_a = many ? args->stride_a : 0;
    key.stride_b = many ? args->stride_b : 0;
    key.stride_c = many ? args->stride_c : 0;
    key.stride_bias = many && args->bias != NULL ? args->stride_bias : 0;
    key.align_a = gemm_align(args->a, args->lda, key.stride_a, 2);
    key.align_b = gemm_align(args->b, args->ldb, key.stride_b, 2);
    key.align_c = gemm_align(args->c, args->ldc, key.stride_c, c_size);
    key.flags = (args->trans_a ? GEMM_TRANS_A : 0u) | (args->trans_b ? GEMM_TRANS_B : 0u) |
                (args->c_f32 ? GEMM_C_F32 : 0u) |
                (args->bias != NULL && !args->c_f32 ? GEMM_BIAS : 0u) |
                (args->accumulate || (args->bias != NULL && args->c_f32) ? GEMM_ADD : 0u);
    return key;
}

/* The layout of a row-major [rows, columns] matrix: column-major [columns, rows]. */
static int gemm_layout(cublasLtMatrixLayout_t *ret, cudaDataType_t type, int64_t rows,
                       int64_t columns, int64_t ld, int64_t batch, int64_t stride, struct err *err)
{
    int32_t count = (int32_t)batch;
    BLAS_TRY(cublasLtMatrixLayoutCreate(ret, type, (uint64_t)columns, (uint64_t)rows, ld));
    BLAS_TRY(cublasLtMatrixLayoutSetAttribute(*ret, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count,
                                              sizeof count));
    BLAS_TRY(cublasLtMatrixLayoutSetAttribute(*ret, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                                              &stride, sizeof stride));
    return 0;
}

static int gemm_describe(struct gemm_entry *entry, struct err *err)
{
    const struct gemm_key *key = &entry->key;
    bool ta = (key->flags & GEMM_TRANS_A) != 0, tb = (key->flags & GEMM_TRANS_B) != 0;
    cublasOperation_t first = tb ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasOperation_t second = ta ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasLtEpilogue_t epilogue =
        (key->flags & GEMM_BIAS) != 0 ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
    BLAS_TRY(cublasLtMatmulDescCreate(&entry->matmul, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    BLAS_TRY(cublasLtMatmulDescSetAttribute(entry->matmul, CUBLASLT_MATMUL_DESC_TRANSA, &first,
                                            sizeof first));
    BLAS_TRY(cublasLtMatmulDescSetAttribute(entry->matmul, CUBLASLT_MATMUL_DESC_TRANSB, &second,
                                            sizeof second));
    BLAS_TRY(cublasLtMatmulDescSetAttribute(entry->matmul, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue,
                                            sizeof epilogue));
    BLAS_TRY(cublasLtMatmulDescSetAttribute(entry->matmul, CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE,
                                            &key->stride_bias, sizeof key->stride_bias));
    TRY(gemm_layout(&entry->a, CUDA_R_16BF, tb ? key->n : key->k, tb ? key->k : key->n, key->ldb,
                    key->batch, key->stride_b, err));
    TRY(gemm_layout(&entry->b, CUDA_R_16BF, ta ? key->k : key->m, ta ? key->m : key->k, key->lda,
                    key->batch, key->stride_a, err));
    return gemm_layout(&entry->c, (key->flags & GEMM_C_F32) != 0 ? CUDA_R_32F : CUDA_R_16BF, key->m,
                       key->n, key->ldc, key->batch, key->stride_c, err);
}

static int gemm_prefer(cublasLtMatmulPreference_t preference, const struct gemm_key *key,
                       struct err *err)
{
    uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    BLAS_TRY(
        cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                             &gemm_workspace_bytes, sizeof gemm_workspace_bytes));
    BLAS_TRY(cublasLtMatmulPreferenceSetAttribute(
        preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &reductions, sizeof reductions));
    BLAS_TRY(cublasLtMatmulPreferenceSetAttribute(preference,
                                                  CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES,
                                                  &key->align_b, sizeof key->align_b));
    BLAS_TRY(cublasLtMatmulPreferenceSetAttribute(preference,
                                                  CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
                                                  &key->align_a, sizeof key->align_a));
    BLAS_TRY(cublasLtMatmulPreferenceSetAttribute(preference,
                                                  CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES,
                                                  &key->align_c, sizeof key->align_c));
    BLAS_TRY(cublasLtMatmulPreferenceSetAttribute(preference,
                                                  CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES,
                                                  &key->align_c, sizeof key->align_c));
    return 0;
}

static int gemm_choose(struct device_cuda *cuda, struct gemm_entry *entry, struct err *err)
{
    cublasLtMatmulPreference_t preference = NULL;
    cublasLtMatmulHeuristicResult_t result;
    int found = 0;
    BLAS_TRY(cublasLtMatmulPreferenceCreate(&preference));
    int rc = gemm_prefer(preference, &entry->key, err);
    if (rc == 0)
        rc = gemm_check(cublasLtMatmulAlgoGetHeuristic(cuda->blas, entry->matmul, entry->a,
                                                       entry->b, entry->c, entry->c, preference, 1,
                                                       &result, &found),
                        "cublasLtMatmulAlgoGetHeuristic", err);
    (void)cublasLtMatmulPreferenceDestroy(preference);
    TRY(rc);
    if (found == 0)
        return err_set(err, ERR_DEVICE, "cuBLASLt has no algorithm for this product");
    entry->algo = result.algo;
    return 0;
}

/* The entry of this shape, made at its first use. */
static int gemm_find(struct device_cuda *cuda, const struct gemm_key *key, struct gemm_entry **ret,
                     struct err *err)
{
    struct gemm_cache *cache = cuda->gemm;
    uint64_t hash = 1469598103934665603ULL; /* FNV-1a */
    for (size_t i = 0; i < sizeof *key; i++)
        hash = (hash ^ ((const unsigned char *)key)[i]) * 1099511628211ULL;
    if (cache->count == GEMM_FULL)
        gemm_cache_clear(cache);
    struct gemm_entry *entry = &cache->entries[hash % GEMM_SLOTS];
    while (entry->used && memcmp(&entry->key, key, sizeof *key) != 0)
        entry = entry + 1 == cache->entries + GEMM_SLOTS ? cache->entries : entry + 1;
    if (!entry->used) {
        int64_t began_ns = clock_monotonic_ns();
        entry->key = *key;
        int rc = gemm_describe(entry, err);
        if (rc == 0)
            rc = gemm_choose(cuda, entry, err);
        cache->made_ns += clock_monotonic_ns() - began_ns;
        if (rc != 0) {
            gemm_entry_done(entry);
            return rc;
        }
        entry->used = true;
        cache->count++;
    }
    *ret = entry;
    return 0;
}

int cuda_gemm(struct device *device, struct stream *stream, const struct ops_gemm *args,
              struct err *err)
{
    must(args->m >= 0 && args->n >= 0 && args->k >= 0 && args->batch >= 0);
    must(args->ldc >= args->n && args->lda >= (args->trans_a ? args->m : args->k) &&
         args->ldb >= (args->trans_b ? args->k : args->n));
    struct device_cuda *cuda = device_cuda_of(device);
    stream = device_cuda_stream(device, stream);
    if (args->m == 0 || args->n == 0 || args->batch == 0)
        return 0;
    if (args->k == 0 || (args->bias != NULL && args->c_f32))
        TRY(bias_lay(stream, args, err));
    if (args->k == 0)
        return 0;
    struct gemm_key key = gemm_key_of(args);
    struct gemm_entry *entry = NULL;
    TRY(gemm_find(cuda, &key, &entry, err));
    void *workspace =
        device_cuda_scratch(cuda, stream, DEVICE_SCRATCH_GEMM, gemm_workspace_bytes, err);
    if (workspace == NULL)
        return -(int)err->code;
    if ((key.flags & GEMM_BIAS) != 0)
        BLAS_TRY(cublasLtMatmulDescSetAttribute(entry->matmul, CUBLASLT_MATMUL_DESC_BIAS_POINTER,
                                                &args->bias, sizeof args->bias));
    float beta = (key.flags & GEMM_ADD) != 0 ? 1.0f : 0.0f;
    BLAS_TRY(cublasLtMatmul(cuda->blas, entry->matmul, &args->alpha, args->b, entry->a, args->a,
                            entry->b, &beta, args->c, entry->c, args->c, entry->c, &entry->algo,
                            workspace, gemm_workspace_bytes, stream->cuda));
    return 0;
}
