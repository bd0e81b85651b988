/* cuda limits: every operation on arrays one row past 2^31 elements, at the shapes at which models
 * meet that limit (field cases R37, R39). The last rows, or sums over all of them, are those that
 * the same operation gives on parts of the array, each far below the limit. Rows repeat after 17,
 * which divides no power of two: an index that wraps meets other numbers; where sums are compared
 * the last row is so large that they show it. Takes 40 GiB of a GPU.
 *
 * Attention is refused at that size: test_cuda_attention.c. */
#include "tests/lib/cmocka.h"

#include <stdio.h>

#include "tests/lib/on_cuda.h"

enum {
    ROWS_APART = 17, /* after which rows repeat */
    TAIL = 16,       /* rows that are compared */
    K = 64,          /* the short side of products */
    BF16 = 2,
    F32 = 4
};
static const double bf16_bound = 4e-3, sum_bound = 1e-4;

#define RUN(op, ...) \
    CHECK(on_cuda_gpu->ops->op(on_cuda_gpu, NULL, &(struct ops_##op){__VA_ARGS__}, err))

static void *at(const void *x, int64_t elements, int64_t size)
{
    return (char *)(uintptr_t)x + elements * size;
}

static void copy(void *to, const void *from, int64_t bytes)
{
    CHECK(on_cuda_gpu->dev->copy(on_cuda_gpu, NULL, to, from, (size_t)bytes, err));
}

static void *zeros(int64_t bytes)
{
    void *memory = on_cuda_alloc(bytes);
    CHECK(on_cuda_gpu->dev->zero(on_cuda_gpu, NULL, memory, (size_t)bytes, err));
    return memory;
}

static void *copy_of(const void *from, int64_t bytes)
{
    void *memory = on_cuda_alloc(bytes);
    copy(memory, from, bytes);
    return memory;
}

/* (rows, width) of normal numbers. */
static void *rows_of(int64_t rows, int64_t width, int64_t size)
{
    struct pair first = pair_normal(ROWS_APART * width, size == BF16);
    int64_t bytes = rows * width * size, period = first.count * size;
    char *memory = on_cuda_alloc(bytes);
    copy(memory, first.gpu, period < bytes ? period : bytes);
    for (int64_t done = period; done < bytes; done *= 2) /* whole periods */
        copy(memory + done, memory, done < bytes - done ? done : bytes - done);
    return memory;
}

/* The same with a last row that outweighs the others of a column's sum. */
static void *rows_with_peak(int64_t rows, int64_t width, int64_t size)
{
    void *memory = rows_of(rows, width, size);
    float *peak = testing_normal(width);
    for (int64_t i = 0; i < width; i++)
        peak[i] *= (float)(1 << 20);
    copy(at(memory, (rows - 1) * width, size), pair_of(peak, width, size == BF16).gpu,
         width * size);
    return memory;
}

static void same(const char *what, const void *a, const void *b, int64_t bytes)
{
    void *left = testing_zeros(bytes / 8 + 1), *right = testing_zeros(bytes / 8 + 1);
    on_cuda_copy(left, a, bytes);
    on_cuda_copy(right, b, bytes);
    testing_same_bits(what, left, right, bytes);
}

/* fp32, or bf16. */
static void near_to(const char *what, void *got, void *want, int64_t count, int64_t size,
                    double bound)
{
    float *left = pair_download(&(struct pair){.gpu = got, .count = count, .bf16 = size == BF16});
    float *right = pair_download(&(struct pair){.gpu = want, .count = count, .bf16 = size == BF16});
    double *wide = testing_zeros(count), size_of_all = 0;
    for (int64_t i = 0; i < count; i++) {
        wide[i] = (double)right[i];
        size_of_all += fabs(wide[i]);
    }
    assert_true(size_of_all > 0); /* there is something to compare */
    testing_close(what, left, wide, NULL, count, bound);
}

/* y = x W^T, (rows, n): the last rows as a product of their own. */
static void check_product(const char *what, const void *x, const void *w, int64_t rows, int64_t n,
                          int64_t k, void *y, int64_t size)
{
    void *tail = on_cuda_alloc(TAIL * n * size);
    struct ops_gemm gemm = {.m = rows, .n = n, .k = k, .a = x, .lda = k, .b = w, .ldb = k};
    gemm.trans_b = true, gemm.c = y, gemm.ldc = n, gemm.c_f32 = size == F32;
    gemm.alpha = 1, gemm.batch = 1;
    CHECK(on_cuda_gpu->ops->gemm(on_cuda_gpu, NULL, &gemm, err));
    gemm.m = TAIL, gemm.a = at(x, (rows - TAIL) * k, BF16), gemm.c = tail;
    CHECK(on_cuda_gpu->ops->gemm(on_cuda_gpu, NULL, &gemm, err));
    near_to(what, at(y, (rows - TAIL) * n, size), tail, TAIL * n, size,
            size == F32 ? sum_bound : bf16_bound);
}

/* dW = dy^T x, (n, k): as the sum of two halves' products. */
static void check_weight_gradient(const char *what, const void *dy, const void *x, int64_t rows,
                                  int64_t n, int64_t k)
{
    void *whole = on_cuda_alloc(n * k * F32), *halves = on_cuda_alloc(n * k * F32);
    struct ops_gemm gemm = {.m = n, .n = k, .k = rows, .a = dy, .lda = n, .b = x, .ldb = k};
    gemm.trans_a = true, gemm.c = whole, gemm.ldc = k, gemm.c_f32 = true;
    gemm.alpha = 1, gemm.batch = 1;
    CHECK(on_cuda_gpu->ops->gemm(on_cuda_gpu, NULL, &gemm, err));
    gemm.c = halves, gemm.k = rows / 2;
    CHECK(on_cuda_gpu->ops->gemm(on_cuda_gpu, NULL, &gemm, err));
    gemm.a = at(dy, rows / 2 * n, BF16), gemm.b = at(x, rows / 2 * k, BF16);
    gemm.k = rows - rows / 2, gemm.accumulate = true;
    CHECK(on_cuda_gpu->ops->gemm(on_cuda_gpu, NULL, &gemm, err));
    near_to(what, whole, halves, n * k, F32, sum_bound);
}

/* Logits and their gradient: 16,744 rows of 128,256. */
static void test_head(void **state)
{
    enum { V = 128256 };
    const int64_t rows = ((int64_t)1 << 31) / V + 1, last = rows - TAIL;
    void *x = rows_with_peak(rows, K, BF16), *w = rows_of(V, K, BF16), *wt = rows_of(K, V, BF16);
    void *logits = on_cuda_alloc(rows * V * F32), *dlogits = on_cuda_alloc(rows * V * BF16);
    int32_t *targets = pair_below(rows, V).gpu;
    void *tail = on_cuda_alloc(TAIL * V * BF16), *sums = zeros(16), *other = zeros(16);
    float *losses = on_cuda_alloc(rows * F32), *tail_losses = on_cuda_alloc(TAIL * F32);
    check_product("logits", x, w, rows, V, K, logits, F32);
    RUN(cross_entropy, rows, V, logits, targets, 64, dlogits, sums, at(sums, 1, 8), losses);
    RUN(cross_entropy, TAIL, V, at(logits, last * V, F32), targets + last, 64, tail, other,
        at(other, 1, 8), tail_losses);
    same("dlogits", at(dlogits, last * V, BF16), tail, TAIL * V * BF16);
    same("losses", losses + last, tail_losses, TAIL * F32);
    check_product("dx of the head", dlogits, wt, rows, K, V, on_cuda_alloc(rows * K * BF16), BF16);
    check_weight_gradient("dW of the head", dlogits, x, rows, V, K);
}

/* The MLP: 149,797 rows of 14,336. */
static void test_mlp(void **state)
{
    enum { F = 14336 };
    const int64_t rows = ((int64_t)1 << 31) / F + 1, count = rows * F, last = count - TAIL * F;
    const int64_t bytes = TAIL * F * BF16;
    void *x = rows_with_peak(rows, K, BF16), *w = rows_of(F, K, BF16), *wt = rows_of(K, F, BF16);
    void *gate = on_cuda_alloc(count * BF16), *up = rows_of(rows, F, BF16);
    void *out = on_cuda_alloc(count * BF16), *tail = on_cuda_alloc(bytes);
    check_product("gate", x, w, rows, F, K, gate, BF16);
    void *gates = copy_of(at(gate, last, BF16), bytes), *ups = copy_of(at(up, last, BF16), bytes);
    RUN(swiglu, count, gate, up, out);
    RUN(swiglu, TAIL * F, gates, ups, tail);
    same("swiglu", at(out, last, BF16), tail, bytes);
    RUN(swiglu_bwd, count, gate, up, out, gate, up);
    RUN(swiglu_bwd, TAIL * F, gates, ups, tail, gates, ups);
    same("dgate", at(gate, last, BF16), gates, bytes);
    same("dup", at(up, last, BF16), ups, bytes);
    check_product("down", out, wt, rows, K, F, on_cuda_alloc(rows * K * BF16), BF16);
    check_weight_gradient("dWdown", x, out, rows, K, F);
    check_weight_gradient("dWgate", gate, x, rows, F, K);
}

/* Norms, embedding and column sums of 524,289 rows of 4,096. */
static void test_hidden(void **state)
{
    enum { H = 4096, IDS = 1000 };
    const int64_t rows = ((int64_t)1 << 31) / H + 1, half = rows / 2, last = (rows - TAIL) * H;
    const int64_t bytes = TAIL * H * BF16;
    void *x = rows_with_peak(rows, H, BF16), *y = on_cuda_alloc(rows * H * BF16),
         *weight = rows_of(1, H, BF16);
    void *sum = on_cuda_alloc(rows * H * BF16), *tail = on_cuda_alloc(bytes);
    void *tail_sum = on_cuda_alloc(bytes), *tail_x = at(x, last, BF16);
    void *whole = zeros(IDS * H * F32), *halves = zeros(IDS * H * F32),
         *table = rows_of(IDS, H, BF16);
    RUN(rmsnorm, rows, H, 1e-5f, x, x, sum, weight, y, NULL);
    RUN(rmsnorm, TAIL, H, 1e-5f, tail_x, tail_x, tail_sum, weight, tail, NULL);
    same("rmsnorm", at(y, last, BF16), tail, bytes);
    same("rmsnorm's sum", at(sum, last, BF16), tail_sum, bytes);
    RUN(rmsnorm_bwd, rows, H, 1e-5f, sum, weight, NULL, x, y, true, 0, whole);
    RUN(rmsnorm_bwd, TAIL, H, 1e-5f, tail_sum, weight, NULL, tail_x, tail, true, 0, NULL);
    same("rmsnorm_bwd", at(y, last, BF16), tail, bytes);
    RUN(rmsnorm_bwd, half, H, 1e-5f, sum, weight, NULL, x, y, false, 0, halves);
    RUN(rmsnorm_bwd, rows - half, H, 1e-5f, at(sum, half * H, BF16), weight, NULL,
        at(x, half * H, BF16), at(y, half * H, BF16), false, 0, halves);
    near_to("dweight", whole, halves, H, F32, sum_bound);
    RUN(rmsnorm, rows * 32, 128, 1e-5f, x, NULL, NULL, weight, y, NULL);
    RUN(rmsnorm, TAIL * 32, 128, 1e-5f, tail_x, NULL, NULL, weight, tail, NULL);
    same("norm of heads", at(y, last, BF16), tail, bytes);
    RUN(rmsnorm_bwd, rows * 32, 128, 1e-5f, x, weight, NULL, sum, y, false, 0, NULL);
    RUN(rmsnorm_bwd, TAIL * 32, 128, 1e-5f, tail_x, weight, NULL, tail_sum, tail, false, 0, NULL);
    same("norm of heads, backward", at(y, last, BF16), tail, bytes);
    RUN(add, rows * H, x, sum, y, false);
    RUN(add, TAIL * H, tail_x, tail_sum, tail, false);
    same("add", at(y, last, BF16), tail, bytes);
    int32_t *ids = pair_below(rows, IDS).gpu;
    RUN(embed, rows, IDS, H, ids, table, y);
    RUN(embed, TAIL, IDS, H, ids + rows - TAIL, table, tail);
    same("embed", at(y, last, BF16), tail, bytes);
    whole = zeros(IDS * H * F32), halves = zeros(IDS * H * F32);
    RUN(embed_bwd, rows, IDS, H, ids, x, whole);
    RUN(embed_bwd, half, IDS, H, ids, x, halves);
    RUN(embed_bwd, rows - half, IDS, H, ids + half, at(x, half * H, BF16), halves);
    near_to("embed_bwd", whole, halves, IDS * H, F32, sum_bound);
    whole = zeros(H * F32), halves = zeros(H * F32);
    RUN(colsum, rows, H, x, whole);
    RUN(colsum, half, H, x, halves);
    RUN(colsum, rows - half, H, at(x, half * H, BF16), halves);
    near_to("colsum", whole, halves, H, F32, sum_bound);
}

/* Heads: 524,289 rows of 32 heads of 128, side by side or one after the other. */
static void test_heads(void **state)
{
    enum { HEADS = 32, D = 128, H = HEADS * D };
    const int64_t rows = ((int64_t)1 << 31) / H + 1, last = rows - TAIL, bytes = TAIL * H * BF16;
    void *x = rows_of(rows, H, BF16), *y = rows_of(rows, H, BF16);
    void *tail = on_cuda_alloc(bytes);
    const struct ops_heads side = {x, D, H}, apart = {x, rows * D, D}, to = {y, D, H};
    const struct ops_heads side_tail = {at(x, last * H, BF16), D, H}, to_tail = {tail, D, H};
    const struct ops_heads apart_tail = {at(x, last * D, BF16), rows * D, D};
    RUN(unpack, HEADS, rows, D, 1, 0, apart, false, to);
    RUN(unpack, HEADS, TAIL, D, 1, 0, apart_tail, false, to_tail);
    same("unpack", at(y, last * H, BF16), tail, bytes);
    RUN(unpack, HEADS / 4, rows, D, 4, HEADS / 4 * rows * D, apart, false, {y, D, H / 4});
    RUN(unpack, HEADS / 4, TAIL, D, 4, HEADS / 4 * rows * D, apart_tail, false, {tail, D, H / 4});
    same("unpack of copies", at(y, last * H / 4, BF16), tail, bytes / 4);
    float *delta = on_cuda_alloc(HEADS * rows * F32), *tails = on_cuda_alloc(HEADS * TAIL * F32);
    RUN(attention_delta, HEADS, rows, D, side, apart, delta, 0);
    RUN(attention_delta, HEADS, TAIL, D, side_tail, apart_tail, tails, 0);
    same("delta", delta + (HEADS - 1) * rows + last, tails + (HEADS - 1) * TAIL, TAIL * F32);
    int64_t *numbers = (int64_t *)testing_zeros(rows);
    for (int64_t row = 0; row < rows; row++)
        numbers[row] = row;
    int64_t *rows_numbers = on_cuda_alloc(rows * 8);
    on_cuda_copy(rows_numbers, numbers, rows * 8);
    RUN(dropout, HEADS, rows, D, side, to, false, rows_numbers, 0, D, H, 7, 0.3f);
    RUN(dropout, HEADS, TAIL, D, side_tail, to_tail, false, rows_numbers + last, 0, D, H, 7, 0.3f);
    same("dropout", at(y, last * H, BF16), tail, bytes);
    int32_t *positions = pair_below(rows, 5000000).gpu;
    float *inv_freq = rows_of(1, D / 2, F32);
    copy(tail, side_tail.data, bytes);
    RUN(rope, HEADS, rows, D, D, H, x, positions, inv_freq, 1, false);
    RUN(rope, HEADS, TAIL, D, D, H, tail, positions + last, inv_freq, 1, false);
    same("rope", side_tail.data, tail, bytes);
    void *head = at(x, (HEADS - 1) * rows * D + last * D, BF16);
    copy(tail, head, TAIL * D * BF16);
    RUN(rope, HEADS, rows, D, rows * D, D, x, positions, inv_freq, 1, true);
    RUN(rope, 1, TAIL, D, 0, D, tail, positions + last, inv_freq, 1, true);
    same("rope of heads apart", head, tail, TAIL * D * BF16);
}

/* A ring's sums: 32 heads of 524,289 rows in fp32. */
static void test_merge(void **state)
{
    enum { HEADS = 32, D = 128, H = HEADS * D };
    const int64_t rows = ((int64_t)1 << 31) / H + 1, last = rows - TAIL;
    void *part = rows_of(rows, H, BF16), *o = rows_of(rows, H, F32);
    float *lse = rows_of(HEADS, rows, F32), *lse_part = rows_of(HEADS, rows, F32);
    void *tail = copy_of(at(o, last * H, F32), TAIL * H * F32);
    float *lse_tail = on_cuda_alloc(HEADS * TAIL * F32);
    for (int64_t head = 0; head < HEADS; head++)
        copy(lse_tail + head * TAIL, lse + head * rows + last, TAIL * F32);
    RUN(attention_merge, HEADS, rows, D, {part, rows * D, D}, lse_part, 0, {o, D, H}, lse, 0);
    RUN(attention_merge, HEADS, TAIL, D, {at(part, last * D, BF16), rows * D, D}, lse_part + last,
        rows, {tail, D, H}, lse_tail, TAIL);
    same("merge", at(o, last * H, F32), tail, TAIL * H * F32);
    same("lse", lse + (HEADS - 1) * rows + last, lse_tail + (HEADS - 1) * TAIL, TAIL * F32);
}

/* Shards and casts of 2^31 + 4096 numbers. */
static void test_states(void **state)
{
    enum { WIDTH = 4096 };
    const int64_t rows = ((int64_t)1 << 31) / WIDTH + 1, count = rows * WIDTH, half = count / 2;
    const int64_t last = count - WIDTH, bytes = WIDTH * F32;
    float *master = rows_of(rows, WIDTH, F32), *m = rows_of(rows, WIDTH, F32);
    float *v = zeros(count * F32), *grad = rows_with_peak(rows, WIDTH, F32);
    float *tail = copy_of(master + last, bytes), *tail_m = copy_of(m + last, bytes);
    float *tail_v = zeros(bytes), *scale = pair_normal(1, false).gpu;
    RUN(adamw, count, master, m, v, grad, scale, 1e-2f, 0.9f, 0.95f, 1e-8f, 0.1f, 3);
    RUN(adamw, WIDTH, tail, tail_m, tail_v, grad + last, scale, 1e-2f, 0.9f, 0.95f, 1e-8f, 0.1f, 3);
    same("master", master + last, tail, bytes);
    same("m", m + last, tail_m, bytes);
    same("v", v + last, tail_v, bytes);
    double *whole = zeros(8), *halves = zeros(8), sums[2];
    RUN(sumsq, count, grad, whole);
    RUN(sumsq, half, grad, halves);
    RUN(sumsq, count - half, grad + half, halves);
    on_cuda_copy(&sums[0], whole, 8);
    on_cuda_copy(&sums[1], halves, 8);
    if (!(sums[0] > 0 && fabs(sums[0] / sums[1] - 1) <= 1e-12))
        fail_msg("sumsq: %.15g, of halves %.15g", sums[0], sums[1]);
    RUN(add, count, master, grad, v, true);
    RUN(add, WIDTH, master + last, grad + last, tail, true);
    same("add in fp32", v + last, tail, bytes);
    RUN(cast, count, grad, m, true);
    RUN(cast, WIDTH, grad + last, tail, true);
    same("cast to bf16", at(m, last, BF16), tail, WIDTH * BF16);
    RUN(cast, count, m, v, false);
    RUN(cast, WIDTH, tail, tail_v, false);
    same("cast to fp32", v + last, tail_v, bytes);
}

/* A projection into send order: matrices of C so far apart that the last is past the limit. */
static void test_batch(void **state)
{
    enum { BATCH = 33, M = 40, N = 128 };
    const int64_t apart = ((int64_t)1 << 31) / (BATCH - 1) + 8;
    void *x = rows_of(M, K, BF16), *w = rows_of(BATCH * N, K, BF16);
    void *c = on_cuda_alloc(((BATCH - 1) * apart + M * N) * BF16),
         *one = on_cuda_alloc(M * N * BF16);
    struct ops_gemm gemm = {.m = M, .n = N, .k = K, .a = x, .lda = K, .b = w, .ldb = K};
    gemm.trans_b = true, gemm.c = c, gemm.ldc = N, gemm.alpha = 1, gemm.batch = BATCH;
    gemm.stride_b = N * K, gemm.stride_c = apart;
    CHECK(on_cuda_gpu->ops->gemm(on_cuda_gpu, NULL, &gemm, err));
    gemm.batch = 1, gemm.b = at(w, (BATCH - 1) * N * K, BF16), gemm.c = one;
    CHECK(on_cuda_gpu->ops->gemm(on_cuda_gpu, NULL, &gemm, err));
    near_to("the last of a batch", at(c, (BATCH - 1) * apart, BF16), one, M * N, BF16, bf16_bound);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_head, on_cuda_free),
        cmocka_unit_test_teardown(test_mlp, on_cuda_free),
        cmocka_unit_test_teardown(test_hidden, on_cuda_free),
        cmocka_unit_test_teardown(test_heads, on_cuda_free),
        cmocka_unit_test_teardown(test_merge, on_cuda_free),
        cmocka_unit_test_teardown(test_states, on_cuda_free),
        cmocka_unit_test_teardown(test_batch, on_cuda_free),
    };
    if (!on_cuda_open())
        return ON_CUDA_SKIPPED;
    cmocka_set_test_filter(getenv("ITHACA_TEST_FILTER"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
