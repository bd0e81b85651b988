/* usage_report: what of an attempt lies in a window and in each day, what was lost, and rows. */
#include "daemon/usage_report.h"
#include "tests/lib/store_fixture.h"

#include <time.h>

#define HOUR INT64_C(3600000)
#define DAY (24 * HOUR)

static struct store_held held_of(const char *job, int64_t number, int64_t started_ms,
                                 int64_t ended_ms)
{
    return (struct store_held){.job_id = job,
                               .number = number,
                               .owner = "ann",
                               .model = "tiny",
                               .state = "succeeded",
                               .started_ms = started_ms,
                               .ended_ms = ended_ms,
                               .slots = 2,
                               .has_gpus = true,
                               .outcome = "ok",
                               .kept_step = -1};
}

static void add(struct usage_report *report, const struct store_held *held)
{
    struct err err;
    assert_int_equal(usage_report_add(report, held, &err), 0);
}

static void assert_near(double value, double wanted)
{
    if (fabs(value - wanted) > 1e-9)
        fail_msg("%.12g is not %.12g", value, wanted);
}

/* An attempt of four hours from 10 to 14 o'clock against windows. */
static void test_clipping(void **state)
{
    static const struct {
        int64_t after, before; /* hours */
        double hours, tokens;
        int attempts;
    } rows[] = {
        {0, 24, 8, 1000, 1}, {10, 14, 8, 1000, 1}, {11, 24, 6, 750, 1},
        {0, 11, 2, 250, 1},  {11, 12, 2, 250, 1},  {0, 10, 0, 0, 0},
        {14, 24, 0, 0, 0},   {0, 1, 0, 0, 0},      {20, 24, 0, 0, 0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct usage_report report;
        struct store_held held = held_of("ftjob-1", 1, 10 * HOUR, 14 * HOUR);
        held.tokens = 1000;
        usage_report_init(&report, USAGE_BY_user, rows[i].after * HOUR, rows[i].before * HOUR);
        add(&report, &held);
        assert_near(report.total.gpu_hours, rows[i].hours);
        assert_near(report.total.tokens, rows[i].tokens);
        assert_near(report.total.cpu_slot_hours, 0);
        assert_int_equal(report.total.attempts, rows[i].attempts);
        assert_int_equal(report.count, rows[i].attempts);
        usage_report_done(&report);
    }
    assert_int_equal(mem_live(), 0);
}

/* One that held nothing for any time counts where it began; a clock that was set back is no use. */
static void test_no_time_at_all(void **state)
{
    struct store_held held[] = {held_of("ftjob-1", 1, 5 * HOUR, 5 * HOUR),
                                held_of("ftjob-2", 1, 5 * HOUR, 4 * HOUR)};
    for (int i = 0; i < 2; i++) {
        held[i].tokens = 7;
        held[i].step = 5;
        held[i].kept_step = 3;
        struct usage_report report;
        usage_report_init(&report, USAGE_BY_day, 5 * HOUR, 6 * HOUR);
        add(&report, &held[i]);
        assert_int_equal(report.total.attempts, 1);
        assert_near(report.total.gpu_hours, 0);
        assert_near(report.total.tokens, 7);
        assert_near(report.total.repeated_steps, 2);
        usage_report_done(&report);
        usage_report_init(&report, USAGE_BY_day, 6 * HOUR, 7 * HOUR);
        add(&report, &held[i]);
        assert_int_equal(report.total.attempts, 0);
        usage_report_done(&report);
    }
}

/* From noon to noon over the nights in which the clock is changed: each day has its own length, and
 * the days add up to all of it. */
static void test_days_of_changes_of_the_clock(void **state)
{
    static const struct {
        int64_t noon_ms; /* of the day before */
        const char *days[3];
        double hours[3];
    } rows[] = {
        {1774695600000, {"2026-03-28", "2026-03-29", "2026-03-30"}, {24, 46, 26}},
        {1792836000000, {"2026-10-24", "2026-10-25", "2026-10-26"}, {24, 50, 22}},
    };
    assert_int_equal(setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3", 1), 0);
    tzset();
    for (size_t i = 0; i < 2 * sizeof rows / sizeof rows[0]; i++) {
        struct usage_report report;
        const bool cut = i % 2; /* six hours off at both ends of the window */
        const int64_t from_ms = rows[i / 2].noon_ms;
        struct store_held held = held_of("ftjob-1", 1, from_ms, from_ms + 2 * DAY);
        held.tokens = 4800;
        usage_report_init(&report, USAGE_BY_day, cut ? from_ms + 6 * HOUR : 0,
                          cut ? held.ended_ms - 6 * HOUR : INT64_MAX);
        add(&report, &held);
        usage_report_sort(&report);
        assert_int_equal(report.count, 3);
        double all = 0, tokens = 0;
        for (int d = 0; d < 3; d++) {
            assert_string_equal(report.sums[d].key, rows[i / 2].days[d]);
            all += report.sums[d].gpu_hours;
            tokens += report.sums[d].tokens;
            assert_near(report.sums[d].gpu_hours, rows[i / 2].hours[d] - (cut && d != 1 ? 12 : 0));
            assert_int_equal(report.sums[d].jobs, 1);
        }
        assert_near(all, cut ? 72 : 96);
        assert_near(tokens, cut ? 3600 : 4800);
        assert_near(report.total.gpu_hours, all);
        assert_int_equal(report.total.attempts, 1);
        usage_report_done(&report);
    }
    assert_int_equal(setenv("TZ", "UTC0", 1), 0);
    tzset();
}

/* Four hours, ten steps from step 10 on. */
static void test_lost(void **state)
{
    static const struct {
        const char *outcome;
        int64_t step, kept_step;
        double lost, repeated;
    } rows[] = {
        {"killed", 20, -1, 0, 0},    /* nobody went on from before it */
        {"killed", 20, 20, 0, 0},    /* all of it was saved */
        {"killed", 20, 15, 4, 5},    /* half of it was not */
        {"killed", 20, 10, 8, 10},   /* nothing was */
        {"killed", 20, 3, 8, 10},    /* nor of the one before it */
        {"oom", 10, -1, 8, 0},       /* it did not come to a step */
        {"oom", 10, 10, 8, 0},       /* likewise */
        {"oom", 0, -1, 8, 0},        /* likewise, and there was no checkpoint */
        {"paused", 10, 10, 0, 0},    /* asked for */
        {"cancelled", 10, -1, 0, 0}, /* likewise */
        {"", 10, -1, 0, 0},          /* it runs */
        {"oom", -1, 5, 0, 0},        /* of an older daemon: not known */
        {"ok", 20, -1, 0, 0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct usage_report report;
        struct store_held held = held_of("ftjob-1", 1, 10 * HOUR, 14 * HOUR);
        held.outcome = rows[i].outcome;
        held.from_step = rows[i].step < 10 ? 0 : 10;
        held.step = rows[i].step;
        held.kept_step = rows[i].kept_step;
        usage_report_init(&report, USAGE_BY_user, 0, DAY);
        add(&report, &held);
        assert_near(report.total.lost_gpu_hours, rows[i].lost);
        assert_near(report.total.repeated_steps, rows[i].repeated);
        assert_near(report.total.gpu_hours, 8);
        usage_report_done(&report);
        held.has_gpus = false; /* and the window ends at 13 o'clock: the last hour is not in it */
        usage_report_init(&report, USAGE_BY_user, 0, 13 * HOUR);
        add(&report, &held);
        assert_near(report.total.cpu_slot_hours, 6);
        assert_near(report.total.lost_cpu_slot_hours, rows[i].lost > 0 ? rows[i].lost - 2 : 0);
        assert_near(report.total.gpu_hours + report.total.lost_gpu_hours, 0);
        if (rows[i].lost > 0)
            assert_near(report.total.repeated_steps,
                        rows[i].repeated * (rows[i].lost - 2) / rows[i].lost);
        usage_report_done(&report);
    }
}

static void test_rows(void **state)
{
    struct store_held held[] = {held_of("ftjob-a", 1, 0, HOUR), held_of("ftjob-a", 2, HOUR, DAY),
                                held_of("ftjob-b", 1, 0, HOUR), held_of("ftjob-c", 1, 0, 2 * HOUR)};
    held[2].owner = held[3].owner = "bob, \"the\" user";
    held[3].model = "other";
    held[3].has_gpus = false;
    held[3].state = "failed";
    const char *const wanted[USAGE_BY_COUNT] = {"ann,bob, \"the\" user,",
                                                "ftjob-a,ftjob-c,ftjob-b,", "1970-01-01,",
                                                "tiny,other,", "succeeded,failed,"};
    for (int by = 0; by < USAGE_BY_COUNT; by++) {
        char keys[256] = "";
        struct usage_report report;
        usage_report_init(&report, (enum usage_by)by, 0, DAY);
        for (size_t i = 0; i < sizeof held / sizeof held[0]; i++)
            add(&report, &held[i]);
        usage_report_sort(&report);
        for (size_t i = 0; i < report.count; i++)
            (void)snprintf(keys + strlen(keys), sizeof keys - strlen(keys), "%s,",
                           report.sums[i].key);
        assert_string_equal(keys, wanted[by]);
        assert_int_equal(report.total.jobs, 3);
        assert_int_equal(report.total.attempts, 4);
        usage_report_done(&report);
        assert_int_equal(usage_by_parse(usage_by_name((enum usage_by)by)), by);
    }
    assert_int_equal(usage_by_parse("week"), USAGE_BY_COUNT);

    struct usage_report report;
    struct buf csv;
    buf_init(&csv, 4096);
    usage_report_init(&report, USAGE_BY_job, 0, DAY);
    for (size_t i = 0; i < sizeof held / sizeof held[0]; i++)
        add(&report, &held[i]);
    usage_report_sort(&report);
    usage_report_csv(&report, 2, &csv);
    assert_string_equal(buf_str(&csv),
                        "key,user,model,jobs,attempts,gpu_hours,lost_gpu_hours,cpu_slot_hours,"
                        "lost_cpu_slot_hours,repeated_steps,tokens\r\n"
                        "ftjob-a,ann,tiny,1,2,48.000000,0.000000,0.000000,0.000000,0,0\r\n"
                        "ftjob-c,\"bob, \"\"the\"\" user\",other,1,1,0.000000,0.000000,4.000000,"
                        "0.000000,0,0\r\n");
    usage_report_done(&report);
    buf_clear(&csv);
    usage_report_init(&report, USAGE_BY_user, 0, DAY); /* no user, no model: they may be many */
    add(&report, &held[0]);
    usage_report_csv(&report, 2, &csv);
    assert_non_null(strstr(buf_str(&csv), "\r\nann,,,1,1,2.000000,"));
    usage_report_done(&report);
    usage_report_init(&report, USAGE_BY_job, 0, DAY);
    for (size_t i = 0; i < sizeof held / sizeof held[0]; i++)
        add(&report, &held[i]);
    json_t *row = usage_report_row(&report.total);
    assert_true(json_is_null(json_object_get(row, "key")));
    assert_int_equal(json_integer_value(json_object_get(row, "jobs")), 3);
    assert_near(json_real_value(json_object_get(row, "gpu_hours")), 50);
    json_decref(row);
    usage_report_done(&report);
    buf_done(&csv);
    assert_int_equal(mem_live(), 0);
}

/* In any order of keys; and out of memory wherever that may be. */
static void test_many(void **state)
{
    struct err err;
    struct usage_report report;
    char name[32];
    usage_report_init(&report, USAGE_BY_user, 0, DAY);
    for (int i = 0; i < 3000; i++) {
        struct store_held held = held_of("ftjob-1", 1, 0, HOUR * (1 + i * 7919 % 1000 % 3));
        held.has_gpus = i * 7919 % 1000 % 2;
        (void)snprintf(name, sizeof name, "user-%d", i * 7919 % 1000);
        held.owner = name;
        add(&report, &held);
    }
    assert_int_equal(report.count, 1000);
    usage_report_sort(&report);
    double hours_before = 6 * 3;
    for (size_t i = 0; i < report.count; i++) {
        double hours = report.sums[i].gpu_hours + report.sums[i].cpu_slot_hours;
        assert_int_equal(report.sums[i].jobs, 1);
        assert_true(hours <= hours_before);
        assert_true(hours < hours_before || i == 0 ||
                    strcmp(report.sums[i - 1].key, report.sums[i].key) < 0);
        hours_before = hours;
    }
    assert_near(hours_before, 6);
    usage_report_done(&report);
    for (int by = 0; by < USAGE_BY_COUNT; by++) {
        int rc = -1;
        for (int nth = 1; rc != 0; nth++) {
            const struct store_held held = held_of("ftjob-1", 1, 0, HOUR);
            usage_report_init(&report, (enum usage_by)by, 0, DAY);
            mem_fault_after(nth);
            rc = usage_report_add(&report, &held, &err);
            assert_int_equal(rc, mem_fault_after(0) ? -ERR_NOMEM : 0);
            usage_report_done(&report);
            assert_int_equal(mem_live(), 0);
        }
    }
}

/* A report has an end, which names what to ask for instead. */
static void test_too_many(void **state)
{
    struct err err;
    struct usage_report report;
    char id[32];
    struct store_held held = held_of(id, 1, 0, HOUR);
    usage_report_init(&report, USAGE_BY_job, 0, DAY);
    for (int i = 0; i < USAGE_SUMS_MAX; i++) {
        (void)snprintf(id, sizeof id, "ftjob-%06d", i);
        add(&report, &held);
    }
    (void)snprintf(id, sizeof id, "ftjob-a");
    assert_int_equal(usage_report_add(&report, &held, &err), -ERR_INVALID_VALUE);
    assert_string_equal(err.field, "after");
    usage_report_done(&report);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_clipping),
        cmocka_unit_test(test_no_time_at_all),
        cmocka_unit_test(test_days_of_changes_of_the_clock),
        cmocka_unit_test(test_lost),
        cmocka_unit_test(test_rows),
        cmocka_unit_test(test_many),
        cmocka_unit_test(test_too_many),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
