/* result_name: names of tuned models and checkpoints; the longest still fit a URL's segment, and
 * different jobs keep different names. */
#include "daemon/result_name.h"

#include "daemon/route.h"
#include "tests/lib/cmocka.h"

#include <string.h>

static void test_shape(void **state)
{
    char name[RESULT_NAME_BYTES];
    result_name("tiny-llama", "sail", "ftjob-abcdefghijklmnop", -1, name);
    assert_string_equal(name, "ft:tiny-llama:local:sail:ijklmnop");
    result_name("tiny-llama", "", "ftjob-abcdefghijklmnop", -1, name);
    assert_string_equal(name, "ft:tiny-llama:local::ijklmnop");
    result_name("tiny-llama", "sail", "ftjob-abcdefghijklmnop", 0, name);
    assert_string_equal(name, "ft:tiny-llama:local:sail:ijklmnop:ckpt-step-0");
    result_name("Qwen/Qwen3-4B", "sail", "ftjob-abcdefghijklmnop", -1, name);
    assert_string_equal(name, "ft:Qwen3-4B:local:sail:ijklmnop");
    result_name("m", "s", "short", 120, name); /* a job's id shorter than its tail */
    assert_string_equal(name, "ft:m:local:s:short:ckpt-step-120");
}

static void test_longest(void **state)
{
    char model[LIMIT_NAME_BYTES + 1], suffix[LIMIT_SUFFIX_BYTES + 1], name[RESULT_NAME_BYTES];
    memset(model, 'm', sizeof model - 1);
    memset(suffix, 's', sizeof suffix - 1);
    model[sizeof model - 1] = suffix[sizeof suffix - 1] = '\0';
    result_name(model, suffix, "ftjob-AAAAAAAAAAAAAAAA12345678", -1, name);
    assert_true(strlen(name) <= LIMIT_NAME_BYTES);
    assert_true(route_is_name(name, strlen(name)));
    assert_string_equal(name + strlen(name) - 8, "12345678"); /* the base is cut, not the job */
    assert_non_null(strstr(name, suffix));
    result_name(model, suffix, "ftjob-AAAAAAAAAAAAAAAA12345678", 999999999999, name);
    static const char tail[] = ":12345678:ckpt-step-999999999999";
    assert_string_equal(name + strlen(name) - strlen(tail), tail); /* not cut either */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shape),
        cmocka_unit_test(test_longest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
