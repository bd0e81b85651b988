/* fuzz_model_config: config.json of a model folder. What is taken is taken again when it is
 * printed, its table of tensors can be built, and its rotary frequencies are numbers. */
#include "common/limits.h"
#include "common/mem.h"
#include "common/model_config.h"
#include "common/model_shape.h"
#include "common/must.h"
#include "tests/fuzz/fuzz.h"

#include <math.h>

enum {
    HEAD_DIM_TRIED = 4096,
    LAYERS_TRIED = 64,
    SEQ_LEN_TRIED = 10000000
}; /* larger ones cost time and show no more */

static void config_shape(const struct model_config *config)
{
    struct err err;
    struct model_shape shape;
    must(model_shape_build(config, &shape, &err) == 0);
    must(shape.parameters > 0 && shape.parameters < (int64_t)1 << 60);
    for (int64_t i = 0; i < shape.row_count; i++) {
        const struct model_shape_row *row = &shape.rows[i];
        must(row->elements > 0 && row->unit >= 0 && row->unit < shape.unit_count);
        must(row->offset + row->elements <= shape.unit_elements[row->unit]);
        must(model_shape_find(&shape, row->kind, row->layer) == row);
    }
    model_shape_done(&shape);
}

static void config_frequencies(const struct model_config *config)
{
    float frequencies[HEAD_DIM_TRIED / 2];
    model_config_inv_freq(config, SEQ_LEN_TRIED, frequencies);
    for (int64_t i = 0; i < config->head_dim / 2; i++)
        must(isfinite(frequencies[i]) && frequencies[i] > 0);
}

static void config_try(const char *text, size_t size)
{
    struct err err = {.code = ERR_NONE};
    struct model_config config, again;
    CLEANUP(json_unref) json_t *json = NULL;
    int rc = json_parse(text, size, "config.json", &json, &err);
    if (rc == 0)
        rc = model_config_parse(json, "config.json", &config, &err);
    if (rc != 0) {
        fuzz_refused(rc, &err);
        return;
    }
    fuzz_taken++;
    must(config.heads * config.head_dim <= LIMIT_MODEL_WIDTH && config.heads <= LIMIT_HEADS);
    must((float)config.rms_norm_eps > 0 && isfinite((float)config.initializer_range));
    CLEANUP(json_unref) json_t *printed = model_config_json(&config);
    must(printed != NULL);
    fuzz_json_survives(printed);
    must(model_config_parse(printed, "print", &again, &err) == 0);
    CLEANUP(json_unref) json_t *reprinted = model_config_json(&again);
    must(json_equal(printed, reprinted));
    if (config.layers <= LAYERS_TRIED)
        config_shape(&config);
    if (config.head_dim <= HEAD_DIM_TRIED)
        config_frequencies(&config);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int64_t live = mem_live();
    config_try((const char *)data, size);
    must(mem_live() == live);
    return 0;
}
