/* tokenizer_bpe: both tables are open-addressed hashes of twice their entries or more, filled once.
 *
 * Short words (nearly all) are merged in an array: find the lowest rank, join, close the gap; the
 * square of a few bytes is less than any bookkeeping. Long ones are a doubly linked list with a
 * heap of (rank, position), n log n: each entry remembers its two ids and is dropped when the list
 * no longer has them there. A join takes an entry from the heap and adds at most two, so 2n entries
 * are enough. */
#include "common/tokenizer_bpe.h"

#include "common/io.h"
#include "common/limits.h"
#include "common/mem.h"
#include "common/must.h"

#include <string.h>

enum {
    BPE_SHORT = 40,            /* bytes: above, the heap is faster */
    BPE_HEAP_WAYS = 8,         /* children of a node: a cache line of them */
    BPE_SCRATCH_KEPT = 1 << 20 /* bytes kept from one long word to the next */
};

static size_t bpe_mask(size_t entries)
{
    size_t slots = 16;
    while (slots < entries * 2)
        slots *= 2;
    return slots - 1;
}

int tokenizer_bpe_init(struct tokenizer_bpe *bpe, int64_t vocab, size_t bytes_max,
                       size_t merge_count, struct err *err)
{
    must(vocab > 0 && vocab <= LIMIT_VOCAB && bytes_max < UINT32_MAX);
    *bpe = (struct tokenizer_bpe){.vocab = vocab, .bytes_max = bytes_max};
    bpe->words_mask = bpe_mask((size_t)vocab);
    bpe->merges_mask = bpe_mask(merge_count);
    bpe->tokens = mem_new((size_t)vocab, sizeof *bpe->tokens);
    bpe->bytes = mem_new(bytes_max, 1);
    bpe->words = mem_new(bpe->words_mask + 1, sizeof *bpe->words);
    bpe->merges = mem_new(bpe->merges_mask + 1, sizeof *bpe->merges);
    if (bpe->tokens == NULL || bpe->bytes == NULL || bpe->words == NULL || bpe->merges == NULL) {
        tokenizer_bpe_done(bpe);
        return mem_fail(err, bytes_max, "a vocabulary");
    }
    for (size_t i = 0; i <= bpe->words_mask; i++)
        bpe->words[i] = -1;
    for (size_t i = 0; i <= bpe->merges_mask; i++)
        bpe->merges[i].id = -1;
    return 0;
}

void tokenizer_bpe_done(struct tokenizer_bpe *bpe)
{
    mem_free(bpe->tokens);
    mem_free(bpe->bytes);
    mem_free(bpe->words);
    mem_free(bpe->merges);
    *bpe = (struct tokenizer_bpe){0};
}

/* The slot that holds these bytes, or the empty one where they would be. */
static size_t bpe_word_slot(const struct tokenizer_bpe *bpe, const char *bytes, size_t length)
{
    size_t slot = (size_t)io_hash64(bytes, length) & bpe->words_mask;
    for (; bpe->words[slot] >= 0; slot = (slot + 1) & bpe->words_mask) {
        const struct bpe_token *token = &bpe->tokens[bpe->words[slot]];
        if (token->length == length && memcmp(bpe->bytes + token->start, bytes, length) == 0)
            break;
    }
    return slot;
}

bool tokenizer_bpe_add(struct tokenizer_bpe *bpe, int32_t id, const char *bytes, size_t length,
                       bool reachable)
{
    must(id >= 0 && id < bpe->vocab && length > 0);
    must(length <= bpe->bytes_max - bpe->bytes_used);
    size_t slot = reachable ? bpe_word_slot(bpe, bytes, length) : 0;
    if (bpe->tokens[id].length > 0 || (reachable && bpe->words[slot] >= 0))
        return false;
    if (reachable)
        bpe->words[slot] = id;
    memcpy(bpe->bytes + bpe->bytes_used, bytes, length);
    bpe->tokens[id] =
        (struct bpe_token){.start = (uint32_t)bpe->bytes_used, .length = (uint32_t)length};
    bpe->bytes_used += length;
    return true;
}

int32_t tokenizer_bpe_find(const struct tokenizer_bpe *bpe, const char *bytes, size_t length)
{
    return bpe->words[bpe_word_slot(bpe, bytes, length)];
}

