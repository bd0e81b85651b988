/* dataset_random: a token shard (common/dataset.h) of random tokens, for what only measures. */
#pragma once
#include "common/err.h"

#include <stdint.h>

/* Documents of `length` tokens below `vocab`, the same ones each time, all trained. The folder is
 * there. */
int dataset_random_write(const char *path, int64_t documents, int64_t length, int64_t vocab,
                         struct err *err);
