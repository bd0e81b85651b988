/* proc_stat: a process whose name tries to look like fields; children; processes that are gone. */
#include "common/clock.h"
#include "common/proc_stat.h"
#include "tests/lib/cmocka.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static void test_name_with_parentheses(void **state)
{
    struct proc_stat plain, odd;
    assert_int_equal(proc_stat_read(getpid(), &plain), 0);
    assert_int_equal(prctl(PR_SET_NAME, ") R 1 1 (x"), 0);
    assert_int_equal(proc_stat_read(getpid(), &odd), 0);
    assert_int_equal(odd.parent, getppid());
    assert_int_equal(odd.session, getsid(0));
    assert_int_equal(odd.state, 'R');
    assert_true(odd.start_time > 0 && odd.start_time == plain.start_time);
}

static void test_children(void **state)
{
    struct proc_stat stat;
    assert_int_equal(proc_stat_signal_children(getpid(), 0), 0);
    pid_t child = fork();
    if (child == 0) {
        clock_sleep_ms(60000);
        _exit(0);
    }
    assert_int_equal(proc_stat_signal_children(getpid(), 0), 1);
    assert_int_equal(proc_stat_signal_children(getpid(), SIGKILL), 1);
    siginfo_t info;
    assert_int_equal(waitid(P_PID, (id_t)child, &info, WEXITED | WNOWAIT), 0);
    assert_int_equal(proc_stat_read(child, &stat), 0);
    assert_int_equal(stat.state, 'Z');
    assert_int_equal(proc_stat_signal_children(getpid(), 0), 0); /* a zombie is not living */
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    assert_int_equal(proc_stat_read(child, &stat), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_name_with_parentheses),
        cmocka_unit_test(test_children),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
