/* failing_calls: loaded before the C library (LD_PRELOAD), it makes one system call of a program
 * fail. ITHACA_FAILING_CALLS names a file of a struct failing_calls, which whoever runs the program
 * maps too: it says which kind of call fails, how many calls from now, and with what error.
 * failing_calls.py has the same layout. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

/* The order of KINDS in failing_calls.py. */
enum kind { OPEN, WRITE, SYNC, RENAME, SPAWN, MMAP, ACCEPT, READ, TIMER, WATCH, KINDS };

struct failing_calls {
    int32_t kind;   /* that fails */
    int32_t after;  /* calls of the kind until then, itself included; 0: none fails */
    int32_t errnum; /* with what */
    int32_t fired;  /* times that one has failed */
    int32_t calls[KINDS];
};

static struct failing_calls *control;

__attribute__((constructor)) static void failing_calls_map(void)
{
    const char *path = getenv("ITHACA_FAILING_CALLS");
    FILE *file = path != NULL ? fopen(path, "r+e") : NULL;
    if (file == NULL)
        return;
    void *(*map)(void *, size_t, int, int, int, off_t) =
        (void *(*)(void *, size_t, int, int, int, off_t))dlsym(RTLD_NEXT, "mmap");
    void *mapped = map(NULL, sizeof *control, PROT_READ | PROT_WRITE, MAP_SHARED, fileno(file), 0);
    (void)fclose(file); /* the mapping stays */
    if (mapped != MAP_FAILED)
        control = mapped;
}

/* Whether this call is the one; errno is set then. */
static bool fails(enum kind kind)
{
    if (control == NULL)
        return false;
    __atomic_add_fetch(&control->calls[kind], 1, __ATOMIC_RELAXED);
    if (control->after <= 0 || control->kind != (int32_t)kind ||
        __atomic_sub_fetch(&control->after, 1, __ATOMIC_RELAXED) != 0)
        return false;
    control->fired++;
    errno = control->errnum;
    return true;
}

#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
#define OPENS(name, parameters, ...)                                                   \
    int name parameters                                                                \
    {                                                                                  \
        va_list rest;                                                                  \
        va_start(rest, flags);                                                         \
        mode_t mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(rest, mode_t) : 0; \
        va_end(rest);                                                                  \
        return fails(OPEN) ? -1 : NEXT(name)(__VA_ARGS__, flags, mode);                \
    }

OPENS(open, (const char *path, int flags, ...), path)
OPENS(open64, (const char *path, int flags, ...), path)
OPENS(openat, (int folder, const char *path, int flags, ...), folder, path)
OPENS(openat64, (int folder, const char *path, int flags, ...), folder, path)

ssize_t write(int fd, const void *bytes, size_t length)
{
    return fails(WRITE) ? -1 : NEXT(write)(fd, bytes, length);
}

ssize_t pwrite(int fd, const void *bytes, size_t length, off_t at)
{
    return fails(WRITE) ? -1 : NEXT(pwrite)(fd, bytes, length, at);
}

ssize_t pwrite64(int fd, const void *bytes, size_t length, off64_t at)
{
    return fails(WRITE) ? -1 : NEXT(pwrite64)(fd, bytes, length, at);
}

int fsync(int fd)
{
    return fails(SYNC) ? -1 : NEXT(fsync)(fd);
}

int fdatasync(int fd)
{
    return fails(SYNC) ? -1 : NEXT(fdatasync)(fd);
}

int rename(const char *from, const char *to)
{
    return fails(RENAME) ? -1 : NEXT(rename)(from, to);
}

pid_t fork(void)
{
    return fails(SPAWN) ? -1 : NEXT(fork)();
}

void *mmap(void *at, size_t length, int protection, int flags, int fd, off_t offset)
{
    return fails(MMAP) ? MAP_FAILED : NEXT(mmap)(at, length, protection, flags, fd, offset);
}

void *mmap64(void *at, size_t length, int protection, int flags, int fd, off64_t offset)
{
    return fails(MMAP) ? MAP_FAILED : NEXT(mmap64)(at, length, protection, flags, fd, offset);
}

int accept4(int fd, struct sockaddr *address, socklen_t *size, int flags)
{
    return fails(ACCEPT) ? -1 : NEXT(accept4)(fd, address, size, flags);
}

ssize_t read(int fd, void *bytes, size_t length)
{
    return fails(READ) ? -1 : NEXT(read)(fd, bytes, length);
}

int timerfd_create(clockid_t clock, int flags)
{
    return fails(TIMER) ? -1 : NEXT(timerfd_create)(clock, flags);
}

int epoll_ctl(int epoll, int operation, int fd, struct epoll_event *event)
{
    return operation != EPOLL_CTL_DEL && fails(WATCH)
               ? -1
               : NEXT(epoll_ctl)(epoll, operation, fd, event);
}
