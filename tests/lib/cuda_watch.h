/* cuda_watch: counts the calls by which a process takes memory of the CUDA driver, its own and its
 * libraries' (cuBLASLt, cuDNN, NCCL), each of which has a runtime of its own linked in: all of them
 * find the driver's entry points with dlsym() and cuGetProcAddress(). The program that includes
 * this defines dlsym() itself, before the C library's, and hands out entry points that count. For a
 * program's one source file; not under sanitizers, which start before anything can count.
 *
 *     struct cuda_watch watch = {0};      may lie in memory shared with other processes
 *     cuda_watch_on = &watch;             of this process
 *     watch.ready = 1;                    from here on a call is a fault
 *     watch.early, watch.late, watch.last */
#pragma once
#include "common/must.h"

#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct cuda_watch {
    int ready;       /* set by the test: calls count as late */
    int early, late; /* calls seen */
    char last[48];   /* the last late one */
};
static struct cuda_watch *cuda_watch_on;

/* Each takes at most five words. */
#define CUDA_WATCH_TABLE(X)    \
    X(cuMemAlloc)              \
    X(cuMemAllocPitch)         \
    X(cuMemAllocManaged)       \
    X(cuMemAllocAsync)         \
    X(cuMemAllocFromPoolAsync) \
    X(cuMemCreate)             \
    X(cuMemAllocHost)          \
    X(cuMemHostAlloc)          \
    X(cuMemHostRegister)
typedef int (*cuda_watch_call)(uintptr_t a, uintptr_t b, uintptr_t c, uintptr_t d, uintptr_t e);

static void cuda_watch_count(const char *name)
{
    struct cuda_watch *watch = cuda_watch_on;
    if (watch == NULL)
        return;
    if (watch->ready == 0) {
        (void)__atomic_add_fetch(&watch->early, 1, __ATOMIC_RELAXED);
        return;
    }
    (void)__atomic_add_fetch(&watch->late, 1, __ATOMIC_RELAXED);
    for (size_t i = 0; i + 1 < sizeof watch->last && (i == 0 || name[i - 1] != '\0'); i++)
        watch->last[i] = name[i];
}

#define X(name)                                                                                   \
    static cuda_watch_call cuda_watch_real_##name;                                                \
    static int cuda_watch_##name(uintptr_t a, uintptr_t b, uintptr_t c, uintptr_t d, uintptr_t e) \
    {                                                                                             \
        cuda_watch_count(#name);                                                                  \
        return cuda_watch_real_##name(a, b, c, d, e);                                             \
    }
CUDA_WATCH_TABLE(X)
#undef X

static int (*cuda_watch_real_find)(const char *name, void **ret, int version, uint64_t flags,
                                   void *status);
static int cuda_watch_find(const char *name, void **ret, int version, uint64_t flags, void *status);

/* Whether `name` is `base` or a version of it, "_v2". */
static int cuda_watch_is(const char *name, const char *base)
{
    size_t length = strlen(base);
    return strncmp(name, base, length) == 0 &&
           (name[length] == '\0' || strncmp(name + length, "_v", 2) == 0);
}

/* What to hand out in place of an entry point of the driver's. */
static void *cuda_watch_replace(const char *name, void *real)
{
    if (real == NULL || strncmp(name, "cu", 2) != 0)
        return real;
    if (cuda_watch_is(name, "cuGetProcAddress")) { /* the older has no fifth argument to pass on */
        memcpy(&cuda_watch_real_find, &real, sizeof real);
        int (*mine)(const char *, void **, int, uint64_t, void *) = cuda_watch_find;
        memcpy(&real, &mine, sizeof real);
        return real;
    }
#define X(watched)                                              \
    if (cuda_watch_is(name, #watched)) {                        \
        memcpy(&cuda_watch_real_##watched, &real, sizeof real); \
        cuda_watch_call mine = cuda_watch_##watched;            \
        memcpy(&real, &mine, sizeof real);                      \
        return real;                                            \
    }
    CUDA_WATCH_TABLE(X)
#undef X
    return real;
}

static int cuda_watch_find(const char *name, void **ret, int version, uint64_t flags, void *status)
{
    int rc = cuda_watch_real_find(name, ret, version, flags, status);
    if (rc == 0)
        *ret = cuda_watch_replace(name, *ret);
    return rc;
}

void *dlsym(void *restrict handle, const char *restrict name)
{
    static void *(*real)(void *, const char *);
    if (real == NULL) {
        void *found = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.34");
        must(found != NULL);
        memcpy(&real, &found, sizeof found);
    }
    return cuda_watch_replace(name, real(handle, name));
}
