/* cgroup: where groups can be made, from files as kernels write them; groups in a folder that plays
 * the hierarchy; and, where this machine lets us, a real group whose process left everything else.
 */
#include "common/cgroup.h"

#include "common/clock.h"
#include "common/proc_stat.h"
#include "tests/lib/kernel_world.h"

#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define MOUNT "/sys/fs/cgroup"
#define OWN MOUNT "/system.slice/ithacad.service"

static void expect_text(const char *folder, const char *name, const char *text)
{
    char found[KERNEL_FILE_BYTES];
    kernel_file_read(folder, name, found);
    assert_string_equal(found, text);
}

/* A group as the kernel makes it, with this process or others in it. */
static void put_group(const char *folder, const char *procs)
{
    put(folder, "cgroup.events", "populated 1\nfrozen 0\n");
    put(folder, "cgroup.procs", procs);
    put(folder, "cgroup.controllers", "cpu memory pids\n");
    put(folder, "cgroup.subtree_control", "");
    put(folder, "cgroup.kill", "");
}

static void put_place(const char *own, const char *mounts)
{
    put("/proc/self", "cgroup", own);
    put("/proc/self", "mountinfo", mounts);
}

#define MOUNTS(mount_root)                          \
    "22 28 0:21 / /proc rw,nosuid - proc proc rw\n" \
    "30 23 0:26 " mount_root " " MOUNT " rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n"

static void put_service(const char *procs)
{
    put_place("0::/system.slice/ithacad.service\n", MOUNTS("/"));
    put_group(OWN, procs);
}

static struct cgroup_home find(void)
{
    struct cgroup_home home;
    cgroup_find(&home);
    return home;
}

static void expect_none(const char *why)
{
    struct cgroup_home home = find();
    char text[1024];
    assert_string_equal(home.path, "");
    cgroup_tell(&home, text, sizeof text);
    if (strstr(text, why) == NULL || strstr(text, "process groups") == NULL)
        fail_msg("\"%s\" is not in: %s", why, text);
    cgroup_settle(&home); /* does nothing */
    assert_false(home.memory);
}

static void test_no_groups(void **state)
{
    expect_none("not mounted");
    put_place("5:memory:/a\n0::/a\n", "30 23 0:26 / /sys/fs/cgroup/memory rw - cgroup cgroup rw\n");
    expect_none("not mounted");
    put_place("5:memory:/a\n", MOUNTS("/"));
    expect_none("not mounted");
    put_place("0::/a\n", MOUNTS("/b")); /* another container's */
    expect_none("not mounted");
    put_place("0::/../a\n", MOUNTS("/"));
    expect_none("not mounted");
    put_place("0::/\n", MOUNTS("/"));
    put(MOUNT, "cgroup.procs", "1\n"); /* the root has no cgroup.events */
    put(MOUNT, "cgroup.subtree_control", "");
    expect_none("root group");
    put_place("0::/ithacad\n", MOUNTS("/"));
    put_group(MOUNT "/ithacad", "1\n");
    expect_none("root group");
}

static void test_not_delegated(void **state)
{
    static const char *const files[] = {"cgroup.procs", "cgroup.subtree_control", "cgroup.kill"};
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        put_service("1\n");
        assert_string_equal(find().path, OWN);
        char path[PATH_MAX];
        kernel_file_path(OWN, files[i], path);
        assert_int_equal(unlink(path), 0); /* root may write whatever is there */
        expect_none(i == 2 ? "older than 5.14" : "not delegated");
    }
}

