/* model_roots: the base models in the folders of the setting model_roots.
 *
 *     <root>/<name>/                                    "name"
 *     <root>/<org>/<name>/                              "org/name"
 *     <root>/models--<org>--<name>/snapshots/<revision>/   "org/name": the cache of Hugging Face's
 *                                                       own tools; the revision in refs/main
 *
 * A model is a folder with a config.json or with weights (model.safetensors, or its index); a
 * folder without is looked into once. Names are made of what route_is_name() takes, others are
 * passed over. Nothing is read but refs/main. */
#pragma once
#include "common/err.h"

#include <stdint.h>

struct settings;

/* name and dir last for the call. Non-zero ends the walk and is returned by it. */
typedef int model_roots_fn(void *context, const char *name, const char *dir, int64_t created_ms,
                           struct err *err);

/* All roots in order, folders in no order; a root that cannot be read is passed over (/readyz tells
 * of it). A name may come twice: the first counts. */
int model_roots_walk(const struct settings *settings, model_roots_fn *found, void *context,
                     struct err *err);
