/* attention_split: attention cut into parts is attention, forward and backward: one document and
 * several, long ones between short ones, rectangles, grouped heads, both layouts, wide LSE. */
#include "tests/lib/cmocka.h"

#include <stdio.h>
#include <string.h>

#include "tests/lib/on_device.h"
#include "worker/attention_split.h"

#include <inttypes.h>

enum { D = 12, THREADS = 2, SPARE = 3 /* of LSE's rows */ };

struct scene {
    int64_t q_heads, kv_heads, rows, kv_rows; /* kv_rows 0: causal */
    int64_t documents, doc_rows[8];
    bool head_major;
};

static double *wide(const float *x, int64_t count)
{
    double *y = testing_zeros(count);
    for (int64_t i = 0; i < count; i++)
        y[i] = (double)x[i];
    return y;
}

static struct ops_heads laid(const struct scene *s, int64_t heads, int64_t rows, float *data)
{
    if (s->head_major)
        return (struct ops_heads){data, rows * D, D};
    return (struct ops_heads){data, D, heads * D};
}

static void close_in(const struct scene *s, const struct mem_split *sizes, const char *what,
                     const float *got, const float *want, int64_t count)
{
    char text[192];
    (void)snprintf(text, sizeof text,
                   "%s of %" PRId64 "/%" PRId64 " heads, %" PRId64 " rows, %" PRId64
                   " documents, rectangle of %" PRId64 ", in parts of %" PRId64 " by %" PRId64,
                   what, s->q_heads, s->kv_heads, s->rows, s->documents, s->kv_rows, sizes->rows,
                   sizes->keys);
    testing_close(text, got, wide(want, count), NULL, count, 3e-6);
}

static void check(const struct scene *s, const struct mem_split *sizes)
{
    struct device *device = on_device(THREADS);
    struct err err = {0};
    int64_t kv_rows = s->kv_rows > 0 ? s->kv_rows : s->rows, stride = s->rows + SPARE;
    int64_t q = s->q_heads * s->rows * D, kv = s->kv_heads * kv_rows * D,
            lses = s->q_heads * stride;
    float *o[2] = {testing_poison(q), testing_poison(q)};
    float *lse[2] = {testing_normal(lses), NULL}, *dq[2] = {testing_normal(q), NULL};
    float *dk[2] = {testing_normal(kv), NULL}, *dv[2] = {testing_normal(kv), NULL};
    lse[1] = testing_copy(lse[0], lses), dq[1] = testing_copy(dq[0], q);
    dk[1] = testing_copy(dk[0], kv), dv[1] = testing_copy(dv[0], kv);
    struct ops_attention args = {.q_heads = s->q_heads,
                                 .kv_heads = s->kv_heads,
                                 .rows = s->rows,
                                 .head_dim = D,
                                 .kv_rows = s->kv_rows,
                                 .documents = s->documents,
                                 .doc_rows = s->doc_rows,
                                 .scale = 0.4f,
                                 .q = laid(s, s->q_heads, s->rows, testing_normal(q)),
                                 .k = laid(s, s->kv_heads, kv_rows, testing_normal(kv)),
                                 .v = laid(s, s->kv_heads, kv_rows, testing_normal(kv)),
                                 .lse_stride = stride};
    struct ops_attention_bwd bwd = {.q_heads = s->q_heads,
                                    .kv_heads = s->kv_heads,
                                    .rows = s->rows,
                                    .head_dim = D,
                                    .kv_rows = s->kv_rows,
                                    .documents = s->documents,
                                    .doc_rows = s->doc_rows,
                                    .scale = 0.4f,
                                    .q = args.q,
                                    .k = args.k,
                                    .v = args.v,
                                    .d_o = laid(s, s->q_heads, s->rows, testing_normal(q)),
                                    .delta = testing_normal(lses),
                                    .lse_stride = stride};
    int64_t bytes = mem_split_bytes(sizes, s->q_heads, D, (int64_t)sizeof(float));
    float *scratch = testing_poison(bytes / 4 + 1), *guard = scratch + bytes / 4;
    for (int i = 0; i < 2; i++) {
        args.o = laid(s, s->q_heads, s->rows, o[i]), args.lse = lse[i];
        assert_int_equal(i == 0 ? device->ops->attention(device, NULL, &args, &err)
                                : attention_split(device, NULL, &args, sizes, scratch, &err),
                         0);
        bwd.lse = lse[0];
        bwd.dq = laid(s, s->q_heads, s->rows, dq[i]);
        bwd.dk = laid(s, s->kv_heads, kv_rows, dk[i]);
        bwd.dv = laid(s, s->kv_heads, kv_rows, dv[i]);
        assert_int_equal(i == 0 ? device->ops->attention_bwd(device, NULL, &bwd, &err)
                                : attention_split_bwd(device, NULL, &bwd, sizes, &err),
                         0);
    }
    testing_untouched("what lies behind the scratch", guard, 1);
    close_in(s, sizes, "o", o[1], o[0], q);
    close_in(s, sizes, "lse", lse[1], lse[0], lses);
    close_in(s, sizes, "dq", dq[1], dq[0], q);
    close_in(s, sizes, "dk", dk[1], dk[0], kv);
    close_in(s, sizes, "dv", dv[1], dv[0], kv);
    (void)testing_free(NULL);
}

