/* model_rope: rotary frequencies of published configurations (field case R16), the kinds, their
 * spellings, and refusals by name. */
#include "common/model_rope.h"

#include "common/mem.h"
#include "tests/lib/cmocka.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CONTEXT = 4096, HEAD_DIM = 64, HALF_MAX = 64 };

/* Parses `fields`, members of a config.json. */
static int parse(const char *fields, struct model_rope *ret_rope, double *ret_theta,
                 struct err *err)
{
    char text[1024];
    CLEANUP(json_unref) json_t *json = NULL;
    int length = snprintf(text, sizeof text, "{%s}", fields);
    *err = (struct err){0};
    assert_int_equal(json_parse(text, (size_t)length, "config", &json, err), 0);
    return model_rope_parse(json, CONTEXT, HEAD_DIM, ret_rope, ret_theta, err);
}

static struct model_rope parsed(const char *fields, double *ret_theta)
{
    struct model_rope rope;
    struct err err;
    if (parse(fields, &rope, ret_theta, &err) != 0)
        fail_msg("%s: %s", fields, err.text);
    return rope;
}

static void close_to(const float *got, int i, double want)
{
    if (!(fabs((double)got[i] / want - 1) < 1e-7))
        fail_msg("index %d: %.9g, not %.9g", i, (double)got[i], want);
}

/* The smallest published models with llama3 scaling; values computed in double precision. */
static void test_llama3(void **state)
{
    static const struct {
        int index;
        double want;
    } small[] = {{0, 1.0},
                 {1, 0.6636012376960885},
                 {8, 0.03760603093086393},
                 {12, 0.007292664737217109},
                 {14, 0.003211445994752591},
                 {16, 0.00042955679655936815},
                 {18, 1.9461638184831125e-05},
                 {20, 8.570255489881478e-06},
                 {24, 1.6619674677953088e-06},
                 {31, 9.41830672543491e-08}},
      large[] = {{0, 1.0},
                 {1, 0.8146172338565447},
                 {16, 0.03760603093086393},
                 {28, 0.003211445994752591},
                 {30, 0.0013718935677611381},
                 {32, 0.0005248461609929547},
                 {34, 0.0001785078127679964},
                 {36, 7.78465527393245e-05},
                 {48, 6.647869871181235e-06},
                 {63, 3.068925988914511e-07}};
    double theta;
    float got[HALF_MAX], plain[HALF_MAX];
    const struct model_rope none = {.kind = MODEL_ROPE_DEFAULT};
    struct model_rope rope =
        parsed("\"rope_theta\":500000.0,\"rope_scaling\":{\"factor\":32.0,\"high_freq_factor\":4.0,"
               "\"low_freq_factor\":1.0,\"original_max_position_embeddings\":8192,"
               "\"rope_type\":\"llama3\"}",
               &theta);
    assert_true(model_rope_scale(&rope) == 1.0f);
    model_rope_inv_freq(&rope, theta, 64, 0, got);
    model_rope_inv_freq(&none, theta, 64, 0, plain);
    for (size_t i = 0; i < sizeof small / sizeof small[0]; i++)
        close_to(got, small[i].index, small[i].want);
    for (int i = 0; i < 32; i++) { /* first changed 15, fully divided from 18 on */
        assert_int_equal(got[i] != plain[i], i >= 15);
        if (i >= 18)
            close_to(got, i, (double)plain[i] / 32);
    }
    rope.factor = 8;
    model_rope_inv_freq(&rope, theta, 128, 0, got);
    for (size_t i = 0; i < sizeof large / sizeof large[0]; i++)
        close_to(got, large[i].index, large[i].want);
}

static void test_linear_and_dynamic(void **state)
{
    double theta;
    float got[HALF_MAX], plain[HALF_MAX];
    const struct model_rope none = {.kind = MODEL_ROPE_DEFAULT};
    model_rope_inv_freq(&none, 10000, HEAD_DIM, 0, plain);
    struct model_rope rope = parsed("\"rope_scaling\":{\"type\":\"linear\",\"factor\":4}", &theta);
    assert_true(theta == 10000);
    model_rope_inv_freq(&rope, theta, HEAD_DIM, 1 << 20, got);
    for (int i = 0; i < HEAD_DIM / 2; i++)
        assert_true(got[i] == plain[i] / 4);
    rope = parsed("\"rope_scaling\":{\"type\":\"dynamic\",\"factor\":4.0}", &theta);
    for (int64_t tokens = 0; tokens <= CONTEXT; tokens += CONTEXT) { /* within: nothing changes */
        model_rope_inv_freq(&rope, theta, HEAD_DIM, tokens, got);
        assert_memory_equal(got, plain, HEAD_DIM / 2 * sizeof *got);
    }
    model_rope_inv_freq(&rope, theta, HEAD_DIM, 4 * CONTEXT, got); /* base times 13^(64/62) */
    for (int i = 0; i < HEAD_DIM / 2; i++)
        close_to(got, i, pow(10000 * pow(13, 64.0 / 62), -2.0 * i / 64));
}

