/* bench_attention_parts: causal attention of one long document in parts of several sizes. Forward:
 * `rows` queries at a time, for them `keys` keys at a time, parts merged in fp32; backward
 * likewise, gradients added up in fp32. What lies on the diagonal is causal.
 *
 *     bench_attention_parts [tokens, default 1048576] [query heads, default 1] [seconds, default 1]
 *
 * TF/s of the pairs that the mask leaves (forward 4 d, backward 10 d), everything included, each
 * setting for some seconds after as much warming up: the card is at its power cap then. What the
 * operation makes of the whole itself (common/mem_split.h, whose sizes these figures chose) comes
 * first and last; it cuts larger parts than its own, too. K/V heads: one; head size 128. */
#include "common/clock.h"
#include "common/dtype.h"
#include "common/rng.h"
#include "worker/device_cuda.h"
#include "worker/ops.h"

#include <stdio.h>
#include <stdlib.h>

enum { D = 128 };

static struct device *gpu;

struct scene {
    int64_t tokens, heads;
    struct ops_heads q, k, v, o, d_o; /* bf16, head-major */
    struct ops_heads part;            /* bf16 (heads, rows, d) */
    struct ops_heads sum;             /* fp32 likewise */
    struct ops_heads dq, dk, dv;      /* fp32 */
    float *lse, *lse_part, *delta;
};

struct parts {
    int64_t rows, keys; /* 0: one call */
};

static void need(int rc, const struct err *err)
{
    if (rc == 0)
        return;
    (void)fprintf(stderr, "bench_attention_parts: %s\n", err->text);
    exit(1);
}

static void *filled(int64_t count, bool bf16)
{
    enum { TILE = 1 << 20 };
    static float values[TILE];
    static uint16_t bits[TILE];
    struct err err = {0};
    int64_t size = bf16 ? 2 : 4;
    for (int64_t i = 0; i < TILE && values[TILE - 1] == 0; i++)
        values[i] = rng_normal(1, 1, (uint64_t)i);
    dtype_from_f32(DTYPE_BF16, values, bits, TILE);
    char *memory = gpu->dev->alloc(gpu, (size_t)(count * size), &err);
    need(memory == NULL ? -1 : 0, &err);
    for (int64_t at = 0; at < count; at += TILE) {
        int64_t part = count - at < TILE ? count - at : TILE;
        need(gpu->dev->copy(gpu, NULL, memory + at * size,
                            bf16 ? (const void *)bits : (const void *)values, (size_t)(part * size),
                            &err),
             &err);
    }
    need(gpu->dev->sync(gpu, NULL, &err), &err);
    return memory;
}

static struct ops_heads heads_of(int64_t heads, int64_t rows, bool bf16)
{
    return (struct ops_heads){filled(heads * rows * D, bf16), rows * D, D};
}

static struct ops_heads from_row(struct ops_heads heads, int64_t row, int64_t size)
{
    heads.data = (char *)heads.data + row * heads.row_stride * size;
    return heads;
}

/* Queries from `row` on see keys from `key` on: causal where keys is 0. */
static int forward_part(const struct scene *s, int64_t row, int64_t rows, int64_t key, int64_t keys,
                        struct ops_heads o, float *lse, struct err *err)
{
    const int64_t ends[] = {0, rows};
    struct ops_attention args = {.q_heads = s->heads,
                                 .kv_heads = 1,
                                 .rows = rows,
                                 .head_dim = D,
                                 .kv_rows = keys,
                                 .documents = 1,
                                 .doc_rows = ends,
                                 .scale = 0.088f,
                                 .q = from_row(s->q, row, 2),
                                 .k = from_row(s->k, key, 2),
                                 .v = from_row(s->v, key, 2),
                                 .o = o,
                                 .lse = lse + row,
                                 .lse_stride = s->tokens};
    return gpu->ops->attention(gpu, NULL, &args, err);
}

static int forward_rows(const struct scene *s, int64_t row, int64_t rows, int64_t keys,
                        struct err *err)
{
    if (row == 0)
        return forward_part(s, 0, rows, 0, 0, s->o, s->lse, err);
    TRY(forward_part(s, row, rows, row, 0, s->part, s->lse, err));
    struct ops_cast cast = {.count = s->heads * rows * D, .in = s->part.data, .out = s->sum.data};
    TRY(gpu->ops->cast(gpu, NULL, &cast, err));
    for (int64_t key = 0; key < row; key += keys) {
        TRY(forward_part(s, row, rows, key, keys, s->part, s->lse_part, err));
        struct ops_attention_merge merge = {.heads = s->heads,
                                            .rows = rows,
                                            .head_dim = D,
                                            .part = s->part,
                                            .lse_part = s->lse_part + row,
                                            .lse_part_stride = s->tokens,
                                            .o = s->sum,
                                            .lse = s->lse + row,
                                            .lse_stride = s->tokens};
        TRY(gpu->ops->attention_merge(gpu, NULL, &merge, err));
    }
    struct ops_unpack unpack = {.heads = s->heads,
                                .rows = rows,
                                .head_dim = D,
                                .copies = 1,
                                .in = s->sum,
                                .in_f32 = true,
                                .out = from_row(s->o, row, 2)};
    return gpu->ops->unpack(gpu, NULL, &unpack, err);
}

static int forward(struct scene *s, const struct parts *parts, struct err *err)
{
    int64_t rows = parts->rows > 0 ? parts->rows : s->tokens;
    s->part.head_stride = s->sum.head_stride = rows * D;
    for (int64_t row = 0; row < s->tokens; row += rows)
        TRY(forward_rows(s, row, rows, parts->keys, err));
    return 0;
}

