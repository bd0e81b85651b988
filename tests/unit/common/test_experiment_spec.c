/* experiment_spec: what is taken and refused, in which words; the points of a grid. */
#include "common/experiment_spec.h"

#include "common/mem.h"
#include "tests/lib/cmocka.h"

#include <stdio.h>
#include <string.h>

#define BASE "'base':{'model':'m','ithaca':{'gpus':2,'context_parallel':{'ulysses':2}}}"

static int parse(const char *text, struct experiment_spec *spec, struct err *err)
{
    CLEANUP(json_unref) json_t *body = json_literal(text);
    assert_non_null(body);
    return experiment_spec_parse(body, spec, err);
}

static void accept(const char *text, struct experiment_spec *spec)
{
    struct err err;
    if (parse(text, spec, &err) != 0)
        fail_msg("%s: %s", text, err.text);
}

static void test_defaults(void **state)
{
    struct experiment_spec spec;
    struct err err;
    accept("{" BASE ",'grid':{'seq_len':[1,2]},'max_gpus':null}", &spec);
    assert_string_equal(spec.name, "");
    assert_false(spec.kind || spec.on_failure);
    assert_int_equal(spec.steps, 3);
    assert_int_equal(spec.max_gpus, 0);
    assert_int_equal(spec.seq_len_min, 1024);
    assert_int_equal(spec.points, 2);
    CLEANUP(json_unref) json_t *printed = experiment_spec_json(&spec);
    struct experiment_spec again;
    assert_int_equal(experiment_spec_parse(printed, &again, &err), 0);
    CLEANUP(json_unref) json_t *twice = experiment_spec_json(&again);
    assert_true(json_equal(printed, twice));
    assert_true(json_is_null(json_object_get(printed, "max_gpus")));
    experiment_spec_done(&again);
    experiment_spec_done(&spec);
    accept("{" BASE ",'grid':{'seq_len':[1]},'name':'a\\u001b[2Jb\\nc'}", &spec);
    for (const char *at = spec.name; *at != '\0'; at++)
        assert_true((unsigned char)*at >= ' ');
    experiment_spec_done(&spec);
}

static void test_what_is_refused(void **state)
{
    static const struct {
        const char *body, *field, *text;
        enum err_code code;
    } cases[] = {
        {"{'grid':{'seq_len':[1]}}", "base", "base is missing", ERR_MISSING_FIELD},
        {"{" BASE "}", "grid", "grid is missing", ERR_MISSING_FIELD},
        {"{" BASE ",'grid':{}}", "grid", "grid is empty", ERR_INVALID_VALUE},
        {"{" BASE ",'grid':{'seq_len':[]}}", "grid", "grid.seq_len must be a list",
         ERR_INVALID_VALUE},
        {"{" BASE ",'grid':{'seq_len':8192}}", "grid", "grid.seq_len must be a list",
         ERR_INVALID_VALUE},
        {"{" BASE ",'grid':[]}", "grid", "must be an object", ERR_INVALID_VALUE},
        {"{" BASE ",'grid':{'lora':{'r':[8,16]}}}", "grid", "is called \"batch.sequences\"",
         ERR_INVALID_VALUE},
        {"{" BASE ",'grid':{'lora.r':[8],'lora':[null,{}]}}", "grid",
         "grid.lora.r is a field of grid.lora, which varies, too", ERR_INVALID_VALUE},
        {"{" BASE ",'grid':{'seq_len':[1]},'gird':{}}", "gird", "base and grid", ERR_UNKNOWN_FIELD},
        {"{" BASE ",'grid':{'seq_len':[1]},'steps':0}", "steps", "an integer from 1 to 100",
         ERR_INVALID_VALUE},
        {"{" BASE ",'grid':{'seq_len':[1]},'steps':2.5}", "steps", "steps is 2.5",
         ERR_INVALID_VALUE},
        {"{" BASE ",'grid':{'seq_len':[1]},'on_failure':'halt'}", "on_failure",
         "\"continue\" or \"stop\"", ERR_INVALID_VALUE},
        {"{" BASE ",'grid':{'seq_len':[1]},'name':7}", "name", "a text of at most 128 bytes",
         ERR_INVALID_VALUE},
        {"{" BASE ",'grid':{'seq_len':[1]},'kind':'find_max_seq_len'}", "grid", "leave it out",
         ERR_INVALID_VALUE},
        {"{" BASE ",'grid':{},'kind':'find_max_seq_len','seq_len_max':512}", "seq_len_max",
         "below seq_len_min", ERR_INVALID_VALUE},
        {"[]", "", "must be a JSON object", ERR_BAD_REQUEST},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct experiment_spec spec;
        struct err err = {.field = ""};
        assert_int_equal(parse(cases[i].body, &spec, &err), -(int)cases[i].code);
        assert_string_equal(err.field, cases[i].field);
        if (strstr(err.text, cases[i].text) == NULL)
            fail_msg("%s: \"%s\" does not say \"%s\"", cases[i].body, err.text, cases[i].text);
    }
}