static const struct mem_split sizes[] = {{32, 32, 8}, {32, 16, 32}, {40, 24, 40}, {7, 7, 7}};
enum { SIZES = sizeof sizes / sizeof sizes[0] };

static void test_documents(void **state)
{
    static const struct {
        int64_t documents, doc_rows[8];
    } packings[] = {{1, {0, 200}},
                    {1, {0, 33}},
                    {2, {0, 150, 157}},               /* and padding */
                    {5, {0, 10, 30, 130, 131, 231}},  /* long ones, before and behind */
                    {6, {0, 0, 90, 90, 95, 95, 101}}, /* empty ones */
                    {3, {0, 20, 40, 60}}};
    static const int64_t heads[][2] = {{1, 1}, {4, 2}, {3, 3}};
    for (size_t i = 0; i < sizeof packings / sizeof packings[0]; i++)
        for (int h = 0; h < 3; h++)
            for (int z = 0; z < SIZES; z++) {
                struct scene s = {.q_heads = heads[h][0],
                                  .kv_heads = heads[h][1],
                                  .documents = packings[i].documents,
                                  .rows = packings[i].doc_rows[packings[i].documents],
                                  .head_major = (h + z) % 2 == 0};
                memcpy(s.doc_rows, packings[i].doc_rows, sizeof s.doc_rows);
                check(&s, &sizes[z]);
            }
}

static void test_rectangles(void **state)
{
    static const int64_t shapes[][2] = {{100, 90}, {5, 200}, {200, 5}, {32, 33}, {41, 40}};
    for (int i = 0; i < 5; i++)
        for (int z = 0; z < SIZES; z++)
            check(&(struct scene){.q_heads = i % 2 == 0 ? 4 : 1,
                                  .kv_heads = 1,
                                  .rows = shapes[i][0],
                                  .kv_rows = shapes[i][1],
                                  .head_major = i % 3 == 0},
                  &sizes[z]);
}

static void test_what_is_cut(void **state)
{
    const struct mem_split at = {.longest = 10, .rows = 5, .keys = 5};
    assert_false(attention_split_wants(&at, 10, 0));
    assert_true(attention_split_wants(&at, 11, 0));
    assert_false(attention_split_wants(&at, 10, 10));
    assert_true(attention_split_wants(&at, 11, 10));
    assert_true(attention_split_wants(&at, 10, 11));
}

/* Calls that would be made: cuDNN makes a plan for each of their shapes, half a second each. */
enum { SHAPES_MAX = 16 };
static struct {
    int64_t rows[SHAPES_MAX], keys[SHAPES_MAX], stride[SHAPES_MAX], lse[SHAPES_MAX];
    int shapes;
    int64_t calls, pairs, longest;
} made;

