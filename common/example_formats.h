/* example_formats: ShareGPT, Alpaca and prompt with completion as OpenAI's messages; tokenised rows
 * checked. Part of example. */
#pragma once
#include "common/example.h"

/* Messages in OpenAI's form, and tools or NULL; new references. False with the fault. */
bool example_formats_sharegpt(const json_t *row, json_t **ret_messages, json_t **ret_tools,
                              struct example_fault *fault);
bool example_formats_alpaca(const json_t *row, json_t **ret_messages, struct example_fault *fault);
bool example_formats_completion(const json_t *row, json_t **ret_messages,
                                struct example_fault *fault);
bool example_formats_tokens(const json_t *row, struct example *example,
                            struct example_fault *fault);
