/* checkpoint: whatever happens to a save or to its files, a good checkpoint is what training goes
 * on from. Every kind of damage is seen; the one before is used and that is said; ranks killed at
 * any moment of a save, writes that fail, memory that runs out; what is kept and what goes. Field
 * cases R51, R54. */
#include "tests/dist/train_scene.h"

enum { KILLS = 20 };

static const char spec_text[] =
    "\"seq_len\":64,\"max_steps\":6,\"batch\":{\"sequences\":4},\"save\":{"
    "\"every_steps\":2,\"keep\":1000},\"optimizer\":{\"schedule\":"
    "\"constant\",\"learning_rate\":0.01}";

/* ---- damage ---- */

static void damage_file(const char *path, int64_t at, int64_t length)
{
    FILE *file = fopen(path, "r+e");
    assert_non_null(file);
    if (at >= 0) {
        assert_int_equal(fseek(file, at, SEEK_SET), 0);
        int byte = fgetc(file);
        assert_true(byte != EOF);
        assert_int_equal(fseek(file, at, SEEK_SET), 0);
        assert_int_equal(fputc(byte ^ 0x10, file), byte ^ 0x10);
    }
    assert_int_equal(fclose(file), 0);
    if (length >= 0)
        assert_int_equal(truncate(path, length), 0);
}

/* Damages step-4 in the n-th way; false when there are no more. */
static bool damage(const struct train_scene *scene, int way, const char **ret_named)
{
    CLEANUP(mem_free_ptr) char *dir = checkpoint_dir(scene->plan.job_dir, 4);
    CLEANUP(mem_free_ptr) char *file = checkpoint_file_path(dir, 1);
    CLEANUP(mem_free_ptr) char *manifest = io_join(dir, "manifest.json");
    CLEANUP(mem_free_ptr) char *older = checkpoint_dir(scene->plan.job_dir, 2);
    CLEANUP(mem_free_ptr) char *other = checkpoint_file_path(older, 1);
    int64_t bytes = 0;
    struct err err = {0};
    MUST_WORK(io_file_size(file, &bytes, &err), &err);
    *ret_named = "rank-1.ckpt";
    const int64_t flips[] = {3, 17, 30, 66, 200, bytes / 3, bytes / 2, bytes - 1};
    const int64_t cuts[] = {0, 63, 100, bytes / 2, bytes - 4};
    const int flip_count = 8, cut_count = 5;
    if (way < flip_count) {
        damage_file(file, flips[way], -1);
        return true;
    }
    if (way < flip_count + cut_count) {
        damage_file(file, -1, cuts[way - flip_count]);
        return true;
    }
    switch (way - flip_count - cut_count) {
    case 0:
        damage_file(file, -1, bytes + 4);
        return true;
    case 1:
        assert_int_equal(unlink(file), 0);
        return true;
    case 2: /* another step's file: as long, and whole in itself */
        assert_int_equal(unlink(file), 0);
        assert_int_equal(link(other, file), 0);
        return true;
    case 3:
        *ret_named = "manifest.json";
        assert_int_equal(unlink(manifest), 0);
        return true;
    case 4:
        *ret_named = "manifest.json";
        damage_file(manifest, 40, -1);
        return true;
    case 5:
        *ret_named = "manifest.json";
        damage_file(manifest, -1, 50);
        return true;
    default:
        return false;
    }
}

static int play_report_start(struct rank *rank, void *context, struct err *err)
{
    printf("started at %lld\n", (long long)rank->progress.step);
    return 0;
}

