/* model_config: published configurations, spellings, refusals by name, the file we write. */
#include "common/model_config.h"

#include "common/io.h"
#include "common/limits.h"
#include "common/mem.h"
#include "common/mesh.h"
#include "tests/lib/cmocka.h"

#include <stdlib.h>
#include <string.h>

#include "tests/unit/common/published_models.h"

static json_t *published_json(const struct published_model *model)
{
    json_t *json = json_pack("{s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:b, s:f, s:f, s:I, s:n}",
                             "model_type", model->family, "vocab_size", (json_int_t)model->vocab,
                             "hidden_size", (json_int_t)model->hidden, "intermediate_size",
                             (json_int_t)model->mlp, "num_hidden_layers", (json_int_t)model->layers,
                             "num_attention_heads", (json_int_t)model->heads, "num_key_value_heads",
                             (json_int_t)model->kv_heads, "tie_word_embeddings", (int)model->tied,
                             "rms_norm_eps", model->eps, "rope_theta", model->theta,
                             "max_position_embeddings", (json_int_t)model->context, "rope_scaling");
    /* What such files say beside it, and what changes nothing. */
    json_t *beside = json_pack(
        "{s:b, s:i, s:s, s:f, s:n, s:s, s:b, s:i, s:i, s:b, s:s, s:b, s:[i,i,i]}", "attention_bias",
        0, "attention_dropout", 0, "hidden_act", "silu", "initializer_range", 0.02, "pad_token_id",
        "torch_dtype", "bfloat16", "use_sliding_window", 0, "sliding_window", 131072,
        "max_window_layers", 28, "use_mrope", 0, "transformers_version", "4.51.0", "use_cache", 1,
        "eos_token_id", 7, 8, 9);
    json_object_update(json, beside);
    json_decref(beside);
    assert_non_null(json);
    if (model->head_dim_given)
        json_object_set_new(json, "head_dim", json_integer(model->head_dim));
    return json;
}

static void test_published(void **state)
{
    for (size_t i = 0; i < sizeof published_models / sizeof published_models[0]; i++) {
        const struct published_model *model = &published_models[i];
        json_t *json = published_json(model);
        struct model_config config;
        struct err err = {0};
        if (model->rope != NULL)
            json_object_set_new(json, "rope_scaling",
                                json_pack("{s:s, s:f, s:f, s:f, s:i}", "rope_type", model->rope,
                                          "factor", 8.0, "low_freq_factor", 1.0, "high_freq_factor",
                                          4.0, "original_max_position_embeddings", 8192));
        assert_int_equal(model_config_parse(json, "x", &config, &err), 0);
        assert_string_equal(model_family_name(config.family), model->family);
        assert_int_equal(config.head_dim, model->head_dim);
        assert_int_equal(config.rope.kind,
                         model->rope != NULL ? MODEL_ROPE_LLAMA3 : MODEL_ROPE_DEFAULT);
        assert_int_equal(config.heads, model->heads);
        assert_int_equal(config.kv_heads, model->kv_heads);
        assert_int_equal(config.tie_embeddings, model->tied);
        assert_int_equal(config.qkv_bias, strcmp(model->family, "qwen2") == 0);
        assert_int_equal(config.qk_norm, strcmp(model->family, "qwen3") == 0);
        assert_true(config.rms_norm_eps == model->eps && config.rope_theta == model->theta);
        assert_true(config.eos_token == 7 && config.pad_token == -1 && !config.o_bias);
        char degrees[MESH_LIST_BYTES];
        mesh_ulysses_list(config.heads, config.kv_heads, 8, degrees);
        assert_string_equal(degrees, model->degrees);
        json_decref(json);
    }
}

/* A small llama config with `patch` laid over it. */
static int parse_patched(const char *patch, struct model_config *ret, struct err *err)
{
    static const char base[] =
        "{\"model_type\":\"llama\",\"architectures\":[\"LlamaForCausalLM\"],\"vocab_size\":100,"
        "\"hidden_size\":64,\"intermediate_size\":96,\"num_hidden_layers\":2,"
        "\"num_attention_heads\":4,\"num_key_value_heads\":2,\"max_position_embeddings\":128}";
    json_t *json = NULL;
    json_t *over = NULL;
    assert_int_equal(json_parse(base, strlen(base), "base", &json, err), 0);
    assert_int_equal(json_parse(patch, strlen(patch), "patch", &over, err), 0);
    json_object_update(json, over);
    json_decref(over);
    *err = (struct err){0};
    int rc = model_config_parse(json, "m/config.json", ret, err);
    json_decref(json);
    return rc;
}

static void test_spellings(void **state)
{
    struct model_config config;
    struct err err;
    assert_int_equal(parse_patched("{}", &config, &err), 0);
    assert_int_equal(config.head_dim, 16);
    assert_true(config.rope_theta == 10000 && config.rms_norm_eps == 1e-6);
    assert_int_equal(parse_patched("{\"head_dim\":null}", &config, &err), 0);
    assert_int_equal(config.head_dim, 16);
    assert_int_equal(parse_patched("{\"head_dim\":32}", &config, &err), 0);
    assert_int_equal(config.head_dim, 32);
    assert_int_equal(
        parse_patched("{\"model_type\":\"qwen3\",\"architectures\":null}", &config, &err), 0);
    assert_int_equal(config.head_dim, 128);
    assert_int_equal(
        parse_patched("{\"eos_token_id\":[5,6],\"bos_token_id\":4,\"dtype\":"
                      "\"float32\",\"layer_types\":[\"full_attention\",\"full_attention\"],"
                      "\"sliding_window\":32768,\"use_sliding_window\":false,"
                      "\"pad_token_id\":null,\"pretraining_tp\":1}",
                      &config, &err),
        0);
    assert_int_equal(config.eos_token, 5);
    assert_int_equal(config.bos_token, 4);
    assert_int_equal(config.pad_token, -1);
    assert_int_equal(
        parse_patched("{\"model_type\":\"qwen2\",\"architectures\":[\"Qwen2ForCausalLM\"],"
                      "\"attention_bias\":false}",
                      &config, &err),
        0);
    assert_true(config.qkv_bias && !config.o_bias);
    assert_int_equal(parse_patched("{\"attention_bias\":true}", &config, &err), 0);
    assert_true(config.qkv_bias && config.o_bias);
    assert_int_equal(parse_patched("{\"rope_parameters\":{\"rope_theta\":5e5,\"rope_type\":"
                                   "\"linear\",\"factor\":4}}",
                                   &config, &err),
                     0);
    assert_true(config.rope_theta == 5e5 && config.rope.kind == MODEL_ROPE_LINEAR);
    float frequencies[8];
    model_config_inv_freq(&config, 0, frequencies);
    assert_true(frequencies[0] == 0.25f);
}