/* A search of each point takes longer than its plan. */
static void test_too_many_searches(void **state)
{
    struct err err;
    struct experiment_spec spec;
    for (size_t more = 0; more < 2; more++) {
        CLEANUP(json_unref) json_t *body = json_literal("{" BASE ",'kind':'find_max_seq_len'}");
        json_t *models = json_array();
        for (size_t i = 0; i < LIMIT_EXPERIMENT_SEARCHES + more; i++)
            assert_int_equal(json_array_append_new(models, json_string("m")), 0);
        assert_int_equal(json_object_set_new(body, "grid", json_pack("{s:o}", "model", models)), 0);
        int rc = experiment_spec_parse(body, &spec, &err);
        assert_int_equal(rc, more == 0 ? 0 : -ERR_INVALID_VALUE);
        if (rc == 0)
            experiment_spec_done(&spec);
    }
}

/* 16 x 16 points are taken, one value more is not; nor is a product that no integer holds. */
static void test_too_many_points(void **state)
{
    struct err err;
    struct experiment_spec spec;
    for (size_t more = 0; more < 2; more++) {
        CLEANUP(json_unref) json_t *body = json_literal("{" BASE "}");
        json_t *grid = json_object();
        assert_int_equal(json_object_set_new(body, "grid", grid), 0);
        for (size_t axis = 0; axis < 2 + more * 20; axis++) {
            char name[16];
            json_t *values = json_array();
            for (size_t v = 0; v < 16 + more; v++)
                assert_int_equal(json_array_append_new(values, json_integer(1)), 0);
            (void)snprintf(name, sizeof name, "axis%zu", axis);
            assert_int_equal(json_object_set_new(grid, name, values), 0);
        }
        int rc = experiment_spec_parse(body, &spec, &err);
        assert_int_equal(rc, more == 0 ? 0 : -ERR_INVALID_VALUE);
        if (rc != 0)
            assert_non_null(strstr(err.text, "more than 256 points, which"));
        else
            experiment_spec_done(&spec);
    }
}

static void expect(const struct experiment_spec *spec, int64_t number, const char *label,
                   const char *body)
{
    struct experiment_point point;
    struct err err;
    MUST_WORK(experiment_spec_point(spec, number, &point, &err), &err);
    CLEANUP(json_unref) json_t *wanted = json_literal(body);
    assert_string_equal(point.label, label);
    if (!json_equal(point.body, wanted)) {
        CLEANUP(mem_free_ptr) char *text = mem_new(1, 1024);
        json_brief(point.body, text, 1024);
        fail_msg("point %d: %s", (int)number, text);
    }
    experiment_point_done(&point);
}

