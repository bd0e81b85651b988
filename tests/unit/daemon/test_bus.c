/* bus: notes reach every listener once, and listeners may come and go while they are called.
 * Removal in the middle of a publish: tests/unit/daemon/test_host_posix.c. */
#include "daemon/bus.h"
#include "tests/lib/cmocka.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

struct ear {
    struct bus_listener listener;
    struct bus *bus;
    struct ear *adds; /* listens from within its first call */
    int calls;
    struct bus_note note;
};

static void hear(void *context, const struct bus_note *note)
{
    struct ear *ear = context;
    ear->note = *note;
    if (ear->calls++ == 0 && ear->adds != NULL)
        bus_listen(ear->bus, &ear->adds->listener);
}

static void ear_init(struct ear *ear, struct bus *bus)
{
    *ear = (struct ear){.bus = bus};
    ear->listener = (struct bus_listener){.called = hear, .context = ear};
}

static void test_notes(void **state)
{
    struct bus bus = {.first = NULL};
    struct ear a, b;
    bus_publish(&bus, &(struct bus_note){.job_id = "nobody"}); /* nobody listens */
    ear_init(&a, &bus);
    ear_init(&b, &bus);
    bus_unlisten(&bus, &a.listener); /* was not listening */
    bus_listen(&bus, &a.listener);
    bus_listen(&bus, &b.listener);
    bus_publish(&bus, &(struct bus_note){.job_id = "j", .event_row = 3, .point_row = 9});
    assert_int_equal(a.calls, 1);
    assert_int_equal(b.calls, 1);
    assert_string_equal(a.note.job_id, "j");
    assert_int_equal(a.note.event_row, 3);
    assert_int_equal(a.note.point_row, 9);
    bus_unlisten(&bus, &b.listener);
    bus_unlisten(&bus, &b.listener); /* again is fine */
    bus_publish(&bus, &(struct bus_note){.job_id = "j"});
    assert_int_equal(a.calls, 2);
    assert_int_equal(b.calls, 1);
    bus_unlisten(&bus, &a.listener);
    assert_null(bus.first);
    bus_listen(&bus, &b.listener); /* may come back */
    bus_publish(&bus, &(struct bus_note){.job_id = "j"});
    assert_int_equal(b.calls, 2);
}

/* One that is added while a note is given out hears of the next. */
static void test_added_while_called(void **state)
{
    struct bus bus = {.first = NULL};
    struct ear a, b;
    ear_init(&a, &bus);
    ear_init(&b, &bus);
    a.adds = &b;
    bus_listen(&bus, &a.listener);
    bus_publish(&bus, &(struct bus_note){.job_id = "j"});
    assert_int_equal(a.calls, 1);
    assert_int_equal(b.calls, 0);
    bus_publish(&bus, &(struct bus_note){.job_id = "j"});
    assert_int_equal(a.calls, 2);
    assert_int_equal(b.calls, 1);
}

static void publish_again(void *context, const struct bus_note *note)
{
    bus_publish(context, note);
}

/* A note within a note would lose the place in the list: our own bug, and loud. */
static void test_nested_publish_ends_the_process(void **state)
{
    struct bus bus = {.first = NULL};
    struct bus_listener first = {.called = publish_again, .context = &bus}, second = first;
    bus_listen(&bus, &first);
    bus_listen(&bus, &second);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        (void)setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
        (void)signal(SIGABRT, SIG_DFL);
        (void)close(STDERR_FILENO);
        bus_publish(&bus, &(struct bus_note){.job_id = "j"});
        _exit(0);
    }
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGABRT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_notes),
        cmocka_unit_test(test_added_while_called),
        cmocka_unit_test(test_nested_publish_ends_the_process),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
