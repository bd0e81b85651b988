/* replay: runs a target without libFuzzer: every file of its corpus, then mutations of them.
 *
 *     fuzz_<noun> CORPUS_FOLDER
 *
 * The seed is printed, ITHACA_TEST_SEED=<n> repeats a run. Before an input is run it is written to
 * fuzz_<noun>.input in the current folder, which is removed at the end: after a failure it holds
 * the input that failed. Every input is a block of its own length, so that AddressSanitizer sees a
 * read beyond it. */
#include "common/io.h"
#include "common/mem.h"
#include "common/must.h"
#include "common/rng.h"
#include "tests/fuzz/fuzz.h"
#include "tests/lib/testing.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { INPUTS_MAX = 512, INPUT_BYTES = 1 << 16, MUTATIONS = 2000, EDITS_MAX = 4 };

struct input {
    uint8_t *bytes; /* (size) */
    size_t size;
    bool good; /* the file is called good*: the parser takes it */
};

static struct input inputs[INPUTS_MAX];
static size_t input_count;
static uint64_t draws;

/* Uniform in [0, bound). */
static size_t draw(size_t bound)
{
    return (size_t)rng_below(testing_seed(), RNG_STREAM_TEST, draws++, bound);
}

static void load(const char *folder)
{
    struct dirent **entries = NULL;
    int count = scandir(folder, &entries, NULL, alphasort);
    must(count > 0);
    for (int i = 0; i < count; i++) {
        char path[4096];
        struct err err;
        struct buf bytes;
        int length = snprintf(path, sizeof path, "%s/%s", folder, entries[i]->d_name);
        must(length > 0 && (size_t)length < sizeof path);
        bool hidden = entries[i]->d_name[0] == '.';
        bool good = strncmp(entries[i]->d_name, "good", 4) == 0;
        free(entries[i]);
        if (hidden)
            continue;
        buf_init(&bytes, INPUT_BYTES);
        must(io_read_file(path, INPUT_BYTES, &bytes, &err) == 0);
        must(input_count < INPUTS_MAX);
        inputs[input_count].good = good;
        inputs[input_count].size = bytes.length;
        inputs[input_count++].bytes = (uint8_t *)buf_steal(&bytes);
    }
    free(entries);
    must(input_count > 0);
}

static void run(int record, const uint8_t *bytes, size_t size)
{
    must(ftruncate(record, (off_t)size) == 0);
    must(pwrite(record, bytes, size, 0) == (ssize_t)size);
    uint8_t *exact = mem_new(1, size);
    must(exact != NULL);
    memcpy(exact, bytes, size);
    must(LLVMFuzzerTestOneInput(exact, size) == 0);
    mem_free(exact);
}

/* Makes room for `length` bytes at `at` (or as many as fit) and copies them there. */
static size_t insert(uint8_t *bytes, size_t size, size_t at, const void *from, size_t length)
{
    if (length > INPUT_BYTES - size)
        length = INPUT_BYTES - size;
    memmove(bytes + at + length, bytes + at, size - at);
    memcpy(bytes + at, from, length);
    return size + length;
}

/* What parsers of text and of numbers trip over. */
static const char *const words[] = {
    "\"", "{",    "}",    "[",       "]",        ",",    ":",        "\\",
    "-1", "0",    "1e-7", "1e999",   "4e18",     "null", "true",     "9223372036854775807",
    "/",  "\r\n", "%00",  "\\u0000", "\xff",     "\xc0", "\xed\xa0", "18446744073709551616",
    "..", "%2f",  "\t",   "\\ud800", "\xe2\x82", "\"\"", "[[[[[[",   "1.5",
};

static size_t mutate(uint8_t *bytes, size_t size)
{
    const struct input *other = &inputs[draw(input_count)];
    const char *word = words[draw(sizeof words / sizeof words[0])];
    size_t at = draw(size + 1);
    size_t length = size > at ? 1 + draw(size - at < 32 ? size - at : 32) : 0;
    uint8_t part[32];
    switch (draw(8)) {
    case 0:
        if (at < size)
            bytes[at] ^= (uint8_t)(1u << draw(8));
        return size;
    case 1:
        if (at < size)
            bytes[at] = (uint8_t)draw(256);
        return size;
    case 2: /* delete */
        memmove(bytes + at, bytes + at + length, size - at - length);
        return size - length;
    case 3: /* repeat a part elsewhere */
        memcpy(part, bytes + at, length);
        return insert(bytes, size, draw(size + 1), part, length);
    case 4: /* a part of another input */
        if (other->size == 0)
            return size;
        length = draw(other->size);
        return insert(bytes, size, at, other->bytes + length,
                      1 + draw(other->size - length < 64 ? other->size - length : 64));
    case 5:
        return insert(bytes, size, at, word, strlen(word));
    case 6: /* an extreme number in binary */
        memset(bytes + at, draw(2) ? 0xff : 0, length < 8 ? length : 8);
        return size;
    default:
        return draw(8) == 0 ? at : size; /* cut */
    }
}

int main(int argc, char **argv)
{
    must(argc == 2);
    const char *slash = strrchr(argv[0], '/');
    char path[256];
    (void)snprintf(path, sizeof path, "%s.input", slash != NULL ? slash + 1 : argv[0]);
    int record = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    must(record >= 0);
    load(argv[1]);
    printf("%zu inputs, %d mutations; an input that fails is left in %s\n", input_count, MUTATIONS,
           path);
    (void)testing_seed(); /* prints it */
    for (size_t i = 0; i < input_count; i++) {
        size_t before = fuzz_taken;
        run(record, inputs[i].bytes, inputs[i].size);
        must(!inputs[i].good || fuzz_taken > before);
    }
    must(fuzz_taken > 0);
    static uint8_t bytes[INPUT_BYTES];
    for (int i = 0; i < MUTATIONS; i++) {
        const struct input *from = &inputs[draw(input_count)];
        size_t size = from->size;
        memcpy(bytes, from->bytes, size);
        for (size_t edits = 1 + draw(EDITS_MAX); edits > 0; edits--)
            size = mutate(bytes, size);
        run(record, bytes, size);
    }
    for (size_t i = 0; i < input_count; i++)
        mem_free(inputs[i].bytes);
    (void)close(record);
    must(unlink(path) == 0);
    return 0;
}
