/* mem_estimate, with mem_card, mem_advice, mem_report and mem_ladder: limits, refusals and what
 * they advise, the longest that fits, what is printed. */
#include "common/mem_estimate.h"

#include "common/mem.h"
#include "common/mem_advice.h"
#include "common/mem_card.h"
#include "common/mem_ladder.h"
#include "common/mem_report.h"
#include "tests/lib/long_job.h"

#include <string.h>

#define GIB ((int64_t)1 << 30)

static struct model_shape shape;

static int setup(void **state)
{
    long_job_shape(&shape);
    return 0;
}

static int teardown(void **state)
{
    model_shape_done(&shape);
    return 0;
}

static void parse(const char *ithaca, struct job_spec *ret)
{
    struct err err = {0};
    CLEANUP(mem_free_ptr)
    char *text = mem_printf("{'model':'m','training_file':'f','ithaca':{%s}}", ithaca);
    json_t *body = json_literal(text);
    assert_non_null(body);
    MUST_WORK(job_spec_parse_legal(body, ret, &err), &err);
    json_decref(body);
}

static struct mem_ask ask_of(const struct job_spec *spec)
{
    return (struct mem_ask){.shape = &shape,
                            .spec = spec,
                            .backend = MEM_BACKEND_CUDA,
                            .ranks_max = 8,
                            .planned = true};
}

static void test_card(void **state)
{
    static const struct {
        const char *text;
        double gib; /* 0: refused */
    } cases[] = {{"80GB", 79.1}, {"141GB", 139.7}, {"80", 80},  {"79.5GiB", 79.5}, {"0.5", 0.5},
                 {"", 0},        {"0", 0},         {"-1", 0},   {"80gb", 0},       {"nan", 0},
                 {"inf", 0},     {"1e9", 0},       {"80 GB", 0}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct err err = {0};
        int64_t bytes = -1;
        int rc = mem_card_bytes(cases[i].text, &bytes, &err);
        assert_int_equal(rc, cases[i].gib > 0 ? 0 : -ERR_INVALID_VALUE);
        assert_int_equal(bytes, cases[i].gib > 0 ? (int64_t)(cases[i].gib * (double)GIB) : -1);
        assert_true(rc == 0 || strstr(err.text, "80GB") != NULL);
    }
}

static void test_host_size(void **state)
{
    static const struct {
        const char *text;
        int64_t bytes; /* 0: refused */
    } cases[] = {{"450", 450 * GIB},
                 {"0.5", GIB / 2},
                 {"512GiB", 512 * GIB},
                 {"2TiB", 2048 * GIB},
                 {"550GB", 550000000000},
                 {"1.5TB", 1500000000000},
                 {"1048576", 1048576 * GIB},
                 {"1048577", 0},
                 {"1025TiB", 0},
                 {"", 0},
                 {"GiB", 0},
                 {"0", 0},
                 {"-1TiB", 0},
                 {"2tib", 0},
                 {"2 TiB", 0},
                 {"2TiBs", 0},
                 {"nan", 0},
                 {"inf", 0}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct err err = {0};
        int64_t bytes = 0;
        int rc = mem_card_host_bytes(cases[i].text, &bytes, &err);
        assert_int_equal(rc, cases[i].bytes > 0 ? 0 : -ERR_INVALID_VALUE);
        assert_int_equal(bytes, cases[i].bytes);
        assert_true(rc == 0 || strstr(err.text, "512GiB") != NULL);
    }
}

