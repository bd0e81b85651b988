/* model_published: shapes of published models by name, for planning without a checkpoint. Facts of
 * their config.json files as far as memory depends on them: rotary scaling is not among them, so
 * nothing may be trained from these. */
#pragma once
#include "common/model_config.h"

#include <stddef.h>

struct model_published {
    const char *name; /* "llama3-8b" */
    struct model_config config;
};
extern const struct model_published model_published[];
extern const size_t model_published_count;

const struct model_config *model_published_find(const char *name); /* NULL when unknown */
