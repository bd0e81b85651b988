/* host_pin: host memory that the GPU copies at full speed, quick to get.
 *
 * cudaMallocHost faults page by page and pins at about 2 GB/s. Here memory is mapped at a huge
 * page's boundary, huge pages are asked for, threads touch it and then register one piece each, on
 * the caller's GPU: a new thread's is the first, which would get a context of half a GiB by it. A
 * copy is cut where pieces meet: CUDA refuses one that is registered in part (device_cuda_copy).
 * Small blocks are one piece and one thread. */
#include "worker/cuda/device_cuda.h"

#include "common/must.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/mman.h>

enum { PIECES = 8 }; /* threads, each registering one */
static const size_t huge_bytes = (size_t)2 << 20, piece_bytes_min = (size_t)64 << 20;

struct host_piece {
    char *memory;
    size_t bytes;
    int device;         /* CUDA's number of the caller's */
    cudaError_t status; /* of registering */
    pthread_t thread;
};

/* Whole huge pages. */
static size_t host_total(size_t bytes)
{
    return bytes == 0 ? huge_bytes : (bytes + huge_bytes - 1) / huge_bytes * huge_bytes;
}

size_t host_pin_piece(size_t bytes)
{
    size_t each = (host_total(bytes) / PIECES + huge_bytes - 1) / huge_bytes * huge_bytes;
    return each < piece_bytes_min ? piece_bytes_min : each;
}

/* Cuts into pieces; their number. */
static int host_cut(char *memory, size_t total, struct host_piece pieces[PIECES])
{
    size_t each = host_pin_piece(total);
    int count = 0, device = 0;
    (void)cudaGetDevice(&device); /* on failure registering fails, too */
    for (size_t at = 0; at < total; at += each)
        pieces[count++] = (struct host_piece){.memory = memory + at,
                                              .bytes = total - at < each ? total - at : each,
                                              .device = device};
    must(count >= 1 && count <= PIECES);
    return count;
}

static void *host_piece_pin(void *argument)
{
    struct host_piece *piece = argument;
    for (size_t at = 0; at < piece->bytes; at += 4096)
        ((volatile char *)piece->memory)[at] = 0;
    piece->status = cudaSetDevice(piece->device);
    if (piece->status == cudaSuccess)
        piece->status = cudaHostRegister(piece->memory, piece->bytes, cudaHostRegisterPortable);
    return NULL;
}

/* Pins all pieces, in threads where there are several. 0 when all are. */
static cudaError_t host_pin_pieces(struct host_piece *pieces, int count)
{
    bool started[PIECES] = {false};
    for (int i = 1; i < count; i++)
        started[i] = pthread_create(&pieces[i].thread, NULL, host_piece_pin, &pieces[i]) == 0;
    for (int i = 0; i < count; i++)
        if (!started[i])
            (void)host_piece_pin(&pieces[i]);
    cudaError_t status = cudaSuccess;
    for (int i = 0; i < count; i++) {
        if (started[i])
            (void)pthread_join(pieces[i].thread, NULL); /* a thread of ours, not detached */
        status = pieces[i].status != cudaSuccess ? pieces[i].status : status;
    }
    for (int i = 0; i < count && status != cudaSuccess; i++)
        if (pieces[i].status == cudaSuccess)
            (void)cudaHostUnregister(pieces[i].memory);
    return status;
}

/* Maps `total` bytes at a huge page's boundary. */
static char *host_map(size_t total)
{
    char *wide =
        mmap(NULL, total + huge_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (wide == MAP_FAILED)
        return NULL;
    size_t before = (huge_bytes - (uintptr_t)wide % huge_bytes) % huge_bytes;
    if (before > 0)
        (void)munmap(wide, before);
    (void)munmap(wide + before + total, huge_bytes - before);
    (void)madvise(wide + before, total, MADV_HUGEPAGE); /* only faster */
    return wide + before;
}

void *host_pin(size_t bytes, struct err *err)
{
    struct host_piece pieces[PIECES];
    size_t total = host_total(bytes);
    char *memory = host_map(total);
    if (memory == NULL) {
        (void)err_set(err, ERR_NOMEM, "out of host memory: %zu bytes asked for", bytes);
        return NULL;
    }
    int count = host_cut(memory, total, pieces);
    cudaError_t status = host_pin_pieces(pieces, count);
    if (status == cudaSuccess)
        return memory;
    (void)munmap(memory, total);
    (void)cudaGetLastError();
    (void)err_set(err, ERR_NOMEM,
                  "%zu bytes of host memory cannot be pinned: %s (ulimit -l may be too small)",
                  bytes, cudaGetErrorString(status));
    return NULL;
}

void host_unpin(void *memory, size_t bytes)
{
    struct host_piece pieces[PIECES];
    size_t total = host_total(bytes);
    int count = host_cut(memory, total, pieces);
    for (int i = 0; i < count; i++)
        (void)cudaHostUnregister(pieces[i].memory);
    (void)munmap(memory, total);
}