static void copy_tree(const char *from, const char *to)
{
    int status = 0;
    pid_t pid = fork();
    if (pid == 0) {
        (void)execl("/bin/cp", "cp", "-a", from, to, (char *)NULL);
        _exit(2);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

static void test_damage_is_seen(void **state)
{
    struct err err = {0};
    struct train_scene scene;
    train_scene_open(&scene, spec_text);
    mem_free(train_scene_run(&scene, 2, play_to_end, NULL)); /* steps 2, 4 and 6 */
    char *folder = io_join(scene.plan.job_dir, "checkpoints"),
         *copy = io_join(scene.folder, "kept");
    copy_tree(folder, copy);
    train_scene_resume(&scene, 4);
    const char *named = NULL;
    int ways = 0;
    for (; damage(&scene, ways, &named); ways++) {
        char *out = train_scene_run(&scene, ways % 3 == 0 ? 3 : 1, play_report_start, NULL);
        /* with three ranks it may be rank 1 that says it, in its own log */
        bool told =
            ways % 3 == 0 || (strstr(out, "checkpoint of step 4 cannot be used: ") != NULL &&
                              strstr(out, named) != NULL && strstr(out, scene.folder) == NULL);
        if (!told || strstr(out, "started at 2\n") == NULL)
            fail_msg("damage %d:\n%s", ways, out);
        assert_int_equal(train_scene_newest(&scene), 2); /* 4 and 6 are given up */
        assert_int_equal(train_scene_count(&scene), 1);
        assert_false(train_scene_has_temp(&scene));
        mem_free(out);
        MUST_WORK(io_remove_tree(folder, &err), &err);
        copy_tree(copy, folder);
    }
    assert_int_equal(ways, 19);
    mem_free(copy);
    mem_free(folder);
    train_scene_close(&scene);
}

/* With nothing good left training starts over, and with another order of data as well. */
static void test_start_over(void **state)
{
    struct err err = {0};
    struct train_scene scene;
    train_scene_open(&scene, spec_text);
    mem_free(train_scene_run(&scene, 1, play_to_end, NULL));
    char *folder = io_join(scene.plan.job_dir, "checkpoints"),
         *copy = io_join(scene.folder, "kept");
    copy_tree(folder, copy);
    train_scene_resume(&scene, 4);
    scene.plan.spec.seed = 4;
    char *out = train_scene_run(&scene, 1, play_report_start, NULL);
    assert_non_null(strstr(out, "step-4: is of another order of the training data"));
    assert_non_null(strstr(out, "training starts over"));
    assert_non_null(strstr(out, "started at 0\n"));
    assert_int_equal(train_scene_count(&scene), 0);
    mem_free(out);
    MUST_WORK(io_remove_tree(folder, &err), &err);
    copy_tree(copy, folder);
    scene.plan.spec.seed = 3;
    for (int64_t step = 2; step <= 4; step += 2) {
        char *dir = checkpoint_dir(scene.plan.job_dir, step);
        char *file = checkpoint_file_path(dir, 0);
        damage_file(file, 1000, -1);
        mem_free(file);
        mem_free(dir);
    }
    out = train_scene_run(&scene, 1, play_report_start, NULL);
    assert_non_null(strstr(out, "cannot be used: checkpoints/step-2/rank-0.ckpt: its checksum"));
    assert_non_null(strstr(out, "started at 0\n"));
    mem_free(out);
    MUST_WORK(io_remove_tree(scene.plan.resume_from, &err), &err);
    out = train_scene_run(&scene, 1, play_to_end,
                          NULL); /* not there at all; trains on all the same */
    assert_non_null(strstr(out, "training starts over"));
    assert_int_equal(train_scene_newest(&scene), 6);
    mem_free(out);
    mem_free(copy);
    mem_free(folder);
    train_scene_close(&scene);
}

/* ---- faults ---- */

static int play_save_for_ever(struct rank *rank, void *context, struct err *err)
{
    for (;; rank->progress.step++)
        TRY(checkpoint_save(rank, err));
}

static void check_all_valid(const struct train_scene *scene)
{
    struct err err = {0};
    CLEANUP(mem_free_ptr) int64_t *steps = NULL;
    size_t count = 0;
    MUST_WORK(checkpoint_list(scene->plan.job_dir, &steps, &count, &err), &err);
    for (size_t i = 0; i < count; i++) {
        struct checkpoint_manifest manifest;
        CLEANUP(mem_free_ptr) char *dir = checkpoint_dir(scene->plan.job_dir, steps[i]);
        MUST_WORK(checkpoint_manifest_read(dir, &manifest, &err), &err);
        MUST_WORK(checkpoint_check_hashes(dir, &manifest, 0, 1, &err), &err);
    }
}

static void test_killed_while_saving(void **state)
{
    struct train_scene scene;
    train_scene_open(&scene, spec_text);
    scene.plan.spec.save_keep = 2;
    int torn = 0;
    int64_t last = -1;
    for (int round = 0; round < KILLS; round++) {
        pid_t pids[SCENE_WORLD_MAX];
        uint32_t world = round % 2 == 0 ? 1 : 2;
        int fd = train_scene_start(&scene, world, play_save_for_ever, NULL, pids);
        uint64_t wait = rng_below(testing_seed(), RNG_STREAM_TEST + 9, (uint64_t)round, 150);
        int64_t end = clock_monotonic_ms() + 20000;
        while (train_scene_newest(&scene) <= last && clock_monotonic_ms() < end)
            clock_sleep_ms(5);
        clock_sleep_ms((int64_t)wait);
        for (uint32_t r = 0; r < world; r++)
            assert_int_equal(kill(pids[r], SIGKILL), 0);
        for (uint32_t r = 0; r < world; r++)
            assert_int_equal(waitpid(pids[r], NULL, 0), pids[r]);
        (void)close(fd);
        torn += train_scene_has_temp(&scene);
        check_all_valid(&scene);
        int64_t newest = train_scene_newest(&scene);
        if (newest <= last)
            fail_msg("round %d: step %lld after %lld; ITHACA_TEST_SEED=%" PRIu64, round,
                     (long long)newest, (long long)last, testing_seed());
        last = newest;
        train_scene_resume(&scene, newest);
        char want[64], *out = train_scene_run(&scene, 3 - world, play_report_start, NULL);
        (void)snprintf(want, sizeof want, "started at %lld\n", (long long)newest);
        assert_non_null(strstr(out, want));
        assert_false(train_scene_has_temp(&scene));
        mem_free(out);
    }
    print_message("%d of %d kills left a half-written folder\n", torn, KILLS);
    assert_true(torn > 0);
    train_scene_close(&scene);
}

/* Saves step 1, then step 2 with the n-th call failing in one rank, then goes on. */
struct fault {
    int64_t after; /* calls */
    int rank;
    bool memory; /* else writes, syncs and renames */
};

static int play_fault(struct rank *rank, void *context, struct err *err)
{
    const struct fault *fault = context;
    rank->progress.step = 1;
    TRY(checkpoint_save(rank, err));
    rank->progress.step = 2;
    int64_t blocks = mem_live();
    if (rank->number == fault->rank)
        (fault->memory ? mem_fault_after : io_fault_after)(fault->after);
    int rc = checkpoint_save(rank, err);
    mem_fault_after(0);
    io_fault_after(0);
    if (blocks != mem_live())
        return err_set(err, ERR_INTERNAL, "%lld blocks leaked", (long long)(mem_live() - blocks));
    int want = fault->memory ? -ERR_NOMEM : -ERR_NO_SPACE;
    if (rc != 0 && (rc != want || !checkpoint_is_harmless(rc)))
        return err_set(err, ERR_INTERNAL, "code %d", rc);
    struct checkpoint_manifest manifest;
    struct err torn = {0};
    CLEANUP(mem_free_ptr) char *dir = checkpoint_dir(rank->plan->job_dir, 2);
    if (io_exists(dir) && checkpoint_manifest_read(dir, &manifest, &torn) != 0)
        return err_set(err, ERR_INTERNAL, "torn: %s", torn.text);
    printf("%s\n", rc == 0 ? "saved" : err->text);
    rank->progress.step = 3;
    return checkpoint_save(rank, err);
}

static void walk_faults(uint32_t world, int victim, bool memory, int64_t stride)
{
    struct err err = {0};
    struct train_scene scene;
    train_scene_open(&scene, spec_text);
    char *folder = io_join(scene.plan.job_dir, "checkpoints");
    struct fault fault = {.rank = victim, .memory = memory};
    int failed = 0;
    for (fault.after = 1;; fault.after += stride) {
        char *out = train_scene_run(&scene, world, play_fault, &fault);
        bool saved = strstr(out, "saved\n") != NULL;
        assert_false(train_scene_has_temp(&scene));
        check_all_valid(&scene);
        assert_int_equal(train_scene_newest(&scene), 3);
        assert_true(train_scene_count(&scene) >= 2); /* step 1 is as it was */
        if (!saved)
            assert_non_null(strstr(out, "checkpoint of step 2: "));
        mem_free(out);
        MUST_WORK(io_remove_tree(folder, &err), &err);
        if (saved)
            break;
        failed++;
    }
    print_message("%d faults of %s in rank %d of %u\n", failed, memory ? "memory" : "writes",
                  victim, world);
    assert_true(failed > 5);
    mem_free(folder);
    train_scene_close(&scene);
}

static void test_failing_writes(void **state)
{
    walk_faults(1, 0, false, 1);
    walk_faults(2, 1, false, 2);
}

static void test_failing_memory(void **state)
{
    walk_faults(1, 0, true, 3);
}

/* In the loop: a periodic save that fails is told and the next one is made. */
static int play_fault_in_training(struct rank *rank, void *context, struct err *err)
{
    enum train_end end;
    if (rank->number == 0)
        io_fault_after(3); /* in the first save: no other writes are counted before */
    TRY(train_run(rank, &end, err));
    return checkpoint_save(rank, err);
}

static void test_training_goes_on(void **state)
{
    struct train_scene scene;
    train_scene_open(&scene, spec_text);
    char *out = train_scene_run(&scene, 2, play_fault_in_training, NULL);
    assert_non_null(strstr(out, "checkpoint of step 2: "));
    assert_non_null(strstr(out, "; training goes on"));
    assert_int_equal(train_scene_count(&scene), 2); /* 4 and 6 */
    assert_int_equal(train_scene_newest(&scene), 6);
    mem_free(out);
    train_scene_close(&scene);
}

/* ---- what is kept ---- */

static int play_keep(struct rank *rank, void *context, struct err *err)
{
    const double *losses = context; /* of steps 1 ..., then 0 */
    for (int64_t i = 0; losses[i] != 0; i++) {
        rank->progress.step = i + 1;
        rank->progress.valid_loss = losses[i];
        TRY(checkpoint_save(rank, err));
    }
    return 0;
}

static void check_kept(struct train_scene *scene, double *losses, const int64_t *want, size_t count)
{
    struct err err = {0};
    CLEANUP(mem_free_ptr) int64_t *steps = NULL;
    size_t found = 0;
    mem_free(train_scene_run(scene, 1, play_keep, losses));
    MUST_WORK(checkpoint_list(scene->plan.job_dir, &steps, &found, &err), &err);
    assert_int_equal(found, count);
    assert_memory_equal(steps, want, count * sizeof *want);
}

static void test_retention(void **state)
{
    struct train_scene scene;
    train_scene_open(&scene, spec_text);
    double nan = (double)NAN;
    scene.plan.spec.save_keep = 2;
    check_kept(&scene, (double[]){nan, nan, nan, nan, nan, 0}, (int64_t[]){5, 4}, 2);
    check_kept(&scene, (double[]){3, 1, 2, 2.5, nan, 0}, (int64_t[]){5, 4, 2}, 3);
    scene.plan.spec.save_keep = 1;
    check_kept(&scene, (double[]){nan, nan, nan, 0}, (int64_t[]){3}, 1);
    check_kept(&scene, (double[]){3, 2, 0}, (int64_t[]){2}, 1); /* later steps were another run's */
    check_kept(&scene, (double[]){1, 2, 3, 0}, (int64_t[]){3, 1}, 2);
    train_scene_close(&scene);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_damage_is_seen, testing_free),
        cmocka_unit_test_teardown(test_start_over, testing_free),
        cmocka_unit_test_teardown(test_killed_while_saving, testing_free),
        cmocka_unit_test_teardown(test_failing_writes, testing_free),
        cmocka_unit_test_teardown(test_failing_memory, testing_free),
        cmocka_unit_test_teardown(test_training_goes_on, testing_free),
        cmocka_unit_test_teardown(test_retention, testing_free),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
