/* cuda_ranks: how programs that train on GPUs start: how many GPUs there are, NCCL's settings,
 * memory that ranks share with the test, a filter of tests, and the model that they train.
 *
 *     static struct seen *seen;                           of each rank, written by its process
 *     int main(int argc, char **argv)
 *     {
 *         seen = cuda_ranks_begin(argc, argv, sizeof *seen);
 *         return cuda_ranks_gpus == 0 ? CUDA_RANKS_SKIPPED : cmocka_run_group_tests(...);
 *     } */
#pragma once
#include "common/must.h"
#include "tests/dist/parity_scene.h"
#include "worker/device_cuda.h"
#include "worker/rank_env.h"

enum { CUDA_RANKS_MAX = 2, CUDA_RANKS_SKIPPED = 77 };

static int cuda_ranks_gpus; /* that can be used, at most CUDA_RANKS_MAX */

/* They are looked for in a process of its own: CUDA does not live through fork(). Prints why where
 * there is none; that one is there and does not open is a fault. */
static inline int cuda_ranks_count(void)
{
    (void)fflush(NULL);
    pid_t pid = fork();
    must(pid >= 0);
    if (pid == 0) {
        int count = 0;
        struct err err = {0};
        struct device *device = NULL;
        while (count < CUDA_RANKS_MAX && device_cuda_open(count, &device, &err) == 0)
            count++;
        if (count == 0)
            printf("skipped: %s\n", err.text);
        must(count > 0 || err.code == ERR_UNSUPPORTED);
        (void)fflush(NULL);
        _exit(count);
    }
    int status = 0;
    must(waitpid(pid, &status, 0) == pid && WIFEXITED(status));
    return WEXITSTATUS(status);
}

/* Zeros of `bytes` a rank, shared with forked processes until this one ends. Which tests run:
 * "test_lora", "*two*" in the first argument or in ITHACA_TEST_FILTER; all without. */
static inline void *cuda_ranks_begin(int argc, char **argv, size_t bytes)
{
    cmocka_set_test_filter(argc > 1 ? argv[1] : getenv("ITHACA_TEST_FILTER"));
    rank_env_nccl_here();
    cuda_ranks_gpus = cuda_ranks_count();
    void *seen = mmap(NULL, CUDA_RANKS_MAX * bytes, PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    must(seen != MAP_FAILED);
    return seen;
}

/* Tiny, with grouped heads of a size that cuDNN takes. */
static inline struct model_config cuda_ranks_model(enum model_family family, int64_t layers)
{
    return (struct model_config){.family = family,
                                 .vocab_size = PARITY_VOCAB,
                                 .hidden_size = 128,
                                 .intermediate_size = 96,
                                 .layers = layers,
                                 .heads = 4,
                                 .kv_heads = 2,
                                 .head_dim = 64,
                                 .context_max = 4096,
                                 .rms_norm_eps = 1e-5,
                                 .rope_theta = 10000,
                                 .qkv_bias = family == MODEL_FAMILY_QWEN2,
                                 .qk_norm = family == MODEL_FAMILY_QWEN3,
                                 .initializer_range = 0.08};
}
