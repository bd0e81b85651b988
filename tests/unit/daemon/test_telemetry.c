/* telemetry: frames are taken whole, one commit stores all that came, the bus hears of each job,
 * and what a full disk refuses is still there for the next try. */
#include "daemon/telemetry.h"

#include "tests/lib/store_fixture.h"

struct heard {
    int notes, of_first, of_second;
    int64_t row; /* newest */
};

static void hear(void *context, const struct bus_note *note)
{
    struct heard *heard = context;
    heard->notes++;
    heard->of_first += strcmp(note->job_id, "ftjob-1") == 0;
    heard->of_second += strcmp(note->job_id, "ftjob-2") == 0;
    assert_int_equal(note->event_row, 0);
    heard->row = note->point_row;
}

struct desk {
    struct bus bus;
    struct bus_listener listener;
    struct heard heard;
    struct telemetry telemetry;
};

static void desk_open(struct desk *desk, struct fixture *f)
{
    *desk = (struct desk){.heard = {0}};
    desk->listener = (struct bus_listener){.called = hear, .context = &desk->heard};
    bus_listen(&desk->bus, &desk->listener);
    add_job(f, 1, "{}");
    add_job(f, 2, "{}");
    OK(f, telemetry_init(&desk->telemetry, f->store, &desk->bus, &f->err));
}

/* A frame of `count` points of one step. */
static struct wire_metrics frame(uint64_t step, uint32_t count)
{
    struct wire_metrics metrics = {.step = step, .wall_s = 1000.5, .count = count};
    for (uint32_t i = 0; i < count; i++)
        metrics.points[i] = (struct wire_point){.metric = (uint16_t)(i % METRIC_COUNT),
                                                .value = (double)step + (double)i / 100};
    return metrics;
}

static int last_point(void *context, const struct store_point *point, struct err *err)
{
    *(struct store_point *)context = *point;
    return 0;
}

static int count_point(void *context, const struct store_point *point, struct err *err)
{
    ++*(int *)context;
    return 0;
}

static int points_of(struct fixture *f, const char *job_id)
{
    int count = 0;
    OK(f, store_points_after(f->store, job_id, 0, 1 << 20, count_point, &count, &f->err));
    return count;
}

static void test_stored_as_they_came(void **state)
{
    struct fixture *f = *state;
    struct desk desk;
    struct store_point point;
    desk_open(&desk, f);
    OK(f, telemetry_flush(&desk.telemetry, &f->err));
    assert_int_equal(desk.heard.notes, 0); /* nothing came */
    struct wire_metrics metrics = frame(7, 1);
    metrics.points[0].metric = METRIC_LOSS;
    metrics.points[0].value = 1.25;
    OK(f, telemetry_add(&desk.telemetry, "ftjob-1", 3, 2, &metrics, &f->err));
    assert_int_equal(points_of(f, "ftjob-1"), 0);
    OK(f, telemetry_flush(&desk.telemetry, &f->err));
    assert_int_equal(points_of(f, "ftjob-1"), 1);
    OK(f, store_points_after(f->store, "ftjob-1", 0, 10, last_point, &point, &f->err));
    assert_int_equal(point.attempt, 3);
    assert_int_equal(point.step, 7);
    assert_int_equal(point.rank, 2);
    assert_int_equal(point.metric, METRIC_LOSS);
    assert_true(point.value == 1.25 && point.wall_s == 1000.5);
    assert_int_equal(desk.heard.notes, 1);
    assert_int_equal(desk.heard.row, point.row);
    OK(f, telemetry_flush(&desk.telemetry, &f->err));
    assert_int_equal(desk.heard.notes, 1);
    telemetry_done(&desk.telemetry);
}

static void test_each_job_is_told(void **state)
{
    struct fixture *f = *state;
    struct desk desk;
    desk_open(&desk, f);
    static const char *const jobs[] = {"ftjob-1", "ftjob-1", "ftjob-2", "ftjob-1"};
    for (uint64_t i = 0; i < 4; i++) {
        struct wire_metrics metrics = frame(i + 1, 3);
        OK(f, telemetry_add(&desk.telemetry, jobs[i], 1, 0, &metrics, &f->err));
    }
    OK(f, telemetry_flush(&desk.telemetry, &f->err));
    assert_int_equal(desk.heard.of_first, 2); /* two runs of its points */
    assert_int_equal(desk.heard.of_second, 1);
    assert_int_equal(points_of(f, "ftjob-1"), 9);
    assert_int_equal(points_of(f, "ftjob-2"), 3);
    telemetry_done(&desk.telemetry);
}

