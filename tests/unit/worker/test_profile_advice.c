/* profile_advice: on figures made by hand, with the plans of an 8B model on eight GPUs: each cause
 * brings its setting with what the plan of the changed job says; what is small, set already, or not
 * legal for the job brings none; what does not fit says so and comes last. */
#include "worker/profile_advice.h"

#include "common/host_memory.h"
#include "common/mem.h"
#include "common/mem_estimate.h"
#include "tests/lib/long_job.h"

#include <stdio.h>
#include <string.h>

enum { STEP_NS = 1000 };

struct scene {
    struct profile_file files[1];
    struct profile_job job;
    struct profile_sums sums;
    struct profile_busy rank;
    struct profile_figure figures[8]; /* of waits */
    struct mem_estimate estimate;
};

static struct job_spec spec_of(int64_t seq_len)
{
    struct job_spec spec = long_job(seq_len);
    spec.sequences = spec.grad_accum = 16;
    spec.tile_mlp = spec.tile_loss = JOB_AUTO;
    return spec;
}

static void open_scene(struct scene *s, const struct job_spec *spec, int64_t device_gib)
{
    struct err err = {0};
    memset(s, 0, sizeof *s);
    long_job_shape(&s->job.shape);
    const struct mem_ask ask = {
        .shape = &s->job.shape, .spec = spec, .backend = MEM_BACKEND_CUDA, .ranks_max = 8};
    MUST_WORK(mem_estimate_make(&ask, &s->estimate, &err), &err);
    s->job.plan.spec = s->estimate.spec;
    s->job.memory = s->estimate.plan;
    s->job.device_bytes = device_gib << 30;
    s->job.world = 1;
    s->job.files = s->files;
    s->sums.steps = 1;
    s->sums.ranks = &s->rank;
    s->sums.all.step_ns = s->rank.step_ns = STEP_NS;
    s->sums.kinds[PROFILE_WAIT].list = s->figures;
}

static void wait_for(struct scene *s, const char *metric, int64_t ns)
{
    struct profile_figure *figure = &s->figures[s->sums.kinds[PROFILE_WAIT].count++];
    *figure = (struct profile_figure){.count = 1, .ns = ns};
    (void)snprintf(figure->name, sizeof figure->name, "%s", metric);
}

static json_t *advice(struct scene *s)
{
    struct err err = {0};
    json_t *list = NULL;
    MUST_WORK(profile_advice_make(&s->job, &s->sums, &list, &err), &err);
    return list;
}

static void close_scene(struct scene *s)
{
    mem_estimate_done(&s->estimate);
    model_shape_done(&s->job.shape);
    assert_int_equal(mem_live(), 0);
}

/* The advice that sets a field, or NULL. */
static const json_t *find(const json_t *list, const char *field)
{
    for (size_t i = 0; i < json_array_size(list); i++)
        if (json_object_get(json_object_get(json_array_get(list, i), "set"), field) != NULL)
            return json_array_get(list, i);
    return NULL;
}

/* What the plan says that settings take on this machine, whose memory has a say in it. */
static int64_t peak_of(const struct scene *s, const struct job_spec *spec)
{
    struct mem_estimate estimate;
    struct err err = {0};
    const struct mem_ask ask = {.shape = &s->job.shape,
                                .spec = spec,
                                .backend = MEM_BACKEND_CUDA,
                                .ranks_max = 8,
                                .device_bytes = s->job.device_bytes,
                                .host_bytes = host_memory_read().total};
    assert_int_equal(mem_estimate_make(&ask, &estimate, &err), 0);
    int64_t bytes = estimate.plan.peak_device_bytes;
    mem_estimate_done(&estimate);
    return bytes;
}

/* And a change by itself. */
static int64_t cost(const struct scene *s, const struct job_spec *changed)
{
    return peak_of(s, changed) - peak_of(s, &s->job.plan.spec);
}

/* What fits, what has no setting, what does not fit; each by share. */
static void check_order(const json_t *list)
{
    int before_place = 0;
    double before = 1;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *one = json_array_get(list, i), *fits = json_object_get(one, "fits");
        double share = json_real_value(json_object_get(one, "share"));
        int place = json_is_true(fits) ? 0 : json_is_null(fits) ? 1 : 2;
        assert_true(place >= before_place);
        assert_true(place > before_place || share <= before);
        before_place = place;
        before = share;
    }
}

