/* attention over rectangles, attention_delta, attention_merge, unpack: the operations with which
 * attention is put together from parts. A causal attention cut at a row, the parts merged, and the
 * gradients of the parts added, against attention in one piece. */
#include "tests/lib/cmocka.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tests/lib/on_device.h"

enum { H = 4, K = 2, D = 12 };
static const float SCALE = 0.4f;

/* Token-major tensors of `rows` rows, from `row` on. */
static struct ops_heads heads_at(float *data, int64_t heads, int64_t row)
{
    return (struct ops_heads){data + row * heads * D, D, heads * D};
}

static double *wide(const float *x, int64_t count)
{
    double *y = testing_zeros(count);
    for (int64_t i = 0; i < count; i++)
        y[i] = (double)x[i];
    return y;
}

struct parts {
    int64_t rows, cut, documents;
    int64_t doc_rows[4];
    float *q, *k, *v, *d_o, *o, *lse, *delta, *dq, *dk, *dv;
};

static struct parts parts_of(int64_t rows, int64_t cut, const float *const inputs[4])
{
    int64_t q = rows * H * D, kv = rows * K * D;
    struct parts p = {.rows = rows, .cut = cut, .documents = 1, .doc_rows = {0, rows}};
    p.q = testing_copy(inputs[0], q);
    p.k = testing_copy(inputs[1], kv);
    p.v = testing_copy(inputs[2], kv);
    p.d_o = testing_copy(inputs[3], q);
    p.o = testing_poison(q);
    p.lse = testing_poison(H * rows);
    p.delta = testing_poison(H * rows);
    p.dq = testing_copy(p.q, q);
    p.dk = testing_copy(p.k, kv);
    p.dv = testing_copy(p.v, kv);
    memset(p.dq, 0, (size_t)q * sizeof(float));
    memset(p.dk, 0, (size_t)kv * sizeof(float));
    memset(p.dv, 0, (size_t)kv * sizeof(float));
    return p;
}

/* Rows [row, row + rows) against keys from `key`: causal, or kv_rows of them. */
static void forward(struct parts *p, int threads, int64_t row, int64_t rows, int64_t key,
                    int64_t kv_rows, float *o, float *lse)
{
    const int64_t doc_rows[2] = {0, rows};
    RUN(threads, attention, .q_heads = H, .kv_heads = K, .rows = rows, .kv_rows = kv_rows,
        .head_dim = D, .documents = kv_rows > 0 ? 0 : 1, .doc_rows = kv_rows > 0 ? NULL : doc_rows,
        .scale = SCALE, .q = heads_at(p->q, H, row), .k = heads_at(p->k, K, key),
        .v = heads_at(p->v, K, key), .o = heads_at(o, H, row), .lse = lse + row,
        .lse_stride = p->rows);
}

static void backward(struct parts *p, int threads, int64_t row, int64_t rows, int64_t key,
                     int64_t kv_rows)
{
    const int64_t doc_rows[2] = {0, rows};
    RUN(threads, attention_bwd, .q_heads = H, .kv_heads = K, .rows = rows, .kv_rows = kv_rows,
        .head_dim = D, .documents = kv_rows > 0 ? 0 : 1, .doc_rows = kv_rows > 0 ? NULL : doc_rows,
        .scale = SCALE, .q = heads_at(p->q, H, row), .k = heads_at(p->k, K, key),
        .v = heads_at(p->v, K, key), .d_o = heads_at(p->d_o, H, row), .lse = p->lse + row,
        .delta = p->delta + row, .lse_stride = p->rows, .dq = heads_at(p->dq, H, row),
        .dk = heads_at(p->dk, K, key), .dv = heads_at(p->dv, K, key));
}

static void delta(struct parts *p, int threads)
{
    RUN(threads, attention_delta, .heads = H, .rows = p->rows, .head_dim = D,
        .o = heads_at(p->o, H, 0), .d_o = heads_at(p->d_o, H, 0), .delta = p->delta);
}

static void whole(struct parts *p)
{
    forward(p, 1, 0, p->rows, 0, 0, p->o, p->lse);
    delta(p, 1);
    backward(p, 1, 0, p->rows, 0, 0);
}

