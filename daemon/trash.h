/* trash: folders on their way out. Removing one may take seconds (checkpoints are large), so it is
 * renamed into <data_dir>/trash, which housekeeping.h empties in a child. */
#pragma once
#include "common/err.h"

/* A folder that is not there is fine. It is gone from its place at once. */
int trash_put(const char *data_dir, const char *folder, struct err *err);
/* The way back, while nobody has looked: from trash_put() of the same folder. */
int trash_take_back(const char *data_dir, const char *folder, struct err *err);
/* Path of something in the trash, or NULL in *ret_path. The caller mem_free()s. */
int trash_first(const char *data_dir, char **ret_path, struct err *err);
