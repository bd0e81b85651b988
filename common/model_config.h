/* model_config: a Hugging Face config.json (families llama, qwen2, qwen3) as a checked description.
 *
 * Unknown keys are ignored as transformers does, but settings that change the computation and that
 * we do not implement (other rope types, sliding windows in use, experts, quantisation, biases of
 * the MLP, activations) are refused by name, and so are settings that contradict each other. */
#pragma once
#include "common/err.h"
#include "common/json.h"
#include "common/model_rope.h"

#include <stdbool.h>
#include <stdint.h>

enum model_family {
    MODEL_FAMILY_LLAMA,
    MODEL_FAMILY_QWEN2,
    MODEL_FAMILY_QWEN3,
    MODEL_FAMILY_COUNT
};
const char *model_family_name(enum model_family family); /* config.json's model_type */

struct model_config {
    enum model_family family;
    int64_t vocab_size;        /* V: rows of the embedding, padding included */
    int64_t hidden_size;       /* h */
    int64_t intermediate_size; /* f */
    int64_t layers;            /* L */
    int64_t heads;             /* H query heads */
    int64_t kv_heads;          /* K, divides H */
    int64_t head_dim;          /* d, need not be h/H; even */
    int64_t context_max;       /* max_position_embeddings */
    double rms_norm_eps;
    double rope_theta;
    struct model_rope rope;   /* how positions are stretched */
    double initializer_range; /* std of a random initialisation */
    bool tie_embeddings;      /* lm_head is the embedding */
    bool qkv_bias;            /* qwen2; attention_bias of the others */
    bool o_bias;              /* attention_bias of llama and qwen3 */
    bool qk_norm;             /* qwen3 */
    int64_t bos_token;        /* bos_token_id, or -1 when absent */
    int64_t eos_token;        /* eos_token_id (of a list the first), or -1 */
    int64_t pad_token;        /* pad_token_id, or -1 */
};

/* json is the parsed config.json; what_for names it in errors (its path). ERR_MODEL, naming the
 * key. */
int model_config_parse(const json_t *json, const char *what_for, struct model_config *ret,
                       struct err *err);
int model_config_load(const char *model_dir, struct model_config *ret,
                      struct err *err); /* DIR/config.json */
json_t *model_config_json(
    const struct model_config *config); /* new reference; a config.json transformers loads */

/* inv_freq[i], i < head_dim/2, for training at seq_len (model_rope.h). */
void model_config_inv_freq(const struct model_config *config, int64_t seq_len, float *ret_inv_freq);

/* Built-in shapes by name ("tiny-llama"); NULL when unknown. */
const struct model_config *model_config_builtin(const char *name);
