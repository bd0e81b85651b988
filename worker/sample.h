/* sample: one greedy answer of a model on the CPU, with a key/value cache.
 *
 * Reads {"messages":[{"role","content"}, ...], "max_tokens":n} from a stream and prints
 * {"text":"...","finish_reason":"stop"|"length","prompt_tokens":n,"completion_tokens":n}. Bytes
 * that are not UTF-8 (an untrained model's) are printed as "?". */
#pragma once
#include "common/err.h"

#include <stdio.h>

int sample_main(const char *model_dir, FILE *request, FILE *answer, struct err *err);
