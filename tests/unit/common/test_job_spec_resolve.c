/* job_spec_resolve: no auto stays, and what model or machine forbid is refused. */
#include "common/job_field.h"
#include "common/job_spec.h"
#include "common/mem.h"
#include "common/mesh.h"
#include "tests/lib/cmocka.h"

#include <stdio.h>
#include <string.h>

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
    resolve("'ithaca':{'max_steps':10,'optimizer':{'warmup_steps':10}}",
            &spec); /* its peak is last */
    resolve("'ithaca':{'optimizer':{'warmup_steps':1000}}",
            &spec); /* how many steps is not known */
    resolve("'validation_file':'v','ithaca':{'eval':{'early_stop_patience':2,'export_best':true}}",
            &spec);
}

static void test_resolve_refuses(void **state)
{
    static const struct {
        const char *members;
        enum err_code code;
        const char *field;
        const char *text;
    } cases[] = {
        {"'ithaca':{'gpus':5}", ERR_DOES_NOT_FIT, "ithaca.gpus",
         "ithaca.gpus is 5 and this machine has 4 ranks"},
        {"'ithaca':{'gpus':2,'batch':{'sequences':9,'grad_accum':4}}", ERR_INVALID_VALUE,
         "ithaca.batch.grad_accum", "is 4; it must be 5"},
        {"'ithaca':{'context_parallel':{'ulysses':2}}", ERR_INVALID_VALUE,
         "ithaca.context_parallel.ulysses", "is 2; it must be 1: it divides gpus / ring (1)"},
        {"'ithaca':{'context_parallel':{'ring':2}}", ERR_INVALID_VALUE,
         "ithaca.context_parallel.ring", "is 2; it must be 1, a divisor of gpus"},
        {"'ithaca':{'context_parallel':{'heads_per_stage':2}}", ERR_INVALID_VALUE,
         "ithaca.context_parallel.heads_per_stage", "it must be 8"},
        {"'ithaca':{'keep_input_every':2}", ERR_INVALID_VALUE, "ithaca.keep_input_every",
         "unless recompute is attention"},
        {"'ithaca':{'max_steps':3,'optimizer':{'warmup_steps':10}}", ERR_INVALID_VALUE,
         "ithaca.optimizer.warmup_steps", "10 are more than ithaca.max_steps 3"},
        {"'ithaca':{'max_steps':9,'optimizer':{'warmup_steps':5,'decay_steps':5,'schedule':"
         "'warmup_stable_decay'}}",
         ERR_INVALID_VALUE, "ithaca.optimizer.warmup_steps", "and decay_steps 5 are more"},
        {"'ithaca':{'optimizer':{'decay_steps':5}}", ERR_INVALID_VALUE,
         "ithaca.optimizer.decay_steps", "the schedule is cosine"},
        {"'ithaca':{'eval':{'early_stop_patience':2}}", ERR_INVALID_VALUE,
         "ithaca.eval.early_stop_patience", "needs a validation_file"},
        {"'ithaca':{'eval':{'export_best':true}}", ERR_INVALID_VALUE, "ithaca.eval.export_best",
         "needs a validation_file"},
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

/* ---- layout */

struct layout {
    int gpus;
    enum job_context_kind kind;
    int ulysses, ring, stage; /* JOB_AUTO: auto */
};

/* Whether this build has code for the kind. */
static bool is_served(enum job_context_kind kind)
{
    return job_field_find("context_parallel.kind")->names->values[kind].served;
}

/* Resolves a layout for a model of (heads, kv_heads); members set by hand, because parsing refuses
 * kinds that are not served yet. */
static int resolve_layout(const struct layout *layout, int64_t heads, int64_t kv_heads,
                          struct job_spec *spec, struct err *err)
{
    const struct job_facts facts = {
        .ranks_max = LIMIT_RANKS, .heads = heads, .kv_heads = kv_heads, .layers = 2};
    accept("'ithaca':{'max_steps':1,'seq_len':1000,'batch':{'sequences':64}}", spec);
    spec->gpus = layout->gpus;
    spec->context_kind = layout->kind;
    spec->ulysses = layout->ulysses;
    spec->ring = layout->ring;
    spec->heads_per_stage = layout->stage;
    return job_spec_resolve(spec, &facts, err);
}

enum { A = JOB_AUTO };

static const struct {
    struct layout asked;
    int heads, kv_heads;
    struct layout given;
    int grad_accum, tile; /* 64 sequences on the data-parallel ranks; tokens a rank */
} auto_cases[] = {
    {{8, JOB_context_kind_AUTO, A, A, A}, 8, 4, {8, JOB_context_kind_NONE, 1, 1, 8}, 8, 1000},
    {{8, JOB_context_kind_AUTO, 1, 1, A}, 8, 4, {8, JOB_context_kind_NONE, 1, 1, 8}, 8, 1000},
    {{8, JOB_context_kind_AUTO, 4, A, A}, 8, 4, {8, JOB_context_kind_ULYSSES, 4, 1, 2}, 32, 250},
    {{8, JOB_context_kind_AUTO, A, 4, A}, 8, 4, {8, JOB_context_kind_RING, 1, 4, 8}, 32, 250},
    {{8, JOB_context_kind_AUTO, 4, 2, A}, 8, 4, {8, JOB_context_kind_ULYSSES, 4, 2, 2}, 64, 126},
    {{8, JOB_context_kind_RING, A, A, A}, 8, 4, {8, JOB_context_kind_RING, 1, 8, 8}, 64, 126},
    {{8, JOB_context_kind_RING, 1, 2, 8}, 8, 4, {8, JOB_context_kind_RING, 1, 2, 8}, 16, 500},
    {{8, JOB_context_kind_ULYSSES, A, A, A},
     28,
     4,
     {8, JOB_context_kind_ULYSSES, 4, 1, 7},
     32,
     250},
    {{8, JOB_context_kind_ULYSSES, A, 2, A},
     28,
     4,
     {8, JOB_context_kind_ULYSSES, 4, 2, 7},
     64,
     126},
    {{8, JOB_context_kind_ULYSSES, A, A, A},
     40,
     8,
     {8, JOB_context_kind_ULYSSES, 8, 1, 5},
     64,
     125},
    {{7, JOB_context_kind_UPIPE, A, A, A}, 32, 8, {7, JOB_context_kind_UPIPE, 1, 1, 1}, 10, 1000},
    {{8, JOB_context_kind_UPIPE, A, A, A}, 32, 8, {8, JOB_context_kind_UPIPE, 8, 1, 1}, 64, 125},
    {{8, JOB_context_kind_UPIPE, 4, 1, 8}, 32, 8, {8, JOB_context_kind_UPIPE, 4, 1, 8}, 32, 250},
    {{1, JOB_context_kind_UPIPE, 1, 1, 2}, 8, 4, {1, JOB_context_kind_UPIPE, 1, 1, 2}, 64, 1000},
};

/* A rehearsal's layout is of the node that is rehearsed, one rank of which has a process. */
static void test_rehearsal(void **state)
{
    struct job_spec spec;
    struct err err;
    resolve("'ithaca':{'gpus':2,'rehearse':{'world':8},"
            "'context_parallel':{'kind':'upipe'}}",
            &spec);
    assert_int_equal(spec.gpus, 8); /* of a machine with 4 */
    assert_int_equal(spec.ulysses, 8);
    assert_int_equal(job_spec_slots(&spec), 1);
    assert_int_equal(spec.rehearse_layers, 0);
    resolve("'ithaca':{'gpus':2}", &spec);
    assert_int_equal(job_spec_slots(&spec), 2);
    accept("'ithaca':{'rehearse':{'world':6},'context_parallel':{'ulysses':4}}", &spec);
    assert_int_equal(job_spec_resolve(&spec, &test_facts, &err), -ERR_INVALID_VALUE);
}

/* What only measures may be without a file, and comes back from the store as it was. */
static void test_measure(void **state)
{
    static const struct {
        const char *body;
        bool legal;
    } cases[] = {
        {"{'model':'m','ithaca':{'measure':true}}", true},
        {"{'model':'m','training_file':null,'ithaca':{'rehearse':{'world':2}}}", true},
        {"{'model':'m','training_file':'f','ithaca':{'measure':true}}", true},
        {"{'model':'m','ithaca':{'measure':false}}", false},
        {"{'model':'m','ithaca':{'rehearse':null}}", false},
        {"{'model':'m','validation_file':'f','ithaca':{'measure':true}}", false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        CLEANUP(json_unref) json_t *body = json_literal(cases[i].body);
        struct job_spec spec;
        struct err err;
        int rc = job_spec_parse(body, &spec, &err);
        assert_int_equal(rc, cases[i].legal ? 0 : -ERR_MISSING_FIELD);
        if (!cases[i].legal) {
            assert_string_equal(err.field, "training_file");
            continue;
        }
        assert_true(job_spec_measures(&spec));
        CLEANUP(json_unref) json_t *printed = job_spec_json(&spec);
        struct job_spec again;
        assert_int_equal(job_spec_parse(printed, &again, &err), 0);
        assert_string_equal(again.training_file, spec.training_file);
        assert_int_equal(again.measure, spec.measure);
        job_spec_done(&again);
        job_spec_done(&spec);
    }
    struct job_spec spec;
    resolve("'ithaca':{'gpus':2,'measure':true}", &spec);
    assert_int_equal(job_spec_slots(&spec), 2);
    assert_int_equal(spec.max_steps, 3);
}

static void test_layout_of_auto(void **state)
{
    for (size_t i = 0; i < sizeof auto_cases / sizeof auto_cases[0]; i++) {
        struct err err;
        struct job_spec spec;
        const struct layout *given = &auto_cases[i].given;
        int rc = resolve_layout(&auto_cases[i].asked, auto_cases[i].heads, auto_cases[i].kv_heads,
                                &spec, &err);
        if (!is_served(given->kind)) { /* auto must not choose what has no code either */
            assert_int_equal(rc, -ERR_UNSUPPORTED);
            assert_string_equal(err.field, "ithaca.context_parallel.kind");
            continue;
        }
        if (rc != 0)
            fail_msg("case %zu: %s", i, err.text);
        if (spec.context_kind != given->kind || spec.ulysses != given->ulysses ||
            spec.ring != given->ring || spec.heads_per_stage != given->stage ||
            spec.grad_accum != auto_cases[i].grad_accum || spec.tile_mlp != auto_cases[i].tile)
            fail_msg("case %zu: kind %s ulysses %d ring %d stage %d grad_accum %d tile_mlp %d", i,
                     job_context_kind_name(spec.context_kind), (int)spec.ulysses, (int)spec.ring,
                     (int)spec.heads_per_stage, (int)spec.grad_accum, (int)spec.tile_mlp);
    }
}

/* R23: heads that the ranks cannot share are refused with what they can. */
static void test_layout_refused(void **state)
{
    static const struct {
        struct layout asked;
        int heads, kv_heads;
        const char *field; /* below ithaca.context_parallel */
        const char *text;
    } cases[] = {
        {{8, JOB_context_kind_ULYSSES, 8, A, A}, 28, 4, "ulysses", "is 8; it must be 1, 2 or 4: "},
        {{8, JOB_context_kind_AUTO, 8, A, A}, 28, 4, "ulysses", "28 heads, and divides or is a"},
        {{8, JOB_context_kind_ULYSSES, 8, A, A}, 14, 2, "ulysses", "is 8; it must be 1 or 2: "},
        {{40, JOB_context_kind_ULYSSES, 20, A, A},
         40,
         8,
         "ulysses",
         "is 20; it must be 1, 2, 4, 8 or 40: it divides gpus / ring (40)"},
        {{12, JOB_context_kind_UPIPE, 6, A, A}, 12, 4, "ulysses", "it must be 1, 2, 4 or 12"},
        {{8, JOB_context_kind_ULYSSES, 8, 2, A}, 32, 8, "ulysses", "it must be 1, 2 or 4"},
        {{2, JOB_context_kind_ULYSSES, 64, A, A}, 64, 64, "ulysses", "it must be 1 or 2"},
        {{8, JOB_context_kind_RING, A, 3, A}, 32, 8, "ring", "is 3; it must be 1, 2, 4 or 8, a"},
        {{8, JOB_context_kind_AUTO, 2, 16, A}, 32, 8, "ring", "it must be 1, 2, 4 or 8"},
        {{8, JOB_context_kind_RING, 2, 4, A}, 32, 8, "ulysses", "it must be 1 unless"},
        {{8, JOB_context_kind_NONE, 2, A, A}, 32, 8, "ulysses", "it must be 1 unless"},
        {{8, JOB_context_kind_NONE, A, 2, A}, 32, 8, "ring", "it must be 1 with"},
        {{8, JOB_context_kind_ULYSSES, 4, A, 2},
         32,
         8,
         "heads_per_stage",
         "is 2; it must be 8 (all heads of a rank) unless context_parallel.kind is upipe"},
        {{8, JOB_context_kind_UPIPE, 8, A, 2},
         40,
         8,
         "heads_per_stage",
         "is 2; it must be 1 or 5 with ulysses 8 and the model's 40 heads and 8 key/value heads"},
        {{8, JOB_context_kind_UPIPE, 8, A, 8}, 32, 8, "heads_per_stage", "it must be 1, 2 or 4"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct err err;
        struct job_spec spec;
        char field[64];
        int rc = resolve_layout(&cases[i].asked, cases[i].heads, cases[i].kv_heads, &spec, &err);
        (void)snprintf(field, sizeof field, "ithaca.context_parallel.%s", cases[i].field);
        assert_int_equal(rc, -ERR_INVALID_VALUE);
        assert_string_equal(err.field, field);
        if (strstr(err.text, cases[i].text) == NULL)
            fail_msg("\"%s\" does not say \"%s\"", err.text, cases[i].text);
    }
}

/* Every explicit layout is taken exactly when mesh says it is legal. */
static void test_layout_complete(void **state)
{
    static const int shapes[][2] = {{8, 8}, {8, 2}, {8, 1}, {12, 4}, {14, 2}, {6, 3}};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        struct layout l = {.kind = JOB_context_kind_UPIPE};
        for (l.gpus = 1; l.gpus <= 12; l.gpus++)
            for (l.ulysses = 1; l.ulysses <= 14; l.ulysses++)
                for (l.ring = 1; l.ring <= 4; l.ring++)
                    for (l.stage = 1; l.stage <= 14; l.stage++) {
                        struct err err;
                        struct job_spec spec;
                        bool legal =
                            l.gpus % (l.ring * l.ulysses) == 0 &&
                            mesh_stage_legal(shapes[i][0], shapes[i][1], l.ulysses, l.stage);
                        int rc = resolve_layout(&l, shapes[i][0], shapes[i][1], &spec, &err);
                        int taken = is_served(l.kind) ? 0 : -ERR_UNSUPPORTED;
                        if (rc != (legal ? taken : -ERR_INVALID_VALUE))
                            fail_msg("H %d K %d gpus %d ulysses %d ring %d stage %d: %d",
                                     shapes[i][0], shapes[i][1], l.gpus, l.ulysses, l.ring, l.stage,
                                     rc);
                    }
    }
}

static void test_recompute_and_overlap(void **state)
{
    struct err err;
    struct job_spec spec;
    struct job_facts facts = {.ranks_max = 1, .heads = 8, .kv_heads = 4, .layers = 6};
    bool served = job_field_find("recompute")->names->values[JOB_recompute_ATTENTION].served;
    accept("'ithaca':{}", &spec);
    spec.recompute = JOB_recompute_ATTENTION;
    assert_int_equal(job_spec_resolve(&spec, &facts, &err), served ? 0 : -ERR_UNSUPPORTED);
    assert_int_equal(spec.keep_input_every, served ? 4 : JOB_AUTO);
    facts.layers = 3;
    spec.keep_input_every = JOB_AUTO;
    assert_int_equal(job_spec_resolve(&spec, &facts, &err), served ? 0 : -ERR_UNSUPPORTED);
    assert_int_equal(spec.keep_input_every, served ? 3 : JOB_AUTO);
    spec.keep_input_every = 4;
    assert_int_equal(job_spec_resolve(&spec, &facts, &err), -ERR_INVALID_VALUE);
    assert_string_equal(err.field, "ithaca.keep_input_every");
    assert_non_null(strstr(err.text, "is 4; it must be from 1 to 3"));
    accept("'ithaca':{}", &spec);
    spec.overlap = JOB_overlap_ON;
    assert_int_equal(job_spec_resolve(&spec, &facts, &err), -ERR_INVALID_VALUE);
    assert_string_equal(err.field, "ithaca.overlap");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_resolve_fills_every_auto),
        cmocka_unit_test(test_resolve_refuses),
        cmocka_unit_test(test_rehearsal),
        cmocka_unit_test(test_measure),
        cmocka_unit_test(test_layout_of_auto),
        cmocka_unit_test(test_layout_refused),
        cmocka_unit_test(test_layout_complete),
        cmocka_unit_test(test_recompute_and_overlap),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
