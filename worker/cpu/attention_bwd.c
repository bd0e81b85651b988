/* attention_bwd: FlashAttention-2's backward (arXiv 2307.08691, algorithm 2) in one pass over tiles
 * of 64 keys by 64 queries: probabilities again from LSE, then dV, dS, dQ and dK, five products a
 * tile.
 *
 * A unit of work is one key/value head with its query heads, on a segment: whole documents,
 * together at least 256 rows, or the keys of a rectangle. Nothing outside the unit touches its dq,
 * dk and dv, which accumulate where they lie, in the order of the tiles: no second copy, no
 * atomics, and the same bits for any thread count. The price: one document uses at most kv_heads
 * threads.
 *
 * 512 rows, 8 heads of 32 over 4, one document: 2.7 ms, 125 GF/s of the pairs needed; in documents
 * of 128 rows 1.1 ms (bench_ops, one core of an EPYC of family 26, OpenBLAS 0.3.21 Cooperlake,
 * 2026-11). Tiles of 32: 3.2 ms, of 128: 2.8. Haswell's kernels, which pack every tile: 9.5 ms. */
#include "common/must.h"
#include "worker/cpu/attention_rows.h"
#include "worker/cpu/device_cpu.h"
#include "worker/cpu/gemm.h"
#include "worker/cpu/ops_cpu.h"
#include "worker/cpu/simd.h"

#include <string.h>

enum { TILE = ATTENTION_TILE, SEGMENT_ROWS = 256 };

struct attention_segment {
    int64_t document; /* first document behind it */
    int64_t row, end; /* its rows */
};

/* The next run of whole documents with at least SEGMENT_ROWS rows, or the rest; false when none is
 * left. Starts from a zeroed segment. */
static bool attention_next_segment(const struct ops_attention_bwd *args,
                                   struct attention_segment *segment)
{
    segment->row = segment->end;
    if (args->kv_rows > 0)
        segment->end = args->kv_rows;
    while (args->kv_rows == 0 && segment->document < args->documents &&
           segment->end - segment->row < SEGMENT_ROWS) {
        segment->document++;
        segment->end = args->doc_rows[segment->document];
    }
    return segment->end > segment->row;
}

/* A tile of queries against a tile of keys. */
struct attention_pair {
    int64_t head, kv_head;
    int64_t row, rows;       /* queries */
    int64_t key, keys;       /* keys */
    int64_t first_key[TILE]; /* that each query sees */
    float *p;                /* (TILE, TILE) scaled scores, then probabilities */
    float *ds;               /* (TILE, TILE) gradient of probabilities, then of unscaled scores */
};

/* Of query i of the tile, in lse and delta. */
static inline int64_t attention_lse_at(const struct ops_attention_bwd *args,
                                       const struct attention_pair *pair, int64_t i)
{
    int64_t stride = args->lse_stride > 0 ? args->lse_stride : args->rows;
    return pair->head * stride + pair->row + i;
}

CPU_CLONES static void attention_probabilities(const struct ops_attention_bwd *args,
                                               const struct attention_pair *pair)
{
    for (int64_t i = 0; i < pair->rows; i++) {
        int64_t begin, end;
        int64_t last_key = args->kv_rows > 0 ? args->kv_rows - 1 : pair->row + i;
        attention_visible(pair->first_key[i], last_key, pair->key, pair->keys, &begin, &end);
        float lse = args->lse[attention_lse_at(args, pair, i)];
        float *p = pair->p + i * TILE;
#pragma omp simd
        for (int64_t j = begin; j < end; j++)
            p[j] = cpu_exp(p[j] - lse);
        for (int64_t j = 0; j < pair->keys && j < begin; j++)
            p[j] = 0;
        for (int64_t j = end > 0 ? end : 0; j < pair->keys; j++)
            p[j] = 0;
    }
}

CPU_CLONES static void attention_dscores(const struct ops_attention_bwd *args,
                                         const struct attention_pair *pair)
{
    for (int64_t i = 0; i < pair->rows; i++) {
        float delta = args->delta[attention_lse_at(args, pair, i)];
        const float *p = pair->p + i * TILE;
        float *ds = pair->ds + i * TILE;
#pragma omp simd
        for (int64_t j = 0; j < pair->keys; j++)
            ds[j] = p[j] * (ds[j] - delta) * args->scale;
    }
}

