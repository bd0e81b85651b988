/* profile: ranks that train with and without one: the same bits; what is noted lies in each other,
 * adds up to the step, and agrees with the metrics; a table that is full says so and keeps the
 * slices around; damaged files are refused; a run that pauses leaves what it has. */
#include "tests/dist/train_scene.h"
#include "worker/profile.h"
#include "worker/profile_job.h"
#include "worker/step.h"

#include <fcntl.h>
#include <sys/stat.h>

#define FIELDS "\"seq_len\":64,\"gpus\":2,\"max_steps\":5,\"batch\":{\"sequences\":4}"
#define PROFILED FIELDS ",\"profile\":{\"steps\":[2,4]}"

/* As the daemon writes it: profile_job_open() reads it. */
static void write_plan(const struct train_scene *scene)
{
    struct err err = {0};
    CLEANUP(mem_free_ptr) char *dir = launch_plan_attempt_dir(&scene->plan);
    CLEANUP(mem_free_ptr) char *path = mem_printf("%s/plan.json", dir);
    CLEANUP(json_unref) json_t *json = launch_plan_json(&scene->plan);
    MUST_WORK(io_make_dirs(dir, 0700, &err), &err);
    MUST_WORK(json_write_file(path, json, 0600, &err), &err);
}

static void open_job(const struct train_scene *scene, struct profile_job *job)
{
    struct err err = {0};
    write_plan(scene);
    MUST_WORK(profile_job_open(job, scene->plan.job_dir, 0, &err), &err);
}

/* ---- what is noted ----------------------------------------------------------------------- */

static int64_t total(const struct profile_file *file, enum profile_kind kind, const char *name)
{
    int64_t ns = 0;
    for (int64_t i = 0; i < file->head.count; i++)
        if (file->events[i].kind == kind &&
            (name == NULL || strcmp(profile_event_name(file, &file->events[i]), name) == 0))
            ns += file->events[i].end_ns - file->events[i].begin_ns;
    return ns;
}

static int64_t count(const struct profile_file *file, enum profile_kind kind)
{
    int64_t found = 0;
    for (int64_t i = 0; i < file->head.count; i++)
        found += file->events[i].kind == kind;
    return found;
}

/* Each event of a kind lies in one of another, and no two of the kind at once. */
static void check_inside(const struct profile_file *file, enum profile_kind kind,
                         enum profile_kind outer)
{
    int64_t last_ns = 0;
    for (int64_t i = 0; i < file->head.count; i++) {
        const struct profile_event *event = &file->events[i];
        int64_t j = 0;
        if (event->kind != kind)
            continue;
        while (j < file->head.count &&
               (file->events[j].kind != outer || file->events[j].begin_ns > event->begin_ns ||
                file->events[j].end_ns < event->end_ns))
            j++;
        if (j == file->head.count)
            fail_msg("%s %s lies in no %s", profile_kind_name(kind),
                     profile_event_name(file, event), profile_kind_name(outer));
        assert_true(event->begin_ns >= last_ns);
        last_ns = event->end_ns;
    }
}

static bool is_in_wait(const struct profile_file *file, const struct profile_event *event)
{
    for (int64_t i = 0; i < file->head.count; i++)
        if (file->events[i].kind == PROFILE_WAIT && file->events[i].begin_ns <= event->begin_ns &&
            file->events[i].end_ns >= event->end_ns)
            return true;
    return false;
}

static int64_t outside_waits(const struct profile_file *file, enum profile_kind kind)
{
    int64_t ns = 0;
    for (int64_t i = 0; i < file->head.count; i++)
        if (file->events[i].kind == kind && !is_in_wait(file, &file->events[i]))
            ns += file->events[i].end_ns - file->events[i].begin_ns;
    return ns;
}

