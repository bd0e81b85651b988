/* cuda attention: forward and backward against the CPU backend on the same bf16 inputs: head sizes,
 * grouped heads, both layouts, packed documents; refusals; tensors just below the span that is
 * refused, where the gradients must still be right. */
#include "tests/lib/cmocka.h"

#include <inttypes.h>
#include <stdio.h>

#include "tests/lib/on_cuda.h"

/* bf16 probabilities and results: 2e-3 to 3.5e-3 of the whole tensor were seen. */
static const double bound = 6e-3;

struct scene {
    int64_t q_heads, kv_heads, rows, head_dim;
    int64_t kv_rows; /* of a rectangle; 0: causal */
    int64_t first;   /* rows of LSE and delta before these, as where a ring's part begins */
    const int64_t *doc_rows;
    int64_t documents;
    bool head_major; /* (heads, rows, d), else (rows, heads, d) */
};

static struct ops_heads laid(const struct scene *scene, int64_t heads, int64_t rows, void *data)
{
    int64_t d = scene->head_dim;
    if (scene->head_major)
        return (struct ops_heads){data, rows * d, d};
    return (struct ops_heads){data, d, heads * d};
}

static void close_in(const struct scene *scene, const char *what, const struct pair *pair)
{
    char text[192];
    (void)snprintf(text, sizeof text,
                   "%s of %" PRId64 "/%" PRId64 " heads of %" PRId64 ", %" PRId64
                   " rows from %" PRId64 " in %" PRId64 " documents, rectangle of %" PRId64
                   " keys, head-major %d",
                   what, scene->q_heads, scene->kv_heads, scene->head_dim, scene->rows,
                   scene->first, scene->documents, scene->kv_rows, scene->head_major);
    pair_close(text, pair, bound);
}

/* One side's arguments of backward, from forward's. */
static struct ops_attention_bwd backward_of(const struct ops_attention *forward)
{
    return (struct ops_attention_bwd){.q_heads = forward->q_heads,
                                      .kv_heads = forward->kv_heads,
                                      .rows = forward->rows,
                                      .head_dim = forward->head_dim,
                                      .kv_rows = forward->kv_rows,
                                      .documents = forward->documents,
                                      .doc_rows = forward->doc_rows,
                                      .scale = forward->scale,
                                      .q = forward->q,
                                      .k = forward->k,
                                      .v = forward->v,
                                      .lse = forward->lse,
                                      .lse_stride = forward->lse_stride};
}

/* Forward, delta, backward, each compared. lse_stride is wider than the rows in token-major scenes.
 */
