/* io: files. Everything opens CLOEXEC; whole files appear by temp + fsync + rename + fsync of the
 * folder, so a reader sees the old bytes or the new ones, never a torn file. */
#pragma once
#include "common/buf.h"
#include "common/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Reads a whole file of at most max_bytes into *out (appended); ERR_TOO_LARGE beyond. */
int io_read_file(const char *path, size_t max_bytes, struct buf *out, struct err *err);

/* The same of a file whose mode has none of the bits `refused` (077: its owner's alone); else
 * ERR_SETTING, which says so. */
int io_read_secret(const char *path, mode_t refused, size_t max_bytes, struct buf *out,
                   struct err *err);

/* Writes `path` atomically with the mode given. */
int io_write_file(const char *path, const void *bytes, size_t length, mode_t mode, struct err *err);
/* The same of a file that nobody wants after the machine was off, such as one for a child of ours:
 * it does not wait for the disk. */
int io_write_scratch(const char *path, const void *bytes, size_t length, mode_t mode,
                     struct err *err);

/* Full reads and writes: EINTR and short counts are handled. io_read_full fails with ERR_IO at end
 * of file. */
int io_write_full(int fd, const void *bytes, size_t length, struct err *err);
int io_read_full(int fd, void *bytes, size_t length, struct err *err);
int io_pread_full(int fd, void *bytes, size_t length, int64_t offset, struct err *err);

/* A file written in pieces that appears at `path` only by io_file_commit. */
struct io_file {
    int fd;          /* the temporary file, or -1 */
    char *path;      /* where it will appear */
    char *temp_path; /* where it is written: path + ".tmp-<pid>-<n>" */
    bool scratch;    /* the disk is not waited for */
};
int io_file_create(struct io_file *file, const char *path, mode_t mode, struct err *err);
int io_file_commit(struct io_file *file, struct err *err); /* fsync, rename, fsync folder */
void io_file_abort(struct io_file *file); /* removes the temporary; fine after commit */

int io_make_dirs(const char *path, mode_t mode,
                 struct err *err); /* mkdir -p; existing folders are kept */
int io_fsync_dir(const char *path, struct err *err);
int io_remove_tree(const char *path,
                   struct err *err); /* rm -r without following links; absent is fine */
/* Whether some files can be opened just now; else the shortage (err_is_shortage). Before steps that
 * would take a file that cannot be opened for one that is not there. */
int io_check_spare(struct err *err);
bool io_exists(const char *path);
int io_file_size(const char *path, int64_t *ret_bytes, struct err *err);

/* A finished folder `temp` appears at `path`, on the same disk; a folder already there is exchanged
 * for it and removed. At every moment one of the two is at `path`, whole (on filesystems
 * that can exchange; elsewhere the old one is removed first). */
int io_replace_dir(const char *temp, const char *path, struct err *err);

/* Fault injection for tests, as mem_fault_after(): the n-th write, sync or rename from now (1 = the
 * next) fails as on a full disk, once; 0 switches it off. Returns whether that of the call before
 * has failed. */
bool io_fault_after(int64_t calls);

/* What a folder that was cloned without Git LFS has in place of a large file: how it begins, and
 * the sentence for it. */
#define IO_LFS_START "version https://git-lfs.github.com/spec"
#define IO_LFS_POINTER "a Git LFS pointer, not the file itself; run git lfs pull in its folder"

/* "<a>/<b>", or ERR_NOMEM as NULL. */
char *io_join(const char *folder, const char *name);

/* 32 hex digits of XXH3-128 over the bytes, NUL-terminated. */
enum { IO_HASH_BYTES = 33 };
void io_hash(const void *bytes, size_t length, char ret_hex[IO_HASH_BYTES]);

/* The same over bytes that come in pieces. */
struct io_hasher;
struct io_hasher *io_hasher_new(void); /* NULL: no memory */
void io_hasher_add(struct io_hasher *hasher, const void *bytes, size_t length);
void io_hasher_hex(const struct io_hasher *hasher, char ret_hex[IO_HASH_BYTES]); /* so far */
void io_hasher_free(struct io_hasher *hasher);                                   /* NULL is fine */

uint64_t io_hash64(const void *bytes, size_t length); /* XXH3-64, for the ends of our own files */
