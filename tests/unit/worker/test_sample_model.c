/* sample_model: with the cache or without it the same logits, for each family; the next token is
 * the likeliest; a folder that is not whole is refused and nothing is left of it. */
#include "worker/sample_model.h"

#include "tests/lib/model_folder.h"

#include <math.h>
#include <string.h>
#include <unistd.h>

enum { TOKENS = 9 };

static const int32_t ids[TOKENS] = {256, 72, 0, 263, 255, 72, 72, 13, 260};

static struct model_config config_of(enum model_family family)
{
    struct model_config config = model_folder_config;
    config.family = family;
    config.qk_norm = family == MODEL_FAMILY_QWEN3;
    config.qkv_bias = family == MODEL_FAMILY_QWEN2;
    config.tie_embeddings = family != MODEL_FAMILY_LLAMA;
    return config;
}

/* Runs the tokens in pieces of these lengths; the logits after the last. */
static int32_t run(struct model_folder *folder, const int64_t *pieces, int count, float *ret_logits)
{
    struct sample_model *model = NULL;
    int32_t next = -1;
    int64_t at = 0;
    OK(folder, sample_model_new(folder->dir, &folder->config, TOKENS, &model, &folder->err));
    for (int i = 0; i < count; i++) {
        OK(folder, sample_model_next(model, ids + at, pieces[i], &next, &folder->err));
        at += pieces[i];
    }
    assert_int_equal(at, TOKENS);
    memcpy(ret_logits, sample_model_logits(model),
           (size_t)folder->config.vocab_size * sizeof *ret_logits);
    sample_model_free(model);
    return next;
}

static void test_cache(void **state)
{
    static const int64_t one_by_one[TOKENS] = {1, 1, 1, 1, 1, 1, 1, 1, 1};
    static const int64_t whole[] = {TOKENS}, prompt_first[] = {6, 1, 2};
    float a[264], b[264], c[264];
    for (int family = 0; family < MODEL_FAMILY_COUNT; family++) {
        struct model_folder folder;
        struct model_config config = config_of((enum model_family)family);
        model_folder_open(&folder, &config, NULL);
        int32_t next = run(&folder, whole, 1, a);
        assert_int_equal(run(&folder, one_by_one, TOKENS, b), next);
        assert_int_equal(run(&folder, prompt_first, 3, c), next);
        float largest = 0;
        for (int i = 0; i < 264; i++) {
            largest = fmaxf(largest, fabsf(a[i]));
            assert_true(a[next] >= a[i]);
        }
        assert_true(largest > 0.1f); /* of a model that computes something */
        for (int i = 0; i < 264; i++)
            if (!(fabsf(a[i] - b[i]) < 1e-5f && fabsf(a[i] - c[i]) < 1e-5f))
                fail_msg("family %d, token %d: %g %g %g", family, i, (double)a[i], (double)b[i],
                         (double)c[i]);
        model_folder_close(&folder);
    }
}

/* What came before matters, and so does where it stands. */
static void test_context_matters(void **state)
{
    struct model_folder folder;
    struct sample_model *model = NULL;
    float logits[3][264];
    static const int32_t texts[3][3] = {{1, 2, 3}, {2, 1, 3}, {2, 2, 3}};
    int32_t next;
    model_folder_open(&folder, &model_folder_config, NULL);
    for (int i = 0; i < 3; i++) {
        OK(&folder, sample_model_new(folder.dir, &folder.config, 3, &model, &folder.err));
        OK(&folder, sample_model_next(model, texts[i], 3, &next, &folder.err));
        memcpy(logits[i], sample_model_logits(model), sizeof logits[i]);
        sample_model_free(model);
    }
    for (int i = 0; i < 3; i++) {
        float difference = 0;
        for (int t = 0; t < 264; t++)
            difference = fmaxf(difference, fabsf(logits[i][t] - logits[(i + 1) % 3][t]));
        assert_true(difference > 1e-4f);
    }
    model_folder_close(&folder);
}

static void test_refusals(void **state)
{
    struct model_folder folder;
    struct sample_model *model = NULL;
    model_folder_open(&folder, &model_folder_config, NULL);
    struct model_config other = folder.config;
    other.intermediate_size = 32;
    assert_int_equal(sample_model_new(folder.dir, &other, 4, &model, &folder.err), -ERR_MODEL);
    CLEANUP(mem_free_ptr) char *weights = io_join(folder.dir, "model.safetensors");
    assert_int_equal(truncate(weights, 1000), 0);
    assert_int_equal(sample_model_new(folder.dir, &folder.config, 4, &model, &folder.err),
                     -ERR_MODEL);
    assert_int_equal(unlink(weights), 0);
    assert_int_not_equal(sample_model_new(folder.dir, &folder.config, 4, &model, &folder.err), 0);
    assert_null(model);
    sample_model_free(NULL);
    model_folder_close(&folder);
    assert_int_equal(mem_live(), 1); /* the path above */
}

static void test_allocation_failures(void **state)
{
    struct model_folder folder;
    struct sample_model *model = NULL;
    model_folder_open(&folder, &model_folder_config, NULL);
    int rc = -ERR_NOMEM;
    for (int64_t n = 1; rc != 0; n += 1 + n / 8) {
        mem_fault_after(n);
        rc = sample_model_new(folder.dir, &folder.config, 4, &model, &folder.err);
        mem_fault_after(0);
        if (rc == 0)
            break;
        assert_int_equal(rc, -ERR_NOMEM);
        assert_int_equal(mem_live(), 0);
        assert_true(n < 2000);
    }
    sample_model_free(model);
    assert_int_equal(mem_live(), 0);
    model_folder_close(&folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cache),
        cmocka_unit_test(test_context_matters),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_allocation_failures),
    };
    (void)setenv("OMP_NUM_THREADS", "1", 1); /* so small a model is slower on more */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
