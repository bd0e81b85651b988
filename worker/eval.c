/* eval: see eval.h. The whole file is one "step" of a loader that does not shuffle. Losses of
 * single tokens come to the host after each micro-step and are added there in their order. */
#include "worker/eval.h"

#include "common/mem.h"
#include "common/must.h"
#include "worker/rank.h"

static int eval_add_positions(struct rank *rank, float *losses, struct eval_result *result,
                              struct err *err)
{
    const struct batch *batch = &rank->batch;
    const struct device_ops *dev = rank->device->dev;
    TRY(dev->copy(rank->device, rank->stream, losses, rank->model.row_loss,
                  (size_t)batch->rows * sizeof *losses, err));
    TRY(dev->sync(rank->device, rank->stream, err));
    struct mesh_span spans[2];
    int count = mesh_seq_spans(&batch->seq, rank->place.ring, rank->place.ulysses, spans);
    for (int i = 0; i < count; i++)
        for (int64_t t = 0; t < spans[i].count; t++) {
            int64_t at = spans[i].position + t;
            if (batch->host_targets[at] < 0)
                continue;
            int64_t bucket =
                (int64_t)batch->host_positions[at] * EVAL_BUCKETS / rank->plan->spec.seq_len;
            must(bucket >= 0 && bucket < EVAL_BUCKETS);
            result->bucket_trained[bucket]++;
            result->bucket_loss[bucket] += (double)losses[spans[i].row + t];
        }
    return 0;
}

static int eval_share_positions(struct rank *rank, struct eval_result *result, struct err *err)
{
    TRY(rank_sum(rank, result->bucket_trained, EVAL_BUCKETS, DTYPE_I64, err));
    TRY(rank_sum(rank, result->bucket_loss, EVAL_BUCKETS, DTYPE_F64, err));
    for (int i = 0; i < EVAL_BUCKETS; i++)
        if (result->bucket_trained[i] > 0)
            result->bucket_loss[i] /= (double)result->bucket_trained[i];
    return 0;
}

int eval_run(struct rank *rank, struct eval_result *ret_result, struct err *err)
{
    struct eval_result result = {0};
    int64_t counts[2], correct = 0;
    double loss_sum = 0;
    CLEANUP(mem_free_ptr) float *losses = mem_new((size_t)rank->batch.tokens_max, sizeof *losses);
    if (losses == NULL)
        return mem_fail(err, (size_t)rank->batch.tokens_max * sizeof *losses, "losses of tokens");
    loader_count(&rank->valid, 1, &counts[0], &counts[1]);
    TRY(rank_sum(rank, counts, 2, DTYPE_I64, err));
    TRY(model_totals_zero(&rank->model, rank->stream, err));
    for (int64_t micro = 0; micro < rank->valid.micro_steps; micro++) {
        loader_fill(&rank->valid, 1, micro, &rank->batch);
        rank->batch.step = 0;
        TRY(batch_upload(&rank->batch, rank->device, rank->stream, err));
        TRY(model_forward(&rank->model, &rank->batch, false, rank->stream, err));
        TRY(model_head_evaluate(&rank->model, &rank->batch, rank->stream, err));
        TRY(eval_add_positions(rank, losses, &result, err));
    }
    TRY(model_totals(&rank->model, rank->stream, &loss_sum, &correct, err));
    TRY(eval_share_positions(rank, &result, err));
    double n = counts[1] > 0 ? (double)counts[1] : 1;
    result.trained = counts[1];
    result.loss = loss_sum / n;
    result.accuracy = (double)correct / n;
    *ret_result = result;
    return 0;
}
