/* dataset_cache: a key is a hash over a text of hashes and numbers. DATASET_CACHE_EDITION counts up
 * when the same input would give other tokens or another report.
 *
 * The lock of a key is one byte of the file <cache_dir>.lock, the byte that the key names: there is
 * nothing to clean up, and the kernel ends it with its process. */
#include "common/dataset_cache.h"

#include "common/dataset_source.h"
#include "common/json.h"
#include "common/limits.h"
#include "common/mem.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { DATASET_CACHE_EDITION = 3 };

static void cache_close(int *fd)
{
    if (*fd >= 0)
        (void)close(*fd); /* opened for reading */
}

/* Appends the hash of a file's bytes, or "-" where there is no such file. */
static int cache_hash_file(const char *path, struct buf *out, struct err *err)
{
    char hash[IO_HASH_BYTES];
    struct stat info;
    CLEANUP(cache_close) int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT) {
        buf_text(out, "-\n");
        return buf_error(out, err);
    }
    if (fd < 0 || fstat(fd, &info) != 0)
        return err_set_errno(err, errno, "%s", path);
    if (info.st_size == 0) {
        io_hash("", 0, hash);
    } else {
        void *map = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_SHARED, fd, 0);
        if (map == MAP_FAILED)
            return err_set_errno(err, errno, "%s: map", path);
        (void)madvise(map, (size_t)info.st_size, MADV_SEQUENTIAL); /* a hint */
        io_hash(map, (size_t)info.st_size, hash);
        (void)munmap(map, (size_t)info.st_size); /* our own mapping */
    }
    buf_printf(out, "%s\n", hash);
    return buf_error(out, err);
}

int dataset_cache_keys(const struct dataset_request *request, struct dataset_cache_keys *ret_keys,
                       struct err *err)
{
    static const char *const model_files[] = {"tokenizer.json", "tokenizer_config.json",
                                              "chat_template.jinja"};
    CLEANUP(buf_done) struct buf text;
    buf_init(&text, LIMIT_JSON_BODY_BYTES);
    buf_printf(&text, "%d %d %d %lld %zu %d\n", DATASET_CACHE_EDITION, (int)request->train_on,
               (int)request->chat_template, (long long)request->vocab, request->line_bytes_max,
               dataset_source_is_text(request));
    TRY(cache_hash_file(request->path, &text, err));
    for (size_t i = 0; i < sizeof model_files / sizeof model_files[0]; i++) {
        CLEANUP(mem_free_ptr) char *path = io_join(request->model_dir, model_files[i]);
        if (path == NULL)
            return mem_fail(err, LIMIT_PATH_BYTES, "a path");
        TRY(cache_hash_file(path, &text, err));
    }
    io_hash(buf_str(&text), text.length, ret_keys->whole);
    buf_printf(&text, "%lld %d\n", (long long)request->seq_len, (int)request->overlength);
    TRY(buf_error(&text, err));
    io_hash(buf_str(&text), text.length, ret_keys->exact);
    return 0;
}

int dataset_cache_lock(const char *cache_dir, const struct dataset_cache_keys *keys, bool wait,
                       int *ret_fd, struct err *err)
{
    CLEANUP(mem_free_ptr) char *path = mem_printf("%s.lock", cache_dir);
    char byte[16]; /* 60 bits of the key, an offset */
    if (path == NULL)
        return mem_fail(err, LIMIT_PATH_BYTES, "a path");
    memcpy(byte, keys->whole, sizeof byte - 1);
    byte[sizeof byte - 1] = '\0';
    struct flock lock = {
        .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = strtoll(byte, NULL, 16), .l_len = 1};
    CLEANUP(cache_close) int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0)
        return err_set_errno(err, errno, "%s", path);
    int rc;
    do
        rc = fcntl(fd, wait ? F_OFD_SETLKW : F_OFD_SETLK, &lock);
    while (rc != 0 && errno == EINTR);
    if (rc != 0 && (wait || (errno != EAGAIN && errno != EACCES)))
        return err_set_errno(err, errno, "%s: lock", path);
    *ret_fd = rc == 0 ? fd : -1;
    fd = rc == 0 ? -1 : fd;
    return 0;
}

