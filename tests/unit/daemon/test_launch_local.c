/* launch_local: which variables of the daemon reach a worker, the files of an attempt and who may
 * read them, and what is started. */
#include "daemon/launch_local.h"

#include "common/io.h"
#include "common/launch_plan.h"
#include "common/mem.h"
#include "tests/lib/fake_host.h"
#include "tests/lib/folder.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* What launch_local_environment makes of a daemon's environment. */
static size_t filter(char **daemon, const char *const *own, size_t own_count,
                     const char *ret_variables[LAUNCH_ENVIRONMENT_MAX + 1])
{
    char **before = environ;
    environ = daemon;
    launch_local_environment(own, own_count, ret_variables);
    environ = before;
    size_t count = 0;
    while (ret_variables[count] != NULL)
        count++;
    return count;
}

static bool holds(const char *const *variables, const char *variable)
{
    for (; *variables != NULL; variables++)
        if (strcmp(*variables, variable) == 0)
            return true;
    return false;
}

static void test_secrets_stay(void **state)
{
    char *daemon[] = {"ITHACA_TOKEN=secret",
                      "AWS_SECRET_ACCESS_KEY=secret",
                      "HF_TOKEN=secret",
                      "SSH_AUTH_SOCK=/run/agent",
                      "LD_PRELOAD=/tmp/evil.so",
                      "ITHACA_WORKER=/usr/bin/ithaca-worker", /* a setting, not the worker's */
                      "ITHACA_DATA_DIR=/var/lib/ithaca",
                      "HOMEPAGE=x", /* each begins like a name that passes */
                      "PATHS=x",
                      "LANGUAGE=x",
                      "TZDIR=x",
                      "XPATH=x",
                      "PATH",
                      "LC",
                      "",
                      "=x",
                      "NOTIFY_SOCKET=/run/systemd/notify",
                      NULL};
    const char *variables[LAUNCH_ENVIRONMENT_MAX + 1];
    size_t count = filter(daemon, NULL, 0, variables);
    if (count != 0)
        fail_msg("\"%s\" reaches the worker", variables[0]);
}

/* The list of worker/rank_env.h among them: what the keeper does not get, no rank can get. */
static void test_what_passes(void **state)
{
    char *daemon[] = {"PATH=/bin",
                      "HOME=/root",
                      "LANG=C.UTF-8",
                      "LC_ALL=C",
                      "TZ=UTC",
                      "TMPDIR=/var/tmp",
                      "LD_LIBRARY_PATH=/opt/lib",
                      "CUDA_VISIBLE_DEVICES=2,3",
                      "NCCL_DEBUG=INFO",
                      "OMP_NUM_THREADS=7",
                      "GOMP_SPINCOUNT=0",
                      "OPENBLAS_CORETYPE=Haswell",
                      "ITHACA_WORKER_STEP_GATE=/tmp/gate",
                      "ASAN_OPTIONS=a=1",
                      "UBSAN_OPTIONS=b=1",
                      "TSAN_OPTIONS=c=1",
                      "PATH=", /* an empty value is a value */
                      NULL};
    const char *variables[LAUNCH_ENVIRONMENT_MAX + 1];
    size_t count = filter(daemon, NULL, 0, variables);
    for (size_t i = 0; daemon[i] != NULL; i++)
        if (!holds(variables, daemon[i]))
            fail_msg("\"%s\" does not reach the worker", daemon[i]);
    assert_int_equal(count, sizeof daemon / sizeof daemon[0] - 1);
}

