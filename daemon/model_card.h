/* model_card: what GET /v1/models tells of a model folder beyond its name: can it be used, and if
 * not why; its size; its context; how its attention heads may be shared.
 *
 *     {"ready":true,"reason":null,"family":"llama","parameters":8030261248,"context_length":131072,
 *      "ulysses":[1,2,4,8,16,32]}
 *
 * Cheap: config.json and the index are read, weights are only looked for. What is in them is
 * checked when a job is prepared. */
#pragma once
#include "common/json.h"

struct settings;

json_t *model_card(const struct settings *settings,
                   const char *model_dir); /* new reference; NULL: no memory */
