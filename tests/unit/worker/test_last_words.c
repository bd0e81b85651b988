/* last_words: a dying process leaves one sentence, the first cause, in its file; signals and broken
 * assertions included. Each case dies in a forked child. */
#include "worker/last_words.h"

#include "common/buf.h"
#include "common/io.h"
#include "common/limits.h"
#include "common/must.h"
#include "tests/lib/folder.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void die_of_memory(void)
{
    (void)raise(SIGSEGV);
}

static void die_of_must(void)
{
    must(folder[0] == '\1');
}

static void die_talking(void)
{
    last_words_say("the first cause");
    last_words_say("a consequence");
    (void)raise(SIGBUS);
}

/* Runs `die` as rank 3 in step 12; the last words it left. */
static void words_of(void (*die)(void), struct buf *words, int *status)
{
    (void)fflush(NULL);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        last_words_install(folder, 3);
        last_words_context(12, WIRE_PHASE_BACKWARD);
        die();
        _exit(0);
    }
    assert_int_equal(waitpid(pid, status, 0), pid);
    char path[128];
    struct err err = {0};
    (void)snprintf(path, sizeof path, "%s/last-words-3", folder);
    assert_int_equal(io_read_file(path, LIMIT_LAST_WORDS_BYTES, words, &err), 0);
    assert_int_equal(words->data[words->length - 1], '\n');
    assert_null(memchr(words->data, '\n', words->length - 1));
}

static void test_signal(void **state)
{
    struct buf words;
    int status = 0;
    buf_init(&words, LIMIT_LAST_WORDS_BYTES);
    words_of(die_of_memory, &words, &status);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGSEGV);
    assert_string_equal(words.data,
                        "died of SIGSEGV (invalid memory access) in step 12, backward\n");
    buf_done(&words);
}

static void test_must(void **state)
{
    struct buf words;
    int status = 0;
    buf_init(&words, LIMIT_LAST_WORDS_BYTES);
    words_of(die_of_must, &words, &status);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGABRT);
    assert_non_null(strstr(words.data, "test_last_words.c"));
    assert_non_null(strstr(words.data, "folder[0]"));
    buf_done(&words);
}

static void test_first_cause(void **state)
{
    struct buf words;
    int status = 0;
    buf_init(&words, LIMIT_LAST_WORDS_BYTES);
    words_of(die_talking, &words, &status);
    assert_true(WIFSIGNALED(status));
    assert_string_equal(words.data, "the first cause\n");
    buf_done(&words);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FOLDER_TEST(test_signal),
        FOLDER_TEST(test_must),
        FOLDER_TEST(test_first_cause),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