static void test_limits(void **state)
{
    struct err err = {0};
    struct job_spec spec;
    struct mem_estimate estimate;
    parse("'gpus':8,'seq_len':8192", &spec);
    struct mem_ask ask = ask_of(&spec);
    assert_int_equal(mem_estimate_make(&ask, &estimate, &err), 0);
    assert_true(estimate.fits && estimate.served); /* no limit at all */
    assert_int_equal(estimate.device_limit, 0);
    int64_t need = estimate.plan.peak_device_bytes;
    assert_int_equal(estimate.host_bytes, 0); /* of the GPU's kind nothing is pinned */
    assert_int_equal(estimate.spec.tile_mlp, 8192);
    mem_estimate_done(&estimate);

    /* To the byte. */
    ask.device_bytes = need;
    assert_int_equal(mem_estimate_make(&ask, &estimate, &err), 0);
    assert_true(estimate.fits);
    mem_estimate_done(&estimate);
    ask.device_bytes = need - 1;
    assert_int_equal(mem_estimate_make(&ask, &estimate, &err), 0);
    assert_false(estimate.fits);
    mem_estimate_done(&estimate);

    /* The smaller of the machine's and the job's own limit. */
    spec.memory_limit_gib = 1;
    assert_int_equal(mem_estimate_make(&ask, &estimate, &err), 0);
    assert_int_equal(estimate.device_limit, GIB);
    mem_estimate_done(&estimate);
    ask.device_bytes = GIB / 2;
    assert_int_equal(mem_estimate_make(&ask, &estimate, &err), 0);
    assert_int_equal(estimate.device_limit, GIB / 2);
    mem_estimate_done(&estimate);

    /* On the CPU all ranks share the host's memory. */
    spec.memory_limit_gib = 0;
    ask = ask_of(&spec);
    ask.backend = MEM_BACKEND_CPU;
    ask.host_bytes = 8 * GIB;
    assert_int_equal(mem_estimate_make(&ask, &estimate, &err), 0);
    assert_int_equal(estimate.host_bytes, 8 * estimate.plan.peak_device_bytes);
    assert_false(estimate.fits);
    assert_int_equal(mem_estimate_check(&ask, &estimate, &err), -ERR_DOES_NOT_FIT);
    assert_non_null(strstr(err.text, "host memory, all ranks together, there are 8"));
    mem_estimate_done(&estimate);
}

static void test_served(void **state)
{
    struct err err = {0};
    struct job_spec spec;
    struct mem_estimate estimate;
    parse("'gpus':2,'seq_len':8192,'offload':'host','launcher':'slurm'", &spec);
    struct mem_ask ask = ask_of(&spec);
    assert_int_equal(mem_estimate_make(&ask, &estimate, &err), 0);
    assert_false(estimate.served);
    assert_true(estimate.host_bytes > 0);
    mem_estimate_done(&estimate);
    ask.planned = false;
    assert_int_equal(mem_estimate_make(&ask, &estimate, &err), -ERR_UNSUPPORTED);
    assert_string_equal(err.field, "ithaca.launcher");
    /* What is not legal stays so. */
    ask.planned = true;
    spec.gpus = 9;
    assert_int_equal(mem_estimate_make(&ask, &estimate, &err), -ERR_DOES_NOT_FIT);
    assert_string_equal(err.field, "ithaca.gpus");
}

static void advise(const struct mem_ask *ask, struct err *err)
{
    struct mem_estimate estimate;
    assert_int_equal(mem_estimate_make(ask, &estimate, err), 0);
    assert_int_equal(mem_estimate_check(ask, &estimate, err), -ERR_DOES_NOT_FIT);
    assert_string_equal(err->field, "ithaca.seq_len");
    mem_estimate_done(&estimate);
}

