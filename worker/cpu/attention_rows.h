/* attention_rows: which keys a row sees, shared by attention's forward and backward. A rectangle is
 * one document whose rows all see its last key. */
#pragma once
#include "worker/ops.h"

/* Queries of a tile; keys too in backward. */
enum { ATTENTION_TILE = 64 };

/* The document of `row`: the largest s with doc_rows[s] <= row. Documents may be empty. */
static inline int64_t attention_document(const int64_t *doc_rows, int64_t documents, int64_t row)
{
    int64_t low = 0, high = documents;
    while (high - low > 1) {
        int64_t middle = low + (high - low) / 2;
        if (doc_rows[middle] <= row)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* ret_first[i]: first row of the document of row `row + i`. */
static inline void attention_first_keys(const int64_t *doc_rows, int64_t documents, int64_t row,
                                        int64_t count, int64_t *ret_first)
{
    int64_t document = attention_document(doc_rows, documents, row);
    for (int64_t i = 0; i < count; i++) {
        while (doc_rows[document + 1] <= row + i)
            document++;
        ret_first[i] = doc_rows[document];
    }
}

/* Columns of the tile of keys [key, key + keys) that are seen by a row whose keys are first_key to
 * last_key: [*ret_begin, *ret_end), empty when begin >= end. */
static inline void attention_visible(int64_t first_key, int64_t last_key, int64_t key, int64_t keys,
                                     int64_t *ret_begin, int64_t *ret_end)
{
    *ret_begin = first_key > key ? first_key - key : 0;
    *ret_end = last_key - key + 1 < keys ? last_key - key + 1 : keys;
}

static inline float *attention_at(const struct ops_heads *heads, int64_t head, int64_t row)
{
    return (float *)heads->data + head * heads->head_stride + row * heads->row_stride;
}
