/* device_cpu: memory and its count, copies, streams and events, failing allocations, the check of
 * OpenBLAS at opening. */
#include "tests/lib/cmocka.h"

#include <string.h>

#include "common/clock.h"
#include "common/mem.h"
#include "worker/device.h"
#include "worker/ops.h"

static struct device *open_device(void)
{
    struct err err = {0};
    struct device *device = NULL;
    MUST_WORK(device_cpu_open(2, &device, &err), &err);
    return device;
}

static void test_memory(void **state)
{
    struct err err = {0};
    struct device *device = open_device();
    const struct device_ops *dev = device->dev;
    assert_string_equal(dev->name, "cpu");
    assert_int_equal(dev->act_dtype, DTYPE_F32);
    unsigned char *a = dev->alloc(device, 1000, &err), *b = dev->alloc(device, 0, &err);
    unsigned char *host = dev->host_alloc(device, 1000, &err);
    assert_true(a != NULL && b != NULL && host != NULL);
    assert_int_equal((uintptr_t)a % 64, 0);
    assert_int_equal((uintptr_t)b % 64, 0);
    assert_int_equal(dev->bytes_in_use(device), 1000);
    memset(host, 7, 1000);
    assert_int_equal(dev->copy(device, NULL, a, host, 1000, &err), 0);
    assert_memory_equal(a, host, 1000);
    assert_int_equal(dev->zero(device, NULL, a, 999, &err), 0);
    assert_int_equal(a[0] | a[998], 0);
    assert_int_equal(a[999], 7);
    dev->free(device, a);
    dev->free(device, b);
    dev->free(device, NULL);
    dev->host_free(device, host);
    assert_int_equal(dev->bytes_in_use(device), 0);
    dev->close(device);
    assert_int_equal(mem_live(), 0);
}

static void test_too_much_is_an_error(void **state)
{
    struct device *device = open_device();
    for (int i = 0; i < 2; i++) {
        struct err err = {0};
        mem_fault_after(i); /* first a size that overflows, then no memory */
        assert_null(device->dev->alloc(device, i == 0 ? SIZE_MAX : 1000, &err));
        assert_int_equal(err.code, ERR_NOMEM);
        assert_non_null(strstr(err.text, "available"));
    }
    assert_int_equal(device->dev->bytes_in_use(device), 0);
    device->dev->close(device);
}

static void test_streams_and_events(void **state)
{
    struct err err = {0};
    struct device *device = open_device();
    const struct device_ops *dev = device->dev;
    struct stream *stream = NULL;
    struct event *event = NULL;
    assert_int_equal(dev->stream_new(device, &stream, &err), 0);
    assert_int_equal(dev->event_new(device, &event, &err), 0);
    assert_int_equal(dev->event_record(device, event, stream, &err), 0);
    assert_int_equal(dev->event_wait(device, event, NULL, &err), 0);
    assert_int_equal(dev->sync(device, stream, &err), 0);
    struct event *later = NULL;
    int64_t ns = -1, back = 1;
    assert_int_equal(dev->event_new(device, &later, &err), 0);
    int64_t start = clock_monotonic_ns();
    while (clock_monotonic_ns() == start)
        continue;
    assert_int_equal(dev->event_record(device, later, NULL, &err), 0);
    assert_int_equal(dev->event_elapsed(device, event, later, &ns, &err), 0);
    assert_int_equal(dev->event_elapsed(device, later, event, &back, &err), 0);
    assert_true(ns > 0 && back == -ns);
    dev->event_free(device, later);
    dev->event_free(device, event);
    dev->stream_free(device, stream);
    mem_fault_after(1);
    assert_int_equal(dev->stream_new(device, &stream, &err), -ERR_NOMEM);
    mem_fault_after(1);
    assert_int_equal(dev->event_new(device, &event, &err), -ERR_NOMEM);
    dev->close(device);
    assert_int_equal(mem_live(), 0);
}

static void test_opening_fails_cleanly(void **state)
{
    for (int after = 1; after <= 2; after++) {
        struct err err = {0};
        struct device *device = NULL;
        mem_fault_after(after);
        assert_int_equal(device_cpu_open(1, &device, &err), -ERR_NOMEM);
        assert_null(device);
        assert_int_equal(mem_live(), 0);
    }
    mem_fault_after(0);
}

static void test_every_member_is_there(void **state)
{
    struct device *device = open_device();
#define X(name) assert_non_null(device->ops->name);
    OPS_TABLE(X)
#undef X
    device->dev->close(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_too_much_is_an_error),
        cmocka_unit_test(test_streams_and_events),
        cmocka_unit_test(test_opening_fails_cleanly),
        cmocka_unit_test(test_every_member_is_there),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