static void check(const struct scene *s)
{
    int64_t kv_rows = s->kv_rows > 0 ? s->kv_rows : s->rows, d = s->head_dim;
    int64_t q_count = s->q_heads * s->rows * d, kv_count = s->kv_heads * kv_rows * d;
    struct pair q = pair_normal(q_count, true), k = pair_normal(kv_count, true);
    struct pair v = pair_normal(kv_count, true), d_o = pair_normal(q_count, true);
    int64_t stride = s->rows + s->first;
    struct pair o = pair_poison(q_count, true), lse = pair_poison(s->q_heads * stride, false);
    struct pair delta = pair_poison(s->q_heads * stride, false);
    struct pair dense = pair_poison(s->q_heads * s->rows, false);
    struct pair dq = pair_normal(q_count, false), dk = pair_normal(kv_count, false);
    struct pair dv = pair_normal(kv_count, false);
    struct ops_attention cpu = {.q_heads = s->q_heads,
                                .kv_heads = s->kv_heads,
                                .rows = s->rows,
                                .head_dim = d,
                                .kv_rows = s->kv_rows,
                                .documents = s->documents,
                                .doc_rows = s->doc_rows,
                                .scale = 1 / sqrtf((float)d),
                                .q = laid(s, s->q_heads, s->rows, q.cpu),
                                .k = laid(s, s->kv_heads, kv_rows, k.cpu),
                                .v = laid(s, s->kv_heads, kv_rows, v.cpu),
                                .o = laid(s, s->q_heads, s->rows, o.cpu),
                                .lse = lse.cpu + s->first,
                                .lse_stride = stride};
    struct ops_attention gpu = cpu;
    gpu.q.data = q.gpu, gpu.k.data = k.gpu, gpu.v.data = v.gpu, gpu.o.data = o.gpu;
    gpu.lse = (float *)lse.gpu + s->first;
    BOTH(attention, &cpu, &gpu);
    close_in(s, "o", &o);
    close_in(s, "lse", &lse);
    o = pair_of(o.cpu, q_count, true); /* the same O on both sides from here */
    struct ops_attention_delta cpu_delta = {.heads = s->q_heads,
                                            .rows = s->rows,
                                            .head_dim = d,
                                            .o = cpu.o,
                                            .d_o = laid(s, s->q_heads, s->rows, d_o.cpu),
                                            .delta = dense.cpu};
    struct ops_attention_delta gpu_delta = cpu_delta;
    gpu_delta.o.data = o.gpu, gpu_delta.d_o.data = d_o.gpu, gpu_delta.delta = dense.gpu;
    BOTH(attention_delta, &cpu_delta, &gpu_delta);
    pair_close("delta", &dense, 1e-5);
    for (int64_t head = 0; head < s->q_heads; head++)
        memcpy(delta.cpu + head * stride + s->first, dense.cpu + head * s->rows,
               (size_t)s->rows * sizeof(float));
    delta = pair_of(delta.cpu, s->q_heads * stride, false);
    struct ops_attention_bwd cpu_bwd = backward_of(&cpu), gpu_bwd = backward_of(&gpu);
    cpu_bwd.d_o = cpu_delta.d_o, cpu_bwd.delta = delta.cpu + s->first;
    cpu_bwd.dq = laid(s, s->q_heads, s->rows, dq.cpu);
    cpu_bwd.dk = laid(s, s->kv_heads, kv_rows, dk.cpu);
    cpu_bwd.dv = laid(s, s->kv_heads, kv_rows, dv.cpu);
    gpu_bwd.d_o = gpu_delta.d_o, gpu_bwd.delta = (float *)delta.gpu + s->first,
    gpu_bwd.dq = cpu_bwd.dq;
    gpu_bwd.dk = cpu_bwd.dk, gpu_bwd.dv = cpu_bwd.dv;
    gpu_bwd.dq.data = dq.gpu, gpu_bwd.dk.data = dk.gpu, gpu_bwd.dv.data = dv.gpu;
    BOTH(attention_bwd, &cpu_bwd, &gpu_bwd);
    close_in(s, "dq", &dq);
    close_in(s, "dk", &dk);
    close_in(s, "dv", &dv);
}

static void test_one_document(void **state)
{
    static const int64_t heads[][2] = {{1, 1}, {4, 4}, {4, 2}, {8, 2}, {3, 1}};
    static const int64_t rows[] = {1, 17, 128, 257, 1000, 256, 768}; /* 256: not packed */
    static const int64_t sizes[] = {64, 128, 32, 96};
    for (int i = 0; i < 42; i++) {
        int64_t ends[] = {0, rows[i % 7]};
        check(&(struct scene){.q_heads = heads[i % 5][0],
                              .kv_heads = heads[i % 5][1],
                              .rows = rows[i % 7],
                              .head_dim = sizes[i < 35 ? i / 2 % 2 : 2 + i % 2],
                              .doc_rows = ends,
                              .documents = 1,
                              .head_major = i % 3 == 0});
        (void)on_cuda_free(NULL);
    }
}

static void test_packed(void **state)
{
    static const int64_t plain[] = {0, 100, 101, 357, 600},
                         empty[] = {0, 0, 130, 130, 130, 131, 900, 900},
                         single[] = {0, 0, 40, 40}, /* one document in truth */
        many[] = {0, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144, 233, 377};
    static const struct {
        const int64_t *ends;
        int64_t documents;
    } packings[] = {{plain, 4}, {empty, 7}, {single, 3}, {many, 13}};
    static const int64_t heads[][2] = {{1, 1}, {4, 4}, {4, 2}, {8, 2}};
    for (int i = 0; i < 32; i++) {
        const int64_t *ends = packings[i % 4].ends;
        int64_t documents = packings[i % 4].documents;
        check(&(struct scene){.q_heads = heads[i / 4 % 4][0],
                              .kv_heads = heads[i / 4 % 4][1],
                              .rows = ends[documents],
                              .head_dim = i / 2 % 2 == 0 ? 64 : 128,
                              .doc_rows = ends,
                              .documents = documents,
                              .head_major = i / 16 == 0});
        (void)on_cuda_free(NULL);
    }
}

