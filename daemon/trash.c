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

int trash_put(const char *data_dir, const char *folder, struct err *err)
{
    CLEANUP(mem_free_ptr) char *trash = io_join(data_dir, "trash");
    CLEANUP(mem_free_ptr) char *to = trash_path(data_dir, folder);
    if (trash == NULL || to == NULL)
        return mem_fail(err, LIMIT_PATH_BYTES, "a path");
    TRY(io_make_dirs(trash, 0700, err));
    return trash_move(folder, to, err);
}

int trash_take_back(const char *data_dir, const char *folder, struct err *err)
{
    CLEANUP(mem_free_ptr) char *from = trash_path(data_dir, folder);
    if (from == NULL)
        return mem_fail(err, LIMIT_PATH_BYTES, "a path");
    return trash_move(from, folder, err);
}

int trash_first(const char *data_dir, char **ret_path, struct err *err)
{
    CLEANUP(mem_free_ptr) char *trash = io_join(data_dir, "trash");
    if (trash == NULL)
        return mem_fail(err, LIMIT_PATH_BYTES, "a path");
    *ret_path = NULL;
    DIR *stream = opendir(trash);
    if (stream == NULL)
        return errno == ENOENT ? 0 : err_set_errno(err, errno, "%s", trash);
    const struct dirent *entry;
    int rc = 0;
    while (rc == 0 && *ret_path == NULL && (entry = readdir(stream)) != NULL) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        *ret_path = io_join(trash, entry->d_name);
        if (*ret_path == NULL)
            rc = mem_fail(err, LIMIT_PATH_BYTES, "a path");
    }
    (void)closedir(stream); /* read only */
    return rc;
}