/* The recipe of long Qwen models, and each optional setting. */
static void test_yarn(void **state)
{
    double theta;
    float got[HALF_MAX], plain[HALF_MAX];
    const struct model_rope none = {.kind = MODEL_ROPE_DEFAULT};
    struct model_rope rope =
        parsed("\"rope_theta\":1000000,\"rope_scaling\":{\"type\":\"yarn\",\"factor\":4.0,"
               "\"original_max_position_embeddings\":32768}",
               &theta);
    assert_true(fabsf(model_rope_scale(&rope) - 1.1386294361119891f) < 1e-7f);
    model_rope_inv_freq(&rope, theta, 128, 0, got);
    model_rope_inv_freq(&none, theta, 128, 0, plain);
    for (int i = 0; i < 64; i++) { /* turns of 32 and 1 lie at indices 23.6 and 39.7 */
        assert_int_equal(got[i] != plain[i], i > 23);
        double share = i <= 23 ? 0 : i >= 40 ? 1 : (i - 23) / 17.0;
        double exact = pow(1e6, -i / 64.0);
        close_to(got, i, exact / 4 * share + exact * (1 - share));
    }
    rope = parsed("\"rope_scaling\":{\"type\":\"yarn\",\"factor\":4,\"attention_factor\":1.5}",
                  &theta);
    assert_true(model_rope_scale(&rope) == 1.5f && rope.original_context == CONTEXT);
    rope = parsed("\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":40,\"mscale\":1.0,"
                  "\"mscale_all_dim\":0.8}",
                  &theta);
    assert_true(fabs((double)model_rope_scale(&rope) - (0.1 * log(40) + 1) / (0.08 * log(40) + 1)) <
                1e-7);
    rope = parsed("\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":1}", &theta);
    assert_true(model_rope_scale(&rope) == 1.0f);
    rope = parsed("\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":4,\"truncate\":false,"
                  "\"beta_fast\":16,\"beta_slow\":2}",
                  &theta);
    double low = 64 * log(4096 / (16 * 2 * acos(-1))) / (2 * log(10000));
    double high = 64 * log(4096 / (2 * 2 * acos(-1))) / (2 * log(10000));
    model_rope_inv_freq(&rope, theta, HEAD_DIM, 0, got);
    for (int i = 0; i < HEAD_DIM / 2; i++) {
        double share = i <= low ? 0 : i >= high ? 1 : (i - low) / (high - low);
        double exact = pow(10000, -i / 32.0);
        close_to(got, i, exact / 4 * share + exact * (1 - share));
    }
}

/* What transformers computes in fp32, for settings of every kind (tests/fixtures/make_models.py),
 * in either spelling. */
static void test_transformers(void **state)
{
    struct err err;
    CLEANUP(json_unref) json_t *rows = NULL;
    CLEANUP(mem_free_ptr)
    char *path = mem_printf("%s/tests/fixtures/rope.json", getenv("ITHACA_SOURCE_DIR"));
    assert_int_equal(json_parse_file(path, 1 << 20, &rows, &err), 0);
    assert_int_equal(json_array_size(rows), 12);
    size_t i;
    json_t *row;
    json_array_foreach(rows, i, row)
    {
        json_t *settings = json_deep_copy(json_object_get(row, "rope"));
        const json_t *theta_json = json_object_get(row, "rope_theta");
        CLEANUP(json_unref)
        json_t *old = json_pack("{s:O, s:O}", "rope_theta", theta_json, "rope_scaling", settings);
        CLEANUP(json_unref)
        json_t *new = json_pack("{s:o}", "rope_parameters", json_deep_copy(settings));
        json_object_set(json_object_get(new, "rope_parameters"), "rope_theta",
                        (json_t *)(uintptr_t)theta_json);
        json_decref(settings);
        int64_t head_dim = json_integer_value(json_object_get(row, "head_dim"));
        int64_t context = json_integer_value(json_object_get(row, "max_position_embeddings"));
        int64_t seq_len = json_integer_value(json_object_get(row, "seq_len"));
        double factor = json_number_value(json_object_get(row, "attention_factor")), theta;
        const json_t *want = json_object_get(row, "inv_freq");
        for (int spelling = 0; spelling < 2; spelling++) {
            struct model_rope rope;
            float got[HALF_MAX];
            if (model_rope_parse(spelling == 0 ? old : new, context, head_dim, &rope, &theta,
                                 &err) != 0)
                fail_msg("row %zu: %s", i, err.text);
            model_rope_inv_freq(&rope, theta, head_dim, seq_len, got);
            assert_true(fabs((double)model_rope_scale(&rope) / factor - 1) < 1e-7);
            assert_int_equal(json_array_size(want), head_dim / 2);
            for (int64_t k = 0; k < head_dim / 2; k++) {
                double theirs = json_number_value(json_array_get(want, (size_t)k));
                if (!(fabs((double)got[k] / theirs - 1) < 1e-6)) /* made in fp32 */
                    fail_msg("row %zu, index %d: %.9g, not %.9g", i, (int)k, (double)got[k],
                             theirs);
            }
        }
    }
}