static int backward_part(const struct scene *s, int64_t row, int64_t rows, int64_t key,
                         int64_t keys, struct err *err)
{
    const int64_t ends[] = {0, rows};
    struct ops_attention_bwd args = {.q_heads = s->heads,
                                     .kv_heads = 1,
                                     .rows = rows,
                                     .head_dim = D,
                                     .kv_rows = keys,
                                     .documents = 1,
                                     .doc_rows = ends,
                                     .scale = 0.088f,
                                     .q = from_row(s->q, row, 2),
                                     .k = from_row(s->k, key, 2),
                                     .v = from_row(s->v, key, 2),
                                     .d_o = from_row(s->d_o, row, 2),
                                     .lse = s->lse + row,
                                     .delta = s->delta + row,
                                     .lse_stride = s->tokens,
                                     .dq = from_row(s->dq, row, 4),
                                     .dk = from_row(s->dk, key, 4),
                                     .dv = from_row(s->dv, key, 4)};
    return gpu->ops->attention_bwd(gpu, NULL, &args, err);
}

static int backward(struct scene *s, const struct parts *parts, struct err *err)
{
    int64_t rows = parts->rows > 0 ? parts->rows : s->tokens;
    for (int64_t row = 0; row < s->tokens; row += rows) {
        TRY(backward_part(s, row, rows, row, 0, err));
        for (int64_t key = 0, keys; key < row; key += keys) {
            keys = row - key < parts->keys ? row - key : parts->keys;
            TRY(backward_part(s, row, rows, key, keys, err));
        }
    }
    return 0;
}

typedef int pass(struct scene *s, const struct parts *parts, struct err *err);

/* Seconds of a pass, of as many as fit into `seconds` after as many to warm up. */
static double measure(struct scene *s, pass *run, const struct parts *parts, double seconds)
{
    struct err err = {0};
    double one = 0;
    for (int turn = 0; turn < 4; turn++) { /* plans are made; one without; warm; measured */
        int count = turn < 2 || one > seconds ? 1 : (int)(seconds / one) + 1;
        need(gpu->dev->sync(gpu, NULL, &err), &err);
        int64_t start = clock_monotonic_ns();
        for (int i = 0; i < count; i++)
            need(run(s, parts, &err), &err);
        need(gpu->dev->sync(gpu, NULL, &err), &err);
        one = (double)(clock_monotonic_ns() - start) * 1e-9 / count;
    }
    return one;
}

static void show(struct scene *s, bool back, struct parts parts, double seconds)
{
    double pairs = (double)s->tokens * (double)s->tokens / 2 * (double)s->heads;
    double took = measure(s, back ? backward : forward, &parts, seconds);
    if (parts.rows == 0)
        printf("%s as the operation cuts it", back ? "backward" : "forward ");
    else
        printf("%s %5lldK rows, %4lldK keys", back ? "backward" : "forward ",
               (long long)parts.rows >> 10, (long long)parts.keys >> 10);
    printf(" %9.1f ms %7.1f TF/s\n", took * 1e3, pairs * D * (back ? 10 : 4) / took * 1e-12);
    (void)fflush(stdout);
}

static void show_all(struct scene *s, bool back, const struct parts *parts, int count,
                     double seconds)
{
    show(s, back, (struct parts){0, 0}, seconds);
    for (int i = 0; i < count; i++)
        if (parts[i].rows < s->tokens && s->tokens % parts[i].rows == 0)
            show(s, back, parts[i], seconds);
    show(s, back, (struct parts){0, 0}, seconds);
}

int main(int argc, char **argv)
{
    enum { K = 1024, ROWS_MAX = 64 * K };
    static const struct parts of_forward[] = {
        {16 * K, 16 * K}, {16 * K, 32 * K}, {32 * K, 16 * K}, {32 * K, 32 * K},
        {32 * K, 64 * K}, {64 * K, 32 * K}, {64 * K, 64 * K},
    };
    static const struct parts of_backward[] = {
        {32 * K, 32 * K},  {32 * K, 128 * K},  {32 * K, 256 * K},  {64 * K, 64 * K},
        {64 * K, 256 * K}, {128 * K, 128 * K}, {256 * K, 256 * K},
    };
    struct err err = {0};
    struct scene s = {.tokens = argc > 1 ? strtoll(argv[1], NULL, 10) : 1024 * K,
                      .heads = argc > 2 ? strtoll(argv[2], NULL, 10) : 1};
    double seconds = argc > 3 ? strtod(argv[3], NULL) : 1;
    int rc = device_cuda_open(0, &gpu, &err);
    if (rc == -ERR_UNSUPPORTED) {
        printf("skipped: %s\n", err.text);
        return 77;
    }
    need(rc, &err);
    s.q = heads_of(s.heads, s.tokens, true), s.o = heads_of(s.heads, s.tokens, true);
    s.d_o = heads_of(s.heads, s.tokens, true), s.dq = heads_of(s.heads, s.tokens, false);
    s.k = heads_of(1, s.tokens, true), s.v = heads_of(1, s.tokens, true);
    s.dk = heads_of(1, s.tokens, false), s.dv = heads_of(1, s.tokens, false);
    s.part = heads_of(s.heads, ROWS_MAX, true), s.sum = heads_of(s.heads, ROWS_MAX, false);
    s.lse = filled(s.heads * s.tokens, false), s.lse_part = filled(s.heads * s.tokens, false);
    s.delta = filled(s.heads * s.tokens, false);
    printf("%lld tokens, %lld heads of %d on one\n", (long long)s.tokens, (long long)s.heads, D);
    show_all(&s, false, of_forward, sizeof of_forward / sizeof of_forward[0], seconds);
    show_all(&s, true, of_backward, sizeof of_backward / sizeof of_backward[0], seconds);
    return 0; /* the process ends: so does its memory */
}
