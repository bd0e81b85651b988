/* lora: training of adapters as a whole: stopped and gone on with on as many ranks and on others,
 * results in PEFT's layout and merged, from ranks and from a checkpoint, alike; the merged model
 * computes what base and adapters do; every failing write or allocation of an export leaves
 * nothing. test_stack_parity walks layouts, test_lora_grad holds gradients against the model's. */
#include "common/lora_shape.h"
#include "common/safetensors.h"
#include "tests/dist/export_faults.h"
#include "tests/dist/train_scene.h"
#include "worker/eval.h"
#include "worker/export.h"

enum { STEPS = 8, MIDDLE = 3 };

static const char spec_text[] =
    "\"seq_len\":64,\"max_steps\":8,\"batch\":{\"sequences\":6},\"optimizer\":{\"learning_rate\":"
    "0.02,\"schedule\":\"constant\",\"weight_decay\":0.1,\"eps\":1e-3},\"save\":{\"every_steps\":"
    "1000},\"lora\":{\"r\":4,\"alpha\":12,\"dropout\":0.2,\"modules\":%s,\"export\":\"%s\"}";

static void use_spec(struct train_scene *scene, const char *modules, const char *export)
{
    char text[512];
    struct err err = {0};
    (void)snprintf(text, sizeof text, spec_text, modules, export);
    train_scene_spec(scene, text);
    struct model_shape base;
    MUST_WORK(model_shape_build(&train_scene_model, &base, &err), &err);
    model_shape_done(&scene->shape);
    MUST_WORK(lora_shape_build(&base, &scene->plan.spec, &scene->shape, &err), &err);
    model_shape_done(&base);
}

static int play_to(struct rank *rank, void *context, struct err *err)
{
    int64_t last = *(const int64_t *)context, total = rank->steps_total;
    enum train_end end;
    rank->steps_total = last; /* the schedule is constant: it does not look */
    TRY(train_run(rank, &end, err));
    rank->steps_total = total;
    return checkpoint_save(rank, err);
}

/* Stopped in the middle on `world` ranks, ended on `then`; against a run that never stopped. */
static void stop_and_go_on(uint32_t world, uint32_t then, double bound)
{
    struct train_scene scene;
    int64_t middle = MIDDLE, steps = STEPS;
    train_scene_open(&scene, "");
    use_spec(&scene, "\"all\"", "both");
    mem_free(train_scene_run(&scene, world, play_to, &steps));
    char *end = checkpoint_dir(scene.plan.job_dir, STEPS);
    char *kept = mem_printf("%s/step-%d", scene.folder, STEPS);
    assert_int_equal(rename(end, kept), 0);
    mem_free(train_scene_run(&scene, world, play_to, &middle));
    train_scene_resume(&scene, MIDDLE);
    mem_free(train_scene_run(&scene, then, play_to, &steps));
    train_scene_compare(&scene, end, kept, bound);
    mem_free(end);
    mem_free(kept);
    train_scene_close(&scene);
}

static void test_same_ranks(void **state)
{
    stop_and_go_on(2, 2, 0);
}

static void test_other_ranks(void **state)
{
    stop_and_go_on(3, 2, 1e-5);
    stop_and_go_on(1, 4, 1e-5);
}

/* ---- results ---- */

static float *tensor_of(struct safetensors *st, const char *name, int64_t rows, int64_t cols)
{
    struct err err = {0};
    const struct safetensors_entry *entry = safetensors_find(st, name);
    if (entry == NULL)
        fail_msg("%s is not there", name);
    assert_true(entry->shape[0] == rows && (cols == 1 || entry->shape[1] == cols));
    float *values = testing_poison(rows * cols);
    MUST_WORK(safetensors_read_f32(st, entry, 0, rows * cols, values, &err), &err);
    return values;
}

