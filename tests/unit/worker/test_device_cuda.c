/* device_cuda: what a user reads where the CUDA backend cannot be had. Runs without a GPU; with
 * one, opening succeeds and what a device promises about memory is checked. */
#include "tests/lib/cmocka.h"
#include "worker/device_cuda.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void expect_sentence(const char *plugin, enum err_code code, const char *part)
{
    struct device *device = NULL;
    struct err err = {0};
    assert_int_equal(setenv("ITHACA_CUDA_PLUGIN", plugin, 1), 0);
    assert_int_equal(device_cuda_open(0, &device, &err), -(int)code);
    assert_null(device);
    if (strstr(err.text, part) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", err.text, part);
}

static void test_missing(void **state)
{
    expect_sentence("/nowhere/ithaca-cuda.so", ERR_UNSUPPORTED,
                    "/nowhere/ithaca-cuda.so does not exist");
}

static void test_not_a_library(void **state)
{
    char path[] = "/tmp/ithaca-test-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, "text", 4), 4);
    expect_sentence(path, ERR_UNSUPPORTED, "cannot be loaded");
    assert_int_equal(unlink(path), 0);
    (void)close(fd);
}

static void test_another_build(void **state)
{
    expect_sentence("libm.so.6", ERR_INTERNAL, "is of another build");
}

/* Pinned memory of several pieces: copies from any place to any other, over their ends too. */
static void check_pinned(struct device *device)
{
    enum { MIB = 1 << 20, HOST = 200 * MIB, LONGEST = 150 * MIB };
    static const int64_t copies[][2] = {{100 * MIB, 1000},
                                        {0, LONGEST},
                                        {63 * MIB + 100, 2 * MIB},
                                        {128 * MIB - 1, 2},
                                        {50 * MIB, LONGEST}};
    const struct device_ops *dev = device->dev;
    struct err err = {0};
    char *host = dev->host_alloc(device, HOST, &err), *back = dev->host_alloc(device, HOST, &err);
    char *memory = dev->alloc(device, LONGEST, &err);
    assert_true(host != NULL && back != NULL && memory != NULL);
    for (int64_t i = 0; i < HOST; i++)
        host[i] = (char)(i * 7 + i / 1000);
    for (size_t i = 0; i < sizeof copies / sizeof copies[0]; i++) {
        size_t at = (size_t)copies[i][0], bytes = (size_t)copies[i][1];
        memset(back, 0, HOST);
        assert_int_equal(dev->copy(device, NULL, memory, host + at, bytes, &err), 0);
        assert_int_equal(dev->copy(device, NULL, back + HOST - bytes, memory, bytes, &err), 0);
        assert_int_equal(dev->sync(device, NULL, &err), 0);
        assert_memory_equal(back + HOST - bytes, host + at, bytes);
        assert_int_equal(back[HOST - bytes - 1], 0);
    }
    dev->free(device, memory);
    dev->host_free(device, host);
    dev->host_free(device, back);
}

/* Whether this process has a context on the first GPU; -1: the driver does not say. */
static int has_context_on_first(void)
{
    int (*get)(int *, int) = NULL, (*state)(int, unsigned *, int *) = NULL;
    int gpu = 0, active = 0;
    unsigned flags = 0;
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL), *symbol;
    if (driver == NULL)
        return -1;
    symbol = dlsym(driver, "cuDeviceGet");
    memcpy(&get, &symbol, sizeof symbol);
    symbol = dlsym(driver, "cuDevicePrimaryCtxGetState");
    memcpy(&state, &symbol, sizeof symbol);
    if (get == NULL || state == NULL || get(&gpu, 0) != 0 || state(gpu, &flags, &active) != 0)
        return -1;
    return active;
}

/* A rank on the second GPU takes nothing of the first, pinned memory of many threads included.
 * In a process of its own, which has used no other GPU. */
static void test_second_gpu(void **state)
{
    enum { NO_GPU = 77, BAD = 1, BYTES = 1 << 30 };
    const char *built = *state;
    (void)fflush(NULL);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        struct device *device = NULL;
        struct err err = {0};
        if (built != NULL ? setenv("ITHACA_CUDA_PLUGIN", built, 1) != 0
                          : unsetenv("ITHACA_CUDA_PLUGIN") != 0)
            _exit(BAD);
        if (device_cuda_open(1, &device, &err) != 0)
            _exit(err.code == ERR_UNSUPPORTED ? NO_GPU : BAD);
        void *memory = device->dev->host_alloc(device, BYTES, &err);
        bool alone = memory != NULL && has_context_on_first() == 0;
        device->dev->host_free(device, memory);
        device->dev->close(device);
        _exit(alone ? 0 : BAD);
    }
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == NO_GPU)
        skip();
    assert_int_equal(WEXITSTATUS(status), 0);
}

/* The plug-in of this build, wherever it is: it opens, or says one of the things that a user can
 * mend. */
static void test_plugin(void **state)
{
    const char *built = *state;
    struct device *device = NULL;
    struct err err = {0};
    if (built != NULL)
        assert_int_equal(setenv("ITHACA_CUDA_PLUGIN", built, 1), 0);
    else
        assert_int_equal(unsetenv("ITHACA_CUDA_PLUGIN"), 0);
    if (device_cuda_open(0, &device, &err) != 0) {
        printf("%s\n", err.text);
        assert_int_equal(err.code, ERR_UNSUPPORTED);
        assert_null(device);
        return;
    }
    assert_string_equal(device->dev->name, "cuda");
    assert_int_equal(device->dev->act_dtype, DTYPE_BF16);
    int64_t before = device->dev->bytes_in_use(device);
    void *memory = device->dev->alloc(device, 1000, &err);
    assert_non_null(memory);
    assert_int_equal((uintptr_t)memory % 256, 0);
    assert_int_equal(device->dev->bytes_in_use(device), before + 1000);
    assert_null(device->dev->alloc(device, (size_t)1 << 50, &err));
    assert_int_equal(err.code, ERR_NOMEM);
    assert_non_null(strstr(err.text, "1125899906842624 bytes asked for"));
    check_pinned(device);
    device->dev->free(device, memory);
    assert_int_equal(device->dev->bytes_in_use(device), before);
    device->dev->close(device);
}

int main(void)
{
    const char *built = getenv("ITHACA_CUDA_PLUGIN");
    static char kept[4096]; /* tests set the variable */
    (void)snprintf(kept, sizeof kept, "%s", built == NULL ? "" : built);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_missing),
        cmocka_unit_test(test_not_a_library),
        cmocka_unit_test(test_another_build),
        cmocka_unit_test_prestate(test_second_gpu, built == NULL ? NULL : kept),
        cmocka_unit_test_prestate(test_plugin, built == NULL ? NULL : kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
