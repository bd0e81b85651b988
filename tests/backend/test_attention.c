/* attention, attention_bwd: against plain fp64 attention and its derivative; many packings, head
 * groupings and layouts; the bits for 1, 2 and 3 threads; finite differences of the reference. */
#include "tests/lib/cmocka.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/rng.h"
#include "tests/lib/on_device.h"

enum { DOCUMENTS_MAX = 600 };

struct shape {
    int64_t q_heads, kv_heads, rows, head_dim;
    int64_t documents;
    int64_t doc_rows[DOCUMENTS_MAX + 1];
    bool head_major; /* (heads, rows, d) with a gap, else (rows, heads, d) */
};

struct tensors {
    struct ops_heads q, k, v, o, d_o, dq, dk, dv;
    float *lse, *delta;
};

struct reference {
    double *o, *lse, *dq, *dk, *dv; /* (heads, rows, d); lse (heads, rows) */
    double *dq_terms, *dk_terms;    /* sums of magnitudes: both may cancel */
};

static int64_t heads_floats(const struct shape *shape, int64_t heads)
{
    return heads * (shape->rows + 2) * (shape->head_dim + 3);
}

static struct ops_heads heads_of(const struct shape *shape, int64_t heads, float *data)
{
    if (shape->head_major)
        return (struct ops_heads){data, (shape->rows + 1) * (shape->head_dim + 3),
                                  shape->head_dim + 3};
    return (struct ops_heads){data, shape->head_dim, heads * shape->head_dim + 1};
}

static float *at(const struct ops_heads *heads, int64_t head, int64_t row)
{
    return (float *)heads->data + head * heads->head_stride + row * heads->row_stride;
}

static void describe(const struct shape *shape, const char *what, char ret_text[static 128])
{
    (void)snprintf(ret_text, 128, "%s of H %d K %d rows %d d %d documents %d", what,
                   (int)shape->q_heads, (int)shape->kv_heads, (int)shape->rows,
                   (int)shape->head_dim, (int)shape->documents);
}

static void close_heads(const struct shape *shape, const char *what, const struct ops_heads *got,
                        const double *want, const double *terms, int64_t heads, double bound)
{
    char text[128];
    int64_t count = heads * shape->rows * shape->head_dim;
    float *flat = testing_poison(count);
    for (int64_t h = 0; h < heads; h++)
        for (int64_t r = 0; r < shape->rows; r++)
            memcpy(flat + (h * shape->rows + r) * shape->head_dim, at(got, h, r),
                   (size_t)shape->head_dim * sizeof(float));
    describe(shape, what, text);
    testing_close(text, flat, want, terms, count, bound);
}

/* A row of one key has a score as its LSE, which may be next to nothing. */
static void close_lse(const struct shape *shape, const float *got, const double *want)
{
    char text[128];
    int64_t count = shape->q_heads * shape->rows;
    double *sizes = testing_zeros(count);
    for (int64_t i = 0; i < count; i++)
        sizes[i] = fmax(1, fabs(want[i]));
    describe(shape, "lse", text);
    testing_close(text, got, want, sizes, count, 1e-6);
}

/* Scores of row r of head h with the keys of its document, and their softmax. */
static void reference_row(const struct shape *shape, const struct tensors *t, double scale,
                          int64_t h, int64_t r, int64_t first, double *p, double *ret_lse)
{
    int64_t kv = h / (shape->q_heads / shape->kv_heads);
    double largest = -INFINITY, sum = 0;
    for (int64_t j = first; j <= r; j++) {
        double score = 0;
        for (int64_t c = 0; c < shape->head_dim; c++)
            score += (double)at(&t->q, h, r)[c] * (double)at(&t->k, kv, j)[c];
        p[j] = score * scale;
        largest = fmax(largest, p[j]);
    }
    for (int64_t j = first; j <= r; j++)
        sum += exp(p[j] - largest);
    *ret_lse = largest + log(sum);
    for (int64_t j = first; j <= r; j++)
        p[j] = exp(p[j] - *ret_lse);
}

