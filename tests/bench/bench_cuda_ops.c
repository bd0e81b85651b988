/* bench_cuda_ops: every CUDA operation at the shapes of an 8B llama (hidden 4096, MLP 14336, heads
 * 32 over 8 of 128, vocabulary 128256).
 *
 *     bench_cuda_ops [tokens, default 16384]
 *
 * A figure is the median of 11 batches of launches, with the spread (slowest batch over fastest).
 * Memory-bound operations: bytes that must move over the time, and as a share of what a copy on the
 * device moves (read plus written) in the same run; products and attention: operations over the
 * time, and as a share of a product of 8192 cubed that runs for seconds (cuBLAS at the power cap).
 * Attention counts the pairs that a causal mask leaves. */
#include "common/clock.h"
#include "common/dtype.h"
#include "common/median.h"
#include "common/mem.h"
#include "common/must.h"
#include "common/rng.h"
#include "worker/device_cuda.h"
#include "worker/ops.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

enum {
    HIDDEN = 4096,
    MLP = 14336,
    HEADS = 32,
    KV_HEADS = 8,
    D = 128,
    VOCAB = 128256,
    BATCHES = 11
};

static struct device *gpu;
static double copy_gbs, blas_tfs; /* the yardsticks */

static void need(int rc, const struct err *err)
{
    if (rc == 0)
        return;
    (void)fprintf(stderr, "bench_cuda_ops: %s\n", err->text);
    exit(1);
}

/* Memory with normal values (a tile of them, repeated): zeros flatter a GPU. */
static void *filled(int64_t count, bool bf16)
{
    enum { TILE = 1 << 20 };
    static float *values;
    static uint16_t bits[TILE];
    struct err err = {0};
    int64_t size = bf16 ? 2 : 4;
    if (values == NULL) {
        values = mem_new(TILE, sizeof *values);
        must(values != NULL);
        for (int64_t i = 0; i < TILE; i++)
            values[i] = rng_normal(1, 1, (uint64_t)i);
        dtype_from_f32(DTYPE_BF16, values, bits, TILE);
    }
    char *memory = gpu->dev->alloc(gpu, (size_t)(count * size), &err);
    need(memory == NULL ? -1 : 0, &err);
    for (int64_t at = 0; at < count; at += TILE) {
        int64_t part = count - at < TILE ? count - at : TILE;
        const void *from = bf16 ? (const void *)bits : (const void *)values;
        need(gpu->dev->copy(gpu, NULL, memory + at * size, from, (size_t)(part * size), &err),
             &err);
    }
    return memory;
}

static int32_t *numbers(int64_t count, int64_t bound)
{
    struct err err = {0};
    int32_t *host = mem_new((size_t)count, sizeof *host);
    must(host != NULL);
    for (int64_t i = 0; i < count; i++)
        host[i] = bound == 0 ? (int32_t)i : (int32_t)rng_below(1, 2, (uint64_t)i, (uint64_t)bound);
    int32_t *memory = gpu->dev->alloc(gpu, (size_t)count * sizeof *host, &err);
    need(memory == NULL ? -1 : 0, &err);
    need(gpu->dev->copy(gpu, NULL, memory, host, (size_t)count * sizeof *host, &err), &err);
    need(gpu->dev->sync(gpu, NULL, &err), &err);
    mem_free(host);
    return memory;
}

typedef int (*launch)(const void *args, struct err *err);

/* Median seconds of one launch; the spread of batches. */
static double seconds_of(launch run, const void *args, double *ret_spread)
{
    struct err err = {0};
    double batch[BATCHES];
    int count = 1;
    for (int warm = 0; warm < 2; warm++) {
        int64_t start = clock_monotonic_ns();
        need(run(args, &err), &err);
        need(gpu->dev->sync(gpu, NULL, &err), &err);
        int64_t took = clock_monotonic_ns() - start;
        count = took > 20000000 ? 1 : (int)(20000000 / (took > 10000 ? took : 10000));
    }
    for (int b = 0; b < BATCHES; b++) {
        int64_t start = clock_monotonic_ns();
        for (int i = 0; i < count; i++)
            need(run(args, &err), &err);
        need(gpu->dev->sync(gpu, NULL, &err), &err);
        batch[b] = (double)(clock_monotonic_ns() - start) * 1e-9 / count;
    }
    double median = median_sort(batch, BATCHES);
    *ret_spread = batch[BATCHES - 1] / batch[0] - 1;
    return median;
}

