/* dataset_batch: rows of a file gathered, rendered by several threads, and handed back in the order
 * of the file. Part of dataset_prepare.
 *
 * A batch is bounded in bytes and rows; a row larger than that is a batch of its own. */
#pragma once
#include "common/dataset_row.h"
#include "common/line_reader.h"

struct dataset_batch;
int dataset_batch_new(const struct dataset_rules *rules, int threads, struct dataset_batch **ret,
                      struct err *err);
void dataset_batch_free(struct dataset_batch *batch);

/* Reads the next rows, at most `rows_max`; *ret_count is 0 at the end of the file. When reading
 * fails, the rows before are there all the same. */
int dataset_batch_fill(struct dataset_batch *batch, struct line_reader *reader, size_t rows_max,
                       size_t *ret_count, struct err *err);
/* Renders them all. Of several failures the one of the first row is returned. */
int dataset_batch_render(struct dataset_batch *batch, struct err *err);
struct dataset_row *dataset_batch_row(struct dataset_batch *batch, size_t index);