static void reference_row_bwd(const struct shape *shape, const struct tensors *t, double scale,
                              int64_t h, int64_t r, int64_t first, const double *p,
                              struct reference *ret)
{
    int64_t d = shape->head_dim, kv = h / (shape->q_heads / shape->kv_heads);
    const float *d_o = at(&t->d_o, h, r);
    double delta = 0, delta_terms = 0;
    for (int64_t c = 0; c < d; c++) {
        double term = (double)d_o[c] * ret->o[(h * shape->rows + r) * d + c];
        delta += term;
        delta_terms += fabs(term);
    }
    for (int64_t j = first; j <= r; j++) {
        double dp = 0, dp_terms = 0;
        for (int64_t c = 0; c < d; c++) {
            double term = (double)d_o[c] * (double)at(&t->v, kv, j)[c];
            dp += term;
            dp_terms += fabs(term);
        }
        double ds = p[j] * (dp - delta) * scale;
        double ds_terms = p[j] * (dp_terms + delta_terms) * scale;
        for (int64_t c = 0; c < d; c++) {
            int64_t query = (h * shape->rows + r) * d + c, key = (kv * shape->rows + j) * d + c;
            double k = (double)at(&t->k, kv, j)[c], q = (double)at(&t->q, h, r)[c];
            ret->dv[key] += p[j] * (double)d_o[c];
            ret->dq[query] += ds * k;
            ret->dq_terms[query] += ds_terms * fabs(k);
            ret->dk[key] += ds * q;
            ret->dk_terms[key] += ds_terms * fabs(q);
        }
    }
}

static struct reference reference_of(const struct shape *shape, const struct tensors *t,
                                     double scale)
{
    int64_t d = shape->head_dim, count = shape->q_heads * shape->rows;
    int64_t kv_count = shape->kv_heads * shape->rows;
    struct reference ret = {.o = testing_zeros(count * d),
                            .lse = testing_zeros(count),
                            .dq = testing_zeros(count * d),
                            .dk = testing_zeros(kv_count * d),
                            .dv = testing_zeros(kv_count * d),
                            .dq_terms = testing_zeros(count * d),
                            .dk_terms = testing_zeros(kv_count * d)};
    double *p = testing_zeros(shape->rows);
    for (int64_t h = 0; h < shape->q_heads; h++)
        for (int64_t s = 0; s < shape->documents; s++)
            for (int64_t r = shape->doc_rows[s]; r < shape->doc_rows[s + 1]; r++) {
                int64_t kv = h / (shape->q_heads / shape->kv_heads), first = shape->doc_rows[s];
                reference_row(shape, t, scale, h, r, first, p, &ret.lse[h * shape->rows + r]);
                for (int64_t j = first; j <= r; j++)
                    for (int64_t c = 0; c < d; c++)
                        ret.o[(h * shape->rows + r) * d + c] += p[j] * (double)at(&t->v, kv, j)[c];
                reference_row_bwd(shape, t, scale, h, r, first, p, &ret);
            }
    return ret;
}

static struct tensors tensors_of(const struct shape *shape)
{
    int64_t q = heads_floats(shape, shape->q_heads), kv = heads_floats(shape, shape->kv_heads);
    int64_t count = shape->q_heads * shape->rows;
    return (struct tensors){
        .q = heads_of(shape, shape->q_heads, testing_normal(q)),
        .k = heads_of(shape, shape->kv_heads, testing_normal(kv)),
        .v = heads_of(shape, shape->kv_heads, testing_normal(kv)),
        .d_o = heads_of(shape, shape->q_heads, testing_normal(q)),
        .o = heads_of(shape, shape->q_heads, testing_poison(q)),
        .dq = heads_of(shape, shape->q_heads, testing_poison(q)),
        .dk = heads_of(shape, shape->kv_heads, testing_poison(kv)),
        .dv = heads_of(shape, shape->kv_heads, testing_poison(kv)),
        .lse = testing_poison(count),
        .delta = testing_poison(count),
    };
}

static void zero_heads(const struct shape *shape, const struct ops_heads *heads, int64_t count)
{
    for (int64_t h = 0; h < count; h++)
        for (int64_t r = 0; r < shape->rows; r++)
            memset(at(heads, h, r), 0, (size_t)shape->head_dim * sizeof(float));
}

