/* attention_split: attention of many rows as calls of fewer: in forward so that their keys stay in
 * a GPU's L2 cache, in backward so that scratch does not grow with the sequence
 * (common/mem_split.h). The same operation, cut.
 *
 *     if (attention_split_wants(&sizes, args->rows, args->kv_rows))
 *         return attention_split(device, stream, args, &sizes, scratch, err);
 *
 * No call has more than sizes.longest rows or keys. Documents that fit go together, as many as do.
 * A longer one goes `rows` queries at a time: in forward the triangle on the diagonal, then `keys`
 * keys at a time, merged in fp32 (ops_attention_merge); in backward likewise, where gradients are
 * sums anyway. Calls go to the device's own attention, which finds them short enough. */
#pragma once
#include "common/err.h"
#include "common/mem_split.h"
#include "worker/ops.h"

#include <stdbool.h>
#include <stdint.h>

static inline bool attention_split_wants(const struct mem_split *sizes, int64_t rows,
                                         int64_t kv_rows)
{
    return rows > sizes->longest || kv_rows > sizes->longest;
}
/* scratch: mem_split_bytes(). */
int attention_split(struct device *device, struct stream *stream, const struct ops_attention *args,
                    const struct mem_split *sizes, void *scratch, struct err *err);
int attention_split_bwd(struct device *device, struct stream *stream,
                        const struct ops_attention_bwd *args, const struct mem_split *sizes,
                        struct err *err);
