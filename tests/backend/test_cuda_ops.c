/* cuda ops: the operations of the CUDA backend but attention, dropout and embedding, against the
 * CPU backend on the same bf16 inputs: odd and ragged shapes, misaligned rows, aliasing,
 * accumulation; the same bits when run again. Results in bf16 carry its rounding, half a unit in
 * the last place: 2^-8 at most. */
#include "tests/lib/cmocka.h"

#include <inttypes.h>
#include <stdio.h>

#include "tests/lib/on_cuda.h"

static const double bf16_bound = 4e-3, f32_bound = 2e-6;

/* flags: 1 trans_a, 2 trans_b, 4 fp32 C, 8 accumulate, 16 bias, 32 a batch of 3 */
static void check_gemm(int64_t m, int64_t n, int64_t k, int flags, int64_t pad)
{
    bool ta = flags & 1, tb = flags & 2, c_f32 = flags & 4, add = flags & 8, biased = flags & 16;
    int64_t batch = flags & 32 ? 3 : 1;
    struct ops_gemm cpu = {.m = m, .n = n, .k = k, .alpha = 0.5f, .batch = batch};
    cpu.trans_a = ta, cpu.trans_b = tb, cpu.c_f32 = c_f32, cpu.accumulate = add;
    cpu.lda = (ta ? m : k) + pad, cpu.ldb = (tb ? k : n) + pad, cpu.ldc = n + pad;
    cpu.stride_a = (ta ? k : m) * cpu.lda, cpu.stride_b = (tb ? n : k) * cpu.ldb;
    cpu.stride_c = m * cpu.ldc;
    struct pair a = pair_normal(batch * cpu.stride_a + 1, true);
    struct pair b = pair_normal(batch * cpu.stride_b + 1, true);
    struct pair bias = pair_normal(batch * n, true);
    cpu.stride_bias = k % 2 == 0 ? n : 0;
    struct pair c =
        add ? pair_normal(batch * cpu.stride_c, !c_f32) : pair_poison(batch * cpu.stride_c, !c_f32);
    struct ops_gemm gpu = cpu;
    cpu.a = a.cpu, cpu.b = b.cpu, cpu.c = c.cpu, cpu.bias = biased ? bias.cpu : NULL;
    gpu.a = a.gpu, gpu.b = b.gpu, gpu.c = c.gpu, gpu.bias = biased ? bias.gpu : NULL;
    BOTH(gemm, &cpu, &gpu);
    char what[96];
    (void)snprintf(what, sizeof what, "gemm %" PRId64 "x%" PRId64 "x%" PRId64 " flags %d pad %d", m,
                   n, k, flags, (int)pad);
    pair_close(what, &c, c_f32 ? 1e-5 : bf16_bound);
}

static void test_gemm(void **state)
{
    static const int64_t shapes[][3] = {{1, 1, 1},       {3, 5, 7},      {33, 65, 129},
                                        {128, 256, 64},  {257, 120, 72}, {16, 24, 0},
                                        {512, 128, 2048}};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        for (int flags = 0; flags < 64; flags++) {
            check_gemm(shapes[i][0], shapes[i][1], shapes[i][2], flags, 0);
            if (flags % 5 == 0)
                check_gemm(shapes[i][0], shapes[i][1], shapes[i][2], flags, 3);
            (void)on_cuda_free(NULL);
        }
}