/* The rows after the cut first see the keys after it, then all before it as a rectangle. */
static void in_parts(struct parts *p, int threads)
{
    int64_t after = p->rows - p->cut;
    float *part = testing_poison(p->rows * H * D), *lse_part = testing_poison(H * p->rows);
    forward(p, threads, 0, p->cut, 0, 0, p->o, p->lse);
    forward(p, threads, p->cut, after, p->cut, 0, p->o, p->lse);
    forward(p, threads, p->cut, after, 0, p->cut, part, lse_part);
    RUN(threads, attention_merge, .heads = H, .rows = after, .head_dim = D,
        .part = heads_at(part, H, p->cut), .lse_part = lse_part + p->cut,
        .lse_part_stride = p->rows, .o = heads_at(p->o, H, p->cut), .lse = p->lse + p->cut,
        .lse_stride = p->rows);
    delta(p, threads);
    backward(p, threads, 0, p->cut, 0, 0);
    backward(p, threads, p->cut, after, p->cut, 0);
    backward(p, threads, p->cut, after, 0, p->cut);
}

static double dot(const float *a, const float *b, bool magnitudes)
{
    double sum = 0;
    for (int c = 0; c < D; c++) {
        double term = (double)a[c] * (double)b[c];
        sum += magnitudes ? fabs(term) : term;
    }
    return sum;
}

/* Adds up the magnitudes of what dq and dk are sums of: they cancel where a row sees one key. */
static void add_terms(const struct parts *p, double *dq_terms, double *dk_terms)
{
    for (int64_t h = 0; h < H; h++)
        for (int64_t r = 0; r < p->rows; r++) {
            int64_t query = (r * H + h) * D;
            double delta = dot(p->d_o + query, p->o + query, true);
            for (int64_t j = 0; j <= r; j++) {
                int64_t key = (j * K + h / (H / K)) * D;
                double score = dot(p->q + query, p->k + key, false) * (double)SCALE;
                double size = exp(score - (double)p->lse[h * p->rows + r]) * (double)SCALE *
                              (dot(p->d_o + query, p->v + key, true) + delta);
                for (int c = 0; c < D; c++) {
                    dq_terms[query + c] += size * fabs((double)p->k[key + c]);
                    dk_terms[key + c] += size * fabs((double)p->q[query + c]);
                }
            }
        }
}

static void test_parts_make_the_whole(void **state)
{
    static const int64_t shapes[][2] = {{2, 1},    {65, 1},    {65, 64},
                                        {130, 65}, {700, 300}, {300, 299}};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        int64_t rows = shapes[i][0], q = rows * H * D, kv = rows * K * D;
        const float *inputs[4] = {testing_normal(q), testing_normal(kv), testing_normal(kv),
                                  testing_normal(q)};
        struct parts want = parts_of(rows, shapes[i][1], inputs), first = {0};
        double *dq_terms = testing_zeros(q), *dk_terms = testing_zeros(kv);
        whole(&want);
        add_terms(&want, dq_terms, dk_terms);
        for (int threads = 1; threads <= 3; threads++) {
            struct parts got = parts_of(rows, shapes[i][1], inputs);
            in_parts(&got, threads);
            testing_close("o", got.o, wide(want.o, q), NULL, q, 1e-6);
            testing_close("lse", got.lse, wide(want.lse, H * rows), NULL, H * rows, 1e-6);
            testing_close("dq", got.dq, wide(want.dq, q), dq_terms, q, 1e-7);
            testing_close("dk", got.dk, wide(want.dk, kv), dk_terms, kv, 1e-7);
            testing_close("dv", got.dv, wide(want.dv, kv), NULL, kv, 3e-6);
            if (threads == 1)
                first = got;
            testing_same_bits("o", first.o, got.o, q * 4);
            testing_same_bits("dk", first.dk, got.dk, kv * 4);
        }
        (void)testing_free(NULL);
    }
}

/* A side without keys has LSE -inf; merging it changes nothing and makes no NaN, whatever lies in
 * its O; a side that is all there is is taken as it is. */
