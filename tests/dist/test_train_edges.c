/* train: runs at the edges of data and numbers: ranks and examples without trained tokens (field
 * case R28), accumulation against packing against data parallelism (R30), small learning rates
 * (R36), fewer sequences than ranks (R49), no memory (R43); evaluations: positions, early stop, the
 * best model. */
#include "common/must.h"
#include "common/time_plan.h"
#include "tests/dist/train_scene.h"
#include "worker/eval.h"
#include "worker/export.h"
#include "worker/step.h"

static const char one_step[] =
    "\"seq_len\":%d,\"max_steps\":1,\"batch\":{\"sequences\":%d},\"data\":{"
    "\"packing\":%s},\"optimizer\":{\"learning_rate\":0.01,\"schedule\":"
    "\"constant\",\"eps\":1e-3}";

static void use_one_step(struct train_scene *scene, int seq_len, int sequences, bool packing)
{
    char text[512];
    (void)snprintf(text, sizeof text, one_step, seq_len, sequences, packing ? "true" : "false");
    train_scene_spec(scene, text);
}

/* Runs and moves what it saved out of the next one's way; the path is to be mem_free()d. */
static char *run_kept(struct train_scene *scene, uint32_t world, const char *name, char **ret_out)
{
    struct err err = {0};
    char *kept = mem_printf("%s/%s/step-1", scene->folder, name);
    CLEANUP(mem_free_ptr) char *folder = mem_printf("%s/%s", scene->folder, name);
    CLEANUP(mem_free_ptr) char *end = checkpoint_dir(scene->plan.job_dir, 1);
    char *out = train_scene_run(scene, world, play_to_end, NULL);
    MUST_WORK(io_make_dirs(folder, 0700, &err), &err);
    assert_int_equal(rename(end, kept), 0);
    if (ret_out != NULL)
        *ret_out = out;
    else
        mem_free(out);
    return kept;
}

static void test_nothing_to_train(void **state)
{
    struct train_scene scene;
    train_scene_open(&scene, "");
    train_scene_tokens(&scene, "train.tok", (int64_t[]){20, 30}, (int64_t[]){9, 0}, 2);
    use_one_step(&scene, 64, 2, false);
    char *out = NULL, *one = run_kept(&scene, 1, "one", &out);
    assert_string_equal(train_scene_metric(out, 1, "trained_tokens"), "9");
    assert_string_equal(train_scene_metric(out, 1, "tokens"), "50");
    char loss[64];
    (void)snprintf(loss, sizeof loss, "%s", train_scene_metric(out, 1, "loss"));
    mem_free(out);
    char *two = run_kept(&scene, 2, "two", &out); /* one of the ranks has nothing */
    assert_true(fabs(strtod(train_scene_metric(out, 1, "loss"), NULL) - strtod(loss, NULL)) < 1e-6);
    mem_free(out);
    train_scene_compare(&scene, two, one, 1e-6);
    train_scene_tokens(&scene, "train.tok", (int64_t[]){20}, (int64_t[]){9}, 1);
    use_one_step(&scene, 64, 1, false);
    char *alone = run_kept(&scene, 1, "alone", &out); /* without the untrained one: exactly */
    assert_string_equal(train_scene_metric(out, 1, "loss"), loss);
    mem_free(out);
    train_scene_compare(&scene, one, alone, 0);
    train_scene_tokens(&scene, "train.tok", (int64_t[]){20, 30}, (int64_t[]){0, 0}, 2);
    use_one_step(&scene, 64, 2, false);
    char *none = run_kept(&scene, 2, "none", &out); /* no update, and finite */
    assert_string_equal(train_scene_metric(out, 1, "trained_tokens"), "0");
    assert_string_equal(train_scene_metric(out, 1, "loss"), "");
    mem_free(out);
    float *m = train_scene_state(&scene, none, CHECKPOINT_M);
    for (int64_t i = 0; i < scene.shape.parameters; i++)
        assert_true(m[i] == 0);
    mem_free(one);
    mem_free(two);
    mem_free(alone);
    mem_free(none);
    train_scene_close(&scene);
}