static void check_rank(const struct profile_file *file)
{
    assert_int_equal(count(file, PROFILE_STEP), 3);
    assert_true(count(file, PROFILE_KERNEL) > 100 && count(file, PROFILE_COPY) > 0);
    assert_true(count(file, PROFILE_COLLECTIVE) > 10 && count(file, PROFILE_LAYER) > 3 * 6);
    check_inside(file, PROFILE_PHASE, PROFILE_STEP);
    check_inside(file, PROFILE_LAYER, PROFILE_PHASE);
    check_inside(file, PROFILE_PART, PROFILE_STEP);
    check_inside(file, PROFILE_WAIT, PROFILE_STEP);
    check_inside(file, PROFILE_KERNEL, PROFILE_STEP);
    check_inside(file, PROFILE_COPY, PROFILE_STEP);
    int64_t steps = total(file, PROFILE_STEP, NULL), phases = total(file, PROFILE_PHASE, NULL);
    assert_true(phases <= steps && phases > steps - steps / 5); /* the rest is its begin and end */
    assert_true(total(file, PROFILE_KERNEL, NULL) <= steps);
    /* On the CPU a wait does some of the work itself. */
    assert_true(outside_waits(file, PROFILE_KERNEL) + outside_waits(file, PROFILE_COPY) +
                    total(file, PROFILE_WAIT, NULL) <
                steps);
}

static void check_waits(const struct profile_file *file, const char *out)
{
    static const char *const waits[] = {"gather_wait_s", "reduce_wait_s", "sums_wait_s"};
    for (size_t i = 0; i < sizeof waits / sizeof waits[0]; i++) {
        double wanted = 0, got = (double)total(file, PROFILE_WAIT, waits[i]) * 1e-9;
        for (int64_t step = 2; step <= 4; step++)
            wanted += strtod(train_scene_metric(out, step, waits[i]), NULL);
        assert_true(wanted > 0 && fabs(got - wanted) < 1e-8);
    }
}

static void test_two_ranks(void **state)
{
    struct train_scene scene;
    struct profile_job job;
    train_scene_open(&scene, FIELDS);
    mem_free(train_scene_run(&scene, 2, play_to_end, NULL));
    CLEANUP(mem_free_ptr) char *plain = checkpoint_dir(scene.plan.job_dir, 5);
    CLEANUP(mem_free_ptr) char *folder = mem_printf("%s/plain", scene.folder);
    CLEANUP(mem_free_ptr) char *kept = mem_printf("%s/step-5", folder);
    assert_int_equal(mkdir(folder, 0700), 0);
    assert_int_equal(rename(plain, kept), 0);
    train_scene_spec(&scene, PROFILED);
    CLEANUP(mem_free_ptr) char *out = train_scene_run(&scene, 2, play_to_end, NULL);
    assert_non_null(strstr(out, "Steps 2 to 4 are profiled."));
    train_scene_compare(&scene, plain, kept, 0);
    open_job(&scene, &job);
    assert_int_equal(job.world, 2);
    assert_int_equal(job.first_step, 2);
    assert_int_equal(job.last_step, 4);
    assert_int_equal(job.dropped, 0);
    for (int rank = 0; rank < 2; rank++)
        check_rank(&job.files[rank]);
    check_waits(&job.files[0], out);
    /* one clock: the ranks' steps are at the same time */
    assert_true(job.files[0].events[0].begin_ns < job.files[1].events[0].end_ns);
    assert_true(job.files[1].events[0].begin_ns < job.files[0].events[0].end_ns);
    profile_job_done(&job);
    (void)testing_free(NULL);
    train_scene_close(&scene);
}

/* ---- its bounds -------------------------------------------------------------------------- */

struct full {
    int64_t events_max;
    int64_t dropped; /* expected: more than that */
};

static int play_full(struct rank *rank, void *context, struct err *err)
{
    const struct full *full = context;
    const struct profile_options options = {
        .rank = 0, .world = 1, .attempt = 1, .events_max = full->events_max};
    const struct profile_file *file = NULL;
    struct profile *profile = NULL;
    struct step_result result;
    TRY(profile_new(rank->device, &rank->exposed, rank->record, &options, &profile, err));
    rank->device->profile = profile;
    for (int64_t step = 1; step <= 2; step++)
        TRY(step_run(rank, step, &result, err));
    rank->device->profile = NULL;
    TRY(profile_stop(profile, &file, err));
    const struct profile_head head = file->head;
    bool good = head.dropped > full->dropped && head.count <= full->events_max &&
                head.full_ns > profile->began_ns && count(file, PROFILE_STEP) == 2 &&
                count(file, PROFILE_PHASE) > 0 &&
                count(file, PROFILE_KERNEL) <= full->events_max * 3 / 4;
    profile_free(profile);
    return good ? 0
                : err_set(err, ERR_INTERNAL, "%lld events, %lld dropped", (long long)head.count,
                          (long long)head.dropped);
}

