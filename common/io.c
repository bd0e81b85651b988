/* io: see io.h. A temporary file lies beside its target, so that the rename never crosses a
 * filesystem. */
#include "common/io.h"

#include "common/limits.h"
#include "common/mem.h"
#include "common/must.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

static atomic_int_least64_t io_fault_in; /* > 0: counts down, failing at 1 */

bool io_fault_after(int64_t calls)
{
    return atomic_exchange(&io_fault_in, calls) <= 0;
}

static bool io_should_fail(void)
{
    if (atomic_load_explicit(&io_fault_in, memory_order_relaxed) <= 0 ||
        atomic_fetch_sub(&io_fault_in, 1) != 1)
        return false;
    errno = ENOSPC;
    return true;
}

static int io_sync(int fd)
{
    return io_should_fail() ? -1 : fsync(fd);
}

static int io_rename(const char *from, const char *to, unsigned flags)
{
    return io_should_fail() ? -1 : renameat2(AT_FDCWD, from, AT_FDCWD, to, flags);
}

enum { IO_NAMES_TRIED = 1000 }; /* of temporary files that others left behind */

int io_write_full(int fd, const void *bytes, size_t length, struct err *err)
{
    const char *cursor = bytes;
    if (io_should_fail())
        return err_set_errno(err, errno, "write");
    while (length > 0) {
        ssize_t wrote = write(fd, cursor, length);
        if (wrote < 0 && errno == EINTR)
            continue;
        if (wrote < 0)
            return err_set_errno(err, errno, "write");
        cursor += wrote;
        length -= (size_t)wrote;
    }
    return 0;
}

int io_read_full(int fd, void *bytes, size_t length, struct err *err)
{
    char *cursor = bytes;
    while (length > 0) {
        ssize_t got = read(fd, cursor, length);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return err_set_errno(err, errno, "read");
        if (got == 0)
            return err_set(err, ERR_IO, "read: the file ends %zu bytes early", length);
        cursor += got;
        length -= (size_t)got;
    }
    return 0;
}

int io_pread_full(int fd, void *bytes, size_t length, int64_t offset, struct err *err)
{
    char *cursor = bytes;
    while (length > 0) {
        ssize_t got = pread(fd, cursor, length, (off_t)offset);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return err_set_errno(err, errno, "read");
        if (got == 0)
            return err_set(err, ERR_IO, "read: the file ends %zu bytes early", length);
        cursor += got;
        offset += got;
        length -= (size_t)got;
    }
    return 0;
}

static void io_close(int *fd)
{
    if (*fd >= 0)
        (void)close(*fd); /* nothing was written through it, or fsync has already spoken */
    *fd = -1;
}

int io_read_file(const char *path, size_t max_bytes, struct buf *out, struct err *err)
{
    CLEANUP(io_close) int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return err_set_errno(err, errno, "%s", path);
    size_t total = 0;
    for (;;) {
        char chunk[16384];
        ssize_t got = read(fd, chunk, sizeof chunk);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return err_set_errno(err, errno, "%s", path);
        if (got == 0)
            break;
        total += (size_t)got;
        if (total > max_bytes)
            return err_set(err, ERR_TOO_LARGE, "%s: more than %zu bytes", path, max_bytes);
        buf_append(out, chunk, (size_t)got);
    }
    return buf_error(out, err);
}

int io_read_secret(const char *path, mode_t refused, size_t max_bytes, struct buf *out,
                   struct err *err)
{
    struct stat info;
    if (stat(path, &info) == 0 && (info.st_mode & refused) != 0)
        return err_set(err, ERR_SETTING, "%s: others may read it; run chmod 600 on it", path);
    return io_read_file(path, max_bytes, out, err);
}

static int io_sync_parent(const char *path, struct err *err)
{
    CLEANUP(mem_free_ptr) char *folder = mem_strdup(path);
    if (folder == NULL)
        return mem_fail(err, strlen(path), "a path");
    char *slash = strrchr(folder, '/');
    if (slash == NULL)
        return io_fsync_dir(".", err);
    slash[slash == folder ? 1 : 0] = '\0';
    return io_fsync_dir(folder, err);
}

int io_fsync_dir(const char *path, struct err *err)
{
    CLEANUP(io_close) int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 || io_sync(fd) != 0)
        return err_set_errno(err, errno, "%s: sync folder", path);
    return 0;
}

