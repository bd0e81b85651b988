/* restart: the table of reasons, written down a second time. */
#include "daemon/restart.h"
#include "tests/lib/cmocka.h"

#include <string.h>

static const char *const again[] = {
    "rank_died",         "gpu_fault",          "rank_hung",        "collective_timeout",
    "rank_start_failed", "collective_aborted", "coordinator_lost", "io",
    "device_error"};

static void test_table(void **state)
{
    int found = 0;
    for (int code = 1; code < ERR_COUNT; code++) {
        bool wanted = false;
        for (size_t i = 0; i < sizeof again / sizeof again[0]; i++)
            wanted |= strcmp(err_code_name((enum err_code)code), again[i]) == 0;
        if (restart_may((enum err_code)code) != wanted)
            fail_msg("%s", err_code_name((enum err_code)code));
        found += wanted;
    }
    assert_int_equal(found, sizeof again / sizeof again[0]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_table)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
