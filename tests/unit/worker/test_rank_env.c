/* rank_env: what is kept, what is set, what is left out, and failed allocations. */
#include "common/mem.h"
#include "tests/lib/cmocka.h"
#include "worker/cpu/blas_env.h"
#include "worker/rank_env.h"

#include <stdlib.h>
#include <string.h>

/* The value of a setting; NULL when it is not there. It must not be there twice. */
static const char *value_of(char **env, const char *name)
{
    const char *value = NULL;
    size_t length = strlen(name);
    for (; *env != NULL; env++) {
        if (strncmp(*env, name, length) != 0 || (*env)[length] != '=')
            continue;
        assert_null(value);
        value = *env + length + 1;
    }
    return value;
}

static void test_what_is_in_it(void **state)
{
    struct err err;
    char **env = NULL;
    assert_int_equal(clearenv(), 0);
    assert_int_equal(setenv("PATH", "/bin", 1), 0);
    assert_int_equal(setenv("CUDA_VISIBLE_DEVICES", "1", 1), 0);
    assert_int_equal(setenv("CUDA_DEVICE_ORDER", "FASTEST_FIRST", 1), 0);
    assert_int_equal(setenv("CUDA_LAUNCH_BLOCKING", "1", 1), 0);
    assert_int_equal(setenv("PATHS", "no", 1), 0);
    assert_int_equal(setenv("OMP_NUM_THREADS", "64", 1), 0);
    assert_int_equal(setenv("LD_PRELOAD", "/no.so", 1), 0);
    assert_int_equal(setenv("SECRET", "no", 1), 0);
    assert_int_equal(rank_env_new(5, "GPU-b,GPU-a", 0, &env, &err), 0);
    assert_string_equal(value_of(env, "PATH"), "/bin");
    assert_string_equal(value_of(env, "CUDA_LAUNCH_BLOCKING"), "1");
    assert_string_equal(value_of(env, "CUDA_DEVICE_ORDER"), "PCI_BUS_ID");
    assert_string_equal(value_of(env, "CUDA_VISIBLE_DEVICES"), "GPU-b,GPU-a");
    assert_string_equal(value_of(env, "OMP_NUM_THREADS"), "5");
    assert_string_equal(value_of(env, "OMP_WAIT_POLICY"), "passive");
    assert_null(value_of(env, "NCCL_RAS_ADDR"));
    assert_null(value_of(env, "PATHS"));
    assert_null(value_of(env, "LD_PRELOAD"));
    assert_null(value_of(env, "SECRET"));
    const char *core = cpu_blas_env_core();
    if (core != NULL)
        assert_string_equal(value_of(env, "OPENBLAS_CORETYPE"), core);
    else
        assert_null(value_of(env, "OPENBLAS_CORETYPE"));
    rank_env_free(env);
    assert_int_equal(mem_live(), 0);
}

static void test_core_type_of_the_user_wins(void **state)
{
    struct err err;
    char **env = NULL;
    assert_int_equal(setenv("OPENBLAS_CORETYPE", "Haswell", 1), 0);
    assert_int_equal(rank_env_new(1, "", 0, &env, &err), 0);
    assert_string_equal(value_of(env, "OPENBLAS_CORETYPE"), "Haswell");
    rank_env_free(env);
    assert_int_equal(unsetenv("OPENBLAS_CORETYPE"), 0);
}

static void test_nccl(void **state)
{
    struct err err;
    char **env = NULL;
    assert_int_equal(rank_env_new(1, "0,1", 4711, &env, &err), 0);
    assert_string_equal(value_of(env, "NCCL_RAS_ADDR"), "127.0.0.1:4711");
    assert_string_equal(value_of(env, "NCCL_SOCKET_IFNAME"), "=lo");
    assert_string_equal(value_of(env, "NCCL_DEBUG"), "WARN");
    assert_string_equal(value_of(env, "NCCL_BUFFSIZE"), "1048576");
    assert_string_equal(value_of(env, "NCCL_PROTO"), "^LL128");
    assert_string_equal(value_of(env, "NCCL_LL128_BUFFSIZE"), "65536");
    rank_env_free(env);
    assert_int_equal(setenv("NCCL_DEBUG", "INFO", 1), 0);
    assert_int_equal(rank_env_new(1, "0,1", 4711, &env, &err), 0);
    assert_string_equal(value_of(env, "NCCL_DEBUG"), "INFO"); /* once: value_of looks */
    rank_env_free(env);
    assert_int_equal(unsetenv("NCCL_DEBUG"), 0);
}

static void test_nccl_here(void **state)
{
    assert_int_equal(setenv("NCCL_BUFFSIZE", "4194304", 1), 0);
    rank_env_nccl_here();
    assert_string_equal(getenv("NCCL_BUFFSIZE"), "4194304"); /* the user's */
    assert_string_equal(getenv("NCCL_PROTO"), "^LL128");
    assert_int_equal(unsetenv("NCCL_BUFFSIZE"), 0);
    assert_int_equal(unsetenv("NCCL_PROTO"), 0);
    assert_int_equal(unsetenv("NCCL_LL128_BUFFSIZE"), 0);
}

static void test_allocation_failures(void **state)
{
    struct err err;
    char **env = NULL;
    int walked = 0, rc;
    do {
        mem_fault_after(++walked);
        rc = rank_env_new(2, "0,1", 9, &env, &err);
        mem_fault_after(0);
        if (rc != 0) {
            assert_int_equal(rc, -ERR_NOMEM);
            assert_int_equal(mem_live(), 0);
        }
    } while (rc != 0);
    assert_true(walked > 3);
    rank_env_free(env);
    rank_env_free(NULL);
    assert_int_equal(mem_live(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_in_it),
        cmocka_unit_test(test_core_type_of_the_user_wins),
        cmocka_unit_test(test_nccl),
        cmocka_unit_test(test_nccl_here),
        cmocka_unit_test(test_allocation_failures),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
