/* folder_walk: everything below a folder, one entry a call, so that a walk can be spread over turns
 * of the loop however many files a folder has (fts(3) looks at all entries of a folder at once).
 * Links are not followed. What vanishes under the walk, or cannot be opened, is left out. */
#pragma once
#include "common/err.h"

#include <stdbool.h>
#include <sys/stat.h>

struct folder_walk;

struct folder_walk_entry {
    const char *path;     /* absolute */
    const char *relative; /* below the root; "" for the root itself, which comes first */
    const struct stat *info;
};

/* ERR_IO where the root cannot be opened. */
int folder_walk_new(const char *root, struct folder_walk **ret_walk, struct err *err);
void folder_walk_free(struct folder_walk *walk); /* NULL is fine */
/* A folder comes before what is in it; false at the end. The entry is borrowed until the next call.
 */
bool folder_walk_next(struct folder_walk *walk, struct folder_walk_entry *ret_entry);