static void test_overlap(void **state)
{
    struct scene s;
    struct job_spec spec = spec_of(1 << 20);
    open_scene(&s, &spec, 80);
    wait_for(&s, "exchange_wait_s", 91);
    wait_for(&s, "gather_wait_s", 19); /* under 2 %: not worth a word */
    json_t *list = advice(&s);
    const json_t *one = find(list, "overlap");
    assert_non_null(one);
    assert_true(json_is_true(json_object_get(json_object_get(one, "set"), "overlap")));
    assert_true(json_real_value(json_object_get(one, "share")) == 0.091);
    struct job_spec changed = s.job.plan.spec;
    changed.overlap = JOB_overlap_ON;
    assert_int_equal(json_integer_value(json_object_get(one, "device_bytes")), cost(&s, &changed));
    assert_true(cost(&s, &changed) > 0 && json_is_true(json_object_get(one, "fits")));
    const char *text = json_string_value(json_object_get(one, "text"));
    assert_non_null(strstr(text, "9.1 % of the time goes into waiting for all-to-alls"));
    assert_non_null(strstr(text, "; it costs "));
    assert_non_null(strstr(text, "a rank, and fits"));
    assert_null(find(list, "fsdp"));
    assert_non_null(find(list, "context_parallel.heads_per_stage"));
    json_decref(list);
    close_scene(&s);
    spec.overlap = JOB_overlap_ON; /* set already */
    open_scene(&s, &spec, 80);
    wait_for(&s, "exchange_wait_s", 91);
    list = advice(&s);
    assert_null(find(list, "overlap"));
    json_decref(list);
    close_scene(&s);
}

/* What cannot be: all heads of a rank are in one stage, a kind without stages, one rank. */
static void test_not_legal(void **state)
{
    struct scene s;
    struct job_spec spec = spec_of(1 << 16);
    spec.heads_per_stage = 4;
    open_scene(&s, &spec, 80);
    wait_for(&s, "exchange_wait_s", 500);
    json_t *list = advice(&s);
    assert_null(find(list, "context_parallel.heads_per_stage"));
    json_decref(list);
    close_scene(&s);
    spec.context_kind = JOB_context_kind_ULYSSES;
    open_scene(&s, &spec, 80);
    wait_for(&s, "exchange_wait_s", 500);
    wait_for(&s, "states_wait_s", 500); /* they are on the device */
    list = advice(&s);
    assert_int_equal(json_array_size(list), 0);
    json_decref(list);
    close_scene(&s);
}

/* A ring becomes an exchange; fields that follow are named too. */
static void test_several_fields(void **state)
{
    struct scene s;
    struct job_spec spec = spec_of(1 << 18);
    spec.context_kind = JOB_context_kind_RING;
    spec.ulysses = 1;
    spec.ring = 8;
    spec.heads_per_stage = JOB_AUTO;
    open_scene(&s, &spec, 80);
    wait_for(&s, "ring_wait_s", 250);
    json_t *list = advice(&s);
    assert_int_equal(json_array_size(list), 1);
    const json_t *set = json_object_get(json_array_get(list, 0), "set");
    assert_string_equal(json_string_value(json_object_get(set, "context_parallel.kind")),
                        "ulysses");
    assert_int_equal(json_integer_value(json_object_get(set, "context_parallel.ulysses")), 8);
    assert_int_equal(json_integer_value(json_object_get(set, "context_parallel.ring")), 1);
    assert_int_equal(json_integer_value(json_object_get(set, "context_parallel.heads_per_stage")),
                     4);
    assert_int_equal(json_object_size(set), 4);
    json_decref(list);
    close_scene(&s);
}

/* ---- every rule ---- */

static void able(struct job_spec *spec)
{
    spec->stream_residual = JOB_toggle_ON;
    spec->states = JOB_states_HOST;
}
static void whole(struct job_spec *spec)
{
    spec->fsdp = false;
}
static void at_hand(struct job_spec *spec)
{
    spec->offload = JOB_offload_NONE;
    spec->stream_residual = JOB_toggle_OFF;
    spec->states = JOB_states_DEVICE;
}
static void kept(struct job_spec *spec)
{
    spec->recompute = JOB_recompute_NONE;
    spec->keep_input_every = 1;
}
static void one_tile(struct job_spec *spec)
{
    spec->tile_mlp = spec->seq_len; /* all tokens of a rank, and more */
}
static void ulysses(struct job_spec *spec)
{
    spec->context_kind = JOB_context_kind_ULYSSES;
    spec->heads_per_stage = JOB_AUTO;
}

static const struct rule {
    enum profile_kind kind;
    const char *figure;                  /* "": idle time */
    const char *field;                   /* that is to be changed */
    void (*done)(struct job_spec *spec); /* it has that already, or cannot have it */
} rules[] = {
    {PROFILE_WAIT, "exchange_wait_s", "overlap", ulysses},
    {PROFILE_WAIT, "exchange_wait_s", "context_parallel.heads_per_stage", ulysses},
    {PROFILE_WAIT, "gather_wait_s", "fsdp", whole},
    {PROFILE_WAIT, "offload_out_wait_s", "offload", at_hand},
    {PROFILE_WAIT, "offload_in_wait_s", "stream_residual", at_hand},
    {PROFILE_WAIT, "states_wait_s", "states", at_hand},
    {PROFILE_PART, "backward: attention of forward again", "recompute", kept},
    {PROFILE_PART, "backward: layer inputs again", "keep_input_every", kept},
    {PROFILE_WAIT, "", "tile_mlp", one_tile},
};

