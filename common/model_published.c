/* model_published: a table; see model_published.h. */
#include "common/model_published.h"

#include <string.h>

#define ROW(name_, family_, tied, bias, norm, vocab, hidden, mlp, layers_, q, kv, d, context, eps, \
            base)                                                                                  \
    {                                                                                              \
        .name = name_, .config = {                                                                 \
            .family = MODEL_FAMILY_##family_,                                                      \
            .vocab_size = vocab,                                                                   \
            .hidden_size = hidden,                                                                 \
            .intermediate_size = mlp,                                                              \
            .layers = layers_,                                                                     \
            .heads = q,                                                                            \
            .kv_heads = kv,                                                                        \
            .head_dim = d,                                                                         \
            .context_max = context,                                                                \
            .rms_norm_eps = eps,                                                                   \
            .rope_theta = base,                                                                    \
            .initializer_range = 0.02,                                                             \
            .tie_embeddings = tied,                                                                \
            .qkv_bias = bias,                                                                      \
            .qk_norm = norm,                                                                       \
            .bos_token = -1,                                                                       \
            .eos_token = -1,                                                                       \
            .pad_token = -1                                                                        \
        }                                                                                          \
    }
/* name, tied, vocabulary, hidden, MLP, layers, heads, key/value heads, head size, context, eps,
 * base */
#define LLAMA(name, tied, ...) ROW(name, LLAMA, tied, false, false, __VA_ARGS__)
#define QWEN2(name, tied, ...) ROW(name, QWEN2, tied, true, false, __VA_ARGS__)
#define QWEN3(name, tied, ...) ROW(name, QWEN3, tied, false, true, __VA_ARGS__)

const struct model_published model_published[] = {
    LLAMA("llama3.2-1b", true, 128256, 2048, 8192, 16, 32, 8, 64, 131072, 1e-05, 500000),
    LLAMA("llama3.2-3b", true, 128256, 3072, 8192, 28, 24, 8, 128, 131072, 1e-05, 500000),
    LLAMA("llama3-8b", false, 128256, 4096, 14336, 32, 32, 8, 128, 8192, 1e-05, 500000),
    LLAMA("llama3-70b", false, 128256, 8192, 28672, 80, 64, 8, 128, 8192, 1e-05, 500000),
    QWEN2("qwen2.5-0.5b", true, 151936, 896, 4864, 24, 14, 2, 64, 32768, 1e-06, 1000000),
    QWEN2("qwen2.5-1.5b", true, 151936, 1536, 8960, 28, 12, 2, 128, 131072, 1e-06, 1000000),
    QWEN2("qwen2.5-3b", true, 151936, 2048, 11008, 36, 16, 2, 128, 32768, 1e-06, 1000000),
    QWEN2("qwen2.5-7b", false, 152064, 3584, 18944, 28, 28, 4, 128, 131072, 1e-06, 1000000),
    QWEN2("qwen2.5-14b", false, 152064, 5120, 13824, 48, 40, 8, 128, 131072, 1e-05, 1000000),
    QWEN2("qwen2.5-32b", false, 152064, 5120, 27648, 64, 40, 8, 128, 131072, 1e-05, 1000000),
    QWEN2("qwen2.5-72b", false, 152064, 8192, 29568, 80, 64, 8, 128, 131072, 1e-05, 1000000),
    QWEN3("qwen3-0.6b", true, 151936, 1024, 3072, 28, 16, 8, 128, 40960, 1e-06, 1000000),
    QWEN3("qwen3-1.7b", true, 151936, 2048, 6144, 28, 16, 8, 128, 40960, 1e-06, 1000000),
    QWEN3("qwen3-4b", true, 151936, 2560, 9728, 36, 32, 8, 128, 40960, 1e-06, 1000000),
    QWEN3("qwen3-8b", false, 151936, 4096, 12288, 36, 32, 8, 128, 40960, 1e-06, 1000000),
    QWEN3("qwen3-14b", false, 151936, 5120, 17408, 40, 40, 8, 128, 40960, 1e-06, 1000000),
    QWEN3("qwen3-32b", false, 151936, 5120, 25600, 64, 64, 8, 128, 40960, 1e-06, 1000000),
};
const size_t model_published_count = sizeof model_published / sizeof model_published[0];

const struct model_config *model_published_find(const char *name)
{
    for (size_t i = 0; i < model_published_count; i++)
        if (strcmp(model_published[i].name, name) == 0)
            return &model_published[i].config;
    return NULL;
}
