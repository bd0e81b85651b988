/* host_memory: what machines and their control groups say, from files as the kernel writes them. */
#include "common/host_memory.h"
#include "tests/lib/kernel_world.h"

#define MIB (INT64_C(1) << 20)

static void put_machine(void) /* of 1000 MiB, 600 of them free */
{
    put("/proc", "meminfo",
        "MemTotal:        1024000 kB\nMemFree:          100 kB\n"
        "MemAvailable:     614400 kB\n");
}

static void expect(int64_t total_mib, int64_t available_mib)
{
    struct host_memory host = host_memory_read();
    assert_int_equal(host.total, total_mib * MIB);
    assert_int_equal(host.available, available_mib * MIB);
}

static void test_machine(void **state)
{
    struct host_memory host = host_memory_read(); /* nothing is known */
    assert_true(host.total == INT64_MAX && host.available == INT64_MAX);
    put_machine();
    expect(1000, 600);
    put("/proc/self", "cgroup", "");
    expect(1000, 600);
    put("/proc/self", "cgroup", "0::/"); /* no such files */
    expect(1000, 600);
    put("/proc", "meminfo", "MemTotal:        1024000 kB\n"); /* an old kernel */
    expect(1000, 1000);
}

static void test_version_2(void **state)
{
    put_machine();
    put("/proc/self", "cgroup", "0::/system.slice/ithacad.service\n");
    put("/sys/fs/cgroup/system.slice/ithacad.service", "memory.max", "max\n");
    put("/sys/fs/cgroup/system.slice/ithacad.service", "memory.current", "104857600\n");
    expect(1000, 600);
    /* 200 MiB, 120 used, 30 of that for files. */
    put("/sys/fs/cgroup/system.slice/ithacad.service", "memory.max", "209715200\n");
    put("/sys/fs/cgroup/system.slice/ithacad.service", "memory.current", "125829120\n");
    put("/sys/fs/cgroup/system.slice/ithacad.service", "memory.stat",
        "anon 1\nfile 99999999\ninactive_file 20971520\nactive_file 10485760\nunevictable 0\n");
    expect(200, 110);
    /* A parent with more, of which others have taken nearly all. */
    put("/sys/fs/cgroup/system.slice", "memory.max", "419430400\n");
    put("/sys/fs/cgroup/system.slice", "memory.current", "408944640\n");
    expect(200, 10);
    /* More than there is in the group's caches; more used than the limit, since it was lowered. */
    put("/sys/fs/cgroup/system.slice", "memory.current", "499430400\n");
    expect(200, 0);
    /* A limit above the machine limits nothing. */
    put("/sys/fs/cgroup/system.slice", "memory.max", "max\n");
    put("/sys/fs/cgroup/system.slice/ithacad.service", "memory.max", "1099511627776\n");
    expect(1000, 600);
}

/* In a container the path is the host's, and the root of what is mounted is the group. */
static void test_version_1(void **state)
{
    put_machine();
    put("/proc/self", "cgroup", "11:cpu,cpuacct:/other\n7:hugetlb,memory,x:/docker/0123\n0::/\n");
    put("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "104857600\n");
    put("/sys/fs/cgroup/memory", "memory.usage_in_bytes", "52428800\n");
    put("/sys/fs/cgroup/memory", "memory.stat",
        "cache 1\ninactive_file 7\ntotal_inactive_file 10485760\ntotal_active_file 0\n");
    expect(100, 60);
    put("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "9223372036854771712\n"); /* none */
    expect(1000, 600);
    put("/proc/self", "cgroup", "7:memoryx:/docker/0123\n:\nnonsense\n");
    put("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "104857600\n");
    expect(1000, 600);
}

static void test_check(void **state)
{
    struct err err = {0};
    struct host_memory host = host_memory_read();
    assert_true(host.total > 0 && host.available <= host.total);
    assert_int_equal(host_memory_check(1, &err), 0);
    assert_int_equal(host_memory_check(INT64_MAX, &err), -ERR_NOMEM);
    assert_non_null(strstr(err.text, "out of host memory: 9223372036854775807 bytes asked for, "));
    assert_non_null(strstr(err.text, " available of "));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_machine, setup, teardown),
        cmocka_unit_test_setup_teardown(test_version_2, setup, teardown),
        cmocka_unit_test_setup_teardown(test_version_1, setup, teardown),
        cmocka_unit_test(test_check),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
