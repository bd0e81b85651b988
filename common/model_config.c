/* model_config: config.json in the order a reader of one would ask: which family, which sizes,
 * which constants, and is there anything in it that we would compute differently from transformers.
 *
 * Keys that are absent get the value transformers would give them, where all three families agree
 * or the family's own is known; sizes are never guessed. */
#include "common/model_config.h"

#include "common/io.h"
#include "common/limits.h"
#include "common/mem.h"
#include "common/must.h"

#include <float.h>
#include <string.h>

/* What differs between families. */
static const struct model_family_row {
    const char *name;         /* model_type */
    const char *architecture; /* the causal-language-model class */
    bool qkv_bias;
    bool qk_norm;
    bool bias_key;           /* attention_bias: true adds biases to q, k, v and o */
    int64_t head_dim_absent; /* when the key is absent; 0: hidden_size / heads */
} model_families[MODEL_FAMILY_COUNT] = {
    [MODEL_FAMILY_LLAMA] = {.name = "llama", .architecture = "LlamaForCausalLM", .bias_key = true},
    [MODEL_FAMILY_QWEN2] = {.name = "qwen2", .architecture = "Qwen2ForCausalLM", .qkv_bias = true},
    [MODEL_FAMILY_QWEN3] = {.name = "qwen3",
                            .architecture = "Qwen3ForCausalLM",
                            .qk_norm = true,
                            .bias_key = true,
                            .head_dim_absent = 128},
};

static const struct {
    const char *name;
    struct model_config config;
} model_builtins[] = {
    {.name = "tiny-llama",
     .config = {.family = MODEL_FAMILY_LLAMA,
                .vocab_size = 264,
                .hidden_size = 256,
                .intermediate_size = 704,
                .layers = 4,
                .heads = 8,
                .kv_heads = 4,
                .head_dim = 32,
                .context_max = 8192,
                .rms_norm_eps = 1e-5,
                .rope_theta = 10000,
                .initializer_range = 0.05, /* near 1/sqrt(h) */
                .tie_embeddings = true,
                .bos_token = 256,
                .eos_token = 260,
                .pad_token = 261}},
};

const char *model_family_name(enum model_family family)
{
    must(family >= 0 && family < MODEL_FAMILY_COUNT);
    return model_families[family].name;
}

const struct model_config *model_config_builtin(const char *name)
{
    for (size_t i = 0; i < sizeof model_builtins / sizeof model_builtins[0]; i++)
        if (strcmp(model_builtins[i].name, name) == 0)
            return &model_builtins[i].config;
    return NULL;
}

static bool model_config_has(const json_t *json, const char *key)
{
    const json_t *value = json_object_get(json, key);
    return value != NULL && !json_is_null(value);
}

/* An integer of 1..max; a null counts as absent. absent 0: the key must be there. */
static int model_config_size(const json_t *json, const char *key, int64_t absent, int64_t max,
                             int64_t *ret, struct err *err)
{
    if (absent > 0 && !model_config_has(json, key)) {
        *ret = absent;
        return 0;
    }
    int64_t value = 0;
    TRY(json_get_i64(json, key, ERR_MODEL, &value, err));
    if (value < 1 || value > max)
        return err_set_field(err, ERR_MODEL, key, "\"%s\" is %lld; it must be 1 to %lld", key,
                             (long long)value, (long long)max);
    *ret = value;
    return 0;
}

static int model_config_real(const json_t *json, const char *key, double absent, bool zero_allowed,
                             double *ret, struct err *err)
{
    double value = absent;
    if (model_config_has(json, key))
        TRY(json_get_f64(json, key, ERR_MODEL, &value, err));
    if (!(value >= FLT_MIN && value <= FLT_MAX) && !(value == 0 && zero_allowed))
        return err_set_field(err, ERR_MODEL, key, "\"%s\" is %g; it must be %s zero, and a float32",
                             key, value, zero_allowed ? "at least" : "above");
    *ret = value;
    return 0;
}