/* residual: 0 none, 1 sum apart, 2 sum over x, 3 sum over residual, 4 none and in place */
static void check_rmsnorm(int64_t rows, int64_t width, int residual)
{
    int64_t count = rows * width;
    struct pair x = pair_normal(count, true), add = pair_normal(count, true);
    struct pair weight = pair_normal(width, true), y = pair_poison(count, true);
    struct pair sum = pair_poison(count, true), rstd = pair_poison(rows, false);
    struct pair *to = residual == 1 ? &sum : residual == 2 ? &x : &add;
    bool has = residual > 0 && residual < 4;
    struct pair *out = residual == 4 ? &x : &y;
    if (has) /* the sum is stored in bf16 on the GPU; make it exact: multiples of 1/8 */
        for (int64_t i = 0; i < count; i++) {
            x.cpu[i] = roundf(x.cpu[i] * 4) / 4;
            add.cpu[i] = roundf(add.cpu[i] * 4) / 4;
        }
    x = pair_of(x.cpu, count, true), add = pair_of(add.cpu, count, true);
    struct ops_rmsnorm cpu = {.rows = rows, .width = width, .eps = 1e-5f};
    struct ops_rmsnorm gpu = cpu;
    cpu.x = x.cpu, cpu.weight = weight.cpu, cpu.y = out->cpu, cpu.rstd = rstd.cpu;
    gpu.x = x.gpu, gpu.weight = weight.gpu, gpu.y = out->gpu, gpu.rstd = rstd.gpu;
    if (has) {
        cpu.residual = add.cpu, cpu.sum = to->cpu;
        gpu.residual = add.gpu, gpu.sum = to->gpu;
    }
    BOTH(rmsnorm, &cpu, &gpu);
    pair_close("rmsnorm y", out, bf16_bound);
    pair_close("rmsnorm rstd", &rstd, f32_bound);
    if (has)
        pair_close("rmsnorm sum", to, 0);
}

/* dx and dweight in fp64, added to what is there, and the size of what each element is added up
 * from: a short row's terms cancel, to 1e-5 of themselves at width 1, and no fp32 resolves what is
 * left. */
static void rmsnorm_bwd_reference(int64_t rows, int64_t width, const float *x, const float *weight,
                                  const float *dy, double *dx, double *terms, double *dweight,
                                  double *dweight_terms)
{
    for (int64_t at = 0; at < rows * width; at += width) {
        double squares = 0, dot = 0;
        for (int64_t i = 0; i < width; i++) {
            squares += (double)x[at + i] * (double)x[at + i];
            dot += (double)x[at + i] * (double)weight[i] * (double)dy[at + i];
        }
        double rstd = 1 / sqrt(squares / (double)width + (double)1e-5f);
        for (int64_t i = 0; i < width; i++) {
            double direct = rstd * (double)weight[i] * (double)dy[at + i];
            double pull = (double)x[at + i] * rstd * rstd * rstd * dot / (double)width;
            terms[at + i] = fabs(dx[at + i]) + fabs(direct) + fabs(pull);
            dx[at + i] += direct - pull;
            double share = (double)dy[at + i] * (double)x[at + i] * rstd;
            dweight[i] += share;
            dweight_terms[i] += fabs(share);
        }
    }
}