static void make(int64_t rows, int64_t keys, int64_t stride, int64_t lse)
{
    int i = 0;
    while (i < made.shapes && (made.rows[i] != rows || made.keys[i] != keys ||
                               made.stride[i] != stride || made.lse[i] != lse))
        i++;
    assert_true(i < SHAPES_MAX);
    made.rows[i] = rows, made.keys[i] = keys, made.stride[i] = stride, made.lse[i] = lse;
    made.shapes += i == made.shapes;
    made.calls++;
    made.pairs += keys > 0 ? rows * keys : rows * (rows + 1) / 2;
    made.longest = rows > made.longest ? rows : made.longest;
    made.longest = keys > made.longest ? keys : made.longest;
}

static int make_attention(struct device *device, struct stream *stream,
                          const struct ops_attention *a, struct err *err)
{
    (void)device, (void)stream, (void)err;
    make(a->rows, a->kv_rows, a->o.head_stride, a->lse_stride);
    return 0;
}

static int make_attention_bwd(struct device *device, struct stream *stream,
                              const struct ops_attention_bwd *a, struct err *err)
{
    (void)device, (void)stream, (void)err;
    make(a->rows, a->kv_rows, a->dq.head_stride, a->lse_stride);
    return 0;
}

#define NOTHING(op)                                                                               \
    static int no_##op(struct device *device, struct stream *stream, const struct ops_##op *args, \
                       struct err *err)                                                           \
    {                                                                                             \
        (void)device, (void)stream, (void)args, (void)err;                                        \
        return 0;                                                                                 \
    }
NOTHING(cast)
NOTHING(attention_merge)
NOTHING(unpack)

/* One document of `rows` rows, as a stage has it. */
static void count_calls(int64_t rows, bool back)
{
    const struct ops ops = {.attention = make_attention,
                            .attention_bwd = make_attention_bwd,
                            .cast = no_cast,
                            .attention_merge = no_attention_merge,
                            .unpack = no_unpack};
    struct device device = {.dev = on_device(THREADS)->dev, .ops = &ops};
    const struct mem_split at = back ? mem_split_backward() : mem_split_forward();
    const int64_t ends[] = {0, rows}, d = 128;
    const struct ops_heads heads = {NULL, rows * d, d};
    struct err err = {0};
    struct ops_attention args = {.q_heads = 1,
                                 .kv_heads = 1,
                                 .rows = rows,
                                 .head_dim = d,
                                 .documents = 1,
                                 .doc_rows = ends,
                                 .q = heads,
                                 .k = heads,
                                 .v = heads,
                                 .o = heads};
    struct ops_attention_bwd bwd = {.q_heads = 1,
                                    .kv_heads = 1,
                                    .rows = rows,
                                    .head_dim = d,
                                    .documents = 1,
                                    .doc_rows = ends,
                                    .q = heads,
                                    .k = heads,
                                    .v = heads,
                                    .d_o = heads,
                                    .dq = heads,
                                    .dk = heads,
                                    .dv = heads};
    memset(&made, 0, sizeof made);
    assert_int_equal(back ? attention_split_bwd(&device, NULL, &bwd, &at, &err)
                          : attention_split(&device, NULL, &args, &at, NULL, &err),
                     0);
    printf("%s of %" PRId64 " rows: %" PRId64 " calls of %d shapes\n",
           back ? "backward" : "forward", rows, made.calls, made.shapes);
    assert_int_equal(made.pairs, rows * (rows + 1) / 2); /* each pair once */
    assert_true(made.longest <= at.longest);
    assert_true(made.shapes <= 5);
}

static void test_few_shapes(void **state)
{
    static const int64_t lengths[] = {65544,   131072,  262144, 524288, 1048576,
                                      3145728, 5242880, 262152, 999992};
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        count_calls(lengths[i], false);
        if (lengths[i] > MEM_SPLIT_BWD_LONGEST)
            count_calls(lengths[i], true);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_documents, testing_free),
        cmocka_unit_test_teardown(test_rectangles, testing_free),
        cmocka_unit_test_teardown(test_what_is_cut, testing_free),
        cmocka_unit_test_teardown(test_few_shapes, testing_free),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
