/* model_writer: the weights of a model folder, written in the layout of the folder they came from:
 * the same files, each tensor in the one it was in, with the element type it had. A base of one
 * file larger than shard_bytes is cut into files of at most that (a tensor is never cut), called
 * model-00001-of-00003.safetensors and so on. Where there are several files an index says which
 * holds what. Tensors of the base that the model has not (a tied head's copy, old buffers) are left
 * out.
 *
 *     TRY(model_writer_new(base_dir, shape, LIMIT_SHARD_BYTES, out_dir, &writer, err));
 *     for each row of the shape's table, in order:
 *         TRY(model_writer_put(writer, row, values, count, err));     in pieces, all its elements
 *     TRY(model_writer_commit(writer, err));                          files appear here
 *     model_writer_free(writer);                                      aborts when not committed
 *
 * Host memory: 64 KiB a file. */
#pragma once
#include "common/err.h"
#include "common/model_shape.h"

#include <stdint.h>

struct model_writer;

int model_writer_new(const char *base_dir, const struct model_shape *shape, int64_t shard_bytes,
                     const char *out_dir, struct model_writer **ret, struct err *err);
int model_writer_put(struct model_writer *writer, const struct model_shape_row *row,
                     const float *values, int64_t count, struct err *err);
int model_writer_commit(struct model_writer *writer, struct err *err);
void model_writer_free(struct model_writer *writer);
