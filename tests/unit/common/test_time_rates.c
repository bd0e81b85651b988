/* Rates between their points; a calibration file stored, replaced, found, refused. */
#include "common/io.h"
#include "common/mem.h"
#include "common/time_rates.h"
#include "tests/lib/folder.h"

#include <math.h>
#include <string.h>

static void near(double got, double want)
{
    if (fabs(got - want) > 1e-12 * fabs(want))
        fail_msg("%.17g, not %.17g", got, want);
}

static void add(struct time_rates *rates, enum time_op op, double size, double width, double rate)
{
    time_rates_add(rates, op, (struct time_point){.size = size, .width = width, .rate = rate});
}

static void test_between(void **state)
{
    struct time_rates rates = {.ranks = 1};
    add(&rates, TIME_ATTENTION, 1000, 64, 200); /* in any order */
    add(&rates, TIME_ATTENTION, 10, 64, 100);
    add(&rates, TIME_ATTENTION, 10, 128, 400);
    near(time_rates_seconds(&rates, TIME_ATTENTION, 10, 64, 300), 3);
    near(time_rates_seconds(&rates, TIME_ATTENTION, 100, 64, 300), 2); /* halfway by logarithm */
    near(time_rates_seconds(&rates, TIME_ATTENTION, 1e6, 64, 300), 1.5);
    near(time_rates_seconds(&rates, TIME_ATTENTION, 5, 64, 300), 6); /* smaller is slower */
    near(time_rates_seconds(&rates, TIME_ATTENTION, 100, 120, 300), 0.75);
    near(time_rates_seconds(&rates, TIME_ATTENTION, 100, 32, 300), 2);
    near(time_rates_seconds(&rates, TIME_ATTENTION_BWD, 10, 64, 300), 3); /* forward's stand in */
    assert_true(time_rates_seconds(&rates, TIME_GEMM_DW, 10, 1, 300) == 0);
    assert_true(time_rates_seconds(&rates, TIME_ATTENTION, 10, 64, 0) == 0);
}

static struct time_rates some(enum mem_backend backend, int64_t ranks, double rate)
{
    struct time_rates rates = {
        .backend = backend, .ranks = ranks, .threads = 2, .device = "a \"CPU\"", .peak_flops = 7e9};
    add(&rates, TIME_GEMM_Y, 64, 1, rate);
    add(&rates, TIME_GEMM_Y, 128, 1, 2 * rate);
    return rates;
}

static double found(enum mem_backend backend, int64_t ranks, struct time_rates *ret)
{
    struct err err = {0};
    MUST_WORK(time_rates_find(folder, backend, ranks, "", ret, &err), &err);
    return ret->points[TIME_GEMM_Y][0].rate;
}

static void test_file(void **state)
{
    struct err err = {0};
    struct time_rates rates, got;
    assert_int_equal(time_rates_find(folder, MEM_BACKEND_CPU, 2, "", &got, &err), 0);
    assert_false(got.measured); /* the table, until there is a calibration */
    assert_non_null(strstr(got.source, "ithaca calibrate"));
    rates = some(MEM_BACKEND_CPU, 1, 100);
    assert_int_equal(time_rates_store(folder, &rates, &err), 0);
    rates = some(MEM_BACKEND_CPU, 4, 400);
    assert_int_equal(time_rates_store(folder, &rates, &err), 0);
    rates = some(MEM_BACKEND_CUDA, 2, 900);
    assert_int_equal(time_rates_store(folder, &rates, &err), 0);
    near(found(MEM_BACKEND_CPU, 1, &got), 100);
    near(found(MEM_BACKEND_CPU, 3, &got), 400 * 4 / 3.0); /* the nearest, of fewer on the cores */
    near(found(MEM_BACKEND_CPU, 64, &got), 400 / 16.0);
    near(got.peak_flops, 7e9 / 16);
    near(found(MEM_BACKEND_CUDA, 64, &got), 900);
    assert_true(got.measured && got.ranks == 2 && got.threads == 2 && got.counts[TIME_GEMM_Y] == 2);
    assert_string_equal(got.device, "a \"CPU\"");
    assert_string_equal(got.source, "calibrated here 0 days ago, 2 ranks");
    rates = some(MEM_BACKEND_CPU, 4, 500); /* in place of the first */
    assert_int_equal(time_rates_store(folder, &rates, &err), 0);
    near(found(MEM_BACKEND_CPU, 4, &got), 500);
    near(found(MEM_BACKEND_CPU, 1, &got), 100);
    assert_int_equal(time_rates_peak(folder, MEM_BACKEND_CPU, 4, ""), 7000000000);
    assert_int_equal(time_rates_peak(folder, MEM_BACKEND_CPU, 8, ""), 3500000000);
    assert_int_equal(time_rates_peak(NULL, MEM_BACKEND_CPU, 4, ""), 0);
    assert_true(time_rates_peak(NULL, MEM_BACKEND_CUDA, 4, "NVIDIA H200") > 900000000000000);
    assert_int_equal(time_rates_peak(NULL, MEM_BACKEND_CUDA, 4, "NVIDIA L4"), 0);
}

