/* ops: the operations a training step is made of, as one table per device.
 *
 * Dimensions, used everywhere: T tokens (rows), h hidden, H query heads, K key/value heads, d head
 * size, f MLP width, V vocabulary, S rows of the whole sequence. [act] is the device's activation
 * type (fp32 on the CPU, bf16 on CUDA); everything else names its type. Norms, softmax, SwiGLU and
 * RoPE compute in fp32 inside; sums over many elements state their order. Extents and strides are
 * int64 and count elements. Each argument says = (written), += (accumulated into) or in. Pointers
 * of one call do not overlap unless "may alias" says so. An extent of 0 is legal and does nothing
 * (gemm with k = 0: the empty sum, so that C is zero, or bias, or what it was).
 * Calls are ordered on the stream and return at once on CUDA; an error is one of launching.
 * On the CPU every op is deterministic for a given thread count, and, where it says "any thread
 * count", for all.
 *
 * Adding an op: row here, cpu/<op>.c, a test row in tests/backend, cuda/<op>.cu: in that order. */
#pragma once
#include "common/err.h"
#include "worker/device.h"

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* C = alpha * op(A) * op(B) (+ C when accumulate) (+ bias on every row), row-major, `batch` times.
 * op(A) is [m, k], op(B) [k, n], C [m, n]. trans_a: A is stored [k, m]. Leading dimensions are row
 * lengths of the stored matrices. fp32 accumulation. */
struct ops_gemm {
    int64_t m, n, k;
    const void *a; /* in [act] */
    int64_t lda;
    bool trans_a;
    const void *b; /* in [act] */
    int64_t ldb;
    bool trans_b;
    void *c; /* = or += ; [act], or fp32 when c_f32 */
    int64_t ldc;
    bool c_f32;      /* weight gradients and logits */
    bool accumulate; /* += */
    float alpha;
    const void *bias; /* in [act] (n), or NULL */
    int64_t batch;    /* 1 for a single product */
    int64_t stride_a, stride_b,
        stride_c;        /* between matrices of the batch; 0 repeats the matrix (not C) */
    int64_t stride_bias; /* between biases of the batch; 0 repeats the bias */
};

/* out[t] = table[ids[t]]; ids in [0, V). */
struct ops_embed {
    int64_t tokens, vocab, width;
    const int32_t *ids; /* in (T) */
    const void *table;  /* in [act] (V, h) */
    void *out;          /* = [act] (T, h) */
};
/* dtable[ids[t]] += dout[t], in the order of t: any thread count. */
struct ops_embed_bwd {
    int64_t tokens, vocab, width;
    const int32_t *ids; /* in (T) */
    const void *dout;   /* in [act] (T, h) */
    float *dtable;      /* += (V, h) */
};

/* y = x * rstd * weight, rstd = 1 / sqrt(mean(x^2) + eps), row by row. With `residual`: x = x +
 * residual first, the sum written to sum. qk-norm: rows = T*H, width = d. */
struct ops_rmsnorm {
    int64_t rows, width;
    float eps;
    const void *x;        /* in [act] (rows, width) */
    const void *residual; /* in [act] (rows, width) or NULL */
    void *sum;          /* = [act] x + residual; required with residual; may alias x or residual */
    const void *weight; /* in [act] (width) */
    void *y;            /* = [act] (rows, width); may alias x only without residual */
    float *rstd;        /* = (rows) or NULL */
};
/* dx = rstd*w*dy - x*rstd^3*mean(x*w*dy) (+ dx when accumulate); dweight += sum over rows of
 * dy*x*rstd. The sum over rows runs in blocks of 64 rows added in order: any thread count. */
struct ops_rmsnorm_bwd {
    int64_t rows, width;
    float eps;
    const void *x;      /* in [act] (rows, width): the norm's input */
    const void *weight; /* in [act] (width) */
    const float *rstd;  /* in (rows) or NULL: recomputed */
    const void *dy;     /* in [act] (rows, width) */
    void *dx;           /* = or += [act] (rows, width); may alias dy when not accumulating */
    bool accumulate;
    uint64_t dither; /* key of what dx is rounded by, where [act] is bf16: common/bf16_dither.h;
                        element i is of pair i / 2. 0: to the nearest */
    float *dweight;  /* += (width), or NULL */
};

/* Rotates pairs (i, i + d/2) of each head by positions[t] * inv_freq[i] (Hugging Face's layout), in
 * place. Angles and their range reduction in fp64: at 1M positions fp32 products are off by 0.05
 * rad. inverse: by minus the angle. */
