/* resume: a run that stops after any step and goes on is the run that never stopped: bit for bit
 * with as many ranks, within rounding with others; twice; with several micro-steps; and what is
 * exported from a checkpoint is what the run exports. Field cases R53, R41. */
#include "tests/dist/export_faults.h"
#include "tests/dist/train_scene.h"
#include "worker/export.h"

enum { STEPS = 10 };

static const char spec_text[] =
    "\"seq_len\":64,\"max_steps\":10,\"batch\":{\"sequences\":6},\"optimizer\":{\"learning_rate\":"
    "0.01,\"warmup_steps\":2,\"weight_decay\":0.1,\"eps\":1e-3},\"save\":{\"every_steps\":%d,"
    "\"keep\":"
    "1000}";

static void use_spec(struct train_scene *scene, int save_every, int64_t grad_accum)
{
    char text[512];
    (void)snprintf(text, sizeof text, spec_text, save_every);
    train_scene_spec(scene, text);
    scene->plan.spec.grad_accum = grad_accum;
}

static int play_save_first(struct rank *rank, void *context, struct err *err)
{
    TRY(checkpoint_save(rank, err)); /* of step 0 */
    return play_to_end(rank, context, err);
}

/* The manifests of the ends: the same progress, to the last bit. */
static void compare_progress(const char *got, const char *want)
{
    struct err err = {0};
    struct checkpoint_manifest a, b;
    MUST_WORK(checkpoint_manifest_read(got, &a, &err), &err);
    MUST_WORK(checkpoint_manifest_read(want, &b, &err), &err);
    assert_int_equal(a.progress.step, b.progress.step);
    assert_int_equal(a.progress.updates, b.progress.updates);
    assert_int_equal(a.progress.trained_tokens, b.progress.trained_tokens);
    assert_true(fabs(a.progress.loss - b.progress.loss) < 1e-5);
    assert_int_equal(a.position, b.position);
}

static void compare_metrics(const char *got, const char *want, int64_t first, bool bits)
{
    static const char *const exact[] = {"learning_rate", "tokens", "trained_tokens"};
    static const char *const rounded[] = {"loss", "grad_norm", "accuracy"};
    assert_string_equal(train_scene_metric(got, first - 1, "loss"), ""); /* begins at `first` */
    for (int64_t step = first; step <= STEPS; step++) {
        for (size_t i = 0; i < 3; i++) {
            char value[64];
            (void)snprintf(value, sizeof value, "%s", train_scene_metric(want, step, exact[i]));
            assert_true(value[0] != '\0');
            assert_string_equal(train_scene_metric(got, step, exact[i]), value);
            (void)snprintf(value, sizeof value, "%s", train_scene_metric(want, step, rounded[i]));
            const char *found = train_scene_metric(got, step, rounded[i]);
            assert_true(value[0] != '\0' && found[0] != '\0');
            if (bits)
                assert_string_equal(found, value);
            else
                assert_true(fabs(strtod(found, NULL) - strtod(value, NULL)) <
                            1e-4 * (1 + fabs(strtod(value, NULL))));
        }
    }
}

/* Every k, from checkpoints of `world` ranks, on `then` ranks. whole: the first do not shard. */
static void stop_everywhere(uint32_t world, uint32_t then, int64_t grad_accum, int stride,
                            bool whole)
{
    struct train_scene scene;
    train_scene_open(&scene, "");
    use_spec(&scene, 1000, grad_accum);
    scene.plan.spec.fsdp = !whole;
    char *straight = train_scene_run(&scene, world, play_to_end, NULL);
    char *end = checkpoint_dir(scene.plan.job_dir, STEPS);
    char *kept = mem_printf("%s/step-%d", scene.folder, STEPS);
    assert_int_equal(rename(end, kept), 0);
    use_spec(&scene, 1, grad_accum);
    scene.plan.spec.fsdp = !whole;
    mem_free(train_scene_run(&scene, world, play_save_first, NULL));
    train_scene_compare(&scene, end, kept, 0); /* saving changes nothing */
    use_spec(&scene, 1000, grad_accum);
    scene.plan.attempt = 2;
    for (int64_t k = STEPS - 1; k >= 0; k -= stride) {
        train_scene_resume(&scene, k);
        char *resumed = train_scene_run(&scene, then, play_to_end, NULL);
        train_scene_compare(&scene, end, kept, world == then ? 0 : 1e-5);
        compare_progress(end, kept);
        compare_metrics(resumed, straight, k + 1, world == then);
        mem_free(resumed);
        (void)testing_free(NULL);
    }
    mem_free(straight);
    mem_free(kept);
    mem_free(end);
    train_scene_close(&scene);
}

static void test_same_ranks(void **state)
{
    stop_everywhere(1, 1, 0, 1, false);
    stop_everywhere(2, 2, 0, 1, false);
}

static void test_micro_steps(void **state)
{
    stop_everywhere(1, 1, 2, 3, false); /* 3 sequences a micro-step */
    stop_everywhere(2, 2, 3, 3, false);
}

static void test_other_ranks(void **state)
{
    stop_everywhere(1, 3, 0, 4, false);
    stop_everywhere(3, 2, 0, 1, false);
    stop_everywhere(2, 1, 0, 4, false);
    stop_everywhere(4, 5, 0, 6, false);
    stop_everywhere(2, 3, 0, 5, true);
}

