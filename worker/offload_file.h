/* offload_file: the file that kept tensors go to (offload file): reads and writes of whole pieces,
 * several under way at once.
 *
 *     TRY(offload_file_open(path, bytes, &file, err));              its space is taken now
 *     TRY(offload_file_start(file, slot, OFFLOAD_FILE_WRITE, memory, offset, bytes, err));
 *     TRY(offload_file_wait(file, slot, err));                      the piece may be used again
 *
 * A slot has one piece under way at a time. Memory, offset and bytes are multiples of
 * MEM_FILE_ALIGN_BYTES. io_uring carries them, or plain calls where the kernel refuses it; reads
 * and writes go around the page cache (O_DIRECT) where the filesystem can. The file has a name only
 * while it is opened: it is gone with the process, however that ends, and one left by a crash
 * between these two moments is taken over by the next attempt. An error names the file, the place
 * and the bytes. */
#pragma once
#include "common/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { OFFLOAD_FILE_SLOTS = 4 };
enum offload_file_way { OFFLOAD_FILE_READ, OFFLOAD_FILE_WRITE };

struct offload_file;

/* ERR_NO_SPACE when there is not room for `bytes`. */
int offload_file_open(const char *path, int64_t bytes, struct offload_file **ret, struct err *err);
void offload_file_close(struct offload_file *file); /* NULL is fine; waits for what is under way */
/* How it is read and written, for the log: "io_uring, direct". */
const char *offload_file_how(const struct offload_file *file);

int offload_file_start(struct offload_file *file, int slot, enum offload_file_way way, void *memory,
                       int64_t offset, int64_t bytes, struct err *err);
int offload_file_wait(struct offload_file *file, int slot, struct err *err);

/* Fault injection for tests: the n-th piece from now (1 = the next) fails with this errno, once; 0
 * switches it off. And whether io_uring and O_DIRECT may be used from the next open on. */
void offload_file_fault_after(int64_t pieces, int number);
void offload_file_plain(bool plain);