static void test_accumulation(void **state)
{
    struct train_scene scene;
    const int64_t lengths[] = {1001, 11, 11, 11}, trained[] = {1000, 10, 10, 10};
    train_scene_open(&scene, "");
    train_scene_tokens(&scene, "train.tok", lengths, trained, 4);
    char *kept[3], loss[3][64];
    for (int way = 0; way < 3; way++) {
        char *out = NULL;
        use_one_step(&scene, 1088, way == 1 ? 1 : 4, way == 1);
        kept[way] = run_kept(&scene, way == 2 ? 4 : 1, (const char *[]){"a", "b", "c"}[way], &out);
        assert_string_equal(train_scene_metric(out, 1, "trained_tokens"), "1030");
        (void)snprintf(loss[way], sizeof loss[way], "%s", train_scene_metric(out, 1, "loss"));
        assert_true(fabs(strtod(loss[way], NULL) - strtod(loss[0], NULL)) < 1e-5);
        train_scene_compare(&scene, kept[way], kept[0], 1e-5);
        mem_free(out);
    }
    for (int way = 0; way < 3; way++)
        mem_free(kept[way]);
    train_scene_close(&scene);
}

static void test_small_rate(void **state)
{
    struct train_scene scene;
    train_scene_open(&scene,
                     "\"seq_len\":64,\"max_steps\":100,\"batch\":{\"sequences\":4},\"save\":{"
                     "\"every_steps\":1000},\"optimizer\":{\"learning_rate\":1e-6,"
                     "\"schedule\":\"constant\"}");
    mem_free(train_scene_run(&scene, 1, play_to_end, NULL));
    char *dir = checkpoint_dir(scene.plan.job_dir, 100);
    float *after = train_scene_state(&scene, dir, CHECKPOINT_MASTER);
    int64_t moved = 0, at = 0;
    for (int64_t r = 0; r < scene.shape.row_count; r++)
        for (int64_t i = 0; i < scene.shape.rows[r].elements; i++)
            moved += after[at++] != model_shape_init(&scene.shape, &scene.shape.rows[r], i, 7);
    double share = (double)moved / (double)scene.shape.parameters;
    print_message("%.3f%% of the weights moved\n", 100 * share);
    assert_true(share >= 0.99);
    mem_free(dir);
    train_scene_close(&scene);
}

static int64_t sum_trained(const char *out, int64_t steps)
{
    int64_t sum = 0;
    for (int64_t step = 1; step <= steps; step++)
        sum += strtoll(train_scene_metric(out, step, "trained_tokens"), NULL, 10);
    return sum;
}

static void test_uneven_data(void **state)
{
    struct train_scene scene;
    train_scene_open(&scene, "");
    const int64_t lengths[] = {9, 8, 7, 6, 5, 4, 3}, trained[] = {7, 6, 5, 4, 3, 2, 1};
    train_scene_tokens(&scene, "train.tok", lengths, trained, 7);
    use_one_step(&scene, 64, 2, false);
    scene.plan.spec.max_steps = 0;
    scene.plan.spec.n_epochs = 1;
    char *out = train_scene_run(&scene, 2, play_to_end, NULL);
    assert_int_equal(train_scene_newest(&scene), 4); /* 2 + 2 + 2 + 1 */
    assert_int_equal(sum_trained(out, 4), 7 + 6 + 5 + 4 + 3 + 2 + 1);
    mem_free(out);
    train_scene_tokens(&scene, "train.tok", lengths, trained, 1);
    scene.plan.spec.sequences = 8;
    scene.plan.spec.n_epochs = 3;
    out = train_scene_run(&scene, 8, play_to_end, NULL); /* one example, eight ranks */
    assert_int_equal(sum_trained(out, 1), 3 * 7);
    assert_string_equal(train_scene_metric(out, 2, "loss"), "");
    mem_free(out);
    train_scene_tokens(&scene, "train.tok", lengths, trained, 0);
    mem_free(train_scene_run_to(&scene, 2, play_to_end, NULL, err_code_exit(ERR_DATA)));
    train_scene_close(&scene);
}

