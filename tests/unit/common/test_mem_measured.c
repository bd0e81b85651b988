/* mem_measured: what a rank leaves is read, medians taken without the first step, a rehearsal's
 * whole step worked out; files that are not whole. */
#include "common/mem_measured.h"

#include "common/io.h"
#include "common/mem.h"
#include "tests/lib/long_job.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char path[] = "/tmp/ithaca-test-measured-XXXXXX";

static int setup(void **state)
{
    int fd = mkstemp(path);
    return fd >= 0 ? close(fd) : -1;
}

static int teardown(void **state)
{
    return unlink(path);
}

/* With peak's categories filled in. */
static int read_text(const char *members, struct mem_measured *ret, struct err *err)
{
    struct buf text;
    buf_init(&text, 4096);
    buf_printf(&text, "{%s\"peak\":{", members);
    for (int c = 0; c < MEM_CATEGORY_COUNT; c++)
        buf_printf(&text, "%s\"%s\":%d", c > 0 ? "," : "", mem_category_name((enum mem_category)c),
                   100 + c);
    buf_text(&text, "}}");
    assert_int_equal(io_write_file(path, text.data, text.length, 0600, err), 0);
    buf_done(&text);
    return mem_measured_read(path, ret, err);
}

#define BYTES "\"device_bytes\":7,\"host_bytes\":8,\"taken_bytes\":9,"
#define STEPS "\"steps\":[9.0,3.0,1.0,2.0],\"processor\":[4.0,4.0],\"layer\":[8.0,0.5,0.25,0.5],"

static void test_read(void **state)
{
    struct err err;
    struct mem_measured measured;
    assert_int_equal(read_text(BYTES STEPS
                               "\"layers\":2,\"waits\":{\"compute_s\":[8.0,1.0,1.0,1.5],"
                               "\"ring_wait_s\":[0.0,0.0]},",
                               &measured, &err),
                     0);
    assert_true(measured.run && measured.step_s == 2 && measured.layer_s == 0.5);
    assert_true(measured.processor_s == 4 && measured.layers == 2);
    assert_true(measured.device_bytes == 7 && measured.host_bytes == 8 &&
                measured.taken_bytes == 9);
    assert_int_equal(measured.peak[MEM_CATEGORY_COUNT - 1], 99 + MEM_CATEGORY_COUNT);
    assert_true(measured.waits_s[METRIC_COMPUTE_S - METRIC_GATHER_WAIT_S] == 1);
    assert_true(measured.waits_s[METRIC_RING_WAIT_S - METRIC_GATHER_WAIT_S] == 0);
    assert_true(measured.waits_s[0] < 0); /* not one of the layout's */
    CLEANUP(json_unref) json_t *json = mem_measured_json(&measured);
    const json_t *waits = json_object_get(json, "waits");
    assert_int_equal(json_object_size(waits), 2);
    assert_true(json_real_value(json_object_get(waits, "compute_s")) == 1);
}

static void test_what_is_not_whole(void **state)
{
    struct err err;
    struct mem_measured measured = {.layers = 77};
    assert_int_equal(read_text(BYTES STEPS, &measured, &err), -ERR_CORRUPT); /* no layers */
    assert_int_equal(read_text("\"layers\":1," STEPS, &measured, &err), -ERR_CORRUPT);
    assert_int_equal(read_text(BYTES "\"layers\":0,", &measured, &err), -ERR_CORRUPT);
    assert_int_equal(read_text(BYTES "\"layers\":999999999999999,", &measured, &err), -ERR_CORRUPT);
    assert_int_equal(io_write_file(path, "{}", 2, 0600, &err), 0);
    assert_int_equal(mem_measured_read(path, &measured, &err), -ERR_CORRUPT);
    assert_int_equal(mem_measured_read("/nowhere/measured.json", &measured, &err), -ERR_NOT_FOUND);
    assert_int_equal(measured.layers, 77); /* written on success only */
    assert_int_equal(read_text(BYTES "\"layers\":1,\"steps\":{},\"waits\":[],", &measured, &err),
                     0);
    assert_true(measured.step_s == 0 && measured.waits_s[0] < 0);
}

/* ---- rehearsals ---------------------------------------------------------------------------- */

struct scene {
    struct job_spec spec;
    struct model_shape shape;
    struct time_rates rates;
    struct mem_estimate estimate;
};

/* One process plays the ranks of eight GPUs. */
static void open_scene(struct scene *s, const char *text)
{
    struct err err = {0};
    CLEANUP(json_unref) json_t *body = json_literal(text);
    assert_int_equal(job_spec_parse_legal(body, &s->spec, &err), 0);
    long_job_shape(&s->shape);
    time_rates_table(MEM_BACKEND_CUDA, "NVIDIA H200", 8, &s->rates);
    const struct mem_ask ask = {.shape = &s->shape,
                                .spec = &s->spec,
                                .backend = MEM_BACKEND_CUDA,
                                .ranks_max = 1,
                                .rates = &s->rates};
    MUST_WORK(mem_estimate_make(&ask, &s->estimate, &err), &err);
}

