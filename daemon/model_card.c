/* model_card: see model_card.h. */
#include "daemon/model_card.h"

#include "common/io.h"
#include "common/limits.h"
#include "common/mem.h"
#include "common/mesh.h"
#include "common/model_shape.h"
#include "daemon/public_text.h"

#include <string.h>

enum { CARD_INDEX_BYTES = 4 << 20 }; /* of an index; a 405B model has 90 KB */

/* Every file that the index names is there. */
static int card_check_index(const char *model_dir, const char *path, struct err *err)
{
    CLEANUP(json_unref) json_t *index = NULL;
    TRY(json_parse_file(path, CARD_INDEX_BYTES, &index, err));
    const char *tensor, *last = "";
    const json_t *value;
    json_object_foreach(json_object_get(index, "weight_map"), tensor, value)
    {
        const char *name = json_string_value(value);
        if (name != NULL && strcmp(name, last) == 0)
            continue;
        CLEANUP(mem_free_ptr) char *file = name != NULL ? io_join(model_dir, name) : NULL;
        if (file == NULL || strchr(name, '/') != NULL || !io_exists(file))
            return err_set(err, ERR_MODEL, "%s names %.200s, which is not in the folder", path,
                           name != NULL ? name : "no file");
        last = name;
    }
    return 0;
}

static int card_check_weights(const char *model_dir, struct err *err)
{
    CLEANUP(mem_free_ptr) char *single = io_join(model_dir, "model.safetensors");
    CLEANUP(mem_free_ptr) char *index = io_join(model_dir, "model.safetensors.index.json");
    if (single == NULL || index == NULL)
        return mem_fail(err, LIMIT_PATH_BYTES, "a path");
    if (io_exists(single))
        return 0;
    if (io_exists(index))
        return card_check_index(model_dir, index, err);
    return err_set(err, ERR_MODEL,
                   "%s: neither model.safetensors nor model.safetensors.index.json is there; other "
                   "formats must be converted",
                   model_dir);
}

/* What it says is the preparation's business. */
static int card_check_tokenizer(const char *model_dir, struct err *err)
{
    CLEANUP(mem_free_ptr) char *tokenizer = io_join(model_dir, "tokenizer.json");
    if (tokenizer == NULL)
        return mem_fail(err, LIMIT_PATH_BYTES, "a path");
    if (io_exists(tokenizer))
        return 0;
    return err_set(err, ERR_MODEL, "%s: there is no tokenizer.json; download it too", model_dir);
}

static json_t *card_degrees(const struct model_config *config)
{
    json_t *degrees = json_array();
    for (int64_t ulysses = 1; ulysses <= LIMIT_RANKS; ulysses++)
        if (mesh_ulysses_legal(config->heads, config->kv_heads, ulysses) &&
            json_array_append_new(degrees, json_integer(ulysses)) != 0) {
            json_decref(degrees);
            return NULL;
        }
    return degrees;
}

static int card_read(const char *model_dir, struct model_config *ret_config,
                     int64_t *ret_parameters, struct err *err)
{
    CLEANUP(model_shape_done) struct model_shape shape = {.rows = NULL};
    TRY(model_config_load(model_dir, ret_config, err));
    TRY(model_shape_build(ret_config, &shape, err));
    *ret_parameters = shape.parameters;
    TRY(card_check_weights(model_dir, err));
    return card_check_tokenizer(model_dir, err);
}

json_t *model_card(const struct settings *settings, const char *model_dir)
{
    struct model_config config;
    struct err err;
    int64_t parameters = 0;
    if (card_read(model_dir, &config, &parameters, &err) != 0) {
        public_text(settings, err.text);
        return json_pack("{s:b, s:s, s:n, s:n, s:n, s:n}", "ready", 0, "reason", err.text, "family",
                         "parameters", "context_length", "ulysses");
    }
    return json_pack("{s:b, s:n, s:s, s:I, s:I, s:o}", "ready", 1, "reason", "family",
                     model_family_name(config.family), "parameters", (json_int_t)parameters,
                     "context_length", (json_int_t)config.context_max, "ulysses",
                     card_degrees(&config));
}
