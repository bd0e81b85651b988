/* mem: checked allocation, the only file that calls malloc.
 *
 * Sizes are count * size with overflow refused. All memory comes zeroed. Allocation failure is a
 * value: NULL from mem_new/mem_realloc; the caller reports ERR_NOMEM (mem_fail). Small strings and
 * structs whose loss leaves nothing sensible to do may use the *_or_die forms in command-line
 * programs and tests.
 *
 * Fault injection: mem_fault_after(n) makes the n-th allocation from now (1 = the next) return
 * NULL, once; tests use it to walk every failure path. mem_live() counts blocks not yet freed.
 *
 *     CLEANUP(mem_free_ptr) char *line = mem_new(1, length + 1); */
#pragma once
#include "common/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

void *mem_new(size_t count, size_t size); /* zeroed; NULL on failure; count*size may be 0 */
void *mem_grow(void *block, size_t count,
               size_t size);        /* realloc; new bytes are not zeroed; NULL keeps block */
char *mem_strdup(const char *text); /* NULL on failure */
char *mem_strndup(const char *text, size_t length);
char *mem_printf(const char *format, ...)
    __attribute__((format(printf, 1, 2))); /* NULL on failure */
void *mem_aligned(size_t alignment,
                  size_t bytes);           /* zeroed, alignment a power of two >= 8; mem_free */
void mem_free(void *block);                /* NULL is fine */
void mem_free_ptr(void *pointer_to_block); /* for CLEANUP on a pointer variable */

/* ERR_NOMEM with the size asked for. */
int mem_fail(struct err *err, size_t bytes, const char *what);
#if defined(__clang_analyzer__) && !defined(MEM_IMPLEMENTATION)
#define mem_fail(...) (mem_fail(__VA_ARGS__), -1) /* as in err.h */
#endif

/* 0 switches it off. Returns whether the allocation of the call before has failed: so a test knows
 * that a failure was reported, not passed over. */
bool mem_fault_after(int64_t allocations);
int64_t mem_live(void); /* blocks allocated and not freed; threads included */

#define CLEANUP(function) __attribute__((cleanup(function)))

#ifdef __cplusplus
}
#endif
