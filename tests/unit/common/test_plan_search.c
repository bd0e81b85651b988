/* The search against all there is, on small cases: never more than five percent slower; what the
 * sender chose stays; what cannot be is said. */
#include "common/mem.h"
#include "common/model_published.h"
#include "common/plan_search.h"
#include "tests/lib/cmocka.h"

#include <math.h>

#define MIB ((int64_t)1 << 20)

static const struct model_config small = {.family = MODEL_FAMILY_LLAMA,
                                          .vocab_size = 8000,
                                          .hidden_size = 512,
                                          .intermediate_size = 1536,
                                          .layers = 2,
                                          .heads = 8,
                                          .kv_heads = 2,
                                          .head_dim = 64,
                                          .context_max = 1 << 20,
                                          .rms_norm_eps = 1e-5,
                                          .rope_theta = 10000,
                                          .initializer_range = 0.02};

static struct model_shape shape;
static struct time_rates rates;

static struct job_spec asked(int64_t gpus, int64_t seq_len)
{
    return (struct job_spec){.gpus = gpus,
                             .seq_len = seq_len,
                             .sequences = 4,
                             .grad_accum = JOB_AUTO,
                             .context_kind = JOB_context_kind_AUTO,
                             .ulysses = JOB_AUTO,
                             .ring = JOB_AUTO,
                             .heads_per_stage = JOB_AUTO,
                             .fsdp = true,
                             .recompute = JOB_recompute_AUTO,
                             .keep_input_every = JOB_AUTO,
                             .offload = JOB_offload_AUTO,
                             .tile_mlp = JOB_AUTO,
                             .tile_loss = JOB_AUTO,
                             .overlap = JOB_overlap_AUTO,
                             .states = JOB_states_AUTO,
                             .stream_residual = JOB_toggle_AUTO,
                             .save_keep = 1};
}

static struct mem_ask ask_of(const struct job_spec *spec, enum mem_backend backend)
{
    return (struct mem_ask){.shape = &shape,
                            .spec = spec,
                            .backend = backend,
                            .ranks_max = 8,
                            .planned = true,
                            .rates = &rates};
}

/* The best of all combinations of values, those of the search among them. */
struct exhaustive {
    struct mem_ask ask;
    double best; /* seconds; infinite: none fits */
    int64_t tried;
};

static void exhaust_one(struct exhaustive *all, const struct job_spec *spec)
{
    struct err ignored = {0};
    struct job_spec settled;
    struct time_plan time;
    struct mem_estimate estimate;
    all->ask.spec = spec;
    if (mem_estimate_time(&all->ask, &settled, &time, &ignored) != 0)
        return;
    all->tried++;
    if (time.step_s >= all->best || mem_estimate_make(&all->ask, &estimate, &ignored) != 0)
        return;
    bool disk = all->ask.disk_bytes == 0 || estimate.disk_bytes <= all->ask.disk_bytes;
    if (estimate.fits && disk && estimate.time.step_s < all->best)
        all->best = estimate.time.step_s;
    mem_estimate_done(&estimate);
}

static void exhaust_tiles(struct exhaustive *all, struct job_spec spec)
{
    static const int64_t tiles[] = {LIMIT_SEQ_LEN, 4096, 512};
    for (int t = 0; t < 3; t++)
        for (int overlap = JOB_overlap_ON; overlap <= JOB_overlap_OFF; overlap++) {
            spec.tile_mlp = tiles[t];
            spec.tile_loss = tiles[t] < 1024 ? tiles[t] : 1024;
            spec.overlap = (enum job_overlap)overlap;
            exhaust_one(all, &spec);
        }
}

static void exhaust_places(struct exhaustive *all, struct job_spec spec)
{
    for (int o = JOB_offload_NONE; o < JOB_offload_COUNT; o++)
        for (int s = JOB_states_DEVICE; s < JOB_states_COUNT; s++)
            for (int stream = JOB_toggle_ON; stream <= JOB_toggle_OFF; stream++) {
                spec.offload = (enum job_offload)o;
                spec.states = (enum job_states)s;
                spec.stream_residual = (enum job_toggle)stream;
                exhaust_tiles(all, spec);
            }
}

