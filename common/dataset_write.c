/* dataset, the writer. How many examples there will be is known at the end, but their offsets stand
 * first; so offsets, ids and flags grow in three temporary files beside the target, and commit
 * joins them behind the header. Nothing is kept in memory, however long the data. The three have no
 * names, so that a writer that is killed leaves nothing before its commit, and give their room back
 * as they are joined, so that a shard takes little more than its size.
 *
 * The hash is taken over a mapping of the joined file: its pages are in the cache, and a file being
 * read back whole is also a check that it can be. */
#include "common/dataset.h"
#include "common/dataset_file.h"
#include "common/io.h"
#include "common/mem.h"
#include "common/must.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum dataset_part_kind { PART_OFFSETS, PART_IDS, PART_TRAINED, PART_COUNT };
enum {
    PART_BUFFER = 1 << 18,      /* bytes written at once: a row may have a few */
    PART_GIVEN_BACK = 16 << 20, /* bytes of a part, at once */
};

struct dataset_part {
    int fd;      /* a file without a name, or -1 */
    char *bytes; /* (PART_BUFFER), `used` of them not written yet; owned */
    size_t used;
};

struct dataset_writer {
    char *path; /* where the shard will appear; owned */
    struct dataset_part parts[PART_COUNT];
    struct dataset_header header; /* counts so far */
};

static void dataset_close_fd(int *fd)
{
    if (*fd >= 0)
        (void)close(*fd); /* only read, or of no use any more */
}

static void dataset_part_done(struct dataset_part *part)
{
    dataset_close_fd(&part->fd);
    mem_free(part->bytes);
    *part = (struct dataset_part){.fd = -1};
}

void dataset_writer_free(struct dataset_writer *writer)
{
    if (writer == NULL)
        return;
    for (int part = 0; part < PART_COUNT; part++)
        dataset_part_done(&writer->parts[part]);
    mem_free(writer->path);
    mem_free(writer);
}

static void dataset_writer_unref(struct dataset_writer **writer)
{
    dataset_writer_free(*writer);
}

static int dataset_part_flush(struct dataset_part *part, struct err *err)
{
    size_t length = part->used;
    part->used = 0;
    return io_write_full(part->fd, part->bytes, length, err);
}

static int dataset_part_write(struct dataset_part *part, const void *bytes, size_t length,
                              struct err *err)
{
    const char *from = bytes;
    while (length > 0) {
        size_t taken = PART_BUFFER - part->used;
        taken = taken < length ? taken : length;
        memcpy(part->bytes + part->used, from, taken);
        part->used += taken;
        from += taken;
        length -= taken;
        if (part->used == PART_BUFFER)
            TRY(dataset_part_flush(part, err));
    }
    return 0;
}

/* A file beside `path` that has no name. */
static int dataset_part_open(const char *path, struct dataset_part *part, struct err *err)
{
    CLEANUP(mem_free_ptr) char *name = mem_printf("%s.part-XXXXXX", path);
    part->bytes = mem_new(PART_BUFFER, 1);
    if (name == NULL || part->bytes == NULL)
        return mem_fail(err, PART_BUFFER, "a token shard's writer");
    part->fd = mkostemp(name, O_CLOEXEC);
    if (part->fd < 0 || unlink(name) != 0)
        return err_set_errno(err, errno, "%s", name);
    return 0;
}

int dataset_writer_new(const char *path, int64_t vocab, struct dataset_writer **ret,
                       struct err *err)
{
    must(vocab > 0);
    CLEANUP(dataset_writer_unref) struct dataset_writer *writer = mem_new(1, sizeof *writer);
    if (writer == NULL)
        return mem_fail(err, sizeof *writer, "a token shard's writer");
    for (int part = 0; part < PART_COUNT; part++)
        writer->parts[part].fd = -1;
    writer->header.vocab = vocab;
    memcpy(writer->header.magic, DATASET_MAGIC, sizeof writer->header.magic);
    writer->path = mem_strdup(path);
    if (writer->path == NULL)
        return mem_fail(err, strlen(path), "a path");
    for (int part = 0; part < PART_COUNT; part++)
        TRY(dataset_part_open(path, &writer->parts[part], err));
    int64_t first = 0;
    TRY(dataset_part_write(&writer->parts[PART_OFFSETS], &first, sizeof first, err));
    *ret = writer;
    writer = NULL;
    return 0;
}

int dataset_writer_add(struct dataset_writer *writer, const int32_t *ids, const uint8_t *trained,
                       int64_t count, struct err *err)
{
    must(count > 0);
    for (int64_t t = 0; t < count; t++) {
        must(ids[t] >= 0 && ids[t] < writer->header.vocab);
        must(trained[t] <= 1);
        writer->header.trained_tokens += trained[t];
    }
    size_t tokens = (size_t)count;
    writer->header.examples++;
    writer->header.tokens += count;
    int64_t end = writer->header.tokens;
    struct dataset_part *parts = writer->parts;
    int rc = dataset_part_write(&parts[PART_OFFSETS], &end, sizeof end, err);
    if (rc == 0)
        rc = dataset_part_write(&parts[PART_IDS], ids, tokens * sizeof *ids, err);
    if (rc == 0)
        rc = dataset_part_write(&parts[PART_TRAINED], trained, tokens, err);
    return rc == 0 ? 0 : err_wrap(err, rc, "%s, after %lld tokens: ", writer->path, (long long)end);
}

/* Appends a part to the shard; what was copied is given back, where the filesystem can. */
static int dataset_writer_join(int part, struct io_file *file, struct err *err)
{
    off_t at = 0, given = 0;
    for (;;) {
        char chunk[1 << 16];
        ssize_t got = pread(part, chunk, sizeof chunk, at);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return err_set_errno(err, errno, "reading tokens back");
        if (got == 0)
            return 0;
        TRY(io_write_full(file->fd, chunk, (size_t)got, err));
        at += got;
        if (at - given < PART_GIVEN_BACK)
            continue;
        (void)fallocate(part, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, given, at - given);
        given = at; /* without it there is only less room */
    }
}

static int dataset_writer_hash(const struct dataset_header *header, const char *path,
                               uint64_t *ret_hash, struct err *err)
{
    CLEANUP(dataset_close_fd) int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return err_set_errno(err, errno, "%s", path);
    size_t bytes =
        DATASET_HEADER_BYTES + 8 * (size_t)(header->examples + 1) + 5 * (size_t)header->tokens;
    void *map = mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED)
        return err_set_errno(err, errno, "%s: map", path);
    *ret_hash = io_hash64(map, bytes);
    (void)munmap(map, bytes); /* our own mapping */
    return 0;
}

static int dataset_writer_fill(struct dataset_writer *writer, struct io_file *file, struct err *err)
{
    uint64_t hash = 0;
    TRY(io_write_full(file->fd, &writer->header, sizeof writer->header, err));
    for (int part = 0; part < PART_COUNT; part++) {
        TRY(dataset_part_flush(&writer->parts[part], err));
        TRY(dataset_writer_join(writer->parts[part].fd, file, err));
        dataset_part_done(&writer->parts[part]);
    }
    TRY(dataset_writer_hash(&writer->header, file->temp_path, &hash, err));
    return io_write_full(file->fd, &hash, sizeof hash, err);
}

int dataset_writer_commit(struct dataset_writer *writer, struct err *err)
{
    CLEANUP(io_file_abort) struct io_file file;
    TRY(io_file_create(&file, writer->path, 0644, err));
    int rc = dataset_writer_fill(writer, &file, err);
    return rc == 0 ? io_file_commit(&file, err) : err_wrap(err, rc, "%s: ", writer->path);
}
