/* fuzz: files for parsers that take a path, and the checks that all targets make. */
#include "tests/fuzz/fuzz.h"

#include "common/io.h"
#include "common/limits.h"
#include "common/mem.h"
#include "common/must.h"
#include "common/utf8.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

size_t fuzz_taken;

static char fuzz_folder_path[512];

/* The soft limit of CPU time (ulimit -t) is the end of the run: libFuzzer leaves with its figures
 * and status 0 on SIGUSR1. */
static void fuzz_time_is_up(int signal_number)
{
    (void)raise(SIGUSR1);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    must(signal(SIGXCPU, fuzz_time_is_up) != SIG_ERR);
    return 0;
}

static void fuzz_overwrite(int fd, const void *bytes, size_t size)
{
    struct err err;
    must(ftruncate(fd, 0) == 0 && lseek(fd, 0, SEEK_SET) == 0);
    must(io_write_full(fd, bytes, size, &err) == 0);
}

const char *fuzz_file(const void *bytes, size_t size)
{
    static int fd = -1;
    static char path[32];
    if (fd < 0) {
        fd = memfd_create("fuzz", MFD_CLOEXEC);
        must(fd >= 0);
        (void)snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    }
    fuzz_overwrite(fd, bytes, size);
    return path;
}

static void fuzz_folder_remove(void)
{
    struct err err; /* what cannot be removed stays */
    (void)io_remove_tree(fuzz_folder_path, &err);
}

const char *fuzz_folder(void)
{
    if (fuzz_folder_path[0] != '\0')
        return fuzz_folder_path;
    /* In memory where that is possible: targets write and sync many small files. */
    const char *parent = getenv("TMPDIR");
    if (parent == NULL)
        parent = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
    int length =
        snprintf(fuzz_folder_path, sizeof fuzz_folder_path, "%s/ithaca-fuzz-XXXXXX", parent);
    must(length > 0 && (size_t)length < sizeof fuzz_folder_path);
    must(mkdtemp(fuzz_folder_path) != NULL);
    must(atexit(fuzz_folder_remove) == 0);
    return fuzz_folder_path;
}

const char *fuzz_path(const char *name)
{
    static char path[sizeof fuzz_folder_path + 64];
    int length = snprintf(path, sizeof path, "%s/%s", fuzz_folder(), name);
    must(length > 0 && (size_t)length < sizeof path);
    return path;
}

void fuzz_put(const char *name, const void *bytes, size_t size)
{
    FILE *file = fopen(fuzz_path(name), "we");
    must(file != NULL);
    must(fwrite(bytes, 1, size, file) == size);
    must(fclose(file) == 0);
}

void fuzz_refused(int rc, const struct err *err)
{
    must(rc < 0 && rc > -ERR_COUNT);
    must(err->code == (enum err_code) - rc);
    must(err->text[0] != '\0' && strlen(err->text) < sizeof err->text);
    must(utf8_valid(err->text, strlen(err->text)));
    must(utf8_valid(err->field, strlen(err->field)));
}

char *fuzz_print(const json_t *value)
{
    struct err err;
    struct buf text;
    buf_init(&text, 4 * (size_t)LIMIT_JSON_BODY_BYTES);
    must(json_print(value, &text, &err) == 0);
    char *printed = buf_steal(&text);
    must(printed != NULL);
    return printed;
}

void fuzz_json_survives(const json_t *value)
{
    struct err err;
    CLEANUP(json_unref) json_t *again = NULL;
    CLEANUP(mem_free_ptr) char *first = fuzz_print(value);
    must(json_parse(first, strlen(first), "print", &again, &err) == 0);
    must(json_equal(value, again));
    CLEANUP(mem_free_ptr) char *second = fuzz_print(again);
    must(strcmp(first, second) == 0);
}
