/* experiment_plan: points of an 8B model on eight GPUs: what fits, what does not and by which
 * figure, what is rehearsed and how long that runs. */
#include "common/experiment_plan.h"

#include "common/mem.h"
#include "common/time_rates.h"
#include "tests/lib/long_job.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define GIB 0x1p30
#define GRID(seq_len, more)                                                                      \
    "{'base':{'model':'llama3-8b','ithaca':{'gpus':8,'offload':'host','context_parallel':"       \
    "{'kind':'upipe','heads_per_stage':1}}},'grid':{'seq_len':[" seq_len "],'settings':["        \
    "{'recompute':'attention','keep_input_every':1},{'recompute':'attention','keep_input_every'" \
    ":4},{'context_parallel':{'kind':'ulysses','heads_per_stage':'auto'},'recompute':'input'},"  \
    "{'recompute':'none','offload':'none','context_parallel':{'kind':'none',"                    \
    "'heads_per_stage':'auto'},'tile_mlp':16777216,'tile_loss':16777216}]}," more "}"

struct scene {
    struct experiment_spec spec;
    struct model_shape shape;
    int64_t ranks; /* of the machine */
};

static void open_scene(struct scene *s, const char *text, int64_t ranks)
{
    struct err err = {0};
    CLEANUP(json_unref) json_t *body = json_literal(text);
    memset(s, 0, sizeof *s);
    s->ranks = ranks;
    assert_non_null(body);
    MUST_WORK(experiment_spec_parse(body, &s->spec, &err), &err);
    long_job_shape(&s->shape);
}

static void close_scene(struct scene *s)
{
    experiment_spec_done(&s->spec);
    model_shape_done(&s->shape);
    assert_int_equal(mem_live(), 0);
}

/* An 80 GB card, and 2000 GiB of host memory. */
static struct experiment_plan plan(const struct scene *s, int64_t number, bool longest)
{
    struct err err = {0};
    struct experiment_job job;
    struct experiment_plan planned;
    struct time_rates rates;
    time_rates_table(MEM_BACKEND_CUDA, "80GB", 8, &rates);
    MUST_WORK(experiment_job_read(&s->spec, number, 0, &job, &err), &err);
    const struct mem_ask ask = {.shape = &s->shape,
                                .spec = &job.spec,
                                .backend = MEM_BACKEND_CUDA,
                                .ranks_max = s->ranks,
                                .device_bytes = 79LL << 30,
                                .host_bytes = 2000LL << 30,
                                .rates = &rates};
    MUST_WORK(experiment_plan_make(&s->spec, &job, &ask, longest, &planned, &err), &err);
    experiment_job_done(&job);
    return planned;
}

static double fact(const struct experiment_plan *planned, const char *name)
{
    return json_number_value(json_object_get(planned->facts, name));
}

static void test_on_the_node(void **state)
{
    struct scene s;
    open_scene(&s, GRID("1048576", "'steps':2,'rehearse_layers':1"), 8);
    struct experiment_plan one = plan(&s, 0, false);
    assert_int_equal(one.fit, EXPERIMENT_FITS);
    assert_string_equal(one.note, "");
    assert_true(json_is_false(json_object_get(one.facts, "rehearsed")));
    assert_int_equal(fact(&one, "slots"), 8);
    assert_true(fact(&one, "planned_device_bytes") > 20 * GIB);
    assert_true(fact(&one, "planned_device_bytes") < 40 * GIB);
    double step_s = fact(&one, "planned_step_s");
    assert_true(fabs(fact(&one, "planned_run_s") - 2 * step_s) < 1e-9);
    assert_true(fabs(fact(&one, "planned_tokens_per_s_gpu") - 1048576 / step_s / 8) < 1e-6);
    assert_string_equal(json_string_value(json_object_get(one.facts, "method")), "upipe/1");
    experiment_plan_done(&one);
    close_scene(&s);
}

/* Of a rehearsal the layers that work count, in whole segments, and the head and update once. */
static void test_rehearsed(void **state)
{
    struct scene s;
    open_scene(&s, GRID("1048576", "'steps':2,'rehearse_layers':1"), 2);
    double run_s[2];
    for (int64_t i = 0; i < 2; i++) {
        struct experiment_plan one = plan(&s, i, false);
        assert_int_equal(one.fit, EXPERIMENT_FITS);
        assert_true(json_is_true(json_object_get(one.facts, "rehearsed")));
        assert_int_equal(fact(&one, "slots"), 1);
        assert_int_equal(fact(&one, "gpus"), 8);
        double layers = i == 0 ? 1 : 4, whole_s = 2 * fact(&one, "planned_step_s");
        run_s[i] = fact(&one, "planned_run_s");
        assert_true(run_s[i] > whole_s * layers / 32);
        assert_true(run_s[i] < whole_s * (layers + 1) / 32);
        experiment_plan_done(&one);
    }
    assert_true(run_s[1] > 3 * run_s[0]);
    close_scene(&s);
}

