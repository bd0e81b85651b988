/* coordinator_alert: a job that brings no step is told of once a step, one whose loss is not finite
 * once an attempt. */
#include "daemon/coordinator_private.h"
#include "tests/lib/coordinator_world.h"

static void test_limit(void **state)
{
    assert_int_equal(coordinator_alert_limit_ms(900000, 0, 0), 900000);
    assert_int_equal(coordinator_alert_limit_ms(900000, 299000, 0), 900000);
    assert_int_equal(coordinator_alert_limit_ms(900000, 400000, 0), 1200000);
    assert_int_equal(coordinator_alert_limit_ms(900000, 1000, 600), 1800000); /* as planned */
}

struct alerts {
    int stalled, nonfinite;
};

static int count_alert(void *context, const struct store_event *event, struct err *err)
{
    struct alerts *alerts = context;
    alerts->stalled += strstr(event->data_json, "{\"alert\":\"stalled\"") != NULL;
    alerts->nonfinite += strstr(event->data_json, "{\"alert\":\"nonfinite\"") != NULL;
    return 0;
}

static void expect_alerts(struct world *w, const struct world_job *job, int stalled, int nonfinite)
{
    struct alerts alerts = {.stalled = 0};
    OK(w, store_events_after(w->store, job->id, 0, 1000, count_alert, &alerts, &w->err));
    assert_int_equal(alerts.stalled, stalled);
    assert_int_equal(alerts.nonfinite, nonfinite);
}

static void send_step(struct world_attempt *a, uint64_t step, double loss, double norm)
{
    struct wire_frame metrics = {.type = WIRE_METRICS, .metrics = {.step = step, .count = 2}};
    metrics.metrics.points[0] = (struct wire_point){.metric = METRIC_LOSS, .value = loss};
    metrics.metrics.points[1] = (struct wire_point){.metric = METRIC_GRAD_NORM, .value = norm};
    world_send(a, 0, metrics);
    world_run(a->w);
}

static void patient(struct world *w)
{
    struct coordinator_config *config = &w->coordinator->config;
    config->heartbeat_limit_ms = config->stall_limit_ms = 3600000;
    config->stall_alert_ms = 60000;
}

static void test_stall(void **state)
{
    struct world *w = *state;
    struct world_attempt a;
    patient(w);
    struct world_job job = world_running(w, &a, "");
    world_pass(w, 59000);
    expect_alerts(w, &job, 0, 0);
    world_pass(w, 2000);
    expect_alerts(w, &job, 1, 0);
    world_pass(w, 120000); /* once, however long it lasts */
    expect_alerts(w, &job, 1, 0);
    send_step(&a, 1, 2.5, 1);
    world_pass(w, 59000);
    expect_alerts(w, &job, 1, 0);
    world_pass(w, 2000);
    expect_alerts(w, &job, 2, 0);
    send_step(&a, 2, 2.5, 1); /* took 61 s: the next one may take three times that */
    world_pass(w, 182000);
    expect_alerts(w, &job, 2, 0);
    world_pass(w, 3000);
    expect_alerts(w, &job, 3, 0);
    w->coordinator->config.stall_alert_ms = 0;
    send_step(&a, 3, 2.5, 1);
    world_pass(w, 1800000);
    expect_alerts(w, &job, 3, 0);
    world_attempt_close(&a);
}

static void test_nonfinite(void **state)
{
    struct world *w = *state;
    struct world_attempt a;
    struct world_job job = world_running(w, &a, "");
    send_step(&a, 1, 2.5, 1);
    expect_alerts(w, &job, 0, 0);
    send_step(&a, 2, 2.5, (double)INFINITY);
    expect_alerts(w, &job, 0, 1);
    send_step(&a, 3, (double)NAN, (double)NAN);
    expect_alerts(w, &job, 0, 1);
    world_attempt_close(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_limit),
        WORLD_TEST(test_stall),
        WORLD_TEST(test_nonfinite),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