/* c [rows of the tile, d] += op(tile) * x, the tile transposed for sums over queries. */
static void attention_accumulate(const struct ops_attention_bwd *args,
                                 const struct attention_pair *pair, const float *tile,
                                 bool over_queries, const float *x, int64_t x_stride, float *c,
                                 int64_t c_stride)
{
    cpu_sgemm(&(struct cpu_sgemm){
        .m = over_queries ? pair->keys : pair->rows,
        .n = args->head_dim,
        .k = over_queries ? pair->rows : pair->keys,
        .alpha = 1.0f,
        .a = tile,
        .lda = TILE,
        .trans_a = over_queries,
        .b = x,
        .ldb = x_stride,
        .beta = 1.0f,
        .c = c,
        .ldc = c_stride,
    });
}

/* tile (rows, keys) = alpha * rows of x * rows of y, transposed */
static void attention_scores(const struct ops_attention_bwd *args,
                             const struct attention_pair *pair, float alpha,
                             const struct ops_heads *x, const struct ops_heads *y, float *tile)
{
    cpu_sgemm(&(struct cpu_sgemm){
        .m = pair->rows,
        .n = pair->keys,
        .k = args->head_dim,
        .alpha = alpha,
        .a = attention_at(x, pair->head, pair->row),
        .lda = x->row_stride,
        .b = attention_at(y, pair->kv_head, pair->key),
        .ldb = y->row_stride,
        .trans_b = true,
        .c = tile,
        .ldc = TILE,
    });
}

static void attention_pair_bwd(const struct ops_attention_bwd *args,
                               const struct attention_pair *pair)
{
    const float *q = attention_at(&args->q, pair->head, pair->row);
    const float *d_o = attention_at(&args->d_o, pair->head, pair->row);
    const float *k = attention_at(&args->k, pair->kv_head, pair->key);
    attention_scores(args, pair, args->scale, &args->q, &args->k, pair->p);
    attention_probabilities(args, pair);
    attention_accumulate(args, pair, pair->p, true, d_o, args->d_o.row_stride,
                         attention_at(&args->dv, pair->kv_head, pair->key), args->dv.row_stride);
    attention_scores(args, pair, 1.0f, &args->d_o, &args->v, pair->ds);
    attention_dscores(args, pair);
    attention_accumulate(args, pair, pair->ds, false, k, args->k.row_stride,
                         attention_at(&args->dq, pair->head, pair->row), args->dq.row_stride);
    attention_accumulate(args, pair, pair->ds, true, q, args->q.row_stride,
                         attention_at(&args->dk, pair->kv_head, pair->key), args->dk.row_stride);
}

static void attention_unit_bwd(const struct ops_attention_bwd *args, int64_t kv_head,
                               const struct attention_segment *segment, float *scratch)
{
    int64_t group = args->q_heads / args->kv_heads;
    struct attention_pair pair = {
        .kv_head = kv_head, .p = scratch, .ds = scratch + (ptrdiff_t)TILE * TILE};
    for (pair.key = segment->row; pair.key < segment->end; pair.key += TILE) {
        int64_t left = segment->end - pair.key, first = 0, end = args->rows;
        pair.keys = left < TILE ? left : TILE;
        if (args->kv_rows == 0) {
            first = pair.key;
            end = args->doc_rows[attention_document(args->doc_rows, args->documents,
                                                    pair.key + pair.keys - 1) +
                                 1]; /* no later query sees these keys */
        }
        for (pair.row = first; pair.row < end; pair.row += TILE) {
            pair.rows = end - pair.row < TILE ? end - pair.row : TILE;
            if (args->kv_rows == 0)
                attention_first_keys(args->doc_rows, args->documents, pair.row, pair.rows,
                                     pair.first_key);
            for (pair.head = kv_head * group; pair.head < (kv_head + 1) * group; pair.head++)
                attention_pair_bwd(args, &pair);
        }
    }
}

int cpu_attention_bwd(struct device *device, struct stream *stream,
                      const struct ops_attention_bwd *args, struct err *err)
{
    (void)stream, (void)err;
    if (args->q_heads == 0 || args->rows == 0)
        return 0;
    must(args->kv_heads > 0 && args->q_heads % args->kv_heads == 0);
    must(args->kv_rows > 0 ||
         (args->doc_rows[0] == 0 && args->doc_rows[args->documents] == args->rows));
    omp_set_num_threads(device_cpu_threads(device));
    int64_t next = 0; /* unit to take, shared by the threads */
#pragma omp parallel num_threads(device_cpu_threads(device))
    {
        /* Every thread walks all units and works on those it draws. */
        int64_t mine = -1, unit = 0;
        struct attention_segment segment = {0};
        while (attention_next_segment(args, &segment))
            for (int64_t kv_head = 0; kv_head < args->kv_heads; kv_head++, unit++) {
                if (mine < unit) {
#pragma omp atomic capture
                    mine = next++;
                }
                if (mine == unit)
                    attention_unit_bwd(args, kv_head, &segment, device_cpu_scratch(device));
            }
    }
    return 0;
}