static void print_bytes(const char *what, launch run, const void *args, double bytes)
{
    double spread, seconds = seconds_of(run, args, &spread), rate = bytes / seconds * 1e-9;
    if (copy_gbs == 0)
        copy_gbs = rate;
    printf("  %-34s %10.1f us %8.0f GB/s  %5.1f%% of copy   spread %.1f%%\n", what, seconds * 1e6,
           rate, 100 * rate / copy_gbs, 100 * spread);
    (void)fflush(stdout);
}

static void print_flops(const char *what, launch run, const void *args, double flops)
{
    double spread, seconds = seconds_of(run, args, &spread), rate = flops / seconds * 1e-12;
    if (blas_tfs == 0)
        blas_tfs = rate;
    printf("  %-34s %10.1f us %8.0f TF/s  %5.1f%% of cuBLAS spread %.1f%%\n", what, seconds * 1e6,
           rate, 100 * rate / blas_tfs, 100 * spread);
    (void)fflush(stdout);
}

#define X(op)                                                                      \
    __attribute__((unused)) static int run_##op(const void *args, struct err *err) \
    {                                                                              \
        return gpu->ops->op(gpu, NULL, args, err);                                 \
    }
OPS_TABLE(X)
#undef X

struct copy {
    void *to;
    const void *from;
    size_t bytes;
};
static int run_copy(const void *args, struct err *err)
{
    const struct copy *copy = args;
    return gpu->dev->copy(gpu, NULL, copy->to, copy->from, copy->bytes, err);
}

static void drop(void *memory)
{
    gpu->dev->free(gpu, memory);
}

static void bench_gemm(const char *what, int64_t m, int64_t n, int64_t k, bool ta, bool tb,
                       bool f32)
{
    void *a = filled(m * k, true), *b = filled(n * k, true), *c = filled(m * n, !f32);
    struct ops_gemm args = {.m = m,
                            .n = n,
                            .k = k,
                            .a = a,
                            .lda = ta ? m : k,
                            .trans_a = ta,
                            .b = b,
                            .ldb = tb ? k : n,
                            .trans_b = tb,
                            .c = c,
                            .ldc = n,
                            .c_f32 = f32,
                            .accumulate = f32 && ta,
                            .alpha = 1,
                            .batch = 1};
    if (blas_tfs == 0) { /* to the power cap first */
        struct err err = {0};
        for (int i = 0; i < 2000; i++)
            need(run_gemm(&args, &err), &err);
        need(gpu->dev->sync(gpu, NULL, &err), &err);
    }
    print_flops(what, run_gemm, &args, 2.0 * (double)m * (double)n * (double)k);
    drop(a), drop(b), drop(c);
}

static void bench_gemms(int64_t T)
{
    bench_gemm("gemm 8192 cubed", 8192, 8192, 8192, false, true, false);
    bench_gemm("gemm x Wq^T", T, HIDDEN, HIDDEN, false, true, false);
    bench_gemm("gemm x Wk^T", T, KV_HEADS * D, HIDDEN, false, true, false);
    bench_gemm("gemm x Wgate^T", T, MLP, HIDDEN, false, true, false);
    bench_gemm("gemm act Wdown^T", T, HIDDEN, MLP, false, true, false);
    bench_gemm("gemm dy Wgate", T, HIDDEN, MLP, false, false, false);
    bench_gemm("gemm dWgate += dy^T x (fp32)", MLP, HIDDEN, T, true, false, true);
    bench_gemm("gemm logits of 1024 (fp32)", 1024, VOCAB, HIDDEN, false, true, true);
}

