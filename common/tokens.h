/* tokens: a growing list of token ids, each with its loss flag. Zeroed memory is an empty list.
 *
 *     struct tokens tokens = {0};
 *     TRY(tokens_push(&tokens, id, true, err));
 *     ...
 *     tokens_done(&tokens); */
#pragma once
#include "common/err.h"

#include <stdbool.h>
#include <stdint.h>

struct tokens {
    int32_t *ids;     /* (count); owned */
    uint8_t *trained; /* (count) 1: this token is a target with loss; owned */
    int64_t count;
    int64_t capacity;
};

void tokens_done(struct tokens *tokens);
/* Room for `count` more. */
int tokens_reserve(struct tokens *tokens, int64_t count, struct err *err);
int tokens_push(struct tokens *tokens, int32_t id, bool trained, struct err *err);
