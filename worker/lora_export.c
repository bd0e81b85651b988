/* lora_export: see lora_export.h. The base's weights are read from its files, so that a merged
 * weight is rounded once, to the type it has there. */
#include "worker/lora_export.h"

#include "common/io.h"
#include "common/json.h"
#include "common/lora_shape.h"
#include "common/mem.h"
#include "common/safetensors.h"
#include "worker/cpu/simd.h"

#include <string.h>

enum { LORA_EXPORT_COLUMNS = 1024 }; /* of one sum over the rank, on the stack */

/* What PEFT's LoraConfig saves; keys that are not here have its defaults. */
static json_t *lora_export_config(const struct job_spec *spec)
{
    json_t *modules = json_array();
    int bad = modules == NULL;
    for (int m = 0; m < JOB_lora_module_COUNT; m++)
        if (lora_shape_has(spec, (enum job_lora_module)m))
            bad |= json_array_append_new(
                modules, json_string(job_lora_module_name((enum job_lora_module)m)));
    if (bad != 0) {
        json_decref(modules);
        return NULL;
    }
    return json_pack("{s:s, s:s, s:s, s:n, s:I, s:I, s:f, s:o, s:s, s:b, s:b, s:b, s:b, s:b, s:n}",
                     "peft_type", "LORA", "task_type", "CAUSAL_LM", "base_model_name_or_path",
                     spec->model, "revision", "r", (json_int_t)spec->lora_r, "lora_alpha",
                     (json_int_t)lora_shape_alpha(spec), "lora_dropout", spec->lora_dropout,
                     "target_modules", modules, "bias", "none", "fan_in_fan_out", 0,
                     "inference_mode", 1, "init_lora_weights", 1, "use_dora", 0, "use_rslora", 0,
                     "modules_to_save");
}

static int lora_export_files(struct lora_export *lora, const char *dir, struct err *err)
{
    CLEANUP(mem_free_ptr) char *weights = io_join(dir, "adapter_model.safetensors");
    CLEANUP(mem_free_ptr) char *path = io_join(dir, "adapter_config.json");
    CLEANUP(json_unref) json_t *config = lora_export_config(lora->spec);
    if (weights == NULL || path == NULL || config == NULL)
        return mem_fail(err, strlen(dir), "an adapter's files");
    TRY(io_make_dirs(dir, 0755, err));
    TRY(json_write_file(path, config, 0644, err));
    TRY(safetensors_writer_new(weights, &lora->writer, err));
    for (int64_t i = 0; i < lora->shape.row_count; i++) {
        const struct model_shape_row *row = &lora->shape.rows[i];
        int64_t dims[2] = {row->rows, row->cols};
        TRY(safetensors_writer_declare(lora->writer, row->name, DTYPE_F32, row->dims, dims, err));
    }
    return 0;
}

int lora_export_open(struct lora_export *lora, const struct model_shape *base_shape,
                     const struct job_spec *spec, const char *base_dir, const char *adapter_dir,
                     struct err *err)
{
    *lora = (struct lora_export){.spec = spec};
    TRY(lora_shape_build(base_shape, spec, &lora->shape, err));
    size_t elements = (size_t)lora->shape.unit_elements[0]; /* all layers are alike */
    lora->values = mem_new(elements, sizeof *lora->values);
    if (lora->values == NULL)
        return mem_fail(err, elements * sizeof *lora->values, "a layer's adapters");
    TRY(safetensors_open_dir(base_dir, &lora->base, err));
    return adapter_dir != NULL ? lora_export_files(lora, adapter_dir, err) : 0;
}

void lora_export_done(struct lora_export *lora)
{
    safetensors_writer_free(lora->writer);
    safetensors_free(lora->base);
    mem_free(lora->values);
    model_shape_done(&lora->shape);
    *lora = (struct lora_export){0};
}

int lora_export_put(struct lora_export *lora, int64_t layer, struct err *err)
{
    for (int64_t i = 0; lora->writer != NULL && i < lora->shape.row_count; i++) {
        const struct model_shape_row *row = &lora->shape.rows[i];
        if (row->layer == layer)
            TRY(safetensors_writer_put_f32(lora->writer, lora->values + row->offset, row->elements,
                                           err));
    }
    return 0;
}

/* weights += s B A of `count` columns of one row: b (r), a (r, cols) from the first of them on. */
CPU_CLONES static void lora_export_add(const float *b, const float *a, int64_t r, int64_t cols,
                                       int64_t count, float scale, float *weights)
{
    float sum[LORA_EXPORT_COLUMNS] = {0};
    for (int64_t k = 0; k < r; k++) {
#pragma omp simd
        for (int64_t i = 0; i < count; i++)
            sum[i] += b[k] * a[k * cols + i];
    }
#pragma omp simd
    for (int64_t i = 0; i < count; i++)
        weights[i] += scale * sum[i];
}

/* Elements [first, first + count) of the weight of A's row and B's, the next. */
static void lora_export_merge(const struct lora_export *lora, const struct model_shape_row *row,
                              int64_t first, int64_t count, float *weights)
{
    const float *a = lora->values + row[0].offset, *b = lora->values + row[1].offset;
    int64_t r = row[0].rows, cols = row[0].cols, last = first + count;
    float scale = lora_shape_scale(lora->spec);
#pragma omp parallel for schedule(static)
    for (int64_t out = first / cols; out <= (last - 1) / cols; out++) {
        int64_t from = out * cols > first ? out * cols : first;
        int64_t end = (out + 1) * cols < last ? (out + 1) * cols : last;
        for (int64_t at = from; at < end; at += LORA_EXPORT_COLUMNS) {
            int64_t run = end - at < LORA_EXPORT_COLUMNS ? end - at : LORA_EXPORT_COLUMNS;
            lora_export_add(b + out * r, a + at % cols, r, cols, run, scale,
                            weights + (at - first));
        }
    }
}

int lora_export_weights(const struct lora_export *lora, const struct model_shape_row *row,
                        int64_t first, int64_t count, float *ret, struct err *err)
{
    const struct safetensors_entry *entry = safetensors_find(lora->base, row->name);
    if (entry == NULL)
        return err_set(err, ERR_MODEL, "tensor %s of the base went away", row->name);
    TRY(safetensors_read_f32(lora->base, entry, first, count, ret, err));
    for (int64_t i = 0; i < lora->shape.row_count; i += 2)
        if (lora->shape.rows[i].layer == row->layer && lora->shape.rows[i].kind == row->kind)
            lora_export_merge(lora, &lora->shape.rows[i], first, count, ret);
    return 0;
}

int lora_export_commit(struct lora_export *lora, struct err *err)
{
    return lora->writer != NULL ? safetensors_writer_commit(lora->writer, err) : 0;
}