static void test_refused(void **state)
{
    static const char *const bad[] = {
        "[]",
        "{\"version\":2,\"sets\":[]}",
        "{\"version\":1,\"sets\":[7]}",
        "{\"version\":1,\"sets\":[{\"backend\":\"tpu\"}]}",
        "{\"version\":1,\"sets\":[{\"backend\":\"cpu\",\"ranks\":0,\"threads\":1,\"device\":\"\","
        "\"beside\":false,\"peak_flops\":0.0,\"rates\":{}}]}",
        "{\"version\":1,\"sets\":[{\"backend\":\"cpu\",\"ranks\":1,\"threads\":1,\"device\":\"\","
        "\"beside\":false,\"peak_flops\":0.0,\"rates\":{\"gemm_y\":[[1,1]]}}]}",
        "{\"version\":1,\"sets\":[{\"backend\":\"cpu\",\"ranks\":1,\"threads\":1,\"device\":\"\","
        "\"beside\":false,\"peak_flops\":0.0,\"rates\":{\"gemm_y\":[[1,1,-1]]}}]}"};
    CLEANUP(mem_free_ptr) char *path = io_join(folder, "calibration.json");
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct err err = {0};
        struct time_rates rates;
        assert_int_equal(io_write_file(path, bad[i], strlen(bad[i]), 0600, &err), 0);
        int rc = time_rates_find(folder, MEM_BACKEND_CPU, 1, "", &rates, &err);
        if (rc != -ERR_CORRUPT)
            fail_msg("%s: %d %s", bad[i], rc, err.text);
    }
}

static void test_tables(void **state)
{
    struct time_rates h200, h100, other, cpu;
    time_rates_table(MEM_BACKEND_CUDA, "NVIDIA H200", 8, &h200);
    time_rates_table(MEM_BACKEND_CUDA, "80GB", 8, &h100);
    time_rates_table(MEM_BACKEND_CUDA, "NVIDIA L4", 8, &other);
    time_rates_table(MEM_BACKEND_CPU, "", 2, &cpu);
    double bytes = 1e9;
    near(time_rates_seconds(&h100, TIME_RMSNORM, bytes, 1, bytes) * 3.35 / 4.8,
         time_rates_seconds(&h200, TIME_RMSNORM, bytes, 1, bytes));
    assert_non_null(strstr(other.source, "H100"));
    assert_true(h200.beside && !cpu.beside && !h200.measured);
    assert_true(time_rates_card_peak("NVIDIA H100 80GB HBM3") == 989.4e12);
    assert_true(time_rates_same_card("NVIDIA H100 80GB HBM3", "80GB"));
    assert_false(time_rates_same_card("NVIDIA H200", "80GB"));
    assert_true(time_rates_same_card("NVIDIA H200", ""));
    assert_true(time_rates_card_peak("NVIDIA L4") == 0 && cpu.peak_flops == 0);
    for (int op = 0; op < TIME_OP_COUNT; op++) { /* nothing is free */
        assert_true(time_rates_seconds(&h200, (enum time_op)op, 4096, 128, 1) > 0);
        assert_true(time_rates_seconds(&cpu, (enum time_op)op, 4096, 128, 1) > 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_between), cmocka_unit_test(test_file),
                                       cmocka_unit_test(test_refused),
                                       cmocka_unit_test(test_tables)};
    return cmocka_run_group_tests(tests, folder_open, folder_close);
}