/* R43: a rank whose memory runs out while it starts ends with that reason, and its peer soon after
 * it, not at a deadline. */
static void test_no_memory_at_start(void **state)
{
    struct train_scene scene;
    train_scene_open(&scene, "\"seq_len\":64,\"max_steps\":1,\"batch\":{\"sequences\":2}");
    scene.plan.coll_timeout_ms = 50000;
    scene.plan.world = 2;
    (void)snprintf(scene.plan.shm_name, sizeof scene.plan.shm_name, "/ithaca-train-%d",
                   (int)getpid());
    int failed = 0;
    for (int64_t fault = 50, ended = 0; ended < 2; fault += 4, failed++) {
        pid_t pids[2];
        (void)fflush(NULL);
        for (int number = 0; number < 2; number++) {
            pids[number] = fork();
            if (pids[number] != 0)
                continue;
            mem_fault_after(number == 1 ? fault : 0);
            _exit(train_scene_rank(&scene, number, play_to_end, NULL, STDOUT_FILENO));
        }
        ended = 0;                    /* well: the fault came after all allocations */
        for (int i = 0; i < 2; i++) { /* whichever ends first is reaped, as its keeper would */
            int status = 0;
            pid_t pid = waitpid(-1, &status, 0);
            assert_true(WIFEXITED(status));
            int how = WEXITSTATUS(status);
            assert_true(how == 0 || how == err_code_exit(ERR_NOMEM) ||
                        (how == err_code_exit(ERR_COLL_ABORTED) && pid == pids[0]));
            ended += how == 0;
        }
        assert_int_not_equal(ended, 1);
    }
    print_message("%d faults\n", failed - 1);
    assert_true(failed > 3);
    train_scene_close(&scene);
}

/* ---- evaluations ---- */

/* want: trained tokens by bucket; loss: their mean. */
static int check_positions(const struct positions *positions, const int64_t *want, double loss,
                           struct err *err)
{
    double sum = 0, trained = 0;
    for (int i = 0; i < POSITION_BUCKETS; i++) {
        if (positions->trained[i] != want[i])
            return err_set(err, ERR_INTERNAL, "bucket %d has %lld tokens, not %lld", i,
                           (long long)positions->trained[i], (long long)want[i]);
        sum += positions->loss[i] * (double)positions->trained[i];
        trained += (double)positions->trained[i];
    }
    if (!(fabs(sum / trained - loss) < 1e-5 && loss > 0.5))
        return err_set(err, ERR_INTERNAL, "mean %g, loss %g", sum / trained, loss);
    return 0;
}

static int play_evaluate(struct rank *rank, void *context, struct err *err)
{
    struct eval_result result;
    TRY(eval_run(rank, &result, err));
    TRY(check_positions(&result.positions, context, result.loss, err));
    printf("loss %.9f first %.9f\n", result.loss, result.positions.loss[0]);
    return 0;
}

static int play_gradients(struct rank *rank, void *context, struct err *err)
{
    struct step_result result;
    must(rank->train.micro_steps == 1); /* the last is all of it */
    TRY(step_gradients(rank, 1, &result, err));
    TRY(check_positions(&result.positions, context, result.loss, err));
    printf("loss %.9f\n", result.loss);
    return 0;
}

