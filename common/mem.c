/* mem: thin wrapper over malloc with two counters: live blocks, and allocations left until an
 * injected failure. */
#define MEM_IMPLEMENTATION /* mem.h: the functions themselves */
#include "common/mem.h"

#include "common/must.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static atomic_int_least64_t mem_blocks;
static atomic_int_least64_t mem_fault_in; /* > 0: counts down, failing at 1 */

static int mem_should_fail(void)
{
    if (atomic_load_explicit(&mem_fault_in, memory_order_relaxed) <= 0)
        return 0;
    return atomic_fetch_sub(&mem_fault_in, 1) == 1;
}

void *mem_new(size_t count, size_t size)
{
    size_t bytes = 0;
    if (__builtin_mul_overflow(count, size, &bytes) || mem_should_fail())
        return NULL;
    void *block = calloc(1, bytes > 0 ? bytes : 1);
    if (block != NULL)
        atomic_fetch_add_explicit(&mem_blocks, 1, memory_order_relaxed);
    return block;
}

void *mem_grow(void *block, size_t count, size_t size)
{
    size_t bytes = 0;
    if (__builtin_mul_overflow(count, size, &bytes) || mem_should_fail())
        return NULL;
    void *grown = realloc(block, bytes > 0 ? bytes : 1);
    if (grown != NULL && block == NULL)
        atomic_fetch_add_explicit(&mem_blocks, 1, memory_order_relaxed);
    return grown;
}

char *mem_strndup(const char *text, size_t length)
{
    char *copy = mem_new(1, length + 1);
    if (copy != NULL)
        memcpy(copy, text, length);
    return copy;
}

char *mem_strdup(const char *text)
{
    return mem_strndup(text, strlen(text));
}

char *mem_printf(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int length = vsnprintf(NULL, 0, format, args);
    va_end(args);
    must(length >= 0);
    char *text = mem_new(1, (size_t)length + 1);
    if (text == NULL)
        return NULL;
    va_start(args, format);
    (void)vsnprintf(text, (size_t)length + 1, format, args);
    va_end(args);
    return text;
}

void *mem_aligned(size_t alignment, size_t bytes)
{
    must(alignment >= sizeof(void *) && (alignment & (alignment - 1)) == 0);
    size_t rounded = 0;
    if (__builtin_add_overflow(bytes, alignment - 1, &rounded) || mem_should_fail())
        return NULL;
    rounded &= ~(alignment - 1);
    void *block = aligned_alloc(alignment, rounded > 0 ? rounded : alignment);
    if (block == NULL)
        return NULL;
    memset(block, 0, rounded);
    atomic_fetch_add_explicit(&mem_blocks, 1, memory_order_relaxed);
    return block;
}

void mem_free(void *block)
{
    if (block == NULL)
        return;
    atomic_fetch_sub_explicit(&mem_blocks, 1, memory_order_relaxed);
    free(block);
}

void mem_free_ptr(void *pointer_to_block)
{
    void *block;
    memcpy(&block, pointer_to_block, sizeof block);
    mem_free(block);
}

int mem_fail(struct err *err, size_t bytes, const char *what)
{
    return err_set(err, ERR_NOMEM, "out of host memory: %zu bytes for %s", bytes, what);
}

bool mem_fault_after(int64_t allocations)
{
    return atomic_exchange(&mem_fault_in, allocations) <= 0;
}

int64_t mem_live(void)
{
    return atomic_load(&mem_blocks);
}