/* One embedding in every spelling of it. */
static void test_spellings(void **state)
{
    static const char *const same[] = {
        "\"rope_theta\":1e6,\"rope_scaling\":{\"type\":\"yarn\",\"factor\":4.0,"
        "\"original_max_position_embeddings\":32768}",
        "\"rope_theta\":1000000,\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":4,"
        "\"original_max_position_embeddings\":32768,\"attention_factor\":null}",
        "\"rope_theta\":1000000.0,\"rope_scaling\":{\"rope_type\":\"yarn\",\"type\":\"yarn\","
        "\"factor\":4.0,\"original_max_position_embeddings\":32768},\"rope_parameters\":null",
        "\"rope_parameters\":{\"rope_theta\":1e6,\"rope_type\":\"yarn\",\"factor\":4.0,"
        "\"original_max_position_embeddings\":32768,\"partial_rotary_factor\":1.0}",
        "\"rope_scaling\":{\"rope_theta\":1e6,\"rope_type\":\"yarn\",\"factor\":4.0,"
        "\"original_max_position_embeddings\":32768,\"beta_fast\":32,\"beta_slow\":1},"
        "\"rope_parameters\":{\"rope_theta\":1e6,\"rope_type\":\"yarn\",\"factor\":4.0},"
        "\"original_max_position_embeddings\":32768",
    };
    double theta;
    float want[HALF_MAX], got[HALF_MAX];
    struct model_rope rope = parsed(same[0], &theta);
    model_rope_inv_freq(&rope, theta, HEAD_DIM, 0, want);
    for (size_t i = 1; i < 4; i++) {
        rope = parsed(same[i], &theta);
        model_rope_inv_freq(&rope, theta, HEAD_DIM, 0, got);
        assert_memory_equal(got, want, HEAD_DIM / 2 * sizeof *got);
    }
    struct err err; /* the second object has another original context: 4096 */
    assert_int_equal(parse(same[4], &rope, &theta, &err), -ERR_MODEL);
    static const char *const plain[] = {
        "", "\"rope_scaling\":null", "\"rope_scaling\":{}",
        "\"rope_scaling\":{\"type\":\"default\"}",
        "\"rope_theta\":10000,\"rope_parameters\":{\"rope_theta\":10000.0}"};
    for (size_t i = 0; i < sizeof plain / sizeof plain[0]; i++) {
        rope = parsed(plain[i], &theta);
        assert_true(rope.kind == MODEL_ROPE_DEFAULT && theta == 10000);
        CLEANUP(json_unref) json_t *json = model_rope_json(&rope);
        assert_true(json_is_null(json));
    }
}

#define LINEAR "\"rope_type\":\"linear\",\"factor\":2"
#define LLAMA3                                                                            \
    "\"rope_type\":\"llama3\",\"factor\":8,\"low_freq_factor\":1,\"high_freq_factor\":4," \
    "\"original_max_position_embeddings\":512"
#define YARN                                                                                       \
    "\"rope_type\":\"yarn\",\"factor\":4,\"beta_fast\":30,\"beta_slow\":2,\"attention_factor\":1." \
    "5,"                                                                                           \
    "\"original_max_position_embeddings\":512,\"truncate\":true"

