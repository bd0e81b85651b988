/* time_work_lora: what adapters add to the projections they stand beside (worker/lora.h). */
#include "common/lora_shape.h"
#include "common/time_work_private.h"

bool time_lora_has(const struct time_builder *b, enum job_lora_module module)
{
    return (b->layout->lora_modules >> module & 1) != 0;
}

static const struct model_shape_row *lora_row(const struct time_builder *b,
                                              enum job_lora_module module)
{
    return model_shape_find(b->job->shape, lora_shape_tensor(module), 0);
}

/* Reads and writes `times` times what is dropped from. */
static void lora_dropout(const struct time_builder *b, double calls, double elements, int times)
{
    if (b->layout->lora_dropout)
        time_add(b, TIME_DROPOUT, calls, times * elements * (double)b->layout->act_bytes);
}

static void time_lora_reduce(const struct time_builder *b, enum job_lora_module module,
                             double calls, int64_t rows)
{
    int64_t in = lora_row(b, module)->cols;
    if (!time_lora_has(b, module))
        return;
    lora_dropout(b, calls, (double)rows * (double)in, 2);
    time_add_gemm(b, TIME_GEMM_Y, calls, rows, b->layout->lora_r, in);
}

void time_lora_fwd(const struct time_builder *b, enum job_lora_module module, double calls,
                   int64_t rows)
{
    if (!time_lora_has(b, module))
        return;
    time_lora_reduce(b, module, calls, rows);
    time_add_gemm(b, TIME_GEMM_Y, calls, rows, lora_row(b, module)->rows, b->layout->lora_r);
}

void time_lora_bwd_weights(const struct time_builder *b, enum job_lora_module module, double calls,
                           int64_t rows)
{
    const struct model_shape_row *row = lora_row(b, module);
    int64_t r = b->layout->lora_r;
    if (!time_lora_has(b, module))
        return;
    time_lora_reduce(b, module, calls, rows);
    time_add_gemm(b, TIME_GEMM_DW, calls, row->rows, r, rows);
    time_add_gemm(b, TIME_GEMM_DX, calls, rows, r, row->rows);
    time_add_gemm(b, TIME_GEMM_DW, calls, r, row->cols, rows);
}

void time_lora_bwd(const struct time_builder *b, enum job_lora_module module, double calls,
                   int64_t rows)
{
    int64_t in = lora_row(b, module)->cols;
    if (!time_lora_has(b, module))
        return;
    time_lora_bwd_weights(b, module, calls, rows);
    time_add_gemm(b, TIME_GEMM_DX, calls, rows, in, b->layout->lora_r);
    lora_dropout(b, calls, (double)rows * (double)in, 3);
}

void time_lora_inputs(const struct time_builder *b, double calls, int64_t rows)
{
    bool any = false;
    for (int m = JOB_lora_module_Q; m <= JOB_lora_module_V; m++) {
        any = any || time_lora_has(b, (enum job_lora_module)m);
        time_lora_reduce(b, (enum job_lora_module)m, calls, rows);
    }
    if (any)
        time_add(b, TIME_RMSNORM, calls,
                 2 * (double)(rows * b->config->hidden_size * b->layout->act_bytes));
}
