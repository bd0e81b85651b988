/* attention_shape: batches of ever-changing lengths make few shapes; heads are read where they lie
 * unless their strides are a longer batch's; nothing is rounded up to a span that cuDNN gets wrong.
 */
#include "tests/lib/cmocka.h"
#include "worker/attention_shape.h"

#include <stdio.h>
#include <string.h>

#include "tests/lib/testing.h"

enum { D = 128, BATCHES = 1000, DOCUMENTS_MAX = 512, SHAPES_MAX = 256 };

/* Documents of a batch, and its heads: in pieces of their own, else beside each other. */
struct batch {
    int64_t q_heads, kv_heads, rows, documents, doc_rows[DOCUMENTS_MAX + 1];
    int64_t whole; /* rows of the batch that these are a part of */
    bool pieces;
};

static struct ops_heads heads_of(const struct batch *b, int64_t count)
{
    if (b->pieces)
        return (struct ops_heads){NULL, b->whole * D, D};
    return (struct ops_heads){NULL, D, count * D};
}

static struct attention_shape shape_of(const struct batch *b, int64_t kv_rows, bool back)
{
    struct attention_shape shape;
    struct ops_heads q = heads_of(b, b->q_heads), kv = heads_of(b, b->kv_heads);
    struct ops_attention forward = {.q_heads = b->q_heads,
                                    .kv_heads = b->kv_heads,
                                    .rows = b->rows,
                                    .head_dim = D,
                                    .kv_rows = kv_rows,
                                    .documents = b->documents,
                                    .doc_rows = b->doc_rows,
                                    .q = q,
                                    .k = kv,
                                    .v = kv,
                                    .o = q};
    struct ops_attention_bwd backward = {.q_heads = b->q_heads,
                                         .kv_heads = b->kv_heads,
                                         .rows = b->rows,
                                         .head_dim = D,
                                         .kv_rows = kv_rows,
                                         .documents = b->documents,
                                         .doc_rows = b->doc_rows,
                                         .q = q,
                                         .k = kv,
                                         .v = kv,
                                         .d_o = q};
    if (back)
        attention_shape_backward(&shape, &backward);
    else
        attention_shape_forward(&shape, &forward);
    return shape;
}

/* Documents of up to `longest` rows while there is room for one; at least one. */
static void fill(struct batch *b, int64_t seq_len, int64_t longest)
{
    b->rows = b->documents = 0;
    for (;;) {
        int64_t length = 1 + *testing_below(1, longest);
        if (b->documents == DOCUMENTS_MAX || b->rows + length > seq_len)
            break;
        b->doc_rows[++b->documents] = b->rows += length;
    }
    b->whole = b->rows;
}

/* How many shapes batches have. */
static int count_shapes(struct batch *b, int64_t seq_len, int64_t longest, bool back)
{
    static struct attention_shape shapes[SHAPES_MAX];
    int count = 0;
    for (int i = 0; i < BATCHES; i++) {
        fill(b, seq_len, longest);
        struct attention_shape shape = shape_of(b, 0, back);
        int at = 0;
        while (at < count &&
               memcmp(&shapes[at], &shape, offsetof(struct attention_shape, units)) != 0)
            at++;
        assert_true(at < SHAPES_MAX);
        shapes[at] = shape;
        count += at == count;
        (void)testing_free(NULL);
    }
    printf("%s of %d batches of %lld tokens, documents up to %lld: %d shapes\n",
           back ? "backward" : "forward", BATCHES, (long long)seq_len, (long long)longest, count);
    return count;
}

static void test_few_shapes(void **state)
{
    static const int64_t lengths[][2] = {{8192, 2000}, {8192, 8192}, {32768, 6000}, {32768, 32768}};
    static const int64_t heads[][2] = {{1, 1}, {8, 2}, {8, 1}};
    for (int i = 0; i < 48; i++) {
        struct batch b = {
            .q_heads = heads[i % 3][0], .kv_heads = heads[i % 3][1], .pieces = i / 3 % 2 == 1};
        const int64_t *length = lengths[i / 12]; /* some are multiples of 256, and alone */
        assert_in_range(count_shapes(&b, length[0], length[1], i / 6 % 2 == 1), 2, 40);
    }
}

