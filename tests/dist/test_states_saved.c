/* states on the host and what is on disk: checkpoints and exports are the same bytes as with states
 * on the device; a run goes on with its states elsewhere, bit for bit; all memory is taken before
 * `ready`, and memory that the host does not have is refused there, with rank, asked and available.
 * Field cases R40, R41. */
#include "common/host_memory.h"
#include "common/kernel_file.h"
#include "tests/lib/rank_scene.h"
#include "worker/export.h"

enum { STEPS = 6, RANKS = 2 };

static const char spec_text[] =
    "\"seq_len\":64,\"max_steps\":6,\"batch\":{\"sequences\":6},\"optimizer\":{\"learning_rate\":"
    "%s,\"warmup_steps\":2,\"weight_decay\":0.1,\"eps\":1e-3},\"save\":{\"every_steps\":%d,"
    "\"keep\":1000},\"states\":\"%s\",\"eval\":{\"every_steps\":1,\"export_best\":%s},\"lora\":%s";

static const char *const names[] = {"device", "host_optimizer", "host"};

enum what { WHAT_LAST, WHAT_BEST, WHAT_ADAPTERS }; /* is trained, and is the result */

static void use_spec(struct train_scene *scene, int save_every, int states, enum what what)
{
    char text[512];
    bool best = what == WHAT_BEST;
    (void)snprintf(text, sizeof text, spec_text, best ? "2" : "0.01", save_every, names[states],
                   best ? "true" : "false", what == WHAT_ADAPTERS ? "{\"r\":4}" : "null");
    train_scene_spec(scene, text);
    scene->plan.spec.grad_accum = 2;
}

static void read_file(const char *folder, const char *name, struct buf *ret)
{
    struct err err = {0};
    CLEANUP(mem_free_ptr) char *path = io_join(folder, name);
    buf_init(ret, 1 << 24);
    MUST_WORK(io_read_file(path, 1 << 24, ret, &err), &err);
    assert_true(ret->length > 1000);
}

static void same_file(const char *got_folder, const char *want_folder, const char *name)
{
    struct buf got, want;
    read_file(got_folder, name, &got);
    read_file(want_folder, name, &want);
    assert_int_equal(got.length, want.length);
    testing_same_bits(name, got.data, want.data, (int64_t)got.length);
    buf_done(&got);
    buf_done(&want);
}

static void same_metrics(const char *got, const char *want, int64_t first)
{
    static const char *const metrics[] = {"loss",          "grad_norm",  "accuracy",
                                          "learning_rate", "valid_loss", "trained_tokens"};
    for (int64_t step = first; step <= STEPS; step++)
        for (size_t i = 0; i < sizeof metrics / sizeof metrics[0]; i++) {
            char value[64];
            (void)snprintf(value, sizeof value, "%s", train_scene_metric(want, step, metrics[i]));
            assert_true(value[0] != '\0');
            assert_string_equal(train_scene_metric(got, step, metrics[i]), value);
        }
}

static int play_run(struct rank *rank, void *context, struct err *err)
{
    TRY(rank_run(rank, err));
    return checkpoint_save(rank, err);
}

/* To the end, the last step saved; checkpoint and model under names of their own. */
static char *run_apart(struct train_scene *scene, int states, enum what what, char **ret_folder)
{
    struct err err = {0};
    CLEANUP(mem_free_ptr) char *end = checkpoint_dir(scene->plan.job_dir, STEPS);
    CLEANUP(mem_free_ptr) char *model = io_join(scene->plan.job_dir, "model");
    use_spec(scene, what == WHAT_BEST ? 1 : 1000, states, what);
    char *out = train_scene_run(scene, RANKS, play_run, NULL);
    CLEANUP(mem_free_ptr) char *apart = io_join(scene->folder, names[states]);
    *ret_folder = mem_printf("%s/step-%d", apart, STEPS); /* manifests know their folder's name */
    CLEANUP(mem_free_ptr) char *kept = io_join(*ret_folder, "model");
    MUST_WORK(io_remove_tree(apart, &err), &err);
    MUST_WORK(io_make_dirs(apart, 0700, &err), &err);
    assert_int_equal(rename(end, *ret_folder), 0);
    assert_int_equal(rename(model, kept), 0);
    return out;
}

static void compare_runs(struct train_scene *scene, enum what what)
{
    char *folder = NULL, *want_folder = NULL;
    char *want = run_apart(scene, 0, what, &want_folder);
    for (int states = 1; states < 3; states++) {
        char *got = run_apart(scene, states, what, &folder);
        same_metrics(got, want, 1);
        same_file(folder, want_folder, "rank-0.ckpt");
        same_file(folder, want_folder, "rank-1.ckpt");
        CLEANUP(mem_free_ptr) char *model = io_join(folder, "model");
        CLEANUP(mem_free_ptr) char *want_model = io_join(want_folder, "model");
        same_file(model, want_model, "model.safetensors");
        mem_free(got);
        mem_free(folder);
    }
    mem_free(want);
    mem_free(want_folder);
}

static void test_same_files(void **state)
{
    struct train_scene scene;
    train_scene_open(&scene, "");
    train_scene_many(&scene, "valid.tok");
    compare_runs(&scene, WHAT_LAST);
    compare_runs(&scene, WHAT_ADAPTERS);
    train_scene_close(&scene);
}

/* With a rate far too high some early step is mostly the best: its weights come back from its
 * checkpoint, to wherever masters are. */
static void test_export_best(void **state)
{
    struct train_scene scene;
    train_scene_open(&scene, "");
    train_scene_many(&scene, "valid.tok");
    compare_runs(&scene, WHAT_BEST);
    train_scene_close(&scene);
}