static void test_advice(void **state)
{
    struct err err = {0};
    struct job_spec spec;
    parse("'gpus':8,'seq_len':65536", &spec);
    struct mem_ask ask = ask_of(&spec);
    assert_int_equal(mem_card_bytes("80GB", &ask.device_bytes, &err), 0);
    advise(&ask, &err);
    assert_non_null(strstr(err.text, "GiB of device memory a rank, there are 79.1"));
    assert_non_null(strstr(err.text, "context_parallel.kind upipe with heads_per_stage 1 gives"));
    assert_non_null(strstr(err.text, "seq_len "));
    /* One change is enough, so none of two is named. */
    assert_null(strstr(err.text, "heads_per_stage 1 and "));

    /* Two are needed: shared, and nothing kept of attention. */
    spec.seq_len = 1 << 18;
    assert_int_equal(mem_card_bytes("40GB", &ask.device_bytes, &err), 0);
    advise(&ask, &err);
    assert_non_null(strstr(err.text, "heads_per_stage 1 and "));
    /* What is not served is not advised where it could not be run. */
    ask.planned = false;
    advise(&ask, &err);
    assert_null(strstr(err.text, "offload"));
    assert_null(strstr(err.text, "states"));

    /* Nothing helps a model that is too large. */
    ask.device_bytes = GIB;
    advise(&ask, &err);
    assert_non_null(strstr(err.text, "nothing that can be changed helps"));
}

/* Field case R40: pinned memory is a budget of its own. States of 8B are 16 bytes for each of
 * 8030261248 parameters; the device would have room for them. */
static void test_host_is_short(void **state)
{
    struct err err = {0};
    struct job_spec spec;
    struct mem_estimate estimate;
    parse("'gpus':8,'seq_len':4096,'states':'host'", &spec);
    struct mem_ask ask = ask_of(&spec);
    assert_int_equal(mem_card_bytes("80GB", &ask.device_bytes, &err), 0);
    const int64_t states = INT64_C(8030261248) * 16;
    ask.host_bytes = states;
    assert_int_equal(mem_estimate_make(&ask, &estimate, &err), 0);
    assert_int_equal(estimate.host_bytes, states);
    assert_true(estimate.fits && estimate.served);
    mem_estimate_done(&estimate);
    ask.host_bytes = states - 1;
    advise(&ask, &err);
    assert_non_null(strstr(err.text, "the job needs 119.7 GiB of host memory, all ranks together"));
    assert_non_null(strstr(err.text, "states device gives"));
}

/* What is advised fits when it is done. */
static void test_advice_holds(void **state)
{
    struct err err = {0};
    struct job_spec spec;
    struct mem_estimate estimate;
    parse("'gpus':8,'seq_len':65536,'context_parallel':{'kind':'upipe','heads_per_stage':1}",
          &spec);
    struct mem_ask ask = ask_of(&spec);
    assert_int_equal(mem_card_bytes("80GB", &ask.device_bytes, &err), 0);
    assert_int_equal(mem_estimate_make(&ask, &estimate, &err), 0);
    assert_true(estimate.fits);
    mem_estimate_done(&estimate);
}

static void test_longest(void **state)
{
    struct err err = {0};
    struct job_spec spec;
    struct mem_estimate estimate;
    int64_t longest = 0;
    parse("'gpus':8,'seq_len':65536,'recompute':'input'", &spec);
    struct mem_ask ask = ask_of(&spec);
    assert_int_equal(mem_card_bytes("80GB", &ask.device_bytes, &err), 0);
    assert_int_equal(mem_estimate_longest(&ask, &longest, &err), 0);
    assert_true(longest > 1024 && longest % 1024 == 0);
    spec.seq_len = longest;
    assert_int_equal(mem_estimate_make(&ask, &estimate, &err), 0);
    assert_true(estimate.fits);
    mem_estimate_done(&estimate);
    spec.seq_len = longest + 1024;
    int rc = mem_estimate_make(&ask, &estimate, &err); /* or cuDNN's spans end first */
    assert_true(rc == -ERR_UNSUPPORTED || !estimate.fits);
    if (rc == 0)
        mem_estimate_done(&estimate);
    /* None. */
    ask.device_bytes = GIB;
    assert_int_equal(mem_estimate_longest(&ask, &longest, &err), 0);
    assert_int_equal(longest, 0);
}

