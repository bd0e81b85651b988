/* job_spec: the `profile` object: null or there, its two steps, what is refused. */
#include "common/mem.h"
#include "tests/lib/job_words.h"

static void test_steps(void **state)
{
    struct job_spec spec, again;
    struct err err;
    accept("", &spec);
    assert_false(spec.profile);
    accept("'ithaca':{'profile':{}}", &spec);
    assert_true(spec.profile && spec.profile_steps.first == 3 && spec.profile_steps.last == 5);
    accept("'ithaca':{'profile':null}", &spec);
    assert_false(spec.profile);
    accept("'ithaca':{'profile':{'steps':[7,7.0]}}", &spec);
    assert_true(spec.profile && spec.profile_steps.first == 7 && spec.profile_steps.last == 7);
    CLEANUP(json_unref) json_t *body = job_spec_json(&spec);
    assert_int_equal(job_spec_parse(body, &again, &err), 0);
    assert_true(again.profile && again.profile_steps.first == 7 && again.profile_steps.last == 7);
}

static void test_refused(void **state)
{
    static const char *const wrong[] = {"7",     "[]",      "[7]",     "[7,8,9]",
                                        "[8,7]", "[0,1]",   "[7,'8']", "null",
                                        "'7-8'", "[7,7.5]", "[1,1e9]", "{'from':7}"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        CLEANUP(mem_free_ptr)
        char *members = mem_printf("'ithaca':{'profile':{'steps':%s}}", wrong[i]);
        refuse(members, ERR_INVALID_VALUE, "ithaca.profile.steps",
               "it must be [first, last], integers from 1");
    }
    refuse("'ithaca':{'profile':3}", ERR_INVALID_VALUE, "ithaca.profile", "an object or null");
}

static void resolve(const char *members, const char *text)
{
    static const struct job_facts facts = {.ranks_max = 1, .heads = 8, .kv_heads = 4, .layers = 6};
    struct job_spec spec;
    struct err err;
    accept(members, &spec);
    int rc = job_spec_resolve(&spec, &facts, &err);
    assert_int_equal(rc, text == NULL ? 0 : -ERR_INVALID_VALUE);
    if (text == NULL)
        return;
    assert_string_equal(err.field, "ithaca.profile.steps");
    if (strstr(err.text, text) == NULL)
        fail_msg("%s: \"%s\" does not say \"%s\"", members, err.text, text);
}

static void test_resolved(void **state)
{
    resolve("'ithaca':{'profile':{'steps':[1,100]}}", NULL);
    resolve("'ithaca':{'profile':{'steps':[1,101]}}",
            "1 to 101 are 101 steps; at most 100 are profiled");
    resolve("'ithaca':{'max_steps':5,'profile':{'steps':[5,5]}}", NULL);
    resolve("'ithaca':{'max_steps':5,'profile':{'steps':[4,6]}}",
            "step 6 is beyond ithaca.max_steps 5; ask for earlier steps");
    resolve("'ithaca':{'max_steps':2}", NULL); /* the default of a profile that is not there */
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
