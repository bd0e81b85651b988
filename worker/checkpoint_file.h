/* checkpoint_file: the shards of one rank on disk, rank-R.ckpt of a checkpoint, little-endian:
 *
 *   OFFSET SIZE MEANING
 *     0     8   magic "ITHCKP1\n"
 *     8     8   which shard this is, 0 .. shards - 1
 *    16     8   shards (= files of the checkpoint)
 *    24     8   optimizer steps done
 *    32     8   units U (fsdp.h)
 *    40    24   zero
 *    64   8*U   elements of a shard of each unit
 *     -     -   for each unit: master, m, v, each fp32 (shard)
 *
 * Validity: U is the model's; shards * shard holds each unit; the size adds up exactly; XXH3-128 of
 * the whole file is the manifest's. Else ERR_CORRUPT. */
#pragma once
#include "common/checkpoint_manifest.h"
#include "common/err.h"
#include "worker/fsdp.h"

#include <stdint.h>

enum checkpoint_part { CHECKPOINT_MASTER, CHECKPOINT_M, CHECKPOINT_V, CHECKPOINT_PARTS };

struct checkpoint_file {
    int fd;          /* -1: not open */
    int64_t index;   /* of the shard */
    int64_t shards;  /* of a unit */
    int64_t step;    /* optimizer steps done */
    int64_t units;   /* U */
    int64_t *shard;  /* (U) elements */
    int64_t *offset; /* (U) bytes from the start of the file */
};

/* This rank's shards into a file that appears whole, synced. `entry` gets its size and hash. */
int checkpoint_file_write(const char *path, const struct fsdp *fsdp, struct stream *stream,
                          int64_t step, struct checkpoint_entry *ret_entry, struct err *err);
int64_t checkpoint_file_bytes(const struct fsdp *fsdp); /* what it will take */

/* XXH3-128 of a whole file, in hex. */
int checkpoint_file_hash(const char *path, char ret_hex[IO_HASH_BYTES], struct err *err);
/* Opens and checks everything but the hash. */
int checkpoint_file_open(const char *path, const struct model_shape *shape,
                         struct checkpoint_file *ret, struct err *err);
void checkpoint_file_close(struct checkpoint_file *file);
/* Elements [first, first + count) of a shard. */
int checkpoint_file_read(const struct checkpoint_file *file, int64_t unit,
                         enum checkpoint_part part, int64_t first, int64_t count, float *ret,
                         struct err *err);