/* Every row sees every key: a ring's earlier parts. */
static void test_rectangle(void **state)
{
    static const int64_t heads[][2] = {{1, 1}, {4, 2}}, rows[] = {9, 130, 257};
    for (int i = 0; i < 18; i++) {
        check(&(struct scene){.q_heads = heads[i % 2][0],
                              .kv_heads = heads[i % 2][1],
                              .rows = rows[i / 2 % 3],
                              .kv_rows = rows[i / 6],
                              .head_dim = i % 4 < 2 ? 64 : 128,
                              .head_major = i % 3 == 0});
        (void)on_cuda_free(NULL);
    }
}

/* Parts of short documents, wherever they begin. */
static void test_small_rectangle(void **state)
{
    static const int64_t heads[][2] = {{1, 1}, {4, 2}}, rows[] = {1, 2, 3, 7, 8, 9};
    for (int i = 0; i < 72; i++) {
        check(&(struct scene){.q_heads = heads[i % 2][0],
                              .kv_heads = heads[i % 2][1],
                              .rows = rows[i / 12],
                              .kv_rows = rows[i / 2 % 6],
                              .first = i % 5,
                              .head_dim = 64,
                              .head_major = i % 3 != 0});
        (void)on_cuda_free(NULL);
    }
}

/* Whether a scene's plans, of both directions, were there. */
static bool planned(const struct scene *scene)
{
    int64_t before = on_cuda_gpu->dev->plan_ns(on_cuda_gpu);
    check(scene);
    (void)on_cuda_free(NULL);
    return on_cuda_gpu->dev->plan_ns(on_cuda_gpu) == before;
}

/* Documents of other lengths, and rows of a longer batch, find the plans of those before them. */
static void test_lengths(void **state)
{
    static const int64_t several[][4] = {{0, 300, 800, 1020}, {0, 290, 770, 1001}};
    static const int64_t alone[][2] = {{0, 777}, {0, 901}};
    static const int64_t heads[][2] = {{6, 3}, {1, 1}};
    for (int i = 0; i < 8; i++) {
        bool packed = i / 4 == 0;
        struct scene scene = {.q_heads = heads[i % 2][0],
                              .kv_heads = heads[i % 2][1],
                              .rows = packed ? several[0][3] : alone[0][1],
                              .head_dim = 64,
                              .doc_rows = packed ? several[0] : alone[0],
                              .documents = packed ? 3 : 1,
                              .head_major = i / 2 % 2 == 0};
        bool found = planned(&scene);
        assert_true(i > 0 || !found); /* making them is counted */
        scene.rows = packed ? several[1][3] : alone[1][1];
        scene.doc_rows = packed ? several[1] : alone[1];
        if (!planned(&scene))
            fail_msg("%d heads, %d documents: other lengths had no plan", (int)scene.q_heads,
                     (int)scene.documents);
    }
    static const int64_t whole[] = {0, 256};
    for (int64_t first = 0; first < 12; first += 4) { /* LSE's heads are rows + first apart */
        const struct scene scene = {.q_heads = 6,
                                    .kv_heads = 3,
                                    .rows = 256,
                                    .first = first,
                                    .head_dim = 64,
                                    .doc_rows = whole,
                                    .documents = 1};
        assert_true(planned(&scene) || first == 0);
    }
}

/* More shapes than plans are kept: one in use stays, one that went is made again. */
static void test_many_plans(void **state)
{
    enum { SHAPES = 80 };
    const struct device_ops *dev = on_cuda_gpu->dev;
    const struct scene kept = {
        .q_heads = 1, .kv_heads = 1, .rows = 300, .kv_rows = 301, .head_dim = 64};
    struct scene other = kept;
    assert_false(planned(&kept));
    int64_t taken = dev->bytes_taken(on_cuda_gpu), began_ns = dev->plan_ns(on_cuda_gpu);
    for (int i = 0; i < SHAPES; i++) {
        other.rows = 310 + i;
        assert_false(planned(&other));
        assert_true(planned(&kept));
    }
    printf("%d plans: %.1f ms each, %.1f MiB of the device in all\n", 2 * SHAPES,
           (double)(dev->plan_ns(on_cuda_gpu) - began_ns) * 1e-6 / (2 * SHAPES),
           (double)(dev->bytes_taken(on_cuda_gpu) - taken) * 0x1p-20);
    other.rows = 310;
    assert_false(planned(&other));
}

