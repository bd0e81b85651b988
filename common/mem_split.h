/* mem_split: how attention of many rows is cut into calls of fewer on a GPU
 * (worker/attention_split.h), and the scratch that this takes: the plan counts it, the operation
 * uses it.
 *
 * Forward reads keys and values over and over: 32K keys of size 128 are 16 MB, which the L2 cache
 * of a Hopper (50 MB) holds. At 1M tokens, one head, cuDNN 9.19 on an H200 at its power cap
 * (bench_attention_parts, 2026-11-30): one call 454 to 464 TF/s; 32K rows by 32K keys 590, 64K by
 * 32K 587, 128K by 32K 584, 256K by 16K, 32K, 64K, 128K 557 to 563, 512K by 32K 522. Backward gains
 * no speed (one call 529, 128K by 128K 528, 32K by 32K 519), but its scratch stops growing with the
 * sequence. */
#pragma once
#include <stdint.h>

enum {
    MEM_SPLIT_LONGEST = 64 << 10,
    MEM_SPLIT_PART = 32 << 10, /* rows, and keys */
    MEM_SPLIT_BWD_LONGEST = 256 << 10,
    MEM_SPLIT_BWD_PART = 128 << 10,
    MEM_SPLIT_ALIGN = 256
};

struct mem_split {
    int64_t longest; /* rows of a document, or of a rectangle, that is one call */
    int64_t rows;    /* of a part */
    int64_t keys;    /* of a part, at most */
};

static inline struct mem_split mem_split_forward(void)
{
    return (struct mem_split){MEM_SPLIT_LONGEST, MEM_SPLIT_PART, MEM_SPLIT_PART};
}

static inline struct mem_split mem_split_backward(void)
{
    return (struct mem_split){MEM_SPLIT_BWD_LONGEST, MEM_SPLIT_BWD_PART, MEM_SPLIT_BWD_PART};
}

static inline int64_t mem_split_room(int64_t elements, int64_t bytes)
{
    return (elements * bytes + MEM_SPLIT_ALIGN - 1) / MEM_SPLIT_ALIGN * MEM_SPLIT_ALIGN;
}

/* Of a forward call: sums of O in fp32, a part's O and LSE. */
static inline int64_t mem_split_bytes(const struct mem_split *sizes, int64_t q_heads,
                                      int64_t head_dim, int64_t act_bytes)
{
    int64_t rows = q_heads * sizes->rows;
    return mem_split_room(rows * head_dim, 4) + mem_split_room(rows * head_dim, act_bytes) +
           mem_split_room(rows, 4);
}