/* Opens a temporary file of a new name; file->temp_path only names one that is ours. */
static int io_file_open(struct io_file *file, mode_t mode, struct err *err)
{
    static atomic_uint counter;
    for (int tries = 0;; tries++) {
        CLEANUP(mem_free_ptr)
        char *name =
            mem_printf("%s.tmp-%ld-%u", file->path, (long)getpid(), atomic_fetch_add(&counter, 1));
        if (name == NULL)
            return mem_fail(err, strlen(file->path), "a path");
        file->fd = open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
        /* In a container a killed process leaves files that the next one, of the same pid, meets.
         */
        if (file->fd < 0 && (errno != EEXIST || tries == IO_NAMES_TRIED))
            return err_set_errno(err, errno, "%s", name);
        if (file->fd >= 0) {
            file->temp_path = name;
            name = NULL;
            return 0;
        }
    }
}

int io_file_create(struct io_file *file, const char *path, mode_t mode, struct err *err)
{
    *file = (struct io_file){.fd = -1};
    file->path = mem_strdup(path);
    int rc =
        file->path == NULL ? mem_fail(err, strlen(path), "a path") : io_file_open(file, mode, err);
    if (rc != 0)
        io_file_abort(file);
    return rc;
}

int io_file_commit(struct io_file *file, struct err *err)
{
    must(file->fd >= 0);
    int rc = 0;
    if (!file->scratch && io_sync(file->fd) != 0)
        rc = err_set_errno(err, errno, "%s: sync", file->temp_path);
    else if (io_rename(file->temp_path, file->path, 0) != 0)
        rc = err_set_errno(err, errno, "%s: rename", file->path);
    else {
        mem_free(file->temp_path); /* renamed: abort has nothing to remove */
        file->temp_path = NULL;
        rc = file->scratch ? 0 : io_sync_parent(file->path, err);
    }
    io_file_abort(file);
    return rc;
}

void io_file_abort(struct io_file *file)
{
    io_close(&file->fd);
    if (file->temp_path != NULL)
        (void)unlink(file->temp_path); /* may be gone already */
    mem_free(file->temp_path);
    mem_free(file->path);
    *file = (struct io_file){.fd = -1};
}

static int io_write_whole(const char *path, const void *bytes, size_t length, mode_t mode,
                          bool scratch, struct err *err)
{
    CLEANUP(io_file_abort) struct io_file file;
    TRY(io_file_create(&file, path, mode, err));
    file.scratch = scratch;
    int rc = io_write_full(file.fd, bytes, length, err);
    if (rc != 0)
        return err_wrap(err, rc, "%s: ", path);
    return io_file_commit(&file, err);
}

int io_write_file(const char *path, const void *bytes, size_t length, mode_t mode, struct err *err)
{
    return io_write_whole(path, bytes, length, mode, false, err);
}

int io_write_scratch(const char *path, const void *bytes, size_t length, mode_t mode,
                     struct err *err)
{
    return io_write_whole(path, bytes, length, mode, true, err);
}

int io_make_dirs(const char *path, mode_t mode, struct err *err)
{
    CLEANUP(mem_free_ptr) char *partial = mem_strdup(path);
    if (partial == NULL)
        return mem_fail(err, strlen(path), "a path");
    for (char *slash = strchr(partial + 1, '/');; slash = strchr(slash + 1, '/')) {
        if (slash != NULL)
            *slash = '\0';
        if (mkdir(partial, mode) != 0 && errno != EEXIST)
            return err_set_errno(err, errno, "%s: create folder", partial);
        if (slash == NULL)
            break;
        *slash = '/';
    }
    struct stat info;
    if (stat(path, &info) != 0)
        return err_set_errno(err, errno, "%s", path);
    if (!S_ISDIR(info.st_mode))
        return err_set(err, ERR_IO, "%s: exists and is not a folder", path);
    return 0;
}

/* A folder's list; NULL with errno. A link is none. */
static DIR *io_list_at(int parent, const char *name)
{
    int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *folder = fd >= 0 ? fdopendir(fd) : NULL;
    if (folder == NULL) {
        int errnum = errno;
        io_close(&fd);
        errno = errnum;
    }
    return folder;
}

/* The next name in it; NULL at its end. */
static const char *io_list_next(DIR *folder)
{
    const struct dirent *entry;
    do
        entry = readdir(folder);
    while (entry != NULL && (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0));
    return entry != NULL ? entry->d_name : NULL;
}

