/* pack: every example once, nothing too long, deterministic, as tight as best fit is; the order of
 * epochs. */
#include "common/pack.h"

#include "common/clock.h"
#include "common/mem.h"
#include "common/rng.h"
#include "tests/lib/cmocka.h"

static void check(const int64_t *lengths, int64_t examples, int64_t seq_len,
                  const struct pack *pack)
{
    CLEANUP(mem_free_ptr) uint8_t *seen = mem_new((size_t)examples, 1);
    assert_int_equal(pack->first[0], 0);
    assert_int_equal(pack->first[pack->sequences], examples);
    int64_t lowest = -1;
    for (int64_t s = 0; s < pack->sequences; s++) {
        int64_t tokens = 0;
        assert_true(pack->first[s] < pack->first[s + 1]);
        assert_true(pack->members[pack->first[s]] > lowest); /* numbered by lowest example */
        lowest = pack->members[pack->first[s]];
        for (int64_t i = pack->first[s]; i < pack->first[s + 1]; i++) {
            int64_t e = pack->members[i];
            assert_true(i == pack->first[s] || e > pack->members[i - 1]);
            assert_int_equal(seen[e]++, 0);
            tokens += lengths[e];
        }
        assert_true(tokens <= seq_len);
    }
}

/* Best fit decreasing by the definition, quadratic: into[e] = the sequence of example e. */
static int64_t reference_assign(const int64_t *lengths, int64_t examples, int64_t seq_len,
                                int64_t *into)
{
    CLEANUP(mem_free_ptr) int64_t *room = mem_new((size_t)examples, sizeof *room);
    CLEANUP(mem_free_ptr) int64_t *came = mem_new((size_t)examples, sizeof *came); /* to its room */
    int64_t sequences = 0;
    int64_t now = 0;
    for (int64_t length = seq_len; length > 0; length--) {
        for (int64_t e = 0; e < examples; e++) {
            if (lengths[e] != length)
                continue;
            int64_t best = -1;
            for (int64_t s = 0; s < sequences; s++)
                if (room[s] >= length && (best < 0 || room[s] < room[best] ||
                                          (room[s] == room[best] && came[s] > came[best])))
                    best = s;
            if (best < 0)
                room[best = sequences++] = seq_len;
            room[best] -= length;
            came[best] = ++now;
            into[e] = best;
        }
    }
    return sequences;
}

static void test_properties(void **state)
{
    const uint64_t seed = 99;
    print_message("seed %llu\n", (unsigned long long)seed);
    struct err err;
    for (uint64_t round = 0; round < 300; round++) {
        int64_t examples = 1 + (int64_t)rng_below(seed, RNG_STREAM_TEST, round, 200);
        int64_t seq_len = 1 + (int64_t)rng_below(seed, RNG_STREAM_TEST + 1, round, 700);
        int64_t lengths[200];
        for (int64_t e = 0; e < examples; e++) {
            uint64_t counter = round * 200 + (uint64_t)e;
            uint64_t most = (uint64_t)seq_len;
            if (round % 2 == 0) /* many short ones */
                most = 1 + rng_below(seed, RNG_STREAM_TEST + 2, counter, most);
            lengths[e] = 1 + (int64_t)rng_below(seed, RNG_STREAM_TEST + 3, counter, most);
        }
        struct pack pack;
        struct pack again;
        assert_int_equal(pack_build(lengths, examples, seq_len, true, &pack, &err), 0);
        check(lengths, examples, seq_len, &pack);
        int64_t into[200];
        assert_int_equal(pack.sequences, reference_assign(lengths, examples, seq_len, into));
        for (int64_t s = 0; s < pack.sequences; s++) /* as many, and these share: the same ones */
            for (int64_t i = pack.first[s]; i < pack.first[s + 1]; i++)
                assert_int_equal(into[pack.members[i]], into[pack.members[pack.first[s]]]);
        assert_int_equal(pack_build(lengths, examples, seq_len, true, &again, &err), 0);
        assert_memory_equal(pack.members, again.members, (size_t)examples * sizeof *pack.members);
        assert_memory_equal(pack.first, again.first,
                            ((size_t)pack.sequences + 1) * sizeof *pack.first);
        pack_done(&pack);
        pack_done(&again);
    }
    assert_int_equal(mem_live(), 0);
}

