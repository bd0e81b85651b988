/* bench_ops: the time of every CPU operation at the shapes of tiny-llama (512 tokens of 8 heads of
 * 32) and of a larger model (2048 tokens of 16 heads of 64), as GFLOP/s or GB/s (bytes read and
 * written once), best of several runs.
 *
 *     OPENBLAS_CORETYPE=... bench_ops [threads] */
#include "common/clock.h"
#include "common/err.h"
#include "common/mem.h"
#include "common/must.h"
#include "common/rng.h"
#include "worker/device.h"
#include "worker/ops.h"

#include <stdio.h>
#include <stdlib.h>

struct model {
    const char *name;
    int64_t tokens, hidden, heads, kv_heads, head_dim, mlp, vocab;
    int64_t document; /* rows of each document */
};

static struct device *device;

static float *floats(int64_t count)
{
    static uint64_t stream = RNG_STREAM_TEST;
    float *x = mem_aligned(64, (size_t)count * sizeof *x);
    must(x != NULL);
    stream++;
    for (int64_t i = 0; i < count; i++)
        x[i] = (float)(rng_uniform(1, stream, (uint64_t)i) * 2 - 1);
    return x;
}

/* Best time of the op in nanoseconds: runs for 0.2 s, at least 5 times. */
#define BEST_NS(op, args)                                                                   \
    ({                                                                                      \
        int64_t best_ = INT64_MAX, start_ = clock_monotonic_ns();                           \
        for (int run_ = 0; run_ < 5 || clock_monotonic_ns() - start_ < 200000000; run_++) { \
            struct err err_ = {0};                                                          \
            int64_t from_ = clock_monotonic_ns();                                           \
            must(device->ops->op(device, NULL, (args), &err_) == 0);                        \
            int64_t took_ = clock_monotonic_ns() - from_;                                   \
            best_ = took_ < best_ ? took_ : best_;                                          \
        }                                                                                   \
        best_;                                                                              \
    })

static void print(const char *what, int64_t ns, double amount, const char *unit)
{
    printf("  %-28s %9.1f us  %8.1f %s\n", what, (double)ns / 1e3, amount / (double)ns, unit);
}

static void bench_gemm(const char *what, int64_t m, int64_t n, int64_t k, bool trans_a,
                       bool trans_b)
{
    struct ops_gemm args = {.m = m,
                            .n = n,
                            .k = k,
                            .a = floats(m * k),
                            .lda = trans_a ? m : k,
                            .trans_a = trans_a,
                            .b = floats(k * n),
                            .ldb = trans_b ? k : n,
                            .trans_b = trans_b,
                            .c = floats(m * n),
                            .ldc = n,
                            .alpha = 1,
                            .batch = 1};
    print(what, BEST_NS(gemm, &args), 2.0 * (double)m * (double)n * (double)k, "GF/s");
}

static void bench_attention(const struct model *model)
{
    int64_t rows = model->tokens, d = model->head_dim, q = model->heads * d,
            kv = model->kv_heads * d;
    int64_t documents = rows / model->document;
    int64_t *doc_rows = mem_new((size_t)documents + 1, sizeof *doc_rows);
    must(doc_rows != NULL);
    for (int64_t s = 0; s <= documents; s++)
        doc_rows[s] = s * model->document;
    struct ops_attention forward = {.q_heads = model->heads,
                                    .kv_heads = model->kv_heads,
                                    .rows = rows,
                                    .head_dim = d,
                                    .documents = documents,
                                    .doc_rows = doc_rows,
                                    .scale = 0.125f,
                                    .q = {floats(rows * q), d, q},
                                    .k = {floats(rows * kv), d, kv},
                                    .v = {floats(rows * kv), d, kv},
                                    .o = {floats(rows * q), d, q},
                                    .lse = floats(model->heads * rows)};
    struct ops_attention_bwd backward = {.q_heads = model->heads,
                                         .kv_heads = model->kv_heads,
                                         .rows = rows,
                                         .head_dim = d,
                                         .documents = documents,
                                         .doc_rows = doc_rows,
                                         .scale = 0.125f,
                                         .q = forward.q,
                                         .k = forward.k,
                                         .v = forward.v,
                                         .d_o = {floats(rows * q), d, q},
                                         .lse = forward.lse,
                                         .delta = floats(model->heads * rows),
                                         .dq = {floats(rows * q), d, q},
                                         .dk = {floats(rows * kv), d, kv},
                                         .dv = {floats(rows * kv), d, kv}};
    /* Pairs of query and key that are needed; two products a pair forward, five backward. */
    double pairs = (double)documents * (double)model->document * (double)(model->document + 1) / 2;
    double product = 2.0 * pairs * (double)q;
    print("attention", BEST_NS(attention, &forward), 2 * product, "GF/s");
    print("attention_bwd", BEST_NS(attention_bwd, &backward), 5 * product, "GF/s");
}