static int play_until(struct rank *rank, void *context, struct err *err)
{
    int64_t last = *(const int64_t *)context, total = rank->steps_total;
    enum train_end end;
    rank->steps_total = last; /* the schedule is constant: it does not look */
    TRY(train_run(rank, &end, err));
    rank->steps_total = total;
    return checkpoint_save(rank, err);
}

static void test_twice(void **state)
{
    struct train_scene scene;
    train_scene_open(&scene, "");
    use_spec(&scene, 1000, 2);
    scene.plan.spec.schedule = JOB_schedule_CONSTANT;
    mem_free(train_scene_run(&scene, 2, play_to_end, NULL));
    char *end = checkpoint_dir(scene.plan.job_dir, STEPS);
    char *kept = mem_printf("%s/step-%d", scene.folder, STEPS);
    assert_int_equal(rename(end, kept), 0);
    int64_t stops[] = {3, 4};
    for (int i = 0; i < 2; i++) {
        mem_free(train_scene_run(&scene, 2, play_until, &stops[i]));
        train_scene_resume(&scene, stops[i]);
    }
    mem_free(train_scene_run(&scene, 2, play_to_end, NULL));
    train_scene_compare(&scene, end, kept, 0);
    mem_free(kept);
    mem_free(end);
    train_scene_close(&scene);
}

static int play_all(struct rank *rank, void *context, struct err *err)
{
    TRY(checkpoint_save(rank, err));
    TRY(play_to_end(rank, context, err));
    return export_model(rank, err);
}

static void read_weights(const char *dir, struct buf *ret)
{
    struct err err = {0};
    CLEANUP(mem_free_ptr) char *path = io_join(dir, "model.safetensors");
    buf_init(ret, 1 << 24);
    MUST_WORK(io_read_file(path, 1 << 24, ret, &err), &err);
}

static void test_export(void **state)
{
    struct err err = {0};
    struct train_scene scene;
    train_scene_open(&scene, "");
    use_spec(&scene, 1000, 0);
    mem_free(train_scene_run(&scene, 3, play_all, NULL));
    char *model = io_join(scene.plan.job_dir, "model"), *out = io_join(scene.folder, "out-0");
    for (int64_t step = 0; step <= STEPS; step += STEPS) {
        struct buf got, want;
        char *dir = checkpoint_dir(scene.plan.job_dir, step);
        MUST_WORK(export_checkpoint(dir, scene.folder, out, &err), &err);
        read_weights(out, &got);
        read_weights(step == 0 ? scene.folder : model, &want);
        assert_int_equal(got.length, want.length);
        testing_same_bits("weights", got.data, want.data, (int64_t)got.length);
        assert_int_equal(export_checkpoint(dir, scene.folder, out, &err), -ERR_USAGE); /* exists */
        MUST_WORK(io_remove_tree(out, &err), &err);
        buf_done(&got);
        buf_done(&want);
        mem_free(dir);
    }
    char *gone = checkpoint_dir(scene.plan.job_dir, 5);
    assert_int_equal(export_checkpoint(gone, scene.folder, out, &err), -ERR_NOT_FOUND);
    assert_false(io_exists(out));
    mem_free(gone);
    mem_free(model);
    mem_free(out);
    train_scene_close(&scene);
}

static void test_failing_exports(void **state)
{
    struct train_scene scene;
    train_scene_open(&scene, "");
    use_spec(&scene, 1000, 0);
    char *out = train_scene_run(&scene, 1, export_faults_play, NULL);
    print_message("%s", out);
    mem_free(out);
    train_scene_close(&scene);
}

/* What a first step leaves, later ones and a save do not raise. */
static int play_watch_memory(struct rank *rank, void *context, struct err *err)
{
    const struct device_ops *dev = rank->device->dev;
    int64_t device = 0, pinned = 0, host = 0;
    for (int64_t last = 1; last <= 4; last++) {
        enum train_end end;
        rank->steps_total = last;
        TRY(train_run(rank, &end, err));
        TRY(checkpoint_save(rank, err));
        if (last == 1) {
            device = dev->bytes_in_use(rank->device);
            pinned = dev->host_bytes_in_use(rank->device);
            host = mem_live();
        }
        if (device != dev->bytes_in_use(rank->device) || host != mem_live() ||
            pinned != dev->host_bytes_in_use(rank->device) ||
            pinned != arena_bytes(&rank->arena, MEM_ARENA_HOST) ||
            device != arena_bytes(&rank->arena, MEM_ARENA_DEVICE))
            return err_set(err, ERR_INTERNAL, "step %lld: memory grew", (long long)last);
    }
    return 0;
}

static void test_memory_stays(void **state)
{
    struct train_scene scene;
    train_scene_open(&scene, "");
    use_spec(&scene, 1, 0);
    scene.plan.spec.eval_every_steps = 1;
    train_scene_many(&scene, "valid.tok");
    scene.plan.spec.schedule = JOB_schedule_CONSTANT;
    for (int states = 0; states < 2; states++) {
        scene.plan.spec.states = states == 0 ? JOB_states_DEVICE : JOB_states_HOST;
        mem_free(train_scene_run(&scene, 2, play_watch_memory, NULL));
    }
    train_scene_close(&scene);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_same_ranks, testing_free),
        cmocka_unit_test_teardown(test_micro_steps, testing_free),
        cmocka_unit_test_teardown(test_other_ranks, testing_free),
        cmocka_unit_test_teardown(test_twice, testing_free),
        cmocka_unit_test_teardown(test_export, testing_free),
        cmocka_unit_test_teardown(test_failing_exports, testing_free),
        cmocka_unit_test_teardown(test_memory_stays, testing_free),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
