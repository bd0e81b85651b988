/* embed_sort: tokens in the order of their ids, those of one id in the order of tokens. */
#pragma once
#include <cuda_runtime_api.h>
#include <stdint.h>

enum { EMBED_SORT_BATCH = 65536 }; /* tokens of a list */
#define EMBED_KEY_NONE UINT64_MAX  /* no key: after all others */

/* keys: (tokens), a sorted list for each EMBED_SORT_BATCH tokens, the last may be shorter. A key's
 * token counts from the start of its list. */
void embed_sort(const int32_t *ids, int64_t tokens, int64_t vocab, uint64_t *keys,
                cudaStream_t stream);

static __device__ __forceinline__ uint32_t embed_key_id(uint64_t key)
{
    return (uint32_t)(key >> 32);
}
static __device__ __forceinline__ int64_t embed_key_token(uint64_t key)
{
    return (int64_t)(uint32_t)key;
}
