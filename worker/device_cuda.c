/* device_cuda: see device_cuda.h. dlerror() names the library that is missing; the sentence for the
 * user says which package that is. */
#include "worker/device_cuda.h"

#include "common/must.h"
#include "worker/ops.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
#define X(name) DEVICE_CUDA_OP_##name,
    OPS_TABLE(X)
#undef X
        DEVICE_CUDA_OP_COUNT
};

static const struct device_cuda_plugin *device_cuda_loaded; /* NULL: not yet */

static const char device_cuda_file[] = "ithaca-cuda.so";

static int device_cuda_path(char ret_path[PATH_MAX], struct err *err)
{
    const char *chosen = getenv("ITHACA_CUDA_PLUGIN");
    if (chosen != NULL) {
        int length = snprintf(ret_path, PATH_MAX, "%s", chosen);
        if (length >= PATH_MAX)
            return err_set(err, ERR_SETTING, "ITHACA_CUDA_PLUGIN is longer than a path can be");
        return 0;
    }
    ssize_t length = readlink("/proc/self/exe", ret_path, PATH_MAX - sizeof device_cuda_file);
    if (length < 0)
        return err_set_errno(err, errno, "/proc/self/exe");
    ret_path[length] = '\0';
    char *name = strrchr(ret_path, '/');
    memcpy(name == NULL ? ret_path : name + 1, device_cuda_file, sizeof device_cuda_file);
    return 0;
}

static int device_cuda_explain(const char *path, const char *reason, struct err *err)
{
    if (access(path, F_OK) != 0)
        return err_set(err, ERR_UNSUPPORTED,
                       "%s does not exist: this build has no CUDA backend; build where the CUDA "
                       "toolkit is, or run the job on the CPU",
                       path);
    if (strstr(reason, "libcudnn") != NULL)
        return err_set(err, ERR_UNSUPPORTED,
                       "cuDNN 9 is not on the library path (%s); install it or name its folder in "
                       "LD_LIBRARY_PATH",
                       reason);
    if (strstr(reason, "libnccl") != NULL)
        return err_set(err, ERR_UNSUPPORTED,
                       "NCCL is not on the library path (%s); install it or name its folder in "
                       "LD_LIBRARY_PATH",
                       reason);
    if (strstr(reason, "libcublasLt") != NULL)
        return err_set(err, ERR_UNSUPPORTED,
                       "cuBLASLt is not on the library path (%s); install the CUDA toolkit's "
                       "libraries or name their folder in LD_LIBRARY_PATH",
                       reason);
    return err_set(err, ERR_UNSUPPORTED, "the CUDA backend cannot be loaded: %s", reason);
}

static int device_cuda_load(struct err *err)
{
    char path[PATH_MAX];
    TRY(device_cuda_path(path, err));
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL)
        return device_cuda_explain(path, dlerror(), err);
    const struct device_cuda_plugin *plugin = dlsym(library, "ithaca_cuda_plugin");
    if (plugin == NULL || plugin->abi != DEVICE_CUDA_ABI ||
        plugin->op_count != DEVICE_CUDA_OP_COUNT)
        return err_set(err, ERR_INTERNAL,
                       "%s is of another build (interface %d with %d operations, needed %d with "
                       "%d); install worker and plug-in together",
                       path, plugin == NULL ? 0 : plugin->abi,
                       plugin == NULL ? 0 : plugin->op_count, DEVICE_CUDA_ABI,
                       DEVICE_CUDA_OP_COUNT);
    *plugin->must_last_words = must_last_words;
    device_cuda_loaded = plugin;
    return 0;
}

int device_cuda_open(int ordinal, struct device **ret, struct err *err)
{
    must(ordinal >= 0);
    TRY(device_cuda_load(err));
    return device_cuda_loaded->open(ordinal, ret, err);
}

int device_cuda_describe(struct device_cuda_facts *ret, struct err *err)
{
    TRY(device_cuda_load(err));
    device_cuda_loaded->describe(ret);
    return 0;
}

int device_cuda_coll_open(struct device *device, struct coll *control, int64_t timeout_ms,
                          struct coll **ret, struct err *err)
{
    must(device_cuda_loaded != NULL); /* it has opened `device` */
    return device_cuda_loaded->coll_open(device, control, timeout_ms, ret, err);
}
