/* kernel_file: the small texts in which the kernel tells of itself, under /proc and /sys.
 *
 *     char text[KERNEL_FILE_BYTES];
 *     kernel_file_read("/proc", "meminfo", text);
 *     int64_t total_kib = kernel_file_field(text, "MemTotal");
 *
 * What cannot be read is "", and a number in it is -1. Allocates nothing. */
#pragma once
#include <limits.h>
#include <stdint.h>

enum {
    KERNEL_FILE_BYTES = 16 << 10 /* they have a few KiB; what lies behind is not needed */
};

/* <folder>/<name>. */
void kernel_file_read(const char *folder, const char *name, char ret_text[KERNEL_FILE_BYTES]);
/* A whole number at the start of a text; -1: none ("max"). One beyond counting is INT64_MAX. */
int64_t kernel_file_number(const char *text);
/* That of the line which begins with `key` and a space or colon; -1: none. */
int64_t kernel_file_field(const char *text, const char *key);

/* For tests: a folder that stands before every path from now on; "" for none. Kept by reference. */
void kernel_file_root(const char *root);
/* <root><folder>/<name>, of at most PATH_MAX; too long: "", which is no file. */
void kernel_file_path(const char *folder, const char *name, char ret_path[PATH_MAX]);
