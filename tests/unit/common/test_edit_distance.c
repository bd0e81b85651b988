/* edit_distance: known distances, symmetry, words that are cut. */
#include "common/edit_distance.h"
#include "tests/lib/cmocka.h"

#include <string.h>

static void test_distances(void **state)
{
    static const struct {
        const char *a, *b;
        size_t edits;
    } pairs[] = {{"", "", 0},         {"a", "", 1},        {"abc", "abc", 0},
                 {"abc", "abd", 1},   {"abc", "acb", 1},   {"kitten", "sitting", 3},
                 {"abc", "xabcy", 2}, {"flaw", "lawn", 2}, {"show", "hsow", 1},
                 {"ca", "abc", 3}};
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        assert_int_equal(edit_distance(pairs[i].a, pairs[i].b), pairs[i].edits);
        assert_int_equal(edit_distance(pairs[i].b, pairs[i].a), pairs[i].edits);
    }
    char same[EDIT_DISTANCE_BYTES + 2], more[EDIT_DISTANCE_BYTES + 2];
    memset(same, 'x', sizeof same);
    memset(more, 'x', sizeof more);
    same[sizeof same - 1] = more[sizeof more - 1] = '\0';
    more[EDIT_DISTANCE_BYTES] = 'y'; /* beyond what counts */
    assert_int_equal(edit_distance(same, more), 0);
    assert_int_equal(edit_distance_too_far("ab"), 1); /* nothing but itself */
    assert_int_equal(edit_distance_too_far("--limit"), 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_distances)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
