/* checkpoint_read: a checkpoint as whole units, however many ranks wrote it.
 *
 *     TRY(checkpoint_reader_open(dir, shape, &reader, err));
 *     TRY(checkpoint_reader_read(&reader, unit, CHECKPOINT_M, first, count, values, err));
 *     checkpoint_reader_close(&reader);
 *
 * Elements are those of a unit's flat buffer (model_shape.h); a range may cross shards. Hashes are
 * not checked here: checkpoint_check_hashes(), so that ranks can share that work. */
#pragma once
#include "worker/checkpoint_file.h"

struct checkpoint_reader {
    struct checkpoint_manifest manifest;
    struct checkpoint_file *files; /* (manifest.file_count) */
};

/* Opens all files; they must be of one checkpoint of this model. */
int checkpoint_reader_open(const char *dir, const struct model_shape *shape,
                           struct checkpoint_reader *ret, struct err *err);
void checkpoint_reader_close(struct checkpoint_reader *reader);
int checkpoint_reader_read(const struct checkpoint_reader *reader, int64_t unit,
                           enum checkpoint_part part, int64_t first, int64_t count, float *ret,
                           struct err *err);

/* Reads files first, first + stride, ... whole, and compares their hashes with the manifest's. */
int checkpoint_check_hashes(const char *dir, const struct checkpoint_manifest *manifest,
                            uint32_t first, uint32_t stride, struct err *err);

/* What a checkpoint's model_digest is. */
int checkpoint_model_digest(const struct model_config *config, char ret_hex[IO_HASH_BYTES],
                            struct err *err);