static int model_config_flag(const json_t *json, const char *key, bool absent, bool *ret,
                             struct err *err)
{
    *ret = absent;
    return model_config_has(json, key) ? json_get_bool(json, key, ERR_MODEL, ret, err) : 0;
}

/* A token id, or the first of a list of them; -1 when absent. */
static int model_config_token(const json_t *json, const char *key, int64_t *ret, struct err *err)
{
    const json_t *value = json_object_get(json, key);
    if (json_is_array(value))
        value = json_array_get(value, 0);
    *ret = -1;
    if (value == NULL || json_is_null(value))
        return 0;
    if (!json_is_integer(value) || json_integer_value(value) < -1)
        return err_set_field(err, ERR_MODEL, key, "\"%s\" must be a token id or a list of them",
                             key);
    *ret = json_integer_value(value);
    return 0;
}

static int model_config_family(const json_t *json, enum model_family *ret, struct err *err)
{
    const char *type = NULL;
    TRY(json_get_string(json, "model_type", ERR_MODEL, &type, err));
    int family = 0;
    while (family < MODEL_FAMILY_COUNT && strcmp(model_families[family].name, type) != 0)
        family++;
    if (family == MODEL_FAMILY_COUNT)
        return err_set_field(err, ERR_MODEL, "model_type",
                             "model_type \"%s\" is not served; served: llama, qwen2, qwen3", type);
    const json_t *classes = json_object_get(json, "architectures");
    const json_t *name = json_array_get(classes, 0);
    if (json_is_string(name) &&
        strcmp(json_string_value(name), model_families[family].architecture) != 0)
        return err_set_field(err, ERR_MODEL, "architectures",
                             "architecture \"%s\" is not served; %s must be %s",
                             json_string_value(name), type, model_families[family].architecture);
    *ret = (enum model_family)family;
    return 0;
}

static int model_config_sizes(const json_t *json, struct model_config *config, struct err *err)
{
    const int64_t width = LIMIT_MODEL_WIDTH;
    TRY(model_config_size(json, "vocab_size", 0, LIMIT_VOCAB, &config->vocab_size, err));
    TRY(model_config_size(json, "hidden_size", 0, width, &config->hidden_size, err));
    TRY(model_config_size(json, "intermediate_size", 0, width, &config->intermediate_size, err));
    TRY(model_config_size(json, "num_hidden_layers", 0, LIMIT_LAYERS, &config->layers, err));
    TRY(model_config_size(json, "num_attention_heads", 0, LIMIT_HEADS, &config->heads, err));
    TRY(model_config_size(json, "num_key_value_heads", config->heads, width, &config->kv_heads,
                          err));
    TRY(model_config_size(json, "max_position_embeddings", 0, INT32_MAX, &config->context_max,
                          err));
    if (config->kv_heads > config->heads || config->heads % config->kv_heads != 0)
        return err_set_field(err, ERR_MODEL, "num_key_value_heads",
                             "num_key_value_heads %lld does not divide num_attention_heads %lld",
                             (long long)config->kv_heads, (long long)config->heads);
    bool absent = json_object_get(json, "head_dim") == NULL;
    int64_t derived = absent ? model_families[config->family].head_dim_absent : 0;
    if (derived == 0 && !model_config_has(json, "head_dim")) {
        if (config->hidden_size % config->heads != 0)
            return err_set_field(err, ERR_MODEL, "num_attention_heads",
                                 "hidden_size %lld is not a multiple of num_attention_heads %lld "
                                 "and head_dim is not given",
                                 (long long)config->hidden_size, (long long)config->heads);
        derived = config->hidden_size / config->heads;
    }
    TRY(model_config_size(json, "head_dim", derived, width / config->heads, &config->head_dim,
                          err));
    if (config->head_dim % 2 != 0)
        return err_set_field(err, ERR_MODEL, "head_dim",
                             "head_dim %lld is odd; rotary embedding needs an even one",
                             (long long)config->head_dim);
    return 0;
}