/* The last axis changes first; a field's value takes the base's place, settings are merged. */
static void test_points(void **state)
{
    struct experiment_spec spec;
    struct err err;
    accept("{" BASE
           ",'grid':{'model':['a','b'],'context_parallel':[{'kind':'ring'},{'kind':'upipe',"
           "'heads_per_stage':1}],'settings':[{},{'name':'far','context_parallel':{'ring':4}},{"
           "'offload':'host'}],'seq_len':[64,128]}}",
           &spec);
    assert_int_equal(spec.points, 24);
    expect(&spec, 0, "a, ring",
           "{'model':'a','ithaca':{'gpus':2,'context_parallel':{'kind':'ring'},'seq_len':64}}");
    expect(&spec, 1, "a, ring",
           "{'model':'a','ithaca':{'gpus':2,'context_parallel':{'kind':'ring'},'seq_len':128}}");
    expect(&spec, 9, "a, upipe, heads_per_stage 1, far",
           "{'model':'a','ithaca':{'gpus':2,'context_parallel':{'kind':'upipe','heads_per_stage':1,"
           "'ring':4},'seq_len':128}}");
    expect(
        &spec, 23, "b, upipe, heads_per_stage 1, offload host",
        "{'model':'b','ithaca':{'gpus':2,'context_parallel':{'kind':'upipe','heads_per_stage':1},"
        "'offload':'host','seq_len':128}}");
    experiment_spec_done(&spec);

    accept("{'base':{'model':'m'},'grid':{'settings':[7]}}", &spec);
    struct experiment_point point;
    assert_int_equal(experiment_spec_point(&spec, 0, &point, &err), -ERR_INVALID_VALUE);
    assert_non_null(strstr(err.text, "grid.settings must be a list of objects"));
    experiment_spec_done(&spec);
    accept("{'base':{'model':'m','ithaca':7},'grid':{'seq_len':[64]}}", &spec);
    assert_int_equal(experiment_spec_point(&spec, 0, &point, &err), -ERR_INVALID_VALUE);
    assert_string_equal(err.field, "base");
    experiment_spec_done(&spec);
    accept("{'base':{'model':'m'},'grid':{},'kind':'find_max_seq_len'}", &spec);
    expect(&spec, 0, "", "{'model':'m','ithaca':{}}");
    experiment_spec_done(&spec);
}

/* A field in an object leaves its neighbours as they are, and makes the object where there is none.
 */
static void test_fields_in_objects(void **state)
{
    struct experiment_spec spec;
    accept("{'base':{'model':'m','ithaca':{'batch':{'sequences':8,'grad_accum':2},'lora':null}},"
           "'grid':{'lora.r':[8,16],'batch.sequences':[2,4],'optimizer.eps':[1e-8]}}",
           &spec);
    assert_int_equal(spec.points, 4);
    expect(&spec, 1, "lora.r 8, batch.sequences 4, optimizer.eps 1e-08",
           "{'model':'m','ithaca':{'batch':{'sequences':4,'grad_accum':2},'lora':{'r':8},"
           "'optimizer':{'eps':1e-8}}}");
    expect(&spec, 2, "lora.r 16, batch.sequences 2, optimizer.eps 1e-08",
           "{'model':'m','ithaca':{'batch':{'sequences':2,'grad_accum':2},'lora':{'r':16},"
           "'optimizer':{'eps':1e-8}}}");
    experiment_spec_done(&spec);
    struct experiment_point point;
    struct err err = {.field = ""};
    accept("{'base':{'model':'m'},'grid':{'batch..x':[64]}}", &spec);
    assert_int_equal(experiment_spec_point(&spec, 0, &point, &err), -ERR_INVALID_VALUE);
    assert_non_null(strstr(err.text, "\"batch..x\" is empty"));
    experiment_spec_done(&spec);
}