static void test_places(void **state)
{
    static const struct {
        const char *own, *mounts, *path;
        bool settled;
    } cases[] = {
        {"1:name=x:/y\n0::/a.scope\n", MOUNTS("/"), MOUNT "/a.scope", false},
        {"0::/docker/17/b\n", MOUNTS("/docker/17"), MOUNT "/b", false},
        {"0::/docker/17\n", MOUNTS("/docker/17"), MOUNT, false},
        {"0::/a.service/ithacad\n", MOUNTS("/"), MOUNT "/a.service", true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        put_place(cases[i].own, cases[i].mounts);
        put_group(cases[i].path, "");
        struct cgroup_home home = find();
        assert_string_equal(home.path, cases[i].path);
        assert_int_equal(home.settled, cases[i].settled);
    }
}

/* In a folder that plays the hierarchy a process stays where it is, and files keep what was written
 * to them last. */
static void test_settle(void **state)
{
    char procs[32], text[1024];
    (void)snprintf(procs, sizeof procs, "%d\n", (int)getpid());
    put_service(procs);
    put(OWN "/ithacad", "cgroup.procs", "");
    struct cgroup_home home = find();
    cgroup_settle(&home);
    expect_text(OWN "/ithacad", "cgroup.procs", "0");
    expect_text(OWN, "cgroup.subtree_control", "+pids");
    assert_true(home.settled);
    assert_false(home.memory); /* the kernel would answer "memory pids" */

    cgroup_tell(&home, text, sizeof text);
    assert_non_null(strstr(text, "each job is a control group in " OWN));
}

static void expect_unsettled(const char *why)
{
    char text[1024];
    struct cgroup_home home = find();
    assert_string_equal(home.path, OWN);
    cgroup_settle(&home);
    assert_false(home.settled || home.memory);
    expect_text(OWN, "cgroup.subtree_control", "");
    cgroup_tell(&home, text, sizeof text);
    if (strstr(text, why) == NULL)
        fail_msg("\"%s\" is not in: %s", why, text);
}

static void test_memory_cannot_be_counted(void **state)
{
    char procs[64];
    (void)snprintf(procs, sizeof procs, "%d\n1\n", (int)getpid());
    put_service(procs);
    expect_unsettled("other processes are in the group");
    put_service("1\n");
    expect_unsettled("other processes are in the group");
    (void)snprintf(procs, sizeof procs, "%d\n", (int)getpid());
    put_service(procs);
    assert_int_equal(setenv("SYSTEMD_EXEC_PID", procs, 1), 0);
    expect_unsettled("DelegateSubgroup=ithacad");
    assert_int_equal(setenv("SYSTEMD_EXEC_PID", "1", 1), 0); /* that of a parent, inherited */
    put(OWN, "cgroup.controllers", "cpu memory_of_another pids\n");
    expect_unsettled("memory is not delegated");
}

static void test_make(void **state)
{
    struct err err;
    char path[CGROUP_PATH_BYTES];
    put_service("1\n");
    struct cgroup_home home = find();
    assert_int_equal(cgroup_make(&home, "ftjob-a", 3, 0, path, &err), 0);
    assert_string_equal(path, OWN "/ithaca-ftjob-a-3");
    assert_true(cgroup_is_of(path, "ftjob-a", 3));
    assert_false(cgroup_is_of(path, "ftjob-a", 2));
    assert_false(cgroup_is_of(path, "ftjob-b", 3));
    assert_false(cgroup_is_of(OWN, "ftjob-a", 3));
    assert_false(cgroup_is_of(MOUNT "/../ithaca-ftjob-a-3", "ftjob-a", 3));
    assert_int_not_equal(cgroup_make(&home, "ftjob-a", 3, 0, path, &err), 0); /* it is there */
    assert_int_equal(cgroup_remove(path, &err), 0);
    assert_int_equal(cgroup_remove(path, &err), 0); /* gone is gone */
    /* A limit that cannot be set: no group is left. */
    assert_int_not_equal(cgroup_make(&home, "ftjob-a", 3, 1 << 20, path, &err), 0);
    assert_non_null(strstr(err.text, "memory.max"));
    assert_int_equal(cgroup_make(&home, "ftjob-a", 3, 0, path, &err), 0);
    assert_int_not_equal(cgroup_join(path, &err), 0); /* no file to write to */
    assert_non_null(strstr(err.text, "cgroup.procs"));
}

static void test_what_a_group_tells(void **state)
{
    struct cgroup_memory memory;
    struct err err;
    put_group(OWN, "17\n4\n");
    assert_true(cgroup_is_populated(OWN));
    assert_int_equal(cgroup_first(OWN), 17);
    cgroup_kill(OWN);
    expect_text(OWN, "cgroup.kill", "1");
    assert_int_not_equal(cgroup_end(OWN, 20, &err), 0);
    assert_non_null(strstr(err.text, "process 17 does not end"));
    put(OWN, "cgroup.events", "populated 0\n");
    put(OWN, "cgroup.procs", "");
    assert_false(cgroup_is_populated(OWN));
    assert_int_equal(cgroup_first(OWN), 0);
    cgroup_memory(OWN, &memory); /* not counted */
    assert_true(memory.limit == -1 && memory.peak == -1 && memory.full == 0 && memory.kills == 0);
    put(OWN, "memory.max", "max\n");
    put(OWN, "memory.peak", "4096\n");
    put(OWN, "memory.events", "low 0\nhigh 0\nmax 7\noom 2\noom_kill 1\noom_group_kill 0\n");
    cgroup_memory(OWN, &memory);
    assert_true(memory.limit == -1 && memory.peak == 4096 && memory.full == 2 && memory.kills == 1);
    put(OWN, "memory.max", "8192\n");
    cgroup_memory(OWN, &memory);
    assert_int_equal(memory.limit, 8192);
    assert_false(cgroup_is_populated(OWN "/none"));
}

struct seen {
    int count;
    char job_id[64], path[CGROUP_PATH_BYTES];
    int64_t attempt;
};

static void see(void *context, const char *job_id, int64_t attempt, const char *path)
{
    struct seen *seen = context;
    seen->count++;
    seen->attempt = attempt;
    (void)snprintf(seen->job_id, sizeof seen->job_id, "%s", job_id);
    (void)snprintf(seen->path, sizeof seen->path, "%s", path);
}

static void test_each(void **state)
{
    static const char *const others[] = {"ithacad",         "ithaca-",       "ithaca--1",
                                         "ithaca-ftjob",    "ithaca-ftjob-", "init.scope",
                                         "ithaca-ftjob-a-x"};
    struct seen seen = {.count = 0};
    put_service("1\n");
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        CLEANUP(mem_free_ptr) char *group = mem_printf(OWN "/%s", others[i]);
        put(group, "cgroup.procs", "");
    }
    put(OWN "/ithaca-ftjob-a_b-12", "cgroup.procs", "");
    struct cgroup_home home = find();
    cgroup_each(&home, see, &seen);
    assert_int_equal(seen.count, 1);
    assert_string_equal(seen.job_id, "ftjob-a_b");
    assert_int_equal(seen.attempt, 12);
    assert_string_equal(seen.path, OWN "/ithaca-ftjob-a_b-12");
}