static void exhaust_recompute(struct exhaustive *all, struct job_spec spec)
{
    for (int r = JOB_recompute_NONE; r < JOB_recompute_COUNT; r++)
        for (int64_t every = 1; every <= small.layers; every++) {
            spec.recompute = (enum job_recompute)r;
            spec.keep_input_every = every;
            if (r == JOB_recompute_ATTENTION || every == 1)
                exhaust_places(all, spec);
        }
}

static double exhaust(const struct mem_ask *ask, int64_t *ret_tried)
{
    struct exhaustive all = {.ask = *ask, .best = HUGE_VAL};
    struct job_spec spec = *ask->spec;
    for (int kind = JOB_context_kind_NONE; kind < JOB_context_kind_COUNT; kind++)
        for (int64_t ring = 1; ring <= spec.gpus; ring++)
            for (int64_t ulysses = 1; ulysses * ring <= spec.gpus; ulysses++)
                for (int64_t u = 1; u <= small.heads / ulysses; u++) {
                    spec.context_kind = (enum job_context_kind)kind;
                    spec.ring = ring;
                    spec.ulysses = ulysses;
                    spec.heads_per_stage =
                        kind == JOB_context_kind_UPIPE ? u : small.heads / ulysses;
                    if (kind == JOB_context_kind_UPIPE || u == 1)
                        exhaust_recompute(&all, spec);
                }
    *ret_tried = all.tried;
    return all.best;
}