/* Links `from` to `to`, replacing it; false when `from` is not there. */
static int cache_link(const char *from, const char *to, bool *ret_there, struct err *err)
{
    *ret_there = true;
    if (unlink(to) != 0 && errno != ENOENT)
        return err_set_errno(err, errno, "%s", to);
    if (link(from, to) == 0)
        return 0;
    *ret_there = false;
    return errno == ENOENT ? 0 : err_set_errno(err, errno, "%s", to);
}

struct cache_paths {
    char *shard, *report; /* of the entry; owned */
};

static void cache_paths_done(struct cache_paths *paths)
{
    mem_free(paths->shard);
    mem_free(paths->report);
}

static int cache_paths_init(struct cache_paths *paths, const char *cache_dir, const char *key,
                            struct err *err)
{
    paths->shard = mem_printf("%s/%s.tok", cache_dir, key);
    paths->report = mem_printf("%s/%s.json", cache_dir, key);
    return paths->shard != NULL && paths->report != NULL
               ? 0
               : mem_fail(err, LIMIT_PATH_BYTES, "a path");
}

static int cache_take_entry(const char *cache_dir, const char *key,
                            const struct dataset_request *request, bool *ret_hit, struct err *err)
{
    CLEANUP(cache_paths_done) struct cache_paths paths = {.shard = NULL};
    bool shard = false, report = false;
    TRY(cache_paths_init(&paths, cache_dir, key, err));
    TRY(cache_link(paths.shard, request->out_path, &shard, err));
    TRY(cache_link(paths.report, request->report_path, &report, err));
    *ret_hit = shard && report;
    return 0;
}

/* The longest row that the report tells of; INT64_MAX where it tells of none. */
static int64_t cache_longest(const struct dataset_request *request)
{
    CLEANUP(json_unref) json_t *report = NULL;
    struct err ignored; /* another report will be written */
    int64_t longest = 0;
    if (json_parse_own_file(request->report_path, LIMIT_REPORT_BYTES, &report, &ignored) != 0 ||
        json_get_i64(report, "longest", ERR_CORRUPT, &longest, &ignored) != 0)
        return INT64_MAX;
    return longest;
}

int dataset_cache_take(const char *cache_dir, const struct dataset_cache_keys *keys,
                       const struct dataset_request *request, bool *ret_hit, struct err *err)
{
    TRY(cache_take_entry(cache_dir, keys->whole, request, ret_hit, err));
    if (*ret_hit && cache_longest(request) <= request->seq_len)
        return 0;
    return cache_take_entry(cache_dir, keys->exact, request, ret_hit, err);
}

int dataset_cache_keep(const char *cache_dir, const struct dataset_cache_keys *keys,
                       const struct dataset_request *request, struct err *err)
{
    CLEANUP(cache_paths_done) struct cache_paths paths = {.shard = NULL};
    bool there = false, whole = cache_longest(request) <= request->seq_len;
    TRY(io_make_dirs(cache_dir, 0700, err));
    TRY(cache_paths_init(&paths, cache_dir, whole ? keys->whole : keys->exact, err));
    TRY(cache_link(request->report_path, paths.report, &there, err));
    return cache_link(request->out_path, paths.shard, &there, err);
}

int dataset_cache_sweep(const char *cache_dir, struct err *err)
{
    DIR *list = opendir(cache_dir);
    if (list == NULL)
        return errno == ENOENT ? 0 : err_set_errno(err, errno, "%s", cache_dir);
    const struct dirent *entry;
    struct stat info;
    while ((entry = readdir(list)) != NULL)
        if (fstatat(dirfd(list), entry->d_name, &info, AT_SYMLINK_NOFOLLOW) == 0 &&
            S_ISREG(info.st_mode) && info.st_nlink == 1)
            (void)unlinkat(dirfd(list), entry->d_name, 0); /* another child may have been quicker */
    (void)closedir(list);                                  /* read only */
    return 0;
}
