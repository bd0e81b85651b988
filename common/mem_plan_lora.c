/* mem_plan_lora: what adapters need beside their states (worker/lora.h): their inputs times A, for
 * all of a rank's tokens where stages of attention take a part of B each, else for a tile; under
 * dropout a tile of inputs with elements dropped, and the number of each token. */
#include "common/lora_shape.h"
#include "common/mem_plan_private.h"

#define LORA_MLP (MEM_AT(FWD_MLP) | MEM_AT(REPLAY) | MEM_AT(BWD_MLP))
#define LORA_PROJECT (MEM_AT(FWD_KV) | MEM_AT(AGAIN_KV) | MEM_AT(BWD_KV))

static bool lora_has(const struct mem_builder *b, enum job_lora_module module)
{
    return (b->layout.lora_modules >> module & 1) != 0;
}

/* Of the widest input. */
static int64_t lora_width(const struct mem_builder *b)
{
    int64_t width = 0;
    for (int m = 0; m < JOB_lora_module_COUNT; m++) {
        const struct model_shape_row *row =
            model_shape_find(b->shape, lora_shape_tensor((enum job_lora_module)m), 0);
        if (lora_has(b, (enum job_lora_module)m) && row->cols > width)
            width = row->cols;
    }
    return width;
}

void mem_plan_lora(struct mem_builder *b)
{
    const struct mem_layout *l = &b->layout;
    if (l->lora_r == 0)
        return;
    int64_t all = l->tokens * l->lora_r * l->act_bytes;
    int64_t tile = l->tile_mlp * l->lora_r * l->act_bytes;
    uint64_t again = l->keep_all ? 0 : MEM_SPAN(BWD_KV, BWD_DKV);
    for (int m = JOB_lora_module_Q; m <= JOB_lora_module_V; m++)
        if (lora_has(b, (enum job_lora_module)m))
            mem_declare_device(
                b, MEM_LORA_QKV, m,
                MEM_SPAN(FWD_KV, FWD_RETURN) | MEM_SPAN(AGAIN_KV, AGAIN_RETURN) | again, all);
    if (lora_has(b, JOB_lora_module_O))
        mem_declare_device(b, MEM_LORA_O, 0, MEM_SPAN(BWD_OUT, BWD_DKV), all);
    mem_declare_device(b, MEM_LORA_U, 0, LORA_MLP | MEM_AT(BWD_OUT) | MEM_AT(BWD_QKV), tile);
    mem_declare_device(b, MEM_LORA_DU, 0, MEM_AT(BWD_MLP) | MEM_AT(BWD_QKV), tile);
    if (!l->lora_dropout)
        return;
    mem_declare_device(b, MEM_LORA_X, 0,
                       LORA_MLP | LORA_PROJECT | MEM_AT(BWD_OUT) | MEM_AT(BWD_DO) | MEM_AT(BWD_QKV),
                       l->tile_mlp * lora_width(b) * l->act_bytes);
    mem_declare_device(b, MEM_NUMBERS, 0, MEM_ALWAYS, l->tokens * (int64_t)sizeof(int64_t));
}
