/* job_spec: the `profile` object: null or there, its two steps, what is refused. */
#include "common/job_spec.h"
#include "common/limits.h"
#include "common/mem.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* Parses a job with these members of `ithaca`, written with ' for ". */
static int parse(const char *ithaca, struct job_spec *spec, struct err *err)
{
    CLEANUP(mem_free_ptr)
    char *text = mem_printf("{'model':'m','training_file':'f','ithaca':{%s}}", ithaca);
    CLEANUP(json_unref) json_t *body = json_literal(text);
    assert_non_null(body);
    return job_spec_parse(body, spec, err);
}

static void accept(const char *ithaca, struct job_spec *spec)
{
    struct err err;
    if (parse(ithaca, spec, &err) != 0)
        fail_msg("%s: %s", ithaca, err.text);
}

static void refuse(const char *ithaca, const char *field, const char *text)
{
    struct err err;
    struct job_spec spec;
    assert_int_equal(parse(ithaca, &spec, &err), -ERR_INVALID_VALUE);
    assert_string_equal(err.field, field);
    if (strstr(err.text, text) == NULL)
        fail_msg("%s: \"%s\" does not say \"%s\"", ithaca, err.text, text);
}

static void test_steps(void **state)
{
    (void)state;
    struct job_spec spec, again;
    struct err err;
    accept("", &spec);
    assert_false(spec.profile);
    accept("'profile':{}", &spec);
    assert_true(spec.profile && spec.profile_steps.first == 3 && spec.profile_steps.last == 5);
    accept("'profile':null", &spec);
    assert_false(spec.profile);
    accept("'profile':{'steps':[7,7.0]}", &spec);
    assert_true(spec.profile && spec.profile_steps.first == 7 && spec.profile_steps.last == 7);
    CLEANUP(json_unref) json_t *body = job_spec_json(&spec);
    assert_int_equal(job_spec_parse(body, &again, &err), 0);
    assert_true(again.profile && again.profile_steps.first == 7 && again.profile_steps.last == 7);
}

static void test_refused(void **state)
{
    (void)state;
    static const char *const wrong[] = {"7",     "[]",      "[7]",     "[7,8,9]",
                                        "[8,7]", "[0,1]",   "[7,'8']", "null",
                                        "'7-8'", "[7,7.5]", "[1,1e9]", "{'from':7}"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        CLEANUP(mem_free_ptr) char *ithaca = mem_printf("'profile':{'steps':%s}", wrong[i]);
        refuse(ithaca, "ithaca.profile.steps", "it must be [first, last], integers from 1");
    }
    refuse("'profile':3", "ithaca.profile", "an object or null");
}

static void resolve(const char *ithaca, const char *text)
{
    static const struct job_facts facts = {.ranks_max = 1, .heads = 8, .kv_heads = 4, .layers = 6};
    struct job_spec spec;
    struct err err;
    accept(ithaca, &spec);
    int rc = job_spec_resolve(&spec, &facts, &err);
    assert_int_equal(rc, text == NULL ? 0 : -ERR_INVALID_VALUE);
    if (text == NULL)
        return;
    assert_string_equal(err.field, "ithaca.profile.steps");
    if (strstr(err.text, text) == NULL)
        fail_msg("%s: \"%s\" does not say \"%s\"", ithaca, err.text, text);
}

static void test_resolved(void **state)
{
    (void)state;
    resolve("'profile':{'steps':[1,100]}", NULL);
    resolve("'profile':{'steps':[1,101]}", "1 to 101 are 101 steps; at most 100 are profiled");
    resolve("'max_steps':5,'profile':{'steps':[5,5]}", NULL);
    resolve("'max_steps':5,'profile':{'steps':[4,6]}",
            "step 6 is beyond ithaca.max_steps 5; ask for earlier steps");
    resolve("'max_steps':2", NULL); /* the default of a profile that is not there */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_steps),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_resolved),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
