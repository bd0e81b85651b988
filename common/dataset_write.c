/* dataset, the writer. How many examples there will be is known at the end, but their offsets stand
 * first; so offsets, ids and flags grow in three temporary files beside the target, and commit
 * joins them behind the header. Nothing is kept in memory, however long the data.
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
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum dataset_part { PART_OFFSETS, PART_IDS, PART_TRAINED, PART_COUNT };
static const char *const dataset_part_names[PART_COUNT] = {
    [PART_OFFSETS] = "offsets", [PART_IDS] = "ids", [PART_TRAINED] = "trained"};

struct dataset_writer {
    struct io_file file;
    struct io_file parts[PART_COUNT]; /* never committed */
    struct dataset_header header;     /* counts so far */
};

void dataset_writer_free(struct dataset_writer *writer)
{
    if (writer == NULL)
        return;
    for (int part = 0; part < PART_COUNT; part++)
        io_file_abort(&writer->parts[part]);
    io_file_abort(&writer->file);
    mem_free(writer);
}

static void dataset_writer_unref(struct dataset_writer **writer)
{
    dataset_writer_free(*writer);
}

int dataset_writer_new(const char *path, int64_t vocab, struct dataset_writer **ret,
                       struct err *err)
{
    must(vocab > 0);
    CLEANUP(dataset_writer_unref) struct dataset_writer *writer = mem_new(1, sizeof *writer);
    if (writer == NULL)
        return mem_fail(err, sizeof *writer, "a token shard's writer");
    writer->file.fd = -1;
    for (int part = 0; part < PART_COUNT; part++)
        writer->parts[part].fd = -1;
    writer->header.vocab = vocab;
    memcpy(writer->header.magic, DATASET_MAGIC, sizeof writer->header.magic);
    TRY(io_file_create(&writer->file, path, 0644, err));
    for (int part = 0; part < PART_COUNT; part++) {
        CLEANUP(mem_free_ptr) char *name = mem_printf("%s.%s", path, dataset_part_names[part]);
        if (name == NULL)
            return mem_fail(err, strlen(path), "a path");
        TRY(io_file_create(&writer->parts[part], name, 0644, err));
    }
    int64_t first = 0;
    TRY(io_write_full(writer->parts[PART_OFFSETS].fd, &first, sizeof first, err));
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
    TRY(io_write_full(writer->parts[PART_OFFSETS].fd, &end, sizeof end, err));
    TRY(io_write_full(writer->parts[PART_IDS].fd, ids, tokens * sizeof *ids, err));
    return io_write_full(writer->parts[PART_TRAINED].fd, trained, tokens, err);
}

static void dataset_close_fd(int *fd)
{
    if (*fd >= 0)
        (void)close(*fd); /* opened for reading */
}

static int dataset_writer_join(struct dataset_writer *writer, enum dataset_part part,
                               struct err *err)
{
    const char *path = writer->parts[part].temp_path;
    CLEANUP(dataset_close_fd) int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return err_set_errno(err, errno, "%s", path);
    for (;;) {
        char chunk[1 << 16];
        ssize_t got = read(fd, chunk, sizeof chunk);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return err_set_errno(err, errno, "%s", path);
        if (got == 0)
            return 0;
        TRY(io_write_full(writer->file.fd, chunk, (size_t)got, err));
    }
}

static int dataset_writer_hash(struct dataset_writer *writer, uint64_t *ret_hash, struct err *err)
{
    const char *path = writer->file.temp_path;
    CLEANUP(dataset_close_fd) int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return err_set_errno(err, errno, "%s", path);
    const struct dataset_header *header = &writer->header;
    size_t bytes =
        DATASET_HEADER_BYTES + 8 * (size_t)(header->examples + 1) + 5 * (size_t)header->tokens;
    void *map = mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED)
        return err_set_errno(err, errno, "%s: map", path);
    *ret_hash = io_hash64(map, bytes);
    (void)munmap(map, bytes); /* our own mapping */
    return 0;
}

int dataset_writer_commit(struct dataset_writer *writer, struct err *err)
{
    uint64_t hash = 0;
    TRY(io_write_full(writer->file.fd, &writer->header, sizeof writer->header, err));
    for (int part = 0; part < PART_COUNT; part++)
        TRY(dataset_writer_join(writer, (enum dataset_part)part, err));
    TRY(dataset_writer_hash(writer, &hash, err));
    TRY(io_write_full(writer->file.fd, &hash, sizeof hash, err));
    return io_file_commit(&writer->file, err);
}
