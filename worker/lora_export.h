/* lora_export: adapters as results of a job (export.h): files in PEFT's layout, and added to the
 * weights that they adapt.
 *
 *     TRY(lora_export_open(&lora, &base_shape, spec, base_dir, adapter_dir, err));
 *     for each layer, in order:
 *         fill lora.values with the layer's unit of lora.shape
 *         TRY(lora_export_put(&lora, layer, err));
 *         TRY(lora_export_weights(&lora, row, first, count, values, err));    of its rows
 *     TRY(lora_export_commit(&lora, err));
 *     lora_export_done(&lora);
 *
 * adapter_config.json and adapter_model.safetensors (fp32) are what PEFT's save_pretrained writes;
 * the base is named there as the job names it. Host memory: a layer's adapters. */
#pragma once
#include "common/err.h"
#include "common/job_spec.h"
#include "common/model_shape.h"

#include <stdint.h>

struct safetensors;
struct safetensors_writer;

struct lora_export {
    const struct job_spec *spec; /* borrowed: `lora` fields and model */
    struct model_shape shape;    /* of the adapters */
    float *values;               /* (unit elements) adapters of the layer at work */
    struct safetensors *base;
    struct safetensors_writer *writer; /* NULL: no adapter files */
};

/* base_dir: the model that is adapted. adapter_dir: of the adapter's files, which is made; NULL:
 * none. */
int lora_export_open(struct lora_export *lora, const struct model_shape *base_shape,
                     const struct job_spec *spec, const char *base_dir, const char *adapter_dir,
                     struct err *err);
void lora_export_done(struct lora_export *lora);
/* A layer's adapters into the files. */
int lora_export_put(struct lora_export *lora, int64_t layer, struct err *err);
/* Elements [first, first + count) of a weight of the base, with its adapter added (W + s B A) where
 * it has one; of a layer's row `values` are its adapters. */
int lora_export_weights(const struct lora_export *lora, const struct model_shape_row *row,
                        int64_t first, int64_t count, float *ret, struct err *err);
int lora_export_commit(struct lora_export *lora, struct err *err);