/* What the device's attention cannot do has a figure, too; it is the reason where it is too large.
 */
static void test_no_room(void **state)
{
    struct scene s;
    open_scene(&s, GRID("131072,1048576,8388608", "'steps':1"), 8);
    struct experiment_plan whole = plan(&s, 7, false), ulysses = plan(&s, 10, false);
    assert_int_equal(whole.fit, EXPERIMENT_NO_ROOM);
    assert_non_null(strstr(whole.note, "GiB"));
    assert_true(fact(&whole, "planned_device_bytes") > 1000 * GIB);
    assert_int_equal(ulysses.fit, EXPERIMENT_NO_ROOM);
    assert_non_null(strstr(ulysses.note, "there are 79"));
    assert_true(fact(&ulysses, "planned_device_bytes") > 79 * GIB);
    experiment_plan_done(&whole);
    experiment_plan_done(&ulysses);
    close_scene(&s);
}

static void test_refused(void **state)
{
    struct scene s;
    /* a layout that would fit, but for cuDNN's spans; one that no layout is; too many slots */
    open_scene(&s,
               "{'base':{'model':'llama3-8b','ithaca':{'gpus':8,'states':'host','offload':'host',"
               "'recompute':'input','seq_len':4194304}},'grid':{'context_parallel':["
               "{'kind':'ulysses'},{'kind':'ulysses','ulysses':3}]}}",
               8);
    struct experiment_plan spans = plan(&s, 0, false), three = plan(&s, 1, false);
    assert_int_equal(spans.fit, EXPERIMENT_REFUSED);
    assert_non_null(strstr(spans.note, "heads_per_stage"));
    assert_true(fact(&spans, "planned_device_bytes") > 20 * GIB);
    assert_int_equal(three.fit, EXPERIMENT_REFUSED);
    assert_non_null(strstr(three.note, "3"));
    assert_null(json_object_get(three.facts, "planned_device_bytes"));
    experiment_plan_done(&spans);
    experiment_plan_done(&three);
    close_scene(&s);
    open_scene(&s, GRID("131072", "'max_gpus':4"), 8);
    struct experiment_plan many = plan(&s, 0, false);
    assert_int_equal(many.fit, EXPERIMENT_REFUSED);
    assert_non_null(strstr(many.note, "max_gpus is 4"));
    experiment_plan_done(&many);
    close_scene(&s);
}

static void test_longest(void **state)
{
    struct scene s;
    const char *text =
        "{'kind':'find_max_seq_len','base':{'model':'llama3-8b','ithaca':{'gpus':8,'recompute':"
        "'input','offload':'host'}},'grid':{'context_parallel':[{'kind':'ulysses'},{'kind':"
        "'upipe','heads_per_stage':1}]},'seq_len_min':131072%s}";
    char capped[512], open[512];
    (void)snprintf(open, sizeof open, text, "");
    (void)snprintf(capped, sizeof capped, text, ",'seq_len_max':262144");
    open_scene(&s, open, 8);
    struct experiment_plan ulysses = plan(&s, 0, true), upipe = plan(&s, 1, true);
    assert_true(fact(&ulysses, "seq_len") > 3 * 1048576 && fact(&ulysses, "seq_len") < 4194304);
    assert_true(fact(&upipe, "seq_len") > 2 * fact(&ulysses, "seq_len"));
    /* cuDNN's spans end the one, the host's memory the other */
    assert_true(fact(&upipe, "planned_host_bytes") > 249 * GIB);
    experiment_plan_done(&ulysses);
    experiment_plan_done(&upipe);
    close_scene(&s);
    open_scene(&s, capped, 8);
    struct experiment_plan cap = plan(&s, 1, true);
    assert_int_equal(fact(&cap, "seq_len"), 262144);
    experiment_plan_done(&cap);
    close_scene(&s);
}

/* Which point it was is said before what is wrong with it. */
static void test_fault_of_the_experiment(void **state)
{
    struct scene s;
    struct experiment_job job;
    struct err err = {0};
    open_scene(&s, "{'base':{'model':'m'},'grid':{'recompute':['input','all']}}", 8);
    assert_int_equal(experiment_job_read(&s.spec, 1, 0, &job, &err), -ERR_INVALID_VALUE);
    assert_ptr_equal(strstr(err.text, "point 1 (recompute all): "), err.text);
    close_scene(&s);
    open_scene(&s, "{'base':{'model':'m','ithaca':{'max_steps':2}},'grid':{'gpus':[1]}}", 8);
    assert_int_equal(experiment_job_read(&s.spec, 0, 0, &job, &err), -ERR_INVALID_VALUE);
    assert_non_null(strstr(err.text, "steps"));
    close_scene(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_on_the_node), cmocka_unit_test(test_rehearsed),
        cmocka_unit_test(test_no_room),     cmocka_unit_test(test_refused),
        cmocka_unit_test(test_longest),     cmocka_unit_test(test_fault_of_the_experiment),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