/* A grid's keys are as long as a request: what they name must not be as deep. */
static void test_deep_field(void **state)
{
    enum { BYTES = 400000 };
    struct err err = {.field = ""};
    struct experiment_spec spec;
    struct experiment_point point;
    CLEANUP(mem_free_ptr) char *path = mem_new(1, BYTES);
    assert_non_null(path);
    for (size_t i = 0; i < BYTES - 1; i++)
        path[i] = i % 2 == 0 ? 'a' : '.';
    CLEANUP(json_unref)
    json_t *body = json_pack("{s:{s:s}, s:{s:[i]}}", "base", "model", "m", "grid", path, 1);
    assert_int_equal(experiment_spec_parse(body, &spec, &err), 0);
    assert_int_equal(experiment_spec_point(&spec, 0, &point, &err), -ERR_INVALID_VALUE);
    assert_non_null(strstr(err.text, "more than 32 parts"));
    assert_string_equal(err.field, "grid");
    experiment_spec_done(&spec);
}

static void test_settings_that_are_none(void **state)
{
    static const char *const settings[] = {"1", "{'name':5}", "null"};
    for (size_t i = 0; i < sizeof settings / sizeof settings[0]; i++) {
        struct experiment_spec spec;
        struct experiment_point point;
        struct err err = {.field = ""};
        char text[256];
        (void)snprintf(text, sizeof text, "{'base':{'model':'m'},'grid':{'settings':[%s]}}",
                       settings[i]);
        accept(text, &spec);
        assert_int_equal(experiment_spec_point(&spec, 0, &point, &err), -ERR_INVALID_VALUE);
        assert_string_equal(err.field, "grid");
        experiment_spec_done(&spec);
    }
}

/* A label of anything stays one line of its room. */
static void test_label_is_a_line(void **state)
{
    struct experiment_spec spec;
    struct experiment_point point;
    struct err err;
    char text[1024], name[600];
    for (size_t i = 0; i + 1 < sizeof name; i++)
        name[i] = i % 2 == 0 ? '\xc3' : '\xa4';
    name[sizeof name - 2] = '\0';
    (void)snprintf(text, sizeof text,
                   "{'base':{'model':'m'},'grid':{'settings':[{'name':'a\\n%s'}]}}", name);
    accept(text, &spec);
    assert_int_equal(experiment_spec_point(&spec, 0, &point, &err), 0);
    assert_null(strchr(point.label, '\n'));
    CLEANUP(json_unref) json_t *label = json_string(point.label);
    assert_non_null(label); /* whole characters */
    experiment_point_done(&point);
    experiment_spec_done(&spec);
}

static void test_failing_allocations(void **state)
{
    struct err err;
    CLEANUP(json_unref) json_t *body = json_literal("{" BASE ",'grid':{'settings':[{'gpus':4}]}}");
    int64_t live = mem_live();
    int failed = 0;
    for (int n = 1; n <= 8; n++) { /* some are done without */
        struct experiment_spec spec;
        struct experiment_point point;
        mem_fault_after(n);
        int rc = experiment_spec_parse(body, &spec, &err);
        if (rc == 0) {
            rc = experiment_spec_point(&spec, 0, &point, &err);
            if (rc == 0)
                experiment_point_done(&point);
            experiment_spec_done(&spec);
        }
        mem_fault_after(0);
        assert_int_equal(mem_live(), live);
        failed += rc != 0;
        assert_true(rc == 0 || rc == -ERR_NOMEM);
    }
    assert_true(failed > 0 && failed < 8);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_defaults),
        cmocka_unit_test(test_what_is_refused),
        cmocka_unit_test(test_too_many_points),
        cmocka_unit_test(test_too_many_searches),
        cmocka_unit_test(test_points),
        cmocka_unit_test(test_settings_that_are_none),
        cmocka_unit_test(test_label_is_a_line),
        cmocka_unit_test(test_failing_allocations),
        cmocka_unit_test(test_fields_in_objects),
        cmocka_unit_test(test_deep_field),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