static void test_exhaustive(void **state)
{
    static const struct {
        int64_t gpus, seq_len;
        enum mem_backend backend;
        int64_t device_mib, host_mib, disk_mib; /* 0: no limit */
    } cases[] = {
        {2, 4096, MEM_BACKEND_CPU, 0, 0, 0},           {2, 4096, MEM_BACKEND_CPU, 200, 0, 0},
        {2, 4096, MEM_BACKEND_CPU, 0, 400, 0},         {2, 65536, MEM_BACKEND_CUDA, 2200, 1500, 0},
        {2, 65536, MEM_BACKEND_CUDA, 1900, 400, 4000}, {4, 131072, MEM_BACKEND_CUDA, 2400, 4000, 0},
        {1, 65536, MEM_BACKEND_CUDA, 2500, 0, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct err err = {0};
        struct job_spec spec = asked(cases[i].gpus, cases[i].seq_len);
        struct mem_ask ask = ask_of(&spec, cases[i].backend);
        struct mem_estimate found;
        int64_t tried;
        ask.device_bytes = cases[i].device_mib * MIB;
        ask.host_bytes = cases[i].host_mib * MIB;
        ask.disk_bytes = cases[i].disk_mib * MIB;
        time_rates_table(cases[i].backend, "80GB", cases[i].gpus, &rates);
        double best = exhaust(&ask, &tried);
        int rc = plan_search(&ask, &found, &err);
        print_message("case %zu: %lld settings, the best %g s, found %g\n", i, (long long)tried,
                      best, rc == 0 ? found.time.step_s : 0.0);
        if (best == HUGE_VAL) {
            assert_int_equal(rc, -ERR_DOES_NOT_FIT);
            continue;
        }
        if (rc != 0)
            fail_msg("%s", err.text);
        assert_true(found.fits && found.time.step_s <= 1.05 * best);
        mem_estimate_done(&found);
    }
}

static void test_what_is_given_stays(void **state)
{
    struct err err = {0};
    struct job_spec spec = asked(4, 65536);
    struct mem_ask ask = ask_of(&spec, MEM_BACKEND_CUDA);
    struct mem_estimate found;
    time_rates_table(MEM_BACKEND_CUDA, "80GB", 4, &rates);
    spec.context_kind = JOB_context_kind_UPIPE;
    spec.ulysses = 2;
    spec.heads_per_stage = 2;
    spec.recompute = JOB_recompute_ATTENTION;
    spec.tile_mlp = 3000;
    spec.states = JOB_states_HOST;
    assert_int_equal(plan_search(&ask, &found, &err), 0);
    assert_int_equal(found.spec.ulysses, 2);
    assert_int_equal(found.spec.heads_per_stage, 2);
    assert_int_equal(found.spec.recompute, JOB_recompute_ATTENTION);
    assert_int_equal(found.spec.keep_input_every, 1); /* nothing asks for more */
    assert_int_equal(found.spec.tile_mlp, 3000);
    assert_int_equal(found.spec.states, JOB_states_HOST);
    assert_int_equal(found.spec.offload, JOB_offload_NONE);
    assert_int_equal(found.spec.stream_residual, JOB_toggle_OFF);
    mem_estimate_done(&found);
    spec.heads_per_stage = 3; /* of 4 that a rank owns */
    assert_int_equal(plan_search(&ask, &found, &err), -ERR_INVALID_VALUE);
    assert_string_equal(err.field, "ithaca.context_parallel.heads_per_stage");
    spec.heads_per_stage = JOB_AUTO;
    ask.device_bytes = MIB;
    assert_int_equal(plan_search(&ask, &found, &err), -ERR_DOES_NOT_FIT);
}

/* Where attention is nearly all the time, what to keep hardly changes it: on the device all is
 * kept, elsewhere O only, and as few inputs as there can be. */
static void test_keeps_little_elsewhere(void **state)
{
    static const struct {
        enum job_offload offload;
        enum job_recompute recompute;
        int64_t every;
    } cases[] = {{JOB_offload_NONE, JOB_recompute_NONE, 1},
                 {JOB_offload_HOST, JOB_recompute_ATTENTION, 2},
                 {JOB_offload_FILE, JOB_recompute_ATTENTION, 2}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct err err = {0};
        struct job_spec spec = asked(4, 4 << 20);
        struct mem_ask ask = ask_of(&spec, MEM_BACKEND_CUDA);
        struct mem_estimate found;
        time_rates_table(MEM_BACKEND_CUDA, "80GB", 4, &rates);
        spec.offload = cases[i].offload;
        assert_int_equal(plan_search(&ask, &found, &err), 0);
        assert_int_equal(found.spec.recompute, cases[i].recompute);
        assert_int_equal(found.spec.keep_input_every, cases[i].every);
        mem_estimate_done(&found);
    }
}

/* What this version cannot run is not chosen at submit. */
static void test_served(void **state)
{
    struct err err = {0};
    struct job_spec spec = asked(2, 65536);
    struct mem_ask ask = ask_of(&spec, MEM_BACKEND_CUDA);
    struct mem_estimate found;
    time_rates_table(MEM_BACKEND_CUDA, "80GB", 2, &rates);
    ask.planned = false;
    ask.device_bytes = 2600 * MIB;
    MUST_WORK(plan_search(&ask, &found, &err), &err);
    assert_true(found.served);
    mem_estimate_done(&found);
}

static void test_failing_allocations(void **state)
{
    struct job_spec spec = asked(2, 4096);
    struct mem_ask ask = ask_of(&spec, MEM_BACKEND_CPU);
    struct mem_estimate found;
    int64_t live = mem_live();
    int rc = -1;
    spec.recompute = JOB_recompute_INPUT;
    spec.states = JOB_states_DEVICE;
    spec.offload = JOB_offload_NONE;
    spec.context_kind = JOB_context_kind_ULYSSES;
    time_rates_table(MEM_BACKEND_CPU, "", 2, &rates);
    for (int64_t n = 1; rc != 0; n++) {
        struct err err = {0};
        mem_fault_after(n);
        rc = plan_search(&ask, &found, &err);
        assert_int_equal(mem_fault_after(0), rc != 0);
        assert_true(rc == 0 || rc == -ERR_NOMEM);
        assert_true(n < 10000);
        if (rc == 0)
            mem_estimate_done(&found);
        assert_int_equal(mem_live(), live);
    }
}

int main(void)
{
    struct err err = {0};
    if (model_shape_build(&small, &shape, &err) != 0)
        return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exhaustive), cmocka_unit_test(test_what_is_given_stays),
        cmocka_unit_test(test_keeps_little_elsewhere), cmocka_unit_test(test_served),
        cmocka_unit_test(test_failing_allocations)};
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    model_shape_done(&shape);
    return failed;
}