static void test_full_table(void **state)
{
    struct train_scene scene;
    struct full full = {.events_max = 400, .dropped = 100};
    train_scene_open(&scene, "\"seq_len\":64,\"max_steps\":5,\"batch\":{\"sequences\":4}");
    mem_free(train_scene_run(&scene, 1, play_full, &full));
    train_scene_close(&scene);
}

/* ---- steps ------------------------------------------------------------------------------- */

static void test_window(void **state)
{
    struct profile_run run = {.first = 0};
    assert_true(profile_run_ask(&run, 7, 3));
    assert_int_equal(run.first, 7);
    assert_int_equal(run.last, 9);
    assert_true(profile_run_ask(&run, 8, 1)); /* not begun: the later word counts */
    assert_int_equal(run.last, 8);
    run.open = true;
    assert_false(profile_run_ask(&run, 9, 5));
    assert_int_equal(run.last, 8);
}

/* Steps that the run has no more of are left out; one that was asked for and never came is not
 * there. */
static void test_end_of_the_run(void **state)
{
    struct train_scene scene;
    struct profile_job job;
    struct err err = {0};
    train_scene_open(&scene, FIELDS ",\"profile\":{\"steps\":[4,9]}");
    mem_free(train_scene_run(&scene, 2, play_to_end, NULL));
    open_job(&scene, &job);
    assert_int_equal(job.first_step, 4);
    assert_int_equal(job.last_step, 5);
    assert_int_equal(count(&job.files[1], PROFILE_STEP), 2);
    profile_job_done(&job);
    CLEANUP(mem_free_ptr) char *ready = profile_ready_path(scene.plan.job_dir);
    assert_int_equal(unlink(ready), 0);
    train_scene_spec(&scene, FIELDS ",\"profile\":{\"steps\":[6,9]}");
    CLEANUP(mem_free_ptr) char *out = train_scene_run(&scene, 2, play_to_end, NULL);
    assert_non_null(strstr(out, "Steps 6 to 9 were to be profiled; training ends with step 5."));
    assert_false(io_exists(ready));
    assert_true(profile_job_open(&job, scene.plan.job_dir, 0, &err) != 0);
    train_scene_close(&scene);
}

/* ---- summary ----------------------------------------------------------------------------- */

/* What was dropped is said, and what it would falsify is not. */
static void test_dropped_is_said(void **state)
{
    struct train_scene scene;
    struct profile_file file;
    struct err err = {0};
    train_scene_open(&scene, PROFILED);
    mem_free(train_scene_run(&scene, 2, play_to_end, NULL));
    write_plan(&scene);
    CLEANUP(mem_free_ptr) char *path = profile_file_path(scene.plan.job_dir, 1);
    MUST_WORK(profile_file_read(path, &file, &err), &err);
    for (int64_t dropped = 0; dropped < 14; dropped += 7) {
        file.head.dropped = dropped;
        MUST_WORK(profile_file_write(path, &file, &err), &err);
        CLEANUP(mem_free_ptr) char *out = mem_printf("%s/out-%d", scene.folder, (int)dropped);
        CLEANUP(mem_free_ptr) char *summary_path = io_join(out, "summary.json");
        CLEANUP(mem_free_ptr) char *trace_path = io_join(out, "trace.json.gz");
        CLEANUP(json_unref) json_t *summary = NULL;
        MUST_WORK(profile_job_make(scene.plan.job_dir, 0, out, &err), &err);
        MUST_WORK(json_parse_file(summary_path, 1 << 20, &summary, &err), &err);
        assert_true(io_exists(trace_path));
        assert_int_equal(json_integer_value(json_object_get(summary, "dropped_events")), dropped);
        assert_int_equal(json_is_null(json_object_get(summary, "idle")), dropped > 0);
        assert_int_equal(json_is_null(json_object_get(summary, "overlap")), dropped > 0);
        assert_true(json_array_size(json_object_get(summary, "kernels")) > 5);
        assert_true(json_array_size(json_object_get(summary, "suggestions")) > 0);
    }
    profile_file_done(&file);
    train_scene_close(&scene);
}

