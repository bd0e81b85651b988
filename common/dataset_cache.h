/* dataset_cache: token shards that were made before, by the hash of all that they depend on: the
 * file's bytes, the tokenizer, the chat template and the settings of the request.
 *
 * An entry is two files, <key>.tok and <key>.json, hard links to the shard and the report of the
 * jobs that have them; so entries take no room of their own, and one that no job holds any more
 * (a single link) is swept away. Several children may work in the folder at once: what is gone when
 * it is wanted was not there; of those that would make the same, one does and the others wait.
 *
 * Where no row was longer than seq_len, the shard is that of any seq_len that all rows fit in, and
 * is found by all of these. */
#pragma once
#include "common/dataset.h"
#include "common/io.h"

#include <stdbool.h>

struct dataset_cache_keys {
    char exact[IO_HASH_BYTES]; /* of all settings */
    char whole[IO_HASH_BYTES]; /* of all but seq_len and overlength */
};
int dataset_cache_keys(const struct dataset_request *request, struct dataset_cache_keys *ret_keys,
                       struct err *err);
/* The right to make shards of a `whole` key. It ends when *ret_fd is closed. Another has it: waits,
 * or *ret_fd is -1. */
int dataset_cache_lock(const char *cache_dir, const struct dataset_cache_keys *keys, bool wait,
                       int *ret_fd, struct err *err);
/* Links an entry to the request's out_path and report_path; *ret_hit says whether there was one. */
int dataset_cache_take(const char *cache_dir, const struct dataset_cache_keys *keys,
                       const struct dataset_request *request, bool *ret_hit, struct err *err);
/* Makes an entry of what dataset_prepare() wrote. */
int dataset_cache_keep(const char *cache_dir, const struct dataset_cache_keys *keys,
                       const struct dataset_request *request, struct err *err);
int dataset_cache_sweep(const char *cache_dir, struct err *err);
