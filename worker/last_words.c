/* last_words: see last_words.h. The path is built beforehand; a handler only opens and writes. It
 * runs on its own stack, so that an overflowing stack can still speak. */
#include "worker/last_words.h"

#include "common/limits.h"
#include "common/must.h"

#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { LAST_WORDS_STACK_BYTES = 64 * 1024 };

static char last_words_path[LIMIT_PATH_BYTES];
static _Atomic uint64_t last_words_step;
static _Atomic uint32_t last_words_phase;
static atomic_flag last_words_said = ATOMIC_FLAG_INIT;
static char last_words_stack[LAST_WORDS_STACK_BYTES];

static const struct {
    int number;
    const char *name;
} last_words_signals[] = {
    {SIGSEGV, "SIGSEGV (invalid memory access)"},
    {SIGBUS, "SIGBUS (memory or file went away)"},
    {SIGFPE, "SIGFPE (arithmetic fault)"},
    {SIGILL, "SIGILL (illegal instruction)"},
    {SIGABRT, "SIGABRT (aborted)"},
};

void last_words_say(const char *sentence)
{
    if (atomic_flag_test_and_set(&last_words_said))
        return;
    int fd = STDERR_FILENO;
    if (last_words_path[0] != '\0')
        fd = open(last_words_path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0)
        return;
    size_t length = strnlen(sentence, LIMIT_LAST_WORDS_BYTES - 1);
    while (length > 0 && sentence[length - 1] == '\n')
        length--;
    (void)!write(fd, sentence, length); /* a dying process: nothing is left to do about it */
    (void)!write(fd, "\n", 1);
    if (fd != STDERR_FILENO)
        (void)close(fd);
}

void last_words_context(uint64_t step, enum wire_phase phase)
{
    atomic_store_explicit(&last_words_step, step, memory_order_relaxed);
    atomic_store_explicit(&last_words_phase, (uint32_t)phase, memory_order_relaxed);
}

/* Appends text; returns the new length. snprintf is not async-signal-safe. */
static size_t last_words_append(char *out, size_t length, size_t capacity, const char *text)
{
    while (*text != '\0' && length + 1 < capacity)
        out[length++] = *text++;
    out[length] = '\0';
    return length;
}

static size_t last_words_number(char *out, size_t length, size_t capacity, uint64_t number)
{
    char digits[24];
    size_t at = sizeof digits;
    digits[--at] = '\0';
    do {
        digits[--at] = (char)('0' + number % 10);
        number /= 10;
    } while (number > 0);
    return last_words_append(out, length, capacity, digits + at);
}

static void last_words_on_signal(int number)
{
    char text[256];
    size_t length = last_words_append(text, 0, sizeof text, "died of ");
    for (size_t i = 0; i < sizeof last_words_signals / sizeof last_words_signals[0]; i++)
        if (last_words_signals[i].number == number)
            length = last_words_append(text, length, sizeof text, last_words_signals[i].name);
    length = last_words_append(text, length, sizeof text, " in step ");
    length = last_words_number(text, length, sizeof text,
                               atomic_load_explicit(&last_words_step, memory_order_relaxed));
    length = last_words_append(text, length, sizeof text, ", ");
    (void)last_words_append(text, length, sizeof text,
                            wire_phase_name((enum wire_phase)atomic_load_explicit(
                                &last_words_phase, memory_order_relaxed)));
    last_words_say(text);
    (void)raise(number); /* SA_RESETHAND: the default action ends the process */
}

void last_words_install(const char *attempt_dir, uint32_t rank)
{
    last_words_path[0] = '\0';
    if (attempt_dir != NULL) {
        int length = snprintf(last_words_path, sizeof last_words_path, "%s/last-words-%u",
                              attempt_dir, rank);
        must(length > 0 && (size_t)length < sizeof last_words_path);
    }
    must_last_words = last_words_say;
    stack_t stack = {.ss_sp = last_words_stack, .ss_size = sizeof last_words_stack};
    (void)sigaltstack(&stack, NULL); /* without it only a stack overflow stays silent */
    struct sigaction action = {.sa_handler = last_words_on_signal,
                               .sa_flags = SA_ONSTACK | (int)SA_RESETHAND};
    for (size_t i = 0; i < sizeof last_words_signals / sizeof last_words_signals[0]; i++)
        (void)sigaction(last_words_signals[i].number, &action, NULL);
}