static void bench_norms(int64_t T)
{
    int64_t count = T * HIDDEN;
    double bytes = 2.0 * (double)count;
    void *x = filled(count, true), *y = filled(count, true), *z = filled(count, true);
    void *sum = filled(count, true), *weight = filled(HIDDEN, true);
    float *rstd = filled(T * HEADS, false), *dweight = filled(HIDDEN, false);
    struct ops_rmsnorm norm = {T, HIDDEN, 1e-5f, x, NULL, NULL, weight, y, rstd};
    print_bytes("rmsnorm", run_rmsnorm, &norm, 2 * bytes);
    struct ops_rmsnorm both = {T, HIDDEN, 1e-5f, x, z, sum, weight, y, rstd};
    print_bytes("rmsnorm + residual", run_rmsnorm, &both, 4 * bytes);
    struct ops_rmsnorm heads = {T * HEADS, D, 1e-5f, x, NULL, NULL, weight, y, rstd};
    print_bytes("qk-norm", run_rmsnorm, &heads, 2 * bytes);
    struct ops_rmsnorm_bwd bwd = {T, HIDDEN, 1e-5f, x, weight, NULL, y, z, false, 0, dweight};
    print_bytes("rmsnorm_bwd", run_rmsnorm_bwd, &bwd, 3 * bytes);
    bwd.accumulate = true;
    print_bytes("rmsnorm_bwd +=", run_rmsnorm_bwd, &bwd, 4 * bytes);
    bwd.dither = 1;
    print_bytes("rmsnorm_bwd +=, dithered", run_rmsnorm_bwd, &bwd, 4 * bytes);
    struct ops_rmsnorm_bwd heads_bwd = {T * HEADS, D, 1e-5f, x, weight, NULL,
                                        y,         z, false, 0, dweight};
    print_bytes("qk-norm bwd", run_rmsnorm_bwd, &heads_bwd, 3 * bytes);
    struct ops_add add = {.count = count, .a = x, .b = y, .out = z};
    print_bytes("add", run_add, &add, 3 * bytes);
    struct ops_unpack unpack = {HEADS, T, D, 1, 0, {x, T * D, D}, false, {y, D, HIDDEN}};
    print_bytes("unpack", run_unpack, &unpack, 2 * bytes);
    struct ops_colsum colsum = {T, HIDDEN, x, dweight};
    print_bytes("colsum", run_colsum, &colsum, bytes);
    int32_t *positions = numbers(T, 0);
    float *inv_freq = filled(D / 2, false);
    struct ops_rope rope = {HEADS, T, D, D, HEADS * D, x, positions, inv_freq, 1, false};
    print_bytes("rope (T, 32 heads, 128)", run_rope, &rope, 2 * bytes);
    struct ops_rope stage = {1, T * HEADS, D, 0, D, x, numbers(T * HEADS, 0), inv_freq, 1, false};
    print_bytes("rope (1 head, 32 T, 128)", run_rope, &stage, 2 * bytes);
    drop(x), drop(y), drop(z), drop(sum), drop(rstd);
}

/* What comes back to its tokens: dk and dv in fp32, of ranks that share a head; parts of a ring. */
static void bench_returns(int64_t T)
{
    int64_t count = T * HIDDEN, kv = T * KV_HEADS * D;
    void *x = filled(count, true), *y = filled(count, true);
    float *sums = filled(count, false), *copies = filled(2 * kv, false);
    float *lse = filled(T * HEADS, false), *part = filled(T * HEADS, false);
    struct ops_unpack from_f32 = {HEADS, T, D, 1, 0, {sums, T * D, D}, true, {y, D, HIDDEN}};
    print_bytes("unpack of fp32", run_unpack, &from_f32, 6.0 * (double)count);
    struct ops_unpack shared = {
        KV_HEADS, T, D, 2, kv, {copies, T * D, D}, true, {y, D, KV_HEADS * D}};
    print_bytes("unpack, two copies in fp32", run_unpack, &shared, 10.0 * (double)kv);
    struct ops_attention_merge merge = {HEADS, T, D, {x, T * D, D}, part, 0, {sums, D, HIDDEN},
                                        lse,   0};
    print_bytes("attention_merge", run_attention_merge, &merge, 10.0 * (double)count);
    drop(x), drop(y), drop(sums), drop(copies), drop(lse), drop(part);
}