static void run(int threads, const struct shape *shape, const struct tensors *t, float scale)
{
    RUN(threads, attention, .q_heads = shape->q_heads, .kv_heads = shape->kv_heads,
        .rows = shape->rows, .head_dim = shape->head_dim, .documents = shape->documents,
        .doc_rows = shape->doc_rows, .scale = scale, .q = t->q, .k = t->k, .v = t->v, .o = t->o,
        .lse = t->lse);
    RUN(threads, attention_delta, .heads = shape->q_heads, .rows = shape->rows,
        .head_dim = shape->head_dim, .o = t->o, .d_o = t->d_o, .delta = t->delta);
    zero_heads(shape, &t->dq, shape->q_heads);
    zero_heads(shape, &t->dk, shape->kv_heads);
    zero_heads(shape, &t->dv, shape->kv_heads);
    RUN(threads, attention_bwd, .q_heads = shape->q_heads, .kv_heads = shape->kv_heads,
        .rows = shape->rows, .head_dim = shape->head_dim, .documents = shape->documents,
        .doc_rows = shape->doc_rows, .scale = scale, .q = t->q, .k = t->k, .v = t->v, .d_o = t->d_o,
        .lse = t->lse, .delta = t->delta, .dq = t->dq, .dk = t->dk, .dv = t->dv);
}

/* Outputs of a second run on other thread counts have the same bits, gaps included. */
static void check_bits(const struct shape *shape, const struct tensors *t, float scale)
{
    int64_t q = heads_floats(shape, shape->q_heads), kv = heads_floats(shape, shape->kv_heads);
    for (int threads = 2; threads <= 3; threads++) {
        struct tensors again = *t;
        again.o.data = testing_poison(q);
        again.dq.data = testing_poison(q);
        again.dk.data = testing_poison(kv);
        again.dv.data = testing_poison(kv);
        again.lse = testing_poison(shape->q_heads * shape->rows);
        run(threads, shape, &again, scale);
        testing_same_bits("o", t->o.data, again.o.data, q * (int64_t)sizeof(float));
        testing_same_bits("lse", t->lse, again.lse,
                          shape->q_heads * shape->rows * (int64_t)sizeof(float));
        testing_same_bits("dq", t->dq.data, again.dq.data, q * (int64_t)sizeof(float));
        testing_same_bits("dk", t->dk.data, again.dk.data, kv * (int64_t)sizeof(float));
        testing_same_bits("dv", t->dv.data, again.dv.data, kv * (int64_t)sizeof(float));
    }
}

static void check_shape(const struct shape *shape)
{
    float scale = 1.0f / sqrtf((float)shape->head_dim);
    struct tensors t = tensors_of(shape);
    run(1, shape, &t, scale);
    struct reference want = reference_of(shape, &t, (double)scale);
    close_heads(shape, "o", &t.o, want.o, NULL, shape->q_heads, 1e-6);
    close_lse(shape, t.lse, want.lse);
    close_heads(shape, "dq", &t.dq, want.dq, want.dq_terms, shape->q_heads, 1e-6);
    close_heads(shape, "dk", &t.dk, want.dk, want.dk_terms, shape->kv_heads, 1e-6);
    close_heads(shape, "dv", &t.dv, want.dv, NULL, shape->kv_heads, 1e-6);
    check_bits(shape, &t, scale);
    (void)testing_free(NULL);
}

static struct shape one_document(int64_t q_heads, int64_t kv_heads, int64_t rows, int64_t d)
{
    return (struct shape){.q_heads = q_heads,
                          .kv_heads = kv_heads,
                          .rows = rows,
                          .head_dim = d,
                          .documents = 1,
                          .doc_rows = {0, rows}};
}

static void test_one_document(void **state)
{
    static const int64_t rows[] = {1, 2, 7, 63, 64, 65, 127, 129, 200, 257, 321};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct shape shape = one_document(4, 2, rows[i], 32);
        shape.head_major = i % 2 == 1;
        check_shape(&shape);
    }
}

static void test_head_groupings_and_sizes(void **state)
{
    static const int64_t heads[][2] = {{1, 1}, {4, 4}, {6, 2}, {5, 1}};
    static const int64_t dims[] = {1, 3, 8, 33, 64, 128, 256};
    for (size_t i = 0; i < sizeof heads / sizeof heads[0]; i++)
        for (size_t j = 0; j < sizeof dims / sizeof dims[0]; j++) {
            struct shape shape = one_document(heads[i][0], heads[i][1], 70, dims[j]);
            shape.head_major = (i + j) % 2 == 1;
            check_shape(&shape);
        }
}

/* Documents of random lengths in [0, longest] over at least `rows` rows. */
static struct shape packed(int64_t rows, int64_t longest, uint64_t stream)
{
    struct shape shape = {.q_heads = 4, .kv_heads = 2, .head_dim = 16};
    while (shape.rows < rows && shape.documents < DOCUMENTS_MAX) {
        shape.rows += (int64_t)rng_below(testing_seed(), RNG_STREAM_TEST + stream,
                                         (uint64_t)shape.documents, (uint64_t)longest + 1);
        shape.doc_rows[++shape.documents] = shape.rows;
    }
    return shape;
}

