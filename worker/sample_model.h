/* sample_model: a whole model in host memory, run forward over new tokens after those it has seen.
 * CPU only. */
#pragma once
#include "common/err.h"
#include "common/model_config.h"

#include <stdint.h>

struct sample_model;
/* tokens_max: longest prompt and answer together. */
int sample_model_new(const char *model_dir, const struct model_config *config, int64_t tokens_max,
                     struct sample_model **ret, struct err *err);
void sample_model_free(struct sample_model *model);
/* Runs count (at least 1) more tokens; *ret_next is the likeliest token to follow. */
int sample_model_next(struct sample_model *model, const int32_t *ids, int64_t count,
                      int32_t *ret_next, struct err *err);
/* Of the token to follow, as the last sample_model_next() left them: (vocab_size). */
const float *sample_model_logits(const struct sample_model *model);
