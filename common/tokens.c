/* tokens: two arrays that grow together, by half as much again. */
#include "common/tokens.h"

#include "common/mem.h"
#include "common/must.h"

enum { TOKENS_FIRST = 64 };

void tokens_done(struct tokens *tokens)
{
    mem_free(tokens->ids);
    mem_free(tokens->trained);
    *tokens = (struct tokens){0};
}

int tokens_reserve(struct tokens *tokens, int64_t count, struct err *err)
{
    must(count >= 0 && count <= INT64_MAX / 16 - tokens->count);
    int64_t wanted = tokens->count + count;
    if (wanted <= tokens->capacity)
        return 0;
    int64_t capacity = tokens->capacity + tokens->capacity / 2 + TOKENS_FIRST;
    if (capacity < wanted)
        capacity = wanted;
    int32_t *ids = mem_grow(tokens->ids, (size_t)capacity, sizeof *ids);
    if (ids != NULL)
        tokens->ids = ids;
    uint8_t *trained = mem_grow(tokens->trained, (size_t)capacity, sizeof *trained);
    if (trained != NULL)
        tokens->trained = trained;
    if (ids == NULL || trained == NULL)
        return mem_fail(err, (size_t)capacity * 5, "a list of tokens");
    tokens->capacity = capacity;
    return 0;
}

int tokens_push(struct tokens *tokens, int32_t id, bool trained, struct err *err)
{
    TRY(tokens_reserve(tokens, 1, err));
    tokens->ids[tokens->count] = id;
    tokens->trained[tokens->count++] = trained;
    return 0;
}