static void test_goes_on_elsewhere(void **state)
{
    static const int ways[][2] = {{0, 2}, {2, 1}, {1, 0}, {2, 2}};
    struct train_scene scene;
    train_scene_open(&scene, "");
    train_scene_many(&scene, "valid.tok");
    char *want_folder = NULL, *want = run_apart(&scene, 0, WHAT_LAST, &want_folder);
    CLEANUP(mem_free_ptr) char *end = checkpoint_dir(scene.plan.job_dir, STEPS);
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
        train_scene_resume(&scene, -1);
        use_spec(&scene, 1, ways[i][0], WHAT_LAST);
        mem_free(train_scene_run(&scene, RANKS, play_to_end, NULL));
        use_spec(&scene, 1000, ways[i][1], WHAT_LAST);
        train_scene_resume(&scene, 3);
        char *got = train_scene_run(&scene, RANKS, play_to_end, NULL);
        same_metrics(got, want, 4);
        same_file(end, want_folder, "rank-0.ckpt");
        same_file(end, want_folder, "rank-1.ckpt");
        mem_free(got);
        use_spec(&scene, 1000, ways[i][1], WHAT_LAST); /* fewer ranks: other sums */
        got = train_scene_run(&scene, 1, play_to_end, NULL);
        train_scene_compare(&scene, end, want_folder, 1e-5);
        mem_free(got);
        (void)testing_free(NULL);
    }
    mem_free(want);
    mem_free(want_folder);
    train_scene_close(&scene);
}

/* Whatever allocation fails while a rank opens, it says so and nothing stays; among them the block
 * of host memory, by name and with its size. */
static void test_no_host_memory(void **state)
{
    struct rank_scene s = {0};
    rank_scene_prepare(&s, "\"seq_len\":64,\"max_steps\":1,\"states\":\"host\",\"batch\":{"
                           "\"sequences\":2}");
    struct mem_plan plan;
    MUST_WORK(launch_plan_memory(&s.scene.plan, &s.scene.shape, &plan, &s.err), &s.err);
    char asked[96];
    (void)snprintf(asked, sizeof asked,
                   "the rank's host memory: out of host memory: %" PRId64 " bytes asked for, ",
                   plan.arena_bytes[MEM_ARENA_HOST]);
    mem_plan_done(&plan);
    int64_t live = mem_live(), found = 0, fault = 1;
    for (;; fault++) {
        struct err err = {0};
        mem_fault_after(fault);
        int rc = rank_open(&s.rank, &s.scene.plan, 0, &err);
        mem_fault_after(0);
        rank_close(&s.rank);
        assert_int_equal(mem_live(), live);
        if (rc == 0)
            break;
        assert_int_equal(rc, -ERR_NOMEM);
        found += strstr(err.text, asked) != NULL;
    }
    assert_int_equal(found, 1);
    assert_true(fault > 20);
    train_scene_close(&s.scene);
}

/* The machine says that so many KiB are available. */
static void pretend(const struct train_scene *scene, int64_t kib)
{
    struct err err = {0};
    char text[96];
    CLEANUP(mem_free_ptr) char *proc = io_join(scene->folder, "proc");
    CLEANUP(mem_free_ptr) char *meminfo = io_join(proc, "meminfo");
    MUST_WORK(io_make_dirs(proc, 0700, &err), &err);
    (void)snprintf(text, sizeof text, "MemTotal: 100000000 kB\nMemAvailable: %" PRId64 " kB\n",
                   kib);
    MUST_WORK(io_write_file(meminfo, text, strlen(text), 0600, &err), &err);
    kernel_file_root(scene->folder);
}

/* Two ranks that each would find room, but not both: neither takes any, and both say why. */
static void test_host_is_short(void **state)
{
    struct rank_scene s = {0};
    struct mem_plan plan;
    rank_scene_prepare(&s, "\"seq_len\":64,\"max_steps\":1,\"states\":\"host\"");
    s.scene.plan.world = RANKS;
    MUST_WORK(launch_plan_memory(&s.scene.plan, &s.scene.shape, &plan, &s.err), &s.err);
    int64_t each = plan.arena_bytes[MEM_ARENA_HOST] + plan.arena_bytes[MEM_ARENA_DEVICE];
    mem_plan_done(&plan);
    int64_t short_kib = (RANKS * each - 1) / 1024;
    assert_true(short_kib * 1024 > each);
    pretend(&s.scene, short_kib);
    mem_free(train_scene_run_to(&s.scene, RANKS, play_to_end, NULL, err_code_exit(ERR_NOMEM)));
    pretend(&s.scene, short_kib + 1);
    mem_free(train_scene_run(&s.scene, RANKS, play_to_end, NULL));
    s.scene.plan.world = 1;
    pretend(&s.scene, 7);
    assert_int_equal(rank_open(&s.rank, &s.scene.plan, 0, &s.err), -ERR_NOMEM);
    assert_non_null(strstr(s.err.text, "all ranks together: out of host memory: "));
    assert_non_null(strstr(s.err.text, " bytes asked for, 7168 available of 102400000000"));
    kernel_file_root("");
    rank_scene_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_same_files, testing_free),
        cmocka_unit_test_teardown(test_export_best, testing_free),
        cmocka_unit_test_teardown(test_goes_on_elsewhere, testing_free),
        cmocka_unit_test_teardown(test_no_host_memory, testing_free),
        cmocka_unit_test_teardown(test_host_is_short, testing_free),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