static void test_packed_documents(void **state)
{
    static const int64_t longest[] = {1, 2, 5, 64, 100, 300, 600};
    for (size_t i = 0; i < sizeof longest / sizeof longest[0]; i++) {
        struct shape shape = packed(longest[i] < 5 ? 150 : 400, longest[i], 1000 + i);
        shape.head_major = i % 2 == 1;
        check_shape(&shape);
    }
}

static void test_documents_of_one_row(void **state)
{
    struct shape shape = one_document(2, 1, 131, 8);
    shape.documents = 131;
    for (int64_t s = 0; s <= 131; s++)
        shape.doc_rows[s] = s;
    check_shape(&shape);
}

/* Large scores must neither overflow nor lose the running maximum. */
static void test_large_scores(void **state)
{
    struct shape shape = one_document(2, 2, 150, 16);
    struct tensors t = tensors_of(&shape);
    run(1, &shape, &t, 20.0f);
    struct reference want = reference_of(&shape, &t, 20.0);
    close_heads(&shape, "o", &t.o, want.o, NULL, 2, 1e-4); /* scores near 300 round to 3e-5 */
    close_lse(&shape, t.lse, want.lse);
    close_heads(&shape, "dv", &t.dv, want.dv, NULL, 2, 1e-4);
}

static void test_nothing(void **state)
{
    struct shape shape = one_document(2, 1, 0, 8);
    struct tensors t = tensors_of(&shape);
    run(2, &shape, &t, 1.0f);
    shape = one_document(2, 1, 0, 8);
    shape.documents = 0;
    run(2, &shape, &t, 1.0f);
    testing_untouched("o", t.o.data, heads_floats(&shape, 2));
}

/* Sum of O * dO of the reference, for finite differences. */
static double reference_loss(const struct shape *shape, const struct tensors *t, double scale)
{
    struct reference got = reference_of(shape, t, scale);
    double loss = 0;
    for (int64_t h = 0; h < shape->q_heads; h++)
        for (int64_t r = 0; r < shape->rows; r++)
            for (int64_t c = 0; c < shape->head_dim; c++)
                loss += got.o[(h * shape->rows + r) * shape->head_dim + c] *
                        (double)at(&t->d_o, h, r)[c];
    return loss;
}

/* The op's gradient against differences of the fp64 reference, so that a derivative that is wrong
 * in both is found. */
static void test_finite_differences(void **state)
{
    struct shape shape = one_document(4, 2, 12, 5);
    shape.documents = 2;
    shape.doc_rows[1] = 5;
    shape.doc_rows[2] = 12;
    struct tensors t = tensors_of(&shape);
    run(1, &shape, &t, 0.5f);
    struct ops_heads *inputs[] = {&t.q, &t.k, &t.v}, *grads[] = {&t.dq, &t.dk, &t.dv};
    for (int i = 0; i < 3; i++)
        for (int64_t h = 0; h < (i == 0 ? 4 : 2); h++)
            for (int64_t r = 0; r < shape.rows; r++)
                for (int64_t c = 0; c < shape.head_dim; c++) {
                    float *x = at(inputs[i], h, r) + c, kept = *x;
                    *x = kept + 0x1p-8f;
                    double step = (double)*x, above = reference_loss(&shape, &t, 0.5);
                    *x = kept - 0x1p-8f;
                    step -= (double)*x;
                    double below = reference_loss(&shape, &t, 0.5);
                    *x = kept;
                    double want = (above - below) / step, got = (double)at(grads[i], h, r)[c];
                    if (!(fabs(got - want) < 2e-4 * (1 + fabs(want))))
                        fail_msg("input %d head %d row %d: %g, difference %g; "
                                 "ITHACA_TEST_SEED=%llu",
                                 i, (int)h, (int)r, got, want, (unsigned long long)testing_seed());
                }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_one_document, testing_free),
        cmocka_unit_test_teardown(test_head_groupings_and_sizes, testing_free),
        cmocka_unit_test_teardown(test_packed_documents, testing_free),
        cmocka_unit_test_teardown(test_documents_of_one_row, testing_free),
        cmocka_unit_test_teardown(test_large_scores, testing_free),
        cmocka_unit_test_teardown(test_nothing, testing_free),
        cmocka_unit_test_teardown(test_finite_differences, testing_free),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
