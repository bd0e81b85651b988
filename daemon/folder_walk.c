/* folder_walk: a stack of open folders, the path of the newest entry, and whether that is a folder
 * that is entered by the next call. */
#include "daemon/folder_walk.h"

#include "common/limits.h"
#include "common/mem.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

enum { FOLDER_WALK_DEPTH = 32 }; /* the data folder's own are five deep */

struct folder_walk_level {
    DIR *stream;
    size_t length; /* of its path */
};

struct folder_walk {
    char path[LIMIT_PATH_BYTES];
    size_t root_length;
    struct folder_walk_level levels[FOLDER_WALK_DEPTH];
    size_t depth;
    struct stat info; /* of the newest entry */
    bool begun;
};

static bool folder_walk_enter(struct folder_walk *walk, int parent_fd, const char *name)
{
    if (walk->depth == FOLDER_WALK_DEPTH)
        return false;
    int fd = openat(parent_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *stream = fd >= 0 ? fdopendir(fd) : NULL;
    if (fd >= 0 && stream == NULL)
        (void)close(fd); /* read only */
    if (stream == NULL)
        return false;
    walk->levels[walk->depth++] =
        (struct folder_walk_level){.stream = stream, .length = strlen(walk->path)};
    return true;
}

int folder_walk_new(const char *root, struct folder_walk **ret_walk, struct err *err)
{
    struct folder_walk *walk = mem_new(1, sizeof *walk);
    if (walk == NULL)
        return mem_fail(err, sizeof *walk, "a walk over a folder");
    walk->root_length = strlen(root);
    if (walk->root_length < sizeof walk->path)
        memcpy(walk->path, root, walk->root_length);
    if (walk->root_length >= sizeof walk->path || lstat(root, &walk->info) != 0 ||
        !folder_walk_enter(walk, AT_FDCWD, root)) {
        mem_free(walk);
        return err_set_errno(err, errno, "%s", root);
    }
    *ret_walk = walk;
    return 0;
}

void folder_walk_free(struct folder_walk *walk)
{
    if (walk == NULL)
        return;
    while (walk->depth > 0)
        (void)closedir(walk->levels[--walk->depth].stream); /* read only */
    mem_free(walk);
}

static void folder_walk_tell(const struct folder_walk *walk, struct folder_walk_entry *ret_entry)
{
    const char *below = walk->path + walk->root_length;
    *ret_entry = (struct folder_walk_entry){
        .path = walk->path, .relative = below + (below[0] == '/'), .info = &walk->info};
}

/* Puts a name behind the path of a level; false where that is too long. */
static bool folder_walk_append(struct folder_walk *walk, const struct folder_walk_level *level,
                               const char *name)
{
    size_t length = strlen(name);
    if (level->length + 1 + length >= sizeof walk->path)
        return false;
    walk->path[level->length] = '/';
    memcpy(walk->path + level->length + 1, name, length + 1);
    return true;
}

bool folder_walk_next(struct folder_walk *walk, struct folder_walk_entry *ret_entry)
{
    if (!walk->begun) {
        walk->begun = true;
        folder_walk_tell(walk, ret_entry);
        return true;
    }
    while (walk->depth > 0) {
        const struct folder_walk_level *level = &walk->levels[walk->depth - 1];
        const struct dirent *entry = readdir(level->stream);
        if (entry == NULL) {
            (void)closedir(walk->levels[--walk->depth].stream); /* read only */
            continue;
        }
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0 ||
            fstatat(dirfd(level->stream), entry->d_name, &walk->info, AT_SYMLINK_NOFOLLOW) != 0 ||
            !folder_walk_append(walk, level, entry->d_name))
            continue;
        if (S_ISDIR(walk->info.st_mode)) /* one that cannot be opened counts by itself */
            (void)folder_walk_enter(walk, dirfd(level->stream), entry->d_name);
        folder_walk_tell(walk, ret_entry);
        return true;
    }
    return false;
}