static void test_merge(void **state)
{
    enum { HEADS = 3, ROWS = 37, LSE_STRIDE = 50 };
    static const int64_t sizes[] = {64, 128, 6, 200};
    for (int i = 0; i < 4; i++) {
        int64_t d = sizes[i], count = HEADS * ROWS * d;
        struct pair o = pair_normal(count, false), part = pair_normal(count, true);
        struct pair lse = pair_normal(HEADS * LSE_STRIDE, false);
        struct pair lse_part = pair_normal(HEADS * ROWS, false);
        for (int row = 0; row < ROWS; row++) {
            lse.cpu[row] = row % 5 == 1 ? -INFINITY : 30 * lse.cpu[row];
            lse_part.cpu[row] = row % 5 < 2 ? -INFINITY : 30 * lse_part.cpu[row];
        }
        for (int row = 0; row < ROWS; row += 10) /* a side that saw nothing, merged with one */
            lse.cpu[row] = -INFINITY, lse_part.cpu[row] = 3;
        lse = pair_of(lse.cpu, lse.count, false);
        lse_part = pair_of(lse_part.cpu, lse_part.count, false);
        struct ops_attention_merge cpu = {.heads = HEADS,
                                          .rows = ROWS,
                                          .head_dim = d,
                                          .part = {part.cpu, ROWS * d, d},
                                          .lse_part = lse_part.cpu,
                                          .o = {o.cpu, d, HEADS * d},
                                          .lse = lse.cpu,
                                          .lse_stride = LSE_STRIDE};
        struct ops_attention_merge gpu = cpu;
        gpu.part.data = part.gpu, gpu.lse_part = lse_part.gpu, gpu.o.data = o.gpu;
        gpu.lse = lse.gpu;
        BOTH(attention_merge, &cpu, &gpu);
        pair_close("o", &o, 1e-6);
        float *got = pair_download(&lse);
        for (int64_t j = 0; j < lse.count; j++)
            if (got[j] != lse.cpu[j] && !(fabsf(got[j] - lse.cpu[j]) <= 1e-5f))
                fail_msg("lse %lld: %g, on the CPU %g", (long long)j, (double)got[j],
                         (double)lse.cpu[j]);
    }
}

static void test_unpack(void **state)
{
    enum { HEADS = 3, ROWS = 29 };
    static const int64_t sizes[] = {64, 6};
    for (int i = 0; i < 8; i++) {
        int64_t d = sizes[i % 2], copies = i / 2 % 2 == 0 ? 1 : 4, each = HEADS * ROWS * d;
        bool f32 = i >= 4;
        struct pair in = pair_normal(copies * each, !f32), out = pair_poison(each, true);
        struct ops_unpack cpu = {.heads = HEADS,
                                 .rows = ROWS,
                                 .head_dim = d,
                                 .copies = copies,
                                 .copy_stride = each,
                                 .in = {in.cpu, ROWS * d, d},
                                 .in_f32 = f32,
                                 .out = {out.cpu, d, HEADS * d}};
        struct ops_unpack gpu = cpu;
        gpu.in.data = in.gpu, gpu.out.data = out.gpu;
        BOTH(unpack, &cpu, &gpu);
        pair_close("unpack", &out, copies == 1 && !f32 ? 0 : 4e-3);
    }
}

static void expect_refused(const struct ops_attention *args, const char *what)
{
    struct err err = {0};
    int rc = on_cuda_gpu->ops->attention(on_cuda_gpu, NULL, args, &err);
    if (rc != -ERR_UNSUPPORTED)
        fail_msg("%s: answered %d, \"%s\"", what, rc, err.text);
    if (strstr(err.text, what) == NULL)
        fail_msg("the sentence does not name %s: \"%s\"", what, err.text);
}

static void test_refusals(void **state)
{
    void *memory = on_cuda_alloc(4096);
    const int64_t ends[] = {0, 8};
    struct ops_heads heads = {memory, 64, 64};
    struct ops_attention good = {.q_heads = 1,
                                 .kv_heads = 1,
                                 .rows = 8,
                                 .head_dim = 64,
                                 .documents = 1,
                                 .doc_rows = ends,
                                 .scale = 1,
                                 .q = heads,
                                 .k = heads,
                                 .v = heads,
                                 .o = heads,
                                 .lse = memory};
    struct ops_attention args = good;
    args.head_dim = 160;
    expect_refused(&args, "head size");
    args = good;
    args.k.row_stride = ((int64_t)1 << 31) / 7 / 8 * 8 + 8;
    expect_refused(&args, "k spans");
    args = good;
    args.v.row_stride = 66;
    expect_refused(&args, "16 bytes");
    args = good;
    args.o.data = (char *)memory + 2;
    expect_refused(&args, "16 bytes");
}

/* q, k, v, d_o and o interleaved in one buffer, rows so far apart that each spans just under 2^31
 * elements. */
