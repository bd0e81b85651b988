/* cuda attention of documents so long that it goes in parts (common/mem_split.h): rows of O, LSE
 * and dQ, and keys' dK and dV, against fp64 sums over everything that they see: on both sides of
 * where parts meet, at both ends of documents, ragged lengths, short documents between. */
#include "tests/lib/cmocka.h"

#include <inttypes.h>
#include <stdio.h>

#include "common/mem_split.h"
#include "tests/lib/on_cuda.h"

enum { SAMPLES_MAX = 64, D_MAX = 128 };
static const double bound = 6e-3; /* as in test_cuda_attention.c */
static const float scale = 0.25f;

struct scene {
    int64_t q_heads, kv_heads, head_dim, rows;
    int64_t documents, doc_rows[8];
    struct pair q, k, v, o, d_o, lse, delta, dq, dk, dv; /* head-major */
    float *lse_all, *delta_all;                          /* the GPU's, of all rows */
    int64_t samples[SAMPLES_MAX];                        /* rows that are looked at */
    int sample_count;
};

static void sample(struct scene *s, int64_t row)
{
    must(s->sample_count < SAMPLES_MAX);
    if (row >= 0 && row < s->rows)
        s->samples[s->sample_count++] = row;
}

/* Ends of documents, and where parts meet in them. */
static void choose(struct scene *s)
{
    const int64_t steps[] = {MEM_SPLIT_PART, 2 * MEM_SPLIT_PART, MEM_SPLIT_BWD_PART};
    for (int64_t i = 0; i < s->documents; i++) {
        int64_t length = s->doc_rows[i + 1] - s->doc_rows[i];
        sample(s, s->doc_rows[i]);
        sample(s, s->doc_rows[i + 1] - 1);
        for (int z = 0; z < 3 && length > steps[z]; z++) {
            sample(s, s->doc_rows[i] + steps[z] - 1);
            sample(s, s->doc_rows[i] + steps[z]);
        }
    }
}

static void document_of(const struct scene *s, int64_t row, int64_t *ret_first, int64_t *ret_end)
{
    int64_t i = 0;
    while (s->doc_rows[i + 1] <= row)
        i++;
    *ret_first = s->doc_rows[i];
    *ret_end = s->doc_rows[i + 1];
}

static const float *line(const struct scene *s, const struct pair *x, int64_t head, int64_t row)
{
    return x->cpu + (head * s->rows + row) * s->head_dim;
}

static double dot(const struct scene *s, const float *a, const float *b)
{
    double sum = 0;
    for (int64_t i = 0; i < s->head_dim; i++)
        sum += (double)a[i] * (double)b[i];
    return sum;
}

/* *ret += factor * x */
static void add(const struct scene *s, double *ret, double factor, const float *x)
{
    for (int64_t i = 0; i < s->head_dim; i++)
        ret[i] += factor * (double)x[i];
}

/* O, LSE and dQ of a row of a query head. */
static void row_reference(const struct scene *s, int64_t head, int64_t row, double *o, double *lse,
                          double *dq)
{
    int64_t first, end, kv = head / (s->q_heads / s->kv_heads);
    document_of(s, row, &first, &end);
    const float *q = line(s, &s->q, head, row), *d_o = line(s, &s->d_o, head, row);
    double largest = -INFINITY, sum = 0, delta = (double)s->delta_all[head * s->rows + row];
    for (int64_t key = first; key <= row; key++) {
        double score = (double)scale * dot(s, q, line(s, &s->k, kv, key));
        double larger = fmax(largest, score);
        sum = sum * exp(largest - larger) + exp(score - larger);
        largest = larger;
    }
    *lse = largest + log(sum);
    for (int64_t key = first; key <= row; key++) {
        const float *k = line(s, &s->k, kv, key), *v = line(s, &s->v, kv, key);
        double p = exp((double)scale * dot(s, q, k) - *lse);
        add(s, o, p, v);
        add(s, dq, p * (dot(s, d_o, v) - delta) * (double)scale, k);
    }
}

