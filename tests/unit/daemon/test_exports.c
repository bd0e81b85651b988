/* exports: one child a folder however many wait, at most so many at once, the newest folders kept,
 * what a child says as the reason of its end, and waits that are taken back. */
#include "daemon/exports.h"

#include "tests/lib/http_world.h"

struct waiter {
    int calls;
    char dir[256];
    char why[ERR_TEXT_MAX];
};

static void waiter_ready(void *context, const char *dir, const struct err *why)
{
    struct waiter *waiter = context;
    waiter->calls++;
    (void)snprintf(waiter->dir, sizeof waiter->dir, "%s", dir != NULL ? dir : "");
    (void)snprintf(waiter->why, sizeof waiter->why, "%s", dir == NULL ? why->text : "");
}

static int want(struct http_world *h, const char *name, struct waiter *waiter,
                struct exports_wait **ret_wait)
{
    const struct exports_source source = {.name = name,
                                          .role = "--export",
                                          .inputs = {"/jobs/a/checkpoints/step-7", "/models/m"},
                                          .what = "the checkpoint cannot be exported"};
    *waiter = (struct waiter){.calls = 0};
    return exports_want(h->api.exports, &source, waiter_ready, waiter, ret_wait, &h->w->err);
}

static struct host_process *child(struct http_world *h)
{
    struct host_process *found = fake_host_find(&h->w->fake, "--export");
    assert_non_null(found);
    return found;
}

static void make(struct http_world *h, const char *name)
{
    CLEANUP(mem_free_ptr) char *folder = mem_printf("%s/exports/%s", h->w->dir, name);
    http_world_put(h, folder, "config.json", "{}");
}

static bool there(struct http_world *h, const char *name)
{
    CLEANUP(mem_free_ptr) char *found = exports_find(h->api.exports, name);
    return found != NULL;
}

static void test_many_wait_for_one(void **state)
{
    struct http_world *h = *state;
    struct waiter waiters[3];
    struct exports_wait *waits[3];
    for (int i = 0; i < 3; i++)
        OK(h->w, want(h, "a", &waiters[i], &waits[i]));
    assert_int_equal(h->w->fake.count, 1);
    assert_string_equal(child(h)->argument, "/jobs/a/checkpoints/step-7");
    assert_false(exports_is_idle(h->api.exports));
    assert_true(exports_is_reading(h->api.exports, "/jobs/a/checkpoints/step-7"));
    assert_true(exports_is_reading(h->api.exports, "/jobs/a"));
    assert_true(exports_is_reading(h->api.exports, "/jobs/a/checkpoints/step-7/rank-0.ckpt"));
    assert_false(exports_is_reading(h->api.exports, "/jobs/a/checkpoints/step-70"));
    assert_false(exports_is_reading(h->api.exports, "/jobs/a/checkpoints/step-"));
    assert_false(exports_is_reading(h->api.exports, "/jobs/a/attempt-1"));
    exports_forget(waits[1]);
    exports_forget(NULL);
    make(h, "a");
    fake_host_end(child(h), 0, 0);
    CLEANUP(mem_free_ptr) char *dir = mem_printf("%s/exports/a", h->w->dir);
    assert_int_equal(waiters[0].calls, 1);
    assert_int_equal(waiters[1].calls, 0);
    assert_int_equal(waiters[2].calls, 1);
    assert_string_equal(waiters[2].dir, dir);
    assert_true(exports_is_idle(h->api.exports));
    assert_false(exports_is_reading(h->api.exports, "/jobs/a"));
    OK(h->w, want(h, "a", &waiters[0], &waits[0])); /* there: at once */
    assert_int_equal(waiters[0].calls, 1);
    assert_null(waits[0]);
    assert_string_equal(waiters[0].dir, dir);
    assert_int_equal(h->w->fake.count, 1);
}

