/* stub_rank: the rank that the keeper's tests start: executed as `--rank R --attempt-dir DIR`, it
 * does what DIR/stub-R says, a word after the other; a number is its exit status. */
#pragma once
#include "common/clock.h"
#include "common/io.h"
#include "common/wire.h"
#include "worker/coll_record.h"

#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

enum { NOISE_BYTES = 1000000 }; /* what "noise" prints */

static int open_descriptors(void)
{
    int count = 0;
    DIR *list = opendir("/proc/self/fd");
    while (list != NULL && readdir(list) != NULL)
        count++;
    (void)closedir(list);
    return count;
}

static void stub_leave_words(const char *attempt_dir, int rank)
{
    char path[128];
    struct err err;
    (void)snprintf(path, sizeof path, "%s/last-words-%d", attempt_dir, rank);
    static const char words[] = "step 7: loss is \xc3\xbc\xff\n";
    (void)io_write_file(path, words, strlen(words), 0600, &err);
}

static int stub_check_inheritance(void)
{
    sigset_t mask;
    int death = 0;
    if (open_descriptors() != 2 + 3 + 1) /* ".", "..", 0-2, the list itself */
        return 21;
    if (sigprocmask(SIG_SETMASK, NULL, &mask) != 0 || sigismember(&mask, SIGTERM) != 0)
        return 22;
    if (prctl(PR_GET_PDEATHSIG, &death) != 0 || death != SIGKILL)
        return 23;
    if (getenv("ITHACA_TEST_STRAY") != NULL || getenv("PATH") == NULL)
        return 24;
    if (strcmp(getenv("OMP_NUM_THREADS"), "3") != 0 || getenv("NCCL_TEST_KEPT") == NULL)
        return 25;
    if (strcmp(getenv("OMP_WAIT_POLICY"), "passive") != 0)
        return 26;
    return getsid(0) == getppid() ? 0 : 27;
}

static void stub_say(const char *line)
{
    (void)puts(line);
    (void)fflush(stdout);
}

/* A record that says step 41. */
static void stub_leave_place(const char *attempt_dir, int rank)
{
    struct coll_record *record = NULL;
    struct err err;
    if (coll_record_open(attempt_dir, rank, &record, &err) == 0)
        coll_record_phase(record, 41, WIRE_PHASE_OPTIMIZER);
}

/* Until ranks 1 and 2 have said something. */
static void stub_await_others(const char *attempt_dir)
{
    char path[128];
    struct err err;
    for (int rank = 1; rank <= 2; rank++) {
        int64_t bytes = 0;
        (void)snprintf(path, sizeof path, "%s/rank-%d.log", attempt_dir, rank);
        while (io_file_size(path, &bytes, &err) != 0 || bytes == 0)
            clock_sleep_ms(5);
    }
}

/* A family that outlives the rank: one in a session of its own, deaf, with a child. */
static void stub_start_family(void)
{
    if (fork() == 0) {
        (void)setsid();
        (void)signal(SIGTERM, SIG_IGN);
        (void)fork();
        clock_sleep_ms(60000);
        _exit(0);
    }
    clock_sleep_ms(100); /* it turns deaf */
}

static void stub_print_noise(void)
{
    for (int line = 0; line < NOISE_BYTES / 10; line++)
        (void)printf("%09d\n", line);
    (void)fflush(stdout);
}

static int stub_main(int rank, const char *attempt_dir)
{
    char path[128], word[32];
    (void)snprintf(path, sizeof path, "%s/stub-%d", attempt_dir, rank);
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return 20;
    while (fscanf(file, "%31s", word) == 1) {
        if (strcmp(word, "inherit") == 0) {
            (void)fclose(file);
            return stub_check_inheritance();
        }
        if (strcmp(word, "words") == 0)
            stub_leave_words(attempt_dir, rank);
        else if (strcmp(word, "place") == 0)
            stub_leave_place(attempt_dir, rank);
        else if (strcmp(word, "await") == 0)
            stub_await_others(attempt_dir);
        else if (strcmp(word, "say") == 0)
            stub_say("is there");
        else if (strcmp(word, "deaf") == 0)
            (void)signal(SIGTERM, SIG_IGN);
        else if (strcmp(word, "sleep") == 0)
            clock_sleep_ms(60000);
        else if (strcmp(word, "nap") == 0)
            clock_sleep_ms(100);
        else if (strcmp(word, "family") == 0)
            stub_start_family();
        else if (strcmp(word, "noise") == 0)
            stub_print_noise();
        else if (strcmp(word, "kill") == 0)
            (void)raise(SIGKILL);
        else if (strcmp(word, "stop") == 0)
            (void)raise(SIGSTOP);
        else
            _exit((int)strtol(word, NULL, 10));
    }
    return 20;
}
