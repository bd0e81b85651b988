/* lora_shape: see lora_shape.h. Extents and names come from the adapted weights' rows. */
#include "common/lora_shape.h"

#include "common/mem.h"
#include "common/must.h"
#include "common/rng.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum model_tensor lora_shape_tensor(enum job_lora_module module)
{
    static const enum model_tensor tensors[JOB_lora_module_COUNT] = {
        [JOB_lora_module_Q] = MODEL_TENSOR_Q,       [JOB_lora_module_K] = MODEL_TENSOR_K,
        [JOB_lora_module_V] = MODEL_TENSOR_V,       [JOB_lora_module_O] = MODEL_TENSOR_O,
        [JOB_lora_module_GATE] = MODEL_TENSOR_GATE, [JOB_lora_module_UP] = MODEL_TENSOR_UP,
        [JOB_lora_module_DOWN] = MODEL_TENSOR_DOWN};
    must((unsigned)module < JOB_lora_module_COUNT);
    return tensors[module];
}

bool lora_shape_has(const struct job_spec *spec, enum job_lora_module module)
{
    return spec->lora && (spec->lora_modules >> module & 1) != 0;
}

int64_t lora_shape_alpha(const struct job_spec *spec)
{
    return spec->lora_alpha > 0 ? spec->lora_alpha : 2 * spec->lora_r;
}

float lora_shape_scale(const struct job_spec *spec)
{
    return (float)((double)lora_shape_alpha(spec) / (double)spec->lora_r);
}

static int64_t lora_aligned(int64_t elements)
{
    const int64_t align = MODEL_SHAPE_ALIGN;
    return (elements + align - 1) / align * align;
}

/* "model.layers.3.self_attn.q_proj.weight" becomes
 * "base_model.model.model.layers.3.self_attn.q_proj.lora_A.weight". */
static void lora_shape_name(const struct model_shape_row *of, char letter,
                            char ret_name[MODEL_SHAPE_NAME_BYTES])
{
    static const char end[] = ".weight";
    size_t stem = strlen(of->name) - strlen(end);
    must(strcmp(of->name + stem, end) == 0);
    int length = snprintf(ret_name, MODEL_SHAPE_NAME_BYTES, "base_model.model.%.*s.lora_%c%s",
                          (int)stem, of->name, letter, end);
    must(length > 0 && length < MODEL_SHAPE_NAME_BYTES);
}

static void lora_shape_add(struct model_shape *shape, const struct model_shape_row *of, char letter,
                           int64_t rows, int64_t cols)
{
    struct model_shape_row *row = &shape->rows[shape->row_count];
    *row = (struct model_shape_row){.kind = of->kind,
                                    .layer = of->layer,
                                    .unit = of->layer,
                                    .rows = rows,
                                    .cols = cols,
                                    .dims = 2,
                                    .elements = rows * cols,
                                    .offset = shape->unit_elements[of->layer],
                                    .index = (uint64_t)shape->row_count};
    lora_shape_name(of, letter, row->name);
    shape->unit_elements[of->layer] += lora_aligned(row->elements);
    shape->parameters += row->elements;
    shape->row_count++;
}

int lora_shape_build(const struct model_shape *base, const struct job_spec *spec,
                     struct model_shape *ret_shape, struct err *err)
{
    must(spec->lora && spec->lora_r > 0 && spec->lora_modules != 0);
    int64_t layers = base->config.layers;
    struct model_shape shape = {.config = base->config, .unit_count = layers};
    size_t rows_max = (size_t)layers * 2 * JOB_lora_module_COUNT;
    shape.rows = mem_new(rows_max, sizeof *shape.rows);
    shape.unit_elements = mem_new((size_t)layers, sizeof *shape.unit_elements);
    if (shape.rows == NULL || shape.unit_elements == NULL) {
        model_shape_done(&shape);
        return mem_fail(err, rows_max * sizeof *shape.rows, "the table of adapters");
    }
    for (int64_t layer = 0; layer < layers; layer++)
        for (int m = 0; m < JOB_lora_module_COUNT; m++) {
            if (!lora_shape_has(spec, (enum job_lora_module)m))
                continue;
            const struct model_shape_row *of =
                model_shape_find(base, lora_shape_tensor((enum job_lora_module)m), layer);
            lora_shape_add(&shape, of, 'A', spec->lora_r, of->cols);
            lora_shape_add(&shape, of, 'B', of->rows, spec->lora_r);
        }
    *ret_shape = shape;
    return 0;
}

/* Of a layer; aligned: each tensor with its padding. */
static int64_t lora_shape_count(const struct model_shape *base, const struct job_spec *spec,
                                bool aligned)
{
    int64_t sum = 0;
    for (int m = 0; m < JOB_lora_module_COUNT; m++) {
        if (!lora_shape_has(spec, (enum job_lora_module)m))
            continue;
        const struct model_shape_row *of =
            model_shape_find(base, lora_shape_tensor((enum job_lora_module)m), 0);
        int64_t a = spec->lora_r * of->cols, b = spec->lora_r * of->rows;
        sum += aligned ? lora_aligned(a) + lora_aligned(b) : a + b;
    }
    return sum;
}

int64_t lora_shape_unit_elements(const struct model_shape *base, const struct job_spec *spec)
{
    return lora_shape_count(base, spec, true);
}

int64_t lora_shape_parameters(const struct model_shape *base, const struct job_spec *spec)
{
    return base->config.layers * lora_shape_count(base, spec, false);
}

float lora_shape_init(const struct model_shape_row *row, int64_t i, uint64_t seed)
{
    must(i >= 0 && i < row->elements);
    if (row->index % 2 == 1)
        return 0;
    double uniform = rng_uniform(seed, RNG_STREAM_LORA + row->index, (uint64_t)i);
    return (float)((2 * uniform - 1) / sqrt((double)row->cols));
}