static void bench_rows(const struct model *model)
{
    int64_t rows = model->tokens, width = model->hidden, count = rows * width;
    double bytes = (double)count * 4;
    int32_t *ids = mem_new((size_t)rows, sizeof *ids),
            *positions = mem_new((size_t)rows, sizeof *ids);
    must(ids != NULL && positions != NULL);
    for (int64_t t = 0; t < rows; t++) {
        ids[t] = (int32_t)(t * 7 % model->vocab);
        positions[t] = (int32_t)t;
    }
    float *x = floats(count), *y = floats(count), *z = floats(count), *weight = floats(width);
    float *rstd = floats(rows), *table = floats(model->vocab * width);
    print("embed", BEST_NS(embed, (&(struct ops_embed){rows, model->vocab, width, ids, table, y})),
          2 * bytes, "GB/s");
    print("embed_bwd",
          BEST_NS(embed_bwd, (&(struct ops_embed_bwd){rows, model->vocab, width, ids, y, table})),
          3 * bytes, "GB/s");
    struct ops_rmsnorm norm = {rows, width, 1e-5f, x, z, z, weight, y, rstd};
    print("rmsnorm with residual", BEST_NS(rmsnorm, &norm), 4 * bytes, "GB/s");
    struct ops_rmsnorm_bwd norm_bwd = {rows, width, 1e-5f, x, weight, rstd, y, z, false, 0, weight};
    print("rmsnorm_bwd", BEST_NS(rmsnorm_bwd, &norm_bwd), 3 * bytes, "GB/s");
    print("add", BEST_NS(add, (&(struct ops_add){.count = count, .a = x, .b = y, .out = z})),
          3 * bytes, "GB/s");
    print("colsum", BEST_NS(colsum, (&(struct ops_colsum){rows, width, x, weight})), bytes, "GB/s");
    float *heads = floats(rows * model->heads * model->head_dim);
    struct ops_rope rope = {.heads = model->heads,
                            .tokens = rows,
                            .head_dim = model->head_dim,
                            .head_stride = model->head_dim,
                            .token_stride = model->heads * model->head_dim,
                            .x = heads,
                            .positions = positions,
                            .inv_freq = floats(model->head_dim / 2),
                            .scale = 1};
    print("rope", BEST_NS(rope, &rope), 8.0 * (double)(rows * rope.token_stride), "GB/s");
    int64_t mlp = rows * model->mlp;
    float *gate = floats(mlp), *up = floats(mlp), *out = floats(mlp);
    print("swiglu", BEST_NS(swiglu, (&(struct ops_swiglu){mlp, gate, up, out})), 12.0 * (double)mlp,
          "GB/s");
    print("swiglu_bwd",
          BEST_NS(swiglu_bwd, (&(struct ops_swiglu_bwd){mlp, gate, up, out, gate, up})),
          20.0 * (double)mlp, "GB/s");
    double loss = 0;
    int64_t correct = 0, tile = rows < 256 ? rows : 256;
    float *logits = floats(tile * model->vocab), *dlogits = floats(tile * model->vocab);
    struct ops_cross_entropy entropy = {tile,    model->vocab, logits,   ids, 1,
                                        dlogits, &loss,        &correct, NULL};
    print("cross_entropy of 256 rows", BEST_NS(cross_entropy, &entropy),
          8.0 * (double)(tile * model->vocab), "GB/s");
}

static void bench_optimizer(void)
{
    int64_t count = 3000000;
    float one = 1;
    double sum = 0;
    struct ops_adamw adamw = {.count = count,
                              .master = floats(count),
                              .m = floats(count),
                              .v = floats(count),
                              .grad = floats(count),
                              .grad_scale = &one,
                              .lr = 1e-3f,
                              .beta1 = 0.9f,
                              .beta2 = 0.99f,
                              .eps = 1e-8f,
                              .step = 1};
    for (int64_t i = 0; i < count; i++)
        adamw.v[i] = 1;
    printf("3M parameters\n");
    print("adamw", BEST_NS(adamw, &adamw), 28.0 * (double)count, "GB/s");
    print("sumsq", BEST_NS(sumsq, (&(struct ops_sumsq){count, adamw.grad, &sum})),
          4.0 * (double)count, "GB/s");
}

int main(int argc, char **argv)
{
    static const struct model models[] = {
        {"tiny-llama, one document", 512, 256, 8, 4, 32, 704, 264, 512},
        {"tiny-llama, documents of 128", 512, 256, 8, 4, 32, 704, 264, 128},
        {"larger, one document", 2048, 1024, 16, 8, 64, 2816, 32000, 2048},
    };
    struct err err = {0};
    int threads = argc > 1 ? (int)strtol(argv[1], NULL, 10) : 1;
    if (device_cpu_open(threads > 0 ? threads : 1, &device, &err) != 0) {
        (void)fprintf(stderr, "bench_ops: %s\n", err.text);
        return 1;
    }
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++) {
        const struct model *model = &models[i];
        printf("%s, %d thread(s)\n", model->name, threads);
        bench_attention(model);
        if (i == 1)
            continue;
        int64_t rows = model->tokens, q = model->heads * model->head_dim;
        bench_gemm("gemm x Wq^T", rows, q, model->hidden, false, true);
        bench_gemm("gemm x Wgate^T", rows, model->mlp, model->hidden, false, true);
        bench_gemm("gemm dy Wgate", rows, model->hidden, model->mlp, false, false);
        bench_gemm("gemm dy^T x (Wgate)", model->mlp, model->hidden, rows, true, false);
        bench_gemm("gemm 256 rows of logits", 256, model->vocab, model->hidden, false, true);
        bench_rows(model);
    }
    bench_optimizer();
    device->dev->close(device);
    return 0;
}
