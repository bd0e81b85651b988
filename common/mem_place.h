/* mem_place: offsets for buffers that share one block. Two buffers that are needed in a common
 * phase never overlap; others may lie upon each other. Best fit: one after the other, each into the
 * smallest gap between those it must not touch. */
#pragma once
#include "common/err.h"
#include "common/mem_buffer.h"

#include <stdbool.h>

/* Sets `offset` of the buffers of that arena, leaves others; *ret_bytes: size of the block. Their
 * sizes add up to less than 2^63. */
int mem_place(struct mem_buffer *buffers, int64_t count, enum mem_arena arena, int64_t *ret_bytes,
              struct err *err);
/* Whether no two buffers of the arena that are needed at once overlap, and all lie in the block. */
bool mem_place_check(const struct mem_buffer *buffers, int64_t count, enum mem_arena arena,
                     int64_t bytes);