/* Adapters' inputs: a tile's rows in one head, O's in heads. */
static void bench_dropout(int64_t T)
{
    struct err err = {0};
    double bytes = 2.0 * (double)(T * HIDDEN);
    void *x = filled(T * HIDDEN, true), *y = filled(T * HIDDEN, true);
    int64_t *host = mem_new((size_t)T, sizeof *host), *rows = NULL;
    must(host != NULL);
    for (int64_t t = 0; t < T; t++)
        host[t] = t;
    rows = gpu->dev->alloc(gpu, (size_t)T * sizeof *rows, &err);
    need(rows == NULL ? -1 : 0, &err);
    need(gpu->dev->copy(gpu, NULL, rows, host, (size_t)T * sizeof *rows, &err), &err);
    need(gpu->dev->sync(gpu, NULL, &err), &err);
    mem_free(host);
    struct ops_dropout plain = {.heads = 1,
                                .rows = T,
                                .head_dim = HIDDEN,
                                .in = {x, HIDDEN, HIDDEN},
                                .out = {y, HIDDEN, HIDDEN},
                                .numbers = rows,
                                .width = HIDDEN,
                                .key = 7,
                                .rate = 0.1f};
    print_bytes("dropout", run_dropout, &plain, 2 * bytes);
    struct ops_dropout heads = plain;
    heads.heads = HEADS, heads.head_dim = heads.feature_stride = D, heads.accumulate = true;
    heads.in = (struct ops_heads){x, D, HIDDEN}, heads.out = (struct ops_heads){y, T * D, D};
    print_bytes("dropout of heads, +=", run_dropout, &heads, 3 * bytes);
    drop(x), drop(y), drop(rows);
}

static void bench_mlp(int64_t T)
{
    int64_t count = T * MLP;
    double bytes = 2.0 * (double)count;
    void *gate = filled(count, true), *up = filled(count, true), *out = filled(count, true);
    struct ops_swiglu swiglu = {count, gate, up, out};
    print_bytes("swiglu", run_swiglu, &swiglu, 3 * bytes);
    struct ops_swiglu_bwd bwd = {count, gate, up, out, gate, up};
    print_bytes("swiglu_bwd", run_swiglu_bwd, &bwd, 5 * bytes);
    drop(gate), drop(up), drop(out);
}

static void bench_losses(int64_t rows, int64_t vocab)
{
    double count = (double)(rows * vocab);
    float *logits = filled(rows * vocab, false);
    void *dlogits = filled(rows * vocab, true), *sums = filled(4, false);
    struct ops_cross_entropy entropy = {.rows = rows,
                                        .vocab = vocab,
                                        .logits = logits,
                                        .targets = numbers(rows, vocab),
                                        .scale = 1,
                                        .dlogits = dlogits,
                                        .loss_sum = sums,
                                        .correct = (int64_t *)sums + 1};
    char what[64];
    (void)snprintf(what, sizeof what, "cross_entropy, %lld of %lld", (long long)rows,
                   (long long)vocab);
    print_bytes(what, run_cross_entropy, &entropy, 6 * count);
    entropy.dlogits = NULL;
    print_bytes("              without gradient", run_cross_entropy, &entropy, 4 * count);
    drop(logits), drop(dlogits), drop((void *)entropy.targets), drop(sums);
}

static void bench_head(int64_t T)
{
    int32_t *ids = numbers(T, VOCAB);
    void *table = filled((int64_t)VOCAB * HIDDEN, true), *x = filled(T * HIDDEN, true);
    float *dtable = filled((int64_t)VOCAB * HIDDEN, false);
    struct ops_embed embed = {T, VOCAB, HIDDEN, ids, table, x};
    print_bytes("embed", run_embed, &embed, 4.0 * (double)(T * HIDDEN));
    struct ops_embed_bwd bwd = {T, VOCAB, HIDDEN, ids, x, dtable};
    print_bytes("embed_bwd, ids all over", run_embed_bwd, &bwd, 10.0 * (double)(T * HIDDEN));
    bwd.ids = numbers(T, 100);
    print_bytes("embed_bwd, 100 different ids", run_embed_bwd, &bwd, 2.0 * (double)(T * HIDDEN));
    drop(table), drop(x), drop(dtable);
}

static void bench_optimizer(void)
{
    int64_t count = 256 << 20;
    float *grad = filled(count, false), *master = filled(count, false), *m = filled(count, false);
    float *v = filled(count, false), *scale = filled(1, false);
    double *sum = (double *)filled(2, false);
    struct ops_adamw adamw = {count, master, m, v, grad, scale, 1e-3f, 0.9f, 0.95f, 1e-8f, 0.1f, 3};
    print_bytes("adamw, 256M parameters", run_adamw, &adamw, 28.0 * (double)count);
    struct ops_sumsq sumsq = {count, grad, sum};
    print_bytes("sumsq, 256M", run_sumsq, &sumsq, 4.0 * (double)count);
    struct ops_cast cast = {count, master, m, true};
    print_bytes("cast to bf16, 256M", run_cast, &cast, 6.0 * (double)count);
    cast = (struct ops_cast){count, v, master, false};
    print_bytes("cast to fp32, 256M", run_cast, &cast, 6.0 * (double)count);
    drop(grad), drop(master), drop(m), drop(v);
}