static void test_small(void **state)
{
    struct err err;
    struct pack pack;
    const int64_t lengths[] = {5, 3, 6, 2, 4};
    assert_int_equal(pack_build(lengths, 5, 10, true, &pack, &err), 0);
    /* 6 opens, 5 opens, 4 goes to 6 (room 4), 3 to 5 (room 5), 2 to that (room 2) */
    assert_int_equal(pack.sequences, 2);
    const int64_t first[] = {0, 3, 5};
    const int64_t members[] = {0, 1, 3, 2, 4};
    assert_memory_equal(pack.first, first, sizeof first);
    assert_memory_equal(pack.members, members, sizeof members);
    pack_done(&pack);
    assert_int_equal(pack_build(lengths, 5, 10, false, &pack, &err), 0);
    assert_int_equal(pack.sequences, 5);
    check(lengths, 5, 10, &pack);
    pack_done(&pack);
    assert_int_equal(pack_build(NULL, 0, 10, true, &pack, &err), 0);
    assert_int_equal(pack.sequences, 0);
    pack_done(&pack);
}

static void test_large(void **state)
{
    enum { EXAMPLES = 200000, SEQ_LEN = 1 << 20 };
    struct err err;
    struct pack pack;
    CLEANUP(mem_free_ptr) int64_t *lengths = mem_new(EXAMPLES, sizeof *lengths);
    int64_t tokens = 0;
    for (int64_t e = 0; e < EXAMPLES; e++) {
        lengths[e] = 1 + (int64_t)rng_below(5, RNG_STREAM_TEST, (uint64_t)e, SEQ_LEN / 7);
        tokens += lengths[e];
    }
    int64_t start = clock_monotonic_ms();
    assert_int_equal(pack_build(lengths, EXAMPLES, SEQ_LEN, true, &pack, &err), 0);
    print_message("%d examples packed in %lld ms, %.4f full\n", EXAMPLES,
                  (long long)(clock_monotonic_ms() - start),
                  (double)tokens / ((double)pack.sequences * SEQ_LEN));
    check(lengths, EXAMPLES, SEQ_LEN, &pack);
    assert_true((double)tokens > 0.99 * (double)pack.sequences * SEQ_LEN);
    pack_done(&pack);
}

static void test_order(void **state)
{
    enum { SEQUENCES = 37 };
    struct err err;
    struct pack_order order;
    struct pack_order jump;
    assert_int_equal(pack_order_init(&order, 11, SEQUENCES, &err), 0);
    assert_int_equal(pack_order_init(&jump, 11, SEQUENCES, &err), 0);
    int64_t epochs[3][SEQUENCES];
    for (int64_t epoch = 0; epoch < 3; epoch++) {
        int seen[SEQUENCES] = {0};
        for (int64_t i = 0; i < SEQUENCES; i++) {
            int64_t s = pack_order_at(&order, epoch * SEQUENCES + i);
            assert_true(s >= 0 && s < SEQUENCES);
            assert_int_equal(seen[s]++, 0);
            epochs[epoch][i] = s;
        }
    }
    assert_memory_not_equal(epochs[0], epochs[1], sizeof epochs[0]);
    assert_memory_not_equal(epochs[1], epochs[2], sizeof epochs[0]);
    assert_int_equal(pack_order_at(&jump, 2 * SEQUENCES + 5), epochs[2][5]); /* a resume */
    assert_int_equal(pack_order_at(&jump, 6), epochs[0][6]);
    pack_order_done(&order);
    pack_order_done(&jump);
    assert_int_equal(mem_live(), 0);
}

static void test_allocation_failures(void **state)
{
    const int64_t lengths[] = {1, 2, 3};
    for (int n = 1;; n++) {
        struct err err;
        struct pack pack = {0};
        mem_fault_after(n);
        int rc = pack_build(lengths, 3, 4, true, &pack, &err);
        assert_int_equal(mem_fault_after(0), rc != 0);
        pack_done(&pack);
        assert_int_equal(mem_live(), 0);
        if (rc == 0)
            break;
        assert_int_equal(rc, -ERR_NOMEM);
        assert_true(n < 20);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_properties),
        cmocka_unit_test(test_small),
        cmocka_unit_test(test_large),
        cmocka_unit_test(test_order),
        cmocka_unit_test(test_allocation_failures),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