/* Settings that would change what is computed. */
static int model_config_refusals(const json_t *json, struct err *err)
{
    static const struct {
        const char *key;
        const char *what;
    } absent[] = {
        {"num_experts", "mixtures of experts"},
        {"num_local_experts", "mixtures of experts"},
        {"n_routed_experts", "mixtures of experts"},
        {"moe_intermediate_size", "mixtures of experts"},
        {"quantization_config", "quantised weights"},
        {"vision_config", "vision models"},
        {"audio_config", "audio models"},
        {"text_config", "nested model descriptions"},
        {"auto_map", "models with code of their own"},
        /* What these three families have not, and others compute with. */
        {"logit_scale", "scaled logits"},
        {"logits_scaling", "scaled logits"},
        {"embedding_multiplier", "scaled embeddings"},
        {"residual_multiplier", "scaled residuals"},
        {"attention_multiplier", "scaled attention"},
        {"query_pre_attn_scalar", "scaled attention"},
        {"attn_logit_softcapping", "capped logits"},
        {"final_logit_softcapping", "capped logits"},
        {"clip_qkv", "clipped projections"},
        {"no_rope_layers", "layers without positions"},
        {"rope_local_base_freq", "rotary embeddings that differ by layer"},
    };
    for (size_t i = 0; i < sizeof absent / sizeof absent[0]; i++)
        if (model_config_has(json, absent[i].key))
            return err_set_field(err, ERR_MODEL, absent[i].key, "\"%s\" is set: %s are not served",
                                 absent[i].key, absent[i].what);
    static const char *const off[] = {"use_sliding_window", "mlp_bias"};
    for (size_t i = 0; i < sizeof off / sizeof off[0]; i++) {
        bool on = false;
        TRY(model_config_flag(json, off[i], false, &on, err));
        if (on)
            return err_set_field(err, ERR_MODEL, off[i], "\"%s\": true is not served", off[i]);
    }
    double real = 0;
    TRY(model_config_real(json, "partial_rotary_factor", 1, true, &real, err));
    if (real != 1)
        return err_set_field(err, ERR_MODEL, "partial_rotary_factor",
                             "partial_rotary_factor %g is not served", real);
    TRY(model_config_real(json, "attention_dropout", 0, true, &real, err));
    if (real != 0)
        return err_set_field(err, ERR_MODEL, "attention_dropout",
                             "attention_dropout %g is not served; set it to 0", real);
    const json_t *act = json_object_get(json, "hidden_act");
    if (act != NULL && (!json_is_string(act) || strcmp(json_string_value(act), "silu") != 0))
        return err_set_field(err, ERR_MODEL, "hidden_act",
                             "hidden_act \"%s\" is not served; served: silu",
                             json_is_string(act) ? json_string_value(act) : "(not a string)");
    return 0;
}

static int model_config_layer_types(const json_t *json, int64_t layers, struct err *err)
{
    const json_t *types = json_object_get(json, "layer_types");
    size_t layer;
    const json_t *kind;
    json_array_foreach(types, layer, kind)
    {
        if (!json_is_string(kind) || strcmp(json_string_value(kind), "full_attention") != 0)
            return err_set_field(err, ERR_MODEL, "layer_types",
                                 "layer_types[%zu] is not \"full_attention\"; nothing else is "
                                 "served",
                                 layer);
    }
    if (types != NULL && !json_is_null(types) && (int64_t)json_array_size(types) != layers)
        return err_set_field(err, ERR_MODEL, "layer_types",
                             "layer_types must have an entry for each of num_hidden_layers %lld; "
                             "it has %zu",
                             (long long)layers, json_array_size(types));
    return 0;
}

static int model_config_biases(const json_t *json, struct model_config *config, struct err *err)
{
    bool on = false;
    TRY(model_config_flag(json, "attention_bias", false, &on, err));
    config->o_bias = on && model_families[config->family].bias_key; /* qwen2 does not read it */
    config->qkv_bias = config->o_bias || model_families[config->family].qkv_bias;
    return 0;
}