static void test_own_variables_win(void **state)
{
    char *daemon[] = {"OMP_NUM_THREADS=7", "OMP_NUM=1", "OMP_NUM_THREADS_LIMIT=9", "PATH=/bin",
                      NULL};
    const char *const own[] = {"OMP_NUM_THREADS=2", "PATHOLOGICAL=yes"};
    const char *variables[LAUNCH_ENVIRONMENT_MAX + 1];
    assert_int_equal(filter(daemon, own, 2, variables), 5);
    assert_string_equal(variables[0], "OMP_NUM_THREADS=2");
    assert_string_equal(variables[1], "PATHOLOGICAL=yes"); /* our own are not filtered */
    assert_false(holds(variables, "OMP_NUM_THREADS=7"));
    assert_true(holds(variables, "OMP_NUM=1"));
    assert_true(holds(variables, "OMP_NUM_THREADS_LIMIT=9"));
    assert_true(holds(variables, "PATH=/bin"));
}

static void test_more_variables_than_fit(void **state)
{
    enum { MANY = LAUNCH_ENVIRONMENT_MAX + 40 };
    static char text[MANY][16];
    char *daemon[MANY + 1];
    const char *own[LAUNCH_ENVIRONMENT_MAX];
    const char *variables[LAUNCH_ENVIRONMENT_MAX + 1];
    for (int i = 0; i < MANY; i++) {
        (void)snprintf(text[i], sizeof text[i], "LC_%d=x", i);
        daemon[i] = text[i];
    }
    daemon[MANY] = NULL;
    own[0] = "A=1";
    assert_int_equal(filter(daemon, own, 1, variables), LAUNCH_ENVIRONMENT_MAX);
    assert_string_equal(variables[0], "A=1");
    assert_string_equal(variables[LAUNCH_ENVIRONMENT_MAX - 1], text[LAUNCH_ENVIRONMENT_MAX - 2]);
    for (int i = 0; i < LAUNCH_ENVIRONMENT_MAX; i++)
        own[i] = "A=1";
    assert_int_equal(filter(daemon, own, LAUNCH_ENVIRONMENT_MAX, variables),
                     LAUNCH_ENVIRONMENT_MAX); /* full of our own */
    char *nothing[] = {NULL};
    assert_int_equal(filter(nothing, NULL, 0, variables), 0);
}

/* ---- starting ---- */

static char spawned_output[256], spawned_mode[32], spawned_argument[256], spawned_program[64];
static bool spawned_environment; /* one that was filtered */

static int spawn_spy(struct host *host, const struct host_spawn *spawn, struct host_process **ret,
                     struct host_identity *ret_identity, struct err *err)
{
    (void)snprintf(spawned_program, sizeof spawned_program, "%s", spawn->argv[0]);
    (void)snprintf(spawned_mode, sizeof spawned_mode, "%s", spawn->argv[1]);
    (void)snprintf(spawned_argument, sizeof spawned_argument, "%s", spawn->argv[2]);
    (void)snprintf(spawned_output, sizeof spawned_output, "%s", spawn->output_path);
    assert_null(spawn->argv[3]);
    assert_null(spawn->input_path);
    assert_null(spawn->error_path);
    spawned_environment = spawn->envp != (const char *const *)environ;
    for (size_t i = 0; spawn->envp[i] != NULL; i++)
        spawned_environment = spawned_environment && strncmp(spawn->envp[i], "ITHACA_TOKEN", 12);
    return fake_spawn(host, spawn, ret, ret_identity, err);
}

static struct host_ops ops_with_spy;

static void fake_open(struct fake_host *fake)
{
    fake_host_init(fake);
    ops_with_spy = *fake->host.ops;
    ops_with_spy.spawn = spawn_spy;
    fake->host.ops = &ops_with_spy;
}

static void on_exit_never(void *context, const struct host_exit *ended)
{
    fail();
}

static mode_t mode_of(const char *name)
{
    char path[128];
    struct stat info;
    (void)snprintf(path, sizeof path, "%s%s", folder, name);
    assert_int_equal(stat(path, &info), 0);
    return info.st_mode & 0777;
}

