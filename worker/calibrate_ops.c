/* calibrate_ops: products at the sizes of a step's, tokens four times the other extents, each of
 * the three kinds there are; attention of one long document, by head size and length. */
#include "worker/calibrate.h"

#include "worker/ops.h"

enum { OPS_CPU_HEADS = 8 }; /* at most: what a region has room for */

static int ops_gemm_call(const struct calibrate *c, const void *args, int64_t turn, struct err *err)
{
    struct ops_gemm gemm = *(const struct ops_gemm *)args;
    gemm.a = calibrate_at(c, 0, gemm.m * gemm.k * c->act, turn);
    gemm.b = calibrate_at(c, 1, gemm.k * gemm.n * c->act, turn);
    gemm.c = calibrate_at(c, 2, gemm.m * gemm.n * (gemm.c_f32 ? 4 : c->act), turn);
    return c->device->ops->gemm(c->device, NULL, &gemm, err);
}

/* x: the smaller extents. */
static int ops_product(struct calibrate *c, enum time_op op, int64_t x, struct err *err)
{
    bool dw = op == TIME_GEMM_DW, y = op == TIME_GEMM_Y;
    int64_t tokens = 4 * x;
    struct ops_gemm gemm = {.m = dw ? x : tokens,
                            .n = x,
                            .k = dw ? tokens : x,
                            .lda = x,
                            .trans_a = dw,
                            .ldb = x,
                            .trans_b = y,
                            .ldc = x,
                            .c_f32 = dw,
                            .accumulate = dw,
                            .alpha = 1.0f,
                            .batch = 1};
    double extent = (double)x, size = 3 / (1 / (4 * extent) + 2 / extent);
    return calibrate_point(c, op, size, 1, 8 * extent * extent * extent, false, ops_gemm_call,
                           &gemm, err);
}

static int ops_attention_call(const struct calibrate *c, const void *args, int64_t turn,
                              struct err *err)
{
    struct ops_attention a = *(const struct ops_attention *)args;
    int64_t q = a.q_heads * a.rows * a.head_dim * c->act;
    a.q.data = calibrate_at(c, 0, q, turn);
    a.k.data = calibrate_at(c, 1, q, turn);
    a.v.data = calibrate_at(c, 1, q, turn + 1);
    a.o.data = calibrate_at(c, 2, q, turn);
    a.lse = calibrate_at(c, 3, a.q_heads * a.rows * 4, 0);
    return c->device->ops->attention(c->device, NULL, &a, err);
}

static int ops_attention_bwd_call(const struct calibrate *c, const void *args, int64_t turn,
                                  struct err *err)
{
    struct ops_attention_bwd a = *(const struct ops_attention_bwd *)args;
    int64_t q = a.q_heads * a.rows * a.head_dim * c->act, f32 = q / c->act * 4;
    a.q.data = calibrate_at(c, 0, q, turn);
    a.d_o.data = calibrate_at(c, 0, q, turn + 1);
    a.k.data = calibrate_at(c, 1, q, turn);
    a.v.data = calibrate_at(c, 1, q, turn + 1);
    a.lse = a.delta = calibrate_at(c, 3, a.q_heads * a.rows * 4, 0);
    a.dq.data = calibrate_at(c, 2, 3 * f32, turn);
    a.dk.data = (char *)a.dq.data + f32;
    a.dv.data = (char *)a.dk.data + f32;
    return c->device->ops->attention_bwd(c->device, NULL, &a, err);
}

/* On a GPU query heads enough to fill it, on one K/V head; else a query and a K/V head a thread,
 * since backward's threads share K/V heads out. */
static int ops_attention_point(struct calibrate *c, int64_t rows, int64_t head_dim, struct err *err)
{
    const int64_t threads = c->plan->threads < OPS_CPU_HEADS ? c->plan->threads : OPS_CPU_HEADS;
    const int64_t heads = !c->cuda ? threads : rows > 8192 ? 2 : 16;
    const int64_t kv_heads = c->cuda ? 1 : heads;
    const int64_t doc_rows[2] = {0, rows};
    struct ops_heads q = {.head_stride = rows * head_dim, .row_stride = head_dim};
    struct ops_attention forward = {.q_heads = heads,
                                    .kv_heads = kv_heads,
                                    .rows = rows,
                                    .head_dim = head_dim,
                                    .documents = 1,
                                    .doc_rows = doc_rows,
                                    .scale = 0.01f,
                                    .q = q,
                                    .k = q,
                                    .v = q,
                                    .o = q};
    struct ops_attention_bwd backward = {.q_heads = heads,
                                         .kv_heads = kv_heads,
                                         .rows = rows,
                                         .head_dim = head_dim,
                                         .documents = 1,
                                         .doc_rows = doc_rows,
                                         .scale = 0.01f,
                                         .q = q,
                                         .k = q,
                                         .v = q,
                                         .d_o = q,
                                         .dq = q,
                                         .dk = q,
                                         .dv = q};
    double keys = (double)(rows + 1) / 2, pairs = (double)heads * (double)rows * keys;
    double d = (double)head_dim;
    TRY(calibrate_point(c, TIME_ATTENTION, keys, d, 4 * d * pairs, false, ops_attention_call,
                        &forward, err));
    return calibrate_point(c, TIME_ATTENTION_BWD, keys, d, 10 * d * pairs, false,
                           ops_attention_bwd_call, &backward, err);
}

int calibrate_ops(struct calibrate *c, struct err *err)
{
    static const int64_t cpu_extents[] = {12, 24, 48, 96, 192, 384, 0};
    static const int64_t cuda_extents[] = {128, 512, 1024, 2048, 4096, 0};
    static const int64_t cpu_rows[] = {32, 128, 512, 2048, 0};
    static const int64_t cuda_rows[] = {1024, 8192, 32768, 131072, 0};
    static const int64_t cpu_heads[] = {32, 64, 128, 0}, cuda_heads[] = {64, 128, 0};
    const int64_t *extents = c->cuda ? cuda_extents : cpu_extents;
    const int64_t *lengths = c->cuda ? cuda_rows : cpu_rows;
    const int64_t *heads = c->cuda ? cuda_heads : cpu_heads;
    for (int op = TIME_GEMM_Y; op <= TIME_GEMM_DW; op++)
        for (const int64_t *x = extents; *x > 0; x++)
            TRY(ops_product(c, (enum time_op)op, *x, err));
    for (const int64_t *d = heads; *d > 0; d++)
        for (const int64_t *rows = lengths; *rows > 0; rows++)
            TRY(ops_attention_point(c, *rows, *d, err));
    return 0;
}