static void test_loss_by_position(void **state)
{
    struct train_scene scene;
    train_scene_open(&scene, "\"seq_len\":64,\"batch\":{\"sequences\":2}");
    /* Inputs 0..62 of the long one: eight a bucket, seven in the last; 4..10 of the short one. */
    train_scene_tokens(&scene, "valid.tok", (int64_t[]){64, 12}, (int64_t[]){63, 7}, 2);
    int64_t want[POSITION_BUCKETS] = {8 + 4, 8 + 3, 8, 8, 8, 8, 8, 7};
    char *one = train_scene_run(&scene, 1, play_evaluate, want);
    char *three = train_scene_run(&scene, 3, play_evaluate, want);
    double a, b;
    assert_int_equal(sscanf(one, "loss %lf", &a), 1);
    assert_int_equal(sscanf(three, "loss %lf", &b), 1);
    assert_true(fabs(a - b) < 1e-5);
    mem_free(one);
    mem_free(three);
    train_scene_tokens(&scene, "train.tok", (int64_t[]){64, 12}, (int64_t[]){63, 7}, 2);
    char *two = train_scene_run(&scene, 2, play_gradients, want);
    double trained;
    assert_int_equal(sscanf(two, "loss %lf", &trained), 1);
    assert_true(fabs(a - trained) < 1e-5); /* the same documents */
    mem_free(two);
    train_scene_spec(&scene, "\"seq_len\":64,\"max_steps\":1,\"batch\":{\"sequences\":2}");
    train_scene_tokens(&scene, "valid.tok", (int64_t[]){20}, (int64_t[]){2}, 1);
    char *out = train_scene_run(&scene, 2, play_to_end, NULL); /* inputs 17 and 18: bucket 2 */
    assert_string_equal(train_scene_metric(out, 1, "valid_loss_pos_1"), "");
    char loss[64];
    (void)snprintf(loss, sizeof loss, "%s", train_scene_metric(out, 1, "valid_loss"));
    double pos = strtod(train_scene_metric(out, 1, "valid_loss_pos_2"), NULL);
    assert_true(loss[0] != '\0' && fabs(strtod(loss, NULL) - pos) < 1e-5);
    mem_free(out);
    train_scene_close(&scene);
}

static int play_run(struct rank *rank, void *context, struct err *err)
{
    return rank_run(rank, err);
}

static void compare_models(const char *got, const char *want)
{
    struct err err = {0};
    struct buf a, b;
    CLEANUP(mem_free_ptr) char *got_path = io_join(got, "model.safetensors");
    CLEANUP(mem_free_ptr) char *want_path = io_join(want, "model.safetensors");
    buf_init(&a, 1 << 24);
    buf_init(&b, 1 << 24);
    MUST_WORK(io_read_file(got_path, 1 << 24, &a, &err), &err);
    MUST_WORK(io_read_file(want_path, 1 << 24, &b, &err), &err);
    assert_int_equal(a.length, b.length);
    testing_same_bits(got, a.data, b.data, (int64_t)a.length);
    buf_done(&a);
    buf_done(&b);
}

static const char evaluated[] =
    "\"seq_len\":64,\"max_steps\":9,\"batch\":{\"sequences\":4},\"save\":{\"every_steps\":4,"
    "\"keep\":1},"
    "\"optimizer\":{\"learning_rate\":%s,\"schedule\":\"constant\"},\"eval\":{\"every_steps\":1,"
    "\"early_stop_patience\":%s,\"export_best\":%s}";

/* Nothing is learnt with a rate of zero: the first evaluation stays the best. */
static void test_early_stop(void **state)
{
    struct train_scene scene;
    char text[512];
    train_scene_open(&scene, "");
    train_scene_many(&scene, "valid.tok");
    (void)snprintf(text, sizeof text, evaluated, "0", "3", "false");
    train_scene_spec(&scene, text);
    char *out = train_scene_run(&scene, 2, play_run, NULL);
    assert_true(train_scene_metric(out, 4, "valid_loss")[0] != '\0');
    assert_string_equal(train_scene_metric(out, 5, "loss"), "");
    assert_non_null(strstr(out, "has not improved for 3 evaluations"));
    assert_non_null(strstr(out, "at step 1\n"));
    CLEANUP(mem_free_ptr) char *model = io_join(scene.plan.job_dir, "model");
    compare_models(model, scene.folder);
    mem_free(out);
    train_scene_resume(&scene, 4); /* the end of the run was saved: patience goes on counting */
    scene.plan.spec.eval_early_stop_patience = 5;
    out = train_scene_run(&scene, 2, play_run, NULL);
    assert_true(train_scene_metric(out, 6, "valid_loss")[0] != '\0');
    assert_string_equal(train_scene_metric(out, 7, "loss"), "");
    mem_free(out);
    train_scene_close(&scene);
}