/* Steps before the first event that found no room are whole, of all ranks; there are no others. */
static void test_full_steps_are_left_out(void **state)
{
    struct train_scene scene;
    struct profile_file file;
    struct err err = {0};
    train_scene_open(&scene, PROFILED);
    mem_free(train_scene_run(&scene, 2, play_to_end, NULL));
    write_plan(&scene);
    CLEANUP(mem_free_ptr) char *path = profile_file_path(scene.plan.job_dir, 1);
    MUST_WORK(profile_file_read(path, &file, &err), &err);
    for (int64_t i = 0, step = 2; i < file.head.count; i++) {
        if (file.events[i].kind != PROFILE_STEP)
            continue;
        struct profile_job job;
        file.head.dropped = 7;
        file.head.full_ns = (file.events[i].begin_ns + file.events[i].end_ns) / 2;
        MUST_WORK(profile_file_write(path, &file, &err), &err);
        open_job(&scene, &job);
        assert_int_equal(job.first_step, 2);
        assert_int_equal(job.last_step, step > 2 ? step - 1 : 4); /* none is whole: all of them */
        assert_int_equal(job.left_out, step > 2 ? 5 - step : 0);
        assert_int_equal(profile_job_is_whole(&job), step > 2);
        for (int rank = 0; rank < 2; rank++) {
            const struct profile_file *of = &job.files[rank];
            assert_int_equal(count(of, PROFILE_STEP), job.last_step - 1);
            check_inside(of, PROFILE_KERNEL, PROFILE_STEP);
        }
        profile_job_done(&job);
        step++;
    }
    profile_file_done(&file);
    train_scene_close(&scene);
}

/* ---- files ------------------------------------------------------------------------------- */

/* Writes a word over a file's. */
static void overwrite(const char *path, off_t offset, uint32_t word)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    assert_true(fd >= 0 && pwrite(fd, &word, sizeof word, offset) == sizeof word);
    (void)close(fd);
}

static void test_damaged_files(void **state)
{
    struct train_scene scene;
    struct profile_file file, other;
    struct err err = {0};
    train_scene_open(&scene, FIELDS);
    CLEANUP(mem_free_ptr) char *path = mem_printf("%s/rank-0", scene.folder);
    char names[2][PROFILE_NAME_BYTES] = {"other", "step"};
    struct profile_event events[2] = {{.begin_ns = 5, .end_ns = 9, .name = 1},
                                      {.begin_ns = 6, .end_ns = 6, .kind = PROFILE_KERNEL}};
    file = (struct profile_file){.head = {.world = 1,
                                          .attempt = 1,
                                          .name_count = 2,
                                          .count = 2,
                                          .first_step = 1,
                                          .last_step = 1},
                                 .names = names,
                                 .events = events};
    MUST_WORK(profile_file_write(path, &file, &err), &err);
    MUST_WORK(profile_file_read(path, &other, &err), &err);
    assert_memory_equal(other.events, events, sizeof events);
    assert_string_equal(profile_event_name(&other, &other.events[0]), "step");
    profile_file_done(&other);
    static const struct {
        off_t offset;
        uint32_t word;
        const char *says;
    } damages[] = {{0, 1, "not a profile of this version"},
                   {8, 1, "a number of its head"}, /* rank of a world of 1 */
                   {20, 3, "another size"},        /* names */
                   {20, UINT32_MAX, "a number of its head"},
                   {40, 1, "another size"}, /* events */
                   {128 + 2 * 128 + 28, PROFILE_KIND_COUNT, "no known kind or name"},
                   {128 + 2 * 128 + 28, 2 << 16, "no known kind or name"},
                   {128 + 2 * 128 + 8, 4, "ends before it begins"}};
    for (size_t i = 0; i < sizeof damages / sizeof damages[0]; i++) {
        MUST_WORK(profile_file_write(path, &file, &err), &err);
        overwrite(path, damages[i].offset, damages[i].word);
        assert_int_equal(profile_file_read(path, &other, &err), -ERR_CORRUPT);
        if (strstr(err.text, damages[i].says) == NULL)
            fail_msg("damage %zu: %s", i, err.text);
    }
    MUST_WORK(profile_file_write(path, &file, &err), &err);
    assert_int_equal(truncate(path, 100), 0);
    assert_int_equal(profile_file_read(path, &other, &err), -ERR_CORRUPT);
    train_scene_close(&scene);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_two_ranks),       cmocka_unit_test(test_full_table),
        cmocka_unit_test(test_window),          cmocka_unit_test(test_end_of_the_run),
        cmocka_unit_test(test_dropped_is_said), cmocka_unit_test(test_full_steps_are_left_out),
        cmocka_unit_test(test_damaged_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
