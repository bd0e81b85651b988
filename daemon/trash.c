/* trash: one level of folders, named as they were: names are ids, which are never used again. */
#include "daemon/trash.h"

#include "common/io.h"
#include "common/limits.h"
#include "common/mem.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

/* "<data_dir>/trash/<last name of folder>" */
static char *trash_path(const char *data_dir, const char *folder)
{
    const char *slash = strrchr(folder, '/');
    return mem_printf("%s/trash/%s", data_dir, slash != NULL ? slash + 1 : folder);
}

static int trash_move(const char *from, const char *to, struct err *err)
{
    if (rename(from, to) == 0 || errno == ENOENT)
        return 0;
    return err_set_errno(err, errno, "%s: remove", from);
}

int trash_put_as(const char *data_dir, const char *path, const char *name, struct err *err)
{
    CLEANUP(mem_free_ptr) char *trash = io_join(data_dir, "trash");
    CLEANUP(mem_free_ptr) char *to = trash_path(data_dir, name);
    if (trash == NULL || to == NULL)
        return mem_fail(err, LIMIT_PATH_BYTES, "a path");
    TRY(io_make_dirs(trash, 0700, err));
    return trash_move(path, to, err);
}

int trash_put(const char *data_dir, const char *folder, struct err *err)
{
    return trash_put_as(data_dir, folder, folder, err);
}

int trash_take_back(const char *data_dir, const char *folder, struct err *err)
{
    CLEANUP(mem_free_ptr) char *from = trash_path(data_dir, folder);
    if (from == NULL)
        return mem_fail(err, LIMIT_PATH_BYTES, "a path");
    return trash_move(from, folder, err);
}

/* Whether a name comes after the one that was, and before the best so far (NULL: none). */
static bool trash_is_nearer(const char *name, const char *after, const char *best)
{
    return strcmp(name, ".") != 0 && strcmp(name, "..") != 0 && strcmp(name, after) > 0 &&
           (best == NULL || strcmp(name, best) < 0);
}

int trash_next(const char *data_dir, const char *after, char **ret_name, struct err *err)
{
    CLEANUP(mem_free_ptr) char *trash = io_join(data_dir, "trash");
    CLEANUP(mem_free_ptr) char *best = NULL;
    if (trash == NULL)
        return mem_fail(err, LIMIT_PATH_BYTES, "a path");
    *ret_name = NULL;
    DIR *stream = opendir(trash);
    if (stream == NULL)
        return errno == ENOENT ? 0 : err_set_errno(err, errno, "%s", trash);
    const struct dirent *entry;
    int rc = 0;
    while (rc == 0 && (entry = readdir(stream)) != NULL) {
        if (!trash_is_nearer(entry->d_name, after, best))
            continue;
        mem_free(best);
        best = mem_strdup(entry->d_name);
        if (best == NULL)
            rc = mem_fail(err, LIMIT_PATH_BYTES, "a name");
    }
    (void)closedir(stream); /* read only */
    if (rc != 0)
        return rc;
    *ret_name = best;
    best = NULL; /* the caller's. NOLINT(clang-analyzer-deadcode.DeadStores) */
    return 0;
}
