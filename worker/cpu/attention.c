/* attention: FlashAttention-2's forward (arXiv 2307.08691, algorithm 1) on tiles of 64 queries by
 * 256 keys. A tile of queries is one unit of work: it walks the keys from the first row of its
 * first row's document to its own last row, with a running maximum and sum for each query, and
 * accumulates into O where O lies. Both products are sgemm on the calling thread; the softmax is a
 * vectorised loop over the columns that the row sees, so that masks (the diagonal, documents) cost
 * nothing inside. Units are the same for any thread count, hence the bits. Tiles do not stop at
 * documents: a thousand documents of one row are sixteen tiles.
 *
 * 512 rows, 8 heads of 32 over 4, one document: 1.5 ms, 88 GF/s of the pairs needed; in documents
 * of 128 rows 0.62 ms (bench_ops, one core of an EPYC of family 26, OpenBLAS 0.3.21 Cooperlake,
 * 2026-11, best of runs beside other load). 64 keys a tile: 1.7 ms, for the reductions of each row;
 * 32 queries 2.2 ms, 128 queries no better. */
#include "common/must.h"
#include "worker/cpu/attention_rows.h"
#include "worker/cpu/device_cpu.h"
#include "worker/cpu/gemm.h"
#include "worker/cpu/ops_cpu.h"
#include "worker/cpu/simd.h"

#include <math.h>
#include <string.h>

enum { TILE = ATTENTION_TILE, KEYS = 256 };

/* Running state of a tile of queries. */
struct attention_state {
    int64_t row, rows;       /* first query and number of queries */
    int64_t first_key[TILE]; /* that each query sees */
    int64_t kv_rows;         /* of a rectangle; 0: causal */
    float largest[TILE];     /* scaled score met so far */
    float sum[TILE];         /* of exp(score - largest) */
    float *scores;           /* (TILE, KEYS): scores, then probabilities */
    float *o;                /* first row of O */
    int64_t o_stride;
    int64_t head_dim;
};

/* Scores of keys [key, key + keys) to probabilities, and O's rows to the new maximum. */
CPU_CLONES static void attention_softmax(struct attention_state *state, int64_t key, int64_t keys)
{
    for (int64_t i = 0; i < state->rows; i++) {
        int64_t begin, end;
        int64_t last_key = state->kv_rows > 0 ? state->kv_rows - 1 : state->row + i;
        attention_visible(state->first_key[i], last_key, key, keys, &begin, &end);
        float *scores = state->scores + i * KEYS;
        float *o = state->o + i * state->o_stride;
        float before = state->largest[i];
        float largest = cpu_max(scores + begin, end - begin, before);
        float sum = 0;
#pragma omp simd reduction(+ : sum)
        for (int64_t j = begin; j < end; j++) {
            float p = cpu_exp(scores[j] - largest);
            scores[j] = p;
            sum += p;
        }
        for (int64_t j = 0; j < keys && j < begin; j++)
            scores[j] = 0;
        for (int64_t j = end > 0 ? end : 0; j < keys; j++)
            scores[j] = 0;
        if (largest == before) {
            state->sum[i] += sum;
            continue;
        }
        float shrink = cpu_exp(before - largest);
        state->largest[i] = largest;
        state->sum[i] = state->sum[i] * shrink + sum;
#pragma omp simd
        for (int64_t c = 0; c < state->head_dim; c++)
            o[c] *= shrink;
    }
}

CPU_CLONES static void attention_finish(const struct attention_state *state, float *lse)
{
    for (int64_t i = 0; i < state->rows; i++) {
        float *o = state->o + i * state->o_stride;
        float factor = 1.0f / state->sum[i];
#pragma omp simd
        for (int64_t c = 0; c < state->head_dim; c++)
            o[c] *= factor;
        lse[i] = state->largest[i] + logf(state->sum[i]);
    }
}

static void attention_keys(const struct ops_attention *args, int64_t head,
                           struct attention_state *state, int64_t key, int64_t keys)
{
    int64_t kv_head = head / (args->q_heads / args->kv_heads);
    cpu_sgemm(&(struct cpu_sgemm){
        .m = state->rows,
        .n = keys,
        .k = args->head_dim,
        .alpha = args->scale,
        .a = attention_at(&args->q, head, state->row),
        .lda = args->q.row_stride,
        .b = attention_at(&args->k, kv_head, key),
        .ldb = args->k.row_stride,
        .trans_b = true,
        .c = state->scores,
        .ldc = KEYS,
    });
    attention_softmax(state, key, keys);
    cpu_sgemm(&(struct cpu_sgemm){
        .m = state->rows,
        .n = args->head_dim,
        .k = keys,
        .alpha = 1.0f,
        .a = state->scores,
        .lda = KEYS,
        .b = attention_at(&args->v, kv_head, key),
        .ldb = args->v.row_stride,
        .beta = 1.0f,
        .c = state->o,
        .ldc = state->o_stride,
    });
}

static void attention_tile(const struct ops_attention *args, int64_t head, int64_t row,
                           float *scratch)
{
    struct attention_state state = {
        .row = row,
        .rows = args->rows - row < TILE ? args->rows - row : TILE,
        .kv_rows = args->kv_rows,
        .scores = scratch,
        .o = attention_at(&args->o, head, row),
        .o_stride = args->o.row_stride,
        .head_dim = args->head_dim,
    };
    if (args->kv_rows == 0)
        attention_first_keys(args->doc_rows, args->documents, row, state.rows, state.first_key);
    for (int64_t i = 0; i < state.rows; i++) {
        state.largest[i] = -INFINITY;
        memset(state.o + i * state.o_stride, 0, (size_t)args->head_dim * sizeof(float));
    }
    int64_t end = args->kv_rows > 0 ? args->kv_rows : row + state.rows;
    for (int64_t key = state.first_key[0]; key < end; key += KEYS)
        attention_keys(args, head, &state, key, end - key < KEYS ? end - key : KEYS);
    int64_t lse_stride = args->lse_stride > 0 ? args->lse_stride : args->rows;
    attention_finish(&state, args->lse + head * lse_stride + row);
}

int cpu_attention(struct device *device, struct stream *stream, const struct ops_attention *args,
                  struct err *err)
{
    (void)stream, (void)err;
    if (args->q_heads == 0 || args->rows == 0)
        return 0;
    must(args->kv_heads > 0 && args->q_heads % args->kv_heads == 0);
    must(args->kv_rows > 0 ||
         (args->doc_rows[0] == 0 && args->doc_rows[args->documents] == args->rows));
    omp_set_num_threads(device_cpu_threads(device));
    /* Late tiles have the most keys: they go first, so that no thread ends with a long one. */
    int64_t tiles = (args->rows + TILE - 1) / TILE;
#pragma omp parallel for collapse(2) num_threads(device_cpu_threads(device)) schedule(dynamic, 1)
    for (int64_t back = 0; back < tiles; back++)
        for (int64_t head = 0; head < args->q_heads; head++)
            attention_tile(args, head, (tiles - 1 - back) * TILE, device_cpu_scratch(device));
    return 0;
}
