/* offload_file: see offload_file.h. io_uring's completions come in any order: waiting for a slot
 * takes in those of others on the way. A short count is finished by plain calls. */
#include "worker/offload_file.h"

#include "common/mem.h"
#include "common/mem_buffer.h"
#include "common/must.h"

#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <unistd.h>

struct offload_file_piece {
    enum offload_file_way way;
    char *memory;
    int64_t offset, bytes;
    int64_t done; /* bytes, or -errno */
    bool under_way;
};

struct offload_file {
    int fd;
    char *path;
    bool direct, ring_on;
    struct io_uring ring;
    struct offload_file_piece pieces[OFFLOAD_FILE_SLOTS];
};

static int64_t fault_countdown;
static int fault_number;
static bool plain_only;

void offload_file_fault_after(int64_t pieces, int number)
{
    fault_countdown = pieces;
    fault_number = number;
}

void offload_file_plain(bool plain)
{
    plain_only = plain;
}

/* Some filesystems refuse O_DIRECT. */
static int file_create(struct offload_file *file, struct err *err)
{
    enum { FLAGS = O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC };
    file->direct = !plain_only;
    file->fd = file->direct ? open(file->path, FLAGS | O_DIRECT, 0600) : -1;
    if (file->fd < 0) {
        file->direct = false;
        file->fd = open(file->path, FLAGS, 0600);
    }
    if (file->fd < 0)
        return err_set_errno(err, errno, "%s", file->path);
    (void)unlink(file->path); /* it stays as long as it is open */
    return 0;
}

/* Takes the space, so that a full disk is found now. */
static int file_take_space(struct offload_file *file, int64_t bytes, struct err *err)
{
    int rc;
    do {
        rc = fallocate(file->fd, 0, 0, bytes);
    } while (rc != 0 && errno == EINTR);
    if (rc != 0 && errno == EOPNOTSUPP)
        rc = ftruncate(file->fd, bytes);
    if (rc == 0)
        return 0;
    return err_set_errno(err, errno, "%s: %lld bytes for kept tensors", file->path,
                         (long long)bytes);
}

int offload_file_open(const char *path, int64_t bytes, struct offload_file **ret, struct err *err)
{
    must(bytes % MEM_FILE_ALIGN_BYTES == 0);
    struct offload_file *file = mem_new(1, sizeof *file);
    if (file == NULL)
        return mem_fail(err, sizeof *file, "a file for kept tensors");
    file->fd = -1;
    file->path = mem_strdup(path);
    int rc = file->path == NULL ? mem_fail(err, 0, "a path") : file_create(file, err);
    if (rc == 0)
        rc = file_take_space(file, bytes, err);
    if (rc != 0) {
        offload_file_close(file);
        return rc;
    }
    file->ring_on = !plain_only && io_uring_queue_init(OFFLOAD_FILE_SLOTS, &file->ring, 0) == 0;
    *ret = file;
    return 0;
}

void offload_file_close(struct offload_file *file)
{
    struct err ignored;
    if (file == NULL)
        return;
    for (int slot = 0; slot < OFFLOAD_FILE_SLOTS; slot++)
        (void)offload_file_wait(file, slot, &ignored); /* nobody reads it any more */
    if (file->ring_on)
        io_uring_queue_exit(&file->ring);
    if (file->fd >= 0)
        (void)close(file->fd); /* nothing of it is kept */
    mem_free(file->path);
    mem_free(file);
}

const char *offload_file_how(const struct offload_file *file)
{
    static const char *const texts[2][2] = {{"plain calls, buffered", "plain calls, direct"},
                                            {"io_uring, buffered", "io_uring, direct"}};
    return texts[file->ring_on][file->direct];
}

