/* model_rope: rotary position embedding (arXiv 2104.09864) and how a config.json stretches it:
 *   default   inv_freq[i] = theta^(-2i/d)
 *   linear    all divided by factor (position interpolation, arXiv 2306.15595)
 *   dynamic   theta grows with the sequence beyond max_position_embeddings (NTK); the length that
 *             counts is the job's seq_len, so that one job has one embedding
 *   yarn      fast ones kept, slow ones divided by factor, a ramp between; cos and sin scaled by
 *             the attention factor (arXiv 2309.00071)
 *   llama3    the same idea by wavelength (Llama 3.1)
 * as transformers computes them, but in double precision and rounded once.
 *
 * A zeroed struct is the default kind. Keys that the kind does not have are refused by name, and so
 * are spellings that contradict each other ("rope_type" and "type", rope_theta here and there). */
#pragma once
#include "common/err.h"
#include "common/json.h"

#include <stdbool.h>
#include <stdint.h>

enum model_rope_kind {
    MODEL_ROPE_DEFAULT,
    MODEL_ROPE_LINEAR,
    MODEL_ROPE_DYNAMIC,
    MODEL_ROPE_YARN,
    MODEL_ROPE_LLAMA3,
    MODEL_ROPE_COUNT
};

struct model_rope {
    enum model_rope_kind kind;
    double factor;           /* but for default: how far the context is stretched, >= 1 */
    double original_context; /* dynamic, yarn, llama3: tokens it was trained on before */
    double low_freq_factor;  /* llama3: wavelengths above original_context / this are divided */
    double high_freq_factor; /* llama3: those below original_context / this are kept */
    double beta_fast;        /* yarn: turns within original_context from which on all is kept */
    double beta_slow;        /* yarn: up to which all is divided */
    double attention_factor; /* yarn: cos and sin are multiplied by it */
    bool no_truncate;        /* yarn: the ramp's ends are not rounded to whole indices */
};

/* Of a parsed config.json: rope_theta and rope_scaling, or rope_parameters. ERR_MODEL with the key
 * as field. */
int model_rope_parse(const json_t *config, int64_t context_max, int64_t head_dim,
                     struct model_rope *ret_rope, double *ret_theta, struct err *err);
/* The value of "rope_scaling": an object or null. New reference; NULL when memory is short. */
json_t *model_rope_json(const struct model_rope *rope);

/* inv_freq[i], i < head_dim/2; all above zero. seq_len counts under dynamic alone. */
void model_rope_inv_freq(const struct model_rope *rope, double theta, int64_t head_dim,
                         int64_t seq_len, float *ret_inv_freq);
/* What cos and sin are multiplied by. */
float model_rope_scale(const struct model_rope *rope);
