/* mem: counts, zeroes, overflow, injected failures. */
#include "common/mem.h"
#include "tests/lib/cmocka.h"

static void test_live_counts(void **state)
{
    assert_int_equal(mem_live(), 0);
    void *a = mem_new(3, 5);
    void *b = mem_grow(NULL, 2, 8);
    char *c = mem_strdup("text");
    char *d = mem_printf("%d-%s", 7, "x");
    void *e = mem_aligned(64, 100);
    assert_int_equal(mem_live(), 5);
    assert_string_equal(c, "text");
    assert_string_equal(d, "7-x");
    b = mem_grow(b, 100, 8);
    assert_int_equal(mem_live(), 5);
    mem_free(NULL);
    mem_free(a);
    mem_free(b);
    mem_free(c);
    mem_free(d);
    mem_free(e);
    assert_int_equal(mem_live(), 0);
    {
        CLEANUP(mem_free_ptr) char *scoped = mem_strndup("abcdef", 3);
        assert_string_equal(scoped, "abc");
        assert_int_equal(mem_live(), 1);
    }
    assert_int_equal(mem_live(), 0);
}

static void test_zeroed_and_aligned(void **state)
{
    for (size_t alignment = 8; alignment <= 4096; alignment *= 2) {
        for (size_t bytes = 0; bytes < 300; bytes += 37) {
            unsigned char *block = mem_aligned(alignment, bytes);
            assert_int_equal((uintptr_t)block % alignment, 0);
            for (size_t i = 0; i < bytes; i++)
                assert_int_equal(block[i], 0);
            mem_free(block);
        }
    }
    unsigned char *block = mem_new(100, 10);
    for (size_t i = 0; i < 1000; i++)
        assert_int_equal(block[i], 0);
    mem_free(block);
    void *empty = mem_new(0, 8);
    assert_non_null(empty); /* a block like any other */
    mem_free(empty);
}

static void test_overflow_is_refused(void **state)
{
    char *block = mem_strdup("kept");
    assert_null(mem_new(SIZE_MAX, 2));
    assert_null(mem_new(SIZE_MAX / 2 + 1, 2));
    assert_null(mem_grow(block, SIZE_MAX / 4 + 1, 4));
    assert_null(mem_aligned(64, SIZE_MAX - 8));
    assert_string_equal(block, "kept");
    assert_int_equal(mem_live(), 1);
    mem_free(block);
}

static void test_the_nth_allocation_fails_once(void **state)
{
    for (int64_t n = 1; n <= 5; n++) {
        mem_fault_after(n);
        for (int64_t i = 1; i <= 8; i++) {
            void *block = i % 2 == 0 ? mem_new(1, 8) : mem_aligned(8, 8);
            if (i == n)
                assert_null(block);
            else
                assert_non_null(block);
            mem_free(block);
        }
    }
    mem_fault_after(1);
    mem_fault_after(0);
    void *block = mem_new(1, 1);
    assert_non_null(block);
    mem_fault_after(1);
    assert_null(mem_grow(block, 100, 1)); /* block is kept */
    mem_free(block);
    mem_fault_after(1);
    assert_null(mem_strdup("x"));
    mem_fault_after(1);
    assert_null(mem_printf("x"));
    assert_int_equal(mem_live(), 0);
}

static void test_fail_says_how_much(void **state)
{
    struct err err;
    assert_int_equal(mem_fail(&err, 4096, "a page"), -ERR_NOMEM);
    assert_string_equal(err.text, "out of host memory: 4096 bytes for a page");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_live_counts),
        cmocka_unit_test(test_zeroed_and_aligned),
        cmocka_unit_test(test_overflow_is_refused),
        cmocka_unit_test(test_the_nth_allocation_fails_once),
        cmocka_unit_test(test_fail_says_how_much),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