static void test_refusals(void **state)
{
    static const struct {
        const char *patch;
        const char *word; /* must stand in the sentence */
    } cases[] = {
        {"{\"model_type\":\"mistral\"}", "mistral"},
        {"{\"architectures\":[\"LlamaForSequenceClassification\"]}", "SequenceClassification"},
        {"{\"rope_parameters\":{\"rope_type\":\"llama3\"}}", "rope_parameters.factor"},
        {"{\"partial_rotary_factor\":0.5}", "partial_rotary_factor"},
        {"{\"num_experts\":8}", "num_experts"},
        {"{\"num_local_experts\":8}", "num_local_experts"},
        {"{\"quantization_config\":{\"bits\":4}}", "quantization_config"},
        {"{\"vision_config\":{}}", "vision_config"},
        {"{\"auto_map\":{\"AutoModelForCausalLM\":\"modeling_x.X\"}}", "code of their own"},
        {"{\"use_sliding_window\":true}", "use_sliding_window"},
        {"{\"layer_types\":[\"full_attention\",\"sliding_attention\"]}", "layer_types[1]"},
        {"{\"layer_types\":[\"full_attention\",\"full_attention\",\"full_attention\"]}",
         "for each of num_hidden_layers"},
        {"{\"final_logit_softcapping\":30.0}", "final_logit_softcapping"},
        {"{\"residual_multiplier\":0.22}", "scaled residuals"},
        {"{\"no_rope_layers\":[1,1,1,0]}", "no_rope_layers"},
        {"{\"hidden_act\":\"gelu\"}", "gelu"},
        {"{\"mlp_bias\":true}", "mlp_bias"},
        {"{\"attention_dropout\":0.1}", "attention_dropout"},
        {"{\"num_key_value_heads\":3}", "num_key_value_heads"},
        {"{\"num_key_value_heads\":8}", "num_key_value_heads"},
        {"{\"hidden_size\":66}", "hidden_size"},
        {"{\"head_dim\":15}", "odd"},
        {"{\"head_dim\":0}", "head_dim"},
        {"{\"vocab_size\":-1}", "vocab_size"},
        {"{\"vocab_size\":\"100\"}", "vocab_size"},
        {"{\"vocab_size\":9000000000000000000}", "vocab_size"},
        {"{\"num_hidden_layers\":100000}", "num_hidden_layers"},
        {"{\"rms_norm_eps\":0}", "rms_norm_eps"},
        {"{\"tie_word_embeddings\":1}", "tie_word_embeddings"},
        {"{\"eos_token_id\":\"x\"}", "eos_token_id"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct model_config config;
        struct err err;
        if (parse_patched(cases[i].patch, &config, &err) != -ERR_MODEL)
            fail_msg("accepted: %s", cases[i].patch);
        assert_non_null(strstr(err.text, "m/config.json: "));
        if (strstr(err.text, cases[i].word) == NULL)
            fail_msg("%s: \"%s\" does not say %s", cases[i].patch, err.text, cases[i].word);
    }
    struct model_config config;
    struct err err;
    CLEANUP(json_unref) json_t *list = json_array();
    assert_int_equal(model_config_parse(list, "x", &config, &err), -ERR_MODEL);
}

static void test_builtin_round_trip(void **state)
{
    struct err err;
    const struct model_config *tiny = model_config_builtin("tiny-llama");
    assert_non_null(tiny);
    assert_null(model_config_builtin("no-such"));
    char folder[] = "/tmp/test_model_config.XXXXXX";
    assert_non_null(mkdtemp(folder));
    CLEANUP(mem_free_ptr) char *path = io_join(folder, "config.json");
    struct model_config back;
    assert_int_equal(model_config_load(folder, &back, &err), -ERR_NOT_FOUND);
    CLEANUP(json_unref) json_t *json = model_config_json(tiny);
    assert_int_equal(json_write_file(path, json, 0644, &err), 0);
    assert_int_equal(model_config_load(folder, &back, &err), 0);
    CLEANUP(json_unref) json_t *again = model_config_json(&back);
    assert_true(json_equal(json, again));
    assert_string_equal(
        json_string_value(json_array_get(json_object_get(json, "architectures"), 0)),
        "LlamaForCausalLM");
    assert_int_equal(json_integer_value(json_object_get(json, "eos_token_id")), 260);
    assert_int_equal(io_write_file(path, "{\"a\":", 5, 0644, &err), 0);
    assert_int_equal(model_config_load(folder, &back, &err), -ERR_MODEL);
    assert_int_equal(err.code, ERR_MODEL);
    assert_non_null(strstr(err.text, path));
    assert_int_equal(io_remove_tree(folder, &err), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_published),
        cmocka_unit_test(test_spellings),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_builtin_round_trip),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
