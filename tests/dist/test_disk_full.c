/* checkpoint: a disk that is really full: a small filesystem in a mount namespace of our own. Field
 * case R54. Exit status 77 where mounting is not allowed; test_checkpoint has the injected form. */
#include "tests/dist/train_scene.h"

#include <sched.h>
#include <sys/mount.h>

static int play_fill(struct rank *rank, void *context, struct err *err)
{
    rank->progress.step = 1;
    TRY(checkpoint_save(rank, err));
    rank->progress.step = 2;
    int rc = checkpoint_save(rank, err);
    printf("%s\n", err->text);
    return rc == -ERR_NO_SPACE && checkpoint_is_harmless(rc)
               ? 0
               : err_set(err, ERR_INTERNAL, "a second checkpoint fitted: %d", rc);
}

static void test_full(void **state)
{
    struct train_scene scene;
    train_scene_open(&scene, "\"seq_len\":64,\"batch\":{\"sequences\":2},\"save\":{\"keep\":1}");
    CLEANUP(mem_free_ptr) char *dir = io_join(scene.plan.job_dir, "checkpoints");
    struct err err = {0};
    MUST_WORK(io_make_dirs(dir, 0700, &err), &err);
    CLEANUP(mem_free_ptr)
    char *size = mem_printf("size=%lld", (long long)(1.5 * 12 * (double)scene.shape.parameters));
    assert_int_equal(mount("tmpfs", dir, "tmpfs", 0, size), 0);
    char *out = train_scene_run(&scene, 2, play_fill, NULL);
    assert_non_null(strstr(out, "checkpoint of step 2: a checkpoint needs "));
    assert_int_equal(train_scene_newest(&scene), 1);
    assert_false(train_scene_has_temp(&scene));
    mem_free(out);
    assert_int_equal(umount(dir), 0);
    train_scene_close(&scene);
}

int main(void)
{
    if (unshare(CLONE_NEWNS) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0)
        return 77;
    if (mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount("tmpfs", "/mnt", "tmpfs", 0, "size=1m") != 0)
        return 77;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_full, testing_free),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