/* W + s B A, in fp64, against the merged weight. Returns how far B A moved W. */
static double check_merged(const struct train_scene *scene, const struct model_shape_row *row,
                           struct safetensors *base, struct safetensors *merged,
                           struct safetensors *adapter)
{
    const struct job_spec *spec = &scene->plan.spec;
    const float *w = tensor_of(base, row->name, row->rows, row->cols), *a = NULL, *b = NULL;
    const float *got = tensor_of(merged, row->name, row->rows, row->cols);
    double moved = 0;
    for (int64_t i = 0; i < scene->shape.row_count; i += 2) {
        const struct model_shape_row *of = &scene->shape.rows[i];
        if (of->kind != row->kind || of->layer != row->layer)
            continue;
        a = tensor_of(adapter, of->name, of->rows, of->cols);
        b = tensor_of(adapter, of[1].name, of[1].rows, of[1].cols);
    }
    for (int64_t i = 0; i < row->elements; i++) {
        double sum = 0;
        for (int64_t k = 0; a != NULL && k < spec->lora_r; k++)
            sum += (double)b[i / row->cols * spec->lora_r + k] *
                   (double)a[k * row->cols + i % row->cols];
        sum *= 3; /* alpha / r */
        moved = fabs(sum) > moved ? fabs(sum) : moved;
        if (fabs((double)got[i] - ((double)w[i] + sum)) > 1e-6)
            fail_msg("%s, element %" PRId64 ": %g, %g and %g; ITHACA_TEST_SEED=%" PRIu64, row->name,
                     i, (double)got[i], (double)w[i], sum, testing_seed());
    }
    return moved;
}

static void check_weights(const struct train_scene *scene, const char *model, const char *adapter)
{
    struct err err = {0};
    struct safetensors *base = NULL, *merged = NULL, *adapters = NULL;
    struct model_shape shape;
    CLEANUP(mem_free_ptr) char *path = io_join(adapter, "adapter_model.safetensors");
    MUST_WORK(model_shape_build(&train_scene_model, &shape, &err), &err);
    MUST_WORK(safetensors_open_dir(scene->folder, &base, &err), &err);
    MUST_WORK(safetensors_open_dir(model, &merged, &err), &err);
    MUST_WORK(safetensors_open(path, &adapters, &err), &err);
    assert_int_equal(safetensors_count(merged), shape.row_count);
    assert_int_equal(safetensors_count(adapters), scene->shape.row_count);
    for (int64_t r = 0; r < shape.row_count; r++) {
        const struct model_shape_row *row = &shape.rows[r];
        double moved = check_merged(scene, row, base, merged, adapters);
        bool adapted = row->kind == MODEL_TENSOR_Q || row->kind == MODEL_TENSOR_DOWN;
        assert_true(adapted ? moved > 1e-3 : moved == 0);
        testing_free(NULL);
    }
    safetensors_free(base);
    safetensors_free(merged);
    safetensors_free(adapters);
    model_shape_done(&shape);
}

static void check_config(const char *adapter)
{
    struct err err = {0};
    json_t *config = NULL;
    CLEANUP(mem_free_ptr) char *path = io_join(adapter, "adapter_config.json");
    MUST_WORK(json_parse_file(path, 1 << 16, &config, &err), &err);
    assert_string_equal(json_string_value(json_object_get(config, "peft_type")), "LORA");
    assert_string_equal(json_string_value(json_object_get(config, "base_model_name_or_path")), "m");
    assert_int_equal(json_integer_value(json_object_get(config, "r")), 4);
    assert_int_equal(json_integer_value(json_object_get(config, "lora_alpha")), 12);
    assert_true(json_real_value(json_object_get(config, "lora_dropout")) == 0.2);
    const json_t *modules = json_object_get(config, "target_modules");
    assert_int_equal(json_array_size(modules), 2);
    assert_string_equal(json_string_value(json_array_get(modules, 1)), "down_proj");
    json_decref(config);
}

static void same_file(const char *a_dir, const char *b_dir, const char *name)
{
    struct err err = {0};
    struct buf a, b;
    CLEANUP(mem_free_ptr) char *a_path = io_join(a_dir, name);
    CLEANUP(mem_free_ptr) char *b_path = io_join(b_dir, name);
    buf_init(&a, 1 << 24);
    buf_init(&b, 1 << 24);
    MUST_WORK(io_read_file(a_path, 1 << 24, &a, &err), &err);
    MUST_WORK(io_read_file(b_path, 1 << 24, &b, &err), &err);
    assert_int_equal(a.length, b.length);
    testing_same_bits(name, a.data, b.data, (int64_t)a.length);
    buf_done(&a);
    buf_done(&b);
}