static void close_scene(struct scene *s)
{
    mem_estimate_done(&s->estimate);
    job_spec_done(&s->spec);
    model_shape_done(&s->shape);
}

/* Two of 32 layers at 0.5 s in a step of 2 s: 17 s, and what the plan's network adds. */
static void test_rehearsal(void **state)
{
    struct err err = {0};
    struct scene s;
    struct mem_measured measured;
    open_scene(&s, "{'model':'m','training_file':'f','ithaca':{'seq_len':65536,'batch':{"
                   "'sequences':1},'rehearse':{'world':8,'layers':2},'context_parallel':{"
                   "'kind':'upipe'}}}");
    struct mem_estimate *estimate = &s.estimate;
    assert_int_equal(estimate->disk_bytes, 0);
    assert_int_equal(estimate->spec.max_steps, 3);
    assert_int_equal(read_text(BYTES STEPS "\"layers\":2,", &measured, &err), 0);
    CLEANUP(json_unref) json_t *json = mem_measured_report_json(estimate, &measured);
    double network = json_real_value(json_object_get(json, "network_wait_s"));
    double step = json_real_value(json_object_get(json, "predicted_step_s"));
    assert_true(json_is_true(json_object_get(json, "rehearsed")));
    assert_true(json_real_value(json_object_get(json, "whole_step_s")) == 17);
    assert_true(network > 0 && fabs(step - 17 - network) < 1e-12);
    assert_true(
        fabs(json_real_value(json_object_get(json, "tokens_per_s_gpu")) - 65536 / step / 8) < 1e-6);
    estimate->spec.rehearse = false; /* it measured: the network was there */
    measured.layers = 32;
    CLEANUP(json_unref) json_t *own = mem_measured_report_json(estimate, &measured);
    assert_true(json_is_false(json_object_get(own, "rehearsed")));
    assert_true(json_real_value(json_object_get(own, "network_wait_s")) == 0);
    assert_true(json_real_value(json_object_get(own, "predicted_step_s")) == 2);
    double causal = json_real_value(json_object_get(own, "mfu_causal"));
    assert_true(fabs(causal - estimate->time.mfu_causal * estimate->time.step_s / 2) < 1e-9);
    estimate->spec.rehearse = true;
    measured.layers = 2;
    struct buf said;
    buf_init(&said, 4096);
    mem_measured_text(estimate, &measured, &said);
    assert_non_null(strstr(buf_str(&said), "2 of 32 worked: all would take 17 s"));
    assert_non_null(strstr(buf_str(&said), "rehearsed: rank 0 of 8"));
    assert_non_null(strstr(buf_str(&said), "predicted with the network: a step 17."));
    buf_done(&said);
    close_scene(&s);
    assert_int_equal(mem_live(), 0);
}

/* What the last layers do not replay, the others do: 21 times of layers, of which the first row
 * times none, the second 3, which are in its layers' 0.5 s. Replayed for each layer anew every
 * segment has its share: the time of the layers that worked is that of all. */
static void test_replays(void **state)
{
    static const struct {
        int64_t seq_len, every, layers, sequences;
        double whole_s;
    } rows[] = {{65536, 8, 8, 1, 2 + 24 * 0.5 + 21 * 0.125},
                {65536, 4, 8, 1, 2 + 24 * 0.5 + (21 - 3 * 4) * 0.125},
                {65536, 4, 4, 2, 2 + 2 * (28 * 0.5 + 21 * 0.125)},
                {65536, 1, 8, 1, 2 + 24 * 0.5},
                {1 << 20, 4, 4, 1, 2 + 28 * 0.5}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct err err = {0};
        struct scene s;
        struct mem_measured measured;
        char text[512], members[512];
        (void)snprintf(text, sizeof text,
                       "{'model':'m','training_file':'f','ithaca':{'seq_len':%lld,'recompute':"
                       "'attention','keep_input_every':%lld,'offload':'host','batch':{'sequences':"
                       "%lld},'rehearse':{'world':8,'layers':%lld},'context_parallel':{'kind':"
                       "'upipe'}}}",
                       (long long)rows[i].seq_len, (long long)rows[i].every,
                       (long long)rows[i].sequences, (long long)rows[i].layers);
        open_scene(&s, text);
        (void)snprintf(members, sizeof members, "%s%s\"mlp\":[9.0,0.125],\"layers\":%lld,", BYTES,
                       STEPS, (long long)rows[i].layers);
        assert_int_equal(read_text(members, &measured, &err), 0);
        assert_true(measured.mlp_s == 0.125);
        CLEANUP(json_unref) json_t *json = mem_measured_report_json(&s.estimate, &measured);
        double whole_s = json_real_value(json_object_get(json, "whole_step_s"));
        if (whole_s != rows[i].whole_s)
            fail_msg("row %zu: %.17g, not %.17g", i, whole_s, rows[i].whole_s);
        close_scene(&s);
    }
    assert_int_equal(mem_live(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_read),
        cmocka_unit_test(test_what_is_not_whole),
        cmocka_unit_test(test_rehearsal),
        cmocka_unit_test(test_replays),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