/* A batch that is full is stored to make room; a frame is never torn. */
static void test_full_batch(void **state)
{
    struct fixture *f = *state;
    struct desk desk;
    desk_open(&desk, f);
    uint32_t count = METRIC_COUNT;
    int frames = LIMIT_POINTS_BATCH / METRIC_COUNT;
    for (int i = 0; i < frames; i++) {
        struct wire_metrics metrics = frame((uint64_t)i + 1, count);
        OK(f, telemetry_add(&desk.telemetry, "ftjob-1", 1, 0, &metrics, &f->err));
    }
    assert_int_equal(points_of(f, "ftjob-1"), 0);
    struct wire_metrics metrics = frame(999999, count);
    OK(f, telemetry_add(&desk.telemetry, "ftjob-2", 1, 0, &metrics, &f->err));
    assert_int_equal(points_of(f, "ftjob-1"), frames * METRIC_COUNT);
    assert_int_equal(points_of(f, "ftjob-2"), 0);
    assert_int_equal(desk.telemetry.count, count);
    OK(f, telemetry_flush(&desk.telemetry, &f->err));
    assert_int_equal(points_of(f, "ftjob-2"), METRIC_COUNT);
    telemetry_done(&desk.telemetry);
}

static int pragma(struct fixture *f, const char *text)
{
    return sqlite3_exec(f->store->databases[STORE_METRICS], text, NULL, NULL, NULL);
}

static void test_full_disk(void **state)
{
    struct fixture *f = *state;
    struct desk desk;
    desk_open(&desk, f);
    assert_int_equal(pragma(f, "PRAGMA max_page_count = 1"), 0); /* as many as it has now */
    int frames = 0;
    for (; (frames + 1) * METRIC_COUNT <= LIMIT_POINTS_BATCH; frames++) {
        struct wire_metrics metrics = frame((uint64_t)frames + 1, METRIC_COUNT);
        OK(f, telemetry_add(&desk.telemetry, "ftjob-1", 1, 0, &metrics, &f->err));
    }
    assert_int_equal(telemetry_flush(&desk.telemetry, &f->err), -ERR_NO_SPACE);
    struct wire_metrics more = frame(999999, METRIC_COUNT);
    assert_int_equal(telemetry_add(&desk.telemetry, "ftjob-2", 1, 0, &more, &f->err),
                     -ERR_NO_SPACE); /* not taken */
    assert_int_equal(desk.heard.notes, 0);
    assert_int_equal(desk.telemetry.count, frames * METRIC_COUNT);
    assert_int_equal(pragma(f, "PRAGMA max_page_count = 1000000"), 0);
    OK(f, telemetry_flush(&desk.telemetry, &f->err));
    assert_int_equal(points_of(f, "ftjob-1"), frames * METRIC_COUNT);
    assert_int_equal(points_of(f, "ftjob-2"), 0);
    telemetry_done(&desk.telemetry);
}

static void test_no_memory(void **state)
{
    struct fixture *f = *state;
    struct telemetry telemetry;
    struct bus bus = {0};
    for (int n = 1; n <= 2; n++) {
        int64_t live = mem_live();
        mem_fault_after(n);
        assert_int_equal(telemetry_init(&telemetry, f->store, &bus, &f->err), -ERR_NOMEM);
        mem_fault_after(0);
        assert_int_equal(mem_live(), live);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_stored_as_they_came, setup, teardown),
        cmocka_unit_test_setup_teardown(test_each_job_is_told, setup, teardown),
        cmocka_unit_test_setup_teardown(test_full_batch, setup, teardown),
        cmocka_unit_test_setup_teardown(test_full_disk, setup, teardown),
        cmocka_unit_test_setup_teardown(test_no_memory, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