static void test_child_fails(void **state)
{
    struct http_world *h = *state;
    struct waiter waiter;
    struct exports_wait *wait;
    OK(h->w, want(h, "a", &waiter, &wait));
    const char *log = child(h)->errors[0] != '\0' ? child(h)->errors : child(h)->output;
    static const char said[] = "noise\nithaca-worker: no space left\n";
    OK(h->w, io_write_file(log, said, sizeof said - 1, 0600, &h->w->err));
    fake_host_end(child(h), 73, 0);
    assert_int_equal(waiter.calls, 1);
    assert_non_null(strstr(waiter.why, "no space left"));
    assert_null(strstr(waiter.why, "noise"));
    assert_false(there(h, "a"));
    OK(h->w, want(h, "b", &waiter, &wait)); /* it says nothing */
    fake_host_end(child(h), 0, SIGKILL);
    assert_non_null(strstr(waiter.why, "signal 9"));
    h->w->fake.spawn_fails = true;
    assert_int_equal(want(h, "c", &waiter, &wait), -ERR_IO);
    assert_int_equal(waiter.calls, 0);
    assert_true(exports_is_idle(h->api.exports));
}

static void test_limits(void **state)
{
    struct http_world *h = *state;
    struct waiter waiters[EXPORTS_RUNNING + 1];
    struct exports_wait *waits[EXPORTS_RUNNING + 1];
    char name[16];
    for (int i = 0; i < EXPORTS_RUNNING; i++) {
        (void)snprintf(name, sizeof name, "run-%d", i);
        OK(h->w, want(h, name, &waiters[i], &waits[i]));
    }
    assert_int_equal(want(h, "more", &waiters[EXPORTS_RUNNING], &waits[EXPORTS_RUNNING]),
                     -ERR_TOO_MANY);
    OK(h->w, want(h, "run-0", &waiters[EXPORTS_RUNNING], &waits[EXPORTS_RUNNING])); /* runs */
    while (!exports_is_idle(h->api.exports))
        fake_host_end(child(h), 70, 0);
    for (int i = 0; i <= EXPORTS_KEPT; i++) { /* one too many: the oldest goes */
        (void)snprintf(name, sizeof name, "kept-%d", i);
        OK(h->w, want(h, name, &waiters[0], &waits[0]));
        make(h, name);
        fake_host_end(child(h), 0, 0);
    }
    for (int i = 0; i <= EXPORTS_KEPT; i++) {
        (void)snprintf(name, sizeof name, "kept-%d", i);
        assert_int_equal(there(h, name), i > 0);
    }
}

/* The folder is empty at a start; a child that still runs is killed at the end. */
static void test_start_and_end(void **state)
{
    struct http_world *h = *state;
    struct waiter waiter;
    struct exports_wait *wait;
    struct exports *second = NULL;
    make(h, "old");
    assert_true(there(h, "old"));
    for (int64_t n = 1;; n++) {
        mem_fault_after(n);
        int rc = exports_new(&h->api, &second, &h->w->err);
        assert_int_equal(mem_fault_after(0), rc != 0);
        if (rc == 0)
            break;
        assert_int_equal(rc, -ERR_NOMEM);
    }
    assert_false(there(h, "old"));
    struct exports *first = h->api.exports;
    h->api.exports = second;
    OK(h->w, want(h, "a", &waiter, &wait));
    struct host_process *left = child(h);
    exports_forget(wait);
    exports_free(second);
    assert_int_equal(left->last_signal, SIGKILL);
    assert_true(left->forgotten);
    exports_free(NULL);
    h->api.exports = first;
}

static void test_allocation_failures(void **state)
{
    struct http_world *h = *state;
    struct waiter waiter;
    struct exports_wait *wait = NULL;
    int rc = -ERR_NOMEM;
    for (int64_t n = 1; rc == -ERR_NOMEM; n++) {
        int64_t live = mem_live();
        mem_fault_after(n);
        rc = want(h, "a", &waiter, &wait);
        mem_fault_after(0);
        if (rc != 0)
            assert_int_equal(mem_live(), live);
        assert_true(n < 100);
    }
    assert_int_equal(rc, 0);
    fake_host_end(child(h), 70, 0);
    assert_int_equal(waiter.calls, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        HTTP_TEST(test_many_wait_for_one),
        HTTP_TEST(test_child_fails),
        HTTP_TEST(test_limits),
        HTTP_TEST(test_start_and_end),
        HTTP_TEST(test_allocation_failures),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