/* variant: 1 accumulate, 2 rstd given, 4 dx over dy, 8 no dweight */
static void check_rmsnorm_bwd(int64_t rows, int64_t width, int variant)
{
    int64_t count = rows * width;
    bool add = variant & 1, in_place = (variant & 4) && !add;
    struct pair x = pair_normal(count, true), weight = pair_normal(width, true);
    struct pair dy = pair_normal(count, true), dx = pair_normal(count, true);
    struct pair y = pair_poison(count, true), rstd = pair_poison(rows, false);
    struct pair dweight = pair_normal(width, false);
    struct ops_rmsnorm forward = {rows, width,      1e-5f, x.cpu,   NULL,
                                  NULL, weight.cpu, y.cpu, rstd.cpu};
    CHECK(on_cuda_cpu->ops->rmsnorm(on_cuda_cpu, NULL, &forward, err));
    rstd = pair_of(rstd.cpu, rows, false);
    double *want = testing_zeros(count), *terms = testing_zeros(count);
    for (int64_t i = 0; i < count && add; i++)
        want[i] = (double)dx.cpu[i];
    double *dweight_want = testing_zeros(width), *dweight_terms = testing_zeros(width);
    for (int64_t i = 0; i < width; i++) {
        dweight_want[i] = (double)dweight.cpu[i];
        dweight_terms[i] = fabs(dweight_want[i]);
    }
    rmsnorm_bwd_reference(rows, width, x.cpu, weight.cpu, dy.cpu, want, terms, dweight_want,
                          dweight_terms);
    struct pair *out = in_place ? &dy : &dx;
    struct ops_rmsnorm_bwd cpu = {.rows = rows, .width = width, .eps = 1e-5f, .accumulate = add};
    struct ops_rmsnorm_bwd gpu = cpu;
    cpu.x = x.cpu, cpu.weight = weight.cpu, cpu.dy = dy.cpu, cpu.dx = out->cpu;
    gpu.x = x.gpu, gpu.weight = weight.gpu, gpu.dy = dy.gpu, gpu.dx = out->gpu;
    cpu.rstd = variant & 2 ? rstd.cpu : NULL, gpu.rstd = variant & 2 ? rstd.gpu : NULL;
    cpu.dweight = variant & 8 ? NULL : dweight.cpu, gpu.dweight = variant & 8 ? NULL : dweight.gpu;
    BOTH(rmsnorm_bwd, &cpu, &gpu);
    char what[96];
    (void)snprintf(what, sizeof what, "rmsnorm_bwd of %" PRId64 " rows of %" PRId64 ", variant %d",
                   rows, width, variant);
    testing_close(what, pair_download(out), want, terms, count, bf16_bound);
    if (!(variant & 8))
        testing_close(what, pair_download(&dweight), dweight_want, dweight_terms, width, f32_bound);
}

/* dx of bf16 that is added to far less than half of its last place, and rounded at random: one of
 * the two neighbours, on average the sum, the same each time. */
static void check_rmsnorm_dither(int64_t rows, int64_t width)
{
    int64_t count = rows * width;
    struct pair x = pair_normal(count, true), weight = pair_normal(width, true);
    struct pair dy = pair_normal(count, true), dx = pair_poison(count, true);
    for (int64_t i = 0; i < count; i++) {
        dx.cpu[i] = 1;
        dy.cpu[i] *= 0x1p-11f;
    }
    dx = pair_of(dx.cpu, count, true), dy = pair_of(dy.cpu, count, true);
    struct pair again = pair_of(dx.cpu, count, true);
    double *want = testing_zeros(count), *terms = testing_zeros(count);
    double *unused = testing_zeros(width), sum = 0, want_sum = 0;
    for (int64_t i = 0; i < count; i++)
        want[i] = 1;
    rmsnorm_bwd_reference(rows, width, x.cpu, weight.cpu, dy.cpu, want, terms, unused, unused);
    struct ops_rmsnorm_bwd args = {.rows = rows,
                                   .width = width,
                                   .eps = 1e-5f,
                                   .x = x.gpu,
                                   .weight = weight.gpu,
                                   .dy = dy.gpu,
                                   .dx = dx.gpu,
                                   .accumulate = true,
                                   .dither = 12345};
    CHECK(on_cuda_gpu->ops->rmsnorm_bwd(on_cuda_gpu, NULL, &args, err));
    args.dx = again.gpu;
    CHECK(on_cuda_gpu->ops->rmsnorm_bwd(on_cuda_gpu, NULL, &args, err));
    const float *got = pair_download(&dx);
    testing_same_bits("dithered", pair_download(&again), got, count * (int64_t)sizeof *got);
    for (int64_t i = 0; i < count; i++) {
        assert_true(fabs((double)got[i] - want[i]) < 0x1p-7 * fabs(want[i]));
        sum += (double)got[i] - 1, want_sum += want[i] - 1;
    }
    /* A value's error has a variance of a 128th's square at most. */
    assert_true(fabs(sum - want_sum) < 5 * 0x1p-7 * sqrt((double)count));
}

