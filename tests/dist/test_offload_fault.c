/* A file of kept tensors that fails in mid-run, in writing or in reading, ends the job with the
 * layer, the rank's file, place and bytes; peers end with it; the last checkpoint is whole and goes
 * on to the bits of a run that nothing disturbed. Field case R54. */
#include "tests/dist/train_scene.h"
#include "worker/offload_file.h"

#include <errno.h>
#include <sys/mman.h>

enum { STEPS = 6, SAVED = 2, BEFORE = 3, WORLD = 2 };

static const char spec_text[] =
    "\"seq_len\":64,\"max_steps\":6,\"batch\":{\"sequences\":4},\"offload\":\"file\",\"optimizer\":"
    "{\"learning_rate\":0.01,\"warmup_steps\":2,\"eps\":1e-3},\"save\":{\"every_steps\":2}";

struct fault {
    int64_t piece; /* of step 4, on rank 1 */
    int number;
    struct err ends[WORLD]; /* of each rank */
};

static int play_fault(struct rank *rank, void *context, struct err *err)
{
    struct fault *fault = context;
    enum train_end end;
    rank->steps_total = BEFORE;
    TRY(train_run(rank, &end, err));
    rank->steps_total = STEPS;
    if (rank->number == 1)
        offload_file_fault_after(fault->piece, fault->number);
    if (train_run(rank, &end, err) == 0)
        return err_set(err, ERR_INTERNAL, "nothing failed");
    rank->coll->ops->abort(rank->coll); /* as a rank that fails does */
    fault->ends[rank->number] = *err;
    return 0;
}

static void check_fault(struct train_scene *scene, const char *kept, int64_t piece, int number,
                        enum err_code code, const char *layer, const char *what)
{
    struct err err = {0};
    struct fault *fault =
        mmap(NULL, sizeof *fault, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(fault != MAP_FAILED);
    *fault = (struct fault){.piece = piece, .number = number};
    CLEANUP(mem_free_ptr) char *checkpoints = io_join(scene->plan.job_dir, "checkpoints");
    CLEANUP(mem_free_ptr) char *end = checkpoint_dir(scene->plan.job_dir, STEPS);
    MUST_WORK(io_remove_tree(checkpoints, &err), &err);
    train_scene_resume(scene, -1);
    mem_free(train_scene_run(scene, WORLD, play_fault, fault));
    const char *text = fault->ends[1].text;
    print_message("%s\n", text);
    assert_int_equal(fault->ends[1].code, code);
    assert_int_equal(strncmp(text, layer, strlen(layer)), 0);
    CLEANUP(mem_free_ptr) char *file = mem_printf("%s/kept-1", scene->plan.job_dir);
    CLEANUP(mem_free_ptr) char *told = mem_printf("%s: %s", file, what);
    assert_non_null(strstr(text, told));
    assert_non_null(strstr(text, strerror(number)));
    assert_int_equal(fault->ends[0].code, ERR_COLL_ABORTED);
    assert_int_equal(train_scene_newest(scene), SAVED);
    assert_false(io_exists(file));
    train_scene_resume(scene, SAVED);
    mem_free(train_scene_run(scene, WORLD, play_to_end, NULL));
    train_scene_compare(scene, end, kept, 0);
    assert_int_equal(munmap(fault, sizeof *fault), 0);
}

static void test_fails(void **state)
{
    struct train_scene scene;
    train_scene_open(&scene, spec_text);
    CLEANUP(mem_free_ptr) char *end = checkpoint_dir(scene.plan.job_dir, STEPS);
    CLEANUP(mem_free_ptr) char *kept = mem_printf("%s/step-%d", scene.folder, STEPS);
    scene.plan.spec.offload = JOB_offload_NONE;
    mem_free(train_scene_run(&scene, WORLD, play_to_end, NULL));
    assert_int_equal(rename(end, kept), 0);
    scene.plan.spec.offload = JOB_offload_FILE;
    /* Nothing is recomputed: nine pieces a layer are written; of the last only x is read. */
    check_fault(&scene, kept, 1, ENOSPC, ERR_NO_SPACE, "layer 0: ", "writing of ");
    check_fault(&scene, kept, 12, EIO, ERR_IO, "layer 1: ", "writing of ");
    check_fault(&scene, kept, 20, EIO, ERR_IO, "layer 0: ", "reading of ");
    train_scene_close(&scene);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_fails, testing_free),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