static void bench_attention(int64_t T, int64_t q_heads, int64_t kv_heads, int64_t document)
{
    int64_t q_count = T * q_heads * D, kv_count = T * kv_heads * D, documents = T / document;
    void *q = filled(q_count, true), *k = filled(kv_count, true), *v = filled(kv_count, true);
    void *o = filled(q_count, true), *d_o = filled(q_count, true), *dq = filled(q_count, false);
    void *dk = filled(kv_count, false), *dv = filled(kv_count, false);
    float *lse = filled(T * q_heads, false), *delta = filled(T * q_heads, false);
    int64_t *ends = mem_new((size_t)documents + 1, sizeof *ends);
    must(ends != NULL);
    for (int64_t s = 0; s <= documents; s++)
        ends[s] = s * document;
    int64_t head = T * D;
    struct ops_attention fwd = {.q_heads = q_heads,
                                .kv_heads = kv_heads,
                                .rows = T,
                                .head_dim = D,
                                .documents = documents,
                                .doc_rows = ends,
                                .scale = 0.088f,
                                .q = {q, head, D},
                                .k = {k, head, D},
                                .v = {v, head, D},
                                .o = {o, head, D},
                                .lse = lse};
    struct ops_attention_delta dot = {.heads = q_heads,
                                      .rows = T,
                                      .head_dim = D,
                                      .o = fwd.o,
                                      .d_o = {d_o, head, D},
                                      .delta = delta};
    struct ops_attention_bwd bwd = {.q_heads = q_heads,
                                    .kv_heads = kv_heads,
                                    .rows = T,
                                    .head_dim = D,
                                    .documents = documents,
                                    .doc_rows = ends,
                                    .scale = 0.088f,
                                    .q = fwd.q,
                                    .k = fwd.k,
                                    .v = fwd.v,
                                    .d_o = {d_o, head, D},
                                    .lse = lse,
                                    .delta = delta,
                                    .dq = {dq, head, D},
                                    .dk = {dk, head, D},
                                    .dv = {dv, head, D}};
    double flops =
        2.0 * (double)documents * (double)document * (double)document * D * (double)q_heads;
    char what[64];
    (void)snprintf(what, sizeof what, "attention %lldK, %lld/%lld, %lld docs", (long long)T / 1024,
                   (long long)q_heads, (long long)kv_heads, (long long)documents);
    print_flops(what, run_attention, &fwd, flops);
    print_bytes("            delta", run_attention_delta, &dot, 4.0 * (double)q_count);
    print_flops("            and backward", run_attention_bwd, &bwd, 2.5 * flops);
    drop(q), drop(k), drop(v), drop(o), drop(d_o), drop(dq), drop(dk), drop(dv), drop(lse);
    drop(delta);
    mem_free(ends);
}

int main(int argc, char **argv)
{
    struct err err = {0};
    int64_t T = argc > 1 ? strtoll(argv[1], NULL, 10) : 16384;
    int rc = device_cuda_open(0, &gpu, &err);
    if (rc == -ERR_UNSUPPORTED) {
        printf("skipped: %s\n", err.text);
        return 77;
    }
    need(rc, &err);
    int64_t bytes = (int64_t)2 << 30;
    struct copy copy = {filled(bytes / 2, true), filled(bytes / 2, true), (size_t)bytes};
    printf("T = %lld\n", (long long)T);
    print_bytes("copy of 2 GiB", run_copy, &copy, 2.0 * (double)bytes);
    drop(copy.to), drop((void *)copy.from);
    bench_norms(T);
    bench_returns(T);
    bench_dropout(T);
    bench_mlp(T);
    bench_losses(1024, VOCAB);
    bench_losses(800, 151936);
    bench_losses(4096, 32000);
    bench_head(T);
    bench_optimizer();
    bench_gemms(T);
    bench_attention(T, 4, 1, T);
    bench_attention(T, 4, 4, T);
    bench_attention(T, 4, 1, T / 16);
    printf("  scratch and workspaces held: %.1f MiB\n",
           (double)gpu->dev->bytes_in_use(gpu) / 1048576);
    return 0; /* the process ends: so does the rest of its memory */
}
