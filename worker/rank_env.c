/* rank_env: see rank_env.h. */
#include "worker/rank_env.h"

#include "common/mem.h"
#include "worker/cpu/blas_env.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { RANK_ENV_ADDED = 12 }; /* settings of our own, and the NULL */

static const char *const rank_env_kept[] = {
    "PATH=",
    "HOME=",
    "LANG=",
    "LC_",
    "TZ=",
    "TMPDIR=",
    "LD_LIBRARY_PATH=",
    "CUDA_",
    "NCCL_",
    "GOMP_",
    "ITHACA_WORKER_",
    "ASAN_OPTIONS=",
    "UBSAN_OPTIONS=",
    "TSAN_OPTIONS=",
};

/* The plan says which GPUs there are. */
static const char *const rank_env_replaced[] = {"CUDA_VISIBLE_DEVICES=", "CUDA_DEVICE_ORDER="};

static bool rank_env_keeps(const char *setting)
{
    for (size_t i = 0; i < sizeof rank_env_replaced / sizeof rank_env_replaced[0]; i++)
        if (strncmp(setting, rank_env_replaced[i], strlen(rank_env_replaced[i])) == 0)
            return false;
    for (size_t i = 0; i < sizeof rank_env_kept / sizeof rank_env_kept[0]; i++)
        if (strncmp(setting, rank_env_kept[i], strlen(rank_env_kept[i])) == 0)
            return true;
    return false;
}

/* Takes the setting over; NULL is a failed allocation. */
static int rank_env_add(char **env, char *setting, struct err *err)
{
    if (setting == NULL)
        return mem_fail(err, 64, "the environment of ranks");
    while (*env != NULL)
        env++;
    *env = setting;
    return 0;
}

/* Unless it is there. */
static int rank_env_default(char **env, const char *name, char *setting, struct err *err)
{
    if (getenv(name) == NULL)
        return rank_env_add(env, setting, err);
    mem_free(setting);
    return 0;
}

/* Small buffers of NCCL's, of which each peer has one a channel; LL128's are then too small to use.
 */
static const char *const rank_env_buffers[][2] = {
    {"NCCL_BUFFSIZE", "1048576"},
    {"NCCL_PROTO", "^LL128"},
    {"NCCL_LL128_BUFFSIZE", "65536"},
};
enum { RANK_ENV_BUFFERS = sizeof rank_env_buffers / sizeof rank_env_buffers[0] };

void rank_env_nccl_here(void)
{
    for (size_t i = 0; i < RANK_ENV_BUFFERS; i++)
        (void)setenv(rank_env_buffers[i][0], rank_env_buffers[i][1], false);
}

static int rank_env_nccl(char **env, int ras_port, struct err *err)
{
    for (size_t i = 0; i < RANK_ENV_BUFFERS; i++) {
        const char *name = rank_env_buffers[i][0];
        TRY(rank_env_default(env, name, mem_printf("%s=%s", name, rank_env_buffers[i][1]), err));
    }
    TRY(rank_env_default(env, "NCCL_RAS_ADDR", mem_printf("NCCL_RAS_ADDR=127.0.0.1:%d", ras_port),
                         err));
    TRY(rank_env_default(env, "NCCL_SOCKET_IFNAME", mem_strdup("NCCL_SOCKET_IFNAME==lo"), err));
    return rank_env_default(env, "NCCL_DEBUG", mem_strdup("NCCL_DEBUG=WARN"), err);
}

static int rank_env_fill(char **env, uint32_t threads, const char *gpus, int ras_port,
                         struct err *err)
{
    for (char **setting = environ; *setting != NULL; setting++)
        if (rank_env_keeps(*setting))
            TRY(rank_env_add(env, mem_strdup(*setting), err));
    const char *core = cpu_blas_env_core();
    if (core == NULL)
        core = getenv("OPENBLAS_CORETYPE");
    if (core != NULL && core[0] != '\0')
        TRY(rank_env_add(env, mem_printf("OPENBLAS_CORETYPE=%s", core), err));
    TRY(rank_env_add(env, mem_printf("OMP_NUM_THREADS=%u", threads), err));
    TRY(rank_env_add(env, mem_strdup("CUDA_DEVICE_ORDER=PCI_BUS_ID"), err));
    TRY(rank_env_add(env, mem_printf("CUDA_VISIBLE_DEVICES=%s", gpus), err));
    if (ras_port != 0)
        TRY(rank_env_nccl(env, ras_port, err));
    return rank_env_add(env, mem_strdup("OMP_WAIT_POLICY=passive"), err);
}

int rank_env_new(uint32_t threads, const char *gpus, int ras_port, char ***ret_env, struct err *err)
{
    size_t inherited = 0;
    while (environ[inherited] != NULL)
        inherited++;
    char **env = mem_new(inherited + RANK_ENV_ADDED, sizeof *env);
    if (env == NULL)
        return mem_fail(err, inherited * sizeof *env, "the environment of ranks");
    int rc = rank_env_fill(env, threads, gpus, ras_port, err);
    if (rc != 0)
        rank_env_free(env);
    else
        *ret_env = env;
    return rc;
}

void rank_env_free(char **env)
{
    for (char **setting = env; env != NULL && *setting != NULL; setting++)
        mem_free(*setting);
    mem_free(env);
}