/* What an exported model's config.json says is what was read. */
static void test_printed(void **state)
{
    static const char *const ropes[] = {LINEAR, LLAMA3, YARN,
                                        "\"rope_type\":\"dynamic\",\"factor\":3",
                                        "\"rope_type\":\"yarn\",\"factor\":4,\"truncate\":false"};
    for (size_t i = 0; i < sizeof ropes / sizeof ropes[0]; i++) {
        char fields[400];
        struct err err;
        double theta;
        (void)snprintf(fields, sizeof fields, "\"rope_scaling\":{%s}", ropes[i]);
        struct model_rope rope = parsed(fields, &theta);
        CLEANUP(json_unref) json_t *printed = model_rope_json(&rope);
        CLEANUP(buf_done) struct buf text;
        buf_init(&text, 1000);
        assert_int_equal(json_print(printed, &text, &err), 0);
        (void)snprintf(fields, sizeof fields, "\"rope_scaling\":%s", buf_str(&text));
        struct model_rope again = parsed(fields, &theta);
        assert_memory_equal(&again, &rope, sizeof rope);
    }
    const struct model_rope none = {.kind = MODEL_ROPE_DEFAULT};
    CLEANUP(json_unref) json_t *printed = model_rope_json(&none);
    assert_true(json_is_null(printed));
}