/* Parts of a document of some length and of one of another are alike. */
static void test_parts(void **state)
{
    struct batch b = {
        .q_heads = 8, .kv_heads = 2, .rows = 1024, .documents = 1, .doc_rows = {0, 1024}};
    for (int i = 0; i < 12; i++) {
        int64_t keys = i / 2 % 3 * 1024; /* 0: its own */
        b.pieces = i / 6 == 0;
        b.whole = 5000;
        struct attention_shape one = shape_of(&b, keys, i % 2 == 0);
        b.whole = 7001;
        struct attention_shape other = shape_of(&b, keys, i % 2 == 0);
        assert_memory_equal(&one, &other, sizeof one);
        assert_int_equal(one.slots, 0);
        assert_int_equal(one.q_rows, 1024);
    }
}

/* Nothing is copied that a plan can read: the whole of a batch, or heads beside each other. */
static void test_in_place(void **state)
{
    struct batch b = {.q_heads = 8,
                      .kv_heads = 2,
                      .rows = 1024,
                      .documents = 1,
                      .whole = 1024,
                      .doc_rows = {0, 1024}};
    for (int i = 0; i < 4; i++) {
        b.pieces = i / 2 == 0;
        b.whole = b.pieces ? 1024 : 5000;
        struct ops_heads q = heads_of(&b, 8), kv = heads_of(&b, 2);
        struct attention_shape shape = shape_of(&b, 0, i % 2 == 0);
        assert_true(attention_shape_alike(8, &q, &shape.q));
        assert_true(attention_shape_alike(2, &kv, &shape.k));
        assert_true(attention_shape_alike(2, &kv, &shape.v));
        b.whole = 1025;
        shape = shape_of(&b, 0, i % 2 == 0);
        q = heads_of(&b, 8);
        assert_true(attention_shape_alike(8, &q, &shape.q) == !b.pieces);
    }
}

/* A power of two of rows, unless it spans 2^31 elements. */
static void test_span(void **state)
{
    struct batch b = {.q_heads = 64,
                      .kv_heads = 64,
                      .rows = 200000,
                      .documents = 2,
                      .whole = 200000,
                      .doc_rows = {0, 140000, 200000}};
    for (int i = 0; i < 4; i++) {
        b.pieces = i / 2 == 0;
        struct attention_shape shape = shape_of(&b, 0, i % 2 == 0);
        assert_int_equal(shape.slots, 2);
        assert_int_equal(shape.q_rows, 140000);
        assert_true(shape.q_rows * shape.q.row_stride < ATTENTION_SPAN_MAX);
    }
    b = (struct batch){.q_heads = 1,
                       .kv_heads = 1,
                       .rows = 200000,
                       .documents = 2,
                       .whole = 200000,
                       .doc_rows = {0, 140000, 200000}};
    assert_int_equal(shape_of(&b, 0, false).q_rows, 1 << 18);
}

/* Documents that are not there take no place. */
static void test_empty(void **state)
{
    struct batch b = {.q_heads = 1,
                      .kv_heads = 1,
                      .rows = 300,
                      .documents = 9,
                      .whole = 300,
                      .doc_rows = {0, 0, 0, 100, 100, 100, 100, 300, 300, 300}};
    struct attention_shape shape = shape_of(&b, 0, false);
    assert_int_equal(shape.slots, 2);
    assert_int_equal(shape.q_rows, 256);
    b.rows = b.doc_rows[7] = b.doc_rows[8] = b.doc_rows[9] = 7;
    b.doc_rows[3] = b.doc_rows[4] = b.doc_rows[5] = b.doc_rows[6] = 0;
    shape = shape_of(&b, 0, false);
    assert_int_equal(shape.slots, 0); /* few rows, in truth one document: a kernel's of ours */
    assert_true(attention_shape_is_small(shape.q_rows, shape.kv_rows));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_few_shapes), cmocka_unit_test(test_parts),
        cmocka_unit_test(test_in_place),   cmocka_unit_test(test_span),
        cmocka_unit_test(test_empty),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
