/* rehearsal: the report made of a measurement and of the plan for this machine; what is missing,
 * and every allocation that fails. */
#include "daemon/measurement.h"

#include "common/io.h"
#include "common/job_spec.h"
#include "common/mem.h"
#include "common/model_config.h"
#include "tests/lib/folder.h"

#include <stdio.h>

static char job_dir[128];
static struct inventory inventory;
static struct job_spec spec;

/* <folder>/jobs/ftjob-a of a job on <folder>/config.json, the built-in model. */
static int setup(void **state)
{
    struct err err;
    char path[160];
    if (folder_open(state) != 0)
        return -1;
    (void)snprintf(job_dir, sizeof job_dir, "%s/jobs/ftjob-a", folder);
    (void)snprintf(path, sizeof path, "%s/config.json", folder);
    CLEANUP(json_unref) json_t *config = model_config_json(model_config_builtin("tiny-llama"));
    CLEANUP(json_unref)
    json_t *body = json_literal("{'model':'m','training_file':'f','ithaca':{'seq_len':1024,"
                                "'rehearse':{'world':4,'layers':1},'batch':{'sequences':1},"
                                "'context_parallel':{'kind':'upipe'}}}");
    inventory_cpu_init(&inventory, 1);
    return io_make_dirs(job_dir, 0700, &err) != 0 ||
           json_write_file(path, config, 0600, &err) != 0 || job_spec_parse(body, &spec, &err) != 0;
}

static int teardown(void **state)
{
    job_spec_done(&spec);
    return folder_close(state);
}

static void write_measured(void)
{
    static const char text[] =
        "{\"steps\":[2.0,1.0],\"processor\":[1.0,1.0],\"layer\":[0.5,0.25],\"layers\":1,\"waits\":{"
        "\"compute_s\":[1.0,1.0]},\"device_bytes\":1073741824,\"host_bytes\":0,\"taken_bytes\":0,"
        "\"peak\":{";
    struct err err;
    char path[160];
    struct buf out;
    buf_init(&out, 4096);
    buf_text(&out, text);
    for (int c = 0; c < MEM_CATEGORY_COUNT; c++)
        buf_printf(&out, "%s\"%s\":1", c > 0 ? "," : "", mem_category_name((enum mem_category)c));
    buf_text(&out, "}}");
    (void)snprintf(path, sizeof path, "%s/measured.json", job_dir);
    assert_int_equal(io_write_file(path, out.data, out.length, 0600, &err), 0);
    buf_done(&out);
}

static int report(char *text, size_t bytes, struct err *err)
{
    const struct measurement rehearsal = {.inventory = &inventory,
                                          .data_dir = folder,
                                          .job_dir = job_dir,
                                          .model_dir = folder,
                                          .spec = &spec};
    return measurement_report(&rehearsal, text, bytes, err);
}

static json_t *told(void)
{
    return measurement_json(folder, "ftjob-a");
}

static void test_report(void **state)
{
    struct err err;
    char text[512];
    assert_false(measurement_is_there(job_dir));
    assert_int_equal(report(text, sizeof text, &err), -ERR_NOT_FOUND);
    CLEANUP(json_unref) json_t *none = told();
    assert_true(json_is_null(none));
    write_measured();
    assert_true(measurement_is_there(job_dir));
    MUST_WORK(report(text, sizeof text, &err), &err);
    assert_memory_equal(text, "Rehearsal is over, rank 0 of 4 with 1 of 4 layers: 1.00 GiB", 59);
    CLEANUP(json_unref) json_t *json = told();
    double network = json_real_value(json_object_get(json, "network_wait_s"));
    assert_true(json_is_true(json_object_get(json, "rehearsed")));
    assert_true(json_real_value(json_object_get(json, "whole_step_s")) == 1.75);
    assert_true(network > 0);
    assert_true(json_real_value(json_object_get(json, "predicted_step_s")) == 1.75 + network);
    assert_int_equal(json_integer_value(json_object_get(json, "world")), 4);
    /* The next attempt begins with neither file. */
    assert_int_equal(measurement_clear(job_dir, &err), 0);
    assert_int_equal(measurement_clear(job_dir, &err), 0);
    assert_false(measurement_is_there(job_dir));
    CLEANUP(json_unref) json_t *cleared = told();
    assert_true(json_is_null(cleared));
}

/* Rates that cannot be read are those of the table; the report is whole, or there is an error. */
static void test_failing_allocations(void **state)
{
    struct err err;
    char text[512];
    bool failed = true;
    int64_t n = 0;
    write_measured();
    assert_int_equal(report(text, sizeof text, &err), 0);
    CLEANUP(json_unref) json_t *whole = told();
    int64_t live = mem_live();
    while (failed && n < 10000) {
        mem_fault_after(++n);
        int rc = report(text, sizeof text, &err);
        failed = mem_fault_after(0);
        assert_int_equal(mem_live(), live);
        assert_true(failed || rc == 0);
        CLEANUP(json_unref) json_t *again = told();
        assert_true(rc != 0 || json_equal(again, whole));
    }
    assert_true(n > 5 && n < 10000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_report),
        cmocka_unit_test(test_failing_allocations),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