static void test_report(void **state)
{
    struct err err = {0};
    struct job_spec spec;
    struct mem_estimate estimate;
    parse("'gpus':8,'seq_len':8192,'offload':'host','launcher':'slurm'", &spec);
    struct mem_ask ask = ask_of(&spec);
    ask.device_bytes = 80 * GIB;
    assert_int_equal(mem_estimate_make(&ask, &estimate, &err), 0);
    json_t *json = mem_report_json(&estimate, true);
    int64_t peak = 0, sum = 0;
    const char *key;
    json_t *value;
    assert_int_equal(json_get_i64(json, "peak_device_bytes", ERR_CORRUPT, &peak, &err), 0);
    json_object_foreach(json_object_get(json, "peak"), key, value)
    {
        sum += json_integer_value(value);
    }
    assert_int_equal(sum, peak);
    assert_int_equal(peak, estimate.plan.peak_device_bytes);
    assert_int_equal(json_array_size(json_object_get(json, "buffers")), estimate.plan.count);
    assert_true(json_is_true(json_object_get(json, "fits")));
    assert_true(json_is_false(json_object_get(json, "served")));
    /* Two checkpoints kept and one being written, of 12 bytes a parameter, and the model. */
    int64_t disk = 0;
    assert_int_equal(json_get_i64(json, "disk_bytes", ERR_CORRUPT, &disk, &err), 0);
    assert_int_equal(disk, INT64_C(8030261248) * (3 * 12 + 4));
    json_decref(json);
    json = mem_report_json(&estimate, false);
    assert_null(json_object_get(json, "buffers"));
    json_decref(json);
    struct buf text;
    buf_init(&text, 65536);
    mem_report_text(&estimate, &text);
    assert_non_null(strstr(buf_str(&text), "states"));
    assert_non_null(strstr(buf_str(&text), "it fits\n"));
    assert_non_null(strstr(buf_str(&text), "planned only"));
    assert_non_null(strstr(buf_str(&text), "of 32 layers: 32 on the host, 0 on the device\n"));
    buf_done(&text);
    mem_estimate_done(&estimate);
}

static struct mem_layout layout_of(const struct mem_ask *ask, bool fits, int64_t *ret_host)
{
    struct err err = {0};
    struct mem_estimate estimate;
    assert_int_equal(mem_estimate_make(ask, &estimate, &err), 0);
    assert_int_equal(estimate.fits, fits);
    struct mem_layout layout = estimate.plan.layout;
    *ret_host = estimate.host_bytes;
    if (!fits)
        assert_int_equal(mem_estimate_check(ask, &estimate, &err), -ERR_DOES_NOT_FIT);
    if (!fits)
        assert_non_null(strstr(err.text, "host memory, all ranks together"));
    mem_estimate_done(&estimate);
    return layout;
}