static void test_rmsnorm(void **state)
{
    static const int64_t rows[] = {1, 7, 8, 129, 2200};
    static const int64_t widths[] = {1, 7, 24, 64, 65, 128, 200, 256, 1000, 1024, 1600, 4096, 5120};
    for (int i = 0; i < 5 * (int)(sizeof widths / sizeof widths[0]); i++) {
        for (int variant = 0; variant < 16; variant++) {
            if (rows[i % 5] * widths[i / 5] > 1000000 && variant % 15 != 0)
                continue;
            if (variant < 5)
                check_rmsnorm(rows[i % 5], widths[i / 5], variant);
            check_rmsnorm_bwd(rows[i % 5], widths[i / 5], variant);
            (void)on_cuda_free(NULL);
        }
    }
    check_rmsnorm(3, 16384, 1);
    check_rmsnorm_bwd(3, 16384, 0);
    check_rmsnorm_dither(129, 4096), check_rmsnorm_dither(7, 65), check_rmsnorm_dither(8, 1000);
    struct err err = {0};
    struct ops_rmsnorm_bwd wide = {.rows = 1, .width = 16392};
    assert_int_equal(on_cuda_gpu->ops->rmsnorm_bwd(on_cuda_gpu, NULL, &wide, &err),
                     -ERR_UNSUPPORTED);
}

/* layout: 0 (T, heads, d), 1 (heads, T, d) */
static void check_rope(int64_t heads, int64_t tokens, int64_t d, int layout, int32_t position)
{
    struct pair x = pair_normal(heads * tokens * d, true);
    struct pair positions = pair_below(tokens, 1000), inv_freq = pair_poison(d / 2, false);
    for (int64_t t = 0; t < tokens; t++)
        ((int32_t *)positions.cpu)[t] = position - (int32_t)t;
    for (int64_t i = 0; i < d / 2; i++)
        inv_freq.cpu[i] = (float)pow(500000, -2.0 * (double)i / (double)d);
    positions = pair_of(positions.cpu, tokens, false);
    inv_freq = pair_of(inv_freq.cpu, d / 2, false);
    struct ops_rope cpu = {heads,
                           tokens,
                           d,
                           layout == 0 ? d : tokens * d,
                           layout == 0 ? heads * d : d,
                           x.cpu,
                           (const int32_t *)positions.cpu,
                           inv_freq.cpu,
                           tokens % 2 == 0 ? 1.0f : 1.25f,
                           tokens % 3 == 0};
    struct ops_rope gpu = cpu;
    gpu.x = x.gpu, gpu.positions = positions.gpu, gpu.inv_freq = inv_freq.gpu;
    BOTH(rope, &cpu, &gpu);
    pair_close("rope", &x, bf16_bound);
}

static void test_rope(void **state)
{
    static const int64_t sizes[] = {2, 6, 64, 96, 128, 256}, tokens[] = {1, 3, 64, 257};
    static const int32_t positions[] = {5000, 5000000, INT32_MAX};
    for (int i = 0; i < 24; i++)
        for (int j = 0; j < 6; j++) {
            check_rope(j % 2 == 0 ? 1 : 5, tokens[i % 4], sizes[i / 4], j % 2, positions[j / 2]);
            (void)on_cuda_free(NULL);
        }
}

