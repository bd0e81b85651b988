/* lora_shape: the adapters of a job with `lora` (LoRA, arXiv 2106.09685) as a table of tensors.
 *
 * A projection y = x W^T with an adapter is y = x W^T + s (drop(x) A^T) B^T, s = alpha / r, where W
 * [out, in] stays as it is, A [r, in] and B [out, r] are trained, and drop() is dropout of the
 * adapter's input. A starts as PEFT starts it, uniform in +-1/sqrt(in), B as zero: so the model
 * starts as the base.
 *
 * The table is a model_shape with a unit for each layer and none beside: for each module of
 * `lora.modules`, in the order of enum job_lora_module, A and then B, called as PEFT calls them in
 * adapter_model.safetensors. `kind` of both is the adapted weight's; A has an even index, B the odd
 * one after it. Not for model_shape_find. */
#pragma once
#include "common/job_spec.h"
#include "common/model_shape.h"

#include <stdbool.h>
#include <stdint.h>

/* Folder of the adapters in a tuned model's, where it has both (worker/export.h). */
#define LORA_SHAPE_FOLDER "adapter"

/* The weight that a module's adapter goes beside. */
enum model_tensor lora_shape_tensor(enum job_lora_module module);
bool lora_shape_has(const struct job_spec *spec, enum job_lora_module module);
int64_t lora_shape_alpha(const struct job_spec *spec);
float lora_shape_scale(const struct job_spec *spec); /* s */

/* base: the model's table; spec->lora is true. */
int lora_shape_build(const struct model_shape *base, const struct job_spec *spec,
                     struct model_shape *ret_shape, struct err *err);
/* Elements of a layer's unit, all alike, and of all adapters without padding: what a table that is
 * built would have. */
int64_t lora_shape_unit_elements(const struct model_shape *base, const struct job_spec *spec);
int64_t lora_shape_parameters(const struct model_shape *base, const struct job_spec *spec);

/* Element i of a row before the first step. */
float lora_shape_init(const struct model_shape_row *row, int64_t i, uint64_t seed);
