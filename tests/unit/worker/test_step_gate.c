/* step_gate: open without variable, file or number; else as far as the number says. */
#include "worker/step_gate.h"

#include "common/io.h"
#include "tests/lib/cmocka.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void test_gate(void **state)
{
    struct err err;
    char path[] = "/dev/shm/ithaca-gate-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    (void)close(fd);
    static const struct {
        const char *text;
        int64_t last;
    } files[] = {{"0", 0},
                 {"7\n", 7},
                 {"  12 and words", 12},
                 {"-1", -1}, /* not even a first step */
                 {"9223372036854775807", INT64_MAX},
                 {"", INT64_MAX},
                 {"seven", INT64_MAX}};
    assert_int_equal(unsetenv("ITHACA_WORKER_STEP_GATE"), 0);
    assert_int_equal(step_gate_last(), INT64_MAX);
    assert_int_equal(setenv("ITHACA_WORKER_STEP_GATE", path, 1), 0);
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        assert_int_equal(io_write_file(path, files[i].text, strlen(files[i].text), 0600, &err), 0);
        if (step_gate_last() != files[i].last)
            fail_msg("\"%s\"", files[i].text);
    }
    assert_int_equal(unlink(path), 0);
    assert_int_equal(step_gate_last(), INT64_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_gate)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