static void check_elementwise(int64_t count)
{
    struct pair gate = pair_normal(count, true), up = pair_normal(count, true);
    for (int64_t i = 0; i < count; i++)
        gate.cpu[i] *= i % 7 == 0 ? 30 : 2; /* both tails of the sigmoid */
    gate = pair_of(gate.cpu, count, true);
    struct pair out = pair_poison(count, true), dout = pair_normal(count, true);
    struct pair wide = pair_poison(count, false), narrow = pair_poison(count, true);
    BOTH(swiglu, (&(struct ops_swiglu){count, gate.cpu, up.cpu, out.cpu}),
         (&(struct ops_swiglu){count, gate.gpu, up.gpu, out.gpu}));
    pair_close("swiglu", &out, bf16_bound);
    BOTH(add, (&(struct ops_add){count, gate.cpu, up.cpu, gate.cpu, false}),
         (&(struct ops_add){count, gate.gpu, up.gpu, gate.gpu, false}));
    pair_close("add", &gate, bf16_bound);
    gate = pair_of(gate.cpu, count, true);
    struct pair a = pair_normal(count, false), b = pair_normal(count, false);
    BOTH(add, (&(struct ops_add){count, a.cpu, b.cpu, b.cpu, true}),
         (&(struct ops_add){count, a.gpu, b.gpu, b.gpu, true}));
    pair_close("add in fp32", &b, 0);
    BOTH(swiglu_bwd,
         (&(struct ops_swiglu_bwd){count, gate.cpu, up.cpu, dout.cpu, gate.cpu, up.cpu}),
         (&(struct ops_swiglu_bwd){count, gate.gpu, up.gpu, dout.gpu, gate.gpu, up.gpu}));
    pair_close("dgate", &gate, bf16_bound);
    pair_close("dup", &up, bf16_bound);
    BOTH(cast, (&(struct ops_cast){count, dout.cpu, wide.cpu, false}),
         (&(struct ops_cast){count, dout.gpu, wide.gpu, false}));
    pair_close("cast to fp32", &wide, 0);
    struct pair source = pair_normal(count, false);
    BOTH(cast, (&(struct ops_cast){count, source.cpu, narrow.cpu, true}),
         (&(struct ops_cast){count, source.gpu, narrow.gpu, true}));
    for (int64_t i = 0; i < count; i++)
        narrow.cpu[i] = dtype_bf16_to_f32(dtype_f32_to_bf16(narrow.cpu[i]));
    pair_close("cast to bf16", &narrow, 0);
}

static void test_elementwise(void **state)
{
    static const int64_t counts[] = {1, 7, 8, 2048, 2049, 100008};
    for (int i = 0; i < 6; i++) {
        check_elementwise(counts[i]);
        (void)on_cuda_free(NULL);
    }
}

static void check_cross_entropy(int64_t rows, int64_t vocab, bool gradient)
{
    struct pair logits = pair_normal(rows * vocab, false), targets = pair_below(rows, vocab);
    for (int64_t i = 0; i < rows * vocab; i++)
        logits.cpu[i] *= 4;
    for (int64_t row = 0; row < rows; row++) {
        int32_t *target = (int32_t *)targets.cpu + row;
        float *line = logits.cpu + row * vocab;
        if (row % 3 == 1)
            *target = -100;
        if (row % 3 == 2) /* the largest, and once a tie with an earlier one */
            line[*target] = 40;
        if (row % 6 == 2 && *target > 0)
            line[*target - 1] = 40;
    }
    logits = pair_of(logits.cpu, rows * vocab, false), targets = pair_of(targets.cpu, rows, false);
    struct pair dlogits = pair_poison(rows * vocab, true), losses = pair_poison(rows, false);
    double *cpu_sum = testing_zeros(2), got_sum[2];
    void *gpu_sum = on_cuda_alloc(16);
    on_cuda_copy(gpu_sum, cpu_sum, 16);
    struct ops_cross_entropy cpu = {.rows = rows, .vocab = vocab, .scale = 64};
    struct ops_cross_entropy gpu = cpu;
    cpu.logits = logits.cpu, cpu.targets = (const int32_t *)targets.cpu;
    gpu.logits = logits.gpu, gpu.targets = targets.gpu;
    cpu.dlogits = gradient ? dlogits.cpu : NULL, gpu.dlogits = gradient ? dlogits.gpu : NULL;
    cpu.loss_sum = cpu_sum, cpu.correct = (int64_t *)(cpu_sum + 1), cpu.row_loss = losses.cpu;
    gpu.loss_sum = gpu_sum, gpu.correct = (int64_t *)gpu_sum + 1, gpu.row_loss = losses.gpu;
    BOTH(cross_entropy, &cpu, &gpu);
    pair_close("dlogits", &dlogits, bf16_bound);
    pair_close("row_loss", &losses, 1e-5);
    on_cuda_copy(got_sum, gpu_sum, 16);
    if (!(fabs(got_sum[0] - cpu_sum[0]) <= 1e-6 * fabs(cpu_sum[0])))
        fail_msg("loss_sum %.9g, on the CPU %.9g", got_sum[0], cpu_sum[0]);
    testing_same_bits("correct", got_sum + 1, cpu_sum + 1, 8);
}

