/* positions: losses of single tokens come to the host and are added there in their order, so that
 * sums are the same in every run. Counts are summed over ranks as doubles beside the losses, in one
 * collective: they are exact far beyond any batch. */
#include "worker/positions.h"

#include "common/must.h"
#include "worker/rank.h"

int positions_add(struct rank *rank, struct positions *positions, struct err *err)
{
    const struct batch *batch = &rank->batch;
    const struct device_ops *dev = rank->device->dev;
    TRY(dev->copy(rank->device, rank->stream, batch->host_losses, rank->model.row_loss,
                  (size_t)batch->rows * sizeof *batch->host_losses, err));
    TRY(dev->sync(rank->device, rank->stream, err));
    struct mesh_span spans[2];
    int count = mesh_seq_spans(&batch->seq, rank->place.ring, rank->place.ulysses, spans);
    for (int i = 0; i < count; i++)
        for (int64_t t = 0; t < spans[i].count; t++) {
            int64_t at = spans[i].position + t;
            if (batch->host_targets[at] < 0)
                continue;
            int64_t bucket =
                (int64_t)batch->host_positions[at] * POSITION_BUCKETS / rank->plan->spec.seq_len;
            must(bucket >= 0 && bucket < POSITION_BUCKETS);
            positions->trained[bucket]++;
            positions->loss[bucket] += (double)batch->host_losses[spans[i].row + t];
        }
    return 0;
}

int positions_share(struct rank *rank, struct positions *positions, struct err *err)
{
    double sums[2 * POSITION_BUCKETS];
    for (int i = 0; i < POSITION_BUCKETS; i++) {
        sums[i] = (double)positions->trained[i];
        sums[POSITION_BUCKETS + i] = positions->loss[i];
    }
    TRY(rank_sum(rank, sums, 2 * POSITION_BUCKETS, DTYPE_F64, err));
    for (int i = 0; i < POSITION_BUCKETS; i++) {
        positions->trained[i] = (int64_t)sums[i];
        positions->loss[i] = sums[i] > 0 ? sums[POSITION_BUCKETS + i] / sums[i] : 0;
    }
    return 0;
}