/* What is left of a piece, by plain calls. */
static void file_finish(const struct offload_file *file, struct offload_file_piece *piece)
{
    while (piece->done >= 0 && piece->done < piece->bytes) {
        char *memory = piece->memory + piece->done;
        size_t left = (size_t)(piece->bytes - piece->done);
        off_t offset = piece->offset + piece->done;
        ssize_t moved = piece->way == OFFLOAD_FILE_READ ? pread(file->fd, memory, left, offset)
                                                        : pwrite(file->fd, memory, left, offset);
        if (moved > 0)
            piece->done += moved;
        else if (moved == 0)
            piece->done = -EIO; /* the file has its size */
        else if (errno != EINTR)
            piece->done = -errno;
    }
}

static int file_submit(struct offload_file *file, int slot)
{
    struct offload_file_piece *piece = &file->pieces[slot];
    struct io_uring_sqe *sqe = io_uring_get_sqe(&file->ring);
    must(sqe != NULL); /* as many entries as slots */
    if (piece->way == OFFLOAD_FILE_READ)
        io_uring_prep_read(sqe, file->fd, piece->memory, (unsigned)piece->bytes,
                           (uint64_t)piece->offset);
    else
        io_uring_prep_write(sqe, file->fd, piece->memory, (unsigned)piece->bytes,
                            (uint64_t)piece->offset);
    io_uring_sqe_set_data64(sqe, (unsigned)slot);
    int rc;
    do {
        rc = io_uring_submit(&file->ring);
    } while (rc == -EINTR);
    return rc < 0 ? rc : 0;
}

int offload_file_start(struct offload_file *file, int slot, enum offload_file_way way, void *memory,
                       int64_t offset, int64_t bytes, struct err *err)
{
    struct offload_file_piece *piece = &file->pieces[slot];
    must(slot >= 0 && slot < OFFLOAD_FILE_SLOTS && !piece->under_way);
    must((uintptr_t)memory % MEM_FILE_ALIGN_BYTES == 0 && offset % MEM_FILE_ALIGN_BYTES == 0);
    must(bytes > 0 && bytes % MEM_FILE_ALIGN_BYTES == 0 && bytes <= UINT32_MAX);
    *piece = (struct offload_file_piece){
        .way = way, .memory = memory, .offset = offset, .bytes = bytes, .under_way = true};
    if (fault_countdown > 0 && --fault_countdown == 0)
        piece->done = -fault_number;
    if (!file->ring_on || piece->done != 0) {
        file_finish(file, piece);
        return 0;
    }
    int rc = file_submit(file, slot);
    if (rc == 0)
        return 0;
    piece->under_way = false;
    return err_set_errno(err, -rc, "%s: io_uring_submit", file->path);
}

/* Completions until the slot's is among them. */
static int file_collect(struct offload_file *file, int slot)
{
    bool found = false;
    while (!found) {
        struct io_uring_cqe *cqe = NULL;
        int rc = io_uring_wait_cqe(&file->ring, &cqe);
        if (rc == -EINTR)
            continue;
        if (rc < 0)
            return rc;
        int done = (int)io_uring_cqe_get_data64(cqe);
        must(done >= 0 && done < OFFLOAD_FILE_SLOTS);
        file->pieces[done].done = cqe->res == 0 ? -EIO : cqe->res;
        io_uring_cqe_seen(&file->ring, cqe);
        found = done == slot;
    }
    return 0;
}

int offload_file_wait(struct offload_file *file, int slot, struct err *err)
{
    struct offload_file_piece *piece = &file->pieces[slot];
    if (!piece->under_way)
        return 0;
    piece->under_way = false;
    if (file->ring_on && piece->done == 0) {
        int rc = file_collect(file, slot);
        piece->done = rc != 0 ? rc : piece->done;
    }
    if (piece->done == -EINTR || piece->done == -EAGAIN)
        piece->done = 0;
    file_finish(file, piece);
    if (piece->done == piece->bytes)
        return 0;
    return err_set_errno(err, (int)-piece->done, "%s: %s of %lld bytes at %lld", file->path,
                         piece->way == OFFLOAD_FILE_READ ? "reading" : "writing",
                         (long long)piece->bytes, (long long)piece->offset);
}