/* One logit is not a number: its row's loss is not, other rows' are. */
static void check_cross_entropy_nan(int64_t vocab, int64_t at, bool gradient)
{
    enum { ROWS = 3 };
    struct pair logits = pair_normal(ROWS * vocab, false), targets = pair_below(ROWS, vocab);
    logits.cpu[vocab + at] = NAN;
    logits = pair_of(logits.cpu, ROWS * vocab, false);
    struct pair dlogits = pair_poison(ROWS * vocab, true), losses = pair_poison(ROWS, false);
    void *sums = on_cuda_alloc(16);
    struct ops_cross_entropy gpu = {.rows = ROWS, .vocab = vocab, .logits = logits.gpu, .scale = 1};
    gpu.targets = targets.gpu, gpu.dlogits = gradient ? dlogits.gpu : NULL;
    gpu.loss_sum = sums, gpu.correct = (int64_t *)sums + 1, gpu.row_loss = losses.gpu;
    CHECK(on_cuda_gpu->ops->cross_entropy(on_cuda_gpu, NULL, &gpu, err));
    const float *found = pair_download(&losses);
    for (int row = 0; row < ROWS; row++)
        if (isnan(found[row]) != (row == 1))
            fail_msg("vocabulary of %" PRId64 ", NaN at %" PRId64 ": loss %d is %g", vocab, at, row,
                     (double)found[row]);
}

static void test_cross_entropy(void **state)
{
    static const int64_t vocabs[] = {1,     7,     12,    264,   3001,   8192,   8196,   32000,
                                     32003, 32768, 32772, 50257, 128256, 151936, 262208, 458752};
    for (int i = 0; i < (int)(sizeof vocabs / sizeof vocabs[0]); i++) {
        for (int gradient = 0; gradient < 2; gradient++) {
            check_cross_entropy(1, vocabs[i], gradient);
            check_cross_entropy(3, vocabs[i], gradient);
            check_cross_entropy(14, vocabs[i], gradient);
            check_cross_entropy_nan(vocabs[i], 0, gradient);
            check_cross_entropy_nan(vocabs[i], vocabs[i] - 1, gradient);
            (void)on_cuda_free(NULL);
        }
    }
    struct err err = {0};
    struct ops_cross_entropy wide = {.rows = 1, .vocab = 1 << 20, .dlogits = on_cuda_alloc(16)};
    assert_int_equal(on_cuda_gpu->ops->cross_entropy(on_cuda_gpu, NULL, &wide, &err),
                     -ERR_UNSUPPORTED);
}

static void check_sums(int64_t rows, int64_t width)
{
    struct pair x = pair_normal(rows * width, true), out = pair_normal(width, false);
    BOTH(colsum, (&(struct ops_colsum){rows, width, x.cpu, out.cpu}),
         (&(struct ops_colsum){rows, width, x.gpu, out.gpu}));
    pair_close("colsum", &out, 1e-5);
    struct pair grad = pair_normal(rows * width, false);
    double want = 1, got[2];
    void *sum = on_cuda_alloc(8);
    for (int run = 0; run < 2; run++) { /* the second: the same bits */
        double one = 1;
        on_cuda_copy(sum, &one, 8);
        struct ops_sumsq gpu = {rows * width, grad.gpu, sum};
        CHECK(on_cuda_gpu->ops->sumsq(on_cuda_gpu, NULL, &gpu, err));
        on_cuda_copy(&got[run], sum, 8);
    }
    struct ops_sumsq cpu = {rows * width, grad.cpu, &want};
    CHECK(on_cuda_cpu->ops->sumsq(on_cuda_cpu, NULL, &cpu, err));
    if (!(fabs(got[0] - want) <= 1e-12 * want))
        fail_msg("sumsq %.15g, on the CPU %.15g", got[0], want);
    testing_same_bits("sumsq", &got[0], &got[1], 8);
}

