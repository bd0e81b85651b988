/* eval: see eval.h. The whole file is one "step" of a loader that does not shuffle. */
#include "worker/eval.h"

#include "worker/rank.h"

int eval_run(struct rank *rank, struct eval_result *ret_result, struct err *err)
{
    struct eval_result result = {0};
    int64_t counts[LOADER_COUNTS], correct = 0;
    double loss_sum = 0;
    loader_count(&rank->valid, 1, counts);
    TRY(rank_sum(rank, counts, LOADER_COUNTS, DTYPE_I64, err));
    TRY(model_totals_zero(&rank->model, rank->stream, err));
    for (int64_t micro = 0; micro < rank->valid.micro_steps; micro++) {
        loader_fill(&rank->valid, 1, micro, &rank->batch);
        rank->batch.step = 0;
        TRY(batch_upload(&rank->batch, rank->device, rank->stream, err));
        TRY(model_forward(&rank->model, &rank->batch, false, rank->stream, err));
        TRY(model_head_evaluate(&rank->model, &rank->batch, rank->stream, err));
        TRY(positions_add(rank, &result.positions, err));
    }
    TRY(model_totals(&rank->model, rank->stream, &loss_sum, &correct, err));
    TRY(positions_share(rank, &result.positions, err));
    double n = counts[LOADER_TRAINED] > 0 ? (double)counts[LOADER_TRAINED] : 1;
    result.trained = counts[LOADER_TRAINED];
    result.loss = loss_sum / n;
    result.accuracy = (double)correct / n;
    *ret_result = result;
    return 0;
}
