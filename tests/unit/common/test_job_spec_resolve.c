/* job_spec_resolve: no auto stays, and what model or machine forbid is refused. */
#include "common/job_field.h"
#include "common/job_spec.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

static const struct job_facts test_facts = {
    .ranks_max = 4, .heads = 8, .kv_heads = 4, .layers = 2, .context_max = 4096};

/* Parses a body written with ' for "; the two required fields are added. */
static void accept(const char *members, struct job_spec *spec)
{
    struct err err;
    char text[1024];
    (void)snprintf(text, sizeof text, "{'model':'m','training_file':'f',%s}", members);
    json_t *body = json_literal(text);
    if (job_spec_parse(body, spec, &err) != 0)
        fail_msg("%s: %s", members, err.text);
    json_decref(body);
}

static void resolve(const char *members, struct job_spec *spec)
{
    struct err err;
    accept(members, spec);
    if (job_spec_resolve(spec, &test_facts, &err) != 0)
        fail_msg("%s: %s", members, err.text);
}

static void test_resolve_fills_every_auto(void **state)
{
    (void)state;
    struct job_spec spec;
    resolve("'ithaca':{'gpus':4,'batch':{'sequences':9},'seq_len':3000}", &spec);
    for (size_t i = 0; i < job_field_count; i++) {
        json_t *value = job_field_json(&job_fields[i], &spec);
        bool is_auto = json_is_string(value) && strcmp(json_string_value(value), "auto") == 0;
        if (is_auto && strcmp(job_fields[i].path, "data.chat_template") != 0)
            fail_msg("%s is still auto", job_fields[i].path);
        json_decref(value);
    }
    assert_int_equal(spec.context_kind, JOB_context_kind_NONE);
    assert_int_equal(spec.ulysses, 1);
    assert_int_equal(spec.ring, 1);
    assert_int_equal(spec.heads_per_stage, 8);
    assert_int_equal(spec.states, JOB_states_DEVICE);
    assert_int_equal(spec.tile_mlp, 3000);
    assert_int_equal(spec.tile_loss, 1024);
    assert_int_equal(spec.grad_accum, 3); /* 9 sequences, 4 ranks */
    assert_true(spec.n_epochs == 3);
    resolve("'ithaca':{'seq_len':100,'tile_mlp':200,'max_steps':5}", &spec);
    assert_int_equal(spec.tile_loss, 100);
    assert_int_equal(spec.tile_mlp, 100);
    assert_true(spec.n_epochs <= 0);
    resolve("'ithaca':{'gpus':2,'batch':{'sequences':8,'grad_accum':4}}", &spec);
}

static void test_resolve_refuses(void **state)
{
    (void)state;
    static const struct {
        const char *members;
        enum err_code code;
        const char *field;
        const char *text;
    } cases[] = {
        {"'ithaca':{'gpus':5}", ERR_DOES_NOT_FIT, "ithaca.gpus",
         "ithaca.gpus is 5 and this machine has 4 ranks"},
        {"'ithaca':{'gpus':2,'fsdp':false}", ERR_UNSUPPORTED, "ithaca.fsdp", "use true"},
        {"'ithaca':{'gpus':2,'batch':{'sequences':9,'grad_accum':4}}", ERR_INVALID_VALUE,
         "ithaca.batch.grad_accum", "is 4; it must be 5"},
        {"'ithaca':{'context_parallel':{'ulysses':2}}", ERR_INVALID_VALUE,
         "ithaca.context_parallel.ulysses", "is 2; it must be 1"},
        {"'ithaca':{'context_parallel':{'ring':2}}", ERR_INVALID_VALUE,
         "ithaca.context_parallel.ring", "is 2; it must be 1"},
        {"'ithaca':{'context_parallel':{'heads_per_stage':2}}", ERR_INVALID_VALUE,
         "ithaca.context_parallel.heads_per_stage", "it must be 8"},
        {"'ithaca':{'keep_input_every':2}", ERR_INVALID_VALUE, "ithaca.keep_input_every",
         "unless recompute is attention"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct err err;
        struct job_spec spec;
        accept(cases[i].members, &spec);
        json_t *before = job_spec_json(&spec);
        assert_int_equal(job_spec_resolve(&spec, &test_facts, &err), -(int)cases[i].code);
        assert_string_equal(err.field, cases[i].field);
        if (strstr(err.text, cases[i].text) == NULL)
            fail_msg("\"%s\" does not say \"%s\"", err.text, cases[i].text);
        json_t *after = job_spec_json(&spec);
        assert_true(json_equal(before, after)); /* refused: nothing half resolved */
        json_decref(before);
        json_decref(after);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_resolve_fills_every_auto),
        cmocka_unit_test(test_resolve_refuses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