static void test_sums(void **state)
{
    static const int64_t rows[] = {1, 9, 65, 3000}, widths[] = {1, 7, 8, 256, 264, 1000};
    for (int i = 0; i < 24; i++) {
        check_sums(rows[i % 4], widths[i / 4]);
        (void)on_cuda_free(NULL);
    }
}

static void test_adamw(void **state)
{
    static const int64_t counts[] = {1, 3, 4, 1023, 40000};
    for (int i = 0; i < 5; i++) {
        struct pair master = pair_normal(counts[i], false), m = pair_normal(counts[i], false);
        struct pair v = pair_normal(counts[i], false), grad = pair_normal(counts[i], false);
        struct pair scale = pair_normal(1, false);
        for (int64_t j = 0; j < counts[i]; j++)
            v.cpu[j] = fabsf(v.cpu[j]);
        v = pair_of(v.cpu, counts[i], false);
        struct ops_adamw cpu = {.count = counts[i],
                                .lr = 1e-2f,
                                .beta1 = 0.9f,
                                .beta2 = 0.95f,
                                .eps = 1e-8f,
                                .weight_decay = 0.1f,
                                .step = 1 + i};
        struct ops_adamw gpu = cpu;
        cpu.master = master.cpu, cpu.m = m.cpu, cpu.v = v.cpu, cpu.grad = grad.cpu;
        gpu.master = master.gpu, gpu.m = m.gpu, gpu.v = v.gpu, gpu.grad = grad.gpu;
        cpu.grad_scale = scale.cpu, gpu.grad_scale = scale.gpu;
        BOTH(adamw, &cpu, &gpu);
        pair_close("master", &master, 1e-6);
        pair_close("m", &m, 1e-6);
        pair_close("v", &v, 1e-6);
        (void)on_cuda_free(NULL);
    }
}

/* More rows than are worked on at once: blocks take one after the other. */
static void test_many_rows(void **state)
{
    static const int64_t norms[][3] = /* rows, width, variant */
        {{15000, 128, 0}, {15000, 128, 1}, {900, 8192, 1}, {200, 16384, 1}, {200, 16380, 0}};
    static const int64_t losses[][2] = /* rows, vocab */
        {{600, 264}, {600, 3001}, {300, 32000}, {300, 50257}, {200, 65536}};
    for (int i = 0; i < 5; i++) {
        check_rmsnorm_bwd(norms[i][0], norms[i][1], (int)norms[i][2]);
        (void)on_cuda_free(NULL);
    }
    for (int i = 0; i < 10; i++) {
        check_cross_entropy(losses[i / 2][0], losses[i / 2][1], i % 2 == 0);
        (void)on_cuda_free(NULL);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_gemm, on_cuda_free),
        cmocka_unit_test_teardown(test_rmsnorm, on_cuda_free),
        cmocka_unit_test_teardown(test_rope, on_cuda_free),
        cmocka_unit_test_teardown(test_elementwise, on_cuda_free),
        cmocka_unit_test_teardown(test_cross_entropy, on_cuda_free),
        cmocka_unit_test_teardown(test_sums, on_cuda_free),
        cmocka_unit_test_teardown(test_adamw, on_cuda_free),
        cmocka_unit_test_teardown(test_many_rows, on_cuda_free),
    };
    if (!on_cuda_open())
        return ON_CUDA_SKIPPED;
    cmocka_set_test_filter(getenv("ITHACA_TEST_FILTER")); /* one test, for compute-sanitizer */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
