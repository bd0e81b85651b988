/* model_published: every row comes to the parameters that its model is published with, and agrees
 * with the facts of config.json files that other tests have. */
#include "common/model_published.h"

#include "common/model_shape.h"
#include "tests/lib/cmocka.h"
#include "tests/unit/common/published_models.h"

#include <ctype.h>
#include <string.h>

static const struct {
    const char *name;
    int64_t parameters;
} totals[] = {
    {"llama3.2-1b", 1235814400},  {"llama3.2-3b", 3212749824},  {"llama3-8b", 8030261248},
    {"llama3-70b", 70553706496},  {"qwen2.5-0.5b", 494032768},  {"qwen2.5-1.5b", 1543714304},
    {"qwen2.5-3b", 3085938688},   {"qwen2.5-7b", 7615616512},   {"qwen2.5-14b", 14770033664},
    {"qwen2.5-32b", 32763876352}, {"qwen2.5-72b", 72706203648}, {"qwen3-0.6b", 596049920},
    {"qwen3-1.7b", 1720574976},   {"qwen3-4b", 4022468096},     {"qwen3-8b", 8190735360},
    {"qwen3-14b", 14768307200},   {"qwen3-32b", 32762123264}};
enum { TOTALS = sizeof totals / sizeof totals[0] };

static void test_parameters(void **state)
{
    assert_int_equal(model_published_count, TOTALS);
    for (size_t i = 0; i < TOTALS; i++) {
        struct err err = {0};
        struct model_shape shape;
        const struct model_config *config = model_published_find(totals[i].name);
        assert_non_null(config);
        assert_int_equal(model_shape_build(config, &shape, &err), 0);
        if (shape.parameters != totals[i].parameters)
            fail_msg("%s: %lld parameters, published %lld", totals[i].name,
                     (long long)shape.parameters, (long long)totals[i].parameters);
        model_shape_done(&shape);
    }
    assert_null(model_published_find("llama3-9b"));
    assert_null(model_published_find(""));
}

/* "Qwen/Qwen2.5-7B" is qwen2.5-7b; "meta-llama/Llama-3.2-1B" llama3.2-1b. */
static const struct model_config *by_repository(const char *repository)
{
    char name[64];
    size_t length = 0;
    const char *slash = strchr(repository, '/');
    for (const char *c = slash != NULL ? slash + 1 : repository; *c != '\0'; c++)
        if (strncmp(c, "-3.", 3) != 0)
            name[length++] = (char)tolower((unsigned char)*c);
    name[length] = '\0';
    return model_published_find(name);
}

static void test_facts(void **state)
{
    int found = 0;
    for (size_t i = 0; i < sizeof published_models / sizeof published_models[0]; i++) {
        const struct published_model *want = &published_models[i];
        const struct model_config *got = by_repository(want->name);
        if (got == NULL)
            continue; /* of another generation */
        found++;
        assert_string_equal(model_family_name(got->family), want->family);
        assert_int_equal(got->vocab_size, want->vocab);
        assert_int_equal(got->hidden_size, want->hidden);
        assert_int_equal(got->intermediate_size, want->mlp);
        assert_int_equal(got->layers, want->layers);
        assert_int_equal(got->heads, want->heads);
        assert_int_equal(got->kv_heads, want->kv_heads);
        assert_int_equal(got->head_dim, want->head_dim);
        assert_int_equal(got->context_max, want->context);
        assert_int_equal(got->tie_embeddings, want->tied);
        assert_true(got->rms_norm_eps == want->eps && got->rope_theta == want->theta);
    }
    assert_true(found >= 11);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_parameters),
                                       cmocka_unit_test(test_facts)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