/* With a rate far too high some step is the best, mostly an early one. */
static void test_export_best(void **state)
{
    struct err err = {0};
    struct train_scene scene;
    char text[512];
    train_scene_open(&scene, "");
    train_scene_many(&scene, "valid.tok");
    (void)snprintf(text, sizeof text, evaluated, "2", "null", "true");
    train_scene_spec(&scene, text);
    char *out = train_scene_run(&scene, 2, play_run, NULL);
    int64_t best = 1;
    double lowest = INFINITY;
    for (int64_t step = 1; step <= 9; step++) {
        const char *loss = train_scene_metric(out, step, "valid_loss");
        assert_true(loss[0] != '\0');
        if (strtod(loss, NULL) < lowest)
            best = step;
        lowest = fmin(lowest, strtod(loss, NULL));
    }
    CLEANUP(mem_free_ptr) char *model = io_join(scene.plan.job_dir, "model");
    CLEANUP(mem_free_ptr) char *again = io_join(scene.folder, "best");
    CLEANUP(mem_free_ptr) char *dir = checkpoint_dir(scene.plan.job_dir, best);
    char told[64];
    (void)snprintf(told, sizeof told, "the model is that of step %" PRId64 ",", best);
    assert_true(best == 9 || strstr(out, told) != NULL);
    if (best < 9) {
        MUST_WORK(export_checkpoint(dir, scene.folder, again, &err), &err);
        compare_models(model, again);
    }
    assert_true(train_scene_count(&scene) <= 2); /* the newest and the best */
    mem_free(out);
    train_scene_close(&scene);
}

/* MFU is the step's model FLOPs over peak and time; documents count as long as they are. */
static void test_mfu(void **state)
{
    struct train_scene scene;
    train_scene_open(&scene, "\"max_steps\":1,\"seq_len\":64,\"batch\":{\"sequences\":2}");
    const int64_t lengths[] = {64, 40, 24}, trained[] = {64, 40, 24};
    train_scene_tokens(&scene, "train.tok", lengths, trained, 3);
    scene.plan.peak_flops = 1000000000;
    char *out = train_scene_run(&scene, 2, play_to_end, NULL);
    double seconds = strtod(train_scene_metric(out, 1, "step_time_s"), NULL);
    double causal = strtod(train_scene_metric(out, 1, "mfu_causal"), NULL);
    double full = strtod(train_scene_metric(out, 1, "mfu_full"), NULL);
    double pairs = 64 * 65 / 2 + 40 * 41 / 2 + 24 * 25 / 2;
    const struct model_config *config = &scene.shape.config;
    double possible = 2e9 * seconds;
    assert_true(fabs(causal * possible / time_plan_flops(config, false, 128, pairs) - 1) < 1e-6);
    assert_true(fabs(full * possible / time_plan_flops(config, false, 128, 128 * 64) - 1) < 1e-6);
    mem_free(out);
    scene.plan.peak_flops = 0;
    out = train_scene_run(&scene, 1, play_to_end, NULL);
    assert_string_equal(train_scene_metric(out, 1, "mfu_causal"), "");
    mem_free(out);
    train_scene_close(&scene);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_mfu, testing_free),
        cmocka_unit_test_teardown(test_nothing_to_train, testing_free),
        cmocka_unit_test_teardown(test_accumulation, testing_free),
        cmocka_unit_test_teardown(test_small_rate, testing_free),
        cmocka_unit_test_teardown(test_uneven_data, testing_free),
        cmocka_unit_test_teardown(test_no_memory_at_start, testing_free),
        cmocka_unit_test_teardown(test_loss_by_position, testing_free),
        cmocka_unit_test_teardown(test_early_stop, testing_free),
        cmocka_unit_test_teardown(test_export_best, testing_free),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
