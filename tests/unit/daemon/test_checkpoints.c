/* checkpoints: only folders with a valid manifest are listed, ids name one checkpoint in one
 * spelling, giving up the newer ones is a rename. */
#include "daemon/checkpoints.h"
#include "daemon/result_name.h"
#include "tests/lib/store_fixture.h"

static void add_checkpoint(struct fixture *f, int64_t step)
{
    struct checkpoint_manifest manifest = {.job_id = "ftjob-abc",
                                           .attempt = 1,
                                           .world = 1,
                                           .progress = {.step = step},
                                           .file_count = 1,
                                           .files = {{.bytes = 4}}};
    io_hash("x", 1, manifest.model_digest);
    io_hash("x", 1, manifest.data_digest);
    io_hash("rank", 4, manifest.files[0].hash);
    CLEANUP(mem_free_ptr) char *dir = checkpoint_dir(f->dir, step);
    CLEANUP(mem_free_ptr) char *file = checkpoint_file_path(dir, 0);
    OK(f, io_make_dirs(dir, 0700, &f->err));
    OK(f, io_write_file(file, "rank", 4, 0600, &f->err));
    OK(f, checkpoint_manifest_write(dir, &manifest, &f->err));
}

static int join_step(void *context, const struct checkpoint_manifest *manifest, struct err *err)
{
    size_t length = strlen(context);
    (void)snprintf((char *)context + length, 64 - length, "%lld ",
                   (long long)manifest->progress.step);
    return 0;
}

static void expect_steps(struct fixture *f, const char *wanted)
{
    char steps[64] = "";
    OK(f, checkpoints_each(f->dir, join_step, steps, &f->err));
    assert_string_equal(steps, wanted);
}

static void write_at(struct fixture *f, const char *name, const char *text)
{
    CLEANUP(mem_free_ptr) char *path = mem_printf("%s/checkpoints/%s", f->dir, name);
    OK(f, io_write_file(path, text, strlen(text), 0600, &f->err));
}

static void test_only_whole_ones_are_listed(void **state)
{
    struct fixture *f = *state;
    int64_t newest = 0;
    OK(f, checkpoints_newest(f->dir, &newest, &f->err));
    assert_int_equal(newest, -1);
    expect_steps(f, "");
    for (int64_t step = 0; step <= 100; step += 20)
        add_checkpoint(f, step);
    expect_steps(f, "100 80 60 40 20 0 ");
    write_at(f, "step-100/manifest.json", "{\"version\":1}"); /* not valid */
    write_at(f, "step-80/rank-0.ckpt", "ran");                /* shorter than it was */
    CLEANUP(mem_free_ptr) char *whole = checkpoint_dir(f->dir, 40);
    CLEANUP(mem_free_ptr) char *half = mem_printf("%s.tmp", whole);
    assert_int_equal(rename(whole, half), 0); /* still being written */
    CLEANUP(mem_free_ptr) char *empty = checkpoint_dir(f->dir, 120);
    OK(f, io_make_dirs(empty, 0700, &f->err));
    expect_steps(f, "60 20 0 ");
    OK(f, checkpoints_newest(f->dir, &newest, &f->err));
    assert_int_equal(newest, 60);
}

static void test_discard(void **state)
{
    struct fixture *f = *state;
    for (int64_t step = 1; step <= 4; step++)
        add_checkpoint(f, step);
    CLEANUP(mem_free_ptr) char *left = mem_printf("%s/checkpoints/step-4.tmp/x", f->dir);
    OK(f, io_make_dirs(left, 0700, &f->err)); /* of an attempt that was killed */
    OK(f, checkpoint_discard_after(f->dir, 2, &f->err));
    expect_steps(f, "2 1 ");
    assert_false(io_exists(left));
    OK(f, checkpoint_discard_after(f->dir, 2, &f->err));
    expect_steps(f, "2 1 ");
}

static void test_ids(void **state)
{
    char id[LIMIT_ID_BYTES + 1];
    checkpoints_id("ftjob-abc", 40, id);
    assert_string_equal(id, "ftckpt_abc_40");
    assert_int_equal(checkpoints_step("ftjob-abc", id), 40);
    static const char *const wrong[] = {"",
                                        "ftckpt_abc_",
                                        "ftckpt_abc_040",
                                        "ftckpt_abc_4x",
                                        "ftckpt_abc_-4",
                                        "ftckpt_abd_40",
                                        "ftckpt_abc_99999999999999999999",
                                        "../ftckpt_abc_40"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        assert_int_equal(checkpoints_step("ftjob-abc", wrong[i]), -1);
    char job_id[LIMIT_ID_BYTES + 1];
    int64_t step = 0;
    assert_true(checkpoints_is_id(id, job_id, &step));
    assert_string_equal(job_id, "ftjob-abc");
    assert_int_equal(step, 40);
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        assert_int_equal(checkpoints_is_id(wrong[i], job_id, &step),
                         strcmp(wrong[i], "ftckpt_abd_40") == 0); /* of another job */
    assert_false(checkpoints_is_id("ftckpt_4", job_id, &step));
    assert_false(checkpoints_is_id("tiny-llama_40", job_id, &step));
    char name[RESULT_NAME_BYTES];
    result_name("tiny", "sail", "ftjob-0123456789", -1, name);
    assert_string_equal(name, "ft:tiny:local:sail:23456789");
    result_name("tiny", "sail", "ftjob-0123456789", 7, name);
    assert_string_equal(name, "ft:tiny:local:sail:23456789:ckpt-step-7");
    char tail[RESULT_NAME_BYTES];
    assert_true(result_name_read(name, tail, &step));
    assert_string_equal(tail, "23456789");
    assert_int_equal(step, 7);
    static const char *const none[] = {"ft:tiny:local:sail:23456789",
                                       "tiny:ckpt-step-7",
                                       "ft:tiny:x:ckpt-step-",
                                       "ft:tiny:x:ckpt-step-7x",
                                       "ft:tiny:x:ckpt-step-9999999999999999999",
                                       "ft::ckpt-step-7"};
    for (size_t i = 0; i < sizeof none / sizeof none[0]; i++)
        assert_false(result_name_read(none[i], tail, &step));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_only_whole_ones_are_listed, setup, teardown),
        cmocka_unit_test_setup_teardown(test_discard, setup, teardown),
        cmocka_unit_test(test_ids),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
