/* job_spec: the `lora` object: null or there, its defaults, its list of modules, what is refused.
 */
#include "common/job_field.h"
#include "common/job_spec.h"
#include "common/lora_shape.h"
#include "tests/lib/cmocka.h"

#include <stdio.h>
#include <string.h>

/* Parses a job with this `lora`, written with ' for ". */
static int parse(const char *lora, struct job_spec *spec, struct err *err)
{
    char text[512];
    (void)snprintf(text, sizeof text, "{'model':'m','training_file':'f','ithaca':{'lora':%s}}",
                   lora);
    json_t *body = json_literal(text);
    assert_non_null(body);
    int rc = job_spec_parse(body, spec, err);
    json_decref(body);
    return rc;
}

static void accept(const char *lora, struct job_spec *spec)
{
    struct err err;
    if (parse(lora, spec, &err) != 0)
        fail_msg("%s: %s", lora, err.text);
}

static void refuse(const char *lora, enum err_code code, const char *field, const char *text)
{
    struct err err;
    struct job_spec spec;
    assert_int_equal(parse(lora, &spec, &err), -(int)code);
    assert_string_equal(err.field, field);
    if (strstr(err.text, text) == NULL)
        fail_msg("%s: \"%s\" does not say \"%s\"", lora, err.text, text);
}

static void test_null(void **state)
{
    struct job_spec spec;
    accept("null", &spec);
    assert_false(spec.lora);
    json_t *ithaca = job_spec_ithaca_json(&spec);
    assert_true(json_is_null(json_object_get(ithaca, "lora"))); /* and no field of it */
    json_decref(ithaca);
}

static void test_defaults(void **state)
{
    struct job_spec spec;
    struct err err;
    const struct job_facts facts = {.ranks_max = 1, .heads = 2, .kv_heads = 1, .layers = 2};
    accept("{}", &spec);
    assert_true(spec.lora && spec.lora_r == 16 && spec.lora_alpha == 0 && spec.lora_dropout == 0);
    assert_true(spec.lora_modules == (1 << JOB_lora_module_COUNT) - 1);
    assert_true(spec.lora_export == JOB_lora_export_BOTH);
    assert_int_equal(job_spec_resolve(&spec, &facts, &err), 0);
    assert_int_equal(spec.lora_alpha, 32);
}

static void test_fields(void **state)
{
    struct job_spec spec;
    accept("{'r':4,'alpha':8,'dropout':0.1,'export':'adapter',"
           "'modules':['v_proj','q_proj','v_proj']}",
           &spec);
    assert_true(spec.lora_r == 4 && spec.lora_alpha == 8 && spec.lora_dropout == 0.1);
    assert_int_equal(spec.lora_modules, 1 << JOB_lora_module_Q | 1 << JOB_lora_module_V);
    json_t *ithaca = job_spec_ithaca_json(&spec), *lora = json_object_get(ithaca, "lora");
    const json_t *modules = json_object_get(lora, "modules");
    assert_int_equal(json_object_size(lora), 5);
    assert_int_equal(json_array_size(modules), 2);
    assert_string_equal(json_string_value(json_array_get(modules, 1)), "v_proj");
    json_decref(ithaca);
    accept("{'modules':['q_proj','k_proj','v_proj','o_proj','gate_proj','up_proj','down_proj']}",
           &spec);
    ithaca = job_spec_ithaca_json(&spec);
    assert_string_equal(
        json_string_value(json_object_get(json_object_get(ithaca, "lora"), "modules")), "all");
    json_decref(ithaca);
}

static void test_refused(void **state)
{
    const enum err_code invalid = ERR_INVALID_VALUE;
    refuse("true", invalid, "ithaca.lora", "an object or null");
    refuse("{'r':0}", invalid, "ithaca.lora.r", "1 to 1024");
    refuse("{'rank':8}", ERR_UNKNOWN_FIELD, "ithaca.lora.rank", "");
    refuse("{'dropout':1}", invalid, "ithaca.lora.dropout", "0 to 0.95");
    refuse("{'modules':[]}", invalid, "ithaca.lora.modules", "\"all\" or a list");
    refuse("{'modules':'q_proj'}", invalid, "ithaca.lora.modules", "\"q_proj\"");
    refuse("{'modules':['q_proj','lm_head']}", invalid, "ithaca.lora.modules", "is \"lm_head\"");
    refuse("{'modules':[1]}", invalid, "ithaca.lora.modules", "is 1");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_null),
        cmocka_unit_test(test_defaults),
        cmocka_unit_test(test_fields),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