/* Both spellings, of one setting that differs at a time. */
static void test_spellings_that_differ(void **state)
{
    static const struct {
        const char *rope, *from, *to;
    } cases[] = {
        {LINEAR, "\"factor\":2", "\"factor\":3"},
        {LINEAR, "linear", "dynamic"},
        {LINEAR, "\"factor\"", "\"rope_theta\":9000,\"factor\""},
        {LLAMA3, "low_freq_factor\":1", "low_freq_factor\":2"},
        {LLAMA3, "high_freq_factor\":4", "high_freq_factor\":5"},
        {LLAMA3, "embeddings\":512", "embeddings\":513"},
        {YARN, "fast\":30", "fast\":31"},
        {YARN, "slow\":2", "slow\":1"},
        {YARN, "attention_factor\":1.5", "attention_factor\":1.4"},
        {YARN, "true", "false"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char other[300], fields[700];
        struct model_rope rope;
        struct err err;
        double theta;
        const char *at = strstr(cases[i].rope, cases[i].from);
        (void)snprintf(other, sizeof other, "%.*s%s%s", (int)(at - cases[i].rope), cases[i].rope,
                       cases[i].to, at + strlen(cases[i].from));
        (void)snprintf(fields, sizeof fields, "\"rope_scaling\":{%s},\"rope_parameters\":{%s}",
                       cases[i].rope, cases[i].rope);
        (void)parsed(fields, &theta);
        (void)snprintf(fields, sizeof fields, "\"rope_scaling\":{%s},\"rope_parameters\":{%s}",
                       cases[i].rope, other);
        assert_int_equal(parse(fields, &rope, &theta, &err), -ERR_MODEL);
        if (strstr(err.text, "say different things") == NULL)
            fail_msg("%s: %s", fields, err.text);
    }
}

/* Yarn's range of dimensions is cut to those that there are: 0 to head_dim - 1. */
static void test_yarn_range(void **state)
{
    const struct model_rope rope = {.kind = MODEL_ROPE_YARN,
                                    .factor = 4,
                                    .original_context = 64,
                                    .beta_fast = 32,
                                    .beta_slow = 1,
                                    .attention_factor = 1};
    enum { DIM = 8 };
    float got[DIM / 2];
    /* 8 ln(64 / 64 pi) / 2 ln 10000 = -0.5: from 0; 8 ln(64 / 2 pi) / 2 ln 10000 = 1.01: to 2 */
    model_rope_inv_freq(&rope, 10000, DIM, 64, got);
    static const double shares[] = {0, 0.5, 1, 1};
    for (int i = 0; i < DIM / 2; i++)
        close_to(got, i, pow(10000, -i / 4.0) * (shares[i] / 4 + 1 - shares[i]));
    /* 8 ln(64 / 2 pi) / 2 ln 2 = 13.4: to 7 */
    model_rope_inv_freq(&rope, 2, DIM, 64, got);
    for (int i = 0; i < DIM / 2; i++)
        close_to(got, i, pow(2, -i / 4.0) * (i / 7.0 / 4 + 1 - i / 7.0));
}

static void test_refusals(void **state)
{
    static const struct {
        const char *fields;
        const char *word; /* must stand in the sentence */
    } cases[] = {
        {"\"rope_scaling\":\"yarn\"", "rope_scaling"},
        {"\"rope_scaling\":[1]", "rope_scaling"},
        {"\"rope_scaling\":{\"factor\":2}", "rope_type"},
        {"\"rope_scaling\":{\"type\":4,\"factor\":2}", "rope_type"},
        {"\"rope_scaling\":{\"type\":\"longrope\",\"factor\":2}", "longrope"},
        {"\"rope_scaling\":{\"type\":\"ntk\",\"factor\":2}", "ntk"},
        {"\"rope_scaling\":{\"type\":\"linear\"}", "factor is missing"},
        {"\"rope_scaling\":{\"type\":\"linear\",\"factor\":\"2\"}", "rope_scaling.factor"},
        {"\"rope_scaling\":{\"type\":\"linear\",\"factor\":0.5}", "from 1"},
        {"\"rope_scaling\":{\"type\":\"linear\",\"factor\":2,\"beta_fast\":32}", "beta_fast"},
        {"\"rope_scaling\":{\"type\":\"linear\",\"factor\":2,\"finetuned\":true}", "finetuned"},
        {"\"rope_scaling\":{\"type\":\"default\",\"factor\":2}", "factor is not served"},
        {"\"rope_scaling\":{\"type\":\"default\",\"mrope_section\":[1]}", "mrope_section"},
        {"\"rope_scaling\":{\"type\":\"linear\",\"rope_type\":\"yarn\",\"factor\":2}",
         "different things"},
        {"\"rope_scaling\":{\"type\":\"linear\",\"factor\":2},"
         "\"rope_parameters\":{\"rope_type\":\"linear\",\"factor\":4}",
         "rope_parameters"},
        {"\"rope_theta\":5,\"rope_parameters\":{\"rope_theta\":6}", "rope_theta is 5"},
        {"\"rope_parameters\":{\"full_attention\":{\"rope_theta\":1}}", "full_attention"},
        {"\"rope_parameters\":{\"partial_rotary_factor\":0.5}", "partial_rotary_factor"},
        {"\"rope_parameters\":{\"rope_type\":\"llama3\"}", "factor is missing"},
        {"\"rope_scaling\":{\"type\":\"llama3\",\"factor\":8,\"low_freq_factor\":1,"
         "\"high_freq_factor\":4}",
         "original_max_position_embeddings is missing"},
        {"\"rope_scaling\":{\"type\":\"llama3\",\"factor\":8,\"low_freq_factor\":4,"
         "\"high_freq_factor\":4,\"original_max_position_embeddings\":8192}",
         "high_freq_factor"},
        {"\"rope_scaling\":{\"type\":\"yarn\",\"factor\":4,\"mscale\":1}", "mscale_all_dim"},
        {"\"rope_scaling\":{\"type\":\"yarn\",\"factor\":4,\"truncate\":1}", "truncate"},
        {"\"rope_scaling\":{\"type\":\"yarn\",\"factor\":4,\"beta_fast\":1,\"beta_slow\":2}",
         "beta_fast"},
        {"\"rope_scaling\":{\"type\":\"yarn\",\"factor\":4,\"attention_factor\":-1}",
         "attention_factor"},
        {"\"rope_theta\":1,\"rope_scaling\":{\"type\":\"yarn\",\"factor\":4}", "rope_theta"},
        {"\"rope_scaling\":{\"type\":\"yarn\",\"factor\":4,"
         "\"original_max_position_embeddings\":2048},\"original_max_position_embeddings\":4096",
         "original_max_position_embeddings"},
        {"\"rope_scaling\":{\"type\":\"dynamic\",\"factor\":4,"
         "\"original_max_position_embeddings\":2048}",
         "max_position_embeddings, 4096"},
        {"\"rope_theta\":0", "rope_theta"},
        {"\"rope_theta\":\"10000\"", "rope_theta"},
        {"\"rope_theta\":1e30", "rope_theta"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct model_rope rope;
        struct err err;
        double theta;
        if (parse(cases[i].fields, &rope, &theta, &err) != -ERR_MODEL)
            fail_msg("accepted: %s", cases[i].fields);
        if (strstr(err.text, cases[i].word) == NULL)
            fail_msg("%s: \"%s\" does not say %s", cases[i].fields, err.text, cases[i].word);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_llama3),       cmocka_unit_test(test_linear_and_dynamic),
        cmocka_unit_test(test_transformers), cmocka_unit_test(test_yarn),
        cmocka_unit_test(test_spellings),    cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_printed),      cmocka_unit_test(test_spellings_that_differ),
        cmocka_unit_test(test_yarn_range),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