static void test_start(void **state)
{
    struct fake_host fake;
    struct err err = {0};
    struct host_process *keeper = NULL;
    struct host_identity identity = {0};
    char attempt[96], path[128];
    CLEANUP(buf_done) struct buf plan;
    fake_open(&fake);
    assert_int_equal(setenv("ITHACA_TOKEN", "secret", 1), 0);
    (void)snprintf(attempt, sizeof attempt, "%s/jobs/a/attempt-1", folder);
    const struct launch_local launch = {.worker_program = "/w",
                                        .attempt_dir = attempt,
                                        .plan_text = "{\"secret\":1} and more",
                                        .plan_length = 12,
                                        .on_exit = on_exit_never};
    assert_int_equal(launch_local_start(&fake.host, &launch, &keeper, &identity, &err), 0);
    assert_int_equal(identity.pid, keeper->pid);
    assert_string_equal(spawned_program, "/w");
    assert_string_equal(spawned_mode, "--keep");
    assert_string_equal(spawned_argument, attempt);
    (void)snprintf(path, sizeof path, "%s/keeper.log", attempt);
    assert_string_equal(spawned_output, path);
    assert_true(spawned_environment);
    assert_int_equal(mode_of("/jobs/a/attempt-1"), 0700);
    assert_int_equal(mode_of("/jobs/a/attempt-1/plan.json"), 0600); /* it holds the secret */
    (void)snprintf(path, sizeof path, "%s/plan.json", attempt);
    buf_init(&plan, 1000);
    assert_int_equal(io_read_file(path, 1000, &plan, &err), 0);
    assert_string_equal(buf_str(&plan), "{\"secret\":1}");
}

static void test_start_fails(void **state)
{
    struct fake_host fake;
    struct err err = {0};
    struct host_process *keeper = NULL;
    struct host_identity identity;
    char attempt[96], file[96];
    fake_open(&fake);
    (void)snprintf(attempt, sizeof attempt, "%s/attempt-1", folder);
    (void)snprintf(file, sizeof file, "%s/file", folder);
    struct launch_local launch = {.worker_program = "/w", .attempt_dir = attempt, .plan_text = ""};
    fake.spawn_fails = true;
    assert_int_equal(launch_local_start(&fake.host, &launch, &keeper, &identity, &err), -ERR_IO);
    assert_non_null(strstr(err.text, "/w"));
    fake.spawn_fails = false;
    assert_int_equal(io_write_file(file, "x", 1, 0600, &err), 0);
    launch.attempt_dir = file;
    assert_int_not_equal(launch_local_start(&fake.host, &launch, &keeper, &identity, &err), 0);
    assert_non_null(strstr(err.text, file));
    assert_int_equal(fake.count, 0); /* nothing runs */
    launch.attempt_dir = attempt;
    int rc = -ERR_NOMEM;
    for (int64_t n = 1; rc == -ERR_NOMEM; n++) {
        int64_t live = mem_live();
        mem_fault_after(n);
        rc = launch_local_start(&fake.host, &launch, &keeper, &identity, &err);
        assert_int_equal(mem_fault_after(0), rc != 0);
        assert_int_equal(mem_live(), live);
        assert_true(n < 100);
    }
    assert_int_equal(rc, 0);
}

static void test_clean(void **state)
{
    struct launch_plan plan = {.world = 1};
    launch_local_clean(&plan); /* no name: nothing to do */
    (void)snprintf(plan.shm_name, sizeof plan.shm_name, "/ithaca-launch-%d", (int)getpid());
    int fd = shm_open(plan.shm_name, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    (void)close(fd);
    launch_local_clean(&plan);
    assert_int_equal(shm_open(plan.shm_name, O_RDWR | O_CLOEXEC, 0600), -1);
    assert_int_equal(errno, ENOENT);
    launch_local_clean(&plan); /* again is fine */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_secrets_stay),
        cmocka_unit_test(test_what_passes),
        cmocka_unit_test(test_own_variables_win),
        cmocka_unit_test(test_more_variables_than_fit),
        FOLDER_TEST(test_start),
        FOLDER_TEST(test_start_fails),
        cmocka_unit_test(test_clean),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
