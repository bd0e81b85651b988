/* lora_shape: names as PEFT's, extents, units; the first values; what a job's fields come to. */
#include "common/lora_shape.h"
#include "common/mem.h"
#include "tests/lib/long_job.h"

#include <math.h>
#include <string.h>

static struct model_shape base;
static struct err err;

static struct job_spec spec_of(int64_t r, int64_t modules)
{
    return (struct job_spec){.lora = true, .lora_r = r, .lora_modules = modules};
}
enum { ALL = (1 << JOB_lora_module_COUNT) - 1 };

/* What must hold for any table; and that it is as said before it was built. */
static void check_table(const struct job_spec *spec)
{
    struct model_shape shape;
    assert_int_equal(lora_shape_build(&base, spec, &shape, &err), 0);
    assert_int_equal(shape.unit_count, base.config.layers);
    int64_t end = 0, sum = 0;
    for (int64_t i = 0; i < shape.row_count; i++) {
        const struct model_shape_row *row = &shape.rows[i];
        const struct model_shape_row *of = model_shape_find(&base, row->kind, row->layer);
        bool is_b = i % 2 == 1;
        end = i > 0 && row->unit != row[-1].unit ? 0 : end;
        assert_true(row->index == (uint64_t)i && row->unit == row->layer && row->dims == 2);
        assert_int_equal(row->rows, is_b ? of->rows : spec->lora_r);
        assert_int_equal(row->cols, is_b ? spec->lora_r : of->cols);
        assert_int_equal(row->elements, row->rows * row->cols);
        assert_int_equal(row->offset % MODEL_SHAPE_ALIGN, 0);
        assert_true(row->offset >= end && row->offset < end + MODEL_SHAPE_ALIGN);
        end = row->offset + row->elements;
        assert_true(end <= shape.unit_elements[row->unit]);
        assert_non_null(strstr(row->name, is_b ? ".lora_B.weight" : ".lora_A.weight"));
        sum += row->elements;
    }
    assert_int_equal(sum, shape.parameters);
    assert_int_equal(sum, lora_shape_parameters(&base, spec));
    for (int64_t unit = 0; unit < shape.unit_count; unit++)
        assert_int_equal(shape.unit_elements[unit], lora_shape_unit_elements(&base, spec));
    model_shape_done(&shape);
}

static void test_tables(void **state)
{
    for (int64_t modules = 1; modules <= ALL; modules++) {
        struct job_spec spec = spec_of(1 + modules * 5, modules);
        check_table(&spec);
    }
    struct job_spec spec = spec_of(16, ALL);
    assert_int_equal(lora_shape_parameters(&base, &spec), 41943040); /* Llama 3 8B, as PEFT says */
}

static void test_names(void **state)
{
    struct job_spec spec = spec_of(8, ALL);
    struct model_shape shape;
    assert_int_equal(lora_shape_build(&base, &spec, &shape, &err), 0);
    assert_string_equal(shape.rows[0].name,
                        "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight");
    assert_string_equal(shape.rows[shape.row_count - 1].name,
                        "base_model.model.model.layers.31.mlp.down_proj.lora_B.weight");
    model_shape_done(&shape);
}

static void test_first_values(void **state)
{
    struct job_spec spec = spec_of(8, 1 << JOB_lora_module_DOWN);
    struct model_shape shape;
    assert_int_equal(lora_shape_build(&base, &spec, &shape, &err), 0);
    const struct model_shape_row *a = &shape.rows[2], *b = &shape.rows[3];
    double sum = 0, squares = 0, bound = 1 / sqrt((double)a->cols);
    for (int64_t i = 0; i < a->elements; i++) {
        double x = (double)lora_shape_init(a, i, 3);
        assert_true(fabs(x) <= bound);
        sum += x;
        squares += x * x;
    }
    double n = (double)a->elements;
    assert_true(fabs(sum / n) < 5 * bound / sqrt(n)); /* uniform: mean 0, variance bound^2 / 3 */
    assert_true(fabs(squares / n / (bound * bound / 3) - 1) < 0.02);
    assert_true(lora_shape_init(a, 5, 3) == lora_shape_init(a, 5, 3));
    assert_true(lora_shape_init(a, 5, 3) != lora_shape_init(a, 5, 4));
    assert_true(lora_shape_init(a, 5, 3) != lora_shape_init(&shape.rows[0], 5, 3));
    for (int64_t i = 0; i < 100; i++)
        assert_true(lora_shape_init(b, i, 3) == 0);
    model_shape_done(&shape);
}

static void test_scale(void **state)
{
    struct job_spec spec = spec_of(16, ALL);
    assert_true(lora_shape_alpha(&spec) == 32 && lora_shape_scale(&spec) == 2);
    spec.lora_alpha = 8;
    assert_true(lora_shape_scale(&spec) == 0.5f);
    assert_true(lora_shape_has(&spec, JOB_lora_module_O));
    spec.lora = false;
    assert_false(lora_shape_has(&spec, JOB_lora_module_O));
}

static void test_out_of_memory(void **state)
{
    struct job_spec spec = spec_of(16, ALL);
    struct model_shape shape;
    int64_t before = mem_live();
    for (int64_t fault = 1; fault <= 2; fault++) {
        mem_fault_after(fault);
        assert_int_equal(lora_shape_build(&base, &spec, &shape, &err), -ERR_NOMEM);
        mem_fault_after(0);
        assert_int_equal(mem_live(), before);
    }
}

static int build_base(void **state)
{
    long_job_shape(&base);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tables),        cmocka_unit_test(test_names),
        cmocka_unit_test(test_first_values),  cmocka_unit_test(test_scale),
        cmocka_unit_test(test_out_of_memory),
    };
    int failed = cmocka_run_group_tests(tests, build_base, NULL);
    model_shape_done(&base);
    return failed;
}
