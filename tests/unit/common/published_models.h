/* published_models: sizes of published models and the totals they must come to; facts of their
 * config.json files in a layout of our own. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

struct published_model {
    const char *name;
    const char *family;
    int64_t vocab, hidden, mlp, layers, heads, kv_heads;
    int64_t head_dim;    /* as it comes out */
    bool head_dim_given; /* the file has the key */
    bool tied;
    double eps, theta;
    int64_t context;
    const char *rope; /* rope_type of the file, or NULL */
    int64_t parameters;
    const char *degrees; /* Ulysses degrees of 8 ranks */
};

static const struct published_model published_models[] = {
#define X(model, of_family, of_vocab, of_hidden, of_mlp, of_layers, of_heads, of_kv_heads,   \
          of_head_dim, given, is_tied, of_eps, of_theta, of_context, of_rope, of_parameters, \
          of_degrees)                                                                        \
    {.name = model,                                                                          \
     .family = of_family,                                                                    \
     .vocab = of_vocab,                                                                      \
     .hidden = of_hidden,                                                                    \
     .mlp = of_mlp,                                                                          \
     .layers = of_layers,                                                                    \
     .heads = of_heads,                                                                      \
     .kv_heads = of_kv_heads,                                                                \
     .head_dim = of_head_dim,                                                                \
     .head_dim_given = given,                                                                \
     .tied = is_tied,                                                                        \
     .eps = of_eps,                                                                          \
     .theta = of_theta,                                                                      \
     .context = of_context,                                                                  \
     .rope = of_rope,                                                                        \
     .parameters = of_parameters,                                                            \
     .degrees = of_degrees},
#include "tests/unit/common/published_models.def"
#undef X
};