/* ---- the kernel's own ---------------------------------------------------------------------- */

/* A folder of the hierarchy where this process may make a group of its own; "" none. */
static void own_group(char ret_path[CGROUP_PATH_BYTES])
{
    char line[1024], point[256] = "";
    FILE *file = fopen("/proc/self/mountinfo", "re");
    while (file != NULL && point[0] == '\0' && fgets(line, sizeof line, file) != NULL)
        if (strstr(line, " - cgroup2 ") != NULL)
            (void)sscanf(line, "%*s %*s %*s %*s %255s", point);
    if (file != NULL)
        (void)fclose(file);
    char own[KERNEL_FILE_BYTES];
    kernel_file_read("/proc/self", "cgroup", own);
    const char *path = strstr(own, "0::/");
    ret_path[0] = '\0';
    if (point[0] == '\0' || path == NULL)
        return;
    (void)snprintf(ret_path, CGROUP_PATH_BYTES, "%s%.*s/ithaca-test-%d", point,
                   (int)strcspn(path + 3, "\n"), path + 3, (int)getpid());
    if (mkdir(ret_path, 0755) != 0)
        ret_path[0] = '\0';
}

/* In the group: ends with a grandchild in a session of its own that nobody is the parent of. */
static void leave_behind(const char *path)
{
    struct err err;
    if (cgroup_join(path, &err) != 0)
        _exit(1);
    if (fork() == 0) {
        (void)setsid();
        (void)signal(SIGTERM, SIG_IGN);
        if (fork() != 0)
            _exit(0);
        clock_sleep_ms(60000);
        _exit(0);
    }
    while (waitpid(-1, NULL, 0) > 0)
        continue;
    _exit(0);
}

static void test_real_group(void **state)
{
    struct err err = {0};
    char home_path[CGROUP_PATH_BYTES], path[CGROUP_PATH_BYTES];
    int status = 0;
    kernel_file_root("");
    own_group(home_path);
    if (home_path[0] == '\0') {
        print_message("no control groups of version 2 that can be written here\n");
        skip();
    }
    struct cgroup_home home = {.memory = false};
    (void)snprintf(home.path, sizeof home.path, "%s", home_path);
    int rc = cgroup_make(&home, "ftjob-real", 1, 0, path, &err);
    pid_t child = rc == 0 ? fork() : -1;
    if (child == 0)
        leave_behind(path);
    bool waited = child > 0 && waitpid(child, &status, 0) == child && status == 0;
    int32_t left = cgroup_first(path);
    bool populated = cgroup_is_populated(path);
    int ended = cgroup_end(path, 10000, &err);
    struct proc_stat stat;
    bool gone = proc_stat_read(left, &stat) != 0 || stat.state == 'Z';
    (void)rmdir(home_path);
    if (rc != 0 || ended != 0)
        fail_msg("%s", err.text);
    assert_true(waited && populated && left > 0 && left != child);
    assert_true(gone);
    assert_false(io_exists(path));
    assert_false(io_exists(home_path));
}

#define CGROUP_TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CGROUP_TEST(test_no_groups),
        CGROUP_TEST(test_not_delegated),
        CGROUP_TEST(test_places),
        CGROUP_TEST(test_settle),
        CGROUP_TEST(test_memory_cannot_be_counted),
        CGROUP_TEST(test_make),
        CGROUP_TEST(test_what_a_group_tells),
        CGROUP_TEST(test_each),
        CGROUP_TEST(test_real_group),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
