/* fuzz: what the fuzz targets share. A target is tests/fuzz/fuzz_<noun>.c with
 * LLVMFuzzerTestOneInput(): it takes any bytes to one parser of outside bytes and holds what comes
 * out against the parser's header with must(): what is refused says why, what is taken survives
 * being printed and read again, no block of memory is left.
 *
 * The same file is two programs: with replay.c a test of the normal suite (the corpus, and seeded
 * mutations of it), with libFuzzer (preset `fuzz`) what run.sh runs. An input that made a target
 * fail goes into tests/fuzz/corpus/<noun>/ once the fault is mended. */
#pragma once
#include "common/err.h"
#include "common/json.h"

#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerInitialize(int *argc, char ***argv); /* called by libFuzzer once, before all inputs */

/* Inputs that a target's parser took. Targets count it up; replay.c holds the files of the corpus
 * called good* to it, so that a format that moves on does not leave the corpus behind unseen. */
extern size_t fuzz_taken;

/* Path of a file in memory with these bytes, until the next call. */
const char *fuzz_file(const void *bytes, size_t size);
/* A folder of this process in TMPDIR, removed with all in it at exit. libFuzzer leaves without
 * that; run.sh removes the folder then. */
const char *fuzz_folder(void);
/* Path of a file in it, until the next call; it is there only if someone wrote it. */
const char *fuzz_path(const char *name);
void fuzz_put(const char *name, const void *bytes, size_t size); /* writes such a file */

/* rc is an error that carries its own code and one line of UTF-8. */
void fuzz_refused(int rc, const struct err *err);
/* The value as compact JSON; caller mem_free()s. */
char *fuzz_print(const json_t *value);
/* Printed and read again, the value is the same; so is what is printed then. */
void fuzz_json_survives(const json_t *value);