/* dK and dV of a key of a K/V head, by the GPU's LSE. */
static void key_reference(const struct scene *s, int64_t kv, int64_t key, double *dk, double *dv)
{
    int64_t first, end, group = s->q_heads / s->kv_heads;
    document_of(s, key, &first, &end);
    const float *k = line(s, &s->k, kv, key), *v = line(s, &s->v, kv, key);
    for (int64_t head = kv * group; head < (kv + 1) * group; head++)
        for (int64_t row = key; row < end; row++) {
            const float *q = line(s, &s->q, head, row), *d_o = line(s, &s->d_o, head, row);
            int64_t at = head * s->rows + row;
            double p = exp((double)scale * dot(s, q, k) - (double)s->lse_all[at]);
            add(s, dv, p, d_o);
            add(s, dk, p * (dot(s, d_o, v) - (double)s->delta_all[at]) * (double)scale, q);
        }
}

static void run(struct scene *s)
{
    int64_t d = s->head_dim, head = s->rows * d;
    struct ops_attention fwd = {.q_heads = s->q_heads,
                                .kv_heads = s->kv_heads,
                                .rows = s->rows,
                                .head_dim = d,
                                .documents = s->documents,
                                .doc_rows = s->doc_rows,
                                .scale = scale,
                                .q = {s->q.gpu, head, d},
                                .k = {s->k.gpu, head, d},
                                .v = {s->v.gpu, head, d},
                                .o = {s->o.gpu, head, d},
                                .lse = s->lse.gpu};
    struct ops_attention_delta delta = {.heads = s->q_heads,
                                        .rows = s->rows,
                                        .head_dim = d,
                                        .o = fwd.o,
                                        .d_o = {s->d_o.gpu, head, d},
                                        .delta = s->delta.gpu};
    struct ops_attention_bwd bwd = {.q_heads = s->q_heads,
                                    .kv_heads = s->kv_heads,
                                    .rows = s->rows,
                                    .head_dim = d,
                                    .documents = s->documents,
                                    .doc_rows = s->doc_rows,
                                    .scale = scale,
                                    .q = fwd.q,
                                    .k = fwd.k,
                                    .v = fwd.v,
                                    .d_o = delta.d_o,
                                    .lse = s->lse.gpu,
                                    .delta = s->delta.gpu,
                                    .dq = {s->dq.gpu, head, d},
                                    .dk = {s->dk.gpu, head, d},
                                    .dv = {s->dv.gpu, head, d}};
    CHECK(on_cuda_gpu->ops->attention(on_cuda_gpu, NULL, &fwd, err));
    CHECK(on_cuda_gpu->ops->attention_delta(on_cuda_gpu, NULL, &delta, err));
    CHECK(on_cuda_gpu->ops->attention_bwd(on_cuda_gpu, NULL, &bwd, err));
    s->lse_all = pair_download(&s->lse);
    s->delta_all = pair_download(&s->delta);
}

/* (rows, d) of normal numbers, the same rows again after some thousand: they take long to make. */
static struct pair normal_rows(int64_t rows, int64_t d)
{
    enum { APART = 7919 };
    const float *first = testing_normal(APART * d);
    float *all = (float *)testing_zeros(rows * d / 2 + 1);
    for (int64_t row = 0; row < rows; row++)
        memcpy(all + row * d, first + row % APART * d, (size_t)d * sizeof *all);
    return pair_of(all, rows * d, true);
}

static struct pair zeros(int64_t count)
{
    return pair_of(testing_zeros(count / 2 + 1), count, false);
}

/* Values of the samples, one after the other. */
struct looked {
    float *got;
    double *want;
};

static struct looked looked_new(int64_t count)
{
    return (struct looked){testing_poison(count), testing_zeros(count)};
}

static void look(const struct scene *s, const struct looked *looked, int64_t at, const float *all,
                 int64_t line)
{
    memcpy(looked->got + at * s->head_dim, all + line * s->head_dim,
           (size_t)s->head_dim * sizeof *all);
}