static int io_remove_at(int parent, const char *name, struct err *err)
{
    if (unlinkat(parent, name, 0) == 0 || errno == ENOENT)
        return 0;
    if (errno != EISDIR && errno != EPERM)
        return err_set_errno(err, errno, "%s: remove", name);
    DIR *folder = io_list_at(parent, name);
    if (folder == NULL)
        return err_set_errno(err, errno, "%s: list to remove", name);
    int rc = 0;
    const char *entry;
    while (rc == 0 && (entry = io_list_next(folder)) != NULL)
        rc = io_remove_at(dirfd(folder), entry, err);
    (void)closedir(folder); /* read only */
    if (rc == 0 && unlinkat(parent, name, AT_REMOVEDIR) != 0 && errno != ENOENT)
        rc = err_set_errno(err, errno, "%s: remove folder", name);
    return rc;
}

int io_remove_tree(const char *path, struct err *err)
{
    return io_remove_at(AT_FDCWD, path, err);
}

int io_replace_dir(const char *temp, const char *path, struct err *err)
{
    bool exchanged = false;
    int rc = io_rename(temp, path, 0);
    if (rc != 0 && (errno == EEXIST || errno == ENOTEMPTY)) {
        rc = io_rename(temp, path, RENAME_EXCHANGE);
        exchanged = rc == 0;
        if (rc != 0 && errno == EINVAL) { /* NFS and some others cannot exchange */
            TRY(io_remove_tree(path, err));
            rc = io_rename(temp, path, 0);
        }
    }
    if (rc != 0)
        return err_set_errno(err, errno, "%s: rename", path);
    TRY(io_sync_parent(path, err));
    struct err ignored; /* an old folder that stays behind is only in the way */
    if (exchanged)
        (void)io_remove_tree(temp, &ignored);
    return 0;
}

int io_check_spare(struct err *err)
{
    enum { SPARE = 8 }; /* a spawn takes three, a report one */
    int fds[SPARE], count = 0, errnum = 0;
    while (count < SPARE && errnum == 0) {
        fds[count] = open("/dev/null", O_RDONLY | O_CLOEXEC);
        if (fds[count] < 0)
            errnum = errno;
        else
            count++;
    }
    while (count > 0)
        (void)close(fds[--count]); /* nothing was written */
    return errnum == 0 ? 0 : err_set_errno(err, errnum, "no file can be opened");
}

bool io_exists(const char *path)
{
    return access(path, F_OK) == 0;
}

int io_file_size(const char *path, int64_t *ret_bytes, struct err *err)
{
    struct stat info;
    if (stat(path, &info) != 0)
        return err_set_errno(err, errno, "%s", path);
    *ret_bytes = info.st_size;
    return 0;
}

char *io_join(const char *folder, const char *name)
{
    return mem_printf("%s/%s", folder, name);
}

static void io_print_hash(XXH128_hash_t hash, char ret_hex[IO_HASH_BYTES])
{
    (void)snprintf(ret_hex, IO_HASH_BYTES, "%016llx%016llx", (unsigned long long)hash.high64,
                   (unsigned long long)hash.low64);
}

void io_hash(const void *bytes, size_t length, char ret_hex[IO_HASH_BYTES])
{
    io_print_hash(XXH3_128bits(bytes, length), ret_hex);
}

struct io_hasher {
    XXH3_state_t state;
};

struct io_hasher *io_hasher_new(void)
{
    struct io_hasher *hasher = mem_aligned(_Alignof(struct io_hasher), sizeof *hasher);
    if (hasher != NULL)
        (void)XXH3_128bits_reset(&hasher->state); /* fails only for NULL */
    return hasher;
}

void io_hasher_add(struct io_hasher *hasher, const void *bytes, size_t length)
{
    (void)XXH3_128bits_update(&hasher->state, bytes, length); /* fails only for NULL */
}

void io_hasher_hex(const struct io_hasher *hasher, char ret_hex[IO_HASH_BYTES])
{
    io_print_hash(XXH3_128bits_digest(&hasher->state), ret_hex);
}

void io_hasher_free(struct io_hasher *hasher)
{
    mem_free(hasher);
}

uint64_t io_hash64(const void *bytes, size_t length)
{
    return XXH3_64bits(bytes, length);
}