static bool is_there(const char *dir, const char *name)
{
    CLEANUP(mem_free_ptr) char *path = io_join(dir, name);
    return io_exists(path);
}

static int play_export(struct rank *rank, void *context, struct err *err)
{
    TRY(play_to(rank, context, err));
    return export_model(rank, err);
}

static void check_results(const struct train_scene *scene, const char *model, const char *export)
{
    bool merged = strcmp(export, "adapter") != 0, both = strcmp(export, "both") == 0;
    CLEANUP(mem_free_ptr) char *below = io_join(model, "adapter");
    const char *adapter = both ? below : model;
    assert_true(is_there(model, "model.safetensors") == merged);
    assert_true(is_there(model, "config.json") == merged);
    assert_true(is_there(adapter, "adapter_model.safetensors") == (both || !merged));
    assert_true(is_there(model, "adapter") == both);
    if (both || !merged)
        check_config(adapter);
    if (both)
        check_weights(scene, model, adapter);
}

static void test_export(void **state)
{
    static const char *const exports[] = {"both", "merged", "adapter"};
    static const char *const files[] = {"model.safetensors", "model.safetensors",
                                        "adapter_model.safetensors"};
    for (int i = 0; i < 3; i++) {
        struct err err = {0};
        struct train_scene scene;
        int64_t steps = STEPS;
        train_scene_open(&scene, "");
        use_spec(&scene, "[\"q_proj\",\"down_proj\"]", exports[i]);
        mem_free(train_scene_run(&scene, 3, play_export, &steps));
        char *model = io_join(scene.plan.job_dir, "model"), *again = io_join(scene.folder, "again");
        char *dir = checkpoint_dir(scene.plan.job_dir, STEPS);
        check_results(&scene, model, exports[i]);
        MUST_WORK(export_checkpoint(dir, scene.folder, again, &err), &err);
        check_results(&scene, again, exports[i]);
        same_file(model, again, files[i]);
        if (i == 0)
            same_file(model, again, "adapter/adapter_model.safetensors");
        mem_free(dir);
        mem_free(model);
        mem_free(again);
        train_scene_close(&scene);
    }
}

/* ---- base and adapters, and the merged model ---- */

static int play_evaluate(struct rank *rank, void *context, struct err *err)
{
    struct eval_result result;
    if (rank->plan->spec.lora)
        TRY(play_export(rank, context, err));
    TRY(eval_run(rank, &result, err));
    if (rank->number == 0)
        printf("evaluated=%.9g\n", result.loss);
    return 0;
}

static void test_merged_computes_the_same(void **state)
{
    struct train_scene scene;
    int64_t steps = STEPS;
    train_scene_open(&scene, "");
    use_spec(&scene, "\"all\"", "merged");
    train_scene_many(&scene, "valid.tok");
    char *apart = train_scene_run(&scene, 2, play_evaluate, &steps);
    mem_free(scene.plan.model_dir);
    scene.plan.model_dir = io_join(scene.plan.job_dir, "model");
    scene.plan.spec.lora = false;
    char *merged = train_scene_run(&scene, 1, play_evaluate, NULL);
    double a = strtod(strstr(apart, "evaluated=") + 10, NULL);
    double b = strtod(strstr(merged, "evaluated=") + 10, NULL);
    print_message("loss with adapters %.9g, merged %.9g\n", a, b);
    assert_true(a > 0 && fabs(a - b) < 1e-5);
    mem_free(apart);
    mem_free(merged);
    train_scene_close(&scene);
}

/* ---- failures ---- */

static void test_failing_exports(void **state)
{
    struct train_scene scene;
    train_scene_open(&scene, "");
    use_spec(&scene, "[\"v_proj\"]", "both");
    mem_free(train_scene_run(&scene, 1, export_faults_play, NULL));
    train_scene_close(&scene);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_same_ranks, testing_free),
        cmocka_unit_test_teardown(test_other_ranks, testing_free),
        cmocka_unit_test_teardown(test_export, testing_free),
        cmocka_unit_test_teardown(test_merged_computes_the_same, testing_free),
        cmocka_unit_test_teardown(test_failing_exports, testing_free),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