static int model_config_read(const json_t *json, struct model_config *config, struct err *err)
{
    if (!json_is_object(json))
        return err_set(err, ERR_MODEL, "not a JSON object");
    TRY(model_config_family(json, &config->family, err));
    TRY(model_config_biases(json, config, err));
    config->qk_norm = model_families[config->family].qk_norm;
    TRY(model_config_refusals(json, err));
    TRY(model_config_sizes(json, config, err));
    TRY(model_config_layer_types(json, config->layers, err));
    TRY(model_rope_parse(json, config->context_max, config->head_dim, &config->rope,
                         &config->rope_theta, err));
    TRY(model_config_real(json, "rms_norm_eps", 1e-6, false, &config->rms_norm_eps, err));
    TRY(model_config_real(json, "initializer_range", 0.02, true, &config->initializer_range, err));
    TRY(model_config_flag(json, "tie_word_embeddings", false, &config->tie_embeddings, err));
    TRY(model_config_token(json, "bos_token_id", &config->bos_token, err));
    TRY(model_config_token(json, "eos_token_id", &config->eos_token, err));
    return model_config_token(json, "pad_token_id", &config->pad_token, err);
}

int model_config_parse(const json_t *json, const char *what_for, struct model_config *ret,
                       struct err *err)
{
    struct model_config config = {0};
    int rc = model_config_read(json, &config, err);
    if (rc != 0)
        return err_wrap(err, rc, "%s: ", what_for);
    *ret = config;
    return 0;
}

int model_config_load(const char *model_dir, struct model_config *ret, struct err *err)
{
    CLEANUP(mem_free_ptr) char *path = io_join(model_dir, "config.json");
    if (path == NULL)
        return mem_fail(err, strlen(model_dir), "a path");
    CLEANUP(json_unref) json_t *json = NULL;
    int rc = json_parse_file(path, LIMIT_MODEL_CONFIG_BYTES, &json, err);
    if (rc == 0)
        rc = model_config_parse(json, path, ret, err);
    if (rc != -ERR_BAD_JSON && rc != -ERR_TOO_LARGE && rc != -ERR_MODEL)
        return rc;
    err->code = ERR_MODEL; /* the sentence stands; it is the model that is wrong */
    (void)snprintf(err->field, sizeof err->field, "model"); /* of who asked, not config.json's */
    return -ERR_MODEL;
}

static json_t *model_config_id_json(int64_t token)
{
    return token < 0 ? json_null() : json_integer(token);
}

json_t *model_config_json(const struct model_config *config)
{
    const struct model_family_row *family = &model_families[config->family];
    /* Newer transformers read rope_theta and torch_dtype in their old places too. */
    return json_pack(
        "{s:[s], s:s, s:b, s:f, s:o, s:o, s:o, s:I, s:s, s:I, s:f, s:I, s:I, s:b,"
        " s:I, s:I, s:I, s:f, s:o, s:f, s:b, s:s, s:b, s:I}",
        "architectures", family->architecture, "model_type", family->name, "attention_bias",
        (int)config->o_bias, "attention_dropout", 0.0, "bos_token_id",
        model_config_id_json(config->bos_token), "eos_token_id",
        model_config_id_json(config->eos_token), "pad_token_id",
        model_config_id_json(config->pad_token), "head_dim", (json_int_t)config->head_dim,
        "hidden_act", "silu", "hidden_size", (json_int_t)config->hidden_size, "initializer_range",
        config->initializer_range, "intermediate_size", (json_int_t)config->intermediate_size,
        "max_position_embeddings", (json_int_t)config->context_max, "mlp_bias", 0,
        "num_attention_heads", (json_int_t)config->heads, "num_hidden_layers",
        (json_int_t)config->layers, "num_key_value_heads", (json_int_t)config->kv_heads,
        "rms_norm_eps", config->rms_norm_eps, "rope_scaling", model_rope_json(&config->rope),
        "rope_theta", config->rope_theta, "tie_word_embeddings", (int)config->tie_embeddings,
        "torch_dtype", "float32", "use_cache", 1, "vocab_size", (json_int_t)config->vocab_size);
}

void model_config_inv_freq(const struct model_config *config, int64_t seq_len, float *ret_inv_freq)
{
    model_rope_inv_freq(&config->rope, config->rope_theta, config->head_dim, seq_len, ret_inv_freq);
}
