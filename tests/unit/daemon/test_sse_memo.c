/* sse_memo: an entry is found by all that tells a place from another, until it is forgotten, pushed
 * out, or could not be kept. */
#include "daemon/sse_memo.h"

#include "common/mem.h"
#include "tests/lib/cmocka.h"

#include <string.h>

static struct sse_memo_key key_at(int64_t event_row)
{
    return (struct sse_memo_key){
        .viewer = "ann", .job_id = "ftjob-1", .event_row = event_row, .point_row = 7};
}

static void put(struct sse_memo *memo, int64_t event_row, const char *text)
{
    const struct sse_memo_key key = key_at(event_row);
    const struct sse_memo_value value = {.event_row = event_row + 100,
                                         .point_row = 8,
                                         .rows = 3,
                                         .more = true,
                                         .text = text,
                                         .length = strlen(text)};
    sse_memo_put(memo, &key, &value);
}

static bool is_known(const struct sse_memo *memo, int64_t event_row, const char *text)
{
    const struct sse_memo_key key = key_at(event_row);
    struct sse_memo_value value;
    if (!sse_memo_find(memo, &key, &value))
        return false;
    assert_string_equal(value.text, text);
    assert_int_equal(value.length, strlen(text));
    assert_int_equal(value.event_row, event_row + 100);
    assert_int_equal(value.point_row, 8);
    assert_int_equal(value.rows, 3);
    assert_true(value.more);
    return true;
}

static void test_places(void **state)
{
    struct sse_memo memo = {.count = 0};
    struct sse_memo_value value;
    assert_false(is_known(&memo, 1, ""));
    put(&memo, 1, "one");
    put(&memo, 2, "");
    assert_true(is_known(&memo, 1, "one"));
    assert_true(is_known(&memo, 2, ""));
    struct sse_memo_key others[4] = {key_at(1), key_at(1), key_at(1), key_at(3)};
    others[0].viewer = "bob";
    others[1].job_id = "";
    others[2].point_row = 6;
    for (int i = 0; i < 4; i++)
        assert_false(sse_memo_find(&memo, &others[i], &value));
    sse_memo_clear(&memo);
    assert_false(is_known(&memo, 1, "one"));
    for (int64_t row = 1; row <= SSE_MEMO_ENTRIES + 1; row++)
        put(&memo, row, "text");
    assert_false(is_known(&memo, 1, "text")); /* the oldest made room */
    for (int64_t row = 2; row <= SSE_MEMO_ENTRIES + 1; row++)
        assert_true(is_known(&memo, row, "text"));
    sse_memo_done(&memo);
    assert_int_equal(mem_live(), 0);
}

static void test_no_memory(void **state)
{
    struct sse_memo memo = {.count = 0};
    mem_fault_after(1);
    put(&memo, 1, "lost");
    mem_fault_after(0);
    assert_false(is_known(&memo, 1, "lost"));
    put(&memo, 1, "kept");
    assert_true(is_known(&memo, 1, "kept"));
    sse_memo_done(&memo);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_places),
                                       cmocka_unit_test(test_no_memory)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