/* As many layers on the host as it holds; R40: what it does not hold is refused, with the sum. */
static void test_layers(void **state)
{
    struct job_spec spec;
    int64_t all = 0, host = 0, one = 0;
    parse("'gpus':8,'seq_len':131072,'offload':'host','recompute':'input_and_attention',"
          "'context_parallel':{'kind':'ulysses'}",
          &spec);
    struct mem_ask ask = ask_of(&spec);
    assert_int_equal(layout_of(&ask, true, &all).layers_away, 32);
    spec.offload_layers = 1;
    assert_int_equal(layout_of(&ask, true, &one).layers_away, 1);
    spec.offload_layers = 0;
    /* All but a byte: one layer less. All are alike, so the rest is counted too. */
    ask.host_bytes = all - 1;
    assert_int_equal(layout_of(&ask, true, &host).layers_away, 31);
    ask.host_bytes = host;
    assert_int_equal(layout_of(&ask, true, &host).layers_away, 31);
    ask.host_bytes = 7 * one;
    assert_int_equal(layout_of(&ask, true, &host).layers_away, 7);
    assert_int_equal(host, 7 * one);
    /* The device has no room for the others, or the host not for one. */
    ask.device_bytes = 24 * GIB;
    assert_int_equal(layout_of(&ask, false, &host).layers_away, 32);
    assert_int_equal(host, all);
    ask.device_bytes = 0;
    ask.host_bytes = one - 1;
    (void)layout_of(&ask, false, &host);
    /* What is asked for is not changed. */
    ask.host_bytes = all - 1;
    spec.offload_layers = 32;
    (void)layout_of(&ask, false, &host);

    /* To the file what a given share of the host does not hold, else all. */
    spec.offload = JOB_offload_FILE;
    spec.offload_layers = 0;
    ask.host_bytes = 0;
    struct mem_layout layout = layout_of(&ask, true, &host);
    assert_int_equal(layout.layers_filed, 32);
    spec.host_memory_gib = host / GIB + 1 + 3 * one / GIB + 1;
    layout = layout_of(&ask, true, &host);
    assert_int_equal(layout.layers_away, 32);
    assert_true(layout.layers_filed <= 29 && layout.layers_filed > 1);
    assert_int_equal(mem_layout_keeps(&layout, 0), MEM_ARENA_FILE);
    assert_int_equal(mem_layout_keeps(&layout, layout.layers_filed), MEM_ARENA_HOST);
    assert_true(host <= spec.host_memory_gib * GIB && host + one > spec.host_memory_gib * GIB);
    spec.host_memory_gib = 0;
    spec.file_layers = 5;
    layout = layout_of(&ask, true, &host);
    assert_int_equal(layout.layers_filed, 5);
    spec.offload_layers = 3; /* of these three */
    layout = layout_of(&ask, true, &host);
    assert_int_equal(layout.layers_filed, 3);
}

static void test_ladder(void **state)
{
    struct err err = {0};
    struct job_spec spec;
    struct mem_ladder ladder;
    parse("'gpus':8,'seq_len':3145728", &spec);
    struct mem_ask ask = ask_of(&spec);
    assert_int_equal(mem_card_bytes("80GB", &ask.device_bytes, &err), 0);
    assert_int_equal(mem_ladder_make(&ask, &ladder, &err), 0);
    int64_t last = INT64_MAX;
    for (int i = 0; i < MEM_LADDER_BARS; i++) {
        const struct mem_ladder_bar *bar = &ladder.bars[i];
        assert_true(bar->legal);
        /* Each technique saves device memory, but the last, which saves time; it pins more. */
        const struct mem_plan *plan = &bar->estimate.plan;
        const struct mem_buffer *pages = mem_plan_find(plan, MEM_ARENA_DRIVER, MEM_HOST_PAGES, 0);
        int64_t need = plan->peak_device_bytes - pages->bytes;
        assert_true(i + 1 < MEM_LADDER_BARS ? need < last : need <= last);
        last = need;
    }
    assert_false(ladder.bars[0].estimate.fits);
    assert_true(ladder.bars[MEM_LADDER_BARS - 1].estimate.fits);
    json_t *json = mem_ladder_json(&ladder);
    assert_int_equal(json_array_size(json_object_get(json, "bars")), MEM_LADDER_BARS);
    json_decref(json);
    struct buf text;
    buf_init(&text, 65536);
    mem_ladder_text(&ladder, &text);
    assert_non_null(strstr(buf_str(&text), "+ Untied Ulysses"));
    buf_done(&text);
    mem_ladder_done(&ladder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_card),         cmocka_unit_test(test_host_size),
        cmocka_unit_test(test_limits),       cmocka_unit_test(test_served),
        cmocka_unit_test(test_advice),       cmocka_unit_test(test_host_is_short),
        cmocka_unit_test(test_advice_holds), cmocka_unit_test(test_longest),
        cmocka_unit_test(test_report),       cmocka_unit_test(test_layers),
        cmocka_unit_test(test_ladder)};
    return cmocka_run_group_tests(tests, setup, teardown);
}
