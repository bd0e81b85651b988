/* buf: growth, the limit, the sticking error. */
#include "common/buf.h"
#include "common/mem.h"
#include "tests/lib/cmocka.h"

static void test_append_and_drop(void **state)
{
    struct buf buf;
    buf_init(&buf, 1000);
    buf_text(&buf, "hello");
    buf_printf(&buf, " %d", 42);
    assert_string_equal(buf_str(&buf), "hello 42");
    buf_drop_front(&buf, 6);
    assert_string_equal(buf_str(&buf), "42");
    assert_int_equal(buf.length, 2);
    buf_text(&buf, "\n3\n\n");
    buf_drop_newlines(&buf);
    assert_string_equal(buf_str(&buf), "42\n3");
    assert_int_equal(buf.length, 4);
    buf_clear(&buf);
    buf_drop_newlines(&buf); /* there are none */
    assert_int_equal(buf.length, 0);
    buf_done(&buf);
    assert_int_equal(mem_live(), 0);
}

static void test_limit_sticks(void **state)
{
    struct err err;
    struct buf buf;
    buf_init(&buf, 4);
    buf_text(&buf, "1234");
    assert_int_equal(buf_error(&buf, &err), 0);
    buf_char(&buf, '5');
    buf_text(&buf, "");
    assert_int_equal(buf_error(&buf, &err), -ERR_TOO_LARGE);
    assert_string_equal(buf_str(&buf), "1234");
    buf_done(&buf);
}

static void test_allocation_failure_is_reported(void **state)
{
    struct err err;
    struct buf buf;
    buf_init(&buf, 1 << 20);
    mem_fault_after(1);
    buf_text(&buf, "x");
    assert_int_equal(buf_error(&buf, &err), -ERR_NOMEM);
    buf_clear(&buf);
    buf_text(&buf, "x");
    assert_int_equal(buf_error(&buf, &err), 0);
    char *text = buf_steal(&buf);
    assert_string_equal(text, "x");
    mem_free(text);
    assert_int_equal(mem_live(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_append_and_drop),
        cmocka_unit_test(test_limit_sticks),
        cmocka_unit_test(test_allocation_failure_is_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