struct ops_rope {
    int64_t heads, tokens, head_dim;
    int64_t head_stride, token_stride; /* of x */
    void *x;                           /* = [act] in place */
    const int32_t *positions;          /* in (T) */
    const float *inv_freq;             /* in (d/2) */
    float scale;                       /* of cos and sin (yarn's attention factor); 1 otherwise */
    bool inverse;
};

/* A tensor of heads, addressed x + head*head_stride + row*row_stride, the last dimension (d)
 * contiguous. */
struct ops_heads {
    void *data;
    int64_t head_stride, row_stride;
};

/* Attention without a score matrix (FlashAttention-2, arXiv 2307.08691): tiles of keys with a
 * running maximum and sum. Query head j uses key/value head j / (q_heads / kv_heads). softmax scale
 * is `scale`.
 *   causal, over packed documents (kv_rows 0): row r of document s (doc_rows[s] <= r <
 *     doc_rows[s+1]) sees the keys of its document up to row r;
 *   a rectangle (kv_rows > 0; doc_rows unused): every row sees all kv_rows keys. */
struct ops_attention {
    int64_t q_heads, kv_heads, rows, head_dim;
    int64_t kv_rows; /* of a rectangle; 0: causal */
    int64_t documents;
    const int64_t
        *doc_rows; /* in HOST memory (documents + 1): first rows; doc_rows[documents] = rows */
    float scale;
    struct ops_heads q, k, v; /* in [act] (q_heads | kv_heads, rows | kv_rows, d) */
    struct ops_heads o;       /* = [act] (q_heads, rows, d) */
    float *lse;               /* = (q_heads, rows): natural log of the sum of exponentials */
    int64_t lse_stride;       /* between heads of lse; 0: rows */
};
/* Gradients from LSE and delta (probabilities again, by tiles). lse and delta are the row's over
 * all its keys, also where this call sees a part of them. */
struct ops_attention_bwd {
    int64_t q_heads, kv_heads, rows, head_dim;
    int64_t kv_rows; /* of a rectangle; 0: causal */
    int64_t documents;
    const int64_t *doc_rows; /* in HOST memory */
    float scale;
    struct ops_heads q, k, v, d_o; /* in [act] */
    const float *lse, *delta;      /* in (q_heads, rows) */
    int64_t lse_stride;            /* between heads of lse and of delta; 0: rows */
    struct ops_heads dq;           /* += fp32 (q_heads, rows, d) */
    struct ops_heads dk, dv;       /* += fp32 (kv_heads, rows | kv_rows, d) */
};
/* delta = sum over d of O*dO: what attention_bwd takes from O. */
struct ops_attention_delta {
    int64_t heads, rows, head_dim;
    struct ops_heads o, d_o; /* in [act] (heads, rows, d) */
    float *delta;            /* = (heads, rows) */
    int64_t delta_stride;    /* between heads of delta; 0: rows */
};
/* Softmax over two sets of keys from softmax over each (arXiv 2310.01889): with L = log(e^lse +
 * e^lse_part), o = o*e^(lse-L) + part*e^(lse_part-L); lse = L. A side that saw no key has lse -inf
 * and counts for nothing; where neither did, o and lse stay. */
struct ops_attention_merge {
    int64_t heads, rows, head_dim;
    struct ops_heads part;   /* in [act] (heads, rows, d) */
    const float *lse_part;   /* in (heads, rows) */
    int64_t lse_part_stride; /* between heads; 0: rows */
    struct ops_heads o;      /* += fp32 (heads, rows, d) */
    float *lse;              /* += (heads, rows) */
    int64_t lse_stride;      /* between heads; 0: rows */
};

/* Heads to another layout: out = the sum over `copies` of in, added in fp32 in their order. */
struct ops_unpack {
    int64_t heads, rows, head_dim;
    int64_t copies;      /* 1: a copy */
    int64_t copy_stride; /* of in, between copies of a head */
    struct ops_heads in; /* in [act], or fp32 when in_f32: (heads, rows, d) */
    bool in_f32;
    struct ops_heads out; /* = [act] (heads, rows, d) */
};

/* out = silu(gate) * up */
struct ops_swiglu {
    int64_t count;
    const void *gate, *up; /* in [act] (count) */
    void *out;             /* = [act]; may alias gate or up */
};
struct ops_swiglu_bwd {
    int64_t count;
    const void *gate, *up; /* in [act] */
    const void *dout;      /* in [act] */
    void *dgate, *dup;     /* = [act]; dgate may alias gate, dup may alias up */
};

/* Cross-entropy of one tile of rows. target < 0: untrained, contributes nothing and gets zero
 * gradient. loss_sum += sum of -log p(target), correct += rows whose largest logit (lowest index on
 * ties) is the target; sums run in the order of rows in fp64: any thread count. dlogits = (softmax
 * - onehot) * scale; scale = 1/N of the step. */
