/* trash: folders on their way out. Removing one may take seconds (checkpoints are large), so it is
 * renamed into <data_dir>/trash, which housekeeping.h empties in a child. */
#pragma once
#include "common/err.h"

/* A folder that is not there is fine. It is gone from its place at once. */
int trash_put(const char *data_dir, const char *folder, struct err *err);
/* The same of a file, or of a folder whose name is no id: `name` is what it is called there, which
 * nothing else ever was. */
int trash_put_as(const char *data_dir, const char *path, const char *name, struct err *err);
/* The way back, while nobody has looked: from trash_put() of the same folder. */
int trash_take_back(const char *data_dir, const char *folder, struct err *err);
/* Name of the next thing in the trash, in the order of names, or NULL in *ret_name; after "": the
 * first. The caller mem_free()s. */
int trash_next(const char *data_dir, const char *after, char **ret_name, struct err *err);
