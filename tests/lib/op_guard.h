/* op_guard: a rank's operations, watched: none is given memory of the host (arena.h), whose
 * contents only copies may touch. What is before an operation on its stream happens before it, put
 * off or not (tests/lib/lazy_device.h). A rank that breaks the rule ends with status 4.
 *
 *     scene.opened = op_guard_opened;      parity_scene.h */
#pragma once
#include "worker/ops.h"
#include "worker/rank.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const struct ops *op_guard_whole;
static const char *op_guard_first, *op_guard_end; /* the host's block */

/* Words that are a flag and padding, which may be left of an address. */
#define OP_GUARD_WORD(op, flag) (offsetof(struct ops_##op, flag) / sizeof(void *))
static const struct {
    const char *op;
    size_t word;
} op_guard_flags[] = {{"gemm", OP_GUARD_WORD(gemm, trans_a)},
                      {"gemm", OP_GUARD_WORD(gemm, trans_b)},
                      {"gemm", OP_GUARD_WORD(gemm, c_f32)},
                      {"rmsnorm_bwd", OP_GUARD_WORD(rmsnorm_bwd, accumulate)},
                      {"rope", OP_GUARD_WORD(rope, inverse)},
                      {"unpack", OP_GUARD_WORD(unpack, in_f32)},
                      {"add", OP_GUARD_WORD(add, f32)},
                      {"cast", OP_GUARD_WORD(cast, to_act)},
                      {"dropout", OP_GUARD_WORD(dropout, accumulate)}};

static inline bool op_guard_is_flag(const char *op, size_t word)
{
    size_t i = 0;
    while (i < sizeof op_guard_flags / sizeof op_guard_flags[0] &&
           (strcmp(op_guard_flags[i].op, op) != 0 || op_guard_flags[i].word != word))
        i++;
    return i < sizeof op_guard_flags / sizeof op_guard_flags[0];
}

/* No word of an operation's arguments is an address in the host's block. */
static inline void op_guard_check(const char *op, const void *args, size_t bytes)
{
    for (size_t at = 0; at + sizeof(void *) <= bytes; at += sizeof(void *)) {
        const char *word;
        memcpy(&word, (const char *)args + at, sizeof word);
        bool host = word >= op_guard_first && word < op_guard_end;
        if (host && !op_guard_is_flag(op, at / sizeof word)) {
            (void)fprintf(stderr, "%s was given memory of the host, in word %zu\n", op,
                          at / sizeof word);
            _exit(4);
        }
    }
}

#define X(op)                                                                     \
    static inline int op_guard_##op(struct device *device, struct stream *stream, \
                                    const struct ops_##op *args, struct err *err) \
    {                                                                             \
        op_guard_check(#op, args, sizeof *args);                                  \
        if (stream != NULL)                                                       \
            TRY(device->dev->sync(device, stream, err));                          \
        return op_guard_whole->op(device, stream, args, err);                     \
    }
OPS_TABLE(X)
#undef X

static inline void op_guard_opened(struct rank *rank)
{
#define X(op) .op = op_guard_##op,
    static const struct ops guarded = { OPS_TABLE(X) };
#undef X
    const struct arena_block *host = &rank->arena.blocks[MEM_ARENA_HOST];
    must(host->bytes > 0);
    op_guard_first = host->memory;
    op_guard_end = op_guard_first + host->bytes;
    op_guard_whole = rank->device->ops;
    rank->device->ops = &guarded;
}