struct ops_cross_entropy {
    int64_t rows, vocab;
    const float *logits;    /* in (rows, V) */
    const int32_t *targets; /* in (rows) */
    float scale;
    void *dlogits; /* = [act] (rows, V), or NULL (evaluation); may alias logits when act is fp32 */
    double *loss_sum; /* += device memory (1) */
    int64_t *correct; /* += device memory (1) */
    float *row_loss;  /* = (rows) each row's loss, 0 without a target; or NULL */
};

/* AdamW (arXiv 1711.05101) on an fp32 shard; gradients are multiplied by grad_scale (clipping)
 * first. m = b1*m + (1-b1)*g; v = b2*v + (1-b2)*g*g; w -= lr*(m/(1-b1^step) / (sqrt(v/(1-b2^step))
 * + eps) + wd*w). */
struct ops_adamw {
    int64_t count;
    float *master, *m, *v;   /* += (count) */
    const float *grad;       /* in (count) */
    const float *grad_scale; /* in device memory (1) */
    float lr, beta1, beta2, eps, weight_decay;
    int64_t step; /* 1-based */
};

/* *out += sum of squares, fp64, in blocks of 4096 elements added in order: any thread count. */
struct ops_sumsq {
    int64_t count;
    const float *x; /* in (count) */
    double *out;    /* += device memory (1) */
};

/* out[n] += sum over rows of x[t][n]: bias gradients. Blocks of 64 rows added in order: any thread
 * count. */
struct ops_colsum {
    int64_t rows, width;
    const void *x; /* in [act] (rows, width) */
    float *out;    /* += (width) */
};

/* out = a + b elementwise. */
struct ops_add {
    int64_t count;
    const void *a, *b; /* in [act], or fp32 when f32 */
    void *out;         /* = the same; may alias a or b */
    bool f32;
};

/* Between [act] and fp32: to_act ? (act)out = (fp32)in : (fp32)out = (act)in. */
struct ops_cast {
    int64_t count;
    const void *in;
    void *out; /* =; may alias in when act is fp32 */
    bool to_act;
};

/* Dropout: an element is 0 with probability below / 2^16, else it is divided by 1 less that. Which
 * are dropped is a function of key, row number and feature alone: element i of head j is feature f
 * = feature + j*feature_stride + i of `width`, and has 16 bits, f % 8 of Philox block number *
 * ceil(width / 8) + f / 8 (common/rng_philox.h; seed key, stream 0; the lower half of a word comes
 * first); it is dropped when they are less than below = ops_dropout_below(rate). */
struct ops_dropout {
    int64_t heads, rows, head_dim;
    struct ops_heads in;    /* in [act] (heads, rows, d) */
    struct ops_heads out;   /* = or += [act] (heads, rows, d); may alias in */
    bool accumulate;        /* += */
    const int64_t *numbers; /* in (rows) 0 or above */
    int64_t feature, feature_stride, width;
    uint64_t key;
    float rate; /* in (0, 1) */
};
enum { OPS_DROPOUT_FEATURES = 8, OPS_DROPOUT_ONE = 1 << 16 }; /* of a block; a rate of 1 */

/* The rate in parts of 2^16, to the nearest; never none, never all. */
static inline uint32_t ops_dropout_below(float rate)
{
    uint32_t below = (uint32_t)((double)rate * OPS_DROPOUT_ONE + 0.5);
    return below < 1 ? 1 : below < OPS_DROPOUT_ONE ? below : OPS_DROPOUT_ONE - 1;
}

/* What a kept element is multiplied by. */
static inline float ops_dropout_gain(float rate)
{
    return (float)OPS_DROPOUT_ONE / (float)(OPS_DROPOUT_ONE - ops_dropout_below(rate));
}

#define OPS_TABLE(X)   \
    X(gemm)            \
    X(embed)           \
    X(embed_bwd)       \
    X(rmsnorm)         \
    X(rmsnorm_bwd)     \
    X(rope)            \
    X(attention)       \
    X(attention_bwd)   \
    X(attention_delta) \
    X(attention_merge) \
    X(unpack)          \
    X(dropout)         \
    X(swiglu)          \
    X(swiglu_bwd)      \
    X(cross_entropy)   \
    X(adamw)           \
    X(sumsq)           \
    X(colsum)          \
    X(add)             \
    X(cast)

struct ops {
#define X(name)                                                                                \
    int (*name)(struct device * device, struct stream * stream, const struct ops_##name *args, \
                struct err *err);
    OPS_TABLE(X)
#undef X
};

#ifdef __cplusplus
}
#endif