static void check_rows(const struct scene *s)
{
    int64_t count = s->q_heads * s->sample_count, d = s->head_dim;
    struct looked o = looked_new(count * d), dq = looked_new(count * d), lse = looked_new(count);
    const float *o_all = pair_download(&s->o), *dq_all = pair_download(&s->dq);
#pragma omp parallel for schedule(dynamic)
    for (int64_t at = 0; at < count; at++) {
        int64_t head = at / s->sample_count, row = s->samples[at % s->sample_count];
        row_reference(s, head, row, o.want + at * d, lse.want + at, dq.want + at * d);
        look(s, &o, at, o_all, head * s->rows + row);
        look(s, &dq, at, dq_all, head * s->rows + row);
        lse.got[at] = s->lse_all[head * s->rows + row];
    }
    testing_close("o", o.got, o.want, NULL, count * d, bound);
    testing_close("lse", lse.got, lse.want, NULL, count, 1e-5);
    testing_close("dq", dq.got, dq.want, NULL, count * d, bound);
}

static void check_keys(const struct scene *s)
{
    int64_t count = s->kv_heads * s->sample_count, d = s->head_dim;
    struct looked dk = looked_new(count * d), dv = looked_new(count * d);
    const float *dk_all = pair_download(&s->dk), *dv_all = pair_download(&s->dv);
#pragma omp parallel for schedule(dynamic)
    for (int64_t at = 0; at < count; at++) {
        int64_t kv = at / s->sample_count, key = s->samples[at % s->sample_count];
        key_reference(s, kv, key, dk.want + at * d, dv.want + at * d);
        look(s, &dk, at, dk_all, kv * s->rows + key);
        look(s, &dv, at, dv_all, kv * s->rows + key);
    }
    testing_close("dk", dk.got, dk.want, NULL, count * d, bound);
    testing_close("dv", dv.got, dv.want, NULL, count * d, bound);
}

static void check(struct scene s)
{
    s.rows = s.doc_rows[s.documents];
    int64_t q = s.q_heads * s.rows * s.head_dim, kv = s.kv_heads * s.rows * s.head_dim;
    int64_t q_rows = s.q_heads * s.rows, kv_rows = s.kv_heads * s.rows, d = s.head_dim;
    s.q = normal_rows(q_rows, d), s.k = normal_rows(kv_rows, d), s.v = normal_rows(kv_rows, d);
    s.d_o = normal_rows(q_rows, d), s.o = pair_poison(q, true);
    s.lse = pair_poison(s.q_heads * s.rows, false), s.delta = zeros(s.q_heads * s.rows);
    s.dq = zeros(q), s.dk = zeros(kv), s.dv = zeros(kv);
    choose(&s);
    run(&s);
    check_rows(&s);
    check_keys(&s);
}

static void test_one_head(void **state)
{
    check((struct scene){.q_heads = 1,
                         .kv_heads = 1,
                         .head_dim = D_MAX,
                         .documents = 1,
                         .doc_rows = {0, MEM_SPLIT_BWD_LONGEST + 4465}});
}

static void test_whole_parts(void **state)
{
    check((struct scene){.q_heads = 1,
                         .kv_heads = 1,
                         .head_dim = 64,
                         .documents = 1,
                         .doc_rows = {0, MEM_SPLIT_BWD_LONGEST + MEM_SPLIT_BWD_PART}});
}

static void test_grouped(void **state)
{
    check((struct scene){.q_heads = 4,
                         .kv_heads = 1,
                         .head_dim = D_MAX,
                         .documents = 1,
                         .doc_rows = {0, MEM_SPLIT_LONGEST + 5}});
}

static void test_documents(void **state)
{
    enum { LONG = MEM_SPLIT_BWD_LONGEST + 1000 };
    check((struct scene){.q_heads = 2,
                         .kv_heads = 2,
                         .head_dim = 64,
                         .documents = 5,
                         .doc_rows = {0, 700, 701, LONG, LONG + 300, LONG + 5000}});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_one_head, on_cuda_free),
        cmocka_unit_test_teardown(test_whole_parts, on_cuda_free),
        cmocka_unit_test_teardown(test_grouped, on_cuda_free),
        cmocka_unit_test_teardown(test_documents, on_cuda_free),
    };
    if (!on_cuda_open())
        return ON_CUDA_SKIPPED;
    cmocka_set_test_filter(getenv("ITHACA_TEST_FILTER"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