static void test_rows_without_keys(void **state)
{
    enum { ROWS = 5 };
    int64_t count = ROWS * H * D;
    float *o = testing_normal(count), *part = testing_normal(count);
    float *lse = testing_normal(H * ROWS), *lse_part = testing_normal(H * ROWS);
    for (int64_t h = 0; h < H; h++) {
        lse_part[h * ROWS + 1] = -INFINITY; /* nothing new */
        lse[h * ROWS + 2] = -INFINITY;      /* nothing so far */
        lse[h * ROWS + 3] = lse_part[h * ROWS + 3] = -INFINITY;
        lse_part[h * ROWS + 4] = 1000; /* far above: no overflow */
        for (int64_t c = 0; c < D; c++) {
            part[(1 * H + h) * D + c] = NAN;
            o[(2 * H + h) * D + c] = 0;
            part[(3 * H + h) * D + c] = NAN;
        }
    }
    float *o_before = testing_copy(o, count), *lse_before = testing_copy(lse, H * ROWS);
    RUN(2, attention_merge, .heads = H, .rows = ROWS, .head_dim = D, .part = {part, D, H * D},
        .lse_part = lse_part, .o = {o, D, H * D}, .lse = lse);
    int64_t row = (int64_t)H * D;
    testing_same_bits("row 1", o + row, o_before + row, row * 4);
    testing_same_bits("row 3", o + 3 * row, o_before + 3 * row, row * 4);
    testing_same_bits("row 2", o + 2 * row, part + 2 * row, row * 4);
    testing_same_bits("row 4", o + 4 * row, part + 4 * row, row * 4);
    for (int64_t h = 0; h < H; h++) {
        assert_true(lse[h * ROWS + 1] == lse_before[h * ROWS + 1]);
        assert_true(lse[h * ROWS + 2] == lse_part[h * ROWS + 2]);
        assert_true(isinf(lse[h * ROWS + 3]) && lse[h * ROWS + 3] < 0);
        assert_true(lse[h * ROWS + 4] == 1000);
    }
    for (int64_t i = 0; i < count; i++)
        assert_true(isfinite(o[i]));
}

/* (heads, copies, rows, d) to every second head of (rows, heads, d), copies added in order. */
static void test_unpack(void **state)
{
    for (int64_t rows = 0; rows < 40; rows += 13)
        for (int64_t copies = 1; copies <= 3; copies++) {
            int64_t row = 2 * H * D;
            float *in = testing_normal(H * copies * rows * D), *out = testing_poison(rows * row);
            RUN(2, unpack, .heads = H, .rows = rows, .head_dim = D, .copies = copies,
                .copy_stride = rows * D, .in = {in, copies * rows * D, D}, .in_f32 = copies > 1,
                .out = {out, 2 * D, row});
            for (int64_t i = 0; i < rows * row; i++) {
                int64_t r = i / row, head = i % row / D, c = i % D;
                if (head % 2 == 1) {
                    assert_true(isnan(out[i]));
                    continue;
                }
                float want = 0;
                for (int64_t copy = 0; copy < copies; copy++)
                    want += in[((head / 2 * copies + copy) * rows + r) * D + c];
                assert_true(out[i] == want);
            }
        }
}

static void test_delta(void **state)
{
    for (int64_t rows = 0; rows < 200; rows += 67) {
        int64_t count = rows * H * D;
        float *o = testing_normal(count), *d_o = testing_normal(count);
        float *got = testing_poison(H * rows), *apart = testing_poison(H * (rows + 3));
        double *want = testing_zeros(H * rows), *terms = testing_zeros(H * rows);
        RUN(3, attention_delta, .heads = H, .rows = rows, .head_dim = D, .o = {o, D, H * D},
            .d_o = {d_o, D, H * D}, .delta = got);
        RUN(2, attention_delta, .heads = H, .rows = rows, .head_dim = D, .o = {o, D, H * D},
            .d_o = {d_o, D, H * D}, .delta = apart, .delta_stride = rows + 3);
        for (int64_t h = 0; h < H; h++)
            testing_same_bits("heads apart", apart + h * (rows + 3), got + h * rows,
                              rows * (int64_t)sizeof *got);
        for (int64_t i = 0; i < count; i++) {
            double term = (double)o[i] * (double)d_o[i];
            want[i % (H * D) / D * rows + i / (H * D)] += term;
            terms[i % (H * D) / D * rows + i / (H * D)] += fabs(term);
        }
        testing_close("delta", got, want, terms, H * rows, 1e-6);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_parts_make_the_whole, testing_free),
        cmocka_unit_test_teardown(test_rows_without_keys, testing_free),
        cmocka_unit_test_teardown(test_unpack, testing_free),
        cmocka_unit_test_teardown(test_delta, testing_free),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
