/* gpu_watch and gpu_file: the newest report comes once, a file that changes is seen, one that hangs
 * holds nobody, one that is not as it should be says where. */
#include "common/clock.h"
#include "common/io.h"
#include "common/mem.h"
#include "daemon/gpu_watch.h"
#include "daemon/xid.h"
#include "tests/lib/cmocka.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PATIENCE_MS = 10000 };

static char path[64];

static void put(const char *text)
{
    struct err err;
    assert_int_equal(io_write_file(path, text, strlen(text), 0600, &err), 0);
}

static int setup(void **state)
{
    (void)snprintf(path, sizeof path, "/dev/shm/ithaca-gpus-XXXXXX");
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    return close(fd);
}

static int teardown(void **state)
{
    assert_int_equal(mem_live(), 0);
    return unlink(path);
}

/* The next report in which the first GPU uses this much. */
static void await(struct gpu_watch *watch, int64_t used, struct gpu_report *ret)
{
    int64_t until_ms = clock_monotonic_ms() + PATIENCE_MS;
    do {
        assert_true(clock_monotonic_ms() < until_ms);
        clock_sleep_ms(1);
    } while (!gpu_watch_take(watch, ret) || ret->gpus[0].used_bytes != used);
}

static void test_changes_are_seen(void **state)
{
    struct err err;
    struct gpu_watch *watch = NULL;
    struct gpu_report report;
    put("{\"gpus\":[{\"uuid\":\"GPU-1\",\"bytes\":1000,\"name\":\"X\",\"temperature_c\":41,"
        "\"xids\":[31,79],\"processes\":[{\"pid\":7,\"bytes\":5},{\"pid\":8}]}]}");
    int64_t begun_ms = clock_monotonic_ms();
    assert_int_equal(gpu_watch_new(path, PATIENCE_MS, &watch, &report, &err), 0);
    assert_int_equal(report.count, 1);
    assert_true(report.taken_ms >= begun_ms && report.taken_ms <= clock_monotonic_ms());
    assert_string_equal(report.gpus[0].uuid, "GPU-1");
    assert_string_equal(report.gpus[0].name, "X");
    assert_int_equal(report.gpus[0].bytes, 1000);
    assert_int_equal(report.gpus[0].temperature_c, 41);
    assert_int_equal(report.gpus[0].power_mw, -1);
    assert_int_equal(report.gpus[0].ecc_uncorrected, -1);
    assert_int_equal(report.gpus[0].xid_count, 2);
    assert_int_equal(report.gpus[0].xids[1], 79);
    assert_int_equal(report.gpus[0].process_count, 2);
    assert_int_equal(report.gpus[0].processes[0].pid, 7);
    assert_int_equal(report.gpus[0].processes[1].bytes, -1);
    put("{\"gpus\":[{\"uuid\":\"GPU-1\",\"bytes\":1000,\"used_bytes\":77}]}");
    await(watch, 77, &report);
    put("no JSON"); /* the last report stands */
    put("{\"hang\":true,\"gpus\":[{\"uuid\":\"GPU-1\",\"bytes\":1000,\"used_bytes\":78}]}");
    clock_sleep_ms(150); /* two looks */
    (void)gpu_watch_take(watch, &report);
    assert_false(gpu_watch_take(watch, &report));
    assert_int_equal(report.gpus[0].used_bytes, 77);
    put("{\"gpus\":[{\"uuid\":\"GPU-1\",\"bytes\":1000,\"used_bytes\":79}]}");
    await(watch, 79, &report);
    put("{\"hang\":true,\"gpus\":[]}");
    gpu_watch_free(watch);
    gpu_watch_free(NULL);
}

static void test_what_cannot_be(void **state)
{
    static const struct {
        const char *text, *says;
    } cases[] = {
        {"", "line 1"},
        {"{}", "\"gpus\" must be a list"},
        {"{\"gpus\":[{}]}", "\"uuid\""},
        {"{\"gpus\":[{\"uuid\":\"GPU-1\"}]}", "\"bytes\""},
    };
    struct err err;
    struct gpu_watch *watch = NULL;
    struct gpu_report report;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        put(cases[i].text);
        assert_int_equal(gpu_watch_new(path, PATIENCE_MS, &watch, &report, &err), -ERR_UNSUPPORTED);
        if (strstr(err.text, cases[i].says) == NULL || strstr(err.text, path) == NULL)
            fail_msg("%s", err.text);
    }
    put("{\"hang\":true,\"gpus\":[]}");
    assert_int_equal(gpu_watch_new(path, 100, &watch, &report, &err), -ERR_UNSUPPORTED);
    assert_non_null(strstr(err.text, "has not answered"));
    assert_null(watch);
    mem_fault_after(1);
    assert_int_equal(gpu_watch_new(path, 100, &watch, &report, &err), -ERR_NOMEM);
    mem_fault_after(2);
    assert_int_equal(gpu_watch_new(path, 100, &watch, &report, &err), -ERR_NOMEM);
    mem_fault_after(0);
}

/* Where there is a driver, what it says is left to those who look; without one it is said. */
static void test_no_driver(void **state)
{
    struct err err;
    struct gpu_watch *watch = NULL;
    struct gpu_report report;
    int rc = gpu_watch_new(NULL, PATIENCE_MS, &watch, &report, &err);
    if (rc == 0)
        assert_true(report.count > 0 && report.gpus[0].uuid[0] != '\0');
    else
        assert_int_equal(rc, -ERR_UNSUPPORTED);
    gpu_watch_free(rc == 0 ? watch : NULL);
}

static void test_meanings(void **state)
{
    assert_int_equal(xid_find(79).kind, XID_GPU);
    assert_int_equal(xid_find(31).kind, XID_JOB);
    assert_int_equal(xid_find(63).kind, XID_NOTE);
    assert_int_equal(xid_find(99999).kind, XID_JOB);
    assert_int_equal(xid_find(99999).number, 99999);
    assert_string_equal(xid_find(79).meaning, "the GPU has fallen off the bus");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_changes_are_seen, setup, teardown),
        cmocka_unit_test_setup_teardown(test_what_cannot_be, setup, teardown),
        cmocka_unit_test(test_no_driver),
        cmocka_unit_test(test_meanings),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
