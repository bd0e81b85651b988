/* bench_attention_parts: causal attention of one long document in parts of several sizes, cut by
 * worker/attention_split.h as the operation cuts it itself.
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
#include "worker/attention_split.h"
#include "worker/device_cuda.h"
#include "worker/ops.h"

#include <stdio.h>
#include <stdlib.h>

enum { D = 128 };

static struct device *gpu;

struct scene {
    int64_t tokens;
    int64_t doc_rows[2];
    struct ops_attention forward;
    struct ops_attention_bwd backward;
    void *scratch; /* of forward in parts, the largest */
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

/* In parts of these sizes; NULL: as the operation does it. */
static int pass(const struct scene *s, bool back, const struct mem_split *parts, struct err *err)
{
    if (parts == NULL)
        return back ? gpu->ops->attention_bwd(gpu, NULL, &s->backward, err)
                    : gpu->ops->attention(gpu, NULL, &s->forward, err);
    return back ? attention_split_bwd(gpu, NULL, &s->backward, parts, err)
                : attention_split(gpu, NULL, &s->forward, parts, s->scratch, err);
}

/* Seconds of a pass, of as many as fit into `seconds` after as many to warm up. */
static double measure(const struct scene *s, bool back, const struct mem_split *parts,
                      double seconds)
{
    struct err err = {0};
    double one = 0;
    for (int turn = 0; turn < 4; turn++) { /* plans are made; one without; warm; measured */
        int count = turn < 2 || one > seconds ? 1 : (int)(seconds / one) + 1;
        need(gpu->dev->sync(gpu, NULL, &err), &err);
        int64_t start = clock_monotonic_ns();
        for (int i = 0; i < count; i++)
            need(pass(s, back, parts, &err), &err);
        need(gpu->dev->sync(gpu, NULL, &err), &err);
        one = (double)(clock_monotonic_ns() - start) * 1e-9 / count;
    }
    return one;
}

static void show(const struct scene *s, bool back, const struct mem_split *parts, double seconds)
{
    double pairs = (double)s->tokens * (double)s->tokens / 2 * (double)s->forward.q_heads;
    double took = measure(s, back, parts, seconds);
    if (parts == NULL)
        printf("%s as the operation cuts it", back ? "backward" : "forward ");
    else
        printf("%s %5lldK rows, %4lldK keys", back ? "backward" : "forward ",
               (long long)parts->rows >> 10, (long long)parts->keys >> 10);
    printf(" %9.1f ms %7.1f TF/s\n", took * 1e3, pairs * D * (back ? 10 : 4) / took * 1e-12);
    (void)fflush(stdout);
}

/* Each setting that cuts the document at all. */
static void show_all(const struct scene *s, bool back, const struct mem_split *parts, int count,
                     double seconds)
{
    show(s, back, NULL, seconds);
    for (int i = 0; i < count; i++)
        if (parts[i].longest < s->tokens)
            show(s, back, &parts[i], seconds);
    show(s, back, NULL, seconds);
}

static void fill(struct scene *s, int64_t tokens, int64_t heads, const struct mem_split *largest)
{
    s->tokens = s->doc_rows[1] = tokens;
    s->forward = (struct ops_attention){.q_heads = heads,
                                        .kv_heads = 1,
                                        .rows = tokens,
                                        .head_dim = D,
                                        .documents = 1,
                                        .doc_rows = s->doc_rows,
                                        .scale = 0.088f,
                                        .q = heads_of(heads, tokens, true),
                                        .k = heads_of(1, tokens, true),
                                        .v = heads_of(1, tokens, true),
                                        .o = heads_of(heads, tokens, true),
                                        .lse = filled(heads * tokens, false)};
    s->backward = (struct ops_attention_bwd){.q_heads = heads,
                                             .kv_heads = 1,
                                             .rows = tokens,
                                             .head_dim = D,
                                             .documents = 1,
                                             .doc_rows = s->doc_rows,
                                             .scale = s->forward.scale,
                                             .q = s->forward.q,
                                             .k = s->forward.k,
                                             .v = s->forward.v,
                                             .d_o = heads_of(heads, tokens, true),
                                             .lse = s->forward.lse,
                                             .delta = filled(heads * tokens, false),
                                             .dq = heads_of(heads, tokens, false),
                                             .dk = heads_of(1, tokens, false),
                                             .dv = heads_of(1, tokens, false)};
    s->scratch = filled(mem_split_bytes(largest, heads, D, 2) / 4, false);
}

int main(int argc, char **argv)
{
    enum { K = 1024 };
    static const struct mem_split of_forward[] = {
        /* longest call, rows, keys */
        {16 * K, 16 * K, 16 * K}, {32 * K, 16 * K, 32 * K}, {32 * K, 32 * K, 16 * K},
        {32 * K, 32 * K, 32 * K}, {64 * K, 32 * K, 64 * K}, {64 * K, 64 * K, 32 * K},
        {64 * K, 64 * K, 64 * K}, /* the last takes the most scratch */
    };
    static const struct mem_split of_backward[] = {
        {32 * K, 32 * K, 32 * K},    {128 * K, 32 * K, 128 * K}, {256 * K, 32 * K, 256 * K},
        {64 * K, 64 * K, 64 * K},    {256 * K, 64 * K, 256 * K}, {128 * K, 128 * K, 128 * K},
        {256 * K, 256 * K, 256 * K},
    };
    enum {
        FORWARD_COUNT = sizeof of_forward / sizeof of_forward[0],
        BACKWARD_COUNT = sizeof of_backward / sizeof of_backward[0]
    };
    struct err err = {0};
    struct scene s = {0};
    int64_t tokens = argc > 1 ? strtoll(argv[1], NULL, 10) : 1024 * K;
    int64_t heads = argc > 2 ? strtoll(argv[2], NULL, 10) : 1;
    double seconds = argc > 3 ? strtod(argv[3], NULL) : 1;
    int rc = device_cuda_open(0, &gpu, &err);
    if (rc == -ERR_UNSUPPORTED) {
        printf("skipped: %s\n", err.text);
        return 77;
    }
    need(rc, &err);
    fill(&s, tokens, heads, &of_forward[FORWARD_COUNT - 1]);
    printf("%lld tokens, %lld heads of %d on one\n", (long long)tokens, (long long)heads, D);
    show_all(&s, false, of_forward, FORWARD_COUNT, seconds);
    show_all(&s, true, of_backward, BACKWARD_COUNT, seconds);
    return 0; /* the process ends: so does its memory */
}
