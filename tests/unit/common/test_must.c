/* must: what holds costs nothing and is looked at once; what does not ends the process with a
 * sentence, to stderr and to the hook. */
#include "common/must.h"
#include "tests/lib/cmocka.h"

#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static int looked;

static int look(int answer)
{
    looked++;
    return answer;
}

static void test_holds(void **state)
{
    must(look(1) == 1);
    must(look(2));
    assert_int_equal(looked, 2);
    if (looked == 2)
        must(looked > 1); /* one statement, also without braces */
    else
        fail();
}

static void words(const char *sentence)
{
    (void)!write(STDERR_FILENO, "hook: ", 6);
    (void)!write(STDERR_FILENO, sentence, strlen(sentence));
}

/* What a child that fails a must() prints. */
static void dying(void (*hook)(const char *), char *text, size_t size)
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        (void)setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
        (void)signal(SIGABRT, SIG_DFL);
        (void)dup2(ends[1], STDERR_FILENO);
        must_last_words = hook;
        must(look(0) == 17);
        _exit(0);
    }
    (void)close(ends[1]);
    size_t used = 0;
    for (ssize_t got; (got = read(ends[0], text + used, size - 1 - used)) > 0;)
        used += (size_t)got;
    text[used] = '\0';
    (void)close(ends[0]);
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGABRT);
}

static void test_fails(void **state)
{
    char text[2048];
    dying(NULL, text, sizeof text);
    assert_non_null(strstr(text, "test_must.c:"));
    assert_non_null(strstr(text, "must(look(0) == 17) failed\n"));
    assert_null(strstr(text, "hook: "));
    dying(words, text, sizeof text);
    const char *hook = strstr(text, "hook: ");
    assert_non_null(hook);
    assert_non_null(strstr(hook, "must(look(0) == 17) failed\n"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_holds), cmocka_unit_test(test_fails)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
