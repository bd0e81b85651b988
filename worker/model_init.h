/* model_init: the built-in models: random weights, config and tokenizer as a Hugging Face folder.
 * The folder appears whole; one that exists is kept (ERR_IN_USE). */
#pragma once
#include "common/err.h"
#include "common/model_config.h"

#include <stdint.h>

int model_init_builtin(const char *name, const char *dir, uint64_t seed, struct err *err);
/* The same for any shape (tests): weights and config.json into an existing folder. */
int model_init_weights(const struct model_config *config, const char *dir, uint64_t seed,
                       struct err *err);