static void test_span(void **state)
{
    enum { ROWS = 300, D = 64, FAR = 5 }; /* a plan for 512 rows would span more */
    const int64_t stride = (((int64_t)1 << 31) - 64) / (ROWS - 1) / 8 * 8, ends[] = {0, ROWS};
    uint16_t *far = on_cuda_alloc((ROWS - 1) * stride * 2 + FAR * D * 2);
    struct pair at[FAR], grad[3];
    struct ops_heads near_heads[FAR], far_heads[FAR];
    for (int i = 0; i < FAR; i++) {
        at[i] = i < 4 ? pair_normal(ROWS * D, true) : pair_poison(ROWS * D, true);
        near_heads[i] = (struct ops_heads){at[i].cpu, D, D};
        far_heads[i] = (struct ops_heads){far + i * D, D, stride};
        for (int row = 0; row < ROWS; row++)
            on_cuda_copy(far + i * D + row * stride, (uint16_t *)at[i].gpu + row * D, D * 2);
    }
    struct pair lse = pair_poison(ROWS, false), delta = pair_poison(ROWS, false);
    struct ops_attention cpu = {.q_heads = 1,
                                .kv_heads = 1,
                                .rows = ROWS,
                                .head_dim = D,
                                .documents = 1,
                                .doc_rows = ends,
                                .scale = 0.125f,
                                .q = near_heads[0],
                                .k = near_heads[1],
                                .v = near_heads[2],
                                .o = near_heads[4],
                                .lse = lse.cpu};
    struct ops_attention gpu = cpu;
    gpu.q = far_heads[0], gpu.k = far_heads[1], gpu.v = far_heads[2], gpu.o = far_heads[4];
    gpu.lse = lse.gpu;
    BOTH(attention, &cpu, &gpu);
    for (int row = 0; row < ROWS; row++)
        on_cuda_copy((uint16_t *)at[4].gpu + row * D, far + 4 * D + row * stride, D * 2);
    pair_close("o", &at[4], bound);
    struct ops_attention_delta cpu_delta = {.heads = 1,
                                            .rows = ROWS,
                                            .head_dim = D,
                                            .o = cpu.o,
                                            .d_o = near_heads[3],
                                            .delta = delta.cpu};
    struct ops_attention_delta gpu_delta = {.heads = 1,
                                            .rows = ROWS,
                                            .head_dim = D,
                                            .o = gpu.o,
                                            .d_o = far_heads[3],
                                            .delta = delta.gpu};
    BOTH(attention_delta, &cpu_delta, &gpu_delta);
    struct ops_attention_bwd cpu_bwd = backward_of(&cpu), gpu_bwd = backward_of(&gpu);
    cpu_bwd.d_o = near_heads[3], cpu_bwd.delta = delta.cpu;
    gpu_bwd.d_o = far_heads[3], gpu_bwd.delta = delta.gpu;
    struct ops_heads *cpu_to[] = {&cpu_bwd.dq, &cpu_bwd.dk, &cpu_bwd.dv};
    struct ops_heads *gpu_to[] = {&gpu_bwd.dq, &gpu_bwd.dk, &gpu_bwd.dv};
    for (int i = 0; i < 3; i++) {
        grad[i] = pair_normal(ROWS * D, false);
        *cpu_to[i] = (struct ops_heads){grad[i].cpu, D, D};
        *gpu_to[i] = (struct ops_heads){grad[i].gpu, D, D};
    }
    BOTH(attention_bwd, &cpu_bwd, &gpu_bwd);
    for (int i = 0; i < 3; i++)
        pair_close(i == 0 ? "dq" : i == 1 ? "dk" : "dv", &grad[i], bound);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_one_document, on_cuda_free),
        cmocka_unit_test_teardown(test_packed, on_cuda_free),
        cmocka_unit_test_teardown(test_rectangle, on_cuda_free),
        cmocka_unit_test_teardown(test_small_rectangle, on_cuda_free),
        cmocka_unit_test_teardown(test_lengths, on_cuda_free),
        cmocka_unit_test_teardown(test_many_plans, on_cuda_free),
        cmocka_unit_test_teardown(test_merge, on_cuda_free),
        cmocka_unit_test_teardown(test_unpack, on_cuda_free),
        cmocka_unit_test_teardown(test_refusals, on_cuda_free),
        cmocka_unit_test_teardown(test_span, on_cuda_free),
    };
    if (!on_cuda_open())
        return ON_CUDA_SKIPPED;
    cmocka_set_test_filter(getenv("ITHACA_TEST_FILTER")); /* one test, for compute-sanitizer */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