/* Whether the job is told to change the rule's field, when its cause takes so many thousandths. */
static bool told(const struct rule *rule, int64_t ns, void (*change)(struct job_spec *spec))
{
    struct scene s;
    struct job_spec spec = spec_of(1 << 20);
    struct profile_figure figure = {.count = 1, .ns = ns};
    able(&spec);
    if (change != NULL)
        change(&spec);
    open_scene(&s, &spec, 0);
    (void)snprintf(figure.name, sizeof figure.name, "%s", rule->figure);
    if (rule->figure[0] == '\0')
        s.sums.all.idle_ns = ns;
    else
        s.sums.kinds[rule->kind] = (struct profile_figures){.list = &figure, .count = 1};
    json_t *list = advice(&s);
    bool found = find(list, rule->field) != NULL;
    json_decref(list);
    close_scene(&s);
    return found;
}

static void test_each_rule(void **state)
{
    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++) {
        const struct rule *rule = &rules[i];
        if (!told(rule, 50, NULL))
            fail_msg("%s at 5 %%: %s is not advised", rule->figure, rule->field);
        if (told(rule, 19, NULL)) /* under 2 %: not worth a word */
            fail_msg("%s at 1.9 %%: %s is advised", rule->figure, rule->field);
        if (told(rule, 50, rule->done))
            fail_msg("%s: %s is advised, though there is nothing to change", rule->figure,
                     rule->field);
    }
}

/* Sums wait for whoever computes longest; of one rank, or little of it, nothing is said. */
static void test_slowest(void **state)
{
    const struct {
        uint32_t world;
        int64_t ns;
        bool told;
    } cases[] = {{2, 100, true}, {1, 100, false}, {2, 19, false}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct scene s;
        struct job_spec spec = spec_of(1 << 20);
        struct profile_busy ranks[2] = {{.kernel_ns = 300}, {.kernel_ns = 700}};
        open_scene(&s, &spec, 80);
        s.job.world = cases[i].world;
        s.sums.ranks = ranks;
        wait_for(&s, "sums_wait_s", cases[i].ns);
        json_t *list = advice(&s);
        assert_int_equal(json_array_size(list), cases[i].told);
        const json_t *one = json_array_get(list, 0);
        if (cases[i].told)
            assert_non_null(strstr(json_string_value(json_object_get(one, "text")), "rank 1 comp"));
        json_decref(list);
        close_scene(&s);
    }
}

static void test_does_not_fit(void **state)
{
    struct scene s;
    struct job_spec spec = spec_of(3 << 20);
    open_scene(&s, &spec, 80);
    wait_for(&s, "offload_in_wait_s", 300);
    wait_for(&s, "gather_wait_s", 30);
    json_t *list = advice(&s);
    const json_t *one = find(list, "offload");
    assert_non_null(one);
    assert_true(json_is_false(json_object_get(one, "fits")));
    assert_non_null(strstr(json_string_value(json_object_get(one, "text")), "and does not fit"));
    check_order(list); /* after what fits, though its share is the largest */
    json_decref(list);
    close_scene(&s);
}

static void test_what_has_no_setting(void **state)
{
    struct scene s;
    struct job_spec spec = spec_of(1 << 20);
    struct profile_figure data = {.name = "data", .count = 1, .ns = 50};
    struct profile_figure kernel = {.name = "gemm", .count = 1, .ns = 400};
    open_scene(&s, &spec, 80);
    s.sums.kinds[PROFILE_PHASE] = (struct profile_figures){.list = &data, .count = 1};
    s.sums.kinds[PROFILE_KERNEL] = (struct profile_figures){.list = &kernel, .count = 1};
    s.sums.all.idle_ns = 300;
    s.job.dropped = 1; /* what was dropped would count as idle */
    json_t *list = advice(&s);
    assert_int_equal(json_array_size(list), 2);
    const char *first = json_string_value(json_object_get(json_array_get(list, 0), "text"));
    assert_non_null(strstr(first, "40.0 % of the time is gemm"));
    assert_true(json_is_null(json_object_get(json_array_get(list, 1), "set")));
    json_decref(list);
    s.job.dropped = 0;
    list = advice(&s);
    assert_non_null(find(list, "tile_mlp"));
    json_decref(list);
    close_scene(&s);
}

static void test_at_most_five(void **state)
{
    struct scene s;
    struct job_spec spec = spec_of(1 << 20);
    open_scene(&s, &spec, 141);
    wait_for(&s, "exchange_wait_s", 100);
    wait_for(&s, "gather_wait_s", 90);
    wait_for(&s, "sums_wait_s", 80); /* of one rank: nobody is waited for */
    wait_for(&s, "offload_in_wait_s", 70);
    s.sums.all.idle_ns = 60;
    struct profile_figure kernel = {.name = "gemm", .count = 1, .ns = 400};
    s.sums.kinds[PROFILE_KERNEL] = (struct profile_figures){.list = &kernel, .count = 1};
    json_t *list = advice(&s);
    assert_int_equal(json_array_size(list), PROFILE_ADVICE_MAX);
    check_order(list);
    json_decref(list);
    close_scene(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_overlap),
        cmocka_unit_test(test_not_legal),
        cmocka_unit_test(test_several_fields),
        cmocka_unit_test(test_each_rule),
        cmocka_unit_test(test_slowest),
        cmocka_unit_test(test_does_not_fit),
        cmocka_unit_test(test_what_has_no_setting),
        cmocka_unit_test(test_at_most_five),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