static uint64_t bpe_pair(int32_t left, int32_t right)
{
    return (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
}

/* The slot that holds this pair, or the empty one where it would be. Fibonacci hashing (Knuth, The
 * Art of Computer Programming 3, section 6.4). */
static size_t bpe_merge_slot(const struct tokenizer_bpe *bpe, uint64_t pair)
{
    size_t slot = (size_t)((pair * 0x9e3779b97f4a7c15U) >> 32) & bpe->merges_mask;
    while (bpe->merges[slot].id >= 0 && bpe->merges[slot].pair != pair)
        slot = (slot + 1) & bpe->merges_mask;
    return slot;
}

void tokenizer_bpe_add_merge(struct tokenizer_bpe *bpe, int32_t left, int32_t right, int32_t rank,
                             int32_t id)
{
    must(id >= 0 && rank >= 0);
    uint64_t pair = bpe_pair(left, right);
    bpe->merges[bpe_merge_slot(bpe, pair)] =
        (struct bpe_merge){.pair = pair, .rank = rank, .id = id};
}

/* Rank of joining two ids, INT32_MAX where they have no merge. */
static int32_t bpe_rank(const struct tokenizer_bpe *bpe, int32_t left, int32_t right,
                        int32_t *ret_id)
{
    const struct bpe_merge *merge = &bpe->merges[bpe_merge_slot(bpe, bpe_pair(left, right))];
    *ret_id = merge->id;
    return merge->id >= 0 ? merge->rank : INT32_MAX;
}

/* ---- short words ---- */

static int bpe_short(const struct tokenizer_bpe *bpe, const char *word, size_t length,
                     struct tokens *tokens, struct err *err)
{
    int32_t ids[BPE_SHORT];
    int32_t joined[BPE_SHORT]; /* joined[i]: what i and i + 1 become */
    int32_t ranks[BPE_SHORT];
    size_t count = length;
    for (size_t i = 0; i < count; i++)
        ids[i] = bpe->byte_ids[(unsigned char)word[i]];
    for (size_t i = 0; i + 1 < count; i++)
        ranks[i] = bpe_rank(bpe, ids[i], ids[i + 1], &joined[i]);
    while (count > 1) {
        size_t best = 0;
        for (size_t i = 1; i + 1 < count; i++)
            if (ranks[i] < ranks[best])
                best = i;
        if (ranks[best] == INT32_MAX)
            break;
        ids[best] = joined[best];
        count--;
        size_t moved = count - best - 1;
        memmove(ids + best + 1, ids + best + 2, moved * sizeof *ids);
        if (moved > 0) {
            memmove(ranks + best + 1, ranks + best + 2, (moved - 1) * sizeof *ranks);
            memmove(joined + best + 1, joined + best + 2, (moved - 1) * sizeof *joined);
            ranks[best] = bpe_rank(bpe, ids[best], ids[best + 1], &joined[best]);
        }
        if (best > 0)
            ranks[best - 1] = bpe_rank(bpe, ids[best - 1], ids[best], &joined[best - 1]);
    }
    for (size_t i = 0; i < count; i++)
        TRY(tokens_push(tokens, ids[i], false, err));
    return 0;
}

/* ---- long words ---- */

struct bpe_node {
    int32_t id;
    int32_t before, after; /* positions; -1: none */
    int32_t rank;          /* of joining with the one after; INT32_MAX: never */
    int32_t joined;        /* what the two become */
};
struct bpe_heap {
    uint64_t *entries; /* (count), a heap of rank * 2^32 + position, the lowest first */
    size_t count;
    size_t capacity;
};

static void bpe_heap_sink(struct bpe_heap *heap, size_t at)
{
    uint64_t entry = heap->entries[at];
    for (size_t child; (child = BPE_HEAP_WAYS * at + 1) < heap->count; at = child) {
        size_t last = child + BPE_HEAP_WAYS <= heap->count ? child + BPE_HEAP_WAYS : heap->count;
        for (size_t other = child + 1; other < last; other++)
            if (heap->entries[other] < heap->entries[child])
                child = other;
        if (entry <= heap->entries[child])
            break;
        heap->entries[at] = heap->entries[child];
    }
    heap->entries[at] = entry;
}

static void bpe_heap_push(struct bpe_heap *heap, uint64_t entry)
{
    must(heap->count < heap->capacity);
    size_t at = heap->count++;
    for (size_t up; at > 0 && heap->entries[up = (at - 1) / BPE_HEAP_WAYS] > entry; at = up)
        heap->entries[at] = heap->entries[up];
    heap->entries[at] = entry;
}

static uint64_t bpe_heap_pop(struct bpe_heap *heap)
{
    uint64_t top = heap->entries[0];
    heap->entries[0] = heap->entries[--heap->count];
    if (heap->count > 0)
        bpe_heap_sink(heap, 0);
    return top;
}

/* Rank of a node with the one after it; true when they have a merge. */
static bool bpe_rank_node(const struct tokenizer_bpe *bpe, struct bpe_node *nodes, int32_t at,
                          uint64_t *ret_entry)
{
    struct bpe_node *node = &nodes[at];
    node->rank =
        node->after < 0 ? INT32_MAX : bpe_rank(bpe, node->id, nodes[node->after].id, &node->joined);
    *ret_entry = (uint64_t)(uint32_t)node->rank << 32 | (uint32_t)at;
    return node->rank != INT32_MAX;
}

static void bpe_join_all(const struct tokenizer_bpe *bpe, struct bpe_node *nodes,
                         struct bpe_heap *heap)
{
    while (heap->count > 0) {
        uint64_t entry = bpe_heap_pop(heap);
        int32_t at = (int32_t)(uint32_t)entry;
        struct bpe_node *node = &nodes[at];
        if (node->rank != (int32_t)(entry >> 32))
            continue; /* one of the two was joined meanwhile */
        struct bpe_node *gone = &nodes[node->after];
        node->id = node->joined;
        node->after = gone->after;
        gone->rank = INT32_MAX;
        if (node->after >= 0)
            nodes[node->after].before = at;
        if (bpe_rank_node(bpe, nodes, at, &entry))
            bpe_heap_push(heap, entry);
        if (node->before >= 0 && bpe_rank_node(bpe, nodes, node->before, &entry))
            bpe_heap_push(heap, entry);
    }
}

static int bpe_long(const struct tokenizer_bpe *bpe, struct bpe_scratch *scratch, const char *word,
                    size_t length, struct tokens *tokens, struct err *err)
{
    size_t heap_bytes = 2 * length * sizeof(uint64_t);
    size_t bytes = heap_bytes + length * sizeof(struct bpe_node);
    if (scratch->bytes < bytes) {
        tokenizer_bpe_scratch_done(scratch);
        scratch->block = mem_new(1, bytes);
        if (scratch->block == NULL)
            return mem_fail(err, bytes, "a long word");
        scratch->bytes = bytes;
    }
    struct bpe_heap heap = {.entries = scratch->block, .capacity = 2 * length};
    struct bpe_node *nodes = (struct bpe_node *)(void *)((char *)scratch->block + heap_bytes);
    int32_t count = (int32_t)length;
    for (int32_t i = 0; i < count; i++)
        nodes[i] = (struct bpe_node){.id = bpe->byte_ids[(unsigned char)word[i]],
                                     .before = i - 1,
                                     .after = i + 1 < count ? i + 1 : -1};
    for (int32_t i = 0; i < count; i++)
        heap.count += bpe_rank_node(bpe, nodes, i, &heap.entries[heap.count]);
    for (size_t at = heap.count / BPE_HEAP_WAYS + 1; at-- > 0;)
        bpe_heap_sink(&heap, at);
    bpe_join_all(bpe, nodes, &heap);
    for (int32_t at = 0; at >= 0; at = nodes[at].after)
        TRY(tokens_push(tokens, nodes[at].id, false, err));
    if (scratch->bytes > BPE_SCRATCH_KEPT)
        tokenizer_bpe_scratch_done(scratch);
    return 0;
}

void tokenizer_bpe_scratch_done(struct bpe_scratch *scratch)
{
    mem_free(scratch->block);
    *scratch = (struct bpe_scratch){0};
}

int tokenizer_bpe_word(const struct tokenizer_bpe *bpe, struct bpe_scratch *scratch,
                       const char *word, size_t length, struct tokens *tokens, struct err *err)
{
    must(length > 0 && length <= LIMIT_WORD_BYTES);
    if (length <= BPE_SHORT)
        return bpe_short(bpe, word, length, tokens, err);
    return bpe_long(bpe, scratch, word, length, tokens, err);
}
